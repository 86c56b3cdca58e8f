""".npy and .npz without pickle: headers are checked before any data is touched, sizes before any memory is taken.

Arrays come back in native byte order, C-contiguous, at 64-byte aligned addresses: JAX on a CPU takes such memory
without a copy.
"""

from __future__ import annotations

import math
import warnings
import zipfile
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np

from emma_jax.checks import aligned_empty
from emma_jax.errors import FileFormatError

__all__ = ["aligned_empty", "aligned_take", "npz_loaders", "read_npy"]

_CHUNK = 2**22
_KINDS = {"b": 1, "i": 8, "u": 8, "f": 8, "c": 16, "U": math.inf, "S": math.inf}  # dtype kind: largest item in bytes
_MAX_MEMBERS = 1024


def aligned_take(array: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """``array[rows]`` at a 64-byte aligned address."""
    out = aligned_empty((len(rows), *array.shape[1:]), array.dtype)
    return np.take(array, rows, axis=0, out=out, mode="clip")  # "raise" would go through a buffer; rows are in range


def _header(stream: BinaryIO, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, Fortran order and dtype of the array that starts here; no data is read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # headers written under Python 2 parse, with a warning
            version = np.lib.format.read_magic(stream)
            if version == (1, 0):
                shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
            elif version == (2, 0):
                shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
            else:
                raise ValueError(f"version {version}, which only structured arrays need")
    except (zipfile.BadZipFile, zlib.error):
        raise
    except Exception as error:  # the header is a Python literal: hostile ones fail in many ways
        raise FileFormatError(f"not a readable .npy array: {_first_line(error)}", argument=name) from None
    if dtype.hasobject:
        raise FileFormatError("an object array, which only pickle could read; save numbers or strings", argument=name)
    if dtype.names or dtype.subdtype or not 0 < dtype.itemsize <= _KINDS.get(dtype.kind, 0):
        hint = "; bfloat16 does not survive .npy, save it as float32" if dtype.str.endswith("V2") else ""
        raise FileFormatError(f"arrays of dtype {dtype} are not read here{hint}", argument=name)
    if any(n < 0 for n in shape) or len(shape) > 32 or math.prod(n for n in shape if n) * dtype.itemsize >= 2**62:
        raise FileFormatError(f"an impossible shape, {shape}", argument=name)
    return shape, fortran, dtype


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def read_npy(stream: BinaryIO, size: int, name: str) -> np.ndarray:
    """One array in .npy format that fills ``size`` bytes from the start of ``stream``.

    Args:
      stream: at the first byte of the array.
      size: bytes of header and data together.
      name: what errors call the source.

    Returns:
      Array of bool, integer, float (up to 64 bits), complex (up to 128) or string dtype, 64-byte aligned.

    Raises:
      FileFormatError: object, structured or void dtype, a malformed header, or data that do not fill ``size`` exactly.
    """
    start = stream.tell()
    shape, fortran, dtype = _header(stream, name)
    expected, left = math.prod(shape) * dtype.itemsize, size - (stream.tell() - start)
    if expected != left:
        what = "truncated" if left < expected else "followed by something else"
        raise FileFormatError(
            f"{what}: shape {shape} of {dtype} takes {expected} bytes, {left} are there", argument=name
        )
    array = aligned_empty(shape[::-1] if fortran else shape, dtype)
    memory, filled = array.reshape(-1).view(np.uint8).data, 0
    while filled < expected:
        got = stream.readinto(memory[filled : filled + _CHUNK])  # type: ignore[attr-defined]
        if not got:
            raise FileFormatError(f"truncated: {filled} of {expected} data bytes", argument=name)
        filled += got
    stream.read(1)  # reaching the end of a zip member is what checks its CRC
    if dtype.kind == "b" and expected and array.view(np.uint8).max() > 1:
        raise FileFormatError("a bool array with bytes other than 0 and 1", argument=name)
    if fortran:
        array = _aligned_copy(array.transpose())
    return array if dtype.isnative else _aligned_copy(array.astype(dtype.newbyteorder("=")))


def _aligned_copy(array: np.ndarray) -> np.ndarray:
    out = aligned_empty(array.shape, array.dtype)
    out[...] = array
    return out


def npz_loaders(stream: BinaryIO, name: str, max_bytes: int) -> dict[str, Callable[[], np.ndarray]]:
    """By array name, a function that reads that member of a .npz; the whole directory is checked here, first.

    Args:
      stream: the seekable zip file; it has to stay open while the functions are used.
      name: what errors call the file.
      max_bytes: limit on the decompressed sizes of all members together.

    Returns:
      Loaders by array name, in the order of the file.

    Raises:
      FileFormatError: not a zip file, members with paths in their names, duplicates, members that are no .npy, other
        compression than numpy's, encryption, or more than ``max_bytes`` in all.
    """
    try:
        archive = zipfile.ZipFile(stream)
    except Exception as error:  # BadZipFile, and what a hostile directory makes struct and decode raise
        raise FileFormatError(f"not a readable .npz (zip) file: {_first_line(error)}", argument=name) from None
    members = archive.infolist()
    if len(members) > _MAX_MEMBERS:
        raise FileFormatError(f"{len(members)} members, more than {_MAX_MEMBERS}", argument=name)
    loaders: dict[str, Callable[[], np.ndarray]] = {}
    for info in members:
        key = info.filename.removesuffix(".npy")
        if key == info.filename or not key or any(c in key for c in "/\\\0") or ".." in key:
            raise FileFormatError(f"member {info.filename!r} is not a plain <name>.npy", argument=name)
        if key in loaders:
            raise FileFormatError(f"array {key!r} is there twice", argument=name)
        if info.flag_bits & 0x1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise FileFormatError(
                f"array {key!r} is encrypted or compressed by another method than deflate", argument=name
            )
        loaders[key] = _member_loader(archive, info, f"{name}[{key}]")
    total = sum(info.file_size for info in members)
    if total > max_bytes:
        raise FileFormatError(
            f"{total} bytes once decompressed, more than the limit of {max_bytes} (max_bytes)", argument=name
        )
    return loaders


def _member_loader(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> Callable[[], np.ndarray]:
    def load() -> np.ndarray:
        try:
            with archive.open(info) as member:
                return read_npy(member, info.file_size, name)  # type: ignore[arg-type]
        except FileFormatError:
            raise
        except Exception as error:  # bad CRC, zlib errors, offsets outside the file, a second entry in disguise
            raise FileFormatError(f"damaged: {_first_line(error)}", argument=name) from None

    return load
