"""Rank metrics: AUC, AUROC and EER.

Goal: how well a score separates two classes, whatever the threshold (AUC), and the error where both kinds are equal
(EER).
Convention: scores are ranked as they are (no sigmoid, no softmax, no clipping); +-inf are ordinary scores; ties
count one half.

One shot is exact. A stream is exact with ``capacity=`` (a buffer of sorted keys), else a histogram over 65,536 key
bins whose value
comes with a certified half-width in ``aux``.
"""

from __future__ import annotations

import math
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from emma_jax import checks
from emma_jax.errors import DegenerateLabelsError, EvaluationError, ShapeError
from emma_jax.metrics.base import (
    ClassLabels,
    Metric,
    State,
    batch_summaries,
    both,
    class_axes,
    mean,
    real_dtype,
    require_int,
    tally,
)
from emma_jax.numerics import keys, limbs, ranking
from emma_jax.numerics.histogram import add_to_bins, bin_limbs
from emma_jax.numerics.run_pairs import pairs_of_run

__all__ = ["AUC", "AUROC", "EER"]

_BINS = 1 << 16
_WARN_HALF_WIDTH = 0.005
_PAIRS = ("pairs", "num_positive", "num_negative")


# --- streams: a histogram over key bins, or a buffer of sorted keys ----------------------------------------------


def _check_stream(metric: Any) -> None:
    if metric.capacity is not None:
        require_int(metric.capacity, "capacity", 1, metric.name)
    if metric.score_dtype not in ("float32", "bfloat16", "float16"):
        raise EvaluationError(
            f'must be "float32", "bfloat16" or "float16"; got {metric.score_dtype!r}',
            task=metric.name,
            argument="score_dtype",
        )
    if metric.score_range is not None:
        try:
            low, high = (float(v) for v in metric.score_range)
        except (TypeError, ValueError):
            low = high = np.nan
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise EvaluationError(
                f"must be finite (lo, hi) with lo < hi; got {metric.score_range!r}",
                task=metric.name,
                argument="score_range",
            )
        object.__setattr__(metric, "score_range", (low, high))


def _is_half(metric: Any) -> bool:
    """Whether each bin of the histogram holds one score only, so that the stream is exact."""
    return metric.score_range is None and metric.score_dtype != "float32"


def _check_capacity(metric: Any, dtype: Any) -> None:
    """A buffer keeps float32 keys: scores that may not be float32 would tie, and the stream would not be exact."""
    if metric.capacity is not None and dtype.itemsize > (4 if jnp.issubdtype(dtype, jnp.floating) else 2):
        raise EvaluationError(
            f"keeps float32 keys, which cannot hold every {dtype} score; convert the scores, or score in one shot",
            task=metric.name,
            argument="capacity",
        )


def _check_scores(metric: Any, dtype: Any) -> None:
    """A stream takes scores that its state holds as promised."""
    _check_capacity(metric, dtype)
    if _is_half(metric) and metric.capacity is None and dtype != metric.score_dtype:
        raise EvaluationError(
            f"promises {metric.score_dtype} scores, which the bins hold exactly; got {dtype}",
            task=metric.name,
            argument="score_dtype",
        )


def _stream_shapes(metric: Any, columns: int) -> dict[str, tuple[int, ...]]:
    if metric.capacity is None:
        return {"positives": (columns, _BINS, 2), "negatives": (columns, _BINS, 2)}
    shape = (columns, metric.capacity)
    return {"keys": shape, "positive": shape, "weight": shape, "filled": (2,), "overflow": (2,)}


def _bin(metric: Any, scores: Any) -> Any:
    """Bin of a score, monotone in it: uint32 in [0, 65535]."""
    if metric.score_range is not None:
        low, high = (np.float32(v) for v in metric.score_range)
        position = (keys.float32_scores(scores) - low) * np.float32(_BINS / (float(high) - float(low)))
        return jnp.clip(jnp.floor(position), 0, _BINS - 1).astype(jnp.uint32)
    if metric.score_dtype == "float16":
        return keys.float16_key(scores)
    return keys.order_key(keys.float32_scores(scores)) >> np.uint32(16)


def _bin_edge(metric: Any, index: Any, xp: Any) -> Any:
    """Lower edge of a bin, as a score."""
    index = xp.asarray(index)
    if metric.score_range is not None:
        low, high = metric.score_range
        return (xp.asarray(low + index * ((high - low) / _BINS))).astype(xp.float32)
    if _is_half(metric):
        # A 16-bit key is the float32 key's construction on 16 bits; undone there, it gives the one score of the bin.
        bits = xp.where(index >= 1 << 15, index & 0x7FFF, ((1 << 15) - index) | 1 << 15).astype(xp.uint32)
        if metric.score_dtype == "bfloat16":
            bits = bits << np.uint32(16)
            return bits.view(np.float32) if xp is np else lax.bitcast_convert_type(bits, jnp.float32)
        bits = bits.astype(xp.uint16)
        half = bits.view(np.float16) if xp is np else lax.bitcast_convert_type(bits, jnp.float16)
        return half.astype(xp.float32)
    return keys.key_value(index.astype(xp.uint32) << np.uint32(16), np.float32)


