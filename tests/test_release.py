"""Releases: what is written is what is read, and no changed byte, path or number passes."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from emma_jax import release as rel
from emma_jax.errors import EvaluationError, ReleaseError
from emma_jax.release import (
    KNOWN_RELEASES,
    Anchor,
    LabelFile,
    Release,
    TaskEntry,
    build_release,
    canonical_json,
    draft_release,
    freeze_release,
    load_release,
    write_atomically,
)
from emma_jax.tasks import list_tasks

ANCHOR = {"m_min": 0.0, "m_max": 42.5, "basis": "circular mean"}
V01 = ("E-ID-DRONE", "E-ID-FP", "E-LOC-AOA", "E-LOC-LOS")


def save_labels(root: Path, task: str, name: str, values: object) -> Path:
    path = root / "labels" / task / f"{name}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, labels=np.asarray(values))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Label files of two tasks; AoA with a real split."""
    root = tmp_path / "r"
    save_labels(root, "E-LOC-AOA", "env-a", np.linspace(-60, 60, 7))
    save_labels(root, "E-LOC-AOA", "env-b", np.linspace(-50, 60, 5))
    save_labels(root, "E-LOC-AOA", "real", np.zeros(3))
    save_labels(root, "E-ID-FP", "unit-1", np.arange(4))
    return root


CHANCE = {"m_min": 0.25, "m_max": 1.0, "basis": "chance"}
TASKS = {
    "E-LOC-AOA": {"anchor": ANCHOR},
    "E-ID-FP": {"axis": "unit", "params": {"num_classes": 4}, "anchor": CHANCE},
}


@pytest.fixture
def frozen(folder: Path) -> Release:
    return build_release(folder, name="t", tasks=TASKS, frozen=True)


def reseal(path: Path, change) -> str:
    """An editor of the manifest who knows how the digest is made: the attack that needs a digest from outside."""
    manifest = json.loads(path.read_text("utf-8"))
    change(manifest)
    del manifest["digest"]
    canonical = json.dumps(manifest, sort_keys=True, ensure_ascii=False, indent=1, separators=(",", ": ")) + "\n"
    manifest["digest"] = "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()
    path.write_text(
        json.dumps(manifest, sort_keys=True, ensure_ascii=False, indent=1, separators=(",", ": ")) + "\n", "utf-8"
    )
    return manifest["digest"]


# What is written.


def test_manifest_holds_what_was_given_and_what_the_files_are(folder, frozen):
    """Every field of the schema, with sha256 and n from the files; oracle: hashlib and the arrays saved."""
    manifest = json.loads((folder / "release.json").read_text("utf-8"))
    digest = manifest.pop("digest")
    aoa = manifest["tasks"]["E-LOC-AOA"]
    assert set(manifest) == {"format", "name", "frozen", "protocol_version", "scorer_version", "tasks"}
    assert (manifest["format"], manifest["name"], manifest["frozen"]) == ("emma-release/1", "t", True)
    assert set(aoa) == {"metric", "direction", "unit", "in_ood_avg", "params", "anchor", "folds", "real"}
    assert (aoa["metric"], aoa["direction"], aoa["unit"], aoa["in_ood_avg"]) == (
        "MeanAngularError",
        "lower",
        "deg",
        True,
    )
    assert aoa["anchor"] == ANCHOR
    for fold, n in (("env-a", 7), ("env-b", 5)):
        data = (folder / f"labels/E-LOC-AOA/{fold}.npz").read_bytes()
        assert aoa["folds"][fold] == {
            "axis": "environment",
            "labels": f"labels/E-LOC-AOA/{fold}.npz",
            "sha256": hashlib.sha256(data).hexdigest(),
            "n": n,
        }
    assert set(aoa["real"]) == {"labels", "sha256", "n"} and aoa["real"]["n"] == 3
    assert manifest["tasks"]["E-ID-FP"]["folds"]["unit-1"]["axis"] == "unit"
    assert manifest["tasks"]["E-ID-FP"]["real"] is None
    canonical = json.dumps(manifest, sort_keys=True, ensure_ascii=False, indent=1, separators=(",", ": ")) + "\n"
    assert digest == "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()
    lines = (folder / "release.json").read_bytes().splitlines(keepends=True)  # as grep -v and sha256sum would have it
    without = b"".join(line for line in lines if not line.startswith(b' "digest": '))
    assert digest == "sha256:" + hashlib.sha256(without).hexdigest()


def test_loading_gives_back_what_was_built(folder, frozen):
    """Folder, manifest path and text path load the same release, which survives pickling and copying."""
    for place in (folder, folder / "release.json", str(folder)):
        loaded = load_release(place)
        assert loaded == frozen and hash(loaded) == hash(frozen) and loaded.root == folder
    assert pickle.loads(pickle.dumps(frozen)) == frozen and copy.deepcopy(frozen) == frozen
    assert load_release(folder, digest=frozen.digest) == frozen
    assert load_release(folder, digest=frozen.digest.removeprefix("sha256:").upper()) == frozen


