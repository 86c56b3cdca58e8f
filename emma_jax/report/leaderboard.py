"""The leaderboard: result documents of one release, ranked by OOD-avg, with what every number rests on beside it.

The sim-to-real gap and the continuity column stand beside OOD-avg and never move a rank.
"""

from __future__ import annotations

import csv
import html
import io
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from emma_jax.errors import EmptyEvaluationError, EvaluationError, SubmissionError
from emma_jax.release import Anchor
from emma_jax.report.ties import tie_groups

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["build_leaderboard", "to_csv", "to_latex", "to_markdown", "to_table"]

LEADERBOARD_FORMAT = "emma-leaderboard/1"

_ARROWS = {"higher": "↑", "lower": "↓"}
_UNKNOWN = "–"
UNDERPOWERED = "†"
_FOOTNOTE = f"{UNDERPOWERED} two environments or fewer in a task: the standard error rests on a single difference"


def build_leaderboard(results: Sequence[Mapping[str, Any]], names: Sequence[str] | None = None) -> dict[str, Any]:
    """Ranks results of one release.

    Args:
      results: documents from `emma_jax.submissions.score_submission` or `load_result`.
      names: what errors call them (file names); numbered by default.

    Returns:
      A JSON-ready document: ``format, release, tasks`` (those averaged), ``others`` (reported beside), ``rows``. A row
      has ``rank`` (equal OOD-avg, equal rank), ``tie_group`` (`emma_jax.report.ties.tie_groups`; null where the results
      cannot tell), ``name, model, ood_avg, ood_avg_se``, ``ood_avg_low`` and ``ood_avg_high`` (jackknife range),
      ``underpowered, tasks`` and ``others`` (per task ``normalized`` in [0, 1], ``raw`` and its jackknife ``se`` in the
      metric's unit), ``worst_fold`` (the lowest normalized score of one fold of an averaged task, or null),
      ``interval`` of OOD-avg and of each raw score (bootstrap over samples, where the result has one), ``gap_pp`` in
      percentage points, ``gap_tasks`` that it is the mean over, ``digest`` of the result and ``source``, its place in
      ``results``. Rows go from the highest OOD-avg down.

    Raises:
      EmptyEvaluationError: no results.
      SubmissionError: results of different releases, which no ranking can compare, or of different tasks.
    """
    if not results:
        raise EmptyEvaluationError("there are no results to rank", argument="results")
    names = list(names) if names is not None else [f"result {i}" for i in range(len(results))]
    first = results[0]
    columns = _columns(first)
    for result, name in zip(results, names):
        ours, theirs = first["release"], result["release"]
        if theirs["digest"] != ours["digest"]:
            raise SubmissionError(
                f"scored against {theirs['name']} ({theirs['digest']}), but {names[0]} against {ours['name']} "
                f"({ours['digest']}); only results of one release can be ranked",
                argument=name,
            )
        if _averaged(_columns(result)) != _averaged(columns):
            raise SubmissionError(f"does not average the same tasks as {names[0]}", argument=name)
        columns = {**_columns(result), **columns}
    rows = [{**_row(result), "source": i} for i, result in enumerate(results)]
    rows.sort(key=lambda row: (-row["ood_avg"], row["name"], row["model"], row["source"]))
    groups = tie_groups([results[row["source"]] for row in rows])
    for place, (row, group) in enumerate(zip(rows, groups)):
        equal = place > 0 and rows[place - 1]["ood_avg"] == row["ood_avg"]
        row["rank"] = rows[place - 1]["rank"] if equal else place + 1
        row["tie_group"] = group
    return {
        "format": LEADERBOARD_FORMAT,
        "release": dict(first["release"]),
        "tasks": _averaged(columns),
        "others": {task: column for task, column in sorted(columns.items()) if not column["in_ood_avg"]},
        "rows": rows,
    }


