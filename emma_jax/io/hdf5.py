"""HDF5 files: named datasets -> NumPy arrays, whole or a slice of the first axis at a time.

Goal: arrays out of a file that a stranger wrote, and out of that file alone. Nothing outside it is ever opened:
external links, datasets whose bytes lie in other files, and virtual datasets of other files are refused by looking at
the link or the layout before the object is touched. Object and variable-length types are refused, as are filters that
HDF5 would load as plug-ins, and sizes are checked before memory is taken.

Complex numbers may be a compound of two floats (``r``/``i``, ``re``/``im`` or ``real``/``imag``) or HDF5's own complex
type. Arrays come back in native byte order and 64-byte aligned, which JAX on a CPU takes without a copy.

h5py is imported on first use; it is in the extra ``em``.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emma_jax.errors import FileFormatError
from emma_jax.io.arrays import aligned_empty
from emma_jax.io.sources import MAX_BYTES

__all__ = ["Hdf5Reader", "open_hdf5", "read_hdf5", "read_hdf5_slices"]

_MAX_OBJECTS = 65536
_MAX_LINKS = 32
_COMPLEX_FIELDS = (("r", "i"), ("re", "im"), ("real", "imag"))
# deflate, shuffle, fletcher32, szip, nbit, scaleoffset, and h5py's own lzf; any other would be loaded as a plug-in
_BUILTIN_FILTERS = {1, 2, 3, 4, 5, 6, 32000}


class _MissingDataset(FileFormatError):
    """There is no dataset of that name."""


class Hdf5Reader:
    """Datasets of one open file; made by `open_hdf5`. Names are paths without the leading slash."""

    def __init__(self, file: Any, name: str, max_bytes: int) -> None:
        self._file, self._name, self._max_bytes = file, name, max_bytes
        self._known: dict[str, Any] = {}

    def _fail(self, message: str) -> FileFormatError:
        return FileFormatError(message, argument=self._name)

    def names(self, *, strict: bool = False) -> tuple[str, ...]:
        """Names of all datasets reached by hard links, sorted.

        Args:
          strict: raise on a link that leads out of the file; by default such links are left out.

        Raises:
          FileFormatError: an external link where ``strict``, more than 65,536 objects, or a damaged file.
        """
        with _typed(self._name):
            return self._names(strict)

    def _names(self, strict: bool) -> tuple[str, ...]:
        import h5py

        found: list[str] = []
        stack: list[tuple[str, Any, tuple[Any, ...]]] = [("", self._file["/"], ())]
        n_objects = 0
        while stack:
            prefix, group, above = stack.pop()
            here = _address(group)
            if here in above:  # a hard link back to a parent
                continue
            for key in group:
                n_objects += 1
                if n_objects > _MAX_OBJECTS:
                    raise self._fail(f"more than {_MAX_OBJECTS} objects")
                path = prefix + key
                link = group.get(key, getlink=True)
                if isinstance(link, h5py.ExternalLink) and strict:
                    raise self._fail(f"{path!r} is an external link, to {link.filename!r}; links are not followed")
                if not isinstance(link, h5py.HardLink):
                    continue
                item = group[key]
                if isinstance(item, h5py.Group):
                    stack.append((f"{path}/", item, (*above, here)))
                elif isinstance(item, h5py.Dataset):
                    found.append(path)
        return tuple(sorted(found))

    def _resolve(self, name: str) -> Any:
        """The dataset of that name; every link on the way is looked at before it is followed."""
        import h5py

        parts = [p for p in name.split("/") if p not in ("", ".")]
        node, budget = self._file["/"], _MAX_LINKS
        while parts:
            part = parts.pop(0)
            if not isinstance(node, h5py.Group) or part == ".." or part not in node.keys():  # noqa: SIM118
                raise self._missing(name)
            link = node.get(part, getlink=True)
            if isinstance(link, h5py.SoftLink):
                budget -= 1
                if budget < 0:
                    raise self._fail(f"{name!r}: too many soft links")
                target = [p for p in link.path.split("/") if p not in ("", ".")]
                parts = target + parts
                node = self._file["/"] if link.path.startswith("/") else node
            elif isinstance(link, h5py.HardLink):
                node = node[part]
            else:
                raise self._fail(f"{name!r} leads out of the file (an external link); links are not followed")
        if not isinstance(node, h5py.Dataset):
            raise self._missing(name)
        return node

    def _missing(self, name: str) -> _MissingDataset:
        there = self.names()
        listed = ", ".join(there[:20]) + (f" and {len(there) - 20} more" if len(there) > 20 else "")
        return _MissingDataset(f"no dataset {name!r}; the file holds {listed or 'none'}", argument=self._name)

    def _dataset(self, name: str) -> Any:
        if name not in self._known:
            with _typed(self._name, name):
                self._known[name] = self._checked(self._resolve(name), name)
        return self._known[name]

    def _checked(self, dataset: Any, name: str) -> Any:
        """The dataset, if its data lie in this file, in a form that is read here."""
        if dataset.external is not None:
            raise self._fail(f"{name!r} keeps its data in another file, {dataset.external[0][0]!r}")
        if dataset.is_virtual and any(source.file_name != "." for source in dataset.virtual_sources()):
            raise self._fail(f"{name!r} is a virtual dataset over other files")
        if dataset.shape is None:
            raise self._fail(f"{name!r} is empty (a null dataspace)")
        plist = dataset.id.get_create_plist()
        filters = {plist.get_filter(k)[0] for k in range(plist.get_nfilters())}
        if not filters <= _BUILTIN_FILTERS:
            raise self._fail(f"{name!r} needs a filter plug-in ({sorted(filters - _BUILTIN_FILTERS)})")
        _target_dtype(dataset.dtype, self._name)
        if dataset.chunks is not None:
            self._check_chunks(dataset, name, filters)
        return dataset

    def _check_chunks(self, dataset: Any, name: str, filters: set[int]) -> None:
        """Sizes and places of the stored chunks: libhdf5 crashes on some impossible ones, for example on empty ones."""
        plain = math.prod(dataset.chunks) * dataset.dtype.itemsize
        least, most = (5 if 3 in filters else 1, 2 * plain + 4096) if filters else (plain, plain)
        end = os.path.getsize(self._name)

        def visit(chunk: Any) -> bool | None:
            wrong = not least <= chunk.size <= most or chunk.byte_offset is None or chunk.byte_offset + chunk.size > end
            return True if wrong else None  # anything but None ends the iteration

        if dataset.id.chunk_iter(visit):
            raise self._fail(f"{name!r} is damaged: a chunk of impossible size or place")

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a dataset."""
        return tuple(self._dataset(name).shape)

    def dtype(self, name: str) -> np.dtype[Any]:
        """Dtype that `read` gives for a dataset."""
        return _target_dtype(self._dataset(name).dtype, self._name)

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and self._dataset(name) is not None
        except _MissingDataset:
            return False

    def read(self, name: str, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """A dataset, or rows ``start:stop`` of its first axis, as an aligned array in native byte order.

        Raises:
          FileFormatError: no such dataset (the message lists those there are), a refused layout or dtype, damaged
            data, or more than the file's ``max_bytes`` in this read.
        """
        dataset = self._dataset(name)
        shape = tuple(dataset.shape)
        if shape:
            start, stop, _ = slice(start, stop).indices(shape[0])
            shape = (max(stop - start, 0), *shape[1:])
        stored = dataset.dtype.newbyteorder("=")
        target = _target_dtype(stored, self._name)
        nbytes = math.prod(shape) * max(stored.itemsize, target.itemsize)
        if nbytes > self._max_bytes:
            raise self._fail(f"{name!r} has {nbytes} bytes, more than the limit of {self._max_bytes} (max_bytes)")
        out = aligned_empty(shape, stored)
        if out.size:
            with _typed(self._name, name):
                dataset.read_direct(out, source_sel=np.s_[start:stop] if shape else None)
        if target.kind == "b" and out.size and out.view(np.uint8).max() > 1:
            raise self._fail(f"{name!r}: a bool that is neither 0 nor 1")
        return _as_complex(out, target) if stored.names else out

    def read_all(self, names: Iterable[str]) -> dict[str, NDArray[Any]]:
        """Several datasets; ``max_bytes`` bounds their sum."""
        names = tuple(names)
        nbytes = sum(math.prod(self.shape(name)) * self.dtype(name).itemsize for name in names)
        if nbytes > self._max_bytes:
            raise self._fail(f"{nbytes} bytes in {len(names)} datasets, more than the limit of {self._max_bytes}")
        return {name: self.read(name) for name in names}


def _address(item: Any) -> tuple[int, int]:
    """What tells two objects apart, however they are reached."""
    import h5py

    info = h5py.h5o.get_info(item.id)
    return info.fileno, info.addr


def _target_dtype(stored: np.dtype[Any], name: str) -> np.dtype[Any]:
    """Dtype that a stored dtype is read as."""
    if stored.names:
        fields = [stored[field] for field in stored.names]
        if (
            tuple(n.lower() for n in stored.names) in _COMPLEX_FIELDS
            and fields[0] == fields[1]
            and fields[0].kind == "f"
            and fields[0].itemsize <= 8
        ):
            return np.dtype(np.complex128 if fields[0].itemsize == 8 else np.complex64)
    elif stored.subdtype is None and not stored.hasobject:
        limit = {"b": 1, "i": 8, "u": 8, "f": 8, "c": 16, "S": 2**16}.get(stored.kind, 0)
        if 0 < stored.itemsize <= limit:
            return stored.newbyteorder("=")
    kind = "variable-length or object" if stored.hasobject else "this"
    raise FileFormatError(f"arrays of {kind} type ({stored}) are not read here", argument=name)


def _as_complex(out: NDArray[Any], target: np.dtype[Any]) -> NDArray[Any]:
    """A compound of real and imaginary part as a complex array; a view where the two lie packed."""
    names = out.dtype.names or ()
    part = out.dtype[names[0]]
    offsets = [out.dtype.fields[n][1] for n in names]  # type: ignore[index]
    if out.dtype.itemsize == target.itemsize and offsets == [0, part.itemsize]:
        return out.view(target)
    result = aligned_empty(out.shape, target)
    result.real, result.imag = out[names[0]], out[names[1]]
    return result


@contextmanager
def _typed(name: str, dataset: str = "") -> Iterator[None]:
    """h5py's exceptions, of many types, as a `FileFormatError`."""
    try:
        yield
    except FileFormatError:
        raise
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        what = f"dataset {dataset!r} cannot be read" if dataset else "not a readable HDF5 file"
        raise FileFormatError(f"{what}: {reason}", argument=name) from error


@contextmanager
def open_hdf5(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> Iterator[Hdf5Reader]:
    """Open a file for reading; a context manager.

    Args:
      path: the file.
      max_bytes: limit on the decompressed bytes of one `Hdf5Reader.read`, and of all of one `read_hdf5`.

    Yields:
      An `Hdf5Reader`.

    Raises:
      FileFormatError: no HDF5 file, or a damaged one; no regular file.
      OSError: the path cannot be opened.
      ImportError: h5py is not installed.
    """
    try:
        import h5py
    except ImportError as error:
        raise ImportError("reading HDF5 needs h5py: pip install 'emma-jax[em]'") from error
    name = os.fspath(path)
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise FileFormatError("not a regular file", argument=name)
    with open(path, "rb"):  # a permission error is an OSError, not a matter of format
        pass
    with _typed(name):
        # No locking: results are read from read-only and network file systems too.
        file = h5py.File(path, "r", locking=False)
    with file:
        yield Hdf5Reader(file, name, max_bytes)


def read_hdf5(
    path: str | os.PathLike[str], *, keys: Iterable[str] | None = None, max_bytes: int = MAX_BYTES
) -> dict[str, NDArray[Any]]:
    """Datasets of an HDF5 file by name.

    Args:
      path: the file.
      keys: names such as ``"fields/E"``; soft links within the file are followed for them. None reads every dataset.
      max_bytes: limit on the decompressed bytes in all.

    Returns:
      Arrays by name, aligned, in native byte order.

    Raises:
      FileFormatError: naming the file and the dataset: not there (with the names that are), an external link or
        storage, an object or variable-length type, a filter plug-in, damaged data, too large.
      OSError: the path cannot be opened.
    """
    with open_hdf5(path, max_bytes=max_bytes) as reader:
        return reader.read_all(reader.names(strict=True) if keys is None else keys)


def read_hdf5_slices(
    path: str | os.PathLike[str], key: str, *, rows: int, max_bytes: int = MAX_BYTES
) -> Iterator[NDArray[Any]]:
    """A dataset in blocks of at most ``rows`` rows of its first axis, in order; one block is in memory at a time.

    Args:
      path: the file.
      key: name of the dataset.
      rows: rows in a block; a multiple of the dataset's chunk length avoids unpacking a chunk twice.
      max_bytes: limit on the bytes of one block.

    Yields:
      Arrays [<= rows, ...].

    Raises:
      FileFormatError: as `read_hdf5`; a scalar dataset.
      ValueError: ``rows`` below 1.
    """
    if rows < 1:
        raise ValueError(f"rows must be at least 1, not {rows}")
    with open_hdf5(path, max_bytes=max_bytes) as reader:
        shape = reader.shape(key)
        if not shape:
            raise FileFormatError(f"{key!r} is a single value, it has no rows", argument=os.fspath(path))
        for start in range(0, shape[0], rows):
            yield reader.read(key, start, start + rows)