def test_accessors(folder, frozen):
    """task, fold and real are found by name; what does not exist is an error that says what does."""
    assert frozen.aggregated == ("E-ID-FP", "E-LOC-AOA")
    assert frozen.anchor("E-LOC-AOA") == Anchor(0.0, 42.5, "lower", "circular mean")
    assert frozen.label_path("E-LOC-AOA", "real") == folder / "labels/E-LOC-AOA/real.npz"
    assert frozen.label_bytes("E-LOC-AOA", "env-b") == (folder / "labels/E-LOC-AOA/env-b.npz").read_bytes()
    with pytest.raises(ReleaseError, match="no task 'E-X'; it has E-ID-FP, E-LOC-AOA"):
        frozen.params("E-X")
    with pytest.raises(ReleaseError, match="no fold 'env-c'; it has env-a, env-b, real"):
        frozen.label_path("E-LOC-AOA", "env-c")
    with pytest.raises(ReleaseError, match="no fold 'real'; it has unit-1"):
        frozen.label_bytes("E-ID-FP", "real")


def test_release_is_read_only(frozen):
    """No attribute, task, anchor, fold or parameter of a loaded release can be replaced, and params are a copy."""
    with pytest.raises(AttributeError):
        frozen.name = "x"
    with pytest.raises(TypeError):
        frozen.tasks["E-LOC-AOA"] = None
    with pytest.raises(AttributeError):
        frozen.tasks["E-LOC-AOA"].anchor = None
    with pytest.raises(AttributeError):
        frozen.tasks["E-LOC-AOA"].anchor.m_max = 1.0
    with pytest.raises(TypeError):
        frozen.tasks["E-LOC-AOA"].folds["x"] = None
    with pytest.raises(TypeError):
        frozen.tasks["E-ID-FP"].params["num_classes"] = 5
    frozen.params("E-ID-FP")["num_classes"] = 5
    assert frozen.params("E-ID-FP") == {"num_classes": 4}


def test_release_in_memory_has_the_digest_of_its_content(frozen):
    """Other anchors under the same digest are refused even when built in code."""
    tasks = {**frozen.tasks, "E-LOC-AOA": TaskEntry("MeanAngularError", "lower", "deg")}
    with pytest.raises(ReleaseError, match="the manifest was changed"):
        Release("t", True, "0.1.0", frozen.scorer_version, tasks, frozen.digest)


# Tampering.


def test_every_changed_byte_of_the_manifest_is_refused(tmp_path):
    """At each byte one replaced, dropped, doubled, inserted: a ReleaseError that names the file, in one line."""
    save_labels(tmp_path, "E-X", "a", [1])
    description = {"metric": "M", "direction": "lower", "unit": "1", "anchor": {"m_min": 0.0, "m_max": 1.5}}
    build_release(tmp_path, name="t", tasks={"E-X": description}, frozen=True)
    path = tmp_path / "release.json"
    data = path.read_bytes()
    for i, byte in enumerate(data):
        others = (byte ^ 1, 0x20, byte ^ 128, 0x30, byte ^ 4, 0x0A)
        mutants = {data[:i] + bytes([b]) + data[i + 1 :] for b in (others[i % 6], others[(i + 1) % 6])}
        mutants.add(data[:i] + (b"", data[i : i + 1] * 2, data[i : i + 1] + b" ")[i % 3] + data[i + 1 :])
        for mutant in mutants - {data}:
            path.write_bytes(mutant)
            with pytest.raises(ReleaseError) as caught:
                load_release(tmp_path)
            assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "rewrite", [lambda d: d.replace(b"\n", b"\r\n"), lambda d: d + b"\n", lambda d: d.replace(b"t", b"\\u0074", 1)]
)
def test_another_layout_of_the_same_manifest_is_refused(folder, frozen, rewrite):
    """Line ends, white space and escapes change no value, yet the bytes are not the ones that were published."""
    path = folder / "release.json"
    path.write_bytes(rewrite(path.read_bytes()))
    with pytest.raises(ReleaseError, match="not in canonical form"):
        load_release(folder)


def leaves(node, place=()):
    if isinstance(node, dict):
        for key, value in node.items():
            yield (*place, key)
            yield from leaves(value, (*place, key))


def test_every_changed_field_needs_another_digest(folder, frozen):
    """Each field replaced, with the digest inside recomputed: malformed, or not the digest expected from outside."""
    path = folder / "release.json"
    original = path.read_bytes()
    accepted_inside = 0
    for place in leaves(json.loads(original)):
        if place == ("digest",):
            continue
        for value in (None, 0.25, 1, "x", True, False, {}, [], "drop"):
            path.write_bytes(original)

            def change(manifest, place=place, value=value):
                node = manifest
                for key in place[:-1]:
                    node = node[key]
                if value == "drop":
                    del node[place[-1]]
                else:
                    node[place[-1]] = value

            if reseal(path, change) == frozen.digest:
                continue
            with pytest.raises(ReleaseError, match=r"release\.json|has sha256:"):
                load_release(folder, digest=frozen.digest)
            with contextlib.suppress(ReleaseError):
                accepted_inside += load_release(folder) != frozen
    assert accepted_inside > 10  # the attack is real: without a digest from outside, resealed changes do load


def test_known_releases_are_held_to_the_table(folder, frozen, monkeypatch):
    """A resealed manifest under a known name is refused without anyone giving a digest, frozen flag or not."""
    monkeypatch.setitem(KNOWN_RELEASES, "t", frozen.digest)
    assert load_release(folder) == frozen
    path = folder / "release.json"

    def move(manifest):
        manifest["tasks"]["E-LOC-AOA"]["anchor"]["m_max"] = 400.0

    def thaw(manifest):
        manifest["frozen"] = False

    original = path.read_bytes()
    for change in (move, thaw):
        path.write_bytes(original)
        reseal(path, change)
        with pytest.raises(ReleaseError, match="known to this package") as caught:
            load_release(folder)
        assert str(folder) in str(caught.value)


