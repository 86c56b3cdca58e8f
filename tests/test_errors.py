"""Every bad input has its typed error: the message names task and argument, the error carries count and first index.
On the host values raise; under a transform they give NaN, while shapes, dtypes and configuration raise in both."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import emma_jax as emma

m = emma.metrics
N = 60
RNG = np.random.default_rng(0)
LABELS = (np.arange(N) % 3).astype(np.int32)
SCORES = RNG.normal(size=(N, 3)).astype(np.float32)
ANGLES = RNG.uniform(0, 360, N).astype(np.float32)
GOOD = {
    "E-LOC-AOA": (ANGLES, ANGLES[::-1]),
    "E-LOC-LOS": (SCORES, LABELS),
    "E-ID-DRONE": (SCORES, LABELS),
    "E-ID-FP": (SCORES, LABELS),
    "E-ID-AMC": (SCORES, LABELS),
    "E-CH-BEAM": (SCORES, LABELS),
    "E-SC-SENSE": (SCORES[:, 0], LABELS % 2),
    "E-SC-ANOM": (SCORES[:, 0], LABELS % 2),
}
each = pytest.mark.parametrize("task", GOOD)
classes = pytest.mark.parametrize("task", [t for t in GOOD if t != "E-LOC-AOA"])


def changed(x, index, value):
    """A copy with some entries replaced."""
    x = np.array(x)
    x[index] = value
    return x


def raises_in_both(kind, match, task, preds, labels, **kwargs):
    """The error, on the host and at trace time."""
    static = {k: kwargs.pop(k) for k in list(kwargs) if k not in ("where", "weights")}
    with pytest.raises(kind, match=match) as caught:
        emma.evaluate(task, preds, labels, **static, **kwargs)
    with pytest.raises(kind, match=match):
        jax.eval_shape(lambda p, y, kw: emma.evaluate(task, p, y, **static, **kw), preds, labels, kwargs)
    return caught.value


# --- values: host raises, traced is NaN ------------------------------------------------------------------------


@each
def test_nan_in_predictions(task):
    """Two NaNs: NonFiniteError with task, argument, count and first index."""
    preds, labels = GOOD[task]
    where = ([7, 20], 1) if preds.ndim == 2 else [7, 20]
    with pytest.raises(emma.NonFiniteError) as caught:
        emma.evaluate(task, changed(preds, where, np.nan), labels)
    error = caught.value
    assert (error.task, error.argument, error.count) == (task, "preds", 2)
    assert error.index == ((7, 1) if preds.ndim == 2 else 7)
    assert all(part in str(error) for part in (task, "preds", "2", "7"))
    assert isinstance(error, ValueError)


@classes
@pytest.mark.parametrize("label", [-1, 3, 10**6])
def test_labels_that_are_no_class(task, label):
    """Three labels outside the classes: LabelError with value, range, count and first index."""
    preds, labels = GOOD[task]
    with pytest.raises(emma.LabelError, match=f"{task}: labels: {label} is not a class") as caught:
        emma.evaluate(task, preds, changed(labels, [11, 12, 50], label))
    assert (caught.value.count, caught.value.index) == (3, 11)
    assert ("0..1" if preds.ndim == 1 else "0..2") in str(caught.value)


def test_bad_values_under_trace_are_nan():
    """NaN, a stray label and an infinite angle under jit: NaN for the metrics they touch, counted in validity, and no
    error; a good batch through the same kernel is a number."""

    @jax.jit
    def run(preds, labels, angles):
        return (
            emma.evaluate("E-ID-FP", preds, labels),
            emma.evaluate("E-LOC-LOS", preds, labels),
            emma.evaluate("E-LOC-AOA", angles, ANGLES),
        )

    assert not any(np.isnan(v) for scores in run(SCORES, LABELS, ANGLES) for v in scores.values())
    nan, stray, inf = changed(SCORES, (3, 1), np.nan), changed(LABELS, 5, 3), changed(ANGLES, 2, np.inf)
    for fingerprint, los, angle in (run(nan, LABELS, inf), run(SCORES, stray, inf)):
        values = [*fingerprint.values(), *los.values(), *angle.values()]
        assert all(np.isnan(v) for v in values)
        assert np.isnan(fingerprint.aux["EER"]["threshold"])
    assert run(nan, LABELS, inf)[0].validity["Top1Accuracy"].n_nonfinite == 1
    assert run(nan, LABELS, inf)[0].validity["EER"].n_nonfinite == 1
    assert run(SCORES, stray, inf)[0].validity["Top1Accuracy"].n_invalid_label == 1
    assert run(SCORES, stray, inf)[2].validity["MeanAngularError"].n_used == N - 1


def test_predicted_classes_that_are_no_class():
    """Integer predictions outside the classes are blamed on preds."""
    for task in ("E-LOC-LOS", "E-ID-AMC"):
        with pytest.raises(emma.LabelError, match=f"{task}: preds: -1 is not a class") as caught:
            emma.evaluate(task, changed(LABELS, 9, -1), LABELS)
        assert caught.value.index == 9
    with pytest.raises(emma.LabelError, match=r"preds: 3 is not a class; need 0\.\.2"):
        emma.evaluate("E-ID-AMC", changed(LABELS, 9, 3), LABELS, num_classes=3)
    got = jax.jit(m.BalancedAccuracy(num_classes=3))(changed(LABELS, 9, 3), LABELS)
    assert np.isnan(got)


def test_masked_bad_values_are_no_error():
    """A bad value under where=False, or with weight 0, raises nothing and is not counted."""
    bad = changed(SCORES, (3, 1), np.nan)
    for extra in ({"where": np.arange(N) != 3}, {"weights": (np.arange(N) != 3).astype(int)}):
        scores = emma.evaluate("E-ID-FP", bad, changed(LABELS, 3, 99), **extra)
        assert scores.validity["Top1Accuracy"].n == N - 1 and scores.validity["EER"].n_nonfinite == 0
    with pytest.raises(emma.NonFiniteError) as caught:
        emma.evaluate("E-ID-FP", changed(bad, (5, 0), np.nan), LABELS, where=np.arange(N) != 3)
    assert caught.value.index == (5, 0) and caught.value.count == 1
    with pytest.raises(emma.NonFiniteError) as caught:
        emma.evaluate("E-ID-FP", changed(bad, (5, 0), np.nan), LABELS, weights=(np.arange(N) != 3).astype(int))
    assert caught.value.index == (5, 0) and caught.value.count == 1
    with pytest.raises(emma.LabelError) as caught:
        emma.evaluate("E-LOC-LOS", SCORES, changed(LABELS, [3, 9], 99), weights=(np.arange(N) != 3).astype(int))
    assert caught.value.index == 9 and caught.value.count == 1


def test_degenerate_labels():
    """One class only: DegenerateLabelsError naming task and labels, from AUC tasks and for the EER of a binary task."""
    for task in ("E-SC-SENSE", "E-SC-ANOM"):
        with pytest.raises(emma.DegenerateLabelsError, match=f"{task}: labels"):
            emma.evaluate(task, SCORES[:, 0], np.ones(N, int))
    with pytest.raises(emma.DegenerateLabelsError, match="E-ID-DRONE: labels"):
        emma.evaluate("E-ID-DRONE", SCORES, np.zeros(N, int))
    with pytest.raises(emma.DegenerateLabelsError):
        emma.evaluate("E-SC-SENSE", SCORES[:, 0], LABELS % 2, where=LABELS % 2 == 1)


# --- shapes -------------------------------------------------------------------------------------------------------


@each
def test_lengths_that_differ(task):
    """N against N - 1: ShapeError with both shapes."""
    preds, labels = GOOD[task]
    raises_in_both(emma.ShapeError, rf"{task}: preds.*{N - 1}", task, preds, labels[:-1])


@each
def test_nothing_is_broadcast(task):
    """An extra axis on either side is a ShapeError, never a broadcast; neither is a scalar."""
    preds, labels = GOOD[task]
    raises_in_both(emma.ShapeError, task, task, preds, labels[:, None])
    raises_in_both(emma.ShapeError, task, task, preds[None], labels)
    raises_in_both(emma.ShapeError, task, task, preds[..., None, None], labels)
    raises_in_both(emma.EvaluationError, task, task, preds[0], labels[0])


def test_columns():
    """Too few columns for num_classes, one column of scores for a class task, [N, C] for a binary task."""
    raises_in_both(emma.ShapeError, "num_classes=4", "E-ID-FP", SCORES, LABELS, num_classes=4)
    raises_in_both(emma.ShapeError, "num_classes=4", "E-LOC-LOS", SCORES, LABELS, num_classes=4)
    raises_in_both(emma.ShapeError, "E-SC-SENSE", "E-SC-SENSE", SCORES, LABELS)
    raises_in_both(emma.ShapeError, "E-SC-ANOM", "E-SC-ANOM", SCORES, LABELS)
    raises_in_both(emma.ShapeError, "E-ID-DRONE", "E-ID-DRONE", SCORES[:, :1], LABELS)
    raises_in_both(emma.ShapeError, "E-ID-FP", "E-ID-FP", SCORES[:, :1], LABELS)
    raises_in_both(emma.ShapeError, "num_classes=3", m_task(m.AUC(num_classes=3)), SCORES[:, 0], LABELS % 2)


def m_task(metric):
    """A task of one metric."""
    return emma.Task("T", (metric,))


def test_ragged_and_strange_input():
    """Ragged lists, objects, strings, dates, records, masked arrays, dicts, None, PRNG keys: typed errors that name the
    argument; a message, not a traceback of NumPy's."""
    for bad in (
        [[1.0], [1.0, 2.0]],
        np.array([1.0, None], object),
        ["1", "2"],
        np.array(["2020", "2021"], "M8[Y]"),
        np.zeros(2, [("a", "f4")]),
        np.ma.array([1.0, 2.0], mask=[False, True]),
        None,
        jax.random.key(0),
        {"a": [1.0, 2.0]},
        np.array([1j, 2.0]),
        np.array([1j, 2.0], np.clongdouble),
    ):
        with pytest.raises(emma.EvaluationError, match="E-LOC-AOA: preds"):
            emma.evaluate("E-LOC-AOA", bad, [1.0, 2.0])
        with pytest.raises(emma.EvaluationError, match="labels"):
            emma.evaluate("E-ID-AMC", [[1.0, 0.0], [0.0, 1.0]], bad)


