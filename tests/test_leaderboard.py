"""The leaderboard: order, columns, and text of strangers that stays text."""

from __future__ import annotations

import copy
import csv
import io
import json
import math

import pytest

from emma_jax.errors import EmptyEvaluationError, SubmissionError
from emma_jax.io import dumps_strict
from emma_jax.report import build_leaderboard, to_csv, to_markdown, to_table


def entry(raw: float, normalized: float | None, *, unit: str = "1", direction: str = "higher", n: int = 4) -> dict:
    return {
        "metric": "MeanAngularError" if unit == "deg" else "PlainAccuracy",
        "direction": direction,
        "unit": unit,
        "in_ood_avg": normalized is not None,
        "raw": raw,
        "normalized": normalized,
        "jackknife_raw": {"n": n, "se": None if n < 2 else 0.01, "underpowered": n <= 2},
        "gap_pp": None,
    }


def result(name: str, ood_avg: float, **changes) -> dict:
    """A result document with as much of it as a leaderboard looks at."""
    return {
        "submission": {"name": name, "model": "net", "notes": ""},
        "release": {"name": "demo", "digest": "sha256:" + "a" * 64, "frozen": True},
        "scorer": {"name": "emma-jax", "version": "0.1.0"},
        "tasks": {
            "E-LOC-AOA": entry(12.345, ood_avg, unit="deg", direction="lower"),
            "E-ID-AMC": entry(0.5, None),
        },
        "ood_avg": ood_avg,
        "ood_avg_se": 0.0123,
        "underpowered": False,
        "gap_pp": 4.5,
        "gap_tasks": ["E-LOC-AOA"],
        "provenance": {"created": "2026-01-01T00:00:00+00:00"},
        **changes,
    }


def test_rows_go_by_ood_avg_and_equal_scores_share_a_rank():
    """Claim: highest first, ties share the rank and the next one skips. Oracle: by hand."""
    board = build_leaderboard([result(n, v) for n, v in (("d", 0.1), ("c", 0.5), ("a", 0.9), ("b", 0.5))])
    assert [(row["rank"], row["name"]) for row in board["rows"]] == [(1, "a"), (2, "b"), (2, "c"), (4, "d")]


def test_gap_and_continuity_stand_beside_and_move_no_rank():
    """Claim: a worse gap and a better continuity value leave the order as it is."""
    better, worse = result("x", 0.6, gap_pp=90.0), result("y", 0.5, gap_pp=0.0)
    worse["tasks"]["E-ID-AMC"]["raw"] = 1.0
    board = build_leaderboard([worse, better])
    assert [row["name"] for row in board["rows"]] == ["x", "y"]
    assert list(board["tasks"]) == ["E-LOC-AOA"] and list(board["others"]) == ["E-ID-AMC"]
    assert board["rows"][0]["gap_pp"] == 90.0 and board["rows"][1]["others"]["E-ID-AMC"]["raw"] == 1.0


def test_results_of_different_releases_are_never_mixed():
    """Claim: another digest is a SubmissionError that names the file and both digests; so are other tasks."""
    other = result("b", 0.5, release={"name": "demo", "digest": "sha256:" + "b" * 64, "frozen": True})
    with pytest.raises(SubmissionError, match=r"b\.json: .*sha256:b+\).*a\.json.*sha256:a+\)"):
        build_leaderboard([result("a", 0.5), other], ["a.json", "b.json"])
    other = copy.deepcopy(result("c", 0.5))
    other["tasks"]["E-LOC-AOA"]["in_ood_avg"] = False
    with pytest.raises(SubmissionError, match=r"c\.json: does not average the same tasks as a\.json"):
        build_leaderboard([result("a", 0.5), other], ["a.json", "c.json"])
    with pytest.raises(EmptyEvaluationError, match="no results"):
        build_leaderboard([])


def test_markdown_has_every_number_and_escapes_names():
    """Claim: normalized, raw, SE, gap, continuity and the underpowered mark are there; a name is no markup."""
    row = result("<b>|x|*y*\nz", 0.5, underpowered=True)
    text = to_markdown(build_leaderboard([row]))
    assert r"| 1 | &lt;b&gt;\|x\|\*y\* z | net | 0.5000 ±0.0123† | 0.500 (12.35) | +4.5 | 0.500 |" in text
    assert "| E-LOC-AOA ↓ deg | gap pp | E-ID-AMC ↑ beside |" in text
    assert "† two environments or fewer" in text and "sha256:aaaa" in text
    assert "†" not in to_markdown(build_leaderboard([result("x", 0.5)]))


def test_csv_reads_back_in_full_precision_and_runs_no_formula():
    """Claim: csv.DictReader gives the numbers of the documents; undefined is empty; '=...' is quoted. Exact."""
    rows = [result("=cmd()", 1 / 3), result("a,b", 0.5, gap_pp=None, gap_tasks=[])]
    rows[1]["tasks"].pop("E-ID-AMC")
    rows[1]["ood_avg_se"] = math.nan
    read = list(csv.DictReader(io.StringIO(to_csv(build_leaderboard(rows)))))
    assert read[0]["name"] == "a,b" and read[1]["name"] == "'=cmd()"
    assert float(read[1]["ood_avg"]) == 1 / 3 and float(read[1]["E-LOC-AOA MeanAngularError [deg]"]) == 12.345
    assert read[0]["gap_pp"] == "" and read[0]["E-ID-AMC PlainAccuracy"] == "" and read[0]["ood_avg_se"] == ""
    assert read[1]["gap_pp"] == "4.5" and read[1]["E-ID-AMC PlainAccuracy"] == "0.5"


def test_the_table_shows_names_as_they_are_and_json_is_strict():
    """Claim: square brackets in a name are no markup; NaN and inf become null and text in JSON."""
    from rich.console import Console

    row = result("[red]x[/red]", 0.5, ood_avg_se=math.nan)
    row["tasks"]["E-ID-AMC"]["raw"] = "-inf"
    board = build_leaderboard([row])
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(to_table(board))
    text = console.export_text()
    assert "[red]x[/red]" in text and "±–" in text and "-inf" in text
    parsed = json.loads(dumps_strict(board), parse_constant=pytest.fail)
    assert parsed["rows"][0]["ood_avg_se"] is None
