"""The command line ``emma-jax``: commands, and nothing else.

Exit codes: 0; 1 for input that is wrong, with one line on stderr that says what and where; 2 for wrong usage; 130 when
interrupted. Everything but typer is imported inside the commands, so that ``--help`` answers at once.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

if TYPE_CHECKING:
    from rich.console import Console

    from emma_jax.scores import Scores
    from emma_jax.tasks import Task

__all__ = ["app", "main"]


class _Commands(typer.core.TyperGroup):
    """Turns errors about input into one line and exit code 1, for every command."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            _say("interrupted")
            raise typer.Exit(130) from None
        except BrokenPipeError:  # the reader of a pipe went away; typer ends quietly
            raise
        except (OSError, ValueError, MemoryError, ImportError) as error:
            message = _input_error(error)
            if message is None:
                raise
            _say(message)
            raise typer.Exit(1) from None


def _input_error(error: Exception) -> str | None:
    """What to say of an error that the input caused; None for any other, which is a bug and keeps its traceback."""
    from emma_jax.errors import EvaluationError

    if isinstance(error, EvaluationError):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    if isinstance(error, ImportError):
        return str(error) if "pip install 'emma-jax[" in str(error) else None
    return "out of memory" if isinstance(error, MemoryError) else None


def _say(message: str) -> None:
    """One line on stderr, whatever a file's name or content put into the message."""
    line = "".join(c if c.isprintable() else " " for c in message)
    typer.echo(f"emma-jax: {re.sub(' +', ' ', line).strip()}", err=True)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # help without importing rich: 0.13 s instead of 0.3 s
    help="Scores RF and electromagnetic machine learning: metrics, releases, submissions, leaderboard.",
)
release_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Freezes and verifies releases: labels, parameters and anchors."
)
app.add_typer(release_app, name="release")
emval_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="EMVal: near fields and S-parameters of boards, scored, checked and drawn.",
)
app.add_typer(emval_app, name="emval")


def main() -> None:
    """Entry point of ``emma-jax``."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and "utf" not in stream.encoding.lower():
            # a terminal shows what it can; a file or pipe gets UTF-8, which is what JSON, Markdown and CSV are in
            if stream.isatty():
                stream.reconfigure(errors="replace")
            else:
                stream.reconfigure(encoding="utf-8")
    app()


def _version(wanted: bool) -> None:
    if wanted:
        from emma_jax import __version__

        typer.echo(f"emma-jax {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


# --- What several commands share ---------------------------------------------------------------------------------


def _use_compilation_cache() -> None:
    """Keeps compiled kernels between runs, in JAX_COMPILATION_CACHE_DIR or the user's cache folder."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    from jax import config

    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.path.join(home, "emma-jax", "xla")
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError:
        return  # a cache is no reason to fail
    if os.access(folder, os.W_OK):
        config.update("jax_compilation_cache_dir", folder)  # type: ignore[no-untyped-call]
        # kernels compile in 0.1 s each, below the default threshold of one second, and there are many
        config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # type: ignore[no-untyped-call]


