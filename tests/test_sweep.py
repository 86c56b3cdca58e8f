"""sweep: many runs against the same labels. Oracles: the definitions in exact rationals or float64 (`oracles`,
`array_oracles`), and `evaluate` on each run alone, bit for bit (every field of validity and aux included)."""

from __future__ import annotations

import sys

import array_oracles
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

import emma_jax as emma
from emma_jax.errors import (
    DegenerateLabelsError,
    EmptyEvaluationError,
    EvaluationError,
    LabelError,
    NonFiniteError,
    ShapeError,
)
from emma_jax.evaluate import SharedLabels
from emma_jax.numerics.run_pairs import pairs_of_run
from emma_jax.text.ids import TokenBatch

S, N, C = 7, 90, 4
RNG = np.random.default_rng(3)
LABELS = RNG.integers(0, C, N).astype(np.int32)
SCORES = (RNG.integers(-6, 7, (S, N, C)) / 4 + np.eye(C)[LABELS]).astype(np.float32)  # coarse, so that scores tie
BINARY = (LABELS % 2).astype(np.int64)
ANGLES = RNG.uniform(-500, 500, (S + 1, N))
CHANNELS = (RNG.normal(size=(S + 1, N, 3)) + 1j * RNG.normal(size=(S + 1, N, 3))).astype(np.complex64)
SIGNALS = RNG.normal(size=(S + 1, 12, 40)).astype(np.float32)
WHERE = RNG.random(N) < 0.8
WEIGHTS = RNG.integers(0, 3, N)


def _top(k):
    return lambda p, y, w: oracles.top_k(p, y, k, w)


def _balanced(p, y, w):
    return oracles.balanced_accuracy(oracles.predicted(p), y, w)


def _pooled_eer(p, y, w):
    return oracles.eer(*oracles.pooled(p, y, w))[0]


# task: predictions of all runs, labels, and each metric's definition with multiplicities
CASES = {
    "E-LOC-AOA": (
        ANGLES[:S].astype(np.float32),
        ANGLES[S].astype(np.float32),
        {"MeanAngularError": oracles.angular_error},
    ),
    "E-LOC-LOS": (SCORES, LABELS, {"BalancedAccuracy": _balanced}),
    "E-ID-DRONE": (SCORES, LABELS, {"AUC": lambda p, y, w: oracles.macro_auc(p, y, w)[0]}),
    "E-ID-FP": (SCORES, LABELS, {"Top1Accuracy": _top(1), "EER": _pooled_eer}),
    "E-ID-AMC": (SCORES.astype(np.float64) / 3, LABELS, {"PlainAccuracy": _top(1)}),
    "E-CH-BEAM": (SCORES, LABELS, {"TopKAccuracy": _top(3)}),
    "E-SC-SENSE": (SCORES[:, :, 0], BINARY, {"AUC": oracles.auc}),
    "E-SC-ANOM": (SCORES[:, :, 1].astype(np.float64) / 3, BINARY, {"AUROC": oracles.auc}),
}
each = pytest.mark.parametrize("name", CASES)
slow = pytest.mark.slow


def same_as_alone(got, task, runs, labels, **arguments):
    """Every number of the sweep is that of evaluate for the run alone."""
    for s, run in enumerate(runs):
        alone = emma.evaluate(task, run, labels, **arguments)
        assert list(got) == list(alone)
        for name, value in alone.items():
            assert got[name].dtype == np.float64 and got[name].shape == (len(runs),)
            assert got[name][s] == value
            for key, count in alone.validity[name].as_dict().items():
                assert getattr(got.validity[name], key)[s] == count
            assert {k: v[s] for k, v in got.aux[name].items()} == alone.aux[name]


@each
def test_every_run_has_its_definition(name):
    """Each run's value is the exact rational definition to 1e-12, with a mask and weights."""
    preds, labels, definitions = CASES[name]
    got = emma.sweep(name, preds, labels, where=WHERE, weights=WEIGHTS)
    w = oracles.multiplicities(N, WHERE, WEIGHTS)
    for metric, definition in definitions.items():
        for s in range(S):
            want = definition(preds[s], labels, w)
            assert got[metric][s] == pytest.approx(float(want), rel=1e-12, abs=1e-12)


