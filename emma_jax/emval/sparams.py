"""Sanity of S-parameters, and bringing two sets of them onto common ground before they are compared.

Goal: say whether S-parameters can belong to a passive, reciprocal, causal device before a metric is believed, and never
compare two sets that refer to different impedances, ports or frequencies without saying so.

Conventions. ``s`` is [F, i, j]: the wave leaving port i+1 for a unit wave into port j+1; fewer columns than rows mean
partial excitation. The time factor is exp(+j omega t), so a delay turns clockwise with frequency. Reference impedances
are real; power waves, pseudo-waves and travelling waves agree there, with a complex one they differ and code that does
not know which was meant would be wrong silently, so that is an error.

Quality figures follow IEEE 370-2020 (initial, frequency-domain figures), grades in percent:

  ============  ==============  ========
  grade         PQM, RQM        CQM
  ============  ==============  ========
  good          above 99.9      above 80
  acceptable    above 99        above 50
  inconclusive  above 80        above 20
  poor          80 and below    20 and below
  ============  ==============  ========
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emma_jax.errors import EvaluationError, NonFiniteError, ShapeError
from emma_jax.io.touchstone import Touchstone
from emma_jax.scores import json_number

__all__ = [
    "Passivity",
    "Quality",
    "Reciprocity",
    "SParameterCheck",
    "align",
    "causality",
    "check_sparams",
    "common_reference",
    "grade",
    "on_grid",
    "passivity",
    "quality",
    "reciprocity",
    "reference_impedance",
    "renormalize",
    "select_ports",
]

_PASSIVE = 1e-5  # IEEE 370 leaves this much above 1 to rounding in files
_RECIPROCAL = 1e-6
_GRADES = ("good", "acceptable", "inconclusive", "poor")
_LIMITS = {"pqm": (99.9, 99.0, 80.0), "rqm": (99.9, 99.0, 80.0), "cqm": (80.0, 50.0, 20.0)}


@dataclass(frozen=True)
class Passivity:
    """Whether the device gives out no more power than it takes in: the largest singular value of S is at most 1.

    Attributes:
      largest_singular_value: over all frequencies; 1 for a lossless device.
      worst_index: frequency index where it occurs.
      worst_frequency_hz: that frequency, None where none were given.
      violating_fraction: fraction of frequencies with a largest singular value above 1 + ``tolerance``.
      passive: no frequency violates.
      tolerance: what counts as rounding.
    """

    largest_singular_value: float
    worst_index: int
    worst_frequency_hz: float | None
    violating_fraction: float
    passive: bool
    tolerance: float


@dataclass(frozen=True)
class Reciprocity:
    """Whether S equals its transpose.

    Attributes:
      max_difference: largest |S_ij - S_ji|; 0 for a one-port.
      worst_ports: the ports (i, j), counted from 1, where it occurs.
      worst_index: the frequency index.
      worst_frequency_hz: that frequency, None where none were given.
      reciprocal: ``max_difference`` is at most ``tolerance``.
      tolerance: what counts as rounding.
    """

    max_difference: float
    worst_ports: tuple[int, int]
    worst_index: int
    worst_frequency_hz: float | None
    reciprocal: bool
    tolerance: float


@dataclass(frozen=True)
class Quality:
    """IEEE 370 quality figures in percent, 100 is best; NaN and grade None where undefined.

    Attributes:
      pqm: passivity figure.
      rqm: reciprocity figure.
      cqm: causality figure, the minimum over entries.
      cqm_worst_ports: the entry (i, j), counted from 1, that gives ``cqm``.
      grades: "good", "acceptable", "inconclusive" or "poor" by figure.
    """

    pqm: float
    rqm: float
    cqm: float
    cqm_worst_ports: tuple[int, int]
    grades: dict[str, str | None]


@dataclass(frozen=True)
class SParameterCheck:
    """All checks of one set of S-parameters; ``reciprocity`` is None under partial excitation."""

    n_frequencies: int
    n_ports: int
    passivity: Passivity
    reciprocity: Reciprocity | None
    quality: Quality

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON content: NaN becomes null."""
        return {key: _jsonable(value) for key, value in asdict(self).items()}


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _jsonable(v) for k, v in value.items()}
    if isinstance(value, tuple):
        return list(value)
    return json_number(value) if isinstance(value, float) else value


