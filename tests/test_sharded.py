"""Arrays sharded over devices, over processes, and over the runs of a sweep: each device scores its rows, and only
states travel.

Oracle: the same call on NumPy arrays, integer for integer; a float32 ulp or two where a metric's own summands depend on
the shape of the array (see test_one_answer). What travels is read off the compiled program."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest
from answer_cases import CASES, MOST, same_bits, within
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import emma_jax as emma
from emma_jax.metrics import base

slow = pytest.mark.slow
N = 96
RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 4, N).astype(np.int32)
SCORES = (RNG.normal(size=(N, 4)) + np.eye(4)[LABELS]).astype(np.float32)
ANGLES = RNG.uniform(-400, 400, (2, N)).astype(np.float32)
MOVES = re.compile(r"\b(all-gather|all-to-all|collective-permute|all-reduce|reduce-scatter)(?:-start)?\(")


def eight():
    """The default mesh of all devices: since JAX 0.9 its axes are Explicit."""
    return jax.make_mesh((8,), ("data",))


ROWS = P("data")


def spread(tree, mesh=None, spec=ROWS):
    return jax.device_put(tree, NamedSharding(mesh or eight(), spec))


LIGHT = ("angles", "beams")


@pytest.mark.parametrize("name", [pytest.param(k, marks=() if k in LIGHT else slow) for k in CASES])
def test_evaluate_and_update_give_the_single_device_bits(name):
    """Both, on inputs with a NamedSharding over eight devices and with NumPy ones."""
    case = CASES[name]
    preds, labels = case.draw(np.random.default_rng(3), MOST)
    placed = spread(preds), spread(labels)
    alone, there = emma.evaluate(case.task, preds, labels), emma.evaluate(case.task, *placed)
    assert there.validity == alone.validity
    one = case.task.update(case.task.init(), preds, labels)
    eight_of_them = case.task.update(case.task.init(), *placed)
    for metric in case.task.metrics:
        if metric.name in case.loose:
            assert abs(there[metric.name] - alone[metric.name]) <= within(metric, alone[metric.name])
        else:
            assert there[metric.name] == alone[metric.name]
            assert not same_bits(one[metric.name], eight_of_them[metric.name])


@pytest.mark.parametrize("name", ["E-LOC-AOA", "E-LOC-LOS", "E-CH-CSI", pytest.param("E-ID-DRONE", marks=slow)])
def test_only_states_travel(name):
    """The compiled program of a sharded call adds up states, in arrays that do not grow with N, and moves nothing
    else."""
    n = 8 * 1237
    complex_ = np.zeros((n, 3), np.complex64)
    preds, labels = {
        "E-LOC-AOA": (np.zeros(n, np.float32),) * 2,
        "E-CH-CSI": (complex_, complex_),
    }.get(name, (np.zeros((n, 4), np.float32), np.zeros(n, np.int32)))
    mesh = Mesh(np.array(jax.devices()), ("data",))
    task = emma.get_task(name)
    args = base.prepare(task.metrics, spread(preds, mesh), spread(labels, mesh), None, None, name, spread=True)
    kernel = base.sharded_kernel(args[2], mesh, ("data",))
    program = kernel.lower(args[0], args[1], None, None).compile().as_text()
    assert set(MOVES.findall(program)) == {"all-reduce"}
    moved = [line.split("all-reduce")[1] for line in program.splitlines() if MOVES.search(line)]
    sizes = [int(x) for line in moved for dims in re.findall(r"u32\[([\d,]*)\]", line) for x in dims.split(",") if x]
    assert sizes and not any(size % 1237 == 0 for size in sizes)


def test_inputs_may_lie_differently():
    """Sharded predictions with labels, mask and weights as NumPy, whole, or sharded; over the first of two mesh axes;
    over both; over columns only; inside a context with another mesh: one number."""
    task = emma.get_task("E-ID-AMC", num_classes=4)
    where, weights = RNG.random(N) < 0.8, RNG.integers(0, 5, N)
    want = emma.evaluate(task, SCORES, LABELS, where=where, weights=weights)
    two = jax.make_mesh((4, 2), ("data", "model"))
    auto = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    for preds, labels, mask, times in (
        (spread(SCORES), LABELS, where, weights),
        (SCORES, spread(LABELS), spread(where), spread(weights)),
        (spread(SCORES), spread(LABELS, spec=P()), spread(where), weights),
        (spread(SCORES, two, P("data", "model")), LABELS, where, weights),
        (spread(SCORES, auto, P(("data", "model"))), LABELS, where, weights),
        (spread(SCORES, two, P(None, "model")), LABELS, where, weights),
    ):
        got = emma.evaluate(task, preds, labels, where=mask, weights=times)
        assert dict(got) == dict(want) and got.validity == want.validity
    with jax.set_mesh(two):
        assert dict(emma.evaluate(task, spread(SCORES), LABELS, where=where, weights=weights)) == dict(want)


def test_a_number_of_samples_that_devices_do_not_divide():
    """91 samples padded to 96 rows with NaN and strange labels under ``where``: the bits of the 91."""
    task = emma.get_task("E-ID-AMC", num_classes=4)
    preds, labels = SCORES.copy(), LABELS.copy()
    preds[91:], labels[91:] = np.nan, 99
    where = np.arange(N) < 91
    got = emma.evaluate(task, spread(preds), spread(labels), where=spread(where))
    want = emma.evaluate(task, SCORES[:91], LABELS[:91])
    assert dict(got) == dict(want) and got.validity == want.validity


def test_errors_say_what_they_say_of_one_device():
    """NaN, a label, a negative weight in sharded arrays: the type and the text of the NumPy call."""
    bad = ANGLES.copy()
    bad[0, 77] = np.nan
    labels = np.where(np.arange(N) == 13, 4, LABELS)
    for task, preds, truth, extra in (
        ("E-LOC-AOA", bad[0], bad[1], {}),
        (emma.get_task("E-ID-AMC", num_classes=4), SCORES, labels, {}),
        ("E-LOC-AOA", ANGLES[0], ANGLES[1], {"weights": np.where(np.arange(N) == 5, -1, 1)}),
    ):
        with pytest.raises(emma.EvaluationError) as one:
            emma.evaluate(task, preds, truth, **extra)
        with pytest.raises(emma.EvaluationError) as many:
            emma.evaluate(task, spread(preds), spread(truth), **{k: spread(v) for k, v in extra.items()})
        assert type(one.value) is type(many.value) and str(one.value) == str(many.value)


def test_double_precision_stays():
    """With x64 on, float64 angles on eight devices keep their digits, and float64 that is float32 is scored as such."""
    with jax.enable_x64(True):
        for preds in (RNG.uniform(-400, 400, N), ANGLES[0].astype(np.float64)):
            placed = spread(preds)
            assert placed.dtype == np.float64
            assert emma.evaluate("E-LOC-AOA", placed, spread(ANGLES[1])).headline == (
                emma.evaluate("E-LOC-AOA", preds, ANGLES[1]).headline
            )


def test_a_sweep_over_devices_needs_no_communication():
    """Runs sharded over their leading axis: each device scores its own, nothing moves, and every run has the value of
    its own call (4 float32 ulp, as traced values have)."""
    runs = (SCORES[None] + RNG.normal(size=(16, N, 4))).astype(np.float32)
    task = emma.get_task("E-ID-AMC", num_classes=4)
    rows = NamedSharding(Mesh(np.array(jax.devices()), ("run",)), P("run"))
    score = jax.jit(jax.vmap(lambda p, y: emma.evaluate(task, p, y).headline, (0, None)), out_shardings=rows)
    placed, whole = jax.device_put(runs, rows), jax.device_put(LABELS, NamedSharding(rows.mesh, P()))
    assert not MOVES.search(score.lower(placed, whole).compile().as_text())
    values = score(placed, whole)
    assert values.sharding.spec == P("run")
    want = [emma.evaluate(task, p, LABELS).headline for p in runs]
    np.testing.assert_allclose(values, want, rtol=4 * 2.0**-23)


WORKER = """
import sys, jax, numpy as np
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.config.update("jax_num_cpu_devices", 2)
process = int(sys.argv[1])
jax.distributed.initialize(sys.argv[2], 2, process, heartbeat_timeout_seconds=10, shutdown_timeout_seconds=20)
from jax.sharding import NamedSharding, PartitionSpec as P
import emma_jax as emma

