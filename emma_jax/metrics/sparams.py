"""S-parameter metrics of the EMVal protocol: real-and-imaginary RMSE, weighted magnitude and phase errors.

Goal: how well predicted S-parameters match simulated ones: as complex numbers (`RealImagRMSE`), in dB (`MagWMAE`) and
in phase (`PhaseWMAE`), the last two with weights that fade out below -20 dB, where neither has engineering meaning.
Conventions: every entry (frequency, receiving port, excited port) is a sample, so ``where`` serves partial excitation.
Magnitudes are floored at 1e-10 (-200 dB) before a logarithm. The phase of an exact zero is taken as 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax

from emma_jax.errors import EvaluationError, ShapeError
from emma_jax.metrics.base import Metric, State, both, mean, tally
from emma_jax.metrics.channels import check_finite, common_float, same_arrays, used_float
from emma_jax.numerics import accumulate, energies
from emma_jax.numerics.planes import as_planes, flat, is_complex

__all__ = ["MagWMAE", "PhaseWMAE", "RealImagRMSE"]

_DB = 10.0 * math.log10(2.0)
_LOG2_FLOOR = 2.0 * math.log2(1e-10)


@dataclass(frozen=True)
class RealImagRMSE(Metric):
    r"""Root mean square error over real and imaginary parts.

    .. math:: \mathrm{riRMSE} = \sqrt{\frac{1}{2N} \sum_{ijf} [\operatorname{Re}(\hat S_{ijf} - S_{ijf})]^2
       + [\operatorname{Im}(\hat S_{ijf} - S_{ijf})]^2}

    The mean runs over 2N real numbers; over N complex ones it would be :math:`\sqrt 2` larger.

    Shapes: ``preds`` [F, i, j] complex (any shape; float planes with ``iq_axis``), ``labels`` the same; ``where``,
    ``weights`` the same.
    Units: dimensionless.
    Direction: lower is better, 0 is the optimum.
    Errors: NonFiniteError; ShapeError; EmptyEvaluationError.
    Reference: EMVal evaluation protocol 1.0.0, EMVal-SP.

    Attributes:
      iq_axis: axis of length 2 that holds real and imaginary planes, or None.
    """

    iq_axis: int | None = None
    direction: ClassVar[str] = "lower"
    unit: ClassVar[str] = "1"
    structured: ClassVar[bool] = False
    bounds: ClassVar[tuple[float, float]] = (0.0, math.inf)

    @property
    def name(self) -> str:
        """The protocol's name."""
        return "real_imag_rmse"

    def _arrange(self, preds: Any, labels: Any, task: str) -> tuple[Any, Any]:
        return as_planes(preds, self.iq_axis, "preds", task), as_planes(labels, self.iq_axis, "labels", task)

    def _sample_shape(self, preds: Any, labels: Any, task: str) -> tuple[int, ...]:
        shape = same_arrays(preds, labels, 1, task, what="the same shape [F, i, j]")
        if not is_complex(labels):
            raise ShapeError("must be complex, or float planes with iq_axis", task=task, argument="labels")
        return shape

    def _chunk_axes(self, preds: Any, labels: Any) -> int:
        del preds
        return len(labels.shape)

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"error": accumulate.SHAPE}

    def _stats(self, preds: Any, labels: Any, mask: Any, weights: Any) -> State:
        p, t, mask, weights = _entries(preds, labels, mask, weights)
        error, _, finite = energies.error_and_reference(p, t, mask)
        finite = finite & accumulate.in_range(error)
        used = both(mask, finite)
        sums = accumulate.sum_scaled({"error": (jnp.where(used, error[0], 0), error[1])}, weights)
        return tally(mask, weights, finite.shape, n_nonfinite=~finite) | sums

    def _value(self, state: Any, xp: Any) -> tuple[Any, dict[str, Any]]:
        used = used_float(state, xp)
        error, exponent = accumulate.total(state["error"], xp)
        root = xp.sqrt(mean(error, used.dtype.type(2) * used, xp))
        return xp.ldexp(root, xp.where(error > 0, exponent // 2, 0)), {}

    def _explain(self, preds: Any, labels: Any, mask: Any, task: str) -> None:
        preds, labels = (np.asarray(x) for x in self._arrange(preds, labels, task))
        check_finite(preds, labels, mask, task, "an S-parameter")


def _entries(preds: Any, labels: Any, mask: Any, weights: Any) -> tuple[Any, Any, Any, Any]:
    """Entries as real rows ``[n, 2]``, with mask and weights ``[n]``."""
    axes = len(labels.shape)
    p, t = common_float(flat(preds, axes), flat(labels, axes))
    mask, weights = (None if x is None else x.reshape(-1) for x in (mask, weights))
    return p, t, mask, weights


@dataclass(frozen=True)
class MagWMAE(Metric):
    r"""Weighted mean absolute error of magnitudes in dB.

    .. math:: \mathrm{mag\text{-}wMAE} = \frac{\sum_{ijf} w_{ijf} |\hat M_{ijf} - M_{ijf}|}{\sum_{ijf} w_{ijf}}, \quad
       M = 20 \log_{10} \max(|S|, 10^{-10}), \quad w = \sigma\!\left(\frac{M - N_0}{\tau}\right)

    The weight comes from the truth alone; only ratios of weights matter, so they are kept as mantissa and exponent, and
    a board of nothing but deep nulls still has a value.

    Shapes: ``preds`` [F, i, j] complex (any shape; float planes with ``iq_axis``), ``labels`` the same; ``where``,
    ``weights`` the same.
    Units: dB.
    Direction: lower is better, 0 is the optimum.
    Errors: NonFiniteError; ShapeError; EmptyEvaluationError.
    Reference: EMVal evaluation protocol 1.0.0, EMVal-SP.

    Attributes:
      knee_db: N0, where the weight is one half.
      slope_db: tau.
      iq_axis: axis of length 2 that holds real and imaginary planes, or None.
    """

    knee_db: float = -20.0
    slope_db: float = 2.0
    iq_axis: int | None = None
    direction: ClassVar[str] = "lower"
    unit: ClassVar[str] = "dB"
    structured: ClassVar[bool] = False
    bounds: ClassVar[tuple[float, float]] = (0.0, math.inf)
    _name: ClassVar[str] = "mag_wmae"

    def __post_init__(self) -> None:
        if not math.isfinite(self.knee_db):
            raise EvaluationError(f"must be finite; got {self.knee_db!r}", task=self.name, argument="knee_db")
        if not (math.isfinite(self.slope_db) and self.slope_db > 0):
            raise EvaluationError(f"must be positive; got {self.slope_db!r}", task=self.name, argument="slope_db")

    @property
    def name(self) -> str:
        """The protocol's name."""
        return self._name

    def _arrange(self, preds: Any, labels: Any, task: str) -> tuple[Any, Any]:
        return as_planes(preds, self.iq_axis, "preds", task), as_planes(labels, self.iq_axis, "labels", task)

    def _sample_shape(self, preds: Any, labels: Any, task: str) -> tuple[int, ...]:
        return RealImagRMSE(self.iq_axis)._sample_shape(preds, labels, task)

    def _chunk_axes(self, preds: Any, labels: Any) -> int:
        del preds
        return len(labels.shape)

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"error": accumulate.SHAPE, "weight": accumulate.SHAPE}

    def _stats(self, preds: Any, labels: Any, mask: Any, weights: Any) -> State:
        p, t, mask, weights = _entries(preds, labels, mask, weights)
        finite = jnp.all(jnp.isfinite(p) & jnp.isfinite(t), axis=1)
        p, t = (jnp.where(finite[:, None], x, 0) for x in (p, t))
        error, extra = self._errors(p, t)
        used = both(mask, finite)
        w, exponent = self._weight(t)
        pair = {"error": w * error, "weight": w}
        sums = accumulate.sum_scaled({k: (jnp.where(used, v, 0), exponent) for k, v in pair.items()}, weights)
        flags = {k: finite & v for k, v in extra.items()}
        return tally(mask, weights, finite.shape, n_nonfinite=~finite, **flags) | sums

    def _errors(self, p: Any, t: Any) -> tuple[Any, dict[str, Any]]:
        """Error of every entry ``[n]``, and flags to count."""
        (power_p, e_p, level_p), (power_t, e_t, level_t) = _log2_power(p), _log2_power(t)
        f = p.dtype.type
        floor = f(_LOG2_FLOOR)
        # Where neither is floored, the logarithm of the ratio: small errors keep all their digits.
        above = (level_p > floor) & (level_t > floor)
        ratio = jnp.log2(jnp.where(above, power_p, f(1)) / jnp.where(above, power_t, f(1)))
        close = ratio + f(2) * (e_p - e_t).astype(p.dtype)
        return f(_DB) * jnp.abs(jnp.where(above, close, level_p - level_t)), {}

    def _weight(self, t: Any) -> tuple[Any, Any]:
        """Logistic weight of every entry as a scaled float: log2 of it split into an integer and the rest."""
        f = t.dtype.type
        x = (f(_DB) * _log2_power(t)[2] - f(self.knee_db)) * f(1 / (self.slope_db * math.log(2.0)))
        # log2 sigma(x ln 2) = min(x, 0) - log2(1 + 2^-|x|)
        exponent = jnp.minimum(x, 0) - jnp.log2(f(1) + jnp.exp2(-jnp.abs(x)))
        whole = jnp.floor(exponent)
        return jnp.exp2(exponent - whole), jnp.maximum(whole, f(-400)).astype(jnp.int32)

    def _value(self, state: Any, xp: Any) -> tuple[Any, dict[str, Any]]:
        pair = [accumulate.total(state[k], xp) for k in ("error", "weight")]
        quotient, exponent = accumulate.ratio(pair[0], pair[1], xp)
        return xp.ldexp(quotient, xp.where(quotient > 0, exponent, 0)), {}

    def _explain(self, preds: Any, labels: Any, mask: Any, task: str) -> None:
        RealImagRMSE(self.iq_axis)._explain(preds, labels, mask, task)


def _log2_power(x: Any) -> tuple[Any, Any, Any]:
    """|x|^2 of entries ``[n, 2]`` as ``power * 4**exponent``, and ``2 log2 max(|x|, 1e-10)``."""
    f = x.dtype.type
    scaled, exponent, _ = energies.row_scale(x)
    power = lax.optimization_barrier(scaled[:, 0] ** 2 + scaled[:, 1] ** 2)
    level = jnp.log2(jnp.where(power > 0, power, f(1))) + f(2) * exponent.astype(x.dtype)
    return power, exponent, jnp.where(power > 0, jnp.maximum(level, f(_LOG2_FLOOR)), f(_LOG2_FLOOR))


@dataclass(frozen=True)
class PhaseWMAE(MagWMAE):
    r"""Weighted mean absolute error of phases, wrapped, in radians.

    .. math:: \mathrm{phase\text{-}wMAE} = \frac{\sum_{ijf} w_{ijf} |\operatorname{wrap}_{[-\pi, \pi]}
       (\hat\varphi_{ijf} - \varphi_{ijf})|}{\sum_{ijf} w_{ijf}}

    with the weights of `MagWMAE`. Where the truth is exactly 0 it has no phase: the error is 0, and the entry is
    counted in ``validity.n_excluded``. A prediction of exactly 0 has phase 0, so it costs :math:`|\varphi|`; ``aux``
    counts those as ``n_zero_preds``.

    Shapes: ``preds`` [F, i, j] complex (any shape; float planes with ``iq_axis``), ``labels`` the same; ``where``,
    ``weights`` the same.
    Units: rad, 0 to pi.
    Direction: lower is better, 0 is the optimum.
    Errors: NonFiniteError; ShapeError; EmptyEvaluationError.
    Reference: EMVal evaluation protocol 1.0.0, EMVal-SP.

    Attributes:
      knee_db: N0, where the weight is one half.
      slope_db: tau.
      iq_axis: axis of length 2 that holds real and imaginary planes, or None.
    """

    unit: ClassVar[str] = "rad"
    bounds: ClassVar[tuple[float, float]] = (0.0, math.pi)
    _name: ClassVar[str] = "ph_wmae"

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        return super()._state_shapes() | {"n_zero_preds": (2,)}

    def _errors(self, p: Any, t: Any) -> tuple[Any, dict[str, Any]]:
        (p, _, seen), (t, _, there) = energies.row_scale(p), energies.row_scale(t)
        # The angle between the two, from their product: no angle of either is rounded, and nothing has to be wrapped.
        p_re, p_im = jnp.where(seen, p[:, 0], 1), jnp.where(seen, p[:, 1], 0)
        dot, cross = p_re * t[:, 0] + p_im * t[:, 1], p_im * t[:, 0] - p_re * t[:, 1]
        # A fused multiply-add would leave a rounding error of equal entries.
        equal = (p[:, 0] == t[:, 0]) & (p[:, 1] == t[:, 1])
        error = jnp.where(there & ~equal, jnp.abs(jnp.arctan2(cross, dot)), 0)
        return error, {"n_excluded": ~there, "n_zero_preds": there & ~seen}

    def _value(self, state: Any, xp: Any) -> tuple[Any, dict[str, Any]]:
        value, _ = super()._value(state, xp)
        low, high = state["n_zero_preds"][..., 0], state["n_zero_preds"][..., 1]
        count = low.astype(np.int64) + (high.astype(np.int64) << 16) if xp is np else low + (high << np.uint32(16))
        return value, {"n_zero_preds": count}
