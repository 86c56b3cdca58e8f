"""``emma-jax emval`` and ``emma-jax evaluate`` on the files of channels, signals and boards."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import fails, files, run
from test_emval_boards import F_HZ, write_data_set
from test_emval_oracle import score_board

from emma_jax.demo.em import ring_slot_files
from emma_jax.emval import check_sparams
from emma_jax.io import read_touchstone, write_npz, write_touchstone

pytest.importorskip("h5py")


@pytest.fixture(autouse=True)
def no_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests leave the user's cache alone: a variable that is set, even to nothing, is JAX's to follow."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "")


@pytest.fixture(scope="module")
def ring_slot() -> tuple[Path, Path]:
    pytest.importorskip("skrf")
    return ring_slot_files()


def strict(text: str) -> Any:
    return json.loads(text, parse_constant=pytest.fail)


def usage_error(*args: object) -> str:
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    return " ".join(err.replace("│", " ").split())


# --- score: two files ------------------------------------------------------------------------------------------------

RING_SLOT = {"real_imag_rmse": 0.257294228339, "mag_wmae": 0.439490264202, "ph_wmae": 0.663756671259}


def test_ring_slot_from_the_command_line(ring_slot: tuple[Path, Path], tmp_path: Path) -> None:
    """Measured S11 against the simulated two-port at every second point: figures of two implementations, to 1e-6."""
    arguments = ["emval", "score", *ring_slot, "--ports", "1", "--pick"]
    code, out, err = run(*arguments, "--json", "-o", tmp_path / "r.json")
    assert (code, err) == (0, "")
    content = strict(out)
    assert content["values"] == pytest.approx(RING_SLOT, abs=1e-6)
    assert content == strict((tmp_path / "r.json").read_text())
    assert content["validity"]["mag_wmae"]["n_used"] == 101 and content["notes"]["reference"] == "equal"
    assert content["checks"]["truth"]["quality"]["grades"]["cqm"] == "acceptable"
    code, out, err = run(*arguments)
    assert (code, err) == (0, "") and "0.2572942" in out and "dB" in out and "rad" in out and "ph_wmae ↓" in out
    assert "acceptable" in out and "prediction" in out


def test_ring_slot_as_a_task(ring_slot: tuple[Path, Path], tmp_path: Path) -> None:
    """evaluate EMVal-SP on Touchstone files of one grid gives the same values; another grid is an error."""
    measured, simulated = ring_slot
    data = read_touchstone(simulated)
    write_touchstone(tmp_path / "every_second.s1p", data.frequency_hz[::2], data.s[::2, :1, :1])
    arguments = ["evaluate", "EMVal-SP", "--labels", measured, "--preds"]
    content = strict(run(*arguments, tmp_path / "every_second.s1p", "--json")[1])
    values = {name: entry["value"] for name, entry in content["metrics"].items()}
    assert values == pytest.approx(RING_SLOT, abs=1e-6) and content["metrics"]["mag_wmae"]["unit"] == "dB"
    line = fails(*arguments, simulated)
    assert "ring slot" in line and "ports" in line
    write_touchstone(tmp_path / "all.s1p", data.frequency_hz, data.s[:, :1, :1])
    assert "201 points, the truth has 101" in fails(*arguments, tmp_path / "all.s1p")


def test_fields_and_sparameters_of_two_files(tmp_path: Path) -> None:
    """Two npz files give both tracks or one; values are those of the NumPy oracle (1e-6), notes are in the table."""
    rng = np.random.default_rng(0)
    arrays: dict[str, dict[str, Any]] = {"truth": {}, "pred": {}}
    for name, shape in {"E": (2, 3, 40, 3), "H": (2, 3, 40, 3), "S": (4, 2, 2)}.items():
        for side in arrays:
            arrays[side][name] = (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.complex64)
    for side, content in arrays.items():
        write_npz(tmp_path / f"{side}.npz", **content)
    arguments = ["emval", "score", tmp_path / "truth.npz", tmp_path / "pred.npz"]
    near = score_board(arrays["truth"], arrays["pred"], "NF")
    lines = score_board(arrays["truth"], arrays["pred"], "SP")
    for options, expected in (([], near | lines), (["--protocol", "NF"], near), (["--protocol", "SP"], lines)):
        content = strict(run(*arguments, *options, "--json")[1])
        assert content["values"] == pytest.approx(expected, rel=1e-6)
    out = run(*arguments)[1]
    assert "frequencies are not stated on both sides (NF, SP)" in out and "reference impedances are not stated" in out
    scores = strict(run("evaluate", "EMVal-NF", "--preds", arguments[3], "--labels", arguments[2], "--json")[1])
    assert {m: scores["metrics"][m]["value"] for m in near} == pytest.approx(near, rel=1e-6)


def test_a_key_map_for_both_sides_or_each(tmp_path: Path) -> None:
    """--key-map names datasets of both sides, --pred-key-map those of the prediction; without, names are listed."""
    s = 0.5 * np.exp(1j * np.arange(8.0)).reshape(2, 2, 2)
    write_npz(tmp_path / "t.npz", scattering=s)
    write_npz(tmp_path / "p.npz", scattering=s, other=s.transpose(1, 2, 0) * 0.5)
    (tmp_path / "k.toml").write_text('[sparams]\nS = "scattering"\n')
    (tmp_path / "p.toml").write_text('[sparams]\nS = "other"\naxes = "IJF"\n')
    arguments = ["emval", "score", tmp_path / "t.npz", tmp_path / "p.npz", "--protocol", "SP"]
    line = fails(*arguments)
    assert "no dataset 'S' for S; the file holds scattering" in line and "key map" in line
    keys = ["--key-map", tmp_path / "k.toml", "--json"]
    assert strict(run(*arguments, *keys)[1])["values"]["mag_wmae"] == 0
    content = strict(run(*arguments, *keys, "--pred-key-map", tmp_path / "p.toml")[1])
    assert content["values"]["mag_wmae"] == pytest.approx(20 * math.log10(2), rel=1e-6)
    assert "k2.toml: No such file" in fails(*arguments, "--key-map", tmp_path / "k2.toml")


def test_references_are_brought_together(tmp_path: Path) -> None:
    """The same device at 75 and at 50 ohm scores 0 and the table says why. Oracle: renormalization is exact (1e-9)."""
    gamma = np.full((5, 1, 1), 0.2 + 0.1j)
    z = 50 * (1 + gamma) / (1 - gamma)
    frequency = np.arange(1, 6) * 1e9
    write_touchstone(tmp_path / "t.s1p", frequency, gamma)
    write_touchstone(tmp_path / "p.s1p", frequency, (z - 75) / (z + 75), z0=75)
    arguments = ["emval", "score", tmp_path / "t.s1p", tmp_path / "p.s1p"]
    assert strict(run(*arguments, "--json")[1])["values"]["real_imag_rmse"] < 1e-9
    assert "renormalized to the reference impedances of the truth" in run(*arguments)[1]


def test_wrong_usage_of_score(tmp_path: Path) -> None:
    """A folder against a file, options of the other kind, or no port numbers: exit 2; a missing file: exit 1."""
    write_touchstone(tmp_path / "a.s1p", [1e9, 2e9], np.full((2, 1, 1), 0.5))
    two = [tmp_path / "a.s1p", tmp_path / "a.s1p"]
    for option in ("--groups=public", "--allow-missing"):
        assert "is for the folders of a data set" in usage_error("emval", "score", *two, option)
    for option in ("--ports=1", "--pick"):
        assert "is for two Touchstone files" in usage_error("emval", "score", tmp_path, tmp_path, option)
    assert "is not a list of port numbers" in usage_error("emval", "score", *two, "--ports", "1,x")
    usage_error("emval", "score", tmp_path, two[0])
    usage_error("emval", "score", *two, "--protocol", "XY")
    assert "none.s1p: No such file" in fails("emval", "score", two[0], tmp_path / "none.s1p")
    assert "ports [2]" in fails("emval", "score", *two, "--ports", "2")


# --- score: data sets ------------------------------------------------------------------------------------------------


def test_a_data_set_from_the_command_line(tmp_path: Path) -> None:
    """Group, ID and OOD means equal the NumPy oracle's (1e-6); file and printed JSON are one; so is the table."""
    written = write_data_set(tmp_path, checksums=True)
    arguments = ["emval", "score", tmp_path / "truth", tmp_path / "pred"]
    code, out, err = run(*arguments, "-o", tmp_path / "r.json", "--json")
    assert (code, err) == (0, "")
    content = strict(out)
    assert content == strict((tmp_path / "r.json").read_text()) and not (tmp_path / "r.json.journal").exists()
    expected = {key: score_board(t, p, "NF") | score_board(t, p, "SP") for key, (t, p) in written.items()}
    for board in content["boards"]:
        assert board["values"] == pytest.approx(expected[board["group"], board["id"]], rel=1e-6)
        assert board["notes"]["checksum"] == "verified"
    rows = [v for (group, _), v in expected.items() if group != "private_challenge"]
    means = {m: np.mean([r[m] for r in rows]) for m in rows[0]}
    assert content["id"]["values"]["rel_l2_E"] == pytest.approx(means["rel_l2_E"], rel=1e-6)
    assert content["id"]["values"]["rel_l2_avg"] == pytest.approx((means["rel_l2_E"] + means["rel_l2_H"]) / 2, rel=1e-6)
    code, out, err = run(*arguments)
    assert (code, err) == (0, "")
    for word in [
        "public",
        "challenge",
        "ID",
        "OOD",
        "3 boards",
        "1 boards",
        "rel_l2_avg ↓",
        "local_cos_q50_E ↑",
        "ph_wmae",
        "rad",
    ]:
        assert word in out
    assert f"{means['mag_wmae']:.6g}" in out
    public = strict(run(*arguments, "--groups", "public", "--protocol", "SP", "--json")[1])
    assert list(public["groups"]) == ["public"] and list(public["ood"]["values"]) == []


