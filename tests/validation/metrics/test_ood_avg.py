"""OODAvg inverts lower-is-better metrics, averages the four v0.1 tasks, takes its anchors from the release alone."""

from __future__ import annotations

import json

import pytest

import emma_jax as emma
from emma_jax.release import build_release

# Anchors of this test's own, so that a change of the proposal cannot hide a wrong formula.
ANCHORS = {
    "E-LOC-AOA": {"m_min": 2.0, "m_max": 52.0, "basis": "test"},
    "E-LOC-LOS": {"m_min": 0.5, "m_max": 0.9, "basis": "test"},
    "E-ID-DRONE": {"m_min": 0.5, "m_max": 1.0, "basis": "test"},
    "E-ID-FP": {"m_min": 0.1, "m_max": 0.6, "basis": "test"},
}
KNOWN = {"E-LOC-AOA": 12.0, "E-LOC-LOS": 0.6, "E-ID-DRONE": 0.85, "E-ID-FP": 0.35}
# (52 - 12)/50 = 0.8; (0.6 - 0.5)/0.4 = 0.25; (0.85 - 0.5)/0.5 = 0.7; (0.35 - 0.1)/0.5 = 0.5
NORMALIZED = {"E-LOC-AOA": 0.8, "E-LOC-LOS": 0.25, "E-ID-DRONE": 0.7, "E-ID-FP": 0.5}


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    root = tmp_path_factory.mktemp("release")
    return build_release(root, name="t", tasks={t: {"anchor": a} for t, a in ANCHORS.items()}, frozen=False)


def test_inverts_and_averages(release):
    """One lower-is-better and three higher-is-better scores give the piecewise formula's mean; by hand; to 1e-12."""
    detail = emma.OODAvg(release).detail(KNOWN)
    assert {task: entry.normalized for task, entry in detail.tasks.items()} == pytest.approx(NORMALIZED, abs=1e-12)
    assert emma.OODAvg(release)(KNOWN) == pytest.approx(sum(NORMALIZED.values()) / 4, abs=1e-12)


def test_without_the_inversion_branch_it_would_differ(release):
    """A smaller angular error raises the aggregate: by 1/4 of its share of the anchor span."""
    better = emma.OODAvg(release)(KNOWN | {"E-LOC-AOA": 7.0})
    assert better - emma.OODAvg(release)(KNOWN) == pytest.approx(5 / 50 / 4, abs=1e-12)


@pytest.mark.parametrize("amc", [0.0, 0.5, 1.0])
def test_amc_does_not_leak(release, amc):
    """A fifth score, of E-ID-AMC, leaves every bit of the aggregate as it was."""
    assert emma.OODAvg(release)(KNOWN | {"E-ID-AMC": amc}) == emma.OODAvg(release)(KNOWN)


def test_perfect_is_one_and_floor_is_zero(release):
    """Ceilings on all tasks give exactly 1, floors exactly 0, and scores beyond them saturate."""
    perfect = {"E-LOC-AOA": 2.0, "E-LOC-LOS": 0.9, "E-ID-DRONE": 1.0, "E-ID-FP": 0.6}
    floor = {"E-LOC-AOA": 52.0, "E-LOC-LOS": 0.5, "E-ID-DRONE": 0.5, "E-ID-FP": 0.1}
    assert emma.OODAvg(release)(perfect) == 1.0
    assert emma.OODAvg(release)(floor) == 0.0
    assert emma.OODAvg(release)(perfect | {"E-LOC-AOA": 0.0, "E-LOC-LOS": 1.0}) == 1.0
    assert emma.OODAvg(release)(floor | {"E-LOC-AOA": 180.0, "E-ID-FP": 0.0}) == 0.0


def test_perfect_is_one_with_the_shipped_anchors():
    """Zero degrees and three ones give OOD-avg 1 in the proposed release."""
    release = emma.load_release("v0.1-proposed")
    assert emma.OODAvg(release)({"E-LOC-AOA": 0.0, "E-LOC-LOS": 1.0, "E-ID-DRONE": 1.0, "E-ID-FP": 1.0}) == 1.0


def test_single_environment_is_marked(release):
    """Leave-one-environment-out with two environments is underpowered: the jackknife says so and bounds the value."""
    scores = KNOWN | {"E-LOC-LOS": {"env-a": 0.55, "env-b": 0.65}}
    detail = emma.OODAvg(release).detail(scores)
    assert detail.tasks["E-LOC-LOS"].jackknife.underpowered and detail.underpowered
    bounds = [emma.OODAvg(release)(KNOWN | {"E-LOC-LOS": x}) for x in (0.55, 0.65)]
    assert (detail.low, detail.high) == pytest.approx(tuple(bounds), abs=1e-12)


def test_anchors_are_read_from_the_manifest(release):
    """The anchors used are those in release.json, and an edit of that file does not load."""
    path = release.root / "release.json"
    manifest = json.loads(path.read_text("utf-8"))
    assert {task: entry["anchor"] for task, entry in manifest["tasks"].items()} == ANCHORS
    assert emma.OODAvg(emma.load_release(release.root))(KNOWN) == emma.OODAvg(release)(KNOWN)
    original = path.read_bytes()
    path.write_bytes(original.replace(b"52.0", b"99.0"))
    with pytest.raises(emma.ReleaseError, match=r"release\.json.*was changed"):
        emma.load_release(release.root)
    path.write_bytes(original)
