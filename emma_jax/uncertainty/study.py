"""One or several submissions on one task, resampled together: the same draws for every metric and every submission."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from emma_jax import checks
from emma_jax.errors import EmptyEvaluationError, EvaluationError, ShapeError
from emma_jax.metrics import base
from emma_jax.metrics.base import Metric
from emma_jax.scores import Scores
from emma_jax.tasks import Task, get_task
from emma_jax.uncertainty.reductions import Reduction, make_reduction
from emma_jax.uncertainty.units import Counts, Units, block_rows, draw, generator, make_units

__all__ = ["Study", "as_task", "resample", "run_study"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Study:
    """What came of resampling.

    Attributes:
      scores: of each submission, from all samples.
      metrics: names, headline first.
      resampled: by metric, values [submissions, B]; NaN where undefined.
      influence: by metric, one array [U] for each submission, or None without a closed form; empty unless asked for.
      units: what was drawn.
    """

    scores: tuple[Scores, ...]
    metrics: tuple[str, ...]
    resampled: dict[str, Floats]
    influence: dict[str, list[Floats | None]]
    units: Units

    def chosen(self, metric: str | None, task: str) -> str:
        """The metric asked for, or the headline; EvaluationError if the task does not have it."""
        name = self.metrics[0] if metric is None else metric
        if name not in self.metrics:
            raise EvaluationError(f"{name!r} is none of {', '.join(self.metrics)}", task=task, argument="metric")
        return name

    def direction(self, metric: str) -> str:
        """Direction of a metric."""
        return next(info.direction for info in self.scores[0].info if info.name == metric)


def as_task(task: str | Task | Metric, params: dict[str, Any]) -> Task:
    """A task from an id, a task or a single metric."""
    if isinstance(task, Metric):
        task = Task(task.name, (task,))
    return get_task(task, **params)


@dataclass(frozen=True, eq=False)
class _Read:
    """One submission, checked and flattened."""

    scores: Scores
    metrics: tuple[Metric, ...]
    preds: Any
    labels: Any
    mask: Any
    weights: Any
    shape: tuple[int, ...]
    axes: int
    wide: bool


@base._usual_promotion
def run_study(
    task: Task,
    submissions: Sequence[Any],
    labels: Any,
    *,
    key: Any,
    num_resamples: int,
    clusters: Any = None,
    stratify: Any = None,
    where: Any = None,
    weights: Any = None,
    lengths: Any = None,
    influence: bool = False,
    name: str = "",
) -> Study:
    """Scores submissions, and scores them again on resamples that they share.

    Args:
      task: the task.
      submissions: predictions, one or more.
      labels, where, weights, lengths: as for `emma_jax.evaluate`.
      key: seeds the draws. name: goes into the seed with it.
      num_resamples: B.
      clusters, stratify: as for `emma_jax.bootstrap`.
      influence: whether to compute influence values for BCa.

    Raises:
      EvaluationError: as for `emma_jax.evaluate`; traced arguments; submissions that yield different metrics.
    """
    if checks.is_traced(submissions, labels, where, weights, lengths, clusters, stratify):
        raise EvaluationError("is traced; resampling runs on the host, outside any transform", task=task.id)
    rng = generator(key, name)
    labels = base.with_lengths(task.metrics, labels, lengths, task.id)
    read = [_read(task, preds, labels, where, weights) for preds in submissions]
    first = read[0]
    names = tuple(m.name for m in first.metrics)
    for other in read[1:]:
        if tuple(m.name for m in other.metrics) != names or other.shape != first.shape:
            raise ShapeError("yield different metrics or samples; nothing to compare", task=task.id, argument="preds")
    kept = _kept_rows(first)
    found = [_reductions(r, kept) for r in read]
    inside = first.axes < len(first.shape)
    copies = None if inside or first.weights is None else _flat(first.weights, first.axes, kept).astype(np.int64)
    flat = first.shape[: first.axes]
    num = int(np.prod(flat)) if kept is None else len(kept)
    units = make_units(num, kept, copies, clusters, stratify, flat, task.id)
    resampled, influences, units = resample(found, units, rng, num_resamples, influence=influence)
    return Study(
        tuple(r.scores for r in read),
        names,
        {n: resampled[:, i] for i, n in enumerate(names)},
        {n: [values[i] for values in influences] for i, n in enumerate(names)} if influence else {},
        units,
    )


def resample(
    reductions: list[list[Reduction]],
    units: Units,
    rng: np.random.Generator,
    num_resamples: int,
    *,
    influence: bool,
) -> tuple[Floats, list[list[Floats | None]], Units]:
    """Values ``[submissions, metrics, B]`` on shared resamples, influence values if asked for, and the units drawn.

    Where every metric of every submission takes few different values over samples, alike samples are put together, and
    the resample is one multinomial draw of their counts.
    """
    codes = [r.codes for own in reductions for r in own]
    if units.of_sample is None and all(c is not None for c in codes):
        units, first = units.merged(_joint([c for c in codes if c is not None]))
        reductions = [[r.take(first) for r in own] for own in reductions]
    bound = [[r.bind(units) for r in own] for own in reductions]
    width = max(units.size, *(r.width for own in reductions for r in own))
    out = np.empty((len(bound), len(bound[0]), num_resamples))
    start = 0
    for counts in draw(units, rng, num_resamples, block_rows(width)):
        for s, own in enumerate(bound):
            for i, values in enumerate(own):
                out[s, i, start : start + len(counts)] = values(counts)
        start += len(counts)
    known = [[r.influence(units) for r in own] for own in reductions] if influence else []
    return out, known, units


def _joint(codes: list[Counts]) -> Counts:
    """One code for each combination of codes ``[N]``."""
    joint = codes[0]
    for code in codes[1:]:
        size = int(code.max(initial=0)) + 1
        if (int(joint.max(initial=0)) + 1) * size >= 1 << 62:
            joint = np.unique(joint, return_inverse=True)[1].reshape(-1)
        joint = joint * size + code
    return joint


def _read(task: Task, preds: Any, labels: Any, where: Any, weights: Any) -> _Read:
    """Scores a submission, which raises on anything bad, and lays its arrays out with the samples first."""
    metrics = task.headline._applicable(task.metrics, preds, labels, where, weights)
    preds, labels = task.headline._ingest(metrics, preds, labels, where, weights, task.id)
    scores = base.score(metrics, preds, labels, where, weights, task.id)
    preds, labels, metrics, mask, weights = base.prepare(metrics, preds, labels, where, weights, task.id)
    preds, labels, mask, weights = jax.tree_util.tree_map(np.asarray, (preds, labels, mask, weights))
    (preds, wide_p), (labels, wide_l) = checks.narrow(preds), checks.narrow(labels)
    shape = metrics[0]._sample_shape(preds, labels, task.id)
    axes = metrics[0]._chunk_axes(preds, labels)
    return _Read(scores, metrics, preds, labels, mask, weights, shape, axes, wide_p or wide_l)


def _kept_rows(r: _Read) -> Counts | None:
    """Numbers of the samples that are there; None for all."""
    if r.mask is None and r.weights is None:
        return None
    there: Any = np.ones(r.shape, bool) if r.mask is None else np.broadcast_to(r.mask, r.shape)
    if r.weights is not None:
        there = there & (r.weights > 0)
    there = there.reshape(int(np.prod(r.shape[: r.axes])), -1).any(axis=1)
    if not there.any():
        raise EmptyEvaluationError("no sample to score", argument="where")
    return np.flatnonzero(there)


def _reductions(r: _Read, kept: Counts | None) -> list[Reduction]:
    def flat(x: Any) -> Any:
        return _flat(x, r.axes, kept)

    preds, labels = jax.tree_util.tree_map(flat, (r.preds, r.labels))
    inside = r.axes < len(r.shape)
    mask, weights = (None if x is None or not inside else flat(x) for x in (r.mask, r.weights))
    return [make_reduction(m, preds, labels, mask, weights, r.wide) for m in r.metrics]


def _flat(x: Any, axes: int, kept: Counts | None) -> Any:
    """The first axes as one, and of that the samples that are there."""
    x = x.reshape(int(np.prod(x.shape[:axes])), *x.shape[axes:])
    return x if kept is None else x[kept]
