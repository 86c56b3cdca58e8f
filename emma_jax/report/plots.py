"""Pictures of S-parameters, near fields and data sets of boards: truth against prediction.

Every function takes arrays and gives a `matplotlib.figure.Figure`; nothing touches pyplot, the backend or any other
setting of the process, and the same input gives the same picture. `save_figure` writes one, `draw_pair` and
`draw_boards` write all pictures of a board or a data set.

Colors are those of Okabe and Ito, which stay apart under every color blindness; truth and prediction differ in line
style too.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emma_jax.emval.boards import NF_METRICS, SP_METRICS, BoardPair
from emma_jax.emval.layout import GROUPS
from emma_jax.errors import EmptyEvaluationError, EvaluationError, NonFiniteError, ShapeError
from emma_jax.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

__all__ = [
    "KNEE_DB",
    "draw_boards",
    "draw_pair",
    "is_picture",
    "local_error",
    "plot_boards",
    "plot_error_cdf",
    "plot_fields",
    "plot_smith",
    "plot_sparams",
    "save_figure",
]

KNEE_DB = -20.0
"""Where the weight of EMVal-SP is one half, dB."""

_TRUTH, _PRED, _THIRD = "#000000", "#D55E00", "#0072B2"
_GROUP_COLORS = dict(zip(GROUPS, ("#0072B2", "#56B4E9", "#D55E00")))
_GRID: dict[str, Any] = {"color": "#cccccc", "linewidth": 0.5}
_MOST_ENTRIES = 4
_MOST_POINTS = 4000
_SUFFIXES = (".png", ".pdf")
_DPI = 150
_DYNAMIC_RANGE_DB = 60.0
_HIGHER_IS_BETTER = ("local_cos_q50_E", "local_cos_q50_H")
_UNITS = {"mag_wmae": "dB", "ph_wmae": "rad"}


# --- files -----------------------------------------------------------------------------------------------------------


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Writes a figure as .png or .pdf, whole or not at all, without a date: the same figure gives the same bytes.

    Args:
      figure: from one of the functions below.
      path: the file; its folder is made.

    Returns:
      The path.

    Raises:
      EvaluationError: another suffix.
    """
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in _SUFFIXES:
        raise EvaluationError(f"pictures are {' or '.join(_SUFFIXES)}, not {suffix!r}", argument=str(path))
    stream = io.BytesIO()
    metadata = {"Software": None} if suffix == ".png" else {"CreationDate": None}
    figure.savefig(stream, format=suffix[1:], dpi=_DPI, metadata=metadata)
    target.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(target, stream.getvalue())
    return target


def is_picture(path: str | os.PathLike[str]) -> bool:
    """Whether a path names one picture (.png, .pdf) and not a folder for several."""
    return Path(path).suffix.lower() in _SUFFIXES


def draw_pair(pair: BoardPair, out: str | os.PathLike[str]) -> list[Path]:
    """Pictures of one board.

    Args:
      pair: from `emma_jax.emval.load_files` or `load_board`.
      out: a .png or .pdf file for everything in one picture, else a folder for ``sparams.png``, ``smith.png``,
        ``local_error.png`` and ``fields.png``.

    Returns:
      The files written.

    Raises:
      EvaluationError: no pictures to draw, or as the functions that draw them.
      ImportError: matplotlib is not installed.
    """
    if is_picture(out):
        return [save_figure(_overview(pair), out)]
    folder, figures = Path(out), {}
    if pair.sparams is not None:
        t, p = pair.sparams
        figures["sparams"] = plot_sparams(t.s, p.s, t.frequency_hz, where=t.where, title=pair.name)
        figures["smith"] = plot_smith(t.s, p.s, t.frequency_hz, where=t.where, z0=t.z0, title=pair.name)
    if pair.fields is not None:
        a, b = pair.fields
        figures["local_error"] = plot_error_cdf(_errors(pair), title=pair.name)
        figures["fields"] = plot_fields(
            {"E": a.e, "H": a.h}, {"E": b.e, "H": b.h}, pair.position_m, a.frequency_hz, where=a.where, title=pair.name
        )
    return [save_figure(figure, folder / f"{name}.png") for name, figure in figures.items()]


def draw_boards(
    result: Mapping[str, Any], out: str | os.PathLike[str], *, metrics: Sequence[str] | None = None, count: int = 10
) -> list[Path]:
    """The worst boards of a result as one picture, ``worst_boards.png`` in the folder ``out`` or the file ``out``."""
    path = Path(out) if is_picture(out) else Path(out) / "worst_boards.png"
    return [save_figure(plot_boards(result, metrics=metrics, count=count), path)]


