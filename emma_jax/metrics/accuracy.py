"""Accuracy family: top-1, plain, top-k and balanced accuracy.

Goal: how often the true class is ranked first (or among the first k), and the same averaged over classes.
Convention: rank of the true class = #{s_c > s_y} + #{c < y: s_c = s_y}. The highest score comes first and the
lowest index
breaks a tie, as `jax.lax.top_k` and argmax do; a constant predictor scores only class 0. Scores are ranked as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax

from emma_jax import checks
from emma_jax.errors import DegenerateLabelsError, EvaluationError, LabelError, ShapeError
from emma_jax.metrics.base import (
    ClassLabels,
    Metric,
    State,
    both,
    class_axes,
    mean,
    require_int,
    tally,
)
from emma_jax.numerics import keys, limbs
from emma_jax.numerics.blocks import over_blocks
from emma_jax.numerics.floats import common_zero, tie
from emma_jax.numerics.histogram import bin_counts, bin_limbs

__all__ = ["BalancedAccuracy", "PlainAccuracy", "Top1Accuracy", "TopKAccuracy"]

_INPUTS = ("auto", "scores", "labels")


def _takes_labels(mode: str, preds: Any, task: str) -> bool:
    """Whether ``preds`` are predicted classes; the rank decides for "auto", never the values."""
    labels = mode == "labels" or (mode == "auto" and preds.ndim == 1)
    if labels and preds.size and not (jnp.issubdtype(preds.dtype, jnp.integer) or preds.dtype == jnp.bool_):
        raise LabelError(
            f"predicted classes must be integers, scores [N, C]; got dtype {preds.dtype}, shape {preds.shape}",
            task=task,
            argument="preds",
        )
    return labels


def _axes(metric: Any, preds: Any, labels: Any, task: str) -> tuple[int, ...]:
    if not _takes_labels(metric.input, preds, task):
        return class_axes(preds, labels, metric.num_classes, task)
    if preds.shape != labels.shape or labels.ndim != 1:
        raise ShapeError(
            f"needs preds [N] and labels [N]; got preds {preds.shape} and labels {labels.shape}",
            task=task,
            argument="preds",
        )
    return tuple(labels.shape)


def _in_range(labels: Any, num_classes: int | None) -> Any:
    # Unsigned dtypes above int32 become negative, hence invalid; narrower ones are widened first.
    labels = labels.astype(jnp.int32)
    ok = labels >= 0
    return ok if num_classes is None else ok & (labels < num_classes)


def _predicted(metric: Any, preds: Any) -> tuple[Any, Any, Any]:
    """Predicted class [N], whether its row has a NaN (None: cannot), and whether it is a class (None: it is)."""
    if preds.ndim == 1:
        return preds.astype(jnp.int32), None, _in_range(preds, metric.num_classes)
    key, best = _first_largest(keys.signed_key(preds))
    # NaN has the largest key of all, so the best entry tells for its row.
    return best, _is_nan(key) if jnp.issubdtype(preds.dtype, jnp.floating) else None, None


def _first_largest(table: Any) -> tuple[Any, Any]:
    """The largest entry of each row [N] and its first column [N], in one pass.

    `jnp.argmax` makes the same pass but keeps the column alone: fetching the entry again would take a quarter of the
    whole kernel.
    """
    column = lax.broadcasted_iota(jnp.int32, table.shape, 1)
    least = np.asarray(np.iinfo(table.dtype).min, table.dtype)

    def larger(a: Any, b: Any) -> Any:
        above = a[0] > b[0]
        first = above | ((a[0] == b[0]) & (a[1] < b[1]))
        return lax.select(above, a[0], b[0]), lax.select(first, a[1], b[1])

    # The neutral element has the largest column, lest it win over an entry as small as any.
    best = lax.reduce((table, column), (least, np.int32(table.shape[1])), larger, (1,))
    return best[0], best[1]


def _is_nan(key: Any) -> Any:
    """NaN's signed key is the largest integer, which no float has."""
    return key == np.iinfo(key.dtype).max


def _at(table: Any, column: Any) -> Any:
    """``table[n, column[n]]`` [N]; columns are in range."""
    rows, c = table.shape
    if rows * c >= 1 << 31:
        return jnp.take_along_axis(table, column[:, None], axis=1)[:, 0]
    # A flat gather is half the time of take_along_axis on CPU, and without clamping a third less.
    flat = lax.iota(jnp.int32, rows) * c + column
    numbers = lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,))
    return lax.gather(table.reshape(-1), flat[:, None], numbers, (1,), mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS)


