"""Balanced accuracy counts hits, support and predictions alike on either side of the number of classes up to which it
does so by a confusion matrix. Oracle: `numpy.add.at` on the samples that count; equality."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

import emma_jax as emma
from emma_jax.metrics import accuracy
from emma_jax.numerics import limbs

N = 600


MOST = accuracy._MOST_CELLS


@pytest.mark.parametrize("num_classes, weighted", [(2, False), (2, True), (MOST, True), (MOST + 1, True)])
def test_counts(num_classes, weighted):
    """NaN rows, labels that are no class, masked samples, and weights whose sums pass 2^32."""
    rng = np.random.default_rng(num_classes)
    scores = rng.normal(size=(N, num_classes)).astype(np.float32)
    scores[rng.random(N) < 0.1, 0] = np.nan
    labels = rng.integers(-1, num_classes + 1, N).astype(np.int32)
    there = rng.random(N) < 0.8
    weights = rng.integers(0, 2**32, N, dtype=np.uint32) if weighted else None
    metric = emma.metrics.BalancedAccuracy(num_classes=num_classes)
    state = metric.update(metric.init(), scores, labels, where=there, weights=weights)
    w = np.where(there, np.ones(N, np.int64) if weights is None else weights.astype(np.int64), 0)
    nan = np.isnan(scores).any(axis=1)
    valid = (labels >= 0) & (labels < num_classes)
    use, best = valid & ~nan, np.argmax(scores, axis=1)
    want = {name: np.zeros(num_classes, np.int64) for name in ("hits", "support", "predicted")}
    np.add.at(want["support"], labels[use], w[use])
    np.add.at(want["predicted"], best[use], w[use])
    np.add.at(want["hits"], labels[use & (best == labels)], w[use & (best == labels)])
    for name, counts in want.items():
        assert [limbs.to_int(x) for x in np.asarray(state[name])] == counts.tolist(), name
    counters = {"n": w.sum(), "n_nonfinite": w[nan].sum(), "n_invalid_label": w[~valid & ~nan].sum(), "n_excluded": 0}
    assert {k: limbs.to_int(state[k]) for k in counters} == counters


@pytest.mark.parametrize("n", [128, 131, 512, 600])
def test_counting_in_blocks_changes_no_bit(monkeypatch, n):
    """Many samples are counted block by block, the last of which overlaps: in a jit, a vmap and on two devices the
    state is that of one pass, with a mask, NaN and bad labels. Oracle: the same metric with blocks out of reach, whose
    counts `test_counts` holds against the definition."""
    rng = np.random.default_rng(n)
    scores = rng.normal(size=(2, n, 5)).astype(np.float32)
    scores[rng.random((2, n)) < 0.1, 0] = np.nan
    labels = rng.integers(-1, 6, (2, n)).astype(np.int32)
    there = rng.random((2, n)) < 0.8
    metric = emma.metrics.BalancedAccuracy(num_classes=5)

    def states():
        def one(s, y, w):
            return metric._stats(s, y, w, None)

        plain = jax.jit(lambda s, y, w: one(s, y, w))(scores[0], labels[0], there[0])
        bare = jax.jit(lambda s, y: one(s, y, None))(scores[0], labels[0])
        both = jax.jit(jax.vmap(lambda s, y, w: one(s, y, w)))(scores, labels, there)
        mesh = Mesh(np.array(jax.devices()[:2]), ("i",))

        def local(s, y, w):
            return jax.tree.map(lambda x: jax.lax.psum(x, "i"), one(s[0], y[0], w[0]))

        spread = jax.shard_map(local, mesh=mesh, in_specs=PartitionSpec("i"), out_specs=PartitionSpec())
        return plain, bare, both, jax.jit(spread)(scores, labels, there)

    want = states()
    monkeypatch.setattr(accuracy, "_IN_BLOCKS_FROM", 1)
    monkeypatch.setattr(accuracy, "_BLOCK", 32)
    text = jax.jit(lambda s, y: metric._stats(s, y, None, None)).lower(scores[0], labels[0]).as_text()
    assert "while" in text  # the blocks are there
    for a, b in zip(jax.tree.leaves(want), jax.tree.leaves(states()), strict=True):
        np.testing.assert_array_equal(a, b)
