"""Releases: what is scored, by which metric, with which parameters, between which anchors, against which label files.

A release is a folder with a manifest, ``release.json``, and the label files that it pins by sha256. The manifest is
canonical JSON, and its ``digest`` covers all of it but itself, so one string identifies every number that a score
depends on. Whoever can edit the manifest can recompute the digest inside it: what protects a frozen release is the
digest that others hold, given to `load_release` from outside or kept in `KNOWN_RELEASES`.

Anchors exist nowhere else: `emma_jax.OODAvg` takes a `Release` and no numbers.

A maintainer puts labels in ``labels/<task>/<fold>.npz`` (and ``labels/<task>/real.npz`` for the real captures),
describes the tasks in ``release.toml``, looks at what `draft_release` writes, then calls `freeze_release`::

    name = "v0.1"
    [tasks.E-LOC-AOA]
    axis = "environment"
    anchor = { m_min = 0.0, m_max = 41.7, basis = "circular mean of the training angles, mean over the folds" }
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import re
import reprlib
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from emma_jax._version import __version__
from emma_jax.errors import EvaluationError, ReleaseError
from emma_jax.files import atomic_write

if TYPE_CHECKING:
    from typing import IO

    from emma_jax.tasks import Task

__all__ = [
    "KNOWN_RELEASES",
    "PROPOSED",
    "PROTOCOL_VERSION",
    "REAL",
    "Anchor",
    "LabelFile",
    "Release",
    "TaskEntry",
    "build_release",
    "canonical_json",
    "draft_release",
    "freeze_release",
    "load_release",
    "write_atomically",
]

FORMAT = "emma-release/1"
PROTOCOL_VERSION = "0.1.0"
MANIFEST = "release.json"
DESCRIPTION = "release.toml"
PROPOSED = "v0.1-proposed"
REAL = "real"  # the name, in place of a fold, of a task's split of real captures
AXES = ("environment", "band", "unit")
CONTINUITY_TASK = "E-ID-AMC"  # saturated: reported for continuity, never averaged
MAX_MANIFEST_BYTES = 16 << 20

KNOWN_RELEASES: dict[str, str] = {}
"""Digest by name of the frozen releases this version of the package knows; none is frozen yet."""

_SHIPPED = Path(__file__).parent / "releases"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


# What a release consists of. Each dataclass checks itself, so a broken one cannot exist, wherever it came from.


@contextmanager
def _inside(place: str, *, task: str | None = None) -> Iterator[None]:
    """Puts the place (a file, a task, a fold) before the message of any `ReleaseError` raised within."""
    try:
        yield
    except ReleaseError as error:
        located = ReleaseError(f"{place}: {error}")
        located.task, located.argument = error.task or task, error.argument
        located.count, located.index = error.count, error.index
        raise located from error


def _require(condition: bool, message: str, argument: str) -> None:
    if not condition:
        raise ReleaseError(message, argument=argument)


def _require_name(value: Any, argument: str) -> None:
    fits = isinstance(value, str) and _NAME.fullmatch(value) is not None
    message = "a name has ASCII letters, digits and . _ + -, starts with a letter or digit, and is not"
    _require(fits, f"{message} {reprlib.repr(value)}", argument)


def _require_text(value: Any, argument: str) -> None:
    fits = isinstance(value, str) and value.isprintable() and bool(value)
    _require(fits, f"has to be one line of text, not {reprlib.repr(value)}", argument)


def real_number(value: Any, *, task: str | None = None, argument: str | None = None) -> float:
    """A scalar as a float: text, bools and arrays are no scores, though ``float`` would take some of them."""
    try:
        if isinstance(value, (bool, str, bytes, bytearray)) or getattr(value, "ndim", 0) > 0:
            raise TypeError
        return float(value)
    except OverflowError:  # an int beyond float64
        return math.inf if value > 0 else -math.inf
    except (TypeError, ValueError):
        message = f"expected one real number, got {reprlib.repr(value)}"
        raise EvaluationError(message, task=task, argument=argument) from None


@dataclass(frozen=True)
class Anchor:
    """The two raw values between which a task's score is normalized, in the unit of the task's metric.

    ``m_min < m_max`` as numbers, always. A metric for which higher is better gets 0 at ``m_min`` (chance) and 1 at
    ``m_max`` (ceiling); an error gets 0 at ``m_max`` (the floor baseline) and 1 at ``m_min``: perfect is 1 both ways.

    Attributes:
      m_min: the smaller raw value, in the metric's unit (scalar, finite).
      m_max: the larger raw value, in the metric's unit (scalar, finite).
      direction: of the raw metric, "higher" or "lower" is better.
      basis: where the two numbers come from, in words.

    Raises:
      ReleaseError: the numbers are not finite, not in this order, or the direction is neither of the two.
    """

    m_min: float
    m_max: float
    direction: str
    basis: str = ""

    def __post_init__(self) -> None:
        for name in ("m_min", "m_max"):
            try:
                number = real_number(getattr(self, name))
            except EvaluationError as error:
                raise ReleaseError(str(error), argument=name) from None
            _require(math.isfinite(number), f"has to be finite, not {number}", name)
            object.__setattr__(self, name, number)
        _require(self.m_min < self.m_max, f"m_min = {self.m_min} has to be below m_max = {self.m_max}", "anchor")
        _require(math.isfinite(self.m_max - self.m_min), "m_max - m_min exceeds the range of float64", "anchor")
        _require_direction(self.direction)
        _require(isinstance(self.basis, str), f"has to be text, not {reprlib.repr(self.basis)}", "basis")

    def unclipped(self, value: float) -> float:
        """Position of a raw score between the anchors: 0 at the floor, 1 at the ceiling, beyond them outside [0, 1].

        higher is better: ``(m - m_min) / (m_max - m_min)``; lower is better: ``(m_max - m) / (m_max - m_min)``.

        Args:
          value: raw score m (scalar), in the metric's unit. NaN stays NaN; an infinity stays one, positive when it is
            the better side.

        Returns:
          Dimensionless float; higher is better, whatever the metric's direction.

        Raises:
          EvaluationError: the value is not one real number.
        """
        m = real_number(value)
        above = m - self.m_min if self.direction == "higher" else self.m_max - m
        return above / (self.m_max - self.m_min)

    def normalize(self, value: float) -> float:
        """The normalized score: `unclipped`, clipped to [0, 1], so that a raw score beyond an anchor saturates.

        Args:
          value: raw score (scalar), in the metric's unit; NaN in gives NaN out, -inf dB of an error metric gives 1.

        Returns:
          Dimensionless float in [0, 1]; higher is better.

        Raises:
          EvaluationError: the value is not one real number.
        """
        x = self.unclipped(value)
        return x if math.isnan(x) else min(max(x, 0.0), 1.0) + 0.0  # + 0.0: no negative zero


def _require_direction(value: Any) -> None:
    _require(value in ("higher", "lower"), f'has to be "higher" or "lower", not {reprlib.repr(value)}', "direction")


@dataclass(frozen=True)
class LabelFile:
    """One pinned file of labels, shape [N, ...] along its first axis.

    Attributes:
      path: where it lies in the release folder: relative, "/" between parts, never leading out of the folder.
      sha256: of its bytes, 64 lower-case hex digits.
      n: number of samples N in it (a count, at least 1).
      axis: what is held out in this fold, "environment", "band" or "unit"; None for the real split.

    Raises:
      ReleaseError: one of these is malformed.
    """

    path: str
    sha256: str
    n: int
    axis: str | None = None

    def __post_init__(self) -> None:
        _require_inner_path(self.path)
        fits = isinstance(self.sha256, str) and _SHA256.fullmatch(self.sha256) is not None
        _require(fits, f"has to be 64 lower-case hex digits, not {reprlib.repr(self.sha256)}", "sha256")
        _require(type(self.n) is int and self.n > 0, f"has to be a count above 0, not {reprlib.repr(self.n)}", "n")
        _require(
            self.axis is None or self.axis in AXES,
            f"has to be one of {', '.join(AXES)}, not {reprlib.repr(self.axis)}",
            "axis",
        )


def is_inner_path(path: Any) -> bool:
    """Whether a path stays in its folder: nothing that any system reads as absolute, as a drive, or as going up."""
    return (
        isinstance(path, str)
        and path.isprintable()
        and "\\" not in path
        and not PureWindowsPath(path).drive
        and all(part not in ("", ".", "..") for part in path.split("/"))
    )


def _require_inner_path(path: Any) -> None:
    _require(
        is_inner_path(path), f"has to be a relative path inside the release folder, not {reprlib.repr(path)}", "labels"
    )


@dataclass(frozen=True)
class TaskEntry:
    """One task of a release.

    Attributes:
      metric: name of the headline metric, the one that ranks and is normalized.
      direction: of that metric, "higher" or "lower" is better.
      unit: of that metric: "deg", "dB", or "1" for a dimensionless one.
      anchor: the task's `Anchor`, in that unit; None where the score is reported without normalization.
      params: read-only mapping of the pinned parameters (scalars, text, tuples of them); None leaves one to the data.
      in_ood_avg: whether the task enters OOD-avg; it then needs an anchor.
      folds: read-only mapping of fold name to `LabelFile`; empty in a release without data.
      real: the `LabelFile` of the real captures, or None.

    Raises:
      ReleaseError: one of these is malformed, or they contradict each other.
    """

    metric: str
    direction: str
    unit: str
    anchor: Anchor | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    in_ood_avg: bool = False
    folds: Mapping[str, LabelFile] = field(default_factory=dict)
    real: LabelFile | None = None

    def __post_init__(self) -> None:
        _require_text(self.metric, "metric")
        _require_direction(self.direction)
        _require_text(self.unit, "unit")
        _require(type(self.in_ood_avg) is bool, "has to be true or false", "in_ood_avg")
        if self.anchor is not None:
            _require(isinstance(self.anchor, Anchor), "has to be an Anchor", "anchor")
            _require(self.anchor.direction == self.direction, "its direction is not the metric's", "anchor")
        _require(
            self.anchor is not None or not self.in_ood_avg,
            "a task in OOD-avg needs one, made for the parameters it has",
            "anchor",
        )
        _require(isinstance(self.params, Mapping), "has to be an object", "params")
        frozen_params = {}
        for name, value in sorted(self.params.items()):
            _require_name(name, "params")
            frozen_params[name] = _frozen_param(value, f"params.{name}")
        object.__setattr__(self, "params", MappingProxyType(frozen_params))
        _require(isinstance(self.folds, Mapping), "has to be an object", "folds")
        for name, file in self.folds.items():
            _require_name(name, "folds")
            _require(name != REAL, f'"{REAL}" is the name of the real split, not of a fold', "folds")
            _require(isinstance(file, LabelFile), "has to be a LabelFile", f"folds.{name}")
            _require(file.axis is not None, "a fold says what it holds out", f"folds.{name}.axis")
        object.__setattr__(self, "folds", MappingProxyType(dict(sorted(self.folds.items()))))
        if self.real is not None:
            _require(isinstance(self.real, LabelFile) and self.real.axis is None, "has to be a file, no axis", REAL)
        paths = [file.path for file in (*self.folds.values(), *([self.real] if self.real else []))]
        _require(len(set(paths)) == len(paths), "one file serves for two folds", "folds")


def _frozen_param(value: Any, argument: str) -> Any:
    """A parameter as an immutable, hashable value: a task's configuration is static under ``jit``."""
    if isinstance(value, (list, tuple)):
        return tuple(_frozen_param(item, argument) for item in value)
    _require(value is None or isinstance(value, (bool, int, float, str)), "has to be a scalar, text or list", argument)
    _require(not isinstance(value, float) or math.isfinite(value), "has to be finite", argument)
    return value


