"""From fold scores to the two numbers of a leaderboard row: OOD-avg, and beside it the sim-to-real gap.

Everything here is Python floats on the host, sums are exact before one rounding (`math.fsum`), so the order of folds
and tasks never shows. Anchors come from a `Release` and from nowhere else.
"""

from __future__ import annotations

import math
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from emma_jax.errors import EmptyEvaluationError, EvaluationError, MissingTaskError, NonFiniteError, ReleaseError
from emma_jax.release import REAL, Anchor, Release, TaskEntry, real_number
from emma_jax.scores import Scores, json_number

__all__ = [
    "Aggregator",
    "Gap",
    "GapColumn",
    "Jackknife",
    "OODAvg",
    "OODAvgDetail",
    "SimToRealGap",
    "TaskAggregate",
    "jackknife",
]

UNDERPOWERED_FOLDS = 2  # with this many or fewer, the standard error rests on one difference, or on none


def _score(value: Any, task: str | None, argument: str) -> float:
    """A score as a float; NaN means that something before went wrong."""
    number = real_number(value, task=task, argument=argument)
    if math.isnan(number):
        raise NonFiniteError("the score is NaN, and an undefined score is never skipped", task=task, argument=argument)
    return number


def _mean(values: Iterable[float]) -> float:
    """Mean of a non-empty collection, the sum rounded once; NaN when infinities of both signs meet."""
    numbers = tuple(values)
    try:
        return math.fsum(numbers) / len(numbers)
    except (OverflowError, ValueError):  # beyond float64 on the way, or inf - inf
        return math.fsum(x / len(numbers) for x in numbers) if all(map(math.isfinite, numbers)) else math.nan


# How far one environment moves a number.


@dataclass(frozen=True)
class Jackknife:
    """Sensitivity of a score to its folds: each fold deleted in turn (delete-one jackknife).

    All numbers have the unit and direction of the score itself.

    Attributes:
      n: number of folds (count).
      mean: the score from all folds.
      se: standard error ``sqrt((n - 1)/n sum_i (theta_(i) - theta_(.))^2)``; NaN for n < 2, where it is undefined.
      low: smallest of ``leave_one_out``; NaN for n < 2.
      high: largest of ``leave_one_out``; NaN for n < 2.
      leave_one_out: theta_(i), the score without fold i, shape [n], in the order the folds were given; empty for n < 2.
      underpowered: True for n <= 2, where the standard error rests on a single difference.
    """

    n: int
    mean: float
    se: float
    low: float
    high: float
    leave_one_out: tuple[float, ...]
    underpowered: bool

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON content, undefined numbers as null; units and direction as the attributes."""
        return {
            "n": self.n,
            "mean": json_number(self.mean),
            "se": json_number(self.se),
            "low": json_number(self.low),
            "high": json_number(self.high),
            "leave_one_out": [json_number(x) for x in self.leave_one_out],
            "underpowered": self.underpowered,
        }


def jackknife(
    fold_values: Mapping[str, float] | Iterable[float], statistic: Callable[[float], float] | None = None
) -> Jackknife:
    """Delete-one jackknife over folds: how fragile a mean over few environments is.

    theta = g(mean of the folds), theta_(i) = g(mean of the folds without i), theta_(.) = mean of the theta_(i), and
    ``se = sqrt((n - 1)/n sum_i (theta_(i) - theta_(.))^2)``. For g = identity that is the standard error of the mean,
    s / sqrt(n). OOD-avg passes g = `Anchor.normalize`: theta is the number the table shows, normalized and clipped
    after the mean. So a task that saturates at an anchor has se 0: its normalized score does not move when an
    environment leaves, while the raw jackknife beside it still tells how much the folds differ.

    Args:
      fold_values: one score per fold, shape [n], or fold name to score; in the metric's unit and direction.
      statistic: g, a function of the mean, in the unit it returns; None for the mean itself.

    Returns:
      A `Jackknife`, in the unit of the statistic.

    Raises:
      EmptyEvaluationError: there is no fold.
      NonFiniteError: a score is NaN; the message names the fold.

    References:
      Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 11.
    """
    items = fold_values.items() if isinstance(fold_values, Mapping) else enumerate(fold_values)
    values = tuple(_score(value, None, f"fold {fold}") for fold, value in items)
    if not values:
        raise EmptyEvaluationError("there is no fold to take the mean over", argument="fold_values")
    n = len(values)

    def theta(subset: tuple[float, ...]) -> float:
        mean = _mean(subset)
        return mean if statistic is None else statistic(mean)

    whole = theta(values)
    if n == 1:
        return Jackknife(1, whole, math.nan, math.nan, math.nan, (), underpowered=True)
    left = tuple(theta(values[:i] + values[i + 1 :]) for i in range(n))
    if not all(map(math.isfinite, left)):  # an infinite dB value: no spread can be told
        low, high = (math.nan, math.nan) if any(map(math.isnan, left)) else (min(left), max(left))
        return Jackknife(n, whole, math.nan, low, high, left, underpowered=n <= UNDERPOWERED_FOLDS)
    center = _mean(left)
    # hypot scales, so values near 1e200 do not overflow when squared
    se = math.sqrt((n - 1) / n) * math.hypot(*(x - center for x in left))
    return Jackknife(n, whole, se, min(left), max(left), left, underpowered=n <= UNDERPOWERED_FOLDS)


# The aggregate.


class Aggregator(ABC):
    """Reduces fold scores of several tasks to one number (scalar; unit and direction are those of the subclass)."""

    @abstractmethod
    def __call__(self, fold_scores: Mapping[str, Any]) -> float:
        """The aggregate of ``fold_scores``: task id to a score, or to fold name to score."""


@dataclass(frozen=True)
class TaskAggregate:
    """What OOD-avg made of one task.

    Attributes:
      metric: name of the headline metric.
      unit: of ``raw``, ``folds`` and ``jackknife_raw``; everything else is dimensionless.
      direction: of the raw metric, "higher" or "lower" is better; normalized scores are always higher-is-better.
      folds: read-only mapping of fold name to raw score; empty when one number was given for the task.
      raw: mean over the folds.
      unclipped: its position between the anchors, 0 at the floor and 1 at the ceiling; may lie outside [0, 1].
      normalized: the same, clipped to [0, 1].
      jackknife: over folds, of the normalized score.
      jackknife_raw: over folds, of the raw score.
    """

    metric: str
    unit: str
    direction: str
    folds: Mapping[str, float]
    raw: float
    unclipped: float
    normalized: float
    jackknife: Jackknife
    jackknife_raw: Jackknife

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON content; infinities as text, undefined numbers as null."""
        return {
            "metric": self.metric,
            "unit": self.unit,
            "direction": self.direction,
            "folds": {fold: json_number(value) for fold, value in self.folds.items()},
            "raw": json_number(self.raw),
            "unclipped": json_number(self.unclipped),
            "normalized": self.normalized,
            "jackknife": self.jackknife.to_dict(),
            "jackknife_raw": self.jackknife_raw.to_dict(),
        }


