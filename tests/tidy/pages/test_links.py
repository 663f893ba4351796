"""Links between documents lead somewhere, to their heading too; every page is reached from the README or the index."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
_CODE = re.compile(r"^( *)```.*?^ *```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)")


def links(text: str) -> list[tuple[str, str]]:
    """(file, heading) of each link that stays in the tree; either may be empty."""
    return [(file, anchor) for file, _, anchor in (each.partition("#") for each in _LINK.findall(_CODE.sub("", text)))]


@cache
def anchors(document: Path) -> frozenset[str]:
    """The headings of a page as GitHub and the site spell them in addresses."""
    found: list[str] = []
    for heading in re.findall(r"^#+ (.+)$", _CODE.sub("", document.read_text(encoding="utf-8")), re.MULTILINE):
        text = re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        name = re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", text).strip())
        found.append(name if name not in found else f"{name}-{found.count(name)}")
    return frozenset(found)


def problems(document: Path) -> list[str]:
    found = []
    for file, anchor in links(document.read_text(encoding="utf-8")):
        target = document.parent / file if file else document
        if not target.exists():
            found.append(file)
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            found.append(f"{file}#{anchor}")
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    assert problems(document) == []


def test_a_broken_link_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("# One thing\n```\n# no heading\n```\n## `a`, and *b*\n")
    page = tmp_path / "a.md"
    page.write_text(
        "[1](b.md) [2](b.md#one-thing) [3](b.md#a-and-b) [4](https://example.org/c.md)\n```\n[5](d.md)\n```\n"
    )
    assert problems(page) == []
    page.write_text("[1](c.md) [2](b.md#no-heading) [3](#nothing)")
    assert problems(page) == ["c.md", "b.md#no-heading", "#nothing"]


def test_every_page_is_reached_from_the_readme_or_the_index() -> None:
    reached = {ROOT / "README.md"}
    for document in (ROOT / "README.md", ROOT / "docs" / "index.md"):
        reached |= {(document.parent / file).resolve() for file, _ in links(document.read_text(encoding="utf-8"))}
    assert [str(path.relative_to(ROOT)) for path in DOCUMENTS if path not in reached] == []