def _errors(pair: BoardPair) -> dict[str, NDArray[np.float64]]:
    assert pair.fields is not None
    t, p = pair.fields
    return {"E": local_error(t.e, p.e, t.where), "H": local_error(t.h, p.h, t.where)}


def _overview(pair: BoardPair) -> Figure:
    """Everything about a board in one figure."""
    rows = [kind for kind in ("sparams", "fields") if getattr(pair, kind) is not None]
    if not rows:
        raise EvaluationError("neither fields nor S-parameters to draw", argument=pair.name)
    figure = _figure(13.0, 6.0 * len(rows))
    bands: Any = figure.subfigures(len(rows), 1, squeeze=False)
    for kind, band in zip(rows, bands[:, 0]):
        if kind == "sparams":
            truth, pred = pair.sparams  # type: ignore[misc]
            t, p = _pair_of(truth.s, pred.s, truth.where)
            left, right = band.subfigures(1, 2, width_ratios=(1.45, 1))
            _draw_sparams(left, t, p, truth.frequency_hz, _entries(t, p, None, most=2))
            _draw_smith(right, t, p, truth.frequency_hz, _diagonal(t, p, None, most=1), truth.z0)
        else:
            a, b = pair.fields  # type: ignore[misc]
            left, right = band.subfigures(1, 2, width_ratios=(1, 1.9))
            _draw_cdf(left, _errors(pair))
            fields = ({"E": a.e, "H": a.h}, {"E": b.e, "H": b.h})
            _draw_fields(right, *fields, pair.position_m, a.frequency_hz, a.where, 0, None, _FIELD_UNITS)
    figure.suptitle(pair.name)
    return figure


def _figure(width: float, height: float) -> Figure:
    """An empty figure, inches, that no window system knows of."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'emma-jax[report]'") from error
    return Figure(figsize=(width, height), layout="constrained")


# --- S-parameters ----------------------------------------------------------------------------------------------------


def plot_sparams(
    truth: ArrayLike,
    pred: ArrayLike,
    frequency_hz: ArrayLike | None = None,
    *,
    where: ArrayLike | None = None,
    entries: Sequence[tuple[int, int]] | None = None,
    title: str = "",
) -> Figure:
    """|S| in dB and phase in degrees over frequency, truth against prediction.

    Phase is drawn faint where the true magnitude is below -20 dB, the knee of the weight in EMVal-SP: errors there
    count little.

    Args:
      truth: [F, i, j] complex.
      pred: the same.
      frequency_hz: [F], else points are counted.
      where: [F, i, j] bool, False where nothing is drawn.
      entries: (i, j) from 1, one column each; by default all of up to four entries, else the four with most error.
      title: above the picture.

    Returns:
      A figure.

    Raises:
      ShapeError: shapes that differ, or an entry that is not there.
      NonFiniteError: NaN or infinity where something is to be drawn.
    """
    t, p = _pair_of(truth, pred, where)
    chosen = _entries(t, p, entries, most=_MOST_ENTRIES)
    figure = _figure(max(1.2 + 3.0 * len(chosen), 5.5), 5.6)
    _draw_sparams(figure, t, p, frequency_hz, chosen, title)
    return figure


def _pair_of(truth: ArrayLike, pred: ArrayLike, where: ArrayLike | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Both as arrays, checked, with NaN, which is drawn as a gap, where nothing is to be drawn."""
    t, p = np.asarray(truth), np.asarray(pred)
    if t.ndim != 3 or t.shape != p.shape or 0 in t.shape:
        raise ShapeError(f"needs two [F, i, j]; got {list(t.shape)} and {list(p.shape)}", argument="truth")
    if where is None:
        _require_finite(t, p)
        return t, p
    mask = np.broadcast_to(np.asarray(where, bool), t.shape)
    t, p = (np.where(mask, x, np.nan) for x in (t, p))
    _require_finite(t, p, mask)
    return t, p


def _require_finite(truth: NDArray[Any], pred: NDArray[Any], mask: NDArray[np.bool_] | None = None) -> None:
    for x, name in ((truth, "truth"), (pred, "pred")):
        bad = ~np.isfinite(x) if mask is None else ~np.isfinite(x) & mask
        if bad.any():
            first = tuple(int(k) for k in np.argwhere(bad)[0])
            raise NonFiniteError("not finite, so it cannot be drawn", argument=name, count=int(bad.sum()), index=first)


def _entries(
    t: NDArray[Any], p: NDArray[Any], entries: Sequence[tuple[int, int]] | None, most: int
) -> list[tuple[int, int]]:
    """Indices of the entries to draw: those asked for, else all, else those with the most squared error."""
    there = [(i, j) for j in range(t.shape[2]) for i in range(t.shape[1])]
    if entries is not None:
        chosen = [(i - 1, j - 1) for i, j in entries]
        if not chosen or not set(chosen) <= set(there):
            raise ShapeError(f"{list(entries)} of S-parameters {list(t.shape)}", argument="entries")
        return chosen
    return _worst(t, p, there, most)


