"""OOD-avg with its sampling error: resamples within each fold, through the release's anchors, to the headline number.

Folds are taken as they are: what is resampled is the samples (or clusters) of each. How far one environment more or
less would move the number is another question, which the jackknife over folds (`emma_jax.OODAvg.detail`) answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emma_jax.aggregate import OODAvg
from emma_jax.errors import EvaluationError, MissingTaskError
from emma_jax.release import Anchor, Release
from emma_jax.tasks import get_task
from emma_jax.uncertainty.intervals import Interval, check_settings, interval
from emma_jax.uncertainty.paired import Comparison, FloorTest, comparison, floor_test
from emma_jax.uncertainty.ranks import RankedRow, rank_resampled
from emma_jax.uncertainty.study import run_study
from emma_jax.uncertainty.units import Units

__all__ = [
    "OODComparison",
    "OODInterval",
    "TaskInterval",
    "bootstrap_ood_avg",
    "compare_ood_avg",
    "floor_of",
    "rank_ood_avg",
]

Floats = NDArray[np.float64]
ByFold = Mapping[str, Mapping[str, Any]]
"""Task id to fold name to something."""
_NAME = "OOD-avg"


@dataclass(frozen=True)
class TaskInterval:
    """One task of an OOD-avg.

    Attributes:
      raw: interval of the mean over folds, in the metric's unit.
      normalized: of the normalized score, dimensionless, higher is better.
      floor: whether the mean over folds beats the release's floor (`floor_of`).
    """

    raw: Interval
    normalized: Interval
    floor: FloorTest

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON content."""
        return {"raw": self.raw.to_dict(), "normalized": self.normalized.to_dict(), "floor": self.floor.to_dict()}


@dataclass(frozen=True)
class OODInterval:
    """An OOD-avg with its interval.

    Attributes:
      ood_avg: dimensionless, higher is better.
      floor: whether it beats the floor of every task, which is 0: of the mean of unclipped normalized scores, since
        clipping would forgive a task below its floor.
      tasks: read-only mapping of task id to `TaskInterval`.
    """

    ood_avg: Interval
    floor: FloorTest
    tasks: Mapping[str, TaskInterval]

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON content."""
        tasks = {name: task.to_dict() for name, task in self.tasks.items()}
        return {"ood_avg": self.ood_avg.to_dict(), "floor": self.floor.to_dict(), "tasks": tasks}


@dataclass(frozen=True)
class OODComparison:
    """Two submissions by OOD-avg.

    Attributes:
      ood_avg: `Comparison` of OOD-avg.
      tasks: read-only mapping of task id to the `Comparison` of the raw means over folds.
    """

    ood_avg: Comparison
    tasks: Mapping[str, Comparison]

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON content."""
        return {"ood_avg": self.ood_avg.to_dict(), "tasks": {k: v.to_dict() for k, v in self.tasks.items()}}


@dataclass(frozen=True, eq=False)
class _Averaged:
    """Submissions resampled through to OOD-avg: arrays ``[submissions, ...]``.

    Attributes:
      values: OOD-avg from all samples [S]. unclipped: mean of unclipped normalized scores [S].
      resampled, resampled_unclipped: of the resamples [S, B].
      raw: by task, (values [S], resampled [S, B]) of the mean over folds; normalized: likewise.
      units: of all folds together, each a stratum. task_units: by task.
    """

    values: Floats
    unclipped: Floats
    resampled: Floats
    resampled_unclipped: Floats
    raw: dict[str, tuple[Floats, Floats]]
    normalized: dict[str, tuple[Floats, Floats]]
    units: Units
    task_units: dict[str, Units]


def floor_of(anchor: Anchor) -> float:
    """The raw value of the floor baseline that a release documents: the end of the anchor that normalizes to 0."""
    return anchor.m_min if anchor.direction == "higher" else anchor.m_max


