"""Bootstrap by reweighting: the draws, the values on them, and the intervals made of these."""

from __future__ import annotations

import itertools
import json
import math
import tracemalloc
from collections import Counter
from typing import Any

import jax
import numpy as np
import pytest

import emma_jax as emma
from emma_jax import metrics as m
from emma_jax.errors import EvaluationError, ShapeError
from emma_jax.tasks import Task
from emma_jax.uncertainty import intervals, study, units
from emma_jax.uncertainty.study import as_task
from emma_jax.uncertainty.units import Units, draw, generator, make_units

N = 24
SLOW = pytest.mark.slow  # kernels that take seconds to compile, of kinds that others stand for


def _rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def _channels(n: int, rng: np.random.Generator) -> np.ndarray:
    return (rng.normal(size=(n, 6)) + 1j * rng.normal(size=(n, 6))).astype(np.complex64)


def _inputs(kind: str, n: int = N) -> tuple[Any, Any]:
    rng = _rng(len(kind))
    if kind == "angles":
        return rng.uniform(-400, 400, n), rng.uniform(0, 360, n)
    if kind in ("scores", "tied"):
        y = rng.integers(0, 3, n)
        s = rng.normal(size=(n, 3)) + 1.5 * np.eye(3)[y]
        return np.round(s) if kind == "tied" else s.astype(np.float32), y
    if kind in ("binary", "ties"):
        y = rng.integers(0, 2, n)
        s = rng.normal(size=n) + y
        return np.round(s) if kind == "ties" else s, y
    if kind == "channels":
        h = _channels(n, rng)
        h[3] = 0
        return h + np.float32(0.3) * _channels(n, rng), h
    if kind == "signals":
        s = rng.normal(size=(n, 2, 16)).astype(np.float32)
        return s + 0.2 * rng.normal(size=s.shape).astype(np.float32), s
    if kind == "beams":
        return rng.normal(size=(n, 8)).astype(np.float32), rng.integers(0, 8, n)
    if kind == "gains":
        return rng.normal(size=(n, 8)).astype(np.float32), rng.exponential(size=(n, 8)).astype(np.float32)
    if kind == "field":
        f = (rng.normal(size=(n, 3)) + 1j * rng.normal(size=(n, 3))).astype(np.complex64)
        f[5] = 0
        return f + np.float32(0.3) * rng.normal(size=f.shape).astype(np.float32), f
    if kind == "entries":
        s = _channels(n, rng)[:, 0] * np.float32(0.2)
        return s + np.float32(0.02) * _channels(n, rng)[:, 0], s
    words = ["strong", "signal", "near", "the", "band", "a", "weak", "burst", "of", "noise", "here"]
    texts = [" ".join(rng.choice(words, 7)) for _ in range(n)]
    return texts, [[" ".join(rng.permutation([*t.split()[:5], "now"])), t + " again"] for t in texts]


# Every kind of reduction, each with an input that has what is awkward for it: ties, absent classes, silent samples.
CASES = [
    (m.MeanAngularError(), "angles"),
    (m.BalancedAccuracy(num_classes=3), "scores"),
    (m.BalancedAccuracy(num_classes=3, absent="exclude"), "tied"),
    (m.PlainAccuracy(), "tied"),
    (m.TopKAccuracy(k=2), "beams"),
    (m.AUC(), "binary"),
    (m.AUROC(), "ties"),
    (m.AUC(num_classes=3), "tied"),
    (m.EER(), "ties"),
    (m.EER(), "scores"),
    (m.TPRatFPR(fpr=0.2), "ties"),
    (m.NMSE(), "channels"),
    pytest.param(m.NMSE("mean_ratio"), "channels", marks=SLOW),
    pytest.param(m.NMSE("mean_db"), "channels", marks=SLOW),
    pytest.param(m.SGCS(), "channels", marks=SLOW),
    pytest.param(m.SISDR(), "signals", marks=SLOW),
    pytest.param(m.DBAScore(), "beams", marks=SLOW),
    pytest.param(m.BeamPowerLoss(), "gains", marks=SLOW),
    pytest.param(m.RSRPAccuracy(), "gains", marks=SLOW),
    pytest.param(m.RelL2(), "field", marks=SLOW),
    (m.LocalQ50(), "field"),
    pytest.param(m.LocalCosQ50(), "field", marks=SLOW),
    pytest.param(m.RealImagRMSE(), "entries", marks=SLOW),
    pytest.param(m.MagWMAE(), "entries", marks=SLOW),
    pytest.param(m.PhaseWMAE(), "entries", marks=SLOW),
    (m.Bleu(), "text"),
    pytest.param(m.ExactMatch(), "text", marks=SLOW),
    pytest.param(m.F1(), "text", marks=SLOW),
    pytest.param(m.Meteor(), "text", marks=SLOW),
]


