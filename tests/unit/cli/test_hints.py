"""A command that a complaint names works as it is printed: it asks the brokers that the failed one was given."""

from __future__ import annotations

from typing import Any

import pytest
from cyclopts import App

from ottla.cli import app
from ottla.cli.exits import CommandFailed
from ottla.cli.options import DEFAULT_BOOTSTRAP, Bootstrap

ELSEWHERE = "h:1,j:2"


HINTS = {
    "see the groups with: ottla group list": " -b h:1,j:2",
    "change it with: ottla topic alter T": " -b h:1,j:2, or add --x",
    "ottla topic list": " -b h:1,j:2; or else",
    "see: ottla topic list -b k:3": "",
    "see what it takes with: ottla config explain NAME": "",
    "see: ottla topic --help": "",
}  # what is said, and what follows then


@pytest.mark.parametrize(("hint", "behind"), HINTS.items())
def test_brokers_of_a_hint(monkeypatch: pytest.MonkeyPatch, hint: str, behind: str) -> None:
    complaint = f"ottla topic list is no hint\n  {hint}{behind.removeprefix(' -b h:1,j:2')}"
    completed = f"ottla topic list is no hint\n  {hint}{behind}"
    monkeypatch.delenv("OTTLA_BOOTSTRAP", raising=False)

    def fails(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
        raise CommandFailed(complaint, 3)

    def application(only: Any = None) -> App:
        made = App(name="ottla")
        made.command(fails)
        return made

    monkeypatch.setattr(app, "application", application)

    def said(*arguments: str) -> str:
        with pytest.raises(CommandFailed) as failure:
            app.run(["fails", *arguments])
        assert failure.value.exit_code == 3
        return str(failure.value)

    assert said("-b", ELSEWHERE) == completed
    assert said() == said("-b", DEFAULT_BOOTSTRAP) == complaint
    monkeypatch.setenv("OTTLA_BOOTSTRAP", ELSEWHERE)
    assert said() == complaint, "the next command has it from there too"
