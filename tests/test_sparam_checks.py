"""Checks of S-parameters against closed forms of simple devices, and scikit-rf where it has the same quantity."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emma_jax.emval.sparams import (
    align,
    causality,
    check_sparams,
    common_reference,
    grade,
    on_grid,
    passivity,
    quality,
    reciprocity,
    renormalize,
    select_ports,
)
from emma_jax.errors import EvaluationError, NonFiniteError, ShapeError
from emma_jax.io.touchstone import Touchstone, read_touchstone

F = np.linspace(1e9, 10e9, 101)


def two_port(s11: object, s12: object, s21: object, s22: object, n: int = 101) -> np.ndarray:
    """[n, 2, 2] from four scalars or [n] arrays."""
    return np.stack([np.broadcast_to(np.asarray(v, complex), n) for v in (s11, s12, s21, s22)], -1).reshape(n, 2, 2)


def line(delay_s: float) -> np.ndarray:
    """Matched lossless line."""
    return two_port(0, np.exp(-2j * np.pi * F * delay_s), np.exp(-2j * np.pi * F * delay_s), 0)


def file_of(s: np.ndarray, f: np.ndarray = F, z0: object = 50.0, **rest: object) -> Touchstone:
    return Touchstone(f, s, np.broadcast_to(np.asarray(z0, float), s.shape[-1:]).copy(), name="x", **rest)


def random_s(seed: int, n: int, n_f: int = 7, norm: float = 0.9) -> np.ndarray:
    """[n_f, n, n] with largest singular value ``norm``."""
    rng = np.random.default_rng(seed)
    s = rng.normal(size=(n_f, n, n)) + 1j * rng.normal(size=(n_f, n, n))
    return norm * s / np.linalg.norm(s, 2, axis=(1, 2))[:, None, None]


def test_lossless_line() -> None:
    """A lossless matched line: sigma = 1 to rounding, reciprocal, causal, all figures 100."""
    report = check_sparams(line(1e-10), F)
    assert report.passivity.passive and report.passivity.violating_fraction == 0
    assert report.passivity.largest_singular_value == pytest.approx(1, abs=1e-14)
    assert report.reciprocity is not None and report.reciprocity.reciprocal and report.reciprocity.max_difference == 0
    assert (report.quality.pqm, report.quality.rqm, report.quality.cqm) == (100, 100, 100)
    assert set(report.quality.grades.values()) == {"good"}


@pytest.mark.parametrize("attenuation_db", [0.1, 3.0, 40.0])
def test_attenuator(attenuation_db: float) -> None:
    """A matched attenuator: sigma is its transmission 10^(-A/20), to 1e-14."""
    a = 10 ** (-attenuation_db / 20)
    assert passivity(two_port(0, a, a, 0)).largest_singular_value == pytest.approx(a, rel=1e-14)


def test_ideal_isolator() -> None:
    """S21 = 1, S12 = 0: passive (sigma 1), |S - S^T| = 1, RM = 1, so RQM = max(0, 1 - (1 - 1e-6)/0.1) = 0, poor."""
    report = check_sparams(two_port(0, 0, 1, 0))
    assert report.passivity.largest_singular_value == 1 and report.passivity.passive
    assert report.reciprocity is not None and report.reciprocity.max_difference == 1
    assert report.reciprocity.worst_ports == (1, 2) and report.reciprocity.worst_frequency_hz is None
    assert report.quality.rqm == 0 and report.quality.grades["rqm"] == "poor"


@pytest.mark.parametrize("gain", [1.005, 1.02, 1.05, 3.0])
def test_amplifier(gain: float) -> None:
    """Gain g in the upper quarter of the band: PQM = 100 max(1 - q (g - 1.00001)/0.1, 0), q the fraction violating."""
    n_active = 25
    g = np.where(np.arange(101) >= 101 - n_active, gain, 0.5)
    g[-3] = gain + 1e-3
    report = check_sparams(two_port(0, 0.1, g, 0), F)
    assert not report.passivity.passive and report.passivity.worst_frequency_hz == F[-3]
    assert report.passivity.violating_fraction == pytest.approx(n_active / 101, rel=1e-15)
    assert report.passivity.largest_singular_value == pytest.approx(gain + 1e-3, rel=1e-14)
    weights = ((n_active - 1) * (gain - 1.00001) + gain + 1e-3 - 1.00001) / 0.1
    assert report.quality.pqm == pytest.approx(100 * max(101 - weights, 0) / 101, rel=1e-12)


def test_delay_line_and_its_mirror_in_time() -> None:
    """Delay turns clockwise (CQM 100), advance counter-clockwise (CQM 0); the worst entry is named."""
    s = line(2e-10)
    s[:, 0, 1] = s[:, 0, 1].conj()
    np.testing.assert_array_equal(causality(s), [[100, 0], [100, 100]])
    figures = quality(s)
    assert figures.cqm == 0 and figures.cqm_worst_ports == (1, 2) and figures.grades["cqm"] == "poor"


@pytest.mark.parametrize(("r1", "n1", "r2", "n2"), [(1.0, 40, 1.0, 40), (1.0, 60, 0.5, 40), (0.3, 20, 0.6, 70)])
@pytest.mark.parametrize("scale", [1.0, 1e-200])
def test_mixed_turning(r1: float, n1: int, r2: float, n2: int, scale: float) -> None:
    """n1 equal clockwise turns with steps r1, then n2 the other way with steps r2: CQM = n1 r1^2/(n1 r1^2 + n2 r2^2).

    The step where the sense changes is collinear with its neighbour, so it adds nothing. Tiny entries score the same.
    """
    angle = 0.2
    steps = [r1 * np.exp(-1j * angle * k) for k in range(n1 + 1)]
    steps += [r2 * np.exp(1j * (angle * k - angle * n1)) for k in range(n2 + 1)]
    s = scale * np.concatenate([[0], np.cumsum(steps)])[:, None, None]
    expected = 100 * n1 * r1**2 / (n1 * r1**2 + n2 * r2**2)
    np.testing.assert_allclose(causality(s), [[expected]], rtol=1e-9)


def test_constant_and_short_data() -> None:
    """Nothing turns in a constant (CQM 100); two frequencies cannot turn (NaN, no grade, null in JSON)."""
    assert quality(two_port(0, 0.5, 0.5, 0)).cqm == 100
    report = check_sparams(two_port(0, 0.5, 0.5, 0, n=2))
    assert math.isnan(report.quality.cqm) and report.quality.grades["cqm"] is None
    content = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert content["quality"]["cqm"] is None and content["reciprocity"]["worst_ports"] == [1, 1]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(3, 9), st.floats(0.3, 1.3))
def test_figures_against_loops(seed: int, n: int, n_f: int, norm: float) -> None:
    """The three figures equal the formulas of the issue written as loops over frequencies and entries, to 1e-9."""
    s = random_s(seed, n, n_f, norm)
    pw, rw = 0.0, 0.0
    for k in range(n_f):
        pm = np.linalg.svd(s[k])[1][0]
        pw += (pm - 1.00001) / 0.1 if pm > 1.00001 else 0
        rm = sum(abs(s[k, i, j] - s[k, j, i]) for i in range(n) for j in range(n) if i != j) / max(n * (n - 1), 1)
        rw += (rm - 1e-6) / 0.1 if rm > 1e-6 else 0
    cqm = 100.0
    for i in range(n):
        for j in range(n):
            v = [s[k + 1, i, j] - s[k, i, j] for k in range(n_f - 1)]
            r = [v[k + 1].real * v[k].imag - v[k + 1].imag * v[k].real for k in range(n_f - 2)]
            cqm = min(cqm, 100 * sum(x for x in r if x > 0) / sum(abs(x) for x in r))
    got = quality(s)
    expected = (100 * max(n_f - pw, 0) / n_f, 100 * max(n_f - rw, 0) / n_f, cqm)
    np.testing.assert_allclose((got.pqm, got.rqm, got.cqm), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("figure", "value", "expected"),
    [
        ("pqm", 100.0, "good"),
        ("pqm", 99.9, "acceptable"),
        ("rqm", 99.0, "inconclusive"),
        ("rqm", 80.0, "poor"),
        ("cqm", 80.1, "good"),
        ("cqm", 80.0, "acceptable"),
        ("cqm", 50.0, "inconclusive"),
        ("cqm", 20.0, "poor"),
        ("cqm", 0.0, "poor"),
        ("cqm", math.nan, None),
    ],
)
def test_grades_are_half_open(figure: str, value: float, expected: str | None) -> None:
    """Each grade's interval is open below and closed above, as the table of the standard has it."""
    assert grade(figure, value) == expected


