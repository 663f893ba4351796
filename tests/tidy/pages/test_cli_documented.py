"""`docs/reference/cli.md` says what the commands say, and what the documents tell people to type is accepted."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from ottla.cli.app import application
from tools import cli_page as page

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_page_is_what_the_commands_render() -> None:
    text = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    assert text == page.document(), "stale: run `python -m tools.cli_page docs/reference/cli.md`"


def simple_commands(line: str) -> list[str]:
    """The commands of a line of shell, without pipes, redirections and comments."""
    words = shlex.shlex(line, posix=True, punctuation_chars="|>&;<")
    words.whitespace_split = True
    found: list[list[str]] = [[]]
    skipped = False
    for word in words:
        if word and set(word) <= set("|&;"):
            found.append([])
        elif word and set(word) <= set("<>"):
            skipped = True
        elif skipped:
            skipped = False
        else:
            found[-1].append(word)
    return [shlex.join(each) for each in found]


def typed_commands() -> list[str]:
    """Every `ottla ...` in a code block that is written out in full."""
    known = tuple(name for name, _ in page.commands())
    found = set()
    for document in DOCUMENTS:
        for block in re.findall(r"^```\w*\n(.*?)^```", document.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
            for line in block.replace("\\\n", " ").splitlines():
                if "ottla " not in line:
                    continue
                for part in simple_commands(re.sub(r"^\$ ", "", line)):
                    part = re.sub(r"^(?:\S*/)?ottla ", "ottla ", part)
                    if part.startswith(known) and not re.search(r"[A-Z]{2,}|\[|\.\.\.", part):
                        found.add(part)
    return sorted(found)


@pytest.mark.parametrize("command", typed_commands())
def test_what_the_documents_type_is_understood(command: str) -> None:
    application().parse_args(shlex.split(command)[1:], exit_on_error=False, print_error=False)


def test_pipes_and_redirections_are_taken_off() -> None:
    line = "seq 3 | ottla produce orders && ottla sql 'select 1 > 0' --json > rows.json  # ottla"
    assert simple_commands(line) == ["seq 3", "ottla produce orders", "ottla sql 'select 1 > 0' --json"]


def test_commands_are_found_in_the_documents() -> None:
    assert len(typed_commands()) >= 8
