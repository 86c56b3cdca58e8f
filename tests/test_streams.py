"""Streams: update, merge, all_reduce, compute. A stream of exact states equals one shot; a buffer is exact up to its
capacity; a histogram is exact or says how wrong it can be. Oracle: exact rationals, one shot by the definition."""

from __future__ import annotations

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from jax.sharding import PartitionSpec as P

import emma_jax as emma

m = emma.metrics
N = 512
RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, N).astype(np.int32)
BINARY = (LABELS == 1).astype(np.int32)
SCORES = (RNG.normal(size=(N, 3)) + np.eye(3)[LABELS]).astype(np.float32)
WEIGHTS = RNG.integers(0, 4, N)
slow = pytest.mark.slow
TINY = np.finfo(np.float32).tiny


def stream(metric, preds, labels, weights=None, pieces=3):
    """The state after a few updates."""
    state = metric.init()
    for part in np.array_split(np.arange(len(labels)), pieces):
        state = metric.update(state, preds[part], labels[part], weights=None if weights is None else weights[part])
    return state


@functools.cache
def traced_compute(metric):
    """compute under jit, compiled once a metric."""
    return jax.jit(metric.compute)


def scores_of(metric, state):
    """The full Scores of a state, with aux."""
    return emma.Task("T", (metric,)).compute({metric.name: state})


# --- metrics whose state is the value --------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weighted"])
def test_a_stream_is_one_shot(weights):
    """Angles and accuracies: the same float64 from a stream as from one call; bit for bit."""
    angles = RNG.uniform(-400, 400, (2, N))
    for metric, preds, labels in (
        (m.MeanAngularError(), *angles),
        (m.PlainAccuracy(), SCORES, LABELS),
        (m.TopKAccuracy(k=2), SCORES, LABELS),
        (m.BalancedAccuracy(num_classes=3), SCORES, LABELS),
    ):
        assert metric.compute(stream(metric, preds, labels, weights)) == metric(preds, labels, weights=weights)


def test_inputs_of_a_stream_may_be_jax_arrays_and_jitted():
    """update on JAX arrays, jitted update, and NumPy input leave the same integers."""
    metric = m.BalancedAccuracy(num_classes=3)
    a = metric.update(metric.init(), SCORES, LABELS)
    b = metric.update(metric.init(), jnp.asarray(SCORES), jnp.asarray(LABELS))
    c = jax.jit(metric.update)(metric.init(), SCORES, LABELS)
    assert all(np.array_equal(a[k], b[k]) and np.array_equal(a[k], c[k]) for k in a)


def test_a_task_streams_all_its_metrics():
    """E-ID-FP: one state, one update for both metrics, exact for accuracy and (with a buffer) for EER."""
    task = emma.get_task("E-ID-FP", num_classes=3, capacity=3 * N)
    state = task.init()
    for part in np.array_split(np.arange(N), 4):
        state = task.update(state, SCORES[part], LABELS[part])
    streamed, whole = task.compute(state), emma.evaluate(task, SCORES, LABELS)
    assert dict(streamed) == dict(whole) and streamed.validity == whole.validity
    assert streamed.aux["EER"]["threshold"] == whole.aux["EER"]["threshold"]


def test_bad_values_are_counted_then_raised():
    """A NaN in one of the batches: compute raises with the count on the host and gives NaN under jit."""
    metric = m.MeanAngularError()
    state = metric.update(metric.init(), [1.0, np.nan, np.inf], [0.0, 0.0, 0.0])
    state = metric.update(state, [1.0], [2.0])
    with pytest.raises(emma.NonFiniteError, match="2") as caught:
        metric.compute(state)
    assert caught.value.count == 2 and caught.value.task == "MeanAngularError"
    assert np.isnan(traced_compute(metric)(state))
    state = m.Top1Accuracy().update(m.Top1Accuracy().init(), SCORES[:3], np.array([0, 3, -1]))
    with pytest.raises(emma.LabelError) as caught:
        m.Top1Accuracy().compute(state)
    assert caught.value.count == 2


