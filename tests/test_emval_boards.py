"""Scoring data sets of boards: values against the NumPy oracle, resumption after kills, memory, and named errors."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_emval_oracle import score_board

from emma_jax.emval import boards
from emma_jax.emval.boards import (
    NF_METRICS,
    SP_METRICS,
    BoardScores,
    load_board,
    load_files,
    mean_over_boards,
    score_boards,
    score_files,
)
from emma_jax.emval.keymap import FieldKeys, KeyMap
from emma_jax.emval.sparams import check_sparams, renormalize
from emma_jax.errors import EvaluationError, FileFormatError, NonFiniteError, ShapeError, SubmissionError
from emma_jax.io.touchstone import write_touchstone

h5py = pytest.importorskip("h5py")

F_HZ = np.array([1e9, 2e9, 3e9, 4e9])
BOARDS = {"public": 3, "private_standard": 1, "private_challenge": 2}


def complex_normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.complex64)


def board(seed: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Truth and prediction of a ragged board."""
    rng = np.random.default_rng(seed)
    ports, probes = 1 + seed % 3, 5 + 7 * seed
    shapes = {"E": (ports, 2, probes, 3), "H": (ports, 2, probes, 3), "S": (4, ports, ports)}
    truth = {k: complex_normal(rng, *s) * (0.3 if k == "S" else 1) for k, s in shapes.items()}
    pred = {k: v + 0.1 * complex_normal(rng, *v.shape) for k, v in truth.items()}
    return truth, pred


def write_data_set(root: Path, *, checksums: bool = False) -> dict[tuple[str, str], tuple[dict, dict]]:
    """A truth in the public layout and predictions as npz; what was written, by group and board."""
    written = {}
    for g, (group, n) in enumerate(BOARDS.items()):
        sums = {}
        for k in range(n):
            truth, pred = board(10 * g + k)
            name = hashlib.sha256(f"{group}{k}".encode()).hexdigest()
            folder = root / "truth" / "v0" / group / "boards" / name
            folder.mkdir(parents=True)
            with h5py.File(folder / "near_field.h5", "w") as file:
                file["E"], file["H"] = truth["E"], truth["H"]
            with h5py.File(folder / "sparams.h5", "w") as file:
                file["S"], file["frequency_hz"], file["z0"] = truth["S"], F_HZ, 50.0
            for path in folder.iterdir():
                sums[f"boards/{name}/{path.name}"] = hashlib.sha256(path.read_bytes()).hexdigest()
            (root / "pred" / group).mkdir(parents=True, exist_ok=True)
            np.savez(root / "pred" / group / f"{name}.npz", frequency_hz=F_HZ, z0=50.0, **pred)
            written[group, name] = truth, pred
        if checksums:
            (root / "truth" / "v0" / group / "checksums.json").write_text(json.dumps(sums))
    return written


def run(root: Path, protocol: str = "both", **options: Any) -> BoardScores:
    return score_boards(root / "truth", root / "pred", protocol, **{"score_board": score_board, **options})


def test_values_equal_the_oracle(tmp_path: Path) -> None:
    """Board values, group means, ID, OOD and the averages equal plain NumPy over the same boards, to 1e-15."""
    written = write_data_set(tmp_path)
    got = run(tmp_path)
    expected = {key: score_board(t, p, "NF") | score_board(t, p, "SP") for key, (t, p) in written.items()}
    assert len(got.boards) == 6 and got.comparable and got.unused == ()
    for record in got.boards:
        assert dict(record.values) == expected[record.group, record.id]
    subsets = {
        "public": ["public"],
        "private_standard": ["private_standard"],
        "private_challenge": ["private_challenge"],
        "id": ["public", "private_standard"],
        "ood": ["private_challenge"],
    }
    content = got.to_dict()
    for name, groups in subsets.items():
        rows = [v for (group, _), v in expected.items() if group in groups]
        values = content["groups"][name]["values"] if name in content["groups"] else content[name]["values"]
        for metric in NF_METRICS + SP_METRICS:
            assert values[metric] == pytest.approx(np.mean([r[metric] for r in rows]), rel=1e-15)
        for average, parts in {
            "rel_l2_avg": ("rel_l2_E", "rel_l2_H"),
            "local_q50_avg": ("local_q50_E", "local_q50_H"),
        }.items():
            assert values[average] == pytest.approx(np.mean([[r[p] for r in rows] for p in parts]), rel=1e-15)
    assert content["id"]["n_boards"] == 4 and content["ood"]["groups"] == ["private_challenge"]


