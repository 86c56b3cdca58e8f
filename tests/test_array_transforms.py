"""Array metrics inside JAX transforms and over eight forced devices. Oracle: the host call (itself held to extended
precision elsewhere), to 2e-6 relative (5e-6 dB): the unit is the sample, whose row may round differently by an ulp."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import emma_jax as emma

m = emma.metrics
RNG = np.random.default_rng(0)
N = 16


def noisy(*shape, kind=np.complex64):
    t = RNG.normal(size=(*shape, 2)).view(complex)[..., 0]
    p = t + 0.3 * RNG.normal(size=(*shape, 2)).view(complex)[..., 0]
    return tuple((x if kind == np.complex64 else x.real).astype(kind) for x in (p, t))


FIELDS = [dict(zip("EH", pair)) for pair in zip(noisy(N, 2, 10, 3), noisy(N, 2, 10, 3))]
SCORES = RNG.normal(size=(N, 8)).astype(np.float32)
TASKS = {
    "NMSE": (emma.get_task("E-CH-CSI"), *noisy(N, 3, 4)),
    "mean_db": (emma.get_task("E-CH-CSI", reduction="mean_db"), *noisy(N, 40, kind=np.float32)),
    "SGCS": (emma.Task("G", (m.SGCS(),)), *noisy(N, 3, 8)),
    "SISDR": (emma.get_task("E-SC-SEP"), *noisy(N, 2, 40)),
    "best": (emma.get_task("E-SC-SEP", permutation="best", zero_mean=True), *noisy(N, 2, 40, kind=np.float32)),
    "NF": (emma.Task("F", (m.RelL2("E"), m.LocalQ50("E"))), *FIELDS),
    "NF-all": (emma.get_task("EMVal-NF"), *FIELDS),
    "NF-exact": (emma.Task("M", (m.LocalQ50(capacity=400),)), FIELDS[0]["E"], FIELDS[1]["E"]),
    "SP": (emma.get_task("EMVal-SP"), *noisy(N, 2, 2)),
    "DBA": (emma.Task("D", (m.DBAScore(),)), SCORES, RNG.integers(0, 8, N).astype(np.int32)),
    "loss": (emma.Task("L", (m.BeamPowerLoss(), m.RSRPAccuracy())), SCORES, np.abs(SCORES[::-1]) + np.float32(0.1)),
    "TPR": (emma.Task("T", (m.TPRatFPR(fpr=0.2, capacity=32),)), SCORES[:, 0], (SCORES[:, 1] > 0).astype(np.int32)),
}
DEFAULT = ("NMSE", "NF")
each = pytest.mark.parametrize("name", [t if t in DEFAULT else pytest.param(t, marks=pytest.mark.slow) for t in TASKS])
tree = jax.tree_util.tree_map


def close(got, want):
    """Every value next to the host's; NaN nowhere."""
    assert list(got) == list(want)
    for name, value in want.items():
        assert np.allclose(np.asarray(got[name], np.float64), value, rtol=2e-6, atol=5e-6), name


def streamed(task, want):
    """What a stream of the task has to reach: the value, or for a histogram something within its half-width."""

    def check(scores):
        for name, value in want.items():
            width = np.asarray(scores.aux[name].get("half_width", 0.0), np.float64)
            assert np.all(np.abs(np.asarray(scores[name], np.float64) - value) <= width + 5e-6 + 2e-6 * abs(value)), (
                name
            )

    return check


@each
def test_transforms(name):
    """vmap, lax.scan over states, and value_and_grad of a rematerialised loss with scores as aux, in one compilation:
    the host's value each time; the gradient is the loss's alone."""
    task, preds, labels = TASKS[name]
    want = emma.evaluate(task, preds, labels)
    leaf = lambda x: jax.tree_util.tree_leaves(x)[0]  # noqa: E731

    @jax.jit
    def run(p, t):
        one = lambda a: emma.evaluate(task, a, t)  # noqa: E731
        out = {"vmap": jax.vmap(one)(tree(lambda x: jnp.stack([x[::-1], x]), p))}
        cut = lambda x: x.reshape(4, -1, *x.shape[1:])  # noqa: E731
        step = lambda s, batch: (task.update(s, *batch), None)  # noqa: E731
        state = jax.lax.scan(step, task.init(), (tree(cut, p), tree(cut, t)))[0]
        out["stream"] = task.compute(state)

        def loss(a):
            return jnp.sum(jnp.abs(leaf(a)) ** 2), one(a)

        (_, out["aux"]), out["grad"] = jax.value_and_grad(jax.checkpoint(loss), has_aux=True)(p)
        return out

    got = run(preds, labels)
    close(tree(lambda x: x[1], got["vmap"]), want)
    streamed(task, want)(got["stream"])
    close(got["aux"], want)
    assert np.allclose(leaf(got["grad"]), 2 * np.conj(leaf(preds)), rtol=1e-5)


