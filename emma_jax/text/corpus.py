"""A corpus of candidates and references on the host, and the blocks in which it reaches a kernel.

Goal: few kernel shapes and little padding, whatever the lengths. Samples are sorted by their longest text into widths
16, 32, 64, ..., and each width comes in blocks of two sizes; so one caption of ten thousand words costs what it costs,
and not that for every sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np

from emma_jax.errors import EvaluationError, ShapeError
from emma_jax.text.ids import ABSENT, TokenBatch, TokenRows, Vocabulary, bucket, check_texts, group_texts, scatter
from emma_jax.text.tokenizers import Tokenizer

__all__ = ["Block", "Corpus", "check_ids", "num_samples", "read_corpus", "rows_of"]

_WIDTHS = 16 << np.arange(26)


def _block_sizes(width: int) -> tuple[int, int]:
    """A small and a large number of samples a kernel call: 128 and 1,024, fewer where texts are long."""
    small = max(1, 128 * 64**2 // max(width, 64) ** 2)
    return small, 8 * small


@dataclass(frozen=True, eq=False)
class Block:
    """Samples of similar length, padded to a shape that other blocks have too.

    Attributes:
      numbers: which samples, int64 ``[n]``.
      candidates: ``[B, L]``, the first n of them real.
      references: ``[B, R, L]``.
    """

    numbers: np.ndarray
    candidates: TokenBatch
    references: TokenBatch
    _rows: TokenRows
    _refs: TokenRows
    _tokens: np.ndarray
    _ref_tokens: np.ndarray

    def lay_out(self, values: np.ndarray, ref_values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values of all tokens, ``[k, T]`` for candidates and for references, as ``[k, B, L]`` and ``[k, B, R, L]``."""
        size, most, width = self.references.ids.shape
        laid = scatter(values[:, self._tokens], self._rows.lengths, width)
        ref_lengths = np.maximum(self._refs.grid(most), 0).reshape(-1)
        ref_laid = scatter(ref_values[:, self._ref_tokens], ref_lengths, width).reshape(len(values), -1, most, width)
        spare = size - len(self.numbers)
        return _extend(laid, spare, 0, axis=1), _extend(ref_laid, spare, 0, axis=1)


@dataclass(frozen=True, eq=False)
class Corpus:
    """Candidates and references as ragged ids.

    Attributes:
      candidates: one row a sample.
      references: as many rows a sample as its ``counts`` say.
      weights: int64 ``[N]``, how often each sample counts; 0 where it is masked.
      vocabulary: what made the ids from strings, or None.
      memo: for results that several metrics share.
    """

    candidates: TokenRows
    references: TokenRows
    weights: np.ndarray
    vocabulary: Vocabulary | None
    memo: dict[str, Any] = field(default_factory=dict)

    @property
    def counts(self) -> np.ndarray:
        """References of each sample, int64 ``[N]``."""
        assert self.references.counts is not None
        return self.references.counts

    @cached_property
    def words(self) -> tuple[list[list[str]], list[list[list[str]]]]:
        """Candidates, and groups of references, as lists of tokens; only where there is a vocabulary."""
        assert self.vocabulary is not None
        names = self.vocabulary.tokens
        candidates, references = (
            _split([names[i] for i in rows.ids.tolist()], rows.lengths) for rows in (self.candidates, self.references)
        )
        return candidates, _split(references, self.counts)

    def blocks(self) -> Iterator[Block]:
        """All samples, in blocks of one width each."""
        longest = self.candidates.lengths.copy()
        np.maximum.at(longest, np.repeat(np.arange(len(self.counts)), self.counts), self.references.lengths)
        group = np.searchsorted(_WIDTHS, longest)
        most = bucket(max(int(self.counts.max(initial=1)), 1))
        for g in np.unique(group):
            members = np.flatnonzero(group == g)
            small, large = _block_sizes(int(_WIDTHS[g]))
            size = small if len(members) <= small else large
            for start in range(0, len(members), size):
                yield self._block(members[start : start + size], size, int(_WIDTHS[g]), most)

    def _block(self, numbers: np.ndarray, size: int, width: int, most: int) -> Block:
        chosen = np.zeros(len(self.counts), bool)
        chosen[numbers] = True
        (rows, tokens), (refs, ref_tokens) = self.candidates.select(chosen), self.references.select(chosen)
        a, b = rows.pad(width=width), refs.pad(width=width, most=most)
        spare = size - len(numbers)
        a = TokenBatch(_extend(a.ids, spare, 0), _extend(a.lengths, spare, 0))
        b = TokenBatch(_extend(b.ids, spare, 0), _extend(b.lengths, spare, ABSENT))
        return Block(numbers, a, b, rows, refs, tokens, ref_tokens)


