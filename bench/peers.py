"""Peers: the libraries a row is compared with, how each takes its arrays, and what to say where one is absent.

A peer gets its own kind of arrays, made before the clock starts: tensors for torchmetrics, NumPy for scikit-learn,
device arrays and a jitted function for google-metrax. Thread counts stay as each library sets them.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["LIBRARIES", "Library", "Peer", "contestant", "load", "version"]


@dataclass(frozen=True)
class Library:
    """How to reach a library.

    Attributes:
      distribution: its name in the package registry, for the version.
      module: what a peer's function gets as its first argument.
      arrays: NumPy leaf to the library's own array.
      jit: whether its functions are JAX functions, to be jitted.
    """

    distribution: str
    module: str
    arrays: Callable[[np.ndarray], Any]
    jit: bool = False


def _tensor(x: np.ndarray) -> Any:
    torch = importlib.import_module("torch")
    return torch.from_numpy(x.copy())


def _device(x: np.ndarray) -> Any:
    return jnp.array(x, copy=True)


LIBRARIES: dict[str, Library] = {
    "torchmetrics": Library("torchmetrics", "torchmetrics.functional.classification", _tensor),
    "scikit-learn": Library("scikit-learn", "sklearn.metrics", lambda x: x),
    "google-metrax": Library("google-metrax", "metrax", _device, jit=True),
    "torch formula": Library("torch", "torch", _tensor),
}


@dataclass(frozen=True)
class Peer:
    """One peer of one row.

    Attributes:
      library: key of `LIBRARIES`.
      call: ``call(module, preds, labels)`` with the library's own arrays; returns a scalar.
      tolerance: how far its value may lie from ours.
      note: what it does differently, or what is timed; printed with the table.
      inputs: NumPy (preds, labels) to the form this peer wants, outside the clock; None for as they are.
    """

    library: str
    call: Callable[[Any, Any, Any], Any]
    tolerance: float = 2e-6
    note: str = ""
    inputs: Callable[[Any, Any], tuple[Any, Any]] | None = None


@functools.cache
def load(library: str) -> tuple[Any, str]:
    """(module, "") or (None, why it is absent)."""
    try:
        return importlib.import_module(LIBRARIES[library].module), ""
    except ImportError as e:
        missing = e.name.split(".")[0] if e.name else LIBRARIES[library].distribution
        return None, f"cannot import {missing}"


def version(distribution: str) -> str | None:
    """Installed version, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def contestant(peer: Peer, preds: Any, labels: Any) -> Callable[[], float]:
    """The peer on its own arrays, as a function without arguments that returns a Python float."""
    library = LIBRARIES[peer.library]
    if peer.inputs is not None:
        preds, labels = peer.inputs(preds, labels)

    def own(x: Any) -> Any:
        return library.arrays(x) if isinstance(x, np.ndarray) else x  # text stays text

    preds, labels = jax.tree_util.tree_map(own, (preds, labels))
    plain = functools.partial(peer.call, load(peer.library)[0])
    run: Callable[[Any, Any], Any] = jax.jit(plain) if library.jit else plain
    return lambda: float(run(preds, labels))