class Foreign:
    """An array of another library that NumPy cannot take."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise self.error


@pytest.mark.parametrize("error", [TypeError("unsupported dtype"), RuntimeError("requires grad"), ValueError("bad")])
def test_foreign_arrays_that_refuse(error):
    """What another library raises on conversion (bfloat16 tensors, tensors with gradients) becomes a typed error."""
    with pytest.raises(emma.EvaluationError, match="E-LOC-AOA: preds"):
        emma.evaluate("E-LOC-AOA", Foreign(error), [1.0])


# --- dtypes -------------------------------------------------------------------------------------------------------


@classes
def test_float_labels(task):
    """Float labels, whole or not, are a LabelError in both modes."""
    preds, labels = GOOD[task]
    raises_in_both(emma.LabelError, f"{task}: labels", task, preds, labels.astype(np.float32))
    raises_in_both(emma.LabelError, f"{task}: labels", task, preds, labels + 0.5)


@each
def test_complex_predictions(task):
    """Complex predictions are an error in both modes."""
    preds, labels = GOOD[task]
    raises_in_both(emma.EvaluationError, task, task, preds.astype(np.complex64), labels)


def test_float_classes():
    """[N] floats are neither scores nor classes for the accuracy tasks."""
    for task in ("E-LOC-LOS", "E-ID-AMC"):
        raises_in_both(emma.LabelError, f"{task}: preds", task, LABELS.astype(np.float32), LABELS)
        raises_in_both(emma.LabelError, f"{task}: preds", task, SCORES, LABELS, input="labels")


def test_where():
    """where must be bool and fit the sample axes."""
    for bad in (np.ones(N, np.int32), np.ones(N, np.float32), LABELS):
        raises_in_both(emma.EvaluationError, "E-ID-FP: where: must be bool", "E-ID-FP", SCORES, LABELS, where=bad)
    for shape in ((N - 1,), (N, 3), (1, N), (2,)):
        raises_in_both(emma.ShapeError, "E-ID-FP: where", "E-ID-FP", SCORES, LABELS, where=np.ones(shape, bool))


def test_weights():
    """Float weights say why not; negative or too large ones are found on the host; shapes must fit."""
    error = raises_in_both(emma.EvaluationError, "multiplicities", "E-ID-FP", SCORES, LABELS, weights=np.ones(N, "f4"))
    assert error.argument == "weights"
    for bad in (-1, 2**32):
        with pytest.raises(emma.EvaluationError, match="weights") as caught:
            emma.evaluate("E-LOC-AOA", *GOOD["E-LOC-AOA"], weights=changed(np.ones(N, np.int64), [4, 8], bad))
        assert (caught.value.count, caught.value.index) == (2, 4)
    raises_in_both(emma.ShapeError, "weights", "E-ID-FP", SCORES, LABELS, weights=np.ones(N + 1, np.int32))
    heavy = np.full(70_000, 2**32 - 1)
    with pytest.raises(emma.EvaluationError, match="weights"):
        emma.evaluate("E-LOC-AOA", np.zeros(70_000), np.zeros(70_000), weights=heavy)


def test_weights_past_32_bits_under_trace():
    """Weights that sum past 2^32: exact for counts and angles under jit, NaN (never a wrong number) for AUC and EER."""
    w = np.full(N, 2**32 - 1, np.uint32)
    assert jax.jit(lambda c: m.Top1Accuracy()(SCORES, LABELS, weights=c))(w) == np.float32(
        m.Top1Accuracy()(SCORES, LABELS)
    )
    for metric in (m.AUROC(), m.EER()):
        want = metric(SCORES[:, 0], LABELS % 2)
        got = jax.jit(lambda c, metric=metric: metric(SCORES[:, 0], LABELS % 2, weights=c))(w)
        assert np.isnan(got) or abs(float(got) - want) < 5e-7
        assert metric(SCORES[:, 0], LABELS % 2, weights=w) == pytest.approx(want, abs=1e-15)


# --- configuration ------------------------------------------------------------------------------------------------


def test_unknown_tasks_and_parameters():
    """An unknown task lists the known ones, an unknown parameter those that exist."""
    with pytest.raises(emma.MissingTaskError, match="E-LOC-AOA"):
        emma.evaluate("E-NONE", SCORES, LABELS)
    with pytest.raises(emma.MissingTaskError):
        emma.get_task(None)
    with pytest.raises(emma.EvaluationError, match=r"E-ID-FP: foo.*num_classes"):
        emma.evaluate("E-ID-FP", SCORES, LABELS, foo=3)
    with pytest.raises(emma.EvaluationError, match="registered"):
        emma.register_task(emma.Task("E-ID-FP", (m.EER(),)))
    with pytest.raises(emma.EvaluationError, match="distinct"):
        emma.Task("T", (m.EER(), m.EER(capacity=3)))


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: m.TopKAccuracy(k=0), "k"),
        (lambda: m.TopKAccuracy(k=2.0), "k"),
        (lambda: m.TopKAccuracy(k=True), "k"),
        (lambda: m.TopKAccuracy(k=5, num_classes=4), "k"),
        (lambda: m.TopKAccuracy(input="ranked"), "index_base"),
        (lambda: m.TopKAccuracy(input="ranked", index_base=2), "index_base"),
        (lambda: m.TopKAccuracy(index_base=1), "index_base"),
        (lambda: m.TopKAccuracy(input="beams"), "input"),
        (lambda: m.Top1Accuracy(num_classes=0), "num_classes"),
        (lambda: m.Top1Accuracy(input="logits"), "input"),
        (lambda: m.PlainAccuracy(num_classes="4"), "num_classes"),
        (lambda: m.BalancedAccuracy(absent="nan"), "absent"),
        (lambda: m.AUC(num_classes=1), "num_classes"),
        (lambda: m.AUC(num_classes=3, input="binary"), "num_classes"),
        (lambda: m.AUC(capacity=0), "capacity"),
        (lambda: m.AUC(score_dtype="float64"), "score_dtype"),
        (lambda: m.EER(score_range=(1.0, 0.0)), "score_range"),
        (lambda: m.EER(score_range=(0.0, np.inf)), "score_range"),
        (lambda: m.EER(score_range=(0, 1, 2)), "score_range"),
        (lambda: m.AUROC(input="classes"), "input"),
        (lambda: m.AUROC(num_classes=3), "num_classes"),
        (lambda: m.MeanAngularError(period=90), "period"),
        (lambda: m.MeanAngularError(period=360.0), "period"),
        (lambda: m.MeanAngularError(unit="grad"), "unit"),
    ],
)
def test_configuration(make, argument):
    """Every parameter out of its range is an EvaluationError that names it, at construction."""
    with pytest.raises(emma.EvaluationError) as caught:
        make()
    assert caught.value.argument == argument and argument in str(caught.value)


def test_k_against_the_columns():
    """k above the number of columns raises in both modes; so do ranked beams of a float dtype or without their base."""
    raises_in_both(emma.EvaluationError, "k: 4", "E-CH-BEAM", SCORES, LABELS, k=4)
    raises_in_both(emma.EvaluationError, "index_base", "E-CH-BEAM", LABELS[:, None], LABELS, k=1, input="ranked")
    ranked = {"input": "ranked", "index_base": 0, "k": 1}
    raises_in_both(emma.LabelError, "ranked beams must be integers", "E-CH-BEAM", SCORES, LABELS, **ranked)
    raises_in_both(emma.EvaluationError, "k: 4", "E-CH-BEAM", SCORES.astype(int), LABELS, **ranked | {"k": 4})


def test_ranked_beams_below_their_base():
    """With index_base=1 a beam or label 0 is no beam: blamed on the right argument, with its value."""
    task = emma.get_task("E-CH-BEAM", input="ranked", index_base=1, k=1)
    beams = np.array([[1, 2], [2, 1], [0, 1]])
    with pytest.raises(emma.LabelError, match="E-CH-BEAM: preds: 0 is not a class"):
        emma.evaluate(task, beams, [1, 1, 1])
    with pytest.raises(emma.LabelError, match="E-CH-BEAM: labels: 0 is not a class"):
        emma.evaluate(task, beams + 1, [1, 0, 1])
    for bad in (-(2**31), 2**31, 2**32 + 1):
        with pytest.raises(emma.LabelError, match=f"E-CH-BEAM: preds: {bad} is not a class"):
            emma.evaluate(task, np.array([[1, 2], [bad, 1]]), [1, 1])


def test_num_classes_is_needed_for_traced_classes():
    """Integer predictions under trace do not tell the number of classes: the error names the parameter."""
    with pytest.raises(emma.EvaluationError, match="num_classes"):
        jax.eval_shape(lambda p: emma.evaluate("E-LOC-LOS", p, LABELS), LABELS)
    assert jax.jit(lambda p: emma.evaluate("E-LOC-LOS", p, LABELS, num_classes=3).headline)(LABELS) == 1.0


def test_traced_negative_weights_count_nothing():
    """Under trace values are not looked at: a negative weight counts as 0; exact."""
    w = jnp.where(jnp.arange(N) < 30, 1, -5)
    got = jax.jit(lambda c: emma.evaluate("E-ID-AMC", SCORES, LABELS, weights=c))(w)
    assert got.validity["PlainAccuracy"].n == 30
    assert float(got.headline) == pytest.approx(emma.evaluate("E-ID-AMC", SCORES[:30], LABELS[:30]).headline, rel=1e-7)
