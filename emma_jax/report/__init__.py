"""What people read: the leaderboard as a table, Markdown, CSV or JSON, and pictures of boards."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_LAZY = {
    "board_tables": "boards",
    "build_leaderboard": "leaderboard",
    "checks_table": "boards",
    "draw_boards": "plots",
    "draw_pair": "plots",
    "local_error": "plots",
    "plot_boards": "plots",
    "plot_error_cdf": "plots",
    "plot_fields": "plots",
    "plot_smith": "plots",
    "plot_sparams": "plots",
    "save_figure": "plots",
    "tie_groups": "ties",
    "to_csv": "leaderboard",
    "to_html": "page",
    "to_latex": "leaderboard",
    "to_markdown": "leaderboard",
    "to_table": "leaderboard",
}

__all__ = sorted(_LAZY)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(f"emma_jax.report.{_LAZY[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'emma_jax.report' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


if TYPE_CHECKING:
    from emma_jax.report.boards import board_tables as board_tables
    from emma_jax.report.boards import checks_table as checks_table
    from emma_jax.report.leaderboard import build_leaderboard as build_leaderboard
    from emma_jax.report.leaderboard import to_csv as to_csv
    from emma_jax.report.leaderboard import to_latex as to_latex
    from emma_jax.report.leaderboard import to_markdown as to_markdown
    from emma_jax.report.leaderboard import to_table as to_table
    from emma_jax.report.page import to_html as to_html
    from emma_jax.report.plots import draw_boards as draw_boards
    from emma_jax.report.plots import draw_pair as draw_pair
    from emma_jax.report.plots import local_error as local_error
    from emma_jax.report.plots import plot_boards as plot_boards
    from emma_jax.report.plots import plot_error_cdf as plot_error_cdf
    from emma_jax.report.plots import plot_fields as plot_fields
    from emma_jax.report.plots import plot_smith as plot_smith
    from emma_jax.report.plots import plot_sparams as plot_sparams
    from emma_jax.report.plots import save_figure as save_figure
    from emma_jax.report.ties import tie_groups as tie_groups