def _stream_stats(metric: Any, scores: Any, positive: Any, used: Any, weights: Any) -> State:
    """Histogram or buffer of one batch from columns ``scores, positive, used`` [K, n] and weights [n] or None."""
    columns, n = scores.shape
    _check_scores(metric, scores.dtype)
    w = None if weights is None else jnp.broadcast_to(weights, (columns, n))
    if metric.capacity is None:
        offset = lax.broadcasted_iota(jnp.uint32, (columns, n), 0) * np.uint32(2 * _BINS)
        index = offset + jnp.where(positive, np.uint32(0), np.uint32(_BINS)) + _bin(metric, scores)
        index = jnp.where(used, index, np.uint32(2 * _BINS * columns))
        hist = bin_limbs(index, 2 * _BINS * columns, w).reshape(columns, 2, _BINS, 2)
        return {"positives": hist[:, 0], "negatives": hist[:, 1]}
    weight = jnp.ones((columns, n), jnp.uint32) if w is None else w
    weight = jnp.where(used, weight, jnp.uint32(0))
    k = keys.order_key(keys.float32_scores(scores))
    return _fit(metric.capacity, {"keys": k, "positive": positive.astype(jnp.uint32), "weight": weight})


# A batch of up to so many trials a column is added to the bins that it touches; of more, as a histogram of its own.
_FEW_TRIALS = 1 << 13


def _few(metric: Any, scores: Any, weights: Any) -> bool:
    """Whether a batch of columns [K, n] is small beside the histogram that it is added to."""
    return metric.capacity is None and weights is None and scores.shape[1] <= _FEW_TRIALS


def _stream_absorb(metric: Any, state: State, scores: Any, positive: Any, used: Any) -> State:
    """Histograms of a state with one more small batch: the bits of merging the batch's own."""
    _check_scores(metric, scores.dtype)
    columns = scores.shape[0]
    place = lax.broadcasted_iota(jnp.uint32, scores.shape, 0) * np.uint32(_BINS) + _bin(metric, scores)
    out = {}
    for name, sign in (("positives", positive), ("negatives", ~positive)):
        index = jnp.where(used & sign, place, np.uint32(columns * _BINS)).reshape(-1)
        out[name] = add_to_bins(state[name].reshape(-1, 2), index).reshape(state[name].shape)
    return out


def _fit(capacity: int, entries: dict[str, Any]) -> State:
    """Entries sorted by (key, positive, weight), cut or padded to the capacity; an empty entry has weight 0 and
    sorts last."""
    names = ("keys", "positive", "weight")
    real = entries["weight"] > 0
    entries = {k: jnp.where(real, v, np.uint32(0xFFFFFFFF if k == "keys" else 0)) for k, v in entries.items()}
    ordered = lax.sort([entries[k] for k in names], dimension=1, num_keys=3)
    filled = jnp.max(jnp.sum(real, axis=1, dtype=jnp.uint32))
    out = {}
    for name, x in zip(names, ordered):
        x = x[:, :capacity]
        pad = np.uint32(0xFFFFFFFF if name == "keys" else 0)
        out[name] = jnp.pad(x, ((0, 0), (0, capacity - x.shape[1])), constant_values=pad)
    over = limbs.widen((filled > capacity).astype(jnp.uint32))
    return out | {"filled": limbs.widen(jnp.minimum(filled, np.uint32(capacity))), "overflow": over}


def _stream_merge(metric: Any, a: State, b: State) -> State:
    if metric.capacity is None:
        return {k: limbs.add(a[k], b[k]) for k in a}
    names = ("keys", "positive", "weight")
    fitted = _fit(metric.capacity, {k: jnp.concatenate([a[k], b[k]], axis=1) for k in names})
    fitted["overflow"] = limbs.add(limbs.add(a["overflow"], b["overflow"]), fitted["overflow"])
    return {k: fitted[k] if k in fitted else limbs.add(a[k], b[k]) for k in a}


def _stream_all_reduce(metric: Any, state: State, axis_name: Any) -> State:
    if metric.capacity is None:
        return {k: limbs.normalize(lax.psum(v, axis_name)) for k, v in state.items()}
    # A buffer has to be gathered: capacity x devices keys travel, not a sum. psum of a one-hot scatter keeps the result
    # replicated by type, which all_gather does not promise under shard_map.
    names = ("keys", "positive", "weight")
    size, index = lax.psum(1, axis_name), lax.axis_index(axis_name)

    def gather(x: Any) -> Any:
        slots = jnp.zeros((size, *x.shape), x.dtype)
        whole = lax.psum(lax.dynamic_update_index_in_dim(slots, x, index, 0), axis_name)
        return jnp.moveaxis(whole, 0, 1).reshape(x.shape[0], -1)

    fitted = _fit(metric.capacity, {k: gather(state[k]) for k in names})
    rest = {k: limbs.normalize(lax.psum(v, axis_name)) for k, v in state.items() if k not in names}
    return (
        rest
        | {k: fitted[k] for k in (*names, "filled")}
        | {"overflow": limbs.add(rest["overflow"], fitted["overflow"])}
    )


