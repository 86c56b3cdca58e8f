"""What belongs in a training loop: keep the best checkpoint, stop in time, and losses that train what is measured.

Everything is pure and lives inside ``jit``: states are pytrees, directions come from the metric or task that is
watched, and nothing depends on how the optimizer is written, so that any optax loop can use it.
"""

from emma_jax.training.losses import (
    circular_loss,
    nmse_loss,
    si_sdr_loss,
    soft_auc_loss,
    sparameter_loss,
    wrapped_absolute_loss,
)
from emma_jax.training.selection import (
    BestCheckpoint,
    BestState,
    EarlyStop,
    EarlyStopState,
    early_stop,
    to_minimize,
)

__all__ = [
    "BestCheckpoint",
    "BestState",
    "EarlyStop",
    "EarlyStopState",
    "circular_loss",
    "early_stop",
    "nmse_loss",
    "si_sdr_loss",
    "soft_auc_loss",
    "sparameter_loss",
    "to_minimize",
    "wrapped_absolute_loss",
]
