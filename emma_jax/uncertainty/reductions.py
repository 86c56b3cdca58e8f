"""A metric as a function of counts: what is sorted, selected or summed once, and then weighted for each resample.

Four kinds, by what the metric needs of its samples:

- *sums*: the state of all samples is the sum of the states of each alone (errors, energies, hits, n-gram counts), so
  that of a resample is a product of counts and per-sample states, in exact integers;
- *cells*: balanced accuracy, from counts of the cells of a confusion matrix;
- *ranks*: AUC, EER and operating points, from one sort and cumulative counts along it, ties by group;
- *medians*: from one sort, and the place where the cumulative count passes the middle.

Each ends in the metric's own formula on a state of many resamples, so a formula stands where it always stood, and an
undefined resample is NaN there as anywhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from emma_jax import checks
from emma_jax.errors import EvaluationError
from emma_jax.metrics import accuracy, base, fields
from emma_jax.metrics.accuracy import BalancedAccuracy
from emma_jax.metrics.base import Metric
from emma_jax.metrics.fields import LocalQ50
from emma_jax.metrics.operating import TPRatFPR
from emma_jax.metrics.rank import AUC, EER
from emma_jax.numerics import keys, limbs, ranking
from emma_jax.uncertainty.units import Counts, Units, block_rows

__all__ = ["Mean", "Reduction", "jackknife_blocks", "make_reduction"]

Floats = NDArray[np.float64]

# Per-sample states of no more combinations than this are cells, whose counts are drawn at once.
_MOST_CELLS = 1 << 16
# Samples whose states are made at once: 24 MB for the energies of a near field.
_ROWS = 1 << 14
# Entries of a table of classes by cluster (or cell), beyond which no influence is computed.
_MOST_TABLE = 1 << 26


class Reduction(ABC):
    """A metric over fixed samples, as a function of how often each of them occurs.

    Attributes:
      codes: int64 [N], equal where samples contribute the same, or None where that is not so for many.
      width: the largest number of entries that one resample needs.
    """

    codes: Counts | None = None
    width: int = 0

    @abstractmethod
    def bind(self, units: Units) -> Callable[[Counts], Floats]:
        """A function from counts of units ``[b, U]`` to values ``[b]``, NaN where undefined."""

    @abstractmethod
    def take(self, samples: Counts) -> Reduction:
        """The same over some of the samples."""

    def influence(self, units: Units) -> Floats | None:
        """What one more copy of each unit changes the value by, up to a common constant, ``[U]``; None if there is no
        closed form."""
        del units
        return None


def _of_state(metric: Metric, state: dict[str, NDArray[Any]]) -> Floats:
    """The metric's own formula on the states of many resamples; NaN where it is undefined."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.asarray(metric._value(state, np)[0], np.float64)


def _as_limbs(numbers: NDArray[Any], num_limbs: int) -> NDArray[np.uint32]:
    """Integers below 2^63 ``[...]`` as limbs ``[..., L]``."""
    x = numbers.astype(np.uint64)
    digits = [(x >> np.uint64(16 * i)) & np.uint64(0xFFFF) for i in range(min(num_limbs - 1, 4))]
    top = x >> np.uint64(16 * (num_limbs - 1)) if num_limbs <= 4 else np.zeros_like(x)
    digits += [np.zeros_like(x)] * (num_limbs - 1 - len(digits))
    return np.stack([*digits, top], axis=-1).astype(np.uint32)


def jackknife_blocks(size: int, columns: int) -> list[slice]:
    """Slices over so many units, for tables of units by columns of bounded size."""
    step = block_rows(columns) * 64
    return [slice(i, min(i + step, size)) for i in range(0, size, step)]


# --- sums ---------------------------------------------------------------------------------------------------------


@partial(jax.jit, static_argnums=0)
def _states(m: Metric, preds: Any, labels: Any, mask: Any, weights: Any) -> Any:
    """The state of every sample alone."""

    def alone(*args: Any) -> Any:
        p, t, k, w = jax.tree_util.tree_map(lambda x: x[None], args)
        return m._stats(p, t, k, w)

    return jax.vmap(alone)(preds, labels, mask, weights)


