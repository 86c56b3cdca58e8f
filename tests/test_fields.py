"""Near-field metrics. Oracles: definitions in extended precision (array_oracles), theory of a scaled, rotated field."""

from __future__ import annotations

import math

import array_oracles as oracle
import jax
import numpy as np
import pytest

import emma_jax as emma
from emma_jax.errors import (
    DegenerateLabelsError,
    EmptyEvaluationError,
    EvaluationError,
    NonFiniteError,
    ShapeError,
)
from emma_jax.metrics import fields as fields_module

m = emma.metrics
PAIR = emma.Task("all three", (m.RelL2(), m.LocalQ50(), m.LocalCosQ50()))
KINDS = (m.RelL2, m.LocalQ50, m.LocalCosQ50)
TRACED = {kind: jax.jit(kind()) for kind in KINDS}


def complex_normal(rng, *shape):
    return rng.normal(size=(*shape, 2)).view(complex)[..., 0]


def fields(*shape, dtype=np.complex64, seed=0, scale=1.0):
    """A field [..., 3] of very unequal strength, with dark probes, and a prediction of it."""
    rng = np.random.default_rng(seed)
    t = complex_normal(rng, *shape, 3) * rng.lognormal(sigma=2, size=(*shape, 1))
    p = t * (0.9 + 0.2j) + 0.3 * np.abs(t).max(-1, keepdims=True) * complex_normal(rng, *shape, 3)
    t.reshape(-1, 3)[::7] = 0
    return (scale * p).astype(dtype), (scale * t).astype(dtype)


def wanted(p, t):
    return oracle.rel_l2(p, t), np.median(oracle.local_errors(p, t)), np.median(oracle.local_cosines(p, t))


@pytest.mark.parametrize("shape", [(2, 3, 50), (1, 1, 1), (2, 5, 901), (3000,)])
def test_definition(shape):
    """Odd and even numbers of lit probes: 1e-6 from complex64 on the host and traced, 1e-12 from complex128."""
    for dtype, tol in ((np.complex64, 1e-6), (np.complex128, 1e-12)):
        p, t = fields(*shape, dtype=dtype)
        if shape == (1, 1, 1):
            t = p * dtype(2)
        for kind, want in zip(KINDS, wanted(p, t)):
            assert abs(kind()(p, t) - want) < tol
            if dtype == np.complex64 and shape != (3000,):
                assert abs(float(TRACED[kind](p, t)) - want) < 1e-6


@pytest.mark.parametrize("scale", [1e-42, 1e-30, 1e-20, 1e-10, 1e10, 1e20, 1e35])
def test_any_scale(scale):
    """Fields from subnormal to nearly the largest float32, truth and prediction alike or apart: 1e-6 relative."""
    p, t = fields(4, 5, 30, scale=scale)
    for kind, want in zip(KINDS, wanted(p, t)):
        assert abs(kind()(p, t) / want - 1) < 1e-6 and abs(float(TRACED[kind](p, t)) / want - 1) < 1e-6
    if 1e-20 < scale < 1e20:
        plain = fields(4, 5, 30)[1]
        want = np.median(oracle.local_errors(p, plain))
        assert abs(m.LocalQ50()(p, plain) / want - 1) < 1e-6


