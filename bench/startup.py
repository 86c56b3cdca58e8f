"""Whole processes: ``python -m bench.startup`` times the command line against what a peer's import alone costs.

Each line: wall and processor seconds (user and system, all threads) of a process, the median of its turns, everything
warm: files in the cache of the system, kernels in the compilation cache. On a busy machine the processor seconds are
the ones to compare.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench import report
from emma_jax.io import write_npz
from emma_jax.release import build_release

__all__ = ["main", "make_submission"]

_CLASSES = {"E-LOC-LOS": 2, "E-ID-DRONE": 2, "E-ID-FP": 16, "E-ID-AMC": 11}
_TASKS = ("E-LOC-AOA", *_CLASSES)
_FOLDS = ("env-a", "env-b")


def make_submission(root: Path, samples: int, *, ids: bool = False) -> tuple[Path, Path]:
    """Release and submission of five tasks with ``samples`` samples each, over two folds; folders under ``root``."""
    release, submission = root / "release", root / "mine"
    for t, task in enumerate(_TASKS):
        for f, fold in enumerate(_FOLDS):
            rng = np.random.default_rng([t, f])
            n = samples // len(_FOLDS)
            for folder in (release / "labels" / task, submission / "preds" / task):
                folder.mkdir(parents=True, exist_ok=True)
            names = {"ids": np.arange(n)} if ids else {}
            if task == "E-LOC-AOA":
                labels = rng.uniform(-60, 60, n).astype(np.float32)
                preds = labels + rng.normal(0, 4, n).astype(np.float32)
            else:
                c = _CLASSES[task]
                labels = np.arange(n) % c
                preds = rng.standard_normal((n, c), dtype=np.float32)
                preds[np.arange(n), labels] += np.float32(1.5)
                preds = preds[:, 1] if task == "E-ID-DRONE" else preds
            write_npz(release / "labels" / task / f"{fold}.npz", labels=labels, **names)
            write_npz(submission / "preds" / task / f"{fold}.npz", preds=preds, **names)
    given = {
        "E-LOC-AOA": {"anchor": {"m_min": 0.0, "m_max": 30.0, "basis": "benchmark"}},
        "E-ID-FP": {"params": {"num_classes": 16}, "anchor": {"m_min": 0.0625, "m_max": 1.0, "basis": "chance"}},
    }
    build_release(release, name="bench", tasks={t: given.get(t, {}) for t in _TASKS}, frozen=True)
    (submission / "submission.toml").write_text('name = "bench"\n', encoding="utf-8")
    return release, submission


def _turn(command: Sequence[str]) -> tuple[float, float]:
    """Wall and processor seconds of one process."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(argv: Sequence[str] | None = None) -> int:
    """Times everything in turns; returns 0."""
    parser = argparse.ArgumentParser(prog="python -m bench.startup", description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=100_000, help="samples a task (default 100000)")
    parser.add_argument("--repeats", type=int, default=5, help="turns of each process (default 5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything measured as JSON")
    args = parser.parse_args(argv)
    if args.samples < 64 or args.repeats < 1:
        parser.error("needs --samples >= 64 and --repeats >= 1")
    python, cli = sys.executable, [sys.executable, "-m", "emma_jax"]
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("XDG_CACHE_HOME", folder)
        release, submission = make_submission(Path(folder), args.samples)
        commands = {
            "emma-jax --help": [*cli, "--help"],
            "import jax": [python, "-c", "import jax"],
            "import emma_jax": [python, "-c", "import emma_jax"],
            "import emma_jax, evaluate": [python, "-c", "import emma_jax; emma_jax.evaluate"],
            "emma-jax score": [*cli, "score", str(submission), "--release", str(release)],
        }
        if all(map(importlib.util.find_spec, ("torch", "torchmetrics"))):
            commands["import torch, torchmetrics"] = [python, "-c", "import torch, torchmetrics"]
        else:
            print("import torch, torchmetrics: absent")
        samples: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for command in commands.values():
            _turn(command)
        for _ in range(args.repeats):
            for name, command in commands.items():
                samples[name].append(_turn(command))
    machine = report.machine()
    print(f"{report.machine_line(machine)}\n\n{'process':<30} {'wall s':>8} {'cpu s':>8}")
    lines: list[dict[str, Any]] = []
    for name, turns in samples.items():
        wall, cpu = (statistics.median(column) for column in zip(*turns))
        print(f"{name:<30} {wall:>8.2f} {cpu:>8.2f}")
        lines.append({"process": name, "wall_s": wall, "cpu_s": cpu, "turns": turns})
    if args.json is not None:
        args.json.write_text(json.dumps({"machine": machine, "lines": lines}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
