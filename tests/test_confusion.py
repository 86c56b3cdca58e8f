"""Balanced accuracy counts hits, support and predictions alike on either side of the number of classes up to which it
does so by a confusion matrix. Oracle: `numpy.add.at` on the samples that count; equality."""

from __future__ import annotations

import numpy as np
import pytest

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
