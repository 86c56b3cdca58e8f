"""Channel metrics: NMSE and SGCS.

Goal: how far an estimated or fed-back channel is from the true one, in energy (NMSE) and in direction (SGCS).
Conventions: the first axis counts samples (users, snapshots), all others belong to one channel; |.|^2 always, never
|.|; complex arrays, real ones, or I/Q planes along ``iq_axis``, which is never guessed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax

from emma_jax import checks
from emma_jax.errors import DegenerateLabelsError, EvaluationError, ShapeError
from emma_jax.metrics.base import Metric, State, both, mean, tally
from emma_jax.numerics import accumulate, energies, limbs
from emma_jax.numerics.planes import as_planes, is_complex, parts, rows

__all__ = ["NMSE", "SGCS"]

_DB = 10.0 * math.log10(2.0)


def same_arrays(preds: Any, labels: Any, min_axes: int, task: str, *, what: str = "") -> tuple[int, ...]:
    """Shape of two arrays that have to agree in shape and in being complex.

    Raises:
      ShapeError: if they do not (nothing is ever broadcast), or have fewer than ``min_axes`` axes.
    """
    if preds.shape != labels.shape or len(preds.shape) < min_axes:
        needs = what or f"the same shape, with at least {min_axes} axes"
        raise ShapeError(
            f"needs preds and labels of {needs}; got preds {tuple(preds.shape)} and labels {tuple(labels.shape)}",
            task=task,
            argument="preds",
        )
    if is_complex(preds) != is_complex(labels):
        raise ShapeError(
            f"is {preds.dtype}, but labels are {labels.dtype}: one is complex and the other real",
            task=task,
            argument="preds",
        )
    if 0 in preds.shape[1:]:
        raise ShapeError(f"has no entries; got shape {tuple(preds.shape)}", task=task, argument="preds")
    return tuple(preds.shape)


def common_float(*rows: Any) -> tuple[Any, ...]:
    """Arrays in their common float dtype."""
    dtype = jnp.result_type(*(x.dtype for x in rows))
    return tuple(x.astype(dtype) for x in rows)


def check_finite(preds: Any, labels: Any, mask: Any, task: str, what: str) -> None:
    """Raises NonFiniteError for the first NaN or infinity, or for a value too large to be squared and summed."""
    for x, argument in ((preds, "preds"), (labels, "labels")):
        checks.raise_nonfinite(task, argument, x, mask, infinite=True, what=f"{what} must be finite")
    for x, argument in ((preds, "preds"), (labels, "labels")):
        x = np.asarray(x)
        if x.dtype.itemsize >= 8 and x.dtype != np.complex64:
            with np.errstate(over="ignore"):
                huge = np.where(np.abs(x) > 1e70, np.nan, 0.0)
            checks.raise_nonfinite(task, argument, huge, mask, infinite=True, what=f"{what} must stay below 1e70")


@dataclass(frozen=True)
class NMSE(Metric):
    r"""Normalized mean squared error of channels, in dB.

    .. math:: \mathrm{NMSE} = 10 \log_{10} \frac{\sum_i \lVert \hat H_i - H_i \rVert_F^2}{\sum_i \lVert H_i \rVert_F^2}

    That is ``reduction="ratio_of_sums"``: the normalization is by channel energy, so strong channels weigh more, and
    the number does not depend on how samples are batched. Two other habits, named in every result:

    - ``"mean_ratio"``: dB of the mean of per-sample ratios, :math:`10 \log_{10} \frac1N \sum_i r_i` with
      :math:`r_i = \lVert \hat H_i - H_i \rVert^2 / \lVert H_i \rVert^2`, common for CSI feedback networks.
    - ``"mean_db"``: mean of per-sample dB values, :math:`\frac1N \sum_i 10 \log_{10} r_i`; one perfect sample makes it
      -inf.

    A sample whose true channel is all zero leaves both sums and is counted in ``validity.n_excluded``. A perfect
    prediction is -inf dB. Entries from 1e-38 to 1e38 are fine in complex64.

    Shapes: ``preds`` [N, ...] complex or real (float planes with ``iq_axis``), ``labels`` the same; ``where``,
    ``weights`` [N].
    Units: dB.
    Direction: lower is better.
    Errors: NonFiniteError for NaN and infinity; ShapeError for shapes that differ, or complex against real;
    DegenerateLabelsError if every channel is zero; EmptyEvaluationError.
    Reference: Wen, Shih and Jin, "Deep Learning for Massive MIMO CSI Feedback", IEEE Wireless Commun. Lett. 7(5), 2018,
    for per-sample ratios.

    Attributes:
      reduction: "ratio_of_sums", "mean_ratio" or "mean_db".
      iq_axis: axis of length 2 that holds I and Q of float planes, or None. The sample axis is the first of the others.
    """

    reduction: str = "ratio_of_sums"
    iq_axis: int | None = None
    _decomposes: ClassVar[bool] = True
    direction: ClassVar[str] = "lower"
    unit: ClassVar[str] = "dB"
    structured: ClassVar[bool] = False
    bounds: ClassVar[tuple[float, float]] = (-math.inf, math.inf)

    def __post_init__(self) -> None:
        options = ("ratio_of_sums", "mean_ratio", "mean_db")
        if self.reduction not in options:
            raise EvaluationError(
                f"must be one of {options}; got {self.reduction!r}", task=self.name, argument="reduction"
            )

    def _arrange(self, preds: Any, labels: Any, task: str) -> tuple[Any, Any]:
        return as_planes(preds, self.iq_axis, "preds", task), as_planes(labels, self.iq_axis, "labels", task)

    def _sample_shape(self, preds: Any, labels: Any, task: str) -> tuple[int, ...]:
        return same_arrays(preds, labels, 1, task)[:1]

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        if self.reduction == "mean_db":
            return {"log2": accumulate.LOG_SHAPE, "n_perfect": (2,)}
        names = ("error", "energy") if self.reduction == "ratio_of_sums" else ("ratio",)
        return dict.fromkeys(names, accumulate.SHAPE)

    def _stats(self, preds: Any, labels: Any, mask: Any, weights: Any) -> State:
        p, t = rows(preds, labels, 1)
        error, energy, finite = energies.error_and_reference(p, t, mask)
        finite = finite & accumulate.in_range(error) & accumulate.in_range(energy)
        blank = energy[0] == 0
        used = both(mask, finite & ~blank)
        numbers: dict[str, Any] = {"n_nonfinite": ~finite, "n_excluded": finite & blank}
        sums: State = {}
        one = jnp.ones((), error[0].dtype)
        r = (error[0] / jnp.where(used, energy[0], one), error[1] - energy[1])
        if self.reduction == "mean_db":
            perfect = error[0] == 0
            numbers |= {"log2": accumulate.log2_words(r, used & ~perfect), "n_perfect": used & perfect}
        elif self.reduction == "mean_ratio":
            sums = accumulate.sum_scaled({"ratio": (jnp.where(used, r[0], 0), r[1])}, weights)
        else:
            pair = {"error": error, "energy": energy}
            sums = accumulate.sum_scaled({k: (jnp.where(used, v, 0), e) for k, (v, e) in pair.items()}, weights)
        return tally(mask, weights, finite.shape, **numbers) | sums

    def _value(self, state: Any, xp: Any) -> tuple[Any, dict[str, Any]]:
        used = used_float(state, xp)
        db = used.dtype.type(_DB)
        if self.reduction == "mean_db":
            perfect = limbs.to_float(state["n_perfect"], xp)
            counted = limbs.subtract(used_limbs(state), state["n_perfect"])
            value = mean(db * accumulate.log2_total(state["log2"], counted, xp), used, xp)
            return xp.where(perfect > 0, used.dtype.type(-np.inf), value), {}
        if self.reduction == "mean_ratio":
            count = (xp.where(used > 0, used, used.dtype.type(np.nan)), xp.zeros(used.shape, xp.int32))
            return db * accumulate.log2_ratio(accumulate.total(state["ratio"], xp), count, xp), {}
        error, energy = (accumulate.total(state[k], xp) for k in ("error", "energy"))
        return db * accumulate.log2_ratio(error, energy, xp), {}

    def _explain(self, preds: Any, labels: Any, mask: Any, task: str) -> None:
        preds, labels = (np.asarray(x) for x in self._arrange(preds, labels, task))
        check_finite(preds, labels, mask, task, "a channel")

    def _undefined(self, state: Any, task: str) -> EvaluationError:
        return DegenerateLabelsError(
            "every true channel is zero, so there is no energy to normalize by",
            task=task,
            argument="labels",
            count=limbs.to_int(state["n_excluded"]),
        )


def used_limbs(state: Any) -> Any:
    """Samples that entered the number, as a count ``[..., 2]``."""
    left = state["n"]
    for name in ("n_nonfinite", "n_invalid_label", "n_excluded"):
        left = limbs.subtract(left, state[name])
    return left


def used_float(state: Any, xp: Any) -> Any:
    return limbs.to_float(used_limbs(state), xp)


@dataclass(frozen=True)
class SGCS(Metric):
    r"""Squared generalized cosine similarity of channel vectors (precoders, eigenvectors).

    .. math:: \mathrm{SGCS} = \frac1V \sum_v \frac{|v^H \hat v|^2}{\lVert v \rVert^2 \lVert \hat v \rVert^2}

    averaged over every vector of every sample (sub-bands and layers alike). It does not change when a prediction is
    multiplied by a complex number. A predicted zero vector scores 0; a true zero vector is left out and counted.
    ``validity`` counts vectors.

    Shapes: ``preds`` [N, ...] complex or real (float planes with ``iq_axis``), ``labels`` the same; ``where``,
    ``weights`` [N].
    Units: dimensionless, 0 to 1.
    Direction: higher is better.
    Errors: NonFiniteError; ShapeError; DegenerateLabelsError if every true vector is zero; EmptyEvaluationError.
    Reference: 3GPP TR 38.843, "Study on AI/ML for NR air interface", for CSI feedback.

    Attributes:
      vector_axis: the axis along which a vector lies, counted without the I/Q axis.
      iq_axis: axis of length 2 that holds I and Q of float planes, or None.
    """

    vector_axis: int = -1
    iq_axis: int | None = None
    direction: ClassVar[str] = "higher"
    unit: ClassVar[str] = "1"
    structured: ClassVar[bool] = False
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def _arrange(self, preds: Any, labels: Any, task: str) -> tuple[Any, Any]:
        return as_planes(preds, self.iq_axis, "preds", task), as_planes(labels, self.iq_axis, "labels", task)

    def _sample_shape(self, preds: Any, labels: Any, task: str) -> tuple[int, ...]:
        shape = same_arrays(preds, labels, 2, task)
        if not -len(shape) < self.vector_axis < len(shape) or self.vector_axis == 0:
            raise ShapeError(
                f"{self.vector_axis} is no axis of one sample of shape {shape[1:]}", task=task, argument="vector_axis"
            )
        return shape[:1]

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"similarity": accumulate.SHAPE}

    def _stats(self, preds: Any, labels: Any, mask: Any, weights: Any) -> State:
        p, t = common_float(*(_vectors(x, self.vector_axis) for x in (preds, labels)))
        finite = jnp.all(jnp.isfinite(p) & jnp.isfinite(t), axis=1)
        p, _, seen = energies.row_scale(jnp.where(finite[:, None], p, 0))
        t, _, there = energies.row_scale(jnp.where(finite[:, None], t, 0))
        vectors = finite.shape[0] // max(preds.shape[0], 1)
        mask, weights = (None if x is None else jnp.repeat(x, vectors) for x in (mask, weights))
        used = both(mask, finite & there & seen)
        counts = tally(mask, weights, finite.shape, n_nonfinite=~finite, n_excluded=finite & ~there)
        similarity = (jnp.where(used, _similarity(p, t), 0), jnp.zeros(used.shape, jnp.int32))
        return counts | accumulate.sum_scaled({"similarity": similarity}, weights)

    def _value(self, state: Any, xp: Any) -> tuple[Any, dict[str, Any]]:
        return mean(accumulate.as_float(state["similarity"], xp), used_float(state, xp), xp), {}

    def _explain(self, preds: Any, labels: Any, mask: Any, task: str) -> None:
        preds, labels = (np.asarray(x) for x in self._arrange(preds, labels, task))
        check_finite(preds, labels, mask, task, "a channel")

    def _undefined(self, state: Any, task: str) -> EvaluationError:
        return DegenerateLabelsError(
            "every true vector is zero", task=task, argument="labels", count=limbs.to_int(state["n_excluded"])
        )


def _vectors(x: Any, axis: int) -> Any:
    """Vectors of an array as rows ``[V, 2 D]``, real parts first; zeros for the imaginary parts of a real array."""
    re, im = parts(x)
    im = jnp.zeros_like(re) if im is None else im
    rows = [jnp.moveaxis(part, axis % re.ndim, -1).reshape(-1, re.shape[axis]) for part in (re, im)]
    return jnp.concatenate(rows, axis=1)


def _similarity(p: Any, t: Any) -> Any:
    """|t^H p|^2 / (||t||^2 ||p||^2) of rows scaled near 1; a zero row gives 0."""
    (p_re, p_im), (t_re, t_im) = jnp.split(p, 2, axis=1), jnp.split(t, 2, axis=1)
    terms = (p_re * t_re + p_im * t_im, p_im * t_re - p_re * t_im, p_re**2 + p_im**2, t_re**2 + t_im**2)
    dot_re, dot_im, pp, tt = energies.row_sums(lax.optimization_barrier(terms))
    power = pp * tt
    one = jnp.ones((), power.dtype)
    return jnp.minimum((dot_re**2 + dot_im**2) / jnp.where(power > 0, power, one), one)
