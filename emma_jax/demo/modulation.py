"""E-ID-AMC: which of six linear modulations is this? Told from the shape of the constellation.

**Scene.** T = 512 symbols of unit power, sampled at the symbol rate by a calibrated receiver in units of its noise
floor,

    y_t = 10^(snr_db / 20) x_t exp(j (2 pi f t + phi)) + w_t,        w_t ~ CN(0, 1),

with an unknown phase phi and a small carrier offset f left over from synchronization. SNR and f differ per environment.

**Real split.** Inter-symbol interference from an echo, and oscillator phase noise (a random walk).

**Baselines.** The *nearest theoretical cumulants*; *one cumulant*, C42; *constant scores*. With the moments
``M_pq = E[y^(p-q) (y^*)^q]``,

    C20 = M20,      C21 = M21,      C40 = M40 - 3 M20^2,      C42 = M42 - |M20|^2 - 2 M21^2,

of which Gaussian noise changes only C21. Divided by powers of ``C21 - 1`` (the signal's power, as noise has power 1)
they are those of the constellation, up to a rotation that moduli remove. Nothing is learned here.

References: Swami and Sadler, "Hierarchical digital modulation classification using cumulants," IEEE Trans. Commun.
48(3), 2000.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from emma_jax.demo.scene import Array, Draws, Scene, complex_normal, frequency_shift, snr_thirds, uniform

__all__ = ["CONSTELLATIONS", "SCENE", "THEORY", "Link", "cumulants", "simulate"]

NUM_SYMBOLS = 512


def _psk(order: int) -> Array:
    points: Array = np.exp(2j * np.pi * np.arange(order) / order)
    return points


def _qam(side: int) -> Array:
    """Square QAM with ``side`` levels per branch, unit power."""
    levels = np.arange(1 - side, side, 2)
    points: Array = (levels[:, None] + 1j * levels).ravel()
    points /= np.sqrt((np.abs(points) ** 2).mean())
    return points


CONSTELLATIONS: dict[str, Array] = {
    "BPSK": _psk(2),
    "4-PAM": np.array([-3, -1, 1, 3]) / np.sqrt(5) + 0j,
    "QPSK": _psk(4),
    "8-PSK": _psk(8),
    "16-QAM": _qam(4),
    "64-QAM": _qam(8),
}
"""The classes in order, each of unit power."""


@dataclass(frozen=True)
class Link:
    """One radio link.

    Attributes:
      snr_db: range of the SNR per symbol, dB.
      offset: largest residual carrier offset, cycles per symbol.
      echo_db: power of an echo one symbol later over the direct path, dB, or None (the real split only).
      phase_noise_deg: standard deviation of the phase increment per symbol, degrees (the real split only).
    """

    snr_db: tuple[float, float]
    offset: float
    echo_db: float | None = None
    phase_noise_deg: float = 0.0


def simulate(rng: np.random.Generator, link: Link, n: int) -> Draws:
    """``n`` samples: signals ``[n, 512]``, labels 0 .. 5 in the order of `CONSTELLATIONS`, in equal shares (to one)."""
    label = rng.permutation(np.arange(n) % len(CONSTELLATIONS))
    snr_db = uniform(rng, link.snr_db, n)
    signals = np.empty((n, NUM_SYMBOLS), complex)
    for c, points in enumerate(CONSTELLATIONS.values()):
        signals[label == c] = rng.choice(points, (int((label == c).sum()), NUM_SYMBOLS))
    if link.echo_db is not None:
        echo = 10 ** (link.echo_db / 20) * np.exp(2j * np.pi * rng.random((n, 1)))
        signals = signals + echo * np.roll(signals, 1, axis=1)
    phase_deg = 360 * rng.random((n, 1)) + link.phase_noise_deg * rng.standard_normal(signals.shape).cumsum(axis=1)
    signals = frequency_shift(signals * np.exp(1j * np.deg2rad(phase_deg)), rng.uniform(-1, 1, n) * link.offset)
    signals = signals * 10 ** (snr_db / 20)[:, None] + complex_normal(rng, signals.shape)
    return Draws(signals, label, snr_thirds(snr_db, link.snr_db))


def cumulants(signals: Array, noise_power: float = 0.0) -> Array:
    """Normalized ``|C20|, |C40|, C42`` of ``signals`` ``[N, T]``: ``[N, 3]``, free of rotation, scale and noise."""
    m20 = (signals**2).mean(axis=1)
    m21 = (np.abs(signals) ** 2).mean(axis=1)
    m40 = (signals**4).mean(axis=1)
    m42 = (np.abs(signals) ** 4).mean(axis=1)
    power = np.maximum(m21 - noise_power, 1e-12)
    c40 = m40 - 3 * m20**2
    c42 = m42 - np.abs(m20) ** 2 - 2 * m21**2
    return np.stack([np.abs(m20) / power, np.abs(c40) / power**2, c42 / power**2], axis=1)


THEORY = np.concatenate([cumulants(points[None]) for points in CONSTELLATIONS.values()])
"""``[6, 3]``: the cumulants of the constellations themselves, every point once."""


def _nearest(measured: Array, theory: Array) -> Array:
    """Negative squared distances ``[N, C]``."""
    result: Array = -((measured[:, None, :] - theory) ** 2).sum(axis=2)
    return result


def _strong(signals: Array, training: Draws) -> Array:
    return _nearest(cumulants(signals, noise_power=1.0), THEORY)


def _middle(signals: Array, training: Draws) -> Array:
    return _nearest(cumulants(signals, noise_power=1.0)[:, 2:], THEORY[:, 2:])


def _floor(signals: Array, training: Draws) -> Array:
    return np.zeros((len(signals), len(CONSTELLATIONS)))


SCENE = Scene(
    task="E-ID-AMC",
    axis="environment",
    environments={
        "cable": Link(snr_db=(18, 28), offset=0.0),
        "indoor": Link(snr_db=(10, 20), offset=2e-5),
        "rooftop": Link(snr_db=(8, 18), offset=5e-5),
        "vehicle": Link(snr_db=(8, 16), offset=1e-4),
    },
    real=Link(snr_db=(10, 20), offset=5e-5, echo_db=-12.0, phase_noise_deg=0.7),
    simulate=simulate,
    strong=_strong,
    middle=_middle,
    floor=_floor,
    num_classes=len(CONSTELLATIONS),
    anchor=None,  # the continuity column: reported, never normalized or averaged
)
