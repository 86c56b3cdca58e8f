"""Exact sums of non-negative floats whose range is not known, kept as integers.

A float ``m 2^E`` with 1 <= m < 2 goes to the bin of 64 exponents that E falls into; inside a bin it is an integer, so
sums are exact, and merging two sums is integer addition, limb by limb. One bin is centred on 1: energies from 2^-32 to
2^32 take one pass over the data, and each further bin that is occupied takes another.

An accumulator is a uint32 array ``[BINS, LIMBS]`` of normalized limbs (`emma_jax.numerics.limbs`); it has room for
2^48 terms, from 2^-544 to 2^480. Smaller ones (float64 only) count as zero, larger ones are refused by `in_range`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from emma_jax.numerics import limbs
from emma_jax.numerics.floats import common_zero, format_of, power_of_two, tie

__all__ = [
    "BINS",
    "LIMBS",
    "LOG_SHAPE",
    "SHAPE",
    "as_float",
    "grouped",
    "in_range",
    "log2_ratio",
    "log2_total",
    "log2_words",
    "ratio",
    "sum_scaled",
    "total",
]

BINS, LIMBS = 16, 11
SHAPE = (BINS, LIMBS)
_WIDTH = 64
_LEAST = -32 - _WIDTH * (BINS // 2)
# The integer in a bin counts units of 2^(_LEAST + 64 bin - _UNIT): 52 mantissa bits of a float64 and 3 to make words.
_UNIT = 55


def in_range(value: tuple[Any, Any]) -> Any:
    """Whether a scaled float is finite and small enough to be summed."""
    x, exponent = value
    return jnp.isfinite(x) & (_exponent(x) + exponent < _LEAST + _WIDTH * BINS)


def _exponent(x: Any) -> Any:
    """Exponent of a positive float from its bits."""
    form = format_of(x.dtype)
    return (lax.bitcast_convert_type(x, form.integer) >> form.mantissa).astype(jnp.int32) - form.bias


def sum_scaled(numbers: dict[str, tuple[Any, Any]], weights: Any = None) -> dict[str, Any]:
    """Exact ``sum_i weights_i value_i 2**exponent_i`` of several numbers per sample, as accumulators.

    Args:
      numbers: by name, (value, exponent): float32 or float64 ``[n]``, not negative (zero and subnormals add nothing),
        and int32 ``[n]`` or None for zeros. All of one float dtype.
      weights: uint32 ``[n]`` or None.
    """
    placed = {name: _place(value, exponent) for name, (value, exponent) in numbers.items()}
    highest, lowest = _span([index for index, _, _ in placed.values()])

    def add_bin(carry: Any) -> Any:
        at, sums = carry
        words = {k: _words(jnp.where(i == at, mantissa, 0), shift) for k, (i, mantissa, shift) in placed.items()}
        for k, found in limbs.sum_many(words, weights).items():
            # Only the last limb is wide. float32 fills the words from the second on.
            last, skip = found[-1:], 2 * (4 - len(words[k]))
            strict = jnp.concatenate([found[:-1], last & np.uint32(0xFFFF), last >> np.uint32(16)])
            row = jnp.pad(strict, (skip, LIMBS - skip - strict.shape[0]))
            sums = sums | {k: lax.dynamic_update_index_in_dim(sums[k], row, at, 0)}
        return at - np.int32(1), sums

    zero = common_zero(weights, *(x for parts in placed.values() for x in parts))
    empty = {k: jnp.zeros(SHAPE, jnp.uint32) for k in numbers}
    highest, start = tie(zero, (highest, empty))
    sums: dict[str, Any] = lax.while_loop(lambda carry: carry[0] >= lowest, add_bin, (highest, start))[1]
    return sums


def grouped(number: tuple[Any, Any], size: int = 32) -> tuple[Any, Any]:
    """Float sums of so many neighbours each, ``[n]`` to ``[ceil(n / size)]``: for samples so short that `sum_scaled`
    would cost more than everything else (measured: eight reads of vectors of three complex components, against one).

    Args:
      number: (value, exponent) as `sum_scaled` takes them; without exponents, sums are not to overflow.
      size: how many neighbours.
    """
    value, exponent = number
    if exponent is None:
        rows = jnp.pad(value, (0, -value.shape[0] % size)).reshape(-1, size)
        return lax.reduce(rows, jnp.zeros((), value.dtype), lax.add, (1,)), None
    value, exponent = (jnp.pad(x, (0, -x.shape[0] % size)).reshape(-1, size) for x in (value, exponent))
    least = np.int32(-_WIDTH * BINS)
    places = jnp.where(value > 0, exponent, least)
    top = lax.reduce(places, least, lax.max, (1,))
    # What is further below the largest of its group vanishes anyway.
    below = jnp.maximum(places - top[:, None], 1 - format_of(value.dtype).bias)
    scaled = value * power_of_two(below, value.dtype)
    return lax.reduce(scaled, jnp.zeros((), value.dtype), lax.add, (1,)), jnp.where(top > least, top, 0)


def _place(value: Any, exponent: Any) -> tuple[Any, Any, Any]:
    """Bin (-1 for none), integer mantissa and shift within the bin of every sample."""
    form = format_of(value.dtype)
    bits = lax.bitcast_convert_type(value, form.integer)
    place = _exponent(value) - _LEAST + (0 if exponent is None else exponent)
    normal = (bits >= form.integer(1 << form.mantissa)) & (place >= 0) & (place < _WIDTH * BINS)
    mantissa = (bits & form.integer((1 << form.mantissa) - 1)) | form.integer(1 << form.mantissa)
    return jnp.where(normal, place >> 6, -1), mantissa, place & 63


def _span(indices: Sequence[Any]) -> tuple[Any, Any]:
    """Highest and lowest bin in use (-1 and 0 if none is), in one reduction over lanes, which XLA on CPU vectorises."""
    nothing = np.int32(-BINS)
    top, bottom = indices[0], jnp.where(indices[0] >= 0, -indices[0], nothing)
    for index in indices[1:]:
        top, bottom = jnp.maximum(top, index), jnp.maximum(bottom, jnp.where(index >= 0, -index, nothing))
    ends = []
    for x, least in ((top, np.int32(-1)), (bottom, nothing)):
        ends.append(jnp.pad(x, (0, -x.shape[0] % 8), constant_values=least).reshape(-1, 8))

    def largest(a: Any, b: Any) -> Any:
        return lax.max(a[0], b[0]), lax.max(a[1], b[1])

    for axis in (0, 0):
        ends = list(lax.reduce(tuple(ends), (np.int32(-1), nothing), largest, (axis,)))
    return ends[0], -ends[1]


def _words(mantissa: Any, shift: Any) -> list[Any]:
    """``mantissa << (shift + 3)`` (float64; 32 more bits lie below it for float32) as little-endian 32-bit words."""
    high = shift >= 32
    if mantissa.dtype == jnp.int64:
        x = mantissa.astype(jnp.uint64) << np.uint64(3)
        by = (shift & 31).astype(jnp.uint64)
        low, top = x << by, jnp.where(by > 0, x >> ((np.uint64(64) - by) & np.uint64(63)), np.uint64(0))
        words = [(low & np.uint64(0xFFFFFFFF)).astype(jnp.uint32), (low >> np.uint64(32)).astype(jnp.uint32)]
        words.append(top.astype(jnp.uint32))
    else:
        x = mantissa.astype(jnp.uint32)
        by = (shift & 31).astype(jnp.uint32)
        words = [x << by, jnp.where(by > 0, x >> ((np.uint32(32) - by) & np.uint32(31)), np.uint32(0))]
    zero = np.uint32(0)
    padded = [zero, *words, zero]
    return [jnp.where(high, below, here) for below, here in itertools.pairwise(padded)]


def total(sums: Any, xp: Any) -> tuple[Any, Any]:
    """The sum in an accumulator ``[..., BINS, LIMBS]`` as a scaled float: float64 for NumPy, float32 for jax.numpy.

    Returns:
      (value, exponent) ``[...]`` with value in [2^-87, 2^90), or zero for an empty sum.
    """
    dtype = np.float64 if xp is np else np.float32
    in_bin = limbs.to_float(sums, xp, _LEAST_UNIT)
    occupied = xp.any(sums != 0, axis=-1)
    top = BINS - 1 - xp.argmax(occupied[..., ::-1], axis=-1)
    value = xp.zeros(top.shape, dtype)
    # Bins far below the top one vanish; small terms first.
    for below in (3, 2, 1, 0):
        at = xp.maximum(top - below, 0)
        part = xp.take_along_axis(in_bin, at[..., None], axis=-1)[..., 0] * dtype(2.0 ** (-_WIDTH * below))
        value = value + xp.where(top >= below, part, dtype(0))
    return value, (_WIDTH * (top - BINS // 2)).astype(xp.int32)


# The centre bin's unit, 2^(-32 - 55).
_LEAST_UNIT = -32 - _UNIT


def as_float(sums: Any, xp: Any) -> Any:
    """The sum in an accumulator as a plain float."""
    value, exponent = total(sums, xp)
    return xp.ldexp(value, xp.where(value > 0, exponent, xp.int32(0)))


def log2_ratio(a: tuple[Any, Any], b: tuple[Any, Any], xp: Any) -> Any:
    """log2(a / b) of two totals: -inf for a zero, NaN for b zero."""
    dtype = a[0].dtype
    defined = b[0] > 0
    quotient = a[0] / xp.where(defined, b[0], dtype.type(1))
    value = xp.log2(xp.where(quotient > 0, quotient, dtype.type(1))) + (a[1] - b[1]).astype(dtype)
    value = xp.where(a[0] > 0, value, dtype.type(-np.inf))
    return xp.where(defined, value, dtype.type(np.nan))


def ratio(a: tuple[Any, Any], b: tuple[Any, Any], xp: Any) -> tuple[Any, Any]:
    """a / b of two totals as a scaled float, NaN for b zero; the exponent is even."""
    dtype = a[0].dtype
    defined = b[0] > 0
    quotient = a[0] / xp.where(defined, b[0], dtype.type(1))
    return xp.where(defined, quotient, dtype.type(np.nan)), a[1] - b[1]


# --- means of logarithms ----------------------------------------------------------------------------------------
#
# log2 of a scaled float splits into an exponent, an integer, and log2 of a mantissa in [1, 2). The sum over samples is
# kept in units of 2^-32, offset by 2^11 so that every term is positive: 5e-10 dB, whatever the order of the samples.

LOG_SHAPE = (6,)
_LOG_OFFSET = 1 << 11


def log2_words(value: tuple[Any, Any], keep: Any) -> list[Any]:
    """Words of ``log2(value) + 2^11`` in units of 2^-32 for positive scaled floats, zero where ``keep`` is False."""
    x, exponent = value
    form = format_of(x.dtype)
    f = x.dtype.type
    bits = lax.bitcast_convert_type(x, form.integer)
    one = form.integer(form.bias << form.mantissa)
    mantissa = lax.bitcast_convert_type((bits & form.integer((1 << form.mantissa) - 1)) | one, x.dtype)
    digits = min(32, form.mantissa + 1)
    fraction = jnp.minimum(jnp.round(jnp.log2(mantissa) * f(2.0**digits)), f(2.0**digits - 1))
    low = fraction.astype(jnp.uint32) << np.uint32(32 - digits)
    high = (_exponent(x) + exponent + _LOG_OFFSET).astype(jnp.uint32)
    return [jnp.where(keep, w, np.uint32(0)) for w in (low, high)]


def log2_total(sums: Any, count: Any, xp: Any) -> Any:
    """The sum of logarithms in ``sums`` ``[..., 6]``, where ``count`` (limbs ``[..., 2]``) `log2_words` are added
    up."""
    offset = limbs.multiply(limbs.strict(count), limbs.from_int(_LOG_OFFSET << 32, 3))
    positive = limbs.compare_ge(sums, offset)
    more, less = xp.where(positive[..., None], sums, offset), xp.where(positive[..., None], offset, sums)
    size = limbs.to_float(limbs.subtract(more, less), xp, -32)
    return xp.where(positive, size, -size)