@pytest.mark.parametrize(("protocol", "metrics"), [("NF", NF_METRICS), ("SP", SP_METRICS)])
def test_one_track_reads_one_track(tmp_path: Path, protocol: str, metrics: tuple[str, ...]) -> None:
    """A protocol of one track gives its metrics only, and does not need the files of the other."""
    write_data_set(tmp_path)
    for path in (tmp_path / "truth").rglob("sparams.h5" if protocol == "NF" else "near_field.h5"):
        path.unlink()
    got = run(tmp_path, protocol)
    assert tuple(got.boards[0].values) == metrics and len(got.boards) == 6
    assert ("rel_l2_avg" in got.id) == (protocol == "NF")
    with pytest.raises(FileFormatError, match="near fields and S-parameters are missing for 6 of 6 boards: public/"):
        run(tmp_path)


def test_group_means_weigh_boards_equally() -> None:
    """ID is the mean over the boards of both groups, not of the group means; averages are of the means."""
    assert mean_over_boards([{"a": 1.0}, {"a": 2.0}, {"a": 6.0}]) == {"a": 3.0}
    got = mean_over_boards([{"rel_l2_E": 1.0, "rel_l2_H": 3.0}, {"rel_l2_E": 2.0, "rel_l2_H": 4.0}])
    assert got["rel_l2_avg"] == 2.5 and mean_over_boards([]) == {}


def test_layouts_mix(tmp_path: Path) -> None:
    """Predictions as Touchstone next to HDF5 fields under other names and axes score as the arrays do."""
    written = write_data_set(tmp_path)
    before = run(tmp_path)
    for (group, name), (_, pred) in written.items():
        folder = tmp_path / "other" / group
        folder.mkdir(parents=True, exist_ok=True)
        write_touchstone(folder / f"{name}.s{pred['S'].shape[1]}p", F_HZ, pred["S"], unit="MHz")
        with h5py.File(folder / f"{name}.h5", "w") as file:
            for what in "EH":
                file[f"f/{what}r"], file[f"f/{what}i"] = (
                    p.transpose(1, 0, 3, 2) for p in (pred[what].real, pred[what].imag)
                )
    keys = KeyMap(FieldKeys(E=("f/Er", "f/Ei"), H=("f/Hr", "f/Hi"), axes="FJCP"))
    got = score_boards(tmp_path / "truth", tmp_path / "other", pred_key_map=keys, score_board=score_board)
    assert [dict(b.values) for b in got.boards] == [dict(b.values) for b in before.boards]
    assert got.boards[0].notes == {"frequencies": {"NF": False, "SP": True}, "checksum": "none", "reference": "equal"}


def test_predictions_are_renormalized_to_the_truth(tmp_path: Path) -> None:
    """Predictions at 75 ohm score as the same ones at 50, to 1e-5 (complex64 files), and the record says so."""
    written = write_data_set(tmp_path)
    before = run(tmp_path, "SP")
    for (group, name), (_, pred) in written.items():
        (tmp_path / "pred" / group / f"{name}.npz").unlink()
        s = renormalize(pred["S"], 50, 75)
        write_touchstone(tmp_path / "pred" / group / f"{name}.s{s.shape[1]}p", F_HZ, s, z0=75.0)
    got = run(tmp_path, "SP")
    for a, b in zip(got.boards, before.boards):
        assert dict(a.values) == pytest.approx(dict(b.values), rel=1e-5)
        assert a.notes["reference"] == "renormalized"


def test_masks_reach_the_metrics(tmp_path: Path) -> None:
    """Entries that the truth masks do not count, NaN in the prediction included."""
    truth, pred = board(1)
    where = np.random.default_rng(0).random(truth["S"].shape) > 0.4
    pred["S"] = np.where(where, pred["S"], np.nan)
    for side, arrays in (("truth", truth | {"where": where}), ("pred", pred)):
        (tmp_path / side / "public").mkdir(parents=True)
        np.savez(tmp_path / side / "public" / "b.npz", **arrays)
    got = run(tmp_path, "SP").boards[0]
    assert dict(got.values) == score_board(truth | {"where": where}, pred, "SP")
    assert list(got.checks) == ["truth"]