@dataclass(frozen=True)
class Release:
    """What a score was computed with: tasks, metrics, parameters, anchors, folds, and the digest over all of it.

    Made by `load_release`, `build_release`, `draft_release` and `freeze_release`; its content always fits its digest.
    Two releases are equal when their contents are, wherever they lie.

    Attributes:
      name: of the release.
      frozen: True once published for scoring; a draft or a proposal may still change.
      protocol_version: version of the scoring rules the release was made under.
      scorer_version: version of this package that made the manifest.
      tasks: read-only mapping of task id to `TaskEntry`.
      digest: "sha256:" and 64 hex digits, over the canonical JSON of all the above.
      root: the folder that holds the label files; None for a release that lies nowhere.

    Raises:
      ReleaseError: a part is malformed, or the digest is not that of the content.
    """

    name: str
    frozen: bool
    protocol_version: str
    scorer_version: str
    tasks: Mapping[str, TaskEntry]
    digest: str
    root: Path | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        _require_name(self.name, "name")
        _require(type(self.frozen) is bool, "has to be true or false", "frozen")
        _require_text(self.protocol_version, "protocol_version")
        _require_text(self.scorer_version, "scorer_version")
        _require(isinstance(self.tasks, Mapping), "has to be an object", "tasks")
        for task_id, entry in self.tasks.items():
            _require_name(task_id, "tasks")
            _require(isinstance(entry, TaskEntry), "has to be a TaskEntry", f"tasks.{task_id}")
            if entry.in_ood_avg:
                _require(task_id != CONTINUITY_TASK, "the continuity column is never in OOD-avg", task_id)
                _require(bool(entry.folds) or not self.frozen, "in OOD-avg, but frozen without a fold", task_id)
        object.__setattr__(self, "tasks", MappingProxyType(dict(sorted(self.tasks.items()))))
        content = _digest(self._body())
        _require(
            self.digest == content,
            f"{self.digest!r:.80} is not that of the content, {content}: the manifest was changed",
            "digest",
        )

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> tuple[Any, ...]:  # read-only mappings don't pickle; worker processes get a release so
        return _parse, (self.manifest(), self.root)

    def _body(self) -> dict[str, Any]:
        return _body(self.name, self.frozen, self.protocol_version, self.scorer_version, self.tasks)

    def manifest(self) -> dict[str, Any]:
        """The content of ``release.json``: plain, JSON-ready dicts, lists, text, numbers (units as in `TaskEntry`)."""
        return self._body() | {"digest": self.digest}

    @property
    def aggregated(self) -> tuple[str, ...]:
        """Ids of the tasks that OOD-avg is the mean of, in alphabetical order."""
        return tuple(task_id for task_id, entry in self.tasks.items() if entry.in_ood_avg)

    def _entry(self, task_id: str) -> TaskEntry:
        if task_id not in self.tasks:
            known = ", ".join(self.tasks) or "none"
            raise ReleaseError(f"release {self.name} has no task {reprlib.repr(task_id)}; it has {known}")
        return self.tasks[task_id]

    def params(self, task_id: str) -> dict[str, Any]:
        """The pinned parameters of a task, by name, as hashable values in a dict of the caller's own.

        Raises:
          ReleaseError: the release has no such task.
        """
        return dict(self._entry(task_id).params)

    def anchor(self, task_id: str) -> Anchor | None:
        """The `Anchor` of a task, in the unit of its headline metric, or None where the release has none for it.

        Raises:
          ReleaseError: the release has no such task.
        """
        return self._entry(task_id).anchor

    def task(self, task_id: str) -> Task:
        """The `Task` with this release's parameters, as ``get_task(task_id, release=self)`` gives it.

        Raises:
          ReleaseError: the release has no such task.
        """
        from emma_jax.tasks import get_task

        self._entry(task_id)
        return get_task(task_id, release=self)

    def label_file(self, task_id: str, fold: str) -> LabelFile:
        """The `LabelFile` of a fold (shape [N, ...] labels), or of the real split for ``fold="real"``.

        Raises:
          ReleaseError: the release has no such task or fold.
        """
        entry = self._entry(task_id)
        if fold == REAL and entry.real is not None:
            return entry.real
        if fold not in entry.folds:
            known = ", ".join((*entry.folds, *([REAL] if entry.real else []))) or "none"
            raise ReleaseError(
                f"release {self.name} has no fold {reprlib.repr(fold)}; it has {known}", task=task_id, argument="fold"
            )
        return entry.folds[fold]

    def label_path(self, task_id: str, fold: str) -> Path:
        """Where the labels of a fold (or of "real") lie on this machine, symbolic links resolved.

        The file can change after this: whoever scores reads `label_bytes`.

        Raises:
          ReleaseError: no such task, fold or regular file, or it lies outside the release folder.
        """
        return _inner_file(self.root, self.label_file(task_id, fold).path)

    def label_bytes(self, task_id: str, fold: str) -> bytes:
        """The bytes of a label file, read once and compared with the pinned sha256 before anyone sees them.

        Args:
          task_id: a task of the release.
          fold: one of its folds, or "real".

        Returns:
          The file's content: the very bytes that were hashed, so that nobody can swap the file in between.

        Raises:
          ReleaseError: no such task, fold or file, a file outside the folder, or a single changed byte.
        """
        file = self.label_file(task_id, fold)
        data = _read_inner(self.root, file.path)
        if hashlib.sha256(data).hexdigest() != file.sha256:
            raise ReleaseError(
                "its bytes are not those the release pins: the label file was changed", task=task_id, argument=file.path
            )
        return data

    def verify(self, digest: str | None = None) -> tuple[str, ...]:
        """Reads every label file and compares its bytes and its number of samples with the manifest.

        Args:
          digest: the digest expected from outside, if there is one.

        Returns:
          The paths of the files that were verified, relative to the release folder.

        Raises:
          ReleaseError: another digest than expected, or the first file at fault, and how many there are.
        """
        _require_expected(self, digest)
        verified: list[str] = []
        faults: list[ReleaseError] = []
        for task_id, entry in self.tasks.items():
            for fold in (*entry.folds, *([REAL] if entry.real else [])):
                file = self.label_file(task_id, fold)
                try:
                    rows = _count_rows(file.path, self.label_bytes(task_id, fold))
                    if rows != file.n:
                        message = f"holds {rows} samples, not the {file.n} of the manifest"
                        raise ReleaseError(message, task=task_id, argument=file.path)
                    verified.append(file.path)
                except ReleaseError as error:
                    faults.append(error)
        if len(faults) > 1:
            first = faults[0]
            summary = ReleaseError(f"{first} (and {len(faults) - 1} more at fault)")
            summary.task, summary.argument, summary.count = first.task, first.argument, len(faults)
            raise summary
        if faults:
            raise faults[0]
        return tuple(verified)


