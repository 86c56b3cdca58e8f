"""Differentiable losses whose minimum is the metric's best value: train what is measured.

Goal: a gradient. Metrics stop gradients on purpose (ranks and medians have none, and a logged number should cost
nothing); these are their smooth neighbours.

Conventions, as in `optax.losses`: ``loss(predictions, targets) -> values`` with one value per sample, smaller is
better; average them with ``jnp.mean(values, where=where)``. Entries where ``where`` is False may hold anything, NaN
included: their value and gradient are 0. Shapes must agree, nothing is broadcast but ``where``. Half types and integers
are computed in float32. Gradients are finite wherever predictions and targets are, at zero error, zero energy and at
the wrap of an angle as well. For complex predictions `jax.grad` gives the conjugate of the direction of steepest
ascent, so an optimizer over complex parameters takes ``jnp.conj`` of it.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from emma_jax.errors import EvaluationError, ShapeError

__all__ = ["circular_loss", "nmse_loss", "si_sdr_loss", "soft_auc_loss", "sparameter_loss", "wrapped_absolute_loss"]

# EMVal-SP: entries below about -20 dB fade out over some 2 dB; magnitudes are floored before the logarithm.
_N0_DB, _TAU_DB, _FLOOR = -20.0, 2.0, 1e-10


def _inputs(
    name: str, predictions: ArrayLike, targets: ArrayLike, where: ArrayLike | None, sample_axes: int | None = None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Both arrays in one inexact dtype, excluded entries zeroed, and the mask over the sample axes (None: all)."""
    p, t = jnp.asarray(predictions), jnp.asarray(targets)
    if p.shape != t.shape or p.ndim < (sample_axes or 0):
        least = f" with at least {sample_axes} axes" if sample_axes else ""
        text = f"needs predictions and targets of one shape{least}; got {p.shape} and {t.shape}"
        raise ShapeError(text, task=name, argument="predictions")
    dtype = jnp.promote_types(jnp.promote_types(p.dtype, t.dtype), jnp.float32)
    p, t = p.astype(dtype), t.astype(dtype)
    shape = p.shape if sample_axes is None else p.shape[:sample_axes]
    mask = _mask(name, where, shape)
    spread = mask.reshape(mask.shape + (1,) * (p.ndim - mask.ndim))
    return jnp.where(spread, p, 0), jnp.where(spread, t, 0), mask


def _mask(name: str, where: ArrayLike | None, shape: tuple[int, ...]) -> jax.Array:
    if where is None:
        return jnp.ones(shape, bool)
    mask = jnp.asarray(where)
    if mask.dtype != jnp.bool_:
        raise EvaluationError(f"must be bool; got {mask.dtype}", task=name, argument="where")
    try:
        return jnp.broadcast_to(mask, shape)
    except ValueError:
        raise ShapeError(f"has shape {mask.shape} for samples {shape}", task=name, argument="where") from None


def _real(name: str, *arrays: jax.Array) -> None:
    if any(jnp.iscomplexobj(x) for x in arrays):
        raise EvaluationError("must be real", task=name, argument="predictions")


def _power(z: jax.Array) -> jax.Array:
    """|z|^2 without the square root, whose slope at zero is infinite."""
    return z.real**2 + z.imag**2 if jnp.iscomplexobj(z) else z * z


def _nonzero(x: jax.Array) -> jax.Array:
    """x, with 1 in place of 0, as a divisor."""
    return jnp.where(x == 0, 1, x)


def _peak(x: jax.Array, axis: int | tuple[int, ...] | None) -> jax.Array:
    """Largest magnitude along ``axis``, kept, as a constant to divide by before squaring: 1 where all is zero."""
    parts = jnp.maximum(jnp.abs(x.real), jnp.abs(x.imag)) if jnp.iscomplexobj(x) else jnp.abs(x)
    return _nonzero(lax.stop_gradient(jnp.max(parts, axis=axis, keepdims=True, initial=0)))


def _wrapped(
    name: str, predictions: ArrayLike, targets: ArrayLike, where: ArrayLike | None, period: float
) -> jax.Array:
    """Difference in [-period/2, period/2]."""
    if not 0.0 < period < math.inf:
        raise EvaluationError(f"must be positive and finite; got {period!r}", task=name, argument="period")
    p, t, _ = _inputs(name, predictions, targets, where)
    _real(name, p)
    d = p - t
    return d - period * jnp.round(d / period)


