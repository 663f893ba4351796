"""Real clusters with ZooKeeper become clusters of Ottla on the same directories, and go back.

What only this finds: whether real brokers write the znodes that the codec expects, start again on what it wrote, and
whether the logs, groups, transactions and passwords of one software are those of the other.
"""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.conformance.cli.test_check import Check
from tests.conformance.migration import content
from tests.conformance.migration.old_cluster import OldCluster


def test_a_broker_of_3_9(tmp_path: Path) -> None:
    """One broker, there and back. The quorum is a dynamic one from the import on."""
    with OldCluster(tmp_path, "3.9", 1, dynamic=True) as cluster:
        _there_and_back(cluster, tmp_path, tools=False)


@pytest.mark.nightly(
    "tests/conformance/migration/test_real_import.py::test_a_broker_of_3_9",
    "tests/unit/migration/test_interrupted.py::test_an_import_goes_on_or_is_undone_after_any_step",
)
@pytest.mark.timeout(1800)  # three JVMs at a time are started three times, and tools that are JVMs too
@pytest.mark.parametrize("release", ["3.9", "2.8"])
def test_three_brokers(release: str, tmp_path: Path) -> None:
    """Three, described by Kafka's own tools before and after. Those of 2.8 have no topic ids. After that of 3.9 the
    controllers may change, after that of 2.8 not."""
    with OldCluster(tmp_path, release, 3, dynamic=release == "3.9") as cluster:
        _there_and_back(cluster, tmp_path, tools=True)


@pytest.mark.nightly(
    "tests/unit/migration/test_interrupted.py::test_a_roll_back_of_a_cluster_that_ran_goes_on_after_any_step",
    "tests/conformance/migration/test_real_import.py::test_a_broker_of_3_9",
)
def test_ottla_check_across_an_import(tmp_path: Path) -> None:
    """Clients that write and read all the time, there and back: nothing acknowledged is lost or there twice."""
    with OldCluster(tmp_path, "3.9", 3) as cluster:
        cluster.start()
        check = Check(cluster.bootstrap, "--seconds", "1800", "--rate", "200", "-r", "3", "--topic", "checked")
        topics = AdminClient({"bootstrap.servers": cluster.bootstrap})
        wait_written(check, topics)
        cluster.stop()
        cluster.migrate("--execute")
        cluster.start_ottla()
        wait_written(check, topics)
        cluster.stop_ottla()
        cluster.migrate("--rollback")
        cluster.start()
        wait_written(check, topics)
        check.process.send_signal(signal.SIGINT)
        code, report = check.result()
        assert code in (0, 130), report
        assert report["sound"], report


def wait_written(check: Check, admin: AdminClient, count: int = 1000) -> None:
    """Until so many more records are there: the load has found the cluster's new software."""
    deadline, first = time.monotonic() + 180, None
    while time.monotonic() < deadline:
        check.ensure_running()
        try:
            end = _records(admin)
        except KafkaException:
            end = None
        if end is not None:
            first = end if first is None else first
            if end >= first + count:
                return
        time.sleep(0.5)
    raise AssertionError(f"no {count} records within three minutes")


def _records(admin: AdminClient) -> int | None:
    """How many the load has written; None while nobody leads."""
    if "checked" not in admin.list_topics(timeout=10).topics:
        return None
    places = {TopicPartition("checked", number): OffsetSpec.latest() for number in range(4)}
    return sum(each.result(10).offset for each in admin.list_offsets(places).values())


def _there_and_back(cluster: OldCluster, directory: Path, *, tools: bool) -> None:
    count = len(cluster.brokers)
    cluster.start()
    content.fill(cluster.bootstrap, replicas=count)
    if tools:
        content.token(cluster.release, f"127.0.0.1:{cluster.sasl[0]}", directory)
    said = cluster.migrate("--plan", rc=1)
    assert "/brokers/ids/1" in said and "/controller" in said
    before = _seen(cluster, tools)
    if tools:
        content.leave_unfinished(cluster)
    cluster.stop()
    cluster.migrate("--execute")
    cluster.start_ottla()
    if tools:
        content.wait_finished(cluster.bootstrap)
    assert _seen(cluster, tools) == before
    assert "the same as in ZooKeeper" in cluster.migrate("--verify")
    _work(cluster)
    levels = {each["feature"]: each["level"] for each in json.loads(cluster.ottla("features describe --json"))}
    assert levels["kraft.version"] == (1 if cluster.first_voters else 0)
    if cluster.first_voters:
        voting = json.loads(cluster.ottla("quorum describe --json"))["replicas"]
        texts = [(broker.data / "meta.properties").read_text() for broker in cluster.brokers]
        assert len(voting) == count and {each["role"] for each in voting} <= {"leader", "voter"}
        assert all(f"directory.id={each['directory_id']}\n" in texts[each["id"] - 1] for each in voting)
    assert "still runs" in cluster.migrate("--rollback", rc=1)
    later = _seen(cluster, tools)
    cluster.stop_ottla()
    cluster.migrate("--rollback")
    strays = [path for broker in cluster.brokers for path in broker.data.glob("*-stray")]
    assert all(path.name.startswith(content.DELETED) for path in strays)
    for path in strays:  # as the page says
        shutil.rmtree(path)
    cluster.start()
    if tools:
        content.wait_finished(cluster.bootstrap)
    assert _seen(cluster, tools) == later
    topics = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=30).topics
    assert "new" in topics and "empty" not in topics


def _work(cluster: OldCluster) -> None:
    """What the imported cluster does before it goes back."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.create_topics([NewTopic("new", 2, len(cluster.brokers))]).values():
        future.result(30)
    for future in admin.delete_topics(["empty"]).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for number in range(10):
        producer.produce("orders", value=b"after %d" % number, partition=0)
    assert producer.flush(30) == 0


def _seen(cluster: OldCluster, tools: bool) -> dict[str, object]:
    sasl = ",".join(f"127.0.0.1:{port}" for port in cluster.sasl)
    found: dict[str, object] = {
        "records": content.records(cluster.bootstrap),
        "committed": content.committed(cluster.bootstrap),
        "logins": (content.logs_in(sasl, "carol", "secret 3"), content.logs_in(sasl, "carol", "wrong")),
    }
    assert found["logins"] == (True, False)
    if tools:
        found.update(content.described(cluster.bootstrap, release=cluster.release))
        found["segments"] = [content.segments(broker.data) for broker in cluster.brokers[::2]]
    return found
