"""What is published: a wheel and a source archive that install and run in a fresh environment, with one version."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
import tomllib
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import emma_jax

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_one_version() -> None:
    """Claim: the version stands in one place, and what repeats it agrees: the citation file, and the installed
    metadata where the package is installed."""
    assert PROJECT["project"]["dynamic"] == ["version"] and "version" not in PROJECT["project"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "emma_jax/_version.py"
    text = (ROOT / "emma_jax" / "_version.py").read_text()
    assert re.findall(r'"([^"]+)"', text) == [emma_jax.__version__]
    assert re.findall(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.M) == [emma_jax.__version__]


def test_metadata_is_complete() -> None:
    """Claim: name, description, licence, Python bound, classifiers and an entry point are there, no extra that a page
    names is missing, and every dependency has a lower bound."""
    project = PROJECT["project"]
    assert project["license"] == "Apache-2.0" and all((ROOT / p).is_file() for p in project["license-files"])
    assert project["requires-python"] == ">=3.11" and project["scripts"] == {"emma-jax": "emma_jax.cli:main"}
    assert len(project["description"]) > 40 and project["keywords"] and project["classifiers"]
    extras = project["optional-dependencies"]
    pages = "".join(
        p.read_text() for p in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"))
    )
    named = {name for group in re.findall(r"'(?:\.|emma-jax)\[([\w,]+)\]'", pages) for name in group.split(",")}
    assert {"em", "report", "parquet", "test", "parity"} | named <= set(extras)
    for group in (project["dependencies"], *extras.values()):
        for requirement in group:
            assert re.search(r">=|==|\[", requirement), requirement
    core = {re.split(r"[>=<\[]", r)[0] for r in project["dependencies"]}
    assert core >= {"jax", "jaxlib", "numpy", "nltk", "optax", "typer", "rich"}


def test_oldest_jax_is_the_bound() -> None:
    """Claim: the version that CI tests as the oldest is the lower bound that pip enforces."""
    pinned = dict(line.split("==") for line in (ROOT / ".ci" / "oldest.txt").read_text().split())
    bounds = dict(r.split(">=") for r in PROJECT["project"]["dependencies"] if r.startswith("jax"))
    assert pinned == bounds


def test_contributing_has_the_commands_that_work() -> None:
    """Claim: the test command there is the README's, and the script it names exists and can be run."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    command = re.search(r"<!-- test-command -->\n```bash\n(.+)\n```", (ROOT / "README.md").read_text())
    assert command and command[1] in text
    assert ".ci/run" in text and os.access(ROOT / ".ci" / "run", os.X_OK)
    assert (ROOT / "docs" / "layers.svg").is_file() and "docs/layers.svg" in text


@pytest.mark.slow
def test_wheel_and_sdist_install_and_run(tmp_path: Path) -> None:
    """Claim: both archives build, hold what they must, and the wheel made from the source archive runs the demo in a
    fresh environment, away from the working tree."""
    fresh = tmp_path / "venv"
    venv.create(fresh, with_pip=True)
    python = str(fresh / "bin" / "python")
    got = subprocess.run([python, "-m", "pip", "install", "-q", "build"], cwd=tmp_path, capture_output=True, text=True)
    if got.returncode:
        pytest.skip(f"no package index to build and install from: {got.stderr[-200:]}")
    # The wheel is made from the source archive, as `python -m build` does.
    _run([python, "-m", "build", "--outdir", str(tmp_path), str(ROOT)], tmp_path)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    assert {"emma_jax", "tests", "docs", "README.md", "LICENSE", "pyproject.toml"} <= {p.name for p in source.iterdir()}
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as zipped:
        names = zipped.namelist()
        metadata = Parser().parsestr(zipped.read(next(n for n in names if n.endswith("/METADATA"))).decode())
    inside = {n.split("/")[0] for n in names}
    assert inside == {"emma_jax", f"emma_jax-{emma_jax.__version__}.dist-info"}
    assert {"emma_jax/py.typed", "emma_jax/releases/v0.1-proposed/release.json"} <= set(names)
    assert any(n.startswith("emma_jax/text/data/wordnet30") for n in names)
    here = {p.relative_to(ROOT).as_posix() for p in (ROOT / "emma_jax").rglob("*.py")}
    assert here <= set(names)
    assert metadata["Version"] == emma_jax.__version__ and metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11" and len(metadata.get_payload()) > 2000

    _run([python, "-m", "pip", "install", "-q", str(wheel)], tmp_path)
    out = _run([str(fresh / "bin" / "emma-jax"), "demo"], tmp_path)
    assert "OOD-avg" in out
    where = _run([python, "-c", "import emma_jax; print(emma_jax.__file__, emma_jax.__version__)"], tmp_path)
    assert str(fresh) in where and emma_jax.__version__ in where


def _run(command: list[str], folder: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "XLA_FLAGS")}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
