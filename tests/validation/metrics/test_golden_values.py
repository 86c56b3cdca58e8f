"""Golden values: a perfect prediction reaches the ceiling of every metric, a chance prediction the floor, and closed
forms of probability theory are met within sampling error."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

import emma_jax as emma

N, C = 2400, 4
LABELS = np.arange(N) % C
BINARY = np.arange(N) % 2
ANGLES = np.linspace(-720.0, 720.0, N)
PERFECT = {
    "E-LOC-AOA": (ANGLES, ANGLES, {"MeanAngularError": 0.0}),
    "E-LOC-LOS": (LABELS, LABELS, {"BalancedAccuracy": 1.0}),
    "E-ID-DRONE": (np.eye(C)[LABELS], LABELS, {"AUC": 1.0}),
    "E-ID-FP": (np.eye(C)[LABELS], LABELS, {"Top1Accuracy": 1.0, "EER": 0.0}),
    "E-ID-AMC": (np.eye(C)[LABELS], LABELS, {"PlainAccuracy": 1.0}),
    "E-CH-BEAM": (np.eye(C)[LABELS], LABELS, {"TopKAccuracy": 1.0}),
    "E-SC-SENSE": (BINARY, BINARY, {"AUC": 1.0}),
    "E-SC-ANOM": (BINARY, BINARY, {"AUROC": 1.0}),
}


@pytest.mark.parametrize("task", PERFECT)
def test_a_perfect_prediction_is_the_ceiling(task):
    """Predicting the truth gives exactly 0 for an error and exactly 1 for an accuracy; by construction, exact."""
    preds, labels, want = PERFECT[task]
    assert dict(emma.evaluate(task, preds, labels)) == want


def test_perfect_scores_give_an_ood_avg_of_one():
    """Four perfect tasks average to exactly 1; by construction, exact."""
    perfect = {task: emma.evaluate(task, *PERFECT[task][:2]) for task in ("E-LOC-AOA", "E-LOC-LOS")}
    perfect |= {task: emma.evaluate(task, *PERFECT[task][:2]) for task in ("E-ID-DRONE", "E-ID-FP")}
    release = emma.load_release("v0.1-proposed")
    assert emma.OODAvg(release)({task: scores.headline for task, scores in perfect.items()}) == 1.0


def test_a_constant_score_is_chance():
    """One score for all: AUC and EER are 1/2, balanced accuracy and top-1 are 1/C, top-k is k/C; exact, since ties are
    counted and the lowest class wins them."""
    constant = np.full((N, C), 0.3)
    fingerprints = emma.evaluate("E-ID-FP", constant, LABELS)
    assert fingerprints["Top1Accuracy"] == 1 / C and fingerprints["EER"] == 0.5
    assert emma.evaluate("E-ID-DRONE", constant, LABELS).headline == 0.5
    assert emma.evaluate("E-LOC-LOS", constant, LABELS).headline == 1 / C
    assert emma.evaluate("E-CH-BEAM", constant, LABELS).headline == 3 / C
    assert emma.evaluate("E-SC-SENSE", np.zeros(N), BINARY).headline == 0.5
    assert emma.evaluate("E-SC-ANOM", np.zeros(N), BINARY).headline == 0.5


def test_random_scores_are_near_chance():
    """Scores drawn apart from the labels: AUC, EER near 1/2, balanced accuracy near 1/C; five standard errors of the
    Mann-Whitney statistic and of a binomial share."""
    rng = np.random.default_rng(0)
    scores = rng.random((N, C))
    half = N / 2
    se_auc = math.sqrt((2 * half + 1) / (12 * half * half))
    assert abs(emma.evaluate("E-SC-SENSE", scores[:, 0], BINARY).headline - 0.5) < 5 * se_auc
    assert abs(emma.evaluate("E-ID-DRONE", scores, LABELS).headline - 0.5) < 5 * se_auc
    assert abs(emma.metrics.EER()(scores[:, 0], BINARY) - 0.5) < 5 * se_auc
    assert abs(emma.evaluate("E-LOC-LOS", scores, LABELS).headline - 1 / C) < 5 * math.sqrt(3 / 16 / N)


@pytest.mark.parametrize("shift", [0.5, 1.5, 3.0])
def test_gaussian_shift(shift):
    """Two unit Gaussians a distance d apart: AUC = Phi(d / sqrt 2), EER = Phi(-d / 2); six standard errors, bounded by
    those of a share of n trials."""
    n = 40_000
    rng = np.random.default_rng(round(10 * shift))
    scores = np.concatenate([rng.normal(shift, 1, n), rng.normal(0, 1, n)]).astype(np.float32)
    labels = np.repeat([1, 0], n)
    phi = NormalDist().cdf
    bound = 6 * math.sqrt(0.25 / n)
    assert abs(emma.metrics.AUC()(scores, labels) - phi(shift / math.sqrt(2))) < bound
    assert abs(emma.metrics.EER()(scores, labels) - phi(-shift / 2)) < bound


def test_guessing_an_angle():
    """Uniform guesses on the circle cost 90 degrees, and zero costs 30 against truth uniform on +-60 degrees; the
    error is uniform on [0, 180] and on [0, 60], six standard errors of its mean."""
    n = 40_000
    rng = np.random.default_rng(7)
    truth = rng.uniform(0, 360, n)
    mae = emma.metrics.MeanAngularError()
    assert abs(mae(rng.uniform(0, 360, n), truth) - 90) < 6 * 180 / math.sqrt(12 * n)
    assert abs(mae(np.full(n, 12.5), truth) - 90) < 6 * 180 / math.sqrt(12 * n)
    assert abs(mae(np.zeros(n), rng.uniform(-60, 60, n)) - 30) < 6 * 60 / math.sqrt(12 * n)
    assert abs(emma.metrics.MeanAngularError(period=180)(rng.uniform(0, 360, n), truth) - 45) < 6 * 90 / (12 * n) ** 0.5
