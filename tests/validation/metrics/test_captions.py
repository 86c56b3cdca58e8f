"""Bleu, Meteor and CIDER: definitions, peers, streams, transforms, edge cases."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import text_oracles
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from text_corpus import rf_corpus

from emma_jax.errors import EmptyEvaluationError, EvaluationError, FileFormatError, ShapeError
from emma_jax.metrics.text import CIDER, Bleu, Meteor, TextMetric, _bleu_statistics
from emma_jax.numerics import limbs
from emma_jax.text.frequencies import DocumentFrequencies
from emma_jax.text.ids import TokenBatch, Vocabulary
from emma_jax.text.synonyms import SYNONYM_TABLE_DIGEST
from emma_jax.text.tokenizers import get_tokenizer, tokenize

CASES = [json.loads(line) for line in (Path(__file__).parents[2] / "data/cases_text.jsonl").read_text().splitlines()]
REFERENCES = [
    ["a wideband ofdm signal at high snr", "one ofdm burst near the band centre"],
    ["two qpsk bursts overlap in time", "qpsk signals overlapping"],
    ["no signal only noise"],
]
CAPTIONS = ["a wideband ofdm burst at high snr", "two qpsk signals overlap", "no signal only noise"]


def _ids(
    captions: list[str], references: list[list[str]], tokenizer: str = "whitespace"
) -> tuple[TokenBatch, TokenBatch]:
    vocabulary = Vocabulary(get_tokenizer(tokenizer))
    flat = [r for group in references for r in group]
    counts = np.array([len(group) for group in references])
    return vocabulary.encode(captions).pad(), vocabulary.encode(flat, counts).pad()


def _tokens(captions: list[str], references: list[list[str]], name: str = "whitespace") -> tuple[list, list]:
    tokenizer = get_tokenizer(name)
    return tokenize(captions, tokenizer), [tokenize(group, tokenizer) for group in references]


@pytest.fixture(scope="module")
def corpus() -> tuple[list[str], list[list[str]]]:
    """5,000 captions, each with 1 to 5 references."""
    return rf_corpus(5000, (1, 5), seed=11)


# --- fixed values and cases ---------------------------------------------------------------------------------------


def test_worked_example():
    """Claim: the three captions' values. Oracle: fixed numbers, and the definitions; to 1e-9."""
    cider = CIDER("whitespace")
    np.testing.assert_allclose(cider(CAPTIONS, REFERENCES), 5.095859910905983, atol=1e-12)
    np.testing.assert_allclose(cider.per_sample(CAPTIONS, REFERENCES), [3.04316785, 2.24441188, 10.0], atol=5e-9)
    np.testing.assert_allclose(Bleu("whitespace")(CAPTIONS, REFERENCES), 0.49844959374, atol=1e-11)
    meteor = Meteor("whitespace", stages=("exact", "stem"))
    expected = [0.84126984127, 0.94982078853, 0.9921875]
    np.testing.assert_allclose(meteor.per_sample(CAPTIONS, REFERENCES), expected, atol=1e-11)
    np.testing.assert_allclose(meteor(CAPTIONS, REFERENCES), np.mean(expected), atol=1e-11)


_BY_NAME = {"corpus_bleu": Bleu("whitespace"), "cider_d": CIDER("whitespace"), "meteor": Meteor("whitespace")}


@pytest.mark.parametrize("case", [c for c in CASES if c["metric"] in _BY_NAME], ids=lambda c: c["id"])
def test_case(case):
    """Claim: the value of a case from other tools' bug reports. Oracle: the case, to its tolerance."""
    metric, data = _BY_NAME[case["metric"]], case["input"]
    value = metric(data["hyps"], data["refs"])
    assert abs(value - case["expect"]) <= case["tol"]
    assert all(abs(value - bad) > case["tol"] for bad in case.get("known_bad", {}).values() if isinstance(bad, float))


# --- peers --------------------------------------------------------------------------------------------------------