def _checked(s: ArrayLike, square: bool = False) -> NDArray[np.complex128]:
    """``s`` as complex128 [F, i, j]; finite, not empty, square where asked for."""
    array = np.asarray(s)
    if array.ndim != 3 or 0 in array.shape or array.shape[2] > array.shape[1]:
        raise ShapeError(f"S-parameters have to be [F, i, j] with j <= i, not {list(array.shape)}", argument="s")
    if square and array.shape[1] != array.shape[2]:
        raise ShapeError(f"needs every port excited, not {array.shape[2]} of {array.shape[1]}", argument="s")
    array = array.astype(np.complex128)
    bad = ~np.isfinite(array)
    if bad.any():
        first = tuple(int(k) for k in np.argwhere(bad)[0])
        raise NonFiniteError("not finite", argument="s", count=int(bad.sum()), index=first)
    return array


def _frequency(frequency_hz: ArrayLike | None, n: int) -> NDArray[np.float64] | None:
    if frequency_hz is None:
        return None
    f = np.asarray(frequency_hz, np.float64)
    if f.shape != (n,):
        raise ShapeError(f"{list(f.shape)} frequencies for {n} matrices", argument="frequency_hz")
    return f


def _at(frequency: NDArray[np.float64] | None, index: int) -> float | None:
    return None if frequency is None else float(frequency[index])


def _norm(s: NDArray[np.complex128]) -> NDArray[np.float64]:
    """PM(f) = ||S(f)||_2, the largest singular value."""
    return np.asarray(np.linalg.svd(s, compute_uv=False)[:, 0])


def passivity(s: ArrayLike, frequency_hz: ArrayLike | None = None, *, tolerance: float = _PASSIVE) -> Passivity:
    """Passivity: sigma_max(S(f)) <= 1 at every frequency, where each frequency is one SVD.

    Under partial excitation the columns that are there give a lower bound of sigma_max, so a violation stays one.

    Args:
      s: [F, i, j] complex.
      frequency_hz: [F], to name the worst one.
      tolerance: how far above 1 is rounding.

    Returns:
      A `Passivity`.

    Raises:
      ShapeError, NonFiniteError: for arrays that are no S-parameters.
    """
    matrix = _checked(s)
    f = _frequency(frequency_hz, len(matrix))
    sigma = _norm(matrix)
    worst = int(np.argmax(sigma))
    violating = sigma > 1 + tolerance
    return Passivity(float(sigma[worst]), worst, _at(f, worst), float(violating.mean()), not violating.any(), tolerance)


def reciprocity(s: ArrayLike, frequency_hz: ArrayLike | None = None, *, tolerance: float = _RECIPROCAL) -> Reciprocity:
    """Reciprocity: max over f, i, j of |S_ij - S_ji|.

    Args:
      s: [F, n, n] complex, every port excited.
      frequency_hz: [F], to name the worst one.
      tolerance: largest difference that is rounding.

    Returns:
      A `Reciprocity`.

    Raises:
      ShapeError, NonFiniteError: for arrays that are no square S-parameters.
    """
    matrix = _checked(s, square=True)
    f = _frequency(frequency_hz, len(matrix))
    difference = np.abs(matrix - matrix.swapaxes(1, 2))
    k, i, j = (int(v) for v in np.unravel_index(np.argmax(difference), difference.shape))
    worst = float(difference[k, i, j])
    return Reciprocity(worst, (i + 1, j + 1), k, _at(f, k), worst <= tolerance, tolerance)


