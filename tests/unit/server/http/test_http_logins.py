"""The HTTP port of a secured node: TLS, logins, what each page needs, and what strangers can do before a login."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import random
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.config.server import ServerConfig
from ottla.controller.scram import record_of
from ottla.drivers.metadata.formatting import format_directories
from ottla.errors import OttlaError
from ottla.filesystem import OsFileSystem
from ottla.protocol.messages import ApiKey
from ottla.security.http_authorization import BearerToken, Password, parse_authorization
from ottla.security.sasl import AuthenticationFailed
from ottla.security.sasl.jwt import parse_keys
from ottla.security.sasl.scram_argument import parse_scram_argument
from ottla.server.http import logins
from ottla.server.http import server as http
from ottla.server.http.callers import Unauthorized
from ottla.server.http.pages import ROUTES
from ottla.server.listeners.exposure import open_ports
from ottla.server.node import Node
from ottla.server.security.permissions import Open
from tests.certificates import Authority, Identity, ssl_settings
from tests.unit.controller.test_acls import creation
from tests.unit.security.test_jwt import jwk, rsa_key, signed, with_claims
from tests.unit.server.http.test_http import Reply, ended, receive
from tests.unit.server.node import Client, running
from tests.unit.server.stub import run

AUTHORITY = Authority()
NODE = AUTHORITY.issue("node")
PREFIX = "listener.name.http."
PLAIN_USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_pat="pat-secret";'
ANONYMOUS = "User:ANONYMOUS"
SASL = {
    "ottla.http.listener": "127.0.0.1:0",
    "ottla.http.security.protocol": "SASL_PLAINTEXT",
    "connection.failed.authentication.delay.ms": "0",
    f"{PREFIX}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    f"{PREFIX}plain.sasl.jaas.config": PLAIN_USERS,
}
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:root;{ANONYMOUS};User:CN=operator",
}


def basic(name: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"


@asynccontextmanager
async def secured(directory: Path, settings: Mapping[str, str]) -> AsyncIterator[Node]:
    """With the SCRAM users alice (both mechanisms), bob and root."""
    users = [
        parse_scram_argument(text, bytes(17))
        for text in (
            "SCRAM-SHA-512=[name=alice,password=alice-secret]",
            "SCRAM-SHA-256=[name=alice,password=other-secret]",
            "SCRAM-SHA-256=[name=bob,password=bob-secret]",
            "SCRAM-SHA-512=[name=root,password=root-secret]",
        )
    ]
    records = [record_of(each.mechanism, each.name, each.credential) for each in users]
    data = str(directory / "data")
    format_directories(
        OsFileSystem(), [data], data, 1, "a-cluster-of-one-0000A", random.Random(1), 0, credentials=records
    )
    async with running(data, settings) as node:
        yield node


async def opened(
    node: Node, context: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    assert node.http is not None
    return await asyncio.open_connection("127.0.0.1", node.http.port, ssl=context)


async def get(
    node: Node, path: str, authorization: str | None = None, context: ssl.SSLContext | None = None, method: str = "GET"
) -> Reply:
    reader, writer = await opened(node, context)
    writer.write(request(path, authorization, method))
    reply = await receive(reader, head=method == "HEAD")
    if reply.status == 401 and authorization is not None:
        assert await ended(reader) == b"", "wrong credentials end the connection"
    writer.close()
    return reply


def request(path: str, authorization: str | None = None, method: str = "GET") -> bytes:
    line = "" if authorization is None else f"Authorization: {authorization}\r\n"
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n{line}\r\n".encode()


def trusting(directory: Path, identity: Identity | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=AUTHORITY.pem)
    if identity is not None:
        (directory / "client.pem").write_text(identity.pem())
        context.load_cert_chain(directory / "client.pem")
    return context


def test_what_each_page_needs(tmp_path: Path) -> None:
    """Callers without a login, with a wrong one, without the right, with it, by each kind of password, certificates."""
    settings = {**SASL, **AUTHORIZED, "ottla.http.security.protocol": "SASL_SSL"}
    settings |= ssl_settings(tmp_path, AUTHORITY, NODE, PREFIX, client_auth="requested")

    async def test() -> None:
        async with secured(tmp_path, settings) as node:
            assert node.http is not None and node.http.url.startswith("https://")
            client = await Client.connect(node)
            allowed = creation("kafka-cluster", resource_type=4, principal="User:alice", operation=8)
            answer = await client.ask(ApiKey.CREATE_ACLS, 3, {"creations": [allowed]})
            assert answer["results"][0]["error_code"] == 0
            client.close()
            plain = trusting(tmp_path)
            for path, status in (("/", 200), ("/health", 200), ("/ready", 200), ("/metrics", 401)):
                nobody = await get(node, path, context=plain)
                assert nobody.status == status, path
                wrong = await get(node, path, basic("alice", "guess"), context=plain)
                assert wrong.status == 401, "wrong credentials are never ignored"
            assert nobody.headers["www-authenticate"].startswith("basic realm=")
            assert (await get(node, "/metrics", basic("alice", "x"), context=plain, method="HEAD")).status == 401
            for credentials in (basic("alice", "alice-secret"), basic("alice", "other-secret")):
                found = await get(node, "/metrics", credentials, context=plain)
                assert found.status == 200 and b"ottla_ready 1" in found.body
            refused = await get(node, "/metrics", basic("bob", "bob-secret"), context=plain)
            assert (refused.status, refused.json["reason"]) == (403, "User:bob needs DESCRIBE on the cluster")
            assert (await get(node, "/metrics", basic("pat", "pat-secret"), context=plain)).status == 403
            operator = trusting(tmp_path, AUTHORITY.issue("operator", hosts=()))
            assert (await get(node, "/metrics", context=operator)).status == 200
            # On SASL_SSL the name of the login counts, not that of the certificate.
            assert (await get(node, "/metrics", basic("bob", "bob-secret"), context=operator)).status == 403
            metrics = (await get(node, "/metrics", basic("root", "root-secret"), context=plain)).body.decode()
            assert 'failed_authentication_total{listener="HTTP"} 5' in metrics
            assert 'ottla_ssl_certificate_expiry_timestamp_seconds{listener="HTTP"}' in metrics

    run(test())


def test_probes_hear_a_status_and_the_reasons_are_for_others(tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path, SASL) as node:
            node.serving = False
            stranger, root = await get(node, "/ready"), await get(node, "/ready", basic("root", "root-secret"))
            assert (stranger.status, root.status) == (503, 503)
            assert root.json["reasons"] == ["the node is starting"] and root.json["node_id"] == 1
            assert stranger.json["reasons"] != root.json["reasons"]
            assert set(stranger.json) == {"status", "reasons"} and stranger.json["status"] == "not ready"
            node.serving = True
            assert set((await get(node, "/health")).json) == {"status", "reasons"}
            assert "offline_directories" in (await get(node, "/health", basic("root", "root-secret"))).json

    run(test())


def test_every_page_declares_what_it_needs() -> None:
    """CVE-2026-82266: pages open to everybody are these, for a reason."""
    openly = {each.path for each in ROUTES if isinstance(each.needs, Open)}
    assert openly == {"/", "/health", "/ready"}
    for each in ROUTES:
        assert each.needs and (not isinstance(each.needs, Open) or len(each.needs.reason) > 20)


def test_without_a_login_the_acls_of_anonymous_decide(tmp_path: Path) -> None:
    """A port without a login is like any listener: who is not known is User:ANONYMOUS."""
    settings = {**AUTHORIZED, "super.users": "User:root", "ottla.http.listener": "127.0.0.1:0"}

    async def test() -> None:
        async with running(str(tmp_path), settings) as node:
            refused = await get(node, "/metrics", basic("root", "anything"))
            assert refused.status == 403 and "ottla.http.security.protocol" in refused.json["reason"]
            assert (await get(node, "/health")).status == 200

    run(test())


def test_the_acls_are_not_known_yet(tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path, {**SASL, **AUTHORIZED}) as node:
            authorizer = node.authorizer
            assert authorizer is not None
            authorizer.ready = False
            authorizer.changed()
            for each in (authorizer, None):
                node.authorizer = each
                answer = await get(node, "/metrics", basic("bob", "bob-secret"))
                assert (answer.status, answer.headers["retry-after"]) == (503, "1")
                assert set((await get(node, "/health", basic("bob", "bob-secret"))).json) == {"status", "reasons"}

    run(test())


def test_tls_alone(tmp_path: Path) -> None:
    """Client certificates are the login, as on a listener of the protocol SSL."""
    settings = {**AUTHORIZED, "ottla.http.listener": "127.0.0.1:0", "ottla.http.security.protocol": "SSL"}
    settings |= ssl_settings(tmp_path, AUTHORITY, NODE, PREFIX, client_auth="required")
    settings[f"{PREFIX}ssl.principal.mapping.rules"] = "RULE:^CN=(known-.*)$/$1/,RULE:^(CN=operator)$/$1/"

    async def test() -> None:
        async with running(str(tmp_path / "data"), settings) as node:
            for name, status in (("operator", 200), ("known-bob", 403)):
                context = trusting(tmp_path, AUTHORITY.issue(name, hosts=()))
                assert (await get(node, "/metrics", context=context)).status == status
            for identity in (None, Authority("Others").issue("operator", hosts=())):
                with pytest.raises((OSError, asyncio.IncompleteReadError)):
                    await get(node, "/metrics", context=trusting(tmp_path, identity))
            reader, _ = await opened(node, trusting(tmp_path, AUTHORITY.issue("nameless", hosts=())))
            assert await ended(reader) == b"", "no rule gives it a name"
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                await get(node, "/metrics")  # in the clear

    run(test())


def test_certificates_are_renewed_while_it_serves(tmp_path: Path) -> None:
    settings = {**SASL, "ottla.http.security.protocol": "SASL_SSL"} | ssl_settings(tmp_path, AUTHORITY, NODE, PREFIX)

    def renew() -> None:
        Path(settings[f"{PREFIX}ssl.keystore.location"]).write_text(AUTHORITY.issue("node").pem())

    async def serial(node: Node) -> Any:
        _, writer = await opened(node, trusting(tmp_path))
        found = writer.get_extra_info("peercert")["serialNumber"]
        writer.close()
        return found

    async def test() -> None:
        async with running(str(tmp_path / "data"), settings) as node:
            assert node.tls is not None
            before = await serial(node)
            renew()
            await node.tls.look(node.tls.listeners["HTTP"])
            assert await serial(node) != before

    run(test())


def test_a_password_is_hashed_once_and_a_changed_one_is_not_remembered(tmp_path: Path, monkeypatch: Any) -> None:
    hashed: list[str] = []
    real = logins._scram_check

    def counted(users: Any, name: str) -> Any:
        hashed.append(name)
        return real(users, name)

    monkeypatch.setattr(logins, "_scram_check", counted)

    async def test() -> None:
        async with secured(tmp_path, SASL) as node:
            for _ in range(3):
                assert (await get(node, "/metrics", basic("bob", "bob-secret"))).status == 200
            assert hashed == ["bob"]
            client = await Client.connect(node)
            deletions = {"deletions": [{"name": "bob", "mechanism": 1}], "upsertions": []}
            answer = await client.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions)
            assert answer["results"][0]["error_code"] == 0
            client.close()
            assert (await get(node, "/metrics", basic("bob", "bob-secret"))).status == 401

    run(test())


def test_wrong_credentials_wait_and_say_nothing_of_names(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def test() -> None:
        async with secured(tmp_path, SASL) as node:
            assert node.http is not None and node.http.logins is not None
            found = node.http.logins
            found._delay_s = 0.2
            said = set()
            for credentials in (
                basic("alice", "canary-password"),
                basic("nobody", "canary-password"),
                basic("pat", "canary-password"),
                "Basic canary!",
                "Bearer canary-token",
                "Digest canary",
                "Basic",
                "",
                basic("", "canary"),
            ):
                began = asyncio.get_running_loop().time()
                with pytest.raises(Unauthorized) as refused:
                    await found.identify(credentials, None, "10.0.0.9")
                assert asyncio.get_running_loop().time() - began >= 0.19
                said.add(str(refused.value))
            assert len(said) == 1 and found.counts.failures == 9
            found._delay_s = 0
            for _ in range(3 * logins.LOGGED_PER_SECOND_MAX):
                with pytest.raises(Unauthorized):
                    await found.identify("Basic canary!", "User:CN=operator", "10.0.0.9")

    run(test())
    lines = [each for each in caplog.records if each.getMessage() == "authentication failed"]
    assert 9 < len(lines) < 9 + 3 * logins.LOGGED_PER_SECOND_MAX
    assert all("canary" not in str(vars(each)) for each in caplog.records)


def test_tokens(tmp_path: Path) -> None:
    """As OAUTHBEARER takes them on a listener: signed by a known key, for this audience, by this issuer, not over."""
    settings = {
        **SASL,
        f"{PREFIX}sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{PREFIX}oauthbearer.sasl.oauthbearer.jwks.endpoint.url": "http://127.0.0.1:9/keys",
        f"{PREFIX}oauthbearer.sasl.oauthbearer.expected.audience": "kafka",
        f"{PREFIX}oauthbearer.sasl.oauthbearer.expected.issuer": "https://issuer",
    }
    now = int(time.time())

    def token(**changes: Any) -> str:
        return f"Bearer {signed(with_claims(**{'iat': now - 10, 'exp': now + 60, **changes}))}"

    async def test() -> None:
        async with running(str(tmp_path), settings) as node:
            assert node.http is not None and node.http.logins is not None
            assert [each[:6] for each in node.http.logins.challenges] == ["Bearer"]
            assert (await get(node, "/metrics", token())).status == 401, "without keys nobody is believed"
            tokens = node.http.logins._tokens
            assert isinstance(tokens, logins.JwksTokens)
            tokens.keys.keys = parse_keys(json.dumps({"keys": [jwk(rsa_key())]}).encode())
            assert (await get(node, "/metrics", token())).status == 200
            for changes in ({"aud": "others"}, {"iss": "https://others"}, {"exp": now - 60}):
                assert (await get(node, "/metrics", token(**changes))).status == 401
            assert (await get(node, "/metrics", basic("alice", "alice-secret"))).status == 401

    run(test())


def test_strangers_do_not_take_the_places_of_those_who_have_logged_in(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 4)

    async def test() -> None:
        async with secured(tmp_path, SASL) as node:
            reader, writer = await opened(node)
            writer.write(request("/metrics", basic("root", "root-secret")))
            assert (await receive(reader)).status == 200
            strangers = [await opened(node) for _ in range(8)]
            assert await ended(strangers[0][0]) == b"", "the first of them had to go"
            writer.write(request("/metrics", basic("root", "root-secret")))
            assert (await receive(reader)).status == 200
            for _, each in (*strangers, (reader, writer)):
                each.close()

    run(test())


def test_a_stranger_who_says_nothing_or_little_is_cut_off(tmp_path: Path) -> None:
    """The time until the first request is that of a login on a listener; a head has its own limit of bytes."""
    settings = {**SASL, "ottla.login.timeout.ms": "300"}

    async def test() -> None:
        async with secured(tmp_path, settings) as node:
            reader, _ = await opened(node)
            assert await asyncio.wait_for(ended(reader), 30) == b""
            assert node.http is not None
            node.http.first_request_s = 60.0  # the next one may be slow on a busy machine
            reader, writer = await opened(node)
            writer.write(b"GET / HTTP/1.1\r\nAuthorization: Basic " + b"A" * 2 * http.HEAD_BYTES_MAX)
            assert (await receive(reader)).status == 431
            assert await ended(reader) == b""

    run(test())


def test_two_headers_of_one_kind_are_refused(tmp_path: Path) -> None:
    """A proxy may have looked at the other one."""

    async def test() -> None:
        async with secured(tmp_path, SASL) as node:
            reader, writer = await opened(node)
            line = f"Authorization: {basic('root', 'root-secret')}\r\n"
            writer.write(f"GET /metrics HTTP/1.1\r\nHost: x\r\n{line}{line}\r\n".encode())
            assert (await receive(reader)).status == 400
            writer.close()

    run(test())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({f"{PREFIX}sasl.enabled.mechanisms": None}, "listener.name.http.sasl.enabled.mechanisms"),
        ({f"{PREFIX}sasl.enabled.mechanisms": "GSSAPI"}, "none of GSSAPI is of HTTP"),
        ({f"{PREFIX}plain.sasl.jaas.config": None}, "offers PLAIN without users"),
        ({f"{PREFIX}sasl.enabled.mechanisms": "OAUTHBEARER"}, "no keys to check tokens with"),
    ],
)
def test_a_port_where_nobody_could_log_in_does_not_start(
    tmp_path: Path, changes: Mapping[str, str | None], said: str
) -> None:
    settings = {name: text for name, text in {**SASL, **changes}.items() if text is not None}

    async def test() -> None:
        with pytest.raises(OttlaError, match=said):
            async with running(str(tmp_path / "data"), settings):
                pass
        assert not (tmp_path / "data").exists()

    run(test())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ottla.http.security.protocol": "TLS"}, "SASL_SSL"),
        ({f"{PREFIX}ssl.keystore.loction": "x"}, "unknown setting"),
        (
            {
                "ottla.http.security.protocol": "SASL_SSL",
                "listeners": "HTTP://127.0.0.1:9092",
                "listener.security.protocol.map": "HTTP:PLAINTEXT",
            },
            "a listener is named HTTP",
        ),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, str], said: str) -> None:
    with pytest.raises(OttlaError, match=said):
        ServerConfig.load(overrides={"log.dirs": "/data", **settings})


@pytest.mark.parametrize(
    ("settings", "is_open"),
    [
        ({}, True),
        ({"ottla.http.security.protocol": "SASL_SSL"}, False),
        ({"ottla.http.security.protocol": "SASL_PLAINTEXT"}, False),
        ({"ottla.http.security.protocol": "SSL"}, True),
        ({"ottla.http.security.protocol": "SSL", f"{PREFIX}ssl.client.auth": "required"}, False),
        ({"authorizer.class.name": AUTHORIZED["authorizer.class.name"]}, False),
        (AUTHORIZED, True),
    ],
)
def test_which_http_ports_are_open_to_everybody(settings: dict[str, str], is_open: bool) -> None:
    base = {"log.dirs": "/data", "listeners": "PLAINTEXT://127.0.0.1:9092", "ottla.http.listener": ":9404"}
    config = ServerConfig.load(overrides={**base, **settings})
    assert open_ports(config, {}) == ([("", 9404, "HTTP")] if is_open else [])


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (basic("alice", "a:b c"), Password),
        ("bearer eyJ.a_-~+/b==", BearerToken),
        (f"basic  {base64.b64encode('jürgen:ß'.encode()).decode()}", Password),
        ("Basic YWxpY2U=", None),
        ("Basic Ong=", None),
        (basic("alice", "x\ny"), None),
        ("Basic /w==", None),
        ("Bearer a b", None),
        ("Bearer", None),
        ("Bearer é", None),
        ("Negotiate abc", None),
    ],
)
def test_headers(header: str, expected: type | None) -> None:
    if expected is not None:
        found = parse_authorization(header)
        assert isinstance(found, expected) and "[hidden]" in repr(found)
        return
    with pytest.raises(AuthenticationFailed):
        parse_authorization(header)


def test_logins_are_in_the_audit_log(tmp_path: Path) -> None:
    """The first with a password, and each that fails; what is remembered is no login."""
    settings = {**SASL, **AUTHORIZED, "ottla.http.security.protocol": "SASL_PLAINTEXT"}
    settings |= {"ottla.audit.directory": str(tmp_path / "audit"), "connection.failed.authentication.delay.ms": "0"}

    async def test() -> None:
        async with secured(tmp_path, settings) as node:
            for _ in range(2):
                assert (await get(node, "/metrics", basic("root", "root-secret"))).status in (200, 403)
            assert (await get(node, "/metrics", basic("root", "guessed-c0ffee"))).status == 401

    run(test())
    log = "".join(each.read_text() for each in (tmp_path / "audit").rglob("*.jsonl"))
    of_http = [each for each in map(json.loads, log.splitlines()) if each.get("listener") == "HTTP"]
    assert [(each["event"], each.get("principal"), each.get("claimed")) for each in of_http] == [
        ("LoggedIn", "User:root", None),
        ("LoginFailed", None, "root"),
    ]
    assert "c0ffee" not in log and {each["mechanism"] for each in of_http} == {"Basic"}
