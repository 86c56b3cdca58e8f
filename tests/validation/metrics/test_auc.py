"""AUC is threshold-free: the probability that a positive outranks a negative. Oracle: pair counts in integers."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import oracles
import pytest

import emma_jax as emma

AUC = emma.metrics.AUC()


def brute_force(scores, labels) -> Fraction:
    """Every pair, one by one."""
    pos, neg = ([s for s, y in zip(scores, labels) if y == side] for side in (1, 0))
    total = sum(Fraction(2 * (p > n) + (p == n), 2) for p, n in itertools.product(pos, neg))
    return total / (len(pos) * len(neg))


def test_every_labelling_of_tied_scores():
    """All 64 labellings of six scores with ties, against a count of all pairs; exact to 1e-15."""
    scores = [0.5, 0.25, 0.5, 0.75, 0.25, 0.5]
    for labels in itertools.product([0, 1], repeat=6):
        if 0 < sum(labels) < 6:
            want = brute_force(scores, labels)
            assert AUC(scores, labels) == pytest.approx(float(want), abs=1e-15)
            assert want == oracles.auc(scores, labels)


@pytest.mark.parametrize(
    "rescale",
    [
        lambda s: 7 * s - 1e4,
        np.exp,
        np.arctan,
        lambda s: s**3,
        lambda s: 1 / (1 + np.exp(-s)),
        lambda s: np.sign(s) * s**2,
    ],
    ids=["affine", "exp", "arctan", "cube", "sigmoid", "square"],
)
def test_monotone_rescaling(rescale):
    """A strictly increasing map of float64 scores changes nothing: bit for bit the same value."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 2, 600)
    scores = np.round(rng.normal(size=600) + labels, 2)
    mapped = rescale(scores)
    assert np.array_equal(np.argsort(scores, kind="stable"), np.argsort(mapped, kind="stable"))
    assert AUC(scores, labels) == AUC(mapped, labels) == float(oracles.auc(scores, labels))


def test_no_threshold_enters():
    """Shifting all scores by a constant moves the accuracy at any threshold, not the AUC; exact."""
    labels = np.array([0, 0, 1, 1, 0, 1])
    scores = np.array([0.1, 0.4, 0.35, 0.8, 0.2, 0.6])
    assert AUC(scores, labels) == AUC(scores - 5, labels) == AUC(scores + 5, labels) == 8 / 9
    assert AUC(-scores, labels) == pytest.approx(1 / 9, abs=1e-15)


@pytest.mark.parametrize("num_classes", [2, 3, 7])
def test_macro_average(num_classes):
    """[N, C] scores: the mean of one-vs-rest AUCs over columns as given (no softmax); pair counts, 1e-14."""
    rng = np.random.default_rng(num_classes)
    labels = rng.integers(0, num_classes, 500)
    scores = np.round(rng.normal(size=(500, num_classes)) + np.eye(num_classes)[labels], 1).astype(np.float32)
    want, _ = oracles.macro_auc(scores, labels)
    assert emma.metrics.AUC(num_classes=num_classes)(scores, labels) == pytest.approx(float(want), abs=1e-14)
    assert emma.evaluate("E-ID-DRONE", scores, labels).headline == pytest.approx(float(want), abs=1e-14)


def test_classes_without_both_sides_are_counted_not_scored():
    """Classes 1 and 3 never occur: the macro mean is that of classes 0 and 2; pair counts, 1e-15."""
    rng = np.random.default_rng(0)
    labels = 2 * rng.integers(0, 2, 60)
    scores = rng.normal(size=(60, 4))
    result = emma.evaluate("E-ID-DRONE", scores, labels)
    want, absent = oracles.macro_auc(scores, labels)
    assert result.headline == pytest.approx(float(want), abs=1e-15)
    assert result.validity["AUC"].n_absent_classes == absent == 2


def test_binary_tasks():
    """E-SC-SENSE and E-SC-ANOM are the binary AUC of the same numbers; exact."""
    scores, labels = [0.3, 0.9, 0.5, 0.5, 0.1], [0, 1, 1, 0, 0]
    want = float(brute_force(scores, labels))
    assert emma.evaluate("E-SC-SENSE", scores, labels)["AUC"] == want
    assert emma.evaluate("E-SC-ANOM", scores, labels)["AUROC"] == want
    assert emma.metrics.AUROC()(scores, labels) == want