def causality(s: ArrayLike) -> NDArray[np.float64]:
    """Causality figure per entry: how much of the turning of S_ij(f) in the complex plane is clockwise.

    With V_k = S_{k+1} - S_k and R_k = Re V_{k+1} Im V_k - Im V_{k+1} Re V_k,

      CQM_ij = 100 sum_{R_k > 0} R_k / sum |R_k|,

    and 100 where nothing turns. The points have to lie so close that the phase of a step stays below pi; an entry that
    is constant up to rounding turns at random and scores about 50.

    Args:
      s: [F, i, j] complex, frequencies ascending.

    Returns:
      [i, j] percent, higher is better; NaN where there are fewer than three frequencies.

    Raises:
      ShapeError, NonFiniteError: for arrays that are no S-parameters.

    Reference: IEEE 370-2020, annex on S-parameter quality.
    """
    matrix = _checked(s)
    if len(matrix) < 3:
        return np.full(matrix.shape[1:], np.nan)
    # The ratio does not depend on the scale of an entry; without it the products of tiny entries underflow. A power of
    # two leaves every digit as it is.
    scale = np.ldexp(1.0, -np.frexp(np.abs(matrix).max(axis=0))[1])
    step = np.diff(matrix * scale, axis=0)
    turn = -(step[1:] * step[:-1].conj()).imag
    total = np.abs(turn).sum(axis=0)
    clockwise = np.where(turn > 0, turn, 0).sum(axis=0)
    return np.where(total > 0, 100 * clockwise / np.where(total > 0, total, 1), 100.0)


def grade(figure: str, value: float) -> str | None:
    """Grade of a quality figure (table above), None for NaN.

    Args:
      figure: "pqm", "rqm" or "cqm".
      value: percent.
    """
    if math.isnan(value):
        return None
    return _GRADES[sum(value <= limit for limit in _LIMITS[figure])]


def quality(s: ArrayLike) -> Quality:
    """IEEE 370 quality figures with their grades. For Nf frequencies and n ports:

      PM(f) = ||S(f)||_2,  PW = (PM - 1.00001)/0.1 where PM > 1.00001, else 0,  PQM = 100 max(Nf - sum PW, 0)/Nf
      RM(f) = sum_{k != m} |S_km - S_mk| / (n(n-1)),  RW = (RM - 1e-6)/0.1 where RM > 1e-6, else 0,  RQM likewise
      CQM = the minimum of `causality` over the entries

    A one-port is reciprocal (RQM 100). RQM is NaN under partial excitation.

    Args:
      s: [F, i, j] complex, frequencies ascending.

    Returns:
      A `Quality`.

    Raises:
      ShapeError, NonFiniteError: for arrays that are no S-parameters.

    Reference: IEEE 370-2020, annex on S-parameter quality.
    """
    matrix = _checked(s)
    n_f, n, excited = matrix.shape

    def figure(measure: NDArray[np.float64], limit: float) -> float:
        weight = np.where(measure > limit, (measure - limit) / 0.1, 0.0)
        return float(100 * max(n_f - weight.sum(), 0.0) / n_f)

    pqm = figure(_norm(matrix), 1 + _PASSIVE)
    rqm = math.nan
    if n == excited:
        difference = np.abs(matrix - matrix.swapaxes(1, 2)).sum(axis=(1, 2))
        rqm = figure(difference / max(n * (n - 1), 1), _RECIPROCAL)
    per_entry = causality(matrix)
    i, j = (int(v) for v in np.unravel_index(np.argmin(per_entry), per_entry.shape))
    figures = {"pqm": pqm, "rqm": rqm, "cqm": float(per_entry[i, j])}
    return Quality(**figures, cqm_worst_ports=(i + 1, j + 1), grades={k: grade(k, v) for k, v in figures.items()})


def check_sparams(s: ArrayLike, frequency_hz: ArrayLike | None = None) -> SParameterCheck:
    """Passivity, reciprocity, causality and the IEEE 370 figures of one set of S-parameters.

    Args:
      s: [F, i, j] complex, frequencies ascending.
      frequency_hz: [F], to name the worst ones.

    Returns:
      An `SParameterCheck`.

    Raises:
      ShapeError, NonFiniteError: for arrays that are no S-parameters.
    """
    matrix = _checked(s)
    square = matrix.shape[1] == matrix.shape[2]
    return SParameterCheck(
        n_frequencies=len(matrix),
        n_ports=matrix.shape[1],
        passivity=passivity(matrix, frequency_hz),
        reciprocity=reciprocity(matrix, frequency_hz) if square else None,
        quality=quality(matrix),
    )


