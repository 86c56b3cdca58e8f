"""Definitions of the v0.1 metrics in exact rational arithmetic (or float64 where said), for the tests to hold the
package against. Nothing here is imported by the package, and nothing here imports it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np


def float64(x: Any) -> np.ndarray:
    """Any real array as float64; exact for float16, bfloat16, float32 and 32-bit integers."""
    return np.asarray(x).astype(np.float64)


def multiplicities(n: int, where: Any = None, weights: Any = None) -> list[int]:
    """How often each sample counts, as Python ints."""
    w = [1] * n if weights is None else [int(v) for v in np.broadcast_to(weights, (n,))]
    return w if where is None else [v if ok else 0 for v, ok in zip(w, np.broadcast_to(where, (n,)))]


def angular_error(preds: Any, labels: Any, weights: Iterable[int] | None = None, period: int = 360) -> Fraction:
    """Mean of min(delta, P - delta), delta = |p - t| mod P; exact for any finite float or integer input."""
    preds, labels = np.asarray(preds).tolist(), np.asarray(labels).tolist()
    w = list(weights) if weights is not None else [1] * len(preds)
    total = Fraction(0)
    for p, t, count in zip(preds, labels, w):
        if count:
            delta = abs(Fraction(p) - Fraction(t)) % period
            total += count * min(delta, period - delta)
    return total / sum(w)


def angular_error_float64(preds: Any, labels: Any, period: int = 360) -> float:
    """The same in float64 for long arrays: exact remainders, one correctly rounded sum."""
    delta = np.fmod(np.abs(float64(preds) - float64(labels)), period)
    return math.fsum(np.minimum(delta, period - delta)) / delta.shape[0]


def true_ranks(scores: Any, labels: Any) -> np.ndarray:
    """#{s_c > s_y} + #{c < y: s_c = s_y} of every row, in the scores' own (or an exact wider) dtype."""
    scores = np.asarray(scores)
    scores = scores if scores.dtype.kind in "iub" else float64(scores)
    labels = np.asarray(labels).astype(np.int64)
    true = scores[np.arange(len(labels)), labels][:, None]
    before = np.arange(scores.shape[1]) < labels[:, None]
    return (scores > true).sum(1) + ((scores == true) & before).sum(1)


def predicted(scores: Any) -> np.ndarray:
    """The class of highest score, the lowest index on a tie (a python loop of the definition, vectorised by column)."""
    scores = np.asarray(scores)
    scores = scores if scores.dtype.kind in "iub" else float64(scores)
    best, value = np.zeros(len(scores), np.int64), scores[:, 0].copy()
    for c in range(1, scores.shape[1]):
        better = scores[:, c] > value
        best[better], value[better] = c, scores[better, c]
    return best


def accuracy(hits: Any, weights: Iterable[int] | None = None) -> Fraction:
    """Share of hits."""
    w = list(weights) if weights is not None else [1] * len(hits)
    return Fraction(sum(c for c, h in zip(w, np.asarray(hits).tolist()) if h), sum(w))


def top_k(scores: Any, labels: Any, k: int, weights: Iterable[int] | None = None) -> Fraction:
    """Share of samples whose true class has rank < k."""
    return accuracy(true_ranks(scores, labels) < k, weights)


def balanced_accuracy(
    classes: Any, labels: Any, weights: Iterable[int] | None = None, absent: str = "zero"
) -> Fraction:
    """Mean recall over the classes that occur in labels or predictions ("exclude": in labels)."""
    classes, labels = np.asarray(classes).tolist(), np.asarray(labels).tolist()
    w = list(weights) if weights is not None else [1] * len(labels)
    support: dict[int, int] = {}
    hits: dict[int, int] = {}
    seen: set[int] = set()
    for p, y, count in zip(classes, labels, w):
        if count:
            support[y] = support.get(y, 0) + count
            hits[y] = hits.get(y, 0) + count * (p == y)
            seen |= {p, y}
    counted = seen if absent == "zero" else set(support)
    return sum((Fraction(hits.get(c, 0), support[c]) for c in counted if c in support), Fraction(0)) / len(counted)


