"""Document frequencies of n-grams: the idf of CIDEr-D, counted from references or frozen in a table.

Goal: for every n-gram (n = 1..4) of a text, in how many documents of a reference corpus it occurs. A document is all
references of one sample together; an integer weight repeats it.
Conventions: an n-gram is its prefix and its last token, so a table is one sorted column of pairs an order, and a
look-up is one binary search an order, the same on the host (`lookup`) and in a kernel (`idf_weights`). N-grams are
compared, never hashed.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from emma_jax.errors import EmptyEvaluationError, EvaluationError, FileFormatError
from emma_jax.text.corpus import rows_of
from emma_jax.text.ids import TokenBatch, TokenRows, Vocabulary, group_texts
from emma_jax.text.kernels import MAX_ORDER, clip_lengths
from emma_jax.text.tokenizers import get_tokenizer

__all__ = ["DocumentFrequencies", "count_documents", "idf", "idf_weights", "lookup"]

_ABSENT = np.int64(-1)


@dataclass(frozen=True, eq=False)
class DocumentFrequencies:
    """A frozen table of document frequencies: immutable, hashable by content, a static argument of any transform.

    Attributes:
      num_documents: how many documents were counted.
      keys: for each order a sorted uint64 array: number of the n-gram's prefix in the order below (0 for unigrams)
      times
        2^32, plus its last token's id.
      counts: for each order an int64 array: documents that hold the n-gram.
      tokens: the tokens by id; empty where the table was made from ids.
      tokenizer: name of the tokenizer that made them, "" where the table was made from ids.
    """

    num_documents: int
    keys: tuple[np.ndarray, ...]
    counts: tuple[np.ndarray, ...]
    tokens: tuple[str, ...] = ()
    tokenizer: str = ""

    @classmethod
    def from_references(cls, references: Any, *, tokenizer: str = "13a") -> DocumentFrequencies:
        """Counts a reference corpus.

        Args:
          references: one list of strings a sample, or a `TokenBatch` of ids ``[N, R, L]``.
          tokenizer: for strings, what splits them.

        Raises:
          EmptyEvaluationError: no document.
        """
        if isinstance(references, TokenBatch):
            rows = rows_of(references)
            names: tuple[str, ...] = ()
        else:
            groups = list(references)
            texts, counts = group_texts(groups, len(groups), "references", "CIDER")
            vocabulary = Vocabulary(get_tokenizer(tokenizer))
            rows = vocabulary.encode(texts, counts)
            names = tuple(vocabulary.tokens)
        assert rows.counts is not None
        if not len(rows.counts):
            raise EmptyEvaluationError("no document to count", task="CIDER", argument="references")
        keys, frequencies, _ = count_documents(rows, np.ones(len(rows.counts), np.int64))
        return cls(len(rows.counts), keys, frequencies, names, tokenizer if names else "")

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the content: the name of this table in a result."""
        content = hashlib.sha256(f"emma-jax document frequencies 1\n{self.num_documents}\n{self.tokenizer}\n".encode())
        for array in (*self.keys, *self.counts):
            content.update(f"{len(array)}\n".encode() + array.astype("<u8").tobytes())
        content.update("\n".join(self.tokens).encode("utf-8", "surrogatepass"))
        return content.hexdigest()

    def __hash__(self) -> int:
        return hash(self.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DocumentFrequencies) and self.digest == other.digest

    def __repr__(self) -> str:
        return f"DocumentFrequencies({self.num_documents} documents, sha256 {self.digest[:12]})"

    def vocabulary(self) -> Vocabulary:
        """A vocabulary whose ids this table knows; what it does not know gets ids beyond them.

        Raises:
          EvaluationError: the table was made from ids, so it knows no strings.
        """
        if not self.tokenizer:
            raise EvaluationError("was made from ids and cannot read strings", task="CIDER", argument="df")
        return Vocabulary(get_tokenizer(self.tokenizer), self.tokens)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the table as .npz (numbers and UTF-8 bytes, no pickle)."""
        text = np.frombuffer("\n".join(self.tokens).encode("utf-8", "surrogatepass"), np.uint8)
        arrays: dict[str, Any] = {f"keys_{n}": keys for n, keys in enumerate(self.keys, 1)}
        arrays |= {f"counts_{n}": counts for n, counts in enumerate(self.counts, 1)}
        arrays |= {"num_documents": np.int64(self.num_documents), "tokens": text, "tokenizer": np.array(self.tokenizer)}
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)
        with open(path, "wb") as stream:
            stream.write(buffer.getvalue())

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, digest: str | None = None) -> DocumentFrequencies:
        """Reads a table that `save` wrote.

        Args:
          path: the file.
          digest: what its `digest` has to be, if that is known.

        Raises:
          FileFormatError: the file is no such table, or has another digest.
        """
        name = os.fspath(path)
        try:
            with np.load(path, allow_pickle=False) as file:
                orders = range(1, MAX_ORDER + 1)
                keys = tuple(file[f"keys_{n}"].astype(np.uint64) for n in orders)
                counts = tuple(file[f"counts_{n}"].astype(np.int64) for n in orders)
                text = file["tokens"].tobytes().decode("utf-8", "surrogatepass")
                table = cls(
                    int(file["num_documents"]),
                    keys,
                    counts,
                    tuple(text.split("\n")) if text else (),
                    str(file["tokenizer"]),
                )
        except (OSError, ValueError, KeyError, EOFError) as error:
            if isinstance(error, FileNotFoundError):
                raise
            raise FileFormatError(f"is no table of document frequencies ({error})", argument=name) from None
        for key, count in zip(table.keys, table.counts):
            if key.shape != count.shape or key.ndim != 1 or not (key[1:] > key[:-1]).all():
                raise FileFormatError("is no table of document frequencies: columns do not fit", argument=name)
        if digest is not None and table.digest != digest:
            raise FileFormatError(f"has digest {table.digest}, not {digest}", argument=name)
        return table


def _order_starts(lengths: np.ndarray, order: int) -> np.ndarray:
    """For flat rows, whether an n-gram of that order starts at each token."""
    left = np.repeat(np.cumsum(lengths), lengths) - np.arange(int(lengths.sum()))
    starts: np.ndarray = left >= order
    return starts


def _keys(prefix: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    return (prefix.astype(np.uint64) << np.uint64(32)) | tokens.view(np.uint32)


def count_documents(
    rows: TokenRows, weights: np.ndarray
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...], np.ndarray]:
    """Counts every n-gram's documents.

    Args:
      rows: the references, with ``counts``: the rows of a sample are one document.
      weights: int64 ``[N]``, how many times each document counts; 0 leaves it out of the counts.

    Returns:
      (keys, counts, numbers): the columns of a `DocumentFrequencies`, and for each order and token the number of the
      n-gram that starts there, int64 ``[4, T]``, -1 where none does.
    """
    assert rows.counts is not None
    document = np.repeat(np.repeat(np.arange(len(rows.counts)), rows.counts), rows.lengths)
    tokens, size = rows.ids, len(rows.ids)
    numbers = np.full((MAX_ORDER, size), _ABSENT)
    keys: list[np.ndarray] = []
    counts: list[np.ndarray] = []
    at = np.arange(size)
    for n in range(MAX_ORDER):
        at = at[_order_starts(rows.lengths, n + 1)[at]]
        prefix = numbers[n - 1, at] if n else np.zeros(len(at), np.int64)
        key = _keys(prefix, tokens[at + n])
        order, is_new = _stable_runs(key)
        place = at[order]
        number = np.cumsum(is_new)
        number -= 1
        # Positions come in the order of the text, so within an n-gram the documents ascend: count where they change.
        where = document[place]
        changes = is_new.copy()
        changes[1:] |= where[1:] != where[:-1]
        # Sums of integers in float64: exact below 2^53.
        total = np.bincount(number[changes], weights[where[changes]], minlength=int(number[-1]) + 1 if len(key) else 0)
        numbers[n, place] = number
        keys.append(key[order[is_new]])
        counts.append(total.astype(np.int64))
    return tuple(keys), tuple(counts), numbers


def _stable_runs(key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``np.argsort(key, kind="stable")`` of (high, low) halves, and where a new key begins in that order.

    Key and position are packed into 64 bits where that fits: NumPy sorts uint64 several times faster than it argsorts.
    """
    bits = max(len(key) - 1, 1).bit_length()
    low = key & np.uint64(0xFFFFFFFF)
    low_bits = int(low.max(initial=0)).bit_length()
    if int(key.max(initial=0) >> np.uint64(32)).bit_length() + low_bits + bits > 64:
        order = np.argsort(key, kind="stable")
        ranked = key[order]
    else:
        ranked = (key >> np.uint64(32)) << np.uint64(low_bits + bits)
        ranked |= low << np.uint64(bits)
        ranked |= np.arange(len(key), dtype=np.uint64)
        ranked.sort()
        order = (ranked & np.uint64((1 << bits) - 1)).astype(np.int64)
        ranked >>= np.uint64(bits)
    is_new = np.ones(len(key), bool)
    is_new[1:] = ranked[1:] != ranked[:-1]
    return order, is_new


