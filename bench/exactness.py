"""What exact sums cost: `update` of an empty state against the same formula as a plain float kernel.

    python -m bench.exactness

A plain kernel adds floats, so its last digits depend on the order and the split; ours adds integers. Both are jitted,
on one thread, and run in turns; the figure is the ratio of CPU times, of the fastest fifth of the rounds of either.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from emma_jax import metrics as m

__all__ = ["main"]


def _power(z: Any) -> Any:
    return jnp.abs(z) ** 2


def _rows(x: Any) -> Any:
    return jnp.sum(x, axis=tuple(range(1, x.ndim)))


def _db(x: Any) -> Any:
    return 10 * jnp.log10(x)


def _level(s: Any) -> Any:
    return 20 * jnp.log10(jnp.maximum(jnp.abs(s), 1e-10))


def _weighted(errors: Any, t: Any) -> Any:
    w = jax.nn.sigmoid((_level(t) + 20) / 2)
    return jnp.sum(w * errors) / jnp.sum(w)


def _wrapped(d: Any, period: float) -> Any:
    return jnp.abs(d - period * jnp.round(d / period))


def _si_sdr(p: Any, t: Any) -> Any:
    projected = (jnp.sum(jnp.conj(t) * p, -1) / jnp.sum(_power(t), -1))[:, None] * t
    return jnp.mean(_db(jnp.sum(_power(projected), -1) / jnp.sum(_power(p - projected), -1)))


def _sgcs(p: Any, t: Any) -> Any:
    dot = _power(jnp.sum(jnp.conj(t) * p, -1))
    return jnp.mean(dot / (jnp.sum(_power(t), -1) * jnp.sum(_power(p), -1)))


def _balanced(p: Any, y: Any) -> Any:
    hits = (jnp.argmax(p, 1) == y).astype(jnp.float32)
    zero = jnp.zeros(p.shape[1])
    return jnp.mean(zero.at[y].add(hits) / zero.at[y].add(1.0))


def _top(k: int) -> Callable[[Any, Any], Any]:
    def share(p: Any, y: Any) -> Any:
        return jnp.mean(jnp.sum(p > jnp.take_along_axis(p, y[:, None], 1), 1) < k)

    return share


def _cases(rng: np.random.Generator) -> list[tuple[str, Any, Callable[[Any, Any], Any], Any, Any]]:
    """(entries of a sample, metric, plain kernel, preds, labels)."""
    n, c = 200_000, 16

    def noise(*shape: int) -> np.ndarray:
        parts = rng.standard_normal((2, *shape), dtype=np.float32)
        return parts[0] + 1j * parts[1]

    labels = rng.integers(0, c, n).astype(np.int32)
    scores = rng.standard_normal((n, c), dtype=np.float32) + 2 * np.eye(c, dtype=np.float32)[labels]
    angles = rng.uniform(-180, 180, (2, n)).astype(np.float32)
    many, one = (noise(2_000, 8, 64), noise(2_000, 8, 64)), (noise(n, 1), noise(n, 1))
    long, entries, probes = [(noise(*s), noise(*s)) for s in ((400, 4096), (n, 1, 1), (n, 1, 3))]

    def nmse(p: Any, t: Any) -> Any:
        return _db(jnp.sum(_power(p - t)) / jnp.sum(_power(t)))

    def ratios(p: Any, t: Any) -> Any:
        return _rows(_power(p - t)) / _rows(_power(t))

    return [
        ("1", m.MeanAngularError(), lambda p, t: jnp.mean(_wrapped(p - t, 360)), *angles),
        ("16", m.PlainAccuracy(), lambda p, y: jnp.mean(jnp.argmax(p, 1) == y), scores, labels),
        ("16", m.TopKAccuracy(k=3), _top(3), scores, labels),
        ("16", m.BalancedAccuracy(num_classes=c), _balanced, scores, labels),
        ("512", m.NMSE(), nmse, *many),
        ("1", m.NMSE(), nmse, *one),
        ("512", m.NMSE(reduction="mean_ratio"), lambda p, t: _db(jnp.mean(ratios(p, t))), *many),
        ("512", m.NMSE(reduction="mean_db"), lambda p, t: jnp.mean(_db(ratios(p, t))), *many),
        ("64", m.SGCS(), _sgcs, *many),
        ("4096", m.SISDR(), _si_sdr, *long),
        ("3", m.RelL2(), lambda p, t: jnp.sqrt(jnp.sum(_power(p - t)) / jnp.sum(_power(t))), *probes),
        ("1", m.RealImagRMSE(), lambda p, t: jnp.sqrt(jnp.mean(_power(p - t)) / 2), *entries),
        ("1", m.MagWMAE(), lambda p, t: _weighted(jnp.abs(_level(p) - _level(t)), t), *entries),
        ("1", m.PhaseWMAE(), lambda p, t: _weighted(_wrapped(jnp.angle(p) - jnp.angle(t), 2 * jnp.pi), t), *entries),
    ]


def _cpu_s(functions: Sequence[Callable[[], Any]], rounds: int) -> list[float]:
    """CPU seconds of each, run in turns."""
    for f in functions:
        jax.block_until_ready(f())
    taken: list[list[float]] = [[] for _ in functions]
    for _ in range(rounds):
        for f, seconds in zip(functions, taken, strict=True):
            start = time.process_time()
            jax.block_until_ready(f())
            seconds.append(time.process_time() - start)
    return [float(np.quantile(seconds, 0.2)) for seconds in taken]


def main(argv: Sequence[str] | None = None) -> int:
    """Prints one line a metric; 1 if a plain kernel and the metric are not the same number."""
    parser = argparse.ArgumentParser(prog="python -m bench.exactness", description="Times exact against plain sums.")
    parser.add_argument("--rounds", type=int, default=25)
    args = parser.parse_args(argv)
    print(f"{jax.devices()[0].device_kind}, JAX {jax.__version__}, one thread")
    print(f"{'metric':22s} {'entries':>7s} {'exact ms':>9s} {'plain ms':>9s}  ratio")
    wrong = 0
    for entries, metric, plain, preds, labels in _cases(np.random.default_rng(0)):
        p, t = jax.device_put(preds), jax.device_put(labels)
        exact, floats = jax.jit(lambda p, t, metric=metric: metric.update(metric.init(), p, t)), jax.jit(plain)
        a, b = _cpu_s((lambda: exact(p, t), lambda: floats(p, t)), args.rounds)  # noqa: B023 - called before the next
        wrong += not np.isclose(metric.compute(exact(p, t)), float(floats(p, t)), rtol=1e-3, atol=1e-3)
        name = metric.name + (f" {metric.reduction}" if getattr(metric, "reduction", "ratio_of_sums")[0] == "m" else "")
        print(f"{name:22s} {entries:>7s} {1e3 * a:9.3f} {1e3 * b:9.3f}  {a / b:5.2f}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}"
    raise SystemExit(main())