def test_tables_fit_a_terminal(tmp_path: Path) -> None:
    """At 80 columns no number of the tables is cut. Oracle: every value's text stands in the rendered table."""
    from rich.console import Console

    from emma_jax.emval import score_boards, score_files
    from emma_jax.report import board_tables

    write_data_set(tmp_path)
    document = score_boards(tmp_path / "truth", tmp_path / "pred").to_dict()
    pair = [next((tmp_path / side).rglob("sparams.h5" if side == "truth" else "*.npz")) for side in ("truth", "pred")]
    one = score_files(pair[0], pair[0], "SP").to_document()
    for content, digits in ((document, 6), (one, 9)):
        console = Console(width=80, file=io.StringIO(), highlight=False)
        for part in board_tables(content):
            console.print(part, soft_wrap=isinstance(part, str), markup=False)
        text = console.file.getvalue()
        values = [content["values"]] if "values" in content else [content[k]["values"] for k in ("id", "ood")]
        assert "…" not in text and all(f"{v:.{digits}g}" in text for vs in values for v in vs.values())


def test_missing_boards_and_wrong_checksums(tmp_path: Path) -> None:
    """Both name the board and exit with 1; --allow-missing scores the rest and says that it cannot be compared."""
    written = write_data_set(tmp_path, checksums=True)
    group, name = next(iter(written))
    arguments = ["emval", "score", tmp_path / "truth", tmp_path / "pred", "--protocol", "SP"]
    (tmp_path / "pred" / group / f"{name}.npz").unlink()
    line = fails(*arguments)
    assert f"{group}/{name}" in line and "missing for 1 of 6 boards" in line
    code, out, _ = run(*arguments, "--allow-missing")
    assert code == 0 and "NOT COMPARABLE: 1 boards are left out" in out
    group, name = list(written)[1]
    path = next((tmp_path / "truth").rglob(f"{name}/sparams.h5"))
    path.write_bytes(path.read_bytes() + b"x")
    line = fails(*arguments, "--allow-missing")
    assert f"board {group}/{name}: sparams.h5: has SHA-256" in line


