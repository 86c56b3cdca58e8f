"""Scoring thousands of prediction files against the same labels."""

from __future__ import annotations

import hashlib
import math
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emma_jax._version import __version__
from emma_jax.errors import EvaluationError, FileFormatError
from emma_jax.io.read import FORMATS, Labels, read_labels, read_predictions
from emma_jax.io.sources import MAX_BYTES, read_bytes
from emma_jax.scores import Scores, json_number
from emma_jax.sweeps.journal import Journal, journal_path, open_journal, read_journal
from emma_jax.sweeps.runs import RunFile, fill_names, find_runs
from emma_jax.sweeps.table import COUNTS, SweepTable, check_format, load_table, write_table

__all__ = ["SWEEP_FORMAT", "sweep_files"]

SWEEP_FORMAT = "emma-sweep/1"

# Files that are read while one is scored; so many and one more are in memory at a time.
_AHEAD = 2

Progress = Callable[[int, int, str], None]
"""``progress(done, total, what)``, called before each file is scored and once at the end."""


def sweep_files(
    task: Any,
    preds: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    labels: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str] | None = None,
    resume: bool = True,
    process_index: int = 0,
    process_count: int = 1,
    progress: Progress | None = None,
    max_bytes: int = MAX_BYTES,
    **params: Any,
) -> SweepTable:
    """Scores prediction files against shared labels; each value is what `evaluate` gives for that file.

    A thread reads ahead while a file is scored. A file that cannot be read, does not fit the labels or has bad values
    becomes a row with its reason and stops nothing. Rows with ids are matched by id, as in a submission.

    With ``output``, finished rows go into a journal next to it. A sweep that was killed continues from there: nothing
    is scored twice, nothing is lost, and the table has the same bytes. The journal is removed once the table is
    written.

    Args:
      task: a task id or `Task`.
      preds: a pattern, a folder or paths; see `find_runs`.
      labels: label file; with ``{names}`` of the pattern of ``preds``, such as ``labels/{fold}.npz``, one for each
        value. For EMVal-NF, and EMVal-SP from Touchstone, the truth as `emma_jax.emval.load_files` reads it.
      output: the table to write, .csv or .parquet.
      resume: continue from the journal of a sweep that was interrupted; False starts anew.
      process_index, process_count: this process scores every ``process_count``-th file. Each has a journal of its own,
        and the one that finishes last writes the table; they share nothing but the folder of ``output``.
      progress: called as ``progress(done, total, path)``.
      max_bytes: limit on the decompressed bytes of one file.
      **params: parameters of the task, for example ``k=5``.

    Returns:
      A `SweepTable`; with several processes that of all files once all are done, else of this process's files.

    Raises:
      FileFormatError: the labels cannot be read; a journal of a sweep with other labels, parameters or predictions; a
        file that changed, or is gone, since it was scored.
      EmptyEvaluationError: there is no file.
      EvaluationError: wrong parameters; a ``{name}`` in ``labels`` that the pattern of ``preds`` does not have.
      ImportError: a Parquet table without pyarrow.
      OSError: the labels or the output cannot be opened.
    """
    from emma_jax.tasks import get_task

    task = get_task(task, **params)
    if not 0 <= process_index < process_count:
        text = f"is {process_index}, not one of 0..{process_count - 1}"
        raise EvaluationError(text, task=task.id, argument="process_index")
    if output is None and process_count > 1:
        text = "is needed by several processes, since they meet there"
        raise EvaluationError(text, task=task.id, argument="output")
    if output is not None:
        check_format(output)
    runs = find_runs(preds)
    taken = {m.name for m in task.metrics} & set(runs[0].keys)
    if taken:
        raise EvaluationError(f"{{{min(taken)}}} is the column of a metric; call it something else", argument="preds")
    truths = {run.path: fill_names(labels, run.keys) for run in runs}
    readers = {path: _reader(task, path, max_bytes) for path in sorted(set(truths.values()))}
    digests = {path: reader.labels_sha256 for path, reader in readers.items()}
    settings = {
        "format": SWEEP_FORMAT,
        "version": __version__,
        "task": task.id,
        "parameters": [[m.name, [[k, _plain(v)] for k, v in m.info.config]] for m in task.metrics],
        "labels": digests if len(digests) > 1 else next(iter(digests.values())),
    }
    identity = {**settings, "predictions": _digest(preds, runs), "processes": process_count}
    mine = runs[process_index::process_count]
    path = None if output is None else journal_path(output, process_index, process_count)
    before = None if output is None else _stamp(Path(output))
    with open_journal(path, identity, resume) as journal:
        _check_unchanged(journal, runs)
        left = [run for run in mine if run.path not in journal.records]
        done = len(mine) - len(left)
        with closing(_read_ahead(left, lambda run: readers[truths[run.path]].read(run))) as loaded:
            for run, file in zip(left, loaded):
                if progress is not None:
                    progress(done, len(mine), run.path)
                journal.add(readers[truths[run.path]].record(run, file))
                done += 1
        if progress is not None:
            progress(len(mine), len(mine), "")
        journal.sync()
        if output is None:
            return _table(task, runs, journal.records, settings)
        return _gather(task, runs, mine, journal, settings, identity, Path(output), process_count, before)


