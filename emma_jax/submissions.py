"""Submissions: a folder of prediction files, scored against a release into one result document.

A submission is untrusted. It holds::

    submission.toml                     name, model (optional), notes (optional)
    preds/<task>/<fold>.npz             array preds, optional ids; also .npy, .csv, .jsonl
    preds/<task>/real.npz               the same for the real captures, where the release has them

No code of it runs, nothing outside the folder is read, no symbolic link is followed. Anchors, masks, groups and labels
come from the release alone; a submission that carries any is refused.

Rows and ids: with ids on both sides, rows are matched by id. Where the predictions have no ids, their rows are taken in
the order of the label file, and the numbers of rows have to be equal. Predictions with ids against labels without are
an error: the order that the ids ask for cannot be found.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from emma_jax._version import __version__
from emma_jax.aggregate import OODAvg, SimToRealGap, jackknife
from emma_jax.errors import EvaluationError, FileFormatError, MissingTaskError, ReleaseError, SubmissionError
from emma_jax.io.arrays import aligned_take
from emma_jax.io.read import FORMATS, Labels, Predictions, check_unique_ids, first_ten, read_labels, read_predictions
from emma_jax.io.sources import MAX_BYTES, read_bytes
from emma_jax.io.strict import dumps_strict, loads_strict
from emma_jax.io.write import atomic_write
from emma_jax.release import CONTINUITY_TASK, REAL, Release, TaskEntry, load_release

__all__ = [
    "RESULT_FORMAT",
    "Submission",
    "align",
    "load_result",
    "load_submission",
    "score_submission",
    "write_result",
]

RESULT_FORMAT = "emma-result/1"
DESCRIPTION = "submission.toml"
PREDS = "preds"

_ANCHOR = re.compile(r"anchor|^m[^a-z]*(min|max)(\.\w+)?$", re.IGNORECASE)
_MAX_DESCRIPTION = 1 << 20
_MAX_RESULT = 1 << 28
_MAX_ENTRIES = 20_000
_FIELDS = ("name", "model", "notes")
_OWNED = {
    **dict.fromkeys(("where", "weights", "group", "groups", "label", "labels", "refs"), "label file"),
    **dict.fromkeys(("anchor", "anchors", "m_min", "m_max"), "release"),
}

Progress = Callable[[int, int, str], None]
"""``progress(done, total, what)``, called before each file is scored and once at the end."""


@dataclass(frozen=True)
class Submission:
    """A submission folder that has been looked through, its prediction files not yet read.

    Attributes:
      root: the folder.
      name: of the submission, one line.
      model: what made the predictions, one line; empty if not said.
      notes: free text; empty if not given.
      preds: task id to fold name (or "real") to path relative to ``root``, with "/" between parts.
      ignored_files: paths, relative likewise, that are there and that nothing reads.
      sha256: of the bytes of ``submission.toml``.
    """

    root: Path
    name: str
    model: str
    notes: str
    preds: Mapping[str, Mapping[str, str]]
    ignored_files: tuple[str, ...]
    sha256: str


# --- The folder --------------------------------------------------------------------------------------------------


def load_submission(directory: str | os.PathLike[str]) -> Submission:
    """Looks through a submission folder and reads its description; no prediction file is opened.

    Args:
      directory: the folder.

    Returns:
      The `Submission`.

    Raises:
      SubmissionError: naming the file: no folder, a missing or malformed description, a symbolic link or special file,
        anchors in any form, a file of unknown format, two files for one fold, or a layout other than
        ``preds/<task>/<fold>.<format>``.
    """
    root = Path(directory)
    if not root.is_dir():
        raise SubmissionError("there is no such folder", argument=str(directory))
    files = _files(root)
    for path in files:
        parts = path.split("/")
        if len(parts) == 3 and parts[0] == PREDS:
            continue  # named by tasks and folds of the release, whatever those are called
        if any(map(_is_anchor, parts)) or parts[-1].startswith("release."):
            raise SubmissionError("anchors come from the release alone; a submission may not carry any", argument=path)
    fields, sha256 = _description(root, files)
    preds, ignored = _layout(files)
    return Submission(root, **fields, preds=preds, ignored_files=ignored, sha256=sha256)


def _files(root: Path) -> list[str]:
    """Relative paths of all files, sorted; anything but folders and regular files is refused."""
    found: list[str] = []
    folders = [""]
    entries = 0
    while folders:
        folder = folders.pop()
        with os.scandir(root / folder) as scan:
            for entry in scan:
                path = f"{folder}/{entry.name}" if folder else entry.name
                mode = entry.stat(follow_symlinks=False).st_mode
                if stat.S_ISLNK(mode):
                    raise SubmissionError("a symbolic link; a submission holds its own files", argument=path)
                if stat.S_ISDIR(mode):
                    folders.append(path)
                elif stat.S_ISREG(mode):
                    found.append(path)
                else:
                    raise SubmissionError("neither a file nor a folder", argument=path)
                entries += 1
                if entries > _MAX_ENTRIES:
                    raise SubmissionError(f"more than {_MAX_ENTRIES} files and folders", argument=str(root))
    return sorted(found)


def _is_anchor(name: str) -> bool:
    return _ANCHOR.search(name) is not None


def _description(root: Path, files: Sequence[str]) -> tuple[dict[str, str], str]:
    if DESCRIPTION not in files:
        raise SubmissionError(f"there is no {DESCRIPTION}", argument=str(root))
    data = read_bytes(root / DESCRIPTION, max_bytes=_MAX_DESCRIPTION, name=DESCRIPTION)
    try:
        content = tomllib.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise SubmissionError(f"not TOML: {str(error)[:120]}", argument=DESCRIPTION) from None
    for key in _keys(content):
        if _is_anchor(key):
            raise SubmissionError(
                f"{key!r}: anchors come from the release alone; a submission may not carry any", argument=DESCRIPTION
            )
    for key, value in content.items():
        if key not in _FIELDS:
            raise SubmissionError(f"unknown field {key!r}; there are {', '.join(_FIELDS)}", argument=DESCRIPTION)
        if not isinstance(value, str):
            raise SubmissionError(f"{key!r} must be text", argument=DESCRIPTION)
        if key != "notes" and (len(value) > 200 or not value.isprintable()):
            raise SubmissionError(f"{key!r} must be one line of at most 200 characters", argument=DESCRIPTION)
    fields = {key: content.get(key, "").strip() for key in _FIELDS}
    if not fields["name"]:
        raise SubmissionError("'name' is missing", argument=DESCRIPTION)
    return fields, hashlib.sha256(data).hexdigest()


def _keys(value: Any) -> Iterator[str]:
    """All keys of a TOML value, nested ones included."""
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _keys(item)


def _layout(files: Sequence[str]) -> tuple[dict[str, dict[str, str]], tuple[str, ...]]:
    """Prediction files by task and fold, and the files outside ``preds/`` (and hidden ones), which are ignored."""
    preds: dict[str, dict[str, str]] = {}
    ignored = []
    for path in files:
        parts = path.split("/")
        if any(part.startswith(".") for part in parts) or parts[0] != PREDS:
            if path != DESCRIPTION:
                ignored.append(path)
            continue
        if len(parts) != 3:
            raise SubmissionError(f"prediction files lie in {PREDS}/<task>/<fold>.npz", argument=path)
        fold, suffix = os.path.splitext(parts[2])
        if suffix.lower() not in FORMATS:
            raise SubmissionError(f"unknown format {suffix!r}; there are {', '.join(FORMATS)}", argument=path)
        folds = preds.setdefault(parts[1], {})
        if fold in folds:
            raise SubmissionError(f"a second file for the fold of {folds[fold]}", argument=path)
        folds[fold] = path
    return preds, tuple(ignored)


def _check_against(submission: Submission, release: Release) -> None:
    """Every task and fold is one of the release's, and every one that it requires is there."""
    if not release.aggregated:
        raise ReleaseError("aggregates no task, so nothing can be scored against it", argument=release.name)
    for task in release.aggregated:
        if not release.tasks[task].folds:
            raise ReleaseError(
                f"holds no label files for {task}; score against a release folder", argument=release.name
            )
    for task, folds in submission.preds.items():
        if task not in release.tasks:
            raise SubmissionError(
                f"release {release.name} has no task {task!r}; it has {', '.join(release.tasks)}",
                argument=f"{PREDS}/{task}",
            )
        entry = release.tasks[task]
        known = [*entry.folds, *([REAL] if entry.real else [])]
        for fold, path in folds.items():
            if fold not in known:
                raise SubmissionError(
                    f"release {release.name} has no fold {fold!r} of {task}; it has {', '.join(known) or 'none'}",
                    argument=path,
                )
    # a task outside OOD-avg may be left out, but not some of its folds: their mean would be another number
    wanted = [*release.aggregated, *(task for task in submission.preds if task not in release.aggregated)]
    missing = [
        (task, fold)
        for task in wanted
        for fold in release.tasks[task].folds
        if fold not in submission.preds.get(task, {})
    ]
    if missing:
        task, fold = missing[0]
        path = f"{PREDS}/{task}/{fold}.npz" if task in submission.preds else f"{PREDS}/{task}/"
        raise MissingTaskError(
            f"no predictions for fold {fold}: {path} is not there, and release {release.name} requires it",
            task=task,
            count=len(missing),
        )


