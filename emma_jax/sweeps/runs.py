"""Which files a sweep scores, and what their paths say about them."""

from __future__ import annotations

import fnmatch
import glob
import itertools
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from emma_jax.errors import EmptyEvaluationError, EvaluationError
from emma_jax.io.read import FORMATS

__all__ = ["RESERVED", "SUFFIXES", "RunFile", "fill_names", "find_runs"]

SUFFIXES = (*FORMATS, ".h5", ".hdf5")
"""Suffixes that a folder is searched for."""

RESERVED = ("path", "status", "reason", "sha256")
"""Columns of the table that no part of a path may be called."""

_NAME = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True)
class RunFile:
    """One prediction file.

    Attributes:
      path: as found, with "/" between parts.
      keys: what the ``{names}`` of the pattern stand for in this path.
    """

    path: str
    keys: Mapping[str, str] = field(default_factory=dict)


def find_runs(preds: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> tuple[RunFile, ...]:
    """Prediction files, sorted by path.

    Args:
      preds: a pattern, in which ``*``, ``?``, ``[...]`` and ``**`` mean what they do in a shell, and ``{name}`` is a
        ``*`` within one folder that becomes a column of the table, such as ``runs/{run}/{fold}/seed-{seed}.npz``
        (the shortest text that fits counts, and the same name twice stands for the same text); or a folder, which is
        searched for .npz, .npy, .csv, .jsonl and .h5 at any depth; or paths.

    Raises:
      EmptyEvaluationError: nothing is found.
      EvaluationError: a ``{name}`` that the table has already, or a path that is given twice.
    """
    if isinstance(preds, (str, os.PathLike)):
        text = os.fspath(preds)
        runs = _in_folder(text) if os.path.isdir(text) else _by_pattern(text)
        if not runs:
            what = f"holds no {', '.join(SUFFIXES)}" if os.path.isdir(text) else "matches no file"
            raise EmptyEvaluationError(f"{text!r} {what}", argument="preds")
    else:
        runs = [RunFile(Path(p).as_posix()) for p in preds]
        if not runs:
            raise EmptyEvaluationError("no file to score", argument="preds")
    ordered = tuple(sorted(runs, key=lambda r: r.path))
    for one, other in itertools.pairwise(ordered):
        if one.path == other.path:
            raise EvaluationError(f"{one.path} is given twice", argument="preds")
    return ordered


def fill_names(labels: str | os.PathLike[str], keys: Mapping[str, str]) -> str:
    """The label file of a run: every ``{name}`` replaced by what it stands for in the run's path.

    Raises:
      EvaluationError: a name that the pattern of the predictions does not have.
    """
    text = os.fspath(labels)
    if os.path.isfile(text):
        return text
    unknown = [n for n in _NAME.findall(text) if n not in keys]
    if unknown:
        raise EvaluationError(f"{{{unknown[0]}}} is no name in the pattern of the predictions", argument="labels")
    return _NAME.sub(lambda m: keys[m[1]], text)


def _in_folder(folder: str) -> list[RunFile]:
    found = []
    for root, folders, files in os.walk(folder):
        folders[:] = [f for f in folders if not f.startswith(".")]
        found += [os.path.join(root, f) for f in files if f.lower().endswith(SUFFIXES) and not f.startswith(".")]
    return [RunFile(Path(p).as_posix()) for p in found]


def _by_pattern(pattern: str) -> list[RunFile]:
    names = _NAME.findall(pattern)
    taken = [n for n in names if n in RESERVED]
    if taken:
        raise EvaluationError(f"{{{taken[0]}}} is a column of every table; call it something else", argument="preds")
    if os.path.isfile(pattern):
        return [RunFile(Path(pattern).as_posix())]
    files = [p for p in glob.glob(_NAME.sub("*", pattern), recursive=True) if os.path.isfile(p)]
    if not names:
        return [RunFile(Path(p).as_posix()) for p in files]
    matcher = re.compile(_expression(pattern))
    found = ((p, matcher.fullmatch(p)) for p in files)
    return [RunFile(Path(p).as_posix(), m.groupdict()) for p, m in found if m is not None]


def _expression(pattern: str) -> str:
    """A glob with names as a regular expression over paths."""
    out, seen, at = [], set(), 0
    while at < len(pattern):
        rest = pattern[at:]
        if match := _NAME.match(rest):
            name = match[1]
            out.append(f"(?P={name})" if name in seen else f"(?P<{name}>[^/]+?)")
            seen.add(name)
        elif match := re.match(r"\*\*/", rest):
            out.append("(?:.*/)?")
        elif match := re.match(r"\*+", rest):
            out.append("[^/]*")
        elif match := re.match(r"\[!?\]?[^\]]*\]", rest):
            out.append(fnmatch.translate(match[0]).removeprefix("(?s:").removesuffix(r")\Z").removesuffix(r")\z"))
        else:
            match = re.match(r".", rest, re.DOTALL)
            assert match is not None
            out.append("[^/]" if match[0] == "?" else re.escape(match[0]))
        at += match.end()
    return "".join(out)
