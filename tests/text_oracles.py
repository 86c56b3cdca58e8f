"""BLEU, CIDEr-D, exact match and F1 from their definitions, on lists of tokens, in Python floats and integers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

Tokens = Sequence[object]


def ngrams(tokens: Tokens, n: int) -> Counter:
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))


def bleu(candidates: Sequence[Tokens], references: Sequence[Sequence[Tokens]]) -> float:
    """Corpus BLEU-4: uniform weights, no smoothing, closest reference length, the shorter on a tie."""
    matches, totals, length, ref_length = [0] * 4, [0] * 4, 0, 0
    for candidate, group in zip(candidates, references):
        group = [r for r in group if r] or [[]]
        length += len(candidate)
        ref_length += min((abs(len(r) - len(candidate)), len(r)) for r in group)[1]
        for n in range(1, 5):
            counts = ngrams(candidate, n)
            best: Counter = Counter()
            for r in group:
                best |= ngrams(r, n)
            matches[n - 1] += sum((counts & best).values())
            totals[n - 1] += sum(counts.values())
    if not all(matches):
        return 0.0
    penalty = min(1.0, math.exp(1 - ref_length / length))
    return penalty * math.exp(sum(math.log(m / t) for m, t in zip(matches, totals)) / 4)


def document_frequencies(references: Sequence[Sequence[Tokens]], n: int) -> Counter:
    return Counter(gram for group in references for gram in set().union(*(ngrams(r, n) for r in group)))


def cider_d(
    candidates: Sequence[Tokens],
    references: Sequence[Sequence[Tokens]],
    documents: Sequence[Sequence[Tokens]] | None = None,
) -> list[float]:
    """CIDEr-D of every candidate, idf from ``documents`` (the references themselves if left out)."""
    documents = references if documents is None else documents
    frequency = [document_frequencies(documents, n) for n in range(1, 5)]
    out = []
    for candidate, group in zip(candidates, references):
        total = 0.0
        for r in group:
            for n in range(1, 5):
                idf = {
                    k: math.log(len(documents)) - math.log(max(1, frequency[n - 1][k]))
                    for k in ngrams(candidate, n) | ngrams(r, n)
                }
                a = {k: c * idf[k] for k, c in ngrams(candidate, n).items()}
                b = {k: c * idf[k] for k, c in ngrams(r, n).items()}
                norms = math.sqrt(sum(v * v for v in a.values())) * math.sqrt(sum(v * v for v in b.values()))
                if norms:
                    overlap = sum(min(a[k], b[k]) * b[k] for k in a.keys() & b.keys())
                    total += overlap / norms * math.exp(-((len(candidate) - len(r)) ** 2) / 72)
        out.append(10 / 4 * total / len(group))
    return out


def exact_match(answer: Tokens, golds: Sequence[Tokens]) -> int:
    return int(any(list(answer) == list(g) for g in golds) if golds else not answer)


def f1(answer: Tokens, golds: Sequence[Tokens]) -> Fraction:
    def one(gold: Tokens) -> Fraction:
        if not answer or not gold:
            return Fraction(int(list(answer) == list(gold)))
        common = sum((Counter(answer) & Counter(gold)).values())
        return Fraction(2 * common, len(answer) + len(gold))

    return max(map(one, golds)) if golds else Fraction(int(not answer))
