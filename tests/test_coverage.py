"""How often intervals hold the truth: nominal 95 % over 2,000 simulated data sets, each metric with a known value."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

import emma_jax as emma
from emma_jax import metrics as m
from emma_jax.metrics import Metric

DATA_SETS = 2000
RESAMPLES = 1000

Simulated = tuple[Any, Any]


def _angles(rng: np.random.Generator, n: int) -> Simulated:
    labels = rng.uniform(0, 360, n)
    return (labels + rng.normal(scale=10, size=n)).astype(np.float32), labels.astype(np.float32)


def _classes(rng: np.random.Generator, n: int) -> Simulated:
    """Class c (unequal frequencies) is recognised with probability 0.9, 0.8, 0.7, else taken for another."""
    y = rng.choice(3, n, p=(0.5, 0.3, 0.2))
    right = rng.random(n) < np.array([0.9, 0.8, 0.7])[y]
    return np.where(right, y, (y + rng.integers(1, 3, n)) % 3), y


def _scores(shift: float) -> Callable[[np.random.Generator, int], Simulated]:
    def draw(rng: np.random.Generator, n: int) -> Simulated:
        y = (rng.random(n) < 0.5).astype(np.int32)
        return (rng.normal(size=n) + shift * y).astype(np.float32), y

    return draw


def _channels(rng: np.random.Generator, n: int) -> Simulated:
    """Eight Rayleigh entries a channel, the channel's own path gain, and noise 12 dB below the mean energy."""
    gain = rng.exponential(size=(n, 1)) ** 0.5
    h = gain * (rng.normal(size=(n, 8)) + 1j * rng.normal(size=(n, 8)))
    noise = rng.normal(size=(n, 8)) + 1j * rng.normal(size=(n, 8))
    return (h + 10 ** (-12 / 20) * noise).astype(np.complex64), h.astype(np.complex64)


# What, from how many samples, simulated how, and its value in the population. Sample sizes are those of a small test
# set: EER from 400 trials is a step function of some two hundred scores on either side, and the percentile interval of
# a mean of skewed errors is a little short below a hundred samples.
CASES: dict[str, tuple[Metric, int, Callable[[np.random.Generator, int], Simulated], float]] = {
    "MeanAngularError": (m.MeanAngularError(), 200, _angles, 10 * math.sqrt(2 / math.pi)),
    "BalancedAccuracy": (m.BalancedAccuracy(num_classes=3), 300, _classes, 0.8),
    "AUC": (m.AUC(), 200, _scores(1.5), NormalDist().cdf(1.5 / math.sqrt(2))),
    "EER": (m.EER(), 400, _scores(1.5), NormalDist().cdf(-0.75)),
    "NMSE": (m.NMSE(), 200, _channels, -12.0),
}


def coverage(name: str, method: str = "percentile", data_sets: int = DATA_SETS) -> float:
    """Share of data sets whose interval holds the population's value; data set i has seed and key i."""
    metric, n, simulate, truth = CASES[name]
    held = 0
    for i in range(data_sets):
        preds, labels = simulate(np.random.default_rng([i, len(name)]), n)
        (found,) = emma.bootstrap(metric, preds, labels, key=i, num_resamples=RESAMPLES, method=method).values()
        held += found.low <= truth <= found.high
    return held / data_sets


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_coverage(name: str) -> None:
    """Claim: 95 % intervals hold the truth in 92.5 to 97 % of 2,000 data sets.

    Oracle: the population's value in closed form: sigma sqrt(2/pi) degrees, the mean of the recalls, Phi(d/sqrt 2),
    Phi(-d/2), minus the signal-to-noise ratio.
    """
    assert 0.925 <= coverage(name) <= 0.97


@pytest.mark.slow
def test_p_values_of_no_difference() -> None:
    """Claim: between two submissions that are equally good, p is at most 0.05 in 3 to 7.5 % of 2,000 data sets.

    Oracle: both err by independent draws of one distribution, so the null hypothesis holds. Below 3 % the test would
    waste data, above 7.5 % it would find too much.
    """
    found = 0
    for i in range(DATA_SETS):
        rng = np.random.default_rng([i, 1])
        a, b = rng.normal(scale=10, size=(2, 200)).astype(np.float32)
        compared = emma.compare("E-LOC-AOA", a, b, np.zeros(200), key=i, num_resamples=RESAMPLES)
        found += compared["MeanAngularError"].p_value <= 0.05
    assert 0.03 <= found / DATA_SETS <= 0.075
