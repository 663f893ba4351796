"""The authority of `--secure`, its certificates, and the files that clients are given."""

from __future__ import annotations

import json
import os
import socket
import ssl
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.cli.exits import FAILED, OK, CommandFailed
from ottla.cli.main import main
from ottla.cli.security import authority, secured
from ottla.client.properties import read_file
from ottla.client.security_settings import parse_security
from tests.unit.client.secure_broker import SecureBroker


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory as `ottla cluster up --secure` leaves it."""
    directory = tmp_path / "a cluster"
    secured.make_authority(directory)
    for number in (1, 2):
        place = directory / f"node-{number}"
        place.mkdir()
        secured.write_certificate(directory, place / secured.NODE_FILE, "10.0.0.1", "broker.example.org")
    secured.client_files(directory, "127.0.0.1:9092", secured.new_password())
    return directory


def context_of(file: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


def test_a_certificate_serves_and_is_shown_by_clients(root: Path) -> None:
    """Both ways, with OpenSSL's strictest checks (RFC 5280): of the certificate and of the authority."""
    ca, node = root / secured.SECURITY / authority.CA_FILE, root / "node-1" / secured.NODE_FILE
    server, client = context_of(node), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.verify_mode = ssl.CERT_REQUIRED
    client.load_cert_chain(root / "node-2" / secured.NODE_FILE)
    for each in (server, client):
        each.load_verify_locations(ca)
        each.verify_flags |= ssl.VERIFY_X509_STRICT
    for name in ("127.0.0.1", "localhost", "10.0.0.1", "broker.example.org", socket.gethostname()):
        shake(server, client, name)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(server, client, "elsewhere.example.org")


def shake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname=name)
    other = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for each in (one, other):
            try:
                each.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert one.version() == "TLSv1.3" and other.getpeercert()


def test_keys_are_for_their_owner_alone(root: Path) -> None:
    modes = {
        str(file.relative_to(root)): stat.S_IMODE(file.stat().st_mode) for file in root.rglob("*") if file.is_file()
    }
    assert modes == {
        "security/ca.pem": 0o644,
        "security/ca-key.pem": 0o600,
        "node-1/node.pem": 0o600,
        "node-2/node.pem": 0o600,
        "client.properties": 0o600,
        "librdkafka.properties": 0o600,
        "spark.properties": 0o600,
    }
    assert stat.S_IMODE((root / secured.SECURITY).stat().st_mode) == 0o700


def test_the_files_of_clients_say_the_same(root: Path) -> None:
    by_kafka, by_librdkafka = (read_file(root / name) for name in (secured.CLIENT, secured.LIBRDKAFKA))
    found = parse_security(by_kafka)
    assert found == parse_security(by_librdkafka)
    assert found.login is not None and (found.login.mechanism, found.login.username) == ("SCRAM-SHA-256", "admin")
    assert len(found.login.password.reveal()) == 32
    of_spark = read_file(root / secured.SPARK)
    assert by_kafka.pop("schema.registry.basic.auth.credentials.source") == "SASL_INHERIT"
    assert {name.removeprefix("kafka."): value for name, value in of_spark.items()} == by_kafka


def test_the_administrator_logs_in_by_what_is_written(root: Path) -> None:
    from ottla.client.config import ClientConfig
    from ottla.client.connection import Connection

    given = read_file(root / secured.CLIENT)
    security = parse_security(given)
    assert security.login is not None
    users = {"admin": security.login.password.reveal()}
    with SecureBroker(context_of(root / "node-1" / secured.NODE_FILE), users, ("SCRAM-SHA-256",)) as broker:
        Connection("127.0.0.1", broker.port, ClientConfig((broker.address,), security=security)).close()
        assert broker.names == ["admin"]


