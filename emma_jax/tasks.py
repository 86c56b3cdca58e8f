"""Tasks: which metrics score which problem, with which pinned parameters; and the registry of them."""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import dataclass
from typing import Any

from jax.typing import ArrayLike

from emma_jax import metrics as m
from emma_jax.errors import EvaluationError, MissingTaskError
from emma_jax.metrics import base
from emma_jax.metrics.base import Metric, State
from emma_jax.scores import Scores

__all__ = ["Task", "get_task", "list_tasks", "register_task"]


@dataclass(frozen=True)
class Task:
    """A named set of metrics over the same predictions and labels: frozen, hashable, a static argument of any
    transform.

    Its state is a pytree of fixed shapes and dtypes (uint32), so it can be a scan carry, a donated buffer or a
    checkpoint.

    Attributes:
      id: name, for example "E-LOC-AOA".
      metrics: the metrics, headline first.
      preds: what predictions look like, in words.
      labels: what labels look like, in words.
      sample_axes: the axes that ``where`` and ``weights`` broadcast against, in words.
      in_ood_avg: whether EMMA v0.1 averages the headline into OOD-avg.
    """

    id: str
    metrics: tuple[Metric, ...]
    preds: str = ""
    labels: str = ""
    sample_axes: str = "[N]"
    in_ood_avg: bool = False

    def __post_init__(self) -> None:
        names = [x.name for x in self.metrics]
        if not self.metrics or len(set(names)) != len(names):
            raise EvaluationError(f"needs metrics with distinct names; got {names}", task=self.id, argument="metrics")

    @property
    def headline(self) -> Metric:
        """The metric that ranks."""
        return self.metrics[0]

    @property
    def params(self) -> dict[str, Any]:
        """Every parameter of the metrics, by name."""
        return {name: value for x in self.metrics for name, value in x.info.config}

    def replace(self, **params: Any) -> Task:
        """The same task with other parameters, for example ``replace(k=5)``; each goes to every metric that has it.

        Raises:
          EvaluationError: if no metric of the task has a parameter of that name, or a value is not legal.
        """
        known = {p for x in self.metrics for p in inspect.signature(type(x)).parameters}
        for name in params:
            if name not in known:
                text = f"is no parameter of this task; it has {', '.join(sorted(known))}"
                raise EvaluationError(text, task=self.id, argument=name)
        return dataclasses.replace(self, metrics=tuple(_replace(x, params) for x in self.metrics))

    def init(self, *, axis_name: str | tuple[str, ...] | None = None) -> dict[str, State]:
        """The empty state. ``axis_name``: inside `jax.shard_map`, the mesh axis over which a scan's carry is to
        vary."""
        return base.init_states(self.metrics, axis_name)

    def update(
        self,
        state: dict[str, State],
        preds: ArrayLike,
        labels: ArrayLike,
        *,
        where: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        lengths: ArrayLike | None = None,
    ) -> dict[str, State]:
        """The state with one more batch. Shapes and dtypes raise; values are counted and raise (or give NaN) in
        `compute`."""
        labels = base.with_lengths(self.metrics, labels, lengths, self.id)
        return base.update_states(self.metrics, state, preds, labels, where, weights, self.id)

    def merge(self, a: dict[str, State], b: dict[str, State]) -> dict[str, State]:
        """The state of two streams together."""
        return base.merge_states(self.metrics, a, b)

    def all_reduce(self, state: dict[str, State], axis_name: str | tuple[str, ...]) -> dict[str, State]:
        """The state summed over a mapped axis, inside `jax.shard_map`."""
        return base.all_reduce_states(self.metrics, state, axis_name)

    def compute(self, state: dict[str, State]) -> Scores:
        """Scores of a state: float64 on the host, where an undefined value raises; float32 under trace, where it is
        NaN."""
        return base.compute_scores(self.metrics, state, self.id)


