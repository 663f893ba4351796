"""A node with canaries for secrets, of every kind that it is given, used well and badly with the log at DEBUG: what it
leaves behind is searched for them.

It finds holes such as CVE-2023-24619.
"""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.messages import ApiKey
from ottla.security.sasl import scram
from ottla.security.sasl.client import OAuthBearerClient, PlainClient, ScramClient
from ottla.testing.process import reserve
from tests.certificates import Authority
from tests.node import NodeProcess
from tests.unit.server.node import Client

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def canary(what: str) -> str:
    return f"cAnArY-{what}-7d1f"


USED = {what: canary(what) for what in ("plain", "keystore", "scram", "tokens", "dynamic", "dynamicjaas")}
"""Secrets that a node is given."""
MISUSED = {
    what: canary(what)
    for what in (
        "wrongplain",
        "rawplain",
        "bearer",
        "scramproof",
        "badconfig",
        "unknownconfig",
        "badscram",
        "cli",
    )
}
"""Secrets that are sent to the wrong place: mistyped, refused, cut off."""
IN_METADATA = {"keystore", "dynamic", "dynamicjaas", "unknownconfig"}
"""As Kafka's, the log of the metadata and its snapshots have dynamic settings as they are."""


class Node:
    """A node whose settings are in a file, with a listener for each way to log in."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.held = [reserve(0) for _ in range(3)]
        self.plain, self.secured, self.http = (each.getsockname()[1] for each in self.held)
        authority = Authority()
        identity = authority.issue("node")
        self.key = "".join(identity.key_pem().splitlines()[1:-1])
        (directory / "keys.p12").write_bytes(identity.pkcs12(USED["keystore"]))
        (directory / "ca.pem").write_text(authority.pem)
        self.settings = directory / "server.properties"
        prefix = "listener.name.sasl_plaintext."
        users = f'user_admin="{USED["plain"]}" username="admin" password="{USED["plain"]}"'
        self.settings.write_text(
            f"listeners=SASL_PLAINTEXT://127.0.0.1:{self.plain},SSL://127.0.0.1:{self.secured}\n"
            f"log.dirs={directory / 'data'}\n"
            "inter.broker.listener.name=SASL_PLAINTEXT\nsasl.mechanism.inter.broker.protocol=PLAIN\n"
            "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,OAUTHBEARER\nottla.sasl.oauthbearer.unsecured.tokens=true\n"
            f"{prefix}plain.sasl.jaas.config={PLAIN_MODULE} required {users};\n"
            f"ssl.keystore.type=PKCS12\nssl.keystore.location={directory / 'keys.p12'}\n"
            f"ssl.keystore.password={USED['keystore']}\nssl.truststore.type=PEM\n"
            f"ssl.truststore.location={directory / 'ca.pem'}\ndelegation.token.secret.key={USED['tokens']}\n"
            "connection.failed.authentication.delay.ms=0\nottla.log.level=DEBUG\nottla.log.slow.request.ms=0\n"
            f"ottla.http.listener=127.0.0.1:{self.http}\nmetadata.log.max.record.bytes.between.snapshots=100\n"
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\nsuper.users=User:admin\n"
        )
        self.process = NodeProcess(directory / "node", config=self.settings, port=self.plain)

    async def connect(self) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", self.plain, limit=1 << 24))

    async def shaken(self, mechanism: str) -> Client:
        client = await self.connect()
        asked = {"mechanism": mechanism}
        assert (await client.ask(ApiKey.SASL_HANDSHAKE, 1, asked))["error_code"] == 0
        return client

    async def admin(self) -> Client:
        client = await self.shaken("PLAIN")
        token = PlainClient("admin", USED["plain"]).first()
        assert (await client.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": token}))["error_code"] == 0
        return client


async def authenticate(client: Client, token: bytes) -> Any:
    return await client.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": token})


async def closed(client: Client) -> None:
    try:
        await asyncio.wait_for(client.reader.read(), 60)
    except ConnectionResetError:
        pass
    client.close()


async def alter(client: Client, kind: int, name: str, *settings: tuple[str, str], version: int = 1) -> list[Any]:
    configs = [{"name": each, "config_operation": 0, "value": value} for each, value in settings]
    asked = {"resources": [{"resource_type": kind, "resource_name": name, "configs": configs}], "validate_only": False}
    answer = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, asked)
    return [(each["error_code"], each["error_message"] or "") for each in answer["responses"]]


async def alter_scram(client: Client, name: str, password: bytes, iterations: int = 4096) -> int:
    upsertion = {
        "name": name,
        "mechanism": 1,
        "iterations": iterations,
        "salt": b"salt" + password,
        "salted_password": password,
    }
    asked = {"deletions": [], "upsertions": [upsertion]}
    answer = await client.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, asked)
    return int(answer["results"][0]["error_code"])


async def by_scram(node: Node, name: str, password: str) -> int:
    client, here = await node.shaken("SCRAM-SHA-256"), ScramClient(scram.SHA_256, name, password, bytes(17))
    token = here.step((await authenticate(client, here.first()))["auth_bytes"])
    assert token is not None
    answer = await authenticate(client, token)
    client.close()
    return int(answer["error_code"])


async def work(node: Node) -> list[str]:
    """Everything that has to do with secrets, rightly and wrongly. Returns what was answered."""
    said: list[Any] = []
    admin = await node.admin()
    # Users.
    salted = scram.salted_password(scram.SHA_256, USED["scram"], b"0123456789", 4096)
    upsertion = {"name": "ann", "mechanism": 1, "iterations": 4096, "salt": b"0123456789", "salted_password": salted}
    asked = {"deletions": [], "upsertions": [upsertion]}
    said.append(await admin.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, asked))
    assert await by_scram(node, "ann", USED["scram"]) == 0
    bad = MISUSED["badscram"].encode()
    assert await alter_scram(admin, "bob", bad, iterations=7) and await alter_scram(admin, "", bad)
    assert await alter_scram(admin, "ann", b"") == 93
    said.append(await admin.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None}))
    # Logins that fail.
    client = await node.shaken("PLAIN")
    said.append(await authenticate(client, PlainClient("admin", MISUSED["wrongplain"]).first()))
    client = await node.shaken("PLAIN")
    said.append(await authenticate(client, f"\0admin\0{MISUSED['wrongplain']}\0more".encode()))
    client = await node.connect()
    client.writer.write(len(data := f"\0admin\0{MISUSED['rawplain']}".encode()).to_bytes(4, "big") + data)
    await closed(client)
    client = await node.shaken("SCRAM-SHA-256")
    said.append(await authenticate(client, b"n,,n=ann,r=x"))
    said.append(await authenticate(client, f"c=biws,r=x,p={MISUSED['scramproof']}".encode()))
    for claims in ({"sub": "ann", "exp": 1, "scope": MISUSED["bearer"]}, {MISUSED["bearer"]: 1}):
        parts = ({"alg": "none", "kid": MISUSED["bearer"]}, claims)
        token = ".".join(base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=").decode() for each in parts)
        for text in (f"{token}.", f"{token}.{MISUSED['bearer']}", MISUSED["bearer"]):
            client = await node.shaken("OAUTHBEARER")
            said.append(await authenticate(client, OAuthBearerClient(text).first()))
            said.append(await authenticate(client, b"\x01"))
    # Settings, as they should be and not.
    secured = "listener.name.ssl.ssl.keystore"
    located = [(f"{secured}.type", "PKCS12"), (f"{secured}.location", str(node.directory / "keys.p12"))]
    right = await alter(admin, 4, "1", *located, (f"{secured}.password", USED["keystore"]))
    assert right[0][0] == 0, right
    jaas_of = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    for refused, name, value in (
        (True, f"{secured}.password", MISUSED["badconfig"]),
        (True, f"{secured}.key", f"-----BEGIN PRIVATE KEY----- {MISUSED['badconfig']}"),
        (False, "ssl.keystore.pasword", MISUSED["unknownconfig"]),  # Kafka takes what it does not know, too
        (True, jaas_of, f'x.y.Z required p="{MISUSED["badconfig"]}";'),
        (
            True,
            jaas_of,
            f'org.apache.kafka.common.security.scram.ScramLoginModule required p="{MISUSED["badconfig"]}";',
        ),
        (False, jaas_of, f'{PLAIN_MODULE} required user_x="{USED["dynamicjaas"]}";'),
        (False, "listener.name.other.ssl.key.password", USED["dynamic"]),
    ):
        answers = await alter(admin, 4, "1", (name, value))
        assert (answers[0][0] != 0) == refused, (name, answers)
        said.append(answers)
    keys = [{"resource_type": 4, "resource_name": name, "configuration_keys": None} for name in ("1", "")]
    told = {"resources": keys, "include_synonyms": True, "include_documentation": False}
    said.append(await admin.ask(ApiKey.DESCRIBE_CONFIGS, 4, told))
    # Bytes of no protocol, to the listener with TLS and to the others.
    for port in (node.secured, node.plain, node.http):
        stranger = Client(*await asyncio.open_connection("127.0.0.1", port))
        stranger.writer.write(f"\0\0\0\x40\0\x24\0\2 {MISUSED['rawplain']}".encode() + bytes(80))
        stranger.writer.write_eof()
        await closed(stranger)
    page = {
        "resource_type": 4,
        "resource_name": "kafka-cluster",
        "resource_pattern_type": 3,
        "permission_type": 3,
        "principal": "User:ANONYMOUS",
        "host": "127.0.0.1",
        "operation": 8,
    }
    said.append(await admin.ask(ApiKey.CREATE_ACLS, 3, {"creations": [page]}))
    admin.close()
    return [str(each) for each in said]


def ottla(*arguments: str) -> str:
    command = [sys.executable, "-m", "ottla.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, bytes]]:
    """All that a node has printed, answered and left behind, by where it was found."""
    directory = tmp_path_factory.mktemp("canaries")
    node = Node(directory)
    with node.process:
        found = {f"answer {number}": each.encode() for number, each in enumerate(asyncio.run(work(node)))}
        with urllib.request.urlopen(f"http://127.0.0.1:{node.http}/metrics") as page:
            found["metrics"] = page.read()
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                found[str(file)] = file.read_bytes()
            except OSError:
                continue
    metadata = directory / "data" / "__cluster_metadata-0"
    snapshots = sorted(metadata.glob("*.checkpoint"))
    assert snapshots, "a snapshot is written when the node stops, or before"
    for path in (metadata, snapshots[-1]):
        for more in ((), ("--json",), ("--records",)):
            found[f"dump {path.name} {more}"] = ottla("log", "dump", str(path), *more).encode()
    node.settings.write_text(f"{node.settings.read_text()}ssl.keystore.pasword={MISUSED['cli']}\n")
    found["a start that is refused"] = ottla("server", "start", "--config", str(node.settings)).encode()
    assert b"ssl.keystore.pasword" in found["a start that is refused"]
    wrong = node.settings.read_text().replace("ssl.keystore.pasword", "delegation.token.max.lifetime.ms")
    node.settings.write_text(
        wrong.replace(USED["keystore"], MISUSED["cli"]).replace(f"lifetime.ms={MISUSED['cli']}", "")
    )
    found["another start that is refused"] = ottla("server", "start", "--config", str(node.settings)).encode()
    for file in directory.rglob("*"):
        if file.is_file() and file != node.settings:
            found[str(file.relative_to(directory))] = file.read_bytes()
    yield found
    for each in node.held:
        each.close()


def test_everything_was_left_that_is_searched(left: dict[str, bytes]) -> None:
    """The log has what happened, without what it was about."""
    log = left["node.out"].decode()
    for event in ("authentication failed", "a TLS handshake failed", "closing a connection", "DEBUG ottla."):
        assert event in log, event
    assert "Traceback" not in log
    assert len([name for name in left if name.startswith("answer")]) > 20


@pytest.mark.parametrize("what", sorted({**USED, **MISUSED}))
def test_a_secret_is_nowhere(left: dict[str, bytes], what: str) -> None:
    needle = canary(what).encode()
    places = {where for where, content in left.items() if needle in content or needle.hex().encode() in content}
    if what in IN_METADATA:
        places = {each for each in places if not each.startswith("data/__cluster_metadata-0/")}
    assert not places


def test_neither_is_what_proves_a_password(left: dict[str, bytes]) -> None:
    """Salted passwords, in any form, are not even in the records; keys are in none of the texts."""
    salted = scram.salted_password(scram.SHA_256, USED["scram"], b"0123456789", 4096)
    known = scram.credential(scram.SHA_256, salted, b"0123456789", 4096)
    for secret in (salted, known.stored_key, known.server_key):
        for form in (secret, secret.hex().encode(), base64.b64encode(secret)):
            places = {where for where, content in left.items() if form in content}
            assert not {each for each in places if secret is salted or "__cluster_metadata-0/" not in each}
