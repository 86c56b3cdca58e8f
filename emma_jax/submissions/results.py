"""Result documents: written sealed, read with suspicion, and held against the files that they were made from.

A result carries a ``digest`` over its canonical JSON but for ``provenance`` and itself: the same inputs give the same
digest whenever and wherever they are scored, and a result that was edited no longer fits it. Whoever edits can compute
a new digest; `verify_result` therefore goes back to the label and prediction files and, asked to, scores them again.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from emma_jax.errors import EvaluationError, FileFormatError, ReleaseError
from emma_jax.io.sources import read_bytes
from emma_jax.io.strict import dumps_strict, loads_strict
from emma_jax.io.write import atomic_write
from emma_jax.release import Release, is_inner_path
from emma_jax.submissions.folder import DESCRIPTION, Limits, naming

__all__ = ["RESULT_FORMAT", "load_result", "sealed", "verify_result", "write_result"]

RESULT_FORMAT = "emma-result/1"
_MAX_RESULT = 1 << 28
_MAX_RESAMPLES = 100_000
_UNSEALED = ("digest", "provenance")


def sealed(result: Mapping[str, Any]) -> dict[str, Any]:
    """The document with its ``digest``: "sha256:" and 64 hex digits, over all of it but ``provenance`` and itself."""
    body = {key: value for key, value in result.items() if key not in _UNSEALED}
    return {**result, "digest": "sha256:" + hashlib.sha256(dumps_strict(body).encode()).hexdigest()}


def write_result(result: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Writes a result document as strict JSON, atomically, with its digest.

    Args:
      result: from `score_submission`.
      path: the file to write; its folder must exist.

    Raises:
      OSError: it cannot be written; an older file is then untouched.
    """
    atomic_write(path, dumps_strict(sealed(result)).encode())


_NUMBER = (float, int, str, type(None))


@dataclass(frozen=True)
class _Each:
    """An object whose every value is of this form."""

    form: Any


@dataclass(frozen=True)
class _ListOf:
    """A list whose every item is of this form."""

    form: Any


@dataclass(frozen=True)
class _Maybe:
    """A field that may be missing or null."""

    form: Any


_INTERVAL = {"low": _NUMBER, "high": _NUMBER, "num_resamples": int, "num_units": int}
_JACKKNIFE = {"n": int, "se": _NUMBER, "low": _NUMBER, "high": _NUMBER, "underpowered": bool}
_ROC = {
    "trials": str,
    "positives": int,
    "negatives": int,
    "fp": _ListOf(int),
    "tp": _ListOf(int),
    "eer": _NUMBER,
    "threshold": _NUMBER,
}
_FOLD = {
    "n": _Maybe(int),
    "axis": _Maybe(str),
    "value": _Maybe(_NUMBER),
    "metrics": _Maybe(_Each({"value": _NUMBER, "validity": _Maybe(_Each(int))})),
    "groups": _Maybe(_Each(_Each({"value": _NUMBER, "n_used": int}))),
    "curves": _Maybe({"roc": _Maybe(_ROC), "errors": _Maybe(_ListOf(_NUMBER))}),
}
_RESULT: dict[str, Any] = {
    "submission": {"name": str, "model": str, "notes": str},
    "release": {"name": str, "digest": str, "frozen": bool},
    "protocol_version": str,
    "scorer": {"name": str, "version": str},
    "inputs": _Each(_Each(str)),
    "tasks": dict,
    "ood_avg": _NUMBER,
    "ood_avg_se": _NUMBER,
    "ood_avg_low": _Maybe(_NUMBER),
    "ood_avg_high": _Maybe(_NUMBER),
    "underpowered": bool,
    "gap_pp": _NUMBER,
    "gap_tasks": _ListOf(str),
    "continuity": _Each(_NUMBER),
    "ignored_files": _Maybe(_ListOf(str)),
    "provenance": {"created": str},
    "intervals": _Maybe(
        {"ood_avg": _INTERVAL, "tasks": _Each({"raw": _INTERVAL, "normalized": _INTERVAL})},
    ),
}
_RESULT_TASK: dict[str, Any] = {
    "metric": str,
    "direction": str,
    "unit": str,
    "in_ood_avg": bool,
    "raw": _NUMBER,
    "normalized": _NUMBER,
    "anchor": _Maybe({"m_min": _NUMBER, "m_max": _NUMBER}),
    "jackknife": _Maybe({**_JACKKNIFE, "leave_one_out": _ListOf(_NUMBER)}),
    "jackknife_raw": {"n": int, "se": _NUMBER, "low": _Maybe(_NUMBER), "high": _Maybe(_NUMBER), "underpowered": bool},
    "gap_pp": _NUMBER,
    "gap_unclipped_pp": _Maybe(_NUMBER),
    "real_raw": _Maybe(_NUMBER),
    "folds": _Maybe(_Each({**_FOLD, "value": _NUMBER})),
    "real": _Maybe(_FOLD),
}


