"""``python -m bench --plot FILE``: how the time grows with N, C and S, ours and the peers'.

Every point is checked against the definition first, like every row of the table. A peer leaves a curve once a point has
taken it more than `GIVE_UP_S`; ours goes on to the largest size that the memory allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import bench.sweep  # noqa: F401  (registers the rows over S)
from bench.measure import Line, Settings, measure
from bench.rows import ROWS, Case, Row, Size

__all__ = ["GIVE_UP_S", "Point", "curves", "draw", "sizes"]

GIVE_UP_S = 2.0
_N = ("auc-binary", "eer-binary", "top1", "angle")
_C = ("top1", "auc-ovr")
_S = ("sweep-auc", "sweep-top1")


@dataclass(frozen=True)
class Point:
    """One measured point.

    Attributes:
      row: which benchmark.
      axis: "N", "C" or "S".
      at: the size along it.
      who: "ours (evaluate)" or a library.
      ms: median milliseconds.
      status: "timed", or why there is no time.
    """

    row: str
    axis: str
    at: int
    who: str
    ms: float
    status: str

    def to_dict(self) -> dict[str, Any]:
        """Content for JSON; no time is None."""
        return {**self.__dict__, "ms": self.ms if math.isfinite(self.ms) else None}


def sizes(axis: str, most: int) -> list[int]:
    """Sizes along an axis: N by tens from 1e3, C and S by fours."""
    start, factor = {"N": (1000, 10), "C": (2, 4), "S": (4, 4)}[axis]
    out = []
    while start <= most:
        out.append(start)
        start *= factor
    return out


def curves(largest_n: int, repeats: int, progress: Callable[[str], Any] = print) -> Iterator[Point]:
    """Measures all points.

    Args:
      largest_n: where the curves over N end; those over C and S scale with it.
      repeats: rounds per point.
      progress: told each point before it is measured.
    """
    wide = max(2, min(512, largest_n // 1000))
    runs = max(4, min(4096, largest_n // 1000))
    for axis, names, most in (("N", _N, largest_n), ("C", _C, wide), ("S", _S, runs)):
        for name in names:
            left: set[str] = set()
            for at in sizes(axis, most):
                progress(f"{name} {axis}={at:,}")
                for line in measure(
                    _at(name, axis, at, largest_n, left), _size(axis, at, largest_n), _settings(repeats)
                ):
                    yield from _points(line, name, axis, at, left)


def _settings(repeats: int) -> Settings:
    return Settings(repeats, GIVE_UP_S, ("evaluate",))


def _size(axis: str, at: int, largest_n: int) -> Size:
    if axis == "N":
        return Size(at, 16)
    return Size(min(100_000, largest_n), at if axis == "C" else 16)


def _at(name: str, axis: str, at: int, largest_n: int, left: set[str]) -> Row:
    """The row without the peers that have left, and for a curve over S with so many runs."""
    real = ROWS[name]

    def make(size: Size) -> Case:
        if axis == "S":
            case = real.make(Size(64 * max(at, 4), size.classes))
        else:
            case = real.make(size)
        return replace(case, peers=tuple(p for p in case.peers if p.library not in left))

    return Row(name, make)


def _points(line: Line, name: str, axis: str, at: int, left: set[str]) -> Iterator[Point]:
    for entry, who in ((line.ours, "ours (evaluate)"), *((p, p.name) for p in line.peers)):
        timed = entry.contestant is not None
        ms = 1e3 * entry.contestant.median if entry.contestant is not None else math.nan
        yield Point(name, axis, at, who, ms, entry.status)
        if who != "ours (evaluate)" and (not timed or ms > 1e3 * GIVE_UP_S):
            left.add(who)


def draw(points: Sequence[Point], path: Path, title: str = "") -> None:
    """One panel per row and axis, both axes logarithmic.

    Args:
      points: what `curves` measured.
      path: .png, .pdf or .svg.
      title: the machine, in words.

    Raises:
      ImportError: matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    panels = list(dict.fromkeys((p.axis, p.row) for p in points))
    columns = 4
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4 * columns, 3.2 * rows), layout="constrained")
    for place, (axis, name) in enumerate(panels):
        ax = figure.add_subplot(rows, columns, place + 1)
        own = [p for p in points if (p.axis, p.row) == (axis, name)]
        for who in dict.fromkeys(p.who for p in own):
            line = [(p.at, p.ms) for p in own if p.who == who and math.isfinite(p.ms)]
            if line:
                ours = who.startswith("ours")
                ax.plot(*np.array(line).T, marker="o", markersize=3, linewidth=2 if ours else 1, label=who)
        ax.set(xscale="log", yscale="log", xlabel=axis, ylabel="ms", title=name)
        ax.grid(alpha=0.3)
        if ax.lines:
            ax.legend(fontsize="x-small")
    if title:
        figure.suptitle(title, fontsize="x-small", wrap=True)
    figure.savefig(path, dpi=120)
