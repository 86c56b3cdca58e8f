"""What a maintainer runs: releases from labels, floors, differences, Croissant metadata, the golden self-test."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from pathlib import Path

import golden_oracle
import numpy as np
import pytest
from test_cli import fails, no_cache_folder, run  # noqa: F401  (an autouse fixture)
from test_submissions import make_release

from emma_jax.errors import LabelError, ReleaseError
from emma_jax.io import write_npz
from emma_jax.maintenance import croissant_metadata, golden_deviations, new_release, propose_task, release_changes
from emma_jax.maintenance import golden as golden_module
from emma_jax.release import PROTOCOL_VERSION, build_release, freeze_release, load_release
from emma_jax.tasks import get_task

ANGLES = {"env-a": [10.0, 20.0, 30.0], "env-b": [350.0, 0.0], "env-c": [-20.0, 40.0, 60.0, 80.0]}
CLASSES = {"env-a": [0, 0, 1], "env-b": [2, 2, 2, 1], "env-c": [1, 0]}


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    root = tmp_path / "given"
    for task, folds in (("E-LOC-AOA", ANGLES), ("E-ID-FP", CLASSES), ("E-ID-AMC", CLASSES), ("E-LOC-LOS", CLASSES)):
        (root / task).mkdir(parents=True)
        for fold, values in folds.items():
            write_npz(root / task / f"{fold}.npz", labels=values)
    write_npz(root / "E-LOC-AOA" / "real.npz", labels=[1.0])
    return root


# --- Floors and new ----------------------------------------------------------------------------------------------


def circular_mean_floor() -> dict[str, float]:
    """By the definition: for each fold the mean direction of the others, and its mean error there."""
    found = {}
    for fold, truth in ANGLES.items():
        others = np.radians([x for name, values in ANGLES.items() if name != fold for x in values])
        mean = math.degrees(math.atan2(np.sin(others).sum(), np.cos(others).sum()))
        d = np.abs(mean - np.array(truth)) % 360
        found[fold] = float(np.minimum(d, 360 - d).mean())
    return found


def test_floors_by_their_definitions(labels):
    """Claim: circular mean and majority class are learned from the other folds. Oracle: by hand; 1e-6, exact counts."""
    arrays = {fold: np.array(values) for fold, values in ANGLES.items()}
    proposal, (floor,) = propose_task(get_task("E-LOC-AOA"), arrays)
    wanted = circular_mean_floor()
    assert floor.name == "circular mean"
    np.testing.assert_allclose([floor.folds[f] for f in ANGLES], list(wanted.values()), rtol=1e-6)
    assert proposal["anchor"]["m_min"] == 0.0 and proposal["anchor"]["m_max"] == floor.value
    classes = {fold: np.array(values) for fold, values in CLASSES.items()}
    proposal, (chance, majority) = propose_task(get_task("E-ID-FP"), classes)
    assert chance.value == 1 / 3 and proposal["params"] == {"num_classes": 3}
    # without env-a: 2,2,2,1,1,0 -> 2; without env-b: 0,0,1,1,0 -> 0; without env-c: 0,0,1,2,2,2,1 -> 2
    assert dict(majority.folds) == pytest.approx({"env-a": 0.0, "env-b": 0.0, "env-c": 0.0}, abs=1e-12)
    assert proposal["anchor"]["m_min"] == 1 / 3 and proposal["anchor"]["m_max"] == 1.0
    training = dict.fromkeys(CLASSES, np.array([1, 1, 2]))
    _, (_, majority) = propose_task(get_task("E-ID-FP"), classes, training)
    assert dict(majority.folds) == pytest.approx({"env-a": 1 / 3, "env-b": 1 / 4, "env-c": 1 / 2}, abs=1e-12)
    assert propose_task(get_task("E-CH-CSI"), {"a": np.zeros((3, 2))}) == ({}, ())
    assert "anchor" not in propose_task(get_task("E-ID-AMC"), classes)[0]
    (drone,) = propose_task(get_task("E-ID-DRONE"), classes)[1]
    assert drone.value == 0.5
    with pytest.raises(LabelError, match=r"E-ID-FP: env-a: class labels are integers \[N\] from 0 on, not float64"):
        propose_task(get_task("E-ID-FP"), {"env-a": np.array([0.5])})


def test_new_makes_a_release_that_freezes(labels, tmp_path):
    """Claim: labels are copied byte for byte, the draft is not frozen, freezing gives its content frozen, and then any
    change is refused. Oracle: hashes of the files given."""
    root = tmp_path / "r"
    draft, floors = new_release(labels, root, name="mine", axis="band")
    assert not draft.frozen and draft.aggregated == ("E-ID-FP", "E-LOC-AOA", "E-LOC-LOS")
    assert draft.tasks["E-LOC-AOA"].anchor.m_max == floors["E-LOC-AOA"][0].value
    assert draft.tasks["E-ID-AMC"].anchor is None and draft.params("E-ID-AMC") == {"num_classes": 3}
    for path in labels.rglob("*.npz"):
        fold = draft.label_file(path.parent.name, path.stem)
        assert fold.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
        assert fold.axis == (None if path.stem == "real" else "band")
    frozen = freeze_release(root)
    assert frozen.frozen and frozen.tasks == draft.tasks and freeze_release(root) == frozen
    assert [c.place for c in release_changes(draft, frozen)] == ["frozen"]
    text = (root / "release.toml").read_text()
    (root / "release.toml").write_text(text.replace('"band"', '"unit"'))
    with pytest.raises(ReleaseError, match=r"is frozen, and tasks\.E-ID-AMC\.folds\.env-a\.axis was 'band'"):
        freeze_release(root)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda root: (root / "E-XX").mkdir() or write_npz(root / "E-XX" / "a.npz", labels=[1]), "E-XX: .*no task"),
        (lambda root: (root / "README").write_text("x"), r"README: labels lie in <task>/<fold>\.npz"),
        (lambda root: (root / "E-ID-FP" / "x.pkl").write_bytes(b"x"), r"x\.pkl: no label file"),
        (lambda root: (root / "E-ID-FP" / "l.npz").symlink_to("/etc/passwd"), r"l\.npz: no label file"),
        (lambda root: (root / "E-ID-FP" / "env-a.csv").write_text("label\n1"), "a second file for the fold"),
    ],
)
def test_new_refuses_what_is_no_label(labels, tmp_path, change, message):
    """Claim: a task, place, format or link that does not belong is a ReleaseError that names it; nothing is made."""
    change(labels)
    with pytest.raises(ReleaseError, match=message):
        new_release(labels, tmp_path / "r", name="x")
    assert not (tmp_path / "r").exists()


def test_new_keeps_its_hands_off_a_folder_with_content(labels, tmp_path):
    """Claim: an existing folder, a wrong axis and an empty source are refused."""
    with pytest.raises(ReleaseError, match="is there already"):
        new_release(labels, labels, name="x")
    with pytest.raises(ReleaseError, match="axis: has to be one of environment, band, unit"):
        new_release(labels, tmp_path / "r", name="x", axis="colour")
    (tmp_path / "empty").mkdir()
    for source in ("empty", "nowhere"):
        with pytest.raises(ReleaseError):
            new_release(tmp_path / source, tmp_path / "r", name="x")


# --- Differences ---------------------------------------------------------------------------------------------------


def test_every_kind_of_change_is_found(tmp_path):
    """Claim: each edited field is one change of its kind, and says whether it can move a score. By hand."""
    a = make_release(tmp_path / "a", ("E-LOC-AOA", "E-ID-AMC"))
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "labels").rename(tmp_path / "b" / "labels")
    write_npz(tmp_path / "b" / "labels" / "E-ID-AMC" / "env-b.npz", labels=[0, 1])
    (tmp_path / "b" / "labels" / "E-ID-AMC" / "env-c.npz").unlink()
    tasks = {
        "E-LOC-AOA": {"anchor": {"m_min": 0.0, "m_max": 40.0, "basis": "other"}},
        "E-ID-AMC": {"params": {"num_classes": 3}},
        "E-CH-BEAM": {"params": {"k": 5}},
    }
    b = build_release(tmp_path / "b", name="b", tasks=tasks, frozen=False)
    found = {c.place: c for c in release_changes(a, b)}
    assert {p: (c.kind, c.moves_scores) for p, c in found.items()} == {
        "name": ("release", False),
        "frozen": ("release", False),
        "tasks.E-LOC-AOA.anchor.m_max": ("anchor", True),
        "tasks.E-LOC-AOA.anchor.basis": ("anchor", False),
        "tasks.E-ID-AMC.params.num_classes": ("parameter", True),
        "tasks.E-ID-AMC.folds.env-b.n": ("labels", True),
        "tasks.E-ID-AMC.folds.env-b.sha256": ("labels", True),
        "tasks.E-ID-AMC.folds.env-c": ("fold", True),
        "tasks.E-CH-BEAM": ("task", True),
    }
    assert (found["name"].old, found["name"].new) == ("test", "b")
    assert release_changes(a, a) == ()
    backwards = {c.place: (c.old, c.new) for c in release_changes(b, a)}
    assert backwards == {p: (c.new, c.old) for p, c in found.items()}


# --- Croissant -------------------------------------------------------------------------------------------------------

GIVEN = {"url": "https://example.org", "license": "CC-BY-4.0", "creator": "Us", "date_published": "2026-11-30"}


def test_croissant_has_every_file_with_its_hash(tmp_path):
    """Claim: the properties that Croissant 1.0 requires are there, and a FileObject for each label file and the
    manifest with sha256 and size. Oracle: the specification's list, hashlib and the file system."""
    release = make_release(tmp_path, ("E-LOC-AOA", "E-ID-AMC"))
    data = croissant_metadata(release, **GIVEN, cite_as="Us, 2026")
    required = {"@context", "@type", "conformsTo", "description", "license", "name", "url", "creator", "datePublished"}
    assert required <= set(data) and data["conformsTo"] == "http://mlcommons.org/croissant/1.0"
    assert data["@context"]["@vocab"] == "https://schema.org/" and data["@context"]["cr"].endswith("/croissant/")
    files = {f["contentUrl"]: f for f in data["distribution"]}
    on_disk = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert set(files) == on_disk and len({f["@id"] for f in files.values()}) == len(files)
    for path, entry in files.items():
        content = (tmp_path / path).read_bytes()
        assert entry["sha256"] == hashlib.sha256(content).hexdigest()
        assert entry["contentSize"] == f"{len(content)} B" and entry["@type"] == "cr:FileObject"
        assert entry["encodingFormat"] == ("application/json" if path == "release.json" else "application/zip")
    json.dumps(data, allow_nan=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"date_published": "30.11.2026"}, "date_published: has to be YYYY-MM-DD"),
        ({"version": "1"}, r"version: has to be MAJOR\.MINOR\.PATCH"),
        ({"license": " "}, "license: has to be given"),
    ],
)
def test_croissant_wants_what_the_vocabulary_wants(tmp_path, change, message):
    """Claim: a missing licence, a date or a version of another form is a ReleaseError that names it."""
    release = make_release(tmp_path, ("E-LOC-AOA",))
    with pytest.raises(ReleaseError, match=message):
        croissant_metadata(release, **{**GIVEN, **change})


