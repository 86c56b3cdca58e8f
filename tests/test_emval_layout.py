"""Boards on disk: layouts, key maps, checksums, and every axis order and arrangement against the plain array."""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from emma_jax.emval.keymap import FieldKeys, KeyMap, SParameterKeys, load_key_map
from emma_jax.emval.layout import find_boards, read_fields, read_sparams, require_same_frequencies
from emma_jax.errors import FileFormatError, ShapeError
from emma_jax.io.touchstone import write_touchstone

h5py = pytest.importorskip("h5py")

RNG = np.random.default_rng(0)
E, H = (RNG.normal(size=(2, 3, 5, 3)) + 1j * RNG.normal(size=(2, 3, 5, 3)) for _ in range(2))
S = RNG.normal(size=(4, 2, 2)) + 1j * RNG.normal(size=(4, 2, 2))


def write_h5(path: Path, **arrays: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for name, value in arrays.items():
            file[name.replace("__", "/")] = value
    return path


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")


# --- key maps --------------------------------------------------------------------------------------------------------


def test_empty_key_map_is_the_default(tmp_path: Path) -> None:
    """A key map says what differs; an empty one differs in nothing."""
    (tmp_path / "k.toml").write_text("")
    assert load_key_map(tmp_path / "k.toml") == KeyMap()
    (tmp_path / "k.toml").write_text(
        '[near_field]\nE = ["Ex", "Ey", "Ez"]\nH = "mag/H"\naxes = "FJP"\n[sparams]\nS = ["re", "im"]\n'
    )
    with pytest.raises(FileFormatError, match="axes 'FJP' for 1 dataset"):
        load_key_map(tmp_path / "k.toml")
    (tmp_path / "k.toml").write_text('[near_field]\nE = ["a", "b"]\nH = "mag/H"\naxes = "FJCP"\n')
    got = load_key_map(tmp_path / "k.toml")
    assert got.near_field == FieldKeys(E=("a", "b"), H=("mag/H",), axes="FJCP") and got.sparams == SParameterKeys()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[near", "not a TOML file"),
        ("[far_field]", "unknown table 'far_field'; there are near_field, sparams"),
        ("near_field = 1", "has to be a table"),
        ("[sparams]\nE = 'x'", "unknown key 'E'; there are file, S, axes"),
        ("[sparams]\nS = 3", "'S' has to be a name or a list"),
        ("[sparams]\nS = []", "'S' has to be a name or a list"),
        ("[sparams]\naxes = ['F']", "'axes' has to be a string"),
        ("[sparams]\nS = ['a', 'b', 'c']", "'S' has 3 names"),
        ("[sparams]\naxes = 'FIK'", "axes 'FIK'"),
        ("[sparams]\naxes = 'FIJJ'", "axes 'FIJJ'"),
        ("[sparams]\nS = ['a', 'b']\naxes = 'FIJR'", "axes 'FIJR'"),
        ("[near_field]\nE = ['a', 'b', 'c', 'd']", "'E' has 4 names"),
        ("[near_field]\nposition_unit = 'yd'", "unknown position_unit"),
        ("[sparams]\nfrequency_unit = 'THz'", "unknown frequency_unit"),
        ("[sparams]\nfile = '../x.h5'", "not a plain file name"),
    ],
)
def test_bad_key_maps(tmp_path: Path, text: str, message: str) -> None:
    """A fault in a key map names the file, the table and what is wrong."""
    (tmp_path / "k.toml").write_text(text)
    with pytest.raises(FileFormatError, match=f"k.toml.*{message}"):
        load_key_map(tmp_path / "k.toml")


# --- arrays ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", ["".join(p) for p in itertools.permutations("JFPC")])
def test_field_axes(tmp_path: Path, axes: str) -> None:
    """Every order of the axes gives [J, F, P, C], contiguous and aligned (oracle: transposition)."""
    e, h = (x.transpose(["JFPC".index(a) for a in axes]) for x in (E, H))
    got = read_fields(write_h5(tmp_path / "b.h5", E=e, H=h), FieldKeys(axes=axes))
    np.testing.assert_array_equal(got.e, E)
    np.testing.assert_array_equal(got.h, H)
    assert got.e.flags.c_contiguous and got.e.ctypes.data % 64 == 0
    assert got.frequency_hz is None and got.where is None


