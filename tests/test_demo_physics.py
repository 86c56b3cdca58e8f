"""The demo's signals and classical algorithms against closed forms: what theory fixes, the scenes have to obey.

Statistical tolerances are stated as multiples of the standard error; the seeds are fixed, so a pass is a pass.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from emma_jax.demo import aoa, drone, fingerprint, los, modulation
from emma_jax.demo.scene import NearestCentroid, complex_normal, frequency_shift, noise, snr_thirds

ONE_PATH = {"k_factor_db": 300.0, "delay_spread_ns": 1.0, "angle_spread_deg": 1.0}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# ---------------------------------------------------------------------------------------------------------- common


@pytest.mark.parametrize("snr_db", [-7.0, 0.0, 20.0])
def test_noise_has_the_power_asked_for(snr_db: float) -> None:
    """Noise power is 10^(-snr/10), split evenly between I and Q, with no pseudo-variance.

    Oracle: the definition; 5 standard errors.
    """
    z = noise(rng(), (4, 50_000), np.full(4, snr_db)).ravel() * 10 ** (snr_db / 20)
    tolerance = 5 / np.sqrt(z.size)
    assert np.mean(np.abs(z) ** 2) == pytest.approx(1, abs=tolerance)
    assert abs(np.mean(z**2)) < tolerance
    assert np.mean(z.real**2) == pytest.approx(0.5, abs=tolerance)


def test_frequency_shift_moves_a_tone_to_its_bin() -> None:
    """A constant shifted by 5/64 cycles per sample is bin 5 of a 64-point DFT. Oracle: the DFT; 1e-9."""
    spectrum = np.fft.fft(frequency_shift(np.ones((1, 64), complex), np.array([5 / 64])))[0]
    assert abs(spectrum[5]) == pytest.approx(64, abs=1e-9)
    assert np.delete(np.abs(spectrum), 5).max() < 1e-9


def test_snr_thirds() -> None:
    """Groups are the thirds of the SNR range, its ends included. Oracle: arithmetic."""
    names = snr_thirds(np.array([0, 2.9, 3.1, 6.1, 9.0]), (0, 9))
    assert names.tolist() == ["SNR low", "SNR low", "SNR middle", "SNR high", "SNR high"]


def test_nearest_centroid_is_the_linear_rule_between_two_classes() -> None:
    """Two classes in one dimension part at the midpoint of the means, with a margin linear in x.

    Oracle: algebra; 1e-12.
    """
    x = np.array([-1.0, 1.0, 3.0, 5.0])[:, None]
    model = NearestCentroid.fit(x, np.array([0, 0, 1, 1]), 2)
    assert model.means.ravel().tolist() == [0, 4]
    assert model.spread.tolist() == [1]
    scores = model.scores(np.array([[0.0], [2.0], [10.0]]))
    # d2 to 4 minus d2 to 0 is 16 - 8 x
    np.testing.assert_allclose(scores[:, 0], [16, 0, -64], atol=1e-12)
    np.testing.assert_allclose(scores[:, 1], -scores[:, 0], atol=1e-12)


def test_nearest_centroid_margin_is_positive_for_the_nearest_class_only() -> None:
    """The highest score is the class of least scaled distance. Oracle: the distances, by a loop."""
    g = rng(3)
    features, labels = g.normal(size=(60, 2)) * [1.0, 50.0], np.arange(60) % 4
    model = NearestCentroid.fit(features, labels, 4)
    scores = model.scores(features)
    for x, s in zip(features, scores):
        distance = [float((((x - m) / model.spread) ** 2).sum()) for m in model.means]
        assert int(s.argmax()) == int(np.argmin(distance))
        assert (s > 0).sum() == 1


# ------------------------------------------------------------------------------------------------------------- AoA


def test_steering_phase_of_a_half_wavelength_array() -> None:
    """Neighbours are pi sin(theta) apart: 0 at broadside, pi/2 at 30 degrees. Oracle: the formula; 1e-12."""
    np.testing.assert_allclose(aoa.steering(np.array(0.0)), np.ones(8), atol=1e-12)
    np.testing.assert_allclose(aoa.steering(np.array(30.0)), 1j ** np.arange(8), atol=1e-12)


def test_bartlett_spectrum_is_the_squared_dirichlet_kernel() -> None:
    """One path without noise gives |s|^2 (sin(M u / 2) / (M sin(u / 2)))^2 with u = pi (sin theta - sin theta_0).

    Oracle: that closed form; 1e-10.
    """
    theta0 = 17.25
    symbols = complex_normal(rng(), (1, 64))
    spectrum = aoa.bartlett_spectrum((aoa.steering(np.array(theta0))[:, None] * symbols)[None])[0]
    u = np.pi * (np.sin(np.deg2rad(aoa.GRID_DEG)) - np.sin(np.deg2rad(theta0)))
    expected = np.mean(np.abs(symbols) ** 2) * (np.sin(4 * u) / (8 * np.sin(u / 2))) ** 2
    np.testing.assert_allclose(spectrum, expected, atol=1e-10)


@pytest.mark.parametrize("method", [aoa.bartlett, aoa.music])
def test_one_clean_path_is_found(method: object) -> None:
    """Without noise or reflections the peak is the true angle. Oracle: the scene's labels; 0.01 degrees (grid: 0.5)."""
    draws = aoa.simulate(rng(1), aoa.Site(snr_db=(80, 90), **ONE_PATH), 200)
    inside = np.abs(draws.labels) < 59.5
    kwargs = {"num_paths": 1} if method is aoa.music else {}
    estimate = method(draws.signals, **kwargs)  # type: ignore[operator]
    assert np.abs(estimate - draws.labels)[inside].max() < 0.01


