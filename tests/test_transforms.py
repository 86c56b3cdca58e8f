"""The same functions inside any JAX transform, on eight forced devices and from several threads, without recompiling.
Oracle: the host call (itself held to exact rationals elsewhere), to 4 float32 ulp; bit equality between transforms."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import chex
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import emma_jax as emma

N = 64
RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 4, N).astype(np.int32)
SCORES = (RNG.normal(size=(N, 4)) + np.eye(4)[LABELS]).astype(np.float32)
ANGLES = RNG.uniform(-400, 400, (2, N)).astype(np.float32)
TASKS = {
    "E-LOC-AOA": (emma.get_task("E-LOC-AOA"), ANGLES[0], ANGLES[1]),
    "E-LOC-LOS": (emma.get_task("E-LOC-LOS", num_classes=4), SCORES, LABELS),
    "E-ID-DRONE": (emma.get_task("E-ID-DRONE", num_classes=4, input="classes"), SCORES, LABELS),
    "E-ID-FP": (emma.get_task("E-ID-FP", num_classes=4), SCORES, LABELS),
    "E-CH-BEAM": (emma.get_task("E-CH-BEAM"), SCORES, LABELS),
    "E-SC-SENSE": (emma.get_task("E-SC-SENSE"), SCORES[:, 0], LABELS % 2),
}
each = pytest.mark.parametrize("name", TASKS)
slow = pytest.mark.slow
# What compiles much and differs little between tasks runs with the slow marker for the others.
some = pytest.mark.parametrize(
    "name", [t if t in ("E-LOC-AOA", "E-ID-FP") else pytest.param(t, marks=slow) for t in TASKS]
)


def agrees(traced, host):
    """Every value within 4 float32 ulp (5e-7 for AUC and EER) of the host's float64; the validity equal."""
    assert tuple(sorted(traced)) == tuple(sorted(host))
    for name, want in host.items():
        got = np.asarray(traced[name])
        assert got.dtype == np.float32 and got.shape == ()
        assert oracles.ulps32(got, want) <= 4 or (name in ("AUC", "EER") and abs(float(got) - want) <= 5e-7)
        for key, count in host.validity[name].as_dict().items():
            assert int(getattr(traced.validity[name], key)) == count


def bits(scores):
    """The float32 values as integers, by name."""
    return {k: np.asarray(v).view(np.uint32).tolist() for k, v in scores.items()}


# --- chex.variants: with and without jit, with and without placement on a device --------------------------------


class Variants(chex.TestCase):
    """The arrays of every task in each of chex's variants."""

    @chex.variants(with_jit=True, without_jit=True, with_device=True, without_device=True)
    def test_angles_and_accuracy(self):
        """E-LOC-AOA and E-CH-BEAM agree with the host call in every variant."""
        for name in ("E-LOC-AOA", "E-CH-BEAM"):
            task, preds, labels = TASKS[name]
            got = self.variant(lambda p, y, task=task: emma.evaluate(task, p, y).headline)(preds, labels)
            want = emma.evaluate(task, preds, labels).headline
            assert abs(float(got) - want) <= 4 * 2.0**-24 * max(1.0, want)


# --- transforms ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [t if t != "E-ID-FP" else pytest.param(t, marks=slow) for t in TASKS])
def test_jit_vmap_scan(name):
    """jit, a vmapped row and a scanned row give the same float32 bits, next to the host's value."""
    task, preds, labels = TASKS[name]
    one = lambda p: emma.evaluate(task, p, labels)  # noqa: E731
    rows = jnp.stack([preds[::-1], preds, preds * 0.5])
    jitted = jax.jit(one)(preds)
    agrees(jitted, emma.evaluate(task, preds, labels))
    for mapped in jax.jit(lambda r: (jax.vmap(one)(r), jax.lax.scan(lambda c, p: (c, one(p)), 0, r)[1]))(rows):
        assert {k: v[1] for k, v in bits(mapped).items()} == bits(jitted)


def test_eager_vmap_and_map():
    """vmap and lax.map outside jit give the bits of jit too."""
    task, preds, labels = TASKS["E-LOC-LOS"]
    one = lambda p: emma.evaluate(task, p, labels)  # noqa: E731
    rows = jnp.stack([preds[::-1], preds])
    for mapped in (jax.vmap(one)(rows), jax.lax.map(one, rows)):
        assert {k: v[1] for k, v in bits(mapped).items()} == bits(jax.jit(one)(preds))


