"""The demo from end to end: the order that theory predicts, honest baselines, and a release like any other."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from emma_jax.demo import SCENES, aoa, draw, leave_out, run, run_demo, training_draws
from emma_jax.errors import EvaluationError, ReleaseError
from emma_jax.release import load_release
from emma_jax.submissions import load_result

AVERAGED = ("E-LOC-AOA", "E-LOC-LOS", "E-ID-DRONE", "E-ID-FP")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """One run, shared: its folder, its three results (strong, middle, floor) and what it printed."""
    root = tmp_path_factory.mktemp("demo") / "out"
    out = io.StringIO()
    results = run_demo(root, seed=0, console=Console(file=out, width=200))
    strong, middle, floor = results
    return SimpleNamespace(root=root, results=results, strong=strong, middle=middle, floor=floor, text=out.getvalue())


def folds(result: dict, task: str) -> dict[str, float]:
    return {fold: entry["value"] for fold, entry in result["tasks"][task]["folds"].items()}


# ------------------------------------------------------------------------------------------- what theory predicts


def test_music_beats_bartlett_beats_the_mean_angle(demo: SimpleNamespace) -> None:
    """MUSIC < Bartlett < circular mean in degrees, per environment and on average. Oracle: array theory; strict."""
    music, bartlett, mean = (folds(result, "E-LOC-AOA") for result in demo.results)
    for fold in music:
        assert music[fold] < bartlett[fold] < mean[fold], fold
    raw = [result["tasks"]["E-LOC-AOA"]["raw"] for result in demo.results]
    assert raw[0] < raw[1] < raw[2]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_order_is_no_luck_of_the_seed(seed: int) -> None:
    """The same in every environment for other seeds, by the definition of the error in float64."""
    training = training_draws(aoa.SCENE, seed)
    for fold in aoa.SCENE.environments:
        scored = draw(aoa.SCENE, fold, seed)
        music, bartlett, mean = (
            np.abs(baseline(scored.signals, leave_out(training, fold)) - scored.labels).mean()
            for baseline in (aoa.SCENE.strong, aoa.SCENE.middle, aoa.SCENE.floor)
        )
        assert music < bartlett < mean, fold


def test_mean_angle_costs_thirty_degrees_in_every_environment(demo: SimpleNamespace) -> None:
    """The floor's error is 30 degrees on a uniform sector of +-60. Oracle: the integral; 5 standard errors."""
    for fold, value in folds(demo.floor, "E-LOC-AOA").items():
        assert value == pytest.approx(30, abs=5 * (60 / np.sqrt(12)) / np.sqrt(run.NUM_SAMPLES)), fold


def test_submissions_rank_as_designed(demo: SimpleNamespace) -> None:
    """OOD-avg and every task: strong > middle > floor, and the floor near 0. Oracle: signal theory; 0.03 and 0.06."""
    assert demo.strong["ood_avg"] > demo.middle["ood_avg"] > demo.floor["ood_avg"]
    assert 0 <= demo.floor["ood_avg"] < 0.03
    assert demo.strong["ood_avg"] < 1
    for task in AVERAGED:
        strong, middle, floor = (result["tasks"][task]["normalized"] for result in demo.results)
        assert strong > middle > floor, task
        assert floor < 0.06, task
    amc = [result["continuity"]["E-ID-AMC"] for result in demo.results]
    assert amc[0] > amc[1] > amc[2]


def test_floors_are_chance(demo: SimpleNamespace) -> None:
    """Constant answers score 1/2 (balanced accuracy, AUC), 1/8 (top-1), 1/2 (EER): the definitions; exact."""
    assert set(folds(demo.floor, "E-LOC-LOS").values()) == {0.5}
    assert set(folds(demo.floor, "E-ID-DRONE").values()) == {0.5}
    assert set(folds(demo.floor, "E-ID-FP").values()) == {1 / 8}
    for entry in demo.floor["tasks"]["E-ID-FP"]["folds"].values():
        assert entry["metrics"]["EER"]["value"] == 0.5


def test_impairments_open_a_gap(demo: SimpleNamespace) -> None:
    """What reads the signal loses on the real split, in every task; what never looks at it has no gap to speak of.

    Oracle: the real split has impairments that the synthetic one lacks. For the floor: exactly 0 where constants score
    chance, 5 standard errors of the difference (15 percentage points) for the mean angle.
    """
    for task in AVERAGED:
        assert demo.strong["tasks"][task]["gap_pp"] > 2, task
    assert demo.strong["gap_pp"] > 5
    for task in AVERAGED[1:]:
        assert demo.floor["tasks"][task]["gap_pp"] == 0, task
    assert abs(demo.floor["tasks"]["E-LOC-AOA"]["gap_unclipped_pp"]) < 15
    assert demo.strong["tasks"]["E-ID-AMC"]["real_raw"] < demo.strong["tasks"]["E-ID-AMC"]["raw"]


