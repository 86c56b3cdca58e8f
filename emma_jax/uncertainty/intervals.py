"""From resampled values to an interval, and what is said beside it.

Undefined resamples (an AUC of a resample without a negative) have no place among the others: they are left out of the
quantiles, counted, and flagged, so that whoever reads the interval knows what it is conditional on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emma_jax.errors import EvaluationError
from emma_jax.scores import json_number
from emma_jax.uncertainty.units import Units

__all__ = ["FEW_UNITS", "METHODS", "Interval", "check_settings", "interval", "limits", "p_value"]

Floats = NDArray[np.float64]
METHODS = ("percentile", "bca")
FEW_UNITS = 20
_FEW_RESAMPLES = 200


@dataclass(frozen=True)
class Interval:
    """A value with its bootstrap interval, all numbers in the metric's unit.

    Attributes:
      metric: name of the metric.
      value: from all samples, as `emma_jax.evaluate` gives it.
      low: lower end; NaN where no resample is defined.
      high: upper end, likewise.
      standard_error: standard deviation of the defined resamples; NaN for fewer than two, or infinite ones.
      confidence: nominal coverage, 0.95 for example.
      method: "percentile" or "bca", the one that was used.
      num_resamples: resamples drawn.
      num_undefined: those among them in which the metric is undefined.
      resampled: what was drawn: "samples", "clusters" or "boards".
      num_units: how many of these there are.
      num_strata: within how many strata they were drawn.
      flags: what to know before believing it: "few_units" (below 20), "few_resamples" (below 200),
        "undefined_resamples", "bca_unavailable" (percentile was used instead), "constant" (no resample differs).
    """

    metric: str
    value: float
    low: float
    high: float
    standard_error: float
    confidence: float
    method: str
    num_resamples: int
    num_undefined: int
    resampled: str
    num_units: int
    num_strata: int
    flags: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON content; infinities as text, undefined numbers as null."""
        return {
            "metric": self.metric,
            **{k: json_number(getattr(self, k)) for k in ("value", "low", "high", "standard_error")},
            "confidence": self.confidence,
            "method": self.method,
            "num_resamples": self.num_resamples,
            "num_undefined": self.num_undefined,
            "resampled": self.resampled,
            "num_units": self.num_units,
            "num_strata": self.num_strata,
            "flags": list(self.flags),
        }


def check_settings(num_resamples: Any, confidence: Any, method: Any, task: str | None = None) -> None:
    """Raises EvaluationError for settings that mean nothing."""
    whole = isinstance(num_resamples, (int, np.integer)) and not isinstance(num_resamples, bool)
    if not whole or num_resamples < 1:
        raise EvaluationError(f"must be an integer >= 1; got {num_resamples!r}", task=task, argument="num_resamples")
    if not isinstance(confidence, (int, float)) or not 0 < confidence < 1:
        raise EvaluationError(f"must lie between 0 and 1; got {confidence!r}", task=task, argument="confidence")
    if method not in METHODS:
        raise EvaluationError(f"must be one of {METHODS}; got {method!r}", task=task, argument="method")


def interval(
    metric: str,
    value: float,
    resampled: Floats,
    influence: Floats | None,
    units: Units,
    *,
    confidence: float,
    method: str,
) -> Interval:
    """The interval of a value.

    Args:
      metric: name.
      value: from all samples.
      resampled: values of the resamples [B], NaN where undefined.
      influence: what one more copy of each unit changes, [U], for BCa; None if unknown.
      units: what was drawn.
      confidence: nominal coverage.
      method: "percentile" or "bca".
    """
    defined = np.sort(resampled[~np.isnan(resampled)])
    low, high, used = limits(value, defined, influence, units, confidence=confidence, method=method)
    finite = len(defined) > 1 and bool(np.isfinite(defined).all())
    flags = {
        "few_units": units.total < FEW_UNITS,
        "few_resamples": len(resampled) < _FEW_RESAMPLES,
        "undefined_resamples": len(defined) < len(resampled),
        "bca_unavailable": used != method,
        "constant": len(defined) > 0 and defined[0] == defined[-1],
    }
    return Interval(
        metric=metric,
        value=value,
        low=low,
        high=high,
        standard_error=float(np.std(defined, ddof=1)) if finite else math.nan,
        confidence=confidence,
        method=used,
        num_resamples=len(resampled),
        num_undefined=len(resampled) - len(defined),
        resampled=units.name,
        num_units=units.total,
        num_strata=units.num_strata,
        flags=tuple(name for name, raised in flags.items() if raised),
    )


