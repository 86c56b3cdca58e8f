"""Side by side with scikit-learn, run live: equal where it follows the definition, and one test for each place where
the two differ, with the reason."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import emma_jax as emma

sk = pytest.importorskip("sklearn.metrics", reason="parity with scikit-learn needs the extra 'parity'")

m = emma.metrics
N, C = 2000, 5
RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, C, N)
LOGITS = (RNG.normal(size=(N, C)) + 1.5 * np.eye(C)[LABELS]).astype(np.float32)
PROBS = np.exp(LOGITS.astype(float)) / np.exp(LOGITS.astype(float)).sum(1, keepdims=True)
BINARY = LABELS % 2
SCORES = RNG.normal(size=N) + BINARY
WEIGHTS = RNG.integers(0, 5, N)


# --- where they agree -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weighted"])
def test_accuracy(weights):
    """Accuracy, top-k and balanced accuracy (absent="exclude", its rule), with integer sample weights; 1e-12."""
    classes = LOGITS.argmax(1)
    want = sk.accuracy_score(LABELS, classes, sample_weight=weights)
    assert m.PlainAccuracy()(LOGITS, LABELS, weights=weights) == pytest.approx(want, abs=1e-12)
    for k in (1, 2, 4):
        want = sk.top_k_accuracy_score(LABELS, LOGITS, k=k, sample_weight=weights)
        assert m.TopKAccuracy(k=k)(LOGITS, LABELS, weights=weights) == pytest.approx(want, abs=1e-12)
    want = sk.balanced_accuracy_score(LABELS, classes, sample_weight=weights)
    for absent in ("zero", "exclude"):
        metric = m.BalancedAccuracy(absent=absent)
        assert metric(LOGITS, LABELS, weights=weights) == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weighted"])
@pytest.mark.parametrize("decimals", [12, 1])
def test_auc(weights, decimals):
    """Binary AUC of any scores, with ties and integer sample weights, and the macro average of probabilities; 1e-10."""
    scores = np.round(SCORES, decimals)
    want = sk.roc_auc_score(BINARY, scores, sample_weight=weights)
    assert m.AUROC()(scores, BINARY, weights=weights) == pytest.approx(want, abs=1e-10)
    want = sk.roc_auc_score(LABELS, PROBS, multi_class="ovr", sample_weight=weights)
    assert m.AUC()(PROBS, LABELS, weights=weights) == pytest.approx(want, abs=1e-10)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weighted"])
@pytest.mark.parametrize("decimals", [12, 1])
def test_eer_on_their_roc_curve(weights, decimals):
    """The crossing interpolated on roc_curve (every threshold kept); 1e-12."""
    scores = np.round(SCORES, decimals)
    far, tpr, _ = sk.roc_curve(BINARY, scores, sample_weight=weights, drop_intermediate=False)
    frr = 1 - tpr
    at = int(np.argmax(far >= frr))
    t = (frr[at - 1] - far[at - 1]) / ((far[at] - far[at - 1]) + (frr[at - 1] - frr[at]))
    want = far[at - 1] + t * (far[at] - far[at - 1])
    assert m.EER()(scores, BINARY, weights=weights) == pytest.approx(want, abs=1e-12)


# --- where they differ, and why --------------------------------------------------------------------------------


def test_differs_class_predicted_but_never_true():
    """scikit-learn leaves out a class that is only predicted (3/4); the default here counts its recall as 0 (1/2), the
    rule of torchmetrics, so that predicting a stray class costs something; absent="exclude" is scikit-learn's."""
    labels, preds = [0, 0, 1, 1], [0, 2, 1, 1]
    with pytest.warns(UserWarning, match="y_pred contains classes not in y_true"):
        assert sk.balanced_accuracy_score(labels, preds) == 0.75
    assert m.BalancedAccuracy()(preds, labels) == 0.5
    assert m.BalancedAccuracy(absent="exclude")(preds, labels) == 0.75


def test_differs_order_of_ties():
    """top_k_accuracy_score prefers the highest index on a tie; here the lowest, as argmax and jax.lax.top_k do, so that
    top-1 is one number."""
    scores, labels = [[0.5, 0.5, 0.0], [0.2, 0.4, 0.4]], [0, 1]
    assert sk.top_k_accuracy_score(labels, scores, k=1, labels=[0, 1, 2]) == 0.0
    assert m.TopKAccuracy(k=1)(scores, labels) == m.Top1Accuracy()(scores, labels) == 1.0


def test_differs_k_above_the_classes():
    """k > C is a warning and a perfect score there; here it is an error."""
    scores, labels = [[0.1, 0.9, 0.0], [0.3, 0.3, 0.4]], [0, 2]
    with pytest.warns(UserWarning):
        assert sk.top_k_accuracy_score(labels, scores, k=5, labels=[0, 1, 2]) == 1.0
    with pytest.raises(emma.EvaluationError, match="k"):
        m.TopKAccuracy(k=5)(scores, labels)


def test_differs_rows_that_are_no_probabilities():
    """Multiclass scores must sum to one there; here columns are ranked as given."""
    with pytest.raises(ValueError, match="sum up to 1"):
        sk.roc_auc_score(LABELS, LOGITS, multi_class="ovr")
    assert 0.5 < m.AUC()(LOGITS, LABELS) < 1


def test_differs_undefined_auc():
    """One class only, or a class that is absent: NaN with a warning there; here an error, or the absent class is left
    out and counted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.isnan(sk.roc_auc_score([1, 1], [0.1, 0.2]))
        absent = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.6, 0.3, 0.1]]
        assert np.isnan(sk.roc_auc_score([0, 1, 0], absent, multi_class="ovr", labels=[0, 1, 2]))
    with pytest.raises(emma.DegenerateLabelsError):
        m.AUROC()([0.1, 0.2], [1, 1])
    assert m.AUC()(absent, [0, 1, 0]) == 1.0


def test_differs_infinite_scores():
    """scikit-learn refuses an infinite score; a log-likelihood of -inf is a rank like any other here."""
    scores, labels = [np.inf, 1.0, -np.inf, 0.0], [1, 0, 0, 1]
    with pytest.raises(ValueError, match="infinity"):
        sk.roc_auc_score(labels, scores)
    assert m.AUROC()(scores, labels) == 0.75
