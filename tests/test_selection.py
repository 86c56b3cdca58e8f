"""Medians and quantiles by selection. Oracle: a sorted list of the multiset."""

from __future__ import annotations

import functools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from emma_jax.numerics import keys, limbs, selection
from emma_jax.numerics.sampling import spread

MIDDLE = jax.jit(selection.middle_keys)


def middle_two(values, weights=None, used=None):
    """The two middle entries of the multiset, by sorting it."""
    w = np.ones(len(values), int) if weights is None else np.asarray(weights, int)
    w = w if used is None else w * np.asarray(used, int)
    ordered = np.sort(np.repeat(values, w))
    return ordered[[(len(ordered) - 1) // 2, len(ordered) // 2]]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(width=32, allow_nan=False), st.integers(0, 5), st.booleans()), min_size=7, max_size=7
    ).filter(lambda t: any(w and u for _, w, u in t))
)
def test_middle(entries):
    """Any floats, subnormals and infinities included, with masks and weights: the sorted multiset, traced and host."""
    x, w, used = (np.array([e[i] for e in entries]) for i in range(3))
    x, w = x.astype(np.float32), w.astype(np.uint32)
    k = keys.order_key(x)
    want = middle_two(x, w, used)
    assert np.array_equal(keys.key_value(np.asarray(MIDDLE(k, used, w)), np.float32), want)
    host = selection.middle_keys_host(k.copy(), 0, np.where(used, w, 0))
    assert np.array_equal(keys.key_value(host, np.float32), want)


@pytest.mark.parametrize("n", [1, 2, 3, 1000, 1001, 70_000])
def test_long(n):
    """Unweighted, with ties: NumPy's median of float32; keys that do not count are the largest on the host."""
    x = np.round(np.random.default_rng(n).normal(size=n), 2).astype(np.float32)
    k = keys.order_key(x)
    want = middle_two(x)
    assert np.array_equal(keys.key_value(np.asarray(MIDDLE(k, None)), np.float32), want)
    padded = np.concatenate([k, np.full(5, keys.nan_key(k), np.uint32)])
    assert np.array_equal(keys.key_value(selection.middle_keys_host(padded, n), np.float32), want)
    assert np.isclose(np.mean(want.astype(np.float64)), np.median(x.astype(np.float64)), rtol=0, atol=1e-12)


N = 70_001
LONG = jax.jit(lambda k: selection.middle_keys(k, None))
MASKED = jax.jit(lambda k, used: selection.middle_keys(k, used))