@pytest.mark.parametrize("axes", ["JFPCR", "RJFPC", "JFRPC", "PRCFJ"])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_field_planes_on_an_axis(tmp_path: Path, axes: str, dtype: str) -> None:
    """Real and imaginary part on an axis R, anywhere, in half, single and double precision."""
    planes = [np.stack([x.real, x.imag], -1).astype(dtype) for x in (E, H)]
    e, h = (x.transpose(["JFPCR".index(a) for a in axes]) for x in planes)
    got = read_fields(write_h5(tmp_path / "b.h5", E=e, H=h), FieldKeys(axes=axes))
    np.testing.assert_array_equal(got.e, planes[0][..., 0] + 1j * planes[0][..., 1])
    np.testing.assert_array_equal(got.h, planes[1][..., 0] + 1j * planes[1][..., 1])
    assert got.e.dtype == (np.complex128 if dtype == "f8" else np.complex64)


@pytest.mark.parametrize("suffix", [".h5", ".npz"])
@pytest.mark.parametrize("kind", ["re-im", "components", "components-re-im", "components-R"])
def test_fields_in_several_datasets(tmp_path: Path, suffix: str, kind: str) -> None:
    """Parts and components as datasets of their own, in HDF5 and in npz, with another axis order."""
    arrays, names = {}, {}
    for letter, x in (("E", E), ("H", H)):
        x = x.transpose(1, 2, 0, 3)  # F P J C
        parts = [("", x)] if kind in ("components", "components-R") else [("re", x.real), ("im", x.imag)]
        pieces = [("", np.s_[...])] if kind == "re-im" else [(c, np.s_[..., k]) for k, c in enumerate("xyz")]
        names[letter] = tuple(f"{letter}{c}{p}" for c, _ in pieces for p, _ in parts)
        for c, where in pieces:
            for p, values in parts:
                value = values[where]
                arrays[f"{letter}{c}{p}"] = np.stack([value.real, value.imag], 1) if kind == "components-R" else value
    axes = {"re-im": "FPJC", "components-R": "FRPJ"}.get(kind, "FPJ")
    keys = FieldKeys(E=names["E"], H=names["H"], axes=axes)
    path = tmp_path / f"b{suffix}"
    if suffix == ".h5":
        write_h5(path, **arrays)
    else:
        np.savez(path, **arrays)
    got = read_fields(path, keys)
    np.testing.assert_array_equal(got.e, E)
    np.testing.assert_array_equal(got.h, H)


@pytest.mark.parametrize("axes", ["".join(p) for p in itertools.permutations("FIJ")])
def test_sparameter_axes_and_metadata(tmp_path: Path, axes: str) -> None:
    """Axis orders of S with its mask, frequencies in GHz and references (oracle: transposition)."""
    order = ["FIJ".index(a) for a in axes]
    mask = RNG.random(S.shape) > 0.3
    path = write_h5(tmp_path / "b.h5", S=S.transpose(order), where=mask.transpose(order), f=[1, 2, 3, 4], z0=50.0)
    got = read_sparams(path, SParameterKeys(axes=axes, frequency="f", frequency_unit="GHz"))
    np.testing.assert_array_equal(got.s, S)
    np.testing.assert_array_equal(got.where, mask)
    assert got.frequency_hz is not None and got.frequency_hz.tolist() == [1e9, 2e9, 3e9, 4e9]
    assert got.z0 is not None and got.z0.tolist() == [50, 50]


def test_touchstone_board(tmp_path: Path) -> None:
    """A Touchstone file needs no key map: it says frequencies and references itself."""
    write_touchstone(tmp_path / "b.s2p", [1e9, 2e9, 3e9, 4e9], S, z0=75.0)
    got = read_sparams(tmp_path / "b.s2p", SParameterKeys(S=("no such thing",)))
    np.testing.assert_array_equal(got.s, S)
    assert got.z0 is not None and got.z0.tolist() == [75, 75]


@pytest.mark.parametrize("suffix", [".h5", ".npz"])
def test_optional_names(tmp_path: Path, suffix: str) -> None:
    """A trailing question mark lets a dataset be absent, an empty name says it is; otherwise it has to be there."""
    path = tmp_path / f"b{suffix}"
    arrays = {"S": S, "frequency_hz": np.arange(4.0)}
    write_h5(path, **arrays) if suffix == ".h5" else np.savez(path, **arrays)
    assert read_sparams(path, SParameterKeys()).frequency_hz is not None
    assert read_sparams(path, SParameterKeys(frequency="")).frequency_hz is None
    assert read_sparams(path, SParameterKeys(frequency="freq?")).frequency_hz is None
    with pytest.raises(FileFormatError, match=r"no dataset 'freq' for frequency; the file holds .*key map"):
        read_sparams(path, SParameterKeys(frequency="freq"))
    with pytest.raises(FileFormatError, match="no dataset 'Q' for S; the file holds"):
        read_sparams(path, SParameterKeys(S=("Q",)))


