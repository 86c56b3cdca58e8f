"""Top-1, plain and top-k accuracy: one ranking rule, highest score first, lowest index on a tie. Oracle: a stable sort
of every row in Python."""

from __future__ import annotations

import numpy as np
import pytest

import emma_jax as emma

TOP1, PLAIN = emma.metrics.Top1Accuracy(), emma.metrics.PlainAccuracy()


def in_first_k(row, label, k) -> bool:
    """Python's stable sort by descending score keeps lower indices first."""
    return label in sorted(range(len(row)), key=lambda c: -row[c])[:k]


@pytest.mark.parametrize("num_classes", [1, 2, 5, 17])
def test_against_a_stable_sort(num_classes):
    """Rows with many ties, every k; the sort, exact."""
    rng = np.random.default_rng(num_classes)
    scores = rng.integers(-2, 3, (150, num_classes)).astype(np.float32)
    labels = rng.integers(0, num_classes, 150)
    hits = [[in_first_k(row, y, k) for row, y in zip(scores.tolist(), labels)] for k in range(num_classes + 1)]
    assert TOP1(scores, labels) == PLAIN(scores, labels) == np.mean(hits[1])
    for k in {1, min(2, num_classes), min(5, num_classes), num_classes}:
        assert emma.metrics.TopKAccuracy(k=k)(scores, labels) == np.mean(hits[k])
    assert emma.metrics.TopKAccuracy(k=num_classes)(scores, labels) == 1.0


def test_a_tie_goes_to_the_lowest_index():
    """Two equal maxima: the first is the prediction; by hand, exact."""
    scores = [[0.5, 0.5, 0.0], [0.2, 0.4, 0.4], [1.0, 1.0, 1.0]]
    assert TOP1(scores, [0, 1, 0]) == 1.0
    assert TOP1(scores, [1, 2, 2]) == 0.0
    assert emma.metrics.TopKAccuracy(k=2)(scores, [1, 2, 2]) == 2 / 3


def test_negative_zero_ties_with_zero():
    """-0.0 and 0.0 are one score; by hand, exact."""
    assert TOP1([[-0.0, 0.0], [0.0, -0.0]], [0, 0]) == 1.0
    assert TOP1([[-0.0, 0.0], [0.0, -0.0]], [1, 1]) == 0.0


def test_classes_instead_of_scores():
    """[N] integers are predicted classes; the mean of equality, exact."""
    preds, labels = np.array([0, 2, 1, 1, 2]), np.array([0, 2, 2, 1, 0])
    assert TOP1(preds, labels) == PLAIN(preds, labels) == 0.6
    assert emma.evaluate("E-ID-AMC", preds.astype(np.uint8), labels).headline == 0.6


def test_ranked_beams():
    """[N, K] ranked beams with their base: a hit where the true beam is among the first k; by hand, exact."""
    beams = np.array([[3, 1, 0], [2, 0, 1], [0, 1, 2]])
    for base in (0, 1):
        task = emma.get_task("E-CH-BEAM", input="ranked", index_base=base, k=2)
        assert emma.evaluate(task, beams + base, np.array([1, 1, 5]) + base).headline == 1 / 3
