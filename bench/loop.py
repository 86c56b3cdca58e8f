"""What a metric in the training step costs: the step of ``examples/train_aoa.py`` with `Task.update` and without.

    python -m bench.loop                 # batch 1024
    python -m bench.loop --batch 256 4096

Both steps are compiled once and run in turns, in random order, on the same batch with their state donated; of every
round the time of each is kept, wall and CPU (user and system, all threads). A round is a few steps, so that a step is
dispatched while the one before is computed, as in a training loop. The overhead is the median difference of two times
of one round over the median time without the metric: what slows the machine for a while slows both. Beside it stand its
standard error, from the spread of the differences, and the same for two steps without the metric, which should be 0.

One process differs from the next (1.3 to 3.6 % were seen, at a standard error of 0.5), by where its memory lies and
which thread takes which kernel. So several fresh ones are measured, and their mean is printed with its standard error.
"""

from __future__ import annotations

import argparse
import runpy
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import jax
import numpy as np

__all__ = ["main", "overhead"]

EXAMPLE = Path(__file__).parent.parent / "examples" / "train_aoa.py"


WITHOUT, AGAIN, WITH = "without", "without, again", "with"


def overhead(batch: int, rounds: int, steps: int) -> dict[str, Any]:
    """Seconds of a step without the metric and, by clock, (overhead, its standard error, the same of no metric)."""
    example = runpy.run_path(str(EXAMPLE))
    rng = np.random.default_rng(0)
    x = jax.device_put(rng.normal(size=(batch, 72)).astype(np.float32))
    y = jax.device_put(rng.uniform(-60, 60, batch).astype(np.float32))
    kinds = {WITHOUT: False, AGAIN: False, WITH: True}
    runs = {}
    for kind, measure in kinds.items():
        run = example["init"](example["init_network"](0, (72, 128, 128, 1)))
        runs[kind] = jax.block_until_ready(example["step"](run, x, y, measure=measure))
    clocks = {"wall": time.perf_counter, "cpu": time.process_time}
    taken: dict[str, dict[str, list[float]]] = {k: {kind: [] for kind in kinds} for k in clocks}
    for _ in range(rounds):
        for kind in rng.permutation(list(kinds)).tolist():
            runs[kind], seconds = _timed(example["step"], runs[kind], x, y, kinds[kind], steps, clocks)
            for k, value in seconds.items():
                taken[k][kind].append(value)
    return {
        "batch": batch,
        "step_s": {k: statistics.median(v[WITHOUT]) for k, v in taken.items()},
        "overhead": {k: _relative(v[WITH], v[WITHOUT]) for k, v in taken.items()},
        "nothing": {k: _relative(v[AGAIN], v[WITHOUT]) for k, v in taken.items()},
        "compilations": example["step"]._cache_size(),
    }


def _relative(times: list[float], base: list[float]) -> tuple[float, float]:
    """The median of the paired differences and its standard error, over the median of ``base``."""
    low, middle, high = statistics.quantiles([a - b for a, b in zip(times, base)], n=4)
    # The spread of a normal distribution is 0.741 of its middle half; a median is 1.25 times as uncertain as a mean.
    error = 1.25 * 0.741 * (high - low) / len(base) ** 0.5
    return middle / statistics.median(base), error / statistics.median(base)


def _timed(
    step: Any, run: Any, x: Any, y: Any, measure: bool, steps: int, clocks: dict[str, Callable[[], float]]
) -> tuple[Any, dict[str, float]]:
    start = {k: clock() for k, clock in clocks.items()}
    for _ in range(steps):
        run = step(run, x, y, measure=measure)
    jax.block_until_ready(run)
    return run, {k: (clock() - start[k]) / steps for k, clock in clocks.items()}


def _in_processes(count: int, *args: int) -> list[dict[str, Any]]:
    """`overhead` in so many fresh processes, one after the other."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        return list(pool.map(overhead, *([a] * count for a in args)))


def _pooled(found: Sequence[dict[str, Any]], key: str, clock: str) -> tuple[float, float]:
    """The mean over processes and its standard error: from their spread, or of a single one its own."""
    values = [f[key][clock][0] for f in found]
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else found[0][key][clock][1]
    return statistics.fmean(values), error


def main(argv: Sequence[str] | None = None) -> int:
    """Prints one line a batch size and clock."""
    parser = argparse.ArgumentParser(prog="python -m bench.loop", description="Times Task.update in a training step.")
    parser.add_argument("--batch", type=int, nargs="+", default=[1024])
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=300, help="rounds a process")
    parser.add_argument("--steps", type=int, default=5, help="steps a round")
    args = parser.parse_args(argv)
    print(f"{jax.devices()[0].device_kind}, JAX {jax.__version__}, E-LOC-AOA in a network 72-128-128-1 with Adam")
    for batch in args.batch:
        found = _in_processes(args.processes, batch, args.rounds, args.steps)
        for clock in found[0]["step_s"]:
            (more, error), (nothing, _) = ([100 * v for v in _pooled(found, k, clock)] for k in ("overhead", "nothing"))
            seconds = statistics.median(f["step_s"][clock] for f in found)
            each = " ".join(f"{100 * f['overhead'][clock][0]:+.1f}" for f in found)
            text = f"step {1e3 * seconds:7.3f} ms  with the metric {more:+5.1f} +- {error:.1f} %  (by process {each};"
            print(f"batch {batch:5d}  {clock:4s}  {text} no metric against itself {nothing:+.1f} %)")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
