"""Near-field metrics of the EMVal protocol: global relative L2 error, median local error, median local alignment.

Goal: how well a predicted complex vector field matches a simulated one: where it is strong (`RelL2`), at a typical
probe (`LocalQ50`), and in direction and phase (`LocalCosQ50`).
Conventions: one board a call. Vector components lie along the last axis; every other axis (excited port, frequency,
probe) is pooled. ``field`` picks "E" or "H" from a dict of both, "avg" is the mean of the two values; without it the
arrays themselves are the field. Reported under the protocol's names: ``rel_l2_E``, ``local_q50_H``,
``local_cos_q50_E``, ``rel_l2_avg``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from emma_jax.errors import DegenerateLabelsError, EvaluationError, ShapeError
from emma_jax.metrics.base import (
    Metric,
    State,
    add_states,
    batch_summaries,
    both,
    chunk_results,
    require_int,
    tally,
    with_rows,
)
from emma_jax.metrics.channels import check_finite, same_arrays
from emma_jax.numerics import accumulate, energies, keys, limbs, selection
from emma_jax.numerics.blocks import in_blocks, over_blocks
from emma_jax.numerics.floats import common_zero, tie
from emma_jax.numerics.histogram import bin_limbs
from emma_jax.numerics.planes import as_planes, is_complex, rows

__all__ = ["LocalCosQ50", "LocalQ50", "RelL2"]

_FIELDS = ("E", "H")
_COUNTERS = ("n", "n_nonfinite", "n_invalid_label", "n_excluded")
# What the medians rank: order keys of local error and alignment.
_RANKED = ("local", "cosine")
# From so many entries on, neighbours are added up as floats before the exact sum, which else takes most of the time. By
# then the rounding errors of hundreds of groups cancel to a fraction of an ulp; below it every probe is summed exactly.
_POOL_FROM = 1 << 15
# Probes per kernel call on the host, and per block of a kernel: XLA's temporaries are 27 MB then (217 MB for 2^20).
_ROWS = 1 << 17


# --- inputs -----------------------------------------------------------------------------------------------------


def _check(metric: Any) -> None:
    if metric.field not in ("", *_FIELDS, "avg"):
        raise EvaluationError(
            f'must be "E", "H", "avg" or "" (the arrays themselves); got {metric.field!r}',
            task=metric.name,
            argument="field",
        )
    if metric.components is not None:
        require_int(metric.components, "components", 1, metric.name)


def _names(field: str) -> tuple[str, ...]:
    """The fields a metric is computed from; "" is the arrays themselves."""
    return _FIELDS if field == "avg" else (field,)


def _suffix(name: str) -> str:
    return f"_{name}" if name else ""


def _get(x: Any, name: str, argument: str, task: str) -> Any:
    if isinstance(x, dict) != bool(name):
        needs = f"a dict with {name!r}" if name else "one array; pick a field with field="
        raise ShapeError(f"needs {needs}", task=task, argument=argument)
    if name and name not in x:
        raise ShapeError(f"has no field {name!r}; it has {', '.join(map(str, x))}", task=task, argument=argument)
    return x[name] if name else x


def _arranged(metric: Any, x: Any, argument: str, task: str) -> Any:
    for name in _names(metric.field):
        planes = as_planes(_get(x, name, argument, task), metric.iq_axis, argument, task)
        x = x | {name: planes} if name else planes
    return x


def _probe_shape(metric: Any, preds: Any, labels: Any, task: str) -> tuple[int, ...]:
    shapes = []
    for name in _names(metric.field):
        p, t = _get(preds, name, "preds", task), _get(labels, name, "labels", task)
        what = f"fields {name or 'of'} of the same shape [J, F, P, {metric.components or 'C'}]"
        shape = same_arrays(p, t, 2, task, what=what)
        if not is_complex(t):
            raise ShapeError(f"needs {what}, complex, or float planes with iq_axis", task=task, argument="labels")
        if metric.components is not None and shape[-1] != metric.components:
            raise ShapeError(f"needs {what}, vectors along the last axis; got {shape}", task=task, argument="labels")
        shapes.append(shape[:-1])
    if len(set(shapes)) > 1:
        raise ShapeError(f"needs E and H at the same probes; got {shapes[0]} and {shapes[1]}", task=task)
    return shapes[0]


def _rows(preds: Any, labels: Any, name: str, mask: Any) -> tuple[Any, Any, Any]:
    """The probes of a field as rows ``[n, m]`` of both sides, and the mask ``[n]``."""
    p, t = (x[name] if name else x for x in (preds, labels))
    return *rows(p, t, len(t.shape) - 1), None if mask is None else mask.reshape(-1)


def _explain_fields(metric: Any, preds: Any, labels: Any, mask: Any, task: str) -> None:
    preds, labels = (_arranged(metric, x, a, task) for x, a in ((preds, "preds"), (labels, "labels")))
    for name in _names(metric.field):
        p, t = (np.asarray(x[name] if name else x) for x in (preds, labels))
        check_finite(p, t, mask, task, f"field {name}".strip())


def _add_counters(parts: list[State]) -> State:
    """Counters of several fields together."""
    total = {k: parts[0][k] for k in _COUNTERS}
    for part in parts[1:]:
        total = {k: limbs.add(total[k], part[k]) for k in _COUNTERS}
    return total


def _average(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else (values[0] + values[1]) / values[0].dtype.type(2)


# --- one pass over a field ----------------------------------------------------------------------------------------


def _pass(names: tuple[str, ...], preds: Any, labels: Any, mask: Any, weights: Any) -> dict[str, dict[str, Any]]:
    """Everything the medians need of each field: counters, and the order keys of local error and alignment (the largest
    key for a probe that does not count)."""
    weights = None if weights is None else weights.reshape(-1)
    return {name: _probes(*_rows(preds, labels, name, mask), weights) for name in names}


def _probes(p: Any, t: Any, mask: Any, weights: Any) -> State:
    """What `_pass` returns for one field, from rows; block by block, which takes a third less than all at once."""

    def block(start: Any, size: int, fresh: Any) -> State:
        own_mask, own_weights = (
            None if x is None else lax.dynamic_slice_in_dim(x, start, size) for x in (mask, weights)
        )
        then = partial(_probe_stats, mask=own_mask, weights=own_weights, fresh=fresh)
        return energies.vector_pairs(p, t, own_mask, then, start, size)  # type: ignore[no-any-return]

    def add(total: State, start: Any, size: int, fresh: Any) -> State:
        found = block(start, size, fresh)
        ranked = {k: lax.dynamic_update_slice_in_dim(total[k], found.pop(k), start, 0) for k in _RANKED}
        return ranked | {k: limbs.add(total[k], v) for k, v in found.items()}

    if not in_blocks(p.shape[0], _ROWS):
        return block(0, p.shape[0], None)
    one = jax.eval_shape(lambda: block(0, 1, None))
    empty = {k: jnp.zeros(p.shape[:1] if k in _RANKED else v.shape, v.dtype) for k, v in one.items()}
    total: State = over_blocks(p.shape[0], _ROWS, tie(common_zero(p, t, mask, weights), empty), add)
    return total


def _pools(values: Any, weights: Any) -> bool:
    """Whether neighbours of a field ``[..., components]`` are added up as floats first: the one rule for every way."""
    return weights is None and math.prod(values.shape) >= _POOL_FROM


def _probe_stats(v: energies.VectorPair, mask: Any, weights: Any, fresh: Any = None, pool: bool | None = None) -> State:
    """What `_pass` returns for one field, of some of its probes; those not ``fresh`` have been counted already.

    ``pool``: whether neighbours are added up as floats first, where the energies of `RelL2` are asked for too.
    """
    # On the plain way nothing is looked at that is known, which is half of the time.
    finite = None
    if v.finite is not None:
        finite = v.finite & accumulate.in_range(v.error) & accumulate.in_range(v.reference)
    counted = both(mask, fresh)
    sums: State = {}
    if pool is not None:
        used = both(counted, finite)
        pair = {"error": v.error, "energy": v.reference}
        if used is not None:
            pair = {k: (jnp.where(used, x, 0), e) for k, (x, e) in pair.items()}
        sums = accumulate.sum_scaled({k: accumulate.grouped(x) for k, x in pair.items()} if pool else pair, weights)
    lit = both(finite, ~v.dark)
    flags = {"n_excluded": both(finite, v.dark), "lit": lit} | ({} if finite is None else {"n_nonfinite": ~finite})
    counts = tally(counted, weights, v.dark.shape, **flags)
    lit = both(mask, lit)
    ranked = {}
    for kind, value in zip(_RANKED, (v.local, v.cosine)):
        key = keys.order_key(value)
        ranked[kind] = jnp.where(lit, key, key.dtype.type(keys.nan_key(key)))
    return counts | sums | ranked


def _energy_pass(p: Any, t: Any, mask: Any, weights: Any, pool: bool) -> State:
    """Energies and counters alone; pooled if there are many entries, all of them ordinary (1.8 reads against 12)."""
    shape = p.shape[:1]
    counts = tally(mask, None if weights is None else weights.reshape(-1), shape)

    def each(p: Any, t: Any) -> State:
        error, energy, finite = energies.error_and_reference(p, t, mask)
        finite = finite & accumulate.in_range(error) & accumulate.in_range(energy)
        used = both(mask, finite)
        pair = {"error": (jnp.where(used, error[0], 0), error[1]), "energy": (jnp.where(used, energy[0], 0), energy[1])}
        flat_weights = None if weights is None else weights.reshape(-1)
        bad = tally(mask, flat_weights, shape, n_nonfinite=~finite)["n_nonfinite"]
        return accumulate.sum_scaled(pair, flat_weights) | {"n_nonfinite": bad}

    if not pool:
        return counts | each(p, t)
    error, energy, good = energies.pooled(p, t, mask)
    common = common_zero(p, t, mask)

    def together(p: Any, t: Any) -> State:
        del p, t
        zero = jnp.zeros(error.shape, jnp.int32)
        sums = accumulate.sum_scaled({"error": (error, zero), "energy": (energy, zero)})
        return tie(common, sums | {"n_nonfinite": jnp.zeros((2,), jnp.uint32)})

    found: State = lax.cond(good, together, lambda p, t: tie(common, each(p, t)), p, t)
    return counts | found


@partial(jax.jit, static_argnums=(0, 1))
def _chunk_pass(
    pool: bool | None, plain: bool, preds: Any, labels: Any, mask: Any, weights: Any, rows: Any
) -> tuple[State, Any]:
    """`_probes` of a chunk on the plain way, and whether that may be taken; or on the other way, and nothing."""
    p, t, mask = _rows(preds, labels, "", with_rows(mask, rows, labels.shape[:-1]))
    weights = None if weights is None else weights.reshape(-1)
    then = partial(_probe_stats, mask=mask, weights=weights, pool=pool)
    found = energies.vector_pairs(p, t, mask, then, plain_way=plain)
    return found if plain else (found, None)


def _plan(n: int, row_bytes: int, most_rows: int = 0, padded: bool = False) -> Iterator[tuple[int, int, int]]:
    """As `checks.window_plan`, of one size, so that a board compiles one kernel; ``padded`` as `checks.chunk_plan`."""
    del row_bytes, most_rows
    size = next((c for c in (1 << 8, 1 << 11, 1 << 14) if n <= c), 1 << 14 if n <= _ROWS // 2 else _ROWS)
    whole = n - n % size
    yield from ((start, size, size) for start in range(0, whole, size))
    if n > whole:
        yield (whole, n - whole, size) if padded or not whole else (n - size, whole - n, size)


def _some(wanted: list[int], n: int, row_bytes: int, most_rows: int = 0) -> Iterator[tuple[int, int, int]]:
    """Only these chunks of `_plan`."""
    plan = list(_plan(n, row_bytes, most_rows))
    yield from (plan[i] for i in wanted)


def _fields(names: tuple[str, ...], preds: Any, labels: Any) -> dict[str, tuple[Any, Any]]:
    """Both sides of each field. One after another: both go through the same kernel, compiled once."""
    return {name: (preds[name], labels[name]) if name else (preds, labels) for name in names}


def _host_pass(
    names: tuple[str, ...],
    axes: int,
    preds: Any,
    labels: Any,
    mask: Any,
    weights: Any,
    wide: bool,
    pool: bool | None = None,
) -> dict[str, dict[str, Any]]:
    """`_pass` over NumPy arrays in chunks, added up, with all keys side by side; with ``pool``, as `_probe_stats`.

    The kernel of the plain way compiles in half the time of one with a branch; chunks that it is not for come again.
    """
    out = {}
    for name, (p, t) in _fields(names, preds, labels).items():

        def run(plain: bool, plan: Any, p: Any = p, t: Any = t) -> list[tuple[State, Any]]:
            return chunk_results(partial(_chunk_pass, pool, plain), p, t, mask, weights, wide, axes, plan)

        parts, good = map(list, zip(*run(True, _plan)))
        odd = [i for i, g in enumerate(good) if not g]
        for i, (again, _) in zip(odd, run(False, partial(_some, odd)) if odd else ()):
            parts[i] = again
        # Of the last chunk only the first rows are the board's, or the last ones are those that no other has.
        own = [slice(rows) if rows > 0 else slice(rows, None) for _, rows, _ in _plan(math.prod(t.shape[:axes]), 0)]
        ranked = {
            k: np.concatenate([np.asarray(x.pop(k))[at] for x, at in zip(parts, own, strict=True)]) for k in _RANKED
        }
        out[name] = add_states(parts) | ranked
    return out


def _host_fields(
    metrics: tuple[Metric, ...], preds: Any, labels: Any, mask: Any, weights: Any, wide: bool
) -> dict[str, Any]:
    """Exact summaries of every field metric of a task, each field read once; nothing if the arrays are on a device."""
    mine = [m for m in metrics if isinstance(m, (RelL2, LocalQ50))]
    if all(isinstance(m, RelL2) for m in mine):
        return {} if mask is not None or weights is not None else _host_energies(mine, preds, labels, wide)
    leaves = jax.tree_util.tree_leaves((preds, labels))
    if not all(isinstance(x, np.ndarray) for x in leaves):
        return {m.name: _on_device(m, preds, labels, mask, weights) for m in mine}
    names = tuple(dict.fromkeys(name for m in mine for name in _names(m.field)))
    axes = mine[0]._chunk_axes(preds, labels)
    any_field = labels[names[0]] if names[0] else labels
    pool = _pools(any_field, weights) if any(isinstance(m, RelL2) for m in mine) else None
    found = _host_pass(names, axes, preds, labels, mask, weights, wide, pool)
    flat_weights = None if weights is None else np.ascontiguousarray(weights).reshape(-1)

    def middle(wanted: tuple[str, str]) -> np.ndarray:
        name, kind = wanted
        return _middle_values(found[name][kind], found[name]["lit"], flat_weights)

    medians = tuple(dict.fromkeys((name, m._kind) for m in mine if isinstance(m, LocalQ50) for name in _names(m.field)))
    with ThreadPoolExecutor(min(len(medians), os.cpu_count() or 1)) as workers:  # NumPy releases the interpreter lock
        middles = dict(zip(medians, workers.map(middle, medians)))
    out = {}
    for m in mine:
        own = _names(m.field)
        state: dict[str, Any] = _add_counters([found[name] for name in own])
        for name in own:
            end = _suffix(name)
            if isinstance(m, RelL2):
                state |= {f"{k}{end}": found[name][k] for k in ("error", "energy")}
                state["n_excluded"] = np.zeros_like(state["n_excluded"])
                continue
            state |= {f"middle{end}": middles[name, m._kind], f"lit{end}": found[name]["lit"]}
        out[m.name] = state
    return out


@partial(jax.jit, static_argnums=0)
def _chunk_energies(pool: bool, preds: Any, labels: Any, mask: Any, weights: Any, rows: Any) -> Any:
    del mask, weights, rows  # padding is zero and adds nothing
    return _energy_pass(*_rows(preds, labels, "", None), None, pool)


def _host_energies(mine: list[Any], preds: Any, labels: Any, wide: bool) -> dict[str, Any]:
    """Summaries of `RelL2` of NumPy arrays in which every probe counts once: no mask is looked at, in any chunk."""
    if not all(isinstance(x, np.ndarray) for x in jax.tree_util.tree_leaves((preds, labels))):
        return {}
    names = tuple(dict.fromkeys(name for m in mine for name in _names(m.field)))
    shape = _probe_shape(mine[0], preds, labels, "")
    found = {}
    for name, (p, t) in _fields(names, preds, labels).items():
        kernel = partial(_chunk_energies, _pools(t, None))
        parts = chunk_results(kernel, p, t, None, None, wide, len(shape), partial(_plan, padded=True))
        found[name] = add_states(parts) | {"n": limbs.from_int(math.prod(shape), 2)}
    return {m.name: m._sums(found) for m in mine}


def _on_device(m: Metric, preds: Any, labels: Any, mask: Any, weights: Any) -> Any:
    return jax.tree_util.tree_map(np.asarray, batch_summaries((m,), preds, labels, mask, weights)[m.name])


def _middle_values(ranked: np.ndarray, count: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """The two middle values ``[2]`` in float64, from order keys of which the unused ones are the largest."""
    if weights is not None:
        weights = np.where(ranked == ranked.dtype.type(keys.nan_key(ranked)), np.uint32(0), weights)
    middle = selection.middle_keys_host(ranked, limbs.to_int(count), weights)
    return keys.key_value(middle, np.float64 if ranked.dtype == np.uint64 else np.float32).astype(np.float64)


# --- the metrics --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RelL2(Metric):
    r"""Global relative L2 error of a complex vector field.

    .. math:: \mathrm{rel}\,L_2(F) = \sqrt{\frac{\sum_{jfp} \lVert \hat F_{jfp} - F_{jfp} \rVert_2^2}
       {\sum_{jfp} \lVert F_{jfp} \rVert_2^2}}

    over every excited port, frequency and probe of a board: strong regions weigh more.

    Shapes: ``preds`` [J, F, P, 3] complex (any leading axes; float planes with ``iq_axis``), or a dict {"E", "H"} of
    such arrays; ``labels`` the same; ``where``, ``weights`` [J, F, P].
    Units: dimensionless.
    Direction: lower is better, 0 is the optimum.
    Errors: NonFiniteError; ShapeError; DegenerateLabelsError for a field that is zero everywhere; EmptyEvaluationError.
    Reference: EMVal evaluation protocol 1.0.0, EMVal-NF.

    Attributes:
      field: "E" or "H" of a dict, "avg" for the mean of both, "" for the arrays themselves.
      components: length of the last axis, or None for any.
      iq_axis: axis of length 2 that holds real and imaginary planes, or None.
    """

    field: str = ""
    components: int | None = 3
    iq_axis: int | None = None
    direction: ClassVar[str] = "lower"
    unit: ClassVar[str] = "1"
    bounds: ClassVar[tuple[float, float]] = (0.0, math.inf)

    def __post_init__(self) -> None:
        _check(self)

    @property
    def name(self) -> str:
        """``rel_l2``, with the field."""
        return f"rel_l2{_suffix(self.field)}"

    def _arrange(self, preds: Any, labels: Any, task: str) -> tuple[Any, Any]:
        return _arranged(self, preds, "preds", task), _arranged(self, labels, "labels", task)

    def _chunk_axes(self, preds: Any, labels: Any) -> int:
        return len(_probe_shape(self, preds, labels, ""))

    def _sample_shape(self, preds: Any, labels: Any, task: str) -> tuple[int, ...]:
        return _probe_shape(self, preds, labels, task)

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        names = _names(self.field)
        return {f"{k}{_suffix(name)}": accumulate.SHAPE for name in names for k in ("error", "energy")}

    def _stats(self, preds: Any, labels: Any, mask: Any, weights: Any) -> State:
        found = {}
        for name in _names(self.field):
            pool = _pools(labels[name] if name else labels, weights)
            found[name] = _energy_pass(*_rows(preds, labels, name, mask), weights, pool)
        return self._sums(found)

    def _sums(self, found: dict[str, Any]) -> State:
        """The state from the energies and counters of each field."""
        names = _names(self.field)
        sums: State = {f"{k}{_suffix(name)}": found[name][k] for name in names for k in ("error", "energy")}
        return _add_counters([found[name] for name in names]) | sums

    def _host_summaries(
        self, metrics: tuple[Metric, ...], preds: Any, labels: Any, mask: Any, weights: Any, wide: bool
    ) -> dict[str, Any]:
        return _host_fields(metrics, preds, labels, mask, weights, wide)

    def _value(self, state: Any, xp: Any) -> tuple[Any, dict[str, Any]]:
        values = []
        for name in _names(self.field):
            pair = [accumulate.total(state[f"{k}{_suffix(name)}"], xp) for k in ("error", "energy")]
            quotient, exponent = accumulate.ratio(pair[0], pair[1], xp)
            values.append(xp.ldexp(xp.sqrt(quotient), xp.where(quotient > 0, exponent // 2, 0)))
        return _average(values), {}

    def _explain(self, preds: Any, labels: Any, mask: Any, task: str) -> None:
        _explain_fields(self, preds, labels, mask, task)

    def _undefined(self, state: Any, task: str) -> EvaluationError:
        return DegenerateLabelsError("the true field is zero everywhere", task=task, argument="labels")


@dataclass(frozen=True)
class LocalQ50(Metric):
    r"""Median local error of a complex vector field.

    .. math:: \operatorname{local-q}_{50}(F) = \operatorname{median}_{jfp} \frac{\lVert \hat F_{jfp} - F_{jfp} \rVert_2}
       {\lVert F_{jfp} \rVert_2}

    Weak and strong probes count alike. Probes without a field are left out and counted in ``validity.n_excluded``; the
    median of an even number is the mean of the middle two. One call is exact.

    Shapes: ``preds`` [J, F, P, 3] complex (any leading axes; float planes with ``iq_axis``), or a dict {"E", "H"} of
    such arrays; ``labels`` the same; ``where``, ``weights`` [J, F, P] (the median of the multiset).
    Units: dimensionless.
    Direction: lower is better, 0 is the optimum.
    Errors: NonFiniteError; ShapeError; DegenerateLabelsError for a field that is zero everywhere; EmptyEvaluationError.
    Streams: exact up to ``capacity`` probes (all_reduce then gathers the buffers), else a histogram of 1,024 bins an
    octave from 2^-32 to 2^32, whose ``aux["half_width"]`` bounds the distance to the exact value (0.05 %).
    Reference: EMVal evaluation protocol 1.0.0, EMVal-NF.

    Attributes:
      field: "E" or "H" of a dict, "avg" for the mean of both, "" for the arrays themselves.
      components: length of the last axis, or None for any.
      iq_axis: axis of length 2 that holds real and imaginary planes, or None.
      capacity: size of the exact stream's buffer, or None for the histogram.
    """

    field: str = ""
    components: int | None = 3
    iq_axis: int | None = None
    capacity: int | None = None
    direction: ClassVar[str] = "lower"
    unit: ClassVar[str] = "1"
    bounds: ClassVar[tuple[float, float]] = (0.0, math.inf)
    _kind: ClassVar[str] = "local"
    _prefix: ClassVar[str] = "local_q50"

    def __post_init__(self) -> None:
        _check(self)
        if self.capacity is not None:
            require_int(self.capacity, "capacity", 1, self.name)

    @property
    def name(self) -> str:
        """The protocol's name, with the field."""
        return f"{self._prefix}{_suffix(self.field)}"

    def _arrange(self, preds: Any, labels: Any, task: str) -> tuple[Any, Any]:
        return _arranged(self, preds, "preds", task), _arranged(self, labels, "labels", task)

    def _chunk_axes(self, preds: Any, labels: Any) -> int:
        return len(_probe_shape(self, preds, labels, ""))

    def _sample_shape(self, preds: Any, labels: Any, task: str) -> tuple[int, ...]:
        return _probe_shape(self, preds, labels, task)

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        one = {"counts": (selection.BINS, 2)} if self.capacity is None else selection.buffer_shapes(self.capacity)
        return {f"{k}{_suffix(name)}": shape for name in _names(self.field) for k, shape in one.items()}

    def _stats(self, preds: Any, labels: Any, mask: Any, weights: Any) -> State:
        names = _names(self.field)
        found = _pass(names, preds, labels, mask, weights)
        weights = None if weights is None else weights.reshape(-1)
        out = _add_counters([found[name] for name in names])
        for name in names:
            key = found[name][self._kind]
            used = key != key.dtype.type(keys.nan_key(key))
            if self.capacity is None:
                index = jnp.where(used, self._bin(key), np.uint32(selection.BINS))
                one = {"counts": bin_limbs(index, selection.BINS, weights)}
            else:
                one = selection.fill_buffer(self.capacity, _narrow_key(key), used, weights)
            out |= {f"{k}{_suffix(name)}": v for k, v in one.items()}
        return out

    def _summary(self, preds: Any, labels: Any, mask: Any, weights: Any) -> State:
        return self._middles(_pass(_names(self.field), preds, labels, mask, weights), weights)

    def _summaries(
        self, metrics: tuple[Metric, ...], preds: Any, labels: Any, mask: Any, weights: Any
    ) -> dict[str, State]:
        # Twice the same loop would run twice: XLA does not see that two loops are one.
        mine = [m for m in metrics if isinstance(m, LocalQ50)]
        names = tuple(dict.fromkeys(name for m in mine for name in _names(m.field)))
        found = _pass(names, preds, labels, mask, weights)
        return {m.name: m._middles(found, weights) for m in mine}

    def _middles(self, found: dict[str, dict[str, Any]], weights: Any) -> State:
        """The summary from what `_pass` has found of each field."""
        names = _names(self.field)
        weights = None if weights is None else weights.reshape(-1)
        out = _add_counters([found[name] for name in names])
        for name in names:
            key, lit = found[name][self._kind], found[name]["lit"]
            count = lit[0] + (lit[1] << np.uint32(16)) if weights is None else None
            middle = selection.middle_keys(key, key != key.dtype.type(keys.nan_key(key)), weights, count)
            dtype = np.float64 if key.dtype == jnp.uint64 else np.float32
            out |= {f"middle{_suffix(name)}": keys.key_value(middle, dtype), f"lit{_suffix(name)}": lit}
        return out

    def _host_summaries(
        self, metrics: tuple[Metric, ...], preds: Any, labels: Any, mask: Any, weights: Any, wide: bool
    ) -> dict[str, Any]:
        return _host_fields(metrics, preds, labels, mask, weights, wide)

    def _merge(self, a: State, b: State) -> State:
        summed = super()._merge(_sums(a), _sums(b))
        return summed | self._buffers(lambda x, y: selection.buffer_merge(self.capacity or 0, x, y), a, b)

    def _all_reduce(self, state: State, axis_name: Any) -> State:
        summed = super()._all_reduce(_sums(state), axis_name)
        return summed | self._buffers(lambda x: selection.buffer_all_reduce(self.capacity or 0, x, axis_name), state)

    def _buffers(self, combine: Any, *states: State) -> State:
        """The buffers of the states, if there are any, combined."""
        if self.capacity is None:
            return {}
        out: State = {}
        for end in map(_suffix, _names(self.field)):
            parts = [{k: s[f"{k}{end}"] for k in ("keys", "weight", "overflow")} for s in states]
            out |= {f"{k}{end}": v for k, v in combine(*parts).items()}
        return out

    def _check_state(self, state: Any, task: str) -> None:
        if any(k.startswith("overflow") and limbs.to_int(v) for k, v in state.items()):
            raise EvaluationError(
                f"more probes than capacity={self.capacity}; the exact stream is incomplete",
                task=task,
                argument="capacity",
            )

    def _value(self, state: Any, xp: Any) -> tuple[Any, dict[str, Any]]:
        dtype = np.float64 if xp is np else np.float32
        values, widths = [], []
        for end in map(_suffix, _names(self.field)):
            if f"middle{end}" in state:
                middle = state[f"middle{end}"].astype(dtype)
                defined = xp.any(state[f"lit{end}"] != 0, axis=-1)
                values.append(xp.where(defined, _midpoint(middle[..., 0], middle[..., 1]), dtype(np.nan)))
            elif self.capacity is not None:
                values.append(self._from_buffer({k: state[f"{k}{end}"] for k in ("keys", "weight", "overflow")}, xp))
            else:
                value, width = self._from_histogram(state[f"counts{end}"], xp)
                values.append(value)
                widths.append(width)
        return _average(values), {"half_width": _average(widths)} if widths else {}

    def _from_histogram(self, counts: Any, xp: Any) -> tuple[Any, Any]:
        """Centre and half-width of the interval in which the exact median lies."""
        dtype = np.float64 if xp is np else np.float32
        at = selection.middle_bins(counts, xp)
        low, high = (_midpoint(*(self._edge(i + up, xp).astype(dtype) for i in at)) for up in (0, 1))
        empty = xp.all(counts == 0, axis=(-1, -2))
        value = xp.where(xp.isinf(high), low, _midpoint(low, high))
        nan = dtype(np.nan)
        return xp.where(empty, nan, value), xp.where(empty, nan, xp.maximum(high - value, value - low))

    def _from_buffer(self, buffer: Any, xp: Any) -> Any:
        dtype = np.float64 if xp is np else np.float32
        middle: Any
        if xp is np:
            shape = buffer["keys"].shape[:-1]
            flat_keys, flat_weights = (buffer[k].reshape(-1, buffer[k].shape[-1]) for k in ("keys", "weight"))
            pairs = [selection.middle_keys_host(k.copy(), 0, w) for k, w in zip(flat_keys, flat_weights)]
            middle = np.stack(pairs).reshape(*shape, 2)
        else:
            middle = selection.middle_keys(buffer["keys"], buffer["weight"] > 0, buffer["weight"])
        values = keys.key_value(middle, np.float32).astype(dtype)
        bad = xp.all(buffer["weight"] == 0, axis=-1) | xp.any(buffer["overflow"] != 0, axis=-1)
        return xp.where(bad, dtype(np.nan), _midpoint(values[..., 0], values[..., 1]))

    def _bin(self, key: Any) -> Any:
        """Bin of a local error by its float32 bits: 64 octaves of 2^10 bins, the ends catching what lies outside."""
        bits = _narrow_key(key) ^ np.uint32(1 << 31)
        return (jnp.clip(bits, _LEAST_BITS, _LEAST_BITS + np.uint32((1 << 29) - 1)) - _LEAST_BITS) >> np.uint32(13)

    def _edge(self, index: Any, xp: Any) -> Any:
        """Lower edge of a bin, for an index up to and including the number of bins."""
        bits = (xp.asarray(index).astype(xp.uint32) << np.uint32(13)) + _LEAST_BITS
        edge = keys.key_value(bits ^ np.uint32(1 << 31), np.float32)
        edge = xp.where(index == 0, np.float32(0), edge)
        return xp.where(index == selection.BINS, np.float32(np.inf), edge)

    def _explain(self, preds: Any, labels: Any, mask: Any, task: str) -> None:
        _explain_fields(self, preds, labels, mask, task)

    def _undefined(self, state: Any, task: str) -> EvaluationError:
        return DegenerateLabelsError(
            "no probe has a field",
            task=task,
            argument="labels",
            count=limbs.to_int(state["n_excluded"]),
        )


