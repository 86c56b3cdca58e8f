"""Definitions of the array metrics in NumPy extended precision, written from the formulas alone, for the tests to hold
the package against. Nothing here is imported by the package, and nothing here imports it."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np


def wide(x: Any) -> np.ndarray:
    """Any array as extended-precision complex: exact for whatever the tests use, with exponents to 10^4932."""
    return np.asarray(x).astype(np.clongdouble)


def repeated(values: np.ndarray, weights: Any = None) -> np.ndarray:
    """A multiset: every value as often as its weight says."""
    return values if weights is None else np.repeat(values, np.asarray(weights))


def energy(x: np.ndarray) -> np.ndarray:
    """|x|^2 summed over everything but the first axis."""
    x = wide(x)
    return (x.real**2 + x.imag**2).reshape(x.shape[0], -1).sum(1)


def nmse(preds: Any, labels: Any, reduction: str = "ratio_of_sums", weights: Any = None) -> float:
    """dB; samples of zero energy are left out."""
    error, true = energy(wide(preds) - wide(labels)), energy(wide(labels))
    error, true = (repeated(x, weights) for x in (error, true))
    error, true = error[true > 0], true[true > 0]
    with np.errstate(divide="ignore"):
        if reduction == "ratio_of_sums":
            return float(10 * np.log10(error.sum() / true.sum()))
        if reduction == "mean_ratio":
            return float(10 * np.log10(np.mean(error / true)))
        return float(np.mean(10 * np.log10(error / true)))


def sgcs(preds: Any, labels: Any, axis: int = -1) -> float:
    """Mean over vectors of |v^H v^|^2 / (||v||^2 ||v^||^2); zero truths left out, zero predictions 0."""
    p, t = (np.moveaxis(wide(x), axis, -1).reshape(-1, x.shape[axis]) for x in (preds, labels))
    values = []
    for a, b in zip(p, t):
        power = (abs(a) ** 2).sum() * (abs(b) ** 2).sum()
        if (b != 0).any():
            values.append(0.0 if power == 0 else abs((b.conj() * a).sum()) ** 2 / power)
    return float(np.mean(values))


def si_sdr(
    pred: Any, label: Any, *, clip: float | None = 100.0, zero_mean: bool = False, phase_invariant: bool = True
) -> float | None:
    """dB of one signal; None for a silent reference."""
    p, s = wide(pred), wide(label)
    raw = (abs(s) ** 2).sum()
    if zero_mean:
        p, s = p - p.mean(), s - s.mean()
    power = (abs(s) ** 2).sum()
    if raw == 0 or power < 1e-10 * raw:
        return None
    alpha = (p * s.conj()).sum() / power
    alpha = alpha if phase_invariant else alpha.real
    target, noise = (abs(alpha * s) ** 2).sum(), (abs(p - alpha * s) ** 2).sum()
    value = -math.inf if target == 0 else math.inf if noise == 0 else float(10 * np.log10(target / noise))
    return value if clip is None else min(max(value, -clip), clip)


def mean_si_sdr(preds: Any, labels: Any, weights: Any = None, **options: Any) -> float:
    """Mean over the signals ``[..., T]`` whose reference is not silent."""
    steps = np.asarray(preds).shape[-1]
    values = [si_sdr(p, s, **options) for p, s in zip(np.reshape(preds, (-1, steps)), np.reshape(labels, (-1, steps)))]
    counts = np.ones(len(values), int) if weights is None else np.reshape(weights, -1)
    pairs = [(v, int(c)) for v, c in zip(values, counts) if v is not None]
    return sum(v * c for v, c in pairs) / sum(c for _, c in pairs)


def best_si_sdr(preds: Any, labels: Any, **options: Any) -> float:
    """Mean over sources of the assignment with the highest mean, per sample ``[K, T]``, then over samples."""
    total, count = 0.0, 0
    for p, s in zip(preds, labels):
        k = len(s)
        options_of = []
        for order in itertools.permutations(range(k)):
            values = [si_sdr(p[order[j]], s[j], **options) for j in range(k)]
            options_of.append([v for v in values if v is not None])
        best = max(options_of, key=sum)
        total, count = total + sum(best), count + len(best)
    return total / count


def beam_distances(ranked: Any, labels: Any, beams: int | None = None) -> np.ndarray:
    """|b_nj - b_n| [N, J], on a ring of ``beams`` if given."""
    d = np.abs(np.asarray(ranked, np.int64) - np.asarray(labels, np.int64)[:, None])
    return d if beams is None else np.minimum(d, beams - d)


def ranked_beams(scores: Any) -> np.ndarray:
    """Beams by descending score, the lowest index first on a tie."""
    return np.argsort(-np.asarray(scores).astype(np.float64), axis=1, kind="stable")


def dba(ranked: Any, labels: Any, k: int = 3, delta: int = 5, beams: int | None = None) -> float:
    """Mean over 1..K of 1 - mean_n min_{j <= k} min(|b_nj - b_n| / delta, 1)."""
    d = np.minimum(beam_distances(ranked, labels, beams) / delta, 1)
    return float(np.mean([1 - d[:, :j].min(1).mean() for j in range(1, k + 1)]))


def rel_l2(preds: Any, labels: Any) -> float:
    """Pooled over everything."""
    error, true = energy((wide(preds) - wide(labels))[None])[0], energy(wide(labels)[None])[0]
    return float(np.sqrt(error / true))


def local_errors(preds: Any, labels: Any) -> np.ndarray:
    """||F^ - F|| / ||F|| of every probe with a field, components along the last axis."""
    norm = lambda x: np.sqrt((abs(x) ** 2).sum(-1))  # noqa: E731
    p, t = wide(preds), wide(labels)
    keep = (t != 0).any(-1)
    return (norm(p - t)[keep] / norm(t)[keep]).astype(np.float64)


def local_cosines(preds: Any, labels: Any) -> np.ndarray:
    """Re sum F^ F* / (||F^|| ||F||) of every probe with a field; 0 where only F^ is zero."""
    p, t = wide(preds), wide(labels)
    keep = (t != 0).any(-1)
    p, t = p[keep], t[keep]
    power = np.sqrt((abs(p) ** 2).sum(-1)) * np.sqrt((abs(t) ** 2).sum(-1))
    with np.errstate(invalid="ignore"):
        return np.where(power > 0, (p * t.conj()).real.sum(-1) / power, 0).astype(np.float64)


def sparam(preds: Any, labels: Any, weights: Any = None) -> tuple[float, float, float]:
    """real_imag_rmse, mag_wmae (dB), ph_wmae (rad) over all entries."""
    p, t = (
        repeated(wide(x).reshape(-1), None if weights is None else np.reshape(weights, -1)) for x in (preds, labels)
    )
    rmse = np.sqrt((abs(p - t) ** 2).mean() / 2)
    floor = np.longdouble(1e-10)
    m_p, m_t = (20 * np.log10(np.maximum(abs(x), floor)) for x in (p, t))
    w = 1 / (1 + np.exp(-(m_t + 20) / 2))
    phase = np.where(p == 0, 0, np.arctan2(p.imag, p.real)) - np.where(t == 0, 0, np.arctan2(t.imag, t.real))
    two_pi = 2 * np.arctan2(np.longdouble(0), np.longdouble(-1))
    phase = np.where(t == 0, 0, abs((phase + two_pi / 2) % two_pi - two_pi / 2))
    return float(rmse), float((w * abs(m_p - m_t)).sum() / w.sum()), float((w * phase).sum() / w.sum())