def _gathered(x: Any, index: np.ndarray) -> Any:
    return x[index] if isinstance(x, np.ndarray) else [x[i] for i in index]


def _values(metric: Any, preds: Any, labels: Any, own: Units, counts: np.ndarray) -> np.ndarray:
    """A metric at given counts of units, as the package computes it."""
    read = study._read(Task("T", (metric,)), preds, labels, None, None)
    (reduction,) = study._reductions(read, None)
    return reduction.bind(own)(counts)


@pytest.mark.parametrize(("metric", "kind"), CASES, ids=lambda x: x if isinstance(x, str) else x.name)
def test_reweighting_is_gathering(metric: Any, kind: str) -> None:
    """Claim: the value at counts c is that of the data in which sample i stands c_i times.

    Oracle: `evaluate` on gathered copies. Tolerance: 1e-12 relative; metrics of energies 1e-6, since their float32 rows
    are summed by another kernel.
    """
    preds, labels = _inputs(kind)
    counts = np.stack([np.bincount(_rng(i).integers(0, N, N), minlength=N) for i in range(4)]).astype(np.int64)
    found = _values(metric, preds, labels, Units(np.ones(N, np.int64)), counts)
    assert found.shape == (4,)
    tolerance = 1e-6 if kind in ("channels", "signals", "field", "entries", "gains") else 1e-12
    for value, c in zip(found, counts):
        index = np.repeat(np.arange(N), c)
        expected = emma.evaluate(Task("T", (metric,)), _gathered(preds, index), _gathered(labels, index))[metric.name]
        assert value == pytest.approx(expected, rel=tolerance, abs=1e-12)


def test_scikit_learn_with_the_same_counts() -> None:
    """Claim: AUC and the accuracies of a resample are scikit-learn's with the counts as sample weights. Tolerance
    1e-12."""
    sk = pytest.importorskip("sklearn.metrics")
    counts = np.bincount(_rng(1).integers(0, 200, 200), minlength=200)[None]
    own = Units(np.ones(200, np.int64))
    s, y = _inputs("ties", 200)
    expected = sk.roc_auc_score(y, s, sample_weight=counts[0])
    assert _values(m.AUC(), s, y, own, counts)[0] == pytest.approx(expected, abs=1e-12)
    s, y = _inputs("scores", 200)
    for metric, peer in ((m.PlainAccuracy(), sk.accuracy_score), (m.BalancedAccuracy(), sk.balanced_accuracy_score)):
        expected = peer(y, s.argmax(1), sample_weight=counts[0])
        assert _values(metric, s, y, own, counts)[0] == pytest.approx(expected, abs=1e-12)


