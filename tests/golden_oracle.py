"""Answers of the golden self-test from the definitions alone: rationals where there are any, extended precision for
energies and logarithms, hand-split words for text.

``python tests/golden_oracle.py FOLDER`` writes them there as the files of answers, for a new version of the protocol.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import array_oracles
import numpy as np
import oracles
import text_oracles

from emma_jax.maintenance import golden
from emma_jax.maintenance.golden_inputs import golden_cases
from emma_jax.release import PROTOCOL_VERSION
from emma_jax.tasks import get_task

Answers = dict[str, dict[str, Any]]


def exact(value: Fraction | int) -> dict[str, Any]:
    return {"value": str(Fraction(value)), "relative": 1e-12}


def decibels(value: float) -> dict[str, Any]:
    return {"value": repr(float(value)), "absolute": 5e-6}


def real(value: float) -> dict[str, Any]:
    return {"value": repr(float(value)), "relative": 1e-6}


class Found:
    """Answers as they come, under the names of the self-test."""

    def __init__(self) -> None:
        self.cases = golden_cases()
        self.answers: Answers = {}

    def put(self, name: str, metric: str, answer: dict[str, Any]) -> None:
        self.answers[f"{name} {get_task(self.cases[name][0]).id} {metric}"] = answer

    def input(self, name: str) -> tuple[Any, Any]:
        return self.cases[name][2:]


def answers() -> dict[str, Answers]:
    """File to case, task and metric to value and tolerance."""
    return {"golden.json": first(), "golden_added.json": added()}


def first() -> Answers:
    """What protocol 0.1.0 began with."""
    found = Found()
    preds, labels = found.input("angles")
    found.put("angles", "MeanAngularError", exact(oracles.angular_error(preds, labels)))
    classification(found)
    for name, metric in (("sensing", "AUC"), ("anomaly", "AUROC")):
        preds, labels = found.input(name)
        found.put(name, metric, exact(oracles.auc(preds, labels == 1)))
    found.put("channels", "NMSE", decibels(array_oracles.nmse(*found.input("channels"))))
    found.put("signals", "SISDR", decibels(array_oracles.mean_si_sdr(*found.input("signals"))))
    words, references = split(*found.input("captions"))
    found.put("captions", "Bleu", real(text_oracles.bleu(words, references)))
    found.put("captions", "CIDER", real(float(np.mean(text_oracles.cider_d(words, references)))))
    plain = [[w for w in s if w not in ("a", "the")] for s in words]  # SQuAD drops articles; nothing else applies here
    golds = [[[w for w in g if w not in ("a", "the")] for g in group] for group in references]
    found.answers |= squad("answers", plain, golds)
    for direction in ("higher", "lower"):
        for eighths in (-8, 2, 3, 17, 34, 99):
            x = normalized(Fraction(eighths, 8), Fraction(1, 4), Fraction(17, 4), direction)
            found.answers[f"anchor {direction} {eighths}/8"] = exact(clipped(x))
    return found.answers


def classification(found: Found, end: str = "") -> None:
    scores, classes = found.input(f"auc{end}")
    predicted = oracles.predicted(scores)
    found.put(f"balanced{end}", "BalancedAccuracy", exact(oracles.balanced_accuracy(predicted, classes)))
    found.put(f"auc{end}", "AUC", exact(oracles.macro_auc(scores, classes)[0]))
    found.put(f"fingerprint{end}", "Top1Accuracy", exact(oracles.top_k(scores, classes, 1)))
    found.put(f"fingerprint{end}", "EER", exact(oracles.eer(*oracles.pooled(scores, classes)[:2])[0]))
    found.put(f"accuracy{end}", "PlainAccuracy", exact(oracles.top_k(scores, classes, 1)))
    found.put(f"beams{end}", "TopKAccuracy", exact(oracles.top_k(scores, classes, 2)))


def added() -> Answers:
    """Every other metric and task, the formulas behind options, tokenizers and normalizers, and the aggregates."""
    found = Found()
    text(found)
    beams(found)
    options(found)
    emval(found)
    return found.answers | aggregates()


# --- Text ----------------------------------------------------------------------------------------------------------

# Of "captions 13a" and "answers SQuAD", split by hand as the published rules have it.
SAID_13A = [
    "two drones , flying at 3.5 ghz !",
    "the car's radar sees 2,400 targets .",
    "a 5 - element array ( north-facing )",
    "noise only ; no signal & no tone",
    "nothing",
]
GOLD_13A = [
    ["two drones flying at 3.5 ghz .", "drones at 3,5 ghz !"],
    ["the automobile's radar saw 2,400 targets .", "a car radar sees targets"],
    ["an array of 5 elements , north-facing", "a 5 - element array"],
    ["noise only , no signal"],
    ["there is nothing to be seen here", "no drone was seen near the tower tonight"],
]
SAID_SQUAD = ["radar", "35 db", "two of three", "", ""]
GOLD_SQUAD = [["radar", "lidar"], ["35 db"], ["three of four", "one"], [], [""]]
# Of the words of "captions METEOR": Porter stems, and what WordNet has as synonyms of them.
STEMS = {"drones": "drone", "stops": "stop", "stopped": "stop", "cars": "car", "signals": "signal"}
STEMS["overlapped"] = "overlap"
SYNONYMS = {frozenset(("car", "auto"))}


def split(said: Sequence[str], gold: Sequence[Sequence[str]]) -> tuple[list[list[str]], list[list[list[str]]]]:
    return [s.split() for s in said], [[g.split() for g in group] for group in gold]


def squad(name: str, said: list[list[str]], gold: list[list[list[str]]]) -> Answers:
    n = len(said)
    return {
        f"{name} E-S2T-QA ExactMatch": exact(Fraction(sum(map(text_oracles.exact_match, said, gold)), n)),
        f"{name} E-S2T-QA F1": exact(sum(map(text_oracles.f1, said, gold), Fraction(0)) / n),
    }


def meteor(said: Sequence[str], references: Sequence[Sequence[str]]) -> Fraction:
    """METEOR of one caption, exactly: three stages of matches, each from the last word down, then chunks."""
    return max(_meteor(said, reference) for reference in references)


def _meteor(said: Sequence[str], reference: Sequence[str]) -> Fraction:
    stem = lambda w: STEMS.get(w, w)  # noqa: E731
    stages = (
        lambda a, b: a == b,
        lambda a, b: stem(a) == stem(b),
        lambda a, b: stem(a) == stem(b) or frozenset((stem(a), stem(b))) in SYNONYMS,
    )
    left, right = list(enumerate(said)), list(enumerate(reference))
    pairs: list[tuple[int, int]] = []
    for same in stages:
        for i, a in reversed(left.copy()):
            partner = next(((j, b) for j, b in reversed(right) if same(a, b)), None)
            if partner is not None:
                pairs.append((i, partner[0]))
                left.remove((i, a))
                right.remove(partner)
    m = len(pairs)
    if not m:
        return Fraction(0)
    pairs.sort()
    chunks = 1 + sum(b != (a[0] + 1, a[1] + 1) for a, b in pairwise(pairs))
    precision, recall, alpha = Fraction(m, len(said)), Fraction(m, len(reference)), Fraction(9, 10)
    return (1 - Fraction(chunks, m) ** 3 / 2) * precision * recall / (alpha * precision + (1 - alpha) * recall)


def text(found: Found) -> None:
    words, references = split(*found.input("captions"))
    scores = [meteor(w, group) for w, group in zip(words, references)]
    found.put("captions", "Meteor", exact(sum(scores) / len(scores)))
    words, references = split(*found.input("captions METEOR"))
    scores = [meteor(w, group) for w, group in zip(words, references)]
    found.put("captions METEOR", "Meteor", exact(sum(scores) / len(scores)))
    words, references = split(SAID_13A, GOLD_13A)
    found.put("captions 13a", "Bleu", real(text_oracles.bleu(words, references)))
    found.put("captions 13a", "CIDER", real(float(np.mean(text_oracles.cider_d(words, references)))))
    found.answers |= squad("answers SQuAD", *split(SAID_SQUAD, GOLD_SQUAD))


# --- Arrays --------------------------------------------------------------------------------------------------------


def dba(ranked: np.ndarray, labels: np.ndarray, k: int, delta: int, ring: int | None = None) -> Fraction:
    """Mean over 1..K of 1 - mean_n min_{j <= k} min(|b_nj - b_n| / delta, 1), as a rational."""
    d = np.minimum(array_oracles.beam_distances(ranked, labels, ring), delta)
    return 1 - Fraction(int(sum(d[:, :j].min(1).sum() for j in range(1, k + 1))), k * delta * len(labels))


def beams(found: Found) -> None:
    scores, labels = found.input("beam distance")
    ranked = array_oracles.ranked_beams(scores)
    found.put("beam distance", "DBAScore", exact(dba(ranked, labels, 3, 5)))
    found.put("beam distance on a ring", "DBAScore", exact(dba(ranked, labels, 2, 3, scores.shape[1])))
    scores, gains = found.input("beam gains")
    lit = gains.max(1) > 0
    best, chosen = gains.max(1)[lit], np.take_along_axis(gains, ranked[:, :2], axis=1).max(1)[lit]
    assert np.array_equal(ranked, array_oracles.ranked_beams(scores)) and (chosen > 0).all()
    found.put("beam gains", "BeamPowerLoss", decibels(float(np.mean(10 * np.log10(best / chosen)))))
    within = int((10 * np.log10(best / chosen) <= 3).sum())
    found.put("beam gains", "RSRPAccuracy", exact(Fraction(within, int(lit.sum()))))


def tpr_at_fpr(scores: np.ndarray, positive: np.ndarray, rate: Fraction) -> Fraction:
    """The ROC polyline over distinct thresholds, walked up to a false positive rate within its last segment."""
    far, tpr = Fraction(0), Fraction(0)
    for threshold in sorted(set(scores.tolist()), reverse=True):
        hit = scores >= threshold
        up = Fraction(int((hit & ~positive).sum()), int((~positive).sum()))
        right = Fraction(int((hit & positive).sum()), int(positive.sum()))
        if up > rate:
            return tpr + (rate - far) / (up - far) * (right - tpr)
        far, tpr = up, right
    return tpr


def options(found: Found) -> None:
    classification(found, " with ties")
    found.put("subspaces", "SGCS", real(array_oracles.sgcs(*found.input("subspaces"))))
    for name, reduction in (("channels by ratio", "mean_ratio"), ("channels in dB", "mean_db")):
        found.put(name, "NMSE", decibels(array_oracles.nmse(*found.input(name), reduction)))
    scores, binary = found.input("detector")
    found.put("detector", "EER", exact(oracles.eer(scores, binary == 1)[0]))
    found.put("detector", "TPRatFPR", exact(tpr_at_fpr(scores, binary == 1, Fraction(7, 100))))
    found.put("angles around", "MeanAngularError", exact(oracles.angular_error(*found.input("angles around"))))
    found.put("axes", "MeanAngularError", exact(oracles.angular_error(*found.input("axes"), period=180)))
    scores, classes = found.input("absent class")
    predicted = oracles.predicted(scores)
    recalls = [Fraction(int((predicted[classes == c] == c).sum()), int((classes == c).sum())) for c in range(3)]
    assert 3 in predicted and 3 not in classes
    found.put("absent class", "BalancedAccuracy", exact(sum(recalls) / 3))
    found.put("absent class counts", "BalancedAccuracy", exact(sum(recalls) / 4))
    preds, labels = found.input("separation, best permutation")
    found.put("separation, best permutation", "SISDR", decibels(array_oracles.best_si_sdr(preds, labels)))
    value = array_oracles.mean_si_sdr(preds, labels, zero_mean=True, phase_invariant=False)
    found.put("separation, mean removed, real gain", "SISDR", decibels(value))


def emval(found: Found) -> None:
    preds, labels = found.input("fields")
    values = {
        "rel_l2": {k: array_oracles.rel_l2(preds[k], labels[k]) for k in "EH"},
        "local_q50": {k: median(array_oracles.local_errors(preds[k], labels[k]).tolist()) for k in "EH"},
        "local_cos_q50": {k: median(array_oracles.local_cosines(preds[k], labels[k]).tolist()) for k in "EH"},
    }
    for name, both in values.items():
        for field, value in both.items():
            found.put("fields", f"{name}_{field}", real(value))
        if name != "local_cos_q50":
            found.put("fields", f"{name}_avg", real(sum(both.values()) / 2))
    for name, value in zip(
        ("real_imag_rmse", "mag_wmae", "ph_wmae"), array_oracles.sparam(*found.input("S-parameters"))
    ):
        found.put("S-parameters", name, real(value))


# --- Aggregates ----------------------------------------------------------------------------------------------------


def normalized(m: Fraction, low: Fraction, high: Fraction, direction: str) -> Fraction:
    return (m - low if direction == "higher" else high - m) / (high - low)


def clipped(x: Fraction) -> Fraction:
    return min(max(x, Fraction(0)), Fraction(1))


def aggregates() -> Answers:
    """Mean over folds, anchors, clip, mean over tasks; one fold deleted at a time; gaps in percentage points."""
    found: Answers = {}
    scores, gaps, variances, moves = {}, {}, [], []
    for task, (low, high) in golden.ANCHORS.items():
        direction = "lower" if task == "E-LOC-AOA" else "higher"

        def place(m: Fraction, ends: Any = (Fraction(low), Fraction(high), direction)) -> Fraction:
            return normalized(m, *ends)

        folds = [Fraction(v) for v in golden.FOLD_SCORES[task].values()]
        n = len(folds)
        mean = sum(folds) / n
        scores[task] = clipped(place(mean))
        left = [clipped(place((sum(folds) - f) / (n - 1))) for f in folds]
        variances.append(Fraction(n - 1, n) * sum((x - sum(left) / n) ** 2 for x in left))
        moves += [x - scores[task] for x in left]
        if task in golden.REAL_SCORES:
            truth = place(Fraction(golden.REAL_SCORES[task]))
            gaps[task] = 100 * (scores[task] - clipped(truth)), 100 * (place(mean) - truth)
    num = len(scores)
    value = sum(scores.values()) / num
    found["OOD-avg"] = exact(value)
    found["OOD-avg se"] = {"value": repr(math.sqrt(sum(variances)) / num), "relative": 1e-12}
    found["OOD-avg low"] = exact(max(value + min(moves) / num, Fraction(0)))
    found["OOD-avg high"] = exact(min(value + max(moves) / num, Fraction(1)))
    for task, (gap, unclipped) in gaps.items():
        found[f"gap {task}"] = exact(gap)
        found[f"gap {task} unclipped"] = exact(unclipped)
    return found


if __name__ == "__main__":
    for name, content in answers().items():
        assert np.isfinite([float(Fraction(a["value"])) for a in content.values()]).all()
        document = {"protocol_version": PROTOCOL_VERSION, "answers": content}
        (Path(sys.argv[1]) / name).write_text(json.dumps(document, sort_keys=True, indent=1) + "\n")
