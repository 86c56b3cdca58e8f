"""The command line ``emma-jax``: commands, and nothing else.

Exit codes: 0; 1 for input that is wrong, with one line on stderr that says what and where; 2 for wrong usage; 130 when
interrupted. Everything but typer is imported inside the commands, so that ``--help`` answers at once.
"""

from __future__ import annotations

import io
import sys

# each registers its commands
from emma_jax.cli import demo, emval, leaderboard, release, scoring, submission, sweep  # noqa: F401
from emma_jax.cli.application import app

__all__ = ["app", "main"]


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
