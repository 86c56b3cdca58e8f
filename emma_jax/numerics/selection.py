"""Exact weighted medians and quantiles by radix selection on order keys: two histogram passes instead of a sort.

A pass counts the keys per 16 bits, finds the bin in which the cumulative count reaches what is asked, and looks at the
next 16 bits inside that bin only. All counts are integers of any size (`emma_jax.numerics.limbs`).

Medians of many keys without weights take a shorter way, which a fixed sample opens by saying about where the middle
lies. In a kernel each pass counts the keys up to each of six pivots, and the next six lie in the one gap left; on
the host one pass counts what lies below a bracket and picks what lies inside. The exact counts alone settle the result,
so the sample decides about nothing but the time.

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
from emma_jax.numerics.floats import common_zero, tie
from emma_jax.numerics.histogram import bin_limbs
from emma_jax.numerics.keys import nan_key
from emma_jax.numerics.sampling import spread

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
# So many keys are worth a sample on the host.
_SAMPLE_FROM = 1 << 16
_SAMPLE = 1 << 13
# Keys of the sample by which the middle may be off: three standard errors, and one for rounding.
_SLACK = 137
# Keys a block of the host's pass, which fit the cache.
_BLOCK = 1 << 17
# A kernel's sample, which is sorted; so few keys need no search.
_SORTED = 1 << 11
# Where the first pivots lie about the middle of that sample: within two standard errors of its rank.
_OFFSETS = np.array([-42, 0, 42], np.int32)
# Later pivots: four at equal distances, and two a standard error from where the middle is to be expected between the
# ends. More of them cost more time than they save passes.
_EVEN = np.arange(1, 5, dtype=np.float32) / np.float32(5)
_NEAR = np.array([-1, 1], np.float32)
# Keys per row of a kernel's pass, at most: XLA on CPU spreads the rows over the processors.
_ROW = 1 << 13

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


def middle_keys(keys: Any, used: Any, weights: Any = None, count: Any = None) -> jax.Array:
    """The two middle keys ``[2]`` of a multiset (equal where its size is odd).

    Args:
      keys, used, weights: as for `select`.
      count: how many keys are used, a uint32 scalar, where that is known and the others are `nan_key`; it saves time.
    """
    if weights is not None or keys.dtype != jnp.uint32 or keys.shape[0] == 0:
        return jnp.stack(select(keys, used, (lower_middle, upper_middle), weights))
    if count is None and used is not None:
        count, keys = jnp.sum(used, dtype=jnp.uint32), jnp.where(used, keys, np.uint32(nan_key(keys)))
    count = jnp.asarray(np.uint32(keys.shape[0]) if count is None else count)
    ranks = [(jnp.maximum(count, np.uint32(1)) - np.uint32(1)) // np.uint32(2), count // np.uint32(2)]
    if keys.shape[0] <= _SORTED:
        return jnp.sort(keys)[jnp.stack(ranks).astype(jnp.int32)]
    return _between_pivots(keys, count, ranks)


def _between_pivots(keys: Any, count: Any, ranks: list[Any]) -> jax.Array:
    """The keys of two neighbouring (or equal) ranks among uint32 keys, the middle of the ``count`` smallest.

    The first of them is kept between ``low`` and ``high``, of which the number of keys below the one and up to the
    other is known, until no more than two keys lie there. Four pivots at equal distances bound the passes by fourteen,
    whatever the keys; on smooth ones the other two make it about five. Measured for 1.8e6 keys on two cores: a pass
    takes 0.3 ms, and a histogram of 16 bits, which has to scatter, 4.
    """
    n, u = keys.shape[0], np.uint32
    sample = jnp.sort(keys.at[spread(_SORTED, n)].get(mode="promise_in_bounds"))
    middle = (count.astype(jnp.float32) * np.float32(_SORTED / 2 / n)).astype(jnp.int32)
    first = sample[jnp.clip(middle + _OFFSETS, 0, _SORTED - 1)]
    # With its predecessor, a pivot singles out a key that ties fill the gap with.
    state = (jnp.concatenate([first, first - u(1)]), u(0), u(nan_key(keys)), u(0), u(n))
    keys = _rows(keys)

    def open_(state: Any) -> Any:
        _, low, high, below, up_to = state
        return (low < high) & (up_to - below > u(2))

    def narrow(state: Any) -> Any:
        pivots, low, high, below, up_to = state
        counts = _count_up_to(keys, pivots)
        beyond = counts > ranks[0]
        low = jnp.maximum(low, jnp.max(jnp.where(beyond, u(0), pivots + u(1))))
        below = jnp.maximum(below, jnp.max(jnp.where(beyond, u(0), counts)))
        high = jnp.minimum(high, jnp.min(jnp.where(beyond, pivots, u(nan_key(keys)))))
        up_to = jnp.minimum(up_to, jnp.min(jnp.where(beyond, counts, u(n))))
        return _pivots(low, high, ranks[0] - below, up_to - below), low, high, below, up_to

    _, low, high, below, up_to = lax.while_loop(open_, narrow, tie(common_zero(keys, count[None]), state))
    least, greatest, following = _extremes(keys, low, high)
    return jnp.stack([jnp.where(r == below, least, jnp.where(r < up_to, greatest, following)) for r in ranks])


def _pivots(low: Any, high: Any, rank: Any, inside: Any) -> Any:
    """Six keys of ``low`` to ``high - 1``: equally spaced ones, and some about where the key of this rank lies if the
    keys inside are spread evenly."""
    at = (rank.astype(jnp.float32) + np.float32(0.5)) / inside.astype(jnp.float32)
    error = jnp.sqrt(jnp.abs(at * (np.float32(1) - at)) / inside.astype(jnp.float32))
    share = jnp.concatenate([at + error * _NEAR, _EVEN])
    width = high - low
    # Less than one, so that the product never rounds to 2^32.
    offset = (jnp.clip(share, np.float32(0), np.float32(0.999)) * width.astype(jnp.float32)).astype(jnp.uint32)
    return low + jnp.minimum(offset, jnp.maximum(width, np.uint32(1)) - np.uint32(1))


def _rows(keys: Any) -> Any:
    """Keys ``[n]`` as rows, filled up with the largest key where ``n`` has no fitting divisor."""
    n = keys.shape[0]
    size = next((s for s in range(min(n, _ROW), _ROW // 4, -1) if n % s == 0), _ROW)
    missing = -n % size
    if missing:
        keys = jnp.pad(keys, (0, missing), constant_values=np.uint32(nan_key(keys)))
    return keys.reshape(-1, size)


def _count_up_to(keys: Any, pivots: Any) -> Any:
    """How many keys (rows) are at most each pivot ``[k]``, in one pass.

    Filling counts for the largest pivot only, which is the largest key: beyond every rank, with or without it.
    """
    ones = tuple((keys <= pivots[i]).astype(jnp.uint32) for i in range(pivots.shape[0]))
    zeros = tuple(np.uint32(0) for _ in ones)
    counts = lax.reduce(ones, zeros, lambda a, b: tuple(x + y for x, y in zip(a, b)), (1,))
    return jnp.sum(jnp.stack(counts), axis=1, dtype=jnp.uint32)


def _extremes(keys: Any, low: Any, high: Any) -> tuple[Any, Any, Any]:
    """Of rows of keys the least from ``low`` on, the greatest up to ``high``, and the least beyond, in one pass.

    Together, because XLA on CPU does not vectorise a single minimum of integers.
    """
    most, u = np.uint32(nan_key(keys)), np.uint32
    found = jnp.where(keys >= low, keys, most), jnp.where(keys <= high, keys, u(0)), jnp.where(keys > high, keys, most)

    def combine(a: Any, b: Any) -> tuple[Any, ...]:
        return jnp.minimum(a[0], b[0]), jnp.maximum(a[1], b[1]), jnp.minimum(a[2], b[2])

    least, greatest, following = lax.reduce(found, (most, u(0), most), combine, (1,))
    return jnp.min(least), jnp.max(greatest), jnp.min(following)


def middle_keys_host(keys: np.ndarray, count: int, weights: np.ndarray | None = None) -> np.ndarray:
    """The two middle keys ``[2]`` by NumPy's vectorised partition; zeros for an empty multiset.

    Args:
      keys: order keys ``[n]``, of which the ``count`` smallest count; may be reordered in place.
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
    rank = count // 2
    if keys.shape[0] >= _SAMPLE_FROM:
        low, high = _bracket(keys, count)
        below, inside = _pick(keys, low, high)
        if below <= (count - 1) // 2 and rank < below + inside.shape[0]:
            if low == high:
                return np.array([low, low], keys.dtype)
            keys, rank = inside, rank - below
    keys.partition(rank)
    upper = keys[rank]
    lower = upper if count % 2 else keys[:rank].max()
    return np.array([lower, upper], keys.dtype)


