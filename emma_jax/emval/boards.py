"""Scoring a data set of boards under the EMVal protocol, one board at a time.

Each board gives one value per metric. A group's value is the equal-weight mean over its boards, ID is the mean over the
boards of ``public`` and ``private_standard`` together, OOD over those of ``private_challenge``; the averages over E and
H are taken of these means.

Boards are large and ragged, so they are never stacked: while one is scored, a thread reads the next, and no more than
these two are in memory. Each finished board is appended to a journal and forced to the disk; a run that was killed
continues from there and writes the same bytes as one that was not.

Metrics come in as a function, `ScoreBoard`; by default they are those of the tasks EMVal-NF and EMVal-SP.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from emma_jax._version import __version__
from emma_jax.emval.keymap import KeyMap
from emma_jax.emval.layout import (
    GROUPS,
    BoardFiles,
    Fields,
    SParameters,
    find_boards,
    is_touchstone,
    read_fields,
    read_positions,
    read_sparams,
    require_same_frequencies,
    require_same_shape,
    sha256,
)
from emma_jax.emval.sparams import align, check_sparams, renormalize
from emma_jax.errors import EmptyEvaluationError, EvaluationError, FileFormatError, SubmissionError
from emma_jax.files import open_journal_file
from emma_jax.io.sources import MAX_BYTES, open_source
from emma_jax.io.strict import dumps_strict, loads_strict
from emma_jax.io.touchstone import read_touchstone
from emma_jax.io.write import atomic_write

__all__ = [
    "NF_METRICS",
    "SP_METRICS",
    "BoardPair",
    "BoardRecord",
    "BoardScores",
    "ScoreBoard",
    "load_board",
    "load_files",
    "load_result",
    "mean_over_boards",
    "score_boards",
    "score_files",
]

PROTOCOL_VERSION = "1.0.0"
RESULT_FORMAT = "emval-result/1"
FILE_FORMAT = "emval-file/1"
JOURNAL_FORMAT = "emval-journal/1"

NF_METRICS = ("rel_l2_E", "rel_l2_H", "local_q50_E", "local_q50_H", "local_cos_q50_E", "local_cos_q50_H")
SP_METRICS = ("real_imag_rmse", "mag_wmae", "ph_wmae")
_AVERAGES = {"rel_l2_avg": ("rel_l2_E", "rel_l2_H"), "local_q50_avg": ("local_q50_E", "local_q50_H")}
_TRACKS = {"NF": ("NF",), "SP": ("SP",), "both": ("NF", "SP")}
_DOMAINS = {"id": ("public", "private_standard"), "ood": ("private_challenge",)}
_JOURNAL_SUFFIX = ".journal"
_MAX_RESULT = 1 << 28

ScoreBoard = Callable[[Mapping[str, Any], Mapping[str, Any], str], Mapping[str, Any]]
"""``score_board(truth, pred, track)`` gives the values of one board by metric name.

