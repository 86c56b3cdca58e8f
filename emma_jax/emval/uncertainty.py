"""Intervals and comparisons of dataset values: the board is the unit, drawn within its group.

The protocol fixes how many boards each group has, so ID, the union of two groups, draws as many from either as it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from emma_jax.emval.boards import _DOMAINS, BoardRecord, BoardScores, mean_over_boards
from emma_jax.emval.layout import GROUPS
from emma_jax.errors import EmptyEvaluationError, ShapeError
from emma_jax.tasks import get_task
from emma_jax.uncertainty.intervals import Interval, check_settings, interval
from emma_jax.uncertainty.paired import Comparison, comparison
from emma_jax.uncertainty.reductions import Mean, Reduction
from emma_jax.uncertainty.study import resample
from emma_jax.uncertainty.units import Units, generator

__all__ = ["BoardComparison", "BoardIntervals", "bootstrap_boards", "compare_boards"]


@dataclass(frozen=True)
class BoardIntervals:
    """Intervals of dataset values by metric name, each in the metric's unit.

    Attributes:
      groups: read-only mapping of group to intervals of its means over boards.
      id: over the boards of ``public`` and ``private_standard``; empty without any.
      ood: over those of ``private_challenge``, likewise.
    """

    groups: Mapping[str, Mapping[str, Interval]]
    id: Mapping[str, Interval]
    ood: Mapping[str, Interval]

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON content."""
        return _to_dict(self)


@dataclass(frozen=True)
class BoardComparison:
    """Two results over the same boards, compared by metric name; attributes as of `BoardIntervals`."""

    groups: Mapping[str, Mapping[str, Comparison]]
    id: Mapping[str, Comparison]
    ood: Mapping[str, Comparison]

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON content."""
        return _to_dict(self)


def _to_dict(x: BoardIntervals | BoardComparison) -> dict[str, Any]:
    def plain(values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value.to_dict() for name, value in values.items()}

    return {"groups": {g: plain(v) for g, v in x.groups.items()}, "id": plain(x.id), "ood": plain(x.ood)}


def bootstrap_boards(
    scores: BoardScores | Mapping[str, Any],
    *,
    key: Any,
    num_resamples: int = 1000,
    confidence: float = 0.95,
    method: str = "percentile",
) -> BoardIntervals:
    """Intervals of a result of `score_boards`, for each group, ID and OOD.

    Args:
      scores: the values of every board, as `score_boards` returns them or `load_result` reads them.
      key: a JAX key (or an int); the same key gives the same bits.
      num_resamples: B.
      confidence: nominal coverage.
      method: "percentile" or "bca".

    Returns:
      A `BoardIntervals`, with the averages over E and H where there are near fields. Below 20 boards an interval is
      flagged "few_units".

    Raises:
      EmptyEvaluationError: no board. EvaluationError: settings that mean nothing.
    """
    check_settings(num_resamples, confidence, method)

    def one(boards: Sequence[BoardRecord], names: tuple[str, ...]) -> Mapping[str, Interval]:
        tables, units, values, influence = _resampled([boards], names, key, num_resamples)
        return MappingProxyType(
            {
                name: interval(
                    name,
                    tables[0][name],
                    values[0, i],
                    influence[0][i],
                    units,
                    confidence=confidence,
                    method=method,
                )
                for i, name in enumerate(tables[0])
            }
        )

    return BoardIntervals(*_by_domain(_records(scores), one))


def compare_boards(
    scores_a: BoardScores | Mapping[str, Any],
    scores_b: BoardScores | Mapping[str, Any],
    *,
    key: Any,
    num_resamples: int = 1000,
    confidence: float = 0.95,
    method: str = "percentile",
) -> BoardComparison:
    """Whether two results over the same boards differ, by drawing the same boards for both.

    Args:
      scores_a, scores_b: results of `score_boards`, or of `load_result`.
      key, num_resamples, confidence, method: as for `bootstrap_boards`.

    Returns:
      A `BoardComparison`: differences a - b, two-sided p-values, and which is better.

    Raises:
      ShapeError: other boards in one than in the other, or other metrics.
      EmptyEvaluationError: no board. EvaluationError: settings that mean nothing.
    """
    check_settings(num_resamples, confidence, method)
    records = _records(scores_a)
    other = {(b.group, b.id): b for b in _records(scores_b)}
    same = {(b.group, b.id) for b in records} == set(other)
    if not same or any(set(b.values) != set(other[b.group, b.id].values) for b in records):
        raise ShapeError("have other boards or metrics than the first", argument="scores_b")

    def one(boards: Sequence[BoardRecord], names: tuple[str, ...]) -> Mapping[str, Comparison]:
        pairs = [boards, [other[b.group, b.id] for b in boards]]
        tables, units, values, influence = _resampled(pairs, names, key, num_resamples)
        found = {}
        for i, name in enumerate(tables[0]):
            a, b = influence[0][i], influence[1][i]
            found[name] = comparison(
                name,
                _direction(name),
                (tables[0][name], tables[1][name]),
                (values[0, i], values[1, i]),
                None if a is None or b is None else a - b,
                units,
                confidence=confidence,
                method=method,
            )
        return MappingProxyType(found)

    return BoardComparison(*_by_domain(records, one))


def _records(scores: BoardScores | Mapping[str, Any]) -> tuple[BoardRecord, ...]:
    if isinstance(scores, BoardScores):
        return scores.boards
    return tuple(BoardRecord(b["group"], b["id"], b["values"]) for b in scores["boards"])


def _direction(name: str) -> str:
    """Direction of a metric of the protocol."""
    every = [m for task in ("EMVal-NF", "EMVal-SP") for m in get_task(task).metrics]
    return next((m.direction for m in every if m.name == name), "lower")


def _by_domain(boards: Sequence[BoardRecord], one: Any) -> tuple[Mapping[str, Any], Any, Any]:
    """What ``one`` gives of each group with boards, of ID and of OOD."""
    if not boards:
        raise EmptyEvaluationError("no board has been scored", argument="scores")

    def of(groups: tuple[str, ...]) -> Any:
        members = [b for b in boards if b.group in groups]
        return one(members, groups) if members else MappingProxyType({})

    groups = {g: of((g,)) for g in GROUPS if any(b.group == g for b in boards)}
    return MappingProxyType(groups), of(_DOMAINS["id"]), of(_DOMAINS["ood"])


def _resampled(
    sides: Sequence[Sequence[BoardRecord]], groups: tuple[str, ...], key: Any, num_resamples: int
) -> tuple[list[dict[str, float]], Units, Any, Any]:
    """Dataset values of each side, the boards drawn, values [sides, metrics, B] and influence values."""
    strata = np.array([groups.index(b.group) for b in sides[0]], np.int64)
    _, strata = np.unique(strata, return_inverse=True)
    units = Units(np.ones(len(strata), np.int64), strata=strata.reshape(-1), name="boards")
    tables = [mean_over_boards([b.values for b in boards]) for boards in sides]
    reductions: list[list[Reduction]] = []
    for boards in sides:
        # Of one board alone, which adds the averages over E and H: means of these are averages of the means.
        each = [mean_over_boards([b.values]) for b in boards]
        reductions.append([Mean(np.array([values[name] for values in each])) for name in tables[0]])
    rng = generator(key, ",".join(groups))
    values, influence, units = resample(reductions, units, rng, int(num_resamples), influence=True)
    return tables, units, values, influence
