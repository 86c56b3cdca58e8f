"""The golden self-test: fixed inputs, exact answers, and one digest for each version of the protocol.

Inputs come from a linear congruential generator in integers, so that they are the same on every machine. The answers in
``golden.json`` are rationals and closed forms, computed by the definitions in the tests, not by this package. A change
of scoring makes a value deviate; whoever then changes ``golden.json`` finds that it no longer has the digest known for
its protocol version. So scores cannot change under one version: `PROTOCOL_VERSION` is bumped, and the new digest added
to `GOLDEN_DIGESTS`, where old ones stay.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from importlib.resources import files
from typing import Any

import numpy as np

from emma_jax.errors import EvaluationError, ReleaseError
from emma_jax.release import PROTOCOL_VERSION, Anchor, canonical_json

__all__ = ["GOLDEN_DIGESTS", "Deviation", "golden_cases", "golden_deviations"]

GOLDEN_DIGESTS: dict[str, str] = {"0.1.0": "sha256:bba6e6ae23f2075a3cbd6e091e252b857d45a71605add46cea253ab6342078f5"}
"""Digest of the golden answers by protocol version; an entry never changes."""

_N = 96


@dataclass(frozen=True)
class Deviation:
    """An answer that is not the golden one.

    Attributes:
      case: task, metric and input, or "protocol" where version and digest do not go together.
      expected: the golden value, in the metric's unit; or the digest.
      actual: what this installation computes.
    """

    case: str
    expected: Any
    actual: Any

    def __str__(self) -> str:
        return f"{self.case}: expected {self.expected}, got {self.actual}"


def integers(seed: int, count: int, below: int) -> np.ndarray:
    """Integers [count] in 0..below-1: upper 16 bits of x <- (1664525 x + 1013904223) mod 2^32, modulo ``below``."""
    x, values = seed, []
    for _ in range(count):
        x = (1664525 * x + 1013904223) % 2**32
        values.append((x >> 16) % below)
    return np.array(values, np.int64)


def golden_cases() -> dict[str, tuple[str, dict[str, Any], Any, Any]]:
    """The inputs: name to (task, parameters, predictions, labels); every number is a small integer or a fraction of it.

    Returns:
      Angles in quarter degrees, scores in eighths with many ties, complex channels and signals of integers, texts of a
      few words.
    """
    classes = integers(11, _N, 4)
    scores = integers(13, _N * 4, 64).reshape(_N, 4) / 8.0
    scores[np.arange(_N), classes] += 2.0
    binary = integers(17, _N, 2)
    channel = integers(19, _N * 16, 41).reshape(_N, 4, 4) - 20
    channel = channel + 1j * (integers(23, _N * 16, 41).reshape(_N, 4, 4) - 20)
    noise = (integers(29, _N * 16, 7).reshape(_N, 4, 4) - 3) * (1 + 2j)
    signal = integers(31, 12 * 64, 201).reshape(12, 64) - 100
    words = np.array(["the", "radar", "sees", "a", "drone", "above", "north", "gate"])
    texts = [" ".join(words[integers(100 + i, 9, len(words))]) for i in range(24)]
    said = [" ".join(text.split()[: 9 - i % 4]) + (" now" if i % 3 else "") for i, text in enumerate(texts)]
    gold = [[texts[i], " ".join(words[integers(300 + i, 5, len(words))])] for i in range(24)]
    degrees = integers(37, _N, 2880) / 4.0 - 360.0
    return {
        "angles": ("E-LOC-AOA", {}, degrees + (integers(41, _N, 481) - 240) / 4.0, degrees),
        "balanced": ("E-LOC-LOS", {"num_classes": 4}, scores, classes),
        "auc": ("E-ID-DRONE", {"num_classes": 4}, scores, classes),
        "fingerprint": ("E-ID-FP", {"num_classes": 4}, scores, classes),
        "accuracy": ("E-ID-AMC", {"num_classes": 4}, scores, classes),
        "beams": ("E-CH-BEAM", {"k": 2, "num_classes": 4}, scores, classes),
        "sensing": ("E-SC-SENSE", {}, integers(43, _N, 40) / 8.0 + binary, binary),
        "anomaly": ("E-SC-ANOM", {}, integers(47, _N, 12) / 8.0 + binary, binary),
        "channels": ("E-CH-CSI", {}, (channel + noise).astype(np.complex64), channel.astype(np.complex64)),
        "signals": (
            "E-SC-SEP",
            {},
            (3 * signal + integers(53, 768, 31).reshape(12, 64) - 15).astype(np.float32),
            signal.astype(np.float32),
        ),
        "captions": ("E-S2T-CAP", {"tokenizer": "whitespace"}, said, gold),
        "answers": ("E-S2T-QA", {}, said, gold),
    }


def anchored() -> Iterator[tuple[str, float]]:
    """Normalized scores at, between and beyond anchors of dyadic numbers, where float64 is exact."""
    for direction in ("higher", "lower"):
        anchor = Anchor(0.25, 4.25, direction)
        for eighths in (-8, 2, 3, 17, 34, 99):
            yield f"anchor {direction} {eighths}/8", anchor.normalize(eighths / 8)


def golden_deviations() -> tuple[Deviation, ...]:
    """Scores the golden inputs and compares with the golden answers.

    Returns:
      What deviates: a value beyond its tolerance (relative 1e-12 for rationals, 1e-6 for text, 5e-6 dB), an
      answer that is missing, or golden answers that are not those of this protocol version; nothing if all is well.

    Raises:
      ReleaseError: the golden file is not there or not JSON.
    """
    golden = _stored()
    answers, found = golden["answers"], []
    digest = "sha256:" + hashlib.sha256(canonical_json(answers)).hexdigest()
    if golden["protocol_version"] != PROTOCOL_VERSION:
        text = "golden.json is of another version than PROTOCOL_VERSION; write the answers of the new one"
        found.append(Deviation(f"protocol ({text})", golden["protocol_version"], PROTOCOL_VERSION))
    if GOLDEN_DIGESTS.get(PROTOCOL_VERSION) != digest:
        text = "the golden answers changed without a new protocol version"
        found.append(Deviation(f"protocol ({text})", GOLDEN_DIGESTS.get(PROTOCOL_VERSION), digest))
    actual = dict(_actual())
    for case in sorted(answers.keys() | actual.keys()):
        if case not in answers or case not in actual:
            found.append(Deviation(case, answers.get(case, {}).get("value"), actual.get(case)))
        elif not _agrees(actual[case], answers[case]):
            found.append(Deviation(case, answers[case]["value"], actual[case]))
    return tuple(found)


def _stored() -> dict[str, Any]:
    try:
        content = json.loads((files("emma_jax.maintenance") / "golden.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ReleaseError(f"cannot be read: {error}", argument="golden.json") from error
    stored: dict[str, Any] = content
    return stored


def _actual() -> Iterator[tuple[str, float | str]]:
    from emma_jax.evaluate import evaluate

    for name, (task, params, preds, labels) in golden_cases().items():
        try:
            scores = evaluate(task, preds, labels, **params)
        except EvaluationError as error:
            yield f"{name} {task}", f"{type(error).__name__}: {error}"
            continue
        for metric, value in scores.items():
            if metric != "Meteor":  # held against nltk in its own tests; it has no short closed form
                yield f"{name} {task} {metric}", float(value)
    yield from anchored()


def _agrees(actual: Any, answer: dict[str, Any]) -> bool:
    if not isinstance(actual, float) or not math.isfinite(actual):
        return False
    expected = float(Fraction(answer["value"]))
    limit = answer.get("absolute", 0.0) + answer.get("relative", 0.0) * abs(expected)
    return bool(abs(actual - expected) <= limit)
