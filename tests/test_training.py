"""Best checkpoint and early stopping: direction-aware, pure, the same inside jit, scan and vmap.

Oracle: the plain Python loop over the same values (a running maximum or minimum with a strict comparison)."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optax import contrib

import emma_jax as emma
from emma_jax import training
from emma_jax.errors import EvaluationError, MissingTaskError, ShapeError

NAN = math.nan
VALUES = st.lists(st.sampled_from([NAN, -math.inf, math.inf, 0.0, -0.0, 1.0, 1.5, 2.0, -3.0]), min_size=1, max_size=12)


def keep_in_python(values, direction):
    """(index, value) of the first best value that is a number, (-1, NaN) without one."""
    index, best = -1, NAN
    for i, v in enumerate(values):
        better = v < best if direction == "lower" else v > best
        if not math.isnan(v) and (index < 0 or better):
            index, best = i, v
    return index, best


def stop_in_python(values, direction, patience, min_delta):
    """The update, counted from 1, at which patience runs out; None if it does not."""
    best, wait = NAN, 0
    for i, v in enumerate(values, 1):
        better = v < best - min_delta if direction == "lower" else v > best + min_delta
        if not math.isnan(v) and (math.isnan(best) or better):
            best, wait = v, 0
        else:
            wait += 1
        if wait >= patience:
            return i
    return None


def scan_best(keep):
    """A jitted scan over padded values: final states, parameters being the index of the update."""

    def run(values, n):
        def step(state, x):
            i, v = x
            new = keep.update(state, {"w": jnp.full(3, i), "b": (i,)}, v)
            return jax.tree.map(lambda a, b: jnp.where(i < n, a, b), new, state), None

        first = keep.init({"w": jnp.full(3, -1, jnp.int32), "b": (jnp.int32(-1),)})
        return jax.lax.scan(step, first, (jnp.arange(12, dtype=jnp.int32), values))[0]

    return jax.jit(run)


BEST = {d: scan_best(training.BestCheckpoint(d)) for d in ("higher", "lower")}


@settings(max_examples=60, deadline=None)
@given(values=VALUES, direction=st.sampled_from(["higher", "lower"]))
def test_best_is_the_first_best_number(values, direction):
    """Parameters, value and step inside jit and scan are those of the loop in Python: ties keep the earlier, NaN never
    wins, infinities do."""
    state = BEST[direction](np.array(values + [NAN] * (12 - len(values)), np.float32), len(values))
    index, best = keep_in_python(values, direction)
    assert int(state.step) == index and np.array_equal(state.value, np.float32(best), equal_nan=True)
    assert np.all(np.asarray(state.params["w"]) == index) and int(state.params["b"][0]) == index
    assert int(state.updates) == len(values)


@settings(max_examples=60, deadline=None)
@given(
    values=VALUES,
    direction=st.sampled_from(["higher", "lower"]),
    patience=st.integers(1, 4),
    min_delta=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_early_stop_is_the_loop(values, direction, patience, min_delta):
    """should_stop turns True at the update of the loop in Python, and stays True."""
    stop = training.early_stop(direction, patience=patience, min_delta=min_delta)
    state, seen = stop.init(), []
    for v in values:
        state = stop.update(state, v)
        seen.append(bool(state.should_stop))
    at = stop_in_python(values, direction, patience, min_delta)
    assert seen == [at is not None and i >= at for i in range(1, len(values) + 1)]


def test_early_stop_in_a_while_loop():
    """As the condition of lax.while_loop: values 5, 4, 3, 3, 3, ... with patience 4 end after 7 updates."""
    stop = training.early_stop("lower", patience=4)
    body = lambda c: (c[0] + 1, stop.update(c[1], jnp.maximum(5.0 - c[0], 3.0)))  # noqa: E731
    count, state = jax.lax.while_loop(lambda c: ~c[1].should_stop, body, (jnp.int32(0), stop.init()))
    assert int(count) == 7 and float(state.best) == 3


def test_direction_comes_from_a_task_or_metric():
    """A task id, a Task, a metric and the word give one direction each; a task's is that of its headline."""
    assert training.BestCheckpoint("E-LOC-AOA").direction == "lower"
    assert training.BestCheckpoint(emma.get_task("E-ID-FP")).direction == "higher"
    assert training.BestCheckpoint(emma.metrics.EER()).direction == "lower"
    assert training.BestCheckpoint("higher") == training.BestCheckpoint(emma.metrics.AUC())
    assert float(training.to_minimize("E-ID-AMC", 0.75)) == -0.75
    assert float(training.to_minimize(emma.metrics.EER(), 0.25)) == 0.25
    for wrong, kind in (("up", MissingTaskError), (3, EvaluationError)):
        with pytest.raises(kind):
            training.BestCheckpoint(wrong)


