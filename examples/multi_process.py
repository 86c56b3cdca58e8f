"""Scores predictions that lie with several processes, as on a cluster: each has its own, all get the one number.

    python examples/multi_process.py                  # starts two processes and compares

The workers find each other through `jax.distributed` (gloo on CPU; on a cluster the launcher's environment replaces the
three arguments of `initialize`). Worker i scores its own batches, of a number and size that no other worker needs to
know, and the states, a few integers, are added up over a mesh of one device per process. The parent scores all samples
alone and compares the bits.

If a worker dies, the others cannot finish. The heartbeat timeout says after how long they notice: then they end with a
non-zero code, and the parent says so in one line and ends as well.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from functools import reduce
from pathlib import Path
from typing import Any

HEARTBEAT_S = 10  # JAX's own is 100
TASK = "E-ID-AMC"
NUM_CLASSES = 6


def batches(process: int) -> list[tuple[Any, Any]]:
    """What one process holds: here drawn, elsewhere read from its own files."""
    import numpy as np

    rng = np.random.default_rng(process)
    sizes = [1000 + 300 * process] * (3 + process)
    labels = [rng.integers(0, NUM_CLASSES, n) for n in sizes]
    return [(rng.normal(size=(len(y), NUM_CLASSES)) + 1.5 * np.eye(NUM_CLASSES)[y], y) for y in labels]


def local_state(process: int) -> Any:
    """(task, state of one process's batches): no communication."""
    import emma_jax as emma

    task = emma.get_task(TASK, num_classes=NUM_CLASSES)
    state = task.init()
    for preds, labels in batches(process):
        state = task.update(state, preds, labels)
    return task, state


def worker(process: int, processes: int, address: str, wait_s: float, folder: Path) -> None:
    """One of the processes: writes its result into ``folder``."""
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        address,
        processes,
        process,
        heartbeat_timeout_seconds=HEARTBEAT_S,
        initialization_timeout=60,
        shutdown_timeout_seconds=2 * HEARTBEAT_S,  # at exit a process waits for the others: not the default 300
    )
    import numpy as np
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    from emma_jax.io import atomic_write

    task, state = local_state(process)
    print(f"process {process} has scored its own", flush=True)
    time.sleep(wait_s)  # time in which a test can end one of them

    # One device of each process in a row; each process contributes its state as one row of a global array.
    first = [min((d for d in jax.devices() if d.process_index == i), key=lambda d: d.id) for i in range(processes)]
    mesh = jax.sharding.Mesh(np.array(first), ("process",))
    rows = NamedSharding(mesh, P("process"))
    stacked = jax.tree.map(lambda x: jax.make_array_from_process_local_data(rows, np.asarray(x)[None]), state)

    def add(part: Any) -> Any:
        return task.all_reduce(jax.tree.map(lambda x: x[0], part), "process")

    total = jax.jit(jax.shard_map(add, mesh=mesh, in_specs=P("process"), out_specs=P()))(stacked)
    scores = task.compute(jax.tree.map(lambda x: np.asarray(x.addressable_data(0)), total))
    value = float(scores.headline)
    validity = scores.validity[task.headline.name].as_dict()
    result = {"process": process, "value": value.hex(), **validity}
    atomic_write(folder / f"{process}.json", json.dumps(result).encode())
    jax.distributed.shutdown()


def free_port() -> int:
    """A port of this machine that nothing listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def watch(workers: list[subprocess.Popen[bytes]]) -> int | None:
    """Waits for all; the index of the first that ended with an error, after which the others are given the heartbeat
    timeout and some seconds to notice and are then ended."""
    while True:
        codes = [w.poll() for w in workers]
        failed = next((i for i, c in enumerate(codes) if c), None)
        if failed is not None:
            deadline = time.monotonic() + 2 * HEARTBEAT_S + 5
            for w in workers:
                try:
                    w.wait(max(deadline - time.monotonic(), 0.1))
                except subprocess.TimeoutExpired:
                    w.kill()
                    w.wait()
            return failed
        if all(c == 0 for c in codes):
            return None
        time.sleep(0.05)


def main(arguments: list[str] | None = None) -> int:
    """Starts the workers and compares their results with a single process; 0 if all have its bits."""
    parser = argparse.ArgumentParser(description="Score predictions that lie with several processes.")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--wait", type=float, default=0.0, help="seconds before the states are added up")
    parser.add_argument("--verbose", action="store_true", help="show what the workers write to stderr")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("--results", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker is not None:
        worker(options.worker, options.processes, options.address, options.wait, Path(options.results))
        return 0

    with tempfile.TemporaryDirectory() as folder:
        own = ["--processes", str(options.processes), "--address", f"127.0.0.1:{free_port()}", "--results", folder]
        command = [sys.executable, __file__, *own, "--wait", str(options.wait)]
        environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
        # What the runtime writes when it gives up is a page of addresses; the line below says what matters.
        stderr = None if options.verbose else subprocess.DEVNULL
        workers = [
            subprocess.Popen([*command, "--worker", str(i)], env=environment, stderr=stderr)
            for i in range(options.processes)
        ]
        print("workers:", *(w.pid for w in workers), flush=True)
        failed = watch(workers)
        if failed is not None:
            codes = ", ".join(f"{i}: {w.returncode}" for i, w in enumerate(workers))
            print(f"worker {failed} ended early, nothing was scored (exit codes {codes})", file=sys.stderr)
            return 1
        results = [json.loads((Path(folder) / f"{i}.json").read_text()) for i in range(options.processes)]

    task, states = local_state(0)[0], [local_state(i)[1] for i in range(options.processes)]
    alone = task.compute(reduce(task.merge, states)).headline
    for r in results:
        value = float.fromhex(r["value"])
        print(f"process {r['process']}: {task.headline.name} {value!r} of {r['n_used']} samples")
    same = all(float.fromhex(r["value"]) == alone for r in results)
    print(f"one process alone:      {alone!r}  equal bit for bit: {same}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