def _replace(metric: Metric, params: dict[str, Any]) -> Metric:
    """The metric with those of the parameters that it has, set together: some are only legal in pairs."""
    own = inspect.signature(type(metric)).parameters
    fields = {f.name: getattr(metric, f.name) for f in dataclasses.fields(metric) if f.init}  # type: ignore[arg-type]
    new = {k: tuple(v) if isinstance(v, list) else v for k, v in params.items() if k in own}
    return type(metric)(**(fields | new)) if new else metric


_SCORES = "[N, C] scores, or [N] int classes"
_REGISTRY: dict[str, Task] = {}


def register_task(task: Task) -> Task:
    """Makes a task known by its id, to `get_task`, `evaluate` and the command line.

    Raises:
      EvaluationError: if the id is taken by a different task.
    """
    if _REGISTRY.get(task.id, task) != task:
        raise EvaluationError("a different task of this id is registered", task=task.id, argument="id")
    _REGISTRY[task.id] = task
    return task


def list_tasks() -> tuple[Task, ...]:
    """Every registered task."""
    return tuple(_REGISTRY.values())


def get_task(id: str | Task, *, release: Any = None, **params: Any) -> Task:
    """A task by id, with parameters.

    Args:
      id: a registered id, or a `Task`.
      release: a `Release` whose pinned parameters the task takes; without one it has those of EMMA v0.1 as proposed.
      **params: parameters to change on top, for example ``num_classes=32``.

    Raises:
      MissingTaskError: if there is no task of that id.
      EvaluationError: if a parameter does not exist or is not legal.
    """
    if isinstance(id, Task):
        task = id
    elif id in _REGISTRY:
        task = _REGISTRY[id]
    else:
        raise MissingTaskError(f"is not a known task; known are {', '.join(_REGISTRY)}", task=str(id), argument="task")
    if release is not None:
        task = task.replace(**release.params(task.id))
    return task.replace(**params) if params else task


for _task in (
    Task("E-LOC-AOA", (m.MeanAngularError(),), "[N] degrees", "[N] degrees", in_ood_avg=True),
    Task("E-LOC-LOS", (m.BalancedAccuracy(),), _SCORES, "[N] int", in_ood_avg=True),
    Task("E-ID-DRONE", (m.AUC(),), "[N] or [N, C] scores", "[N] int", in_ood_avg=True),
    Task("E-ID-FP", (m.Top1Accuracy(), m.EER()), "[N, C] scores", "[N] int", in_ood_avg=True),
    Task("E-ID-AMC", (m.PlainAccuracy(),), _SCORES, "[N] int"),
    Task("E-CH-BEAM", (m.TopKAccuracy(k=3),), "[N, B] scores, or [N, K] ranked beams", "[N] int"),
    Task("E-CH-CSI", (m.NMSE(),), "[N, ...] complex or real", "[N, ...] of the same kind"),
    Task("E-SC-SENSE", (m.AUC(input="binary"),), "[N] scores", "[N] int, 0 or 1"),
    Task("E-SC-ANOM", (m.AUROC(),), "[N] scores", "[N] int, 0 or 1"),
    Task(
        "E-S2T-CAP",
        (m.Bleu(), m.Meteor(), m.CIDER()),
        "[N] str, or TokenBatch [N, L]",
        "[N] lists of str, or TokenBatch [N, R, L]",
    ),
    Task(
        "E-S2T-QA",
        (m.ExactMatch(), m.F1()),
        "[N] str, or TokenBatch [N, L]",
        "[N] gold answers, each a str or a list; or TokenBatch [N, R, L]",
    ),
    Task("E-SC-SEP", (m.SISDR(),), "[N, T] or [N, K, T]", "the same; lengths [N]", "[N] or [N, K]"),
    Task(
        "EMVal-NF",
        (
            *(kind(field) for kind in (m.RelL2, m.LocalQ50) for field in ("avg", "E", "H")),
            *(m.LocalCosQ50(field) for field in ("E", "H")),
        ),
        '{"E", "H"}, each [J, F, P, 3] complex',
        "the same",
        "[J, F, P]",
    ),
    Task("EMVal-SP", (m.RealImagRMSE(), m.MagWMAE(), m.PhaseWMAE()), "[F, i, j] complex", "the same", "[F, i, j]"),
):
    register_task(_task)