def test_music_at_the_edge_of_the_sector_stays_in_it() -> None:
    """A path at +-60 degrees is answered within half a grid step outside or inside. Oracle: the angle; 0.3 degrees."""
    symbols = complex_normal(rng(), (2, 1, 64))
    signals = aoa.steering(np.array([-60.0, 60.0]))[:, :, None] * symbols
    signals = signals + 1e-3 * complex_normal(rng(1), signals.shape)
    np.testing.assert_allclose(aoa.music(signals), [-60, 60], atol=0.3)
    np.testing.assert_allclose(aoa.bartlett(signals), [-60, 60], atol=0.3)


def cramer_rao_deg(angle_deg: np.ndarray, snr: float, snapshots: int, elements: int = 8) -> np.ndarray:
    """Stochastic Cramer-Rao bound (standard deviation, degrees) of one path at a half-wavelength array."""
    variance = 6 / (snapshots * snr * elements * (elements**2 - 1)) * (1 + 1 / (elements * snr))
    return np.rad2deg(np.sqrt(variance) / (np.pi * np.cos(np.deg2rad(angle_deg))))


@pytest.mark.parametrize(
    ("options", "factor"), [({"num_paths": 1, "subarray": 8}, 1.1), ({"num_paths": 1}, 1.5), ({}, 3.0)]
)
def test_music_reaches_the_cramer_rao_bound(options: dict[str, int], factor: float) -> None:
    """One path at 15 dB: RMS error over bound is 1 for the full array, more where smoothing gives aperture away.

    Oracle: the closed form (Stoica and Nehorai 1989). Tolerance: 6 % below (three standard errors at n = 1500), the
    stated factor above.
    """
    draws = aoa.simulate(rng(2), aoa.Site(snr_db=(15, 15.001), **ONE_PATH), 1500)
    inside = np.abs(draws.labels) < 58
    error = (aoa.music(draws.signals, **options) - draws.labels)[inside]
    ratio = np.sqrt(np.mean((error / cramer_rao_deg(draws.labels[inside], 10**1.5, 64)) ** 2))
    assert 0.94 < ratio < factor