def _real_impedance(z0: ArrayLike, shape: tuple[int, ...], argument: str) -> NDArray[np.float64]:
    """Positive real impedances broadcast to [F, n]."""
    z = np.asarray(z0)
    if np.iscomplexobj(z):
        if np.any(z.imag != 0):
            raise EvaluationError(
                "complex reference impedances, where power waves and pseudo-waves differ; renormalize with the tool "
                "that made the data",
                argument=argument,
            )
        z = z.real
    z = z.astype(np.float64)
    if z.shape not in ((), shape[1:2], shape[:2]):
        raise ShapeError(f"impedances {list(z.shape)} for S-parameters {list(shape)}", argument=argument)
    bad = ~(np.isfinite(z) & (z > 0))
    if bad.any():
        raise EvaluationError("impedances have to be positive and finite", argument=argument, count=int(bad.sum()))
    return np.broadcast_to(z, shape[:2])


def renormalize(s: ArrayLike, z_from: ArrayLike, z_to: ArrayLike) -> NDArray[np.complex128]:
    """S-parameters that refer to ``z_from``, referred to ``z_to``; both real, for any of the wave definitions.

    Voltage and current of each port stay, a = (v + z i)/(2 sqrt z) and b = (v - z i)/(2 sqrt z) change:

      P = diag((z' + z)/(2 sqrt(z z'))),  Q = diag((z - z')/(2 sqrt(z z'))),  S' = (Q + P S)(P + Q S)^-1

    Args:
      s: [F, n, n] complex, every port excited.
      z_from: ohms, a scalar, [n] or [F, n].
      z_to: ohms, the same.

    Returns:
      [F, n, n] complex128.

    Raises:
      ShapeError, NonFiniteError: for arrays that are no square S-parameters.
      EvaluationError: complex or non-positive impedances, or a device without S-parameters at ``z_to``.
    """
    matrix = _checked(s, square=True)
    z, z_new = _real_impedance(z_from, matrix.shape, "z_from"), _real_impedance(z_to, matrix.shape, "z_to")
    root = 2 * np.sqrt(z * z_new)
    p, q = ((z_new + z) / root)[..., None], ((z - z_new) / root)[..., None]
    eye = np.eye(matrix.shape[1])
    try:
        # A B^-1 solves B^T X^T = A^T
        new = np.linalg.solve((p * eye + q * matrix).swapaxes(1, 2), (q * eye + p * matrix).swapaxes(1, 2))
    except np.linalg.LinAlgError:
        new = np.full_like(matrix, np.nan)
    if not np.isfinite(new).all():
        raise EvaluationError("the device has no S-parameters at the new reference impedance", argument="z_to")
    return np.ascontiguousarray(new.swapaxes(1, 2))


def reference_impedance(data: Touchstone) -> NDArray[np.float64]:
    """The reference impedances of a file [ports], in ohms.

    Raises:
      EvaluationError: comments (of HFSS) that state other impedances than the option line.
    """
    z = data.port_impedance
    if z is not None and np.any(np.abs(z - data.z0) > 1e-6 * data.z0):
        k, i = (int(v) for v in np.argwhere(np.abs(z - data.z0) > 1e-6 * data.z0)[0])
        raise EvaluationError(
            f"the comments state a port impedance of {z[k, i]:.6g} ohm for port {i + 1}, the option line says "
            f"{data.z0[i]:.6g}: export with renormalization",
            argument=data.name,
        )
    return data.z0


