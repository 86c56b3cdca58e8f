"""E-ID-DRONE: noise only (class 0), or the OFDM downlink of drone A (1) or of drone B (2)?

**Scene.** A calibrated receiver records T samples in units of its nominal noise floor. A downlink s sends OFDM
symbols: an inverse FFT of F QPSK subcarriers (the outer quarter stays empty), preceded by a copy of its last P
samples, the cyclic prefix. A has F = 64, P = 16 and B has F = 128, P = 32: same band, same power, another rhythm. The
recording starts anywhere in a symbol, goes through an exponential multipath channel h, and is off in carrier
frequency:

    r_t = u (10^(snr_db / 20) (h * s)_t exp(j 2 pi f t) + w_t),        w_t ~ CN(0, 1),

where the gain error u, normal in dB, is what makes an energy threshold unreliable (noise uncertainty).

**Real split.** A weak carrier (continuous wave) stands in the band. It looks the same at every lag, so it raises the
cyclic-prefix statistics of all classes.

**Baselines.** *Cyclic-prefix correlation* at the lags of A and B, and energy, classified by nearest centroid, where

    c_F(d) = | sum_t r_(t+F) r_t^* | / (energy in the same windows),    t in P-sample windows from d, d + (F+P), ...,

and the maximum over d is the statistic; the *energy detector* alone; *constant scores*.

References: van de Beek, Sandell and Borjesson, "ML estimation of time and frequency offset in OFDM systems," IEEE
Trans. Signal Process. 45(7), 1997; Urkowitz, "Energy detection of unknown deterministic signals," Proc. IEEE 55(4),
1967; Tandra and Sahai, "SNR walls for signal detection," IEEE J. Sel. Topics Signal Process. 2(1), 2008.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from emma_jax.demo.scene import (
    Array,
    Draws,
    NearestCentroid,
    Scene,
    complex_normal,
    frequency_shift,
    snr_thirds,
    uniform,
)

__all__ = ["DOWNLINKS", "SCENE", "Ofdm", "Sky", "cyclic_prefix_statistic", "energy_db", "ofdm_signal", "simulate"]

NUM_SAMPLES = 1024


@dataclass(frozen=True)
class Ofdm:
    """OFDM numerology: FFT size and cyclic-prefix length, samples."""

    fft_size: int
    prefix: int

    @property
    def symbol(self) -> int:
        """Length of one symbol with its prefix, samples."""
        return self.fft_size + self.prefix


DOWNLINKS = (Ofdm(64, 16), Ofdm(128, 32))


@dataclass(frozen=True)
class Sky:
    """Where the receiver listens.

    Attributes:
      snr_db: range of the SNR over the whole band where a drone is present, dB.
      num_taps: taps of the multipath channel, 1 for none.
      tap_decay: power ratio of consecutive taps.
      gain_error_db: standard deviation of the receiver's gain calibration, dB.
      carrier_db: power of the interfering carrier over the noise, dB, or None (the real split only).
    """

    snr_db: tuple[float, float]
    num_taps: int
    tap_decay: float
    gain_error_db: float
    carrier_db: float | None = None


def ofdm_signal(rng: np.random.Generator, ofdm: Ofdm, n: int, num_samples: int) -> Array:
    """``n`` stretches ``[n, num_samples]`` of an OFDM signal of unit mean power, each starting anywhere in a symbol."""
    symbols = -(-num_samples // ofdm.symbol) + 1
    active = np.abs(np.fft.fftfreq(ofdm.fft_size)) < 0.375
    spectrum = rng.choice([1, 1j, -1, -1j], (n, symbols, ofdm.fft_size)) * active
    body = np.fft.ifft(spectrum, axis=2) * ofdm.fft_size / np.sqrt(active.sum())
    stream = np.concatenate([body[:, :, -ofdm.prefix :], body], axis=2).reshape(n, -1)
    start = rng.integers(0, ofdm.symbol, n)
    return np.take_along_axis(stream, start[:, None] + np.arange(num_samples), axis=1)


def simulate(rng: np.random.Generator, sky: Sky, n: int) -> Draws:
    """``n`` samples: signals ``[n, 1024]``, labels 0 (40 %), 1 and 2 (30 % each)."""
    label = rng.choice(3, n, p=[0.4, 0.3, 0.3])
    snr_db = uniform(rng, sky.snr_db, n)
    signals = np.zeros((n, NUM_SAMPLES), complex)
    for c, ofdm in enumerate(DOWNLINKS, start=1):
        present = label == c
        clean = ofdm_signal(rng, ofdm, int(present.sum()), NUM_SAMPLES)
        signals[present] = _multipath(rng, clean, sky.num_taps, sky.tap_decay)
    signals = frequency_shift(signals, rng.uniform(-0.01, 0.01, n)) * 10 ** (snr_db / 20)[:, None]
    signals += complex_normal(rng, signals.shape)
    if sky.carrier_db is not None:
        carrier = np.exp(2j * np.pi * rng.random((n, 1))) * np.ones(NUM_SAMPLES)
        signals += 10 ** (sky.carrier_db / 20) * frequency_shift(carrier, rng.uniform(-0.3, 0.3, n))
    gain_db = sky.gain_error_db * rng.standard_normal(n)
    return Draws(signals * 10 ** (gain_db / 20)[:, None], label, snr_thirds(snr_db, sky.snr_db))


def _multipath(rng: np.random.Generator, signals: Array, num_taps: int, decay: float) -> Array:
    """Circular convolution with Rayleigh taps of powers ``decay^i``, scaled back to unit mean power per sample."""
    taps = complex_normal(rng, (len(signals), num_taps)) * decay ** (np.arange(num_taps) / 2)
    received = np.fft.ifft(np.fft.fft(signals) * np.fft.fft(taps, signals.shape[1]))
    result: Array = received / np.sqrt((np.abs(received) ** 2).mean(axis=1, keepdims=True))
    return result


def energy_db(signals: Array) -> Array:
    """Mean power over the nominal noise floor, dB ``[N]``."""
    result: Array = 10 * np.log10((np.abs(signals) ** 2).mean(axis=1))
    return result


def cyclic_prefix_statistic(signals: Array, ofdm: Ofdm) -> Array:
    """Normalized correlation at the best symbol start, ``[N]`` in [0, 1].

    It tends to ``SNR / (SNR + 1)`` for a long stretch of that OFDM signal in noise.
    """
    first, second = signals[:, : -ofdm.fft_size], signals[:, ofdm.fft_size :]
    product = _windows(second * first.conj(), ofdm)
    energy = _windows((np.abs(first) ** 2 + np.abs(second) ** 2) / 2, ofdm)
    result: Array = (np.abs(product) / energy).max(axis=1)
    return result


def _windows(values: Array, ofdm: Ofdm) -> Array:
    """Sums of ``values`` ``[N, T]`` over the prefix windows of all symbols, by the symbol's start ``[N, symbol]``."""
    periods = values.shape[1] // ofdm.symbol
    folded = values[:, : periods * ofdm.symbol].reshape(len(values), periods, ofdm.symbol).sum(axis=1)
    window = (np.arange(ofdm.symbol)[:, None] + np.arange(ofdm.prefix)) % ofdm.symbol
    result: Array = folded[:, window].sum(axis=2)
    return result


