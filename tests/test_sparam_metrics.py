"""S-parameter metrics. Oracles: definitions in extended precision (array_oracles), closed forms, the ring slot of
scikit-rf with values from a float64 script."""

from __future__ import annotations

import math

import array_oracles as oracle
import jax
import numpy as np
import pytest

import emma_jax as emma
from emma_jax.errors import EmptyEvaluationError, EvaluationError, NonFiniteError, ShapeError

m = emma.metrics
KINDS = (m.RealImagRMSE, m.MagWMAE, m.PhaseWMAE)
TRACED = {kind: jax.jit(kind()) for kind in KINDS}


def board(frequencies, ports, dtype=np.complex64, seed=0):
    """S-parameters from 0 to -120 dB, and a prediction 10 % off, with zeros on either side."""
    rng = np.random.default_rng(seed)
    shape = (frequencies, ports, ports)
    normal = lambda: rng.normal(size=(*shape, 2)).view(complex)[..., 0]  # noqa: E731
    t = normal() * 10 ** rng.uniform(-6, 0, shape)
    p = t + 0.1 * np.abs(t) * normal()
    if frequencies > 4:
        t[0, 0, 0], p[0, 0, 0] = 0, 0.1
        p[1, 0, 0] = 0
        t[2, 0, 0] = p[2, 0, 0] = 0
        p[3] = t[3]
    return p.astype(dtype), t.astype(dtype)


@pytest.mark.parametrize("shape", [(1, 1), (201, 3), (1001, 2)])
def test_definition(shape):
    """1e-6 relative from complex64 on the host, 4e-6 traced; 1e-12 from complex128."""
    for dtype, tol in ((np.complex64, 1e-6), (np.complex128, 1e-12)):
        p, t = board(*shape, dtype=dtype)
        for kind, want in zip(KINDS, oracle.sparam(p, t)):
            assert abs(kind()(p, t) / want - 1) < tol
            if dtype == np.complex64 and shape != (1001, 2):
                assert abs(float(TRACED[kind](p, t)) / want - 1) < 4e-6


def test_task():
    """EMVal-SP: names and order, validity, zeros counted."""
    p, t = board(50, 2)
    scores = emma.evaluate("EMVal-SP", p, t)
    assert list(scores) == ["real_imag_rmse", "mag_wmae", "ph_wmae"]
    assert [scores[k] for k in scores] == [kind()(p, t) for kind in KINDS]
    v = scores.validity
    assert (v["mag_wmae"].n, v["mag_wmae"].n_excluded, v["ph_wmae"].n_excluded) == (200, 0, 2)
    assert scores.aux["ph_wmae"]["n_zero_preds"] == 1
    assert {i.name: i.unit for i in scores.info} == {"real_imag_rmse": "1", "mag_wmae": "dB", "ph_wmae": "rad"}


def test_ring_slot():
    """Simulated ring slot at every second point against the measured one, read by scikit-rf: the values that the
    protocol's formulas give in float64, 1e-9."""
    skrf = pytest.importorskip("skrf")
    from skrf.data import pwd

    t = skrf.Network(f"{pwd}/ring slot measured.s1p").s
    p = skrf.Network(f"{pwd}/ring slot.s2p").s[::2, :1, :1]
    scores = emma.evaluate("EMVal-SP", p, t)
    want = (0.257294228339, 0.439490264202, 0.663756671259)
    assert np.allclose([scores[k] for k in scores], want, rtol=0, atol=1e-9)
    assert np.allclose(oracle.sparam(p, t), want, rtol=0, atol=1e-9)


@pytest.mark.parametrize("phi", [0.0, 1e-4, 1.0, 3.1415, -2.5])
def test_gain_and_phase(phi):
    """A common gain of 6.02 dB and phase: exactly those errors, whatever the weights; 1e-6 relative."""
    t = board(40, 3)[1]
    p = (t.astype(complex) * 0.5 * np.exp(1j * phi)).astype(np.complex64)
    keep = (t != 0) & (np.abs(t) > 1e-9)
    assert abs(m.MagWMAE()(p, t, where=keep) - 20 * math.log10(2)) < 1e-6
    assert abs(m.PhaseWMAE()(p, t, where=keep) - abs(phi)) < 1e-6 * max(1, abs(phi))


