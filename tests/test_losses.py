"""Losses have the values of their formulas, the gradients of finite differences, and train what the metrics measure.

Oracles: the definitions in NumPy float64, closed forms, central differences of the loss itself in float64; where the
package has the metric, the metric."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import emma_jax as emma
from emma_jax import training
from emma_jax.errors import EvaluationError, ShapeError

RNG = np.random.default_rng(5)
OPTIONS = {"period", "reduction", "clip_db", "zero_mean", "temperature"}


def compiled(loss):
    """The loss under jit, its options static: as it is used, and faster than operation by operation."""
    return jax.jit(loss, static_argnames=tuple(OPTIONS & set(inspect.signature(loss).parameters)))


jitted = SimpleNamespace(**{n: compiled(getattr(training, n)) for n in training.__all__ if n.endswith("_loss")})


def normal(*shape, rng=RNG):
    """Complex Gaussian samples, complex64."""
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.complex64)


def signals(n=6, length=40):
    """Real targets and estimates 5 to 20 dB away from them."""
    t = RNG.normal(size=(n, length))
    return (2.5 * t + np.linspace(0.3, 1.5, n)[:, None] * RNG.normal(size=t.shape)).astype(np.float32), t.astype(
        np.float32
    )


ANGLES = np.array([10.0, -300.0, 179.0, 400.0, -5.0, 90.0], np.float32)
TRUE_ANGLES = np.array([15.0, 20.0, -178.0, 3.0, -5.5, -60.0], np.float32)
CHANNELS = normal(6, 3, 4), normal(6, 3, 4)
CHANNELS = (CHANNELS[1] + 0.3 * CHANNELS[0], CHANNELS[1])
SIGNALS = signals()
SCORES, BINARY = RNG.normal(size=12).astype(np.float32), np.array([0, 1] * 6)
S_TRUE = (normal(5, 2, 2) * 10.0 ** RNG.uniform(-2, 0, (5, 2, 2))).astype(np.complex64)
S_PRED = (S_TRUE + 0.05 * normal(5, 2, 2)).astype(np.complex64)
CASES = {
    "circular": (jitted.circular_loss, ANGLES, TRUE_ANGLES, 1),
    "wrapped": (jitted.wrapped_absolute_loss, ANGLES, TRUE_ANGLES, 1),
    "nmse": (jitted.nmse_loss, *CHANNELS, 1),
    "nmse-ratio": (lambda p, t, w=None: jitted.nmse_loss(p, t, w, reduction="mean_ratio"), *CHANNELS, 1),
    "si-sdr": (jitted.si_sdr_loss, *SIGNALS, 1),
    "si-sdr-iq": (jitted.si_sdr_loss, CHANNELS[0].reshape(6, 12), CHANNELS[1].reshape(6, 12), 1),
    "si-sdr-mean": (lambda p, t, w=None: jitted.si_sdr_loss(p, t, w, zero_mean=True), *SIGNALS, 1),
    "auc": (jitted.soft_auc_loss, SCORES, BINARY, 1),
    "sparameter": (jitted.sparameter_loss, S_PRED, S_TRUE, 3),
}
CASES = {name: (jax.jit(loss), *rest) for name, (loss, *rest) in CASES.items()}
each = pytest.mark.parametrize("name", CASES)


def test_circular_values():
    """1 - cos of the difference, to 1e-6, whole turns away as well; 2 at half a turn for degrees, axes and radians."""
    want = 1 - np.cos(np.deg2rad(ANGLES.astype(float) - TRUE_ANGLES))
    assert np.allclose(jitted.circular_loss(ANGLES, TRUE_ANGLES), want, atol=1e-6)
    for period in (360.0, 180.0, 2 * np.pi):
        assert float(jitted.circular_loss(period / 2, 0.0, period=period)) == pytest.approx(2, abs=1e-6)


def test_wrapped_values_are_the_metric():
    """The mean of the wrapped absolute loss is MeanAngularError, to 1e-6 relative."""
    got = jnp.mean(jitted.wrapped_absolute_loss(ANGLES, TRUE_ANGLES))
    assert float(got) == pytest.approx(emma.metrics.MeanAngularError()(ANGLES, TRUE_ANGLES), rel=1e-6)


@pytest.mark.parametrize("scale", [1.0, 1e-18, 1e18])
def test_nmse_values(scale):
    """The means are the two linear NMSEs of the definition in float64, to 1e-5, for any energy, with a zero channel."""
    p, t = (np.concatenate([x, np.zeros_like(x[:1])]) * np.float32(scale) for x in CHANNELS)
    p[-1] = np.float32(scale)
    wide = [x.astype(np.complex128) / scale for x in (p[:-1], t[:-1])]
    error, energy = (np.sum(np.abs(x) ** 2, axis=(1, 2)) for x in (wide[0] - wide[1], wide[1]))
    assert float(jnp.mean(jitted.nmse_loss(p, t))) == pytest.approx(error.sum() / energy.sum(), rel=1e-5)
    got = jitted.nmse_loss(p, t, reduction="mean_ratio")
    assert np.allclose(got, [*(error / energy), 0], rtol=1e-5)


def test_si_sdr_values():
    """Minus the SI-SDR of the definition in float64 within 0.05 dB; whatever the scale of either side; the ends at
    +-60."""
    p, t = (x.astype(float) for x in SIGNALS)
    alpha = (p * t).sum(1) / (t * t).sum(1)
    want = 10 * np.log10(((p - alpha[:, None] * t) ** 2).sum(1) / ((alpha[:, None] * t) ** 2).sum(1))
    assert np.allclose(jitted.si_sdr_loss(*SIGNALS), want, atol=0.05)
    for a, b in ((1e-15, 1.0), (1.0, 3e15), (-2.0, 1.0)):
        assert np.allclose(jitted.si_sdr_loss(np.float32(a) * SIGNALS[0], np.float32(b) * SIGNALS[1]), want, atol=0.05)
    rotated = jitted.si_sdr_loss(np.complex64(1j) * CHANNELS[1][0], CHANNELS[1][0])
    assert np.allclose(rotated, -60, atol=0.01)
    orthogonal = jitted.si_sdr_loss(np.float32([1, 1, 0, 0]), np.float32([1, -1, 0, 0]))
    silent = jitted.si_sdr_loss(np.zeros(4, np.float32), np.ones(4, np.float32))
    assert np.allclose([orthogonal, silent], 60, atol=1e-4)
    assert float(jitted.si_sdr_loss(np.ones(4, np.float32), np.zeros(4, np.float32))) == 0


def test_soft_auc_values():
    """The mean over pairs of log2(1 + exp(-margin)) to 1e-6, above 1 - AUC; cold, a hinge; a label 2 is in no pair."""
    s = SCORES.astype(float)
    margins = s[BINARY == 1][:, None] - s[BINARY == 0][None]
    assert float(jnp.mean(jitted.soft_auc_loss(SCORES, BINARY))) == pytest.approx(
        np.log2(1 + np.exp(-margins)).mean(), rel=1e-6
    )
    assert float(jnp.mean(jitted.soft_auc_loss(SCORES, BINARY))) > 1 - emma.metrics.AUC()(SCORES, BINARY)
    cold = jnp.mean(jitted.soft_auc_loss(SCORES, BINARY, temperature=1e-4))
    assert float(cold) == pytest.approx(np.maximum(-margins, 0).mean() / (1e-4 * np.log(2)), rel=1e-5)
    more = jitted.soft_auc_loss(np.append(SCORES, 9.0), np.append(BINARY, 2))
    assert float(more[-1]) == 0
    assert not np.any(jitted.soft_auc_loss(SCORES, np.ones(12, int)))


def test_sparameter_values():
    """A factor g e^(j phi) costs |g e^(j phi) - 1|^2 on the mean; entries follow the definition in float64 to 1e-5; an
    exact null and a board of nulls stay finite."""
    factor = 1.1 * np.exp(0.2j)
    got = jnp.mean(jitted.sparameter_loss((factor * S_TRUE).astype(np.complex64), S_TRUE))
    assert float(got) == pytest.approx(abs(factor - 1) ** 2, rel=1e-5)
    p, t = S_PRED.astype(complex), S_TRUE.astype(complex)
    w = 1 / (1 + np.exp(-(20 * np.log10(np.abs(t)) + 20) / 2))
    assert np.allclose(
        jitted.sparameter_loss(S_PRED, S_TRUE), w / w.mean() * np.abs(p - t) ** 2 / np.abs(t) ** 2, rtol=1e-5
    )
    for null in (np.where(np.arange(2) == 0, 0, S_TRUE), 1e-8 * S_TRUE, 0 * S_TRUE):
        assert np.all(np.isfinite(jitted.sparameter_loss(S_PRED, null.astype(np.complex64))))


def test_small_sparameter_errors_are_db_and_phase():
    """Near the truth the unweighted fraction is (ln10/20 dM)^2 + dphi^2, to 1 % at 0.05 dB and 0.005 rad."""
    p = S_TRUE[:1, :1, :1].astype(complex) * 10 ** (0.05 / 20) * np.exp(0.005j)
    with jax.enable_x64(True):
        got = float(jitted.sparameter_loss(p, S_TRUE[:1, :1, :1].astype(complex))[0, 0, 0])
    assert got == pytest.approx((np.log(10) / 20 * 0.05) ** 2 + 0.005**2, rel=0.01)


@each
def test_gradient_is_that_of_finite_differences(name):
    """Reverse-mode gradients agree with central differences in float64 to 1e-5 of the largest, real and imaginary."""
    loss, p, t, _ = CASES[name]
    with jax.enable_x64(True):
        wide = jnp.complex128 if np.iscomplexobj(p) else jnp.float64
        p = jnp.asarray(p, wide)
        t = jnp.asarray(t) if np.issubdtype(np.asarray(t).dtype, np.integer) else jnp.asarray(t, wide)
        total = jax.jit(lambda x: jnp.mean(loss(x, t)))
        grad = np.asarray(jax.grad(total)(p)).ravel()
        flat = np.asarray(p).ravel()
        for unit in (1.0, 1.0j) if np.iscomplexobj(p) else (1.0,):
            for i in range(0, flat.size, max(flat.size // 7, 1)):
                h = 1e-6
                step = np.zeros_like(flat)
                step[i] = h * unit
                up, down = (float(total((flat + sign * step).reshape(p.shape))) for sign in (1, -1))
                # JAX's convention for a real function: df = Re(g dz)
                assert np.real(grad[i] * unit) == pytest.approx((up - down) / (2 * h), abs=1e-5 * np.abs(grad).max())


@each
def test_where(name):
    """Excluded entries may be NaN: their value and gradient are 0, the rest is what a call without them gives."""
    loss, p, t, axes = CASES[name]
    p, t = np.array(p), np.array(t)
    keep = np.ones(p.shape[:axes], bool)
    keep[-2:] = False
    bad = p.copy()
    bad[-2:] = np.nan
    grad = jax.jit(jax.grad(lambda x: jnp.sum(loss(x, t, keep))))(bad)
    values = loss(bad, t, keep)
    assert values.shape == p.shape[:axes] and not np.any(values[-2:]) and not np.any(np.asarray(grad)[-2:])
    assert np.allclose(values[:-2], loss(p[:-2], t[:-2]), rtol=2e-5, atol=1e-6)
    assert np.all(np.isfinite(np.asarray(grad)))
    assert not np.any(loss(bad, t, np.zeros_like(keep)))


def points(name):
    """Where a naive formula has no finite slope: zero error, zero energy, both, and the wrap."""
    _, p, t, _ = CASES[name]
    if name in ("circular", "wrapped"):
        return [(t, t), (t + 180, t), (t - 180, t), (t + 540, t), (t + 360, t)]
    if name == "auc":
        return [(0 * p, t), (p * 1e4, t), (p, 0 * t), (p, 0 * t + 1)]
    some = np.where(t == t[:1], 0, t)
    scaled = [(c * p, c * t) for c in (0, 1e-18, 1e12)]
    return [(t, t), (0 * p, t), (p, 0 * t), (p, some), (some, some), *scaled]


@each
def test_gradients_are_finite_everywhere(name):
    """Value and gradient are finite at zero error, zero, tiny and large energy, ties, one class, and the wrap."""
    loss = CASES[name][0]
    run = jax.jit(jax.value_and_grad(lambda x, t: jnp.mean(loss(x, t))))
    for p, t in points(name):
        value, grad = run(np.asarray(p, CASES[name][1].dtype), np.asarray(t, CASES[name][2].dtype))
        assert np.isfinite(value) and np.all(np.isfinite(np.asarray(grad))), (p, t)


def test_zero_error_is_a_stationary_minimum():
    """At zero error every loss but the AUC's (which has no zero) is at its minimum with gradient 0 (1e-6)."""
    for name, (loss, _, t, _) in CASES.items():
        if name != "auc":
            value, grad = jax.jit(jax.value_and_grad(lambda x, loss=loss, t=t: jnp.mean(loss(x, t))))(jnp.asarray(t))
            assert float(value) == pytest.approx(-60 if "si-sdr" in name else 0, abs=0.01)
            # The SI-SDR of float32 rounding (-140 dB) is not exactly zero: its gradient is not either.
            assert np.abs(grad).max() < (0.05 if "si-sdr" in name else 1e-6)


