"""Kafka's own command-line tools and clients, unchanged, against the node."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from peers.kafka import tool
from tests.node import NodeProcess

TOOLS = "org.apache.kafka.tools"


def console_produce(bootstrap: str, topic: str, lines: list[str], *properties: str) -> None:
    tool(
        f"{TOOLS}.ConsoleProducer", "--bootstrap-server", bootstrap, "--topic", topic,
        *(part for p in properties for part in ("--command-property", p)), input_text="".join(f"{x}\n" for x in lines),
    )  # fmt: skip


def console_consume(bootstrap: str, topic: str, count: int, *arguments: str) -> list[str]:
    return tool(
        f"{TOOLS}.consumer.ConsoleConsumer", "--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning",
        "--max-messages", str(count), "--timeout-ms", "30000", *arguments,
    ).stdout.splitlines()  # fmt: skip


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_console_producer_and_consumer(bootstrap: str, topic: str, codec: str) -> None:
    lines = [f"line {i} " + "y" * (i % 40) for i in range(500)]
    console_produce(bootstrap, topic, lines, f"compression.type={codec}", "enable.idempotence=true")
    assert console_consume(bootstrap, topic, 500) == lines


def test_topics_tool(bootstrap: str, topic: str) -> None:
    def topics(*arguments: str) -> str:
        return tool(f"{TOOLS}.TopicCommand", "--bootstrap-server", bootstrap, *arguments).stdout

    assert f"Created topic {topic}." in topics("--create", "--topic", topic, "--partitions", "3")
    assert topic in topics("--list").split()
    described = topics("--describe", "--topic", topic)
    assert "PartitionCount: 3" in described
    assert described.count("Leader: 1") == 3
    topics("--alter", "--topic", topic, "--partitions", "4")
    assert "PartitionCount: 4" in topics("--describe", "--topic", topic)
    topics("--delete", "--topic", topic)
    assert topic not in topics("--list").split()


def test_configs_tool(bootstrap: str, topic: str) -> None:
    def configs(*arguments: str) -> str:
        return tool("kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, *arguments).stdout

    tool(f"{TOOLS}.TopicCommand", "--bootstrap-server", bootstrap, "--create", "--topic", topic)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    configs("--alter", *entity, "--add-config", "retention.ms=12345")
    assert "retention.ms=12345" in configs("--describe", *entity)
    configs("--alter", *entity, "--delete-config", "retention.ms")
    assert "retention.ms=12345" not in configs("--describe", *entity)
    assert "log.segment.bytes" in configs("--describe", "--all", "--entity-type", "brokers", "--entity-name", "1")


def test_offsets_delete_records_and_log_dirs_tools(bootstrap: str, topic: str, tmp_path: Path) -> None:
    console_produce(bootstrap, topic, [str(i) for i in range(10)])

    def offset(time: str) -> str:
        return tool(
            f"{TOOLS}.GetOffsetShell", "--bootstrap-server", bootstrap, "--topic", topic, "--time", time
        ).stdout.strip()

    assert offset("latest") == f"{topic}:0:10"
    plan = tmp_path / "delete.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 4}]}))
    deleted = tool(
        f"{TOOLS}.DeleteRecordsCommand", "--bootstrap-server", bootstrap, "--offset-json-file", str(plan)
    ).stdout
    assert "low_watermark: 4" in deleted
    assert offset("earliest") == f"{topic}:0:4"
    dirs = tool(f"{TOOLS}.LogDirsCommand", "--bootstrap-server", bootstrap, "--describe", "--topic-list", topic).stdout
    (line,) = [line for line in dirs.splitlines() if line.startswith("{")]
    (log_dir,) = json.loads(line)["brokers"][0]["logDirs"]
    assert log_dir["error"] is None
    assert [p["partition"] for p in log_dir["partitions"]] == [f"{topic}-0"]
    assert log_dir["partitions"][0]["size"] > 0


def test_quorum_and_feature_tools(bootstrap: str) -> None:
    quorum = tool(
        "org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-server", bootstrap, "describe", "--status"
    )
    assert re.search(r"LeaderId:\s+1\b", quorum.stdout)
    features = tool(f"{TOOLS}.FeatureCommand", "--bootstrap-server", bootstrap, "describe").stdout
    assert "metadata.version" in features


def test_api_versions_tool(bootstrap: str) -> None:
    out = tool(f"{TOOLS}.BrokerApiVersionsCommand", "--bootstrap-server", bootstrap).stdout
    assert "Produce(0): 0 to 13 [usable: 13]" in out
    assert "Fetch(1): 4 to 18 [usable: 18]" in out


def test_verifiable_producer_and_performance_tools(bootstrap: str, topic: str) -> None:
    sent = tool(
        f"{TOOLS}.VerifiableProducer", "--bootstrap-server", bootstrap, "--topic", topic, "--max-messages", "1000"
    ).stdout
    events = [json.loads(line) for line in sent.splitlines() if line.startswith("{")]
    assert sum(event["name"] == "producer_send_success" for event in events) == 1000
    perf = tool(
        f"{TOOLS}.ProducerPerformance", "--topic", topic, "--num-records", "20000", "--record-size", "100",
        "--throughput", "-1", "--bootstrap-server", bootstrap,
    ).stdout  # fmt: skip
    assert "20000 records sent" in perf
    read = tool(
        f"{TOOLS}.ConsumerPerformance", "--bootstrap-server", bootstrap, "--topic", topic, "--num-records", "21000",
        "--timeout", "30000",
    ).stdout  # fmt: skip
    assert re.search(r",\s*21000,", read), read


def test_consumer_groups_tool(bootstrap: str, topic: str) -> None:
    console_produce(bootstrap, topic, [str(i) for i in range(5)])
    console_consume(bootstrap, topic, 5, "--group", f"g-{topic}")
    out = tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server", bootstrap, "--describe",
        "--group", f"g-{topic}",
    ).stdout  # fmt: skip
    (line,) = [line for line in out.splitlines() if topic in line]
    assert line.split()[:6] == [f"g-{topic}", topic, "0", "5", "5", "0"]


def dump(*paths: Path, decoder: str = "") -> str:
    arguments = ["--files", ",".join(map(str, paths)), *([decoder] if decoder else [])]
    return tool(f"{TOOLS}.DumpLogSegments", *arguments).stdout


def test_dump_log_segments_reads_every_file(fresh_node: NodeProcess, topic: str) -> None:
    """After a clean stop: log with deep iteration, indexes with their sanity check, snapshots, metadata, offsets."""
    bootstrap = fresh_node.bootstrap
    tool(f"{TOOLS}.TopicCommand", "--bootstrap-server", bootstrap, "--create", "--topic", topic,
         "--config", "segment.bytes=1048576")  # fmt: skip
    tool(
        f"{TOOLS}.ProducerPerformance", "--topic", topic, "--num-records", "30000", "--record-size", "100",
        "--throughput", "-1", "--bootstrap-server", bootstrap,
    )  # fmt: skip
    console_consume(bootstrap, topic, 10, "--group", "g")
    assert fresh_node.stop() == 0
    directory = fresh_node.data / f"{topic}-0"
    logs = sorted(directory.glob("*.log"))
    assert len(logs) > 1
    out = tool(f"{TOOLS}.DumpLogSegments", "--deep-iteration", "--files", ",".join(map(str, logs))).stdout
    assert out.count("| offset:") == 30000
    assert "isvalid: false" not in out
    assert "Found" not in dump(*sorted(directory.glob("*.index")), *sorted(directory.glob("*.timeindex")))
    snapshots = sorted(directory.glob("*.snapshot"))
    assert snapshots
    assert "producerId:" in dump(*snapshots)
    metadata = fresh_node.data / "__cluster_metadata-0"
    out = dump(*sorted(metadata.glob("*.log")), decoder="--cluster-metadata-decoder")
    assert f'"name":"{topic}"' in out
    assert "REGISTER_BROKER_RECORD" in out
    offsets = [p for p in fresh_node.data.glob("__consumer_offsets-*/*.log") if p.stat().st_size]
    out = dump(*offsets, decoder="--offsets-decoder")
    assert f'"topic":"{topic}"' in out
