"""Strings to ids: equal tokens and nothing else get equal ids, whatever the batch; TokenBatch is a pytree."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from text_corpus import punctuation_lines, rf_corpus

from emma_jax.errors import EvaluationError, ShapeError
from emma_jax.text.ids import ABSENT, TokenBatch, Vocabulary, bucket, check_texts, group_texts
from emma_jax.text.tokenizers import get_tokenizer


def _rows(ids: np.ndarray, lengths: np.ndarray) -> list[list[int]]:
    return [row.tolist() for row in np.split(ids, np.cumsum(lengths)[:-1])] if len(lengths) else []


@pytest.mark.parametrize("name", ["13a", "whitespace"])
def test_encode_is_the_tokenizer(name):
    """Claim: ids read back through the vocabulary are the tokens, over several calls. Oracle: the tokenizer."""
    tokenizer = get_tokenizer(name)
    vocabulary = Vocabulary(tokenizer)
    for seed in range(3):
        texts = ["", *punctuation_lines(700, seed=seed, line_ends=True), "", *rf_corpus(50, seed=seed)[0], ""]
        rows = vocabulary.encode(texts)
        words = vocabulary.tokens
        assert [[words[i] for i in row] for row in _rows(rows.ids, rows.lengths)] == [tokenizer(t) for t in texts]
    assert len(set(vocabulary.tokens)) == len(vocabulary)


def test_encode_survives_the_separator_in_a_text():
    """Claim: a NUL in a text is a replacement character, and the texts around it are untouched."""
    vocabulary = Vocabulary(get_tokenizer("whitespace"))
    rows = vocabulary.encode(["a \0 b", "\0", "c"])
    words = vocabulary.tokens
    assert [[words[i] for i in row] for row in _rows(rows.ids, rows.lengths)] == [
        ["a", "\ufffd", "b"],
        ["\ufffd"],
        ["c"],
    ]


def test_encode_of_nothing():
    """Claim: no texts, and texts without tokens, are fine."""
    vocabulary = Vocabulary(get_tokenizer("13a"))
    assert vocabulary.encode([]).lengths.tolist() == []
    assert vocabulary.encode(["", " ", "\n"]).lengths.tolist() == [0, 0, 0]
    assert vocabulary.encode([""]).pad().ids.shape == (1, 1)


def test_given_tokens_come_first():
    """Claim: a vocabulary that starts from a list keeps the ids of the list."""
    vocabulary = Vocabulary(get_tokenizer("whitespace"), ["c", "b"])
    assert vocabulary.encode(["b x c"]).ids.tolist() == [1, 2, 0]


def test_padding_holds_every_row():
    """Claim: rows and absences survive padding. Oracle: the ragged rows."""
    vocabulary = Vocabulary(get_tokenizer("whitespace"))
    groups = [["a b c", ""], ["d"], [], ["a", "b", "c d e f g"]]
    texts, counts = group_texts(groups, 4, "references")
    rows = vocabulary.encode(texts, counts)
    batch = rows.pad()
    assert batch.ids.shape == (4, 3, 6) and batch.ids.dtype == np.int32
    assert batch.lengths.tolist() == [[3, 0, ABSENT], [1, ABSENT, ABSENT], [ABSENT] * 3, [1, 1, 5]]
    assert rows.pad(exact=True).ids.shape == (4, 3, 5)
    flat = [batch.ids[n, r, :k].tolist() for n, row in enumerate(batch.lengths) for r, k in enumerate(row) if k >= 0]
    assert flat == _rows(rows.ids, rows.lengths)


def test_from_sequences():
    """Claim: lists of ids become the documented arrays."""
    batch = TokenBatch.from_sequences([[[7, 8, 9], [7, 9]], [[1]]])
    assert batch.ids.tolist() == [[[7, 8, 9], [7, 9, 0]], [[1, 0, 0], [0, 0, 0]]]
    assert batch.lengths.tolist() == [[3, 2], [1, -1]]
    single = TokenBatch.from_sequences([[5, 6], [], [4]])
    assert single.ids.tolist() == [[5, 6], [0, 0], [4, 0]] and single.lengths.tolist() == [2, 0, 1]
    assert TokenBatch.from_sequences([[], [[1, 2]]]).lengths.tolist() == [[-1], [2]]


def test_token_batch_is_a_pytree():
    """Claim: it passes through jit and vmap like any pytree, ids and lengths being its leaves."""
    batch = TokenBatch(jnp.arange(6).reshape(2, 3), jnp.array([3, 2]))
    doubled = jax.jit(lambda b: jax.tree.map(lambda x: 2 * x, b))(batch)
    assert isinstance(doubled, TokenBatch) and doubled.ids.tolist() == [[0, 2, 4], [6, 8, 10]]
    paths = [jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_leaves_with_path(batch)]
    assert paths == [".ids", ".lengths"]
    assert jax.vmap(lambda b: b.ids.sum() + b.lengths)(batch).tolist() == [6, 14]


def test_buckets_are_few_and_waste_little():
    """Claim: at most a third of a bucket is padding, and there are 2 a octave. Oracle: all n up to 5000."""
    sizes = [bucket(n) for n in range(1, 5001)]
    assert all(n <= size < 1.5 * n + 0.5 for n, size in enumerate(sizes, 1))
    assert len(set(sizes)) <= 2 * np.log2(5000) + 2


def test_wrong_inputs_are_typed_errors():
    """Claim: one string for a list, a string for a list of references, and non-strings are named with their index."""
    with pytest.raises(EvaluationError, match="one string"):
        check_texts("a caption", "preds")
    with pytest.raises(EvaluationError, match=r"NoneType.*index 1"):
        check_texts(["a", None, 3.0], "preds")
    with pytest.raises(EvaluationError, match="got int"):
        check_texts(3, "preds")
    with pytest.raises(ShapeError, match="1 entries for 2"):
        group_texts([["a"]], 2, "labels")
    with pytest.raises(EvaluationError, match="index 1"):
        group_texts([["a"], "bare"], 2, "labels")
    with pytest.raises(EvaluationError, match=r"float.*index \(1, 2\)"):
        group_texts([["a"], ["b", "c", 1.0]], 2, "labels")
    assert group_texts(["bare", ["a", "b"]], 2, "labels", single=True)[1].tolist() == [1, 2]
