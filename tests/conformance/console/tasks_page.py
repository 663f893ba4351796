"""Writes the table of tasks into docs/console.md.

    OTTLA_TEST_TASKS=FILE pytest -m "" tests/conformance/console/test_console_tasks.py   # walks them
    python -m tests.conformance.console.tasks_page docs/console.md FILE

A test fails when the tasks or their steps in the repository are not these; seconds are those of the last walk.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.conformance.console.tasks import TASKS

BEGIN = "<!-- tasks: python -m tests.conformance.console.tasks_page docs/console.md FILE -->\n"
END = "<!-- end of tasks -->\n"
_ROW = re.compile(r"^\| (.+) \| .+ \| \d+ \| (.*) \|$", re.MULTILINE)


def seconds_in(text: str) -> dict[str, str]:
    """What the page has of each task."""
    return dict(_ROW.findall(text.partition(BEGIN)[2].partition(END)[0]))


def page(text: str, seconds: Mapping[str, str]) -> str:
    """The page with the table as it is now."""
    lines = ["| task | begins at | steps | seconds |\n", "|---|---|--:|--:|\n"]
    lines += [
        f"| {each.name} | {_start(each.start)} | {each.count} | {seconds.get(each.name, '')} |\n" for each in TASKS
    ]
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return before + BEGIN + "\n" + "".join(lines) + "\n" + END + after


def _start(path: str) -> str:
    """`the overview`, `/topics/orders`."""
    return "the overview" if path == "/" else f"`{path.replace('-{m}', '')}`"


def main(file: str, times: str) -> None:
    place = Path(file)
    walked = json.loads(Path(times).read_text(encoding="utf-8"))
    seconds = {name: str(each["seconds"]) for name, each in walked.items()}
    place.write_text(page(place.read_text(encoding="utf-8"), seconds), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:3])