@each
def test_half_and_integer_inputs(name):
    """bfloat16 predictions are computed in float32; the loss is that of their float32 values."""
    loss, p, t, _ = CASES[name]
    if np.iscomplexobj(p):
        pytest.skip("no complex half type")
    half = jnp.asarray(p, jnp.bfloat16)
    assert loss(half, t).dtype == jnp.float32
    assert np.array_equal(loss(half, t), loss(half.astype(jnp.float32), t))


def test_errors():
    """Shapes never broadcast, masks are bool, options are checked; every error is typed and names its argument."""
    for loss, p, t, _ in CASES.values():
        with pytest.raises(ShapeError, match="predictions"):
            loss(p[:-1], t)
        with pytest.raises(EvaluationError, match="where"):
            loss(p, t, np.ones(p.shape[0]))
        with pytest.raises(ShapeError, match="where"):
            loss(p, t, np.ones(5 * p.shape[0] + 1, bool))
    for call, argument in (
        (lambda: jitted.circular_loss(ANGLES, ANGLES, period=0.0), "period"),
        (lambda: jitted.circular_loss(ANGLES + 1j, ANGLES), "predictions"),
        (lambda: jitted.nmse_loss(*CHANNELS, reduction="mean_db"), "reduction"),
        (lambda: jitted.si_sdr_loss(*SIGNALS, clip_db=0), "clip_db"),
        (lambda: jitted.si_sdr_loss(1.0, 1.0), "predictions"),
        (lambda: jitted.soft_auc_loss(SCORES, SCORES), "targets"),
        (lambda: jitted.soft_auc_loss(SCORES, BINARY, temperature=0.0), "temperature"),
        (lambda: jitted.soft_auc_loss(SCORES[None], BINARY[None]), "predictions"),
        (lambda: jitted.sparameter_loss(S_PRED[0], S_TRUE[0]), "predictions"),
    ):
        with pytest.raises(EvaluationError, match=argument) as caught:
            call()
        assert caught.value.argument == argument