def test_wrong_and_malformed_expected_digest(folder, frozen):
    """verify and load_release compare with the digest given, and refuse what is no digest."""
    for digest, message in (("sha256:" + "0" * 64, "not the one expected"), ("abc", "64 hex digits"), ("", "64 hex")):
        with pytest.raises(ReleaseError, match=message):
            load_release(folder, digest=digest)
        with pytest.raises(ReleaseError, match=message):
            frozen.verify(digest)
    assert frozen.verify(frozen.digest) == (
        "labels/E-ID-FP/unit-1.npz",
        "labels/E-LOC-AOA/env-a.npz",
        "labels/E-LOC-AOA/env-b.npz",
        "labels/E-LOC-AOA/real.npz",
    )


def test_every_changed_byte_of_a_label_file_is_refused(folder, frozen):
    """Each byte flipped, one dropped at the end, one added: verify and label_bytes name the file."""
    path = folder / "labels/E-LOC-AOA/env-b.npz"
    data = path.read_bytes()
    mutants = [data[:i] + bytes([data[i] ^ (1 << i % 8)]) + data[i + 1 :] for i in range(len(data))]
    for mutant in (*mutants, data[:-1], data + b"\0", b""):
        path.write_bytes(mutant)
        with pytest.raises(ReleaseError, match=r"labels/E-LOC-AOA/env-b\.npz"):
            frozen.label_bytes("E-LOC-AOA", "env-b")
    with pytest.raises(ReleaseError, match=r"E-LOC-AOA: labels/E-LOC-AOA/env-b\.npz: .*changed"):
        frozen.verify()
    assert frozen.label_bytes("E-LOC-AOA", "env-a")  # the others can still be read
    (folder / "labels/E-ID-FP/unit-1.npz").unlink()
    with pytest.raises(ReleaseError, match=r"unit-1\.npz: there is no such label file \(and 1 more at fault\)"):
        frozen.verify()


def test_label_bytes_returns_the_bytes_it_hashed(frozen, monkeypatch):
    """The file is read once: a swap after the check cannot be seen, a swap before it is refused."""
    good = frozen.label_bytes("E-LOC-AOA", "env-a")
    contents = iter([good, b"swapped"])
    monkeypatch.setattr(Path, "read_bytes", lambda self: next(contents))
    assert frozen.label_bytes("E-LOC-AOA", "env-a") == good
    with pytest.raises(ReleaseError, match="was changed"):
        frozen.label_bytes("E-LOC-AOA", "env-a")


def test_sample_count_is_verified(folder, frozen):
    """A manifest that says another n than the file holds does not verify."""
    reseal(folder / "release.json", lambda m: m["tasks"]["E-ID-FP"]["folds"]["unit-1"].update(n=5))
    with pytest.raises(ReleaseError, match=r"unit-1\.npz: holds 4 samples, not the 5"):
        load_release(folder).verify()


@pytest.mark.parametrize(
    "path",
    [
        "/etc/hostname",
        "../x.npz",
        "labels/../../x.npz",
        "labels//x.npz",
        "./x.npz",
        "",
        ".",
        "C:/x.npz",
        "C:x.npz",
        "labels\\x.npz",
        "\\\\host\\share\\x.npz",
        "//host/share/x.npz",
        "labels/x\0.npz",
        "labels/x.npz/",
        "a\nb.npz",
    ],
)
def test_paths_that_leave_the_folder_are_refused(folder, frozen, path):
    """Absolute, upward, drive, UNC and odd paths: refused in the dataclass and in a resealed manifest."""
    with pytest.raises(ReleaseError, match="relative path inside"):
        LabelFile(path, "0" * 64, 1)
    reseal(folder / "release.json", lambda m: m["tasks"]["E-ID-FP"]["folds"]["unit-1"].update(labels=path))
    with pytest.raises(ReleaseError, match=r"release\.json.*unit-1.*relative path inside"):
        load_release(folder)


def test_links_out_of_the_folder_are_refused(folder, frozen, tmp_path):
    """A symbolic link, of the file or of a folder above it, may not lead out, though the bytes are the same."""
    file = folder / "labels/E-ID-FP/unit-1.npz"
    outside = tmp_path / "outside.npz"
    shutil.move(file, outside)
    file.symlink_to(outside)
    with pytest.raises(ReleaseError, match=r"labels/E-ID-FP/unit-1\.npz: a symbolic link leads out"):
        frozen.label_bytes("E-ID-FP", "unit-1")
    file.unlink()
    file.parent.rmdir()
    (tmp_path / "elsewhere").mkdir()
    shutil.move(outside, tmp_path / "elsewhere/unit-1.npz")
    file.parent.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ReleaseError, match="leads out"):
        frozen.verify()
    file.parent.unlink()
    file.parent.mkdir()
    shutil.move(tmp_path / "elsewhere/unit-1.npz", folder / "kept.npz")
    file.symlink_to(folder / "kept.npz")  # inside the folder a link is fine: the bytes are what is pinned
    assert frozen.label_bytes("E-ID-FP", "unit-1")
    file.unlink()
    file.symlink_to(file)
    with pytest.raises(ReleaseError, match="no such label file"):
        frozen.label_bytes("E-ID-FP", "unit-1")


