"""Scores as what people keep and plot: a flat dict of scalars, a data frame, JSON text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emma_jax.scores import Scores

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped,import-not-found,unused-ignore]

__all__ = ["to_json", "to_pandas", "to_scalars"]


def to_scalars(scores: Scores, *, prefix: str = "", aux: bool = True, validity: bool = False) -> dict[str, float]:
    """Scores as a flat dict of tag to number, the form that scalar loggers take.

    ``wandb.log(to_scalars(scores), step=step)`` for Weights & Biases, and for a TensorBoard writer
    ``for tag, value in to_scalars(scores).items(): writer.add_scalar(tag, value, step)``.

    Args:
      scores: host scores of any task, as `evaluate` or `Task.compute` give them; leading axes [...] (groups, runs of a
        sweep) get their indices at the end of the tag.
      prefix: put before every tag, with a slash between.
      aux: whether auxiliary values (the threshold of EER, the half-width of a stream) are in it.
      validity: whether counts are in it (``n_used`` and whatever else is not 0).

    Returns:
      ``{"E-ID-FP/Top1Accuracy": 0.93, "E-ID-FP/EER": 0.02, "E-ID-FP/EER/threshold": 1.4, ...}``, each in its metric's
      unit; an undefined value is NaN.
    """
    head = "/".join(part for part in (prefix, scores.task) if part)
    flat: dict[str, float] = {}
    for name, value in scores.items():
        # A metric called by itself has its own name for a task.
        tag = head if name == scores.task else f"{head}/{name}" if head else name
        _put(flat, tag, value)
        for key, extra in scores.aux[name].items() if aux else ():
            _put(flat, f"{tag}/{key}", extra)
        for key, count in scores.validity[name].as_dict().items() if validity else ():
            if key == "n_used" or np.any(count):
                _put(flat, f"{tag}/{key}", count)
    return flat


def _put(flat: dict[str, float], tag: str, value: Any) -> None:
    array = np.asarray(value)
    if array.ndim == 0:
        flat[tag] = float(array)
        return
    for index in np.ndindex(array.shape):
        flat["/".join((tag, *map(str, index)))] = float(array[index])


def to_pandas(scores: Scores, *, index_names: tuple[str, ...] = ()) -> pandas.DataFrame:
    """Scores as a data frame, one row per metric and leading index.

    Args:
      scores: host scores of any task; values of shape [...] (groups, runs) give a row per entry.
      index_names: names of the columns for the leading axes; by default ``axis0``, ``axis1`` and so on.

    Returns:
      A frame with the columns task, metric, the leading indices, value, unit, direction ("higher" or "lower"), and the
      counts of `Validity`.

    Raises:
      ImportError: pandas is not there.
    """
    try:
        import pandas
    except ImportError as error:
        raise ImportError(f"to_pandas needs pandas, which cannot be imported ({error})") from error
    info = {entry.name: entry for entry in scores.info}
    rows: list[dict[str, Any]] = []
    for name, value in scores.items():
        values, counts = np.asarray(value), scores.validity[name].as_dict()
        axes = tuple(index_names) or tuple(f"axis{i}" for i in range(values.ndim))
        for index in np.ndindex(values.shape):
            row = {"task": scores.task, "metric": name, **dict(zip(axes, index)), "value": float(values[index])}
            if name in info:
                row |= {"unit": info[name].unit, "direction": info[name].direction}
            rows.append(row | {key: int(np.asarray(count)[index]) for key, count in counts.items()})
    return pandas.DataFrame(rows)


def to_json(scores: Scores) -> str:
    """Scores as strict JSON text: what `Scores.to_dict` says, infinities as "inf" and "-inf", undefined values as null
    with a reason.

    Args:
      scores: host scores of any task, of any leading shape [...].

    Returns:
      One JSON object; every value is in the unit and has the direction that stand beside it.
    """
    from emma_jax.io import dumps_strict

    return dumps_strict(scores.to_dict())
