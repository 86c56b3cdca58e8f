"""Host checks and chunking: what must be known before a kernel runs, and how a long array reaches it.

Values are only looked at here when a kernel has counted something wrong: then the first offending index is searched,
so that a clean evaluation pays for no extra pass.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from emma_jax.errors import EvaluationError, LabelError, NonFiniteError, ShapeError

__all__ = [
    "CHUNKS",
    "aligned_empty",
    "chunk_plan",
    "copied_into",
    "enable_x64",
    "fetched",
    "first_index",
    "host_array",
    "host_labels",
    "is_spread",
    "is_traced",
    "narrow",
    "raise_label",
    "raise_nonfinite",
    "sample_mask",
    "sample_weights",
    "window_plan",
]

# Rows per kernel call: a loop over any number of lengths compiles a kernel at most once per size.
CHUNKS = (1 << 20, 1 << 17, 1 << 14, 1 << 11, 1 << 8)
# Up to this size a remainder is padded to the next size rather than cut up; beyond it the copy would cost more.
_PAD_BELOW = 1 << 14
_PAD_BELOW_BYTES = 1 << 22
# Beyond that size a batch that is added up is covered by windows of these sizes: few calls, and never a copy.
_WINDOWS = (1 << 20, 1 << 19, 1 << 18, 1 << 16, 1 << 14, 1 << 11, 1 << 8)
# Rows of more bytes than this (long signals, channel tensors) also come in small numbers, and in no more than 256 MB.
_LARGE_ROW = 1 << 14
_FEW = (32, 4, 1)
_FEW_WINDOWS = (128, *_FEW)
_MOST_BYTES = 1 << 28


def is_traced(*trees: Any) -> bool:
    """True if any leaf is a JAX tracer, that is, if the call stands inside a transform."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree_util.tree_leaves(trees))


def enable_x64(on: bool) -> contextlib.AbstractContextManager[Any]:
    """64-bit types for this thread and block only; the user's global setting is never touched."""
    if not on:
        return contextlib.nullcontext()
    return jax.enable_x64(True)


def is_spread(x: Any) -> bool:
    """Whether a concrete array is cut into pieces that lie on several devices (of this process, or of several)."""
    if not isinstance(x, jax.Array) or isinstance(x, jax.core.Tracer):
        return False
    return len(x.sharding.device_set) > 1 and not x.is_fully_replicated


def fetched(tree: Any) -> Any:
    """Arrays as NumPy: what is spread over devices is gathered, over processes by a collective that all have to
    join."""

    def fetch(x: Any) -> Any:
        if not isinstance(x, jax.Array):
            return x
        if not (x.is_fully_addressable or x.is_fully_replicated):
            whole = NamedSharding(x.sharding.mesh, PartitionSpec())  # type: ignore[attr-defined]
            x = _copied(whole)(x)
        return np.asarray(x)

    return jax.tree_util.tree_map(fetch, tree)


@functools.cache
def _copied(sharding: NamedSharding) -> Any:
    return jax.jit(lambda x: x, out_shardings=sharding)


def _on_auto_mesh(x: jax.Array) -> jax.Array:
    """The array on a mesh of automatic axes: the type of an Explicit one would forbid the reshapes of a kernel. Nothing
    is copied."""
    mesh, spec = x.sharding.mesh, x.sharding.spec  # type: ignore[attr-defined]
    auto = Mesh(mesh.devices, mesh.axis_names)
    return x if auto == mesh else jax.device_put(x, NamedSharding(auto, spec))


