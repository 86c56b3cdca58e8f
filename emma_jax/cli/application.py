"""The application: its options and groups of commands. Each group is one file, which `emma_jax.cli` loads."""

from __future__ import annotations

from typing import Annotated

import typer

from emma_jax.cli.shared import Commands

app = typer.Typer(
    cls=Commands,
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