def _keys(kind):
    """Keys of many sorts of scores: what a bracket has to survive."""
    rng = np.random.default_rng(7)
    x = rng.random(N, dtype=np.float32)
    if kind in ("sample fooled", "nested"):  # what is sampled is high, what is not is low
        x[spread(selection._SAMPLE, N)] += 5
    scores = {
        "uniform": x,
        "about zero": rng.normal(size=N),  # the bracket spans half of all floats
        "decades": np.ldexp(1 + x, rng.integers(-120, 120, N)),
        "sorted": np.sort(x),
        "constant": np.full(N, 3.0),
        "two values": np.where(x < 0.5, -1.0, 2.0),
        "halves": np.where(np.arange(N) < N // 2, -1.0, 2.0),  # both middles of an even number
        "sample fooled": x,
        "ties in the middle": np.where(x < 0.3, x, np.where(x < 0.7, 0.5, x)),
        "neighbours": np.nextafter(np.float32(1), np.where(x < 0.5, np.float32(0), np.float32(2))),
        "infinities": np.where(x < 0.4, -np.inf, np.where(x < 0.6, rng.normal(size=N), np.inf)),
        "subnormal": np.round(100 * x - 50) * np.float32(1e-45),
        "zeros of both signs": np.where(x < 0.3, -1.0, np.where(x < 0.5, -0.0, 0.0)),
        # The middle is next to the low end of every bracket, and the sample says nothing.
        "nested": np.asarray(5.0 ** np.minimum(13.3, 13.3 * x.astype(float)), np.uint32).view(np.float32),
    }[kind]
    return keys.order_key(scores.astype(np.float32))


KINDS = [
    *("uniform", "about zero", "decades", "sorted", "constant", "two values", "halves", "sample fooled"),
    *("ties in the middle", "neighbours", "infinities", "subnormal", "zeros of both signs", "nested"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_bracketed(kind):
    """So many keys that a sample says where to look, in kernel and host, all of them, masked, and hardly any left: the
    two middle ones of the sorted keys."""
    k = _keys(kind)
    assert np.array_equal(LONG(k), middle_two(k))
    assert np.array_equal(selection.middle_keys_host(k.copy(), N), middle_two(k))
    rng = np.random.default_rng(8)
    for share in (0.9, 0.3, 0.001, 2e-5):
        used = rng.random(N) < share
        used[N // 3] = True
        want = middle_two(k[used])
        assert np.array_equal(MASKED(k, used), want)
        rest = np.where(used, k, np.uint32(keys.nan_key(k)))
        assert np.array_equal(selection.middle_keys_host(rest, int(used.sum())), want)


def test_pivots_close_every_gap():
    """Whatever the counts say, pivots lie below the upper end and leave no gap of more than a fifth, so that
    fourteen passes are enough for all keys. Oracle: integers; float32 may misplace a pivot by 2^-22, truncated."""
    rng = np.random.default_rng(9)
    low = rng.integers(0, 2**32 - 1, 4000) >> rng.integers(0, 32, 4000)
    width = np.minimum(1 + (rng.integers(0, 2**32, 4000) >> rng.integers(0, 32, 4000)), 2**32 - 1 - low)
    inside = 1 + (rng.integers(0, 2**32 - 1, 4000) >> rng.integers(0, 32, 4000))
    rank = rng.integers(0, inside)
    columns = [np.asarray(x, np.uint32) for x in (low, low + width, rank, inside)]
    pivots = np.asarray(jax.vmap(selection._pivots)(*columns)).astype(np.int64)
    assert np.all(pivots >= low[:, None]) and np.all(pivots < (low + width)[:, None])
    ends = np.sort(np.column_stack([low - 1, pivots, low + width]), axis=1)
    assert np.all(np.diff(ends, axis=1) <= (width * (1 / 5 + 2.0**-22) + 2)[:, None])


@pytest.mark.parametrize("n", [2049, 8193, 12_289, 14_000])
def test_search(n):
    """Just above what is sorted, in one row, several, or filled up: keys of any spread and any ties, any count, all the
    rest NaN. Oracle: the sorted keys."""
    search = jax.jit(lambda k, count: selection.middle_keys(k, None, None, count))
    rng = np.random.default_rng(n)
    for bits in (0, 1, 2, 5, 9, 13, 17, 22, 27, 31, 32):
        low = int(rng.integers(0, 2**32 - 2**bits + 1))
        k = np.minimum(low + rng.integers(0, 2**bits, n), 2**32 - 2).astype(np.uint32)
        for count in (n, n - 1, int(rng.integers(1, n)), 2, 1):
            k[count:] = keys.nan_key(k)
            assert np.array_equal(search(rng.permutation(k), np.uint32(count)), middle_two(k[:count])), (bits, count)


def test_heavy_weights():
    """Weights that sum to nearly 2^48: ranks beyond 32 bits are exact."""
    x = np.float32([3, 1, 2, 5, 4])
    w = np.uint32([2**32 - 1, 2**32 - 1, 1, 2**32 - 1, 2**32 - 1])
    k = np.tile(keys.order_key(x), 13_000)
    got = keys.key_value(np.asarray(MIDDLE(k, None, np.tile(w, 13_000))), np.float32)
    assert got.tolist() == [3.0, 3.0]


def test_float64_keys():
    """64-bit keys take four passes: exact on scores that collide in float32."""
    x = 1 + np.arange(1001) * 1e-12
    np.random.default_rng(0).shuffle(x)
    with jax.enable_x64(True):
        got = keys.key_value(np.asarray(jax.jit(selection.middle_keys)(keys.order_key(x), None)), np.float64)
    assert np.array_equal(got, middle_two(x))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=11, max_size=11), st.fractions(0, Fraction(99, 100), max_denominator=1000))
def test_quantile(values, share):
    """The first key at which more than a share of the total is counted, as rationals."""
    (got,) = selection.select(
        jnp.asarray(values, jnp.uint32), None, [selection.quantile(share.numerator, share.denominator)]
    )
    want = next(v for v in sorted(values) if sum(x <= v for x in values) > share * 11)
    assert int(got) == want


def test_vmap():
    """Row by row under vmap, sorted and searched, rows that need few passes among those that need many."""
    for n in (50, 5000):
        x = np.random.default_rng(3).normal(size=(4, n)).astype(np.float32)
        x[1] = 2
        got = jax.jit(jax.vmap(lambda k: selection.middle_keys(k, None)))(keys.order_key(x))
        assert np.array_equal(keys.key_value(np.asarray(got), np.float32), [middle_two(r) for r in x])


def test_transformed_search():
    """Under scan, in a gradient's auxiliary output, and device by device in a shard_map: the sorted rows."""
    x = np.random.default_rng(5).normal(size=(8, 3000)).astype(np.float32)
    want = [middle_two(r) for r in x]

    def middle(v):
        return keys.key_value(selection.middle_keys(keys.order_key(v), None), np.float32)

    scanned = jax.jit(lambda x: jax.lax.scan(lambda c, v: (c, middle(v)), 0, x)[1])(x)
    assert np.array_equal(scanned, want)
    slope, aux = jax.jit(jax.grad(lambda v: (jnp.sum(v * v), middle(v)), has_aux=True))(x[0])
    assert np.array_equal(aux, want[0]) and np.array_equal(slope, 2 * x[0])
    mesh = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Auto,))
    sharded = jax.jit(jax.shard_map(lambda v: middle(v[0])[None], mesh=mesh, in_specs=P("d"), out_specs=P("d")))(x)
    assert np.array_equal(sharded, want)


