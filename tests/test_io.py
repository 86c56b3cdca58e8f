"""Readers and writers of `emma_jax.io`: what is read equals what was written, and nothing malformed gets through."""

from __future__ import annotations

import io
import json
import math
import os
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from emma_jax.errors import FileFormatError
from emma_jax.io import atomic_write, dumps_strict, read_arrays, read_labels, read_predictions, write_npz
from emma_jax.io.arrays import aligned_take
from emma_jax.io.sources import read_bytes


def npy_bytes(array: np.ndarray, **kwargs: bool) -> bytes:
    out = io.BytesIO()
    np.save(out, array, **kwargs)
    return out.getvalue()


def zip_bytes(members: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return out.getvalue()


class Bomb:
    """Unpickling this raises an error that no reader of ours raises."""

    def __reduce__(self):
        return (_explode, ())


def _explode():
    raise RuntimeError("unpickled!")


# --- .npy and .npz -----------------------------------------------------------------------------------------------

DTYPES = ["?", "i1", "<i8", ">i4", "u1", "<f2", "<f4", ">f8", "<c8", ">c16", "<U5", "S3"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(0,), (5,), (3, 4), (2, 3, 2)])
def test_npz_arrays_come_back_equal_native_contiguous_and_aligned(dtype, order, shape, tmp_path):
    """Claim: any plain dtype, order and shape reads back. Oracle: the array written by numpy; exact."""
    values = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    array = np.asarray(values, order=order)
    for compress in (np.savez, np.savez_compressed):
        compress(tmp_path / "p.npz", preds=array)
        got = read_arrays(tmp_path / "p.npz")["preds"]
        np.testing.assert_array_equal(got, array)
        assert got.dtype == array.dtype.newbyteorder("=") and got.dtype.isnative
        assert got.flags.c_contiguous and (got.ctypes.data % 64 == 0 or got.size == 0)
    got = read_arrays(npy_bytes(array), name="p.npy")["array"]
    np.testing.assert_array_equal(got, array)
    assert got.flags.c_contiguous and (got.ctypes.data % 64 == 0 or got.size == 0)


@given(hnp.arrays(hnp.floating_dtypes(sizes=(16, 32, 64)), hnp.array_shapes(min_dims=1, max_dims=3, max_side=5)))
@settings(max_examples=50, deadline=None)
def test_npz_keeps_every_float_bit(array):
    """Claim: NaN payloads, subnormals and signed zeros survive. Oracle: the bytes written."""
    out = io.BytesIO()
    np.savez(out, preds=array)
    got = read_predictions(out.getvalue(), name="p.npz").preds
    assert got.tobytes() == array.astype(array.dtype.newbyteorder("=")).tobytes()


@pytest.mark.parametrize("name", ["p.npz", "p.npy"])
def test_object_arrays_are_refused_without_unpickling(name):
    """Claim (case npz-object-array): an object array is a FileFormatError and its pickle never runs."""
    array = np.array([Bomb(), None], dtype=object)
    data = npy_bytes(array, allow_pickle=True)
    with pytest.raises(RuntimeError, match="unpickled"):
        np.load(io.BytesIO(data), allow_pickle=True)  # the bomb is live
    if name == "p.npz":
        data = zip_bytes([("pred.npy", data)])
    with pytest.raises(FileFormatError, match=r"p\.np.*object array"):
        read_predictions(data, name=name)


def test_a_bare_pickle_is_refused():
    """Claim: a pickle under the name of an array is no array (numpy.load would offer to unpickle it)."""
    for name in ("p.npy", "p.npz"):
        with pytest.raises(FileFormatError, match="not a readable"):
            read_arrays(pickle.dumps(Bomb()), name=name)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(3, [("a", "f4")]),
        np.zeros(3, "V2"),
        np.zeros(3, "M8[s]"),
        np.zeros(3, np.longdouble),
    ],
    ids=["structured", "void", "datetime", "longdouble"],
)
def test_dtypes_that_are_no_numbers_or_strings_are_refused(array):
    """Claim: structured, void (bfloat16 saved by numpy), datetime and 80-bit floats are typed errors."""
    with pytest.raises(FileFormatError, match=r"p\.npy: arrays of dtype"):
        read_arrays(npy_bytes(array), name="p.npy")


