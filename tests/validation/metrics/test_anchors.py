"""Anchors: frozen in the release, m_min < m_max as numbers, both directions reach 0 and 1, clipping saturates."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emma_jax as emma

finite = st.floats(-1e9, 1e9)


@st.composite
def anchors(draw):
    low, high = sorted((draw(finite), draw(finite)))
    return emma.Anchor(low, high if high > low + 1e-9 else low + 1.0, draw(st.sampled_from(["higher", "lower"])))


def exact(anchor: emma.Anchor, m: float) -> Fraction:
    low, high, m = Fraction(anchor.m_min), Fraction(anchor.m_max), Fraction(m)
    return (m - low) / (high - low) if anchor.direction == "higher" else (high - m) / (high - low)


@settings(max_examples=300, deadline=None)
@given(anchors(), finite)
def test_the_piecewise_formula(anchor, m):
    """Unclipped and clipped values against rational arithmetic; to 1e-12 (relative beyond 1)."""
    x = exact(anchor, m)
    assert abs(Fraction(anchor.unclipped(m)) - x) <= Fraction(1, 10**12) * max(1, abs(x))
    assert abs(Fraction(anchor.normalize(m)) - min(max(x, 0), 1)) <= Fraction(1, 10**12)


@settings(max_examples=100, deadline=None)
@given(anchors(), st.lists(finite, min_size=2, max_size=5))
def test_exact_ends_and_order(anchor, values):
    """Floor gives exactly 0, ceiling exactly 1, everything between is in [0, 1] and monotone in merit."""
    floor, ceiling = (anchor.m_min, anchor.m_max) if anchor.direction == "higher" else (anchor.m_max, anchor.m_min)
    assert (anchor.normalize(floor), anchor.normalize(ceiling)) == (0.0, 1.0)
    normalized = [anchor.normalize(m) for m in sorted(values, reverse=anchor.direction == "lower")]
    assert normalized == sorted(normalized) and all(0.0 <= x <= 1.0 for x in normalized)


@settings(max_examples=100, deadline=None)
@given(finite, finite, finite)
def test_directions_are_complements(low, high, m):
    """The same two numbers read the other way: normalized values add to 1; to 1e-12."""
    low, high = sorted((low, high))
    if low == high:
        high = low + 1.0
    higher, lower = emma.Anchor(low, high, "higher"), emma.Anchor(low, high, "lower")
    assert higher.normalize(m) + lower.normalize(m) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(
    ("direction", "value", "expected"),
    [("higher", math.inf, 1.0), ("higher", -math.inf, 0.0), ("lower", math.inf, 0.0), ("lower", -math.inf, 1.0)],
)
def test_infinities_saturate(direction, value, expected):
    """-inf dB of an error metric is perfect, +inf dB of a quality is perfect, the other ends are 0."""
    assert emma.Anchor(-30.0, 20.0, direction).normalize(value) == expected
    assert emma.Anchor(-30.0, 20.0, direction).unclipped(value) == (math.inf if expected else -math.inf)


@pytest.mark.parametrize("direction", ["higher", "lower"])
@pytest.mark.parametrize("nan", [math.nan, -math.nan, np.float32("nan"), np.float16("nan")])
def test_nan_in_nan_out(direction, nan):
    """An undefined score is neither 0 nor 1 after clipping."""
    assert math.isnan(emma.Anchor(0.0, 1.0, direction).normalize(nan))
    assert math.isnan(emma.Anchor(0.0, 1.0, direction).unclipped(nan))


@pytest.mark.parametrize(
    ("m_min", "m_max", "direction"),
    [
        (1.0, 1.0, "higher"),
        (90.0, 0.0, "lower"),
        (1.0, 0.0, "higher"),
        (0.0, math.inf, "higher"),
        (-math.inf, 0.0, "lower"),
        (math.nan, 1.0, "higher"),
        (0.0, math.nan, "lower"),
        (-1.7e308, 1.7e308, "higher"),
        (0.0, 1.0, "up"),
        (0.0, 1.0, ""),
        (0.0, 1.0, None),
        ("0", 1.0, "higher"),
        (None, 1.0, "higher"),
        (0.0, True, "higher"),
        (0.0, np.ones(1), "higher"),
    ],
)
def test_what_is_no_anchor(m_min, m_max, direction):
    """Equal, reversed, infinite, NaN or non-numeric ends, and unknown directions, are ReleaseErrors."""
    with pytest.raises(emma.ReleaseError):
        emma.Anchor(m_min, m_max, direction)


def test_an_anchor_cannot_be_moved():
    """Frozen in Python as in the manifest."""
    anchor = emma.Anchor(0.0, 90.0, "lower")
    with pytest.raises(AttributeError):
        anchor.m_max = 180.0


@pytest.mark.parametrize("value", ["30", None, True, np.zeros(2), [1.0]])
def test_what_is_no_score(value):
    """Text, None, bools and arrays are typed errors, not silently floats."""
    with pytest.raises(emma.EvaluationError, match="one real number"):
        emma.Anchor(0.0, 90.0, "lower").normalize(value)


def test_numpy_and_jax_scalars_are_scores():
    """A score computed on a device or by NumPy normalizes like the Python float of the same value."""
    import jax.numpy as jnp

    anchor = emma.Anchor(0.0, 90.0, "lower")
    for value in (np.float64(30.0), np.float32(30.0), np.array(30.0), jnp.float32(30.0), 30):
        assert anchor.normalize(value) == anchor.normalize(30.0) and type(anchor.normalize(value)) is float


def test_the_documented_floor_of_the_angle_task():
    """m_max = 90 degrees: the error of any constant angle against angles uniform on the circle (integral, exact)."""
    anchor = emma.load_release("v0.1-proposed").anchor("E-LOC-AOA")
    truth = np.arange(0.0, 360.0, 0.5) + 0.25  # midpoints: the rule is exact for a piecewise linear distance
    for constant in (0.0, 90.0, 217.0):
        delta = np.abs(truth - constant) % 360.0
        assert np.minimum(delta, 360.0 - delta).mean() == pytest.approx(anchor.m_max, abs=1e-9)
        assert anchor.normalize(np.minimum(delta, 360.0 - delta).mean()) == pytest.approx(0.0, abs=1e-9)


def test_chance_floors_of_the_class_tasks():
    """m_min is chance: 1/2 for two classes and for an AUC, 1/16 for 16 equally frequent emitters."""
    release = emma.load_release("v0.1-proposed")
    assert [release.anchor(t).m_min for t in ("E-LOC-LOS", "E-ID-DRONE", "E-ID-FP")] == [1 / 2, 1 / 2, 1 / 16]
    assert all(release.anchor(t).normalize(1.0) == 1.0 for t in ("E-LOC-LOS", "E-ID-DRONE", "E-ID-FP"))
