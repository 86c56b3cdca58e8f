"""evaluate_groups: every environment scored on its own. Oracle: evaluate on the group's samples alone."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import emma_jax as emma

N, G = 300, 4
RNG = np.random.default_rng(0)
LABELS = (np.arange(N) % 3).astype(np.int32)
SCORES = RNG.normal(size=(N, 3)).astype(np.float32)
ANGLES = RNG.uniform(0, 360, (2, N)).astype(np.float32)
GROUPS = RNG.integers(0, G, N).astype(np.int32)
WHERE = RNG.random(N) < 0.8
WEIGHTS = RNG.integers(0, 3, N)
CASES = {
    "E-LOC-AOA": (*ANGLES,),
    "E-LOC-LOS": (SCORES, LABELS),
    "E-ID-DRONE": (SCORES, LABELS),
    "E-ID-FP": (SCORES, LABELS),
    "E-CH-BEAM": (SCORES, LABELS),
    "E-SC-SENSE": (SCORES[:, 0], LABELS % 2),
}
each = pytest.mark.parametrize("task", CASES)


@each
def test_each_group_is_its_own_evaluation(task):
    """Values, thresholds and validity of every group equal evaluate on its samples; bit for bit."""
    preds, labels = CASES[task]
    got = emma.evaluate_groups(task, preds, labels, GROUPS, num_groups=G, where=WHERE, weights=WEIGHTS)
    for g in range(G):
        pick = np.equal(GROUPS, g)
        alone = emma.evaluate(task, preds[pick], labels[pick], where=WHERE[pick], weights=WEIGHTS[pick])
        for name, value in alone.items():
            assert got[name].shape == (G,) and got[name].dtype == np.float64 and got[name][g] == value
            for key, count in alone.validity[name].as_dict().items():
                assert getattr(got.validity[name], key)[g] == count
            for key, extra in alone.aux[name].items():
                assert got.aux[name][key][g] == extra
    assert np.array_equal(emma.evaluate_groups(task, preds, labels, GROUPS).headline,
                          emma.evaluate_groups(task, preds, labels, GROUPS, num_groups=G).headline)  # fmt: skip


@pytest.mark.parametrize("task", ["E-LOC-AOA", "E-LOC-LOS", "E-ID-FP"])
def test_traced_groups(task):
    """Under jit, with a group that nobody is in: the host's values to float32, NaN for the empty one."""
    preds, labels = CASES[task]
    run = jax.jit(lambda p, y, g, w: emma.evaluate_groups(task, p, y, g, num_groups=G + 1, where=w))
    got = run(preds, labels, GROUPS, WHERE)
    want = emma.evaluate_groups(task, preds, labels, GROUPS, num_groups=G + 1, where=WHERE)
    for name in want:
        assert got[name].dtype == np.float32
        assert np.allclose(got[name], want[name], rtol=5e-7, atol=0, equal_nan=True)
        assert np.isnan(want[name][G]) and not np.isnan(want[name][:G]).any()
        assert np.array_equal(got.validity[name].n, want.validity[name].n)


def test_undefined_groups_are_nan():
    """An empty group and a group of one class are NaN for AUC, with the reason in validity; the others are scored."""
    groups = np.where(LABELS % 2 == 1, np.minimum(GROUPS, 1), GROUPS)
    groups = np.where(groups == 3, 5, groups)
    got = emma.evaluate_groups("E-SC-SENSE", SCORES[:, 0], LABELS % 2, groups, num_groups=6)
    assert np.array_equal(np.isnan(got.headline), [False, False, True, True, True, True])
    assert list(got.validity["AUC"].n == 0) == [False, False, False, True, True, False]
    assert got.validity["AUC"].n_absent_classes[2] == 1
    angle = emma.evaluate_groups("E-LOC-AOA", *ANGLES, np.full(N, 2), num_groups=3).headline
    assert np.isnan(angle[:2]).all() and angle[2] == emma.evaluate("E-LOC-AOA", *ANGLES).headline


def test_bad_values():
    """A NaN raises on the host with its index in the whole input; under jit it is NaN in its group alone."""
    bad = SCORES.copy()
    bad[17, 1] = np.nan
    with pytest.raises(emma.NonFiniteError, match="E-ID-AMC: preds") as caught:
        emma.evaluate_groups("E-ID-AMC", bad, LABELS, GROUPS)
    assert caught.value.index == (17, 1)
    got = jax.jit(lambda p: emma.evaluate_groups("E-ID-AMC", p, LABELS, GROUPS, num_groups=G).headline)(bad)
    assert np.array_equal(np.isnan(got), np.arange(G) == GROUPS[17])


def test_groups_out_of_range():
    """A stray group raises with value and index, unless its sample is masked; under jit every value is NaN."""
    for stray in (-1, G, 2**40):
        groups = GROUPS.astype(np.int64)
        groups[23] = stray
        with pytest.raises(emma.LabelError, match=f"E-ID-AMC: groups: {stray} is not a class") as caught:
            emma.evaluate_groups("E-ID-AMC", SCORES, LABELS, groups, num_groups=G)
        assert caught.value.index == 23
        rest = np.arange(N) != 23
        masked = emma.evaluate_groups("E-ID-AMC", SCORES, LABELS, groups, num_groups=G, where=rest).headline
        assert np.array_equal(masked, emma.evaluate_groups("E-ID-AMC", SCORES, LABELS, GROUPS, where=rest).headline)
    run = jax.jit(lambda g, w: emma.evaluate_groups("E-ID-AMC", SCORES, LABELS, g, num_groups=G, where=w).headline)
    stray = np.where(np.arange(N) == 23, G, GROUPS).astype(np.int32)
    assert np.isnan(run(stray, np.ones(N, bool))).all()
    assert not np.isnan(run(stray, np.arange(N) != 23)).any()


def test_groups_of_any_integer_dtype():
    """Groups of uint8 with more groups than it holds, and bools: the same in both modes."""
    for groups, count in ((GROUPS.astype(np.uint8), 300), (GROUPS > 1, 2)):
        got = emma.evaluate_groups("E-ID-AMC", SCORES, LABELS, groups, num_groups=count).headline
        traced = jax.jit(lambda g, c=count: emma.evaluate_groups("E-ID-AMC", SCORES, LABELS, g, num_groups=c).headline)
        assert np.allclose(traced(groups), got, rtol=2e-7, atol=0, equal_nan=True)
        assert np.isnan(got).sum() == (296 if count == 300 else 0)


def test_shapes_and_types():
    """Groups of another length or of floats, and a traced call without num_groups, name the argument."""
    with pytest.raises(emma.ShapeError, match="groups"):
        emma.evaluate_groups("E-ID-AMC", SCORES, LABELS, GROUPS[:-1])
    with pytest.raises(emma.LabelError, match="groups"):
        emma.evaluate_groups("E-ID-AMC", SCORES, LABELS, GROUPS.astype(float))
    with pytest.raises(emma.ShapeError, match="num_groups"):
        jax.eval_shape(lambda g: emma.evaluate_groups("E-ID-AMC", SCORES, LABELS, g), GROUPS)
    with pytest.raises(emma.EmptyEvaluationError, match="E-ID-AMC"):
        emma.evaluate_groups("E-ID-AMC", SCORES[:0], LABELS[:0], GROUPS[:0])
    with pytest.raises(emma.EmptyEvaluationError):
        emma.evaluate_groups("E-ID-AMC", SCORES, LABELS, GROUPS, where=np.zeros(N, bool))
