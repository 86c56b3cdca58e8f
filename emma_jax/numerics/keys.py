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

__all__ = [
    "float16_key",
    "float32_scores",
    "host_key",
    "host_key_value",
    "key_value",
    "nan_key",
    "order_key",
    "signed_key",
]


def nan_key(keys: Any) -> int:
    """The key of NaN for keys of this width: all ones."""
    return (1 << (8 * keys.dtype.itemsize)) - 1


def _signed_key_of_bits(bits: Any, num_bits: int, exponent: int, xp: Any, *, nan: bool = True) -> Any:
    """Monotone signed key of IEEE bits held in a signed integer of ``num_bits``; ``exponent`` is +inf's bits.

    A negative score is the two's complement of its magnitude, which also makes -0.0 the key of +0.0.
    """
    i = bits.dtype.type
    magnitude = bits & i((1 << (num_bits - 1)) - 1)
    sign = bits >> i(num_bits - 1)
    key = (magnitude ^ sign) - sign
    return xp.where(magnitude > i(exponent), i((1 << (num_bits - 1)) - 1), key) if nan else key


def signed_key(scores: Any) -> Any:
    """Signed key with ``key(a) < key(b)`` iff ``a < b``, equal iff equal; NaN has the largest key, that of no float.

    Signed integers, because XLA on CPU vectorises their comparisons: argmax over them takes a third of the time it
    takes
    over unsigned ones, and no longer than over floats.

    Args:
      scores: real array, NumPy or JAX: float16, bfloat16, float32 (int32 keys), float64 (int64 keys), integers, bool.

    Returns:
      int32 or int64 array of the same shape, from the same library as the input.
    """
    xp: Any = np if isinstance(scores, np.ndarray) else jnp
    dtype = scores.dtype
    if dtype == jnp.float64:
        return _signed_key_of_bits(_bits(scores, xp.int64), 64, 0x7FF0000000000000, xp)
    if jnp.issubdtype(dtype, jnp.floating):
        return _signed_key_of_bits(_bits(float32_scores(scores), xp.int32), 32, 0x7F800000, xp)
    if jnp.issubdtype(dtype, jnp.unsignedinteger) and dtype.itemsize >= 4:
        wide = xp.int64 if dtype.itemsize == 8 else xp.int32
        return _bits(scores ^ dtype.type(1 << (8 * dtype.itemsize - 1)), wide)
    return scores.astype(xp.int32) if dtype.itemsize < 4 else scores


def order_key(scores: Any) -> Any:
    """`signed_key` as an unsigned integer of the same order, for histograms and searches: uint32 or uint64."""
    xp: Any = np if isinstance(scores, np.ndarray) else jnp
    key = signed_key(scores)
    unsigned = xp.uint64 if key.dtype.itemsize == 8 else xp.uint32
    return _bits(key, unsigned) ^ unsigned(1 << (8 * key.dtype.itemsize - 1))


def host_key(scores: np.ndarray) -> np.ndarray:
    """A cheaper order key for NumPy: signed integers of 32 bits or more; the caller keeps NaN out."""
    if scores.dtype.kind in "iub":
        return scores if scores.dtype.kind == "i" else scores.astype(np.int64)
    bits = np.ascontiguousarray(float32_scores(scores)).view(np.int32)
    return _signed_key_of_bits(bits, 32, 0x7F800000, np, nan=False)


def host_key_value(key: int, dtype: Any) -> Any:
    """The score behind a `host_key`: the integer itself for integer scores, else a NumPy float32."""
    if np.dtype(dtype).kind in "iub":
        return key
    return key_value(np.asarray((key & 0xFFFFFFFF) ^ (1 << 31), np.uint32), np.float32)[()]


def float32_scores(scores: Any) -> Any:
    """Scores as float32: exact for half types (bfloat16 by its bits, as subnormals would be flushed), rounded
    otherwise."""
    xp: Any = np if isinstance(scores, np.ndarray) else jnp
    if scores.dtype == jnp.bfloat16:
        return _bits(_bits(scores, xp.uint16).astype(xp.uint32) << np.uint32(16), xp.float32)
    return scores.astype(xp.float32)


def float16_key(scores: Any) -> jax.Array:
    """The order key of the scores rounded to float16, as uint32 in [0, 65535]."""
    bits = lax.bitcast_convert_type(jnp.asarray(scores).astype(jnp.float16), jnp.int16)
    return (_signed_key_of_bits(bits, 16, 0x7C00, jnp).astype(jnp.int32) + np.int32(1 << 15)).astype(jnp.uint32)


def key_value(keys: Any, dtype: Any) -> Any:
    """The score behind a key: the inverse of `order_key` for float32 or float64 (and integers) of ``dtype``."""
    xp: Any = np if isinstance(keys, (np.ndarray, np.generic)) else jnp
    dtype = np.dtype(dtype)
    if jnp.issubdtype(dtype, jnp.unsignedinteger) and dtype.itemsize >= 4:
        return keys
    u = keys.dtype.type
    sign = u(1 << (8 * keys.dtype.itemsize - 1))
    if jnp.issubdtype(dtype, jnp.integer) or dtype == np.bool_:
        return _bits(keys ^ sign, xp.int64 if keys.dtype.itemsize == 8 else xp.int32)
    bits = xp.where((keys & sign) != u(0), keys & u(sign - 1), (sign - keys) | sign)
    return _bits(bits, xp.float64 if keys.dtype.itemsize == 8 else xp.float32)


def _bits(x: Any, dtype: Any) -> Any:
    if isinstance(x, np.generic):
        x = np.asarray(x)
    return x.view(dtype) if isinstance(x, np.ndarray) else lax.bitcast_convert_type(x, dtype)
