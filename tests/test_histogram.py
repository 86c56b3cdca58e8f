"""Counts per bin as limbs. Oracle: Python integers."""

from __future__ import annotations

from collections import Counter

import jax
import numpy as np
import pytest

from emma_jax import metrics as m
from emma_jax.numerics import histogram, limbs
from emma_jax.numerics.histogram import add_to_bins, bin_counts


@pytest.mark.parametrize("start", [0, 0xFFFF, 0x1_0000_0000 - 3, (1 << 47) - 1])
def test_adding_in_place_carries(start: int) -> None:
    """Claim: a bin counts on past either limb, however often it occurs in a batch; an index beyond the end is nothing.
    Oracle: integers. Exact."""
    index = np.array([3, 0, 3, 3, 7, 9, 3, 0, 200], np.uint32)
    counts = np.tile(limbs.from_int(start, 2), (8, 1))
    found = jax.jit(add_to_bins)(counts, index)
    times = Counter(index.tolist())
    assert [limbs.to_int(np.asarray(row)) for row in found] == [start + times[i] for i in range(8)]


@pytest.mark.parametrize(
    "num_bins, n, together", [(258, 270_001, 2), (11, 16_385, 3), (6, 40_003, 4), (400, 20_000, 1)]
)
def test_samples_that_share_an_index(num_bins: int, n: int, together: int) -> None:
    """Claim: many samples of few bins are counted by joint bins, whatever number is left over, and an index outside is
    nothing, alone and under `jax.vmap`. Oracle: `numpy.bincount`. Exact."""
    assert histogram._together(num_bins, n) == (together if jax.default_backend() == "cpu" else 1)
    index = np.random.default_rng(n).integers(-2, num_bins + 3, (2, n)).astype(np.int32)
    index[:, -3:] = num_bins - 1, -1, 0
    want = [np.bincount(row[(row >= 0) & (row < num_bins)], minlength=num_bins) for row in index]

    def count(row: jax.Array) -> jax.Array:
        return bin_counts(row, num_bins)

    assert np.array_equal(jax.jit(count)(index[0]), want[0])
    assert np.array_equal(jax.vmap(count)(index), want)


@pytest.mark.parametrize("metric", [m.AUC(num_classes=3), m.AUC(input="binary"), m.EER()], ids=["AUC3", "AUC", "EER"])
def test_a_small_batch_leaves_the_bits_of_a_merge(metric: m.Metric) -> None:
    """Claim: updating a state by a small batch, which touches few bins, gives every bit of merging that batch's own
    state. Oracle: `merge`, whose sums other tests hold to integers."""
    r = np.random.default_rng(0)
    state = metric.init()
    for n in (700, 3, 64):
        shape = (n, 3) if metric == m.AUC(num_classes=3) else (n,)
        scores = r.normal(size=shape).astype(np.float32).round(1)
        labels = r.integers(0, 3 if len(shape) == 2 else 2, n)
        where = r.random(n) < 0.8
        alone = metric.update(metric.init(), scores, labels, where=where)
        merged = metric.merge(state, alone)
        state = metric.update(state, scores, labels, where=where)
        assert {k: np.asarray(v).tobytes() for k, v in state.items()} == {
            k: np.asarray(v).tobytes() for k, v in merged.items()
        }