def _sacrebleu_columns(references: list[list[str]]) -> list[list[str | None]]:
    return [[group[i] if i < len(group) else None for group in references] for i in range(max(map(len, references)))]


@pytest.mark.parametrize("name", ["13a", "whitespace"])
def test_bleu_equals_sacrebleu(corpus, name):
    """Claim: n-gram counts, lengths and BLEU of 5,000 captions. Oracle: sacrebleu, live; counts exact, value 1e-12."""
    peer = pytest.importorskip("sacrebleu.metrics")
    options = {"lowercase": True} if name == "13a" else {"tokenize": "none"}
    captions, references = corpus
    score = peer.BLEU(force=True, smooth_method="none", **options).corpus_score(
        captions, _sacrebleu_columns(references)
    )
    metric = Bleu(name)
    state = jax.tree.map(np.asarray, metric.update(metric.init(), captions, references))
    integers = {k: limbs.to_int(v) for k, v in state.items()}
    assert [integers[f"matches_{n}"] for n in range(1, 5)] == score.counts
    assert [integers[f"ngrams_{n}"] for n in range(1, 5)] == score.totals
    assert (integers["length"], integers["reference_length"]) == (score.sys_len, score.ref_len)
    assert abs(metric(captions, references) - score.score / 100) < 1e-12


def test_bleu_equals_torchmetrics_without_length_ties(corpus):
    """Claim: BLEU is torchmetrics' where no two references tie in length. Oracle: it, live, float32; 1e-6."""
    functional = pytest.importorskip("torchmetrics.functional.text")
    kept = [
        (c, group)
        for c, group in zip(*corpus)
        if len(gaps := {len(r.split()): abs(len(r.split()) - len(c.split())) for r in group}) == len(set(gaps.values()))
    ]
    captions, references = [c for c, _ in kept], [g for _, g in kept]
    assert len(captions) > 2000
    expected = float(functional.bleu_score(captions, references))
    assert abs(Bleu("whitespace")(captions, references) - expected) < 1e-6


def test_cider_equals_pycocoevalcap(corpus):
    """Claim: every caption's CIDEr-D, and the mean. Oracle: pycocoevalcap, live; 1e-9."""
    peer = pytest.importorskip("pycocoevalcap.cider.cider")
    captions, references = corpus
    mean, each = peer.Cider().compute_score(dict(enumerate(references)), {i: [c] for i, c in enumerate(captions)})
    metric = CIDER("whitespace")
    np.testing.assert_allclose(metric.per_sample(captions, references), each, atol=1e-9, rtol=0)
    assert abs(metric(captions, references) - mean) < 1e-9


def test_meteor_equals_nltk_without_wordnet(corpus):
    """Claim: the metric is nltk's mean over captions. Oracle: nltk, live, with a WordNet that knows no word; 1e-12."""
    from nltk.translate.meteor_score import meteor_score

    class NoWordNet:
        def synsets(self, word):
            return []

    captions, references = corpus[0][:800], corpus[1][:800]
    words, groups = _tokens(captions, references, "13a")
    expected = [meteor_score(group, w, wordnet=NoWordNet()) for group, w in zip(groups, words)]
    metric = Meteor(stages=("exact", "stem"))
    np.testing.assert_allclose(metric.per_sample(captions, references), expected, atol=1e-12, rtol=0)
    assert abs(metric(captions, references) - np.mean(expected)) < 1e-12


# --- definitions --------------------------------------------------------------------------------------------------

_TEXT = st.lists(st.sampled_from("abc"), max_size=9)
_SAMPLE = st.tuples(_TEXT, st.lists(_TEXT, min_size=1, max_size=3))