``track`` is "NF", where ``truth`` and ``pred`` hold "E" and "H" [J, F, P, 3] complex, or "SP", where they hold "S"
[F, i, j] complex; ``truth`` may hold a bool mask "where" [J, F, P] or [F, i, j]. A mapping with an attribute
``validity`` (`Scores`) has that recorded too.
"""

Progress = Callable[[int, int, str], None]
"""``progress(done, total, what)``, called before each board and once at the end."""


@dataclass(frozen=True)
class BoardRecord:
    """What is known of one scored board.

    Attributes:
      group: one of the groups.
      id: name of the board.
      values: by metric name.
      validity: by metric name, the counts of `Validity`; empty where the metrics do not give them.
      sha256: by side ("truth", "pred") and file name.
      checks: sanity of the S-parameters by side, as `SParameterCheck.to_dict`; empty without them.
      notes: ``frequencies`` says of each track whether both sides stated (and agreed in) their frequencies,
        ``reference`` whether references were "equal", "renormalized", or "unstated" on a side, ``checksum`` whether the
        truth was verified.
    """

    group: str
    id: str
    values: Mapping[str, float]
    validity: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    sha256: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    checks: Mapping[str, Any] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Group and id."""
        return f"{self.group}/{self.id}" if self.group else self.id

    def to_document(self) -> dict[str, Any]:
        """Strict JSON content of a comparison of two files, with versions."""
        versions = {"format": FILE_FORMAT, "protocol_version": PROTOCOL_VERSION, "version": __version__}
        return versions | self.to_dict()

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON content."""
        content: dict[str, Any] = {"group": self.group, "id": self.id, "values": dict(self.values)}
        for name in ("validity", "sha256", "checks", "notes"):
            if value := getattr(self, name):
                content[name] = value
        return content


@dataclass(frozen=True)
class BoardScores:
    """The scores of a data set.

    Attributes:
      protocol: "NF", "SP" or "both".
      boards: one record per scored board, by group and then by id.
      missing: boards of the truth that were left out (``allow_missing``).
      unused: predictions of boards that the truth does not have.
      settings: key maps, and the groups asked for.
    """

    protocol: str
    boards: tuple[BoardRecord, ...]
    missing: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def comparable(self) -> bool:
        """Whether every board of the truth is scored; otherwise the means are over another set."""
        return not self.missing

    def group(self, name: str) -> dict[str, float]:
        """Value by metric name for one group, the mean over its boards, empty where it has none."""
        return mean_over_boards([b.values for b in self.boards if b.group == name])

    @property
    def id(self) -> dict[str, float]:
        """In distribution: the mean over the boards of ``public`` and ``private_standard``."""
        return mean_over_boards([b.values for b in self.boards if b.group in _DOMAINS["id"]])

    @property
    def ood(self) -> dict[str, float]:
        """Out of distribution: the mean over the boards of ``private_challenge``."""
        return mean_over_boards([b.values for b in self.boards if b.group in _DOMAINS["ood"]])

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON content; the same for the same files and settings, whenever and however often interrupted."""
        groups = [g for g in GROUPS if any(b.group == g for b in self.boards)]
        n_boards = {g: sum(b.group == g for b in self.boards) for g in groups}
        return {
            "format": RESULT_FORMAT,
            "protocol": self.protocol,
            "protocol_version": PROTOCOL_VERSION,
            "version": __version__,
            "comparable": self.comparable,
            "missing": list(self.missing),
            "unused": list(self.unused),
            "settings": dict(self.settings),
            "groups": {g: {"n_boards": n_boards[g], "values": self.group(g)} for g in groups},
            **{
                domain: {
                    "groups": [g for g in members if g in groups],
                    "n_boards": sum(n_boards.get(g, 0) for g in members),
                    "values": getattr(self, domain),
                }
                for domain, members in _DOMAINS.items()
            },
            "boards": [b.to_dict() for b in self.boards],
        }


@dataclass(frozen=True, eq=False)
class BoardPair:
    """Truth and prediction of one board in memory, checked against each other.

    Attributes:
      name: of the board.
      fields: truth and prediction, None where they were not asked for.
      sparams: truth and prediction at the truth's reference impedances and frequencies, or None.
      position_m: [P, 3] where the probes are in meters, None where the truth does not say.
    """

    name: str
    fields: tuple[Fields, Fields] | None = None
    sparams: tuple[SParameters, SParameters] | None = None
    position_m: NDArray[np.float64] | None = None


