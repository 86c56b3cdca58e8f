"""Side by side with torchmetrics 1.9, run live: equal where it follows the definition, and one test for each place
where the two differ, with the reason."""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import oracles
import pytest

import emma_jax as emma

torch = pytest.importorskip("torch", reason="parity with torchmetrics needs the extra 'parity'")
tm = pytest.importorskip("torchmetrics.classification", reason="parity with torchmetrics needs the extra 'parity'")

m = emma.metrics
N, C = 2000, 5
RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, C, N)
LOGITS = (RNG.normal(size=(N, C)) + 1.5 * np.eye(C)[LABELS]).astype(np.float32)
PROBS = (np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)).astype(np.float32)
BINARY = LABELS % 2
CONFIDENCE = (1 / (1 + np.exp(-RNG.normal(size=N) - BINARY))).astype(np.float32)


def theirs(metric, preds, labels) -> float:
    """A torchmetrics value as a float, its warnings silenced."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(metric(torch.as_tensor(np.asarray(preds)), torch.as_tensor(np.asarray(labels))))


# --- where they agree -------------------------------------------------------------------------------------------


def test_accuracy():
    """Micro accuracy, top-k, from scores and from classes; 1e-7 (theirs is float32)."""
    micro = tm.MulticlassAccuracy(C, average="micro")
    assert m.PlainAccuracy()(LOGITS, LABELS) == pytest.approx(theirs(micro, LOGITS, LABELS), abs=1e-7)
    assert m.Top1Accuracy()(BINARY, LABELS) == pytest.approx(theirs(micro, BINARY, LABELS), abs=1e-7)
    for k in (1, 2, 4, 5):
        top = tm.MulticlassAccuracy(C, average="micro", top_k=k)
        assert m.TopKAccuracy(k=k)(LOGITS, LABELS) == pytest.approx(theirs(top, LOGITS, LABELS), abs=1e-7)


def test_balanced_accuracy():
    """Macro accuracy, also with a class that is predicted but never true (0) and one that is nowhere; 1e-6."""
    metric = m.BalancedAccuracy(num_classes=C)
    macro = tm.MulticlassAccuracy(C, average="macro")
    assert metric(LOGITS, LABELS) == pytest.approx(theirs(macro, LOGITS, LABELS), abs=1e-6)
    for preds, labels in (([0, 2, 1, 1], [0, 0, 1, 1]), ([0, 1, 1, 3], [0, 1, 1, 3]), ([4, 4], [1, 1])):
        assert metric(preds, labels) == pytest.approx(theirs(macro, preds, labels), abs=1e-6)


def test_auc_of_probabilities():
    """Binary and macro AUC of probabilities, ties included, every class present; 1e-6."""
    for scores in (CONFIDENCE, np.round(CONFIDENCE, 1)):
        assert m.AUROC()(scores, BINARY) == pytest.approx(theirs(tm.BinaryAUROC(), scores, BINARY), abs=1e-6)
    want = theirs(tm.MulticlassAUROC(C), PROBS, LABELS)
    assert m.AUC(num_classes=C)(PROBS, LABELS) == pytest.approx(want, abs=1e-6)


def test_eer_on_their_roc_curve():
    """The crossing interpolated on BinaryROC's own curve, the reference of the specification; 1e-5 (float32 curve)."""
    for scores in (CONFIDENCE, np.round(CONFIDENCE, 1)):
        fpr, tpr, _ = tm.BinaryROC()(torch.as_tensor(scores), torch.as_tensor(BINARY))
        far, frr = fpr.double().numpy(), 1 - tpr.double().numpy()
        at = int(np.argmax(far >= frr))
        t = (frr[at - 1] - far[at - 1]) / ((far[at] - far[at - 1]) + (frr[at - 1] - frr[at]))
        want = far[at - 1] + t * (far[at] - far[at - 1])
        assert m.EER()(scores, BINARY) == pytest.approx(want, abs=1e-5)


# --- where they differ, and why --------------------------------------------------------------------------------


