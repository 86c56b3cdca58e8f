"""Energies of rows, whatever their range: sums of squares and products as scaled floats.

The plain sum of squares is right unless a square under- or overflows, which its own value tells: below ``m 2^-101``
(float32) a flushed square could matter, above 2^120 the sum may be infinite. So a batch takes the plain way, one read
of the data, unless some row falls outside that range; then all rows are scaled by a power of two taken from their
largest entry first, which costs some five reads. Rows of up to `SHORT` entries are summed by one variadic reduction,
since XLA on CPU does not vectorise a short row (measured 2 to 8 times slower otherwise).

Complex rows: a sum of squared real and imaginary parts takes ten reads of the array on CPU, since XLA fuses its strided
reads into the reduction. The real part of ``a conj(b)``, kept out of that fusion by a `lax.reduce_precision` that
changes nothing, and reduced together with its companions takes one and a half.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from emma_jax.numerics.floats import (
    common_zero,
    exponent_of,
    format_of,
    lift,
    magnitude_bits,
    power_of_two,
    ratio,
    root,
    tie,
)

__all__ = ["VectorPair", "error_and_reference", "pooled", "row_scale", "row_sums", "vector_pairs"]

SHORT = 32
_BLOCK = 2048
# One variadic reduction adds one term after the other, so blocks are short.
_TERMS = 256
_POOL = 96
_LANES = 32


def row_sums(rows: Sequence[Any], together: bool = False) -> list[Any]:
    """Sums along the last axis of several arrays ``[n, m]`` of one shape.

    ``together``: long rows by one variadic reduction too.
    """
    n, m = rows[0].shape
    if m <= SHORT:
        return _reduced(rows, 1)
    if not together:
        return [_long_sum(x) for x in rows]
    main = m - m % _TERMS
    sums = [] if main == m else [_reduced([x[:, main:] for x in rows], 1)]
    if main:
        blocks = _reduced([x[:, :main].reshape(n, -1, _TERMS) for x in rows], 2)
        sums.append(row_sums(blocks) if main > _TERMS else [x[:, 0] for x in blocks])
    return sums[0] if len(sums) == 1 else [a + b for a, b in zip(*sums)]


def _reduced(rows: Sequence[Any], axis: int) -> list[Any]:
    zeros = tuple(jnp.zeros((), x.dtype) for x in rows)
    return list(lax.reduce(tuple(rows), zeros, lambda a, b: tuple(x + y for x, y in zip(a, b)), (axis,)))


def _is_complex(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.complexfloating))


def _product(a: Any, b: Any) -> Any:
    """Real part of ``a conj(b)``, entry by entry; for real arrays ``a b``."""
    return _alone(jnp.real(a * jnp.conj(b))) if _is_complex(a) else a * b


def _alone(x: Any) -> Any:
    """Float entries unchanged, but kept out of a fusion with the reduction that follows."""
    info = jnp.finfo(x.dtype)
    return lax.reduce_precision(x, exponent_bits=info.nexp, mantissa_bits=info.nmant)


def _top_bits(x: Any) -> Any:
    """`magnitude_bits` of real entries; of complex ones that of the larger part."""
    if not _is_complex(x):
        return magnitude_bits(x)
    re, im = (magnitude_bits(part) for part in (jnp.real(x), jnp.imag(x)))
    return jnp.maximum(re, im)


def _real_rows(x: Any) -> Any:
    """Rows of real and imaginary parts, for complex rows."""
    return jnp.concatenate([jnp.real(x), jnp.imag(x)], axis=1) if _is_complex(x) else x


def _long_sum(x: Any) -> Any:
    """Sum of each long row.

    XLA forms a plain sum of products as a tree, without writing the products out. It does so at a twentieth of the
    speed for a single row, which is cut into blocks instead. Blocks for all rows would have the products written out,
    which takes three times as long.
    """
    n, m = x.shape
    if n > 1 or m <= 2 * _BLOCK:
        return jnp.sum(x, axis=1)
    main = m - m % _BLOCK
    total = jnp.sum(jnp.sum(x[:, :main].reshape(n, -1, _BLOCK), axis=2), axis=1)
    return total if main == m else total + jnp.sum(x[:, main:], axis=1)


def _row_max(x: Any) -> Any:
    """Largest magnitude of each row of finite entries; subnormals may read as zero."""
    m = x.shape[-1]
    if m <= SHORT:
        return lax.reduce(jnp.abs(x), jnp.zeros((), x.dtype), lax.max, (1,))
    return jnp.max(jnp.abs(x), axis=1)


def row_scale(x: Any) -> tuple[Any, Any, Any]:
    """Rows of finite entries brought near 1: (scaled, exponent, any) with ``x = scaled * 2**exponent``.

    Args:
      x: finite ``[n, m]``.

    Returns:
      scaled ``[n, m]`` with its largest magnitude in [1, 2) (or zero), the exponent int32 ``[n]``, and whether a row
      has an entry that is not zero, subnormal ones included, ``[n]``.
    """
    form = format_of(x.dtype)
    f = x.dtype.type
    by = 4 * form.mantissa
    small = _row_max(x) < f(2.0 ** (by - form.bias + 1))
    # Rows near the least normal float are lifted away from it first, with their subnormals.
    x = jnp.where(small[:, None], lift(x, by), x)
    top = lax.optimization_barrier(_row_max(x))
    exponent = jnp.clip(exponent_of(top), 1 - form.bias, form.bias - 1)
    scale = lax.optimization_barrier(power_of_two(-exponent, x.dtype))
    return x * scale[:, None], exponent - jnp.where(small, by, 0), top > 0


def error_and_reference(p: Any, t: Any, mask: Any) -> tuple[tuple[Any, Any], tuple[Any, Any], Any]:
    """Energies of ``p - t`` and of ``t`` per row.

    Args:
      p, t: rows ``[n, m]`` of one dtype, float or complex.
      mask: bool ``[n]`` or None; other rows may hold anything and come out arbitrary.

    Returns:
      (error, reference, finite): two scaled floats ``[n]`` (exact zero only for an error or reference that is zero),
      and whether all entries of both rows are finite.
    """
    form = format_of(jnp.finfo(p.dtype).dtype)
    f = jnp.finfo(p.dtype).dtype.type
    least = f(max(p.shape[-1], 1) * 2.0 ** (form.mantissa + 4 - form.bias))
    most = f(2.0 ** (form.bias - 7))

    def plain(p: Any, t: Any) -> tuple[Any, Any]:
        d = p - t
        error, reference = row_sums([_product(d, d), _product(t, t)], together=_is_complex(d))
        return error, reference

    error, reference = lax.optimization_barrier(plain(p, t))
    inside = (error > least) & (error < most) & (reference > least) & (reference < most)
    good = jnp.all(inside if mask is None else inside | ~mask)
    zero, true = jnp.zeros(error.shape, jnp.int32), jnp.ones(error.shape, bool)
    common = common_zero(p, t)

    def keep(p: Any, t: Any, error: Any, reference: Any) -> Any:
        del p, t
        return tie(common, ((error, zero), (reference, zero), true))

    def scaled(p: Any, t: Any, error: Any, reference: Any) -> Any:
        del error, reference
        return tie(common, _scaled_energies(_real_rows(p), _real_rows(t)))

    found: tuple[tuple[Any, Any], tuple[Any, Any], Any] = lax.cond(good, keep, scaled, p, t, error, reference)
    return found


def pooled(p: Any, t: Any, mask: Any) -> tuple[Any, Any, Any]:
    """Energies of ``p - t`` and of ``t`` in sums over some hundred neighbouring entries, whatever rows they belong to.

    Args:
      p, t: rows ``[n, m]`` of one dtype, float or complex.
      mask: bool ``[n]`` or None; other rows count nothing.

    Returns:
      (error, reference, good): ``[g]`` twice, and whether the totals are right: all entries are finite, no sum has
      overflown, and what squares may have lost by underflow is below 2^-24 of either total.
    """
    form = format_of(jnp.finfo(p.dtype).dtype)
    f = jnp.finfo(p.dtype).dtype.type
    size = p.size
    if mask is None and not _is_complex(p) and size % (_LANES * _LANES) == 0:
        error, reference = _pooled_floats(p, t)
    else:
        d = p - t
        terms = [_product(d, d), _product(t, t)]
        if mask is not None:
            terms = [jnp.where(mask[:, None], x, f(0)) for x in terms]
        terms = [x.reshape(-1) for x in terms]
        main = size - size % _POOL
        error, reference = row_sums([x[:main].reshape(-1, _POOL) for x in terms], together=True)
        if main < size:
            tail = row_sums([x[None, main:] for x in terms], together=True)
            error, reference = jnp.append(error, tail[0]), jnp.append(reference, tail[1])
    least, most = f(size * 2.0 ** (form.mantissa + 4 - form.bias)), f(2.0 ** (form.bias - 7))
    good = jnp.all(jnp.stack([(jnp.sum(x) > least) & jnp.all(x < most) for x in (error, reference)]))
    return error, reference, good


def _pooled_floats(p: Any, t: Any) -> tuple[Any, Any]:
    """`pooled` for float rows of a round number of entries, at the speed of a read.

    XLA on CPU adds up products in rows of 32 without writing them out, on every version; the rows have to be there
    before the products, since a change of shape between the two costs four times as much.
    """
    p, t = lax.optimization_barrier(tuple(x.reshape(-1, _LANES) for x in (p, t)))
    d = p - t
    sums = lax.optimization_barrier((jnp.sum(d * d, axis=1), jnp.sum(t * t, axis=1)))
    error, reference = _reduced([x.reshape(-1, _LANES) for x in sums], 1)
    return error, reference


def _scaled_energies(p: Any, t: Any) -> tuple[tuple[Any, Any], tuple[Any, Any], Any]:
    """`error_and_reference` for entries of any size."""
    finite = jnp.all(jnp.isfinite(p) & jnp.isfinite(t), axis=1)
    p, t = (jnp.where(finite[:, None], x, 0) for x in (p, t))
    d, e = _row_difference(p, t)
    rows, own, _ = row_scale(jnp.concatenate([d, t]))
    (energy,) = row_sums([rows * rows])
    (error, reference), (e_d, e_t) = jnp.split(energy, 2), jnp.split(own, 2)
    return (error, 2 * (e + e_d)), (reference, 2 * e_t), finite


def _row_difference(p: Any, t: Any) -> tuple[Any, Any]:
    """``p - t`` of finite rows as ``d * 2**exponent[:, None]``, in which no entry that counts over- or underflows.

    One scale for both sides will not do: next to an entry of 2^18 that both have, a difference of 2^-109 in another
    would be flushed, and all but perfect read as perfect.
    """
    form = format_of(p.dtype)
    f = p.dtype.type
    by = 3 * form.bias // 4
    plain = p - t
    top = lax.optimization_barrier(_row_max(plain))
    huge = ~jnp.isfinite(top)
    # In a row of such small differences entries from 2^-20 on are equal on both sides, since floats there lie further
    # apart; what is left may be subnormal, and is lifted first.
    tiny = top < f(2.0 ** -(form.mantissa + 21))
    low = (jnp.abs(p) < f(2.0**-20)) & (jnp.abs(t) < f(2.0**-20))
    lifted = jnp.where(low, lift(p, by) - lift(t, by), f(0))
    d = jnp.where(huge[:, None], p * f(0.25) - t * f(0.25), jnp.where(tiny[:, None], lifted, plain))
    return d, jnp.where(huge, 2, jnp.where(tiny, -by, 0)).astype(jnp.int32)


class VectorPair(NamedTuple):
    """What two vectors of every sample ``[n]`` have in common.

    Attributes:
      error, reference: energies of ``p - t`` and ``t`` as scaled floats; on the plain way their exponents are None (for
        zero), and 512 of either add up without overflow.
      local: ``||p - t|| / ||t||``, meaningless where ``dark``.
      cosine: ``<p, t> / (||p|| ||t||)``, 0 where either is zero.
      finite: whether every entry is; None on the plain way, where all are.
      dark: whether t is zero.
    """

    error: tuple[Any, Any]
    reference: tuple[Any, Any]
    local: Any
    cosine: Any
    finite: Any
    dark: Any


def vector_pairs(
    p: Any,
    t: Any,
    mask: Any,
    then: Callable[[VectorPair], Any],
    start: Any = 0,
    size: int | None = None,
    plain_way: bool | None = None,
) -> Any:
    """Errors and angles between short vectors, put to use: ``then`` gets them within either branch, where XLA knows
    which exponents and flags are constants and never writes them out (measured: a third of the time).

    Args:
      p, t: as for `error_and_reference`.
      mask: bool ``[size]`` or None, likewise.
      then: from a `VectorPair` to any arrays.
      start, size: the rows of p and t in question; all of them by default. Cut out here, they are not written out
        for the branch that does not look at them (which would take as long as everything else).
      plain_way: True for the plain way alone, and (what ``then`` makes, whether the plain way may be taken); False for
        the other one alone; None for a branch, which compiles both.

    The plain way is taken if every vector of the batch is zero or has its largest entry between 2^-32 and 2^56
    (float32; 2^-256 and 2^230 for float64): then no sum of squares overflows, nor leaves the range of
    `emma_jax.numerics.accumulate`, and what a flushed square could change is below 2^-29 of ``||t||``.
    """
    form = format_of(jnp.finfo(p.dtype).dtype)
    f, integer = jnp.finfo(p.dtype).dtype.type, form.integer
    quarter = (form.bias + 1) // 4
    least, most = (integer((form.bias + e) << form.mantissa) for e in (-quarter, min(2 * quarter - 8, 230)))

    size = p.shape[0] if size is None else size

    def cut(x: Any) -> Any:
        return x if size == x.shape[0] else lax.dynamic_slice_in_dim(x, start, size)

    whole = p, t
    common = common_zero(*whole)

    def scaled(p: Any, t: Any, plain: Any) -> Any:
        del plain
        p, t = _real_rows(cut(p)), _real_rows(cut(t))
        error, reference, finite = _scaled_energies(p, t)
        (a, _, _), (b, _, there) = (row_scale(jnp.where(finite[:, None], x, 0)) for x in (p, t))
        dot, tt, pp = row_sums([a * b, b * b, a * a])
        local = root(ratio(error, (jnp.where(there, reference[0], f(1)), reference[1])))
        return tie(common, then(VectorPair(error, reference, local, _cosine(dot, tt, pp), finite, ~there)))

    if plain_way is False:
        return scaled(*whole, None)
    p, t = cut(p), cut(t)
    d = p - t
    sums = tuple(_product(a, b) for a, b in ((d, d), (t, t), (p, p), (p, t)))
    tops = (_top_bits(t), _top_bits(p))
    if p.shape[-1] <= SHORT:
        zeros = (*(jnp.zeros((), x.dtype) for x in sums), *(jnp.zeros((), integer) for _ in tops))

        def combine(a: Any, b: Any) -> Any:
            return (*(x + y for x, y in zip(a[:4], b[:4])), *(lax.max(x, y) for x, y in zip(a[4:], b[4:])))

        plain = tuple(lax.reduce((*sums, *tops), zeros, combine, (1,)))
    else:
        plain = (*row_sums(sums), *(jnp.max(x, axis=1) for x in tops))
    plain = lax.optimization_barrier(plain)
    inside = jnp.ones((size,), bool)
    for top in plain[4:]:
        inside = inside & ((top == 0) | ((top >= least) & (top <= most)))
    good = jnp.all(inside if mask is None else inside | ~mask)

    def keep(p: Any, t: Any, plain: Any) -> Any:
        del p, t
        error, reference, other, dot, top_t, _ = plain
        dark = top_t == 0
        local = jnp.sqrt(error / jnp.where(dark, f(1), reference))
        cosine = _cosine(dot, reference, other)
        return tie(common, then(VectorPair((error, None), (reference, None), local, cosine, None, dark)))

    if plain_way:
        return keep(*whole, plain), good
    return lax.cond(good, keep, scaled, *whole, plain)


def _cosine(dot: Any, a: Any, b: Any) -> Any:
    """``dot / sqrt(a b)`` in [-1, 1]; 0 where a or b is 0."""
    f = dot.dtype.type
    norms = jnp.sqrt(a) * jnp.sqrt(b)
    return jnp.clip(dot / jnp.where(norms > 0, norms, f(1)), f(-1), f(1))