def _digest(preds: Any, runs: Sequence[RunFile]) -> Any:
    """What was asked for: a pattern may find more files when a sweep goes on, a list is that list."""
    if isinstance(preds, (str, os.PathLike)):
        return os.fspath(preds)
    return hashlib.sha256("\0".join(r.path for r in runs).encode("utf-8", "surrogateescape")).hexdigest()


def _plain(value: Any) -> Any:
    """A parameter as JSON; anything else by what it is called."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else repr(value)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


# --- files --------------------------------------------------------------------------------------------------------


@dataclass
class _File:
    """A prediction file in memory, or why it is not."""

    stat: list[int]
    sha256: str
    preds: Any = None
    reason: str = ""


def _reader(task: Any, labels: str | os.PathLike[str], max_bytes: int) -> _Reader:
    from emma_jax.emval.layout import is_touchstone

    if task.id == "EMVal-NF" or (task.id == "EMVal-SP" and is_touchstone(Path(labels))):
        return _BoardReader(task, labels, max_bytes)
    return _Reader(task, labels, max_bytes)


class _Reader:
    """Reads files in one thread, and scores them in another."""

    def __init__(self, task: Any, labels: str | os.PathLike[str], max_bytes: int) -> None:
        from emma_jax.evaluate import SharedLabels
        from emma_jax.metrics.base import with_lengths

        self.task, self.max_bytes = task, max_bytes
        self.truth, self.labels_sha256 = self._read_labels(Path(labels))
        if self.truth is not None:
            truth = with_lengths(task.metrics, self.truth.labels, self.truth.lengths, task.id)
            self.shared = SharedLabels(task, truth, self.truth.where)

    def _read_labels(self, path: Path) -> tuple[Labels | None, str]:
        data, digest = _content(path, self.max_bytes)
        return read_labels(data, name=str(path), max_bytes=self.max_bytes), digest

    def _read_preds(self, path: str, data: Any) -> Any:
        from emma_jax.submissions import align

        assert self.truth is not None
        preds = read_predictions(data, name=path, max_bytes=self.max_bytes, unique_ids=False)
        return align(preds, self.truth)

    def read(self, run: RunFile) -> _File:
        """One file; whatever goes wrong is its reason."""
        file = _File([], "")
        try:
            file.stat = _stat(run.path)
            data, file.sha256 = _content(Path(run.path), self.max_bytes)
            file.preds = self._read_preds(run.path, data)
        except Exception as error:  # a damaged file may raise anything, and the others are still wanted
            file.reason = _reason(error)
        return file

    def _score(self, preds: Any) -> tuple[Scores, EvaluationError | None]:
        return self.shared.score(preds)

    def record(self, run: RunFile, file: _File) -> dict[str, Any]:
        """What the journal keeps of a file."""
        record = {"path": run.path, "stat": file.stat, "sha256": file.sha256}
        if file.reason:
            return record | {"status": "unreadable", "reason": file.reason}
        try:
            scores, error = self._score(file.preds)
        except (EvaluationError, MemoryError) as failure:
            return record | {"status": "bad", "reason": _reason(failure)}
        metrics = {
            name: {"value": json_number(scores[name]), "validity": scores.validity[name].as_dict()}
            | {"aux": {k: json_number(v) for k, v in scores.aux[name].items()}}
            for name in scores
        }
        status, reason = ("ok", "") if error is None else ("bad", _reason(error))
        return record | {"status": status, "reason": reason, "metrics": metrics}


class _BoardReader(_Reader):
    """Near fields, and S-parameters from Touchstone: both sides are read and brought onto common axes, file by file."""

    def _read_labels(self, path: Path) -> tuple[Labels | None, str]:
        self.labels = path
        return None, _sha256(path)

    def _read_preds(self, path: str, data: Any) -> Any:
        from emma_jax.emval import load_files

        pair = load_files(self.labels, path, self.task.id.removeprefix("EMVal-"), max_bytes=self.max_bytes)
        if pair.fields is not None:
            t, p = pair.fields
            return {"E": t.e, "H": t.h}, {"E": p.e, "H": p.h}, t.where
        assert pair.sparams is not None
        a, b = pair.sparams
        return a.s, b.s, a.where

    def _score(self, preds: Any) -> tuple[Scores, EvaluationError | None]:
        from emma_jax.evaluate import SharedLabels

        truth, own, where = preds
        return SharedLabels(self.task, truth, where).score(own)


def _content(path: Path, max_bytes: int) -> tuple[Any, str]:
    """What the readers take, and its SHA-256: the bytes themselves, so that what is hashed is what is scored; or the
    path, for formats that are read in place."""
    if path.suffix.lower() not in FORMATS:
        return path, _sha256(path)
    data = read_bytes(Path(os.path.realpath(path)), max_bytes=max_bytes, name=str(path))
    return data, hashlib.sha256(data).hexdigest()


def _sha256(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _stat(path: str) -> list[int]:
    """What tells whether a file is still the same, without reading it. The time of the last change of its entry is
    among it: unlike the modification time, nobody can set it back."""
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def _reason(error: BaseException) -> str:
    """One line."""
    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = " ".join(str(error).split())
    return text if isinstance(error, EvaluationError) else f"{type(error).__name__}: {text}"[:300]


def _check_unchanged(journal: Journal, runs: Sequence[RunFile]) -> None:
    """Raises if a file whose row is in the journal is no longer the file that was scored."""
    there = {run.path for run in runs}
    for path, record in journal.records.items():
        if path not in there:
            raise FileFormatError(_since("is gone"), argument=path)
        try:
            same = _stat(path) == record["stat"] or _sha256(Path(path)) == record["sha256"]
        except OSError:
            same = record["sha256"] == ""
        if not same:
            raise FileFormatError(_since("has changed"), argument=path)


def _since(what: str) -> str:
    return f"{what} since this sweep scored it; start anew (resume=False, on the command line --restart)"


def _read_ahead(runs: Sequence[RunFile], read: Callable[[RunFile], _File]) -> Generator[_File]:
    """Files in order, the next ones being read while the caller works."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="sweep-read")
    waiting: deque[Future[_File]] = deque()
    try:
        for run in runs:
            waiting.append(pool.submit(read, run))
            if len(waiting) > _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


