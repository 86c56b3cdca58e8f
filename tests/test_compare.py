"""Paired comparisons: of two submissions, with a floor, through OOD-avg, on a leaderboard, over boards."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

import emma_jax as emma
from emma_jax.emval import bootstrap_boards, compare_boards
from emma_jax.emval.boards import BoardRecord, BoardScores
from emma_jax.errors import EmptyEvaluationError, EvaluationError, MissingTaskError, ShapeError
from emma_jax.tasks import get_task
from emma_jax.uncertainty import (
    bootstrap_ood_avg,
    compare_ood_avg,
    compare_to_floor,
    floor_of,
    rank_ood_avg,
    rank_submissions,
)
from emma_jax.uncertainty.intervals import p_value
from emma_jax.uncertainty.ranks import rank_resampled
from emma_jax.uncertainty.study import run_study
from emma_jax.uncertainty.units import Units

N = 200


def _angles(seed: int, spread: float, n: int = N) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.uniform(0, 360, n)
    return labels + spread * rng.normal(size=n), labels


def _classes(seed: int, right: float, n: int = N) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, n)
    return np.where(rng.random(n) < right, y, rng.integers(0, 4, n)), y


# --- two submissions ----------------------------------------------------------------------------------------------


def test_resamples_are_shared() -> None:
    """Claim: a constant difference stays constant under resampling, however much the errors vary.

    Oracle: errors of b are those of a plus 3 degrees. Tolerance 1e-5 degrees (float32 angles). Equal submissions differ
    by 0 with p = 1.
    """
    labels = np.zeros(N)
    a = np.random.default_rng(0).uniform(0, 100, N).astype(np.float32)
    found = emma.compare("E-LOC-AOA", a, a + 3, labels, key=0, num_resamples=99)["MeanAngularError"]
    assert found.difference.low == pytest.approx(-3, abs=1e-5) and found.difference.high == pytest.approx(-3, abs=1e-5)
    assert found.p_value == 2 / 100 and found.better == "a" and found.direction == "lower"
    assert emma.compare("E-LOC-AOA", a + 3, a, labels, key=0, num_resamples=99)["MeanAngularError"].better == "b"
    same = emma.compare("E-LOC-AOA", a, a, labels, key=0, num_resamples=99)["MeanAngularError"]
    assert (same.difference.low, same.difference.high, same.p_value, same.better) == (0, 0, 1, None)
    assert "constant" in same.difference.flags


def test_standard_error_of_a_difference_of_accuracies() -> None:
    """Claim: the standard error of a paired difference of accuracies is that of discordant counts.

    Oracle: sqrt(b + c - (b - c)^2 / N) / N with b, c samples that only one gets right. Tolerance 8 %; each side's own
    interval is wider.
    """
    a, y = _classes(0, 0.7)
    b = np.where(np.random.default_rng(1).random(N) < 0.2, (a + 1) % 4, a)
    found = emma.compare("E-ID-AMC", a, b, y, key=0, num_resamples=2000)["PlainAccuracy"]
    only_a, only_b = int(((a == y) & (b != y)).sum()), int(((b == y) & (a != y)).sum())
    expected = math.sqrt(only_a + only_b - (only_a - only_b) ** 2 / N) / N
    assert found.difference.standard_error == pytest.approx(expected, rel=0.08)
    assert found.difference.value == pytest.approx((only_a - only_b) / N)
    alone = [emma.bootstrap("E-ID-AMC", p, y, key=0)["PlainAccuracy"].standard_error for p in (a, b)]
    assert found.difference.standard_error < 0.8 * math.hypot(*alone)


def test_every_kind_of_metric_is_paired() -> None:
    """Claim: of two metrics in one task, each resample of either is that of `bootstrap` with the same key, and the
    difference is theirs. Oracle: `run_study` of each alone, subtracted; exact."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, 3, 60)
    a, b = (rng.normal(size=(60, 3)).astype(np.float32) + k * np.eye(3, dtype=np.float32)[y] for k in (1, 2))
    task = get_task("E-ID-FP")
    both = run_study(task, [a, b], y, key=4, num_resamples=40)
    for i, preds in enumerate((a, b)):
        alone = run_study(task, [preds], y, key=4, num_resamples=40)
        assert np.array_equal(alone.resampled["EER"][0], both.resampled["EER"][i])
        assert np.array_equal(alone.resampled["Top1Accuracy"][0], both.resampled["Top1Accuracy"][i])
    found = emma.compare("E-ID-FP", a, b, y, key=4, num_resamples=40)
    assert {name: c.better for name, c in found.items()} == {"Top1Accuracy": "b", "EER": "b"}
    expected = np.std(both.resampled["EER"][0] - both.resampled["EER"][1], ddof=1)
    assert found["EER"].difference.standard_error == pytest.approx(expected, rel=1e-12)


