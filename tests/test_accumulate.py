"""Exact sums of floats of unknown range, scaled floats, energies. Oracle: rationals, extended precision."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from emma_jax.numerics import accumulate, energies, floats, limbs

SUM = jax.jit(lambda v, e: accumulate.sum_scaled({"a": (v, e)})["a"])
WEIGHTED = jax.jit(lambda v, e, w: accumulate.sum_scaled({"a": (v, e)}, w)["a"])
# The bins, as the module's header describes them: 64 exponents each, one centred on 1, units 2^-55 below the lowest.
LOWEST = -32 - 64 * 8


def value(state):
    """An accumulator as an exact rational."""
    return sum(
        (
            Fraction(limbs.to_int(row)) * Fraction(2) ** (LOWEST + 64 * i - 55)
            for i, row in enumerate(np.asarray(state))
        ),
        Fraction(0),
    )


def exact(v, e, w=None):
    w = [1] * len(v) if w is None else w
    return sum((Fraction(float(a)) * Fraction(2) ** int(b) * int(c) for a, b, c in zip(v, e, w)), Fraction(0))


positive = st.floats(1.0, 1e6, width=32)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(positive | st.just(0.0), st.integers(-250, 250), st.integers(0, 2**32 - 1)), max_size=9))
def test_sum_is_exact(terms):
    """Any terms from 2^-250 to 2^270 with any weights: the rational sum, in limbs below 2^16."""
    v = np.array([t[0] for t in terms] + [0.0] * (9 - len(terms)), np.float32)
    e, w = (np.array([t[i] for t in terms] + [0] * (9 - len(terms))) for i in (1, 2))
    state = SUM(v, e.astype(np.int32))
    assert value(state) == exact(v, e)
    assert value(WEIGHTED(v, e.astype(np.int32), w.astype(np.uint32))) == exact(v, e, w)
    assert int(np.asarray(state)[:, :-1].max(initial=0)) < 1 << 16


@pytest.mark.parametrize("n", [1, 16_384, 16_385, 70_001])
def test_long_sums(n):
    """Lengths about the chunk of the reduction, heavy weights: the rational sum (as integers)."""
    rng = np.random.default_rng(n)
    v, e = rng.uniform(1, 2, n).astype(np.float32), rng.integers(-60, 60, n).astype(np.int32)
    scaled = [int(float(a) * 2**23) << int(b + 60) for a, b in zip(v, e)]
    assert value(SUM(v, e)) * Fraction(2) ** 83 == sum(scaled)
    w = np.full(n, 2**31 - 1, np.uint32)
    assert value(WEIGHTED(v, e, w)) * Fraction(2) ** 83 == sum(scaled) * (2**31 - 1)


def test_order_and_split_leave_the_same_bits():
    """Any order, any split merged by limbs: the identical state."""
    rng = np.random.default_rng(0)
    v, e = rng.uniform(1, 9, 500).astype(np.float32), rng.integers(-200, 200, 500).astype(np.int32)
    whole = np.asarray(SUM(v, e))
    order = rng.permutation(500)
    assert np.array_equal(SUM(v[order], e[order]), whole)
    parts = limbs.add(SUM(v[:200], e[:200]), SUM(v[200:], e[200:]))
    assert np.array_equal(parts, whole)


def test_float64_terms():
    """With 64-bit types all 53 bits of a term count, and the sum is the rational one."""
    rng = np.random.default_rng(1)
    v, e = rng.uniform(1, 2, 300), rng.integers(-400, 400, 300).astype(np.int32)
    with jax.enable_x64(True):
        state = np.asarray(jax.jit(lambda v, e: accumulate.sum_scaled({"a": (v, e)})["a"])(v, e))
    assert value(state) == exact(v, e)


@pytest.mark.parametrize("exponent", [-540, -300, -40, 0, 31, 33, 200, 470])
def test_total(exponent):
    """Finalised in float64 and float32: within 2 ulp of the exact sum; as a plain float where it fits."""
    v = np.float32([1.5, 1.25, 1.0009765625])
    e = np.int32([exponent, exponent - 3, exponent - 70])
    state = np.asarray(SUM(v, np.maximum(e, -544)))
    for xp, ulp in ((np, 2**-51), (jnp, 2**-22)):
        m, k = accumulate.total(state, xp)
        got = Fraction(float(m)) * Fraction(2) ** int(k)
        assert abs(got / value(state) - 1) < ulp
    if abs(exponent) < 100:
        assert abs(accumulate.as_float(state, np) / float(value(state)) - 1) < 1e-15
    assert accumulate.as_float(np.zeros(accumulate.SHAPE, np.uint32), np) == 0


def test_ratio_of_totals():
    """log2 of a quotient far outside float32, and of zero; NaN for 0/0."""
    big, small, none = (
        accumulate.total(np.asarray(SUM(np.float32([v]), np.int32([e]))), np)
        for v, e in ((1.0, 400), (1.0, -500), (0.0, 0))
    )
    assert accumulate.log2_ratio(big, small, np) == 900
    assert accumulate.log2_ratio(none, small, np) == -math.inf and np.isnan(accumulate.log2_ratio(small, none, np))


def test_range():
    """in_range says what the accumulator can hold; below 2^-544 a term is zero."""
    with jax.enable_x64(True):
        x = jnp.asarray([1.0, np.inf, np.nan, 1.0, 1.0])
        e = jnp.asarray([0, 0, 0, 479, 480], jnp.int32)
        assert accumulate.in_range((x, e)).tolist() == [True, False, False, True, False]
        assert value(np.asarray(SUM(np.float32([1.0]), np.int32([-545])))) == 0


def test_vmap_and_shard_map():
    """The same integers row by row under vmap, and summed over 8 devices."""
    rng = np.random.default_rng(2)
    v, e = rng.uniform(1, 2, (8, 40)).astype(np.float32), rng.integers(-150, 150, (8, 40)).astype(np.int32)
    rows = np.asarray(jax.jit(jax.vmap(lambda a, b: accumulate.sum_scaled({"a": (a, b)})["a"]))(v, e))
    for i in range(8):
        assert np.array_equal(rows[i], SUM(v[i], e[i]))
    mesh = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Auto,))

    @jax.jit
    @functools.partial(jax.shard_map, mesh=mesh, in_specs=(P("d"), P("d")), out_specs=P())
    def total(a, b):
        return limbs.normalize(jax.lax.psum(accumulate.sum_scaled({"a": (a[0], b[0])})["a"], "d"))

    assert np.array_equal(total(v, e), SUM(v.reshape(-1), e.reshape(-1)))


# --- mean of logarithms -----------------------------------------------------------------------------------------


def test_log2_sum():
    """Sum of log2 over scaled floats, positive and negative: 1e-6 of fsum from float32, 1e-8 from float64."""
    rng = np.random.default_rng(3)
    v, e = rng.uniform(1e-3, 1e3, 4000).astype(np.float32), rng.integers(-300, 300, 4000).astype(np.int32)
    v[:3] = [1.0, np.nextafter(np.float32(2), np.float32(0)), np.nextafter(np.float32(1), np.float32(0))]
    want = math.fsum(math.log2(float(a)) + int(b) for a, b in zip(v, e))
    count = limbs.from_int(4000, 2)
    for wide, tol in ((False, 4000 * 1e-7), (True, 4000 * 1e-9)):
        with jax.enable_x64(wide):
            words = jax.jit(lambda v, e: accumulate.log2_words((v, e), jnp.ones(v.shape, bool)))
            got = limbs.sum_words(words(v.astype(np.float64) if wide else v, e))
            assert abs(accumulate.log2_total(np.asarray(got), count, np) - want) < tol


# --- scaled floats ----------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_lift(x):
    """x 2^92 exactly, subnormals included, whatever the device flushes."""
    got = float(LIFT(np.float32([x]))[0])
    want = float(np.float32(x)) * 2.0**92
    assert got == want if abs(want) < 3.4e38 else math.isinf(got)


LIFT = jax.jit(lambda x: floats.lift(x, 92))


def test_root_and_powers():
    """Roots of scaled floats from 2^-300 to 2^300; powers of two from their exponents."""
    e = np.arange(-300, 301, dtype=np.int32)
    v = np.linspace(1, 4, e.size).astype(np.float32)
    with np.errstate(over="ignore"):
        want = np.sqrt(v.astype(np.float64)) * 2.0 ** (e / 2)
        got = np.asarray(jax.jit(lambda v, e: floats.root((v, e)))(v, e)).astype(np.float64)
    normal = (want > 1.2e-38) & (want < 3.4e38)
    assert np.allclose(got[normal], want[normal], rtol=3e-7, atol=0) and np.all(got[want > 3.5e38] == np.inf)
    assert floats.power_of_two(jnp.asarray([-126, 0, 127]), jnp.float32).tolist() == [2.0**-126, 1.0, 2.0**127]
    assert floats.exponent_of(jnp.float32([1, 1.5, -2, 0.75, 0, 1e-45])).tolist() == [0, 0, 1, -1, -127, -127]


@pytest.mark.parametrize("columns", [1, 6, 32, 33, 500, 5000])
def test_row_energies(columns):
    """Energies of rows from 1e-45 to 1e38, alone and mixed in a batch: 1e-6 relative of extended precision; bad rows
    are flagged, zero ones are exact zeros."""
    rng = np.random.default_rng(columns)
    run = jax.jit(energies.error_and_reference)
    for spread in (0.0, 40.0):
        scale = 10.0 ** rng.uniform(-spread - 4, spread - 3, (60, 1))
        t = (rng.normal(size=(60, columns)) * scale).astype(np.float32)
        p = (t + 0.1 * scale * rng.normal(size=t.shape)).astype(np.float32)
        if spread:
            p[3], t[4], p[5], t[5], p[6, 0], t[7, 0] = t[3], 0, 0, 0, np.nan, np.inf
        (error, e), (reference, k), finite = (jax.tree.map(np.asarray, x) for x in run(p, t, None))
        with np.errstate(invalid="ignore", over="ignore"):
            wide = [np.square(x.astype(np.longdouble)).sum(1) for x in (p.astype(np.longdouble) - t, t)]
        assert finite.tolist() == np.isfinite(wide[0] + wide[1]).tolist()
        for got, want in zip(
            (np.ldexp(error.astype(np.longdouble), e), np.ldexp(reference.astype(np.longdouble), k)), wide
        ):
            assert np.all(np.abs(got - want)[finite] <= 1e-6 * want[finite])


WORDS = st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 60)), max_size=12)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**79), WORDS, st.integers(0, 2**70), st.sampled_from([np, jnp]))
def test_words_are_added_to_a_number(number, words, less, xp):
    """`add_words` is exact, and its limbs are the normalized ones. Oracle: Python integers."""
    total = number + sum(w << bits for w, bits in words)
    less = min(less, total)
    parts = [(xp.asarray([w], xp.uint32), bits) for w, bits in words]
    got = limbs.add_words(xp.asarray(limbs.from_int(number, 6))[None], parts, less)
    assert np.array_equal(got[0], limbs.from_int(total - less, 6))


@pytest.mark.parametrize("num", [2, 4, 5, 8, 11, 32])
@pytest.mark.parametrize("add", [limbs.add, jax.jit(limbs.add)], ids=["NumPy", "jit"])
def test_carries_run_through_full_limbs(num, add):
    """Sums of normalized numbers, many of whose limbs are full or nearly so. Oracle: Python integers."""
    rng = np.random.default_rng(num)
    pairs = rng.choice([0, 1, 0x7FFF, 0x8000, 0xFFFE, 0xFFFF], (2, 500, num)).astype(np.uint32)
    pairs[..., -1] = rng.choice([0, 1, 0xFFFF, 0x10000, 2**31 - 1], (2, 500))
    got = np.asarray(add(*pairs))
    assert np.array_equal(limbs.to_ints(got), limbs.to_ints(pairs[0]) + limbs.to_ints(pairs[1]))
    assert got.dtype == np.uint32 and np.all(got[..., :-1] < 1 << 16)
