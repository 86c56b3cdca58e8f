"""`Metric`, the one abstract base, and the two ways a metric runs: on the host with checks, or under a JAX transform.

A metric is a pure reduction. Its state is a dict of uint32 arrays that hold integers as limbs
(`emma_jax.numerics.limbs`), so that
merging is addition, and the value is finalised once, from exact integers, by a formula written for NumPy (float64) and
jax.numpy (float32) alike.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec
from jax.typing import ArrayLike

from emma_jax import checks
from emma_jax.errors import EmptyEvaluationError, EvaluationError, LabelError, NonFiniteError, ShapeError
from emma_jax.numerics import limbs
from emma_jax.numerics.planes import SignalBatch
from emma_jax.scores import MetricInfo, Scores, Validity

__all__ = ["Metric", "State"]

State = dict[str, jax.Array]
COUNTERS = ("n", "n_nonfinite", "n_invalid_label", "n_excluded")


class Metric(ABC):
    """One score: a frozen, hashable configuration with pure methods over arrays.

    Calling it scores one batch exactly and returns the value: a Python float in float64 from concrete arrays, which are
    checked first; a float32 scalar under a JAX transform, NaN where the value is undefined or an input is bad.
    ``init``, ``update``, ``merge``, ``all_reduce`` and ``compute`` are the same reduction as a stream.

    Attributes:
      direction: "higher" or "lower", whichever is better.
      unit: unit of the value; "1" where it is dimensionless.
      bounds: lowest and highest possible value.
      structured: whether predictions and labels may be dicts of arrays.
    """

    direction: ClassVar[str]
    unit: ClassVar[str]
    bounds: ClassVar[tuple[float, float]]
    structured: ClassVar[bool] = True
    _takes_lengths: ClassVar[bool] = False
    # Whether a single sample has a value of its own, of which the score is an average (or a ratio of sums).
    _decomposes: ClassVar[bool] = False
    # Whether what is added up are integers that no compiler can round otherwise, so that kernels of any size agree.
    _exact_terms: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """Name under which the score is reported."""
        return type(self).__name__

    @property
    def info(self) -> MetricInfo:
        """Static description that a result carries: name, direction, unit and configuration."""
        config = tuple((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))  # type: ignore[arg-type]
        return MetricInfo(self.name, self.direction, self.unit, config)

    # --- what a metric defines ----------------------------------------------------------------------------------

    @abstractmethod
    def _sample_shape(self, preds: Any, labels: Any, task: str) -> tuple[int, ...]:
        """Checks shapes and dtypes (they raise in every mode) and returns the sample axes."""

    @abstractmethod
    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the state beside the common counters; raises an error that names a parameter it cannot know."""

    @abstractmethod
    def _stats(self, preds: Any, labels: Any, mask: Any, weights: Any) -> State:
        """The state of one batch; ``mask`` (bool) and ``weights`` (uint32) have the sample shape or are None."""

    @abstractmethod
    def _value(self, state: Any, xp: Any) -> tuple[Any, dict[str, Any]]:
        """The value and auxiliary values from a state or summary, by ``xp`` = numpy (float64) or jax.numpy
        (float32)."""

    @abstractmethod
    def _explain(self, preds: Any, labels: Any, mask: Any, task: str) -> None:
        """Raises the typed error for values that `_stats` has counted as bad."""

    def _resolve(self, preds: Any, labels: Any, mask: Any, task: str) -> Metric:
        """This metric with what the inputs settle (a number of classes, say) filled in; ``mask`` is as the user
        gave it."""
        del preds, labels, mask, task
        return self

    def _arrange(self, preds: Any, labels: Any, task: str) -> tuple[Any, Any]:
        """The inputs in the layout in which the metric computes; arranging twice changes nothing."""
        del task
        return preds, labels

    def _chunk_axes(self, preds: Any, labels: Any) -> int:
        """How many leading axes a host call may flatten into one before it cuts arrays into chunks."""
        del preds, labels
        return 1

    def _ingest(
        self, metrics: Sequence[Metric], preds: Any, labels: Any, where: Any, weights: Any, task: str
    ) -> tuple[Any, Any]:
        """Inputs that are no arrays (text) as arrays, for all metrics of a task; doing it twice changes nothing."""
        del metrics, where, weights, task
        return preds, labels

    def _applicable(
        self, metrics: tuple[Metric, ...], preds: Any, labels: Any, where: Any, weights: Any
    ) -> tuple[Metric, ...]:
        """The metrics of a task that can score such inputs; the others are left out of the scores."""
        del preds, labels, where, weights
        return metrics

    def _summary(self, preds: Any, labels: Any, mask: Any, weights: Any) -> State:
        """What one-shot scoring finalises; a metric whose stream is approximate returns something exact instead."""
        return self._stats(preds, labels, mask, weights)

    def _summaries(
        self, metrics: tuple[Metric, ...], preds: Any, labels: Any, mask: Any, weights: Any
    ) -> dict[str, State]:
        """`_summary` of this metric and of whichever others of the task it can serve from the same pass."""
        del metrics
        return {self.name: self._summary(preds, labels, mask, weights)}

    def _host_summary(self, preds: Any, labels: Any, mask: Any, weights: Any, wide: bool) -> Any:
        """Likewise on the host, outside any kernel; None where the chunked kernel is the way."""
        del preds, labels, mask, weights, wide
        return None

    def _host_summaries(
        self, metrics: tuple[Metric, ...], preds: Any, labels: Any, mask: Any, weights: Any, wide: bool
    ) -> dict[str, Any]:
        """`_host_summary` of this metric and of whichever others of the task it can serve from the same pass."""
        del metrics
        summary = self._host_summary(preds, labels, mask, weights, wide)
        return {} if summary is None else {self.name: summary}

    def _merge(self, a: State, b: State) -> State:
        return {k: a[k] if _is_nothing(b[k]) else limbs.add(a[k], b[k]) for k in a}

    def _absorb(self, state: State, preds: Any, labels: Any, mask: Any, weights: Any) -> State:
        """The state with one more batch; the bits of merging the batch's own state, which a large state can avoid."""
        return self._merge(state, self._stats(preds, labels, mask, weights))

    def _all_reduce(self, state: State, axis_name: Any) -> State:
        return {k: limbs.normalize(lax.psum(v, axis_name)) for k, v in state.items()}

    def _absent(self, state: Any, xp: Any) -> Any:
        """Number of absent classes ``[...]`` as integers; zero for a metric without classes."""
        return xp.zeros(state["n"].shape[:-1], xp.uint32)

    def _check_state(self, state: Any, task: str) -> None:  # noqa: B027 - most metrics have nothing to check
        """Host only: raises where a state cannot be finalised (an overflown buffer, say)."""

    def _undefined(self, state: Any, task: str) -> EvaluationError:
        """The error for a value that is undefined although samples are there."""
        del state
        return EmptyEvaluationError("every sample is excluded, nothing is left to score", task=task)

    # --- the public methods -------------------------------------------------------------------------------------

    def init(self, *, axis_name: str | tuple[str, ...] | None = None) -> State:
        """The empty state: fixed shapes, uint32.

        Args:
          axis_name: inside `jax.shard_map`, the mesh axis over which a scan's carry is to vary.

        Raises:
          EvaluationError: if a shape depends on a parameter that is not set; it names the parameter.
        """
        return init_states((self,), axis_name)[self.name]

    def update(
        self,
        state: State,
        preds: ArrayLike,
        labels: ArrayLike,
        *,
        where: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> State:
        """The state with one more batch; arguments as for calling the metric. Values are counted, never raised on."""
        return update_states((self,), {self.name: state}, preds, labels, where, weights, self.name)[self.name]

    def merge(self, a: State, b: State) -> State:
        """The state of both batches together: integer addition, so order cannot matter."""
        return merge_states((self,), {self.name: a}, {self.name: b})[self.name]

    def all_reduce(self, state: State, axis_name: str | tuple[str, ...]) -> State:
        """The state summed over a mapped axis, inside `jax.shard_map` or `jax.vmap` with that axis name."""
        return all_reduce_states((self,), {self.name: state}, axis_name)[self.name]

    def compute(self, state: State) -> Any:
        """The value of a state: float64 on the host, float32 under trace, NaN (host: an error) where undefined."""
        return compute_scores((self,), {self.name: state}, self.name)[self.name]

    def __call__(
        self,
        preds: ArrayLike,
        labels: ArrayLike,
        *,
        where: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> Any:
        """Scores one batch exactly.

        Args:
          preds: predictions, shaped as the class says.
          labels: truth.
          where: bool, broadcast to the sample axes; False means the sample is not there, whatever it holds.
          weights: non-negative integers (multiplicities), broadcast likewise.

        Returns:
          A Python float, or a float32 scalar under a JAX transform.

        Raises:
          EvaluationError: a subclass that says what is wrong, with which argument, how often and where first.
        """
        return score((self,), preds, labels, where, weights, self.name)[self.name]


# --- engine: several metrics of one task in one kernel ----------------------------------------------------------


def _usual_promotion(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Runs ``fn`` under JAX's default promotion rules, also where the caller's code has made them strict for itself."""

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            return fn(*args, **kwargs)

    return call


@_usual_promotion
def score(metrics: Sequence[Metric], preds: Any, labels: Any, where: Any, weights: Any, task: str) -> Scores:
    """Scores of one batch, on the host or under trace, by what the arguments are."""
    metrics = metrics[0]._applicable(tuple(metrics), preds, labels, where, weights)
    if checks.is_traced(preds, labels, where, weights):
        preds, labels, metrics, mask, weights = prepare(metrics, preds, labels, where, weights, task)
        return _run(_traced_scores, tuple(metrics), task)(preds, labels, mask, weights)
    metrics, summaries, arrays = host_summaries(tuple(metrics), preds, labels, where, weights, task)
    raise_on_bad(tuple(metrics), summaries, arrays[0], arrays[1], arrays[2], task)
    scores = host_scores(metrics, summaries, task)
    for m in metrics:
        if np.isnan(scores[m.name]):
            raise m._undefined(summaries[m.name], task)
    return scores


@_usual_promotion
def host_summaries(
    metrics: tuple[Metric, ...], preds: Any, labels: Any, where: Any, weights: Any, task: str
) -> tuple[tuple[Metric, ...], dict[str, Any], tuple[Any, Any, Any]]:
    """Resolved metrics, their exact summaries (NumPy), and the arrays as given, for messages: preds, labels, mask."""
    given = preds, labels = metrics[0]._ingest(metrics, preds, labels, where, weights, task)
    preds, labels, metrics, mask, weights = prepare(metrics, preds, labels, where, weights, task, spread=True)
    # A sample of weight 0 is not there either, so a message must not name it.
    there = mask if weights is None else both(mask, weights > 0)
    preds, wide_preds = checks.narrow(preds)
    labels, wide_labels = checks.narrow(labels)
    wide = wide_preds or wide_labels
    summaries: dict[str, Any] = {}
    if any(map(checks.is_spread, jax.tree_util.tree_leaves((preds, labels, mask, weights)))):
        # A metric whose one-shot summary is the state of its stream adds up states; the others need the samples.
        sums = tuple(m for m in metrics if type(m)._summary is Metric._summary)
        if sums:
            states = sharded_states(sums, preds, labels, mask, weights, wide)
            summaries |= {} if states is None else jax.tree_util.tree_map(np.asarray, states)
        if len(summaries) < len(metrics):
            preds, labels, mask, weights = (checks.fetched(x) for x in (preds, labels, mask, weights))
    left = tuple(m for m in metrics if m.name not in summaries)
    for m in left:
        if m.name not in summaries:
            summaries |= m._host_summaries(left, preds, labels, mask, weights, wide)
    rest = tuple(m for m in metrics if m.name not in summaries)
    if rest:
        summaries |= chunked_states(rest, preds, labels, mask, weights, wide)
    return metrics, summaries, (*given, there)


def raise_on_bad(metrics: tuple[Metric, ...], summaries: Any, preds: Any, labels: Any, mask: Any, task: str) -> None:
    """Raises the typed error of the first metric that has nothing to score, or has counted a bad value."""
    for m in metrics:
        state = summaries[m.name]
        if limbs.to_int(state["n"]) == 0:
            raise EmptyEvaluationError("no sample to score", task=task, argument="preds")
        nonfinite, invalid = limbs.to_int(state["n_nonfinite"]), limbs.to_int(state["n_invalid_label"])
        if nonfinite or invalid:
            given = [_convert(x, name, task, spread=True) for x, name in ((preds, "preds"), (labels, "labels"))]
            m._explain(checks.fetched(given[0]), checks.fetched(given[1]), checks.fetched(mask), task)
            kind = NonFiniteError if nonfinite else LabelError
            raise kind("bad values", task=task, count=nonfinite or invalid)  # pragma: no cover - _explain finds them
        m._check_state(state, task)


def host_scores(metrics: Sequence[Metric], summaries: dict[str, Any], task: str) -> Scores:
    """Finalises summaries (NumPy, with any leading axes) in float64; a bad or undefined value is NaN."""
    values, validity, aux = {}, {}, {}
    for m in metrics:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            value, extra = _finalize(m, summaries[m.name], np)
        values[m.name] = float(value) if np.ndim(value) == 0 else value
        aux[m.name] = {k: v.item() if np.ndim(v) == 0 else v for k, v in extra.items()}
        validity[m.name] = _validity(m, summaries[m.name], np)
    return Scores(values, validity, aux, task=task, info=tuple(m.info for m in metrics))


def _finalize(m: Metric, state: Any, xp: Any) -> tuple[Any, dict[str, Any]]:
    value, aux = m._value(state, xp)
    bad = xp.any((state["n_nonfinite"] | state["n_invalid_label"]) != 0, axis=-1)
    nan = value.dtype.type(np.nan)
    return xp.where(bad, nan, value), {
        k: xp.where(bad, nan, v) if jnp.issubdtype(v.dtype, jnp.floating) else v for k, v in aux.items()
    }


def _validity(m: Metric, state: Any, xp: Any) -> Validity:
    counters = {k: state[k] for k in COUNTERS}
    return Validity(**counters, n_absent_classes=limbs.widen(m._absent(state, xp)))


def prepare(
    metrics: tuple[Metric, ...],
    preds: Any,
    labels: Any,
    where: Any,
    weights: Any,
    task: str,
    *,
    spread: bool = False,
) -> Any:
    """Static checks common to both modes; converts what is concrete. ``spread``: sharded arrays may stay sharded."""
    traced = checks.is_traced(preds, labels, where, weights)
    preds, labels = metrics[0]._ingest(metrics, preds, labels, where, weights, task)
    preds = _convert(preds, "preds", task, spread=spread)
    labels = _convert(labels, "labels", task, spread=spread)
    if traced:
        preds, labels = jax.tree_util.tree_map(lax.stop_gradient, (preds, labels))
    for x, argument in ((preds, "preds"), (labels, "labels")):
        if isinstance(x, dict) and not all(m.structured for m in metrics):
            raise ShapeError(f"needs one array; got a dict of {', '.join(map(str, x))}", task=task, argument=argument)
    for m in metrics:
        preds, labels = m._arrange(preds, labels, task)
    mask = checks.sample_mask(where, None, task, spread=spread)
    metrics = tuple(m._resolve(preds, labels, mask, task) for m in metrics)
    shape = metrics[0]._sample_shape(preds, labels, task)
    for m in metrics[1:]:
        m._sample_shape(preds, labels, task)
    if any(isinstance(m, ClassLabels) for m in metrics):
        labels = checks.host_labels(labels, task=task)
        if any(m._preds_are_labels(preds, task) for m in metrics if isinstance(m, ClassLabels)):
            preds = checks.host_labels(preds, "preds", task)
    mask = checks.sample_mask(mask, shape, task, spread=spread)
    return preds, labels, metrics, mask, checks.sample_weights(weights, shape, task, spread=spread)


def with_lengths(metrics: Sequence[Metric], labels: Any, lengths: Any, task: str) -> Any:
    """Labels that carry how much of each signal is there; an error for a metric that is not over signals."""
    if lengths is None:
        return labels
    stranger = next((m.name for m in metrics if not m._takes_lengths), None)
    if stranger or isinstance(labels, SignalBatch):
        text = f"{stranger} is not over signals" if stranger else "are given twice, here and with the labels"
        raise EvaluationError(text, task=task, argument="lengths")
    return SignalBatch(labels, lengths)


def _convert(x: Any, argument: str, task: str, *, spread: bool = False) -> Any:
    if isinstance(x, dict):
        return {k: _convert(v, f"{argument}[{k!r}]", task, spread=spread) for k, v in x.items()}
    if dataclasses.is_dataclass(x):
        return jax.tree_util.tree_map(lambda leaf: _convert(leaf, argument, task, spread=spread), x)
    return x if isinstance(x, jax.core.Tracer) else checks.host_array(x, argument, task, spread=spread)


class ClassLabels:
    """Marks a metric whose labels are class indices."""

    def _preds_are_labels(self, preds: Any, task: str) -> bool:
        """Whether ``preds`` are class indices too."""
        del preds, task
        return False


@_usual_promotion
def sample_values(m: Metric, preds: Any, labels: Any, task: str) -> Any:
    """The metric of every sample alone, by its own state and formula: float64 [N] on the host, float32 under trace."""
    if hasattr(m, "per_sample"):
        return m.per_sample(preds, labels)
    traced = checks.is_traced(preds, labels)
    given_preds, given_labels = _convert(preds, "preds", task), _convert(labels, "labels", task)
    preds, labels, (m,), _, _ = prepare((m,), preds, labels, None, None, task)
    if traced:
        return _finalize(m, _sample_states(m, preds, labels), jnp)[0]
    (preds, wide_p), (labels, wide_l) = checks.narrow(preds), checks.narrow(labels)
    parts = []
    with checks.enable_x64(wide_p or wide_l):
        for p, t, _, _, rows in chunks(preds, labels, None, None):
            states = jax.tree_util.tree_map(np.asarray, _sample_states(m, p, t))
            parts.append({k: v if rows is None else v[:rows] for k, v in states.items()})
    if not parts:
        raise EmptyEvaluationError("no sample to score", task=task, argument="preds")
    whole = {k: np.concatenate([p[k] for p in parts]) for k in parts[0]}
    if whole["n"].shape[0] == 0:
        raise EmptyEvaluationError("no sample to score", task=task, argument="preds")
    if np.any((whole["n_nonfinite"] | whole["n_invalid_label"]) != 0):
        m._explain(given_preds, given_labels, None, task)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return _finalize(m, whole, np)[0]


@functools.partial(jax.jit, static_argnums=0)
def _sample_states(m: Metric, preds: Any, labels: Any) -> State:
    def alone(p: Any, t: Any) -> State:
        one = jax.tree_util.tree_map(lambda x: x[None], (p, t))
        return m._stats(one[0], one[1], None, None)

    return jax.vmap(alone)(preds, labels)


# --- kernels ----------------------------------------------------------------------------------------------------


def with_rows(mask: Any, rows: Any, shape: tuple[int, ...]) -> Any:
    """The mask of a chunk of which only the first ``rows`` rows are real, or the last ``-rows``."""
    if rows is None:
        return mask
    row = lax.broadcasted_iota(jnp.int32, shape, 0)
    real = (row < rows) | (row >= rows + np.int32(shape[0]))
    return real if mask is None else real & mask


@functools.partial(jax.jit, static_argnums=0)
def _batch_states(metrics: tuple[Metric, ...], preds: Any, labels: Any, mask: Any, weights: Any, rows: Any) -> Any:
    mask = with_rows(mask, rows, metrics[0]._sample_shape(preds, labels, ""))
    return {m.name: m._stats(preds, labels, mask, weights) for m in metrics}


# --- arrays that lie on several devices: each scores its rows, and only states travel ---------------------------


def sharded_states(
    metrics: tuple[Metric, ...], preds: Any, labels: Any, mask: Any, weights: Any, wide: bool
) -> dict[str, State] | None:
    """States of a batch whose rows (first axis) lie on several devices: one kernel a device, on its own rows, and the
    states added up by integer addition. Arrays that lie otherwise are brought to the rows' layout.

    Returns:
      The states, on every device; None where no array is cut along its first axis.
    """
    args = preds, labels, mask, weights
    leaves, structure = jax.tree_util.tree_flatten(args)
    found = next((layout for x in leaves if (layout := _row_layout(x)) is not None), None)
    if found is None:
        return None
    mesh, names = found
    rows = NamedSharding(mesh, PartitionSpec(names))
    with checks.enable_x64(wide):
        placed = jax.tree_util.tree_unflatten(structure, [jax.device_put(x, rows) for x in leaves])
        with jax.set_mesh(mesh):  # the caller may have set another one
            return sharded_kernel(metrics, mesh, names)(*placed)


def _row_layout(x: Any) -> tuple[Any, Any] | None:
    """Mesh, and the names of its axes over which the first axis of an array is cut; None where it is in one piece."""
    if not checks.is_spread(x) or not isinstance(x.sharding, NamedSharding):
        return None
    mesh, spec = x.sharding.mesh, x.sharding.spec
    names = spec[0] if len(spec) else None
    names = () if names is None else (names,) if isinstance(names, str) else tuple(names)
    return (mesh, names) if math.prod(mesh.shape[k] for k in names) > 1 else None


@functools.cache
def sharded_kernel(metrics: tuple[Metric, ...], mesh: Any, names: tuple[str, ...]) -> Any:
    """The compiled function behind `sharded_states`, of preds, labels, mask and weights."""

    def local(preds: Any, labels: Any, mask: Any, weights: Any) -> Any:
        state = _updated(metrics, "", init_states(metrics, names), preds, labels, mask, weights, None)
        return all_reduce_states(metrics, state, names)

    return jax.jit(jax.shard_map(local, mesh=mesh, in_specs=PartitionSpec(names), out_specs=PartitionSpec()))


@functools.partial(jax.jit, static_argnums=0)
def batch_summaries(metrics: tuple[Metric, ...], preds: Any, labels: Any, mask: Any, weights: Any) -> Any:
    return _summaries(metrics, preds, labels, mask, weights)


def _summaries(metrics: tuple[Metric, ...], preds: Any, labels: Any, mask: Any, weights: Any) -> dict[str, State]:
    """One-shot summaries of every metric of a task, by as few passes over the data as they allow."""
    out: dict[str, State] = {}
    for m in metrics:
        if m.name not in out:
            left = tuple(k for k in metrics if k.name not in out)
            out |= m._summaries(left, preds, labels, mask, weights)
    return {m.name: out[m.name] for m in metrics}


def _traced_scores(metrics: tuple[Metric, ...], task: str, preds: Any, labels: Any, mask: Any, weights: Any) -> Scores:
    return traced_finalize(metrics, task, _summaries(metrics, preds, labels, mask, weights))


def traced_finalize(metrics: Sequence[Metric], task: str, summaries: dict[str, Any]) -> Scores:
    """Finalises summaries under trace, in float32."""
    values, validity, aux = {}, {}, {}
    for m in metrics:
        values[m.name], aux[m.name] = _finalize(m, summaries[m.name], jnp)
        validity[m.name] = _validity(m, summaries[m.name], jnp)
    return Scores(values, validity, aux, task=task, info=tuple(m.info for m in metrics))


def _updated(
    metrics: tuple[Metric, ...], task: str, state: Any, preds: Any, labels: Any, mask: Any, weights: Any, rows: Any
) -> Any:
    del task
    mask = with_rows(mask, rows, metrics[0]._sample_shape(preds, labels, ""))
    return {m.name: m._absorb(state[m.name], preds, labels, mask, weights) for m in metrics}


def _merged(metrics: tuple[Metric, ...], task: str, a: Any, b: Any) -> Any:
    del task
    return {m.name: m._merge(a[m.name], b[m.name]) for m in metrics}


@functools.cache
def _jitted(fn: Callable[..., Any]) -> Any:
    return jax.jit(fn, static_argnums=(0, 1))


def _run(fn: Callable[..., Any], metrics: tuple[Metric, ...], task: str) -> Callable[..., Any]:
    """``fn`` jitted with static metrics; on arrays of an Explicit mesh it runs with automatic axes, its result
    replicated.

    Always jitted: an eager ``vmap`` would otherwise finalise operation by operation, in other bits.
    """

    def call(*args: Any) -> Any:
        mesh = next((m for leaf in jax.tree_util.tree_leaves(args) if (m := _explicit_mesh(leaf)) is not None), None)
        if mesh is None:
            return _jitted(fn)(metrics, task, *args)
        whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        inner = functools.partial(fn, metrics, task)
        return jax.sharding.auto_axes(inner, axes=mesh.axis_names, out_sharding=whole)(*args)

    return call


def _explicit_mesh(x: Any) -> Any:
    """The mesh of an array sharded over Explicit axes, whose type would forbid the reshapes of a kernel; else None."""
    if not isinstance(x, jax.Array):
        return None
    mesh = getattr(getattr(jax.typeof(x), "sharding", None), "mesh", None)
    explicit = any(t == jax.sharding.AxisType.Explicit for t in getattr(mesh, "axis_types", None) or ())
    return mesh if explicit else None


def chunked_states(
    metrics: tuple[Metric, ...], preds: Any, labels: Any, mask: Any, weights: Any, wide: bool
) -> dict[str, dict[str, np.ndarray]]:
    """Exact states of a host batch, by kernels of few sizes; NumPy uint32."""
    axes = metrics[0]._chunk_axes(preds, labels)
    own = all(m._exact_terms for m in metrics) and _comes_again(metrics, wide, (preds, labels, mask, weights))
    n = math.prod(jax.tree_util.tree_leaves(labels)[0].shape[:axes]) if own else None

    def kernel(preds: Any, labels: Any, mask: Any, weights: Any, rows: Any) -> Any:
        # Of a batch as a whole every row counts: no mask for those that do not.
        return _batch_states(metrics, preds, labels, mask, weights, None if rows == n else rows)

    plan = _whole_plan if own else checks.window_plan
    return add_states(chunk_results(kernel, preds, labels, mask, weights, wide, axes, plan))


def _whole_plan(n: int, row_bytes: int = 1, most_rows: int = 1 << 20) -> Iterator[tuple[int, int, int]]:
    """One call for all rows, unless windows have to be copied."""
    yield from [(0, n, n)] if most_rows >= n else checks.window_plan(n, row_bytes, most_rows)


# Batches of such lengths and bytes get a kernel of their own size when they come for the third time, as validation sets
# do: it takes a tenth to a sixth less than windows that overlap. Lengths that come and go never compile one.
_OWN_FROM, _OWN_TO, _OWN_BYTES, _OWN_TIMES, _OWN_KERNELS = 1 << 17, 1 << 21, 1 << 28, 3, 32
_OWN: set[Any] = set()


@functools.lru_cache(maxsize=256)
def _times_seen(key: Any) -> Iterator[int]:
    del key
    return itertools.count(1)


def _comes_again(metrics: tuple[Metric, ...], wide: bool, arrays: Any) -> bool:
    """Whether a batch of arrays of these shapes is to have a kernel of its own size; it is counted."""
    leaves, structure = jax.tree_util.tree_flatten(arrays)
    n = leaves[0].shape[0]
    if not _OWN_FROM <= n <= _OWN_TO or sum(x.nbytes for x in leaves) > _OWN_BYTES:
        return False
    key = metrics, wide, structure, tuple((x.shape, x.dtype) for x in leaves)
    if key in _OWN:
        return True
    if next(_times_seen(key)) < _OWN_TIMES or len(_OWN) >= _OWN_KERNELS:
        return False
    _OWN.add(key)
    return True


def chunk_results(
    kernel: Any, preds: Any, labels: Any, mask: Any, weights: Any, wide: bool, axes: int, plan: Any
) -> list[Any]:
    """What a kernel gives for each of the `chunks` of a batch, which it takes as arguments."""
    parts: list[Any] = []
    copies = _Copies() if jax.default_backend() == "cpu" else None
    with checks.enable_x64(wide):
        for args in chunks(preds, labels, mask, weights, axes, plan, copies):
            parts.append(kernel(*args))
            if copies is not None and copies.used and len(parts) > 1:
                # The next window is copied over the one before this, while this one is worked on.
                jax.block_until_ready(parts[-2])
    return parts


class _Copies:
    """Copies of windows that do not lie on a 64-byte boundary, in memory that JAX takes as it is.

    JAX would copy such a window into new memory each time: 27 ms for 64 MB, where copies of 4 MB into the same two
    areas in turn take 6.
    """

    _own = threading.local()
    _MOST_BYTES = 1 << 22

    def __init__(self) -> None:
        self.used = False
        self._turn = 0

    def most_rows(self, leaves: list[Any], n: int) -> int:
        """How many rows a window may have, for copies of at most 4 MB."""
        rows = [max(1, self._MOST_BYTES // max(1, x.nbytes // n)) for x in leaves if self._needed(x)]
        return min(rows, default=n)

    def taken(self, windows: list[Any]) -> list[Any]:
        """The windows, or copies of them, which are overwritten two windows later."""
        self._turn ^= 1
        return [self._copied(i, x) if self._needed(x) else x for i, x in enumerate(windows)]

    def _needed(self, x: Any) -> bool:
        return bool(x.ctypes.data % 64) and x.flags.c_contiguous and x.nbytes > 1 << 16

    def _copied(self, leaf: int, x: Any) -> Any:
        if x.nbytes > self._MOST_BYTES:
            return x
        self.used = True
        return checks.copied_into(self._own.__dict__, (leaf, self._turn), x)


def add_states(parts: list[Any]) -> Any:
    """Sum of normalized states on the host."""
    if len(parts) == 1:
        return jax.tree_util.tree_map(np.asarray, parts[0])
    leaves = [jax.tree_util.tree_flatten(p) for p in parts]
    structure = leaves[0][1]
    total = [
        np.sum([np.asarray(leaf[i]) for leaf, _ in leaves], axis=0, dtype=np.uint64) for i in range(len(leaves[0][0]))
    ]
    return jax.tree_util.tree_unflatten(structure, [limbs.normalize(t).astype(np.uint32) for t in total])


def chunks(
    preds: Any,
    labels: Any,
    mask: Any,
    weights: Any,
    axes: int = 1,
    plan: Any = checks.chunk_plan,
    copies: _Copies | None = None,
) -> Any:
    """Arguments of one kernel call after another: views of the arrays, only the tail padded.

    ``axes`` leading axes are flattened into one and cut up, by ``plan``. With ``copies``, what does not lie as JAX
    wants it is a copy that the second call after overwrites."""
    leaves, structure = jax.tree_util.tree_flatten((preds, labels, mask, weights))
    if not all(isinstance(x, np.ndarray) for x in leaves):
        yield (*(jax.tree_util.tree_map(jnp.asarray, t) for t in (preds, labels, mask, weights)), None)
        return
    if axes > 1:
        leaves = [x.reshape(-1, *x.shape[axes:]) for x in leaves]
    n = leaves[0].shape[0]
    row_bytes = max(x.nbytes // max(n, 1) for x in leaves)
    limit = {} if copies is None or not n else {"most_rows": copies.most_rows(leaves, n)}
    # Rows of many bytes (a channel matrix, a signal) come in fewer at a time, so that a padded tail stays small.
    for start, rows, size in plan(n, row_bytes, **limit) if n else [(0, 0, checks.CHUNKS[-1])]:
        cut = [_rows(x, start, rows, size) for x in leaves]
        cut = cut if copies is None else copies.taken(cut)
        yield (*jax.tree_util.tree_unflatten(structure, cut), np.int32(rows))


def _rows(x: np.ndarray, start: int, rows: int, size: int) -> np.ndarray:
    if rows == size or rows < 0:
        return x[start : start + size]
    out = checks.aligned_empty((size, *x.shape[1:]), x.dtype)
    out[:rows] = x[start : start + rows]
    out[rows:] = 0
    return out


@_usual_promotion
def init_states(metrics: Sequence[Metric], axis_name: Any = None) -> dict[str, State]:
    """Empty states of several metrics."""

    def zeros(shape: tuple[int, ...]) -> jax.Array:
        x = jnp.zeros(shape, jnp.uint32)
        if axis_name is None:
            return x
        names = (axis_name,) if isinstance(axis_name, str) else tuple(axis_name)
        return lax.pcast(x, names, to="varying")

    return {
        m.name: {k: zeros(shape) for k, shape in (dict.fromkeys(COUNTERS, (2,)) | m._state_shapes()).items()}
        for m in metrics
    }


@_usual_promotion
def update_states(
    metrics: Sequence[Metric], state: Any, preds: Any, labels: Any, where: Any, weights: Any, task: str
) -> dict[str, State]:
    """States with one more batch."""
    metrics = tuple(metrics)
    traced = checks.is_traced(state, preds, labels, where, weights)
    preds, labels, resolved, mask, weights = prepare(metrics, preds, labels, where, weights, task, spread=not traced)
    for m, r in zip(metrics, resolved):
        _check_shapes(state[m.name], r, task)
    run = _run(_updated, resolved, task)
    if traced:
        preds, labels = jax.tree_util.tree_map(lax.stop_gradient, (preds, labels))
        return run(state, preds, labels, mask, weights, None)
    preds, wide_preds = checks.narrow(preds)
    labels, wide_labels = checks.narrow(labels)
    if any(map(checks.is_spread, jax.tree_util.tree_leaves((preds, labels, mask, weights)))):
        batch = sharded_states(resolved, preds, labels, mask, weights, wide_preds or wide_labels)
        if batch is not None:
            return _run(_merged, resolved, "")(*_side_by_side(state, batch))
        preds, labels, mask, weights = (checks.fetched(x) for x in (preds, labels, mask, weights))
    with checks.enable_x64(wide_preds or wide_labels):
        for *args, rows in chunks(preds, labels, mask, weights, metrics[0]._chunk_axes(preds, labels)):
            state = run(state, *args, rows)
    return state


def _side_by_side(state: Any, batch: Any) -> tuple[Any, Any]:
    """A state and that of a sharded batch on the same devices: those of the batch if they are of several processes."""
    leaf = jax.tree_util.tree_leaves(batch)[0]
    if leaf.is_fully_addressable:
        return state, jax.tree_util.tree_map(np.asarray, batch)
    return jax.device_put(state, leaf.sharding), batch


def _check_shapes(state: Any, m: Metric, task: str) -> None:
    want = dict.fromkeys(COUNTERS, (2,)) | m._state_shapes()
    have = {k: tuple(v.shape) for k, v in state.items()}
    if want != have:
        raise ShapeError(
            f"{m.name} keeps {want} for these inputs, the state has {have}; initialise it with the same parameters",
            task=task,
            argument="state",
        )


@_usual_promotion
def merge_states(metrics: Sequence[Metric], a: Any, b: Any) -> dict[str, State]:
    """States of two streams together."""
    return _run(_merged, tuple(metrics), "")(a, b)


@_usual_promotion
def all_reduce_states(metrics: Sequence[Metric], state: Any, axis_name: Any) -> dict[str, State]:
    """States summed over a mapped axis."""
    return {m.name: m._all_reduce(state[m.name], axis_name) for m in metrics}


@_usual_promotion
def compute_scores(metrics: Sequence[Metric], state: Any, task: str) -> Scores:
    """Scores of states: host values in float64 (raising), traced ones in float32."""
    metrics = tuple(metrics)
    if checks.is_traced(state):
        return _run(_compute_traced, metrics, task)(state)
    state = jax.tree_util.tree_map(np.asarray, state)
    for m in metrics:
        s = state[m.name]
        if s["n"].ndim > 1:  # a stack of states: a bad one is NaN, as in a sweep
            continue
        if limbs.to_int(s["n"]) == 0:
            raise EmptyEvaluationError("no sample to score", task=task, argument="state")
        for key, kind, text in (
            ("n_nonfinite", NonFiniteError, "samples are not finite"),
            ("n_invalid_label", LabelError, "samples have a label that is not a class"),
        ):
            if count := limbs.to_int(s[key]):
                raise kind(text, task=task, argument="state", count=count)
        m._check_state(s, task)
    scores = host_scores(metrics, state, task)
    for m in metrics:
        if np.ndim(scores[m.name]) == 0 and np.isnan(scores[m.name]):
            raise m._undefined(state[m.name], task)
    return scores


def _compute_traced(metrics: tuple[Metric, ...], task: str, state: Any) -> Scores:
    return traced_finalize(metrics, task, state)


# --- small pieces that several families share -------------------------------------------------------------------


def _is_nothing(x: Any) -> bool:
    """Whether a part of a batch's state is known to be zero while tracing: adding it would cost a kernel a step."""
    return isinstance(x, np.ndarray) and not x.any()


def both(mask: Any, ok: Any) -> Any:
    """``mask & ok`` where either may be None."""
    return ok if mask is None else mask if ok is None else mask & ok


def tally(mask: Any, weights: Any, shape: tuple[int, ...], **numbers: Any) -> State:
    """Everything a batch adds up, in one pass: ``n``, and each number given.

    Args:
      mask: bool of ``shape`` or None. weights: uint32 of ``shape`` or None.
      shape: the sample axes (trials for pooled ones).
      **numbers: a bool array counts its samples within the mask (``n_nonfinite`` and the like); a list of uint32
      words is
        summed exactly (`limbs.sum_many`) and has to be zero outside the mask already.
    """
    add = {k: v if isinstance(v, list) else both(mask, jnp.broadcast_to(v, shape)) for k, v in numbers.items()}
    static = mask is None and weights is None
    if not static:
        add["n"] = jnp.ones(shape, bool) if mask is None else jnp.broadcast_to(mask, shape)
    # What is known while tracing stays a NumPy constant: see `_is_nothing`.
    out: dict[str, Any] = {k: np.zeros(2, np.uint32) for k in COUNTERS}
    if static:
        out["n"] = limbs.from_int(math.prod(shape), 2)
    return out | (limbs.sum_many(add, weights) if add else {})


def mean(total: Any, count: Any, xp: Any) -> Any:
    """total / count with NaN for an empty count."""
    return xp.where(count > 0, total / xp.where(count > 0, count, count.dtype.type(1)), count.dtype.type(np.nan))


def require_int(value: Any, name: str, minimum: int, metric: str) -> None:
    """Raises if a configuration value is not an integer of at least ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < minimum:
        raise EvaluationError(f"must be an integer >= {minimum}; got {value!r}", task=metric, argument=name)


def class_axes(preds: Any, labels: Any, num_classes: int | None, task: str) -> tuple[int, ...]:
    """Sample axes of [N, C] scores against [N] labels."""
    if labels.ndim != 1 or preds.ndim != 2 or preds.shape[0] != labels.shape[0]:
        raise ShapeError(
            f"needs preds [N, C] and labels [N]; got preds {preds.shape} and labels {labels.shape}",
            task=task,
            argument="preds",
        )
    if num_classes is not None and preds.shape[1] != num_classes:
        raise ShapeError(f"has {preds.shape[1]} columns for num_classes={num_classes}", task=task, argument="preds")
    if preds.shape[1] < 1:
        raise ShapeError("has no column", task=task, argument="preds")
    real_dtype(preds, "preds", task)
    return tuple(labels.shape)


def real_dtype(x: Any, argument: str, task: str) -> None:
    """Raises on a complex array where a real one is meant."""
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        raise EvaluationError(f"must be real; got dtype {x.dtype}", task=task, argument=argument)