def test_a_stack_of_runs_under_vmap():
    """vmap over runs keeps each run's own best."""
    keep = training.BestCheckpoint("higher")
    values = np.array([[1.0, 3.0, 2.0], [NAN, -1.0, -2.0]], np.float32)

    def run(row):
        step = lambda s, x: (keep.update(s, x[0], x[1]), None)  # noqa: E731
        return jax.lax.scan(step, keep.init(jnp.float32(-1)), (jnp.arange(3.0), row))[0]

    state = jax.vmap(run)(values)
    assert state.params.tolist() == [1.0, 1.0] and state.value.tolist() == [3.0, -1.0]


def test_state_and_params_may_be_donated_together():
    """init copies, so that a step may donate both; the dtypes of the parameters are kept, bfloat16 included."""
    keep = training.BestCheckpoint("lower")
    params = {"w": jnp.arange(4.0), "h": jnp.ones(2, jnp.bfloat16)}
    state = keep.init(params)
    step = jax.jit(lambda p, s, v: (jax.tree.map(lambda x: x + 1, p), keep.update(s, p, v)), donate_argnums=(0, 1))
    for value in (2.0, 1.0, 3.0):
        params, state = step(params, state, value)
    assert state.params["w"].tolist() == [1, 2, 3, 4] and state.params["h"].dtype == jnp.bfloat16
    assert step._cache_size() == 1


def test_errors():
    """A changed structure, shape or dtype of the parameters, a value that is no scalar, and options out of range."""
    keep = training.BestCheckpoint("lower")
    state = keep.init({"w": jnp.zeros(3)})
    for params in ({"v": jnp.zeros(3)}, {"w": jnp.zeros(())}, {"w": jnp.zeros(3, jnp.int32)}):
        with pytest.raises(ShapeError, match="params"):
            keep.update(state, params, 1.0)
    with pytest.raises(ShapeError, match="value"):
        keep.update(state, {"w": jnp.zeros(3)}, jnp.zeros(2))
    for options in ({"patience": 0}, {"patience": 2.5}, {"patience": True}, {"patience": 1, "min_delta": -1.0}):
        with pytest.raises(EvaluationError, match=r"patience|min_delta"):
            training.early_stop("lower", **options)


# --- with optax -----------------------------------------------------------------------------------------------------


