"""bootstrap: an interval for every metric of a task."""

from __future__ import annotations

from typing import Any

from jax.typing import ArrayLike

from emma_jax.metrics.base import Metric
from emma_jax.tasks import Task
from emma_jax.uncertainty.intervals import Interval, check_settings, interval
from emma_jax.uncertainty.study import as_task, run_study

__all__ = ["bootstrap"]


def bootstrap(
    task: str | Task | Metric,
    preds: Any,
    labels: Any,
    *,
    key: Any,
    num_resamples: int = 1000,
    clusters: ArrayLike | None = None,
    stratify: ArrayLike | None = None,
    confidence: float = 0.95,
    method: str = "percentile",
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    **params: Any,
) -> dict[str, Interval]:
    """How far the scores of a task would move with another sample of the same size.

    Samples are reweighted, never gathered: scores are sorted, errors computed and n-grams counted once, and each
    resample weights them by counts that are exactly those of drawing with replacement. All metrics of the task share
    the draws. Memory is bounded whatever ``num_resamples`` is. Runs on the host, in float64.

    Args:
      task: a task id, a `Task`, or a single metric.
      preds: predictions, shaped as for `emma_jax.evaluate`.
      labels: truth, likewise.
      key: a JAX key (or an int n for ``jax.random.key(n)``); the same key gives the same bits.
      num_resamples: B, how many resamples; 1000 is enough for 95 % intervals, not for small p-values.
      clusters: label of each sample's cluster (environment, recording, unit), any dtype, broadcast to the sample axes:
        whole clusters are drawn. Samples that belong together make intervals from single samples too short.
      stratify: label of each sample's stratum, likewise (the class labels, say): each stratum keeps its size. With
        ``clusters``, a cluster lies in one stratum.
      confidence: nominal coverage of the interval.
      method: "percentile", or "bca" (bias-corrected and accelerated) for the metrics with influence values in closed
        form: all but EER, TPR at an FPR and medians, which keep the percentile interval and say so.
      where: bool, broadcast to the sample axes; a sample that is False is not there and is never drawn.
      weights: non-negative integers, broadcast likewise: a sample of weight 3 is three samples to draw from; within a
        cluster, or for the signals of one mixture, it counts three times.
      lengths: int [N], for tasks over signals.
      **params: parameters of the task to change.

    Returns:
      By metric name, an `Interval`. The unit drawn is a sample of the task: for [N, K, T] signals a mixture, for fields
      a probe, for S-parameters an entry, where neighbours are alike and ``clusters`` are in place. CIDEr-D without a
      table keeps the document frequencies of all references.

    Raises:
      EvaluationError: as `emma_jax.evaluate`; settings that mean nothing; a traced argument; a cluster in two strata;
        a metric of one's own whose state does not add up.

    References:
      Efron and Tibshirani, "An Introduction to the Bootstrap", 1993.
    """
    task = as_task(task, params)
    check_settings(num_resamples, confidence, method, task.id)
    study = run_study(
        task,
        [preds],
        labels,
        key=key,
        num_resamples=int(num_resamples),
        clusters=clusters,
        stratify=stratify,
        where=where,
        weights=weights,
        lengths=lengths,
        influence=method == "bca",
    )
    return {
        name: interval(
            name,
            study.scores[0][name],
            study.resampled[name][0],
            study.influence[name][0] if study.influence else None,
            study.units,
            confidence=confidence,
            method=method,
        )
        for name in study.metrics
    }
