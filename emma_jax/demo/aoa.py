"""E-LOC-AOA: the angle of arrival of the direct path at a small antenna array, in multipath.

**Scene.** A uniform linear array of M = 8 elements, half a wavelength apart, receives a source in the sector of +-60
degrees from broadside. Beside the direct path come a few reflections, later and from elsewhere. With steering vectors

    a_m(theta) = exp(j pi m sin theta),                                                     m = 0 .. M-1,

the channel at baseband frequency f is ``H(f) = sum_l g_l a(theta_l) exp(-j 2 pi f tau_l)`` (l = 0 is the direct path,
with g_0 = 1 and tau_0 = 0), and a snapshot is a sum over Q subcarriers of a flat band, with symbols c_q ~ CN(0, 1):

    x_k = Q^(-1/2) sum_q H(f_q) c_(q,k) + n_k.

Two paths are thus coherent when ``B |tau_l - tau_l'|`` is well below 1, uncorrelated when it is well above: the delay
spread of an environment decides how hard it is. Delays are exponential with mean ``delay_spread_ns``, powers fall as
``exp(-tau / delay_spread)``, angles scatter around the direct path as a Laplace law of standard deviation
``angle_spread_deg``, and the reflections together have ``k_factor_db`` less power than the direct path.

**Real split.** The array is not the one in the textbook: gain and phase errors per element, mutual coupling
``c^|i-j|``, and elements that are not where they should be.

**Baselines.** *MUSIC* with forward-backward averaging and spatial smoothing; the *Bartlett* (delay-and-sum) beamformer;
the *circular mean* of the training angles. On a uniform sector of +-60 degrees the last one costs 30 degrees.

References: Schmidt, "Multiple emitter location and signal parameter estimation," IEEE Trans. Antennas Propag. 34(3),
1986 (MUSIC); Shan, Wax and Kailath, "On spatial smoothing for direction-of-arrival estimation of coherent signals,"
IEEE Trans. ASSP 33(4), 1985; Pillai and Kwon, "Forward/backward spatial smoothing techniques for coherent signal
identification," IEEE Trans. ASSP 37(1), 1989; Stoica and Nehorai, "MUSIC, maximum likelihood, and Cramer-Rao bound,"
IEEE Trans. ASSP 37(5), 1989.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from emma_jax.demo.scene import Array, Draws, Scene, complex_normal, noise, snr_thirds, uniform

__all__ = ["SCENE", "Site", "bartlett", "circular_mean", "music", "simulate", "steering"]

NUM_ELEMENTS = 8
SECTOR_DEG = 60.0
BANDWIDTH_HZ = 20e6
NUM_SUBCARRIERS = 32
GRID_DEG = np.linspace(-SECTOR_DEG, SECTOR_DEG, 241)


@dataclass(frozen=True)
class Site:
    """Where the array stands, and how good it is.

    Attributes:
      snr_db: range of the direct path's SNR per element, dB.
      k_factor_db: power of the direct path over that of all reflections, dB.
      delay_spread_ns: mean excess delay of the reflections, ns.
      angle_spread_deg: standard deviation of their angles around the direct path, degrees.
      num_reflections: how many there are.
      num_snapshots: snapshots per sample.
      gain_error_db, phase_error_deg: standard deviations of the element errors (the real split only, as the next two).
      coupling: mutual coupling between neighbours, linear.
      position_error: standard deviation of the element positions along the array, wavelengths.
    """

    snr_db: tuple[float, float]
    k_factor_db: float
    delay_spread_ns: float
    angle_spread_deg: float
    num_reflections: int = 2
    num_snapshots: int = 64
    gain_error_db: float = 0.0
    phase_error_deg: float = 0.0
    coupling: float = 0.0
    position_error: float = 0.0


def steering(angle_deg: Array, position: Array | None = None) -> Array:
    """Steering vectors ``exp(j pi p_m sin theta)``.

    Args:
      angle_deg: ``[...]`` degrees from broadside.
      position: ``[..., M]`` or ``[M]`` element positions in half wavelengths; 0 .. 7 by default.

    Returns:
      complex128 ``[..., M]``.
    """
    position = np.arange(NUM_ELEMENTS) if position is None else position
    return np.exp(1j * np.pi * position * np.sin(np.deg2rad(angle_deg))[..., None])


def simulate(rng: np.random.Generator, site: Site, n: int) -> Draws:
    """``n`` samples: signals ``[n, 8, num_snapshots]``, labels in degrees, uniform on the sector."""
    rays = site.num_reflections
    angle = rng.uniform(-SECTOR_DEG, SECTOR_DEG, n)
    snr_db = uniform(rng, site.snr_db, n)

    spread_s = site.delay_spread_ns * 1e-9
    delay = rng.exponential(spread_s, (n, rays))
    power = np.exp(-delay / spread_s)
    power *= 10 ** (-site.k_factor_db / 10) / power.sum(axis=1, keepdims=True)
    gain = np.sqrt(power) * np.exp(2j * np.pi * rng.random((n, rays)))
    offset = rng.laplace(0.0, site.angle_spread_deg / np.sqrt(2), (n, rays))

    delay = np.concatenate([np.zeros((n, 1)), delay], axis=1)
    gain = np.concatenate([np.ones((n, 1)), gain], axis=1)
    angles = np.concatenate([angle[:, None], angle[:, None] + offset], axis=1)

    response = _array_response(rng, site, angles)
    frequency = (np.arange(NUM_SUBCARRIERS) / NUM_SUBCARRIERS - 0.5) * BANDWIDTH_HZ
    rotation = np.exp(-2j * np.pi * delay[:, :, None] * frequency)
    channel = np.einsum("nl,nlm,nlq->nmq", gain, response, rotation)
    symbols = complex_normal(rng, (n, NUM_SUBCARRIERS, site.num_snapshots))
    signals = channel @ symbols / np.sqrt(NUM_SUBCARRIERS)
    return Draws(signals + noise(rng, signals.shape, snr_db), angle, snr_thirds(snr_db, site.snr_db))


def _array_response(rng: np.random.Generator, site: Site, angle_deg: Array) -> Array:
    """Response ``[N, L, M]`` of each sample's array to ``angle_deg`` ``[N, L]``: steering vectors where it is ideal."""
    n = len(angle_deg)
    position = np.arange(NUM_ELEMENTS) + 2 * site.position_error * rng.standard_normal((n, 1, NUM_ELEMENTS))
    gain_db = site.gain_error_db * rng.standard_normal((n, NUM_ELEMENTS))
    phase_deg = site.phase_error_deg * rng.standard_normal((n, NUM_ELEMENTS))
    element = 10 ** (gain_db / 20) * np.exp(1j * np.deg2rad(phase_deg))
    distance = np.abs(np.subtract.outer(np.arange(NUM_ELEMENTS), np.arange(NUM_ELEMENTS)))
    coupling = np.where(distance == 0, 1.0, (site.coupling * np.exp(0.25j * np.pi)) ** distance)
    result: Array = steering(angle_deg, position) @ coupling.T * element[:, None, :]
    return result


