"""Submissions: folders of prediction files scored against a release, and every way in which one may not be scored."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

from emma_jax.errors import (
    EvaluationError,
    FileFormatError,
    MissingTaskError,
    NonFiniteError,
    ReleaseError,
    SubmissionError,
)
from emma_jax.io import write_npz
from emma_jax.release import build_release, load_release
from emma_jax.submissions import Limits, load_result, load_submission, score_submission, write_result

CLASSES = {"E-LOC-LOS": 2, "E-ID-DRONE": 2, "E-ID-FP": 4, "E-ID-AMC": 3}
TASKS = ("E-LOC-AOA", *CLASSES)
FOLDS = ("env-a", "env-b", "env-c")
N = 40


def truth(task: str, fold: str) -> np.ndarray:
    rng = np.random.default_rng([TASKS.index(task), (*FOLDS, "real").index(fold)])
    return rng.uniform(-60, 60, N) if task == "E-LOC-AOA" else np.arange(N) % CLASSES[task]


def predictions(task: str, fold: str) -> np.ndarray:
    rng = np.random.default_rng([7, TASKS.index(task), (*FOLDS, "real").index(fold)])
    labels = truth(task, fold)
    if task == "E-LOC-AOA":
        return labels + rng.normal(0, 8 if fold == "real" else 4, N)
    scores = rng.normal(size=(N, CLASSES[task]))
    scores[np.arange(N), labels] += 0.5 if fold == "real" else 1.5
    return scores[:, 1] if task == "E-ID-DRONE" else scores


def make_release(root: Path, tasks: tuple[str, ...] = TASKS):
    """The tasks given, with three environments each, and real captures of three of them."""
    for task in tasks:
        folder = root / "labels" / task
        folder.mkdir(parents=True)
        for fold in (*FOLDS, *(["real"] if task in ("E-LOC-AOA", "E-LOC-LOS", "E-ID-AMC") else [])):
            ids = [f"{fold}-{i}" for i in range(N)]
            write_npz(folder / f"{fold}.npz", labels=truth(task, fold), ids=ids, groups=np.arange(N) % 2 * 10 - 10)
    given = {
        "E-LOC-AOA": {"anchor": {"m_min": 0.0, "m_max": 30.0, "basis": "test"}},
        "E-ID-FP": {"params": {"num_classes": 4}, "anchor": {"m_min": 0.25, "m_max": 1.0, "basis": "chance"}},
    }
    return build_release(root, name="test", tasks={t: given.get(t, {}) for t in tasks}, frozen=True)


def make_submission(
    root: Path, tasks: tuple[str, ...] = TASKS, *, ids: bool = True, real: bool = True, folds: tuple[str, ...] = FOLDS
) -> Path:
    root.mkdir(parents=True)
    (root / "submission.toml").write_text('name = "mine"\nmodel = "net"\nnotes = "two\\nlines"\n')
    for task in tasks:
        folder = root / "preds" / task
        folder.mkdir(parents=True)
        has_real = real and task in ("E-LOC-AOA", "E-LOC-LOS", "E-ID-AMC")
        for fold in (*folds, *(["real"] if has_real else [])):
            order = np.random.default_rng(3).permutation(N) if ids else np.arange(N)
            extra = {"ids": [f"{fold}-{i}" for i in order]} if ids else {}
            write_npz(folder / f"{fold}.npz", preds=predictions(task, fold)[order], **extra)
    return root


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    return make_release(tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="module")
def result(release, tmp_path_factory):
    return score_submission(make_submission(tmp_path_factory.mktemp("full") / "mine"), release)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A release of two tasks, which scores fast: for all that is refused."""
    return make_release(tmp_path_factory.mktemp("small"), ("E-LOC-AOA", "E-ID-AMC"))


@pytest.fixture
def submission(tmp_path):
    return make_submission(tmp_path / "mine", ("E-LOC-AOA", "E-ID-AMC"))