def _side_counts(scores: Any, positive: Any, weights: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct scores ascending, with the number of positives and negatives at each (exact integers)."""
    scores = np.asarray(scores)
    scores = scores if scores.dtype.kind in "iub" else float64(scores)
    positive = np.asarray(positive).astype(bool)
    distinct, at = np.unique(scores, return_inverse=True)
    if weights is None:
        sides = [np.bincount(at[side], minlength=len(distinct)) for side in (positive, ~positive)]
    else:
        sides = []
        for side in (positive, ~positive):
            total = [0] * len(distinct)
            for i, count in zip(at[side].tolist(), np.asarray(weights, dtype=object)[side].tolist()):
                total[i] += int(count)
            sides.append(np.array(total, dtype=object))
    return distinct, sides[0], sides[1]


def auc(scores: Any, positive: Any, weights: Any = None) -> Fraction:
    """P(s+ > s-) + P(s+ = s-) / 2, by counting pairs at each distinct score."""
    _, pos, neg = _side_counts(scores, positive, weights)
    below = np.cumsum(neg) - neg
    pairs = int((pos * (2 * below + neg)).sum())
    return Fraction(pairs, 2 * int(pos.sum()) * int(neg.sum()))


def macro_auc(scores: Any, labels: Any, weights: Any = None) -> tuple[Fraction, int]:
    """Mean one-vs-rest AUC over the classes with both sides, and how many classes have not."""
    scores, labels = np.asarray(scores), np.asarray(labels)
    present = np.ones(len(labels), bool) if weights is None else np.array([int(w) > 0 for w in weights])
    defined = [c for c in range(scores.shape[1]) if ((labels == c) & present).any() and ((labels != c) & present).any()]
    values = [auc(scores[:, c], labels == c, weights) for c in defined]
    return sum(values, Fraction(0)) / len(values), scores.shape[1] - len(values)


def eer(scores: Any, genuine: Any, weights: Any = None) -> tuple[Fraction, float]:
    """The crossing FAR = FRR of the ROC polyline over distinct thresholds, walked from (0, 0) and interpolated on its
    segment; and the score at the segment's far end."""
    distinct, gen, imp = _side_counts(scores, genuine, weights)
    num_gen, num_imp = int(gen.sum()), int(imp.sum())
    accepted_gen, accepted_imp = np.cumsum(gen[::-1]), np.cumsum(imp[::-1])
    crossed = accepted_imp * num_gen >= (num_gen - accepted_gen) * num_imp
    at = int(np.argmax(crossed))
    before = (0, 0) if at == 0 else (int(accepted_gen[at - 1]), int(accepted_imp[at - 1]))
    far0, frr0 = Fraction(before[1], num_imp), 1 - Fraction(before[0], num_gen)
    far1, frr1 = Fraction(int(accepted_imp[at]), num_imp), 1 - Fraction(int(accepted_gen[at]), num_gen)
    t = (frr0 - far0) / ((far1 - far0) + (frr0 - frr1))
    return far0 + t * (far1 - far0), distinct[::-1][at].item()


def pooled(scores: Any, labels: Any, weights: Any = None) -> tuple[np.ndarray, np.ndarray, Any]:
    """[N, C] scores as one-vs-rest trials: scores, genuine, weights, each [N C]."""
    scores, labels = np.asarray(scores), np.asarray(labels)
    genuine = labels[:, None] == np.arange(scores.shape[1])
    w = None if weights is None else np.repeat(np.asarray(weights, dtype=object), scores.shape[1])
    return scores.reshape(-1), genuine.reshape(-1), w


def ulps32(value: Any, exact: Fraction | float) -> float:
    """Distance of a float32 value from the exact one, in units of the last place of the nearest float32."""
    return float(abs(Fraction(float(value)) - Fraction(exact))) / float(np.spacing(np.float32(abs(float(exact)))))
