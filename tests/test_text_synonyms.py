"""The synonym table against nltk's reader on the full WordNet 3.0, from Debian's package wordnet-base."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from text_corpus import rf_corpus

from emma_jax.errors import EmptyEvaluationError, EvaluationError, FileFormatError, ShapeError
from emma_jax.text import synonyms
from emma_jax.text.build_synonyms import DEBIAN as WORDNET
from emma_jax.text.build_synonyms import main, nltk_data_folder
from emma_jax.text.meteor import meteor_scores
from emma_jax.text.synonyms import SYNONYM_TABLE_DIGEST, SynonymReader, SynonymTable, load_synonyms
from emma_jax.text.tokenizers import get_tokenizer, tokenize

needs_wordnet = pytest.mark.skipif(
    not (WORDNET / "data.noun").exists(), reason="needs WordNet 3.0's files: Debian's package wordnet-base"
)


@pytest.fixture(scope="module")
def wordnet(tmp_path_factory):
    """nltk's own WordNet reader over an nltk data folder made of the Debian files."""
    import nltk
    from nltk.corpus.reader.wordnet import WordNetCorpusReader

    folder = tmp_path_factory.mktemp("nltk_data")
    corpus = nltk_data_folder(WORDNET, folder)
    nltk.data.path.insert(0, str(folder))
    try:
        with pytest.warns(UserWarning, match="multilingual"):
            reader = WordNetCorpusReader(nltk.data.FileSystemPathPointer(str(corpus)), None)
        yield reader
    finally:
        nltk.data.path.remove(str(folder))


def _nltk_synonyms(reader, word: str) -> set[str]:
    return {lemma.name() for synset in reader.synsets(word) for lemma in synset.lemmas() if "_" not in lemma.name()}


def _words(reader) -> list[str]:
    """Every lemma and every exceptional form of WordNet."""
    words = set(reader._lemma_pos_offset_map)
    for forms in reader._exception_map.values():
        words.update(forms)
    return sorted(words)


def _inflected(words: list[str]) -> list[str]:
    """The words with endings put on and cut off, and their Porter stems: what METEOR looks up."""
    from nltk.stem.porter import PorterStemmer

    stem = PorterStemmer().stem
    endings = ("s", "es", "ses", "ies", "ed", "ing", "er", "est", "men", "ves", "ches", "zes")
    made = {base + end for word in words for base in (word, word[:-1], word[:-2]) for end in endings}
    return sorted(made | {stem(word) for word in words})


@needs_wordnet
def test_table_is_rebuilt_from_wordnet(tmp_path, capsys):
    """Claim: the shipped table is a function of the Debian files. Oracle: the builder run now. Tolerance: none."""
    assert main([str(WORDNET), str(tmp_path / "table")]) == 0
    assert capsys.readouterr().out.strip() == SYNONYM_TABLE_DIGEST
    content = zlib.decompress((tmp_path / "table").read_bytes())
    assert hashlib.sha256(content).hexdigest() == SYNONYM_TABLE_DIGEST
    assert SynonymTable(content).synonyms("geese") == load_synonyms().synonyms("geese")
    assert main([]) == 2


@needs_wordnet
def test_synonyms_equal_nltk_on_a_sample(wordnet):
    """Claim: same synonyms for lemmas, exceptional forms, inflections, stems. Oracle: nltk on WordNet 3.0. Exact."""
    table, words = load_synonyms(), _words(wordnet)
    assert len(words) > 150000
    for word in words[::60] + _inflected(words[::2000]) + ["", "_", "Paris", "PARIS", "zzzz", "-", "take_a_breath"]:
        assert table.synonyms(word) == _nltk_synonyms(wordnet, word), word


@pytest.mark.slow
@needs_wordnet
def test_synonyms_equal_nltk_everywhere(wordnet):
    """Claim: the same on 30,000 lemmas and exceptional forms, and 90,000 inflections. Oracle: nltk. Exact."""
    table, words = load_synonyms(), _words(wordnet)
    for word in words[::5] + _inflected(words[::50]):
        assert table.synonyms(word) == _nltk_synonyms(wordnet, word), word


@needs_wordnet
def test_meteor_equals_nltk_on_5000_pairs(wordnet):
    """Claim: METEOR is nltk's with the full corpus, for 5,000 captions. Oracle: nltk run live. Tolerance: none."""
    from nltk.translate.meteor_score import meteor_score

    tokenizer = get_tokenizer("13a")
    captions, references = rf_corpus(5000, (1, 2), seed=7)
    candidates, groups = tokenize(captions, tokenizer), [tokenize(group, tokenizer) for group in references]
    oracle = [meteor_score(group, words, wordnet=wordnet) for group, words in zip(groups, candidates)]
    ours = meteor_scores(candidates, groups)
    assert np.array_equal(ours, oracle)
    without = meteor_scores(candidates, groups, stages=("exact", "stem"))
    assert (ours > without).mean() > 0.05  # the corpus has synonyms that count


@needs_wordnet
def test_meteor_equals_nltk_on_words_of_wordnet(wordnet):
    """Claim: so it is for random words of the lexicon, any case. Oracle: nltk run live. Tolerance: none."""
    from nltk.translate.meteor_score import meteor_score

    rng = np.random.default_rng(3)
    table = load_synonyms()
    words = [word for word in _words(wordnet) if len(word) < 7]
    groups, candidates = [], []
    for _ in range(400):
        reference = [str(w) for w in rng.choice(words, 12)]
        candidate = [
            str(rng.choice(sorted(table.synonyms(w) or {w}))) + str(rng.choice(["", "", "s"])) for w in reference
        ]
        groups.append([reference])
        candidates.append([w.upper() if rng.random() < 0.1 else w for w in candidate])
    oracle = [meteor_score(group, candidate, wordnet=wordnet) for group, candidate in zip(groups, candidates)]
    assert np.array_equal(meteor_scores(candidates, groups), oracle)


