"""What the five scenes of the demo share: signals in noise, a scene's description, and the one classifier they fit.

Conventions, here and in every scene:

* Signals are complex baseband, complex128. What is received is either of unit mean power (array: the direct path), so
  that a signal-to-noise ratio (SNR) in dB fixes the noise variance, ``10^(-snr_db / 10)``, or in units of the noise
  floor, where noise has variance 1 and the signal has power ``10^(snr_db / 10)``.
* An *environment* is one set of physical parameters. It is what a fold of the benchmark holds out.
* A *baseline* sees the signals of the fold it predicts, and `Draws` (signals and labels) of the *other* environments.
  It never sees the labels it is scored on, nor any draw of that environment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Array",
    "Baseline",
    "Draws",
    "NearestCentroid",
    "Scene",
    "complex_normal",
    "concatenate",
    "frequency_shift",
    "noise",
    "snr_thirds",
    "uniform",
]

Array = NDArray[Any]


@dataclass(frozen=True)
class Draws:
    """Samples drawn from one environment.

    Attributes:
      signals: complex128 ``[N, ...]``, what a model may look at.
      labels: ``[N]``, float degrees or int classes: what it has to find.
      groups: ``[N]`` names: in which third of the environment's SNR range a sample lies, for a breakdown of its score.
    """

    signals: Array
    labels: Array
    groups: Array


Baseline = Callable[[Array, Draws], Array]
"""``baseline(signals, training) -> preds``: predictions in the shape that the task takes."""


@dataclass(frozen=True)
class Scene:
    """One task of the demo: its physics, its environments, and three ways to solve it.

    Attributes:
      task: the EMMA task id.
      axis: what a fold holds out: "environment", or "unit" where the environments are receiver units.
      environments: fold name -> parameters of the synthetic environments.
      real: parameters of the "real" split: the same physics with impairments that no synthetic environment has.
      simulate: ``simulate(rng, parameters, n) -> Draws``.
      strong, middle, floor: the three baselines; ``floor`` never looks at a signal.
      num_classes: number of classes, or None for angles.
      anchor: ``m_min``, ``m_max`` and their ``basis`` for the release, in the metric's unit; None for a task that is
        reported without normalization.
    """

    task: str
    axis: str
    environments: Mapping[str, Any]
    real: Any
    simulate: Callable[[np.random.Generator, Any, int], Draws]
    strong: Baseline
    middle: Baseline
    floor: Baseline
    num_classes: int | None
    anchor: Mapping[str, Any] | None


def complex_normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Circular complex Gaussian samples of unit variance: ``E|z|^2 = 1``, ``E z^2 = 0``."""
    result: Array = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) * np.sqrt(0.5)
    return result


def noise(rng: np.random.Generator, shape: tuple[int, ...], snr_db: Array) -> Array:
    """White noise of variance ``10^(-snr_db / 10)``; ``snr_db`` is ``[N]``, the first axis of ``shape``."""
    sigma = 10.0 ** (-np.asarray(snr_db) / 20)
    result: Array = sigma.reshape(-1, *(1,) * (len(shape) - 1)) * complex_normal(rng, shape)
    return result


def uniform(rng: np.random.Generator, interval: tuple[float, float], n: int) -> Array:
    """``n`` values uniform on ``interval``."""
    return rng.uniform(interval[0], interval[1], n)


def snr_thirds(snr_db: Array, interval: tuple[float, float]) -> Array:
    """Which third of ``interval`` (dB) each value lies in, by name: ``[N]`` strings."""
    low, high = interval
    third = np.clip(np.floor(3 * (snr_db - low) / (high - low)), 0, 2).astype(int)
    names: Array = np.array(["SNR low", "SNR middle", "SNR high"])
    return names.take(third)


def frequency_shift(signals: Array, cycles_per_sample: Array) -> Array:
    """Carrier frequency offset: ``x[t] exp(j 2 pi f t)``, with ``f`` ``[N]`` in cycles per sample."""
    time = np.arange(signals.shape[-1])
    result: Array = signals * np.exp(2j * np.pi * cycles_per_sample[:, None] * time)
    return result


def concatenate(draws: list[Draws]) -> Draws:
    """The draws of several environments as one."""
    return Draws(
        np.concatenate([d.signals for d in draws]),
        np.concatenate([d.labels for d in draws]),
        np.concatenate([d.groups for d in draws]),
    )


@dataclass(frozen=True)
class NearestCentroid:
    """The nearest class mean, with every feature scaled by its spread within the classes.

    With ``d2[n, c] = sum_d ((x[n, d] - mean[c, d]) / spread[d])^2``, the score of class c is its margin over the
    nearest other class, ``min over c' != c of d2[n, c'] - d2[n, c]``: positive where c is the nearest. (``-d2`` alone
    has the same highest class, but ranks a very clear sample, far beyond its class mean, below a doubtful one.)

    A feature that varies from environment to environment has a wide spread over the training environments, and so
    counts for little: that is all the robustness here.

    Attributes:
      means: ``[C, D]`` class means.
      spread: ``[D]`` pooled standard deviation within the classes.
    """

    means: Array
    spread: Array

    @classmethod
    def fit(cls, features: Array, labels: Array, num_classes: int) -> NearestCentroid:
        """Class means and pooled spread of ``features`` ``[N, D]``; every class has to occur in ``labels`` ``[N]``."""
        means = np.stack([features[labels == c].mean(axis=0) for c in range(num_classes)])
        return cls(means, np.sqrt(((features - means[labels]) ** 2).mean(axis=0)))

    def scores(self, features: Array) -> Array:
        """Margins ``[N, C]`` of ``features`` ``[N, D]``, the highest for the nearest class."""
        difference = (features[:, None, :] - self.means) / self.spread
        distance = np.einsum("ncd,ncd->nc", difference, difference)
        nearest, second = np.partition(distance, 1, axis=1)[:, :2].T
        other = np.where(distance == nearest[:, None], second[:, None], nearest[:, None])
        result: Array = other - distance
        return result
