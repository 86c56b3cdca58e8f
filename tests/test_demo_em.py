"""The electromagnetic demo: its physics against closed forms, and its scores against what it says of them."""

from __future__ import annotations

import importlib.util
import io
import math
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from emma_jax.demo import em
from emma_jax.errors import EvaluationError

MU_0 = 4e-7 * np.pi
EPSILON_0 = 1 / (MU_0 * em.SPEED_OF_LIGHT**2)


# --- dipole ----------------------------------------------------------------------------------------------------------


def curl(field: np.ndarray, step: float) -> np.ndarray:
    """Curl at a point from values at +- step along x, y, z: [3 axes, 2 signs, 3 components]."""
    slope = (field[:, 0] - field[:, 1]) / (2 * step)
    return np.array([slope[1, 2] - slope[2, 1], slope[2, 0] - slope[0, 2], slope[0, 1] - slope[1, 0]])


@pytest.mark.parametrize("place", [(0.01, 0.02, 0.005), (-0.1, 0.03, 0.2), (0.4, -1.0, 0.7)])
def test_dipole_solves_maxwell(place: tuple[float, float, float]) -> None:
    """curl H = j w eps E and curl E = -j w mu H off the source, by central differences (2e-5 of the largest part)."""
    frequency, moment = np.array([2.4e9]), np.array([[1e-3, -2e-3, 0.5e-3]])
    omega, step = 2 * np.pi * 2.4e9, 1e-6 * np.linalg.norm(place)
    steps = np.stack([np.eye(3), -np.eye(3)], axis=1).reshape(6, 3) * step
    e, h = (x[0, 0].reshape(3, 2, 3) for x in em.dipole_field(np.asarray(place) + steps, frequency, moment))
    e0, h0 = (x[0, 0, 0] for x in em.dipole_field(np.array([place]), frequency, moment))
    for left, right in ((curl(h, step), 1j * omega * EPSILON_0 * e0), (curl(e, step), -1j * omega * MU_0 * h0)):
        # The curl is a difference of larger slopes near the source: tolerance on their scale.
        scale = max(np.abs(right).max(), 1e-3 * np.abs(left).max())
        np.testing.assert_allclose(left, right, rtol=0, atol=2e-5 * scale)


@pytest.mark.parametrize("radius", [0.01, 0.1, 3.0])
def test_dipole_radiates_the_textbook_power(radius: float) -> None:
    """The flux of Re(E x H*) / 2 through any sphere is eta (k I l)^2 / (12 pi) (Gauss quadrature, 1e-9)."""
    cosine, weight = np.polynomial.legendre.leggauss(12)
    angle = 2 * np.pi * (np.arange(16) + 0.5) / 16
    sine = np.sqrt(1 - cosine**2)
    n = np.stack([np.outer(sine, np.cos(angle)), np.outer(sine, np.sin(angle)), np.outer(cosine, np.ones(16))], -1)
    frequency, moment = np.array([1e9, 5e9]), np.array([[0, 0, 1e-3], [1e-3, 1e-3, 0]])
    e, h = em.dipole_field(radius * n.reshape(-1, 3), frequency, moment)
    flux = 0.5 * np.einsum("jfpc,pc->jfp", np.cross(e, h.conj()).real, n.reshape(-1, 3))
    power = (flux.reshape(2, 2, 12, 16).sum(-1) * weight).sum(-1) * radius**2 * 2 * np.pi / 16
    k = 2 * np.pi * frequency / em.SPEED_OF_LIGHT
    expected = em.ETA * k**2 * (moment**2).sum(1)[:, None] / (12 * np.pi)
    np.testing.assert_allclose(power, expected, rtol=1e-9)


def test_far_field_is_a_plane_wave() -> None:
    """At k R = 2e5 the field is eta H x n, perpendicular to n (1e-4)."""
    n = np.array([[0.6, 0.0, 0.8]])
    e, h = (x[0, 0] for x in em.dipole_field(1e4 * n, np.array([1e9]), np.array([[0, 0, 1.0]])))
    np.testing.assert_allclose(e, em.ETA * np.cross(h, n), atol=1e-4 * np.abs(e).max())


def test_a_tilt_costs_twice_the_sine_of_half_the_angle() -> None:
    """On the cube the energy of the field is that of the moment, so a tilt by a costs 2 sin(a/2) (1e-12)."""
    position = em.cube_probes(0.03, 5)
    assert len(np.unique(np.round(position, 12), axis=0)) == 150
    e, h = em.dipole_field(position, np.array([1e9, 6e9]), np.eye(3))
    for field in (e, h):
        energy = np.einsum("jfpc,kfpc->fjk", field, field.conj())
        np.testing.assert_allclose(energy, energy[:, :1, :1] * np.eye(3), atol=1e-12 * np.abs(energy).max())


