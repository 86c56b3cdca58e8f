"""Captions and answers: corpus BLEU, METEOR, CIDEr-D, exact match and F1.

Goal: how close generated text is to references, in numbers that depend on no library version and on no download.
Conventions: text comes as strings, tokenized here by pinned rules, or as a `TokenBatch` of integer ids, whose tokens
are whatever made the ids. Every metric is a sum over samples of integers: n-gram counts, hits, or a per-sample value in
fixed point; so one evaluation and any split into batches reach the same state.

Concrete inputs are read on the host: block by block a jitted kernel (`emma_jax.text.kernels`) turns them into
per-sample numbers, in float64 where they are no integers. Ids under a JAX transform go through the same kernels inside
the caller's computation, in float32. METEOR aligns words one by one and stays on the host. CIDEr-D weighs n-grams by
document frequencies: those of the references at hand in a host call, those of a frozen table under trace and as a
stream.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from emma_jax import checks
from emma_jax.errors import EmptyEvaluationError, EvaluationError
from emma_jax.metrics.base import Metric, State, both, mean, tally
from emma_jax.numerics import limbs
from emma_jax.scores import MetricInfo
from emma_jax.text import frequencies, kernels
from emma_jax.text.corpus import Corpus, check_ids, num_samples, read_corpus
from emma_jax.text.frequencies import DocumentFrequencies
from emma_jax.text.ids import TokenBatch
from emma_jax.text.meteor import ALPHA, BETA, GAMMA, STAGES, check_stages, meteor_scores
from emma_jax.text.squad import get_normalizer
from emma_jax.text.synonyms import SYNONYM_TABLE_DIGEST
from emma_jax.text.tokenizers import Tokenizer, get_tokenizer

__all__ = ["CIDER", "F1", "Bleu", "ExactMatch", "Meteor", "TextMetric", "read_text"]

_SIGMA = 6.0
_NUM_REFERENCES = "references"  # the one entry of read labels: references of each sample
_MATCHES = tuple(f"matches_{n}" for n in range(1, 5))
_NGRAMS = tuple(f"ngrams_{n}" for n in range(1, 5))


def read_text(
    metrics: Sequence[Metric], preds: Any, labels: Any, where: Any = None, weights: Any = None, task: str = ""
) -> tuple[Any, Any]:
    """Inputs of text metrics as dictionaries of arrays with the samples first: what states are made of.

    Args:
      metrics: text metrics; what they share (tokens, ids) is made once.
      preds: strings or a `TokenBatch`. What this function returned passes through.
      labels: a list of strings a sample, or a `TokenBatch`.
      where: samples that are there; the others may hold anything.
      weights: multiplicities: a document counts as often for CIDEr-D.
      task: name in errors.

    Returns:
      (preds, labels). From concrete text, per-sample numbers under each metric's name, and how many references there
      are; from traced ids, "ids" and "lengths". CIDEr-D is left out where its document frequencies would be traced.
    """
    if isinstance(preds, dict):
        return preds, labels
    preds, labels = _concrete(preds), _concrete(labels)
    n = num_samples(preds, labels, task)
    if _is_traced_text(preds, labels):
        return {"ids": preds.ids, "lengths": preds.lengths}, {"ids": labels.ids, "lengths": labels.lengths}
    traced_weights = checks.is_traced(where, weights)
    times = np.ones(n, np.int64) if traced_weights else _multiplicities(where, weights, n, task)
    corpora: dict[Tokenizer, Corpus] = {}
    numbers: dict[str, np.ndarray] = {}
    counts = np.zeros(n, np.int32)
    for m in metrics:
        if not isinstance(m, TextMetric):
            raise EvaluationError("cannot share a task with metrics of text", task=task, argument=m.name)
        if isinstance(m, CIDER) and m.df is None and traced_weights:
            continue
        corpus = corpora.get(m._tokenizer)
        if corpus is None:
            known = _known_tokens(metrics, m._tokenizer)
            single = not m._needs_reference
            corpus = read_corpus(preds, labels, m._tokenizer, times, tokens=known, single=single, task=task)
            corpora[m._tokenizer] = corpus
        with jax.ensure_compile_time_eval():  # a trace over the weights alone must not swallow the kernels
            numbers[m.name] = m._read(corpus, task)
        counts = corpus.counts.astype(np.int32)
    return numbers, {_NUM_REFERENCES: counts}


def _is_traced_text(preds: Any, labels: Any) -> bool:
    """Whether ids are traced; strings never are, and there may be too many of them to look at each."""
    return any(isinstance(x, (TokenBatch, dict)) and checks.is_traced(x) for x in (preds, labels))


def _concrete(x: Any) -> Any:
    """A `TokenBatch` whose parts are arrays; anything else as it is."""
    if not isinstance(x, TokenBatch):
        return x
    return jax.tree_util.tree_map(lambda part: part if isinstance(part, jax.Array) else np.asarray(part), x)


def _multiplicities(where: Any, weights: Any, n: int, task: str) -> np.ndarray:
    """How often each sample counts, int64 [N]; 0 where it is masked."""
    mask = checks.sample_mask(where, (n,), task)
    times = checks.sample_weights(weights, (n,), task)
    out = np.ones(n, np.int64) if times is None else np.asarray(times).astype(np.int64)
    return out if mask is None else np.where(np.asarray(mask), out, 0)


def _known_tokens(metrics: Sequence[Metric], tokenizer: Tokenizer) -> tuple[str, ...]:
    """Tokens whose ids a frozen table of document frequencies fixes."""
    for m in metrics:
        if isinstance(m, CIDER) and m.df is not None and m.df.tokenizer == tokenizer.name:
            return m.df.tokens
    return ()


class TextMetric(Metric):
    """What the text metrics share: the inputs they read, their sample axes, and per-sample values."""

    _needs_reference: ClassVar[bool] = True

    @property
    @abstractmethod
    def _tokenizer(self) -> Tokenizer:
        """What splits strings."""

    @abstractmethod
    def _read(self, corpus: Corpus, task: str) -> np.ndarray:
        """Per-sample numbers of a corpus, [N, k] of int32 or uint32."""

    @abstractmethod
    def _numbers(self, preds: Any, labels: Any) -> Any:
        """Per-sample numbers of traced ids: what `_read` gives for the same text."""

    @abstractmethod
    def _sample_values(self, numbers: Any, xp: Any) -> Any:
        """Each sample's own value [N] from its numbers."""

    @abstractmethod
    def _summands(self, numbers: Any) -> dict[str, Any]:
        """What each sample adds to the state, by entry: bool [N], or a list of 32-bit words [N]."""

    def __call__(
        self,
        preds: Any,
        labels: Any,
        *,
        where: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> Any:
        preds, labels = read_text((self,), preds, labels, where, weights, self.name)
        return super().__call__(preds, labels, where=where, weights=weights)

    def update(
        self,
        state: State,
        preds: Any,
        labels: Any,
        *,
        where: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> State:
        self._state_shapes()  # raises where there is no stream, before any text is read
        preds, labels = read_text((self,), preds, labels, where, weights, self.name)
        return super().update(state, preds, labels, where=where, weights=weights)

    def _ingest(
        self, metrics: Sequence[Metric], preds: Any, labels: Any, where: Any, weights: Any, task: str
    ) -> tuple[Any, Any]:
        """Inputs of a task of text metrics as arrays; what is read already passes through."""
        return read_text(metrics, preds, labels, where, weights, task)

    def _applicable(
        self, metrics: tuple[Metric, ...], preds: Any, labels: Any, where: Any, weights: Any
    ) -> tuple[Metric, ...]:
        """The metrics of a task that can score these inputs: METEOR wants strings, traced CIDEr-D fixed frequencies.

        All of them where none can, so that the reason is raised.
        """
        traced_text, traced_weights = _is_traced_text(preds, labels), checks.is_traced(where, weights)
        kept = []
        for m in metrics:
            if isinstance(preds, dict) and "ids" not in preds:
                able = m.name in preds
            elif isinstance(m, Meteor):
                able = not isinstance(preds, (dict, TokenBatch))
            else:
                able = not (isinstance(m, CIDER) and m.df is None and (traced_text or traced_weights))
            kept += [m] if able else []
        return tuple(kept) or metrics

    def per_sample(self, preds: Any, labels: Any) -> Any:
        """Each sample's own value.

        Args:
          preds: strings or a `TokenBatch`, as for calling the metric.
          labels: references, likewise.

        Returns:
          [N] in the metric's unit: a float64 NumPy array, or float32 under a JAX transform.
        """
        preds, labels = read_text((self,), preds, labels, task=self.name)
        xp: Any = jnp if checks.is_traced(preds, labels) else np
        shape = self._sample_shape(preds, labels, self.name)
        if xp is np:
            self._explain(preds, labels, None, self.name)
        values = self._sample_values(self._of(preds, labels), xp)
        return xp.broadcast_to(values, shape)

    def _of(self, preds: Any, labels: Any) -> Any:
        return preds[self.name] if self.name in preds else self._numbers(preds, labels)

    def _sample_shape(self, preds: Any, labels: Any, task: str) -> tuple[int, ...]:
        if isinstance(preds, TokenBatch):
            return check_ids(preds, labels, task)
        if "ids" in preds:
            return check_ids(TokenBatch(**preds), TokenBatch(**labels), task)
        if self.name not in preds:
            raise EvaluationError(
                "cannot be scored under a transform that traces the weights", task=task, argument=self.name
            )
        return (labels[_NUM_REFERENCES].shape[0],)

    def _stats(self, preds: Any, labels: Any, mask: Any, weights: Any) -> State:
        numbers = self._of(preds, labels)
        count = labels.get(_NUM_REFERENCES)
        if count is None:
            count = jnp.sum(labels["lengths"] >= 0, axis=-1)
        missing = (count == 0) & self._needs_reference
        keep = both(mask, ~missing)
        summands = {
            k: [jnp.where(keep, word.astype(jnp.uint32), jnp.uint32(0)) for word in v]
            if isinstance(v, list)
            else v & keep
            for k, v in self._summands(numbers).items()
        }
        return tally(mask, weights, missing.shape, n_invalid_label=missing, **summands)

    def _explain(self, preds: Any, labels: Any, mask: Any, task: str) -> None:
        missing = (labels[_NUM_REFERENCES] == 0) & self._needs_reference
        if mask is not None:
            missing = missing & np.asarray(mask)
        if missing.any():
            raise EmptyEvaluationError(
                "a caption needs at least one reference",
                task=task,
                argument="labels",
                count=int(missing.sum()),
                index=checks.first_index(missing),
            )

    def _used(self, state: Any, xp: Any) -> Any:
        return limbs.to_float(state["n"], xp) - limbs.to_float(state["n_invalid_label"], xp)


@dataclass(frozen=True)
class Bleu(TextMetric):
    r"""Corpus BLEU-4: geometric mean of clipped n-gram precisions, times a brevity penalty.

    .. math:: \mathrm{BLEU} = \min(1, e^{1 - r/c}) \exp \tfrac14 \sum_{n=1}^4 \log \frac{m_n}{t_n}

    with matched and total n-grams :math:`m_n, t_n` of the whole corpus (a caption's n-gram matches at most as often as
    it occurs in one reference), and c, r the lengths of captions and of their closest references, the shorter on a tie.
    Uniform weights, no smoothing: 0 where an order has no match. Empty references are dropped where another exists. It
    is not the mean of sentence values.

    Shapes: ``preds`` N strings, or a `TokenBatch` of ids [N, L]; ``labels`` N lists of strings, or ids [N, R, L];
    ``where``, ``weights`` [N].
    Units: dimensionless, 0 to 1.
    Direction: higher is better.
    Errors: EmptyEvaluationError for a caption without a reference; ShapeError; EvaluationError for what is no text.
    Reference: Papineni et al., "BLEU: a Method for Automatic Evaluation of Machine Translation", ACL 2002.

    `per_sample` gives each caption's own unsmoothed BLEU-4, which is 0 for any without a common 4-gram.

    Attributes:
      tokenizer: "13a" or "whitespace"; without meaning for ids.
    """

    tokenizer: str = "13a"
    direction: ClassVar[str] = "higher"
    unit: ClassVar[str] = "1"
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __post_init__(self) -> None:
        get_tokenizer(self.tokenizer)

    @property
    def _tokenizer(self) -> Tokenizer:
        return get_tokenizer(self.tokenizer)

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys((*_MATCHES, *_NGRAMS, "length", "reference_length"), (4,))

    def _read(self, corpus: Corpus, task: str) -> np.ndarray:
        out = np.zeros((len(corpus.counts), 6), np.int32)
        for block in corpus.blocks():
            a, b = block.candidates, block.references
            numbers = _bleu_statistics(a.ids, a.lengths, b.ids, b.lengths)
            out[block.numbers] = np.asarray(numbers)[: len(block.numbers)]
        return out

    def _numbers(self, preds: Any, labels: Any) -> Any:
        return kernels.bleu_statistics(preds["ids"], preds["lengths"], labels["ids"], labels["lengths"])

    def _summands(self, numbers: Any) -> dict[str, Any]:
        length = numbers[:, 4]
        matches = {name: [numbers[:, n]] for n, name in enumerate(_MATCHES)}
        ngrams = {name: [jnp.maximum(length - n, 0)] for n, name in enumerate(_NGRAMS)}
        return matches | ngrams | {"length": [length], "reference_length": [numbers[:, 5]]}

    def _value(self, state: Any, xp: Any) -> tuple[Any, dict[str, Any]]:
        matches, ngrams = (
            xp.stack([limbs.to_float(state[k], xp) for k in names], axis=-1) for names in (_MATCHES, _NGRAMS)
        )
        length, reference = (limbs.to_float(state[k], xp) for k in ("length", "reference_length"))
        used = self._used(state, xp)
        value = _bleu(matches, ngrams, length, reference, xp)
        return xp.where(used > 0, value, value.dtype.type(np.nan)), {}

    def _sample_values(self, numbers: Any, xp: Any) -> Any:
        numbers = numbers.astype(np.float64 if xp is np else np.float32)
        length = numbers[:, 4]
        ngrams = xp.stack([xp.maximum(length - n, 0) for n in range(4)], axis=-1)
        return _bleu(numbers[:, :4], ngrams, length, numbers[:, 5], xp)


_bleu_statistics = jax.jit(kernels.bleu_statistics)


def _bleu(matches: Any, ngrams: Any, length: Any, reference: Any, xp: Any) -> Any:
    """BLEU from matches and n-grams [..., 4] and lengths [...]."""
    one = matches.dtype.type(1)
    found = xp.all(matches > 0, axis=-1)
    precision = xp.where(matches > 0, matches, one) / xp.where(ngrams > 0, ngrams, one)
    penalty = xp.exp(xp.minimum(one - reference / xp.where(length > 0, length, one), 0))
    score = penalty * xp.exp(xp.mean(xp.log(precision), axis=-1))
    return xp.where(found, score, score.dtype.type(0))


class _MeanOfSamples(TextMetric):
    """A mean of per-sample values in fixed point: two 32-bit words, worth ``2**_exponent`` at the lowest bit."""

    _exponent: ClassVar[int]

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"total": (6,)}

    def _summands(self, numbers: Any) -> dict[str, Any]:
        return {"total": [numbers[:, 0], numbers[:, 1]]}

    def _value(self, state: Any, xp: Any) -> tuple[Any, dict[str, Any]]:
        return mean(limbs.to_float(state["total"], xp, self._exponent), self._used(state, xp), xp), {}

    def _sample_values(self, numbers: Any, xp: Any) -> Any:
        dtype = np.float64 if xp is np else np.float32
        low, high = (numbers[:, i].astype(dtype) for i in range(2))
        return low * dtype(2.0**self._exponent) + high * dtype(2.0 ** (self._exponent + 32))

    def _words(self, values: np.ndarray) -> np.ndarray:
        """Float64 values [N] as words [N, 2], rounded to the nearest multiple of ``2**_exponent``."""
        fixed = np.rint(np.ldexp(values, -self._exponent)).astype(np.uint64)
        return np.stack([fixed & np.uint64(0xFFFFFFFF), fixed >> np.uint64(32)], axis=-1).astype(np.uint32)


@dataclass(frozen=True)
class Meteor(_MeanOfSamples):
    r"""METEOR as nltk computes it: an F-mean of matched words, less a penalty for scattered matches.

    .. math:: \frac1N \sum_i \max_r \Bigl(1 - \gamma (c/m)^\beta\Bigr) \frac{P R}{\alpha P + (1 - \alpha) R}

    with m matched words in c chunks, P and R the shares of candidate and reference they cover, alpha 0.9, beta 3, gamma
    0.5; 0 without a match. Words match exactly, then by Porter stem, then as WordNet 3.0 synonyms, from a table inside
    this package. Words are folded to lower case. Identical captions score 1 - 0.5 / m^3, not 1.

    Shapes: ``preds`` N strings; ``labels`` N lists of strings; ``where``, ``weights`` [N]. Ids carry no stems and no
    synonyms: a `TokenBatch` is an error.
    Units: dimensionless, 0 to 1.
    Direction: higher is better.
    Errors: EmptyEvaluationError for a caption without a reference; ShapeError; EvaluationError for ids, and for what is
    no text.
    Reference: Banerjee and Lavie, "METEOR: An Automatic Metric for MT Evaluation with Improved Correlation with Human
    Judgments", ACL workshop 2005; nltk.translate.meteor_score.

    Attributes:
      tokenizer: "13a" or "whitespace".
      stages: "exact", and any of "stem" and "synonym".
      processes: how many processes to spread over; changes no value, and is not part of the configuration.
      synonym_table: sha256 of the synonym table; one that a release pins is refused if another is shipped.
    """

    tokenizer: str = "13a"
    stages: tuple[str, ...] = STAGES
    processes: int | None = field(default=None, compare=False)
    synonym_table: str = SYNONYM_TABLE_DIGEST
    direction: ClassVar[str] = "higher"
    unit: ClassVar[str] = "1"
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)
    _exponent: ClassVar[int] = -62

    def __post_init__(self) -> None:
        get_tokenizer(self.tokenizer)
        object.__setattr__(self, "stages", check_stages(self.stages))
        if self.synonym_table != SYNONYM_TABLE_DIGEST:
            raise EvaluationError(
                f"pinned is {self.synonym_table!r}, but this version has {SYNONYM_TABLE_DIGEST!r}",
                task=self.name,
                argument="synonym_table",
            )

    @property
    def info(self) -> MetricInfo:
        """Static description, with the digest of the synonym table where it is used."""
        config: tuple[tuple[str, Any], ...] = (("tokenizer", self.tokenizer), ("stages", self.stages))
        config += (("alpha", ALPHA), ("beta", BETA), ("gamma", GAMMA))
        if "synonym" in self.stages:
            config += (("synonym_table", SYNONYM_TABLE_DIGEST),)
        return MetricInfo(self.name, self.direction, self.unit, config)

    @property
    def _tokenizer(self) -> Tokenizer:
        return get_tokenizer(self.tokenizer)

    def _read(self, corpus: Corpus, task: str) -> np.ndarray:
        if corpus.vocabulary is None:
            raise self._no_words(task)
        candidates, references = corpus.words
        scored = np.flatnonzero(corpus.counts > 0)
        values = np.zeros(len(candidates))
        values[scored] = meteor_scores(
            [candidates[i] for i in scored],
            [references[i] for i in scored],
            stages=self.stages,
            processes=self.processes,
        )
        return self._words(values)

    def _numbers(self, preds: Any, labels: Any) -> Any:
        raise self._no_words(self.name)

    def _no_words(self, task: str) -> EvaluationError:
        return EvaluationError(
            "needs strings, on the host: ids have no stems and no synonyms", task=task, argument=self.name
        )


