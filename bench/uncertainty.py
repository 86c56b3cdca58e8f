"""``python -m bench.uncertainty``: bootstrap intervals against a resampling loop over scikit-learn.

Both sides start from the same NumPy arrays and end with a percentile interval from the same number of resamples. The
loop is the one people write: draw an index array, gather both arrays, call the scorer. It is run for fewer resamples
and its time scaled up, since it is the same work over and over; how many is printed. Ours is the whole call, checks and
all. Contestants take turns; each ratio is the median over rounds.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import emma_jax as emma
from bench.peers import version
from bench.timing import Contestant, cold_call, race, ratio

__all__ = ["Row", "main", "run"]

_TASKS = {
    "accuracy": ("E-ID-AMC", "accuracy_score"),
    "balanced accuracy": ("E-LOC-LOS", "balanced_accuracy_score"),
    "AUC": ("E-SC-SENSE", "roc_auc_score"),
}


@dataclass(frozen=True)
class Row:
    """One comparison.

    Attributes:
      name: what is resampled.
      n: samples.
      num_resamples: B.
      looped: resamples that the loop was run for; its time is scaled by num_resamples / looped.
      ours_ms: our whole call, the best turn.
      peer_ms: the loop, scaled.
      times: how many times as long the loop takes.
      cold_ms: our first call, with nothing compiled.
      apart: how far the ends of the two intervals lie apart, over the interval's width.
    """

    name: str
    n: int
    num_resamples: int
    looped: int
    ours_ms: float
    peer_ms: float
    times: float
    cold_ms: float
    apart: float


def _inputs(name: str, n: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    if name == "AUC":
        y = rng.integers(0, 2, n)
        return (rng.normal(size=n) + y).astype(np.float32), y
    y = rng.integers(0, 16, n)
    return np.where(rng.random(n) < 0.6, y, rng.integers(0, 16, n)), y


def _loop(scorer: Callable[[Any, Any], float], preds: Any, labels: Any, count: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    values = np.empty(count)
    for b in range(count):
        index = rng.integers(0, len(labels), len(labels))
        values[b] = scorer(labels[index], preds[index])
    return values


def run(name: str, n: int, num_resamples: int, looped: int, rounds: int) -> Row | None:
    """One row; None where scikit-learn is absent."""
    try:
        sk = importlib.import_module("sklearn.metrics")
    except ImportError:
        return None
    task, scorer_name = _TASKS[name]
    scorer = getattr(sk, scorer_name)
    preds, labels = _inputs(name, n)

    def ours() -> Any:
        return next(iter(emma.bootstrap(task, preds, labels, key=0, num_resamples=num_resamples).values()))

    def peer() -> np.ndarray:
        return _loop(scorer, preds, labels, looped)

    cold_s, found = cold_call(ours, clear=True)
    # Enough of the loop to compare ends with, outside the clock.
    low, high = np.quantile(_loop(scorer, preds, labels, 5 * looped), [0.025, 0.975])
    mine, theirs = Contestant(ours), Contestant(peer)
    race([mine, theirs], rounds, budget_s=600)
    scale = num_resamples / looped
    return Row(
        name=name,
        n=n,
        num_resamples=num_resamples,
        looped=looped,
        ours_ms=1e3 * mine.best,
        peer_ms=1e3 * theirs.best * scale,
        times=ratio(theirs, mine) * scale,
        cold_ms=1e3 * cold_s,
        apart=max(abs(low - found.low), abs(high - found.high)) / (found.high - found.low),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the rows and prints them."""
    parser = argparse.ArgumentParser(prog="python -m bench.uncertainty", description="Bootstrap against a loop.")
    parser.add_argument("--n", type=int, default=100_000, help="samples (default 100000)")
    parser.add_argument("--resamples", type=int, default=1000, help="resamples (default 1000)")
    parser.add_argument("--looped", type=int, default=20, help="resamples the loop is run for (default 20)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of turns (default 5)")
    parser.add_argument("--only", default="", help="part of a row's name")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    options = parser.parse_args(argv)
    rows = []
    for name in _TASKS:
        if options.only.lower() in name.lower():
            row = run(name, options.n, options.resamples, options.looped, options.rounds)
            if row is None:
                print("scikit-learn is absent: nothing to compare with")
                return 0
            rows.append(row)
    if options.json:
        content = {"scikit-learn": version("scikit-learn"), "numpy": np.__version__, "rows": [asdict(r) for r in rows]}
        print(json.dumps(content, indent=1))
        return 0
    print(f"N = {options.n}, B = {options.resamples}; the loop over scikit-learn {version('scikit-learn')} is run for")
    print(f"{options.looped} resamples and scaled. ms; ratio: the loop over ours.")
    print(f"{'':18} {'ours':>9} {'loop':>10} {'ratio':>7} {'cold':>8} {'ends apart':>11}")
    for r in rows:
        print(f"{r.name:18} {r.ours_ms:9.1f} {r.peer_ms:10.0f} {r.times:7.1f} {r.cold_ms:8.0f} {r.apart:11.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
