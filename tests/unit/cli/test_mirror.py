"""`ottla mirror` and clusters that do not answer."""

from __future__ import annotations

import socket
import time

import pytest

from ottla.cli import wire
from ottla.cli.exits import UNREACHABLE
from ottla.cli.main import main


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
