"""A node whose passwords come from `config.providers`: clients log in, and nobody is shown one or reads a file through
the node (CVE-2024-31141)."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

from ottla.cli.server.start import outside
from ottla.clock import SystemClock
from ottla.config.server import ServerConfig, SettingsFile
from ottla.filesystem import OsFileSystem
from ottla.network import SystemNetwork
from ottla.protocol.messages import ApiKey
from ottla.server.node import Node
from tests.certificates import Authority, ssl_settings
from tests.unit.server.node import Client
from tests.unit.server.security.test_authentication import PREFIX, SETTINGS, closed, connect, log_in

CANARY = "canary-c0ffee"


def config_of(directory: Path) -> ServerConfig:
    secret = f"${{file:{directory}/secrets:pw}}"
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{secret}"'
    authority = Authority()
    tls = ssl_settings(directory / "tls", authority, authority.issue("node"))
    lines = {
        **SETTINGS,
        **tls,
        f"{PREFIX}plain.sasl.jaas.config": f'{jaas} username="${{env:NODE_USER}}" password="x";',
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:${env:NODE_PORT}",
        "log.dirs": f"{directory}/data",
        "config.providers": "file,env",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "config.providers.file.param.allowed.paths": str(directory),
        "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    }
    (directory / "secrets").write_text(f"pw={CANARY}\n")
    data = "\n".join(f"{name}={text}" for name, text in lines.items()).encode()
    environ = {"NODE_USER": "alice", "NODE_PORT": "0"}
    return ServerConfig.load(SettingsFile("node.properties", data), {}, {}, lambda: "h", lambda: outside(environ))


async def settings_of(client: Client) -> dict[str, Any]:
    resources = [{"resource_type": 4, "resource_name": "1", "configuration_keys": None}]
    answer = await client.ask(
        ApiKey.DESCRIBE_CONFIGS, 4, {"resources": resources, "include_synonyms": True, "include_documentation": False}
    )
    return {each["name"]: each for each in answer["results"][0]["configs"]}


def test_a_node(tmp_path: Path) -> None:
    async def test() -> None:
        config = config_of(tmp_path)
        node = Node(config, OsFileSystem(), SystemClock(), random.Random(1), SystemNetwork())
        await node.start()
        try:
            stranger = await connect(node)
            assert (await log_in(stranger, "alice", "[hidden]"))["error_code"] == 58
            await closed(stranger)
            client = await connect(node)
            assert (await log_in(client, "alice", CANARY))["error_code"] == 0
            shown = await settings_of(client)
            assert shown["listeners"]["value"] is None and shown["listeners"]["is_sensitive"]
            assert CANARY not in str(shown)
            text = f"${{file:{tmp_path}/secrets:pw}}"
            setting = {"name": "listener.name.ssl.ssl.keystore.location", "config_operation": 0, "value": text}
            resource = {"resource_type": 4, "resource_name": "1", "configs": [setting]}
            asked = {"resources": [resource], "validate_only": False}
            answer = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked)
            assert answer["responses"][0]["error_code"] == 42 and CANARY not in str(answer), "no such file"
            await client.create("orders", {"leader.replication.throttled.replicas": "0:1"})
            refused = await client.ask(
                ApiKey.INCREMENTAL_ALTER_CONFIGS,
                1,
                {
                    "resources": [
                        {
                            "resource_type": 2,
                            "resource_name": "orders",
                            "configs": [{"name": "retention.ms", "config_operation": 0, "value": text}],
                        }
                    ],
                    "validate_only": False,
                },
            )
            assert refused["responses"][0]["error_code"] == 40 and CANARY not in str(refused)
            client.close()
        finally:
            await node.stop()

    asyncio.run(test())
