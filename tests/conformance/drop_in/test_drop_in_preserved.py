"""What Ottla does not serve yet is kept for the Apache Kafka that comes back: security, transactions, newer groups.

Both brokers are killed rather than stopped, so that each also starts where the other crashed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer

from ottla.protocol.messages import ApiKey
from peers.kafka import free_port
from tests.conformance.drop_in.drop_in import Place, seen
from tests.conformance.drop_in.drop_in_more import (
    Token,
    delete_acls,
    described,
    described_streams,
    go_on_and_leave,
    go_on_with_tasks_and_leave,
    kept,
    kept_acls,
    kept_groups,
    listed_groups,
    put,
    put_acl,
    put_groups,
    put_transactions,
)
from tests.conformance.operations.operations import DEADLINE_S, eventually, name_of

COORDINATORS_S = 60.0
SECURED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:alice",
    "allow.everyone.if.no.acl.found": "true",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config":
        "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "delegation.token.secret.key": "the secret of tokens",
    # Members that nobody will hear of again stay, however long the machine takes for all this.
    **{
        f"group.{kind}.{limit}session.timeout.ms": "1200000"
        for kind in ("consumer", "streams", "share") for limit in ("max.", "")
    },
}  # fmt: skip


def test_what_is_not_served_is_kept(tmp_path: Path) -> None:
    place, login = _secured(tmp_path / "place")
    with place.running("kafka", kill=True) as client:
        eventually(lambda: client.create("t") == "none")
        put(client)
        client.produce_all("t", b"0", b"1")
        open_transaction = put_transactions(place.bootstrap, "t")
        put_groups(client, "t")
        eventually(lambda: logged_in(login)).create()
        tokens = eventually(Token(login).shown)
        before, at_kafka = seen(client), kept(client)
        listed, groups_at_kafka = listed_groups(client), kept_groups(client)
        consumers, streams = described(client), described_streams(client)
    snapshots = place.snapshots()
    with place.running("ottla", kill=True) as client:
        assert seen(client) == before
        assert listed_groups(client) == listed
        assert kept_acls(client) == at_kafka["acls"]
        put_acl(client, "of-ottla")
        delete_acls(client, "u-")
        acls_of_ottla = kept_acls(client)
        assert len(acls_of_ottla) == len(at_kafka["acls"]) and acls_of_ottla != at_kafka["acls"]
        for number in range(8):
            assert client.create(f"another-{number}") == "none"
        eventually(lambda: place.snapshots()[-1:] != snapshots[-1:])
        deleted = client.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": ["848", "848-deleted"]})
        errors = {each["group_id"]: name_of(each["error_code"]) for each in deleted["results"]}
        assert errors == {"848": "non_empty_group", "848-deleted": "none"}
        assert described(client) == consumers
        assert described_streams(client) == streams
        go_on_and_leave(client, "848")
        go_on_with_tasks_and_leave(client, "streams")
        for name in ("848", "848-taken", "streams"):
            read_on(place.bootstrap, name, from_offset=1)
        groups, listed = seen(client)["groups"], listed_groups(client)
        names = ("848", "848-taken", "848-deleted", "848-left", "848-empty", "streams", "streams-left", "streams-empty")
        assert {name: listed.get(name) for name in names} == {
            "848": ("Empty", "classic"),
            "848-taken": ("Empty", "classic"),
            "848-deleted": None,
            "848-left": ("Stable", "consumer"),
            "848-empty": ("Empty", "consumer"),
            "streams": ("Empty", "classic"),
            "streams-left": ("Stable", "streams"),
            "streams-empty": ("Empty", "streams"),
        }
    with place.running("kafka") as client:
        become(lambda: listed_groups(client), listed)
        become(lambda: kept_groups(client), groups_at_kafka)
        become(lambda: kept(client), {**at_kafka, "acls": acls_of_ottla})
        assert seen(client)["groups"] == groups
        read_on(place.bootstrap, "848", from_offset=2)
        assert Token(login).shown() == tokens
    del open_transaction


def logged_in(port: int) -> Token | None:
    """Kafka's broker knows a user a moment after its controller does."""
    try:
        return Token(port)
    except AssertionError:
        return None


def become(look: Callable[[], Any], wanted: Any) -> None:
    """What a Kafka that has just started shows when each of its coordinators has read its log."""

    def is_so() -> bool:
        try:
            return bool(look() == wanted)
        except AssertionError:
            return False

    deadline = time.monotonic() + COORDINATORS_S
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert look() == wanted


def read_on(bootstrap: str, group: str, *, from_offset: int) -> None:
    """As a consumer of the classic protocol, whose group the empty one of KIP-848 becomes."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({**settings, "isolation.level": "read_uncommitted"})
    consumer.subscribe(["t"])
    messages = consumer.consume(1, timeout=DEADLINE_S)
    assert [message.offset() for message in messages] == [from_offset]
    consumer.commit(message=messages[0], asynchronous=False)
    consumer.close()


def _secured(directory: Path) -> tuple[Place, int]:
    """A place whose Kafka has users and ACLs, and the port where they log in. Ottla is told to do without that port."""
    login = free_port()
    place = Place(directory, SECURED)
    kafka = place.kafka
    kafka.settings |= {
        "listeners": f"PLAINTEXT://127.0.0.1:{kafka.port},CONTROLLER://127.0.0.1:{kafka.controller_port},"
        f"SASL_PLAINTEXT://127.0.0.1:{login}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{kafka.port},SASL_PLAINTEXT://127.0.0.1:{login}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
    }
    place.ottla.settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{kafka.port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{kafka.port}",
    }
    return place, login
