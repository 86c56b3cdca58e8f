"""Every metric: a frozen dataclass with ``init``, ``update``, ``merge``, ``all_reduce``, ``compute`` and
``__call__``."""

from emma_jax.metrics.accuracy import BalancedAccuracy, PlainAccuracy, Top1Accuracy, TopKAccuracy
from emma_jax.metrics.angles import MeanAngularError
from emma_jax.metrics.base import Metric
from emma_jax.metrics.beams import BeamPowerLoss, DBAScore, RSRPAccuracy
from emma_jax.metrics.channels import NMSE, SGCS
from emma_jax.metrics.rank import AUC, AUROC, EER
from emma_jax.metrics.signals import SISDR
from emma_jax.metrics.text import CIDER, F1, Bleu, ExactMatch, Meteor

__all__ = [
    "AUC",
    "AUROC",
    "CIDER",
    "EER",
    "F1",
    "NMSE",
    "SGCS",
    "SISDR",
    "BalancedAccuracy",
    "BeamPowerLoss",
    "Bleu",
    "DBAScore",
    "ExactMatch",
    "MeanAngularError",
    "Meteor",
    "Metric",
    "PlainAccuracy",
    "RSRPAccuracy",
    "Top1Accuracy",
    "TopKAccuracy",
]