def test_differs_absent_class_in_macro_auroc():
    """A class without a positive has no AUC. torchmetrics averages it in as 0, so a perfect ranking scores 1/2; here it
    is left out and counted."""
    scores = np.float32([[0.7, 0.2, 0.1, 0.0], [0.1, 0.6, 0.2, 0.1], [0.5, 0.4, 0.1, 0.0], [0.2, 0.5, 0.2, 0.1]])
    labels = [0, 1, 0, 1]
    assert theirs(tm.MulticlassAUROC(4), scores, labels) == 0.5
    result = emma.evaluate("E-ID-DRONE", scores, labels)
    assert result.headline == 1.0 and result.validity["AUC"].n_absent_classes == 2


def test_differs_sigmoid_on_logits():
    """torchmetrics takes scores outside [0, 1] for logits and applies a sigmoid, which saturates in float32: logits
    near 98 all tie. Here scores are ranked as they are."""
    logits, labels = np.float32([98.0, 97.25, 99.5, 98.75, 99.0, 97.5]), np.array([0, 0, 1, 1, 0, 1])
    assert theirs(tm.BinaryAUROC(), logits, labels) == 0.5
    assert m.AUROC()(logits, labels) == float(oracles.auc(logits, labels)) == 6 / 9


def test_differs_softmax_on_scores():
    """Likewise a softmax over the columns of multiclass scores: it changes ranks between samples, hence the AUC."""
    scores = np.float32([[2.0, 1.0, 0.0], [0.5, 3.0, 0.1], [1.0, 1.2, 4.0], [3.0, 2.9, 2.0], [0.1, 0.2, 0.3]])
    labels = np.array([0, 1, 2, 0, 2])
    assert theirs(tm.MulticlassAUROC(3), scores, labels) == 1.0
    want, _ = oracles.macro_auc(scores, labels)
    assert want == Fraction(17, 18) and m.AUC()(scores, labels) == pytest.approx(17 / 18, abs=1e-15)


def test_differs_snapped_eer():
    """BinaryEER averages FAR and FRR at the nearest threshold (11/30); interpolated on the segment the rate is 1/3."""
    scores, labels = np.float32([0.9, 0.7, 0.4, 0.8, 0.5, 0.3, 0.2, 0.1]), np.array([1, 1, 1, 0, 0, 0, 0, 0])
    assert theirs(tm.BinaryEER(), scores, labels) == pytest.approx(11 / 30, abs=1e-6)
    assert m.EER()(scores, labels) == pytest.approx(1 / 3, abs=1e-15)


def test_differs_one_sided_labels():
    """Without a negative there is no AUC and no EER. torchmetrics warns and returns 0; here it is an error."""
    scores, labels = np.float32([0.2, 0.9, 0.4]), np.array([1, 1, 1])
    assert theirs(tm.BinaryAUROC(), scores, labels) == theirs(tm.BinaryEER(), scores, labels) == 0.0
    for metric in (m.AUROC(), m.EER()):
        with pytest.raises(emma.DegenerateLabelsError):
            metric(scores, labels)


def test_differs_nan_scores():
    """torch's argmax returns the position of a NaN, which may be the true class: a hit. Here NaN has no rank."""
    scores, labels = np.float32([[0.1, np.nan, 0.9], [0.2, 0.7, 0.1]]), np.array([1, 1])
    assert theirs(tm.MulticlassAccuracy(3, average="micro"), scores, labels) == 1.0
    with pytest.raises(emma.NonFiniteError):
        m.Top1Accuracy()(scores, labels)


def test_differs_empty_input():
    """An empty batch is an internal error of torch there, a typed error here."""
    with pytest.raises(RuntimeError):
        theirs(tm.MulticlassAccuracy(3, average="micro"), np.zeros((0, 3), np.float32), np.zeros(0, np.int64))
    with pytest.raises(emma.EmptyEvaluationError):
        m.PlainAccuracy()(np.zeros((0, 3), np.float32), np.zeros(0, np.int64))