@each
def test_streams_in_scan(name):
    """A task's state is a scan carry: fixed shapes and dtypes, the integers of one host update."""
    task, preds, labels = TASKS[name]
    batches = preds.reshape(4, -1, *preds.shape[1:]), labels.reshape(4, -1)

    @jax.jit
    def run(p, y):
        return jax.lax.scan(lambda s, batch: (task.update(s, *batch), None), task.init(), (p, y))[0]

    scanned, whole = run(*batches), task.update(task.init(), preds, labels)
    chex.assert_trees_all_equal(scanned, whole)
    chex.assert_trees_all_equal_shapes_and_dtypes(scanned, task.init())


@some
def test_as_aux_of_value_and_grad(name):
    """Scores ride along as aux; the gradient is that of the loss alone, and a metric's own gradient is zero."""
    task, preds, labels = TASKS[name]

    @jax.jit
    def both(p):
        loss = lambda x: (jnp.sum(x**2), emma.evaluate(task, x, labels))  # noqa: E731
        return jax.value_and_grad(loss, has_aux=True)(p), jax.grad(lambda x: emma.evaluate(task, x, labels).headline)(p)

    ((_, scores), grad), zero = both(preds)
    agrees(scores, emma.evaluate(task, preds, labels))
    assert np.array_equal(grad, 2 * preds) and not np.any(zero)


@some
def test_jvp_and_remat(name):
    """Under jvp the tangent is zero, under remat and a reverse pass through scan the loss's gradient is whole."""
    task, preds, labels = TASKS[name]
    metric = lambda x: emma.evaluate(task, x, labels).headline  # noqa: E731

    @jax.jit
    def run(p):
        value, tangent = jax.jvp(metric, (p,), (jnp.ones_like(p),))
        layered = jax.checkpoint(lambda x: jnp.sum(x) + metric(x))
        step = lambda carry, _: (carry * 1.0, layered(carry))  # noqa: E731
        grad = jax.grad(lambda x: jnp.sum(jax.lax.scan(step, x, length=2)[1]))(p)
        return value, tangent, grad

    value, tangent, grad = run(preds)
    assert oracles.ulps32(value, emma.evaluate(task, preds, labels).headline) <= 8
    assert tangent == 0 and np.array_equal(grad, np.full_like(preds, 2))


def test_a_donated_state():
    """A state may be donated to the step that updates it."""
    task, preds, labels = TASKS["E-LOC-AOA"]
    step = jax.jit(task.update, donate_argnums=0)
    state = task.init()
    for _ in range(3):
        old, state = state, step(state, preds, labels)
        assert all(x.is_deleted() for x in jax.tree.leaves(old))
    assert task.compute(state).headline == emma.evaluate(task, preds, labels).headline


def test_mask_and_weights_under_trace():
    """where and weights may be traced, scalar, or of fewer axes; NaN under a False mask leaves the value alone."""
    task, preds, labels = TASKS["E-LOC-AOA"]
    mask, weights = RNG.random(N) < 0.7, RNG.integers(0, 90_000, N)
    dirty = np.where(mask, preds, np.nan).astype(np.float32)
    want = emma.evaluate(task, preds, labels, where=mask, weights=weights)
    run = jax.jit(lambda p, w, c: emma.evaluate(task, p, labels, where=w, weights=c))
    agrees(run(dirty, mask, weights), want)
    agrees(run(preds, True, 3), emma.evaluate(task, preds, labels, weights=3))


def test_a_task_is_static():
    """Tasks and metrics are hashable, equal by value, and may be static arguments."""
    run = jax.jit(lambda task, p, y: emma.evaluate(task, p, y), static_argnums=0)
    task, preds, labels = TASKS["E-CH-BEAM"]
    agrees(run(task, preds, labels), emma.evaluate(task, preds, labels))
    assert hash(emma.get_task("E-CH-BEAM")) == hash(task) and emma.get_task("E-CH-BEAM", k=2) != task


def test_under_the_callers_own_strictness():
    """Strict dtype promotion, forbidden rank promotion, debug_nans and leak checking, as careful callers set them: the
    same values, from jit, groups, streams and host calls."""
    task, preds, labels = TASKS["E-ID-DRONE"]
    groups = np.arange(N, dtype=np.int32) % 2
    want, by_group = emma.evaluate(task, preds, labels), emma.evaluate_groups(task, preds, labels, groups)
    with (
        jax.numpy_dtype_promotion("strict"),
        jax.numpy_rank_promotion("raise"),
        jax.debug_nans(True),
        jax.checking_leaks(),
    ):
        agrees(jax.jit(lambda p, y: emma.evaluate(task, p, y))(preds, labels), want)
        assert dict(emma.evaluate(task, preds, labels)) == dict(want)
        assert np.array_equal(emma.evaluate_groups(task, preds, labels, groups).headline, by_group.headline)
        traced = jax.jit(lambda p, y, g: emma.evaluate_groups("E-LOC-LOS", p, y, g, num_groups=2).headline)
        assert not np.isnan(traced(preds, labels, groups)).any()
        state = task.merge(task.update(task.init(), preds, labels), task.init())
        assert abs(task.compute(state).headline - want.headline) <= task.compute(state).aux["AUC"]["half_width"]


