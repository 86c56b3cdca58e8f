"""Scoring a submission with several processes: each scores some of its files, the first writes the one result.

The files of a submission have nothing to do with each other, so the processes need no collective: over one connection
each to the first process go a greeting, a sign of life every few seconds, and the entries of what was scored. A lost
process is then something that a socket tells at once (a silent one, within the heartbeat timeout), and every other can
say so in one line. Under `jax.distributed` the runtime would end them with a page of addresses.

All processes read the same submission and the same release, on a shared file system or as copies; a digest of both
comes with the entries, and entries of other files are refused. Whoever can reach the port can greet, so this is for the
network of a cluster, as `jax.distributed` is.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from emma_jax._version import __version__
from emma_jax.errors import EvaluationError
from emma_jax.io.strict import dumps_strict
from emma_jax.release import Release, load_release
from emma_jax.submissions.folder import Limits, Submission
from emma_jax.submissions.intervals import add_intervals
from emma_jax.submissions.scoring import Inputs, Progress, ScoredFold, opened, result_document, score_fold

__all__ = ["HEARTBEAT_S", "JOIN_S", "Launch", "find_launch", "score_distributed"]

HEARTBEAT_S = 20.0
JOIN_S = 50.0
_LONGEST_LINE = 1 << 28
# How long process 0, about to fail, waits for processes that were started with it and have not greeted yet.
_GREET_S = 10.0


@dataclass(frozen=True)
class Launch:
    """Where this process stands among those that were started together.

    Attributes:
      host, port: where the first process listens.
      process: number of this process, from 0.
      processes: how many there are.
    """

    host: str
    port: int
    process: int
    processes: int


def find_launch(
    environment: Mapping[str, str],
    *,
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
) -> Launch:
    """Reads what the launcher says of this process: SLURM's environment, Open MPI's, or what is given.

    Args:
      environment: for example ``os.environ``.
      coordinator: "host:port" of the first process; otherwise the first host of the SLURM step, or this machine if Open
        MPI started all processes on it, and a port that follows from the job's number.
      processes: how many processes there are.
      process: number of this one, from 0.

    Raises:
      EvaluationError: something is not known or makes no sense; it names the flag that would say it.
    """
    names = _variables(environment)
    index = process if process is not None else _number(environment, names[0])
    count = processes if processes is not None else _number(environment, names[1])
    for value, flag in ((index, "--process"), (count, "--processes")):
        if value is None:
            raise EvaluationError(f"no launcher (SLURM, Open MPI) says it; pass {flag}", argument="--distributed")
    assert index is not None and count is not None
    if not 0 <= index < count:
        raise EvaluationError(f"process {index} of {count} does not exist", argument="--process")
    if coordinator is None:
        coordinator = f"{_first_host(environment, count)}:{_port(environment)}"
    host, colon, port = coordinator.rpartition(":")
    if not (colon and host and port.isdigit() and 0 < int(port) < 1 << 16):
        raise EvaluationError(f"{coordinator!r} is not HOST:PORT", argument="--coordinator")
    return Launch(host.strip("[]"), int(port), index, count)


def _variables(environment: Mapping[str, str]) -> tuple[str, str]:
    """Names under which the launcher says the number of a process and how many there are."""
    if "OMPI_COMM_WORLD_RANK" in environment:
        return "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"
    step = "SLURM_STEP_NUM_TASKS" in environment
    return "SLURM_PROCID", "SLURM_STEP_NUM_TASKS" if step else "SLURM_NTASKS"


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name)
    if text is None:
        return None
    if not text.isdigit():
        raise EvaluationError(f"is {text!r}, not a number", argument=name)
    return int(text)


def _first_host(environment: Mapping[str, str], count: int) -> str:
    if "OMPI_COMM_WORLD_RANK" in environment:
        if environment.get("OMPI_COMM_WORLD_LOCAL_SIZE") == str(count):
            return "127.0.0.1"
        raise EvaluationError(
            "Open MPI does not say on which machine process 0 is; pass --coordinator HOST:PORT",
            argument="--distributed",
        )
    nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST")
    if not nodes:
        raise EvaluationError(
            "no launcher says where process 0 is; pass --coordinator HOST:PORT", argument="--distributed"
        )
    # "gpu[03-05,08],login1" begins with gpu03.
    found = re.match(r"([^,\[]+)(?:\[([^,\-\]]+)[^\]]*\])?([^,]*)", nodes)
    assert found is not None
    return "".join(part or "" for part in found.groups())


def _port(environment: Mapping[str, str]) -> int:
    """A port above the ephemeral range of Linux that all processes of a job agree on."""
    names = ("SLURM_JOB_ID", "SLURM_STEP_ID", "OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE")
    job = "/".join(environment.get(name, "") for name in names)
    return 61_440 + int.from_bytes(hashlib.sha256(job.encode()).digest()[:4], "big") % 4_000


def score_distributed(
    directory: str | os.PathLike[str],
    release: Release | str | Path,
    launch: Launch,
    *,
    digest: str | None = None,
    progress: Progress | None = None,
    limits: Limits | None = None,
    num_resamples: int = 0,
    seed: int = 0,
    heartbeat_s: float = HEARTBEAT_S,
    join_s: float = JOIN_S,
    finish: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any] | None:
    """Scores this process's share of a submission; in process 0, waits for the rest and makes the one result.

    The result is that of `score_submission`, byte for byte but for ``provenance``; with ``num_resamples``, that of
    `emma_jax.submissions.add_intervals` on top. Resampling is done by process 0 alone, which reads the files of OOD-avg
    for it, while the others wait: every resample is a mean over all folds.

    Args:
      directory, release, progress, limits: as for `score_submission`; the same in every process.
      launch: from `find_launch`.
      num_resamples, seed: as for `emma_jax.submissions.add_intervals`; 0 resamples give no intervals. The same in every
        process.
      digest: what the release's digest has to be, as for `load_release`.
      heartbeat_s: after how many seconds without a sign of life a process counts as lost.
      join_s: how many seconds the processes wait for each other at the start.
      finish: what process 0 does with the result (write it, say) before the others may end well.

    Returns:
      The result in process 0, None in the others.

    Raises:
      EvaluationError: as `score_submission`, in the process that met it. If another process fails or is lost, this one
        says so in one line on stderr and exits with 1.
    """
    limits = limits or Limits()
    group = _Group(launch, heartbeat_s, join_s)
    try:
        group.join()
        if not isinstance(release, Release):
            release = load_release(release, digest=digest)
        submission, release, jobs = opened(directory, release, limits)
        key = _key(submission, release, jobs, [asdict(limits), num_resamples, seed])
        mine = _shares([_size(submission, path) for _, _, path in jobs], launch.processes)[launch.process]
        scored = []
        for done, i in enumerate(mine):
            if progress is not None:
                progress(done, len(mine), jobs[i][2])
            scored.append(_scored(submission, release, jobs[i], i, limits))
        if progress is not None:
            progress(len(mine), len(mine), "done, waiting for the other processes")
        if launch.process:
            group.hand_in(scored, key)
            return None
        entries = group.collect(scored, key)
        inputs = Inputs(limits)
        result = result_document(
            submission, release, [_taken(entries[i], j, inputs) for i, j in enumerate(jobs)], inputs
        )
        if num_resamples:
            if progress is not None:
                progress(len(mine), len(mine), "resampling")
            result = add_intervals(result, submission, release, num_resamples=num_resamples, seed=seed, limits=limits)
        if finish is not None:
            finish(result)
    except BaseException as error:
        group.give_up(f"process {launch.process} of {launch.processes}: {error or type(error).__name__}")
        raise
    group.dismiss()
    return result


def _shares(sizes: Sequence[int], processes: int) -> list[list[int]]:
    """Indices of the files of each process: the largest goes to whoever has least so far."""
    load = [0] * processes
    shares: list[list[int]] = [[] for _ in range(processes)]
    for i in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        least = load.index(min(load))
        load[least] += sizes[i] + 1
        shares[least].append(i)
    return [sorted(share) for share in shares]


def _size(submission: Submission, path: str) -> int:
    return (submission.root / path).stat().st_size


def _key(submission: Submission, release: Release, jobs: Sequence[tuple[str, str, str]], options: Any) -> str:
    """Digest of everything that all processes have to agree on."""
    files = [(path, _size(submission, path)) for _, _, path in jobs]
    given = [__version__, submission.sha256, release.digest, files, options]
    return hashlib.sha256(json.dumps(given).encode()).hexdigest()


def _scored(
    submission: Submission, release: Release, job: tuple[str, str, str], index: int, limits: Limits
) -> dict[str, Any]:
    """One fold as it travels: its entry, and what was read for it."""
    task, fold, _ = job
    inputs = Inputs(limits)
    value, entry = score_fold(submission, release, task, fold, inputs)
    read = {"preds": inputs.preds, "labels": inputs.labels, "bytes": inputs.bytes}
    return {"index": index, "value": value.hex(), "entry": entry, "inputs": read}


def _taken(entry: dict[str, Any], job: tuple[str, str, str], inputs: Inputs) -> ScoredFold:
    """A fold that has travelled, as the document takes it."""
    inputs.preds |= entry["inputs"]["preds"]
    inputs.labels |= entry["inputs"]["labels"]
    inputs.count(entry["inputs"]["bytes"], job[2])
    return job[0], job[1], float.fromhex(entry["value"]), entry["entry"]


# --- the processes and their connections --------------------------------------------------------------------------


class _Group:
    """This process among the others. Threads read the connections, and end the process where another has failed."""

    def __init__(self, launch: Launch, heartbeat_s: float, join_s: float) -> None:
        self._launch, self._heartbeat_s, self._join_s = launch, heartbeat_s, join_s
        self._keys: dict[int, str] = {}
        self._lock = threading.Condition()
        self._links: dict[int, _Link] = {}
        self._entries: dict[int, list[dict[str, Any]]] = {}
        self._over = False  # the result is there, or the end has been said: nothing more to say
        self._dismissed = threading.Event()
        self._listener: socket.socket | None = None

    def join(self) -> None:
        """Listens for the others (process 0), or finds process 0 and greets it."""
        if self._launch.processes == 1:
            return
        if self._launch.process == 0:
            self._listener = _listen(self._launch)
            threading.Thread(target=self._accept, daemon=True).start()
            threading.Thread(target=self._miss, daemon=True).start()
        else:
            link = _Link(_connect(self._launch, self._join_s), self._heartbeat_s)
            self._links[0] = link
            link.send({"process": self._launch.process})
            threading.Thread(target=self._follow, args=(0, link), daemon=True).start()
        threading.Thread(target=self._live, daemon=True).start()

    def collect(self, own: list[dict[str, Any]], key: str) -> dict[int, dict[str, Any]]:
        """Process 0: the entries of all processes by job, once all have handed in."""
        with self._lock:
            self._entries[0] = own
            self._lock.wait_for(lambda: len(self._entries) == self._launch.processes)
        for index, other in self._keys.items():
            if other != key:
                text = f"process {index} was started on other files, with other options, or with another version"
                raise EvaluationError(text, argument="--distributed")
        return {e["index"]: e for entries in self._entries.values() for e in entries}

    def hand_in(self, own: list[dict[str, Any]], key: str) -> None:
        """The others: sends the entries, and returns when process 0 is done."""
        if self._launch.process:
            self._links[0].send({"entries": own, "key": key})
            self._dismissed.wait()

    def dismiss(self) -> None:
        """Process 0: the result is there, everyone may end well."""
        self._tell({"done": True})

    def give_up(self, message: str) -> None:
        """Tells the others that this process has failed; the caller says it for itself."""
        if self._listener is not None:  # also those that are about to greet, or they would find nobody and no reason
            with self._lock:
                self._lock.wait_for(lambda: self._over or len(self._links) == self._launch.processes - 1, _GREET_S)
        if not self._tell({"failed": message}):
            time.sleep(self._heartbeat_s)  # a thread has just begun to say why, and ends the process

    def _tell(self, message: dict[str, Any]) -> bool:
        """Sends the last message to all; False where the last one has been sent before."""
        with self._lock:
            if self._over:
                return False
            self._over = True
            links = list(self._links.values())
        for link in links:
            link.send(message)
        for link in links:
            link.finish()
        if self._listener is not None:
            self._listener.close()
        return True

    def _accept(self) -> None:
        assert self._listener is not None
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._greet, args=(_Link(connection, self._heartbeat_s),), daemon=True).start()

    def _greet(self, link: _Link) -> None:
        index = (link.receive() or {}).get("process")
        if not isinstance(index, int) or not 0 < index < self._launch.processes:
            link.close()  # a stranger
            return
        with self._lock:
            twice = index in self._links
            if not twice:
                self._links[index] = link
                self._lock.notify_all()
        if twice:
            self._end(f"process {index} of {self._launch.processes} was started twice")
        self._follow(index, link)

    def _follow(self, index: int, link: _Link) -> None:
        """Reads what a process says until it is done, has failed, or is lost."""
        while True:
            message = link.receive()
            if message is None:
                if not self._over and not self._dismissed.is_set():
                    self._end(f"process {index} of {self._launch.processes} ended early or fell silent")
                return
            if "failed" in message:
                self._end(str(message["failed"]))
            if "done" in message:
                self._over = True
                self._dismissed.set()
                return
            if "entries" in message:
                with self._lock:
                    self._keys[index] = str(message.get("key"))
                    self._entries[index] = message["entries"]
                    self._lock.notify_all()

    def _live(self) -> None:
        """A sign of life to whoever is connected, four times in a heartbeat timeout."""
        while not self._over:
            time.sleep(self._heartbeat_s / 4)
            with self._lock:
                links = list(self._links.values())
            for link in links:
                link.send({})

    def _miss(self) -> None:
        """Ends the wait for processes that never came."""
        time.sleep(self._join_s)
        with self._lock:
            missing = [i for i in range(1, self._launch.processes) if i not in self._links]
        if missing and not self._over:
            self._end(f"process {missing[0]} of {self._launch.processes} has not come within {self._join_s:.0f} s")

    def _end(self, message: str) -> None:
        """Says why in one line, tells the others, and ends this process."""
        if not self._tell({"failed": message}):
            return
        line = " ".join(message.split())
        sys.stderr.write(f"emma-jax: {line}; nothing was written\n")
        sys.stderr.flush()
        os._exit(1)


class _Link:
    """One connection: a JSON object a line, both ways."""

    def __init__(self, connection: socket.socket, heartbeat_s: float) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(heartbeat_s)
        self._socket = connection
        self._reader = connection.makefile("rb")
        self._lock = threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        """Sends; that nobody is there is for `receive` to find out."""
        with contextlib.suppress(OSError), self._lock:
            self._socket.sendall(_line(message))

    def receive(self) -> dict[str, Any] | None:
        """The next message; None where the other side is gone, silent, or no such process."""
        try:
            line = self._reader.readline(_LONGEST_LINE)
            message = json.loads(line) if line.endswith(b"\n") else None
        except (OSError, ValueError, RecursionError):
            return None
        return message if isinstance(message, dict) else None

    def finish(self) -> None:
        """No more will be sent."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()


def _line(message: dict[str, Any]) -> bytes:
    """A message as one line of strict JSON, in the same digits as a result document."""
    return b" ".join(dumps_strict(message).encode().split(b"\n")).strip() + b"\n"


def _listen(launch: Launch) -> socket.socket:
    try:
        return socket.create_server((launch.host, launch.port), reuse_port=False)
    except OSError as error:
        raise EvaluationError(
            f"process 0 cannot listen at {launch.host}:{launch.port} ({error.strerror or error}); pass --coordinator",
            argument="--distributed",
        ) from None


def _connect(launch: Launch, join_s: float) -> socket.socket:
    """A connection to process 0, which may not listen yet."""
    deadline = time.monotonic() + join_s
    while True:
        try:
            return socket.create_connection((launch.host, launch.port), timeout=5)
        except OSError as error:
            if time.monotonic() > deadline:
                raise EvaluationError(
                    f"process 0 is not at {launch.host}:{launch.port} ({error.strerror or error})",
                    argument="--distributed",
                ) from None
            time.sleep(0.2)
