"""Tampering: a changed byte or field of manifest, label file or result is caught, or provably changes no number.

What catches it, in this order: the digest of the release from outside, the label files' pinned hashes, the digest and
canonical form of the result, the hashes of its inputs, and scoring again. The attacker may recompute any digest that
lies inside the files.
"""

from __future__ import annotations

import collections
import copy
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import hostile_inputs as hostile
import numpy as np
import pytest
from test_cli import fails, no_cache_folder, run  # noqa: F401  (an autouse fixture)
from test_hostile import good
from test_hostile import release as make_release  # noqa: F401  (the fixture)

from emma_jax.errors import EvaluationError, FileFormatError
from emma_jax.io import dumps_strict
from emma_jax.release import canonical_json, load_release
from emma_jax.submissions import load_result, score_submission, verify_result, write_result
from emma_jax.submissions.results import sealed


@pytest.fixture(scope="module")
def published(make_release, tmp_path_factory) -> tuple[Path, str]:  # noqa: F811
    """A folder with release, submission and result as published, and the release's digest, known to everyone."""
    root = tmp_path_factory.mktemp("published")
    shutil.copytree(make_release.root, root / "release")
    hostile.write(good(), root / "submissions" / "mine")
    release = load_release(root / "release", digest=make_release.digest)
    write_result(score_submission(root / "submissions" / "mine", release), root / "mine.json")
    return root, make_release.digest


@pytest.fixture
def copied(published, tmp_path) -> tuple[Path, str]:
    root, digest = published
    shutil.copytree(root, tmp_path / "p")
    return tmp_path / "p", digest


def audit(root: Path, digest: str) -> str:
    """What an independent reader does; how the tampering was caught, or "" if nothing was found."""
    try:
        release = load_release(root / "release", digest=digest)
    except EvaluationError:
        return "digest of the release"
    try:
        release.verify(digest)
    except EvaluationError:
        return "hash of a label file"
    try:
        result = load_result(root / "mine.json")
    except EvaluationError:
        return "digest of the result"
    if verify_result(result, release=release, submission=root / "submissions" / "mine"):
        return "hashes of the inputs"
    if verify_result(result, release=release, submission=root / "submissions" / "mine", rescore=True):
        return "scoring again"
    return ""


# --- Mutations ------------------------------------------------------------------------------------------------------


def change_byte(rng: np.random.Generator, path: Path) -> None:
    """One byte replaced, dropped or put in."""
    data = bytearray(path.read_bytes())
    at, kind = int(rng.integers(len(data))), int(rng.integers(3))
    if kind == 0:
        data[at] ^= int(rng.integers(1, 256))
    elif kind == 1:
        del data[at]
    else:
        data.insert(at, int(rng.integers(256)))
    path.write_bytes(bytes(data))


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [leaf for key, inner in value.items() for leaf in leaves(inner, (*path, key))]
    if isinstance(value, list):
        return [leaf for i, inner in enumerate(value) for leaf in leaves(inner, (*path, i))]
    return [path]


def change_field(rng: np.random.Generator, document: dict[str, Any]) -> tuple[Any, ...]:
    """One field of a JSON document changed, dropped or added; where."""
    path = leaves(document)[int(rng.integers(len(leaves(document))))]
    parent: Any = document
    for key in path[:-1]:
        parent = parent[key]
    value, kind = parent[path[-1]], int(rng.integers(6))
    if kind == 0:
        parent.pop(path[-1])
    elif kind == 1 and isinstance(parent, dict):
        parent["another"] = value
    elif isinstance(value, bool) or value is None:
        parent[path[-1]] = not value
    elif isinstance(value, int):
        parent[path[-1]] = value + int(rng.choice([-1, 1, 1000]))
    elif isinstance(value, float):
        parent[path[-1]] = float(np.nextafter(value, rng.choice([-9.0, 9.0]))) if kind < 4 else value * 0.5 + 0.25
    else:
        at = int(rng.integers(len(value) + 1))
        parent[path[-1]] = value[:at] + "0" + value[at + 1 :] if value[at : at + 1] != "0" else value + "1"
    return path


