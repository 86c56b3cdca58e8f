"""Any dtype, any length, any special value: host values of counts to 1e-12, traced ones to 4 float32 ulp, AUC and EER
to 5e-7 under trace, angles to 1e-6 relative (in fact to the fixed point). Oracle: exact rationals, float64 for long
input."""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

import emma_jax as emma

m = emma.metrics
BF16 = jnp.dtype("bfloat16")
DTYPES = [np.dtype("float32"), BF16, np.dtype("float16"), np.dtype("float64")]
LENGTHS = [1, 2, 17, 1000]
LONG = 1_000_000
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def data(n, dtype):
    """Angles, class scores and labels of a dtype; every class occurs once there is room."""
    rng = np.random.default_rng(n)
    labels = (np.arange(n) % 5).astype(np.int64)
    scores = (rng.normal(size=(n, 5)) + np.eye(5)[labels]).astype(dtype)
    angles = rng.uniform(-720, 720, (2, n)).astype(dtype)
    return angles, scores, labels


def expected(n, dtype):
    """(metric, preds, labels, value) for every metric that is defined."""
    angles, scores, labels = data(n, dtype)
    binary, column = labels % 2, scores[:, 1]
    short = n <= 1000
    yield m.MeanAngularError(), *angles, (oracles.angular_error if short else oracles.angular_error_float64)(*angles)
    best = oracles.predicted(scores)
    yield m.PlainAccuracy(), scores, labels, oracles.accuracy(best == labels)
    yield m.TopKAccuracy(k=2), scores, labels, oracles.top_k(scores, labels, 2)
    yield m.BalancedAccuracy(), scores, labels, oracles.balanced_accuracy(best, labels)
    if n > 1:
        yield m.AUROC(), column, binary, oracles.auc(column, binary)
        yield m.AUC(num_classes=5), scores, labels, oracles.macro_auc(scores, labels)[0]
        yield m.EER(), scores, labels, oracles.eer(*oracles.pooled(scores, labels)[:2])[0]


@dtypes
@pytest.mark.parametrize("n", [*LENGTHS, pytest.param(LONG, marks=pytest.mark.slow)])
def test_host_values(n, dtype):
    """Every metric on the host, 1e-12 (angles: that relative, and the fixed point's 2^-46 degrees)."""
    for metric, preds, labels, want in expected(n, dtype):
        slack = 2.0**-45 + 1e-12 * float(want) if isinstance(metric, m.MeanAngularError) else 1e-12
        assert abs(metric(preds, labels) - float(want)) <= slack, metric
        if dtype != np.float64:
            assert metric(jnp.asarray(preds), jnp.asarray(labels)) == metric(preds, labels)


@pytest.mark.parametrize(
    ("n", "dtype"),
    [(1, DTYPES[0]), (1000, DTYPES[0])]
    + [pytest.param(n, t, marks=pytest.mark.slow) for n in (2, 17, LONG) for t in DTYPES[:3]],
    ids=str,
)
def test_traced_values(n, dtype):
    """Every metric under jit, float32 in and out."""
    cases = list(expected(n, dtype))
    metrics = [case[0] for case in cases]
    run = jax.jit(lambda inputs: [metric(*pair) for metric, pair in zip(metrics, inputs)])
    for (metric, *_, want), got in zip(cases, run([case[1:3] for case in cases])):
        assert got.dtype == np.float32 and got.shape == ()
        if isinstance(metric, m.AUC | m.EER):
            assert abs(float(got) - float(want)) <= 5e-7, metric
        elif isinstance(metric, m.MeanAngularError):
            assert abs(float(got) - float(want)) <= 4 * 2.0**-24 * float(want) + 2.0**-45
        else:
            assert oracles.ulps32(got, want) <= 4, metric


