"""Integers of any size as radix-2^16 limbs in uint32 arrays: the one form in which metric states hold numbers.

A number is an array ``[..., L]`` of uint32, limb ``i`` worth ``2**(16 i)``. Normalized, every limb but the last is
below
2^16, so 65,535 normalized states can be added limb by limb (by `jax.lax.psum`, say) before a carry can be lost.
Every function takes NumPy and JAX arrays alike; the same code finalises on the host and under a transform.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = [
    "add",
    "compare_ge",
    "count",
    "from_int",
    "multiply",
    "normalize",
    "subtract",
    "sum_words",
    "to_float",
    "to_int",
]

_LOW = np.uint32(0xFFFF)
_BITS = np.uint32(16)
# Digits below 2^18 can be added over so many entries without overflowing uint32.
_CHUNK = 16384


def from_int(value: int, num_limbs: int) -> np.ndarray:
    """The limbs of a non-negative Python int."""
    out = [(value >> (16 * i)) & 0xFFFF for i in range(num_limbs)]
    out[-1] = value >> (16 * (num_limbs - 1))
    return np.array(out, np.uint32)


def to_int(limbs: Any) -> int:
    """One number ``[L]`` as an exact Python int."""
    return sum(int(limb) << (16 * i) for i, limb in enumerate(np.asarray(limbs)))


def to_float(limbs: Any, xp: Any, exponent: int = 0) -> Any:
    """``sum_i limbs[..., i] 2**(16 i + exponent)`` in float64 (``xp`` is NumPy) or float32 (``xp`` is jax.numpy).

    Small limbs come first, so that the result is within an ulp of the exact integer.
    """
    dtype = np.float64 if xp is np else np.float32
    total = xp.zeros(limbs.shape[:-1], dtype)
    for i in range(limbs.shape[-1]):
        total = total + limbs[..., i].astype(dtype) * dtype(2.0 ** (16 * i + exponent))
    return total


def normalize(limbs: Any) -> Any:
    """Carries moved up, so that every limb but the last is below 2^16."""
    xp: Any = np if isinstance(limbs, np.ndarray) else jnp
    out = []
    carry = xp.zeros_like(limbs[..., 0])
    for i in range(limbs.shape[-1] - 1):
        total = limbs[..., i] + carry
        out.append(total & _LOW)
        carry = total >> _BITS
    return xp.stack([*out, limbs[..., -1] + carry], axis=-1)


def add(a: Any, b: Any) -> Any:
    """a + b for two normalized numbers of equal length."""
    return normalize(a + b)


def subtract(a: Any, b: Any) -> Any:
    """a - b for normalized numbers with a >= b; limbs of the result are below 2^16 (the last excepted)."""
    xp: Any = np if isinstance(a, np.ndarray) else jnp
    out = []
    borrow = xp.zeros_like(a[..., 0])
    for i in range(a.shape[-1] - 1):
        need = b[..., i] + borrow
        borrow = (a[..., i] < need).astype(xp.uint32)
        out.append(a[..., i] + (borrow << _BITS) - need)
    return xp.stack([*out, a[..., -1] - b[..., -1] - borrow], axis=-1)


def multiply(a: Any, b: Any) -> Any:
    """Product of two numbers with all limbs below 2^16: ``[..., La]`` by ``[..., Lb]`` gives ``[..., La + Lb]``."""
    xp: Any = np if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) else jnp
    num = a.shape[-1] + b.shape[-1]
    shape = np.broadcast_shapes(a.shape[:-1], b.shape[:-1])
    digits = [xp.zeros(shape, xp.uint32) for _ in range(num)]
    for i in range(a.shape[-1]):
        for j in range(b.shape[-1]):
            product = a[..., i] * b[..., j]
            digits[i + j] = digits[i + j] + (product & _LOW)
            digits[i + j + 1] = digits[i + j + 1] + (product >> _BITS)
    return normalize(xp.stack(digits, axis=-1))


def compare_ge(a: Any, b: Any) -> Any:
    """a >= b, elementwise over the leading axes, for two normalized numbers of equal length."""
    result = a[..., 0] >= b[..., 0]
    for i in range(1, a.shape[-1]):
        result = (a[..., i] > b[..., i]) | ((a[..., i] == b[..., i]) & result)
    return result


def strict(limbs: Any) -> Any:
    """A count ``[..., 2]`` (48 bits, last limb 32 bits wide) as three limbs all below 2^16, as `multiply` wants
    them."""
    xp: Any = np if isinstance(limbs, np.ndarray) else jnp
    high = limbs[..., 1]
    return xp.stack([limbs[..., 0], high & _LOW, high >> _BITS], axis=-1)


def count(flags: Any, weights: Any = None) -> jax.Array:
    """How many flags are set, or the sum of their weights: a count ``[2]``.

    Args:
      flags: bool array; fewer than 2^32 entries.
      weights: uint32 array of the same shape, or None.
    """
    if weights is None:
        return widen(jnp.sum(flags.reshape(-1), dtype=jnp.uint32))
    total = sum_words([jnp.where(flags, weights, jnp.uint32(0))])
    return jnp.stack([total[..., 0], total[..., 1] + (total[..., 2] << _BITS)], axis=-1)


def widen(counts: Any) -> Any:
    """uint32 counts ``[...]`` as limbs ``[..., 2]``."""
    xp: Any = np if isinstance(counts, np.ndarray) else jnp
    counts = counts.astype(xp.uint32)
    return xp.stack([counts & _LOW, counts >> _BITS], axis=-1)


def sum_words(words: Sequence[Any], weights: Any = None) -> jax.Array:
    """Exact sum over all samples of numbers given as little-endian 32-bit words.

    Args:
      words: W uint32 arrays of one shape; a sample's number is ``sum_i words[i] 2**(32 i)``, zero where it is masked.
      weights: uint32 multiplicities of that shape, or None.

    Returns:
      ``[2 W + 2]`` limbs, normalized: room for 2^48 unit-weight samples.
    """
    num_limbs = 2 * len(words) + 2
    digits: list[Any] = []
    for word in words:
        word = word.reshape(-1)
        digits += [word & _LOW, word >> _BITS]
    if weights is not None:
        weights = weights.reshape(-1)
        digits = _weighted(digits, (weights & _LOW, weights >> _BITS))
    digits = _add_up(digits)
    if len(digits) < num_limbs:
        zero = jnp.zeros_like(digits[0])
        digits = digits + [zero] * (num_limbs - len(digits))
    return normalize(jnp.stack(digits, axis=-1))


def _weighted(digits: list[Any], factors: tuple[Any, Any]) -> list[Any]:
    """Products of 16-bit digits with a two-digit weight, kept as digits below 2^18."""
    out: list[Any] = [None] * (len(digits) + 2)
    for i, digit in enumerate(digits):
        for j, factor in enumerate(factors):
            product = digit * factor
            for k, part in ((i + j, product & _LOW), (i + j + 1, product >> _BITS)):
                out[k] = part if out[k] is None else out[k] + part
    return out


def _add_up(digits: list[Any]) -> list[Any]:
    """Sums of digit arrays ``[n]``, entries below 2^18, as scalars of uint32 that do not overflow (carries pending)."""
    while (n := digits[0].shape[0]) > _CHUNK:
        main = n - n % _CHUNK
        partial = _reduce([d[:main].reshape(-1, _CHUNK) for d in digits], 1)
        if main < n:
            tail = _reduce([d[main:].reshape(1, -1) for d in digits], 1)
            partial = [jnp.concatenate(pair) for pair in zip(partial, tail)]
        # Partial sums fill 32 bits: split them again so that the next level cannot overflow.
        low = [p & _LOW for p in partial]
        high = [p >> _BITS for p in partial]
        digits = [low[0], *(a + b for a, b in zip(low[1:], high[:-1])), high[-1]]
    sums = _reduce(digits, 0)
    return sums


def _reduce(arrays: list[Any], axis: int) -> list[Any]:
    """One variadic reduction: each array is read once however many digits a sample has."""
    zeros = tuple(jnp.zeros((), jnp.uint32) for _ in arrays)
    return list(lax.reduce(tuple(arrays), zeros, lambda a, b: tuple(x + y for x, y in zip(a, b)), (axis,)))
