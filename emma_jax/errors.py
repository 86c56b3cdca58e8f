"""Exceptions: every bad input has a type, and a message that names the task, the argument and the first offending
index."""

from __future__ import annotations

__all__ = [
    "DegenerateLabelsError",
    "EmptyEvaluationError",
    "EvaluationError",
    "FileFormatError",
    "LabelError",
    "MissingTaskError",
    "NonFiniteError",
    "ReleaseError",
    "ShapeError",
    "SubmissionError",
]


class EvaluationError(ValueError):
    """A score cannot be computed from what was given.

    Attributes:
      task: the task id or metric name the error arose in, if any.
      argument: the name of the offending argument, if any.
      count: how many entries are at fault, if that is known.
      index: the first offending index (an int, or a tuple for several axes), if there is one.
    """

    def __init__(
        self,
        message: str,
        *,
        task: str | None = None,
        argument: str | None = None,
        count: int | None = None,
        index: int | tuple[int, ...] | None = None,
    ) -> None:
        where = ": ".join(p for p in (task, argument) if p)
        tail = ""
        if count is not None:
            tail += f"; {count} of them" if count != 1 else "; 1 of them"
        if index is not None:
            tail += f"; first at index {index}"
        super().__init__((f"{where}: " if where else "") + message + tail)
        self.task = task
        self.argument = argument
        self.count = count
        self.index = index


class EmptyEvaluationError(EvaluationError):
    """No sample is left to score: the mean over nothing is undefined."""


class NonFiniteError(EvaluationError):
    """A NaN, or an infinity where the quantity has to be finite (angles, fields, channels, signals)."""


class LabelError(EvaluationError):
    """A label outside the classes of the task, or of a dtype that is no label."""


class DegenerateLabelsError(EvaluationError):
    """The labels leave the metric undefined, for example an AUC without a negative."""


class ShapeError(EvaluationError):
    """Shapes that do not fit each other or the task; nothing is ever broadcast silently."""


class ReleaseError(EvaluationError):
    """A release manifest, or a file it pins, is missing, malformed or changed."""


class MissingTaskError(EvaluationError):
    """A task (or fold) that the release requires has no score."""


class SubmissionError(EvaluationError):
    """A submission that does not follow the layout, or carries what it may not."""


class FileFormatError(EvaluationError):
    """A file that cannot be read as what it claims to be."""