def test_a_million_on_the_host():
    """N = 1e6 float32: an accuracy, an angle, a binary AUC and EER against float64 and integer counts, 1e-12."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, LONG)
    scores = (rng.normal(size=LONG) + labels).astype(np.float32)
    angles = rng.uniform(-720, 720, (2, LONG)).astype(np.float32)
    assert m.AUROC()(scores, labels) == pytest.approx(float(oracles.auc(scores, labels == 1)), abs=1e-12)
    assert m.EER()(scores, labels) == pytest.approx(float(oracles.eer(scores, labels == 1)[0]), abs=1e-12)
    assert m.MeanAngularError()(*angles) == pytest.approx(oracles.angular_error_float64(*angles), rel=1e-12)
    assert m.PlainAccuracy()((scores > 0.5).astype(np.int8), labels) == np.mean((scores > 0.5) == labels)


@pytest.mark.slow
def test_ten_million():
    """N = 1e7: AUC and EER under jit and on the host against integer counts (5e-7, 1e-12); mean angle (1e-6)."""
    n = 10_000_000
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, n).astype(np.int32)
    scores = rng.normal(size=n).astype(np.float32) + labels
    angles = rng.uniform(-720, 720, (2, n)).astype(np.float32)
    wants = float(oracles.auc(scores, labels == 1)), float(oracles.eer(scores, labels == 1)[0])
    for metric, want in zip((m.AUROC(), m.EER()), wants):
        assert abs(metric(scores, labels) - want) <= 1e-12
        assert abs(float(jax.jit(metric)(scores, labels)) - want) <= 5e-7
    want = oracles.angular_error_float64(*angles)
    assert m.MeanAngularError()(*angles) == pytest.approx(want, rel=1e-12)
    assert float(jax.jit(m.MeanAngularError())(*angles)) == pytest.approx(want, rel=1e-6)


# --- one answer for one set of numbers -------------------------------------------------------------------------


def numbers():
    """Small integers that every dtype holds, with ties."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 3, 300)
    return rng.integers(0, 4, (300, 3)) + 2 * np.eye(3, dtype=int)[labels], labels


@pytest.mark.parametrize(
    "dtype",
    ["bool", "uint8", "int16", "uint32", "int64", "bfloat16", "float64", ">f4", ">f8", ">i4"]
    + [pytest.param(t, marks=pytest.mark.slow) for t in ("int8", "uint16", "int32", "uint64", "float16", "longdouble")]
    + [pytest.param(t, marks=pytest.mark.slow) for t in (">i8", ">u2")],
)
def test_the_same_numbers_in_any_dtype(dtype):
    """Scores, angles and labels of one value score alike in any real dtype and byte order; bit for bit, with the EER's
    threshold."""
    scores, labels = numbers()
    scores = scores > 2 if dtype == "bool" else scores
    typed = scores.astype(jnp.dtype(dtype) if dtype == "bfloat16" else np.dtype(dtype))
    plain = scores.astype(np.float32)
    fingerprint, want = emma.evaluate("E-ID-FP", typed, labels), emma.evaluate("E-ID-FP", plain, labels)
    assert dict(fingerprint) == dict(want)
    assert fingerprint.aux["EER"]["threshold"] == want.aux["EER"]["threshold"]
    assert emma.evaluate("E-ID-DRONE", typed, labels).headline == emma.evaluate("E-ID-DRONE", plain, labels).headline
    assert m.TopKAccuracy(k=2)(typed, labels) == m.TopKAccuracy(k=2)(plain, labels)
    column, other = typed[:, 0], labels.astype(np.float32)
    assert m.MeanAngularError()(column, other) == m.MeanAngularError()(plain[:, 0], other)
    assert m.MeanAngularError()(other, column) == m.MeanAngularError()(plain[:, 0], other)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "uint32", "uint64", "int32", "int64", ">i4", ">i8"])
def test_labels_of_any_integer_dtype(dtype):
    """Labels, predicted classes and groups of any integer dtype, and bools; bit for bit."""
    scores, labels = numbers()
    typed = labels.astype(np.dtype(dtype))
    assert emma.evaluate("E-LOC-LOS", scores, typed).headline == emma.evaluate("E-LOC-LOS", scores, labels).headline
    assert m.PlainAccuracy()(typed, labels) == 1.0
    by_group = emma.evaluate_groups("E-ID-AMC", scores, labels, typed).headline
    assert np.array_equal(by_group, emma.evaluate_groups("E-ID-AMC", scores, labels, labels).headline)
    assert m.AUROC()(scores[:, 0], labels == 1) == m.AUROC()(scores[:, 0], (labels == 1).astype(int))


