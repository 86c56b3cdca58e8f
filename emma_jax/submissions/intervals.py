"""Sampling intervals in a result: how far its numbers would move with other samples of the same environments."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from emma_jax.release import Release
from emma_jax.submissions.folder import Limits, Submission, load_submission, naming
from emma_jax.submissions.results import sealed
from emma_jax.submissions.scoring import Inputs, align

__all__ = ["add_intervals"]


def add_intervals(
    result: Mapping[str, Any],
    directory: str | os.PathLike[str] | Submission,
    release: Release,
    *,
    num_resamples: int = 1000,
    seed: int = 0,
    limits: Limits | None = None,
) -> dict[str, Any]:
    """The result with bootstrap intervals of OOD-avg and of every task in it, sealed anew.

    Samples are drawn within each fold (`emma_jax.uncertainty.ood.bootstrap_ood_avg`); environments stay as they are,
    so this is another question than the jackknife over folds answers, and both stand in the result.

    Args:
      result: from `emma_jax.submissions.score_submission`.
      directory: the submission that it was made from, read once more.
      release: what it was scored against.
      num_resamples: resamples B of each fold.
      seed: of all randomness; recorded.
      limits: how much the submission may hold.

    Returns:
      The document with ``intervals``: ``num_resamples``, ``seed``, ``ood_avg`` and per task ``raw`` and ``normalized``,
      each with ``low`` and ``high`` (95%), in the unit of the number that they belong to.

    Raises:
      EvaluationError: as `score_submission`, and as `emma_jax.bootstrap`.
    """
    from emma_jax.uncertainty.ood import bootstrap_ood_avg

    limits = limits or Limits()
    submission = directory if isinstance(directory, Submission) else load_submission(directory, limits=limits)
    inputs = Inputs(limits)
    preds: dict[str, dict[str, Any]] = {}
    labels: dict[str, dict[str, Any]] = {}
    where: dict[str, dict[str, Any]] = {}
    for task in release.aggregated:
        for fold in release.tasks[task].folds:
            path = submission.preds[task][fold]
            truth, given = inputs.read_labels(release, task, fold), inputs.read_predictions(submission, path)
            with naming(path):
                preds.setdefault(task, {})[fold] = align(given, truth)
            labels.setdefault(task, {})[fold] = truth.labels
            if truth.where is not None:
                where.setdefault(task, {})[fold] = truth.where
    found = bootstrap_ood_avg(release, preds, labels, key=seed, num_resamples=num_resamples, where=where or None)
    content = {"num_resamples": num_resamples, "seed": seed, **found.to_dict()}
    return sealed({**result, "intervals": content})