@dataclass(frozen=True)
class CIDER(_MeanOfSamples):
    r"""CIDEr-D: tf-idf weighted n-gram similarity to the references, clipped, with a length penalty, times 10.

    .. math:: \frac1N \sum_i \frac{10}{4} \sum_{n=1}^4 \frac1{R_i} \sum_r e^{-(l_i - l_r)^2 / 2\sigma^2}
        \frac{\min(g_n(c_i), g_n(r)) \cdot g_n(r)}{\lVert g_n(c_i) \rVert \, \lVert g_n(r) \rVert}

    where the vector g_n holds, for every n-gram, its count times log N - log max(1, df), df counting the documents (all
    references of a sample together) in which it occurs, out of N; sigma is 6. Without a table, the documents are the
    references of the corpus being scored: the value then depends on them, on one document it is 0 (a warning says so),
    and identical captions do not score 10 in general.

    Shapes: ``preds`` N strings, or a `TokenBatch` of ids [N, L]; ``labels`` N lists of strings, or ids [N, R, L];
    ``where``, ``weights`` [N].
    Units: dimensionless, 0 to 10.
    Direction: higher is better.
    Errors: EmptyEvaluationError for a caption without a reference; ShapeError; EvaluationError for what is no text, for
    a stream or a traced call without ``df``, and for strings against a table made from ids.
    Reference: Vedantam, Zitnick and Parikh, "CIDEr: Consensus-based Image Description Evaluation", CVPR 2015,
    arXiv:1411.5726; the variant D with raw term frequency, as in coco-caption.

    Attributes:
      tokenizer: "13a" or "whitespace"; without meaning for ids.
      df: a frozen table of document frequencies; None or "references" for those of the references at hand.
    """

    tokenizer: str = "13a"
    df: DocumentFrequencies | None = None
    direction: ClassVar[str] = "higher"
    unit: ClassVar[str] = "1"
    bounds: ClassVar[tuple[float, float]] = (0.0, 10.0)
    _exponent: ClassVar[int] = -58

    def __post_init__(self) -> None:
        get_tokenizer(self.tokenizer)
        given: Any = self.df
        if isinstance(given, str):
            if given != "references":
                text = f'must be a DocumentFrequencies table, or "references"; got {given!r}'
                raise EvaluationError(text, task=self.name, argument="df")
            object.__setattr__(self, "df", None)
        if self.df is not None and self.df.tokenizer not in ("", self.tokenizer):
            raise EvaluationError(
                f"was counted with tokenizer {self.df.tokenizer!r}, not {self.tokenizer!r}",
                task=self.name,
                argument="df",
            )

    @property
    def info(self) -> MetricInfo:
        """Static description; ``df`` is "references", or the digest of the table."""
        source = "references" if self.df is None else f"sha256:{self.df.digest}"
        config = (("tokenizer", self.tokenizer), ("df", source), ("sigma", _SIGMA))
        return MetricInfo(self.name, self.direction, self.unit, config)

    @property
    def _tokenizer(self) -> Tokenizer:
        return get_tokenizer(self.tokenizer)

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        if self.df is None:
            raise EvaluationError(
                "is needed for a stream and under trace: document frequencies of the whole corpus are not known there",
                task=self.name,
                argument="df",
            )
        return super()._state_shapes()

    def _read(self, corpus: Corpus, task: str) -> np.ndarray:
        weights, ref_weights = self._idf(corpus, task)
        values = np.zeros(len(corpus.counts))
        with checks.enable_x64(True):
            for block in corpus.blocks():
                a, b = block.candidates, block.references
                laid, ref_laid = block.lay_out(weights, ref_weights)
                similarity = _cider_similarity(a.ids, a.lengths, laid, b.ids, b.lengths, ref_laid)
                values[block.numbers] = np.asarray(similarity)[: len(block.numbers)]
        return self._words(values)

    def _idf(self, corpus: Corpus, task: str) -> tuple[np.ndarray, np.ndarray]:
        """Weight of the n-gram at every token of candidates and references, float64 [4, T] each."""
        if self.df is not None:
            if corpus.vocabulary is not None:
                self.df.vocabulary()  # raises for a table that was made from ids
            table = (self.df.counts, self.df.num_documents)
            numbers = [frequencies.lookup(self.df.keys, rows) for rows in (corpus.candidates, corpus.references)]
        else:
            documents = int(corpus.weights[corpus.counts > 0].sum())
            if documents == 1:
                warnings.warn(
                    f"{task}: CIDEr-D over one document is 0: an n-gram that is in every document has idf log 1 = 0; "
                    "score more captions at once, or give a frozen df",
                    stacklevel=2,
                )
            keys, counts, ref_numbers = frequencies.count_documents(corpus.references, corpus.weights)
            table = (counts, documents)
            numbers = [frequencies.lookup(keys, corpus.candidates), ref_numbers]
        return frequencies.idf(*table, numbers[0]), frequencies.idf(*table, numbers[1])

    def _numbers(self, preds: Any, labels: Any) -> Any:
        if self.df is None:
            self._state_shapes()
        assert self.df is not None
        weights, ref_weights = (frequencies.idf_weights(self.df, x["ids"], x["lengths"]) for x in (preds, labels))
        value = kernels.cider_similarity(
            preds["ids"], preds["lengths"], weights, labels["ids"], labels["lengths"], ref_weights, _SIGMA
        )
        # Scaling by powers of two is exact, so the two words hold the float32 value exactly down to 2^-35.
        scaled = jnp.clip(value, 0, 10) * jnp.float32(2.0**26)
        high = jnp.floor(scaled)
        low = (scaled - high) * jnp.float32(2.0**32)
        return jnp.stack([low.astype(jnp.uint32), high.astype(jnp.uint32)], axis=-1)


