"""Writers that leave either the old file or the whole new one."""

from __future__ import annotations

import os
import secrets
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["atomic_file", "atomic_write", "write_npz"]


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file that takes the place of ``path`` once the block ends well; otherwise nothing is left behind.

    The new content is on the disk before it gets the name. A path that exists and is no regular file (``/dev/stdout``)
    is written to, never replaced; a symbolic link is followed.

    Args:
      path: the file to write; its folder must exist.

    Yields:
      The file to write to.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not stat.S_ISREG(target.stat().st_mode):
        with open(path, "wb") as stream:
            yield stream
        return
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


def write_npz(path: str | os.PathLike[str], *, compress: bool = False, **arrays: ArrayLike) -> None:
    """Writes arrays as .npz, atomically and with the same bytes for the same content; object arrays are refused.

    Args:
      path: the file, with its suffix.
      compress: whether to deflate.
      **arrays: by name.

    Raises:
      TypeError: an object array, which only pickle could write.
    """
    values = {name: np.asanyarray(value) for name, value in arrays.items()}
    for name, value in values.items():
        if value.dtype.hasobject:
            raise TypeError(f"{name!r} is an object array (ragged lists?); only numbers and strings are written")
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with atomic_file(path) as stream, zipfile.ZipFile(stream, "w", method) as archive:
        for name, value in values.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:  # a fixed date: 1980
                np.lib.format.write_array(member, value, allow_pickle=False)
