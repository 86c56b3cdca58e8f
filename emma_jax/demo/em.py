"""``emma-jax demo --em``: four electromagnetic scenes, scored, with what theory says beside every number.

**Ring slot.** Reflection of a ring slot aperture from 75 to 110 GHz, simulated and measured; both files ship with
scikit-rf. There is no theory of that difference. What stands beside the scores is their definition, evaluated in
float64.

**Near field of a Hertzian dipole.** With moment ``I l`` along the unit vector d, at distance R in direction n, time
factor exp(+j omega t),

    H = j k I l / (4 pi R) e^(-jkR) (d x n) (1 + 1/(jkR))
    E = j eta k I l / (4 pi R) e^(-jkR) { (n (n.d) - d) [1 + 1/(jkR) - 1/(kR)^2] + 2 n (n.d) [1/(jkR) - 1/(kR)^2] },

on the six faces of a cube around it. Three predictions are wrong in a known way:

- *gain and phase*: ``g e^(j phi) F``, so rel_l2 = local_q50 = ``|g e^(j phi) - 1|`` and the cosine is cos phi.
- *tilt*: a moment turned by alpha. The field is linear in the moment and the cube looks the same along every axis, so
  the energy of a field is proportional to that of its moment, and rel_l2 = 2 sin(alpha / 2).
- *noise*: complex Gaussian, with eps^2 of the energy at each probe. The energy of the error over that of the field has
  the law eps^2 chi^2_6 / 6, so local_q50 = eps sqrt(median(chi^2_6) / 6), and rel_l2 = eps.

**Channel feedback.** Channels of L paths with geometric delays (mean ``1/(1 - q)`` taps) and large-scale fading that is
log-normal with standard deviation s dB. A *truncated DFT code* keeps the first K of N delay taps and loses the share
``(q^K - q^N) / (1 - q^N)`` of the energy. An estimate in noise of common power has NMSE = -SNR as the ratio of sums;
the mean of per-user ratios is larger by ``10 log10 exp((s ln(10) / 10)^2)`` dB, because weak users count as much as
strong ones.

**Source separation.** Two sources at two antennas, ``x = A s + n`` with noise variance v. Antenna k alone gives
``|a_kk|^2 / (|a_kj|^2 + v)``; zero forcing gives ``1 / (v [(A^H A)^-1]_kk)``; the minimum mean square error filter
``1 / [(I + A^H A / v)^-1]_kk - 1``. A scale that is wrong costs nothing in SI-SDR, so these ratios are its values.

References: Balanis, "Antenna Theory", 4th ed., chapter 4 (dipole); Wen, Shih and Jin, "Deep Learning for Massive MIMO
CSI Feedback", IEEE Wireless Commun. Lett. 7(5), 2018 (truncation in delay); Le Roux et al., "SDR - half-baked or well
done?", ICASSP 2019 (SI-SDR).
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from emma_jax.demo.run import check_seed, fresh_folder
from emma_jax.demo.scene import Array, complex_normal
from emma_jax.errors import EvaluationError
from emma_jax.io import write_npz

if TYPE_CHECKING:
    from rich.console import Console

    from emma_jax.scores import Scores

__all__ = [
    "Row",
    "channels",
    "cube_probes",
    "dipole_field",
    "kept_taps",
    "lost_share",
    "mixtures",
    "ring_slot_files",
    "run_em_demo",
    "separate",
]

ETA = 376.730313412
"""Impedance of free space, ohms."""

SPEED_OF_LIGHT = 299792458.0

GAIN, PHASE_DEG, TILT_DEG, NOISE = 1.12, 20.0, 10.0, 0.1
FREQUENCY_HZ = np.array([1.5e9, 2.4e9, 5.8e9])
HALF_SIDE_M, PROBES_PER_EDGE = 0.03, 40

NUM_USERS, NUM_ANTENNAS, NUM_TAPS, NUM_PATHS, NUM_KEPT = 2000, 16, 128, 10, 32
DELAY_DECAY = math.exp(-1 / 14)
FADING_DB, ESTIMATE_SNR_DB = 4.0, 10.0

NUM_MIXTURES, NUM_SAMPLES, NOISE_VARIANCE = 100, 8192, 0.01


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
      scene, prediction, metric: what was scored, by what.
      value: the score.
      unit: of the value.
      theory: what it should be.
      tolerance: how far from it chance (4 standard errors) or rounding may bring it.
      why: the theory in a few words.
    """

    scene: str
    prediction: str
    metric: str
    value: float
    unit: str
    theory: float
    tolerance: float
    why: str

    @property
    def agrees(self) -> bool:
        """Whether the value is within the tolerance."""
        return abs(self.value - self.theory) <= self.tolerance