# --- devices ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["explicit", pytest.param("auto", marks=slow)])
def mesh(request):
    """Eight devices: the default mesh (Explicit axes) and an Auto one."""
    assert jax.device_count() == 8
    if request.param == "explicit":
        return jax.make_mesh((8,), ("data",))
    return jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))


def sharded(mesh, *arrays):
    """Arrays split along their first axis."""
    return [jax.device_put(x, NamedSharding(mesh, P("data"))) for x in arrays]


@pytest.mark.parametrize("name", [t if t != "E-ID-FP" else pytest.param(t, marks=slow) for t in TASKS])
def test_sharded_arrays(name, mesh):
    """evaluate and the stream on arrays sharded over eight devices, called from the host and under jit."""
    task, preds, labels = TASKS[name]
    p, y, mask = sharded(mesh, preds, labels, np.ones(N, bool))
    want = emma.evaluate(task, preds, labels)
    assert dict(emma.evaluate(task, p, y, where=mask)) == dict(want)
    agrees(jax.jit(lambda a, b, w: emma.evaluate(task, a, b, where=w))(p, y, mask), want)
    state = jax.jit(lambda a, b: task.merge(task.init(), task.update(task.init(), a, b)))(p, y)
    chex.assert_trees_all_equal(state, task.update(task.init(), preds, labels))


@each
def test_shard_map(name, mesh):
    """Default shard_map: a scan over each shard's batches with a device-varying carry, then all_reduce, leaves the
    one-device state on every device; a per-shard evaluate gives eight values."""
    task, preds, labels = TASKS[name]
    p, y = sharded(mesh, preds, labels)

    def shard(a, b):
        a, b = a.reshape(2, -1, *a.shape[1:]), b.reshape(2, -1)
        carry = task.init(axis_name="data")
        state = jax.lax.scan(lambda s, batch: (task.update(s, *batch), None), carry, (a, b))[0]
        return task.all_reduce(state, "data")

    spec = P("data")
    state = jax.jit(jax.shard_map(shard, mesh=mesh, in_specs=(spec, spec), out_specs=P()))(p, y)
    chex.assert_trees_all_equal(state, task.update(task.init(), preds, labels))


def test_per_shard_scores(mesh):
    """evaluate on each shard by itself, inside shard_map: eight values, those of the eight slices."""
    task, preds, labels = TASKS["E-LOC-AOA"]
    local = lambda a, b: emma.evaluate(task, a, b).headline[None]  # noqa: E731
    mapped = jax.shard_map(local, mesh=mesh, in_specs=(P("data"), P("data")), out_specs=P("data"))
    got = jax.jit(mapped)(*sharded(mesh, preds, labels))
    want = [emma.evaluate(task, p, y).headline for p, y in zip(preds.reshape(8, -1), labels.reshape(8, -1))]
    assert all(oracles.ulps32(g, w) <= 4 for g, w in zip(got, want))


def test_two_axes():
    """A 4 x 2 mesh, reduced over both axes by name."""
    mesh = jax.make_mesh((4, 2), ("data", "model"))
    task, preds, labels = TASKS["E-LOC-LOS"]
    spec, names = P(("data", "model")), ("data", "model")

    def shard(a, b):
        return task.all_reduce(task.update(task.init(axis_name=names), a, b), names)

    args = [jax.device_put(x, NamedSharding(mesh, spec)) for x in (preds, labels)]
    state = jax.jit(jax.shard_map(shard, mesh=mesh, in_specs=(spec, spec), out_specs=P()))(*args)
    chex.assert_trees_all_equal(state, task.update(task.init(), preds, labels))


# --- compilations -------------------------------------------------------------------------------------------------


class Compilations:
    """Counts backend compilations between enter and exit."""

    count = 0

    def __enter__(self):
        Compilations.count = 0
        return self

    def __exit__(self, *_):
        self.count = Compilations.count


def _count(event: str, duration: float, **_) -> None:
    Compilations.count += event == "/jax/core/compile/backend_compile_duration"


jax.monitoring.register_event_duration_secs_listener(_count)