def test_lying_sizes_are_refused_before_memory_is_taken():
    """Claim: a header that promises 8 EB of zeros over 0 bytes is an error at once, not an allocation."""
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000000,), }"
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    data = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
    with pytest.raises(FileFormatError, match=r"impossible shape|truncated"):
        read_arrays(data, name="p.npy")
    for shape in ("(1000000000,)", "(-1,)", "(-1, -2)"):
        changed = header.replace(b"(1000000000000000000,)", shape.encode().ljust(22))
        with pytest.raises(FileFormatError, match=r"impossible shape|truncated"):
            read_arrays(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(changed)) + changed, name="p.npy")


def test_zip_bombs_meet_the_limit_before_they_are_read():
    """Claim: the stated sizes of all members together count against max_bytes, which defaults to 4 GiB."""
    zeros = npy_bytes(np.zeros(200_000, np.uint8))
    bomb = zip_bytes([(f"a{i}.npy", zeros) for i in range(10)], zipfile.ZIP_DEFLATED)
    assert len(bomb) < 20_000
    with pytest.raises(
        FileFormatError, match=r"p\.npz: 2001280 bytes once decompressed, more than the limit of 2000000"
    ):
        read_arrays(bomb, name="p.npz", max_bytes=2_000_000)
    assert len(read_arrays(bomb, name="p.npz")) == 10
    claimed = bytearray(zip_bytes([("preds.npy", zeros)], zipfile.ZIP_DEFLATED))
    at = claimed.rindex(b"PK\x01\x02") + 24
    claimed[at : at + 4] = struct.pack("<I", 0xFFFFFFF0)  # states 4 GiB for 200 KB
    with pytest.raises(FileFormatError, match=r"p\.npz"):
        read_arrays(bytes(claimed), name="p.npz")


@pytest.mark.parametrize(
    "members, message",
    [
        ([("../preds.npy", b"")], "not a plain"),
        ([("/preds.npy", b"")], "not a plain"),
        ([("a/preds.npy", b"")], "not a plain"),
        ([("a\\preds.npy", b"")], "not a plain"),
        ([("preds.txt", b"")], "not a plain"),
        ([(".npy", b"")], "not a plain"),
        ([("preds.npy", npy_bytes(np.ones(2)) + b"x")], "followed by something else"),
        ([("preds.npy", npy_bytes(np.ones(2))[:-1])], "truncated"),
        ([("preds.npy", b"")], "not a readable .npy"),
    ],
)
def test_malformed_members_are_refused(members, message):
    """Claim: paths in names, other files, trailing and missing bytes in a .npz are errors that name it."""
    with pytest.raises(FileFormatError, match=rf"p\.npz.*{message}"):
        read_arrays(zip_bytes(members), name="p.npz")


def test_duplicate_members_are_refused():
    """Claim: two members of one name (numpy takes the last one) are an error."""
    with pytest.warns(UserWarning, match="Duplicate name"):
        data = zip_bytes([("preds.npy", npy_bytes(np.ones(2)))] * 2)
    with pytest.raises(FileFormatError, match="'preds' is there twice"):
        read_arrays(data, name="p.npz")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions_are_refused(method):
    """Claim: only what numpy writes (stored, deflate) is decompressed."""
    with pytest.raises(FileFormatError, match="another method than deflate"):
        read_arrays(zip_bytes([("preds.npy", npy_bytes(np.ones(2)))], method), name="p.npz")


def test_one_changed_byte_in_a_member_fails_its_checksum():
    """Claim: any flip of a data byte of a stored member is found (CRC-32)."""
    data = bytearray(zip_bytes([("preds.npy", npy_bytes(np.arange(50.0)))]))
    at = data.index(np.float64(49.0).tobytes())
    data[at] ^= 1
    with pytest.raises(FileFormatError, match="damaged: Bad CRC-32"):
        read_arrays(bytes(data), name="p.npz")


def test_bool_arrays_hold_only_zero_and_one():
    """Claim: a bool array with a byte of 2 (numpy would count it as two trues in some loops) is an error."""
    data = npy_bytes(np.array([True, False]))
    with pytest.raises(FileFormatError, match="bytes other than 0 and 1"):
        read_arrays(data[:-2] + b"\x02\x00", name="p.npy")


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_mutated_npz_and_npy_give_arrays_or_typed_errors(data):
    """Claim: whatever three bytes are overwritten, and wherever it is cut, the outcome is arrays or FileFormatError."""
    plain = npy_bytes(np.arange(12.0).reshape(3, 4))
    name, whole = data.draw(
        st.sampled_from(
            [
                ("p.npy", plain),
                ("p.npz", zip_bytes([("preds.npy", plain)])),
                ("p.npz", zip_bytes([("ids.npy", plain)], 8)),
            ]
        )
    )
    broken = bytearray(whole)
    for _ in range(3):
        broken[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.none(), st.integers(0, len(whole))))
    try:
        arrays = read_arrays(bytes(broken[:cut]), name=name)
    except FileFormatError as error:
        assert name in str(error)
    else:
        assert all(isinstance(a, np.ndarray) for a in arrays.values())