def test_the_reference_reader_takes_it(tmp_path):
    """Claim: mlcroissant, the format's own library, reads it without an error."""
    mlcroissant = pytest.importorskip("mlcroissant", reason="mlcroissant is not installed")
    release = make_release(tmp_path, ("E-LOC-AOA",))
    (tmp_path / "croissant.json").write_text(json.dumps(croissant_metadata(release, **GIVEN)))
    dataset = mlcroissant.Dataset(tmp_path / "croissant.json")
    assert not dataset.metadata.ctx.issues.errors and len(dataset.metadata.distribution) == 5


@pytest.fixture(scope="module")
def scored() -> list:
    """The golden inputs, scored once for all tests."""
    return list(golden_module._actual())


# --- The golden self-test -------------------------------------------------------------------------------------------


def test_scores_are_the_golden_ones(scored, monkeypatch):
    """Claim: this installation scores as its protocol says: no deviation."""
    monkeypatch.setattr(golden_module, "_actual", lambda: scored)
    assert golden_deviations() == ()


def test_golden_answers_are_those_of_the_definitions():
    """Claim: golden.json holds what rationals and closed forms give (same text; logarithms to 1e-12)."""
    stored, wanted = golden_module._stored()["answers"], golden_oracle.answers()
    assert stored.keys() == wanted.keys()
    for case, answer in wanted.items():
        rational = "relative" in answer and answer["relative"] == 1e-12
        if rational:
            assert stored[case] == answer
        assert float(golden_module.Fraction(stored[case]["value"])) == pytest.approx(
            float(golden_module.Fraction(answer["value"])), rel=1e-12
        )


