"""A registry with logins and permissions, beside a secured node: each route, users with one right, certificates,
requests that are passed on, and strangers."""

from __future__ import annotations

import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from ottla.cli.security import authority, secured
from ottla.client.properties import read_file
from ottla.client.security import PLAINTEXT, Security
from ottla.client.security_settings import parse_security
from ottla.errors import OttlaError
from ottla.registry import app, guarded, rules
from ottla.registry.guard import Guard
from ottla.registry.handlers import ROUTES
from ottla.registry.port_settings import config_of, refuse_open
from ottla.registry.server import Instance, Options
from ottla.schemas import access
from ottla.schemas.client import Registry as Client
from ottla.server.security.permissions import Open
from tests.conformance.security.test_secured_node import SecuredNode

PASSWORD = "cAnArY-of-everybody"
SCHEMA = json.dumps({"type": "record", "name": "T", "fields": [{"name": "a", "type": "int"}]})
BODY = {"schema": SCHEMA}
LIMIT_S = 60.0

ACLS = (
    ("reader", AclOperation.READ, ResourceType.TOPIC, "orders"),
    ("writer", AclOperation.WRITE, ResourceType.TOPIC, "orders"),
    ("owner", AclOperation.ALL, ResourceType.TOPIC, "orders"),
    ("owner", AclOperation.ALL, ResourceType.TOPIC, "com.acme.Order"),
    ("operator", AclOperation.ALL, ResourceType.BROKER, "kafka-cluster"),
)  # fmt: skip
USERS = ("nobody", "reader", "writer", "owner", "operator")


class World:
    """A secured node, its users, and instances of registries beside it."""

    def __init__(self, node: SecuredNode) -> None:
        self.node = node
        self.security = parse_security(read_file(node.client))
        security = node.root / secured.SECURITY
        self.ca, self.key_file = security / "ca.pem", security / "registry.pem"
        authority.write_private(self.key_file, authority.issue(security, "registry", authority.own_names([])))
        self.base = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.key_file),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            "super.users": "User:admin;User:CN=registry",
            "connection.failed.authentication.delay.ms": "0",
        }
        self.login = {**self.base, "ottla.http.security.protocol": "SASL_SSL"}

    def context(self, name: str | None = None) -> ssl.SSLContext:
        """The context of a client that trusts the authority, with a certificate of this name."""
        found = ssl.create_default_context(cafile=self.ca)
        if name is not None:
            file = self.node.root / f"{name}.pem"
            authority.write_private(file, authority.issue(self.node.root / secured.SECURITY, name, [name]))
            found.load_cert_chain(file)
        return found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with SecuredNode(tmp_path_factory.mktemp("secured")) as node:
        admin = AdminClient(dict(read_file(node.root / secured.LIBRDKAFKA)))
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        users: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(name, info, PASSWORD.encode()) for name in USERS
        ]
        for change in admin.alter_user_scram_credentials(users).values():
            change.result(30)
        bindings = [
            AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
            for user, operation, kind, name in ACLS
        ]
        for made in admin.create_acls(bindings).values():
            made.result(30)
        yield World(node)


@contextmanager
def instance(world: World, settings: Mapping[str, str], *, alone: bool = True, name: str = "_schemas") -> Iterator[str]:
    """The URL of a registry in a thread of this process."""
    options = Options(
        world.node.bootstrap, port=0, topic=name, group=name, is_alone=alone, security=world.security, http=settings
    )
    assert PASSWORD not in repr(options)
    made = Instance(options)
    try:
        made.start()
    except BaseException:
        made.close()
        raise
    thread = threading.Thread(target=made.serve, daemon=True)
    thread.start()
    try:
        yield made.url
    finally:
        made.stop()
        thread.join(LIMIT_S)


@pytest.fixture(scope="module")
def url(world: World) -> Iterator[str]:
    with instance(world, world.login) as found:
        with as_user(world, "admin", found) as client:
            for subject in ("orders-value", "others-value", ":.staging:orders-value"):
                assert client.post(f"/subjects/{subject}/versions", json=BODY).status_code == 200
        yield found


@contextmanager
def as_user(world: World, name: str | None, url: str, password: str | None = None) -> Iterator[httpx.Client]:
    word = password or (world.node.password if name == "admin" else PASSWORD)
    with httpx.Client(
        base_url=url, verify=world.context(), auth=None if name is None else (name, word), timeout=LIMIT_S
    ) as client:
        yield client


def filled(path: str, subject: str = "orders-value") -> str:
    """A route's path with something that is there."""
    return (
        path.replace("{subject}", subject)
        .replace("{version}", "1")
        .replace("{id}", "1")
        .replace("{guid}", "no-such")
        .replace("{context}", ".staging")
    )


