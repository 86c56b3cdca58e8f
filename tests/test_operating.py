"""TPRatFPR. Oracle: the ROC polyline over distinct thresholds in exact rationals."""

from __future__ import annotations

from fractions import Fraction

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emma_jax as emma
from emma_jax.errors import DegenerateLabelsError, EvaluationError, LabelError, NonFiniteError, ShapeError

m = emma.metrics
RNG = np.random.default_rng(12)
LABELS = RNG.integers(0, 2, 600)
SCORES = np.round(RNG.normal(size=600) + LABELS, 2).astype(np.float32)
RATES = (0.0, 0.01, 0.07, 0.1, 0.5, 0.999)


def polyline(scores, labels, rate, weights=None):
    """TPR at a rate: walk the vertices, interpolate; at a vertical segment, its upper end."""
    rate = Fraction(repr(rate))
    w = [1] * len(labels) if weights is None else [int(v) for v in weights]
    trials = [(float(s), int(y), c) for s, y, c in zip(scores, labels, w) if c]
    num_p, num_n = (sum(c for _, y, c in trials if y == side) for side in (1, 0))
    points = [(Fraction(0), Fraction(0))]
    for threshold in sorted({s for s, _, _ in trials}, reverse=True):
        hit = [(y, c) for s, y, c in trials if s >= threshold]
        points.append(tuple(Fraction(sum(c for y, c in hit if y == side), n) for side, n in ((0, num_n), (1, num_p))))
    best = max(t for f, t in points if f <= rate)
    at = max(i for i, (f, _) in enumerate(points) if f <= rate)
    (f0, _), (f1, t1) = points[at], points[at + 1]
    return best + (rate - f0) / (f1 - f0) * (t1 - best)


@pytest.mark.parametrize("rate", RATES)
def test_definition(rate):
    """Host to 1e-12, traced to 4e-7, on scores with ties; weights are multiplicities."""
    metric = m.TPRatFPR(fpr=rate)
    want = float(polyline(SCORES, LABELS, rate))
    assert abs(metric(SCORES, LABELS) - want) < 1e-12
    assert abs(metric(SCORES.astype(np.float64) + 1e-12, LABELS) - want) < 1e-12
    assert abs(float(jax.jit(metric)(SCORES, LABELS)) - want) < 4e-7
    w = RNG.integers(0, 4, 600)
    want = float(polyline(SCORES, LABELS, rate, w))
    assert abs(metric(SCORES, LABELS, weights=w) - want) < 1e-12
    assert abs(float(jax.jit(metric)(SCORES, LABELS, weights=w)) - want) < 4e-7


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 1)), min_size=2, max_size=12),
    st.sampled_from(RATES),
)
def test_small_sets(trials, rate):
    """Few distinct scores, any balance: the exact polyline; one class alone is an error."""
    scores, labels = np.array([t[0] for t in trials], np.float32), np.array([t[1] for t in trials])
    if labels.min() == labels.max():
        with pytest.raises(DegenerateLabelsError):
            m.TPRatFPR(fpr=rate)(scores, labels)
    else:
        assert abs(m.TPRatFPR(fpr=rate)(scores, labels) - float(polyline(scores, labels, rate))) < 1e-12


def test_streams():
    """A buffer is exact; a histogram is within its half-width, and exact for bfloat16 scores."""
    for rate in (0.01, 0.3):
        want = float(polyline(SCORES, LABELS, rate))
        exact = m.TPRatFPR(fpr=rate, capacity=700)
        state = exact.update(exact.update(exact.init(), SCORES[:100], LABELS[:100]), SCORES[100:], LABELS[100:])
        assert abs(exact.compute(state) - want) < 1e-12 and abs(float(jax.jit(exact.compute)(state)) - want) < 4e-7
        wide = m.TPRatFPR(fpr=rate, score_range=(-6.0, 8.0))
        task = emma.Task("T", (wide,))
        scores = task.compute(task.update(task.init(), SCORES, LABELS))
        assert abs(scores["TPRatFPR"] - want) <= scores.aux["TPRatFPR"]["half_width"] + 1e-12


def test_threshold_and_bad_input():
    """aux has the threshold; a rate of 1, [N, C] scores, NaN and stray labels are errors of their type."""
    scores = emma.evaluate(emma.Task("T", (m.TPRatFPR(fpr=0.5),)), [0.1, 0.2, 0.3, 0.4], [0, 0, 1, 1])
    assert scores["TPRatFPR"] == 1 and abs(scores.aux["TPRatFPR"]["threshold"] - 0.1) < 1e-7
    assert m.TPRatFPR(fpr=0.01)([np.inf, -np.inf], [1, 0]) == 1
    with pytest.raises(EvaluationError, match="fpr"):
        m.TPRatFPR(fpr=1.0)
    with pytest.raises(ShapeError):
        m.TPRatFPR()(np.ones((4, 2)), [0, 1, 0, 1])
    with pytest.raises(NonFiniteError):
        m.TPRatFPR()([0.1, np.nan], [0, 1])
    with pytest.raises(LabelError):
        m.TPRatFPR()([0.1, 0.2, 0.3], [0, 1, 2])