def _features(signals: Array) -> Array:
    statistics = [cyclic_prefix_statistic(signals, ofdm) for ofdm in DOWNLINKS]
    return np.stack([energy_db(signals), *statistics], axis=1)


def _strong(signals: Array, training: Draws) -> Array:
    return NearestCentroid.fit(_features(training.signals), training.labels, 3).scores(_features(signals))


def _middle(signals: Array, training: Draws) -> Array:
    energy, known = energy_db(signals)[:, None], energy_db(training.signals)[:, None]
    return NearestCentroid.fit(known, training.labels, 3).scores(energy)


def _floor(signals: Array, training: Draws) -> Array:
    return np.zeros((len(signals), 3))


SCENE = Scene(
    task="E-ID-DRONE",
    axis="environment",
    environments={
        "airfield": Sky(snr_db=(-8, 0), num_taps=1, tap_decay=1.0, gain_error_db=0.3),
        "harbour": Sky(snr_db=(-8, -1), num_taps=4, tap_decay=0.6, gain_error_db=0.8),
        "stadium": Sky(snr_db=(-9, -2), num_taps=6, tap_decay=0.7, gain_error_db=1.5),
        "suburb": Sky(snr_db=(-9, -1), num_taps=3, tap_decay=0.5, gain_error_db=1.0),
    },
    real=Sky(snr_db=(-9, -1), num_taps=6, tap_decay=0.7, gain_error_db=1.0, carrier_db=-9.0),
    simulate=simulate,
    strong=_strong,
    middle=_middle,
    floor=_floor,
    num_classes=3,
    anchor={"m_min": 0.5, "m_max": 1.0, "basis": "m_min: any constant score. m_max: perfect ranking"},
)
