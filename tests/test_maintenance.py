"""What a maintainer runs: releases from labels, floors, differences, Croissant metadata, the golden self-test."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import inspect
import json
import math
from functools import partial
from pathlib import Path

import golden_oracle
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_cli import fails, no_cache_folder, run  # noqa: F401  (an autouse fixture)
from test_submissions import make_release

from emma_jax import metrics
from emma_jax.errors import LabelError, ReleaseError
from emma_jax.io import write_npz
from emma_jax.maintenance import (
    check_golden,
    checked_freeze,
    croissant_metadata,
    golden_deviations,
    new_release,
    propose_task,
    release_changes,
)
from emma_jax.maintenance import golden as golden_module
from emma_jax.maintenance.golden_inputs import integers
from emma_jax.metrics import Metric
from emma_jax.numerics import limbs
from emma_jax.release import PROTOCOL_VERSION, Anchor, build_release, freeze_release, load_release
from emma_jax.tasks import Task, get_task, list_tasks
from emma_jax.text import kernels

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


# --- The golden self-test -------------------------------------------------------------------------------------------


def registered() -> dict[type[Metric], list[str]]:
    """Every concrete metric of the package, with the names that registered tasks report it under."""
    kinds: dict[type[Metric], list[str]] = {}
    todo = [Metric]
    while todo:
        kind = todo.pop()
        todo += kind.__subclasses__()
        if kind.__module__.startswith("emma_jax.") and not inspect.isabstract(kind):
            kinds[kind] = [x.name for task in list_tasks() for x in task.metrics if type(x) is kind]
    return kinds


def uncovered(answers: dict) -> set[str]:
    """Metrics of registered tasks, and concrete metrics of the package, without a golden answer."""
    tasks = [(name, get_task(case[0])) for name, case in golden_module.golden_cases().items()]
    answered = [(task, x) for name, task in tasks for x in task.metrics if f"{name} {task.id} {x.name}" in answers]
    missing = {f"{task.id} {x.name}" for task in list_tasks() for x in task.metrics}
    missing -= {f"{task.id} {x.name}" for task, x in answered}
    return missing | {kind.__name__ for kind in registered() if kind not in {type(x) for _, x in answered}}


@pytest.fixture(scope="module")
def compiled() -> None:
    """The golden inputs scored once, so that the tests below compile nothing more."""
    list(golden_module._actual(golden_module.golden_cases()))


def stored() -> dict:
    return {k: v for name in golden_module.GOLDEN_FILES for k, v in golden_module._stored(name)["answers"].items()}


def test_scores_are_the_golden_ones(compiled):
    """Claim: this installation scores as its protocol says: no deviation."""
    assert golden_deviations() == ()
    check_golden()


def test_every_metric_and_task_has_golden_answers():
    """Claim: each registered task's metrics and each concrete metric of the package is in the self-test."""
    assert len(registered()) >= 25 and uncovered(stored()) == set()
    assert {kind.__name__ for kind in registered()} == set(metrics.__all__) - {"Metric"}


def test_what_is_not_covered_is_found(monkeypatch):
    """Claim: the check above can fail: on a new metric, on a new task, and on an answer that is gone."""
    less = {k: v for k, v in stored().items() if "Meteor" not in k and "SGCS" not in k}
    assert uncovered(less) == {"E-S2T-CAP Meteor", "Meteor", "SGCS"}
    new = Task("E-NEW", (metrics.SGCS(),))
    monkeypatch.setattr("emma_jax.tasks._REGISTRY", {task.id: task for task in (*list_tasks(), new)})
    assert uncovered(stored()) == {"E-NEW SGCS"}


def test_golden_answers_are_those_of_the_definitions():
    """Claim: the files hold what rationals and closed forms give (same text; logarithms to 1e-12)."""
    wanted = golden_oracle.answers()
    assert tuple(wanted) == golden_module.GOLDEN_FILES
    for name, answers in wanted.items():
        found = golden_module._stored(name)["answers"]
        assert found.keys() == answers.keys()
        for case, answer in answers.items():
            if answer.get("relative") == 1e-12 and "/" in answer["value"]:
                assert found[case] == answer
            assert float(golden_module.Fraction(found[case]["value"])) == pytest.approx(
                float(golden_module.Fraction(answer["value"])), rel=1e-12
            )
            assert {k: v for k, v in found[case].items() if k != "value"} == {
                k: v for k, v in answer.items() if k != "value"
            }


