"""The console of a secured cluster: each user sees what the cluster's ACLs let that user see by the protocol."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
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
from ottla.console.brokers import Brokers
from ottla.console.routes import API, DOWNLOAD, PAGES
from ottla.console.server import Console, Options
from ottla.protocol.fetch import FetchRequest, FetchResponse
from tests.conformance.security.test_secured_node import SecuredNode

PASSWORD = "cAnArY-of-everybody"
SECRET = "cAnArY-record"
LIMIT_S = 60.0
USERS = ("nobody", "lister", "reader", "keeper")
ACLS = (
    ("lister", AclOperation.DESCRIBE, ResourceType.TOPIC, "orders"),
    ("reader", AclOperation.READ, ResourceType.TOPIC, "orders"),
    ("reader", AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "orders"),
)
KEPT = "k-"
"""What the names begin with of topics and groups that acts are on."""
PREFIXED = (
    ("lister", AclOperation.DESCRIBE, ResourceType.TOPIC), ("lister", AclOperation.DESCRIBE, ResourceType.GROUP),
    ("reader", AclOperation.READ, ResourceType.TOPIC), ("reader", AclOperation.READ, ResourceType.GROUP),
    ("keeper", AclOperation.CREATE, ResourceType.TOPIC), ("keeper", AclOperation.DELETE, ResourceType.TOPIC),
    ("keeper", AclOperation.ALTER, ResourceType.TOPIC), ("keeper", AclOperation.ALTER_CONFIGS, ResourceType.TOPIC),
    ("keeper", AclOperation.WRITE, ResourceType.TOPIC), ("keeper", AclOperation.DELETE, ResourceType.GROUP),
)  # fmt: skip


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
        bindings += [
            AclBinding(kind, KEPT, ResourcePatternType.PREFIXED, f"User:{user}", "*", operation, allow)
            for user, operation, kind in PREFIXED
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
    security = parse_security(read_file(node.client))
    made = Console(Options(node.bootstrap, port=0, security=security, log_dirs=(str(node.data),)))
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
                path += "?partition=0&offset=0" if page is DOWNLOAD else "?group=g" if path == "/group" else ""
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


@pytest.mark.parametrize("name", ["nobody", "lister", "reader"])
def test_a_search_in_files_reads_as_its_user(
    url: str, node: SecuredNode, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The console can read the log files of every topic; the node says who may."""
    asked_for: list[int] = []
    ask = Brokers.fetch

    def counted(self: Brokers, node_id: int, request: FetchRequest, into: bytearray | None = None) -> FetchResponse:
        asked_for.append(request.topics[0].partitions[0].partition_max_bytes)
        return ask(self, node_id, request, into)

    monkeypatch.setattr(Brokers, "fetch", counted)
    with logged_in(url, name) as client:
        for topic in ("orders", "concealed"):
            asked_for.clear()
            answer = client.get(f"{API}/topics/{topic}/messages", params={"q": SECRET})
            is_read = name == "reader" and topic == "orders"
            rows = answer.json()["data"]["rows"] if answer.status_code == 200 else []
            assert [row["value"]["text"] for row in rows] == [SECRET] * is_read, answer.text
            if is_read:
                assert asked_for == [1]  # only whether it may
            elif name == "lister" and topic == "orders":
                assert answer.json()["problems"]["messages"]["right"] == "Read on Topic orders"


@pytest.mark.parametrize("name", ["nobody", "lister", "reader"])
def test_a_query_reads_as_its_user(url: str, node: SecuredNode, name: str) -> None:
    with logged_in(url, name) as client:
        for topic in ("orders", "concealed"):
            query = {"sql": f"select value from {topic}", "values": "string", "seconds": "30"}
            answer = client.get(f"{API}/sql", params=query)
            assert answer.status_code == 200, answer.text
            is_read = name == "reader" and topic == "orders"
            assert bool(answer.json()["data"]["rows"]) == is_read, answer.text
            assert (SECRET in answer.text) == is_read
            assert PASSWORD not in answer.text


# Acts: done by whom a client of another make may do the same


def created(client: AdminClient, name: str, _: Producer) -> None:
    client.create_topics([NewTopic(name, 1)])[name].result(30)


def grown(client: AdminClient, name: str, _: Producer) -> None:
    client.create_partitions([NewPartitions(name, 2)])[name].result(30)


def emptied(client: AdminClient, name: str, _: Producer) -> None:
    for each in client.delete_records([TopicPartition(name, 0, 1)]).values():
        each.result(30)


def deleted(client: AdminClient, name: str, _: Producer) -> None:
    client.delete_topics([name])[name].result(30)


def written(_: AdminClient, name: str, producer: Producer) -> None:
    failures: list[Any] = []
    producer.produce(name, b"x", partition=0, on_delivery=lambda error, _: failures.append(error))
    producer.flush(30)
    if failures[0] is not None:
        raise KafkaException(failures[0])


