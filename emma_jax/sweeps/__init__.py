"""Sweeps over files: thousands of prediction files scored against the same labels, into one table.

`sweep_files` reads ahead, keeps every finished row in a journal, and continues from there after a kill; its table is
the same as that of an undisturbed run, byte for byte. `pivot` turns runs x folds x seeds into means and worst folds.
"""

from __future__ import annotations

from emma_jax.sweeps.pivot import PivotRow, pivot
from emma_jax.sweeps.runs import RunFile, find_runs
from emma_jax.sweeps.scoring import sweep_files
from emma_jax.sweeps.table import SweepTable, load_table, write_table

__all__ = [
    "PivotRow",
    "RunFile",
    "SweepTable",
    "find_runs",
    "load_table",
    "pivot",
    "sweep_files",
    "write_table",
]