def sample_covariance(signals: Array) -> Array:
    """``R = X X^H / K``: ``[N, M, K]`` -> ``[N, M, M]``."""
    result: Array = signals @ np.conj(np.swapaxes(signals, 1, 2)) / signals.shape[2]
    return result


def smoothed_covariance(signals: Array, size: int) -> Array:
    """Forward-backward spatially smoothed covariance ``[N, size, size]``.

    The mean of R over the subarrays of ``size`` neighbours and over their mirror images ``J R* J`` (J flips the order).
    Every subarray sees the same paths with other relative phases, so averaging makes coherent paths less coherent.
    """
    full = sample_covariance(signals)
    starts = range(full.shape[1] - size + 1)
    forward = np.mean([full[:, i : i + size, i : i + size] for i in starts], axis=0)
    result: Array = (forward + np.conj(forward[:, ::-1, ::-1])) / 2
    return result


def bartlett_spectrum(signals: Array) -> Array:
    """Power of the delay-and-sum beam over the grid, ``a^H R a / M^2`` ``[N, 241]``: on one clean path, its power."""
    grid = steering(GRID_DEG)
    power: Array = ((grid.conj() @ sample_covariance(signals)) * grid).sum(axis=2).real / signals.shape[1] ** 2
    return power


def bartlett(signals: Array) -> Array:
    """Angle of the strongest delay-and-sum beam, degrees ``[N]``."""
    spectrum = bartlett_spectrum(signals)
    return _refine(spectrum, spectrum.argmax(axis=1))


