"""`ottla server health`: its exit code is that of a container's health check."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from ottla.cli.main import main

WELL = {"status": "healthy", "reasons": []}
ILL = {"status": "unhealthy", "reasons": ["no log directory can be used"]}


@contextmanager
def answering(pages: dict[str, bytes]) -> Iterator[str]:
    """HOST:PORT of a server that has these pages."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(pages[self.path])

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTTLA_HTTP_LISTENER", "OTTLA_OTTLA_HTTP_LISTENER", "OTTLA_BOOTSTRAP"):
        monkeypatch.delenv(name, raising=False)


def test_the_exit_code_says_how_the_node_is(capsys: pytest.CaptureFixture[str]) -> None:
    with answering({"/health": json.dumps(WELL).encode(), "/ready": json.dumps(ILL).encode()}) as address:
        assert main(["server", "health", "--http", address]) == 0
        assert capsys.readouterr().out == "healthy\n"
        assert main(["server", "health", "--http", address, "--ready"]) == 1
        assert capsys.readouterr().out == "unhealthy\n  no log directory can be used\n"
        assert main(["server", "health", "--http", address, "--ready", "--json"]) == 1
        assert json.loads(capsys.readouterr().out) == ILL


def test_the_environment_says_where(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As in a container, whose node is told so by the same variable."""
    with answering({"/health": json.dumps(WELL).encode()}) as address:
        monkeypatch.setenv("OTTLA_HTTP_LISTENER", f":{address.partition(':')[2]}")
        assert main(["server", "health"]) == 0
    assert main(["server", "health"]) == 1
    assert f"no node answers at {address}: Connection refused" in capsys.readouterr().err


def test_the_nodes_file_says_where(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    with answering({"/health": json.dumps(WELL).encode()}) as address:
        file.write_text(f"ottla.http.listener={address}\n")
        assert main(["server", "health", "--config", str(file)]) == 0
    assert main(["server", "health", "--config", str(tmp_path / "none")]) == 1


def test_what_is_no_node_is_not_healthy(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with answering({"/health": b"<html>welcome</html>"}) as address:
        assert main(["server", "health", "--http", address]) == 1
    assert "not as the HTTP port of a node does" in capsys.readouterr().err
    assert main(["server", "health", "--http", "127.0.0.1:0"]) == 2
    monkeypatch.setenv("OTTLA_HTTP_LISTNER", ":9404")
    assert main(["server", "health"]) == 2
    assert "OTTLA_HTTP_LISTNER" in capsys.readouterr().err
