"""Mean angular error.

Goal: how far a predicted direction is from the true one, as a continuous quantity on the circle.
Convention: degrees; any finite angle is legal; the error of one sample is at most half a period.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from emma_jax import checks
from emma_jax.errors import EvaluationError, ShapeError
from emma_jax.metrics.base import COUNTERS, Metric, State, both, mean, real_dtype, tally
from emma_jax.numerics import limbs
from emma_jax.numerics.floats import common_zero, tie

__all__ = ["MeanAngularError"]

# The state's unit is 2^-78 degrees. Float32 distances are rounded to 2^-46: angles of 2^-23 degrees and more are
# multiples
# of that, so their differences are exact.
_EXPONENT = -78


@dataclass(frozen=True, init=False)
class MeanAngularError(Metric):
    r"""Mean wrapped absolute angular error.

    .. math:: \mathrm{MAE} = \frac1N \sum_i \min(\delta_i, P - \delta_i), \quad \delta_i = |\hat\theta_i - \theta_i|
    \bmod P

    The wrapped difference of each pair is formed in integers (a fixed point of 2^-46 degrees, finer for float64)
    and summed
    exactly, so any order, split or padding gives the same bits.

    Shapes: ``preds`` [N] and ``labels`` [N], any real dtype; ``where``, ``weights`` [N].
    Units: degrees; the value always is, and ``unit="rad"`` only changes how inputs are read.
    Direction: lower is better; bounds 0 to period / 2. Guessing uniformly costs 90 degrees for period 360.
    Errors: NonFiniteError for NaN and infinity; ShapeError; EmptyEvaluationError.
    Reference: R. O. Schmidt, "Multiple emitter location and signal parameter estimation", IEEE Trans. Antennas Propag.
    AP-34(3), 276-280, 1986, for direction as a continuous angle.

    Attributes:
      period: 360, or 180 for axial data (a linear array's ambiguity, polarisation tilt).
      input_unit: "deg" or "rad", given to the constructor as ``unit``.
    """

    period: int = 360
    input_unit: str = "deg"
    structured: ClassVar[bool] = False
    _exact_terms: ClassVar[bool] = True
    _decomposes: ClassVar[bool] = True
    direction: ClassVar[str] = "lower"
    unit: ClassVar[str] = "deg"
    bounds: ClassVar[tuple[float, float]] = (0.0, 180.0)

    def __init__(self, period: int = 360, unit: str | None = None, *, input_unit: str = "deg") -> None:
        unit = unit or input_unit
        if period not in (180, 360) or not isinstance(period, int):
            raise EvaluationError(f"must be 180 or 360; got {period!r}", task=self.name, argument="period")
        if unit not in ("deg", "rad"):
            raise EvaluationError(f'must be "deg" or "rad"; got {unit!r}', task=self.name, argument="unit")
        object.__setattr__(self, "period", period)
        object.__setattr__(self, "input_unit", unit)

    def _sample_shape(self, preds: Any, labels: Any, task: str) -> tuple[int, ...]:
        if preds.shape != labels.shape or preds.ndim != 1:
            raise ShapeError(
                f"needs preds [N] and labels [N]; got preds {preds.shape} and labels {labels.shape}",
                task=task,
                argument="preds",
            )
        for x, argument in ((preds, "preds"), (labels, "labels")):
            real_dtype(x, argument, task)
        return tuple(labels.shape)

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"total": (8,)}

    def _stats(self, preds: Any, labels: Any, mask: Any, weights: Any) -> State:
        empty: Any = {k: np.zeros(2, np.uint32) for k in COUNTERS} | {"total": np.zeros(8, np.uint32)}
        return self._absorb(empty, preds, labels, mask, weights)

    def _absorb(self, state: State, preds: Any, labels: Any, mask: Any, weights: Any) -> State:
        p, t = self._in_degrees(preds, labels)
        dtype = p.dtype
        sums = _sums32 if dtype == jnp.float32 else _sums64
        # One flag tells of angles that are not finite or too far apart to subtract exactly. Only then are they looked
        # at one by one, and whole turns taken off by `rem`, exact at any size and slow. Both branches hold the whole
        # reduction: a branch over the angles alone would write them to memory (measured: four times the time). And both
        # hold the state: adding to it afterwards would take more kernels than the sum (measured in a training step).
        found = sums(p, t, mask, weights, self.period)
        zero = common_zero(p, t, mask, weights)

        def slow() -> tuple[Any, Any]:
            # Converted again: as arguments of the branch, narrow or integer angles would be written out as floats.
            p, t = self._in_degrees(preds, labels)
            finite = jnp.isfinite(p) & jnp.isfinite(t)
            turn = dtype.type(self.period)
            a, b = (lax.rem(jnp.where(finite, x, dtype.type(0)), jnp.full_like(x, turn)) for x in (p, t))
            bad = tally(mask, weights, p.shape, n_nonfinite=~finite)["n_nonfinite"]
            again = sums(a, b, both(mask, finite), weights, self.period)
            return tie(zero, (limbs.add(state["n_nonfinite"], bad), again.onto(state["total"])))

        def fast() -> tuple[Any, Any]:
            return tie(zero, (jnp.asarray(state["n_nonfinite"]), found.onto(state["total"])))

        bad, total = lax.cond(found.odd, slow, fast)
        counted: Any = found.counts | {"total": np.zeros(8, np.uint32)}
        return self._merge(state, counted) | {"n_nonfinite": bad, "total": total}

    def _in_degrees(self, preds: Any, labels: Any) -> tuple[Any, Any]:
        """Both as degrees in the wider of their float types."""
        p, t = self._degrees(preds), self._degrees(labels)
        dtype = jnp.promote_types(p.dtype, t.dtype)
        return p.astype(dtype), t.astype(dtype)

    def _degrees(self, x: Any) -> Any:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            # Whole turns leave an integer exactly, whatever its size; what is left fits any float.
            x = x.astype(jnp.int32) if x.dtype.itemsize < 4 or x.dtype == jnp.bool_ else x
            x = lax.rem(x, jnp.full_like(x, self.period)) if self.input_unit == "deg" else x
        if x.dtype not in (jnp.float32, jnp.float64):
            x = x.astype(jnp.float64 if x.dtype.itemsize > 4 else jnp.float32)
        if self.input_unit == "deg":
            return x
        degrees = x * x.dtype.type(180.0 / np.pi)
        # Fused with a later subtraction in one place and not in another, the product would be two numbers: a selection
        # stands between them.
        return jnp.where(degrees == degrees, degrees, x)

    def _value(self, state: Any, xp: Any) -> tuple[Any, dict[str, Any]]:
        used = limbs.to_float(state["n"], xp) - limbs.to_float(state["n_nonfinite"], xp)
        return mean(limbs.to_float(state["total"], xp, _EXPONENT), used, xp), {}

    def _explain(self, preds: Any, labels: Any, mask: Any, task: str) -> None:
        for x, argument in ((preds, "preds"), (labels, "labels")):
            checks.raise_nonfinite(task, argument, x, mask, infinite=True, what="an angle must be finite")


def _difference(p: Any, t: Any, period: int) -> tuple[Any, Any, Any]:
    """min(delta, period - delta) per sample as an unevaluated sum of two floats, and whether that is not exact.

    The difference is formed as a float and its rounding error (Knuth's two-sum); a whole number of turns leaves
    exactly, since it is a small integer and the remainder a difference of close floats. No product is rounded, so a
    compiler's choice to fuse multiply and add cannot change a bit. In plain floats, ``d - 360 round(d / 360)`` is off
    by 1e-5 degrees near a wrap.

    Args:
      p, t: float64 degrees of one shape.
      period: 180 or 360.

    Returns:
      (high, low, odd): the distance is high + low, high >= 0; ``odd`` where an angle is not finite, or 2^24 and more.
    """
    f = p.dtype.type
    turn, per_turn, half = f(period), f(1.0 / period), f(period / 2)
    odd = ~((jnp.abs(p) < f(2.0**24)) & (jnp.abs(t) < f(2.0**24)))
    s = p - t
    back = s - p
    error = (p - (s - back)) - (t + back)
    s = s - turn * jnp.round(s * per_turn)
    high = s + error
    low = error - (high - s)
    # Fold the sign away; the error may also carry a difference of half a turn to the other side.
    low = jnp.where(high < f(0), -low, low)
    high = jnp.abs(high)
    beyond = (high > half) | ((high == half) & (low > f(0)))
    return jnp.where(beyond, turn - high, high), jnp.where(beyond, -low, low), odd


# Adding one of these to a small float leaves its multiple of 2^-10, 2^-28 or 2^-46 in the low bits of the sum.
_MAGIC = (np.float32(2.0**13), np.float32(1.5 * 2.0**-5), np.float32(1.5 * 2.0**-23))
# What that adds to the three digits; the middle one is a sum of two.
_OFFSETS = tuple(np.uint32(k * int(m.view(np.uint32)) & 0xFFFFFFFF) for k, m in zip((1, 2, 1), _MAGIC))
# The digits' units in the state's, as powers of two.
_PLACES = (68, 50, 32)
# So many digits are added in uint32: their sums stay below 2^31.
_ROW = 8192
# From this difference on whole turns are taken off each angle first, which is slow.
_WIDE = np.float32(2.0**13)


class _Sum(NamedTuple):
    """The sum of a batch's distances, not yet carried.

    Attributes:
      counts: the counters of the batch; ``n_nonfinite`` is zero.
      words: makes pairs of a uint32 scalar and the power of two that it counts, in the state's units. A function, to be
        called where they are added: on the way into a branch each would be an array of its own.
      less: what to take off their sum.
      odd: whether a sample needs the slow path (the sum is wrong then).
    """

    counts: State
    words: Callable[[], list[tuple[Any, int]]]
    less: int
    odd: Any

    def onto(self, total: Any) -> Any:
        """A state's total ``[8]`` with this sum added."""
        return limbs.add_words(total, self.words(), self.less)


def _limb_words(total: Any, bits: int) -> list[tuple[Any, int]]:
    """Limbs ``[L]`` as words, the lowest of which counts ``2**bits``."""
    return [(total[i], bits + 16 * i) for i in range(total.shape[-1])]


def _sums32(p: Any, t: Any, keep: Any, weights: Any, period: int) -> _Sum:
    """Sum of float32 distances, each rounded once, to 2^-46 degrees."""
    if keep is not None:
        # A masked sample becomes a pair of equal angles, whose digits are the offsets: two selections, not one a digit.
        p, t = (jnp.where(keep, x, np.float32(0)) for x in (p, t))
    bits, size = _digits32(p, t, period)
    if weights is not None:
        pair = _as_words(*((b - offset).astype(jnp.int32) for b, offset in zip(bits, _OFFSETS)))
        sums = tally(keep, weights, p.shape, odd=size >= _bits(_WIDE), total=pair)
        total, odd = sums.pop("total"), jnp.any(sums.pop("odd") != 0)
        return _Sum(sums, lambda: _limb_words(total, 32), 0, odd)
    words, less, kept, largest = _add_digits(bits, keep, size)
    counts = tally(None, None, p.shape) | ({} if kept is None else {"n": limbs.widen(kept)})
    return _Sum(counts, words, less, largest >= _bits(_WIDE))


def _digits32(p: Any, t: Any, period: int) -> tuple[list[Any], Any]:
    """The float32 distance of every sample as digits worth 2^-10, 2^-28 and 2^-46 degrees, and |p - t| for a check.

    A digit is read off the bits of a sum with a power of two, for a conversion to integer would cost more than all
    the rest (XLA makes it saturate); `_OFFSETS` are still to be taken off. The two lower digits are signed. As in
    `_difference` no product is rounded and the rounding error of p - t is carried along; a sign is folded by its bit,
    which costs less than a selection.

    Returns:
      (digits, size): three uint32 arrays, right where ``size`` < bits of 2^13; ``size`` is the bits of |p - t|, which
      order as the floats do, infinities and NaN last.
    """
    f = np.float32
    turn, half, sign = f(period), f(period / 2), np.uint32(1 << 31)
    s = p - t
    back = s - p
    error = (p - (s - back)) - (t + back)
    r = s - turn * jnp.round(s * f(1.0 / period))
    error = _flip(error, _bits(r + error) & sign)
    r = jnp.abs(r)
    # Beyond half a turn the other way round is shorter; at exactly half a turn the error decides. Both candidates are
    # positive, so their bits order as they do, and the integer minimum needs no care for NaN.
    error = _flip(error, _bits((half - r) - error) & sign)
    r = lax.bitcast_convert_type(jnp.minimum(_bits(r), _bits(turn - r)), jnp.float32)
    # The error is below the last bit of r: what is left of r below 2^-28 is 0 where the error reaches above 2^-29.
    first, r = _split(r, _MAGIC[0])
    second, r = _split(r, _MAGIC[1])
    third, rest = _split(r + error, _MAGIC[1])
    return [first, second + third, _bits(rest + _MAGIC[2])], _bits(jnp.abs(s))


def _bits(x: Any) -> Any:
    return x.view(np.uint32) if isinstance(x, np.generic) else lax.bitcast_convert_type(x, jnp.uint32)


def _flip(x: Any, sign: Any) -> Any:
    """x with its sign changed where ``sign`` is 2^31."""
    return lax.bitcast_convert_type(_bits(x) ^ sign, jnp.float32)


def _split(x: Any, magic: Any) -> tuple[Any, Any]:
    """The bits of ``x + magic``, and what of x is not in them (exactly)."""
    total = x + magic
    # `reduce_precision` changes nothing and costs nothing, but keeps XLA from folding (x + magic) - magic into x.
    return _bits(total), x - (lax.reduce_precision(total, 8, 23) - magic)


def _add_digits(bits: list[Any], keep: Any, size: Any) -> tuple[Callable[[], list[tuple[Any, int]]], int, Any, Any]:
    """The exact sum of all samples as `_Sum` holds it (words, and what to take off), how many are kept (None without a
    mask), and the largest ``size``."""
    arrays = (*bits, *(() if keep is None else (keep.astype(jnp.uint32),)), size)
    n = size.shape[0]
    rest = n % _ROW
    rows = [_reduce([x[: n - rest].reshape(-1, _ROW) for x in arrays], 1)] if n >= _ROW else []
    counts = np.full(n // _ROW, _ROW, np.uint32)
    if rest or not n:
        rows.append([x[None] for x in _reduce([x[n - rest :] for x in arrays], 0)])
        counts = np.append(counts, np.uint32(rest))
    *sums, largest = (parts[0] if len(parts) == 1 else jnp.concatenate(parts) for parts in zip(*rows))
    digits = sums[: len(bits)]
    kept = None if keep is None else jnp.sum(sums[-1], dtype=jnp.uint32)

    def words() -> list[tuple[Any, int]]:
        # Sums of bits are right modulo 2^32; less the magic they lie in [0, 2^31), the lower ones in [-2^31, 2^31).
        exact = [d - counts * offset for d, offset in zip(digits, _OFFSETS)]
        exact[1:] = [x ^ np.uint32(1 << 31) for x in exact[1:]]
        if len(counts) == 1:
            return [(x[0], place) for x, place in zip(exact, _PLACES)]
        sums = limbs.sum_many({str(place): [x] for x, place in zip(exact, _PLACES)})
        return [word for place in _PLACES for word in _limb_words(sums[str(place)], place)]

    return words, len(counts) * sum(1 << (31 + place) for place in _PLACES[1:]), kept, jnp.max(largest)


def _reduce(arrays: list[Any], axis: int) -> list[Any]:
    """Sums along an axis modulo 2^32, of the last array the maximum, in one pass."""
    zeros = tuple(jnp.uint32(0) for _ in arrays)

    def combine(a: Any, b: Any) -> tuple[Any, ...]:
        return (*(x + y for x, y in zip(a[:-1], b[:-1])), jnp.maximum(a[-1], b[-1]))

    return list(lax.reduce(tuple(arrays), zeros, combine, (axis,)))


def _as_words(first: Any, second: Any, third: Any) -> list[Any]:
    """``first 2^36 + second 2^18 + third`` >= 0 from int32 digits, as two little-endian uint32 words."""
    low = (second << 18).astype(jnp.uint32)
    high = (first << 4) + (second >> 14)
    word = low + third.astype(jnp.uint32)
    carry = (word < low).astype(jnp.int32) - (third < 0).astype(jnp.int32)
    return [word, (high + carry).astype(jnp.uint32)]


def _sums64(p: Any, t: Any, keep: Any, weights: Any, period: int) -> _Sum:
    """Sum of float64 distances, each truncated to 2^-78 degrees."""
    f = np.float64
    high, low, odd = _difference(p, t, period)
    scaled = high * f(2.0**22)
    whole = jnp.floor(scaled)
    rest = ((scaled - whole) + low * f(2.0**22)) * f(2.0**24)
    middle = jnp.floor(rest)
    # `middle` may be negative or reach 2^24 by the rounding error: a carry brings it into range.
    carried = middle.astype(jnp.int32)
    whole = (whole.astype(jnp.int32) + (carried >> 24)).astype(jnp.uint32)
    last = jnp.floor((rest - middle) * f(2.0**32)).astype(jnp.uint32)
    middle = carried.astype(jnp.uint32) & np.uint32(0xFFFFFF)
    words = [last, middle | (whole << np.uint32(24)), whole >> np.uint32(8)]
    if keep is not None:
        words = [jnp.where(keep, w, jnp.uint32(0)) for w in words]
    sums = tally(keep, weights, p.shape, odd=odd, total=words)
    total, any_odd = sums.pop("total"), jnp.any(sums.pop("odd") != 0)
    return _Sum(sums, lambda: _limb_words(total, 0), 0, any_odd)