def oracle(task: str, fold: str) -> float:
    """The headline by definition, in float64."""
    p, y = predictions(task, fold), truth(task, fold)
    if task == "E-LOC-AOA":
        d = np.abs(p - y) % 360
        return float(np.mean(np.minimum(d, 360 - d)))
    if task == "E-ID-DRONE":
        pairs = p[y == 1][:, None] - p[y == 0][None, :]
        return float(np.mean((pairs > 0) + 0.5 * (pairs == 0)))
    hit = p.argmax(axis=1) == y
    if task == "E-LOC-LOS":
        return float(np.mean([hit[y == c].mean() for c in np.unique(y)]))
    return float(hit.mean())


# --- What a good submission comes to -----------------------------------------------------------------------------


def test_the_result_equals_the_definitions(result):
    """Claim: folds, means, normalization, OOD-avg, SE, gap and continuity. Oracle: float64 definitions; 1e-9."""
    normalized, variances = [], []
    for task in TASKS:
        entry = result["tasks"][task]
        folds = np.array([oracle(task, fold) for fold in FOLDS])
        np.testing.assert_allclose([entry["folds"][f]["value"] for f in FOLDS], folds, rtol=1e-9)
        np.testing.assert_allclose(entry["raw"], folds.mean(), rtol=1e-9)
        np.testing.assert_allclose(entry["jackknife_raw"]["se"], folds.std(ddof=1) / np.sqrt(3), rtol=1e-7)
        assert [entry["folds"][f]["metrics"][entry["metric"]]["validity"]["n_used"] for f in FOLDS] == [N] * 3
        if task == "E-ID-AMC":
            assert entry["normalized"] is None and entry["gap_pp"] is None
            continue
        lo, hi = entry["anchor"]["m_min"], entry["anchor"]["m_max"]
        unit = (hi - folds if task == "E-LOC-AOA" else folds - lo) / (hi - lo)
        assert 0 < unit.mean() < 1
        np.testing.assert_allclose(entry["normalized"], unit.mean(), rtol=1e-9)
        normalized.append(unit.mean())
        variances.append(unit.var(ddof=1) / 3)
    np.testing.assert_allclose(result["ood_avg"], np.mean(normalized), rtol=1e-9)
    np.testing.assert_allclose(result["ood_avg_se"], np.sqrt(np.sum(variances)) / 4, rtol=1e-7)
    gaps = []
    for task, lo, hi in (("E-LOC-AOA", 30.0, 0.0), ("E-LOC-LOS", 0.5, 1.0)):
        synth = (np.mean([oracle(task, f) for f in FOLDS]) - lo) / (hi - lo)
        real = np.clip((oracle(task, "real") - lo) / (hi - lo), 0, 1)
        gaps.append(100 * (synth - real))
        np.testing.assert_allclose(result["tasks"][task]["gap_pp"], gaps[-1], rtol=1e-9)
    np.testing.assert_allclose(result["gap_pp"], np.mean(gaps), rtol=1e-9)
    assert result["gap_tasks"] == ["E-LOC-AOA", "E-LOC-LOS"]
    assert result["continuity"] == {"E-ID-AMC": result["tasks"]["E-ID-AMC"]["raw"]}
    assert result["ignored"] == ["E-ID-AMC"] and not result["underpowered"]


def test_groups_are_scored_where_the_labels_name_them(result):
    """Claim: per group value and count; groups keep their names. Oracle: the definition on the subset; 1e-9."""
    groups = result["tasks"]["E-LOC-AOA"]["folds"]["env-b"]["groups"]
    assert sorted(groups) == ["-10", "0"]
    for name, rows in (("-10", slice(0, None, 2)), ("0", slice(1, None, 2))):
        error = np.abs(predictions("E-LOC-AOA", "env-b") - truth("E-LOC-AOA", "env-b"))[rows]
        np.testing.assert_allclose(groups[name]["MeanAngularError"]["value"], error.mean(), rtol=1e-9)
        assert groups[name]["MeanAngularError"]["n_used"] == N // 2


def test_rows_by_id_and_in_order_give_the_same_scores(release, result, tmp_path):
    """Claim: a shuffled file with ids scores as the ordered file without. Oracle: each other; exact."""
    in_order = score_submission(make_submission(tmp_path / "b", ids=False), release)
    assert result["ood_avg"] == in_order["ood_avg"] and result["gap_pp"] == in_order["gap_pp"]
    assert result["tasks"]["E-ID-FP"]["folds"]["env-a"]["rows"] == "by id"
    assert in_order["tasks"]["E-ID-FP"]["folds"]["env-a"]["rows"] == "in order"


