"""Curves of a scored file, small enough to live in its result: exact points of the full curve, none made up.

ROC: a vertex is (FP, TP) at one threshold t, counting scores >= t; thresholds are the distinct scores. Kept are, for
each rate g of `RATES`, the last vertex with FAR = FP/N <= g, the first one with FRR = 1 - TP/P <= g, and the corners
beside them: the first vertex with FP >= floor(gN) and the last one with P - TP > floor(gP). So the curve is whole for
up to 32 positives and negatives, a chord is never wider than a step of `RATES` for more, and DET curves, which magnify
small rates, get the points that they need. Within a level or upright run only the ends are kept: nothing is lost.

Distribution of errors: order statistics. Point i of 64 is the smallest error d that at least ceil(i n/64) of the n
samples do not exceed; point 0 is the smallest error.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from emma_jax.metrics import AUC, EER, MeanAngularError
from emma_jax.scores import json_number

__all__ = ["RATES", "error_curve", "fold_curves", "roc_curve"]

RATES: tuple[Fraction, ...] = tuple(
    sorted(
        {Fraction(i, 32) for i in range(33)}
        | {Fraction(m, 10**e) for e in range(2, 6) for m in (1, 2, 5)}
        | {1 - Fraction(m, 10**e) for e in range(2, 4) for m in (1, 2, 5)}
    )
)
"""Rates at which a ROC curve is kept, in [0, 1]: 32 equal steps, and 1-2-5 down to 1e-5 towards the corners."""

_QUANTILES = 64


def fold_curves(task: Any, preds: Any, labels: Any, where: Any = None) -> dict[str, Any]:
    """The curves that the metrics of a task call for.

    Args:
      task: the `emma_jax.tasks.Task` that scored the file.
      preds: predictions in the order of the labels, [N] or [N, C] scores, or [N] degrees; nothing here is NaN.
      labels: [N] classes, or degrees.
      where: bool [N], or None; False leaves a sample out.

    Returns:
      JSON-ready: ``roc`` (`roc_curve`) for tasks with an AUC or an EER, ``errors`` (`error_curve`) for angles; empty
      for the rest.
    """
    if not isinstance(preds, np.ndarray) or not isinstance(labels, np.ndarray):
        return {}
    if where is not None:
        if where.shape != labels.shape[:1]:
            return {}
        preds, labels = preds[where], labels[where]
    curves: dict[str, Any] = {}
    if any(isinstance(m, (AUC, EER)) for m in task.metrics):
        roc = _roc_of(preds, labels)
        if roc:
            curves["roc"] = roc
    angles = next((m for m in task.metrics if isinstance(m, MeanAngularError)), None)
    if angles is not None and preds.ndim == labels.ndim == 1 and len(labels):
        curves["errors"] = error_curve(_angular_errors(angles, preds, labels))
    return curves


def _angular_errors(metric: MeanAngularError, preds: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Every sample's distance on the circle [N], degrees, in float64.

    As `per_sample` has it, to 1e-12 degrees for angles in degrees, but without a kernel: tracing one takes 0.7 s, half
    of what a process needs to score a submission once all kernels are in the compilation cache.
    """
    scale = 1.0 if metric.input_unit == "deg" else 180.0 / np.pi
    turned = np.abs((preds.astype(np.float64) - labels.astype(np.float64)) * scale) % metric.period
    distance: np.ndarray = np.minimum(turned, metric.period - turned)
    return distance


def _roc_of(preds: np.ndarray, labels: np.ndarray) -> dict[str, Any] | None:
    """ROC of binary scores [N], or of scores [N, C] with every class against the rest, pooled as the EER pools them."""
    if labels.ndim != 1 or labels.dtype.kind not in "biuf" or preds.dtype.kind not in "biuf":
        return None
    if preds.ndim == 1:
        positive, trials = labels == 1, "binary"
    elif preds.ndim == 2:
        positive, trials = labels[:, None] == np.arange(preds.shape[1]), "pooled one-vs-rest"
    else:
        return None
    curve = roc_curve(preds[positive], preds[~positive])
    return None if curve is None else {"trials": trials, **curve}


