"""Choosing among checkpoints by a metric: keep the best, stop when it no longer gets better.

Both are pairs of pure functions ``init`` and ``update`` over a state that is a pytree of fixed shapes and dtypes, as
optax has them, so they fit a jitted step, a scan and a donated buffer. NaN, which a traced metric gives where its value
is undefined, is never an improvement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from emma_jax.errors import EvaluationError, ShapeError
from emma_jax.metrics.base import Metric
from emma_jax.tasks import Task, get_task

__all__ = ["BestCheckpoint", "BestState", "EarlyStop", "EarlyStopState", "early_stop", "to_minimize"]

Direction = str | Metric | Task


def _direction(of: Direction) -> str:
    """ "higher" or "lower": as given, of a metric, or of the headline of a task or task id."""
    if isinstance(of, str) and of not in ("higher", "lower"):
        of = get_task(of)
    direction = of.headline.direction if isinstance(of, Task) else of.direction if isinstance(of, Metric) else of
    if direction not in ("higher", "lower"):
        text = f'must be "higher", "lower", a Metric, a Task or a task id; got {of!r}'
        raise EvaluationError(text, argument="direction")
    return direction


def to_minimize(direction: Direction, value: ArrayLike) -> jax.Array:
    """The value with the sign under which smaller is better, as `optax.contrib.reduce_on_plateau` expects it.

    That transformation calls a value better if it is below ``(1 - rtol) * best - atol``. For a negative ``best``, which
    a score of direction "higher" becomes here and a value in dB often is, ``rtol`` moves that threshold the wrong way:
    give it ``rtol=0.0`` and a positive ``atol`` in the unit of the metric.

    Args:
      direction: "higher", "lower", a `Metric`, a `Task` or a task id.
      value: any shape.

    Returns:
      ``value`` or ``-value``.
    """
    return jnp.asarray(value) if _direction(direction) == "lower" else -jnp.asarray(value)


def _number(value: ArrayLike, name: str) -> jax.Array:
    """A scalar in the default float dtype."""
    value = jnp.asarray(value, jnp.result_type(float))
    if value.ndim:
        text = f"must be one number; got shape {value.shape} (map over runs with jax.vmap)"
        raise ShapeError(text, task=name, argument="value")
    return value


def _improves(direction: str, value: jax.Array, best: jax.Array, min_delta: float = 0.0) -> jax.Array:
    """Whether ``value`` beats ``best`` by more than ``min_delta``; NaN as ``best`` means that nothing is there yet."""
    better = value < best - min_delta if direction == "lower" else value > best + min_delta
    return ~jnp.isnan(value) & (jnp.isnan(best) | better)


class BestState(NamedTuple):
    """State of `BestCheckpoint`.

    Attributes:
      params: the best parameters; those given to ``init`` until a value has counted.
      value: their value, NaN until then.
      step: int32, which update they came with, counted from 0; -1 until then.
      updates: int32, how many so far.
    """

    params: Any
    value: jax.Array
    step: jax.Array
    updates: jax.Array


@dataclass(frozen=True, init=False)
class BestCheckpoint:
    """Keeps the parameters with the best value seen, inside ``jit``.

    A better value replaces what is kept, an equal one does not, so of several equal checkpoints the earliest stays. NaN
    never wins. The copy is a ``where`` over the pytree, with no branch and no host transfer; it costs one read and one
    write of the parameters, so update it once per evaluation and not once per step where that matters.

        keep = BestCheckpoint("E-LOC-AOA")
        best = keep.init(params)
        best = keep.update(best, params, error_deg)      # in the jitted step
        best.params, best.value, best.step

    Values are compared in JAX's default float dtype, float32 without x64.

    Attributes:
      direction: "higher" or "lower"; the constructor also takes a `Metric`, a `Task` (its headline counts) or a task
        id.
    """

    direction: str

    def __init__(self, direction: Direction) -> None:
        object.__setattr__(self, "direction", _direction(direction))

    def init(self, params: Any) -> BestState:
        """The state before the first value.

        Args:
          params: any pytree of arrays. It is copied, so that both it and the state may be donated to one step.
        """
        params = jax.tree_util.tree_map(lambda x: jnp.array(x, copy=True), params)
        return BestState(params, _number(jnp.nan, "BestCheckpoint"), jnp.int32(-1), jnp.int32(0))

    def update(self, state: BestState, params: Any, value: ArrayLike) -> BestState:
        """The state after one more checkpoint.

        Args:
          state: from `init` or the last update.
          params: parameters of the structure, shapes and dtypes given to `init`.
          value: their score, one number.

        Raises:
          ShapeError: if the parameters differ in structure, shape or dtype, or the value is no scalar.
        """
        _check_same(state.params, params)
        value = _number(value, "BestCheckpoint")
        wins = _improves(self.direction, value, state.value)
        kept = jax.tree_util.tree_map(lambda new, old: jnp.where(wins, new, old), params, state.params)
        step = jnp.where(wins, state.updates, state.step)
        return BestState(kept, jnp.where(wins, value, state.value), step, state.updates + 1)


def _check_same(kept: Any, params: Any) -> None:
    """Raises unless both pytrees have one structure, and each leaf one shape and dtype: ``where`` would broadcast."""
    a, b = (str(jax.tree_util.tree_structure(x)) for x in (kept, params))
    if a != b:
        raise ShapeError(f"has structure {b}; the state keeps {a}", task="BestCheckpoint", argument="params")
    pairs = zip(jax.tree_util.tree_leaves_with_path(kept), jax.tree_util.tree_leaves(params))
    for (path, old), new in pairs:
        have, want = ((jnp.shape(x), jnp.result_type(x)) for x in (new, old))
        if have != want:
            name = "params" + jax.tree_util.keystr(path)
            raise ShapeError(f"is {have}; the state keeps {want}", task="BestCheckpoint", argument=name)


class EarlyStopState(NamedTuple):
    """State of `early_stop`.

    Attributes:
      best: the last value that counted as an improvement, NaN before the first.
      wait: int32, updates since then.
      should_stop: bool; once True it stays so.
    """

    best: jax.Array
    wait: jax.Array
    should_stop: jax.Array


class EarlyStop(NamedTuple):
    """A pair of pure functions: ``init() -> EarlyStopState`` and ``update(state, value) -> EarlyStopState``."""

    init: Callable[[], EarlyStopState]
    update: Callable[[EarlyStopState, ArrayLike], EarlyStopState]


def early_stop(direction: Direction, *, patience: int, min_delta: float = 0.0) -> EarlyStop:
    """Says when a value has stopped getting better.

    A value counts as an improvement if it beats the last one that did by more than ``min_delta``; ``patience`` updates
    in a row without one set ``should_stop``. NaN is no improvement.

    Args:
      direction: "higher", "lower", a `Metric`, a `Task` (its headline counts) or a task id.
      patience: how many updates without an improvement are too many, at least 1.
      min_delta: the least change that counts, in the unit of the metric, at least 0.

    Returns:
      An `EarlyStop`. In a Python loop read ``bool(state.should_stop)``; in `jax.lax.while_loop` it is the condition.

    Raises:
      EvaluationError: if an argument is out of range.
    """
    direction = _direction(direction)
    if isinstance(patience, bool) or not isinstance(patience, int) or patience < 1:
        raise EvaluationError(f"must be an integer >= 1; got {patience!r}", task="early_stop", argument="patience")
    if not 0.0 <= min_delta < float("inf"):
        raise EvaluationError(f"must be finite and >= 0; got {min_delta!r}", task="early_stop", argument="min_delta")

    def init() -> EarlyStopState:
        return EarlyStopState(_number(jnp.nan, "early_stop"), jnp.int32(0), jnp.asarray(False))

    def update(state: EarlyStopState, value: ArrayLike) -> EarlyStopState:
        value = _number(value, "early_stop")
        better = _improves(direction, value, state.best, min_delta)
        wait = jnp.where(better, 0, state.wait + 1)
        return EarlyStopState(jnp.where(better, value, state.best), wait, state.should_stop | (wait >= patience))

    return EarlyStop(init, update)