def lookup(keys: Sequence[np.ndarray], rows: TokenRows) -> np.ndarray:
    """Numbers of the n-grams of texts in a table's columns: int64 ``[4, T]``, -1 where none starts or is known."""
    size = len(rows.ids)
    numbers = np.full((MAX_ORDER, size), _ABSENT)
    at = np.arange(size)
    for n in range(MAX_ORDER):
        at = at[_order_starts(rows.lengths, n + 1)[at]]
        if n:
            at = at[numbers[n - 1, at] >= 0]
        key = _keys(numbers[n - 1, at] if n else np.zeros(len(at), np.int64), rows.ids[at + n])
        place = np.searchsorted(keys[n], key)
        known = place < len(keys[n])
        known[known] = keys[n][place[known]] == key[known]
        numbers[n, at[known]] = place[known]
    return numbers


def idf(counts: Sequence[np.ndarray], num_documents: int, numbers: np.ndarray) -> np.ndarray:
    """log N - log max(1, df) for n-grams by number, float64 ``[4, T]``; an unknown n-gram has df 0."""
    top = np.log(float(max(num_documents, 1)))
    tables = (np.append(top - np.log(np.maximum(count, 1)), top) for count in counts)  # index -1: unknown
    return np.stack([table[number] for table, number in zip(tables, numbers)])