# The manifest: one canonical form, one digest.


def canonical_json(content: Any) -> bytes:
    r"""The one serialization of a manifest: UTF-8, keys sorted, indent of one, "," and ": ", a newline at the end.

    The digest stands on a line of its own, so anyone can check it: ``grep -v '^ "digest": ' release.json | sha256sum``.

    Args:
      content: JSON-ready dicts, lists, text, numbers.

    Returns:
      The bytes that are written and hashed.

    Raises:
      ReleaseError: a NaN, an infinity, text that is not Unicode, or a type JSON does not have.
    """
    try:
        text = json.dumps(
            content, sort_keys=True, ensure_ascii=False, allow_nan=False, indent=1, separators=(",", ": ")
        )
        return f"{text}\n".encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ReleaseError(f"cannot be written as strict JSON: {error}") from error


def _digest(body: dict[str, Any]) -> str:
    return "sha256:" + hashlib.sha256(canonical_json(body)).hexdigest()


def _thawed(value: Any) -> Any:
    return [_thawed(item) for item in value] if isinstance(value, tuple) else value


def _body(
    name: str, frozen: bool, protocol_version: str, scorer_version: str, tasks: Mapping[str, TaskEntry]
) -> dict[str, Any]:
    """A manifest without its digest."""

    def file(f: LabelFile) -> dict[str, Any]:
        return {"labels": f.path, "sha256": f.sha256, "n": f.n} | ({} if f.axis is None else {"axis": f.axis})

    def entry(e: TaskEntry) -> dict[str, Any]:
        a = e.anchor
        return {
            "metric": e.metric,
            "direction": e.direction,
            "unit": e.unit,
            "in_ood_avg": e.in_ood_avg,
            "params": {key: _thawed(value) for key, value in e.params.items()},
            "anchor": None if a is None else {"m_min": a.m_min, "m_max": a.m_max, "basis": a.basis},
            "folds": {fold: file(f) for fold, f in e.folds.items()},
            "real": None if e.real is None else file(e.real),
        }

    return {
        "format": FORMAT,
        "name": name,
        "frozen": frozen,
        "protocol_version": protocol_version,
        "scorer_version": scorer_version,
        "tasks": {task_id: entry(e) for task_id, e in tasks.items()},
    }


