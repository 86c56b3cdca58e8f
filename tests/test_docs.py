"""The documentation is true: its code runs and prints what the pages say, its reference is the registry's, its formulas
can be drawn, its links lead somewhere, and the site asks nothing of the network."""

from __future__ import annotations

import html.parser
import importlib.util
import inspect
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from emma_jax import metrics
from emma_jax.tasks import list_tasks

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# The blocks of docs/training.md run in tests/test_examples.py.
PAGES = sorted(p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*.md") if p.name != "training.md")


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


execute = _module("execute")
gen_reference = _module("gen_reference")
METRICS = gen_reference.METRICS


@pytest.fixture(scope="module")
def reference() -> dict[str, str]:
    return gen_reference.pages(edges=False)


# --- pages ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_page(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim: every Python block and every command runs in the page's order and prints what stands below it. Oracle:
    the run itself; words exactly, numbers to 1e-4. A block whose peer library is not installed is left out."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "")
    monkeypatch.setenv("COLUMNS", "80")
    for block, got in execute.run_page((DOCS / page).read_text()):
        assert execute.same(block, got), f"docs/{page}:{block.line} prints\n{got}"


def test_no_block_escapes() -> None:
    """Claim: the runner sees every block of code, so that none is left unrun by a slip in its fence."""
    for page in PAGES:
        text = (DOCS / page).read_text()
        assert len(execute.blocks(text)) == len(re.findall(r"^```(?:python|bash)$", text, re.M)), page
        assert text.count("<!-- output -->") == sum(b.output is not None for b in execute.blocks(text)), page
        assert "console\n" not in re.findall(r"^```(\w*\n)", text, re.M)


def test_a_wrong_output_is_noticed() -> None:
    """Claim: the comparison of outputs can fail, on a word and on a number."""
    for code, output, equal in (("1", "1", True), ("1", "2", False), ("'a 1'", "b 1", False), ("1.00001", "1", True)):
        text = f"```python\nprint({code})\n```\n\n<!-- output -->\n\n```text\n{output}\n```\n"
        ((block, got),) = execute.run_page(text)
        assert execute.same(block, got) == equal


def test_links(reference: dict[str, str]) -> None:
    """Claim: every relative link leads to a page, a heading of it, or a file of the site."""

    def anchor(heading: str) -> str:
        return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower())

    texts = {p.relative_to(DOCS).as_posix(): p.read_text() for p in DOCS.rglob("*.md")} | reference
    headings = {p: {anchor(h) for h in re.findall(r"^#+ (.+)$", text, re.M)} for p, text in texts.items()}
    for page, text in texts.items():
        prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
        for target in re.findall(r"\]\(([^)\s]+)\)", prose):
            if re.match(r"\w+:", target):
                continue
            path, _, part = target.partition("#")
            goal = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            assert goal in texts or (DOCS / goal).is_file(), f"{page}: {target}"
            assert not part or part in headings[goal], f"{page}: {target}"


# --- the generated reference ----------------------------------------------------------------------------------------


# Kernels that take a second or more to compile; their own tests cover the same ground in the default run.
HEAVY = {"SISDR", "Bleu", "Meteor", "CIDER", "RelL2", "LocalQ50", "LocalCosQ50", "RealImagRMSE", "MagWMAE", "PhaseWMAE"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in HEAVY)) for n in (k.__name__ for k in METRICS)]
)
def test_edge_cases(name: str) -> None:
    """Claim: every metric has edge cases on its page, and they come out as expected. Oracle: by hand; 1e-6."""
    assert gen_reference.EDGES[name]
    for call, expected, _ in gen_reference.EDGES[name]:
        got = gen_reference.run_edge(call)
        if isinstance(expected, str):
            assert got == expected, call
        else:
            assert not isinstance(got, str) and math.isclose(got, expected, rel_tol=1e-6, abs_tol=1e-9), (call, got)


def test_metric_reference_is_complete(reference: dict[str, str]) -> None:
    """Claim: every public metric has a row and a section with its formula, and its tasks, unit and direction are the
    registry's."""
    page = reference["reference/metrics.md"]
    rows = {line.split("]")[0].strip("| ["): line for line in page.splitlines() if line.startswith("| [")}
    assert set(rows) == {n for n in metrics.__all__ if n != "Metric"}
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", page, re.M | re.S))
    for kind in METRICS:
        row, section = rows[kind.__name__], sections[kind.__name__]
        assert f"| {kind.direction} |" in row
        for task in list_tasks():
            assert (f"[{task.id}]" in row) == any(type(m) is kind for m in task.metrics)
        assert section.count("$$\n") >= 2 and "math::" not in section
        assert all(f"**{part}**" in section for part in ("Shapes", "Units", "Direction", "Errors", "Held by tests to"))
        for parameter in inspect.signature(kind).parameters if kind is not metrics.AUROC else ():  # two are fixed there
            assert f"`{parameter}`" in section, (kind.__name__, parameter)