def _check_overflow(state: Any, metric: Any, task: str) -> None:
    if "overflow" in state and limbs.to_int(state["overflow"]):
        raise EvaluationError(
            f"more trials than capacity={metric.capacity}; the exact stream is incomplete",
            task=task,
            argument="capacity",
        )


def _warn_wide(metric: Any, half_width: Any) -> None:
    worst = float(np.max(np.where(np.isnan(half_width), 0.0, half_width), initial=0.0))
    if worst > _WARN_HALF_WIDTH:
        warnings.warn(
            f"{metric.name}: the histogram stream is only certain to +-{worst:.2g}; give score_range=(lo, hi) where "
            "the scores crowd, or capacity= for an exact stream",
            stacklevel=2,
        )


def _over_leading(fn: Any, state: dict[str, Any], rank: int) -> dict[str, np.ndarray]:
    """Applies a host function of one state to every state of a stack (``keys`` has ``rank`` axes in a single
    one)."""
    lead = state["keys" if "keys" in state else "positives"].shape[:-rank]
    if not lead:
        return {k: np.asarray(v) for k, v in fn(state).items()}
    flat = [fn({k: v[i] for k, v in state.items()}) for i in np.ndindex(*lead)]
    return {k: np.stack([np.asarray(f[k]) for f in flat]).reshape(lead + np.shape(flat[0][k])) for k in flat[0]}