def host_array(x: Any, argument: str, task: str | None = None, *, spread: bool = False) -> Any:
    """A concrete argument as a NumPy array (JAX arrays on CPU without a copy; on an accelerator they stay there).

    Args:
      x: anything `numpy.asarray` takes.
      argument: name of the argument, for errors.
      task: name of the task, for errors.
      spread: whether an array that is sharded over devices may stay so; otherwise it is gathered.

    Raises:
      EvaluationError: not numbers; or spread over processes where ``spread`` is False.
    """
    if isinstance(x, jax.Array):
        if x.dtype == jnp.dtype(object):  # pragma: no cover - JAX has no such dtype today
            raise EvaluationError("an array of objects is not data", task=task, argument=argument)
        if jnp.issubdtype(x.dtype, jax.dtypes.extended):
            raise EvaluationError(f"dtype {x.dtype} is not data", task=task, argument=argument)
        if spread and is_spread(x) and isinstance(x.sharding, NamedSharding):
            return _on_auto_mesh(x)
        if not (x.is_fully_addressable or x.is_fully_replicated):
            raise EvaluationError(
                "is spread over processes; only evaluate and update take it so. Gather it first, or score what each "
                "process has and merge the states",
                task=task,
                argument=argument,
            )
        if is_spread(x) or all(d.platform == "cpu" for d in x.devices()):
            return np.asarray(x)
        return x
    if isinstance(x, np.ma.MaskedArray):
        raise EvaluationError("is a masked array; pass the data, and where=~mask", task=task, argument=argument)
    if hasattr(x, "__jax_array__"):
        return host_array(jnp.asarray(x), argument, task)
    try:
        x = np.asarray(x)
    except ValueError as e:
        raise ShapeError(f"is not a rectangular array ({e})", task=task, argument=argument) from None
    except (TypeError, RuntimeError) as e:  # a tensor of another library that NumPy cannot hold
        raise EvaluationError(f"does not become an array ({e})", task=task, argument=argument) from None
    if x.dtype.kind in "OSUMmV" and not jnp.issubdtype(x.dtype, jnp.number):
        raise EvaluationError(f"needs numbers; got dtype {x.dtype}", task=task, argument=argument)
    if x.dtype in (np.longdouble, np.clongdouble):
        x = x.astype(np.float64 if x.dtype == np.longdouble else np.complex128)
    # Foreign byte order (HDF5, FITS, instrument files): JAX would take the bytes as they are.
    return x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))


def narrow(x: Any) -> tuple[Any, bool]:
    """64-bit NumPy input as 32-bit numbers where every value is one, so that a file and a device array agree.

    Returns:
      (array, wide): ``wide`` is True where 64 bits are needed for the value.
    """
    if not isinstance(x, (np.ndarray, jax.Array)):
        leaves, structure = jax.tree_util.tree_flatten(x)
        pairs = [narrow(v) for v in leaves]
        return jax.tree_util.tree_unflatten(structure, [v for v, _ in pairs]), any(wide for _, wide in pairs)
    if is_spread(x) and x.dtype.kind in "fciu" and x.dtype.itemsize >= 8 and x.dtype != np.complex64:
        with enable_x64(True):
            small, fits = _narrowed(x)
            return (small, False) if bool(fits) else (x, True)
    if not isinstance(x, np.ndarray) or x.dtype.kind not in "fciu" or x.dtype.itemsize < 8 or x.dtype == np.complex64:
        return x, False
    if x.dtype.kind in "iu":
        fits = x.size == 0 or (int(x.min()) >= -(2**31) and int(x.max()) < 2**31)
        return (x.astype(np.int32), False) if fits else (x, True)
    with np.errstate(over="ignore", invalid="ignore"):
        small = x.astype(np.float32 if x.dtype == np.float64 else np.complex64)
    same = small == x
    if same.all() or bool(np.all(same | ((small != small) & (x != x)))):
        return small, False
    return x, True


@jax.jit
def _narrowed(x: Any) -> tuple[Any, Any]:
    """A 64-bit array in 32 bits, and whether it says the same."""
    kinds = {"f": jnp.float32, "c": jnp.complex64}
    small = x.astype(kinds.get(x.dtype.kind, jnp.int32))
    return small, jnp.all((small.astype(x.dtype) == x) | ((small != small) & (x != x)))


def host_labels(labels: Any, argument: str = "labels", task: str | None = None) -> Any:
    """Integer labels as int32 without a wrap: a label that int32 cannot hold becomes -1, which no task has."""
    if labels.size == 0 and isinstance(labels, np.ndarray):
        return labels.astype(np.int32)  # an empty list is float64 to NumPy
    if not (jnp.issubdtype(labels.dtype, jnp.integer) or labels.dtype == jnp.bool_):
        raise LabelError(f"must be integers; got dtype {labels.dtype}", task=task, argument=argument)
    if isinstance(labels, np.ndarray) and labels.dtype.itemsize >= 4 and labels.dtype != np.int32:
        small = labels.astype(np.int32)
        same = small == labels
        return small if same.all() else np.where(same, small, np.int32(-1))
    if not isinstance(labels, np.ndarray) and labels.dtype.itemsize > 4:  # x64 is on
        return jnp.where((labels >= 0) & (labels < 1 << 31), labels, -1).astype(jnp.int32)
    return labels


