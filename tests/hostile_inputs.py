"""Mutations of a submission, for the tests that let strangers do their worst.

Every one is a function of a seeded generator and a folder held in memory, path to bytes; what only a file system has
(links, pipes) comes as markers.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

Files = dict[bytes, bytes]
Rng = np.random.Generator

LINK, PIPE = b"\0link\0", b"\0pipe\0"  # content that stands for a symbolic link to what follows, or for a pipe


class Bomb:
    """Unpickled, it leaves a file behind: the proof that someone ran a stranger's code."""

    def __init__(self, sentinel: str) -> None:
        self.sentinel = sentinel

    def __reduce__(self):
        return os.mkdir, (self.sentinel,)


def npz(**arrays: np.ndarray) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, array in arrays.items():
            archive.writestr(f"{name}.npy", npy(array))
    return out.getvalue()


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, np.asarray(array), allow_pickle=False)
    return out.getvalue()


def npy_with_header(header: str, data: bytes, version: tuple[int, int] = (1, 0)) -> bytes:
    text = header.encode("latin-1", "replace") + b"\n"
    size = struct.pack("<H" if version == (1, 0) else "<I", len(text) % 65536)
    return b"\x93NUMPY" + bytes(version) + size + text + data


def zipped(*members: tuple[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    import warnings

    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # duplicate names are what is wanted
        with zipfile.ZipFile(out, "w", method) as archive:
            for name, data in members:
                archive.writestr(name, data)
    return out.getvalue()


def write(files: Files, root: Path) -> None:
    """Puts the folder on disk; a path that the system does not take is left out."""
    top = os.fsencode(root)
    for path, content in files.items():
        place = os.path.join(top, path)
        try:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            if content.startswith(LINK):
                os.symlink(content[len(LINK) :], place)
            elif content == PIPE:
                os.mkfifo(place)
            else:
                with open(place, "wb") as stream:
                    stream.write(content)
        except (OSError, ValueError):
            continue


# --- Which file -----------------------------------------------------------------------------------------------------


def any_file(rng: Rng, files: Files) -> bytes:
    return sorted(files)[int(rng.integers(len(files)))]


def preds_file(rng: Rng, files: Files) -> bytes:
    found = [path for path in sorted(files) if path.startswith(b"preds/")]
    return found[int(rng.integers(len(found)))] if found else any_file(rng, files)


def arrays_of(content: bytes) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return {n.removesuffix(".npy"): np.lib.format.read_array(archive.open(n)) for n in archive.namelist()}
    except Exception:  # it has been mutated before
        return {"preds": np.zeros(8)}


# --- Bytes ----------------------------------------------------------------------------------------------------------


def flip(rng: Rng, files: Files) -> None:
    path = any_file(rng, files)
    data = bytearray(files[path])
    for _ in range(int(rng.integers(1, 9))):
        if data:
            data[int(rng.integers(len(data)))] ^= int(rng.integers(1, 256))
    files[path] = bytes(data)


def truncate(rng: Rng, files: Files) -> None:
    path = any_file(rng, files)
    files[path] = files[path][: int(rng.integers(len(files[path]) + 1))]


def splice(rng: Rng, files: Files) -> None:
    path = any_file(rng, files)
    data, junk = files[path], rng.bytes(int(rng.integers(1, 64)))
    at = int(rng.integers(len(data) + 1))
    other = files[any_file(rng, files)]
    files[path] = [data[:at] + junk + data[at:], data[at:] + data[:at], data + data, data[:at] + other, junk, b""][
        int(rng.integers(6))
    ]


# --- Arrays ---------------------------------------------------------------------------------------------------------

HEADERS = (
    "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000,), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (4000000000, 4000000000), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (-8,), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (8, 0, 99999999999), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (8.0,), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (True,), }",
    "{'descr': '<f8', 'fortran_order': True, 'shape': (2, 4), }",
    "{'descr': '|O', 'fortran_order': False, 'shape': (8,), }",
    "{'descr': '<M8[s]', 'fortran_order': False, 'shape': (8,), }",
    "{'descr': '|V8', 'fortran_order': False, 'shape': (8,), }",
    "{'descr': [('a', '<f4'), ('b', '<f4')], 'fortran_order': False, 'shape': (8,), }",
    "{'descr': '<U2000000000', 'fortran_order': False, 'shape': (8,), }",
    "{'descr': '<U0', 'fortran_order': False, 'shape': (8,), }",
    "{'descr': '>c16', 'fortran_order': False, 'shape': (4,), }",
    "{'descr': '<f2', 'fortran_order': False, 'shape': (32,), }",
    "{'descr': '<f16', 'fortran_order': False, 'shape': (4,), }",
    "{'descr': '<i8', 'fortran_order': False, 'shape': (8,), 'extra': 1}",
    "{'descr': __import__('os').mkdir('SENTINEL'), 'fortran_order': False, 'shape': (8,), }",
    "{'shape': (8,)}",
    "[" * 3000,
    "{'descr': '<f8', 'fortran_order': False, 'shape': (" + "1," * 60 + "8), }",
    "-" * 9000 + "1",
    "\x00\x01\x02",
)


def header(rng: Rng, files: Files) -> None:
    text = HEADERS[int(rng.integers(len(HEADERS)))]
    version = [(1, 0), (2, 0), (3, 0), (9, 9)][int(rng.choice(4, p=[0.6, 0.2, 0.1, 0.1]))]
    array = npy_with_header(text, rng.bytes(64), version)
    method = zipfile.ZIP_DEFLATED if rng.integers(2) else zipfile.ZIP_STORED
    files[preds_file(rng, files)] = zipped(("preds.npy", array), method=method)


def values(rng: Rng, files: Files) -> None:
    path = preds_file(rng, files)
    arrays = arrays_of(files[path])
    preds = np.array(arrays.get("preds", np.zeros(8)))
    special = [np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, 0.0, -0.0, 360.0, 3.6e9]
    choice = int(rng.integers(12))
    if choice < 5 and preds.size and preds.dtype.kind == "f":
        for _ in range(int(rng.integers(1, 5))):
            preds.reshape(-1)[int(rng.integers(preds.size))] = special[int(rng.integers(len(special)))]
    elif choice == 5:
        kinds = ["f2", "f4", ">f8", "i1", "u8", "?", "c8", "U8", "S3", "i8", "g"]
        with np.errstate(all="ignore"):
            preds = preds.astype(kinds[int(rng.integers(len(kinds)))])
    elif choice == 6:
        preds = preds[: int(rng.integers(len(preds) + 1))] if preds.ndim else preds
    elif choice == 7:
        preds = preds.T if preds.ndim > 1 else preds[:, None, None]
    elif choice == 8:
        preds = np.full(preds.shape, special[int(rng.integers(len(special)))])
    elif choice == 9:
        preds = rng.integers(-5, 2**62, preds.shape)
    elif choice == 10:
        preds = np.array(rng.normal())
    else:
        preds = preds.reshape(preds.shape[0], -1)[:, :1] if preds.ndim else preds
    files[path] = npz(**{**arrays, "preds": preds})


def ids(rng: Rng, files: Files) -> None:
    path = preds_file(rng, files)
    arrays = arrays_of(files[path])
    given = np.array(arrays.get("ids", np.arange(8).astype("U8")))
    n = len(given) if given.ndim else 8
    new: object = [
        np.arange(n),
        given[::-1] if given.ndim else given,
        np.full(n, "x"),
        np.array([b"\xff\xfe"] * n),
        np.linspace(0, 1, n),
        np.array(["a\0b", "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16")] * n)[:n],
        given[: n // 2] if given.ndim else given,
        np.array([["a"] * n]),
        np.array("one"),
    ][int(rng.integers(9))]
    files[path] = npz(**{**arrays, "ids": np.asarray(new)})


def members(rng: Rng, files: Files) -> None:
    """Zip directories that lie, repeat themselves, lead elsewhere, or hold what is not the submitter's to give."""
    path = preds_file(rng, files)
    good = npy(np.array(arrays_of(files[path]).get("preds", np.zeros(8))))
    name = [
        "../preds.npy",
        "/etc/passwd.npy",
        "a/preds.npy",
        "preds.npy/",
        "preds",
        ".npy",
        "preds.npy\0.txt",
        "where.npy",
        "anchors.npy",
        "m_min.npy",
        "labels.npy",
        "x" * 60000 + ".npy",
        "ids.npy",
        "\u202e.npy",
        "C:\\preds.npy",
    ][int(rng.integers(15))]
    choice = int(rng.integers(8))
    if choice == 0:
        content = zipped(("preds.npy", good), ("preds.npy", good))
    elif choice == 1:
        content = zipped(*((f"a{i}.npy", good) for i in range(1100)))
    elif choice == 2:
        content = zipped(("preds.npy", good + bytes(1 << 22)), method=zipfile.ZIP_DEFLATED)
    elif choice == 3:
        content = zipped(("preds.npy", good), method=zipfile.ZIP_LZMA if rng.integers(2) else zipfile.ZIP_BZIP2)
    elif choice == 4:
        content = rng.bytes(50) + zipped(("preds.npy", good)) + rng.bytes(9)
    elif choice == 5:
        data = bytearray(zipped(("preds.npy", good)))
        at = data.rfind(b"PK\x01\x02")
        field = int(rng.integers(4, 46))
        data[at + field] ^= int(rng.integers(1, 256))
        content = bytes(data)
    else:
        content = zipped(("preds.npy", good), (name, good)) if choice == 6 else zipped((name, good))
    files[path] = content


def pickled(rng: Rng, files: Files, sentinel: str = "SENTINEL") -> None:
    """What would run if anything were unpickled: an object array, a bare pickle, a pickle as .npy or .npz."""
    path = preds_file(rng, files)
    bomb = pickle.dumps(Bomb(sentinel))
    out = io.BytesIO()
    np.lib.format.write_array(out, np.array([Bomb(sentinel)] * 8, dtype=object), allow_pickle=True)
    choice = int(rng.integers(5))
    if choice == 0:
        files[path] = zipped(("preds.npy", out.getvalue()))
    elif choice == 1:
        files[path] = bomb
    elif choice == 2:
        files[path.replace(b".npz", b".npy")] = out.getvalue()
        files.pop(path, None) if b".npz" in path else None
    elif choice == 3:
        files[path] = zipped(("preds.npy", bomb))
    else:
        files[path.replace(b".npz", b".pkl")] = bomb


# --- Text -----------------------------------------------------------------------------------------------------------

CSV = (
    "pred\n" + "1.5\n" * 8,
    "pred\n" + "1.5\n" * 7,
    "id,pred\n" + "x,1\n" * 8,
    "pred\n" + "nan\n" * 8,
    "pred\n1_0\n" * 4,
    "pred_0,pred_2\n1,2\n",
    'pred\n"1\n',
    "pred\r\n" + "1e999\r\n" * 8,
    "\ufeffpred\n" + "2\n" * 8,
    "pred\n" + "9" * 6000 + "\n" * 8,
    "pred\n" + "\0\n" * 8,
    "pred,where\n" + "1,1\n" * 8,
    "pred\n" + "0x10\n" * 8,
    ",".join(f"pred_{i}" for i in range(3)) + "\n" + "1,2,3\n" * 8,
    "x" * 200_000 + "\n1\n",
    "=cmd|'/c calc'!A1\n" * 9,
)
JSONL = (
    '{"pred": 1}\n' * 8,
    '{"pred": NaN}\n' * 8,
    '{"pred": "nan"}\n' * 8,
    '{"pred": [1, 2, 3]}\n' * 8,
    '{"pred": ' + "[" * 100_000 + "]" * 100_000 + "}\n",
    '{"pred": 1, "pred": 2}\n' * 8,
    '{"pred": ' + "9" * 5000 + "}\n" * 8,
    '{"pred": 1e999}\n' * 8,
    '{"pred": [1, [2]]}\n' * 8,
    '{"pred": null}\n' * 8,
    '{"id": {"a": 1}, "pred": 1}\n' * 8,
    '{"pred": true}\n' * 8,
    '{"pred": "\\ud800"}\n' * 8,
    '{"id": "\\ud800", "pred": 1}\n' * 8,
    "[1]\n" * 8,
    '{"__class__": "os.system", "pred": 1}\n' * 8,
)


def text(rng: Rng, files: Files) -> None:
    path = preds_file(rng, files)
    files.pop(path)
    stem = path.rsplit(b".", 1)[0]
    if rng.integers(2):
        files[stem + b".csv"] = CSV[int(rng.integers(len(CSV)))].encode("utf-8", "surrogatepass")
    else:
        files[stem + b".jsonl"] = JSONL[int(rng.integers(len(JSONL)))].encode("utf-8", "surrogatepass")


TOML = (
    "",
    'name = ""\n',
    "name = 1\n",
    'name = "a"\nname = "b"\n',
    'name = "a"\nm_min = 0.0\n',
    'name = "a"\n[x]\nanchors = 1\n',
    'name = "' + "x" * 300 + '"\n',
    'name = "a\\u0000b"\n',
    'name = "<script>alert(1)</script>"\nmodel = "\\u202e"\n',
    'name = "a"\nnotes = """' + "n" * 100_000 + '"""\n',
    'name = "a"\nx = ' + "[" * 5000 + "]" * 5000 + "\n",
    'name = "a"\nx = ' + "9" * 10_000 + "\n",
    "name = 1979-05-27T07:32:00Z\n",
    "name = inf\n",
    'name = "a"\nmodel = ["b"]\n',
    'name = "\ud800"\n',
    'name = "a"\n' + "".join(f"[t.{'a.' * i}b]\n" for i in range(50)),
    "\ufeffname = 'bom'\n",
    "name = '=cmd()'\n",
    "\0",
    "[[name]]\n",
)


def description(rng: Rng, files: Files) -> None:
    files[b"submission.toml"] = TOML[int(rng.integers(len(TOML)))].encode("utf-8", "surrogatepass")


# --- Names ----------------------------------------------------------------------------------------------------------

NAMES = (
    b"..npz",
    b"...npz",
    b"env-a.NPZ",
    b"env-a .npz",
    b"\xff\xfe.npz",
    b"a\nb.npz",
    b"-rf.npz",
    b"env-a.npz.npz",
    "ünïcødé-\u202e.npz".encode(),
    b"x" * 250 + b".npz",
    b"real.npz",
    b"env-a.h5",
    b"env-a",
    b".npz",
    b"a\\b.npz",
    b"$(touch x).npz",
    b"env-a.npz/env-a.npz",
    b"CON.npz",
)


def rename(rng: Rng, files: Files) -> None:
    path = preds_file(rng, files)
    folder = path.rsplit(b"/", 1)[0]
    name = NAMES[int(rng.integers(len(NAMES)))]
    content = files[path]
    if rng.integers(2):
        files.pop(path)
    target = [
        folder + b"/" + name,
        b"preds/" + name,
        name,
        b"preds/" + name + b"/env-a.npz",
        b"/".join([b"d"] * int(rng.integers(3, 40))) + b"/" + name,
        b"preds/" + b"/".join([b"x" * 200] * int(rng.integers(3, 18))) + b"/" + name,
        b"anchors/" + name,
        b"release.json",
    ][int(rng.integers(8))]
    files[target] = content


def remove(rng: Rng, files: Files) -> None:
    files.pop(any_file(rng, files))
    if not files:
        files[b"x"] = b""


def links(rng: Rng, files: Files) -> None:
    path = any_file(rng, files)
    target = [b"/etc/passwd", b"../../secret.npz", b".", b"submission.toml", b"nowhere", b"/", b"/dev/zero"]
    where = [path, b"preds/E-LOC-AOA/extra.npz", b"more", b"preds/more"][int(rng.integers(4))]
    files.pop(where, None)
    files[where] = PIPE if rng.integers(5) == 0 else LINK + target[int(rng.integers(len(target)))]


MUTATIONS: tuple[Callable[..., None], ...] = (
    flip,
    flip,
    truncate,
    splice,
    header,
    values,
    values,
    ids,
    members,
    pickled,
    text,
    description,
    rename,
    remove,
    links,
)


def mutate(rng: Rng, files: Files, sentinel: str) -> list[str]:
    """One to three mutations in place; their names."""
    names = []
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        mutation = MUTATIONS[int(rng.integers(len(MUTATIONS)))]
        if not files:
            break
        try:
            with np.errstate(all="ignore"):
                mutation(rng, files, sentinel) if mutation is pickled else mutation(rng, files)
            names.append(mutation.__name__)
        except (ValueError, TypeError, IndexError):  # an array mutated before can be too odd to mutate again
            names.append(f"no {mutation.__name__}")
    for path, content in files.items():
        if b"SENTINEL" in content:
            files[path] = content.replace(b"SENTINEL", os.fsencode(sentinel)[:8].ljust(8, b"x"))
    return names