_cider_similarity = jax.jit(partial(kernels.cider_similarity, sigma=_SIGMA))
_squad_overlap = jax.jit(kernels.squad_overlap)


class _AnswerMetric(TextMetric):
    """What exact match and F1 share: normalized answers, and gold answers of which there may be none."""

    _needs_reference: ClassVar[bool] = False
    normalizer: str

    @property
    def _tokenizer(self) -> Tokenizer:
        return get_normalizer(self.normalizer)

    def _overlap(self, corpus: Corpus) -> list[np.ndarray]:
        """exact, numerator, denominator of every sample, as `emma_jax.text.kernels.squad_overlap` gives them."""
        out: list[np.ndarray] | None = corpus.memo.get("overlap")
        if out is not None:
            return out
        corpus.memo["overlap"] = out = [np.zeros(len(corpus.counts), dtype) for dtype in (bool, np.int32, np.int32)]
        for block in corpus.blocks():
            a, b = block.candidates, block.references
            for total, part in zip(out, _squad_overlap(a.ids, a.lengths, b.ids, b.lengths)):
                total[block.numbers] = np.asarray(part)[: len(block.numbers)]
        return out


@dataclass(frozen=True)
class ExactMatch(_AnswerMetric):
    r"""Exact match: the share of answers that equal a gold answer after normalization.

    .. math:: \mathrm{EM} = \frac1N \sum_i \max_g \mathbf 1[\mathrm{norm}(\hat a_i) = \mathrm{norm}(a_{ig})]

    Without gold answers, "no answer" (empty after normalization) is the right one.

    Shapes: ``preds`` N strings, or a `TokenBatch` of ids [N, L]; ``labels`` N strings or lists of strings, or ids
    [N, R, L]; ``where``, ``weights`` [N].
    Units: dimensionless, 0 to 1.
    Direction: higher is better.
    Errors: ShapeError; EvaluationError for what is no text.
    Reference: Rajpurkar et al., "SQuAD: 100,000+ Questions for Machine Comprehension of Text", EMNLP 2016.

    Attributes:
      normalizer: "squad" (the protocol's) or "numeric-safe" (keeps signs, decimals and units); ids are taken as
        normalized.
    """

    normalizer: str = "squad"
    direction: ClassVar[str] = "higher"
    unit: ClassVar[str] = "1"
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __post_init__(self) -> None:
        get_normalizer(self.normalizer)

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"exact": (2,)}

    def _read(self, corpus: Corpus, task: str) -> np.ndarray:
        return self._overlap(corpus)[0][:, None].astype(np.int32)

    def _numbers(self, preds: Any, labels: Any) -> Any:
        exact, _, _ = kernels.squad_overlap(preds["ids"], preds["lengths"], labels["ids"], labels["lengths"])
        return exact[:, None].astype(jnp.int32)

    def _summands(self, numbers: Any) -> dict[str, Any]:
        return {"exact": numbers[:, 0] > 0}

    def _value(self, state: Any, xp: Any) -> tuple[Any, dict[str, Any]]:
        return mean(limbs.to_float(state["exact"], xp), self._used(state, xp), xp), {}

    def _sample_values(self, numbers: Any, xp: Any) -> Any:
        return numbers[:, 0].astype(np.float64 if xp is np else np.float32)