def test_task_and_names():
    """EMVal-NF reports the protocol's names; the averages are means of the two fields; each field stands alone."""
    p, t = ({"E": a, "H": b} for a, b in zip(fields(2, 3, 20), fields(2, 3, 20, seed=5)))
    scores = emma.evaluate("EMVal-NF", p, t)
    assert list(scores) == [
        *("rel_l2_avg", "rel_l2_E", "rel_l2_H", "local_q50_avg", "local_q50_E", "local_q50_H"),
        *("local_cos_q50_E", "local_cos_q50_H"),
    ]
    for name in "EH":
        for metric, want in zip(("rel_l2", "local_q50", "local_cos_q50"), wanted(p[name], t[name])):
            assert abs(scores[f"{metric}_{name}"] - want) < 1e-6
    for metric in ("rel_l2", "local_q50"):
        assert scores[f"{metric}_avg"] == (scores[f"{metric}_E"] + scores[f"{metric}_H"]) / 2
    traced = jax.jit(lambda a, b: emma.evaluate("EMVal-NF", a, b))(p, t)
    for name, value in scores.items():
        assert abs(float(traced[name]) - value) < 1e-6
    # 120 probes, of which every seventh is dark: it stays in rel_l2 and leaves the medians.
    v = scores.validity
    assert (v["rel_l2_E"].n, v["rel_l2_E"].n_excluded, v["local_q50_E"].n_excluded) == (120, 0, 18)
    assert (v["local_q50_avg"].n, v["local_q50_avg"].n_used) == (240, 204)
    assert int(traced.validity["local_cos_q50_H"].n_excluded) == 18


def test_where_and_weights():
    """where drops probes, whatever they hold; weights make a multiset, for the medians too: the definition, 1e-6."""
    p, t = fields(2, 3, 41)
    rng = np.random.default_rng(2)
    keep, w = rng.random((2, 3, 41)) < 0.6, rng.integers(0, 6, (2, 3, 41))
    broken = np.where(keep[..., None], p, np.nan)
    rows = np.repeat(np.arange(keep.size), (w * keep).reshape(-1))
    for kind, want, weighted in zip(
        KINDS, wanted(p[keep], t[keep]), wanted(p.reshape(-1, 3)[rows], t.reshape(-1, 3)[rows])
    ):
        assert abs(kind()(broken, t, where=keep) - want) < 1e-6
        assert abs(kind()(broken, t, where=keep, weights=w) - weighted) < 1e-6
        assert abs(float(jax.jit(kind())(broken, t, where=keep, weights=w)) - weighted) < 1e-6
    ports = np.array([True, False])[:, None, None]
    for kind, want in zip(KINDS, wanted(p[:1], t[:1])):
        assert abs(kind()(p, t, where=ports) - want) < 1e-6


def test_edges():
    """Perfect: 0 and 1. A zero prediction: error 1, alignment 0. A dark truth: an error that counts the probes."""
    p, t = fields(2, 2, 15)
    assert (m.RelL2()(t, t), m.LocalQ50()(t, t)) == (0, 0) and abs(m.LocalCosQ50()(t, t) - 1) < 2e-7
    assert abs(m.RelL2()(0 * p, t) - 1) < 1e-7 and abs(m.LocalQ50()(0 * p, t) - 1) < 1e-7
    assert m.LocalCosQ50()(0 * p, t) == 0
    for kind in KINDS:
        with pytest.raises(DegenerateLabelsError):
            kind()(p, 0 * t)
        assert math.isnan(TRACED[kind](p, 0 * t))
        with pytest.raises(EmptyEvaluationError):
            kind()(p, t, where=np.zeros(p.shape[:-1], bool))
    with pytest.raises(DegenerateLabelsError, match="60 of them"):
        m.LocalQ50()(p, 0 * t)
    # An infinite ratio in the middle stays infinite.
    tiny = np.full((3, 3), 1e-38, np.complex64)
    assert m.LocalQ50()(np.full((3, 3), 1e38, np.complex64), tiny) == math.inf