def test_export():
    """The search lowers for every platform."""
    from jax import export

    k = jax.ShapeDtypeStruct((70_000,), jnp.uint32)
    assert export.export(LONG, platforms=("cpu", "cuda", "tpu"))(k).out_avals[0].shape == (2,)


def test_buffer():
    """Merged in any order: the same sorted buffer; more keys than it holds sets overflow; gathered over 8 devices."""
    rng = np.random.default_rng(4)
    k = keys.order_key(np.round(rng.normal(size=64), 1).astype(np.float32))
    w, used = rng.integers(0, 3, 64).astype(np.uint32), rng.random(64) < 0.8
    fill = jax.jit(functools.partial(selection.fill_buffer, 80))
    whole = fill(k, used, w)
    parts = [fill(k[i : i + 16], used[i : i + 16], w[i : i + 16]) for i in (32, 0, 48, 16)]
    merged = functools.reduce(functools.partial(selection.buffer_merge, 80), parts)
    assert all(np.array_equal(merged[name], whole[name]) for name in whole)
    real = np.asarray(whole["weight"]) > 0
    assert np.array_equal(np.asarray(whole["keys"])[real], np.sort(k[used & (w > 0)]))
    small = selection.fill_buffer(10, jnp.asarray(k), None)
    assert limbs.to_int(small["overflow"]) == 1 and limbs.to_int(whole["overflow"]) == 0
    mesh = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Auto,))

    @jax.jit
    @functools.partial(jax.shard_map, mesh=mesh, in_specs=P("d"), out_specs=P())
    def gathered(k, used, w):
        return selection.buffer_all_reduce(80, selection.fill_buffer(80, k, used, w), "d")

    assert all(np.array_equal(v, whole[name]) for name, v in gathered(k, used, w).items())


def test_middle_bins():
    """Bins of the two middle entries of a histogram, on the host and traced, for a stack of two."""
    counts = np.zeros((2, selection.BINS, 2), np.uint32)
    counts[0, [5, 9], 0] = 3
    counts[1, 7, 1] = 1
    for xp in (np, jnp):
        low, high = selection.middle_bins(xp.asarray(counts), xp)
        assert np.asarray(low).tolist() == [5, 7] and np.asarray(high).tolist() == [9, 7]
