"""Balanced accuracy is macro recall and resists class imbalance. Oracle: the definition in exact rationals."""

from __future__ import annotations

import numpy as np
import oracles
import pytest

import emma_jax as emma

BALANCED = emma.metrics.BalancedAccuracy()


def test_a_majority_baseline_gains_nothing():
    """95 % line of sight, always predicted: plain accuracy 0.95, balanced accuracy 1/2; exact."""
    labels = np.repeat([0, 1], [950, 50])
    majority = np.zeros(1000, np.int64)
    assert emma.metrics.PlainAccuracy()(majority, labels) == 0.95
    assert BALANCED(majority, labels) == 0.5
    assert BALANCED(np.stack([np.ones(1000), np.zeros(1000)], 1), labels) == 0.5


def test_imbalance_cannot_move_it():
    """Repeating the samples of one class changes plain accuracy, not balanced accuracy; exact."""
    labels, preds = np.array([0, 0, 0, 0, 1, 1]), np.array([0, 0, 0, 1, 1, 0])
    repeat = np.where(labels == 0, 100, 1)
    assert BALANCED(preds, labels) == BALANCED(np.repeat(preds, repeat), np.repeat(labels, repeat)) == 0.625
    assert BALANCED(preds, labels, weights=repeat) == 0.625
    plain = emma.metrics.PlainAccuracy()
    assert plain(preds, labels) == 4 / 6 and plain(preds, labels, weights=repeat) == 301 / 402


@pytest.mark.parametrize(
    ("labels", "preds", "zero", "exclude"),
    [
        ([0, 0, 1, 1], [0, 2, 1, 1], 0.5, 0.75),  # class 2 predicted, never true
        ([0, 1, 1, 3], [0, 1, 1, 3], 1.0, 1.0),  # class 2 nowhere
        ([0, 0], [1, 1], 0.0, 0.0),
        ([2, 2, 2], [2, 2, 2], 1.0, 1.0),
        ([0, 1, 2], [1, 2, 0], 0.0, 0.0),
    ],
)
def test_absent_classes(labels, preds, zero, exclude):
    """A class predicted but never true counts 0, or not at all with absent="exclude"; a class that occurs nowhere never
    counts, whatever num_classes is; the definition, exact."""
    for num_classes in (None, 4, 9):
        for absent, want in (("zero", zero), ("exclude", exclude)):
            metric = emma.metrics.BalancedAccuracy(num_classes=num_classes, absent=absent)
            assert metric(preds, labels) == want == float(oracles.balanced_accuracy(preds, labels, absent=absent))
    scores = emma.evaluate("E-LOC-LOS", preds, labels, num_classes=9)
    assert scores.validity["BalancedAccuracy"].n_absent_classes == 9 - len(set(labels))


@pytest.mark.parametrize("num_classes", [2, 3, 40])
def test_against_the_definition(num_classes):
    """Random, imbalanced, with ties between columns; exact rationals, 1e-12."""
    rng = np.random.default_rng(num_classes)
    labels = np.minimum(rng.geometric(0.3, 800) - 1, num_classes - 1)
    scores = rng.integers(0, 4, (800, num_classes)).astype(np.float32)
    want = float(oracles.balanced_accuracy(oracles.predicted(scores), labels))
    assert BALANCED(scores, labels) == pytest.approx(want, abs=1e-12)
    assert BALANCED(oracles.predicted(scores), labels) == pytest.approx(want, abs=1e-12)
