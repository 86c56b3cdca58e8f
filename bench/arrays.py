"""``python -m bench.arrays``: channels, signals and near fields against one read of their bytes, and against peers.

Values are compared before anything is timed: ours with the definition in float64, each peer with ours. Contestants take
turns. Two clocks: wall time, and processor time of the process (all threads), which says more on a busy machine.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import emma_jax as emma
from bench import report
from bench.timing import find_floor
from emma_jax.numerics import keys, selection

__all__ = ["main"]

Call = Callable[[], Any]


@dataclass
class _Row:
    """Contestants by name, the first one being what the others are compared with."""

    title: str
    calls: dict[str, Call]
    reference: float | None = None
    tolerance: float = 1e-5
    wall: dict[str, list[float]] = field(default_factory=dict)
    processor: dict[str, list[float]] = field(default_factory=dict)


def _complex(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal((*shape, 2), dtype=np.float32).view(np.complex64)[..., 0]


def _read(*arrays: jax.Array) -> Call:
    return find_floor(arrays).contestant.call


def _device(*arrays: np.ndarray) -> list[jax.Array]:
    return [jnp.array(x, copy=True) for x in arrays]


def _nmse(entries: int) -> _Row:
    rng = np.random.default_rng(0)
    t = _complex(rng, max(1, entries // 1024), min(entries, 1024))
    p = t + np.float32(0.1) * _complex(rng, *t.shape)
    kernel, (a, b) = jax.jit(emma.metrics.NMSE()), _device(p, t)
    energy = [float((np.abs(x.astype(complex)) ** 2).sum()) for x in (p - t, t)]
    calls = {
        "read": _read(a, b),
        "kernel": lambda: float(kernel(a, b)),
        "evaluate": lambda: emma.evaluate("E-CH-CSI", p, t).headline,
        "NumPy": lambda: 10 * np.log10((np.abs(p - t) ** 2).sum() / (np.abs(t) ** 2).sum()),
    }
    return _Row(f"NMSE, {t.size:,} complex64", calls, 10 * np.log10(energy[0] / energy[1]))


def _rel_l2(entries: int) -> _Row:
    rng = np.random.default_rng(1)
    t = _complex(rng, 1, 1, entries // 3, 3)
    p = t + np.float32(0.1) * _complex(rng, *t.shape)
    kernel, (a, b) = jax.jit(emma.metrics.RelL2()), _device(p, t)
    wide = [np.linalg.norm(x.astype(complex).ravel()) for x in (p - t, t)]
    calls = {
        "read": _read(a, b),
        "kernel": lambda: float(kernel(a, b)),
        "evaluate": lambda: emma.metrics.RelL2()(p, t),
        "NumPy": lambda: float(np.linalg.norm((p - t).ravel()) / np.linalg.norm(t.ravel())),
    }
    return _Row(f"rel_l2, {t.size:,} complex64", calls, float(wide[0] / wide[1]))


def _medians(probes: int) -> _Row:
    rng = np.random.default_rng(2)
    t = _complex(rng, 1, 1, probes, 3)
    p = t + np.float32(0.3) * _complex(rng, *t.shape)
    task = emma.Task("both medians", (emma.metrics.LocalQ50(), emma.metrics.LocalCosQ50()))
    kernel, (a, b) = jax.jit(lambda x, y: dict(emma.evaluate(task, x, y))), _device(p, t)

    def plain() -> float:
        norm, other, error = (np.linalg.norm(x, axis=-1) for x in (t, p, p - t))
        cosine = (p * t.conj()).sum(-1).real / (norm * other)
        return float(np.median(error / norm) + np.median(cosine))

    calls = {
        "read": _read(a, b),
        "kernel": lambda: sum(map(float, kernel(a, b).values())),
        "evaluate": lambda: sum(emma.evaluate(task, p, t).values()),
        "NumPy": plain,
    }
    return _Row(f"both medians of a field, {probes:,} probes", calls, plain())


def _median(count: int) -> _Row:
    return _one_median("uniform", np.random.default_rng(3).random(count, dtype=np.float32))


def _median_about_zero(count: int) -> _Row:
    # Most floats lie between the least entries of either sign, which makes a search among keys longer.
    return _one_median("normal", np.random.default_rng(3).standard_normal(count, dtype=np.float32))


def _one_median(kind: str, x: np.ndarray) -> _Row:
    kernel = jax.jit(lambda v: selection.middle_keys(keys.order_key(v), None))
    (on_device,), on_host = _device(x), keys.order_key(x)

    def value(pair: Any) -> float:
        return float(keys.key_value(np.asarray(pair), np.float32).mean(dtype=np.float64))

    calls = {
        "np.median": lambda: float(np.median(x)),
        "kernel, from floats": lambda: value(kernel(on_device)),
        # On the host the keys come out of a kernel, so making them is no part of this.
        "host, from keys": lambda: value(selection.middle_keys_host(on_host, x.size)),
    }
    return _Row(f"median alone, {x.size:,} {kind} float32", calls, float(np.median(x.astype(np.float64))))


def _si_sdr(entries: int) -> _Row:
    rng = np.random.default_rng(4)
    t = rng.standard_normal((max(1, entries // 8000), min(entries, 8000)), dtype=np.float32)
    p = t + np.float32(0.1) * rng.standard_normal(t.shape, dtype=np.float32)
    kernel, (a, b) = jax.jit(emma.metrics.SISDR()), _device(p, t)
    calls: dict[str, Call] = {}
    try:
        import torch
        from torchmetrics.functional.audio import scale_invariant_signal_distortion_ratio as theirs

        tensors = torch.from_numpy(p.copy()), torch.from_numpy(t.copy())
        calls["torchmetrics"] = lambda: float(theirs(*tensors).mean())
    except ImportError as e:
        print(f"torchmetrics is absent: {e}")
    calls |= {
        "kernel": lambda: float(kernel(a, b)),
        "evaluate": lambda: emma.evaluate("E-SC-SEP", p, t).headline,
        "read": _read(a, b),
    }
    wide_p, wide_t = p.astype(np.float64), t.astype(np.float64)
    alpha = (wide_p * wide_t).sum(1, keepdims=True) / (wide_t**2).sum(1, keepdims=True)
    noise = ((wide_p - alpha * wide_t) ** 2).sum(1)
    value = float(np.mean(10 * np.log10(((alpha * wide_t) ** 2).sum(1) / noise)))
    return _Row(f"SI-SDR, {t.shape[0]:,} signals of {t.shape[1]:,} steps", calls, value, 1e-4)


def _measure(row: _Row, repeats: int) -> bool:
    """Times a row and prints it; False if a value was wrong."""
    right = True
    for name, call in row.calls.items():
        value = call()
        if name != "read" and row.reference is not None and not abs(value - row.reference) <= row.tolerance:
            print(f"{row.title}: {name} gives {value!r}, the definition {row.reference!r}")
            right = False
        row.wall[name], row.processor[name] = [], []
    for i in range(repeats):
        for name in row.calls if i % 2 else reversed(row.calls):
            wall, processor = time.perf_counter(), time.process_time()
            row.calls[name]()
            row.processor[name].append(1e3 * (time.process_time() - processor))
            row.wall[name].append(1e3 * (time.perf_counter() - wall))
    print(row.title)
    first = next(iter(row.calls))
    for name in row.calls:
        cells = []
        for clock in (row.processor, row.wall):
            best, middle = min(clock[name]), statistics.median(clock[name])
            cells.append(f"{middle:9.2f} {best:9.2f} {best / min(clock[first]):7.2f}x")
        print(f"  {name:<20} {cells[0]}   {cells[1]}", flush=True)
    return right


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns 1 if a value was wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.arrays", description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=4_000_000, help="entries of channels, signals, fields (default 4e6)")
    parser.add_argument("--probes", type=int, default=1_800_000, help="probes for the medians (default 1.8e6)")
    parser.add_argument("--repeats", type=int, default=15, help="rounds (default 15)")
    options = parser.parse_args(argv)
    if min(options.n, options.probes) < 64 or options.repeats < 1:
        parser.error("needs --n and --probes >= 64, --repeats >= 1")
    print(report.machine_line(report.machine()))
    print(f"{'ms, and times the first of its row':<22} processor: median, best, ratio    wall: median, best, ratio")
    right = True
    for make in (_nmse, _rel_l2, _medians, _median, _median_about_zero, _si_sdr):
        size = options.n if make in (_nmse, _rel_l2, _si_sdr) else options.probes
        right = _measure(make(size), options.repeats) and right
    return int(not right)


if __name__ == "__main__":
    sys.exit(main())