def test_things_that_are_no_files_are_refused(folder, frozen):
    """A folder or a named pipe in place of a label file or a manifest is an error, and no wait for a writer."""
    file = folder / "labels/E-ID-FP/unit-1.npz"
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ReleaseError, match="not a regular file"):
        frozen.label_bytes("E-ID-FP", "unit-1")
    file.unlink()
    file.mkdir()
    with pytest.raises(ReleaseError, match="not a regular file"):
        frozen.label_bytes("E-ID-FP", "unit-1")
    (folder / "release.json").unlink()
    for path in (folder, "no/such/release", "v9.9", "with\0zero"):
        with pytest.raises(ReleaseError, match=r"there is no such release; shipped inside are: v0.1-proposed"):
            load_release(path)
    os.mkfifo(folder / "release.json")
    with pytest.raises(ReleaseError, match="no such release"):
        load_release(folder)


MALFORMED = {
    "empty": b"",
    "not json": b"{",
    "utf-16": "{}".encode("utf-16"),
    "bom": b"\xef\xbb\xbf{}",
    "latin-1": b'{"name": "caf\xe9"}',
    "nan": b'{"a": NaN}',
    "infinity": b'{"a": -Infinity}',
    "list": b"[]",
    "null": b"null",
    "duplicate": b'{"name": "a", "name": "a"}',
    "nested": b"[" * 200_000,
    "nested objects": b'{"a":' * 100_000,
    "big integer": b'{"format": ' + b"9" * 5000 + b"}",
    "surrogate": b'{"format": "\\ud800"}',
    "other format": b'{"format":"emma-release/2","name":"a","frozen":true,"protocol_version":"1","scorer_version":"1",'
    b'"tasks":{},"digest":"x"}',
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_manifests_are_typed_errors(tmp_path, name):
    """Whatever lies there instead of a manifest: a ReleaseError with the file's name in one line."""
    (tmp_path / "release.json").write_bytes(MALFORMED[name])
    with pytest.raises(ReleaseError) as caught:
        load_release(tmp_path)
    assert str(tmp_path / "release.json") in str(caught.value)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("name", "reason"),
    [("duplicate", "name: this key occurs twice"), ("nan", "NaN is not JSON"), ("utf-16", "not UTF-8")],
)
def test_the_reason_is_said(tmp_path, name, reason):
    """What Python's json would let pass is named as what it is."""
    (tmp_path / "release.json").write_bytes(MALFORMED[name])
    with pytest.raises(ReleaseError, match=reason):
        load_release(tmp_path)


def test_an_anchor_has_the_direction_of_its_metric():
    """An entry in code whose anchor reads the other way is refused: it would reward errors."""
    with pytest.raises(ReleaseError, match="direction is not the metric's"):
        TaskEntry("MeanAngularError", "lower", "deg", Anchor(0.0, 90.0, "higher"))


def test_manifest_size_is_limited(tmp_path, monkeypatch):
    """A file beyond the limit is refused before it is parsed."""
    monkeypatch.setattr(rel, "MAX_MANIFEST_BYTES", 10)
    (tmp_path / "release.json").write_bytes(b" " * 11)
    with pytest.raises(ReleaseError, match="more than 10 bytes"):
        load_release(tmp_path)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("name",), "../x", "name: a name has"),
        (("name",), "a\n", "name: a name has"),
        (("frozen",), 1, "frozen: has to be true or false"),
        (("protocol_version",), "", "protocol_version"),
        (("tasks",), [], "tasks: has to be an object"),
        (("extra",), 1, "extra: there is no such field"),
        (("tasks", "E-ID-FP", "extra"), 1, "tasks.E-ID-FP: extra: there is no such field"),
        (("tasks", "E-ID-FP", "direction"), "up", 'direction: has to be "higher" or "lower"'),
        (("tasks", "E-ID-FP", "in_ood_avg"), 1, "in_ood_avg: has to be true or false"),
        (("tasks", "E-ID-FP", "metric"), 3, "metric: has to be one line of text"),
        (("tasks", "E-ID-FP", "anchor"), None, "E-ID-FP: anchor: a task in OOD-avg needs one"),
        (("tasks", "E-ID-FP", "anchor", "m_max"), 0.25, "has to be below"),
        (("tasks", "E-ID-FP", "anchor", "m_max"), 0.01, "has to be below"),
        (("tasks", "E-ID-FP", "anchor", "m_max"), "1", "m_max: expected one real number"),
        (("tasks", "E-ID-FP", "anchor", "m_max"), True, "m_max: expected one real number"),
        (("tasks", "E-ID-FP", "anchor", "m_max"), 1, "digest"),
        (("tasks", "E-ID-FP", "anchor", "direction"), "lower", "direction: there is no such field"),
        (("tasks", "E-ID-FP", "params"), {"a": {}}, "params.a: has to be a scalar"),
        (("tasks", "E-ID-FP", "params"), [], "params: has to be an object"),
        (("tasks", "E-ID-FP", "folds"), {}, "frozen without a fold"),
        (("tasks", "E-ID-FP", "folds"), [], "folds: has to be an object"),
        (("tasks", "E-ID-FP", "folds", "unit-1", "axis"), "time", "unit-1: axis: has to be one of environment, band"),
        (("tasks", "E-ID-FP", "folds", "unit-1", "axis"), None, "a fold says what it holds out"),
        (("tasks", "E-ID-FP", "folds", "unit-1", "n"), 0, "n: has to be a count above 0"),
        (("tasks", "E-ID-FP", "folds", "unit-1", "n"), True, "n: has to be a count above 0"),
        (("tasks", "E-ID-FP", "folds", "unit-1", "n"), 4.0, "n: has to be a count above 0"),
        (("tasks", "E-ID-FP", "folds", "unit-1", "sha256"), "A" * 64, "sha256: has to be 64 lower-case"),
        (("tasks", "E-ID-FP", "folds", "unit-1", "sha256"), "0" * 64 + "\n", "sha256: has to be 64 lower-case"),
    ],
)
def test_each_field_is_checked(folder, frozen, place, value, message):
    """A resealed manifest with one wrong field is refused for that field, under the file's name."""

    def change(manifest):
        node = manifest
        for key in place[:-1]:
            node = node[key]
        node[place[-1]] = value

    reseal(folder / "release.json", change)
    with pytest.raises(ReleaseError) as caught:
        load_release(folder)
    assert message in str(caught.value) and str(folder / "release.json") in str(caught.value)