def tamper(rng: np.random.Generator, root: Path) -> str:
    """A random single change to manifest, label or result, by someone who can recompute every digest inside."""
    manifest, result = root / "release" / "release.json", root / "mine.json"
    labels = sorted((root / "release" / "labels").rglob("*.npz"))
    label = labels[int(rng.integers(len(labels)))]
    kind = int(rng.integers(8))
    if kind < 3:
        path = (manifest, label, result)[kind]
        change_byte(rng, path)
        return f"a byte of {path.name}"
    if kind in (3, 4):  # a field of the manifest, sealed again or not
        document = json.loads(manifest.read_text("utf-8"))
        if kind == 4:
            del document["digest"]  # it is computed anew
        place = change_field(rng, document)
        if kind == 4:
            reseal(document)
        manifest.write_bytes(canonical_json(document))
        return f"manifest {place}, {'sealed again' if kind == 4 else 'as it is'}"
    if kind in (5, 6):  # a field of the result, sealed again or not
        document = json.loads(result.read_text("utf-8"))
        if kind == 6:
            del document["digest"]
        place = change_field(rng, document)
        document = sealed(document) if kind == 6 else document
        result.write_bytes(dumps_strict(document).encode())
        return f"result {place}, {'sealed again' if kind == 6 else 'as it is'}"
    arrays = {k: v.copy() for k, v in np.load(label).items()}  # a label changed, and the manifest made to fit
    arrays["labels"].reshape(-1)[int(rng.integers(8))] += 1
    label.write_bytes(hostile.npz(**arrays))
    document = json.loads(manifest.read_text("utf-8"))
    for entry in document["tasks"].values():
        for file in entry["folds"].values():
            file["sha256"] = hashlib.sha256((root / "release" / file["labels"]).read_bytes()).hexdigest()
    reseal(document)
    manifest.write_bytes(canonical_json(document))
    return f"label of {label.name}, pinned again"


def reseal(document: dict[str, Any]) -> None:
    document.pop("digest", None)
    document["digest"] = "sha256:" + hashlib.sha256(canonical_json(document)).hexdigest()


def numbers(document: dict[str, Any]) -> str:
    """All of a result but when, where and by which version it was made."""
    return dumps_strict({k: v for k, v in document.items() if k not in ("provenance", "scorer", "digest")})


def run_mutations(published: tuple[Path, str], tmp_path: Path, seeds: range) -> collections.Counter:
    root, digest = published
    original = json.loads((root / "mine.json").read_text("utf-8"))
    found: collections.Counter = collections.Counter()
    for seed in seeds:
        place = tmp_path / f"t{seed}"
        shutil.copytree(root, place)
        what = tamper(np.random.default_rng(seed), place)
        caught = audit(place, digest)
        if not caught:
            document = json.loads((place / "mine.json").read_text("utf-8"))
            assert numbers(document) == numbers(original), f"seed {seed}: {what} was not caught"
            assert document != original, f"seed {seed}: {what} changed nothing"
            caught = "nothing: no number changed"
        found[caught] += 1
        shutil.rmtree(place)
    return found


def test_tampering_is_caught(published, tmp_path):
    """Claim: each of 60 random changes of one byte or field of manifest, label or result is caught, or leaves every
    number of the result as it was."""
    root, digest = published
    assert audit(root, digest) == ""
    found = run_mutations(published, tmp_path, range(60))
    assert found["nothing: no number changed"] < 15 and len(found) >= 4


@pytest.mark.slow
def test_five_hundred_mutations(published, tmp_path, capsys):
    """Claim: the same of 500 more."""
    found = run_mutations(published, tmp_path, range(1000, 1500))
    with capsys.disabled():
        print(f"\n{dict(found)}")
    assert sum(found.values()) == 500


# --- Result and command line ----------------------------------------------------------------------------------------


def test_every_byte_of_a_result_counts(copied):
    """Claim: at 200 places spread over the file, a flipped bit is a FileFormatError that names the file."""
    path = copied[0] / "mine.json"
    data = path.read_bytes()
    provenance = slice(data.index(b'"provenance"'), data.index(b"}", data.index(b'"provenance"')))
    for at in np.linspace(0, len(data) - 1, 200).astype(int):
        if provenance.start <= at <= provenance.stop:
            continue
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(FileFormatError, match=r"mine\.json"):
            load_result(path)
    path.write_bytes(data)
    assert load_result(path)["digest"].startswith("sha256:")
    path.write_bytes(data + b"\n")
    with pytest.raises(FileFormatError, match="canonical form"):
        load_result(path)


