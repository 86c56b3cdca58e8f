"""Every float32 distance enters the sum rounded once, to the nearest 2^-46 degrees. Oracle: exact rationals; tolerance
half of that unit."""

from __future__ import annotations

from fractions import Fraction

import jax
import numpy as np
import pytest

import emma_jax as emma
from emma_jax.numerics import limbs

N = 256


def pairs(kind: str, period: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    small = rng.normal(size=N) * 10.0 ** -rng.integers(2, 9, N)
    turns = rng.integers(-4, 5, N)
    p, t = {
        "around the circle": (rng.uniform(-360, 360, N), rng.uniform(0, 360, N)),
        "a tiny angle": (rng.uniform(-360, 360, N), small),
        "about a turn": (period * turns + small, rng.permutation(small)),
        "about half a turn": (period * (turns + 0.5) + small, rng.permutation(small)),
        "a half turn and a bit": (period * (turns + 0.5), small),
        "both tiny": (small, rng.permutation(small) / 64),
        "many turns": (rng.uniform(-8e3, 8e3, N), small),
        "very many turns": (rng.uniform(-1e8, 1e8, N), rng.uniform(0, 360, N)),
        "large and close": (1e7 + turns * 100.0, 1e7 + rng.uniform(0, 360, N)),
    }[kind]
    return np.stack([p, t]).astype(np.float32)


KINDS = ["around the circle", "a tiny angle", "about a turn", "about half a turn", "a half turn and a bit", "both tiny"]
KINDS += ["many turns", "very many turns", "large and close"]


@pytest.mark.parametrize("period", [360, 180])
def test_one_rounding(period):
    """Each sample alone, and their sum by one kernel, whose limbs are those of the samples added."""
    metric = emma.metrics.MeanAngularError(period=period)
    kernel = jax.jit(lambda p, t: metric.update(metric.init(), p, t)["total"])
    single = jax.jit(jax.vmap(lambda p, t: kernel(p[None], t[None])))
    for kind in KINDS:
        p, t = pairs(kind, period)
        units = [limbs.to_int(x) for x in np.asarray(single(p, t))]
        for a, b, got in zip(p, t, units):
            turned = abs(Fraction(float(a)) - Fraction(float(b))) % period
            want = min(turned, period - turned)
            assert abs(Fraction(got, 2**78) - want) <= Fraction(1, 2**47), (kind, a, b)
        assert limbs.to_int(np.asarray(kernel(p, t))) == sum(units), kind
