"""EMVal: near fields and S-parameters of boards, file checks before them, and the protocol's dataset values."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_LAZY = {
    "align": "sparams",
    "check_sparams": "sparams",
    "renormalize": "sparams",
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
    from emma_jax.emval.sparams import align as align
    from emma_jax.emval.sparams import check_sparams as check_sparams
    from emma_jax.emval.sparams import renormalize as renormalize