def _flags(mask: Any, weights: Any, valid: Any, nan: Any, hit: Any) -> State:
    """Counters of one batch, and the samples whose guess is right."""
    if nan is None:
        return tally(mask, weights, hit.shape, n_invalid_label=~valid, correct=hit & valid)
    ok = valid & ~nan
    return tally(mask, weights, hit.shape, n_nonfinite=nan, n_invalid_label=~valid & ~nan, correct=hit & ok)


def _explain_classes(metric: Any, preds: Any, labels: Any, mask: Any, task: str) -> None:
    preds_are_labels = _takes_labels(metric.input, preds, task)
    num_classes = metric.num_classes if preds_are_labels else preds.shape[1]
    checks.raise_nonfinite(task, "preds", preds, mask, infinite=False)
    checks.raise_label(task, "labels", labels, mask, num_classes)
    if preds_are_labels:
        checks.raise_label(task, "preds", preds, mask, num_classes)


def _check_input(metric: Any) -> None:
    if metric.input not in _INPUTS:
        raise EvaluationError(f"must be one of {_INPUTS}; got {metric.input!r}", task=metric.name, argument="input")
    if metric.num_classes is not None:
        require_int(metric.num_classes, "num_classes", 1, metric.name)


@dataclass(frozen=True)
class Top1Accuracy(Metric, ClassLabels):
    r"""Top-1 accuracy: the share of samples whose true class has rank 0.

    .. math:: \mathrm{Acc} = \frac1N \sum_i \mathbf 1[\operatorname{rank}_i(y_i) = 0]

    where the rank counts the classes with a higher score, and those of lower index with the same score. A micro
    average.

    Shapes: ``preds`` [N, C] scores of any real dtype, or [N] predicted classes of an integer dtype; ``labels`` [N]
    int; ``where``,
    ``weights`` [N].
    Units: dimensionless, 0 to 1.
    Direction: higher is better.
    Errors: NonFiniteError for NaN (infinities are ordinary scores); LabelError outside 0..C-1; ShapeError;
    EmptyEvaluationError.

    Attributes:
      num_classes: C, or None to take it from the width of ``preds``.
      input: "scores", "labels", or "auto": [N, C] are scores, [N] integers are classes.
    """

    num_classes: int | None = None
    input: str = "auto"
    structured: ClassVar[bool] = False
    _exact_terms: ClassVar[bool] = True
    _decomposes: ClassVar[bool] = True
    direction: ClassVar[str] = "higher"
    unit: ClassVar[str] = "1"
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __post_init__(self) -> None:
        _check_input(self)

    def _sample_shape(self, preds: Any, labels: Any, task: str) -> tuple[int, ...]:
        return _axes(self, preds, labels, task)

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"correct": (2,)}

    def _preds_are_labels(self, preds: Any, task: str) -> bool:
        return _takes_labels(self.input, preds, task)

    def _stats(self, preds: Any, labels: Any, mask: Any, weights: Any) -> State:
        best, nan, ok_pred = _predicted(self, preds)
        valid = _in_range(labels, self.num_classes if preds.ndim == 1 else preds.shape[1])
        return _flags(mask, weights, both(ok_pred, valid), nan, best == labels.astype(jnp.int32))

    def _value(self, state: Any, xp: Any) -> tuple[Any, dict[str, Any]]:
        used = limbs.to_float(state["n"], xp) - limbs.to_float(state["n_nonfinite"], xp)
        return mean(limbs.to_float(state["correct"], xp), used - limbs.to_float(state["n_invalid_label"], xp), xp), {}

    def _explain(self, preds: Any, labels: Any, mask: Any, task: str) -> None:
        _explain_classes(self, preds, labels, mask, task)


@dataclass(frozen=True)
class PlainAccuracy(Top1Accuracy):
    r"""Plain multiclass accuracy, the continuity column of E-ID-AMC; the quantity of `Top1Accuracy` under the
    task's name.

    .. math:: \mathrm{Acc} = \frac1N \sum_i \mathbf 1[\arg\max_c s_{ic} = y_i]

    Shapes: ``preds`` [N, C] scores or [N] integer classes; ``labels`` [N] int; ``where``, ``weights`` [N].
    Units: dimensionless, 0 to 1.
    Direction: higher is better.
    Errors: as for `Top1Accuracy`.

    Attributes:
      num_classes: C, or None to take it from the width of ``preds``.
      input: "scores", "labels" or "auto".
    """


