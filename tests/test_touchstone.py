"""Touchstone files: cases read off by hand, files generated in every dialect, scikit-rf run live where it is right."""

from __future__ import annotations

import dataclasses
import io
import json
import random
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emma_jax.errors import EvaluationError, FileFormatError, ShapeError
from emma_jax.io.touchstone import Touchstone, read_touchstone, write_touchstone

CASES = [
    json.loads(line) for line in (Path(__file__).parent / "data" / "touchstone_cases.jsonl").read_text().splitlines()
]


def read(text: str, name: str) -> Touchstone:
    return read_touchstone(text.encode(), name=name)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["id"])
@pytest.mark.parametrize("from_disk", [False, True], ids=["bytes", "path"])
def test_published_cases(case: dict, from_disk: bool, tmp_path: Path) -> None:
    """Each case gives the values read off by hand, to its tolerance, or the typed error it asks for."""
    files = {k: v.encode() for k, v in case["input"].get("files", {}).items()}
    files |= {k: bytes.fromhex(v) for k, v in case["input"].get("files_hex", {}).items()}
    ((name, content),) = files.items()
    (tmp_path / name).write_bytes(content)
    arguments = (tmp_path / name,) if from_disk else (content,)
    keywords = {} if from_disk else {"name": name}
    if "error" in case["expect"]:
        with pytest.raises(FileFormatError, match=re.escape(name)):
            read_touchstone(*arguments, **keywords)
        return
    got = read_touchstone(*arguments, **keywords)
    np.testing.assert_allclose(got.frequency_hz, case["expect"]["f_hz"], rtol=0, atol=case["tol"])
    expected = np.array(case["expect"]["s"]["re"]) + 1j * np.array(case["expect"]["s"]["im"])
    np.testing.assert_allclose(got.s, expected, rtol=0, atol=case["tol"])


def test_option_line_defaults_and_references() -> None:
    """GHz S MA R 50 where unsaid, one resistance for all ports or one per port (oracle: the specification)."""
    bare = read("#\n1 0.5 180\n", "a.s1p")
    assert bare.frequency_hz.tolist() == [1e9] and bare.z0.tolist() == [50.0] and bare.version == "1.0"
    np.testing.assert_allclose(bare.s, [[[-0.5]]], atol=1e-15)
    assert read("# R 75 hZ db\n1 0 0\n", "a.s1p").z0.tolist() == [75.0]
    per_port = read("# GHz S RI R 50 75\n1 1 0 2 0 3 0 4 0\n", "a.s2p")
    assert per_port.z0.tolist() == [50.0, 75.0] and per_port.version == "1.1"
    assert per_port.s[0].real.tolist() == [[1, 3], [2, 4]]


def test_second_option_line_is_ignored() -> None:
    """The first option line counts, as the specification says."""
    got = read("# MHz S RI R 75\n# GHz S MA R 50\n1 .5 0\n", "a.s1p")
    assert got.frequency_hz.tolist() == [1e6] and got.z0.tolist() == [75.0]


@pytest.mark.parametrize(
    ("matrix_format", "body"),
    [("Lower", "1 11 0\n 21 0 22 0\n 31 0 32 0 33 0"), ("upper", "1 11 0 21 0 31 0\n 22 0 32 0 33 0")],
)
def test_triangular_matrices_are_mirrored(matrix_format: str, body: str) -> None:
    """A triangle gives the full symmetric matrix, for three ports and for two (values by hand)."""
    head = "[Version] 2.0\n# GHz S RI\n[Number of Ports] {n}\n[Matrix Format] " + matrix_format
    three = read(f"{head.format(n=3)}\n[Network Data]\n{body}\n[End]\n", "a.ts")
    assert three.s[0].real.tolist() == [[11, 21, 31], [21, 22, 32], [31, 32, 33]]
    two = read(f"{head.format(n=2)}\n[Network Data]\n1 11 0\n 21 0 22 0\n[End]\n", "a.s2p")
    assert two.s[0].real.tolist() == [[11, 21], [21, 22]]


