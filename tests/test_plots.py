"""Pictures: what is drawn is the data, the marks are where the metrics are, and nothing of the process changes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from emma_jax.demo.em import cube_probes, dipole_field
from emma_jax.emval.boards import BoardPair
from emma_jax.emval.layout import Fields, SParameters
from emma_jax.errors import EmptyEvaluationError, EvaluationError, NonFiniteError, ShapeError
from emma_jax.report import plots

F_HZ = np.linspace(1e9, 6e9, 101)


def sparams(ports: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Delay lines with ripple, and a prediction that is off by gain, phase and noise."""
    rng = np.random.default_rng(seed)
    delay, level = rng.uniform(0.2e-9, 1e-9, (ports, ports)), rng.uniform(0.02, 0.7, (ports, ports))
    phase = -2j * np.pi * F_HZ[:, None, None] * delay
    truth = level * np.exp(phase) * (1 + 0.9 * np.cos(4e-9 * np.pi * F_HZ[:, None, None]))
    noise = rng.normal(size=truth.shape) + 1j * rng.normal(size=truth.shape)
    return truth, truth * 1.1 * np.exp(0.2j) + 0.01 * noise


@pytest.fixture(scope="module")
def fields() -> tuple[np.ndarray, Fields, Fields]:
    """Positions, a dipole's field and a noisy one."""
    rng = np.random.default_rng(1)
    position, frequency = cube_probes(0.03, 10), np.array([1e9, 3e9])
    truth = dipole_field(position, frequency, 1e-3 * np.eye(3)[[0, 2]])
    pred = [x + 0.1 * np.abs(x) * (rng.normal(size=x.shape) + 1j * rng.normal(size=x.shape)) for x in truth]
    return position, Fields(*truth, frequency), Fields(*pred, frequency)