def configured(client: AdminClient, name: str, _: Producer) -> None:
    entry = ConfigEntry("retention.ms", "5", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
    for each in client.incremental_alter_configs([resource]).values():
        each.result(30)


def moved(client: AdminClient, name: str, _: Producer) -> None:
    wanted = ConsumerGroupTopicPartitions(name, [TopicPartition(name, 0, 1)])
    answer = client.alter_consumer_group_offsets([wanted])[name].result(30)
    for each in answer.topic_partitions:
        if each.error is not None:
            raise KafkaException(each.error)


def dissolved(client: AdminClient, name: str, _: Producer) -> None:
    client.delete_consumer_groups([name])[name].result(30)


def welcomed(client: AdminClient, name: str, _: Producer) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change: list[UserScramCredentialAlteration] = [UserScramCredentialUpsertion(name, info, b"x")]
    for each in client.alter_user_scram_credentials(change).values():
        each.result(30)


def allowed(client: AdminClient, name: str, _: Producer) -> None:
    acl = AclBinding(
        ResourceType.TOPIC, name, ResourcePatternType.LITERAL, "User:x", "*", AclOperation.READ, AclPermissionType.ALLOW
    )
    client.create_acls([acl])[acl].result(30)


WAYS: dict[str, tuple[Callable[[AdminClient, str, Producer], None], dict[str, str]]] = {
    "create-topic": (created, {"topic": "NEW", "partitions": "1"}),
    "add-partitions": (grown, {"topic": "NAME", "partitions": "2"}),
    "delete-records": (emptied, {"topic": "NAME", "before": "1", "confirm": "NAME"}),
    "produce": (written, {"topic": "NAME", "value": "x"}),
    "configure-topic": (configured, {"topic": "NAME", "name": "retention.ms", "value": "5"}),
    "reset-offsets": (moved, {"group": "NAME", "to": "offset", "value": "1"}),
    "delete-group": (dissolved, {"group": "NAME", "confirm": "NAME"}),
    "delete-topic": (deleted, {"topic": "NAME", "confirm": "NAME"}),
    "set-password": (welcomed, {"user": "NEW", "password": "x"}),
    "create-acl": (allowed, {"principal": "x", "name": "NAME"}),
}
"""What another client asks for, and the act."""
DOERS = {
    "nobody": set(), "lister": set(), "reader": {"reset-offsets"},
    "keeper": {"create-topic", "add-partitions", "delete-records", "produce", "configure-topic", "delete-group",
               "delete-topic"},
    "admin": set(WAYS),
}  # fmt: skip
"""Which acts each user may do: so that not all of them are refused by both."""


@pytest.mark.parametrize("user", list(DOERS))
def test_acts_are_those_that_the_protocol_allows(url: str, node: SecuredNode, user: str) -> None:
    settings: dict[str, Any] = dict(read_file(node.root / secured.LIBRDKAFKA))
    admin = AdminClient(settings)
    names = {(act, way): f"{KEPT}{user}-{act}-{way}" for act in WAYS for way in ("console", "client")}
    made = admin.create_topics([NewTopic(name, 1) for name in names.values()])
    for each in made.values():
        each.result(60)
    filling = Producer(settings)
    for name in names.values():
        filling.produce(name, b"x", partition=0)
    filling.flush()
    groups = [name for (act, _), name in names.items() if act in ("reset-offsets", "delete-group")]
    for name in groups:
        wanted = ConsumerGroupTopicPartitions(name, [TopicPartition(name, 0, 0)])
        admin.alter_consumer_group_offsets([wanted])[name].result(30)
    password = node.password if user == "admin" else PASSWORD
    if user != "admin":
        mechanism = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.mechanisms": "SCRAM-SHA-256"}
        settings = {
            **{key: value for key, value in settings.items() if key not in mechanism},
            "sasl.username": user,
            "sasl.password": password,
            "sasl.mechanism": "SCRAM-SHA-256",
        }
    client, producer = AdminClient(settings), Producer({**settings, "message.timeout.ms": 20_000})
    found: dict[str, tuple[bool, bool]] = {}
    with httpx.Client(base_url=url, timeout=LIMIT_S, auth=(user, password)) as program:
        for act, (way, values) in WAYS.items():
            name = names[act, "client"]
            try:
                way(client, f"{name}-new" if "NEW" in values.values() else name, producer)
                by_client = True
            except KafkaException as failure:
                # librdkafka's own word for a topic that it is not shown is _NOENT.
                name_of_error = failure.args[0].name()
                assert "AUTHORIZATION" in name_of_error or name_of_error == "_NOENT", (act, name_of_error)
                by_client = False
            name = names[act, "console"]
            body = {key: {"NAME": name, "NEW": f"{name}-new"}.get(value, value) for key, value in values.items()}
            answer = program.post(f"{API}/acts/{act}", json=body)
            assert answer.status_code in (200, 403, 404), (act, answer.text)
            if answer.status_code == 403:
                assert "you need" in answer.json()["error"]
            found[act] = by_client, answer.status_code == 200
    assert {act for act, (by_client, _) in found.items() if by_client} == DOERS[user]
    assert {act for act, (_, by_console) in found.items() if by_console} == DOERS[user]
    left = set(admin.list_topics(timeout=30).topics)
    assert (names["delete-topic", "console"] in left) == ("delete-topic" not in DOERS[user])
    assert (f"{names['create-topic', 'console']}-new" in left) == ("create-topic" in DOERS[user])


def test_an_acl_is_made_seen_and_deleted(url: str, node: SecuredNode) -> None:
    values = {"principal": "User:ann", "operation": "describe-configs", "name": "made-here", "pattern": "prefixed"}
    with httpx.Client(base_url=url, timeout=LIMIT_S, auth=("admin", node.password)) as program:

        def seen() -> list[Any]:
            return asked(program, "/security?q=made-here")[1]["data"]["acls"]

        assert program.post(f"{API}/acts/create-acl", json=values).status_code == 200
        (row,) = seen()
        assert (row["operation"], row["pattern"], row["permission"]) == ("DescribeConfigs", "prefixed", "Allow")
        values["confirm"] = "User:ann"
        assert program.post(f"{API}/acts/delete-acl", json=values).status_code == 200
        assert seen() == []
        assert program.post(f"{API}/acts/delete-acl", json=values).status_code == 404
