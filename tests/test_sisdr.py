"""SI-SDR. Oracles: the definition in extended precision (array_oracles), torchmetrics live, closed forms, theory."""

from __future__ import annotations

import math

import array_oracles as oracle
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import emma_jax as emma
from emma_jax.errors import DegenerateLabelsError, EvaluationError, LabelError, NonFiniteError, ShapeError

m = emma.metrics
TRACED = jax.jit(m.SISDR())
SEPARATION = emma.get_task("E-SC-SEP")


def signals(*shape, dtype=np.float32, snr_db=(0.0, 40.0), seed=0, offset=0.0):
    """References and estimates of them at SNRs spread over an interval, with gains (and phases)."""
    rng = np.random.default_rng(seed)
    s, noise = rng.normal(size=(2, *shape, 2)).view(complex)[..., 0]
    snr = rng.uniform(*snr_db, size=(*shape[:-1], 1))
    gain = rng.normal(size=(*shape[:-1], 2)).view(complex)
    if np.dtype(dtype).kind == "f":
        s, noise, gain = s.real, noise.real, gain.real
    p = gain * (s + noise * 10 ** (-snr / 20))
    return (p + offset).astype(dtype), (s + offset).astype(dtype)


@pytest.mark.parametrize(
    ("shape", "dtype", "options"),
    [
        ((20, 8), np.float32, {}),
        ((20, 40), np.complex64, {}),
        ((5, 9001), np.float32, {}),
        ((7, 3, 100), np.complex64, {"phase_invariant": False}),
        ((7, 3, 100), np.float64, {"zero_mean": True}),
        ((20, 40), np.complex128, {"zero_mean": True}),
        ((20, 40), np.complex128, {"clip_db": None, "phase_invariant": False}),
        ((20, 40), np.float16, {"clip_db": 12.0}),
    ],
)
def test_definition(shape, dtype, options):
    """Mean of the per-signal definition: 1e-9 dB from float64, 2e-5 from float32 (values up to 40 dB); traced 5e-5."""
    p, s = signals(*shape, dtype=dtype, offset=0.5 if "zero_mean" in options else 0.0)
    metric = m.SISDR(**options)
    want = oracle.mean_si_sdr(
        p,
        s,
        **({"clip": options["clip_db"]} if "clip_db" in options else {}),
        **{k: v for k, v in options.items() if k != "clip_db"},
    )
    assert abs(metric(p, s) - want) < (1e-9 if dtype in (np.float64, np.complex128) else 2e-5)
    if np.dtype(dtype).itemsize <= 8 and dtype != np.float64:
        traced = jax.jit(metric)(p, s)
        assert traced.dtype == jnp.float32 and abs(float(traced) - want) < 5e-5


@pytest.mark.parametrize("zero_mean", [False, True])
def test_torchmetrics(zero_mean):
    """torchmetrics' functional, per signal, in float64: 1e-5 dB."""
    torch = pytest.importorskip("torch")
    audio = pytest.importorskip("torchmetrics.functional.audio")
    p, s = signals(12, 2, 500, seed=4, offset=0.3)
    theirs = audio.scale_invariant_signal_distortion_ratio(
        torch.from_numpy(p).double(), torch.from_numpy(s).double(), zero_mean=zero_mean
    )
    ours = m.SISDR(zero_mean=zero_mean, clip_db=None)(p.astype(np.float64), s.astype(np.float64))
    assert abs(ours - float(theirs.mean())) < 1e-5


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
@pytest.mark.parametrize("snr_db", [-20.0, 0.0, 30.0])
def test_noise_at_a_known_snr(snr_db, dtype):
    """White noise at SNR s: SI-SDR is s dB, whatever gain and phase; 6 standard errors, plus the 10/ln 10 (1 / SNR T)
    by which the projection of the noise adds to the target."""
    p, s = signals(64, 16_000, dtype=dtype, snr_db=(snr_db, snr_db), seed=8)
    bias = 10 / math.log(10) / 16_000 * (1 + 10 ** (-snr_db / 10))
    spread = 6 * 10 / math.log(10) * math.sqrt((4 + 4 * 10 ** (-snr_db / 10)) / (64 * 16_000))
    assert abs(m.SISDR()(p, s) - snr_db) < spread + bias


@pytest.mark.parametrize("snr_db", [80.0, 95.0])
def test_high_ratios(snr_db):
    """80 and 95 dB in float32, where ||p||^2 - |<p,s>|^2/||s||^2 has cancelled: 0.01 dB of the stored numbers."""
    p, s = signals(30, 400, snr_db=(snr_db, snr_db), seed=2)
    want = oracle.mean_si_sdr(p, s)
    assert abs(m.SISDR()(p, s) - want) < 0.01 and abs(float(TRACED(p, s)) - want) < 0.01


