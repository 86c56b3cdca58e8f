"""Tasks that together hold every metric, each with a function that draws samples for it.

What their states promise: the same integers for any split, order, padding and number of devices. ``loose`` names the
metrics (energies, decibels) that may differ by a float32 ulp or two, which come from the shape of a sample's own
reduction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from text_corpus import rf_corpus

import emma_jax as emma
from emma_jax.text.frequencies import DocumentFrequencies

m = emma.metrics
MOST = 96  # samples that are drawn at most; also the capacity of the exact streams


@dataclass(frozen=True)
class Case:
    """A task, its samples, and what is promised."""

    task: emma.Task
    draw: Any  # (rng, n) -> (preds, labels), pytrees of arrays with a leading axis [n]
    loose: tuple[str, ...] = ()
    bad_label: Any = 0  # what stands as a label where nothing is to count
    long: bool = False  # only in the long run


def _scores(rng, n):
    labels = rng.integers(0, 3, n).astype(np.int32)
    scores = (rng.normal(size=(n, 3)) + np.eye(3)[labels]).astype(np.float32)
    return np.where(rng.random((n, 3)) < 0.1, np.float32(0.5), scores), labels  # some ties


def _binary(rng, n):
    scores, labels = _scores(rng, n)
    labels = (labels > 0).astype(np.int32)
    labels[: min(n, 2)] = [0, 1][: min(n, 2)]
    return scores[:, 0], labels


def _angles(rng, n):
    return tuple(rng.uniform(-900, 900, (2, n)).astype(np.float32))


def _gains(rng, n):
    return rng.normal(size=(n, 4)).astype(np.float32), (10.0 ** rng.normal(0, 2, (n, 4))).astype(np.float32)


def _noisy(*shape):
    """Complex truths of very different strength, and estimates at 0 to 40 dB."""

    def draw(rng, n):
        noise = rng.normal(size=(2, n, *shape)) + 1j * rng.normal(size=(2, n, *shape))
        scale = 10.0 ** rng.uniform(-3, 3, (n, *([1] * len(shape))))
        gain = 10.0 ** rng.uniform(-2, 0, (n, *([1] * len(shape))))
        return (scale * (noise[0] + gain * noise[1])).astype(np.complex64), (scale * noise[0]).astype(np.complex64)

    return draw


CASES = {
    "angles": Case(emma.Task("angles", (m.MeanAngularError(),)), _angles),
    "classes": Case(
        emma.Task(
            "classes",
            (
                m.PlainAccuracy(),
                m.Top1Accuracy(),
                m.TopKAccuracy(k=2),
                m.BalancedAccuracy(num_classes=3),
                m.DBAScore(k=2, delta=2, num_beams=3),
                m.AUC(num_classes=3, capacity=MOST),
                m.EER(),
            ),
        ),
        _scores,
        bad_label=7,
    ),
    "binary": Case(
        emma.Task(
            "binary",
            (m.AUC(input="binary"), m.AUROC(input="binary", capacity=MOST), m.EER(capacity=MOST), m.TPRatFPR()),
        ),
        _binary,
        bad_label=7,
    ),
    "beams": Case(
        emma.Task("beams", (m.RSRPAccuracy(), m.BeamPowerLoss())), _gains, ("BeamPowerLoss",), bad_label=np.nan
    ),
    "channels": Case(emma.Task("channels", (m.NMSE(), m.SGCS())), _noisy(4, 5), ("NMSE", "SGCS"), np.nan),
    "ratios": Case(emma.Task("ratios", (m.NMSE(reduction="mean_ratio"),)), _noisy(4, 5), ("NMSE",), np.nan, True),
    "decibels": Case(emma.Task("decibels", (m.NMSE(reduction="mean_db"),)), _noisy(4, 5), ("NMSE",), np.nan, True),
    "signals": Case(emma.Task("signals", (m.SISDR(),)), _noisy(33), ("SISDR",), np.nan),
    "fields": Case(
        emma.Task("fields", (m.RelL2(), m.LocalQ50(), m.LocalCosQ50(capacity=3 * MOST))),
        _noisy(3, 3),
        ("rel_l2", "local_q50", "local_cos_q50"),
        np.nan,
    ),
    "sparams": Case(
        emma.Task("sparams", (m.RealImagRMSE(), m.MagWMAE(), m.PhaseWMAE())),
        _noisy(2, 2),
        ("real_imag_rmse", "mag_wmae", "ph_wmae"),
        np.nan,
    ),
}

CAPTIONS, REFERENCES = rf_corpus(60, (1, 3), seed=5)
TEXT = {
    "captions": emma.Task(
        "captions", (m.Bleu(), m.Meteor(), m.CIDER(df=DocumentFrequencies.from_references(REFERENCES)))
    ),
    "answers": emma.Task("answers", (m.ExactMatch(), m.F1())),
}


ULP_DB = 10 * np.log10(1 + 2.0**-23)
# Quotients of float32 numbers that may each differ by 1 ulp, or 2 for the energy of a complex row, whose products a
# compiler fuses in one shape and not in another (2.5 seen, on JAX 0.8.2); a cosine is made of three numbers.
ULPS = {"NMSE": 4, "mag_wmae": 2, "ph_wmae": 2, "local_cos_q50": 4}


def within(metric, value):
    """How far a loose metric's value may lie from ``value``; an ulp in dB is that of the ratio under the logarithm."""
    ulp = float(np.spacing(np.float32(abs(value))))
    return ULPS.get(metric.name, 1) * (max(ulp, ULP_DB) if metric.unit == "dB" else ulp)


def take(tree, index):
    """Rows of every leaf."""
    return jax.tree.map(lambda x: x[index], tree)


def same_bits(a, b):
    """Where two states differ, by the path of the leaf; empty where they are the same integers."""
    pairs = zip(jax.tree_util.tree_leaves_with_path(a), jax.tree_util.tree_leaves(b), strict=True)
    return [jax.tree_util.keystr(path) for (path, x), y in pairs if not np.array_equal(x, y)]