def test_checks_and_validity_are_recorded(tmp_path: Path) -> None:
    """A record has both sides' sanity checks, the hashes of its files, and the validity that the metrics give."""
    written = write_data_set(tmp_path)

    class Counted:
        def as_dict(self) -> dict[str, int]:
            return {"n": 7, "n_used": 7}

    class WithValidity(dict[str, float]):
        validity: Mapping[str, Counted] = {"real_imag_rmse": Counted()}

    got = run(tmp_path, "SP", score_board=lambda t, p, track: WithValidity(score_board(t, p, track))).boards[0]
    truth, pred = written[got.group, got.id]
    assert got.checks["truth"] == check_sparams(truth["S"], F_HZ).to_dict()
    assert got.checks["pred"] == check_sparams(pred["S"], F_HZ).to_dict()
    assert got.validity == {"real_imag_rmse": {"n": 7, "n_used": 7}}
    path = tmp_path / "pred" / got.group / f"{got.id}.npz"
    assert got.sha256["pred"] == {path.name: hashlib.sha256(path.read_bytes()).hexdigest()}


def test_two_touchstone_files() -> None:
    """The issue's figures for scikit-rf's ring slot, simulated against measured S11 on every second point, to 1e-9."""
    skrf = pytest.importorskip("skrf")
    folder = Path(skrf.__file__).parent / "data"
    files = folder / "ring slot measured.s1p", folder / "ring slot.s2p"
    got = score_files(*files, ports=[1], pick=True, score_board=score_board)
    expected = {"real_imag_rmse": 0.257294228339, "mag_wmae": 0.439490264202, "ph_wmae": 0.663756671259}
    assert dict(got.values) == pytest.approx(expected, abs=1e-9)
    assert got.name == "ring slot measured" and got.checks["truth"]["n_frequencies"] == 101
    with pytest.raises(ShapeError, match="2 ports, the truth"):
        score_files(*files, score_board=score_board)


def test_two_array_files(tmp_path: Path) -> None:
    """One .npz against one HDF5 file scores as the board does; options of Touchstone files are refused."""
    truth, pred = board(2)
    np.savez(tmp_path / "t.npz", **truth)
    with h5py.File(tmp_path / "p.h5", "w") as file:
        for name, value in pred.items():
            file[name] = value
    got = score_files(tmp_path / "t.npz", tmp_path / "p.h5", "both", score_board=score_board)
    assert dict(got.values) == score_board(truth, pred, "NF") | score_board(truth, pred, "SP")
    with pytest.raises(EvaluationError, match="needs two Touchstone files"):
        score_files(tmp_path / "t.npz", tmp_path / "p.h5", ports=[1])
    with pytest.raises(FileNotFoundError):
        score_files(tmp_path / "t.npz", tmp_path / "none.h5")


# --- errors ----------------------------------------------------------------------------------------------------------


def test_missing_predictions(tmp_path: Path) -> None:
    """A board without prediction is an error that names it; allowed, the result says it is not comparable."""
    written = write_data_set(tmp_path)
    keys = list(written)
    for key in keys[1:3]:
        (tmp_path / "pred" / key[0] / f"{key[1]}.npz").unlink()
    (tmp_path / "pred" / "public" / "stray.npz").write_bytes(b"")
    with pytest.raises(SubmissionError, match="missing for 2 of 6 boards: public/") as caught:
        run(tmp_path)
    assert all("/".join(key) in str(caught.value) for key in keys[1:3])
    got = run(tmp_path, allow_missing=True)
    assert not got.comparable and got.missing == tuple(sorted("/".join(k) for k in keys[1:3]))
    assert got.unused == ("public/stray",) and len(got.boards) == 4
    assert got.to_dict()["comparable"] is False


def test_truth_that_checksums_list_but_is_gone(tmp_path: Path) -> None:
    """A truth from which a board was deleted is incomplete, not smaller."""
    write_data_set(tmp_path, checksums=True)
    gone = sorted((tmp_path / "truth/v0/public/boards").iterdir())[0]
    for path in gone.iterdir():
        path.unlink()
    gone.rmdir()
    with pytest.raises(FileFormatError, match=f"truth_dir: .*1 of 6 boards: public/{gone.name}"):
        run(tmp_path)