# ------------------------------------------------------------------------------------------------ the numbers


def auc(positive: np.ndarray, negative: np.ndarray) -> float:
    difference = positive[:, None] - negative
    return float((difference > 0).mean() + (difference == 0).mean() / 2)


ORACLES = {
    "E-LOC-AOA": lambda p, y: np.abs(p - y).mean(),  # both inside +-61 degrees: nothing wraps
    "E-LOC-LOS": lambda p, y: np.mean([(p.argmax(1)[y == c] == c).mean() for c in range(2)]),
    "E-ID-DRONE": lambda p, y: np.mean([auc(p[y == c, c], p[y != c, c]) for c in range(3)]),
    "E-ID-FP": lambda p, y: (p.argmax(1) == y).mean(),
    "E-ID-AMC": lambda p, y: (p.argmax(1) == y).mean(),
}


@pytest.mark.parametrize("task", ORACLES)
def test_scores_are_those_of_the_files(demo: SimpleNamespace, task: str) -> None:
    """All folds and real splits of all submissions. Oracle: the definition in float64 on the files; 1e-9 relative."""
    for result, entry in zip(demo.results, run.ENTRIES):
        for fold in (*SCENES[task].environments, "real"):
            labels = np.load(demo.root / f"release/labels/{task}/{fold}.npz")["labels"]
            preds = np.load(demo.root / f"submissions/{entry.baseline}/preds/{task}/{fold}.npz")["preds"]
            expected = ORACLES[task](preds, labels)
            found = result["tasks"][task]["real_raw"] if fold == "real" else folds(result, task)[fold]
            assert found == pytest.approx(expected, rel=1e-9), (entry.baseline, fold)


def test_ood_avg_is_the_mean_of_the_normalized_scores(demo: SimpleNamespace) -> None:
    """Fold means, between the scene's anchors, clipped, averaged over the four tasks. Oracle: written out; 1e-12."""
    for result in demo.results:
        normalized = []
        for task in AVERAGED:
            anchor, value = SCENES[task].anchor, np.mean(list(folds(result, task).values()))
            assert anchor is not None
            position = (value - anchor["m_min"]) / (anchor["m_max"] - anchor["m_min"])
            normalized.append(np.clip(1 - position if task == "E-LOC-AOA" else position, 0, 1))
        assert result["ood_avg"] == pytest.approx(np.mean(normalized), abs=1e-12)


# ------------------------------------------------------------------------------------------------------- honesty


@pytest.mark.parametrize("task", SCENES)
def test_no_baseline_learns_from_the_environment_it_is_scored_on(task: str, tmp_path: Path) -> None:
    """Training holds the other environments' training draws, and none of the scored signals. Oracle: `draw`; exact."""
    seen: list[tuple[np.ndarray, np.ndarray]] = []

    def spy(signals: np.ndarray, training: object) -> np.ndarray:
        seen.append((signals, training.signals))  # type: ignore[attr-defined]
        return np.zeros(len(signals))

    scene = replace(SCENES[task], strong=spy, middle=lambda s, t: np.zeros(len(s)), floor=lambda s, t: np.zeros(len(s)))
    assert len(list(run._write_scene(tmp_path, scene, 5))) == len(seen) == len(scene.environments) + 1
    own = {name: draw(scene, name, 5, training=True).signals for name in scene.environments}
    for fold, (scored, training) in zip((*scene.environments, "real"), seen):
        others = [signals for name, signals in own.items() if name != fold]
        assert len(others) == len(own) - (fold != "real")
        np.testing.assert_array_equal(training, np.concatenate(others))
        first = {complex(x) for x in training.reshape(len(training), -1)[:, 0]}
        assert not first & {complex(x) for x in scored.reshape(len(scored), -1)[:, 0]}
        assert fold == "real" or not first & {complex(x) for x in own[fold].reshape(len(own[fold]), -1)[:, 0]}


def test_floor_angle_is_the_mean_of_the_other_environments(demo: SimpleNamespace) -> None:
    """One angle per fold: the direction of the mean unit vector of the training labels. Oracle: written out; 1e-9."""
    for fold in (*aoa.SCENE.environments, "real"):
        preds = np.load(demo.root / f"submissions/floor/preds/E-LOC-AOA/{fold}.npz")["preds"]
        angle = np.concatenate(
            [draw(aoa.SCENE, e, 0, training=True).labels for e in aoa.SCENE.environments if e != fold]
        )
        phasor = np.exp(1j * np.deg2rad(angle)).sum()
        np.testing.assert_allclose(preds, np.rad2deg(np.arctan2(phasor.imag, phasor.real)), atol=1e-9)


@pytest.mark.parametrize("task", SCENES)
def test_environments_differ_in_physics(task: str) -> None:
    """At least four environments, no two alike, and a real split unlike all of them. Oracle: their parameters."""
    scene = SCENES[task]
    parameters = [*scene.environments.values(), scene.real]
    assert len(scene.environments) >= 4
    assert all(a != b for i, a in enumerate(parameters) for b in parameters[:i])


