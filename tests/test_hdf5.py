"""HDF5 reading: every array type against h5py itself, every way out of the file refused, damage a typed error."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emma_jax.errors import FileFormatError
from emma_jax.io.hdf5 import open_hdf5, read_hdf5, read_hdf5_slices

h5py = pytest.importorskip("h5py")

DTYPES = ["?", "i1", "u1", "i2", ">i4", "u8", "f2", ">f4", "f8", "c8", ">c16", "S3"]


def values(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype == "S3":
        return rng.choice([b"a", b"bc", b"def"], shape).astype("S3")
    z = rng.normal(size=shape) * 50 + 1j * rng.normal(size=shape)
    kind = np.dtype(dtype).kind
    return (z if kind == "c" else np.abs(z.real) if kind == "u" else z.real > 0 if kind == "b" else z.real).astype(
        dtype
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", [{}, {"chunks": (3, 2)}, {"chunks": (2, 2), "compression": "gzip"}], ids=str)
def test_values_equal_h5py(tmp_path: Path, dtype: str, options: dict) -> None:
    """Each dtype and storage reads as h5py reads it, in native order, at an address divisible by 64."""
    path, x = tmp_path / "a.h5", values(dtype, (7, 4))
    with h5py.File(path, "w") as file:
        file.create_dataset("group/x", data=x, **options)
        file["scalar"] = x[0, 0]
    got = read_hdf5(path)
    assert sorted(got) == ["group/x", "scalar"]
    with h5py.File(path) as file:
        np.testing.assert_array_equal(got["group/x"], file["group/x"][()])
        np.testing.assert_array_equal(got["scalar"], file["scalar"][()])
    assert got["group/x"].dtype.isnative and got["group/x"].dtype == np.dtype(dtype).newbyteorder("=")
    assert got["group/x"].ctypes.data % 64 == 0 and got["group/x"].flags.c_contiguous


@pytest.mark.parametrize("fields", [("r", "i"), ("re", "im"), ("real", "imag"), ("Re", "Im")])
@pytest.mark.parametrize(("part", "whole"), [("f2", "c8"), ("f4", "c8"), (">f8", "c16")])
@pytest.mark.parametrize("align", [False, True])
def test_compound_complex(tmp_path: Path, fields: tuple[str, str], part: str, whole: str, align: bool) -> None:
    """A compound of two equal floats, packed or not, is a complex array with the same numbers."""
    names = {"names": fields, "formats": [part, part]}
    if align:
        names |= {"offsets": [8, 16], "itemsize": 24}
    x = np.zeros((2, 3), np.dtype(names))
    x[fields[0]], x[fields[1]] = np.arange(6).reshape(2, 3), -0.5
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = x
    got = read_hdf5(path)["x"]
    assert got.dtype == np.dtype(whole) and got.ctypes.data % 64 == 0
    np.testing.assert_array_equal(got, np.arange(6).reshape(2, 3) - 0.5j)


def test_native_complex(tmp_path: Path) -> None:
    """The complex type of HDF5 2.0 reads like the compound, where h5py has it."""
    kind = getattr(h5py.h5t, "COMPLEX_IEEE_F64LE", None)
    if kind is None:
        pytest.skip("this h5py has no native complex type")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", shape=(3,), dtype=kind)[:] = [1j, 2, 3 - 1j]
    np.testing.assert_array_equal(read_hdf5(tmp_path / "a.h5")["x"], [1j, 2, 3 - 1j])


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(st.integers(0, 9), st.integers(0, 4)), st.integers(1, 12), st.booleans(), st.integers(-12, 12), st.data()
)
def test_slices(
    tmp_path_factory: pytest.TempPathFactory,
    shape: tuple[int, int],
    rows: int,
    chunked: bool,
    start: int,
    data: st.DataObject,
) -> None:
    """Blocks put together are the dataset, and a slice is NumPy's slice, negative and beyond the end too."""
    path, x = tmp_path_factory.mktemp("h") / "a.h5", values("c8", shape)
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=x, chunks=(min(2, shape[0]), 1) if chunked and x.size else None)
    blocks = list(read_hdf5_slices(path, "x", rows=rows))
    assert all(0 < len(b) <= rows for b in blocks)
    np.testing.assert_array_equal(np.concatenate([x[:0], *blocks]), x)
    stop = data.draw(st.none() | st.integers(-12, 12))
    with open_hdf5(path) as reader:
        np.testing.assert_array_equal(reader.read("x", start, stop), x[start:stop])
        assert reader.shape("x") == shape and reader.dtype("x") == np.complex64