def _extend(x: np.ndarray, by: int, value: int, axis: int = 0) -> np.ndarray:
    return np.pad(x, [(0, by if i == axis else 0) for i in range(x.ndim)], constant_values=value) if by else x


def _split(items: list[Any], lengths: np.ndarray) -> list[list[Any]]:
    ends = np.cumsum(lengths).tolist()
    return [items[start:end] for start, end in zip([0, *ends], ends)]


def rows_of(batch: TokenBatch) -> TokenRows:
    """A concrete `TokenBatch` as ragged rows on the host; references that are not there are left out."""
    ids, lengths = np.asarray(batch.ids), np.asarray(batch.lengths)
    lengths = np.clip(lengths.astype(np.int64), ABSENT, ids.shape[-1])
    flat = ids[np.arange(ids.shape[-1]) < lengths[..., None]].astype(np.int32)
    if lengths.ndim == 1:
        return TokenRows(flat, np.maximum(lengths, 0))
    return TokenRows(flat, lengths[lengths >= 0], (lengths >= 0).sum(axis=1))


def check_ids(preds: Any, labels: Any, task: str) -> tuple[int, ...]:
    """The sample axes of two `TokenBatch`, by shape and dtype alone.

    Raises:
      ShapeError: other than ids ``[N, L]``, lengths ``[N]`` against ids ``[N, R, M]``, lengths ``[N, R]``.
      EvaluationError: ids or lengths that are no integers.
    """
    for x, argument, ndim in ((preds, "preds", 2), (labels, "labels", 3)):
        for part, name in ((x.ids, "ids"), (x.lengths, "lengths")):
            if not jnp.issubdtype(part.dtype, jnp.integer):
                raise EvaluationError(f"{name} must be integers; got dtype {part.dtype}", task=task, argument=argument)
        if x.ids.ndim != ndim or x.lengths.shape != x.ids.shape[:-1] or 0 in x.ids.shape[1:]:
            want = "ids [N, L], lengths [N]" if ndim == 2 else "ids [N, R, L], lengths [N, R]"
            raise ShapeError(
                f"needs {want}, with L and R at least 1; got {x.ids.shape} and {x.lengths.shape}",
                task=task,
                argument=argument,
            )
    if preds.ids.shape[0] != labels.ids.shape[0]:
        raise ShapeError(f"has {labels.ids.shape[0]} samples for {preds.ids.shape[0]}", task=task, argument="labels")
    return (preds.ids.shape[0],)


def num_samples(preds: Any, labels: Any, task: str) -> int:
    """How many samples two text inputs have.

    Raises:
      ShapeError: the two sides differ in number.
      EvaluationError: a side that is neither a list nor a `TokenBatch`, or one of each.
    """
    if isinstance(preds, TokenBatch) != isinstance(labels, TokenBatch):
        raise EvaluationError("needs strings on both sides, or a TokenBatch on both", task=task, argument="labels")
    if isinstance(preds, TokenBatch):
        return int(check_ids(preds, labels, task)[0])
    for x, argument in ((preds, "preds"), (labels, "labels")):
        if isinstance(x, (str, bytes)) or not hasattr(x, "__len__"):
            what = "one string" if isinstance(x, (str, bytes)) else type(x).__name__
            raise EvaluationError(f"is {what}; needs a list, or a TokenBatch", task=task, argument=argument)
    if len(preds) != len(labels):
        raise ShapeError(f"has {len(labels)} entries for {len(preds)} samples", task=task, argument="labels")
    return len(preds)


def read_corpus(
    preds: Any,
    labels: Any,
    tokenizer: Tokenizer,
    weights: np.ndarray,
    *,
    tokens: Sequence[str] = (),
    single: bool = False,
    task: str = "",
) -> Corpus:
    """Concrete inputs as a `Corpus`.

    Args:
      preds: strings, or a `TokenBatch`.
      labels: a list of strings each, or a `TokenBatch`.
      tokenizer: what splits strings.
      weights: int64 ``[N]``; a sample with weight 0 is not there, and may hold anything.
      tokens: tokens that get the ids 0, 1, 2, ...
      single: whether a bare string may stand for a list of one reference.
      task: name in errors.
    """
    if isinstance(preds, TokenBatch):
        return Corpus(rows_of(preds), rows_of(labels), weights, None)
    vocabulary = Vocabulary(tokenizer, tokens)
    texts = check_texts(_blank(preds, weights, ""), "preds", task)
    flat, counts = group_texts(_blank(labels, weights, ()), len(texts), "labels", task, single=single)
    return Corpus(vocabulary.encode(texts), vocabulary.encode(flat, counts), weights, vocabulary)


def _blank(items: Any, weights: np.ndarray, nothing: Any) -> Any:
    return items if weights.all() else [item if weight else nothing for item, weight in zip(items, weights)]