def mean_over_boards(values: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Dataset values from board values: each metric's equal-weight mean, and the averages over E and H of these means.

    Args:
      values: by metric name, one mapping per board; all with the same metrics.

    Returns:
      Means by metric name, with ``rel_l2_avg`` and ``local_q50_avg`` for near fields; empty for no boards.

    Reference: EMVal protocol 1.0.0, subsets and aggregation.
    """
    if not values:
        return {}
    means = {name: math.fsum(v[name] for v in values) / len(values) for name in values[0]}
    for name, (e, h) in _AVERAGES.items():
        if e in means and h in means:
            means[name] = (means[e] + means[h]) / 2
    return means


def score_boards(
    truth_dir: str | os.PathLike[str],
    pred_dir: str | os.PathLike[str],
    protocol: str = "both",
    *,
    key_map: KeyMap | None = None,
    pred_key_map: KeyMap | None = None,
    groups: Sequence[str] | None = None,
    allow_missing: bool = False,
    output: str | os.PathLike[str] | None = None,
    resume: bool = True,
    verify: bool = True,
    score_board: ScoreBoard | None = None,
    progress: Progress | None = None,
    max_bytes: int = MAX_BYTES,
) -> BoardScores:
    """Score predictions for a data set of boards.

    Args:
      truth_dir: the data set, in a layout of `emma_jax.emval.layout`.
      pred_dir: predictions, in any of these layouts; boards are matched by group and id.
      protocol: "NF" (near fields), "SP" (S-parameters) or "both".
      key_map: names and axes in the files of the truth; see `emma_jax.emval.keymap`.
      pred_key_map: the same for the predictions.
      groups: score these groups only.
      allow_missing: leave boards without prediction (or truth) out, and mark the result as not comparable.
      output: file for the result as JSON; a journal lies next to it until the run is complete.
      resume: continue from the journal of a killed run; False starts anew.
      verify: check the truth against ``checksums.json``, where there is one.
      score_board: the metrics; by default those of the tasks EMVal-NF and EMVal-SP.
      progress: called before each board and once at the end.
      max_bytes: limit on the decompressed bytes of one file.

    Returns:
      A `BoardScores`.

    Raises:
      SubmissionError: boards without prediction.
      FileFormatError: boards without truth, a wrong checksum, an unreadable file, a missing dataset, a journal of
        another run.
      ShapeError: shapes or frequency grids that differ.
      EvaluationError: what the metrics raise, and undefined values. All of these name the board.
    """
    _require_protocol(protocol)
    if groups is not None and (not groups or not set(groups) <= set(GROUPS)):
        raise EvaluationError(f"is {list(groups)}, not some of {', '.join(GROUPS)}", argument="groups")
    wanted = [g for g in GROUPS if groups is None or g in groups]
    maps = {"truth": key_map or KeyMap(), "pred": pred_key_map or KeyMap()}
    tracks = _TRACKS[protocol]
    truth = find_boards(truth_dir, maps["truth"], wanted)
    pred = find_boards(pred_dir, maps["pred"], wanted)
    if not truth:
        raise EmptyEvaluationError(f"{truth_dir} holds no boards", argument="truth_dir")
    missing = _missing(truth, pred, tracks, allow_missing)
    unused = tuple(b.name for key, b in pred.items() if key not in truth)
    jobs = {key: _Job(b, pred[key]) for key, b in truth.items() if b.name not in missing}
    if not jobs:
        raise EmptyEvaluationError("no board has both truth and prediction", argument="pred_dir")
    settings = {"groups": wanted, "key_map": maps["truth"].to_dict(), "pred_key_map": maps["pred"].to_dict()}

    score = score_board or _score_by_task
    identity = {
        "format": JOURNAL_FORMAT,
        "version": __version__,
        "protocol": protocol,
        "verify": verify,
        "metrics": f"{score.__module__}.{getattr(score, '__qualname__', type(score).__qualname__)}",
        "truth_dir": os.path.realpath(truth_dir),
        "pred_dir": os.path.realpath(pred_dir),
        **settings,
    }

    def read(job: _Job) -> _Loaded:
        return _read(job, tracks, maps, verify, max_bytes)

    with _journal(output, identity, resume) as journal:
        done = {key: r for key, job in jobs.items() if (r := journal.find(job)) is not None}
        for loaded in _read_ahead([job for key, job in jobs.items() if key not in done], read):
            board = loaded.job.truth
            if progress is not None:
                progress(len(done), len(jobs), board.name)
            done[board.group, board.id] = journal.add(loaded.job, _score(loaded, score))
            loaded.release()
        if progress is not None:
            progress(len(jobs), len(jobs), "")
        result = BoardScores(protocol, tuple(done[key] for key in jobs), missing, unused, settings)
        if output is not None:
            atomic_write(output, dumps_strict(result.to_dict()).encode())
            journal.remove()
    return result


def score_files(
    truth: str | os.PathLike[str],
    pred: str | os.PathLike[str],
    protocol: str = "SP",
    *,
    key_map: KeyMap | None = None,
    pred_key_map: KeyMap | None = None,
    ports: Sequence[int] | None = None,
    pick: bool = False,
    score_board: ScoreBoard | None = None,
    max_bytes: int = MAX_BYTES,
) -> BoardRecord:
    """Score one file against another: Touchstone, .npz or HDF5.

    Args:
      truth: simulation or measurement.
      pred: prediction.
      protocol: "NF", "SP" or "both".
      key_map: names and axes in the truth; see `emma_jax.emval.keymap`.
      pred_key_map: the same for the prediction.
      ports: of two Touchstone files, score these ports (from 1) alone; see `emma_jax.emval.align`.
      pick: of two Touchstone files, let the prediction have further frequencies.
      score_board: the metrics; by default those of the tasks EMVal-NF and EMVal-SP.
      max_bytes: limit on the decompressed bytes of one file.

    Returns:
      A `BoardRecord` without a group.

    Raises:
      EvaluationError: a subclass, as `score_boards`; ``ports`` or ``pick`` for other files than Touchstone.
      OSError: a file cannot be opened.
    """
    maps = {"truth": key_map or KeyMap(), "pred": pred_key_map or KeyMap()}
    return _score(_read_files(truth, pred, protocol, maps, ports, pick, max_bytes), score_board or _score_by_task)


def load_files(
    truth: str | os.PathLike[str],
    pred: str | os.PathLike[str],
    protocol: str = "SP",
    *,
    key_map: KeyMap | None = None,
    pred_key_map: KeyMap | None = None,
    ports: Sequence[int] | None = None,
    pick: bool = False,
    max_bytes: int = MAX_BYTES,
) -> BoardPair:
    """The very arrays that `score_files` compares, for pictures and metrics of one's own.

    Args:
      truth, pred, protocol, key_map, pred_key_map, ports, pick, max_bytes: as `score_files`.

    Returns:
      A `BoardPair`.

    Raises:
      EvaluationError, OSError: as `score_files`.
    """
    maps = {"truth": key_map or KeyMap(), "pred": pred_key_map or KeyMap()}
    return _pair(_read_files(truth, pred, protocol, maps, ports, pick, max_bytes), maps, max_bytes)


def load_board(
    truth_dir: str | os.PathLike[str],
    pred_dir: str | os.PathLike[str],
    board: str,
    protocol: str = "both",
    *,
    key_map: KeyMap | None = None,
    pred_key_map: KeyMap | None = None,
    max_bytes: int = MAX_BYTES,
) -> BoardPair:
    """The very arrays that `score_boards` compares for one board.

    Args:
      truth_dir, pred_dir, protocol, key_map, pred_key_map, max_bytes: as `score_boards`.
      board: "group/id", or the id alone.

    Returns:
      A `BoardPair`.

    Raises:
      EvaluationError: no such board, or several of that id; otherwise as `score_boards`.
    """
    _require_protocol(protocol)
    maps = {"truth": key_map or KeyMap(), "pred": pred_key_map or KeyMap()}
    truth, pred = find_boards(truth_dir, maps["truth"]), find_boards(pred_dir, maps["pred"])
    keys = [key for key, b in truth.items() if board in (b.name, b.id)]
    if len(keys) != 1:
        raise EvaluationError(f"{len(keys)} boards are called {board!r}", argument=str(truth_dir))
    found = {keys[0]: truth[keys[0]]}
    _missing(found, pred, _TRACKS[protocol], False)
    return _pair(_read(_Job(found[keys[0]], pred[keys[0]]), _TRACKS[protocol], maps, False, max_bytes), maps, max_bytes)


def load_result(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The result of a data set that `score_boards` wrote.

    Args:
      path: a JSON file.

    Returns:
      The document, as `BoardScores.to_dict` makes it.

    Raises:
      FileFormatError: another kind of file.
      OSError: the path cannot be opened.
    """
    name = os.fspath(path)
    with open_source(path, name, _MAX_RESULT) as (stream, _):
        content = loads_strict(stream.read(), name)
    if not isinstance(content, dict) or content.get("format") != RESULT_FORMAT:
        raise FileFormatError(f"is not the result of a data set ({RESULT_FORMAT})", argument=name)
    return content


def _require_protocol(protocol: str) -> None:
    if protocol not in _TRACKS:
        raise EvaluationError(f"is {protocol!r}, not one of {', '.join(_TRACKS)}", argument="protocol")


# --- one board -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Job:
    truth: BoardFiles
    pred: BoardFiles

    def paths(self) -> Iterator[Path]:
        """Every file of the board, on either side."""
        for board in (self.truth, self.pred):
            yield from dict.fromkeys(p for p in (board.near_field, board.sparams) if p is not None)


@dataclass
class _Loaded:
    """A board in memory."""

    job: _Job
    sha256: dict[str, dict[str, str]]
    checks: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    fields: tuple[Fields, Fields] | None = None
    sparams: tuple[SParameters, SParameters] | None = None

    def tracks(self) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
        """Track, truth and prediction, as `ScoreBoard` takes them."""
        if self.fields is not None:
            t, p = self.fields
            mask = {} if t.where is None else {"where": t.where}
            yield "NF", {"E": t.e, "H": t.h, **mask}, {"E": p.e, "H": p.h}
        if self.sparams is not None:
            a, b = self.sparams
            mask = {} if a.where is None else {"where": a.where}
            yield "SP", {"S": a.s, **mask}, {"S": b.s}

    def release(self) -> None:
        """Lets go of the arrays, whoever still holds this object."""
        self.fields = self.sparams = None


def _missing(
    truth: Mapping[Any, BoardFiles], pred: Mapping[Any, BoardFiles], tracks: Sequence[str], allowed: bool
) -> tuple[str, ...]:
    """Boards that cannot be scored; an error that names the first ten unless that is allowed."""

    def incomplete(board: BoardFiles | None) -> bool:
        files = [] if board is None else [board.near_field if t == "NF" else board.sparams for t in tracks]
        return not files or any(f is None or not f.is_file() for f in files)

    no_truth = [b.name for b in truth.values() if incomplete(b)]
    no_pred = [b.name for key, b in truth.items() if b.name not in no_truth and incomplete(pred.get(key))]
    if not allowed:
        for names, error, side in ((no_truth, FileFormatError, "truth_dir"), (no_pred, SubmissionError, "pred_dir")):
            if names:
                what = " and ".join({"NF": "near fields", "SP": "S-parameters"}[t] for t in tracks)
                listed = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
                raise error(f"{what} are missing for {len(names)} of {len(truth)} boards: {listed}", argument=side)
    return tuple(sorted(no_truth + no_pred))


@contextmanager
def _naming(board: str) -> Iterator[None]:
    """Puts the board's name in front of what an error says."""
    try:
        yield
    except EvaluationError as error:
        named = type(error)(f"board {board}: {error}")
        named.task, named.argument, named.count, named.index = error.task, error.argument, error.count, error.index
        raise named from error
    except OSError as error:
        raise FileFormatError(f"board {board}: cannot be read: {error}") from error


def _read(job: _Job, tracks: Sequence[str], maps: Mapping[str, KeyMap], verify: bool, max_bytes: int) -> _Loaded:
    """Both sides of a board, hashed, checked against each other and at one reference impedance."""
    loaded = _Loaded(job, {"truth": {}, "pred": {}}, notes={"frequencies": {}})
    with _naming(job.truth.name):
        for side, board in (("truth", job.truth), ("pred", job.pred)):
            for path in dict.fromkeys(board.near_field if t == "NF" else board.sparams for t in tracks):
                assert path is not None
                loaded.sha256[side][path.name] = sha256(path)
        if verify and job.truth.checksums is not None:
            _verify(job.truth, loaded.sha256["truth"])
        loaded.notes["checksum"] = "verified" if verify and job.truth.checksums is not None else "none"
        if "NF" in tracks:
            _read_near_field(loaded, maps, max_bytes)
        if "SP" in tracks:
            _read_sparams(loaded, maps, max_bytes)
    return loaded


def _verify(board: BoardFiles, found: Mapping[str, str]) -> None:
    assert board.checksums is not None
    listed = {path.name: digest for path, digest in board.checksums.items()}
    for name, digest in found.items():
        if name not in listed:
            raise FileFormatError("is not listed in checksums.json", argument=name)
        if digest != listed[name]:
            raise FileFormatError(f"has SHA-256 {digest}, checksums.json says {listed[name]}", argument=name)


def _read_near_field(loaded: _Loaded, maps: Mapping[str, KeyMap], max_bytes: int) -> None:
    files = {"truth": loaded.job.truth.near_field, "pred": loaded.job.pred.near_field}
    t, p = (read_fields(files[s], maps[s].near_field, max_bytes=max_bytes) for s in ("truth", "pred"))  # type: ignore[arg-type]
    for what, a, b in (("E", t.e, p.e), ("H", t.h, p.h)):
        require_same_shape(a, b, what)
    loaded.notes["frequencies"]["NF"] = require_same_frequencies(t.frequency_hz, p.frequency_hz, "near fields")
    loaded.fields = t, p


def _read_sparams(loaded: _Loaded, maps: Mapping[str, KeyMap], max_bytes: int) -> None:
    files = {"truth": loaded.job.truth.sparams, "pred": loaded.job.pred.sparams}
    t, p = (read_sparams(files[s], maps[s].sparams, max_bytes=max_bytes) for s in ("truth", "pred"))  # type: ignore[arg-type]
    require_same_shape(t.s, p.s, "S")
    loaded.notes["frequencies"]["SP"] = require_same_frequencies(t.frequency_hz, p.frequency_hz, "S-parameters")
    s, loaded.notes["reference"] = p.s, "unstated"
    if t.z0 is not None and p.z0 is not None:
        same = np.array_equal(np.broadcast_to(t.z0, t.s.shape[:2]), np.broadcast_to(p.z0, t.s.shape[:2]))
        loaded.notes["reference"] = "equal" if same else "renormalized"
        s = s if same else renormalize(s, p.z0, t.z0)
    for side, values, f in (("truth", t.s, t.frequency_hz), ("pred", s, t.frequency_hz)):
        # Bad values are the metrics' to report: they know about the mask.
        if np.isfinite(values).all() and values.shape[2] <= values.shape[1]:
            loaded.checks[side] = check_sparams(values, f).to_dict()
    loaded.sparams = t, replace(p, s=s, z0=p.z0 if t.z0 is None else t.z0)


def _read_touchstones(
    job: _Job, paths: Mapping[str, Path], ports: Sequence[int] | None, pick: bool, max_bytes: int
) -> _Loaded:
    """Two Touchstone files on common ports, frequencies and references."""
    files = {side: read_touchstone(path, max_bytes=max_bytes) for side, path in paths.items()}
    truth, pred = align(files["truth"], files["pred"], ports=ports, pick=pick)
    # Where only some ports are common, these were picked first, and their references alone counted.
    dropped_first = ports is not None and files["truth"].n_ports != files["pred"].n_ports
    index = [p - 1 for p in ports] if ports is not None and dropped_first else slice(None)
    same = np.array_equal(files["truth"].z0[index], files["pred"].z0[index])
    return _Loaded(
        job,
        sha256={side: {path.name: sha256(path)} for side, path in paths.items()},
        checks={s: check_sparams(d.s, d.frequency_hz).to_dict() for s, d in (("truth", truth), ("pred", pred))},
        notes={"frequencies": {"SP": True}, "reference": "equal" if same else "renormalized"},
        sparams=(
            SParameters(truth.s, truth.frequency_hz, truth.z0),
            SParameters(pred.s, pred.frequency_hz, pred.z0),
        ),
    )


def _read_files(
    truth: str | os.PathLike[str],
    pred: str | os.PathLike[str],
    protocol: str,
    maps: Mapping[str, KeyMap],
    ports: Sequence[int] | None,
    pick: bool,
    max_bytes: int,
) -> _Loaded:
    """One file against another."""
    _require_protocol(protocol)
    tracks = _TRACKS[protocol]
    paths = {"truth": Path(truth), "pred": Path(pred)}
    for path in paths.values():
        path.stat()
    job = _Job(*(BoardFiles("", paths["truth"].stem, p, p) for p in paths.values()))
    if tracks == ("SP",) and all(map(is_touchstone, paths.values())):
        return _read_touchstones(job, paths, ports, pick, max_bytes)
    if ports is not None or pick:
        raise EvaluationError("needs two Touchstone files and protocol SP", argument="ports" if ports else "pick")
    return _read(job, tracks, maps, False, max_bytes)


def _pair(loaded: _Loaded, maps: Mapping[str, KeyMap], max_bytes: int) -> BoardPair:
    position = None
    if loaded.fields is not None:
        path = loaded.job.truth.near_field
        assert path is not None
        with _naming(loaded.job.truth.name):
            probes = loaded.fields[0].e.shape[2]
            position = read_positions(path, maps["truth"].near_field, probes, max_bytes=max_bytes)
    return BoardPair(loaded.job.truth.name, loaded.fields, loaded.sparams, position)


def _score_by_task(truth: Mapping[str, Any], pred: Mapping[str, Any], track: str) -> Mapping[str, Any]:
    """The metrics of the task EMVal-NF or EMVal-SP."""
    from emma_jax.evaluate import evaluate

    where = truth.get("where")
    if track == "NF":
        labels = {"E": truth["E"], "H": truth["H"]}
        return evaluate("EMVal-NF", pred, labels, where=where)  # type: ignore[arg-type]
    return evaluate("EMVal-SP", pred["S"], truth["S"], where=where)


def _score(loaded: _Loaded, score_board: ScoreBoard) -> BoardRecord:
    """The record of one board."""
    board = loaded.job.truth
    values: dict[str, float] = {}
    validity: dict[str, Any] = {}
    with _naming(board.name):
        for track, truth, pred in loaded.tracks():
            scores = score_board(truth, pred, track)
            expected = NF_METRICS if track == "NF" else SP_METRICS
            for name in expected:
                value = float(scores[name])
                if not math.isfinite(value):
                    raise EvaluationError(f"is {value}", argument=name)
                values[name] = value
            validity |= {n: v.as_dict() for n, v in getattr(scores, "validity", {}).items() if n in expected}
    return BoardRecord(board.group, board.id, values, validity, loaded.sha256, loaded.checks, loaded.notes)


def _read_ahead(jobs: Sequence[_Job], read: Callable[[_Job], _Loaded]) -> Iterator[_Loaded]:
    """Boards in order, the next one being read while the caller works; two at most are in memory.

    The caller has to `release` a board before it asks for the next.
    """
    if not jobs:
        return
    pool = ThreadPoolExecutor(1, thread_name_prefix="emval-read")
    try:
        pending: Future[_Loaded] | None = pool.submit(read, jobs[0])
        for following in [*jobs[1:], None]:
            assert pending is not None
            loaded = pending.result()
            pending = None if following is None else pool.submit(read, following)
            yield loaded
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


# --- the journal -----------------------------------------------------------------------------------------------------


class _Journal:
    """Records of finished boards, one JSON line each after a line that says which run this is.

    Without a file it keeps nothing, and every board is scored.
    """

    def __init__(
        self, path: Path | None, stream: IO[bytes] | None, records: dict[tuple[str, str], dict[str, Any]]
    ) -> None:
        self._path, self._stream, self._records = path, stream, records

    def find(self, job: _Job) -> BoardRecord | None:
        """The record of a board, unless one of its files has changed since."""
        entry = self._records.get((job.truth.group, job.truth.id))
        if entry is None or entry["files"] != _stat(job):
            return None
        return BoardRecord(**entry["record"])

    def add(self, job: _Job, record: BoardRecord) -> BoardRecord:
        """Appends a record and forces it to the disk.

        Returns:
          The record as it would be read back, so that an interrupted run and another have the very same.
        """
        line = json.dumps({"files": _stat(job), "record": record.to_dict()}, allow_nan=False).encode() + b"\n"
        if self._stream is not None:
            self._stream.write(line)
            self._stream.flush()
            os.fsync(self._stream.fileno())
        return BoardRecord(**json.loads(line)["record"])

    def remove(self) -> None:
        """Deletes the file: the result is complete."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _stat(job: _Job) -> list[list[Any]]:
    """What tells whether a board's files are still the same, without reading them."""
    return [[p.name, (s := p.stat()).st_size, s.st_mtime_ns] for p in job.paths()]


@contextmanager
def _journal(output: str | os.PathLike[str] | None, identity: Mapping[str, Any], resume: bool) -> Iterator[_Journal]:
    """The journal next to ``output``, opened for appending; what a kill left half written is cut off.

    Raises:
      FileFormatError: a journal of a run with other settings, or one that another process is writing.
    """
    if output is None:
        yield _Journal(None, None, {})
        return
    path = Path(f"{os.fspath(output)}{_JOURNAL_SUFFIX}")
    head = json.dumps(identity, sort_keys=True).encode() + b"\n"
    with open_journal_file(path, "run") as stream:
        content = stream.read() if resume else b""
        lines = content.splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        if whole and whole[0] != head:
            raise FileFormatError(
                "is the journal of a run with other folders, settings or version; continue that run, or start anew "
                "(resume=False, on the command line --restart)",
                argument=str(path),
            )
        records: dict[tuple[str, str], dict[str, Any]] = {}
        length = len(whole[0]) if whole else 0
        for line in whole[1:]:
            try:
                entry = json.loads(line)
                records[entry["record"]["group"], entry["record"]["id"]] = entry
            except (ValueError, KeyError, TypeError):  # blocks of zeros after a power cut, for example
                break
            length += len(line)
        stream.seek(length)
        stream.truncate()
        if not whole:
            stream.write(head)
            stream.flush()
        yield _Journal(path, stream, records)