def test_checksums(tmp_path: Path) -> None:
    """Files as listed are verified; a changed byte, or a file that is not listed, names board and file."""
    write_data_set(tmp_path, checksums=True)
    assert all(b.notes["checksum"] == "verified" for b in run(tmp_path).boards)
    path = next((tmp_path / "truth").rglob("sparams.h5"))
    sums = path.parents[2] / "checksums.json"
    good, listed = path.read_bytes(), sums.read_text()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(FileFormatError, match=f"{path.parent.name}: sparams.h5: has SHA-256 .*checksums.json says"):
        run(tmp_path, "SP")
    assert len(run(tmp_path, "SP", verify=False).boards) == 6
    path.write_bytes(good)
    content = json.loads(listed)
    del content[f"boards/{path.parent.name}/sparams.h5"]
    sums.write_text(json.dumps(content))
    with pytest.raises(FileFormatError, match=r"sparams\.h5: is not listed in checksums\.json"):
        run(tmp_path, "SP")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"E": lambda x: x[:, :, :-1]}, ShapeError, r"E: shape \[1, 2, 4, 3\], the truth has \[1, 2, 5, 3\]"),
        ({"S": lambda x: x[:-1], "frequency_hz": lambda f: f[:-1]}, ShapeError, r"S: shape \[3, 1, 1\], the truth has"),
        ({"frequency_hz": lambda f: f + 1e6}, ShapeError, "S-parameters: frequency grids differ: 1001000000 Hz"),
        ({"H": None}, FileFormatError, "no dataset 'H' for H; the file holds"),
        ({"E": np.real}, FileFormatError, "not complex"),
        ({"z0": lambda z: z + 1j}, EvaluationError, "complex reference impedances"),
        ({"S": lambda x: x * np.nan}, EvaluationError, "real_imag_rmse: is nan"),
    ],
)
def test_bad_boards_are_named(tmp_path: Path, change: dict, error: type, message: str) -> None:
    """Whatever is wrong with one board, the error has a type and names the board."""
    written = write_data_set(tmp_path)
    group, name = next(iter(written))
    arrays = {"frequency_hz": F_HZ, "z0": np.array(50.0), **written[group, name][1]}
    for key, f in change.items():
        arrays[key] = None if f is None else f(arrays[key])
    np.savez(tmp_path / "pred" / group / f"{name}.npz", **{k: v for k, v in arrays.items() if v is not None})
    with pytest.raises(error, match=f"board {group}/{name}: .*{message}"):
        run(tmp_path)


def test_errors_of_the_metrics_are_named(tmp_path: Path) -> None:
    """An error that the metrics raise keeps its type, index and count, and gains the board's name."""
    write_data_set(tmp_path)

    def refuse(truth: Any, pred: Any, track: str) -> Any:
        raise NonFiniteError("NaN", task="EMVal-NF", argument="E", count=3, index=(0, 1))

    with pytest.raises(NonFiniteError, match=r"board public/.*: EMVal-NF: E: NaN; 3 of them") as caught:
        run(tmp_path, score_board=refuse)
    assert caught.value.index == (0, 1) and caught.value.count == 3


def test_bad_arguments(tmp_path: Path) -> None:
    """Unknown protocols and groups, and folders without boards, are typed errors."""
    write_data_set(tmp_path)
    for options in ({"protocol": "XX"}, {"groups": ["other"]}, {"groups": []}):
        with pytest.raises(EvaluationError):
            run(tmp_path, **options)
    assert {b.group for b in run(tmp_path, groups=["private_challenge"]).boards} == {"private_challenge"}
    (tmp_path / "pred2" / "public").mkdir(parents=True)
    with pytest.raises(EvaluationError, match="no board has both"):
        score_boards(tmp_path / "truth", tmp_path / "pred2", allow_missing=True, score_board=score_board)


# --- resumption ------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for a process that ends here."""


def killed_at(n: int) -> Any:
    """The oracle, until board n."""
    seen = []

    def score(truth: Any, pred: Any, track: str) -> dict[str, float]:
        seen.append(track)
        if len(seen) > 2 * n:
            raise Killed
        return score_board(truth, pred, track)

    score.__module__, score.__qualname__ = score_board.__module__, score_board.__qualname__
    return score


