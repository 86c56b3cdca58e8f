"""Rows: what is benchmarked. A new row is one function here, decorated with `row`.

The function gets a `Size` and returns a `Case`: data (NumPy, made from a fixed seed), the metric, a float64 definition
that shares no code with the package, and the peers. The command line, the check, the clock and the table do the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.peers import Peer
from emma_jax import metrics
from emma_jax.metrics.base import Metric

__all__ = ["ROWS", "WAYS", "Case", "Row", "Size", "define_auc", "define_top", "row"]

# How ours is called: host call with every check on arrays already on the device; the same from NumPy input; the jitted
# metric on device arrays, without host checks.
WAYS = ("evaluate", "numpy", "kernel")


@dataclass(frozen=True)
class Size:
    """N samples and C classes."""

    n: int
    classes: int


@dataclass(frozen=True)
class Case:
    """One row's content.

    Attributes:
      task: task id.
      metric: the metric to time.
      preds, labels: NumPy arrays (or pytrees of them) as a user would hold them.
      reference: the definition in float64, ``reference(preds, labels)``.
      peers: libraries that have the metric.
      classes: C, where there are classes.
      tolerance: how far the host value may lie from the reference; the float32 kernel may lie 1e-6 further, relatively.
      ways: which of `WAYS` apply (text: "evaluate" alone).
      runs: S, where the predictions are a stack of runs.
      calls: the ways of calling ours, ``calls(case, device arrays)``, where they are not those of a metric.
    """

    task: str
    metric: Metric
    preds: Any
    labels: Any
    reference: Callable[[Any, Any], float]
    peers: tuple[Peer, ...] = ()
    classes: int | None = None
    tolerance: float = 1e-12
    ways: tuple[str, ...] = WAYS
    runs: int | None = None
    calls: Callable[[Case, tuple[Any, Any]], dict[str, Callable[[], Any]]] | None = None


@dataclass(frozen=True)
class Row:
    """A named `Case` maker; ``kernel_at``: also time the kernel alone at so many times N (0: not)."""

    name: str
    make: Callable[[Size], Case]
    kernel_at: int = 0


ROWS: dict[str, Row] = {}


def row(name: str, *, kernel_at: int = 0) -> Callable[[Callable[[Size], Case]], Callable[[Size], Case]]:
    """Registers a row. ``name`` is what ``--only`` takes; "auc-ovr" also answers to "auc"."""

    def register(make: Callable[[Size], Case]) -> Callable[[Size], Case]:
        ROWS[name] = Row(name, make, kernel_at)
        return make

    return register


# --- data -------------------------------------------------------------------------------------------------------


def _labels(size: Size, rng: np.random.Generator) -> np.ndarray:
    """Unequal classes, each of them present, so that balanced and plain accuracy differ."""
    share = 1.0 / np.arange(1, size.classes + 1)
    drawn = rng.choice(size.classes, size=size.n, p=share / share.sum())
    drawn[: size.classes] = np.arange(size.classes)
    return rng.permutation(drawn)


def _logits(size: Size) -> tuple[np.ndarray, np.ndarray]:
    """Float32 [N, C] scores in which the true class stands out by 1.5 standard deviations, int64 [N] labels."""
    rng = np.random.default_rng(7)
    labels = _labels(size, rng)
    scores = rng.standard_normal((size.n, size.classes), dtype=np.float32)
    scores[np.arange(size.n), labels] += np.float32(1.5)
    return scores, labels


def _probabilities(size: Size) -> tuple[np.ndarray, np.ndarray]:
    """Softmax of `_logits`: within [0, 1], where torchmetrics ranks scores as they are and spends no time on a softmax
    of its own, and with rows that sum to 1, as scikit-learn demands."""
    scores, labels = _logits(size)
    e: np.ndarray = np.exp(scores - scores.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True), labels


def _detections(size: Size) -> tuple[np.ndarray, np.ndarray]:
    """Float32 [N] scores in (0, 1), the sigmoid of a Gaussian shift of 1.5, and int64 [N] labels, 30 % positive."""
    rng = np.random.default_rng(11)
    labels = (rng.random(size.n) < 0.3).astype(np.int64)
    labels[:2] = 0, 1
    raw = rng.standard_normal(size.n, dtype=np.float32) + np.float32(1.5) * labels.astype(np.float32)
    return (1 / (1 + np.exp(np.float32(0.75) - raw))).astype(np.float32), labels


def _angles(size: Size) -> tuple[np.ndarray, np.ndarray]:
    """Float32 [N] degrees: directions around the circle, estimated with a deviation of 20 degrees, not wrapped."""
    rng = np.random.default_rng(3)
    truth = (360 * rng.random(size.n)).astype(np.float32)
    return truth + np.float32(20) * rng.standard_normal(size.n, dtype=np.float32), truth


# --- definitions in float64 -------------------------------------------------------------------------------------


def _angular_error(preds: np.ndarray, labels: np.ndarray) -> float:
    d = np.abs(preds.astype(np.float64) - labels.astype(np.float64)) % 360
    return float(np.minimum(d, 360 - d).mean())


def _rank(preds: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Classes ahead of the true one: a higher score, or the same score and a lower index."""
    true = np.take_along_axis(preds, labels[:, None], axis=1)
    ahead = (preds > true) | ((preds == true) & (np.arange(preds.shape[1]) < labels[:, None]))
    return ahead.sum(axis=1)


