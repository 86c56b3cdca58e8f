"""Submissions: a folder of prediction files, scored against a release into one result document.

A submission is untrusted. It holds::

    submission.toml                     name, model (optional), notes (optional)
    preds/<task>/<fold>.npz             array preds, optional ids; also .npy, .csv, .jsonl
    preds/<task>/real.npz               the same for the real captures, where the release has them

No code of it runs, nothing outside the folder is read, no symbolic link is followed, nothing is unpickled, and `Limits`
says how much it may take. Anchors, masks, groups and labels come from the release alone; a submission that carries any
is refused. `check_submission` says all that is wrong at once, `score_submission` makes a result or raises the first
fault, `verify_result` holds a result against the files that it was made from.
"""

from __future__ import annotations

from emma_jax.submissions.checking import Problem, check_submission
from emma_jax.submissions.folder import Limits, Submission, load_submission
from emma_jax.submissions.intervals import add_intervals
from emma_jax.submissions.results import RESULT_FORMAT, load_result, verify_result, write_result
from emma_jax.submissions.scoring import align, group_entries, score_submission

__all__ = [
    "RESULT_FORMAT",
    "Limits",
    "Problem",
    "Submission",
    "add_intervals",
    "align",
    "check_submission",
    "group_entries",
    "load_result",
    "load_submission",
    "score_submission",
    "verify_result",
    "write_result",
]