# --- training on a loss improves its metric ------------------------------------------------------------------------


def train(loss, metric, true_params, model, targets_of, steps=200, rate=0.05):
    """The metric before and after ``steps`` of Adam from perturbed parameters."""
    targets = targets_of(model(true_params))
    rng = np.random.default_rng(8)
    params = jax.tree.map(lambda x: x + 0.4 * rng.normal(size=x.shape).astype(np.float32), true_params)
    optimizer = optax.adam(rate)

    @jax.jit
    def run(params):
        def step(carry, _):
            params, opt = carry
            grads = jax.grad(lambda q: jnp.mean(loss(model(q), targets)))(params)
            updates, opt = optimizer.update(grads, opt)
            return (optax.apply_updates(params, updates), opt), None

        return jax.lax.scan(step, (params, optimizer.init(params)), length=steps)[0][0]

    before, after = (metric(np.asarray(model(q)), np.asarray(targets)) for q in (params, run(params)))
    return before, after


X = np.random.default_rng(9).normal(size=(64, 5)).astype(np.float32)
LINEAR = np.random.default_rng(10).normal(size=5).astype(np.float32)
COMPLEX = np.random.default_rng(11).normal(size=(2, 5, 24)).astype(np.float32)


def complex_model(params):
    """[64, 24] complex outputs of a linear map with real parameters."""
    return jax.lax.complex(X @ params[0], X @ params[1])


