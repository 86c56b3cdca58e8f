"""NMSE and SGCS. Oracles: the definitions in extended precision (array_oracles), closed forms, theory."""

from __future__ import annotations

import math

import array_oracles as oracle
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import emma_jax as emma
from emma_jax.errors import DegenerateLabelsError, EmptyEvaluationError, EvaluationError, NonFiniteError, ShapeError

m = emma.metrics
RNG = np.random.default_rng(3)
TRACED = jax.jit(m.NMSE())
REDUCTIONS = ("ratio_of_sums", "mean_ratio", "mean_db")


def channels(*shape, dtype=np.complex64, snr_db=20.0, rng=RNG):
    """Channels of unequal strength and noisy estimates of them."""
    h = rng.normal(size=(*shape, 2)).view(complex)[..., 0]
    h = h * rng.lognormal(size=(shape[0], *(1,) * (len(shape) - 1)))
    noise = rng.normal(size=(*shape, 2)).view(complex)[..., 0] * 10 ** (-snr_db / 20)
    if np.dtype(dtype).kind == "f":
        h, noise = h.real, noise.real
    return (h + noise).astype(dtype), h.astype(dtype)


@pytest.mark.parametrize(
    ("shape", "dtype", "reduction"),
    [
        *[(shape, np.complex64, "ratio_of_sums") for shape in ((1, 1), (7,), (300, 4, 8), (3, 9000))],
        *[((40, 33), dtype, "ratio_of_sums") for dtype in (np.complex128, np.float32, np.float64, np.float16)],
        *[((40, 33), dtype, name) for dtype in (np.complex64, np.complex128) for name in REDUCTIONS[1:]],
    ],
)
def test_definition(shape, dtype, reduction):
    """Host value against the definition: 2e-6 dB from float32 input, 1e-9 from float64; traced: 5e-6 dB."""
    p, h = channels(*shape, dtype=dtype)
    want = oracle.nmse(p, h, reduction)
    metric = m.NMSE(reduction=reduction)
    assert abs(metric(p, h) - want) < (1e-9 if dtype in (np.complex128, np.float64) else 2e-6)
    traced = jax.jit(metric)(p, h)
    assert traced.dtype == jnp.float32 and abs(float(traced) - want) < 5e-6


@pytest.mark.parametrize("snr_db", [-10.0, 0.0, 17.0])
def test_noise_at_a_known_snr(snr_db):
    """Additive noise at SNR s gives -s dB; 6 standard errors of a chi-square mean with 2 * 320,000 degrees."""
    rng = np.random.default_rng(11)
    h, noise = (rng.normal(size=(10_000, 32, 2)).astype(np.float32).view(np.complex64)[..., 0] for _ in range(2))
    got = m.NMSE()(h + noise * np.float32(10 ** (-snr_db / 20)), h)
    assert abs(got + snr_db) < 6 * 10 / math.log(10) * math.sqrt(2 * 2 / 640_000)


def test_reductions_differ_as_they_should():
    """A weak channel badly and a strong one well estimated: closed forms of all three, 1e-6 dB."""
    h = np.array([[1, 0], [100, 0]], np.complex64)
    p = np.array([[0, 0], [99, 0]], np.complex64)
    assert abs(m.NMSE()(p, h) - 10 * math.log10(2 / 10_001)) < 1e-6
    assert abs(m.NMSE(reduction="mean_ratio")(p, h) - 10 * math.log10((1 + 1e-4) / 2)) < 1e-6
    assert abs(m.NMSE(reduction="mean_db")(p, h) + 20) < 1e-6
    scores = emma.evaluate("E-CH-CSI", p, h, reduction="mean_db")
    assert dict(scores.info[0].config)["reduction"] == "mean_db" and scores["NMSE"] == m.NMSE(reduction="mean_db")(p, h)