# --- CSV ---------------------------------------------------------------------------------------------------------


def test_csv_columns_in_any_order_with_bom_and_crlf():
    """Claim: BOM, CRLF, quotes, empty lines at the end, columns in any order. Oracle: read by eye; exact."""
    text = '\ufeffpred_1,id,pred_0,label\r\n0.5,"a,b",1e-3,2\r\n-inf,c, 4 ,0\r\n\r\n'
    arrays = read_arrays(text.encode(), name="p.csv")
    np.testing.assert_array_equal(arrays["pred"], [[1e-3, 0.5], [4.0, -np.inf]])
    np.testing.assert_array_equal(arrays["label"], [2, 0])
    assert arrays["label"].dtype == np.int64 and arrays["pred"].dtype == np.float64
    assert arrays["id"] == ["a,b", "c"]
    assert arrays["pred"].ctypes.data % 64 == 0


@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 8), st.integers(1, 4))))
@settings(max_examples=50, deadline=None)
def test_csv_numbers_are_the_doubles_that_were_printed(array):
    """Claim: repr(x) in a CSV reads as x. Oracle: the array; exact, NaN included."""
    header = ",".join(f"pred_{c}" for c in range(array.shape[1]))
    body = "\n".join(",".join(map(repr, row)) for row in array.tolist())
    got = read_predictions(f"{header}\n{body}".encode(), name="p.csv").preds
    np.testing.assert_array_equal(np.asarray(got, np.float64), array)


def test_csv_longer_than_one_chunk_is_one_column(monkeypatch):
    """Claim: chunking does not show; an integer column with one fraction in a late chunk is float64. Exact."""
    monkeypatch.setattr("emma_jax.io.tables._ROWS_AT_ONCE", 4)
    values = [*range(10), 10.5]
    got = read_predictions(("pred\n" + "\n".join(map(str, values))).encode(), name="p.csv").preds
    np.testing.assert_array_equal(got, values)
    assert got.dtype == np.float64
    ints = read_predictions(b"pred\n" + b"1\n" * 11, name="p.csv").preds
    assert ints.dtype == np.int64 and len(ints) == 11


@pytest.mark.parametrize(
    "text, message",
    [
        ("pred\n0.5\nabc\n", r"p\.csv, line 3: column 'pred' holds 'abc', which is no number"),
        ("pred,id\n0.5,a\n,b\n", r"line 3: column 'pred' is empty"),
        ("pred\n0.5\n\n0.7\n", r"line 3: an empty row"),
        ("pred_0,pred_1\n1,2\n1\n", r"line 3: 1 values where the header has 2 columns"),
        ("pred_0,pred_1\n1,2\n1,2,3\n", r"line 3: 3 values where the header has 2 columns"),
        ("pred\n1_000\n", r"line 2: .*no number"),
        ("pred\n\u0661\n", r"line 2: .*no number"),
        ("pred\n1+2j\n", r"line 2: .*no number"),
        ("0.5\n0.7\n", r"line 1: a header row is needed"),
        ("pred,pred\n1,2\n", r"'pred' is there twice"),
        ("pred,\n1,2\n", r"column 2 of the header has no name"),
        ("id;pred\na;1\n", r"separated by commas"),
        ("pred_0,pred_2\n1,2\n", r"pred_1 is not there"),
        ("pred,pred_1\n1,2\n", r"pred_0 is not there"),
        ("", r"p\.csv: empty"),
        ('pred\n"1\n', r"line 2: "),
        ("id,score\na,1\n", r"no 'preds'; the file holds 'id', 'score'"),
        ("pred,preds\n1,2\n", r"are both there"),
    ],
)
def test_csv_errors_name_file_and_line(text, message):
    """Claim: each malformed CSV is a FileFormatError with the line as an editor counts."""
    with pytest.raises(FileFormatError, match=message):
        read_predictions(text.encode(), name="p.csv")


