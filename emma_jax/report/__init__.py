"""What people read: the leaderboard, as a table, Markdown, CSV or JSON."""

from __future__ import annotations

from emma_jax.report.leaderboard import build_leaderboard, to_csv, to_markdown, to_table

__all__ = ["build_leaderboard", "to_csv", "to_markdown", "to_table"]
