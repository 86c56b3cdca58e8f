"""Key maps: which dataset of a board's file is which quantity, and in which order its axes lie.

The public EMVal data do not publish the names inside their HDF5 files, so they are configuration: the defaults below
are those of this package's own simple layouts, and a TOML file says what differs::

    [near_field]
    file = "near_field.h5"              # within the folder of a board
    E = "E"                             # one name; or [re, im]; or [x, y, z]; or [x_re, x_im, y_re, y_im, z_re, z_im]
    H = "H"
    axes = "JFPC"                       # J excited port, F frequency, P probe, C component, R real and imaginary part
    frequency = "field_frequency_hz?"   # a trailing ? : may be absent; "" : is absent
    frequency_unit = "Hz"
    where = "field_where?"              # bool, same axes without C and R
    position = "position?"              # [P, 3] coordinates of the probes; pictures alone look at it
    position_unit = "m"                 # m, cm, mm, um, in or mil

    [sparams]
    file = "sparams.h5"
    S = "S"                             # one name, or [re, im]
    axes = "FIJ"                        # F frequency, I receiving port, J excited port, R real and imaginary part
    frequency = "frequency_hz?"
    frequency_unit = "Hz"
    z0 = "z0?"                          # reference resistances in ohms, scalar, [I] or [F, I]
    where = "where?"                    # bool, same axes without R

Names are looked up in .npz and .h5 files alike. ``axes`` is the order in the file; ``C`` is left out where the
components are datasets of their own, ``R`` where the numbers are complex or real and imaginary part are apart.
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
from dataclasses import dataclass, field
from typing import Any

from emma_jax.errors import FileFormatError
from emma_jax.io.sources import open_source

__all__ = ["FREQUENCY_UNITS", "LENGTH_UNITS", "FieldKeys", "KeyMap", "SParameterKeys", "load_key_map"]

FREQUENCY_UNITS = {"hz": 1.0, "khz": 1e3, "mhz": 1e6, "ghz": 1e9}
LENGTH_UNITS = {"m": 1.0, "cm": 1e-2, "mm": 1e-3, "um": 1e-6, "in": 25.4e-3, "mil": 25.4e-6}
_MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class FieldKeys:
    """Names for near fields; see the module's header."""

    file: str = "near_field.h5"
    E: tuple[str, ...] = ("E",)
    H: tuple[str, ...] = ("H",)
    axes: str = "JFPC"
    frequency: str = "field_frequency_hz?"
    frequency_unit: str = "Hz"
    where: str = "field_where?"
    position: str = "position?"
    position_unit: str = "m"


@dataclass(frozen=True)
class SParameterKeys:
    """Names for S-parameters; see the module's header."""

    file: str = "sparams.h5"
    S: tuple[str, ...] = ("S",)
    axes: str = "FIJ"
    frequency: str = "frequency_hz?"
    frequency_unit: str = "Hz"
    z0: str = "z0?"
    where: str = "where?"


@dataclass(frozen=True)
class KeyMap:
    """Names and axis orders of both kinds of file.

    Attributes:
      near_field: names for E and H.
      sparams: names for S.
    """

    near_field: FieldKeys = field(default_factory=FieldKeys)
    sparams: SParameterKeys = field(default_factory=SParameterKeys)

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON content."""
        return {
            table: {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(keys).items()}
            for table, keys in (("near_field", self.near_field), ("sparams", self.sparams))
        }


def load_key_map(path: str | os.PathLike[str]) -> KeyMap:
    """Read a key map; what it does not say is as in the module's header.

    Args:
      path: a TOML file.

    Returns:
      A `KeyMap`.

    Raises:
      FileFormatError: naming the file: no TOML, an unknown table or key, a value of a wrong kind, impossible axes.
      OSError: the path cannot be opened.
    """
    name = os.fspath(path)
    try:
        with open_source(path, name, _MAX_BYTES) as (stream, _):
            content = tomllib.loads(stream.read().decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FileFormatError(f"not a TOML file: {error}", argument=name) from None
    tables = {"near_field": FieldKeys, "sparams": SParameterKeys}
    if unknown := sorted(set(content) - set(tables)):
        raise FileFormatError(f"unknown table {unknown[0]!r}; there are {', '.join(tables)}", argument=name)
    keys = {
        table: _table(content[table], kind, f"{name}: {table}") for table, kind in tables.items() if table in content
    }
    return KeyMap(**keys)


def _table(content: Any, kind: type[Any], place: str) -> Any:
    known = {f.name: f.default for f in dataclasses.fields(kind)}
    if not isinstance(content, dict):
        raise FileFormatError("has to be a table", argument=place)
    values: dict[str, Any] = {}
    for key, value in content.items():
        if key not in known:
            raise FileFormatError(f"unknown key {key!r}; there are {', '.join(known)}", argument=place)
        several = isinstance(known[key], tuple)
        if several and isinstance(value, str):
            value = [value]
        listed = isinstance(value, list) and value and all(isinstance(v, str) and v for v in value)
        if not (listed if several else isinstance(value, str)):
            raise FileFormatError(
                f"{key!r} has to be {'a name or a list of names' if several else 'a string'}", argument=place
            )
        values[key] = tuple(value) if several else value
    keys = kind(**values)
    _check(keys, place)
    return keys


def _check(keys: FieldKeys | SParameterKeys, place: str) -> None:
    """Axes that fit the names, a unit, and a plain file name."""
    quantities = (("E", keys.E), ("H", keys.H)) if isinstance(keys, FieldKeys) else (("S", keys.S),)
    for quantity, names in quantities:
        if len(names) not in ((1, 2, 3, 6) if isinstance(keys, FieldKeys) else (1, 2)):
            raise FileFormatError(f"{quantity!r} has {len(names)} names", argument=place)
        wanted = set("FIJ") if isinstance(keys, SParameterKeys) else set("JFP" if len(names) in (3, 6) else "JFPC")
        allowed = [wanted] if len(names) in (2, 6) else [wanted, wanted | {"R"}]
        if set(keys.axes) not in allowed or len(set(keys.axes)) != len(keys.axes):
            options = " or ".join("".join(sorted(a)) for a in allowed)
            raise FileFormatError(
                f"axes {keys.axes!r} for {len(names)} dataset(s) of {quantity}; needs an order of {options}",
                argument=place,
            )
    if keys.frequency_unit.lower() not in FREQUENCY_UNITS:
        raise FileFormatError(f"unknown frequency_unit {keys.frequency_unit!r}", argument=place)
    if isinstance(keys, FieldKeys) and keys.position_unit not in LENGTH_UNITS:
        raise FileFormatError(f"unknown position_unit {keys.position_unit!r}", argument=place)
    if keys.file in ("", ".", "..") or any(c in keys.file for c in "/\\\0"):
        raise FileFormatError(f"file {keys.file!r} is not a plain file name", argument=place)
