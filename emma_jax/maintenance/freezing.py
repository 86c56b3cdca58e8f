"""Freezing a release with an installation that scores as the release will say it was scored."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from emma_jax.errors import ReleaseError
from emma_jax.maintenance.golden import check_golden
from emma_jax.release import PROTOCOL_VERSION, Release, _description, freeze_release
from emma_jax.tasks import list_tasks

__all__ = ["checked_freeze"]


def checked_freeze(directory: str | Path) -> Release:
    """`emma_jax.freeze_release` behind the golden self-test: what scores otherwise than its protocol freezes nothing.

    Of the self-test, what concerns the metrics of the release's tasks: seconds the first time in a process.

    Args:
      directory: the release folder.

    Returns:
      The frozen `Release` (anchors in each metric's unit, with its direction).

    Raises:
      ReleaseError: the release is of another protocol than this installation, the self-test fails (the first deviation
        and their number, in one line), or as `emma_jax.freeze_release`. Nothing is written then.
    """
    root = Path(directory)
    description = _description(root)
    named = description.get("protocol_version", PROTOCOL_VERSION)
    if named != PROTOCOL_VERSION:
        raise ReleaseError(
            f"is {named!r}, but this installation scores by protocol {PROTOCOL_VERSION}: nothing was frozen",
            argument="protocol_version",
        )
    described = description["tasks"] if isinstance(description["tasks"], Mapping) else ()
    check_golden({type(metric) for task in list_tasks() if task.id in described for metric in task.metrics})
    return freeze_release(root)
