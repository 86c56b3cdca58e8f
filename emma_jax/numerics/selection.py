"""Exact weighted medians and quantiles by radix selection on order keys: two histogram passes instead of a sort.

A pass counts the keys per 16 bits, finds the bin in which the cumulative count reaches what is asked, and looks at the
next 16 bits inside that bin only. All counts are integers of any size (`emma_jax.numerics.limbs`). On the host NumPy's
vectorised partition does the same in less time.

For streams there are two states: a histogram over 65,536 bins, whose median lies in a known interval, and a buffer of
sorted keys, which is exact until it is full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from emma_jax.numerics import limbs
from emma_jax.numerics.histogram import bin_limbs
from emma_jax.numerics.keys import nan_key

__all__ = [
    "BINS",
    "Reached",
    "buffer_all_reduce",
    "buffer_merge",
    "buffer_shapes",
    "cumulative",
    "extend",
    "fill_buffer",
    "lower_middle",
    "middle_bins",
    "middle_keys",
    "middle_keys_host",
    "quantile",
    "select",
    "upper_middle",
]

BINS = 1 << 16
_DIGIT = 16

Reached = Callable[[Any, Any], Any]
"""``reached(count, total)``: whether a cumulative count (limbs ``[..., 2]``) is enough, given the total ``[2]``."""


def lower_middle(count: Any, total: Any) -> Any:
    """Reached at the lower of the two middle entries: twice the count is at least the total."""
    return limbs.compare_ge(limbs.add(count, count), _like(total, count))


def upper_middle(count: Any, total: Any) -> Any:
    """Reached at the upper of the two middle entries (the same one where the total is odd)."""
    return ~limbs.compare_ge(_like(total, count), limbs.add(count, count))


def quantile(numerator: int, denominator: int) -> Reached:
    """Reached once more than ``numerator / denominator`` of the total is counted, compared as integers."""

    def reached(count: Any, total: Any) -> Any:
        p, q = (limbs.from_int(v, 1 + v.bit_length() // 16) for v in (numerator, denominator))
        have = limbs.multiply(limbs.strict(count), q)
        want = limbs.multiply(limbs.strict(_like(total, count)), p)
        size = max(have.shape[-1], want.shape[-1])
        return ~limbs.compare_ge(extend(want, size), extend(have, size))

    return reached


def _like(total: Any, count: Any) -> Any:
    xp: Any = np if isinstance(count, np.ndarray) else jnp
    return xp.broadcast_to(total, count.shape)


def extend(number: Any, size: int) -> Any:
    """A number of limbs with zero limbs on top."""
    xp: Any = np if isinstance(number, np.ndarray) else jnp
    pad = xp.zeros((*number.shape[:-1], size - number.shape[-1]), xp.uint32)
    return xp.concatenate([number, pad], axis=-1)


def cumulative(counts: Any) -> Any:
    """Inclusive cumulative counts along the bins of ``[..., bins, 2]``; limb sums over 2^16 bins fit 32 bits."""
    xp: Any = np if isinstance(counts, np.ndarray) else jnp
    low = xp.cumsum(counts[..., 0], axis=-1, dtype=np.uint32)
    high = xp.cumsum(counts[..., 1], axis=-1, dtype=np.uint32)
    return limbs.normalize(xp.stack([low, high], axis=-1))


def select(keys: Any, used: Any, queries: Sequence[Reached], weights: Any = None) -> list[Any]:
    """For each query, the least key at which the cumulative count reaches what it asks.

    Args:
      keys: order keys ``[n]``, uint32 or uint64. used: bool ``[n]`` or None. weights: uint32 ``[n]`` or None.
      queries: what a count has to reach; for an empty selection the key found means nothing.
    """
    num = len(queries)
    width = 8 * keys.dtype.itemsize
    u = keys.dtype.type
    prefixes = [jnp.zeros((), keys.dtype)] * num
    starts: list[Any] = []
    total = None
    for shift in range(width - _DIGIT, -1, -_DIGIT):
        digit = ((keys >> u(shift)) & u(BINS - 1)).astype(jnp.uint32)
        first_pass = total is None
        regions = 1 if first_pass else num
        index = jnp.full(keys.shape, np.uint32(regions * BINS))
        above = keys >> u(min(shift + _DIGIT, width - 1))
        for i in reversed(range(regions)):
            inside = jnp.ones(keys.shape, bool) if first_pass else above == prefixes[i] >> u(shift + _DIGIT)
            index = jnp.where(inside, digit + np.uint32(i * BINS), index)
        index = index if used is None else jnp.where(used, index, np.uint32(regions * BINS))
        counts = cumulative(bin_limbs(index, regions * BINS, weights).reshape(regions, BINS, 2))
        if first_pass:
            total = counts[0, -1]
            starts = [jnp.zeros_like(total)] * num
        found = []
        for i, reached in enumerate(queries):
            # Keys of equal prefix are counted once, in the region of the first query that has it.
            region = jnp.zeros((), jnp.int32)
            for j in reversed(range(0 if first_pass else i + 1)):
                region = jnp.where(prefixes[j] == prefixes[i], j, region)
            up_to = limbs.add(jnp.take(counts, region, axis=0), starts[i])
            at = jnp.argmax(reached(up_to, total))
            start = jnp.where(at > 0, up_to[jnp.maximum(at - 1, 0)], starts[i])
            found.append((prefixes[i] | (at.astype(keys.dtype) << u(shift)), start))
        prefixes, starts = [p for p, _ in found], [s for _, s in found]
    return prefixes


def middle_keys(keys: Any, used: Any, weights: Any = None) -> jax.Array:
    """The two middle keys ``[2]`` of a multiset (equal where its size is odd); arguments as for `select`."""
    return jnp.stack(select(keys, used, (lower_middle, upper_middle), weights))


def middle_keys_host(keys: np.ndarray, count: int, weights: np.ndarray | None = None) -> np.ndarray:
    """The two middle keys ``[2]`` by NumPy's vectorised partition; zeros for an empty multiset.

    Args:
      keys: order keys ``[n]``, of which the ``count`` smallest count; reordered in place.
      count: how many keys count, or without meaning if there are weights.
      weights: uint32 ``[n]`` multiplicities (0 where a key does not count), or None.
    """
    if weights is not None:
        order = np.argsort(keys)
        up_to = np.cumsum(weights[order], dtype=np.uint64)
        n = int(up_to[-1]) if up_to.size else 0
        if n == 0:
            return np.zeros(2, keys.dtype)
        ranks = np.array([(n - 1) // 2, n // 2], np.uint64)
        return keys[order[np.searchsorted(up_to, ranks, side="right")]]
    if count == 0:
        return np.zeros(2, keys.dtype)
    keys.partition(count // 2)
    upper = keys[count // 2]
    lower = upper if count % 2 else keys[: count // 2].max()
    return np.array([lower, upper], keys.dtype)


def middle_bins(counts: Any, xp: Any) -> tuple[Any, Any]:
    """Indices ``[...]`` of the bins that hold the two middle entries of a histogram ``[..., BINS, 2]``."""
    up_to = cumulative(counts)
    lower, upper = (xp.argmax(reached(up_to, up_to[..., -1:, :]), axis=-1) for reached in (lower_middle, upper_middle))
    return lower, upper


# --- a buffer of sorted keys ------------------------------------------------------------------------------------


def buffer_shapes(capacity: int) -> dict[str, tuple[int, ...]]:
    """Shapes of a buffer: ``keys`` and ``weight`` in ascending order, ``overflow`` not zero once it is incomplete."""
    return {"keys": (capacity,), "weight": (capacity,), "overflow": (2,)}


def fill_buffer(capacity: int, keys: Any, used: Any, weights: Any = None) -> dict[str, jax.Array]:
    """A buffer of the used keys (uint32 ``[n]``)."""
    weight = jnp.ones(keys.shape, jnp.uint32) if weights is None else weights
    return _fit(capacity, keys, weight if used is None else jnp.where(used, weight, jnp.uint32(0)))


def _fit(capacity: int, keys: Any, weight: Any) -> dict[str, jax.Array]:
    empty = np.uint32(nan_key(keys))
    real = weight > 0
    # No real key is as large as an empty one.
    keys, weight = lax.sort((jnp.where(real, keys, empty), weight), num_keys=2)
    pad = max(0, capacity - keys.shape[0])
    return {
        "keys": jnp.pad(keys[:capacity], (0, pad), constant_values=empty),
        "weight": jnp.pad(weight[:capacity], (0, pad)),
        "overflow": limbs.widen((jnp.sum(real, dtype=jnp.uint32) > capacity).astype(jnp.uint32)),
    }


def buffer_merge(capacity: int, a: Any, b: Any) -> dict[str, jax.Array]:
    """Two buffers as one."""
    out = _fit(capacity, *(jnp.concatenate([a[k], b[k]]) for k in ("keys", "weight")))
    return out | {"overflow": limbs.add(limbs.add(a["overflow"], b["overflow"]), out["overflow"])}


def buffer_all_reduce(capacity: int, buffer: Any, axis_name: Any) -> dict[str, jax.Array]:
    """The buffers of a mapped axis as one; they are gathered, so capacity times devices keys travel."""
    size, index = lax.psum(1, axis_name), lax.axis_index(axis_name)

    def gather(x: Any) -> Any:
        # psum of one slot per device keeps the result replicated by type, which all_gather does not promise.
        slots = lax.dynamic_update_index_in_dim(jnp.zeros((size, *x.shape), x.dtype), x, index, 0)
        return lax.psum(slots, axis_name).reshape(-1)

    out = _fit(capacity, gather(buffer["keys"]), gather(buffer["weight"]))
    rest = limbs.normalize(lax.psum(buffer["overflow"], axis_name))
    return out | {"overflow": limbs.add(rest, out["overflow"])}
