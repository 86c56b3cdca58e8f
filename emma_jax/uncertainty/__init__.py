"""How sure a score is: bootstrap intervals, paired comparisons, tests against a floor, ranks with ties.

Goal: no number of a leaderboard without its uncertainty, at a cost that does not keep anyone from asking for it.
Conventions: units (samples, clusters, boards) are drawn with replacement, and statistics are reweighted by how often
each was drawn, never computed from gathered copies. Everything runs on the host, is seeded by a JAX key, and ends in
the formula of the metric itself.
"""

from __future__ import annotations

from emma_jax.uncertainty.intervals import Interval
from emma_jax.uncertainty.ood import (
    OODComparison,
    OODInterval,
    TaskInterval,
    bootstrap_ood_avg,
    compare_ood_avg,
    floor_of,
    rank_ood_avg,
)
from emma_jax.uncertainty.paired import Comparison, FloorTest, compare, compare_to_floor
from emma_jax.uncertainty.ranks import RankedRow, rank_submissions
from emma_jax.uncertainty.single import bootstrap

__all__ = [
    "Comparison",
    "FloorTest",
    "Interval",
    "OODComparison",
    "OODInterval",
    "RankedRow",
    "TaskInterval",
    "bootstrap",
    "bootstrap_ood_avg",
    "compare",
    "compare_ood_avg",
    "compare_to_floor",
    "floor_of",
    "rank_ood_avg",
    "rank_submissions",
]
