"""Strings to integer ids: the thin host layer in front of the text kernels.

Goal: hand a kernel arrays. A corpus becomes flat int32 ids with row lengths (`TokenRows`, ragged, on the host), and
those become a `TokenBatch`, padded and fit for any JAX transform.
Conventions: ids are equal exactly when tokens are; which id a token has means nothing. Row lengths say what is there:
ids beyond a row's length may hold anything, a length of 0 is an empty text, and a length of -1 is no text at all (a
reference or gold answer that this sample does not have).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import jax
import numpy as np

from emma_jax.errors import EvaluationError, ShapeError
from emma_jax.text.tokenizers import Tokenizer

__all__ = ["ABSENT", "TokenBatch", "TokenRows", "Vocabulary", "bucket", "check_texts", "group_texts"]

ABSENT = -1
"""Length of a reference that a sample does not have."""

_SEPARATOR = " \0 "


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class TokenBatch:
    """Tokenized texts on any device: a pytree of two int32 arrays.

    Attributes:
      ids: ``[N, L]`` (one text a sample) or ``[N, R, L]`` (R references a sample), int32; equal ids are equal tokens.
      lengths: ``[N]`` or ``[N, R]``, int32: tokens in each text. 0 is an empty text; -1 (`ABSENT`) in ``[N, R]``: this
        sample has no such reference. Lengths outside ``-1..L`` are clipped to it by the kernels.

    Example:
      ``TokenBatch.from_sequences([[[7, 8, 9], [7, 9]], [[1]]])`` holds two references for the first sample and one for
      the second: ids ``[2, 2, 3]``, lengths ``[[3, 2], [1, -1]]``.
    """

    ids: Any
    lengths: Any

    @classmethod
    def from_sequences(cls, sequences: Sequence[Any]) -> TokenBatch:
        """Lists of ids (``[N][L]``), or lists of lists of ids (``[N][R][L]``), zero padded to a NumPy `TokenBatch`.

        An empty list of a text is an empty text; a sample with an empty list of references is only recognised as such
        when another sample has a reference.
        """
        items = list(sequences)
        nested = any(len(item) and not np.isscalar(item[0]) and np.ndim(item[0]) == 1 for item in items)
        counts = np.array([len(item) for item in items], np.int64) if nested else None
        texts = list(chain.from_iterable(items)) if nested else items
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        ids = np.fromiter(chain.from_iterable(texts), np.int32, int(lengths.sum()))
        return TokenRows(ids, lengths, counts).pad(exact=True)


@dataclass(frozen=True, eq=False)
class TokenRows:
    """Tokenized texts on the host, without padding.

    Attributes:
      ids: ``[T]`` int32, the tokens of all rows one after the other.
      lengths: ``[M]`` int64, tokens of each row.
      counts: ``[N]`` int64, rows of each sample (``counts.sum() == M``); None where each row is a sample.
    """

    ids: np.ndarray
    lengths: np.ndarray
    counts: np.ndarray | None = None

    def pad(self, *, exact: bool = False, width: int | None = None, most: int | None = None) -> TokenBatch:
        """As a `TokenBatch`: ``[N, L]``, or ``[N, R, L]`` where there are ``counts``.

        L is ``width`` and R is ``most``; left out, they are the longest row and the largest count, rounded up to a
        `bucket` unless ``exact``, so that corpora of many sizes share few compiled kernels.
        """
        size: Any = int if exact else bucket
        width = width or max(size(int(self.lengths.max(initial=1))), 1)
        if self.counts is None:
            return TokenBatch(scatter(self.ids, self.lengths, width), self.lengths.astype(np.int32))
        most = most or max(size(int(self.counts.max(initial=1))), 1)
        lengths = self.grid(most)
        ids = scatter(self.ids, np.maximum(lengths, 0).reshape(-1), width)
        return TokenBatch(ids.reshape(*lengths.shape, width), lengths.astype(np.int32))

    def grid(self, most: int) -> np.ndarray:
        """Lengths as ``[N, most]``, `ABSENT` where a sample has fewer rows; with ``counts`` only."""
        assert self.counts is not None
        lengths = np.full((len(self.counts), most), ABSENT, np.int64)
        lengths[np.arange(most) < self.counts[:, None]] = self.lengths
        return lengths

    def select(self, samples: np.ndarray) -> tuple[TokenRows, np.ndarray]:
        """The rows of some samples, and which tokens those are: bool ``[T]``.

        Args:
          samples: bool ``[N]``.
        """
        rows = samples if self.counts is None else np.repeat(samples, self.counts)
        tokens = np.repeat(rows, self.lengths)
        counts = None if self.counts is None else self.counts[samples]
        return TokenRows(self.ids[tokens], self.lengths[rows], counts), tokens


def scatter(flat: np.ndarray, lengths: np.ndarray, width: int) -> np.ndarray:
    """Flat rows ``[..., T]`` as ``[..., M, width]``, zero padded: a mask visits the cells in the order of tokens."""
    out = np.zeros((*flat.shape[:-1], len(lengths), width), flat.dtype)
    out[..., np.arange(width) < lengths[:, None]] = flat
    return out


def bucket(n: int) -> int:
    """The smallest of 1, 2, 3, 4, 6, 8, 12, 16, 24, ... that is at least n: at most a third is padding."""
    size = 1
    while size < n:
        size *= 2
    three_quarters = size * 3 // 4
    return three_quarters if three_quarters >= n and size >= 4 else size


class Vocabulary:
    """Tokens to ids, in the order of first sight; it grows with what it encodes.

    Each distinct chunk of text (a run without whitespace) is tokenized once; after that a chunk is one dictionary
    look-up, and the rest is array work: 60,000 captions of 13 words in about 0.15 s on one core.

    Args:
      tokenizer: what splits a text.
      tokens: tokens that get the ids 0, 1, 2, ... (those of a frozen table, say).
    """

    def __init__(self, tokenizer: Tokenizer, tokens: Iterable[str] = ()) -> None:
        self.tokenizer = tokenizer
        self._ids: defaultdict[str, int] = defaultdict()
        self._ids.default_factory = self._ids.__len__  # a new token gets the next id, without a Python frame
        self._chunks: defaultdict[str, int] = defaultdict()
        self._chunks.default_factory = self._chunks.__len__
        self._chunks["\0"]  # chunk 0 separates texts; its one "token" is never gathered
        self._chunk_lengths = np.ones(1, np.int64)
        self._chunk_tokens = np.full(1, -1, np.int32)
        for token in tokens:
            self._ids[token]

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def tokens(self) -> list[str]:
        """The tokens by id."""
        return list(self._ids)

    def encode(self, texts: Sequence[str], counts: np.ndarray | None = None) -> TokenRows:
        """Texts as `TokenRows`; ``counts`` says how many consecutive texts belong to one sample.

        A NUL character in a text is read as U+FFFD: here it separates the texts, which are split in one go.
        """
        prepared = _SEPARATOR.join(map(self.tokenizer.prepare, texts))
        if prepared.count("\0") != max(len(texts) - 1, 0):
            clean = (self.tokenizer.prepare(text).replace("\0", "\ufffd") for text in texts)
            prepared = _SEPARATOR.join(clean)
        pieces = prepared.split()
        chunks = np.fromiter(map(self._chunks.__getitem__, pieces), np.int64, len(pieces))
        self._split_new_chunks()
        is_chunk = chunks != 0
        cuts = np.flatnonzero(~is_chunk)
        per_text = np.diff(np.concatenate([[-1], cuts, [len(chunks)]]))[: len(texts)] - 1
        chunks = chunks[is_chunk]
        per_chunk = self._chunk_lengths[chunks]
        ids = _gather_rows(self._chunk_tokens, self._chunk_lengths, chunks, per_chunk)
        ends = np.concatenate([[0], np.cumsum(per_chunk)])[np.concatenate([[0], np.cumsum(per_text)])]
        return TokenRows(ids, np.diff(ends), counts)

    def _split_new_chunks(self) -> None:
        fresh = [self.tokenizer.split(chunk) for chunk in islice(self._chunks, len(self._chunk_lengths), None)]
        if fresh:
            lengths = np.fromiter(map(len, fresh), np.int64, len(fresh))
            tokens = np.fromiter(map(self._ids.__getitem__, chain.from_iterable(fresh)), np.int32, int(lengths.sum()))
            self._chunk_lengths = np.concatenate([self._chunk_lengths, lengths])
            self._chunk_tokens = np.concatenate([self._chunk_tokens, tokens])


def _gather_rows(flat: np.ndarray, lengths: np.ndarray, rows: np.ndarray, per_row: np.ndarray) -> np.ndarray:
    """The chosen rows of a ragged array, one after the other; ``per_row`` is ``lengths[rows]``."""
    index = rows
    if not (lengths == 1).all():
        starts = np.cumsum(lengths) - lengths
        within = np.arange(int(per_row.sum())) - np.repeat(np.cumsum(per_row) - per_row, per_row)
        index = np.repeat(starts[rows], per_row) + within
    gathered: np.ndarray = flat[index]
    return gathered


def check_texts(texts: Any, argument: str, task: str | None = None) -> list[str]:
    """The texts as a list of str; raises `EvaluationError` for one string, or for an entry that is no string."""
    if isinstance(texts, (str, bytes)):
        raise EvaluationError("is one string; needs a list of strings", task=task, argument=argument)
    try:
        items = list(texts)
    except TypeError:
        raise EvaluationError(
            f"needs a list of strings; got {type(texts).__name__}", task=task, argument=argument
        ) from None
    _require_strings(items, argument, task, None)
    return items


def group_texts(
    groups: Any, num_samples: int, argument: str, task: str | None = None, *, single: bool = False
) -> tuple[list[str], np.ndarray]:
    """Lists of texts as one flat list and the number of texts in each.

    Args:
      groups: one list of strings a sample.
      num_samples: how many samples there must be.
      argument: name of the argument in errors.
      task: name of the task in errors.
      single: whether a bare string may stand for a list of one.

    Raises:
      ShapeError: another number of lists than of samples.
      EvaluationError: a string where a list belongs, or an entry that is no string.
    """
    if isinstance(groups, (str, bytes)):
        raise EvaluationError("is one string; needs a list of lists of strings", task=task, argument=argument)
    try:
        items = list(groups)
    except TypeError:
        raise EvaluationError(
            f"needs a list of lists of strings; got {type(groups).__name__}", task=task, argument=argument
        ) from None
    if len(items) != num_samples:
        raise ShapeError(f"has {len(items)} entries for {num_samples} samples", task=task, argument=argument)
    if single:
        items = [[item] if isinstance(item, str) else item for item in items]
    bad = [i for i, item in enumerate(items) if isinstance(item, (str, bytes)) or not hasattr(item, "__len__")]
    if bad:
        what = type(items[bad[0]]).__name__
        raise EvaluationError(
            f"each entry is a list of strings; got {what}", task=task, argument=argument, count=len(bad), index=bad[0]
        )
    counts = np.fromiter(map(len, items), np.int64, len(items))
    flat = list(chain.from_iterable(items))
    _require_strings(flat, argument, task, counts)
    return flat, counts


def _require_strings(items: list[Any], argument: str, task: str | None, counts: np.ndarray | None) -> None:
    if set(map(type, items)) <= {str}:
        return
    bad = [i for i, item in enumerate(items) if not isinstance(item, str)]
    if bad:
        index: int | tuple[int, int] = bad[0]
        if counts is not None:
            sample = int(np.searchsorted(np.cumsum(counts), bad[0], side="right"))
            index = (sample, bad[0] - int(counts[:sample].sum()))
        raise EvaluationError(
            f"{type(items[bad[0]]).__name__} is not a string", task=task, argument=argument, count=len(bad), index=index
        )