@pytest.mark.parametrize("log10", [-44, -38, -30, -20, -10, 0, 10, 20, 30, 37])
def test_any_scale(log10):
    """Entries from subnormal to nearly the largest float32: the NMSE of the stored numbers, 5e-6 dB on the host and
    2e-5 traced."""
    p, h = channels(300, 6, dtype=np.complex128)
    scale = 10.0**log10 / max(np.abs(p).max(), np.abs(h).max())
    p, h = (p * scale).astype(np.complex64), (h * scale).astype(np.complex64)
    assert abs(m.NMSE()(p, h) - oracle.nmse(p, h)) < 5e-6
    assert abs(float(TRACED(p, h)) - oracle.nmse(p, h)) < 2e-5


@pytest.mark.parametrize("log10", [-60, -46, 45, 60])
def test_any_scale_in_float64(log10):
    """complex128 far outside float32: 1e-9 dB."""
    p, h = channels(300, 6, dtype=np.complex128)
    assert abs(m.NMSE()(p * 10.0**log10, h * 10.0**log10) - oracle.nmse(p, h)) < 1e-9


def test_rows_of_very_different_scale_in_one_batch():
    """Samples from 1e-38 to 1e38 side by side; per-sample ratios see each. 5e-6 dB."""
    p, h = channels(77, 50, dtype=np.complex128)
    scale = 10.0 ** np.linspace(-38, 36, 77)[:, None] / 10
    p, h = (p * scale).astype(np.complex64), (h * scale).astype(np.complex64)
    for reduction in REDUCTIONS:
        assert abs(m.NMSE(reduction=reduction)(p, h) - oracle.nmse(p, h, reduction)) < 5e-6


@settings(max_examples=40, deadline=None)
@given(
    hnp.arrays(np.float32, (5, 4), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)),
    hnp.arrays(np.float32, (5, 4), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)),
)
def test_any_finite_float32(p, h):
    """Any finite float32 at all, subnormal or huge: the definition to 1e-5 dB, or the typed error for zero energy."""
    if not h.any():
        with pytest.raises(DegenerateLabelsError):
            m.NMSE()(p, h)
        return
    want = oracle.nmse(p, h)
    got = m.NMSE()(p, h)
    assert got == want if math.isinf(want) else abs(got - want) < 1e-5


@pytest.mark.parametrize("wrong", range(6))
def test_an_error_far_below_equal_entries(wrong):
    """One small difference among entries that agree, subnormal or beside the largest floats, and differences that
    overflow: the definition to 1e-5 dB where nothing was to be flushed, never a perfect score."""
    dtype = np.float32
    tiny, large = np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max
    p = np.full((5, 4), 262144, dtype)
    h = p.copy()
    rows = [
        ([0, 0, 0, 1], [0, 1.6526356e-33, 0, 1]),
        ([0, 0, 1, 0], [0, 1000 * tiny, 1, 0]),
        ([large, 0, large, large], [large, 1e-30, large, large]),
        ([large] * 4, [-large] * 4),
        ([20 * tiny] * 4, [-7 * tiny] * 4),
        ([1, 1, 1, 1], [1, 1, 1, 1 + np.finfo(dtype).eps]),
    ]
    p[0], h[0] = rows[wrong]
    want = oracle.nmse(p, h)
    assert math.isfinite(want)
    for got in (m.NMSE()(p, h), m.NMSE()(p[:1], h[:1]) - oracle.nmse(p[:1], h[:1]) + want):
        assert abs(got - want) < 1e-5


def test_perfect_zero_and_excluded():
    """Perfect is -inf; a zero-energy sample leaves both sums and is counted, whatever was predicted for it."""
    p, h = channels(6, 5)
    assert m.NMSE()(h, h) == -math.inf and float(jax.jit(m.NMSE())(h, h)) == -math.inf
    h0 = h.copy()
    h0[2] = 0
    scores = emma.evaluate("E-CH-CSI", p, h0)
    keep = np.arange(6) != 2
    assert abs(scores["NMSE"] - m.NMSE()(p[keep], h[keep])) < 1e-6
    v = scores.validity["NMSE"]
    assert (v.n, v.n_used, v.n_excluded) == (6, 5, 1)
    one = p.copy()
    one[0] = h[0]
    assert m.NMSE(reduction="mean_db")(one, h) == -math.inf
    assert math.isfinite(m.NMSE(reduction="mean_ratio")(one, h))
    for metric in (m.NMSE(reduction=r) for r in REDUCTIONS):
        with pytest.raises(DegenerateLabelsError, match="6 of them"):
            metric(p, 0 * h)
        assert math.isnan(jax.jit(metric)(p, 0 * h))


