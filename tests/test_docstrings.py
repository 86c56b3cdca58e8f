"""Public names document themselves: shapes, units, direction and errors can be read off by a program."""

from __future__ import annotations

import inspect
import re

import pytest

import emma_jax
from emma_jax import metrics
from emma_jax.metrics import Metric
from emma_jax.tasks import list_tasks

METRICS = [getattr(metrics, n) for n in metrics.__all__ if n != "Metric"]


@pytest.mark.parametrize("metric", METRICS, ids=lambda m: m.__name__)
def test_metric_docstring(metric: type[Metric]) -> None:
    """Claim: a metric's docstring has the formula, shapes, units, direction and errors, and they agree with the
    class."""
    doc = inspect.getdoc(metric) or ""
    assert ".. math::" in doc
    sections = dict(re.findall(r"^(Shapes|Units|Direction|Errors): *(.+?)(?=^\w+:|^\s*$|\Z)", doc, re.M | re.S))
    assert set(sections) == {"Shapes", "Units", "Direction", "Errors"}
    assert "``preds``" in sections["Shapes"] and "``labels``" in sections["Shapes"]
    assert sections["Direction"].split()[0] == metric.direction
    unit = {"1": "dimensionless", "deg": "degrees"}.get(metric.unit, metric.unit)
    assert unit.lower() in sections["Units"].lower()
    assert metric.bounds[0] < metric.bounds[1]


@pytest.mark.parametrize("name", [n for n in emma_jax.__all__ if not n.startswith("_")])
def test_public_name_is_documented(name: str) -> None:
    """Claim: every public name has a docstring of its own; functions say what they take, return and raise."""
    thing = getattr(emma_jax, name)
    doc = inspect.getdoc(thing) or ""
    assert len(doc) > 40
    if inspect.isfunction(thing):
        parameters = list(inspect.signature(thing).parameters)
        missing = [p for p in parameters if not re.search(rf"\b{re.escape(p)}\b", doc)]
        assert not missing, f"{name} does not document {missing}"


def test_every_metric_is_public() -> None:
    """Claim: whatever a registered task uses can be imported from emma_jax.metrics."""
    used = {type(m).__name__ for t in list_tasks() for m in t.metrics}
    assert used <= set(metrics.__all__)