def _columns(result: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    keys = ("metric", "direction", "unit", "in_ood_avg")
    return {task: {key: entry[key] for key in keys} for task, entry in result["tasks"].items()}


def _averaged(columns: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {task: column for task, column in sorted(columns.items()) if column["in_ood_avg"]}


def _row(result: Mapping[str, Any]) -> dict[str, Any]:
    def cells(in_ood_avg: bool) -> dict[str, Any]:
        return {
            task: {
                "normalized": entry["normalized"],
                "raw": entry["raw"],
                "se": entry["jackknife_raw"]["se"],
                "folds": entry["jackknife_raw"]["n"],
                "underpowered": entry["jackknife_raw"]["underpowered"],
                "gap_pp": entry["gap_pp"],
                "interval": _interval(result, "tasks", task, "raw"),
            }
            for task, entry in result["tasks"].items()
            if entry["in_ood_avg"] == in_ood_avg
        }

    keys = ("ood_avg", "ood_avg_se", "underpowered", "gap_pp", "gap_tasks")
    further = ("ood_avg_low", "ood_avg_high", "digest")
    return {
        "name": result["submission"]["name"],
        "model": result["submission"]["model"],
        **{key: result[key] for key in keys},
        **{key: result.get(key) for key in further},
        "worst_fold": _worst_fold(result["tasks"]),
        "interval": _interval(result, "ood_avg"),
        "tasks": cells(True),
        "others": cells(False),
        "scorer": result["scorer"]["version"],
        "created": result["provenance"]["created"],
    }


def _interval(result: Mapping[str, Any], *path: str) -> dict[str, Any] | None:
    """``low``, ``high`` and ``confidence`` of a bootstrap interval in a result; None where it has none."""
    value: Any = result.get("intervals")
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    keys = ("low", "high", "confidence")
    return {key: value.get(key) for key in keys} if isinstance(value, Mapping) else None


def _worst_fold(tasks: Mapping[str, Any]) -> dict[str, Any] | None:
    """The fold of an averaged task with the lowest normalized score; None where a result lacks its folds."""
    found: list[tuple[float, str, str]] = []
    for task, entry in tasks.items():
        anchor, folds = entry.get("anchor"), entry.get("folds")
        if not entry["in_ood_avg"] or not isinstance(anchor, Mapping) or not isinstance(folds, Mapping):
            continue
        try:
            scale = Anchor(anchor["m_min"], anchor["m_max"], entry["direction"])
            found += [(scale.normalize(_float(f["value"])), task, str(name)) for name, f in folds.items()]
        except (EvaluationError, KeyError, TypeError, ValueError):
            return None
    found = [entry for entry in found if not math.isnan(entry[0])]
    if not found:
        return None
    normalized, task, fold = min(found)
    return {"task": task, "fold": fold, "normalized": normalized}


# --- Numbers as people read them ---------------------------------------------------------------------------------


def _float(value: Any) -> float:
    """A number of a result document: null is NaN, "inf" and "-inf" are infinities."""
    return math.nan if value is None else float(value)


def fixed(value: Any, digits: int, sign: str = "") -> str:
    number = _float(value)
    return _UNKNOWN if math.isnan(number) else f"{number:{sign}.{digits}f}"


def _ood_avg(row: Mapping[str, Any]) -> tuple[str, str]:
    return fixed(row["ood_avg"], 4), f"±{fixed(row['ood_avg_se'], 4)}{UNDERPOWERED if row['underpowered'] else ''}"


def _cell(cell: Mapping[str, Any] | None, unit: str) -> tuple[str, str]:
    """Normalized score, and the raw one in brackets; of a task without anchors the raw one alone."""
    if cell is None:
        return _UNKNOWN, ""
    raw = fixed(cell["raw"], 3 if unit == "1" else 2)
    return (raw, "") if cell["normalized"] is None else (fixed(cell["normalized"], 3), f"({raw})")


def _gap(row: Mapping[str, Any], tasks: int) -> tuple[str, str]:
    """The mean gap, and over how many tasks where that is not all of them."""
    partial = 0 < len(row["gap_tasks"]) < tasks
    return fixed(row["gap_pp"], 1, "+"), f"({len(row['gap_tasks'])}/{tasks})" if partial else ""


def _numbers(board: Mapping[str, Any], row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The number columns of a row, each with what stands under or behind it; `_heads` has their names."""
    tasks, others = board["tasks"], board["others"]
    return [
        _ood_avg(row),
        *(_cell(row["tasks"].get(t), c["unit"]) for t, c in tasks.items()),
        _gap(row, len(tasks)),
        *(_cell(row["others"].get(t), c["unit"]) for t, c in others.items()),
    ]


def _heads(board: Mapping[str, Any]) -> list[tuple[str, str]]:
    def head(task: str, column: Mapping[str, Any]) -> tuple[str, str]:
        unit = "" if column["unit"] == "1" else column["unit"]
        return f"{task} {_ARROWS.get(column['direction'], '')}", unit if column[
            "in_ood_avg"
        ] else f"{unit} beside".strip()

    tasks, others = ([head(t, c) for t, c in board[part].items()] for part in ("tasks", "others"))
    return [("OOD-avg", "↑"), *tasks, ("gap", "pp"), *others]


def one_line(text: str) -> str:
    """Text of strangers without line breaks and other control characters."""
    return "".join(c if c.isprintable() else " " for c in text)


def caption(board: Mapping[str, Any]) -> str:
    release = board["release"]
    state = "" if release["frozen"] else ", not frozen"
    notes = ["OOD-avg ± SE is the mean of the normalized scores, raw ones in brackets; gap and 'beside' never enter it"]
    if any(row["underpowered"] for row in board["rows"]):
        notes.append(_FOOTNOTE)
    return f"Release {one_line(release['name'])}{state}, {release['digest'][:19]}. " + "; ".join(notes) + "."


# --- Forms -------------------------------------------------------------------------------------------------------


def to_markdown(board: Mapping[str, Any]) -> str:
    """The leaderboard of `build_leaderboard` as a Markdown table (units and direction in the header)."""
    lines = [["#", "submission", "model", *(" ".join(filter(None, head)) for head in _heads(board))]]
    for row in board["rows"]:
        numbers = [" ".join(filter(None, pair)) for pair in _numbers(board, row)]
        lines.append([str(row["rank"]), one_line(row["name"]), one_line(row["model"]), *numbers])
    text = ["| " + " | ".join(map(_markdown, line)) + " |" for line in lines]
    rule = "|" + "|".join("---" if 1 <= i <= 2 else "---:" for i in range(len(lines[0]))) + "|"
    return "\n".join([text[0], rule, *text[1:], "", _markdown(caption(board))]) + "\n"


def _markdown(text: str) -> str:
    """Text that is neither markup nor HTML nor the end of a cell."""
    return re.sub(r"([\\`*_\[\]|~])", r"\\\1", html.escape(text, quote=False))


_TEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "±": r"$\pm$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "†": r"$\dagger$",
    "–": "--",
}


def to_latex(board: Mapping[str, Any]) -> str:
    """The leaderboard of `build_leaderboard` as a LaTeX ``tabular`` (package ``booktabs``), the caption as a comment.

    Numbers are those of `to_markdown`, units and direction in the header. Text of strangers has its special characters
    escaped; characters outside what the document's font holds are the author's to replace.
    """
    heads = ["#", "submission", "model", *(" ".join(filter(None, head)) for head in _heads(board))]
    lines = [f"% {one_line(caption(board))}", rf"\begin{{tabular}}{{rll{'r' * (len(heads) - 3)}}}", r"\toprule"]
    lines += [" & ".join(map(_tex, heads)) + r" \\", r"\midrule"]
    for row in board["rows"]:
        cells = [str(row["rank"]), row["name"], row["model"]]
        cells += [" ".join(filter(None, pair)) for pair in _numbers(board, row)]
        lines.append(" & ".join(map(_tex, cells)) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _tex(text: str) -> str:
    return "".join(_TEX.get(c, c) for c in one_line(text))


def to_csv(board: Mapping[str, Any]) -> str:
    """The leaderboard of `build_leaderboard` as CSV, one row a submission, full precision, units in the header."""
    cells = [(part, t, c) for part in ("tasks", "others") for t, c in board[part].items()]
    header = ["rank", "name", "model", "ood_avg", "ood_avg_se", "underpowered"]
    header += ["ood_avg_low", "ood_avg_high", "tie_group", "ood_avg_ci_low", "ood_avg_ci_high"]
    for _, task, column in cells:
        raw = f"{task} {column['metric']}" + (f" [{column['unit']}]" if column["unit"] != "1" else "")
        header += [f"{task} normalized", raw, f"{raw} se", f"{raw} ci low", f"{raw} ci high"]
    header += ["gap_pp", "gap_tasks", "scorer", "created", "release", "digest", "result_digest"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    for row in board["rows"]:
        line = [row["rank"], _spreadsheet(row["name"]), _spreadsheet(row["model"])]
        line += [row["ood_avg"], row["ood_avg_se"], str(row["underpowered"]).lower()]
        line += [row["ood_avg_low"], row["ood_avg_high"], row["tie_group"], *_ends(row)]
        for part, task, _ in cells:
            cell = row[part].get(task, {})
            line += [*(cell.get(key) for key in ("normalized", "raw", "se")), *_ends(cell)]
        line += [row["gap_pp"], " ".join(row["gap_tasks"]), row["scorer"], row["created"]]
        line += [board["release"]["name"], board["release"]["digest"], row["digest"]]
        writer.writerow([_csv_number(value) for value in line])
    return out.getvalue()


def _ends(cell: Mapping[str, Any]) -> tuple[Any, Any]:
    interval = cell.get("interval") or {}
    return interval.get("low"), interval.get("high")


def _csv_number(value: Any) -> Any:
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else value


def _spreadsheet(text: str) -> str:
    """Spreadsheets run a cell that starts like a formula; a leading apostrophe keeps a stranger's name text."""
    text = one_line(text)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def to_table(board: Mapping[str, Any]) -> Table:
    """The leaderboard of `build_leaderboard` as a rich table, two lines a row so that it fits 80 columns."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title="EMMA leaderboard",
        caption=Text(caption(board)),
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column("#", justify="right")
    table.add_column("submission", overflow="fold")
    for name, detail in _heads(board):
        head = re.sub(r"-(?=\w+ .?$)", "-\n", name) if name.count("-") > 1 else name  # E-LOC-AOA over two lines
        table.add_column(Text("\n".join(filter(None, (head, detail)))), justify="right")
    for row in board["rows"]:
        # Text: names of strangers are no markup
        who = Text(one_line(row["name"]), style="bold").append(f"\n{one_line(row['model'])}", style="not bold dim")
        table.add_row(str(row["rank"]), who, *(Text("\n".join(pair)) for pair in _numbers(board, row)))
    return table
