"""Runs x folds x seeds as one line a run: mean, spread, worst fold."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from emma_jax.errors import EvaluationError

__all__ = ["PivotRow", "pivot"]


@dataclass(frozen=True)
class PivotRow:
    """One run over its folds and seeds.

    Attributes:
      run: name.
      mean: equal-weight mean over folds of the fold's mean over seeds; in the metric's unit, as all below.
      sd_seeds: sample standard deviation over seeds of the seed's mean over folds: how much a repetition differs. NaN
        for one seed.
      sd_folds: the same over folds of the fold's mean over seeds: how much folds differ. NaN for one fold.
      worst_fold: name of the fold with the worst mean over seeds, the first by name on a tie.
      worst: its value.
      num_folds: folds of the whole table.
      num_seeds: seeds of this run.
      num_missing: combinations of these without a value. Any leaves the numbers NaN: a mean over fewer folds is another
        quantity, and would flatter a run that failed on a hard one.
    """

    run: str
    mean: float
    sd_seeds: float
    sd_folds: float
    worst_fold: str
    worst: float
    num_folds: int
    num_seeds: int
    num_missing: int


def pivot(
    rows: Iterable[Mapping[str, Any]],
    metric: str,
    *,
    direction: str = "higher",
    run: str = "run",
    fold: str = "fold",
    seed: str = "seed",
) -> list[PivotRow]:
    """One line per run of a table of runs x folds x seeds.

    Args:
      rows: mappings such as those of `SweepTable`; a value of None or NaN is missing.
      metric: column of the values.
      direction: "higher" or "lower", whichever is better; the worst fold is at the other end.
      run, fold, seed: columns that name a row's place; one that no row has counts as the same for all.

    Returns:
      One `PivotRow` per run, by name.

    Raises:
      EvaluationError: no rows, no such metric, a place that two rows claim, or a direction that is none.
    """
    if direction not in ("higher", "lower"):
        raise EvaluationError(f'must be "higher" or "lower"; got {direction!r}', argument="direction")
    cells: dict[tuple[str, str, str], float] = {}
    for row in rows:
        if metric not in row:
            raise EvaluationError(
                f"{metric!r} is not a column; there are {', '.join(map(str, row))}", argument="metric"
            )
        place = (str(row.get(run, "")), str(row.get(fold, "")), str(row.get(seed, "")))
        if place in cells:
            named = ", ".join(f"{k} {v!r}" for k, v in zip((run, fold, seed), place))
            raise EvaluationError(f"two rows have {named}", argument="rows")
        value = row[metric]
        cells[place] = math.nan if value is None else float(value)
    if not cells:
        raise EvaluationError("no rows", argument="rows")
    folds = sorted({f for _, f, _ in cells})
    return [_one(name, cells, folds, direction) for name in sorted({r for r, _, _ in cells})]


def _one(name: str, cells: Mapping[tuple[str, str, str], float], folds: list[str], direction: str) -> PivotRow:
    seeds = sorted({s for r, _, s in cells if r == name})
    grid = {(f, s): cells.get((name, f, s), math.nan) for f in folds for s in seeds}
    missing = sum(math.isnan(v) for v in grid.values())
    if missing:
        nan = math.nan
        return PivotRow(name, nan, nan, nan, "", nan, len(folds), len(seeds), missing)
    by_fold = {f: _mean([grid[f, s] for s in seeds]) for f in folds}
    by_seed = [_mean([grid[f, s] for f in folds]) for s in seeds]
    pick = min if direction == "higher" else max
    worst = pick(folds, key=lambda f: by_fold[f])
    return PivotRow(
        run=name,
        mean=_mean(list(by_fold.values())),
        sd_seeds=_sd(by_seed),
        sd_folds=_sd(list(by_fold.values())),
        worst_fold=worst,
        worst=by_fold[worst],
        num_folds=len(folds),
        num_seeds=len(seeds),
        num_missing=0,
    )


def _mean(values: list[float]) -> float:
    """The mean; of values with an infinity that infinity, and NaN where both occur."""
    return math.fsum(values) / len(values) if all(map(math.isfinite, values)) else sum(values) / len(values)


def _sd(values: list[float]) -> float:
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return math.nan
    return statistics.stdev(values)
