"""The examples run as a reader runs them, and their claims hold: each compares bits itself and exits 1 if they differ.

Oracle for the number of compilations: the compiled functions' caches, and JAX's own count of backend compilations."""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import jax
import jax.monitoring
import numpy as np
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name, *arguments):
    """Standard output of an example, started on its own with no forced devices; it has to end with 0."""
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_train_aoa():
    """The file's score is that of the materialised predictions bit for bit, the fused one is within 1e-6, and training
    beats the floor of the sector (30 degrees) by far."""
    out = run("train_aoa.py", "--steps", "60", "--size", "300")
    file, memory, fused = (float(x) for x in re.findall(r"(?:on the file|in memory|compiled step) +(\d\S+)", out))
    assert file == memory and abs(fused - file) <= 1e-6 * file
    assert file < 15
    assert "compilations: step 1, validate 1" in out


def test_the_train_step_never_recompiles_and_moves_nothing():
    """From the second step and validation on, five more of each compile nothing, and nothing leaves or enters the
    device but what is asked for."""
    example = runpy.run_path(str(EXAMPLES / "train_aoa.py"))
    rng = np.random.default_rng(0)
    x, y = (jax.device_put(v) for v in (rng.normal(size=(256, 72)).astype(np.float32), np.zeros(256, np.float32)))
    state = example["init"](example["init_network"](0, (72, 16, 2)))
    compiled = []

    def count(event, duration, **_):
        if "backend_compile" in event:
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(count)
    try:
        for i in range(6):
            if i == 1:
                assert compiled, "the count is not working"
                compiled.clear()
            with jax.transfer_guard("disallow" if i else "allow"):
                old = state
                state = example["step"](state, x, y)
                assert all(leaf.is_deleted() for leaf in jax.tree.leaves(old))
                state, _, _ = example["validate"](state, x, y)
    finally:
        jax.monitoring.unregister_event_duration_listener(count)
    assert not compiled
    assert int(state["best"].updates) == 6


@pytest.mark.parametrize("task", ["E-LOC-AOA", "E-ID-AMC", "E-LOC-LOS"])
def test_sharded_eval(task):
    """One device, update and all_reduce over eight, and a NamedSharding agree, and only sums of the state travel."""
    out = run("sharded_eval.py", "--samples", "8000", "--tasks", task)
    assert out.count("agree: True") == 1 and out.count("moved: all-reduce of") == 1


BLOCKS = re.findall(r"```python\n(.*?)```", (EXAMPLES.parent / "docs" / "training.md").read_text(), re.S)


@pytest.mark.parametrize("block", range(len(BLOCKS)))
def test_the_code_of_the_docs_page(block):
    """Every Python block of docs/training.md runs by itself and prints numbers that are finite."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(BLOCKS[block], f"docs/training.md block {block}", "exec"), {"__name__": "docs"})
    numbers = [float(x) for x in out.getvalue().split()]
    assert numbers and np.all(np.isfinite(numbers))
    if block:  # shards: the two ways to the number
        assert numbers[0] == numbers[1]


@pytest.mark.slow
def test_train_aoa_in_full():
    """600 steps bring the held-out environment below 4 degrees."""
    out = run("train_aoa.py")
    assert float(re.findall(r"on the file +(\S+)", out)[0]) < 4