@pytest.mark.parametrize("n", range(6))
def test_interrupted_run_gives_the_same_bytes(tmp_path: Path, n: int) -> None:
    """Stopped at board n and continued: the result file is the very same, and no board is scored twice."""
    write_data_set(tmp_path, checksums=True)
    run(tmp_path, output=tmp_path / "whole.json")
    assert not (tmp_path / "whole.json.journal").exists()
    out = tmp_path / "part.json"
    with pytest.raises(Killed):
        run(tmp_path, output=out, score_board=killed_at(n))
    assert not out.exists() and (tmp_path / "part.json.journal").exists()
    run(tmp_path, output=out, score_board=killed_at(6 - n))
    assert out.read_bytes() == (tmp_path / "whole.json").read_bytes()
    assert not (tmp_path / "part.json.journal").exists()


def test_a_journal_cut_anywhere_is_continued(tmp_path: Path) -> None:
    """However little of the journal a crash leaves, or zeros in place of it, the result is the same."""
    write_data_set(tmp_path)
    whole, out, journal = tmp_path / "whole.json", tmp_path / "o.json", tmp_path / "o.json.journal"
    run(tmp_path, output=whole)
    with pytest.raises(Killed):
        run(tmp_path, output=out, score_board=killed_at(4))
    content = journal.read_bytes()
    for cut in [*range(0, len(content), 997), len(content) - 1]:
        for rest in (b"", bytes(len(content) - cut)):
            journal.write_bytes(content[:cut] + rest)
            run(tmp_path, output=out)
            assert out.read_bytes() == whole.read_bytes()


def test_changed_predictions_are_scored_anew(tmp_path: Path) -> None:
    """A board whose file changed after it was scored is scored again; the others are kept."""
    written = write_data_set(tmp_path)
    out = tmp_path / "o.json"
    with pytest.raises(Killed):
        run(tmp_path, output=out, score_board=killed_at(5))
    group, name = next(iter(written))
    truth, pred = written[group, name]
    np.savez(tmp_path / "pred" / group / f"{name}.npz", **(pred | {"E": truth["E"]}))
    got = run(tmp_path, output=out, score_board=killed_at(2))
    assert got.boards[[b.id for b in got.boards].index(name)].values["rel_l2_E"] == 0


def test_a_journal_of_another_run_is_refused(tmp_path: Path) -> None:
    """Other settings than the journal's are an error, or a fresh start with resume=False; two runs at once are not."""
    write_data_set(tmp_path)
    out = tmp_path / "o.json"
    with pytest.raises(Killed):
        run(tmp_path, output=out, score_board=killed_at(3))
    with pytest.raises(FileFormatError, match="journal of a run with other"):
        run(tmp_path, "NF", output=out)
    assert len(run(tmp_path, "NF", output=out, resume=False).boards) == 6

    def nested(truth: Any, pred: Any, track: str) -> Any:
        run(tmp_path, output=out)

    with pytest.raises(FileFormatError, match="another run"):
        run(tmp_path, output=out, score_board=nested)


