"""The benchmark is a tool: it must run, show every row, and refuse to time what is wrong. No timing is asserted."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))  # the benchmark is no part of the installed package

from bench import __main__ as command  # noqa: E402
from bench import measure, memory, plot, report, sweep  # noqa: E402
from bench.peers import LIBRARIES, Library, Peer, load  # noqa: E402
from bench.rows import ROWS, WAYS, Size  # noqa: E402
from bench.timing import Contestant, race, ratio  # noqa: E402

TINY = ["--n", "64", "--classes", "4", "--repeats", "1"]


def _strict(text: str) -> dict:
    def refuse(token: str) -> None:
        raise AssertionError(f"{token} is not JSON")

    return json.loads(text, parse_constant=refuse)


def _settings(**changes: object) -> measure.Settings:
    return dataclasses.replace(measure.Settings(1, 1.0, ("evaluate",)), **changes)


def test_every_row_is_printed_and_agrees(tmp_path: Path) -> None:
    """``python -m bench`` prints a line per row and ends with 0, which says that all installed peers agreed."""
    out = tmp_path / "bench.json"
    rows = ["--only", ",".join(ROWS), "--ways", "evaluate", "--json", str(out)]
    arguments = [sys.executable, "-m", "bench", *TINY, *rows]
    env = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    run = subprocess.run(arguments, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    first_words = [line.split()[0] for line in run.stdout.splitlines() if line.strip()]
    assert set(ROWS) <= set(first_words)
    assert str(ROOT) not in run.stdout + out.read_text()
    content = _strict(out.read_text())
    assert content["ok"] is True
    assert {r["row"] for r in content["rows"]} == set(ROWS)
    for r in content["rows"]:
        assert r["ours"]["status"] == "timed" and r["ours"]["min_ms"] > 0 and r["floor"]["min_ms"] > 0
        assert abs(r["ours"]["value"] - r["reference"]) <= r["ours"]["tolerance"]
        for p in r["peers"]:
            assert p["status"] in ("timed", "absent")
            assert (p["ratio"] is None) == (p["status"] == "absent")


def test_every_way_and_the_larger_kernel_have_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A row that asks for it has one line per way, and one more for the kernel at a larger N."""
    assert command.main([*TINY, "--only", "angle"]) == 0
    lines = [x.split() for x in capsys.readouterr().out.splitlines() if x.startswith("angle ")]
    assert [(x[3], x[7]) for x in lines] == [("64", way) for way in WAYS] + [("256", "kernel")]


def test_a_wrong_peer_gets_no_ratio_and_the_exit_status_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A peer whose value is off by more than stated is named, is not timed, and makes the run end with 1."""
    monkeypatch.setitem(LIBRARIES, "wrong", Library("numpy", "numpy", lambda x: x))
    real = ROWS["top1"]

    def make(size: Size):
        return dataclasses.replace(real.make(size), peers=(Peer("wrong", lambda np_, p, y: 0.125),))

    monkeypatch.setitem(ROWS, "top1", dataclasses.replace(real, make=make))
    assert command.main([*TINY, "--only", "top1", "--ways", "evaluate"]) == 1
    captured = capsys.readouterr()
    assert "wrong DISAGREES" in captured.out and "wrong disagrees" in captured.err


def test_our_own_wrong_value_is_not_timed() -> None:
    """A definition that our value does not meet stops the row: no time, no ratio for it."""
    real = ROWS["top1"]

    def make(size: Size):
        return dataclasses.replace(real.make(size), reference=lambda p, y: 0.5, peers=())

    (line,) = measure.measure(dataclasses.replace(real, make=make), Size(64, 4), _settings())
    assert line.ours.status == "disagrees" and line.ours.contestant is None and not line.ok
    assert line.times_read() is None
    assert "DISAGREES" in report.table_line(line)
    assert _strict(report.to_json({}, _settings(), [line]))["ok"] is False


def test_an_absent_library_is_named_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that cannot be imported is shown as absent, with what is missing, and fails nothing."""
    monkeypatch.setitem(LIBRARIES, "nowhere", Library("nowhere", "no_such_module.sub", lambda x: x))
    assert load("nowhere") == (None, "cannot import no_such_module")
    real = ROWS["top1"]

    def make(size: Size):
        return dataclasses.replace(real.make(size), peers=(Peer("nowhere", lambda m, p, y: 0.0),))

    (line,) = measure.measure(dataclasses.replace(real, make=make), Size(64, 4), _settings())
    assert line.ok and line.ratio(line.peers[0]) is None
    assert "nowhere absent" in report.table_line(line)
    assert "cannot import no_such_module" in report.notes([line])


