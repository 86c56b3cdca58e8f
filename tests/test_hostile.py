"""Submissions from strangers: whatever lies in the folder, the outcome is a score or a typed error, and nothing ran."""

from __future__ import annotations

import collections
import os
import shutil
import time
import zipfile
from pathlib import Path

import hostile_inputs as hostile
import numpy as np
import pytest
from test_cli import fails, no_cache_folder, run  # noqa: F401  (an autouse fixture)

from emma_jax.errors import EvaluationError, FileFormatError, SubmissionError
from emma_jax.io import write_npz
from emma_jax.release import Release, build_release
from emma_jax.submissions import Limits, check_submission, load_submission, score_submission, verify_result

N = 8
TIGHT = Limits(file_bytes=1 << 21, text_bytes=1 << 20, total_bytes=1 << 23, entries=200, depth=12)


def labels(task: str, fold: str) -> np.ndarray:
    rng = np.random.default_rng([len(task), ord(fold[-1])])
    return rng.uniform(-60, 60, N) if task == "E-LOC-AOA" else np.arange(N) % 3


@pytest.fixture(scope="module")
def release(tmp_path_factory) -> Release:
    root = tmp_path_factory.mktemp("release")
    for task in ("E-LOC-AOA", "E-ID-FP"):
        (root / "labels" / task).mkdir(parents=True)
        for fold in ("env-a", "env-b"):
            ids = [f"{fold}-{i}" for i in range(N)]
            write_npz(root / "labels" / task / f"{fold}.npz", labels=labels(task, fold), ids=ids)
    tasks = {
        "E-LOC-AOA": {"anchor": {"m_min": 0.0, "m_max": 30.0, "basis": "test"}},
        "E-ID-FP": {"params": {"num_classes": 3}, "anchor": {"m_min": 0.3, "m_max": 1.0, "basis": "test"}},
    }
    return build_release(root, name="hostile", tasks=tasks, frozen=True)


def good() -> hostile.Files:
    """A submission that scores, in memory."""
    files: hostile.Files = {b"submission.toml": b'name = "mine"\nmodel = "net"\nnotes = "n"\n'}
    for task in ("E-LOC-AOA", "E-ID-FP"):
        for fold in ("env-a", "env-b"):
            truth = labels(task, fold)
            preds = truth + 1.0 if task == "E-LOC-AOA" else np.eye(3)[truth] + 0.25
            ids = np.array([f"{fold}-{i}" for i in range(N)])
            files[f"preds/{task}/{fold}.npz".encode()] = hostile.npz(preds=preds, ids=ids)
    return files


@pytest.fixture
def folder(tmp_path):
    """The good submission on disk."""
    hostile.write(good(), tmp_path / "s")
    return tmp_path / "s"


def outcome(root: Path, release: Release, limits: Limits = TIGHT) -> str:
    """ "score", or the name of the typed error; anything else is a failure of the package and passes through."""
    try:
        result = score_submission(root, release, limits=limits)
    except EvaluationError as error:
        assert str(error)
        return type(error).__name__
    assert 0.0 <= result["ood_avg"] <= 1.0
    return "score"


# --- The fuzz -------------------------------------------------------------------------------------------------------


def fuzz(release: Release, tmp_path: Path, seeds: range, check_every: int) -> collections.Counter:
    """Outcomes of so many mutated submissions; on disk one at a time."""
    found: collections.Counter = collections.Counter()
    sentinel = tmp_path / "PWNED"
    slowest = (0.0, -1)
    for seed in seeds:
        rng = np.random.default_rng(seed)
        files = good()
        names = hostile.mutate(rng, files, str(sentinel))
        root = tmp_path / f"s{seed}"
        root.mkdir()
        hostile.write(files, root)
        before = time.process_time()
        try:
            said = outcome(root, release)
            if seed % check_every == 0:
                problems = check_submission(root, release, limits=TIGHT)
                assert (said == "score") == (problems == ()), (said, problems)
        except BaseException as error:
            raise AssertionError(f"seed {seed}, {names}: {type(error).__name__}: {error}") from error
        slowest = max(slowest, (time.process_time() - before, seed))
        found[said] += 1
        shutil.rmtree(root)
    assert not sentinel.exists() and not any(p.name.startswith("PWNED") for p in Path.cwd().iterdir())
    found["slowest_ms"] = int(1000 * slowest[0])
    found["slowest_seed"] = slowest[1]
    return found


def test_the_unmutated_submission_scores(release, folder):
    """Claim: what is mutated below is a good submission."""
    assert outcome(folder, release) == "score" and check_submission(folder, release) == ()


