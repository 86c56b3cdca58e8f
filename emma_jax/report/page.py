"""The leaderboard as one static page: no network, no server, opens from a file.

Everything is inside ``index.html``: the table, complete without scripts; one style and one script, named by their
hashes in the page's Content-Security-Policy, so that nothing else can run or load; and per row a block of JSON from
which the script draws the details. What submissions say is text everywhere: escaped in the HTML, ``<`` and ``&``
written as escapes in the JSON, put in as text nodes by the script.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from string import Template
from typing import Any

from emma_jax.io.strict import loads_strict
from emma_jax.report.leaderboard import UNDERPOWERED, fixed, one_line

__all__ = ["to_html"]

_ARROWS = {"higher": "↑", "lower": "↓"}
_CAPTION = "OOD-avg and tasks with their standard errors over environments; normalized scores above, raw ones below."
_WEAK = f" {UNDERPOWERED}: underpowered, two environments or fewer."
_DIGITS = 6  # of the numbers in the details; the result file has them all


@dataclass(frozen=True)
class _Column:
    """A column: what its button says (two lines), which order is best first, and what makes a cell of a row."""

    name: str
    detail: str
    best: str
    kind: str = ""
    title: str = ""


def to_html(
    board: Mapping[str, Any],
    results: Sequence[Mapping[str, Any]],
    *,
    title: str = "EMMA leaderboard",
    verified: Sequence[str] | None = None,
) -> str:
    """The leaderboard of `build_leaderboard` as a self-contained page.

    Args:
      board: from `build_leaderboard`.
      results: the documents it was built from, in the order they were given to it.
      title: heading of the page.
      verified: for each result what was verified of its inputs, one line, shown with its provenance.

    Returns:
      The content of ``index.html``. Numbers are as in the board: normalized scores and OOD-avg in [0, 1] (higher is
      better), raw ones in the unit and direction of each metric, gaps in percentage points.
    """
    columns = _columns(board)
    style, script = _asset("page.css"), _asset("page.js")
    body, data = [], []
    for i, row in enumerate(board["rows"]):
        body.append(_row(board, row, i))
        source = row["source"]
        said = verified[source] if verified is not None else ""
        data.append(f'<script type="application/json" id="d{i}">{_json(_details(results[source], said))}</script>')
    release = board["release"]
    state = "frozen" if release["frozen"] else "not frozen"
    lead = f"Release {release['name']} ({state}), {release['digest']}. {len(board['rows'])} submissions."
    return Template(_asset("page.html")).substitute(
        title=_text(title),
        lead=_text(lead),
        caption=_text(_CAPTION + (_WEAK if any(row["underpowered"] for row in board["rows"]) else "")),
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
        head=_head(board, columns),
        body="\n".join(body),
        few=UNDERPOWERED,
        data="\n".join(data),
    )


def _asset(name: str) -> str:
    return (files("emma_jax.report") / "assets" / name).read_text("utf-8")


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _text(value: Any) -> str:
    """Text of anyone as HTML, in an element or a quoted attribute; control characters become spaces."""
    return html.escape(one_line(str(value)), quote=True)


def _json(value: Any) -> str:
    """JSON that cannot end its script element, whatever strings it holds."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode("utf-8", "replace").decode()


# --- The table -----------------------------------------------------------------------------------------------------


_INTERVAL = _Column("95%", "samples", "descending", "", "the lower end of the sampling interval")


def _columns(board: Mapping[str, Any]) -> list[_Column]:
    def task(name: str, c: Mapping[str, Any], kind: str) -> _Column:
        unit = "" if c["unit"] == "1" else f" {c['unit']}"
        best = "descending" if c["in_ood_avg"] or c["direction"] == "higher" else "ascending"
        return _Column(name, f"{c['metric']}{unit} {_ARROWS.get(c['direction'], '')}", best, kind, name)

    others = [task(t, c, "beside" if i == 0 else "") for i, (t, c) in enumerate(board["others"].items())]
    return [
        _Column("#", "", "ascending", "", "rank"),
        _Column("submission", "", "ascending", "who", "name"),
        _Column("OOD-avg", "± SE ↑", "descending", "first", "OOD-avg"),
        *([_INTERVAL] if _has_intervals(board) else []),
        _Column("range", "one fold less", "descending", "", "the lower end of the jackknife range"),
        _Column("tie", "group", "ascending", "", "tie group"),
        *(task(t, c, "beside" if i == 0 else "") for i, (t, c) in enumerate(board["tasks"].items())),
        _Column("worst fold", "normalized ↑", "descending", "", "the worst fold"),
        _Column("gap", "pp", "ascending", "beside first", "the size of the sim-to-real gap"),
        *others,
    ]