VALUES = (None, True, 0, -1, 1.5, "inf", "x", "", [], {}, [1], {"a": 1}, [[]], 1e308, "-inf", 10**400, "\ud800", [None])


def every_place(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    return [path] * bool(path) + [place for key, item in inner for place in every_place(item, (*path, key))]


def test_results_of_any_form_are_shown_or_refused(copied):
    """Claim: a result with any value in any place, sealed again, is a FileFormatError (or a SubmissionError of the
    board), or goes through every form of the leaderboard; so is one nested a thousand deep."""
    from emma_jax.report import build_leaderboard, to_csv, to_html, to_latex, to_markdown, to_table

    path = copied[0] / "mine.json"
    original = load_result(path)
    places = every_place(original)
    outcomes: collections.Counter = collections.Counter()
    for seed in range(250):
        rng = np.random.default_rng(seed)
        document = copy.deepcopy(original)
        place = places[int(rng.integers(len(places)))]
        parent: Any = document
        for key in place[:-1]:
            parent = parent[key]
        parent[place[-1]] = VALUES[int(rng.integers(len(VALUES)))]
        body = {k: v for k, v in document.items() if k not in ("digest", "provenance")}
        digest = hashlib.sha256(json.dumps(body, sort_keys=True, indent=1, separators=(",", ": ")).encode()).hexdigest()
        try:
            write_result(document, path)
        except EvaluationError:  # text that is not Unicode cannot be written; as an escape it can
            path.write_text(json.dumps({**document, "digest": f"sha256:{digest}"}, sort_keys=True))
        try:
            result = load_result(path)
            board = build_leaderboard([result])
        except EvaluationError as error:
            outcomes[type(error).__name__] += 1
            continue
        for form in (to_csv, to_markdown, to_latex, to_table):
            form(board)
        to_html(board, [result])
        outcomes["shown"] += 1
    assert outcomes["shown"] > 50 and outcomes["FileFormatError"] > 50
    deep: Any = 1
    for _ in range(900):
        deep = [deep]
    path.write_text(json.dumps({**original, "another": deep}))
    with pytest.raises(FileFormatError, match=r"mine\.json"):
        load_result(path)


def test_the_digest_does_not_depend_on_when_and_where(published):
    """Claim: the same inputs scored twice have one digest; other provenance leaves it as it is, another number not."""
    root, digest = published
    result = load_result(root / "mine.json")
    again = score_submission(root / "submissions" / "mine", load_release(root / "release", digest=digest))
    assert again["digest"] == result["digest"]
    other = copy.deepcopy(result)
    other["provenance"]["created"] = "never"
    assert sealed(other)["digest"] == result["digest"]
    other["ood_avg"] += 1e-16 if other["ood_avg"] < 0.5 else -1e-15
    assert sealed(other)["digest"] != result["digest"]


def test_verify_says_what_differs(copied):
    """Claim: a changed prediction file, a changed label file, a missing one and another release are each a line with
    the file's name; an untouched set is none."""
    root, digest = copied
    release, folder = load_release(root / "release", digest=digest), root / "submissions" / "mine"
    result = load_result(root / "mine.json")
    assert verify_result(result, release=release, submission=folder, rescore=True) == ()
    path = folder / "preds/E-ID-FP/env-b.npz"
    path.write_bytes(path.read_bytes() + b"x")
    (folder / "preds/E-LOC-AOA/env-a.npz").unlink()
    label = root / "release/labels/E-LOC-AOA/env-b.npz"
    label.write_bytes(label.read_bytes() + b"x")
    lines = verify_result({**result, "release": {"digest": "sha256:0"}}, release=release, submission=folder)
    assert len(lines) == 4
    for wanted in ("recorded is sha256:0", "labels/E-LOC-AOA/env-b.npz: its bytes", "env-b.npz: sha256 is", "No such"):
        assert any(wanted in line for line in lines), lines
    result["inputs"]["labels"]["labels/x.npz"] = "0" * 64
    assert any("no fold of the result has it" in line for line in verify_result(result, release=release))


def test_leaderboard_verifies_from_the_command_line(copied, tmp_path):
    """Claim: --verify passes on what is untouched and writes the page; a tampered file is exit 1, a line that names
    result and file, and no page; --rescore finds a number that was changed and sealed again."""
    root, digest = copied
    arguments = ["leaderboard", root / "mine.json", "--verify", "--release", root / "release"]
    arguments += ["--submissions", root / "submissions", "--digest", digest]
    code, out, err = run(*arguments, "--rescore", "-o", tmp_path / "site")
    assert (code, err) == (0, "") and out.strip() == str(tmp_path / "site" / "index.html")
    page = (tmp_path / "site" / "index.html").read_text()
    assert "hashed as recorded, scored again with the same numbers" in page
    document = json.loads((root / "mine.json").read_text())
    document["gap_pp"] = 0.0
    write_result(document, root / "mine.json")
    assert run(*arguments)[0] == 0
    code, out, err = run(*arguments, "--rescore", "-o", tmp_path / "other")
    assert code == 1 and "gap_pp: recorded 0.0, scored again None" in err and not (tmp_path / "other").exists()
    path = root / "submissions/mine/preds/E-ID-FP/env-a.npz"
    path.write_bytes(path.read_bytes()[:-1])
    code, out, err = run(*arguments)
    assert code == 1 and out == "" and "mine.json: preds/E-ID-FP/env-a.npz: sha256 is" in err
    shutil.rmtree(root / "submissions" / "mine")
    assert "there is no submission folder for it" in run(*arguments)[2]
    assert "digest" in fails("leaderboard", root / "mine.json", "--digest", "sha256:" + "0" * 64)


def test_intervals_are_recorded_and_drawn_again(copied, tmp_path):
    """Claim: score --bootstrap records what was drawn, an interval holds its value, scoring again gives the same; an
    interval that was moved and sealed again is found."""
    root, digest = copied
    release, folder = load_release(root / "release", digest=digest), root / "submissions" / "mine"
    arguments = ["score", folder, "--release", root / "release", "--bootstrap", "40", "--seed", "3"]
    assert run(*arguments, "-o", root / "mine.json")[0] == 0
    result = load_result(root / "mine.json")
    drawn = result["intervals"]
    assert (drawn["num_resamples"], drawn["seed"]) == (40, 3)
    assert drawn["ood_avg"]["low"] <= result["ood_avg"] <= drawn["ood_avg"]["high"]
    assert drawn["tasks"]["E-LOC-AOA"]["raw"]["value"] == pytest.approx(result["tasks"]["E-LOC-AOA"]["raw"], rel=1e-12)
    assert verify_result(result, release=release, submission=folder, rescore=True) == ()
    code, out, _ = run("leaderboard", root / "mine.json", "--format", "json")
    (row,) = json.loads(out)["rows"]
    assert code == 0 and row["interval"]["low"] == drawn["ood_avg"]["low"] and row["interval"]["confidence"] == 0.95
    result["intervals"]["ood_avg"]["low"] -= 0.01
    write_result(result, root / "mine.json")
    (line,) = verify_result(load_result(root / "mine.json"), release=release, submission=folder, rescore=True)
    assert line.startswith("intervals.ood_avg.low: recorded")
    result["intervals"]["num_resamples"] = 10**9
    (line,) = verify_result(result, release=release, submission=folder, rescore=True)
    assert "cannot be drawn again" in line


def test_forms_and_wrong_usage(copied, tmp_path):
    """Claim: md, csv, json and latex go to the screen or a file; what does not go together is exit 2."""
    root, _ = copied
    for form, wanted in (("md", "| 1 | mine"), ("csv", "rank,name"), ("json", '"rows"'), ("latex", r"\toprule")):
        code, out, _ = run("leaderboard", root / "mine.json", "--format", form)
        assert code == 0 and wanted in out
        path = tmp_path / f"board.{form}"
        assert run("leaderboard", root / "mine.json", "--format", form, "-o", path)[0] == 0
        assert path.read_text("utf-8") == out
    for wrong in (
        ["--format", "html"],
        ["--format", "table", "-o", tmp_path],
        ["--verify"],
        ["--rescore"],
        ["--submissions", root],
    ):
        assert run("leaderboard", root / "mine.json", *wrong)[0] == 2
