"""One answer everywhere: for every metric, random numbers of samples, batch splits, orders, padding and devices.

Oracle: the state (integers) that one host call reaches from all samples in their order. Counts, ranks and angles have
not a differing bit. A sum of energies or decibels may differ by 1 float32 ulp, and only because a sample's own row is
reduced in an array of another shape: with the same compiled kernel, another split, order and padding give the very same
integers. A quotient of two of them may differ by 2, NMSE and a cosine by 4. A batch of many probes adds neighbours up
as floats for rel_l2, which moves it by less than an ulp where no few probes hold all the energy.
Text is counted in integers and equal, but for CIDEr-D with a frozen table, whose summands are float64: 1e-14."""

from __future__ import annotations

import functools
import warnings
import zlib

import jax
import numpy as np
import pytest
from answer_cases import CAPTIONS, CASES, MOST, REFERENCES, TEXT, same_bits, take, within
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import emma_jax as emma
from emma_jax import metrics as m

DEVICES = (1, 2, 4, 8)
slow = pytest.mark.slow
# Each number of devices compiles a kernel: by default a case is drawn on one or two of them, in the long run on all.
DEFAULT = {
    **{"angles": (1, 8), "classes": (2,), "binary": (8,), "beams": (4,), "channels": (2,), "signals": (8,)},
    **{"fields": (4,), "sparams": (8,), "captions": (1, 8), "answers": (2, 4)},
}


def mesh_of(devices):
    return Mesh(np.array(jax.devices()[:devices]), ("data",))


@functools.cache
def stream_step(name, devices):
    """One batch over so many devices: each updates a state of its own, the states are added up and merged."""
    task, rows = CASES[name].task, P("data")

    def local(preds, labels, where):
        return task.all_reduce(task.update(task.init(axis_name="data"), preds, labels, where=where), "data")

    over = jax.shard_map(local, mesh=mesh_of(devices), in_specs=(rows, rows, rows), out_specs=P())
    return jax.jit(lambda state, *batch: task.merge(state, over(*batch)))


def batches_of(case, rng, preds, labels, slots):
    """The samples in random order, in batches of random numbers, each at random places of an array of ``slots`` rows;
    the rows between hold what must not count."""
    n = len(jax.tree.leaves(labels)[0])
    left = rng.permutation(n)
    while len(left):
        size = int(rng.integers(1, min(slots, len(left)) + 1))
        now, left = left[:size], left[size:]
        at = rng.permutation(slots)[:size]
        where = np.zeros(slots, bool)
        where[at] = True

        def padded(x, garbage, at=at, now=now):
            out = np.full((slots, *x.shape[1:]), garbage, x.dtype)
            out[at] = x[now]
            return out

        p = jax.tree.map(lambda x: padded(x, np.nan if x.dtype.kind in "fc" else 9), preds)
        t = jax.tree.map(lambda x: padded(x, case.bad_label), labels)
        shape = case.task.headline._sample_shape(*case.task.headline._arrange(p, t, ""), "")
        yield p, t, np.broadcast_to(where.reshape(-1, *[1] * (len(shape) - 1)), shape)
        if rng.random() < 0.1:  # a batch of nothing but padding
            yield take(p, ~where[:, None].any(1) | True), t, np.zeros(shape, bool)


def streamed(name, rng, preds, labels, devices, slots):
    """The state of one random stream over so many devices."""
    case, rows = CASES[name], NamedSharding(mesh_of(devices), P("data"))
    state = jax.device_put(case.task.init(), NamedSharding(mesh_of(devices), P()))
    for batch in batches_of(case, rng, preds, labels, slots):
        state = stream_step(name, devices)(state, *jax.device_put(batch, rows))
    return jax.tree.map(np.asarray, state)


def values(task, state):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # few samples make histograms wide
        return dict(task.compute(state))