def _head(board: Mapping[str, Any], columns: Sequence[_Column]) -> str:
    cells = []
    for i, c in enumerate(columns):
        classes = _classes(c)
        sort = c.best if i == 0 else "none"
        detail = f"<br><small>{_text(c.detail)}</small>" if c.detail else ""
        cells.append(
            f'<th scope="col" data-c="{i}" data-best="{c.best}" data-name="{_text(c.title)}" '
            f'aria-sort="{sort}"{classes}><button type="button">{_text(c.name)}{detail}</button></th>'
        )
    averaged, beside = len(board["tasks"]) + 1, len(board["others"]) + 1
    headline = 3 + _has_intervals(board)
    groups = (
        f'<tr class="groups"><td colspan="2"></td><th scope="colgroup" colspan="{headline}">Headline</th>'
        f'<th scope="colgroup" colspan="{averaged}" class="beside wide-only">Averaged: normalized, raw ± SE</th>'
        f'<th scope="colgroup" colspan="{beside}" class="beside">Beside it, never averaged</th></tr>'
    )
    return f"{groups}\n<tr>{''.join(cells)}</tr>"


def _classes(column: _Column) -> str:
    names = [n for n in column.kind.split() if n != "first"]
    if column.name not in ("#", "submission") and "first" not in column.kind:
        names.append("wide-only")  # folded away on a phone until asked for
    return f' class="{" ".join(names)}"' if names else ""


def _row(board: Mapping[str, Any], row: Mapping[str, Any], i: int) -> str:
    name, model = _text(row["name"]) or "(no name)", _text(row["model"])
    below = f'<span class="model">{model}</span>' if model else ""
    button = f'<button type="button" aria-expanded="false" aria-controls="detail{i}">{name}</button>'
    who = f'<th scope="row" class="who">{button}{below}</th>'
    flag = '<span class="flag"> underpowered</span>' if row["underpowered"] else ""
    mark = f" {UNDERPOWERED}" if row["underpowered"] else ""
    worst = row["worst_fold"]
    worst_cell = (
        _cell(worst["normalized"], fixed(worst["normalized"], 3), f"{worst['task']} {worst['fold']}", "wide-only")
        if worst
        else _cell(None, fixed(None, 3), "", "wide-only")
    )
    few = 0 < len(row["gap_tasks"]) < len(board["tasks"])
    gap_note = f"{len(row['gap_tasks'])} of {len(board['tasks'])} tasks" if few else ""
    tie = row["tie_group"]
    cells = [
        f'<td data-v="{row["rank"]}">{row["rank"]}</td>',
        who,
        _cell(row["ood_avg"], fixed(row["ood_avg"], 4), f"± {fixed(row['ood_avg_se'], 4)}{mark}", "headline"),
        *([_interval_cell(row["interval"])] if _has_intervals(board) else []),
        f'<td data-v="{_value(row["ood_avg_low"])}" class="wide-only">{fixed(row["ood_avg_low"], 3)} to '
        f"{fixed(row['ood_avg_high'], 3)}<small>{flag}</small></td>",
        _cell(tie, "–" if tie is None else str(tie), "", "wide-only"),
        *(_task_cell(row["tasks"].get(t), c, k == 0) for k, (t, c) in enumerate(board["tasks"].items())),
        worst_cell,
        _cell(_magnitude(row["gap_pp"]), fixed(row["gap_pp"], 1, "+"), gap_note, "beside"),
        *(_task_cell(row["others"].get(t), c, k == 0) for k, (t, c) in enumerate(board["others"].items())),
    ]
    search = _text(f"{row['name']} {row['model']}".lower())
    return f'<tr class="row" data-data="d{i}" data-text="{search}">{"".join(cells)}</tr>'


