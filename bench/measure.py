"""One row from case to figures: check first, then time what agrees.

Nothing is timed before its value has been compared: ours with the float64 definition, each peer with ours. A contestant
whose value is off by more than the row states is reported as such and gets no time and no ratio.
"""

from __future__ import annotations

import functools
import gc
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import emma_jax as emma
from bench import memory, peers
from bench.peers import Peer
from bench.rows import WAYS, Case, Row, Size
from bench.timing import Contestant, Floor, cold_call, find_floor, race, ratio

__all__ = ["Entry", "Line", "Settings", "measure"]

_KERNEL_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Settings:
    """How much to measure.

    Attributes:
      repeats: rounds per row.
      budget_s: seconds after which a slow contestant sits out the rest.
      ways: which ways of calling ours, of `bench.rows.WAYS`.
    """

    repeats: int
    budget_s: float
    ways: tuple[str, ...] = WAYS


@dataclass
class Entry:
    """One contestant of one row: what it answered, and how long it took.

    Attributes:
      name: way of calling ours, or library.
      status: "timed", "absent", "disagrees" or "failed".
      detail: why, where it was not timed.
      value: what it returned.
      difference: value minus what it is compared with (ours: the definition; a peer: ours).
      tolerance: how large the difference may be.
      first_s: seconds of the first call, compilation included where there is any.
      contestant: its samples, once timed.
      extra_mb: peak memory of a warm call beyond what was there before it, MB; NaN where the system does not tell.
      note: known difference, or what is timed.
    """

    name: str
    status: str = "timed"
    detail: str = ""
    value: float | None = None
    difference: float | None = None
    tolerance: float = 0.0
    first_s: float = math.nan
    contestant: Contestant | None = None
    extra_mb: float = math.nan
    note: str = ""


@dataclass
class Line:
    """One line of the table: one way of calling one metric, with its peers."""

    row: str
    task: str
    metric: str
    n: int
    classes: int | None
    dtype: str
    ours: Entry
    reference: float
    floor: Floor | None
    peers: list[Entry] = field(default_factory=list)
    runs: int | None = None

    @property
    def ok(self) -> bool:
        """Whether everything that is installed agreed and ran."""
        return all(e.status in ("timed", "absent") for e in (self.ours, *self.peers))

    def times_read(self) -> tuple[float, float] | None:
        """How many times as long ours takes as one read of its bytes; None where there is nothing to compare.

        By the median of pairs, and by the shortest call over the shortest read. On a quiet machine they agree; on a
        busy one the first gains from a disturbed read, and the second loses since a long call is never left alone.
        """
        ours, floor = self.ours.contestant, self.floor
        if ours is None or floor is None:
            return None
        return ratio(ours, floor.contestant), ours.best / floor.contestant.best

    def ratio(self, peer: Entry) -> float | None:
        """How many times as long the peer takes, by pairs of the same round; None if one of the two was not timed."""
        if peer.contestant is None or self.ours.contestant is None:
            return None
        return ratio(peer.contestant, self.ours.contestant)


def measure(row: Row, size: Size, settings: Settings) -> Iterator[Line]:
    """Checks and times one row: a line per way of calling ours, then the kernel alone at a larger N if the row asks."""
    case = row.make(size)
    ways = tuple(w for w in case.ways if w in settings.ways)
    yield from _lines(row.name, case, case.labels.shape[0] if case.runs else size.n, case.peers, ways, settings)
    if row.kernel_at and "kernel" in ways:
        n = row.kernel_at * size.n
        yield from _lines(row.name, row.make(Size(n, size.classes)), n, (), ("kernel",), settings)


def _lines(
    name: str, case: Case, n: int, its_peers: tuple[Peer, ...], ways: tuple[str, ...], settings: Settings
) -> list[Line]:
    reference = case.reference(case.preds, case.labels)
    inputs = (case.preds, case.labels)
    leaves = jax.tree_util.tree_leaves(inputs)
    on_device = all(isinstance(x, np.ndarray) for x in leaves)  # text has no device and no floor
    if on_device:
        inputs = jax.block_until_ready(jax.tree_util.tree_map(functools.partial(jnp.array, copy=True), inputs))
    calls = _ours(case, inputs)
    # Clearing JAX's caches before each way makes each first call a cold one; peers come after the last clearing.
    ours = [_attempt(w, calls[w], reference, _tolerance(case, w, reference), clear=True) for w in ways]
    answer = next((e.value for e in ours if e.value is not None), reference)
    others = [_peer(p, case, answer) for p in its_peers]
    floor = find_floor(jax.tree_util.tree_leaves(inputs)) if on_device else None
    for e in (*ours, *others):
        if e.contestant is not None:
            # A large batch that comes for the third time gets a kernel of its own size.
            for _ in range(3 if e in ours else 1):
                e.contestant.call()
            e.extra_mb = memory.extra_mb(e.contestant.call)
    racing = [e.contestant for e in (*ours, *others) if e.contestant is not None]
    gc.collect()
    race([floor.contestant, *racing] if floor else racing, settings.repeats, settings.budget_s)
    return [
        Line(
            row=name,
            task=case.task,
            metric=_label(case),
            n=n,
            classes=case.classes,
            dtype=str(leaves[0].dtype) if on_device else "text",
            ours=e,
            reference=reference,
            floor=floor,
            peers=others,
            runs=case.runs,
        )
        for e in ours
    ]


def _label(case: Case) -> str:
    k = getattr(case.metric, "k", None)
    return case.metric.name if k is None else f"{case.metric.name}(k={k})"


def _ours(case: Case, inputs: tuple[Any, Any]) -> dict[str, Callable[[], float]]:
    """The ways of calling ours, each as a function that returns when the value is there."""
    if case.calls is not None:
        return case.calls(case, inputs)
    task = emma.Task(case.task, (case.metric,))
    kernel = jax.jit(case.metric)
    return {
        "evaluate": lambda: emma.evaluate(task, *inputs)[case.metric.name],
        "numpy": lambda: emma.evaluate(task, case.preds, case.labels)[case.metric.name],
        "kernel": lambda: kernel(*inputs).block_until_ready(),
    }


def _tolerance(case: Case, way: str, reference: float) -> float:
    return case.tolerance + (_KERNEL_TOLERANCE * abs(reference) if way == "kernel" else 0.0)


def _peer(peer: Peer, case: Case, answer: float) -> Entry:
    missing = peers.load(peer.library)[1]
    if missing:
        return Entry(peer.library, "absent", missing, tolerance=peer.tolerance, note=peer.note)
    try:
        call = peers.contestant(peer, case.preds, case.labels)
    except Exception as e:
        return Entry(peer.library, "failed", _first_line(e), tolerance=peer.tolerance, note=peer.note)
    return _attempt(peer.library, call, answer, peer.tolerance, peer.note)


def _attempt(
    name: str, call: Callable[[], Any], expected: float, tolerance: float, note: str = "", clear: bool = False
) -> Entry:
    """Calls once, cold, and compares; only what agrees becomes a contestant."""
    entry = Entry(name, tolerance=tolerance, note=note)
    try:
        entry.first_s, value = cold_call(call, clear)
    except Exception as e:  # a peer may raise anything, and the other rows are still wanted
        entry.status, entry.detail = "failed", _first_line(e)
        return entry
    entry.value = float(np.asarray(value))
    entry.difference = entry.value - expected
    if not abs(entry.difference) <= tolerance:
        entry.status = "disagrees"
        entry.detail = f"{entry.value!r}, expected {expected!r} +- {tolerance:.1g}"
        return entry
    entry.contestant = Contestant(call)
    return entry


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:160] if text else ''}"
