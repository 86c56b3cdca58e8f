"""The command line: what it prints, what it writes, and the exit code with the one line it says of bad input."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_submissions import make_release, make_submission, predictions, truth
from typer.testing import CliRunner

import emma_jax
from emma_jax import cli
from emma_jax.cli import shared
from emma_jax.io import write_npz

TASKS = ("E-LOC-AOA", "E-ID-AMC")


@pytest.fixture(autouse=True)
def no_cache_folder(monkeypatch):
    """Tests leave the user's cache alone: a variable that is set, even to nothing, is JAX's to follow."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "")


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    return make_release(tmp_path_factory.mktemp("release"), TASKS)


@pytest.fixture
def submission(tmp_path):
    return make_submission(tmp_path / "mine", TASKS)


def run(*args: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command run in this process."""
    result = CliRunner().invoke(cli.app, [str(a) for a in args])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception  # a traceback for the user is a failure
    return result.exit_code, result.stdout, result.stderr


def fails(*args: object) -> str:
    """The one line that a command says on stderr when it exits with 1 and prints nothing else."""
    code, out, err = run(*args)
    assert (code, out) == (1, "") and err.count("\n") == 1 and err.startswith("emma-jax: "), (code, out, err)
    return err


def files(tmp_path: Path, **arrays: np.ndarray) -> list[Path]:
    for name, array in arrays.items():
        write_npz(tmp_path / f"{name}.npz", **{name: array})
    return ["--preds", tmp_path / "preds.npz", "--labels", tmp_path / "labels.npz"]


# --- Real processes: each costs seconds, so there are few --------------------------------------------------------


def test_help_and_version_import_nothing_heavy():
    """Claim: the module behind --help loads neither JAX nor NumPy nor rich, which is what keeps it fast."""
    code = (
        "import sys, emma_jax.cli as c\n"
        "try: c.app(['--help'])\n"
        "except SystemExit as e: assert e.code == 0, e\n"
        "heavy = {'jax', 'numpy', 'rich', 'nltk', 'h5py', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=_env())
    assert done.returncode == 0, done.stderr
    assert "leaderboard" in done.stdout and "evaluate" in done.stdout


def _env() -> dict[str, str]:
    root = str(Path(emma_jax.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": root, "JAX_COMPILATION_CACHE_DIR": "", "JAX_PLATFORMS": "cpu"}


def test_a_tampered_label_file_in_a_real_process(submission, tmp_path):
    """Claim: exit code 1, nothing on stdout, one line on stderr that names task and file, no result file."""
    changed = make_release(tmp_path / "release", TASKS)
    path = changed.label_path("E-LOC-AOA", "env-b")
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    command = [
        sys.executable,
        "-m",
        "emma_jax",
        "score",
        submission,
        "--release",
        changed.root,
        "-o",
        tmp_path / "r.json",
    ]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=_env())
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1 and "E-LOC-AOA" in done.stderr and "labels/E-LOC-AOA/env-b.npz" in done.stderr
    assert not (tmp_path / "r.json").exists()


# --- tasks, evaluate ---------------------------------------------------------------------------------------------


def test_version_and_usage_errors():
    """Claim: --version tells the package's version; an unknown command, option or parameter form exits with 2."""
    assert run("--version") == (0, f"emma-jax {emma_jax.__version__}\n", "")
    assert run("nonsense")[0] == 2 and run("score", "x")[0] == 2 and run("leaderboard", "x", "--format", "xml")[0] == 2
    for param in ("k", "=5", "a b=1"):
        code, _, err = run("evaluate", "E-CH-BEAM", "--preds", "p", "--labels", "l", "--param", param)
        assert code == 2 and "is not NAME=VALUE" in err
    code, _, err = run("evaluate", "E-CH-BEAM", "--preds", "p", "--labels", "l", "--param", "k=1", "--param", "k=2")
    assert code == 2 and "given twice" in err


def test_tasks_lists_every_registered_task():
    """Claim: table and JSON name each task with its metrics, units and directions. Oracle: the registry."""
    from emma_jax.tasks import list_tasks

    code, table, _ = run("tasks")
    assert code == 0
    content = json.loads(run("tasks", "--json")[1], parse_constant=pytest.fail)["tasks"]
    assert [t["id"] for t in content] == [t.id for t in list_tasks()]
    for task, entry in zip(list_tasks(), content):
        assert task.id in table and task.preds in table
        assert [(m["name"], m["direction"], m["unit"]) for m in entry["metrics"]] == [
            (m.name, m.direction, m.unit) for m in task.metrics
        ]


def test_evaluate_scores_two_files(tmp_path):
    """Claim: value, unit and validity of AoA, as table and JSON. Oracle: |d| wrapped, by hand: (10 + 20) / 2."""
    arguments = ["evaluate", "E-LOC-AOA", *files(tmp_path, preds=np.array([355.0, 20.0]), labels=np.array([5.0, 0.0]))]
    code, out, err = run(*arguments)
    assert (code, err) == (0, "") and "MeanAngularError" in out and " 15 " in out and "deg" in out and "n_used 2" in out
    metric = json.loads(run(*arguments, "--json")[1], parse_constant=pytest.fail)["metrics"]["MeanAngularError"]
    assert metric["value"] == 15.0 and metric["validity"]["n_used"] == 2 and metric["unit"] == "deg"


def test_evaluate_takes_parameters_masks_and_groups(tmp_path):
    """Claim: --param k=1 changes the score; where and groups of the label file count. Oracle: ranks by hand."""
    csv_file = tmp_path / "both.csv"
    rows = ["0.9,0.5,0.1,0,1,5", "0.9,0.5,0.1,1,1,5", "0.9,0.5,0.1,2,1,-5", "nan,0,0,0,0,5"]
    csv_file.write_text("\n".join(["pred_0,pred_1,pred_2,label,where,group", *rows]))
    arguments = ["evaluate", "E-CH-BEAM", "--preds", csv_file, "--labels", csv_file, "--json", "--param"]
    for k, value, first in ((1, 1 / 3, 0.5), (2, 2 / 3, 1.0), (3, 1.0, 1.0)):
        content = json.loads(run(*arguments, f"k={k}")[1])
        assert content["metrics"]["TopKAccuracy"]["value"] == pytest.approx(value, abs=1e-12)
        assert content["groups"]["5"]["TopKAccuracy"] == {"value": first, "n_used": 2}
        assert content["groups"]["-5"]["TopKAccuracy"]["n_used"] == 1
    table = run(*arguments[:-2])[1]
    assert "groups" in table and "-5" in table


def test_an_undefined_score_is_null_with_a_reason_in_strict_json(tmp_path):
    """Claim (case json-nan-output): AUC with one class is exit 1, one line, and strict JSON when asked for."""
    arguments = ["evaluate", "E-SC-SENSE", *files(tmp_path, preds=np.array([0.2, 0.9]), labels=np.array([1, 1]))]
    assert "E-SC-SENSE" in fails(*arguments)
    code, out, err = run(*arguments, "--json")
    metric = json.loads(out, parse_constant=pytest.fail)["metrics"]["AUC"]
    assert code == 1 and metric["value"] is None and metric["reason"] in err and err.count("\n") == 1


def test_infinite_scores_are_text_in_json(tmp_path):
    """Claim: an infinite EER threshold is the string "inf" in strict JSON. Oracle: the genuine scores are all +inf."""
    preds = np.array([[np.inf, 0.0], [0.0, np.inf]])
    out = run("evaluate", "E-ID-FP", *files(tmp_path, preds=preds, labels=np.array([0, 1])), "--json")[1]
    metric = json.loads(out, parse_constant=pytest.fail)["metrics"]["EER"]
    assert metric["value"] == 0.0 and metric["aux"]["threshold"] == "inf"


def test_bad_input_is_one_line_that_names_it(tmp_path):
    """Claim: a missing file, an unknown task or parameter, a bad row, NaN, another length: exit 1, one clear line."""
    good = files(tmp_path, preds=np.array([1.0, 2.0]), labels=np.array([1.0, 2.0]))
    assert "none.npz: No such file" in fails("evaluate", "E-LOC-AOA", "--preds", tmp_path / "none.npz", *good[2:])
    assert "E-XX" in fails("evaluate", "E-XX", *good)
    assert "colour" in fails("evaluate", "E-LOC-AOA", *good, "--param", "colour=red")
    (tmp_path / "p.csv").write_text("pred\n1\nx\n")
    assert "p.csv, line 3: column 'pred'" in fails("evaluate", "E-LOC-AOA", "--preds", tmp_path / "p.csv", *good[2:])
    write_npz(tmp_path / "preds.npz", preds=[1.0, np.nan])
    assert "NaN" in fails("evaluate", "E-LOC-AOA", *good) or "finite" in fails("evaluate", "E-LOC-AOA", *good)
    write_npz(tmp_path / "preds.npz", preds=[1.0, 2.0, 3.0])
    assert "3 predictions for the 2 labels" in fails("evaluate", "E-LOC-AOA", *good)


def test_names_with_line_breaks_stay_on_one_line(tmp_path):
    """Claim: a line break or escape sequence in a file name cannot fake a second message."""
    line = fails("evaluate", "E-LOC-AOA", "--preds", "x.npz", "--labels", tmp_path / "a\n\x1b[31mb.npz")
    assert "a [31mb.npz: No such file" in line and "\x1b" not in line


# --- score, leaderboard ------------------------------------------------------------------------------------------


def test_score_writes_a_result_and_leaderboard_ranks_it(release, submission, tmp_path):
    """Claim: the result file equals the printed JSON but for its date; all forms of the leaderboard hold it."""
    (tmp_path / "results").mkdir()
    path = tmp_path / "results" / "mine.json"
    code, out, err = run("score", submission, "--release", release.root, "-o", path)
    assert (code, err) == (0, "") and "mine" in out
    result = json.loads(path.read_text(), parse_constant=pytest.fail)
    printed = json.loads(run("score", submission, "--release", release.root, "--json", "--digest", release.digest)[1])
    printed["provenance"]["created"] = result["provenance"]["created"]
    assert printed == result
    error = np.mean(
        [np.abs(predictions("E-LOC-AOA", f) - truth("E-LOC-AOA", f)).mean() for f in ("env-a", "env-b", "env-c")]
    )
    assert result["ood_avg"] == pytest.approx(1 - error / 30, rel=1e-9)
    shown = f"{result['ood_avg']:.4f}"
    assert (
        shown in run("leaderboard", path)[1] and shown in run("leaderboard", tmp_path / "results", "--format", "md")[1]
    )
    rows = list(csv.DictReader(io.StringIO(run("leaderboard", path, path, "--format", "csv")[1])))
    assert [float(row["ood_avg"]) for row in rows] == [result["ood_avg"]] * 2
    board = json.loads(run("leaderboard", path, "--format", "json")[1], parse_constant=pytest.fail)
    assert board["rows"][0]["ood_avg"] == result["ood_avg"] and board["rows"][0]["rank"] == 1


def test_score_refuses_anchors_missing_folds_and_nan(release, submission):
    """Claim: each is exit 1 with one line that says what and where (the fourth case, a tampered label, is above)."""
    arguments = ["score", submission, "--release", release.root]
    description = submission / "submission.toml"
    text = description.read_text()
    description.write_text(text + "[anchors]\nm_max = 1.0\n")
    line = fails(*arguments)
    assert "submission.toml" in line and "anchors come from the release alone" in line
    description.write_text(text)
    path = submission / "preds" / "E-LOC-AOA" / "env-b.npz"
    data = path.read_bytes()
    path.unlink()
    line = fails(*arguments)
    assert "E-LOC-AOA" in line and "env-b" in line
    preds = predictions("E-LOC-AOA", "env-b")
    preds[3] = np.nan
    write_npz(path, preds=preds)
    line = fails(*arguments)
    assert "preds/E-LOC-AOA/env-b.npz" in line and "index 3" in line
    path.write_bytes(data)
    assert run(*arguments)[0] == 0


def test_another_digest_than_expected_is_refused(release, submission, tmp_path):
    """Claim: score and verify compare with the digest from outside; results of two releases don't mix."""
    wrong = "sha256:" + "0" * 64
    assert "digest" in fails("score", submission, "--release", release.root, "--digest", wrong)
    assert "digest" in fails("release", "verify", release.root, "--digest", wrong)
    other = make_release(tmp_path / "other", ("E-LOC-AOA",))
    only = make_submission(tmp_path / "only", ("E-LOC-AOA",))
    assert run("score", submission, "--release", release.root, "-o", tmp_path / "a.json")[0] == 0
    assert run("score", only, "--release", other.root, "-o", tmp_path / "b.json")[0] == 0
    line = fails("leaderboard", tmp_path / "a.json", tmp_path / "b.json")
    assert "b.json" in line and release.digest in line and other.digest in line
    (tmp_path / "empty").mkdir()
    assert "no result" in fails("leaderboard", tmp_path / "empty")


# --- release, demo, and the rest ---------------------------------------------------------------------------------


def test_release_freeze_and_verify(release, tmp_path):
    """Claim: freeze prints the digest that verify finds; a changed label is named; freezing again changes nothing."""
    root = tmp_path / "r"
    (root / "labels" / "E-LOC-AOA").mkdir(parents=True)
    write_npz(root / "labels" / "E-LOC-AOA" / "env-a.npz", labels=[1.0, 2.0])
    (root / "release.toml").write_text('name = "mini"\n[tasks.E-LOC-AOA]\naxis = "environment"\n')
    code, out, _ = run("release", "freeze", root)
    digest = out.split()[-1]
    assert code == 0 and digest.startswith("sha256:") and run("release", "freeze", root)[1] == out
    code, out, _ = run("release", "verify", root, "--digest", digest)
    assert code == 0 and "1 label file" in out and digest in out and "(frozen)" in out
    write_npz(root / "labels" / "E-LOC-AOA" / "env-a.npz", labels=[1.0, 3.0])
    assert "labels/E-LOC-AOA/env-a.npz" in fails("release", "verify", root)
    assert "not frozen" in run("release", "verify", "v0.1-proposed")[1]
    assert "nowhere" in fails("release", "verify", tmp_path / "nowhere")


def test_demo_passes_its_options_on(monkeypatch, tmp_path):
    """Claim: --out and --seed reach run_demo; a negative seed is wrong usage."""
    calls = []
    monkeypatch.setattr("emma_jax.demo.run.run_demo", lambda *args: calls.append(args))
    assert run("demo", "--out", tmp_path / "d", "--seed", "7")[0] == 0
    assert calls[0][:2] == (tmp_path / "d", 7)
    assert run("demo", "--seed", "-1")[0] == 2


def test_interrupts_and_bugs_are_not_bad_input(monkeypatch, release, submission):
    """Claim: Ctrl-C exits with 130; an error that is no one's input keeps its traceback."""

    def raising(error: BaseException):
        def load(*args: object, **kwargs: object) -> None:
            raise error

        return load

    monkeypatch.setattr("emma_jax.release.load_release", raising(KeyboardInterrupt()))
    assert run("score", submission, "--release", release.root)[0] == 130
    monkeypatch.setattr("emma_jax.release.load_release", raising(ValueError("a bug")))
    with pytest.raises(ValueError, match="a bug"):
        run("score", submission, "--release", release.root)


def test_the_compilation_cache_follows_the_environment(monkeypatch, tmp_path):
    """Claim: XDG_CACHE_HOME places it, a variable of JAX's own wins, and a place that cannot be made is no failure."""
    updates = {}
    monkeypatch.setattr("jax.config.update", lambda key, value: updates.update({key: value}))
    shared.use_compilation_cache()
    assert updates == {}
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    shared.use_compilation_cache()
    assert updates == {}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    shared.use_compilation_cache()
    assert updates["jax_compilation_cache_dir"] == str(tmp_path / "emma-jax" / "xla")
    assert (tmp_path / "emma-jax" / "xla").is_dir()