def test_golden_meteor_is_that_of_nltk():
    """Claim: the rationals for METEOR are nltk's values, with its own WordNet reader where there is one. 1e-12."""
    from nltk.translate.meteor_score import meteor_score

    from emma_jax.text.synonyms import SynonymReader, load_synonyms

    found = golden_oracle.Found()
    for name in ("captions", "captions METEOR"):
        words, references = golden_oracle.split(*found.input(name))
        reader = SynonymReader(load_synonyms(), frozenset(w for group in references for r in group for w in r))
        for said, group in zip(words, references):
            assert float(golden_oracle.meteor(said, group)) == pytest.approx(
                meteor_score(group, said, wordnet=reader), abs=1e-12
            )


@pytest.mark.parametrize("kind", sorted(registered(), key=lambda kind: kind.__name__), ids=lambda kind: kind.__name__)
def test_a_small_shift_of_any_metric_is_noticed(compiled, monkeypatch, kind):
    """Claim: a value that is off by two parts in 10^5 deviates, whichever metric it is of, and nothing else does."""
    whole = kind._value

    def shifted(self, state, xp):
        value, aux = whole(self, state, xp)
        return value * (1 + 2e-5), aux

    monkeypatch.setattr(kind, "_value", shifted)
    found = golden_deviations()
    cases = {golden_module._label(*case) + " " for case in golden_module.golden_cases().items()}
    names = {d.case.removeprefix(next(c for c in cases if d.case.startswith(c))) for d in found}
    allowed = {
        x.name
        for case in golden_module.golden_cases().values()
        for x in get_task(case[0]).metrics
        if isinstance(x, kind)
    }
    assert names and names <= allowed
    with pytest.raises(ReleaseError, match=r"^self-test: this installation does not score by protocol .*: expected"):
        check_golden({kind})


def without_last(name):
    """A mean over one sample more than there are."""
    whole = importlib.import_module(f"emma_jax.metrics.{name}").mean
    return lambda total, count, xp: whole(total, count + count.dtype.type(1), xp)


def smoothed(whole):
    return lambda counts, documents, numbers: whole(counts, documents + 1, numbers)


def snapped(self, state, xp):
    total = sum(limbs.to_float(state[f"positives_{side}"], xp) for side in ("above", "at", "below"))
    return limbs.to_float(state["positives_above"], xp) / total, {}


def scikit_rule(self, state, xp):
    support = limbs.to_float(state["support"], xp)
    recall = limbs.to_float(state["hits"], xp) / xp.where(support > 0, support, 1.0)
    return xp.sum(recall, axis=-1) / xp.sum(support > 0, axis=-1), {}