@pytest.mark.parametrize(("order", "s21"), [("12_21", 3.0), ("21_12", 2.0)])
def test_two_port_data_order(order: str, s21: float) -> None:
    """[Two-Port Data Order] says which of the middle two entries is S21."""
    head = f"[Version] 2.1\n# GHz S RI\n[Number of Ports] 2\n[Two-Port Data Order] {order}\n"
    got = read(f"{head}[Network Data]\n1 1 0 2 0 3 0 4 0\n[End]", "a.s2p")
    assert got.s[0, 1, 0] == s21 and got.s[0, 0, 1] == 5 - s21 and got.version == "2.1"


def test_version_2_skips_information_noise_and_everything_after_end() -> None:
    """Blocks that carry no network data leave no trace; [Reference] may be wrapped and overrides R."""
    got = read(
        "! c\n[Version] 2.0\n#\n[Number of Ports] 2\n[Two-Port Data Order] 21_12\n[Number of Frequencies] 2\n"
        "[Number of Noise Frequencies] 2\n[Reference] 50 ! first\n 25.0\n[Begin Information]\n[Anything] 1\n9 9 9\n"
        "[End Information]\n[Network Data]\n2 .95 -26 3.57 157 .04 76 .66 -14\n22 .6 -144 1.3 40 .14 40 .56 -85\n"
        "[Noise Data]\n4 .7 .64 69 19\n18 2.7 .46 -33 20\n[End]\n 1 2 3 no numbers\n",
        "a.ts",
    )
    assert got.frequency_hz.tolist() == [2e9, 22e9] and got.z0.tolist() == [50.0, 25.0]
    np.testing.assert_allclose(got.s[0, 1, 0], 3.57 * np.exp(1j * np.deg2rad(157)), rtol=1e-15)
    assert got.comments[:2] == ("c", "first")


@pytest.mark.parametrize("first_noise", ["0.5", "1", "2"])
@pytest.mark.parametrize("name", ["a.s2p", "a.txt"])
def test_version_1_noise_block_is_skipped(first_noise: str, name: str) -> None:
    """A two-port's noise block starts at a frequency up to the last one of the data, and is not network data."""
    network = "# GHz S RI R 50\n1 .1 0 .2 0 .3 0 .4 0\n2 .1 0 .2 0 .3 0 .4 0\n"
    got = read(f"{network}! noise\n{first_noise} 1 .5 10 .2\n3 1 .5 10 .2\n", name)
    assert got.frequency_hz.tolist() == [1e9, 2e9] and got.s.shape == (2, 2, 2)


def test_unordered_two_port_is_no_noise_block() -> None:
    """Decreasing frequencies in network data stay an error even where the count of numbers is a multiple of five."""
    rows = "".join(f"{f} .1 0 .2 0 .3 0 .4 0\n" for f in (9, 1, 2, 3, 4, 5))
    with pytest.raises(FileFormatError, match=r"a\.s2p.*line 3.*increasing"):
        read(f"# GHz S RI R 50\n{rows}", "a.s2p")


def test_frequencies_are_correctly_rounded() -> None:
    """75.175 GHz is the float 75.175e9 exactly, so grids written in different units meet bit for bit."""
    texts = ["# GHz RI\n75.175 0 0", "# MHz RI\n75175 0 0", "# kHz RI\n7.5175e7 0 0", "# Hz RI\n75175000000 0 0"]
    assert {read(t, "a.s1p").frequency_hz[0] for t in texts} == {75175000000.0}


def test_minus_infinity_db_is_an_exact_zero() -> None:
    """-inf dB is zero magnitude; an infinity anywhere else is no value."""
    assert read("# GHz DB\n1 -inf 30\n", "a.s1p").s[0, 0, 0] == 0
    for text in ("# GHz RI\n1 -inf 0\n", "# GHz MA\n1 -inf 0\n", "# GHz DB\n1 0 -inf\n", "# GHz DB\n-inf 0 0\n"):
        with pytest.raises(FileFormatError, match="line 2"):
            read(text, "a.s1p")


