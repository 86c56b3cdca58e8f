"""Every metric: a frozen dataclass with ``init``, ``update``, ``merge``, ``all_reduce``, ``compute`` and
``__call__``."""

from emma_jax.metrics.accuracy import BalancedAccuracy, PlainAccuracy, Top1Accuracy, TopKAccuracy
from emma_jax.metrics.angles import MeanAngularError
from emma_jax.metrics.base import Metric
from emma_jax.metrics.rank import AUC, AUROC, EER

__all__ = [
    "AUC",
    "AUROC",
    "EER",
    "BalancedAccuracy",
    "MeanAngularError",
    "Metric",
    "PlainAccuracy",
    "Top1Accuracy",
    "TopKAccuracy",
]