def test_no_fold_is_called_real_and_no_file_serves_twice(folder, frozen):
    """The real split is never a fold, nor is one file counted for two environments."""
    path = folder / "release.json"
    original = path.read_bytes()

    def rename(manifest):
        folds = manifest["tasks"]["E-ID-FP"]["folds"]
        folds["real"] = folds.pop("unit-1")

    def twice(manifest):
        folds = manifest["tasks"]["E-ID-FP"]["folds"]
        folds["unit-2"] = folds["unit-1"]

    for change, message in ((rename, "name of the real split"), (twice, "one file serves for two folds")):
        path.write_bytes(original)
        reseal(path, change)
        with pytest.raises(ReleaseError, match=message):
            load_release(folder)


def test_the_continuity_column_is_never_aggregated(tmp_path):
    """No release puts E-ID-AMC into OOD-avg, anchors or not."""
    anchor = {"m_min": 0.0, "m_max": 1.0}
    with pytest.raises(ReleaseError, match="continuity column"):
        build_release(tmp_path, name="t", tasks={"E-ID-AMC": {"in_ood_avg": True, "anchor": anchor}}, frozen=False)


# Making and freezing.

TOML = """
name = "v0.1"
protocol_version = "0.1.0"
[tasks.E-LOC-AOA]
axis = "environment"
anchor = { m_min = 0, m_max = 42.5, basis = "circular mean" }
[tasks.E-LOC-AOA.folds]
env-a = {}
env-b = { axis = "band" }
[tasks.E-ID-FP]
axis = "unit"
params = { num_classes = 4 }
anchor = { m_min = 0.25, m_max = 1.0, basis = "chance" }
"""


def test_freeze_from_toml(folder):
    """release.toml and label files become a frozen, verified release: params, axes and anchors as written."""
    (folder / "release.toml").write_text(TOML, "utf-8")
    draft = draft_release(folder)
    assert not draft.frozen and load_release(folder) == draft
    release = freeze_release(folder)
    assert release.frozen and release.name == "v0.1" and load_release(folder, digest=release.digest) == release
    assert release.digest != draft.digest
    assert {f: x.axis for f, x in release.tasks["E-LOC-AOA"].folds.items()} == {"env-a": "environment", "env-b": "band"}
    assert release.tasks["E-LOC-AOA"].real.n == 3
    assert release.params("E-ID-FP") == {"num_classes": 4}
    assert release.anchor("E-ID-FP") == Anchor(0.25, 1.0, "higher", "chance")
    assert len(release.verify(release.digest)) == 4


def test_freeze_twice_and_freeze_changed(folder):
    """Freezing again changes nothing; a changed label, description or name is refused and changes nothing either."""
    toml = folder / "release.toml"
    toml.write_text(TOML, "utf-8")
    release = freeze_release(folder)
    path = folder / "release.json"
    original = path.read_bytes()
    assert freeze_release(folder) == release and path.read_bytes() == original
    attempts = {
        "frozen was True and would be False": lambda: draft_release(folder),
        "name was 'v0.1' and would be 'v0.2'": lambda: freeze_release(folder, name="v0.2"),
        "protocol_version was '0.1.0'": lambda: freeze_release(folder, protocol_version="0.2.0"),
    }
    for message, attempt in attempts.items():
        with pytest.raises(ReleaseError, match=message):
            attempt()
    toml.write_text(TOML.replace("42.5", "43.5"), "utf-8")
    with pytest.raises(ReleaseError, match=r"release\.json: is frozen, and tasks\.E-LOC-AOA\.anchor\.m_max was 42\.5"):
        freeze_release(folder)
    toml.write_text(TOML, "utf-8")
    save_labels(folder, "E-ID-FP", "unit-2", [0, 1])
    with pytest.raises(ReleaseError, match=r"tasks\.E-ID-FP\.folds\.unit-2 is new"):
        freeze_release(folder)
    (folder / "labels/E-ID-FP/unit-2.npz").unlink()
    save_labels(folder, "E-ID-FP", "unit-1", [0, 1, 2, 0])
    with pytest.raises(ReleaseError, match=r"folds\.unit-1\.sha256 was"):
        freeze_release(folder)
    assert path.read_bytes() == original