def test_hfss_port_impedances_are_reported_not_used() -> None:
    """One comment per frequency gives port_impedance, vector or matrix, wrapped or not; z0 stays the option line's."""
    text = "# GHz S RI R 50\n"
    for f in (1, 2):
        text += f"{f} 1 0 2 0 3 0 4 0\n! Gamma 0 1\n! Port Impedance{f} 0\n! 60 -1\n"
    got = read(text, "a.s2p")
    assert got.port_impedance is not None and got.z0.tolist() == [50.0, 50.0]
    assert got.port_impedance.tolist() == [[1, 60 - 1j], [2, 60 - 1j]]
    matrix = "! Port Impedance 40 1 0 0 0 0 60 -1\n"
    got = read(f"# GHz S RI R 50\n1 1 0 2 0 3 0 4 0\n{matrix}", "a.s2p")
    assert got.port_impedance is not None and got.port_impedance.tolist() == [[40 + 1j, 60 - 1j]]
    assert read(f"# GHz RI\n{matrix}1 1 0\n2 1 0\n", "a.s1p").port_impedance is None


V2 = "[Version] 2.0\n# GHz S RI R 50\n[Number of Ports] 2\n[Two-Port Data Order] 12_21\n[Number of Frequencies] 1\n"
POINT = "1 1 0 2 0 3 0 4 0\n"
BAD = {
    "empty": ("", "option line"),
    "only comments": ("! nothing\n", "option line"),
    "no data": ("# GHz S RI R 50\n", "no network data"),
    "data before options": ("! c\n1 0 0\n# GHz S RI\n", "line 2: data before the option line"),
    "unknown option": ("# GHz S RI RS11r\n1 0 0\n", "line 1: unknown field 'rs11r'"),
    "two units": ("# GHz MHz\n1 0 0\n", "line 1.*unit twice"),
    "two formats": ("# RI MA\n1 0 0\n", "line 1.*format twice"),
    "R without value": ("# GHz R\n1 0 0\n", "line 1.*R in the option line"),
    "R zero": ("# GHz R 0\n1 0 0\n", "not a positive"),
    "R complex": ("# GHz R (50+1j)\n1 0 0\n", "R in the option line"),
    "too many R": ("# GHz RI R 50 60\n1 0 0\n", "2 reference resistances for 1 ports"),
    "word": ("# GHz RI\n1 0 O\n", "line 2: not a number"),
    "nan": ("# GHz RI\n1 nan 0\n", "line 2: not a number"),
    "underscore": ("# GHz RI\n1_0 0 0\n", "line 2: not a number"),
    "overflow": ("# GHz DB\n1 9999 0\n", "line 2.*not finite"),
    "truncated point": ("# GHz RI\n1 0 0\n2 0\n", "line 3: the file ends within"),
    "missing number": ("# GHz RI\n1 0 0\n2 0\n3 0 0\n", "line 4: the frequency point of line 3 has 5 numbers, not 3"),
    "repeated frequency": ("# GHz RI\n1 0 0\n1 0 0\n", "line 3.*increasing"),
    "negative frequency": ("# GHz RI\n-1 0 0\n", "line 2.*non-negative"),
    "wrong ports": ("# GHz RI\n1 0 0 0 0 0 0 0 0\n", "the extension says 1 ports"),
    "nul byte": ("# GHz RI\n1 0 0\0\n", "NUL"),
    "keyword in version 1": ("# GHz RI\n[Matrix Format] Full\n1 0 0\n", r"line 2.*\[Version\]"),
    "version 3": ("[Version] 3.0\n# GHz\n1 0 0\n", "unsupported version '3.0'"),
}
BAD_V2 = {
    "no two-port order": (
        V2.replace("[Two-Port Data Order] 12_21\n", "") + f"[Network Data]\n{POINT}[End]",
        "Two-Port",
    ),
    "bad order": (V2.replace("12_21", "11_22") + f"[Network Data]\n{POINT}[End]", "line 4.*12_21, 21_12"),
    "fewer points": (V2.replace("cies] 1", "cies] 2") + f"[Network Data]\n{POINT}[End]", "is 2, but 1 are there"),
    "neither count nor end": (V2.replace("[Number of Frequencies] 1\n", "") + f"[Network Data]\n{POINT}", "truncated"),
    "no ports": (V2.replace("[Number of Ports] 2\n", "") + f"[Network Data]\n{POINT}[End]", "Number of Ports"),
    "no network data": (V2 + "[End]", "no network data"),
    "data too early": (V2 + POINT, r"line 6: data outside \[Network Data\]"),
    "short reference": (V2 + f"[Reference] 50\n[Network Data]\n{POINT}[End]", "1 values for 2 ports"),
    "bad reference": (V2 + f"[Reference] 50 x\n[Network Data]\n{POINT}[End]", "'x' is not a positive number"),
    "mixed mode": (V2 + f"[Mixed-Mode Order] D1,2 C1,2\n[Network Data]\n{POINT}[End]", "line 6: mixed-mode"),
    "unknown keyword": (V2 + f"[Colour] red\n[Network Data]\n{POINT}[End]", r"line 6: unknown keyword \[colour\]"),
    "twice": (V2 + f"[Number of Ports] 2\n[Network Data]\n{POINT}[End]", "second time"),
    "open information": (V2 + f"[Begin Information]\n[Network Data]\n{POINT}[End]", "line 6.*End Information"),
    "open bracket": (V2 + f"[Network Data\n{POINT}", "closing bracket"),
    "missing noise": (
        V2 + f"[Number of Noise Frequencies] 2\n[Network Data]\n{POINT}[Noise Data]\n1 1 1 1 1\n[End]",
        "need 10 numbers, 5 are there",
    ),
    "zero ports": (V2.replace("Ports] 2", "Ports] 0") + f"[Network Data]\n{POINT}[End]", "positive integer"),
    "late version": ("# GHz RI\n[Version] 2.0\n1 0 0\n", r"\[Version\] has to precede"),
}


