"""Commands at listeners with TLS and a login: where their settings come from, what they say when a connection fails,
and that no secret is in any of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli import argument_secrets, client_security
from ottla.cli.exits import FAILED, MISUSED, OK, UNREACHABLE
from ottla.cli.main import main
from ottla.cli.options import asked_at
from tests.unit.client.secure_broker import SecureBroker, authority, issued, server_context

CANARY = "cAnArY-93c1"
USERS = {"ann": CANARY}
COMMAND = ["group", "list"]


@pytest.fixture(autouse=True)
def _no_settings_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("OTTLA_CLIENT_", "OTTLA_MIRROR_", "OTTLA_BOOTSTRAP")):
            monkeypatch.delenv(name)


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
        f'  username="ann" password="{CANARY}";\n'
    )
    return file


def test_a_wrong_password_ends_a_command_at_once(properties: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with SecureBroker(users={"ann": "another"}, mechanisms=("SCRAM-SHA-256",)) as broker:
        for command in (["cluster", "describe"], ["topic", "list"], ["consume", "t"], ["sql", "select 1 from t"]):
            code = main([*command, "-b", broker.address, "--config", str(properties)])
            printed = capsys.readouterr()
            assert code == FAILED, command
            assert "refused the login as ann" in printed.err and "check sasl.username" in printed.err
            assert CANARY not in printed.out + printed.err
        assert main(["topic", "list", "--json", "-b", broker.address, "--command-config", str(properties)]) == FAILED
        assert "refused the login" in json.loads(capsys.readouterr().err)["error"]


def test_the_environment_and_its_file(
    properties: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with SecureBroker(users=USERS, mechanisms=("SCRAM-SHA-256",)) as broker:
        properties.write_text(f"{properties.read_text()}bootstrap.servers={broker.address}\n")
        monkeypatch.setenv("OTTLA_CLIENT_CONFIG", str(properties))
        client_security.use(None)
        assert client_security.bootstrap_of_file() == broker.address
        main(["topic", "list"])  # the broker answers no more than Metadata
        assert broker.names and set(broker.names) == {"ann"}
        monkeypatch.setenv("OTTLA_CLIENT_SASL_PASSWORD", "other")
        capsys.readouterr()
        assert main(["topic", "list"]) == FAILED
        assert "refused the login" in capsys.readouterr().err
        monkeypatch.delenv("OTTLA_CLIENT_CONFIG")
        monkeypatch.delenv("OTTLA_CLIENT_SASL_PASSWORD")
        broker.names.clear()
        assert main(["topic", "list", "-b", broker.address]) == UNREACHABLE
        said = capsys.readouterr().err
        assert "wants a login: set security.protocol=SASL_PLAINTEXT in a file for --config" in said
        assert not broker.names


def test_librdkafka_gets_the_settings(properties: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with SecureBroker(users=USERS, mechanisms=("SCRAM-SHA-256",)) as broker:
        assert main(["topic", "list", "-b", broker.address, "--config", str(properties)]) == OK
        assert len(broker.names) >= 2, "the probe and librdkafka"
    assert CANARY not in "".join(capsys.readouterr())


def test_tls_is_named_where_it_is_met(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ca = authority()
    pair = issued(ca, "b", ("127.0.0.1",))
    (tmp_path / "other.pem").write_bytes(authority("Other").pem)
    file = tmp_path / "tls.properties"
    file.write_text(f"security.protocol=SSL\nssl.ca.location={tmp_path / 'other.pem'}\n")
    with SecureBroker(server_context(pair, tmp_path)) as broker:
        assert main([*COMMAND, "-b", broker.address, "--config", str(file)]) == FAILED
        assert "is not trusted" in capsys.readouterr().err
        assert main(["topic", "list", "-b", broker.address]) == UNREACHABLE
        assert "security.protocol=S" in capsys.readouterr().err
    with SecureBroker() as plain:
        assert main([*COMMAND, "-b", plain.address, "--config", str(file)]) == UNREACHABLE
        assert "if its listener has no TLS, set security.protocol=PLAINTEXT" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("security.protocol=TLS\n", "security.protocol: expected one of"),
        ("security.protocol=SSL\nssl.trusstore.location=/x\n", "did you mean ssl.truststore.location"),
        (f"sasl.password={CANARY}\n", "set security.protocol=SASL_SSL"),
    ],
)
def test_wrong_settings(text: str, wanted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.properties"
    file.write_text(text)
    assert main(["topic", "list", "-b", "127.0.0.1:1", "--config", str(file)]) == MISUSED
    said = capsys.readouterr().err
    assert wanted in said and str(file) in said and CANARY not in said
    assert main(["topic", "list", "--config", str(tmp_path / "none")]) == MISUSED
    assert "cannot be read" in capsys.readouterr().err


def test_a_wrong_certificate_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.properties"
    file.write_text(f"security.protocol=SSL\nssl.ca.location={tmp_path}/none.pem\n")
    with SecureBroker() as broker:
        assert main(["topic", "list", "-b", broker.address, "--config", str(file)]) == FAILED
    assert "none.pem cannot be read: No such file" in capsys.readouterr().err


def test_hints_name_the_file_too(properties: Path) -> None:
    client_security.use(properties)
    try:
        assert asked_at("ottla topic list", "h:1") == f"ottla topic list -b h:1 --config {properties}"
    finally:
        client_security.use(None)


def test_a_mirror_sends_nothing_of_one_cluster_to_the_other(
    properties: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client_security.use(properties)
    assert client_security.current().login is not None and client_security.of_source().login is None
    both = tmp_path / "mirror.properties"
    both.write_text(
        "source.security.protocol=SASL_PLAINTEXT\nsource.sasl.mechanism=PLAIN\nsource.sasl.username=s\n"
        f"source.sasl.password={CANARY}\ntarget.security.protocol=SSL\n"
    )
    client_security.use(both)
    source = client_security.of_source()
    assert source.login is not None and source.login.username == "s"
    assert client_security.current().protocol == "SSL" and client_security.current().login is None
    client_security.use(both, properties)
    source = client_security.of_source()
    assert source.login is not None and (source.login.mechanism, source.login.username) == ("SCRAM-SHA-256", "ann")
    for name, value in (
        ("SECURITY_PROTOCOL", "SASL_PLAINTEXT"),
        ("SASL_MECHANISM", "PLAIN"),
        ("SASL_USERNAME", "e"),
        ("SASL_PASSWORD", "p"),
    ):
        monkeypatch.setenv(f"OTTLA_MIRROR_FROM_{name}", value)
    client_security.use(None)
    source = client_security.of_source()
    assert source.login is not None and source.login.username == "e" and client_security.current().login is None


def test_secrets_among_arguments_are_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    shown = list(
        argument_secrets.secrets_in(
            [
                "pipeline",
                "run",
                "x",
                "--set",
                "password=a",
                "--set=topics=a",
                "-s",
                f"dsn=postgresql://u:{CANARY}@h/d",
                "--spark",
                "spark.ssl.keyPassword=x",
                "--registry",
                f"http://u:{CANARY}@h:1",
                "--set",
                f"dsn=host=h password={CANARY}",
                "--add-scram",
                f"SCRAM-SHA-256=[name=admin,password={CANARY}]",
                "--",
                "--set",
                "password=b",
            ]
        )
    )
    assert shown == [
        "--set password",
        "-s dsn",
        "--spark spark.ssl.keyPassword",
        "--registry",
        "--set dsn",
        "--add-scram SCRAM-SHA-256",
    ]
    assert not list(
        argument_secrets.secrets_in(
            ["produce", "t", "password=a", "--set", "retention.ms=1", "--registry", "http://h:1"]
        )
    )
    main(["schema", "list", "--registry", f"http://u:{CANARY}@127.0.0.1:1"])
    said = capsys.readouterr().err
    assert "--registry has a secret" in said and CANARY not in said


def test_no_help_asks_for_a_password() -> None:
    """`ps` shows arguments: no option takes a secret."""
    from ottla.cli.app import COMMANDS

    environment = {
        **os.environ,
        "COLUMNS": "200",
        "OTTLA_CLIENT_SASL_PASSWORD": CANARY,
        "OTTLA_CLIENT_SECURITY_PROTOCOL": "SASL_SSL",
    }
    program = (
        "import sys\nfrom ottla.cli.main import main\n"
        f"for name in {['topic', 'produce', 'mirror', 'pipeline', 'registry']!r}:\n"
        "    main([name, '--help']); main([name, 'run', '--help'])\n"
    )
    assert "topic" in COMMANDS
    out = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert CANARY not in out.stdout + out.stderr and "--config" in out.stdout
