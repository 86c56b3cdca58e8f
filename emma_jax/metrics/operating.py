"""Operating points: true positive rate at a pinned false positive rate.

Goal: how many real events a detector finds at a false alarm rate one can live with.
Convention: higher scores are positive; the ROC polyline over distinct thresholds, interpolated linearly, never snapped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from emma_jax.errors import DegenerateLabelsError, EvaluationError, ShapeError
from emma_jax.metrics.base import State, batch_summaries
from emma_jax.metrics.rank import EER, _bin_edge, _host_count, _is_half, _over_leading, _warn_wide
from emma_jax.numerics import keys, limbs, selection

__all__ = ["TPRatFPR"]


@dataclass(frozen=True)
class TPRatFPR(EER):
    r"""True positive rate at a given false positive rate, on the interpolated ROC polyline.

    .. math:: \mathrm{TPR@FPR} = \frac{P_{>\kappa} + \lambda P_{=\kappa}}{P}, \quad
       \lambda = \frac{f N - N_{>\kappa}}{N_{=\kappa}}

    where :math:`\kappa` is the negative score at which the count of negatives, from the highest down, first exceeds
    :math:`f N`; P and N count positives and negatives, as do their subscripted parts. At a vertical segment of the
    polyline the upper end counts. :math:`\kappa` is found by selection, and compared as integers: a rate of 0.07 is
    7/100 exactly. ``aux["threshold"]`` is :math:`\kappa`.

    Shapes: ``preds`` [N] scores of any real dtype, ``labels`` [N] in {0, 1}; ``where``, ``weights`` [N].
    Units: dimensionless, 0 to 1.
    Direction: higher is better. Chance is the rate itself.
    Errors: NonFiniteError for NaN (infinities are ordinary scores); LabelError; DegenerateLabelsError without a
    positive or a negative; ShapeError; EmptyEvaluationError.
    Streams: as for `AUC`.

    Attributes:
      capacity: size of the exact stream's buffer, or None for the histogram.
      score_dtype: which keys the histogram bins.
      score_range: (lo, hi) for equal bins instead.
      fpr: the false positive rate f, at least 0 and less than 1.
    """

    fpr: float = 0.01
    direction: ClassVar[str] = "higher"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.fpr) and 0 <= self.fpr < 1):
            raise EvaluationError(
                f"must be at least 0 and less than 1; got {self.fpr!r}", task=self.name, argument="fpr"
            )

    @property
    def _rate(self) -> Fraction:
        """The rate as the decimal it was written as."""
        return Fraction(repr(float(self.fpr)))

    def _sample_shape(self, preds: Any, labels: Any, task: str) -> tuple[int, ...]:
        if preds.ndim != 1:
            raise ShapeError(f"needs scores [N]; got shape {tuple(preds.shape)}", task=task, argument="preds")
        return super()._sample_shape(preds, labels, task)

    def _summary(self, preds: Any, labels: Any, mask: Any, weights: Any) -> State:
        scores, positive, used, w, counts = self._trials(preds, labels, mask, weights)
        k = keys.order_key(scores)
        dtype = jnp.float32 if scores.dtype in (jnp.float16, jnp.bfloat16) else scores.dtype
        return counts | self._point(k, positive, jnp.ones(k.shape, bool) if used is None else used, w, dtype)

    def _point(self, k: Any, positive: Any, used: Any, weights: Any, dtype: Any) -> State:
        """The counts on either side of the threshold, from keys ``[n]``."""
        rate = selection.quantile(self._rate.numerator, self._rate.denominator)
        (kappa,) = selection.select(~k, used & ~positive, [rate], weights)
        kappa = ~kappa
        flags = {
            f"{side}_{place}": used & (positive if side == "positives" else ~positive) & where
            for side in ("positives", "negatives")
            for place, where in (("above", k > kappa), ("at", k == kappa), ("below", k < kappa))
        }
        return limbs.sum_many(flags, weights) | {"threshold": keys.key_value(kappa, dtype).astype(jnp.float32)}

    def _host_summary(self, preds: Any, labels: Any, mask: Any, weights: Any, wide: bool) -> Any:
        del wide
        if not isinstance(preds, np.ndarray) or not isinstance(labels, np.ndarray):
            return jax.tree_util.tree_map(np.asarray, batch_summaries((self,), preds, labels, mask, weights)[self.name])
        missing = np.isnan(preds) if jnp.issubdtype(preds.dtype, jnp.inexact) else np.zeros(preds.shape, bool)
        stray = ((labels < 0) | (labels > 1)) & ~missing
        keep = ~missing & ~stray if mask is None else mask & ~missing & ~stray
        state: dict[str, Any] = {"n_excluded": np.zeros(2, np.uint32)}
        flags = (("n", np.True_), ("n_nonfinite", missing), ("n_invalid_label", stray))
        state |= {k: _host_count(flag, mask, weights, labels.shape) for k, flag in flags}
        k = keys.order_key(preds[keep])
        w = None if weights is None else weights[keep]
        dtype = preds.dtype if preds.dtype.kind in "iub" or preds.dtype == np.float64 else np.float32
        return state | self._host_point(k, labels[keep] == 1, w, dtype)

    def _host_point(self, k: np.ndarray, positive: np.ndarray, weights: np.ndarray | None, dtype: Any) -> Any:
        """`_point` by NumPy, on the trials that count."""
        order = np.argsort(k, kind="stable")
        k, positive = k[order], positive[order]
        w = np.ones(k.shape, np.uint64) if weights is None else weights[order].astype(np.uint64)
        # Counts of each side below every position, ascending.
        below = {
            side: np.concatenate([np.zeros(1, np.uint64), np.cumsum(np.where(flag, w, np.uint64(0)))])
            for side, flag in (("positives", positive), ("negatives", ~positive))
        }
        num_negatives = int(below["negatives"][-1])
        wanted = math.floor(self._rate * num_negatives)
        # The last position with at most num_negatives - wanted - 1 negatives below it holds the threshold.
        rank = max(num_negatives - wanted - 1, 0)
        at = int(np.searchsorted(below["negatives"], np.uint64(rank), side="right")) - 1
        at = min(at, max(k.shape[0] - 1, 0))
        kappa = k[at] if k.shape[0] else k.dtype.type(0)
        first, last = (int(np.searchsorted(k, kappa, side=s)) for s in ("left", "right"))
        threshold = keys.key_value(np.asarray([kappa], k.dtype), dtype).astype(np.float64).reshape(())
        out: dict[str, Any] = {"threshold": threshold}
        for side, count in below.items():
            parts = (count[-1] - count[last], count[last] - count[first], count[first])
            out |= {f"{side}_{p}": limbs.from_int(int(v), 2) for p, v in zip(("above", "at", "below"), parts)}
        return out

    def _value(self, state: Any, xp: Any) -> tuple[Any, dict[str, Any]]:
        binned = "positives" in state
        overflow = state.get("overflow")
        if binned or "keys" in state:
            state = self._from_stream(state, xp)
        part = {k: limbs.to_float(state[k], xp) for k in state if k.startswith(("positives_", "negatives_"))}
        f = part["positives_at"].dtype.type
        num_p, num_n = (part[f"{s}_above"] + part[f"{s}_at"] + part[f"{s}_below"] for s in ("positives", "negatives"))
        undefined = (num_p == 0) | (num_n == 0)
        if overflow is not None:
            undefined = undefined | xp.any(overflow != 0, axis=-1)
        # fN - N_above without cancellation of large counts: as integers, over the rate's denominator.
        p, q = (limbs.from_int(v, 1 + v.bit_length() // 16) for v in (self._rate.numerator, self._rate.denominator))
        total = limbs.add(limbs.add(state["negatives_above"], state["negatives_at"]), state["negatives_below"])
        need, have = limbs.multiply(limbs.strict(total), p), limbs.multiply(limbs.strict(state["negatives_above"]), q)
        size = max(need.shape[-1], have.shape[-1])
        beyond = limbs.subtract(selection.extend(need, size), selection.extend(have, size))
        one = xp.where(part["negatives_at"] > 0, part["negatives_at"], f(1))
        share = limbs.to_float(beyond, xp) / (one * f(self._rate.denominator))
        scale = xp.where(num_p > 0, num_p, f(1))
        rate = (part["positives_above"] + share * part["positives_at"]) / scale
        aux = {"threshold": xp.where(undefined, f(np.nan), state["threshold"].astype(rate.dtype))}
        if binned:
            width = xp.maximum(share, f(1) - share) * part["positives_at"] / scale
            aux["half_width"] = xp.where(undefined, f(np.nan), width * f(not _is_half(self)))
            if xp is np:
                _warn_wide(self, aux["half_width"])
        return xp.where(undefined, f(np.nan), rate), aux

    def _from_stream(self, state: Any, xp: Any) -> Any:
        """The counts about the threshold from a stream's state."""

        def one(s: Any) -> dict[str, Any]:
            if "positives" in s:
                return self._from_histogram(s["positives"][0], s["negatives"][0], xp)
            k, p, w = (s[name][0] for name in ("keys", "positive", "weight"))
            if xp is np:
                use = w > 0
                return self._host_point(k[use], p[use] > 0, w[use], np.float32)
            return self._point(k, p > 0, w > 0, w, np.float32)

        if xp is not np:
            return one(state)
        names = ("positives", "negatives") if "positives" in state else ("keys", "positive", "weight")
        return _over_leading(one, {k: state[k] for k in names}, 3 if "positives" in state else 2)

    def _from_histogram(self, positives: Any, negatives: Any, xp: Any) -> dict[str, Any]:
        """Counts ``[bins, 2]`` about the bin in which the threshold lies."""
        down = {"positives": selection.cumulative(positives[::-1]), "negatives": selection.cumulative(negatives[::-1])}
        rate = selection.quantile(self._rate.numerator, self._rate.denominator)
        at = xp.argmax(rate(down["negatives"], down["negatives"][-1]))
        out: dict[str, Any] = {"threshold": _bin_edge(self, positives.shape[0] - 1 - at, xp)}
        for side, count in down.items():
            above = xp.where(at > 0, count[xp.maximum(at - 1, 0)], xp.zeros_like(count[0]))
            out[f"{side}_above"] = above
            out[f"{side}_at"] = limbs.subtract(count[at], above)
            out[f"{side}_below"] = limbs.subtract(count[-1], count[at])
        return out

    def _undefined(self, state: Any, task: str) -> EvaluationError:
        return DegenerateLabelsError("needs a positive and a negative sample", task=task, argument="labels")