def test_text_that_is_not_utf8_is_refused():
    """Claim: UTF-16 and Latin-1 are typed errors in both text formats."""
    for name in ("p.csv", "p.jsonl"):
        for data in ("pred\n0.5\n".encode("utf-16"), "préd\n".encode("latin-1")):
            with pytest.raises(FileFormatError, match="not UTF-8"):
                read_arrays(data, name=name)


# --- JSON Lines --------------------------------------------------------------------------------------------------


def test_jsonl_with_bom_blank_lines_and_no_final_newline():
    """Claim (case jsonl-bom-blank): two records, ids a and b. Oracle: counted by hand."""
    data = bytes.fromhex(
        "efbbbf7b226964223a2261222c2270726564223a2278227d0a0a2020200a7b226964223a2262222c2270726564223a2279227d"
    )
    got = read_predictions(data, name="p.jsonl")
    assert got.ids == ("a", "b") and got.preds == ["x", "y"]


@pytest.mark.parametrize(
    "values, expected",
    [
        ([1, 2], np.array([1, 2])),
        ([1, 2.5], np.array([1.0, 2.5])),
        ([[1, 2], [3, 4]], np.array([[1, 2], [3, 4]])),
        ([[[0.5]], [["-inf"]]], np.array([[[0.5]], [[-np.inf]]])),
        (["nan", 1, "inf"], np.array([np.nan, 1, np.inf])),
        ([True, False], np.array([True, False])),
        (["a", "nan"], ["a", "nan"]),
        ([["gold"], [], ["a", "b"]], [["gold"], [], ["a", "b"]]),
    ],
)
def test_jsonl_values_become_arrays_or_text(values, expected):
    """Claim: numbers, nested lists, the three special strings, bools and text. Oracle: the values; exact."""
    data = "\r\n".join(json.dumps({"pred": v}) for v in values).encode()
    got = read_predictions(data, name="p.jsonl").preds
    if isinstance(expected, np.ndarray):
        np.testing.assert_array_equal(got, expected)
        assert got.dtype == expected.dtype and got.ctypes.data % 64 == 0
    else:
        assert got == expected


@pytest.mark.parametrize(
    "lines, message",
    [
        (['{"pred": 1}', '{"pred": NaN}'], r"p\.jsonl, line 2: .*NaN is not JSON"),
        (['{"pred": 1}', "", '{"pred": Infinity}'], r"line 3: .*Infinity is not JSON"),
        (['{"pred": 1, "pred": 2}'], r"line 1: .*key is given twice"),
        (['{"pred": 1}', '{"pred": "x"}'], r"line 2: 'pred' holds 'x', which is no number"),
        (['{"pred": "x"}', '{"pred": 1}'], r"line 2: 'pred' must be a string"),
        (['{"pred": [1, 2]}', '{"pred": [1]}'], r"line 2: 'pred' must be a list of 2 values"),
        (['{"pred": [[1], [2]]}', '{"pred": [[1], [2, 3]]}'], r"line 2: 'pred' must be a list of 1 values"),
        (['{"pred": [1, 2]}', '{"pred": [1, null]}'], r"line 2: 'pred' holds 'None'"),
        (['{"pred": 1}', '{"pred": true}'], r"line 2: 'pred' holds 'True'"),
        (['{"pred": []}'], r"line 1: 'pred' must be a list of 1 values"),
        (['{"pred": 1}', '{"id": 1}'], r"line 2: no 'pred'"),
        (['{"pred": 1}', "[1]"], r"line 2: not a JSON object"),
        (['{"pred": 1}', '{"pred": 1'], r"line 2: not a line of strict JSON"),
        (['{"pred": 1' + "0" * 30 + "}"], r"line 1: 'pred' holds an integer beyond 64 bits"),
        (['{"pred": 18446744073709551615}'], r"line 1: 'pred' holds an integer beyond 64 bits"),
        (['{"pred": ' + "[" * 100_000 + "}"], r"line 1: not a line of strict JSON"),
        (['{"pred": 1, "id": 1.5}'], r"line 1: 'id' must be a string or an integer"),
        (['{"pred": 1, "id": "a"}', '{"pred": 2, "id": "a"}'], r"1 duplicate ids: 'a'"),
        (['{"pred": 1, "id": 7}', '{"pred": 2, "id": "7"}'], r"1 duplicate ids: '7'"),
        (['{"pred": 1, "id": "\\ud800"}'], r"not UTF-8"),
        ([""], r"p\.jsonl: empty"),
    ],
)
def test_jsonl_errors_name_file_and_line(lines, message):
    """Claim: each malformed JSON Lines file is a FileFormatError with the line as an editor counts."""
    with pytest.raises(FileFormatError, match=message):
        read_predictions("\n".join(lines).encode(), name="p.jsonl")


