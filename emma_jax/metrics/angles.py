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

# An error in degrees is an integer multiple of 2^-78: digits of 2^-22 (30 bits), 2^-46 (24 bits) and 2^-78 (32 bits).
# Float32 angles of 2^-23 degrees and more are multiples of 2^-46, so two digits hold them exactly; the third serves
# float64.
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
    direction: ClassVar[str] = "lower"
    unit: ClassVar[str] = "deg"
    bounds: ClassVar[tuple[float, float]] = (0.0, 180.0)

    def __init__(self, period: int = 360, unit: str | None = None, *, input_unit: str = "deg") -> None:
        unit = unit or input_unit
        if period not in (180, 360):
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
        a, finite_a = _fixed_point(p.astype(dtype), self.period)
        b, finite_b = _fixed_point(t.astype(dtype), self.period)
        finite = finite_a & finite_b
        keep = both(mask, finite)
        words = [jnp.where(keep, w, jnp.uint32(0)) for w in _circular_distance(a, b, self.period)]
        total = limbs.sum_words(words, weights)
        if len(words) == 2:  # float32: the lowest 32 bits of the sum are zero
            total = jnp.concatenate([jnp.zeros_like(total[:2]), total])
        return tally(mask, weights, finite.shape, n_nonfinite=~finite) | {"total": total}

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


def _fixed_point(x: Any, period: int) -> tuple[list[Any], Any]:
    """An angle modulo the period, near [-period/2, period/2], as signed digits of 2^-22, 2^-46 (and 2^-78) degrees.

    Every step is exact: the quotient times the period is an integer below 2^24 for |x| < 2^26, the remainder is a
    difference of close floats, and scaling is by powers of two; so a compiler's choice to fuse cannot change a bit.
    Larger
    angles go through ``rem``, which is exact at any size and several times slower; one branch per batch, not per
    sample.
    """
    f = x.dtype.type
    finite = jnp.isfinite(x)
    x = jnp.where(finite, x, f(0))
    large = jnp.max(jnp.abs(x), initial=f(0)) >= f(2**26)
    x = lax.cond(large, lambda v: lax.rem(v, jnp.full_like(v, period)), lambda v: v, x)
    x = x - f(period) * jnp.round(x * f(1.0 / period))
    scaled = x * f(2**22)
    whole = jnp.floor(scaled)
    digits = [whole.astype(jnp.int32)]
    rest = (scaled - whole) * f(2**24)
    whole = jnp.floor(rest)
    digits.append(whole.astype(jnp.int32))
    if x.dtype == jnp.float64:
        digits.append(jnp.floor((rest - whole) * f(2**31)).astype(jnp.int32))
    return digits, finite


def _circular_distance(a: list[Any], b: list[Any], period: int) -> list[Any]:
    """min(|a - b|, period - |a - b|) of fixed-point angles, as little-endian 32-bit words."""
    turn = np.int32(period << 22)
    half = np.int32(period << 21)
    d = a[0] - b[0]
    parts = [a[1] - b[1]] if len(a) == 2 else [a[1] - b[1], a[2] - b[2]]
    sizes = [1 << 24] if len(a) == 2 else [1 << 24, 1 << 31]
    if len(parts) == 2:  # the third digit has 31 bits: its difference fits int32
        borrow = parts[1] < 0
        parts[1] = parts[1].astype(jnp.uint32) & np.uint32(0x7FFFFFFF)
        parts[0] = parts[0] - borrow.astype(jnp.int32)
    borrow = parts[0] < 0
    parts[0] = jnp.where(borrow, parts[0] + sizes[0], parts[0])
    d = d - borrow.astype(jnp.int32)
    # d is the floor of the difference; wrap it into [-half, half).
    d = jnp.where(d >= half, d - turn, jnp.where(d < -half, d + turn, d))
    negative = d < 0
    middle = parts[0].astype(jnp.uint32)
    if len(parts) == 1:
        # -(d + m) = (-d - 1) + (1 - m) for a fraction m > 0.
        carry = (middle != 0).astype(jnp.int32)
        d = jnp.where(negative, -d - carry, d).astype(jnp.uint32)
        middle = jnp.where(negative, (np.uint32(1 << 24) - middle) & np.uint32(0xFFFFFF), middle)
        return [middle | (d << np.uint32(24)), d >> np.uint32(8)]
    low = parts[1]
    carry_low = (low != 0).astype(jnp.uint32)
    low_neg = (np.uint32(1 << 31) - low) & np.uint32(0x7FFFFFFF)
    middle_neg = (np.uint32(1 << 24) - middle - carry_low) & np.uint32(0xFFFFFF)
    carry = ((middle | low) != 0).astype(jnp.int32)
    d = jnp.where(negative, -d - carry, d).astype(jnp.uint32)
    middle = jnp.where(negative, middle_neg, middle)
    low = jnp.where(negative, low_neg, low) << np.uint32(1)
    return [low, middle | (d << np.uint32(24)), d >> np.uint32(8)]