@pytest.mark.parametrize(
    ("arrays", "keys", "message"),
    [
        ({"S": S[0]}, {}, "'S' has 2 axes, the key map says FIJ"),
        ({"S": S.real}, {}, "is float64, not complex"),
        ({"a": S.real, "b": S[:2].real}, {"S": ("a", "b")}, "a and b are not floats of one shape"),
        ({"a": S.real, "b": S}, {"S": ("a", "b")}, "not floats of one shape"),
        ({"S": np.stack([S.real] * 3, -1)}, {"axes": "FIJR"}, "the axis R holds two floats, not 3"),
        ({"S": S, "frequency_hz": np.arange(5.0)}, {}, "not 4 frequencies"),
        ({"S": S, "frequency_hz": np.array([1, 2, 3, np.nan])}, {}, "not 4 frequencies"),
        ({"S": S, "where": np.ones(4, bool)}, {}, "not bool for"),
        ({"S": S, "where": np.full(S.shape, 2)}, {}, "not bool for"),
        ({"S": S, "where": np.ones((4, 2, 3), bool)}, {}, "not bool for"),
        ({"S": S, "z0": np.ones(3)}, {}, "z0 has shape"),
    ],
)
def test_bad_arrays(tmp_path: Path, arrays: dict, keys: dict, message: str) -> None:
    """Arrays that do not fit the key map are errors that name the file and the dataset."""
    with pytest.raises(FileFormatError, match=f"b.h5: .*{message}"):
        read_sparams(write_h5(tmp_path / "b.h5", **arrays), SParameterKeys(**keys))


def test_bad_fields(tmp_path: Path) -> None:
    """Two components, or components of different shapes, are errors."""
    with pytest.raises(FileFormatError, match="H has 2 components"):
        read_fields(write_h5(tmp_path / "b.h5", E=E, H=H[..., :2]), FieldKeys())
    path = write_h5(tmp_path / "c.h5", x=E[..., 0], y=E[..., 1], z=E[:1, ..., 2])
    with pytest.raises(FileFormatError, match="components of E differ"):
        read_fields(path, FieldKeys(E=("x", "y", "z"), H=("x", "y", "y"), axes="JFP"))


def test_frequencies_agree_up_to_rounding() -> None:
    """Grids that differ by rounding agree; a missing one is unknown; a different one names its first point."""
    f = np.array([1e9, 2e9, 3e9])
    assert require_same_frequencies(f, f * (1 + 1e-12), "S") and not require_same_frequencies(f, None, "S")
    with pytest.raises(ShapeError, match=r"2\.1e\+09|2100000000") as caught:
        require_same_frequencies(f, np.array([1e9, 2.1e9, 3.1e9]), "S")
    assert caught.value.index == 1 and caught.value.count == 2
    with pytest.raises(ShapeError, match="2 points, the truth has 3"):
        require_same_frequencies(f, f[:2], "S")


# --- folders ---------------------------------------------------------------------------------------------------------

A, B = "a" * 64, "b" * 64


@pytest.mark.parametrize("prefix", ["", "v0/"])
@pytest.mark.parametrize("level", ["", "boards/"])
def test_folder_per_board(tmp_path: Path, prefix: str, level: str) -> None:
    """The public layout, with and without v0 and boards; what is no board is passed over."""
    for group in ("private_challenge", "public"):
        folder = f"{prefix}{group}/"
        touch(
            tmp_path,
            *(f"{folder}{level}{x}/{n}" for x in (B, A) for n in ("design.json", "near_field.h5", "sparams.h5")),
        )
        touch(tmp_path, f"{folder}index.parquet", f"{folder}export_meta.json", f"{folder}{level}.hidden.npz")
    got = find_boards(tmp_path, KeyMap())
    assert list(got) == [("public", A), ("public", B), ("private_challenge", A), ("private_challenge", B)]
    board = got["public", A]
    assert board.near_field == tmp_path / f"{prefix}public/{level}{A}/near_field.h5"
    assert board.sparams == tmp_path / f"{prefix}public/{level}{A}/sparams.h5"
    assert board.checksums is None and board.name == f"public/{A}"


