"""Counts per bin as limbs. Oracle: Python integers."""

from __future__ import annotations

from collections import Counter

import jax
import numpy as np
import pytest

from emma_jax import metrics as m
from emma_jax.numerics import limbs
from emma_jax.numerics.histogram import add_to_bins


@pytest.mark.parametrize("start", [0, 0xFFFF, 0x1_0000_0000 - 3, (1 << 47) - 1])
def test_adding_in_place_carries(start: int) -> None:
    """Claim: a bin counts on past either limb, however often it occurs in a batch; an index beyond the end is nothing.
    Oracle: integers. Exact."""
    index = np.array([3, 0, 3, 3, 7, 9, 3, 0, 200], np.uint32)
    counts = np.tile(limbs.from_int(start, 2), (8, 1))
    found = jax.jit(add_to_bins)(counts, index)
    times = Counter(index.tolist())
    assert [limbs.to_int(np.asarray(row)) for row in found] == [start + times[i] for i in range(8)]


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
