"""OOD-avg, jackknife and gap against exact rational arithmetic, and the rules for what may not be averaged."""

from __future__ import annotations

import itertools
import json
import math
import random
import statistics
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emma_jax.aggregate import GapColumn, OODAvg, SimToRealGap, jackknife
from emma_jax.errors import (
    EmptyEvaluationError,
    EvaluationError,
    MissingTaskError,
    NonFiniteError,
    ReleaseError,
)
from emma_jax.release import Anchor, Release, build_release, load_release
from emma_jax.scores import Scores

CASES = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "cases_aggregate.jsonl").read_text("utf-8").splitlines()
]
V01 = ("E-LOC-AOA", "E-LOC-LOS", "E-ID-DRONE", "E-ID-FP")
SCORES = {"E-LOC-AOA": 30.0, "E-LOC-LOS": 0.75, "E-ID-DRONE": 0.9, "E-ID-FP": 0.5}
unit = st.floats(0.0, 1.0, allow_subnormal=False)


@pytest.fixture(scope="module")
def proposed() -> Release:
    return load_release("v0.1-proposed")


@pytest.fixture(scope="module")
def with_folds(tmp_path_factory) -> Release:
    """The four tasks with two environments each."""
    root = tmp_path_factory.mktemp("release")
    for task, fold in itertools.product(V01, ("env-a", "env-b", "real")):
        path = root / "labels" / task / f"{fold}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, labels=np.arange(2))
    return build_release(root, name="t", tasks={task: {} for task in V01}, frozen=True)


def tiny(tmp_path: Path, anchors: dict[str, tuple[float, float, str]]) -> Release:
    """A release without data that aggregates tasks of any name."""
    tasks = {
        task: {
            "metric": "M",
            "direction": direction,
            "unit": "1",
            "in_ood_avg": True,
            "params": {},
            "anchor": {"m_min": low, "m_max": high},
        }
        for task, (low, high, direction) in anchors.items()
    }
    return build_release(tmp_path, name="t", tasks=tasks, frozen=False)


def exact_position(release: Release, task: str, m: Fraction) -> Fraction:
    """The formula of the aggregation page in rational arithmetic, clipped."""
    entry = release.tasks[task]
    low, high = Fraction(entry.anchor.m_min), Fraction(entry.anchor.m_max)
    x = (m - low) / (high - low) if entry.direction == "higher" else (high - m) / (high - low)
    return min(max(x, Fraction(0)), Fraction(1))


# The shared cases.


def number(value):
    return float(value) if isinstance(value, str) else value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_case(case, tmp_path):
    """Inputs of public bug reports; oracle and tolerance in each case, an error by its kind."""
    data, expect = case["input"], case["expect"]
    errors = {"empty": EmptyEvaluationError, "nan_score": NonFiniteError}

    def anchor(part):
        low, high = sorted((part["lo"], part["hi"]))
        return Anchor(low, high, "higher" if part["lo"] < part["hi"] else "lower")

    def run():
        if case["metric"] == "anchor_normalize":
            return anchor(data).normalize(number(data["value"]))
        if case["metric"] == "sim_to_real_gap":
            sim, real = data["sim"], data["real"]
            return SimToRealGap().from_raw(anchor(sim), number(sim["value"]), number(real["value"])).gap
        scores = {task: number(value) for task, value in data["scores"].items()}
        return OODAvg(tiny(tmp_path, dict.fromkeys(scores, (0.0, 1.0, "higher"))))(scores)

    if isinstance(expect, dict):
        with pytest.raises(errors[expect["error"]]):
            run()
    else:
        np.testing.assert_allclose(run(), number(expect), rtol=0, atol=case["tol"])


# Normalization and mean.


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_ood_avg_is_the_formula(proposed, data):
    """Mean over folds, normalize, clip, mean over tasks; oracle: rational arithmetic; to 1e-12."""
    scores, expected = {}, Fraction(0)
    for task in V01:
        bound = 400.0 if task == "E-LOC-AOA" else 2.0
        folds = data.draw(st.lists(st.floats(-bound, bound), min_size=1, max_size=6))
        scores[task] = {f"env-{i}": value for i, value in enumerate(folds)}
        expected += exact_position(proposed, task, sum(map(Fraction, folds)) / len(folds)) / 4
    value = OODAvg(proposed)(scores)
    assert abs(Fraction(value) - expected) < Fraction(1, 10**12)
    assert 0.0 <= value <= 1.0


