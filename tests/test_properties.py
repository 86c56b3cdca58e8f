"""Invariances that hold for every metric on any input (hypothesis). Oracle: exact rationals; equality is bit for bit
unless a tolerance is stated."""

from __future__ import annotations

import functools

import jax
import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import emma_jax as emma

few = settings(max_examples=10, deadline=None)
some = settings(max_examples=25, deadline=None)
m = emma.metrics
SCORE = st.floats(width=32, allow_nan=False)  # infinities, -0.0, subnormals and all
ANGLE = st.floats(-1e6, 1e6, width=32)
GARBAGE_SCORES = np.float32([np.nan, np.inf, -np.inf, 3e38, -0.0, 1e-45])
GARBAGE_LABELS = np.array([-1, 2**31 - 1, -(2**31), 7], np.int32)


def exact(metric, preds, labels, w=None):
    """The value by definition, or None where it is undefined."""
    w = [1] * len(labels) if w is None else [int(v) for v in w]
    if not sum(w):
        return None
    if isinstance(metric, m.MeanAngularError):
        return oracles.angular_error(preds, labels, w, metric.period)
    if isinstance(metric, m.BalancedAccuracy):
        return oracles.balanced_accuracy(oracles.predicted(preds), labels, w, metric.absent)
    if isinstance(metric, m.Top1Accuracy):
        return oracles.top_k(preds, labels, 1, w)
    if isinstance(metric, m.TopKAccuracy):
        return oracles.top_k(preds, labels, metric.k, w)
    present = np.array(w) > 0
    if isinstance(metric, m.EER):
        scores, genuine, weights = (preds, labels == 1, w) if preds.ndim == 1 else oracles.pooled(preds, labels, w)
        used = np.array([v > 0 for v in weights])
        if genuine[used].all() or not genuine[used].any():
            return None
        return oracles.eer(scores, genuine, weights)[0]
    if preds.ndim == 1:
        return oracles.auc(preds, labels == 1, w) if 0 < (labels[present] == 1).sum() < present.sum() else None
    if len(set(labels[present].tolist())) < 2:
        return None
    return oracles.macro_auc(preds, labels, w)[0]


def value(metric, *args, **kwargs):
    """The host value, or None where it is undefined."""
    try:
        return metric(*args, **kwargs)
    except (emma.EmptyEvaluationError, emma.DegenerateLabelsError):
        return None


def close(metric, got, want):
    """Counts to 1e-12, angles to the fixed point of 2^-46 degrees and 1e-12 relative; None is undefined."""
    if want is None or got is None:
        return want is None and got is None
    slack = 2.0**-45 if isinstance(metric, m.MeanAngularError) else 0.0
    return abs(got - float(want)) <= 1e-12 * max(1.0, float(want)) + slack


@st.composite
def batch(draw, metric, size=None):
    """Predictions and labels that suit the metric."""
    n = draw(st.integers(1, 40)) if size is None else size
    if isinstance(metric, m.MeanAngularError):
        return draw(hnp.arrays(np.float32, n, elements=ANGLE)), draw(hnp.arrays(np.float32, n, elements=ANGLE))
    elements = draw(st.sampled_from([SCORE, st.sampled_from([0.0, -0.0, 0.5, 1.0])]))
    binary = isinstance(metric, m.AUROC)
    shape = (n,) if binary else (n, 3)
    labels = draw(hnp.arrays(np.int32, n, elements=st.integers(0, 1 if binary else 2)))
    return draw(hnp.arrays(np.float32, shape, elements=elements)), labels


METRICS = [
    m.MeanAngularError(),
    m.MeanAngularError(period=180),
    m.BalancedAccuracy(),
    m.Top1Accuracy(),
    m.TopKAccuracy(k=2),
    m.AUC(),
    m.AUROC(),
    m.EER(),
]
each = pytest.mark.parametrize(
    "metric", METRICS, ids=lambda x: x.name + (str(x.period) if hasattr(x, "period") else "")
)


@each
@some
@given(st.data())
def test_the_definition_with_where_and_weights(metric, data):
    """Any input, mask and weights: the definition over the multiset."""
    preds, labels = data.draw(batch(metric))
    n = len(labels)
    where = data.draw(st.none() | hnp.arrays(bool, n))
    weights = data.draw(
        st.none() | hnp.arrays(np.uint32, n, elements=st.sampled_from([0, 1, 2, 65_535, 65_536, 10**6]))
    )
    got = value(metric, preds, labels, where=where, weights=weights)
    w = oracles.multiplicities(n, where, weights)
    assert close(metric, got, exact(metric, preds, labels, w))


@each
@few
@given(st.data())
def test_permutation(metric, data):
    """The order of samples changes no bit."""
    preds, labels = data.draw(batch(metric))
    order = np.array(data.draw(st.permutations(range(len(labels)))))
    assert value(metric, preds, labels) == value(metric, preds[order], labels[order])


@each
@few
@given(st.data())
def test_padding_with_garbage(metric, data):
    """NaN, infinities and impossible labels under where=False change no bit, wherever they stand."""
    preds, labels = data.draw(batch(metric))
    pad = data.draw(st.integers(1, 9))
    rng = np.random.default_rng(pad)
    order = rng.permutation(len(labels) + pad)
    bad = GARBAGE_LABELS if labels.dtype == np.int32 else GARBAGE_SCORES
    more = np.concatenate([preds, rng.choice(GARBAGE_SCORES, (pad, *preds.shape[1:]))])[order]
    truth = np.concatenate([labels, rng.choice(bad, pad)])[order]
    assert value(metric, preds, labels) == value(
        metric, more, truth, where=(np.arange(len(order)) < len(labels))[order]
    )


