"""A walk over all settings that are passwords: each reaches code as a `Secret`, and no repr, log, page, dump, error or
audit line of a node shows one, whether it came from the file, the environment or a client."""

from __future__ import annotations

import asyncio
import logging
import traceback
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.log.decoders import decode_metadata
from ottla.config import definitions
from ottla.config.describe import broker_entries, cluster_entries
from ottla.config.effective import EffectiveConfig
from ottla.config.listener_settings import of_listener, of_mechanism
from ottla.config.secret import Secret
from ottla.config.server import ServerConfig, SettingsFile, variable_of
from ottla.config.setting import Type
from ottla.drivers.nodes.jaas_settings import in_file, jaas_of
from ottla.errors import OttlaError
from ottla.logs import JsonFormatter, TextFormatter
from ottla.protocol.internal.metadata_records import encode_record
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import Record
from ottla.protocol.schemas.records import ConfigRecord
from tests.unit.server.http.test_http import get
from tests.unit.server.node import Client
from tests.unit.server.security.test_audit import audited
from tests.unit.server.security.test_authentication import PREFIX, closed, connect, log_in

CANARY = "canary-c0ffee"
PASSWORDS = sorted(name for name, setting in definitions.BROKER.items() if setting.type is Type.PASSWORD)
ASKED_OF_KAFKA = {
    "delegation.token.secret.key", "sasl.jaas.config", "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.client.credentials.client.secret", "ssl.key.password", "ssl.keystore.certificate.chain",
    "ssl.keystore.key", "ssl.keystore.password", "ssl.truststore.certificates", "ssl.truststore.password",
}  # fmt: skip
"""Every setting of a broker that DescribeConfigs of Kafka 4.3.0 has as a password."""

OF_ZOOKEEPER = {
    "password.encoder.secret", "password.encoder.old.secret", "zookeeper.ssl.keystore.password",
    "zookeeper.ssl.truststore.password",
}  # fmt: skip
"""Passwords that Kafka had until 3.9."""

SOUNDS_SECRET = ("password", "passphrase", "secret", "jaas.config", "keystore.key", "certificate")
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="{CANARY}";'


def everywhere(name: str) -> list[str]:
    return [name, f"listener.name.external.{name}", f"listener.name.external.scram-sha-512.{name}"]


def value_of(name: str) -> str:
    return JAAS if name.endswith("jaas.config") else CANARY


def test_the_table_has_all_passwords_as_such() -> None:
    assert set(PASSWORDS) == ASKED_OF_KAFKA | OF_ZOOKEEPER
    tables = (definitions.BROKER, definitions.TOPIC, definitions.GROUP, definitions.CLIENT_METRICS)
    sounds = {name for table in tables for name in table if any(each in name for each in SOUNDS_SECRET)}
    assert sounds - set(PASSWORDS) == set()
    assert all(definitions.is_sensitive(each) for name in PASSWORDS for each in everywhere(name))


@pytest.mark.parametrize("name", PASSWORDS)
def test_each_reaches_code_as_a_secret_and_is_shown_nowhere(name: str) -> None:
    text = value_of(name)
    lines = "\n".join(f"{each}={text}" for each in everywhere(name)).encode()
    config = ServerConfig.load(SettingsFile("node.properties", lines), {}, {})
    by_variable = ServerConfig.load(None, {}, {variable_of(name): text})
    by_option = ServerConfig.load(None, {name: text}, {})
    dynamic = EffectiveConfig({}, {name: text}, {f"listener.name.external.{name}": text})
    found = [
        config[name],
        by_variable[name],
        by_option[name],
        of_listener(config, "EXTERNAL", name),
        of_mechanism(config, "EXTERNAL", "SCRAM-SHA-512", name),
        in_file(config, "EXTERNAL", "SCRAM-SHA-512", name),
    ]
    assert [type(each) for each in found] == [Secret] * 6 and {each.reveal() for each in found} == {text}
    assert all(type(config.static[each]) is Secret for each in everywhere(name))
    login = jaas_of(config, "EXTERNAL", "SCRAM-SHA-512") if name == "sasl.jaas.config" else None
    entries = [*broker_entries(config.effective), *broker_entries(dynamic), *cluster_entries(dynamic)]
    shown = [
        repr(found),
        f"{found[0]} {found[3]}",
        str(dict(config)),
        repr(config.static),
        repr(login),
        str(entries),
        str(config.text(name)),
        str(config.without_effect),
        repr(config.effective.parsed),
        repr(ConfigRecord(4, "1", f"listener.name.external.{name}", text)),
    ]
    assert CANARY not in "\n".join(shown)