def test_clipping_comes_after_the_mean_over_folds(proposed):
    """Folds of 60 and 100 degrees have mean 80: 1/9 between the anchors, while clipping each fold first gives 1/6."""
    detail = OODAvg(proposed).detail(SCORES | {"E-LOC-AOA": {"a": 60.0, "b": 100.0}})
    assert detail.tasks["E-LOC-AOA"].raw == 80.0
    assert detail.tasks["E-LOC-AOA"].normalized == pytest.approx(1 / 9, abs=1e-15)


def test_order_of_folds_and_tasks_never_shows(proposed):
    """Any order of tasks and folds gives the same bits, in the value and in its standard error."""
    rng = random.Random(0)
    scores = {t: {f"e{i}": rng.random() * (90 if t == "E-LOC-AOA" else 1) for i in range(7)} for t in V01}
    reference = OODAvg(proposed).detail(scores)
    for _ in range(20):
        shuffled = {t: dict(rng.sample(list(scores[t].items()), 7)) for t in rng.sample(V01, 4)}
        detail = OODAvg(proposed).detail(shuffled)
        assert detail.value == reference.value
        assert detail.se == pytest.approx(reference.se, rel=1e-13)


def test_one_number_equals_the_mean_of_its_folds(proposed):
    """A task given as one float counts as its own mean; its spread over folds is then unknown."""
    folds = {"a": 10.0, "b": 20.0, "c": 60.0}
    one = OODAvg(proposed).detail(SCORES | {"E-LOC-AOA": folds})
    other = OODAvg(proposed).detail(SCORES | {"E-LOC-AOA": 30.0})
    assert one.value == other.value == OODAvg(proposed)(SCORES)
    assert other.tasks["E-LOC-AOA"].folds == {} and math.isnan(other.tasks["E-LOC-AOA"].jackknife.se)


def test_scores_of_an_evaluation_stand_for_their_headline(proposed):
    """A Scores object gives the release's metric, not the mean over all metrics in it, alone or per fold."""
    fp = Scores({"EER": 0.1, "Top1Accuracy": 0.5}, {}, task="E-ID-FP")
    expected = OODAvg(proposed)(SCORES)
    assert OODAvg(proposed)(SCORES | {"E-ID-FP": fp}) == expected
    assert OODAvg(proposed)(SCORES | {"E-ID-FP": {"u1": fp, "u2": 0.5}}) == expected
    with pytest.raises(EvaluationError, match=r"E-ID-FP.*lack Top1Accuracy"):
        OODAvg(proposed)(SCORES | {"E-ID-FP": Scores({"EER": 0.1}, {}, task="E-ID-FP")})


def test_infinite_raw_scores_saturate(proposed):
    """+inf is the worst error and the best accuracy; both signs in one task have no mean."""
    detail = OODAvg(proposed).detail(SCORES | {"E-LOC-AOA": {"a": math.inf, "b": 3.0}, "E-ID-FP": math.inf})
    assert detail.tasks["E-LOC-AOA"].normalized == 0.0 and detail.tasks["E-ID-FP"].normalized == 1.0
    assert json.loads(json.dumps(detail.to_dict(), allow_nan=False))["tasks"]["E-ID-FP"]["raw"] == "inf"
    with pytest.raises(NonFiniteError, match=r"E-LOC-AOA.*no mean"):
        OODAvg(proposed)(SCORES | {"E-LOC-AOA": {"a": math.inf, "b": -math.inf}})


# What is refused.


@pytest.mark.parametrize("task", V01)
def test_missing_task(proposed, task):
    """A release's task without a score is an error that names it, never a mean over fewer."""
    with pytest.raises(MissingTaskError, match=task) as caught:
        OODAvg(proposed)({t: s for t, s in SCORES.items() if t != task})
    assert caught.value.task == task


@pytest.mark.parametrize("nan", [math.nan, np.float32("nan"), np.array(math.nan)])
@pytest.mark.parametrize("task", V01)
def test_nan_names_task_and_fold(proposed, task, nan):
    """One NaN fold is an error that says which, whatever the other folds are."""
    with pytest.raises(NonFiniteError, match=rf"{task}: fold env-b") as caught:
        OODAvg(proposed)(SCORES | {task: {"env-a": 0.5, "env-b": nan}})
    assert caught.value.task == task
    with pytest.raises(NonFiniteError, match=task):
        OODAvg(proposed)(SCORES | {task: nan})


