"""Beam metrics: distance-based accuracy, power loss, and RSRP accuracy.

Goal: how good a chosen beam is where it is not the best one: how far off in the codebook (`DBAScore`), how much power
it costs (`BeamPowerLoss`), how often that is no more than a margin (`RSRPAccuracy`). Whether the best beam is among the
first k is `TopKAccuracy`.
Conventions: predictions are scores [N, B], ranked as they are (highest first, lowest index on a tie), or beams [N, J],
best first, with ``input="ranked"`` and an explicit ``index_base``. What each beam yields is the truth of the power
metrics: their labels are the gain matrix [N, B].
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from emma_jax import checks
from emma_jax.errors import DegenerateLabelsError, EvaluationError, LabelError, ShapeError
from emma_jax.metrics.base import ClassLabels, Metric, State, both, class_axes, mean, real_dtype, require_int, tally
from emma_jax.metrics.channels import used_float, used_limbs
from emma_jax.numerics import accumulate, energies, keys, limbs
from emma_jax.numerics.planes import as_float

__all__ = ["BeamPowerLoss", "DBAScore", "RSRPAccuracy"]

_DB = 10.0 * math.log10(2.0)


def _check_input(metric: Any) -> None:
    if metric.input not in ("scores", "ranked"):
        raise EvaluationError(f'must be "scores" or "ranked"; got {metric.input!r}', task=metric.name, argument="input")
    if metric.input == "ranked" and metric.index_base not in (0, 1):
        raise EvaluationError(
            f"must be 0 or 1 for ranked beams; got {metric.index_base!r}", task=metric.name, argument="index_base"
        )
    if metric.input == "scores" and metric.index_base not in (None, 0):
        raise EvaluationError("only applies to ranked beams", task=metric.name, argument="index_base")


def _check_columns(metric: Any, preds: Any, k: int, task: str) -> None:
    if metric.input == "ranked" and not jnp.issubdtype(preds.dtype, jnp.integer):
        raise LabelError(f"ranked beams must be integers; got dtype {preds.dtype}", task=task, argument="preds")
    if k > preds.shape[1]:
        raise EvaluationError(f"{k} is more than the {preds.shape[1]} columns of preds", task=task, argument="k")


def _first_beams(metric: Any, preds: Any, k: int, num_beams: int | None) -> tuple[Any, Any, Any]:
    """The k first beams [N, k] counted from 0, whether a row of scores has a NaN, and whether the beams exist."""
    if metric.input == "ranked":
        beams = preds[:, :k].astype(jnp.int32) - metric.index_base
        ok = beams >= 0
        if num_beams is not None:
            ok = ok & (beams < num_beams)
        return beams, jnp.zeros(beams.shape[0], bool), jnp.all(ok, axis=1)
    order = keys.order_key(preds)
    nan = jnp.max(order, axis=1) == order.dtype.type(keys.nan_key(order))
    column = jnp.arange(preds.shape[1], dtype=jnp.int32)
    taken = jnp.zeros(preds.shape, bool)
    beams = []
    for _ in range(k):
        best = jnp.max(jnp.where(taken, order.dtype.type(0), order), axis=1)
        at = jnp.argmax(~taken & (order == best[:, None]), axis=1).astype(jnp.int32)
        taken = taken | (column == at[:, None])
        beams.append(at)
    return jnp.stack(beams, axis=1), nan, jnp.ones(preds.shape[0], bool)


@dataclass(frozen=True)
class DBAScore(Metric, ClassLabels):
    r"""Distance-based beam accuracy: a near miss earns part of the credit.

    .. math:: \mathrm{DBA} = \frac1K \sum_{k=1}^K \Bigl(1 - \frac1N \sum_n \min_{j \le k}
       \min\bigl(|\hat b_{nj} - b_n| / \Delta, 1\bigr)\Bigr)

    Shapes: ``preds`` [N, B] scores of any real dtype, or [N, J] ranked beam indices with ``input="ranked"``; ``labels``
    [N] int; ``where``, ``weights`` [N].
    Units: dimensionless, 0 to 1.
    Direction: higher is better.
    Errors: EvaluationError for k outside 1..B; NonFiniteError for NaN; LabelError for a beam that does not exist;
    ShapeError; EmptyEvaluationError.
    Reference: Charan et al., "Multi-modal beam prediction challenge 2022: towards generalization", arXiv:2209.07519.

    Attributes:
      k: K, how many guesses count.
      delta: distance from which a beam earns nothing.
      circular: whether beam 0 and beam B - 1 are neighbours.
      num_beams: B; taken from the width of scores, needed for ranked beams only if ``circular``.
      input: "scores" or "ranked".
      index_base: for ranked input, what the first beam is called, 0 or 1. Labels count from the same base.
    """

    k: int = 3
    delta: int = 5
    circular: bool = False
    num_beams: int | None = None
    input: str = "scores"
    index_base: int | None = None
    direction: ClassVar[str] = "higher"
    unit: ClassVar[str] = "1"
    structured: ClassVar[bool] = False
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __post_init__(self) -> None:
        require_int(self.k, "k", 1, self.name)
        require_int(self.delta, "delta", 1, self.name)
        if self.num_beams is not None:
            require_int(self.num_beams, "num_beams", 1, self.name)
        _check_input(self)
        if self.circular and self.input == "ranked" and self.num_beams is None:
            raise EvaluationError(
                "is not known from ranked beams; a circular codebook needs it", task=self.name, argument="num_beams"
            )

    def _resolve(self, preds: Any, labels: Any, mask: Any, task: str) -> Metric:
        del labels, mask, task
        if self.input == "scores" and self.num_beams is None and preds.ndim == 2 and preds.shape[1]:
            return replace(self, num_beams=int(preds.shape[1]))
        return self

    def _sample_shape(self, preds: Any, labels: Any, task: str) -> tuple[int, ...]:
        shape = class_axes(preds, labels, self.num_beams if self.input == "scores" else None, task)
        _check_columns(self, preds, self.k, task)
        return shape

    def _preds_are_labels(self, preds: Any, task: str) -> bool:
        del preds, task
        return self.input == "ranked"

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"distance": (4,)}

    def _stats(self, preds: Any, labels: Any, mask: Any, weights: Any) -> State:
        beams, nan, exist = _first_beams(self, preds, self.k, self.num_beams)
        y = labels.astype(jnp.int32) - (self.index_base or 0)
        valid = exist & (y >= 0)
        if self.num_beams is not None:
            valid = valid & (y < self.num_beams)
        gap = jnp.abs(beams - jnp.where(valid, y, 0)[:, None])
        if self.circular and self.num_beams is not None:
            gap = jnp.minimum(gap, self.num_beams - gap)
        gap = jnp.minimum(gap, self.delta).astype(jnp.uint32)
        nearest = [gap[:, 0]]
        for j in range(1, self.k):
            nearest.append(jnp.minimum(nearest[-1], gap[:, j]))
        used = both(mask, valid & ~nan)
        distance = jnp.where(used, sum(nearest), jnp.uint32(0))
        return tally(mask, weights, y.shape, n_nonfinite=nan, n_invalid_label=~valid & ~nan, distance=[distance])

    def _value(self, state: Any, xp: Any) -> tuple[Any, dict[str, Any]]:
        used = used_float(state, xp)
        one, full = used.dtype.type(1), used.dtype.type(self.k * self.delta)
        return one - mean(limbs.to_float(state["distance"], xp), used, xp) / full, {}

    def _explain(self, preds: Any, labels: Any, mask: Any, task: str) -> None:
        base = self.index_base or 0
        num_beams = int(preds.shape[1]) if self.input == "scores" else self.num_beams
        checks.raise_nonfinite(task, "preds", preds, mask, infinite=False)
        checks.raise_label(task, "labels", labels, mask, num_beams, base=base)
        if self.input == "ranked":
            checks.raise_label(task, "preds", preds[:, : self.k], mask, num_beams, base=base)


@dataclass(frozen=True)
class BeamPowerLoss(Metric):
    r"""Average power loss of the chosen beam against the best one, in dB.

    .. math:: L = \frac1N \sum_n 10 \log_{10} \frac{\max_b G_{nb}}{\max_{j \le k} G_{n \hat b_{nj}}}

    The mean of dB values; the best of the first k beams counts. A beam of no gain costs +inf. A sample in which no beam
    has any gain is left out and counted in ``validity.n_excluded``.

    Shapes: ``preds`` [N, B] scores, or [N, J] ranked beam indices with ``input="ranked"``; ``labels`` [N, B] gains
    (powers, 0 or more; with ``gain_unit="dB"`` any finite number); ``where``, ``weights`` [N].
    Units: dB.
    Direction: lower is better; 0 is the best beam every time.
    Errors: NonFiniteError for NaN, and for an infinite gain; LabelError for a negative gain or a beam that does not
    exist; ShapeError; DegenerateLabelsError if no sample has any gain; EmptyEvaluationError.

    Attributes:
      k: how many guesses are tried.
      gain_unit: "linear" (power) or "dB".
      input: "scores" or "ranked".
      index_base: for ranked input, what the first beam is called, 0 or 1.
    """

    k: int = 1
    gain_unit: str = "linear"
    input: str = "scores"
    index_base: int | None = None
    direction: ClassVar[str] = "lower"
    unit: ClassVar[str] = "dB"
    structured: ClassVar[bool] = False
    bounds: ClassVar[tuple[float, float]] = (0.0, math.inf)

    def __post_init__(self) -> None:
        require_int(self.k, "k", 1, self.name)
        _check_input(self)
        if self.gain_unit not in ("linear", "dB"):
            raise EvaluationError(
                f'must be "linear" or "dB"; got {self.gain_unit!r}', task=self.name, argument="gain_unit"
            )

    def _sample_shape(self, preds: Any, labels: Any, task: str) -> tuple[int, ...]:
        columns = preds.shape[1:] == labels.shape[1:] if self.input == "scores" else True
        if len(preds.shape) != 2 or len(labels.shape) != 2 or preds.shape[0] != labels.shape[0] or not columns:
            raise ShapeError(
                f"needs preds [N, {'B' if self.input == 'scores' else 'J'}] and gains [N, B] as labels; got preds "
                f"{tuple(preds.shape)} and labels {tuple(labels.shape)}",
                task=task,
                argument="preds",
            )
        if 0 in (preds.shape[1], labels.shape[1]):
            raise ShapeError("has no column", task=task, argument="preds")
        real_dtype(preds, "preds", task)
        real_dtype(labels, "labels", task)
        _check_columns(self, preds, self.k, task)
        return tuple(labels.shape[:1])

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        if self.gain_unit == "dB":
            return {"loss": accumulate.SHAPE}
        return {"log2": accumulate.LOG_SHAPE, "n_infinite": (2,)}

    def _gains(self, preds: Any, labels: Any) -> dict[str, Any]:
        """Best and chosen gain [N], and which samples are bad in what way."""
        gains = as_float(labels)
        beams, nan, exist = _first_beams(self, preds, self.k, labels.shape[1])
        finite = jnp.all(jnp.isfinite(gains), axis=1) & ~nan
        negative = jnp.zeros(finite.shape, bool) if self.gain_unit == "dB" else jnp.any(gains < 0, axis=1)
        gains = jnp.where(finite[:, None], gains, 0)
        if self.gain_unit == "linear":
            # Ratios of one row only: bring it near 1, subnormal gains included.
            gains, _, _ = energies.row_scale(gains)
        picked = jnp.take_along_axis(gains, jnp.clip(beams, 0, labels.shape[1] - 1), axis=1)
        valid = exist & ~negative
        return {"best": jnp.max(gains, axis=1), "chosen": jnp.max(picked, axis=1), "finite": finite, "valid": valid}

    def _stats(self, preds: Any, labels: Any, mask: Any, weights: Any) -> State:
        g = self._gains(preds, labels)
        best, chosen, fine = g["best"], g["chosen"], g["finite"] & g["valid"]
        flags: dict[str, Any] = {"n_nonfinite": ~g["finite"], "n_invalid_label": g["finite"] & ~g["valid"]}
        exponent = jnp.zeros(best.shape, jnp.int32)
        if self.gain_unit == "dB":
            loss = jnp.where(both(mask, fine), best - chosen, 0)
            return tally(mask, weights, best.shape, **flags) | accumulate.sum_scaled(
                {"loss": (loss, exponent)}, weights
            )
        used, dead = both(mask, fine & (best > 0)), chosen == 0
        ratio = best / jnp.where(dead, jnp.ones((), best.dtype), chosen)
        words = accumulate.log2_words((ratio, exponent), used & ~dead)
        flags |= {"n_excluded": fine & (best == 0), "log2": words, "n_infinite": used & dead}
        return tally(mask, weights, best.shape, **flags)

    def _value(self, state: Any, xp: Any) -> tuple[Any, dict[str, Any]]:
        used = used_float(state, xp)
        f = used.dtype.type
        if self.gain_unit == "dB":
            return mean(accumulate.as_float(state["loss"], xp), used, xp), {}
        ordinary = limbs.subtract(used_limbs(state), state["n_infinite"])
        value = mean(f(_DB) * accumulate.log2_total(state["log2"], ordinary, xp), used, xp)
        infinite = limbs.to_float(state["n_infinite"], xp) > 0
        return xp.where(infinite, f(np.inf), value), {}

    def _explain(self, preds: Any, labels: Any, mask: Any, task: str) -> None:
        checks.raise_nonfinite(task, "preds", preds, mask, infinite=False)
        checks.raise_nonfinite(task, "labels", labels, mask, infinite=True, what="a gain must be finite")
        if self.input == "ranked":
            beams = preds[:, : self.k]
            checks.raise_label(task, "preds", beams, mask, int(labels.shape[1]), base=self.index_base or 0)
        bad = np.asarray(labels) < 0
        bad = bad if mask is None else bad & np.asarray(mask)[:, None]
        raise LabelError(
            'a gain is a power and not negative (gain_unit="dB" for decibels)',
            task=task,
            argument="labels",
            count=int(bad.sum()),
            index=checks.first_index(bad),
        )

    def _undefined(self, state: Any, task: str) -> EvaluationError:
        return DegenerateLabelsError(
            "no beam of any sample has a gain", task=task, argument="labels", count=limbs.to_int(state["n_excluded"])
        )


@dataclass(frozen=True)
class RSRPAccuracy(BeamPowerLoss):
    r"""Share of samples whose chosen beam is within a margin of the best one.

    .. math:: A = \frac1N \sum_n \mathbf 1\Bigl[10 \log_{10} \frac{\max_b G_{nb}}{\max_{j \le k} G_{n \hat b_{nj}}}
       \le m\Bigr]

    Shapes: ``preds`` [N, B] scores, or [N, J] ranked beam indices with ``input="ranked"``; ``labels`` [N, B] gains;
    ``where``, ``weights`` [N].
    Units: dimensionless, 0 to 1.
    Direction: higher is better.
    Errors: as for `BeamPowerLoss`.
    Reference: 3GPP TR 38.843, "Study on AI/ML for NR air interface": beam prediction accuracy with 1 dB margin.

    Attributes:
      k: how many guesses are tried.
      gain_unit: "linear" (power) or "dB" (RSRP in dBm as well: only differences count).
      input: "scores" or "ranked".
      index_base: for ranked input, what the first beam is called, 0 or 1.
      margin_db: the margin m.
    """

    margin_db: float = 1.0
    direction: ClassVar[str] = "higher"
    unit: ClassVar[str] = "1"
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.margin_db) and self.margin_db >= 0):
            raise EvaluationError(f"must be 0 or more; got {self.margin_db!r}", task=self.name, argument="margin_db")

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"within": (2,)}

    def _stats(self, preds: Any, labels: Any, mask: Any, weights: Any) -> State:
        g = self._gains(preds, labels)
        best, chosen, fine = g["best"], g["chosen"], g["finite"] & g["valid"]
        excluded = jnp.zeros(fine.shape, bool)
        if self.gain_unit == "dB":
            within = best - chosen <= best.dtype.type(self.margin_db)
        else:
            excluded = fine & (best == 0)
            within = chosen >= best * best.dtype.type(10 ** (-self.margin_db / 10))
        return tally(
            mask,
            weights,
            fine.shape,
            n_nonfinite=~g["finite"],
            n_invalid_label=g["finite"] & ~g["valid"],
            n_excluded=excluded,
            within=both(mask, fine & ~excluded & within),
        )

    def _value(self, state: Any, xp: Any) -> tuple[Any, dict[str, Any]]:
        return mean(limbs.to_float(state["within"], xp), used_float(state, xp), xp), {}
