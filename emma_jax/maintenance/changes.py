"""What changed between two releases, field by field, and whether a change can move a number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from emma_jax.release import Release

__all__ = ["Change", "release_changes"]

_KINDS = {"params": "parameter", "anchor": "anchor", "folds": "fold", "real": "fold"}
_SILENT = ("basis",)  # of an anchor: words


@dataclass(frozen=True)
class Change:
    """One difference.

    Attributes:
      kind: "release", "task", "metric", "parameter", "anchor", "fold" or "labels".
      place: the field, for example "tasks.E-LOC-AOA.anchor.m_max".
      old, new: JSON-ready values; None where there is none.
      moves_scores: whether the same predictions can score otherwise for it.
    """

    kind: str
    place: str
    old: Any
    new: Any
    moves_scores: bool

    def __str__(self) -> str:
        if self.old is None:
            return f"{self.kind}: {self.place} is new: {_brief(self.new)}"
        if self.new is None:
            return f"{self.kind}: {self.place} is gone: {_brief(self.old)}"
        return f"{self.kind}: {self.place} was {_brief(self.old)}, is {_brief(self.new)}"


def _brief(value: Any) -> str:
    text = f"{len(value)} fields" if isinstance(value, Mapping) and len(value) > 3 else repr(value)
    return text if len(text) <= 90 else f"{text[:87]}..."


def release_changes(old: Release, new: Release) -> tuple[Change, ...]:
    """Every difference between two releases, in the order of the manifest.

    Args:
      old, new: releases, of any state; label files are compared by the sha256 that the manifests pin.

    Returns:
      The changes; none for equal contents. Digest and scorer version follow from the rest, or say nothing of it.
    """
    found: list[Change] = []
    a, b = old.manifest(), new.manifest()
    for field in ("format", "name", "frozen", "protocol_version"):
        if a[field] != b[field]:
            found.append(Change("release", field, a[field], b[field], field == "protocol_version"))
    for task in sorted(a["tasks"].keys() | b["tasks"].keys()):
        ours, theirs = a["tasks"].get(task), b["tasks"].get(task)
        if ours is None or theirs is None:
            found.append(Change("task", f"tasks.{task}", ours, theirs, True))
        else:
            found += _task_changes(f"tasks.{task}", ours, theirs)
    return tuple(found)


def _task_changes(place: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    for field in ("metric", "direction", "unit", "in_ood_avg", "params", "anchor", "folds", "real"):
        ours, theirs = old[field], new[field]
        kind, inner = _KINDS.get(field, "metric"), f"{place}.{field}"
        if ours == theirs:
            continue
        if not isinstance(ours, Mapping) or not isinstance(theirs, Mapping):
            yield Change(kind, inner, ours, theirs, True)
        elif field == "real":
            yield from _file_changes(inner, ours, theirs)
        else:
            yield from _inner_changes(kind, inner, ours, theirs)


def _inner_changes(kind: str, place: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    for key in sorted(old.keys() | new.keys()):
        ours, theirs = old.get(key), new.get(key)
        if ours == theirs and (key in old) == (key in new):
            continue
        if kind == "fold" and isinstance(ours, Mapping) and isinstance(theirs, Mapping):
            yield from _file_changes(f"{place}.{key}", ours, theirs)
        else:
            yield Change(kind, f"{place}.{key}", ours, theirs, key not in _SILENT)


def _file_changes(place: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    """A label file: its bytes decide the scores; its path and axis are names."""
    for key in ("axis", "labels", "n", "sha256"):
        if old.get(key) != new.get(key):
            kind = "labels" if key in ("n", "sha256") else "fold"
            yield Change(kind, f"{place}.{key}", old.get(key), new.get(key), kind == "labels")
