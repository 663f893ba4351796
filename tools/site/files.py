"""A hook of MkDocs: pages link to files of the repository outside `docs`; the site has copies of these.

A link `../../deploy/x.yml` in a page leads to `repository/deploy/x.yml` of the site. Markdown outside `docs`
(CHANGELOG.md, CONTRIBUTING.md) becomes a page there. So the site is whole without an address of the repository.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
HOME = "repository"
_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")


def outside(source: str, link: str) -> str | None:
    """The path in the repository of what a page of `docs` links to, if that is not in `docs`."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(source), link))
    return None if path.startswith(("docs/", "..")) else path


def on_files(files: Files, config: Any) -> Files:
    wanted = {"CHANGELOG.md", "CONTRIBUTING.md"}
    for page in files.documentation_pages():
        for link, _ in _LINK.findall(page.content_string):
            path = outside(page.src_uri, link)
            if path and (ROOT / path).is_file():
                wanted.add(path)
    for path in sorted(wanted):
        name = f"{HOME}/{path}"
        content = (ROOT / path).read_text(encoding="utf-8")
        if path.endswith(".md"):  # its links are from the repository's top
            content = _LINK.sub(lambda match: _from_the_top(match[1], match[2] or ""), content)
        files.append(File.generated(config, name, content=content))
    return files


def _from_the_top(link: str, anchor: str) -> str:
    path = link.removeprefix("docs/") if link.startswith("docs/") else f"{HOME}/{link}"
    return f"](../{path}{anchor})"


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    source = page.file.src_uri
    if source.startswith(f"{HOME}/"):
        return markdown

    def moved(match: re.Match[str]) -> str:
        path = outside(source, match[1])
        if path is None:
            return match[0]
        target = posixpath.relpath(f"{HOME}/{path}", posixpath.dirname(source) or ".")
        return f"]({target}{match[2] or ''})"

    return _LINK.sub(moved, markdown)