@dataclass(frozen=True)
class TopKAccuracy(Metric, ClassLabels):
    r"""Top-k accuracy: the share of samples whose true class (beam) is among the k first.

    .. math:: \mathrm{Top}\text{-}k = \frac1N \sum_i \mathbf 1[\operatorname{rank}_i(y_i) < k]

    Shapes: ``preds`` [N, C] scores, or [N, K] ranked beam indices, best first, with ``input="ranked"``; ``labels``
    [N] int; ``where``,
    ``weights`` [N].
    Units: dimensionless, 0 to 1.
    Direction: higher is better.
    Errors: EvaluationError for k outside 1..C (or 1..K); NonFiniteError; LabelError; ShapeError; EmptyEvaluationError.

    Attributes:
      k: how many guesses count.
      num_classes: C, or None to take it from the width of ``preds`` (unknown for ranked input).
      input: "scores" or "ranked".
      index_base: for ranked input, what the first beam is called, 0 or 1; it has no default, since data sets differ.
        Labels count from the same base.
    """

    k: int = 1
    num_classes: int | None = None
    input: str = "scores"
    index_base: int | None = None
    structured: ClassVar[bool] = False
    _exact_terms: ClassVar[bool] = True
    _decomposes: ClassVar[bool] = True
    direction: ClassVar[str] = "higher"
    unit: ClassVar[str] = "1"
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __post_init__(self) -> None:
        require_int(self.k, "k", 1, self.name)
        if self.input not in ("scores", "ranked"):
            raise EvaluationError(f'must be "scores" or "ranked"; got {self.input!r}', task=self.name, argument="input")
        if self.num_classes is not None:
            require_int(self.num_classes, "num_classes", 1, self.name)
            if self.k > self.num_classes:
                raise EvaluationError(
                    f"{self.k} is more than the {self.num_classes} classes", task=self.name, argument="k"
                )
        if self.input == "ranked" and self.index_base not in (0, 1):
            raise EvaluationError(
                f"must be 0 or 1 for ranked beams; got {self.index_base!r}", task=self.name, argument="index_base"
            )
        if self.input == "scores" and self.index_base not in (None, 0):
            raise EvaluationError("only applies to ranked beams", task=self.name, argument="index_base")

    def _sample_shape(self, preds: Any, labels: Any, task: str) -> tuple[int, ...]:
        shape = class_axes(preds, labels, self.num_classes if self.input == "scores" else None, task)
        if self.input == "ranked" and not jnp.issubdtype(preds.dtype, jnp.integer):
            raise LabelError(f"ranked beams must be integers; got dtype {preds.dtype}", task=task, argument="preds")
        if self.k > preds.shape[1]:
            raise EvaluationError(
                f"{self.k} is more than the {preds.shape[1]} columns of preds", task=task, argument="k"
            )
        return shape

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"correct": (2,)}

    def _stats(self, preds: Any, labels: Any, mask: Any, weights: Any) -> State:
        labels = labels.astype(jnp.int32)
        if self.input == "ranked":
            base = self.index_base or 0
            limit = None if self.num_classes is None else self.num_classes + base
            beams = preds.astype(jnp.int32)
            valid = (labels >= base) & _in_range(labels, limit)
            valid = valid & jnp.all((beams >= base) & _in_range(beams, limit), axis=1)
            return _flags(mask, weights, valid, None, jnp.any(beams[:, : self.k] == labels[:, None], axis=1))
        valid = _in_range(labels, preds.shape[1])
        # Any class will do for a label that is none. Clamping is fused for less than a choice by `valid`.
        rank, nan = _rank(preds, lax.clamp(np.int32(0), labels, np.int32(preds.shape[1] - 1)))
        return _flags(mask, weights, valid, nan, rank < self.k)

    def _preds_are_labels(self, preds: Any, task: str) -> bool:
        return self.input == "ranked"

    _value = Top1Accuracy._value

    def _explain(self, preds: Any, labels: Any, mask: Any, task: str) -> None:
        if self.input == "ranked":
            for x, argument in ((labels, "labels"), (preds, "preds")):
                checks.raise_label(task, argument, x, mask, self.num_classes, base=self.index_base or 0)
            return
        checks.raise_nonfinite(task, "preds", preds, mask, infinite=False)
        checks.raise_label(task, "labels", labels, mask, preds.shape[1])


