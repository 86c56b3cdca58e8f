"""Several processes with jax.distributed get one score, and none is left waiting when one of them dies.

Oracle: `examples/multi_process.py` itself compares with one process alone, bit for bit; here its exit code, its lines
and the ends of its workers are held."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from test_cli import fails, run
from test_submissions import N, make_release, make_submission

from emma_jax.errors import EvaluationError
from emma_jax.io import write_npz
from emma_jax.submissions import add_intervals, score_submission, write_result
from emma_jax.submissions.processes import Launch, _shares, find_launch

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


# --- `emma-jax score --distributed` ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A folder with a small release, a submission to it, and the undistributed result."""
    root = tmp_path_factory.mktemp("distributed")
    release = make_release(root / "release", ("E-LOC-AOA", "E-ID-AMC"))
    make_submission(root / "good", ("E-LOC-AOA", "E-ID-AMC"))
    bad = make_submission(root / "bad", ("E-LOC-AOA", "E-ID-AMC"))
    write_npz(bad / "preds" / "E-LOC-AOA" / "env-b.npz", preds=np.full(N, np.nan))
    worse = make_submission(root / "worse", ("E-LOC-AOA", "E-ID-AMC"))
    for path in worse.rglob("*.npz"):
        path.write_bytes(b"no zip")
    alone = score_submission(root / "good", release)
    write_result(alone, root / "alone.json")
    write_result(add_intervals(alone, root / "good", release, num_resamples=200, seed=7), root / "intervals.json")
    return root


def free_address():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{s.getsockname()[1]}"


def launch(root, submission, count, *, environments=None, code="", options=()):
    """The command in so many processes; ``code`` runs in each before it, with its number as ``process``."""
    address, out = free_address(), root / f"{submission}-{count}.json"
    out.unlink(missing_ok=True)
    runs = []
    for process in range(count):
        given = ["score", str(root / submission), "--release", str(root / "release"), "-o", str(out)]
        given += ["--distributed", "--coordinator", address, "--heartbeat", "5", *options]
        if environments is None:
            given += ["--processes", str(count), "--process", str(process)]
        program = f"import sys; process = {process}; sys.argv = ['emma-jax', *{given!r}]\n{code}\n"
        program += "from emma_jax.cli import main; main()"
        environment = os.environ | {
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "",
            "JAX_COMPILATION_CACHE_DIR": str(root / "xla"),
        }
        environment |= (environments or [{}] * count)[process]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
        runs.append(subprocess.Popen([sys.executable, "-c", program], **pipes))
    return runs, out


def ends(runs, timeout=240):
    """(exit codes, stdouts, stderrs).

    JAX 0.8 warns of every kernel that it takes from the compilation cache, since XLA lists a preference of its own as a
    feature of the machine; that is no line of ours.
    """
    texts = [run.communicate(timeout=timeout) for run in runs]
    ours = [re.sub(r"^E\d{4} .* cpu_aot_loader\.cc:.*\n", "", t[1], flags=re.M) for t in texts]
    return [run.returncode for run in runs], [t[0] for t in texts], ours


SLURM = [{"SLURM_PROCID": str(i), "SLURM_NTASKS": "9", "SLURM_STEP_NUM_TASKS": "2"} for i in range(2)]
OPEN_MPI = [{"OMPI_COMM_WORLD_RANK": str(i), "OMPI_COMM_WORLD_SIZE": "2"} for i in range(2)]


@pytest.mark.parametrize(
    ("count", "environments"),
    [
        (2, None),
        pytest.param(2, SLURM, marks=pytest.mark.slow),
        pytest.param(2, OPEN_MPI, marks=pytest.mark.slow),
        pytest.param(4, None, marks=pytest.mark.slow),
    ],
    ids=["flags", "slurm", "openmpi", "four"],
)
def test_one_result_whatever_the_number_of_processes(inputs, count, environments):
    """The bytes of the undistributed result but for its provenance; one process prints, the others say nothing."""
    runs, out = launch(inputs, "good", count, environments=environments, options=["--json"])
    codes, stdouts, stderrs = ends(runs)
    assert codes == [0] * count and stderrs == [""] * count
    assert stdouts[1:] == [""] * (count - 1) and stdouts[0] == out.read_text()

    assert body(out) == body(inputs / "alone.json") != out.read_text()