def _console(*, err: bool = False) -> Console:
    from rich.console import Console

    console = Console(stderr=err, highlight=False)
    if not console.is_terminal:
        console.width = 240  # a file or pipe has no width to fold at
    return console


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int, str], None]]:
    """A progress bar on stderr, gone at the end, and not there at all where stderr is no terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = _console(err=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)

        def show(done: int, total: int, item: str) -> None:
            bar.update(task, completed=done, total=total, description=f"{what} {item}")

        yield show


@contextmanager
def _busy(what: str) -> Iterator[None]:
    """A spinner on stderr, where that is a terminal."""
    console = _console(err=True)
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


def _echo_json(value: Any) -> None:
    from emma_jax.io import dumps_strict

    typer.echo(dumps_strict(value), nl=False)


def _params(pairs: Sequence[str]) -> dict[str, Any]:
    """``k=5`` as {"k": 5}: numbers, true, false and null as in JSON, lists too, anything else is text."""
    from emma_jax.io.strict import strict_decode

    params: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.isidentifier():
            raise typer.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint="--param")
        if name in params:
            raise typer.BadParameter(f"{name} is given twice", param_hint="--param")
        try:
            value = strict_decode(text)
        except (ValueError, RecursionError):
            value = text
        params[name] = tuple(value) if isinstance(value, list) else value
    return params


# --- Commands ----------------------------------------------------------------------------------------------------


class TableFormat(StrEnum):
    table = "table"
    md = "md"
    csv = "csv"
    json = "json"


_Json = Annotated[bool, typer.Option("--json", help="Print strict JSON instead of a table.")]
_Digest = Annotated[
    str | None, typer.Option("--digest", help="Digest the release has to have, from a source its editor cannot change.")
]


@app.command()
def tasks(as_json: _Json = False) -> None:
    """Lists every task: what it takes, its metrics (the first one ranks), and whether OOD-avg averages it."""
    from emma_jax.tasks import list_tasks

    if as_json:
        _echo_json({"tasks": [_task_entry(task) for task in list_tasks()]})
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
    _console().print(table)


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
    as_json: _Json = False,
) -> None:
    """Scores a prediction file against a label file."""
    params = _params(param or [])
    _use_compilation_cache()
    from emma_jax.errors import DegenerateLabelsError
    from emma_jax.evaluate import evaluate as evaluate_task
    from emma_jax.evaluate import evaluate_groups
    from emma_jax.submissions import group_entries
    from emma_jax.tasks import get_task

    scored = get_task(task, **params)
    try:
        with _busy("scoring"):
            rows, truth = _task_arrays(task, preds, labels)
            scores = evaluate_task(scored, rows, truth.labels, where=truth.where, lengths=truth.lengths)
    except DegenerateLabelsError as error:
        if as_json:  # whoever parses stdout finds JSON there, also for a value that does not exist
            _echo_json(
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
        _echo_json(scores.to_dict() | ({"groups": groups} if groups else {}))
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
    console = _console()
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
    digest: _Digest = None,
    as_json: _Json = False,
) -> None:
    """Scores a submission against a release: OOD-avg, every task and fold, the sim-to-real gap."""
    _use_compilation_cache()
    from emma_jax.release import load_release
    from emma_jax.submissions import score_submission, write_result

    loaded = load_release(release, digest=digest)
    with _progress("scoring") as progress:
        result = score_submission(submission, loaded, progress=progress)
    if output is not None:
        write_result(result, output)
    if as_json:
        _echo_json(result)
        return
    from emma_jax.report import build_leaderboard, to_table

    _console().print(to_table(build_leaderboard([result])))


@app.command()
def leaderboard(
    results: Annotated[
        list[Path], typer.Argument(help="Result files of `emma-jax score`, or folders of them (*.json).")
    ],
    form: Annotated[TableFormat, typer.Option("--format", help="What to print.")] = TableFormat.table,
) -> None:
    """Ranks results of one release by OOD-avg."""
    from emma_jax.errors import EmptyEvaluationError
    from emma_jax.report import build_leaderboard, to_csv, to_markdown, to_table
    from emma_jax.submissions import load_result

    paths: list[Path] = []
    for path in results:
        found = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not found:
            raise EmptyEvaluationError("there is no result (*.json) in this folder", argument=str(path))
        paths += found
    board = build_leaderboard([load_result(path) for path in paths], [str(path) for path in paths])
    if form is TableFormat.json:
        _echo_json(board)
    elif form is TableFormat.table:
        _console().print(to_table(board))
    else:
        typer.echo(to_markdown(board) if form is TableFormat.md else to_csv(board), nl=False)


@release_app.command()
def freeze(
    directory: Annotated[Path, typer.Argument(help="Folder with release.toml and labels/<task>/<fold>.npz.")],
) -> None:
    """Pins every label file by its sha256 and writes the final release.json; prints its digest."""
    from emma_jax.release import freeze_release

    with _busy("hashing label files"):
        release = freeze_release(directory)
    typer.echo(f"{release.name} frozen: {release.digest}")


@release_app.command()
def verify(
    directory: Annotated[str, typer.Argument(help="Release folder, manifest, or name of a shipped release.")],
    digest: _Digest = None,
) -> None:
    """Checks manifest, digest and every label file."""
    from emma_jax.release import load_release

    release = load_release(directory, digest=digest)
    with _busy("verifying label files"):
        files = release.verify(digest)
    state = "frozen" if release.frozen else "not frozen"
    typer.echo(f"{release.name} ({state}), {len(files)} label files as pinned: {release.digest}")


class Protocol(StrEnum):
    near_field = "NF"
    sparams = "SP"
    both = "both"


_Truth = Annotated[Path, typer.Argument(help="Simulation or measurement: a file, or the folder of a data set.")]
_Pred = Annotated[Path, typer.Argument(help="Prediction: the same.")]
_ProtocolOption = Annotated[
    Protocol | None,
    typer.Option("--protocol", help="Near fields, S-parameters or both; SP for Touchstone files, else both."),
]
_KeyMapOption = Annotated[
    Path | None, typer.Option("--key-map", help="TOML file with dataset names and axis orders of the truth.")
]
_PredKeyMapOption = Annotated[
    Path | None, typer.Option("--pred-key-map", help="The same for the prediction; that of the truth by default.")
]
_Ports = Annotated[
    str | None, typer.Option("--ports", metavar="1,2,..", help="Score these ports of two Touchstone files alone.")
]
_Pick = Annotated[bool, typer.Option("--pick", help="Let the prediction have further frequencies (Touchstone).")]


@emval_app.command("score")
def emval_score(
    truth: _Truth,
    pred: _Pred,
    protocol: _ProtocolOption = None,
    key_map: _KeyMapOption = None,
    pred_key_map: _PredKeyMapOption = None,
    ports: _Ports = None,
    pick: _Pick = False,
    groups: Annotated[
        str | None, typer.Option("--groups", metavar="NAME,..", help="Score these groups of a data set alone.")
    ] = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Leave out boards without prediction; marks the result.")
    ] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Don't continue the run that left a journal.")] = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Result file (JSON); an interrupted run on a data set continues from it."),
    ] = None,
    as_json: _Json = False,
) -> None:
    """Scores predicted near fields and S-parameters: one file against another, or a data set of boards."""
    _use_compilation_cache()
    from emma_jax.files import atomic_write
    from emma_jax.io import dumps_strict

    maps = _key_maps(key_map, pred_key_map)
    if _are_folders(truth, pred):
        _no_option(ports is not None, "--ports", "for two Touchstone files")
        _no_option(pick, "--pick", "for two Touchstone files")
        scores = _score_boards(truth, pred, protocol, maps, _names(groups), allow_missing, output, not restart)
        document = scores.to_dict()
    else:
        for given, name in ((groups is not None, "--groups"), (allow_missing, "--allow-missing")):
            _no_option(given, name, "for the folders of a data set")
        from emma_jax.emval import score_files

        with _busy("scoring"):
            chosen = _file_protocol(protocol, truth, pred)
            document = score_files(truth, pred, chosen, **maps, ports=_numbers(ports), pick=pick).to_document()
        if output is not None:
            atomic_write(output, dumps_strict(document).encode())
    if as_json:
        _echo_json(document)
        return
    from emma_jax.report import board_tables

    console = _console()
    for part in board_tables(document):
        console.print(part, soft_wrap=isinstance(part, str), markup=False)


@emval_app.command("check")
def emval_check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Touchstone, .npz or .h5 with S-parameters.")],
    key_map: Annotated[
        Path | None, typer.Option("--key-map", help="TOML file with dataset names and axis orders.")
    ] = None,
    as_json: _Json = False,
) -> None:
    """Checks S-parameters: passivity, reciprocity, causality, and the IEEE 370 quality figures with their grades."""
    from emma_jax.emval import check_sparams
    from emma_jax.emval.keymap import KeyMap, load_key_map
    from emma_jax.emval.layout import is_touchstone, read_sparams
    from emma_jax.io import read_touchstone

    keys = (load_key_map(key_map) if key_map is not None else KeyMap()).sparams
    found = {}
    for path in files:
        # for these checks it does not matter what the ports refer to, so comments that contradict are no error here
        data = read_touchstone(path) if is_touchstone(path) else read_sparams(path, keys)
        with _naming_file(path):
            found[str(path)] = check_sparams(data.s, data.frequency_hz).to_dict()
    if as_json:
        _echo_json({"files": found})
        return
    from emma_jax.report import checks_table

    short = {Path(path).name: check for path, check in found.items()}
    _console().print(checks_table(short if len(short) == len(found) else found))


@emval_app.command("plot")
def emval_plot(
    truth: _Truth,
    pred: _Pred,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder for the pictures, or one .png or .pdf file with all of them.")
    ],
    protocol: _ProtocolOption = None,
    key_map: _KeyMapOption = None,
    pred_key_map: _PredKeyMapOption = None,
    ports: _Ports = None,
    pick: _Pick = False,
    board: Annotated[
        str | None, typer.Option("--board", help="Draw this board of a data set; the worst one by default.")
    ] = None,
    result: Annotated[
        Path | None, typer.Option("--result", help="Result file of the data set; it is scored without one.")
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="How many of the worst boards to show.")] = 10,
) -> None:
    """Draws truth against prediction: S-parameters, Smith chart, local errors, field slices; the worst boards."""
    maps = _key_maps(key_map, pred_key_map)
    from emma_jax.report import draw_boards, draw_pair
    from emma_jax.report.plots import is_picture

    written: list[Path] = []
    if _are_folders(truth, pred):
        from emma_jax.emval import load_board

        chosen = _dataset_protocol(protocol)
        if result is not None or board is None:
            document = _result_or_score(result, truth, pred, chosen, maps)
            written += draw_boards(document, output, count=count)
            metric = next(iter(document["boards"][0]["values"]))
            worst = max(document["boards"], key=lambda b: float(b["values"][metric]))
            board, chosen = board or f"{worst['group']}/{worst['id']}", document["protocol"]
        if not written or not is_picture(output):  # one file has room for one picture
            with _busy(f"drawing {board}"):
                pair = load_board(truth, pred, board, chosen, **maps)
                written += draw_pair(pair, output)
    else:
        from emma_jax.emval import load_files

        with _busy("drawing"):
            chosen = _file_protocol(protocol, truth, pred)
            pair = load_files(truth, pred, chosen, **maps, ports=_numbers(ports), pick=pick)
            written += draw_pair(pair, output)
    for path in written:
        typer.echo(str(path))


def _key_maps(truth: Path | None, pred: Path | None) -> dict[str, Any]:
    """Arguments ``key_map`` and ``pred_key_map``; one map that is given counts for both sides."""
    from emma_jax.emval.keymap import KeyMap, load_key_map

    first = load_key_map(truth) if truth is not None else KeyMap()
    return {"key_map": first, "pred_key_map": load_key_map(pred) if pred is not None else first}


def _are_folders(truth: Path, pred: Path) -> bool:
    if truth.is_dir() != pred.is_dir() and truth.exists() and pred.exists():
        folder, file = (truth, pred) if truth.is_dir() else (pred, truth)
        raise typer.BadParameter(f"{folder} is a folder, but {file} is a file")
    return truth.is_dir() and pred.is_dir()


def _no_option(given: bool, name: str, what: str) -> None:
    if given:
        raise typer.BadParameter(f"is {what}", param_hint=name)


def _dataset_protocol(protocol: Protocol | None) -> str:
    return str(protocol or Protocol.both)


def _file_protocol(protocol: Protocol | None, *files: Path) -> str:
    """Touchstone files hold S-parameters and nothing else."""
    from emma_jax.emval.layout import is_touchstone

    return str(protocol or (Protocol.sparams if any(map(is_touchstone, files)) else Protocol.both))


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]


def _numbers(text: str | None) -> list[int] | None:
    names = _names(text)
    if names is None:
        return None
    if not all(name.isascii() and name.isdigit() for name in names):
        raise typer.BadParameter(f"{text!r} is not a list of port numbers", param_hint="--ports")
    return [int(name) for name in names]


@contextmanager
def _naming_file(path: Path) -> Iterator[None]:
    """Puts the file's name in front of an error about its content."""
    from emma_jax.errors import EvaluationError

    try:
        yield
    except EvaluationError as error:
        raise type(error)(f"{path}: {error}") from error


