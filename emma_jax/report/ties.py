"""Ties: which rows of a leaderboard the environments at hand cannot tell apart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["difference", "tie_groups"]

CRITICAL = 1.959963984540054  # two-sided 95% of the normal distribution


def difference(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[float, float]:
    """OOD-avg of one result minus that of another, with its paired standard error over environments.

    Both were scored on the same folds, so the folds are left out of both at once: with d_(i) the difference of the
    normalized scores of a task without fold i, SE_t = sqrt((n-1)/n sum_i (d_(i) - mean)^2), and
    SE = sqrt(sum_t SE_t^2) / |T|, tasks taken as independent. What makes an environment hard for both cancels.

    Args:
      a, b: results of one release, as `emma_jax.submissions.load_result` gives them.

    Returns:
      The difference (dimensionless, positive where ``a`` is better) and its SE; NaN where a task has fewer than two
      folds, or a result lacks the jackknife.
    """
    delta = float(a["ood_avg"]) - float(b["ood_avg"])
    errors = []
    for task, entry in a["tasks"].items():
        if not entry["in_ood_avg"]:
            continue
        ours, theirs = _left_out(entry), _left_out(b["tasks"].get(task) or {})
        n = len(ours)
        if n < 2 or len(theirs) != n:
            return delta, math.nan
        moves = [x - y for x, y in zip(ours, theirs)]
        center = math.fsum(moves) / n
        errors.append(math.sqrt((n - 1) / n) * math.hypot(*(move - center for move in moves)))
    return delta, math.hypot(*errors) / len(errors) if errors else math.nan


def _left_out(entry: Mapping[str, Any]) -> list[float]:
    values = (entry.get("jackknife") or {}).get("leave_one_out") or ()
    return [value for value in values if isinstance(value, (int, float))]


def tie_groups(results: Sequence[Mapping[str, Any]]) -> list[int | None]:
    """The tie group of each result: 1 for those that cannot be told from the best, and so on down.

    A result joins the group above it while its difference from the *first* of that group is within 1.96 paired
    standard errors (or exactly 0). With two environments that SE rests on a single difference: such ties are weak.

    Args:
      results: of one release, from the highest OOD-avg down.

    Returns:
      Group numbers from 1 on, in the same order; None for all where a standard error does not exist.
    """
    groups: list[int | None] = []
    leader, number = None, 0
    for result in results:
        if leader is None:
            leader, number = result, 1
        else:
            delta, se = difference(leader, result)
            if math.isnan(se) and delta != 0:
                return [None] * len(results)
            if abs(delta) > CRITICAL * (0.0 if math.isnan(se) else se):
                leader, number = result, number + 1
        groups.append(number)
    if len(results) == 1 and math.isnan(difference(results[0], results[0])[1]):
        return [None]
    return groups