@pytest.mark.parametrize("scale", [1e-42, 1e-30, 1e-20, 1e-5, 3e4, 1e20, 1e36])
def test_any_amplitude(scale):
    """References and estimates of any amplitude, alone or together: the definition on the stored numbers, 5e-5 dB."""
    p, s = signals(20, 64)
    small, tiny = (p * scale).astype(np.float32), (s * scale).astype(np.float32)
    for a, b in ((small, tiny), (p, tiny), (small, s)):
        want = oracle.mean_si_sdr(a, b)
        assert abs(m.SISDR()(a, b) - want) < 5e-5 and abs(float(TRACED(a, b)) - want) < 1e-4


def test_int16_planes_and_half():
    """int16 I/Q planes as a receiver stores them, and float16 ones, without overflow: the definition, 2e-5 dB."""
    p, s = signals(10, 300, dtype=np.complex128)
    for axis, cast in ((1, lambda x: np.round(9000 * x).astype(np.int16)), (-1, lambda x: x.astype(np.float16))):
        planes = [cast(np.stack([x.real, x.imag], axis)) for x in (p / 4, s / 4)]
        wide = [np.moveaxis(x, axis, -1).astype(np.float64) for x in planes]
        want = oracle.mean_si_sdr(*(x[..., 0] + 1j * x[..., 1] for x in wide))
        assert abs(m.SISDR(iq_axis=axis)(*planes) - want) < 2e-5


def test_perfect_orthogonal_silent():
    """Clamped: perfect 100, orthogonal -100, silent estimate -100, exactly. Bare: infinite; their mean is an error."""
    s = np.tile(np.float32([2, -1, 3, 0]), (3, 4))
    p = np.stack([2 * s[0], np.tile(np.float32([0, 3, 1, 0]), 4), 0 * s[0]])
    assert [m.SISDR()(p[i : i + 1], s[i : i + 1]) for i in range(3)] == [100, -100, -100]
    assert m.SISDR()(p, s) == -100 / 3 and m.SISDR(clip_db=60.0)(p, s) == -20
    bare = m.SISDR(clip_db=None)
    assert bare(p[:1], s[:1]) == math.inf and bare(p[1:], s[1:]) == -math.inf
    with pytest.raises(EvaluationError, match=r"\+inf and -inf"):
        bare(p, s)
    # A rotated copy: perfect with a complex alpha, imperfect (orthogonal) with a real one.
    z = signals(2, 64, dtype=np.complex64)[1]
    assert m.SISDR()(1j * z, z) == 100 and m.SISDR(phase_invariant=False)(1j * z, z) < -90


def test_silent_references():
    """Excluded and counted; a constant is silent once its mean is gone; nothing left is an error."""
    p, s = signals(6, 50)
    s[1] = 0
    found = emma.evaluate(SEPARATION, p, s)
    assert abs(found["SISDR"] - oracle.mean_si_sdr(p, s)) < 2e-5
    assert (found.validity["SISDR"].n_excluded, found.validity["SISDR"].n_used) == (1, 5)
    s[2] = 3.7
    centred = emma.evaluate(SEPARATION, p, s, zero_mean=True)
    assert centred.validity["SISDR"].n_excluded == 2
    assert abs(centred["SISDR"] - oracle.mean_si_sdr(p, s, zero_mean=True)) < 2e-5
    with pytest.raises(DegenerateLabelsError, match="silent"):
        m.SISDR()(p, 0 * s)
    assert math.isnan(TRACED(p, 0 * s))


def test_best_permutation():
    """The assignment of highest mean, per sample: the definition over all orders, 2e-5 dB."""
    p, s = signals(8, 3, 60, seed=5)
    orders = np.random.default_rng(1).permuted(np.tile(np.arange(3), (8, 1)), axis=1)
    shuffled = np.take_along_axis(p, orders[..., None], axis=1)
    best = m.SISDR(permutation="best")
    want = oracle.best_si_sdr(shuffled, s)
    assert abs(best(shuffled, s) - want) < 2e-5 and abs(float(jax.jit(best)(shuffled, s)) - want) < 5e-5
    assert want > oracle.mean_si_sdr(shuffled, s) + 5
    # Source 1 is not there: neither its estimate nor its reference takes part, whatever they hold.
    there = np.ones((8, 3), bool)
    there[:, 1] = False
    broken = p.copy()
    broken[:, 1] = np.nan
    assert abs(best(broken, s, where=there) - oracle.best_si_sdr(p[:, [0, 2]], s[:, [0, 2]])) < 2e-5
    with pytest.raises(NonFiniteError):
        best(broken, s)
    with pytest.raises(ShapeError, match="K <= 4"):
        best(np.ones((2, 5, 9), np.float32), np.ones((2, 5, 9), np.float32))