def test_missing_dataset_lists_what_is_there(tmp_path: Path) -> None:
    """A wrong name is answered with the right ones; a group is no dataset."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["near/E"], file["near/H"] = 1.0, 2.0
    for key in ("E", "near", "near/E/x", "near/../near/E"):
        with pytest.raises(FileFormatError, match=r"a\.h5: no dataset '.*'; the file holds near/E, near/H"):
            read_hdf5(tmp_path / "a.h5", keys=[key])
    with open_hdf5(tmp_path / "a.h5") as reader:
        assert "near/E" in reader and "/near/H" in reader and "E" not in reader


def test_links_within_the_file(tmp_path: Path) -> None:
    """Hard and soft links within the file are followed by name; a cycle of links ends."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["g/x"] = 5.0
        file["g/again"] = file["g"]
        file["soft"] = h5py.SoftLink("g")
        file["g/relative"] = h5py.SoftLink("x")
        file["loop"] = h5py.SoftLink("/loop")
        file["dangling"] = h5py.SoftLink("/nothing")
    got = read_hdf5(tmp_path / "a.h5", keys=["soft/x", "g/relative", "g/again/again/x"])
    assert [float(v) for v in got.values()] == [5, 5, 5]
    assert list(read_hdf5(tmp_path / "a.h5")) == ["g/x"]
    with pytest.raises(FileFormatError, match="too many soft links"):
        read_hdf5(tmp_path / "a.h5", keys=["loop"])
    with pytest.raises(FileFormatError, match="no dataset 'dangling'"):
        read_hdf5(tmp_path / "a.h5", keys=["dangling"])


def test_nothing_outside_the_file_is_opened(tmp_path: Path) -> None:
    """External links, soft links through them, external storage and virtual datasets of other files are refused."""
    secret, path = tmp_path / "secret.h5", tmp_path / "a.h5"
    with h5py.File(secret, "w") as file:
        file["g/x"] = np.arange(3.0)
    (tmp_path / "raw.bin").write_bytes(b"\1" * 24)
    layout = h5py.VirtualLayout(shape=(3,), dtype="f8")
    layout[:] = h5py.VirtualSource(str(secret), "g/x", shape=(3,))
    with h5py.File(path, "w") as file:
        file["fine"] = 1.0
        file["external"] = h5py.ExternalLink(str(secret), "/g")
        file["through"] = h5py.SoftLink("/external/x")
        file.create_dataset("stored", (3,), "f8", external=[(str(tmp_path / "raw.bin"), 0, 24)])
        file.create_virtual_dataset("virtual", layout)
    for key, message in {
        "external": "external link",
        "external/x": "external link",
        "through": "external link",
        "stored": "keeps its data in another file",
        "virtual": "virtual dataset over other files",
    }.items():
        with pytest.raises(FileFormatError, match=message):
            read_hdf5(path, keys=[key])
    with pytest.raises(FileFormatError, match="'external' is an external link"):
        read_hdf5(path)
    assert read_hdf5(path, keys=["fine"])["fine"] == 1.0


def test_virtual_dataset_within_the_file_is_read(tmp_path: Path) -> None:
    """A virtual dataset over its own file leads nowhere else."""
    layout = h5py.VirtualLayout(shape=(2, 3), dtype="f8")
    layout[0] = h5py.VirtualSource(".", "x", shape=(3,))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.arange(3.0)
        file.create_virtual_dataset("v", layout, fillvalue=7)
    assert read_hdf5(tmp_path / "a.h5")["v"].tolist() == [[0, 1, 2], [7, 7, 7]]


@pytest.mark.parametrize("kind", ["string", "ragged", "reference", "compound", "opaque", "array", "null"])
def test_refused_types(tmp_path: Path, kind: str) -> None:
    """Object, variable-length and structured types, and null dataspaces, are errors that name the file."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        match kind:
            case "string":
                file["x"] = "text of any length"
            case "ragged":
                file.create_dataset("x", (2,), h5py.vlen_dtype("f8"))[0] = [1.0, 2.0]
            case "reference":
                file.create_dataset("x", (1,), h5py.ref_dtype)[0] = file.ref
            case "compound":
                file["x"] = np.zeros(2, [("r", "f4"), ("i", "f8")])
            case "opaque":
                file["x"] = np.zeros(2, "V5")
            case "array":
                file.create_dataset("x", (2,), np.dtype(("f8", (3,))))
            case "null":
                file["x"] = h5py.Empty("f8")
    with pytest.raises(FileFormatError, match=r"a\.h5"):
        read_hdf5(path)


def test_sizes_are_checked_before_reading(tmp_path: Path) -> None:
    """A few bytes that unpack to terabytes are refused by their declared size; the sum over datasets counts."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("bomb", (2**40,), "f8", chunks=(2**20,), compression="gzip")
        file["x"], file["y"] = np.zeros(10), np.zeros(10)
    with pytest.raises(FileFormatError, match="more than the limit"):
        read_hdf5(tmp_path / "a.h5", keys=["bomb"])
    with pytest.raises(FileFormatError, match="160 bytes in 2 datasets"):
        read_hdf5(tmp_path / "a.h5", keys=["x", "y"], max_bytes=159)
    assert len(read_hdf5(tmp_path / "a.h5", keys=["x", "y"], max_bytes=160)) == 2
    with open_hdf5(tmp_path / "a.h5", max_bytes=800) as reader:
        assert reader.read("bomb", 5, 105).sum() == 0