# --- AUC --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AUC(Metric, ClassLabels):
    r"""Area under the ROC curve, exact, with ties as one half.

    .. math:: \mathrm{AUC} = P(\hat s_+ > \hat s_-) + \tfrac12 P(\hat s_+ = \hat s_-)

    For [N, C] scores the macro average of one-vs-rest AUCs over the classes that have both a positive and a
    negative; the
    others are counted in ``validity.n_absent_classes``.

    Shapes: ``preds`` [N] scores with ``labels`` [N] in {0, 1}, or ``preds`` [N, C] with ``labels`` [N] in 0..C-1;
    any real dtype;
    ``where``, ``weights`` [N].
    Units: dimensionless, 0 to 1.
    Direction: higher is better. Chance is 0.5.
    Errors: NonFiniteError for NaN (infinities are ordinary scores); LabelError; DegenerateLabelsError where no
    class has both a
    positive and a negative; ShapeError; EmptyEvaluationError.
    Streams: exact up to ``capacity`` samples (all_reduce then gathers the buffers), else a histogram whose
    ``aux["half_width"]`` bounds the distance to the exact value; exact for half types with ``score_dtype``. Under trace
    the weights of one exact call must sum to less than 2^32, else the value is NaN.

    Attributes:
      num_classes: None or 2 for scores [N]; C for scores [N, C].
      input: "binary" ([N]), "classes" ([N, C]), or "auto": by the rank of ``preds`` (a stream with num_classes 2
      expects [N]).
      capacity: size of the exact stream's buffer, or None for the histogram.
      score_dtype: "float32": the histogram bins the upper half of the key; "bfloat16" or "float16": scores must have
        that dtype, and the stream is exact, since there are 65,536 values.
      score_range: (lo, hi) for 65,536 equal bins instead; needed for confident sigmoids near 1.
    """

    num_classes: int | None = None
    input: str = "auto"
    capacity: int | None = None
    score_dtype: str = "float32"
    score_range: tuple[float, float] | None = None
    structured: ClassVar[bool] = False
    direction: ClassVar[str] = "higher"
    unit: ClassVar[str] = "1"
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __post_init__(self) -> None:
        if self.num_classes is not None:
            require_int(self.num_classes, "num_classes", 2, self.name)
        if self.input not in ("auto", "binary", "classes"):
            raise EvaluationError(
                f'must be "auto", "binary" or "classes"; got {self.input!r}', task=self.name, argument="input"
            )
        if self.input == "binary" and self.num_classes not in (None, 2):
            raise EvaluationError(
                f"is {self.num_classes}, but the input is binary", task=self.name, argument="num_classes"
            )
        _check_stream(self)

    def _resolve(self, preds: Any, labels: Any, mask: Any, task: str) -> Metric:
        del mask
        if preds.ndim == 1 and self.input == "auto":
            if self.num_classes not in (None, 2):
                raise ShapeError(
                    f"needs [N, {self.num_classes}] scores for num_classes={self.num_classes}; got shape {preds.shape}",
                    task=task,
                    argument="preds",
                )
            return replace(self, input="binary")
        if preds.ndim == 2 and preds.shape[1] > 1 and self.input != "binary":
            return replace(self, input="classes", num_classes=self.num_classes or int(preds.shape[1]))
        return self

    def _sample_shape(self, preds: Any, labels: Any, task: str) -> tuple[int, ...]:
        if self.input == "binary" or preds.ndim == 1:
            return _binary_axes(preds, labels, task)
        shape = class_axes(preds, labels, self.num_classes, task)
        if preds.shape[1] < 2:
            raise ShapeError("one column of scores needs shape [N], not [N, 1]", task=task, argument="preds")
        return shape

    def _columns(self) -> int:
        if self.input == "classes" or (self.num_classes or 2) > 2:
            if self.num_classes is None:
                raise EvaluationError(
                    "is not known; pass num_classes=, since the state has one entry per class",
                    task=self.name,
                    argument="num_classes",
                )
            return self.num_classes
        return 1

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        return _stream_shapes(self, self._columns())

    def _trials(self, preds: Any, labels: Any, mask: Any) -> tuple[Any, Any, Any, State]:
        """Columns of scores, positives and use [K, n], and the flags per sample."""
        y = labels.astype(jnp.int32)
        nan = _has_nan(preds)
        if preds.ndim == 1:
            valid = (y == 0) | (y == 1)
            scores, positive = preds[None], (y == 1)[None]
        else:
            c = preds.shape[1]
            valid = (y >= 0) & (y < c)
            scores, positive = preds.T, lax.broadcasted_iota(jnp.int32, (c, y.shape[0]), 0) == y
        if nan is None:
            return scores, positive, jnp.broadcast_to(both(mask, valid), positive.shape), {"n_invalid_label": ~valid}
        nan = nan if nan.ndim == 1 else jnp.any(nan, axis=1)
        used = jnp.broadcast_to(both(mask, valid & ~nan), positive.shape)
        return scores, positive, used, {"n_nonfinite": nan, "n_invalid_label": ~valid & ~nan}

    def _stats(self, preds: Any, labels: Any, mask: Any, weights: Any) -> State:
        scores, positive, used, flags = self._trials(preds, labels, mask)
        return tally(mask, weights, labels.shape, **flags) | _stream_stats(self, scores, positive, used, weights)

    def _absorb(self, state: State, preds: Any, labels: Any, mask: Any, weights: Any) -> State:
        scores, positive, used, flags = self._trials(preds, labels, mask)
        if not _few(self, scores, weights):
            return super()._absorb(state, preds, labels, mask, weights)
        counts = tally(mask, weights, labels.shape, **flags)
        added = {k: limbs.add(state[k], v) for k, v in counts.items()}
        return added | _stream_absorb(self, state, scores, positive, used)

    def _summary(self, preds: Any, labels: Any, mask: Any, weights: Any) -> State:
        scores, positive, used, flags = self._trials(preds, labels, mask)
        counts = tally(mask, weights, labels.shape, **flags)
        k = keys.order_key(scores)

        def column(args: Any) -> Any:
            key, pos, use = args
            amounts = limbs.sum_many({"p": use & pos, "n": use & ~pos}, weights)
            return ranking.pairs_from_keys(key, pos, use, weights), amounts["p"], amounts["n"]

        if k.shape[0] == 1:
            found = tuple(x[None] for x in column((k[0], positive[0], used[0])))
        else:
            found = lax.map(column, (k, positive, used))
        return counts | dict(zip(_PAIRS, found)) | _too_heavy(weights, *found[1:])

    def _host_summary(self, preds: Any, labels: Any, mask: Any, weights: Any, wide: bool) -> Any:
        if not isinstance(preds, np.ndarray) or not isinstance(labels, np.ndarray):
            return jax.tree_util.tree_map(np.asarray, batch_summaries((self,), preds, labels, mask, weights)[self.name])
        binary = preds.ndim == 1
        nan, invalid = _host_bad(preds, labels)
        if nan is not None and not binary:
            nan = nan.any(axis=1)
        state, keep = _host_use(nan, invalid, mask, weights, labels.shape)
        if wide:
            preds = ranking.dense_ranks(preds)[0]
        w = weights if keep is None or weights is None else weights[keep]
        labels = labels if keep is None else labels[keep]
        short = w is None and preds.dtype == np.float32  # key and label in 32 bits, which sort in half the time of 64

        def column(c: int | None) -> tuple[np.ndarray, ...]:
            scores = preds if c is None else preds[:, c]
            scores = scores if keep is None else scores[keep]
            positive = labels == (1 if c is None else c)
            pairs = pairs_of_run(scores, positive.astype(np.uint32)) if short else None
            if pairs is None:
                pairs = ranking.pairs_from_keys_host(keys.host_key(scores), positive, w)
            amount = int(np.count_nonzero(positive)) if w is None else int(w[positive].sum(dtype=np.uint64))
            total = positive.shape[0] if w is None else int(w.sum(dtype=np.uint64))
            return _pair_state(pairs, amount, total - amount)

        if binary:
            found = [column(None)]
        else:
            # NumPy's sort releases the interpreter lock, so the classes share the cores.
            with ThreadPoolExecutor(min(os.cpu_count() or 1, preds.shape[1])) as pool:
                found = list(pool.map(column, range(preds.shape[1])))
        names = _PAIRS
        return state | {k: np.stack([f[i] for f in found]) for i, k in enumerate(names)}

    def _merge(self, a: State, b: State) -> State:
        return _stream_merge(self, a, b)

    def _all_reduce(self, state: State, axis_name: Any) -> State:
        return _stream_all_reduce(self, state, axis_name)

    def _check_state(self, state: Any, task: str) -> None:
        _check_overflow(state, self, task)

    def _value(self, state: Any, xp: Any) -> tuple[Any, dict[str, Any]]:
        if "positives" in state:
            auc, half = ranking.pairs_from_histogram(state["positives"], state["negatives"], xp)
            # Where a bin holds one score, its ties are real.
            aux = {"half_width": _macro(half, xp) * half.dtype.type(not _is_half(self))}
            if xp is np:
                _warn_wide(self, aux["half_width"])
            return _macro(auc, xp), aux
        exact = self._from_buffer(state, xp) if "keys" in state else state
        positives, negatives = limbs.to_float(exact["num_positive"], xp), limbs.to_float(exact["num_negative"], xp)
        defined = (positives > 0) & (negatives > 0)
        one = positives.dtype.type(1)
        pairs = xp.where(defined, positives, one) * xp.where(defined, negatives, one)
        auc = limbs.to_float(exact["pairs"], xp) / (positives.dtype.type(2) * pairs)
        value = _macro(xp.where(defined, auc, auc.dtype.type(np.nan)), xp)
        for source in (state, exact):
            if "overflow" in source:
                value = xp.where(xp.any(source["overflow"] != 0, axis=-1), value.dtype.type(np.nan), value)
        return value, {}

    def _from_buffer(self, state: Any, xp: Any) -> Any:
        if xp is np:

            def one(s: Any) -> dict[str, np.ndarray]:
                found = []
                for k, p, w in zip(s["keys"], s["positive"], s["weight"]):
                    use = w > 0
                    k, p, w = k[use].astype(np.int64), p[use] > 0, w[use]
                    num_p, total = int(w[p].sum(dtype=np.uint64)), int(w.sum(dtype=np.uint64))
                    pairs = ranking.pairs_from_keys_host(k, p, w)
                    found.append(
                        (
                            limbs.from_int(pairs, ranking.PAIR_LIMBS),
                            limbs.from_int(num_p, 2),
                            limbs.from_int(total - num_p, 2),
                        )
                    )
                return {
                    k: np.stack([f[i] for f in found]) for i, k in enumerate(("pairs", "num_positive", "num_negative"))
                }

            return _over_leading(one, state, 2)

        def column(k: Any, p: Any, w: Any) -> tuple[Any, ...]:
            pos, use = p > 0, w > 0
            amounts = limbs.sum_many({"p": use & pos, "n": use & ~pos}, w)
            return ranking.pairs_from_keys(k, pos, use, w), amounts["p"], amounts["n"]

        found = jax.vmap(column)(state["keys"], state["positive"], state["weight"])
        return dict(zip(_PAIRS, found)) | _too_heavy(state["weight"], *found[1:])

    def _absent(self, state: Any, xp: Any) -> Any:
        if "keys" in state:
            w = state["weight"] > 0
            sides = [xp.any(w & ((state["positive"] > 0) == side), axis=-1) for side in (True, False)]
        elif "positives" in state:
            sides = [xp.any(state[k] != 0, axis=(-1, -2)) for k in ("positives", "negatives")]
        else:
            sides = [xp.any(state[k] != 0, axis=-1) for k in ("num_positive", "num_negative")]
        return xp.sum(~(sides[0] & sides[1]), axis=-1, dtype=xp.uint32)

    def _explain(self, preds: Any, labels: Any, mask: Any, task: str) -> None:
        checks.raise_nonfinite(task, "preds", preds, mask, infinite=False)
        checks.raise_label(task, "labels", labels, mask, 2 if preds.ndim == 1 else preds.shape[1])

    def _undefined(self, state: Any, task: str) -> EvaluationError:
        return DegenerateLabelsError(
            "no class has both a positive and a negative sample, so no pair exists", task=task, argument="labels"
        )


