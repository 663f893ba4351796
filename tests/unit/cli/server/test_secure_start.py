"""What `ottla server start --secure` prints for people who want to log in."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli import client_security
from ottla.cli.server import start


@pytest.mark.parametrize("console", [None, "127.0.0.1:8080"])
def test_where_the_password_for_the_console_is(
    console: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(client_security.VARIABLE, "")  # it is set beside a console: undone at the end
    start._secure(start.StartOptions(directory=str(tmp_path / "data"), console=console))
    file = tmp_path / "data-security" / "client.properties"
    assert 'username="admin"' in file.read_text()
    line = f"ottla: log in to the console as admin, with the password in {file}\n"
    assert (line in capsys.readouterr().out) == (console is not None)
