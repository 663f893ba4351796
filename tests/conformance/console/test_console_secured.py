"""The console of a secured cluster: each user sees what the cluster's ACLs let that user see by the protocol."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from ottla.cli.security import secured
from ottla.client.properties import read_file
from ottla.client.security_settings import parse_security
from ottla.console.routes import API, DOWNLOAD, PAGES
from ottla.console.server import Console, Options
from tests.conformance.security.test_secured_node import SecuredNode

PASSWORD = "cAnArY-of-everybody"
SECRET = "cAnArY-record"
LIMIT_S = 60.0
USERS = ("nobody", "lister", "reader")
ACLS = (
    ("lister", AclOperation.DESCRIBE, ResourceType.TOPIC, "orders"),
    ("reader", AclOperation.READ, ResourceType.TOPIC, "orders"),
    ("reader", AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "orders"),
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with SecuredNode(tmp_path_factory.mktemp("secured")) as node:
        client = dict(read_file(node.root / secured.LIBRDKAFKA))
        admin = AdminClient(client)
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        users: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(name, info, PASSWORD.encode()) for name in USERS
        ]
        for change in admin.alter_user_scram_credentials(users).values():
            change.result(30)
        allow, literal = AclPermissionType.ALLOW, ResourcePatternType.LITERAL
        bindings = [
            AclBinding(kind, name, literal, f"User:{user}", "*", operation, allow)
            for user, operation, kind, name in ACLS
        ]
        for made in [
            *admin.create_acls(bindings).values(),
            *admin.create_topics([NewTopic("orders", 1), NewTopic("concealed", 1)]).values(),
        ]:
            made.result(30)
        producer = Producer(client)
        for topic in ("orders", "concealed"):
            producer.produce(topic, SECRET)
        producer.flush()
        yield node


@pytest.fixture(scope="module")
def url(node: SecuredNode) -> Iterator[str]:
    made = Console(Options(node.bootstrap, port=0, security=parse_security(read_file(node.client))))
    thread = threading.Thread(target=made.serve, daemon=True)
    thread.start()
    yield made.url
    made.stop()
    thread.join(LIMIT_S)
    assert not thread.is_alive()


@contextmanager
def logged_in(url: str, name: str, password: str = PASSWORD) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=LIMIT_S) as client:
        answer = client.post("/login", data={"user": name, "password": password})
        assert answer.status_code == 303, answer.text
        yield client


def test_logins(url: str, node: SecuredNode) -> None:
    with httpx.Client(base_url=url, timeout=LIMIT_S) as client:
        for name, password in (("reader", "wrong"), ("none", PASSWORD), ("admin", PASSWORD)):
            answer = client.post("/login", data={"user": name, "password": password})
            assert answer.status_code == 401
            assert "The login was refused" in answer.text
            assert not client.cookies
        assert client.get("/topics").status_code == 303
    with logged_in(url, "reader") as client:
        assert "reader" in client.get("/").text
        client.post("/logout")
        assert client.get("/").status_code == 303
    with httpx.Client(base_url=url, timeout=LIMIT_S, auth=("admin", node.password)) as client:
        assert {row["name"] for row in client.get(f"{API}/topics").json()["data"]["rows"]} == {"orders", "concealed"}


def asked(client: httpx.Client, path: str) -> tuple[int, Any]:
    answer = client.get(API + path)
    return answer.status_code, answer.json()


def test_rights_that_are_missing_are_named(url: str) -> None:
    with logged_in(url, "lister") as client:
        status, topic = asked(client, "/topics/orders")
        assert status == 200
        assert topic["data"]["partitions"][0]["end"] == "1"
        assert topic["data"]["settings"] is None
        assert topic["problems"]["settings"]["right"] == "DescribeConfigs on Topic orders"
        assert topic["problems"]["producers"]["right"] == "Read on Topic orders"
        assert topic["problems"]["sizes"]["right"] == "Describe on the cluster"
        status, messages = asked(client, "/topics/orders/messages")
        assert messages["data"]["rows"] == []
        assert messages["problems"]["messages"]["right"] == "Read on Topic orders"
        assert "you need Read on Topic orders" in client.get("/topics/orders/messages").text
        status, security = asked(client, "/security")
        assert {part: each["right"] for part, each in security["problems"].items()} == {
            "acls": "Describe on the cluster",
            "users": "Describe on the cluster",
            "quotas": "DescribeConfigs on the cluster",
        }
        status, broker = asked(client, "/brokers/1")
        assert broker["data"]["settings"] is None
        assert broker["problems"]["settings"]["right"] == "DescribeConfigs on the cluster"
    with logged_in(url, "reader") as client:
        status, messages = asked(client, "/topics/orders/messages")
        assert [row["value"]["text"] for row in messages["data"]["rows"]] == [SECRET]
        assert asked(client, "/topics/orders")[1]["data"]["settings"]


@pytest.mark.parametrize("name", ["nobody", "lister", "reader"])
def test_no_page_shows_what_the_protocol_would_not(url: str, node: SecuredNode, name: str) -> None:
    """Each page and its JSON, of each topic: only who may read a topic sees its records, or who may see it its name."""
    may_see = {"nobody": set(), "lister": {"orders"}, "reader": {"orders"}}[name]
    may_read = {"reader": {"orders"}}.get(name, set())
    with logged_in(url, name) as client:
        for topic in ("orders", "concealed"):
            inside = {"{topic}": topic, "{group:any}": "g", "{broker}": "1", "{subject:any}": "s"}
            for page in (*PAGES, DOWNLOAD):
                path = page.path
                for place, value in inside.items():
                    path = path.replace(place, value)
                path += "?partition=0&offset=0" if page is DOWNLOAD else ""
                for prefix in ("", API):
                    whole = prefix + (f"/{page.name}" if prefix and path == "/" else path)
                    answer = client.get(whole)
                    assert answer.status_code in (200, 400, 403, 404), (whole, answer.text[:300])
                    assert PASSWORD not in answer.text
                    if "{topic}" in page.path:
                        assert (SECRET in answer.text) <= (topic in may_read), whole
                        assert (answer.status_code == 200) <= (topic in may_see), whole
                    else:
                        assert SECRET not in answer.text, whole
                        assert "concealed" not in answer.text, whole
        answer = client.get(f"{DOWNLOAD.path.replace('{topic}', 'orders')}?partition=0&offset=0")
        assert (answer.status_code == 200) == (name == "reader")
        rows = asked(client, "/topics")[1]["data"]["rows"]
        assert {row["name"] for row in rows} == may_see