def test_where_and_weights():
    """where drops a sample with whatever it holds; weights are multiplicities. Same bits as the arrays spelt out."""
    p, h = channels(9, 3, 4)
    keep = np.array([1, 0, 1, 1, 0, 1, 1, 1, 1], bool)
    w = np.array([1, 5, 2, 0, 9, 3, 1, 1, 70_000])
    bad = p.copy()
    bad[~keep] = np.nan
    for reduction in REDUCTIONS:
        metric = m.NMSE(reduction=reduction)
        assert metric(bad, h, where=keep) == metric(p[keep], h[keep])
        got = metric(bad, h, where=keep, weights=w)
        assert abs(got - oracle.nmse(p, h, reduction, np.where(keep, w, 0))) < 2e-6
        assert abs(float(jax.jit(metric)(bad, h, where=keep, weights=w)) - got) < 5e-6
        assert metric(p, h, weights=np.where(keep, 2, 0)) == metric(p[keep], h[keep])


def test_planes_are_the_complex_array():
    """iq_axis anywhere: on the host the bits of complex input, traced 2e-6 dB from it (its sums run in another order);
    without it real planes are real data, and the NMSE is the same."""
    p, h = channels(8, 3, 5)
    for axis in (1, 2, -1):
        planes = [np.stack([x.real, x.imag], axis) for x in (p, h)]
        assert m.NMSE(iq_axis=axis)(*planes) == m.NMSE()(p, h)
        assert abs(float(jax.jit(m.NMSE(iq_axis=axis))(*planes)) - float(jax.jit(m.NMSE())(p, h))) < 2e-6
    half = [np.stack([x.real, x.imag], 1).astype(np.float16) for x in (p, h)]
    assert abs(m.NMSE(iq_axis=1)(*half) - oracle.nmse(*half)) < 2e-6
    whole = [np.round(1000 * np.stack([x.real, x.imag], 1)).astype(np.int16) for x in (p, h)]
    assert abs(m.NMSE(iq_axis=1)(*whole) - oracle.nmse(*whole)) < 2e-6


def test_splits_and_order():
    """A sample's energies may differ in the last float32 bit with the batch they stand in; the dB value then does by
    less than 1e-6. Order and splits of a batch of the same size change nothing."""
    p, h = channels(600, 7)
    whole = m.NMSE()(p, h)
    for cut in ([1], [256], [255, 256, 300], [599]):
        state = m.NMSE().init()
        for a, b in zip(np.split(p, cut), np.split(h, cut)):
            state = m.NMSE().update(state, a, b)
        assert abs(m.NMSE().compute(state) - whole) < 1e-6
    order = np.random.default_rng(0).permutation(600)
    assert m.NMSE()(p[order], h[order]) == whole


@pytest.mark.parametrize("phase", [1, -1, 1j, np.exp(0.3j)])
def test_common_phase(phase):
    """NMSE is blind to a phase common to estimate and truth: to 1e-6 dB."""
    p, h = channels(50, 16, dtype=np.complex128)
    assert abs(m.NMSE()(p * phase, h * phase) - m.NMSE()(p, h)) < 1e-6