def two_paths(gap_deg: float, coherent: bool, n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """A path of power 1 and one of power 1/2, ``gap_deg`` further, at 25 dB."""
    g = rng(4)
    angle = g.uniform(-40, 40, n)
    first = complex_normal(g, (n, 64))
    second = first * np.exp(2j * np.pi * g.random((n, 1))) if coherent else complex_normal(g, (n, 64))
    signals = aoa.steering(angle)[:, :, None] * first[:, None]
    signals = signals + np.sqrt(0.5) * aoa.steering(angle + gap_deg)[:, :, None] * second[:, None]
    return signals + noise(g, signals.shape, np.full(n, 25.0)), angle


def test_music_resolves_what_the_beam_does_not() -> None:
    """Two uncorrelated paths 9 degrees apart lie in one beam (3 dB width 12.8): MUSIC parts them, Bartlett does not.

    Oracle: the angles. MUSIC's median error is below 0.3 degrees, Bartlett's above 1.
    """
    signals, angle = two_paths(9.0, coherent=False)
    assert np.median(np.abs(aoa.music(signals, num_paths=2) - angle)) < 0.3
    assert np.median(np.abs(aoa.bartlett(signals) - angle)) > 1.0


def test_smoothing_restores_the_rank_of_coherent_paths() -> None:
    """Two coherent paths leave R with one eigenvalue over the noise, and the smoothed R with two.

    Oracle: the rank (Shan, Wax and Kailath 1985); "over the noise" is above 30, "noise" below 3 times its variance.
    """
    signals, _ = two_paths(20.0, coherent=True)
    floor = 10 ** (-25 / 10)
    plain = np.linalg.eigvalsh(aoa.sample_covariance(signals))
    smooth = np.linalg.eigvalsh(aoa.smoothed_covariance(signals, 6))
    assert np.median(plain[:, -2]) < 3 * floor
    assert np.median(smooth[:, -2]) > 30 * floor
    assert np.median(smooth[:, -3]) < 3 * floor


def test_array_scene_has_the_powers_asked_for() -> None:
    """Power per element is 1 (direct) + 10^(-K/10) (reflections) + 10^(-SNR/10): random phases cancel the cross terms.

    Oracle: the scene's formula; 5 standard errors.
    """
    site = aoa.Site(snr_db=(3, 3.001), k_factor_db=6, delay_spread_ns=200, angle_spread_deg=30)
    power = (np.abs(aoa.simulate(rng(5), site, 3000).signals) ** 2).mean(axis=(1, 2))
    expected = 1 + 10**-0.6 + 10**-0.3
    assert power.mean() == pytest.approx(expected, abs=5 * power.std() / np.sqrt(power.size))


def test_only_the_real_array_is_imperfect() -> None:
    """A site without impairments answers with the steering vector itself; each impairment changes it.

    Oracle: `steering`; 1e-12.
    """
    angles = np.array([[10.0, -35.0]])
    ideal = aoa.Site(snr_db=(0, 1), **ONE_PATH)
    np.testing.assert_allclose(aoa._array_response(rng(), ideal, angles), aoa.steering(angles), atol=1e-12)
    for impairment in ({"gain_error_db": 1.0}, {"phase_error_deg": 10.0}, {"coupling": 0.2}, {"position_error": 0.03}):
        response = aoa._array_response(rng(), aoa.Site(snr_db=(0, 1), **ONE_PATH, **impairment), angles)
        assert np.abs(response - aoa.steering(angles)).max() > 0.05
    for site in aoa.SCENE.environments.values():
        np.testing.assert_allclose(aoa._array_response(rng(), site, angles), aoa.steering(angles), atol=1e-12)


def test_mean_angle_costs_thirty_degrees() -> None:
    """The circular mean of U(-60, 60) is 0 and its mean error 30 degrees. Oracle: the integrals; 5 standard errors."""
    n = 20_000
    angle = aoa.simulate(rng(6), aoa.Site(snr_db=(0, 1), num_snapshots=1, **ONE_PATH), n).labels
    mean = aoa.circular_mean(angle)
    # the standard error of the mean direction is below that of the mean of the sines over the mean of the cosines
    assert abs(mean) < 5 * np.rad2deg(np.sin(np.deg2rad(angle)).std() / np.cos(np.deg2rad(angle)).mean()) / np.sqrt(n)
    assert np.abs(angle - mean).mean() == pytest.approx(30, abs=5 * (60 / np.sqrt(12)) / np.sqrt(n))


def test_circular_mean_wraps() -> None:
    """The mean direction of 350 and 20 degrees is 5, of 170 and -170 it is 180. Oracle: geometry; 1e-9."""
    assert aoa.circular_mean(np.array([350.0, 20.0])) == pytest.approx(5, abs=1e-9)
    assert abs(aoa.circular_mean(np.array([170.0, -170.0]))) == pytest.approx(180, abs=1e-9)


# ------------------------------------------------------------------------------------------------------------- LoS


@pytest.mark.parametrize("k", [0.0, 0.5, 2.0, 10.0])
def test_rician_moments(k: float) -> None:
    """E g = 1 and var g = (2 K + 1) / (K + 1)^2 for g = |h|^2. Oracle: the Rician law; 1 % and 2 % at 5e5 samples."""
    power = np.abs(los.rician_fading(rng(7), np.full(4000, k), 0.0, 128)) ** 2
    assert power.mean() == pytest.approx(1, rel=0.01)
    assert power.var() == pytest.approx((2 * k + 1) / (k + 1) ** 2, rel=0.02)


@pytest.mark.parametrize("k", [0.25, 1.0, 4.0, 31.0])
def test_k_factor_inverts_the_moment_relation(k: float) -> None:
    """Powers whose variance ratio is exactly (2 K + 1) / (K + 1)^2 give K back, at any scale. Oracle: algebra; 1e-9."""
    deviation = np.sqrt((2 * k + 1) / (k + 1) ** 2)
    power = np.tile([1 - deviation, 1 + deviation], (1, 8))
    np.testing.assert_allclose(los.k_factor(3.7 * power), [k], rtol=1e-9)


def test_k_factor_of_a_steady_and_of_a_heavy_envelope() -> None:
    """A constant envelope gives a huge, finite K; one more spread than Rayleigh gives 0.

    Oracle: limits of the formula.
    """
    assert np.isfinite(los.k_factor(np.ones((1, 16))))[0]
    assert los.k_factor(np.ones((1, 16)))[0] > 1e5
    assert los.k_factor(np.array([[0.0, 0.0, 0.0, 8.0]]))[0] == 0


def test_noise_counts_as_diffuse_power() -> None:
    """At a finite SNR the estimate tends to the steady power over diffuse plus noise power.

    Oracle: that ratio; 5 % at 5e5 samples.
    """
    k, snr_db = 4.0, 6.0
    signals = los.rician_fading(rng(8), np.full(4000, k), 0.0, 128)
    signals = signals + noise(rng(9), signals.shape, np.full(4000, snr_db))
    expected = (k / (k + 1)) / (1 / (k + 1) + 10 ** (-snr_db / 10))
    assert los.k_factor((np.abs(signals) ** 2).reshape(1, -1))[0] == pytest.approx(expected, rel=0.05)


def test_diffuse_field_is_gauss_markov() -> None:
    """Samples l apart correlate as rho^l. Oracle: the AR(1) law; 5 standard errors of a correlated mean."""
    h = los.rician_fading(rng(10), np.zeros(6000), 0.8, 64)
    for lag in (1, 3, 8):
        measured = np.mean(h[:, lag:] * h[:, : 64 - lag].conj(), axis=1)
        assert measured.mean() == pytest.approx(0.8**lag, abs=5 * measured.std() / np.sqrt(6000))


def test_tracks_have_the_share_and_snr_asked_for() -> None:
    """LoS comes with the probability asked for, mean power is 1 + 1/SNR.

    Oracle: the scene's formula; 5 standard errors.
    """
    track = los.Track(snr_db=(3, 3.001), k_factor_db=(0, 6), correlation=0.0, los_share=0.3)
    draws = los.simulate(rng(11), track, 5000)
    assert draws.labels.mean() == pytest.approx(0.3, abs=5 * np.sqrt(0.21 / 5000))
    power = (np.abs(draws.signals) ** 2).mean(axis=1)
    assert power.mean() == pytest.approx(1 + 10**-0.3, abs=5 * power.std() / np.sqrt(5000))


def test_shadowing_is_what_the_real_split_adds() -> None:
    """Shadowing has the deviation asked for in dB and no synthetic track has it. Oracle: the definition; 5 %."""
    gain_db = 20 * np.log10(los._shadowing(rng(12), 3.0, 8000))
    assert np.sqrt((gain_db**2).mean()) == pytest.approx(3.0, rel=0.05)
    assert all(track.shadowing_db == 0 for track in los.SCENE.environments.values())


# ----------------------------------------------------------------------------------------------------------- drone


@pytest.mark.parametrize("ofdm", drone.DOWNLINKS)
def test_ofdm_repeats_its_prefix(ofdm: drone.Ofdm) -> None:
    """The power is 1; the prefix is a copy, so the clean statistic is 1 at its own lag, and far below at the other's.

    Oracle: the definition; 1e-9, and 2 % for the power of 100,000 samples.
    """
    s = drone.ofdm_signal(rng(13), ofdm, 100, 1024)
    assert (np.abs(s) ** 2).mean() == pytest.approx(1, rel=0.02)
    np.testing.assert_allclose(drone.cyclic_prefix_statistic(s, ofdm), 1, atol=1e-9)
    (other,) = set(drone.DOWNLINKS) - {ofdm}
    assert drone.cyclic_prefix_statistic(s, other).max() < 0.5


def test_ofdm_leaves_the_outer_quarter_empty() -> None:
    """The spectrum of a symbol's body is flat within |f| < 3/8 and empty outside. Oracle: the definition; 1e-9.

    With a prefix as long as the body, a symbol starts exactly where 64 samples come twice.
    """
    active = np.abs(np.fft.fftfreq(64)) < 0.375
    for row in drone.ofdm_signal(rng(14), drone.Ofdm(64, 64), 20, 256):
        (start,) = (d for d in range(128) if np.allclose(row[d : d + 64], row[d + 64 : d + 128], atol=1e-9))
        spectrum = np.abs(np.fft.fft(row[start : start + 64]))
        assert spectrum[~active].max() < 1e-9
        np.testing.assert_allclose(spectrum[active], 64 / np.sqrt(active.sum()), atol=1e-9)


@pytest.mark.parametrize("snr_db", [-3.0, 0.0, 5.0])
def test_prefix_correlation_in_noise(snr_db: float) -> None:
    """In long recordings the statistic tends to SNR / (SNR + 1), whatever the carrier offset.

    Oracle: the ratio; 0.03.
    """
    ofdm, snr = drone.DOWNLINKS[0], 10 ** (snr_db / 10)
    s = frequency_shift(drone.ofdm_signal(rng(15), ofdm, 20, 40_000), np.full(20, 0.007)) * np.sqrt(snr)
    statistic = drone.cyclic_prefix_statistic(s + complex_normal(rng(16), s.shape), ofdm)
    assert statistic.mean() == pytest.approx(snr / (snr + 1), abs=0.03)


def test_sky_has_the_energies_asked_for() -> None:
    """Without gain error the mean power is 1 in noise only and 1 + SNR with a drone.

    Oracle: the scene's formula; 5 standard errors.
    """
    draws = drone.simulate(rng(17), drone.Sky(snr_db=(0, 0.001), num_taps=4, tap_decay=0.6, gain_error_db=0.0), 1500)
    power = 10 ** (drone.energy_db(draws.signals) / 10)
    for label, expected in ((0, 1.0), (1, 2.0), (2, 2.0)):
        group = power[draws.labels == label]
        assert group.mean() == pytest.approx(expected, abs=5 * group.std() / np.sqrt(group.size))


def test_calibrated_energy_is_gaussian_distributed() -> None:
    """The mean energy of T noise samples has mean 1 and variance 1/T. Oracle: that law (Urkowitz 1967); 15 %."""
    power = 10 ** (drone.energy_db(complex_normal(rng(18), (3000, 1024))) / 10)
    assert power.var() * 1024 == pytest.approx(1, rel=0.15)
    assert power.mean() == pytest.approx(1, abs=5 / np.sqrt(3000 * 1024))


# ----------------------------------------------------------------------------------------------------- fingerprints


def test_preamble_is_balanced_16_qam() -> None:
    """Unit power, zero mean, no correlation with its own conjugate. Oracle: the constellation's symmetry; 1e-12."""
    x = fingerprint.PREAMBLE
    assert np.mean(np.abs(x) ** 2) == pytest.approx(1, abs=1e-12)
    assert abs(x.mean()) < 1e-12
    assert abs((x**2).mean()) < 1e-12


@pytest.mark.parametrize(("gain_db", "phase_deg"), [(0.5, 2.0), (-0.4, 3.0), (1.0, 0.0), (0.0, -4.0)])
def test_image_rejection_ratio(gain_db: float, phase_deg: float) -> None:
    """IRR = (1 + 2 g cos phi + g^2) / (1 - 2 g cos phi + g^2), and that is what a tone's DFT shows.

    Oracle: the formula; 1e-9 dB.
    """
    g, phi = 10 ** (gain_db / 20), np.deg2rad(phase_deg)
    expected = 10 * np.log10((1 + 2 * g * np.cos(phi) + g**2) / (1 - 2 * g * np.cos(phi) + g**2))
    assert fingerprint.image_rejection_db(gain_db, phase_deg) == pytest.approx(expected, abs=1e-9)
    tone = np.exp(2j * np.pi * 5 * np.arange(64) / 64)
    spectrum = np.abs(np.fft.fft(fingerprint.iq_imbalance(tone, gain_db, phase_deg)))
    assert 20 * np.log10(spectrum[5] / spectrum[-5]) == pytest.approx(expected, abs=1e-9)


def test_iq_imbalance_is_a_gain_and_phase_error_of_the_quadrature_branch() -> None:
    """mu x + nu x^* equals I + j g e^(j phi) Q. Oracle: the two branches, written out; 1e-12."""
    x = complex_normal(rng(19), (100,))
    ratio = 10 ** (0.7 / 20) * np.exp(1j * np.deg2rad(3.0))
    np.testing.assert_allclose(fingerprint.iq_imbalance(x, 0.7, 3.0), x.real + 1j * ratio * x.imag, atol=1e-12)
    assert fingerprint.image_rejection_db(0.0, 0.0) == np.inf


def test_features_give_the_hardware_back() -> None:
    """Clean bursts with one fault at a time, behind any channel gain: eps, nu / mu and -Re beta come out.

    Oracle: the model. Tolerance: 1 % of eps (the phases of half a preamble are not quite small), 1e-3 for nu / mu
    (the image pulls the estimate of eps a little), 1e-9 for beta.
    """
    channel = 0.3 * np.exp(1.1j)
    eps_ppm = np.array([-4.0, 0.5, 3.0])
    burst = np.tile(channel * fingerprint.PREAMBLE, (3, 1))
    shifted = frequency_shift(burst, eps_ppm * fingerprint.CYCLES_PER_SAMPLE_PER_PPM)
    np.testing.assert_allclose(fingerprint.features(shifted)[:, 0], eps_ppm, rtol=0.01)

    ratio = 10 ** (0.6 / 20) * np.exp(1j * np.deg2rad(-3.0))
    image = (1 - ratio) / (1 + ratio)
    found = fingerprint.features(channel * fingerprint.transmit(fingerprint.Emitter(0.0, 0.6, -3.0, 0.0))[None])[0]
    np.testing.assert_allclose(found[1:], [image.real, image.imag, 0], atol=1e-3)

    found = fingerprint.features(channel * fingerprint.transmit(fingerprint.Emitter(0.0, 0.0, 0.0, 0.08))[None])[0]
    np.testing.assert_allclose(found, [0, 0, 0, -0.08], atol=1e-9)


def test_carrier_offset_is_near_its_bound() -> None:
    """At 20 dB the error over the Cramer-Rao bound is that of a two-half estimator, sqrt(4/3), within 15 %.

    Oracle: CRB 6 / ((2 pi)^2 SNR L (L^2 - 1)); the half-and-half phase difference has variance 2 (1 / (2 SNR L / 2)) /
    (2 pi L / 2)^2 = 8 / ((2 pi)^2 SNR L^3), 4/3 of it.
    """
    n, length, snr = 3000, 256, 100.0
    signals = np.tile(fingerprint.PREAMBLE, (n, 1)) * np.exp(2j * np.pi * rng(20).random((n, 1)))
    error = fingerprint.carrier_offset(signals + noise(rng(21), signals.shape, np.full(n, 20.0)))
    bound = np.sqrt(6 / ((2 * np.pi) ** 2 * snr * length * (length**2 - 1)))
    assert error.std() / bound == pytest.approx(np.sqrt(4 / 3), rel=0.15)


def test_receivers_have_the_snr_asked_for_and_equal_shares() -> None:
    """Noise power is 10^(-SNR/10) on top of the bursts; every transmitter sends equally often.

    Oracle: definitions; 5 %.
    """
    receiver = fingerprint.Receiver(snr_db=(10, 10.001), offset_ppm=0.0, drift_ppm=0.0)
    draws = fingerprint.simulate(rng(22), receiver, 800)
    assert np.bincount(draws.labels).tolist() == [100] * 8
    clean = np.stack([fingerprint.transmit(e) for e in fingerprint.EMITTERS])[draws.labels]
    power = (np.abs(draws.signals) ** 2).mean() - (np.abs(clean) ** 2).mean()
    assert power == pytest.approx(0.1, rel=0.05)


# ------------------------------------------------------------------------------------------------------ modulations


@pytest.mark.parametrize(
    ("name", "c20", "c40", "c42"),
    [
        ("BPSK", 1, Fraction(2), Fraction(-2)),
        ("4-PAM", 1, Fraction(34, 25), Fraction(-34, 25)),
        ("QPSK", 0, Fraction(1), Fraction(-1)),
        ("8-PSK", 0, Fraction(0), Fraction(-1)),
        ("16-QAM", 0, Fraction(17, 25), Fraction(-17, 25)),
        ("64-QAM", 0, Fraction(13, 21), Fraction(-13, 21)),
    ],
)
def test_theoretical_cumulants(name: str, c20: int, c40: Fraction, c42: Fraction) -> None:
    """The constellations' cumulants are those of Swami and Sadler (2000), as exact fractions; 1e-12."""
    row = modulation.THEORY[list(modulation.CONSTELLATIONS).index(name)]
    np.testing.assert_allclose(row, [c20, float(c40), float(c42)], atol=1e-12)
    assert np.mean(np.abs(modulation.CONSTELLATIONS[name]) ** 2) == pytest.approx(1, abs=1e-12)


def test_cumulants_ignore_rotation_scale_and_noise() -> None:
    """Rotation and scale change nothing (1e-9), known noise only adds the error of estimation (0.03 at 2e5)."""
    x = rng(23).choice(modulation.CONSTELLATIONS["16-QAM"], (1, 200_000))
    reference = modulation.cumulants(x)
    np.testing.assert_allclose(modulation.cumulants(5 * x * np.exp(0.7j)), reference, atol=1e-9)
    noisy = np.sqrt(10) * x + complex_normal(rng(24), x.shape)
    np.testing.assert_allclose(modulation.cumulants(noisy, noise_power=1.0), [[0, 0.68, -0.68]], atol=0.03)


def test_gaussian_noise_has_no_fourth_cumulant() -> None:
    """C40 and C42 of Gaussian noise are 0. Oracle: the definition of a cumulant; 5 standard errors."""
    n = 400_000
    row = modulation.cumulants(complex_normal(rng(25), (1, n)))[0]
    assert np.abs(row).max() < 5 * np.sqrt(24 / n)


def test_links_have_the_snr_asked_for_and_equal_shares() -> None:
    """Mean power is 1 + SNR in units of the noise floor. Oracle: the scene's formula; 2 % at 3e5 symbols."""
    draws = modulation.simulate(rng(26), modulation.Link(snr_db=(10, 10.001), offset=0.0), 600)
    assert np.bincount(draws.labels).tolist() == [100] * 6
    assert (np.abs(draws.signals) ** 2).mean() == pytest.approx(11, rel=0.02)
