"""EMVal: near fields and S-parameters of boards, the checks before them, and the protocol's dataset values."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_LAZY = {
    "BoardComparison": "uncertainty",
    "BoardIntervals": "uncertainty",
    "BoardPair": "boards",
    "BoardRecord": "boards",
    "BoardScores": "boards",
    "KeyMap": "keymap",
    "align": "sparams",
    "bootstrap_boards": "uncertainty",
    "check_sparams": "sparams",
    "compare_boards": "uncertainty",
    "load_board": "boards",
    "load_files": "boards",
    "load_key_map": "keymap",
    "load_result": "boards",
    "mean_over_boards": "boards",
    "renormalize": "sparams",
    "score_boards": "boards",
    "score_files": "boards",
}

__all__ = sorted(_LAZY)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(f"emma_jax.emval.{_LAZY[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'emma_jax.emval' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


if TYPE_CHECKING:
    from emma_jax.emval.boards import BoardPair as BoardPair
    from emma_jax.emval.boards import BoardRecord as BoardRecord
    from emma_jax.emval.boards import BoardScores as BoardScores
    from emma_jax.emval.boards import load_board as load_board
    from emma_jax.emval.boards import load_files as load_files
    from emma_jax.emval.boards import load_result as load_result
    from emma_jax.emval.boards import mean_over_boards as mean_over_boards
    from emma_jax.emval.boards import score_boards as score_boards
    from emma_jax.emval.boards import score_files as score_files
    from emma_jax.emval.keymap import KeyMap as KeyMap
    from emma_jax.emval.keymap import load_key_map as load_key_map
    from emma_jax.emval.sparams import align as align
    from emma_jax.emval.sparams import check_sparams as check_sparams
    from emma_jax.emval.sparams import renormalize as renormalize
    from emma_jax.emval.uncertainty import BoardComparison as BoardComparison
    from emma_jax.emval.uncertainty import BoardIntervals as BoardIntervals
    from emma_jax.emval.uncertainty import bootstrap_boards as bootstrap_boards
    from emma_jax.emval.uncertainty import compare_boards as compare_boards
