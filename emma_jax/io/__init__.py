"""Files to arrays and back: predictions, labels, S-parameters, fields. No pickle, no network, nothing guessed."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_LAZY = {
    "Labels": "read",
    "Predictions": "read",
    "atomic_write": "write",
    "dumps_strict": "strict",
    "loads_strict": "strict",
    "open_hdf5": "hdf5",
    "read_arrays": "read",
    "read_hdf5": "hdf5",
    "read_labels": "read",
    "read_predictions": "read",
    "read_touchstone": "touchstone",
    "write_npz": "write",
    "write_touchstone": "touchstone",
}

__all__ = sorted(_LAZY)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(f"emma_jax.io.{_LAZY[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'emma_jax.io' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


if TYPE_CHECKING:
    from emma_jax.io.hdf5 import open_hdf5 as open_hdf5
    from emma_jax.io.hdf5 import read_hdf5 as read_hdf5
    from emma_jax.io.read import Labels as Labels
    from emma_jax.io.read import Predictions as Predictions
    from emma_jax.io.read import read_arrays as read_arrays
    from emma_jax.io.read import read_labels as read_labels
    from emma_jax.io.read import read_predictions as read_predictions
    from emma_jax.io.strict import dumps_strict as dumps_strict
    from emma_jax.io.strict import loads_strict as loads_strict
    from emma_jax.io.touchstone import read_touchstone as read_touchstone
    from emma_jax.io.touchstone import write_touchstone as write_touchstone
    from emma_jax.io.write import atomic_write as atomic_write
    from emma_jax.io.write import write_npz as write_npz