@pytest.mark.parametrize("key", BAD)
def test_bad_version_1_files_name_file_and_line(key: str) -> None:
    """Every fault of a version 1 file is a FileFormatError with file, line and what is wrong."""
    text, message = BAD[key]
    with pytest.raises(FileFormatError, match=f"bad.s1p: .*{message}") as caught:
        read(text, "bad.s1p")
    assert caught.value.argument == "bad.s1p"


@pytest.mark.parametrize("key", BAD_V2)
def test_bad_version_2_files_name_file_and_line(key: str) -> None:
    """Every fault of a version 2 file is a FileFormatError with file, line and what is wrong."""
    text, message = BAD_V2[key]
    with pytest.raises(FileFormatError, match=f"bad.ts: .*{message}"):
        read(text, "bad.ts")


def test_extension_contradictions_are_errors(tmp_path: Path) -> None:
    """The extension may not contradict the content; missing and oversized files are errors too."""
    good = V2 + f"[Network Data]\n{POINT}[End]"
    assert read(good, "a.s2p").n_ports == read(good, "a.ts").n_ports == read(good, "").n_ports == 2
    for text, name, message in ((good, "a.s3p", "says 3"), ("# GHz RI\n1 0 0\n", "a.z1p", "says Z")):
        with pytest.raises(FileFormatError, match=message):
            read(text, name)
    with pytest.raises(FileNotFoundError):
        read_touchstone(tmp_path / "none.s1p")
    with pytest.raises(FileFormatError, match="more than the limit"):
        read_touchstone(b"# GHz RI\n1 0 0\n", name="a.s1p", max_bytes=5)


def test_single_ended_mixed_mode_order_is_accepted() -> None:
    """[Mixed-Mode Order] S1 S2 says nothing new: all ports single-ended, in order."""
    assert read(V2 + f"[Mixed-Mode Order] S1\n s2\n[Network Data]\n{POINT}[End]", "a.ts").s[0, 0, 1] == 2


def test_content_is_frozen() -> None:
    """Neither fields nor arrays of a Touchstone can be changed in place."""
    got = read("# GHz RI\n1 0 0\n", "a.s1p")
    with pytest.raises(dataclasses.FrozenInstanceError):
        got.version = "2.0"  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        got.s[0] = 1


# --- generated files -------------------------------------------------------------------------------------------------

finite = st.floats(-2.0, 2.0, allow_nan=False)


