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
    AP-34(3), 1986, for direction as a continuous angle.

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
        # One flag tells of angles that are not finite or too large to subtract exactly. Only then are they looked at
        # one by
        # one, and whole turns taken off by `rem`, exact at any size and slow. Both branches hold the whole reduction: a
        # branch over the angles alone would write them to memory (measured: four times the time).
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
        return x if self.input_unit == "deg" else x * x.dtype.type(180.0 / np.pi)

    def _value(self, state: Any, xp: Any) -> tuple[Any, dict[str, Any]]:
        used = limbs.to_float(state["n"], xp) - limbs.to_float(state["n_nonfinite"], xp)
        return mean(limbs.to_float(state["total"], xp, _EXPONENT), used, xp), {}

    def _explain(self, preds: Any, labels: Any, mask: Any, task: str) -> None:
        for x, argument in ((preds, "preds"), (labels, "labels")):
            checks.raise_nonfinite(task, argument, x, mask, infinite=True, what="an angle must be finite")


def _difference(p: Any, t: Any, period: int) -> tuple[Any, Any, Any]:
    """min(delta, period - delta) per sample as an unevaluated sum of two floats, and whether that is not exact.

    The difference is formed as a float and its rounding error (Knuth's two-sum); a whole number of turns leaves
    exactly,
    since it is an integer below 2^24 in float32 and the remainder a difference of close floats. No product is
    rounded, so
    a compiler's choice to fuse multiply and add cannot change a bit. In plain floats, ``d - 360 round(d / 360)`` is
    off by
    1e-5 degrees near a wrap.

    Args:
      p, t: float32 or float64 degrees of one shape.
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


def _sums32(p: Any, t: Any, keep: Any, weights: Any, period: int) -> State:
    """Sum of float32 distances to 2^-46 degrees each, by digits of 2^-15, 2^-36 and 2^-46 degrees.

    A digit is read off the bits of a sum with a power of two. A conversion to integer would do the same and cost
    more than
    all the rest, since XLA makes it saturate.
    """
    f = np.float32
    high, low, odd = _difference(p, t, period)
    scaled = high * f(2.0**15)
    whole = _nearest(scaled, f(2.0**23))
    rest = (scaled - whole.astype(jnp.float32)) * f(2.0**21) + low * f(2.0**36)
    middle = _nearest(rest, f(1.5 * 2.0**23))
    last = _nearest((rest - middle.astype(jnp.float32)) * f(2.0**10), f(1.5 * 2.0**23))
    # The lower digits are signed; with 2^31 added they are a uint32, and as many are taken off the sum.
    fraction = lax.bitcast_convert_type((middle << 10) + last, jnp.uint32) ^ np.uint32(1 << 31)
    digits = {"whole": whole.astype(jnp.uint32), "fraction": fraction}
    if keep is not None:
        digits = {k: jnp.where(keep, v, jnp.uint32(0)) for k, v in digits.items()}
    sums = tally(keep, weights, p.shape, odd=odd, **{k: [v] for k, v in digits.items()})
    fraction = sums.pop("fraction")
    total = limbs.shift_left(sums.pop("whole"), 31, 6) + jnp.concatenate([fraction, jnp.zeros_like(fraction[:2])])
    total = limbs.subtract(limbs.normalize(total), limbs.shift_left(sums["n"], 31, 6))
    return sums | {"total": jnp.concatenate([jnp.zeros_like(total[:2]), total])}


def _nearest(x: Any, magic: Any) -> Any:
    """The integer nearest to x, |x| < 2^22 (0 <= x < 2^23 with magic 2^23), by the bits of x + magic."""
    return lax.bitcast_convert_type(x + magic, jnp.int32) - magic.view(np.int32)


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
