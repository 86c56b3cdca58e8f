"""A fixed sample that guesses where something lies, before exact counts prove the guess."""

from __future__ import annotations

import numpy as np

__all__ = ["spread"]


def spread(size: int, n: int) -> np.ndarray:
    """So many positions in 0..n-1, spread by the golden ratio: neither sorted nor periodic values fool such a sample.

    Returns:
      int32 ``[size]``, or int64 where ``n`` needs it.
    """
    fraction = np.arange(1, size + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(40)
    return (fraction * np.uint64(n) >> np.uint64(24)).astype(np.int32 if n < 1 << 31 else np.int64)