@pytest.mark.parametrize("n", [1, 2, 4])
def test_scikit_rf_agrees(n: int) -> None:
    """Passive and reciprocal verdicts, and renormalization under all three wave definitions, equal scikit-rf's."""
    skrf = pytest.importorskip("skrf")
    rng = np.random.default_rng(n)
    for norm in (0.8, 1.4):
        for symmetric in (False, True):
            s = random_s(n, n, 11, norm)
            s = s + s.swapaxes(1, 2) if symmetric else s
            network = skrf.Network(s=s, f=np.arange(1, 12), z0=50, f_unit="GHz")
            assert passivity(s).passive == network.is_passive(tol=1e-4)
            assert n == 1 or reciprocity(s).reciprocal == network.is_reciprocal()
            z_from, z_to = rng.uniform(5, 200, (2, 11, n))
            for definition in ("power", "pseudo", "traveling"):
                peer = skrf.network.renormalize_s(s, z_from, z_to, s_def=definition)
                np.testing.assert_allclose(renormalize(s, z_from, z_to), peer, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("z_new", [10.0, 50.0, 73.2, 1e4])
def test_renormalized_load(z_new: float) -> None:
    """A load Z: gamma = (Z - z)/(Z + z) at any z, to 1e-13; Z = z is matched."""
    load = np.array([50.0, 25.0, 75 + 20j, 1e3j])
    s = ((load - 50) / (load + 50))[:, None, None]
    np.testing.assert_allclose(
        renormalize(s, 50, z_new)[:, 0, 0], (load - z_new) / (load + z_new), rtol=1e-12, atol=1e-15
    )
    assert abs(renormalize(s, 50, 25)[1, 0, 0]) < 1e-15


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_renormalization_of_an_impedance_matrix(seed: int, n: int) -> None:
    """S = F (Z - G)(Z + G)^-1 F^-1 with G = diag z, F = diag 1/(2 sqrt z), at two references per port, to 1e-9."""
    rng = np.random.default_rng(seed)
    z_matrix = 50 * (rng.normal(size=(n, n)) + 1j * rng.normal(size=(n, n))) + 100 * np.eye(n)

    def scattering(z0: np.ndarray) -> np.ndarray:
        g, f = np.diag(z0), np.diag(1 / (2 * np.sqrt(z0)))
        return f @ (z_matrix - g) @ np.linalg.inv(z_matrix + g) @ np.linalg.inv(f)

    z_a, z_b = rng.uniform(10, 200, (2, n))
    got = renormalize(scattering(z_a)[None], z_a, z_b)[0]
    np.testing.assert_allclose(got, scattering(z_b), rtol=1e-9, atol=1e-9 * np.abs(got).max())


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_renormalization_there_and_back(seed: int, n: int) -> None:
    """A -> B -> A is the identity, and a passive device stays passive."""
    rng = np.random.default_rng(seed)
    s, (z_a, z_b) = random_s(seed, n), rng.uniform(10, 200, (2, n))
    there = renormalize(s, z_a, z_b)
    assert passivity(there).largest_singular_value <= 1 + 1e-12
    np.testing.assert_allclose(renormalize(there, z_b, z_a), s, atol=1e-12)


def test_renormalization_refuses() -> None:
    """Complex, non-positive and misshapen references, partial excitation, and a pole are typed errors."""
    s = random_s(0, 2)
    for z in (50 + 1j, -50, 0, np.nan):
        with pytest.raises(EvaluationError, match="z_to"):
            renormalize(s, 50, z)
    with pytest.raises(ShapeError, match="z_from"):
        renormalize(s, [50, 50, 50], 50)
    with pytest.raises(ShapeError, match="every port excited"):
        renormalize(s[:, :, :1], 50, 75)
    # a negative resistance of -75 ohm has gamma = (-75 - 50)/(-75 + 50) = 5 at 50 ohm and none at 75
    with pytest.raises(EvaluationError, match="no S-parameters"):
        renormalize(np.full((1, 1, 1), 5.0), 50, 75)
    np.testing.assert_array_equal(renormalize(s, 50 + 0j, 50), s)


def test_bad_arrays_are_named() -> None:
    """Shapes that are no S-parameters, NaN and a wrong number of frequencies are typed errors with the first index."""
    for shape in ((3, 2), (0, 2, 2), (3, 1, 2)):
        with pytest.raises(ShapeError):
            check_sparams(np.zeros(shape))
    s = random_s(0, 2)
    s[2, 1, 0] = np.nan
    with pytest.raises(NonFiniteError) as caught:
        check_sparams(s)
    assert caught.value.index == (2, 1, 0) and caught.value.count == 1
    with pytest.raises(ShapeError, match="frequency_hz"):
        check_sparams(random_s(0, 2), F)


def test_partial_excitation() -> None:
    """One excited port of two: the column's norm bounds passivity, reciprocity has no meaning."""
    s = two_port(0.6, 0, 0.9, 0)[:, :, :1]
    report = check_sparams(s)
    assert report.reciprocity is None and math.isnan(report.quality.rqm)
    assert report.passivity.largest_singular_value == pytest.approx(math.hypot(0.6, 0.9), rel=1e-14)


def test_common_reference() -> None:
    """The prediction moves to the truth's references; equal ones leave it untouched, complex hints are an error."""
    s = random_s(3, 2, 101)
    truth, pred = file_of(s, z0=[50, 75]), file_of(renormalize(s, [50, 75], 100.0), z0=100.0)
    _, moved = common_reference(truth, pred)
    np.testing.assert_allclose(moved.s, s, atol=1e-12)
    assert moved.z0.tolist() == [50, 75]
    assert common_reference(truth, file_of(s, z0=[50, 75]))[1].s is s
    hint = np.full((101, 2), 50 + 0j)
    hint[4, 1] = 48 + 1j
    with pytest.raises(EvaluationError, match=r"48\+1j ohm for port 2"):
        common_reference(truth, file_of(s, port_impedance=hint))
    with pytest.raises(ShapeError, match="1 ports"):
        common_reference(truth, file_of(s[:, :1, :1]))


def test_points_are_picked_never_interpolated() -> None:
    """Frequencies are matched up to rounding in the files; one that is missing is named."""
    data = file_of(random_s(0, 2, 101))
    wanted = F[::7] * (1 + 3e-11)
    picked = on_grid(data, wanted)
    np.testing.assert_array_equal(picked.s, data.s[::7])
    np.testing.assert_array_equal(picked.frequency_hz, wanted)
    with pytest.raises(ShapeError, match=r"no point at 1060000000 Hz \(nearest 1090000000 Hz\)") as caught:
        on_grid(data, [1e9, 1.06e9])
    assert caught.value.index == 1
    one = file_of(random_s(0, 1, 1), np.array([0.0]))
    assert on_grid(one, [0.0]).s.shape == (1, 1, 1)
    with pytest.raises(ShapeError):
        on_grid(one, [1.0])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=12, unique=True), st.data())