def sample_mask(where: Any, shape: tuple[int, ...] | None, task: str | None = None, *, spread: bool = False) -> Any:
    """``where`` as bool, broadcast to the sample axes (unless they are not known yet); None stays None."""
    if where is None:
        return None
    traced = isinstance(where, jax.core.Tracer)
    where = where if traced else host_array(where, "where", task, spread=spread)
    if where.dtype != jnp.bool_:
        raise EvaluationError(f"must be bool; got dtype {where.dtype}", task=task, argument="where")
    return where if shape is None else _broadcast(where, shape, "where", task)


def sample_weights(weights: Any, shape: tuple[int, ...], task: str | None = None, *, spread: bool = False) -> Any:
    """Integer multiplicities as uint32, broadcast to the sample axes; None stays None."""
    if weights is None:
        return None
    traced = isinstance(weights, jax.core.Tracer)
    weights = weights if traced else host_array(weights, "weights", task, spread=spread)
    if not (jnp.issubdtype(weights.dtype, jnp.integer) or weights.dtype == jnp.bool_):
        raise EvaluationError(
            f"must be non-negative integers (multiplicities), so that states stay integers; got dtype {weights.dtype}",
            task=task,
            argument="weights",
        )
    if not traced and isinstance(weights, np.ndarray):
        bad = (weights < 0) | (weights > 0xFFFFFFFF) if weights.dtype != np.bool_ else np.zeros(1, bool)
        if bad.any():
            raise EvaluationError(
                "must lie in 0..2^32 - 1", task=task, argument="weights", count=int(bad.sum()), index=first_index(bad)
            )
        weights = _broadcast(weights.astype(np.uint32), shape, "weights", task)
        if weights.size >= 1 << 16 and int(weights.max()) * weights.size < 1 << 48:
            return weights
        if int(weights.sum(dtype=np.uint64)) >= 1 << 48:
            raise EvaluationError("must sum to less than 2^48", task=task, argument="weights")
        return weights
    if is_spread(weights) and weights.dtype != jnp.bool_ and bool(_suspect(weights)):
        return sample_weights(fetched(weights), shape, task)  # which judges exactly, and says what is wrong
    # Under trace values are not looked at: a negative weight counts as 0.
    weights = jnp.where(weights > 0, weights, jnp.zeros((), weights.dtype)) if weights.dtype != jnp.bool_ else weights
    return _broadcast(weights.astype(jnp.uint32), shape, "weights", task)


@jax.jit
def _suspect(weights: Any) -> Any:
    """Whether weights may be out of range, one by one or (to a factor of two) in sum."""
    huge = weights > 0xFFFFFFFF if weights.dtype.itemsize > 4 else False
    return jnp.any((weights < 0) | huge) | (jnp.sum(weights.astype(jnp.float32)) >= 2.0**47)


def _broadcast(x: Any, shape: tuple[int, ...], argument: str, task: str | None) -> Any:
    try:
        if np.broadcast_shapes(x.shape, shape) != shape:
            raise ValueError
    except ValueError:
        raise ShapeError(
            f"shape {x.shape} does not broadcast to the sample axes {shape}", task=task, argument=argument
        ) from None
    xp: Any = np if isinstance(x, np.ndarray) else jnp
    return xp.broadcast_to(x, shape)


def first_index(bad: np.ndarray) -> int | tuple[int, ...]:
    """Index of the first True: an int for one axis, a tuple for several."""
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad.reshape(-1))), bad.shape))
    return index[0] if len(index) == 1 else index