@dataclass(frozen=True)
class AUROC(AUC):
    r"""Area under the ROC curve for anomaly detection: `AUC`, strictly binary.

    .. math:: \mathrm{AUROC} = P(\hat s_+ > \hat s_-) + \tfrac12 P(\hat s_+ = \hat s_-)

    Shapes: ``preds`` [N] scores, ``labels`` [N] in {0, 1}; ``where``, ``weights`` [N].
    Units: dimensionless, 0 to 1.
    Direction: higher is better.
    Errors: as for `AUC`; [N, C] scores are a ShapeError.

    Attributes:
      capacity: size of the exact stream's buffer, or None for the histogram.
      score_dtype: which keys the histogram bins.
      score_range: (lo, hi) for equal bins instead.
    """

    input: str = "binary"

    def __post_init__(self) -> None:
        if self.input != "binary":
            raise EvaluationError(
                "AUROC is strictly binary; use AUC for several classes", task=self.name, argument="input"
            )
        super().__post_init__()


def _binary_axes(preds: Any, labels: Any, task: str) -> tuple[int, ...]:
    if preds.shape != labels.shape or labels.ndim != 1:
        raise ShapeError(
            f"needs preds [N] and labels [N]; got preds {preds.shape} and labels {labels.shape}",
            task=task,
            argument="preds",
        )
    real_dtype(preds, "preds", task)
    return tuple(labels.shape)