@st.composite
def networks(draw: st.DrawFn, max_ports: int = 5) -> tuple[np.ndarray, np.ndarray, list[float]]:
    n = draw(st.integers(1, max_ports))
    f = sorted(draw(st.lists(st.floats(0, 2e11, allow_nan=False), min_size=1, max_size=4, unique=True)))
    parts = draw(st.lists(finite, min_size=2 * len(f) * n * n, max_size=2 * len(f) * n * n))
    s = np.array(parts).reshape(2, len(f), n, n)
    z0 = draw(st.lists(st.floats(0.01, 1e4), min_size=n, max_size=n))
    return np.array(f), s[0] + 1j * s[1], z0


@settings(max_examples=60, deadline=None)
@given(
    networks(),
    st.sampled_from(["RI", "MA", "DB"]),
    st.sampled_from(["Hz", "kHz", "MHz", "GHz"]),
    st.sampled_from(["1.0", "1.1", "2.0"]),
)
def test_write_then_read(
    tmp_path_factory: pytest.TempPathFactory,
    network: tuple[np.ndarray, np.ndarray, list[float]],
    kind: str,
    unit: str,
    version: str,
) -> None:
    """What is written reads back: frequencies and RI entries bit for bit, MA and DB to 1e-13 relative."""
    f, s, z0 = network
    path = tmp_path_factory.mktemp("ts") / f"x.s{s.shape[-1]}p"
    if version == "1.0":
        z0 = [z0[0]]
    write_touchstone(path, f, s, z0=z0, format=kind, unit=unit, version=version, comments=["one", "two\nthree"])
    got = read_touchstone(path)
    assert got.frequency_hz.tolist() == f.tolist()
    assert got.z0.tolist() == np.broadcast_to(z0, s.shape[-1:]).tolist()
    assert got.comments[:3] == ("one", "two", "three")
    if kind == "RI":
        assert got.s.tolist() == s.tolist()
    else:
        # Half an ulp of the dB value is 0.115 ulp(dB) relative in the magnitude: 1e-13 covers 1e-30 (-600 dB) and up.
        np.testing.assert_allclose(got.s, s, rtol=1e-13, atol=1e-30)


def _jitter(rng: random.Random, text: str) -> str:
    return "".join(rng.choice((c.upper(), c.lower())) for c in text)


