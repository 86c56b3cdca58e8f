"""Prediction and label files of any format as arrays: .npz, .npy, .csv, .jsonl (and .h5 through `emma_jax.io.hdf5`).

Nothing is ever unpickled, and nothing is guessed: a file has to name what it holds (a bare .npy holds one array).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import Any

import numpy as np

from emma_jax.errors import EvaluationError, FileFormatError
from emma_jax.io.arrays import npz_loaders, read_npy
from emma_jax.io.sources import MAX_BYTES, Source, open_source, source_name
from emma_jax.io.tables import Loaders, csv_loaders, jsonl_loaders

__all__ = ["FORMATS", "Labels", "Predictions", "check_unique_ids", "read_arrays", "read_labels", "read_predictions"]

FORMATS = (".npz", ".npy", ".csv", ".jsonl")
"""Suffixes of the formats that a submission or a release may use."""

_BARE = "array"  # the name of the one array of a .npy file


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a prediction file holds.

    Attributes:
      preds: array [N,...], or a list of N strings.
      ids: N sample ids as strings, or None.
      name: what errors call the file.
      names: of everything in the file, read or not.
    """

    preds: Any
    ids: tuple[str, ...] | None
    name: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Labels:
    """What a label file holds.

    Attributes:
      labels: array [N,...], or a list of N strings or lists of strings.
      ids: N sample ids as strings, or None.
      where: bool array [N,...], False where a sample is not there, or None.
      groups: int64 array [N] of indices into ``group_names``, or None.
      group_names: the groups' names, sorted (numbers as numbers).
      name: what errors call the file.
      lengths: int array [N], how many leading time steps of each signal are there, or None.
    """

    labels: Any
    ids: tuple[str, ...] | None
    where: np.ndarray | None
    groups: np.ndarray | None
    group_names: tuple[str, ...]
    name: str
    lengths: np.ndarray | None = None


@contextmanager
def _loaders(source: Source, name: str, max_bytes: int) -> Iterator[Loaders]:
    suffix = PurePath(name).suffix.lower()
    if suffix in (".h5", ".hdf5"):
        if not isinstance(source, (str, os.PathLike)):
            raise FileFormatError("HDF5 is read from a path only", argument=name)
        from emma_jax.io.hdf5 import read_hdf5

        arrays = read_hdf5(os.fspath(source))
        yield {key: partial(arrays.__getitem__, key) for key in arrays}
        return
    if suffix not in FORMATS:
        raise FileFormatError(f"unknown suffix {suffix!r}; there are {', '.join(FORMATS)}, .h5", argument=name)
    with open_source(source, name, max_bytes) as (stream, size):
        if suffix == ".npz":
            yield npz_loaders(stream, name, max_bytes)
        elif suffix == ".npy":
            yield {_BARE: lambda: read_npy(stream, size, name)}
        elif suffix == ".csv":
            yield csv_loaders(stream, name)
        else:
            yield jsonl_loaders(stream, name)