def circular_loss(
    predictions: ArrayLike, targets: ArrayLike, where: ArrayLike | None = None, *, period: float = 360.0
) -> jax.Array:
    r"""Smooth angular error, the surrogate of `MeanAngularError` that is flat nowhere but at 0 and at half a turn.

    .. math:: \ell = 1 - \cos\frac{2\pi(\hat\theta - \theta)}{P} = 2\sin^2\frac{\pi(\hat\theta - \theta)}{P}

    Args:
      predictions, targets: real angles ``[...]`` in the unit of ``period``.
      where: bool ``[...]``, broadcast.
      period: 360 for degrees, 180 for axial data, 2 pi for radians.

    Returns:
      ``[...]`` in [0, 2].

    Raises:
      EvaluationError: a complex input or an illegal ``period``; ShapeError for shapes that differ.
    """
    d = _wrapped("circular_loss", predictions, targets, where, period)
    return 2 * jnp.sin(jnp.pi / period * d) ** 2


def wrapped_absolute_loss(
    predictions: ArrayLike, targets: ArrayLike, where: ArrayLike | None = None, *, period: float = 360.0
) -> jax.Array:
    r"""The summand of `MeanAngularError` itself: the wrapped absolute difference.

    .. math:: \ell = \min(\delta, P - \delta), \quad \delta = |\hat\theta - \theta| \bmod P

    The slope is 1 or -1, and 0 at zero error.

    Args:
      predictions, targets: real angles ``[...]`` in the unit of ``period``.
      where: bool ``[...]``, broadcast.
      period: 360 for degrees, 180 for axial data, 2 pi for radians.

    Returns:
      ``[...]`` in [0, period / 2], in that unit.

    Raises:
      EvaluationError: a complex input or an illegal ``period``; ShapeError for shapes that differ.
    """
    d = _wrapped("wrapped_absolute_loss", predictions, targets, where, period)
    return d * lax.stop_gradient(jnp.sign(d))  # jnp.abs has slope 1 at zero


def nmse_loss(
    predictions: ArrayLike,
    targets: ArrayLike,
    where: ArrayLike | None = None,
    *,
    reduction: str = "ratio_of_sums",
) -> jax.Array:
    r"""Normalized squared error, linear: ten times the log of its mean is `NMSE` of that ``reduction``.

    .. math:: \ell_i = \frac{\lVert \hat H_i - H_i \rVert^2}{\frac1N \sum_k \lVert H_k \rVert^2}
       \quad\text{or}\quad \ell_i = \frac{\lVert \hat H_i - H_i \rVert^2}{\lVert H_i \rVert^2}

    It is kept linear because dB has an infinite slope at zero error. A sample whose true channel is zero has value and
    gradient 0, as the metric leaves it out. (With such samples in the batch, divide the mean of "mean_ratio" by the
    share of the others to get the metric; "ratio_of_sums" needs nothing.)

    Args:
      predictions, targets: real or complex ``[N, ...]``.
      where: bool ``[N]``.
      reduction: "ratio_of_sums", the energy of the batch in the denominator, or "mean_ratio", that of the sample.

    Returns:
      ``[N]``, dimensionless, at least 0.

    Raises:
      EvaluationError: an unknown ``reduction``; ShapeError for shapes that differ.
    """
    name = "nmse_loss"
    if reduction not in ("ratio_of_sums", "mean_ratio"):
        text = f'must be "ratio_of_sums" or "mean_ratio"; got {reduction!r}'
        raise EvaluationError(text, task=name, argument="reduction")
    p, t, mask = _inputs(name, predictions, targets, where, 1)
    rows = tuple(range(1, t.ndim))
    # Dividing by the largest entry first leaves the ratio as it is and keeps squares of 1e-20 away from underflow.
    scale = _peak(t, None if reduction == "ratio_of_sums" else rows)
    energy = jnp.sum(_power(t / scale), axis=rows)
    error = jnp.where(jnp.any(t != 0, axis=rows), jnp.sum(_power(p / scale - t / scale), axis=rows), 0)
    if reduction == "mean_ratio":
        return error / _nonzero(energy)
    count = jnp.sum(mask).astype(energy.dtype)
    return error * (count / _nonzero(jnp.sum(energy)))


