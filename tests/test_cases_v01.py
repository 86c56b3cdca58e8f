"""Small inputs on which other tools went wrong, with right values computed by hand or in rationals (``how_computed``,
``source`` of each line); every case on the host, and under jit where its input is a float32 or integer array."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import jax
import numpy as np
import pytest

import emma_jax as emma

CASES = [
    json.loads(line) for line in (Path(__file__).parent / "data" / "cases_v01.jsonl").read_text("utf-8").splitlines()
]
ERRORS = {
    "undefined": emma.DegenerateLabelsError,
    "empty": emma.EmptyEvaluationError,
    "nan_input": emma.NonFiniteError,
    "label_out_of_range": emma.LabelError,
    "k_out_of_range": emma.EvaluationError,
}


def array(values, dtype=None):
    """JSON numbers, with "nan" and "inf" as strings, as an array."""
    if isinstance(values, list) and values and isinstance(values[0], list):
        return np.stack([array(row, dtype) for row in values])
    numbers = [float(v) if isinstance(v, str) else v for v in values]
    return np.array(numbers, dtype)


def build(case):
    """(metric, preds, labels) of a case."""
    given, kind = case["input"], case["metric"]
    dtypes = given.get("dtype", {})
    dtypes = dtypes if isinstance(dtypes, dict) else {}
    labels = given.get("labels", given.get("true"))
    if "blocks" in given:
        counts = [b["count"] for b in given["blocks"]]
        scores = np.repeat(array([b["score"] for b in given["blocks"]], dtypes.get("scores")), counts)
        return emma.metrics.AUC(), scores, np.repeat([b["label"] for b in given["blocks"]], counts)
    labels = array(labels, dtypes.get("labels"))
    if kind in ("binary_auroc", "eer"):
        metric = emma.metrics.AUROC() if kind == "binary_auroc" else emma.metrics.EER()
        return metric, array(given["scores"], dtypes.get("scores")), labels
    if kind == "multiclass_auroc":
        return emma.metrics.AUC(num_classes=given["num_classes"]), array(given["scores"]), labels
    if kind == "balanced_accuracy":
        return emma.metrics.BalancedAccuracy(num_classes=given["num_classes"]), array(given["preds"]), labels
    if kind == "circular_angular_error_deg":
        return emma.metrics.MeanAngularError(), array(given["pred"], dtypes.get("pred")), labels
    logits = array(given["logits"], dtypes.get("logits"))
    if kind == "top1_accuracy":
        return emma.metrics.Top1Accuracy(), logits, labels
    assert kind == "topk_accuracy"
    return emma.metrics.TopKAccuracy(k=given["k"]), logits, labels


def check(case, score):
    """The value, or the kind of error, that the case expects."""
    want = case["expect"]
    if isinstance(want, dict):
        kinds = tuple(ERRORS[e["error"]] for e in (want, *case.get("accept", [])) if isinstance(e, dict))
        with pytest.raises(kinds):
            score()
    else:
        assert abs(score() - want) <= case["tol"]


@pytest.mark.parametrize("case", [c for c in CASES if "batches" not in c["input"]], ids=lambda c: c["id"])
def test_host(case):
    """The host value, to the case's tolerance."""
    metric, preds, labels = build(case)
    check(case, lambda: metric(preds, labels))


@functools.cache
def traced(metric):
    """The metric under jit with a mask."""
    return jax.jit(lambda p, y, where: metric(p, y, where=where))


@pytest.mark.parametrize(
    "case",
    [c for c in CASES if "batches" not in c["input"] and "float64" not in str(c["input"])],
    ids=lambda c: c["id"],
)
def test_traced(case):
    """The same under jit, padded with garbage under where=False (so that cases share kernels); an undefined value or a
    bad input is NaN, and configuration still raises."""
    metric, preds, labels = build(case)
    preds = preds.astype({"f": np.float32, "i": np.int32}[preds.dtype.kind]) if preds.dtype.itemsize == 8 else preds
    labels = labels.astype(np.float32 if metric.name == "MeanAngularError" else np.int32)
    pad = max(0, 8 - len(labels))
    where = np.arange(len(labels) + pad) < len(labels)
    preds = np.concatenate([preds, np.full((pad, *preds.shape[1:]), 77, preds.dtype)])
    labels = np.concatenate([labels, np.full(pad, 77, labels.dtype)])
    want = case["expect"]
    if want == {"error": "k_out_of_range"}:
        with pytest.raises(emma.EvaluationError, match="k"):
            traced(metric)(preds, labels, where)
    elif isinstance(want, dict):
        assert np.isnan(traced(metric)(preds, labels, where))
    else:
        got = float(traced(metric)(preds, labels, where))
        assert abs(got - want) <= max(case["tol"], 4 * 2.0**-23 * max(1, abs(want)))


@pytest.mark.parametrize("case", [c for c in CASES if "batches" in c["input"]], ids=lambda c: c["id"])
def test_batches(case):
    """Batches of unequal size, streamed: counts are added, values are never averaged."""
    metric = emma.metrics.BalancedAccuracy(num_classes=case["input"]["num_classes"])
    state = metric.init()
    for batch in case["input"]["batches"]:
        state = metric.update(state, batch["preds"], batch["labels"])
    check(case, lambda: metric.compute(state))


def test_the_file_has_every_v01_kind():
    """35 cases of the seven v0.1 kinds."""
    kinds = {c["metric"] for c in CASES}
    assert kinds == {
        "balanced_accuracy", "binary_auroc", "circular_angular_error_deg", "eer",
        "multiclass_auroc", "top1_accuracy", "topk_accuracy",
    } and len(CASES) == 35  # fmt: skip
