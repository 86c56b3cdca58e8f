"""A long pass cut into blocks that stay in a processor's cache, so that its temporaries are never written to memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

__all__ = ["in_blocks", "over_blocks"]


def in_blocks(n: int, most: int) -> bool:
    """Whether `over_blocks` cuts ``n`` rows up, rather than handing them over at once."""
    return n > 2 * most and jax.default_backend() == "cpu"


def over_blocks(n: int, most: int, carry: Any, body: Callable[[Any, Any, int, Any], Any]) -> Any:
    """``body`` for one block of ``n`` rows after another; for all of them at once where they are few, or not on CPU.

    Args:
      n: number of rows.
      most: rows of a block, at most.
      carry: what is handed from block to block; inside `jax.shard_map` it has to vary over the axes over which the
        data do (`emma_jax.numerics.floats.tie`).
      body: from (carry, start, size, fresh) to the next carry: rows ``start`` to ``start + size``, of which those
        where ``fresh`` (bool ``[size]``, or None for all) have not been in a block before.
    """
    if not in_blocks(n, most):
        return body(carry, 0, n, None)
    # Equal blocks where they are at least half as long: none of them overlaps another.
    count = next((q for q in range(-(-n // most), 2 * n // most + 1) if n % q == 0), -(-n // most))
    size = n // count if n % count == 0 else most

    def step(i: Any, carry: Any) -> Any:
        start = jnp.minimum(i * size, n - size)
        return body(carry, start, size, None if n % size == 0 else lax.iota(jnp.int32, size) >= i * size - start)

    return lax.fori_loop(0, count, step, carry)
