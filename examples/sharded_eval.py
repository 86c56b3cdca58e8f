"""Scores predictions that lie on eight devices: each scores its share, and only integer states travel.

    python examples/sharded_eval.py

The devices are eight pieces of this CPU, so it runs anywhere; on a machine with accelerators remove the two lines that
say so. Three ways, one number, without a differing bit: one device; eight devices with `Task.update` and
`Task.all_reduce` inside `jax.shard_map`; and `evaluate` on arrays that carry a `NamedSharding`. The compiled program of
the second is searched for what moves between devices: sums of the state, never the samples.
"""

from __future__ import annotations

import argparse
import os
import re
import sys

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import emma_jax as emma


def inputs(name: str, n: int) -> tuple[emma.Task, np.ndarray, np.ndarray]:
    """A task with ``n`` predictions and labels."""
    rng = np.random.default_rng(0)
    if name == "E-LOC-AOA":
        labels = rng.uniform(-60, 60, n).astype(np.float32)
        return emma.get_task(name), labels + rng.normal(0, 3, n).astype(np.float32), labels
    labels = rng.integers(0, 8, n)
    scores = rng.normal(size=(n, 8)).astype(np.float32) + 2 * np.eye(8, dtype=np.float32)[labels]
    return emma.get_task(name, num_classes=8), scores, labels.astype(np.int32)


def main(arguments: list[str] | None = None) -> int:
    """Compares the three ways for each task; the exit code is 1 if a bit differs or samples travel."""
    parser = argparse.ArgumentParser(description="Score sharded predictions.")
    parser.add_argument("--samples", type=int, default=80_000, help="divisible by 8")
    parser.add_argument("--tasks", nargs="+", default=["E-LOC-AOA", "E-ID-AMC", "E-LOC-LOS"])
    options = parser.parse_args(arguments)
    n = options.samples

    mesh = jax.make_mesh((8,), ("data",))
    failures = 0
    for name in options.tasks:
        task, preds, labels = inputs(name, n)

        def local(p: jax.Array, y: jax.Array, task: emma.Task = task) -> dict[str, dict[str, jax.Array]]:
            state = task.update(task.init(axis_name="data"), p, y)
            return task.all_reduce(state, "data")

        sharded = jax.jit(jax.shard_map(local, mesh=mesh, in_specs=(P("data"), P("data")), out_specs=P()))
        rows = NamedSharding(mesh, P("data"))
        placed = jax.device_put(preds, rows), jax.device_put(labels, rows)

        alone = task.update(task.init(), preds, labels)
        together = sharded(*placed)
        leaves = zip(jax.tree.leaves(alone), jax.tree.leaves(together))
        same = all(np.array_equal(a, b) for a, b in leaves)
        one, eight = task.compute(alone).headline, task.compute(together).headline
        direct = emma.evaluate(task, *placed).headline

        program = sharded.lower(*placed).compile().as_text()
        moved = sorted(set(re.findall(r"\b(all-gather|all-to-all|collective-permute|all-reduce)(?=[(-])", program)))
        size = sum(x.size * 4 for x in jax.tree.leaves(together))
        good = same and one == eight == direct and moved == ["all-reduce"]
        failures += not good
        print(f"{name:10s} {task.headline.name} {one!r}: one device, eight and NamedSharding agree: {good}")
        print(f"           moved: {', '.join(moved)} of {size} bytes of state, not {preds.nbytes} of predictions")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