@dataclass(frozen=True)
class OODAvgDetail:
    """OOD-avg with what it came from. Dimensionless, in [0, 1]; higher is better.

    Attributes:
      value: the OOD-avg.
      se: jackknife standard error ``sqrt(sum_t se_t^2) / |T|``, tasks taken as independent; NaN where a task has
        fewer than two folds.
      low: smallest OOD-avg with one fold of one task left out; NaN where no fold can be left out.
      high: the largest one, likewise.
      underpowered: True when any task has two folds or fewer.
      tasks: read-only mapping of task id to `TaskAggregate`.
      ignored: ids that were given and are not averaged, such as the continuity column.
    """

    value: float
    se: float
    low: float
    high: float
    underpowered: bool
    tasks: Mapping[str, TaskAggregate]
    ignored: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON content; undefined numbers as null."""
        return {
            "value": self.value,
            "se": json_number(self.se),
            "low": json_number(self.low),
            "high": json_number(self.high),
            "underpowered": self.underpowered,
            "tasks": {task_id: entry.to_dict() for task_id, entry in self.tasks.items()},
            "ignored": list(self.ignored),
        }


class _NotAReleaseError(ReleaseError, TypeError):
    """Anchors from anywhere but a release."""


def _require_release(release: Any) -> None:
    if not isinstance(release, Release):
        raise _NotAReleaseError(
            f"anchors come from a Release (load_release) and nothing else, not from {type(release).__name__}",
            argument="release",
        )


def _raw_score(entry: TaskEntry, value: Any, task_id: str, argument: str) -> float:
    """A raw score given as a number, or as the `Scores` of an evaluation, which has the release's metric in it."""
    if isinstance(value, Scores):
        if entry.metric not in value:
            raise EvaluationError(f"the scores given lack {entry.metric}", task=task_id, argument=argument)
        value = value[entry.metric]
    return _score(value, task_id, argument)


def _fold_values(entry: TaskEntry, value: Any, task_id: str) -> dict[str, float] | float:
    """The raw scores of one task: fold to score, checked against the release's folds, or one score for all of it."""
    if isinstance(value, Scores) or not isinstance(value, Mapping):
        return _raw_score(entry, value, task_id, "score")
    if not value:
        raise EmptyEvaluationError("there is no fold to take the mean over", task=task_id, argument="fold_scores")
    missing = [fold for fold in entry.folds if fold not in value]
    if missing:
        raise MissingTaskError(
            f"no score for fold {missing[0]}, which the release lists",
            task=task_id,
            argument="folds",
            count=len(missing),
        )
    unknown = [fold for fold in value if fold == REAL or (entry.folds and fold not in entry.folds)]
    if unknown:
        reason = "the real split is never in OOD-avg" if unknown[0] == REAL else "the release lists no such fold"
        raise EvaluationError(f"fold {unknown[0]}: {reason}", task=task_id, argument="folds", count=len(unknown))
    return {str(fold): _raw_score(entry, score, task_id, f"fold {fold}") for fold, score in value.items()}


