"""Memory that a call needs beyond what is there before it: the growth of the peak resident memory of this process."""

from __future__ import annotations

import ctypes
import gc
import math
from collections.abc import Callable
from typing import Any

__all__ = ["extra_mb"]


def extra_mb(call: Callable[[], Any]) -> float:
    """Calls once, and returns by how many MB (1e6 bytes) the peak resident memory rose above what was resident before.

    Inputs that exist already do not count, what is returned does. NaN where the system does not tell (not Linux), and
    for an accelerator it is the host's memory alone. Memory that an earlier call left to the allocator is given back
    first, as far as the C library can.
    """
    gc.collect()
    _trim()
    before = _resident("VmRSS")
    if before is None or not _reset_peak():
        call()
        return math.nan
    call()
    peak = _resident("VmHWM")
    return math.nan if peak is None else max(0.0, (peak - before) * 1024 / 1e6)


def _trim() -> None:
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError, TypeError):
        return


def _reset_peak() -> bool:
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as stream:
            stream.write("5")
    except OSError:
        return False
    return True


def _resident(name: str) -> int | None:
    """A field of the process status, KiB."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as stream:
            lines = stream.read().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith(f"{name}:")]
    return int(found[0]) if found else None
