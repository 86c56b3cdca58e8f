"""Command ``emma-jax demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from emma_jax.cli.application import app
from emma_jax.cli.shared import (
    open_console,
    use_compilation_cache,
)


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
    use_compilation_cache()
    if em:
        from emma_jax.demo.em import run_em_demo

        run_em_demo(out, seed, open_console())
        return
    from emma_jax.demo.run import run_demo

    run_demo(out, seed, open_console())
