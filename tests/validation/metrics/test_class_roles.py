"""SimToRealGap stands alone; OODAvg is the sole Aggregator."""

from __future__ import annotations

import inspect

import pytest

import emma_jax as emma


def test_gap_is_no_aggregator():
    """A pair of scores cannot stand for fold scores, so the gap does not inherit the contract."""
    assert not issubclass(emma.SimToRealGap, emma.Aggregator)
    assert not isinstance(emma.SimToRealGap(), emma.Aggregator)


def test_ood_avg_is_the_sole_aggregator():
    """Among the package's classes, exactly one subclass."""
    assert issubclass(emma.OODAvg, emma.Aggregator)
    ours = [c for c in emma.Aggregator.__subclasses__() if c.__module__.split(".")[0] == "emma_jax"]
    assert ours == [emma.OODAvg] and not emma.OODAvg.__subclasses__()


def test_aggregator_is_abstract():
    """Its only abstract method is the reduction of fold scores."""
    assert inspect.isabstract(emma.Aggregator)
    assert emma.Aggregator.__abstractmethods__ == {"__call__"}
    with pytest.raises(TypeError):
        emma.Aggregator()
