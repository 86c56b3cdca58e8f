"""Mean angular error.

Goal: how far a predicted direction is from the true one, as a continuous quantity on the circle.
Convention: degrees; any finite angle is legal; the error of one sample is at most half a period.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax

from emma_jax import checks
from emma_jax.errors import EvaluationError, ShapeError
from emma_jax.metrics.base import Metric, State, both, mean, real_dtype, tally
from emma_jax.numerics import limbs

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
        p, t = self._degrees(preds), self._degrees(labels)
        dtype = jnp.promote_types(p.dtype, t.dtype)
        p, t = p.astype(dtype), t.astype(dtype)
        sums = _sums32 if dtype == jnp.float32 else _sums64
        # One flag tells of angles that are not finite or too far apart to subtract exactly. Only then are they looked
        # at one by one, and whole turns taken off by `rem`, exact at any size and slow. Both branches hold the whole
        # reduction: a branch over the angles alone would write them to memory (measured: four times the time).
        fast = sums(p, t, mask, weights, self.period)
        odd = fast.pop("odd")

        def slow() -> tuple[Any, Any]:
            finite = jnp.isfinite(p) & jnp.isfinite(t)
            turn = dtype.type(self.period)
            a, b = (lax.rem(jnp.where(finite, x, dtype.type(0)), jnp.full_like(x, turn)) for x in (p, t))
            bad = tally(mask, weights, p.shape, n_nonfinite=~finite)["n_nonfinite"]
            return bad, sums(a, b, both(mask, finite), weights, self.period)["total"]

        # Where nothing is odd, the count of odd samples is the zero that the count of non-finite ones has to be.
        bad, total = lax.cond(jnp.any(odd != 0), slow, lambda: (odd, fast["total"]))
        return fast | {"n_nonfinite": bad, "total": total}

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
# So many digits are added in uint32: their sums stay below 2^31.
_ROW = 8192
# From this difference on whole turns are taken off each angle first, which is slow.
_WIDE = np.float32(2.0**13)


def _sums32(p: Any, t: Any, keep: Any, weights: Any, period: int) -> State:
    """Sum of float32 distances, each rounded once, to 2^-46 degrees; ``odd`` counts samples for the slow path."""
    bits, size = _digits32(p, t, period)
    if weights is not None:
        words = _as_words(*((b - offset).astype(jnp.int32) for b, offset in zip(bits, _OFFSETS)))
        if keep is not None:
            words = [jnp.where(keep, w, jnp.uint32(0)) for w in words]
        sums = tally(keep, weights, p.shape, odd=size >= _bits(_WIDE), total=words)
        total = sums["total"]
    else:
        if keep is not None:
            bits = [jnp.where(keep, b, offset) for b, offset in zip(bits, _OFFSETS)]
            size = jnp.where(keep, size, np.uint32(0))
        total, largest = _add_digits(bits, size)
        sums = tally(keep, None, p.shape) | {"odd": limbs.widen(largest >= _bits(_WIDE))}
    return sums | {"total": jnp.concatenate([jnp.zeros_like(total[:2]), total])}


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


def _add_digits(bits: list[Any], size: Any) -> tuple[Any, Any]:
    """The exact sum of all samples in units of 2^-46 degrees, limbs ``[6]``, and the largest ``size``."""
    arrays = (*bits, size)
    n = size.shape[0]
    rows = [_reduce_rows([x[: n - n % _ROW].reshape(-1, _ROW) for x in arrays])] if n >= _ROW else []
    if n % _ROW or not n:
        rows.append(_reduce_rows([x[n - n % _ROW :].reshape(1, -1) for x in arrays]))
    counts = np.full(n // _ROW + len(rows) - (n >= _ROW), _ROW, np.uint32)
    if n % _ROW or not n:
        counts[-1] = n % _ROW
    *digits, largest = (jnp.concatenate(parts) for parts in zip(*rows))
    # Sums of bits are right modulo 2^32; less the magic they lie in [0, 2^31), the lower ones in [-2^31, 2^31).
    exact = [d - counts * offset for d, offset in zip(digits, _OFFSETS)]
    lower = {k: [x ^ np.uint32(1 << 31)] for k, x in zip("bc", exact[1:])}
    sums = limbs.sum_many({"a": [exact[0]], **lower})
    total = limbs.shift_left(sums["a"], 36, 6) + limbs.shift_left(sums["b"], 18, 6)
    total = limbs.normalize(total + limbs.shift_left(sums["c"], 0, 6))
    offset = counts.shape[0] * ((1 << 49) + (1 << 31))
    return limbs.subtract(total, jnp.asarray(limbs.from_int(offset, 6))), jnp.max(largest)


def _reduce_rows(arrays: list[Any]) -> list[Any]:
    """Sums along rows modulo 2^32, of the last array the maximum, in one pass."""
    zeros = tuple(jnp.uint32(0) for _ in arrays)

    def combine(a: Any, b: Any) -> tuple[Any, ...]:
        return (*(x + y for x, y in zip(a[:-1], b[:-1])), jnp.maximum(a[-1], b[-1]))

    return list(lax.reduce(tuple(arrays), zeros, combine, (1,)))


def _as_words(first: Any, second: Any, third: Any) -> list[Any]:
    """``first 2^36 + second 2^18 + third`` >= 0 from int32 digits, as two little-endian uint32 words."""
    low = (second << 18).astype(jnp.uint32)
    high = (first << 4) + (second >> 14)
    word = low + third.astype(jnp.uint32)
    carry = (word < low).astype(jnp.int32) - (third < 0).astype(jnp.int32)
    return [word, (high + carry).astype(jnp.uint32)]


def _sums64(p: Any, t: Any, keep: Any, weights: Any, period: int) -> State:
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
    return tally(keep, weights, p.shape, odd=odd, total=words)
