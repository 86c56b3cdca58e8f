"""Boards on disk: where they lie, and one of them as arrays.

A data set has the groups ``public``, ``private_standard`` and ``private_challenge``, as folders under its root or under
``v0``. A group holds its boards in one of two ways:

- a folder per board, ``boards/<id>/near_field.h5`` and ``boards/<id>/sparams.h5``, as the public data have it (the
  level ``boards`` may be missing, the file names are in the key map);
- files per board, named by its id: ``<id>.npz`` or ``<id>.h5`` with fields, S-parameters or both, and ``<id>.sNp`` or
  ``<id>.ts`` with S-parameters.

``checksums.json`` next to ``boards``, in ``v0`` or in the root maps paths, relative to the folder it lies in, to their
SHA-256; what it lists has to be there, and what is read has to be listed.

Symbolic links are followed: download caches consist of them.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emma_jax.emval.keymap import FREQUENCY_UNITS, LENGTH_UNITS, FieldKeys, KeyMap, SParameterKeys
from emma_jax.emval.sparams import reference_impedance
from emma_jax.errors import FileFormatError, ShapeError
from emma_jax.io.arrays import aligned_empty, npz_loaders
from emma_jax.io.hdf5 import open_hdf5
from emma_jax.io.sources import MAX_BYTES, open_source
from emma_jax.io.strict import loads_strict
from emma_jax.io.touchstone import read_touchstone

__all__ = [
    "GROUPS",
    "BoardFiles",
    "Fields",
    "SParameters",
    "find_boards",
    "is_touchstone",
    "read_fields",
    "read_positions",
    "read_sparams",
    "sha256",
]

GROUPS = ("public", "private_standard", "private_challenge")
_ARRAYS = (".npz", ".h5", ".hdf5")
_TOUCHSTONE = re.compile(r"\.(s\d+p|ts)\Z", re.IGNORECASE)
_CHECKSUMS = "checksums.json"
_MAX_CHECKSUMS = 1 << 28


@dataclass(frozen=True)
class BoardFiles:
    """The files of one board. A truth file that ``checksums.json`` lists is named here even if it is not there.

    Attributes:
      group: one of `GROUPS`.
      id: name of the board.
      near_field: file with the fields, None where there is none.
      sparams: file with the S-parameters; may be the same one.
      checksums: SHA-256 by path, for those of the two that ``checksums.json`` lists; None without such a file.
    """

    group: str
    id: str
    near_field: Path | None
    sparams: Path | None
    checksums: Mapping[Path, str] | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """What messages call the board."""
        return f"{self.group}/{self.id}" if self.group else self.id


@dataclass(frozen=True, eq=False)
class Fields:
    """Near fields of one board.

    Attributes:
      e: [J, F, P, 3] complex electric field: excited port, frequency, probe, component.
      h: the magnetic field, likewise.
      frequency_hz: [F] hertz, None where the file does not say.
      where: [J, F, P] bool, False where a probe is not to be scored, or None.
    """

    e: NDArray[Any]
    h: NDArray[Any]
    frequency_hz: NDArray[np.float64] | None = None
    where: NDArray[np.bool_] | None = None


@dataclass(frozen=True, eq=False)
class SParameters:
    """S-parameters of one board.

    Attributes:
      s: [F, i, j] complex, receiving port i, excited port j.
      frequency_hz: [F] hertz, None where the file does not say.
      z0: [i] or [F, i] reference resistances in ohms, None where the file does not say.
      where: [F, i, j] bool, False where an entry is not to be scored, or None.
    """

    s: NDArray[Any]
    frequency_hz: NDArray[np.float64] | None = None
    z0: NDArray[np.float64] | None = None
    where: NDArray[np.bool_] | None = None


# --- where boards lie ------------------------------------------------------------------------------------------------


def find_boards(
    root: str | os.PathLike[str], key_map: KeyMap, groups: Sequence[str] = GROUPS
) -> dict[tuple[str, str], BoardFiles]:
    """All boards under a root.

    Args:
      root: folder of a data set, or of one group.
      key_map: names of the files in the folder of a board.
      groups: groups to look for, in the order wanted.

    Returns:
      `BoardFiles` by (group, id), by group and then by id.

    Raises:
      FileFormatError: no such folder, no group in it, two files that claim the same quantity of a board, or a
        malformed ``checksums.json``.
    """
    boards: dict[tuple[str, str], BoardFiles] = {}
    for group, folder in _group_folders(Path(root), groups).items():
        inside = folder / "boards" if (folder / "boards").is_dir() else folder
        sums = _checksums((folder, folder.parent, Path(root)))
        kinds: dict[str, dict[str, Path]] = {}
        for parts in sorted(_on_disk(inside, key_map) | _listed(inside, sums or {})):
            if (board_kind := _kind(parts, key_map)) is None:
                continue
            board, kind = board_kind
            files = kinds.setdefault(board, {})
            clash = next((f for k, f in files.items() if k == kind or (k in _IN_FOLDER) != (kind in _IN_FOLDER)), None)
            if clash is not None:
                what = f"{clash.relative_to(inside)} and {'/'.join(parts)} both hold board {board!r}"
                raise FileFormatError(what, argument=str(inside))
            files[kind] = inside.joinpath(*parts)
        for board, files in sorted(kinds.items()):
            near_field = files.get("near_field", files.get("arrays"))
            # An array file may hold fields alone; a Touchstone file next to it says what it holds.
            sparams = files.get("sparams", files.get("touchstone", files.get("arrays")))
            listed = None if sums is None else {p: sums[p] for p in files.values() if p in sums}
            boards[group, board] = BoardFiles(group, board, near_field, sparams, listed)
    return boards


_IN_FOLDER = ("near_field", "sparams")


def _group_folders(root: Path, groups: Sequence[str]) -> dict[str, Path]:
    """Folder by group, of those groups that are there."""
    if not root.is_dir():
        raise FileFormatError("there is no such folder", argument=str(root))
    places = {g: [p for p in (root / g, root / "v0" / g) if p.is_dir()] for g in groups}
    for group, found in places.items():
        if len(found) > 1:
            raise FileFormatError(f"holds {group} and v0/{group}", argument=str(root))
    folders = {group: found[0] for group, found in places.items() if found}
    if not folders and root.name in groups:
        return {root.name: root}
    if not folders:
        raise FileFormatError(f"holds none of the groups {', '.join(groups)}, nor v0 with one", argument=str(root))
    return folders


def _on_disk(inside: Path, key_map: KeyMap) -> set[tuple[str, ...]]:
    """Paths of possible board files, as parts below ``inside``."""
    found: set[tuple[str, ...]] = set()
    with os.scandir(inside) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                names = {key_map.near_field.file, key_map.sparams.file}
                found |= {(entry.name, n) for n in names if os.path.isfile(os.path.join(entry.path, n))}
            else:
                found.add((entry.name,))
    return found


def _listed(inside: Path, sums: Mapping[Path, str]) -> set[tuple[str, ...]]:
    return {p.relative_to(inside).parts for p in sums if p.is_relative_to(inside)}


def _kind(parts: tuple[str, ...], key_map: KeyMap) -> tuple[str, str] | None:
    """Board and kind of a file, None for a file that is none of a board's."""
    if len(parts) == 2:
        if parts[1] == key_map.near_field.file:
            return parts[0], "near_field"
        return (parts[0], "sparams") if parts[1] == key_map.sparams.file else None
    if len(parts) != 1:
        return None
    stem, suffix = os.path.splitext(parts[0])
    if suffix.lower() in _ARRAYS:
        return stem, "arrays"
    return (stem, "touchstone") if _TOUCHSTONE.match(suffix) else None


