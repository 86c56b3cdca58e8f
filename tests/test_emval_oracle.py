"""EMVal metrics in NumPy float64, written from the protocol's formulas alone: the oracle of the board tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest


def field_metrics(truth: np.ndarray, pred: np.ndarray, where: np.ndarray | None = None) -> tuple[float, float, float]:
    """rel L2, median local error, median local cosine of one field [J, F, P, 3]; probes without a field leave the
    medians."""
    t, p = truth.reshape(-1, 3).astype(complex), pred.reshape(-1, 3).astype(complex)
    if where is not None:
        t, p = t[where.ravel()], p[where.ravel()]
    rel_l2 = np.sqrt((np.abs(p - t) ** 2).sum() / (np.abs(t) ** 2).sum())
    norm = np.sqrt((np.abs(t) ** 2).sum(1))
    t, p, norm = t[norm > 0], p[norm > 0], norm[norm > 0]
    error = np.sqrt((np.abs(p - t) ** 2).sum(1)) / norm
    norm_pred = np.sqrt((np.abs(p) ** 2).sum(1))
    inner = (p * t.conj()).sum(1).real
    cosine = np.where(norm_pred > 0, inner / (np.where(norm_pred > 0, norm_pred, 1) * norm), 0)
    return float(rel_l2), float(np.median(error)), float(np.median(cosine))


def sparam_metrics(truth: np.ndarray, pred: np.ndarray, where: np.ndarray | None = None) -> dict[str, float]:
    """riRMSE, mag-wMAE in dB, phase-wMAE in rad of [F, i, j]; magnitudes are floored at 1e-10, N0 = -20 dB, tau = 2."""
    t, p = (x.astype(complex) if where is None else x[where].astype(complex) for x in (truth, pred))
    error = p - t
    m, m_hat = (20 * np.log10(np.maximum(np.abs(x), 1e-10)) for x in (t, p))
    w = np.exp(45 - np.logaddexp(0, -(m + 20) / 2))
    phase = np.angle(np.where(p == 0, 1, p)) - np.angle(np.where(t == 0, 1, t))
    phase = np.where(t == 0, 0, np.abs((phase + np.pi) % (2 * np.pi) - np.pi))
    return {
        "real_imag_rmse": float(np.sqrt((error.real**2 + error.imag**2).sum() / (2 * error.size))),
        "mag_wmae": float((w * np.abs(m_hat - m)).sum() / w.sum()),
        "ph_wmae": float((w * phase).sum() / w.sum()),
    }


def score_board(truth: Mapping[str, Any], pred: Mapping[str, Any], track: str) -> dict[str, float]:
    """All metrics of one track for one board."""
    where = truth.get("where")
    if track == "SP":
        return sparam_metrics(truth["S"], pred["S"], where)
    values = {}
    for name in "EH":
        values[f"rel_l2_{name}"], values[f"local_q50_{name}"], values[f"local_cos_q50_{name}"] = field_metrics(
            truth[name], pred[name], where
        )
    return values


@pytest.mark.parametrize(("gain", "phase"), [(1.0, 0.0), (0.5, 0.3), (2.0, -3.0), (1.0, np.pi)])
def test_scaled_and_rotated_field(gain: float, phase: float) -> None:
    """g e^{j phi} F: rel L2 = local error = |g e^{j phi} - 1|, cosine = cos phi, to 1e-12."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(2, 3, 50, 3)) + 1j * rng.normal(size=(2, 3, 50, 3))
    factor = gain * np.exp(1j * phase)
    expected = (abs(factor - 1), abs(factor - 1), np.cos(phase))
    assert field_metrics(truth, factor * truth) == pytest.approx(expected, abs=1e-12)


def test_scaled_and_rotated_sparameters() -> None:
    """Half the magnitude and 0.2 rad of phase everywhere: 6.02 dB and 0.2 rad whatever the weights, to 1e-12."""
    rng = np.random.default_rng(1)
    truth = rng.normal(size=(9, 2, 2)) + 1j * rng.normal(size=(9, 2, 2))
    got = sparam_metrics(truth, 0.5 * np.exp(0.2j) * truth)
    assert got["mag_wmae"] == pytest.approx(20 * np.log10(2), rel=1e-12)
    assert got["ph_wmae"] == pytest.approx(0.2, rel=1e-12)
    scale = abs(0.5 * np.exp(0.2j) - 1)
    assert got["real_imag_rmse"] == pytest.approx(scale * np.sqrt((np.abs(truth) ** 2).mean() / 2), rel=1e-12)
