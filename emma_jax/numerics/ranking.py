"""Exact pair counts (AUC) and the exact equal-error crossing (EER), from order keys or from histograms over key
bins."""

from __future__ import annotations

import math
import operator
import os
from bisect import bisect_left, bisect_right
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from emma_jax.numerics import limbs
from emma_jax.numerics.histogram import bin_counts
from emma_jax.numerics.keys import host_key, host_key_value, nan_key
from emma_jax.numerics.run_pairs import pairs_of_words
from emma_jax.numerics.sampling import spread

__all__ = [
    "PAIR_LIMBS",
    "crossing_from_histogram",
    "crossing_from_keys",
    "crossing_host",
    "crossing_of_labels",
    "dense_ranks",
    "pairs_from_histogram",
    "pairs_from_keys",
    "pairs_from_keys_host",
]

# Twice the number of ordered pairs: at most 2 * 2^32 * 2^32, in limbs of 16 bits.
PAIR_LIMBS = 6
_DIGIT = 16
# Up to so many trials under trace are binned by 8 bits at a time.
_FEW = 1 << 16


# --- pairs: 2 #{s+ > s-} + #{s+ = s-} ---------------------------------------------------------------------------


def pairs_from_keys(keys: Any, positive: Any, used: Any, weights: Any = None) -> jax.Array:
    """``2 #{(i, j): k_i > k_j} + #{(i, j): k_i = k_j}`` over positives i and negatives j, as limbs ``[6]``.

    On a CPU key and label are sorted as one 32-bit word, wherever the keys leave room for the label, and one pass over
    the words counts (a third of the time that searching takes). Else the negatives are sorted and searched.

    Args:
      keys: ``[n]`` order keys.
      positive: bool ``[n]``.
      used: bool ``[n]``; entries that are not used count on neither side.
      weights: uint32 ``[n]`` multiplicities, or None; their sum must stay below 2^32.
    """

    if weights is not None or keys.dtype != jnp.uint32 or keys.shape[0] == 0:
        return _pairs_by_search(keys, positive, used, weights)
    return _plain_pairs(keys, positive, used)


@jax.custom_batching.custom_vmap
def _plain_pairs(keys: Any, positive: Any, used: Any) -> Any:
    """`pairs_from_keys` of uint32 keys without weights."""

    def on_cpu() -> Any:
        words, fits = _words(keys, positive, used)
        return lax.cond(fits, lambda: _pairs_of_words(words), on_any)

    def on_any() -> Any:
        return _pairs_by_search(keys, positive, used, None)

    return lax.platform_dependent(cpu=on_cpu, default=on_any)


@_plain_pairs.def_vmap
def _batched_pairs(size: int, batched: Any, *args: Any) -> Any:
    """Under `jax.vmap` a CPU takes row after row, since a walk over many rows at once would crawl."""
    rows = tuple(x if b else jnp.broadcast_to(x, (size, *x.shape)) for x, b in zip(args, batched))

    def on_cpu() -> Any:
        return lax.map(lambda row: _plain_pairs(*row), rows)

    def on_any() -> Any:
        return jax.vmap(lambda k, p, u: _pairs_by_search(k, p, u, None))(*rows)

    return lax.platform_dependent(cpu=on_cpu, default=on_any), True


# No word of a trial: keys take up less than 2^31 values, so that the largest words stay free.
_NO_WORD = np.uint32(0xFFFFFFFF)


def _words(keys: Any, positive: Any, used: Any) -> tuple[Any, Any]:
    """``rank 2 + positive`` for every trial, with ranks that order and tie as the keys do, and whether they fit.

    Negative and positive floats fill two ranges of keys with a wide gap between them, which is closed. What is left has
    fewer than 2^31 values unless both together span 256 octaves (from 0 to 1 there are 127).
    """
    half = np.uint32(1 << 31)
    upper = keys >= half
    sides = [used & ~upper, used & upper]
    first = [jnp.min(jnp.where(side, keys, _NO_WORD)) for side in sides]
    last = [jnp.max(jnp.where(side, keys, np.uint32(0))) for side in sides]
    span = [jnp.where(jnp.any(side), b - a + 1, np.uint32(0)) for side, a, b in zip(sides, first, last)]
    fits = (span[0] < half) & (span[1] < half) & (span[0] + span[1] < half)
    rank = jnp.where(upper, keys - first[1] + span[0], keys - first[0])
    return jnp.where(used, rank * 2 + positive.astype(jnp.uint32), _NO_WORD), fits


