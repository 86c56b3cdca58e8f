"""Prediction files against label files: rows matched, folds scored, one result document.

Rows and ids: with ids on both sides, rows are matched by id. Where the predictions have no ids, their rows are taken in
the order of the label file, and the numbers of rows have to be equal. Predictions with ids against labels without are
an error: the order that the ids ask for cannot be found.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from emma_jax._version import __version__
from emma_jax.aggregate import OODAvg, SimToRealGap, jackknife
from emma_jax.errors import ReleaseError, SubmissionError
from emma_jax.io.arrays import aligned_take
from emma_jax.io.read import Labels, Predictions, check_unique_ids, first_ten, read_labels, read_predictions
from emma_jax.io.sources import read_bytes
from emma_jax.release import CONTINUITY_TASK, REAL, Release, TaskEntry, load_release
from emma_jax.submissions.curves import fold_curves
from emma_jax.submissions.folder import (
    DESCRIPTION,
    Limits,
    Submission,
    check_against,
    is_anchor,
    load_submission,
    naming,
    raise_at_once,
)
from emma_jax.submissions.results import RESULT_FORMAT, sealed

__all__ = ["align", "group_entries", "score_submission"]

_OWNED = {
    **dict.fromkeys(("where", "weights", "group", "groups", "label", "labels", "refs", "lengths"), "label file"),
    **dict.fromkeys(("anchor", "anchors", "m_min", "m_max"), "release"),
}

Progress = Callable[[int, int, str], None]
"""``progress(done, total, what)``, called before each file is scored and once at the end."""

ScoredFold = tuple[str, str, float, dict[str, Any]]
"""Task, fold, headline value, entry of the document."""


# --- Rows --------------------------------------------------------------------------------------------------------


def align(preds: Predictions, labels: Labels) -> Any:
    """The predictions in the order of the labels.

    Args:
      preds: N predictions, with or without ids.
      labels: N labels, with or without ids.

    Returns:
      ``preds.preds``, rows (array [N,...], or list of N strings) in label order.

    Raises:
      SubmissionError: naming the file, with the first ten and the total of each kind: missing, extra or duplicate ids;
        ids that the labels do not have; or another number of rows.
    """
    if preds.ids is None:
        if len(preds.preds) != len(labels.labels):
            raise SubmissionError(
                f"{len(preds.preds)} predictions for the {len(labels.labels)} labels of {labels.name}",
                argument=preds.name,
            )
        return preds.preds
    if labels.ids is None:
        raise SubmissionError(
            f"has ids, but {labels.name} has none to match them with; leave them out and keep the order of the labels",
            argument=preds.name,
        )
    check_unique_ids(preds.ids, preds.name, SubmissionError)
    check_unique_ids(labels.ids, labels.name, SubmissionError)
    if preds.ids == labels.ids:
        return preds.preds
    row = {sample: i for i, sample in enumerate(preds.ids)}
    wanted = set(labels.ids)
    missing = [i for i in labels.ids if i not in row]
    extra = [i for i in preds.ids if i not in wanted]
    if missing or extra:
        parts = [
            f"{len(ids)} {what}: {first_ten(ids)}"
            for ids, what in ((missing, "ids missing"), (extra, "ids that the labels do not have"))
            if ids
        ]
        raise SubmissionError("; ".join(parts), argument=preds.name)
    order = np.fromiter((row[i] for i in labels.ids), np.intp, len(labels.ids))
    return aligned_take(preds.preds, order) if isinstance(preds.preds, np.ndarray) else [preds.preds[i] for i in order]


# --- Scores ------------------------------------------------------------------------------------------------------


class Inputs:
    """sha256 of every file that was scored, by relative path, and how much has been read of what may be."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.preds: dict[str, str] = {}
        self.labels: dict[str, str] = {}
        self.bytes = 0

    def count(self, size: int, path: str) -> None:
        """Adds the decompressed bytes of a file, and refuses the one that is too much."""
        self.bytes += size
        if self.bytes > self.limits.total_bytes:
            text = f"with it the files hold more than {self.limits.total_bytes} bytes once decompressed"
            raise SubmissionError(f"{text} (total_bytes)", argument=path)

    def read_labels(self, release: Release, task_id: str, fold: str) -> Labels:
        """The labels of a fold, of the very bytes that the release pins."""
        file = release.label_file(task_id, fold)
        with naming(file.path):
            labels = read_labels(release.label_bytes(task_id, fold), name=file.path, unique_ids=False)
        self.labels[file.path] = file.sha256
        return labels

    def read_predictions(self, submission: Submission, path: str) -> Predictions:
        """The predictions of a file, within the limits, refused where it holds what is not the submitter's to give."""
        limit = self.limits.of(path)
        with naming(path):
            data = read_bytes(submission.root / path, max_bytes=limit, name=path)
            self.preds[path] = hashlib.sha256(data).hexdigest()
            preds = read_predictions(data, name=path, max_bytes=limit, unique_ids=False)
            self.count(getattr(preds.preds, "nbytes", len(data)), path)
            for name in preds.names:
                owner = _OWNED.get(name) or ("release" if is_anchor(name) else None)
                if owner:
                    raise SubmissionError(f"carries {name!r}, which is for the {owner} alone to give", argument=path)
        return preds


