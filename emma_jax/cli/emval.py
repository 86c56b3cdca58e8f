"""Commands ``emma-jax emval ...``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from emma_jax.cli.application import emval_app
from emma_jax.cli.shared import (
    JsonOption,
    busy,
    echo_json,
    open_console,
    progress_bar,
    use_compilation_cache,
)


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
    as_json: JsonOption = False,
) -> None:
    """Scores predicted near fields and S-parameters: one file against another, or a data set of boards."""
    use_compilation_cache()
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

        with busy("scoring"):
            chosen = _file_protocol(protocol, truth, pred)
            document = score_files(truth, pred, chosen, **maps, ports=_numbers(ports), pick=pick).to_document()
        if output is not None:
            atomic_write(output, dumps_strict(document).encode())
    if as_json:
        echo_json(document)
        return
    from emma_jax.report import board_tables

    console = open_console()
    for part in board_tables(document):
        console.print(part, soft_wrap=isinstance(part, str), markup=False)


@emval_app.command("check")
def emval_check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Touchstone, .npz or .h5 with S-parameters.")],
    key_map: Annotated[
        Path | None, typer.Option("--key-map", help="TOML file with dataset names and axis orders.")
    ] = None,
    as_json: JsonOption = False,
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
        echo_json({"files": found})
        return
    from emma_jax.report import checks_table

    short = {Path(path).name: check for path, check in found.items()}
    open_console().print(checks_table(short if len(short) == len(found) else found))


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
            with busy(f"drawing {board}"):
                pair = load_board(truth, pred, board, chosen, **maps)
                written += draw_pair(pair, output)
    else:
        from emma_jax.emval import load_files

        with busy("drawing"):
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

    with progress_bar("scoring") as progress:

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
    use_compilation_cache()
    scores = _score_boards(truth, pred, Protocol(protocol), maps, None, False, None, True)
    document: Mapping[str, Any] = scores.to_dict()
    return document