@dataclass(frozen=True, eq=False)
class Sums(Reduction):
    """A metric whose state adds up.

    Attributes:
      metric: whose formula it is.
      columns: limbs of the per-sample states that are not zero throughout, [N, K]; integers in float64.
      places: for each entry of the state its shape, and which of its flat limbs the columns are.
    """

    metric: Metric
    columns: Floats
    places: tuple[tuple[str, tuple[int, ...], Counts, Counts], ...]

    @property
    def width(self) -> int:  # type: ignore[override]
        return int(self.columns.shape[1])

    @property
    def codes(self) -> Counts | None:  # type: ignore[override]
        if not self.columns.size:
            return np.zeros(self.columns.shape[0], np.int64)
        sizes = [int(c.max()) + 1 for c in self.columns.T]
        if np.prod([float(s) for s in sizes]) > _MOST_CELLS:
            return None
        code = np.zeros(self.columns.shape[0], np.int64)
        for column, size in zip(self.columns.T, sizes):
            code = code * size + column.astype(np.int64)
        return code

    def take(self, samples: Counts) -> Sums:
        return replace(self, columns=self.columns[samples])

    def _values(self, sums: Floats) -> Floats:
        """From summed columns ``[b, K]``."""
        whole = sums.astype(np.uint64)
        state = {}
        for name, shape, at, column in self.places:
            flat = np.zeros((len(sums), int(np.prod(shape))), np.uint64)
            flat[:, at] = whole[:, column]
            state[name] = limbs.normalize(flat.reshape(-1, *shape)).astype(np.uint32)
        return _of_state(self.metric, state)

    def bind(self, units: Units) -> Callable[[Counts], Floats]:
        per_column = np.ascontiguousarray(units.sum_over(self.columns).T)

        # All products and sums are integers below 2^53, so float64 and any order of summation give them exactly. Not
        # `@`: for one row, BLAS spends twenty times as long on waking its threads.
        def values(counts: Counts) -> Floats:
            return self._values(np.einsum("bu,ku->bk", counts.astype(np.float64), per_column))

        return values

    def influence(self, units: Units) -> Floats | None:
        per_unit = units.sum_over(self.columns)
        total = units.copies.astype(np.float64) @ per_unit
        left = np.concatenate([self._values(total - per_unit[s]) for s in jackknife_blocks(*per_unit.shape)])
        return -left


def _few_at_a_time(*trees: Any) -> Iterator[tuple[Any, ...]]:
    """`base.chunks` of no more than `_ROWS` samples: a state may be hundreds of times as large as its sample."""
    leaves, structure = jax.tree_util.tree_flatten(trees)
    for start in range(0, leaves[0].shape[0], _ROWS):
        part = [x[start : start + _ROWS] for x in leaves]
        yield from base.chunks(*jax.tree_util.tree_unflatten(structure, part))


