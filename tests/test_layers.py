"""The tree of packages: imports run downwards only."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import emma_jax

ROOT = Path(emma_jax.__file__).parent
# Top to bottom; a module imports only from rows below its own, or within its row without a cycle.
ROWS = (
    ("cli", "__main__"),
    ("demo", "report", "adapters"),
    ("submissions", "sweeps", "emval", "maintenance"),
    ("io",),
    ("uncertainty", "aggregate", "training"),
    ("evaluate",),
    ("tasks", "release"),
    ("metrics",),
    ("checks", "text", "numerics"),
    ("scores", "errors", "files", "_version"),
)
LEVEL = {name: level for level, row in enumerate(ROWS) for name in row}


def _edges() -> set[tuple[str, str]]:
    """(importing part, imported part) of every import statement in the package, at any depth of a file."""
    found = set()
    for path in ROOT.rglob("*.py"):
        part = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if part == "__init__":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            targets: list[str] = []
            if isinstance(node, ast.Import):
                targets = [a.name for a in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                assert node.level == 0, f"{path}: relative import"
                targets = (
                    [f"{node.module}.{a.name}" for a in node.names] if node.module == "emma_jax" else [node.module]
                )
            for target in targets:
                pieces = target.split(".")
                if pieces[0] == "emma_jax" and len(pieces) > 1 and pieces[1] != part:
                    found.add((part, pieces[1]))
    return found


def test_every_module_has_a_row() -> None:
    """Claim: no module stands outside the layout."""
    parts = {p.relative_to(ROOT).parts[0].removesuffix(".py") for p in ROOT.rglob("*.py")} - {"__init__"}
    assert parts <= set(LEVEL)


def test_imports_run_downwards() -> None:
    """Claim: an import goes to a lower row, or within a row in one direction only."""
    edges = {(a, b) for a, b in _edges() if b in LEVEL}
    assert edges, "the walk found nothing: it is broken"
    assert {b for _, b in edges} <= set(LEVEL)
    upwards = {(a, b) for a, b in edges if LEVEL[b] < LEVEL[a]}
    assert not upwards
    level = {(a, b) for a, b in edges if LEVEL[b] == LEVEL[a]}
    assert not {(a, b) for a, b in level if (b, a) in level}


def test_the_walk_sees_an_upward_import() -> None:
    """Claim: the check above can fail: the command line importing downwards would be upwards the other way round."""
    assert any(LEVEL[b] > LEVEL[a] for a, b in _edges() if b in LEVEL)


def test_importing_the_package_is_light() -> None:
    """Claim: importing the package and scoring loads none of the optional or command-line dependencies."""
    names = ("nltk", "matplotlib", "h5py", "pyarrow", "skrf", "torch", "rich", "typer")
    use = "import sys, emma_jax; emma_jax.evaluate('E-LOC-AOA', [1.0], [2.0]); "
    code = use + f"print([m for m in {names!r} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_every_public_name_resolves() -> None:
    """Claim: each name in ``__all__`` loads, and ``emma_jax.evaluate`` stays the function whatever is imported."""
    import emma_jax.evaluate

    for name in emma_jax.__all__:
        assert getattr(emma_jax, name) is not None
    assert callable(emma_jax.evaluate)
    with pytest.raises(AttributeError, match="no_such_name"):
        emma_jax.no_such_name  # noqa: B018
