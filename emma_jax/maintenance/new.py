"""A release folder from a folder of labels: copied and described, floors measured, anchors proposed, not frozen."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from emma_jax.errors import ReleaseError
from emma_jax.io.read import FORMATS, read_labels
from emma_jax.maintenance.floors import Floor, propose_task
from emma_jax.release import (
    AXES,
    DESCRIPTION,
    PROPOSED,
    PROTOCOL_VERSION,
    REAL,
    Release,
    draft_release,
    load_release,
    write_atomically,
)
from emma_jax.tasks import get_task

__all__ = ["new_release"]

_HEADER = """\
# Description of a release, made by `emma-jax release new`. Look through it: every anchor is a proposal, computed from
# the labels as its basis says. `emma-jax release freeze` makes release.json from this file and the label files; after
# that nothing may change.
"""


def new_release(
    labels: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    name: str,
    axis: str = "environment",
    training: str | os.PathLike[str] | None = None,
) -> tuple[Release, dict[str, tuple[Floor, ...]]]:
    """Makes a release folder that can be looked at, edited and frozen.

    Args:
      labels: folder with ``<task>/<fold>.npz`` (or .npy, .csv, .jsonl) and, where there are real captures,
        ``<task>/real.npz``. Only registered tasks that the shipped proposal describes.
      directory: the release folder to make, new or empty; gets ``labels/``, ``release.toml`` and ``release.json``.
      name: of the release.
      axis: what a fold holds out, "environment", "band" or "unit".
      training: folder with ``<task>/<fold>.npz``, labels that may be learned from when that fold is scored; by default
        those of the other folds.

    Returns:
      The draft `Release` (not frozen) and, by task, the floors that its anchors were proposed from, in the unit and
      direction of each headline metric.

    Raises:
      ReleaseError: a folder that is not there, or not empty; no label file; a file of another format; a task that the
        proposal does not have; a link or special file.
      FileFormatError, LabelError: a label file that cannot be read, or holds no such labels, named.
    """
    source, root = Path(labels), Path(directory)
    if axis not in AXES:
        raise ReleaseError(f"has to be one of {', '.join(AXES)}, not {axis!r}", argument="axis")
    files = _label_files(source)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise ReleaseError("is there already; a release gets a folder of its own", argument=str(root))
    proposal = load_release(PROPOSED)
    tasks: dict[str, dict[str, Any]] = {}
    floors: dict[str, tuple[Floor, ...]] = {}
    for task_id, folds in files.items():
        if task_id not in proposal.tasks or not any(fold != REAL for fold in folds):
            reason = "has only a real split" if task_id in proposal.tasks else "is no task of the proposal"
            raise ReleaseError(f"{reason}; a release describes it by hand", task=task_id, argument=str(source))
        task = get_task(task_id, release=proposal)
        arrays = {fold: read_labels(path).labels for fold, path in folds.items() if fold != REAL}
        known = _training(training, task_id) if training is not None else None
        described, floors[task_id] = (
            propose_task(task, arrays, known) if all(isinstance(a, np.ndarray) for a in arrays.values()) else ({}, ())
        )
        params = {**proposal.params(task_id), **described.get("params", {})}
        tasks[task_id] = {"axis": axis, "params": params, "anchor": described.get("anchor")}
    for task_id, folds in files.items():
        for path in folds.values():
            target = root / "labels" / task_id / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    write_atomically(root / DESCRIPTION, _toml(name, tasks, floors).encode())
    return draft_release(root), floors


def _label_files(source: Path) -> dict[str, dict[str, Path]]:
    """Label files by task and fold; nothing but folders of regular files of known formats."""
    if not source.is_dir():
        raise ReleaseError("there is no such folder", argument=str(source))
    found: dict[str, dict[str, Path]] = {}
    for folder in sorted(p for p in source.iterdir() if not p.name.startswith(".")):
        if not folder.is_dir():
            raise ReleaseError("labels lie in <task>/<fold>.npz", argument=str(folder))
        for path in sorted(p for p in folder.iterdir() if not p.name.startswith(".")):
            if path.is_symlink() or not path.is_file() or path.suffix not in FORMATS:
                raise ReleaseError(f"no label file; there are {', '.join(FORMATS)}", argument=str(path))
            folds = found.setdefault(folder.name, {})
            if path.stem in folds:
                raise ReleaseError(f"a second file for the fold of {folds[path.stem].name}", argument=str(path))
            folds[path.stem] = path
    if not found:
        raise ReleaseError("holds no label file <task>/<fold>.npz", argument=str(source))
    return found


def _training(folder: str | os.PathLike[str], task_id: str) -> dict[str, np.ndarray]:
    paths = _label_files(Path(folder)).get(task_id, {})
    arrays = {fold: read_labels(path).labels for fold, path in paths.items()}
    return {fold: array for fold, array in arrays.items() if isinstance(array, np.ndarray)}


def _toml(name: str, tasks: Mapping[str, Mapping[str, Any]], floors: Mapping[str, tuple[Floor, ...]]) -> str:
    lines = [_HEADER, f"name = {_value(name)}", f"protocol_version = {_value(PROTOCOL_VERSION)}"]
    for task_id, entry in tasks.items():
        lines += ["", f"[tasks.{task_id}]", f"axis = {_value(entry['axis'])}"]
        lines += [f"# floor, {floor.name}: {floor.value:.6g}" for floor in floors[task_id]]
        lines.append(f"params = {_value(entry['params'])}")
        if entry["anchor"] is not None:
            lines.append(f"anchor = {_value(entry['anchor'])}")
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    """A TOML value of text, numbers, bools, lists and tables of them; JSON's strings are TOML's."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{k} = {_value(v)}" for k, v in value.items()) + " }" if value else "{}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)
