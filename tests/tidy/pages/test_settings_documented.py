"""`docs/reference/settings.md` says what the table of settings says, and the table what the code does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.config import definitions
from ottla.config.group_settings import BOUNDS
from ottla.config.tables import without_effect
from ottla.config.tables.without_effect import why
from tools import configuration_page as render
from tools import settings_types
from tools.pages import write_page

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "src" / "ottla"


def test_the_page_is_what_the_table_renders() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    assert page == render.document(), "stale: run `python -m tools.configuration_page docs/reference/settings.md`"


def test_rendering_to_a_file_and_to_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_page("a page\n", [str(tmp_path / "page.md")])
    write_page("a page\n", [])
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == capsys.readouterr().out == "a page\n"


def test_the_typed_attributes_are_what_the_table_renders() -> None:
    module = (SOURCES / "config" / "typed.py").read_text(encoding="utf-8")
    assert module == settings_types.document(), "stale: python -m tools.settings_types src/ottla/config/typed.py"


def sources() -> Iterator[str]:
    """All but the table itself, what only describes, checks or knows names, and what runs no node."""
    aside = {
        SOURCES / "config" / f"{name}.py" for name in ("describe", "validation", "definitions", "foreign", "typed")
    }
    for path in sorted(SOURCES.rglob("*.py")):
        folder = path.relative_to(SOURCES).parts[0]
        if path not in aside and "tables" not in path.parts and folder not in ("cli", "client", "simulation"):
            yield path.read_text(encoding="utf-8")


def settings_that_code_reads() -> set[str]:
    """By attribute, by a name in quotes, or as the default or bound of a topic's or a group's setting that acts."""
    found: set[str] = set()
    for text in sources():
        found |= set(re.findall(r'"([A-Za-z0-9.]+)"', text))
        attributes = re.findall(r"(?:config|settings|self)\.(?!_?config\.|_?node\.)([a-z0-9_]+)", text)
        found |= {each.replace("_", ".") for each in attributes}
    for name, synonyms in definitions.TOPIC_SYNONYMS.items():
        found |= {each.name for each in synonyms if why(name) is None}
    for name, bounds in BOUNDS.items():
        found |= {each for each in bounds if each is not None and why(name) is None}
    return found & definitions.BROKER.keys()


def test_a_setting_is_read_by_the_code_or_in_the_table_that_says_why_not() -> None:
    read = settings_that_code_reads()
    without = {name for name in definitions.BROKER if why(name) is not None}
    assert len(read) > 250 and len(without) > 90
    assert sorted(without & read) == [], "the code reads them: remove them from the table of those without effect"
    assert sorted(definitions.BROKER.keys() - read - without) == [], "nothing reads them: say why in without_effect.py"


def test_the_table_of_settings_without_effect_names_each_once_and_no_other() -> None:
    listed = [name for names in without_effect._REASONS.values() for name in names]
    assert len(listed) == len(set(listed)) == len(without_effect.WITHOUT_EFFECT) > 130
    for name, reason in without_effect.WITHOUT_EFFECT.items():
        assert reason.endswith(".") and "|" not in reason
        covered = [each for each in listed if each.endswith(".") and name.startswith(each) and name != each]
        assert covered == [], f"{name} is among {covered}"


def test_settings_are_read_as_attributes() -> None:
    """A name in brackets has no type: `config["log.dirs"]`, in single quotes where it stands in an f-string."""
    found = [each for text in sources() for each in re.findall(r"""config\[["'][a-z0-9.]+["']\]""", text)]
    assert sorted(found) == ['config["advertised.listeners"]'], "read them by attribute (config/typed.py)"
