"""`ottla server health`: its exit code is that of a container's health check."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from ottla.cli.main import main
from tests.certificates import Authority

WELL = {"status": "healthy", "reasons": []}
ILL = {"status": "unhealthy", "reasons": ["no log directory can be used"]}


@contextmanager
def answering(
    pages: dict[str, bytes], identity: Path | None = None, seen: list[str | None] | None = None, status: int = 200
) -> Iterator[str]:
    """HOST:PORT of a server that has these pages, over TLS with an identity's file."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if seen is not None:
                seen.append(self.headers["Authorization"])
            self.send_response(status)
            self.end_headers()
            self.wfile.write(pages[self.path])

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    if identity is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(identity)
        server.socket = context.wrap_socket(server.socket, server_side=True)
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


def test_a_port_with_tls_and_a_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A login is sent where the certificate is trusted, and a probe of the machine itself needs neither."""
    authority, seen = Authority(), list[str | None]()
    (tmp_path / "node.pem").write_text(authority.issue("node").pem())
    pages = {"/health": json.dumps(WELL).encode()}
    with answering(pages, tmp_path / "node.pem", seen) as address:
        assert main(["server", "health", "--http", f"https://{address}"]) == 0
        monkeypatch.setenv("OTTLA_HTTP_SECURITY_PROTOCOL", "SASL_SSL")
        assert main(["server", "health", "--http", address]) == 0
        monkeypatch.delenv("OTTLA_HTTP_SECURITY_PROTOCOL")
        (tmp_path / "server.properties").write_text(
            f"ottla.http.listener={address}\nottla.http.security.protocol=SSL\n"
        )
        assert main(["server", "health", "--config", str(tmp_path / "server.properties")]) == 0
        assert seen == [None, None, None]

        (tmp_path / "ca.pem").write_text(authority.pem)
        client = tmp_path / "client.properties"
        for trusted, code in ((authority, 0), (Authority("Others"), 1)):
            (tmp_path / "ca.pem").write_text(trusted.pem)
            client.write_text(
                f"security.protocol=SASL_SSL\nssl.ca.location={tmp_path / 'ca.pem'}\nsasl.mechanism=SCRAM-SHA-256\n"
                "sasl.username=alice\nsasl.password=alice-secret\n"
            )
            arguments = ["server", "health", "--http", f"https://{address}", "--command-config", str(client)]
            assert main(arguments) == code
        assert seen[3:] == [f"Basic {base64.b64encode(b'alice:alice-secret').decode()}"]
        error = capsys.readouterr().err
        assert "is not trusted" in error and "secret" not in error
        assert main(["server", "health", "--http", address]) == 1
        assert f"--http https://{address}" in capsys.readouterr().err
    with answering(pages, tmp_path / "node.pem", status=401) as address:
        assert main(["server", "health", "--http", f"https://{address}"]) == 1
        assert "refused the login" in capsys.readouterr().err
