"""`docs/reference/settings.md` says what the table of settings says, and the table what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla.config import definitions
from tools import configuration_page as render
from tools.pages import write_page

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "ottla"


def test_the_page_is_what_the_table_renders() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    assert page == render.document(), "stale: run `python -m tools.configuration_page docs/reference/settings.md`"


def test_rendering_to_a_file_and_to_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_page("a page\n", [str(tmp_path / "page.md")])
    write_page("a page\n", [])
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == capsys.readouterr().out == "a page\n"


def settings_that_code_names() -> set[str]:
    """Names in quotes anywhere but in the table itself and in what only describes or checks it."""
    aside = {SOURCES / "config" / name for name in ("describe.py", "validation.py", "definitions.py", "foreign.py")}
    files = [
        path
        for path in SOURCES.rglob("*.py")
        if path not in aside
        and "tables" not in path.parts
        and path.relative_to(SOURCES).parts[0] not in ("cli", "client", "simulation")
    ]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    named = set(re.findall(r'"([a-z0-9.]+)"', text))
    through_topics = {each.name for synonyms in definitions.TOPIC_SYNONYMS.values() for each in synonyms}
    return named | {name for name in through_topics if acts_through_a_topic(name)}


def acts_through_a_topic(broker_name: str) -> bool:
    """Whether a broker setting is the default of a topic setting that does something."""
    return any(
        definitions.TOPIC[topic_name].acts
        for topic_name, synonyms in definitions.TOPIC_SYNONYMS.items()
        if broker_name in {each.name for each in synonyms}
    )


def test_what_the_code_reads_is_not_marked_as_doing_nothing() -> None:
    inert = {name for name, setting in definitions.BROKER.items() if not setting.acts}
    assert sorted(inert & settings_that_code_names()) == [], "these act: remove acts=False"


def test_what_is_said_to_act_is_read_by_the_code() -> None:
    acting = {name for name, setting in definitions.BROKER.items() if setting.acts}
    assert sorted(acting - settings_that_code_names()) == [], "these do nothing: mark them acts=False"