def test_any_memory_layout():
    """Fortran order, negative strides, broadcasts, unaligned and read-only memory, lists; bit for bit."""
    scores, labels = numbers()
    scores = scores.astype(np.float32)
    want = dict(emma.evaluate("E-ID-FP", scores, labels))
    raw = np.frombuffer(b"x" + scores.tobytes(), np.float32, offset=1).reshape(scores.shape)
    for other in (np.asfortranarray(scores), scores[::-1][::-1], raw, scores.tolist(), np.repeat(scores, 2, 0)[::2]):
        assert dict(emma.evaluate("E-ID-FP", other, labels)) == want
    one = np.broadcast_to(np.float32(3.5), (300,))
    assert m.MeanAngularError()(one, one) == 0.0


def test_float64_that_is_float32_scores_as_float32():
    """A file of float64 and a device array of float32 with the same numbers agree bit for bit."""
    angles, scores, labels = data(1000, np.float32)
    assert m.MeanAngularError()(*angles.astype(np.float64)) == m.MeanAngularError()(*angles)
    assert dict(emma.evaluate("E-ID-FP", scores.astype(np.float64), labels)) == dict(
        emma.evaluate("E-ID-FP", scores, labels)
    )


# --- 64 bits ------------------------------------------------------------------------------------------------------


def test_float64_differences_count():
    """Scores and angles that float32 would merge: the float64 answer; exact."""
    close = np.array([0.5, 0.5 + 1e-12, 0.5 + 2e-12, 0.5 + 3e-12])
    assert m.AUROC()(close, [0, 1, 0, 1]) == 0.75
    assert m.EER()(close, [0, 0, 1, 1]) == 0.0
    assert m.Top1Accuracy()(np.stack([close[:2], close[1::-1]]), [1, 0]) == 1.0
    assert m.TopKAccuracy(k=1)(np.stack([close[:2], close[1::-1]]), [1, 0]) == 1.0
    assert m.MeanAngularError()([3.6e9 + 10.0], [20.0]) == 10.0
    assert m.MeanAngularError()([1e15 + 0.125], [1e15]) == 0.125
    assert m.MeanAngularError()(np.array([1e300]), np.array([0.0])) == float(oracles.angular_error([1e300], [0.0]))
    assert m.MeanAngularError()(np.array([1e-9]), np.array([0.0])) == pytest.approx(1e-9, rel=1e-12)


def test_integers_beyond_float_and_int32():
    """Scores and angles past 2^24, 2^31 and 2^53 are not rounded; exact."""
    for base, dtype in (
        (2**24, np.int32),
        (2**53, np.int64),
        (2**63, np.uint64),
    ):
        scores = np.array([base, base + 1, base + 2, base + 3], dtype)
        assert m.AUROC()(scores, [0, 1, 0, 1]) == 0.75
        assert m.EER()(scores, [0, 0, 1, 1]) == 0.0
        assert m.Top1Accuracy()(np.stack([scores[:2], scores[1::-1]]), [1, 0]) == 1.0
        assert m.MeanAngularError()(scores, np.full(4, 7)) == float(oracles.angular_error(scores, [7] * 4))
        assert base > 2**60 or m.MeanAngularError(period=180)(np.full(4, 7), scores) == float(
            oracles.angular_error(scores, [7] * 4, period=180)
        )
    for dtype in (np.int32, np.uint32):
        top = np.iinfo(dtype).max
        scores = np.array([top, 0, 5, top - 1], dtype)
        for metric in (m.AUROC(), m.EER()):
            want = metric(scores.astype(np.float64), [1, 0, 1, 0])
            assert metric(scores, [1, 0, 1, 0]) == want and jax.jit(metric)(scores, np.array([1, 0, 1, 0])) == want
        assert m.Top1Accuracy()(scores[None], [0]) == m.TopKAccuracy(k=1)(scores[None], [0]) == 1.0


@pytest.mark.parametrize("period", [180, 360])
def test_no_luck_of_fusion(period):
    """Differences up to 2^27 degrees, whose whole turns fill 24 bits: the same with every operation rounded by itself
    (disable_jit) as in a fused kernel; exact rationals, 2^-39 degrees."""
    rng = np.random.default_rng(0)
    p, t = rng.uniform(3.4e7, 6.7e7, 200).astype(np.float32), -rng.uniform(3.4e7, 6.7e7, 200).astype(np.float32)
    p[0], t[0] = 5e7 + 132, -(5e7 + 132)
    metric = m.MeanAngularError(period=period)
    want = float(oracles.angular_error(p, t, period=period))
    with jax.disable_jit():
        assert metric(p, t) == pytest.approx(want, abs=2.0**-39)
    assert metric(p, t) == pytest.approx(want, abs=2.0**-39)


