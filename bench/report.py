"""The report: the machine in one line, an aligned table that grows row by row, the notes under it, and strict JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from bench import peers
from bench.measure import Entry, Line, Settings
from bench.timing import Floor
from emma_jax import __version__

__all__ = ["header", "legend", "machine", "machine_line", "notes", "points_json", "table_line", "to_json"]

_LIBRARY_COLUMNS = ("torchmetrics", "scikit-learn", "google-metrax")
_WIDTHS = (10, 27, 10, 3, 5, 8, 8, 8, 8, 7, 7, 8, 8, *(16 for _ in _LIBRARY_COLUMNS), 0)
_TITLES = (
    "row",
    "task, metric",
    "N",
    "C",
    "S",
    "dtype",
    "ours",
    "ms",
    "min ms",
    "x read",
    "x best",
    "first ms",
    "MB",
    *_LIBRARY_COLUMNS,
    "other",
)
_LEFT = {0, 1, 5, 6, len(_WIDTHS) - 1}
_VERSIONS = ("jax", "jaxlib", "numpy", "torch", "torchmetrics", "scikit-learn", "google-metrax")


def machine() -> dict[str, Any]:
    """What the figures depend on: processor, cores, memory, load, device, versions, threads. No names, no paths."""
    device = jax.devices()[0]
    torch = peers.load("torch formula")[0]
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": _memory_gib(),
        "load_1min": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.machine()}",
        "device": f"{device.platform}:{device.device_kind}",
        "device_count": jax.device_count(),
        "x64": bool(jax.config.read("jax_enable_x64")),
        "torch_threads": torch.get_num_threads() if torch else None,
        "python": platform.python_version(),
        "emma-jax": __version__,
        **{name: peers.version(name) for name in _VERSIONS},
    }


def machine_line(m: dict[str, Any]) -> str:
    """`machine` as one line."""
    cores = f"{m['cores']} cores" + ("" if m["usable_cores"] == m["cores"] else f" ({m['usable_cores']} usable)")
    threads = "" if m["torch_threads"] is None else f" ({m['torch_threads']} threads)"
    versions = [f"Python {m['python']}", f"emma-jax {m['emma-jax']}"]
    versions += [f"{k} {m[k] or 'absent'}{threads if k == 'torch' else ''}" for k in _VERSIONS]
    memory = f", {m['memory_gib']} GiB" if m["memory_gib"] else ""
    load = "" if m["load_1min"] is None else f", load {m['load_1min']}"
    device = f"{m['device']}" + (f" x{m['device_count']}" if m["device_count"] > 1 else "")
    x64 = ", x64 on" if m["x64"] else ""
    return f"{m['cpu']}, {cores}{memory}{load}; {m['system']}, JAX on {device}{x64}; " + ", ".join(versions)


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine() or "unknown processor"


def _memory_gib() -> int | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    except (ValueError, OSError, AttributeError):
        return None


# --- table ------------------------------------------------------------------------------------------------------


def _aligned(cells: Sequence[str]) -> str:
    parts = [f"{c:<{w}}" if i in _LEFT else f"{c:>{w}}" for i, (c, w) in enumerate(zip(cells, _WIDTHS))]
    return "  ".join(parts).rstrip()


def header() -> str:
    """Titles and a rule."""
    return f"{_aligned(_TITLES)}\n{'-' * (sum(_WIDTHS) + 2 * len(_WIDTHS) + 10)}"


def table_line(line: Line) -> str:
    """One line of the table."""
    ours = line.ours
    classes = "-" if line.classes is None else str(line.classes)
    runs = "-" if line.runs is None else f"{line.runs:,}"
    what = (line.row, f"{line.task} {line.metric}", f"{line.n:,}", classes, runs, line.dtype, ours.name)
    if ours.contestant is None:
        return _aligned((*what, ours.status.upper(), *[""] * 8, ours.detail))
    read = line.times_read()
    times = (
        _ms(ours.contestant.median),
        _ms(ours.contestant.best),
        *(("-", "-") if read is None else map(_ratio, read)),
        _ms(ours.first_s),
        _mb(ours.extra_mb),
    )
    named = {p.name: _peer_cell(line, p) for p in line.peers}
    columns = [named.get(name, "-") for name in _LIBRARY_COLUMNS]
    rest = [f"{p.name} {_peer_cell(line, p)}" for p in line.peers if p.name not in _LIBRARY_COLUMNS]
    return _aligned((*what, *times, *columns, ", ".join(rest)))


def _peer_cell(line: Line, peer: Entry) -> str:
    if peer.contestant is None:
        return peer.status if peer.status == "absent" else peer.status.upper()
    times = line.ratio(peer)
    return _ms(peer.contestant.median) + ("" if times is None else f" = {_ratio(times)}x")


def _ms(seconds: float) -> str:
    ms = 1e3 * seconds
    return f"{ms:.3f}" if ms < 10 else f"{ms:.1f}" if ms < 1000 else f"{ms:,.0f}"


def _mb(megabytes: float) -> str:
    return "-" if math.isnan(megabytes) else f"{megabytes:.1f}"


def _ratio(x: float) -> str:
    return f"{x:.2f}" if x < 10 else f"{x:.1f}" if x < 100 else f"{x:.0f}"


def legend(settings: Settings) -> str:
    """How to read the table."""
    return (
        f"ms: median of up to {settings.repeats} warm turns, taken in alternation; min ms: shortest call. "
        "A peer's cell: its ms, and = how many times as long as ours (median of the ratios of neighbouring turns).\n"
        "ours: evaluate = host call, every check on, arrays on the device; numpy = the same from NumPy arrays "
        "(float32 scores, int64 labels); kernel = the jitted metric on device arrays.\n"
        "x read: ours over one plain read of the same bytes, by pairs of turns; x best: shortest call over shortest "
        "read.\n"
        "first ms: first call in a process, compilation included.  MB: peak memory of a warm call beyond its inputs.  "
        "S: runs scored in the call.\n"
        "-: the library has no such metric.  "
        "absent: not installed."
    )


def notes(lines: Sequence[Line]) -> str:
    """What was checked before timing, with every known difference; once per row and N."""
    out = ["Checked before timing (value; difference of each from ours, allowed):"]
    for line in _one_per_case(lines):
        ways = [x for x in lines if (x.row, x.n) == (line.row, line.n)]
        own = "; ".join(
            f"{x.ours.name} {x.ours.difference:+.1e}" if x.ours.difference is not None else f"{x.ours.name} failed"
            for x in ways
        )
        out.append(f"  {line.row} N={line.n:,}: float64 definition {line.reference:.9g}, ours minus it: {own}")
        out += [f"    {p.name}: {_agreement(p)}" + (f" ({p.note})" if p.note else "") for p in line.peers]
        if line.floor is not None:
            read = line.floor
            out.append(f"    one read of {read.nbytes / 1e6:.3g} MB: {_ms(read.contestant.best)} ms ({read.kind})")
    return "\n".join(out)


def _one_per_case(lines: Sequence[Line]) -> list[Line]:
    return list({(x.row, x.n): x for x in lines}.values())


def _agreement(peer: Entry) -> str:
    if peer.status in ("absent", "failed", "disagrees"):
        return f"{peer.status}: {peer.detail}"
    return f"{peer.difference:+.1e}, allowed {peer.tolerance:.1g}"


# --- JSON -------------------------------------------------------------------------------------------------------


def to_json(m: dict[str, Any], settings: Settings, lines: Sequence[Line]) -> str:
    """Everything measured, every sample included, as strict JSON."""
    content = {
        "machine": m,
        "settings": dataclasses.asdict(settings),
        "rows": [_row_json(line) for line in lines],
        "ok": all(line.ok for line in lines),
    }
    return json.dumps(_strict(content), allow_nan=False, indent=1) + "\n"


def points_json(m: dict[str, Any], points: Sequence[Any]) -> str:
    """The points of the curves, as strict JSON."""
    content = {"machine": m, "points": [p.to_dict() for p in points]}
    return json.dumps(_strict(content), allow_nan=False, indent=1) + "\n"


def _row_json(line: Line) -> dict[str, Any]:
    return {
        "row": line.row,
        "task": line.task,
        "metric": line.metric,
        "n": line.n,
        "classes": line.classes,
        "runs": line.runs,
        "dtype": line.dtype,
        "reference": line.reference,
        "ours": _entry_json(line.ours),
        "floor": None if line.floor is None else _floor_json(line, line.floor),
        "peers": [_entry_json(p) | {"ratio": line.ratio(p)} for p in line.peers],
    }


def _floor_json(line: Line, floor: Floor) -> dict[str, Any]:
    reads, times = floor.contestant, line.times_read()
    return {
        "bytes": floor.nbytes,
        "kind": floor.kind,
        "median_ms": 1e3 * reads.median,
        "min_ms": 1e3 * reads.best,
        "times_median": times[0] if times else None,
        "times_min": times[1] if times else None,
    }


def _entry_json(e: Entry) -> dict[str, Any]:
    version = peers.version(peers.LIBRARIES[e.name].distribution) if e.name in peers.LIBRARIES else __version__
    out: dict[str, Any] = {"name": e.name, "version": version, "status": e.status, "detail": e.detail, "note": e.note}
    out |= {"value": e.value, "difference": e.difference, "tolerance": e.tolerance, "first_ms": 1e3 * e.first_s}
    out["extra_mb"] = e.extra_mb
    if e.contestant is not None:
        samples = [None if s is None else 1e3 * s for s in e.contestant.samples]
        out |= {"median_ms": 1e3 * e.contestant.median, "min_ms": 1e3 * e.contestant.best, "samples_ms": samples}
    return out


def _strict(x: Any) -> Any:
    """A value that was not measured is null, never a NaN token."""
    if isinstance(x, dict):
        return {k: _strict(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [_strict(v) for v in x]
    return None if isinstance(x, float) and not math.isfinite(x) else x
