"""Text kernels: n-gram statistics of padded token ids, under any JAX transform.

Goal: the integers that BLEU, CIDEr-D, exact match and F1 are made of.
Conventions: a candidate is ids ``[..., L]`` with a length ``[...]``, its references are ids ``[..., R, M]`` with
lengths ``[..., R]``; a length of -1 is a reference that is not there. N-grams are compared, never hashed, and nothing
loops over samples: a pair of texts costs L * M comparisons, fused with the sums over them, so that no ``[L, M]`` array
is stored (measured: 50,000 pairs of 16 tokens, all four orders, in 14 ms on 2 cores; of 32 tokens in 80 ms).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["MAX_ORDER", "bleu_statistics", "cider_similarity", "fraction_words", "ngram_counts", "squad_overlap"]

MAX_ORDER = 4
"""Longest n-gram that BLEU-4 and CIDEr-D look at."""

_ZERO = np.int32(0)


def clip_lengths(lengths: Any, width: int, lowest: int) -> Any:
    """Lengths as int32 within ``lowest..width``: nothing beyond the padding is ever read."""
    return jnp.clip(lengths.astype(jnp.int32), lowest, width)


def _shifted(ids: Any, by: int) -> Any:
    """ids[..., i + by], anything beyond the end (the length masks it)."""
    return jnp.concatenate([ids[..., by:], ids[..., :by]], axis=-1) if by else ids


def _equal_ngrams(a: Any, a_length: Any, b: Any, b_length: Any, order: int) -> list[Any]:
    """For n = 1..order, whether the n-grams at a[..., i] and b[..., j] are there and equal: bool ``[..., L, M]``."""
    a_left = a_length[..., None] - lax.iota(jnp.int32, a.shape[-1])  # tokens from i to the end
    b_left = b_length[..., None] - lax.iota(jnp.int32, b.shape[-1])
    equal: list[Any] = []
    for k in range(order):
        same = _shifted(a, k)[..., :, None] == _shifted(b, k)[..., None, :]
        same = same & (a_left > k)[..., :, None] & (b_left > k)[..., None, :]
        equal.append(same & equal[-1] if equal else same)
    return equal


def _sum_last(flags: list[Any]) -> list[jax.Array]:
    """Number of True along the last axis of several arrays, in one pass over all of them.

    XLA on CPU fuses a reduction of several arrays with what makes them, but cuts up one of a single long array, which
    then has to be stored (128 texts of 1,024 tokens against 4: 2.7 GB). So a single array is reduced twice over, to its
    sum and its maximum, whose product is the sum.
    """
    axis = (flags[0].ndim - 1,)
    counts = tuple(flag.astype(jnp.int32) for flag in flags)
    if len(counts) == 1:
        total, some = lax.reduce(counts * 2, (_ZERO, _ZERO), lambda x, y: (x[0] + y[0], lax.max(x[1], y[1])), axis)
        return [total * some]
    zeros = (_ZERO,) * len(counts)
    return list(lax.reduce(counts, zeros, lambda x, y: tuple(p + q for p, q in zip(x, y)), axis))


def ngram_counts(a: Any, a_length: Any, b: Any, b_length: Any, order: int = MAX_ORDER) -> list[jax.Array]:
    """How often each n-gram of one text occurs in another.

    Args:
      a: ids ``[..., L]``.
      a_length: int32 ``[...]``, in 0..L.
      b: ids ``[..., M]``; leading axes broadcast against those of ``a``.
      b_length: int32 ``[...]``; a text that is not there (-1) has no n-gram.
      order: longest n-gram.

    Returns:
      For n = 1..order an int32 array ``[..., L]``: occurrences in ``b`` of the n-gram that starts at a[i]; 0 where none
      starts there.
    """
    return _sum_last(_equal_ngrams(a, a_length, b, b_length, order))


def earlier_counts(a: Any, a_length: Any, order: int = MAX_ORDER) -> list[jax.Array]:
    """How often the n-gram at a[i] stood further left in the same text: int32 ``[..., L]`` for n = 1..order.

    An n-gram's k-th occurrence has k - 1 here, so "fewer than c" picks c of its occurrences: the clipped count min(.,
    c) becomes a plain sum over positions.
    """
    position = lax.iota(jnp.int32, a.shape[-1])
    left = position[None, :] < position[:, None]
    return _sum_last([equal & left for equal in _equal_ngrams(a, a_length, a, a_length, order)])


def bleu_statistics(ids: Any, length: Any, ref_ids: Any, ref_lengths: Any) -> jax.Array:
    """BLEU's sufficient statistics of each candidate.

    Args:
      ids: candidates ``[..., L]``.
      length: ``[...]``.
      ref_ids: references ``[..., R, M]``.
      ref_lengths: ``[..., R]``; -1 is no reference. Empty references (0) are dropped where another exists.

    Returns:
      int32 ``[..., 6]``: matched 1-, 2-, 3- and 4-grams, each clipped by the largest count in one reference; the
      candidate's length; the reference length closest to it, the shorter on a tie (0 without references).
    """
    length = clip_lengths(length, ids.shape[-1], 0)
    ref_lengths = clip_lengths(ref_lengths, ref_ids.shape[-1], -1)
    counts = ngram_counts(ids[..., None, :], length[..., None], ref_ids, ref_lengths)
    matches = [
        jnp.sum(before < jnp.max(count, axis=-2), axis=-1, dtype=jnp.int32)
        for before, count in zip(earlier_counts(ids, length), counts)
    ]
    some_text = jnp.max(ref_lengths, axis=-1, keepdims=True) > 0
    eligible = (ref_lengths > 0) | ((ref_lengths == 0) & ~some_text)
    nowhere = jnp.int32(0x7FFFFFFF)
    distance = jnp.where(eligible, jnp.abs(ref_lengths - length[..., None]), nowhere)
    closest = eligible & (distance == jnp.min(distance, axis=-1, keepdims=True))
    shortest = jnp.min(jnp.where(closest, ref_lengths, nowhere), axis=-1)
    return jnp.stack([*matches, length, jnp.where(shortest == nowhere, 0, shortest)], axis=-1)


def cider_similarity(
    ids: Any, length: Any, weights: Any, ref_ids: Any, ref_lengths: Any, ref_weights: Any, sigma: float
) -> jax.Array:
    r"""CIDEr-D of each candidate.

    With tf-idf vectors :math:`g_n(k) = \mathrm{tf}(k)\,\mathrm{idf}(k)` over n-grams k, candidate c, references r:

    .. math:: \frac{10}{4} \sum_{n=1}^4 \frac1R \sum_r e^{-(l_c - l_r)^2 / 2\sigma^2}
        \frac{\sum_k \min(g_n^c(k), g_n^r(k))\, g_n^r(k)}{\lVert g_n^c \rVert \, \lVert g_n^r \rVert}

    a term being 0 where a norm is. l counts bigrams, as the reference implementation does; that differs from counting
    words only for an empty text, whose terms are 0 anyway.

    Args:
      ids: candidates ``[..., L]``.
      length: ``[...]``.
      weights: idf ``[4, ..., L]`` of the n-gram at each position, any float dtype.
      ref_ids: references ``[..., R, M]``.
      ref_lengths: ``[..., R]``; -1 is no reference, 0 an empty one, which counts.
      ref_weights: ``[4, ..., R, M]``.
      sigma: width of the length penalty, in words.

    Returns:
      ``[...]`` in 0..10, of the dtype of ``weights``; 0 without references.
    """
    dtype = weights.dtype
    length = clip_lengths(length, ids.shape[-1], 0)
    ref_lengths = clip_lengths(ref_lengths, ref_ids.shape[-1], -1)
    in_reference = ngram_counts(ids[..., None, :], length[..., None], ref_ids, ref_lengths)
    in_itself = ngram_counts(ids, length, ids, length)
    before = earlier_counts(ids, length)
    in_ref_itself = ngram_counts(ref_ids, ref_lengths, ref_ids, ref_lengths)
    total = jnp.zeros(ref_lengths.shape, dtype)
    for n in range(MAX_ORDER):
        # A sum over distinct n-grams k of f(k) is a sum over their tf(k) occurrences of f(k) / tf(k).
        square, ref_square = weights[n] ** 2, ref_weights[n] ** 2
        clipped = jnp.where(before[n][..., None, :] < in_reference[n], in_reference[n], 0).astype(dtype)
        product = jnp.sum(clipped * square[..., None, :], axis=-1)
        energy = jnp.sum(in_itself[n].astype(dtype) * square, axis=-1)
        ref_energy = jnp.sum(in_ref_itself[n].astype(dtype) * ref_square, axis=-1)
        norms = jnp.sqrt(energy)[..., None] * jnp.sqrt(ref_energy)
        total = total + jnp.where(norms > 0, product / jnp.where(norms > 0, norms, dtype.type(1)), dtype.type(0))
    gap = jnp.maximum(length - 1, 0)[..., None] - jnp.maximum(ref_lengths - 1, 0)
    penalty = jnp.exp(gap.astype(dtype) ** 2 * dtype.type(-0.5 / sigma**2))
    present = ref_lengths >= 0
    count = jnp.maximum(jnp.sum(present, axis=-1, dtype=jnp.int32), 1).astype(dtype)
    summed = jnp.sum(jnp.where(present, total * penalty, 0), axis=-1)
    value: jax.Array = summed * dtype.type(10 / MAX_ORDER) / count
    return value


def squad_overlap(ids: Any, length: Any, gold_ids: Any, gold_lengths: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """What exact match and F1 need of each answer: the best gold answer's token overlap.

    Args:
      ids: answers ``[..., L]``, normalized.
      length: ``[...]``.
      gold_ids: gold answers ``[..., R, M]``, normalized.
      gold_lengths: ``[..., R]``; -1 is no gold answer. Without any, the empty answer is the right one.

    Returns:
      (exact, numerator, denominator): bool and int32 ``[...]``. ``exact``: the tokens equal those of a gold answer. F1
      is ``numerator / denominator``, the largest ratio over gold answers of twice the common tokens (as multisets) to
      the tokens of both; where either side has no tokens it is 1/1 or 0/1, by equality.
    """
    length = clip_lengths(length, ids.shape[-1], 0)[..., None]
    gold_lengths = clip_lengths(gold_lengths, gold_ids.shape[-1], -1)
    (count,) = ngram_counts(ids[..., None, :], length, gold_ids, gold_lengths, 1)
    (before,) = earlier_counts(ids, length[..., 0], 1)
    common = jnp.sum(before[..., None, :] < count, axis=-1, dtype=jnp.int32)
    width = min(ids.shape[-1], gold_ids.shape[-1])
    same = ids[..., None, :width] == gold_ids[..., :width]
    beyond = lax.iota(jnp.int32, width) >= length[..., None]
    none = jnp.all(gold_lengths < 0, axis=-1)
    equal = (length == gold_lengths) & jnp.all(same | beyond, axis=-1)
    exact = jnp.any(equal, axis=-1) | (none & (length[..., 0] == 0))
    empty = (length == 0) | (gold_lengths <= 0)
    numerator = jnp.where(empty, equal.astype(jnp.int32), 2 * common)
    denominator = jnp.where(empty, 1, length + gold_lengths)
    best = _largest_fraction(numerator, denominator)
    return exact, jnp.where(none, exact.astype(jnp.int32), best[0]), jnp.where(none, 1, best[1])


def _largest_fraction(numerator: Any, denominator: Any) -> tuple[jax.Array, jax.Array]:
    """The largest of the fractions along the last axis, all in 0..1, compared as integers."""
    quotient = fraction_words(numerator, denominator)
    # 31 bits after the point tell all fractions apart whose denominators are below 2^15.
    key = (quotient[1] << np.uint32(7)) | (quotient[0] >> np.uint32(25))
    best = jnp.argmax(key, axis=-1)[..., None]
    return (
        jnp.take_along_axis(numerator, best, axis=-1)[..., 0],
        jnp.take_along_axis(denominator, best, axis=-1)[..., 0],
    )


def fraction_words(numerator: Any, denominator: Any) -> tuple[Any, Any]:
    """A fraction in 0..1 rounded down to 56 bits after the point, by long division: the same bits on any device.

    Args:
      numerator: int32 (NumPy or JAX), at most ``denominator``.
      denominator: int32 in 1..2^24 - 1.

    Returns:
      Two uint32 words, low and high, of the integer ``numerator * 2**56 // denominator``.
    """
    rest, divisor = numerator.astype(np.uint32), denominator.astype(np.uint32)
    digits = [rest // divisor]
    for _ in range(7):  # 8 bits at a time: a remainder below 2^24 stays within 32 bits
        rest = (rest % divisor) << np.uint32(8)
        digits.append(rest // divisor)
    high, low = (
        (a << np.uint32(24)) | (b << np.uint32(16)) | (c << np.uint32(8)) | d for a, b, c, d in (digits[:4], digits[4:])
    )
    return low, high
