"""What the angle kernel reads and writes: masked samples leave no trace, narrow angles are not widened in memory."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import emma_jax as emma


@pytest.mark.parametrize("size", [300, 20_001])
@pytest.mark.parametrize("weighted", [False, True])
def test_masked_samples_leave_no_trace(size, weighted):
    """Of NaN, infinity and far angles under the mask. Oracle: the same kernel on the samples that are left; every
    bit of the state."""
    rng = np.random.default_rng(2)
    p, t = rng.uniform(-400, 400, (2, size)).astype(np.float32)
    where, w = rng.random(size) < 0.7, rng.integers(0, 1 << 20, size).astype(np.uint32)
    p[~where] = rng.choice(np.array([np.nan, np.inf, 1e30, -7e5], np.float32), size - where.sum())
    metric = emma.metrics.MeanAngularError()
    update = jax.jit(lambda p, t, where, w: metric.update(metric.init(), p, t, where=where, weights=w))
    got = update(p, t, where, w if weighted else None)
    want = update(p[where], t[where], None, w[where] if weighted else None)
    assert {k: v.tolist() for k, v in got.items()} == {k: v.tolist() for k, v in want.items()}


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.int32])
def test_narrow_angles_are_not_written_out_as_floats(dtype):
    """No instruction between the kernels of the compiled update has N float32 values. Oracle: the optimised HLO."""
    size = 30_011
    metric = emma.metrics.MeanAngularError()
    x = jax.ShapeDtypeStruct((size,), dtype)
    text = jax.jit(lambda p, t: metric.update(metric.init(), p, t)).lower(x, x).compile().as_text()
    entry = text[text.index("\nENTRY ") :]
    assert "conditional(" in entry
    assert f"f32[{size}]" not in entry