def limits(
    value: float, defined: Floats, influence: Floats | None, units: Units, *, confidence: float, method: str
) -> tuple[float, float, str]:
    """Ends of the interval and the method used, from ascending defined values.

    Percentile: the quantiles at (1 - confidence)/2 and (1 + confidence)/2. BCa moves these levels by a bias z0 (how
    many resamples lie below the value, ties by half) and an acceleration a (`_acceleration`),
    ``level = Phi(z0 + (z0 + z) / (1 - a (z0 + z)))``.

    Reference: Efron, "Better bootstrap confidence intervals", JASA 82, 1987.
    """
    if not len(defined):
        return math.nan, math.nan, "percentile"
    levels = [(1 - confidence) / 2, (1 + confidence) / 2]
    if method == "bca":
        a = _acceleration(influence, units)
        below = (np.sum(defined < value) + 0.5 * np.sum(defined == value)) / len(defined)
        if a is None or not 0 < below < 1:
            method = "percentile"
        else:
            normal = NormalDist()
            z0 = normal.inv_cdf(float(below))
            shifted = [z0 + normal.inv_cdf(level) for level in levels]
            if all(1 - a * z > 0 for z in shifted):
                levels = [normal.cdf(z0 + z / (1 - a * z)) for z in shifted]
            else:
                method = "percentile"
    low, high = (_quantile(defined, level) for level in levels)
    return low, high, method


def _acceleration(influence: Floats | None, units: Units) -> float | None:
    """``sum u^3 / (6 (sum u^2)^(3/2))`` over units, their influence u centred in each stratum; None if unknown."""
    if influence is None or not np.isfinite(influence).all():
        return None
    centred = influence.astype(np.float64)
    for members in units.members():
        copies = units.copies[members]
        centred[members] -= np.average(centred[members], weights=copies)
    top = float(np.max(np.abs(centred), initial=0.0))
    if top == 0:
        return 0.0
    centred /= top
    second, third = (float(units.copies @ centred**k) for k in (2, 3))
    return float(third / (6 * second**1.5))


def _quantile(ascending: Floats, level: float) -> float:
    """The (B + 1) level-th smallest value, interpolated between neighbours; the extremes beyond them."""
    place = min(max((len(ascending) + 1) * level - 1, 0.0), len(ascending) - 1.0)
    at = int(place)
    share = place - at
    low, high = float(ascending[at]), float(ascending[min(at + 1, len(ascending) - 1)])
    if low == high or share == 0:
        return low
    return (1 - share) * low + share * high


def p_value(differences: Floats, *, sides: int = 2) -> float:
    """How often resamples speak against a difference above 0 (one side), or against any (two).

    One side: ``(1 + #{d <= 0}) / (B + 1)`` over the defined resamples: never 0, whatever B. Two: twice the smaller of
    both sides, at most 1. It inverts the percentile interval: p is below 1 - confidence, up to one resample, when that
    interval lies on one side of 0. A resample in which the difference is undefined speaks against both.

    Reference: Davison and Hinkley, "Bootstrap Methods and their Application", 1997, chapter 4.
    """
    undefined = int(np.isnan(differences).sum())
    against = [int((differences <= 0).sum()), int((differences >= 0).sum())][: 1 if sides == 1 else 2]
    return min(1.0, sides * (1 + undefined + min(against)) / (len(differences) + 1))
