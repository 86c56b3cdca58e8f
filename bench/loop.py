"""What a metric in the training step costs: the step of ``examples/train_aoa.py`` with `Task.update` and without.

    python -m bench.loop                 # batch 1024
    python -m bench.loop --batch 256 4096

Both steps are compiled once and run in turns on the same batch with their state donated. Of every round the time of
each is kept, wall and CPU (user and system, all threads). The overhead compares the fastest tenth of the rounds of
either: what other programs do on the machine can only add to a round. The quartiles of the ratios of rounds in a row
stand beside it, and say how busy it was.
"""

from __future__ import annotations

import argparse
import runpy
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

__all__ = ["main", "overhead"]

EXAMPLE = Path(__file__).parent.parent / "examples" / "train_aoa.py"


def overhead(batch: int, rounds: int, steps: int) -> dict[str, Any]:
    """Seconds of a step without the metric, the overhead with it, and the ratios of all rounds, by clock."""
    example = runpy.run_path(str(EXAMPLE))
    rng = np.random.default_rng(0)
    x = jax.device_put(rng.normal(size=(batch, 72)).astype(np.float32))
    y = jax.device_put(rng.uniform(-60, 60, batch).astype(np.float32))
    runs = {}
    for measure in (False, True):
        run = example["init"](example["init_network"](0, (72, 128, 128, 2)))
        runs[measure] = jax.block_until_ready(example["step"](run, x, y, measure=measure))
    clocks = {"wall": time.perf_counter, "cpu": time.process_time}
    taken: dict[str, dict[bool, list[float]]] = {k: {False: [], True: []} for k in clocks}
    for i in range(rounds):
        for measure in (False, True) if i % 2 else (True, False):
            runs[measure], seconds = _timed(example["step"], runs[measure], x, y, measure, steps, clocks)
            for k, value in seconds.items():
                taken[k][measure].append(value)
    ratios = {k: sorted(b / a - 1 for a, b in zip(v[False], v[True])) for k, v in taken.items()}
    fast = {k: {m: statistics.quantiles(v[m], n=10)[0] for m in v} for k, v in taken.items()}
    return {
        "batch": batch,
        "step_s": {k: v[False] for k, v in fast.items()},
        "overhead": {k: v[True] / v[False] - 1 for k, v in fast.items()},
        "ratios": ratios,
        "compilations": example["step"]._cache_size(),
    }


def _timed(
    step: Any, run: Any, x: Any, y: Any, measure: bool, steps: int, clocks: dict[str, Callable[[], float]]
) -> tuple[Any, dict[str, float]]:
    start = {k: clock() for k, clock in clocks.items()}
    for _ in range(steps):
        run = step(run, x, y, measure=measure)
    jax.block_until_ready(run)
    return run, {k: (clock() - start[k]) / steps for k, clock in clocks.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Prints one line a batch size and clock."""
    parser = argparse.ArgumentParser(prog="python -m bench.loop", description="Times Task.update in a training step.")
    parser.add_argument("--batch", type=int, nargs="+", default=[1024])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--steps", type=int, default=5, help="steps a round")
    args = parser.parse_args(argv)
    print(f"{jax.devices()[0].device_kind}, JAX {jax.__version__}, E-LOC-AOA in a network 72-128-128-2 with Adam")
    for batch in args.batch:
        found = overhead(batch, args.rounds, args.steps)
        for clock, ratios in found["ratios"].items():
            low, high = (100 * ratios[int(q * (len(ratios) - 1))] for q in (0.25, 0.75))
            ms, more = 1e3 * found["step_s"][clock], 100 * found["overhead"][clock]
            text = f"step {ms:7.3f} ms  with the metric {more:+5.1f} %  (rounds {low:+.1f} to {high:+.1f} %)"
            print(f"batch {batch:5d}  {clock:4s}  {text}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
