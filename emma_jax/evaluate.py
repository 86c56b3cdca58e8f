"""evaluate: every score of a task from one batch, exact, with validity; the same per group; and for a stack of runs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from emma_jax import checks
from emma_jax.errors import DegenerateLabelsError, EmptyEvaluationError, EvaluationError, ShapeError
from emma_jax.metrics import (
    AUC,
    AUROC,
    EER,
    BalancedAccuracy,
    MeanAngularError,
    PlainAccuracy,
    Top1Accuracy,
    TopKAccuracy,
    base,
)
from emma_jax.numerics import limbs, ranking
from emma_jax.numerics.run_pairs import pairs_of_run
from emma_jax.scores import Scores, Validity
from emma_jax.tasks import Task, get_task

__all__ = ["SharedLabels", "evaluate", "evaluate_groups", "per_sample", "sweep"]


def evaluate(
    task: str | Task,
    preds: ArrayLike,
    labels: ArrayLike,
    *,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    **params: Any,
) -> Scores:
    """Scores predictions on a task.

    With concrete arrays (NumPy, JAX, anything `numpy.asarray` takes) the inputs are checked, bad ones raise, and
    values are finalised in
    float64 from exact integers. Under a JAX transform nothing looks at values: scores are float32, NaN where
    undefined or
    where an input is bad, and gradients do not flow.

    Args:
      task: a task id, or a `Task`.
      preds: predictions, shaped as the task says (see the task table).
      labels: truth.
      where: bool, broadcast to the sample axes; False means that the sample is not there, whatever it holds, NaN
      included.
      weights: non-negative integers (multiplicities), broadcast to the sample axes.
      lengths: int [N], for tasks over signals: how many leading time steps of each are there.
      **params: parameters of the task to change, for example ``k=5``.

    Returns:
      `Scores`, indexed by metric name, with ``validity`` and ``aux``.

    Raises:
      EvaluationError: a subclass that names the task, the argument, how many entries are bad and the first index.
      Shapes, dtypes
        and parameters raise in every mode.
    """
    task = get_task(task, **params)
    labels = base.with_lengths(task.metrics, labels, lengths, task.id)
    return base.score(task.metrics, preds, labels, where, weights, task.id)


def evaluate_groups(
    task: str | Task,
    preds: ArrayLike,
    labels: ArrayLike,
    groups: ArrayLike,
    *,
    num_groups: int | None = None,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    **params: Any,
) -> Scores:
    """Scores every group of samples (environment, unit, SNR bin) on its own.

    Args:
      task, preds, labels, where, weights, lengths, **params: as for `evaluate`.
      groups: int [N], the group of each sample along the first axis, in 0..num_groups-1.
      num_groups: G; needed under trace, else the largest group + 1.

    Returns:
      `Scores` with a leading axis [G]. A group that is empty, or whose labels leave a metric undefined, has NaN
      there; its ``validity``
      says why. Bad values raise as in `evaluate` (under trace: NaN in their group).

    Raises:
      EvaluationError: as for `evaluate`; LabelError for a group outside 0..G-1 (under trace every value is NaN).
    """
    task = get_task(task, **params)
    labels = base.with_lengths(task.metrics, labels, lengths, task.id)
    if checks.is_traced(preds, labels, groups, where, weights):
        return _traced_groups(task, preds, labels, groups, num_groups, where, weights)
    given_groups = checks.host_array(groups, "groups", task.id)
    groups = np.asarray(checks.host_labels(given_groups, "groups", task.id))
    metrics = task.headline._applicable(task.metrics, preds, labels, where, weights)
    given = preds, labels = task.headline._ingest(metrics, preds, labels, where, weights, task.id)
    preds, labels, metrics, mask, weights = base.prepare(metrics, preds, labels, where, weights, task.id)
    n = jax.tree_util.tree_leaves(labels)[0].shape[0]
    _check_groups(task, groups, n)
    if n == 0:
        raise EmptyEvaluationError("no sample to score", task=task.id, argument="preds")
    rows = None if mask is None else np.asarray(mask).reshape(n, -1).any(axis=1)
    count = int(groups.max(initial=0)) + 1 if num_groups is None else int(num_groups)
    checks.raise_label(task.id, "groups", given_groups, rows, count)
    order = np.argsort(np.where((groups >= 0) & (groups < count), groups, count), kind="stable")
    ends = np.searchsorted(groups[order], np.arange(count + 1)) if rows is None else None
    parts = []
    for g in range(count):
        pick = order[ends[g] : ends[g + 1]] if ends is not None else np.flatnonzero(groups == g)
        cut = [jax.tree_util.tree_map(lambda x, pick=pick: x[pick], t) for t in (preds, labels, mask, weights)]
        _, summaries, _ = base.host_summaries(metrics, cut[0], cut[1], cut[2], cut[3], task.id)
        parts.append(summaries)
    total = {m.name: {k: sum(p[m.name][k].astype(np.uint64) for p in parts) for k in base.COUNTERS} for m in metrics}
    if any(t["n"].sum() for t in total.values()):
        for m in metrics:
            if total[m.name]["n_nonfinite"].sum() or total[m.name]["n_invalid_label"].sum():
                m._explain(*(base._convert(x, "preds", task.id) for x in given), mask, task.id)
    else:
        raise EmptyEvaluationError("no sample to score", task=task.id, argument="where")
    stacked = jax.tree_util.tree_map(lambda *x: np.stack(x), *parts)
    return base.host_scores(metrics, stacked, task.id)


def per_sample(task: str | Task, preds: Any, labels: Any, **params: Any) -> dict[str, Any]:
    """The value of every sample on its own, for those metrics of a task that have one: the worst are worth a look.

    Args:
      task, preds, labels, **params: as for `evaluate`.

    Returns:
      By metric name, [N] (the sample axes) in the metric's unit and direction: 0 or 1 for a top-1 or top-k hit,
      degrees for an angle, dB for a channel
      or a signal, the sentence's own score for text. float64 from concrete arrays, float32 under a JAX transform;
      NaN for a sample that the metric
      leaves out, such as a silent reference.

    Raises:
      EvaluationError: as for `evaluate`; also if no metric of the task has a value per sample (AUC, EER, balanced
      accuracy).
    """
    task = get_task(task, **params)
    own = [m for m in task.metrics if m._decomposes or hasattr(m, "per_sample")]
    if not own:
        names = ", ".join(m.name for m in task.metrics)
        raise EvaluationError(f"{names}: no value per sample, only one for the whole", task=task.id)
    return {m.name: base.sample_values(m, preds, labels, task.id) for m in own}


def _check_groups(task: Task, groups: Any, n: int) -> None:
    if groups.ndim != 1 or groups.shape[0] != n:
        raise ShapeError(f"needs shape ({n},), one group a sample; got {groups.shape}", task=task.id, argument="groups")


def _traced_groups(
    task: Task, preds: Any, labels: Any, groups: Any, num_groups: int | None, where: Any, weights: Any
) -> Scores:
    if num_groups is None:
        raise ShapeError("must be given under trace, since it is a shape", task=task.id, argument="num_groups")
    groups = checks.host_labels(jnp.asarray(groups), "groups", task.id).astype(jnp.int32)
    preds, labels, metrics, mask, weights = base.prepare(task.metrics, preds, labels, where, weights, task.id)
    shape = metrics[0]._sample_shape(preds, labels, task.id)
    _check_groups(task, groups, shape[0])
    column = groups.reshape(groups.shape + (1,) * (len(shape) - 1))
    stray = (column < 0) | (column >= num_groups)
    bad = jnp.any(stray if mask is None else stray & mask)

    def one(g: Any) -> Scores:
        inside = jnp.broadcast_to(column == g, shape)
        return base.score(metrics, preds, labels, inside if mask is None else inside & mask, weights, task.id)

    scores = lax.map(one, jnp.arange(num_groups, dtype=groups.dtype))
    for name in scores:
        scores._values[name] = jnp.where(bad, jnp.nan, scores._values[name])
    return scores


# --- sweep: many runs against the same labels ---------------------------------------------------------------------

# Sums of integers, whose bits do not depend on how many runs one kernel takes: on the host, and on an accelerator.
_COUNTED = (Top1Accuracy, PlainAccuracy, TopKAccuracy, BalancedAccuracy, MeanAngularError)
_RANKED = (AUC, AUROC, EER)
# Bytes of predictions that are worked on at once where `batch_size` does not say it: what a kernel's start costs no
# longer shows, and a block that has to be copied still fits the cache.
_BLOCK_BYTES = 1 << 24
_LARGE_BLOCK_BYTES = 1 << 26
# Runs larger than this keep the cores busy on their own, and two of them at a time would double the memory.
_THREAD_BYTES = 1 << 23

_States = tuple[tuple[Any, ...], dict[str, Any]]  # resolved metrics, and their exact states with a leading axis of runs


def sweep(
    task: str | Task,
    preds: Any,
    labels: Any,
    *,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    batch_size: int | None = None,
    progress: bool = False,
    **params: Any,
) -> Scores:
    """Scores many runs (checkpoints, seeds, settings) against the same labels.

    Each value is, to the bit, what `evaluate` gives for that run alone. A run with bad values never stops the rest: its
    value is NaN, and its ``validity`` says why. The labels are checked, converted and counted once; kernels are
    compiled once, for one run's shape.

    Args:
      task, labels, where, weights, lengths, **params: as for `evaluate`; shared by all runs.
      preds: [S, N, ...], the task's predictions with a leading axis of runs (a dict or `TokenBatch` of such arrays
        where the task takes one); or an iterable of runs, each as `evaluate` takes it, of which one at a time is held.
      batch_size: how many runs of a stack are worked on at once; by default as many as make up 16 MB of predictions, or
        64 MB where they are worked on in place.
      progress: show a progress bar on stderr.

    Returns:
      `Scores` with a leading axis [S]: float64 arrays (float32 under a JAX transform), ``validity`` and ``aux``
      likewise.

    Raises:
      EvaluationError: a subclass for shapes, dtypes and parameters that are wrong, and for labels that leave every run
      without a value; never for the predictions of a run. EmptyEvaluationError for no run.
    """
    task = get_task(task, **params)
    labels = base.with_lengths(task.metrics, labels, lengths, task.id)
    if batch_size is not None:
        base.require_int(batch_size, "batch_size", 1, task.id)
    stacked = _is_stack(preds)
    if stacked:
        preds = base._convert(preds, "preds", task.id)
        count = _num_runs(preds, task.id)
        if checks.is_traced(preds, labels, where, weights):
            return _traced_sweep(task, preds, labels, where, weights, batch_size, count)
    elif isinstance(preds, (str, bytes)) or not isinstance(preds, Iterable):
        raise ShapeError(
            f"needs an array [S, N, ...] or an iterable of runs; got {type(preds).__name__}",
            task=task.id,
            argument="preds",
        )
    shared = SharedLabels(task, labels, where, weights)
    total = count if stacked else len(preds) if hasattr(preds, "__len__") else None
    with _progress(task.id, total) if progress else contextlib.nullcontext(_silent) as advance:
        if stacked:
            return shared._finish(_stack_states(shared, preds, count, batch_size, advance))
        runs = iter(preds)
        first = next(runs, None)
        if first is None:
            raise EmptyEvaluationError("no run to score", task=task.id, argument="preds")
        if checks.is_traced(first, labels, where, weights):
            scores = [
                base.score(task.metrics, run, labels, where, weights, task.id) for run in itertools.chain([first], runs)
            ]
            return jax.tree_util.tree_map(lambda *x: jnp.stack(x), *scores)
        parts = []
        for index, run in enumerate(itertools.chain([first], runs)):
            with _naming_run(index):
                parts.append(shared._states(run))
            advance(1)
        return shared._finish(parts)


class SharedLabels:
    """The labels of a sweep, converted once; scores one run after another.

    Args:
      task, labels, where, weights: as for `evaluate`, with concrete arrays.
    """

    def __init__(self, task: Task, labels: Any, where: Any = None, weights: Any = None) -> None:
        self.task = task
        self._given = (labels, where, weights)
        self._ready: tuple[Any, Any, Any] | None = None
        self._example: Any = None

    def score(self, preds: Any) -> tuple[Scores, EvaluationError | None]:
        """The scores of one run, NaN where it has none, and then the error that `evaluate` would raise.

        Args:
          preds: predictions of one run, as `evaluate` takes them.

        Raises:
          EvaluationError: wrong shapes or dtypes.
        """
        labels, where, weights = self._shared(preds)
        metrics = self._metrics(preds)
        metrics, states, arrays = base.host_summaries(metrics, preds, labels, where, weights, self.task.id)
        scores = base.host_scores(metrics, states, self.task.id)
        try:
            base.raise_on_bad(metrics, states, arrays[0], arrays[1], arrays[2], self.task.id)
            for m in metrics:
                if np.isnan(scores[m.name]):
                    raise m._undefined(states[m.name], self.task.id)
        except EvaluationError as error:
            return scores, error
        return scores, None

    def _metrics(self, preds: Any) -> tuple[Any, ...]:
        return self.task.headline._applicable(self.task.metrics, preds, *self._given)

    def _shared(self, preds: Any) -> tuple[Any, Any, Any]:
        """Labels, mask and weights as kernels take them; text stays text, since it is numbered with its captions."""
        if self._example is None:
            self._example = preds
        if type(self.task.headline)._ingest is not base.Metric._ingest:
            return self._given
        if self._ready is None:
            _, labels, _, mask, weights = base.prepare(self.task.metrics, preds, *self._given, self.task.id)
            self._ready = checks.narrow(labels)[0], mask, weights
        return self._ready

    def _states(self, preds: Any) -> _States:
        """The states of one run."""
        labels, where, weights = self._shared(preds)
        metrics, states, _ = base.host_summaries(self._metrics(preds), preds, labels, where, weights, self.task.id)
        return metrics, jax.tree_util.tree_map(lambda x: np.asarray(x)[None], states)

    def _finish(self, parts: list[_States]) -> Scores:
        """Scores from the states of all runs, block after block."""
        metrics = parts[0][0]
        if all(m == metrics for m, _ in parts):
            names = [m.name for m in metrics]
            states = {n: {k: np.concatenate([s[n][k] for _, s in parts]) for k in parts[0][1][n]} for n in names}
            scores = base.host_scores(metrics, states, self.task.id)
        else:  # classes counted off integer predictions: runs have states of different shapes
            scores = _concatenate([base.host_scores(m, s, self.task.id) for m, s in parts])
        self._blame(metrics, parts[0][1], scores)
        return scores

    def _blame(self, metrics: tuple[Any, ...], states: dict[str, Any], scores: Scores) -> None:
        """Raises what `evaluate` raises where the labels, not a run, are the reason that no run has a value."""
        for m in metrics:
            validity = scores.validity[m.name]
            if not np.isnan(scores[m.name]).all():
                continue
            first = {k: v[0] for k, v in states[m.name].items()}
            if np.all(validity.n == 0):
                raise EmptyEvaluationError("no sample to score", task=self.task.id, argument="preds")
            bad = validity.n_nonfinite + validity.n_invalid_label > 0
            if not bad.all():
                error = m._undefined(first, self.task.id)
                if not bad.any() and isinstance(error, (DegenerateLabelsError, EmptyEvaluationError)):
                    raise error
                continue
            _, mask, weights = self._shared(self._example)
            there = mask if weights is None else base.both(mask, weights > 0)
            try:
                blank = jax.tree_util.tree_map(np.zeros_like, base._convert(self._example, "preds", self.task.id))
                m._explain(blank, base._convert(self._given[0], "labels", self.task.id), there, self.task.id)
            except EvaluationError as error:
                if (error.argument or "").startswith("labels"):
                    raise


def _is_stack(preds: Any) -> bool:
    return isinstance(preds, dict) or dataclasses.is_dataclass(preds) or hasattr(preds, "shape")


def _num_runs(preds: Any, task: str) -> int:
    """S of a stack [S, N, ...]."""
    leaves = jax.tree_util.tree_leaves(preds)
    shapes = [tuple(x.shape) for x in leaves]
    if not leaves or any(len(s) < 2 for s in shapes) or len({s[0] for s in shapes}) != 1:
        raise ShapeError(
            f"needs a leading axis of runs, [S, N, ...]; got {', '.join(map(str, shapes))}", task=task, argument="preds"
        )
    if shapes[0][0] == 0:
        raise EmptyEvaluationError("no run to score", task=task, argument="preds")
    return shapes[0][0]


def _run_bytes(preds: Any, count: int) -> int:
    return max(1, sum(x.size * x.dtype.itemsize for x in jax.tree_util.tree_leaves(preds)) // count)


def _traced_sweep(
    task: Task, preds: Any, labels: Any, where: Any, weights: Any, batch_size: int | None, count: int
) -> Scores:
    """Run after run on CPU, where a vmapped scatter or sort is slow; elsewhere as many at once as the shapes allow."""

    def one(run: Any) -> Scores:
        return base.score(task.metrics, run, labels, where, weights, task.id)

    if batch_size is None and jax.default_backend() != "cpu":
        batch_size = max(1, _BLOCK_BYTES // _run_bytes(preds, count))
    size = None if batch_size is None or batch_size == 1 else min(batch_size, count)
    return lax.map(one, preds, batch_size=size)


def _stack_states(
    shared: SharedLabels, preds: Any, count: int, batch_size: int | None, advance: Callable[[int], None]
) -> list[_States]:
    """States of a stack of runs, block after block: by one kernel a block for what counts, else run by run."""
    task = shared.task
    on_host = all(isinstance(x, np.ndarray) for x in jax.tree_util.tree_leaves(preds))
    run_bytes = _run_bytes(preds, count)
    first = _pick(preds, 0)
    arrays = shared._shared(first)
    metrics = shared._metrics(first)
    in_blocks = _in_blocks(metrics, first, on_host, task.id)
    rest = tuple(m for m in metrics if m not in in_blocks)
    # One kernel after another, where nothing has to be copied for it, keeps the cores busy on its own.
    in_place = not rest and (not on_host or (preds.ctypes.data % 64 == run_bytes % 64 == 0 and first.itemsize <= 4))
    at_once = min(count, batch_size or max(1, (_LARGE_BLOCK_BYTES if in_place else _BLOCK_BYTES) // run_bytes))
    workers = min(at_once, os.cpu_count() or 1) if on_host and run_bytes <= _THREAD_BYTES and not in_place else 1
    size = -(-at_once // workers)
    others = SharedLabels(dataclasses.replace(task, metrics=rest), *shared._given) if rest else None
    kernel = _Blocks(in_blocks, size, task.id)
    areas = _Areas(others, arrays) if on_host and others is not None and len(rest) == 1 else None
    device = jax.config.jax_default_device  # type: ignore[attr-defined]

    def states(start: int) -> list[_States]:
        end = min(start + size, count)
        with jax.default_device(device):  # a setting of the caller's thread
            block = kernel.states(preds, start, end, arrays) if in_blocks else None
            if block is not None and others is None:
                return [block]
            if block is None and in_blocks:
                return [shared._states(_pick(preds, s)) for s in range(start, end)]
            scorer: SharedLabels = others or shared
            one = areas.states if areas is not None else scorer._states
            single = [one(_pick(preds, s)) for s in range(start, end)]
        return single if block is None else [_join(metrics, block, single)]

    parts: list[_States] = []
    starts = range(0, count, size)
    with ThreadPoolExecutor(workers) if workers > 1 else contextlib.nullcontext() as pool:
        for start, found in zip(starts, map(states, starts) if pool is None else pool.map(states, starts)):
            parts += found
            advance(min(size, count - start))
    return parts


class _Areas:
    """Binary AUC of one run after another, with all that the labels alone decide taken from the first good run."""

    def __init__(self, shared: SharedLabels, arrays: tuple[Any, Any, Any]) -> None:
        self._shared = shared
        labels, mask, weights = arrays
        self._mask = mask
        self._positive: np.ndarray | None = None
        self._first: _States | None = None
        self._shape: tuple[int, ...] = ()
        if type(shared.task.headline) in (AUC, AUROC) and weights is None and isinstance(labels, np.ndarray):
            there = labels if mask is None else labels[mask]
            if labels.ndim == 1 and there.size and ((there == 0) | (there == 1)).all():
                self._positive = there.astype(np.uint32)

    def states(self, run: Any) -> _States:
        """The states that `SharedLabels` gives, to the bit."""
        if self._positive is None or run.ndim != 1:
            return self._shared._states(run)
        narrow, wide = checks.narrow(run)
        first = self._first
        pairs = None
        if not wide and first is not None and narrow.dtype == np.float32 and narrow.shape == self._shape:
            pairs = pairs_of_run(narrow if self._mask is None else narrow[self._mask], self._positive)
        if pairs is None or first is None:
            found = self._shared._states(run)
            (metric,), states = found
            if first is None and not any(states[metric.name][k].any() for k in ("n_nonfinite", "n_invalid_label")):
                self._shape, self._first = run.shape, found
            return found
        (metric,), states = first
        limbs_of_pairs = limbs.from_int(pairs, ranking.PAIR_LIMBS)
        return first[0], {metric.name: states[metric.name] | {"pairs": limbs_of_pairs[None, None]}}


def _join(metrics: tuple[Any, ...], block: _States, single: list[_States]) -> _States:
    """The states of a block, those of its kernel and those of its single runs, in the order of the metrics."""
    resolved, states = {m.name: m for m in block[0]}, dict(block[1])
    if single:
        resolved |= {m.name: m for m in single[0][0]}
        names = [m.name for m in single[0][0]]
        states |= {n: {k: np.concatenate([s[n][k] for _, s in single]) for k in single[0][1][n]} for n in names}
    return tuple(resolved[m.name] for m in metrics), {m.name: states[m.name] for m in metrics}


def _in_blocks(metrics: tuple[Any, ...], run: Any, on_host: bool, task: str) -> tuple[Any, ...]:
    """Those metrics whose states one kernel gives for a block of runs, to the same bits as run by run."""
    if not hasattr(run, "dtype"):
        return ()

    def fits(m: Any) -> bool:
        if type(m) is BalancedAccuracy and m.num_classes is None and m._preds_are_labels(run, task):
            return False  # each run has as many classes as it names
        return type(m) in _COUNTED or (type(m) in _RANKED and not on_host)

    return tuple(m for m in metrics if fits(m))


class _Blocks:
    """One kernel for blocks of ``size`` runs."""

    def __init__(self, metrics: tuple[Any, ...], size: int, task: str) -> None:
        self._metrics, self._size, self._task = metrics, size, task
        self._own = threading.local()

    @base._usual_promotion
    def states(self, preds: Any, start: int, end: int, arrays: tuple[Any, Any, Any]) -> _States | None:
        """States of runs ``start .. end - 1``; None where they have to go one by one.

        Angles in float64 do: one run that needs 64 bits would change how the others are rounded.
        """
        # The last block begins earlier, so that it has the shape that the kernel was compiled for.
        begin = min(start, preds.shape[0] - self._size)
        on_host = isinstance(preds, np.ndarray)
        block = preds[begin : begin + self._size] if on_host else preds
        converted, _, metrics, _, _ = base.prepare(self._metrics, _pick(block, 0), *arrays, self._task)
        if converted.dtype != block.dtype:  # predicted classes
            block = checks.host_labels(block, "preds", self._task)
        block, wide = checks.narrow(block)
        if wide and any(type(m) is MeanAngularError for m in metrics):
            return None
        wide = wide or checks.narrow(arrays[0])[1]
        at_once = None if jax.default_backend() == "cpu" else self._size
        with checks.enable_x64(wide):
            first = np.int32(0 if on_host else begin)
            found = _block_kernel(metrics, self._size, at_once, self._aligned(block), first, *arrays)
            found = jax.tree_util.tree_map(np.asarray, found)
        return metrics, {n: {k: v[start - begin : end - begin] for k, v in s.items()} for n, s in found.items()}

    def _aligned(self, block: Any) -> Any:
        """The block, or its copy in an array that JAX takes as it is: a new copy each time costs three times as much.

        Each thread has its own, used again only once a block's states have been fetched.
        """
        if not isinstance(block, np.ndarray) or block.ctypes.data % 64 == 0:
            return block
        return checks.copied_into(self._own.__dict__, "block", block)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _block_kernel(
    metrics: tuple[Any, ...],
    size: int,
    at_once: int | None,
    preds: Any,
    first: Any,
    labels: Any,
    mask: Any,
    weights: Any,
) -> Any:
    if preds.shape[0] != size:
        preds = lax.dynamic_slice_in_dim(preds, first, size)
    return lax.map(lambda p: base._summaries(metrics, p, labels, mask, weights), preds, batch_size=at_once)


def _pick(preds: Any, index: int) -> Any:
    """One run of a stack: a view of a NumPy array, a slice by one kernel of a JAX array."""
    return jax.tree_util.tree_map(lambda x: x[index] if isinstance(x, np.ndarray) else _row(x, index), preds)


@jax.jit
def _row(x: Any, index: Any) -> Any:
    return lax.dynamic_index_in_dim(x, index, keepdims=False)


def _concatenate(scores: list[Scores]) -> Scores:
    """Scores with leading axes one after another."""
    first = scores[0]
    validity = {
        n: Validity(**{k: np.concatenate([s.validity[n]._limbs[k] for s in scores]) for k in first.validity[n]._limbs})
        for n in first
    }
    values = {n: np.concatenate([s[n] for s in scores]) for n in first}
    aux = {n: {k: np.concatenate([s.aux[n][k] for s in scores]) for k in first.aux[n]} for n in first}
    return Scores(values, validity, aux, task=first.task, info=first.info)


@contextlib.contextmanager
def _naming_run(index: int) -> Iterator[None]:
    """Says which run of an iterable an error is about."""
    try:
        yield
    except EvaluationError as error:
        named = type(error)(f"run {index}: {error}")
        named.task, named.argument, named.count, named.index = error.task, error.argument, error.count, error.index
        raise named from error


def _silent(runs: int) -> None:
    del runs


@contextlib.contextmanager
def _progress(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr, gone at the end; nothing where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        job = bar.add_task(f"{what} runs", total=total)
        yield lambda runs: bar.update(job, advance=runs)
