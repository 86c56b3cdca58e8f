"""The demo: a release made from physics, three submissions by classical algorithms, and the leaderboard.

Everything goes the way a user's own data goes: label files and `build_release`, prediction files and
`score_submission`. The folder that it leaves is a complete example of both::

    release/release.json                      what is scored and how, with the digest that pins it
    release/labels/<task>/<fold>.npz          labels, ids, groups; real.npz for the real split
    submissions/<name>/submission.toml        what it is
    submissions/<name>/preds/<task>/<fold>.npz
    results/<name>.json                       what the leaderboard is made of

To beat the baselines, `draw` the signals of each fold, write your own ``submissions/mine/`` and run ``emma-jax
score`` on it.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from emma_jax.demo import aoa, drone, fingerprint, los, modulation
from emma_jax.demo.scene import Draws, Scene, concatenate
from emma_jax.errors import EvaluationError, ReleaseError
from emma_jax.io import write_npz
from emma_jax.release import REAL, Release, build_release

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "ENTRIES",
    "SCENES",
    "Entry",
    "check_seed",
    "draw",
    "fresh_folder",
    "leave_out",
    "run_demo",
    "training_draws",
]

SCENES: dict[str, Scene] = {
    scene.task: scene for scene in (aoa.SCENE, los.SCENE, drone.SCENE, fingerprint.SCENE, modulation.SCENE)
}
"""The scenes by task id."""

NUM_SAMPLES = 480
"""Samples of each fold that are scored: a multiple of 6 modulations and of 8 transmitters."""

NUM_TRAINING = 300
"""Further samples of each environment, from which the baselines learn for the *other* folds."""


@dataclass(frozen=True)
class Entry:
    """One submission of the demo.

    Attributes:
      baseline: which of a scene's baselines it is made of: "strong", "middle" or "floor".
      name, model, notes: what ``submission.toml`` says.
    """

    baseline: str
    name: str
    model: str
    notes: str


ENTRIES = (
    Entry(
        "strong",
        "subspace and cumulants",
        "MUSIC, CP correlation, C40",
        "MUSIC with forward-backward spatial smoothing; Rician K factor by moments; cyclic-prefix correlation and "
        "energy, carrier offset, image ratio and compression with nearest centroid; the cumulants C20, C40 and C42.",
    ),
    Entry(
        "middle",
        "one feature",
        "Bartlett, energy, C42",
        "Delay-and-sum beamformer; peak factor; energy detector; carrier offset; C42. One feature for each task.",
    ),
    Entry(
        "floor",
        "floor",
        "never looks at a signal",
        "The circular mean of the training angles, the majority class of training, constant scores for the rest.",
    ),
)
"""The submissions, best first."""


def draw(scene: Scene, environment: str, seed: int, *, training: bool = False) -> Draws:
    """The samples of one environment: those that are scored, or those to learn from.

    Args:
      scene: one of `SCENES`.
      environment: a fold of the scene, or "real".
      seed: of the demo. Each task, environment and purpose has a random stream of its own.
      training: the training samples instead; the real split has none.

    Returns:
      `Draws` of `NUM_SAMPLES` (or `NUM_TRAINING`) samples: signals, labels, groups.

    Raises:
      EvaluationError: no such environment, training samples of the real split, or a negative seed.
    """
    environments = {**scene.environments, **({} if training else {REAL: scene.real})}
    if environment not in environments:
        raise EvaluationError(
            f"{environment!r} is not one of {', '.join(environments)}", task=scene.task, argument="environment"
        )
    check_seed(seed)
    stream = zlib.crc32(f"{scene.task}/{environment}/{'training' if training else 'scored'}".encode())
    rng = np.random.default_rng([seed, stream])
    return scene.simulate(rng, environments[environment], NUM_TRAINING if training else NUM_SAMPLES)


def check_seed(seed: int) -> None:
    """Raises EvaluationError for a negative seed."""
    if seed < 0:
        raise EvaluationError(f"has to be an integer from 0 on, not {seed}", argument="seed")


def training_draws(scene: Scene, seed: int) -> dict[str, Draws]:
    """The training samples of every synthetic environment, by name; `leave_out` the one that is scored."""
    return {environment: draw(scene, environment, seed, training=True) for environment in scene.environments}


def leave_out(training: dict[str, Draws], fold: str) -> Draws:
    """What may be learned from when ``fold`` is scored: the training samples of all *other* environments.

    For "real", those of all environments: nothing real is ever learned from.
    """
    return concatenate([draws for environment, draws in training.items() if environment != fold])


def _ids(fold: str) -> np.ndarray[Any, Any]:
    return np.array([f"{fold}-{i:04d}" for i in range(NUM_SAMPLES)])


def _write_scene(root: Path, scene: Scene, seed: int) -> Iterator[str]:
    """Writes the labels and all predictions of one task; yields what was done after each fold."""
    training = training_draws(scene, seed)
    for fold in (*scene.environments, REAL):
        scored, known = draw(scene, fold, seed), leave_out(training, fold)
        path = f"{scene.task}/{fold}.npz"
        write_npz(_place(root / "release/labels" / path), labels=scored.labels, ids=_ids(fold), groups=scored.groups)
        for entry in ENTRIES:
            preds = getattr(scene, entry.baseline)(scored.signals, known)
            write_npz(_place(root / "submissions" / entry.baseline / "preds" / path), preds=preds, ids=_ids(fold))
        yield f"{scene.task} {fold}"


def _place(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _build_release(root: Path, seed: int) -> Release:
    """The frozen release of the label files that were written."""
    tasks: dict[str, dict[str, Any]] = {}
    for task, scene in SCENES.items():
        params = {} if scene.num_classes is None else {"num_classes": scene.num_classes}
        tasks[task] = {"params": params, "anchor": scene.anchor, "axis": scene.axis}
    return build_release(root / "release", name=f"demo-{seed}", tasks=tasks, frozen=True)


def _write_description(folder: Path, entry: Entry) -> None:
    fields = {"name": entry.name, "model": entry.model, "notes": entry.notes}
    text = "".join(f'{key} = "{value}"\n' for key, value in fields.items())
    (folder / "submission.toml").write_text(text, encoding="utf-8")


def fresh_folder(out_dir: Path | None) -> Path:
    """A new temporary folder, or the one asked for, which has to be new or empty: the demo overwrites nothing."""
    if out_dir is None:
        return Path(tempfile.mkdtemp(prefix="emma-demo-"))
    out_dir = Path(out_dir)
    if out_dir.exists() and (not out_dir.is_dir() or any(out_dir.iterdir())):
        raise ReleaseError(
            "is there already, and the demo overwrites nothing: name a new folder", argument=str(out_dir)
        )
    out_dir.mkdir(parents=True, exist_ok=True)
    return out_dir


def run_demo(out_dir: Path | None = None, seed: int = 0, console: Console | None = None) -> list[dict[str, Any]]:
    """Makes the release and the submissions, scores them, and prints the leaderboard.

    Args:
      out_dir: where to leave everything, a new or empty folder; None for a new temporary one. It is kept either way,
        and its place is printed.
      seed: all randomness; the same seed gives the same files, byte for byte (predictions: on one machine, as linear
        algebra rounds differently on another).
      console: where progress and the table go; standard output when None.

    Returns:
      The result documents of `ENTRIES`, in that order, as `score_submission` makes them: raw scores in each metric's
      unit, normalized ones in [0, 1] (higher is better), gaps in percentage points.

    Raises:
      ReleaseError: ``out_dir`` is not empty.
      EvaluationError: a negative seed.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from emma_jax.report import build_leaderboard, to_table
    from emma_jax.submissions import score_submission, write_result

    check_seed(seed)
    console = console or Console()
    root = fresh_folder(out_dir)
    results = []
    columns = (TextColumn("{task.description:32}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        num_folds = sum(len(scene.environments) + 1 for scene in SCENES.values())
        bar = progress.add_task("simulating", total=num_folds * (1 + len(ENTRIES)))
        for scene in SCENES.values():
            for done in _write_scene(root, scene, seed):
                progress.update(bar, advance=1, description=f"simulated {done}")
        release = _build_release(root, seed)
        for entry in ENTRIES:
            folder = root / "submissions" / entry.baseline
            _write_description(folder, entry)

            def show(done: int, total: int, what: str, name: str = entry.name) -> None:
                progress.update(bar, advance=1 if done else 0, description=f"scoring {name}")

            result = score_submission(folder, release, progress=show)
            write_result(result, _place(root / "results" / f"{entry.baseline}.json"))
            results.append(result)
    console.print(to_table(build_leaderboard(results)))
    console.print(f"release, submissions and results: {root}", soft_wrap=True, markup=False)
    return results