def _has_nan(scores: Any) -> Any:
    """Where a score is NaN, by its bits; None for integers."""
    if not jnp.issubdtype(scores.dtype, jnp.floating):
        return None
    k = keys.order_key(scores)
    return k == k.dtype.type(keys.nan_key(k))


def _pair_state(pairs: int, positives: int, negatives: int) -> tuple[np.ndarray, ...]:
    return limbs.from_int(pairs, ranking.PAIR_LIMBS), limbs.from_int(positives, 2), limbs.from_int(negatives, 2)


def _too_heavy(weights: Any, *totals: Any) -> State:
    """Flags (as a count) a traced exact call whose weights reach 2^32, past which its cumulative counts wrap."""
    if weights is None:
        return {}
    over = jnp.zeros((), bool)
    for total in totals:
        over = over | jnp.any(total[..., 1] >> np.uint32(16) != 0)
    return {"overflow": limbs.widen(over.astype(jnp.uint32))}


def _macro(per_class: Any, xp: Any) -> Any:
    """Mean over the classes where the value is defined (not NaN); NaN where none is."""
    defined = ~xp.isnan(per_class)
    total = xp.sum(xp.where(defined, per_class, per_class.dtype.type(0)), axis=-1)
    return mean(total, xp.sum(defined, axis=-1, dtype=per_class.dtype), xp)


def _host_bad(preds: np.ndarray, labels: np.ndarray) -> tuple[Any, Any]:
    """Which scores are NaN (shaped as ``preds``) and which labels no class ``[N]``, each None where none is."""
    nan: Any = None
    if jnp.issubdtype(preds.dtype, jnp.floating):
        with np.errstate(invalid="ignore"):
            # A maximum is NaN if anything is, and quicker than a flag per score; half types have no fast one.
            nan = np.isnan(preds) if preds.dtype.itemsize < 4 or np.isnan(preds.max(initial=-np.inf)) else None
    num_classes = 2 if preds.ndim == 1 else preds.shape[1]
    invalid: Any = None
    if labels.dtype != np.bool_ and labels.size:
        # As unsigned integers negative labels are large, so that one maximum finds either kind.
        unsigned = labels.view(np.dtype(f"u{labels.dtype.itemsize}"))
        invalid = unsigned >= num_classes if int(unsigned.max()) >= num_classes else None
    return nan if nan is not None and nan.any() else None, invalid


def _host_use(nan: Any, invalid: Any, mask: Any, weights: Any, shape: tuple[int, ...]) -> tuple[dict[str, Any], Any]:
    """The counters of a host batch, and which of its samples or trials are ranked (None: all)."""
    if nan is not None and invalid is not None:
        invalid = invalid & ~nan
    keep = mask
    for flag in (nan, invalid):
        keep = keep if flag is None else both(keep, ~flag)
    state = {"n": _host_count(np.True_, mask, weights, shape), "n_excluded": np.zeros(2, np.uint32)}
    for name, flag in (("n_nonfinite", nan), ("n_invalid_label", invalid)):
        state[name] = _host_count(flag, mask, weights, shape)
    return state, keep


def _per_trial(shape: tuple[int, ...], x: Any) -> Any:
    """A value per sample [N] as one per trial [N, C]; None stays None."""
    return None if x is None else np.broadcast_to(x[:, None], shape)


def _host_count(flag: Any, mask: Any, weights: Any, shape: tuple[int, ...]) -> np.ndarray:
    if flag is None:
        return np.zeros(2, np.uint32)
    if flag is np.True_ and mask is None:
        total = math.prod(shape) if weights is None else int(weights.sum(dtype=np.uint64))
        return limbs.from_int(total, 2)
    flag = np.broadcast_to(flag, shape) if mask is None else mask & flag
    total = int(np.count_nonzero(flag)) if weights is None else int(weights[flag].sum(dtype=np.uint64))
    return limbs.from_int(total, 2)