def _score_boards(
    truth: Path,
    pred: Path,
    protocol: Protocol | None,
    maps: dict[str, Any],
    groups: list[str] | None,
    allow_missing: bool,
    output: Path | None,
    resume: bool,
) -> Any:
    from emma_jax.emval import score_boards

    with _progress("scoring") as progress:

        def show(done: int, total: int, board: str) -> None:
            group, _, name = board.rpartition("/")
            progress(done, total, f"{group}/{name[:10]}" if name else "")

        return score_boards(
            truth,
            pred,
            _dataset_protocol(protocol),
            **maps,
            groups=groups,
            allow_missing=allow_missing,
            output=output,
            resume=resume,
            progress=show,
        )


def _result_or_score(
    result: Path | None, truth: Path, pred: Path, protocol: str, maps: dict[str, Any]
) -> Mapping[str, Any]:
    if result is not None:
        from emma_jax.emval import load_result

        return load_result(result)
    _use_compilation_cache()
    scores = _score_boards(truth, pred, Protocol(protocol), maps, None, False, None, True)
    document: Mapping[str, Any] = scores.to_dict()
    return document


@app.command()
def demo(
    out: Annotated[
        Path | None, typer.Option("--out", help="New folder to leave everything in; a temporary one else.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of all randomness.")] = 0,
    em: Annotated[
        bool, typer.Option("--em", help="Electromagnetic scenes instead: each score beside what theory says.")
    ] = False,
) -> None:
    """Makes a release from physics, scores three classical submissions on it, and prints the leaderboard."""
    _use_compilation_cache()
    if em:
        from emma_jax.demo.em import run_em_demo

        run_em_demo(out, seed, _console())
        return
    from emma_jax.demo.run import run_demo

    run_demo(out, seed, _console())