def test_filters_that_need_a_plugin_are_refused(tmp_path: Path) -> None:
    """A filter that libhdf5 would load as a shared library is refused before reading."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        space = h5py.h5s.create_simple((4,))
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((4,))
        plist.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, ())
        h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_DOUBLE, space, plist)
    with pytest.raises(FileFormatError, match="plug-in"):
        read_hdf5(tmp_path / "a.h5")


def test_files_that_are_no_hdf5(tmp_path: Path) -> None:
    """Other content, a truncated file, a directory: FileFormatError; no file: FileNotFoundError."""
    (tmp_path / "text.h5").write_text("frequency,s11\n")
    with h5py.File(tmp_path / "good.h5", "w") as file:
        file["x"] = np.zeros(1000)
    (tmp_path / "cut.h5").write_bytes((tmp_path / "good.h5").read_bytes()[:3000])
    for name in ("text.h5", "cut.h5", "."):
        with pytest.raises(FileFormatError):
            read_hdf5(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        read_hdf5(tmp_path / "none.h5")


def test_errors_of_the_caller_pass_through(tmp_path: Path) -> None:
    """An exception raised while a file is open is not taken for a fault of the file."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = 1.0
    with pytest.raises(KeyError, match="mine"), open_hdf5(tmp_path / "a.h5"):
        raise KeyError("mine")
    with pytest.raises(ValueError, match="at least 1"):
        list(read_hdf5_slices(tmp_path / "a.h5", "x", rows=0))
    with pytest.raises(FileFormatError, match="no rows"):
        list(read_hdf5_slices(tmp_path / "a.h5", "x", rows=1))


def test_empty_chunks_are_damage(tmp_path: Path) -> None:
    """A chunk index that says 0 bytes is an error; libhdf5 2.0 crashes when it is asked to unpack such a chunk."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.ones(50), chunks=(10,), compression="gzip", fletcher32=True)
        size = file["x"].id.get_chunk_info(0).size
        key = size.to_bytes(4, "little") + bytes(4)
    raw = path.read_bytes()
    assert raw.count(key) >= 5
    path.write_bytes(raw.replace(key, bytes(8), 1))
    with pytest.raises(FileFormatError, match="damaged"):
        read_hdf5(path)


FUZZ = """
import random, sys
import h5py, numpy as np
from emma_jax.errors import FileFormatError
from emma_jax.io.hdf5 import read_hdf5
path, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(seed)
with h5py.File(path, "w", libver=["latest", "earliest"][seed % 2]) as f:
    f["a"] = np.arange(60.0).reshape(20, 3)
    f.create_dataset("g/c", data=np.ones((50, 2), np.complex64), chunks=(10, 2), compression="gzip", fletcher32=True)
    f.create_dataset("lzf", data=np.arange(60.0), chunks=(7,), compression="lzf", shuffle=True)
    f.create_dataset("plain", data=np.arange(60, dtype=">i4"), chunks=(16,), maxshape=(None,))
    f["soft"] = h5py.SoftLink("/a")
    f["flags"], f["names"] = np.array([True, False]), np.array([b"ab", b"c"])
good = open(path, "rb").read()
outcomes = [0, 0]
for _ in range(count):
    raw = bytearray(good)
    for _ in range(rng.randint(1, 6)):
        raw[rng.randrange(len(raw))] = rng.choice([0, 255, rng.randrange(256)])
    if rng.random() < 0.1:
        raw = raw[: rng.randrange(len(raw))]
    with open(path, "wb") as f:
        f.write(raw)
    try:
        read_hdf5(path, keys=rng.choice([None, ["a", "g/c", "soft", "lzf"]]), max_bytes=10**7)
        outcomes[0] += 1
    except FileFormatError:
        outcomes[1] += 1
print(outcomes)
"""


@pytest.mark.parametrize(("seed", "count"), [(0, 150), (1, 150), pytest.param(2, 5000, marks=pytest.mark.slow)])
def test_mutated_files_are_read_or_refused(tmp_path: Path, seed: int, count: int) -> None:
    """Bytes changed at random give arrays or a FileFormatError, in a process of its own that must not crash."""
    command = [sys.executable, "-c", textwrap.dedent(FUZZ), str(tmp_path / "f.h5"), str(seed), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    read, refused = (int(v) for v in done.stdout.strip("[]\n").split(","))
    assert read + refused == count and refused > count // 20