@pytest.mark.parametrize("label", [2**31, 2**32, 2**32 + 1, 2**40, -(2**31) - 1, 2**63 - 1, -(2**63)])
def test_labels_beyond_int32_do_not_wrap(label):
    """A label that int32 would wrap into range raises with its own value, index and count."""
    scores, labels = numbers()
    labels = labels.copy()
    labels[[4, 9]] = label
    for task, preds in (("E-LOC-LOS", scores), ("E-ID-FP", scores), ("E-CH-BEAM", scores), ("E-ID-DRONE", scores),
                        ("E-SC-ANOM", scores[:, 0])):  # fmt: skip
        truth = np.where(labels == 2, 1, labels) if preds.ndim == 1 else labels
        with pytest.raises(emma.LabelError, match=f"{task}: labels: {label} ") as caught:
            emma.evaluate(task, preds, truth)
        if task not in ("E-ID-FP", "E-ID-DRONE"):
            assert caught.value.count == 2 and caught.value.index == 4
    with pytest.raises(emma.LabelError):
        emma.evaluate("E-ID-AMC", labels, numbers()[1])
    with pytest.raises(emma.LabelError):
        m.TopKAccuracy(input="ranked", index_base=0)(labels[:, None], numbers()[1])


# --- special values -----------------------------------------------------------------------------------------------


SPECIAL = [-np.inf, -1e-45, -0.0, 0.0, 1e-45, 3e-45, 1.0, np.inf]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_every_float_has_its_place(dtype):
    """Infinities, subnormals and zeros of both signs in their order: AUC, EER, top-1 on host and under jit, for every
    pair of values; pair counts, exact."""
    tiny = {"float32": 1e-45, "float64": 5e-324, "float16": 6e-8, "bfloat16": 9.2e-41}[dtype]
    values = np.array([-np.inf, -tiny, -0.0, 0.0, tiny, 3 * tiny, 1.0, np.inf]).astype(jnp.dtype(dtype))
    n = len(values)
    left, right = np.repeat(np.arange(n), n), np.tile(np.arange(n), n)
    pairs = np.stack([values[left], values[right]], axis=1)
    labels = (left + right) % 2
    wide = oracles.float64(pairs)
    hits = np.where(labels == 1, wide[:, 1] > wide[:, 0], wide[:, 0] >= wide[:, 1])
    assert len(np.unique(oracles.float64(values))) == 7
    metrics = [m.Top1Accuracy(), m.TopKAccuracy(k=1), m.AUROC(), m.EER()]
    want = [
        np.mean(hits),
        np.mean(hits),
        float(oracles.auc(wide[:, 0], labels)),
        float(oracles.eer(wide[:, 0], labels)[0]),
    ]
    inputs = [pairs, pairs, pairs[:, 0], pairs[:, 0]]
    assert [metric(x, labels) for metric, x in zip(metrics, inputs)] == pytest.approx(want, abs=1e-15)
    if dtype in ("float32", "bfloat16"):
        traced = jax.jit(lambda x, y: [metric(z, y) for metric, z in zip(metrics, x)])(inputs, labels)
        assert np.allclose(traced, want, rtol=0, atol=2e-7)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("sign", [1, -1])
def test_nan_of_either_sign(dtype, sign):
    """A NaN of either sign bit raises with its place on the host, and gives NaN under jit, for every metric."""
    nan = np.copysign(np.nan, sign)
    scores, labels = numbers()
    scores = scores.astype(jnp.dtype(dtype))
    scores[5, 1] = scores[7, 0] = nan
    for task, preds, truth, index in (
        ("E-ID-FP", scores, labels, (5, 1)),
        ("E-LOC-LOS", scores, labels, (5, 1)),
        ("E-CH-BEAM", scores, labels, (5, 1)),
        ("E-ID-DRONE", scores, labels, (5, 1)),
        ("E-SC-ANOM", scores[:, 1], labels % 2, 5),
        ("E-LOC-AOA", scores[:, 1], np.zeros(300), 5),
    ):
        with pytest.raises(emma.NonFiniteError, match=f"{task}: preds") as caught:
            emma.evaluate(task, preds, truth)
        assert caught.value.index == index and caught.value.count == (1 if isinstance(index, int) else 2)
    if dtype == "float32" and sign < 0:
        run = jax.jit(lambda p, y: (emma.evaluate("E-ID-FP", p, y), emma.evaluate("E-LOC-LOS", p, y)))
        for result in run(scores, labels):
            assert all(np.isnan(v) for v in result.values())
        assert run(scores, labels)[0].validity["Top1Accuracy"].n_nonfinite == 2