rng = np.random.default_rng(0)
labels = rng.integers(0, 4, 400).astype(np.int32)
scores = (rng.normal(size=(400, 4)) + np.eye(4)[labels]).astype(np.float32)
rows = NamedSharding(jax.make_mesh((4,), ("data",)), P("data"))
mine = slice(200 * process, 200 * process + 200)
over = lambda x: jax.make_array_from_process_local_data(rows, x[mine])
for task in ("E-ID-AMC", "E-ID-FP", "E-ID-DRONE"):
    assert dict(emma.evaluate(task, over(scores), over(labels))) == dict(emma.evaluate(task, scores, labels)), task
task = emma.get_task("E-LOC-LOS", num_classes=4)
state = task.update(task.update(task.init(), over(scores), over(labels)), over(scores), over(labels))
assert task.compute(state).validity["BalancedAccuracy"].n == 800
assert task.compute(state).headline == emma.evaluate(task, scores, labels).headline
labels[250] = 9
try:
    emma.evaluate("E-ID-AMC", over(scores), over(labels))
except emma.LabelError as error:
    assert error.count == 1 and error.index == 250
else:
    raise AssertionError("no error")
try:
    emma.evaluate_groups("E-ID-AMC", over(scores), over(labels), np.arange(400) % 2)
except emma.EvaluationError as error:
    assert "spread over processes" in str(error)
else:
    raise AssertionError("no error")
print("all right")
"""


@slow
def test_arrays_that_lie_with_two_processes():
    """Arrays of which each process holds a half: `evaluate` (also where the samples have to be gathered) and `update`
    give every process the number of one; a label error names the global index; what cannot take them says so."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{s.getsockname()[1]}"
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
    runs = [subprocess.Popen([sys.executable, "-c", WORKER, str(i), address], **pipes) for i in range(2)]
    for out, err in [run.communicate(timeout=240) for run in runs]:
        assert out.endswith("all right\n"), err
