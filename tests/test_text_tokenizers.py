"""Tokenizers and answer normalizers against their published rules and the libraries that implement them."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_corpus import punctuation_lines, rf_corpus

from emma_jax.errors import EvaluationError
from emma_jax.text.squad import get_normalizer, normalize_answer
from emma_jax.text.tokenizers import get_tokenizer, tokenize


def _lines() -> list[str]:
    captions, references = rf_corpus(2000)
    return captions + [line for group in references for line in group] + punctuation_lines(8000)


def test_13a_equals_sacrebleu_on_a_corpus():
    """Claim: the tokens are sacrebleu's for lower-cased lines. Oracle: sacrebleu's 13a, run live. Tolerance: none."""
    oracle = pytest.importorskip("sacrebleu.tokenizers.tokenizer_13a").Tokenizer13a()
    ours = get_tokenizer("13a")
    lines = _lines()
    assert len(lines) > 15000
    for line in lines:
        assert ours(line) == oracle(line.lower()).split(), repr(line)


def test_13a_equals_sacrebleu_over_line_ends():
    """Claim: so are those of lines with line ends. Oracle: sacrebleu's BLEU(lowercase=True). Tolerance: none."""
    bleu = pytest.importorskip("sacrebleu.metrics").BLEU(lowercase=True)
    ours = get_tokenizer("13a")
    for line in punctuation_lines(4000, seed=1, line_ends=True):
        assert ours(line) == bleu._preprocess_segment(line).split(), repr(line)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.one_of(st.sampled_from(string.printable), st.characters()), max_size=30))
def test_13a_equals_sacrebleu_on_any_text(text):
    """Claim: the tokens are sacrebleu's for any Unicode string. Oracle: sacrebleu run live. Tolerance: none."""
    bleu = pytest.importorskip("sacrebleu.metrics").BLEU(lowercase=True)
    assert get_tokenizer("13a")(text) == bleu._preprocess_segment(text).split()


def test_13a_examples():
    """Claim: marks, decimals, dashes, entities and line ends as mteval-v13a says. Oracle: its rules, by hand."""
    cases = {
        "A wideband OFDM-like burst, at 2.4 GHz.": "a wideband ofdm-like burst , at 2.4 ghz .",
        "5,180 MHz (-3.5 dB)": "5,180 mhz ( -3.5 db )",
        "2-3 dB, x-5": "2 - 3 db , x-5",
        "&quot;a&amp;b&quot; it's": '" a & b " it\'s',
        "wide-\nband\nburst\n": "wideband burst",
        "<skipped>..5": ". .5",
        "": "",
    }
    for text, tokens in cases.items():
        assert " ".join(get_tokenizer("13a")(text)) == tokens


def test_whitespace_keeps_case_and_marks():
    """Claim: only whitespace matters. Oracle: str.split."""
    for line in punctuation_lines(500, seed=2, line_ends=True):
        assert get_tokenizer("whitespace")(line) == line.split()


@pytest.mark.parametrize("name", ["13a", "whitespace"])
def test_tokenize_many_equals_one_by_one(name):
    """Claim: remembering chunks changes nothing. Oracle: the tokenizer, text by text."""
    tokenizer = get_tokenizer(name)
    lines = punctuation_lines(1500, seed=3, line_ends=True)
    assert tokenize(lines, tokenizer) == [tokenizer(line) for line in lines]


def _squad_by_definition(text: str) -> str:
    text = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def test_squad_normalizer_is_the_definition():
    """Claim: lower, punctuation, articles, whitespace, in this order. Oracle: those four steps. Tolerance: none."""
    lines = [*_lines(), "The-the", "a—b", "An an AN", "“The” end", "a.an.the", "THE\nEND", "a\u00a0the"]
    for line in lines:
        assert normalize_answer(line) == _squad_by_definition(line), repr(line)


def test_squad_normalizer_equals_torchmetrics():
    """Claim: and it is torchmetrics'. Oracle: torchmetrics' SQuAD normalization, run live. Tolerance: none."""
    oracle = pytest.importorskip("torchmetrics.functional.text.squad")
    for line in _lines():
        assert normalize_answer(line) == oracle._normalize_text(line), repr(line)


NUMERIC_SAFE = {
    "-3.5 dB": "-3.5 db",
    "\u22123.5dB": "-3.5 db",
    "+3 dBm": "3 dbm",
    "+/-3 dB": "\u00b13 db",
    "5-6 dB": "5-6 db",
    "5\u20136 dB": "5-6 db",
    "5 - 6 dB": "5-6 db",
    "5 -6": "5 -6",
    "5--6": "5 -6",
    "range -5..5": "range -5 5",
    "2,400 MHz": "2400 mhz",
    "1,000.5 W": "1000.5 w",
    "3,5": "3 5",
    "1,2,3": "1 2 3",
    "12:30": "12 30",
    "(3)(4)": "3 4",
    "3,-4": "3 -4",
    "<10 dB": "< 10 db",
    "\u2265 -10 dB": ">= -10 db",
    "x > y": "x y",
    "3.5-GHz": "3.5 ghz",
    "5 MW": "5 Mw",
    "5MW": "5 Mw",
    "5 mW": "5 mw",
    "5 MHz": "5 mhz",
    "an A, a 5 A fuse": "5 a fuse",
    "5%": "5 %",
    "5 % off": "5 % off",
    "3m/s": "3 m/s",
    "-90 dBm/Hz": "-90 dbm/hz",
    "10^-9": "10^-9",
    "2.4e+9 Hz": "2.4e9 hz",
    "1e-9": "1e-9",
    ".5 and 5.": ".5 and 5",
    "16-QAM": "16qam",
    "QAM-16": "qam16",
    "non-line-of-sight": "nonlineofsight",
    "The answer is 28 GHz.": "answer is 28 ghz",
    "50 \u2126": "50 \u03c9",
    "100\u00b5s": "100 \u03bcs",
    "v1.2.3": "v1.2.3",
    "": "",
}


@pytest.mark.parametrize("text", NUMERIC_SAFE)
def test_numeric_safe_examples(text):
    """Claim: signs, decimals, ranges, bounds and units survive. Oracle: the documented rules, by hand."""
    assert normalize_answer(text, "numeric-safe") == NUMERIC_SAFE[text]


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=30))
def test_numeric_safe_is_squad_where_there_is_no_quantity(text):
    """Claim: without digits and marks the two normalizers agree. Oracle: the SQuAD normalizer."""
    words = "".join(c for c in text if c.isalpha() or c == " ")
    unified = words.translate({0xB5: "\u03bc", 0x2126: "\u03a9"})
    assert normalize_answer(unified, "numeric-safe") == normalize_answer(unified, "squad")


@settings(max_examples=200, deadline=None)
@given(
    st.decimals(min_value=-1000, max_value=1000, places=2),
    st.decimals(min_value=-1000, max_value=1000, places=2),
    st.sampled_from(["dB", "dBm", "MHz", "deg"]),
)
def test_numeric_safe_never_merges_two_values(a, b, unit):
    """Claim: answers with different values stay different. Oracle: equality of the decimals."""
    same = normalize_answer(f"{a} {unit}", "numeric-safe") == normalize_answer(f"{b} {unit}", "numeric-safe")
    assert same == (str(a) == str(b))


def test_unknown_names_are_typed_errors():
    """Claim: an unknown name is an error that lists the known ones."""
    with pytest.raises(EvaluationError, match="'13a', 'whitespace'"):
        get_tokenizer("moses")
    with pytest.raises(EvaluationError, match="'squad', 'numeric-safe'"):
        get_normalizer("bert")
