"""All that is wrong with a submission at once, with file and row, so that nobody learns it one upload at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from emma_jax.errors import EvaluationError, SubmissionError
from emma_jax.io.read import Labels, Predictions, first_ten
from emma_jax.release import Release, load_release
from emma_jax.submissions.folder import Limits, check_against, look_through, naming
from emma_jax.submissions.scoring import Inputs, align, score_rows

__all__ = ["Problem", "check_submission"]

_MAX_ROWS = 10

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Problem:
    """One thing that keeps a submission from being scored.

    Attributes:
      file: path in the submission, or the task or folder at fault.
      row: row of the file, from 0, where there is one: the index along the first axis of ``preds``, which for .csv and
        .jsonl counts the lines of data.
      message: what is wrong, one line.
      kind: name of the `emma_jax.errors` class that scoring would raise.
    """

    file: str
    row: int | None
    message: str
    kind: str

    def __str__(self) -> str:
        place = self.file if self.row is None else f"{self.file}, row {self.row}"
        return self.message if self.message.startswith(place) else f"{place}: {self.message}"


def check_submission(
    directory: str | os.PathLike[str],
    release: Release | str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    limits: Limits | None = None,
) -> tuple[Problem, ...]:
    """Looks for everything that `score_submission` would refuse, and goes on after each find.

    Args:
      directory: the submission folder.
      release: a `Release`, or a path or name for `load_release`.
      progress: called as ``progress(done, total, what)`` before each file and once at the end.
      limits: how much the submission may hold; those of `Limits` by default.

    Returns:
      The problems, folder first, then file by file; none exactly when `score_submission` would score it. For values
      that are not finite there is one `Problem` for each of the first ten rows of a file, and one that counts the rest.

    Raises:
      ReleaseError: the release itself cannot be scored against.
    """
    limits = limits or Limits()
    release = release if isinstance(release, Release) else load_release(os.fspath(release))
    found: list[Problem] = []

    def report(error: EvaluationError) -> None:
        found.append(_problem(error))

    try:
        submission = look_through(directory, limits, report)
    except SubmissionError as error:
        return (_problem(error),)
    jobs = check_against(submission, release, report)
    inputs = Inputs(limits)
    for done, (task, fold, path) in enumerate(jobs):
        if progress is not None:
            progress(done, len(jobs), path)
        labels = inputs.read_labels(release, task, fold)
        try:
            preds = inputs.read_predictions(submission, path)
        except EvaluationError as error:
            found.append(_problem(error, path))
            continue
        found += _check_rows(release, task, path, preds, labels)
    if progress is not None:
        progress(len(jobs), len(jobs), "done")
    return tuple(found)


def _problem(error: EvaluationError, file: str | None = None, row: int | None = None) -> Problem:
    """A fault as a `Problem`: the file stands in front of the message once."""
    place = file or error.argument or error.task or "submission"
    return Problem(place, row, str(error).removeprefix(f"{place}: "), type(error).__name__)


def _check_rows(release: Release, task: str, path: str, preds: Predictions, labels: Labels) -> list[Problem]:
    """What is wrong inside one file: rows without partners, values that are not finite, anything that scoring meets."""
    found: list[Problem] = []
    order: Sequence[int] | None = None
    try:
        with naming(path):
            rows = align(preds, labels)
        order = _order(preds, labels)
    except EvaluationError as error:
        found.append(_problem(error, path))
    found += _nan_rows(path, preds, labels, order)
    if found:
        return found
    try:
        with naming(path):
            score_rows(release, task, preds, labels, rows)
    except EvaluationError as error:
        index = error.index[0] if isinstance(error.index, tuple) and error.index else error.index
        row = None
        if isinstance(index, int) and error.argument == "preds":
            row = index if order is None else int(order[index])
        found.append(_problem(error, path, row))
    return found


def _order(preds: Predictions, labels: Labels) -> list[int] | None:
    """Row of the file for each label, where rows are matched by id."""
    if preds.ids is None or preds.ids == labels.ids or labels.ids is None:
        return None
    row = {sample: i for i, sample in enumerate(preds.ids)}
    return [row[sample] for sample in labels.ids]


def _nan_rows(path: str, preds: Predictions, labels: Labels, order: Sequence[int] | None) -> list[Problem]:
    """The rows with a NaN, which no task takes; a row that ``where`` leaves out may hold anything."""
    values = preds.preds
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fc":
        return []
    bad = np.isnan(values).reshape(len(values), -1).any(axis=1)
    if labels.where is not None:
        if len(values) != len(labels.labels) or labels.where.ndim != 1:
            return []  # which rows count cannot be told; scoring will say
        present = labels.where
        if order is not None:
            present = np.empty_like(labels.where)
            present[np.asarray(order)] = labels.where
        bad &= present
    rows = np.flatnonzero(bad).tolist()
    shown = [Problem(path, row, _nan_text(preds, row), "NonFiniteError") for row in rows[:_MAX_ROWS]]
    if len(rows) > _MAX_ROWS:
        text = f"NaN in {len(rows) - _MAX_ROWS} further rows, {len(rows)} in all"
        shown.append(Problem(path, None, text, "NonFiniteError"))
    return shown


def _nan_text(preds: Predictions, row: int) -> str:
    value: Any = preds.preds[row]
    columns = np.flatnonzero(np.isnan(value).reshape(-1)).tolist() if np.ndim(value) else []
    place = f" in {len(columns)} of {np.size(value)} values, first at {columns[0]}" if columns else ""
    return f"NaN{place}" + (f" (id {first_ten((preds.ids[row],))})" if preds.ids is not None else "")