# --- Rows --------------------------------------------------------------------------------------------------------


def align(preds: Predictions, labels: Labels) -> Any:
    """The predictions in the order of the labels.

    Args:
      preds: N predictions, with or without ids.
      labels: N labels, with or without ids.

    Returns:
      ``preds.preds``, rows (array [N,...], or list of N strings) in label order.

    Raises:
      SubmissionError: naming the file, with the first ten and the total of each kind: missing, extra or duplicate ids;
        ids that the labels do not have; or another number of rows.
    """
    if preds.ids is None:
        if len(preds.preds) != len(labels.labels):
            raise SubmissionError(
                f"{len(preds.preds)} predictions for the {len(labels.labels)} labels of {labels.name}",
                argument=preds.name,
            )
        return preds.preds
    if labels.ids is None:
        raise SubmissionError(
            f"has ids, but {labels.name} has none to match them with; leave them out and keep the order of the labels",
            argument=preds.name,
        )
    check_unique_ids(preds.ids, preds.name, SubmissionError)
    check_unique_ids(labels.ids, labels.name, SubmissionError)
    if preds.ids == labels.ids:
        return preds.preds
    row = {sample: i for i, sample in enumerate(preds.ids)}
    wanted = set(labels.ids)
    missing = [i for i in labels.ids if i not in row]
    extra = [i for i in preds.ids if i not in wanted]
    if missing or extra:
        parts = [
            f"{len(ids)} {what}: {first_ten(ids)}"
            for ids, what in ((missing, "ids missing"), (extra, "ids that the labels do not have"))
            if ids
        ]
        raise SubmissionError("; ".join(parts), argument=preds.name)
    order = np.fromiter((row[i] for i in labels.ids), np.intp, len(labels.ids))
    return aligned_take(preds.preds, order) if isinstance(preds.preds, np.ndarray) else [preds.preds[i] for i in order]


