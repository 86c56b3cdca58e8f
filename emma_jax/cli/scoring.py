"""Commands that list tasks and score: ``tasks``, ``evaluate``, ``score``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from emma_jax.cli.application import app
from emma_jax.cli.shared import (
    DigestOption,
    JsonOption,
    MaxBytesOption,
    busy,
    echo_json,
    open_console,
    parse_params,
    progress_bar,
    use_compilation_cache,
)

if TYPE_CHECKING:
    from emma_jax.scores import Scores
    from emma_jax.tasks import Task


@app.command()
def tasks(as_json: JsonOption = False) -> None:
    """Lists every task: what it takes, its metrics (the first one ranks), and whether OOD-avg averages it."""
    from emma_jax.tasks import list_tasks

    if as_json:
        echo_json({"tasks": [_task_entry(task) for task in list_tasks()]})
        return
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for head in ("task", "preds", "labels", "metrics", "better", "unit", "in OOD-avg"):
        table.add_column(head)
    for task in list_tasks():
        metrics = ((m.name, m.direction, m.unit) for m in task.metrics)
        columns = ("\n".join(column) for column in zip(*metrics))
        # Text: the shapes stand in square brackets, which would be markup
        table.add_row(task.id, Text(task.preds), Text(task.labels), *columns, "yes" if task.in_ood_avg else "no")
    open_console().print(table)


def _task_entry(task: Task) -> dict[str, Any]:
    return {
        "id": task.id,
        "preds": task.preds,
        "labels": task.labels,
        "sample_axes": task.sample_axes,
        "metrics": [{"name": m.name, "direction": m.direction, "unit": m.unit} for m in task.metrics],
        "params": task.params,
        "in_ood_avg": task.in_ood_avg,
    }


@app.command()
def evaluate(
    task: Annotated[str, typer.Argument(help="Task id, e.g. E-LOC-AOA; `emma-jax tasks` lists them.")],
    preds: Annotated[
        Path, typer.Option("--preds", help="Predictions: .npz, .npy, .csv, .jsonl, .h5; Touchstone for EMVal-SP.")
    ],
    labels: Annotated[Path, typer.Option("--labels", help="Labels, in any of these formats; the same file will do.")],
    param: Annotated[
        list[str] | None, typer.Option("--param", metavar="NAME=VALUE", help="A parameter of the task, e.g. k=5.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Scores a prediction file against a label file."""
    params = parse_params(param or [])
    use_compilation_cache()
    from emma_jax.errors import DegenerateLabelsError
    from emma_jax.evaluate import evaluate as evaluate_task
    from emma_jax.evaluate import evaluate_groups
    from emma_jax.submissions import group_entries
    from emma_jax.tasks import get_task

    scored = get_task(task, **params)
    try:
        with busy("scoring"):
            rows, truth = _task_arrays(task, preds, labels)
            scores = evaluate_task(scored, rows, truth.labels, where=truth.where, lengths=truth.lengths)
    except DegenerateLabelsError as error:
        if as_json:  # whoever parses stdout finds JSON there, also for a value that does not exist
            echo_json(
                {"task": task, "metrics": {m.name: {"value": None, "reason": str(error)} for m in scored.metrics}}
            )
        raise
    groups = None
    if truth.groups is not None:
        groups = group_entries(
            evaluate_groups(
                scored,
                rows,
                truth.labels,
                truth.groups,
                num_groups=len(truth.group_names),
                where=truth.where,
                lengths=truth.lengths,
            ),
            truth.group_names,
        )
    if as_json:
        echo_json(scores.to_dict() | ({"groups": groups} if groups else {}))
    else:
        _print_scores(scores, groups)


def _task_arrays(task: str, preds: Path, labels: Path) -> tuple[Any, Any]:
    """Predictions in the order of the labels, and the labels, as the task takes them."""
    from emma_jax.emval.layout import is_touchstone
    from emma_jax.io import read_labels, read_predictions
    from emma_jax.io.read import Labels
    from emma_jax.submissions import align

    if task == "EMVal-NF" or (task == "EMVal-SP" and (is_touchstone(preds) or is_touchstone(labels))):
        from emma_jax.emval import load_files

        pair = load_files(labels, preds, task.removeprefix("EMVal-"))
        if pair.fields is not None:
            t, p = pair.fields
            return {"E": p.e, "H": p.h}, Labels({"E": t.e, "H": t.h}, None, t.where, None, (), str(labels))
        assert pair.sparams is not None
        a, b = pair.sparams
        return b.s, Labels(a.s, None, a.where, None, (), str(labels))
    truth = read_labels(labels)
    return align(read_predictions(preds), truth), truth


