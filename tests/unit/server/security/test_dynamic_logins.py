"""Settings of logins changed while a node runs: they count for the next login, or are refused in the answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.messages import ApiKey
from ottla.security.sasl import jaas
from ottla.server.node import Node
from tests.unit.server.node import Client
from tests.unit.server.security.test_authentication import (
    PREFIX,
    authenticate,
    connect,
    handshake,
    log_in,
    metadata,
    secured,
)
from tests.unit.server.stub import run

JAAS = f"{PREFIX}plain.sasl.jaas.config"
BOB = f'{jaas.PLAIN_MODULE} required user_bob="cAnArY-bob" user_admin="admin-secret";'


async def alter(client: Client, changes: dict[str, str | None], broker: str = "1") -> tuple[int, str]:
    configs = [
        {"name": name, "config_operation": 1 if text is None else 0, "value": text} for name, text in changes.items()
    ]
    resource = {"resource_type": 4, "resource_name": broker, "configs": configs}
    answer = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})
    row = answer["responses"][0]
    return row["error_code"], row["error_message"] or ""


async def logged_in(node: Node, name: str, password: str) -> Client | None:
    client = await connect(node)
    if (await log_in(client, name, password))["error_code"]:
        return None
    return client


async def admin(node: Node) -> Client:
    found = await logged_in(node, "admin", "admin-secret")
    assert found is not None
    return found


def test_users_come_and_go(tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path) as node:
            client, alice = await admin(node), await logged_in(node, "alice", "alice-secret")
            assert alice is not None and await logged_in(node, "bob", "cAnArY-bob") is None
            begun = await connect(node)
            await handshake(begun)
            assert await alter(client, {JAAS: BOB}) == (0, "")
            assert await logged_in(node, "bob", "cAnArY-bob") is not None
            assert await logged_in(node, "alice", "alice-secret") is None
            await metadata(alice)  # who is logged in stays so, as in Kafka
            asked = {"resource_type": 4, "resource_name": "1", "configuration_keys": [JAAS]}
            shown = await client.ask(
                ApiKey.DESCRIBE_CONFIGS,
                4,
                {"resources": [asked], "include_synonyms": True, "include_documentation": False},
            )
            assert "cAnArY" not in str(shown) and "cAnArY" not in repr(node.config)
            assert await alter(client, {JAAS: None}) == (0, "")
            assert await logged_in(node, "alice", "alice-secret") is not None
            begun.close()

    run(test())


def test_mechanisms_and_sessions(tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path) as node:
            client, under_way = await admin(node), await connect(node)
            assert (await handshake(under_way))["error_code"] == 0
            assert await alter(client, {f"{PREFIX}plain.connections.max.reauth.ms": "60000"}) == (0, "")
            answer = await log_in(await connect(node), "admin", "admin-secret")
            assert answer["session_lifetime"] == 60_000
            assert await alter(client, {f"{PREFIX}sasl.enabled.mechanisms": "SCRAM-SHA-256"}) == (0, "")
            refused = await handshake(await connect(node))
            assert refused == {"error_code": 33, "mechanisms": ["SCRAM-SHA-256"]}
            late = await authenticate(under_way, b"\0alice\0alice-secret")
            assert late["error_code"] == 58, "a login that had begun is refused, and nothing else happens to it"
            await metadata(client)

    run(test())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({JAAS: "nonsense cAnArY"}, JAAS),
        ({JAAS: "com.evil.Module required cAnArY=1;"}, JAAS),
        ({JAAS: f'{jaas.SCRAM_MODULE} required username="a" password="cAnArY";'}, "PLAIN needs"),
        ({f"{PREFIX}sasl.enabled.mechanisms": "NONSENSE"}, "NONSENSE"),
        ({f"{PREFIX}sasl.enabled.mechanisms": ""}, "is empty"),
        ({f"{PREFIX}sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER"}, "has no keys to check tokens with"),
        ({f"{PREFIX}oauthbearer.sasl.oauthbearer.jwks.endpoint.url": "https://evil/keys"}, "only the node's own file"),
        ({f"{PREFIX}plain.sasl.server.callback.handler.class": "java.lang.String"}, "only the node's own file"),
        ({"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"}, "at start only"),
        ({f"{PREFIX}sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"}, "at start only"),
        ({"sasl.jaas.config": BOB}, "with the names of a listener and a mechanism"),
        ({"principal.builder.class": "java.lang.String"}, "at start only"),
        ({"super.users": "User:eve"}, "at start only"),
        ({"allow.everyone.if.no.acl.found": "true"}, "at start only"),
        ({"sasl.login.refresh.window.factor": "0.7"}, "only the node's own file"),
        ({"listener.name.other.plain.sasl.jaas.config": BOB}, "no listener OTHER with SASL"),
        ({"listener.name.http.plain.sasl.jaas.config": BOB}, "at start only"),
    ],
)
def test_what_would_have_no_effect_or_lock_everybody_out_is_refused(
    tmp_path: Path, changes: dict[str, str | None], said: str
) -> None:
    async def test() -> None:
        async with secured(tmp_path) as node:
            client = await admin(node)
            code, message = await alter(client, changes)
            assert code == 42 and said in message and "cAnArY" not in message, message
            assert (await alter(client, {"log.cleaner.threads": "2"}))[0] == 0, "others as ever"
            assert await logged_in(node, "alice", "alice-secret") is not None

    run(test())


def test_a_record_of_other_software_changes_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    """Kafka's brokers accept more: what cannot be used leaves the logins as they were."""
    from ottla.server.handlers.configs import alter_configs
    from ottla.server.security import dynamic_logins

    monkeypatch.setattr(dynamic_logins, "refusals", lambda *_, **__: {})
    monkeypatch.setattr(alter_configs, "_refused_logins", lambda *_, **__: {})

    async def test() -> None:
        async with secured(tmp_path) as node:
            client = await admin(node)
            assert await alter(client, {JAAS: "nonsense"}) == (0, "")
            await asyncio.sleep(0)
            assert await logged_in(node, "alice", "alice-secret") is not None

    run(test())
