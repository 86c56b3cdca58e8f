"""Timing: contestants that take turns, the cold first call, and the floor of one read of the bytes.

Conventions: seconds inside, milliseconds in reports. A sample is one turn of a contestant; a ratio is the median over
rounds of the ratio of two samples of the same round, so that what slows the machine for a while slows both sides.
"""

from __future__ import annotations

import gc
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["Contestant", "Floor", "cold_call", "find_floor", "race", "ratio"]

# A call shorter than this is repeated within its turn: a timer tick, a context switch or another contestant's data in
# the cache would otherwise weigh as much as the call.
_SHORT_S = 0.02
_MOST_CALLS = 20
_FLOOR_TRIALS = 7
_CHUNK = 16_384


@dataclass
class Contestant:
    """Something to time.

    Attributes:
      call: does the whole work and returns when it is done.
      samples: seconds per round; None for a round that it sat out.
      best: the shortest single call, seconds.
    """

    call: Callable[[], Any]
    samples: list[float | None] = field(default_factory=list)
    best: float = math.inf

    @property
    def median(self) -> float:
        """Median over the rounds it took part in, seconds."""
        return statistics.median(self.taken)

    @property
    def taken(self) -> list[float]:
        """Samples of the rounds it took part in."""
        return [s for s in self.samples if s is not None]

    def take_turn(self) -> float:
        """One sample, seconds: the call itself if it is long, else the median of several after one to warm up."""
        first = _timed(self.call)
        if first >= _SHORT_S:
            self.best = min(self.best, first)
            return first
        calls = min(_MOST_CALLS, max(3, int(_SHORT_S / max(first, 1e-6))))
        times = [_timed(self.call) for _ in range(calls)]
        self.best = min(self.best, *times)
        return statistics.median(times)


def _timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def cold_call(call: Callable[[], Any], clear: bool) -> tuple[float, Any]:
    """Seconds of a first call, and what it returned; ``clear``: with nothing compiled by JAX so far."""
    if clear:
        jax.clear_caches()
    start = time.perf_counter()
    value = call()
    return time.perf_counter() - start, value


def race(contestants: Sequence[Contestant], repeats: int, budget_s: float) -> None:
    """Takes samples in turns, A B C, C B A, A B C, ..., one per contestant and round.

    Args:
      contestants: warm ones; their samples are appended in place.
      repeats: number of rounds.
      budget_s: seconds after which a slow contestant sits out, once it has three samples.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        for i in range(repeats):
            for c in contestants if i % 2 == 0 else reversed(contestants):
                done = len(c.taken) >= 3 and sum(c.taken) > budget_s
                c.samples.append(None if done else c.take_turn())
    finally:
        if collecting:
            gc.enable()


def ratio(slow: Contestant, fast: Contestant) -> float:
    """How many times as long ``slow`` takes: the median of the ratios of samples of the same round."""
    pairs = [a / b for a, b in zip(slow.samples, fast.samples) if a is not None and b is not None]
    return statistics.median(pairs)


# --- the floor --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Floor:
    """The fastest plain read found: which one it is, and how many bytes it reads."""

    kind: str
    nbytes: int
    contestant: Contestant


def find_floor(arrays: Sequence[jax.Array]) -> Floor:
    """The fastest of several reductions that read every byte of the arrays once and write almost nothing.

    A single reduction would flatter: on CPU, XLA leaves some of them unvectorised (an integer maximum of 64 MB was seen
    to take ten times as long as a float sum), so the best of several stands for the machine.
    """
    leaves = [x for x in arrays if x.size]
    readers: dict[str, Callable[[], Any]] = {}
    for kind, reduce_one in (("integer sum and xor", _integer_read), ("float sum", _float_read)):
        readers[f"jitted {kind}"] = _jitted_reader(leaves, reduce_one)
    if all(d.platform == "cpu" for x in leaves for d in x.devices()):
        readers["NumPy integer maximum"] = _numpy_reader(leaves, 1)
        readers[f"NumPy integer maximum, {_cores()} threads"] = _numpy_reader(leaves, _cores())
    trials = {kind: Contestant(read) for kind, read in readers.items()}
    for c in trials.values():
        c.call()
    race(list(trials.values()), _FLOOR_TRIALS, math.inf)
    kind = min(trials, key=lambda k: trials[k].best)
    found = Contestant(trials[kind].call, best=trials[kind].best)
    return Floor(kind, sum(x.nbytes for x in leaves), found)


def _words(x: jax.Array) -> jax.Array:
    """Rows of a few thousand entries, or one row: a reduction along the rows runs at full width and on all cores."""
    rows = next((c for c in range(min(_CHUNK, x.size), 511, -1) if x.size % c == 0), x.size)
    return x.reshape(-1, rows)


def _integer_read(x: jax.Array) -> Any:
    # Two results at once: a single integer reduction over a bit cast is not vectorised.
    x = x.reshape(-1)
    x = x.view(jnp.float32) if jnp.issubdtype(x.dtype, jnp.complexfloating) else x
    unsigned = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}[x.dtype.itemsize]
    w = _words(x.astype(jnp.uint8) if x.dtype == jnp.bool_ else lax.bitcast_convert_type(x, unsigned))
    zero = np.zeros((), w.dtype)
    return lax.reduce((w, w), (zero, zero), lambda a, b: (a[0] + b[0], a[1] ^ b[1]), (1,))


def _float_read(x: jax.Array) -> Any:
    x = x.reshape(-1)
    x = x.view(jnp.float32) if jnp.issubdtype(x.dtype, jnp.complexfloating) else x
    return jnp.sum(_words(x).astype(jnp.float32), axis=1)


def _jitted_reader(leaves: list[jax.Array], reduce_one: Callable[[jax.Array], Any]) -> Callable[[], Any]:
    kernel = jax.jit(lambda xs: [reduce_one(x) for x in xs])
    return lambda: jax.block_until_ready(kernel(leaves))


def _numpy_reader(leaves: Sequence[jax.Array], threads: int) -> Callable[[], Any]:
    views = [np.asarray(x).reshape(-1).view(np.uint8) for x in leaves]
    words = [v.view(np.int32) if v.size % 4 == 0 else v for v in views]
    if threads == 1:
        return lambda: [v.max() for v in words]
    parts = [p for v in words for p in np.array_split(v, threads) if p.size]
    pool = ThreadPoolExecutor(threads)  # NumPy releases the interpreter lock while it reduces
    return lambda: list(pool.map(np.max, parts))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
