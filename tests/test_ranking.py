"""Counts behind AUC and EER. The equal-error crossing of a host call: a sample brackets it, exact counts prove the
bracket. Oracle: the ROC polyline over distinct scores walked vertex by vertex in Python integers; equality of every
count, no tolerance."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emma_jax.numerics import keys, limbs, ranking

N = 40_000  # above the number that is simply sorted


def walked(scores, genuine, weights):
    """(near, far, totals): accepted genuine and impostor trials at both ends of the first segment with FAR >= FRR."""
    w = np.ones(len(scores), np.int64) if weights is None else weights.astype(np.int64)
    distinct, place = np.unique(scores, return_inverse=True)
    sides = [np.zeros(len(distinct), np.int64) for _ in range(2)]
    for side, flag in zip(sides, (genuine, ~genuine)):
        np.add.at(side, place, np.where(flag, w, 0))
    vertices = [(0, 0), *zip(*(np.cumsum(side[::-1]).tolist() for side in sides))]
    num_g, num_i = vertices[-1]
    at = next(j for j in range(1, len(vertices)) if vertices[j][1] * num_g >= (num_g - vertices[j][0]) * num_i)
    return vertices[at - 1], vertices[at], vertices[-1], distinct[::-1][at - 1]


def check(scores, genuine, weights=None):
    agrees(ranking.crossing_host(scores, genuine, weights), scores, genuine, weights)


def agrees(found, scores, genuine, weights=None):
    near, far, totals, value = walked(scores.astype(np.float64), genuine, weights)
    have = [tuple(limbs.to_int(v) for v in found[side]) for side in ("near", "far", "totals")]
    assert have == [near, far, totals]
    assert keys.host_key_value(found["key"], scores.dtype) == value


def scores_of(kind, rng):
    genuine = rng.random(N) < 0.3
    normal = rng.normal(size=N) + 1.5 * genuine
    return genuine, {
        "normal": lambda: normal.astype(np.float32),
        "negative": lambda: (normal - 50).astype(np.float32),
        "half": lambda: normal.astype(np.float16),
        "sorted": lambda: np.sort(normal).astype(np.float32),
        "few values": lambda: np.round(normal).astype(np.float32),
        "one value": lambda: np.full(N, 0.5, np.float32),
        "both zeros": lambda: np.where(normal > 1, 1, np.where(normal > 0, 0.0, -0.0)).astype(np.float32),
        "subnormal": lambda: (normal * 1e-40).astype(np.float32),
        "infinite": lambda: np.where(normal > 0.5, np.inf, np.where(normal < 0, -np.inf, normal)).astype(np.float32),
        "integers": lambda: (normal * 1e8).astype(np.int32),
        "ranks": lambda: ((normal + 20) * 1e8).astype(np.uint32),
    }[kind]()


KINDS = [
    "normal",
    "negative",
    "half",
    "sorted",
    "few_values",
    "one_value",
    "both_zeros",
    "subnormal",
    "infinite",
    "integers",
    "ranks",
]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_crossing_of_many_trials(kind, weighted):
    """Every kind of score and every way that scores tie."""
    rng = np.random.default_rng(5)
    genuine, scores = scores_of(kind.replace("_", " "), rng)
    weights = rng.choice([0, 1, 5, 2**31], N).astype(np.uint32) if weighted else None
    check(scores, genuine, weights)


@pytest.mark.parametrize("kind", KINDS)
def test_crossing_straight_from_labels(kind):
    """The pass that checks its trials finds what the checked ones give, or leaves them (where half of them tie)."""
    genuine, scores = scores_of(kind.replace("_", " "), np.random.default_rng(5))
    for labels in (genuine, genuine.astype(np.int32), genuine.astype(np.uint8)):
        found = ranking.crossing_of_labels(scores, labels)
        if found is None:
            assert kind in ("one_value", "both_zeros")
        else:
            agrees(found, scores, genuine)


@pytest.mark.parametrize("kind", ["normal", "negative", "half", "subnormal", "infinite"])
def test_bad_trials_are_left_to_the_check(kind):
    """One NaN of either sign or one label that is none, wherever it is, and no crossing is given."""
    genuine, scores = scores_of(kind, np.random.default_rng(11))
    labels = genuine.astype(np.int32)
    assert ranking.crossing_of_labels(scores, labels) is not None
    for at in (0, 12_345, N - 1):
        for nan in (np.nan, -np.nan):
            spoiled = scores.copy()
            spoiled[at] = nan
            assert ranking.crossing_of_labels(spoiled, labels) is None
        for stray in (-1, 2, 3, -(2**31)):
            wrong = labels.copy()
            wrong[at] = stray
            assert ranking.crossing_of_labels(scores, wrong) is None
    for one in (0, 1):
        assert ranking.crossing_of_labels(scores, np.full(N, one)) is None


@pytest.mark.parametrize("share", [0.0002, 0.01, 0.99])
def test_one_kind_is_rare(share):
    """A sample without enough of the rarer kind takes half of its positions there."""
    rng = np.random.default_rng(6)
    genuine = rng.random(N) < share
    check((rng.normal(size=N) + genuine).astype(np.float32), genuine)


def test_periodic_labels():
    """Labels that alternate, so that a sample of every second trial would see one kind only."""
    genuine = np.arange(N) % 2 == 0
    check(np.random.default_rng(7).random(N).astype(np.float32) + 0.2 * genuine.astype(np.float32), genuine)


@pytest.mark.parametrize("bracket", [(0, 1), (-(2**31), -1), (2**30, 2**31 - 1)])
def test_a_wrong_bracket_costs_time_only(monkeypatch, bracket):
    """Whatever the sample says, the counts are those of the whole."""
    genuine, scores = scores_of("normal", np.random.default_rng(8))
    monkeypatch.setattr(ranking, "_bracket", lambda *_: bracket)
    check(scores, genuine)


def test_the_bracket_is_narrow():
    """What is sorted is a small part of the trials, for it is what makes the call quick."""
    genuine, scores = scores_of("normal", np.random.default_rng(9))
    low, high = ranking._bracket(scores, genuine, None)
    k = keys.host_key(scores)
    assert np.mean((k >= low) & (k <= high)) < 0.08


def test_pairs_of_any_scores_under_trace():
    """Pairs counted from words of key and label, and by searching where a word has no room, one call at a time and as
    rows of a vmapped one. Oracle: every pair compared in NumPy; equality."""
    rng = np.random.default_rng(10)
    n = 96
    edge = np.iinfo(np.int32)
    rows = [
        rng.normal(size=n),
        np.abs(rng.normal(size=n)),
        -np.abs(rng.normal(size=n)),
        np.full(n, 0.25),
        rng.normal(size=n) * 1e-40,
        rng.choice([-1.0, -0.0, 0.0, 1e-45, np.inf], n),
        rng.choice([-3e38, -1e-45, 1e-45, 3e38], n),  # both signs over every octave: no room
        rng.normal(size=n),  # nothing used
    ]
    scores = np.stack(rows).astype(np.float32)
    k = np.stack(
        [np.asarray(keys.order_key(x)) for x in (*scores, rng.choice([edge.min, 0, edge.max], n).astype(np.int32))]
    )
    assert k.dtype == np.uint32
    positive, used = rng.random(k.shape) < 0.4, rng.random(k.shape) < 0.9
    used[7] = False
    fits = [bool(ranking._words(*row)[1]) for row in zip(jnp.asarray(k), positive, used)]
    assert fits == [True] * 6 + [False, True, False]
    alone = jax.jit(ranking.pairs_from_keys)
    together = np.asarray(jax.jit(jax.vmap(ranking.pairs_from_keys))(k, positive, used))
    for i, (key, pos, use) in enumerate(zip(k, positive, used)):
        a, b = key[pos & use].astype(np.int64)[:, None], key[~pos & use].astype(np.int64)
        want = 2 * int((a > b).sum()) + int((a == b).sum())
        assert limbs.to_int(alone(key, pos, use)) == limbs.to_int(together[i]) == want, i