# --- the table ----------------------------------------------------------------------------------------------------


def _gather(
    task: Any,
    runs: Sequence[RunFile],
    mine: Sequence[RunFile],
    journal: Journal,
    settings: Mapping[str, Any],
    identity: Mapping[str, Any],
    output: Path,
    count: int,
    before: tuple[int, int] | None,
) -> SweepTable:
    """Writes the table if every process is done, and then removes the journals."""
    journals = [journal_path(output, i, count) for i in range(count)]
    records = dict(journal.records)
    try:
        for path in journals:
            if path != journal.path:
                records |= read_journal(path, identity)
    except FileNotFoundError:
        after = _stamp(output)
        if after is not None and after != before:  # another process has seen that all are done, and was quicker
            return load_table(output)
    if any(run.path not in records for run in runs):
        partial = _table(task, mine, journal.records, settings)
        return SweepTable(partial.columns, partial.rows, partial.metrics, settings, complete=False)
    table = _table(task, runs, records, settings)
    write_table(table, output)
    for path in journals:
        path.unlink(missing_ok=True)
    return table


def _table(
    task: Any, runs: Sequence[RunFile], records: Mapping[str, Mapping[str, Any]], settings: Mapping[str, Any]
) -> SweepTable:
    """Rows in the order of the paths, from what the journal holds."""
    names = list(dict.fromkeys(key for run in runs for key in run.keys))
    metrics = [m.name for m in task.metrics]
    further = {m: dict.fromkeys(k for r in records.values() for k in _of(r, m).get("aux", {})) for m in metrics}
    columns = ["path", *names, "status", "reason", "sha256"]
    for m in metrics:
        columns += [m, *(f"{m}.{c}" for c in COUNTS), *(f"{m}.{k}" for k in further[m])]
    rows = []
    for run in runs:
        record = records[run.path]
        row: dict[str, Any] = {"path": run.path, **{n: run.keys.get(n, "") for n in names}}
        row |= {k: record[k] for k in ("status", "reason", "sha256")}
        for m in metrics:
            entry = _of(record, m)
            row[m] = _float(entry.get("value"))
            row |= {f"{m}.{c}": entry.get("validity", {}).get(c) for c in COUNTS}
            row |= {f"{m}.{k}": _float(entry.get("aux", {}).get(k)) for k in further[m]}
        rows.append(row)
    return SweepTable(tuple(columns), tuple(rows), tuple(metrics), settings)


def _of(record: Mapping[str, Any], metric: str) -> Mapping[str, Any]:
    entry: Mapping[str, Any] = record.get("metrics", {}).get(metric, {})
    return entry


def _float(value: float | str | None) -> float:
    """The number behind `json_number`."""
    return math.nan if value is None else float(value)