def generated_file(seed: int) -> tuple[str, str, np.ndarray, np.ndarray, np.ndarray, bool]:
    """A random valid file with random formatting: name, text, frequencies, S, z0, and whether scikit-rf reads it.

    The writer is apart from `write_touchstone` on purpose: it draws option order, case, spacing, comments, line ends
    and wrapping, which no writer does.
    """
    rng = random.Random(seed)
    n, points = rng.choice((1, 2, 2, 3, 4, 6)), rng.randint(1, 4)
    version2 = rng.random() < 0.5
    fmt, unit = rng.choice(("RI", "MA", "DB")), rng.choice(("Hz", "kHz", "MHz", "GHz"))
    scale = {"Hz": 1.0, "kHz": 1e3, "MHz": 1e6, "GHz": 1e9}[unit]
    f_text = [f"{k + 1}.{rng.randint(0, 999):03d}" for k in range(points)]
    triangle = rng.choice(("full", "lower", "upper")) if version2 else "full"
    order = rng.choice(("12_21", "21_12")) if version2 else "21_12"
    a = [[[round(rng.uniform(0.01, 1), 6) for _ in range(n)] for _ in range(n)] for _ in range(points)]
    b = [[[round(rng.uniform(-179, 179), 4) for _ in range(n)] for _ in range(n)] for _ in range(points)]
    if triangle != "full":
        a = [[[p[max(i, j)][min(i, j)] for j in range(n)] for i in range(n)] for p in a]
        b = [[[p[max(i, j)][min(i, j)] for j in range(n)] for i in range(n)] for p in b]
    x, y = np.array(a), np.array(b)
    s = x + 1j * y if fmt == "RI" else (x if fmt == "MA" else 10 ** (x / 20)) * np.exp(1j * np.pi / 180 * y)
    per_port = rng.random() < 0.3
    z0 = [round(rng.uniform(1, 100), 2) for _ in range(n)] if per_port else [float(rng.randint(1, 99))] * n

    fields = [_jitter(rng, unit), _jitter(rng, "s"), _jitter(rng, fmt)]
    references = [repr(z) for z in z0] if per_port and not version2 else [repr(z0[0])]
    fields.append(_jitter(rng, "r") + " " + " ".join(references))
    shuffled = rng.random() < 0.3
    if shuffled:
        rng.shuffle(fields)
    gap = lambda: rng.choice((" ", "  ", "\t", " \t "))  # noqa: E731
    lines = ["! 1 2 3 port header"] * rng.randint(0, 2)
    if version2:
        lines.append(f"[Version]{gap()}2.0")
    lines.append(rng.choice(("", " ", "  ")) + "#" + rng.choice(("", " ")) + gap().join(fields))
    if version2:
        head = [f"[Number of Frequencies] {points}", f"[Matrix Format] {_jitter(rng, triangle)}"]
        if n == 2:
            head.append(f"[Two-Port Data Order] {order}")
        if per_port:
            text = [repr(z) for z in z0]
            cut = rng.randint(0, n)
            head.append("[Reference] " + " ".join(text[:cut]) + "\n" + " ".join(text[cut:]))
        rng.shuffle(head)
        lines += [f"[Number of Ports] {n}", *head, _jitter(rng, "[Network Data]")]
    for k in range(points):
        entries = [
            (i, j)
            for i in range(n)
            for j in range(n)
            if triangle == "full" or (j <= i if triangle == "lower" else j >= i)
        ]
        if n == 2 and order == "21_12" and triangle == "full":
            entries = [(0, 0), (1, 0), (0, 1), (1, 1)]
        numbers = [repr(v) for i, j in entries for v in (a[k][i][j], b[k][i][j])]
        row = [f_text[k]]
        while numbers:
            take = rng.choice((2, 4, 6, 8, len(numbers)))
            row, numbers = row + numbers[:take], numbers[take:]
            end = rng.choice(("", "", " ! note 4 5"))
            lines.append(rng.choice(("", " ")) + gap().join(row) + end)
            row = []
            if rng.random() < 0.15:
                lines.append(rng.choice(("! between", "", "   ")))
    if version2:
        lines.append("[End]")
    text = rng.choice(("\n", "\r\n")).join(lines) + rng.choice(("", "\n"))
    skrf_reads = not shuffled and not (n == 2 and triangle != "full")
    frequencies = np.array([float(t) for t in f_text]) * scale
    return rng.choice((f"x.s{n}p", f"X.S{n}P")), text, frequencies, s, np.array(z0), skrf_reads


@pytest.mark.parametrize("block", range(4))
def test_generated_files_against_what_was_written_and_scikit_rf(block: int) -> None:
    """400 files in random dialects: the values written, to 1e-14, and scikit-rf's where it reads the dialect."""
    skrf = pytest.importorskip("skrf")
    compared = 0
    for seed in range(100 * block, 100 * block + 100):
        name, text, f, s, z0, skrf_reads = generated_file(seed)
        got = read(text, name)
        np.testing.assert_allclose(got.frequency_hz, f, rtol=1e-15, err_msg=text)
        np.testing.assert_allclose(got.s, s, rtol=1e-14, atol=1e-16, err_msg=text)
        assert got.z0.tolist() == z0.tolist()
        if skrf_reads:
            stream = io.StringIO(text.replace("\r\n", "\n"))
            stream.name = name
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                peer = skrf.io.Touchstone(stream)
            np.testing.assert_allclose(got.frequency_hz, peer.f, rtol=1e-15)
            np.testing.assert_allclose(got.s, peer.s, rtol=1e-14, atol=1e-16)
            np.testing.assert_allclose(got.z0[None], np.atleast_2d(peer.z0)[:1].real)
            compared += 1
    assert compared > 30


def test_port_count_is_inferred_without_extension() -> None:
    """The data alone gives the port count of a version 1 file, where the extension is silent."""
    inferred = 0
    for seed in range(300):
        name, text, *_ = generated_file(seed)
        if "[Version]" in text:
            continue
        n = int(name.lower().rpartition(".s")[2][:-1])
        try:
            got = read(text, "x.dat")
        except FileFormatError as error:
            assert "data fits" in str(error) and str(n) in str(error)
            continue
        assert got.n_ports == n
        inferred += 1
    assert inferred > 100