@needs_wordnet
def test_reader_serves_nltks_aligner(wordnet):
    """Claim: the reader can stand in for nltk's WordNet in nltk's own functions. Oracle: nltk. Tolerance: none."""
    from nltk.translate.meteor_score import single_meteor_score, wordnetsyn_match

    reader = SynonymReader(load_synonyms())
    pair = ["the boy likes a big automobile", "the lad likes a large car"]
    pair = [text.split() for text in pair]
    assert wordnetsyn_match(*pair, wordnet=reader) == wordnetsyn_match(*pair, wordnet=wordnet)
    assert single_meteor_score(*pair, wordnet=reader) == single_meteor_score(*pair, wordnet=wordnet)


def test_meteor_example_without_synonyms():
    """Claim: the worked example of three captions with exact and stem matches. Oracle: fixed values, to 1e-10."""
    references = [
        ["a wideband ofdm signal at high snr", "one ofdm burst near the band centre"],
        ["two qpsk bursts overlap in time", "qpsk signals overlapping"],
        ["no signal only noise"],
    ]
    captions = ["a wideband ofdm burst at high snr", "two qpsk signals overlap", "no signal only noise"]
    scores = meteor_scores(
        [c.split() for c in captions], [[r.split() for r in g] for g in references], stages=("exact", "stem")
    )
    np.testing.assert_allclose(scores, [0.84126984127, 0.94982078853, 0.9921875], atol=1e-10, rtol=0)


def test_meteor_stages():
    """Claim: each stage adds its matches. Oracle: one word pair a stage; a full match of one word scores 0.5."""
    pairs = {"exact": ("tone", "tone"), "stem": ("tones", "tone"), "synonym": ("automobil", "car")}
    for stages, matched in (
        (("exact",), {"exact"}),
        (("exact", "stem"), {"exact", "stem"}),
        (("exact", "synonym"), {"exact", "stem"}),  # WordNet's base forms know that tones are tone
        (("exact", "stem", "synonym"), {"exact", "stem"}),
    ):
        scores = meteor_scores([[a] for a, _ in pairs.values()], [[[b]] for _, b in pairs.values()], stages=stages)
        assert {name for name, score in zip(pairs, scores) if score == 0.5} == matched
    assert meteor_scores([["car"]], [[["auto"]]]).tolist() == [0.5]
    assert meteor_scores([["car"]], [[["auto"]]], stages=("exact", "stem")).tolist() == [0.0]


def test_meteor_spreads_over_processes():
    """Claim: two processes give the bits of one. Oracle: the single process."""
    captions, references = rf_corpus(60, seed=9)
    candidates, groups = [c.split() for c in captions], [[r.split() for r in g] for g in references]
    assert np.array_equal(meteor_scores(candidates, groups, processes=2), meteor_scores(candidates, groups))


def test_meteor_errors():
    """Claim: no reference, unequal lengths and unknown stages are typed errors."""
    with pytest.raises(EmptyEvaluationError, match="index 1"):
        meteor_scores([["a"], ["b"]], [[["a"]], []])
    with pytest.raises(ShapeError, match="1 entries for 2"):
        meteor_scores([["a"], ["b"]], [[["a"]]])
    for stages in (("stem",), ("exact", "paraphrase"), "exact", ("exact", "exact")):
        with pytest.raises(EvaluationError, match="stages"):
            meteor_scores([["a"]], [[["a"]]], stages=stages)
    assert meteor_scores([], []).shape == (0,)


def test_a_changed_table_is_refused(monkeypatch):
    """Claim: a table with other content, or bytes that are no table, is a typed error naming the file."""
    monkeypatch.setattr(synonyms, "SYNONYM_TABLE_DIGEST", "0" * 64)
    with pytest.raises(FileFormatError, match=r"wordnet30-synonyms.*not 0000"):
        load_synonyms.__wrapped__()
    monkeypatch.setattr(synonyms.zlib, "decompress", lambda packed: (_ for _ in ()).throw(zlib.error("bad")))
    with pytest.raises(FileFormatError, match="cannot be decompressed"):
        load_synonyms.__wrapped__()
    with pytest.raises(FileFormatError, match="no synonym table"):
        SynonymTable(b"something else\n\n")


def test_no_corpus_and_no_network():
    """Claim: METEOR runs where nltk.data finds nothing and no socket opens. Oracle: a process in which both raise."""
    script = """
import os, socket
os.environ["NLTK_DATA"] = "/nowhere"
def refuse(*a, **k): raise AssertionError("touched")
socket.socket.connect = refuse
socket.create_connection = refuse
import nltk.data
nltk.data.find = nltk.data.load = refuse
from emma_jax.text.meteor import meteor_scores
print(meteor_scores([["two", "cars", "stopped"]], [[["two", "automobiles", "stop"], ["a"]]]).tolist())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[0.")


def test_license_stands_beside_the_table():
    """Claim: WordNet's notice is shipped with the table, as its license asks."""
    notice = (Path(synonyms.__file__).parent / "data" / "LICENSE-WordNet.txt").read_text()
    assert "WordNet 3.0 Copyright 2006 by Princeton University.  All rights reserved." in notice
    assert "Permission to use, copy, modify and distribute" in notice
