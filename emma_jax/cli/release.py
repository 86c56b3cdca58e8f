"""Commands ``emma-jax release ...``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from emma_jax.cli.application import release_app
from emma_jax.cli.shared import DigestOption, JsonOption, busy, echo_json, use_compilation_cache

_Place = Annotated[str, typer.Argument(help="Release folder, manifest, or name of a shipped release.")]


@release_app.command()
def new(
    labels: Annotated[Path, typer.Argument(help="Folder with <task>/<fold>.npz; real.npz for real captures.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Release folder to make; new or empty.")],
    name: Annotated[str, typer.Option("--name", help="Name of the release.")],
    axis: Annotated[str, typer.Option("--axis", help="What folds hold out: environment, band, unit.")] = "environment",
    training: Annotated[
        Path | None, typer.Option("--training", help="Folder of labels to learn floors from; else the other folds.")
    ] = None,
) -> None:
    """Makes a release folder from label files: floors measured, anchors proposed, nothing frozen yet."""
    use_compilation_cache()
    from emma_jax.maintenance import new_release

    with busy("measuring floors"):
        release, floors = new_release(labels, output, name=name, axis=axis, training=training)
    for task, found in floors.items():
        entry = release.tasks[task]
        unit = "" if entry.unit == "1" else f" {entry.unit}"
        values = ", ".join(f"{floor.name} {floor.value:.4g}{unit}" for floor in found) or "no documented floor"
        anchor = entry.anchor
        proposed = f"; anchors proposed: {anchor.m_min:.4g} to {anchor.m_max:.4g}{unit}" if anchor else ""
        typer.echo(f"{task} ({len(entry.folds)} folds): {values}{proposed}")
    typer.echo(
        f"{release.name} drafted: look through {output / 'release.toml'}, then `emma-jax release freeze {output}`"
    )


@release_app.command()
def freeze(
    directory: Annotated[Path, typer.Argument(help="Folder with release.toml and labels/<task>/<fold>.npz.")],
) -> None:
    """Pins every label file by its sha256 and writes the final release.json; prints its digest.

    Runs the self-test first: an installation that does not score by its protocol freezes nothing.
    """
    use_compilation_cache()
    from emma_jax.maintenance import checked_freeze

    with busy("self-test, hashing label files"):
        release = checked_freeze(directory)
    typer.echo(f"{release.name} frozen: {release.digest}")


@release_app.command()
def verify(directory: _Place, digest: DigestOption = None) -> None:
    """Checks manifest, digest and every label file."""
    from emma_jax.release import load_release

    release = load_release(directory, digest=digest)
    with busy("verifying label files"):
        files = release.verify(digest)
    state = "frozen" if release.frozen else "not frozen"
    typer.echo(f"{release.name} ({state}), {len(files)} label files as pinned: {release.digest}")


@release_app.command()
def diff(
    old: _Place,
    new: _Place,
    as_json: JsonOption = False,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 1 if there is any difference.")] = False,
) -> None:
    """Says what changed between two releases: tasks, metrics, parameters, anchors, folds, label files."""
    from dataclasses import asdict

    from emma_jax.maintenance import release_changes
    from emma_jax.release import load_release

    a, b = load_release(old), load_release(new)
    changes = release_changes(a, b)
    if as_json:
        echo_json({"old": a.digest, "new": b.digest, "changes": [asdict(change) for change in changes]})
    else:
        for change in changes:
            typer.echo("".join(c if c.isprintable() else " " for c in str(change)))
        moving = sum(change.moves_scores for change in changes)
        typer.echo(f"{len(changes)} differences, {moving} of them can move a score" if changes else "no difference")
    if changes and exit_code:
        raise typer.Exit(1)


@release_app.command()
def croissant(
    directory: _Place,
    output: Annotated[Path, typer.Option("-o", "--output", help="JSON-LD file to write.")],
    url: Annotated[str, typer.Option("--url", help="Page of the dataset.")],
    license: Annotated[str, typer.Option("--license", help="Address or SPDX name of the licence of the labels.")],
    creator: Annotated[str, typer.Option("--creator", help="Who made them.")],
    date: Annotated[str, typer.Option("--date", metavar="YYYY-MM-DD", help="Date of publication.")],
    description: Annotated[str | None, typer.Option("--description", help="In words.")] = None,
    version: Annotated[str, typer.Option("--dataset-version", help="MAJOR.MINOR.PATCH.")] = "1.0.0",
    cite_as: Annotated[str | None, typer.Option("--cite-as", help="How to cite it.")] = None,
) -> None:
    """Writes the Croissant 1.0 metadata of a release: every label file with its size and sha256."""
    from emma_jax.io import atomic_write, dumps_strict
    from emma_jax.maintenance import croissant_metadata
    from emma_jax.release import load_release

    metadata = croissant_metadata(
        load_release(directory),
        url=url,
        license=license,
        creator=creator,
        date_published=date,
        description=description,
        version=version,
        cite_as=cite_as,
    )
    atomic_write(output, dumps_strict(metadata).encode())
    typer.echo(str(output))


@release_app.command()
def selftest() -> None:
    """Scores fixed inputs and compares with golden answers; exit code 1 if scoring is not that of its protocol."""
    use_compilation_cache()
    from emma_jax.maintenance import golden_deviations
    from emma_jax.release import PROTOCOL_VERSION

    with busy("scoring golden inputs"):
        deviations = golden_deviations()
    for deviation in deviations:
        typer.echo(str(deviation))
    if deviations:
        raise typer.Exit(1)
    typer.echo(f"scores are those of protocol {PROTOCOL_VERSION}")