# ------------------------------------------------------------------------------------------------------- the files


def test_release_is_frozen_and_verifies(demo: SimpleNamespace) -> None:
    """The folder loads as a frozen release with the scenes' folds, axes and anchors, and every label file verifies."""
    release = load_release(demo.root / "release")
    assert release.frozen
    assert release.aggregated == tuple(sorted(AVERAGED))
    assert len(release.verify(release.digest)) == sum(len(scene.environments) + 1 for scene in SCENES.values())
    for task, scene in SCENES.items():
        entry = release.tasks[task]
        assert {(name, file.axis, file.n) for name, file in entry.folds.items()} == {
            (name, scene.axis, run.NUM_SAMPLES) for name in scene.environments
        }
        assert entry.real is not None
        anchor = None if entry.anchor is None else {"m_min": entry.anchor.m_min, "m_max": entry.anchor.m_max}
        assert anchor == (scene.anchor and {key: scene.anchor[key] for key in ("m_min", "m_max")})
    assert demo.strong["release"]["digest"] == release.digest


def test_rows_are_matched_by_id_and_broken_down_by_snr(demo: SimpleNamespace) -> None:
    """Every fold says that ids matched the rows, and has its SNR thirds with all samples. Oracle: counts."""
    for entry in demo.strong["tasks"].values():
        for fold in entry["folds"].values():
            assert fold["rows"] == "by id"
            assert set(fold["groups"]) == {"SNR low", "SNR middle", "SNR high"}
            metric = entry["metric"]
            assert sum(group[metric]["n_used"] for group in fold["groups"].values()) == run.NUM_SAMPLES


def test_music_gets_better_with_snr(demo: SimpleNamespace) -> None:
    """The mean error in the high SNR thirds is below that in the low ones. Oracle: estimation theory; strict."""
    thirds = [fold["groups"] for fold in demo.strong["tasks"]["E-LOC-AOA"]["folds"].values()]
    low, high = (np.mean([g[name]["MeanAngularError"]["value"] for g in thirds]) for name in ("SNR low", "SNR high"))
    assert high < low


def test_same_seed_same_bytes(demo: SimpleNamespace, tmp_path: Path) -> None:
    """A second run writes the same labels and predictions; another seed writes others. Oracle: the bytes."""
    scene = SCENES["E-LOC-LOS"]
    for folder, seed in ((tmp_path / "same", 0), (tmp_path / "other", 1)):
        assert list(run._write_scene(folder, scene, seed))
    files = [p.relative_to(tmp_path / "same") for p in (tmp_path / "same").rglob("*.npz")]
    assert len(files) == (len(scene.environments) + 1) * 4
    for path in files:
        assert (tmp_path / "same" / path).read_bytes() == (demo.root / path).read_bytes(), path
    labels = Path("release/labels/E-LOC-LOS/real.npz")
    assert (tmp_path / "other" / labels).read_bytes() != (demo.root / labels).read_bytes()


def test_results_are_on_disk_and_the_leaderboard_is_printed(demo: SimpleNamespace) -> None:
    """Each result file holds what was returned, and the output names the submissions in rank order and the folder."""
    for result, entry in zip(demo.results, run.ENTRIES):
        stored = load_result(demo.root / f"results/{entry.baseline}.json")
        assert stored["ood_avg"] == result["ood_avg"]
        assert stored["submission"] == {"name": entry.name, "model": entry.model, "notes": entry.notes}
    lines = demo.text.splitlines()
    ranks = [next(i for i, line in enumerate(lines) if entry.model in line) for entry in run.ENTRIES]
    assert ranks == sorted(ranks)
    assert str(demo.root) in demo.text
    assert f"{demo.strong['ood_avg']:.4f}" in demo.text


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """A folder with anything in it, or a file, is refused by name before anything is written."""
    (tmp_path / "mine.txt").write_text("precious")
    for target in (tmp_path, tmp_path / "mine.txt"):
        with pytest.raises(ReleaseError, match="overwrites nothing") as raised:
            run_demo(target, console=Console(file=io.StringIO()))
        assert str(target) in str(raised.value)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_bad_arguments_are_named(tmp_path: Path) -> None:
    """A negative seed, an unknown environment and training on the real split are typed errors that say so."""
    with pytest.raises(EvaluationError, match="seed"):
        run_demo(tmp_path / "new", seed=-1, console=Console(file=io.StringIO()))
    assert not (tmp_path / "new").exists()
    with pytest.raises(EvaluationError, match="'moon' is not one of corridor"):
        draw(aoa.SCENE, "moon", 0)
    with pytest.raises(EvaluationError, match="'real' is not one of"):
        draw(aoa.SCENE, "real", 0, training=True)
