"""The golden self-test: fixed inputs, exact answers, and the digests of them for each version of the protocol.

The inputs are those of `golden_inputs`: every task and every metric of the package. The answers lie in the files of
`GOLDEN_FILES`: rationals, closed forms and float64 values, computed by the definitions in the tests, not by this
package. A change of scoring makes a value deviate; whoever then changes an answer finds that its file no longer has the
digest known for its protocol version. So scores cannot change under one version: `PROTOCOL_VERSION` is bumped, and new
digests are added to `GOLDEN_DIGESTS`, where old ones stay. Answers may be added under a version, in a file of their
own: that changes no score.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from emma_jax.aggregate import OODAvg, SimToRealGap
from emma_jax.errors import EvaluationError, ReleaseError
from emma_jax.evaluate import evaluate
from emma_jax.maintenance.golden_inputs import Case, golden_cases
from emma_jax.metrics import Metric
from emma_jax.release import PROTOCOL_VERSION, Anchor, Release, TaskEntry, _body, _digest, canonical_json
from emma_jax.tasks import get_task

__all__ = ["GOLDEN_DIGESTS", "GOLDEN_FILES", "Deviation", "check_golden", "golden_deviations"]

GOLDEN_DIGESTS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "0.1.0": {
            "golden.json": "sha256:bba6e6ae23f2075a3cbd6e091e252b857d45a71605add46cea253ab6342078f5",
            "golden_added.json": "sha256:711bb517e57298642a5b70da4e6ccc85dd76f3d4278603aa78345c936bfe8488",
        }
    }
)
"""Digest of the golden answers by protocol version and file; an entry never changes."""

GOLDEN_FILES = ("golden.json", "golden_added.json")
"""The files of answers to the current protocol version."""


@dataclass(frozen=True)
class Deviation:
    """An answer that is not the golden one.

    Attributes:
      case: input, task and metric, or "protocol" where version and digest do not go together.
      expected: the golden value, in the metric's unit; or the digest.
      actual: what this installation computes.
    """

    case: str
    expected: Any
    actual: Any

    def __str__(self) -> str:
        return f"{self.case}: expected {self.expected}, got {self.actual}"


def golden_deviations(kinds: Collection[type[Metric]] | None = None) -> tuple[Deviation, ...]:
    """Scores the golden inputs and compares with the golden answers.

    The first time in a process this compiles some sixty small kernels (twenty seconds without a compilation cache);
    from then on it takes a tenth of a second.

    Args:
      kinds: only inputs with a metric of these classes, for who scores nothing else; all by default. Anchors,
        aggregates and digests are compared in any case.

    Returns:
      What deviates: a value beyond its tolerance (relative 1e-12 for rationals, 1e-6 for energies and text, 5e-6 dB),
      an answer that is missing, or golden answers that are not those of this protocol version; nothing if all is well.

    Raises:
      ReleaseError: a golden file is not there or not JSON.
    """
    found: list[Deviation] = []
    answers: dict[str, dict[str, Any]] = {}
    known = GOLDEN_DIGESTS.get(PROTOCOL_VERSION, {})
    for name in GOLDEN_FILES:
        golden = _stored(name)
        digest = "sha256:" + hashlib.sha256(canonical_json(golden["answers"])).hexdigest()
        if golden["protocol_version"] != PROTOCOL_VERSION:
            text = f"{name} is of another version than PROTOCOL_VERSION; write the answers of the new one"
            found.append(Deviation(f"protocol ({text})", golden["protocol_version"], PROTOCOL_VERSION))
        if known.get(name) != digest:
            text = f"the answers of {name} changed without a new protocol version"
            found.append(Deviation(f"protocol ({text})", known.get(name), digest))
        answers |= golden["answers"]
    cases = golden_cases()
    wanted = {name: case for name, case in cases.items() if kinds is None or _kinds(case) & set(kinds)}
    skipped = tuple(_label(name, case) + " " for name, case in cases.items() if name not in wanted)
    answers = {case: answer for case, answer in answers.items() if not case.startswith(skipped)}
    actual = dict(_actual(wanted))
    for case in sorted(answers.keys() | actual.keys()):
        if case not in answers or case not in actual:
            found.append(Deviation(case, answers.get(case, {}).get("value"), actual.get(case)))
        elif not _agrees(actual[case], answers[case]):
            found.append(Deviation(case, answers[case]["value"], actual[case]))
    return tuple(found)


def check_golden(kinds: Collection[type[Metric]] | None = None) -> None:
    """Refuses to go on where this installation does not score as its protocol version says.

    Args:
      kinds: as for `golden_deviations`.

    Raises:
      ReleaseError: in one line, the first deviation and how many there are.
    """
    deviations = golden_deviations(kinds)
    if deviations:
        more = f" (and {len(deviations) - 1} more)" if len(deviations) > 1 else ""
        raise ReleaseError(
            f"this installation does not score by protocol {PROTOCOL_VERSION}: {deviations[0]}{more}; "
            "`emma-jax release selftest` lists all",
            argument="self-test",
            count=len(deviations),
        )


def _kinds(case: Case) -> set[type[Metric]]:
    """Classes of the metrics of a case."""
    return {type(metric) for metric in get_task(case[0]).metrics}


def _label(name: str, case: Case) -> str:
    """What the answers of a case are filed under, before the metric's name."""
    return f"{name} {get_task(case[0]).id}"