# Family: what is replaced, by what (given what was there), and the words of which one stands in each deviation.
SLIPS = {
    "accuracy: another count": ("metrics.accuracy.mean", lambda _: without_last("accuracy"), "Accuracy"),
    "accuracy: absent classes": ("metrics.accuracy.BalancedAccuracy._value", lambda _: scikit_rule, "BalancedAccuracy"),
    "angles: another count": ("metrics.angles.mean", lambda _: without_last("angles"), "MeanAngularError"),
    "beams: distance": ("metrics.beams.mean", lambda _: without_last("beams"), "DBAScore BeamPowerLoss RSRPAccuracy"),
    "beams: 20 log": ("metrics.beams._DB", lambda db: 2 * db, "BeamPowerLoss"),
    "channels: 20 log": ("metrics.channels._DB", lambda db: 2 * db, "NMSE"),
    "channels: another count": ("metrics.channels.mean", lambda _: without_last("channels"), "SGCS NMSE"),
    "fields: no root": (
        "metrics.fields.RelL2._value",
        lambda whole: lambda self, state, xp: (whole(self, state, xp)[0] ** 2, {}),
        "rel_l2",
    ),
    "fields: lower median": ("metrics.fields._midpoint", lambda _: lambda a, b: a, "local_"),
    "operating: no interpolation": ("metrics.operating.TPRatFPR._value", lambda _: snapped, "TPRatFPR"),
    "rank: a tie won": ("metrics.rank._pair_state", lambda whole: lambda n, *a: whole(n + 1, *a), "AUC AUROC"),
    "rank: best class": ("metrics.rank._macro", lambda _: lambda x, xp: xp.nanmax(x, axis=-1), "AUC"),
    "rank: no crossing": (
        "numerics.ranking.equal_error",
        lambda whole: lambda near, far, totals, xp: whole((near[0], near[0]), far, totals, xp),
        "EER",
    ),
    "signals: 20 log": ("metrics.signals._DB", lambda db: 2 * db, "SISDR"),
    "sparams: N, not 2N": (
        "metrics.sparams.RealImagRMSE._value",
        lambda whole: lambda self, state, xp: (whole(self, state, xp)[0] * 2**0.5, {}),
        "real_imag_rmse",
    ),
    "text: no brevity penalty": (
        "metrics.text._bleu",
        lambda whole: lambda matches, ngrams, length, reference, xp: whole(matches, ngrams, length, length, xp),
        "Bleu",
    ),
    "text: smooth idf": ("text.frequencies.idf", smoothed, "CIDER"),
    "text: gamma of METEOR": ("text.meteor.GAMMA", lambda gamma: gamma - 0.1, "Meteor"),
    "text: F1 as precision": (
        "text.kernels.fraction_words",
        lambda whole: lambda top, bottom: whole(top, bottom + (bottom > 2)),
        "F1",
    ),
    "text: another count": ("metrics.text.mean", lambda _: without_last("text"), "Meteor CIDER ExactMatch F1"),
    "anchors: unclipped": ("release.Anchor.normalize", lambda _: Anchor.unclipped, "anchor gap OOD-avg"),
    "aggregate: best fold": ("aggregate._mean", lambda _: lambda values: max(tuple(values)), "OOD-avg gap"),
    "gap: other sign": ("aggregate.SimToRealGap.__call__", lambda _: lambda self, a, b: 100 * (b - a), "gap"),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_in_any_family_is_noticed(compiled, monkeypatch, slip):
    """Claim: a formula changed as people do change it deviates in its own metrics, and in no other. By construction."""
    target, change, words = SLIPS[slip]
    replace(monkeypatch, target, change)
    found = {d.case for d in golden_deviations()}
    assert found and all(any(word in case for word in words.split()) for case in found), found


def replace(monkeypatch, target, change):
    owner, _, name = f"emma_jax.{target}".rpartition(".")
    module, _, kind = owner.rpartition(".") if owner.rpartition(".")[2][0].isupper() else (owner, "", "")
    holder = importlib.import_module(module)
    holder = getattr(holder, kind) if kind else holder
    monkeypatch.setattr(holder, name, change(getattr(holder, name)))


def last_largest(table):
    return jnp.max(table, axis=1), table.shape[1] - 1 - jnp.argmax(table[:, ::-1], axis=1).astype(jnp.int32)


# Likewise, of what is compiled.
KERNEL_SLIPS = {
    "accuracy: last of a tie": ("metrics.accuracy._first_largest", lambda _: last_largest, "Accuracy EER"),
    "accuracy: ties ahead": (
        "metrics.accuracy._rank",
        lambda _: (
            lambda s, y: (
                jnp.sum(s >= jnp.take_along_axis(s, y[:, None], 1), 1, dtype=jnp.int32) - 1,
                jnp.isnan(s).any(1),
            )
        ),
        "TopKAccuracy",
    ),
    "angles: other period": ("metrics.angles._digits32", lambda whole: lambda p, t, n: whole(p, t, 540 - n), "Angular"),
    "beams: worst first": (
        "metrics.beams._first_beams",
        lambda whole: lambda metric, preds, k, n: whole(metric, -preds, k, n),
        "DBA power",
    ),
    "channels: not squared": (
        "metrics.channels._similarity",
        lambda whole: lambda p, t: jnp.sqrt(whole(p, t)),
        "SGCS",
    ),
    "fields: local error squared": (
        "metrics.fields._probe_stats",
        lambda whole: lambda v, **given: whole(v._replace(local=v.local**2), **given),
        "local_q50",
    ),
    "signals: mean kept": ("metrics.signals._centred", lambda _: lambda x, n: (x, jnp.zeros(x[0].shape[0])), "SISDR"),
    "sparams: no weights": (
        "metrics.sparams.MagWMAE._weight",
        lambda _: lambda self, t: (jnp.ones(t.shape[0], t.dtype), jnp.zeros(t.shape[0], jnp.int32)),
        "wmae",
    ),
    "text: sigma of CIDEr-D": (
        "metrics.text._cider_similarity",
        lambda _: jax.jit(partial(kernels.cider_similarity, sigma=5.0)),
        "CIDER",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("slip", KERNEL_SLIPS)
def test_a_slip_in_a_kernel_is_noticed(monkeypatch, slip):
    """Claim: as above, for what stands in a kernel, compiled anew."""
    target, change, words = KERNEL_SLIPS[slip]
    jax.clear_caches()
    with monkeypatch.context() as patch:
        replace(patch, target, change)
        found = {d.case for d in golden_deviations()}
    jax.clear_caches()
    assert found and all(any(word in case for word in words.split()) for case in found), found


def test_answers_changed_with_the_scores_are_noticed(compiled, monkeypatch):
    """Claim: changing an answer along with a formula deviates too, until the version is another, with digests of its
    own."""
    files = {name: golden_module._stored(name) for name in golden_module.GOLDEN_FILES}
    case = "anomaly E-SC-ANOM AUROC"
    whole = metrics.AUROC._value
    monkeypatch.setattr(metrics.AUROC, "_value", lambda self, state, xp: (whole(self, state, xp)[0] + 1 / 1000, {}))
    (deviation,) = golden_deviations()
    assert deviation.case == case and str(deviation).startswith(case)
    answers = files["golden.json"]["answers"]
    answers[case]["value"] = str(golden_module.Fraction(answers[case]["value"]) + golden_module.Fraction(1, 1000))
    monkeypatch.setattr(golden_module, "_stored", files.__getitem__)
    (deviation,) = golden_deviations()
    assert "golden.json changed without a new protocol version" in deviation.case
    for content in files.values():
        content["protocol_version"] = "0.2.0"
    assert len(golden_deviations()) == 3
    monkeypatch.setattr(golden_module, "PROTOCOL_VERSION", "0.2.0")
    first, second = (d.actual for d in golden_deviations())
    digests = {"0.2.0": dict(zip(golden_module.GOLDEN_FILES, (first, second)))}
    monkeypatch.setattr(golden_module, "GOLDEN_DIGESTS", golden_module.GOLDEN_DIGESTS | digests)
    assert golden_deviations() == ()


def test_the_digests_of_this_protocol_stand_here_too():
    """Claim: the golden digests of a published protocol version never change: written a second time, in this test."""
    known = {
        "golden.json": "sha256:bba6e6ae23f2075a3cbd6e091e252b857d45a71605add46cea253ab6342078f5",
        "golden_added.json": "sha256:711bb517e57298642a5b70da4e6ccc85dd76f3d4278603aa78345c936bfe8488",
    }
    assert golden_module.GOLDEN_DIGESTS["0.1.0"] == known and PROTOCOL_VERSION in golden_module.GOLDEN_DIGESTS


def test_golden_inputs_are_integers_by_the_recurrence():
    """Claim: the generator's first values. Oracle: the recurrence in Python integers, by hand for one step."""
    assert integers(0, 1, 2**16)[0] == 1013904223 >> 16
    x = (1664525 * 1013904223 + 1013904223) % 2**32
    assert integers(0, 2, 100)[1] == (x >> 16) % 100


def test_only_what_is_asked_for_is_scored(monkeypatch):
    """Claim: for some metrics, only cases that have them are scored, and none is missed."""
    asked = []
    monkeypatch.setattr(golden_module, "evaluate", lambda task, *a, **k: asked.append(get_task(task).id) or {})
    found = golden_deviations({metrics.MeanAngularError})
    assert set(asked) == {"E-LOC-AOA", "period 180"} and all("MeanAngularError" in d.case for d in found)
    assert len(found) == len(asked) == 3


# --- Freezing -------------------------------------------------------------------------------------------------------


def test_freezing_runs_the_self_test(labels, tmp_path, monkeypatch):
    """Claim: an installation that scores otherwise, or by another protocol, freezes nothing, says why in one line, and
    leaves the folder as it was; a slip in what the release does not score is none of its business."""
    root = tmp_path / "r"
    new_release(labels, root, name="mine")
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    whole = metrics.MeanAngularError._value
    with monkeypatch.context() as slip:
        slip.setattr(metrics.MeanAngularError, "_value", lambda self, state, xp: (whole(self, state, xp)[0] + 1, {}))
        line = fails("release", "freeze", root)
        assert (
            "self-test: this installation does not score by protocol" in line and "MeanAngularError: expected" in line
        )
        assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    text = (root / "release.toml").read_text()
    (root / "release.toml").write_text(text.replace(f'"{PROTOCOL_VERSION}"', '"9.0.0"'))
    assert "protocol_version: is '9.0.0', but this installation scores by" in fails("release", "freeze", root)
    (root / "release.toml").write_text("name = 'mine'\ntasks = 3\n")
    assert "tasks" in fails("release", "freeze", root)
    (root / "release.toml").write_text(text)
    monkeypatch.setattr(metrics.NMSE, "_value", None)
    assert checked_freeze(root).frozen


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


def test_selftest_succeeds_and_fails_loudly(compiled, monkeypatch):
    """Claim: no deviation is exit code 0 and names the protocol; a deviation is printed and is exit code 1."""
    assert run("release", "selftest")[:2] == (0, f"scores are those of protocol {PROTOCOL_VERSION}\n")
    monkeypatch.setattr("emma_jax.maintenance.golden_deviations", lambda: (golden_module.Deviation("x", 1, 2),))
    assert run("release", "selftest")[:2] == (1, "x: expected 1, got 2\n")


def test_the_shipped_proposal_differs_from_nothing():
    """Claim: a release and itself with another frozen flag differ in that alone."""
    proposal = load_release("v0.1-proposed")
    assert release_changes(proposal, proposal) == () and dataclasses.is_dataclass(proposal)