def test_an_interrupted_run_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped at the fourth board, the next call scores the rest and writes the bytes of an undisturbed run; --restart
    begins anew, other settings are refused."""
    from emma_jax.emval import boards

    write_data_set(tmp_path)
    arguments = ["emval", "score", tmp_path / "truth", tmp_path / "pred", "--protocol", "SP", "-o"]
    assert run(*arguments, tmp_path / "whole.json")[0] == 0
    real, calls = boards._score_by_task, []

    def interrupted(truth: Any, pred: Any, track: str) -> Any:
        calls.append(track)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(truth, pred, track)

    interrupted.__module__, interrupted.__qualname__ = real.__module__, real.__qualname__
    monkeypatch.setattr(boards, "_score_by_task", interrupted)
    code, _, err = run(*arguments, tmp_path / "o.json")
    assert (code, err) == (130, "emma-jax: interrupted\n") and (tmp_path / "o.json.journal").exists()
    other = fails(*[a if a != "SP" else "NF" for a in arguments], tmp_path / "o.json")
    assert "other folders, settings or version" in other and "--restart" in other
    assert run(*arguments, tmp_path / "o.json")[0] == 0 and len(calls) == 4 + 3
    assert (tmp_path / "o.json").read_bytes() == (tmp_path / "whole.json").read_bytes()
    calls.clear()
    assert run(*arguments, tmp_path / "p.json")[0] == 130
    assert run(*arguments, tmp_path / "p.json", "--restart")[0] == 0 and len(calls) == 4 + 6


# --- check -----------------------------------------------------------------------------------------------------------


def test_check_of_several_files(ring_slot: tuple[Path, Path], tmp_path: Path) -> None:
    """Table and JSON hold what check_sparams says of each file, an active one among them (sigma = 1.5 by hand)."""
    write_touchstone(tmp_path / "active.s1p", np.arange(1, 6) * 1e9, np.full((5, 1, 1), 1.5j))
    write_npz(tmp_path / "arrays.npz", S=np.full((4, 2, 2), 0.25 + 0j), frequency_hz=np.arange(1.0, 5.0))
    paths = [ring_slot[0], tmp_path / "active.s1p", tmp_path / "arrays.npz"]
    code, out, err = run("emval", "check", *paths, "--json")
    assert (code, err) == (0, "")
    content = strict(out)["files"]
    assert set(content) == {str(p) for p in paths}
    measured = read_touchstone(ring_slot[0])
    assert content[str(paths[0])] == strict(json.dumps(check_sparams(measured.s, measured.frequency_hz).to_dict()))
    assert content[str(paths[1])]["passivity"]["largest_singular_value"] == pytest.approx(1.5, rel=1e-12)
    assert content[str(paths[1])]["passivity"]["violating_fraction"] == 1
    out = run("emval", "check", *paths)[1]
    for word in ("active.s1p", "1.5", "100 %", "poor", "acceptable", "108.95 GHz", "PQM", "RQM", "CQM"):
        assert word in out


def test_check_names_the_file_at_fault(tmp_path: Path) -> None:
    """A file that is no Touchstone file, holds NaN, or is not there: exit 1 and one line with its name."""
    (tmp_path / "x.s1p").write_text("1 2 3\n")
    assert "x.s1p" in fails("emval", "check", tmp_path / "x.s1p")
    write_npz(tmp_path / "nan.npz", S=np.full((4, 1, 1), np.nan + 0j))
    line = fails("emval", "check", tmp_path / "nan.npz")
    assert "nan.npz" in line and "not finite" in line
    assert "none.s1p: No such file" in fails("emval", "check", tmp_path / "none.s1p")
    assert run("emval", "check")[0] == 2


# --- plot ------------------------------------------------------------------------------------------------------------


def test_plot_of_two_files(ring_slot: tuple[Path, Path], tmp_path: Path) -> None:
    """A folder gets a picture a kind, a file one; their names are printed; another suffix is a folder's name."""
    pytest.importorskip("matplotlib")
    arguments = ["emval", "plot", *ring_slot, "--ports", "1", "--pick", "-o"]
    code, out, err = run(*arguments, tmp_path / "p")
    assert (code, err) == (0, "")
    assert [Path(x).name for x in out.splitlines()] == ["sparams.png", "smith.png"]
    code, out, _ = run(*arguments, tmp_path / "one.png")
    assert code == 0 and (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG") and out.count("\n") == 1
    assert run("emval", "plot", *ring_slot)[0] == 2
    assert "ports" in fails("emval", "plot", *ring_slot, "-o", tmp_path / "q")


def test_plot_of_a_data_set(tmp_path: Path) -> None:
    """The worst boards and the pictures of the worst one, from a result file or scored for it; or a board by name."""
    pytest.importorskip("matplotlib")
    written = write_data_set(tmp_path)
    folders = [tmp_path / "truth", tmp_path / "pred"]
    assert run("emval", "score", *folders, "--protocol", "SP", "-o", tmp_path / "r.json")[0] == 0
    code, out, _ = run("emval", "plot", *folders, "--result", tmp_path / "r.json", "-o", tmp_path / "a")
    assert code == 0
    assert [Path(x).name for x in out.splitlines()] == ["worst_boards.png", "sparams.png", "smith.png"]
    code, out, _ = run("emval", "plot", *folders, "--protocol", "SP", "--count", "2", "-o", tmp_path / "worst.png")
    assert code == 0 and Path(out.strip()).name == "worst.png"
    name = next(iter(written))[1]
    code, out, _ = run("emval", "plot", *folders, "--board", name, "--protocol", "SP", "-o", tmp_path / "b.png")
    assert code == 0 and Path(out.strip()).name == "b.png"
    assert "0 boards are called 'x'" in fails("emval", "plot", *folders, "--board", "x", "-o", tmp_path / "c")
    (tmp_path / "s.json").write_text("{}")
    assert "is not the result of a data set" in fails(
        "emval", "plot", *folders, "--result", tmp_path / "s.json", "-o", tmp_path / "c"
    )


def test_missing_extras_are_named(
    ring_slot: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without matplotlib, h5py or scikit-rf a command exits with 1 and one line that says what to install."""
    import importlib.util
    import sys

    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib.figure", None)
        line = fails("emval", "plot", *ring_slot, "--ports", "1", "--pick", "-o", tmp_path / "p")
        assert "pip install 'emma-jax[report]'" in line
    (tmp_path / "x.h5").write_bytes(b"x")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "h5py", None)
        assert "pip install 'emma-jax[em]'" in fails("emval", "check", tmp_path / "x.h5")
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None)
        assert "pip install 'emma-jax[em]'" in fails("demo", "--em")


def test_demo_passes_em_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """--em, --out and --seed reach the electromagnetic demo."""
    calls = []
    monkeypatch.setattr("emma_jax.demo.em.run_em_demo", lambda *args: calls.append(args))
    assert run("demo", "--em", "--out", tmp_path / "d", "--seed", "7")[0] == 0
    assert calls[0][:2] == (tmp_path / "d", 7)


# --- evaluate on files of channels and signals -----------------------------------------------------------------------


def test_channels_on_files(tmp_path: Path) -> None:
    """NMSE of complex npz, of float planes with --param iq_axis=-1 and of HDF5 alike. Oracle: NumPy (5e-6 dB)."""
    import h5py

    rng = np.random.default_rng(0)
    truth, error = (rng.normal(size=(50, 4, 8)) + 1j * rng.normal(size=(50, 4, 8)) for _ in range(2))
    pred = truth + 0.1 * error
    expected = 10 * np.log10((np.abs(pred - truth) ** 2).sum() / (np.abs(truth) ** 2).sum())
    arguments = ["evaluate", "E-CH-CSI", *files(tmp_path, preds=pred, labels=truth), "--json"]
    assert strict(run(*arguments)[1])["metrics"]["NMSE"]["value"] == pytest.approx(expected, abs=5e-6)
    ratios = (np.abs(pred - truth) ** 2).sum((1, 2)) / (np.abs(truth) ** 2).sum((1, 2))
    metric = strict(run(*arguments, "--param", "reduction=mean_ratio")[1])["metrics"]["NMSE"]
    assert metric["value"] == pytest.approx(10 * np.log10(ratios.mean()), abs=5e-6)
    assert metric["config"]["reduction"] == "mean_ratio"
    planes = [np.stack([x.real, x.imag], -1).astype(np.float32) for x in (pred, truth)]
    arguments = ["evaluate", "E-CH-CSI", *files(tmp_path, preds=planes[0], labels=planes[1]), "--json"]
    value = strict(run(*arguments, "--param", "iq_axis=-1")[1])["metrics"]["NMSE"]["value"]
    assert value == pytest.approx(expected, abs=1e-5)
    with h5py.File(tmp_path / "both.h5", "w") as file:
        file["preds"], file["labels"] = pred.astype(np.complex64), truth.astype(np.complex64)
    both = ["--preds", tmp_path / "both.h5", "--labels", tmp_path / "both.h5", "--json"]
    assert strict(run("evaluate", "E-CH-CSI", *both)[1])["metrics"]["NMSE"]["value"] == pytest.approx(
        expected, abs=1e-5
    )


def test_signals_on_files(tmp_path: Path) -> None:
    """SI-SDR of complex files: of noise orthogonal to the signal at 20 dB it is 20 dB (1e-5); lengths count."""
    rng = np.random.default_rng(0)
    truth, noise = (rng.normal(size=(6, 64)) + 1j * rng.normal(size=(6, 64)) for _ in range(2))
    noise -= truth * ((noise * truth.conj()).sum(1) / (np.abs(truth) ** 2).sum(1))[:, None]
    noise *= 0.1 * np.linalg.norm(truth, axis=1, keepdims=True) / np.linalg.norm(noise, axis=1, keepdims=True)
    arguments = ["evaluate", "E-SC-SEP", *files(tmp_path, preds=truth + noise, labels=truth), "--json"]
    assert strict(run(*arguments)[1])["metrics"]["SISDR"]["value"] == pytest.approx(20, abs=1e-5)
    short = truth[:, :9] + noise[:, :9]
    dirty = (truth + noise).copy()
    dirty[:, 9:] = 1e3
    write_npz(tmp_path / "preds.npz", preds=dirty)
    write_npz(tmp_path / "labels.npz", labels=truth, lengths=np.full(6, 9))
    write_npz(tmp_path / "p9.npz", preds=short)
    write_npz(tmp_path / "l9.npz", labels=truth[:, :9])
    cut = strict(
        run("evaluate", "E-SC-SEP", "--preds", tmp_path / "p9.npz", "--labels", tmp_path / "l9.npz", "--json")[1]
    )
    value = strict(run(*arguments)[1])["metrics"]["SISDR"]["value"]
    assert value == pytest.approx(cut["metrics"]["SISDR"]["value"], abs=1e-5)


def test_sparameters_as_arrays(tmp_path: Path) -> None:
    """EMVal-SP takes npz with preds and labels too. Oracle: NumPy (1e-6)."""
    rng = np.random.default_rng(0)
    truth, pred = (0.3 * (rng.normal(size=(9, 2, 2)) + 1j * rng.normal(size=(9, 2, 2))) for _ in range(2))
    content = strict(run("evaluate", "EMVal-SP", *files(tmp_path, preds=pred, labels=truth), "--json")[1])
    values = {name: entry["value"] for name, entry in content["metrics"].items()}
    assert values == pytest.approx(score_board({"S": truth}, {"S": pred}, "SP"), rel=1e-6)
    write_touchstone(tmp_path / "t.s2p", F_HZ, truth[:4])
    write_npz(tmp_path / "p.npz", S=pred[:4], frequency_hz=F_HZ, z0=50.0)
    content = strict(
        run("evaluate", "EMVal-SP", "--preds", tmp_path / "p.npz", "--labels", tmp_path / "t.s2p", "--json")[1]
    )
    expected = score_board({"S": truth[:4]}, {"S": pred[:4]}, "SP")
    assert content["metrics"]["ph_wmae"]["value"] == pytest.approx(expected["ph_wmae"], rel=1e-6)
