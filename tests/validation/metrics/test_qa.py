"""ExactMatch and F1: the SQuAD rules, peers, edge cases, streams, transforms."""

from __future__ import annotations

import json
import random
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import text_oracles
from hypothesis import given, settings
from hypothesis import strategies as st
from text_corpus import punctuation_lines, rf_corpus

from emma_jax.errors import EmptyEvaluationError, EvaluationError, ShapeError
from emma_jax.metrics.text import F1, ExactMatch
from emma_jax.text.ids import TokenBatch, Vocabulary
from emma_jax.text.squad import get_normalizer
from emma_jax.text.tokenizers import tokenize

CASES = [json.loads(line) for line in (Path(__file__).parents[2] / "data/cases_text.jsonl").read_text().splitlines()]
CASES = [case for case in CASES if case["metric"] == "squad"]


@pytest.mark.parametrize("case", [c for c in CASES if "pred" in c["input"]], ids=lambda c: c["id"])
def test_case(case):
    """Claim: the value of a case from other tools' bug reports. Oracle: the case, to its tolerance."""
    preds, labels = [case["input"]["pred"]], [case["input"]["golds"]]
    assert abs(ExactMatch()(preds, labels) - case["expect"]["em"]) <= case["tol"]
    assert abs(F1()(preds, labels) - case["expect"]["f1"]) <= case["tol"]


def test_case_of_a_missing_prediction():
    """Claim: a missing prediction, scored as "", counts 0; left out, the sides differ in number, an error."""
    (case,) = [c for c in CASES if c["id"] == "squad-missing-prediction"]
    golds, preds = case["input"]["golds"], case["input"]["preds"]
    answers = [preds.get(k, "") for k in golds]
    assert ExactMatch()(answers, list(golds.values())) == case["expect"]["em"]
    assert F1()(answers, list(golds.values())) == case["expect"]["f1"]
    with pytest.raises(ShapeError, match="2 entries for 1"):
        F1()(list(preds.values()), list(golds.values()))


def _answers(n: int, seed: int) -> tuple[list[str], list[list[str]]]:
    """Answers and gold answers: captions, numbers, marks; a quarter right up to case, articles and marks."""
    rng = random.Random(seed)
    answers, golds = rf_corpus(n, (1, 4), seed=seed)
    marks = punctuation_lines(n, seed=seed)
    for i in range(n):
        kind = rng.random()
        if kind < 0.25:
            golds[i][0] = "The " + answers[i].upper() + "!"
        elif kind < 0.35:
            answers[i] = rng.choice(golds[i]).split()[0]
        elif kind < 0.5:
            answers[i], golds[i][-1] = marks[i], rng.choice(marks)
        elif kind < 0.55:
            answers[i] = rng.choice(["", "a", "the!", "no answer"])
    return answers, golds


def test_equals_torchmetrics():
    """Claim: EM and F1 of 5,000 answers are torchmetrics' SQuAD values / 100. Oracle: it, live. Tolerances: its own
    per-answer functions 1e-12 (EM) and 1e-7 (F1, which it forms in float32); its float32 sums 1e-5."""
    peer = pytest.importorskip("torchmetrics.functional.text.squad")
    answers, golds = _answers(5000, seed=1)

    def best(score, answer, group):
        return max(float(score(answer, gold)) for gold in group)

    some = list(zip(answers, golds))[:1000]
    expected_f1 = [best(peer._compute_f1_score, a, g) for a, g in some]
    expected_em = [best(peer._compute_exact_match_score, a, g) for a, g in some]
    np.testing.assert_allclose(ExactMatch().per_sample(answers, golds)[:1000], expected_em, atol=1e-12, rtol=0)
    np.testing.assert_allclose(F1().per_sample(answers, golds)[:1000], expected_f1, atol=1e-7, rtol=0)
    preds = [{"prediction_text": a, "id": str(i)} for i, a in enumerate(answers)]
    target = [{"answers": {"answer_start": [0] * len(g), "text": g}, "id": str(i)} for i, g in enumerate(golds)]
    whole = peer.squad(preds, target)
    assert abs(F1()(answers, golds) - float(whole["f1"]) / 100) < 1e-5
    assert abs(ExactMatch()(answers, golds) - float(whole["exact_match"]) / 100) < 1e-5


@pytest.mark.parametrize("name", ["squad", "numeric-safe"])
def test_equals_the_definition(name):
    """Claim: EM and F1, each answer and the mean. Oracle: the definitions on normalized tokens, in rationals; 1e-12."""
    answers, golds = _answers(1500, seed=2)
    golds[::50] = [[] for _ in golds[::50]]
    normalizer = get_normalizer(name)
    tokens, gold_tokens = tokenize(answers, normalizer), [tokenize(g, normalizer) for g in golds]
    f1 = [text_oracles.f1(a, g) for a, g in zip(tokens, gold_tokens)]
    exact = [text_oracles.exact_match(a, g) for a, g in zip(tokens, gold_tokens)]
    np.testing.assert_allclose(F1(name).per_sample(answers, golds), [float(x) for x in f1], atol=1e-15, rtol=0)
    assert ExactMatch(name).per_sample(answers, golds).tolist() == exact
    assert abs(F1(name)(answers, golds) - float(sum(f1) / len(f1))) < 1e-12
    assert abs(ExactMatch(name)(answers, golds) - sum(exact) / len(exact)) < 1e-12


_TEXT = st.lists(st.integers(-2, 2), max_size=6)
_SAMPLE = st.tuples(_TEXT, st.lists(_TEXT, max_size=3))


_TRACED = {metric: jax.jit(metric.__call__) for metric in (F1(), ExactMatch())}


