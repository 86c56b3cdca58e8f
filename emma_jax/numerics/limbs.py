"""Integers of any size as radix-2^16 limbs in uint32 arrays: the one form in which metric states hold numbers.

A number is an array ``[..., L]`` of uint32, limb ``i`` worth ``2**(16 i)``. Normalized, every limb but the last
is below 2^16, so 65,535 normalized states can be added limb by limb (by `jax.lax.psum`, say) before a carry can be
lost.
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
    "add_words",
    "compare_ge",
    "count",
    "from_int",
    "multiply",
    "normalize",
    "shift_left",
    "strict",
    "subtract",
    "sum_many",
    "sum_words",
    "to_float",
    "to_int",
    "to_ints",
    "widen",
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
    return sum(limb << (16 * i) for i, limb in enumerate(np.asarray(limbs).tolist()))


def to_ints(limbs: np.ndarray) -> Any:
    """Numbers ``[..., L]`` as Python ints: an object array ``[...]``, or one int."""
    if limbs.ndim == 1:
        return to_int(limbs)
    out: Any = 0
    for i in range(limbs.shape[-1]):
        out = out + (limbs[..., i].astype(object) << (16 * i))
    return out


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
    return _carried([limbs[..., i] for i in range(limbs.shape[-1])])


def _carried(digits: list[Any]) -> Any:
    """Digits, lowest first, with room for carries, as normalized limbs."""
    out = []
    carry: Any = np.uint32(0)
    for digit in digits[:-1]:
        total = digit + carry
        out.append(total & _LOW)
        carry = total >> _BITS
    last = digits[-1] + carry
    xp: Any = np if isinstance(last, (np.ndarray, np.generic)) else jnp
    return xp.stack([*out, last], axis=-1)


def add(a: Any, b: Any) -> Any:
    """a + b for two normalized numbers of equal length."""
    num = a.shape[-1]
    if 4 < num <= 32:
        return _add_ahead(a, b)
    # Limb by limb: XLA reads those of a number just made without writing it to memory first.
    return _carried([a[..., i] + b[..., i] for i in range(num)])


def _add_ahead(a: Any, b: Any) -> Any:
    """`add` with all carries of a number found at once, in one word, so that the sum is made elementwise, in place.

    XLA makes a kernel of every step of a long chain of carries. A limb of the sum makes a carry (one, never more), or
    hands on one from below if it is full; adding the word of the former, moved up, to that of the latter lets carries
    run through full limbs as in any addition, and the bits that change are the limbs that get one.
    """
    xp: Any = np if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) else jnp
    num = a.shape[-1]
    place = np.arange(num, dtype=np.uint32)
    total = a + b
    # The last limb is 32 bits wide and hands on nothing.
    makes = xp.where(place < num - 1, (total >> _BITS) << (place + 1) % 32, np.uint32(0))
    full = (total == _LOW).astype(xp.uint32) << place
    made, through = (xp.sum(x, axis=-1, keepdims=True, dtype=xp.uint32) for x in (makes, full))
    total = total + ((((made + through) ^ through) >> place) & np.uint32(1))
    return xp.where(place < num - 1, total & _LOW, total)


def add_words(number: Any, words: Sequence[tuple[Any, int]], less: int = 0) -> Any:
    """``number + sum_i word_i 2**bits_i - less`` in one go, for a result that is not negative.

    One list of scalar digits and one carry become one kernel: in a small batch each array made on the way costs more
    than all the arithmetic.

    Args:
      number: normalized limbs ``[..., L]``.
      words: at most 2^13 pairs of a uint32 array ``[...]``, all 32 bits of which may be set, and the power of two
        that it counts.
      less: a constant to take off.
    """
    num = number.shape[-1]
    top = num - 1
    # Taking off is adding the complement: the last limb, 32 bits wide, wraps around.
    constant = from_int((-less) % (1 << (16 * num + 16)), num)
    digits = [number[..., i] + constant[i] if constant[i] else number[..., i] for i in range(num)]
    for word, bits in words:
        whole, part = divmod(bits, 16)
        low, high = (word & _LOW) << np.uint32(part), (word >> _BITS) << np.uint32(part)
        for i, digit in ((whole, low & _LOW), (whole + 1, (low >> _BITS) + (high & _LOW)), (whole + 2, high >> _BITS)):
            if i <= top:
                digits[i] = digits[i] + digit
            elif i == num:
                digits[top] = digits[top] + (digit << _BITS)
    return _carried(digits)


def subtract(a: Any, b: Any) -> Any:
    """a - b for normalized numbers with a >= b; limbs of the result are below 2^16 (the last excepted)."""
    xp: Any = np if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) else jnp
    out = []
    borrow = xp.zeros_like(a[..., 0])
    for i in range(a.shape[-1] - 1):
        need = b[..., i] + borrow
        borrow = (a[..., i] < need).astype(xp.uint32)
        out.append(a[..., i] + (borrow << _BITS) - need)
    return xp.stack([*out, a[..., -1] - b[..., -1] - borrow], axis=-1)


def shift_left(limbs: Any, bits: int, num_limbs: int) -> Any:
    """``limbs * 2**bits`` as ``num_limbs`` limbs, for a normalized number (its last limb may fill 32 bits)."""
    xp: Any = np if isinstance(limbs, np.ndarray) else jnp
    whole, part = divmod(bits, 16)
    zero = xp.zeros_like(limbs[..., 0])
    digits = [zero for _ in range(num_limbs + 2)]
    for i, limb in enumerate(strict(limbs)[..., k] for k in range(limbs.shape[-1] + 1)):
        moved = limb << np.uint32(part)
        if i + whole < num_limbs:
            digits[i + whole] = digits[i + whole] + (moved & _LOW)
            digits[i + whole + 1] = digits[i + whole + 1] + (moved >> _BITS)
    return normalize(xp.stack(digits[:num_limbs], axis=-1))


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
    """A normalized number with its last limb, 32 bits wide, cut in two: all limbs below 2^16, as `multiply` wants
    them."""
    xp: Any = np if isinstance(limbs, np.ndarray) else jnp
    high = limbs[..., -1:]
    return xp.concatenate([limbs[..., :-1], high & _LOW, high >> _BITS], axis=-1)


def widen(counts: Any) -> Any:
    """uint32 counts ``[...]`` as limbs ``[..., 2]``."""
    # A sum by NumPy may be a scalar of its own kind.
    xp: Any = np if isinstance(counts, (np.ndarray, np.generic)) else jnp
    counts = counts.astype(xp.uint32)
    return xp.stack([counts & _LOW, counts >> _BITS], axis=-1)


def count(flags: Any, weights: Any = None) -> jax.Array:
    """How many flags are set, or the sum of their weights, as a count ``[2]``; see `sum_many`."""
    return sum_many({"count": flags}, weights)["count"]


def sum_words(words: Sequence[Any], weights: Any = None) -> jax.Array:
    """Exact sum of numbers given as little-endian 32-bit words; see `sum_many`."""
    return sum_many({"sum": words}, weights)["sum"]


def sum_many(numbers: dict[str, Any], weights: Any = None) -> dict[str, jax.Array]:
    """Exact sums over all samples of several numbers, in one variadic reduction.

    Separate reductions over one producer are not fused by XLA on CPU (measured: two take 29 times as long as one
    variadic reduction of both), so whatever a batch has to add up goes through one call.

    Args:
      numbers: by name, a bool array (flags to count), or W uint32 arrays: the little-endian words of
        ``sum_i words[i] 2**(32 i)`` per sample, zero where a sample is masked. All of one shape.
      weights: uint32 multiplicities of that shape, or None.

    Returns:
      By name, a count ``[2]``, or ``[2 W + 2]`` limbs: normalized, with room for 2^48 samples.
    """
    factors = None
    if weights is not None:
        weights = weights.reshape(-1)
        factors = (weights & _LOW, weights >> _BITS)
    digits: list[list[Any]] = []
    for value in numbers.values():
        if isinstance(value, (list, tuple)):
            own = [half for w in value for half in (w.reshape(-1) & _LOW, w.reshape(-1) >> _BITS)]
            digits.append(_weighted(own, factors) if factors else own)
        else:
            flag = value.reshape(-1)
            digits.append(
                [jnp.where(flag, f, jnp.uint32(0)) for f in factors] if factors else [flag.astype(jnp.uint32)]
            )
    sizes = [2 * len(v) + 2 if isinstance(v, (list, tuple)) else 2 for v in numbers.values()]
    return {name: _exactly(d, n) for name, d, n in zip(numbers, _add_up(digits), sizes)}


def _exactly(digits: list[Any], num_limbs: int) -> jax.Array:
    """Digits with carries pending as a number of ``num_limbs`` limbs, of which the last is 32 bits wide."""
    zero = jnp.zeros_like(digits[0])
    number = normalize(jnp.stack(digits + [zero] * max(1, num_limbs + 1 - len(digits)), axis=-1))
    top = number[..., num_limbs - 1] + (number[..., num_limbs] << _BITS)
    return jnp.concatenate([number[..., : num_limbs - 1], top[..., None]], axis=-1)


def _weighted(digits: list[Any], factors: tuple[Any, Any]) -> list[Any]:
    """Products of 16-bit digits with a two-digit weight, kept as digits below 2^18."""
    out: list[Any] = [None] * (len(digits) + 2)
    for i, digit in enumerate(digits):
        for j, factor in enumerate(factors):
            product = digit * factor
            for k, part in ((i + j, product & _LOW), (i + j + 1, product >> _BITS)):
                out[k] = part if out[k] is None else out[k] + part
    return out


def _add_up(numbers: list[list[Any]]) -> list[list[Any]]:
    """Sums of the digit arrays ``[n]`` of several numbers, digits below 2^18, as uint32 scalars with carries
    pending."""
    while (n := numbers[0][0].shape[0]) > _CHUNK:
        flat = [d for digits in numbers for d in digits]
        main = n - n % _CHUNK
        partial = _reduce([d[:main].reshape(-1, _CHUNK) for d in flat], 1)
        if main < n:
            tail = _reduce([d[main:].reshape(1, -1) for d in flat], 1)
            partial = [jnp.concatenate(pair) for pair in zip(partial, tail)]
        left = iter(partial)
        numbers = [_split([next(left) for _ in digits]) for digits in numbers]
    left = iter(_reduce([d for digits in numbers for d in digits], 0))
    return [[next(left) for _ in digits] for digits in numbers]


def _split(sums: list[Any]) -> list[Any]:
    """Partial sums, which fill 32 bits, as 16-bit digits again, so that the next level cannot overflow."""
    low, high = [s & _LOW for s in sums], [s >> _BITS for s in sums]
    return [low[0], *(a + b for a, b in zip(low[1:], high[:-1])), high[-1]]


def _reduce(arrays: list[Any], axis: int) -> list[Any]:
    """One variadic reduction: each array is read once however many digits a sample has."""
    zeros = tuple(jnp.zeros((), jnp.uint32) for _ in arrays)
    return list(lax.reduce(tuple(arrays), zeros, lambda a, b: tuple(x + y for x, y in zip(a, b)), (axis,)))