def test_mutated_submissions_score_or_are_refused(release, tmp_path):
    """Claim: of 300 mutated submissions each is a score or a typed error, check agrees, and no code ran."""
    found = fuzz(release, tmp_path, range(300), check_every=3)
    assert found["score"] > 10 and found["SubmissionError"] > 10 and found["FileFormatError"] > 10


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 11_000, 2000))
def test_ten_thousand_mutated_submissions(release, tmp_path, capsys, start):
    """Claim: the same of 10,000 more."""
    found = fuzz(release, tmp_path, range(start, start + 2000), check_every=10)
    with capsys.disabled():
        print(f"\n{dict(found)}")
    assert sum(v for k, v in found.items() if not k.startswith("slowest")) == 2000


# --- One by one -----------------------------------------------------------------------------------------------------


def put(folder: Path, content: bytes, name: str = "preds/E-LOC-AOA/env-a.npz") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_unpickled(release, folder, tmp_path, seed):
    """Claim: object arrays and pickles in any place are refused, and the code in them does not run."""
    files, sentinel = good(), tmp_path / "PWNED"
    hostile.pickled(np.random.default_rng(seed), files, str(sentinel))
    shutil.rmtree(folder)
    hostile.write(files, folder)
    assert outcome(folder, release) in ("FileFormatError", "SubmissionError", "MissingTaskError")
    assert not sentinel.exists()


@pytest.mark.parametrize("header", [h for h in hostile.HEADERS if "<f2" not in h and "'<i8'" not in h])
def test_headers_that_lie(release, folder, header):
    """Claim: shapes of petabytes, negative or absurd ones, object, void and date types, code: FileFormatError (or, for
    an array that can be read, another typed error) with the default limits; no memory is taken for the claim."""
    put(folder, hostile.zipped(("preds.npy", hostile.npy_with_header(header, bytes(64)))))
    assert outcome(folder, release, Limits()) != "score"
    (problem,) = check_submission(folder, release)
    assert problem.file == "preds/E-LOC-AOA/env-a.npz"


def test_zip_bombs_stop_at_the_limit(release, folder):
    """Claim: 64 MiB in 64 KiB is refused by a limit of 1 MiB on a file, and by one on all files, before it is unpacked;
    a directory that understates the size is damaged, not believed."""
    zeros = hostile.npy(np.zeros(1 << 23))
    bomb = hostile.zipped(("preds.npy", zeros), method=zipfile.ZIP_DEFLATED)
    assert len(bomb) < 100_000
    put(folder, bomb)
    with pytest.raises(FileFormatError, match=r"env-a\.npz: 67108992 bytes once decompressed, more than the limit"):
        score_submission(folder, release, limits=Limits(file_bytes=1 << 20))
    with pytest.raises(SubmissionError, match="more than 300 bytes once decompressed"):
        hostile.write(good(), folder)
        score_submission(folder, release, limits=Limits(total_bytes=300))
    lying = bytearray(bomb)
    at = lying.rfind(b"PK\x01\x02")
    lying[at + 24 : at + 28] = (192).to_bytes(4, "little")
    put(folder, bytes(lying))
    assert outcome(folder, release, Limits(file_bytes=1 << 20)) == "FileFormatError"


def test_limits_are_stated_and_held(release, folder):
    """Claim: the defaults are as documented; entries, depth, text and description limits are errors that say so."""
    assert Limits() == Limits(4 << 30, 256 << 20, 64 << 30, 20_000, 16, 1 << 20)
    with pytest.raises(SubmissionError, match="more than 5 files and folders"):
        load_submission(folder, limits=Limits(entries=5))
    with pytest.raises(FileFormatError, match=r"submission\.toml: .* more than the limit of 10"):
        load_submission(folder, limits=Limits(description_bytes=10))
    (folder / "a" / "b" / "c").mkdir(parents=True)
    with pytest.raises(SubmissionError, match="a/b/c: folders more than 3 deep"):
        load_submission(folder, limits=Limits(depth=3))
    (folder / "preds/E-LOC-AOA/env-a.npz").unlink()
    put(folder, b"pred\n" + b"1\n" * 8, "preds/E-LOC-AOA/env-a.csv")
    assert outcome(folder, release, Limits()) == "score"
    with pytest.raises(FileFormatError, match=r"env-a\.csv: 21 bytes, more than the limit of 20"):
        score_submission(folder, release, limits=Limits(text_bytes=20))


