"""METEOR sentence scores by nltk's aligner, offline.

Goal: nltk's ``meteor_score``, to the last bit, without its corpus and several times as fast.
Conventions: tokenized input, folded to lower case as nltk does; parameters pinned below. The aligner, the Porter
stemmer and the formula are nltk's own; what it asks of them again and again (stems, synonyms) is remembered, and
WordNet is the table of `emma_jax.text.synonyms`. `nltk.data` is never touched.

With m matches in c chunks between a candidate of h words and a reference of r words, P = m/h, R = m/r::

    score = (1 - gamma (c/m)**beta) P R / (alpha P + (1 - alpha) R),    0 where m = 0

Words match exactly, then by stem, then by synonym, each stage among what the earlier ones left. nltk looks synonyms up
for stems, not for words ("frequenc" has none), and a score carries that habit.

Reference: Banerjee and Lavie, "METEOR: An Automatic Metric for MT Evaluation with Improved Correlation with Human
Judgments", ACL workshop 2005; Lavie and Agarwal, WMT 2007 (parameters).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import chain
from types import SimpleNamespace
from typing import Any

import numpy as np

from emma_jax.errors import EmptyEvaluationError, EvaluationError, ShapeError
from emma_jax.text.synonyms import SynonymReader, load_synonyms

__all__ = ["ALPHA", "BETA", "GAMMA", "STAGES", "check_stages", "meteor_scores"]

ALPHA, BETA, GAMMA = 0.9, 3.0, 0.5
STAGES = ("exact", "stem", "synonym")
"""All stages, in the order in which they are tried; "exact" is always on."""

_NO_SYNONYMS = SimpleNamespace(synsets=lambda word: ())


class _Stemmer:
    """Stems that are computed once a word; without the stem stage a word is its own stem."""

    def __init__(self, stages: tuple[str, ...]) -> None:
        from nltk.stem.porter import PorterStemmer

        porter = functools.lru_cache(maxsize=1 << 20)(PorterStemmer().stem)
        self.stem: Callable[[str], str] = porter if "stem" in stages else str


@functools.cache
def _stemmer(stages: tuple[str, ...]) -> _Stemmer:
    return _Stemmer(stages)


def check_stages(stages: Sequence[str]) -> tuple[str, ...]:
    """The stages in their order; raises `EvaluationError` unless they are "exact" and any of "stem" and "synonym"."""
    chosen = tuple(stage for stage in STAGES if stage in stages)
    if isinstance(stages, str) or sorted(chosen) != sorted(stages) or "exact" not in chosen:
        raise EvaluationError(
            f"are 'exact' and any of 'stem', 'synonym'; got {stages!r}", task="Meteor", argument="stages"
        )
    return chosen


def meteor_scores(
    candidates: Sequence[Sequence[str]],
    references: Sequence[Sequence[Sequence[str]]],
    *,
    stages: Sequence[str] = STAGES,
    processes: int | None = None,
) -> np.ndarray:
    """METEOR of each candidate: the best over its references.

    Args:
      candidates: N tokenized captions.
      references: N non-empty lists of tokenized references.
      stages: which matches count: "exact", and any of "stem" and "synonym".
      processes: how many processes to spread over; None or 1 stays in this one. They are spawned, so a script that asks
        for them needs the usual ``if __name__ == "__main__"`` guard, and start-up costs about a second.

    Returns:
      ``[N]`` float64 in [0, 1], higher is better.

    Raises:
      ShapeError: candidates and references differ in number.
      EmptyEvaluationError: a candidate without a reference.
    """
    if len(candidates) != len(references):
        raise ShapeError(
            f"has {len(references)} entries for {len(candidates)} samples", task="Meteor", argument="references"
        )
    empty = [i for i, group in enumerate(references) if not len(group)]
    if empty:
        raise EmptyEvaluationError(
            "a caption needs a reference", task="Meteor", argument="references", count=len(empty), index=empty[0]
        )
    stages = check_stages(stages)
    if processes is None or processes <= 1 or len(candidates) < 2:
        return _score_block(candidates, references, stages)
    size = -(-len(candidates) // (4 * processes))
    blocks = [(candidates[i : i + size], references[i : i + size], stages) for i in range(0, len(candidates), size)]
    return np.concatenate(_spread(blocks, processes))


def _score_block(
    candidates: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]], stages: tuple[str, ...]
) -> np.ndarray:
    """nltk's ``meteor_score`` with our parameters, cached stems, and cached synonyms among the references' words."""
    from nltk.translate.meteor_score import meteor_score

    stemmer = _stemmer(stages)
    wordnet: Any = _NO_SYNONYMS
    if "synonym" in stages:
        words = set(chain.from_iterable(chain.from_iterable(references)))
        wordnet = SynonymReader(load_synonyms(), frozenset(stemmer.stem(word.lower()) for word in words))
    score = functools.partial(
        meteor_score, preprocess=str.lower, stemmer=stemmer, wordnet=wordnet, alpha=ALPHA, beta=BETA, gamma=GAMMA
    )
    return np.fromiter(map(score, references, candidates), np.float64, len(candidates))


def _spread(blocks: list[tuple[Any, ...]], processes: int) -> list[np.ndarray]:
    """Blocks scored by spawned processes (a fork of a process that runs JAX's threads can deadlock)."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return list(pool.map(_score_block, *zip(*blocks)))
