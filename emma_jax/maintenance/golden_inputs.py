"""What the golden self-test scores: fixed inputs for every task and every metric, the same on every machine.

Numbers come from a linear congruential generator in integers; texts are a few words each.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from emma_jax import metrics as m
from emma_jax.tasks import Task

__all__ = ["Case", "golden_cases", "integers"]

Case = tuple[str | Task, dict[str, Any], Any, Any]
"""Task, its parameters, predictions, labels."""

_N = 96


def integers(seed: int, count: int, below: int) -> np.ndarray:
    """Integers [count] in 0..below-1: upper 16 bits of x <- (1664525 x + 1013904223) mod 2^32, modulo ``below``."""
    x, values = seed, []
    for _ in range(count):
        x = (1664525 * x + 1013904223) % 2**32
        values.append((x >> 16) % below)
    return np.array(values, np.int64)


def golden_cases() -> dict[str, Case]:
    """The inputs by name; every number is a small integer or a fraction of it.

    Returns:
      Angles in quarter degrees, scores in eighths with many ties, beam gains, complex channels, signals, fields and
      S-parameters of integers or dyadic fractions, texts of a few words. Metrics that no registered task has, and
      formulas that an option chooses, have tasks of their own.
    """
    return _registered() | _texts() | _beams() | _options() | _emval()


def _registered() -> dict[str, Case]:
    """One case for each task of EMMA, with parameters that make ties and near misses matter."""
    classes = integers(11, _N, 4)
    scores = integers(13, _N * 4, 64).reshape(_N, 4) / 8.0
    scores[np.arange(_N), classes] += 2.0
    binary = integers(17, _N, 2)
    channel = _complex((19, 23), (_N, 4, 4), 20)
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


def _complex(seeds: tuple[int, int], shape: tuple[int, ...], largest: int) -> np.ndarray:
    """Complex integers whose parts lie in -largest..largest."""
    count = int(np.prod(shape))
    re, im = (integers(seed, count, 2 * largest + 1) - largest for seed in seeds)
    return (re + 1j * im).reshape(shape)


def _texts() -> dict[str, Case]:
    """What the rules of tokenizers, normalizers, stems and synonyms decide."""
    said = [
        "Two drones, flying at 3.5 GHz!",
        "The car's radar sees 2,400 targets.",
        "a 5-element array (north-facing)",
        "noise only; no signal & no tone",
        "nothing",
    ]
    gold = [
        ["Two drones flying at 3.5 GHz.", "drones at 3,5 GHz!"],
        ["The automobile's radar saw 2,400 targets.", "a car radar sees targets"],
        ["an array of 5 elements, north-facing", "a 5-element array"],
        ["noise only, no signal"],
        ["there is nothing to be seen here", "no drone was seen near the tower tonight"],
    ]
    close = ["two drones flew north", "the car stops", "signals overlap in time", "a b c d", "d c b a", "one"]
    other = [
        ["two drone flew to the north", "a drone flew"],
        ["the auto stopped", "cars"],
        ["signal overlapped in the time"],
        ["a x b c x d"],
        ["a b c d", "d c"],
        ["two"],
    ]
    answers = ["The  Radar!", "-3.5 dB", "two of the three", "", "an"]
    wanted = [["radar", "a lidar"], ["35 dB"], ["three of four", "one"], [], [""]]
    return {
        "captions 13a": (Task("13a", (m.Bleu(), m.CIDER())), {}, said, gold),
        "captions METEOR": (Task("METEOR", (m.Meteor("whitespace"),)), {}, close, other),
        "answers SQuAD": ("E-S2T-QA", {}, answers, wanted),
    }


def _beams() -> dict[str, Case]:
    """Beams ranked with ties; gains of which some rows are dark."""
    scores, labels = integers(61, _N * 16, 24).reshape(_N, 16) / 8.0, integers(67, _N, 16)
    gains = integers(71, _N * 16, 97).reshape(_N, 16) + 1.0
    gains[::19] = 0.0
    power = Task("power", (m.BeamPowerLoss(k=2), m.RSRPAccuracy(k=2, margin_db=3.0)))
    return {
        "beam distance": (Task("DBA", (m.DBAScore(),)), {}, scores, labels),
        "beam distance on a ring": (Task("DBA", (m.DBAScore(k=2, delta=3, circular=True),)), {}, scores, labels),
        "beam gains": (power, {}, scores, gains),
    }


def _options() -> dict[str, Case]:
    """Metrics without a task of their own, and the formulas that an option chooses."""
    registered = _registered()
    _, _, preds, labels = registered["channels"]
    _, _, scores, binary = registered["sensing"]
    _, _, angles, true_angles = registered["angles"]
    _, _, classes, true_classes = registered["balanced"]
    coarse = integers(97, _N * 4, 4).reshape(_N, 4) / 2.0  # most rows have a tie for the first place
    tied = {name: registered[name][:2] for name in ("balanced", "auc", "fingerprint", "accuracy", "beams")}
    sources = _complex((73, 79), (6, 2, 32), 50)
    mixed = sources[:, ::-1] * (2 + 1j) + _complex((83, 89), (6, 2, 32), 9) + 5
    signals = mixed.astype(np.complex64), sources.astype(np.complex64)
    separation = {
        "mean removed, real gain": m.SISDR(zero_mean=True, phase_invariant=False),
        "best permutation": m.SISDR(permutation="best"),
    }
    return {
        **{f"{name} with ties": (task, params, coarse, true_classes) for name, (task, params) in tied.items()},
        "subspaces": (Task("SGCS", (m.SGCS(),)), {}, preds, labels),
        "channels by ratio": (Task("mean_ratio", (m.NMSE("mean_ratio"),)), {}, preds, labels),
        "channels in dB": (Task("mean_db", (m.NMSE("mean_db"),)), {}, preds, labels),
        "detector": (Task("binary", (m.EER(), m.TPRatFPR(fpr=0.07))), {}, scores, binary),
        "angles around": ("E-LOC-AOA", {}, angles + 1000, true_angles),
        "axes": (Task("period 180", (m.MeanAngularError(period=180),)), {}, angles + 1000, true_angles),
        # The last class is never true: it counts 0 in the one rule, and not at all in the other.
        "absent class": (
            Task("exclude", (m.BalancedAccuracy(num_classes=4, absent="exclude"),)),
            {},
            classes,
            np.minimum(true_classes, 2),
        ),
        "absent class counts": (
            Task("zero", (m.BalancedAccuracy(num_classes=4),)),
            {},
            classes,
            np.minimum(true_classes, 2),
        ),
        **{f"separation, {name}": (Task("SISDR", (metric,)), {}, *signals) for name, metric in separation.items()},
    }


def _emval() -> dict[str, Case]:
    """A board's fields with dark and with silenced probes, and S-parameters with nulls and exact zeros."""
    shape = (2, 3, 8, 3)
    fields, found = {}, {}
    for name, seed in (("E", 101), ("H", 211)):
        true = _complex((seed, seed + 2), shape, 30)
        guess = true * (1 + 1j / 8) + _complex((seed + 4, seed + 6), shape, 12)
        true[0, 0, 3] = 0
        guess[1, 2, 5] = 0
        if name == "H":
            true[1, 0, 0] = 0  # an even number of probes is left: the median is between two
        fields[name], found[name] = true.astype(np.complex64), guess.astype(np.complex64)
    true = _complex((307, 311), (6, 3, 3), 64) / 64
    true[:, 0, 2] /= 1024  # nulls, to which the weight gives next to nothing
    guess = true + _complex((313, 317), (6, 3, 3), 16) / 256
    true[2, 1, 1], guess[3, 2, 2] = 0, 0
    sparams = guess.astype(np.complex64), true.astype(np.complex64)
    return {"fields": ("EMVal-NF", {}, found, fields), "S-parameters": ("EMVal-SP", {}, *sparams)}