def test_empty(proposed, tmp_path):
    """Nothing at all, a task without folds, a release that aggregates nothing: the mean over nothing is an error."""
    for scores in ({}, SCORES | {"E-ID-FP": {}}):
        with pytest.raises(EmptyEvaluationError):
            OODAvg(proposed)(scores)
    with pytest.raises(EmptyEvaluationError, match="aggregates no task"):
        OODAvg(tiny(tmp_path, {}))(SCORES)


@pytest.mark.parametrize("value", ["0.5", None, True, [0.5], np.array([0.5]), 1j, object()])
def test_what_is_no_number(proposed, value):
    """Text, bools, arrays, complex numbers are typed errors that name the task, as a score and as a fold's score."""
    for given_value in (value, {"env-a": value}):
        with pytest.raises(EvaluationError, match=r"E-ID-FP.*expected one real number"):
            OODAvg(proposed)(SCORES | {"E-ID-FP": given_value})


@pytest.mark.parametrize("scores", [None, 3, [0.5], "E-ID-FP", Scores({"AUC": 0.5}, {})])
def test_what_is_no_mapping_of_tasks(proposed, scores):
    """Anything but task id -> score is a typed error."""
    with pytest.raises(EvaluationError, match="expected a mapping"):
        OODAvg(proposed)(scores)


def test_folds_of_the_release_are_all_needed_and_no_others(with_folds, proposed):
    """A left-out fold is a MissingTaskError that names it, an invented one an error; the real split never counts."""
    full = {task: {"env-a": 0.6, "env-b": 0.8} for task in V01}
    assert OODAvg(with_folds)(full) > 0
    assert OODAvg(with_folds)(SCORES) > 0  # one number per task: the mean is taken already
    with pytest.raises(MissingTaskError, match=r"E-LOC-LOS.*fold env-b") as caught:
        OODAvg(with_folds)(full | {"E-LOC-LOS": {"env-a": 0.6}})
    assert caught.value.task == "E-LOC-LOS"
    with pytest.raises(EvaluationError, match=r"E-LOC-LOS.*fold env-c: the release lists no such fold"):
        OODAvg(with_folds)(full | {"E-LOC-LOS": {"env-a": 0.6, "env-b": 0.8, "env-c": 1.0}})
    for release in (with_folds, proposed):
        with pytest.raises(EvaluationError, match="real split is never in OOD-avg"):
            OODAvg(release)(full | {"E-LOC-LOS": {"env-a": 0.6, "env-b": 0.8, "real": 1.0}})


@pytest.mark.parametrize(
    "anchors", [{"E-LOC-AOA": (0.0, 90.0)}, {"E-LOC-AOA": Anchor(0, 90, "lower")}, "v0.1-proposed", None, Release]
)
def test_anchors_come_from_a_release_only(anchors):
    """Anything but a Release is refused, as a ReleaseError that is a TypeError too."""
    with pytest.raises(ReleaseError, match="from a Release") as caught:
        OODAvg(anchors)
    assert isinstance(caught.value, TypeError)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.sampled_from(["E-ID-AMC", "E-CH-CSI", "E-SC-SEP", "E-X"]), st.floats(allow_nan=True)))
def test_other_tasks_never_enter(proposed, others):
    """Whatever other ids score, NaN included, the value keeps its bits, and they are listed."""
    detail = OODAvg(proposed).detail(SCORES | others)
    assert detail.value == OODAvg(proposed)(SCORES)
    assert detail.ignored == tuple(sorted(others))


# Jackknife.


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=12))
def test_jackknife_of_a_mean_is_the_standard_error_of_the_mean(values):
    """Closed form: delete-one jackknife of a mean has se = s / sqrt(n); to 1e-9 of the largest value."""
    result = jackknife(values)
    scale = max(map(abs, values)) + 1e-300
    assert abs(result.se - statistics.stdev(values) / math.sqrt(len(values))) <= 1e-9 * scale
    left = [(sum(map(Fraction, values)) - Fraction(v)) / (len(values) - 1) for v in values]
    np.testing.assert_allclose(result.leave_one_out, [float(x) for x in left], rtol=1e-15, atol=1e-14 * scale)
    assert (result.low, result.high) == (min(result.leave_one_out), max(result.leave_one_out))
    assert result.n == len(values) and result.underpowered == (len(values) == 2)


