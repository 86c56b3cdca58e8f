"""Memory of long streams. Oracles: counts of the few batches that are repeated, in exact rationals; the growth of the
process's peak resident memory (`bench.memory`, itself held to the bytes of arrays)."""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path

import jax
import numpy as np
import oracles
import pytest

import emma_jax as emma

sys.path.append(str(Path(__file__).resolve().parent.parent))  # the benchmark is no part of the installed package

from bench.memory import extra_mb

BATCH, STEPS = 1 << 20, 96
linux = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the system does not tell peak memory")


def stream(task, scores, labels, steps: int):
    """State after ``steps`` updates that walk through the batches again and again.

    The batches lie on the device: NumPy ones would be copied at each call, and JAX runs ahead of its kernels.
    """
    batches = jax.device_put(list(zip(scores, labels)))
    update = jax.jit(lambda s, p, y: task.update(s, p, y), donate_argnums=0)
    state = task.init()
    for i in range(steps):
        state = update(state, *batches[i % len(batches)])
    return jax.block_until_ready(state)


@pytest.mark.slow
@linux
def test_top1_over_1e8_samples_takes_less_than_1_gb():
    """96 batches of 2^20 x 16 scores, 1.007e8 samples: the exact share of hits, and less than 1 GB beyond the three
    batches that are repeated."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 16, (3, BATCH)).astype(np.int32)
    scores = [rng.integers(0, 50, (BATCH, 16)).astype(np.float32) for _ in labels]
    task = emma.get_task("E-ID-AMC", num_classes=16)
    kept = []
    assert extra_mb(lambda: kept.append(stream(task, scores, labels, STEPS))) < 1000
    got = task.compute(kept[0])
    hits = sum(int((oracles.true_ranks(s, y) == 0).sum()) for s, y in zip(scores, labels))
    assert got.validity["PlainAccuracy"].n == BATCH * STEPS > 10**8
    assert got["PlainAccuracy"] == float(Fraction(hits, 3 * BATCH))


@pytest.mark.slow
@linux
def test_auc_histogram_over_1e8_samples_takes_less_than_1_gb():
    """96 batches of 2^20 scores into a histogram: the exact AUC of the multiset lies within the certified half-width,
    and less than 1 GB beyond the batches is needed."""
    rng = np.random.default_rng(1)
    labels = (rng.random((3, BATCH)) < 0.3).astype(np.int32)
    scores = [(rng.normal(size=BATCH) + y).astype(np.float32) for y in labels]
    task = emma.get_task("E-SC-SENSE")
    kept = []
    assert extra_mb(lambda: kept.append(stream(task, scores, labels, STEPS))) < 1000
    got = task.compute(kept[0])
    exact = oracles.auc(np.concatenate(scores), np.concatenate(labels))
    half = got.aux["AUC"]["half_width"]
    assert got.validity["AUC"].n == BATCH * STEPS and 0 < half < 1e-3
    assert abs(got["AUC"] - float(exact)) <= half + 1e-12
