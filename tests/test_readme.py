"""The README is true: its Python runs, its table is the registry's, its two commands are the ones that CI runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from emma_jax.tasks import list_tasks

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.S)


@pytest.mark.filterwarnings("ignore:.*histogram stream")
@pytest.mark.parametrize("code", SNIPPETS, ids=range(len(SNIPPETS)))
def test_python_runs(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Claim: every Python block runs as printed, on its own, and prints something."""
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip()


def test_the_table_is_the_registry() -> None:
    """Claim: the table of tasks names every registered task with its metrics in order and their directions."""
    rows = {
        cells[0]: cells
        for line in README.splitlines()
        if (cells := [c.strip() for c in line.strip("|").split("|")])[0].startswith(("E-", "EMVal-"))
    }
    assert set(rows) == {t.id for t in list_tasks()}
    for task in list_tasks():
        assert rows[task.id][3].split(", ") == [m.name for m in task.metrics]
        directions = [m.direction for m in task.metrics]
        assert rows[task.id][4] in (directions[0], ", ".join(directions))
        assert rows[task.id][5].startswith("yes") == task.in_ood_avg


@pytest.mark.parametrize("name", ["demo-command", "test-command"])
def test_the_two_commands_are_marked(name: str) -> None:
    """Claim: both commands stand in the README where .ci/run looks for them."""
    found = re.search(rf"<!-- {name} -->\n```bash\n(.+)\n```", README)
    assert found and "pip install" in found[1]