# --- Scores ------------------------------------------------------------------------------------------------------


@contextmanager
def _naming(place: str) -> Iterator[None]:
    """Puts a file's name in front of whatever `EvaluationError` is raised within, which keeps its type."""
    try:
        yield
    except EvaluationError as error:
        if place in str(error):
            raise
        named = type(error)(f"{place}: {error}")
        named.task, named.argument, named.count, named.index = error.task, error.argument, error.count, error.index
        raise named from error


@dataclass
class _Inputs:
    """sha256 of every file that was scored, by relative path."""

    preds: dict[str, str]
    labels: dict[str, str]


def _score_fold(
    submission: Submission, release: Release, task_id: str, fold: str, inputs: _Inputs, max_bytes: int
) -> tuple[float, dict[str, Any]]:
    """Headline value and the document entry of one fold (or of the real split)."""
    from emma_jax.evaluate import evaluate, evaluate_groups

    path, file = submission.preds[task_id][fold], release.label_file(task_id, fold)
    label_data = release.label_bytes(task_id, fold)
    with _naming(file.path):
        labels = read_labels(label_data, name=file.path, unique_ids=False)
    data = read_bytes(submission.root / path, max_bytes=max_bytes, name=path)
    inputs.preds[path], inputs.labels[file.path] = hashlib.sha256(data).hexdigest(), file.sha256
    with _naming(path):
        preds = read_predictions(data, name=path, max_bytes=max_bytes, unique_ids=False)
        for name in preds.names:
            owner = _OWNED.get(name) or ("release" if _is_anchor(name) else None)
            if owner:
                raise SubmissionError(f"carries {name!r}, which is for the {owner} alone to give", argument=path)
        rows = align(preds, labels)
        task = release.task(task_id)
        scores = evaluate(task, rows, labels.labels, where=labels.where)
        entry: dict[str, Any] = {"n": len(labels.labels), "metrics": scores.to_dict()["metrics"]}
        entry["rows"] = "in order" if preds.ids is None else "by id"
        if labels.groups is not None:
            groups = evaluate_groups(
                task, rows, labels.labels, labels.groups, num_groups=len(labels.group_names), where=labels.where
            )
            entry["groups"] = group_entries(groups, labels.group_names)
    return float(scores[release.tasks[task_id].metric]), entry