# --- ring slot -------------------------------------------------------------------------------------------------------


def ring_slot_files() -> tuple[Path, Path]:
    """The measured one-port and the simulated two-port that ship with scikit-rf.

    Raises:
      ImportError: scikit-rf is not installed, or came without its data.
    """
    spec = importlib.util.find_spec("skrf")
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        files = tuple(Path(folder) / "data" / name for name in ("ring slot measured.s1p", "ring slot.s2p"))
        if all(file.is_file() for file in files):
            return files[0], files[1]
    raise ImportError("the ring slot ships with scikit-rf: pip install 'emma-jax[em]'")


def _sparams_by_definition(truth: Array, pred: Array) -> dict[str, float]:
    """The EMVal-SP metrics in float64, for entries that are not zero."""
    t, p = (x.ravel() for x in (truth, pred))
    level, level_hat = (20 * np.log10(np.abs(x)) for x in (t, p))
    weight = 1 / (1 + np.exp(-(level + 20) / 2))
    return {
        "real_imag_rmse": float(np.sqrt((np.abs(p - t) ** 2).mean() / 2)),
        "mag_wmae": float((weight * np.abs(level_hat - level)).sum() / weight.sum()),
        "ph_wmae": float((weight * np.abs(np.angle(p / t))).sum() / weight.sum()),
    }


def _ring_slot(root: Path, rng: np.random.Generator) -> Iterator[Row]:
    from emma_jax.emval import load_files
    from emma_jax.evaluate import evaluate

    measured, simulated = ring_slot_files()
    for source, name in ((measured, "measured.s1p"), (simulated, "simulated.s2p")):
        (root / name).write_bytes(source.read_bytes())
    pair = load_files(measured, simulated, "SP", ports=[1], pick=True)
    assert pair.sparams is not None
    truth, pred = pair.sparams
    theory = _sparams_by_definition(truth.s, pred.s)
    scores = evaluate("EMVal-SP", pred.s, truth.s)
    expected = {name: (value, 1e-6, "its definition in float64") for name, value in theory.items()}
    yield from _rows("ring slot", "simulation for measurement", scores, expected)


# --- dipole ----------------------------------------------------------------------------------------------------------


def dipole_field(position_m: Array, frequency_hz: Array, moment: Array) -> tuple[Array, Array]:
    """Electric and magnetic field of Hertzian dipoles at the origin, in free space.

    Args:
      position_m: [P, 3] meters, none of them the origin.
      frequency_hz: [F] hertz.
      moment: [J, 3] ``I l`` in ampere meters, one dipole per excited port.

    Returns:
      (E, H), each [J, F, P, 3] complex128, in V/m and A/m.
    """
    distance = np.linalg.norm(position_m, axis=1)
    n = position_m / distance[:, None]
    k = 2 * np.pi * np.asarray(frequency_hz)[:, None] / SPEED_OF_LIGHT
    kr = k * distance
    wave = (1j * k / (4 * np.pi * distance) * np.exp(-1j * kr))[None, :, :, None]
    inverse = (1 / (1j * kr))[None, :, :, None]
    d = np.asarray(moment)[:, None, None, :]
    along = n * (n * d).sum(axis=-1, keepdims=True)
    e = ETA * wave * ((along - d) * (1 + inverse + inverse**2) + 2 * along * (inverse + inverse**2))
    h = wave * np.cross(d, n) * (1 + inverse)
    return e, h


