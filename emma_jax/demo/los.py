"""E-LOC-LOS: is there a line of sight (LoS, class 1) or not (NLoS, class 0)? Told from the fading of a moving receiver.

**Scene.** T channel samples along a track. A line of sight adds a steady wave to the diffuse field of the reflections:

    h_t = sqrt(K / (K+1)) exp(j (2 pi f t + phi)) + sqrt(1 / (K+1)) d_t,        d_t = rho d_(t-1) + sqrt(1 - rho^2) w_t,

with w_t ~ CN(0, 1), so that |h_t| is Rician with the factor K (power of the steady wave over that of the diffuse
field), and Rayleigh for K = 0, which is NLoS. The correlation rho says how slowly the receiver moves: diffuse power
is correlated as rho^2 per sample, so a track holds only about T (1 - rho^2) / (1 + rho^2) independent values of it.
K, rho, the SNR and the share of LoS differ per environment.

**Real split.** Shadowing: the mean power drifts along the track by some dB, which spreads the envelope and looks like a
smaller K.

**Baselines.** The *K factor by the method of moments*, ``g = |h|^2``:

    gamma = var(g) / E[g]^2 = (2 K + 1) / (K + 1)^2      =>      K = sqrt(1 - gamma) / (1 - sqrt(1 - gamma));

the *peak factor* ``max g / E[g]`` alone; the *majority class* of training.

References: Greenstein, Michelson and Erceg, "Moment-method estimation of the Ricean K-factor," IEEE Commun. Lett. 3(6),
1999; Tepedelenlioglu, Abdi and Giannakis, "The Ricean K factor: estimation and performance analysis," IEEE Trans.
Wireless Commun. 2(4), 2003.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from emma_jax.demo.scene import Array, Draws, NearestCentroid, Scene, complex_normal, noise, snr_thirds, uniform

__all__ = ["SCENE", "Track", "k_factor", "rician_fading", "simulate"]

NUM_SAMPLES = 128


@dataclass(frozen=True)
class Track:
    """One kind of surroundings, and the receiver that moves in it.

    Attributes:
      snr_db: range of the mean SNR, dB.
      k_factor_db: range of the Rician factor where there is a line of sight, dB.
      correlation: rho between consecutive diffuse samples.
      los_share: probability of a line of sight.
      shadowing_db: standard deviation of the slow power drift along the track, dB (the real split only).
    """

    snr_db: tuple[float, float]
    k_factor_db: tuple[float, float]
    correlation: float
    los_share: float
    shadowing_db: float = 0.0


def rician_fading(rng: np.random.Generator, k_factor: Array, correlation: float, num_samples: int) -> Array:
    """Fading ``[N, num_samples]`` of unit mean power with the linear factors ``k_factor`` ``[N]`` (0 is Rayleigh)."""
    n = len(k_factor)
    innovation = complex_normal(rng, (num_samples, n))
    diffuse = np.empty_like(innovation)
    diffuse[0] = innovation[0]
    for t in range(1, num_samples):
        diffuse[t] = correlation * diffuse[t - 1] + np.sqrt(1 - correlation**2) * innovation[t]
    doppler, phase = rng.uniform(-0.5, 0.5, n), rng.random(n)
    steady = np.exp(2j * np.pi * (doppler * np.arange(num_samples)[:, None] + phase))
    result: Array = (np.sqrt(k_factor / (k_factor + 1)) * steady + np.sqrt(1 / (k_factor + 1)) * diffuse).T
    return result


def simulate(rng: np.random.Generator, track: Track, n: int) -> Draws:
    """``n`` samples: signals ``[n, 128]``, labels 1 for LoS and 0 for NLoS."""
    label = (rng.random(n) < track.los_share).astype(np.int64)
    snr_db = uniform(rng, track.snr_db, n)
    k_factor = np.where(label == 1, 10 ** (uniform(rng, track.k_factor_db, n) / 10), 0.0)
    signals = rician_fading(rng, k_factor, track.correlation, NUM_SAMPLES)
    signals = signals * _shadowing(rng, track.shadowing_db, n)
    return Draws(signals + noise(rng, signals.shape, snr_db), label, snr_thirds(snr_db, track.snr_db))


def _shadowing(rng: np.random.Generator, deviation_db: float, n: int) -> Array:
    """Amplitude gains ``[n, 128]`` that swing once along the track, with random phase and size."""
    turn = np.arange(NUM_SAMPLES) / NUM_SAMPLES + rng.random((n, 1))
    swing_db = deviation_db * rng.standard_normal((n, 1)) * np.sqrt(2) * np.cos(2 * np.pi * turn)
    result: Array = 10 ** (swing_db / 20)
    return result


def k_factor(power: Array) -> Array:
    """Rician factor (linear, ``[N]``) of ``power`` samples ``[N, T]`` by the method of moments; 0 where ``gamma >= 1``.

    White noise counts as diffuse power, so at a finite SNR this is the factor of the steady wave over all the rest.
    """
    gamma = power.var(axis=1) / power.mean(axis=1) ** 2
    root = np.sqrt(np.clip(1 - gamma, 0, 1 - 1e-12))
    result: Array = root / (1 - root)
    return result


def _k_feature(signals: Array) -> Array:
    """The share of the steady wave in the power, ``K / (K + 1)`` ``[N, 1]``: K itself has no finite spread."""
    k = k_factor(np.abs(signals) ** 2)
    result: Array = (k / (k + 1))[:, None]
    return result


def _peak_feature(signals: Array) -> Array:
    """The peak factor in dB, ``[N, 1]``."""
    power = np.abs(signals) ** 2
    result: Array = 10 * np.log10(power.max(axis=1, keepdims=True) / power.mean(axis=1, keepdims=True))
    return result


def _strong(signals: Array, training: Draws) -> Array:
    return NearestCentroid.fit(_k_feature(training.signals), training.labels, 2).scores(_k_feature(signals))


def _middle(signals: Array, training: Draws) -> Array:
    return NearestCentroid.fit(_peak_feature(training.signals), training.labels, 2).scores(_peak_feature(signals))


def _floor(signals: Array, training: Draws) -> Array:
    share = np.bincount(training.labels, minlength=2) / len(training.labels)
    return np.tile(share, (len(signals), 1))


SCENE = Scene(
    task="E-LOC-LOS",
    axis="environment",
    environments={
        "campus": Track(snr_db=(10, 20), k_factor_db=(2, 9), correlation=0.7, los_share=0.6),
        "factory": Track(snr_db=(5, 15), k_factor_db=(0, 6), correlation=0.5, los_share=0.3),
        "mall": Track(snr_db=(8, 18), k_factor_db=(1, 8), correlation=0.6, los_share=0.4),
        "urban": Track(snr_db=(5, 15), k_factor_db=(2, 8), correlation=0.9, los_share=0.25),
    },
    real=Track(snr_db=(5, 15), k_factor_db=(1, 8), correlation=0.8, los_share=0.35, shadowing_db=3.0),
    simulate=simulate,
    strong=_strong,
    middle=_middle,
    floor=_floor,
    num_classes=2,
    anchor={"m_min": 0.5, "m_max": 1.0, "basis": "m_min: any constant answer. m_max: every sample right"},
)