def read_arrays(source: Source, *, name: str | None = None, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Everything in a file, by name.

    Args:
      source: a path, or the content of a file as bytes or a seekable binary stream.
      name: what errors call it; needed without a path, and its suffix tells the format.
      max_bytes: limit, in bytes, on the decompressed content.

    Returns:
      For .npz its arrays, for .npy ``{"array": ...}``, for .csv its columns (``pred_0 ..`` joined as ``pred`` [N,C]),
      for .jsonl its keys. Numbers are NumPy arrays, 64-byte aligned; text columns are lists.

    Raises:
      FileFormatError: naming the file (and line): an object array, a malformed or damaged file, more than
        ``max_bytes``.
      OSError: the path cannot be opened.
    """
    name = source_name(source, name)
    with _loaders(source, name, max_bytes) as loaders:
        return {key: load() for key, load in loaders.items()}


def read_predictions(
    source: Source, *, name: str | None = None, max_bytes: int = MAX_BYTES, unique_ids: bool = True
) -> Predictions:
    """Reads ``preds`` (or ``pred``) and, where they are there, ``ids`` (or ``id``).

    Args:
      source: a path, or the content of a file as bytes or a seekable binary stream.
      name: what errors call it; needed without a path, and its suffix tells the format.
      max_bytes: limit, in bytes, on the decompressed content.
      unique_ids: whether an id that is there twice is an error here.

    Returns:
      The predictions; other arrays of the file are not read.

    Raises:
      FileFormatError: as `read_arrays`; no predictions, or ids that do not fit them.
      OSError: the path cannot be opened.
    """
    name = source_name(source, name)
    with _loaders(source, name, max_bytes) as loaders:
        preds = _take(loaders, ("preds", "pred"), name)
        return Predictions(preds, _ids(loaders, len(preds), name, unique_ids), name, tuple(loaders))


def read_labels(
    source: Source, *, name: str | None = None, max_bytes: int = MAX_BYTES, unique_ids: bool = True
) -> Labels:
    """Reads ``labels`` (or ``label``, ``refs``), and ``ids``, ``where``, ``groups`` and ``lengths`` if they are there.

    Args:
      source: a path, or the content of a file as bytes or a seekable binary stream.
      name: what errors call it; needed without a path, and its suffix tells the format.
      max_bytes: limit, in bytes, on the decompressed content.
      unique_ids: whether an id that is there twice is an error here.

    Returns:
      The labels; other arrays of the file are not read. ``groups`` may be numbers or strings in the file.

    Raises:
      FileFormatError: as `read_arrays`; no labels, or ids, mask or groups that do not fit them.
      OSError: the path cannot be opened.
    """
    name = source_name(source, name)
    with _loaders(source, name, max_bytes) as loaders:
        labels = _take(loaders, ("labels", "label", "refs"), name)
        groups, group_names = _groups(loaders, len(labels), name)
        return Labels(
            labels=labels,
            ids=_ids(loaders, len(labels), name, unique_ids),
            where=_where(loaders, len(labels), name),
            groups=groups,
            group_names=group_names,
            name=name,
            lengths=_lengths(loaders, len(labels), name),
        )


def check_unique_ids(ids: Sequence[str], name: str, error: type[EvaluationError]) -> None:
    """Raises ``error``, listing the first ten, if an id is there twice."""
    if len(set(ids)) < len(ids):
        twice = [i for i, count in Counter(ids).items() if count > 1]
        raise error(f"{len(twice)} duplicate ids: {first_ten(twice)}", argument=name)


def first_ten(ids: Sequence[str]) -> str:
    """The first ten ids, quoted and cut to a readable length, and how many more there are."""
    shown = ", ".join(repr(i if len(i) <= 60 else i[:57] + "...") for i in ids[:10])
    return shown + (f" and {len(ids) - 10} more" if len(ids) > 10 else "")


def _take(loaders: Loaders, names: tuple[str, ...], name: str) -> Any:
    """The one array (or list) that goes by one of ``names``; the only array of a .npy."""
    found = [n for n in names if n in loaders]
    if not found and set(loaders) == {_BARE} and PurePath(name).suffix.lower() == ".npy":
        found = [_BARE]
    if len(found) != 1:
        there = ", ".join(map(repr, list(loaders)[:10])) or "nothing"
        what = (
            f"no {names[0]!r}; the file holds {there}"
            if not found
            else f"{' and '.join(map(repr, found))} are both there"
        )
        raise FileFormatError(what, argument=name)
    value = loaders[found[0]]()
    if isinstance(value, np.ndarray) and value.ndim == 0:
        raise FileFormatError(f"{found[0]!r} is a single value; the first axis has to be the samples", argument=name)
    return value


def _optional(loaders: Loaders, names: tuple[str, ...], n: int, name: str) -> Any:
    """As `_take`, or None if there is nothing by these names; its first axis must have length ``n``."""
    if not any(key in loaders for key in names):
        return None
    value = _take(loaders, names, name)
    if len(value) != n:
        raise FileFormatError(f"{len(value)} {names[0]} for {n} samples", argument=name)
    return value


def _ids(loaders: Loaders, n: int, name: str, unique: bool) -> tuple[str, ...] | None:
    values = _optional(loaders, ("ids", "id"), n, name)
    if values is None:
        return None
    if isinstance(values, np.ndarray) and (values.ndim != 1 or values.dtype.kind not in "iuUS"):
        raise FileFormatError(
            f"ids must be strings or integers [N], not {values.dtype}{list(values.shape)}", argument=name
        )
    try:
        ids = tuple(v.decode() if isinstance(v, bytes) else str(v) for v in _items(values))
        "".join(ids).encode()
    except (UnicodeError, ValueError):
        raise FileFormatError("ids that are not UTF-8 text", argument=name) from None
    if unique:
        check_unique_ids(ids, name, FileFormatError)
    return ids


def _items(values: np.ndarray | list[Any]) -> list[Any]:
    return values.tolist() if isinstance(values, np.ndarray) else values


def _where(loaders: Loaders, n: int, name: str) -> np.ndarray | None:
    value = _optional(loaders, ("where",), n, name)
    if value is None:
        return None
    if (
        not isinstance(value, np.ndarray)
        or value.dtype.kind not in "biu"
        or (value.dtype.kind != "b" and np.any(value > 1))
    ):
        raise FileFormatError("where must be bool (or 0 and 1)", argument=name)
    return value.astype(np.bool_)


def _lengths(loaders: Loaders, n: int, name: str) -> np.ndarray | None:
    value = _optional(loaders, ("lengths",), n, name)
    if value is not None and (not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype.kind not in "iu"):
        raise FileFormatError("lengths must be integers, one for each sample", argument=name)
    return value


def _groups(loaders: Loaders, n: int, name: str) -> tuple[np.ndarray | None, tuple[str, ...]]:
    value = _optional(loaders, ("groups", "group"), n, name)
    if value is None:
        return None, ()
    array = np.asarray(value)
    if (
        array.ndim != 1
        or array.dtype.kind not in "biufUS"
        or (array.dtype.kind == "f" and not np.isfinite(array).all())
    ):
        raise FileFormatError("groups must be one finite number or string for each sample", argument=name)
    names, codes = np.unique(array, return_inverse=True)
    try:
        texts = tuple(v.decode() if isinstance(v, bytes) else str(v) for v in names.tolist())
    except (UnicodeError, ValueError):
        raise FileFormatError("group names that are not UTF-8 text", argument=name) from None
    return codes.reshape(-1).astype(np.int64), texts