def cube_probes(half_side_m: float, per_edge: int) -> Array:
    """Probes on the six faces of a cube, [6 per_edge^2, 3] meters; the set looks the same along x, y and z."""
    line = ((np.arange(per_edge) + 0.5) / per_edge * 2 - 1) * half_side_m
    u, v = (x.ravel() for x in np.meshgrid(line, line, indexing="ij"))
    side = np.full_like(u, half_side_m)
    faces = [np.roll(np.stack([u, v, sign * side], axis=1), axis, axis=1) for axis in range(3) for sign in (-1, 1)]
    return np.concatenate(faces)


def median_local_noise() -> float:
    """sqrt(median(chi^2_6) / 6): chi^2_6 / 2 has the distribution function 1 - e^-x (1 + x + x^2 / 2)."""
    low, high = 0.0, 10.0
    for _ in range(60):
        x = (low + high) / 2
        low, high = (x, high) if math.exp(-x) * (1 + x + x * x / 2) > 0.5 else (low, x)
    return math.sqrt(low / 3)


def _near_field(root: Path, rng: np.random.Generator) -> Iterator[Row]:
    from emma_jax.evaluate import evaluate

    position = cube_probes(HALF_SIDE_M, PROBES_PER_EDGE)
    moment = 1e-3 * np.eye(3)[[0, 2]]
    truth = _fields(dipole_field(position, FREQUENCY_HZ, moment))
    _save_fields(root / "truth.npz", truth, position)
    alpha = math.radians(TILT_DEG)
    tilt = np.array([[math.cos(alpha), 0, -math.sin(alpha)], [0, 1, 0], [math.sin(alpha), 0, math.cos(alpha)]])
    factor = GAIN * np.exp(1j * math.radians(PHASE_DEG))
    count = truth["E"].size // 3
    preds: dict[str, Callable[[], dict[str, Array]]] = {
        "gain and phase": lambda: {name: factor.astype(np.complex64) * x for name, x in truth.items()},
        "tilt": lambda: _fields(dipole_field(position, FREQUENCY_HZ, moment @ tilt.T)),
        "noise": lambda: {name: _with_noise(x, rng) for name, x in truth.items()},
    }
    off, q = abs(factor - 1), median_local_noise()
    # Density of sqrt(chi^2_6 / 6) at its median, for the standard error 1 / (2 density sqrt(n)) of a median.
    density = 3**3 * q**5 * math.exp(-3 * q * q)
    expected: dict[str, dict[str, tuple[float, float, str]]] = {
        "gain and phase": {
            "rel_l2": (off, 1e-6, "|g e^jφ − 1|"),
            "local_q50": (off, 1e-6, "|g e^jφ − 1|"),
            "local_cos_q50": (math.cos(math.radians(PHASE_DEG)), 1e-6, "cos φ"),
        },
        "tilt": {"rel_l2": (2 * math.sin(alpha / 2), 1e-6, "2 sin(α/2)")},
        "noise": {
            # The energy of the error is a sum over probes whose fields span orders of magnitude.
            "rel_l2": (NOISE, 0.02 * NOISE, "ε"),
            "local_q50": (NOISE * q, 4 * NOISE / (2 * density * math.sqrt(count)), "ε √(median χ²₆ / 6)"),
        },
    }
    for name, make in preds.items():
        pred = make()
        _save_fields(root / f"{name.replace(' ', '_')}.npz", pred, position)
        by_field = {f"{metric}_{field}": line for metric, line in expected[name].items() for field in "EH"}
        yield from _rows("dipole", name, evaluate("EMVal-NF", pred, truth), by_field)  # type: ignore[arg-type]


