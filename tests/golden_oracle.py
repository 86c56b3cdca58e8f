"""Answers of the golden self-test from the definitions alone: rationals where there are any, float64 for logarithms.

``python tests/golden_oracle.py`` prints them as ``golden.json`` wants them, for a new version of the protocol.
"""

from __future__ import annotations

import json
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import array_oracles
import numpy as np
import oracles
import text_oracles

from emma_jax.maintenance.golden import golden_cases
from emma_jax.release import PROTOCOL_VERSION


def exact(value: Fraction | int) -> dict[str, Any]:
    return {"value": str(Fraction(value)), "relative": 1e-12}


def decibels(value: float) -> dict[str, Any]:
    return {"value": repr(float(value)), "absolute": 5e-6}


def real(value: float) -> dict[str, Any]:
    return {"value": repr(float(value)), "relative": 1e-6}


def answers() -> dict[str, dict[str, Any]]:
    """Case, task and metric to value and tolerance."""
    cases = golden_cases()
    found: dict[str, dict[str, Any]] = {}

    def put(name: str, metric: str, answer: dict[str, Any]) -> None:
        found[f"{name} {cases[name][0]} {metric}"] = answer

    _, _, preds, labels = cases["angles"]
    put("angles", "MeanAngularError", exact(oracles.angular_error(preds, labels)))
    _, _, scores, classes = cases["auc"]
    put("balanced", "BalancedAccuracy", exact(oracles.balanced_accuracy(oracles.predicted(scores), classes)))
    put("auc", "AUC", exact(oracles.macro_auc(scores, classes)[0]))
    put("fingerprint", "Top1Accuracy", exact(oracles.top_k(scores, classes, 1)))
    put("fingerprint", "EER", exact(oracles.eer(*oracles.pooled(scores, classes)[:2])[0]))
    put("accuracy", "PlainAccuracy", exact(oracles.top_k(scores, classes, 1)))
    put("beams", "TopKAccuracy", exact(oracles.top_k(scores, classes, 2)))
    for name, metric in (("sensing", "AUC"), ("anomaly", "AUROC")):
        _, _, preds, labels = cases[name]
        put(name, metric, exact(oracles.auc(preds, labels == 1)))
    _, _, preds, labels = cases["channels"]
    put("channels", "NMSE", decibels(array_oracles.nmse(preds, labels)))
    _, _, preds, labels = cases["signals"]
    put("signals", "SISDR", decibels(array_oracles.mean_si_sdr(preds, labels)))
    _, _, said, gold = cases["captions"]
    words, references = [s.split() for s in said], [[g.split() for g in group] for group in gold]
    put("captions", "Bleu", real(text_oracles.bleu(words, references)))
    put("captions", "CIDER", real(float(np.mean(text_oracles.cider_d(words, references)))))
    plain = [[w for w in s if w not in ("a", "the")] for s in words]  # SQuAD drops articles; nothing else applies here
    golds = [[[w for w in g if w not in ("a", "the")] for g in group] for group in references]
    n = len(plain)
    put("answers", "ExactMatch", exact(Fraction(sum(map(text_oracles.exact_match, plain, golds)), n)))
    put("answers", "F1", exact(sum(map(text_oracles.f1, plain, golds), Fraction(0)) / n))
    for direction in ("higher", "lower"):
        for eighths in (-8, 2, 3, 17, 34, 99):
            m, low, high = Fraction(eighths, 8), Fraction(1, 4), Fraction(17, 4)
            x = (m - low if direction == "higher" else high - m) / (high - low)
            found[f"anchor {direction} {eighths}/8"] = exact(min(max(x, Fraction(0)), Fraction(1)))
    return found


if __name__ == "__main__":
    document = {"protocol_version": PROTOCOL_VERSION, "answers": answers()}
    text = json.dumps(document, sort_keys=True, indent=1) + "\n"
    Path(sys.argv[1]).write_text(text) if len(sys.argv) > 1 else print(text, end="")
    assert np.isfinite([float(Fraction(a["value"])) for a in document["answers"].values()]).all()
