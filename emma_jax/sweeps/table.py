"""The table of a sweep: a row for every file, as CSV or Parquet, with the same bytes for the same rows."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emma_jax.errors import FileFormatError
from emma_jax.io.sources import read_bytes
from emma_jax.io.write import atomic_file

__all__ = ["COUNTS", "SweepTable", "check_format", "load_table", "write_table"]

COUNTS = ("n", "n_used", "n_nonfinite", "n_invalid_label", "n_excluded", "n_absent_classes")
"""Fields of `Validity`, each a column ``<metric>.<field>`` of integers."""

_MAX_BYTES = 1 << 32
_NEEDS_PYARROW = "Parquet needs pyarrow: pip install 'emma-jax[parquet]', or write the table as .csv"


@dataclass(frozen=True)
class SweepTable:
    """Rows of a sweep.

    Attributes:
      columns: ``path``, the names of the pattern, ``status``, ``reason``, ``sha256``; then for every metric its value,
        its counts ``<metric>.n`` and so on, and further values such as ``EER.threshold``.
      rows: one mapping per file, by path: text; floats, NaN where there is no value; integers, None where the file
        could not be read. ``status`` is "ok", "bad" (read, but a metric has no value) or "unreadable", and ``reason``
        says why.
      metrics: names of the task's metrics, headline first.
      settings: what the rows were computed by: task, metrics with their parameters, sha256 of the labels, version.
      complete: False where other processes of a distributed sweep are not done yet, and rows are missing.
    """

    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]
    metrics: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    complete: bool = True

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> list[Any]:
        """The values of one column, row by row.

        Raises:
          KeyError: there is no such column.
        """
        if name not in self.columns:
            raise KeyError(f"no column {name!r}; there are {', '.join(self.columns)}")
        return [row.get(name) for row in self.rows]

    @property
    def num_without_value(self) -> int:
        """How many files have no value, or not all of them."""
        return sum(row["status"] != "ok" for row in self.rows)


def check_format(path: str | os.PathLike[str]) -> str:
    """The format that a table's name asks for, ".csv" or ".parquet".

    Raises:
      FileFormatError: another suffix.
      ImportError: Parquet without pyarrow; the message says what to install.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise FileFormatError(f"the table is written as .csv or .parquet, not {suffix!r}", argument=os.fspath(path))
    if suffix == ".parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            raise ImportError(_NEEDS_PYARROW) from None
    return suffix


def write_table(table: SweepTable, path: str | os.PathLike[str]) -> None:
    """Writes a table, atomically: a reader sees the old file or the whole new one.

    A value that does not exist is an empty cell (CSV) or null (Parquet); infinities are ``inf`` and ``-inf``. Parquet
    carries ``settings`` in its schema's metadata.

    Args:
      table: the table.
      path: a name that ends in .csv or .parquet.

    Raises:
      FileFormatError, ImportError: as `check_format`.
      OSError: it cannot be written.
    """
    suffix = check_format(path)
    with atomic_file(path) as stream:
        if suffix == ".csv":
            stream.write(_csv(table))
        else:
            _write_parquet(table, stream)


def _is_text(columns: Sequence[str], name: str) -> bool:
    return columns.index(name) <= columns.index("sha256")


def _is_count(name: str) -> bool:
    return name.rpartition(".")[2] in COUNTS


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return repr(value) if isinstance(value, float) else _printable(value) if isinstance(value, str) else str(value)


def _printable(text: str) -> str:
    """Text that is Unicode; a file name that is not shows its bytes."""
    return os.fsencode(text).decode("utf-8", "backslashreplace")


def _csv(table: SweepTable) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    for row in table.rows:
        writer.writerow([_cell(row.get(name)) for name in table.columns])
    return text.getvalue().encode()


def _write_parquet(table: SweepTable, stream: Any) -> None:
    import pyarrow
    from pyarrow import parquet

    fields, arrays = [], []
    for name in table.columns:
        values = table.column(name)
        if _is_text(table.columns, name):
            kind, values = pyarrow.string(), [_printable(v) for v in values]
        elif _is_count(name):
            kind = pyarrow.int64()
        else:
            kind, values = pyarrow.float64(), [None if v is None or math.isnan(v) else v for v in values]
        fields.append(pyarrow.field(name, kind))
        arrays.append(pyarrow.array(values, kind))
    metadata = {"emma-jax": json.dumps({"metrics": table.metrics, **table.settings}, sort_keys=True)}
    parquet.write_table(pyarrow.Table.from_arrays(arrays, schema=pyarrow.schema(fields, metadata)), stream)


def load_table(path: str | os.PathLike[str]) -> SweepTable:
    """Reads a table that `write_table` wrote.

    Args:
      path: a name that ends in .csv or .parquet.

    Raises:
      FileFormatError: it is no table of a sweep.
      ImportError: Parquet without pyarrow.
      OSError: it cannot be opened.
    """
    name = os.fspath(path)
    if check_format(path) == ".csv":
        return _from_csv(read_bytes(Path(os.path.realpath(path)), max_bytes=_MAX_BYTES, name=name), name)
    import pyarrow
    from pyarrow import parquet

    with open(path, "rb") as stream:
        try:
            content = parquet.read_table(stream)
        except pyarrow.ArrowException as error:
            raise FileFormatError(f"not a Parquet file: {str(error)[:120]}", argument=name) from None
    columns = tuple(content.column_names)
    _check_columns(columns, name)
    rows = [{k: _value(columns, k, v) for k, v in row.items()} for row in content.to_pylist()]
    settings = json.loads((content.schema.metadata or {}).get(b"emma-jax", b"{}"))
    settings.pop("metrics", None)
    return SweepTable(columns, tuple(rows), _metrics(columns), settings)


def _from_csv(data: bytes, name: str) -> SweepTable:
    try:
        lines = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileFormatError(f"not a CSV table: {error}", argument=name) from None
    columns = tuple(lines[0]) if lines else ()
    _check_columns(columns, name)
    rows = []
    for number, cells in enumerate(lines[1:], start=2):
        if len(cells) != len(columns):
            raise FileFormatError(f"line {number} has {len(cells)} cells for {len(columns)} columns", argument=name)
        try:
            rows.append({k: _value(columns, k, _number(columns, k, v)) for k, v in zip(columns, cells)})
        except ValueError:
            raise FileFormatError(f"line {number} holds text where a number stands", argument=name) from None
    return SweepTable(columns, tuple(rows), _metrics(columns))


def _number(columns: Sequence[str], name: str, cell: str) -> Any:
    if _is_text(columns, name):
        return cell
    if cell == "":
        return None
    return int(cell) if _is_count(name) else float(cell)


def _value(columns: Sequence[str], name: str, value: Any) -> Any:
    return math.nan if value is None and not _is_text(columns, name) and not _is_count(name) else value


def _check_columns(columns: Sequence[str], name: str) -> None:
    if not {"path", "status", "reason", "sha256"} <= set(columns) or len(set(columns)) != len(columns):
        raise FileFormatError("not a table of `emma-jax sweep`", argument=name)


def _metrics(columns: Sequence[str]) -> tuple[str, ...]:
    return tuple(c for c in columns if f"{c}.n_used" in columns)