@settings(max_examples=60, deadline=None)
@given(st.lists(_SAMPLE, min_size=1, max_size=6))
def test_definitions_on_small_corpora(samples):
    """Claim: BLEU and CIDEr-D, strings and ids, empty texts included. Oracle: the definitions in Python; 1e-12."""
    candidates, references = [c for c, _ in samples], [g for _, g in samples]
    captions, groups = [" ".join(c) for c in candidates], [[" ".join(r) for r in g] for g in references]
    number = {"a": 5, "b": -7, "c": 2**31 - 1}
    ids = TokenBatch.from_sequences([[number[t] for t in c] for c in candidates])
    ref_ids = TokenBatch.from_sequences([[[number[t] for t in r] for r in g] for g in references])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for preds, labels in ((captions, groups), (ids, ref_ids)):
            assert abs(Bleu("whitespace")(preds, labels) - text_oracles.bleu(candidates, references)) < 1e-12
            each = CIDER("whitespace").per_sample(preds, labels)
            np.testing.assert_allclose(each, text_oracles.cider_d(candidates, references), atol=1e-12, rtol=0)


def test_per_sample_bleu_is_the_corpus_of_one():
    """Claim: a caption's own BLEU is BLEU of that caption alone. Oracle: the definition; 1e-12."""
    captions, references = rf_corpus(200, seed=2)
    words, groups = _tokens(captions, references)
    expected = [text_oracles.bleu([w], [g]) for w, g in zip(words, groups)]
    np.testing.assert_allclose(Bleu("whitespace").per_sample(captions, references), expected, atol=1e-12, rtol=0)
    assert 20 < np.count_nonzero(expected) < 180


def test_identical_captions_are_not_perfect_everywhere():
    """Claim: identical captions give BLEU 1, METEOR 1 - 0.5 / m^3, CIDEr-D 10 only if distinct. Closed form."""
    captions = ["one two three four five", "six seven eight nine ten"]
    assert Bleu()(captions, [[c] for c in captions]) == 1
    assert abs(Meteor()(captions, [[c] for c in captions]) - (1 - 0.5 / 5**3)) < 1e-12
    assert abs(CIDER()(captions, [[c] for c in captions]) - 10) < 1e-12
    assert CIDER()([captions[0]] * 2, [[captions[0]]] * 2) == 0


def test_case_and_marks_go_with_13a_and_stay_with_whitespace():
    """Claim: the tokenizer decides. Oracle: by hand."""
    captions, references = ["A signal, at 2.4 GHz."], [["a Signal , at 2.4 ghz ."]]
    assert Bleu("13a")(captions, references) == 1
    assert Bleu("whitespace")(captions, references) == 0


# --- strings, ids, streams, transforms: one number ----------------------------------------------------------------


def _metrics(references: list[list[str]]) -> list[TextMetric]:
    table = DocumentFrequencies.from_references(references, tokenizer="whitespace")
    return [Bleu("whitespace"), CIDER("whitespace", df=table), Meteor("whitespace")]


def test_ids_and_strings_give_the_same_bits():
    """Claim: ids made by another vocabulary give the number of the strings. Oracle: the strings; equality."""
    captions, references = rf_corpus(300, seed=3)
    preds, labels = _ids(captions, references)
    shuffled = np.random.default_rng(0).permutation(10_000).astype(np.int32) - 5000
    other = (
        TokenBatch(shuffled[preds.ids], preds.lengths),
        TokenBatch(jnp.asarray(shuffled[labels.ids]), labels.lengths),
    )
    for metric in (Bleu("whitespace"), CIDER("whitespace")):
        value = metric(captions, references)
        assert metric(preds, labels) == value and metric(*other) == value


def test_garbage_beyond_the_lengths_is_never_read():
    """Claim: what lies beyond a text's length, and in absent references, changes nothing. Oracle: zeros there."""
    captions, references = rf_corpus(60, seed=4)
    preds, labels = _ids(captions, references)
    rng = np.random.default_rng(1)

    def garbage(batch: TokenBatch) -> TokenBatch:
        inside = np.arange(batch.ids.shape[-1]) < batch.lengths[..., None]
        return TokenBatch(
            np.where(inside, batch.ids, rng.integers(0, 30, batch.ids.shape)).astype(np.int32), batch.lengths
        )

    for metric in (Bleu(), CIDER(df=DocumentFrequencies.from_references(labels))):
        assert metric(garbage(preds), garbage(labels)) == metric(preds, labels)
        traced = jax.jit(metric.__call__)
        assert traced(garbage(preds), garbage(labels)) == traced(preds, labels)