def test_freezing_again_with_a_newer_scorer_keeps_the_manifest(folder, monkeypatch):
    """The version that wrote the manifest is a record, not a change of content."""
    release = build_release(folder, name="t", tasks=TASKS, frozen=True)
    monkeypatch.setattr(rel, "__version__", "9.9.9")
    assert freeze_release(folder) == release and load_release(folder).scorer_version != "9.9.9"


def test_freeze_an_unfrozen_manifest(folder):
    """A draft without a release.toml freezes to itself; label files changed since are hashed anew."""
    draft = build_release(folder, name="t", tasks=TASKS, frozen=False)
    save_labels(folder, "E-ID-FP", "unit-1", np.arange(6))
    release = freeze_release(folder)
    assert release.frozen and release.tasks["E-LOC-AOA"] == draft.tasks["E-LOC-AOA"]
    assert release.tasks["E-ID-FP"].folds["unit-1"].n == 6
    assert freeze_release(folder) == release


def test_an_unreadable_manifest_is_not_overwritten(folder):
    """What lies there may be a frozen manifest that someone damaged: the maintainer decides."""
    (folder / "release.json").write_bytes(b"{}")
    with pytest.raises(ReleaseError, match=r"release\.json"):
        build_release(folder, name="t", tasks=TASKS, frozen=True)
    assert (folder / "release.json").read_bytes() == b"{}"


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ({"E-LOC-AOA": {}}, "labels/E-ID-FP: holds labels, but the release describes no such task"),
        (TASKS | {"E-LOC-LOS": {}}, "E-LOC-LOS: in OOD-avg, but frozen without a fold"),
        (TASKS | {"E-LOC-LOS": {"folds": {"env-a": {}}}}, "no label file labels/E-LOC-LOS/env-a.npz"),
        (TASKS | {"E-ID-FP": {"real": {}}}, "E-ID-FP: real: there is no label file"),
        (TASKS | {"E-ID-FP": {"colour": 1}}, "E-ID-FP: colour: there is no such field"),
        (TASKS | {"E-ID-FP": {"params": {"num_classes": 4}}}, "made for the parameters it has"),
        (TASKS | {"E-ID-FP": {"metric": "EER"}}, "E-ID-FP: direction: this field is missing"),
        (TASKS | {"E-ID-FP": {"axis": "day"}}, "E-ID-FP: unit-1: axis: has to be one of"),
        (TASKS | {"E-ID-FP": {"folds": {"a": {"labels": "/etc/hostname"}}}}, "relative path inside"),
        (TASKS | {"E-ID-FP": {"folds": {"a b": {"labels": "labels/E-ID-FP/unit-1.npz"}}}}, "a name has ASCII"),
        (TASKS | {"E-NEW": {}}, "E-NEW: metric: this field is missing"),
        (TASKS | {"../up": {}}, "a name has ASCII"),
        (TASKS | {"E-ID-FP": {"anchor": {"m_min": float("nan"), "m_max": 1}}}, "m_min: has to be finite"),
        (TASKS | {"E-ID-FP": []}, "E-ID-FP: expected an object"),
    ],
)
def test_descriptions_that_do_not_fit(folder, tasks, message):
    """A wrong description names task and field, and nothing is written."""
    with pytest.raises(ReleaseError) as caught:
        build_release(folder, name="t", tasks=tasks, frozen=True)
    assert message in str(caught.value)
    assert sorted(p.name for p in folder.iterdir()) == ["labels"]


def test_what_a_description_leaves_out_is_proposed(folder):
    """Metric, direction, unit, anchor and params come from v0.1-proposed, fold names from the files that lie there."""
    proposed = load_release("v0.1-proposed")
    release = build_release(folder, name="t", tasks={"E-LOC-AOA": {}, "E-ID-FP": {"axis": "unit"}}, frozen=True)
    for task, entry in release.tasks.items():
        theirs = proposed.tasks[task]
        assert (entry.metric, entry.direction, entry.unit) == (theirs.metric, theirs.direction, theirs.unit)
        assert entry.anchor == theirs.anchor and entry.params == theirs.params and entry.in_ood_avg
    assert list(release.tasks["E-LOC-AOA"].folds) == ["env-a", "env-b"]


def test_a_new_task_is_described_in_full(tmp_path):
    """A task that the proposal does not know gets every field from its description."""
    save_labels(tmp_path, "E-NEW", "b1", [1, 2])
    description = {"metric": "M", "direction": "lower", "unit": "dB", "axis": "band", "params": {"orders": [1, (2, 3)]}}
    release = build_release(tmp_path, name="t", tasks={"E-NEW": description}, frozen=True)
    assert load_release(tmp_path) == release
    assert release.params("E-NEW") == {"orders": (1, (2, 3))} and hash(release.params("E-NEW")["orders"]) is not None
    assert release.anchor("E-NEW") is None and release.aggregated == ()


