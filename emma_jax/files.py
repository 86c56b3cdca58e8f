"""Writing files so that a reader, or a crash, sees the old content or the whole new one."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO

from emma_jax.errors import FileFormatError

__all__ = ["atomic_file", "atomic_write", "open_journal_file"]


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file that takes the place of ``path`` once the block ends well; otherwise nothing is left behind.

    The new content is on the disk before it gets the name. A path that exists and is no regular file (``/dev/stdout``)
    is written to, never replaced; a symbolic link is followed.

    Args:
      path: the file to write; its folder is made where it does not exist, so that an hour of scoring is not lost to it.

    Yields:
      The file to write to.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not stat.S_ISREG(target.stat().st_mode):
        with open(path, "wb") as stream:
            yield stream
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name[:200]}.{secrets.token_hex(6)}.tmp")
    try:
        # not tempfile: its files are private to the user, and results are to be shared as the umask says
        with open(temporary, "xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def atomic_write(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes ``data`` as the whole content of ``path``: readers see the old file or the new one, never a part."""
    with atomic_file(path) as stream:
        stream.write(data)


@contextmanager
def open_journal_file(path: Path, writer: str) -> Iterator[IO[bytes]]:
    """A journal for reading and appending, made with its folder where there is none, and for one process at a time.

    The system lets go of the lock when the process ends, however it ends.

    Args:
      path: the journal.
      writer: what writes it, for the error.

    Raises:
      FileFormatError: another process has it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "r+b" if path.exists() else "x+b") as stream:
        try:
            import fcntl

            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # not on this system
            pass
        except OSError:
            raise FileFormatError(f"another {writer} is writing this journal", argument=str(path)) from None
        yield stream