def test_traced_values_match_the_host(corpus):
    """Claim: under jit, on ids, float32. Oracle: the host value; 2e-6 relative."""
    captions, references = corpus[0][:1000], corpus[1][:1000]
    preds, labels = _ids(captions, references)
    for metric in (Bleu(), CIDER(df=DocumentFrequencies.from_references(labels))):
        value = jax.jit(metric.__call__)(preds, labels)
        assert value.dtype == jnp.float32
        np.testing.assert_allclose(value, metric(preds, labels), rtol=2e-6)
        each = jax.jit(metric.per_sample)(preds, labels)
        np.testing.assert_allclose(each, metric.per_sample(preds, labels), rtol=2e-5, atol=2e-6)


def test_kernels_run_in_vmap_scan_and_aux_of_grad():
    """Claim: vmap over runs, scan over batches, and aux of value_and_grad. Oracle: host calls; 2e-6, states equal."""
    captions, references = rf_corpus(24, (3, 3), seed=5)
    preds, labels = _ids(captions, references)
    for metric in (Bleu(), CIDER(df=DocumentFrequencies.from_references(labels))):
        runs = jax.tree.map(lambda x: jnp.stack([x, jnp.roll(x, 1, axis=0)]), preds)
        values = jax.vmap(lambda run, m=metric: m(run, labels))(runs)
        rolled = jax.tree.map(lambda x: np.roll(x, 1, axis=0), preds)
        np.testing.assert_allclose(values, [metric(preds, labels), metric(rolled, labels)], rtol=2e-6, atol=1e-7)

        def step(state, batch, m=metric):
            return m.update(state, *batch), None

        batches = jax.tree.map(lambda x: x.reshape(6, 4, *x.shape[1:]), (preds, labels))
        state, _ = jax.jit(lambda b, s=step, m=metric: jax.lax.scan(s, m.init(), b))(batches)
        once = jax.jit(metric.update)(metric.init(), preds, labels)
        assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), state, once))
        np.testing.assert_allclose(metric.compute(state), metric(preds, labels), rtol=2e-6)

        def loss(w, m=metric):
            return w**2, m(preds, TokenBatch(labels.ids, jnp.asarray(labels.lengths) + 0 * w.astype(int)))

        (_, value), slope = jax.value_and_grad(loss, has_aux=True)(jnp.float32(3))
        np.testing.assert_allclose(value, metric(preds, labels), rtol=2e-6)
        assert slope == 6


def test_sharded_over_eight_devices():
    """Claim: update and all_reduce in shard_map give the state of one device. Oracle: the unsharded state; equality."""
    captions, references = rf_corpus(64, (2, 2), seed=6)
    preds, labels = _ids(captions, references)
    mesh = jax.make_mesh((8,), ("data",))
    for metric in (Bleu(), CIDER(df=DocumentFrequencies.from_references(labels))):

        def shard(p, t, m=metric):
            return m.all_reduce(m.update(m.init(axis_name="data"), p, t), "data")

        placed = jax.device_put((preds, labels), NamedSharding(mesh, P("data")))
        state = jax.jit(jax.shard_map(shard, mesh=mesh, in_specs=P("data"), out_specs=P()))(*placed)
        once = jax.jit(metric.update)(metric.init(), preds, labels)
        assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), state, once))


