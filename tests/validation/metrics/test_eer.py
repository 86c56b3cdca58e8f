"""EER is interpolated on the ROC polyline, not snapped to a threshold. Oracle: the polyline in exact rationals."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import oracles
import pytest

import emma_jax as emma

EER = emma.metrics.EER()


def polyline(scores, labels) -> list[tuple[Fraction, Fraction]]:
    """(FAR, FRR) at every distinct threshold, by counting; independent of the shared oracle."""
    gen, imp = ([s for s, y in zip(scores, labels) if y == side] for side in (1, 0))
    points = [(Fraction(0), Fraction(1))]
    for t in sorted(set(scores), reverse=True):
        points.append((Fraction(sum(s >= t for s in imp), len(imp)), Fraction(sum(s < t for s in gen), len(gen))))
    return points


def crossing(points) -> Fraction:
    """Where the polyline meets FAR = FRR."""
    for (far0, frr0), (far1, frr1) in itertools.pairwise(points):
        if far1 >= frr1:
            t = (frr0 - far0) / ((far1 - far0) + (frr0 - frr1))
            return far0 + t * (far1 - far0)
    raise AssertionError("no crossing")


def test_crossing_between_thresholds():
    """Three genuine, five impostor trials: the curves cross between thresholds at 1/3, while the operating points give
    2/5 and 11/30; exact rationals, 1e-15."""
    scores, labels = [0.9, 0.7, 0.4, 0.8, 0.5, 0.3, 0.2, 0.1], [1, 1, 1, 0, 0, 0, 0, 0]
    points = polyline(scores, labels)
    assert crossing(points) == Fraction(1, 3)
    assert EER(scores, labels) == pytest.approx(1 / 3, abs=1e-15)
    assert all(far != frr for far, frr in points)
    snapped = min(points, key=lambda p: abs(p[0] - p[1]))
    assert abs(EER(scores, labels) - float(sum(snapped) / 2)) > 0.03


def test_every_labelling_of_tied_scores():
    """All labellings of seven scores with ties: exact rationals, 1e-15; and the shared oracle agrees."""
    scores = [0.1, 0.4, 0.4, 0.6, 0.6, 0.6, 0.9]
    for labels in itertools.product([0, 1], repeat=7):
        if 0 < sum(labels) < 7:
            want = crossing(polyline(scores, labels))
            assert EER(scores, labels) == pytest.approx(float(want), abs=1e-15)
            assert oracles.eer(scores, labels)[0] == want


@pytest.mark.parametrize(
    ("scores", "labels", "want"),
    [
        ([1.0, 0.0], [1, 0], 0.0),
        ([0.0, 1.0], [1, 0], 1.0),  # inverted scores give 1, not 0 and not 1/2
        ([0.5, 0.9, 0.1], [1, 0, 0], 0.5),
        ([3.0, 3.0, 3.0], [1, 0, 0], 0.5),
        ([np.inf, -np.inf, 0.0, 0.0], [1, 0, 1, 0], 0.25),
    ],
)
def test_known_values(scores, labels, want):
    """Tiny sets by hand; exact."""
    assert EER(scores, labels) == want


def test_threshold_is_that_of_the_far_end():
    """aux["threshold"] is a score that occurs, where FAR first reaches FRR; the polyline, exact."""
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 2, 101)
    scores = (rng.normal(size=101) + labels).astype(np.float32)
    want, threshold = oracles.eer(scores, labels)
    task = emma.Task("T", (EER,))
    result = emma.evaluate(task, scores, labels)
    assert result["EER"] == pytest.approx(float(want), abs=1e-15)
    assert result.aux["EER"]["threshold"] == threshold
    far = np.mean(scores[labels == 0] >= threshold)
    frr = np.mean(scores[labels == 1] < threshold)
    assert far >= frr


@pytest.mark.parametrize("num_classes", [2, 5])
def test_pooled_trials(num_classes):
    """[N, C] scores: s[n, y_n] genuine, all others impostors, pooled; validity counts trials; exact rationals, to
    1e-14."""
    rng = np.random.default_rng(num_classes)
    labels = rng.integers(0, num_classes, 200)
    scores = np.round(rng.normal(size=(200, num_classes)) + 2 * np.eye(num_classes)[labels], 1)
    result = emma.evaluate("E-ID-FP", scores, labels)
    want, threshold = oracles.eer(*oracles.pooled(scores, labels)[:2])
    assert result["EER"] == pytest.approx(float(want), abs=1e-14)
    assert result.aux["EER"]["threshold"] == threshold
    assert result.validity["EER"].n == 200 * num_classes and result.validity["Top1Accuracy"].n == 200


def test_monotone_rescaling():
    """A strictly increasing map changes no bit of the value; exact."""
    rng = np.random.default_rng(9)
    labels = rng.integers(0, 2, 300)
    scores = np.round(rng.normal(size=300) + labels, 2)
    assert EER(scores, labels) == EER(np.exp(scores), labels) == EER(1e6 * scores - 1e6, labels)