@settings(max_examples=60, deadline=None)
@given(st.lists(_SAMPLE, min_size=5, max_size=5))
def test_ids_on_the_host_and_traced(samples):
    """Claim: ids, empty and absent answers included, on the host and under jit. Oracle: rationals; 1e-12, 2e-6."""
    answers, golds = [a for a, _ in samples], [g for _, g in samples]
    preds = TokenBatch(np.zeros((5, 6), np.int32), np.array([len(a) for a in answers]))
    labels = TokenBatch(np.zeros((5, 3, 6), np.int32), np.full((5, 3), -1))
    for i, (answer, group) in enumerate(samples):
        preds.ids[i, : len(answer)] = answer
        for r, gold in enumerate(group):
            labels.ids[i, r, : len(gold)], labels.lengths[i, r] = gold, len(gold)
    f1 = [text_oracles.f1(a, g) for a, g in zip(answers, golds)]
    exact = [text_oracles.exact_match(a, g) for a, g in zip(answers, golds)]
    for metric, each in ((F1(), f1), (ExactMatch(), exact)):
        expected = float(sum(each) / len(each))
        assert abs(metric(preds, labels) - expected) < 1e-12
        np.testing.assert_allclose(_TRACED[metric](preds, labels), expected, rtol=2e-6)
        np.testing.assert_allclose(metric.per_sample(preds, labels), [float(x) for x in each], atol=1e-15, rtol=0)


def test_the_best_gold_is_exact_among_near_equal_ones():
    """Claim: of golds whose F1 differ in the 8th digit the larger counts. Oracle: rationals; 1e-15."""
    answer = list(range(5000))
    golds = [list(range(k)) for k in (4200, 4201, 4199)]
    preds, labels = TokenBatch.from_sequences([answer]), TokenBatch.from_sequences([golds])
    assert abs(F1()(preds, labels) - float(text_oracles.f1(answer, golds))) < 1e-15


def test_any_split_reaches_the_same_state():
    """Claim: host batches, a scan over ids, and one shot end in the same state. Oracle: one shot; equality of bits."""
    answers, golds = _answers(240, seed=3)
    vocabulary = Vocabulary(get_normalizer("squad"))
    preds = vocabulary.encode(answers).pad()
    counts = np.array([len(g) for g in golds])
    labels = vocabulary.encode([x for g in golds for x in g], counts).pad()
    for metric in (F1(), ExactMatch()):
        state = metric.init()
        for start in range(0, 240, 37):
            state = metric.update(state, answers[start : start + 37], golds[start : start + 37])
        assert metric.compute(state) == metric(answers, golds) == metric(preds, labels)

        def step(carry, batch, m=metric):
            return m.update(carry, *batch), None

        batches = jax.tree.map(lambda x: jnp.asarray(x).reshape(6, 40, *x.shape[1:]), (preds, labels))
        scanned, _ = jax.jit(lambda b, s=step, m=metric: jax.lax.scan(s, m.init(), b))(batches)
        assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), scanned, state))


def test_weights_are_repetition_and_masks_remove():
    """Claim: weight w is w copies; a masked sample may hold anything. Oracle: the copies; equality."""
    answers, golds = _answers(50, seed=4)
    rng = np.random.default_rng(0)
    weights, where = rng.integers(0, 4, 50), rng.random(50) < 0.5
    copies, kept = np.repeat(np.arange(50), weights), np.flatnonzero(where)
    for metric in (F1(), ExactMatch()):
        repeated = metric([answers[i] for i in copies], [golds[i] for i in copies])
        assert metric(answers, golds, weights=weights) == repeated
        masked = [a if w else None for a, w in zip(answers, where)]
        alone = metric([answers[i] for i in kept], [golds[i] for i in kept])
        assert metric(masked, [g if w else 7 for g, w in zip(golds, where)], where=where) == alone


def test_a_bare_string_is_one_gold_answer():
    """Claim: ``labels`` may be strings or lists of strings. Oracle: lists of one."""
    assert ExactMatch()(["28 GHz", "QPSK"], ["28 ghz.", "BPSK"]) == 0.5
    assert ExactMatch()(["28 GHz", "QPSK"], ["28 ghz.", ["BPSK", "a qpsk"]]) == 1.0


def test_numbers_survive_only_the_numeric_safe_normalizer():
    """Claim: the protocol's rule calls "-3.5 dB" and "35 dB" equal, numeric-safe does not; results say which."""
    assert ExactMatch()(["-3.5 dB"], [["35 dB"]]) == 1
    assert ExactMatch("numeric-safe")(["-3.5 dB"], [["35 dB"]]) == 0
    assert ExactMatch("numeric-safe")(["-3.5 dB", "5 MW"], [["\u22123.5dB"], ["5 mW"]]) == 0.5
    assert dict(ExactMatch("numeric-safe").info.config) == {"normalizer": "numeric-safe"}
    assert dict(F1().info.config) == {"normalizer": "squad"}


@pytest.mark.parametrize("metric", [ExactMatch(), F1()], ids=lambda m: m.name)
def test_wrong_inputs_are_typed_errors(metric):
    """Claim: unequal lengths, no samples, no strings, unknown normalizer: errors that say what and where."""
    with pytest.raises(ShapeError, match="1 entries for 2"):
        metric(["a", "b"], [["a"]])
    with pytest.raises(EmptyEvaluationError, match="no sample"):
        metric([], [])
    with pytest.raises(EvaluationError, match=r"int is not a string.*index \(1, 0\)"):
        metric(["a", "b"], [["a"], [3]])
    with pytest.raises(EvaluationError, match="one string"):
        metric(["a"], "a")
    with pytest.raises(EvaluationError, match="no normalizer 'bert'"):
        type(metric)(normalizer="bert")