@dataclass(frozen=True)
class F1(_MeanOfSamples, _AnswerMetric):
    r"""Token F1 of answers, the best over gold answers, averaged over questions.

    .. math:: \mathrm{F1} = \frac1N \sum_i \max_g \frac{2 \, |\hat a_i \cap a_{ig}|}{|\hat a_i| + |a_{ig}|}

    over multisets of normalized tokens; where a side has no tokens it is 1 if both have none, else 0. Without gold
    answers, "no answer" is the right one.

    Shapes: ``preds`` N strings, or a `TokenBatch` of ids [N, L]; ``labels`` N strings or lists of strings, or ids
    [N, R, L]; ``where``, ``weights`` [N].
    Units: dimensionless, 0 to 1.
    Direction: higher is better.
    Errors: ShapeError; EvaluationError for what is no text.
    Reference: Rajpurkar et al., "SQuAD: 100,000+ Questions for Machine Comprehension of Text", EMNLP 2016.

    Attributes:
      normalizer: "squad" (the protocol's) or "numeric-safe" (keeps signs, decimals and units); ids are taken as
        normalized.
    """

    normalizer: str = "squad"
    direction: ClassVar[str] = "higher"
    unit: ClassVar[str] = "1"
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)
    _exponent: ClassVar[int] = -56

    def __post_init__(self) -> None:
        get_normalizer(self.normalizer)

    def _read(self, corpus: Corpus, task: str) -> np.ndarray:
        _, numerator, denominator = self._overlap(corpus)
        return np.stack(kernels.fraction_words(numerator, denominator), axis=-1)

    def _numbers(self, preds: Any, labels: Any) -> Any:
        overlap = kernels.squad_overlap(preds["ids"], preds["lengths"], labels["ids"], labels["lengths"])
        return jnp.stack(kernels.fraction_words(*overlap[1:]), axis=-1)