def is_touchstone(path: Path) -> bool:
    """Whether the suffix is one of Touchstone files."""
    return _TOUCHSTONE.match(path.suffix) is not None


def _checksums(folders: Sequence[Path]) -> dict[Path, str] | None:
    """SHA-256 by path from every ``checksums.json`` in these folders, None if there is none."""
    files = [f / _CHECKSUMS for f in dict.fromkeys(folders) if (f / _CHECKSUMS).is_file()]
    sums: dict[Path, str] = {}
    for file in files:
        with open_source(file, str(file), _MAX_CHECKSUMS) as (stream, _):
            content = loads_strict(stream.read(), str(file))
        if not isinstance(content, dict):
            raise FileFormatError("has to be one object of path: sha256", argument=str(file))
        for path, digest in content.items():
            parts = path.split("/")
            if "" in parts or "." in parts or ".." in parts or "\\" in path:
                raise FileFormatError(f"{path[:200]!r} is not a plain relative path", argument=str(file))
            if not isinstance(digest, str) or not re.fullmatch("[0-9a-fA-F]{64}", digest):
                raise FileFormatError(f"no SHA-256 for {path[:200]!r}", argument=str(file))
            sums[file.parent.joinpath(*parts)] = digest.lower()
    return sums if files else None


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# --- what a file holds -----------------------------------------------------------------------------------------------