def test_label_files_of_each_kind_are_counted(tmp_path):
    """npz, npy, csv with a header, jsonl: n is the number of samples; oracle: what was written."""
    folder = tmp_path / "labels/E-NEW"
    save_labels(tmp_path, "E-NEW", "a", np.zeros((3, 4, 5)))
    np.save(folder / "b.npy", np.zeros(4, np.complex64))
    (folder / "c.csv").write_text('id,labels\n"a\nb",1\n\nc,2\n', "utf-8")
    (folder / "d.jsonl").write_text('{"labels": ["a", "b"]}\r\n\n{"labels": ["c"]}', "utf-8")
    (folder / ".hidden").write_text("x")
    description = {"metric": "M", "direction": "higher", "unit": "1"}
    release = build_release(tmp_path, name="t", tasks={"E-NEW": description}, frozen=True)
    assert {fold: file.n for fold, file in release.tasks["E-NEW"].folds.items()} == {"a": 3, "b": 4, "c": 2, "d": 2}


def bad_label_files():
    import io
    import zipfile

    def npz(**arrays):
        stream = io.BytesIO()
        np.savez(stream, **arrays)
        return stream.getvalue()

    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w") as archive:
        archive.writestr("labels.npy", b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535)
    objects = io.BytesIO()
    np.save(objects, np.array([None, {}], object), allow_pickle=True)
    return {
        "a.npz": [
            b"",
            b"PK",
            npz(preds=np.arange(3)),
            npz(labels=np.float32(3)),
            npz(labels=np.zeros(0)),
            bomb.getvalue(),
            npz(labels=np.array([{}], object)),
            npz(labels=np.arange(3))[:60],
        ],
        "a.npy": [b"", b"\x93NUMPY", objects.getvalue()],
        "a.csv": [b"", b"labels\n", b"\xff\n\xff"],
        "a.jsonl": [b"", b"\n\n", b"\xff\xfe"],
        "a.pkl": [b"x"],
        "a": [b"x"],
    }


@pytest.mark.parametrize(("name", "data"), [(n, d) for n, files in bad_label_files().items() for d in files])
def test_bad_label_files_are_not_frozen(tmp_path, name, data):
    """Empty, truncated, pickled, nameless, shapeless label files: an error in one line that names the file."""
    (tmp_path / "labels/E-NEW").mkdir(parents=True)
    (tmp_path / "labels/E-NEW" / name).write_bytes(data)
    description = {"metric": "M", "direction": "higher", "unit": "1"}
    with pytest.raises(ReleaseError) as caught:
        build_release(tmp_path, name="t", tasks={"E-NEW": description}, frozen=True)
    assert f"labels/E-NEW/{name}" in str(caught.value) and "\n" not in str(caught.value)


def test_two_files_for_one_fold_are_an_error(folder):
    """env-a.npz beside env-a.npy: which one is meant is not guessed."""
    np.save(folder / "labels/E-LOC-AOA/env-a.npy", np.zeros(3))
    with pytest.raises(ReleaseError, match="a second file for the same fold"):
        build_release(folder, name="t", tasks=TASKS, frozen=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name =", "is not TOML"),
        ('name = "a"', "tasks: this field is missing"),
        ('name = "a"\nowner = 1\n[tasks]', "owner: there is no such field"),
        ('name = "a"\ntasks = 3', "tasks: has to map"),
        (
            'name = "a"\n[tasks.E-X]\nmetric="M"\ndirection="lower"\nunit="1"\nparams={d=1979-05-27}',
            "params.d: has to be a",
        ),
        (
            'name = "a"\n[tasks.E-X]\nmetric="M"\ndirection="lower"\nunit="1"\nparams={d=inf}',
            "params.d: has to be finite",
        ),
    ],
)
def test_bad_release_toml(tmp_path, text, message):
    """A description that is no TOML, or not of this form, is a ReleaseError."""
    (tmp_path / "release.toml").write_text(text, "utf-8")
    with pytest.raises(ReleaseError) as caught:
        draft_release(tmp_path)
    assert message in str(caught.value)


def test_nothing_to_freeze(tmp_path):
    """An empty folder and a missing one are errors that say what is missing."""
    with pytest.raises(ReleaseError, match=r"holds neither release\.toml nor release\.json"):
        freeze_release(tmp_path)
    with pytest.raises(ReleaseError, match="no such folder"):
        build_release(tmp_path / "x", name="t", tasks={}, frozen=True)


