"""The picture of the architecture, drawn from the table of layers that tests/test_layers.py holds every import to.

python docs/layers.py        writes docs/layers.svg
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from html import escape
from pathlib import Path

__all__ = ["DOES", "TARGET", "layers_svg", "read_rows"]

ROOT = Path(__file__).parents[1]
TARGET = Path(__file__).parent / "layers.svg"

DOES = {
    "cli": "commands",
    "demo": "physics scenes",
    "report": "leaderboard, plots",
    "adapters": "clu, nnx, torch, loggers",
    "submissions": "folders to results",
    "sweeps": "files, resume, table",
    "emval": "boards",
    "maintenance": "releases, self-test",
    "io": "files to arrays",
    "uncertainty": "bootstrap, compare",
    "aggregate": "OOD-avg, gap",
    "training": "checkpoints, losses",
    "evaluate": "evaluate, sweep, groups",
    "tasks": "what scores what",
    "release": "anchors, digests",
    "metrics": "formulas and kernels",
    "checks": "host checks, chunks",
    "text": "tokens, synonyms",
    "numerics": "keys, limbs, selection",
    "scores": "Scores, Validity",
    "errors": "typed errors",
    "files": "atomic writes",
}
_WIDTH, _ROW, _GAP, _MARGIN = 760, 46, 8, 12


def read_rows() -> tuple[tuple[str, ...], ...]:
    """The table of the test, top row first, without importing it."""
    tree = ast.parse((ROOT / "tests" / "test_layers.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "ROWS":
            return ast.literal_eval(node.value)
    raise LookupError("tests/test_layers.py has no ROWS")


def layers_svg(rows: Sequence[Sequence[str]]) -> str:
    """The rows as boxes, top row first; private modules and ``__main__`` are left out."""
    shown = [[name for name in row if not name.startswith("_")] for row in rows]
    height = 2 * _MARGIN + len(shown) * (_ROW + _GAP) + 18
    title = "Layers of emma_jax: a module imports only from the rows below its own"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{title}" '
        'font-family="sans-serif" text-anchor="middle">',
        f"<title>{title}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
    ]
    for level, row in enumerate(shown):
        y = _MARGIN + level * (_ROW + _GAP)
        width = (_WIDTH - 2 * _MARGIN - (len(row) - 1) * _GAP) / len(row)
        for column, name in enumerate(row):
            x = _MARGIN + column * (width + _GAP)
            middle = x + width / 2
            box = f'x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_ROW}" rx="5"'
            lines += [
                f'<rect {box} fill="#eef1f8" stroke="#5a6b91"/>',
                f'<text x="{middle:.1f}" y="{y + 19}" font-size="14" fill="#111">{escape(name)}</text>',
                f'<text x="{middle:.1f}" y="{y + 36}" font-size="11" fill="#444">{escape(DOES.get(name, ""))}</text>',
            ]
    lines.append(
        f'<text x="{_WIDTH / 2:.1f}" y="{height - _MARGIN}" font-size="12" fill="#444">imports go downwards only</text>'
    )
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    TARGET.write_text(layers_svg(read_rows()))
