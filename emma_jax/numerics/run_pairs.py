"""Exact pair counts from words of a key and a label, sorted by NumPy: of 32 bits where a run of scores allows it, in
half the time that `ranking.pairs_from_keys_host` takes with 64."""

from __future__ import annotations

import numpy as np

__all__ = ["pairs_of_run", "pairs_of_words"]

_MAGNITUDE = np.int32(0x7FFFFFFF)
_INFINITY = 0x7F800000
_HALF = 1 << 30
# Up to so many samples the sum of all positions fits 32 bits, whose dot product is the fastest way to it.
_SHORT = 92_000


def pairs_of_run(scores: np.ndarray, positive: np.ndarray) -> int | None:
    """``2 #{s+ > s-} + #{s+ = s-}`` of one run, exactly; None where 32 bits do not hold its keys, or a score is NaN.

    NumPy sorts 32 bits twice as fast as 64 (62 against 127 microseconds for 16,384). A float32 key has 32 bits and the
    label is one more. But scores without a minus sign leave a bit free; and of others not all magnitudes occur: with
    the smallest taken off, 30 bits a side are enough unless they span more than 2^128 to one (an infinity does).

    Args:
      scores: float32 ``[n]``.
      positive: uint32 ``[n]``, 0 or 1.
    """
    bits = np.ascontiguousarray(scores).view(np.int32)
    if int(bits.min(initial=0)) >= 0:
        if int(bits.max(initial=0)) > _INFINITY:
            return None
        packed = bits.view(np.uint32) << np.uint32(1)
    else:
        magnitude = bits & _MAGNITUDE
        top = int(magnitude.max())
        # Zero, whose key is 0 on either side, wraps to the largest number here and is no minimum.
        low = min(int((magnitude.view(np.uint32) - np.uint32(1)).min()), top)
        if top > _INFINITY or top - low >= _HALF:
            return None
        magnitude -= np.int32(low)
        np.maximum(magnitude, 0, out=magnitude)
        sign = bits >> np.int32(31)
        magnitude ^= sign
        magnitude -= sign
        magnitude += np.int32(_HALF)
        packed = magnitude.view(np.uint32)
        packed <<= np.uint32(1)
    packed |= positive
    return pairs_of_words(packed)


def pairs_of_words(packed: np.ndarray) -> int:
    """``2 #{s+ > s-} + #{s+ = s-}`` of integers ``[n]``, key << 1 | label; they are sorted in place."""
    packed.sort()
    # A negative sorts before a positive of its key: the r-th positive (from 0) at position i has i - r negatives at or
    # below its key. Ties are then taken off once, at the one step that each mixed key has.
    flags = packed & packed.dtype.type(1)
    count = int(np.count_nonzero(flags))
    up_to = _sum_of_positions(flags) - count * (count - 1) // 2
    step = np.flatnonzero((packed[1:] ^ packed[:-1]) == 1)
    if step.shape[0] == 0:
        return 2 * up_to
    tied = packed[step]
    first = np.searchsorted(packed, tied, side="left")
    last = np.searchsorted(packed, tied | packed.dtype.type(1), side="right")
    return 2 * up_to - int(((step + 1 - first) * (last - step - 1)).sum())


def _sum_of_positions(flags: np.ndarray) -> int:
    """Sum over the places where a flag of 0 or 1 is set."""
    if flags.shape[0] <= _SHORT:
        return int(flags.astype(np.uint32, copy=False).dot(np.arange(flags.shape[0], dtype=np.uint32)))
    return int(np.flatnonzero(flags.astype(bool)).sum())  # over bool: a third of the time over integers
