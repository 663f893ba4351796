"""`docs/reference/compatibility.md` says exactly what a node advertises."""

from __future__ import annotations

import re
from pathlib import Path

from ottla.protocol.messages import ApiKey
from ottla.server.handlers import TABLE

ROOT = Path(__file__).resolve().parents[3]


def documented() -> dict[str, tuple[int, int]]:
    text = (ROOT / "docs" / "reference" / "compatibility.md").read_text()
    rows = re.findall(r"^\| (\w+) \((\d+)\) \| (\d+)-(\d+) \|", text, re.MULTILINE)
    return {name: (int(low), int(high)) for name, _, low, high in rows}


def camel(key: ApiKey) -> str:
    return "".join(word.capitalize() for word in key.name.split("_"))


def test_every_served_api_is_documented_with_its_versions_and_nothing_else_is() -> None:
    served = {camel(ApiKey(key)): (row.min_version, row.max_version) for key, row in TABLE.items()}
    assert documented() == served


def test_every_handler_file_is_in_the_table() -> None:
    folder = ROOT / "src/ottla/server/handlers"
    files = {".".join(path.relative_to(folder).with_suffix("").parts) for path in folder.rglob("*.py")}
    modules = {row.module for row in TABLE.values()}
    assert modules <= files