@each
@pytest.mark.parametrize("batch_size", [3, *(pytest.param(b, marks=slow) for b in (None, 1, 100))])
def test_every_run_is_its_own_evaluation(name, batch_size):
    """Whatever the batch size, each run has the bits of evaluate alone: values, thresholds, validity."""
    preds, labels, _ = CASES[name]
    got = emma.sweep(name, preds, labels, where=WHERE, weights=WEIGHTS, batch_size=batch_size)
    same_as_alone(got, name, preds, labels, where=WHERE, weights=WEIGHTS)


@pytest.mark.parametrize("name", [pytest.param(n, marks=slow) if "LOC" in n else n for n in CASES])
def test_device_arrays_and_iterables_agree_with_the_stack(name):
    """A JAX stack, a generator of runs and a list of runs give the same bits as the NumPy stack."""
    preds, labels, _ = CASES[name]
    preds = preds.astype(np.float32)
    want = emma.sweep(name, preds, labels)
    for form in (jnp.asarray(preds), (run for run in preds), list(preds)):
        got = emma.sweep(name, form, labels)
        for metric, value in want.items():
            assert got[metric].tolist() == value.tolist()
            assert got.validity[metric] == want.validity[metric]


def test_energies_and_ratios_are_those_of_each_run_alone():
    """NMSE and SI-SDR: float64 definition to 1e-6 relative, and the bits of evaluate."""
    nmse = emma.sweep("E-CH-CSI", CHANNELS[:S], CHANNELS[S])
    separation = emma.sweep("E-SC-SEP", SIGNALS[:S], SIGNALS[S])
    for s in range(S):
        assert nmse["NMSE"][s] == pytest.approx(array_oracles.nmse(CHANNELS[s], CHANNELS[S]), abs=5e-6)
        want = array_oracles.mean_si_sdr(SIGNALS[s], SIGNALS[S])
        assert separation["SISDR"][s] == pytest.approx(want, abs=5e-6)
    same_as_alone(nmse, "E-CH-CSI", CHANNELS[:S], CHANNELS[S])
    same_as_alone(separation, "E-SC-SEP", SIGNALS[:S], SIGNALS[S])


@slow
def test_lengths_reach_every_run():
    """`lengths` count as for evaluate."""
    lengths = np.full(12, 30)
    got = emma.sweep("E-SC-SEP", SIGNALS[:S], SIGNALS[S], lengths=lengths, zero_mean=True)
    same_as_alone(got, "E-SC-SEP", SIGNALS[:S], SIGNALS[S], lengths=lengths, zero_mean=True)


def test_parameters_reach_every_run():
    """A task parameter counts as for evaluate: the rational definition."""
    got = emma.sweep("E-CH-BEAM", SCORES, LABELS, k=2)
    assert got["TopKAccuracy"][0] == float(oracles.top_k(SCORES[0], LABELS, 2))


def test_angles_that_need_64_bits_do_not_touch_the_others():
    """One run of float64 angles that float32 cannot hold leaves the others scored as float32: rational definition, and
    the bits of evaluate."""
    preds = ANGLES[:S].astype(np.float32).astype(np.float64)
    preds[2] = ANGLES[2] + 1e-9
    labels = ANGLES[S].astype(np.float32)
    got = emma.sweep("E-LOC-AOA", preds, labels)
    same_as_alone(got, "E-LOC-AOA", preds, labels)
    for s in range(S):
        want = float(oracles.angular_error(preds[s], labels))
        assert got["MeanAngularError"][s] == pytest.approx(want, rel=1e-13)