# --- predictions and labels --------------------------------------------------------------------------------------


def test_labels_with_ids_mask_and_groups_in_every_format(tmp_path):
    """Claim: one content, three formats, the same Labels. Oracle: the values themselves; exact."""
    write_npz(tmp_path / "l.npz", labels=[3, 1, 2], ids=["a", "b", "c"], where=[True, False, True], groups=[10, -5, 10])
    (tmp_path / "l.csv").write_text("id,label,where,group\na,3,true,10\nb,1,0,-5\nc,2,1,10\n")
    rows = [("a", 3, True, 10), ("b", 1, False, -5), ("c", 2, True, 10)]
    (tmp_path / "l.jsonl").write_text(
        "".join(json.dumps(dict(zip(("id", "label", "where", "group"), row))) + "\n" for row in rows)
    )
    for suffix in ("npz", "csv", "jsonl"):
        got = read_labels(tmp_path / f"l.{suffix}")
        np.testing.assert_array_equal(got.labels, [3, 1, 2])
        assert got.ids == ("a", "b", "c") and got.group_names == ("-5", "10")
        np.testing.assert_array_equal(got.where, [True, False, True])
        np.testing.assert_array_equal(got.groups, [1, 0, 1])
        assert got.where.dtype == np.bool_


def test_integer_and_byte_string_ids_are_strings():
    """Claim: ids are compared as text, so 7, "7" and b"7" are one id."""
    for ids in (np.array([7, 8]), np.array(["7", "8"]), np.array([b"7", b"8"])):
        data = zip_bytes([("preds.npy", npy_bytes(np.ones(2))), ("ids.npy", npy_bytes(ids))])
        assert read_predictions(data, name="p.npz").ids == ("7", "8")


@pytest.mark.parametrize(
    "extra, message",
    [
        ({"ids": np.ones(2)}, "ids must be strings or integers"),
        ({"ids": np.array(["a"])}, "1 ids for 2 samples"),
        ({"ids": np.array(["a", "a"])}, "1 duplicate ids: 'a'"),
        ({"where": np.array([0, 2])}, "where must be bool"),
        ({"where": np.array([0.0, 1.0])}, "where must be bool"),
        ({"where": np.ones(3, bool)}, "3 where for 2 samples"),
        ({"groups": np.array([0.0, np.nan])}, "groups must be one finite number or string"),
        ({"groups": np.ones((2, 1))}, "groups must be"),
        ({"label": np.ones(2)}, "'labels' and 'label' are both there"),
    ],
)
def test_labels_that_do_not_fit_are_refused(extra, message):
    """Claim: ids, mask and groups of a wrong kind or length are errors that name the file."""
    data = zip_bytes([(f"{k}.npy", npy_bytes(v)) for k, v in {"labels": np.ones(2), **extra}.items()])
    with pytest.raises(FileFormatError, match=rf"l\.npz: {message}"):
        read_labels(data, name="l.npz")


def test_a_bare_npy_is_its_one_array_and_a_scalar_is_refused():
    """Claim: .npy needs no name; a single value has no sample axis."""
    np.testing.assert_array_equal(read_predictions(npy_bytes(np.arange(3)), name="p.npy").preds, [0, 1, 2])
    with pytest.raises(FileFormatError, match="first axis has to be the samples"):
        read_predictions(npy_bytes(np.float64(1)), name="p.npy")
    with pytest.raises(FileFormatError, match="no 'preds'; the file holds 'array'"):
        read_predictions(zip_bytes([("array.npy", npy_bytes(np.ones(2)))]), name="p.npz")


def test_sources_path_bytes_and_stream_agree_and_unknown_suffixes_are_refused(tmp_path):
    """Claim: the same file by path, as bytes and as a stream reads alike; a suffix says what it is."""
    write_npz(tmp_path / "p.npz", preds=np.arange(4.0))
    data = (tmp_path / "p.npz").read_bytes()
    with open(tmp_path / "p.npz", "rb") as stream:
        for source in (tmp_path / "p.npz", str(tmp_path / "p.npz"), stream):
            np.testing.assert_array_equal(read_predictions(source).preds, np.arange(4.0))
    np.testing.assert_array_equal(read_predictions(io.BytesIO(data), name="p.npz").preds, np.arange(4.0))
    with pytest.raises(TypeError, match="name="):
        read_predictions(data)
    with pytest.raises(FileFormatError, match=r"p\.pkl: unknown suffix"):
        read_predictions(data, name="p.pkl")
    with pytest.raises(FileNotFoundError):
        read_predictions(tmp_path / "none.npz")