def test_lengths():
    """lengths: each signal is scored over its own steps, the rest may hold anything; also as a stream and traced."""
    p, s = signals(6, 2, 60, offset=0.2)
    n = np.array([8, 60, 31, 9, 16, 59])
    full = [oracle.si_sdr(p[i, k, : n[i]], s[i, k, : n[i]]) for i in range(6) for k in range(2)]
    zero_mean = [oracle.si_sdr(p[i, k, : n[i]], s[i, k, : n[i]], zero_mean=True) for i in range(6) for k in range(2)]
    for i in range(6):
        p[i, :, n[i] :], s[i, :, n[i] :] = np.nan, np.inf
    for metric, values in ((m.SISDR(), full), (m.SISDR(zero_mean=True), zero_mean)):
        assert abs(metric(p, s, lengths=n) - np.mean(values)) < 5e-5
    assert abs(float(jax.jit(lambda *a: m.SISDR()(a[0], a[1], lengths=a[2]))(p, s, n)) - np.mean(full)) < 5e-5
    task = SEPARATION
    state = task.update(task.init(), p[:2], s[:2], lengths=n[:2])
    state = task.update(state, p[2:], s[2:], lengths=n[2:])
    assert abs(task.compute(state)["SISDR"] - np.mean(full)) < 5e-5
    groups = emma.evaluate_groups(task, p, s, [0, 0, 1, 1, 1, 1], lengths=n)["SISDR"]
    assert np.allclose(groups, [np.mean(full[:4]), np.mean(full[4:])], atol=5e-5)
    for bad in ([7, 60, 31, 9, 16, 59], [8, 61, 31, 9, 16, 59]):
        with pytest.raises(LabelError, match=r"lengths: must lie in 8\.\.60; 1 of them"):
            emma.evaluate(task, p, s, lengths=bad)
    with pytest.raises(ShapeError, match="lengths"):
        emma.evaluate(task, p, s, lengths=n[:3])
    with pytest.raises(LabelError, match="lengths"):
        emma.evaluate(task, p, s, lengths=n / 2)
    with pytest.raises(EvaluationError, match="not over signals"):
        emma.evaluate("E-CH-CSI", p, s, lengths=n)


def test_where_and_weights():
    """where over [N, K] and weights as multiplicities: the definition on the multiset, 2e-5 dB."""
    p, s = signals(5, 3, 33)
    keep = np.random.default_rng(1).random((5, 3)) < 0.7
    w = np.random.default_rng(2).integers(0, 5, (5, 3))
    broken = np.where(keep[..., None], p, np.inf)
    want = oracle.mean_si_sdr(p, s, weights=w * keep)
    assert abs(m.SISDR()(broken, s, where=keep, weights=w) - want) < 2e-5
    assert abs(float(jax.jit(m.SISDR())(broken, s, where=keep, weights=w)) - want) < 5e-5
    assert m.SISDR()(broken, s, where=keep) == m.SISDR()(p, s, weights=keep)


def test_bad_input():
    """Each kind of bad input has its type, and names argument, count and first index."""
    p, s = signals(4, 20)
    for a, b, text in (
        (p[:, :7], s[:, :7], "7 time steps"),
        (p, s[:, :10], r"\(4, 20\) and labels \(4, 10\)"),
        (p, s.astype(np.complex64), "one is complex"),
        (p[0], s[0], r"\[N, T\]"),
        (p[:, None, None], s[:, None, None], r"\[N, T\]"),
        # [N, T, 2] planes without iq_axis: the last axis is no time axis.
        (np.stack([p, p], -1), np.stack([s, s], -1), "2 time steps"),
    ):
        with pytest.raises(ShapeError, match=text):
            m.SISDR()(a, b)
    for which in (0, 1):
        pair = [p.copy(), s.copy()]
        pair[which][1, 3] = np.nan
        with pytest.raises(NonFiniteError) as caught:
            m.SISDR()(*pair)
        assert caught.value.index == (1, 3) and caught.value.argument == ("preds", "labels")[which]
        assert math.isnan(TRACED(*pair))
    for options in ({"clip_db": -1.0}, {"clip_db": math.nan}, {"permutation": "any"}):
        with pytest.raises(EvaluationError):
            m.SISDR(**options)