def test_infinite_angles():
    """+-inf is no angle: an error on either side on the host, NaN under jit."""
    for bad in (np.inf, -np.inf):
        for pair in (([bad, 0.0], [0.0, 0.0]), ([0.0, 0.0], [bad, 0.0])):
            with pytest.raises(emma.NonFiniteError):
                m.MeanAngularError()(*pair)
            assert np.isnan(jax.jit(m.MeanAngularError())(*(np.float32(x) for x in pair)))


# --- x64 ------------------------------------------------------------------------------------------------------------

SCRIPT = """
import jax, numpy as np, jax.numpy as jnp
import emma_jax as emma
import oracles
assert jax.config.jax_enable_x64
m = emma.metrics
rng = np.random.default_rng(0)
truth = np.arange(300) % 3
labels = jnp.asarray(truth)
scores = jnp.asarray(rng.normal(size=(300, 3)) + np.eye(3)[truth])
angles = jnp.asarray(rng.uniform(-1e9, 1e9, (2, 300)))
assert labels.dtype == np.int64 and scores.dtype == np.float64
close = jnp.asarray([0.5, 0.5 + 1e-12, 0.5 + 2e-12, 0.5 + 3e-12])
for run in (lambda f, *a: f(*a), lambda f, *a: jax.jit(f)(*a)):
    for metric, preds, true, want in (
        (m.MeanAngularError(), angles[0], angles[1], oracles.angular_error(*angles)),
        (m.Top1Accuracy(), scores, labels, oracles.top_k(scores, labels, 1)),
        (m.BalancedAccuracy(), scores, labels, oracles.balanced_accuracy(oracles.predicted(scores), truth)),
        (m.AUROC(), close, jnp.asarray([0, 1, 0, 1]), 0.75),
        (m.EER(), close, jnp.asarray([0, 0, 1, 1]), 0.0),
    ):
        got = run(metric, preds, true)
        assert abs(float(got) - float(want)) <= 5e-7 * max(1, float(want)), (metric, got, float(want))
        assert isinstance(got, float) or got.dtype == np.float32
groups = jax.jit(lambda p, y, g: emma.evaluate_groups("E-ID-AMC", p, y, g, num_groups=3).headline)
fingerprint = jax.jit(lambda p, y: emma.evaluate("E-ID-FP", p, y))
balanced = jax.jit(m.BalancedAccuracy(num_classes=3))
assert not np.isnan(groups(scores, labels, labels)).any()
for bad in (2**32, 2**32 + 1, -(2**32)):
    wrapped = labels.at[7].set(bad)
    assert all(np.isnan(v) for v in fingerprint(scores, wrapped).values()), bad
    assert np.isnan(balanced(wrapped, labels)), bad
    assert np.isnan(groups(scores, labels, wrapped)).all(), bad
top = jnp.asarray([2**63 - 1, 0, 5, 2**63 - 2])
assert jax.jit(m.AUROC())(top, jnp.asarray([1, 0, 1, 0])) == 0.75
carry = jax.lax.scan(lambda s, x: (m.EER().update(s, *x), None), m.EER().init(), (scores[None], labels[None]))[0]
assert all(leaf.dtype == np.uint32 for leaf in jax.tree.leaves(carry))
print("fine")
"""


def test_with_x64_on():
    """In a process with x64 on: float64 and int64 arrays, on the host and under jit, give the same answers, float32
    under trace, uint32 states, and a label past 2^32 does not wrap into range."""
    here = os.path.dirname(__file__)
    env = os.environ | {"JAX_ENABLE_X64": "1", "PYTHONPATH": os.pathsep.join([here, *sys.path])}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.endswith("fine\n"), done.stderr[-3000:]