def _print_scores(scores: Scores, groups: Mapping[str, Any] | None) -> None:
    from rich.table import Table
    from rich.text import Text

    info = {i.name: i for i in scores.info}
    table = Table(title=scores.task, title_justify="left")
    for head in ("metric", "value", "unit", "better", "validity", "further"):
        table.add_column(head, justify="right" if head == "value" else "left")
    for name, value in scores.items():
        counts = {k: v for k, v in scores.validity[name].as_dict().items() if v or k in ("n", "n_used")}
        unit, direction = (info[name].unit, info[name].direction) if name in info else ("", "")
        further = ", ".join(f"{k} {float(v):.6g}" for k, v in scores.aux[name].items())
        table.add_row(name, f"{value:.6g}", unit, direction, ", ".join(f"{k} {v}" for k, v in counts.items()), further)
    console = open_console()
    console.print(table)
    if groups:
        table = Table(title="groups", title_justify="left")
        table.add_column("group")
        for name in scores:
            table.add_column(name, justify="right")
            table.add_column("n_used", justify="right")
        for group, entry in groups.items():
            cells = [(f"{entry[m]['value']:.6g}", str(entry[m]["n_used"])) for m in scores]
            table.add_row(Text(group), *(cell for pair in cells for cell in pair))
        console.print(table)


@app.command()
def score(
    submission: Annotated[Path, typer.Argument(help="Submission folder: submission.toml and preds/<task>/<fold>.npz.")],
    release: Annotated[str, typer.Option("--release", help="Release folder or manifest.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Result file (JSON) to write.")] = None,
    digest: DigestOption = None,
    distributed: Annotated[
        bool, typer.Option("--distributed", help="One of several processes: each scores a share, the first writes.")
    ] = False,
    coordinator: Annotated[
        str | None, typer.Option("--coordinator", metavar="HOST:PORT", help="Where process 0 listens.")
    ] = None,
    processes: Annotated[int | None, typer.Option("--processes", help="How many processes; SLURM's or MPI's.")] = None,
    process: Annotated[int | None, typer.Option("--process", help="Number of this one, from 0; likewise.")] = None,
    heartbeat: Annotated[
        float, typer.Option("--heartbeat", min=1.0, help="Seconds of silence after which a process counts as lost.")
    ] = 20.0,
    bootstrap: Annotated[
        int, typer.Option("--bootstrap", min=0, max=100_000, help="Resamples for 95% intervals; 0 for none.")
    ] = 0,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the resamples.")] = 0,
    max_bytes: MaxBytesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Scores a submission against a release: OOD-avg, every task and fold, the sim-to-real gap."""
    if not distributed and (coordinator, processes, process) != (None, None, None):
        raise typer.BadParameter("is for --distributed", param_hint="--coordinator, --processes, --process")
    use_compilation_cache()
    from emma_jax.release import load_release
    from emma_jax.submissions import Limits, score_submission, write_result

    limits = Limits() if max_bytes is None else Limits(file_bytes=max_bytes)

    def finish(result: dict[str, Any]) -> None:
        if output is not None:
            write_result(result, output)

    with progress_bar("scoring") as progress:
        if distributed:
            from emma_jax.submissions.processes import find_launch, score_distributed

            launch = find_launch(os.environ, coordinator=coordinator, processes=processes, process=process)
            shared = score_distributed(
                submission,
                release,
                launch,
                digest=digest,
                progress=progress,
                limits=limits,
                num_resamples=bootstrap,
                seed=seed,
                heartbeat_s=heartbeat,
                finish=finish,
            )
            if shared is None:
                return
            result = shared
        else:
            loaded = load_release(release, digest=digest)
            result = score_submission(submission, loaded, progress=progress, limits=limits)
            if bootstrap:
                from emma_jax.submissions import add_intervals

                result = add_intervals(result, submission, loaded, num_resamples=bootstrap, seed=seed, limits=limits)
            finish(result)
    if as_json:
        echo_json(result)
        return
    from emma_jax.report import build_leaderboard, to_table

    open_console().print(to_table(build_leaderboard([result])))
