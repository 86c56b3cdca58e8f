"""Bridges to what others train and log with: clu and flax.nnx metrics, torch tensors, pandas, JSON, scalar loggers.

None of these libraries is a dependency: each is imported by the function that needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_LAZY = {
    "clu_collection": "metric_objects",
    "clu_metric": "metric_objects",
    "from_torch": "tensors",
    "nnx_metric": "metric_objects",
    "to_json": "export",
    "to_pandas": "export",
    "to_scalars": "export",
}

__all__ = sorted(_LAZY)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(f"emma_jax.adapters.{_LAZY[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'emma_jax.adapters' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


if TYPE_CHECKING:
    from emma_jax.adapters.export import to_json as to_json
    from emma_jax.adapters.export import to_pandas as to_pandas
    from emma_jax.adapters.export import to_scalars as to_scalars
    from emma_jax.adapters.metric_objects import clu_collection as clu_collection
    from emma_jax.adapters.metric_objects import clu_metric as clu_metric
    from emma_jax.adapters.metric_objects import nnx_metric as nnx_metric
    from emma_jax.adapters.tensors import from_torch as from_torch
