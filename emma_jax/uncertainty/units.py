"""What is drawn in a bootstrap resample, and how often: exact multinomial counts instead of gathered samples.

A resample of U units is U draws with replacement, so the number of times that each unit is drawn is multinomial.
Statistics here are computed from these counts; no sample is ever copied. Units that contribute the same (a hit, a cell
of a confusion matrix) are one unit with several copies, and the count of all copies together is drawn at once.

Counts come from NumPy on the host: a scatter of a few hundred thousand draws is several times slower in XLA on CPU.
They are drawn resample after resample from one generator, so they depend on the key alone, not on the blocks in which
they are made; NumPy keeps the streams of its generators stable within a version, not for ever.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from emma_jax import checks
from emma_jax.errors import EvaluationError, ShapeError

__all__ = ["Counts", "Units", "block_rows", "draw", "generator", "make_units"]

Counts = NDArray[np.int64]
"""How often each unit (or sample) occurs: ``[resamples, units]``."""

# Entries of one block of counts: 1 MB of int64, which stays in a core's cache.
_BLOCK = 1 << 17
# From so many copies a unit on, a binomial draw for each unit is quicker than a draw for each copy.
_MANY_COPIES = 8


@dataclass(frozen=True, eq=False)
class Units:
    """What is drawn.

    Attributes:
      copies: how often each distinct unit stands in the data, int64 [U].
      of_sample: the unit of each sample, int64 [N]; None where sample i is unit i.
      within: how often each sample stands in its unit, int64 [N]; None for once.
      strata: stratum of each unit, 0..S-1, int64 [U]; None for one stratum.
      name: what a unit is: "samples", "clusters" or "boards".
    """

    copies: Counts
    of_sample: Counts | None = None
    within: Counts | None = None
    strata: Counts | None = None
    name: str = "samples"

    @property
    def size(self) -> int:
        """Number of distinct units."""
        return int(self.copies.shape[0])

    @property
    def total(self) -> int:
        """Number of draws in a resample."""
        return int(self.copies.sum())

    @property
    def num_strata(self) -> int:
        """Number of strata, 1 without any."""
        return 1 if self.strata is None else int(self.strata.max(initial=0)) + 1

    def members(self) -> list[slice | Counts]:
        """The units of each stratum."""
        if self.strata is None:
            return [slice(None)]
        order = np.argsort(self.strata, kind="stable")
        ends = np.searchsorted(self.strata[order], np.arange(self.num_strata + 1))
        return [order[a:b] for a, b in itertools.pairwise(ends)]

    def per_sample(self, counts: Counts) -> Counts:
        """Counts of units ``[b, U]`` as counts of samples ``[b, N]``."""
        if self.of_sample is None:
            return counts
        out = counts.take(self.of_sample, axis=1)
        return out if self.within is None else out * self.within

    def sum_over(self, values: NDArray[Any]) -> NDArray[Any]:
        """Sums of per-sample values ``[N, K]`` over each unit ``[U, K]``; of one copy where a unit is a sample."""
        if self.of_sample is None:
            return values
        if self.within is not None:
            values = values * self.within[:, None]
        columns = [np.bincount(self.of_sample, weights=column, minlength=self.size) for column in values.T]
        return np.stack(columns, axis=1) if columns else np.zeros((self.size, 0))

    def merged(self, codes: Counts) -> tuple[Units, Counts]:
        """Samples of equal code (and stratum) as one unit each, and the index of a representative of each."""
        assert self.of_sample is None
        joint = codes if self.strata is None else codes * self.num_strata + self.strata
        _, first, of = np.unique(joint, return_index=True, return_inverse=True)
        copies = np.bincount(of, weights=self.copies, minlength=first.shape[0]).astype(np.int64)
        return replace(self, copies=copies, strata=None if self.strata is None else self.strata[first]), first


def make_units(
    num_samples: int,
    rows: Counts | None,
    weights: Counts | None,
    clusters: Any,
    stratify: Any,
    shape: tuple[int, ...],
    task: str,
) -> Units:
    """Units from what the caller asked for.

    Args:
      num_samples: samples that are there.
      rows: their indices among all samples, or None for all of them.
      weights: multiplicity of each, or None.
      clusters: label of each sample's cluster, broadcast to ``shape``; None to draw samples.
      stratify: label of each sample's stratum, likewise; None for one stratum.
      shape: axes of the samples before they were flattened.
      task: for errors.

    Raises:
      ShapeError: labels that do not broadcast.
      EvaluationError: a cluster that lies in two strata.
    """
    strata = _numbered(stratify, rows, shape, "stratify", task)
    groups = _numbered(clusters, rows, shape, "clusters", task)
    if groups is None:
        copies = np.ones(num_samples, np.int64) if weights is None else weights
        return Units(copies, strata=strata)
    size = int(groups.max(initial=-1)) + 1
    per_cluster = None
    if strata is not None:
        per_cluster = np.zeros(size, np.int64)
        per_cluster[groups] = strata
        torn = per_cluster[groups] != strata
        if torn.any():
            raise EvaluationError(
                "has two values within one cluster; clusters are drawn whole",
                task=task,
                argument="stratify",
                count=int(torn.sum()),
                index=int(np.argmax(torn)) if rows is None else int(rows[np.argmax(torn)]),
            )
    return Units(np.ones(size, np.int64), groups, weights, per_cluster, "clusters")


def _numbered(labels: Any, rows: Counts | None, shape: tuple[int, ...], argument: str, task: str) -> Counts | None:
    """Labels of any kind as 0..K-1 per sample."""
    if labels is None:
        return None
    labels = np.asarray(labels)
    try:
        flat = np.broadcast_to(labels, shape).reshape(-1)
    except ValueError:
        raise ShapeError(
            f"shape {labels.shape} does not broadcast to the sample axes {shape}", task=task, argument=argument
        ) from None
    flat = flat if rows is None else flat[rows]
    return np.unique(flat, return_inverse=True)[1].reshape(-1).astype(np.int64)


def generator(key: Any, name: str = "") -> np.random.Generator:
    """A NumPy generator seeded by all bits of a JAX key, and by a name that tells draws of one key apart.

    Args:
      key: a JAX key (typed or raw), or an int n for ``jax.random.key(n)``.
      name: for example task and fold; empty for none.

    Raises:
      EvaluationError: it is traced, or no single key.
    """
    if checks.is_traced(key):
        raise EvaluationError("is traced; resampling runs on the host, outside any transform", argument="key")
    try:
        if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
            key = jax.random.key(int(key))
        words = np.asarray(jax.random.key_data(key))
    except (TypeError, ValueError, OverflowError) as error:
        raise EvaluationError(f"must be a JAX key ({error})", argument="key") from None
    if words.ndim != 1 or words.dtype != np.uint32:
        raise EvaluationError(f"must be one JAX key; got an array of shape {words.shape}", argument="key")
    text = np.frombuffer(name.encode(), np.uint8)
    # A length before the name, so that no two (key, name) give one sequence of words.
    seed = np.random.SeedSequence([len(words), *words.tolist(), len(text), *text.tolist()])
    return np.random.Generator(np.random.PCG64(seed))


def block_rows(widest: int) -> int:
    """Resamples per block, for arrays of so many entries a resample."""
    return int(np.clip(_BLOCK // max(widest, 1), 1, 1024))


def draw(units: Units, rng: np.random.Generator, num_resamples: int, rows: int) -> Iterator[Counts]:
    """Counts of units in blocks ``[b, U]`` of at most ``rows`` resamples.

    Within a stratum of n units with copies m_u the counts are multinomial with n draws and probabilities m_u / n:
    either n draws of an index, counted, or (where units have many copies) one multinomial draw by conditional
    binomials. Both are exact, up to the rounding of m_u / n to float64 in the second.
    """
    members = units.members()
    plans = [_plan(units.copies[m]) for m in members]
    for start in range(0, num_resamples, rows):
        b = min(rows, num_resamples - start)
        if len(members) == 1:
            yield plans[0](rng, b)
            continue
        out = np.zeros((b, units.size), np.int64)
        for row in out:
            for m, plan in zip(members, plans):
                row[m] = plan(rng, 1)[0]
        yield out


def _plan(copies: Counts) -> Any:
    """A function ``(rng, b)`` that draws counts ``[b, U]`` for one stratum."""
    size, total = copies.shape[0], int(copies.sum())
    if total > _MANY_COPIES * size:
        probabilities = copies / total
        return lambda rng, b: rng.multinomial(total, probabilities, size=b)
    owner = None if (copies == 1).all() else np.repeat(np.arange(size), copies)

    def count(rng: np.random.Generator, b: int) -> Counts:
        drawn = rng.integers(0, total, (b, total))
        if owner is not None:
            drawn = owner[drawn]
        if b == 1:
            return np.bincount(drawn[0], minlength=size)[None].astype(np.int64, copy=False)
        drawn += np.arange(0, b * size, size)[:, None]
        return np.bincount(drawn.reshape(-1), minlength=b * size).reshape(b, size).astype(np.int64, copy=False)

    return count
