"""evaluate: every score of a task from one batch, exact, with validity; and the same per group."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from emma_jax import checks
from emma_jax.errors import EmptyEvaluationError, EvaluationError, ShapeError
from emma_jax.metrics import base
from emma_jax.scores import Scores
from emma_jax.tasks import Task, get_task

__all__ = ["evaluate", "evaluate_groups", "per_sample"]


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