def _make_sums(m: Metric, preds: Any, labels: Any, mask: Any, weights: Any, wide: bool) -> Sums:
    plain = type(m)._merge is Metric._merge and type(m)._summary is Metric._summary
    if not plain:
        raise EvaluationError("cannot be resampled: its state does not add up", argument=m.name)
    parts: dict[str, list[tuple[Counts, NDArray[np.uint32]]]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    with checks.enable_x64(wide):
        for *args, rows in _few_at_a_time(preds, labels, mask, weights):
            for name, leaf in _states(m, *args).items():
                flat = np.asarray(leaf)[:rows]
                shapes[name] = flat.shape[1:]
                flat = flat.reshape(len(flat), -1)
                used = np.flatnonzero(flat.any(axis=0))
                parts.setdefault(name, []).append((used, flat[:, used]))
    columns, places, start = [], [], 0
    for name, found in parts.items():
        used = np.unique(np.concatenate([at for at, _ in found]))
        table = np.zeros((sum(len(x) for _, x in found), len(used)))
        row = 0
        for at, x in found:
            table[row : row + len(x), np.searchsorted(used, at)] = x
            row += len(x)
        columns.append(table)
        places.append((name, shapes[name], used, np.arange(start, start + len(used))))
        start += len(used)
    return Sums(m, np.concatenate(columns, axis=1), tuple(places))


@dataclass(frozen=True, eq=False)
class Mean(Reduction):
    """The plain mean of given values ``[N]``: a board's metric, say."""

    sample_values: Floats

    def take(self, samples: Counts) -> Mean:
        return Mean(self.sample_values[samples])

    def bind(self, units: Units) -> Callable[[Counts], Floats]:
        pair = units.sum_over(np.stack([self.sample_values, np.ones(len(self.sample_values))], axis=1))

        def values(counts: Counts) -> Floats:
            # One row at a time and by NumPy's own sum: a product of matrices may round differently with its height.
            rows = [(c[:, None] * pair).sum(axis=0) for c in counts]
            total = np.stack(rows) if rows else np.zeros((0, 2))
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.asarray(total[:, 0] / total[:, 1])

        return values

    def influence(self, units: Units) -> Floats | None:
        pair = units.sum_over(np.stack([self.sample_values, np.ones(len(self.sample_values))], axis=1))
        total = units.copies @ pair
        with np.errstate(divide="ignore", invalid="ignore"):
            left = (total[0] - pair[:, 0]) / (total[1] - pair[:, 1])
        return np.asarray(-left)


# --- cells --------------------------------------------------------------------------------------------------------


@partial(jax.jit, static_argnums=0)
def _best(m: Any, preds: Any) -> Any:
    return accuracy._predicted(m, preds)[0]


@dataclass(frozen=True, eq=False)
class Cells(Reduction):
    """Balanced accuracy, from the cell of the confusion matrix that every sample falls into.

    Attributes:
      metric: whose formula it is.
      true, predicted: classes, int64 [N].
    """

    metric: BalancedAccuracy
    true: Counts
    predicted: Counts

    @property
    def width(self) -> int:  # type: ignore[override]
        return max(len(self.true), 3 * self.metric._classes())

    @property
    def codes(self) -> Counts:  # type: ignore[override]
        return self.true * self.metric._classes() + self.predicted

    def take(self, samples: Counts) -> Cells:
        return replace(self, true=self.true[samples], predicted=self.predicted[samples])

    def _table(self, counts: NDArray[Any], rows: Any, num_rows: int) -> Counts:
        """Hits, support and predictions of every class, ``[num_rows, 3, C]``: each count goes to its row and class."""
        c = self.metric._classes()
        hit = counts * (self.true == self.predicted)
        parts = []
        for at, amount in ((self.true, hit), (self.true, counts), (self.predicted, counts)):
            index, amount = np.broadcast_arrays(rows * c + at, amount)
            parts.append(np.bincount(index.reshape(-1), weights=amount.reshape(-1), minlength=num_rows * c))
        return np.stack([x.reshape(num_rows, c) for x in parts], axis=1).astype(np.int64)

    def _values(self, table: Counts) -> Floats:
        state = {name: _as_limbs(table[:, i], 2) for i, name in enumerate(("hits", "support", "predicted"))}
        return _of_state(self.metric, state)

    def bind(self, units: Units) -> Callable[[Counts], Floats]:
        def values(counts: Counts) -> Floats:
            return self._values(self._table(units.per_sample(counts), np.arange(len(counts))[:, None], len(counts)))

        return values

    def influence(self, units: Units) -> Floats | None:
        total = self._table(units.per_sample(units.copies[None]), np.zeros((1, 1), np.int64), 1)
        if units.of_sample is None:
            # Samples of one cell have one influence.
            _, first, of = np.unique(self.codes, return_index=True, return_inverse=True)
            cells, rows, each = self.take(first), np.arange(len(first)), np.ones(len(first), np.int64)
        else:
            cells, rows, of = self, units.of_sample, np.arange(units.size)
            each = np.ones(len(self.true), np.int64) if units.within is None else units.within
        num_rows = int(rows.max()) + 1
        if num_rows * 3 * self.metric._classes() > _MOST_TABLE:
            return None
        return -self._values(total - cells._table(each, rows, num_rows))[of.reshape(-1)]


def _make_cells(m: BalancedAccuracy, preds: Any, labels: Any) -> Cells:
    parts = []
    for p, _, _, _, rows in base.chunks(preds, labels, None, None):
        parts.append(np.asarray(_best(m, p))[:rows])
    return Cells(m, labels.astype(np.int64), np.concatenate(parts).astype(np.int64))


# --- ranks --------------------------------------------------------------------------------------------------------


def _rank_keys(scores: NDArray[Any], wide: bool) -> NDArray[Any]:
    """Signed integers that order, and tie, as the scores do."""
    return keys.host_key(ranking.dense_ranks(scores)[0] if wide else scores)


@dataclass(frozen=True, eq=False)
class _Column:
    """Positives and negatives of one class in order of score.

    Attributes:
      positives, negatives: sample numbers, ascending by score.
      below, up_to: for each positive, how many negatives stand below it, and not above it, int64.
      tied: whether any positive has the score of a negative.
    """

    positives: Counts
    negatives: Counts
    below: Counts
    up_to: Counts
    tied: bool

    @classmethod
    def of(cls, k: NDArray[Any], positive: NDArray[np.bool_]) -> _Column:
        order = np.argsort(k, kind="stable")
        pos, neg = order[positive[order]], order[~positive[order]]
        below, up_to = (np.searchsorted(k[neg], k[pos], side=side) for side in ("left", "right"))
        return cls(pos, neg, below, up_to, bool((below != up_to).any()))

    def pairs(self, counts: Counts) -> tuple[Counts, Counts, Counts]:
        """``2 #{s+ > s-} + #{s+ = s-}``, and how many positives and negatives, of counts of samples ``[b, N]``."""
        p, n = counts.take(self.positives, axis=1), counts.take(self.negatives, axis=1)
        cumulative = np.zeros((len(n), n.shape[1] + 1), np.int64)
        np.cumsum(n, axis=1, out=cumulative[:, 1:])
        under = np.einsum("bi,bi->b", p, cumulative.take(self.below, axis=1))
        over = np.einsum("bi,bi->b", p, cumulative.take(self.up_to, axis=1)) if self.tied else under
        return under + over, p.sum(axis=1), cumulative[:, -1]

    def influence(self, w: Counts) -> Floats | None:
        """Derivative of the AUC by the count of each sample ``[N]``, at counts w, by placement values."""
        p, n = w[self.positives].astype(np.float64), w[self.negatives].astype(np.float64)
        if p.sum() == 0 or n.sum() == 0:
            return None
        cumulative = np.concatenate([[0.0], np.cumsum(n)])
        place = (cumulative[self.below] + cumulative[self.up_to]) / (2 * n.sum())
        # A positive beats the negatives below: for a negative, the positives whose `below` lies beyond it.
        weight = np.concatenate([[0.0], np.cumsum(p)])
        at = np.arange(len(n))
        beaten_by = p.sum() - weight[np.searchsorted(self.below, at, side="right")]
        not_under = p.sum() - weight[np.searchsorted(self.up_to, at, side="right")]
        auc = float(p @ place) / p.sum()
        out = np.zeros(len(w))
        out[self.positives] = (place - auc) / p.sum()
        out[self.negatives] = ((beaten_by + not_under) / (2 * p.sum()) - auc) / n.sum()
        return out


@dataclass(frozen=True, eq=False)
class Pairs(Reduction):
    """AUC: each class sorted once, then cumulative counts of its negatives for each resample."""

    metric: AUC
    ranks: NDArray[Any]
    labels: NDArray[Any]

    @property
    def width(self) -> int:  # type: ignore[override]
        return int(self.ranks.shape[0])

    def take(self, samples: Counts) -> Pairs:
        return replace(self, ranks=self.ranks[samples], labels=self.labels[samples])

    def _columns(self) -> list[_Column]:
        if self.ranks.ndim == 1:
            return [_Column.of(self.ranks, self.labels == 1)]
        return [_Column.of(self.ranks[:, c], self.labels == c) for c in range(self.ranks.shape[1])]

    def bind(self, units: Units) -> Callable[[Counts], Floats]:
        columns = self._columns()

        def values(counts: Counts) -> Floats:
            w = units.per_sample(counts)
            found = [np.stack(x, axis=1) for x in zip(*(c.pairs(w) for c in columns))]
            sizes = zip(("pairs", "num_positive", "num_negative"), found, (ranking.PAIR_LIMBS, 2, 2))
            return _of_state(self.metric, {k: _as_limbs(x, size) for k, x, size in sizes})

        return values

    def influence(self, units: Units) -> Floats | None:
        w = units.per_sample(units.copies[None])[0]
        defined = [x for c in self._columns() if (x := c.influence(w)) is not None]
        if not defined:
            return None
        mean = np.mean(defined, axis=0)
        return np.asarray(units.sum_over(mean[:, None])[:, 0])


@dataclass(frozen=True, eq=False)
class Crossing(Reduction):
    """EER: trials sorted once by descending score, then the crossing on the cumulative counts of each resample."""

    metric: EER
    ranks: NDArray[Any]
    labels: NDArray[Any]

    @property
    def width(self) -> int:  # type: ignore[override]
        return int(self.ranks.size)

    def take(self, samples: Counts) -> Crossing:
        return replace(self, ranks=self.ranks[samples], labels=self.labels[samples])

    def bind(self, units: Units) -> Callable[[Counts], Floats]:
        pooled = self.ranks.ndim == 2
        genuine = self.labels[:, None] == np.arange(self.ranks.shape[1]) if pooled else self.labels == 1
        k = self.ranks.reshape(-1)
        order = np.argsort(k, kind="stable")[::-1]
        k, genuine = k[order], genuine.reshape(-1)[order].astype(np.int64)
        sample = order // self.ranks.shape[1] if pooled else order
        # The vertices of the ROC polyline are where a run of equal scores ends.
        last = np.flatnonzero(np.append(k[1:] != k[:-1], True))
        distinct = len(last) == len(k)

        def values(counts: Counts) -> Floats:
            w = units.per_sample(counts).take(sample, axis=1)
            accepted = np.cumsum(w, axis=1)
            w *= genuine
            accepted_g = np.cumsum(w, axis=1, out=w)
            if not distinct:
                accepted, accepted_g = accepted.take(last, axis=1), accepted_g.take(last, axis=1)
            accepted_i = accepted - accepted_g
            num_g, num_i = accepted_g[:, -1:], accepted_i[:, -1:]
            # FAR >= FRR as integers; scores without a count repeat the vertex before them and change nothing.
            crossed = accepted_i * num_g >= (num_g - accepted_g) * num_i
            far, row = np.argmax(crossed, axis=1), np.arange(len(w))
            near, first = np.maximum(far - 1, 0), far == 0
            state = {
                f"{end}_{side}": x[row, at] * (1 - first) if end == "near" else x[row, at]
                for end, at in (("near", near), ("far", far))
                for side, x in (("genuine", accepted_g), ("impostor", accepted_i))
            }
            state |= {"num_genuine": num_g[:, 0], "num_impostor": num_i[:, 0]}
            as_limbs = {name: _as_limbs(x, 2) for name, x in state.items()}
            return _of_state(self.metric, as_limbs | {"threshold": np.zeros(len(w))})

        return values


@dataclass(frozen=True, eq=False)
class OperatingPoint(Reduction):
    """TPR at a pinned FPR: trials sorted once, then the metric's own threshold for each resample."""

    metric: TPRatFPR
    ranks: NDArray[Any]
    labels: NDArray[Any]

    @property
    def width(self) -> int:  # type: ignore[override]
        return int(self.ranks.size)

    def take(self, samples: Counts) -> OperatingPoint:
        return replace(self, ranks=self.ranks[samples], labels=self.labels[samples])

    def bind(self, units: Units) -> Callable[[Counts], Floats]:
        order = np.argsort(self.ranks, kind="stable")
        k = keys.order_key(self.ranks[order])
        positive = self.labels[order] == 1

        def values(counts: Counts) -> Floats:
            w = units.per_sample(counts).take(order, axis=1)
            found = [self.metric._host_point(k, positive, row, np.float32) for row in w]
            return _of_state(self.metric, {name: np.stack([f[name] for f in found]) for name in found[0]})

        return values


# --- medians ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Median(Reduction):
    """A median of each field: values sorted once, then the middle of each resample.

    Attributes:
      metric: whose formula it is.
      ranks: by field, the order keys of all samples, the largest key for one that has no value.
    """

    metric: LocalQ50
    ranks: dict[str, NDArray[Any]]

    @property
    def width(self) -> int:  # type: ignore[override]
        return max(len(k) for k in self.ranks.values())

    def take(self, samples: Counts) -> Median:
        return replace(self, ranks={name: k[samples] for name, k in self.ranks.items()})

    def bind(self, units: Units) -> Callable[[Counts], Floats]:
        ordered = {}
        for name, k in self.ranks.items():
            there = np.flatnonzero(k != k.dtype.type(keys.nan_key(k)))
            order = there[np.argsort(k[there], kind="stable")]
            dtype = np.float64 if k.dtype == np.uint64 else np.float32
            ordered[fields._suffix(name)] = order, keys.key_value(k[order], dtype).astype(np.float64)

        def values(counts: Counts) -> Floats:
            w = units.per_sample(counts)
            state: dict[str, NDArray[Any]] = {}
            for end, (order, value) in ordered.items():
                cumulative = np.cumsum(w.take(order, axis=1), axis=1)
                total = cumulative[:, -1] if len(order) else np.zeros(len(w), np.int64)
                middle = [_middle(c, value) for c in cumulative]
                state |= {f"middle{end}": np.stack(middle), f"lit{end}": _as_limbs(total, 2)}
            return _of_state(self.metric, state)

        return values


def _middle(cumulative: Counts, value: Floats) -> Floats:
    """The two middle entries ``[2]`` of ascending values with these cumulative counts."""
    if not len(value) or not cumulative[-1]:
        return np.zeros(2)
    total = int(cumulative[-1])
    return value[np.searchsorted(cumulative, [(total + 1) // 2, total // 2 + 1])]


# --- which metric is what -----------------------------------------------------------------------------------------


def make_reduction(m: Metric, preds: Any, labels: Any, mask: Any, weights: Any, wide: bool) -> Reduction:
    """The reduction of a resolved metric over checked NumPy arrays, their sample axes flattened into one.

    Args:
      m: the metric.
      preds, labels: samples first.
      mask, weights: of what lies inside a sample (signals of a mixture), or None.
      wide: whether values need 64 bits.

    Raises:
      EvaluationError: a metric of one's own whose state does not add up.
    """
    if isinstance(m, AUC):
        return Pairs(m, _rank_keys(preds, wide), labels)
    if isinstance(m, TPRatFPR):
        return OperatingPoint(m, _rank_keys(preds, wide), labels)
    if isinstance(m, EER):
        return Crossing(m, _rank_keys(preds, wide), labels)
    if isinstance(m, BalancedAccuracy):
        return _make_cells(m, preds, labels)
    if isinstance(m, LocalQ50):
        names = fields._names(m.field)
        found = fields._host_pass(names, 1, preds, labels, None, None, wide)
        return Median(m, {name: found[name][m._kind] for name in names})
    return _make_sums(m, preds, labels, mask, weights, wide)