def _pairs_of_words(words: Any) -> jax.Array:
    """The pairs from `_words`: a sort, then one walk in which each positive counts the negatives up to its key twice,
    less those of its key."""
    one, zero = np.uint32(1), np.uint32(0)

    def step(carry: Any, word: Any) -> tuple[Any, None]:
        rank, below, tied, low, high = carry
        same = word >> one == rank
        below = jnp.where(same, below, below + tied)
        tied = jnp.where(same, tied, zero)
        positive = word & one
        real = word != _NO_WORD
        tied = tied + (one - positive)
        # Two terms below 2^32 each, added with their carries.
        first = jnp.where((positive == one) & real, below, zero)
        second = jnp.where((positive == one) & real, below + tied, zero)
        sum_1 = low + first
        sum_2 = sum_1 + second
        high = high + (sum_1 < first).astype(jnp.uint32) + (sum_2 < second).astype(jnp.uint32)
        return (word >> one, below, tied, sum_2, high), None

    # The walk is a loop of plain scalars on a CPU, 6 ns a trial. It starts from a 0 made of the words, which varies
    # over devices as they do, with a rank that no word has.
    none = words[0] & zero
    start = (none | np.uint32(0xFFFFFFFE), none, none, none, none)
    carry = lax.scan(step, start, lax.sort(words, is_stable=False))[0]
    low, high = carry[3], carry[4]
    mask, bits = np.uint32(0xFFFF), np.uint32(16)
    digits = [low & mask, low >> bits, high & mask, high >> bits]
    return jnp.stack([*digits, *(jnp.zeros_like(low) for _ in range(PAIR_LIMBS - 4))])


def _pairs_by_search(keys: Any, positive: Any, used: Any, weights: Any) -> jax.Array:
    """The pairs by two binary searches per positive among the sorted keys of the negatives."""
    pad = keys.dtype.type(nan_key(keys))
    negative = used & ~positive
    masked = jnp.where(negative, keys, pad)
    if weights is None:
        ordered = lax.sort(masked)
        below = jnp.searchsorted(ordered, keys, side="left").astype(jnp.uint32)
        up_to = jnp.searchsorted(ordered, keys, side="right").astype(jnp.uint32)
        # The padding sorts last; a score with that very key (the largest integer) must not count it.
        up_to = jnp.minimum(up_to, jnp.sum(negative, dtype=jnp.uint32))
    else:
        ordered, w = lax.sort((masked, jnp.where(negative, weights, jnp.uint32(0))), num_keys=1)
        cumulative = jnp.concatenate([jnp.zeros_like(w[:1]), jnp.cumsum(w, dtype=jnp.uint32)])
        below = cumulative[jnp.searchsorted(ordered, keys, side="left")]
        up_to = cumulative[jnp.searchsorted(ordered, keys, side="right")]
    keep = used & positive
    zero = jnp.uint32(0)
    w_pos = None if weights is None else jnp.where(keep, weights, zero)
    sums = limbs.sum_many({"below": [jnp.where(keep, below, zero)], "up_to": [jnp.where(keep, up_to, zero)]}, w_pos)
    total = limbs.normalize(sums["below"] + sums["up_to"])
    return jnp.concatenate([total, jnp.zeros((PAIR_LIMBS - total.shape[-1],), total.dtype)])


