"""Delegation tokens on a node: made, renewed, ended, described, and logged in with (KIP-48, KIP-373).

`tests/conformance/security/test_tokens_like_kafka.py` asks Apache Kafka the same.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.messages import ApiKey
from ottla.protocol.principal import TokenPrincipal, decode_principal, encode_principal
from ottla.security.acls import Operation, ResourceType
from ottla.security.sasl import scram
from ottla.security.sasl.client import ScramClient
from ottla.server.node import Node
from tests.certificates import Authority, ssl_settings
from tests.unit.server.node import Client, running
from tests.unit.server.permits import nothing, rule
from tests.unit.server.security.test_authentication import (
    NAME,
    PREFIX,
    SETTINGS,
    closed,
    connect,
    handshake,
    log_in,
    metadata,
)
from tests.unit.server.stub import run, until

SECRET = "cAnArY, the secret of all nodes"
HOUR_MS = 3_600_000
CREATE, RENEW = ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN
EXPIRE, DESCRIBE = ApiKey.EXPIRE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN
NOT_ALLOWED, DISABLED, NOT_FOUND, MISMATCH, DENIED, EXPIRED, WRONG_TYPE = 64, 61, 62, 63, 65, 66, 67
USERS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="admin-secret" '
    'user_admin="admin-secret" user_alice="alice-secret" user_bob="bob-secret";'
)


@asynccontextmanager
async def with_tokens(directory: Path, more: Mapping[str, str] | None = None) -> AsyncIterator[Node]:
    settings = {
        **SETTINGS,
        "delegation.token.secret.key": SECRET,
        f"{PREFIX}plain.sasl.jaas.config": USERS,
        "listeners": f"{NAME}://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": f"{NAME}:{NAME},CONTROLLER:PLAINTEXT",
        **(more or {}),
    }
    async with running(str(directory), settings) as node:
        yield node


async def as_user(node: Node, name: str) -> Client:
    client = await connect(node)
    assert (await log_in(client, name, f"{name}-secret"))["error_code"] == 0
    return client


async def create(client: Client, *, version: int = 3, **more: Any) -> Any:
    asked = {"renewers": [], "max_lifetime": -1, "owner_principal_type": None, "owner_principal_name": None, **more}
    if version < 3:
        del asked["owner_principal_type"], asked["owner_principal_name"]
    return await client.ask(CREATE, version, asked)


async def described(client: Client, owners: Any = None) -> Any:
    rows = None if owners is None else [{"principal_type": "User", "principal_name": each} for each in owners]
    answer = await client.ask(DESCRIBE, 3, {"owners": rows})
    return answer["error_code"] or answer["tokens"]


async def login(
    node: Node, token_id: str, password: str, mechanism: scram.ScramMechanism = scram.SHA_256
) -> tuple[Client, Any]:
    """A connection with a token, and the last answer to it."""
    client = await connect(node)
    here = ScramClient(mechanism, token_id, password, bytes(17), extensions={"tokenauth": "true"})
    return client, await converse(client, here, mechanism)


async def converse(client: Client, here: ScramClient, mechanism: scram.ScramMechanism = scram.SHA_256) -> Any:
    assert (await handshake(client, mechanism.name))["error_code"] == 0
    answer = await client.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": here.first()})
    if answer["error_code"]:
        return answer
    token = here.step(answer["auth_bytes"])
    assert token is not None
    answer = await client.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": token})
    if not answer["error_code"]:
        assert here.step(answer["auth_bytes"]) is None, "the node knows the HMAC too"
    return answer


def password(token: Any) -> str:
    return base64.b64encode(token["hmac"]).decode()


def renewer(name: str, kind: str = "User") -> dict[str, str]:
    return {"principal_type": kind, "principal_name": name}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_token_is_made_and_described(tmp_path: Path, version: int) -> None:
    async def test() -> None:
        async with with_tokens(tmp_path) as node:
            alice, bob = await as_user(node, "alice"), await as_user(node, "bob")
            now = node.clock.now_ms()
            made = await create(alice, version=version, renewers=[renewer("bob")])
            assert made["error_code"] == 0 and len(made["token_id"]) == 22 and len(made["hmac"]) == 64
            assert (made["principal_type"], made["principal_name"]) == ("User", "alice")
            if version >= 3:
                assert made["token_requester_principal_name"] == "alice"
            assert now <= made["issue_timestamp"] <= node.clock.now_ms()
            assert made["expiry_timestamp"] - made["issue_timestamp"] == 24 * HOUR_MS
            assert made["max_timestamp"] - made["issue_timestamp"] == 7 * 24 * HOUR_MS
            (found,) = await described(alice, ["alice"])
            assert found["hmac"] == made["hmac"] and found["renewers"] == [renewer("bob")]
            assert (found["token_requester_principal_type"], found["token_requester_principal_name"]) == (
                "User",
                "alice",
            )
            assert await described(bob, ["alice"]) == [found], "a renewer may see it"
            assert await described(alice, []) == [], "an empty list, as of Kafka's tool without an owner"
            assert await described(alice, ["carol"]) == []

    run(test())


def test_periods(tmp_path: Path) -> None:
    async def test() -> None:
        more = {"delegation.token.max.lifetime.ms": str(2 * HOUR_MS), "delegation.token.expiry.time.ms": str(HOUR_MS)}
        async with with_tokens(tmp_path, more) as node:
            alice = await as_user(node, "alice")

            async def lasts(asked: int) -> tuple[int, int]:
                made = await create(alice, max_lifetime=asked)
                assert made["error_code"] == 0
                since = made["issue_timestamp"]
                return made["expiry_timestamp"] - since, made["max_timestamp"] - since

            assert await lasts(-1) == await lasts(0) == await lasts(3 * HOUR_MS) == (HOUR_MS, 2 * HOUR_MS)
            assert await lasts(1000) == (1000, 1000)

            made = await create(alice)
            for key, field, asked, expected in (
                (RENEW, "renew_period", 1000, 1000),
                (RENEW, "renew_period", -1, HOUR_MS),
                (EXPIRE, "expiry_time_period", 3 * HOUR_MS, 2 * HOUR_MS),
                (EXPIRE, "expiry_time_period", 5000, 5000),
            ):
                before = node.clock.now_ms()
                answer = await alice.ask(key, 2, {"hmac": made["hmac"], field: asked})
                assert answer["error_code"] == 0
                latest = min(made["max_timestamp"], node.clock.now_ms() + expected)
                assert min(made["max_timestamp"], before + expected) <= answer["expiry_timestamp"] <= latest
                row = next(each for each in await described(alice) if each["token_id"] == made["token_id"])
                assert row["expiry_timestamp"] == answer["expiry_timestamp"]
                assert row["max_timestamp"] == made["max_timestamp"]

    run(test())


def test_who_may_renew_and_end_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with with_tokens(tmp_path) as node:
            alice, bob, admin = [await as_user(node, each) for each in ("alice", "bob", "admin")]
            made = await create(alice, renewers=[renewer("bob")])
            renew = {"hmac": made["hmac"], "renew_period": -1}
            end = {"hmac": made["hmac"], "expiry_time_period": -1}
            for version in (1, 2):
                assert (await bob.ask(RENEW, version, renew))["error_code"] == 0
                assert (await admin.ask(RENEW, version, renew))["error_code"] == MISMATCH
                assert (await admin.ask(EXPIRE, version, end))["error_code"] == MISMATCH
                for wrong in (b"", made["hmac"][:-1], bytes(64)):
                    answer = await alice.ask(RENEW, version, {**renew, "hmac": wrong})
                    assert answer["error_code"] == NOT_FOUND
                    assert (await alice.ask(EXPIRE, version, {**end, "hmac": wrong}))["error_code"] == NOT_FOUND
            client, answer = await login(node, made["token_id"], password(made))
            assert answer["error_code"] == 0
            ended = await bob.ask(EXPIRE, 2, end)
            assert ended["error_code"] == 0 and ended["expiry_timestamp"] > 0
            assert node.image.delegation_tokens == {} and await described(alice) == []
            assert (await bob.ask(EXPIRE, 2, end))["error_code"] == NOT_FOUND
            await metadata(client)  # as in Kafka, a connection stays until its session ends
            _, answer = await login(node, made["token_id"], password(made))
            assert answer["error_code"] == 58

    run(test())


def test_who_may_have_tokens_of_others(tmp_path: Path) -> None:
    """KIP-373: CREATE_TOKENS and DESCRIBE_TOKENS on the user; DESCRIBE on the token."""

    async def test() -> None:
        async with with_tokens(tmp_path) as node:
            alice, bob = await as_user(node, "alice"), await as_user(node, "bob")
            rules = rule(node, nothing)
            of_bob: dict[str, Any] = {"owner_principal_type": "User", "owner_principal_name": "bob"}
            refused = await create(alice, **of_bob)
            assert refused["error_code"] == DENIED and refused["hmac"] == b"" and refused["token_id"] == ""
            assert (refused["principal_name"], refused["token_requester_principal_name"]) == ("bob", "alice")
            assert [(each.operation, each.kind, each.name) for each in rules.asked] == [
                (Operation.CREATE_TOKENS, ResourceType.USER, "User:bob")
            ]
            rule(node, lambda operation, kind, name: operation is Operation.CREATE_TOKENS and name == "User:bob")
            made = await create(alice, **of_bob)
            assert made["error_code"] == 0
            assert (made["principal_name"], made["token_requester_principal_name"]) == ("bob", "alice")
            client, answer = await login(node, made["token_id"], password(made))
            assert answer["error_code"] == 0 and "User:bob" in {
                each.principal for each in node.listeners[-1].connections
            }
            client.close()
            (found,) = await described(bob)
            assert found["token_requester_principal_name"] == "alice"
            rule(node, nothing)
            assert await described(alice) == [found], "who asked for it sees it"
            asked = {"hmac": made["hmac"], "renew_period": -1}
            assert (await alice.ask(RENEW, 2, asked))["error_code"] == MISMATCH, "and may not renew it"
            carol = await as_user(node, "admin")
            assert await described(carol) == []
            for allowed, name in ((Operation.DESCRIBE, made["token_id"]), (Operation.DESCRIBE_TOKENS, "User:bob")):
                rule(node, lambda operation, kind, on, allowed=allowed, name=name: (operation, on) == (allowed, name))  # type: ignore[misc]
                assert await described(carol) == [found] and await described(carol, ["carol"]) == []
            own = await create(alice)
            assert own["error_code"] == 0, "one's own needs nothing"
            wrong = await create(alice, renewers=[renewer("bob"), renewer("x", "Group")])
            assert wrong["error_code"] == WRONG_TYPE and wrong["hmac"] == b""

    run(test())


def test_connections_that_may_not_ask(tmp_path: Path) -> None:
    """A login by a token, PLAINTEXT, TLS without a certificate: refused, and nothing is said about the token."""

    async def refused(client: Client, token: bytes) -> None:
        made = await create(client)
        assert made["error_code"] == NOT_ALLOWED and made["hmac"] == b""
        answer = await client.ask(RENEW, 2, {"hmac": token, "renew_period": 1})
        assert answer["error_code"] == NOT_ALLOWED
        answer = await client.ask(EXPIRE, 2, {"hmac": token, "expiry_time_period": 1})
        assert answer["error_code"] == NOT_ALLOWED
        assert await described(client) == NOT_ALLOWED

    async def test() -> None:
        authority = Authority()
        more = {
            **ssl_settings(tmp_path / "tls", authority, authority.issue("node"), "listener.name.tls."),
            "listeners": f"OPEN://127.0.0.1:0,TLS://127.0.0.1:0,{NAME}://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "listener.security.protocol.map": f"OPEN:PLAINTEXT,TLS:SSL,{NAME}:{NAME},CONTROLLER:PLAINTEXT",
        }
        async with with_tokens(tmp_path, more) as node:
            alice = await as_user(node, "alice")
            made = await create(alice)
            client, answer = await login(node, made["token_id"], password(made))
            assert answer["error_code"] == 0
            await refused(client, made["hmac"])
            trusting = ssl.create_default_context(cadata=authority.pem)
            for name, context in (("OPEN", None), ("CONTROLLER", None), ("TLS", trusting)):
                streams = await asyncio.open_connection("127.0.0.1", node.ports[name], ssl=context, limit=1 << 24)
                await refused(Client(*streams), made["hmac"])
            assert node.image.delegation_tokens.keys() == {made["token_id"]}

    run(test())


def test_a_node_without_a_secret_has_no_tokens(tmp_path: Path) -> None:
    async def test() -> None:
        async with with_tokens(tmp_path, {"delegation.token.secret.key": ""}) as node:
            alice = await as_user(node, "alice")
            made = await create(alice)
            assert made["error_code"] == DISABLED and made["principal_name"] == "alice"
            assert (await alice.ask(RENEW, 2, {"hmac": b"x", "renew_period": 1}))["error_code"] == DISABLED
            assert (await alice.ask(EXPIRE, 2, {"hmac": b"x", "expiry_time_period": -1}))["error_code"] == DISABLED
            assert await described(alice) == DISABLED
            _, answer = await login(node, "x", "y")
            assert answer["error_code"] == 58

    run(test())


@pytest.mark.parametrize("mechanism", list(scram.BY_NAME.values()), ids=list(scram.BY_NAME))
def test_a_login_with_a_token(tmp_path: Path, mechanism: scram.ScramMechanism) -> None:
    async def test() -> None:
        async with with_tokens(tmp_path) as node:
            made = await create(await as_user(node, "alice"), max_lifetime=HOUR_MS)
            client, answer = await login(node, made["token_id"], password(made), mechanism)
            assert answer["error_code"] == 0
            assert HOUR_MS - 120_000 < answer["session_lifetime"] <= HOUR_MS, "no setting limits it but its end"
            await metadata(client)
            (connection,) = [
                each for each in node.listeners[-1].connections if isinstance(each.principal, TokenPrincipal)
            ]
            assert connection.principal == "User:alice"
            again = ScramClient(
                mechanism, made["token_id"], password(made), bytes(17), extensions={"tokenauth": "true"}
            )
            assert (await converse(client, again, mechanism))["error_code"] == 0, "renewed in place (KIP-368)"
            for name, secret in (
                (made["token_id"], password(made)[:-4] + "abc="),
                (made["token_id"], "alice-secret"),
                ("alice", "alice-secret"),
                ("AAAAAAAAAAAAAAAAAAAAAA", password(made)),
            ):
                client, answer = await login(node, name, secret, mechanism)
                assert answer["error_code"] == 58 and made["token_id"] not in answer["error_message"]
                assert await closed(client) == b""
            plain = await connect(node)
            here = ScramClient(mechanism, made["token_id"], password(made), bytes(17))
            assert (await converse(plain, here, mechanism))["error_code"] == 58, "an id without tokenauth is a name"

    run(test())


def test_a_session_ends_with_its_token_and_an_expired_one_logs_nobody_in(tmp_path: Path) -> None:
    async def test() -> None:
        more = {"delegation.token.expiry.check.interval.ms": "50"}
        async with with_tokens(tmp_path, more) as node:
            alice = await as_user(node, "alice")
            made = await create(alice, max_lifetime=1500)
            client, answer = await login(node, made["token_id"], password(made))
            assert answer["error_code"] == 0 and 0 < answer["session_lifetime"] <= 1500
            await until(lambda: not node.image.delegation_tokens)  # the controller removes it
            client.send(ApiKey.METADATA, 9, {"topics": []})
            assert await closed(client) == b""
            _, answer = await login(node, made["token_id"], password(made))
            assert answer["error_code"] == 58

    run(test())


def test_an_expired_token_that_is_still_there_is_of_no_use(tmp_path: Path) -> None:
    """Kafka lets it log in until the next check, an hour later at most."""

    async def test() -> None:
        async with with_tokens(tmp_path) as node:
            alice = await as_user(node, "alice")
            made = await create(alice, max_lifetime=1)
            await until(lambda: node.clock.now_ms() > made["max_timestamp"])
            assert node.image.delegation_tokens
            _, answer = await login(node, made["token_id"], password(made))
            assert answer["error_code"] == 58
            asked = {"hmac": made["hmac"], "renew_period": -1}
            assert (await alice.ask(RENEW, 2, asked))["error_code"] == EXPIRED
            asked = {"hmac": made["hmac"], "expiry_time_period": 5}
            assert (await alice.ask(EXPIRE, 2, asked))["error_code"] == EXPIRED
            asked = {"hmac": made["hmac"], "expiry_time_period": -1}
            assert (await alice.ask(EXPIRE, 2, asked))["error_code"] == 0

    run(test())


def test_tokens_outlive_a_restart_and_a_snapshot(tmp_path: Path) -> None:
    async def test() -> None:
        async with with_tokens(tmp_path) as node:
            alice = await as_user(node, "alice")
            kept, gone = await create(alice, renewers=[renewer("bob")]), await create(alice)
            await alice.ask(EXPIRE, 2, {"hmac": gone["hmac"], "expiry_time_period": -1})
            before = dict(node.image.delegation_tokens)
        async with with_tokens(tmp_path) as node:
            assert dict(node.image.delegation_tokens) == before and list(before) == [kept["token_id"]]
            _, answer = await login(node, kept["token_id"], password(kept))
            assert answer["error_code"] == 0
            _, answer = await login(node, gone["token_id"], password(gone))
            assert answer["error_code"] == 58
            bob = await as_user(node, "bob")
            asked = {"hmac": kept["hmac"], "renew_period": -1}
            assert (await bob.ask(RENEW, 2, asked))["error_code"] == 0, "the new controller finds it by its HMAC"
            shown.extend((SECRET.encode(), kept["hmac"], password(kept).encode()))

    shown: list[bytes] = []
    run(test())
    for file in tmp_path.rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            assert not any(each in data for each in shown), file


def test_an_envelope_says_that_a_token_was_shown() -> None:
    for principal in ("User:alice", TokenPrincipal("User:alice")):
        found = decode_principal(encode_principal(principal))
        assert found == principal and type(found) is type(principal)
