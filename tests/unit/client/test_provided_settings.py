"""`config.providers` in a client's file (KIP-421): passwords from files and variables, and never from anywhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.client.properties import read_file, security_from
from ottla.client.security_settings import WrongSecurity

CANARY = "canary-c0ffee"
PROVIDER = "org.apache.kafka.common.config.provider."


@pytest.fixture
def client_file(tmp_path: Path) -> Path:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "password").write_text(f"{CANARY}\n")
    file = tmp_path / "client.properties"
    file.write_text(
        "config.providers=dir,env\n"
        f"config.providers.dir.class={PROVIDER}DirectoryConfigProvider\n"
        f"config.providers.dir.param.allowed.paths={tmp_path}/secrets\n"
        f"config.providers.env.class={PROVIDER}EnvVarConfigProvider\n"
        "config.providers.env.param.allowlist.pattern=CLIENT_.*\n"
        "bootstrap.servers=${env:CLIENT_BROKERS}\n"
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
        f'    username="${{env:CLIENT_USER}}" password="${{dir:{tmp_path}/secrets:password}}";\n'
    )
    return file


def test_a_clients_file(client_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLIENT_BROKERS", "h:1")
    monkeypatch.setenv("CLIENT_USER", "alice")
    found = read_file(client_file)
    assert found["bootstrap.servers"] == "h:1" and not any(name.startswith("config.providers") for name in found)
    assert {type(text) for text in found.values()} == {str}, "librdkafka takes nothing else"
    security = security_from({}, {"OTTLA_CLIENT_CONFIG": str(client_file)})
    assert security.login is not None and (security.login.username, security.login.password.reveal()) == (
        "alice",
        CANARY,
    )
    assert CANARY not in repr(security)


def test_what_is_missing_is_an_error_without_a_value(client_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLIENT_BROKERS", "h:1")
    monkeypatch.delenv("CLIENT_USER", raising=False)
    with pytest.raises(WrongSecurity) as refused:
        read_file(client_file)
    said = str(refused.value)
    assert said.startswith(f"{client_file}: setting sasl.jaas.config: ${{env:CLIENT_USER}}: the environment has no")
    assert CANARY not in said
    client_file.write_text(client_file.read_text().replace("/secrets\n", "/elsewhere\n"))
    monkeypatch.setenv("CLIENT_USER", "alice")
    with pytest.raises(WrongSecurity, match="is not below"):
        read_file(client_file)


def test_options_and_variables_are_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options of Spark may come from others than who owns the process."""
    text = "${env:HOME}"
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": text,
    }
    security = security_from(given, {})
    assert security.login is not None and security.login.password.reveal() == text