def load_result(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads a result document and checks that it is whole, unchanged, and has what a leaderboard needs.

    Args:
      path: a file that `write_result` wrote.

    Returns:
      The document; numbers as in the file, where "inf", "-inf" and null stand for infinities and undefined values.

    Raises:
      FileFormatError: not strict JSON in canonical form, another format, a field that is missing or of a wrong type, or
        a content that does not fit its digest.
      OSError: the path cannot be opened.
    """
    name = os.fspath(path)
    with naming(name):
        data = read_bytes(Path(os.path.realpath(path)), max_bytes=_MAX_RESULT, name=name)
        result = loads_strict(data, name)
        if not isinstance(result, dict) or result.get("format") != RESULT_FORMAT:
            raise FileFormatError(f"not a result of `emma-jax score` ({RESULT_FORMAT})", argument=name)
        _check_fields(result, _RESULT, "", name)
        value = result["ood_avg"]
        if not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise FileFormatError(f"ood_avg is {value!r}, no number in [0, 1]", argument=name)
        for task, entry in result["tasks"].items():
            _check_fields(entry, _RESULT_TASK, f"tasks.{task}", name)
        try:
            digest, canonical = sealed(result)["digest"], dumps_strict(result).encode()
        except (RecursionError, ReleaseError):  # ReleaseError: text that is not Unicode
            raise FileFormatError("nested too deeply, or holds text that is not Unicode", argument=name) from None
        if digest != result.get("digest"):
            raise FileFormatError("its content does not fit its digest: the result was changed", argument=name)
        if canonical != data:
            raise FileFormatError("not in canonical form: the result was changed", argument=name)
    return result


def _check_fields(value: Any, wanted: Any, place: str, name: str) -> None:
    """That a value has the form wanted: what reads a result afterwards meets no surprise."""
    if isinstance(wanted, _Maybe):
        if value is not None:
            _check_fields(value, wanted.form, place, name)
    elif isinstance(wanted, (dict, _Each)):
        if not isinstance(value, dict):
            raise FileFormatError(f"{place or 'the document'} is not an object", argument=name)
        forms = dict.fromkeys(value, wanted.form) if isinstance(wanted, _Each) else wanted
        for key, inner in forms.items():
            inside = f"{place}.{key}" if place else key
            if key not in value and not isinstance(inner, _Maybe):
                raise FileFormatError(f"{inside} is missing", argument=name)
            _check_fields(value.get(key), inner, inside, name)
    elif isinstance(wanted, _ListOf):
        if not isinstance(value, list):
            raise FileFormatError(f"{place} is not a list", argument=name)
        for i, item in enumerate(value):
            _check_fields(item, wanted.form, f"{place}[{i}]", name)
    elif (
        not isinstance(value, wanted)
        or (wanted is int and isinstance(value, bool))
        or (wanted is _NUMBER and not _is_number(value))
    ):
        raise FileFormatError(f"{place} has a value of a wrong type", argument=name)


def _is_number(value: Any) -> bool:
    """A finite float, an integer that a float can hold, or what stands for an infinity or an undefined value."""
    if type(value) is int:
        return abs(value) <= 2**1023
    return value is None or value in ("inf", "-inf") or (type(value) is float and math.isfinite(value))


# --- Held against the files ----------------------------------------------------------------------------------------


def verify_result(
    result: Mapping[str, Any],
    *,
    release: Release | None = None,
    submission: str | os.PathLike[str] | None = None,
    rescore: bool = False,
    limits: Limits | None = None,
) -> tuple[str, ...]:
    """Hashes the files that a result was made from, and says what is not as it records.

    Args:
      result: from `load_result`.
      release: the release it names, to hash the label files; None leaves them out.
      submission: the submission's folder, to hash the prediction files; None leaves them out.
      rescore: also score the submission again and compare every number; needs both.
      limits: for reading the submission.

    Returns:
      One line for each difference, with the file's name; none if all is as recorded.
    """
    found: list[str] = []
    limits = limits or Limits()
    inputs = result["inputs"]
    if release is not None:
        found += _verify_labels(result, inputs, release)
    if submission is not None:
        root = Path(submission)
        for kind in ("submission", "preds"):
            for path, expected in sorted(_entries(inputs, kind)):
                found += _verify_file(root, path, expected, limits)
    if rescore and release is not None and submission is not None and not found:
        found += _verify_numbers(result, release, submission, limits)
    return tuple(found)


def _entries(inputs: Any, kind: str) -> list[tuple[str, Any]]:
    entries = inputs.get(kind)
    return [(str(path), sha256) for path, sha256 in entries.items()] if isinstance(entries, Mapping) else []


def _verify_labels(result: Mapping[str, Any], inputs: Any, release: Release) -> list[str]:
    ours, theirs = result["release"], release.digest
    found = [] if ours["digest"] == theirs else [f"release: {theirs}, recorded is {ours['digest']}"]
    recorded = dict(_entries(inputs, "labels"))
    for task_id, entry in result["tasks"].items():
        if task_id not in release.tasks:
            found.append(f"{task_id}: the release has no such task")
            continue
        splits = [*(entry.get("folds") or ()), *(["real"] if entry.get("real") else [])]
        for fold in splits:
            try:
                file = release.label_file(task_id, fold)
            except ReleaseError as error:
                found.append(str(error))
                continue
            expected = recorded.pop(file.path, None)
            if expected != file.sha256:
                found.append(f"{file.path}: recorded is {_short(expected)}, the release pins {_short(file.sha256)}")
            try:
                release.label_bytes(task_id, fold)
            except ReleaseError as error:
                found.append(str(error))
    found += [f"{path[:200]}: recorded, but no fold of the result has it" for path in recorded]
    return found


def _verify_file(root: Path, path: str, expected: Any, limits: Limits) -> list[str]:
    """A result is a stranger's too: a path that leads out of the folder is a difference, and is never opened."""
    if not is_inner_path(path):
        return [f"{path[:200]!r}: not a path inside the submission"]
    place = root.joinpath(*PurePosixPath(path).parts)
    try:
        if not place.resolve().is_relative_to(root.resolve()):
            return [f"{path}: a symbolic link leads out of the submission"]
        limit = limits.description_bytes if path == DESCRIPTION else limits.of(path)
        actual = hashlib.sha256(read_bytes(place, max_bytes=limit, name=path)).hexdigest()
    except FileFormatError as error:
        return [str(error)]
    except (OSError, RuntimeError) as error:
        return [f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}"]
    return [] if actual == expected else [f"{path}: sha256 is {_short(actual)}, recorded is {_short(expected)}"]


def _short(sha256: Any) -> str:
    return str(sha256)[:16] if sha256 else "nothing"


def _verify_numbers(
    result: Mapping[str, Any], release: Release, submission: str | os.PathLike[str], limits: Limits
) -> list[str]:
    from emma_jax.submissions.scoring import score_submission

    try:
        again = score_submission(submission, release, limits=limits)
        drawn = result.get("intervals")
        if isinstance(drawn, Mapping):
            from emma_jax.submissions.intervals import add_intervals

            count, seed = drawn.get("num_resamples"), drawn.get("seed")
            if type(count) is not int or type(seed) is not int or not 0 < count <= _MAX_RESAMPLES:
                return [f"intervals: {count!r:.40} resamples with seed {seed!r:.40} cannot be drawn again"]
            again = add_intervals(again, submission, release, num_resamples=count, seed=seed, limits=limits)
    except EvaluationError as error:
        return [f"cannot be scored again: {error}"]
    again = loads_strict(dumps_strict(again).encode(), "again")
    return _differences({k: v for k, v in result.items() if k not in (*_UNSEALED, "scorer")}, again)


def _differences(old: Any, new: Any, place: str = "") -> list[str]:
    """Places where two documents differ; keys that only the new one has at the top are left aside."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        found = []
        for key in sorted(old.keys() | new.keys() if place else old.keys()):
            inner = f"{place}.{key}" if place else str(key)
            if (key in old) != (key in new):
                found.append(f"{inner}: {'recorded' if key in old else 'scored again'} alone")
            else:
                found += _differences(old[key], new[key], inner)
        return found
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [line for i, (a, b) in enumerate(zip(old, new)) for line in _differences(a, b, f"{place}[{i}]")]
    return [] if old == new and type(old) is type(new) else [f"{place}: recorded {old!r:.60}, scored again {new!r:.60}"]


def find_submission(result: Mapping[str, Any], folder: str | os.PathLike[str], stem: str) -> Path | None:
    """The submission folder that a result was made from, by the hash of its description, else by its name.

    Args:
      result: from `load_result`.
      folder: a submission folder, or a folder of them.
      stem: name of the result file without its suffix: where no description fits, the folder of that name is meant.

    Returns:
      The folder, or None if there is none.
    """
    root = Path(folder)
    if (root / DESCRIPTION).is_file():
        return root
    candidates = sorted(p for p in root.iterdir() if p.is_dir()) if root.is_dir() else []
    wanted = dict(_entries(result["inputs"], "submission")).get(DESCRIPTION)
    for candidate in candidates:
        place = candidate / DESCRIPTION
        if place.is_file() and not _verify_file(candidate, DESCRIPTION, wanted, Limits()):
            return candidate
    return next((c for c in candidates if c.name == stem), None)