def test_each_route_is_closed_to_strangers_and_to_who_may_do_nothing(world: World, url: str) -> None:
    """CVE-2026-105931, CVE-2026-105938: being logged in is not enough anywhere."""
    looked_at = 0
    with as_user(world, None, url) as stranger, as_user(world, "nobody", url) as nobody:
        for route in ROUTES:
            path = filled(route.path)
            first = stranger.request(route.method, path, json=BODY if route.method in ("POST", "PUT") else None)
            second = nobody.request(route.method, path, json=BODY if route.method in ("POST", "PUT") else None)
            if isinstance(route.needs, Open):
                assert (first.status_code, second.status_code) == (200, 200), path
                continue
            looked_at += 1
            assert first.status_code == 401 and first.headers["www-authenticate"].startswith("Basic"), path
            assert first.json()["error_code"] == 40101
            if route.needs[0].where == "each subject":
                assert second.json() == [], path
            elif "{guid}" in route.path:
                assert second.status_code == 404, path
            else:
                assert second.status_code == 403 and second.json()["error_code"] == 40301, (path, second.text)
                assert "User:nobody needs" in second.json()["message"]
    assert looked_at == len(ROUTES) - 3


def test_what_one_right_is_good_for(world: World, url: str) -> None:
    """READ and WRITE are enough to see; to change takes the operation itself."""

    def allowed(user: str) -> set[str]:
        with as_user(world, user, url) as client:
            found = set()
            for name, method, path, body in (
                ("get", "GET", "/subjects/orders-value/versions/latest", None),
                ("by id", "GET", "/schemas/ids/1?subject=orders-value", None),
                ("lookup", "POST", "/subjects/orders-value", BODY),
                ("compare", "POST", "/compatibility/subjects/orders-value/versions", BODY),
                ("register", "POST", "/subjects/orders-value/versions", BODY),
                ("see level", "GET", "/config/orders-value?defaultToGlobal=true", None),
                ("set level", "PUT", "/config/orders-value", {"compatibility": "NONE"}),
                ("others", "GET", "/subjects/others-value/versions/latest", None),
                ("staging", "GET", "/subjects/:.staging:orders-value/versions/latest", None),
                ("see all", "GET", "/config", None),
                ("set all", "PUT", "/config", {"compatibility": "BACKWARD"}),
                ("set context", "PUT", "/config/:.staging:", {"compatibility": "NONE"}),
            ):
                answer = client.request(method, path, json=body)
                assert answer.status_code in (200, 403), (name, answer.text)
                if answer.status_code == 200:
                    found.add(name)
            found |= {f"sees {each}" for each in client.get("/subjects").json()}
            return found

    seen = {"get", "by id", "lookup", "compare", "sees orders-value"}
    assert allowed("reader") == seen
    assert allowed("writer") == seen | {"register"}
    assert allowed("owner") == seen | {"register", "see level", "set level"}
    assert allowed("operator") == {"see all", "set all", "set context"}
    assert allowed("admin") >= {"staging", "others", "sees :.staging:orders-value", "sees others-value"}


def test_what_is_named_by_another_name_is_asked_for_by_its_own(world: World, url: str) -> None:
    """An alias, a reference and another context lead to what their user may not see."""
    with as_user(world, "admin", url) as admin:
        assert admin.put("/config/com.acme.Order", json={"alias": "others-value"}).status_code == 200
        assert admin.get("/subjects/com.acme.Order/versions/1").status_code == 200
        secret = admin.post("/subjects/secret/versions", json={"schema": '{"type":"enum","name":"S","symbols":["x"]}'})
        in_context = {"schema": '{"type":"enum","name":"C","symbols":["x"]}'}
        assert admin.post("/subjects/:.else:com.acme.Hidden/versions", json=in_context).status_code == 200
    with as_user(world, "owner", url) as owner:
        assert owner.get("/subjects/com.acme.Order/versions/1").status_code == 403
        assert owner.get("/subjects/com.acme.Order/versions/1/schema").status_code == 403
        assert owner.post("/subjects/com.acme.Order", json=BODY).status_code == 403
        assert owner.get("/subjects/com.acme.Hidden/versions/1").status_code == 403
        for subject in ("secret", "com.acme.Order"):
            referring = {
                "schema": '{"type":"record","name":"U","fields":[{"name":"s","type":"S"}]}',
                "references": [{"name": "S", "subject": subject, "version": 1}],
            }
            for path in (
                "/subjects/orders-value/versions",
                "/subjects/orders-value",
                "/compatibility/subjects/orders-value/versions",
            ):
                assert owner.post(path, json=referring).status_code == 403, (subject, path)
        by_id = owner.get(f"/schemas/ids/{secret.json()['id']}")
        assert by_id.status_code == 403 and "symbols" not in by_id.text
        assert owner.get(f"/schemas/guids/{secret.json()['guid']}").status_code == 403
        assert owner.get(f"/schemas/guids/{secret.json()['guid']}/ids").status_code == 403
        assert owner.get("/contexts").json() == ["."]


