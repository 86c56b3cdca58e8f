"""Complex arrays as float planes: the form in which every complex metric computes.

XLA on CPU handles complex reductions up to ten times slower than the same floats, and a NumPy view of a complex array
as floats is free. `Planes` carries that view and still has the shape and dtype of the complex array. Inside a transform
there is no such view: taking a complex array apart costs ten reads of it, so there `Planes` carries the complex array,
and `rows` hands it on to the sums that can do with it (`emma_jax.numerics.energies`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from emma_jax.errors import ShapeError

__all__ = ["Planes", "SignalBatch", "as_float", "as_planes", "flat", "is_complex", "parts", "rows"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Planes:
    """A complex array ``[...]`` held as real array ``[..., 2]`` of real and imaginary parts; a pytree of one leaf.

    Attributes:
      values: real and imaginary parts along the last axis; or the complex array itself.
    """

    values: Any

    @property
    def whole(self) -> bool:
        """Whether it is the complex array that is held."""
        return is_complex(self.values)

    @property
    def floats(self) -> Any:
        """Real and imaginary parts along the last axis."""
        if not self.whole:
            return self.values
        return jnp.stack([jnp.real(self.values), jnp.imag(self.values)], axis=-1)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the complex array."""
        return tuple(self.values.shape if self.whole else self.values.shape[:-1])

    @property
    def ndim(self) -> int:
        """Number of axes of the complex array."""
        return len(self.shape)

    @property
    def dtype(self) -> Any:
        """Dtype of the complex array, complex64 for half and integer planes."""
        return np.dtype(np.complex128 if self.values.dtype in (jnp.float64, jnp.complex128) else np.complex64)

    def reshape(self, *shape: Any) -> Planes:
        """The same array in another shape."""
        shape = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        return Planes(self.values.reshape(shape if self.whole else (*shape, 2)))

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        del copy
        planes = np.asarray(self.floats)
        out = np.empty(self.shape, self.dtype)
        out.real, out.imag = planes[..., 0], planes[..., 1]
        return out if dtype is None else out.astype(dtype)


def is_complex(x: Any) -> bool:
    """Whether an array, or the array that planes stand for, is complex."""
    return bool(jnp.issubdtype(x.dtype, jnp.complexfloating))


def as_planes(x: Any, iq_axis: int | None, argument: str, task: str) -> Any:
    """A complex array, or real one with an I/Q axis, as `Planes`; a real array without such an axis stays as it is.

    Args:
      x: array or `Planes` (returned unchanged).
      iq_axis: axis of length 2 that holds I and Q of a real array, or None. Never guessed.
      argument: name of the argument, for errors.
      task: name of the task, for errors.

    Raises:
      ShapeError: if the axis does not exist, is not of length 2, or the array is complex already.
    """
    if isinstance(x, Planes):
        return x
    if is_complex(x):
        if iq_axis is not None:
            raise ShapeError(f"is complex, but iq_axis={iq_axis} is given", task=task, argument=argument)
        if isinstance(x, np.ndarray):
            x = np.ascontiguousarray(x)
            return Planes(x.view(x.real.dtype).reshape((*x.shape, 2)))
        return Planes(x)
    if iq_axis is None:
        return x
    if not -x.ndim <= iq_axis < x.ndim or x.shape[iq_axis] != 2:
        raise ShapeError(
            f"needs I and Q, an axis of length 2, at iq_axis={iq_axis}; got shape {tuple(x.shape)}",
            task=task,
            argument=argument,
        )
    xp: Any = np if isinstance(x, np.ndarray) else jnp
    return Planes(xp.moveaxis(x, iq_axis, -1))


def as_float(x: Any) -> Any:
    """A real array as float32, or float64 if it is that wide; half types and small integers are exact."""
    if x.dtype in (jnp.float32, jnp.float64):
        return x
    return x.astype(jnp.float64 if x.dtype.itemsize > 4 else jnp.float32)


def flat(x: Any, sample_axes: int) -> Any:
    """Real rows ``[n, m]``: one row a sample, real and imaginary parts side by side.

    Args:
      x: real array or `Planes`.
      sample_axes: how many leading axes index samples.
    """
    values = as_float(x.floats if isinstance(x, Planes) else x)
    n = int(np.prod(values.shape[:sample_axes], dtype=np.int64))
    m = int(np.prod(values.shape[sample_axes:], dtype=np.int64))
    return values.reshape(n, m)


def rows(p: Any, t: Any, sample_axes: int) -> tuple[Any, Any]:
    """Two arrays as rows ``[n, m]`` of one dtype: as `flat`, or complex where either holds a complex array.

    Args:
      p, t: real arrays or `Planes`, of one shape.
      sample_axes: how many leading axes index samples.
    """
    if any(isinstance(x, Planes) and x.whole for x in (p, t)):
        pair = [_complex(x).reshape(math.prod(x.shape[:sample_axes]), -1) for x in (p, t)]
    else:
        pair = [flat(x, sample_axes) for x in (p, t)]
    dtype = jnp.result_type(*(x.dtype for x in pair))
    return pair[0].astype(dtype), pair[1].astype(dtype)


def _complex(x: Planes) -> Any:
    """The complex array that planes stand for; of a NumPy array of floats a view."""
    if x.whole:
        return x.values
    values = as_float(x.values)
    if isinstance(values, np.ndarray) and values.flags.c_contiguous:
        return values.view(np.complex128 if values.dtype == np.float64 else np.complex64)[..., 0]
    return lax.complex(values[..., 0], values[..., 1])


def parts(x: Any) -> tuple[Any, Any]:
    """Real and imaginary part; the imaginary part of a real array is None."""
    if isinstance(x, Planes):
        values = as_float(x.floats)
        return values[..., 0], values[..., 1]
    return as_float(x), None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SignalBatch:
    """Signals of unequal length in one array: a pytree of the signals and of how much of each is there.

    Attributes:
      values: ``[N, T]`` or ``[N, K, T]`` (with an I/Q axis where the metric has one); entries beyond a length may hold
        anything, NaN included.
      lengths: ``[N]`` integers, the number of leading time steps that are there.
    """

    values: Any
    lengths: Any

    def __post_init__(self) -> None:
        for name in ("values", "lengths"):
            if isinstance(getattr(self, name), (list, tuple)):
                object.__setattr__(self, name, np.asarray(getattr(self, name)))
