"""The journal of a sweep: one JSON line for every finished file, after a line that says which sweep this is.

A line is handed to the system before the row is reported, so that a kill at any moment loses nothing that was reported;
a line that a kill cut short is dropped, and its file is scored again.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from emma_jax.errors import FileFormatError
from emma_jax.files import open_journal_file
from emma_jax.io.sources import read_bytes

__all__ = ["Journal", "journal_path", "open_journal", "read_journal"]

# A power cut, unlike a kill, may lose what is not on the disk yet: at most the rows of so many seconds.
_SYNC_S = 0.5
_MAX_BYTES = 1 << 32


class Journal:
    """Records by path, each appended as it is made; without a file they are kept in memory alone."""

    def __init__(self, path: Path | None, stream: IO[bytes] | None, records: dict[str, dict[str, Any]]) -> None:
        self.path, self.records = path, records
        self._stream = stream
        self._synced = time.monotonic()

    def add(self, record: Mapping[str, Any]) -> None:
        """Appends a record; what is kept of it is what would be read back."""
        line = _line(record)
        if self._stream is not None:
            self._stream.write(line)
            self._stream.flush()
            if time.monotonic() - self._synced > _SYNC_S:
                self.sync()
        self.records[record["path"]] = json.loads(line)

    def sync(self) -> None:
        """Forces what was appended to the disk."""
        if self._stream is not None:
            os.fsync(self._stream.fileno())
            self._synced = time.monotonic()


def journal_path(output: str | os.PathLike[str], index: int, count: int) -> Path:
    """Where the journal of process ``index`` of ``count`` lies, next to the table."""
    part = "" if count == 1 else f".{index}-of-{count}"
    return Path(f"{os.fspath(output)}{part}.journal")


def _line(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, allow_nan=False).encode() + b"\n"


@contextmanager
def open_journal(path: Path | None, identity: Mapping[str, Any], resume: bool) -> Iterator[Journal]:
    """The journal, opened for appending; None keeps none.

    Raises:
      FileFormatError: it is of a sweep with other labels, parameters or predictions, or of another version; or another
        process is writing it.
      OSError: it cannot be opened.
    """
    if path is None:
        yield Journal(None, None, {})
        return
    with open_journal_file(path, "sweep") as stream:
        content = stream.read() if resume else b""
        records, length = _parse(content, identity, path)
        stream.seek(length)
        stream.truncate()
        if length == 0:
            stream.write(_line(identity))
            stream.flush()
        journal = Journal(path, stream, records)
        try:
            yield journal
        finally:
            journal.sync()


def read_journal(path: Path, identity: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Records by path of a journal that another process may be writing.

    Raises:
      FileFormatError: it is of another sweep.
      OSError: it is not there.
    """
    return _parse(read_bytes(path, max_bytes=_MAX_BYTES), identity, path)[0]


def _parse(content: bytes, identity: Mapping[str, Any], path: Path) -> tuple[dict[str, dict[str, Any]], int]:
    """Records, and how many bytes of the content are whole lines."""
    lines = [line for line in content.splitlines(keepends=True) if line.endswith(b"\n")]
    if not lines:
        return {}, 0
    _check_identity(lines[0], identity, path)
    records: dict[str, dict[str, Any]] = {}
    length = len(lines[0])
    for line in lines[1:]:
        try:
            record = json.loads(line)
            records[record["path"]] = record
        except (ValueError, KeyError, TypeError):  # blocks of zeros after a power cut, for example
            break
        length += len(line)
    return records, length


def _check_identity(line: bytes, identity: Mapping[str, Any], path: Path) -> None:
    wanted = json.loads(_line(identity))
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if found == wanted:
        return
    if not isinstance(found, dict) or found.get("format") != wanted["format"]:
        what = "is no journal of this kind of sweep"
    else:
        what = f"is of a sweep with other {', '.join(k for k in wanted if found.get(k) != wanted[k])}"
    raise FileFormatError(
        f"{what}; continue that one, or start anew (resume=False, on the command line --restart)", argument=str(path)
    )