def score_fold(
    submission: Submission, release: Release, task_id: str, fold: str, inputs: Inputs
) -> tuple[float, dict[str, Any]]:
    """Headline value and the document entry of one fold (or of the real split)."""
    labels = inputs.read_labels(release, task_id, fold)
    path = submission.preds[task_id][fold]
    preds = inputs.read_predictions(submission, path)
    with naming(path):
        return score_rows(release, task_id, preds, labels, align(preds, labels))


def score_rows(
    release: Release, task_id: str, preds: Predictions, labels: Labels, rows: Any
) -> tuple[float, dict[str, Any]]:
    """Headline value and document entry of predictions in label order: metrics, groups, curves."""
    from emma_jax.evaluate import evaluate, evaluate_groups

    task = release.task(task_id)
    given = {"where": labels.where, "lengths": labels.lengths}
    scores = evaluate(task, rows, labels.labels, **given)
    entry: dict[str, Any] = {"n": len(labels.labels), "metrics": scores.to_dict()["metrics"]}
    entry["rows"] = "in order" if preds.ids is None else "by id"
    if labels.groups is not None:
        groups = evaluate_groups(task, rows, labels.labels, labels.groups, num_groups=len(labels.group_names), **given)
        entry["groups"] = group_entries(groups, labels.group_names)
    curves = fold_curves(task, rows, labels.labels, labels.where)
    if curves:
        entry["curves"] = curves
    return float(scores[release.tasks[task_id].metric]), entry


def group_entries(scores: Any, names: Sequence[str]) -> dict[str, Any]:
    """Per group and metric, the value (null where the group leaves it undefined) and from how many samples it comes."""
    return {
        name: {
            metric: {"value": scores[metric][g], "n_used": int(scores.validity[metric].n_used[g])} for metric in scores
        }
        for g, name in enumerate(names)
    }


def _task_entry(entry: TaskEntry, values: Mapping[str, float], real: float | None) -> dict[str, Any]:
    """What the folds of one task come to: raw and normalized, their spread, and the gap where there is a real split."""
    anchor = entry.anchor
    spread = jackknife(values, anchor.normalize if anchor else None)
    raw = jackknife(values)
    gap = SimToRealGap().from_raw(anchor, raw.mean, real) if anchor is not None and real is not None else None
    return {
        "metric": entry.metric,
        "direction": entry.direction,
        "unit": entry.unit,
        "params": dict(entry.params),
        "in_ood_avg": entry.in_ood_avg,
        "anchor": {"m_min": anchor.m_min, "m_max": anchor.m_max, "basis": anchor.basis} if anchor else None,
        "raw": raw.mean,
        "normalized": spread.mean if anchor else None,
        "jackknife": spread.to_dict() if anchor else None,
        "jackknife_raw": raw.to_dict(),
        "real_raw": real,
        "real_normalized": gap.real if gap else None,
        "gap_pp": gap.gap if gap else None,
        "gap_unclipped_pp": gap.unclipped if gap else None,
    }