def pairs_from_keys_host(keys: np.ndarray, positive: np.ndarray, weights: np.ndarray | None = None) -> int:
    """The number of `pairs_from_keys` as an exact Python int, by NumPy's vectorised sort of key and label in one word.

    Args:
      keys: integers ``[n]`` of at most 62 bits that order as the scores do.
      positive: bool ``[n]``.
      weights: uint32 ``[n]`` or None.
    """
    if weights is not None:
        order = np.argsort(keys, kind="stable")
        keys, positive, w = keys[order], positive[order], weights[order].astype(np.uint64)
        below = np.concatenate([np.zeros(1, np.uint64), np.cumsum(np.where(positive, np.uint64(0), w))])
        start = np.searchsorted(keys, keys[positive], side="left")
        end = np.searchsorted(keys, keys[positive], side="right")
        return _exact_dot(w[positive], below[start] + below[end])
    packed = keys.astype(np.int64)
    packed <<= 1
    packed |= positive
    return pairs_of_words(packed)


def _exact_dot(a: np.ndarray, b: np.ndarray) -> int:
    """``sum a b`` of uint64 arrays, a below 2^32, as a Python int: digits of 16 and 24 bits, in blocks that cannot
    overflow."""
    total = 0
    for start in range(0, a.shape[0], 1 << 24):
        x, y = a[start : start + (1 << 24)], b[start : start + (1 << 24)]
        for i in (0, 16):
            for j in (0, 24, 48):
                part = ((x >> np.uint64(i)) & np.uint64(0xFFFF)) * ((y >> np.uint64(j)) & np.uint64(0xFFFFFF))
                total += int(part.sum()) << (i + j)
    return total