def test_every_format_gives_the_same_scores(release, result, tmp_path):
    """Claim: .npz, .npy, .csv and .jsonl of one content score alike. Oracle: each other; exact."""
    root = make_submission(tmp_path / "a")
    folder = root / "preds" / "E-ID-FP"
    for fold in FOLDS:
        (folder / f"{fold}.npz").unlink()
    values = {fold: predictions("E-ID-FP", fold).tolist() for fold in FOLDS}
    np.save(folder / "env-a.npy", values["env-a"])
    rows = [",".join([f"env-b-{i}", *map(repr, row)]) for i, row in enumerate(values["env-b"])]
    (folder / "env-b.csv").write_text("\n".join(["id,pred_0,pred_1,pred_2,pred_3", *reversed(rows)]))
    lines = [json.dumps({"id": f"env-c-{i}", "pred": row}) for i, row in enumerate(values["env-c"])]
    (folder / "env-c.jsonl").write_text("\n".join(reversed(lines)))
    got = score_submission(root, release)
    for fold in FOLDS:
        assert got["tasks"]["E-ID-FP"]["folds"][fold]["metrics"] == result["tasks"]["E-ID-FP"]["folds"][fold]["metrics"]
    assert got["ood_avg"] == result["ood_avg"]


def test_result_files_are_strict_repeatable_and_read_back(small, submission, tmp_path):
    """Claim: the same bytes twice but for provenance; hashes are the files'; strict JSON; load gives it back."""
    first, second = score_submission(submission, small), score_submission(submission, small)
    assert set(first["provenance"]) >= {"created", "jax", "jaxlib", "numpy", "python", "platform", "device"}
    created = first["provenance"]["created"]
    second["provenance"]["created"] = created
    write_result(first, tmp_path / "a.json")
    write_result(second, tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    loaded = load_result(tmp_path / "a.json")
    assert loaded["ood_avg"] == first["ood_avg"]
    json.loads((tmp_path / "a.json").read_text(), parse_constant=pytest.fail)
    for kind, root in (("preds", submission), ("labels", small.root), ("submission", submission)):
        assert loaded["inputs"][kind]
        for path, digest in loaded["inputs"][kind].items():
            assert hashlib.sha256((root / path).read_bytes()).hexdigest() == digest
    assert len(loaded["inputs"]["preds"]) == len(loaded["inputs"]["labels"]) == 2 * (3 + 1)
    assert loaded["release"] == {"name": "test", "digest": small.digest, "frozen": True}


def test_real_captures_and_the_continuity_task_may_be_left_out(small, submission, tmp_path):
    """Claim: without them there is no gap and no continuity value, and OOD-avg is the same. Exact."""
    got = score_submission(make_submission(tmp_path / "a", ("E-LOC-AOA",), real=False), small)
    assert got["gap_pp"] is None and got["gap_tasks"] == [] and got["continuity"] == {} and got["ignored"] == []
    assert got["ood_avg"] == score_submission(submission, small)["ood_avg"]


def test_progress_is_told_before_each_file(small, submission):
    """Claim: progress runs 0..total with the files' names."""
    calls = []
    score_submission(submission, small, progress=lambda *args: calls.append(args))
    assert [done for done, _, _ in calls] == list(range(9)) and {total for _, total, _ in calls} == {8}
    assert calls[0][2] == "preds/E-ID-AMC/env-a.npz" and calls[-1][2] == "done"


# --- What is refused ---------------------------------------------------------------------------------------------


def test_a_changed_label_file_is_refused(submission, tmp_path):
    """Claim: one flipped byte in a label file is a ReleaseError that names task and file."""
    changed = make_release(tmp_path / "release", ("E-LOC-AOA", "E-ID-AMC"))
    path = changed.label_path("E-LOC-AOA", "env-b")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ReleaseError, match=r"E-LOC-AOA.*labels/E-LOC-AOA/env-b\.npz.*changed"):
        score_submission(submission, changed)