def _sums(state: State) -> State:
    """What of a state is added up: everything but buffers."""
    return {k: v for k, v in state.items() if not k.startswith(("keys", "weight", "overflow"))}


# Bits of 2^-32 in float32.
_LEAST_BITS = np.uint32((127 - 32) << 23)


def _narrow_key(key: Any) -> Any:
    """A float32 order key, also of a float64 one."""
    if key.dtype == jnp.uint32:
        return key
    return keys.order_key(keys.key_value(key, np.float64).astype(jnp.float32))


def _midpoint(a: Any, b: Any) -> Any:
    """Mean of two ascending values without overflow, exact where they are equal (infinite ones too)."""
    half = a.dtype.type(0.5)
    xp: Any = np if isinstance(a, (np.ndarray, np.generic)) else jnp
    return xp.where(a == b, a, half * a + half * b)


@dataclass(frozen=True)
class LocalCosQ50(LocalQ50):
    r"""Median local alignment of two complex vector fields.

    .. math:: \operatorname{local-cos-q}_{50}(F) = \operatorname{median}_{jfp}
       \frac{\operatorname{Re} \sum_k \hat F_{jfp,k} F_{jfp,k}^*}{\lVert \hat F_{jfp} \rVert_2 \lVert F_{jfp} \rVert_2}

    1 where a prediction has the direction and the phase of the truth, whatever its size. Probes without a field are
    left out and counted; a predicted zero vector scores 0.

    Shapes: ``preds`` [J, F, P, 3] complex (any leading axes; float planes with ``iq_axis``), or a dict {"E", "H"} of
    such arrays; ``labels`` the same; ``where``, ``weights`` [J, F, P] (the median of the multiset).
    Units: dimensionless, -1 to 1.
    Direction: higher is better, 1 is the optimum.
    Errors: as for `LocalQ50`.
    Streams: as for `LocalQ50`; the histogram has 65,536 equal bins over [-1, 1].
    Reference: EMVal evaluation protocol 1.0.0, EMVal-NF.

    Attributes:
      field: "E" or "H" of a dict, "avg" for the mean of both, "" for the arrays themselves.
      components: length of the last axis, or None for any.
      iq_axis: axis of length 2 that holds real and imaginary planes, or None.
      capacity: size of the exact stream's buffer, or None for the histogram.
    """

    direction: ClassVar[str] = "higher"
    bounds: ClassVar[tuple[float, float]] = (-1.0, 1.0)
    _kind: ClassVar[str] = "cosine"
    _prefix: ClassVar[str] = "local_cos_q50"

    def _bin(self, key: Any) -> Any:
        value = keys.key_value(_narrow_key(key), np.float32)
        place = jnp.floor((value + np.float32(1)) * np.float32(selection.BINS / 2))
        return jnp.clip(place, 0, selection.BINS - 1).astype(jnp.uint32)

    def _edge(self, index: Any, xp: Any) -> Any:
        return xp.asarray(index).astype(xp.float32) * np.float32(2 / selection.BINS) - np.float32(1)
