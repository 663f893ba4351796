"""`ottla mirror`: clusters that do not answer, mirrors that are not there, topics that were handed over."""

from __future__ import annotations

import inspect
import json
import socket
import time
from collections.abc import Iterator

import pytest

from ottla.cli import mirror, wire
from ottla.cli.exits import FAILED, OK, UNREACHABLE
from ottla.cli.main import main
from ottla.mirror.control_topic import ControlTopic
from ottla.pipelines.runner import load
from ottla.testing import Broker


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker(topics={"t": 1, "u": 1}) as broker:
        yield broker.bootstrap


@pytest.mark.parametrize("arguments", [["status", "a"], ["offsets", "a", "t"], ["failover", "a"], ["failback", "a"]])
def test_a_broker_that_accepts_and_is_silent(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "ANSWER_TIMEOUT_S", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        began = time.monotonic()
        code = main(["mirror", *arguments, "--bootstrap", f"127.0.0.1:{silent.getsockname()[1]}"])
    assert code == UNREACHABLE
    assert time.monotonic() - began < wire.REQUEST_TIMEOUT_S
    assert "no broker answers" in capsys.readouterr().err


NAMED = {
    "status": ["zz"], "offsets": ["zz", "t"], "failover": ["zz"], "failback": ["zz"], "status, no name": [],
}  # fmt: skip
"""Commands that name a mirror, by a name that no mirror has."""


@pytest.mark.parametrize("command", NAMED)
def test_a_mirror_that_is_not_there_is_said_to_be_missing(
    command: str, bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ControlTopic(bootstrap, "known").ensure()
    arguments = ["mirror", command.split(",")[0], *NAMED[command], "-b", bootstrap]
    for more in [], ["--json"], ["--from", bootstrap]:
        if more[:1] == ["--from"] and command == "offsets":
            continue  # it asks the destination only
        assert main([*arguments, *more]) == FAILED
        out, error = capsys.readouterr()
        assert "there is no mirror of" in error and "there are mirrors of known" in error and not out


def test_a_mirror_without_topics_says_so(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    ControlTopic(bootstrap, "new").ensure()
    assert main(["mirror", "status", "new", "-b", bootstrap]) == OK
    assert capsys.readouterr().out == "the mirror of new has no topics yet: it has copied nothing\n"
    assert main(["mirror", "status", "new", "-b", bootstrap, "--from", bootstrap, "--topics", "other"]) == OK
    assert "has no topics: the source has no topics of its own that matches other" in capsys.readouterr().out


def test_topics_that_were_handed_over_are_shown(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    control = ControlTopic(bootstrap, "handed")
    control.ensure()
    control.note([(["origin", "t", 0], 0), (["role", "t"], "owned")])
    for more in [], ["--from", bootstrap, "--topics", "t"]:
        assert main(["mirror", "status", "handed", "-b", bootstrap, "--json", *more]) == OK
        (row,) = json.loads(capsys.readouterr().out)
        assert (row["topic"], row["role"], row["lag_records"]) == ("t", "owned", None)


def test_names_that_nobody_gives_are_the_pipelines_too() -> None:
    """A mirror that was started without names is found without names."""
    settings = {setting.name: setting.default for setting in load("mirror").settings}
    walked = 0
    for command in (mirror.plan, mirror.status, mirror.failover, mirror.failback):
        for name, parameter in inspect.signature(command).parameters.items():
            setting = {"name": "destination"}.get(name, name)
            if setting in settings:
                assert ("" if parameter.default is None else parameter.default) == settings[setting], (command, name)
                walked += 1
    assert walked >= 19
