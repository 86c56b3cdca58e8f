"""WordNet 3.0 synonyms from a table inside the package: no corpus, no download, no `nltk.data`.

Goal: what METEOR's aligner asks of WordNet (``synsets(word)``, their ``lemmas()``, and the lemmas' ``name()``), with
the answers that nltk's reader gives on the full database, base forms and exceptional forms included.
Conventions: a word is looked up in lower case under every part of speech. Its base forms are itself, and either its
exceptional forms, where it has any, or what the detachment rules below make of it; those that are lemmas of that part
of speech count. Its synonyms are the names, without underscore, in all synsets of those base forms.

The table is built by `emma_jax.text.build_synonyms`, which describes its format; the license is in ``data/``.
"""

from __future__ import annotations

import functools
import hashlib
import zlib
from importlib import resources
from typing import NamedTuple

from emma_jax.errors import FileFormatError
from emma_jax.text.build_synonyms import HEADER, PARTS

__all__ = ["SYNONYM_TABLE_DIGEST", "Lemma", "SynonymReader", "SynonymTable", "Synset", "load_synonyms"]

SYNONYM_TABLE_DIGEST = "30a8a0e2b19875b2bdf37deedb51ab5a0fbcd97644955bcdaede385737e72e94"
"""SHA-256 of the table's content (before compression); checked whenever the table is loaded."""

_TABLE_FILE = "wordnet30-synonyms.txt.zlib"

# Rules of detachment (ending, replacement) per part of speech: those of WordNet's morphy(7WN), and nltk's "ves".
_DETACHMENT = {
    "noun": (
        ("s", ""),
        ("ses", "s"),
        ("ves", "f"),
        ("xes", "x"),
        ("zes", "z"),
        ("ches", "ch"),
        ("shes", "sh"),
        ("men", "man"),
        ("ies", "y"),
    ),
    "verb": (("s", ""), ("ies", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", "")),
    "adj": (("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
    "adv": (),
}


class _Part(NamedTuple):
    """One part of speech: lemma -> synset numbers (comma-separated), exceptional form -> base forms."""

    synsets: dict[str, str]
    exceptions: dict[str, list[str]]


class SynonymTable:
    """The synonym table.

    Args:
      content: the table as `emma_jax.text.build_synonyms.build_table` returns it.
    """

    def __init__(self, content: bytes) -> None:
        lines = content.decode("ascii").split("\n")
        if lines[0] != HEADER:
            raise FileFormatError(f"is no synonym table: it begins with {lines[0][:40]!r}", argument=_TABLE_FILE)
        end = lines.index("")
        self._names = lines[1:end]
        self._parts: dict[str, _Part] = {}
        for i, part in enumerate(PARTS):
            lemmas, numbers, exceptions = lines[end + 1 + 3 * i : end + 4 + 3 * i]
            forms = (item.split(",") for item in exceptions.split(" "))
            self._parts[part] = _Part(
                dict(zip(lemmas.split(" "), numbers.split(" "))), {form: bases for form, *bases in forms}
            )

    def synonyms(self, word: str) -> frozenset[str]:
        """All names, without underscore, in the synsets of a word's base forms; empty for a word WordNet lacks."""
        word = word.lower()
        numbers: set[str] = set()
        for part, (synsets, exceptions) in self._parts.items():
            for form in (word, *(exceptions[word] if word in exceptions else _detach(word, part))):
                if form in synsets:
                    numbers.update(synsets[form].split(","))
        return frozenset(name for number in numbers for name in self._names[int(number)].split(" "))


def _detach(word: str, part: str) -> list[str]:
    """Candidate base forms by the rules of detachment; most are no words."""
    return [word[: -len(end)] + new for end, new in _DETACHMENT[part] if word.endswith(end)]


class Lemma(NamedTuple):
    """A name in a synset."""

    text: str

    def name(self) -> str:
        """The name as WordNet writes it, case kept."""
        return self.text


class Synset(NamedTuple):
    """Names that mean the same."""

    members: tuple[Lemma, ...]

    def lemmas(self) -> tuple[Lemma, ...]:
        """The synset's names."""
        return self.members


class SynonymReader:
    """The methods of nltk's WordNet reader that its METEOR calls, over a `SynonymTable`; answers are remembered.

    Args:
      table: where the synonyms come from.
      among: keep only these names. METEOR looks for synonyms among the words of the references, so leaving out all
        others changes no score and shortens nltk's loops (measured: the synonym stage takes an eighth of the time).
    """

    def __init__(self, table: SynonymTable, among: frozenset[str] | None = None) -> None:
        self._table = table
        self._among = among
        self._answers: dict[str, tuple[Synset, ...]] = {}

    def synsets(self, word: str) -> tuple[Synset, ...]:
        """All synonyms of a word as one synset (METEOR only takes their union); none for a word without."""
        answer = self._answers.get(word)
        if answer is None:
            names = self._table.synonyms(word)
            if self._among is not None:
                names = names & self._among
            answer = self._answers[word] = (Synset(tuple(map(Lemma, sorted(names)))),) if names else ()
        return answer


@functools.cache
def load_synonyms() -> SynonymTable:
    """The table shipped with the package, read once and checked against `SYNONYM_TABLE_DIGEST`.

    Raises:
      FileFormatError: the file is not the one this version was released with.
    """
    packed = resources.files("emma_jax.text").joinpath("data", _TABLE_FILE).read_bytes()
    try:
        content = zlib.decompress(packed)
    except zlib.error as e:
        raise FileFormatError(f"cannot be decompressed ({e})", argument=_TABLE_FILE) from None
    digest = hashlib.sha256(content).hexdigest()
    if digest != SYNONYM_TABLE_DIGEST:
        raise FileFormatError(
            f"has digest {digest}, not {SYNONYM_TABLE_DIGEST}: it is not the table of this release",
            argument=_TABLE_FILE,
        )
    return SynonymTable(content)