def body(path):
    """A result document as text, without when and where it was made."""
    return re.sub(r' "provenance": \{.*?\n \},?\n', "", path.read_text(), flags=re.S)


def test_intervals_and_limits_mean_the_same(inputs):
    """--bootstrap and --seed: the bytes of `add_intervals` in one process but for the provenance, with a limit that no
    file reaches; the numbers are resampled in process 0 alone."""
    options = ["--json", "--bootstrap", "200", "--seed", "7", "--max-bytes", "100000"]
    runs, out = launch(inputs, "good", 2, options=options)
    codes, stdouts, stderrs = ends(runs)
    assert codes == [0, 0] and stderrs == ["", ""] and stdouts == [out.read_text(), ""]
    assert body(out) == body(inputs / "intervals.json") != body(inputs / "alone.json")


@pytest.mark.slow
def test_a_file_beyond_the_limit_ends_all_with_one_line(inputs):
    """--max-bytes: both processes end with 1 and a line that names a file and the limit; there is no result."""
    runs, out = launch(inputs, "good", 2, options=["--max-bytes", "100"])
    codes, _, stderrs = ends(runs)
    assert codes == [1, 1] and not out.exists()
    for text in stderrs:
        assert re.fullmatch(r"emma-jax: .*preds/E-[A-Z]+-[A-Z]+/[a-z-]+\.npz: .* more than the limit of 100 .*\n", text)


