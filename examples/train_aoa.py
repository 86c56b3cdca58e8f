"""Trains a small network on array snapshots, with the benchmark's metric inside the jitted step.

    python examples/train_aoa.py --steps 300

The snapshots are those of the demo's E-LOC-AOA scene: an 8-element array in multipath. Each step makes one update of
Adam on the wrapped absolute loss, adds its batch to the metric's state (donated, so updated in place) and compiles
once. Every ``--every`` steps the validation set is scored inside one jitted call, which also keeps the best parameters
and tells `optax.contrib.reduce_on_plateau` and `early_stop`.

At the end the best checkpoint's predictions are written to a file, and `emma-jax evaluate` scores that file: the same
number, bit for bit, as `evaluate` gives for the array in memory, and to 1e-6 the one from inside the compiled step.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from optax import contrib

import emma_jax as emma
from emma_jax import training
from emma_jax.demo.aoa import SCENE
from emma_jax.io import write_npz

TASK = emma.get_task("E-LOC-AOA")
FOLD = "office"  # the environment that is held out; the others train
BATCH = 256
SPREAD = 30.0  # about the standard deviation of the angles, so that the network's output is near 1


def features(signals: np.ndarray) -> np.ndarray:
    """Upper triangle of the sample covariance, real and imaginary part, of unit trace: float32 [N, 72]."""
    covariance = signals @ signals.conj().swapaxes(1, 2)
    covariance /= np.trace(covariance, axis1=1, axis2=2).real[:, None, None]
    rows, columns = np.triu_indices(covariance.shape[1])
    upper = covariance[:, rows, columns] * covariance.shape[1]
    return np.concatenate([upper.real, upper.imag], axis=1).astype(np.float32)


def draw(seed: int, size: int) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """((features, degrees) for training, likewise for validation): the held-out environment is never trained on."""
    rng = np.random.default_rng(seed)
    sites = [site for name, site in SCENE.environments.items() if name != FOLD]
    seen = [SCENE.simulate(rng, site, size) for site in sites]
    held_out = SCENE.simulate(rng, SCENE.environments[FOLD], 600)
    x, y = (np.concatenate([getattr(d, k) for d in seen]) for k in ("signals", "labels"))
    return (features(x), y.astype(np.float32)), (features(held_out.signals), held_out.labels.astype(np.float32))


def init_network(seed: int, sizes: tuple[int, ...]) -> list[dict[str, jax.Array]]:
    """Weights of a fully connected network, scaled for ReLU."""
    keys = jax.random.split(jax.random.key(seed), len(sizes) - 1)
    pairs = zip(keys, sizes[:-1], sizes[1:])
    return [{"w": jax.random.normal(k, (m, n)) * (2 / m) ** 0.5, "b": jnp.zeros(n)} for k, m, n in pairs]


def predict(params: list[dict[str, jax.Array]], x: jax.Array) -> jax.Array:
    """Angles in degrees [N]."""
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return SPREAD * (x @ params[-1]["w"] + params[-1]["b"])[:, 0]


ADAM = optax.adam(4e-3)
PLATEAU = contrib.reduce_on_plateau(factor=0.5, patience=2, rtol=0.0, atol=0.02)
KEEP = training.BestCheckpoint(TASK)
STOP = training.early_stop(TASK, patience=12, min_delta=0.02)


@jax.jit
def init(params: Any) -> dict[str, Any]:
    """Everything a run carries."""
    return {
        "params": params,
        "adam": ADAM.init(params),
        "plateau": PLATEAU.init(params),
        "metric": TASK.init(),
        "best": KEEP.init(params),
        "stop": STOP.init(),
    }


def _step(run: dict[str, Any], x: jax.Array, y: jax.Array, measure: bool = True) -> dict[str, Any]:
    """One update of the network; ``measure=False`` leaves the metric out, to see what it costs."""

    def loss(params: Any) -> tuple[jax.Array, jax.Array]:
        preds = predict(params, x)
        return jnp.mean(training.wrapped_absolute_loss(preds, y)), preds

    gradients, preds = jax.grad(loss, has_aux=True)(run["params"])
    updates, adam = ADAM.update(gradients, run["adam"])
    updates = jax.tree.map(lambda u: run["plateau"].scale * u, updates)
    params = optax.apply_updates(run["params"], updates)
    metric = TASK.update(run["metric"], preds, y) if measure else run["metric"]
    return run | {"params": params, "adam": adam, "metric": metric}


def _validate(run: dict[str, Any], x: jax.Array, y: jax.Array) -> tuple[dict[str, Any], jax.Array, jax.Array]:
    """(the run, training error since the last time, validation error), all on the device."""
    train_deg = TASK.compute(run["metric"]).headline
    valid_deg = emma.evaluate(TASK, predict(run["params"], x), y).headline
    best = KEEP.update(run["best"], run["params"], valid_deg)
    # Once per validation, not once per step: patience then counts validations. The updates it scales are not needed.
    plateau = PLATEAU.update(run["params"], run["plateau"], value=training.to_minimize(TASK, valid_deg))[1]
    new = {"metric": TASK.init(), "plateau": plateau, "best": best, "stop": STOP.update(run["stop"], valid_deg)}
    return run | new, train_deg, valid_deg


step = jax.jit(_step, donate_argnums=0, static_argnames="measure")
validate = jax.jit(_validate, donate_argnums=0)
materialize = jax.jit(predict)


def evaluate_file(preds: np.ndarray, labels: np.ndarray, folder: Path) -> float:
    """What the command line says of the predictions, once they are a file."""
    from emma_jax.cli import app

    write_npz(folder / "preds.npz", preds=preds)
    write_npz(folder / "labels.npz", labels=labels)
    out = io.StringIO()
    files = ["--preds", str(folder / "preds.npz"), "--labels", str(folder / "labels.npz")]
    with redirect_stdout(out):
        app(["evaluate", TASK.id, *files, "--json"], standalone_mode=False)
    return float(json.loads(out.getvalue())["metrics"]["MeanAngularError"]["value"])


def main(arguments: list[str] | None = None) -> int:
    """Trains, then compares the three ways to the number; the exit code is 1 if they disagree."""
    parser = argparse.ArgumentParser(description="Train an angle-of-arrival network with the metric in the loop.")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--every", type=int, default=20, help="steps between validations")
    parser.add_argument("--size", type=int, default=1500, help="training samples of each environment")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)

    (x, y), (x_valid, y_valid) = draw(options.seed, options.size)
    run = init(init_network(options.seed, (x.shape[1], 128, 128, 1)))
    rng = np.random.default_rng(options.seed)
    for i in range(1, options.steps + 1):
        pick = rng.integers(0, len(x), BATCH)
        run = step(run, x[pick], y[pick])
        if i % options.every == 0 or i == options.steps:
            run, train_deg, valid_deg = validate(run, x_valid, y_valid)
            print(f"step {i:4d}  train {float(train_deg):7.3f} deg  {FOLD} (held out) {float(valid_deg):7.3f} deg")
            if run["stop"].should_stop:
                print("no better for 12 validations: stopped")
                break

    best = run["best"]
    preds = np.asarray(materialize(best.params, x_valid))
    memory = emma.evaluate(TASK, preds, y_valid).headline
    with tempfile.TemporaryDirectory() as folder:
        file = evaluate_file(preds, y_valid, Path(folder))
    fused = float(best.value)
    print(f"best: validation {int(best.step) + 1} of {int(best.updates)}")
    print(f"  emma-jax evaluate on the file      {file!r}")
    print(f"  evaluate on the array in memory    {memory!r}  equal bit for bit: {memory == file}")
    print(f"  fused into the compiled step       {fused!r}  relative difference: {abs(fused - file) / file:.1e}")
    print(f"compilations: step {step._cache_size()}, validate {validate._cache_size()}")
    return 0 if memory == file and abs(fused - file) <= 1e-6 * file else 1


if __name__ == "__main__":
    sys.exit(main())