def score_submission(
    directory: str | os.PathLike[str] | Submission,
    release: Release | str | Path,
    *,
    progress: Progress | None = None,
    limits: Limits | None = None,
) -> dict[str, Any]:
    """Scores a submission folder against a release.

    Every prediction file is read once: its sha256 is that of the very bytes that were scored.

    Args:
      directory: the submission folder, or what `load_submission` made of it.
      release: a `Release`, or a path or name for `load_release`.
      progress: called as ``progress(done, total, what)`` before each file and once at the end.
      limits: how much the submission may hold; those of `Limits` by default.

    Returns:
      The result document, JSON-ready for `write_result`: ``format, submission, release, protocol_version, scorer,
      inputs, tasks, ood_avg, ood_avg_se, ood_avg_low, ood_avg_high, underpowered, gap_pp, gap_tasks, continuity,
      ignored, ignored_files, provenance, digest``. Raw values are in the unit and direction of each task's metric,
      normalized ones and OOD-avg in [0, 1] (higher is better), gaps in percentage points. A fold has its ``value``,
      ``metrics`` with validity, ``groups`` where the labels name them, and ``curves``. The same inputs give the same
      document, and the same ``digest``, but for ``provenance``, which says when and where it was made.

    Raises:
      SubmissionError: the folder, a file or its ids break the rules; the message names the file.
      MissingTaskError: a task or fold that the release requires is not there.
      ReleaseError: the release has no labels, or a label file was changed.
      FileFormatError: a prediction file that cannot be read.
      EvaluationError: predictions that cannot be scored, NaN above all; the file's name stands in front.
    """
    limits = limits or Limits()
    submission, release, jobs = opened(directory, release, limits)
    inputs = Inputs(limits)
    scored: list[ScoredFold] = []
    for done, (task, fold, path) in enumerate(jobs):
        if progress is not None:
            progress(done, len(jobs), path)
        scored.append((task, fold, *score_fold(submission, release, task, fold, inputs)))
    if progress is not None:
        progress(len(jobs), len(jobs), "done")
    return result_document(submission, release, scored, inputs)


def opened(
    directory: str | os.PathLike[str] | Submission, release: Release | str | Path, limits: Limits
) -> tuple[Submission, Release, list[tuple[str, str, str]]]:
    """Submission and release, looked through and held against each other, and the (task, fold, path) to score."""
    submission = directory if isinstance(directory, Submission) else load_submission(directory, limits=limits)
    release = release if isinstance(release, Release) else load_release(release)
    return submission, release, check_against(submission, release, raise_at_once)


def result_document(
    submission: Submission, release: Release, scored: Sequence[ScoredFold], inputs: Inputs
) -> dict[str, Any]:
    """The sealed result of folds that have been scored, in the order of `opened`."""
    values: dict[str, dict[str, float]] = {}
    details: dict[str, dict[str, Any]] = {}
    for task, fold, value, entry in scored:
        values.setdefault(task, {})[fold] = value
        details.setdefault(task, {})[fold] = entry
    real = {task: folds.pop(REAL) for task, folds in values.items() if REAL in folds}
    tasks = {}
    for task, folds in values.items():
        if not folds:  # real captures alone, of a task that has no synthetic folds in this release
            raise ReleaseError("has only a real split, which enters no number", task=task, argument=release.name)
        tasks[task] = _task_entry(release.tasks[task], folds, real.get(task))
        tasks[task]["real"] = details[task].pop(REAL, None)
        tasks[task]["folds"] = {
            fold: {"axis": release.tasks[task].folds[fold].axis, "value": folds[fold], **details[task][fold]}
            for fold in folds
        }
    detail = OODAvg(release).detail(values)
    pairs = {t: (tasks[t]["normalized"], tasks[t]["real_normalized"]) for t in release.aggregated}
    gap = SimToRealGap().column(pairs) if any(None not in pair for pair in pairs.values()) else None
    result = {
        "format": RESULT_FORMAT,
        "submission": {"name": submission.name, "model": submission.model, "notes": submission.notes},
        "release": {"name": release.name, "digest": release.digest, "frozen": release.frozen},
        "protocol_version": release.protocol_version,
        "scorer": {"name": "emma-jax", "version": __version__},
        "inputs": {"submission": {DESCRIPTION: submission.sha256}, "preds": inputs.preds, "labels": inputs.labels},
        "tasks": tasks,
        "ood_avg": detail.value,
        "ood_avg_se": detail.se,
        "ood_avg_low": detail.low,
        "ood_avg_high": detail.high,
        "underpowered": detail.underpowered,
        "gap_pp": gap.value if gap else None,
        "gap_tasks": sorted(gap.tasks) if gap else [],
        "continuity": {task: tasks[task]["raw"] for task in (CONTINUITY_TASK,) if task in tasks},
        "ignored": list(detail.ignored),
        "ignored_files": list(submission.ignored_files),
        "provenance": _provenance(),
    }
    return sealed(result)


def _provenance() -> dict[str, Any]:
    import platform

    import jax
    import jaxlib.version

    device = jax.devices()[0]
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "jax": jax.__version__,
        "jaxlib": jaxlib.version.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": f"{device.platform}: {device.device_kind}",
    }