def test_files_per_board(tmp_path: Path) -> None:
    """One file with both, or arrays for the fields next to a Touchstone file, or S-parameters alone."""
    touch(tmp_path, "public/one.npz", "public/two.h5", "public/two.S4P", "public/three.ts", "public/board.v1.s2p")
    touch(tmp_path, "public/notes.txt", "public/empty/readme")
    got = {key[1]: board for key, board in find_boards(tmp_path, KeyMap()).items()}
    assert sorted(got) == ["board.v1", "one", "three", "two"]
    assert got["one"].near_field == got["one"].sparams == tmp_path / "public/one.npz"
    assert got["two"].near_field == tmp_path / "public/two.h5" and got["two"].sparams == tmp_path / "public/two.S4P"
    assert got["three"].near_field is None and got["three"].sparams == tmp_path / "public/three.ts"


def test_one_group_as_root(tmp_path: Path) -> None:
    """The folder of a single group is a data set of one group; groups can be chosen."""
    touch(tmp_path, "public/one.npz", "private_standard/one.npz")
    assert list(find_boards(tmp_path / "public", KeyMap())) == [("public", "one")]
    assert list(find_boards(tmp_path, KeyMap(), ["private_standard"])) == [("private_standard", "one")]


@pytest.mark.parametrize(
    "names",
    [("x.npz", "x.h5"), ("x.s2p", "x.ts"), ("x.s2p", "x.s4p"), ("x/near_field.h5", "x.npz"), ("x/sparams.h5", "x.s2p")],
)
def test_two_files_for_one_quantity(tmp_path: Path, names: tuple[str, str]) -> None:
    """Files that both claim a quantity of a board are an error that names them."""
    touch(tmp_path, *(f"public/{n}" for n in names))
    with pytest.raises(FileFormatError, match="both hold board 'x'"):
        find_boards(tmp_path, KeyMap())


def test_folders_that_are_none(tmp_path: Path) -> None:
    """No folder, no group in it, the same group twice: errors that say what is looked for."""
    with pytest.raises(FileFormatError, match="no such folder"):
        find_boards(tmp_path / "none", KeyMap())
    with pytest.raises(FileFormatError, match="none of the groups public, private_standard, private_challenge"):
        find_boards(tmp_path, KeyMap())
    touch(tmp_path, "public/a.npz", "v0/public/a.npz")
    with pytest.raises(FileFormatError, match="holds public and v0/public"):
        find_boards(tmp_path, KeyMap())


@pytest.mark.parametrize("place", ["v0/public", "v0", ""])
def test_checksums_are_found_beside_and_above(tmp_path: Path, place: str) -> None:
    """checksums.json counts from its own folder; boards that it lists belong to the data set even if they are gone."""
    touch(tmp_path, f"v0/public/boards/{A}/near_field.h5", f"v0/public/boards/{A}/sparams.h5")
    digest = hashlib.sha256(b"x").hexdigest()
    inside = f"v0/public/boards/{A}/near_field.h5"
    gone = f"v0/public/boards/{B}/sparams.h5"
    base = f"{place}/" if place else ""
    content = {p.removeprefix(base): digest for p in (inside, gone, f"v0/public/boards/{A}/design.json")}
    (tmp_path / place / "checksums.json").write_text(json.dumps(content))
    got = find_boards(tmp_path, KeyMap())
    assert list(got) == [("public", A), ("public", B)]
    assert got["public", A].checksums == {tmp_path / inside: digest}
    assert got["public", B].near_field is None and got["public", B].sparams == tmp_path / gone


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "one object"),
        ('{"../x": "%s"}' % ("0" * 64), "not a plain relative path"),
        ('{"/x": "%s"}' % ("0" * 64), "not a plain relative path"),
        ('{"x": "123"}', "no SHA-256 for 'x'"),
        ('{"x": 5}', "no SHA-256 for 'x'"),
        ("{", "checksums.json"),
    ],
)
def test_bad_checksums(tmp_path: Path, content: str, message: str) -> None:
    """A malformed checksums.json is an error, never ignored."""
    touch(tmp_path, "public/a.npz")
    (tmp_path / "public" / "checksums.json").write_text(content)
    with pytest.raises(FileFormatError, match=message):
        find_boards(tmp_path, KeyMap())
