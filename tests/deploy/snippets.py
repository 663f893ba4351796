"""The commands of a page that a test runs: blocks behind `<!-- run -->`, or `<!-- run: NAME -->` where a test does it
in another way."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^<!-- run(?:: (\w+))? -->\n```\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def snippets(page: str) -> list[tuple[str, str]]:
    """(name or "", commands) in the order of the page."""
    return [(name, text) for name, text in _BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))]
