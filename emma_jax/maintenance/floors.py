"""Floors of a task: what is scored without looking at a signal, measured on a release's own folds.

A floor is what an anchor is worth: with it at 0, a normalized score says how far a model is beyond one that ignores its
input. Three are documented, each learned from the labels that a model may train on, those of the *other* folds (or of
training labels that are given), and scored on the fold itself:

- chance: the expected score of answers drawn at random with equal probabilities: 1/C for the accuracies, k/C for top-k,
  1/2 for AUC, whatever the labels are.
- circular mean: the angle ``atan2(sum sin, sum cos)`` of the training angles for every sample.
- majority class: the most frequent training class (the lowest on a tie) for every sample.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from emma_jax.errors import LabelError
from emma_jax.metrics import AUC, BalancedAccuracy, MeanAngularError, PlainAccuracy, Top1Accuracy, TopKAccuracy
from emma_jax.tasks import Task

__all__ = ["Floor", "propose_task"]

_CLASSES = (BalancedAccuracy, PlainAccuracy, Top1Accuracy, TopKAccuracy)


@dataclass(frozen=True)
class Floor:
    """One floor of one task.

    Attributes:
      name: "chance", "circular mean" or "majority class".
      value: mean over the folds, in the unit and direction of the task's headline metric.
      folds: read-only mapping of fold name to the floor's score there; empty for chance.
    """

    name: str
    value: float
    folds: Mapping[str, float]


def propose_task(
    task: Task, labels: Mapping[str, np.ndarray], training: Mapping[str, np.ndarray] | None = None
) -> tuple[dict[str, Any], tuple[Floor, ...]]:
    """Parameters, anchor and floors that a release of these labels may start from.

    Args:
      task: a registered task, with the parameters of the proposal.
      labels: fold name to labels [N], synthetic folds only.
      training: fold name to the labels that may be learned from when that fold is scored; by default those of all
        other folds, or, where there is only one, its own.

    Returns:
      ``params`` and ``anchor`` for `emma_jax.release.build_release` (an anchor only for a task of OOD-avg), and the
      floors. The proposed anchor runs from the best floor to a perfect score; its ``basis`` says from what. A task
      whose metric has no documented floor gets none.

    Raises:
      LabelError: class labels that are no integers from 0 on.
    """
    metric = task.headline
    floors: tuple[Floor, ...]
    if isinstance(metric, MeanAngularError):
        floors = (_circular_mean(task, labels, training),)
    elif isinstance(metric, AUC):
        _num_classes(task, labels)
        floors = (Floor("chance", 0.5, MappingProxyType({})),)
    elif isinstance(metric, _CLASSES):
        c = _num_classes(task, labels)
        k = metric.k if isinstance(metric, TopKAccuracy) else 1
        chance = Floor("chance", min(k / c, 1.0), MappingProxyType({}))
        floors = (chance,) if k > 1 else (chance, _majority(task, labels, training, c))
    else:
        return {}, ()
    params = {}
    if isinstance(metric, _CLASSES) or (isinstance(metric, AUC) and "num_classes" in task.params):
        c = _num_classes(task, labels)
        if c > 2 or not isinstance(metric, AUC):
            params["num_classes"] = c
    proposal: dict[str, Any] = {"params": params}
    if task.in_ood_avg:
        proposal["anchor"] = _anchor(metric.direction, floors)
    return proposal, floors


def _anchor(direction: str, floors: tuple[Floor, ...]) -> dict[str, Any]:
    """From the best floor to perfect: 0 of an error, 1 of an accuracy or an AUC."""
    lower = direction == "lower"
    best = (min if lower else max)(floors, key=lambda floor: floor.value)
    where = f", mean over {len(best.folds)} folds" if best.folds else ""
    source = f"{best.name}{where}, proposed from the labels"
    if lower:
        return {"m_min": 0.0, "m_max": best.value, "basis": f"m_min: perfect. m_max: {source}"}
    return {"m_min": best.value, "m_max": 1.0, "basis": f"m_min: {source}. m_max: perfect"}


def _others(labels: Mapping[str, np.ndarray], training: Mapping[str, np.ndarray] | None, fold: str) -> np.ndarray:
    if training is not None and fold in training:
        return training[fold]
    others = [array for name, array in labels.items() if name != fold]
    return np.concatenate(others) if others else labels[fold]


def _mean_floor(name: str, folds: dict[str, float]) -> Floor:
    return Floor(name, math.fsum(folds.values()) / len(folds), MappingProxyType(folds))


def _circular_mean(task: Task, labels: Mapping[str, np.ndarray], training: Mapping[str, np.ndarray] | None) -> Floor:
    from emma_jax.evaluate import evaluate

    params = task.params
    turn = 2 * math.pi / (params["period"] if params["input_unit"] == "deg" else params["period"] * math.pi / 180)
    folds = {}
    for fold, truth in labels.items():
        phase = np.asarray(_others(labels, training, fold), np.float64) * turn
        mean = math.atan2(math.fsum(np.sin(phase)), math.fsum(np.cos(phase))) / turn
        folds[fold] = float(evaluate(task, np.full(len(truth), mean), np.asarray(truth, np.float64)).headline)
    return _mean_floor("circular mean", folds)


def _majority(task: Task, labels: Mapping[str, np.ndarray], training: Mapping[str, np.ndarray] | None, c: int) -> Floor:
    from emma_jax.evaluate import evaluate

    folds = {}
    for fold, truth in labels.items():
        counts = np.bincount(np.asarray(_others(labels, training, fold)).astype(np.int64), minlength=c)
        scores = np.zeros((len(truth), max(c, 2)), np.float32)
        scores[:, int(counts.argmax())] = 1.0
        metric = task.replace(num_classes=max(c, 2)).headline
        folds[fold] = float(evaluate(Task(task.id, (metric,)), scores, truth).headline)
    return _mean_floor("majority class", folds)


def _num_classes(task: Task, labels: Mapping[str, np.ndarray]) -> int:
    """Largest label of any fold + 1, and at least 2."""
    for fold, truth in labels.items():
        if truth.dtype.kind not in "iub" or truth.ndim != 1 or (truth.size and int(truth.min()) < 0):
            text = f"class labels are integers [N] from 0 on, not {truth.dtype}{list(truth.shape)}"
            raise LabelError(text, task=task.id, argument=fold)
    return max(2, *(int(truth.max()) + 1 for truth in labels.values() if truth.size))