def _aggregate_task(entry: TaskEntry, anchor: Anchor, value: Any, task_id: str) -> TaskAggregate:
    scores = _fold_values(entry, value, task_id)
    folds = scores if isinstance(scores, dict) else {}
    values = tuple(folds.values()) if isinstance(scores, dict) else (scores,)
    raw = _mean(values)
    if math.isnan(raw):
        raise NonFiniteError("folds of +inf and -inf have no mean", task=task_id, argument="folds")
    return TaskAggregate(
        metric=entry.metric,
        unit=entry.unit,
        direction=entry.direction,
        folds=MappingProxyType(folds),
        raw=raw,
        unclipped=anchor.unclipped(raw),
        normalized=anchor.normalize(raw),
        jackknife=jackknife(values, anchor.normalize),
        jackknife_raw=jackknife(values),
    )


@dataclass(frozen=True)
class OODAvg(Aggregator):
    """The headline number: how well one model transfers, over the tasks that the release aggregates.

    Per task t the mean raw score over folds m_t is normalized between the release's anchors and clipped,

        higher is better: (m_t - m_min) / (m_max - m_min)        lower is better: (m_max - m_t) / (m_max - m_min)

    and OOD-avg is the mean over the tasks. Dimensionless, in [0, 1]; higher is better; 1 is perfect on every task.
    The order is fixed: mean, normalize, clip, mean. Real captures never enter (see `SimToRealGap`), nor does any task
    outside the release's aggregated set, E-ID-AMC above all.

    Attributes:
      release: the `Release` with the anchors. Nothing else is accepted: whoever is scored must not bring anchors.

    Raises:
      ReleaseError: (a TypeError as well) ``release`` is no `Release`.
    """

    release: Release

    def __post_init__(self) -> None:
        _require_release(self.release)

    def __call__(self, fold_scores: Mapping[str, Any]) -> float:
        """OOD-avg of the given scores, as `detail` computes it.

        Args:
          fold_scores: task id to raw score, or to fold name to raw score, in the unit of the task's metric; the
            `Scores` of an evaluation may stand for its number. When the release lists folds, all of them are needed.

        Returns:
          OOD-avg, a dimensionless float in [0, 1]; higher is better.

        Raises:
          EmptyEvaluationError: no scores at all, or none for a task, or a release that aggregates no task.
          MissingTaskError: a task or a fold of the release has no score.
          NonFiniteError: a score is NaN; the message names task and fold.
          EvaluationError: a fold the release does not list, or a score that is not one real number.
        """
        return self.detail(fold_scores).value

    def detail(self, fold_scores: Mapping[str, Any]) -> OODAvgDetail:
        """OOD-avg with every raw and normalized score, their jackknives, and what was not averaged.

        Args and errors as for the call.

        Returns:
          An `OODAvgDetail`; its value is dimensionless, in [0, 1], higher is better.
        """
        if not isinstance(fold_scores, Mapping) or isinstance(fold_scores, Scores):
            kind = type(fold_scores).__name__
            raise EvaluationError(f"expected a mapping of task id to scores, got {kind}", argument="fold_scores")
        aggregated = self.release.aggregated
        if not fold_scores or not aggregated:
            reason = "there are no scores" if not fold_scores else f"release {self.release.name} aggregates no task"
            raise EmptyEvaluationError(reason, argument="fold_scores")
        missing = [task_id for task_id in aggregated if task_id not in fold_scores]
        if missing:
            raise MissingTaskError(
                f"no score for {', '.join(missing)}, which OOD-avg needs", task=missing[0], count=len(missing)
            )
        tasks: dict[str, TaskAggregate] = {}
        for task_id in aggregated:
            entry = self.release.tasks[task_id]
            assert entry.anchor is not None  # TaskEntry holds this for every aggregated task
            tasks[task_id] = _aggregate_task(entry, entry.anchor, fold_scores[task_id], task_id)
        value = _mean(t.normalized for t in tasks.values())
        moves = [(left - t.normalized) / len(tasks) for t in tasks.values() for left in t.jackknife.leave_one_out]
        return OODAvgDetail(
            value=value,
            se=math.hypot(*(t.jackknife.se for t in tasks.values())) / len(tasks),
            low=max(value + min(moves), 0.0) if moves else math.nan,
            high=min(value + max(moves), 1.0) if moves else math.nan,
            underpowered=any(t.jackknife.underpowered for t in tasks.values()),
            tasks=MappingProxyType(tasks),
            ignored=tuple(sorted(str(task_id) for task_id in fold_scores if task_id not in tasks)),
        )


