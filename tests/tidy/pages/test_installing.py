"""Every `pip install` that a reader or a message names works: no index has Ottla yet.

From a clone it is `pip install .`, with a wheel of `make wheel` its file. A program's own message may say
`pip install 'ottla[sql]'`: there Ottla is installed, and pip only adds the libraries.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
_INSTALL = re.compile(r"pip install((?: +(?:-[\w-]+|'[^'\n]*'|[\w./*\[\]{},=<>~-]+))*)")
_EXTRA = r"\[(?P<extras>[\w,]+|\{extra\})\]"
FROM_A_CLONE = re.compile(rf"'?\.(?:{_EXTRA})?'?")
A_WHEEL = re.compile(rf"'?(?:FILE|(?:[\w.]+/)*ottla-[\w.*-]+)\.whl(?:{_EXTRA})?'?")
ADDED = re.compile(rf"'ottla{_EXTRA}'")


def wrong(text: str, *, is_installed: bool) -> list[str]:
    """What `pip install` is given there that nobody can install. `is_installed`: by a program that is running."""
    found = []
    for each in _INSTALL.finditer(text):
        for word in (word for word in each[1].split() if not word.startswith("-")):
            forms = [FROM_A_CLONE, A_WHEEL, *([ADDED] if is_installed else [])]
            match = next((form.fullmatch(word) for form in forms if form.fullmatch(word)), None)
            extras = (match.groupdict().get("extras") or "") if match else ""
            others = set(extras.split(",")) - EXTRAS - {"", "{extra}"}
            if (match is None and "ottla" in word) or others:
                found.append(each[0])
    return found


def test_pages() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = {str(page.relative_to(ROOT)): wrong(page.read_text(), is_installed=False) for page in pages}
    assert {page: lines for page, lines in found.items() if lines} == {}


def test_messages() -> None:
    sources = sorted((ROOT / "src").rglob("*.py"))
    found = {str(file.relative_to(ROOT)): wrong(file.read_text(), is_installed=True) for file in sources}
    assert {file: lines for file, lines in found.items() if lines} == {}
    assert sum("pip install 'ottla[" in file.read_text() for file in sources) >= 8


@pytest.mark.parametrize(
    ("text", "is_installed", "is_wrong"),
    [
        ("pip install ottla", False, True),
        ("pip install 'ottla[spark]'", False, True),
        ("pip install 'ottla[spark]'", True, False),
        ("pip install ottla[spark]", True, True),
        ("pip install 'ottla[sparks]'", True, True),
        ("pip install 'ottla[{extra}]' pytest", True, False),
        ("pip install '.[spark]'", False, False),
        ("pip install '.[sparks]'", False, True),
        ("pip install -v .    # compiles", False, False),
        ("pip install 'dist/ottla-0.1.0-py3-none-any.whl[spark,sql]'", False, False),
        ("pip install ottla-0.2.0-*.whl", False, False),
        ("pip install FILE.whl", False, False),
        ("pip install pytest", False, False),
    ],
)
def test_the_forms(text: str, is_installed: bool, is_wrong: bool) -> None:
    assert bool(wrong(text, is_installed=is_installed)) == is_wrong