def roc_curve(genuine: np.ndarray, impostor: np.ndarray) -> dict[str, Any] | None:
    """Exact vertices of a ROC at `RATES`, and its equal error rate.

    Args:
      genuine: scores [P] of positives, higher for more likely; no NaN.
      impostor: scores [N] of negatives.

    Returns:
      ``positives`` P and ``negatives`` N (counts), ``fp`` and ``tp`` (counts of the vertices kept, non-decreasing, from
      (0, 0) to (N, P)), ``eer`` in [0, 1] (lower is better) where the polyline of *all* vertices crosses FAR = FRR,
      linear within a segment, and ``threshold``, that of the segment's far end. None without a positive or a negative.
    """
    p, n = np.sort(np.asarray(genuine).reshape(-1)), np.sort(np.asarray(impostor).reshape(-1))
    if not p.size or not n.size:
        return None
    vertices = {(0, 0), (n.size, p.size)}
    for g in RATES:
        k = int(g * n.size)  # floor
        if k < n.size:
            vertices.add(_above(p, n, n[n.size - 1 - k], "right"))  # all scores above the (k+1)-th largest negative
        if k > 0:
            vertices.add(_above(p, n, n[n.size - k], "left"))
        m = p.size - int(g * p.size)  # positives needed
        if m > 0:
            vertices |= {_above(p, n, p[p.size - m], side) for side in ("left", "right")}
    every = sorted(vertices)
    inner = (v for a, v, b in zip(every, every[1:], every[2:]) if not (a[0] == v[0] == b[0] or a[1] == v[1] == b[1]))
    kept = [every[0], *inner, every[-1]]
    eer, threshold = _crossing(p, n)
    return {
        "positives": int(p.size),
        "negatives": int(n.size),
        "fp": [fp for fp, _ in kept],
        "tp": [tp for _, tp in kept],
        "eer": eer,
        "threshold": json_number(threshold),
    }


def _above(p: np.ndarray, n: np.ndarray, value: Any, side: Any) -> tuple[int, int]:
    """(FP, TP) of the scores above a value ("right"), or at least that ("left"), of sorted scores."""
    return int(n.size - np.searchsorted(n, value, side)), int(p.size - np.searchsorted(p, value, side))


def _crossing(p: np.ndarray, n: np.ndarray) -> tuple[float, float]:
    """Where FAR = FRR on the polyline of all vertices: FAR - FRR grows as the threshold falls, so bisect."""
    scores = np.sort(np.concatenate((p, n)))
    low, high = 0, scores.size - 1  # the vertex at scores[low] has FAR - FRR >= 0; find the largest such threshold
    while low < high:
        middle = (low + high + 1) // 2
        fp, tp = _above(p, n, scores[middle], "left")
        if fp * p.size >= (p.size - tp) * n.size:
            low = middle
        else:
            high = middle - 1
    far_end, near_end = _above(p, n, scores[low], "left"), _above(p, n, scores[low], "right")
    far0, frr0 = Fraction(near_end[0], n.size), 1 - Fraction(near_end[1], p.size)
    far1, frr1 = Fraction(far_end[0], n.size), 1 - Fraction(far_end[1], p.size)
    step = (frr0 - far0) / ((far1 - frr1) - (far0 - frr0))
    return float(far0 + step * (far1 - far0)), float(scores[low])


def error_curve(errors: Any) -> list[float]:
    """Quantiles i/64 of [N] errors, i = 0..64, as order statistics in the unit of the errors, to six digits."""
    d = np.sort(np.asarray(errors, np.float64).reshape(-1))
    index = [max(-(-i * d.size // _QUANTILES) - 1, 0) for i in range(_QUANTILES + 1)]
    return [float(f"{d[i]:.6g}") for i in index]