def bootstrap_ood_avg(
    release: Release,
    preds: ByFold,
    labels: ByFold,
    *,
    key: Any,
    num_resamples: int = 1000,
    clusters: ByFold | None = None,
    stratify: ByFold | None = None,
    where: ByFold | None = None,
    confidence: float = 0.95,
) -> OODInterval:
    """The interval of a submission's OOD-avg, and of each task in it, by resampling within each fold.

    Args:
      release: folds, parameters and anchors.
      preds: task id to fold name to predictions, as for `emma_jax.evaluate`.
      labels: likewise.
      key: a JAX key (or an int); each fold draws by the key, its task and its name, whatever else is there.
      num_resamples: B.
      clusters: task id to fold name to the cluster of each sample, where whole clusters are to be drawn.
      stratify: likewise, strata.
      where: likewise, which samples are there.
      confidence: nominal coverage; percentile intervals.

    Returns:
      An `OODInterval`.

    Raises:
      MissingTaskError: a task or fold that the release needs.
      EvaluationError: as `emma_jax.bootstrap` and `emma_jax.OODAvg`.
    """
    found = _average(release, [preds], labels, key, num_resamples, clusters, stratify, where, confidence)

    def one(name: str, values: Floats, resampled: Floats, units: Units) -> Interval:
        value = float(values[0])
        return interval(name, value, resampled[0], None, units, confidence=confidence, method="percentile")

    tasks = {}
    for task_id, (values, resampled) in found.raw.items():
        entry, units = release.tasks[task_id], found.task_units[task_id]
        assert entry.anchor is not None
        tasks[task_id] = TaskInterval(
            one(entry.metric, values, resampled, units),
            one(entry.metric, *found.normalized[task_id], units),
            floor_test(
                entry.metric, entry.direction, float(values[0]), resampled[0], floor_of(entry.anchor), confidence
            ),
        )
    beaten = floor_test(_NAME, "higher", float(found.unclipped[0]), found.resampled_unclipped[0], 0.0, confidence)
    return OODInterval(one(_NAME, found.values, found.resampled, found.units), beaten, MappingProxyType(tasks))


def compare_ood_avg(
    release: Release,
    preds_a: ByFold,
    preds_b: ByFold,
    labels: ByFold,
    *,
    key: Any,
    num_resamples: int = 1000,
    clusters: ByFold | None = None,
    stratify: ByFold | None = None,
    where: ByFold | None = None,
    confidence: float = 0.95,
) -> OODComparison:
    """Whether two submissions differ in OOD-avg, and in which tasks, by resamples that they share fold by fold.

    Args:
      release, labels, key, num_resamples, clusters, stratify, where, confidence: as for `bootstrap_ood_avg`.
      preds_a, preds_b: task id to fold name to predictions, of either submission.

    Returns:
      An `OODComparison`.

    Raises:
      MissingTaskError: a task or fold that the release needs.
      EvaluationError: as `emma_jax.compare` and `emma_jax.OODAvg`.
    """
    found = _average(release, [preds_a, preds_b], labels, key, num_resamples, clusters, stratify, where, confidence)

    def pair(name: str, direction: str, values: Floats, resampled: Floats, units: Units) -> Comparison:
        a, b = map(float, values)
        return comparison(name, direction, (a, b), (resampled[0], resampled[1]), None, units, confidence=confidence)

    tasks = {
        task_id: pair(release.tasks[task_id].metric, release.tasks[task_id].direction, *both, found.task_units[task_id])
        for task_id, both in found.raw.items()
    }
    overall = pair(_NAME, "higher", found.values, found.resampled, found.units)
    return OODComparison(overall, MappingProxyType(tasks))


def rank_ood_avg(
    release: Release,
    submissions: Mapping[str, ByFold],
    labels: ByFold,
    *,
    key: Any,
    num_resamples: int = 1000,
    clusters: ByFold | None = None,
    stratify: ByFold | None = None,
    where: ByFold | None = None,
    confidence: float = 0.95,
) -> tuple[RankedRow, ...]:
    """A leaderboard by OOD-avg in which neighbours that the samples cannot tell apart share a rank.

    Args:
      release, labels, key, num_resamples, clusters, stratify, where, confidence: as for `bootstrap_ood_avg`.
      submissions: by name, task id to fold name to predictions.

    Returns:
      One `RankedRow` a submission, best first; the rule is that of `rank_resampled`.

    Raises:
      MissingTaskError: a task or fold that the release needs.
      EvaluationError: as `emma_jax.compare` and `emma_jax.OODAvg`.
    """
    found = _average(
        release, list(submissions.values()), labels, key, num_resamples, clusters, stratify, where, confidence
    )
    values = {name: float(v) for name, v in zip(submissions, found.values)}
    return rank_resampled(
        _NAME, "higher", values, dict(zip(submissions, found.resampled)), found.units, confidence=confidence
    )