def group_entries(scores: Any, names: Sequence[str]) -> dict[str, Any]:
    """Per group and metric, the value (null where the group leaves it undefined) and from how many samples it comes."""
    return {
        name: {
            metric: {"value": scores[metric][g], "n_used": int(scores.validity[metric].n_used[g])} for metric in scores
        }
        for g, name in enumerate(names)
    }


def _task_entry(entry: TaskEntry, values: Mapping[str, float], real: float | None) -> dict[str, Any]:
    """What the folds of one task come to: raw and normalized, their spread, and the gap where there is a real split."""
    anchor = entry.anchor
    spread = jackknife(values, anchor.normalize if anchor else None)
    raw = jackknife(values)
    gap = SimToRealGap().from_raw(anchor, raw.mean, real) if anchor is not None and real is not None else None
    return {
        "metric": entry.metric,
        "direction": entry.direction,
        "unit": entry.unit,
        "params": dict(entry.params),
        "in_ood_avg": entry.in_ood_avg,
        "anchor": {"m_min": anchor.m_min, "m_max": anchor.m_max, "basis": anchor.basis} if anchor else None,
        "raw": raw.mean,
        "normalized": spread.mean if anchor else None,
        "jackknife": spread.to_dict() if anchor else None,
        "jackknife_raw": raw.to_dict(),
        "real_raw": real,
        "real_normalized": gap.real if gap else None,
        "gap_pp": gap.gap if gap else None,
        "gap_unclipped_pp": gap.unclipped if gap else None,
    }


def score_submission(
    directory: str | os.PathLike[str] | Submission,
    release: Release | str | Path,
    *,
    progress: Progress | None = None,
    max_bytes: int = MAX_BYTES,
) -> dict[str, Any]:
    """Scores a submission folder against a release.

    Every prediction file is read once: its sha256 is that of the very bytes that were scored.

    Args:
      directory: the submission folder, or what `load_submission` made of it.
      release: a `Release`, or a path or name for `load_release`.
      progress: called as ``progress(done, total, what)`` before each file and once at the end.
      max_bytes: limit, in bytes, on the decompressed content of one prediction file.

    Returns:
      The result document, JSON-ready for `write_result`: ``format, submission, release, protocol_version, scorer,
      inputs, tasks, ood_avg, ood_avg_se, ood_avg_low, ood_avg_high, underpowered, gap_pp, gap_tasks, continuity,
      ignored, ignored_files, provenance``. Raw values are in the unit and direction of each task's metric, normalized
      ones and OOD-avg in [0, 1] (higher is better), gaps in percentage points. The same inputs give the same document
      but for ``provenance``, which says when and where it was made.

    Raises:
      SubmissionError: the folder, a file or its ids break the rules; the message names the file.
      MissingTaskError: a task or fold that the release requires is not there.
      ReleaseError: the release has no labels, or a label file was changed.
      FileFormatError: a prediction file that cannot be read.
      EvaluationError: predictions that cannot be scored, NaN above all; the file's name stands in front.
    """
    submission = directory if isinstance(directory, Submission) else load_submission(directory)
    release = release if isinstance(release, Release) else load_release(release)
    _check_against(submission, release)
    inputs = _Inputs({}, {})
    jobs = [(task, fold, path) for task in sorted(submission.preds) for fold, path in submission.preds[task].items()]
    values: dict[str, dict[str, float]] = {}
    details: dict[str, dict[str, Any]] = {}
    for done, (task, fold, path) in enumerate(jobs):
        if progress is not None:
            progress(done, len(jobs), path)
        value, entry = _score_fold(submission, release, task, fold, inputs, max_bytes)
        values.setdefault(task, {})[fold] = value
        details.setdefault(task, {})[fold] = entry
    if progress is not None:
        progress(len(jobs), len(jobs), "done")
    real = {task: folds.pop(REAL) for task, folds in values.items() if REAL in folds}
    tasks = {}
    for task, folds in values.items():
        if not folds:  # real captures alone, of a task that has no synthetic folds in this release
            raise ReleaseError("has only a real split, which enters no number", task=task, argument=release.name)
        tasks[task] = _task_entry(release.tasks[task], folds, real.get(task))
        tasks[task]["real"] = details[task].pop(REAL, None)
        tasks[task]["folds"] = {
            fold: {"axis": release.tasks[task].folds[fold].axis, "value": folds[fold], **details[task][fold]}
            for fold in folds
        }
    detail = OODAvg(release).detail(values)
    pairs = {t: (tasks[t]["normalized"], tasks[t]["real_normalized"]) for t in release.aggregated}
    gap = SimToRealGap().column(pairs) if any(None not in pair for pair in pairs.values()) else None
    return {
        "format": RESULT_FORMAT,
        "submission": {"name": submission.name, "model": submission.model, "notes": submission.notes},
        "release": {"name": release.name, "digest": release.digest, "frozen": release.frozen},
        "protocol_version": release.protocol_version,
        "scorer": {"name": "emma-jax", "version": __version__},
        "inputs": {"submission": {DESCRIPTION: submission.sha256}, "preds": inputs.preds, "labels": inputs.labels},
        "tasks": tasks,
        "ood_avg": detail.value,
        "ood_avg_se": detail.se,
        "ood_avg_low": detail.low,
        "ood_avg_high": detail.high,
        "underpowered": detail.underpowered,
        "gap_pp": gap.value if gap else None,
        "gap_tasks": sorted(gap.tasks) if gap else [],
        "continuity": {task: tasks[task]["raw"] for task in (CONTINUITY_TASK,) if task in tasks},
        "ignored": list(detail.ignored),
        "ignored_files": list(submission.ignored_files),
        "provenance": _provenance(),
    }