def idf_weights(table: DocumentFrequencies, ids: Any, lengths: Any) -> jax.Array:
    """idf of the n-gram at each position, in a kernel.

    Args:
      table: the frozen document frequencies, baked into the kernel as constants.
      ids: ``[..., L]`` ids that mean to the table what they mean here.
      lengths: ``[...]``.

    Returns:
      float32 ``[4, ..., L]``; anything where no n-gram starts.
    """
    lengths = clip_lengths(lengths, ids.shape[-1], 0)
    left = lengths[..., None] - jnp.arange(ids.shape[-1], dtype=jnp.int32)
    top = float(np.log(max(table.num_documents, 1)))
    tokens = jax.lax.bitcast_convert_type(ids.astype(jnp.int32), jnp.uint32)
    number = jnp.zeros(ids.shape, jnp.int32)
    out = []
    for n, (keys, counts) in enumerate(zip(table.keys, table.counts)):
        last = jnp.concatenate([tokens[..., n:], tokens[..., :n]], axis=-1)
        found = _search(keys, number, last)
        number = jnp.where(left > n, found, -1)
        weights = np.append(top - np.log(np.maximum(counts, 1)), top).astype(np.float32)
        out.append(jnp.asarray(weights)[jnp.where(number < 0, len(counts), number)])
    return jnp.stack(out)


def _search(keys: np.ndarray, prefix: Any, token: Any) -> Any:
    """Place of (prefix, token) in a sorted column of pairs, or -1: a binary search without 64-bit types."""
    if not len(keys):
        return jnp.full(prefix.shape, -1, jnp.int32)
    high = jnp.asarray((keys >> np.uint64(32)).astype(np.int32))
    low = jnp.asarray((keys & np.uint64(0xFFFFFFFF)).astype(np.uint32))
    steps = len(keys).bit_length()

    def halve(i: Any, place: Any) -> Any:
        probe = place + (jnp.int32(1) << (steps - 1 - i))
        at = jnp.minimum(probe, len(keys)) - 1
        before = (high[at] < prefix) | ((high[at] == prefix) & (low[at] <= token))
        return jnp.where((probe <= len(keys)) & before, probe, place)

    # A loop, not unrolled: XLA would fuse the steps into one another and gather anew for each (33 s to compile).
    # It starts from a zero made of the tokens, so that inside shard_map the carry varies over devices as they do.
    place = jax.lax.fori_loop(0, steps, halve, (token & np.uint32(0)).astype(jnp.int32))
    at = jnp.maximum(place - 1, 0)
    return jnp.where((place > 0) & (high[at] == prefix) & (low[at] == token), at, -1)