@SLOW
def test_captions_keep_their_document_frequencies() -> None:
    """Claim: a resample of CIDEr-D is the mean of the captions' own values, weighted. Oracle: `per_sample`; tolerance
    1e-9 (fixed point)."""
    preds, labels = _inputs("text")
    own = emma.per_sample(Task("T", (m.CIDER(),)), preds, labels)["CIDER"]
    counts = np.bincount(_rng(2).integers(0, N, N), minlength=N)[None]
    found = _values(m.CIDER(), preds, labels, Units(np.ones(N, np.int64)), counts)
    assert found[0] == pytest.approx(counts[0] @ own / N, abs=1e-9)


# --- the draws ----------------------------------------------------------------------------------------------------


def _chi_square(observed: Counter[Any], expected: dict[Any, float], total: int) -> float:
    """Pearson's statistic in standard deviations above its mean."""
    assert set(observed) <= set(expected)
    statistic = sum((observed[k] - total * p) ** 2 / (total * p) for k, p in expected.items())
    return (statistic - (len(expected) - 1)) / math.sqrt(2 * (len(expected) - 1))


@pytest.mark.parametrize("copies", [[1, 1, 1, 1], [3, 1, 0, 1], [40, 20, 10]], ids=["plain", "weights", "binomials"])
def test_draws_are_those_of_all_resamples(copies: list[int]) -> None:
    """Claim: counts have exactly the distribution of drawing with replacement.

    Oracle: all n^n sequences enumerated (of n draws of a unit; multinomial probabilities for 70 copies). Tolerance:
    chi-square over 20,000 draws of a fixed key within 4 standard deviations.
    """
    total = sum(copies)
    if total < 10:
        owner = np.repeat(np.arange(len(copies)), copies)
        exact = Counter(
            tuple(np.bincount(owner[list(seq)], minlength=len(copies)))
            for seq in itertools.product(range(total), repeat=total)
        )
        expected = {k: v / total**total for k, v in exact.items()}
        bins = expected.keys()
    else:
        p = np.array(copies) / total
        pairs = [(i, j) for i in range(total + 1) for j in range(total + 1 - i)]
        full = {
            (i, j, total - i - j): math.exp(
                math.lgamma(total + 1)
                - sum(math.lgamma(k + 1) for k in (i, j, total - i - j))
                + sum(k * math.log(q) for k, q in zip((i, j, total - i - j), p))
            )
            for i, j in pairs
        }
        bins = {k for k, v in full.items() if v > 5e-4}
        expected = {k: full[k] for k in bins} | {"rest": 1 - sum(full[k] for k in bins)}
    own = Units(np.array(copies, np.int64))
    drawn = np.concatenate(list(draw(own, generator(7), 20000, 999)))
    assert (drawn.sum(axis=1) == total).all()
    observed = Counter(tuple(map(int, row)) if tuple(map(int, row)) in bins else "rest" for row in drawn)
    assert abs(_chi_square(observed, expected, 20000)) < 4


def test_distribution_of_a_score_over_all_resamples() -> None:
    """Claim: resampled accuracies, drawn by cells, have the distribution over all 5^5 gathered resamples.

    Oracle: enumeration with `evaluate`'s definition. Tolerance: chi-square within 4 standard deviations, 20,000 draws.
    """
    y, p = np.array([0, 0, 1, 1, 1]), np.array([0, 1, 1, 1, 0])

    def balanced(index: tuple[int, ...]) -> float:
        a, b = y[list(index)], p[list(index)]
        recalls = [float((b[a == c] == c).mean()) if (a == c).any() else 0.0 for c in range(2) if c in a or c in b]
        return round(sum(recalls) / len(recalls), 9)

    exact = Counter(balanced(index) for index in itertools.product(range(5), repeat=5))
    found = study.run_study(as_task("E-LOC-LOS", {}), [p], y, key=3, num_resamples=20000)
    assert found.units.size == 4 and found.units.total == 5
    observed = Counter(round(float(v), 9) for v in found.resampled["BalancedAccuracy"][0])
    expected = {k: v / 5**5 for k, v in exact.items()}
    assert abs(_chi_square(observed, expected, 20000)) < 4