@pytest.mark.parametrize("name", [kind.__name__ for kind in METRICS])
def test_held_by(name: str) -> None:
    """Claim: the tests that the reference names exist, are about the metric, and run the library that it names."""
    imports = {"torchmetrics": "torchmetrics", "scikit-learn": "sklearn", "sacrebleu": "sacrebleu", "nltk": "nltk"}
    imports |= {"pycocoevalcap": "pycocoevalcap", "rationals": "", "precision": "array_oracles"}
    for what, path in gen_reference.HELD_BY[name]:
        text = (ROOT / path).read_text()
        about = (name, name.upper(), name.lower(), *(t.id for t in list_tasks() if name in {m.name for m in t.metrics}))
        assert any(word in text for word in (*about, "okeniz", "normaliz")), (name, path)
        assert all(module in text for word, module in imports.items() if word in what), (what, path)


def test_task_reference_is_the_registry(reference: dict[str, str]) -> None:
    """Claim: every task has a section with its metrics in order, their directions and units."""
    sections = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", reference["reference/tasks.md"], re.M | re.S))
    assert list(sections) == [t.id for t in list_tasks()]
    for task in list_tasks():
        rows = [
            [c.strip() for c in line.strip("|").split("|")] for line in sections[task.id].splitlines() if "](" in line
        ]
        assert [(r[0], r[3]) for r in rows] == [(m.name, m.direction) for m in task.metrics]


def test_picture_of_the_layers() -> None:
    """Claim: the picture of the architecture is that of the table which every import is held to; after a change of
    the table `python docs/layers.py` draws it anew."""
    layers = _module("layers")
    assert layers.TARGET.read_text() == layers.layers_svg(layers.read_rows())


def test_api_reference_has_every_public_name(reference: dict[str, str]) -> None:
    """Claim: no public name is missing, and no docstring markup is left in the text."""
    import emma_jax

    page = reference["reference/api.md"]
    for name in emma_jax.__all__:
        if not name.startswith("_") and not inspect.ismodule(getattr(emma_jax, name)):
            assert re.search(rf"^### {name}$|^\| `{name}` ", page, re.M), name
    prose = re.sub(r"^```.*?^```", "", page, flags=re.M | re.S)
    assert not re.search(r"``|:\w+:`|\.\. \w+::", prose)


def test_formulas_become_mathml(reference: dict[str, str]) -> None:
    """Claim: every formula on every page converts, with no command left over."""
    pytest.importorskip("latex2mathml", reason="formulas need the extra 'docs'")
    hooks = _module("hooks")
    texts = [*reference.values(), *(p.read_text() for p in DOCS.rglob("*.md"))]
    count = 0
    for text in texts:
        prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.M | re.S)
        for tex in [
            *re.findall(r"\$\$\n(.*?)\n\$\$", prose, re.S),
            *re.findall(r"(?<![$\w])\$([^$\n]+)\$(?!\$)", prose),
        ]:
            assert hooks.to_mathml(tex, True).startswith("<math")
            count += 1
    assert count > 40
    with pytest.raises(ValueError, match="nosuchcommand"):
        hooks.to_mathml(r"\nosuchcommand{x}", True)


# --- the site -------------------------------------------------------------------------------------------------------


class _Loads(html.parser.HTMLParser):
    """What a page loads when it is opened (links that a reader may follow do not count)."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.formulas = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.formulas += tag == "math"
        if tag != "a" and not (tag == "link" and given.get("rel") == "canonical"):
            self.found += [v for k in ("src", "href", "srcset", "data") if (v := given.get(k))]


@pytest.mark.slow
def test_site_builds_and_loads_nothing(tmp_path: Path) -> None:
    """Claim: a strict build has no warning, every formula is MathML, and no page loads anything from a host."""
    pytest.importorskip("mkdocs", reason="the site needs the extra 'docs'")
    pytest.importorskip("material", reason="the site needs the extra 'docs'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = sorted(tmp_path.rglob("*.html"))
    assert len(pages) > len(PAGES)
    formulas = 0
    for page in pages:
        loads = _Loads()
        loads.feed(page.read_text())
        formulas += loads.formulas
        outside = [target for target in loads.found if re.match(r"(https?:)?//", target)]
        assert not outside, (page.name, outside)
        assert "arithmatex" not in page.read_text()
    assert formulas > 40
