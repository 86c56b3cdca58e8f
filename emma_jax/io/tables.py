"""CSV and JSON Lines: UTF-8 text, one sample a row, turned into arrays column by column.

CSV: a header row, commas, numbers. Columns ``pred_0 .. pred_{C-1}`` together are one array [N,C]. ``nan``, ``inf`` and
``-inf`` are numbers; complex numbers are not read. A column whose first value is no number is text.

JSON Lines: one object a line, strict JSON; the tokens NaN and Infinity are refused, the strings "nan", "inf" and "-inf"
stand for those numbers. A column of strings stays text (a list), nested lists of numbers become an array [N,...].

A byte order mark, CRLF and empty lines at the end are tolerated (in JSON Lines also in between: ids tell the rows
apart). Every error names the file and the line, counted from 1 as an editor does.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, BinaryIO, NoReturn, TypeAlias

import numpy as np

from emma_jax.checks import aligned_empty
from emma_jax.errors import FileFormatError
from emma_jax.io.strict import strict_decode

__all__ = ["csv_loaders", "jsonl_loaders"]

_ROWS_AT_ONCE = 2048  # so few that the garbage collector never walks them: twice as fast as 65,536
_JOINED = ("pred", "preds", "label", "labels")  # columns x_0 .. x_{C-1} of these are one array [N,C]
_NUMERIC = frozenset({*_JOINED, "where"})
_TEXT = frozenset({"id", "ids"})
_TRUTH = {"true": "1", "false": "0"}
_SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}

Loaders: TypeAlias = dict[str, Callable[[], Any]]


def _fail(name: str, line: int, message: str) -> NoReturn:
    raise FileFormatError(message, argument=f"{name}, line {line}")


@contextmanager
def _text(stream: BinaryIO, name: str) -> Iterator[io.TextIOWrapper]:
    """The stream as UTF-8 text with any line ending, left open at the end."""
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    try:
        yield text
    except UnicodeDecodeError as error:
        raise FileFormatError(f"not UTF-8 text: {error.reason}", argument=name) from None
    finally:
        text.detach()


# --- CSV ---------------------------------------------------------------------------------------------------------


def csv_loaders(stream: BinaryIO, name: str) -> Loaders:
    """By column name (``pred_0 ..`` joined as ``pred``), a function that gives the column as an array.

    Args:
      stream: the file, at its start.
      name: what errors call the file.

    Returns:
      Loaders by name: int64 [N] where every value is an integer, else float64 [N], or a list of strings; joined columns
      are float64 [N,C].

    Raises:
      FileFormatError: no header, a ragged row, an empty cell or row, a value that is no number, or not UTF-8.
    """
    with _text(stream, name) as text:
        rows = _csv_rows(text, name)
        line, header = next(rows, (1, []))
        names = [cell.strip() for cell in header]
        _check_header(names, name, line)
        layout = _layout(names, name)
        columns = _csv_columns(rows, names, name)
    return {key: partial(_joined, [columns[n] for n in members], members != [key]) for key, members in layout.items()}


def _csv_rows(text: io.TextIOWrapper, name: str) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of each row; empty rows only at the end, where they cannot hide a missing value."""
    reader = csv.reader(text, strict=True)
    empty = 0
    try:
        for row in reader:
            if not row:
                empty = empty or reader.line_num
            elif empty:
                _fail(name, empty, "an empty row; every sample needs a value")
            else:
                yield reader.line_num, row
    except csv.Error as error:
        _fail(name, reader.line_num, str(error))


def _check_header(names: list[str], name: str, line: int) -> None:
    if not names:
        raise FileFormatError("empty; a header row is needed, e.g. 'id,pred'", argument=name)
    if _numbers(names[:1]) is not None:
        _fail(name, line, "a header row is needed (e.g. 'id,pred'); this one starts with a number")
    if len(names) == 1 and re.search(r"[;\t|]", names[0]):
        _fail(name, line, "columns are separated by commas")
    if "" in names:
        _fail(name, line, f"column {names.index('') + 1} of the header has no name")
    if len(set(names)) < len(names):
        _fail(name, line, f"column {Counter(names).most_common(1)[0][0]!r} is there twice")