def common_reference(truth: Touchstone, pred: Touchstone) -> tuple[Touchstone, Touchstone]:
    """Both at the reference impedances of ``truth``: ``pred`` is renormalized where its own differ.

    Returns:
      ``(truth, pred)``; ``pred`` itself where nothing had to change.

    Raises:
      ShapeError: different numbers of ports.
      EvaluationError: comments that state other impedances than the file's option line, or as `renormalize`.
    """
    if truth.n_ports != pred.n_ports:
        raise ShapeError(f"{pred.n_ports} ports, the truth {truth.name} has {truth.n_ports}", argument=pred.name)
    z_truth, z_pred = reference_impedance(truth), reference_impedance(pred)
    if np.array_equal(z_truth, z_pred):
        return truth, pred
    return truth, replace(pred, s=renormalize(pred.s, z_pred, z_truth), z0=z_truth, port_impedance=None)


def select_ports(data: Touchstone, ports: Sequence[int]) -> Touchstone:
    """The S-parameters among some ports, the others matched.

    Args:
      data: of n ports.
      ports: counted from 1, in the order wanted, each at most once.

    Raises:
      ShapeError: a port that is not there, or twice.
    """
    index = [p - 1 for p in ports]
    if not index or len(set(index)) != len(index) or not all(0 <= k < data.n_ports for k in index):
        raise ShapeError(f"ports {list(ports)} of a device with ports 1 to {data.n_ports}", argument=data.name)
    impedance = None if data.port_impedance is None else data.port_impedance[:, index]
    return replace(data, s=data.s[:, index][:, :, index], z0=data.z0[index], port_impedance=impedance)


def on_grid(data: Touchstone, frequency_hz: ArrayLike, *, rtol: float = 1e-9) -> Touchstone:
    """The points of ``data`` at given frequencies. Points are picked, never interpolated.

    Args:
      data: a file's content.
      frequency_hz: [G], each of which ``data`` has to hold.
      rtol: relative difference that is rounding in the files.

    Returns:
      ``data`` at those points, with the frequencies given.

    Raises:
      ShapeError: naming the first frequency that is missing, and how many are.
    """
    wanted = np.asarray(frequency_hz, np.float64)
    have = data.frequency_hz
    right = np.clip(np.searchsorted(have, wanted), 1, max(have.size - 1, 1))
    nearest = np.where(np.abs(have[right - 1] - wanted) <= np.abs(have[right % have.size] - wanted), right - 1, right)
    nearest = np.minimum(nearest, have.size - 1)
    missing = ~(np.abs(have[nearest] - wanted) <= rtol * np.abs(wanted))
    if missing.any():
        k = int(np.argmax(missing))
        raise ShapeError(
            f"frequency grids differ: no point at {wanted[k]:.12g} Hz (nearest {have[nearest[k]]:.12g} Hz)",
            argument=data.name,
            count=int(missing.sum()),
            index=k,
        )
    impedance = None if data.port_impedance is None else data.port_impedance[nearest]
    return replace(data, frequency_hz=wanted, s=data.s[nearest], port_impedance=impedance)


def align(
    truth: Touchstone, pred: Touchstone, *, ports: Sequence[int] | None = None, pick: bool = False
) -> tuple[Touchstone, Touchstone]:
    """Two files made comparable: the same ports, frequencies and reference impedances, or an error.

    Args:
      truth: simulation or measurement.
      pred: prediction.
      ports: score these ports (from 1) of both; by default all, which have to be as many.
      pick: let ``pred`` have further frequencies; by default the grids have to be the same, up to rounding.

    Returns:
      ``(truth, pred)`` with equal shapes.

    Raises:
      ShapeError, EvaluationError: as `select_ports`, `on_grid`, `common_reference`.
    """
    # Renormalize before ports are dropped: what the other ports see changes with their reference.
    if ports is not None and truth.n_ports != pred.n_ports:
        truth, pred = select_ports(truth, ports), select_ports(pred, ports)
        ports = None
    truth, pred = common_reference(truth, pred)
    if ports is not None:
        truth, pred = select_ports(truth, ports), select_ports(pred, ports)
    if not pick and truth.frequency_hz.size != pred.frequency_hz.size:
        raise ShapeError(
            f"frequency grids differ: {pred.frequency_hz.size} points, the truth has {truth.frequency_hz.size}",
            argument=pred.name,
        )
    return truth, on_grid(pred, truth.frequency_hz)