def test_only_regular_files_are_read(tmp_path):
    """Claim: a directory and a FIFO (which would block) are refused; read_bytes refuses symbolic links too."""
    os.mkfifo(tmp_path / "f.npz")
    with pytest.raises(FileFormatError, match="not a regular file"):
        read_arrays(tmp_path / "f.npz")
    (tmp_path / "a.npy").write_bytes(npy_bytes(np.ones(2)))
    (tmp_path / "b.npy").symlink_to(tmp_path / "a.npy")
    assert read_bytes(tmp_path / "a.npy") == npy_bytes(np.ones(2))
    with pytest.raises(FileFormatError, match=r"b\.npy: a symbolic link"):
        read_bytes(tmp_path / "b.npy")
    with pytest.raises(FileFormatError, match="more than the limit of 10"):
        read_bytes(tmp_path / "a.npy", max_bytes=10)


def test_aligned_take_equals_indexing():
    """Claim: rows come out as by indexing, at a 64-byte aligned address. Oracle: NumPy; exact."""
    array = np.arange(15.0).reshape(5, 3)
    rows = np.array([4, 0, 0, 2])
    np.testing.assert_array_equal(aligned_take(array, rows), array[rows])
    assert aligned_take(array, rows).ctypes.data % 64 == 0


# --- writers -----------------------------------------------------------------------------------------------------


def test_write_npz_is_read_by_numpy_and_has_the_same_bytes_each_time(tmp_path):
    """Claim: numpy reads it; the bytes depend on the content alone; object arrays are refused. Exact."""
    arrays = {"file": np.arange(6).reshape(2, 3), "preds": np.array(["a", "bc"])}
    for compress in (False, True):
        write_npz(tmp_path / "a.npz", compress=compress, **arrays)
        write_npz(tmp_path / "b.npz", compress=compress, **arrays)
        assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
        with np.load(tmp_path / "a.npz", allow_pickle=False) as loaded:
            for name, value in arrays.items():
                np.testing.assert_array_equal(loaded[name], value)
    with pytest.raises(TypeError, match="'preds' is an object array"):
        write_npz(tmp_path / "c.npz", preds=np.array([[1], [1, 2]], dtype=object))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npz", "b.npz"]


def test_atomic_write_leaves_the_old_file_when_it_fails(tmp_path, monkeypatch):
    """Claim: an error on the way leaves the old content and no temporary file; success follows a link."""
    path: Path = tmp_path / "r.json"
    atomic_write(path, b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            atomic_write(path, b"new")
    assert path.read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 1
    (tmp_path / "link.json").symlink_to(path)
    atomic_write(tmp_path / "link.json", b"newer")
    assert path.read_bytes() == b"newer" and (tmp_path / "link.json").is_symlink()
    atomic_write("/dev/null", b"gone")
    assert not Path("/dev/null").is_file()


def test_dumps_strict_has_no_tokens_that_json_lacks():
    """Claim: strict parsers read it; infinities are strings, NaN null, keys sorted. Oracle: json, raising on tokens."""
    value = {"b": float("nan"), "a": [np.float32(0.5), -np.inf, np.int64(3), True], "c": np.array([1.0, np.inf])}
    parsed = json.loads(dumps_strict(value), parse_constant=lambda t: pytest.fail(t))
    assert parsed == {"a": [0.5, "-inf", 3, True], "b": None, "c": [1.0, "inf"]}
    assert list(parsed) == ["a", "b", "c"] and dumps_strict(value).endswith("}\n")
    with pytest.raises(TypeError, match="set is not JSON"):
        dumps_strict({"x": {1}})


def test_a_file_in_a_new_folder_makes_the_folder(tmp_path):
    """Claim: what was computed is not lost because the folder of the output does not exist yet."""
    target = tmp_path / "results" / "today" / "one.json"
    atomic_write(target, b"{}")
    assert target.read_bytes() == b"{}" and [p.name for p in target.parent.iterdir()] == ["one.json"]
