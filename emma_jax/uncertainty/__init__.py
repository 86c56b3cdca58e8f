"""How sure a score is: bootstrap intervals, paired comparisons, tests against a floor, ranks with ties.

Goal: no number of a leaderboard without its uncertainty, at a cost that does not keep anyone from asking for it.
Conventions: units (samples, clusters, boards) are drawn with replacement, and statistics are reweighted by how often
each was drawn, never computed from gathered copies. Everything runs on the host, is seeded by a JAX key, and ends in
the formula of the metric itself.
"""

from __future__ import annotations

from emma_jax.uncertainty.intervals import Interval
from emma_jax.uncertainty.paired import Comparison, FloorTest, compare, compare_to_floor
from emma_jax.uncertainty.single import bootstrap

__all__ = ["Comparison", "FloorTest", "Interval", "bootstrap", "compare", "compare_to_floor"]