@pytest.mark.parametrize("target", ["/etc/passwd", "../secret.npz", "env-b.npz", "."])
@pytest.mark.parametrize("place", ["preds/E-LOC-AOA/env-a.npz", "preds/E-LOC-AOA/x", "link", "submission.toml"])
def test_no_link_is_followed(release, folder, target, place):
    """Claim: a symbolic link anywhere, to a file or a folder, inside or outside, is refused and named."""
    (folder.parent / "secret.npz").write_bytes(good()[b"preds/E-LOC-AOA/env-a.npz"])
    (folder / place).unlink(missing_ok=True)
    (folder / place).symlink_to(target)
    with pytest.raises(SubmissionError, match=rf"{place}: a symbolic link"):
        score_submission(folder, release)


def test_a_linked_task_folder_is_refused(release, folder):
    """Claim: predictions cannot be borrowed from another submission by linking its folder."""
    elsewhere = folder.parent / "other"
    shutil.move(folder / "preds" / "E-ID-FP", elsewhere)
    (folder / "preds" / "E-ID-FP").symlink_to(elsewhere, target_is_directory=True)
    with pytest.raises(SubmissionError, match="preds/E-ID-FP: a symbolic link"):
        score_submission(folder, release)


@pytest.mark.parametrize("name", [b"\xff\xfe.txt", b"a\nb.txt", b"a\x1b[31m.txt", b"a\\b.txt"])
def test_names_that_are_no_text_are_refused(release, folder, name):
    """Claim: a file name that is not UTF-8, or would break a line or a path, is a SubmissionError in printable text."""
    with open(os.path.join(os.fsencode(folder), name), "wb") as stream:
        stream.write(b"x")
    with pytest.raises(SubmissionError, match="not UTF-8, or has control characters") as caught:
        score_submission(folder, release)
    str(caught.value).encode()


@pytest.mark.parametrize("name", ["../x", "/x", "a/b", "..", "x\0y", "C:\\x"])
def test_paths_in_a_zip_lead_nowhere(release, folder, name):
    """Claim: a member with a path in its name is refused; nothing is ever extracted."""
    array = hostile.npy(np.zeros(N))
    put(folder, hostile.zipped(("preds.npy", array), (f"{name}.npy", array)))
    assert outcome(folder, release) in ("FileFormatError", "SubmissionError")


def test_a_pipe_does_not_hang(release, folder):
    """Claim: a FIFO in place of a file is refused without waiting for a writer."""
    (folder / "preds/E-LOC-AOA/env-a.npz").unlink()
    os.mkfifo(folder / "preds/E-LOC-AOA/env-a.npz")
    with pytest.raises(SubmissionError, match="neither a file nor a folder"):
        score_submission(folder, release)


def test_hdf5_links_out_of_the_file_are_not_followed(tmp_path):
    """Claim: external links, soft links that dangle and datasets whose bytes lie in another file give a typed error;
    the file outside is not read."""
    h5py = pytest.importorskip("h5py")
    from emma_jax.io import read_hdf5
    from emma_jax.io.hdf5 import open_hdf5

    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["x"] = np.arange(3.0)
    (tmp_path / "raw.bin").write_bytes(np.arange(3.0).tobytes())
    with h5py.File(tmp_path / "bad.h5", "w") as file:
        file["external"] = h5py.ExternalLink(str(tmp_path / "secret.h5"), "/x")
        file["soft"] = h5py.SoftLink("/external")
        file["dangling"] = h5py.SoftLink("/nowhere")
        file.create_dataset("raw", (3,), "f8", external=[(str(tmp_path / "raw.bin"), 0, 24)])
    for name in ("external", "soft", "dangling", "raw"):
        with open_hdf5(tmp_path / "bad.h5") as reader, pytest.raises(FileFormatError):
            reader.read(name)
    with pytest.raises(FileFormatError):
        read_hdf5(tmp_path / "bad.h5")


def test_a_submission_has_no_hdf5_at_all(release, folder):
    """Claim: .h5 is no format of a submission."""
    put(folder, b"\x89HDF\r\n\x1a\n", "preds/E-LOC-AOA/env-a.h5")
    with pytest.raises(SubmissionError, match=r"env-a\.h5: unknown format '\.h5'"):
        score_submission(folder, release)


def test_paths_in_a_result_lead_nowhere(release, folder, tmp_path):
    """Claim: a result is a stranger's too: a recorded path out of the folder is a difference and is never opened."""
    result = score_submission(folder, release)
    (tmp_path / "secret").write_text("x")
    for path in ("../secret", str(tmp_path / "secret"), "a/../../secret", "", "x\0y"):
        result["inputs"]["preds"] = {path: "0" * 64}
        (line,) = verify_result(result, submission=folder)
        assert "not a path inside the submission" in line
    (folder / "out").symlink_to(tmp_path)
    result["inputs"]["preds"] = {"out/secret": "0" * 64}
    assert "leads out of the submission" in verify_result(result, submission=folder)[0]


# --- All problems at once -------------------------------------------------------------------------------------------


