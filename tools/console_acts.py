"""Writes the table of acts into docs/console.md: `python -m tools.console_acts docs/console.md`.

A test fails when the table in the repository is not what this gives.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ottla.console.acts.table import ACTS

BEGIN, END = "<!-- acts: python -m tools.console_acts docs/console.md -->\n", "<!-- end of acts -->\n"


def table() -> str:
    lines = ["| act | name | needs | asks for the name |\n", "|---|---|---|---|\n"]
    lines += [
        f"| {each.title}: {each.what[:1].lower()}{each.what[1:].rstrip('.')} | `{each.name}` | {each.needs} | "
        f"{'yes' if each.destroys else ''} |\n"
        for each in ACTS
    ]
    return "".join(lines)


def page(text: str) -> str:
    """The page with the table as it is now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + "\n" + table() + "\n" + END + after


def main(file: str) -> None:
    place = Path(file)
    place.write_text(page(place.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