def test_bad_runs_are_nan_and_say_why():
    """NaN, infinity and predicted classes that do not exist: NaN with the counts for that run; the rest untouched."""
    angles = CASES["E-LOC-AOA"][0].copy()
    angles[1, :3], angles[4, 5] = np.nan, -np.inf
    got = emma.sweep("E-LOC-AOA", angles, CASES["E-LOC-AOA"][1])
    assert np.isnan(got["MeanAngularError"]).tolist() == [s in (1, 4) for s in range(S)]
    assert got.validity["MeanAngularError"].n_nonfinite.tolist() == [0, 3, 0, 0, 1, 0, 0]
    assert got.validity["MeanAngularError"].n_used.tolist() == [N, N - 3, N, N, N - 1, N, N]
    scores = SCORES.copy()
    scores[6, 2, 1], scores[0, 0, 0] = np.nan, np.inf  # an infinity is a score like any other
    for name in ("E-ID-FP", "E-ID-DRONE", "E-LOC-LOS"):
        got = emma.sweep(name, scores, LABELS)
        for values in got.values():
            assert np.isnan(values).tolist() == [s == 6 for s in range(S)]
    assert got["BalancedAccuracy"][0] == pytest.approx(float(_balanced(scores[0], LABELS, None)), abs=1e-12)
    classes = np.argmax(SCORES, axis=2)
    classes[3, :2] = C
    got = emma.sweep("E-LOC-LOS", classes, LABELS, num_classes=C)
    assert got.validity["BalancedAccuracy"].n_invalid_label.tolist() == [0, 0, 0, 2, 0, 0, 0]
    assert np.isnan(got["BalancedAccuracy"]).tolist() == [s == 3 for s in range(S)]


def test_predicted_classes_without_a_number_of_classes():
    """[S, N] integer classes whose number differs from run to run: rational definition, and evaluate bit for bit."""
    classes = np.argmax(SCORES, axis=2)
    classes[2, 0], classes[5] = 9, 0
    got = emma.sweep("E-LOC-LOS", classes, LABELS)
    same_as_alone(got, "E-LOC-LOS", classes, LABELS)
    for s in range(S):
        want = float(oracles.balanced_accuracy(classes[s], LABELS))
        assert got["BalancedAccuracy"][s] == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize(
    ("task", "preds", "labels", "error"),
    [
        ("E-ID-AMC", SCORES, np.where(np.arange(N) == 5, 99, LABELS), LabelError),
        ("E-LOC-AOA", ANGLES[:S], np.where(np.arange(N) == 5, np.nan, ANGLES[S]), NonFiniteError),
        ("E-SC-SENSE", SCORES[:, :, 0], np.ones(N, int), DegenerateLabelsError),
        ("E-SC-ANOM", SCORES[:, :, 0], np.where(np.arange(N) == 5, 2, BINARY), LabelError),
    ],
)
def test_labels_that_leave_no_run_a_value_raise(task, preds, labels, error):
    """Labels are shared: where they alone are at fault it is the error of evaluate, naming the labels; as evaluate."""
    with pytest.raises(error, match="labels") as sweep_error:
        emma.sweep(task, preds, labels)
    with pytest.raises(error) as alone:
        emma.evaluate(task, preds[0], labels)
    assert sweep_error.value.index == alone.value.index


def test_all_runs_bad_by_themselves_is_no_error():
    """Every run has a NaN of its own: NaN everywhere and no error, since the labels are fine."""
    bad = SCORES[:, :, 0].copy()
    bad[:, 3] = np.nan
    got = emma.sweep("E-SC-SENSE", bad, BINARY)
    assert np.isnan(got["AUC"]).all() and got.validity["AUC"].n_nonfinite.tolist() == [1] * S


@pytest.mark.parametrize(
    ("preds", "arguments", "error"),
    [
        (SCORES[0], {}, LabelError),  # N runs of C labels each, which are no integers
        (SCORES[:, :-1], {}, ShapeError),
        (SCORES[0, 0], {}, ShapeError),
        (SCORES[:0], {}, EmptyEvaluationError),
        (iter([]), {}, EmptyEvaluationError),
        (SCORES.astype(np.complex64), {}, EvaluationError),
        (SCORES, {"batch_size": 0}, EvaluationError),
        (SCORES, {"batch_size": 2.5}, EvaluationError),
        (SCORES, {"where": np.zeros(N, bool)}, EmptyEvaluationError),
        (SCORES, {"k": 3}, EvaluationError),
        (3.0, {}, ShapeError),
        ("text", {}, ShapeError),
    ],
)
def test_wrong_shapes_dtypes_and_parameters_raise(preds, arguments, error):
    """What is wrong for every run alike raises, as in evaluate."""
    with pytest.raises(error):
        emma.sweep("E-ID-AMC", preds, LABELS, **arguments)