def test_any_split_reaches_the_same_state():
    """Claim: batches, merged in any order, finalise to the one-shot value. Oracle: one shot; equality of bits."""
    captions, references = rf_corpus(250, seed=7)
    rng = np.random.default_rng(2)
    for metric in _metrics(references):
        value = metric(captions, references)
        order = rng.permutation(250)
        states = []
        for part in np.split(order, np.sort(rng.choice(249, 6, replace=False)) + 1):
            states.append(metric.update(metric.init(), [captions[i] for i in part], [references[i] for i in part]))
        state = states[0]
        for other in states[1:]:
            state = metric.merge(other, state)
        assert metric.compute(state) == value


def test_weights_are_repetition_and_masks_remove():
    """Claim: weight w is w copies, also for document frequencies; a masked sample is not there, whatever it holds."""
    captions, references = rf_corpus(40, seed=8)
    rng = np.random.default_rng(3)
    weights = rng.integers(0, 4, 40)
    copies = np.repeat(np.arange(40), weights)
    where = rng.random(40) < 0.6
    kept = np.flatnonzero(where)
    for metric in [*_metrics(references), CIDER("whitespace")]:
        repeated = metric([captions[i] for i in copies], [references[i] for i in copies])
        assert metric(captions, references, weights=weights) == repeated
        alone = metric([captions[i] for i in kept], [references[i] for i in kept])
        masked = [c if w else None for c, w in zip(captions, where)]
        nothing = [g if w else 3.5 for g, w in zip(references, where)]
        assert metric(masked, nothing, where=where) == alone


def test_reference_order_cannot_matter():
    """Claim: references in any order give the same number. Oracle: the given order; equality, CIDEr-D to 1e-12."""
    captions, references = rf_corpus(120, (2, 5), seed=9)
    rng = np.random.default_rng(4)
    shuffled = [[group[i] for i in rng.permutation(len(group))] for group in references]
    for metric in [*_metrics(references), CIDER("whitespace")]:
        assert abs(metric(captions, shuffled) - metric(captions, references)) < 1e-12


def test_traced_weights_on_strings():
    """Claim: weights may be traced while the text is concrete (resampling). Oracle: host calls; 2e-6."""
    captions, references = rf_corpus(30, seed=10)
    weights = np.random.default_rng(5).integers(0, 3, (4, 30))
    for metric in _metrics(references):
        values = jax.jit(jax.vmap(lambda w, m=metric: m(captions, references, weights=w)))(jnp.asarray(weights))
        expected = [metric(captions, references, weights=w) for w in weights]
        np.testing.assert_allclose(values, expected, rtol=2e-6)
    with pytest.raises(EvaluationError, match="traces the weights"):
        jax.vmap(lambda w: CIDER()(captions, references, weights=w))(jnp.asarray(weights))


# --- document frequencies -----------------------------------------------------------------------------------------


def test_frozen_frequencies_of_the_references_change_nothing():
    """Claim: a table counted from the references gives what counting them on the fly gives. Oracle: that; 1e-12."""
    captions, references = rf_corpus(150, seed=12)
    table = DocumentFrequencies.from_references(references)
    assert abs(CIDER(df=table)(captions, references) - CIDER()(captions, references)) < 1e-12


def test_frozen_frequencies_of_other_documents():
    """Claim: n-grams the table lacks have df 0, on the host and traced. Oracle: the definition; 1e-10, 2e-6."""
    captions, references = rf_corpus(60, seed=13)
    _, documents = rf_corpus(40, seed=14)
    documents = [[r.replace("signal", "thing") for r in group] for group in documents]
    table = DocumentFrequencies.from_references(documents, tokenizer="whitespace")
    words, groups = _tokens(captions, references)
    expected = text_oracles.cider_d(words, groups, _tokens([], documents)[1])
    metric = CIDER("whitespace", df=table)
    np.testing.assert_allclose(metric.per_sample(captions, references), expected, atol=1e-10, rtol=0)
    vocabulary = table.vocabulary()
    preds = vocabulary.encode(captions).pad()
    flat, counts = [r for g in references for r in g], np.array([len(g) for g in references])
    labels = vocabulary.encode(flat, counts).pad()
    np.testing.assert_allclose(jax.jit(metric.__call__)(preds, labels), np.mean(expected), rtol=2e-6)
    assert metric(preds, labels) == metric(captions, references)


