"""``python -m bench``: command line of the benchmark. Without ``--only`` it runs every row, and then every suite: the
other scripts of this folder, each in a process of its own with its own defaults."""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax

from bench import plot, report
from bench.measure import Line, Settings, measure
from bench.rows import ROWS, WAYS, Row, Size

__all__ = ["SUITES", "main"]

SUITES = ("arrays", "text", "uncertainty", "exactness", "loop", "startup", "boards")


def _chosen(only: str | None) -> tuple[list[Row], list[str]]:
    """Rows and suites by name; a family stands for its rows ("auc" for "auc-binary" and "auc-ovr").

    Raises:
      ValueError: a name that no row and no suite answers to.
    """
    if only is None:
        return list(ROWS.values()), list(SUITES)
    wanted = [w.strip() for w in only.split(",") if w.strip()]
    answers = {w: [r for r in (*ROWS, *SUITES) if r == w or r.startswith(f"{w}-")] for w in wanted}
    unknown = [w for w, found in answers.items() if not found]
    if unknown or not wanted:
        raise ValueError(f"no row {', '.join(unknown) or only!r}; there are {', '.join((*ROWS, *SUITES))}")
    names = {name for found in answers.values() for name in found}
    return [r for name, r in ROWS.items() if name in names], [name for name in SUITES if name in names]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Times emma-jax against its peers.")
    parser.add_argument("--only", help=f"rows or suites, separated by commas: {', '.join((*ROWS, *SUITES))}")
    parser.add_argument("--n", type=int, default=1_000_000, help="samples N (default 1000000)")
    parser.add_argument("--classes", type=int, default=16, help="classes C (default 16)")
    parser.add_argument("--ways", default=",".join(WAYS), help="how ours is called (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=9, help="rounds per row (default 9)")
    parser.add_argument(
        "--budget",
        type=float,
        default=5.0,
        help="seconds after which a slow contestant sits out, once it has three samples (default 5)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what the rows measured as JSON")
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="only measure how time grows with N, C and S, and draw it (.png, .pdf)",
    )
    return parser


@contextlib.contextmanager
def _progress(name: str) -> Iterator[None]:
    """Says on a terminal what is being timed, and takes it back."""
    if not sys.stderr.isatty():
        yield
        return
    print(f"\r{name} ...", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        print(f"\r{' ' * (len(name) + 4)}\r", end="", file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark.

    Returns:
      0, or 1 if a contestant that is installed disagreed or failed. Wrong usage exits with 2.
    """
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        rows, suites = _chosen(args.only)
    except ValueError as e:
        parser.error(str(e))
    if args.classes < 2 or args.n < max(64, 2 * args.classes) or args.repeats < 1:
        parser.error("needs --classes >= 2, --n >= 64 and twice the classes, --repeats >= 1")
    ways = tuple(w.strip() for w in args.ways.split(","))
    if not set(ways) <= set(WAYS):
        parser.error(f"--ways takes {', '.join(WAYS)}")
    # First calls are to be cold whatever the environment says.
    jax.config.update("jax_enable_compilation_cache", False)
    settings = Settings(args.repeats, args.budget, tuple(w for w in WAYS if w in ways))
    machine = report.machine()
    if args.plot is not None:
        return _scaling(args, machine)
    failed = _time_rows(rows, args, settings, machine) if rows else False
    for name in suites:
        print(f"\n== python -m bench.{name}\n", flush=True)
        failed |= subprocess.run([sys.executable, "-m", f"bench.{name}"], check=False).returncode != 0
    return int(failed)


def _time_rows(rows: Sequence[Row], args: argparse.Namespace, settings: Settings, machine: dict[str, Any]) -> bool:
    """Times and prints rows, and writes them as JSON where asked; whether a contestant disagreed or failed."""
    print(report.machine_line(machine), report.header(), sep="\n\n", flush=True)
    lines: list[Line] = []
    for row in rows:
        with _progress(row.name):
            found = list(measure(row, Size(args.n, args.classes), settings))
        print(*(report.table_line(line) for line in found), sep="\n", flush=True)
        lines += found
    print(report.legend(settings), report.notes(lines), sep="\n\n")
    if args.json is not None:
        args.json.write_text(report.to_json(machine, settings, lines), encoding="utf-8")
    failed = [line for line in lines if not line.ok]
    for line in failed:
        wrong = [f"{e.name} {e.status}" for e in (line.ours, *line.peers) if e.status not in ("timed", "absent")]
        print(f"{line.row} N={line.n:,}: {', '.join(wrong)}", file=sys.stderr)
    return bool(failed)


def _scaling(args: argparse.Namespace, machine: dict[str, Any]) -> int:
    """Measures and draws the curves, up to --n samples; 1 if ours was wrong anywhere."""
    print(report.machine_line(machine), flush=True)
    points = []
    for point in plot.curves(args.n, args.repeats, lambda what: print(f"  {what}", file=sys.stderr, flush=True)):
        print(f"{point.row:<12} {point.axis}={point.at:<12,} {point.who:<16} {point.status:<9} {point.ms:.3f} ms")
        points.append(point)
    if args.json is not None:
        args.json.write_text(report.points_json(machine, points), encoding="utf-8")
    plot.draw(points, args.plot, report.machine_line(machine))
    return int(any(p.status not in ("timed", "absent") for p in points if p.who.startswith("ours")))


if __name__ == "__main__":
    sys.exit(main())