def test_a_run_of_the_wrong_shape_in_an_iterable_is_named():
    """The error says which run."""
    with pytest.raises(ShapeError, match="run 2"):
        emma.sweep("E-ID-AMC", [SCORES[0], SCORES[1], SCORES[2][:-1]], LABELS)


def test_one_compilation_for_any_number_of_runs():
    """A second sweep over more runs, in blocks of the same size, compiles nothing; the first compiles once a kernel."""
    from jax import monitoring

    seen = []
    monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: seen.append(event) if event == "/jax/core/compile/backend_compile_duration" else None
    )
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 333)

    def run(count):
        seen.clear()
        emma.sweep("E-ID-AMC", rng.normal(size=(count, 333, 3)).astype(np.float32), labels, batch_size=4)
        return len(seen)

    assert run(9) == 1
    assert run(30) == 0
    assert run(4) == 0


def test_text_runs_come_as_an_iterable():
    """Answers: each run as evaluate alone, exact match also by counting."""
    golds = [["a radar"], ["the QPSK"], ["noise", "static"]]
    runs = [["radar", "qpsk", "nothing"], ["a", "b", "c"], ["Radar.", "QPSK", "static"]]
    got = emma.sweep("E-S2T-QA", iter(runs), golds)
    same_as_alone(got, "E-S2T-QA", runs, golds)
    assert got["ExactMatch"].tolist() == [2 / 3, 0.0, 1.0]


@slow
def test_captions_come_as_an_iterable():
    """Captions: each run as evaluate alone, METEOR included."""
    references = [["a radar pulse at sea"], ["two tones", "a pair of tones"], ["static noise only"]]
    captions = [["a radar pulse", "two tones", "noise"], ["a pulse at sea", "a pair of tones", "static noise only"]]
    got = emma.sweep("E-S2T-CAP", captions, references)
    same_as_alone(got, "E-S2T-CAP", captions, references)
    assert list(got) == ["Bleu", "Meteor", "CIDER"]


def test_token_batches_come_as_a_stack():
    """`TokenBatch` [S, N, L] as a stack is scored as run by run."""
    ids = RNG.integers(1, 6, (S, 5, 4)).astype(np.int32)
    lengths = np.full((S, 5), 4, np.int32)
    golds = TokenBatch(ids[0][:, None], lengths[0][:, None])
    got = emma.sweep("E-S2T-QA", TokenBatch(ids, lengths), golds)
    same_as_alone(got, "E-S2T-QA", [TokenBatch(ids[s], lengths[s]) for s in range(S)], golds)
    assert got["ExactMatch"][0] == 1.0
    equal = np.mean(np.all(ids[3] == ids[0], axis=1))
    assert got["ExactMatch"][3] == equal