@pytest.mark.parametrize(
    "toml",
    [
        'name = "x"\n[anchors.E-LOC-AOA]\nm_min = 0\nm_max = 1\n',
        'name = "x"\nanchor = 1\n',
        'name = "x"\nm_min = 0.0\n',
        'name = "x"\n[extra]\nM-Max = 1\n',
        'name = "x"\nextra = [{myAnchors = 1}]\n',
    ],
)
def test_anchors_in_the_description_are_refused(toml, small, submission):
    """Claim: a key that names an anchor, at any depth, is a SubmissionError that names the file."""
    (submission / "submission.toml").write_text(toml)
    with pytest.raises(SubmissionError, match=r"submission\.toml: .*anchors come from the release alone"):
        score_submission(submission, small)


@pytest.mark.parametrize(
    "path", ["anchors.json", "anchor.toml", "preds/anchors.npz", "extra/m_min.npy", "release.json", "anchors/x"]
)
def test_anchor_files_are_refused(path, small, submission):
    """Claim: a file named as anchors or as a manifest is a SubmissionError that names it."""
    (submission / path).parent.mkdir(exist_ok=True)
    (submission / path).write_text("{}")
    with pytest.raises(SubmissionError, match=rf"{path}: anchors come from the release alone"):
        score_submission(submission, small)


@pytest.mark.parametrize("name", ["m_min", "anchors", "where", "weights", "labels", "groups"])
def test_arrays_that_are_not_the_submitters_to_give_are_refused(name, small, submission):
    """Claim: anchors, masks, groups or labels inside a prediction file are a SubmissionError that names it."""
    path = submission / "preds" / "E-LOC-AOA" / "env-a.npz"
    write_npz(path, preds=np.zeros(N), **{name: np.zeros(N)})
    with pytest.raises(SubmissionError, match=rf"preds/E-LOC-AOA/env-a\.npz: carries '{name}'"):
        score_submission(submission, small)


def test_a_missing_fold_and_a_missing_task_are_named(small, submission):
    """Claim: MissingTaskError names task, fold and file, and counts; a part of an optional task is no task."""
    (submission / "preds" / "E-LOC-AOA" / "env-b.npz").unlink()
    with pytest.raises(MissingTaskError, match=r"E-LOC-AOA: no predictions for fold env-b: preds/E-LOC-AOA/env-b\.npz"):
        score_submission(submission, small)
    for file in (submission / "preds" / "E-LOC-AOA").iterdir():
        file.unlink()
    with pytest.raises(MissingTaskError, match=r"E-LOC-AOA: .*preds/E-LOC-AOA/ is not there.*; 3 of them"):
        score_submission(submission, small)


def test_an_optional_task_in_part_is_refused(small, submission):
    """Claim: the continuity task with two of three folds would be another number, so it is an error."""
    (submission / "preds" / "E-ID-AMC" / "env-c.npz").unlink()
    with pytest.raises(MissingTaskError, match="E-ID-AMC: no predictions for fold env-c"):
        score_submission(submission, small)


@pytest.mark.parametrize("value, task", [(np.nan, "E-LOC-AOA"), (np.inf, "E-LOC-AOA"), (np.nan, "E-ID-AMC")])
def test_nan_predictions_are_named_with_their_file(value, task, small, submission):
    """Claim: NaN (and inf degrees) is the NonFiniteError of evaluate with the file in front."""
    preds = predictions(task, "env-a")
    preds[5] = value
    write_npz(submission / "preds" / task / "env-a.npz", preds=preds)
    with pytest.raises(NonFiniteError, match=rf"^preds/{task}/env-a\.npz: {task}.*index"):
        score_submission(submission, small)


@pytest.mark.parametrize(
    "ids, message",
    [
        (
            [f"env-a-{i}" for i in range(N - 1)] + ["x"],
            r"1 ids missing: 'env-a-39'; 1 ids that the labels do not have: 'x'",
        ),
        ([f"env-a-{i}" for i in range(N - 1)] + ["env-a-0"], r"1 duplicate ids: 'env-a-0'"),
        ([f"y{i}" for i in range(N)], r"40 ids missing: 'env-a-0', .*'env-a-9' and 30 more; 40 ids .*'y9' and 30 more"),
        ([f"env-a-{i}" for i in range(N)] + ["z"], r"env-a\.npz: 1 ids that the labels do not have: 'z'"),
        ([f"env-a-{i}" for i in range(12)], r"env-a\.npz: 28 ids missing"),
    ],
)
def test_missing_extra_and_duplicate_ids_are_listed(ids, message, small, submission):
    """Claim: SubmissionError lists the first ten of each kind and the totals, and names the file."""
    write_npz(submission / "preds" / "E-LOC-AOA" / "env-a.npz", preds=np.zeros(len(ids)), ids=ids)
    with pytest.raises(SubmissionError, match=message):
        score_submission(submission, small)


