"""A submission folder: what lies in it, looked through without opening a prediction file.

Every name and every byte is a stranger's. Links, special files, folders of folders without end, names that are no text,
anchors in any form and unknown formats are refused here, before anything is read.

Each fault goes to a ``report`` function, which raises it (`load_submission`) or collects it
(`emma_jax.submissions.check_submission`): both see the same faults in the same order.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from emma_jax.errors import EvaluationError, FileFormatError, MissingTaskError, ReleaseError, SubmissionError
from emma_jax.io.read import FORMATS
from emma_jax.io.sources import MAX_BYTES, read_bytes
from emma_jax.release import REAL, Release

__all__ = ["DESCRIPTION", "Limits", "Submission", "check_against", "is_anchor", "load_submission", "look_through"]

DESCRIPTION = "submission.toml"
PREDS = "preds"

_ANCHOR = re.compile(r"anchor|^m[^a-z]*(min|max)(\.\w+)?$", re.IGNORECASE)
_FIELDS = ("name", "model", "notes")
_NO_ANCHORS = "anchors come from the release alone; a submission may not carry any"

Report: TypeAlias = Callable[[EvaluationError], None]
"""What is done with a fault: raise it, or note it and go on."""


@dataclass(frozen=True)
class Limits:
    """How much a stranger's submission may take. All are counts of bytes, or of files.

    Attributes:
      file_bytes: one .npz or .npy file, once decompressed (4 GiB).
      text_bytes: one .csv or .jsonl file (256 MiB): parsed text takes many times its size in memory.
      total_bytes: all arrays of all prediction files together, once decompressed (64 GiB).
      entries: files and folders (20,000).
      depth: folders within folders (16).
      description_bytes: ``submission.toml`` (1 MiB).
    """

    file_bytes: int = MAX_BYTES
    text_bytes: int = 2**28
    total_bytes: int = 16 * MAX_BYTES
    entries: int = 20_000
    depth: int = 16
    description_bytes: int = 2**20

    def of(self, path: str) -> int:
        """The limit on one file of that name, in bytes."""
        text = path.lower().endswith((".csv", ".jsonl"))
        return min(self.text_bytes, self.file_bytes) if text else self.file_bytes


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


@contextmanager
def naming(place: str) -> Iterator[None]:
    """Puts a file's name in front of whatever `EvaluationError` is raised within, which keeps its type.

    What the system refuses (a file that vanished, memory) becomes a SubmissionError likewise.
    """
    try:
        yield
    except EvaluationError as error:
        if place in str(error):
            raise
        named = type(error)(f"{place}: {error}")
        named.task, named.argument, named.count, named.index = error.task, error.argument, error.count, error.index
        raise named from error
    except OSError as error:
        raise SubmissionError(f"cannot be read: {error.strerror}", argument=place) from error
    except MemoryError as error:
        raise SubmissionError("takes more memory than there is", argument=place) from error


def raise_at_once(error: EvaluationError) -> NoReturn:
    """The report of whoever wants the first fault only."""
    raise error


def load_submission(directory: str | os.PathLike[str], *, limits: Limits | None = None) -> Submission:
    """Looks through a submission folder and reads its description; no prediction file is opened.

    Args:
      directory: the folder.
      limits: how much it may hold; those of `Limits` by default.

    Returns:
      The `Submission`.

    Raises:
      SubmissionError: naming the file: no folder, a missing or malformed description, a symbolic link or special file,
        a name that is no text, anchors in any form, a file of unknown format, two files for one fold, a layout other
        than ``preds/<task>/<fold>.<format>``, or more of anything than the limits allow.
    """
    return look_through(directory, limits or Limits(), raise_at_once)


def look_through(directory: str | os.PathLike[str], limits: Limits, report: Report) -> Submission:
    """As `load_submission`, with every fault given to ``report``; what is at fault is then left out of the result.

    Raises:
      SubmissionError: there is no such folder, or it holds more than the limits allow.
    """
    root = Path(directory)
    if not _is_folder(root):
        raise SubmissionError("there is no such folder", argument=str(directory))
    files = []
    for path in _files(root, limits, report):
        parts = path.split("/")
        # in preds/ things are named by tasks and folds of the release, whatever those are called
        named_by_release = len(parts) == 3 and parts[0] == PREDS
        if not named_by_release and (any(map(is_anchor, parts)) or parts[-1].startswith("release.")):
            report(SubmissionError(_NO_ANCHORS, argument=path))
        else:
            files.append(path)
    fields, sha256 = _description(root, files, limits, report)
    preds, ignored = _layout(files, report)
    return Submission(root, **fields, preds=preds, ignored_files=ignored, sha256=sha256)


def _is_folder(root: Path) -> bool:
    try:
        return root.is_dir()
    except (OSError, ValueError):
        return False


def _files(root: Path, limits: Limits, report: Report) -> list[str]:
    """Relative paths of all files, sorted; anything but folders and regular files is reported."""
    found: list[str] = []
    folders = [""]
    entries = 0
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(root / folder) as scan:
                inside = [(entry.name, entry.stat(follow_symlinks=False).st_mode) for entry in scan]
        except OSError as error:
            report(SubmissionError(f"cannot be read: {error.strerror}", argument=_shown(folder) or str(root)))
            continue
        entries += len(inside)
        if entries > limits.entries:
            raise SubmissionError(f"more than {limits.entries} files and folders", argument=str(root))
        for name, mode in sorted(inside):
            path = f"{folder}/{name}" if folder else name
            if not _is_text(name):
                report(SubmissionError("a name that is not UTF-8, or has control characters", argument=_shown(path)))
            elif stat.S_ISLNK(mode):
                report(SubmissionError("a symbolic link; a submission holds its own files", argument=path))
            elif stat.S_ISDIR(mode):
                if path.count("/") + 2 > limits.depth:
                    report(SubmissionError(f"folders more than {limits.depth} deep", argument=_shown(path)))
                else:
                    folders.append(path)
            elif stat.S_ISREG(mode):
                found.append(path)
            else:
                report(SubmissionError("neither a file nor a folder", argument=path))
    return sorted(found)


def _is_text(name: str) -> bool:
    """Whether a name can be written into a result: a byte that is not UTF-8 arrives as a lone surrogate."""
    return name.isprintable() and "\\" not in name


def _shown(path: str) -> str:
    text = path.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= 300 else f"{text[:297]}..."


def is_anchor(name: str) -> bool:
    """Whether a name (of a file, an array, a key) looks like that of an anchor."""
    return _ANCHOR.search(name) is not None


def _description(root: Path, files: Sequence[str], limits: Limits, report: Report) -> tuple[dict[str, str], str]:
    fields, sha256 = dict.fromkeys(_FIELDS, ""), ""
    if DESCRIPTION not in files:
        report(SubmissionError(f"there is no {DESCRIPTION}", argument=str(root)))
        return fields, sha256
    try:
        data = read_bytes(root / DESCRIPTION, max_bytes=limits.description_bytes, name=DESCRIPTION)
        content = tomllib.loads(data.decode("utf-8-sig"))
    except FileFormatError as error:
        report(error)
        return fields, sha256
    except OSError as error:
        report(SubmissionError(f"cannot be read: {error.strerror}", argument=DESCRIPTION))
        return fields, sha256
    except (ValueError, RecursionError) as error:
        report(SubmissionError(f"not TOML: {str(error)[:120]}", argument=DESCRIPTION))
        return fields, sha256
    for key in _keys(content):
        if is_anchor(key):
            report(SubmissionError(f"{key[:60]!r}: {_NO_ANCHORS}", argument=DESCRIPTION))
    for key, value in content.items():
        if key not in _FIELDS:
            report(SubmissionError(f"unknown field {key[:60]!r}; there are {', '.join(_FIELDS)}", argument=DESCRIPTION))
        elif not isinstance(value, str):
            report(SubmissionError(f"{key!r} must be text", argument=DESCRIPTION))
        elif key != "notes" and (len(value) > 200 or not value.isprintable()):
            report(SubmissionError(f"{key!r} must be one line of at most 200 characters", argument=DESCRIPTION))
        else:
            fields[key] = value.strip()
    if not fields["name"] and not (isinstance(content.get("name"), str) and content["name"].strip()):
        report(SubmissionError("'name' is missing", argument=DESCRIPTION))
    return fields, hashlib.sha256(data).hexdigest()


def _keys(value: Any) -> Iterator[str]:
    """All keys of a TOML value, nested ones included; a stack, as deep ones would exhaust recursion."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            yield from item
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