def test_median_of_noise() -> None:
    """sqrt(median(chi^2_6) / 6) against 400,001 draws (5 standard errors)."""
    draws = np.sqrt(np.random.default_rng(0).chisquare(6, 400_001) / 6)
    assert em.median_local_noise() == pytest.approx(np.median(draws), abs=5 * 0.8 / np.sqrt(400_001))


# --- channels --------------------------------------------------------------------------------------------------------


def test_lost_share_is_the_sum_of_the_delay_law() -> None:
    """(q^K - q^N) / (1 - q^N) is the sum of q^k over the taps from K on, over that of all taps (1e-12)."""
    q = em.DELAY_DECAY ** np.arange(em.NUM_TAPS)
    for kept in (1, 32, 127):
        assert em.lost_share(kept) == pytest.approx(q[kept:].sum() / q.sum(), rel=1e-12)


def test_channels_are_sparse_and_log_normal() -> None:
    """At most L taps are used, energies in dB per entry are N(0, s) and delays follow the law (5 standard errors)."""
    n = 4000
    channel = em.channels(np.random.default_rng(0), n)
    assert channel.shape == (n, em.NUM_ANTENNAS, em.NUM_TAPS) and channel.dtype == np.complex64
    energy = np.mean(np.abs(channel.astype(complex)) ** 2, axis=(1, 2))
    level = 10 * np.log10(energy)
    assert np.mean(level) == pytest.approx(0, abs=5 * em.FADING_DB / np.sqrt(n))
    assert np.std(level) == pytest.approx(em.FADING_DB, abs=5 * em.FADING_DB / np.sqrt(2 * n))
    taps = np.fft.ifft(channel.astype(complex), axis=2)
    power = (np.abs(taps) ** 2).sum(axis=1) / (np.abs(taps) ** 2).sum(axis=(1, 2))[:, None]
    used = power > 1e-6
    assert used.sum(axis=1).max() <= em.NUM_PATHS
    assert power[:, 20:].sum(axis=1).mean() == pytest.approx(
        em.lost_share(20), abs=5 * 0.5 / np.sqrt(n * em.NUM_PATHS / 4)
    )


def test_the_code_is_a_projection_in_delay() -> None:
    """Coding twice is coding once, and what it loses is the energy of the late taps. Oracle: Parseval (1e-5)."""
    channel = em.channels(np.random.default_rng(1), 50)
    coded = em.kept_taps(channel, 16)
    np.testing.assert_allclose(em.kept_taps(coded, 16), coded, atol=1e-5)
    late = np.fft.ifft(channel.astype(complex), axis=2)[..., 16:]
    lost = (np.abs(channel - coded) ** 2).sum()
    assert lost == pytest.approx(em.NUM_TAPS * (np.abs(late) ** 2).sum(), rel=1e-5)


# --- separation ------------------------------------------------------------------------------------------------------


def test_ratios_of_filters_are_those_of_theory() -> None:
    """|w a_k|^2 / (|w a_j|^2 + v |w|^2) of each method's filters is the ratio it claims (1e-9); MMSE is the best."""
    _, mixing, _ = em.mixtures(np.random.default_rng(0), 200)
    ratios = {}
    for method in ("mixture", "zero forcing", "MMSE"):
        filters, ratio = em.separate(mixing, method)
        gain = np.abs(filters @ mixing) ** 2
        noise = em.NOISE_VARIANCE * (np.abs(filters) ** 2).sum(axis=2)
        wanted = gain[:, [0, 1], [0, 1]]
        other = gain[:, [0, 1], [1, 0]]
        np.testing.assert_allclose(ratio, wanted / (other + noise), rtol=1e-9)
        ratios[method] = ratio
    assert np.all(ratios["MMSE"] >= ratios["zero forcing"] * (1 - 1e-12))
    assert np.all(ratios["MMSE"] >= ratios["mixture"] * (1 - 1e-12))
    with pytest.raises(EvaluationError, match="method: is 'magic'"):
        em.separate(mixing, "magic")