def _fields(pair: tuple[Array, Array]) -> dict[str, Array]:
    return {name: x.astype(np.complex64) for name, x in zip("EH", pair)}


def _with_noise(field: Array, rng: np.random.Generator) -> Array:
    """The field with complex Gaussian noise of ``NOISE``^2 times the energy at each probe."""
    size = np.linalg.norm(field, axis=-1, keepdims=True)
    result: Array = (field + NOISE / math.sqrt(3) * size * complex_normal(rng, field.shape)).astype(np.complex64)
    return result


def _save_fields(path: Path, fields: Mapping[str, Array], position: Array) -> None:
    write_npz(path, E=fields["E"], H=fields["H"], position=position, field_frequency_hz=FREQUENCY_HZ)


# --- channels --------------------------------------------------------------------------------------------------------


def channels(rng: np.random.Generator, n: int) -> Array:
    """Channels of sparse multipath [n, antennas, subcarriers] complex64, of log-normal energy with median 1 per entry.

    Each path has a delay of whole taps, geometric below ``NUM_TAPS``, a sine of its direction that is uniform, and a
    complex Gaussian gain.
    """
    u = rng.random((n, NUM_PATHS)) * (1 - DELAY_DECAY**NUM_TAPS)
    delay = np.floor(np.log1p(-u) / math.log(DELAY_DECAY)).astype(int)
    gain = complex_normal(rng, (n, NUM_PATHS))
    sine = rng.uniform(-1, 1, (n, NUM_PATHS))
    steering = np.exp(1j * np.pi * np.arange(NUM_ANTENNAS) * sine[..., None])
    taps = np.zeros((n, NUM_TAPS, NUM_ANTENNAS), complex)
    np.add.at(taps, (np.arange(n)[:, None], delay), gain[..., None] * steering)
    taps /= np.sqrt((np.abs(taps) ** 2).sum(axis=(1, 2), keepdims=True) / NUM_ANTENNAS)
    amplitude = 10 ** (rng.normal(0, FADING_DB, (n, 1, 1)) / 20)
    return np.swapaxes(np.fft.fft(amplitude * taps, axis=1), 1, 2).astype(np.complex64)


def kept_taps(channel: Array, kept: int) -> Array:
    """What a truncated DFT code gives back: the first ``kept`` delay taps of [n, antennas, subcarriers]."""
    taps = np.fft.ifft(channel, axis=2)
    taps[..., kept:] = 0
    return np.fft.fft(taps, axis=2).astype(np.complex64)


def lost_share(kept: int) -> float:
    """Share of the energy beyond the first ``kept`` taps, ``(q^K - q^N) / (1 - q^N)``."""
    q = DELAY_DECAY
    return (q**kept - q**NUM_TAPS) / (1 - q**NUM_TAPS)


def _channel_feedback(root: Path, rng: np.random.Generator) -> Iterator[Row]:
    from emma_jax.evaluate import evaluate

    truth = channels(rng, NUM_USERS)
    # Mean over users of the log-normal energy: its square and inverse moments follow from the same parameter.
    spread = (FADING_DB * math.log(10) / 10) ** 2
    variance = math.exp(spread / 2) * 10 ** (-ESTIMATE_SNR_DB / 10)
    noisy = (truth + math.sqrt(variance) * complex_normal(rng, truth.shape)).astype(np.complex64)
    coded = kept_taps(truth, NUM_KEPT)
    write_npz(root / "labels.npz", labels=truth)
    for name, pred in (("truncated", coded), ("noisy", noisy)):
        write_npz(root / f"{name}.npz", preds=pred)
    # Standard errors, relative: users weighted by their energy for sums, the moments of 1/energy for ratios.
    weighted, share = math.exp(spread), lost_share(NUM_KEPT)
    sums = 4 * 10 / math.log(10)
    code_error = sums * math.sqrt(2 * weighted * (1 - share) / (share * NUM_PATHS * NUM_USERS))
    noise_error = sums * math.sqrt((math.exp(spread) - 1) / NUM_USERS)
    scores = evaluate("E-CH-CSI", coded, truth)
    line = (10 * math.log10(share), code_error, f"share of taps from {NUM_KEPT} on")
    yield from _rows("channels", f"{NUM_KEPT} of {NUM_TAPS} taps", scores, {"NMSE": line})
    for reduction, theory, why in (
        ("ratio_of_sums", -ESTIMATE_SNR_DB, "−SNR"),
        ("mean_ratio", -ESTIMATE_SNR_DB + 10 / math.log(10) * spread, "−SNR + fading"),
    ):
        scores = evaluate("E-CH-CSI", noisy, truth, reduction=reduction)
        name = f"noise, {reduction.replace('_', ' ')}"
        yield from _rows("channels", name, scores, {"NMSE": (theory, noise_error, why)})


