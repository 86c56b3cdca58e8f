"""Scores and Validity: what an evaluation returns, on the host and under a JAX transform."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

__all__ = ["MetricInfo", "Scores", "Validity", "json_number"]

_FIELDS = ("n", "n_nonfinite", "n_invalid_label", "n_excluded", "n_absent_classes")


def _decode(limbs: Any) -> Any:
    """Integer held as radix-2^16 limbs ``[..., 2]``: exact Python int / int64 on the host, uint32 (modulo 2^32)
    under trace."""
    if isinstance(limbs, jax.core.Tracer):
        return limbs[..., 0] + (limbs[..., 1] << 16)
    limbs = np.asarray(limbs).astype(np.int64)
    value = limbs[..., 0] + (limbs[..., 1] << 16)
    return int(value) if value.ndim == 0 else value


@jax.tree_util.register_pytree_with_keys_class
class Validity:
    """What a number was computed from. Counts are samples (trials for a pooled EER), a weight of 3 counting as three.

    Outside a transform every field is a Python int (an int64 array where the scores have leading axes), exact to 2^48;
    under a transform it is a uint32 array, modulo 2^32.

    Attributes:
      n: samples present (``where`` True).
      n_used: samples that entered the number: ``n - n_nonfinite - n_invalid_label - n_excluded``.
      n_nonfinite: samples with a NaN (or, for physical quantities, an infinity).
      n_invalid_label: samples whose label (or predicted label) is not a class of the task.
      n_excluded: samples the definition leaves out: silent references, zero-energy channels, zero-field probes.
      n_absent_classes: classes without a true sample (rank metrics: classes without a positive or a negative).
    """

    __slots__ = ("_limbs",)

    def __init__(self, **limbs: Any) -> None:
        zero = np.zeros(2, np.uint32)
        self._limbs = {name: limbs.get(name, zero) for name in _FIELDS}

    n = property(lambda self: _decode(self._limbs["n"]))
    n_nonfinite = property(lambda self: _decode(self._limbs["n_nonfinite"]))
    n_invalid_label = property(lambda self: _decode(self._limbs["n_invalid_label"]))
    n_excluded = property(lambda self: _decode(self._limbs["n_excluded"]))
    n_absent_classes = property(lambda self: _decode(self._limbs["n_absent_classes"]))
    n_used = property(lambda self: self.n - self.n_nonfinite - self.n_invalid_label - self.n_excluded)

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers by field name (lists where the scores have leading axes)."""
        names = ("n", "n_used", *_FIELDS[1:])
        return {k: v if isinstance(v := getattr(self, k), int) else v.tolist() for k in names}

    def __repr__(self) -> str:
        names = ("n", "n_used", *_FIELDS[1:])
        return "Validity(" + ", ".join(f"{k}={getattr(self, k)}" for k in names) + ")"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Validity) and all(np.array_equal(self._limbs[k], other._limbs[k]) for k in _FIELDS)

    __hash__ = None  # type: ignore[assignment]

    def tree_flatten_with_keys(self) -> tuple[tuple[tuple[Any, Any], ...], None]:
        return tuple((jax.tree_util.GetAttrKey(k), self._limbs[k]) for k in _FIELDS), None

    @classmethod
    def tree_unflatten(cls, _: None, children: Any) -> Validity:
        new = object.__new__(cls)
        new._limbs = dict(zip(_FIELDS, children))
        return new


@dataclass(frozen=True)
class MetricInfo:
    """Static description of one score: ``direction`` is "higher" or "lower"; ``config`` are the metric's parameters."""

    name: str
    direction: str
    unit: str
    config: tuple[tuple[str, Any], ...] = field(default=())


def json_number(value: float) -> float | str | None:
    """A number as strict JSON: infinities as the strings "inf" and "-inf", NaN (undefined) as null."""
    value = float(value)
    if math.isnan(value):
        return None
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value


def _jsonable(value: Any) -> Any:
    if isinstance(value, (str, bool, int)) or value is None:
        return value
    if isinstance(value, Mapping):
        return {str(k): _jsonable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(v) for v in value]
    array = np.asarray(value)
    if array.ndim == 0:
        item = array.item()
        return json_number(item) if isinstance(item, float) else item
    return [_jsonable(v) for v in array]


@jax.tree_util.register_pytree_with_keys_class
class Scores(Mapping[str, Any]):
    """The scores of one task, indexed by metric name; a pytree, so it passes through any JAX transform.

    From a host call a value is a Python float (float64; a float64 array where there are leading axes), from a traced
    call a float32 array. An undefined value is NaN: host calls raise instead, except for a run of a sweep or a group.

    Attributes:
      validity: per metric name, a `Validity`.
      aux: per metric name, a dict of further values: ``threshold`` for EER, ``half_width`` for histogram streams.
      task: the task id, or the metric's name for a single metric.
      info: per metric, a `MetricInfo`.
    """

    __slots__ = ("_values", "aux", "info", "task", "validity")

    def __init__(
        self,
        values: Mapping[str, Any],
        validity: Mapping[str, Validity],
        aux: Mapping[str, dict[str, Any]] | None = None,
        *,
        task: str = "",
        info: tuple[MetricInfo, ...] = (),
    ) -> None:
        self._values = dict(values)
        self.validity = dict(validity)
        self.aux = {k: dict((aux or {}).get(k, {})) for k in self._values}
        self.task = task
        self.info = info

    def __getitem__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise KeyError(
                f"{self.task or 'scores'}: no metric {name!r}; there are {', '.join(self._values)}"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def headline(self) -> Any:
        """The value of the task's first metric, the one that ranks."""
        return next(iter(self._values.values()))

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON content: {task, metrics: {name: {value, direction, unit, config, validity, aux}}}."""
        info = {i.name: i for i in self.info}
        metrics: dict[str, Any] = {}
        for name, value in self._values.items():
            entry: dict[str, Any] = {"value": _jsonable(value)}
            if np.any(np.isnan(value)):
                entry["reason"] = "undefined for these labels and predictions"
            if name in info:
                entry |= {"direction": info[name].direction, "unit": info[name].unit}
                entry["config"] = _jsonable(dict(info[name].config))
            entry["validity"] = self.validity[name].as_dict()
            if self.aux[name]:
                entry["aux"] = _jsonable(self.aux[name])
            metrics[name] = entry
        return {"task": self.task, "metrics": metrics}

    def __repr__(self) -> str:
        inner = ", ".join(f"{k}={v}" for k, v in self._values.items())
        return f"Scores({self.task + ': ' if self.task else ''}{inner})"

    def tree_flatten_with_keys(self) -> tuple[tuple[tuple[Any, Any], ...], Any]:
        # As tuples in the order of the metrics: a dict would come back sorted, and the headline is the first.
        names = tuple(self._values)
        parts = {"values": self._values, "validity": self.validity, "aux": self.aux}
        children = tuple((jax.tree_util.GetAttrKey(k), tuple(d[n] for n in names)) for k, d in parts.items())
        return children, (names, self.task, self.info)

    @classmethod
    def tree_unflatten(cls, static: Any, children: Any) -> Scores:
        new = object.__new__(cls)
        names, new.task, new.info = static
        new._values, new.validity, new.aux = (dict(zip(names, part)) for part in children)
        return new
