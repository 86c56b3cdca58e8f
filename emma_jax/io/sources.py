"""Where bytes come from: a path, bytes in memory, or a stream; opened once, regular files only, size checked first."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeAlias

from emma_jax.errors import FileFormatError

__all__ = ["MAX_BYTES", "Source", "open_source", "read_bytes", "source_name"]

MAX_BYTES = 4 * 2**30
"""Default limit, in bytes, on what one file may hold once decompressed (4 GiB)."""

Source: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO


def source_name(source: Source, name: str | None) -> str:
    """The name that errors show and whose suffix tells the format; required where the source has none of its own."""
    if name is not None:
        return name
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source)
    stream_name = getattr(source, "name", None)
    if isinstance(stream_name, str):
        return stream_name
    raise TypeError("reading from memory needs name=, e.g. name='preds.npz': its suffix tells the format")


def _check_size(size: int, name: str, max_bytes: int) -> None:
    if size > max_bytes:
        raise FileFormatError(f"{size} bytes, more than the limit of {max_bytes} (max_bytes)", argument=name)


def _open_regular(path: str | os.PathLike[str], name: str, follow_symlinks: bool) -> BinaryIO:
    """Opens a regular file; without O_NONBLOCK a FIFO would wait for a writer for ever."""
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    if not follow_symlinks:
        if os.path.islink(path):
            raise FileFormatError("a symbolic link; only regular files are read here", argument=name)
        flags |= getattr(os, "O_NOFOLLOW", 0)  # where the system has it, no link can slip in after the check
    stream = os.fdopen(os.open(path, flags), "rb")
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise FileFormatError("not a regular file", argument=name)
    return stream


@contextmanager
def open_source(source: Source, name: str, max_bytes: int) -> Iterator[tuple[BinaryIO, int]]:
    """Yields a seekable binary stream at its start and its size in bytes, which is at most ``max_bytes``."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        _check_size(len(source), name, max_bytes)
        yield io.BytesIO(source), len(source)
    elif isinstance(source, (str, os.PathLike)):
        with _open_regular(source, name, follow_symlinks=True) as stream:
            size = os.fstat(stream.fileno()).st_size
            _check_size(size, name, max_bytes)
            yield stream, size
    else:
        start = source.tell()
        size = source.seek(0, os.SEEK_END) - start
        source.seek(start)
        _check_size(size, name, max_bytes)
        # zip offsets count from the start of the stream, so a stream that has been read from is copied
        yield (source, size) if start == 0 else (io.BytesIO(source.read()), size)


def read_bytes(path: str | Path, *, max_bytes: int = MAX_BYTES, name: str | None = None) -> bytes:
    """All bytes of a regular file, never through a symbolic link: what is hashed is then exactly what is parsed.

    Args:
      path: the file.
      max_bytes: the largest size accepted.
      name: what errors call the file; the path by default.

    Returns:
      The content.

    Raises:
      FileFormatError: a symbolic link, no regular file, or more than ``max_bytes``.
    """
    name = name if name is not None else os.fspath(path)
    with _open_regular(path, name, follow_symlinks=False) as stream:
        _check_size(os.fstat(stream.fileno()).st_size, name, max_bytes)
        data = stream.read(max_bytes + 1)
    _check_size(len(data), name, max_bytes)
    return data
