"""Writers that leave either the old file or the whole new one."""

from __future__ import annotations

import os
import zipfile

import numpy as np
from numpy.typing import ArrayLike

from emma_jax.files import atomic_file, atomic_write

__all__ = ["atomic_file", "atomic_write", "write_npz"]


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