def _rank(preds: Any, labels: Any) -> tuple[Any, Any]:
    """Rank of the true class [N] and whether its row has a NaN, by one comparison per class instead of a sort."""
    k = keys.signed_key(preds)
    true = keys.signed_key(_at(preds, labels))[:, None]
    later = lax.broadcasted_iota(jnp.int32, k.shape, 1) >= labels[:, None]
    if not jnp.issubdtype(preds.dtype, jnp.floating):
        return jnp.sum(jnp.where(later, k > true, k >= true), axis=1, dtype=jnp.int32), None
    # A tie counts before the label only: a later key is lowered by one. No float has the least key, so none wraps.
    ahead = k - later.astype(k.dtype) >= true
    nan = _is_nan(k)
    if k.shape[1] >= 1 << 15:
        return jnp.sum(ahead, axis=1, dtype=jnp.int32), jnp.any(nan, axis=1)
    # Both counts in one integer: a row reduction costs as much as the read.
    packed = jnp.sum(jnp.where(nan, np.int32(1 << 16), ahead.astype(jnp.int32)), axis=1, dtype=jnp.int32)
    return packed & 0xFFFF, packed >= 1 << 16


# Up to so many classes a confusion matrix is small enough to be counted in cache.
_MOST_CELLS = 128


# From so many samples on a CPU counts them in blocks of the second number: what lies between the scores and the counts
# then stays in cache (4 million samples take three quarters of the time).
_IN_BLOCKS_FROM, _BLOCK = 1 << 21, 1 << 17


def _cell(metric: BalancedAccuracy, preds: Any, labels: Any, mask: Any) -> Any:
    """The bin [N] of each sample: its confusion cell, one for NaN and one for bad labels; the number of bins where
    masked."""
    c = metric._classes()
    best, nan, ok_pred = _predicted(metric, preds)
    index = jnp.where(both(ok_pred, _in_range(labels, c)), labels.astype(jnp.int32) * c + best, c * c + 1)
    index = index if nan is None else jnp.where(nan, c * c, index)
    return index if mask is None else jnp.where(mask, index, c * c + 2)


def _cell_counts(metric: BalancedAccuracy, preds: Any, labels: Any, mask: Any, weights: Any) -> Any:
    """Samples in each bin of `_cell`, as limbs.

    One scatter over all bins is quicker than fewer bins in two scatters and a sum of flags (a quarter of the time on
    top of the argmax): neighbours that fall into one bin have to wait for each other.
    """
    bins, num = metric._classes() ** 2 + 2, labels.shape[0]
    if weights is not None or num < _IN_BLOCKS_FROM:
        return bin_limbs(_cell(metric, preds, labels, mask), bins, weights)

    def add(counts: Any, start: Any, size: int, fresh: Any) -> Any:
        arrays = (preds, labels, mask)
        p, y, kept = (None if x is None else lax.dynamic_slice_in_dim(x, start, size) for x in arrays)
        return counts + bin_counts(_cell(metric, p, y, both(kept, fresh)), bins)

    empty = tie(common_zero(preds, labels, mask), jnp.zeros(bins, jnp.uint32))
    return limbs.widen(over_blocks(num, _BLOCK, empty, add))


def _from_confusion(c: int, counts: Any) -> State:
    """The state of `BalancedAccuracy` from the counts of its bins."""
    cells = counts[: c * c].reshape(c, c, 2)
    diagonal = np.arange(c)
    total = limbs.normalize(jnp.sum(counts, axis=0, dtype=jnp.uint32))
    return tally(None, None, ()) | {
        "n": total,
        "n_nonfinite": counts[c * c],
        "n_invalid_label": counts[c * c + 1],
        "hits": cells[diagonal, diagonal],
        "support": limbs.normalize(jnp.sum(cells, axis=1, dtype=jnp.uint32)),
        "predicted": limbs.normalize(jnp.sum(cells, axis=0, dtype=jnp.uint32)),
    }


