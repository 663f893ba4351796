"""Kafka's administrative tools: the same commands to Ottla and to Apache Kafka print the same."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.conformance.twins import Twins, comparable

CONFIGS = "ConfigCommand"


@pytest.mark.client(
    "TopicCommand",
    "--create with partitions, settings and replicas",
    "--alter",
    "--list",
    "--delete",
    "--describe with every filter",
    "refusals: topics that are there, are not, or would shrink",
)
def test_topics(twins: Twins, topic: str) -> None:
    def topics(*arguments: str, **options: bool) -> str:
        return twins.same("TopicCommand", *arguments, only="" if "--topic" in arguments else topic, **options)  # type: ignore[arg-type]

    settings = ("--config", "retention.ms=3600000", "--config", "cleanup.policy=compact,delete")
    assert f"Created topic {topic}." in topics("--create", "--topic", topic, "--partitions", "3", *settings)
    topics("--create", "--topic", topic, fails=True)
    topics("--create", "--topic", topic, "--if-not-exists")
    topics("--create", "--topic", f"{topic}-placed", "--replica-assignment", "1,1")
    topics("--create", "--topic", f"{topic}-wrong", "--config", "retention.ms=soon", fails=True)
    topics("--create", "--topic", f"{topic}-wrong", "--replication-factor", "3", fails=True)
    topics("--create", "--topic", "not a name", fails=True)
    assert topics("--list").count(topic) == 2
    topics("--list", "--topic", f"{topic}.*")
    topics("--list", "--exclude-internal")
    described = topics("--describe", "--topic", topic)
    assert "PartitionCount: 3" in described and described.count("Leader: 1") == 3
    topics("--describe", "--topic", f"{topic}.*", "--partition-size-limit-per-response", "1")
    for which in (
        "topics-with-overrides",
        "under-replicated-partitions",
        "unavailable-partitions",
        "under-min-isr-partitions",
        "at-min-isr-partitions",
        "exclude-internal",
    ):
        topics("--describe", f"--{which}")
    topics("--describe", "--topic", f"{topic}-none", fails=True)
    topics("--describe", "--topic", f"{topic}-none", "--if-exists")
    topics("--alter", "--topic", topic, "--partitions", "4")
    topics("--alter", "--topic", topic, "--partitions", "2", fails=True)
    topics("--alter", "--topic", f"{topic}-none", "--partitions", "2", fails=True)
    assert "PartitionCount: 4" in topics("--describe", "--topic", topic)
    topics("--delete", "--topic", topic)
    topics("--delete", "--topic", topic, fails=True)
    topics("--delete", "--topic", topic, "--if-exists")
    topics("--delete", "--topic", f"{topic}-placed")
    assert topic not in topics("--list").split()


@pytest.mark.client("TopicCommand", "--describe by topic id")
def test_a_topic_by_its_id(twins: Twins, topic: str) -> None:
    twins.same("TopicCommand", "--create", "--topic", topic)
    for broker in (twins.ottla, twins.kafka):
        described = twins.shell.run("TopicCommand", "--bootstrap-server", broker, "--describe", "--topic", topic).out
        topic_id = described.split("TopicId:")[1].split()[0]
        by_id = twins.shell.run("TopicCommand", "--bootstrap-server", broker, "--describe", "--topic-id", topic_id).out
        # Without a name the tool asks Metadata, which knows no eligible leader replicas.
        assert comparable(by_id.replace("N/A", "")) == comparable(described)


@pytest.fixture
def configs(twins: Twins) -> Iterator[object]:
    def run(*arguments: str, **options: object) -> str:
        return twins.same(CONFIGS, *arguments, **options)  # type: ignore[arg-type]

    yield run
    for broker in (twins.ottla, twins.kafka):  # settings of a whole cluster are not left changed
        for entity in (("--entity-name", "1"), ("--entity-default",)):
            twins.shell.run(
                CONFIGS,
                "--bootstrap-server",
                broker,
                "--alter",
                "--entity-type",
                "brokers",
                *entity,
                "--delete-config",
                "log.index.interval.bytes",
                check=False,
            )


@pytest.mark.client(
    "ConfigCommand", "topics: --describe, --all, --alter with --add-config, --add-config-file, --delete-config"
)
def test_settings_of_topics(configs: object, twins: Twins, topic: str, tmp_path: Path) -> None:
    run = configs
    assert callable(run)
    twins.same("TopicCommand", "--create", "--topic", topic)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    run("--alter", *entity, "--add-config", "retention.ms=12345,cleanup.policy=[compact,delete]")
    assert "retention.ms=12345" in run("--describe", *entity)
    more = tmp_path / "more.properties"
    more.write_text("max.message.bytes=9999\nsegment.bytes=2000000\n")
    run("--alter", *entity, "--add-config-file", str(more))
    run("--describe", *entity)
    assert "min.cleanable.dirty.ratio" in run("--describe", "--all", *entity)
    run("--alter", *entity, "--delete-config", "retention.ms,max.message.bytes")
    assert "retention.ms=12345" not in run("--describe", *entity)
    run("--alter", *entity, "--add-config", "retention.ms=soon", fails=True)
    run("--alter", *entity, "--add-config", "no.such.setting=1", fails=True)
    run(
        "--alter",
        "--entity-type",
        "topics",
        "--entity-name",
        f"{topic}-none",
        "--add-config",
        "retention.ms=1",
        fails=True,
    )
    run("--describe", "--entity-type", "topics", "--entity-name", f"{topic}-none")
    run("--describe", "--entity-type", "topics", only=topic)


@pytest.mark.client(
    "ConfigCommand", "one broker and all brokers: --describe, --all, --alter", "broker-loggers: --describe, --alter"
)
def test_settings_of_brokers(configs: object, twins: Twins) -> None:
    run = configs
    assert callable(run)
    one, every = ("--entity-type", "brokers", "--entity-name", "1"), ("--entity-type", "brokers", "--entity-default")
    for entity in (one, every):
        run("--alter", *entity, "--add-config", "log.index.interval.bytes=4097")
        assert "log.index.interval.bytes=4097" in run("--describe", *entity, only="log.index.interval.bytes")
    run("--alter", *one, "--delete-config", "log.index.interval.bytes")
    run("--describe", "--entity-type", "brokers", only="log.index.interval.bytes")
    run("--alter", *every, "--delete-config", "log.index.interval.bytes")
    run("--describe", "--all", *one, only=" log.segment.bytes=")
    run("--alter", *one, "--add-config", "node.id=7", fails=True)
    run("--alter", *one, "--add-config", "log.index.interval.bytes=many", fails=True)
    for broker in (twins.ottla, twins.kafka):
        loggers = ("--bootstrap-server", broker, "--entity-type", "broker-loggers", "--entity-name", "1")
        described = twins.shell.run(CONFIGS, *loggers, "--describe").out
        name = next(line.strip().split("=")[0] for line in described.splitlines() if "=" in line)
        before = described.split(f"{name}=")[1].split()[0]
        twins.shell.run(CONFIGS, *loggers, "--alter", "--add-config", f"{name}=ERROR")
        assert f"{name}=ERROR" in twins.shell.run(CONFIGS, *loggers, "--describe").out
        twins.shell.run(CONFIGS, *loggers, "--alter", "--add-config", f"{name}={before}")


@pytest.mark.client("ConfigCommand", "groups and client-metrics: --describe, --alter")
@pytest.mark.client("ClientMetricsCommand", "--alter, --describe, --list, --delete")
def test_settings_of_groups_and_client_metrics(configs: object, twins: Twins, topic: str) -> None:
    run = configs
    assert callable(run)
    for kind, setting, wrong in (
        ("groups", "consumer.session.timeout.ms=50000", "consumer.session.timeout.ms=1"),
        ("client-metrics", "interval.ms=10000", "interval.ms=1"),
    ):
        entity = ("--entity-type", kind, "--entity-name", topic)
        run("--alter", *entity, "--add-config", setting)
        assert setting in run("--describe", *entity)
        run("--alter", *entity, "--add-config", wrong, fails=True)
        run("--alter", *entity, "--delete-config", setting.split("=")[0])
        assert setting not in run("--describe", *entity)
    metrics = ("--name", f"{topic}-m")
    twins.same(
        "ClientMetricsCommand", "--alter", *metrics, "--metrics", "org.apache.kafka.consumer.", "--interval", "30000"
    )
    twins.same("ClientMetricsCommand", "--describe", *metrics)
    twins.same("ClientMetricsCommand", "--list", only=topic)
    twins.same("ClientMetricsCommand", "--delete", *metrics)


@pytest.mark.client("ConfigCommand", "quotas of clients and ips: --alter, --describe, --delete-config")
def test_quotas(twins: Twins, topic: str) -> None:
    def configs(*arguments: str, **options: bool) -> str:
        return twins.same(CONFIGS, *arguments, **options)  # type: ignore[arg-type]

    client = ("--entity-type", "clients", "--entity-name", topic)
    both = (*client, "--entity-type", "users", "--entity-name", topic)
    address = ("--entity-type", "ips", "--entity-name", "192.0.2.9")
    configs("--alter", *client, "--add-config", "producer_byte_rate=1024,consumer_byte_rate=2048")
    configs("--alter", *both, "--add-config", "request_percentage=12.5")
    configs("--alter", *address, "--add-config", "connection_creation_rate=5")
    assert "1024" in configs("--describe", *client)
    assert "12.5" in configs("--describe", *both)
    assert "connection_creation_rate=5" in configs("--describe", *address)
    configs("--alter", *client, "--add-config", "producer_byte_rate=0", fails=True)
    configs("--alter", *client, "--add-config", "connection_creation_rate=1", fails=True)
    configs("--alter", *address, "--add-config", "producer_byte_rate=1", fails=True)
    configs("--alter", *client, "--delete-config", "producer_byte_rate")
    assert "2048" in configs("--describe", *client)
    configs("--alter", *client, "--delete-config", "consumer_byte_rate")
    configs("--alter", *both, "--delete-config", "request_percentage")
    configs("--alter", *address, "--delete-config", "connection_creation_rate")
    assert "2048" not in configs("--describe", *client)


@pytest.mark.client("AclCommand", "--list: told that there is no authorizer")
def test_acls_are_refused_clearly(twins: Twins) -> None:
    """Nodes with an authorizer: `test_acls_like_kafka.py`."""
    for each in twins.both("AclCommand", "--list"):
        assert each.status != 0 and "SecurityDisabledException: No Authorizer is configured" in each.out + each.err


def fill(broker: str, topic: str, first_ms: int, partitions: int = 2, records: int = 10) -> None:
    """Records a second apart."""
    producer = Producer({"bootstrap.servers": broker})
    for n in range(records):
        for partition in range(partitions):
            producer.produce(topic, str(n), partition=partition, timestamp=first_ms + n * 1000)
    assert producer.flush(300) == 0


@pytest.mark.client(
    "GetOffsetShell",
    "every --time: earliest, latest, max-timestamp, tiered ones, timestamps",
    "topics and partitions by pattern",
)
@pytest.mark.client("DeleteRecordsCommand", "deletes up to an offset and up to the end", "an offset that is not there")
@pytest.mark.client("LogDirsCommand", "--describe by topic and broker")
def test_offsets_records_and_log_dirs(twins: Twins, topic: str, tmp_path: Path) -> None:
    first_ms = int(time.time() * 1000) - 86_400_000
    twins.same("TopicCommand", "--create", "--topic", topic, "--partitions", "2")
    for broker in (twins.ottla, twins.kafka):
        fill(broker, topic, first_ms)

    def offsets(*arguments: str, **options: bool) -> str:
        return twins.same("GetOffsetShell", *arguments, **options)  # type: ignore[arg-type]

    for when in (
        "earliest",
        "latest",
        "max-timestamp",
        "earliest-local",
        "latest-tiered",
        "-1",
        "-2",
        "-3",
        "-4",
        "-5",
        str(first_ms + 4500),
        str(first_ms - 1),
        str(first_ms + 10**9),
    ):
        offsets("--topic", topic, "--time", when)
    assert f"{topic}:0:5" in offsets("--topic", topic, "--time", str(first_ms + 4500))
    offsets("--topic-partitions", f"{topic}:1")
    offsets("--topic-partitions", f"{topic[:-1]}[{topic[-1]}]:0-1", "--exclude-internal-topics")
    offsets("--topic", topic, "--partitions", "1")
    offsets("--topic", f"{topic}-none", fails=True)

    def delete(*parts: tuple[int, int], name: str = topic, fails: bool = False) -> str:
        plan = tmp_path / "delete.json"
        rows = [{"topic": name, "partition": partition, "offset": offset} for partition, offset in parts]
        plan.write_text(json.dumps({"version": 1, "partitions": rows}))
        return twins.same("DeleteRecordsCommand", "--offset-json-file", str(plan), fails=fails)

    assert "low_watermark: 4" in delete((0, 4), (1, -1))
    assert f"{topic}:0:4" in offsets("--topic", topic, "--time", "earliest")
    assert f"{topic}:1:10" in offsets("--topic", topic, "--time", "earliest")
    delete((0, 11))
    for broker in (twins.ottla, twins.kafka):
        out = twins.shell.run(
            "LogDirsCommand", "--bootstrap-server", broker, "--describe", "--topic-list", topic, "--broker-list", "1"
        ).out
        (line,) = [line for line in out.splitlines() if line.startswith("{")]
        (log_dir,) = json.loads(line)["brokers"][0]["logDirs"]
        assert log_dir["error"] is None
        assert sorted(p["partition"] for p in log_dir["partitions"]) == [f"{topic}-0", f"{topic}-1"]
        assert all(p["size"] > 0 and p["offsetLag"] == 0 and not p["isFuture"] for p in log_dir["partitions"])


@pytest.mark.client("MetadataQuorumCommand", "describe --status", "describe --replication, --human-readable")
@pytest.mark.client("FeatureCommand", "describe", "upgrade and downgrade with --dry-run", "refusals")
@pytest.mark.client("BrokerApiVersionsCommand", "asks for the versions of all APIs")
def test_quorum_features_and_versions(twins: Twins) -> None:
    mine, theirs = twins.both("MetadataQuorumCommand", "describe", "--status")
    names = [[line.split(":")[0] for line in each.lines()] for each in (mine, theirs)]
    assert names[0] == names[1]
    leaders = [next(line for line in each.lines() if line.startswith("LeaderId:")) for each in (mine, theirs)]
    assert leaders[0] == leaders[1]
    mine, theirs = twins.both("MetadataQuorumCommand", "describe", "--replication", "--human-readable")
    table = [[line.split() for line in each.lines()] for each in (mine, theirs)]
    assert table[0][0] == table[1][0]
    rows = [[(line[0], line[-1]) for line in each[1:]] for each in table]
    assert rows[0] == rows[1] and rows[0][0][1] == "Leader"
    described = twins.shell.run("FeatureCommand", "--bootstrap-server", twins.ottla, "describe").out
    assert "Feature: metadata.version" in described
    level = described.split("metadata.version")[1].split("FinalizedVersionLevel:")[1].split()[0]
    twins.same("FeatureCommand", "upgrade", "--metadata", level, "--dry-run", fails=level == "0")
    told = twins.shell.run(
        "FeatureCommand",
        "--bootstrap-server",
        twins.ottla,
        "downgrade",
        "--metadata",
        "3.3-IV0",
        "--dry-run",
        check=False,
    )
    assert told.status != 0 and "metadata.version" in told.out + told.err
    for wrong in (("upgrade", "--feature", "no.such=1"), ("downgrade", "--metadata", "99.9")):
        twins.same("FeatureCommand", *wrong, fails=True)
    versions = twins.shell.run("BrokerApiVersionsCommand", "--bootstrap-server", twins.ottla).out
    assert "Produce(0): 0 to 13 [usable: 13]" in versions
    assert "Fetch(1): 4 to 18 [usable: 18]" in versions
