"""Mean angular error uses the circular distance, not plain L1. Oracle: the definition in exact rationals."""

from __future__ import annotations

import numpy as np
import oracles
import pytest

import emma_jax as emma

MAE = emma.metrics.MeanAngularError()


@pytest.mark.parametrize(
    ("pred", "true", "want"),
    [
        (359.0, 1.0, 2.0),  # plain L1 says 358
        (1.0, 359.0, 2.0),
        (-1.0, 1.0, 2.0),
        (-10.0, 725.0, 15.0),
        (0.0, 180.0, 180.0),
        (-180.0, 180.0, 0.0),
        (180.5, -180.0, 0.5),
        (10.0, 170.0, 160.0),  # no 180 degree symmetry
        (90.0, 270.0, 180.0),
        (720.25, 0.0, 0.25),
        (-0.0, 360.0, 0.0),
    ],
)
def test_wrap_boundary(pred, true, want):
    """Pairs astride 0, 180 and 360 degrees cost the way round; exact."""
    assert MAE([pred], [true]) == want
    assert MAE(np.float32([pred]), np.float32([true])) == want


@pytest.mark.parametrize("offset", [0.0, 0.5, 30.0, 179.75, 180.0, 180.25, 270.0, 359.5, 360.0, 725.0, -15.0])
def test_a_constant_offset_costs_itself(offset):
    """Truth plus o costs min(o mod 360, 360 - o mod 360); exact, as the sums are (angles are multiples of 1/4)."""
    truth = np.arange(-720, 720, 7) / 4
    want = min(offset % 360, 360 - offset % 360)
    assert MAE(truth + offset, truth) == want
    assert MAE((truth + offset).astype(np.float32), truth) == want


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("period", [180, 360])
def test_against_the_definition(dtype, period):
    """Random angles over many turns, both periods; exact rationals, to 1e-13 relative and the fixed point's 2^-46."""
    rng = np.random.default_rng(1)
    preds, truth = (rng.uniform(-2000, 2000, (2, 500))).astype(dtype)
    want = float(oracles.angular_error(preds, truth, period=period))
    got = emma.metrics.MeanAngularError(period=period)(preds, truth)
    assert abs(got - want) <= 1e-13 * want + 2.0**-45


def test_axial_period():
    """Period 180: 179 and 1 are 2 apart, 90 is the farthest; exact."""
    axial = emma.metrics.MeanAngularError(period=180)
    assert axial([179.0, 0.0, 270.0, 10.0], [1.0, 90.0, 90.0, 190.0]) == (2 + 90 + 0 + 0) / 4


def test_radians_are_only_read():
    """unit="rad" reads radians and still reports degrees; the definition in float64, to 1e-6 relative."""
    rng = np.random.default_rng(2)
    preds, truth = rng.uniform(-7, 7, (2, 400))
    want = oracles.angular_error_float64(np.degrees(preds), np.degrees(truth))
    metric = emma.metrics.MeanAngularError(unit="rad")
    assert metric(preds, truth) == pytest.approx(want, rel=1e-12)
    assert metric(preds.astype(np.float32), truth.astype(np.float32)) == pytest.approx(want, rel=1e-6)
    assert metric.unit == "deg" and emma.metrics.MeanAngularError(unit="rad") == metric


def test_the_mean_angle_is_the_floor():
    """The circular mean of the training angles loses to a model with an error of 5 degrees, and to one with 20, on
    every seed; known by construction."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        train, truth = rng.normal(350, 40, (2, 300))
        mean = np.degrees(np.angle(np.exp(1j * np.radians(train)).mean()))
        floor = MAE(np.full(300, mean), truth)
        assert MAE(truth + rng.normal(0, 5, 300), truth) < MAE(truth + rng.normal(0, 20, 300), truth) < floor
        assert floor < MAE(np.full(300, mean + 90), truth)


def test_an_arithmetic_mean_would_be_no_floor():
    """Angles around north: their circular mean costs less than their arithmetic mean; known by construction."""
    truth = np.array([350.0, 355.0, 5.0, 10.0])
    circular = np.degrees(np.angle(np.exp(1j * np.radians(truth)).mean()))
    assert MAE(np.full(4, circular), truth) == pytest.approx(7.5, abs=1e-9)
    assert MAE(np.full(4, truth.mean()), truth) == 172.5
