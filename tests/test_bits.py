"""The state has the same bits for any length, batch split, order, padding and chunking, for every summand; and limbs
are Python's integers. Oracle: integer equality of every leaf, Python ints for limbs."""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emma_jax as emma
from emma_jax import checks
from emma_jax.numerics import limbs
from emma_jax.numerics.histogram import bin_limbs

m = emma.metrics
RNG = np.random.default_rng(0)
N = 240  # with the padding below, one kernel of 256 rows
ANGLES = (RNG.uniform(-1000, 1000, (2, N))).astype(np.float32)
FINE = RNG.uniform(-1000, 1000, (2, N))
SCORES = RNG.normal(size=(N, 3)).astype(np.float32)
LABELS = RNG.integers(0, 3, N).astype(np.int32)
BINARY = (LABELS > 0).astype(np.int32)
WEIGHTS = RNG.integers(0, 5, N).astype(np.uint32)
WEIGHTS[::37] = 70_000
CASES = {
    "angle": (m.MeanAngularError(), ANGLES[0], ANGLES[1]),
    "angle-180": (m.MeanAngularError(period=180), ANGLES[0], ANGLES[1]),
    "angle-rad": (m.MeanAngularError(unit="rad"), ANGLES[0] / 64, ANGLES[1] / 64),
    "angle-f64": (m.MeanAngularError(), FINE[0], FINE[1]),
    "angle-bf16": (m.MeanAngularError(), ANGLES[0].astype(jnp.bfloat16), ANGLES[1]),
    "balanced": (m.BalancedAccuracy(num_classes=3), SCORES, LABELS),
    "top1": (m.Top1Accuracy(), SCORES, LABELS),
    "topk": (m.TopKAccuracy(k=2), SCORES, LABELS),
    "auc-histogram": (m.AUC(input="binary"), SCORES[:, 0], BINARY),
    "auc-buffer": (m.AUC(input="binary", capacity=N), SCORES[:, 0], BINARY),
    "auc-classes": (m.AUC(num_classes=3), SCORES, LABELS),
    "auc-classes-buffer": (m.AUC(num_classes=3, capacity=N), SCORES, LABELS),
    "auc-range": (m.AUC(input="binary", score_range=(-3.0, 3.0)), SCORES[:, 0], BINARY),
    "eer-f16": (m.EER(score_dtype="float16"), SCORES[:, 0].astype(np.float16), BINARY),
    "eer-pooled": (m.EER(capacity=3 * N), SCORES, LABELS),
}
each = pytest.mark.parametrize("case", CASES)
slow = pytest.mark.slow
# Every kernel of its own length compiles anew: the rest of the lengths and metrics runs with the slow marker.
light = pytest.mark.parametrize(
    "case", ["angle", "top1", *(pytest.param(c, marks=slow) for c in ("angle-rad", "angle-f64", "balanced", "topk"))]
)


def same(a, b) -> bool:
    """Every leaf equal as integers."""
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)


@functools.cache
def whole(case, weighted=False):
    """The state of all samples in one batch."""
    metric, preds, labels = CASES[case]
    return metric.update(metric.init(), preds, labels, weights=WEIGHTS if weighted else None)


@each
@pytest.mark.parametrize("weighted", [False, True])
def test_splits_and_order(case, weighted):
    """Pieces of odd lengths, merged, and all samples shuffled."""
    metric, preds, labels = CASES[case]
    cuts = [1, 8, 25, 64, 177]
    pieces = zip(*(np.split(x, cuts) for x in (preds, labels, WEIGHTS)))
    parts = [metric.update(metric.init(), p, y, weights=w if weighted else None) for p, y, w in pieces]
    assert same(functools.reduce(metric.merge, parts), whole(case, weighted))
    order = np.random.default_rng(1).permutation(N)
    w = WEIGHTS[order] if weighted else None
    assert same(metric.update(metric.init(), preds[order], labels[order], weights=w), whole(case, weighted))


@each
def test_padding(case):
    """Garbage rows under where=False, in front, between and behind."""
    metric, preds, labels = CASES[case]
    keep = np.ones(N + 16, bool)
    keep[np.random.default_rng(2).permutation(N + 16)[:16]] = False
    more = np.full((N + 16, *preds.shape[1:]), np.nan, preds.dtype)
    with np.errstate(over="ignore"):
        more[::2] = 3e30
    truth = np.full(N + 16, 12_345, labels.dtype)
    more[keep], truth[keep] = preds, labels
    assert same(metric.update(metric.init(), more, truth, where=keep), whole(case))