def test_the_key_alone_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim: the same key gives the same bits in any blocks, an int stands for its key, another key gives others."""
    s, y = _inputs("scores")

    def run(key: Any) -> list[float]:
        found = emma.bootstrap("E-ID-FP", s, y, key=key, num_resamples=50)
        return [x for i in found.values() for x in (i.low, i.high, i.standard_error)]

    first = run(5)
    assert run(jax.random.key(5)) == first == run(jax.random.PRNGKey(5))
    assert run(6) != first
    monkeypatch.setattr(units, "_BLOCK", 7 * N)
    assert run(5) == first


def test_memory_does_not_grow_with_resamples() -> None:
    """Claim: ten times the resamples take no more memory but their own values, 8 bytes each.

    Oracle: the peak that tracemalloc sees, which NumPy reports to. Tolerance 256 KB; the counts alone would be 29 MB.
    """
    s, y = _inputs("ties", 2000)
    peaks = []
    for num_resamples in (20, 200, 2000):
        tracemalloc.start()
        emma.bootstrap("E-SC-SENSE", s, y, key=0, num_resamples=num_resamples)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] - peaks[1] < 5 * 8 * 1800 + (1 << 18)


def test_strata_and_clusters() -> None:
    """Claim: strata keep their sizes; clusters are drawn whole, and their samples share a count."""
    own = make_units(6, None, None, None, ["a", "b", "a", "b", "b", "b"], (6,), "T")
    drawn = np.concatenate(list(draw(own, generator(0), 64, 5)))
    assert (drawn[:, [0, 2]].sum(axis=1) == 2).all() and (drawn[:, [1, 3, 4, 5]].sum(axis=1) == 4).all()
    assert drawn.max() > 1
    own = make_units(6, None, np.array([1, 2, 1, 1, 1, 1]), [7, 7, 8, 8, 9, 9], None, (6,), "T")
    counts = own.per_sample(np.array([[2, 0, 1]]))
    assert counts.tolist() == [[2, 4, 0, 0, 1, 1]]
    with pytest.raises(EvaluationError, match="two values within one cluster") as error:
        make_units(3, None, None, [0, 0, 1], [0, 1, 1], (3,), "T")
    assert error.value.argument == "stratify"


@pytest.mark.parametrize(
    ("metric", "kind"),
    [
        (m.MeanAngularError(), "angles"),
        (m.BalancedAccuracy(), "scores"),
        (m.AUC(), "ties"),
        (m.EER(), "scores"),
    ],
    ids=lambda x: x if isinstance(x, str) else x.name,
)
def test_clusters_are_gathered_whole(metric: Any, kind: str) -> None:
    """Claim: a resample of clusters scores the samples of the drawn clusters. Oracle: `evaluate` on them; 1e-6."""
    preds, labels = _inputs(kind)
    clusters = np.arange(N) % 5
    own = make_units(N, None, None, clusters, None, (N,), "T")
    counts = np.array([[2, 0, 1, 1, 1]])
    index = np.concatenate([np.flatnonzero(clusters == c) for c, k in enumerate(counts[0]) for _ in range(k)])
    expected = emma.evaluate(Task("T", (metric,)), preds[index], labels[index])[metric.name]
    assert _values(metric, preds, labels, own, counts)[0] == pytest.approx(expected, rel=1e-6)


@SLOW
def test_masks_inside_a_sample() -> None:
    """Claim: with [N, K, T] signals the mixture is drawn, with those of its signals that are there, NaN elsewhere.

    Oracle: `evaluate` on gathered mixtures with their masks and weights. Tolerance 1e-6.
    """
    preds, labels = _inputs("signals")
    where = _rng(0).random((N, 2)) < 0.6
    where[:2] = [[False, False], [True, False]]
    weights = _rng(1).integers(0, 3, (N, 2))
    preds = np.where(where[..., None], preds, np.nan)
    read = study._read(as_task("E-SC-SEP", {}), preds, labels, where, weights)
    kept = study._kept_rows(read)
    (reduction,) = study._reductions(read, kept)
    assert kept is not None and 0 not in kept
    counts = np.bincount(_rng(2).integers(0, len(kept), len(kept)), minlength=len(kept))
    found = reduction.bind(Units(np.ones(len(kept), np.int64)))(counts[None])[0]
    index = np.repeat(kept, counts)
    expected = emma.evaluate("E-SC-SEP", preds[index], labels[index], where=where[index], weights=weights[index])
    assert found == pytest.approx(expected["SISDR"], rel=1e-6)


@SLOW
def test_clusters_broadcast_over_entries() -> None:
    """Claim: for S-parameters [F, i, j] a cluster per frequency draws its four entries together. Oracle: a loop that
    gathers frequencies by the same draws; tolerance 1e-6."""
    p, t = (x[:24].reshape(6, 2, 2) for x in _inputs("entries"))
    own = make_units(24, None, None, np.arange(6)[:, None, None], None, (6, 2, 2), "T")
    counts = np.array([[2, 0, 1, 1, 1, 1]])
    found = _values(m.RealImagRMSE(), p, t, own, counts)[0]
    index = np.repeat(np.arange(6), counts[0])
    assert found == pytest.approx(m.RealImagRMSE()(p[index], t[index]), rel=1e-6)


# --- intervals ----------------------------------------------------------------------------------------------------


def test_standard_errors_of_means() -> None:
    """Claim: the standard error of a mean is sd / sqrt(N), of a share sqrt(p (1 - p) / N).

    Oracle: these formulas. Tolerance 8 % (2,000 resamples know a standard deviation to 1.6 %).
    """
    preds, labels = _inputs("angles", 300)
    error = emma.per_sample("E-LOC-AOA", preds, labels)["MeanAngularError"]
    found = emma.bootstrap("E-LOC-AOA", preds, labels, key=0, num_resamples=2000)["MeanAngularError"]
    assert found.standard_error == pytest.approx(error.std() / math.sqrt(300), rel=0.08)
    assert found.value == pytest.approx(error.mean()) and found.low < found.value < found.high
    assert (found.high - found.low) / (2 * 1.96) == pytest.approx(found.standard_error, rel=0.1)
    s, y = _inputs("beams", 300)
    found = emma.bootstrap("E-CH-BEAM", s, y, key=0, num_resamples=2000)["TopKAccuracy"]
    assert found.standard_error == pytest.approx(math.sqrt(found.value * (1 - found.value) / 300), rel=0.08)


INFLUENCE = [
    (m.MeanAngularError(), "angles"),
    (m.BalancedAccuracy(num_classes=3), "scores"),
    (m.NMSE(), "channels"),
    (m.Bleu(), "text"),
]


@pytest.mark.parametrize(("metric", "kind"), INFLUENCE, ids=lambda x: x if isinstance(x, str) else x.name)
def test_influence_is_the_jackknife(metric: Any, kind: str) -> None:
    """Claim: influence values are minus the delete-one values. Oracle: `evaluate` without each sample; 1e-6."""
    preds, labels = _inputs(kind)
    read = study._read(Task("T", (metric,)), preds, labels, None, None)
    (reduction,) = study._reductions(read, None)
    found = reduction.influence(Units(np.ones(N, np.int64)))
    for i in range(0, N, 5):
        rest = np.delete(np.arange(N), i)
        expected = emma.evaluate(Task("T", (metric,)), _gathered(preds, rest), _gathered(labels, rest))[metric.name]
        assert -found[i] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("kind", ["ties", "tied"])
def test_influence_of_auc_is_its_derivative(kind: str) -> None:
    """Claim: placement values give the derivative of the AUC by the weight of each sample.

    Oracle: central differences of the definition with real weights. Tolerance 1e-6.
    """
    preds, labels = _inputs(kind)
    metric = m.AUC() if kind == "ties" else m.AUC(num_classes=3)
    columns = [(preds, labels == 1)] if kind == "ties" else [(preds[:, c], labels == c) for c in range(3)]

    def auc(w: np.ndarray) -> float:
        values = []
        for s, positive in columns:
            a, b = w[positive], w[~positive]
            gap = s[positive][:, None] - s[~positive]
            values.append(a @ ((gap > 0) + 0.5 * (gap == 0)) @ b / (a.sum() * b.sum()))
        return float(np.mean(values))

    read = study._read(Task("T", (metric,)), preds, labels, None, None)
    (reduction,) = study._reductions(read, None)
    found = reduction.influence(Units(np.ones(N, np.int64)))
    for i in range(N):
        step = 1e-4 * np.eye(N)[i]
        assert found[i] == pytest.approx((auc(1 + step) - auc(1 - step)) / 2e-4, abs=1e-6)


def test_bca_against_scipy() -> None:
    """Claim: the BCa interval of a mean of skewed values is scipy's.

    Oracle: scipy.stats.bootstrap run live with its own draws, 8,000 each. Tolerance: a tenth of the interval's width,
    which is less than half of what BCa moves the ends by.
    """
    stats = pytest.importorskip("scipy.stats")
    error = _rng(4).exponential(size=40).astype(np.float32) ** 2
    peer = stats.bootstrap((error,), np.mean, n_resamples=8000, method="BCa", rng=np.random.default_rng(0))
    found, plain = (
        emma.bootstrap("E-LOC-AOA", error, 0 * error, key=0, num_resamples=8000, method=method)["MeanAngularError"]
        for method in ("bca", "percentile")
    )
    assert found.method == "bca" and not found.flags
    width = found.high - found.low
    assert found.low == pytest.approx(peer.confidence_interval.low, abs=0.1 * width)
    assert found.high == pytest.approx(peer.confidence_interval.high, abs=0.1 * width)
    assert found.high - plain.high > 0.1 * width


def test_bca_says_where_it_cannot() -> None:
    """Claim: EER and medians keep the percentile interval under method="bca", and the flag says so; BCa of weighted,
    clustered and stratified data is defined."""
    s, y = _inputs("scores")
    found = emma.bootstrap("E-ID-FP", s, y, key=0, num_resamples=200, method="bca")
    assert found["EER"].method == "percentile" and "bca_unavailable" in found["EER"].flags
    assert found["Top1Accuracy"].method == "bca"
    plain = emma.bootstrap("E-ID-FP", s, y, key=0, num_resamples=200)
    assert (found["EER"].low, found["EER"].high) == (plain["EER"].low, plain["EER"].high)
    options: list[dict[str, Any]] = [{"weights": np.arange(N) % 3}, {"clusters": np.arange(N) // 2}, {"stratify": y}]
    for task in ("E-LOC-LOS", "E-ID-DRONE"):
        for option in options:
            (one,) = emma.bootstrap(task, s, y, key=0, num_resamples=200, method="bca", **option).values()
            assert one.method == "bca" and one.low <= one.value <= one.high


def test_undefined_resamples_are_counted() -> None:
    """Claim: resamples without the only positive are undefined, counted and flagged; the same for the only channel with
    energy. Oracle: how often a draw of the same key lacks it."""
    y = np.zeros(10, int)
    y[3] = 1
    s = _rng(0).normal(size=10)
    found = emma.bootstrap("E-SC-SENSE", s, y, key=1, num_resamples=400)["AUC"]
    drawn = np.concatenate(list(draw(Units(np.ones(10, np.int64)), generator(1), 400, 100)))
    assert found.num_undefined == int((drawn[:, 3] == 0).sum()) > 50
    assert {"undefined_resamples", "few_units"} <= set(found.flags)
    assert math.isfinite(found.low) and math.isfinite(found.high)
    h = np.zeros((10, 6), np.complex64)
    h[3] = 1
    found = emma.bootstrap("E-CH-CSI", h * np.complex64(1.1), h, key=1, num_resamples=400)["NMSE"]
    assert found.num_undefined == int((drawn[:, 3] == 0).sum())


def test_masked_samples_are_never_drawn() -> None:
    """Claim: a masked sample, NaN included, or one of weight 0, changes no bit; weights multiply the draws."""
    preds, labels = _inputs("angles")
    more = np.append(preds, np.nan), np.append(labels, 0.0)
    where = np.arange(N + 1) < N
    plain = emma.bootstrap("E-LOC-AOA", preds, labels, key=2, num_resamples=100)["MeanAngularError"]
    masked = emma.bootstrap("E-LOC-AOA", *more, key=2, num_resamples=100, where=where)["MeanAngularError"]
    assert masked == plain
    more = np.append(preds, 0.0), np.append(labels, 0.0)
    weights = np.append(np.full(N, 3), 0)
    weighted = emma.bootstrap("E-LOC-AOA", *more, key=2, num_resamples=100, weights=weights)["MeanAngularError"]
    assert weighted.num_units == 3 * N and weighted.value == pytest.approx(plain.value)
    assert weighted.standard_error == pytest.approx(plain.standard_error / math.sqrt(3), rel=0.4)


def test_intervals_are_strict_json() -> None:
    """Claim: an interval with infinite ends goes through strict JSON, and says what was resampled."""
    h = _channels(30, _rng(0))
    found = emma.bootstrap("E-CH-CSI", h, h, key=0, num_resamples=50)["NMSE"]
    content = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert content["value"] == content["low"] == content["high"] == "-inf"
    assert content["standard_error"] is None and content["resampled"] == "samples" and content["num_units"] == 30
    assert content["flags"] == ["few_resamples", "constant"]


@pytest.mark.parametrize("level", [0.0, 0.025, 0.3, 0.5, 0.975, 1.0])
def test_quantiles(level: float) -> None:
    """Claim: quantiles are numpy's of method "weibull", (B + 1) p. Tolerance 1e-12."""
    x = np.sort(_rng(0).normal(size=39))
    assert intervals._quantile(x, level) == pytest.approx(np.quantile(x, level, method="weibull"), abs=1e-12)


