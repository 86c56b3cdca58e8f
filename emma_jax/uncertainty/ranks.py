"""Ranks of a leaderboard that does not tell apart what the sample cannot: neighbours without a difference share one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from emma_jax.errors import EmptyEvaluationError
from emma_jax.metrics.base import Metric
from emma_jax.scores import json_number
from emma_jax.tasks import Task
from emma_jax.uncertainty.intervals import Interval, check_settings, interval
from emma_jax.uncertainty.paired import Comparison, comparison
from emma_jax.uncertainty.study import as_task, run_study
from emma_jax.uncertainty.units import Units

__all__ = ["RankedRow", "rank_resampled", "rank_submissions"]


@dataclass(frozen=True)
class RankedRow:
    """One submission of a ranking.

    Attributes:
      rank: 1 for the first group of ties; then one more than the number of submissions in the groups before.
      name: of the submission.
      value: from all samples, in the metric's unit.
      interval: of the value.
      above: the row above (as "a") against this one, by paired resamples; None in the first row.
      tied_with_first: whether the paired interval against the best of its own group covers 0 too. In a long group of
        ties, neighbours are alike while the ends need not be: False says so.
    """

    rank: int
    name: str
    value: float
    interval: Interval
    above: Comparison | None
    tied_with_first: bool

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON content; infinities as text, undefined numbers as null."""
        return {
            "rank": self.rank,
            "name": self.name,
            "value": json_number(self.value),
            "interval": self.interval.to_dict(),
            "above": None if self.above is None else self.above.to_dict(),
            "tied_with_first": self.tied_with_first,
        }


def rank_resampled(
    metric: str,
    direction: str,
    values: Mapping[str, float],
    resampled: Mapping[str, NDArray[np.float64]],
    units: Units,
    *,
    confidence: float,
) -> tuple[RankedRow, ...]:
    """Ranks submissions by their values and their values on shared resamples.

    Rows go from best to worst value, equal ones by name. A row shares the rank of the row above it unless the paired
    interval of their difference lies wholly on the side on which the row above is better. Only neighbours are compared,
    so a rank group is a chain of them.

    Args:
      metric, direction: of the values.
      values: by name of the submission; NaN comes last.
      resampled: by name, values on the same resamples [B].
      units: what was drawn.
      confidence: of every interval.
    """
    if not values:
        raise EmptyEvaluationError("there is no submission to rank", argument="submissions")
    sign = -1.0 if direction == "higher" else 1.0

    def place(name: str) -> tuple[bool, float, str]:
        return math.isnan(values[name]), 0.0 if math.isnan(values[name]) else sign * values[name], name

    def against(a: str, b: str) -> Comparison:
        pair = (values[a], values[b]), (resampled[a], resampled[b])
        return comparison(metric, direction, *pair, None, units, confidence=confidence)

    order = sorted(values, key=place)
    rows: list[RankedRow] = []
    first = order[0]
    for position, name in enumerate(order):
        above = against(order[position - 1], name) if position else None
        apart = above is not None and above.better == "a"
        first = name if apart else first
        rows.append(
            RankedRow(
                rank=position + 1 if apart or not rows else rows[-1].rank,
                name=name,
                value=values[name],
                interval=interval(
                    metric, values[name], resampled[name], None, units, confidence=confidence, method="percentile"
                ),
                above=above,
                tied_with_first=name == first or against(first, name).better is None,
            )
        )
    return tuple(rows)


def rank_submissions(
    task: str | Task | Metric,
    submissions: Mapping[str, Any],
    labels: Any,
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
) -> tuple[RankedRow, ...]:
    """A leaderboard of one task in which neighbours that the sample cannot tell apart share a rank.

    Args:
      task, labels, key, num_resamples, clusters, stratify, where, weights, lengths, **params: as for
        `emma_jax.bootstrap`.
      submissions: predictions by name, all for the same samples; they share the resamples.
      metric: which metric of the task; None for the headline.
      confidence: of the intervals, each by itself: nothing is corrected for their number.

    Returns:
      One `RankedRow` a submission, best first; the rule is that of `rank_resampled`.

    Raises:
      EvaluationError: as `emma_jax.compare`; EmptyEvaluationError without a submission.
    """
    task = as_task(task, params)
    check_settings(num_resamples, confidence, "percentile", task.id)
    if not submissions:
        raise EmptyEvaluationError("there is no submission to rank", task=task.id, argument="submissions")
    study = run_study(
        task,
        list(submissions.values()),
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
    return rank_resampled(
        name,
        study.direction(name),
        {who: s[name] for who, s in zip(submissions, study.scores)},
        dict(zip(submissions, study.resampled[name])),
        study.units,
        confidence=confidence,
    )