# The gap, which is no aggregate: it compares two scores and enters none.


@dataclass(frozen=True)
class Gap:
    """A sim-to-real gap in percentage points, positive where the model did better on synthetic data.

    Attributes:
      gap: of the clipped normalized scores, in [-100, 100] pp.
      unclipped: of the unclipped ones, in pp: differs where a raw score lies beyond an anchor; NaN where both are
        infinite on the same side.
      synth: clipped normalized synthetic score, dimensionless, higher is better.
      real: the same for the real captures.
    """

    gap: float
    unclipped: float
    synth: float
    real: float


@dataclass(frozen=True)
class GapColumn:
    """The leaderboard's gap: the mean over the tasks that have both sides, in percentage points.

    Attributes:
      value: mean gap in pp; positive where the model did better on synthetic data, so near 0 is best.
      tasks: read-only mapping of the task ids that have both sides to their gap in pp.
      missing: ids of the tasks that lack a side.
    """

    value: float
    tasks: Mapping[str, float]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class SimToRealGap:
    """What a model loses from synthetic data to real captures: ``100 (m_synth - m_real)``, in percentage points.

    Both scores are normalized to [0, 1], higher is better, by the same anchors as in OOD-avg. Positive: better on
    synthetic data, the sign of a model that fits the simulator; zero is the aim, and more is worse. The gap stands
    beside OOD-avg and never enters it; it takes a pair of scores and not folds, so it is no `Aggregator`.
    """

    def __call__(self, synth_score: float, real_score: float) -> float:
        """The gap of one task.

        Args:
          synth_score: normalized score on the synthetic folds (scalar in [0, 1], higher is better).
          real_score: normalized score on the real captures (scalar in [0, 1], higher is better).

        Returns:
          Gap in percentage points, in [-100, 100].

        Raises:
          NonFiniteError: one of them is NaN.
          EvaluationError: one of them lies outside [0, 1], so is no normalized score.
        """
        synth, real = (
            _unit_score(value, name) for value, name in ((synth_score, "synth_score"), (real_score, "real_score"))
        )
        return 100.0 * (synth - real)

    def from_raw(self, anchor: Anchor, synth_raw: float, real_raw: float) -> Gap:
        """The gap from raw scores, clipped and unclipped.

        Args:
          anchor: the task's `Anchor` in the release.
          synth_raw: mean raw score over the synthetic folds (scalar), in the metric's unit and direction.
          real_raw: raw score on the real captures, likewise.

        Returns:
          A `Gap`, in percentage points.

        Raises:
          NonFiniteError: one of them is NaN.
          EvaluationError: ``anchor`` is no `Anchor`, or a score is not one real number.
        """
        if not isinstance(anchor, Anchor):
            raise EvaluationError(f"expected an Anchor, got {type(anchor).__name__}", argument="anchor")
        synth, real = _score(synth_raw, None, "synth_raw"), _score(real_raw, None, "real_raw")
        m_synth, m_real = anchor.normalize(synth), anchor.normalize(real)
        return Gap(self(m_synth, m_real), 100.0 * (anchor.unclipped(synth) - anchor.unclipped(real)), m_synth, m_real)

    def column(self, scores: Mapping[str, tuple[float | None, float | None]]) -> GapColumn:
        """The mean gap over the tasks that have both sides, which it lists.

        Args:
          scores: task id to the pair of normalized scores (synthetic, real), each in [0, 1], higher is better; None for
            a side that does not exist.

        Returns:
          A `GapColumn`, in percentage points.

        Raises:
          EmptyEvaluationError: no task has both sides.
          NonFiniteError: a score is NaN; the message names the task.
          EvaluationError: a score outside [0, 1], likewise.
        """
        gaps: dict[str, float] = {}
        missing: list[str] = []
        for task_id, pair in sorted(scores.items()):
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise EvaluationError(f"expected (synthetic, real), got {reprlib.repr(pair)}", task=task_id)
            if pair[0] is None or pair[1] is None:
                missing.append(task_id)
            else:
                synth, real = (_unit_score(x, name, task_id) for x, name in zip(pair, ("synth_score", "real_score")))
                gaps[task_id] = self(synth, real)
        if not gaps:
            raise EmptyEvaluationError("no task has both a synthetic and a real score", argument="scores")
        return GapColumn(_mean(gaps.values()), MappingProxyType(gaps), tuple(missing))


def _unit_score(value: Any, argument: str, task: str | None = None) -> float:
    number = _score(value, task, argument)
    if not 0.0 <= number <= 1.0:
        raise EvaluationError(f"{number} is no normalized score, which lies in [0, 1]", task=task, argument=argument)
    return number