def test_confluents_client_and_serializers(world: World, url: str) -> None:
    def client(user: str) -> SchemaRegistryClient:
        return SchemaRegistryClient(
            {"url": url, "ssl.ca.location": str(world.ca), "basic.auth.user.info": f"{user}:{PASSWORD}"}
        )

    at = SerializationContext("orders", MessageField.VALUE)
    data = AvroSerializer(client("writer"), SCHEMA)({"a": 1}, at)
    assert AvroDeserializer(client("reader"))(data, at) == {"a": 1}
    with pytest.raises(Exception, match="User:nobody needs"):
        client("nobody").get_latest_version("orders-value")


def test_our_clients(world: World, url: str) -> None:
    """With files of their own, with what the client itself has, and with texts for machines without the files."""
    login = {"schema.registry.basic.auth.user.info": f"reader:{PASSWORD}"}
    own = {access.URL: url, "schema.registry.ssl.ca.location": str(world.ca), **login}
    inherits = {access.URL: url, "client.config": str(world.node.client)}
    for options in (own, inherits):
        carried = access.carried(options)
        assert str(world.ca) not in json.dumps(carried), "the text of the certificate, not the path"
        client = Client.of_options(carried)
        assert client.version("orders-value").id == 1
        client.close()
    with pytest.raises(ValueError, match="is not trusted"):
        Client.of_options(access.carried({access.URL: url, **login})).subjects()
    with pytest.raises(ValueError, match="is not https with a checked certificate"):
        access.carried({**inherits, access.URL: "http://example.org:8081"})
    unchecked = {**read_file(world.node.client), "enable.ssl.certificate.verification": "false"}
    with pytest.raises(ValueError, match="password is not sent there"):
        access.carried({**inherits, access.URL: "https://example.org:8081"}, parse_security(unchecked))


def test_passwords(world: World, url: str, caplog: pytest.LogCaptureFixture) -> None:
    with as_user(world, "reader", url, "wrong") as wrong:
        answer = wrong.get("/subjects")
        assert answer.status_code == 401 and answer.headers["connection"] == "close"
    with as_user(world, "no-such-user", url) as unknown:
        assert unknown.get("/subjects").text == answer.text
        assert unknown.get("/").status_code == 401, "wrong credentials are never ignored"
    with as_user(world, None, url) as client:
        twice = client.get("/subjects", headers=[("Authorization", "Basic a"), ("Authorization", "Basic b")])
        assert twice.status_code == 400
    assert PASSWORD not in caplog.text