KILL = """
import os, signal, sys
sys.path.insert(0, sys.argv[4])
from pathlib import Path
from emma_jax.emval.boards import score_boards
from test_emval_oracle import score_board
root, out, limit, calls = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), []
def score(truth, pred, track):
    calls.append(track)
    if len(calls) > limit:
        os.kill(os.getpid(), signal.SIGKILL)
    return score_board(truth, pred, track)
score.__module__, score.__qualname__ = score_board.__module__, score_board.__qualname__
score_boards(root / "truth", root / "pred", output=out, score_board=score)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_sigkill_and_resume(tmp_path: Path) -> None:
    """A process killed twice while it scores leaves a journal from which a third one writes the undisturbed bytes."""
    write_data_set(tmp_path)
    run(tmp_path, output=tmp_path / "whole.json")
    here = str(Path(__file__).parent)
    codes = []
    for limit in (3, 5, 99):
        command = [
            sys.executable,
            "-c",
            textwrap.dedent(KILL),
            str(tmp_path),
            str(tmp_path / "o.json"),
            str(limit),
            here,
        ]
        codes.append(subprocess.run(command, check=False, capture_output=True, timeout=120, env=os.environ).returncode)
    assert codes == [-signal.SIGKILL, -signal.SIGKILL, 0]
    assert (tmp_path / "o.json").read_bytes() == (tmp_path / "whole.json").read_bytes()


def test_progress_counts_kept_boards(tmp_path: Path) -> None:
    """Progress starts where the journal ends, names each board, and ends at the total."""
    write_data_set(tmp_path)
    with pytest.raises(Killed):
        run(tmp_path, output=tmp_path / "o.json", score_board=killed_at(2))
    calls: list[tuple[int, int, str]] = []
    got = run(tmp_path, output=tmp_path / "o.json", progress=lambda *a: calls.append(a))
    assert calls == [*((k, 6, got.boards[k].name) for k in range(2, 6)), (6, 6, "")]


# --- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", ["JFPC", "FPCJ"])
def test_next_board_is_read_while_one_is_scored_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, axes: str
) -> None:
    """While board k is scored, board k+1 is read and k+2 is not begun; peak memory stays below 5 x a truth file.

    Two boards with truth and prediction are 4 x; reordered axes take half a file more for a moment. The metrics here
    allocate nothing; tracemalloc counts what NumPy allocates.
    """
    rng = np.random.default_rng(0)
    order = ["JFPC".index(a) for a in axes]
    n = 6
    for k in range(n):
        for side in ("truth", "pred"):
            (tmp_path / side / "public").mkdir(parents=True, exist_ok=True)
            with h5py.File(tmp_path / side / "public" / f"b{k}.h5", "w") as file:
                for what in "EH":
                    file[what] = complex_normal(rng, 2, 3, 8000 + 1000 * (k % 3), 3).transpose(order)
    largest = max(p.stat().st_size for p in (tmp_path / "truth").rglob("*.h5"))

    begun: list[str] = []
    read = [threading.Event() for _ in range(2 * n)]
    real = boards.read_fields

    def watched(path: Path, *args: Any, **options: Any) -> Any:
        begun.append(path.stem)
        fields = real(path, *args, **options)
        read[len(begun) - 1].set()
        return fields

    scored = 0

    def score(truth: Any, pred: Any, track: str) -> dict[str, float]:
        nonlocal scored
        scored += 1
        following = min(2 * scored + 1, 2 * n - 1)
        assert read[following].wait(timeout=60)
        time.sleep(0.01)  # time in which a reader that ran ahead would start on the board after the next
        assert len(begun) == following + 1
        return dict.fromkeys(NF_METRICS, 1.0)

    monkeypatch.setattr(boards, "read_fields", watched)
    keys = KeyMap(FieldKeys(axes=axes))
    tracemalloc.start()
    try:
        run(tmp_path, "NF", score_board=score, key_map=keys, pred_key_map=keys)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert scored == n and 3.5 * largest < peak < 5 * largest


# --- the arrays behind the values ------------------------------------------------------------------------------------


def test_loaded_arrays_are_the_scored_ones(tmp_path: Path) -> None:
    """load_files and load_board give the arrays that the metrics got: their oracle values are the record's, exactly."""
    written = write_data_set(tmp_path)
    for record in run(tmp_path).boards:
        pair = load_board(tmp_path / "truth", tmp_path / "pred", record.id)
        assert pair.name == record.name and pair.fields is not None and pair.sparams is not None
        (t, p), (s, s_hat) = pair.fields, pair.sparams
        values = score_board({"E": t.e, "H": t.h}, {"E": p.e, "H": p.h}, "NF")
        assert values | score_board({"S": s.s}, {"S": s_hat.s}, "SP") == dict(record.values)
        np.testing.assert_array_equal(s.frequency_hz, F_HZ)
    with pytest.raises(EvaluationError, match="0 boards are called 'none'"):
        load_board(tmp_path / "truth", tmp_path / "pred", "none")
    truth, pred = next(iter(written.values()))
    mm = np.arange(3.0 * truth["E"].shape[2]).reshape(-1, 3)
    np.savez(tmp_path / "t.npz", position=mm, **truth)
    np.savez(tmp_path / "p.npz", **pred)
    for unit, scale in (("m", 1.0), ("mm", 1e-3), ("mil", 25.4e-6)):
        pair = load_files(tmp_path / "t.npz", tmp_path / "p.npz", "NF", key_map=KeyMap(FieldKeys(position_unit=unit)))
        np.testing.assert_allclose(pair.position_m, scale * mm, rtol=1e-15)
        assert pair.sparams is None
    np.savez(tmp_path / "t.npz", position=mm[:, :2], **truth)
    with pytest.raises(FileFormatError, match=r"t: .*'position' is float64\[\d+, 2\], not \[\d+, 3\] coordinates"):
        load_files(tmp_path / "t.npz", tmp_path / "p.npz", "NF")
    assert score_files(tmp_path / "t.npz", tmp_path / "p.npz", "NF", score_board=score_board).values
