"""The map in `docs/architecture.md` names every package and only packages that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "ottla"


def test_the_map_is_true() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| ((?:`[\w.]+`(?:, )?)+) \|", text, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([\w.]+)`", row)}
    packages = {
        ".".join(path.parent.relative_to(SOURCE).parts) for path in SOURCE.rglob("__init__.py") if path.parent != SOURCE
    }
    modules = {path.stem for path in SOURCE.glob("*.py")} - {"__init__"}
    assert packages <= named
    assert named <= packages | modules


def test_every_package_says_what_lives_there() -> None:
    for path in SOURCE.rglob("__init__.py"):
        assert path.read_text().startswith('"""'), path