@pytest.mark.parametrize(
    ("name", "first", "count", "slots"),
    [
        *(pytest.param(k, 0, 20, 64, marks=slow if CASES[k].long else ()) for k in CASES),
        *(pytest.param(k, *span, marks=slow) for k in CASES for span in ((20, 100, 64), (120, 80, 8))),
    ],
)
def test_any_stream_is_one_shot(name, first, count, slots):
    """So many random streams: the bits of one host call for counts, ranks and angles; a float32 ulp or two for the
    rest, and no differing bit between two streams through the same kernel."""
    case = CASES[name]
    for seed in range(first, first + count):
        rng = np.random.default_rng((seed, zlib.crc32(name.encode())))
        n = int(rng.integers(3, MOST + 1 if slots > 8 else 33))
        devices = DEVICES[seed % 4] if first or case.long else DEFAULT[name][seed % len(DEFAULT[name])]
        preds, labels = case.draw(rng, n)
        whole = jax.tree.map(np.asarray, case.task.update(case.task.init(), preds, labels))
        state = streamed(name, rng, preds, labels, devices, slots)
        label = f"{name}, draw {seed}: n={n} on {devices} devices"
        exact = [x.name for x in case.task.metrics if x.name not in case.loose]
        assert not same_bits({k: whole[k] for k in exact}, {k: state[k] for k in exact}), label
        if not case.loose:
            continue
        want, got = values(case.task, whole), values(case.task, state)
        for x in case.task.metrics:
            assert abs(got[x.name] - want[x.name]) <= within(x, want[x.name]), (
                label,
                x.name,
                got[x.name],
                want[x.name],
            )
        again = streamed(name, rng, preds, labels, devices, slots)
        assert not same_bits(state, again), label


@pytest.mark.parametrize(
    "name", [*("angles", "beams"), *(pytest.param(k, marks=slow) for k in ("channels", "ratios", "signals", "sparams"))]
)
def test_evaluate_finalises_the_state_of_a_stream(name):
    """Metrics that are sums: one-shot `evaluate` gives the value of the streamed state, bit for bit."""
    case = CASES[name]
    preds, labels = case.draw(np.random.default_rng(1), MOST)
    state = case.task.update(case.task.init(), preds, labels)
    assert dict(emma.evaluate(case.task, preds, labels)) == values(case.task, state)


@pytest.mark.parametrize("name", ["classes", "binary", pytest.param("fields", marks=slow)])
def test_evaluate_finalises_exact_streams_of_ranks(name):
    """Buffers with room for all: the one-shot value, bit for bit; rel_l2, which adds up neighbours as floats in a call
    of many entries but not in a small chunk of an update, to one float32 ulp."""
    case = CASES[name]
    preds, labels = case.draw(np.random.default_rng(1), MOST)
    state = case.task.update(case.task.init(), preds, labels)
    one, stream = dict(emma.evaluate(case.task, preds, labels)), values(case.task, state)
    exact = [x.name for x in case.task.metrics if getattr(x, "capacity", MOST) is not None]
    pooled = {"rel_l2"} & set(exact)
    assert {k: one[k] for k in exact if k not in pooled} == {k: stream[k] for k in exact if k not in pooled}
    assert all(one[k] == pytest.approx(stream[k], rel=2**-23, abs=0) for k in pooled)


@pytest.mark.parametrize("spread", [0.0, 2.0], ids=["even", "uneven"])
def test_rel_l2_of_many_probes_in_any_order(spread):
    """Sums of neighbours, from 32,768 entries on: order and split move the value by at most 1 float32 ulp, also where
    energies lie orders of magnitude apart; it is the float64 definition to 1 ulp."""
    rng, task = np.random.default_rng(3), emma.Task("field", (m.RelL2(),))
    truth = rng.normal(size=(40_000, 3, 2)).astype(np.float32).view(np.complex64)[..., 0]
    truth *= np.exp(spread * rng.normal(size=(40_000, 1))).astype(np.float32)
    noise = 0.1 * rng.normal(size=truth.shape) * np.abs(truth)
    preds = (truth + noise).astype(np.complex64)
    p, t = preds.astype(np.complex128), truth.astype(np.complex128)
    exact = float(np.sqrt(np.sum(np.abs(p - t) ** 2) / np.sum(np.abs(t) ** 2)))
    ulp = float(np.spacing(np.float32(exact)))
    whole = emma.evaluate(task, preds, truth)["rel_l2"]
    order = rng.permutation(len(truth))
    state = task.init()
    for part in np.split(order, [12_000, 25_000]):
        state = task.update(state, preds[part], truth[part])
    for value in (whole, emma.evaluate(task, preds[order], truth[order])["rel_l2"], task.compute(state)["rel_l2"]):
        assert abs(value - exact) <= ulp


