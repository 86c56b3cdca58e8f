"""Beam metrics. Oracles: the definitions in NumPy (array_oracles), closed forms."""

from __future__ import annotations

import math

import array_oracles as oracle
import jax
import numpy as np
import pytest

import emma_jax as emma
from emma_jax.errors import DegenerateLabelsError, EvaluationError, LabelError, NonFiniteError, ShapeError

m = emma.metrics
RNG = np.random.default_rng(6)
N, B = 200, 24
SCORES = np.round(RNG.normal(size=(N, B)), 1).astype(np.float32)
LABELS = RNG.integers(0, B, N)
RANKED = oracle.ranked_beams(SCORES)
GAINS = RNG.exponential(size=(N, B)).astype(np.float32)


@pytest.mark.parametrize(("k", "delta"), [(3, 5), (1, 5), (5, 1), (2, 40)])
@pytest.mark.parametrize("circular", [False, True])
def test_dba(k, delta, circular):
    """From scores (with ties), from ranked beams counted from 0 and from 1: the definition, 1e-12; traced 4e-7."""
    want = oracle.dba(RANKED, LABELS, k, delta, B if circular else None)
    metric = m.DBAScore(k=k, delta=delta, circular=circular)
    assert abs(metric(SCORES, LABELS) - want) < 1e-12
    assert abs(float(jax.jit(metric)(SCORES, LABELS)) - want) < 4e-7
    for base in (0, 1):
        ranked = m.DBAScore(k=k, delta=delta, circular=circular, num_beams=B, input="ranked", index_base=base)
        assert ranked(RANKED + base, LABELS + base) == metric(SCORES, LABELS)


def test_dba_values():
    """Perfect 1; two beams off with delta 5: 0.6; across the ring; int scores; where and weights."""
    one_hot = np.eye(16)[[0, 15, 7]]
    assert m.DBAScore()(one_hot, [0, 15, 7]) == 1
    assert abs(m.DBAScore(k=1)(one_hot, [2, 13, 9]) - 0.6) < 1e-12
    assert m.DBAScore(k=1)(one_hot[:2], [15, 0]) == 0
    assert abs(m.DBAScore(k=1, circular=True)(one_hot[:2], [15, 0]) - 0.8) < 1e-12
    low = np.full((1, 4), np.iinfo(np.int32).min, np.int32)
    assert abs(m.DBAScore(k=2, delta=3)(low, [1]) - 5 / 6) < 1e-12
    w, keep = RNG.integers(0, 4, N), RNG.random(N) < 0.6
    rows = np.repeat(np.arange(N), w * keep)
    assert abs(m.DBAScore()(SCORES, LABELS, where=keep, weights=w) - oracle.dba(RANKED[rows], LABELS[rows])) < 1e-12


def test_dba_bad_input():
    """Unknown beams, NaN, k beyond the columns, no index base: typed, with the first index."""
    nan = SCORES.copy()
    nan[7, 3] = np.nan
    with pytest.raises(NonFiniteError, match=r"\(7, 3\)"):
        m.DBAScore()(nan, LABELS)
    wrong = LABELS.copy()
    wrong[4] = B
    with pytest.raises(LabelError, match="first at index 4"):
        m.DBAScore()(SCORES, wrong)
    with pytest.raises(LabelError, match=r"preds: .*first at index \(0, 1\)"):
        m.DBAScore(input="ranked", index_base=1)([[3, 0, 1]], [3])
    with pytest.raises(EvaluationError, match="columns"):
        m.DBAScore(k=30)(SCORES, LABELS)
    with pytest.raises(EvaluationError, match="index_base"):
        m.DBAScore(input="ranked")
    with pytest.raises(EvaluationError, match="num_beams"):
        m.DBAScore(input="ranked", index_base=0, circular=True)


@pytest.mark.parametrize("k", [1, 3])
def test_power_loss(k):
    """Mean dB between the best gain and the best of the first k: 1e-6 dB; linear and dB gains, scores and ranked."""
    picked = np.take_along_axis(GAINS.astype(np.float64), RANKED[:, :k], axis=1).max(1)
    want = np.mean(10 * np.log10(GAINS.max(1).astype(np.float64) / picked))
    for metric, preds, gains, tol in (
        (m.BeamPowerLoss(k=k), SCORES, GAINS, 1e-6),
        (m.BeamPowerLoss(k=k), SCORES, GAINS * np.float32(1e-40), 1e-3),
        (m.BeamPowerLoss(k=k), SCORES, GAINS * np.float32(1e-20), 1e-6),
        (m.BeamPowerLoss(k=k, gain_unit="dB"), SCORES, 10 * np.log10(GAINS.astype(np.float64)), 1e-9),
        (m.BeamPowerLoss(k=k, input="ranked", index_base=1), RANKED + 1, GAINS, 1e-6),
    ):
        assert abs(metric(preds, gains) - want) < tol
        assert abs(float(jax.jit(metric)(preds, gains)) - want) < tol + 5e-6
    within = np.mean(picked >= GAINS.max(1) * 10**-0.3)
    assert m.RSRPAccuracy(k=k, margin_db=3.0)(SCORES, GAINS) == within
    assert m.RSRPAccuracy(k=k, margin_db=3.0, gain_unit="dB")(SCORES, 10 * np.log10(GAINS.astype(np.float64))) == within


def test_power_loss_edges():
    """No loss is 0; a dead beam costs +inf; a sample without gain is left out and counted; none left is an error."""
    assert m.BeamPowerLoss()(GAINS, GAINS) == 0 and m.RSRPAccuracy()(GAINS, GAINS) == 1
    gains = GAINS.copy()
    gains[3] = 0
    for metric in (m.BeamPowerLoss(), m.RSRPAccuracy()):
        found = emma.evaluate(emma.Task("T", (metric,)), SCORES, gains)
        assert found.validity[metric.name].n_excluded == 1 and math.isfinite(found[metric.name])
        with pytest.raises(DegenerateLabelsError):
            metric(SCORES, 0 * gains)
    gains[5, RANKED[5, 0]] = 0
    assert m.BeamPowerLoss()(SCORES, gains) == math.inf
    gains[6, 2] = -1
    with pytest.raises(LabelError, match=r"not negative.*\(6, 2\)"):
        m.BeamPowerLoss()(SCORES, gains)
    gains[6, 2] = np.inf
    with pytest.raises(NonFiniteError, match=r"labels: a gain must be finite.*\(6, 2\)"):
        m.BeamPowerLoss()(SCORES, gains)
    with pytest.raises(ShapeError):
        m.BeamPowerLoss()(SCORES, GAINS[:, :3])
    with pytest.raises(LabelError, match="preds"):
        m.BeamPowerLoss(input="ranked", index_base=0)(RANKED + 1, GAINS)


def test_ranked_task():
    """E-CH-BEAM on ranked beams says where it counts from; both bases agree with the scores."""
    want = emma.evaluate("E-CH-BEAM", SCORES, LABELS)["TopKAccuracy"]
    for base in (0, 1):
        got = emma.evaluate("E-CH-BEAM", RANKED + base, LABELS + base, input="ranked", index_base=base)
        assert got["TopKAccuracy"] == want