def _bracket(keys: np.ndarray, count: int) -> tuple[Any, Any]:
    """Lowest and highest key between which the middle of the ``count`` smallest lies, most probably."""
    n = keys.shape[0]
    sample = np.sort(keys[spread(_SAMPLE, n)])
    middle = count * _SAMPLE // (2 * n)
    first, last = middle - _SLACK, middle + _SLACK
    ends = np.iinfo(keys.dtype)
    low = sample[first] if first >= 0 else keys.dtype.type(ends.min)
    return low, sample[last] if last < _SAMPLE else keys.dtype.type(ends.max)


def _pick(keys: np.ndarray, low: Any, high: Any) -> tuple[int, np.ndarray]:
    """How many keys lie below a bracket, and the keys inside; none if they are more than half of all."""
    if low == high:
        return int(np.count_nonzero(keys < low)), np.full(np.count_nonzero(keys == low), low)
    below, parts, held = 0, [keys[:0]], 0
    for start in range(0, keys.shape[0], _BLOCK):
        x = keys[start : start + _BLOCK]
        below += int(np.count_nonzero(x < low))
        # Unsigned, what lies below wraps around.
        parts.append(x[x - low <= high - low])
        held += parts[-1].shape[0]
        if 2 * held > keys.shape[0]:
            return below, keys[:0]
    return below, np.concatenate(parts)


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
