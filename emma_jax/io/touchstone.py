"""Touchstone files: versions 1.0, 1.1, 2.0 and 2.1 -> S-parameters as NumPy arrays.

Goal: the numbers in the file, or a typed error that names file and line; never a guess.

Conventions. ``s[f, i, j]`` is the wave leaving port i+1 for a unit wave into port j+1. Frequencies are in hertz,
strictly increasing, and correctly rounded from the decimal text (75.175 with the unit GHz is the float 75.175e9, so
files written in different units meet on the same grid). Reference impedances are real, in ohms. Real reference
impedances make power waves, pseudo-waves and travelling waves one and the same thing.

Why a parser of our own, and not scikit-rf's: on well-formed files the two agree (the tests hold them together on
generated files of every version), but a scorer reads the files of strangers. scikit-rf 2.2 takes the fields of the
option line by position, although they may come in any order; applies defaults where the line is missing; converts Y, Z,
G and H files where a scorer must refuse; leaves S12 and S21 of a triangular version 2 two-port unwritten; misses the
noise block of a two-port that starts at the last frequency of the data; stumbles over information blocks and reads on
after [End]; and accepts "nan", unordered frequencies and fewer points than a file declares. A parser that is strict
about all of this, and needs no package, is the smaller risk.

Reference: Touchstone File Format Specification, versions 1.1 and 2.1, IBIS Open Forum.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emma_jax.errors import FileFormatError, ShapeError
from emma_jax.io.sources import Source, open_source, source_name

__all__ = ["Touchstone", "read_touchstone", "write_touchstone"]

_MAX_BYTES = 512 * 2**20
_UNITS = {"hz": 0, "khz": 3, "mhz": 6, "ghz": 9}
_UNIT_NAMES = {"hz": "Hz", "khz": "kHz", "mhz": "MHz", "ghz": "GHz"}
_FORMATS = ("ma", "db", "ri")
_KEYWORDS = {
    "version",
    "number of ports",
    "two-port data order",
    "number of frequencies",
    "number of noise frequencies",
    "reference",
    "matrix format",
    "mixed-mode order",
    "network data",
    "noise data",
    "end",
}
_MULTILINE = {"reference", "mixed-mode order"}
_NUMERIC_LINE = re.compile(r"[0-9.eE+\-\s]*\Z")
_EXTENSION = re.compile(r"\.([a-z])(\d+)p\Z")
_PORT_IMPEDANCE = re.compile(r"port impedance(.*)\Z", re.IGNORECASE | re.DOTALL)

_Fail = Callable[[int | None, str], NoReturn]


@dataclass(frozen=True, eq=False)
class Touchstone:
    """The content of a Touchstone file.

    Attributes:
      frequency_hz: [F] float64, strictly increasing.
      s: [F, i, j] complex128, receiving port i, excited port j.
      z0: [ports] float64 reference resistances in ohms, of the option line or of ``[Reference]``.
      comments: every comment in file order, without the exclamation mark.
      version: "1.0", "1.1" (one resistance per port in the option line), "2.0" or "2.1".
      port_impedance: [F, ports] complex128 if the comments carry one "Port Impedance" entry per frequency, as HFSS
        writes them, else None. Comments are not data, so ``z0`` stays what the standard says; code that renormalizes
        has to look here first.
      name: the file's name, for messages.
    """

    frequency_hz: NDArray[np.float64]
    s: NDArray[np.complex128]
    z0: NDArray[np.float64]
    comments: tuple[str, ...] = ()
    version: str = "1.0"
    port_impedance: NDArray[np.complex128] | None = None
    name: str = ""

    @property
    def n_ports(self) -> int:
        """Number of ports."""
        return int(self.s.shape[-1])

    def __repr__(self) -> str:
        f = self.frequency_hz
        return (
            f"Touchstone({self.name or 'unnamed'}: {self.n_ports} ports, {f.size} points, "
            f"{f[0]:g}..{f[-1]:g} Hz, z0={self.z0.tolist()}, version {self.version})"
        )


def read_touchstone(source: Source, *, name: str | None = None, max_bytes: int = _MAX_BYTES) -> Touchstone:
    """Read S-parameters from a Touchstone file of version 1.0, 1.1, 2.0 or 2.1.

    The port count of a version 1 file is the N of its ``.sNp`` extension; with another extension, or none, it is the
    one count that splits the data into whole frequency points with increasing frequencies. Noise data and information
    blocks are skipped.

    Args:
      source: a path, or the content of a file as bytes or a seekable binary stream.
      name: the file's name, for messages and for its extension; by default the path or the stream's own name.
      max_bytes: refuse larger files.

    Returns:
      A `Touchstone`; its arrays are NumPy and read-only.

    Raises:
      FileFormatError: naming the file and, where there is one, the line: no option line, unknown or repeated options,
        parameters other than S, mixed-mode data, a number that is none, a frequency point with too few or too many
        numbers, frequencies that do not increase, a file that ends early, contradictory port counts.
      OSError: the path cannot be opened.
    """
    nameless = not isinstance(source, (str, os.PathLike)) and not isinstance(getattr(source, "name", None), str)
    label = name or ("<memory>" if nameless else source_name(source, None))
    with open_source(source, label, max_bytes) as (stream, _):
        data = stream.read()

    def fail(line: int | None, message: str) -> NoReturn:
        raise FileFormatError(f"line {line}: {message}" if line is not None else message, argument=label)

    scan = _scan(_decode(data, fail), fail)
    return _interpret(scan, label, fail)


def _decode(data: bytes, fail: _Fail) -> str:
    """Text of the file: UTF-8 (a byte order mark is dropped), else Latin-1, which never fails."""
    if b"\0" in data:
        fail(None, "is not a text file (it contains NUL bytes)")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


@dataclass(frozen=True)
class _Row:
    """One line of numbers; ``first`` keeps the text of its first number, for exact scaling of frequencies."""

    line: int
    first: str
    values: list[float]


@dataclass
class _Scan:
    """What the lines say, before it is known how many ports there are."""

    comments: list[str] = field(default_factory=list)
    options: tuple[int, list[str]] | None = None
    keywords: dict[str, tuple[int, list[str]]] = field(default_factory=dict)
    network: list[_Row] = field(default_factory=list)
    noise: list[_Row] = field(default_factory=list)

    def version(self) -> str:
        return self.keywords["version"][1][0] if "version" in self.keywords else "1.0"


def _scan(text: str, fail: _Fail) -> _Scan:
    """Sort the lines into comments, option line, keywords with their arguments, and rows of numbers."""
    scan, section, information = _Scan(), "header", 0
    # Not str.splitlines: that also breaks at 0x85 and 0x1C, which Latin-1 comments may hold.
    for number, raw in enumerate(re.split("\r\n|\n|\r", text), 1):
        body, mark, comment = raw.partition("!")
        if mark:
            scan.comments.append(comment.strip())
        body = body.strip()
        if not body or section == "end":
            continue
        if body.startswith("["):
            key, arguments = _keyword(number, body, fail)
            if key in ("begin information", "end information"):
                information = number if key == "begin information" else 0
            elif not information:
                section = _add_keyword(scan, number, key, arguments, fail)
        elif information:
            continue
        elif body.startswith("#"):
            # Further option lines are ignored, as the specification says.
            if scan.options is None:
                scan.options = number, body[1:].split()
                section = "network data" if scan.version().startswith("1") else "header"
        elif scan.options is None:
            fail(number, "data before the option line (#); without it unit, format and reference are unknown")
        elif section in ("network data", "noise data"):
            (scan.network if section == "network data" else scan.noise).append(_row(number, body, fail))
        elif section in _MULTILINE:
            scan.keywords[section][1].extend(body.split())
        else:
            fail(number, "data outside [Network Data]")
    if information:
        fail(information, "[Begin Information] without [End Information]")
    if scan.options is None:
        fail(None, "has no option line (#)")
    return scan


def _keyword(number: int, body: str, fail: _Fail) -> tuple[str, list[str]]:
    match = re.match(r"\[([^\]]*)\](.*)", body)
    if not match:
        fail(number, f"keyword without a closing bracket: {body[:40]!r}")
    return " ".join(match[1].lower().split()), match[2].split()


def _add_keyword(scan: _Scan, number: int, key: str, arguments: list[str], fail: _Fail) -> str:
    """Record a keyword and return the section it opens."""
    if key not in _KEYWORDS:
        fail(number, f"unknown keyword [{key[:40]}]")
    if key in scan.keywords:
        fail(number, f"[{key}] a second time")
    if key == "version":
        if scan.options is not None:
            fail(number, "[Version] has to precede the option line")
        if arguments not in (["1.0"], ["1.1"], ["2.0"], ["2.1"]):
            fail(number, f"unsupported version {' '.join(arguments)[:40]!r}; 1.0, 1.1, 2.0 and 2.1 are read")
    elif scan.version().startswith("1"):
        fail(number, f"[{key}] belongs to version 2, but no [Version] 2.0 or 2.1 precedes it")
    scan.keywords[key] = number, arguments
    return key


def _row(number: int, body: str, fail: _Fail) -> _Row:
    tokens = body.split()
    try:
        if _NUMERIC_LINE.match(body):
            return _Row(number, tokens[0], [float(t) for t in tokens])
        # Simulators print the magnitude of an exact zero in dB as -inf; `_complex` decides whether it may stand here.
        return _Row(number, tokens[0], [-np.inf if t.lower() in ("-inf", "-infinity") else _number(t) for t in tokens])
    except ValueError as error:
        fail(number, f"not a number: {str(error).rpartition(': ')[2][:40]}")


def _number(token: str) -> float:
    """A float from plain decimal text; float() alone would take "nan", "1_0" and digits of other scripts."""
    if not _NUMERIC_LINE.match(token):
        raise ValueError(repr(token))
    return float(token)


@dataclass(frozen=True)
class _Options:
    exponent: int
    format: str
    resistance: tuple[float, ...]


def _options(line: int, tokens: Sequence[str], fail: _Fail) -> _Options:
    """The option line: unit, parameter, format and R in any order and case, each at most once; GHz S MA R 50 unsaid."""
    seen: dict[str, str] = {}
    resistance: list[float] = []
    rest = [t.lower() for t in tokens]
    while rest:
        token = rest.pop(0)
        kind = (
            "unit"
            if token in _UNITS
            else "format"
            if token in _FORMATS
            else "parameter"
            if token in ("s", "y", "z", "h", "g")
            else "R"
            if token == "r"
            else ""
        )
        if not kind:
            fail(line, f"unknown field {token[:40]!r} in the option line")
        if kind in seen:
            fail(line, f"the option line states the {kind} twice")
        seen[kind] = token
        while kind == "R" and rest and _NUMERIC_LINE.match(rest[0]):
            resistance.append(_positive(line, rest.pop(0), "reference resistance", fail))
        if kind == "R" and not resistance:
            fail(line, "R in the option line without a positive real number after it")
    parameter = seen.get("parameter", "s")
    if parameter != "s":
        fail(line, f"unsupported parameter {parameter.upper()}: only S-parameters are scored")
    return _Options(_UNITS[seen.get("unit", "ghz")], seen.get("format", "ma"), tuple(resistance or [50.0]))


def _positive(line: int, token: str, what: str, fail: _Fail) -> float:
    try:
        value = _number(token)
    except ValueError:
        value = np.nan
    if not 0 < value < np.inf:
        fail(line, f"{what} {token[:40]!r} is not a positive number")
    return value


def _interpret(scan: _Scan, label: str, fail: _Fail) -> Touchstone:
    """Numbers, order and references from the scanned lines."""
    assert scan.options is not None
    options = _options(*scan.options, fail)
    version = scan.version()
    if not scan.network:
        fail(None, "holds no network data")
    extension = _EXTENSION.search(label.lower())
    if extension and extension[1] in "yzhg":
        fail(None, f"unsupported parameter: the extension says {extension[1].upper()}, only S-parameters are scored")
    hint = int(extension[2]) if extension and extension[1] == "s" else None
    if hint == 0:
        fail(None, "the extension says 0 ports")

    matrix_format, order, rows = "full", "21_12", scan.network
    if version.startswith("1"):
        n_ports, rows, starts = _version1_points(rows, hint, fail)
        if len(options.resistance) not in (1, n_ports):
            fail(scan.options[0], f"{len(options.resistance)} reference resistances for {n_ports} ports")
        version = "1.1" if len(options.resistance) > 1 or version == "1.1" else "1.0"
        z0 = options.resistance
    else:
        n_ports, matrix_format, order, z0 = _version2_header(scan, options, hint, fail)
        starts = _points(rows, _point_size(n_ports, matrix_format), fail)
        _check_counts(scan, len(starts), fail)

    pairs = np.array([v for row in rows for v in row.values], np.float64).reshape(len(starts), -1)[:, 1:]
    lines = [rows[k].line for k in starts]
    frequency = _frequencies([rows[k].first for k in starts], lines, options.exponent, fail)
    s = _matrix(_complex(pairs, options.format, lines, fail), n_ports, matrix_format, order)
    reference = np.broadcast_to(np.array(z0, np.float64), (n_ports,)).copy()
    for array in (frequency, s, reference):
        array.setflags(write=False)
    comments = tuple(scan.comments)
    impedance = _port_impedance(comments, frequency.size, n_ports)
    return Touchstone(frequency, s, reference, comments, version, impedance, label)


def _point_size(n_ports: int, matrix_format: str) -> int:
    """Numbers in one frequency point: the frequency and a pair per stored entry."""
    return 1 + 2 * n_ports**2 if matrix_format == "full" else 1 + n_ports * (n_ports + 1)


def _split(rows: Sequence[_Row], size: int) -> tuple[list[int], int | None]:
    """Rows that start a frequency point, and the row at which the split into points of ``size`` numbers breaks.

    A point always starts on a line of its own, so a missing or surplus number shows at once instead of shifting
    everything after it. The second item is None for a clean split, ``len(rows)`` where the last point is short.
    """
    starts: list[int] = []
    have = 0
    for k, row in enumerate(rows):
        if have == 0:
            starts.append(k)
        have += len(row.values)
        if have > size:
            return starts, k
        have %= size
    return starts, len(rows) if have else None


def _points(rows: Sequence[_Row], size: int, fail: _Fail, because: str = "") -> list[int]:
    """As `_split`, raising where the split breaks."""
    starts, broken = _split(rows, size)
    if broken is None:
        return starts
    first = rows[starts[-1]].line
    have = sum(len(row.values) for row in rows[starts[-1] : broken + 1])
    last = rows[min(broken, len(rows) - 1)].line
    if broken == len(rows):
        fail(last, f"the file ends within the frequency point of line {first}: {have} of {size} numbers{because}")
    fail(last, f"the frequency point of line {first} has {have} numbers, not {size}{because}")


def _noise_start(rows: Sequence[_Row]) -> int:
    """Row at which the noise block of a version 1 two-port begins; ``len(rows)`` without one.

    The block follows the network data, its first frequency does not exceed the one before it, and each of its lines
    has five numbers. All three are asked for, so that unordered network data is never taken for noise.
    """
    tail = len(rows)
    while tail and len(rows[tail - 1].values) == 5:
        tail -= 1
    have, previous = 0, -np.inf
    for k, row in enumerate(rows):
        if have == 0:
            if k >= tail and row.values[0] <= previous:
                return k
            previous = row.values[0]
        have = (have + len(row.values)) % 9
    return len(rows)


def _version1_points(rows: list[_Row], hint: int | None, fail: _Fail) -> tuple[int, list[_Row], list[int]]:
    """Port count, rows without the noise block, and the rows that start a frequency point."""
    if hint is not None:
        kept = rows[: _noise_start(rows)] if hint == 2 else rows
        return hint, kept, _points(kept, _point_size(hint, "full"), fail, f" (the extension says {hint} ports)")
    fits = []
    total = sum(len(row.values) for row in rows)
    for n in range(1, int((total / 2) ** 0.5) + 1):
        kept = rows[: _noise_start(rows)] if n == 2 else rows
        starts, broken = _split(kept, _point_size(n, "full"))
        first = [kept[k].values[0] for k in starts]
        if broken is None and all(a < b for a, b in itertools.pairwise(first)):
            fits.append((n, kept, starts))
    if len(fits) != 1:
        found = "no port count fits the data" if not fits else f"the data fits {[n for n, *_ in fits]} ports"
        fail(None, f"{found}; the name has no .sNp extension that would say")
    return fits[0]


def _integer(scan: _Scan, key: str, fail: _Fail) -> int | None:
    """The positive integer after a keyword, None where the keyword is absent."""
    if key not in scan.keywords:
        return None
    line, arguments = scan.keywords[key]
    if len(arguments) != 1 or not re.fullmatch("[0-9]{1,9}", arguments[0]) or int(arguments[0]) < 1:
        fail(line, f"[{key}] needs one positive integer, not {' '.join(arguments)[:40]!r}")
    return int(arguments[0])


def _choice(scan: _Scan, key: str, choices: tuple[str, ...], fail: _Fail) -> str | None:
    if key not in scan.keywords:
        return None
    line, arguments = scan.keywords[key]
    value = " ".join(arguments).lower()
    if value not in choices:
        fail(line, f"[{key}] is {value[:40]!r}, not one of {', '.join(choices)}")
    return value


def _version2_header(
    scan: _Scan, options: _Options, hint: int | None, fail: _Fail
) -> tuple[int, str, str, tuple[float, ...]]:
    """Port count, matrix format, two-port order and reference resistances of a version 2 file."""
    n_ports = _integer(scan, "number of ports", fail)
    if n_ports is None:
        fail(None, "a version 2 file needs [Number of Ports]")
    if hint is not None and hint != n_ports:
        fail(scan.keywords["number of ports"][0], f"{n_ports} ports, but the extension says {hint}")
    if "network data" not in scan.keywords:
        fail(None, "a version 2 file needs [Network Data]")
    matrix_format = _choice(scan, "matrix format", ("full", "lower", "upper"), fail) or "full"
    order = _choice(scan, "two-port data order", ("12_21", "21_12"), fail)
    if n_ports == 2 and matrix_format == "full" and order is None:
        fail(None, "a version 2 two-port needs [Two-Port Data Order]: S12 and S21 cannot be told apart without it")
    if "mixed-mode order" in scan.keywords:
        line, modes = scan.keywords["mixed-mode order"]
        if [m.lower() for m in modes] != [f"s{k + 1}" for k in range(n_ports)]:
            fail(line, "mixed-mode data is not supported: convert it to single-ended S-parameters first")
    z0 = options.resistance
    if "reference" in scan.keywords:
        line, tokens = scan.keywords["reference"]
        z0 = tuple(_positive(line, t, "[Reference]", fail) for t in tokens)
        if len(z0) != n_ports:
            fail(line, f"[Reference] has {len(z0)} values for {n_ports} ports")
    elif len(z0) not in (1, n_ports):
        assert scan.options is not None
        fail(scan.options[0], f"{len(z0)} reference resistances for {n_ports} ports")
    return n_ports, matrix_format, order or "21_12", z0


def _check_counts(scan: _Scan, n_points: int, fail: _Fail) -> None:
    """A version 2 file says how much it holds; one of these statements has to be there and all have to be true."""
    declared = _integer(scan, "number of frequencies", fail)
    if declared is None and "end" not in scan.keywords:
        fail(None, "has neither [Number of Frequencies] nor [End]: it may be truncated")
    if declared is not None and declared != n_points:
        fail(
            scan.keywords["number of frequencies"][0],
            f"[Number of Frequencies] is {declared}, but {n_points} are there",
        )
    if (noise := _integer(scan, "number of noise frequencies", fail)) is not None:
        found = sum(len(row.values) for row in scan.noise)
        if found != 5 * noise:
            fail(
                scan.keywords["number of noise frequencies"][0],
                f"{noise} noise frequencies need {5 * noise} numbers, {found} are there",
            )


def _frequencies(tokens: Sequence[str], lines: Sequence[int], exponent: int, fail: _Fail) -> NDArray[np.float64]:
    """Decimal text times 10^exponent, rounded once."""
    values = np.empty(len(tokens))
    for k, token in enumerate(tokens):
        mantissa, _, power = token.lower().partition("e")
        plain = len(token) < 400 and _NUMERIC_LINE.match(token)
        values[k] = float(f"{mantissa}e{int(power or 0) + exponent}") if plain else np.nan
    bad = ~(np.isfinite(values) & (values >= 0))
    bad[1:] |= ~(np.diff(values) > 0)
    if bad.any():
        k = int(np.argmax(bad))
        before = f" after {values[k - 1]:g} Hz" if k else ""
        fail(lines[k], f"frequency {values[k]:g} Hz{before}: frequencies have to be non-negative and increasing")
    return values


def _complex(pairs: NDArray[np.float64], kind: str, lines: Sequence[int], fail: _Fail) -> NDArray[np.complex128]:
    """Pairs of numbers as complex entries: RI, MA (degrees) or DB (20 log10 magnitude, degrees)."""
    a, b = pairs[:, 0::2], pairs[:, 1::2]
    with np.errstate(over="ignore", invalid="ignore"):
        if kind == "ri":
            s = a + 1j * b
        else:
            magnitude = 10 ** (a / 20) if kind == "db" else a
            s = magnitude * np.exp(1j * np.deg2rad(b))
    bad = ~(np.isfinite(s.real) & np.isfinite(s.imag))
    if bad.any():
        fail(
            lines[int(np.argmax(bad.any(axis=1)))],
            "the frequency point that starts here holds a value that is not finite",
        )
    return s


def _matrix(flat: NDArray[np.complex128], n_ports: int, matrix_format: str, order: str) -> NDArray[np.complex128]:
    """Stored entries [F, .] as matrices [F, i, j]; a triangle is mirrored."""
    if matrix_format == "full":
        s = flat.reshape(-1, n_ports, n_ports)
        return np.ascontiguousarray(s.swapaxes(1, 2)) if n_ports == 2 and order == "21_12" else s
    rows, columns = np.tril_indices(n_ports) if matrix_format == "lower" else np.triu_indices(n_ports)
    s = np.empty((len(flat), n_ports, n_ports), np.complex128)
    s[:, rows, columns] = flat
    s[:, columns, rows] = flat
    return s


def _port_impedance(comments: Sequence[str], n_points: int, n_ports: int) -> NDArray[np.complex128] | None:
    """Port impedances from HFSS comments: one entry per frequency, per port or as a full matrix, possibly wrapped."""
    blocks: list[list[float]] = []
    open_block = False
    for comment in comments:
        match = _PORT_IMPEDANCE.match(comment)
        text = match[1] if match else comment
        try:
            numbers = [_number(t) for t in text.split()]
        except ValueError:
            open_block = False
            continue
        if match:
            blocks.append(numbers)
            open_block = True
        elif open_block:
            blocks[-1].extend(numbers)
    sizes = {len(b) for b in blocks}
    if len(blocks) != n_points or sizes not in ({2 * n_ports}, {2 * n_ports**2}):
        return None
    values = np.array(blocks, np.float64).view(np.complex128)
    if values.shape[1] != n_ports:
        values = np.ascontiguousarray(np.diagonal(values.reshape(-1, n_ports, n_ports), axis1=1, axis2=2))
    values.setflags(write=False)
    return values


def write_touchstone(
    path: str | os.PathLike[str],
    frequency_hz: ArrayLike,
    s: ArrayLike,
    *,
    z0: float | Sequence[float] = 50.0,
    format: str = "RI",
    unit: str = "GHz",
    version: str | None = None,
    comments: Sequence[str] = (),
) -> None:
    """Write S-parameters as a Touchstone file that reads back to the same numbers.

    Frequencies and, in RI, the entries come back bit for bit; MA and DB lose an ulp or two in the conversion.

    Args:
      path: the file; version 1 wants the extension ``.sNp`` for N ports.
      frequency_hz: [F] hertz, increasing.
      s: [F, i, j] complex.
      z0: reference resistance in ohms, one or one per port.
      format: "RI", "MA" or "DB".
      unit: "Hz", "kHz", "MHz" or "GHz".
      version: "1.0", "1.1" or "2.0"; by default the lowest that can say ``z0``.
      comments: lines to put first.

    Raises:
      ShapeError: if the arrays do not fit each other.
      FileFormatError: for an option the format does not have, or values it cannot hold.
    """
    f, matrix = np.asarray(frequency_hz, np.float64), np.asarray(s, np.complex128)
    if f.ndim != 1 or f.size == 0 or matrix.ndim != 3 or matrix.shape != (f.size, *matrix.shape[-1:] * 2):
        raise ShapeError(
            f"frequencies {f.shape} and S-parameters {matrix.shape} are not [F] and [F, n, n]", argument="s"
        )
    n_ports = matrix.shape[-1]
    references = np.atleast_1d(np.asarray(z0, np.float64)).tolist()
    version = version or ("1.0" if len(references) == 1 else "1.1")
    label, kind, power = str(path), format.lower(), _UNITS.get(unit.lower())
    suffix = _EXTENSION.search(Path(path).name.lower())
    problem = (
        "unknown format, unit or version"
        if kind not in _FORMATS or power is None or version not in ("1.0", "1.1", "2.0")
        else "several reference resistances need version 1.1 or 2.0"
        if version == "1.0" and len(references) > 1
        else f"{len(references)} reference resistances for {n_ports} ports"
        if len(references) not in (1, n_ports)
        else f"a version 1 file of {n_ports} ports ends in .s{n_ports}p"
        if version != "2.0" and (suffix is None or suffix[1] + suffix[2] != f"s{n_ports}")
        else "values have to be finite, references positive, frequencies increasing"
        if not (np.isfinite(matrix).all() and min(references) > 0 and f[0] >= 0 and (np.diff(f) > 0).all())
        else ""
    )
    if problem:
        raise FileFormatError(problem, argument=label)
    assert power is not None
    lines = [f"! {line}" for comment in comments for line in re.split("\r\n|\n|\r", comment)]
    option = f"# {_UNIT_NAMES[unit.lower()]} S {kind.upper()} R "
    if version == "2.0":
        lines += ["[Version] 2.0", f"{option}{references[0]!r}", f"[Number of Ports] {n_ports}"]
        lines += ["[Two-Port Data Order] 12_21"] if n_ports == 2 else []
        lines += [f"[Number of Frequencies] {f.size}"]
        lines += ["[Reference] " + " ".join(map(repr, np.broadcast_to(references, n_ports).tolist()))]
        lines += ["[Network Data]"]
    else:
        lines += [option + " ".join(map(repr, references))]
    if n_ports == 2 and version != "2.0":
        matrix = matrix.swapaxes(1, 2)
    for frequency, point in zip(f.tolist(), matrix):
        lines += _point_lines(_format_frequency(frequency, power), point, kind)
    lines += ["[End]"] if version == "2.0" else []
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _format_frequency(frequency_hz: float, exponent: int) -> str:
    """Decimal text of a frequency in units of 10^exponent Hz that `read_touchstone` rounds back to the same float."""
    return str(Decimal(repr(frequency_hz)).scaleb(-exponent))


def _point_lines(frequency: str, point: NDArray[np.complex128], kind: str) -> list[str]:
    """One frequency point: one line for one and two ports, else a matrix row a line, at most four pairs on each."""
    pairs: NDArray[Any] = np.stack([point.real, point.imag], axis=-1)
    if kind != "ri":
        magnitude = np.abs(point)
        with np.errstate(divide="ignore"):
            first = magnitude if kind == "ma" else 20 * np.log10(magnitude)
        pairs = np.stack([first, np.rad2deg(np.angle(point))], axis=-1)
    rows = [pairs.reshape(1, -1)] if len(point) <= 2 else [r.reshape(-1) for r in pairs]
    text = [
        " ".join(map(repr, chunk.tolist()))
        for row in rows
        for chunk in np.split(np.ravel(row), range(8, np.size(row), 8))
    ]
    return [f"{frequency} {text[0]}", *(f"  {line}" for line in text[1:])]