def test_bad_settings() -> None:
    """Claim: settings that mean nothing raise with the argument's name."""
    preds, labels = _inputs("angles")
    bad: list[tuple[str, dict[str, Any]]] = [
        ("num_resamples", {"num_resamples": 0}),
        ("confidence", {"confidence": 95}),
        ("method", {"method": "normal"}),
        ("key", {"key": np.zeros(3)}),
    ]
    for argument, option in bad:
        with pytest.raises(EvaluationError) as error:
            emma.bootstrap("E-LOC-AOA", preds, labels, **({"key": 0} | option))
        assert error.value.argument == argument
    with pytest.raises(ShapeError, match="does not broadcast"):
        emma.bootstrap("E-LOC-AOA", preds, labels, key=0, clusters=[0, 1])
    with pytest.raises(EvaluationError, match="traced"):
        jax.jit(lambda p: emma.bootstrap("E-LOC-AOA", p, labels, key=0))(preds)


@SLOW
def test_bench_row(capsys: pytest.CaptureFixture[str]) -> None:
    """Claim: the benchmark's two ways give about the same interval. Tolerance: half its width, from 50 looped
    resamples."""
    pytest.importorskip("sklearn")
    from bench import uncertainty

    row = uncertainty.run("AUC", 500, 200, 50, 1)
    assert row is not None and row.apart < 0.5 and row.times > 0
    assert uncertainty.main(["--n", "300", "--resamples", "20", "--looped", "5", "--rounds", "1", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [r["name"] for r in rows] == ["accuracy", "balanced accuracy", "AUC"]
