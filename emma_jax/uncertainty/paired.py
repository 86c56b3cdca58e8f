"""compare: whether one submission is better than another, or than a baseline, beyond what the sample can tell."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from emma_jax.errors import EvaluationError
from emma_jax.metrics.base import Metric
from emma_jax.scores import json_number
from emma_jax.tasks import Task
from emma_jax.uncertainty.intervals import Interval, check_settings, interval, p_value
from emma_jax.uncertainty.study import Study, as_task, run_study
from emma_jax.uncertainty.units import Units

__all__ = ["Comparison", "FloorTest", "compare", "compare_to_floor", "comparison", "floor_test"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """Two submissions on the same resamples; all values in the metric's unit.

    Attributes:
      metric: name of the metric.
      direction: "higher" or "lower", whichever is better.
      value_a: of the first submission, from all samples.
      value_b: of the second.
      difference: `Interval` of value_a - value_b, from paired resamples.
      p_value: two-sided, of no difference: twice the smaller share of resamples on either side of 0, each counted with
        one more resample, so never 0.
      better: "a" or "b" where the interval of the difference lies on one side of 0, by direction; else None.
    """

    metric: str
    direction: str
    value_a: float
    value_b: float
    difference: Interval
    p_value: float
    better: str | None

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON content; infinities as text, undefined numbers as null."""
        return {
            "metric": self.metric,
            "direction": self.direction,
            "value_a": json_number(self.value_a),
            "value_b": json_number(self.value_b),
            "difference": self.difference.to_dict(),
            "p_value": self.p_value,
            "better": self.better,
        }