# --- EER --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EER(Metric, ClassLabels):
    r"""Equal error rate: where false accepts and false rejects are equally frequent.

    .. math:: \mathrm{FAR}(\tau) = P(\hat s \ge \tau \mid \text{impostor}), \quad \mathrm{FRR}(\tau) = P(\hat s <
    \tau \mid \text{genuine}),
       \quad \mathrm{EER} = \mathrm{FAR}(\tau^*) = \mathrm{FRR}(\tau^*)

    The ROC polyline is walked over distinct thresholds from (0, 0); the crossing is interpolated linearly on its
    segment, never snapped. The segment is found by selection (under trace histograms over the digits of the key, on the
    host a bracket that exact counts prove), not by sorting all trials.
    ``aux["threshold"]`` is the score at the segment's far end.

    Shapes: ``preds`` [N] scores with ``labels`` [N] in {0, 1} (1 is genuine), or ``preds`` [N, C] with ``labels``
    [N] in 0..C-1: then
    trials are pooled one-vs-rest (genuine s[n, y_n], impostors all others) and ``validity`` counts trials;
    ``where``, ``weights`` [N].
    Units: dimensionless, 0 to 1.
    Direction: lower is better. Chance is 0.5.
    Errors: NonFiniteError for NaN; LabelError; DegenerateLabelsError without a genuine or an impostor trial;
    ShapeError;
    EmptyEvaluationError.
    Streams: as for `AUC`; ``capacity`` counts trials. Under trace the weights of one exact call must sum to less
    than 2^32 over trials.

    Attributes:
      capacity: size of the exact stream's buffer, or None for the histogram.
      score_dtype: which keys the histogram bins.
      score_range: (lo, hi) for equal bins instead.
    """

    capacity: int | None = None
    score_dtype: str = "float32"
    score_range: tuple[float, float] | None = None
    structured: ClassVar[bool] = False
    direction: ClassVar[str] = "lower"
    unit: ClassVar[str] = "1"
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __post_init__(self) -> None:
        _check_stream(self)

    def _sample_shape(self, preds: Any, labels: Any, task: str) -> tuple[int, ...]:
        if preds.ndim == 1:
            return _binary_axes(preds, labels, task)
        shape = class_axes(preds, labels, None, task)
        if preds.shape[1] < 2:
            raise ShapeError("one column of scores needs shape [N], not [N, 1]", task=task, argument="preds")
        return shape

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        return _stream_shapes(self, 1)

    def _trials(self, preds: Any, labels: Any, mask: Any, weights: Any) -> tuple[Any, Any, Any, Any, State]:
        """Flat trials: scores, genuine, used, weights [n] and the counters of the batch."""
        y = labels.astype(jnp.int32)
        nan = _has_nan(preds)
        if preds.ndim == 1:
            genuine, valid = y == 1, (y == 0) | (y == 1)
        else:
            c = preds.shape[1]
            column = lax.broadcasted_iota(jnp.int32, preds.shape, 1)
            genuine = column == y[:, None]
            valid = jnp.broadcast_to(((y >= 0) & (y < c))[:, None], preds.shape)
            mask = None if mask is None else jnp.broadcast_to(mask[:, None], preds.shape)
            weights = None if weights is None else jnp.broadcast_to(weights[:, None], preds.shape)
        if nan is None:
            counts = tally(mask, weights, preds.shape, n_invalid_label=~valid)
            used = both(mask, valid)
        else:
            counts = tally(mask, weights, preds.shape, n_nonfinite=nan, n_invalid_label=~valid & ~nan)
            used = both(mask, valid & ~nan)
        flat = [None if x is None else x.reshape(-1) for x in (preds, genuine, used, weights)]
        return flat[0], flat[1], flat[2], flat[3], counts

    def _stats(self, preds: Any, labels: Any, mask: Any, weights: Any) -> State:
        scores, genuine, used, w, counts = self._trials(preds, labels, mask, weights)
        return counts | _stream_stats(self, scores[None], genuine[None], used[None], w)

    def _absorb(self, state: State, preds: Any, labels: Any, mask: Any, weights: Any) -> State:
        scores, genuine, used, w, counts = self._trials(preds, labels, mask, weights)
        if not _few(self, scores[None], w):
            return super()._absorb(state, preds, labels, mask, weights)
        added = {k: limbs.add(state[k], v) for k, v in counts.items()}
        return added | _stream_absorb(self, state, scores[None], genuine[None], used[None])

    def _summary(self, preds: Any, labels: Any, mask: Any, weights: Any) -> State:
        scores, genuine, used, w, counts = self._trials(preds, labels, mask, weights)
        k = keys.order_key(scores)
        found = ranking.crossing_from_keys(k, genuine, used, w)
        dtype = scores.dtype
        if dtype in (jnp.float16, jnp.bfloat16):
            dtype = jnp.float32
        threshold = keys.key_value(found["key"], dtype).astype(jnp.float32)
        return counts | _crossing_state(found) | {"threshold": threshold} | _too_heavy(w, *found["totals"])

    def _host_summary(self, preds: Any, labels: Any, mask: Any, weights: Any, wide: bool) -> Any:
        if not isinstance(preds, np.ndarray) or not isinstance(labels, np.ndarray):
            return jax.tree_util.tree_map(np.asarray, batch_summaries((self,), preds, labels, mask, weights)[self.name])
        plain = preds.ndim == 1 and mask is None and weights is None and not wide
        found = ranking.crossing_of_labels(preds, labels) if plain else None
        if found is not None:
            threshold = keys.host_key_value(found.pop("key"), preds.dtype)
            state, _ = _host_use(None, None, None, None, preds.shape)
            return state | _crossing_state(found) | {"threshold": np.asarray(threshold, np.float64)}
        nan, invalid = _host_bad(preds, labels)
        genuine = labels == 1
        if preds.ndim == 2:
            genuine = np.zeros(preds.shape, bool)
            rows = np.arange(labels.shape[0]) if invalid is None else np.flatnonzero(~invalid)
            genuine[rows, labels[rows].astype(np.intp)] = True
            pool = partial(_per_trial, preds.shape)
            invalid, mask, weights = pool(invalid), pool(mask), pool(weights)
        state, keep = _host_use(nan, invalid, mask, weights, preds.shape)
        scores, values = ranking.dense_ranks(preds) if wide else (preds, None)
        trials: list[Any] = [
            None if x is None else x.reshape(-1) if keep is None else x[keep] for x in (scores, genuine, weights)
        ]
        found = ranking.crossing_host(*trials)
        key = found.pop("key")
        threshold = keys.host_key_value(key, preds.dtype) if values is None else values[key] if values.size else np.nan
        return state | _crossing_state(found) | {"threshold": np.asarray(threshold, np.float64)}

    def _merge(self, a: State, b: State) -> State:
        return _stream_merge(self, a, b)

    def _all_reduce(self, state: State, axis_name: Any) -> State:
        return _stream_all_reduce(self, state, axis_name)

    def _check_state(self, state: Any, task: str) -> None:
        _check_overflow(state, self, task)

    def _value(self, state: Any, xp: Any) -> tuple[Any, dict[str, Any]]:
        binned = "positives" in state
        overflows = [state["overflow"]] if "overflow" in state else []
        if "keys" in state or binned:
            state = self._crossing(state, xp)
            overflows += [state["overflow"]] if "overflow" in state else []
        near, far = (state["near_genuine"], state["near_impostor"]), (state["far_genuine"], state["far_impostor"])
        totals = (state["num_genuine"], state["num_impostor"])
        eer, half = ranking.equal_error(near, far, totals, xp)
        undefined = xp.all(totals[0] == 0, axis=-1) | xp.all(totals[1] == 0, axis=-1)
        for overflow in overflows:
            undefined = undefined | xp.any(overflow != 0, axis=-1)
        nan = eer.dtype.type(np.nan)
        aux = {"threshold": xp.where(undefined, nan, state["threshold"].astype(eer.dtype))}
        if binned:
            aux["half_width"] = xp.where(undefined, nan, half * half.dtype.type(not _is_half(self)))
            if xp is np:
                _warn_wide(self, aux["half_width"])
        return xp.where(undefined, nan, eer), aux

    def _crossing(self, state: Any, xp: Any) -> Any:
        """The crossing of a stream's state."""

        def one(s: Any) -> dict[str, Any]:
            if "positives" in s:
                found = ranking.crossing_from_histogram(s["positives"][0], s["negatives"][0])
                return _crossing_state(found) | {"threshold": _bin_edge(self, found["bin"], xp)}
            k, p, w = (s[name][0] for name in ("keys", "positive", "weight"))
            if xp is np:
                use = w > 0
                # Unsigned order keys are shifted back to the signed keys of a host call.
                found = ranking.crossing_host((k[use] ^ np.uint32(1 << 31)).view(np.int32), p[use] > 0, w[use])
                threshold = keys.host_key_value(found["key"], np.float32)
                return _crossing_state(found) | {"threshold": np.asarray(threshold, np.float64)}
            found = ranking.crossing_from_keys(k, p > 0, w > 0, w)
            heavy = _too_heavy(w, *found["totals"])
            return _crossing_state(found) | {"threshold": keys.key_value(found["key"], np.float32)} | heavy

        if xp is not np:
            return one(state)
        names = ("positives", "negatives") if "positives" in state else ("keys", "positive", "weight")
        return _over_leading(one, {k: state[k] for k in names}, 3 if "positives" in state else 2)

    def _explain(self, preds: Any, labels: Any, mask: Any, task: str) -> None:
        checks.raise_nonfinite(task, "preds", preds, mask, infinite=False)
        checks.raise_label(task, "labels", labels, mask, 2 if preds.ndim == 1 else preds.shape[1])

    def _undefined(self, state: Any, task: str) -> EvaluationError:
        return DegenerateLabelsError("needs a genuine and an impostor trial", task=task, argument="labels")


def _crossing_state(found: dict[str, Any]) -> dict[str, Any]:
    names = ("near_genuine", "near_impostor", "far_genuine", "far_impostor", "num_genuine", "num_impostor")
    return dict(zip(names, (*found["near"], *found["far"], *found["totals"])))