@slow
def test_boards_come_as_a_stack_or_one_by_one():
    """EMVal near fields and S-parameters, dicts of arrays and iterables alike: the definition in float64."""
    rng = np.random.default_rng(1)
    fields = {k: rng.normal(size=(3, 1, 2, 20, 3)) + 1j * rng.normal(size=(3, 1, 2, 20, 3)) for k in "EH"}
    truth = {k: v[0] for k, v in fields.items()}
    preds = {k: v[1:] for k, v in fields.items()}
    got = emma.sweep("EMVal-NF", preds, truth)
    runs = [{k: v[s] for k, v in preds.items()} for s in range(2)]
    same_as_alone(got, "EMVal-NF", runs, truth)
    again = emma.sweep("EMVal-NF", runs, truth)
    for s in range(2):
        want = array_oracles.rel_l2(runs[s]["E"], truth["E"])
        assert got["rel_l2_E"][s] == pytest.approx(want, rel=1e-6)
        assert again["rel_l2_E"][s] == got["rel_l2_E"][s]
    s_parameters = 0.3 * (rng.normal(size=(4, 5, 2, 2)) + 1j * rng.normal(size=(4, 5, 2, 2)))
    got = emma.sweep("EMVal-SP", s_parameters[1:], s_parameters[0])
    same_as_alone(got, "EMVal-SP", s_parameters[1:], s_parameters[0])
    for s in range(3):
        want = array_oracles.sparam(s_parameters[1 + s], s_parameters[0])
        assert [got[m][s] for m in ("real_imag_rmse", "mag_wmae", "ph_wmae")] == pytest.approx(want, rel=1e-5)


KINDS = {
    "normal": lambda g, n: g.normal(size=n),
    "tied": lambda g, n: g.integers(-3, 4, n) / 2,
    "sigmoid": lambda g, n: 1 / (1 + np.exp(-3 * g.normal(size=n))),
    "negative": lambda g, n: -g.random(n),
    "constant": lambda g, n: np.full(n, -2.5),
    "zeros of both signs": lambda g, n: g.choice([0.0, -0.0, 1e-45, -1e-45], n),
    "subnormal": lambda g, n: g.integers(-9, 10, n) * 1e-44,
    "all magnitudes, one sign": lambda g, n: 10.0 ** g.uniform(-44, 38, n),
    "all magnitudes": lambda g, n: 10.0 ** g.uniform(-44, 38, n) * g.choice([-1, 1], n),
    "infinities": lambda g, n: np.where(g.random(n) < 0.2, g.choice([np.inf, -np.inf], n), g.normal(size=n)),
}


def test_areas_are_exact_whatever_the_scores():
    """Binary AUC of runs of every kind of score, with and without a mask: the rational definition (one rounding to
    float64), and the bits of evaluate; a run with NaN among them is NaN, unless the mask hides it."""
    rng = np.random.default_rng(11)
    runs = np.stack([kind(rng, N) for kind in KINDS.values() for _ in range(2)]).astype(np.float32)
    for where in (None, WHERE):
        preds = runs.copy()
        if where is not None:
            preds[:, ~where] = np.nan
        there = np.arange(N) if where is None else np.flatnonzero(where)
        got = emma.sweep("E-SC-ANOM", preds, BINARY, where=where)
        same_as_alone(got, "E-SC-ANOM", preds, BINARY, where=where)
        for s, run in enumerate(runs):
            assert got["AUROC"][s] == pytest.approx(float(oracles.auc(run[there], BINARY[there])), rel=1e-15)
        preds[3, there[0]] = np.nan
        bad = emma.sweep("E-SC-ANOM", preds, BINARY, where=where)
        assert np.isnan(bad["AUROC"]).tolist() == [s == 3 for s in range(len(runs))]
        assert bad.validity["AUROC"].n_nonfinite.tolist() == [int(s == 3) for s in range(len(runs))]


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_of_a_run_are_counted_exactly(kind):
    """The count in 32 bits is that of the definition, pair by pair; None only where the scores need more bits or are
    NaN; long runs, whose positions are summed another way, too."""
    rng = np.random.default_rng(5)
    for n in (0, 1, 2, 57):
        scores = KINDS[kind](rng, n).astype(np.float32)
        positive = rng.random(n) < 0.4
        wide = scores.astype(np.float64)
        above = wide[positive][:, None] > wide[~positive][None]
        tied = wide[positive][:, None] == wide[~positive][None]
        got = pairs_of_run(scores, positive.astype(np.uint32))
        if kind not in ("all magnitudes", "infinities") or got is not None:
            assert got == 2 * int(above.sum()) + int(tied.sum())
    assert pairs_of_run(np.array([1.0, np.nan], np.float32), np.array([1, 0], np.uint32)) is None
    assert pairs_of_run(np.array([-1.0, -np.nan], np.float32), np.array([1, 0], np.uint32)) is None
    n = 93_000  # positions past 92,000 are summed another way
    scores = np.round(KINDS["normal"](rng, n), 2).astype(np.float32)
    positive = rng.random(n) < 0.4
    exact = oracles.auc(scores, positive) * 2 * int(positive.sum()) * int((~positive).sum())
    assert pairs_of_run(scores, positive.astype(np.uint32)) == exact


