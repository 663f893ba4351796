"""A node that logs in at another: before its first request, and again before its session ends."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import random
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import jwt
import pytest

from ottla.config.secret import Secret
from ottla.config.server import ServerConfig
from ottla.drivers.nodes.identity_provider import Endpoint
from ottla.drivers.nodes.node_client import NodeClient, Timing
from ottla.drivers.nodes.oauth_tokens import ClientCredentials, TokenSource
from ottla.drivers.nodes.sasl_client import LoginNetwork, NodeLogin, login_network
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.network import Address, SystemNetwork
from ottla.protocol.messages import ApiKey
from ottla.security.sasl import scram
from ottla.security.sasl.client import PlainClient, ScramClient
from ottla.server.node import Node
from tests.unit.drivers.nodes.test_jwks import provider, sending
from tests.unit.security.test_jwt import jwk, rsa_key
from tests.unit.server.security.test_authentication import NAME, PREFIX, alter, connect, log_in, of, secured, upsertion
from tests.unit.server.stub import run, until

QUICK = Timing(request_timeout_ms=20_000, backoff_ms=1, backoff_ms_max=4, setup_timeout_ms=20_000)
BYTES = bytes(range(17))


async def here(work: Any) -> Any:
    return work()


def client_of(make: Any, mechanism: str = "PLAIN") -> NodeClient:
    async def made(host: str) -> Any:
        return make()

    login = NodeLogin(mechanism, made, random.Random(1), here)
    return NodeClient(LoginNetwork(SystemNetwork(), login), "test", random.Random(1), QUICK)


def address(node: Node) -> Address:
    return Address("127.0.0.1", node.ports[NAME])


async def metadata(client: NodeClient, node: Node) -> Any:
    answer = await client.ask(address(node), ApiKey.METADATA, {"topics": []}, versions=(9, 9))
    return answer.response.brokers


def test_plain_and_scram(tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path) as node:
            client = client_of(lambda: PlainClient("alice", "alice-secret"))
            assert await metadata(client, node)
            admin = await connect(node)
            await log_in(admin, "admin", "admin-secret")
            for mechanism in scram.BY_NAME.values():
                await alter(admin, upsertions=[upsertion("bob", mechanism, "bob-secret", 5000)])
                other = client_of(
                    lambda mechanism=mechanism: ScramClient(mechanism, "bob", "bob-secret", BYTES), mechanism.name
                )
                assert await metadata(other, node)
                await other.close()

            def principals() -> set[str]:
                return {each.principal for each in node.listeners[-1].connections}

            await until(lambda: principals() == {"User:alice", "User:admin"})
            await client.close()

    run(test())


@pytest.mark.parametrize(
    ("mechanism", "password", "message"),
    [("PLAIN", "wrong", "Invalid username or password"), ("GSSAPI", "alice-secret", "does not offer")],
)
def test_a_refused_login_says_why_and_is_logged_once_in_a_while(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mechanism: str, password: str, message: str
) -> None:
    async def test() -> None:
        async with secured(tmp_path) as node:
            client = client_of(lambda: PlainClient("alice", password), mechanism)
            for _ in range(3):
                with pytest.raises(KafkaError, match=message):
                    await metadata(client, node)
            await client.close()

    with caplog.at_level(logging.WARNING, "ottla.authentication"):
        run(test())
    (warning,) = [each for each in caplog.records if "cannot log in" in each.message]
    assert password not in str(warning.__dict__)


def test_a_session_is_renewed_under_requests(tmp_path: Path) -> None:
    """Requests that are sent meanwhile wait, and none fails."""

    async def test() -> None:
        async with secured(tmp_path, {f"{PREFIX}connections.max.reauth.ms": "1500"}) as node:
            client = client_of(lambda: PlainClient("alice", "alice-secret"))
            asked = 0
            async with asyncio.timeout(60):
                while of(node).counts.resuccesses < 2:
                    assert all(await asyncio.gather(*(metadata(client, node) for _ in range(20))))
                    asked += 20
            assert of(node).counts.successes == 1 and of(node).counts.expired == 0 and asked > 40
            await client.close()

    run(test())


def test_a_renewal_that_is_refused_ends_the_connection(tmp_path: Path) -> None:
    async def test() -> None:
        passwords = ["alice-secret", "wrong"]
        async with secured(tmp_path, {f"{PREFIX}connections.max.reauth.ms": "1100"}) as node:
            client = client_of(lambda: PlainClient("alice", passwords.pop(0)))
            connection = await client.connection(address(node))
            request = connection.encode(ApiKey.METADATA, 9, {"topics": []})
            await until(lambda: connection._held is not None or connection.failure)
            waiting = connection.send(request, 20)
            with pytest.raises(KafkaError) as failure:
                await waiting
            assert failure.value.code == ErrorCode.sasl_authentication_failed
            assert connection.failure is not None
            await client.close()

    run(test())


def config(**changes: str) -> ServerConfig:
    return ServerConfig.load(None, {"log.dirs": "/nowhere", **changes}, {})


def test_where_the_credentials_come_from() -> None:
    jaas = "org.apache.kafka.common.security.{}LoginModule required {};"
    known = {
        "listener.name.between.plain.sasl.jaas.config": jaas.format("plain.Plain", 'username="n" password="p"'),
        "listener.name.between.scram-sha-256.sasl.jaas.config": jaas.format("scram.Scram", 'username="n" password="p"'),
        "listener.name.between.scram-sha-512.sasl.jaas.config": jaas.format("plain.Plain", 'username="n" password="p"'),
        "sasl.jaas.config": jaas.format("plain.Plain", 'username="other" password="p"'),
    }

    def network(mechanism: str, listener: str = "BETWEEN") -> LoginNetwork:
        return login_network(SystemNetwork(), config(**known), listener, mechanism, random.Random(1), here)

    async def first(mechanism: str) -> bytes:
        return (await network(mechanism).login._make("localhost")).first()

    assert run(first("PLAIN")) == b"\0n\0p"
    assert run(first("SCRAM-SHA-256")).startswith(b"n,,n=n,r=")
    for mechanism, listener in (("SCRAM-SHA-512", "BETWEEN"), ("PLAIN", "OTHER"), ("GSSAPI", "BETWEEN")):
        with pytest.raises(OttlaError) as refusal:
            network(mechanism, listener)
        assert '"p"' not in str(refusal.value)


def test_tokens_for_other_nodes() -> None:
    """One for all connections, fetched again when four fifths of its time are over; the secret is in no message."""
    asked: list[tuple[bytes, Any]] = []
    answers: list[bytes | Exception] = [b'{"access_token":"one","expires_in":3600}']

    def post(endpoint: Endpoint, body: bytes, headers: Any) -> bytes:
        asked.append((body, headers))
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers[0]

    async def test() -> None:
        source = TokenSource(Endpoint("https://issuer"), ClientCredentials("id", Secret("canary"), "a b"), post)
        assert {(await source.token()).reveal() for _ in range(3)} == {"one"}
        assert len(set(await asyncio.gather(*(source.token() for _ in range(5))))) == 1 and len(asked) == 1
        body, headers = asked[0]
        assert body == b"grant_type=client_credentials&scope=a+b"
        assert base64.b64decode(headers["Authorization"].removeprefix("Basic ")) == b"id:canary"
        for bad in (b"", b"[]", b"{}", b'{"access_token":7}', OSError("away")):
            answers[0], source._until = bad, 0.0
            with pytest.raises(KafkaError) as failure:
                await source.token()
            assert "canary" not in str(failure.value)

    run(test())
    with pytest.raises(OttlaError, match="no way to a token"):
        login_network(SystemNetwork(), config(), "BETWEEN", "OAUTHBEARER", random.Random(1), here)


def test_tokens_of_a_provider_are_checked_with_its_keys(tmp_path: Path) -> None:
    """A node fetches a token, another one the keys; a forged one is refused, and a key that is new is fetched."""
    keys = [rsa_key()]
    asked: list[str] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        if handler.path == "/keys":
            sending(json.dumps({"keys": [jwk(each, str(place)) for place, each in enumerate(keys)]}).encode())(handler)
            return
        handler.rfile.read(int(handler.headers["Content-Length"]))
        now_s = int(time.time())
        claims = {"iss": "me", "aud": "kafka", "sub": "node", "iat": now_s, "exp": now_s + 600}
        token = jwt.encode(claims, keys[-1], "RS256", headers={"kid": str(len(keys) - 1)})
        sending(json.dumps({"access_token": token, "expires_in": 600}).encode())(handler)

    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"

    async def test(url: str) -> None:
        oauth = f"{PREFIX}oauthbearer.sasl.oauthbearer."
        settings = {
            f"{PREFIX}sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
            f"{oauth}jwks.endpoint.url": f"{url}/keys",
            f"{oauth}expected.issuer": "me",
            f"{oauth}expected.audience": "kafka",
        }
        known = config(
            **{
                "listener.name.there.oauthbearer.sasl.jaas.config": f'{module} clientId="id" clientSecret="canary";',
                "listener.name.there.sasl.oauthbearer.token.endpoint.url": f"{url}/token",
            }
        )

        def client() -> NodeClient:
            network = login_network(SystemNetwork(), known, "THERE", "OAUTHBEARER", random.Random(1), here)
            return NodeClient(network, "test", random.Random(1), QUICK)

        async with secured(tmp_path, settings) as node:
            clients = [client()]
            assert await asked_until_known(clients[0], node)
            assert {each.principal for each in node.listeners[-1].connections} == {"User:node"}
            lifetimes = [each.login._session_ends_at for each in node.listeners[-1].connections]
            assert lifetimes[0] is not None
            keys.append(rsa_key("other"))
            clients.append(client())
            assert await asked_until_known(clients[1], node), "an unknown key has the keys fetched again"
            assert asked.count("/keys") >= 2 and of(node).counts.failures >= 1
            for each in clients:
                await each.close()

    async def asked_until_known(client: NodeClient, node: Node) -> Any:
        """Tokens are refused until the keys are there."""
        async with asyncio.timeout(60):
            while True:
                try:
                    return await metadata(client, node)
                except KafkaError as error:
                    assert "invalid_token" in str(error) or "invalid credentials" in str(error), error

    with provider(answer) as url:
        run(test(url))