def test_frequencies_count_documents_not_references():
    """Claim: an n-gram in two references of one sample counts once. Oracle: the definition, every n-gram."""
    _, references = rf_corpus(80, (2, 4), seed=15)
    groups = _tokens([], references)[1]
    table = DocumentFrequencies.from_references(references, tokenizer="whitespace")
    for n, counts in enumerate(table.counts, 1):
        assert sorted(counts.tolist()) == sorted(text_oracles.document_frequencies(groups, n).values())


def test_frequencies_on_disk(tmp_path):
    """Claim: a saved table is the same static argument; a changed or foreign file is a typed error."""
    _, references = rf_corpus(20, seed=16)
    table = DocumentFrequencies.from_references(references)
    path = tmp_path / "df.npz"
    table.save(path)
    again = DocumentFrequencies.load(path, digest=table.digest)
    assert again == table and hash(again) == hash(table) and CIDER(df=again) == CIDER(df=table)
    assert table != DocumentFrequencies.from_references(references[:-1])
    with pytest.raises(FileFormatError, match="has digest"):
        DocumentFrequencies.load(path, digest="0" * 64)
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    (tmp_path / "no.npz").write_bytes(b"not a zip")
    for name in ("other.npz", "no.npz"):
        with pytest.raises(FileFormatError, match="no table of document frequencies"):
            DocumentFrequencies.load(tmp_path / name)


def test_stream_and_trace_need_a_table():
    """Claim: without ``df`` a stream and a traced call are errors that name it."""
    preds, labels = _ids(CAPTIONS, REFERENCES)
    for call in (
        CIDER().init,
        lambda: CIDER().update({}, CAPTIONS, REFERENCES),
        lambda: jax.jit(CIDER().__call__)(preds, labels),
    ):
        with pytest.raises(EvaluationError, match="df: is needed"):
            call()
    with pytest.raises(EvaluationError, match="counted with tokenizer '13a'"):
        CIDER("whitespace", df=DocumentFrequencies.from_references(REFERENCES))
    with pytest.raises(EvaluationError, match="made from ids"):
        CIDER(df=DocumentFrequencies.from_references(labels))(CAPTIONS, REFERENCES)


