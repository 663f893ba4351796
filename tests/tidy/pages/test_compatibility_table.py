"""The tables of `docs/reference/compatibility.md` say exactly what a node advertises and knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.protocol.messages import ApiKey
from ottla.server.handlers import TABLE, Served
from tools.compatibility_page import NOTES, SECTIONS, apis, came_with, page_with_tables

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "reference" / "compatibility.md"


def test_the_tables_are_those_of_the_node() -> None:
    page = PAGE.read_text(encoding="utf-8")
    stale = "stale: python -m tools.compatibility_page docs/reference/compatibility.md"
    assert page == page_with_tables(page), stale
    for name in SECTIONS:
        with pytest.raises(ValueError, match=name):
            page_with_tables(page.replace(f"<!-- end: {name} -->", ""))


def test_every_served_api_has_a_row_with_its_versions() -> None:
    rows = [*apis({ApiKey.FETCH: Served("x", 4, 18), ApiKey.SHARE_FETCH: Served("y", 1, 2)}, {1: "A note."})]
    assert rows[2:] == [
        "| Fetch (1) | 4-18 | 18 with 4.1 | A note. |",
        "| ShareFetch (78) | 1-2 | 1 with 4.1; 2 with 4.2 |  |",
    ]
    assert len([*apis(TABLE, NOTES)]) == len(TABLE) + 2
    assert set(NOTES) <= set(TABLE), "a note of an API that is not served"


def test_the_release_of_versions_is_that_of_its_jars() -> None:
    assert came_with(ApiKey.TXN_OFFSET_COMMIT, 0, 6) == "5 with 4.0; 6 with 4.4"
    assert came_with(ApiKey.DELETE_GROUPS, 0, 2) == ""
    assert came_with(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, 0) == "4.1"
    assert came_with(ApiKey.INIT_PRODUCER_ID, 0, 5) == "", "6 is in no release: it is unstable"


def test_every_handler_file_is_in_the_table() -> None:
    folder = ROOT / "src/ottla/server/handlers"
    files = {".".join(path.relative_to(folder).with_suffix("").parts) for path in folder.rglob("*.py")}
    modules = {row.module for row in TABLE.values()}
    assert modules <= files