def test_p_values() -> None:
    """Claim: p = sides (1 + least count against) / (B + 1), at most 1; undefined resamples count against. Oracle: by
    hand."""
    d = np.array([0.5, 0.2, -0.1, 0.3, 0.0, 0.4, 0.6, 0.7, 0.9])
    assert p_value(d) == 2 * (1 + 2) / 10
    assert p_value(-d) == p_value(d)
    assert p_value(d, sides=1) == 3 / 10 and p_value(-d, sides=1) == (1 + 8) / 10
    assert p_value(np.zeros(9)) == 1
    assert p_value(np.append(d, np.nan), sides=1) == 4 / 11


def test_p_value_agrees_with_the_interval() -> None:
    """Claim: the percentile interval leaves 0 out where p is below 0.05, up to one resample in 999."""
    labels = np.zeros(40)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        a, b = rng.uniform(0, 90, 40), rng.uniform(0, 90 + 5 * seed, 40)
        found = emma.compare("E-LOC-AOA", a, b, labels, key=seed, num_resamples=999)["MeanAngularError"]
        assert (found.better is not None) == (found.p_value < 0.05) or abs(found.p_value - 0.05) <= 0.004
        assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["better"] == found.better


def test_bca_of_a_difference() -> None:
    """Claim: method="bca" serves differences too, and says where it cannot."""
    a, y = _classes(0, 0.7)
    b, _ = _classes(1, 0.5)
    for weights in (None, np.arange(N) % 3):
        found = emma.compare("E-LOC-LOS", a, b, y, key=0, method="bca", weights=weights)["BalancedAccuracy"]
        assert found.difference.method == "bca" and found.better == "a"


def test_two_of_a_kind() -> None:
    """Claim: submissions with other samples are refused."""
    with pytest.raises(ShapeError):
        emma.compare("E-LOC-AOA", np.zeros(5), np.zeros(6), np.zeros(5), key=0)


# --- a floor ------------------------------------------------------------------------------------------------------


def test_floor() -> None:
    """Claim: the p-value is the share of resamples no better than the floor, plus one. Oracle: counted from
    `run_study`; exact."""
    preds, labels = _angles(0, 30.0)
    drawn = run_study(get_task("E-LOC-AOA"), [preds], labels, key=1, num_resamples=300)
    drawn_values = drawn.resampled["MeanAngularError"][0]
    for floor in (20.0, 24.0, 25.0, 90.0):
        found = compare_to_floor("E-LOC-AOA", preds, labels, floor, key=1, num_resamples=300)
        assert found.p_value == (1 + int((drawn_values >= floor).sum())) / 301
        assert found.beats == (found.p_value <= 0.05)
    assert found.beats and found.p_value == 1 / 301
    assert found.to_dict()["floor"] == 90.0
    scores = np.random.default_rng(0).normal(size=N)
    chance = compare_to_floor("E-SC-SENSE", scores, np.arange(N) % 2, 0.5, key=1)
    assert chance.direction == "higher" and not chance.beats
    with pytest.raises(EvaluationError, match="none of"):
        compare_to_floor("E-LOC-AOA", preds, labels, 90, key=1, metric="AUC")


# --- OOD-avg ------------------------------------------------------------------------------------------------------