def test_bad_input():
    """Each kind of bad input has its type, and names argument, count and first index."""
    p, h = channels(4, 3)
    with pytest.raises(ShapeError, match=r"preds \(3, 1\) and labels \(3,\)"):
        m.NMSE()(np.ones((3, 1)), np.ones(3))
    with pytest.raises(ShapeError, match="one is complex and the other real"):
        m.NMSE()(p, h.real)
    with pytest.raises(ShapeError, match="iq_axis"):
        m.NMSE(iq_axis=1)(p, h)
    with pytest.raises(ShapeError, match="length 2"):
        m.NMSE(iq_axis=-1)(np.ones((4, 3)), np.ones((4, 3)))
    with pytest.raises(EmptyEvaluationError):
        m.NMSE()(p[:0], h[:0])
    with pytest.raises(ShapeError):
        m.NMSE()(p[:, :0], h[:, :0])
    with pytest.raises(EvaluationError, match="reduction"):
        m.NMSE(reduction="mean")
    for value in (np.nan, np.inf, -np.inf, 1j * np.inf):
        for which in (0, 1):
            pair = [p.copy(), h.copy()]
            pair[which][2, 1] = value
            with pytest.raises(NonFiniteError) as caught:
                m.NMSE()(*pair)
            assert caught.value.argument == ("preds", "labels")[which] and caught.value.index == (2, 1)
            assert math.isnan(jax.jit(m.NMSE())(*pair))
    huge = p.astype(np.complex128)
    huge[1, 1] = 1e80
    with pytest.raises(NonFiniteError, match="below 1e70"):
        m.NMSE()(huge, h)


def test_long_sum():
    """3e6 samples of scattered energies: ratio of sums to 1e-6 dB of a correctly rounded sum (math.fsum)."""
    rng = np.random.default_rng(5)
    h = (rng.normal(size=3_000_000) * rng.lognormal(sigma=3, size=3_000_000)).astype(np.float32)
    p = (h * (1 + 0.1 * rng.normal(size=h.size))).astype(np.float32)
    e = (p.astype(np.float64) - h) ** 2
    want = 10 * math.log10(math.fsum(e) / math.fsum(h.astype(np.float64) ** 2))
    assert abs(m.NMSE()(p, h) - want) < 1e-6


# --- SGCS -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128, np.float32])
@pytest.mark.parametrize(("shape", "axis"), [((30, 8), -1), ((20, 3, 32), 2), ((20, 3, 32), 1), ((5, 70), 1)])
def test_sgcs_definition(shape, axis, dtype):
    """Mean over vectors of the squared cosine: 1e-6."""
    p, v = channels(*shape, dtype=dtype, snr_db=3.0)
    metric = m.SGCS(vector_axis=axis)
    assert abs(metric(p, v) - oracle.sgcs(p, v, axis)) < 1e-6
    assert abs(float(jax.jit(metric)(p, v)) - oracle.sgcs(p, v, axis)) < 2e-6


def test_sgcs_properties():
    """Blind to a complex gain; 1 for perfect, 0 for orthogonal and for a zero prediction; zero truths left out."""
    p, v = channels(40, 16)
    assert abs(m.SGCS()(p * (3 - 4j), v) - m.SGCS()(p, v)) < 1e-6 and abs(m.SGCS()(v, v) - 1) < 1e-6
    for scale in (1e-42, 1e-20, 1e20, 1e36):
        assert abs(m.SGCS()((p * scale).astype(np.complex64), v) - m.SGCS()(p, v)) < (0.05 if scale < 1e-40 else 1e-6)
    assert m.SGCS()(np.array([[1, 1j, 0, 0]], np.complex64), np.array([[1j, 1, 0, 0]], np.complex64)) == 0
    assert m.SGCS()(0 * p, v) == 0
    v[3] = 0
    scores = emma.Task("T", (m.SGCS(),))
    found = emma.evaluate(scores, p, v)
    assert found.validity["SGCS"].n_excluded == 1 and abs(found["SGCS"] - oracle.sgcs(p, v)) < 1e-6
    with pytest.raises(DegenerateLabelsError):
        m.SGCS()(p, 0 * v)
    with pytest.raises(ShapeError, match="vector_axis"):
        m.SGCS(vector_axis=0)(p, v)
    planes = [np.stack([x.real, x.imag], 1) for x in (p, v)]
    assert m.SGCS(iq_axis=1)(*planes) == m.SGCS()(p, v)
