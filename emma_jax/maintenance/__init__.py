"""For whoever keeps a benchmark: releases from label files with proposed anchors, differences, metadata, self-test."""

from __future__ import annotations

from emma_jax.maintenance.changes import Change, release_changes
from emma_jax.maintenance.croissant import croissant_metadata
from emma_jax.maintenance.floors import Floor, propose_task
from emma_jax.maintenance.freezing import checked_freeze
from emma_jax.maintenance.golden import GOLDEN_DIGESTS, Deviation, check_golden, golden_deviations
from emma_jax.maintenance.new import new_release

__all__ = [
    "GOLDEN_DIGESTS",
    "Change",
    "Deviation",
    "Floor",
    "check_golden",
    "checked_freeze",
    "croissant_metadata",
    "golden_deviations",
    "new_release",
    "propose_task",
    "release_changes",
]