@dataclass(frozen=True)
class FloorTest:
    """Whether a submission beats a documented baseline; values in the metric's unit.

    Attributes:
      metric: name of the metric.
      direction: "higher" or "lower", whichever is better.
      value: of the submission, from all samples.
      floor: the baseline's value, taken as known.
      p_value: one-sided, of not beating it: the share of resamples no better than the floor, counted with one more.
      beats: whether p_value is at most 1 - confidence.
      confidence: as asked for.
      num_resamples: resamples drawn.
      num_undefined: those in which the metric is undefined; they count against the submission.
    """

    metric: str
    direction: str
    value: float
    floor: float
    p_value: float
    beats: bool
    confidence: float
    num_resamples: int
    num_undefined: int

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON content; infinities as text, undefined numbers as null."""
        return {
            "metric": self.metric,
            "direction": self.direction,
            "value": json_number(self.value),
            "floor": json_number(self.floor),
            "p_value": self.p_value,
            "beats": self.beats,
            "confidence": self.confidence,
            "num_resamples": self.num_resamples,
            "num_undefined": self.num_undefined,
        }


def compare(
    task: str | Task | Metric,
    preds_a: Any,
    preds_b: Any,
    labels: Any,
    *,
    key: Any,
    num_resamples: int = 1000,
    clusters: ArrayLike | None = None,
    stratify: ArrayLike | None = None,
    confidence: float = 0.95,
    method: str = "percentile",
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    **params: Any,
) -> dict[str, Comparison]:
    """Whether two submissions differ on a task, by resamples that they share.

    Pairing takes out what both find easy or hard, so a difference shows that two separate intervals would hide.

    Args:
      task: a task id, a `Task`, or a single metric.
      preds_a: predictions of the first submission.
      preds_b: of the second, for the same samples.
      labels: truth.
      key: a JAX key (or an int); the same key gives the same bits.
      num_resamples: B; the smallest p-value possible is 2 / (B + 1).
      clusters: label of each sample's cluster; whole clusters are drawn.
      stratify: label of each sample's stratum; each keeps its size.
      confidence: nominal coverage of the interval.
      method: "percentile" or "bca", as for `emma_jax.bootstrap`.
      where: bool, broadcast to the sample axes.
      weights: non-negative integers, likewise.
      lengths: int [N], for tasks over signals.
      **params: parameters of the task to change.

    Returns:
      By metric name, a `Comparison`. Nothing is corrected for comparing many pairs.

    Raises:
      EvaluationError: as `emma_jax.bootstrap`; ShapeError if the two do not yield the same metrics and samples.
    """
    task = as_task(task, params)
    check_settings(num_resamples, confidence, method, task.id)
    study = run_study(
        task,
        [preds_a, preds_b],
        labels,
        key=key,
        num_resamples=int(num_resamples),
        clusters=clusters,
        stratify=stratify,
        where=where,
        weights=weights,
        lengths=lengths,
        influence=method == "bca",
    )
    return {name: _pair(study, name, confidence, method) for name in study.metrics}


def _pair(study: Study, name: str, confidence: float, method: str) -> Comparison:
    a, b = study.influence[name] if study.influence else (None, None)
    return comparison(
        name,
        study.direction(name),
        (study.scores[0][name], study.scores[1][name]),
        (study.resampled[name][0], study.resampled[name][1]),
        None if a is None or b is None else a - b,
        study.units,
        confidence=confidence,
        method=method,
    )


def comparison(
    metric: str,
    direction: str,
    values: tuple[float, float],
    resampled: tuple[Floats, Floats],
    influence: Floats | None,
    units: Units,
    *,
    confidence: float,
    method: str = "percentile",
) -> Comparison:
    """A `Comparison` from values of both sides and their values on shared resamples ``[B]``."""
    differences = _minus(resampled[0], resampled[1])
    value = float(_minus(np.float64(values[0]), np.float64(values[1])))
    found = interval(metric, value, differences, influence, units, confidence=confidence, method=method)
    better = None
    if found.low > 0 or found.high < 0:
        better = "a" if (found.low > 0) == (direction == "higher") else "b"
    return Comparison(metric, direction, values[0], values[1], found, p_value(differences), better)


def _minus(a: Any, b: Any) -> Any:
    """a - b, 0 where both are the same infinity."""
    with np.errstate(invalid="ignore"):
        return np.where(a == b, 0.0, a - b)


def compare_to_floor(
    task: str | Task | Metric,
    preds: Any,
    labels: Any,
    floor: float,
    *,
    key: Any,
    metric: str | None = None,
    num_resamples: int = 1000,
    clusters: ArrayLike | None = None,
    stratify: ArrayLike | None = None,
    confidence: float = 0.95,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    **params: Any,
) -> FloorTest:
    """Whether a submission beats a documented baseline: a one-sided test by resampling the submission.

    Args:
      task, preds, labels, key, num_resamples, clusters, stratify, where, weights, lengths, **params: as for
        `emma_jax.bootstrap`.
      floor: the baseline's value in the metric's unit, for example the anchor of a release; taken as known exactly.
      metric: which metric of the task; None for the headline.
      confidence: the submission beats the floor if the p-value is at most 1 - confidence.

    Returns:
      A `FloorTest`.

    Raises:
      EvaluationError: as `emma_jax.bootstrap`; a metric that the task does not have; a floor that is no number.
    """
    task = as_task(task, params)
    check_settings(num_resamples, confidence, "percentile", task.id)
    study = run_study(
        task,
        [preds],
        labels,
        key=key,
        num_resamples=int(num_resamples),
        clusters=clusters,
        stratify=stratify,
        where=where,
        weights=weights,
        lengths=lengths,
    )
    name = study.chosen(metric, task.id)
    return floor_test(name, study.direction(name), study.scores[0][name], study.resampled[name][0], floor, confidence)


def floor_test(
    metric: str, direction: str, value: float, resampled: Floats, floor: float, confidence: float
) -> FloorTest:
    """A `FloorTest` from a value, its values on resamples ``[B]``, and the floor."""
    floor = float(floor)
    if math.isnan(floor):
        raise EvaluationError("is NaN", task=metric, argument="floor")
    gain = _minus(resampled, floor) if direction == "higher" else _minus(floor, resampled)
    p = p_value(gain, sides=1)
    undefined = int(np.isnan(resampled).sum())
    # A p-value of 0.05 is one of 0.05 whatever 1 - 0.95 rounds to.
    beats = p <= 1 - confidence + 1e-12
    return FloorTest(metric, direction, value, floor, p, beats, confidence, len(resampled), undefined)