def raise_nonfinite(
    task: str | None, argument: str, x: Any, mask: Any, *, infinite: bool, what: str | None = None
) -> None:
    """Raises NonFiniteError if ``x`` holds a NaN (or, with ``infinite``, an infinity) where ``mask`` is True."""
    x = np.asarray(x)
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        return
    if x.dtype.kind not in "fc":
        x = x.astype(np.float32)
    bad = ~np.isfinite(x) if infinite else np.isnan(x)
    if mask is not None:
        mask = np.asarray(mask)
        bad = bad & mask.reshape(mask.shape + (1,) * (bad.ndim - mask.ndim))
    if bad.any():
        text = what or ("must be finite" if infinite else "NaN has no rank")
        raise NonFiniteError(text, task=task, argument=argument, count=int(bad.sum()), index=first_index(bad))


def raise_label(
    task: str | None, argument: str, labels: Any, mask: Any, num_classes: int | None, *, base: int = 0
) -> None:
    """Raises LabelError if a label (at ``mask``) is not in ``base .. base + num_classes - 1``."""
    labels = np.asarray(labels)
    # Where the number of classes is not known, a label still has to be an int32.
    bad = (labels < base) | (labels >= (1 << 31 if num_classes is None else base + num_classes))
    if mask is not None:
        mask = np.asarray(mask)
        bad = bad & mask.reshape(mask.shape + (1,) * (bad.ndim - mask.ndim))
    if bad.any():
        index = first_index(bad)
        span = f"{base}..{base + num_classes - 1}" if num_classes is not None else f"{base} or more"
        value = labels[index]
        raise LabelError(
            f"{value} is not a class; need {span}", task=task, argument=argument, count=int(bad.sum()), index=index
        )


def aligned_empty(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Uninitialised array on a 64-byte boundary, which JAX on CPU takes without a copy."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


def copied_into(areas: dict[Any, np.ndarray], key: Any, x: np.ndarray) -> np.ndarray:
    """A copy of an array on a 64-byte boundary, in memory that ``areas`` holds under ``key`` for the next call."""
    place = areas.get(key)
    if place is None or place.nbytes < x.nbytes:
        place = areas[key] = aligned_empty((x.nbytes,), np.uint8)
    copy: np.ndarray = place[: x.nbytes].view(x.dtype).reshape(x.shape)
    np.copyto(copy, x)
    return copy


def chunk_plan(n: int, row_bytes: int = 1) -> Iterator[tuple[int, int, int]]:
    """(start, rows, size) of the kernel calls that cover n rows of so many bytes: each of a size in `CHUNKS`, the last
    padded if rows < size.

    Sizes descend, so every chunk but a padded one is a view; a padded tail copies at most 2^14 rows.
    """
    start = 0
    sizes = [*CHUNKS, *_FEW] if row_bytes > _LARGE_ROW else list(CHUNKS)
    sizes = [c for c in sizes[:-1] if c * row_bytes <= _MOST_BYTES] + sizes[-1:]
    while start < n:
        left = n - start
        size = next((c for c in sizes if c <= left), sizes[-1])
        enough = [c for c in sizes if left <= c <= _PAD_BELOW]
        # Padding to the next size wastes less time than several calls once a few pieces are needed.
        if enough and left > size and (left >= 3 * size or left < 2 * sizes[-1]):
            size = enough[-1]
        yield start, min(left, size), size
        start += size


def window_plan(n: int, row_bytes: int = 1, most_rows: int = 1 << 20) -> Iterator[tuple[int, int, int]]:
    """(start, rows, size) of the kernel calls that add up n rows: as `chunk_plan`, but where rows are many the rest is
    a window that ends with the data and overlaps what came before; ``rows`` is then negative, and only the last
    ``-rows`` rows of the window count.

    A million rows of 16 scores are two calls on views, not fourteen of which one is a copy (measured: 8 ms for 16).
    """
    sizes = [*_WINDOWS, *_FEW_WINDOWS] if row_bytes > _LARGE_ROW else list(_WINDOWS)
    sizes = [c for c in sizes if c * row_bytes <= _MOST_BYTES and c <= max(most_rows, sizes[-1])]
    if (n <= _PAD_BELOW and n * row_bytes <= _PAD_BELOW_BYTES) or not sizes:
        yield from chunk_plan(n, row_bytes)
        return
    size = next(c for c in sizes if c <= n)
    for start in range(0, n - size + 1, size):
        yield start, size, size
    left = n % size
    if left:
        size = min(c for c in sizes if c >= left)
        yield n - size, -left, size
