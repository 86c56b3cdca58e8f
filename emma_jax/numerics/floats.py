"""Floats as mantissa and exponent: scaling by powers of two that neither overflows, underflows nor loses subnormals.

A *scaled float* is a pair (value, exponent) that stands for ``value * 2**exponent``. XLA on CPU flushes subnormal
floats to zero wherever it computes with them, so what is small is read from its bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = [
    "Format",
    "common_zero",
    "exponent_of",
    "format_of",
    "lift",
    "magnitude_bits",
    "power_of_two",
    "ratio",
    "root",
    "tie",
]


class Format(NamedTuple):
    """Layout of a binary float: mantissa bits, exponent bias, and the signed integer of its bits."""

    mantissa: int
    bias: int
    integer: Any


def format_of(dtype: Any) -> Format:
    """The layout of float32 or float64."""
    return Format(52, 1023, np.int64) if dtype == jnp.float64 else Format(23, 127, np.int32)


def magnitude_bits(x: Any) -> Any:
    """Bits of ``|x|`` as a signed integer, which orders as ``|x|`` does, with NaN above infinity."""
    integer = format_of(x.dtype).integer
    return lax.bitcast_convert_type(x, integer) & integer(np.iinfo(integer).max)


def exponent_of(x: Any) -> Any:
    """Floor of log2 |x| for a normal x, as int32; one below the least exponent for zero and subnormals."""
    form = format_of(x.dtype)
    return (magnitude_bits(x) >> form.integer(form.mantissa)).astype(jnp.int32) - form.bias


def power_of_two(exponent: Any, dtype: Any) -> Any:
    """``2**exponent`` for an exponent of a normal float, made from its bits."""
    form = format_of(dtype)
    return lax.bitcast_convert_type((exponent.astype(form.integer) + form.bias) << form.mantissa, dtype)


def lift(x: Any, exponent: int) -> Any:
    """``x * 2**exponent`` with subnormal x taken from its bits; exact unless the result overflows."""
    form = format_of(x.dtype)
    f = x.dtype.type
    magnitude = magnitude_bits(x)
    least = f(2.0 ** (1 - form.bias - form.mantissa + exponent))
    small = magnitude.astype(x.dtype) * least
    negative = lax.bitcast_convert_type(x, form.integer) < 0
    small = jnp.where(negative, -small, small)
    return jnp.where(magnitude < form.integer(1 << form.mantissa), small, x * f(2.0**exponent))


def ratio(a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[Any, Any]:
    """Quotient of two scaled floats, the divisor not zero."""
    return a[0] / b[0], a[1] - b[1]


def root(a: tuple[Any, Any]) -> Any:
    """Square root of a scaled float, as a plain float (infinite or zero where it is out of range)."""
    value, exponent = a
    form = format_of(value.dtype)
    odd = exponent & 1
    half = (exponent - odd) >> 1
    value = jnp.sqrt(jnp.where(odd != 0, value * value.dtype.type(2), value))
    # In two steps, since half may lie outside the exponents of a normal float.
    limit = form.bias - 1
    for _ in range(2):
        step = jnp.clip(half, -limit, limit)
        value = value * power_of_two(step, value.dtype)
        half = half - step
    return value


def common_zero(*arrays: Any) -> Any:
    """An int32 zero that varies, inside `jax.shard_map`, over every mesh axis over which one of the arrays does.

    The branches of a `lax.cond` and the carry of a loop have to agree in this, constants included: `tie` gives it to
    them. Made from data, since how an array tells its axes differs between versions of JAX. Arrays that are None are
    skipped.
    """
    zero = jnp.zeros((), jnp.int32)
    for x in arrays:
        if x is not None:
            first = x[(slice(1),) * x.ndim]
            zero = zero | jnp.sum((first != first).astype(jnp.int32), dtype=jnp.int32)
    return zero & np.int32(0)


def tie(zero: Any, tree: Any) -> Any:
    """Arrays unchanged but for varying as ``zero`` does (a negative zero becomes a positive one).

    XLA fuses it into what makes the arrays: no difference in time was measured.
    """

    def add(x: Any) -> Any:
        return x | (zero != 0) if x.dtype == jnp.bool_ else x + zero.astype(x.dtype)

    return jax.tree_util.tree_map(add, tree)
