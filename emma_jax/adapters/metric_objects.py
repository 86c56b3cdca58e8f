"""A `Metric` as the object that a training library expects: ``clu.metrics.Metric`` and ``flax.nnx.Metric``.

Each is the same exact integer state under another library's method names, so the value is that of `Metric.compute`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from emma_jax.errors import EvaluationError
from emma_jax.metrics import Metric
from emma_jax.tasks import Task

__all__ = ["clu_collection", "clu_metric", "nnx_metric"]


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"this adapter needs {name.split('.')[0]}, which cannot be imported ({error})") from error


def _one_metric(metric: Metric | Task) -> Metric:
    """The metric, or a task's headline."""
    if isinstance(metric, Task):
        return metric.headline
    if not isinstance(metric, Metric):
        raise EvaluationError(f"expected a Metric or a Task; got {type(metric).__name__}", argument="metric")
    return metric


def _update(metric: Metric, state: Any, outputs: Mapping[str, Any], preds: str, labels: str, where: str) -> Any:
    """The state with the batch that a model's named outputs hold."""
    for key in (preds, labels):
        if key not in outputs:
            raise EvaluationError(f"no output of this name; there are {', '.join(outputs)}", argument=key)
    mask = outputs.get(where)
    if mask is not None and mask.dtype != bool:
        mask = mask != 0  # both libraries' masks may be 0/1 numbers
    return metric.update(state, outputs[preds], outputs[labels], where=mask)


def clu_metric(
    metric: Metric | Task, *, preds: str = "logits", labels: str = "labels", where: str = "mask"
) -> type[Any]:
    """A ``clu.metrics.Metric`` class: ``empty``, ``from_model_output``, ``merge``, ``reduce``, ``compute``.

    Args:
      metric: a `Metric`, or a `Task` whose headline is meant. What its state depends on (``num_classes``) must be set
        for ``empty``; ``from_model_output`` needs it as well.
      preds: name of the model output that holds predictions, shaped as the metric says.
      labels: name of the output that holds the truth.
      where: name of the output that, where given, says which samples are there (bool, or numbers that are not 0).

    Returns:
      A class whose instances are pytrees, for `clu.metrics.Collection` or on its own. ``compute`` gives the metric's
      value in its unit: float64 on the host, float32 under a transform.

    Raises:
      ImportError: clu or flax is not there.
      EvaluationError: ``metric`` is no metric; an output is missing; and what the metric itself raises.
    """
    own = _one_metric(metric)
    clu, flax = _library("clu.metrics"), _library("flax")

    class EmmaMetric(clu.Metric):  # type: ignore[misc,name-defined]
        state: Any

        @classmethod
        def empty(cls) -> Any:
            return cls(state=own.init())

        @classmethod
        def from_model_output(cls, **outputs: Any) -> Any:
            return cls(state=_update(own, own.init(), outputs, preds, labels, where))

        def merge(self, other: Any) -> Any:
            return self.replace(state=own.merge(self.state, other.state))

        def compute(self) -> Any:
            return own.compute(self.state)

    EmmaMetric.__name__ = EmmaMetric.__qualname__ = own.name
    return flax.struct.dataclass(EmmaMetric)


def clu_collection(
    task: Task, *, preds: str = "logits", labels: str = "labels", where: str = "mask", **more: type[Any]
) -> type[Any]:
    """A ``clu.metrics.Collection`` of every metric of a task, under the metrics' names.

    Args:
      task: the `Task`.
      preds: name of the model output that holds predictions.
      labels: name of the output that holds the truth.
      where: name of the output with the mask, where there is one.
      **more: further clu metric classes by name, a loss for example.

    Returns:
      The collection class.

    Raises:
      ImportError: clu or flax is not there.
    """
    clu = _library("clu.metrics")
    own = {m.name: clu_metric(m, preds=preds, labels=labels, where=where) for m in task.metrics}
    return clu.Collection.create(**own, **more)


def nnx_metric(metric: Metric | Task, *, preds: str = "logits", labels: str = "labels", where: str = "mask") -> Any:
    """A ``flax.nnx.Metric`` object: ``reset``, ``update``, ``compute``, for ``nnx.MultiMetric`` or on its own.

    Args:
      metric: a `Metric`, or a `Task` whose headline is meant; what its state depends on (``num_classes``) must be set.
      preds: keyword under which ``update`` gets predictions, shaped as the metric says.
      labels: keyword of the truth.
      where: keyword of the mask, where there is one (bool, or numbers that are not 0).

    Returns:
      The object. ``compute`` gives the metric's value in its unit: float64 outside ``nnx.jit``, float32 inside.

    Raises:
      ImportError: flax is not there.
      EvaluationError: ``metric`` is no metric; an argument of ``update`` is missing; and what the metric itself raises.
    """
    own = _one_metric(metric)
    nnx = _library("flax.nnx")
    names = tuple(own.init())

    class EmmaMetric(nnx.Metric):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            # One variable per array: a variable that holds a dict is not supported by every release of flax.
            for key, value in own.init().items():
                setattr(self, key, nnx.metrics.MetricState(value))

        def _state(self) -> dict[str, Any]:
            return {key: getattr(self, key)[...] for key in names}

        def _set(self, state: Mapping[str, Any]) -> None:
            for key in names:
                getattr(self, key)[...] = state[key]

        def reset(self) -> None:
            self._set(own.init())

        def update(self, **outputs: Any) -> None:
            self._set(_update(own, self._state(), outputs, preds, labels, where))

        def compute(self) -> Any:
            return own.compute(self._state())

    EmmaMetric.__name__ = EmmaMetric.__qualname__ = own.name
    return EmmaMetric()
