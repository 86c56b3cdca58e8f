"""One order key for every rank metric: a score's bits as an unsigned integer that sorts as the scores do.

XLA on CPU flushes subnormal floats in comparisons, and -0.0 differs from +0.0 in bits but not in value; integer keys
settle both once. A NaN has the largest key of all, whatever its sign, so one maximum over keys finds it.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["float16_key", "float32_scores", "host_key", "key_value", "nan_key", "order_key"]


def nan_key(keys: Any) -> int:
    """The key of NaN for keys of this width: all ones."""
    return (1 << (8 * keys.dtype.itemsize)) - 1


def _key_of_bits(bits: Any, num_bits: int, exponent: int, xp: Any) -> Any:
    """Monotone unsigned key of IEEE bits held in an unsigned integer of ``num_bits``; ``exponent`` is +inf's bits."""
    u = bits.dtype.type
    sign = u(1 << (num_bits - 1))
    magnitude = bits & u(sign - 1)
    bits = xp.where(magnitude == u(0), u(0), bits)
    key = xp.where((bits & sign) != u(0), ~bits, bits | sign)
    return xp.where(magnitude > u(exponent), u((1 << num_bits) - 1), key)


def order_key(scores: Any) -> Any:
    """Unsigned key with ``key(a) < key(b)`` iff ``a < b``, equal iff equal; NaN has the largest key.

    Args:
      scores: real array, NumPy or JAX: float16, bfloat16, float32 (uint32 keys), float64 (uint64 keys), integers, bool.

    Returns:
      uint32 or uint64 array of the same shape, from the same library as the input.
    """
    xp: Any = np if isinstance(scores, np.ndarray) else jnp
    dtype = scores.dtype
    if dtype == jnp.bool_:
        return scores.astype(xp.uint32)
    if jnp.issubdtype(dtype, jnp.unsignedinteger):
        return scores.astype(xp.uint32) if dtype.itemsize <= 4 else scores
    if jnp.issubdtype(dtype, jnp.integer):
        if dtype.itemsize <= 4:
            return _bits(scores.astype(xp.int32), xp.uint32) ^ np.uint32(1 << 31)
        return _bits(scores, xp.uint64) ^ np.uint64(1 << 63)
    if dtype == jnp.float64:
        return _key_of_bits(_bits(scores, xp.uint64), 64, 0x7FF0000000000000, xp)
    return _key_of_bits(_bits(float32_scores(scores), xp.uint32), 32, 0x7F800000, xp)


def host_key(scores: np.ndarray) -> np.ndarray:
    """A cheaper order key for NumPy: signed integers of 32 bits or more; the caller keeps NaN out."""
    if scores.dtype.kind in "iub":
        return scores if scores.dtype.kind == "i" else scores.astype(np.int64)
    bits = np.ascontiguousarray(float32_scores(scores)).view(np.int32)
    key = bits >> np.int32(31)
    key &= np.int32(0x7FFFFFFF)
    key ^= bits
    # -0.0 and nothing else has become -1.
    minus_zero = key == -1
    if minus_zero.any():
        key[minus_zero] = 0
    return key


def float32_scores(scores: Any) -> Any:
    """Scores as float32: exact for half types (bfloat16 by its bits, as subnormals would be flushed), rounded
    otherwise."""
    xp: Any = np if isinstance(scores, np.ndarray) else jnp
    if scores.dtype == jnp.bfloat16:
        return _bits(_bits(scores, xp.uint16).astype(xp.uint32) << np.uint32(16), xp.float32)
    return scores.astype(xp.float32)


def float16_key(scores: Any) -> jax.Array:
    """The order key of the scores rounded to float16, as uint32 in [0, 65535]."""
    bits = lax.bitcast_convert_type(jnp.asarray(scores).astype(jnp.float16), jnp.uint16)
    return _key_of_bits(bits, 16, 0x7C00, jnp).astype(jnp.uint32)


def key_value(keys: Any, dtype: Any) -> Any:
    """The score behind a key: the inverse of `order_key` for float32 or float64 (and integers) of ``dtype``."""
    xp: Any = np if isinstance(keys, (np.ndarray, np.generic)) else jnp
    dtype = np.dtype(dtype)
    if jnp.issubdtype(dtype, jnp.unsignedinteger) or dtype == np.bool_:
        return keys
    u = keys.dtype.type
    sign = u(1 << (8 * keys.dtype.itemsize - 1))
    if jnp.issubdtype(dtype, jnp.integer):
        return _bits(keys ^ sign, xp.int64 if keys.dtype.itemsize == 8 else xp.int32)
    bits = xp.where((keys & sign) != u(0), keys & u(sign - 1), ~keys)
    return _bits(bits, xp.float64 if keys.dtype.itemsize == 8 else xp.float32)


def _bits(x: Any, dtype: Any) -> Any:
    if isinstance(x, np.generic):
        x = np.asarray(x)
    return x.view(dtype) if isinstance(x, np.ndarray) else lax.bitcast_convert_type(x, dtype)
