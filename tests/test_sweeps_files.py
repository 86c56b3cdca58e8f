"""Sweeps over files. Oracles: the definitions in exact rationals (`oracles`), `evaluate` on the arrays of each file, an
undisturbed sweep (byte for byte) for an interrupted one, and statistics by hand for the pivot."""

from __future__ import annotations

import csv
import json
import math
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import array_oracles
import numpy as np
import oracles
import pytest

import emma_jax as emma
from emma_jax.errors import EmptyEvaluationError, EvaluationError, FileFormatError
from emma_jax.io import write_npz, write_touchstone
from emma_jax.sweeps import find_runs, load_table, pivot, sweep_files, write_table
from emma_jax.sweeps.journal import journal_path

N = 40
LABELS = np.arange(N) % 3
COUNTS = ("n", "n_used", "n_nonfinite", "n_invalid_label", "n_excluded", "n_absent_classes")


def scores(seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=(N, 3)) + np.eye(3)[LABELS]).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """labels.npz and runs/<run>/<fold>/seed-<k>.npz for two runs, two folds and three seeds."""
    monkeypatch.chdir(tmp_path)
    write_npz("labels.npz", labels=LABELS, ids=np.arange(N))
    for i, (run, fold, seed) in enumerate((r, f, s) for r in ("a", "b") for f in ("x", "y") for s in (1, 2, 3)):
        path = Path(f"runs/{run}/{fold}/seed-{seed}.npz")
        path.parent.mkdir(parents=True, exist_ok=True)
        order = np.random.default_rng(i).permutation(N)  # ids bring the rows back in order
        write_npz(path, preds=scores(i)[order], ids=order)
    return tmp_path


PATTERN = "runs/{run}/{fold}/seed-{seed}.npz"