def _provenance() -> dict[str, Any]:
    import platform

    import jax
    import jaxlib.version

    device = jax.devices()[0]
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "jax": jax.__version__,
        "jaxlib": jaxlib.version.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": f"{device.platform}: {device.device_kind}",
    }


# --- Results -----------------------------------------------------------------------------------------------------


def write_result(result: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Writes a result document as strict JSON, atomically.

    Args:
      result: from `score_submission`.
      path: the file to write; its folder must exist.

    Raises:
      OSError: it cannot be written; an older file is then untouched.
    """
    atomic_write(path, dumps_strict(result).encode())


_NUMBER = (float, int, str, type(None))
_RESULT: dict[str, Any] = {
    "submission": {"name": str, "model": str, "notes": str},
    "release": {"name": str, "digest": str, "frozen": bool},
    "protocol_version": str,
    "scorer": {"name": str, "version": str},
    "inputs": dict,
    "tasks": dict,
    "ood_avg": _NUMBER,
    "ood_avg_se": _NUMBER,
    "underpowered": bool,
    "gap_pp": _NUMBER,
    "gap_tasks": list,
    "continuity": dict,
    "provenance": {"created": str},
}
_RESULT_TASK: dict[str, Any] = {
    "metric": str,
    "direction": str,
    "unit": str,
    "in_ood_avg": bool,
    "raw": _NUMBER,
    "normalized": _NUMBER,
    "jackknife_raw": {"n": int, "se": _NUMBER, "underpowered": bool},
    "gap_pp": _NUMBER,
}


def load_result(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads a result document and checks that it has what a leaderboard needs.

    Args:
      path: a file that `write_result` wrote.

    Returns:
      The document; numbers as in the file, where "inf", "-inf" and null stand for infinities and undefined values.

    Raises:
      FileFormatError: not strict JSON, another format, or a field that is missing or of a wrong type.
      OSError: the path cannot be opened.
    """
    name = os.fspath(path)
    with _naming(name):
        result = loads_strict(read_bytes(Path(os.path.realpath(path)), max_bytes=_MAX_RESULT, name=name), name)
        if not isinstance(result, dict) or result.get("format") != RESULT_FORMAT:
            raise FileFormatError(f"not a result of `emma-jax score` ({RESULT_FORMAT})", argument=name)
        _check_fields(result, _RESULT, "", name)
        value = result["ood_avg"]
        if not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise FileFormatError(f"ood_avg is {value!r}, no number in [0, 1]", argument=name)
        for task, entry in result["tasks"].items():
            _check_fields(entry, _RESULT_TASK, f"tasks.{task}", name)
    return result


def _check_fields(value: Any, wanted: Any, place: str, name: str) -> None:
    if isinstance(wanted, dict):
        if not isinstance(value, dict):
            raise FileFormatError(f"{place or 'the document'} is not an object", argument=name)
        for key, inner in wanted.items():
            inside = f"{place}.{key}" if place else key
            if key not in value:
                raise FileFormatError(f"{inside} is missing", argument=name)
            _check_fields(value[key], inner, inside, name)
    elif not isinstance(value, wanted) or (wanted is _NUMBER and not _is_number(value)):
        raise FileFormatError(f"{place} has a value of a wrong type", argument=name)


def _is_number(value: Any) -> bool:
    return value is None or value in ("inf", "-inf") or (type(value) in (int, float) and math.isfinite(value))