def _layout(files: Sequence[str], report: Report) -> tuple[dict[str, dict[str, str]], tuple[str, ...]]:
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
            report(SubmissionError(f"prediction files lie in {PREDS}/<task>/<fold>.npz", argument=_shown(path)))
            continue
        fold, suffix = os.path.splitext(parts[2])
        if suffix.lower() not in FORMATS:
            text = f"unknown format {suffix[:20]!r}; there are {', '.join(FORMATS)}"
            report(SubmissionError(text, argument=path))
            continue
        folds = preds.setdefault(parts[1], {})
        if fold in folds:
            report(SubmissionError(f"a second file for the fold of {folds[fold]}", argument=path))
        else:
            folds[fold] = path
    return preds, tuple(ignored)


def check_against(submission: Submission, release: Release, report: Report) -> list[tuple[str, str, str]]:
    """Every task and fold is one of the release's, and every one that it requires is there.

    Args:
      submission: what was looked through.
      release: with label files.
      report: takes a SubmissionError for each unknown task or fold, a MissingTaskError for each task that lacks some.

    Returns:
      (task, fold, path) of every file that can be scored, in the order of task and fold names.

    Raises:
      ReleaseError: the release aggregates no task, or has no label files for one.
    """
    if not release.aggregated:
        raise ReleaseError("aggregates no task, so nothing can be scored against it", argument=release.name)
    for task in release.aggregated:
        if not release.tasks[task].folds:
            raise ReleaseError(
                f"holds no label files for {task}; score against a release folder", argument=release.name
            )
    jobs = []
    for task, given in submission.preds.items():
        if task not in release.tasks:
            text = f"release {release.name} has no task {task[:80]!r}; it has {', '.join(release.tasks)}"
            report(SubmissionError(text, argument=f"{PREDS}/{task}"))
            continue
        entry = release.tasks[task]
        known = [*entry.folds, *([REAL] if entry.real else [])]
        for fold, path in given.items():
            if fold in known:
                jobs.append((task, fold, path))
                continue
            there = ", ".join(known) or "none"
            text = f"release {release.name} has no fold {fold[:80]!r} of {task}; it has {there}"
            report(SubmissionError(text, argument=path))
    # a task outside OOD-avg may be left out, but not some of its folds: their mean would be another number
    wanted = [*release.aggregated, *(t for t in submission.preds if t in release.tasks and t not in release.aggregated)]
    missing = [
        (task, fold)
        for task in wanted
        for fold in release.tasks[task].folds
        if fold not in submission.preds.get(task, {})
    ]
    for task in dict.fromkeys(task for task, _ in missing):
        folds = [fold for t, fold in missing if t == task]
        path = f"{PREDS}/{task}/{folds[0]}.npz" if task in submission.preds else f"{PREDS}/{task}/"
        text = f"no predictions for fold {folds[0]}: {path} is not there, and release {release.name} requires it"
        report(MissingTaskError(text, task=task, count=len(folds)))
    return sorted(jobs)