def _has_intervals(board: Mapping[str, Any]) -> bool:
    return any(row["interval"] for row in board["rows"])


def _interval_cell(interval: Mapping[str, Any] | None) -> str:
    low, high = (interval or {}).get("low"), (interval or {}).get("high")
    text = f"{fixed(low, 3)} to {fixed(high, 3)}" if interval else "–"
    return _cell(low, text, "", "wide-only")


def _cell(value: Any, text: str, small: str, classes: str) -> str:
    below = f"<small>{_text(small)}</small>" if small else ""
    return f'<td data-v="{_value(value)}" class="{classes}">{_text(text)}{below}</td>'


def _task_cell(cell: Mapping[str, Any] | None, column: Mapping[str, Any], first: bool) -> str:
    """Normalized score over the raw one with its SE; of a task without anchors the raw one alone."""
    classes = "beside wide-only" if first else "wide-only"
    if cell is None:
        return _cell(None, "–", "", classes)
    digits = 3 if column["unit"] == "1" else 2
    mark = f" {UNDERPOWERED}" if cell["underpowered"] else ""
    spread = f"± {fixed(cell['se'], digits)}{mark}"
    if cell["interval"]:
        spread += f" [{fixed(cell['interval']['low'], digits)}, {fixed(cell['interval']['high'], digits)}]"
    raw = fixed(cell["raw"], digits)
    if not column["in_ood_avg"] or cell["normalized"] is None:
        return _cell(cell["raw"], raw, spread, classes)
    return _cell(cell["normalized"], fixed(cell["normalized"], 3), f"{raw} {spread}", classes)


def _value(value: Any) -> str:
    """A number for sorting; empty where there is none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return value if value in ("inf", "-inf") else repr(value)


def _magnitude(value: Any) -> Any:
    return abs(value) if isinstance(value, (int, float)) else None


# --- The details ------------------------------------------------------------------------------------------------------


def _details(result: Mapping[str, Any], verified: str) -> dict[str, Any]:
    """What the script draws the details of a row from: the result document, numbers to six digits."""
    keys = ("release", "scorer", "protocol_version", "provenance", "inputs", "digest", "ignored_files")
    details = {key: result[key] for key in keys if key in result}
    drawn = result.get("intervals")
    if isinstance(drawn, Mapping):
        details["intervals"] = {key: drawn.get(key) for key in ("ood_avg", "tasks")}
    details["notes"] = str(result["submission"].get("notes", ""))
    details["tasks"] = {task: _task_details(entry) for task, entry in result["tasks"].items()}
    if verified:
        details["verified"] = verified
    short: dict[str, Any] = _short(loads_strict(json.dumps(_plain(details)).encode(), "details"))
    return short


def _task_details(entry: Mapping[str, Any]) -> dict[str, Any]:
    folds, headline = entry.get("folds"), entry["metric"]
    cut = {**entry, "real": _fold_details(entry.get("real"), headline)}
    cut["folds"] = {k: _fold_details(f, headline) for k, f in folds.items()} if isinstance(folds, Mapping) else {}
    cut.pop("params", None)
    for name in ("jackknife", "jackknife_raw"):
        if isinstance(cut.get(name), Mapping):
            cut[name] = {k: v for k, v in cut[name].items() if k != "leave_one_out"}
    return cut


def _fold_details(fold: Any, headline: str) -> Any:
    """A fold's values, its counts above 0, the headline by group, curves: two hundred submissions are on one page."""
    if not isinstance(fold, Mapping):
        return None

    def metric(m: Any) -> Any:
        counts = m.get("validity") if isinstance(m, Mapping) else None
        validity = {k: v for k, v in counts.items() if v or k == "n_used"} if isinstance(counts, Mapping) else {}
        return {"value": m.get("value") if isinstance(m, Mapping) else None, "validity": validity}

    cut = {k: fold[k] for k in ("axis", "value", "n", "curves") if k in fold}
    for key, inside in (("metrics", metric), ("groups", lambda g: {headline: g.get(headline)})):
        if isinstance(fold.get(key), Mapping):
            cut[key] = {name: inside(value) for name, value in fold[key].items()}
    return cut


def _plain(value: Any) -> Any:
    """Undefined numbers as null, infinities as text, as a result file has them."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _short(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_short(v) for v in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