def test_mixtures_have_the_powers_they_claim() -> None:
    """Sources have unit power and the noise its variance (5 standard errors)."""
    sources, mixing, received = em.mixtures(np.random.default_rng(0), 8)
    error = 5 / np.sqrt(sources.size)
    assert np.mean(np.abs(sources) ** 2) == pytest.approx(1, abs=error)
    assert np.mean(np.abs(received - mixing @ sources) ** 2) == pytest.approx(
        em.NOISE_VARIANCE, abs=error * em.NOISE_VARIANCE
    )


# --- all of it -------------------------------------------------------------------------------------------------------


def test_without_scikit_rf_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """No scikit-rf: an ImportError that names the extra."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'emma-jax\[em\]'"):
        em.run_em_demo()


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[em.Row], str]:
    """One run, shared."""
    pytest.importorskip("skrf")
    root, out = tmp_path_factory.mktemp("em") / "out", io.StringIO()
    rows = em.run_em_demo(root, seed=0, console=Console(file=out, width=160))
    return root, rows, out.getvalue()


def test_every_score_agrees_with_theory(demo: tuple[Path, list[em.Row], str]) -> None:
    """Each row is within its tolerance, 4 standard errors or 1e-6, of the closed form; all metrics are there."""
    _, rows, text = demo
    for row in rows:
        assert row.agrees, row
        assert 0 < row.tolerance < 0.3 * max(abs(row.theory), 1)
    metrics = {row.metric for row in rows}
    assert metrics == {
        *("real_imag_rmse", "mag_wmae", "ph_wmae", "NMSE", "SISDR"),
        *(f"{m}_{f}" for m in ("rel_l2", "local_q50", "local_cos_q50") for f in "EH"),
    }
    assert {row.scene for row in rows} == {"ring slot", "dipole", "channels", "separation"}
    assert "DIFFERS" not in text and "2 sin(α/2)" in text


def test_ring_slot_scores(demo: tuple[Path, list[em.Row], str]) -> None:
    """Measured against simulated ring slot, from two independent implementations of the protocol, to 1e-6."""
    values = {row.metric: row.value for row in demo[1] if row.scene == "ring slot"}
    assert values == pytest.approx(
        {"real_imag_rmse": 0.257294228339, "mag_wmae": 0.439490264202, "ph_wmae": 0.663756671259}, abs=1e-6
    )


def test_closed_forms_by_hand(demo: tuple[Path, list[em.Row], str]) -> None:
    """The theory column itself: |g e^jphi - 1|, 2 sin 5 degrees, -10 dB and -10 dB plus the log-normal term (1e-9)."""
    theory = {(r.prediction, r.metric): r.theory for r in demo[1]}
    off = math.sqrt(1 + em.GAIN**2 - 2 * em.GAIN * math.cos(math.radians(em.PHASE_DEG)))
    assert theory["gain and phase", "rel_l2_E"] == pytest.approx(off, rel=1e-9)
    assert theory["tilt", "rel_l2_H"] == pytest.approx(2 * math.sin(math.radians(5)), rel=1e-9)
    assert theory["noise, ratio of sums", "NMSE"] == -10
    extra = 10 * math.log10(math.e) * (em.FADING_DB * math.log(10) / 10) ** 2
    assert theory["noise, mean ratio", "NMSE"] == pytest.approx(-10 + extra, rel=1e-9)


def test_what_the_demo_leaves(demo: tuple[Path, list[em.Row], str]) -> None:
    """Truth and predictions can be scored again from the files, to the same values; pictures are there."""
    from emma_jax.emval import score_files

    root, rows, text = demo
    assert f"{root}" in text
    record = score_files(root / "near_field/truth.npz", root / "near_field/tilt.npz", "NF")
    shown = {r.metric: r.value for r in rows if r.prediction == "tilt"}
    assert {name: record.values[name] for name in shown} == shown
    assert record.notes["frequencies"] == {"NF": True}
    for name in ("channels/labels.npz", "separation/zero_forcing.npz", "ring_slot/measured.s1p"):
        assert (root / name).is_file()
    if importlib.util.find_spec("matplotlib") is not None:
        assert (root / "ring_slot/smith.png").is_file() and (root / "near_field/fields.png").is_file()


def test_the_seed_is_all_the_randomness() -> None:
    """The same seed gives the same rows of a scene, another seed others. Oracle: equality."""
    draws = [em.channels(np.random.default_rng([seed, 2]), 5) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert np.abs(draws[0] - draws[2]).max() > 0.1
    with pytest.raises(EvaluationError, match="seed"):
        em.run_em_demo(seed=-1)
