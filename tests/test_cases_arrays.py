"""Small arrays on which other tools went wrong, with right values computed by hand or in rationals (``how_computed``,
``source`` of each line): every case on the host, and under jit.

Cases that would each need a kernel of their own are brought to common shapes in ways that change no definition:
channels and vectors get further entries of 0, a signal is repeated (one has at least 8 steps)."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import jax
import numpy as np
import pytest

import emma_jax as emma

m = emma.metrics
CASES = [
    json.loads(line) for line in (Path(__file__).parent / "data" / "cases_arrays.jsonl").read_text("utf-8").splitlines()
]
ERRORS = {"shape_mismatch": emma.ShapeError, "undefined": emma.DegenerateLabelsError}
METRICS = {
    "nmse_db": m.NMSE(),
    "rel_l2": m.RelL2(),
    "median_local_error": m.LocalQ50(),
    "median_local_cosine": m.LocalCosQ50(),
    "sparam_ri_rmse": m.RealImagRMSE(),
    "sparam_mag_mae_db": m.MagWMAE(),
    "sparam_phase_mae_rad": m.PhaseWMAE(),
}
ROWS = 4


def array(values):
    """Complex array of a case, each part as it is written (so that -0.0 stays)."""
    re, im = (np.array(values[k], np.float32) for k in ("re", "im"))
    return np.stack([re, im], axis=-1).view(np.complex64)[..., 0]


def build(case):
    """(metric, preds, labels) of a case."""
    given, kind = case["input"], case["metric"]
    if kind == "si_sdr_db":
        pair = (np.tile(np.array(given[k], np.float32), 2) for k in ("est", "ref"))
        return m.SISDR(zero_mean=given["zero_mean"]), *pair
    if "repeat" in given:
        half = ([[(given[k]["re"], given[k]["im"])] * given["repeat"]] for k in ("pred", "true"))
        return m.NMSE(iq_axis=-1), *(np.array(x, np.float16) for x in half)
    preds, labels = array(given["pred"]), array(given["true"])
    if kind.startswith("sparam") or case["expect"] == {"error": "shape_mismatch"}:
        return METRICS[kind], preds, labels
    if preds.ndim == 1:
        preds, labels = (x[:, None] if kind == "median_local_error" else x[None] for x in (preds, labels))
    preds, labels = (np.pad(x, ((0, 0), (0, 3 - x.shape[1]))) for x in (preds, labels))
    return METRICS[kind], preds, labels


def check(case, score):
    """The value, or the kind of error, that the case expects."""
    if isinstance(case["expect"], dict):
        with pytest.raises(ERRORS[case["expect"]["error"]]):
            score()
    else:
        assert abs(score() - case["expect"]) <= case["tol"]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["id"])
def test_host(case):
    """The host value, to the case's tolerance."""
    metric, preds, labels = build(case)
    check(case, lambda: metric(preds, labels))


@functools.cache
def traced(metric):
    """The metric under jit with a mask."""
    return jax.jit(lambda p, t, where: metric(p, t, where=where))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda c: c["id"])
def test_traced(case):
    """The same under jit, with NaN under where=False; an undefined value is NaN, shapes still raise."""
    metric, preds, labels = build(case)
    if case["expect"] == {"error": "shape_mismatch"}:
        with pytest.raises(emma.ShapeError):
            traced(metric)(preds, labels, np.ones(3, bool))
        return
    rows = max(0, ROWS - len(labels))
    preds, labels = (np.concatenate([x, np.full((rows, *x.shape[1:]), np.nan, x.dtype)]) for x in (preds, labels))
    value = float(traced(metric)(preds, labels, np.arange(len(labels)) < len(labels) - rows))
    want = np.nan if isinstance(case["expect"], dict) else case["expect"]
    assert np.isnan(value) if np.isnan(want) else abs(value - want) <= case["tol"]


def test_counts():
    """What is left out is counted: blank channels, silent references, dark probes, entries without a phase."""
    counts = {}
    for case in CASES:
        if case["id"] in ("nmse-blank-channel-in-batch", "sisdr-silent-excluded", "nf-cos-zero-vector"):
            metric, preds, labels = build(case)
            scores = emma.evaluate(emma.Task("T", (metric,)), preds, labels)
            counts[case["id"]] = (scores.validity[metric.name].n_used, scores.validity[metric.name].n_excluded)
    assert counts == {
        "nmse-blank-channel-in-batch": (1, 1),
        "sisdr-silent-excluded": (2, 1),
        "nf-cos-zero-vector": (2, 1),
    }


def test_the_file_has_every_array_kind():
    """24 cases of the eight kinds of array metrics."""
    assert {c["metric"] for c in CASES} == {*METRICS, "si_sdr_db"} and len(CASES) == 24