def test_a_scoring_change_is_noticed(scored, monkeypatch):
    """Claim: a changed tie rule deviates; changing the answers with it deviates too, until the version is another."""
    from emma_jax.metrics.accuracy import Top1Accuracy

    golden = golden_module._stored()

    def changed():
        for case, value in scored:
            yield case, value + 0.001 if "Top1Accuracy" in case else value

    monkeypatch.setattr(golden_module, "_actual", changed)
    (deviation,) = golden_deviations()
    assert deviation.case.endswith(Top1Accuracy().name) and str(deviation).startswith(deviation.case)
    case = deviation.case
    moved = golden_module.Fraction(golden["answers"][case]["value"]) + golden_module.Fraction(1, 1000)
    golden["answers"][case]["value"] = str(moved)
    monkeypatch.setattr(golden_module, "_stored", lambda: golden)
    (deviation,) = golden_deviations()
    assert "changed without a new protocol version" in deviation.case
    golden["protocol_version"] = "0.2.0"
    assert len(golden_deviations()) == 2
    monkeypatch.setattr(golden_module, "PROTOCOL_VERSION", "0.2.0")
    monkeypatch.setitem(golden_module.GOLDEN_DIGESTS, "0.2.0", deviation.actual)
    assert golden_deviations() == ()


def test_the_digest_of_this_protocol_stands_here_too():
    """Claim: the golden digest of a published protocol version never changes: written a second time, in this test."""
    known = {"0.1.0": "sha256:bba6e6ae23f2075a3cbd6e091e252b857d45a71605add46cea253ab6342078f5"}
    assert known.items() <= golden_module.GOLDEN_DIGESTS.items() and PROTOCOL_VERSION in known