@light
@pytest.mark.parametrize("mode", ["jit", "scan", "vmap", pytest.param("every", marks=slow)])
def test_short_lengths(case, mode):
    """Lengths 1 to 33 in a kernel of just that length, in a scan of single samples, and as a row of a vmapped batch:
    the bits of the padded host kernel."""
    metric, preds, labels = CASES[case]
    wide = preds.dtype == np.float64
    with jax.enable_x64(wide):
        if mode in ("jit", "every"):
            kernel = jax.jit(lambda p, y: metric.update(metric.init(), p, y))
            lengths = range(1, 34) if mode == "every" else (1, 3, 7, 33)
        elif mode == "scan":
            step = lambda s, x: (metric.update(s, x[0][None], x[1][None]), None)  # noqa: E731
            kernel = jax.jit(lambda p, y: jax.lax.scan(step, metric.init(), (p, y))[0])
            lengths = (1, 33)
        else:
            batched = jax.jit(jax.vmap(lambda p, y: metric.update(metric.init(), p, y)))
            kernel = lambda p, y: {k: v[1] for k, v in batched(jnp.stack([p[::-1], p, p]), jnp.stack([y] * 3)).items()}  # noqa: E731
            lengths = (1, 17)
        got = {n: kernel(preds[:n], labels[:n]) for n in lengths}
    for n, state in got.items():
        assert same(state, metric.update(metric.init(), preds[:n], labels[:n])), n