@each
@few
@given(st.data())
def test_weights_repeat(metric, data):
    """A weight of w is the sample w times, 0 included; and a common factor of 65,537 changes the value by no bit."""
    preds, labels = data.draw(batch(metric))
    w = data.draw(hnp.arrays(np.int64, len(labels), elements=st.integers(0, 3)))
    weighted = value(metric, preds, labels, weights=w)
    assert weighted == value(metric, np.repeat(preds, w, axis=0), np.repeat(labels, w))
    assert close(metric, value(metric, preds, labels, weights=w * 65_537), exact(metric, preds, labels, w))


@each
@few
@given(st.data())
def test_a_weight_of_zero_hides_a_bad_sample(metric, data):
    """A sample of weight 0 may hold NaN or an impossible label."""
    preds, labels = data.draw(batch(metric))
    bad = np.nan if labels.dtype == np.float32 else 2**31 - 1
    more, truth = (
        np.concatenate([preds, preds[:1] * np.nan]),
        np.concatenate([labels, labels[:1] * 0 + bad]).astype(labels.dtype),
    )
    got = value(metric, more, truth, weights=np.arange(len(truth)) < len(labels))
    assert got == value(metric, preds, labels)


@pytest.mark.parametrize("metric", [m.AUROC(), m.EER()], ids=lambda x: x.name)
@few
@given(st.data())
def test_monotone_rescaling(metric, data):
    """A strictly increasing map of the scores (here: onto their ranks, and into float64) changes no bit."""
    preds, labels = data.draw(batch(m.AUROC()))
    ranks = np.unique(preds, return_inverse=True)[1]
    want = value(metric, preds, labels)
    assert want == value(metric, ranks.astype(np.int32), labels)
    assert want == value(metric, ranks.astype(np.uint8), labels)
    assert want == value(metric, np.pi * (ranks - 3.0), labels)
    assert want == value(metric, np.arctan(ranks * 1e-3), labels)


@pytest.mark.parametrize("metric", [m.AUROC(), m.EER()], ids=lambda x: x.name)
@few
@given(st.data())
def test_mirror(metric, data):
    """Negating the scores and swapping the labels leaves the value; negating alone gives 1 - AUC (to 1e-15)."""
    preds, labels = data.draw(batch(m.AUROC()))
    want = value(metric, preds, labels)
    swapped = value(metric, -preds, 1 - labels)
    assert want == swapped or abs(want - swapped) < 1e-15
    if want is not None and isinstance(metric, m.AUROC):
        assert abs(value(metric, -preds, labels) - (1 - want)) < 1e-15


@few
@given(st.data())
def test_angles_turn(data):
    """Whole turns on either side, and exchanging the sides, change no bit (angles are multiples of 1/8 degree)."""
    quarter = hnp.arrays(np.int32, 20, elements=st.integers(-8000, 8000))
    p, t = (data.draw(quarter) / np.float32(8) for _ in range(2))
    turns = 360 * data.draw(hnp.arrays(np.int32, 20, elements=st.integers(-3, 3)))
    metric = m.MeanAngularError()
    assert metric(p, t) == metric(t, p) == metric(p + turns, t) == metric(p, t - turns) == metric(-p, -t)


@functools.cache
def streams(metric):
    """The stream form of a metric: integer states that must not depend on how the samples arrive."""
    num_classes = {"num_classes": 3} if hasattr(metric, "num_classes") and not isinstance(metric, m.AUROC) else {}
    return type(metric)(**{**{k: getattr(metric, k) for k in ("k", "period") if hasattr(metric, k)}, **num_classes})


@each
@few
@given(st.data())
def test_batch_split_and_merge(metric, data):
    """Any split gives the same state; merge is associative and commutative with the empty state as its unit; integer
    equality of every leaf."""
    metric = streams(metric)
    preds, labels = data.draw(batch(metric))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(labels)), max_size=3)))
    whole = metric.update(metric.init(), preds, labels)
    parts = [metric.update(metric.init(), p, y) for p, y in zip(np.split(preds, cuts), np.split(labels, cuts))]
    left = functools.reduce(metric.merge, parts, metric.init())
    right = functools.reduce(lambda a, b: metric.merge(b, a), reversed(parts), metric.init())
    for key, want in whole.items():
        assert np.array_equal(left[key], want) and np.array_equal(right[key], want), key
    chained = metric.init()
    for p, y in zip(np.split(preds, cuts), np.split(labels, cuts)):
        chained = metric.update(chained, p, y)
    assert all(np.array_equal(chained[key], want) for key, want in whole.items())


TRACED = {x: jax.jit(lambda p, y, mask, w, x=x: x(p, y, where=mask, weights=w)) for x in METRICS}


@each
@few
@given(st.data())
def test_traced_value(metric, data):
    """One jitted kernel with mask and weights, against the definition: 4 float32 ulp (5e-7 for AUC and EER), NaN where
    it is undefined."""
    preds, labels = data.draw(batch(metric, size=24))
    where, weights = (
        data.draw(hnp.arrays(bool, 24)),
        data.draw(hnp.arrays(np.int32, 24, elements=st.integers(0, 70_000))),
    )
    got = TRACED[metric](preds, labels, where, weights)
    want = exact(metric, preds, labels, oracles.multiplicities(24, where, weights))
    assert got.dtype == np.float32 and got.shape == ()
    if want is None:
        assert np.isnan(got)
    elif isinstance(metric, m.AUC | m.EER):
        assert abs(float(got) - float(want)) <= 5e-7
    elif isinstance(metric, m.MeanAngularError):
        assert abs(float(got) - float(want)) <= 4 * 2.0**-24 * float(want) + 2.0**-45
    else:
        assert oracles.ulps32(got, want) <= 4