# --- text -----------------------------------------------------------------------------------------------------------


@functools.cache
def added_up(name, devices):
    """States of so many devices, one a row, added up on all of them."""
    task = TEXT[name]
    add = lambda part: task.all_reduce(jax.tree.map(lambda x: x[0], part), "data")  # noqa: E731
    return jax.jit(jax.shard_map(add, mesh=mesh_of(devices), in_specs=P("data"), out_specs=P()))


@pytest.mark.parametrize(("first", "count"), [(0, 20), pytest.param(20, 180, marks=slow)])
@pytest.mark.parametrize("name", TEXT)
def test_any_stream_of_text_is_one_shot(name, first, count):
    """Strings in random order, dealt out to 1 to 8 devices in batches with masked strangers among them: the bits of
    one call, and `evaluate` gives the value of that state."""
    task = TEXT[name]
    for seed in range(first, first + count):
        rng = np.random.default_rng((seed, zlib.crc32(name.encode())))
        n, devices = int(rng.integers(2, 17 if first else 9)), (DEVICES[seed % 4] if first else DEFAULT[name][seed % 2])
        chosen = rng.choice(len(CAPTIONS), n, replace=False)
        chosen = [int(i) for i in chosen]
        preds = [CAPTIONS[i] if rng.random() < 0.7 else REFERENCES[i][0] for i in chosen]
        refs = [REFERENCES[i] for i in chosen]
        whole = task.update(task.init(), preds, refs)
        states = [task.init() for _ in range(devices)]
        left = [int(i) for i in rng.permutation(n)]
        while left:
            size = int(rng.integers(1, len(left) + 1))
            now, left = left[:size], left[size:]
            rows = [*now, *(int(i) for i in rng.integers(0, n, int(rng.integers(0, 4))))]
            where = np.arange(len(rows)) < size
            order = [int(i) for i in rng.permutation(len(rows))]
            device = int(rng.integers(devices))
            batch = [preds[rows[i]] for i in order], [refs[rows[i]] for i in order]
            states[device] = task.update(states[device], *batch, where=where[order])
        stacked = jax.tree.map(lambda *x: np.stack([np.asarray(v) for v in x]), *states)
        placed = jax.device_put(stacked, NamedSharding(mesh_of(devices), P("data")))
        total = added_up(name, devices)(placed)
        # A caption's own CIDEr-D is a float64 sum over its n-grams, padded to the longest caption beside it.
        exact = [x.name for x in task.metrics if x.name != "CIDER"]
        assert not same_bits({k: whole[k] for k in exact}, {k: total[k] for k in exact}), (name, seed, n, devices)
        got, want = dict(task.compute(total)), dict(task.compute(whole))
        assert abs(got.get("CIDER", 0) - want.get("CIDER", 0)) <= 1e-14 * want.get("CIDER", 0), (seed, n, devices)
        if first or not seed:  # by default one is enough: strings of other lengths compile anew
            assert want == dict(emma.evaluate(task, preds, refs))


def test_no_metric_is_left_out():
    """Every metric class of `emma_jax.metrics` is in one of the cases."""
    tasks = [*(c.task for c in CASES.values()), *TEXT.values()]
    here = {type(x) for task in tasks for x in task.metrics}
    kinds = {getattr(emma.metrics, name) for name in emma.metrics.__all__} - {emma.metrics.Metric}
    assert {k for k in kinds if isinstance(k, type) and issubclass(k, emma.metrics.Metric)} == here