def test_stream():
    """rel_l2 streams exactly; a buffer gives the exact median; a histogram's half-width bounds its distance."""
    p, t = fields(2, 5, 901)
    cut = lambda x: (x[:1, :, :300], x[:1, :, 300:], x[1:])  # noqa: E731
    for kind, want in zip(KINDS, wanted(p, t)):
        for metric in (kind(),) if kind is m.RelL2 else (kind(), kind(capacity=10_000)):
            state = metric.init()
            for a, b in zip(cut(p), cut(t)):
                state = metric.update(state, a, b)
            merged = metric.merge(
                metric.update(metric.init(), p[:1], t[:1]), metric.update(metric.init(), p[1:], t[1:])
            )
            for s in (state, merged):
                scores = emma.Task("T", (metric,)).compute({metric.name: s})
                traced = float(jax.jit(metric.compute)(s))
                width = scores.aux[metric.name].get("half_width", 0.0)
                assert width < 5.1e-4 * max(1, want) and abs(scores[metric.name] - want) <= width + 1e-6
                assert abs(traced - scores[metric.name]) < 1e-6
    small = m.LocalQ50(capacity=100)
    with pytest.raises(EvaluationError, match="capacity"):
        small.compute(small.update(small.init(), p, t))
    # Weighted, both ways.
    w = np.random.default_rng(0).integers(0, 9, (2, 5, 901))
    want = m.LocalQ50()(p, t, weights=w)
    exact = m.LocalQ50(capacity=10_000)
    assert exact.compute(exact.update(exact.init(), p, t, weights=w)) == want
    binned = m.LocalQ50()
    assert abs(binned.compute(binned.update(binned.init(), p, t, weights=w)) - want) < 5.1e-4 * want


def test_planes():
    """Float planes along an iq_axis that is given: the same bits; real arrays without one are refused."""
    p, t = fields(2, 3, 20)
    for kind in KINDS:
        for axis in (0, 3, -1):
            planes = [np.stack([x.real, x.imag], axis) for x in (p, t)]
            assert kind(iq_axis=axis)(*planes) == kind()(p, t)
        with pytest.raises(ShapeError, match="complex"):
            kind()(p.real, t.real)


def test_bad_input():
    """Shapes, missing fields, other layouts, NaN: the type, the argument and the first index."""
    p, t = fields(2, 3, 20)
    both = {"E": t, "H": t}
    for preds, labels, text in (
        ({"E": p}, both, "no field 'H'"),
        (both, {"E": t}, "no field 'H'"),
        (p, t, "needs a dict with 'E'"),
        ({"E": p[..., :10, :], "H": p}, both, r"\(2, 3, 10, 3\)"),
        ({"E": p, "H": p[:1]}, {"E": t, "H": t[:1]}, "same probes"),
    ):
        with pytest.raises(ShapeError, match=text):
            emma.evaluate("EMVal-NF", preds, labels)
    with pytest.raises(ShapeError, match="pick a field"):
        m.RelL2()(both, both)
    with pytest.raises(ShapeError, match="last axis"):
        m.RelL2()(np.swapaxes(p, 2, 3), np.swapaxes(t, 2, 3))
    with pytest.raises(EvaluationError, match="field"):
        m.LocalQ50("B")
    bad = {"E": p, "H": p.copy()}
    bad["H"][1, 2, 3, 0] = np.nan
    with pytest.raises(NonFiniteError, match=r"field H must be finite.*\(1, 2, 3, 0\)"):
        emma.evaluate("EMVal-NF", bad, both)
    traced = jax.jit(lambda a, b: emma.evaluate("EMVal-NF", a, b))(bad, both)
    assert math.isnan(traced["rel_l2_H"]) and math.isnan(traced["local_q50_avg"]) and traced["rel_l2_E"] > 0
    assert m.RelL2(components=None)(p[..., :2], t[..., :2]) > 0