def test_small_errors_keep_their_digits():
    """A magnitude error of 1e-4 dB and a phase error of 1e-5 rad in complex128: 1e-9 relative."""
    t = board(40, 3, np.complex128)[1]
    keep = t != 0
    assert abs(m.MagWMAE()(t * 10 ** (1e-4 / 20), t, where=keep) / 1e-4 - 1) < 1e-9
    assert abs(m.PhaseWMAE()(t * np.exp(1e-5j), t, where=keep) / 1e-5 - 1) < 1e-9


def test_deep_nulls():
    """Nothing but nulls at -200 dB and below: weights do not vanish; closed forms."""
    t, p = np.full(5, 1e-12, np.complex64), np.full(5, 1e-3j, np.complex64)
    assert abs(m.MagWMAE()(p, t) - 140) < 1e-4
    assert abs(m.PhaseWMAE()(p, t) - np.pi / 2) < 1e-6
    assert m.MagWMAE()(0 * p, 0 * t) == 0 and m.PhaseWMAE()(p, 0 * t) == 0


def test_perfect():
    """Equal entries cost exactly nothing, whatever a fused multiply-add makes of their product."""
    t = board(40, 3, np.complex64)[1]
    assert [metric()(t, t) for metric in (m.RealImagRMSE, m.MagWMAE, m.PhaseWMAE)] == [0, 0, 0]


def test_weights_of_the_formula():
    """Two entries at 0 and -40 dB: sigma(10) and sigma(-10) as in the protocol; 1e-9. knee and slope are parameters."""
    t, p = np.array([1, 0.01]), np.array([10 ** (1 / 20), 0.01 * 10 ** (5 / 20)])
    sigma = lambda x: 1 / (1 + math.exp(-x))  # noqa: E731
    want = (sigma(10) * 1 + sigma(-10) * 5) / (sigma(10) + sigma(-10))
    assert abs(m.MagWMAE()(p + 0j, t + 0j) - want) < 1e-9
    want = (sigma(5) * 1 + sigma(-5) * 5) / (sigma(5) + sigma(-5))
    assert abs(m.MagWMAE(slope_db=4.0)(p + 0j, t + 0j) - want) < 1e-9


def test_where_and_weights():
    """Partial excitation and multiplicities: the definition on what is there, 1e-6."""
    p, t = board(30, 3)
    keep = np.broadcast_to(np.array([True, False, True]), p.shape)
    w = np.random.default_rng(1).integers(0, 5, p.shape)
    broken = np.where(keep, p, np.nan)
    for kind, want, weighted in zip(KINDS, oracle.sparam(p[keep], t[keep]), oracle.sparam(p, t, w * keep)):
        assert abs(kind()(broken, t, where=keep) / want - 1) < 1e-6
        assert abs(kind()(broken, t, where=keep[0, 0]) / want - 1) < 1e-6
        assert abs(kind()(broken, t, where=keep, weights=w) / weighted - 1) < 1e-6
        state = kind().update(kind().init(), p[:11], t[:11], where=keep[:11], weights=w[:11])
        state = kind().update(state, p[11:], t[11:], where=keep[11:], weights=w[11:])
        assert abs(kind().compute(state) / weighted - 1) < 1e-6


def test_planes():
    """Float planes along an iq_axis that is given: the same bits."""
    p, t = board(20, 2)
    for kind in KINDS:
        planes = [np.stack([x.real, x.imag], 1) for x in (p, t)]
        assert kind(iq_axis=1)(*planes) == kind()(p, t)


def test_bad_input():
    """Shapes, real arrays, NaN, bad parameters: the type, the argument and the first index."""
    p, t = board(20, 2)
    for kind in KINDS:
        with pytest.raises(ShapeError, match=r"\(20, 2, 2\) and labels \(20, 2\)"):
            kind()(p, t[:, 0])
        with pytest.raises(ShapeError, match="complex"):
            kind()(p.real, t.real)
        with pytest.raises(EmptyEvaluationError):
            kind()(p[:0], t[:0])
        bad = t.copy()
        bad[3, 1, 0] = np.inf
        with pytest.raises(NonFiniteError, match=r"labels: an S-parameter must be finite.*\(3, 1, 0\)"):
            kind()(p, bad)
        assert math.isnan(TRACED[kind](p, bad))
    for options in ({"slope_db": 0.0}, {"slope_db": math.nan}, {"knee_db": math.inf}):
        with pytest.raises(EvaluationError):
            m.MagWMAE(**options)