def si_sdr_loss(
    predictions: ArrayLike,
    targets: ArrayLike,
    where: ArrayLike | None = None,
    *,
    clip_db: float = 60.0,
    zero_mean: bool = False,
) -> jax.Array:
    r"""Negative scale-invariant signal-to-distortion ratio in dB, levelling off smoothly at +- ``clip_db``.

    .. math:: \ell = 10 \log_{10} \frac{B + \varepsilon(A + B)}{A + \varepsilon(A + B)}, \quad
       A = \lVert \alpha s \rVert^2,\; B = \lVert \hat s - \alpha s \rVert^2,\;
       \alpha = \frac{s^H \hat s}{\lVert s \rVert^2},\; \varepsilon = 10^{-\mathrm{clip}/10}

    So a perfect estimate has gradient 0 instead of an infinite one, and 20 dB or more away from both ends the value is
    that of ``-SISDR`` to 0.05 dB. A silent estimate costs ``clip_db`` and has gradient 0: no direction out of it is
    better than its opposite. A silent target has value and gradient 0.

    Args:
      predictions, targets: real or complex signals ``[..., T]``; complex ones are compared up to a complex factor.
      where: bool ``[...]``, one per signal.
      clip_db: where the loss levels off, in [20, 100].
      zero_mean: whether each signal's mean is removed first.

    Returns:
      ``[...]`` dB, at most ``10 log10(1 + 10^(clip_db / 10))`` in magnitude: ``clip_db`` and at most 0.04.

    Raises:
      EvaluationError: an illegal ``clip_db``; ShapeError for shapes that differ.
    """
    name = "si_sdr_loss"
    if not 20.0 <= clip_db <= 100.0:
        raise EvaluationError(f"must be in [20, 100]; got {clip_db!r}", task=name, argument="clip_db")
    ndim = jnp.ndim(predictions)
    if ndim == 0:
        raise ShapeError("needs signals [..., T]; got a scalar", task=name, argument="predictions")
    p, t, mask = _inputs(name, predictions, targets, where, ndim - 1)
    # The value does not change with either scale, so the peaks may be constants of the gradient.
    p, t = p / _peak(p, -1), t / _peak(t, -1)
    if zero_mean:
        p, t = p - jnp.mean(p, axis=-1, keepdims=True), t - jnp.mean(t, axis=-1, keepdims=True)
    energy = jnp.sum(_power(t), axis=-1)
    alpha = jnp.sum(jnp.conj(t) * p, axis=-1) / _nonzero(energy)
    there = jnp.sum(_power(p), axis=-1) > 0
    kept = _power(alpha) * energy
    lost = jnp.sum(_power(p - alpha[..., None] * t), axis=-1)
    epsilon = 10.0 ** (-clip_db / 10)
    # A silent estimate would be 0/0, in the gradient too: it counts as pure distortion.
    kept, lost = jnp.where(there, kept, 0.0), jnp.where(there, lost, 1.0)
    both = epsilon * (kept + lost)
    value = 10 / math.log(10) * (jnp.log(lost + both) - jnp.log(kept + both))
    return jnp.where(mask & (energy > 0), value, 0)