def define_top(k: int) -> Callable[[np.ndarray, np.ndarray], float]:
    return lambda preds, labels: float(np.mean(_rank(preds, labels) < k))


def _mean_recall(preds: np.ndarray, labels: np.ndarray) -> float:
    hit = _rank(preds, labels) == 0
    return float(np.mean([hit[labels == c].mean() for c in range(preds.shape[1])]))


def define_auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """Share of (positive, negative) pairs in the right order, ties one half, from exact counts."""
    positive, negative = np.sort(scores[labels == 1]), np.sort(scores[labels == 0])
    below = sum(int(np.searchsorted(negative, positive, side).sum()) for side in ("left", "right"))
    return below / (2 * positive.size * negative.size)


def _auc_ovr(preds: np.ndarray, labels: np.ndarray) -> float:
    return float(np.mean([define_auc(preds[:, c], (labels == c).astype(int)) for c in range(preds.shape[1])]))


def _crossing(far: np.ndarray, frr: np.ndarray) -> float:
    """Where a polyline of (far, frr) vertices, thresholds descending, crosses far = frr."""
    at = int(np.argmax(far >= frr))
    gap, step = frr[at - 1] - far[at - 1], (far[at] - far[at - 1]) + (frr[at - 1] - frr[at])
    return float(far[at - 1] + gap / step * (far[at] - far[at - 1]))


def _eer(scores: np.ndarray, labels: np.ndarray) -> float:
    order = np.argsort(-scores)
    s, genuine = scores[order], labels[order] == 1
    last = np.append(s[1:] != s[:-1], True)  # one vertex per distinct threshold
    accepted = [np.append(0, np.cumsum(side)[last]) for side in (genuine, ~genuine)]
    return _crossing(accepted[1] / accepted[1][-1], 1 - accepted[0] / accepted[0][-1])


