"""What the site's build does beyond MkDocs: adds the generated pages, and turns formulas into MathML.

MathML is drawn by the browser itself, so the site needs no script and no font from anywhere, and works from a folder.
A formula that cannot be converted is a warning, which a strict build turns into a failure.
"""

from __future__ import annotations

import html
import logging
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import gen_reference

log = logging.getLogger("mkdocs.hooks.emma_jax")
# What pymdownx.arithmatex leaves of `$...$` and `$$...$$` in its generic mode.
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\s*\\([(\[])(.*?)\\[)\]]\s*</\1>', re.S)


def to_mathml(tex: str, display: bool) -> str:
    """A formula as a MathML element.

    Raises:
      ValueError: the converter does not know a command in it.
    """
    from latex2mathml.converter import convert

    try:
        # the converter does not know arg
        element = convert(re.sub(r"\\arg\b", r"\\operatorname{arg}", tex), display="block" if display else "inline")
    except Exception as error:  # the converter has a dozen exceptions of its own
        raise ValueError(f"{tex!r}: {type(error).__name__} {error}") from error
    unknown = re.findall(r"<m[io]>\\+\w+</m[io]>", element)
    if unknown:
        raise ValueError(f"{tex!r}: unknown {', '.join(unknown)}")
    return element


def with_mathml(page: str) -> str:
    """HTML of a page with its formulas as MathML."""

    def element(found: re.Match[str]) -> str:
        display = found[2] == "["
        math = to_mathml(html.unescape(found[3]).strip(), display)
        return f'<div class="formula">{math}</div>' if display else math

    return _FORMULA.sub(element, page)


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that are written from docstrings and the registry."""
    from mkdocs.structure.files import File

    for path, text in gen_reference.pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_content(page_html: str, page: Any, **_: Any) -> str:
    """Replaces formulas."""
    try:
        return with_mathml(page_html)
    except ValueError as error:
        log.warning("%s: formula %s", page.file.src_path, error)
        return page_html