@dataclass(frozen=True)
class BalancedAccuracy(Metric, ClassLabels):
    r"""Balanced accuracy: recall averaged over classes.

    .. math:: \mathrm{BalAcc} = \frac{1}{|\mathcal C|} \sum_{c \in \mathcal C} \frac{TP_c}{TP_c + FN_c}

    over the classes that occur in labels or predictions: a class predicted but never true counts 0 (the rule of
    torchmetrics).
    ``absent="exclude"`` leaves such a class out (the rule of scikit-learn). ``validity.n_absent_classes`` counts
    the classes without a
    true sample either way.

    Shapes: ``preds`` [N, C] scores or [N] integer classes; ``labels`` [N] int; ``where``, ``weights`` [N].
    Units: dimensionless, 0 to 1.
    Direction: higher is better. Chance is 1 / C.
    Errors: NonFiniteError for NaN; LabelError outside 0..C-1; ShapeError; EmptyEvaluationError.
    Reference: Brodersen et al., "The balanced accuracy and its posterior distribution", ICPR 2010.

    Attributes:
      num_classes: C, or None to take it from the width of ``preds`` (host calls on [N] classes: from the largest one).
      absent: "zero" or "exclude".
      input: "scores", "labels" or "auto".
    """

    num_classes: int | None = None
    absent: str = "zero"
    input: str = "auto"
    structured: ClassVar[bool] = False
    _exact_terms: ClassVar[bool] = True
    direction: ClassVar[str] = "higher"
    unit: ClassVar[str] = "1"
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __post_init__(self) -> None:
        _check_input(self)
        if self.absent not in ("zero", "exclude"):
            raise EvaluationError(
                f'must be "zero" or "exclude"; got {self.absent!r}', task=self.name, argument="absent"
            )

    def _preds_are_labels(self, preds: Any, task: str) -> bool:
        return _takes_labels(self.input, preds, task)

    def _resolve(self, preds: Any, labels: Any, mask: Any, task: str) -> Metric:
        if self.num_classes is not None:
            return self
        if not _takes_labels(self.input, preds, task):
            return replace(self, num_classes=int(preds.shape[1])) if preds.ndim == 2 and preds.shape[1] else self
        if checks.is_traced(preds, labels, mask):
            raise EvaluationError(
                "cannot be read off integer predictions under trace; pass num_classes=",
                task=task,
                argument="num_classes",
            )
        high = 1
        for x in (np.asarray(preds), np.asarray(labels)):
            if x.ndim == 1 and x.size and x.dtype.kind in "iu":
                there = x if mask is None else x[np.broadcast_to(mask, x.shape)]
                high = max(high, int(there.max(initial=0)))
        # Beyond any sane number of classes a label is a mistake, and is reported as one.
        return replace(self, num_classes=min(high + 1, 1 << 16))

    def _sample_shape(self, preds: Any, labels: Any, task: str) -> tuple[int, ...]:
        return _axes(self, preds, labels, task)

    def _classes(self) -> int:
        if self.num_classes is None:
            raise EvaluationError(
                "is not known; pass num_classes=, since the state has one entry per class",
                task=self.name,
                argument="num_classes",
            )
        return self.num_classes

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        c = self._classes()
        return {"hits": (c, 2), "support": (c, 2), "predicted": (c, 2)}

    def _stats(self, preds: Any, labels: Any, mask: Any, weights: Any) -> State:
        c = self._classes()
        if c <= _MOST_CELLS:
            return _from_confusion(c, _cell_counts(self, preds, labels, mask, weights))
        y = labels.astype(jnp.int32)
        best, nan, ok_pred = _predicted(self, preds)
        valid = both(ok_pred, _in_range(labels, c))
        used = both(mask, valid if nan is None else valid & ~nan)
        # One scatter for recall (class and hit in one index), one for what was predicted.
        by_class = bin_limbs(jnp.where(used, 2 * y + (best == y), 2 * c), 2 * c, weights).reshape(c, 2, 2)
        predicted = bin_limbs(jnp.where(used, best, c), c, weights)
        counts = _flags(mask, weights, valid, nan, used)
        del counts["correct"]
        support = limbs.add(by_class[:, 0], by_class[:, 1])
        return counts | {"hits": by_class[:, 1], "support": support, "predicted": predicted}

    def _value(self, state: Any, xp: Any) -> tuple[Any, dict[str, Any]]:
        support = limbs.to_float(state["support"], xp)
        recall = limbs.to_float(state["hits"], xp) / xp.where(support > 0, support, support.dtype.type(1))
        counted = support > 0
        if self.absent == "zero":
            counted = counted | (limbs.to_float(state["predicted"], xp) > 0)
        return mean(xp.sum(recall, axis=-1), xp.sum(counted, axis=-1, dtype=recall.dtype), xp), {}

    def _absent(self, state: Any, xp: Any) -> Any:
        return xp.sum(xp.all(state["support"] == 0, axis=-1), axis=-1, dtype=xp.uint32)

    def _explain(self, preds: Any, labels: Any, mask: Any, task: str) -> None:
        _explain_classes(self, preds, labels, mask, task)

    def _undefined(self, state: Any, task: str) -> EvaluationError:
        return DegenerateLabelsError("no class has a true sample", task=task, argument="labels")
