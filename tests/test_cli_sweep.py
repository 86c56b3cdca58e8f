"""emma-jax sweep: exit codes, one line of errors, tables. Oracle: the definitions in exact rationals (`oracles`)."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import oracles
import pytest
from typer.testing import CliRunner

from emma_jax.cli import app
from emma_jax.cli.shared import use_compilation_cache
from emma_jax.io import loads_strict, write_npz
from emma_jax.sweeps import load_table, sweep_files

N = 30
LABELS = np.arange(N) % 3


def scores(seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=(N, 3)) + np.eye(3)[LABELS]).astype(np.float32)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """labels.npz and four files of two runs and two folds; no launcher, no compilation cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "")
    for name in ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(name, raising=False)
    write_npz("labels.npz", labels=LABELS)
    for i, (run, fold) in enumerate((r, f) for r in ("a", "b") for f in ("x", "y")):
        Path(f"runs/{run}").mkdir(parents=True, exist_ok=True)
        write_npz(f"runs/{run}/{fold}.npz", preds=scores(i))
    return tmp_path


def sweep(*arguments: str, task: str = "E-ID-AMC", preds: str = "runs/{run}/{fold}.npz"):
    return CliRunner().invoke(app, ["sweep", task, "--preds", preds, "--labels", "labels.npz", *arguments])


def exact(i: int) -> float:
    return float(oracles.top_k(scores(i), LABELS, 1))


@pytest.mark.parametrize("suffix", ["csv", pytest.param("parquet", marks=pytest.mark.slow)])
def test_the_table_holds_the_definitions_and_the_screen_the_pivot(suffix):
    """Exit 0; the file's values are the exact ones; the screen shows mean and worst fold of each run."""
    result = sweep("-o", f"out.{suffix}")
    assert result.exit_code == 0, result.output
    table = load_table(f"out.{suffix}")
    assert table.column("PlainAccuracy") == [exact(i) for i in range(4)]
    assert (table.column("run"), table.column("fold")) == (list("aabb"), list("xyxy"))
    lines = [line for line in result.stdout.splitlines() if "│ a " in line]
    assert len(lines) == 1 and f"{(exact(0) + exact(1)) / 2:.6g}" in lines[0]
    assert f" {'xy'[int(exact(1) < exact(0))]} " in lines[0]


def test_json_is_strict_and_whole():
    """--json: strict JSON with every row, null where there is no value."""
    write_npz("runs/b/y.npz", preds=np.full((N, 3), np.nan))
    result = sweep("--json")
    assert result.exit_code == 0
    document = loads_strict(result.stdout.encode(), "stdout")
    assert [r["PlainAccuracy"] for r in document["rows"]] == [exact(0), exact(1), exact(2), None]
    assert document["complete"] is True and document["task"] == "E-ID-AMC"
    assert "1 of 4 files lack a value; first: runs/b/y.npz: " in result.stderr and "NaN" in result.stderr


def test_without_folds_the_best_files_are_listed():
    """A plain pattern lists files, the best first."""
    result = sweep(preds="runs/*/*.npz")
    at = [result.stdout.index(f"runs/{'ab'[i // 2]}/{'xy'[i % 2]}.npz") for i in range(4)]
    best = sorted(range(4), key=lambda i: -exact(i))
    assert result.exit_code == 0 and sorted(range(4), key=lambda i: at[i])[0] == best[0]


def test_a_sweep_without_any_value_fails():
    """Every file bad: one line that names the first and its reason, exit 1, and the table is there all the same."""
    write_npz("labels.npz", labels=np.full(N, 7))
    result = sweep("-o", "out.csv")
    assert result.exit_code == 1
    assert "none of 4 files has a value; first: runs/a/x.npz: E-ID-AMC: labels" in result.stderr
    assert all(math.isnan(v) for v in load_table("out.csv").column("PlainAccuracy"))


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["-o", "out.xlsx"], 1, ".csv or .parquet"),
        (["--param", "num_classes=0"], 1, "num_classes"),
        (["--param", "nonsense"], 2, "NAME=VALUE"),
        (["--process", "1"], 2, "--distributed"),
        (["--distributed"], 1, "--process"),
        (["-o", "labels.npz/out.csv"], 1, "labels.npz"),
    ],
)
def test_wrong_calls_end_with_one_line(arguments, code, words):
    """Input that is wrong: 1 and one line; usage that is wrong: 2."""
    result = sweep(*arguments)
    assert result.exit_code == code and words in result.stderr
    assert code == 2 or len(result.stderr.splitlines()) == 1


def test_unknown_tasks_missing_labels_and_no_files():
    """Each in one line with exit code 1."""
    for result, words in (
        (sweep(task="E-NO"), "not a known task"),
        (sweep(preds="nothing/*.npz"), "matches no file"),
        (sweep("--labels", "gone.npz"), "gone.npz"),
    ):
        assert result.exit_code == 1 and words in result.stderr and len(result.stderr.splitlines()) == 1


def test_a_changed_label_file_is_refused_until_restart(monkeypatch):
    """After an interruption (exit 130) changed labels end with one line and 1; --restart scores anew."""
    import emma_jax.sweeps.scoring as scoring

    real = scoring._Reader.record
    calls: list[str] = []

    def interrupt(self, run, file):
        calls.append(run.path)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(self, run, file)

    monkeypatch.setattr(scoring._Reader, "record", interrupt)
    assert sweep("-o", "out.csv").exit_code == 130 and not Path("out.csv").exists()
    write_npz("labels.npz", labels=np.roll(LABELS, 1))
    refused = sweep("-o", "out.csv")
    assert refused.exit_code == 1 and "other labels" in refused.stderr and len(refused.stderr.splitlines()) == 1
    assert sweep("-o", "out.csv", "--restart").exit_code == 0
    want = float(oracles.top_k(scores(0), np.roll(LABELS, 1), 1))
    assert load_table("out.csv").column("PlainAccuracy")[0] == want


def test_processes_of_a_launcher_share_the_files(monkeypatch):
    """Two SLURM processes one after the other: the first says that it waits, the second writes the whole table."""
    sweep_files("E-ID-AMC", "runs/{run}/{fold}.npz", "labels.npz", output="single.csv")
    monkeypatch.setenv("SLURM_NTASKS", "2")
    monkeypatch.setenv("SLURM_PROCID", "0")
    first = sweep("-o", "out.csv", "--distributed")
    assert first.exit_code == 0 and "the last of 2 processes writes the table" in first.stdout
    assert not Path("out.csv").exists()
    second = sweep("-o", "out.csv", "--distributed", "--process", "1", "--json")
    assert second.exit_code == 0 and len(json.loads(second.stdout)["rows"]) == 4
    assert Path("out.csv").read_bytes() == Path("single.csv").read_bytes()


def test_a_cache_folder_of_the_user_keeps_short_kernels_too(monkeypatch):
    """With JAX_COMPILATION_CACHE_DIR the folder stays the user's, and only JAX's threshold of one second, below which
    every kernel of ours would be compiled again, is lifted; unless the user has set it."""
    updates = {}
    monkeypatch.setattr("jax.config.update", lambda key, value: updates.update({key: value}))
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "elsewhere")
    use_compilation_cache()
    assert updates == {"jax_persistent_cache_min_compile_time_secs": 0.0}
    updates.clear()
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "2")
    use_compilation_cache()
    assert updates == {}