def boards(count: int = 12) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    names = [("public", f"{k:064x}") for k in range(count // 2)]
    names += [("private_challenge", f"{k:064x}") for k in range(count // 2)]
    values = [{"rel_l2_E": float(rng.gamma(2)), "local_cos_q50_E": float(rng.uniform(-1, 1))} for _ in names]
    return {"boards": [{"group": g, "id": i, "values": v} for (g, i), v in zip(names, values)]}


def line(ax: Any, color: str, style: str | None = None) -> Any:
    """The longest line of a color (and style)."""
    found = [x for x in ax.lines if x.get_color() == color and (style is None or x.get_linestyle() == style)]
    return max(found, key=lambda x: len(x.get_xdata()))


def assert_readable(figure: Figure, *, labels: bool = True) -> None:
    """Legends and title cover no axes, and what the axes show is written on them."""
    FigureCanvasAgg(figure).draw()
    boxes = [ax.get_window_extent() for ax in figure.axes if ax.axison]
    for legend in figure.legends:
        assert not any(legend.get_window_extent().overlaps(box) for box in boxes)
    titles = [figure._suptitle.get_window_extent()] if figure._suptitle is not None else []
    for title in titles:
        assert not any(title.overlaps(box) for box in boxes)
        assert not any(title.overlaps(legend.get_window_extent()) for legend in figure.legends)
    if labels:
        assert any(ax.get_xlabel() for ax in figure.axes) and any(ax.get_ylabel() for ax in figure.axes)


# --- S-parameters ----------------------------------------------------------------------------------------------------


def test_magnitude_and_phase_are_the_data() -> None:
    """Lines are 20 log10|S| and arg S over frequency in GHz, the knee stands at -20 dB (oracle: NumPy, 1e-12)."""
    truth, pred = sparams()
    figure = plots.plot_sparams(truth, pred, F_HZ, title="two-port")
    assert_readable(figure)
    top, bottom = figure.axes[1], figure.axes[5]  # columns go S11, S21, S12, S22
    assert top.get_title() == "$S_{21}$" and bottom.get_xlabel() == "frequency in GHz"
    assert [ax.get_ylabel() for ax in (figure.axes[0], figure.axes[4])] == ["|S| in dB", "phase in degrees"]
    for s, color in ((truth, plots._TRUTH), (pred, plots._PRED)):
        np.testing.assert_allclose(line(top, color).get_xdata(), F_HZ / 1e9, rtol=1e-15)
        np.testing.assert_allclose(line(top, color).get_ydata(), 20 * np.log10(np.abs(s[:, 1, 0])), rtol=1e-12)
        drawn = np.concatenate([x.get_ydata() for x in bottom.lines if x.get_color() == color])
        drawn = np.unique(drawn[np.isfinite(drawn)])
        np.testing.assert_allclose(drawn, np.unique(np.angle(s[:, 1, 0], deg=True)), atol=1e-12)
    assert {tuple(x.get_ydata()) for x in top.lines if x.get_linestyle() == ":"} == {(-20, -20)}
    assert figure.legends[0].get_title().get_text() == "two-port"


def test_phase_is_faint_below_the_knee_and_cut_at_wraps() -> None:
    """Where |S| >= -20 dB a point is drawn in full, elsewhere faint; no segment spans more than half a turn."""
    truth, pred = sparams()
    figure = plots.plot_sparams(truth, pred, F_HZ, entries=[(1, 1)])
    phase = np.angle(truth[:, 0, 0], deg=True)
    strong = 20 * np.log10(np.abs(truth[:, 0, 0])) >= -20
    assert 5 < (~strong).sum() < 50
    curves = [x for x in figure.axes[1].lines if x.get_color() == plots._TRUTH]
    full = np.concatenate([x.get_ydata() for x in curves if x.get_alpha() == 1.0])
    faint = np.concatenate([x.get_ydata() for x in curves if x.get_alpha() < 0.5])
    assert set(phase[strong]) <= set(full) and set(phase[~strong]) <= set(faint)
    for curve in figure.axes[1].lines:
        assert np.nanmax(np.abs(np.diff(curve.get_ydata()))) <= 180


def test_many_entries_are_the_worst_four() -> None:
    """Of 16 entries the four with most squared error are drawn, in matrix order; a mask leaves points out."""
    truth, pred = sparams(4)
    error = (np.abs(pred - truth) ** 2).sum(axis=0)
    worst = np.argsort(-error.ravel())[:4]
    expected = {f"$S_{{{k // 4 + 1}{k % 4 + 1}}}$" for k in worst}
    figure = plots.plot_sparams(truth, pred, where=np.arange(101)[:, None, None] != 7)
    assert {ax.get_title() for ax in figure.axes} - {""} == expected
    assert np.isnan(line(figure.axes[0], plots._TRUTH).get_ydata()[7])
    assert figure.axes[4].get_xlabel() == "frequency point"


def test_an_exact_zero_does_not_stretch_the_axis() -> None:
    """S = 0 is drawn at the floor, -200 dB, and the axis ends at -100."""
    truth, pred = sparams(1)
    pred[3] = 0
    figure = plots.plot_sparams(truth, pred, F_HZ)
    assert line(figure.axes[0], plots._PRED).get_ydata()[3] == -200 and figure.axes[0].get_ylim()[0] == -100


def test_smith_chart_grid_and_curves() -> None:
    """Circles go through (z - 1)/(z + 1) for constant r and constant x (1e-12), the rim is |S| = 1, curves are S_ii."""
    truth, pred = sparams()
    figure = plots.plot_smith(truth, pred, F_HZ, z0=np.array([50.0, 75.0]), title="chart")
    assert_readable(figure, labels=False)
    ax = figure.axes[1]
    assert ax.get_title() == "$S_{22}$, 1 (dot) to 6 GHz, center 75 Ω"
    circles = [(complex(*p.center), p.radius) for p in ax.patches if isinstance(p, Circle)]
    assert (0j, 1) in circles

    def on_one(z: np.ndarray) -> bool:
        gamma = (z - 1) / (z + 1)
        return any(np.allclose(np.abs(gamma - c), r, rtol=0, atol=1e-12) for c, r in circles)

    for value in (0.2, 0.5, 1, 2, 5):
        assert on_one(value + 1j * np.linspace(-3, 3, 7)) and on_one(np.linspace(0, 4, 5) + 1j * value)
        assert on_one(np.linspace(0, 4, 5) - 1j * value)
    assert not on_one(0.7 + 1j * np.linspace(-3, 3, 7))
    curve = line(ax, plots._PRED)
    np.testing.assert_array_equal(curve.get_xdata() + 1j * curve.get_ydata(), pred[:, 1, 1])
    active = plots.plot_smith(3 * truth, pred).axes[0]
    assert active.get_xlim()[1] > np.abs(3 * truth[:, 0, 0]).max()


# --- near fields -----------------------------------------------------------------------------------------------------


def test_cdf_marks_the_median_which_is_the_metric(fields: Any) -> None:
    """The mark is at (median, 1/2), and the curve there is 1/2 up to a probe. Oracle: the protocol in NumPy, 1e-12."""
    _, truth, pred = fields
    where = np.random.default_rng(0).random(truth.e.shape[:3]) < 0.9
    truth.e[0, 0, :5] = 0
    errors = plots.local_error(truth.e, pred.e, where)
    t, p = truth.e[where], pred.e[where]
    norm = np.linalg.norm(t, axis=1)
    expected = np.linalg.norm(p - t, axis=1)[norm > 0] / norm[norm > 0]
    np.testing.assert_allclose(np.sort(errors), np.sort(expected), rtol=1e-12)
    figure = plots.plot_error_cdf({"E": errors, "H": plots.local_error(truth.h, pred.h)}, title="errors")
    assert_readable(figure)
    ax = figure.axes[0]
    marks = [x for x in ax.lines if x.get_marker() == "o"]
    assert marks[0].get_xdata()[0] == pytest.approx(np.median(expected), rel=1e-12) and marks[0].get_ydata()[0] == 0.5
    assert f"E: median {np.median(expected):.4g}" in [t.get_text() for t in figure.legends[0].get_texts()]
    curve = next(x for x in ax.lines if x.get_drawstyle() == "steps-post")
    below = np.interp(np.median(expected), curve.get_xdata(), curve.get_ydata())
    assert below == pytest.approx(0.5, abs=2 / expected.size)


def test_a_long_cdf_is_thinned_at_quantiles() -> None:
    """Of 50,001 errors 4000 points are drawn, the first and last among them, each on the exact curve."""
    e = np.random.default_rng(0).gamma(2, size=50_001)
    curve = next(x for x in plots.plot_error_cdf({"E": e}).axes[0].lines if x.get_drawstyle() == "steps-post")
    x, y = curve.get_xdata(), curve.get_ydata()
    assert len(x) == 4000 and x[0] == e.min() and x[-1] == e.max() and y[-1] == 1
    np.testing.assert_allclose(np.searchsorted(np.sort(e), x, side="right") / e.size, y, rtol=1e-12)


def test_perfect_predictions_can_be_drawn(fields: Any) -> None:
    """Errors that are all zero have a median of 0 and no logarithmic axis."""
    position, truth, _ = fields
    figure = plots.plot_error_cdf({"E": np.zeros(7)})
    assert figure.axes[0].get_xscale() == "linear"
    same = {"E": truth.e, "H": truth.h}
    assert_readable(plots.plot_fields(same, same, position))
    assert_readable(plots.plot_fields(same, same))


def test_field_slices_are_the_data(fields: Any) -> None:
    """Cells are 20 log10 ||F|| and the local error on the fullest plane, for the port and frequency named (1e-12)."""
    position, truth, pred = fields
    figure = plots.plot_fields(
        {"E": truth.e, "H": truth.h},
        {"E": pred.e, "H": pred.h},
        position,
        truth.frequency_hz,
        port=2,
        frequency_index=0,
        title="board",
    )
    assert_readable(figure)
    assert figure._suptitle.get_text() == "board, port 2, 1 GHz, z = 30 mm"
    axes = [ax for ax in figure.axes if ax.get_title()]
    assert [ax.get_title() for ax in axes[3:]] == ["|H| truth", "|H| prediction", "local error of H"]
    assert axes[0].get_xlabel() == "x in mm" and axes[0].get_ylabel() == "y in mm"
    inside = np.isclose(position[:, 2], 0.03)
    order = np.lexsort((position[inside, 0], position[inside, 1]))
    t, p = truth.h[1, 0][inside][order], pred.h[1, 0][inside][order]
    size, error = np.linalg.norm(t, axis=1), np.linalg.norm(p - t, axis=1)
    cells = [np.asarray(ax.collections[0].get_array()).ravel() for ax in axes[3:]]
    np.testing.assert_allclose(cells[0], 20 * np.log10(size), rtol=1e-12)
    np.testing.assert_allclose(cells[1], 20 * np.log10(np.linalg.norm(p, axis=1)), rtol=1e-12)
    np.testing.assert_allclose(cells[2], error / size, rtol=1e-12)
    assert axes[3].collections[0].norm.vmin == axes[4].collections[0].norm.vmin  # one scale for both sides


def test_the_plane_with_most_probes_is_drawn() -> None:
    """Of 20 probes at x = 1 mm and 5 elsewhere the 20 are found, of equally full planes the middle one."""
    rng = np.random.default_rng(0)
    xyz = rng.uniform(-1e-2, 1e-2, (25, 3))
    xyz[:20, 0] = 1e-3
    normal, level, inside = plots._fullest_plane(xyz, np.ones(25, bool))
    assert (normal, inside.tolist()) == (0, [True] * 20 + [False] * 5) and level == pytest.approx(1e-3, rel=1e-12)
    layers = np.stack(np.meshgrid([0.0, 1], [0.0, 1], [0.0, 1, 2], indexing="ij"), -1).reshape(-1, 3)
    assert plots._fullest_plane(layers[layers[:, 2] != 1], np.ones(8, bool))[:2] == (2, 2.0)
    normal, level, inside = plots._fullest_plane(layers, layers[:, 2] == 1)
    assert (normal, level) == (2, 1.0) and inside.sum() == 4


def test_probes_off_a_grid_and_probes_without_positions(fields: Any) -> None:
    """Scattered probes are drawn one by one with their values; without positions magnitudes go over their number."""
    _, truth, pred = fields
    rng = np.random.default_rng(0)
    scattered = rng.uniform(-1, 1, (truth.e.shape[2], 3))
    scattered[:, 2] = 0
    t, p = {"E": truth.e}, {"E": pred.e}
    size = np.linalg.norm(truth.e[0, 1], axis=1)
    figure = plots.plot_fields(t, p, scattered)
    assert_readable(figure)
    np.testing.assert_allclose(figure.axes[0].collections[0].get_array(), 20 * np.log10(size), rtol=1e-12)
    where = np.ones(truth.e.shape[:3], bool)
    where[:, :, 3] = False
    along = plots.plot_fields(t, p, where=where)
    assert_readable(along)
    curve = line(along.axes[0], plots._TRUTH)
    np.testing.assert_allclose(curve.get_ydata(), 20 * np.log10(np.delete(size, 3)), rtol=1e-12)
    assert 3 not in curve.get_xdata() and along.axes[0].get_xlabel() == "probe"


# --- data sets, files, process ---------------------------------------------------------------------------------------


def test_worst_boards_and_their_mean() -> None:
    """Bars are the highest errors and the lowest cosines, worst first, and the line is the mean. Oracle: sorting."""
    result = boards()
    figure = plots.plot_boards(result, count=5)
    assert_readable(figure, labels=False)
    for ax, metric, sign in zip(figure.axes, ("rel_l2_E", "local_cos_q50_E"), (-1, 1)):
        values = np.array([b["values"][metric] for b in result["boards"]])
        np.testing.assert_array_equal([bar.get_width() for bar in ax.patches], values[np.argsort(sign * values)[:5]])
        assert line(ax, plots._TRUTH).get_xdata()[0] == pytest.approx(values.mean(), rel=1e-12)
        assert ax.get_xlim()[0] <= values.mean() <= ax.get_xlim()[1] and metric in ax.get_title()
    assert [t.get_text() for t in figure.legends[0].get_texts()] == [
        "public",
        "private_challenge",
        "mean of all 12 boards",
    ]


def test_bad_input_is_named(fields: Any, tmp_path: Path) -> None:
    """Shapes, entries, ports, metrics and suffixes that do not fit are typed errors."""
    truth, pred = sparams()
    position, t, p = fields
    for call in (
        lambda: plots.plot_sparams(truth, pred[:5]),
        lambda: plots.plot_sparams(truth, pred, F_HZ[:5]),
        lambda: plots.plot_sparams(truth, pred, entries=[(3, 1)]),
        lambda: plots.plot_smith(truth, pred, ports=[0]),
        lambda: plots.local_error(t.e, p.e[..., :2]),
        lambda: plots.plot_fields({"E": t.e}, {"E": p.e}, position[:4]),
        lambda: plots.plot_fields({"E": t.e}, {"E": p.e}, port=3),
        lambda: plots.plot_fields({"E": t.e}, {"H": p.e}),
    ):
        with pytest.raises(ShapeError):
            call()
    pred[4, 1, 0] = np.nan
    for draw in (plots.plot_sparams, plots.plot_smith):
        with pytest.raises(NonFiniteError, match=r"pred: not finite.*first at index \(4, 1, 0\)"):
            draw(truth, pred)
        assert draw(truth, pred, where=np.isfinite(pred))
    broken = p.e.copy()
    broken[0, 1, 7, 2] = np.inf
    with pytest.raises(NonFiniteError, match=r"first at index \(0, 1, 7, 2\)"):
        plots.local_error(t.e, broken)
    with pytest.raises(NonFiniteError, match=r"first at index \(7, 2\)"):
        plots.plot_fields({"E": t.e}, {"E": broken})
    with pytest.raises(EmptyEvaluationError, match="E: has no local error"):
        plots.plot_error_cdf({"E": []})
    with pytest.raises(EmptyEvaluationError, match="H: is zero at every probe"):
        plots.plot_fields({"E": t.e, "H": 0 * t.h}, {"E": p.e, "H": p.h})
    with pytest.raises(EvaluationError, match=r"metrics: is .*some of rel_l2_E"):
        plots.plot_boards(boards(), metrics=["mag_wmae"])
    with pytest.raises(EvaluationError, match=r"pictures are \.png or \.pdf, not '\.svg'"):
        plots.save_figure(plots.plot_error_cdf({"E": [1.0]}), tmp_path / "x.svg")


def test_files_of_a_board_are_the_same_each_time(fields: Any, tmp_path: Path) -> None:
    """A folder gets one picture a kind, a file all in one; drawn twice, the bytes are the same."""
    position, t, p = fields
    truth, pred = sparams()
    pair = BoardPair("a board", (t, p), (SParameters(truth, F_HZ), SParameters(pred, F_HZ)), position)
    names = ["sparams.png", "smith.png", "local_error.png", "fields.png"]
    drawn = plots.draw_pair(pair, tmp_path / "one")
    assert [x.name for x in drawn] == names and all(x.read_bytes().startswith(b"\x89PNG") for x in drawn)
    (whole,) = plots.draw_pair(pair, tmp_path / "whole.png")
    assert whole.read_bytes().startswith(b"\x89PNG")
    lines = BoardPair("a board", None, pair.sparams)
    for suffix in ("png", "pdf"):
        a, b = (plots.draw_pair(lines, tmp_path / f"{k}.{suffix}")[0].read_bytes() for k in "ab")
        assert a == b
    assert [x.name for x in plots.draw_boards(boards(), tmp_path)] == ["worst_boards.png"]
    with pytest.raises(EvaluationError, match="neither fields nor S-parameters"):
        plots.draw_pair(BoardPair("empty"), tmp_path / "c.png")


def test_nothing_of_the_process_changes(tmp_path: Path) -> None:
    """Drawing loads no pyplot, and leaves backend and settings as they are."""
    code = (
        "import sys, matplotlib, numpy as np\n"
        "settings = lambda: dict(dict.items(matplotlib.rcParams))\n"  # plain reading would choose a backend
        "before = settings()\n"
        "from emma_jax.report import plot_sparams, save_figure\n"
        "s = np.ones((4, 1, 1)) * .5j\n"
        "save_figure(plot_sparams(s, s), sys.argv[1])\n"
        "assert settings() == before\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "x.png")], check=True)


# Viénot, Brettel and Mollon 1999 (red, green) and Brettel's blue-yellow case as one matrix each, on linear RGB.
_BLINDNESS = {
    "protanopia": [[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]],
    "deuteranopia": [[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]],
    "tritanopia": [[1.01277, 0.13548, -0.14826], [-0.01243, 0.86812, 0.14431], [0.07589, 0.80500, 0.11911]],
    "none": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
}


def _lab(rgb_linear: np.ndarray) -> np.ndarray:
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ rgb_linear
    f = np.cbrt(np.maximum(xyz, 0) / [0.9505, 1.0, 1.089])
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("kind", list(_BLINDNESS))
def test_colors_survive_color_blindness(kind: str) -> None:
    """Colors that meet in one picture stay 20 CIELAB units apart, ten times what is just seen, for each blindness."""

    def seen(color: str) -> np.ndarray:
        c = np.array(to_rgb(color))
        linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
        return _lab(np.clip(np.array(_BLINDNESS[kind]) @ linear, 0, 1))

    for together in ((plots._TRUTH, plots._PRED, plots._THIRD), (*plots._GROUP_COLORS.values(), plots._TRUTH)):
        for i, a in enumerate(together):
            for b in together[:i]:
                assert np.linalg.norm(seen(a) - seen(b)) > 20, (a, b)