def test_an_optax_loop_keeps_its_best_and_stops():
    """Gradient descent with a rate that diverges in the end: the kept parameters are those whose error in degrees is
    the least of the log, the state is what a Python loop over that log keeps, and training stops in time."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(32, 3)).astype(np.float32)
    y = (20 * x @ np.array([1.0, -2.0, 0.5])).astype(np.float32)
    task = emma.get_task("E-LOC-AOA")
    optimizer = optax.sgd(optax.exponential_decay(1e-2, 5, 2.0))
    keep, stop = training.BestCheckpoint(task), training.early_stop(task, patience=20, min_delta=0.5)

    @jax.jit
    def step(params, opt, best, stopping):
        loss = lambda w: (jnp.mean((x @ w - y) ** 2), x @ w)  # noqa: E731
        grads, preds = jax.grad(loss, has_aux=True)(params)
        error = emma.evaluate(task, preds, y).headline
        best, stopping = keep.update(best, params, error), stop.update(stopping, error)
        updates, opt = optimizer.update(grads, opt)
        return optax.apply_updates(params, updates), opt, best, stopping, error

    params = jnp.zeros(3)
    opt, best, stopping, log, seen = optimizer.init(params), keep.init(params), stop.init(), [], []
    while not stopping.should_stop:
        assert len(log) < 200
        seen.append(np.asarray(params))
        params, opt, best, stopping, error = step(params, opt, best, stopping)
        log.append(float(error))
    index, value = keep_in_python(log, "lower")
    assert int(best.step) == index and float(best.value) == value
    assert np.array_equal(best.params, seen[index])
    assert len(log) == stop_in_python(log, "lower", 20, 0.5) and log[-1] > value


@pytest.mark.parametrize(("task", "improving"), [("E-LOC-AOA", [9.0, 5.0, 3.0]), ("E-ID-AMC", [0.5, 0.6, 0.9])])
def test_reduce_on_plateau(task, improving):
    """With to_minimize and rtol=0 the scale of optax's reduce_on_plateau stays 1 while the metric of either direction
    gets better, and halves after `patience` updates that do not, under NaN too."""
    plateau = contrib.reduce_on_plateau(factor=0.5, patience=2, rtol=0.0, atol=1e-3, accumulation_size=1)
    params = {"w": jnp.ones(2)}
    update = jax.jit(lambda s, v: plateau.update(params, s, value=training.to_minimize(task, v))[1])
    state = plateau.init(params)
    for value in improving:
        state = update(state, value)
    assert float(state.scale) == 1
    for value in (improving[-1], improving[0]):
        state = update(state, value)
    assert float(state.scale) == 0.5


def test_relative_tolerance_of_reduce_on_plateau_misleads_below_zero():
    """Why to_minimize asks for rtol=0: from -0.9 on, a relative tolerance of 10 % calls the worse -0.85 an
    improvement."""
    plateau = contrib.reduce_on_plateau(factor=0.5, patience=1, rtol=0.1, atol=0.0, accumulation_size=1)
    params = jnp.ones(2)
    state = plateau.init(params)
    for value in (0.9, 0.85):
        state = plateau.update(params, state, value=training.to_minimize("higher", value))[1]
    assert float(state.scale) == 1 and float(state.best_value) == pytest.approx(-0.85)


@pytest.mark.parametrize("name", ["state", "best"])
def test_checkpoints_with_orbax(name, tmp_path):
    """A task's state and a BestState come back from an orbax checkpoint with the same bits."""
    checkpoint = pytest.importorskip("orbax.checkpoint")
    task = emma.get_task("E-LOC-AOA")
    state = task.update(task.init(), np.arange(5.0), np.arange(5.0) + 1)
    keep = training.BestCheckpoint(task)
    tree = state if name == "state" else keep.update(keep.init({"w": jnp.ones(3)}), {"w": jnp.arange(3.0)}, 2.0)
    with checkpoint.StandardCheckpointer() as saver:
        saver.save(tmp_path / name, tree)
        saver.wait_until_finished()
        back = saver.restore(tmp_path / name, tree)
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(tree)))


def test_states_print():
    """States are plain pytrees of arrays, so printing one shows its numbers."""
    keep = training.BestCheckpoint("lower")
    text = str(keep.update(keep.init(jnp.zeros(1)), jnp.ones(1), 2.5))
    assert "BestState" in text and "2.5" in text
    assert "total" in str(emma.get_task("E-LOC-AOA").init())


def kernels(update, state, *args):
    """Names of the kernels that a jitted update with donated state runs one after another, by its compiled HLO."""
    text = jax.jit(update, donate_argnums=0).lower(state, *args).compile().as_text()
    entry = text[text.index("\nENTRY") :].splitlines()
    free = ("parameter(", "constant(", "tuple(", "bitcast(", "get-tuple-element(")
    return [line.split()[0] for line in entry if " = " in line and not any(f" {op}" in line for op in free)]


def test_what_a_batch_cannot_change_costs_a_step_nothing():
    """Counters that a batch cannot change come back as they are, without a kernel: the update of an angle takes at most
    ten (each costs some microseconds of a step, whatever it does)."""
    task = emma.get_task("E-LOC-AOA")
    angles = jnp.linspace(0.0, 90.0, 1024)
    state = task.init()
    found = kernels(task.update, state, angles, -angles)
    assert 1 <= len(found) <= 10, found
    with_one = jax.tree_util.tree_map(lambda x: x.at[0].set(7), state)
    new = task.update(with_one, angles, -angles)["MeanAngularError"]
    assert all(np.array_equal(new[k], [7, 0]) for k in ("n_excluded", "n_invalid_label", "n_nonfinite"))
    assert np.array_equal(new["n"], [1031, 0])