def test_jvp():
    """A score under jit and jvp: the host's value, and no slope."""
    task, preds, labels = TASKS["NMSE"]
    value, slope = jax.jit(lambda p, t: jax.jvp(lambda a: emma.evaluate(task, a, t).headline, (p,), (p,)))(
        preds, labels
    )
    assert abs(value - emma.evaluate(task, preds, labels).headline) <= 5e-6 and slope == 0


@pytest.mark.parametrize("axes", ["explicit", pytest.param("auto", marks=pytest.mark.slow)])
@each
def test_eight_devices(name, axes):
    """Arrays sharded over eight devices, scored from the host and inside shard_map as a scan and all_reduce: the host's
    value, on the default mesh and an Auto one."""
    task, preds, labels = TASKS[name]
    want = emma.evaluate(task, preds, labels)
    mesh = jax.make_mesh((8,), ("data",), axis_types=None if axes == "explicit" else (AxisType.Auto,))
    p, t = tree(lambda x: jax.device_put(x, NamedSharding(mesh, P("data"))), (preds, labels))
    close(emma.evaluate(task, p, t), want)
    if axes == "auto" or name == "NMSE":
        close(jax.jit(lambda a, b: emma.evaluate(task, a, b))(p, t), want)

    def shard(a, b):
        cut = lambda x: x.reshape(2, -1, *x.shape[1:])  # noqa: E731
        carry = task.init(axis_name="data")
        state = jax.lax.scan(lambda s, batch: (task.update(s, *batch), None), carry, (tree(cut, a), tree(cut, b)))[0]
        return task.all_reduce(state, "data")

    state = jax.jit(jax.shard_map(shard, mesh=mesh, in_specs=(P("data"), P("data")), out_specs=P()))(p, t)
    streamed(task, want)(task.compute(state))


FAST = ("SGCS", "SISDR", "SP")


@pytest.mark.parametrize("name", [t if t in FAST else pytest.param(t, marks=pytest.mark.slow) for t in TASKS])
def test_every_method(name):
    """init, update and merge of two unequal halves in either order, all_reduce of the two over a mapped axis, compute:
    each time the value of calling the task."""
    task, preds, labels = TASKS[name]
    check = streamed(task, emma.evaluate(task, preds, labels))
    cut = (tree(lambda x: x[:5], (preds, labels)), tree(lambda x: x[5:], (preds, labels)))
    a, b = (task.update(task.init(), *pair) for pair in cut)
    check(task.compute(task.merge(a, b)))
    check(task.compute(task.merge(b, task.merge(task.init(), a))))
    both = tree(lambda x, y: jnp.stack([x, y]), a, b)
    check(task.compute(jax.vmap(lambda s: task.all_reduce(s, "data"), axis_name="data", out_axes=None)(both)))


@pytest.mark.parametrize("dtype", [np.float16, np.int16])
def test_half_and_integer_planes(dtype):
    """float16 and int16 planes of fields, S-parameters and vectors, up to 3e4, of which squares would overflow either:
    the value of the complex64 array that holds the same numbers, 1e-6."""
    planes = [np.round(6000 * np.stack([x.real, x.imag], 1)).astype(dtype) for x in noisy(12, 2, 3)]
    whole = [(x[:, 0].astype(np.float64) + 1j * x[:, 1]).astype(np.complex64) for x in planes]
    for kind in (m.RelL2, m.LocalQ50, m.LocalCosQ50, m.RealImagRMSE, m.MagWMAE, m.PhaseWMAE, m.SGCS, m.NMSE):
        want = kind()(*whole)
        assert abs(kind(iq_axis=1)(*planes) - want) <= 1e-6 * abs(want), kind


def test_strict_callers():
    """Strict dtype promotion, forbidden rank promotion, debug_nans and leak checks, as careful callers set them: the
    same values."""
    for name in ("NMSE", "SISDR"):
        task, preds, labels = TASKS[name]
        want = emma.evaluate(task, preds, labels)
        with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"), jax.checking_leaks():
            close(jax.jit(lambda p, t, task=task: emma.evaluate(task, p, t))(preds, labels), want)
            assert dict(emma.evaluate(task, preds, labels)) == dict(want)


def test_groups_and_samples():
    """evaluate_groups scores each group alone; per_sample is each sample alone."""
    for name in DEFAULT:
        task, preds, labels = TASKS[name]
        groups = np.arange(N) % 3
        got = emma.evaluate_groups(task, preds, labels, groups)
        for g in range(3):
            pick = tree(lambda x, keep=groups == g: x[keep], (preds, labels))
            close(tree(lambda x, g=g: x[g], got), emma.evaluate(task, *pick))


def test_device_arrays_are_host_calls():
    """Committed JAX arrays outside any transform score as NumPy does."""
    for name in DEFAULT:
        task, preds, labels = TASKS[name]
        close(emma.evaluate(task, *tree(jnp.asarray, (preds, labels))), emma.evaluate(task, preds, labels))
