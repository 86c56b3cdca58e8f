"""Answer normalizers: what counts as the same answer.

Goal: the tokens that exact match and F1 compare.
Conventions: an answer normalizer is a `Tokenizer`; the normalized answer is its tokens joined by single spaces, so two
normalized answers are equal exactly when their token lists are.

``"squad"`` is the SQuAD v1.1 rule in its order: lower case, delete ASCII punctuation, delete the words a, an, the,
collapse whitespace. It is the protocol's, and it destroys numbers: "-3.5 dB" and "35 dB" become the same answer.
Reference: Rajpurkar et al., "SQuAD: 100,000+ Questions for Machine Comprehension of Text", EMNLP 2016.

``"numeric-safe"`` deletes the same punctuation and articles, except what carries a quantity:

- a minus (hyphen, dash or minus sign, all written "-") stays before a number that no letter precedes, and between two
  numbers (a range); a plus sign says nothing and goes; "+/-" is "±".
- a decimal point stays; the comma of a thousands group goes ("2,400" is "2400"); any other mark between two digits
  becomes a space, so that numbers never merge ("12:30" is "12 30").
- "<", ">", "<=" and ">=" stay before a number, as words of their own; "≤" and "≥" are "<=" and ">=".
- "/" and "^" stay inside a word ("m/s" is not "ms"), "%" stays after a number.
- a known unit written onto its number is split off ("3.5GHz" is "3.5 ghz"); "a" after a number is the ampere.
- case is folded, except for a capital M before a unit where milli and mega both occur ("5 MW" is not "5 mW").

There is no arithmetic: "3.5" and "3.50", "1000 MHz" and "1 GHz" stay different answers.
"""

from __future__ import annotations

import re
import string

from emma_jax.errors import EvaluationError
from emma_jax.text.tokenizers import Tokenizer

__all__ = ["NORMALIZERS", "get_normalizer", "normalize_answer"]

_DROP_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


def _split_squad(chunk: str) -> tuple[str, ...]:
    return tuple(_ARTICLE.sub(" ", chunk.translate(_DROP_PUNCTUATION)).split())


_UNIFY = str.maketrans(
    dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-")  # hyphens, dashes, minus
    | {"\u00b5": "\u03bc", "\u2126": "\u03a9"}  # micro sign, ohm sign
    | {"\u2264": "<=", "\u2265": ">="}
)
_MILLI_OR_MEGA = r"(?:[Ww]|[Vv]|[Aa]|[Jj]|[Oo][Hh][Mm][Ss]?|[\u03a9\u03c9]|[Ww]h|VA)"
_MEGA = re.compile(rf"\d\s*M(?={_MILLI_OR_MEGA}\b)")
_PREFIXES = {  # unit -> the prefixes it is written with; "" where it stands alone too
    **{"hz": ("", *"kmgt"), "bps": ("", *"kmg"), "sps": ("", *"kmg")},
    **{"w": ("", *"kmMgnpu\u03bc"), "v": ("", *"kmMu\u03bc"), "a": ("", *"mnu\u03bc"), "j": ("", *"kmM")},
    **{"s": ("", *"mnpu\u03bc"), "m": ("", *"kcmnu\u03bc"), "f": tuple("npu\u03bc")},
    **dict.fromkeys(("ohm", "ohms", "\u03c9"), ("", *"kmM")),
}
_UNITS = [prefix + unit for unit, prefixes in _PREFIXES.items() for prefix in prefixes]
_UNITS += ["db", *(f"db{x}" for x in ("m", "i", "c", "d", "w", "fs", "sm"))]
_UNITS += ["deg", "degrees", "\u00b0", "rad", "baud", "bit", "bits"]
_ATTACHED_UNIT = re.compile(rf"(?<=\d)(?=(?:{'|'.join(sorted(_UNITS, key=len, reverse=True))})(?!\w))")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_RANGE = re.compile(r"(?<=\d)\s+-\s+(?=\.?\d)")
_PERCENT = re.compile(r"(?<=\d)\s*%")
_BOUND = re.compile(r"([<>]=?)(?=\s*[-+]?\.?\d)")
_PUNCTUATION = "[" + re.escape(string.punctuation) + "]"
_MARK = re.compile(
    rf"""
    (?P<keep> (?<![^\W\d_]) (?<!\.) \. (?=\d)  # decimal point
            | (?<![^\W\d_]) - (?=\.?\d)     # sign, range
            | (?<=\de) - (?=\d)             # exponent
            | (?<=[^\W_]) / (?=[^\W_])      # quotient of units
            | (?<=[^\W_]) \^ (?=[-\w])      # power
            | (?<=\d[ ]) %
            | (?<=[ ]) [<>]=? (?=\s+[-+]?\.?\d) )
    | (?P<gap> (?<=\d) {_PUNCTUATION} (?={_PUNCTUATION}*\d) )
    | {_PUNCTUATION}
    """,
    re.VERBOSE,
)


def _fold_case(text: str) -> str:
    """Lower case, but for the M of a mega unit."""
    folded, start = [], 0
    for match in _MEGA.finditer(text):
        folded += [text[start : match.end() - 1].lower(), "M"]
        start = match.end()
    return "".join(folded) + text[start:].lower()


def _prepare_numeric_safe(text: str) -> str:
    text = _fold_case(text.translate(_UNIFY)).replace("+/-", "\u00b1")
    text = _THOUSANDS.sub(lambda group: group[0].replace(",", ""), text)
    text = _PERCENT.sub(" %", _RANGE.sub("-", text))
    text = _BOUND.sub(r" \1 ", text)
    text = _MARK.sub(lambda mark: mark[0] if mark["keep"] else " " if mark["gap"] else "", text)
    words = _ATTACHED_UNIT.sub(" ", text).split()
    kept = (
        word
        for before, word in zip(["", *words], words)
        if word not in ("a", "an", "the") or (word == "a" and before[-1:].isdigit())
    )
    return " ".join(kept)


NORMALIZERS = {
    "squad": Tokenizer("squad", str.lower, _split_squad),
    "numeric-safe": Tokenizer("numeric-safe", _prepare_numeric_safe, lambda chunk: (chunk,)),
}
"""The answer normalizers by name; their rules are in the module's docstring."""


def get_normalizer(name: str) -> Tokenizer:
    """The answer normalizer of that name; raises `EvaluationError` for an unknown one."""
    try:
        return NORMALIZERS[name]
    except KeyError:
        known = ", ".join(map(repr, NORMALIZERS))
        raise EvaluationError(f"no normalizer {name!r}; there are {known}", argument="normalizer") from None


def normalize_answer(text: str, normalizer: str = "squad") -> str:
    """One answer in normalized form, for reading: "-3.5 dB" is "35 db", numeric-safe "-3.5 db"."""
    return " ".join(get_normalizer(normalizer)(text))