@pytest.mark.parametrize("masked", [False, True])
def test_blocks(masked, monkeypatch):
    """A kernel that goes block by block, the last block overlapping the one before, one block of tiny fields, NaN where
    ``where`` is False: values to 1e-6 relative and counts of the definition."""
    n, block = 1_709, 700  # a prime: no block divides it
    monkeypatch.setattr(fields_module, "_ROWS", block // 2)
    p, t = fields(n, seed=5)
    p[:block], t[:block] = p[:block] * np.float32(1e-25), t[:block] * np.float32(1e-25)
    there = np.random.default_rng(6).random(n) < (0.8 if masked else 2)
    p[~there] = np.nan
    run = jax.jit(lambda p, t, w: emma.evaluate(PAIR, p, t, where=w if masked else None))
    got, host = run(p, t, there), emma.evaluate(PAIR, p, t, where=there)
    p, t = p[there], t[there]
    dark = int((np.abs(t).sum(-1) == 0).sum())
    for name, want in zip(("rel_l2", "local_q50", "local_cos_q50"), wanted(p, t)):
        for scores in (got, host):
            assert abs(float(scores[name]) - want) < 1e-6 * max(1, abs(want))
            counts = scores.validity[name]
            assert int(counts.n) == len(t) and int(counts.n_excluded) == (0 if name == "rel_l2" else dark)


@pytest.mark.parametrize("n", [8_000, pytest.param(150_001, marks=pytest.mark.slow)])
def test_rel_l2_on_the_host(n):
    """NumPy arrays in chunks with a padded tail: 1e-6 relative and every probe counted; below 32,768 entries the sum of
    the probes' energies is exact, so that their order changes nothing."""
    p, t = fields(n, seed=9)
    got = emma.evaluate(emma.Task("one", (m.RelL2(),)), p, t)
    assert abs(got["rel_l2"] / oracle.rel_l2(p, t) - 1) < 1e-6
    assert got.validity["rel_l2"].n == n and got.validity["rel_l2"].n_used == n
    if 3 * n < 1 << 15:
        order = np.random.default_rng(0).permutation(n)
        assert m.RelL2()(p[order], t[order]) == got["rel_l2"]
    both = emma.evaluate(emma.Task("two", (m.RelL2("avg"), m.RelL2("H"))), {"E": p, "H": p / 2}, {"E": t, "H": t})
    want = [oracle.rel_l2(x, t) for x in (p, p / 2)]
    assert abs(both["rel_l2_avg"] / np.mean(want) - 1) < 1e-6 and abs(both["rel_l2_H"] / want[1] - 1) < 1e-6


@pytest.mark.parametrize("masked", [False, True])
def test_chunks_of_either_way(masked):
    """NumPy arrays in several chunks, one of them of fields too weak to square, one with NaN where ``where`` is False:
    values to 1e-6 relative and counts of the definition, to 1e-12 from complex128; every chunk on the other way too."""
    n = 3 * (1 << 14) - 100
    there = np.random.default_rng(1).random(n) < (0.8 if masked else 2)
    for dtype, tol, weak in ((np.complex64, 1e-6, 1e-25), (np.complex128, 1e-12, 1e-200)):
        for chunks in ([1], [0, 1, 2]):
            p, t = fields(n, seed=7, dtype=dtype)
            for i in chunks:
                at = slice(i << 14, (i + 1) << 14)
                p[at], t[at] = p[at] * dtype(weak), t[at] * dtype(weak)
            p[~there] = np.nan
            got = emma.evaluate(PAIR, p, t, where=there)
            for name, want in zip(("rel_l2", "local_q50", "local_cos_q50"), wanted(p[there], t[there])):
                assert abs(got[name] - want) < tol * max(1, abs(want)), (dtype, chunks, name)
                assert got.validity[name].n == there.sum()
            assert got.validity["local_q50"].n_excluded == (np.abs(t[there]).sum(-1) == 0).sum()


def test_few_compilations():
    """Boards of 20 sizes compile the kernel at most once per chunk size; a large one once for both fields, and another
    of a size of its own compiles nothing, by JAX's own count."""
    from emma_jax.metrics import fields as module

    compiled = []

    def listen(event, duration, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    for sizes, most in ((range(100, 4100, 200), 4), ([80_000, 75_001], 1)):
        module._chunk_pass.clear_cache()
        for probes in sizes:
            p, t = fields(1, 2, probes)
            compiled.clear()
            emma.evaluate("EMVal-NF", {"E": p, "H": p}, {"E": t, "H": t})
            assert bool(compiled) == (probes == 80_000) or most > 1
        assert module._chunk_pass._cache_size() <= most