@pytest.mark.parametrize("name", [*PASSWORDS, "listener.name.external.ssl.key.password", "my.plugin.secret"])
def test_a_dump_of_the_metadata_hides_it(name: str) -> None:
    value = encode_record(ConfigRecord(4, "1", name, value_of(name)), 0)
    dumped = decode_metadata(Record(0, 0, None, value, (), 0))
    assert CANARY not in str(dumped) and "[hidden]" in str(dumped)


@pytest.mark.parametrize(
    "line",
    [
        f"ssl.keystore.pasword={CANARY}",
        f"listener.name.external.ssl.key.pasword={CANARY}",
        f'sasl.jaas.config=org.example.Login required password="{CANARY}";',
        f"num.io.threads={CANARY}x",
    ],
)
def test_errors_of_passwords_name_the_setting_alone(line: str) -> None:
    """A mistyped name is the likeliest mistake; what is no password by its name may be shown."""
    try:
        config = ServerConfig.load(SettingsFile("node.properties", line.encode()), {}, {})
        said = str(config.without_effect)
    except OttlaError as error:
        said = "".join(traceback.format_exception(error))
        assert line.partition("=")[0] in said
    assert (CANARY in said) == line.startswith("num.io.threads")


def test_a_running_node_shows_none(tmp_path: Path) -> None:
    """Everything that a node says, at DEBUG, while clients log in and fail to, and change passwords."""
    said: list[str] = []

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.extend((TextFormatter().format(record), JsonFormatter().format(record), repr(record.args)))

    heard, root = Heard(), logging.getLogger()
    level = root.level
    root.addHandler(heard)
    root.setLevel(logging.DEBUG)
    logging.getLogger("ottla").setLevel(logging.DEBUG)
    settings = {
        f"{PREFIX}plain.sasl.jaas.config": JAAS.replace(";", f' user_admin="{CANARY}" user_alice="{CANARY}";'),
        "delegation.token.secret.key": CANARY,
        "sasl.oauthbearer.client.credentials.client.secret": CANARY,
        "ssl.keystore.password": CANARY,
        "ottla.http.listener": "127.0.0.1:0",
    }

    async def test() -> None:
        async with audited(tmp_path, settings) as node:
            wrong = await connect(node)
            said.append(str(await log_in(wrong, "admin", f"{CANARY}-wrong")))
            await closed(wrong)
            client = await connect(node)
            assert (await log_in(client, "admin", CANARY))["error_code"] == 0
            for name, value in (
                ("listener.name.sasl_plaintext.ssl.keystore.password", CANARY),
                ("listener.name.sasl_plaintext.plain.sasl.jaas.config", JAAS),
                ("listener.name.sasl_plaintext.ssl.keystore.pasword", CANARY),
                ("ssl.key.password", CANARY),
                ("delegation.token.secret.key", CANARY),
                ("my.plugin.secret", CANARY),
            ):
                said.append(str(await _set(client, name, value)))
            said.append(str(await _settings(client)))
            assert node.http is not None
            said.extend([str(await get(node, page)) for page in ("/metrics", "/health", "/ready")])
            said.extend((repr(node.config.static), repr(node.image.configs), repr(node), str(vars(node.config))))

    try:
        asyncio.run(test())
    finally:
        root.removeHandler(heard)
        root.setLevel(level)
        logging.getLogger("ottla").setLevel(logging.NOTSET)
    said.extend(each.read_text() for each in (tmp_path / "audit").rglob("*") if each.is_file())
    assert any("authentication failed" in each for each in said) and any(
        "IncrementalAlterConfigs" in each for each in said
    )
    assert [each for each in said if CANARY in each] == []


async def _set(client: Client, name: str, value: str) -> Any:
    setting = {"name": name, "config_operation": 0, "value": value}
    resources = [{"resource_type": 4, "resource_name": "1", "configs": [setting]}]
    return await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": resources, "validate_only": False})


async def _settings(client: Client) -> Any:
    resources = [{"resource_type": 4, "resource_name": "1", "configuration_keys": None}]
    asked = {"resources": resources, "include_synonyms": True, "include_documentation": False}
    return await client.ask(ApiKey.DESCRIBE_CONFIGS, 4, asked)