def test_only_takes_families_and_refuses_unknown_names() -> None:
    """``--only auc`` stands for auc-binary and auc-ovr, not for auroc; unknown names and bad sizes exit with 2."""
    rows, suites = command._chosen("auc,eer-pooled,text")
    assert [r.name for r in rows] == ["auc-binary", "auc-ovr", "eer-pooled"] and suites == ["text"]
    for arguments in (["--only", "nothing"], ["--n", "3"], ["--ways", "magic"], ["--repeats", "0"]):
        with pytest.raises(SystemExit) as e:
            command.main(arguments)
        assert e.value.code == 2


def test_without_a_choice_everything_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows, then every script of the folder that has a command line; the exit status tells of any that failed."""
    folder = Path(command.__file__).parent
    scripts = {p.stem for p in folder.glob("*.py") if "def main(" in p.read_text(encoding="utf-8")}
    assert set(command.SUITES) == scripts - {"__main__"}
    assert command._chosen(None) == (list(ROWS.values()), list(command.SUITES))
    run: list[str] = []

    def fake(arguments: list[str], check: bool) -> subprocess.CompletedProcess[str]:
        run.append(arguments[-1])
        return subprocess.CompletedProcess(arguments, int(arguments[-1] == "bench.loop"))

    monkeypatch.setattr(subprocess, "run", fake)
    assert command.main(["--only", "text,loop"]) == 1 and run == ["bench.text", "bench.loop"]
    assert command.main(["--only", "arrays"]) == 0


def test_contestants_take_turns_and_a_slow_one_sits_out() -> None:
    """Order A B, B A, ...; beyond its budget a contestant keeps three samples; ratios pair samples of one round."""
    calls: list[str] = []
    slow = Contestant(lambda: calls.append("a"))
    fast = Contestant(lambda: calls.append("b"))
    slow.take_turn = lambda: calls.append("A") or 6.0  # type: ignore[method-assign]
    fast.take_turn = lambda: calls.append("B") or float(len(fast.samples) + 1)  # type: ignore[method-assign]
    race([slow, fast], repeats=5, budget_s=10.0)
    assert calls == ["A", "B", "B", "A", "A", "B", "B", "B"]
    assert slow.samples == [6.0, 6.0, 6.0, None, None] and fast.samples == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert ratio(slow, fast) == np.median([6 / 1, 6 / 2, 6 / 3])


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the system does not tell the peak memory")
def test_memory_is_that_of_the_call_and_not_of_its_inputs() -> None:
    """A temporary of 64 MB counts as 64 MB (to 4 MB), once freed too; an input of 64 MB that is there already does not.
    Oracle: the bytes of the arrays."""
    inputs = np.ones(8_000_000)
    assert memory.extra_mb(lambda: inputs.max()) < 4
    assert memory.extra_mb(lambda: float(np.ones(8_000_000).max())) == pytest.approx(64, abs=4)


def test_sweep_rows_say_how_many_runs() -> None:
    """A sweep's line has N and S of its arrays, and its value is the mean over the runs."""
    (line,) = measure.measure(ROWS["sweep-top1"], Size(640, 4), _settings())
    assert (line.runs, line.n) == sweep.sweep_size(Size(640, 4)) == (10, 640) and line.ok
    assert report.table_line(line).split()[3:6] == ["640", "4", "10"]
    assert _strict(report.to_json({}, _settings(), [line]))["rows"][0]["runs"] == 10


def test_sizes_of_the_curves() -> None:
    """By powers, from the smallest to at most the largest."""
    assert plot.sizes("N", 1_000_000) == [1000, 10_000, 100_000, 1_000_000]
    assert plot.sizes("C", 100) == [2, 8, 32] and plot.sizes("S", 3) == []


@pytest.mark.slow
def test_curves_are_measured_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--plot leaves a picture and, with --json, every point: ours was right at each, and N, C and S are all there."""
    pytest.importorskip("matplotlib")
    picture, out = tmp_path / "scaling.png", tmp_path / "scaling.json"
    assert command.main(["--n", "1000", "--repeats", "1", "--plot", str(picture), "--json", str(out)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    points = _strict(out.read_text())["points"]
    ours = [p for p in points if p["who"].startswith("ours")]
    assert {p["axis"] for p in ours} == {"N", "C", "S"}
    assert all(p["status"] == "timed" and p["ms"] > 0 for p in ours)
    assert "auc-binary" in capsys.readouterr().out
