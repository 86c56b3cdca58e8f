"""What several commands share: errors as one line, the compilation cache, console, progress, JSON, parameters."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

if TYPE_CHECKING:
    from rich.console import Console


class Commands(typer.core.TyperGroup):
    """Turns errors about input into one line and exit code 1, for every command."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            say("interrupted")
            raise typer.Exit(130) from None
        except BrokenPipeError:  # the reader of a pipe went away; typer ends quietly
            raise
        except (OSError, ValueError, MemoryError, ImportError) as error:
            message = _input_error(error)
            if message is None:
                raise
            say(message)
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


def say(message: str) -> None:
    """One line on stderr, whatever a file's name or content put into the message."""
    line = "".join(c if c.isprintable() else " " for c in message)
    typer.echo(f"emma-jax: {re.sub(' +', ' ', line).strip()}", err=True)


def use_compilation_cache() -> None:
    """Keeps compiled kernels between runs, in JAX_COMPILATION_CACHE_DIR or the user's cache folder."""
    folder = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    if folder == "":
        return
    from jax import config

    if folder is None:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        folder = os.path.join(home, "emma-jax", "xla")
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError:
            return  # a cache is no reason to fail
        if not os.access(folder, os.W_OK):
            return
        config.update("jax_compilation_cache_dir", folder)  # type: ignore[no-untyped-call]
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        # kernels compile in 0.1 s each, below the default threshold of one second, and there are many
        config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # type: ignore[no-untyped-call]


def open_console(*, err: bool = False) -> Console:
    from rich.console import Console

    console = Console(stderr=err, highlight=False)
    if not console.is_terminal:
        console.width = 240  # a file or pipe has no width to fold at
    return console


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int, str], None]]:
    """A progress bar on stderr, gone at the end, and not there at all where stderr is no terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = open_console(err=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)

        def show(done: int, total: int, item: str) -> None:
            bar.update(task, completed=done, total=total, description=f"{what} {item}")

        yield show


@contextmanager
def busy(what: str) -> Iterator[None]:
    """A spinner on stderr, where that is a terminal."""
    console = open_console(err=True)
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


def echo_json(value: Any) -> None:
    from emma_jax.io import dumps_strict

    typer.echo(dumps_strict(value), nl=False)


def parse_params(pairs: Sequence[str]) -> dict[str, Any]:
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


JsonOption = Annotated[bool, typer.Option("--json", help="Print strict JSON instead of a table.")]
DigestOption = Annotated[
    str | None, typer.Option("--digest", help="Digest the release has to have, from a source its editor cannot change.")
]
MaxBytesOption = Annotated[
    int | None,
    typer.Option("--max-bytes", min=1, help="Limit on one prediction file once decompressed (default 4 GiB)."),
]
