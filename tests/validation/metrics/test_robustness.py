"""Boundaries of validity: empty sets raise, padding does not count, undefined is never a number."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import emma_jax as emma

CLASS = (np.zeros((0, 3), np.float32), np.zeros(0, np.int32))
FLAT = (np.zeros(0, np.float32), np.zeros(0, np.int32))
EMPTY = {
    "E-LOC-AOA": (np.zeros(0), np.zeros(0)),
    "E-LOC-LOS": CLASS,
    "E-ID-DRONE": CLASS,
    "E-ID-FP": CLASS,
    "E-ID-AMC": CLASS,
    "E-CH-BEAM": CLASS,
    "E-SC-SENSE": FLAT,
    "E-SC-ANOM": FLAT,
}


@pytest.mark.parametrize("task", EMPTY)
def test_nothing_to_score_raises(task):
    """No sample, none left by where, none left by weights: EmptyEvaluationError on the host, NaN under jit; never a
    number."""
    preds, labels = EMPTY[task]
    with pytest.raises(emma.EmptyEvaluationError, match=task):
        emma.evaluate(task, preds, labels)
    preds, labels = (np.zeros((3, *x.shape[1:]), x.dtype) for x in (preds, labels))
    with pytest.raises(emma.EmptyEvaluationError, match=task):
        emma.evaluate(task, preds, labels, where=np.zeros(3, bool))
    with pytest.raises(emma.EmptyEvaluationError, match=task):
        emma.evaluate(task, preds, labels, weights=np.zeros(3, int))
    traced = jax.jit(lambda p, y, w: emma.evaluate(task, p, y, where=w))(preds, labels, jnp.zeros(3, bool))
    assert all(np.isnan(v) for v in traced.values()) and all(int(v.n) == 0 for v in traced.validity.values())


@pytest.mark.parametrize("task", ["E-LOC-AOA", "E-LOC-LOS", "E-ID-AMC", "E-ID-DRONE", "E-SC-SENSE", "E-SC-ANOM"])
def test_empty_lists_raise(task):
    """Empty Python lists are an empty evaluation too."""
    with pytest.raises(emma.EmptyEvaluationError):
        emma.evaluate(task, [], [])


def test_an_empty_stream_raises():
    """compute of a fresh state: an error on the host, NaN under jit."""
    for metric in (emma.metrics.MeanAngularError(), emma.metrics.Top1Accuracy(), emma.metrics.EER(capacity=4)):
        with pytest.raises(emma.EmptyEvaluationError, match=metric.name):
            metric.compute(metric.init())
        assert np.isnan(jax.jit(metric.compute)(metric.init()))


def test_one_sided_labels_are_undefined():
    """Only positives or only negatives: no pair, no crossing; an error on the host, NaN under jit, never 0 or 1."""
    scores = np.float32([0.2, 0.9, 0.4])
    for metric in (emma.metrics.AUC(), emma.metrics.AUROC(), emma.metrics.EER()):
        traced = jax.jit(metric)
        for label in (0, 1):
            with pytest.raises(emma.DegenerateLabelsError, match=metric.name):
                metric(scores, np.full(3, label))
            assert np.isnan(traced(scores, np.full(3, label)))
    for label in (0, 1):
        with pytest.raises(emma.DegenerateLabelsError, match="E-ID-DRONE"):
            emma.evaluate("E-ID-DRONE", np.eye(3)[[0, 1, 2]], np.full(3, label))


def test_a_mean_predictor_loses_to_any_model_under_regression():
    """Binned to 45 degrees a constant offset is invisible; the regression error shows it in full; exact."""
    truth = np.arange(0, 360, 45) + 22.5
    biased = truth + 20.0
    assert np.array_equal(truth // 45, biased % 360 // 45)
    assert emma.evaluate("E-LOC-AOA", biased, truth).headline == 20.0


def test_a_padded_last_batch_counts_nothing():
    """Five samples in two batches of four, padded with garbage under where=False; exact, by hand."""
    scores = np.float32([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.6, 0.4], [0.1, 0.9]])
    labels = np.array([0, 1, 1, 1, 1])
    pad = np.concatenate([scores, np.full((3, 2), np.nan, np.float32)]), np.concatenate([labels, [-5, 99, 2**31 - 1]])
    task, state = emma.get_task("E-ID-AMC"), emma.get_task("E-ID-AMC").init()
    for i in (0, 4):
        state = task.update(state, pad[0][i : i + 4], pad[1][i : i + 4], where=np.arange(i, i + 4) < 5)
    assert task.compute(state).headline == 0.6
    assert task.compute(state).validity["PlainAccuracy"].n == 5
