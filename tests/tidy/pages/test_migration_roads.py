"""Each road from Kafka to Ottla has a page that says how long it takes, what stops, and the way back."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[3] / "docs"
HEAD = "| road | for | time | what stops | way back |"


def test_every_road_says_its_time_what_stops_and_the_way_back() -> None:
    overview = (DOCS / "migration.md").read_text(encoding="utf-8")
    assert HEAD in overview
    rows = re.findall(r"^\| \[[^]]+\]\((\S+?)\) \|(.*)\|$", overview, re.MULTILINE)
    assert len(rows) >= 4
    for page, cells in rows:
        assert all(cell.strip() for cell in cells.split("|")), page
        text = (DOCS / page).read_text(encoding="utf-8")
        for name in ("for", "time", "what stops", "way back"):
            assert re.search(rf"^\| {name} \| \S", text, re.MULTILINE), f"{page} does not say: {name}"
    pages = {path.relative_to(DOCS).as_posix() for path in (DOCS / "migration").glob("*.md")}
    assert pages <= {page for page, _ in rows}, "a road that the overview lacks"
