"""Every metric that runs under a transform is one module of plain operations for CPU, CUDA and TPU alike: no callback,
nothing 64 bits wide. Oracle: the text of the module that `jax.export` makes for the three platforms."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import emma_jax as emma
from emma_jax.metrics import Metric
from emma_jax.text import TokenBatch
from emma_jax.text.frequencies import DocumentFrequencies

m = emma.metrics
RNG = np.random.default_rng(0)
N, C = 24, 5
ANGLES = RNG.uniform(-400, 400, (2, N)).astype(np.float32)
SCORES = RNG.normal(size=(N, C)).astype(np.float32)
LABELS = RNG.integers(0, C, N).astype(np.int32)
BINARY = (LABELS > 1).astype(np.int32)
WAVES = RNG.normal(size=(2, 3, 16)).astype(np.float32) + 1j * RNG.normal(size=(2, 3, 16)).astype(np.float32)
FIELDS = (RNG.normal(size=(2, 2, 2, 5, 3)) + 1j * RNG.normal(size=(2, 2, 2, 5, 3))).astype(np.complex64)
TEXT = TokenBatch.from_sequences([[1, 2, 3, 4, 5], [2, 3]])
REFERENCES = TokenBatch.from_sequences([[[1, 2, 3, 4, 6], [1, 2]], [[2, 3]]])
IMAGES = TokenBatch.from_sequences([[[1, 2, 3, 4, 6]], [[2, 3, 9]], [[7, 8]]])

CASES = {
    "MeanAngularError": (m.MeanAngularError(), *ANGLES),
    "BalancedAccuracy": (m.BalancedAccuracy(), SCORES, LABELS),
    "Top1Accuracy": (m.Top1Accuracy(), SCORES, LABELS),
    "PlainAccuracy": (m.PlainAccuracy(num_classes=C), SCORES.argmax(1).astype(np.int32), LABELS),
    "TopKAccuracy": (m.TopKAccuracy(k=2), SCORES, LABELS),
    "AUC": (m.AUC(), SCORES, LABELS),
    "AUROC": (m.AUROC(), SCORES[:, 0], BINARY),
    "EER": (m.EER(), SCORES[:, 0], BINARY),
    "TPRatFPR": (m.TPRatFPR(fpr=0.1), SCORES[:, 0], BINARY),
    "DBAScore": (m.DBAScore(), SCORES, LABELS),
    "BeamPowerLoss": (m.BeamPowerLoss(), SCORES, np.abs(SCORES)),
    "RSRPAccuracy": (m.RSRPAccuracy(), SCORES, np.abs(SCORES)),
    "NMSE": (m.NMSE(), *WAVES),
    "SGCS": (m.SGCS(), *WAVES),
    "SISDR": (m.SISDR(), *WAVES),
    "RelL2": (m.RelL2(), *FIELDS),
    "LocalQ50": (m.LocalQ50(), *FIELDS),
    "LocalCosQ50": (m.LocalCosQ50(), *FIELDS),
    "RealImagRMSE": (m.RealImagRMSE(), *FIELDS[..., 0, :, :]),
    "MagWMAE": (m.MagWMAE(), *FIELDS[..., 0, :, :]),
    "PhaseWMAE": (m.PhaseWMAE(), *FIELDS[..., 0, :, :]),
    "Bleu": (m.Bleu(), TEXT, REFERENCES),
    "CIDER": (m.CIDER(df=DocumentFrequencies.from_references(IMAGES)), TEXT, REFERENCES),
    "ExactMatch": (m.ExactMatch(), TEXT, REFERENCES),
    "F1": (m.F1(), TEXT, REFERENCES),
}
HOST_ONLY = {"Meteor"}  # an aligner over words, and a table of synonyms


def test_no_metric_is_left_out():
    """A new metric is exported here, or says that it runs on the host only."""
    known = {k for k, v in vars(m).items() if isinstance(v, type) and issubclass(v, Metric) and v is not Metric}
    assert known == CASES.keys() | HOST_ONLY


@pytest.mark.parametrize("name", CASES)
def test_exports_for_every_platform(name):
    """One module for three platforms, from shapes alone."""
    metric, *arrays = CASES[name]
    shapes = jax.tree_util.tree_map(lambda x: jax.ShapeDtypeStruct(np.shape(x), jnp.asarray(x).dtype), tuple(arrays))
    module = export.export(jax.jit(lambda p, y: metric(p, y)), platforms=["cpu", "cuda", "tpu"])(*shapes)
    assert set(module.platforms) == {"cpu", "cuda", "tpu"}
    text = module.mlir_module()
    assert "callback" not in text
    wide = re.findall(r"tensor<(?:\d+x)*(?:f64|u?i64|complex<f64>)>", re.sub(r"dense<[^:]*: tensor<\S*", "", text))
    assert not wide, wide[:3]