def _layout(names: list[str], name: str) -> dict[str, list[str]]:
    """Columns of each array: ``{"id": ["id"], "pred": ["pred_0", "pred_1"]}``; a gap in the numbering is an error."""
    layout: dict[str, list[str]] = {}
    for column in names:
        layout.setdefault(_array_of(column), []).append(column)
    for key, members in layout.items():
        if members != [key]:
            whole = [f"{key}_{i}" for i in range(len(members))]
            if set(members) != set(whole):
                missing = next(c for c in whole if c not in members)
                raise FileFormatError(
                    f"columns {key}_0 .. {key}_{{C-1}} or {key} are needed; {missing} is not there", argument=name
                )
            layout[key] = whole
    return layout


def _array_of(column: str) -> str:
    base, _, index = column.rpartition("_")
    return base if base in _JOINED and index.isdecimal() else column


def _csv_columns(rows: Iterator[tuple[int, list[str]]], names: list[str], name: str) -> dict[str, list[Any]]:
    """Each column as a list of strings, or of number arrays of so many rows each: as text they take far more memory."""
    columns: dict[str, list[Any]] = {n: [] for n in names}
    text: set[str] | None = None
    while chunk := list(itertools.islice(rows, _ROWS_AT_ONCE)):
        for line, row in chunk:
            if len(row) != len(names):
                _fail(name, line, f"{len(row)} values where the header has {len(names)} columns")
        if text is None:
            text = {n for n, cell in zip(names, chunk[0][1]) if _is_text(n, cell)}
        for column, cells in zip(names, zip(*(row for _, row in chunk))):
            if column == "where":
                cells = tuple(_TRUTH.get(c.strip().lower(), c) for c in cells)
            if column in text:
                columns[column].extend(cells)
                continue
            if (array := _numbers(cells)) is None:
                bad = next(i for i, c in enumerate(cells) if _numbers((c,)) is None)
                what = "is empty" if not cells[bad].strip() else f"holds {cells[bad][:40]!r}, which is no number"
                _fail(name, chunk[bad][0], f"column {column!r} {what}")
            columns[column].append(array)
    return columns


def _is_text(column: str, first_cell: str) -> bool:
    return column in _TEXT or not (_array_of(column) in _NUMERIC or _numbers((first_cell,)) is not None)


def _numbers(cells: Sequence[str]) -> np.ndarray | None:
    """int64 where every cell is an integer that fits, else float64; None if some cell is no number."""
    joined = "".join(cells)
    if "_" in joined or not joined.isascii():  # int() and float() would also take "1_000" and other scripts' digits
        return None
    try:
        return np.array(list(map(int, cells)), np.int64)
    except (ValueError, OverflowError):
        pass
    try:
        return np.array(list(map(float, cells)), np.float64)
    except ValueError:
        return None


def _joined(columns: list[list[Any]], two_d: bool) -> np.ndarray | list[str]:
    if not two_d:
        parts = columns[0] or [np.empty(0)]
        if isinstance(parts[0], str):
            return parts
        return np.concatenate(parts, out=aligned_empty((sum(map(len, parts)),), np.result_type(*parts)))
    out = aligned_empty((sum(map(len, columns[0])), len(columns)), np.float64)
    for c, parts in enumerate(columns):
        start = 0
        for part in parts:
            out[start : start + len(part), c] = part
            start += len(part)
    return out


# --- JSON Lines --------------------------------------------------------------------------------------------------