def test_angular_losses_train_the_angular_error():
    """Both angular losses bring MeanAngularError from over 20 degrees below 3, across the wrap."""
    for loss in (jitted.circular_loss, jitted.wrapped_absolute_loss):
        model = lambda w: 60.0 * (X @ w)  # noqa: E731
        wrap = lambda y: (y + 180.0) % 360.0 - 180.0  # noqa: E731
        before, after = train(loss, emma.metrics.MeanAngularError(), LINEAR, model, wrap, steps=400, rate=0.01)
        assert before > 20 and after < 3


def test_nmse_loss_trains_nmse():
    """NMSE falls by more than 20 dB."""
    before, after = train(jitted.nmse_loss, emma.metrics.NMSE(), COMPLEX, complex_model, lambda y: y)
    assert after < before - 20


def test_si_sdr_loss_trains_si_sdr():
    """SISDR rises by more than 20 dB."""
    before, after = train(jitted.si_sdr_loss, emma.metrics.SISDR(), COMPLEX, complex_model, lambda y: y)
    assert after > before + 20


@pytest.mark.parametrize("reduction", ["ratio_of_sums", "mean_ratio"])
def test_the_mean_is_the_metric(reduction):
    """Ten times the log of the mean NMSE loss is NMSE to 1e-4 dB; minus the mean SI-SDR loss is SISDR to 0.05 dB."""
    mean = jnp.mean(jitted.nmse_loss(*CHANNELS, reduction=reduction))
    assert 10 * np.log10(float(mean)) == pytest.approx(emma.metrics.NMSE(reduction=reduction)(*CHANNELS), abs=1e-4)
    assert -float(jnp.mean(jitted.si_sdr_loss(*SIGNALS))) == pytest.approx(emma.metrics.SISDR()(*SIGNALS), abs=0.05)


def test_auc_loss_trains_auc():
    """1 - AUC of a linear score falls to a fifth, below 0.004."""
    labels = lambda y: (y > 0).astype(jnp.int32)  # noqa: E731
    before, after = train(jitted.soft_auc_loss, emma.metrics.AUC(), LINEAR, lambda w: X @ w, labels)
    assert 1 - after < min(0.004, (1 - before) / 5)


def test_sparameter_loss_trains_magnitude_and_phase():
    """The weighted errors of magnitude (dB) and phase (rad), as EMVal defines them, both fall to a fifth."""

    def weighted(p, t):
        w = 1 / (1 + np.exp(-(20 * np.log10(np.abs(t)) + 20) / 2))
        errors = np.abs(20 * np.log10(np.abs(p) / np.abs(t))), np.abs(np.angle(p / t))
        return [float((w * e).sum() / w.sum()) for e in errors]

    model = lambda q: complex_model(0.1 * q).reshape(64, 6, 4)  # noqa: E731
    before, after = train(jitted.sparameter_loss, weighted, COMPLEX, model, lambda y: y)
    assert all(b < a / 5 for a, b in zip(before, after))