def test_a_changed_acl_counts_soon(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "REFRESH_S", 0.05)
    admin = AdminClient(dict(read_file(world.node.root / secured.LIBRDKAFKA)))
    binding = AclBinding(
        ResourceType.TOPIC,
        "late",
        ResourcePatternType.LITERAL,
        "User:nobody",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    with instance(world, world.login) as url, as_user(world, "nobody", url) as client:
        assert client.get("/subjects/late-value/versions").status_code == 403
        for made in admin.create_acls([binding]).values():
            made.result(30)
        deadline = time.monotonic() + LIMIT_S
        while client.get("/subjects/late-value/versions").status_code != 404:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_certificates_and_requests_that_are_passed_on(world: World) -> None:
    """One instance of two writes: the other passes the user's name on, which counts from a super user alone."""
    settings = {
        **world.base,
        "ottla.http.security.protocol": "SSL",
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(owner|reader)$/$1/,DEFAULT",
    }
    with (
        instance(world, settings, alone=False, name="_passed") as one,
        instance(world, settings, alone=False, name="_passed") as two,
        httpx.Client(verify=world.context("owner"), timeout=LIMIT_S) as owner,
        httpx.Client(verify=world.context("reader"), timeout=LIMIT_S) as reader,
        httpx.Client(verify=world.context("registry"), timeout=LIMIT_S) as other,
    ):
        for number, each in enumerate((one, two)):
            other_body = {"schema": json.dumps({"type": "enum", "name": f"E{number}", "symbols": ["A"]})}
            owner.put(f"{each}/config/orders-value", json={"compatibility": "NONE"}).raise_for_status()
            owner.post(f"{each}/subjects/orders-value/versions", json=other_body).raise_for_status()
            assert reader.post(f"{each}/subjects/orders-value/versions", json=other_body).status_code == 403
            named = {app.FORWARDED_FOR: "User:owner@127.0.0.1"}
            url = f"{each}/config/orders-value"
            assert reader.put(url, json={"compatibility": "NONE"}, headers=named).status_code == 403
            as_nobody = {app.FORWARDED_FOR: "User:nobody@127.0.0.1"}
            assert other.put(url, json={"compatibility": "NONE"}).status_code == 200
            assert other.put(url, json={"compatibility": "NONE"}, headers=as_nobody).status_code == 403
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{one}/", verify=world.context())


def test_strangers_who_say_little(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded, "REQUEST_SECONDS_MAX", 0.3)
    monkeypatch.setattr(app, "BODY_SECONDS_MAX", 0.3)
    monkeypatch.setattr(guarded, "CONNECTIONS_MAX", 4)
    settings = {
        "ottla.http.security.protocol": "SASL_PLAINTEXT",
        "super.users": "User:admin",
        "connection.failed.authentication.delay.ms": "0",
    }
    with instance(world, settings) as url:
        place = ("127.0.0.1", int(url.rpartition(":")[2]))
        for sent in (b"", b"GET /subjects HTTP/1.1\r\nX: "):
            with socket.create_connection(place, LIMIT_S) as slow:
                slow.sendall(sent)
                assert slow.recv(1) == b"", "cut off"
        monkeypatch.setattr(guarded, "REQUEST_SECONDS_MAX", LIMIT_S)  # the others may be slow on a busy machine
        with as_user(world, "admin", url) as admin:
            assert admin.get("/subjects").status_code == 200
            crowd = [socket.create_connection(place, LIMIT_S) for _ in range(8)]
            assert admin.get("/subjects").status_code == 200
            for each in crowd:
                each.close()
        head = b"POST /subjects/orders-value HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"
        with socket.create_connection(place, LIMIT_S) as stranger:
            stranger.sendall(head + b"\r\n")
            assert b" 401 " in stranger.recv(1000), "before the body, which never comes"
        with socket.create_connection(place, LIMIT_S) as slow:
            credentials = httpx.BasicAuth("admin", world.node.password)._auth_header
            slow.sendall(head + f"Authorization: {credentials}\r\n\r\n".encode())
            assert b" 408 " in slow.recv(1000)


@pytest.mark.parametrize(
    ("settings", "security", "said"),
    [
        (
            {"ottla.http.security.protocol": "SASL_PLAINTEXT", "sasl.enabled.mechanisms": "SCRAM-SHA-256"},
            PLAINTEXT,
            "its own connection to them has no login",
        ),
        ({"ottla.http.security.protocol": "SASL_PLAINTEXT"}, PLAINTEXT, "none of GSSAPI is of HTTP"),
        ({"ottla.http.security.protocol": "SSL"}, PLAINTEXT, "ssl.keystore"),
        ({"listener.name.http.ssl.keystore.loction": "x"}, PLAINTEXT, "unknown setting"),
    ],
)
def test_settings_by_which_nobody_could_log_in(settings: dict[str, str], security: Security, said: str) -> None:
    with pytest.raises(OttlaError, match=re.escape(said)):
        Guard(settings, "127.0.0.1", 0, "127.0.0.1:9092", security)


@pytest.mark.parametrize(
    ("host", "settings", "is_refused"),
    [
        ("127.0.0.1", {}, False),
        ("0.0.0.0", {}, True),
        ("10.1.2.3", {"ottla.http.security.protocol": "SSL"}, True),
        ("10.1.2.3", {"ottla.http.security.protocol": "SSL", "listener.name.http.ssl.client.auth": "required"}, False),
        ("10.1.2.3", {"ottla.http.security.protocol": "SASL_SSL"}, False),
        ("::", {"ottla.allow.open.listeners": "true", "log.retention.ms": "1"}, False),
    ],
)
def test_what_is_open_to_everybody_does_not_start(host: str, settings: dict[str, str], is_refused: bool) -> None:
    config = config_of(settings, host, 8081)
    if not is_refused:
        refuse_open(config, host)
        return
    with pytest.raises(OttlaError, match="OTTLA_ALLOW_OPEN_LISTENERS"):
        refuse_open(config, host)


def test_the_file_of_a_node_will_do(tmp_path: Path) -> None:
    """What is not of the port is left out, the rest is checked as it is for a node."""
    found = config_of({"process.roles": "broker", "listeners": "SSL://:9092", "super.users": "User:a"}, "h", 1)
    assert found.listeners[0].protocol == "PLAINTEXT" and found.static["super.users"] == "User:a"
