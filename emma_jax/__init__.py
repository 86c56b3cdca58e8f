"""emma-jax: exact, jit-compiled scoring of RF and electromagnetic machine learning.

Names load on first use (PEP 562), so importing the package costs little more than importing JAX.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

from emma_jax._version import __version__

_LAZY = {
    "Aggregator": "aggregate",
    "Anchor": "release",
    "DegenerateLabelsError": "errors",
    "EmptyEvaluationError": "errors",
    "EvaluationError": "errors",
    "FileFormatError": "errors",
    "LabelError": "errors",
    "MissingTaskError": "errors",
    "NonFiniteError": "errors",
    "OODAvg": "aggregate",
    "Release": "release",
    "ReleaseError": "errors",
    "Scores": "scores",
    "ShapeError": "errors",
    "SimToRealGap": "aggregate",
    "SubmissionError": "errors",
    "Task": "tasks",
    "Validity": "scores",
    "bootstrap": "uncertainty",
    "compare": "uncertainty",
    "evaluate": "evaluate",
    "evaluate_groups": "evaluate",
    "freeze_release": "release",
    "get_task": "tasks",
    "jackknife": "aggregate",
    "load_release": "release",
    "per_sample": "evaluate",
    "register_task": "tasks",
    "sweep": "evaluate",
}
_SUBMODULES = ("adapters", "emval", "io", "metrics", "sweeps", "training", "uncertainty")

__all__ = ["__version__", *sorted(_LAZY), *_SUBMODULES]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(f"emma_jax.{_LAZY[name]}"), name)
        globals()[name] = value
        return value
    if name in _SUBMODULES:
        return importlib.import_module(f"emma_jax.{name}")
    raise AttributeError(f"module 'emma_jax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


class _Package(types.ModuleType):
    """Keeps ``emma_jax.evaluate`` the function: importing the module of that name would otherwise rebind it."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _LAZY and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


if TYPE_CHECKING:
    from emma_jax import adapters as adapters
    from emma_jax import emval as emval
    from emma_jax import io as io
    from emma_jax import metrics as metrics
    from emma_jax import sweeps as sweeps
    from emma_jax import training as training
    from emma_jax import uncertainty as uncertainty
    from emma_jax.aggregate import Aggregator as Aggregator
    from emma_jax.aggregate import OODAvg as OODAvg
    from emma_jax.aggregate import SimToRealGap as SimToRealGap
    from emma_jax.aggregate import jackknife as jackknife
    from emma_jax.errors import DegenerateLabelsError as DegenerateLabelsError
    from emma_jax.errors import EmptyEvaluationError as EmptyEvaluationError
    from emma_jax.errors import EvaluationError as EvaluationError
    from emma_jax.errors import FileFormatError as FileFormatError
    from emma_jax.errors import LabelError as LabelError
    from emma_jax.errors import MissingTaskError as MissingTaskError
    from emma_jax.errors import NonFiniteError as NonFiniteError
    from emma_jax.errors import ReleaseError as ReleaseError
    from emma_jax.errors import ShapeError as ShapeError
    from emma_jax.errors import SubmissionError as SubmissionError
    from emma_jax.evaluate import evaluate as evaluate
    from emma_jax.evaluate import evaluate_groups as evaluate_groups
    from emma_jax.evaluate import per_sample as per_sample
    from emma_jax.evaluate import sweep as sweep
    from emma_jax.release import Anchor as Anchor
    from emma_jax.release import Release as Release
    from emma_jax.release import freeze_release as freeze_release
    from emma_jax.release import load_release as load_release
    from emma_jax.scores import Scores as Scores
    from emma_jax.scores import Validity as Validity
    from emma_jax.tasks import Task as Task
    from emma_jax.tasks import get_task as get_task
    from emma_jax.tasks import register_task as register_task
    from emma_jax.uncertainty import bootstrap as bootstrap
    from emma_jax.uncertainty import compare as compare