@pytest.mark.parametrize(
    "name", ["E-LOC-AOA", "E-ID-FP", pytest.param("E-LOC-LOS", marks=slow), pytest.param("E-SC-SENSE", marks=slow)]
)
def test_two_hundred_lengths(name):
    """A loop over 200 different N, from 2 to 100,000, compiles at most 12 times."""
    task, _, _ = TASKS[name]
    task = task.replace(num_classes=5) if name in ("E-LOC-LOS", "E-ID-FP") else task
    task = emma.Task(task.id + "-again", task.metrics)
    rng = np.random.default_rng(1)
    columns = {"E-LOC-AOA": (), "E-SC-SENSE": ()}.get(name, (5,))
    pool = rng.random((100_000, *columns)).astype(np.float32)
    truth = (
        pool * 2 if name == "E-LOC-AOA" else (np.arange(100_000) % (2 if name == "E-SC-SENSE" else 5)).astype(np.int32)
    )
    lengths = np.unique(np.geomspace(2, 100_000, 250).astype(int))
    lengths = np.concatenate([lengths[:190], lengths[-10:]])
    assert len(lengths) == 200 and lengths[-1] == 100_000
    with Compilations() as compilations:
        for n in lengths:
            emma.evaluate(task, pool[:n], truth[:n])
    assert compilations.count <= 12


@pytest.mark.parametrize("weighted", [False, True])
def test_a_length_that_comes_again(weighted):
    """A large batch that comes for the third time is scored by a kernel of its own size: to the same bits, by one more
    compilation. Lengths that come twice never compile one; metrics whose sums depend on the cut never have one.

    Oracle: the same call in windows, which the other tests hold to definitions; counts by NumPy.
    """
    n = 140_003
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(n, 4)).astype(np.float32)
    labels = rng.integers(0, 4, n).astype(np.int32)
    angles = rng.uniform(0, 360, (2, n)).astype(np.float32)
    weights = rng.integers(0, 3, n) if weighted else None
    metrics = emma.metrics
    classes = (metrics.Top1Accuracy(), metrics.BalancedAccuracy(num_classes=4), metrics.TopKAccuracy(k=2))
    task = emma.Task("classes-again", classes)
    aoa = emma.Task("angles-again", (metrics.MeanAngularError(),))
    nmse = emma.Task("nmse-again", (metrics.NMSE(),))
    for one, p, y in ((task, scores, labels), (aoa, *angles), (nmse, scores, scores[::-1].copy())):
        found = []
        for i in range(5):
            with Compilations() as compilations:
                found.append(emma.evaluate(one, p, y, weights=weights))
            assert i in (0, 2) or compilations.count == 0
            assert i != 2 or compilations.count == (one is not nmse)
        for again in found[1:]:
            assert dict(again) == dict(found[0])
            assert [v.as_dict() for v in again.validity.values()] == [v.as_dict() for v in found[0].validity.values()]
    hit = (scores.argmax(1) == labels) * (1 if weights is None else weights)
    right = emma.evaluate(task, scores, labels, weights=weights)["Top1Accuracy"]
    assert right == hit.sum() / (n if weights is None else weights.sum())
    with Compilations() as compilations:
        for more in range(3):
            for _ in range(2):
                emma.evaluate(task, scores[: n - more - 1], labels[: n - more - 1])
    assert compilations.count <= (3 if weighted else 0)  # the windows, which came with weights so far


@some
def test_no_recompilation(name):
    """Five more steps of one shape compile nothing: evaluate on the host, jitted evaluate, update, merge, compute."""
    task, preds, labels = TASKS[name]
    run = jax.jit(lambda p, y: emma.evaluate(task, p, y).headline)

    def step():
        emma.evaluate(task, preds, labels)
        state = task.update(task.init(), preds, labels)
        emma.evaluate(task, jnp.asarray(preds), jnp.asarray(labels))
        task.merge(state, state)
        run(preds, labels)

    step(), step()
    with Compilations() as compilations:
        for _ in range(5):
            step()
    assert compilations.count == 0


# --- stress -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1 << 14, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_four_threads_on_sharded_samples(n, mesh):
    """Samples sharded over eight devices, scored from four Python threads at once, on the host path and under jit: all
    finish, with one answer."""
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 4, n).astype(np.int32)
    scores = (rng.normal(size=(n, 4)) + np.eye(4)[labels]).astype(np.float32)
    p, y = sharded(mesh, scores, labels)
    task = emma.get_task("E-ID-FP", num_classes=4)
    jitted = jax.jit(lambda a, b: emma.evaluate(task, a, b))
    want = emma.evaluate(task, scores, labels)
    start = threading.Barrier(4)

    def work(i):
        start.wait(60)
        return [dict(emma.evaluate(task, p, y)) if i % 2 else bits(jitted(p, y)) for _ in range(2)]

    with ThreadPoolExecutor(4) as pool:
        found = [f.result(timeout=300) for f in [pool.submit(work, i) for i in range(4)]]
    assert all(f == dict(want) for f in found[1] + found[3])
    assert all(f == found[0][0] for f in found[0] + found[2])
    agrees(jitted(p, y), want)