def _fields(value: Any, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """A JSON or TOML object that has all the required fields and none beyond the optional ones, as a new dict."""
    if not isinstance(value, Mapping):
        raise ReleaseError(f"expected an object, got {reprlib.repr(value)}")
    for name in required:
        _require(name in value, "this field is missing", name)
    for name in value:
        _require(name in required or name in optional, "there is no such field", str(name))
    return dict(value)


def _parse_anchor(value: Any, direction: Any) -> Anchor | None:
    if value is None:
        return None
    with _inside("anchor"):
        return Anchor(direction=direction, **_fields(value, ("m_min", "m_max", "basis")))


def _parse_file(value: Any, place: str, axis: tuple[str, ...]) -> LabelFile:
    with _inside(place):
        fields = _fields(value, ("labels", "sha256", "n", *axis))
        return LabelFile(fields["labels"], fields["sha256"], fields["n"], fields.get("axis"))


def _parse_entry(value: Any) -> TaskEntry:
    names = ("metric", "direction", "unit", "in_ood_avg", "params", "anchor", "folds", "real")
    fields = _fields(value, names)
    fields["anchor"] = _parse_anchor(fields["anchor"], fields["direction"])
    _require(isinstance(fields["folds"], dict), "has to be an object", "folds")
    fields["folds"] = {k: _parse_file(v, f"folds.{k}", ("axis",)) for k, v in fields["folds"].items()}
    if fields["real"] is not None:
        fields["real"] = _parse_file(fields["real"], REAL, ())
    return TaskEntry(**fields)


def _parse(manifest: Any, root: Path | None) -> Release:
    names = ("format", "name", "frozen", "protocol_version", "scorer_version", "tasks", "digest")
    fields = _fields(manifest, names)
    known = fields.pop("format")
    _require(known == FORMAT, f"this version reads {FORMAT!r}, not {reprlib.repr(known)}", "format")
    _require(isinstance(fields["tasks"], dict), "has to be an object", "tasks")
    tasks = {}
    for task_id, value in fields["tasks"].items():
        with _inside(f"tasks.{task_id}", task=task_id):
            tasks[task_id] = _parse_entry(value)
    return Release(**(fields | {"tasks": tasks}), root=root)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, refused when a key occurs twice: readers differ in which one they take."""
    fields: dict[str, Any] = {}
    for key, value in pairs:
        _require(key not in fields, "this key occurs twice", key)
        fields[key] = value
    return fields


def _no_constant(token: str) -> Any:
    raise ReleaseError(f"{token} is not JSON")


def _from_bytes(data: bytes, root: Path) -> Release:
    try:
        manifest = json.loads(data.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise ReleaseError(f"is not UTF-8: {error.reason} at byte {error.start}") from error
    except ReleaseError:
        raise
    except (ValueError, RecursionError) as error:
        raise ReleaseError(f"is not JSON: {error}") from error
    release = _parse(manifest, root)
    # Strictness beyond the digest: white space and escapes change no value, but then a changed byte would pass.
    _require(canonical_json(release.manifest()) == data, "is not in canonical form", "manifest")
    return release


def load_release(path_or_name: str | Path, *, digest: str | None = None) -> Release:
    """Reads and checks a release manifest; label files are read and checked later, by `Release.label_bytes`.

    Args:
      path_or_name: the name of a release shipped in the package ("v0.1-proposed"), or a release folder, or the
        manifest in it. A folder that has the name of a shipped release is reached as ``./name``.
      digest: the digest the release has to have ("sha256:<hex>"), from a source its editor does not control. A release
        whose name is in `KNOWN_RELEASES` has to have the digest given there as well.

    Returns:
      The `Release`. Anchors are in the unit of each task's metric; ``direction`` says which way is better.

    Raises:
      ReleaseError: naming the file: missing, not canonical JSON, a field missing, unknown, twice or malformed, a
        content that does not fit the digest inside, or a digest other than the expected one.
    """
    if isinstance(path_or_name, str) and path_or_name in _shipped_names():
        release = _shipped(path_or_name)
        place = path_or_name
    else:
        path = Path(path_or_name)
        release = _read_release(path / MANIFEST if path.is_dir() else path)
        place = str(path)
    with _inside(place):
        _require_expected(release, digest)
    return release


def _require_expected(release: Release, digest: str | None) -> None:
    """The digest from outside, from the caller and from the package's table."""
    for expected, source in ((digest, "expected"), (KNOWN_RELEASES.get(release.name), "known to this package")):
        if expected is None:
            continue
        hexadecimal = str(expected).strip().lower().removeprefix("sha256:")
        well_formed = _SHA256.fullmatch(hexadecimal) is not None
        _require(well_formed, f'expected "sha256:" and 64 hex digits, not {reprlib.repr(expected)}', "digest")
        _require(
            release.digest == f"sha256:{hexadecimal}",
            f"release {release.name} has {release.digest}, not the one {source}, sha256:{hexadecimal}",
            "digest",
        )


@cache
def _shipped_names() -> tuple[str, ...]:
    return tuple(sorted(path.parent.name for path in _SHIPPED.glob(f"*/{MANIFEST}")))


@cache
def _shipped(name: str) -> Release:
    return _read_release(_SHIPPED / name / MANIFEST)


def _read_release(path: Path) -> Release:
    try:
        if not path.is_file():
            shipped = ", ".join(_shipped_names())
            raise ReleaseError(f"there is no such release; shipped inside are: {shipped}", argument=str(path))
        with path.open("rb") as stream:
            data = stream.read(MAX_MANIFEST_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path; ReleaseError is one, and passes
        if isinstance(error, ReleaseError):
            raise
        raise ReleaseError(f"cannot be read: {error}", argument=str(path)) from error
    _require(len(data) <= MAX_MANIFEST_BYTES, f"has more than {MAX_MANIFEST_BYTES} bytes", str(path))
    with _inside(str(path)):
        return _from_bytes(data, path.parent.absolute())


# Label files: inside the folder, hashed as read, counted without unpacking.


def _inner_file(root: Path | None, path: str) -> Path:
    """The real location of a file of the release folder, which it may not leave by a symbolic link."""
    if root is None:
        raise ReleaseError("the release lies in no folder, so it has no label files", argument=path)
    try:
        home = root.resolve(strict=True)
        real = home.joinpath(*PurePosixPath(path).parts).resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise ReleaseError("there is no such label file", argument=path) from error
    _require(real.is_relative_to(home), "a symbolic link leads out of the release folder", path)
    _require(real.is_file(), "is not a regular file", path)
    return real


def _read_inner(root: Path | None, path: str) -> bytes:
    try:
        return _inner_file(root, path).read_bytes()
    except OSError as error:
        raise ReleaseError(f"cannot be read: {error.strerror}", argument=path) from error


def _npy_rows(stream: IO[bytes]) -> int:
    """N of an array [N, ...] from the header alone, so that a bomb is never unpacked."""
    from numpy.lib import format as npy

    read_magic: Any = npy.read_magic  # NumPy leaves it untyped
    version = read_magic(stream)
    readers: dict[tuple[int, int], Any] = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"npy format {version} is not read")
    shape, _, dtype = readers[version](stream)
    if dtype.hasobject:
        raise ValueError("object arrays are never read")
    if not shape:
        raise ValueError("labels have no sample axis")
    return int(shape[0])


def _npz_rows(data: bytes) -> int:
    with zipfile.ZipFile(io.BytesIO(data)) as archive, archive.open("labels.npy") as member:
        return _npy_rows(member)


_ROWS: dict[str, Callable[[bytes], int]] = {
    ".npz": _npz_rows,
    ".npy": lambda data: _npy_rows(io.BytesIO(data)),
    ".jsonl": lambda data: sum(1 for line in data.decode("utf-8-sig").split("\n") if line.strip()),
    ".csv": lambda data: sum(1 for row in csv.reader(io.StringIO(data.decode("utf-8-sig"), newline="")) if row) - 1,
}


def _count_rows(path: str, data: bytes) -> int:
    """Number of samples in a label file: array ``labels`` of npz, npy, lines of jsonl, rows under a csv's header."""
    count = _ROWS.get(PurePosixPath(path).suffix)
    kinds = ", ".join(_ROWS)
    if count is None:
        raise ReleaseError(f"label files are {kinds}", argument=path)
    try:
        return count(data)
    except (OSError, ValueError, KeyError, RuntimeError, EOFError, csv.Error, zipfile.BadZipFile, zlib.error) as error:
        reason = " ".join(str(error).split())
        raise ReleaseError(f"cannot be read as labels: {reason}", argument=path) from error


def _pin(root: Path, path: str, axis: str | None) -> LabelFile:
    _require_inner_path(path)
    data = _read_inner(root, path)
    rows = _count_rows(path, data)
    _require(rows > 0, "holds no sample", path)
    return LabelFile(path, hashlib.sha256(data).hexdigest(), rows, axis)


# Making a release.


def _found_labels(root: Path, task_id: str) -> dict[str, str]:
    """Fold name (or "real") to relative path, for the label files that lie where the layout puts them."""
    folder = root / "labels" / task_id
    found: dict[str, str] = {}
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        path = f"labels/{task_id}/{file.name}"
        if file.name.startswith("."):
            continue
        _require(file.suffix in _ROWS, f"label files are {', '.join(_ROWS)}", path)
        _require(file.stem not in found, f"a second file for the same fold as {found.get(file.stem)}", path)
        found[file.stem] = path
    return found


def _defaults(task_id: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What the shipped proposal says of a task, without an anchor that was made for other parameters."""
    base: dict[str, Any] = {"params": {}, "anchor": None, "in_ood_avg": False}
    names = ("metric", "direction", "unit", "params", "in_ood_avg")
    if all(name in given for name in names) and ("anchor" in given or not given["in_ood_avg"]):
        return base
    entry = load_release(PROPOSED).tasks.get(task_id)
    if entry is None or given.get("metric", entry.metric) != entry.metric:
        return base
    proposed = _body("", False, "", "", {task_id: entry})["tasks"][task_id]
    if given.get("params", proposed["params"]) != proposed["params"]:
        proposed["anchor"] = None
    return {name: proposed[name] for name in (*names, "anchor")}


def _entry_from(root: Path, task_id: str, description: Any) -> TaskEntry:
    optional = ("metric", "direction", "unit", "in_ood_avg", "params", "anchor", "axis", "folds", REAL)
    given = _fields(description, (), optional)
    axis = given.pop("axis", "environment")
    fields = _defaults(task_id, given) | given
    fields = _fields(fields, ("metric", "direction", "unit"), optional)
    if isinstance(fields["anchor"], Mapping):
        fields["anchor"] = {"basis": ""} | dict(fields["anchor"])
    fields["anchor"] = _parse_anchor(fields["anchor"], fields["direction"])
    found = _found_labels(root, task_id)

    def pin(name: str, value: Any, default_axis: str | None) -> LabelFile:
        with _inside(name):
            file = _fields(value, (), ("labels",) if default_axis is None else ("labels", "axis"))
            path = file.get("labels", found.get(name))
            if path is None:
                raise ReleaseError(f"there is no label file labels/{task_id}/{name}.npz")
            return _pin(root, path, file.get("axis", default_axis))

    folds = fields.get("folds", {name: {} for name in found if name != REAL})
    _require(isinstance(folds, Mapping), "has to be an object", "folds")
    fields["folds"] = {name: pin(name, value, axis) for name, value in folds.items()}
    real = fields.get(REAL, {} if REAL in found else None)
    fields[REAL] = None if real is None else pin(REAL, real, None)
    return TaskEntry(**fields)


def build_release(
    directory: str | Path,
    *,
    name: str,
    tasks: Mapping[str, Mapping[str, Any]],
    frozen: bool,
    protocol_version: str = PROTOCOL_VERSION,
) -> Release:
    """Pins the label files of a folder and writes ``release.json`` there, atomically.

    Args:
      directory: the release folder, with label files in ``labels/<task>/<fold>.npz`` and ``labels/<task>/real.npz``
        (arrays ``labels`` [N, ...]; ``.npy``, ``.csv`` and ``.jsonl`` too).
      name: of the release.
      tasks: task id to a description with any of the manifest's fields ``metric direction unit in_ood_avg params
        anchor`` (``{"m_min": .., "m_max": .., "basis": ..}`` in the metric's unit); what is left out is taken from the
        shipped proposal, except that an anchor is not when other parameters are given. ``axis`` says what the folds
        hold out ("environment" when left out). ``folds`` maps a fold to ``{"axis": .., "labels": path}``, both
        optional; left out, every file found is a fold. ``real`` likewise, or None.
      frozen: whether this is the published form. A frozen manifest is never overwritten by a different one.
      protocol_version: version of the scoring rules.

    Returns:
      The `Release`, as `load_release` would read it.

    Raises:
      ReleaseError: naming the task and the file: a description that does not fit, a label file that is missing,
        empty or unreadable, a folder of labels without a description, or a folder already frozen with other content.
    """
    root = Path(directory)
    _require(root.is_dir(), "there is no such folder", str(root))
    _require(isinstance(tasks, Mapping), "has to map task ids to descriptions", "tasks")
    labelled = sorted(p.name for p in (root / "labels").iterdir() if p.is_dir()) if (root / "labels").is_dir() else []
    for folder in labelled:
        _require(folder in tasks, "holds labels, but the release describes no such task", f"labels/{folder}")
    entries: dict[str, TaskEntry] = {}
    for task_id, description in tasks.items():
        _require_name(task_id, "tasks")
        with _inside(task_id, task=task_id):
            entries[task_id] = _entry_from(root, task_id, description)
    _require_name(name, "name")
    body = _body(name, frozen, protocol_version, __version__, entries)
    return _publish(root, Release(name, frozen, protocol_version, __version__, entries, _digest(body), root))


def _description(root: Path) -> dict[str, Any]:
    """What a maintainer wrote: ``release.toml``, else the tasks of the manifest that is there already."""
    path = root / DESCRIPTION
    if path.is_file():
        try:
            content = tomllib.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise ReleaseError(f"is not TOML: {error}", argument=str(path)) from error
        with _inside(str(path)):
            return _fields(content, ("name", "tasks"), ("protocol_version",))
    if not (root / MANIFEST).is_file():
        raise ReleaseError(f"holds neither {DESCRIPTION} nor {MANIFEST}", argument=str(root))
    manifest = _read_release(root / MANIFEST).manifest()
    for entry in manifest["tasks"].values():
        if not entry["folds"] and entry[REAL] is None:
            del entry["folds"], entry[REAL]  # a proposal without data: the folds are the files that are found
            continue
        for file in (*entry["folds"].values(), *([entry[REAL]] if entry[REAL] else [])):
            del file["sha256"], file["n"]
    return {key: manifest[key] for key in ("name", "tasks", "protocol_version")}


def _from_folder(
    directory: str | Path,
    name: str | None,
    tasks: Mapping[str, Mapping[str, Any]] | None,
    protocol_version: str | None,
    frozen: bool,
) -> Release:
    root = Path(directory)
    written = {} if tasks is not None and name is not None else _description(root)
    return build_release(
        root,
        name=written["name"] if name is None else name,
        tasks=written["tasks"] if tasks is None else tasks,
        frozen=frozen,
        protocol_version=protocol_version or written.get("protocol_version", PROTOCOL_VERSION),
    )


def draft_release(
    directory: str | Path,
    *,
    name: str | None = None,
    tasks: Mapping[str, Mapping[str, Any]] | None = None,
    protocol_version: str | None = None,
) -> Release:
    """Writes ``release.json`` from ``release.toml`` and the label files, not frozen: to look at, and to draft again.

    Arguments, units, result and errors are those of `freeze_release`.
    """
    return _from_folder(directory, name, tasks, protocol_version, frozen=False)


def freeze_release(
    directory: str | Path,
    *,
    name: str | None = None,
    tasks: Mapping[str, Mapping[str, Any]] | None = None,
    protocol_version: str | None = None,
) -> Release:
    """Computes sha256 and size of every label file and writes the final ``release.json``, which nothing overwrites.

    Frozen again with the same content, it is left as it is; a change of any kind needs a new name and folder. Publish
    the digest where the editors of the folder cannot change it.

    Args:
      directory: the release folder, with ``release.toml`` (``name``, optional ``protocol_version``, a table
        ``tasks.<id>`` each with the fields that `build_release` takes) or with a ``release.json`` that is not frozen.
      name: of the release, instead of the one written there.
      tasks: descriptions as for `build_release`, instead of those written there.
      protocol_version: version of the scoring rules, instead of the one written there.

    Returns:
      The frozen `Release` (anchors in each metric's unit, with its direction).

    Raises:
      ReleaseError: as `build_release`; also a task of OOD-avg without a fold, and a folder with nothing to freeze.
    """
    return _from_folder(directory, name, tasks, protocol_version, frozen=True)


def _difference(old: Any, new: Any, place: str = "") -> str | None:
    """The first place where two manifests differ, the version of the scorer that wrote them aside."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            inner = f"{place}.{key}" if place else key
            if inner in ("digest", "scorer_version"):
                continue
            if (key in old) != (key in new):
                return f"{inner} is {'gone' if key in old else 'new'}"
            if found := _difference(old[key], new[key], inner):
                return found
        return None
    return None if old == new else f"{place} was {reprlib.repr(old)} and would be {reprlib.repr(new)}"


def _publish(root: Path, release: Release) -> Release:
    path = root / MANIFEST
    if os.path.lexists(path):
        present = _read_release(path)
        if present.frozen:
            changed = _difference(present.manifest(), release.manifest())
            if changed is None:
                return present
            raise ReleaseError(f"is frozen, and {changed}; give the changed release a new folder", argument=str(path))
    write_atomically(path, canonical_json(release.manifest()))
    return release


def write_atomically(path: str | Path, data: bytes) -> None:
    """Writes a file so that a reader, or a crash, sees the old content or the new one whole, never a part.

    Args:
      path: the file, in a folder that exists; replaced if it is there.
      data: its bytes.

    Raises:
      ReleaseError: the folder cannot be written to; no temporary file is left behind.
    """
    try:
        atomic_write(path, data)
    except OSError as error:
        raise ReleaseError(f"cannot be written: {error.strerror}", argument=str(path)) from error
