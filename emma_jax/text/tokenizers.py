"""Tokenizers: text to words, by published rules, without a corpus or a download.

Goal: the words that BLEU, METEOR and CIDEr-D count.
Conventions: every tokenizer here is *local*: after `prepare` has run over the whole text, each whitespace-delimited
chunk is tokenized on its own. A corpus repeats its chunks thousands of times, so callers tokenize each distinct
chunk once (see `emma_jax.text.ids`), which is what makes the host side of the text metrics cheap.

Names: ``"13a"`` (the rules of NIST's mteval-v13a, lower case) and ``"whitespace"`` (nothing but the split).
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from emma_jax.errors import EvaluationError

__all__ = ["TOKENIZERS", "Tokenizer", "get_tokenizer", "tokenize"]


@dataclass(frozen=True)
class Tokenizer:
    """Text to tokens in two steps: ``prepare`` the whole text, then ``split`` each whitespace-delimited chunk of it.

    Attributes:
      name: the name that is recorded in a result.
      prepare: whole text -> whole text; whatever has to see beyond one chunk (case folding, line ends).
      split: chunk (without whitespace) -> its tokens, possibly none.
    """

    name: str
    prepare: Callable[[str], str]
    split: Callable[[str], tuple[str, ...]]

    def __call__(self, text: str) -> list[str]:
        """The tokens of one text."""
        return [token for chunk in self.prepare(text).split() for token in self.split(chunk)]


_ENTITIES = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))
# Every ASCII punctuation mark stands alone, except ' , - . which have rules of their own (and ' has none).
_SYMBOL = re.compile("([" + re.escape("".join(c for c in string.punctuation if c not in "',-.")) + "])")
# The pairs are consumed as the published substitutions consume them: in ".." the second dot is no left neighbour.
_MARK_AFTER_NON_DIGIT = re.compile(r"([^0-9])([.,])")
_MARK_BEFORE_NON_DIGIT = re.compile(r"([.,])([^0-9])")
_DASH_AFTER_DIGIT = re.compile(r"([0-9])(-)")
_HYPHENATED = re.compile(r"-(?:<skipped>)*\n")  # a hyphen at a line end joins the two halves
_PLAIN = re.compile(r"[^!-&(-/:-@\[-`{-~]*")  # nothing that a rule could touch; an apostrophe is harmless


def _prepare_13a(text: str) -> str:
    text = text.lower()
    if "\n" in text:
        text = _HYPHENATED.sub("", text.rstrip())  # a line end after the last word is no line end
    return text


def _split_13a(chunk: str) -> tuple[str, ...]:
    if _PLAIN.fullmatch(chunk):
        return (chunk,)
    chunk = chunk.replace("<skipped>", "")
    for entity, mark in _ENTITIES:
        chunk = chunk.replace(entity, mark)
    chunk = _SYMBOL.sub(r" \1 ", f" {chunk} ")
    chunk = _MARK_AFTER_NON_DIGIT.sub(r"\1 \2 ", chunk)
    chunk = _MARK_BEFORE_NON_DIGIT.sub(r" \1 \2", chunk)
    chunk = _DASH_AFTER_DIGIT.sub(r"\1 \2 ", chunk)
    return tuple(chunk.split())


TOKENIZERS = {
    "13a": Tokenizer("13a", _prepare_13a, _split_13a),
    "whitespace": Tokenizer("whitespace", str, lambda chunk: (chunk,)),
}
"""The caption tokenizers by name.

``"13a"``: lower case; ``<skipped>`` dropped; a hyphen before a line end joined; the entities ``&quot; &amp; &lt; &gt;``
decoded; ASCII symbols split off; period and comma split off unless between digits; a dash split off after a digit.
The case is folded first, as ``sacrebleu -lc`` does (NIST's script decodes entities first: ``&QUOT;`` differs).
Reference: NIST, mteval-v13a.pl, 2009, the subroutine NormalizeText.

``"whitespace"``: runs of Unicode whitespace separate tokens; case and punctuation stay.
"""


def get_tokenizer(name: str) -> Tokenizer:
    """The tokenizer of that name; raises `EvaluationError` for an unknown one."""
    try:
        return TOKENIZERS[name]
    except KeyError:
        known = ", ".join(map(repr, TOKENIZERS))
        raise EvaluationError(f"no tokenizer {name!r}; there are {known}", argument="tokenizer") from None


def tokenize(texts: Iterable[str], tokenizer: Tokenizer) -> list[list[str]]:
    """Tokens of many texts, each distinct chunk split once."""
    prepare, split = tokenizer.prepare, tokenizer.split
    known: dict[str, tuple[str, ...]] = {}
    rows = []
    for text in texts:
        row: list[str] = []
        for chunk in prepare(text).split():
            tokens = known.get(chunk)
            if tokens is None:
                tokens = known[chunk] = split(chunk)
            row += tokens
        rows.append(row)
    return rows
