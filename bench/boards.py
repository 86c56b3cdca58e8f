"""Memory, compilations and time of `emma_jax.emval.score_boards` on ragged boards: ``python -m bench.boards``.

Boards are made of random fields and S-parameters, every one of another shape, in a temporary folder. They are scored in
a process of its own, once all kernels have been met on a small data set, and each value is compared with the protocol's
formulas in NumPy float64.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Run", "definition", "main", "make_boards", "run"]

GROUPS = ("public", "private_standard", "private_challenge")
MB = 1_000_000


@dataclass(frozen=True)
class Run:
    """What one run took.

    Attributes:
      boards: how many.
      truth_mb: largest truth file in MB.
      extra_mb: growth of the peak resident memory over what it was once a small data set had been scored, MB; NaN where
        the system does not tell.
      ratio: ``extra_mb / truth_mb``.
      first_compiles, compiles: compilations in the small data set, and in the measured one.
      seconds: of the measured one.
      worst: largest relative difference from the definition.
    """

    boards: int
    truth_mb: float
    extra_mb: float
    ratio: float
    first_compiles: int
    compiles: int
    seconds: float
    worst: float


def make_boards(root: Path, sizes_mb: Sequence[float], seed: int = 0) -> None:
    """Truth and prediction of ragged boards, one .npz per board and side, truth files of about the sizes given.

    Args:
      root: folder for ``truth`` and ``pred``.
      sizes_mb: MB of the truth file of each board.
      seed: of everything.
    """
    rng = np.random.default_rng(seed)
    for k, size in enumerate(sizes_mb):
        ports, frequencies = int(rng.integers(1, 5)), int(rng.integers(1, 8))
        probes = max(3, int(size * MB / (ports * frequencies * 48)))
        for side in ("truth", "pred"):
            (root / side / GROUPS[k % 3]).mkdir(parents=True, exist_ok=True)
        arrays: dict[str, dict[str, Any]] = {"truth": {}, "pred": {}}
        for name, shape in {
            "E": (ports, frequencies, probes, 3),
            "H": (ports, frequencies, probes, 3),
            "S": (101 + k, ports, ports),
        }.items():
            truth = _complex(rng, shape)
            truth *= np.float32(0.3 if name == "S" else 10.0 ** rng.uniform(-3, 3))
            error = _complex(rng, shape)
            error *= np.float32(0.1) * np.abs(truth).mean()
            arrays["truth"][name], arrays["pred"][name] = truth, truth + error
        for side, content in arrays.items():
            np.savez(root / side / GROUPS[k % 3] / f"board{k:03d}.npz", **content)


def _complex(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return rng.standard_normal((*shape, 2), dtype=np.float32).view(np.complex64)[..., 0]


def definition(truth: dict[str, Any], pred: dict[str, Any]) -> dict[str, float]:
    """The protocol's formulas in float64, for boards without zeros."""
    values = {}
    for name in "EH":
        t, p = (x[name].reshape(-1, 3).astype(complex) for x in (truth, pred))
        norm, error = np.linalg.norm(t, axis=1), np.linalg.norm(p - t, axis=1)
        cosine = (p * t.conj()).sum(axis=1).real / (np.linalg.norm(p, axis=1) * norm)
        values[f"rel_l2_{name}"] = float(np.sqrt((error**2).sum() / (norm**2).sum()))
        values[f"local_q50_{name}"] = float(np.median(error / norm))
        values[f"local_cos_q50_{name}"] = float(np.median(cosine))
    t, p = (x["S"].astype(complex) for x in (truth, pred))
    level, level_hat = (20 * np.log10(np.abs(x)) for x in (t, p))
    weight = 1 / (1 + np.exp(-(level + 20) / 2))
    values["real_imag_rmse"] = float(np.sqrt((np.abs(p - t) ** 2).sum() / (2 * t.size)))
    values["mag_wmae"] = float((weight * np.abs(level_hat - level)).sum() / weight.sum())
    values["ph_wmae"] = float((weight * np.abs(np.angle(p * t.conj()))).sum() / weight.sum())
    return values


_CHILD = """
import json, sys, time
import jax
compiles = [0]
def count(event, duration, **_):
    compiles[0] += event == "/jax/core/compile/backend_compile_duration"
jax.monitoring.register_event_duration_secs_listener(count)
from emma_jax.emval import score_boards

def memory(key):
    try:
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))
    except OSError:
        return float("nan")

small, large, out = sys.argv[1:]
score_boards(small + "/truth", small + "/pred")
first, compiles[0] = compiles[0], 0
before = memory("VmRSS")
try:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak counts from here
except OSError:
    before = float("nan")
start = time.perf_counter()
score_boards(large + "/truth", large + "/pred", output=out)
seconds = time.perf_counter() - start
print(json.dumps({"first_compiles": first, "compiles": compiles[0], "seconds": seconds,
                  "extra_mb": (memory("VmHWM") - before) / 1e6}))
"""


def run(root: Path, sizes_mb: Sequence[float], seed: int = 0) -> Run:
    """Makes boards, scores them in a process of its own, and compares with `definition`.

    Args:
      root: an empty folder.
      sizes_mb: MB of the truth file of each board.
      seed: of everything.

    Returns:
      A `Run`.
    """
    make_boards(root / "small", [0.01, 0.05, 0.2], seed + 1)
    make_boards(root / "large", sizes_mb, seed)
    output = root / "result.json"
    command = [sys.executable, "-c", _CHILD, str(root / "small"), str(root / "large"), str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    measured = json.loads(done.stdout.splitlines()[-1])
    worst = 0.0
    for board in json.loads(output.read_text())["boards"]:
        files = [root / "large" / side / board["group"] / f"{board['id']}.npz" for side in ("truth", "pred")]
        expected = definition(*(dict(np.load(file)) for file in files))
        worst = max(worst, *(abs(board["values"][m] - v) / abs(v) for m, v in expected.items()))
    largest = max(p.stat().st_size for p in (root / "large" / "truth").rglob("*.npz")) / MB
    return Run(len(sizes_mb), largest, ratio=measured["extra_mb"] / largest, worst=worst, **measured)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs it and prints what it took."""
    parser = argparse.ArgumentParser(prog="python -m bench.boards", description="Scores ragged boards.")
    parser.add_argument("--boards", type=int, default=30, help="how many (default 30)")
    parser.add_argument("--mb", default="5,90", help="smallest and largest truth file in MB (default 5,90)")
    parser.add_argument("--seed", type=int, default=0, help="of the boards (default 0)")
    options = parser.parse_args(argv)
    low, high = (float(x) for x in options.mb.split(","))
    with tempfile.TemporaryDirectory() as folder:
        result = run(Path(folder), list(np.linspace(low, high, options.boards)), options.seed)
    for name, value in asdict(result).items():
        print(f"{name:15} {value:.6g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
