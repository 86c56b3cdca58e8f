"""Commands ``emma-jax submission ...``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from emma_jax.cli.application import app
from emma_jax.cli.shared import DigestOption, JsonOption, MaxBytesOption, echo_json, progress_bar, use_compilation_cache

submission_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Checks submissions before they are sent in."
)
app.add_typer(submission_app, name="submission")


@submission_app.callback()
def _group() -> None:
    """Keeps ``check`` a command of its own: a group of one command would lose its name."""


@submission_app.command()
def check(
    directory: Annotated[Path, typer.Argument(help="Submission folder: submission.toml and preds/<task>/<fold>.npz.")],
    release: Annotated[str, typer.Option("--release", help="Release folder or manifest.")],
    max_bytes: MaxBytesOption = None,
    digest: DigestOption = None,
    as_json: JsonOption = False,
) -> None:
    """Says all that keeps a submission from being scored, with file and row; exit code 1 if there is anything."""
    use_compilation_cache()
    from emma_jax.release import load_release
    from emma_jax.submissions import Limits, check_submission

    limits = Limits() if max_bytes is None else Limits(file_bytes=max_bytes)
    loaded = load_release(release, digest=digest)
    with progress_bar("checking") as progress:
        problems = check_submission(directory, loaded, progress=progress, limits=limits)
    if as_json:
        entries = [{"file": p.file, "row": p.row, "message": p.message, "kind": p.kind} for p in problems]
        echo_json({"release": {"name": loaded.name, "digest": loaded.digest}, "problems": entries})
    elif problems:
        for problem in problems:
            typer.echo("".join(c if c.isprintable() else " " for c in str(problem)))
        typer.echo(f"{len(problems)} problem{'s' * (len(problems) != 1)} found")
    else:
        typer.echo(f"ready to be scored against {loaded.name} ({loaded.digest})")
    if problems:
        raise typer.Exit(1)
