"""Commands ``emma-jax release ...``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from emma_jax.cli.application import release_app
from emma_jax.cli.shared import (
    DigestOption,
    busy,
)


@release_app.command()
def freeze(
    directory: Annotated[Path, typer.Argument(help="Folder with release.toml and labels/<task>/<fold>.npz.")],
) -> None:
    """Pins every label file by its sha256 and writes the final release.json; prints its digest."""
    from emma_jax.release import freeze_release

    with busy("hashing label files"):
        release = freeze_release(directory)
    typer.echo(f"{release.name} frozen: {release.digest}")


@release_app.command()
def verify(
    directory: Annotated[str, typer.Argument(help="Release folder, manifest, or name of a shipped release.")],
    digest: DigestOption = None,
) -> None:
    """Checks manifest, digest and every label file."""
    from emma_jax.release import load_release

    release = load_release(directory, digest=digest)
    with busy("verifying label files"):
        files = release.verify(digest)
    state = "frozen" if release.frozen else "not frozen"
    typer.echo(f"{release.name} ({state}), {len(files)} label files as pinned: {release.digest}")