def test_on_grid_against_a_dictionary(have: list[int], data: st.DataObject) -> None:
    """Picking by nearest point equals looking the frequency up, for any subset and for missing ones."""
    f = np.array(sorted(have), float)
    s = np.arange(f.size).reshape(-1, 1, 1) + 0j
    wanted = data.draw(st.lists(st.integers(0, 50), min_size=1, max_size=6))
    if set(wanted) <= set(have):
        assert on_grid(file_of(s, f), wanted).s[:, 0, 0].real.tolist() == [sorted(have).index(w) for w in wanted]
    else:
        with pytest.raises(ShapeError, match="no point at"):
            on_grid(file_of(s, f), wanted)


def test_ports_are_selected_in_order() -> None:
    """Ports count from 1; rows, columns and references move together."""
    data = file_of(random_s(0, 3, 101), z0=[1, 2, 3])
    got = select_ports(data, [3, 1])
    np.testing.assert_array_equal(got.s, data.s[:, [2, 0]][:, :, [2, 0]])
    assert got.z0.tolist() == [3, 1]
    for ports in ([], [0], [4], [1, 1]):
        with pytest.raises(ShapeError):
            select_ports(data, ports)


def test_align_renormalizes_before_it_drops_ports() -> None:
    """S11 at new references depends on port 2's too, so the whole matrix is renormalized first."""
    s = random_s(5, 2, 101)
    truth, pred = file_of(s), file_of(renormalize(s, 50, 75), z0=75.0)
    a, b = align(truth, pred, ports=[1])
    np.testing.assert_allclose(a.s, b.s, atol=1e-12)
    with pytest.raises(ShapeError, match="grids differ: 101 points, the truth has 51"):
        align(on_grid(truth, F[::2]), pred)
    np.testing.assert_allclose(align(on_grid(truth, F[::2]), pred, pick=True)[1].s, s[::2], atol=1e-12)