def _diagonal(t: NDArray[Any], p: NDArray[Any], ports: Sequence[int] | None, most: int) -> list[tuple[int, int]]:
    n = min(t.shape[1:])
    if ports is not None:
        if not ports or not all(1 <= k <= n for k in ports):
            raise ShapeError(f"{list(ports)} of {n} ports", argument="ports")
        return [(k - 1, k - 1) for k in ports]
    return _worst(t, p, [(k, k) for k in range(n)], most)


def _worst(t: NDArray[Any], p: NDArray[Any], there: list[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    if len(there) <= most:
        return there
    error = np.nansum(np.abs(p - t) ** 2, axis=0)
    kept = sorted(there, key=lambda e: (-error[e], e))[:most]
    return [e for e in there if e in kept]


def _name(entry: tuple[int, int]) -> str:
    i, j = (k + 1 for k in entry)
    return f"$S_{{{i}{j}}}$" if max(i, j) < 10 else f"$S_{{{i},{j}}}$"


def _frequency_axis(frequency_hz: ArrayLike | None, n: int) -> tuple[NDArray[Any], str]:
    """Values and label, in the unit that makes them readable."""
    if frequency_hz is None:
        return np.arange(n), "frequency point"
    f = np.asarray(frequency_hz, np.float64)
    if f.shape != (n,):
        raise ShapeError(f"{list(f.shape)} frequencies for {n} points", argument="frequency_hz")
    scale, unit = _frequency_unit(float(np.abs(f).max()))
    return f / scale, f"frequency in {unit}"


def _frequency_unit(largest_hz: float) -> tuple[float, str]:
    return next(((s, u) for s, u in ((1e9, "GHz"), (1e6, "MHz"), (1e3, "kHz")) if largest_hz >= s), (1.0, "Hz"))


def _db(s: NDArray[Any]) -> NDArray[np.float64]:
    """20 log10 |S|, floored at -200 dB as in the metric."""
    return np.asarray(20 * np.log10(np.maximum(np.abs(s), 1e-10)))


def _draw_sparams(
    figure: FigureBase,
    t: NDArray[Any],
    p: NDArray[Any],
    frequency_hz: ArrayLike | None,
    entries: Sequence[tuple[int, int]],
    title: str = "",
) -> None:
    x, label = _frequency_axis(frequency_hz, len(t))
    axes = figure.subplots(2, len(entries), sharex=True, sharey="row", squeeze=False)
    handles: dict[str, Any] = {}
    mark = "o" if len(x) < 40 else ""
    low = math.inf
    for k, entry in enumerate(entries):
        top, bottom = axes[:, k]
        ij = (slice(None), *entry)
        faint = _db(t[ij]) < KNEE_DB
        for s, color, style, name in ((t, _TRUTH, "-", "truth"), (p, _PRED, "--", "prediction")):
            look = {"color": color, "linestyle": style, "linewidth": 1.4, "marker": mark, "markersize": 2.5}
            level = _db(s[ij])
            low = min(low, np.nanmin(level, initial=math.inf))
            handles[name] = top.plot(x, level, **look)[0]
            phase = np.angle(s[ij], deg=True)
            for part, alpha in ((faint, 0.3), (~faint, 1.0)):
                bottom.plot(*_unjoined(x, phase, part), alpha=alpha, **look)
        handles["−20 dB: weight ½, faint below"] = top.axhline(KNEE_DB, color=_THIRD, linestyle=":", linewidth=1.2)
        top.set_title(_name(entry))
        bottom.set_xlabel(label)
        for ax in (top, bottom):
            ax.grid(**_GRID)
            ax.margins(x=0)
    # A single exact zero would stretch the axis to -200 dB.
    axes[0, 0].set_ylim(bottom=max(min(low, KNEE_DB) - 3, -100), top=max(axes[0, 0].get_ylim()[1], 1))
    axes[0, 0].set_ylabel("|S| in dB")
    axes[1, 0].set_ylabel("phase in degrees")
    axes[1, 0].set_ylim(-190, 190)
    axes[1, 0].set_yticks(range(-180, 181, 90))
    _legend(figure, handles, title)


def _legend(figure: FigureBase, handles: Mapping[str, Any], title: str) -> None:
    """One legend above all axes, where it covers no data, under the title."""
    look: dict[str, Any] = {"loc": "outside upper center", "frameon": False, "title_fontsize": "large"}
    figure.legend(handles.values(), handles.keys(), ncols=len(handles), title=title or None, **look)


def _unjoined(x: NDArray[Any], phase: NDArray[Any], part: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[Any]]:
    """A phase curve where ``part`` holds, cut where it wraps around; runs reach to the next point of the other part."""
    reach = part.copy()
    reach[1:] |= part[:-1]
    y = np.where(reach, phase, np.nan)
    cut = np.flatnonzero(np.abs(np.diff(y)) > 180) + 1
    return np.insert(x.astype(float), cut, np.nan), np.insert(y, cut, np.nan)


def plot_smith(
    truth: ArrayLike,
    pred: ArrayLike,
    frequency_hz: ArrayLike | None = None,
    *,
    where: ArrayLike | None = None,
    ports: Sequence[int] | None = None,
    z0: ArrayLike | None = None,
    title: str = "",
) -> Figure:
    """Reflections S_ii on the Smith chart, truth against prediction; a dot marks the first frequency.

    Args:
      truth: [F, i, j] complex.
      pred: the same.
      frequency_hz: [F], to say where the curve starts and ends.
      where: [F, i, j] bool, False where nothing is drawn.
      ports: from 1, one chart each; by default up to four, those with most error.
      z0: reference impedance in ohms, scalar, [i] or [F, i], to say what the center is.
      title: above the picture.

    Returns:
      A figure.

    Raises:
      ShapeError: shapes that differ, or a port that is not there.
      NonFiniteError: NaN or infinity where something is to be drawn.
    """
    t, p = _pair_of(truth, pred, where)
    entries = _diagonal(t, p, ports, most=_MOST_ENTRIES)
    columns = min(len(entries), 2)
    figure = _figure(4.6 * columns, 0.6 + 4.6 * math.ceil(len(entries) / columns))
    _draw_smith(figure, t, p, frequency_hz, entries, z0, title)
    return figure


def _draw_smith(
    figure: FigureBase,
    t: NDArray[Any],
    p: NDArray[Any],
    frequency_hz: ArrayLike | None,
    entries: Sequence[tuple[int, int]],
    z0: ArrayLike | None,
    title: str = "",
) -> None:
    columns = min(len(entries), 2)
    axes = figure.subplots(math.ceil(len(entries) / columns), columns, squeeze=False).ravel()
    handles: dict[str, Any] = {}
    for ax, entry in zip(axes, entries):
        ij = (slice(None), *entry)
        _smith_grid(ax, float(np.nanmax(np.abs([t[ij], p[ij]]), initial=1.0)))
        for s, color, style, name in ((t, _TRUTH, "-", "truth"), (p, _PRED, "--", "prediction")):
            re, im = s[ij].real, s[ij].imag
            handles[name] = ax.plot(re, im, color=color, linestyle=style, linewidth=1.6)[0]
            ax.plot(re[:1], im[:1], color=color, marker="o", markersize=5)
        ax.set_title(_name(entry) + _span(frequency_hz) + _center(z0, entry[0]), fontsize="medium")
    for ax in axes[len(entries) :]:
        ax.set_axis_off()
    _legend(figure, handles, title)


def _span(frequency_hz: ArrayLike | None) -> str:
    if frequency_hz is None:
        return ""
    f = np.asarray(frequency_hz, np.float64)
    scale, unit = _frequency_unit(float(np.abs(f).max()))
    return f", {f[0] / scale:g} (dot) to {f[-1] / scale:g} {unit}"


def _center(z0: ArrayLike | None, port: int) -> str:
    if z0 is None:
        return ""
    z = np.asarray(z0, np.float64)
    z = z if z.ndim == 0 else z[..., port]
    return f", center {z.flat[0]:g} Ω" if z.size and np.all(z == z.flat[0]) else ""


def _smith_grid(ax: Axes, most: float) -> None:
    """Circles of constant resistance and arcs of constant reactance, both in units of the reference impedance."""
    from matplotlib.patches import Circle

    rim = Circle((0, 0), 1, fill=False, edgecolor="#888888", linewidth=0.9)
    ax.add_patch(rim)
    ax.plot([-1, 1], [0, 0], **_GRID)
    for r in (0.2, 0.5, 1, 2, 5):
        ax.add_patch(Circle((r / (1 + r), 0), 1 / (1 + r), fill=False, edgecolor=_GRID["color"], linewidth=0.5))
        ax.annotate(f"{r:g}", ((r - 1) / (r + 1), 0), fontsize=7, color="#777777", ha="right", va="bottom")
    for x in (0.2, 0.5, 1, 2, 5):
        for sign in (1, -1):
            arc = Circle((1, sign / x), 1 / x, fill=False, edgecolor=_GRID["color"], linewidth=0.5)
            ax.add_patch(arc)
            arc.set_clip_path(rim)
            edge = (1j * x - 1) / (1j * x + 1)
            ax.annotate(
                f"{'−' if sign < 0 else ''}{x:g}j",
                (1.06 * edge.real, 1.06 * sign * edge.imag),
                fontsize=7,
                color="#777777",
                ha="center",
                va="center",
            )
    ax.set_aspect("equal")
    ax.set_axis_off()
    limit = 1.15 if most <= 1.1 else 1.05 * most
    ax.set_xlim(-limit, limit)
    ax.set_ylim(-limit, limit)


# --- near fields -----------------------------------------------------------------------------------------------------

_FIELD_UNITS = {"E": "V/m", "H": "A/m"}


def local_error(truth: ArrayLike, pred: ArrayLike, where: ArrayLike | None = None) -> NDArray[np.float64]:
    """Local relative errors of a field, whose median is the metric local_q50: ``||F^ - F|| / ||F||`` at each probe.

    Args:
      truth: [..., 3] complex.
      pred: the same.
      where: [...] bool, False where a probe does not count.

    Returns:
      [n], over the probes that count and where the truth is not zero.

    Raises:
      ShapeError: shapes that differ, or no three components.
      NonFiniteError: NaN or infinity at a probe that counts.

    Reference: EMVal protocol 1.0.0, EMVal-NF.
    """
    t, p = np.asarray(truth), np.asarray(pred)
    if t.shape != p.shape or t.shape[-1:] != (3,):
        raise ShapeError(f"needs two fields [..., 3]; got {list(t.shape)} and {list(p.shape)}", argument="truth")
    counts = np.ones(t.shape[:-1], bool) if where is None else np.broadcast_to(np.asarray(where, bool), t.shape[:-1])
    _require_finite(t, p, counts[..., None])
    norm = _norm(t)
    used = counts & (norm > 0)
    return _norm(p, t)[used] / norm[used]


def _norm(field: NDArray[Any], minus: NDArray[Any] | None = None) -> NDArray[np.float64]:
    """Euclidean length of complex vectors [..., 3] or of their difference, component by component to save memory."""
    total = np.zeros(field.shape[:-1])
    for c in range(3):
        part = field[..., c].astype(np.complex128)
        if minus is not None:
            part -= minus[..., c]
        total += part.real**2 + part.imag**2
    return np.sqrt(total)


def plot_error_cdf(errors: Mapping[str, ArrayLike], *, title: str = "") -> Figure:
    """Distribution of local errors with the median, which is the score, marked.

    Args:
      errors: by the field's name ("E", "H"), `local_error` of it.
      title: above the picture.

    Returns:
      A figure; curves of more than 4000 errors are drawn at that many quantiles.

    Raises:
      EmptyEvaluationError: a field without errors.
    """
    values = {name: np.asarray(e, np.float64).ravel() for name, e in errors.items()}
    for name, e in values.items():
        if not e.size:
            raise EmptyEvaluationError("has no local error", argument=name)
    figure = _figure(6.0, 4.6)
    _draw_cdf(figure, values, title)
    return figure


def _draw_cdf(figure: FigureBase, errors: Mapping[str, NDArray[np.float64]], title: str = "") -> None:
    ax = figure.subplots()
    handles: dict[str, Any] = {}
    for (name, e), color, style in zip(errors.items(), (_THIRD, _PRED, _TRUTH), ("-", "--", ":")):
        e = np.sort(e)
        median = float(np.median(e))
        share = np.arange(1, e.size + 1) / e.size
        if e.size > _MOST_POINTS:
            pick = np.linspace(0, e.size - 1, _MOST_POINTS).astype(int)
            e, share = e[pick], share[pick]
        line = ax.step(e, share, where="post", color=color, linestyle=style, linewidth=1.6)[0]
        handles[f"{name}: median {median:.4g}"] = line
        ax.plot([median], [0.5], marker="o", color=color, markersize=6, zorder=3)
        ax.plot([median, median], [0, 0.5], color=color, linestyle=style, linewidth=0.9)
    positive = np.concatenate([e[e > 0] for e in errors.values()])
    if positive.size:
        # Six decades at most: one probe that is right to rounding says nothing.
        high = float(positive.max())
        low = max(float(np.quantile(positive, 0.001)), 1e-6 * high)
        ax.set_xscale("log")
        ax.set_xlim(0.7 * min(low, high / 2), 1.4 * high)
        _log_ticks(ax.xaxis, min(low, high / 2), high)
    ax.axhline(0.5, **_GRID)
    ax.set_ylim(0, 1.02)
    ax.set_xlabel("local error " + _error_label("F"))
    ax.set_ylabel("fraction of probes with at most this error")
    ax.grid(which="major", **_GRID)
    _legend(figure, handles, title)


def _log_ticks(axis: Any, low: float, high: float) -> None:
    """Plain numbers at 1, 2, 5 where a logarithmic axis spans little."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    if high < 1000 * low:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter(NullFormatter())


def plot_fields(
    truth: Mapping[str, ArrayLike],
    pred: Mapping[str, ArrayLike],
    position_m: ArrayLike | None = None,
    frequency_hz: ArrayLike | None = None,
    *,
    where: ArrayLike | None = None,
    port: int = 1,
    frequency_index: int | None = None,
    units: Mapping[str, str] = _FIELD_UNITS,
    title: str = "",
) -> Figure:
    """|F| of truth and prediction and their local relative error, for one excited port at one frequency.

    With positions, the plane (normal to x, y or z) that holds most probes is drawn, on one color scale of 60 dB for
    both sides; without, magnitudes are drawn over the probes in their order.

    Args:
      truth: by the field's name ("E", "H"), [J, F, P, 3] complex.
      pred: the same.
      position_m: [P, 3] meters.
      frequency_hz: [F], to say which one is drawn.
      where: [J, F, P] bool, False where a probe is left out.
      port: the excited port, from 1.
      frequency_index: from 0; the middle one by default.
      units: by the field's name.
      title: above the picture.

    Returns:
      A figure.

    Raises:
      ShapeError: shapes that do not fit, or a port or frequency that is not there.
      EmptyEvaluationError: no probe to draw, or a field that is zero there.
      NonFiniteError: NaN or infinity at a probe that is drawn.
    """
    figure = _figure(11.0, 3.5 * len(truth) + 0.4)
    t, p = ({k: np.asarray(v) for k, v in side.items()} for side in (truth, pred))
    mask = None if where is None else np.asarray(where, bool)
    _draw_fields(figure, t, p, position_m, frequency_hz, mask, port - 1, frequency_index, units, title)
    return figure


def _draw_fields(
    figure: FigureBase,
    truth: Mapping[str, NDArray[Any]],
    pred: Mapping[str, NDArray[Any]],
    position_m: ArrayLike | None,
    frequency_hz: ArrayLike | None,
    where: NDArray[np.bool_] | None,
    port: int,
    index: int | None,
    units: Mapping[str, str],
    title: str = "",
) -> None:
    shape = next(iter(truth.values())).shape
    if len(shape) != 4 or any(x.shape != shape for x in (*truth.values(), *pred.values())) or set(truth) != set(pred):
        raise ShapeError(f"needs fields [J, F, P, 3] of one shape, not {list(shape)}", argument="truth")
    index = shape[1] // 2 if index is None else index
    if not (0 <= port < shape[0] and 0 <= index < shape[1]):
        raise ShapeError(f"no port {port + 1} or frequency {index} in {list(shape)}", argument="port")
    seen = np.ones(shape[2], bool) if where is None else np.broadcast_to(where, shape[:3])[port, index]
    at = f"port {port + 1}"
    if frequency_hz is None:
        at += f", frequency {index + 1} of {shape[1]}"
    else:
        f = float(np.asarray(frequency_hz)[index])
        scale, unit = _frequency_unit(f)
        at += f", {f / scale:g} {unit}"
    if position_m is None:
        plane, place = None, ""
    else:
        xyz = np.asarray(position_m, np.float64)
        if xyz.shape != (shape[2], 3):
            raise ShapeError(f"needs [{shape[2]}, 3]; got {list(xyz.shape)}", argument="position_m")
        normal, level, inside = _fullest_plane(xyz, seen)
        seen = inside
        across = [k for k in range(3) if k != normal]
        scale, unit = _length_unit(float(np.ptp(xyz[seen][:, across])))
        plane = (xyz[seen][:, across] / scale, [f"{'xyz'[k]} in {unit}" for k in across])
        place = f", {'xyz'[normal]} = {level / scale:.4g} {unit}"
    if not seen.any():
        raise EmptyEvaluationError("no probe to draw", argument="where")
    axes = figure.subplots(len(truth), 3 if plane else 2, squeeze=False)
    for name, row in zip(truth, axes):
        t, p = truth[name][port, index][seen], pred[name][port, index][seen]
        _require_finite(t, p)
        size = _norm(t)
        if not size.any():
            raise EmptyEvaluationError("is zero at every probe", argument=name)
        error = _norm(p, t) / np.where(size > 0, size, np.nan)
        if plane is None:
            _draw_along(figure, row, name, np.flatnonzero(seen), size, _norm(p), error, units[name])
        else:
            _draw_plane(figure, row, name, *plane, size, _norm(p), error, units[name])
    figure.suptitle(f"{title}, {at}{place}" if title else at + place, fontsize="large" if title else "medium")


def _fullest_plane(xyz: NDArray[np.float64], seen: NDArray[np.bool_]) -> tuple[int, float, NDArray[np.bool_]]:
    """The plane of constant x, y or z that holds most probes: normal, coordinate, and which probes; z first."""
    extent = float(np.ptp(xyz, axis=0).max()) or 1.0
    best: tuple[int, int, float] = (-1, 2, 0.0)
    grid = np.round(xyz / (1e-6 * extent))
    for normal in (2, 1, 0):
        levels, counts = np.unique(grid[seen, normal], return_counts=True)
        if counts.size and int(counts.max()) > best[0]:
            # Of planes with as many probes, the middle one.
            full = levels[counts == counts.max()]
            best = int(counts.max()), normal, float(full[len(full) // 2])
    _, normal, level = best
    inside = seen & (grid[:, normal] == level)
    return normal, float(xyz[inside, normal].mean()) if inside.any() else 0.0, inside


def _length_unit(extent_m: float) -> tuple[float, str]:
    return (1.0, "m") if extent_m >= 1 else (1e-3, "mm") if extent_m >= 1e-3 else (1e-6, "µm")


def _draw_plane(
    figure: FigureBase,
    row: Any,
    name: str,
    xy: NDArray[np.float64],
    labels: Sequence[str],
    truth: NDArray[np.float64],
    pred: NDArray[np.float64],
    error: NDArray[np.float64],
    unit: str,
) -> None:
    """Three maps: truth and prediction on one scale in dB, and the relative error on a logarithmic one."""
    from matplotlib.colors import LogNorm, Normalize

    with np.errstate(divide="ignore"):
        levels = [20 * np.log10(x) for x in (truth, pred)]
    top = float(max(x.max() for x in levels))
    bottom = max(min(float(x[np.isfinite(x)].min()) for x in levels if np.isfinite(x).any()), top - _DYNAMIC_RANGE_DB)
    scale = Normalize(bottom, top)
    finite = error[np.isfinite(error) & (error > 0)]
    high = float(finite.max()) if finite.size else 1.0
    low = max(float(finite.min()) if finite.size else 0.1, 1e-4 * high)
    low, high = (low, high) if low < 0.9 * high else (0.5 * high, 2 * high)
    error_scale = LogNorm(low, high)
    parts = (
        (levels[0], scale, "viridis", f"|{name}| truth"),
        (levels[1], scale, "viridis", f"|{name}| prediction"),
        (np.maximum(error, low), error_scale, "cividis", f"local error of {name}"),
    )
    images = [_map(ax, xy, values, norm, colors) for ax, (values, norm, colors, _) in zip(row, parts)]
    for ax, (_, _, _, head) in zip(row, parts):
        ax.set_title(head, fontsize="medium")
        ax.set_xlabel(labels[0])
        ax.set_ylabel(labels[1])
        ax.set_aspect("equal")
    # Bars inside the boxes of their axes stay as tall as these, whatever the layout makes of equal scales.
    extend = "min" if bottom == top - _DYNAMIC_RANGE_DB else "neither"
    box = (1.04, 0.0, 0.05, 1.0)
    figure.colorbar(images[1], cax=row[1].inset_axes(box), label=f"|{name}| in dB({unit})", extend=extend)
    bar = figure.colorbar(images[2], cax=row[2].inset_axes(box), label=_error_label(name))
    _log_ticks(bar.ax.yaxis, low, high)


def _error_label(name: str) -> str:
    return f"‖{name}̂ − {name}‖ / ‖{name}‖ (1)"


def _map(ax: Axes, xy: NDArray[np.float64], values: NDArray[np.float64], norm: Any, colors: str) -> Any:
    """Probes on a full grid as cells, others as squares; the values are drawn as they are, never interpolated."""
    (x, column), (y, line) = (np.unique(np.round(xy[:, k], 9), return_inverse=True) for k in (0, 1))
    if min(x.size, y.size) > 1 and x.size * y.size == len(xy) == np.unique(line * x.size + column).size:
        cells = np.full((y.size, x.size), np.nan)
        cells[line, column] = values
        return ax.pcolormesh(x, y, cells, norm=norm, cmap=colors, shading="nearest", rasterized=True)
    side = 200.0 / math.sqrt(len(xy))
    look: dict[str, Any] = {"marker": "s", "linewidths": 0, "rasterized": True}
    return ax.scatter(xy[:, 0], xy[:, 1], c=values, s=min(side, 12.0) ** 2, norm=norm, cmap=colors, **look)


def _draw_along(
    figure: FigureBase,
    row: Any,
    name: str,
    probe: NDArray[np.intp],
    truth: NDArray[np.float64],
    pred: NDArray[np.float64],
    error: NDArray[np.float64],
    unit: str,
) -> None:
    """Magnitudes and relative error over the probes, every n-th of very many."""
    step = -(-probe.size // _MOST_POINTS)
    every = "" if step == 1 else f" (1 of {step} drawn)"
    left, right = row
    dots: dict[str, Any] = {"linestyle": "none", "markersize": 2.2, "rasterized": True}
    with np.errstate(divide="ignore"):
        for x, color, mark, label in ((truth, _TRUTH, "o", "truth"), (pred, _PRED, "x", "prediction")):
            left.plot(probe[::step], 20 * np.log10(x[::step]), color=color, marker=mark, label=label, **dots)
    right.plot(probe[::step], error[::step], color=_THIRD, marker="o", **dots)
    left.set_ylabel(f"|{name}| in dB({unit})")
    right.set_ylabel(_error_label(name))
    finite = error[np.isfinite(error) & (error > 0)]
    if finite.size:
        right.set_yscale("log")
        _log_ticks(right.yaxis, float(finite.min()), float(finite.max()))
    for ax in row:
        ax.set_xlabel("probe" + every)
        ax.grid(**_GRID)
    left.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False, markerscale=2, borderaxespad=0.2)


# --- data sets -------------------------------------------------------------------------------------------------------


def plot_boards(result: Mapping[str, Any], *, metrics: Sequence[str] | None = None, count: int = 10) -> Figure:
    """The worst boards by each metric, with the mean over all boards.

    Args:
      result: a result document, `emma_jax.emval.BoardScores.to_dict` or the file of ``emma-jax emval score``.
      metrics: one panel each; by default all that the result has.
      count: boards in a panel.

    Returns:
      A figure.

    Raises:
      EmptyEvaluationError: no board.
      EvaluationError: a metric that the result does not have.
    """
    boards = result["boards"]
    if not boards:
        raise EmptyEvaluationError("has no board", argument="result")
    there = [m for m in NF_METRICS + SP_METRICS if m in boards[0]["values"]]
    chosen = there if metrics is None else list(metrics)
    if not chosen or not set(chosen) <= set(there):
        raise EvaluationError(f"is {list(chosen)}, not some of {', '.join(there)}", argument="metrics")
    count = min(count, len(boards))
    columns = min(3, len(chosen))
    rows = math.ceil(len(chosen) / columns)
    figure = _figure(4.6 * columns + 0.4, rows * (1.1 + 0.27 * count) + 0.6)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax, metric in zip(axes, chosen):
        _draw_worst(ax, boards, metric, count)
    for ax in axes[len(chosen) :]:
        ax.set_axis_off()
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    groups = [g for g in GROUPS if any(b["group"] == g for b in boards)]
    handles: dict[str, Any] = {g: Patch(color=_GROUP_COLORS[g]) for g in groups}
    handles[f"mean of all {len(boards)} boards"] = Line2D([], [], color=_TRUTH, linestyle="--", linewidth=1)
    _legend(figure, handles, f"the {count} worst boards by each metric")
    return figure


def _draw_worst(ax: Axes, boards: Sequence[Mapping[str, Any]], metric: str, count: int) -> None:
    sign = 1 if metric in _HIGHER_IS_BETTER else -1
    worst = sorted(boards, key=lambda b: (sign * b["values"][metric], b["group"], b["id"]))[:count]
    values = [b["values"][metric] for b in worst]
    bars = ax.barh(range(count), values, color=[_GROUP_COLORS.get(b["group"], "#999999") for b in worst], height=0.7)
    ax.bar_label(bars, [f"{v:.4g}" for v in values], padding=3, fontsize=8)
    mean = math.fsum(b["values"][metric] for b in boards) / len(boards)
    ax.axvline(mean, color=_TRUTH, linestyle="--", linewidth=1)
    ax.set_yticks(range(count), [_short(b["id"]) for b in worst], fontsize=8, family="monospace")
    ax.invert_yaxis()
    low, high = min(0.0, mean, *values), max(0.0, mean, *values)
    room = 0.22 * (high - low or 1.0)
    ax.set_xlim(low - (room if low < 0 else 0), high + (room if high > 0 else 0))
    better = "higher" if metric in _HIGHER_IS_BETTER else "lower"
    unit = f" in {_UNITS[metric]}" if metric in _UNITS else ""
    ax.set_title(f"{metric}{unit}, {better} is better", fontsize="medium")
    ax.grid(axis="x", **_GRID)
    ax.set_axisbelow(True)


def _short(board: str) -> str:
    return board if len(board) <= 14 else board[:10] + "…"