# --- traced -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["E-CH-BEAM", *(pytest.param(n, marks=slow) for n in ("E-LOC-AOA", "E-ID-FP"))])
@pytest.mark.parametrize("batch_size", [None, pytest.param(3, marks=slow)])
def test_under_jit_it_is_float32_and_agrees(name, batch_size):
    """Traced: float32 [S] within 4 ulp of the host's (5e-7 for EER), equal validity; a bad run is NaN."""
    preds, labels, _ = CASES[name]
    preds = preds.copy()
    host = emma.sweep(name, preds, labels, where=WHERE)
    got = jax.jit(lambda p, y: emma.sweep(name, p, y, where=WHERE, batch_size=batch_size))(preds, labels)
    for metric, values in host.items():
        assert got[metric].dtype == jnp.float32 and got[metric].shape == (S,)
        for s in range(S):
            assert metric == "EER" or oracles.ulps32(got[metric][s], float(values[s])) <= 4
            assert abs(float(got[metric][s]) - values[s]) <= 5e-7 * max(1.0, abs(values[s]))
        assert np.asarray(got.validity[metric].n_used).tolist() == host.validity[metric].n_used.tolist()
    bad = preds.copy()
    bad[2, 0] = np.nan
    values = jax.jit(lambda p: emma.sweep(name, p, labels).headline)(bad)
    assert np.isnan(np.asarray(values)).tolist() == [s == 2 for s in range(S)]


@slow
def test_under_vmap_and_in_iterables_of_tracers():
    """vmap over sets of runs, and a list of traced runs, give the values of plain sweeps."""
    preds, labels, _ = CASES["E-LOC-AOA"]
    twice = np.stack([preds, preds[::-1]])
    got = jax.vmap(lambda p: emma.sweep("E-LOC-AOA", p, labels).headline)(twice)
    want = jax.jit(lambda p: emma.sweep("E-LOC-AOA", p, labels).headline)(preds)
    assert np.array_equal(got, np.stack([want, want[::-1]]))
    listed = jax.jit(lambda a, b: emma.sweep("E-LOC-AOA", [a, b], labels).headline)(preds[0], preds[1])
    assert np.array_equal(listed, want[:2])


def test_progress_leaves_nothing_behind_where_there_is_no_terminal(capfd):
    """progress=True is silent without a terminal and changes no value."""
    preds, labels, _ = CASES["E-ID-AMC"]
    got = emma.sweep("E-ID-AMC", preds, labels, progress=True)
    assert got["PlainAccuracy"].tolist() == emma.sweep("E-ID-AMC", preds, labels)["PlainAccuracy"].tolist()
    assert capfd.readouterr() == ("", "")
    assert "rich" in sys.modules


def test_shared_labels_score_one_run_with_its_reason():
    """`SharedLabels.score`: the value and no error, or NaN and the error that evaluate raises, word for word."""
    shared = SharedLabels(emma.get_task("E-ID-AMC"), LABELS)
    scores, error = shared.score(SCORES[0])
    assert error is None and scores["PlainAccuracy"] == float(oracles.top_k(SCORES[0], LABELS, 1))
    bad = SCORES[1].copy()
    bad[4, 1] = np.nan
    scores, error = shared.score(bad)
    with pytest.raises(NonFiniteError) as alone:
        emma.evaluate("E-ID-AMC", bad, LABELS)
    assert np.isnan(scores["PlainAccuracy"]) and str(error) == str(alone.value)
    with pytest.raises(ShapeError):
        shared.score(SCORES[0][:-1])