@light
@pytest.mark.parametrize(
    "n", [255, 257, 1025, 16_385, 70_001, *(pytest.param(n, marks=slow) for n in (256, 1023, 1024, 16_383, 16_384))]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_chunk_boundaries(case, n, weighted):
    """Around the host's chunk sizes and the reduction's own: the one-shot state is that of 7 streamed pieces, and the
    value is the exact one (angles of 2^-40 degrees resolution, counts)."""
    metric, preds, labels = CASES[case]
    tile = -(-n // N)
    preds, labels = (np.concatenate([x] * tile)[:n] for x in (preds, labels))
    w = np.concatenate([WEIGHTS] * tile)[:n] if weighted else None
    state = metric.update(metric.init(), preds, labels, weights=w)
    pieces = metric.init()
    for part in np.array_split(np.arange(n), 3):
        pieces = metric.update(pieces, preds[part], labels[part], weights=None if w is None else w[part])
    assert same(state, pieces)
    assert metric(preds, labels, weights=w) == metric.compute(state)
    assert limbs.to_int(state["n"]) == (n if w is None else int(w.sum()))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_angular_sum_is_exact(dtype):
    """The integer in the state is the sum of the rational errors, for angles on the fixed point's grid; equality."""
    rng = np.random.default_rng(4)
    p, t = (rng.integers(-(2**30), 2**30, (2, 300)) / 2**20).astype(dtype)
    metric = m.MeanAngularError()
    state = metric.update(metric.init(), p, t)
    want = oracles.angular_error(p, t) * 300
    assert Fraction(limbs.to_int(state["total"]), 2**78) == want


@pytest.mark.parametrize("row_bytes", [1, 1 << 15, 1 << 30])
def test_chunks_cover_every_row_once(row_bytes):
    """Any length is cut into consecutive pieces, each no longer than its kernel, of at most eight sizes in all."""
    sizes = set()
    for n in [*range(600), 2047, 2049, 16_385, 131_073, 1_048_577, 2_500_000][: 606 if row_bytes == 1 else 603]:
        end = 0
        for start, rows, size in checks.chunk_plan(n, row_bytes):
            assert start == end and 0 < rows <= size
            end += rows
            sizes.add(size)
        assert end == n
    assert len(sizes) <= 8


@pytest.mark.parametrize("most_rows", [1 << 20, 1 << 16, 100])
@pytest.mark.parametrize("row_bytes", [1, 64, 1 << 13, 1 << 15, 1 << 30])
def test_windows_cover_every_row_once(row_bytes, most_rows):
    """Windows stay within the data, are of at most eight sizes in all, and count every row in exactly one of them."""
    sizes = set()
    for n in [*range(300), 2049, 16_384, 16_385, 30_001, 65_537, 131_073, 1_000_000, 1_048_577, 2_500_000][
        : 309 if row_bytes <= 64 else 306
    ]:
        end = 0
        for start, rows, size in checks.window_plan(n, row_bytes, most_rows):
            sizes.add(size)
            first = start if rows > 0 else start + size + rows
            assert first == end and 0 < abs(rows) <= size and start >= 0
            assert rows > 0 or start + size == n
            end += abs(rows)
        assert end == n
    assert len(sizes) <= 8


@pytest.mark.parametrize("n", [16_385, 40_000, 70_001])
def test_an_overlapping_window_counts_no_row_twice(n):
    """One call on many rows has the counts of the definition, also where its last window overlaps."""
    rng = np.random.default_rng(n)
    scores, labels = rng.normal(size=(n, 3)).astype(np.float32), rng.integers(0, 3, n)
    where, weights = rng.random(n) < 0.9, rng.integers(0, 5, n)
    got = m.Top1Accuracy()(scores, labels, where=where, weights=weights)
    hit = np.where(where, weights, 0) @ (scores.argmax(1) == labels)
    assert got == hit / np.where(where, weights, 0).sum()


def _placed(x, offset):
    """A copy that begins so many bytes behind a 64-byte boundary."""
    raw = np.empty(x.nbytes + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    out = raw[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    out[...] = x
    assert out.ctypes.data % 64 == offset
    return out


@pytest.mark.parametrize("offset", [4, 16, 32, 60])
def test_where_an_array_lies_changes_no_bit(offset):
    """Rows that JAX cannot take as they lie, several windows of them, have the counts of the definition: also one call
    after another, which share the memory for copies, and four threads at once, which do not."""
    rng = np.random.default_rng(offset)

    def one(seed):
        n = 150_001 + 4096 * seed
        own = np.random.default_rng(seed)
        scores, labels = own.normal(size=(n, 16)).astype(np.float32), own.integers(0, 16, n).astype(np.int32)
        keep = own.random(n) < 0.9
        got = m.Top1Accuracy()(_placed(scores, offset), _placed(labels, offset), where=keep)
        return got == (keep & (scores.argmax(1) == labels)).sum() / keep.sum()

    seeds = rng.integers(0, 8, 6).tolist()
    assert all(one(seed) for seed in seeds)
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(one, seeds))


# --- limbs are Python integers ------------------------------------------------------------------------------------

word = st.integers(0, 2**32 - 1)
small = settings(max_examples=60, deadline=None)
REDUCERS = {
    (size, weighted): jax.jit(limbs.sum_words if weighted else lambda words, _: limbs.sum_words(words))
    for size in (1, 7, 33)
    for weighted in (False, True)
}


@pytest.mark.parametrize("size", [1, 7, 33])
@pytest.mark.parametrize("weighted", [False, True])
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_sum_of_words(size, weighted, data):
    """Numbers of three words, any weights: the sum of Python ints."""
    words = [np.array(data.draw(st.lists(word, min_size=size, max_size=size)), np.uint32) for _ in range(3)]
    w = np.array(data.draw(st.lists(word, min_size=size, max_size=size)), np.uint32)
    got = REDUCERS[size, weighted](words, w)
    numbers = [sum(int(x[i]) << (32 * k) for k, x in enumerate(words)) for i in range(size)]
    assert limbs.to_int(got) == sum(a * (int(b) if weighted else 1) for a, b in zip(numbers, w))
    assert all(int(limb) < 2**16 for limb in got[:-1])


@pytest.mark.parametrize("n", [16_383, 16_384, 16_385, 32_769, 70_001])
@pytest.mark.parametrize("weighted", [False, True])
def test_sum_of_words_at_its_worst(n, weighted):
    """All bits set, lengths about the chunk, weights that sum to just below 2^48: the sum of Python ints, in as many
    limbs as for one sample."""
    ones, heavy = np.full(n, 2**32 - 1, np.uint32), np.full(n, 2**31 - 1, np.uint32)
    run = jax.jit(limbs.sum_words)
    got = run([ones, ones], heavy if weighted else None)
    assert limbs.to_int(got) == n * (2**64 - 1) * ((2**31 - 1) if weighted else 1)
    assert got.shape == run([ones[:1], ones[:1]], heavy[:1] if weighted else None).shape


@small
@given(st.lists(st.tuples(word, st.integers(0, 5)), min_size=1, max_size=40))
def test_weighted_histogram(pairs):
    """Counts per bin with any uint32 weight, masked bins dropped: Python sums."""
    pairs = pairs + [(0, 6)] * (40 - len(pairs))
    weights, index = (np.array(x, np.uint32) for x in zip(*pairs))
    got = HISTOGRAM(index, weights)
    assert [limbs.to_int(row) for row in got] == [sum(w for w, i in pairs if i == b) for b in range(5)]


HISTOGRAM = jax.jit(lambda index, weights: bin_limbs(index, 5, weights))


@small
@given(st.integers(0, 2**80), st.integers(0, 2**80))
def test_arithmetic(a, b):
    """Add, subtract, compare, multiply, to_float on NumPy and JAX limbs: Python ints (floats to one ulp)."""
    a, b = max(a, b), min(a, b)
    for xp in (np, jnp):
        x, y = (xp.asarray(limbs.from_int(v, 6)) for v in (a, b))
        assert limbs.to_int(limbs.add(x, y)) == a + b
        assert limbs.to_int(limbs.subtract(x, y)) == a - b
        assert bool(limbs.compare_ge(x, y)) and bool(limbs.compare_ge(y, x)) == (a == b)
        assert limbs.to_int(limbs.multiply(x, y)) == a * b
    assert abs(float(limbs.to_float(limbs.from_int(a, 6), np)) - a) <= a * 2.0**-52
    assert abs(float(limbs.to_float(limbs.from_int(a, 6), np, -40)) - a / 2**40) <= a / 2**40 * 2.0**-52


@small
@given(st.integers(0, 2**96 - 1), st.integers(1, 6))
def test_limbs_round_trip(value, size):
    """from_int and to_int are inverse wherever the last limb, 32 bits wide, has room."""
    if value < 2 ** (16 * size + 16):
        assert limbs.to_int(limbs.from_int(value, size)) == value
