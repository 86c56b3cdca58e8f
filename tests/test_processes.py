"""Several processes with jax.distributed get one score, and none is left waiting when one of them dies.

Oracle: `examples/multi_process.py` itself compares with one process alone, bit for bit; here its exit code, its lines
and the ends of its workers are held."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = str(Path(__file__).parent.parent / "examples" / "multi_process.py")
WITHIN_S = 60


def start(*arguments):
    """The example as a process of its own, its output unbuffered text."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-u", EXAMPLE, *arguments], **pipes)


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_all_processes_get_the_score_of_one(processes):
    """Each of the processes, with data of its own in other numbers, prints the one value; it is that of a merge in one
    process, bit for bit."""
    run = start("--processes", str(processes))
    out, err = run.communicate(timeout=240)
    assert run.returncode == 0, err
    values = re.findall(r"^process (\d): PlainAccuracy (\S+) of (\d+) samples$", out, re.M)
    assert [int(v[0]) for v in values] == list(range(processes))
    assert len({v[1:] for v in values}) == 1
    assert int(values[0][2]) == sum((1000 + 300 * i) * (3 + i) for i in range(processes))
    assert "equal bit for bit: True" in out


@pytest.mark.parametrize("victim", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_a_killed_process_ends_the_others(victim):
    """After one worker is killed (0 is the coordinator) the others and the parent end non-zero within 60 s, with one
    line that says which, and no score is printed."""
    run = start("--wait", "120")
    pids = [int(x) for x in run.stdout.readline().split()[1:]]
    waiting = [run.stdout.readline() for _ in pids]  # both are connected and have scored their own
    assert all("has scored its own" in line for line in waiting)
    os.kill(pids[victim], signal.SIGKILL)
    out, err = run.communicate(timeout=WITHIN_S)
    assert run.returncode == 1
    line = rf"worker {victim} ended early, nothing was scored \(exit codes 0: (-?\d+), 1: (-?\d+)\)\n"
    codes = re.fullmatch(line, err)
    assert codes and int(codes[victim + 1]) == -signal.SIGKILL and int(codes[2 - victim]) != 0
    assert "PlainAccuracy" not in out
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