def dense_ranks(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Order-preserving, tie-preserving uint32 ranks of 64-bit values, and the sorted distinct values behind them."""
    flat = values.reshape(-1)
    order = np.argsort(flat)
    ordered = flat[order]
    new = np.empty(flat.shape, bool)
    new[:1] = False
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    ranks = np.empty(flat.shape, np.uint32)
    ranks[order] = np.cumsum(new, dtype=np.uint32)
    keep = new
    keep[:1] = True
    return ranks.reshape(values.shape), ordered[keep]


def pairs_from_histogram(positives: Any, negatives: Any, xp: Any) -> tuple[Any, Any]:
    """AUC from histograms over key bins, ties inside a bin taken as half, and the certified half-width.

    Args:
      positives: counts as limbs ``[..., bins, 2]``, bins in ascending key order.
      negatives: likewise.
      xp: numpy (float64) or jax.numpy (float32).

    Returns:
      (auc, half_width), each ``[...]``: the AUC of the binned scores lies within half_width of auc, whatever the
      order inside the bins.
      NaN where a side is empty.
    """
    below = _cumulative(negatives, xp)
    neg = limbs.to_float(negatives, xp)
    pos = limbs.to_float(positives, xp)
    num_pos = limbs.to_float(_cumulative(positives, xp)[..., -1, :], xp)
    num_neg = limbs.to_float(below[..., -1, :], xp)
    under = xp.concatenate([xp.zeros_like(below[..., :1, :]), below[..., :-1, :]], axis=-2)
    dtype = pos.dtype.type
    undefined = (num_pos == 0) | (num_neg == 0)
    num_pos, num_neg = xp.where(undefined, dtype(1), num_pos), xp.where(undefined, dtype(1), num_neg)
    share = pos / num_pos[..., None]
    certain = xp.sum(share * (limbs.to_float(under, xp) / num_neg[..., None]), axis=-1)
    tied = xp.sum(share * (neg / num_neg[..., None]), axis=-1)
    half = dtype(0.5) * tied
    nan = dtype(np.nan)
    return xp.where(undefined, nan, certain + half), xp.where(undefined, nan, half)


def _cumulative(counts: Any, xp: Any) -> Any:
    """Inclusive cumulative counts along the bins of ``[..., bins, 2]``, exact: limb sums over 2^16 bins fit 32 bits."""
    low = xp.cumsum(counts[..., 0], axis=-1, dtype=np.uint32)
    high = xp.cumsum(counts[..., 1], axis=-1, dtype=np.uint32)
    return limbs.normalize(xp.stack([low, high], axis=-1))


# --- the crossing FAR = FRR -------------------------------------------------------------------------------------
#
# A crossing is a dict of counts: `near` and `far` hold (false accepts, false rejects) as limbs [..., 2] at the two
# ends of the
# ROC segment on which FAR - FRR changes sign, thresholds descending from +inf.


def segment(genuine: Any, impostor: Any, totals: tuple[Any, Any], start: tuple[Any, Any]) -> dict[str, Any]:
    """The first bin, in descending order, after which FAR >= FRR; with the counts before and after it.

    In two levels, groups of bins and then the bins of one group, since both rates are monotone along the bins: a
    cumulative sum over all 65,536 costs more than the histogram itself.

    Args:
      genuine: counts ``[bins]`` (uint32, all together below 2^32) or limbs ``[bins, 2]``, ascending bins, a power of 4.
      impostor: likewise.
      totals: numbers of genuine and impostor trials, ``[2]``.
      start: genuine and impostor trials accepted before the first (highest) bin, ``[2]``.
    """
    xp: Any = np if isinstance(genuine, np.ndarray) else jnp
    size = math.isqrt(genuine.shape[0])
    fine = [x.reshape(size, size, *x.shape[1:]) for x in (genuine, impostor)]
    plain = genuine.ndim == 1
    coarse = [xp.sum(x, axis=1, dtype=np.uint32) for x in fine]
    coarse = [limbs.widen(x) if plain else limbs.normalize(x) for x in coarse]
    group = _first_crossed(coarse[0], coarse[1], totals, start)
    own = [limbs.widen(x[group["bin"]]) if plain else x[group["bin"]] for x in fine]
    found = _first_crossed(own[0], own[1], totals, group["near"])
    return found | {"bin": group["bin"] * size + found["bin"]}


def _first_crossed(genuine: Any, impostor: Any, totals: tuple[Any, Any], start: tuple[Any, Any]) -> dict[str, Any]:
    """`segment` over few bins, by their cumulative counts."""
    xp: Any = np if isinstance(genuine, np.ndarray) else jnp
    accepted_g = limbs.normalize(_cumulative(genuine[::-1], xp) + start[0])
    accepted_i = limbs.normalize(_cumulative(impostor[::-1], xp) + start[1])
    num_g, num_i = (limbs.strict(t) for t in totals)
    rejected = limbs.strict(limbs.subtract(xp.broadcast_to(totals[0], accepted_g.shape), accepted_g))
    # FAR >= FRR as integers: false accepts * genuine trials >= false rejects * impostor trials.
    crossed = limbs.compare_ge(limbs.multiply(limbs.strict(accepted_i), num_g), limbs.multiply(rejected, num_i))
    at = xp.argmax(crossed)
    before = xp.maximum(at - 1, 0)
    first = at == 0
    return {
        "bin": genuine.shape[0] - 1 - at,
        "near": (xp.where(first, start[0], accepted_g[before]), xp.where(first, start[1], accepted_i[before])),
        "far": (accepted_g[at], accepted_i[at]),
    }


# Host trials below this number are sorted; above it a sample says where the crossing must lie, and only those are.
_SORT_BELOW = 1 << 15
_SAMPLE = 1 << 13
_BLOCK = 1 << 17
# So many blocks are worth a pool of threads.
_THREADS_FROM = 16
# Bits of float32's least normal number and of infinity.
_LEAST_NORMAL, _INFINITY = 0x00800000, 0x7F800000

# Scores, genuine flags and weights (or None) of some trials.
_Trials = tuple[np.ndarray, np.ndarray, np.ndarray | None]


def crossing_host(scores: np.ndarray, genuine: np.ndarray, weights: np.ndarray | None = None) -> dict[str, Any]:
    """The crossing of `crossing_from_keys` in NumPy, without sorting or binning all trials.

    A fixed sample brackets the crossing; one pass counts the trials above the bracket and picks those inside it
    (2 ms for 10^6 trials, where a sort takes 10). The exact counts at both ends prove the bracket. Where they do not
    (or where half of the trials tie), all are sorted, so the sample decides about nothing but the time.

    Args:
      scores: real ``[n]`` of up to 32 bits without NaN, or integers of up to 62 bits.
      genuine: bool ``[n]``.
      weights: uint32 ``[n]`` or None.

    Returns:
      As `crossing_from_keys`, with ``key`` a `host_key` as Python int.
    """
    num_genuine = _amount(genuine, weights)
    total = genuine.shape[0] if weights is None else int(weights.sum(dtype=np.uint64))
    totals = (num_genuine, total - num_genuine)
    trials, start = (scores, genuine, weights), (0, 0)
    if min(totals) == 0:
        trials = scores[:0], genuine[:0], None
    elif scores.shape[0] > _SORT_BELOW:
        part, above, _, _ = _pick(*trials, _bracket(*trials))
        if _is_proven(part, above, totals, scores.shape[0]):
            trials, start = part, above
    return _crossing(trials, start, totals)


def crossing_of_labels(scores: np.ndarray, labels: np.ndarray) -> dict[str, Any] | None:
    """`crossing_host` of trials as they come, whose check is part of the one pass over them.

    Args:
      scores: real ``[n]`` of up to 32 bits, or integers of up to 62 bits.
      labels: bool or integers ``[n]``, 1 for genuine and 0 for impostor.

    Returns:
      As `crossing_host`. None where a score is NaN, where a label is neither 0 nor 1, or where the pass settles nothing
      (few trials, one class, many ties): the trials are then left to be checked and counted by `crossing_host`.
    """
    num = scores.shape[0]
    if num <= _SORT_BELOW:
        return None
    part, above, num_genuine, sound = _pick(scores, labels, None, _bracket(scores, labels, None), check=True)
    totals = (num_genuine, num - num_genuine)
    if not sound or min(totals) == 0 or not _is_proven(part, above, totals, num):
        return None
    return _crossing(part, above, totals)


def _is_proven(part: _Trials, above: tuple[int, int], totals: tuple[int, int], num: int) -> bool:
    """Whether the crossing is among the trials that were picked, and they are few."""
    gained = _amount(part[1], part[2]), _amount(~part[1], part[2])
    end = (above[0] + gained[0], above[1] + gained[1])
    return part[0].shape[0] <= num // 2 and not _has_crossed(above, totals) and _has_crossed(end, totals)


def _crossing(trials: _Trials, start: tuple[int, int], totals: tuple[int, int]) -> dict[str, Any]:
    """What `crossing_host` returns, by a sort of the trials, after ``start`` accepted ones."""
    key, near, far = _walk(host_key(trials[0]), trials[1], trials[2], start, totals)
    pairs = [tuple(limbs.from_int(v, 2) for v in pair) for pair in (near, far, totals)]
    return {"key": key, "near": pairs[0], "far": pairs[1], "totals": pairs[2]}


def _amount(flags: np.ndarray, weights: np.ndarray | None) -> int:
    """How many flags are set, or the sum of their weights."""
    return int(np.count_nonzero(flags) if weights is None else weights[flags].sum(dtype=np.uint64))


def _has_crossed(accepted: tuple[int, int], totals: tuple[int, int]) -> bool:
    """FAR >= FRR as integers: false accepts * genuine trials >= false rejects * impostor trials."""
    return accepted[1] * totals[0] >= (totals[0] - accepted[0]) * totals[1]


class _Ascending:
    """Trials in ascending order of their keys (at least one), by position."""

    def __init__(self, keys: np.ndarray, genuine: np.ndarray, weights: np.ndarray | None) -> None:
        self._low = int(keys.min())
        if keys.dtype == np.int32 and int(keys.max()) - self._low < 1 << 31:  # 32 bits sort in half the time of 64
            words = (keys - np.int32(self._low)).view(np.uint32)
        else:
            words, self._low = keys.astype(np.int64), 0
        self._sums: tuple[np.ndarray, ...] = ()
        if weights is not None:
            order = np.argsort(words)
            g, w = genuine[order], weights[order].astype(np.int64)
            parts = [np.cumsum(np.where(flags, w, 0)) for flags in (g, ~g)]
            self._sums = tuple(np.concatenate([np.zeros(1, np.int64), p]) for p in parts)
            self._words = words[order] << words.dtype.type(1)
            return
        words <<= words.dtype.type(1)  # key and label in one word: NumPy sorts with vector instructions
        words |= genuine
        words.sort()
        self._words, self._genuine = words, (words & words.dtype.type(1)).astype(bool)

    def below(self, at: int) -> tuple[int, int]:
        """How many genuine and impostor trials come before a position."""
        if self._sums:
            return int(self._sums[0][at]), int(self._sums[1][at])
        count = int(np.count_nonzero(self._genuine[:at]))
        return count, at - count

    def key(self, at: int) -> int:
        """The key at a position."""
        return (int(self._words[at]) >> 1) + self._low

    def tied(self, at: int) -> tuple[int, int]:
        """The positions from and to which the key is that of a position."""
        one = self._words.dtype.type(1)
        last = self._words[at] | one
        return int(np.searchsorted(self._words, last ^ one)), int(np.searchsorted(self._words, last, side="right"))


def _bracket(scores: np.ndarray, genuine: np.ndarray, weights: np.ndarray | None) -> tuple[int, int]:
    """Lowest and highest key (`host_key`) between which the crossing lies, most probably.

    By a sample: FAR - FRR at a threshold has a standard error, of which three are allowed. Positions follow the golden
    ratio, so neither sorted nor periodic trials fool them; half are of the rarer kind where that is rare.
    """
    n = scores.shape[0]
    size = min(max(_SAMPLE, n >> 6), 16 * _SAMPLE)
    at = spread(size, n)
    g = genuine[at] != 0
    hits = int(np.count_nonzero(g))
    if min(hits, size - hits) < _SAMPLE // 8:
        rare = np.flatnonzero((genuine != 0) == (2 * hits < size))
        if rare.shape[0]:
            at = np.concatenate([at[: size // 2], rare[spread(size // 2, rare.shape[0])]])
            g = genuine[at] != 0
    w, keys = None if weights is None else weights[at], host_key(scores[at])
    bounds, ranked = np.iinfo(keys.dtype), _Ascending(keys, g, w)
    num_g, num_i = ranked.below(size)
    if min(num_g, num_i) == 0:
        return int(bounds.min), int(bounds.max)

    def lag(at: int) -> float:
        """FRR - FAR where the trials from a position on are accepted."""
        missed, refused = ranked.below(at)
        return missed / num_g + refused / num_i - 1

    positions = range(size)
    crossed = bisect_right(positions, 0.0, key=lag) - 1
    rate = min(max(1 - ranked.below(crossed)[1] / num_i, 0.01), 0.99)
    sizes = [float(np.count_nonzero(g)), float(np.count_nonzero(~g))]
    if w is not None:
        sizes = [s**2 / float(np.sum(w[f].astype(np.float64) ** 2)) for s, f in ((num_g, g), (num_i, ~g))]
    slack = 3 * math.sqrt(rate * (1 - rate) * (1 / sizes[0] + 1 / sizes[1]))
    low = bisect_right(positions, -slack, key=lag) - 1
    high = bisect_right(positions, slack, key=lag)
    return (
        ranked.key(low) if low >= 0 else int(bounds.min),
        ranked.key(high) if high < size else int(bounds.max),
    )


def _pick(
    scores: np.ndarray,
    genuine: np.ndarray,
    weights: np.ndarray | None,
    bracket: tuple[int, int],
    *,
    check: bool = False,
) -> tuple[_Trials, tuple[int, int], int, bool]:
    """The trials in a bracket of keys, the genuine and impostor trials above it, and how many are genuine in all.

    Args:
      scores, weights: as for `crossing_host`.
      genuine: bool, or integers that are not 0 for a genuine trial.
      bracket: lowest and highest key.
      check: whether the last value returned is to say that no score is NaN and all labels are 0 or 1.
    """
    ends: Any = bracket
    # Against a normal float the compare is right even where subnormals count as 0; else keys are compared, at a price.
    as_float = scores.dtype == np.float32 and min(abs(v) for v in bracket) >= _LEAST_NORMAL
    if as_float:
        ends = [host_key_value(min(max(v, -_INFINITY), _INFINITY), np.float32) for v in bracket]

    def block(start: int) -> tuple[_Trials, int, int, int, bool]:
        """Of one block that fits the cache: trials inside, trials and genuine ones above, genuine ones, and `check`."""
        cut = slice(start, start + _BLOCK)
        x, flags, w = scores[cut], genuine[cut], None if weights is None else weights[cut]
        rows = x.shape[0]
        ranked = x if as_float else host_key(x)
        sound = not check or not (_is_stray(flags) or _holds_nan(x.dtype, ranked))
        own = flags if flags.dtype == bool else flags != 0
        inside = np.zeros(-(-rows // 8) * 8, bool)
        beyond, below = ranked > ends[1], ranked < ends[0]
        np.equal(below, beyond, out=inside[:rows])  # a NaN compared as a float is inside
        # Eight flags at a time: most are not set, and a search flag by flag would cost more than all the rest.
        words = inside.view(np.uint64)
        some = np.flatnonzero(words != 0)
        hits = np.flatnonzero(words[some].view(bool))
        at = some[hits >> 3] * 8 + (hits & 7)
        accepted, num_genuine = _amount(beyond, w), _amount(own, w)
        beyond &= own
        return (x[at], own[at], None if w is None else w[at]), accepted, _amount(beyond, w), num_genuine, sound

    starts = range(0, scores.shape[0], _BLOCK)
    if len(starts) < _THREADS_FROM:
        parts = [block(start) for start in starts]
    else:  # NumPy releases the interpreter lock in each of these operations
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            parts = list(pool.map(block, starts))
    above, right = sum(p[1] for p in parts), sum(p[2] for p in parts)
    inside = [p[0] for p in parts]
    x, own = np.concatenate([p[0] for p in inside]), np.concatenate([p[1] for p in inside])
    w = None if weights is None else np.concatenate([p[2] for p in inside if p[2] is not None])
    sound = all(p[4] for p in parts) and not (check and as_float and np.isnan(x).any())
    return (x, own, w), (right, above - right), sum(p[3] for p in parts), sound


def _is_stray(labels: np.ndarray) -> bool:
    """Whether a label is neither 0 nor 1."""
    return labels.dtype != bool and int(np.bitwise_or.reduce(labels)) not in (0, 1)


def _holds_nan(dtype: Any, ranked: np.ndarray) -> bool:
    """Whether the keys are those of floats and one is beyond infinity's; not for floats that are compared as such."""
    if ranked.dtype.kind == "f" or dtype.kind in "iub":
        return False
    return int(ranked.max()) > _INFINITY or int(ranked.min()) < -_INFINITY


def _walk(
    keys: np.ndarray, genuine: np.ndarray, weights: np.ndarray | None, start: tuple[int, int], totals: tuple[int, int]
) -> tuple[int, tuple[int, int], tuple[int, int]]:
    """The far end's key and both ends of the crossing segment, by a sort, after ``start`` accepted trials."""
    num = keys.shape[0]
    if num == 0:
        return 0, start, start
    ranked = _Ascending(keys, genuine, weights)
    whole = ranked.below(num)

    def accepted(at: int) -> tuple[int, int]:
        """Genuine and impostor trials accepted from a position on."""
        below = ranked.below(at)
        return start[0] + whole[0] - below[0], start[1] + whole[1] - below[1]

    # FAR - FRR falls along the positions, within a tie too, so bisection on exact integers finds the last one where it
    # is not negative. The tie it lies in is the segment.
    at = bisect_left(range(num), True, key=lambda at: not _has_crossed(accepted(at), totals)) - 1
    first, last = ranked.tied(at)
    return ranked.key(at), accepted(last), accepted(first)


def equal_error(near: tuple[Any, Any], far: tuple[Any, Any], totals: tuple[Any, Any], xp: Any) -> tuple[Any, Any]:
    """The interpolated equal error rate on a segment, and how far it can be off if the segment hides a finer polyline.

    Args:
      near: accepted genuine and impostor counts at the near end, limbs ``[..., 2]``. far: at the far end.
      totals: numbers of genuine and impostor trials, limbs ``[..., 2]``.

    Returns:
      (eer, half_width) ``[...]``.
    """
    if xp is np:  # Python's own integers: a tenth of the time that limbs take for one segment
        plus, minus, times = operator.add, operator.sub, operator.mul

        def real(x: Any) -> Any:
            return np.asarray(x, np.float64)[()]
    else:
        plus, minus = limbs.add, limbs.subtract

        def times(a: Any, b: Any) -> Any:
            return limbs.multiply(limbs.strict(a), limbs.strict(b))

        def real(x: Any) -> Any:
            return limbs.to_float(x, xp)

    counts = (*near, *far, *totals)
    near_g, near_i, far_g, far_i, num_g, num_i = map(limbs.to_ints, counts) if xp is np else counts
    missed, gained_g, gained_i = minus(num_g, near_g), minus(far_g, near_g), minus(far_i, near_i)
    # t solves FAR_0 + t dFAR = FRR_0 - t dFRR; both sides times the two totals, exact until the one division.
    short = minus(times(missed, num_i), times(near_i, num_g))
    slope = plus(times(gained_i, num_g), times(gained_g, num_i))
    t = real(short) / real(slope)
    genuine, impostor = real(num_g), real(num_i)
    eer = (real(near_i) + t * real(gained_i)) / impostor
    low = xp.maximum(real(near_i) / impostor, real(minus(num_g, far_g)) / genuine)
    high = xp.minimum(real(far_i) / impostor, real(missed) / genuine)
    return eer, xp.maximum(xp.maximum(eer - low, high - eer), eer.dtype.type(0))


def crossing_from_histogram(genuine: Any, impostor: Any) -> dict[str, Any]:
    """The crossing segment of a binned ROC: counts ``[bins, 2]`` (ascending keys) of genuine and impostor trials."""
    xp: Any = np if isinstance(genuine, np.ndarray) else jnp
    totals = (_cumulative(genuine, xp)[-1], _cumulative(impostor, xp)[-1])
    zero = xp.zeros_like(totals[0])
    return {"totals": totals, **segment(genuine, impostor, totals, (zero, zero))}


def crossing_from_keys(keys: Any, genuine: Any, used: Any, weights: Any = None) -> dict[str, Any]:
    """The crossing segment of the exact ROC polyline over distinct keys, by selection: one histogram per digit of key.

    No sort: after the first pass the crossing is known to lie within one bin of the upper digit, whose ends are
    vertices of the polyline; the next pass refines that bin.

    Args:
      keys: order keys ``[n]``. genuine: bool ``[n]``. used: bool ``[n]``. weights: uint32 ``[n]`` or None (sum
      below 2^32).

    Returns:
      dict with ``key`` (of the segment's far end), ``near``, ``far`` and ``totals`` (accepted genuine and impostor
      counts).
    """
    # A histogram of 2^16 bins costs as much as 10^6 trials, so few trials are binned by small digits.
    bits = _DIGIT if keys.shape[0] > _FEW else _DIGIT // 2
    bins = 1 << bits
    sums = limbs.sum_many({"g": used & genuine, "i": used & ~genuine}, weights)
    totals = (sums["g"], sums["i"])

    def narrow(carry: Any, shift: Any) -> tuple[Any, None]:
        prefix, start, _ = carry
        inside = used & ((((keys ^ prefix) >> shift) >> keys.dtype.type(bits)) == 0)
        digit = ((keys >> shift) & keys.dtype.type(bins - 1)).astype(jnp.uint32)
        index = jnp.where(inside, jnp.where(genuine, digit, digit + np.uint32(bins)), np.uint32(2 * bins))
        hist = bin_counts(index, 2 * bins, weights).reshape(2, bins)
        found = segment(hist[0], hist[1], totals, start)
        return (prefix | (found["bin"].astype(keys.dtype) << shift), found["near"], found["far"]), None

    # A loop, so that the pass is compiled once; it starts from zeros that vary over devices as the arguments do.
    none = (totals[0] | totals[1]) & np.uint32(0) | jnp.sum(keys[:1] & keys.dtype.type(0)).astype(jnp.uint32)
    shifts = np.arange(8 * keys.dtype.itemsize - bits, -1, -bits).astype(keys.dtype)
    prefix, near, far = lax.scan(narrow, (none[0].astype(keys.dtype), (none, none), (none, none)), shifts)[0]
    return {"key": prefix, "near": near, "far": far, "totals": totals}