def protocol_sparams(truth: np.ndarray, pred: np.ndarray) -> dict[str, float]:
    """The EMVal-SP formulas in float64, straight from the protocol (no entry is zero here)."""
    error = pred - truth
    m, m_hat = 20 * np.log10(np.abs(truth)), 20 * np.log10(np.abs(pred))
    w = 1 / (1 + np.exp(-(m + 20) / 2))
    phase = np.angle(pred) - np.angle(truth)
    phase = np.abs((phase + np.pi) % (2 * np.pi) - np.pi)
    return {
        "real_imag_rmse": float(np.sqrt((error.real**2 + error.imag**2).sum() / (2 * error.size))),
        "mag_wmae": float((w * np.abs(m_hat - m)).sum() / w.sum()),
        "ph_wmae": float((w * phase).sum() / w.sum()),
    }


def test_ring_slot_measured_against_simulated() -> None:
    """scikit-rf's ring slot, S11 simulated at the measured frequencies: the issue's three figures, to 1e-9."""
    skrf = pytest.importorskip("skrf")
    folder = Path(skrf.__file__).parent / "data"
    truth, pred = align(
        read_touchstone(folder / "ring slot measured.s1p"),
        read_touchstone(folder / "ring slot.s2p"),
        ports=[1],
        pick=True,
    )
    assert truth.s.shape == pred.s.shape == (101, 1, 1)
    got = protocol_sparams(truth.s, pred.s)
    expected = {"real_imag_rmse": 0.257294228339, "mag_wmae": 0.439490264202, "ph_wmae": 0.663756671259}
    assert got == pytest.approx(expected, abs=1e-9)
