"""Kafka's own command-line tools and clients, unchanged, against the node."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from peers.kafka import tool
from tests.conformance.shell import TOOLS, Shell
from tests.node import NodeProcess
from tests.oracle import RELEASE


def console_produce(shell: Shell, bootstrap: str, topic: str, lines: list[str], *properties: str) -> None:
    shell.run(
        "ConsoleProducer",
        "--bootstrap-server",
        bootstrap,
        "--topic",
        topic,
        *(part for p in properties for part in ("--command-property", p)),
        text="".join(f"{x}\n" for x in lines),
    )


def console_consume(shell: Shell, bootstrap: str, topic: str, count: int, *arguments: str) -> list[str]:
    return shell.run(
        "consumer.ConsoleConsumer",
        "--bootstrap-server",
        bootstrap,
        "--topic",
        topic,
        "--max-messages",
        str(count),
        "--timeout-ms",
        "90000",
        *arguments,
    ).lines()


@pytest.mark.client("ConsoleProducer", "produces with {codec}, idempotent")
@pytest.mark.client("ConsoleConsumer", "reads what was written with {codec}")
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_console_producer_and_consumer(shell: Shell, bootstrap: str, topic: str, codec: str) -> None:
    lines = [f"line {i} " + "y" * (i % 40) for i in range(500)]
    console_produce(shell, bootstrap, topic, lines, f"compression.type={codec}", "enable.idempotence=true")
    assert console_consume(shell, bootstrap, topic, 500, "--from-beginning") == lines


@pytest.mark.client("ConsoleProducer", "keys and headers; acks none, one and all")
@pytest.mark.client(
    "ConsoleConsumer",
    "keys, headers, offsets and partitions",
    "in a group: commits and resumes",
    "reads __consumer_offsets with its formatter",
)
def test_console_tools_with_keys_headers_and_groups(shell: Shell, bootstrap: str, topic: str) -> None:
    parsing = ("parse.key=true", "parse.headers=true", "key.separator=:", "headers.delimiter=;")
    for n, acks in enumerate(("0", "1", "-1")):
        shell.run(
            "ConsoleProducer",
            "--bootstrap-server",
            bootstrap,
            "--topic",
            topic,
            "--request-required-acks",
            acks,
            "--request-timeout-ms",
            "60000",  # else a slow answer is a reason to send again, after the next record
            *(part for p in parsing for part in ("--reader-property", p)),
            text=f"h:{n};k{n}:v{n}\n",
        )
    shown = ("print.key", "print.headers", "print.offset", "print.partition")
    formatted = [part for name in shown for part in ("--formatter-property", f"{name}=true")]
    assert console_consume(shell, bootstrap, topic, 3, "--partition", "0", "--offset", "earliest", *formatted) == [
        f"Partition:0\tOffset:{n}\th:{n}\tk{n}\tv{n}" for n in range(3)
    ]
    group = ("--group", f"g-{topic}", "--from-beginning")
    assert console_consume(shell, bootstrap, topic, 2, *group) == ["v0", "v1"]
    assert console_consume(shell, bootstrap, topic, 1, *group) == ["v2"]
    committed = shell.run(
        "consumer.ConsoleConsumer",
        "--bootstrap-server",
        bootstrap,
        "--topic",
        "__consumer_offsets",
        "--from-beginning",
        "--timeout-ms",
        "1500",
        "--formatter",
        f"{TOOLS}.consumer.OffsetsMessageFormatter",
    )
    # The formatter ends no lines.
    records = [
        json.loads(f"{{{text}") for text in re.split(r"\n?\{(?=\"key\":\{\"type\")", committed.out) if topic in text
    ]
    offsets = [each["value"]["data"]["offset"] for each in records if each["key"]["data"]["topic"] == topic]
    assert offsets[-1] == 3 and 2 in offsets


@pytest.mark.client("VerifiableProducer", "acks=all; each record is acknowledged")
@pytest.mark.client("ProducerPerformance", "20,000 records, with {codec}")
@pytest.mark.client("ConsumerPerformance", "reads all of them, written with {codec}")
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_verifiable_producer_and_performance_tools(shell: Shell, bootstrap: str, topic: str, codec: str) -> None:
    sent = tool(  # in a JVM of its own: it ends its producer when that shuts down
        f"{TOOLS}.VerifiableProducer",
        "--bootstrap-server",
        bootstrap,
        "--topic",
        topic,
        "--max-messages",
        "1000",
        release=RELEASE,
    )
    events = [json.loads(line) for line in sent.stdout.splitlines() if line.startswith("{")]
    assert sum(event["name"] == "producer_send_success" for event in events) == 1000
    perf = shell.run(
        "ProducerPerformance",
        "--topic",
        topic,
        "--num-records",
        "20000",
        "--record-size",
        "100",
        "--throughput",
        "-1",
        "--bootstrap-server",
        bootstrap,
        "--command-property",
        f"compression.type={codec}",
    )
    assert "20000 records sent" in perf.out
    read = shell.run(
        "ConsumerPerformance",
        "--bootstrap-server",
        bootstrap,
        "--topic",
        topic,
        "--num-records",
        "21000",
        "--timeout",
        "30000",
    )
    assert re.search(r",\s*21000,", read.out), read.out


@pytest.mark.client("EndToEndLatency", "500 records there and back, acks=all")
def test_end_to_end_latency(shell: Shell, bootstrap: str, topic: str) -> None:
    out = shell.run(
        "EndToEndLatency",
        "--bootstrap-server",
        bootstrap,
        "--topic",
        topic,
        "--num-records",
        "500",
        "--producer-acks",
        "all",
        "--record-size",
        "100",
    ).out
    assert re.search(r"Avg latency: [\d.]+ ms", out)
    assert "Percentiles:" in out


@pytest.mark.client(
    "DumpLogSegments",
    "logs with --deep-iteration, indexes with their checks, producer snapshots",
    "--cluster-metadata-decoder",
    "--offsets-decoder",
)
def test_dump_log_segments_reads_every_file(shell: Shell, fresh_node: NodeProcess, topic: str) -> None:
    """After a clean stop: log with deep iteration, indexes with their sanity check, snapshots, metadata, offsets."""

    def dump(*paths: Path, decoder: str = "--files") -> str:
        files = ",".join(map(str, paths))
        return shell.run("DumpLogSegments", *(() if decoder == "--files" else (decoder,)), "--files", files).out

    bootstrap = fresh_node.bootstrap
    shell.run(
        "TopicCommand",
        "--bootstrap-server",
        bootstrap,
        "--create",
        "--topic",
        topic,
        "--config",
        "segment.bytes=1048576",
    )
    shell.run(
        "ProducerPerformance",
        "--topic",
        topic,
        "--num-records",
        "30000",
        "--record-size",
        "100",
        "--throughput",
        "-1",
        "--bootstrap-server",
        bootstrap,
    )
    console_consume(shell, bootstrap, topic, 10, "--group", "g", "--from-beginning")
    assert fresh_node.stop() == 0
    directory = fresh_node.data / f"{topic}-0"
    logs = sorted(directory.glob("*.log"))
    assert len(logs) > 1
    out = dump(*logs, decoder="--deep-iteration")
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
