"""`ottla group ...` of share groups and of consumer groups of KIP-848, and what nodes say of them in metrics."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer

from peers.kafka import free_port
from tests.conformance.cli.test_cli import ottla
from tests.conformance.clients.test_java import create
from tests.conformance.groups.share_consumers import JAVA, Consumer, configure, program
from tests.conformance.line_program import Program
from tests.conformance.operations.operations import eventually
from tests.node import NodeProcess

HOURS_AGO_MS = 2 * 3_600_000


class Node(NamedTuple):
    bootstrap: str
    http: str


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    http = f"127.0.0.1:{free_port()}"
    settings = {
        "ottla.http.listener": http,
        "group.share.min.heartbeat.interval.ms": "500",
        "group.share.heartbeat.interval.ms": "500",
    }
    with NodeProcess(tmp_path_factory.mktemp("shares") / "data", settings) as started:
        yield Node(started.bootstrap, http)


@pytest.fixture(scope="module")
def members() -> Iterator[Program]:
    started = program(JAVA)
    yield started
    started.close()


@pytest.fixture
def group(node: Node, topic: str) -> str:
    """Begins with the first of ten records of two hours ago."""
    name = f"share-{topic}"
    create(node.bootstrap, topic)
    configure(node.bootstrap, name, auto_offset_reset="earliest")
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for number in range(10):
        producer.produce(topic, str(number), timestamp=int(time.time() * 1000) - HOURS_AGO_MS)
    assert producer.flush(60) == 0
    return name


def described(node: Node, group: str) -> dict[str, Any]:
    (found,) = json.loads(ottla(node.bootstrap, "group", "describe", group, "--json"))
    assert isinstance(found, dict)
    return found


def metrics(node: Node, *names: str) -> list[float]:
    """The values of series, by what their lines begin with."""
    with urllib.request.urlopen(f"http://{node.http}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return [float(line.rpartition(" ")[2]) for name in names for line in lines if line.startswith(name)]


def test_what_is_in_flight_and_redelivered(node: Node, members: Program, group: str, topic: str) -> None:
    member = Consumer(members, node.bootstrap, group, topic)
    records = member.some()
    assert len(records) == 10
    member.acknowledge("RELEASE", records[4:6])
    member.finish(records[:4])
    found = described(node, group)
    assert (found["type"], found["state"], found["assignor"]) == ("share", "Stable", "simple")
    assert found["epoch"] == found["assignment_epoch"] == found["members"][0]["epoch"]
    assert (found["lag"], found["in_flight"], found["redelivered"]) == (6, 4, 0)
    assert 7200 <= found["lag_seconds"] < 9000
    (part,) = found["partitions"]
    assert (part["committed_offset"], part["end_offset"], part["in_flight"]) == (4, 10, 4)
    assert part["member_ids"] == [found["members"][0]["member_id"]]
    member.finish(records[6:])
    assert [each.count for each in member.some()] == [2, 2]
    found = described(node, group)
    assert (found["lag"], found["in_flight"], found["redelivered"]) == (2, 2, 2)
    text = ottla(node.bootstrap, "group", "describe", group)
    assert re.search(r"BACKLOG +BEHIND +IN FLIGHT +REDELIVERED +WAITING +ARCHIVED +MEMBERS", text)
    assert re.search(rf"{topic} +0 +4 +10 +2 +2h\S* +2 +2 +0 +0 +1\n", text)
    line = ottla(node.bootstrap, "group", "watch", group, "--count", "1")
    assert all(each in line for each in ("lag=2", "in_flight=2", "redelivered=2", "start=4"))
    where = f'{{group="{group}",topic="{topic}",partition="0"}}'
    shown = [
        f"kafka_server_sharepartitionmetrics_inflightmessagecount{where}",
        f"ottla_share_partition_acquired_records{where}",
        f"ottla_share_partition_redelivered_records{where}",
        f"ottla_share_partition_backlog_records{where}",
    ]
    assert metrics(node, *shown) == [6, 2, 2, 2]
    (age,) = metrics(node, f"ottla_share_partition_backlog_seconds{where}")
    assert 7200 <= age < 9000
    member.close()


def test_moved_and_deleted(node: Node, members: Program, group: str, topic: str) -> None:
    member = Consumer(members, node.bootstrap, group, topic)
    member.take(10)
    refused = ottla(node.bootstrap, "group", "reset", group, "--to", "beginning", code=1)
    assert "is Stable with 1 member" in refused
    member.close()
    assert described(node, group)["lag"] == 0
    listed = json.loads(ottla(node.bootstrap, "group", "list", "--json"))
    assert {"group": group, "state": "Empty", "type": "share", "members": 0, "topics": 1, "lag": 0} in listed
    assert re.search(rf"{group} +share +Empty", ottla(node.bootstrap, "group", "list"))
    ottla(node.bootstrap, "group", "reset", group, "--to", "-3", "--dry-run")
    assert described(node, group)["lag"] == 0
    moved = json.loads(ottla(node.bootstrap, "group", "reset", group, "--to", "-3", "--json"))
    assert [each["new_offset"] for each in moved["partitions"]] == [7]
    assert described(node, group)["lag"] == 3
    member = Consumer(members, node.bootstrap, group, topic)
    assert [each.offset for each in member.take(3)] == [7, 8, 9]
    member.close()
    wrong = ottla(node.bootstrap, "group", "delete", group, "--topic", f"{topic}:0", code=2)
    assert "only whole topics" in wrong
    ottla(node.bootstrap, "group", "delete", group, "--topic", topic)
    assert described(node, group)["partitions"] == []
    assert "nothing read yet" in ottla(node.bootstrap, "group", "describe", group)
    ottla(node.bootstrap, "group", "delete", group, "--topic", topic, code=1)
    ottla(node.bootstrap, "group", "delete", group, "--topic", topic, "--if-exists")
    ottla(node.bootstrap, "group", "delete", group)
    assert "there is no group" in ottla(node.bootstrap, "group", "describe", group, code=1)


def test_members_of_a_consumer_group_have_epochs_and_pending_partitions(node: Node, topic: str) -> None:
    from confluent_kafka import Consumer as Member

    create(node.bootstrap, topic, partitions=4)
    settings = {"bootstrap.servers": node.bootstrap, "group.id": f"g-{topic}", "group.protocol": "consumer"}
    first = Member({**settings, "client.id": "first"})
    first.subscribe([topic])
    eventually(lambda: (first.poll(0.1) is None and len(first.assignment()) == 4) or None)
    found = described(node, f"g-{topic}")
    assert (found["type"], found["assignor"], found["epoch"]) == ("consumer", "uniform", found["assignment_epoch"])
    (shown,) = found["members"]
    assert (shown["epoch"], len(shown["partitions"]), shown["pending"]) == (found["epoch"], 4, [])
    second = Member({**settings, "client.id": "second"})
    second.subscribe([topic])

    def waiting() -> dict[str, Any] | None:
        second.poll(0.1)  # the first is not polled: it gives up nothing
        now = described(node, f"g-{topic}")
        return now if any(each["pending"] for each in now["members"]) else None

    found = eventually(waiting)
    by_client = {each["client_id"]: each for each in found["members"]}
    assert len(by_client["second"]["pending"]) == 2
    assert by_client["first"]["revoking"] == by_client["second"]["pending"]
    assert "PENDING" in ottla(node.bootstrap, "group", "describe", f"g-{topic}")
    for each in (first, second):
        each.close()


def test_metrics_by_the_names_of_kafka(node: Node, members: Program, group: str, topic: str) -> None:
    before = metrics(node, 'kafka_server_sharegroupmetrics_recordacknowledgements_total{ackType="Accept"}') or [0.0]
    member = Consumer(members, node.bootstrap, group, topic)
    records = member.some()
    member.acknowledge("REJECT", records[:1])
    member.finish(records[1:])
    accepted = metrics(node, 'kafka_server_sharegroupmetrics_recordacknowledgements_total{ackType="Accept"}')
    assert accepted[0] - before[0] == 9
    where = f'{{topic="{topic}"}}'
    prefix = "kafka_server_brokertopicmetrics_"
    fetches, acknowledgements = metrics(
        node, f"{prefix}totalsharefetchrequests_total{where}", f"{prefix}totalshareacknowledgementrequests_total{where}"
    )
    assert fetches >= 1 and acknowledgements == 1
    assert metrics(node, f"{prefix}failedshareacknowledgementrequests_total{where}") == [0]
    assert metrics(node, 'kafka_server_group_coordinator_metrics_share_group_count{state="stable"}')[0] >= 1
    assert metrics(node, 'kafka_server_group_coordinator_metrics_group_count{protocol="share"}')[0] >= 1
    assert metrics(node, "kafka_server_group_coordinator_metrics_share_group_rebalance_count")[0] >= 1
    assert metrics(node, "kafka_server_share_coordinator_metrics_write_total")[0] >= 1
    assert metrics(node, "kafka_server_share_coordinator_metrics_write_latency_max")[0] > 0
    assert metrics(node, "kafka_server_sharesessioncache_sharesessionscount") == [1]
    assert metrics(node, "kafka_server_sharesessioncache_sharepartitionscount") == [1]
    assert metrics(node, "kafka_server_sharegroupmetrics_partitionloadtime_seconds_count")[0] >= 1
    where = f'{{group="{group}",topic="{topic}",partition="0"}}'
    prefix = "kafka_server_sharepartitionmetrics_"
    assert metrics(node, f"{prefix}inflightbatchmessagecount_sum{where}") == [10]
    assert metrics(node, f"{prefix}fetchlocktime_seconds_count{where}")[0] >= 1
    assert metrics(node, f"{prefix}acquisitionlocktimeout_total{where}") == [0]
    assert metrics(node, f'kafka_consumergroup_members{{consumergroup="{group}"}}') == [1]
    member.close()