def test_the_records_of_the_administrator_hold_the_password() -> None:
    from ottla.security.sasl import scram

    for record in secured.credentials("a password"):
        mechanism = scram.BY_NUMBER[record.mechanism]
        salted = scram.salted_password(mechanism, "a password", record.salt, record.iterations)
        known = scram.credential(mechanism, salted, record.salt, record.iterations)
        assert (record.name, record.stored_key, record.server_key) == ("admin", known.stored_key, known.server_key)


def test_show_and_renew(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cert", "show", str(root), "--json"]) == OK
    before = json.loads(capsys.readouterr().out)
    assert [(row["subject"], row["is_ca"]) for row in before] == [
        ("CN=Ottla CA of a cluster", True),
        ("CN=node", False),
        ("CN=node", False),
    ]
    assert {"10.0.0.1", "broker.example.org", "127.0.0.1"} <= set(before[1]["names"])
    assert before[1]["days_left"] in (395, 396, 397) and before[0]["days_left"] > 3000
    assert main(["cert", "renew", str(root), "--days", "30"]) == OK
    assert capsys.readouterr().out.count("valid until") == 2
    node = root / "node-1" / secured.NODE_FILE
    (after,) = authority.shown_file(node)
    assert after.days_left(datetime.now(UTC)) in (29, 30) and set(after.names) == set(before[1]["names"])
    assert stat.S_IMODE(node.stat().st_mode) == 0o600 and not list(root.rglob(".*")), "nothing is left beside it"
    context_of(node)  # the key belongs to it
    with SecureBroker(context_of(node)) as broker:
        assert main(["cert", "show", broker.address]) == OK
        assert "CN=node" in capsys.readouterr().out
    with SecureBroker() as plain:
        assert main(["cert", "show", plain.address]) != OK


def test_an_expired_certificate_is_a_failure(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.unit.client.secure_broker import authority as other
    from tests.unit.client.secure_broker import issued

    file = root / "old.pem"
    file.write_bytes(issued(other(), "old", ("h",), days=-1).pem)
    assert main(["cert", "show", str(file)]) == FAILED
    assert "CN=old" in capsys.readouterr().out
    assert main(["cert", "show", str(root / "node-1")]) == FAILED
    assert "not made with --secure" in capsys.readouterr().err
    assert main(["cert", "renew", str(root / "node-1")]) == FAILED


def test_the_variables_of_a_shell(root: Path) -> None:
    program = f'eval "$({sys.executable} -m ottla security env "$1")"; echo "$OTTLA_CLIENT_CONFIG|$OTTLA_BOOTSTRAP"'
    out = subprocess.run(["sh", "-c", program, "sh", str(root)], capture_output=True, text=True, check=True).stdout
    assert out == f"{root / secured.CLIENT}|127.0.0.1:9092\n"


def test_a_directory_without_security(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["security", "env", str(tmp_path)]) == FAILED
    assert "ottla cluster up --secure" in capsys.readouterr().err


def test_a_directory_in_which_others_may_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a directory that all share, such as /tmp, another user may have made DATA-security with an authority of his
    own, or may put one into it."""
    root = tmp_path / "data-security"
    place = root / secured.SECURITY
    for each in (root, place):
        place.mkdir(parents=True, exist_ok=True)
        each.chmod(0o777)
        with pytest.raises(CommandFailed, match=f"anybody may write in {each}"):
            secured.make_authority(root)
        with pytest.raises(CommandFailed, match=f"anybody may write in {each}"):
            secured.single_node(str(tmp_path / "data"), "127.0.0.1:9092")
        each.chmod(0o775)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    real = Path.stat

    def of_another(path: Path, **more: Any) -> Any:
        found = real(path, **more)
        return SimpleNamespace(st_uid=4712, st_mode=found.st_mode) if path == root else found

    monkeypatch.setattr(Path, "stat", of_another)
    with pytest.raises(CommandFailed, match=f"{root} belongs to another user"):
        secured.single_node(str(tmp_path / "data"), "127.0.0.1:9092")
    assert not list(place.iterdir()) and not (tmp_path / "data").exists()