class _Source:
    """Arrays of one open file by name."""

    def __init__(self, name: str, names: Callable[[], Sequence[str]], has: Callable[[str], bool], read: Any) -> None:
        self.name, self._names, self._has, self._read = name, names, has, read

    def get(self, key: str, what: str) -> NDArray[Any]:
        """The array of that name, an error with the names there are otherwise."""
        if not self._has(key):
            names = self._names()
            there = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
            raise FileFormatError(
                f"no dataset {key!r} for {what}; the file holds {there or 'none'}. A key map says what is what",
                argument=self.name,
            )
        array: NDArray[Any] = self._read(key)
        return array

    def optional(self, key: str, what: str) -> NDArray[Any] | None:
        """As `get`; None for an empty name, or one that ends in a question mark and is not there."""
        name = key.removesuffix("?")
        if not name or (name != key and not self._has(name)):
            return None
        return self.get(name, what)


@contextmanager
def _open(path: Path, max_bytes: int) -> Iterator[_Source]:
    name = str(path)
    if path.suffix.lower() == ".npz":
        with open_source(path, name, max_bytes) as (stream, _):
            loaders = npz_loaders(stream, name, max_bytes)
            yield _Source(name, lambda: list(loaders), loaders.__contains__, lambda key: loaders[key]())
    else:
        with open_hdf5(path, max_bytes=max_bytes) as reader:
            yield _Source(name, reader.names, reader.__contains__, reader.read)


def read_fields(path: Path, keys: FieldKeys, *, max_bytes: int = MAX_BYTES) -> Fields:
    """Near fields of one board.

    Args:
      path: a .npz or HDF5 file.
      keys: its names and axes.
      max_bytes: limit on the decompressed bytes.

    Returns:
      `Fields`; arrays are aligned and contiguous, complex64 or complex128 as stored.

    Raises:
      FileFormatError: a dataset that is not there or not complex, wrong numbers of axes or components, a damaged file.
      OSError: the path cannot be opened.
    """
    with _open(path, max_bytes) as source:
        e, h = (_complex(source, names, keys.axes, "JFPC", what) for what, names in (("E", keys.E), ("H", keys.H)))
        frequency = _frequency(source, keys.frequency, keys.frequency_unit, e.shape[1])
        where = _where(source, keys.where, keys.axes, "JFP", e.shape[:3])
    for what, field_ in (("E", e), ("H", h)):
        if field_.shape[3] != 3:
            raise FileFormatError(f"{what} has {field_.shape[3]} components, not 3", argument=str(path))
    return Fields(e, h, frequency, where)


