"""Runs what the pages of the documentation print, so that no number and no command on them is out of date.

    python docs/execute.py             compares: lists the blocks whose output has changed
    python docs/execute.py --write     puts the outputs of this run into the pages

The Python blocks of a page share one namespace and one empty folder, in their order; so do its commands, which start
with ``emma-jax`` and run in this process. A comment on the line before a block says what else applies:

    <!-- needs: torch, torchmetrics -->    left out where one of the modules cannot be imported
    <!-- not run: reason -->               a command that takes long, installs, or needs files of the reader's own
    <!-- exits: 1 -->                      a command that has to fail

A block of text after ``<!-- output -->`` is what the block before it prints.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import math
import os
import re
import shlex
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["DOCS", "Block", "blocks", "missing", "run_page", "same", "written"]

DOCS = Path(__file__).parent
_BLOCK = re.compile(
    r"(?:^<!-- (?P<key>needs|not run|exits): (?P<value>[^\n]*?) -->\n)?"
    r"^```(?P<language>python|bash)\n(?P<code>.*?)^```\n"
    r"(?:\n?<!-- output -->\n\n?```text\n(?P<output>.*?)^```\n)?",
    re.M | re.S,
)


@dataclass(frozen=True)
class Block:
    """One block of code of a page.

    Attributes:
      language: "python" or "bash".
      code: what it holds.
      line: its line in the page, from 1.
      key, value: the comment before it ("needs", "not run", "exits"), or empty.
      output: what the page says it prints, or None.
      span: where the output stands in the page, (-1, -1) for none.
    """

    language: str
    code: str
    line: int
    key: str = ""
    value: str = ""
    output: str | None = None
    span: tuple[int, int] = (-1, -1)


def blocks(text: str) -> list[Block]:
    """The blocks of a page, in order."""
    return [
        Block(
            found["language"],
            found["code"],
            text.count("\n", 0, found.start("code")) + 1,
            found["key"] or "",
            found["value"] or "",
            found["output"],
            found.span("output"),
        )
        for found in _BLOCK.finditer(text)
    ]


def missing(block: Block) -> list[str]:
    """Modules that a block needs and that are not installed."""
    names = [name.strip() for name in block.value.split(",")] if block.key == "needs" else []
    return [name for name in names if importlib.util.find_spec(name) is None]


def run_page(text: str) -> Iterator[tuple[Block, str | None]]:
    """Runs a page; yields each block with what it printed, or None where it was left out.

    Raises:
      AssertionError: a command that ends with another exit code than the page says.
    """
    names: dict[str, Any] = {"__name__": "__docs__"}
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for block in blocks(text):
                if block.key == "not run" or missing(block):
                    yield block, None
                else:
                    yield block, _python(block, names) if block.language == "python" else _commands(block)
        finally:
            os.chdir(here)


def _python(block: Block, names: dict[str, Any]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile("\n" * (block.line - 1) + block.code, "page", "exec"), names)
    return out.getvalue()


def _commands(block: Block) -> str:
    from typer.testing import CliRunner

    from emma_jax import cli

    printed, code = "", 0
    for line in block.code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        assert words[0] == "emma-jax", f"line {block.line}: only emma-jax runs here; mark the block: {line}"
        result = CliRunner().invoke(cli.app, words[1:])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        printed += result.output
        code = result.exit_code or code
    expected = int(block.value) if block.key == "exits" else 0
    assert code == expected, f"line {block.line}: exit code {code}: {printed}"
    return printed


def written(text: str) -> str:
    """The page with the outputs of this run."""
    for block, got in reversed(list(run_page(text))):
        if block.output is not None and got is not None:
            text = text[: block.span[0]] + _trimmed(got) + text[block.span[1] :]
    return text


def _trimmed(output: str) -> str:
    return "".join(line.rstrip() + "\n" for line in output.strip("\n").splitlines())


_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def same(block: Block, got: str | None) -> bool:
    """Whether the page says what the block printed: its words exactly, its numbers to 1e-4 of themselves (another
    processor or an older JAX may round the last digits differently)."""
    if block.output is None or got is None:
        return True
    page, now = block.output, _trimmed(got)
    words = [" ".join(_NUMBER.sub("#", text).split()) for text in (page, now)]
    numbers = [[float(x) for x in _NUMBER.findall(text)] for text in (page, now)]
    return words[0] == words[1] and all(math.isclose(a, b, rel_tol=1e-4) for a, b in zip(*numbers))


def main(arguments: list[str]) -> int:
    write = "--write" in arguments
    chosen = [Path(a) for a in arguments if not a.startswith("-")] or sorted(DOCS.rglob("*.md"))
    changed = 0
    for path in chosen:
        text = path.read_text()
        new = written(text)
        if new != text:
            changed += 1
            print(f"{path}: {'written' if write else 'has changed'}")
            if write:
                path.write_text(new)
    return 0 if write else min(changed, 1)


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", "")
    sys.exit(main(sys.argv[1:]))