# --- separation ------------------------------------------------------------------------------------------------------


def mixtures(rng: np.random.Generator, n: int) -> tuple[Array, Array, Array]:
    """Sources [n, 2, T], mixing matrices [n, 2, 2] and antenna signals [n, 2, T], complex128.

    Sources are QPSK and complex Gaussian, of unit power; each antenna is nearer to the source of its number.
    """
    symbols = np.exp(0.5j * np.pi * (rng.integers(0, 4, (n, NUM_SAMPLES)) + 0.5))
    sources = np.stack([symbols, complex_normal(rng, (n, NUM_SAMPLES))], axis=1)
    mixing = 0.5 * complex_normal(rng, (n, 2, 2)) + np.exp(2j * np.pi * rng.random((n, 2, 1))) * np.eye(2)
    noise = math.sqrt(NOISE_VARIANCE) * complex_normal(rng, sources.shape)
    return sources, mixing, mixing @ sources + noise


def separate(mixing: Array, method: str) -> tuple[Array, Array]:
    """Filters of a method, and the ratio of signal to all else that theory gives them.

    Args:
      mixing: [n, 2, 2] complex.
      method: "mixture" (nothing), "zero forcing" or "MMSE".

    Returns:
      (filters [n, 2, 2], ratios [n, 2], linear).
    """
    adjoint = np.conj(np.swapaxes(mixing, 1, 2))
    gram, eye, v = adjoint @ mixing, np.eye(2), NOISE_VARIANCE

    def diagonal(matrix: Array) -> Array:
        result: Array = np.diagonal(matrix, axis1=1, axis2=2).real
        return result

    if method == "mixture":
        power = np.abs(mixing) ** 2
        wanted = diagonal(power)
        return np.broadcast_to(eye, mixing.shape), wanted / (power.sum(axis=2) - wanted + v)
    if method == "zero forcing":
        return np.linalg.inv(mixing), 1 / (v * diagonal(np.linalg.inv(gram)))
    if method == "MMSE":
        return np.linalg.inv(gram + v * eye) @ adjoint, 1 / diagonal(np.linalg.inv(eye + gram / v)) - 1
    raise EvaluationError(f"is {method!r}, not mixture, zero forcing or MMSE", argument="method")


def _separation(root: Path, rng: np.random.Generator) -> Iterator[Row]:
    from emma_jax.evaluate import evaluate

    sources, mixing, received = mixtures(rng, NUM_MIXTURES)
    truth = sources.astype(np.complex64)
    write_npz(root / "labels.npz", labels=truth)
    # The ratio of two sample energies: each has a relative variance of at most 2/T.
    tolerance = 4 * 10 / math.log(10) * math.sqrt(4 / NUM_SAMPLES / (2 * NUM_MIXTURES))
    last = np.empty(0)
    for method in ("mixture", "zero forcing", "MMSE"):
        filters, ratio = separate(mixing, method)
        last = (filters @ received).astype(np.complex64)
        write_npz(root / f"{method.replace(' ', '_')}.npz", preds=last)
        line = (float(10 * np.log10(ratio).mean()), tolerance, "signal / (interference + noise)")
        yield from _rows("separation", method, evaluate("E-SC-SEP", last, truth), {"SISDR": line})
    order = np.where(rng.random((NUM_MIXTURES, 1)) < 0.5, [[0, 1]], [[1, 0]])
    shuffled = np.take_along_axis(last, order[:, :, None], axis=1)
    scores = evaluate("E-SC-SEP", shuffled, truth, permutation="best")
    yield from _rows("separation", "MMSE, best permutation", scores, {"SISDR": (*line[:2], "order does not matter")})