def music(signals: Array, *, num_paths: int = 3, subarray: int = 6) -> Array:
    """Angle of the direct path by MUSIC, degrees ``[N]``.

    The null spectrum ``D(theta) = ||a||^2 - ||E_s^H a||^2`` is the squared distance of a steering vector to the span
    E_s of the ``num_paths`` dominant eigenvectors; its minima are the paths. The direct path is the minimum with the
    most power, measured by the Capon beamformer ``1 / (a^H R^-1 a)``, which lets little of the other paths through.

    Args:
      signals: ``[N, M, K]``.
      num_paths: assumed dimension of the signal subspace, below ``subarray``.
      subarray: length of the smoothed subarray; M means no smoothing.
    """
    covariance = smoothed_covariance(signals, subarray)
    values, vectors = np.linalg.eigh(covariance)
    grid = steering(GRID_DEG)[:, :subarray]
    projection = np.abs(grid.conj() @ vectors) ** 2
    null = subarray - projection[:, :, subarray - num_paths :].sum(axis=2)
    capon = 1 / (projection / np.maximum(values, 1e-12)[:, None, :]).sum(axis=2)
    padded = np.pad(null, ((0, 0), (1, 1)), constant_values=np.inf)
    is_path = (null <= padded[:, :-2]) & (null <= padded[:, 2:])
    return _refine(null, np.where(is_path, capon, 0.0).argmax(axis=1))


def _refine(spectrum: Array, index: Array) -> Array:
    """Vertex of the parabola through an extremum of ``spectrum`` ``[N, G]`` and its two neighbours, degrees ``[N]``."""
    inner = np.clip(index, 1, len(GRID_DEG) - 2)
    left, middle, right = (np.take_along_axis(spectrum, (inner + i)[:, None], axis=1)[:, 0] for i in (-1, 0, 1))
    curvature = left - 2 * middle + right
    shift = np.where(curvature == 0, 0.0, (left - right) / (2 * np.where(curvature == 0, 1.0, curvature)))
    # At the edge of the sector there is no extremum to refine: the edge itself is the estimate.
    shift = np.where(inner == index, np.clip(shift, -0.5, 0.5), index - inner)
    result: Array = GRID_DEG[inner] + shift * (GRID_DEG[1] - GRID_DEG[0])
    return result


def circular_mean(angle_deg: Array) -> float:
    """Direction of the mean unit vector, degrees in (-180, 180]."""
    return float(np.rad2deg(np.angle(np.exp(1j * np.deg2rad(angle_deg)).mean())))


def _strong(signals: Array, training: Draws) -> Array:
    return music(signals)


def _middle(signals: Array, training: Draws) -> Array:
    return bartlett(signals)


def _floor(signals: Array, training: Draws) -> Array:
    return np.full(len(signals), circular_mean(training.labels))


SCENE = Scene(
    task="E-LOC-AOA",
    axis="environment",
    environments={
        "corridor": Site(snr_db=(8, 18), k_factor_db=4, delay_spread_ns=80, angle_spread_deg=15),
        "hall": Site(snr_db=(5, 15), k_factor_db=2, delay_spread_ns=150, angle_spread_deg=30, num_reflections=3),
        "office": Site(snr_db=(5, 15), k_factor_db=3, delay_spread_ns=50, angle_spread_deg=25),
        "street": Site(snr_db=(3, 13), k_factor_db=3, delay_spread_ns=300, angle_spread_deg=12),
    },
    real=Site(
        snr_db=(5, 15),
        k_factor_db=3,
        delay_spread_ns=100,
        angle_spread_deg=25,
        gain_error_db=1.0,
        phase_error_deg=12.0,
        coupling=0.2,
        position_error=0.03,
    ),
    simulate=simulate,
    strong=_strong,
    middle=_middle,
    floor=_floor,
    num_classes=None,
    anchor={
        "m_min": 0.0,
        "m_max": 30.0,
        "basis": "m_min: exact angles. m_max: expected error of the mean angle on a uniform sector of +-60 degrees",
    },
)