def test_golden_inputs_are_integers_by_the_recurrence():
    """Claim: the generator's first values. Oracle: the recurrence in Python integers, by hand for one step."""
    assert golden_module.integers(0, 1, 2**16)[0] == 1013904223 >> 16
    x = (1664525 * 1013904223 + 1013904223) % 2**32
    assert golden_module.integers(0, 2, 100)[1] == (x >> 16) % 100


# --- The command line -----------------------------------------------------------------------------------------------


def test_commands_of_a_maintainer(labels, tmp_path):
    """Claim: new, freeze, verify --digest, diff, and croissant work as commands, one after another."""
    root = tmp_path / "r"
    code, out, _ = run("release", "new", labels, "-o", root, "--name", "mine")
    assert code == 0 and "E-LOC-AOA (3 folds): circular mean" in out and "anchors proposed: 0 to" in out
    code, out, _ = run("release", "freeze", root)
    digest = out.split()[-1]
    assert code == 0 and run("release", "verify", root, "--digest", digest)[0] == 0
    other = tmp_path / "other"
    assert run("release", "new", labels, "-o", other, "--name", "other")[0] == 0
    code, out, _ = run("release", "diff", root, other)
    assert code == 0 and "name was 'mine', is 'other'" in out and "2 differences, 0 of them can move a score" in out
    assert run("release", "diff", root, other, "--exit-code")[0] == 1
    assert run("release", "diff", root, root, "--exit-code")[:2] == (0, "no difference\n")
    content = json.loads(run("release", "diff", root, other, "--json")[1], parse_constant=pytest.fail)
    assert content["old"] == digest and [c["place"] for c in content["changes"]] == ["name", "frozen"]
    arguments = ["--url", "https://example.org", "--license", "MIT", "--creator", "Us"]
    out_file = tmp_path / "croissant.json"
    assert run("release", "croissant", root, "-o", out_file, *arguments, "--date", "2026-11-30")[0] == 0
    assert json.loads(out_file.read_text())["distribution"][0]["sha256"]
    assert "date_published" in fails("release", "croissant", root, "-o", out_file, *arguments, "--date", "today")


def test_selftest_succeeds_and_fails_loudly(scored, monkeypatch):
    """Claim: no deviation is exit code 0 and names the protocol; a deviation is printed and is exit code 1."""
    monkeypatch.setattr(golden_module, "_actual", lambda: scored)
    assert run("release", "selftest")[:2] == (0, f"scores are those of protocol {PROTOCOL_VERSION}\n")
    monkeypatch.setattr("emma_jax.maintenance.golden_deviations", lambda: (golden_module.Deviation("x", 1, 2),))
    assert run("release", "selftest")[:2] == (1, "x: expected 1, got 2\n")


def test_the_shipped_proposal_differs_from_nothing():
    """Claim: a release and itself with another frozen flag differ in that alone."""
    proposal = load_release("v0.1-proposed")
    assert release_changes(proposal, proposal) == () and dataclasses.is_dataclass(proposal)