# --- all of it -------------------------------------------------------------------------------------------------------

_SCENES: dict[str, Callable[[Path, np.random.Generator], Iterator[Row]]] = {
    "ring_slot": _ring_slot,
    "near_field": _near_field,
    "channels": _channel_feedback,
    "separation": _separation,
}


def _rows(
    scene: str, prediction: str, scores: Scores, expected: Mapping[str, tuple[float, float, str]]
) -> Iterator[Row]:
    """The metrics that theory speaks of, as rows."""
    units = {info.name: info.unit for info in scores.info}
    for name, (theory, tolerance, why) in expected.items():
        yield Row(scene, prediction, name, float(scores[name]), units.get(name, ""), theory, tolerance, why)


def run_em_demo(out_dir: Path | None = None, seed: int = 0, console: Console | None = None) -> list[Row]:
    """Makes the four scenes, scores them and prints each score beside what theory says.

    Args:
      out_dir: where to leave truth, predictions and pictures, a new or empty folder; None for a new temporary one. It
        is kept either way, and its place is printed.
      seed: all randomness.
      console: where progress and the table go; standard output when None.

    Returns:
      The rows of the table.

    Raises:
      ReleaseError: ``out_dir`` is not empty.
      EvaluationError: a negative seed.
      ImportError: scikit-rf, which has the measurement, is not installed.
    """
    from rich.console import Console

    check_seed(seed)
    ring_slot_files()
    console = console or Console()
    root = fresh_folder(out_dir)
    rows: list[Row] = []
    with console.status("") as status:
        for number, (name, scene) in enumerate(_SCENES.items()):
            status.update(name.replace("_", " "))
            (root / name).mkdir()
            rows += scene(root / name, np.random.default_rng([seed, number]))
        status.update("pictures")
        pictures = _draw(root)
    console.print(_table(rows), soft_wrap=True, markup=False)
    console.print(f"truth, predictions{' and pictures' if pictures else ''}: {root}", soft_wrap=True, markup=False)
    if not pictures:
        console.print("pictures need matplotlib: pip install 'emma-jax[report]'", soft_wrap=True, markup=False)
    return rows


def _draw(root: Path) -> list[Path]:
    """Pictures of the first two scenes, where matplotlib is there."""
    if importlib.util.find_spec("matplotlib") is None:
        return []
    from emma_jax.emval import load_files
    from emma_jax.report.plots import draw_pair

    ring = load_files(root / "ring_slot/measured.s1p", root / "ring_slot/simulated.s2p", "SP", ports=[1], pick=True)
    field = load_files(root / "near_field/truth.npz", root / "near_field/tilt.npz", "NF")
    return draw_pair(ring, root / "ring_slot") + draw_pair(field, root / "near_field")


def _table(rows: list[Row]) -> str:
    """Lines of 80 characters, under a heading for each prediction."""
    lines = [f"{'':17} {'score':>11} {'theory':>11}   within"]
    before = ""
    for row in rows:
        heading = f"{row.scene}: {row.prediction}"
        if heading != before:
            lines.append(heading)
            before = heading
        numbers = f"{row.value:11.6f} {row.theory:11.6f} ± {row.tolerance:<7.2g}"
        why = row.why if row.agrees else f"{row.why} (DIFFERS)"
        lines.append(f"  {row.metric:15} {numbers} {row.unit:3} {why}")
    return "\n".join(lines)