def test_validity_of_a_stream():
    """n counts samples, with their weights, over all batches."""
    state = stream(m.PlainAccuracy(), SCORES, LABELS, WEIGHTS)
    validity = scores_of(m.PlainAccuracy(), state).validity["PlainAccuracy"]
    assert validity.n == validity.n_used == WEIGHTS.sum()


def test_counts_past_32_bits():
    """Merging a state with itself 40 times: n and the value in Python ints, exact; traced values stay right too."""
    metric = m.PlainAccuracy()
    state = metric.update(metric.init(), [0, 1, 1], [0, 1, 0])
    for _ in range(34):
        state = metric.merge(state, state)
    validity = scores_of(metric, state).validity["PlainAccuracy"]
    assert validity.n == 3 * 2**34 and metric.compute(state) == 2 / 3
    assert float(traced_compute(metric)(state)) == np.float32(2 / 3)
    angles = m.MeanAngularError()
    state = angles.update(angles.init(), [10.25, 359.0], [0.0, 1.0])
    for _ in range(34):
        state = angles.merge(state, state)
    assert angles.compute(state) == 6.125


# --- a buffer of sorted keys ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [pytest.param(None, marks=slow, id=""), pytest.param(WEIGHTS, id="weighted")])
def test_capacity_is_exact(weights):
    """AUC (binary and macro) and EER from a buffer equal the definition, to 1e-14, whatever the pieces."""
    binary = oracles.auc(SCORES[:, 0], BINARY == 1, weights)
    macro, _ = oracles.macro_auc(SCORES, LABELS, weights)
    eer, threshold = oracles.eer(SCORES[:, 0], BINARY == 1, weights)
    for metric, preds, labels, want in (
        (m.AUC(input="binary", capacity=N), SCORES[:, 0], BINARY, binary),
        (m.AUC(num_classes=3, capacity=N), SCORES, LABELS, macro),
        (m.EER(capacity=N), SCORES[:, 0], BINARY, eer),
    ):
        state = stream(metric, preds, labels, weights)
        assert metric.compute(state) == pytest.approx(float(want), abs=1e-14)
        assert metric.compute(state) == metric(preds, labels, weights=weights)
        assert abs(float(traced_compute(metric)(state)) - float(want)) <= 5e-7
    assert scores_of(metric, state).aux["EER"]["threshold"] == threshold


@pytest.mark.parametrize(
    "metric", [m.AUC(input="binary", capacity=8), pytest.param(m.EER(capacity=8), marks=slow)], ids=["AUC", "EER"]
)
def test_capacity_of_exactly_n_and_one_more(metric):
    """N samples fit a buffer of N; one more raises on the host, is NaN under jit, stays so after merges and never
    gives a number."""
    full = metric.update(metric.init(), SCORES[:8, 0], BINARY[:8])
    assert metric.compute(full) == metric(SCORES[:8, 0], BINARY[:8])
    over = metric.update(full, SCORES[8:9, 0], BINARY[8:9])
    for state in (over, metric.merge(metric.init(), over), metric.merge(over, metric.init())):
        with pytest.raises(emma.EvaluationError, match="capacity"):
            metric.compute(state)
        assert np.isnan(traced_compute(metric)(state))
    at_once = metric.update(metric.init(), SCORES[:9, 0], BINARY[:9])
    with pytest.raises(emma.EvaluationError, match="capacity"):
        metric.compute(at_once)


def test_masked_samples_take_no_room():
    """Capacity counts what is there: masked and zero-weight samples are free."""
    metric = m.AUC(input="binary", capacity=8)
    where = np.arange(N) % 64 == 0
    state = metric.update(metric.init(), SCORES[:, 0], BINARY, where=where)
    want = metric(SCORES[where, 0], BINARY[where])
    assert metric.compute(state) == want
    state = metric.update(metric.init(), SCORES[:, 0], BINARY, weights=where)
    assert metric.compute(state) == want


