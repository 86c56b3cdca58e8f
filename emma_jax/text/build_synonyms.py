"""Builds the synonym table from the database files of WordNet 3.0.

    python -m emma_jax.text.build_synonyms /usr/share/wordnet OUT

``/usr/share/wordnet`` is where Debian's package ``wordnet-base`` puts them. The table's content is a function of those
files alone, so that anyone can rebuild it and compare digests; the license of WordNet, which allows this, is in
``data/LICENSE-WordNet.txt`` beside the table.

What is kept is what METEOR asks of WordNet: from a word, through its base forms, the synsets it belongs to, and from a
synset its words. Names with an underscore are never a word of a tokenized text's reference, so they are dropped as
synonyms (nltk's aligner drops them too) but still lead to the synsets they are members of.

Content, UTF-8 lines:

- ``emma-jax synonym table 1, WordNet 3.0``
- one line a synset: its names without underscore, separated by spaces; synsets without one are left out, equal lines
  stand once
- an empty line, then for each part of speech (noun, verb, adj, adv) three lines: the lemmas, separated by spaces; for
  each lemma its synsets as comma-separated line numbers (0 is the first synset); the exceptional forms, each followed
  by its base forms after commas. Lemmas that lead to no synset are left out.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import zlib
from pathlib import Path

__all__ = ["DEBIAN", "build_table", "main", "nltk_data_folder"]

DEBIAN = Path("/usr/share/wordnet")

HEADER = "emma-jax synonym table 1, WordNet 3.0"
PARTS = ("noun", "verb", "adj", "adv")


def _synset_names(line: str) -> list[str]:
    """The names without underscore in a line of data.*, without their syntactic marker such as "(a)"."""
    fields = line.split()
    names = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
    return [name for name in (name.partition("(")[0] for name in names) if "_" not in name]


def build_table(wordnet: Path) -> bytes:
    """The content of the table for the WordNet database files in a directory."""
    synsets: dict[str, int] = {}  # line of names -> line number
    parts: list[str] = []
    for part in PARTS:
        number_at: dict[str, int] = {}
        for line in (wordnet / f"data.{part}").read_text("ascii").splitlines():
            if not line.startswith(" ") and (names := _synset_names(line)):
                number_at[line[:8]] = synsets.setdefault(" ".join(sorted(set(names))), len(synsets))
        lemmas, numbers = [], []
        for line in (wordnet / f"index.{part}").read_text("ascii").splitlines():
            if line.startswith(" "):
                continue
            fields = line.split()
            offsets = fields[6 + int(fields[3]) :]
            found = sorted({number_at[offset] for offset in offsets if offset in number_at})
            if found:
                lemmas.append(fields[0])
                numbers.append(",".join(map(str, found)))
        # Where a form stands twice, the later line counts, as it does for nltk's reader.
        forms = map(str.split, (wordnet / f"{part}.exc").read_text("ascii").splitlines())
        exceptions = {form[0]: form for form in forms}
        parts += [" ".join(lemmas), " ".join(numbers), " ".join(map(",".join, exceptions.values()))]
    return "\n".join([HEADER, *synsets, "", *parts, ""]).encode("ascii")


# lexnames(5WN), which Debian leaves out and nltk's reader opens: lexicographer files in their order.
_LEXNAMES = (
    *("adj.all", "adj.pert", "adv.all"),
    *(f"noun.{name}" for name in ("Tops", "act", "animal", "artifact", "attribute", "body", "cognition")),
    *(f"noun.{name}" for name in ("communication", "event", "feeling", "food", "group", "location", "motive")),
    *(f"noun.{name}" for name in ("object", "person", "phenomenon", "plant", "possession", "process", "quantity")),
    *(f"noun.{name}" for name in ("relation", "shape", "state", "substance", "time")),
    *(f"verb.{name}" for name in ("body", "change", "cognition", "communication", "competition", "consumption")),
    *(f"verb.{name}" for name in ("contact", "creation", "emotion", "motion", "perception", "possession")),
    *("verb.social", "verb.stative", "verb.weather", "adj.ppl"),
)


def nltk_data_folder(wordnet: Path, folder: Path) -> Path:
    """Makes an nltk data folder of the WordNet files, so that the table can be compared with nltk's own reader.

    Args:
      wordnet: directory of the database files.
      folder: what is to be put on ``nltk.data.path``; made if it is not there.

    Returns:
      The corpus directory in it, ``corpora/wordnet``.
    """
    corpus = folder / "corpora" / "wordnet"
    corpus.mkdir(parents=True)
    for source in wordnet.iterdir():
        if source.is_file():
            shutil.copy(source, corpus)
    number = {part: i for i, part in enumerate(PARTS, 1)}
    lines = (f"{i:02d}\t{name}\t{number[name.partition('.')[0]]}\n" for i, name in enumerate(_LEXNAMES))
    (corpus / "lexnames").write_text("".join(lines))
    (corpus / "index.sense").write_text("")  # only asked for by nltk's multilingual functions
    return corpus


def main(arguments: list[str]) -> int:
    """Writes the compressed table and prints the digest of its content."""
    if len(arguments) != 2:
        print("usage: python -m emma_jax.text.build_synonyms WORDNET_DIRECTORY OUT", file=sys.stderr)
        return 2
    content = build_table(Path(arguments[0]))
    Path(arguments[1]).write_bytes(zlib.compress(content, 9))
    print(hashlib.sha256(content).hexdigest())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