def read_positions(
    path: Path, keys: FieldKeys, probes: int, *, max_bytes: int = MAX_BYTES
) -> NDArray[np.float64] | None:
    """Where the probes of one board are. No metric needs it, so scoring does not read it.

    Args:
      path: a .npz or HDF5 file.
      keys: its names.
      probes: P.
      max_bytes: limit on the decompressed bytes.

    Returns:
      [P, 3] meters, None where the file does not say.

    Raises:
      FileFormatError: a dataset that is not [P, 3] finite numbers, or one the key map insists on that is not there.
      OSError: the path cannot be opened.
    """
    with _open(path, max_bytes) as source:
        array = source.optional(keys.position, "position")
    if array is None:
        return None
    if array.dtype.kind not in "iuf" or array.shape != (probes, 3) or not np.isfinite(array).all():
        raise FileFormatError(
            f"{keys.position.removesuffix('?')!r} is {array.dtype}{list(array.shape)}, not [{probes}, 3] coordinates",
            argument=str(path),
        )
    return array.astype(np.float64) * LENGTH_UNITS[keys.position_unit]


def read_sparams(path: Path, keys: SParameterKeys, *, max_bytes: int = MAX_BYTES) -> SParameters:
    """S-parameters of one board.

    Args:
      path: a Touchstone, .npz or HDF5 file.
      keys: names and axes, for the latter two.
      max_bytes: limit on the (decompressed) bytes.

    Returns:
      `SParameters`.

    Raises:
      FileFormatError, OSError: as `read_fields` and `read_touchstone`.
      EvaluationError: reference impedances that contradict each other.
    """
    if is_touchstone(path):
        data = read_touchstone(path, max_bytes=max_bytes)
        return SParameters(data.s, data.frequency_hz, reference_impedance(data))
    with _open(path, max_bytes) as source:
        s = _complex(source, keys.S, keys.axes, "FIJ", "S")
        frequency = _frequency(source, keys.frequency, keys.frequency_unit, s.shape[0])
        z0 = source.optional(keys.z0, "z0")
        where = _where(source, keys.where, keys.axes, "FIJ", s.shape)
    if z0 is not None:
        if z0.shape not in ((), (1,), s.shape[1:2], s.shape[:2]):
            raise FileFormatError(f"z0 has shape {list(z0.shape)} for S {list(s.shape)}", argument=str(path))
        z0 = np.broadcast_to(z0, s.shape[:2] if z0.ndim == 2 else s.shape[1:2])
    return SParameters(s, frequency, z0, where)


def _complex(source: _Source, names: Sequence[str], axes: str, wanted: str, what: str) -> NDArray[Any]:
    """A quantity as one complex array with the axes ``wanted``, from one dataset or several."""
    if len(names) <= 2:
        return _plane(source, names, axes, wanted, what)
    each = len(names) // 3
    out: NDArray[Any] | None = None
    for component in range(3):
        part = _plane(source, names[each * component : each * (component + 1)], axes, wanted.replace("C", ""), what)
        if out is None:
            out = aligned_empty((*part.shape, 3), part.dtype)
        if part.shape != out.shape[:-1]:
            raise FileFormatError(f"components of {what} differ in shape", argument=source.name)
        out[..., component] = part
    assert out is not None
    return out


def _plane(source: _Source, names: Sequence[str], axes: str, wanted: str, what: str) -> NDArray[Any]:
    """One dataset, or two as real and imaginary part, with its axes in the order ``wanted``."""
    array = source.get(names[0], what)
    if array.ndim != len(axes):
        raise FileFormatError(
            f"{names[0]!r} has {array.ndim} axes, the key map says {axes} for {what}", argument=source.name
        )
    if len(names) == 2:
        array = _joined(array, source.get(names[1], what), names, source.name)
    elif "R" in axes:
        array, axes = (
            _from_planes(np.moveaxis(array, axes.index("R"), -1), names[0], source.name),
            axes.replace("R", ""),
        )
    elif array.dtype.kind != "c":
        raise FileFormatError(
            f"{names[0]!r} is {array.dtype}, not complex; name real and imaginary part, or an axis R",
            argument=source.name,
        )
    return _ordered(array, axes, wanted)


