"""E-ID-FP: which of eight transmitters of one make sent this burst? Told from what its hardware does wrong.

**Scene.** A burst is a known 16-QAM preamble x of L = 256 samples and unit power. Each transmitter has its own

    IQ imbalance          y = mu x + nu x^*,           mu = (1 + g e^(j phi)) / 2,   nu = (1 - g e^(j phi)) / 2,
    amplifier             z = y - beta y |y|^2         (third order; Re beta > 0 compresses),
    carrier offset        z_t exp(j 2 pi eps t)        (eps in cycles per sample, with a drift from burst to burst),

with gain ratio g, phase error phi and the image rejection ratio

    IRR = |mu|^2 / |nu|^2 = (1 + 2 g cos phi + g^2) / (1 - 2 g cos phi + g^2).

The burst passes a flat channel, of which the receiver's gain control leaves only the phase. The environment is the
*receiver unit*: its reference oscillator has an offset of its own, which shifts every transmitter's eps, and it has a
little IQ imbalance of its own. A fold holds out one receiver unit.

**Real split.** The channel has an echo, and the receiver is a cheap one: its IQ imbalance is as large as a
transmitter's.

**Baselines.** *Nearest centroid* on four features: eps from the phase slope of ``r x^*`` between the halves of the
preamble; then, after derotation, a least-squares fit ``r = c_1 x + c_2 x^* + c_3 x |x|^2``, whose ratios do not
depend on the channel: the image ratio c_2 / c_1 (real and imaginary part) and the compression Re(c_3 / c_1). *Carrier
offset alone*; *constant scores*.

References: Brik, Banerjee, Gruteser and Oh, "Wireless device identification with radiometric signatures," ACM MobiCom
2008; Valkama, Renfors and Koivunen, "Advanced methods for I/Q imbalance compensation in communication receivers," IEEE
Trans. Signal Process. 49(10), 2001.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from emma_jax.demo.scene import Array, Draws, NearestCentroid, Scene, frequency_shift, noise, snr_thirds, uniform

__all__ = [
    "EMITTERS",
    "PREAMBLE",
    "SCENE",
    "Emitter",
    "Receiver",
    "carrier_offset",
    "features",
    "image_rejection_db",
    "iq_imbalance",
    "simulate",
    "transmit",
]

CYCLES_PER_SAMPLE_PER_PPM = 2.4e9 * 1e-6 / 20e6
"""One part per million of the 2.4 GHz carrier at 20 Msample/s."""


def _preamble() -> Array:
    """256 fixed 16-QAM symbols of unit power, each constellation point 16 times, in a fixed order."""
    levels = np.array([-3.0, -1.0, 1.0, 3.0]) / np.sqrt(10)
    points = (levels[:, None] + 1j * levels).ravel()
    return np.random.default_rng(16).permutation(np.repeat(points, 16))


PREAMBLE = _preamble()


@dataclass(frozen=True)
class Emitter:
    """What is wrong with one transmitter: carrier offset in ppm, IQ gain in dB and phase in degrees, amplifier beta."""

    offset_ppm: float
    gain_db: float
    phase_deg: float
    beta: complex


EMITTERS = (
    Emitter(-3.0, +0.50, +2.0, 0.03 + 0.01j),
    Emitter(-2.2, -0.40, +3.0, 0.08 - 0.02j),
    Emitter(-1.3, +0.10, -3.0, 0.05 + 0.02j),
    Emitter(-0.5, -0.60, -1.0, 0.10 + 0.00j),
    Emitter(+0.4, +0.70, -2.0, 0.02 - 0.01j),
    Emitter(+1.2, -0.10, +4.0, 0.07 + 0.01j),
    Emitter(+2.1, +0.30, +1.0, 0.09 - 0.01j),
    Emitter(+2.9, -0.30, -4.0, 0.04 + 0.00j),
)


@dataclass(frozen=True)
class Receiver:
    """One receiver unit, and the room it stands in.

    Attributes:
      snr_db: range of the SNR, dB.
      offset_ppm: offset of its reference oscillator, ppm.
      drift_ppm: standard deviation of the offset from burst to burst, ppm.
      gain_db, phase_deg: its own IQ imbalance.
      echo_db: power of an echo one sample later over the direct path, dB, or None (the real split only).
    """

    snr_db: tuple[float, float]
    offset_ppm: float
    drift_ppm: float
    gain_db: float = 0.0
    phase_deg: float = 0.0
    echo_db: float | None = None


def _mu_nu(gain_db: float, phase_deg: float) -> tuple[complex, complex]:
    """Weights of the signal and of its mirror image."""
    ratio = 10 ** (gain_db / 20) * np.exp(1j * np.deg2rad(phase_deg))
    return complex(1 + ratio) / 2, complex(1 - ratio) / 2


def iq_imbalance(signals: Array, gain_db: float, phase_deg: float) -> Array:
    """``mu x + nu x^*``: the quadrature branch has the relative gain ``gain_db`` and the phase error ``phase_deg``."""
    mu, nu = _mu_nu(gain_db, phase_deg)
    result: Array = mu * signals + nu * signals.conj()
    return result


def image_rejection_db(gain_db: float, phase_deg: float) -> float:
    """Power of the signal over that of its mirror image, ``|mu|^2 / |nu|^2``, dB; inf without imbalance."""
    mu, nu = _mu_nu(gain_db, phase_deg)
    return float("inf") if nu == 0 else float(20 * np.log10(abs(mu) / abs(nu)))


def transmit(emitter: Emitter) -> Array:
    """The preamble as ``emitter`` sends it, before carrier offset: ``[256]``."""
    y = iq_imbalance(PREAMBLE, emitter.gain_db, emitter.phase_deg)
    z: Array = y - emitter.beta * y * np.abs(y) ** 2
    return z


def simulate(rng: np.random.Generator, receiver: Receiver, n: int) -> Draws:
    """``n`` bursts: signals ``[n, 256]``, labels 0 .. 7 in equal shares (to one)."""
    label = rng.permutation(np.arange(n) % len(EMITTERS))
    snr_db = uniform(rng, receiver.snr_db, n)
    offset_ppm = np.array([e.offset_ppm for e in EMITTERS])[label]
    offset_ppm = offset_ppm + receiver.offset_ppm + receiver.drift_ppm * rng.standard_normal(n)
    signals = np.stack([transmit(e) for e in EMITTERS])[label]
    if receiver.echo_db is not None:
        echo = 10 ** (receiver.echo_db / 20) * np.exp(2j * np.pi * rng.random((n, 1)))
        signals = signals + echo * np.roll(signals, 1, axis=1)
    signals = signals * np.exp(2j * np.pi * rng.random((n, 1)))
    signals = frequency_shift(signals, CYCLES_PER_SAMPLE_PER_PPM * offset_ppm)
    signals = iq_imbalance(signals, receiver.gain_db, receiver.phase_deg)
    return Draws(signals + noise(rng, signals.shape, snr_db), label, snr_thirds(snr_db, receiver.snr_db))


def carrier_offset(signals: Array) -> Array:
    """Offset in cycles per sample ``[N]``, unambiguous within about +-1/256.

    The phase that ``r x^*`` gains from one half of the preamble to the other, over the time between the centres of the
    two halves (weighted by ``|x|^2``, as the sums are).
    """
    product, energy = signals * PREAMBLE.conj(), np.abs(PREAMBLE) ** 2
    time, half = np.arange(len(PREAMBLE)), len(PREAMBLE) // 2
    elapsed = np.average(time[half:], weights=energy[half:]) - np.average(time[:half], weights=energy[:half])
    turn = np.angle(product[:, half:].sum(axis=1) * product[:, :half].sum(axis=1).conj())
    result: Array = turn / (2 * np.pi * elapsed)
    return result


def features(signals: Array) -> Array:
    """``[N, 4]``: offset (ppm), real and imaginary part of the image ratio c_2 / c_1, and Re(c_3 / c_1)."""
    offset = carrier_offset(signals)
    basis = np.stack([PREAMBLE, PREAMBLE.conj(), PREAMBLE * np.abs(PREAMBLE) ** 2], axis=1)
    c1, c2, c3 = np.linalg.lstsq(basis, frequency_shift(signals, -offset).T, rcond=None)[0]
    image, compression = c2 / c1, c3 / c1
    return np.stack([offset / CYCLES_PER_SAMPLE_PER_PPM, image.real, image.imag, compression.real], axis=1)


def _strong(signals: Array, training: Draws) -> Array:
    classifier = NearestCentroid.fit(features(training.signals), training.labels, len(EMITTERS))
    return classifier.scores(features(signals))


def _middle(signals: Array, training: Draws) -> Array:
    offset, known = carrier_offset(signals)[:, None], carrier_offset(training.signals)[:, None]
    return NearestCentroid.fit(known, training.labels, len(EMITTERS)).scores(offset)


def _floor(signals: Array, training: Draws) -> Array:
    return np.zeros((len(signals), len(EMITTERS)))


SCENE = Scene(
    task="E-ID-FP",
    axis="unit",
    environments={
        "rx-1": Receiver(snr_db=(12, 22), offset_ppm=-0.8, drift_ppm=0.5, gain_db=0.05, phase_deg=-0.3),
        "rx-2": Receiver(snr_db=(10, 20), offset_ppm=-0.3, drift_ppm=0.6, gain_db=-0.05, phase_deg=0.2),
        "rx-3": Receiver(snr_db=(10, 20), offset_ppm=0.4, drift_ppm=0.5, gain_db=0.10, phase_deg=0.3),
        "rx-4": Receiver(snr_db=(8, 18), offset_ppm=0.9, drift_ppm=0.7, gain_db=-0.10, phase_deg=-0.2),
    },
    real=Receiver(snr_db=(10, 20), offset_ppm=0.5, drift_ppm=0.7, gain_db=0.5, phase_deg=2.0, echo_db=-12.0),
    simulate=simulate,
    strong=_strong,
    middle=_middle,
    floor=_floor,
    num_classes=len(EMITTERS),
    anchor={
        "m_min": 1 / len(EMITTERS),
        "m_max": 1.0,
        "basis": "m_min: chance with 8 equally frequent transmitters. m_max: every sample right",
    },
)