def test_every_truncation_of_a_version_2_file_is_an_error() -> None:
    """Cut anywhere before the last number ends, a version 2 file never reads as a shorter one."""
    text = V2.replace("cies] 1", "cies] 2") + f"[Network Data]\n{POINT}2 1 0 2 0 3 0 4 0.5\n[End]\n"
    whole = text.index("0.5") + 1
    for cut in range(whole):
        with pytest.raises(FileFormatError):
            read(text[:cut], "a.ts")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_mutated_files_read_or_raise_typed_errors(data: st.DataObject) -> None:
    """Bytes changed at random give finite, well-shaped content or a FileFormatError, and nothing else."""
    name, text, *_ = generated_file(data.draw(st.integers(0, 500)))
    raw = bytearray(text.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        match data.draw(st.integers(0, 2)):
            case 0:
                raw[at] = data.draw(st.integers(0, 255))
            case 1:
                del raw[at : at + data.draw(st.integers(1, 9))]
            case _:
                raw[at:at] = data.draw(st.sampled_from([b"#", b"[", b"!", b"\n", b" ", b"1e999", b"-inf", b"\xff"]))
        if not raw:
            break
    try:
        got = read_touchstone(bytes(raw), name=name)
    except FileFormatError:
        return
    assert np.isfinite(got.s).all() and got.s.shape == (got.frequency_hz.size, got.z0.size, got.z0.size)
    assert (np.diff(got.frequency_hz) > 0).all() and (got.z0 > 0).all()


@pytest.mark.parametrize(
    "name", ["ring slot.s2p", "ring slot measured.s1p", "tee.s3p", "ntwk1.s2p", "open.s2p", "ind.s2p"]
)
def test_files_that_ship_with_scikit_rf(name: str) -> None:
    """Real files of analysers and simulators read as scikit-rf reads them."""
    skrf = pytest.importorskip("skrf")
    path = Path(skrf.__file__).parent / "data" / name
    got, peer = read_touchstone(path), skrf.Network(str(path))
    np.testing.assert_allclose(got.frequency_hz, peer.f, rtol=1e-15)
    np.testing.assert_allclose(got.s, peer.s, rtol=1e-14, atol=1e-17)
    np.testing.assert_allclose(np.broadcast_to(got.z0, peer.z0.shape), peer.z0.real)


def test_writer_refuses_what_the_format_cannot_say(tmp_path: Path) -> None:
    """Wrong shapes, options, extensions and values raise before a file exists."""
    path, f, s = tmp_path / "x.s2p", [1e9, 2e9], np.zeros((2, 2, 2))
    for keywords in ({"format": "XY"}, {"unit": "THz"}, {"version": "3"}, {"z0": [1, 2, 3]}, {"z0": -1.0}):
        with pytest.raises(FileFormatError):
            write_touchstone(path, f, s, **keywords)
    with pytest.raises(FileFormatError, match=r"\.s2p"):
        write_touchstone(tmp_path / "x.s3p", f, s)
    with pytest.raises(FileFormatError, match="increasing"):
        write_touchstone(path, f[::-1], s)
    with pytest.raises(ShapeError):
        write_touchstone(path, f, s[:1])
    assert not list(tmp_path.iterdir())
    assert issubclass(FileFormatError, EvaluationError)


def test_scikit_rf_reads_what_is_written(tmp_path: Path) -> None:
    """Files of `write_touchstone` are standard: scikit-rf reads the same values, in each version and format."""
    skrf = pytest.importorskip("skrf")
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 5):
        s = rng.normal(size=(3, n, n)) + 1j * rng.normal(size=(3, n, n))
        for version in ("1.0", "1.1", "2.0"):
            for kind in ("RI", "MA", "DB"):
                path = tmp_path / f"{version}{kind}.s{n}p"
                write_touchstone(path, [1e9, 2e9, 3.3e9], s, z0=75.0, format=kind, unit="MHz", version=version)
                peer = skrf.Network(str(path))
                np.testing.assert_allclose(peer.s, s, rtol=1e-13)
                np.testing.assert_allclose(peer.f, [1e9, 2e9, 3.3e9], rtol=1e-15)
                assert (peer.z0 == 75).all()
