"""SI-SDR of separated or enhanced signals.

Goal: how much of an estimate is the reference, whatever its gain, against everything else in it.
Conventions: time is the last axis; complex baseband is projected with the complex inner product; I/Q planes only along
an ``iq_axis`` that is given; no mean is removed and no epsilon added unless asked for.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from emma_jax import checks
from emma_jax.errors import DegenerateLabelsError, EvaluationError, LabelError, ShapeError
from emma_jax.metrics.base import Metric, State, both, mean, tally, with_lengths
from emma_jax.metrics.channels import check_finite, common_float, same_arrays, used_float, used_limbs
from emma_jax.numerics import accumulate, energies, limbs
from emma_jax.numerics.floats import common_zero, tie
from emma_jax.numerics.planes import SignalBatch, as_planes, parts

__all__ = ["SISDR", "SignalBatch"]

_DB = 10.0 * math.log10(2.0)
_MIN_STEPS = 8
# A reference whose energy falls to this share of its raw energy once its mean is removed was a constant.
_SILENT = 1e-10

Parts = tuple[Any, ...]
"""One real array ``[n, T]``, or real and imaginary part."""


@dataclass(frozen=True)
class SISDR(Metric):
    r"""Scale-invariant signal-to-distortion ratio, in dB: the mean over signals of each signal's value.

    .. math:: \mathrm{SI\text{-}SDR} = 10 \log_{10} \frac{\lVert \alpha s \rVert^2}{\lVert \hat s - \alpha s \rVert^2},
       \quad \alpha = \frac{\langle \hat s, s \rangle}{\lVert s \rVert^2}

    The residual is formed sample by sample in a second pass: the shorter form
    :math:`\lVert \hat s \rVert^2 - |\langle \hat s, s \rangle|^2 / \lVert s \rVert^2` cancels to nothing from 80 dB on.

    A silent reference (no energy, or with ``zero_mean`` less than 1e-10 of it after its mean is removed) has no
    projection: it is left out and counted in ``validity.n_excluded``. Each signal's value is clamped to +-``clip_db``,
    so a perfect estimate scores 100 and a silent or orthogonal one -100 instead of an infinity.

    Shapes: ``preds`` [N, T] or [N, K, T] (K sources), complex, real, or float planes with ``iq_axis``; ``labels`` the
    same, or a `SignalBatch` of them with lengths [N] (the ``lengths`` argument makes one); ``where``, ``weights`` [N]
    or [N, K].
    Units: dB.
    Direction: higher is better.
    Errors: NonFiniteError for NaN and infinity; ShapeError for shapes that differ, complex against real, or T < 8 (an
    axis of so few steps is no time axis); LabelError for a length outside 8..T; DegenerateLabelsError if every
    reference is silent; EmptyEvaluationError.
    Reference: Le Roux, Wisdom, Erdogan and Hershey, "SDR - half-baked or well done?", ICASSP 2019, arXiv:1811.02508.

    Attributes:
      clip_db: bound of one signal's value, or None for the bare formula.
      phase_invariant: for complex signals, whether alpha is complex (an unknown phase is forgiven) or real.
      zero_mean: whether the mean of reference and estimate is removed first.
      permutation: "fixed", or "best": the assignment of estimates to references with the highest mean (K <= 4; the
        first one in lexicographic order on a tie). Where ``where`` is False, neither estimate nor reference k takes
        part.
      iq_axis: axis of length 2 that holds I and Q of float planes, or None.
    """

    clip_db: float | None = 100.0
    phase_invariant: bool = True
    zero_mean: bool = False
    permutation: str = "fixed"
    iq_axis: int | None = None
    _decomposes: ClassVar[bool] = True
    direction: ClassVar[str] = "higher"
    unit: ClassVar[str] = "dB"
    structured: ClassVar[bool] = False
    bounds: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    _takes_lengths: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.clip_db is not None and not (math.isfinite(self.clip_db) and self.clip_db > 0):
            raise EvaluationError(f"must be positive; got {self.clip_db!r}", task=self.name, argument="clip_db")
        if self.permutation not in ("fixed", "best"):
            raise EvaluationError(
                f'must be "fixed" or "best"; got {self.permutation!r}', task=self.name, argument="permutation"
            )

    def __call__(
        self,
        preds: ArrayLike,
        labels: Any,
        *,
        where: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        lengths: ArrayLike | None = None,
    ) -> Any:
        """As `Metric.__call__`; ``lengths`` [N] says how many leading time steps of each signal are there."""
        labels = with_lengths((self,), labels, lengths, self.name)
        return super().__call__(preds, labels, where=where, weights=weights)

    def update(
        self,
        state: State,
        preds: ArrayLike,
        labels: Any,
        *,
        where: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        lengths: ArrayLike | None = None,
    ) -> State:
        """As `Metric.update`; ``lengths`` as for calling the metric."""
        labels = with_lengths((self,), labels, lengths, self.name)
        return super().update(state, preds, labels, where=where, weights=weights)

    def _arrange(self, preds: Any, labels: Any, task: str) -> tuple[Any, Any]:
        preds = as_planes(preds, self.iq_axis, "preds", task)
        if isinstance(labels, SignalBatch):
            return preds, SignalBatch(as_planes(labels.values, self.iq_axis, "labels", task), labels.lengths)
        return preds, as_planes(labels, self.iq_axis, "labels", task)

    def _sample_shape(self, preds: Any, labels: Any, task: str) -> tuple[int, ...]:
        lengths = labels.lengths if isinstance(labels, SignalBatch) else None
        labels = labels.values if isinstance(labels, SignalBatch) else labels
        if len(labels.shape) not in (2, 3):
            raise ShapeError(f"needs [N, T] or [N, K, T]; got {tuple(labels.shape)}", task=task, argument="labels")
        shape = same_arrays(preds, labels, 2, task)
        if shape[-1] < _MIN_STEPS:
            raise ShapeError(
                f"has {shape[-1]} time steps in shape {shape}; a signal has at least {_MIN_STEPS}, along the last axis",
                task=task,
                argument="preds",
            )
        if lengths is not None:
            if tuple(lengths.shape) != shape[:1]:
                raise ShapeError(f"needs shape {shape[:1]}; got {tuple(lengths.shape)}", task=task, argument="lengths")
            if not jnp.issubdtype(lengths.dtype, jnp.integer):
                raise LabelError(f"must be integers; got dtype {lengths.dtype}", task=task, argument="lengths")
        if self.permutation == "best" and not (len(shape) == 3 and shape[1] <= 4):
            raise ShapeError(
                f'permutation="best" needs [N, K, T] with K <= 4; got {shape}', task=task, argument="preds"
            )
        return shape[:-1]

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"log2": accumulate.LOG_SHAPE, "n_high": (2,), "n_low": (2,)}

    def _stats(self, preds: Any, labels: Any, mask: Any, weights: Any) -> State:
        lengths = labels.lengths if isinstance(labels, SignalBatch) else None
        labels = labels.values if isinstance(labels, SignalBatch) else labels
        shape, steps = preds.shape[:-1], preds.shape[-1]
        arrays = [x for x in (*parts(preds), *parts(labels)) if x is not None]
        arrays = list(common_float(*arrays))
        if len(arrays) == 4:
            # Four arrays of their own: fused into a reduction, strided reads of two planes cost five times as much.
            arrays = list(lax.optimization_barrier(tuple(arrays)))
        valid = jnp.ones(shape, bool)
        if lengths is not None:
            ok = (lengths >= _MIN_STEPS) & (lengths <= steps)
            valid = jnp.broadcast_to(ok.reshape(-1, *(1,) * (len(shape) - 1)), shape)
            there = lax.broadcasted_iota(jnp.int32, (shape[0], steps), 1) < lengths.astype(jnp.int32)[:, None]
            there = there.reshape(shape[0], *(1,) * (len(shape) - 1), steps)
            arrays = [jnp.where(there, x, 0) for x in arrays]
            lengths = jnp.broadcast_to(lengths.reshape(-1, *(1,) * (len(shape) - 1)), shape)
        half = len(arrays) // 2
        p, s = tuple(arrays[:half]), tuple(arrays[half:])
        if self.permutation == "best":
            found = self._best(p, s, mask, lengths)
        else:
            p_rows, s_rows = (tuple(x.reshape(-1, steps) for x in part) for part in (p, s))
            row_mask, row_lengths = (None if x is None else x.reshape(-1) for x in (mask, lengths))
            found = {k: v.reshape(shape) for k, v in self._levels(p_rows, s_rows, row_mask, row_lengths).items()}
        finite, silent = found["finite"], found["silent"]
        used = both(mask, finite & valid & ~silent)
        high, low = self._extremes(found)
        words = accumulate.log2_words((found["value"], found["exponent"]), used & ~high & ~low)
        return tally(
            mask,
            weights,
            shape,
            n_nonfinite=~finite & valid,
            n_invalid_label=~valid,
            n_excluded=finite & valid & silent,
            log2=words,
            n_high=used & high,
            n_low=used & low,
        )

    def _extremes(self, found: dict[str, Any]) -> tuple[Any, Any]:
        """Whether a signal stands at the upper or lower bound."""
        low = found["low"]
        high = found["high"] & ~low
        if self.clip_db is not None:
            level = self._level(found)
            high = high | (~low & (level >= self.clip_db))
            low = low | (~high & (level <= -self.clip_db))
        return high, low

    def _level(self, found: dict[str, Any]) -> Any:
        """dB of a signal that is at no bound."""
        value = found["value"]
        return value.dtype.type(_DB) * (jnp.log2(value) + found["exponent"].astype(value.dtype))

    def _best(self, p: Parts, s: Parts, mask: Any, lengths: Any) -> dict[str, Any]:
        """What `_levels` gives ``[N, K]``, of the best assignment of estimates to references."""
        n, k = p[0].shape[:2]
        there = jnp.ones((n, k), bool) if mask is None else mask
        pairs: dict[tuple[int, int], dict[str, Any]] = {}
        for i, j in itertools.product(range(k), repeat=2):
            counts = there[:, j] & (there[:, i] | (i == j))
            p_i, s_j = tuple(x[:, i] for x in p), tuple(x[:, j] for x in s)
            found = self._levels(p_i, s_j, counts, None if lengths is None else lengths[:, 0])
            high, low = self._extremes(found)
            bound = found["value"].dtype.type(self.clip_db or 4000.0)
            level = jnp.where(high, bound, jnp.where(low, -bound, self._level(found)))
            level = jnp.where(counts & found["finite"] & ~found["silent"], level, 0)
            # An estimate and a reference of which only one takes part cannot be matched.
            split = there[:, i] != there[:, j]
            pairs[i, j] = found | {"score": jnp.where(split, -jnp.inf, level), "counts": counts & ~split}
        orders = list(itertools.permutations(range(k)))
        scores = jnp.stack([sum(pairs[order[j], j]["score"] for j in range(k)) for order in orders])
        best = jnp.argmax(scores, axis=0)
        out: dict[str, list[Any]] = {name: [] for name in ("value", "exponent", "high", "low", "silent", "finite")}
        for j in range(k):
            chosen = jnp.asarray([order[j] for order in orders], jnp.int32)[best]
            for name, column in out.items():
                options = jnp.stack([pairs[i, j][name] for i in range(k)])
                if name == "finite":
                    column.append(jnp.all(jnp.stack([pairs[i, j][name] | ~pairs[i, j]["counts"] for i in range(k)]), 0))
                else:
                    column.append(jnp.take_along_axis(options, chosen[None], axis=0)[0])
        return {name: jnp.stack(column, axis=1) for name, column in out.items()}

    def _levels(self, p: Parts, s: Parts, mask: Any, lengths: Any) -> dict[str, Any]:
        """Target over distortion energy of every row, and what is special about it.

        Args:
          p, s: parts ``[n, T]`` of estimates and references. mask: rows that matter, or None.
          lengths: time steps there are ``[n]``, or None; entries beyond are zero.

        Returns:
          dict of ``[n]``: the ratio as a scaled float (``value``, ``exponent``), ``high`` (no distortion), ``low`` (no
          target), ``silent`` (reference), ``finite``.
        """
        dtype = p[0].dtype
        info = jnp.finfo(dtype)
        least = dtype.type(p[0].shape[-1] * float(info.tiny) * 2.0 ** (info.nmant + 3))
        most = dtype.type(float(info.max) * 2.0**-8)

        plain = lax.optimization_barrier(self._energies(p, s, lengths))
        inside = jnp.ones(plain[0].shape, bool)
        for energy in plain[:3]:
            inside = inside & (energy > least) & (energy < most)
        true = jnp.ones(inside.shape, bool)
        common = common_zero(*p, *s, lengths)

        def keep(p: Parts, s: Parts, plain: Any) -> Any:
            del p, s
            return tie(common, (*plain, true))

        def scaled(p: Parts, s: Parts, plain: Any) -> Any:
            # Scaling either side by a power of two changes no ratio.
            del plain
            finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x), axis=1) for x in (*p, *s)]), axis=0)
            sides = []
            for part in (p, s):
                rows = jnp.where(finite[:, None], jnp.concatenate(part, axis=1), 0)
                rows, _, _ = energies.row_scale(rows)
                sides.append(tuple(jnp.split(rows, len(part), axis=1)))
            return tie(common, (*self._energies(sides[0], sides[1], lengths), finite))

        good = jnp.all(inside if mask is None else inside | ~mask)
        target, distortion, reference, silent, finite = lax.cond(good, keep, scaled, p, s, plain)
        high, low = distortion == 0, target == 0
        one = jnp.ones((), dtype)
        value = jnp.where(low | high, one, target) / jnp.where(low | high, one, distortion)
        return {
            "value": value,
            "exponent": jnp.zeros(value.shape, jnp.int32),
            "high": high,
            "low": low,
            "silent": silent | (reference == 0),
            "finite": finite,
        }

    def _energies(self, p: Parts, s: Parts, lengths: Any) -> tuple[Any, ...]:
        """Energies ``[n]`` of target, distortion and reference, and whether the reference was only its mean."""
        removed = jnp.zeros((), p[0].dtype)
        if self.zero_mean:
            p, _ = _centred(p, lengths)
            s, removed = _centred(s, lengths)
        products = [sum(a * b for a, b in zip(p, s)), sum(b * b for b in s)]
        if len(p) == 2 and self.phase_invariant:
            products.append(p[1] * s[0] - p[0] * s[1])
        dot, reference, *cross = energies.row_sums(products)
        one = jnp.ones((), reference.dtype)
        alpha = lax.optimization_barrier(tuple(x / jnp.where(reference > 0, reference, one) for x in (dot, *cross)))
        gain = [a[:, None] for a in alpha]
        residual = [a - gain[0] * b for a, b in zip(p, s)]
        if cross:
            residual = [residual[0] + gain[1] * s[1], residual[1] - gain[1] * s[0]]
        (distortion,) = energies.row_sums([sum(x * x for x in residual)])
        target = sum(a * b for a, b in zip(alpha, (dot, *cross)))
        return target, distortion, reference, reference < reference.dtype.type(_SILENT) * removed

    def _value(self, state: Any, xp: Any) -> tuple[Any, dict[str, Any]]:
        used = used_float(state, xp)
        f = used.dtype.type
        ordinary = limbs.subtract(limbs.subtract(used_limbs(state), state["n_high"]), state["n_low"])
        total = f(_DB) * accumulate.log2_total(state["log2"], ordinary, xp)
        high, low = limbs.to_float(state["n_high"], xp), limbs.to_float(state["n_low"], xp)
        if self.clip_db is not None:
            return mean(total + f(self.clip_db) * (high - low), used, xp), {}
        value = mean(total, used, xp)
        value = xp.where(high > 0, f(np.inf), value)
        return xp.where(low > 0, xp.where(high > 0, f(np.nan), f(-np.inf)), value), {}

    def _explain(self, preds: Any, labels: Any, mask: Any, task: str) -> None:
        preds, labels = self._arrange(preds, labels, task)
        preds = np.asarray(preds)
        if isinstance(labels, SignalBatch):
            lengths, labels = np.asarray(labels.lengths), np.asarray(labels.values)
            there = np.ones(lengths.shape, bool) if mask is None else np.asarray(mask).reshape(len(lengths), -1).any(1)
            bad = there & ((lengths < _MIN_STEPS) | (lengths > preds.shape[-1]))
            if bad.any():
                raise LabelError(
                    f"must lie in {_MIN_STEPS}..{preds.shape[-1]}",
                    task=task,
                    argument="lengths",
                    count=int(bad.sum()),
                    index=checks.first_index(bad),
                )
            beyond = np.arange(preds.shape[-1]) >= lengths.reshape(-1, *(1,) * (preds.ndim - 1))
            preds, labels = (np.where(beyond, 0, x) for x in (preds, labels))
        check_finite(preds, np.asarray(labels), mask, task, "a signal")

    def _undefined(self, state: Any, task: str) -> EvaluationError:
        silent = limbs.to_int(state["n_excluded"])
        if limbs.to_int(used_limbs(state)):
            return EvaluationError("the mean of +inf and -inf is undefined; set clip_db", task=task, argument="clip_db")
        return DegenerateLabelsError("every reference is silent", task=task, argument="labels", count=silent)


def _centred(x: Parts, lengths: Any) -> tuple[Parts, Any]:
    """Rows without their mean over the time steps that are there, and the energy ``[n]`` this took away."""
    n, steps = x[0].shape
    count = jnp.full((n,), steps) if lengths is None else jnp.maximum(lengths, 1)
    count = count.astype(x[0].dtype)
    means = lax.optimization_barrier(tuple(m / count for m in energies.row_sums(list(x))))
    out = tuple(part - m[:, None] for part, m in zip(x, means))
    if lengths is not None:
        there = lax.broadcasted_iota(jnp.int32, (n, steps), 1) < lengths[:, None]
        out = tuple(jnp.where(there, part, 0) for part in out)
    return out, count * sum(m * m for m in means)