def _average(
    release: Release,
    submissions: Sequence[ByFold],
    labels: ByFold,
    key: Any,
    num_resamples: int,
    clusters: ByFold | None,
    stratify: ByFold | None,
    where: ByFold | None,
    confidence: float,
) -> _Averaged:
    check_settings(num_resamples, confidence, "percentile")
    headline = OODAvg(release)  # refuses what is no release
    points: list[dict[str, dict[str, float]]] = [{} for _ in submissions]
    means: dict[str, Floats] = {}
    drawn: dict[str, list[Units]] = {}
    for task_id in release.aggregated:
        entry, task = release.tasks[task_id], get_task(task_id, release=release)
        folds = _folds(labels, task_id, "labels")
        per_fold = []
        for fold in folds:
            sides = [_folds(s, task_id, "preds") for s in submissions]
            if any(fold not in side for side in sides):
                raise MissingTaskError(f"no predictions for fold {fold}", task=task_id, argument="preds")
            study = run_study(
                task,
                [side[fold] for side in sides],
                folds[fold],
                key=key,
                num_resamples=int(num_resamples),
                clusters=_part(clusters, task_id, fold),
                stratify=_part(stratify, task_id, fold),
                where=_part(where, task_id, fold),
                name=f"{task_id}/{fold}",
            )
            if entry.metric not in study.metrics:
                raise EvaluationError(f"the scores lack {entry.metric}", task=task_id, argument="metric")
            for point, scores in zip(points, study.scores):
                point.setdefault(task_id, {})[fold] = float(scores[entry.metric])
            per_fold.append(study.resampled[entry.metric])
            drawn.setdefault(task_id, []).append(study.units)
        with np.errstate(invalid="ignore"):
            means[task_id] = np.mean(per_fold, axis=0)
    details = [headline.detail(point) for point in points]
    anchors = {t: a for t in release.aggregated if (a := release.tasks[t].anchor) is not None}
    raw, normalized, unclipped = {}, {}, {}
    for task_id, anchor in anchors.items():
        resampled = means[task_id]
        raw[task_id] = np.array([d.tasks[task_id].raw for d in details]), resampled
        normalized[task_id] = (
            np.array([d.tasks[task_id].normalized for d in details]),
            _each(anchor.normalize, resampled),
        )
        unclipped[task_id] = (
            np.array([d.tasks[task_id].unclipped for d in details]),
            _each(anchor.unclipped, resampled),
        )
    return _Averaged(
        np.array([d.value for d in details]),
        np.mean([values for values, _ in unclipped.values()], axis=0),
        np.mean([x for _, x in normalized.values()], axis=0),
        np.mean([x for _, x in unclipped.values()], axis=0),
        raw,
        normalized,
        _together([u for units in drawn.values() for u in units]),
        {task_id: _together(units) for task_id, units in drawn.items()},
    )


def _each(function: Any, values: Floats) -> Floats:
    return np.array([function(x) for x in values.reshape(-1)]).reshape(values.shape)


def _folds(given: ByFold, task_id: str, argument: str) -> Mapping[str, Any]:
    if task_id not in given or not isinstance(given[task_id], Mapping) or not given[task_id]:
        raise MissingTaskError("needs a mapping of fold name to arrays", task=task_id, argument=argument)
    return given[task_id]


def _part(given: ByFold | None, task_id: str, fold: str) -> Any:
    return None if given is None else given.get(task_id, {}).get(fold)


def _together(parts: Sequence[Units]) -> Units:
    """Units of several folds as one account of what was drawn: each fold (and stratum in it) a stratum."""
    strata, start = [], 0
    for u in parts:
        strata.append((np.zeros(u.size, np.int64) if u.strata is None else u.strata) + start)
        start += u.num_strata
    names = {u.name for u in parts}
    name = names.pop() if len(names) == 1 else "samples and clusters"
    return Units(np.concatenate([u.copies for u in parts]), strata=np.concatenate(strata), name=name)