def test_check_says_everything_with_file_and_row(release, folder):
    """Claim: NaN rows (in the file's own order), missing, extra and duplicate ids, a wrong shape, an unknown file and a
    bad description are all there at once, each with its file; rows count from 0 in the file. By hand."""
    order = np.arange(N)[::-1]
    ids = np.array([f"env-a-{i}" for i in order])
    preds = labels("E-LOC-AOA", "env-a")[order]
    preds[[1, 6]] = np.nan
    write_npz(folder / "preds/E-LOC-AOA/env-a.npz", preds=preds, ids=ids)
    write_npz(folder / "preds/E-LOC-AOA/env-b.npz", preds=np.zeros(N), ids=[f"env-b-{i}" for i in range(7)] + ["zz"])
    write_npz(folder / "preds/E-ID-FP/env-a.npz", preds=np.zeros((N, 5)))
    write_npz(folder / "preds/E-ID-FP/env-b.npz", preds=np.zeros((N - 1, 3)))
    (folder / "preds/E-ID-FP/env-z.npz").write_bytes(b"x")
    (folder / "preds/E-ID-FP/notes.docx").write_bytes(b"x")
    (folder / "submission.toml").write_text('nam = "x"\nm_max = 1.0\n')
    found = [(p.file, p.row, p.kind) for p in check_submission(folder, release)]
    assert found == [
        ("submission.toml", None, "SubmissionError"),
        ("submission.toml", None, "SubmissionError"),
        ("submission.toml", None, "SubmissionError"),
        ("submission.toml", None, "SubmissionError"),
        ("preds/E-ID-FP/notes.docx", None, "SubmissionError"),
        ("preds/E-ID-FP/env-z.npz", None, "SubmissionError"),
        ("preds/E-ID-FP/env-a.npz", None, "ShapeError"),
        ("preds/E-ID-FP/env-b.npz", None, "SubmissionError"),
        ("preds/E-LOC-AOA/env-a.npz", 1, "NonFiniteError"),
        ("preds/E-LOC-AOA/env-a.npz", 6, "NonFiniteError"),
        ("preds/E-LOC-AOA/env-b.npz", None, "SubmissionError"),
    ]
    texts = "\n".join(map(str, check_submission(folder, release)))
    for wanted in (
        "'m_max'",
        "'name' is missing",
        "id 'env-a-6'",
        "1 ids missing: 'env-b-7'",
        "7 predictions for the 8",
    ):
        assert wanted in texts


def test_check_maps_the_index_of_a_score_error_to_the_file(release, folder):
    """Claim: an infinite angle, which only scoring knows to be wrong, is reported at its row of the file."""
    order = np.arange(N)[::-1]
    preds = labels("E-LOC-AOA", "env-a")[order]
    preds[2] = np.inf
    write_npz(folder / "preds/E-LOC-AOA/env-a.npz", preds=preds, ids=[f"env-a-{i}" for i in order])
    (problem,) = check_submission(folder, release)
    assert (problem.row, problem.kind) == (2, "NonFiniteError")


def test_many_nan_rows_are_counted(release, folder):
    """Claim: ten rows are listed, the rest is counted."""
    big = 8
    write_npz(folder / "preds/E-ID-FP/env-a.npz", preds=np.full((big, 3), np.nan))
    problems = check_submission(folder, release)
    assert [p.row for p in problems] == list(range(8)) and "NaN in 3 of 3 values, first at 0" in problems[0].message


def test_check_from_the_command_line(release, folder):
    """Claim: ready is exit 0; problems are printed one a line with their number, exit 1; --json is strict."""
    arguments = ["submission", "check", folder, "--release", release.root]
    code, out, err = run(*arguments)
    assert (code, err) == (0, "") and "ready to be scored against hostile" in out and release.digest in out
    write_npz(folder / "preds/E-LOC-AOA/env-a.npz", preds=np.full(N, np.nan))
    code, out, err = run(*arguments)
    assert (code, err) == (1, "") and "preds/E-LOC-AOA/env-a.npz, row 0: NaN" in out and "8 problems found" in out
    import json

    content = json.loads(run(*arguments, "--json")[1], parse_constant=pytest.fail)
    assert content["problems"][3] == {
        "file": "preds/E-LOC-AOA/env-a.npz",
        "kind": "NonFiniteError",
        "message": "NaN",
        "row": 3,
    }
    assert "more than the limit of 100" in fails("score", folder, "--release", release.root, "--max-bytes", "100")
    code, out, _ = run(*arguments, "--max-bytes", "100")
    assert code == 1 and "more than the limit of 100" in out
    assert "nowhere" in fails("submission", "check", folder, "--release", folder / "nowhere")