def test_ids_that_nothing_matches_and_other_lengths_are_refused(tmp_path):
    """Claim: ids against labels without ids, and another number of rows without ids, are errors naming the file."""
    folder = tmp_path / "release" / "labels" / "E-LOC-AOA"
    folder.mkdir(parents=True)
    for fold in FOLDS[:2]:
        write_npz(folder / f"{fold}.npz", labels=truth("E-LOC-AOA", fold))
    release = build_release(tmp_path / "release", name="plain", tasks={"E-LOC-AOA": {}}, frozen=False)
    mine = make_submission(tmp_path / "with-ids", ("E-LOC-AOA",), real=False, folds=FOLDS[:2])
    with pytest.raises(SubmissionError, match=r"preds/E-LOC-AOA/env-a\.npz: has ids, but labels/E-LOC-AOA/env-a\.npz"):
        score_submission(mine, release)
    mine = make_submission(tmp_path / "without", ("E-LOC-AOA",), ids=False, real=False, folds=FOLDS[:2])
    assert score_submission(mine, release)["underpowered"]
    write_npz(mine / "preds" / "E-LOC-AOA" / "env-b.npz", preds=np.zeros(N + 1))
    with pytest.raises(SubmissionError, match=r"preds/E-LOC-AOA/env-b\.npz: 41 predictions for the 40 labels"):
        score_submission(mine, release)


@pytest.mark.parametrize(
    "path, message",
    [
        ("preds/E-XX/env-a.npz", r"preds/E-XX: release test has no task 'E-XX'; it has E-ID-AMC"),
        ("preds/E-LOC-AOA/env-z.npz", r"env-z\.npz: release test has no fold 'env-z' of E-LOC-AOA; it has env-a"),
        ("preds/E-ID-AMC/Real.npz", r"Real\.npz: release test has no fold 'Real' of E-ID-AMC"),
        ("preds/E-LOC-AOA/env-a.csv", r"a second file for the fold of preds/E-LOC-AOA/env-a\.(csv|npz)"),
        ("preds/E-LOC-AOA/env-a.pkl", r"unknown format '\.pkl'"),
        ("preds/E-LOC-AOA/more/env-a.npz", r"prediction files lie in preds/<task>/<fold>\.npz"),
        ("preds/E-LOC-AOA.npz", r"prediction files lie in preds/<task>/<fold>\.npz"),
    ],
)
def test_files_the_release_does_not_know_are_refused(path, message, small, submission):
    """Claim: unknown tasks, folds, formats and places are SubmissionErrors that name the file."""
    (submission / path).parent.mkdir(parents=True, exist_ok=True)
    (submission / path).write_text("x")
    with pytest.raises(SubmissionError, match=message):
        score_submission(submission, small)


def test_other_files_are_listed_and_left_alone(small, submission):
    """Claim: a README and hidden files change nothing and are listed as ignored."""
    (submission / "README.md").write_text("hello")
    (submission / "preds" / "E-LOC-AOA" / ".DS_Store").write_bytes(b"\0")
    result = score_submission(submission, small)
    assert result["ignored_files"] == ["README.md", "preds/E-LOC-AOA/.DS_Store"]


def test_links_and_special_files_are_refused(small, submission, tmp_path):
    """Claim: no symbolic link (file, folder) and no FIFO anywhere in a submission; nothing outside is read."""
    secret = tmp_path / "secret.npz"
    write_npz(secret, preds=np.zeros(N))
    path = submission / "preds" / "E-LOC-AOA" / "env-a.npz"
    path.unlink()
    path.symlink_to(secret)
    with pytest.raises(SubmissionError, match=r"preds/E-LOC-AOA/env-a\.npz: a symbolic link"):
        score_submission(submission, small)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(SubmissionError, match=r"env-a\.npz: neither a file nor a folder"):
        score_submission(submission, small)
    path.unlink()
    (submission / "preds" / "E-SC-SENSE").symlink_to(tmp_path)
    with pytest.raises(SubmissionError, match=r"preds/E-SC-SENSE: a symbolic link"):
        load_submission(submission)