def _pooled(preds: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One trial per score: genuine for the true class, impostor for every other."""
    return preds.reshape(-1), (np.arange(preds.shape[1]) == labels[:, None]).astype(np.int64).reshape(-1)


# --- rows -------------------------------------------------------------------------------------------------------

_ARGMAX = "argmax of the scores is part of the time"


@row("angle", kernel_at=4)
def angle(size: Size) -> Case:
    """E-LOC-AOA; no peer has a circular mean, so the formula as one would write it in torch stands in."""

    def formula(torch: Any, p: Any, t: Any) -> Any:
        d = (p - t).abs() % 360
        return torch.minimum(d, 360 - d).mean()

    peer = Peer("torch formula", formula, 1e-3, "no library has this metric; float32 throughout")
    return Case("E-LOC-AOA", metrics.MeanAngularError(), *_angles(size), _angular_error, (peer,), tolerance=1e-9)


@row("balanced", kernel_at=4)
def balanced(size: Size) -> Case:
    """E-LOC-LOS: recall averaged over classes."""
    c = size.classes
    peers = (
        Peer(
            "torchmetrics",
            lambda tm, p, y: tm.multiclass_accuracy(p, y, num_classes=c, average="macro", validate_args=False),
        ),
        Peer("scikit-learn", lambda sk, p, y: sk.balanced_accuracy_score(y, p.argmax(1)), note=_ARGMAX),
    )
    return Case("E-LOC-LOS", metrics.BalancedAccuracy(), *_logits(size), _mean_recall, peers, classes=c)


def _accuracy_peers(classes: int) -> tuple[Peer, ...]:
    return (
        Peer(
            "torchmetrics",
            lambda tm, p, y: tm.multiclass_accuracy(p, y, num_classes=classes, average="micro", validate_args=False),
        ),
        Peer("scikit-learn", lambda sk, p, y: sk.accuracy_score(y, p.argmax(1)), note=_ARGMAX),
        Peer(
            "google-metrax",
            lambda mx, p, y: mx.Accuracy.from_model_output(p.argmax(1), y).compute(),
            note=_ARGMAX,
        ),
    )


@row("top1", kernel_at=4)
def top1(size: Size) -> Case:
    """E-ID-FP: the true class is ranked first."""
    c = size.classes
    return Case("E-ID-FP", metrics.Top1Accuracy(), *_logits(size), define_top(1), _accuracy_peers(c), classes=c)


@row("plain")
def plain(size: Size) -> Case:
    """E-ID-AMC: plain accuracy."""
    c = size.classes
    return Case("E-ID-AMC", metrics.PlainAccuracy(), *_logits(size), define_top(1), _accuracy_peers(c), classes=c)


@row("topk", kernel_at=4)
def topk(size: Size) -> Case:
    """E-CH-BEAM: the true beam is among the five first (fewer where there are not more than five classes)."""
    c, k = size.classes, min(5, size.classes - 1)

    def recall(mx: Any, p: Any, hot: Any) -> Any:
        return mx.RecallAtK.from_model_output(p, hot, np.array([k])).compute()[0]

    def one_hot(p: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return p, (np.arange(c) == y[:, None]).astype(np.int32)

    peers = (
        Peer(
            "torchmetrics",
            lambda tm, p, y: tm.multiclass_accuracy(p, y, c, average="micro", top_k=k, validate_args=False),
        ),
        Peer("scikit-learn", lambda sk, p, y: sk.top_k_accuracy_score(y, p, k=k, labels=np.arange(c))),
        Peer("google-metrax", recall, 1e-5, "RecallAtK, its one-hot labels made before the clock starts", one_hot),
    )
    return Case("E-CH-BEAM", metrics.TopKAccuracy(k=k), *_logits(size), define_top(k), peers, classes=c)


def _auc_peers() -> tuple[Peer, ...]:
    return (
        Peer(
            "torchmetrics",
            lambda tm, p, y: tm.binary_auroc(p, y, validate_args=False),
            1e-5,
            "float32 curve",
        ),
        Peer("scikit-learn", lambda sk, p, y: sk.roc_auc_score(y, p)),
        Peer(
            "google-metrax",
            lambda mx, p, y: mx.AUCROC.from_model_output(p, y).compute(),
            1e-2,
            "200 thresholds: an approximation",
        ),
    )


@row("auc-binary")
def auc(size: Size) -> Case:
    """E-ID-DRONE with one score per sample."""
    return Case("E-ID-DRONE", metrics.AUC(), *_detections(size), define_auc, _auc_peers())


@row("auc-ovr")
def auc_ovr(size: Size) -> Case:
    """E-ID-DRONE with C classes, one-vs-rest, macro average."""
    c = size.classes
    peers = (
        Peer(
            "torchmetrics",
            lambda tm, p, y: tm.multiclass_auroc(p, y, num_classes=c, average="macro", validate_args=False),
            1e-5,
            "float32 curve",
        ),
        Peer("scikit-learn", lambda sk, p, y: sk.roc_auc_score(y, p, multi_class="ovr", average="macro")),
    )
    return Case("E-ID-DRONE", metrics.AUC(num_classes=c), *_probabilities(size), _auc_ovr, peers, classes=c)


@row("auroc")
def auroc(size: Size) -> Case:
    """E-SC-ANOM: strictly binary."""
    return Case("E-SC-ANOM", metrics.AUROC(), *_detections(size), define_auc, _auc_peers())


_SNAPS = "takes the nearest vertex of the curve (snaps), float32; we interpolate"
_RECIPE = "has no EER: roc_curve(drop_intermediate=False), then the crossing interpolated"


def _roc_crossing(sk: Any, p: Any, y: Any) -> float:
    far, tpr, _ = sk.roc_curve(y, p, drop_intermediate=False)
    return _crossing(far, 1 - tpr)


@row("eer-binary")
def eer(size: Size) -> Case:
    """E-ID-FP, binary trials."""
    scores, labels = _detections(size)
    snap = 1e-5 + 10 / min(labels.sum(), size.n - labels.sum())
    peers = (
        Peer("torchmetrics", lambda tm, p, y: tm.binary_eer(p, y, validate_args=False), snap, _SNAPS),
        Peer("scikit-learn", _roc_crossing, note=_RECIPE),
    )
    return Case("E-ID-FP", metrics.EER(), scores, labels, _eer, peers)


@row("eer-pooled")
def eer_pooled(size: Size) -> Case:
    """E-ID-FP, N x C trials pooled one-vs-rest."""
    c = size.classes
    peers = (
        Peer(
            "torchmetrics",
            lambda tm, p, y: tm.multiclass_eer(p, y, num_classes=c, average="micro", validate_args=False),
            1e-5 + 10 / size.n,
            _SNAPS,
        ),
        Peer("scikit-learn", _roc_crossing, note=_RECIPE, inputs=_pooled),
    )
    scores, labels = _probabilities(size)
    return Case("E-ID-FP", metrics.EER(), scores, labels, lambda p, y: _eer(*_pooled(p, y)), peers, classes=c)
