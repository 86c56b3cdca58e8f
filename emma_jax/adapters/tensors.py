"""Tensors of torch as arrays that `evaluate` takes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from emma_jax.errors import EvaluationError

__all__ = ["from_torch"]


def from_torch(tree: Any) -> Any:
    """Tensors as arrays, by DLPack: nothing is copied where the memory allows it.

    A CPU tensor becomes a NumPy array (so float64, int64 and complex128 keep all their bits, whether x64 is on or not),
    a bfloat16 one a JAX array, and one on an accelerator a JAX array on that device. A tensor that requires a gradient
    is detached, since no gradient flows through a metric; a pending conjugation or negation is carried out.

    Args:
      tree: a tensor of any shape, or a dict, list or tuple of them, as for EMVal-NF; whatever is no tensor stays.

    Returns:
      The same structure, of arrays with the same shapes and the same numbers in the same units.

    Raises:
      EvaluationError: a tensor that has no strides (sparse, quantized) or whose dtype neither library has.
    """
    if isinstance(tree, dict):
        return {key: from_torch(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(from_torch(value) for value in tree)
    return _array(tree) if hasattr(tree, "detach") and hasattr(tree, "__dlpack__") else tree


def _array(tensor: Any) -> Any:
    try:
        tensor = tensor.detach().resolve_conj().resolve_neg()
        if str(tensor.device).startswith("cpu") and "bfloat16" not in str(tensor.dtype):
            return np.asarray(tensor.numpy())
        return jnp.from_dlpack(tensor.contiguous()) if tensor.numel() else _empty(tensor)
    except (TypeError, RuntimeError, BufferError, ValueError) as error:
        text = f"a tensor of {tensor.dtype} on {tensor.device} does not become an array ({error})"
        raise EvaluationError(text, argument="tensor") from None


def _empty(tensor: Any) -> jax.Array:
    return jnp.zeros(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