def test_a_buffer_is_exact_for_any_score():
    """Subnormals, infinities and -0.0 in a buffer: pair counts, exact."""
    scores = np.float32([1e-45, 3e-45, 0.0, -0.0, -1e-45, np.inf, -np.inf, TINY, 1.0])
    labels = np.array([1, 1, 0, 1, 0, 0, 1, 0, 1])
    metric = m.AUC(input="binary", capacity=16)
    assert metric.compute(metric.update(metric.init(), scores, labels)) == float(oracles.auc(scores, labels == 1))


def test_wide_scores_cannot_slip_into_a_buffer():
    """Scores that float32 would merge are exact in one shot; a buffer of float32 keys is exact or refuses them."""
    for scores in (np.array([0.500000001, 0.5]), np.array([16_777_217, 16_777_216], np.int32)):
        metric = m.AUC(input="binary", capacity=4)
        assert metric(scores, [1, 0]) == 1.0
        try:
            value = metric.compute(metric.update(metric.init(), scores, np.array([1, 0])))
        except emma.EvaluationError:
            continue
        assert value == 1.0


# --- a histogram over key bins ---------------------------------------------------------------------------------


def certified(metric, preds, labels, weights=None):
    """(value, half width) of a histogram stream, silently."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores = scores_of(metric, stream(metric, preds, labels, weights))
    return scores[metric.name], scores.aux[metric.name]["half_width"]


ADVERSARIAL = {
    "gaussian": lambda r: r.normal(size=N),
    "one bin, ordered right": lambda r: 1 + np.arange(N) * 2.0**-23,
    "one bin, ordered wrong": lambda r: 1 - np.arange(N) * 2.0**-24,
    "confident sigmoid": lambda r: 1 / (1 + np.exp(-r.normal(12, 2, N))),
    "two bins": lambda r: np.where(r.random(N) < 0.5, 1.0, 1.0078125) + r.random(N) * 2e-3,
    "subnormal": lambda r: r.integers(-5, 5, N) * 1e-45,
    "infinite": lambda r: r.choice([-np.inf, np.inf, 0.0, 1.0], N),
    "huge and tiny": lambda r: 10.0 ** r.uniform(-40, 38, N) * r.choice([-1, 1], N),
    "constant": lambda r: np.full(N, 0.3),
}


@pytest.mark.parametrize("kind", ADVERSARIAL)
@pytest.mark.parametrize("options", [{}, {"score_range": (0.0, 1.0)}], ids=["f32", "range"])
def test_the_half_width_is_certified(kind, options):
    """Data made to crowd a few bins, with labels that follow or oppose the order inside them: |histogram - exact| is at
    most half_width (1e-12 for rounding), for AUC and EER."""
    rng = np.random.default_rng(1)
    with np.errstate(over="ignore"):
        scores = ADVERSARIAL[kind](rng).astype(np.float32)
    order = np.argsort(scores, kind="stable")
    for labels in (
        rng.integers(0, 2, N),
        (np.argsort(order) > N / 3).astype(int),
        (np.argsort(order) < N / 3).astype(int),
    ):
        for weights in (None, rng.integers(0, 3, N)):
            value, half = certified(m.AUC(input="binary", **options), scores, labels, weights)
            assert abs(value - float(oracles.auc(scores, labels == 1, weights))) <= half + 1e-12
            value, half = certified(m.EER(**options), scores, labels, weights)
            assert abs(value - float(oracles.eer(scores, labels == 1, weights)[0])) <= half + 1e-12


def test_the_macro_half_width_is_certified():
    """[N, C] histograms: the macro value within the mean half-width; pooled EER likewise."""
    scores = 1 / (1 + np.exp(-4 * SCORES - 6))
    value, half = certified(m.AUC(num_classes=3), scores, LABELS)
    assert half > 0 and abs(value - float(oracles.macro_auc(scores, LABELS)[0])) <= half + 1e-12
    value, half = certified(m.EER(), scores, LABELS)
    assert abs(value - float(oracles.eer(*oracles.pooled(scores, LABELS)[:2])[0])) <= half + 1e-12


@pytest.mark.parametrize("kind", ["gaussian", "infinite", "subnormal", "huge and tiny"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_types_are_exact(kind, dtype):
    """With a half ``score_dtype`` every score has a bin of its own: AUC and EER are exact (1e-13), the half-width
    is 0, the
    threshold is the score itself; scores of another dtype are refused, since that promise would not hold."""
    with np.errstate(over="ignore"):
        scores = ADVERSARIAL[kind](np.random.default_rng(2)).astype(jnp.dtype(dtype))
    options = {"score_dtype": dtype}
    value, half = certified(m.AUC(input="binary", **options), scores, BINARY)
    assert value == pytest.approx(float(oracles.auc(scores, BINARY == 1)), abs=1e-13)
    assert half == 0
    with pytest.raises(emma.EvaluationError, match="score_dtype"):
        stream(m.AUC(input="binary", **options), scores.astype(np.float32), BINARY)
    metric = m.EER(**options)
    want, threshold = oracles.eer(scores, BINARY == 1)
    value, half = certified(metric, scores, BINARY)
    assert value == pytest.approx(float(want), abs=1e-13)
    assert half == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        aux = scores_of(metric, stream(metric, scores, BINARY)).aux["EER"]
    assert aux["threshold"] == threshold


def test_the_warning():
    """A half-width above 0.005 warns on the host and names the remedy; below, and under jit, nothing is said."""
    crowd, wide = 1 - np.arange(N) * 2.0**-24, RNG.normal(size=N)
    for metric in (m.AUC(input="binary"), m.EER()):
        with pytest.warns(UserWarning, match="score_range"):
            metric.compute(stream(metric, crowd.astype(np.float32), BINARY))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            metric.compute(stream(metric, wide.astype(np.float32), BINARY))
            traced_compute(metric)(stream(metric, crowd.astype(np.float32), BINARY))


def test_a_score_range_resolves_confident_sigmoids():
    """Sigmoids near 1: equal bins over their range bring the half-width from above 0.005 to below 0.001."""
    scores = (1 / (1 + np.exp(-RNG.normal(9, 1, N)))).astype(np.float32)
    _, wide = certified(m.AUC(input="binary"), scores, BINARY)
    _, fine = certified(m.AUC(input="binary", score_range=(0.999, 1.0)), scores, BINARY)
    assert wide > 0.005 and fine < 1e-3


def test_the_threshold_of_a_histogram():
    """aux["threshold"] is the lower edge of a bin: accepting scores at or above it makes FAR reach FRR."""
    for options in ({}, {"score_range": (-8.0, 8.0)}):
        metric = m.EER(**options)
        threshold = scores_of(metric, stream(metric, SCORES[:, 1], BINARY)).aux["EER"]["threshold"]
        far = np.mean(SCORES[BINARY == 0, 1] >= threshold)
        assert far >= np.mean(SCORES[BINARY == 1, 1] < threshold)


def test_one_sided_streams_are_undefined():
    """Only positives: an error on the host, NaN under jit, for buffers and histograms."""
    for metric in (m.AUC(input="binary"), m.EER(capacity=4)):
        state = metric.update(metric.init(), SCORES[:3, 0], np.ones(3, int))
        with pytest.raises(emma.DegenerateLabelsError):
            metric.compute(state)
        assert np.isnan(traced_compute(metric)(state))


def over_devices(shard, mesh, *arrays):
    """``shard`` mapped over eight devices, its result replicated."""
    spec = P("data")
    arrays = [jax.device_put(x, jax.sharding.NamedSharding(mesh, spec)) for x in arrays]
    return jax.jit(jax.shard_map(shard, mesh=mesh, in_specs=(spec,) * len(arrays), out_specs=P()))(*arrays)


# --- all_reduce -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "task",
    [
        pytest.param(emma.get_task("E-ID-FP", num_classes=3, capacity=3 * N), marks=slow, id="fingerprint"),
        pytest.param(emma.get_task("E-ID-DRONE", num_classes=3, input="classes"), id="histogram"),
        pytest.param(emma.get_task("E-ID-DRONE", num_classes=3, input="classes", capacity=N), id="buffer"),
        pytest.param(emma.get_task("E-LOC-LOS", num_classes=3), id="balanced"),
    ],
)
def test_all_reduce_leaves_one_state(task):
    """Eight devices, one shard each: the reduced state has the bits of the one-device state, by psum under shard_map
    and under vmap with an axis name."""
    mesh = jax.make_mesh((8,), ("data",))
    whole = task.update(task.init(), SCORES, LABELS)

    def shard(p, y):
        return task.all_reduce(task.update(task.init(axis_name="data"), p, y), "data")

    mapped = over_devices(shard, mesh, SCORES, LABELS)
    rows = jax.vmap(
        lambda p, y: task.all_reduce(task.update(task.init(), p, y), "data"), axis_name="data", out_axes=None
    )(SCORES.reshape(8, -1, 3), LABELS.reshape(8, -1))
    for name in whole:
        for key, want in whole[name].items():
            assert np.array_equal(mapped[name][key], want) and np.array_equal(rows[name][key], want), (name, key)


def test_a_buffer_that_overflows_only_together():
    """Eight shards that fit on their own but not as one: all_reduce sets the flag."""
    metric = m.AUC(input="binary", capacity=N // 4)
    mesh = jax.make_mesh((8,), ("data",))

    def shard(p, y):
        return metric.all_reduce(metric.update(metric.init(axis_name="data"), p, y), "data")

    state = over_devices(shard, mesh, SCORES[:, 0], BINARY)
    with pytest.raises(emma.EvaluationError, match="capacity"):
        metric.compute(state)


# --- init ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["E-LOC-LOS"])
def test_an_unknown_shape_names_its_parameter(task):
    """init without num_classes raises an error that names it."""
    with pytest.raises(emma.EvaluationError, match="num_classes"):
        emma.get_task(task).init()
    with pytest.raises(emma.EvaluationError, match="num_classes"):
        m.AUC(input="classes").init()


def test_a_state_of_other_parameters_is_refused():
    """A state for three classes fed with four: a ShapeError that names the state."""
    state = m.BalancedAccuracy(num_classes=3).init()
    with pytest.raises(emma.ShapeError, match="state"):
        m.BalancedAccuracy(num_classes=4).update(state, np.zeros((2, 4)), np.array([0, 1]))
    with pytest.raises(emma.ShapeError, match="state"):
        m.AUC(input="binary", capacity=5).update(m.AUC(input="binary", capacity=4).init(), SCORES[:2, 0], BINARY[:2])


def test_a_stack_of_states():
    """States with a leading axis (a sweep's) finalise together; a bad one is NaN in its place and spoils no other."""
    for metric in (m.MeanAngularError(), m.AUC(input="binary"), m.AUC(input="binary", capacity=8), m.EER(capacity=8)):
        labels = np.float32([0, 1, 0, 1]) if metric.unit == "deg" else np.array([0, 1, 0, 1])
        good = metric.update(metric.init(), np.float32([0.1, 0.7, 0.5, 0.3]), labels)
        bad = metric.update(metric.init(), np.float32([0.1, np.nan, 0.5, 0.3]), labels)
        stack = jax.tree.map(lambda *x: np.stack(x), good, bad, good)
        got = metric.compute(stack)
        assert got.shape == (3,) and np.isnan(got[1]) and got[0] == got[2] == metric.compute(good)