def soft_auc_loss(
    predictions: ArrayLike, targets: ArrayLike, where: ArrayLike | None = None, *, temperature: float = 1.0
) -> jax.Array:
    r"""Pairwise logistic loss: the smooth upper bound of ``1 - AUC`` over the pairs of a batch.

    .. math:: \ell_{ij} = \log_2\bigl(1 + e^{-(s_i - s_j)/T}\bigr), \quad y_i = 1,\; y_j = 0

    A sample's value is the mean over its pairs, times N / (2 P) for one of P positives and N / (2 Q) for one of Q
    negatives, so that the mean over the N samples is the mean over all pairs. A tie costs 1. A batch with one class
    only is all zeros. Memory and time are quadratic in N: at N = 4096 a matrix of 67 MB.

    Args:
      predictions: real scores ``[N]``, higher for positives.
      targets: int or bool ``[N]``, 1 for a positive, 0 for a negative; anything else is in no pair.
      where: bool ``[N]``.
      temperature: T; small values come close to the step that AUC counts, and to its vanishing gradients.

    Returns:
      ``[N]``, at least 0.

    Raises:
      EvaluationError: complex scores, float targets or an illegal ``temperature``; ShapeError for other shapes than
        ``[N]``.
    """
    name = "soft_auc_loss"
    labels = jnp.asarray(targets)
    if not 0.0 < temperature < math.inf:
        raise EvaluationError(f"must be positive and finite; got {temperature!r}", task=name, argument="temperature")
    if not (jnp.issubdtype(labels.dtype, jnp.integer) or labels.dtype == jnp.bool_):
        raise EvaluationError(f"must be int or bool; got {labels.dtype}", task=name, argument="targets")
    if jnp.ndim(predictions) != 1:
        raise ShapeError(f"needs scores [N]; got {jnp.shape(predictions)}", task=name, argument="predictions")
    s, _, mask = _inputs(name, predictions, jnp.zeros_like(labels, bool).astype(jnp.int32), where)
    _real(name, s)
    y = labels.astype(jnp.int32)
    positive, negative = ((y == c) & mask for c in (1, 0))
    pairs = positive[:, None] & negative[None, :]
    cost = jnp.where(pairs, jax.nn.softplus((s[None, :] - s[:, None]) / temperature), 0) / math.log(2)
    n_positive, n_negative = (jnp.sum(x).astype(s.dtype) for x in (positive, negative))
    share = jnp.sum(mask).astype(s.dtype) / (2 * _nonzero(n_positive * n_negative))
    return share * (jnp.sum(cost, axis=1) + jnp.sum(cost, axis=0))


def sparameter_loss(predictions: ArrayLike, targets: ArrayLike, where: ArrayLike | None = None) -> jax.Array:
    r"""Weighted squared relative error of S-parameters, with the weights of EMVal's ``mag_wmae`` and ``ph_wmae``.

    .. math:: \ell = \frac{w}{\bar w} \frac{|\hat S - S|^2}{|S|^2}, \quad
       w = \sigma\Bigl(\frac{20 \log_{10} |S| - N_0}{\tau}\Bigr),\; N_0 = -20\,\mathrm{dB},\; \tau = 2\,\mathrm{dB}

    with the mean weight of the board over the present entries below the line. For small errors the fraction is
    :math:`(\tfrac{\ln 10}{20} \Delta M)^2 + \Delta\varphi^2`, magnitude error in dB and phase error in radians, so one
    smooth loss trains both; it is finite at a predicted zero, where neither dB nor phase is, and deep nulls
    fade out, since w falls faster than :math:`|S|^4`.

    Args:
      predictions, targets: complex ``[..., F, i, j]``: boards, frequencies, receiving and excited ports.
      where: bool ``[..., F, i, j]``, broadcast (partial excitation).

    Returns:
      ``[..., F, i, j]``, dimensionless, at least 0.

    Raises:
      ShapeError: for shapes that differ, or fewer than three axes.
    """
    name = "sparameter_loss"
    if jnp.ndim(predictions) < 3:
        raise ShapeError(f"needs [..., F, i, j]; got {jnp.shape(predictions)}", task=name, argument="predictions")
    p, t, mask = _inputs(name, predictions, targets, where)
    axes = (-3, -2, -1)
    magnitude = lax.stop_gradient(jnp.maximum(jnp.abs(t), _FLOOR))
    log_weight = jax.nn.log_sigmoid((20 * jnp.log10(magnitude) - _N0_DB) / _TAU_DB)
    # Relative to the largest weight of the board: only ratios count, and exp of -90 alone is subnormal.
    top = jnp.max(log_weight, axis=axes, keepdims=True, where=mask, initial=-jnp.inf)
    weight = jnp.where(mask, jnp.exp(log_weight - jnp.where(jnp.isfinite(top), top, 0)), 0)
    count = jnp.sum(mask, axis=axes, keepdims=True).astype(weight.dtype)
    weight = weight * count / _nonzero(jnp.sum(weight, axis=axes, keepdims=True))
    return weight * _power((p - t) / magnitude)
