"""The sim-to-real gap is 100 (synthetic - real) in percentage points, and independent of OOD-avg."""

from __future__ import annotations

import inspect

import pytest

import emma_jax as emma

SCORES = {"E-LOC-AOA": 12.0, "E-LOC-LOS": 0.8, "E-ID-DRONE": 0.9, "E-ID-FP": 0.7}


@pytest.mark.parametrize(
    ("synth", "real", "pp"), [(0.8, 0.5, 30.0), (0.5, 0.8, -30.0), (1.0, 0.0, 100.0), (0.3, 0.3, 0.0)]
)
def test_gap_in_percentage_points(synth, real, pp):
    """Two normalized scores give their difference times 100, positive where synthetic is better; to 1e-12."""
    assert emma.SimToRealGap()(synth, real) == pytest.approx(pp, abs=1e-12)


def test_same_anchors_on_both_sides():
    """From raw scores: 9 against 36 degrees between 0 and 90 lose 30 pp, whatever the direction of the metric."""
    anchor = emma.load_release("v0.1-proposed").anchor("E-LOC-AOA")
    assert emma.SimToRealGap().from_raw(anchor, 9.0, 36.0).gap == pytest.approx(30.0, abs=1e-12)


def test_ood_avg_does_not_see_the_real_score():
    """Any real score moves the gap and leaves OOD-avg alone; a real split offered as a fold is refused."""
    release = emma.load_release("v0.1-proposed")
    average = emma.OODAvg(release)
    reference, gaps = average(SCORES), []
    anchor = release.anchor("E-LOC-LOS")
    for real in (0.5, 0.6, 0.8, 1.0):
        gaps.append(emma.SimToRealGap().from_raw(anchor, SCORES["E-LOC-LOS"], real).gap)
        assert average(SCORES) == reference
        with pytest.raises(emma.EvaluationError, match="real split is never in OOD-avg"):
            average(SCORES | {"E-LOC-LOS": {"env-a": 0.8, "real": real}})
    assert gaps == sorted(gaps, reverse=True) and len(set(gaps)) == 4


def test_signatures_keep_them_apart():
    """OODAvg has no way in for a real score, the gap none for folds."""
    assert list(inspect.signature(emma.OODAvg.__call__).parameters) == ["self", "fold_scores"]
    assert list(inspect.signature(emma.SimToRealGap.__call__).parameters) == ["self", "synth_score", "real_score"]
