"""Every metric: a frozen dataclass with ``init``, ``update``, ``merge``, ``all_reduce``, ``compute`` and
``__call__``."""

from emma_jax.metrics.accuracy import BalancedAccuracy, PlainAccuracy, Top1Accuracy, TopKAccuracy
from emma_jax.metrics.angles import MeanAngularError
from emma_jax.metrics.base import Metric
from emma_jax.metrics.beams import BeamPowerLoss, DBAScore, RSRPAccuracy
from emma_jax.metrics.channels import NMSE, SGCS
from emma_jax.metrics.fields import LocalCosQ50, LocalQ50, RelL2
from emma_jax.metrics.operating import TPRatFPR
from emma_jax.metrics.rank import AUC, AUROC, EER
from emma_jax.metrics.signals import SISDR
from emma_jax.metrics.sparams import MagWMAE, PhaseWMAE, RealImagRMSE
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
    "LocalCosQ50",
    "LocalQ50",
    "MagWMAE",
    "MeanAngularError",
    "Meteor",
    "Metric",
    "PhaseWMAE",
    "PlainAccuracy",
    "RSRPAccuracy",
    "RealImagRMSE",
    "RelL2",
    "TPRatFPR",
    "Top1Accuracy",
    "TopKAccuracy",
]