def _ordered(array: NDArray[Any], axes: str, wanted: str) -> NDArray[Any]:
    """Axes reordered; a copy only where the order in memory changes."""
    turned = array.transpose([axes.index(a) for a in wanted])
    if turned.flags.c_contiguous:
        return turned
    out = aligned_empty(turned.shape, turned.dtype)
    out[...] = turned
    return out


def _joined(re_part: NDArray[Any], im_part: NDArray[Any], names: Sequence[str], name: str) -> NDArray[Any]:
    if re_part.shape != im_part.shape or re_part.dtype.kind != "f" or im_part.dtype.kind != "f":
        raise FileFormatError(f"{' and '.join(names)} are not floats of one shape", argument=name)
    out = aligned_empty(re_part.shape, np.result_type(re_part, im_part, np.complex64))
    out.real, out.imag = re_part, im_part
    return out


def _from_planes(array: NDArray[Any], what: str, name: str) -> NDArray[Any]:
    if array.dtype.kind != "f" or array.shape[-1] != 2:
        raise FileFormatError(
            f"{what!r}: the axis R holds two floats, not {array.shape[-1]} {array.dtype}", argument=name
        )
    if array.flags.c_contiguous and array.itemsize >= 4:
        return array.view(np.result_type(array, np.complex64))[..., 0]
    return _joined(array[..., 0], array[..., 1], (what, what), name)


def _frequency(source: _Source, key: str, unit: str, n: int) -> NDArray[np.float64] | None:
    array = source.optional(key, "frequency")
    if array is None:
        return None
    if array.dtype.kind not in "iuf" or array.shape != (n,) or not np.isfinite(array).all():
        raise FileFormatError(
            f"{key.removesuffix('?')!r} is {array.dtype}{list(array.shape)}, not {n} frequencies", argument=source.name
        )
    return array.astype(np.float64) * FREQUENCY_UNITS[unit.lower()]


def _where(source: _Source, key: str, axes: str, wanted: str, shape: tuple[int, ...]) -> NDArray[np.bool_] | None:
    array = source.optional(key, "where")
    if array is None:
        return None
    kept = "".join(a for a in axes if a in wanted)
    bad = array.dtype.kind not in "biu" or array.ndim != len(kept) or (array.dtype.kind != "b" and np.any(array > 1))
    mask = array if bad else array.transpose([kept.index(a) for a in wanted]).astype(np.bool_)
    if bad or mask.shape != shape:
        raise FileFormatError(
            f"{key.removesuffix('?')!r} is {array.dtype}{list(array.shape)}, not bool for {list(shape)}",
            argument=source.name,
        )
    return mask


# --- two of them, compared -------------------------------------------------------------------------------------------


def require_same_frequencies(
    truth: NDArray[np.float64] | None, pred: NDArray[np.float64] | None, what: str, *, rtol: float = 1e-9
) -> bool:
    """Whether both sides state their frequencies; they then have to agree up to rounding.

    Raises:
      ShapeError: naming the first frequency that differs.
    """
    if truth is None or pred is None:
        return False
    if truth.shape != pred.shape:
        raise ShapeError(f"frequency grids differ: {pred.size} points, the truth has {truth.size}", argument=what)
    bad = ~(np.abs(truth - pred) <= rtol * np.abs(truth))
    if bad.any():
        k = int(np.argmax(bad))
        raise ShapeError(
            f"frequency grids differ: {pred[k]:.12g} Hz, the truth has {truth[k]:.12g} Hz",
            argument=what,
            count=int(bad.sum()),
            index=k,
        )
    return True


def require_same_shape(truth: NDArray[Any], pred: NDArray[Any], what: str) -> None:
    """Raises ShapeError unless both arrays have one shape."""
    if truth.shape != pred.shape:
        raise ShapeError(f"shape {list(pred.shape)}, the truth has {list(truth.shape)}", argument=what)