def _submission(level: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Predictions and labels of the four tasks, two folds each; the higher the level, the better."""
    preds: dict[str, Any] = {}
    labels: dict[str, Any] = {}
    for i, task in enumerate(("E-LOC-AOA", "E-LOC-LOS", "E-ID-DRONE", "E-ID-FP")):
        for j, fold in enumerate(("env-a", "env-b")):
            rng = np.random.default_rng(10 * i + j)
            n = 60 + 20 * j
            if task == "E-LOC-AOA":
                y = rng.uniform(0, 360, n)
                p = y + rng.normal(size=n) * 60 / level
            elif task == "E-ID-DRONE":
                y = rng.integers(0, 2, n)
                p = rng.normal(size=n) + level * y
            else:
                y = rng.integers(0, 2 if task == "E-LOC-LOS" else 4, n)
                p = (rng.normal(size=(n, int(y.max()) + 1)) + level * np.eye(int(y.max()) + 1)[y]).astype(np.float32)
            preds.setdefault(task, {})[fold] = p
            labels.setdefault(task, {})[fold] = y
    return preds, labels


def _release() -> emma.Release:
    return emma.load_release("v0.1-proposed")


def test_ood_avg_is_resampled_fold_by_fold() -> None:
    """Claim: the value is OODAvg's of the fold scores; a resample's is OODAvg's of the resampled fold scores.

    Oracle: `OODAvg` itself called with the fold scores of single resamples, drawn by `run_study` under the fold's name.
    Tolerance 1e-12.
    """
    release = _release()
    preds, labels = _submission(1.5)
    found = bootstrap_ood_avg(release, preds, labels, key=5, num_resamples=40)
    scores: list[dict[str, dict[str, float]]] = [{} for _ in range(41)]
    for task, folds in preds.items():
        for fold, p in folds.items():
            name = release.tasks[task].metric
            study = run_study(
                get_task(task, release=release), [p], labels[task][fold], key=5, num_resamples=40, name=f"{task}/{fold}"
            )
            for one, value in zip(scores, [study.scores[0][name], *study.resampled[name][0]]):
                one.setdefault(task, {})[fold] = float(value)
    values = [emma.OODAvg(release)(one) for one in scores]
    assert found.ood_avg.value == pytest.approx(values[0], abs=1e-12)
    assert found.ood_avg.standard_error == pytest.approx(np.std(values[1:], ddof=1), abs=1e-12)
    assert found.ood_avg.num_units == 4 * 140 and found.ood_avg.num_strata == 8
    assert found.floor.beats and all(t.floor.beats for t in found.tasks.values())
    assert found.tasks["E-LOC-AOA"].floor.floor == floor_of(release.tasks["E-LOC-AOA"].anchor)
    json.dumps(found.to_dict(), allow_nan=False)


def test_ood_avg_compared_and_ranked() -> None:
    """Claim: the better submission is found better overall and by task direction; two alike share a rank; the order in
    which submissions come changes nothing; a task's draws depend on no other task."""
    release = _release()
    good, labels = _submission(3.0)
    poor, _ = _submission(0.7)
    found = compare_ood_avg(release, good, poor, labels, key=1, num_resamples=200)
    assert found.ood_avg.better == "a" and found.ood_avg.p_value == 2 / 201
    assert {t: c.better for t, c in found.tasks.items()} == dict.fromkeys(good, "a")
    json.dumps(found.to_dict(), allow_nan=False)
    twin = {t: {f: p.copy() for f, p in folds.items()} for t, folds in good.items()}
    rows = rank_ood_avg(release, {"poor": poor, "twin": twin, "good": good}, labels, key=1, num_resamples=200)
    assert [(r.name, r.rank) for r in rows] == [("good", 1), ("twin", 1), ("poor", 3)]
    other = rank_ood_avg(release, {"good": good, "poor": poor, "twin": twin}, labels, key=1, num_resamples=200)
    assert other == rows
    worse = dict(good) | {"E-ID-DRONE": poor["E-ID-DRONE"]}
    again = compare_ood_avg(release, worse, poor, labels, key=1, num_resamples=200)
    assert again.tasks["E-ID-FP"] == found.tasks["E-ID-FP"]
    assert again.tasks["E-ID-DRONE"].better is None


def test_ood_avg_needs_every_task_and_fold() -> None:
    """Claim: a missing task or fold is a `MissingTaskError` that names the task."""
    preds, labels = _submission(1.0)
    lacking = {t: f for t, f in preds.items() if t != "E-ID-FP"}
    with pytest.raises(MissingTaskError) as error:
        bootstrap_ood_avg(_release(), lacking, labels, key=0, num_resamples=2)
    assert error.value.task == "E-ID-FP"
    lacking = preds | {"E-LOC-LOS": {"env-a": preds["E-LOC-LOS"]["env-a"]}}
    with pytest.raises(MissingTaskError, match="env-b"):
        bootstrap_ood_avg(_release(), lacking, labels, key=0, num_resamples=2)


# --- ranks --------------------------------------------------------------------------------------------------------


def _draws(center: float, common: np.ndarray, own: float = 0.0) -> np.ndarray:
    return center + common + own * np.random.default_rng(int(1000 * center)).normal(size=len(common))


def test_tie_groups() -> None:
    """Claim: neighbours share a rank unless their paired interval shows the upper one better; ranks count the rows
    before; a chain says where its end differs from its start; a common swing separates nothing and hides nothing."""
    common = 5 * np.random.default_rng(0).normal(size=2000)
    values = {"d": 0.2, "a": 1.0, "c": 0.86, "b": 0.93, "e": 0.2}
    resampled = {k: _draws(v, common, 0.03) for k, v in values.items()}
    resampled["e"] = resampled["d"]
    rows = rank_resampled("AUC", "higher", values, resampled, Units(np.ones(50, np.int64)), confidence=0.95)
    assert [(r.name, r.rank, r.tied_with_first) for r in rows] == [
        ("a", 1, True),
        ("b", 1, True),
        ("c", 1, False),
        ("d", 4, True),
        ("e", 4, True),
    ]
    assert rows[0].above is None and rows[3].above is not None and rows[3].above.better == "a"
    negative = {k: -v for k, v in values.items()}
    mirrored = rank_resampled(
        "EER",
        "lower",
        negative,
        {k: -v for k, v in resampled.items()},
        Units(np.ones(50, np.int64)),
        confidence=0.95,
    )
    assert [(r.name, r.rank) for r in mirrored] == [(r.name, r.rank) for r in rows]
    json.dumps([r.to_dict() for r in rows], allow_nan=False)


def test_leaderboard_of_a_task() -> None:
    """Claim: a clearly better submission ranks alone, two near ones share; no submission is an error."""
    _, y = _classes(0, 0.5)
    rng = np.random.default_rng(5)
    good = np.where(rng.random(N) < 0.95, y, (y + 1) % 4)
    mid = np.where(rng.random(N) < 0.6, y, (y + 1) % 4)
    near = mid.copy()
    near[:3] = (y[:3] + 1) % 4
    rows = rank_submissions("E-ID-AMC", {"near": near, "mid": mid, "good": good}, y, key=0)
    assert [(r.name, r.rank) for r in rows] == [("good", 1), ("mid", 2), ("near", 2)]
    assert [r.value for r in rows] == [float((p == y).mean()) for p in (good, mid, near)]
    with pytest.raises(EmptyEvaluationError):
        rank_submissions("E-ID-AMC", {}, y, key=0)


# --- boards -------------------------------------------------------------------------------------------------------


def _boards(shift: float = 0.0, seed: int = 0) -> BoardScores:
    rng = np.random.default_rng(seed)
    records = []
    for group, count in (("public", 12), ("private_standard", 8), ("private_challenge", 9)):
        for i in range(count):
            names = ("rel_l2_E", "rel_l2_H", "local_q50_E", "local_q50_H", "local_cos_q50_E", "local_cos_q50_H")
            values = {name: float(v) for name, v in zip(names, rng.uniform(0.1, 0.9, 6))}
            values |= {"rel_l2_E": values["rel_l2_E"] + shift, "local_cos_q50_E": values["local_cos_q50_E"] + shift}
            records.append(BoardRecord(group, f"b{i}", values))
    return BoardScores("NF", tuple(records))


def test_boards_are_the_unit() -> None:
    """Claim: intervals are of the means over boards; their standard errors are the closed form, ID drawn in two strata.

    Oracle: sd / sqrt(n) in a group; over ID, sqrt(sum n_g var_g) / n. Tolerance 8 %, 2,000 resamples.
    """
    scores = _boards()
    found = bootstrap_boards(scores, key=0, num_resamples=2000)
    groups = {g: np.array([b.values["rel_l2_E"] for b in scores.boards if b.group == g]) for g in found.groups}
    assert list(groups) == ["public", "private_standard", "private_challenge"]
    for name, x in groups.items():
        one = found.groups[name]["rel_l2_E"]
        assert one.value == scores.group(name)["rel_l2_E"]
        assert one.standard_error == pytest.approx(x.std() / math.sqrt(len(x)), rel=0.08)
        assert one.num_units == len(x) and one.resampled == "boards" and "few_units" in one.flags
    inner = [groups["public"], groups["private_standard"]]
    one = found.id["rel_l2_E"]
    assert one.standard_error == pytest.approx(math.sqrt(sum(len(x) * x.var() for x in inner)) / 20, rel=0.08)
    assert one.num_strata == 2 and one.num_units == 20 and one.flags == ()
    assert found.id["rel_l2_avg"].value == pytest.approx(scores.id["rel_l2_avg"], abs=1e-15)
    assert found.ood["rel_l2_E"] == found.groups["private_challenge"]["rel_l2_E"]
    bca = bootstrap_boards(scores, key=0, num_resamples=500, method="bca").id["local_q50_avg"]
    assert bca.method == "bca" and bca.low < bca.value < bca.high
    document = json.loads(json.dumps(scores.to_dict()))
    assert bootstrap_boards(document, key=0, num_resamples=2000) == found
    json.dumps(found.to_dict(), allow_nan=False)


def test_boards_compared() -> None:
    """Claim: the same boards are drawn for both, so a constant shift is certain; its direction decides which is better;
    other boards are refused."""
    found = compare_boards(_boards(0.01), _boards(), key=0, num_resamples=200)
    worse, better = found.id["rel_l2_E"], found.id["local_cos_q50_E"]
    assert worse.difference.low == pytest.approx(0.01) and worse.better == "b" and worse.p_value == 2 / 201
    assert better.better == "a" and found.ood["rel_l2_H"].better is None
    assert found.ood["rel_l2_avg"].difference.high == pytest.approx(0.005)
    fewer = BoardScores("NF", _boards().boards[:-1])
    with pytest.raises(ShapeError, match="other boards"):
        compare_boards(_boards(), fewer, key=0)
    with pytest.raises(EmptyEvaluationError):
        bootstrap_boards(BoardScores("NF", ()), key=0)