def test_limits_and_intervals_reach_one_process(inputs, monkeypatch, tmp_path):
    """The command's flags in a process alone: a limit names the file that is beyond it; intervals are those of one that
    is not distributed, and the limit holds when the files are read again for them."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "")
    given = ["score", inputs / "good", "--release", inputs / "release", "--distributed", "--coordinator", "127.0.0.1:1"]
    given += ["--processes", "1", "--process", "0", "--bootstrap", "200", "--seed", "7"]
    assert "env-a.npz" in fails(*given, "--max-bytes", "100")
    assert run(*given, "-o", tmp_path / "one.json", "--max-bytes", "100000")[0] == 0
    assert body(tmp_path / "one.json") == body(inputs / "intervals.json")


@pytest.mark.slow
def test_processes_with_other_options(inputs):
    """Another seed in one process is refused by an error that names the process, and there is no result."""
    code = "if process == 1: sys.argv[sys.argv.index('--seed') + 1] = '8'"
    runs, out = launch(inputs, "good", 2, code=code, options=["--bootstrap", "50", "--seed", "7"])
    codes, _, stderrs = ends(runs)
    assert codes == [1, 1] and not out.exists()
    assert all(re.fullmatch(r"emma-jax: .*process 1 was started .*with other options.*\n", t) for t in stderrs)


def test_bad_input_of_one_process_ends_all_with_one_line(inputs):
    """One file with NaN: every process ends with 1 and one line that names the file; there is no result."""
    runs, _ = launch(inputs, "bad", 2)
    codes, _, stderrs = ends(runs)
    assert codes == [1] * 2
    for text in stderrs:
        assert re.fullmatch(r"emma-jax: .*preds/E-LOC-AOA/env-b.npz.*\n", text)
    assert [p.name for p in inputs.iterdir() if p.name.startswith((".", "bad-"))] == []


def test_a_process_that_comes_late_hears_why(inputs):
    """Process 0 fails at its first file, before the other is there: that one still says which file, and ends with 1."""
    runs, _ = launch(inputs, "worse", 2, code="import time; time.sleep(4 * process)")
    codes, _, stderrs = ends(runs)
    assert codes == [1] * 2
    for text in stderrs:
        assert re.fullmatch(r"emma-jax: .*preds/E-[A-Z]+-[A-Z]+/[a-z-]+.npz.*\n", text)


@pytest.mark.parametrize(
    ("victim", "signum"),
    [
        (1, signal.SIGKILL),
        pytest.param(0, signal.SIGKILL, marks=pytest.mark.slow),
        pytest.param(2, signal.SIGSTOP, marks=pytest.mark.slow),  # alive, but silent: the heartbeat timeout
    ],
)
def test_a_lost_process_ends_the_others(inputs, victim, signum):
    """One process is killed while it scores: the others end with 1 within 60 s, each with one line that says which, and
    no result is left, not even a part."""
    # Every process says that it is connected, then sleeps instead of scoring.
    code = (
        "import time, emma_jax.submissions.processes as p\n"
        "p._scored = lambda *a: (print('scoring', flush=True), time.sleep(120))\n"
    )
    runs, _ = launch(inputs, "good", 3, code=code)
    try:
        assert all(run.stdout.readline() == "scoring\n" for run in runs)
        start = time.monotonic()
        runs[victim].send_signal(signum)
        others = [run for i, run in enumerate(runs) if i != victim]
        codes, _, stderrs = ends(others, timeout=WITHIN_S)
        assert time.monotonic() - start < WITHIN_S
    finally:
        for run in runs:
            run.kill()
            run.wait()
    assert codes == [1, 1]
    for text in stderrs:
        assert re.fullmatch(rf"emma-jax: process {victim} of 3 ended early or fell silent; nothing was written\n", text)
    assert [p.name for p in inputs.iterdir() if p.name.startswith((".", "good-3"))] == []


def test_a_process_that_never_comes(inputs):
    """Process 0 waits only so long, then names the process."""
    code = "import emma_jax.submissions.processes as p\np.score_distributed.__kwdefaults__['join_s'] = 1.0"
    runs, _ = launch(inputs, "good", 2, code=code + "\nif process == 1: sys.exit(3)")
    codes, _, stderrs = ends(runs)
    assert codes == [1, 3] and stderrs[0] == "emma-jax: process 1 of 2 has not come within 1 s; nothing was written\n"


@pytest.mark.slow
def test_a_process_that_reads_other_files(inputs, tmp_path):
    """Entries of another submission are refused by an error that names the process, and there is no result."""
    other = f"import shutil\nif process == 1: shutil.copytree(sys.argv[2], {str(tmp_path / 'copy')!r})\n"
    other += f"if process == 1: sys.argv[2] = {str(tmp_path / 'copy')!r}\n"
    other += "if process == 1: open(sys.argv[2] + '/submission.toml', 'a').write('\\n')\n"
    runs, out = launch(inputs, "good", 2, code=other)
    codes, _, stderrs = ends(runs)
    assert codes == [1, 1] and all(
        re.fullmatch(r"emma-jax: .*process 1 was started on other files.*\n", t) for t in stderrs
    )
    assert not out.exists()


def test_the_launcher_is_read():
    """What SLURM and Open MPI say, and what flags say over it; what is missing is named."""
    slurm = {"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "1"}
    for nodes, first in (
        ("gpu[03-05,08],login1", "gpu03"),
        ("n7,n8", "n7"),
        ("rack1-n[12]", "rack1-n12"),
        ("a[1-2]-ib", "a1-ib"),
    ):
        found = find_launch(slurm | {"SLURM_STEP_NODELIST": nodes})
        assert (found.host, found.process, found.processes) == (first, 3, 8)
        assert 61_440 <= found.port < 65_536 and found.port == find_launch(slurm | {"SLURM_JOB_NODELIST": "x"}).port
    mpi = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}
    assert find_launch(mpi).host == "127.0.0.1" and find_launch(mpi | slurm).process == 1
    assert find_launch(slurm, coordinator="h:1", process=0, processes=2) == Launch("h", 1, 0, 2)
    for environment, given, flag in (
        ({}, {}, "--process"),
        ({}, {"process": 0}, "--processes"),
        ({}, {"process": 0, "processes": 2}, "--coordinator"),
        (mpi | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, {}, "--coordinator"),
        (slurm, {"coordinator": "nohost"}, "HOST:PORT"),
        (slurm, {"coordinator": "h:1", "process": 9}, "process 9 of 8"),
    ):
        with pytest.raises(EvaluationError, match=flag):
            find_launch(environment, **given)


def test_shares_cover_every_file_once_and_evenly():
    """Each file goes to one process; the largest share is at most the mean and the largest file."""
    rng = np.random.default_rng(0)
    for processes in (1, 2, 5, 40):
        sizes = [int(x) for x in rng.integers(0, 1000, 23)]
        shares = _shares(sizes, processes)
        assert sorted(i for share in shares for i in share) == list(range(23))
        assert max(sum(sizes[i] for i in share) for share in shares) <= sum(sizes) / processes + max(sizes) + 23