def test_jackknife_by_hand():
    """Folds 1, 2, 6: leave-one-out means 4, 3.5, 1.5, their mean 3, se = sqrt(2/3 (1 + .25 + 2.25)) = sqrt(7/3)."""
    result = jackknife({"a": 1.0, "b": 2.0, "c": 6.0})
    assert result.leave_one_out == (4.0, 3.5, 1.5) and result.mean == 3.0
    assert result.se == pytest.approx(math.sqrt(7 / 3), rel=1e-15)
    assert (result.low, result.high, result.underpowered) == (1.5, 4.0, False)


def test_jackknife_of_two_and_of_one():
    """Two folds: the range is the two folds, flagged. One: undefined, never zero, null in JSON."""
    two = jackknife([0.4, 0.6])
    assert (two.low, two.high, two.underpowered) == (0.4, 0.6, True)
    assert two.se == pytest.approx(0.1, rel=1e-14)
    one = jackknife([0.4])
    assert one.n == 1 and one.mean == 0.4 and one.underpowered and one.leave_one_out == ()
    assert math.isnan(one.se) and math.isnan(one.low) and math.isnan(one.high)
    assert one.to_dict()["se"] is None
    with pytest.raises(EmptyEvaluationError):
        jackknife([])
    with pytest.raises(NonFiniteError, match="fold env-b"):
        jackknife({"env-a": 1.0, "env-b": math.nan})


def test_jackknife_is_of_the_clipped_normalized_mean(proposed):
    """theta = normalize(mean of the folds left): folds 0, 90, 120 degrees leave means 105, 60, 45, so 0, 1/3, 1/2."""
    task = OODAvg(proposed).detail(SCORES | {"E-LOC-AOA": {"a": 0.0, "b": 90.0, "c": 120.0}}).tasks["E-LOC-AOA"]
    assert task.jackknife.leave_one_out == pytest.approx((0.0, 1 / 3, 1 / 2), abs=1e-15)
    expected = math.sqrt(2 / 3 * sum((x - 5 / 18) ** 2 for x in (0, 1 / 3, 1 / 2)))
    assert task.jackknife.se == pytest.approx(expected, rel=1e-13)
    assert task.jackknife_raw.leave_one_out == (105.0, 60.0, 45.0)
    saturated = OODAvg(proposed).detail(SCORES | {"E-LOC-AOA": {"a": 100.0, "b": 120.0, "c": 170.0}}).tasks["E-LOC-AOA"]
    assert saturated.jackknife.se == 0.0 and saturated.jackknife_raw.se > 1.0


def test_jackknife_of_ood_avg(proposed):
    """se = sqrt(sum se_t^2) / 4 and the range over one fold of one task deleted; oracle: recomputed by deleting."""
    rng = np.random.default_rng(0)
    scores = {
        t: {f"e{i}": float(x) for i, x in enumerate(rng.uniform(0.55, 0.95, 4) * (80 if t == "E-LOC-AOA" else 1))}
        for t in V01
    }
    average = OODAvg(proposed)
    detail = average.detail(scores)
    variances = []
    for t in V01:
        normalized = [proposed.anchor(t).unclipped(x) for x in scores[t].values()]
        variances.append(statistics.variance(normalized) / 4)
    assert detail.se == pytest.approx(math.sqrt(sum(variances)) / 4, rel=1e-12)
    deleted = [
        average(scores | {t: {f: x for f, x in scores[t].items() if f != fold}}) for t in V01 for fold in scores[t]
    ]
    assert detail.low == pytest.approx(min(deleted), abs=1e-14)
    assert detail.high == pytest.approx(max(deleted), abs=1e-14)
    assert not detail.underpowered


def test_one_fold_leaves_the_error_of_ood_avg_undefined(proposed):
    """A task without folds to delete makes the standard error NaN (null in JSON), not smaller."""
    detail = OODAvg(proposed).detail(SCORES | {"E-ID-FP": {"a": 0.4, "b": 0.6, "c": 0.5}})
    assert math.isnan(detail.se) and detail.underpowered
    assert detail.low < detail.value < detail.high
    plain = json.loads(json.dumps(detail.to_dict(), allow_nan=False))
    assert plain["se"] is None and plain["value"] == detail.value