def test_one_document_warns():
    """Claim: CIDEr-D of one document is 0, with a warning that says why; two documents warn of nothing."""
    with pytest.warns(UserWarning, match="one document is 0.*idf log 1"):
        assert CIDER()(CAPTIONS[:1], REFERENCES[:1]) == 0
    with pytest.warns(UserWarning, match="one document"):
        CIDER()(CAPTIONS, REFERENCES, where=np.array([True, False, False]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CIDER()(CAPTIONS[:2], REFERENCES[:2])


# --- configuration and errors -------------------------------------------------------------------------------------


def test_results_record_what_the_number_depends_on():
    """Claim: tokenizer, stages, parameters, table digest and df source are in the metric's description."""
    assert dict(Bleu().info.config) == {"tokenizer": "13a"}
    meteor = dict(Meteor(processes=2).info.config)
    assert meteor == {
        "tokenizer": "13a",
        "stages": ("exact", "stem", "synonym"),
        "alpha": 0.9,
        "beta": 3.0,
        "gamma": 0.5,
        "synonym_table": SYNONYM_TABLE_DIGEST,
    }
    assert "synonym_table" not in dict(Meteor(stages=("exact",)).info.config)
    assert Meteor(processes=2) == Meteor() and hash(Meteor(processes=2)) == hash(Meteor())
    table = DocumentFrequencies.from_references(REFERENCES)
    assert dict(CIDER().info.config)["df"] == "references"
    assert dict(CIDER(df=table).info.config)["df"] == f"sha256:{table.digest}"


@pytest.mark.filterwarnings("ignore:.*one document")
@pytest.mark.parametrize("metric", [Bleu(), Meteor(), CIDER()], ids=lambda m: m.name)
def test_wrong_inputs_are_typed_errors(metric):
    """Claim: no references, unequal lengths, no strings, one string, half ids: errors that say what and where."""
    with pytest.raises(EmptyEvaluationError, match="at least one reference; 1 of them; first at index 1"):
        metric(["a b", "c d"], [["a"], []])
    with pytest.raises(EmptyEvaluationError, match="no sample"):
        metric([], [])
    with pytest.raises(EmptyEvaluationError, match="no sample"):
        metric(CAPTIONS, REFERENCES, where=np.zeros(3, bool))
    with pytest.raises(ShapeError, match="has 1 entries for 2"):
        metric(["a", "b"], [["a"]])
    with pytest.raises(EvaluationError, match="NoneType is not a string"):
        metric(["a", None], [["a"], ["b"]])
    with pytest.raises(EvaluationError, match="each entry is a list of strings; got str"):
        metric(["a", "b"], ["a", "b"])
    with pytest.raises(EvaluationError, match="one string"):
        metric("a", [["a"]])
    with pytest.raises(EvaluationError, match="on both sides"):
        metric(_ids(CAPTIONS, REFERENCES)[0], REFERENCES)
    with pytest.raises(EvaluationError, match="no tokenizer 'moses'"):
        type(metric)(tokenizer="moses")


def test_wrong_ids_are_typed_errors():
    """Claim: shapes and dtypes of ids are checked, on the host and under trace; METEOR cannot read ids."""
    preds, labels = _ids(CAPTIONS, REFERENCES)
    for call in (Bleu(), jax.jit(Bleu().__call__)):
        with pytest.raises(ShapeError, match=r"labels: needs ids \[N, R, L\]"):
            call(preds, preds)
        with pytest.raises(ShapeError, match="2 samples for 3"):
            call(preds, TokenBatch(labels.ids[:2], labels.lengths[:2]))
        with pytest.raises(EvaluationError, match="must be integers; got dtype float32"):
            call(TokenBatch(preds.ids.astype(np.float32), preds.lengths), labels)
        with pytest.raises(ShapeError, match="at least 1"):
            call(preds, TokenBatch(labels.ids[:, :0], labels.lengths[:, :0]))
    for call in (Meteor(), jax.jit(Meteor().__call__)):
        with pytest.raises(EvaluationError, match="needs strings, on the host"):
            call(preds, labels)


def test_a_missing_reference_is_nan_under_trace():
    """Claim: traced, a caption without a reference makes the value NaN; masked, it is not there."""
    preds, labels = _ids(CAPTIONS, REFERENCES)
    none = TokenBatch(labels.ids, np.where(np.arange(3)[:, None] == 1, -1, labels.lengths))
    value = jax.jit(Bleu().__call__)
    assert np.isnan(value(preds, none))
    where = np.array([True, False, True])
    kept = [0, 2]
    expected = Bleu("whitespace")([CAPTIONS[i] for i in kept], [REFERENCES[i] for i in kept])
    np.testing.assert_allclose(value(preds, none, where=where), expected, rtol=2e-6)


def test_few_compilations_and_bounded_padding():
    """Claim: corpora of 40 sizes share a handful of kernels; one text of 3,000 words does not stretch the others."""
    before = _bleu_statistics._cache_size()
    for n in range(1, 600, 15):
        captions, references = rf_corpus(n, (1, 1), seed=n)
        Bleu()(captions, references)
    assert _bleu_statistics._cache_size() - before <= 4
    captions, references = rf_corpus(50, (2, 2), seed=17)
    long = " ".join(str(i % 700) for i in range(3000))
    value = Bleu("whitespace")([*captions, long], [*references, [long, "short"]])
    words, groups = _tokens([*captions, long], [*references, [long, "short"]])
    assert abs(value - text_oracles.bleu(words, groups)) < 1e-12