@pytest.mark.parametrize(
    "toml, message",
    [
        (None, r"there is no submission\.toml"),
        ("name = ", r"submission\.toml: not TOML"),
        ('model = "x"', r"'name' is missing"),
        ('name = " "', r"'name' is missing"),
        ("name = 3", r"'name' must be text"),
        ('name = "a\\nb"', r"'name' must be one line"),
        ('name = "' + "a" * 201 + '"', r"'name' must be one line of at most 200"),
        ('name = "a"\ncolour = "red"', r"unknown field 'colour'; there are name, model, notes"),
        (b'name = "\xff"', r"not TOML"),
    ],
)
def test_malformed_descriptions_are_refused(toml, message, submission):
    """Claim: each malformed submission.toml is a SubmissionError that says what is wrong."""
    path = submission / "submission.toml"
    path.unlink()
    if toml is not None:
        path.write_bytes(toml if isinstance(toml, bytes) else toml.encode())
    with pytest.raises(SubmissionError, match=message):
        load_submission(submission)


def test_unreadable_prediction_files_are_named(small, submission):
    """Claim: object arrays, wrong shapes and text where numbers belong are typed errors that name the file."""
    path = submission / "preds" / "E-LOC-AOA" / "env-a.npz"
    np.savez(path, preds=np.array([{}] * N, dtype=object))
    with pytest.raises(FileFormatError, match=r"preds/E-LOC-AOA/env-a\.npz.*object array"):
        score_submission(submission, small)
    for bad in (np.zeros((N, 2)), np.array(["x"] * N), np.zeros(N, np.complex64)):
        write_npz(path, preds=bad)
        with pytest.raises(EvaluationError, match=r"preds/E-LOC-AOA/env-a\.npz"):
            score_submission(submission, small)
    with pytest.raises(FileFormatError, match="more than the limit of 100"):
        score_submission(submission, small, limits=Limits(file_bytes=100))


def test_a_release_without_data_cannot_score(submission):
    """Claim: the shipped proposal has no labels; the error says so and names a task."""
    with pytest.raises(ReleaseError, match=r"v0\.1-proposed: holds no label files for E-"):
        score_submission(submission, load_release("v0.1-proposed"))
    with pytest.raises(SubmissionError, match=r"nowhere: there is no such folder"):
        score_submission("nowhere", load_release("v0.1-proposed"))


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda r: r.pop("ood_avg"), "ood_avg is missing"),
        (lambda r: r.update(ood_avg=1.5), "ood_avg is 1.5, no number in"),
        (lambda r: r.update(ood_avg="inf"), "ood_avg is 'inf', no number in"),
        (lambda r: r.update(ood_avg_se="much"), "ood_avg_se has a value of a wrong type"),
        (lambda r: r.update(ood_avg_se=True), "ood_avg_se has a value of a wrong type"),
        (lambda r: r["release"].pop("digest"), r"release\.digest is missing"),
        (lambda r: r["tasks"].update({"E-ID-FP": 3}), r"tasks\.E-ID-FP is not an object"),
        (lambda r: r["tasks"]["E-ID-FP"].update(raw=[1]), r"tasks\.E-ID-FP\.raw has a value of a wrong type"),
        (lambda r: r.update(format="other"), "not a result of"),
    ],
)
def test_malformed_results_are_refused(change, message, result, tmp_path):
    """Claim: a result file that lacks what a leaderboard needs is a FileFormatError that names file and field."""
    result = copy.deepcopy(result)
    change(result)
    write_result(result, tmp_path / "r.json")
    with pytest.raises(FileFormatError, match=rf"r\.json: {message}"):
        load_result(tmp_path / "r.json")
    (tmp_path / "r.json").write_text('{"format": NaN}')
    with pytest.raises(FileFormatError, match=r"r\.json: not strict JSON"):
        load_result(tmp_path / "r.json")