def _stored(name: str) -> dict[str, Any]:
    try:
        content = json.loads((files("emma_jax.maintenance") / name).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ReleaseError(f"cannot be read: {error}", argument=name) from error
    stored: dict[str, Any] = content
    return stored


def _actual(cases: Mapping[str, Case]) -> Iterator[tuple[str, float | str]]:
    """Every answer with what it is here; where a case cannot be scored, the error as text."""
    for name, case in cases.items():
        task, params, preds, labels = case
        try:
            scores = evaluate(task, preds, labels, **params)
        except EvaluationError as error:
            yield _label(name, case), f"{type(error).__name__}: {error}"
            continue
        for metric, value in scores.items():
            yield f"{_label(name, case)} {metric}", float(value)
    yield from _anchored()
    try:
        yield from _aggregated()
    except EvaluationError as error:
        yield "OOD-avg", f"{type(error).__name__}: {error}"


def _anchored() -> Iterator[tuple[str, float]]:
    """Normalized scores at, between and beyond anchors of dyadic numbers, where float64 is exact."""
    for direction in ("higher", "lower"):
        anchor = Anchor(0.25, 4.25, direction)
        for eighths in (-8, 2, 3, 17, 34, 99):
            yield f"anchor {direction} {eighths}/8", anchor.normalize(eighths / 8)


FOLD_SCORES = {
    "E-LOC-AOA": {"a": 12.5, "b": 31.0, "c": 4.75},
    "E-LOC-LOS": {"a": 0.5, "b": 0.875},
    "E-ID-DRONE": {"a": 0.25, "b": 0.375},  # below chance: normalizes to 0
    "E-ID-AMC": {"a": 0.125},  # not in OOD-avg
}
ANCHORS = {"E-LOC-AOA": (0.0, 40.0), "E-LOC-LOS": (0.25, 1.0), "E-ID-DRONE": (0.5, 1.0)}
REAL_SCORES = {"E-LOC-AOA": 50.0, "E-LOC-LOS": 0.75}


def _aggregated() -> Iterator[tuple[str, float]]:
    """OOD-avg of made-up fold scores with its spread, and the gaps to made-up real ones, in percentage points."""
    release = _golden_release()
    detail = OODAvg(release).detail(FOLD_SCORES)
    yield "OOD-avg", detail.value
    yield "OOD-avg se", detail.se
    yield "OOD-avg low", detail.low
    yield "OOD-avg high", detail.high
    for task, real in REAL_SCORES.items():
        anchor = release.tasks[task].anchor
        assert anchor is not None
        gap = SimToRealGap().from_raw(anchor, detail.tasks[task].raw, real)
        yield f"gap {task}", gap.gap
        yield f"gap {task} unclipped", gap.unclipped


def _golden_release() -> Release:
    """A release in memory, with anchors of dyadic numbers."""
    tasks = {}
    for task_id, (low, high) in ANCHORS.items():
        metric = get_task(task_id).headline
        anchor = Anchor(low, high, metric.direction)
        tasks[task_id] = TaskEntry(metric.name, metric.direction, metric.unit, anchor, in_ood_avg=True)
    content = ("golden", False, PROTOCOL_VERSION, PROTOCOL_VERSION, tasks)
    return Release(*content, digest=_digest(_body(*content)))


def _agrees(actual: Any, answer: dict[str, Any]) -> bool:
    if not isinstance(actual, float) or not math.isfinite(actual):
        return False
    expected = float(Fraction(answer["value"]))
    limit = answer.get("absolute", 0.0) + answer.get("relative", 0.0) * abs(expected)
    return bool(abs(actual - expected) <= limit)
