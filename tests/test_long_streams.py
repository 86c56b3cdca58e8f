"""Streams far past 32 bits: counts, accuracy and means of three thousand million samples.

Oracle: Python integers and float64 of the pieces, by the definition."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import emma_jax as emma

TIMES = 3_000_000_000 // 4_000  # a state of 4000 samples, so many times


def repeated(task, state, times):
    """The state merged with itself, by doubling: ``times`` copies."""
    total, power = task.init(), state
    merge = jax.jit(task.merge)
    while times:
        if times & 1:
            total = merge(total, power)
        times >>= 1
        power = merge(power, power) if times else power
    return total


@pytest.fixture(scope="module")
def classes():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 4_000).astype(np.int32)
    return (rng.normal(size=(4_000, 4)) + np.eye(4)[labels]).astype(np.float32), labels


def test_accuracy_of_3e9_samples(classes):
    """Counts are exact in Python ints, the accuracies exact rationals: no digit differs from those of the piece."""
    task = emma.Task(
        "T", (emma.metrics.PlainAccuracy(), emma.metrics.TopKAccuracy(k=2), emma.metrics.BalancedAccuracy(4))
    )
    piece = task.update(task.init(), *classes)
    scores, once = task.compute(repeated(task, piece, TIMES)), task.compute(piece)
    hits = int((classes[0].argmax(1) == classes[1]).sum())
    assert scores.validity["PlainAccuracy"].n == 3_000_000_000 and scores["PlainAccuracy"] == hits / 4_000
    assert scores["TopKAccuracy"] == once["TopKAccuracy"]
    assert scores["BalancedAccuracy"] == pytest.approx(once["BalancedAccuracy"], rel=1e-15)
    traced = jax.jit(task.compute)(repeated(task, piece, TIMES))
    assert float(traced["PlainAccuracy"]) == np.float32(hits / 4_000)


def test_means_of_3e9_samples():
    """Angles: 1e-6 relative to the float64 mean (the state is exact, so 1e-12 here); NMSE: 5e-6 dB."""
    rng = np.random.default_rng(1)
    preds, labels = rng.uniform(-180, 180, (2, 4_000)).astype(np.float32)
    delta = np.abs(preds.astype(np.float64) - labels) % 360
    task = emma.get_task("E-LOC-AOA")
    got = task.compute(repeated(task, task.update(task.init(), preds, labels), TIMES))
    assert got.headline == pytest.approx(np.minimum(delta, 360 - delta).mean(), rel=1e-12)
    assert got.validity["MeanAngularError"].n == 3_000_000_000
    truth = (rng.normal(size=(4_000, 8)) * 10.0 ** rng.uniform(-4, 4, (4_000, 1))).astype(np.float32)
    guess = (truth * (1 + 0.1 * rng.normal(size=truth.shape))).astype(np.float32)
    task = emma.get_task("E-CH-CSI")
    got = task.compute(repeated(task, task.update(task.init(), guess, truth), TIMES))
    p, t = guess.astype(np.float64), truth.astype(np.float64)
    assert got.headline == pytest.approx(10 * np.log10(((p - t) ** 2).sum() / (t**2).sum()), abs=5e-6)


def test_ranks_of_3e9_samples(classes):
    """A histogram stream of scores with a bin each: the AUC of the piece, to the last digits; its counts pass 2^32
    pairs of limbs."""
    task = emma.Task("T", (emma.metrics.AUC(input="binary", score_dtype="bfloat16"),))
    scores, labels = classes[0][:, 0].astype(jnp.bfloat16), (classes[1] == 0).astype(np.int32)
    piece = task.update(task.init(), scores, labels)
    got = task.compute(repeated(task, piece, TIMES))
    assert got.validity["AUC"].n == 3_000_000_000
    assert got.headline == pytest.approx(task.compute(piece).headline, rel=1e-13)
    assert got.headline == pytest.approx(emma.evaluate(task, scores, labels).headline, rel=1e-13)


def test_a_training_loop_of_scans_never_recompiles(classes):
    """A jitted step that scans over batches with a donated state: one compilation for all calls, no transfer between
    host and device, and the state of one call."""
    task = emma.get_task("E-ID-AMC", num_classes=4)
    preds, labels = (jax.device_put(x.reshape(8, 500, *x.shape[1:])) for x in classes)

    def epoch(state, preds, labels):
        return jax.lax.scan(lambda s, batch: (task.update(s, *batch), None), state, (preds, labels))[0]

    step = jax.jit(epoch, donate_argnums=0)
    state = jax.jit(task.init)()
    with jax.transfer_guard("disallow"):
        for i in range(5):
            before, state = state, step(state, preds, labels)
            assert all(leaf.is_deleted() for leaf in jax.tree.leaves(before)), i
    assert step._cache_size() == 1
    five = repeated(task, task.update(task.init(), *classes), 5)
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(five), strict=True))
    assert "uint32" in repr(state) and len(repr(state)) < 2_000  # a state can be printed
