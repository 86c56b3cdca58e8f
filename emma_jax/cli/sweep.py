"""Command ``emma-jax sweep``: many prediction files against shared labels."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from emma_jax.cli.application import app
from emma_jax.cli.shared import (
    JsonOption,
    echo_json,
    open_console,
    parse_params,
    progress_bar,
    say,
    use_compilation_cache,
)

if TYPE_CHECKING:
    from emma_jax.sweeps import PivotRow, SweepTable


@app.command()
def sweep(
    task: Annotated[str, typer.Argument(help="Task id, e.g. E-ID-FP; `emma-jax tasks` lists them.")],
    preds: Annotated[
        str,
        typer.Option(
            "--preds",
            help="Prediction files: a pattern in quotes, such as 'runs/*/preds.npz', in which {run}, {fold}, {seed} "
            "or any {name} is a * that becomes a column; or a folder.",
        ),
    ],
    labels: Annotated[
        str,
        typer.Option(
            "--labels", help="Labels that all are scored against; with {names} of --preds, a file for each value."
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Table to write, .csv or .parquet; an interrupted sweep continues from it."
        ),
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", metavar="NAME=VALUE", help="A parameter of the task, e.g. k=5.")
    ] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Don't continue the sweep that left a journal.")] = False,
    distributed: Annotated[
        bool, typer.Option("--distributed", help="Score this process's share, as SLURM or Open MPI started it.")
    ] = False,
    process: Annotated[
        int | None, typer.Option("--process", min=0, help="Number of this process, where no launcher says it.")
    ] = None,
    processes: Annotated[int | None, typer.Option("--processes", min=1, help="How many processes there are.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Scores many prediction files against shared labels; a file that cannot be scored is a row that says why."""
    params = parse_params(param or [])
    if not distributed and (process is not None or processes is not None):
        raise typer.BadParameter("is for --distributed", param_hint="--process, --processes")
    index, count = _share(process, processes) if distributed else (0, 1)
    use_compilation_cache()
    from emma_jax.sweeps import sweep_files
    from emma_jax.tasks import get_task

    scored = get_task(task, **params)
    with progress_bar(f"scoring {task}") as progress:
        table = sweep_files(
            scored,
            preds,
            labels,
            output=output,
            resume=not restart,
            process_index=index,
            process_count=count,
            progress=progress,
        )
    if as_json:
        echo_json(_document(table))
    else:
        _print(table, {m.name: m.direction for m in scored.metrics}, count)
    _say_failures(table)


def _share(process: int | None, processes: int | None) -> tuple[int, int]:
    """Number of this process and how many there are: as given, else as the launcher says."""
    from emma_jax.submissions.processes import find_launch

    # Nothing is sent between the processes of a sweep, so that it does not matter where the first one listens.
    launch = find_launch(os.environ, coordinator="localhost:1", processes=processes, process=process)
    return launch.process, launch.processes


def _document(table: SweepTable) -> dict[str, Any]:
    return {
        **table.settings,
        "complete": table.complete,
        "columns": list(table.columns),
        "rows": [dict(row) for row in table.rows],
    }


def _say_failures(table: SweepTable) -> None:
    """On stderr, how many files have no value; exit code 1 if none has one."""
    failed = [row for row in table.rows if row["status"] != "ok"]
    if not failed:
        return
    first = f"{failed[0]['path']}: {failed[0]['reason']}"
    if all(math.isnan(row[m]) for row in table.rows for m in table.metrics):
        say(f"none of {len(table)} files has a value; first: {first}")
        raise typer.Exit(1)
    say(f"{len(failed)} of {len(table)} files lack a value; first: {first}")


def _print(table: SweepTable, directions: dict[str, str], count: int) -> None:
    console = open_console()
    metric = table.metrics[0]
    lines = _pivoted(table, metric, directions[metric])
    console.print(_pivot_table(lines, metric) if lines else _best(table, directions))
    if not table.complete:
        console.print(f"{len(table)} files of this process are done; the last of {count} processes writes the table")


def _pivoted(table: SweepTable, metric: str, direction: str) -> list[PivotRow]:
    """Runs over folds and seeds, where the pattern names them and tells every file apart by them."""
    from emma_jax.errors import EvaluationError
    from emma_jax.sweeps import pivot

    if not table.complete or not {"fold", "seed"} & set(table.columns):
        return []
    try:
        return pivot(table.rows, metric, direction=direction)
    except EvaluationError:  # two files at one place
        return []


def _pivot_table(lines: Sequence[PivotRow], metric: str) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"{metric} over folds and seeds", title_justify="left")
    for head in ("run", "mean", "sd over seeds", "sd over folds", "worst fold", "worst", "folds", "seeds", "missing"):
        table.add_column(head, justify="left" if head in ("run", "worst fold") else "right")
    for line in lines:
        numbers = [_number(v) for v in (line.mean, line.sd_seeds, line.sd_folds)]
        counts = [str(v) for v in (line.num_folds, line.num_seeds, line.num_missing)]
        table.add_row(Text(line.run), *numbers, Text(line.worst_fold), _number(line.worst), *counts)
    return table


def _best(sweep: SweepTable, directions: dict[str, str], most: int = 10) -> Any:
    """The best files by the first metric."""
    from rich.table import Table
    from rich.text import Text

    metric = sweep.metrics[0]
    ranked = [row for row in sweep.rows if not math.isnan(row[metric])]
    ranked.sort(key=lambda row: row[metric], reverse=directions[metric] == "higher")
    shown = f"the best {most} of {len(sweep)}" if len(ranked) > most else f"{len(sweep)}"
    table = Table(title=f"{shown} files by {metric}", title_justify="left")
    table.add_column("path")
    for name in sweep.metrics:
        table.add_column(name, justify="right")
    for row in ranked[:most]:
        table.add_row(Text(row["path"]), *(_number(row[name]) for name in sweep.metrics))
    return table


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.6g}"
