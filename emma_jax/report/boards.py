"""Scores of boards and checks of S-parameters as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["board_tables", "checks_table"]

_ARROWS = {"higher": "↑", "lower": "↓"}


def board_tables(document: Mapping[str, Any]) -> list[Table | str]:
    """A result as tables, and what has to be known beside them as lines of text.

    Args:
      document: of a data set, `emma_jax.emval.BoardScores.to_dict`, or of two files,
        `emma_jax.emval.BoardRecord.to_document`.

    Returns:
      Rich tables and strings, in the order to print them.
    """
    return _data_set(document) if "boards" in document else _two_files(document)


def checks_table(checks: Mapping[str, Mapping[str, Any]]) -> Table:
    """Checks of S-parameters as a table, a row each.

    Args:
      checks: by name, `emma_jax.emval.sparams.SParameterCheck.to_dict`.

    Returns:
      A rich table: largest singular value of S (1 is lossless), share of frequencies above 1, largest |S - S^T|, and
      the IEEE 370 figures in percent (100 is best) with their grades.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(title="S-parameters", **_look())
    table.add_column("", overflow="fold")
    for head in ("ports\npoints", "largest σ\n(passive: 1)", "above 1", "|S − Sᵀ|", "PQM %", "RQM %", "CQM %"):
        table.add_column(head, justify="right", no_wrap=True)
    for name, check in checks.items():
        passive, reciprocal, quality = check["passivity"], check["reciprocity"], check["quality"]
        table.add_row(
            Text(name),
            f"{check['n_ports']}\n{check['n_frequencies']}",
            f"{passive['largest_singular_value']:.6g}" + _place(passive),
            f"{100 * passive['violating_fraction']:.3g} %",
            "" if reciprocal is None else _difference(reciprocal),
            *(_graded(quality, figure) for figure in ("pqm", "rqm", "cqm")),
        )
    return table


def _look() -> dict[str, Any]:
    """What makes a table fit 80 columns."""
    from rich import box

    return {"title_justify": "left", "box": box.SIMPLE_HEAD, "pad_edge": False, "collapse_padding": True}


def _difference(check: Mapping[str, Any]) -> str:
    value = check["max_difference"]
    return f"{value:.3g}" + (_place(check) if value > 0 else "")


def _place(check: Mapping[str, Any]) -> str:
    frequency = check["worst_frequency_hz"]
    if frequency is None:
        return ""
    scale, unit = next(((s, u) for s, u in ((1e9, "GHz"), (1e6, "MHz"), (1e3, "kHz")) if frequency >= s), (1.0, "Hz"))
    return f"\nat {frequency / scale:.5g} {unit}"


def _graded(quality: Mapping[str, Any], figure: str) -> str:
    value, grade = quality[figure], quality["grades"][figure]
    return "" if value is None else f"{value:.2f}\n{grade}"


def _metric_info(names: Sequence[str]) -> list[tuple[str, str, str]]:
    """Name, unit and direction of EMVal metrics; an average has those of its parts."""
    from emma_jax.tasks import list_tasks

    info = {m.name: (m.unit, m.direction) for t in list_tasks() if t.id.startswith("EMVal-") for m in t.metrics}
    parts = {name: name.removesuffix("_avg") + "_E" if name.endswith("_avg") else name for name in names}
    return [(name, *info.get(parts[name], ("", ""))) for name in names]


def _data_set(document: Mapping[str, Any]) -> list[Table | str]:
    from rich.table import Table

    columns = {**document["groups"], "ID": document["id"], "OOD": document["ood"]}
    columns = {name: entry for name, entry in columns.items() if entry["n_boards"]}
    table = Table(title=f"EMVal {document['protocol']}, mean over boards", **_look())
    table.add_column("metric", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    for name, entry in columns.items():
        head = name.replace("private_", "private\n")
        table.add_column(f"{head}\n{entry['n_boards']} boards", justify="right", no_wrap=True)
    for name, unit, better in _metric_info(list(next(iter(columns.values()))["values"])):
        label = f"{name} {_ARROWS.get(better, '')}".rstrip()
        table.add_row(label, unit, *(f"{entry['values'][name]:.6g}" for entry in columns.values()))
    return [table, *_notes(document)]


def _notes(document: Mapping[str, Any]) -> list[str]:
    notes = []
    if not document["comparable"]:
        notes.append(f"NOT COMPARABLE: {len(document['missing'])} boards are left out")
    if document["unused"]:
        notes.append(f"{len(document['unused'])} predictions are of no board of the truth")
    for side, what in (("truth", "true"), ("pred", "predicted")):
        checks = [(b["id"], b["checks"][side]["passivity"]) for b in document["boards"] if side in b.get("checks", {})]
        active = [(check["largest_singular_value"], name) for name, check in checks if not check["passive"]]
        if active:
            sigma, name = max(active)
            notes.append(
                f"{len(active)} of {len(checks)} {what} boards are not passive, worst {name} with a singular value of "
                f"{sigma:.6g}"
            )
    return notes


def _two_files(document: Mapping[str, Any]) -> list[Table | str]:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(document["id"]), **_look())
    for head in ("metric", "value", "unit"):
        table.add_column(head, justify="right" if head == "value" else "left", no_wrap=True)
    table.add_column("validity", overflow="fold")
    values, validity = document["values"], document.get("validity", {})
    for name, unit, better in _metric_info(list(values)):
        counts = {k: v for k, v in validity.get(name, {}).items() if v or k in ("n", "n_used")}
        label = f"{name} {_ARROWS.get(better, '')}".rstrip()
        table.add_row(label, f"{values[name]:.9g}", unit, ", ".join(f"{k} {v}" for k, v in counts.items()))
    parts: list[Table | str] = [table]
    reference, frequencies = document["notes"].get("reference"), document["notes"]["frequencies"]
    if reference == "renormalized":
        parts.append("the prediction was renormalized to the reference impedances of the truth")
    if reference == "unstated":
        parts.append("reference impedances are not stated on both sides: taken as equal")
    if unstated := [track for track, known in frequencies.items() if not known]:
        parts.append(f"frequencies are not stated on both sides ({', '.join(unstated)}): taken as equal")
    if "checks" in document:
        names = {"truth": "truth", "pred": "prediction"}
        parts.append(checks_table({names[side]: check for side, check in document["checks"].items()}))
    return parts