def test_jackknife_of_extreme_values():
    """Values near the end of float64 neither overflow nor lose the spread; infinities leave it undefined."""
    result = jackknife([1e308, 1.5e308, 0.5e308])
    assert result.mean == pytest.approx(1e308) and result.se == pytest.approx(0.5e308 / math.sqrt(3), rel=1e-12)
    assert jackknife([1e-300, 3e-300]).se == pytest.approx(1e-300, rel=1e-12)
    infinite = jackknife([-math.inf, -20.0, -30.0])
    assert infinite.mean == -math.inf and math.isnan(infinite.se)
    assert (infinite.low, infinite.high, infinite.underpowered) == (-math.inf, -25.0, False)
    assert jackknife([-math.inf, -20.0]).underpowered


# The gap.


@settings(max_examples=100, deadline=None)
@given(unit, unit)
def test_gap_is_a_hundred_times_the_difference(synth, real):
    """Percentage points, antisymmetric, zero for equal sides; oracle: rational arithmetic; to 1e-12 pp."""
    gap = SimToRealGap()
    assert abs(Fraction(gap(synth, real)) - 100 * (Fraction(synth) - Fraction(real))) < Fraction(1, 10**12)
    assert gap(synth, real) == -gap(real, synth) and gap(real, real) == 0.0


@pytest.mark.parametrize("value", [-1e-9, 1 + 1e-9, 50, -1, math.inf, -math.inf])
def test_gap_takes_normalized_scores_only(value):
    """A percentage, a raw error, an infinity is refused on either side, by name."""
    with pytest.raises(EvaluationError, match=r"synth_score.*\[0, 1\]"):
        SimToRealGap()(value, 0.5)
    with pytest.raises(EvaluationError, match=r"real_score.*\[0, 1\]"):
        SimToRealGap()(0.5, value)


@pytest.mark.parametrize("value", [math.nan, np.float32("nan")])
def test_gap_of_nan(value):
    """NaN on either side is a NonFiniteError."""
    with pytest.raises(NonFiniteError, match="real_score"):
        SimToRealGap()(0.5, value)
    with pytest.raises(NonFiniteError, match="synth_score"):
        SimToRealGap()(value, 0.5)
    with pytest.raises(NonFiniteError, match="real_raw"):
        SimToRealGap().from_raw(Anchor(0, 1, "higher"), 0.5, value)


def test_gap_from_raw_scores():
    """Clipped and unclipped: errors of 9 and 108 degrees with anchors 0 and 90 are 0.9 and -0.2: gaps 90 and 110 pp."""
    gap = SimToRealGap().from_raw(Anchor(0.0, 90.0, "lower"), 9.0, 108.0)
    assert (gap.synth, gap.real) == pytest.approx((0.9, 0.0)) and gap.gap == pytest.approx(90.0, abs=1e-12)
    assert gap.unclipped == pytest.approx(110.0, abs=1e-12)
    both = SimToRealGap().from_raw(Anchor(-30.0, 0.0, "lower"), -math.inf, -math.inf)
    assert both.gap == 0.0 and math.isnan(both.unclipped)
    with pytest.raises(EvaluationError, match="expected an Anchor"):
        SimToRealGap().from_raw((0.0, 90.0), 9.0, 108.0)


def test_gap_column():
    """The mean over tasks with both sides, which it lists; none with both is an error, NaN names the task."""
    column = SimToRealGap().column({"b": (0.9, 0.4), "a": (0.5, 0.6), "c": (0.5, None), "d": (None, 0.1)})
    assert isinstance(column, GapColumn) and list(column.tasks) == ["a", "b"] and column.missing == ("c", "d")
    assert column.tasks == pytest.approx({"a": -10.0, "b": 50.0}) and column.value == pytest.approx(20.0)
    for nothing in ({}, {"a": (0.5, None)}):
        with pytest.raises(EmptyEvaluationError):
            SimToRealGap().column(nothing)
    with pytest.raises(NonFiniteError, match="a: real_score"):
        SimToRealGap().column({"a": (0.5, math.nan)})
    with pytest.raises(EvaluationError, match=r"a: synth_score.*\[0, 1\]"):
        SimToRealGap().column({"a": (30.0, 0.5)})
    with pytest.raises(EvaluationError, match="a: expected"):
        SimToRealGap().column({"a": 0.5})
