"""The text tasks behind `evaluate`: one call, one number, on strings and on ids."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest
from text_corpus import rf_corpus

import emma_jax as emma
from emma_jax.errors import EmptyEvaluationError, EvaluationError
from emma_jax.metrics.text import CIDER, F1, Bleu, ExactMatch, Meteor
from emma_jax.tasks import list_tasks
from emma_jax.text.frequencies import DocumentFrequencies
from emma_jax.text.ids import Vocabulary
from emma_jax.text.tokenizers import get_tokenizer

pytestmark = pytest.mark.skipif(
    not {"E-S2T-CAP", "E-S2T-QA"} <= {task.id for task in list_tasks()}, reason="the text tasks are not registered yet"
)
CAPTIONS, REFERENCES = rf_corpus(90, (1, 3), seed=21)


def _ids():
    vocabulary = Vocabulary(get_tokenizer("13a"))
    preds = vocabulary.encode(CAPTIONS).pad()
    counts = np.array([len(g) for g in REFERENCES])
    return preds, vocabulary.encode([r for g in REFERENCES for r in g], counts).pad()


def test_evaluate_captions_and_answers():
    """Claim: the tasks report their metrics' values. Oracle: the metrics, called alone; equality."""
    scores = emma.evaluate("E-S2T-CAP", CAPTIONS, REFERENCES)
    assert list(scores) == ["Bleu", "Meteor", "CIDER"]
    assert dict(scores) == {m.name: m(CAPTIONS, REFERENCES) for m in (Bleu(), Meteor(), CIDER())}
    answers = emma.evaluate("E-S2T-QA", CAPTIONS, REFERENCES, normalizer="numeric-safe")
    assert dict(answers) == {m.name: m(CAPTIONS, REFERENCES) for m in (ExactMatch("numeric-safe"), F1("numeric-safe"))}
    assert scores.validity["CIDER"].n_used == 90


def test_results_are_strict_json_with_provenance():
    """Claim: a result is strict JSON and names tokenizer, stages, table digest and df source."""
    text = json.dumps(emma.evaluate("E-S2T-CAP", CAPTIONS, REFERENCES).to_dict(), allow_nan=False)
    metrics = json.loads(text)["metrics"]
    assert metrics["Bleu"]["config"] == {"tokenizer": "13a"}
    assert metrics["CIDER"]["config"]["df"] == "references"
    assert metrics["Meteor"]["config"]["stages"] == ["exact", "stem", "synonym"]
    assert len(metrics["Meteor"]["config"]["synonym_table"]) == 64


def test_ids_leave_out_what_needs_words():
    """Claim: ids give BLEU, and CIDEr-D where its frequencies are fixed. Oracle: the host values; 2e-6."""
    preds, labels = _ids()
    host = emma.evaluate("E-S2T-CAP", preds, labels)
    assert list(host) == ["Bleu", "CIDER"] and host["Bleu"] == Bleu()(CAPTIONS, REFERENCES)
    traced = jax.jit(lambda p, t: emma.evaluate("E-S2T-CAP", p, t))(preds, labels)
    assert list(traced) == ["Bleu"]
    np.testing.assert_allclose(traced["Bleu"], host["Bleu"], rtol=2e-6)
    table = DocumentFrequencies.from_references(labels)
    both = jax.jit(lambda p, t: emma.evaluate("E-S2T-CAP", p, t, df=table))(preds, labels)
    np.testing.assert_allclose(both["CIDER"], host["CIDER"], rtol=2e-6)


def test_groups_share_the_document_frequencies_of_the_corpus():
    """Claim: a group's CIDEr-D weighs n-grams by the whole corpus, so groups average to the total. Oracle: the mean."""
    groups = np.arange(90) % 3
    scores = emma.evaluate_groups("E-S2T-CAP", CAPTIONS, REFERENCES, groups)
    for name in ("Meteor", "CIDER"):
        np.testing.assert_allclose(
            scores[name].mean(), emma.evaluate("E-S2T-CAP", CAPTIONS, REFERENCES)[name], atol=1e-12
        )
    first = np.flatnonzero(groups == 0)
    alone = Bleu()([CAPTIONS[i] for i in first], [REFERENCES[i] for i in first])
    assert scores["Bleu"][0] == alone


def test_a_stream_of_strings():
    """Claim: update, merge and compute of the caption task end in the one-shot values. Oracle: one shot; equality."""
    task = emma.get_task("E-S2T-CAP", df=DocumentFrequencies.from_references(REFERENCES))
    state = task.update(task.init(), CAPTIONS[:40], REFERENCES[:40])
    state = task.merge(task.update(task.init(), CAPTIONS[40:], REFERENCES[40:]), state)
    assert dict(task.compute(state)) == dict(emma.evaluate(task, CAPTIONS, REFERENCES))


def test_errors_name_the_task():
    """Claim: what is wrong is said with the task's name, and where."""
    without = [*REFERENCES[:5], [], *REFERENCES[6:]]
    with pytest.raises(EmptyEvaluationError, match=r"E-S2T-CAP: labels: .*first at index 5"):
        emma.evaluate("E-S2T-CAP", CAPTIONS, without)
    with pytest.raises(EvaluationError, match="E-S2T-QA: preds: float64 is not a string"):
        emma.evaluate("E-S2T-QA", np.zeros(3), [["a"]] * 3)
    preds, labels = _ids()
    task = emma.get_task("E-S2T-CAP", df=DocumentFrequencies.from_references(labels))
    with pytest.raises(EvaluationError, match="Meteor: needs strings"):
        jax.jit(lambda p, t: task.update(task.init(), p, t))(preds, labels)
