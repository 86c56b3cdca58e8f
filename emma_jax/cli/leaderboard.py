"""Command ``emma-jax leaderboard``."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from emma_jax.cli.application import app
from emma_jax.cli.shared import DigestOption, echo_json, open_console, progress_bar, use_compilation_cache

if TYPE_CHECKING:
    from emma_jax.release import Release


class Form(StrEnum):
    table = "table"
    md = "md"
    csv = "csv"
    json = "json"
    latex = "latex"
    html = "html"


@app.command()
def leaderboard(
    results: Annotated[
        list[Path], typer.Argument(help="Result files of `emma-jax score`, or folders of them (*.json).")
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder for the page index.html; with another format the file to write."),
    ] = None,
    form: Annotated[
        Form | None, typer.Option("--format", help="Form; a table on the screen, a page (html) with -o.")
    ] = None,
    title: Annotated[str, typer.Option("--title", help="Heading of the page.")] = "EMMA leaderboard",
    verify: Annotated[
        bool, typer.Option("--verify", help="Hash the label and prediction files that the results record first.")
    ] = False,
    rescore: Annotated[
        bool, typer.Option("--rescore", help="With --verify: also score again and compare every number.")
    ] = False,
    release: Annotated[str | None, typer.Option("--release", help="For --verify: the release folder.")] = None,
    submissions: Annotated[
        Path | None, typer.Option("--submissions", help="For --verify: a submission folder, or a folder of them.")
    ] = None,
    digest: DigestOption = None,
) -> None:
    """Ranks results of one release by OOD-avg: a table, a static page, Markdown, CSV, JSON or LaTeX."""
    form = form or (Form.table if output is None else Form.html)
    if form is Form.html and output is None:
        raise typer.BadParameter("a page needs a folder to go to", param_hint="-o")
    if form is Form.table and output is not None:
        raise typer.BadParameter("a table goes to the screen; choose md, csv, json, latex or html", param_hint="-o")
    if verify and (release is None or submissions is None):
        raise typer.BadParameter("needs --release and --submissions", param_hint="--verify")
    if not verify and (rescore or submissions is not None):
        raise typer.BadParameter("is for --verify", param_hint="--rescore" if rescore else "--submissions")
    from emma_jax.errors import ReleaseError
    from emma_jax.report import build_leaderboard, to_csv, to_latex, to_markdown, to_table
    from emma_jax.submissions import load_result

    paths = _result_files(results)
    documents = [load_result(path) for path in paths]
    board = build_leaderboard(documents, [str(path) for path in paths])
    verified = None
    if verify:
        assert release is not None and submissions is not None
        verified = _verify(paths, documents, release, submissions, digest, rescore)
    elif digest is not None and board["release"]["digest"].removeprefix("sha256:") != digest.removeprefix("sha256:"):
        text = f"results were scored against {board['release']['digest']}, not {digest}"
        raise ReleaseError(text, argument="digest")
    if form is Form.table:
        open_console().print(to_table(board))
    elif form is Form.json and output is None:
        echo_json(board)
    elif form is Form.html:
        assert output is not None
        _write_page(output, board, documents, title, verified)
    else:
        from emma_jax.io import dumps_strict

        writers = {Form.md: to_markdown, Form.csv: to_csv, Form.latex: to_latex, Form.json: dumps_strict}
        _emit(writers[form](board), output)


def _result_files(results: Sequence[Path]) -> list[Path]:
    from emma_jax.errors import EmptyEvaluationError

    paths: list[Path] = []
    for path in results:
        found = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not found:
            raise EmptyEvaluationError("there is no result (*.json) in this folder", argument=str(path))
        paths += found
    return paths


def _emit(text: str, output: Path | None) -> None:
    if output is None:
        typer.echo(text, nl=False)
        return
    from emma_jax.io import atomic_write

    atomic_write(output, text.encode())
    typer.echo(str(output))


def _write_page(
    folder: Path, board: dict[str, Any], documents: list[dict[str, Any]], title: str, verified: list[str] | None
) -> None:
    from emma_jax.report import to_html

    folder.mkdir(parents=True, exist_ok=True)
    _emit(to_html(board, documents, title=title, verified=verified), folder / "index.html")


def _verify(
    paths: Sequence[Path],
    documents: Sequence[dict[str, Any]],
    release: str,
    submissions: Path,
    digest: str | None,
    rescore: bool,
) -> list[str]:
    """What was verified of each result, one line each; every difference goes to stderr, and any is exit code 1."""
    from emma_jax.cli.shared import say
    from emma_jax.errors import SubmissionError
    from emma_jax.release import load_release
    from emma_jax.submissions import verify_result
    from emma_jax.submissions.results import find_submission

    if rescore:
        use_compilation_cache()
    loaded: Release = load_release(release, digest=digest)
    differences = 0
    with progress_bar("verifying") as show:
        for done, (path, document) in enumerate(zip(paths, documents)):
            show(done, len(paths), path.name)
            folder = find_submission(document, submissions, path.stem)
            lines = ["there is no submission folder for it"] if folder is None else []
            found = verify_result(document, release=loaded, submission=folder, rescore=rescore)
            for line in (*lines, *found):
                say(f"{path}: {line}")
                differences += 1
    if differences:
        raise SubmissionError("results differ from the files that they record", argument="--verify", count=differences)
    what = "label and prediction files hashed as recorded" + (", scored again with the same numbers" if rescore else "")
    return [what] * len(paths)