def test_every_file_is_a_row_with_the_value_of_its_definition(folder):
    """Values are the exact definitions on the file's rows in label order, counts and threshold those of evaluate; keys
    come from the path."""
    table = sweep_files("E-ID-FP", PATTERN, "labels.npz")
    assert [r["path"] for r in table.rows] == sorted(p.as_posix() for p in Path("runs").rglob("*.npz"))
    assert table.columns[:7] == ("path", "run", "fold", "seed", "status", "reason", "sha256")
    assert table.metrics == ("Top1Accuracy", "EER") and table.complete and len(table) == 12
    for i, row in enumerate(table.rows):
        assert (row["run"], row["fold"], row["seed"]) == ("ab"[i // 6], "xy"[i // 3 % 2], str(i % 3 + 1))
        want = emma.evaluate("E-ID-FP", scores(i), LABELS)
        assert row["Top1Accuracy"] == float(oracles.top_k(scores(i), LABELS, 1)) == want["Top1Accuracy"]
        exact, threshold = oracles.eer(*oracles.pooled(scores(i), LABELS)[:2])
        assert row["EER"] == pytest.approx(float(exact), abs=1e-12) and row["EER"] == want["EER"]
        assert row["EER.threshold"] == pytest.approx(threshold)
        for metric in table.metrics:
            assert {k: row[f"{metric}.{k}"] for k in COUNTS} == want.validity[metric].as_dict()
        assert (row["status"], row["reason"]) == ("ok", "")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table_reads_back_as_it_was_written(folder, suffix):
    """Write, read: the same rows, columns and metrics, missing values included; the same rows give the same bytes."""
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    write_npz("runs/a/x/seed-1.npz", preds=np.full((N, 3), np.nan, np.float32))
    Path("runs/b/y/seed-3.npz").write_bytes(b"no zip")
    table = sweep_files("E-ID-AMC", PATTERN, "labels.npz", output=f"out{suffix}")
    again = load_table(f"out{suffix}")
    assert again.columns == table.columns and again.metrics == table.metrics == ("PlainAccuracy",)
    for one, other in zip(table.rows, again.rows):
        for name in table.columns:
            assert one[name] == other[name] or (math.isnan(one[name]) and math.isnan(other[name]))
    write_table(again if suffix == ".csv" else table, f"copy{suffix}")
    assert Path(f"copy{suffix}").read_bytes() == Path(f"out{suffix}").read_bytes()
    assert not list(Path().glob("*.journal"))
    if suffix == ".csv":
        with open("out.csv", encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
        assert [r["PlainAccuracy"] for r in rows[1:-1]] == [repr(r["PlainAccuracy"]) for r in table.rows[1:-1]]
        assert rows[0]["PlainAccuracy"] == rows[-1]["PlainAccuracy"] == ""


def test_a_perfect_channel_is_minus_infinity_in_every_form(tmp_path, monkeypatch):
    """NMSE of a perfect prediction: -inf (the logarithm of 0) in the table, in the file and read back."""
    monkeypatch.chdir(tmp_path)
    h = np.random.default_rng(0).normal(size=(8, 4, 2)).astype(np.float32)
    write_npz("labels.npz", labels=h)
    write_npz("perfect.npz", preds=h)
    table = sweep_files("E-CH-CSI", ["perfect.npz"], "labels.npz", output="out.csv")
    assert table.rows[0]["NMSE"] == -math.inf == load_table("out.csv").rows[0]["NMSE"]


def test_files_that_cannot_be_scored_are_rows_with_a_reason(folder):
    """Damaged, missing, of the wrong shape, with NaN or unknown ids: a row that says why, and all others are scored."""
    write_npz("runs/a/x/seed-1.npz", preds=np.where(np.arange(3) == 1, np.nan, scores(0)))
    write_npz("runs/a/x/seed-2.npz", preds=scores(1)[:-1])
    write_npz("runs/a/x/seed-3.npz", preds=scores(2), ids=np.arange(N) + 1)
    Path("runs/a/y/seed-1.npz").write_bytes(b"PK\x03\x04 and no more")
    write_npz("runs/a/y/seed-2.npz", other=scores(4))
    write_npz("runs/a/y/seed-3.npz", preds=scores(5)[:, :2])
    os.symlink("nowhere.npz", "runs/b/x/broken.npz")
    paths = [*Path("runs").rglob("*.npz"), Path("gone.npz")]
    table = sweep_files("E-ID-AMC", paths, "labels.npz")
    rows = {r["path"]: r for r in table.rows}
    wanted = {
        "runs/a/x/seed-1.npz": ("bad", "NaN"),
        "runs/a/x/seed-2.npz": ("unreadable", "39 predictions for the 40 labels"),
        "runs/a/x/seed-3.npz": ("unreadable", "ids missing"),
        "runs/a/y/seed-1.npz": ("unreadable", "seed-1.npz"),
        "runs/a/y/seed-2.npz": ("unreadable", "'other'"),
        "runs/a/y/seed-3.npz": ("bad", "labels"),
        "runs/b/x/broken.npz": ("unreadable", "No such file"),
        "gone.npz": ("unreadable", "No such file"),
    }
    for path, (status, words) in wanted.items():
        assert rows[path]["status"] == status and words in rows[path]["reason"], rows[path]
        assert math.isnan(rows[path]["PlainAccuracy"]) and "\n" not in rows[path]["reason"]
    assert rows["runs/a/x/seed-1.npz"]["PlainAccuracy.n_nonfinite"] == N
    assert rows["gone.npz"]["PlainAccuracy.n"] is None and table.num_without_value == len(wanted)
    good = [r for p, r in rows.items() if p not in wanted]
    assert len(good) == 6 and all(r["status"] == "ok" for r in good)
    assert good[0]["PlainAccuracy"] == float(oracles.top_k(scores(6), LABELS, 1))


@pytest.mark.parametrize(
    ("pattern", "keys"),
    [
        ("runs/*/x/seed-?.npz", {}),
        ("runs/**/seed-[12].npz", {}),
        ("runs/{run}/**/seed-{seed}.npz", {"run": "a", "seed": "1"}),
        ("{top}/{run}/{fold}/seed-{seed}.npz", {"top": "runs", "run": "a", "fold": "x", "seed": "1"}),
        ("runs/{run}/{fold}/{kind}-*.npz", {"run": "a", "fold": "x", "kind": "seed"}),
    ],
)
def test_patterns_find_files_and_name_their_parts(folder, pattern, keys):
    """Found is what the shell's glob finds with every {name} a star; a name is the part of the path at its place."""
    shell = subprocess.run(
        ["bash", "-c", "shopt -s globstar; LC_ALL=C; printf '%s\\n' " + re.sub(r"\{\w+\}", "*", pattern)],
        capture_output=True,
        text=True,
        check=True,
    )
    found = find_runs(pattern)
    assert [r.path for r in found] == sorted(shell.stdout.split())
    assert dict(found[0].keys) == keys


def test_folders_lists_and_repeated_names(folder):
    """A folder is searched at any depth, hidden files apart; the same name twice stands for the same text."""
    Path("runs/.hidden.npz").write_bytes(b"")
    Path("runs/a/notes.txt").write_bytes(b"")
    paths = sorted(p.as_posix() for p in Path("runs").rglob("seed*.npz"))
    assert [r.path for r in find_runs("runs")] == paths == [r.path for r in find_runs(reversed(paths))]
    Path("same/a-a").mkdir(parents=True)
    for name in ("same/a-a/p.npz", "same/a-a/q.npz"):
        Path(name).write_bytes(b"")
    assert [dict(r.keys) for r in find_runs("same/{x}-{x}/{file}.npz")] == [{"x": "a", "file": f} for f in "pq"]
    for wrong, error in (
        ("nothing/*.npz", EmptyEvaluationError),
        ([], EmptyEvaluationError),
        ("runs/{path}/x/*.npz", EvaluationError),
        (["runs/a/x/seed-1.npz", "runs/a/x/seed-1.npz"], EvaluationError),
    ):
        with pytest.raises(error):
            find_runs(wrong)
    with pytest.raises(EvaluationError, match="PlainAccuracy"):
        sweep_files("E-ID-AMC", "runs/{PlainAccuracy}/x/*.npz", "labels.npz")


# --- interruptions ------------------------------------------------------------------------------------------------

_RUN = """
import json, os, signal, sys
from emma_jax.sweeps import sweep_files
kill_at, report = int(sys.argv[1]), open(sys.argv[2], "a")
def progress(done, total, path):
    if done == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
    print(path, file=report, flush=True)
sweep_files("E-ID-AMC", "runs/{run}/{fold}/seed-{seed}.npz", "labels.npz", output="out.csv", progress=progress)
"""


def test_killed_sweeps_go_on_and_give_the_same_table(folder):
    """SIGKILL after 3 and again after 7 of 12 files, then to the end: the bytes of an undisturbed sweep, no file scored
    twice, none left out. Without the fault of one file being lost: a half line at the end of the journal is cut off."""
    Path("runs/a/y/seed-2.npz").write_bytes(b"damaged")
    sweep_files("E-ID-AMC", PATTERN, "labels.npz", output="undisturbed.csv")
    env = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    for kill_at in (3, 7):
        run = subprocess.run([sys.executable, "-c", _RUN, str(kill_at), "report.txt"], env=env, check=False)
        assert run.returncode == -signal.SIGKILL
        journal = Path("out.csv.journal")
        assert len(journal.read_bytes().splitlines()) == 1 + kill_at and not Path("out.csv").exists()
        with open(journal, "ab") as stream:
            stream.write(b'{"path": "runs/a/y/se')
    seen: list[str] = []
    sweep_files("E-ID-AMC", PATTERN, "labels.npz", output="out.csv", progress=lambda d, t, p: seen.append(p))
    assert Path("out.csv").read_bytes() == Path("undisturbed.csv").read_bytes()
    scored = [*Path("report.txt").read_text().split(), *seen[:-1]]
    assert sorted(scored) == [r.path for r in find_runs(PATTERN)]
    assert not Path("out.csv.journal").exists()


def _interrupted(monkeypatch, after: int, **arguments):
    """A sweep that stops after so many files, as by Ctrl-C."""

    def stop(done, total, path):
        if done == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep_files("E-ID-AMC", PATTERN, "labels.npz", output="out.csv", progress=stop, **arguments)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda: write_npz("labels.npz", labels=np.roll(LABELS, 1), ids=np.arange(N)), "other labels"),
        (lambda: write_npz("runs/a/x/seed-1.npz", preds=scores(99)), "has changed"),
        (lambda: Path("runs/a/x/seed-1.npz").unlink(), "is gone"),
    ],
)
def test_changed_inputs_are_refused_on_resume(folder, monkeypatch, change, words):
    """Labels, a scored file that changed (same size, its time set back) or is gone: one line, and nothing is written;
    starting anew works."""
    _interrupted(monkeypatch, 4)
    status = os.stat("runs/a/x/seed-1.npz")
    change()
    if Path("runs/a/x/seed-1.npz").exists():
        os.utime("runs/a/x/seed-1.npz", ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(FileFormatError, match=words) as error:
        sweep_files("E-ID-AMC", PATTERN, "labels.npz", output="out.csv")
    assert "\n" not in str(error.value) and not Path("out.csv").exists()
    sweep_files("E-ID-AMC", PATTERN, "labels.npz", output="out.csv", resume=False)
    fresh = sweep_files("E-ID-AMC", PATTERN, "labels.npz")
    assert load_table("out.csv").column("PlainAccuracy") == fresh.column("PlainAccuracy")


def test_other_settings_are_refused_on_resume(folder, monkeypatch):
    """Another task, parameter or pattern: refused, and the message says which differs."""
    _interrupted(monkeypatch, 4)
    for task, pattern, params, words in (
        ("E-ID-FP", PATTERN, {}, "other parameters, task"),
        ("E-ID-AMC", PATTERN, {"num_classes": 3}, "other parameters"),
        ("E-ID-AMC", "runs/*/*/*.npz", {}, "other predictions"),
    ):
        with pytest.raises(FileFormatError, match=words):
            sweep_files(task, pattern, "labels.npz", output="out.csv", **params)
    Path("out.csv.journal").write_bytes(b"something else\n")
    with pytest.raises(FileFormatError, match="no journal"):
        sweep_files("E-ID-AMC", PATTERN, "labels.npz", output="out.csv")


def test_new_files_join_a_sweep_that_goes_on(folder, monkeypatch):
    """A file that appears after the interruption is scored with the rest; a rewritten one with the same content is not
    refused."""
    _interrupted(monkeypatch, 4)
    Path("runs/c/x").mkdir(parents=True)
    write_npz("runs/c/x/seed-1.npz", preds=scores(50))
    data = Path("runs/a/x/seed-1.npz").read_bytes()
    Path("runs/a/x/seed-1.npz").write_bytes(data)
    table = sweep_files("E-ID-AMC", PATTERN, "labels.npz", output="out.csv")
    assert len(table) == 13
    assert table.rows[-1]["PlainAccuracy"] == float(oracles.top_k(scores(50), LABELS, 1))


def test_two_sweeps_do_not_write_one_journal(folder):
    """A second sweep on the same output is refused while the first runs."""
    errors = []

    def progress(done, total, path):
        if done == 1:
            with pytest.raises(FileFormatError, match="another sweep") as error:
                sweep_files("E-ID-AMC", PATTERN, "labels.npz", output="out.csv")
            errors.append(error)

    sweep_files("E-ID-AMC", PATTERN, "labels.npz", output="out.csv", progress=progress)
    assert len(errors) == 1


def test_several_processes_share_the_files(folder):
    """Three processes, one of them interrupted and resumed: the last to finish writes the bytes of a single one."""
    sweep_files("E-ID-AMC", PATTERN, "labels.npz", output="single.csv")

    def part(index, **arguments):
        return sweep_files(
            "E-ID-AMC", PATTERN, "labels.npz", output="out.csv", process_index=index, process_count=3, **arguments
        )

    first = part(0)
    assert not first.complete and len(first) == 4 and not Path("out.csv").exists()
    with pytest.raises(KeyboardInterrupt):
        part(1, progress=lambda d, t, p: (_ for _ in ()).throw(KeyboardInterrupt) if d == 2 else None)
    assert not part(2).complete
    last = part(1)
    assert last.complete and len(last) == 12
    assert Path("out.csv").read_bytes() == Path("single.csv").read_bytes()
    assert not list(Path().glob("*.journal"))
    for wrong in ({"process_index": 3, "process_count": 3}, {"process_index": 0, "process_count": 2, "output": None}):
        with pytest.raises(EvaluationError):
            sweep_files("E-ID-AMC", PATTERN, "labels.npz", **wrong)


@pytest.mark.slow
def test_2000_files_killed_five_times_at_random(tmp_path, monkeypatch):
    """The acceptance: 2,000 files, SIGKILL at five random moments, resumed each time: the bytes of an undisturbed
    sweep; what was reported is never scored again."""
    monkeypatch.chdir(tmp_path)
    write_npz("labels.npz", labels=LABELS)
    for i in range(2000):
        path = Path(f"runs/{i // 100}/{i // 10 % 10}/seed-{i % 10}.npz")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_npz(path, preds=scores(i))
    for i in (3, 700, 1999):
        Path(f"runs/{i // 100}/{i // 10 % 10}/seed-{i % 10}.npz").write_bytes(b"damaged")
    sweep_files("E-ID-AMC", PATTERN, "labels.npz", output="undisturbed.csv")
    env = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    rng = random.Random(0)
    journal = Path("out.csv.journal")

    def lines() -> int:
        return len(journal.read_bytes().splitlines()) if journal.exists() else 0

    for target in sorted(rng.sample(range(50, 1900), 5)):
        process = subprocess.Popen([sys.executable, "-c", _RUN, "-1", "report.txt"], env=env)
        while process.poll() is None and lines() < target:
            time.sleep(rng.random() * 0.01)
        time.sleep(rng.random() * 0.005)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    sweep_files("E-ID-AMC", PATTERN, "labels.npz", output="out.csv", progress=_report("report.txt"))
    assert Path("out.csv").read_bytes() == Path("undisturbed.csv").read_bytes()
    scored = Path("report.txt").read_text().split()
    # a file in hand at a kill was not reported as done, so it is scored again: at most one per kill
    assert set(scored) == {r.path for r in find_runs(PATTERN)} and len(scored) <= 2000 + 5


def _report(name):
    def progress(done, total, path):
        if path:
            with open(name, "a") as stream:
                print(path, file=stream)

    return progress


# --- pivot --------------------------------------------------------------------------------------------------------


def test_pivot_is_the_statistics_of_the_grid(folder):
    """Mean, both standard deviations and the worst fold of a sweep, against NumPy on the [fold, seed] grid."""
    table = sweep_files("E-ID-AMC", PATTERN, "labels.npz")
    grid = {r: np.array([[0.0] * 3, [0.0] * 3]) for r in "ab"}
    for row in table.rows:
        grid[row["run"]]["xy".index(row["fold"]), int(row["seed"]) - 1] = row["PlainAccuracy"]
    for direction, worst in (("higher", np.argmin), ("lower", np.argmax)):
        lines = pivot(table.rows, "PlainAccuracy", direction=direction)
        assert [line.run for line in lines] == ["a", "b"]
        for line in lines:
            g = grid[line.run]
            assert line.mean == pytest.approx(g.mean(), rel=1e-14)
            assert line.sd_seeds == pytest.approx(statistics.stdev(g.mean(axis=0)), rel=1e-12)
            assert line.sd_folds == pytest.approx(g.mean(axis=1).std(ddof=1), rel=1e-12)
            at = int(worst(g.mean(axis=1)))
            assert (line.worst_fold, line.num_folds, line.num_seeds, line.num_missing) == ("xy"[at], 2, 3, 0)
            assert line.worst == pytest.approx(g.mean(axis=1)[at], rel=1e-14)


def test_pivot_does_not_average_over_what_is_there():
    """A missing or undefined cell leaves a run without numbers and is counted; one fold or seed has no deviation."""
    rows = [
        {"run": "a", "fold": "x", "seed": "1", "M": 1.0},
        {"run": "a", "fold": "y", "seed": "1", "M": 3.0},
        {"run": "b", "fold": "x", "seed": "1", "M": 2.0},
        {"run": "c", "fold": "x", "seed": "1", "M": 2.0},
        {"run": "c", "fold": "y", "seed": "1", "M": math.nan},
    ]
    a, b, c = pivot(rows, "M", direction="lower")
    assert (a.mean, a.worst_fold, a.worst, a.num_seeds) == (2.0, "y", 3.0, 1)
    assert math.isnan(a.sd_seeds) and a.sd_folds == pytest.approx(math.sqrt(2))
    for line in (b, c):
        assert line.num_missing == 1 and math.isnan(line.mean) and line.worst_fold == ""
    (line,) = pivot([{"M": 4.0}], "M")
    assert (line.run, line.mean, line.num_folds) == ("", 4.0, 1) and math.isnan(line.sd_folds)
    (line,) = pivot([{"fold": "x", "M": -math.inf}, {"fold": "y", "M": 1.0}], "M", direction="lower")
    assert line.mean == -math.inf and line.worst_fold == "y"
    for wrong in (
        lambda: pivot(rows, "other"),
        lambda: pivot([], "M"),
        lambda: pivot([*rows, rows[0]], "M"),
        lambda: pivot(rows, "M", direction="up"),
    ):
        with pytest.raises(EvaluationError):
            wrong()


def test_boards_come_from_touchstone(tmp_path, monkeypatch):
    """EMVal-SP from Touchstone files against one truth: the definition in float64; a file of other ports is a row with
    its reason."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)
    f = np.linspace(1e9, 2e9, 6)
    s = 0.3 * (rng.normal(size=(3, 6, 2, 2)) + 1j * rng.normal(size=(3, 6, 2, 2)))
    for name, values in zip(("truth.s2p", "runs-a.s2p", "runs-b.s2p"), s):
        write_touchstone(name, f, values)
    write_touchstone("runs-c.s1p", f, s[0, :, :1, :1])
    table = sweep_files("EMVal-SP", "runs-{run}.s?p", "truth.s2p")
    for row, values in zip(table.rows, s[1:]):
        want = array_oracles.sparam(values, s[0])
        assert [row[m] for m in table.metrics] == pytest.approx(want, rel=1e-5) and row["status"] == "ok"
    assert table.rows[2]["status"] == "unreadable" and "port" in table.rows[2]["reason"]


def test_text_comes_from_files(tmp_path, monkeypatch):
    """Answers from JSONL against gold answers in JSONL: exact match and F1 counted by hand."""
    monkeypatch.chdir(tmp_path)
    gold = [["a radar"], ["qpsk"]]
    Path("gold.jsonl").write_text("".join(json.dumps({"labels": g}) + "\n" for g in gold))
    for name, answers in (("one", ["radar", "no"]), ("two", ["Radar!", "the QPSK"])):
        Path(f"{name}.jsonl").write_text("".join(json.dumps({"preds": a}) + "\n" for a in answers))
    table = sweep_files("E-S2T-QA", ["one.jsonl", "two.jsonl"], "gold.jsonl")
    assert table.column("ExactMatch") == [0.5, 1.0] and table.column("F1") == [0.5, 1.0]
    with pytest.raises(KeyError, match="no column"):
        table.column("Meteor")


def test_tables_of_something_else_are_refused(folder):
    """A name that is neither CSV nor Parquet, and files that hold no sweep: one line, before anything is scored."""
    with pytest.raises(FileFormatError, match=r"\.csv or \.parquet"):
        sweep_files("E-ID-AMC", PATTERN, "labels.npz", output="out.xlsx")
    assert not Path("out.xlsx.journal").exists() and not journal_path("out.xlsx", 0, 1).exists()
    for content in (
        "",
        "a,b\n1,2\n",
        "path,status,reason,sha256,A,A.n\np,ok,,0,1.0\n",
        "path,status,reason,sha256,A\np,ok,,0,x\n",
    ):
        Path("bad.csv").write_text(content)
        with pytest.raises(FileFormatError, match=r"bad\.csv"):
            load_table("bad.csv")


def test_each_fold_has_labels_of_its_own(folder):
    """``{fold}`` in the labels: each file is scored against its fold's labels. Oracle: top-1 in rationals on them."""
    for k, fold in enumerate("xy"):
        write_npz(f"labels-{fold}.npz", labels=(LABELS + k) % 3, ids=np.arange(N))
    table = sweep_files("E-ID-FP", PATTERN, "labels-{fold}.npz", output="out.csv")
    expected = [float(oracles.top_k(scores(i), (LABELS + (i // 3) % 2) % 3, 1)) for i in range(12)]
    assert table.column("Top1Accuracy") == expected
    assert len(set(table.settings["labels"].values())) == 2


def test_labels_by_a_name_that_predictions_lack_and_a_fold_without_labels(folder):
    """A typed error that names it, before anything is scored; a label file that is not there is an OSError."""
    with pytest.raises(EvaluationError, match=r"labels: \{site\} is no name in the pattern"):
        sweep_files("E-ID-FP", PATTERN, "labels-{site}.npz")
    write_npz("labels-x.npz", labels=LABELS, ids=np.arange(N))
    with pytest.raises(FileNotFoundError, match=r"labels-y\.npz"):
        sweep_files("E-ID-FP", PATTERN, "labels-{fold}.npz")


def test_changed_labels_of_one_fold_stop_a_resume(folder):
    """The journal knows the labels of every fold."""
    for fold in "xy":
        write_npz(f"labels-{fold}.npz", labels=LABELS, ids=np.arange(N))

    def stop(done: int, total: int, what: str) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep_files("E-ID-AMC", PATTERN, "labels-{fold}.npz", output="out.csv", progress=stop)
    write_npz("labels-y.npz", labels=(LABELS + 1) % 3, ids=np.arange(N))
    with pytest.raises(FileFormatError, match="labels"):
        sweep_files("E-ID-AMC", PATTERN, "labels-{fold}.npz", output="out.csv")
