"""per_sample: every sample's own value, by the metric's own formula."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import emma_jax as emma

RNG = np.random.default_rng(0)


def test_angles_are_the_definition_and_average_to_the_score() -> None:
    """Claim: each value is the circular distance (float64 oracle, 1e-12 absolute); their mean is the score (1e-12)."""
    p, t = RNG.uniform(-400, 400, 300).astype(np.float32), RNG.uniform(-400, 400, 300).astype(np.float32)
    delta = np.abs(p.astype(np.float64) - t) % 360
    values = emma.per_sample("E-LOC-AOA", p, t)["MeanAngularError"]
    np.testing.assert_allclose(values, np.minimum(delta, 360 - delta), rtol=0, atol=1e-12)
    assert values.mean() == pytest.approx(emma.evaluate("E-LOC-AOA", p, t)["MeanAngularError"], rel=1e-12)


def test_hits() -> None:
    """Claim: top-k values are 0 or 1 by the rank rule (NumPy oracle, exact), also under jit; FP has no per-sample
    EER."""
    scores, y = RNG.integers(0, 3, (200, 6)).astype(np.float32), RNG.integers(0, 6, 200)
    true = scores[np.arange(200), y][:, None]
    rank = ((scores > true) | ((scores == true) & (np.arange(6) < y[:, None]))).sum(axis=1)
    assert np.array_equal(emma.per_sample("E-CH-BEAM", scores, y)["TopKAccuracy"], rank < 3)
    traced = jax.jit(lambda s, labels: emma.per_sample("E-ID-FP", s, labels))(scores, y)
    assert list(traced) == ["Top1Accuracy"]
    assert np.array_equal(traced["Top1Accuracy"], rank < 1)


def test_channels_and_signals() -> None:
    """Claim: a channel's own NMSE and a signal's own SI-SDR in dB (float64 definitions, 1e-5 dB); a silent one is
    NaN."""
    h = RNG.normal(size=(20, 4, 3)) + 1j * RNG.normal(size=(20, 4, 3))
    e = 0.1 * (RNG.normal(size=h.shape) + 1j * RNG.normal(size=h.shape))
    own = 10 * np.log10((np.abs(e) ** 2).sum(axis=(1, 2)) / (np.abs(h) ** 2).sum(axis=(1, 2)))
    np.testing.assert_allclose(emma.per_sample("E-CH-CSI", h + e, h)["NMSE"], own, atol=1e-5)
    s, n = RNG.normal(size=(10, 64)), 0.3 * RNG.normal(size=(10, 64))
    s[3] = 0
    with np.errstate(invalid="ignore", divide="ignore"):
        target = ((s + n) * s).sum(axis=1, keepdims=True) / (s * s).sum(axis=1, keepdims=True) * s
        own = 10 * np.log10((target**2).sum(axis=1) / ((s + n - target) ** 2).sum(axis=1))
    np.testing.assert_allclose(emma.per_sample("E-SC-SEP", s + n, s)["SISDR"], own, atol=1e-4)


def test_text_and_errors() -> None:
    """Claim: captions have three values each; a rank metric has none and says so; a NaN is named."""
    values = emma.per_sample("E-S2T-CAP", ["no signal only noise", "x"], [["no signal only noise"], ["two tones"]])
    assert {k: v.shape for k, v in values.items()} == {"Bleu": (2,), "Meteor": (2,), "CIDER": (2,)}
    assert values["Bleu"].tolist() == [1.0, 0.0]
    with pytest.raises(emma.EvaluationError, match="no value per sample"):
        emma.per_sample("E-SC-ANOM", [0.1, 0.2], [0, 1])
    with pytest.raises(emma.NonFiniteError, match="index 1"):
        emma.per_sample("E-LOC-AOA", [0.0, np.nan], [0.0, 1.0])
    with pytest.raises(emma.EmptyEvaluationError):
        emma.per_sample("E-LOC-AOA", [], [])