def test_writing_is_all_or_nothing(tmp_path, monkeypatch):
    """A write that fails half-way leaves the old file, no temporary one, and is a typed error."""
    path = tmp_path / "f"
    path.write_bytes(b"old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(ReleaseError, match="cannot be written: No space left on device"):
        write_atomically(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["f"]
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new" and [p.name for p in tmp_path.iterdir()] == ["f"]
    with pytest.raises(ReleaseError, match="cannot be written"):
        write_atomically(path / "f", b"")  # a file is no folder


@pytest.mark.parametrize("content", [float("nan"), float("inf"), {1, 2}, "\ud800", {"a": b"x"}, {(1,): 2}])
def test_canonical_json_is_strict(content):
    """What JSON or UTF-8 cannot hold is an error, never a token that some readers take."""
    with pytest.raises(ReleaseError, match="strict JSON"):
        canonical_json(content)


def test_canonical_json_does_not_depend_on_insertion_order():
    """Keys are sorted at every depth, text stays UTF-8, the end is one newline."""
    one = canonical_json({"b": {"y": 1, "x": "é"}, "a": [0.1, None, True]})
    assert one == canonical_json({"a": [0.1, None, True], "b": {"x": "é", "y": 1}})
    assert (
        one.endswith(b"}\n")
        and "é".encode() in one
        and json.loads(one) == {"a": [0.1, None, True], "b": {"x": "é", "y": 1}}
    )


# What is shipped.


def test_the_proposal_that_is_shipped():
    """v0.1-proposed: not frozen, the 14 tasks and headline metrics of the design, anchors for exactly four."""
    release = load_release("v0.1-proposed")
    assert (release.name, release.frozen, release.protocol_version) == ("v0.1-proposed", False, rel.PROTOCOL_VERSION)
    headline = {
        "E-LOC-AOA": ("MeanAngularError", "lower", "deg"),
        "E-LOC-LOS": ("BalancedAccuracy", "higher", "1"),
        "E-ID-DRONE": ("AUC", "higher", "1"),
        "E-ID-FP": ("Top1Accuracy", "higher", "1"),
        "E-ID-AMC": ("PlainAccuracy", "higher", "1"),
        "E-CH-BEAM": ("TopKAccuracy", "higher", "1"),
        "E-CH-CSI": ("NMSE", "lower", "dB"),
        "E-SC-SENSE": ("AUC", "higher", "1"),
        "E-SC-ANOM": ("AUROC", "higher", "1"),
        "E-SC-SEP": ("SISDR", "higher", "dB"),
        "E-S2T-CAP": ("Bleu", "higher", "1"),
        "E-S2T-QA": ("ExactMatch", "higher", "1"),
        "EMVal-NF": ("rel_l2_avg", "lower", "1"),
        "EMVal-SP": ("real_imag_rmse", "lower", "1"),
    }
    assert {i: (e.metric, e.direction, e.unit) for i, e in release.tasks.items()} == headline
    assert release.aggregated == V01
    anchors = {i: (e.anchor.m_min, e.anchor.m_max) for i, e in release.tasks.items() if e.anchor}
    assert anchors == {
        "E-LOC-AOA": (0.0, 90.0),
        "E-LOC-LOS": (0.5, 1.0),
        "E-ID-DRONE": (0.5, 1.0),
        "E-ID-FP": (1 / 16, 1.0),
    }
    assert all(e.anchor.basis for e in release.tasks.values() if e.anchor)
    assert not any(e.folds or e.real for e in release.tasks.values()) and release.verify() == ()
    assert release.params("E-CH-BEAM") == {"k": 3}


def test_the_proposal_fits_the_registry():
    """Each registered task of the proposal takes the pinned parameters, and its headline is the release's metric."""
    release = load_release("v0.1-proposed")
    tasks = [task for task in list_tasks() if task.id in release.tasks]
    assert {task.id for task in tasks} >= {*V01, "E-ID-AMC"}
    for task in tasks:
        entry, pinned = release.tasks[task.id], release.task(task.id)
        head = pinned.headline
        assert (head.name, head.direction, head.unit) == (entry.metric, entry.direction, entry.unit)
        assert task.in_ood_avg == entry.in_ood_avg
        assert {name: pinned.params[name] for name in entry.params} == release.params(task.id)
        assert pinned == task and hash(pinned) == hash(task)  # a bare id means the proposal
    with pytest.raises(ReleaseError, match="has no task 'E-X'"):
        release.task("E-X")


def test_the_proposal_is_what_its_description_says(tmp_path, monkeypatch):
    """release.json in the package is what draft_release makes of the release.toml beside it, byte for byte."""
    shipped = Path(rel.__file__).parent / "releases" / "v0.1-proposed"
    shutil.copy(shipped / "release.toml", tmp_path)
    monkeypatch.setattr(rel, "__version__", load_release("v0.1-proposed").scorer_version)
    draft_release(tmp_path)
    assert (tmp_path / "release.json").read_bytes() == (shipped / "release.json").read_bytes()


def test_a_folder_with_the_name_of_the_proposal_is_reached_by_path(folder, monkeypatch):
    """The bare name always means the shipped release: a folder in the working directory cannot take its place."""
    impostor = folder.parent / "v0.1-proposed"
    shutil.copytree(folder, impostor)
    build_release(impostor, name="impostor", tasks=TASKS, frozen=True)
    monkeypatch.chdir(folder.parent)
    assert load_release("v0.1-proposed").name == "v0.1-proposed"
    assert load_release("./v0.1-proposed").name == "impostor"
    assert load_release(Path("v0.1-proposed")).name == "impostor"


def test_labels_are_found_after_a_change_of_directory(folder, monkeypatch, tmp_path):
    """A release loaded by a relative path keeps its place."""
    build_release(folder, name="t", tasks=TASKS, frozen=True)
    monkeypatch.chdir(folder.parent)
    release = load_release(folder.name)
    monkeypatch.chdir(tmp_path.parent)
    assert len(release.verify()) == 4


def test_a_release_that_lies_nowhere_has_no_labels(frozen):
    """Without a folder, reading labels is an error and not a read of the working directory."""
    nowhere = Release(
        frozen.name, True, frozen.protocol_version, frozen.scorer_version, dict(frozen.tasks), frozen.digest
    )
    with pytest.raises(ReleaseError, match="lies in no folder"):
        nowhere.label_bytes("E-ID-FP", "unit-1")


def test_release_errors_are_evaluation_errors(folder, frozen):
    """One except clause catches all, and the error carries the task."""
    reseal(folder / "release.json", lambda m: m["tasks"]["E-ID-FP"].update(unit=""))
    with pytest.raises(EvaluationError) as caught:
        load_release(folder)
    assert caught.value.task == "E-ID-FP" and caught.value.argument == "unit"