def jsonl_loaders(stream: BinaryIO, name: str) -> Loaders:
    """By key, a function that gives the values of that key over all lines.

    Args:
      stream: the file, at its start.
      name: what errors call the file.

    Returns:
      Loaders by key of the first line: an array [N,...] of int64, float64 or bool, or a list of strings, or a list of
      lists of strings.

    Raises:
      FileFormatError: a line that is no JSON object, a NaN or Infinity token, a key given twice, a key that some lines
        lack (on loading it), values that do not form an array, no line at all, or not UTF-8.
    """
    lines: list[int] = []
    records: list[dict[str, Any]] = []
    with _text(stream, name) as text:
        for number, line in enumerate(text, 1):
            if not line.strip(" \t\r\n"):
                continue
            try:
                record = strict_decode(line)
            except (ValueError, RecursionError) as error:
                _fail(name, number, f"not a line of strict JSON: {str(error)[:120]}")
            if not isinstance(record, dict):
                _fail(name, number, 'not a JSON object such as {"id": ..., "pred": ...}')
            records.append(record)
            lines.append(number)
    if not records:
        raise FileFormatError('empty; every sample needs a line such as {"id": ..., "pred": ...}', argument=name)
    return {key: partial(_jsonl_column, records, lines, key, name) for key in records[0]}


def _jsonl_column(records: list[dict[str, Any]], lines: list[int], key: str, name: str) -> Any:
    for line, record in zip(lines, records):
        if key not in record:
            _fail(name, line, f"no {key!r}, which the first line has")
    values = [record[key] for record in records]
    if key in _TEXT:
        _require(lambda v: type(v) in (str, int), values, lines, name, f"{key!r} must be a string or an integer")
        return [str(v) for v in values]
    telling = next((v for v in values if not _is_special(v) and v != []), None)
    if isinstance(telling, str):
        _require(lambda v: isinstance(v, str), values, lines, name, f"{key!r} must be a string, as on other lines")
        return values
    if isinstance(telling, list) and isinstance(telling[0], str) and not _is_special(telling[0]):
        _require(_is_list_of_str, values, lines, name, f"{key!r} must be a list of strings, as on other lines")
        return values
    return _jsonl_array(values, lines, key, name)


def _require(accepts: Callable[[Any], bool], values: list[Any], lines: list[int], name: str, message: str) -> None:
    for line, value in zip(lines, values):
        if not accepts(value):
            _fail(name, line, message)


def _is_special(value: Any) -> bool:
    return isinstance(value, str) and value in _SPECIAL


def _is_list_of_str(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


def _jsonl_array(values: list[Any], lines: list[int], key: str, name: str) -> np.ndarray:
    """Numbers, or lists of them nested to one shape, as one array: bool, int64 or float64 by what they are."""
    leaves, shape = values, [len(values)]

    def fail(index: int, message: str) -> NoReturn:
        _fail(name, lines[index // math.prod(shape[1:])], f"{key!r} {message}")

    while isinstance(leaves[0], list):
        length = len(leaves[0])
        for index, leaf in enumerate(leaves):
            if not isinstance(leaf, list) or len(leaf) != length or not leaf:
                fail(index, f"must be a list of {max(length, 1)} values, as on the first line")
        leaves = list(itertools.chain.from_iterable(leaves))
        shape.append(length)
    kinds = set(map(type, leaves))
    if str in kinds:
        leaves = [_SPECIAL.get(leaf, leaf) if isinstance(leaf, str) else leaf for leaf in leaves]
        kinds = set(map(type, leaves))
    if kinds <= {int, float}:
        dtype: type = np.int64 if kinds == {int} else np.float64
    elif kinds == {bool}:
        dtype = np.bool_
    else:
        wanted = (bool,) if type(leaves[0]) is bool else (int, float)
        index, leaf = next((i, v) for i, v in enumerate(leaves) if type(v) not in wanted)
        fail(index, f"holds {str(leaf)[:40]!r}, which is no {'bool' if bool in wanted else 'number'}")
    try:
        array: np.ndarray = np.array(leaves, dtype)
    except OverflowError:
        index = next(i for i, v in enumerate(leaves) if isinstance(v, int) and not -(2**63) <= v < 2**63)
        fail(index, "holds an integer beyond 64 bits")
    out = aligned_empty(tuple(shape), dtype)
    out.reshape(-1)[...] = array
    return out
