"""Rows for sweeps: S runs against the same labels, ours in one call, a peer in a loop.

A row's value is the mean over the runs. With the default --n there are 1,024 runs of 16,384 samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import emma_jax as emma
from bench.peers import Peer
from bench.rows import Case, Size, define_auc, define_top, row
from emma_jax import metrics
from emma_jax.metrics.base import Metric

__all__ = ["RUN_LENGTH", "sweep_size"]

RUN_LENGTH = 16_384
_MOST_RUNS = 1024
_LOOP = "a loop over the runs"


def sweep_size(size: Size) -> tuple[int, int]:
    """Runs and samples of each: a sixty-fourth of --n as runs, 4 to 1,024 of them."""
    return min(_MOST_RUNS, max(4, size.n // 64)), min(RUN_LENGTH, size.n)


def _mean_of(one: Callable[[Any, Any], Any]) -> Callable[[Any, Any], float]:
    return lambda preds, labels: float(np.mean([float(one(run, labels)) for run in preds]))


def _loop(call: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    return lambda module, preds, labels: _mean_of(lambda p, y: call(module, p, y))(preds, labels)


def _calls(task_id: str, metric: Metric) -> Callable[[Case, tuple[Any, Any]], dict[str, Callable[[], Any]]]:
    """The ways of calling ours, for a sweep."""

    def make(case: Case, inputs: tuple[Any, Any]) -> dict[str, Callable[[], Any]]:
        task = emma.Task(task_id, (metric,))
        kernel = jax.jit(lambda p, y: emma.sweep(task, p, y)[metric.name].mean())
        return {
            "evaluate": lambda: emma.sweep(task, *inputs)[metric.name].mean(),
            "numpy": lambda: emma.sweep(task, case.preds, case.labels)[metric.name].mean(),
            "kernel": lambda: kernel(*inputs).block_until_ready(),
        }

    return make


@row("sweep-auc")
def sweep_auc(size: Size) -> Case:
    """E-ID-DRONE, one score a sample, many runs."""
    runs, n = sweep_size(size)
    rng = np.random.default_rng(17)
    labels = (rng.random(n) < 0.3).astype(np.int64)
    labels[:2] = 0, 1
    raw = rng.standard_normal((runs, n), dtype=np.float32) + np.float32(1.5) * labels.astype(np.float32)
    preds = (1 / (1 + np.exp(np.float32(0.75) - raw))).astype(np.float32)
    peers = (
        Peer("torchmetrics", _loop(lambda tm, p, y: tm.binary_auroc(p, y, validate_args=False)), 1e-5, _LOOP),
        Peer("scikit-learn", _loop(lambda sk, p, y: sk.roc_auc_score(y, p)), note=_LOOP),
    )
    metric = metrics.AUC()
    return Case(
        "E-ID-DRONE",
        metric,
        preds,
        labels,
        _mean_of(define_auc),
        peers,
        runs=runs,
        calls=_calls("E-ID-DRONE", metric),
    )


@row("sweep-top1")
def sweep_top1(size: Size) -> Case:
    """E-ID-FP, the true class ranked first, many runs."""
    (runs, n), c = sweep_size(size), size.classes
    rng = np.random.default_rng(19)
    labels = rng.integers(0, c, n)
    preds = rng.standard_normal((runs, n, c), dtype=np.float32)
    preds[:, np.arange(n), labels] += np.float32(1.5)
    peers = (
        Peer(
            "torchmetrics",
            _loop(lambda tm, p, y: tm.multiclass_accuracy(p, y, num_classes=c, average="micro", validate_args=False)),
            note=_LOOP,
        ),
        Peer("scikit-learn", _loop(lambda sk, p, y: sk.accuracy_score(y, p.argmax(1))), note=_LOOP),
    )
    metric = metrics.Top1Accuracy()
    return Case(
        "E-ID-FP",
        metric,
        preds,
        labels,
        _mean_of(define_top(1)),
        peers,
        classes=c,
        runs=runs,
        calls=_calls("E-ID-FP", metric),
    )
