"""Settings from a file, the environment and the command line: who wins, and what is said of mistakes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.protocol.messages import ApiKey
from peers.kafka import free_port, wait_until_answering
from tests.conformance.operations.operations import Client, refused
from tests.node import NodeProcess


def described(client: Client, *names: str) -> dict[str, tuple[str, int]]:
    """(value, source) of settings of node 5; the source is 5 for a default, 4 for static, 3 and 2 for dynamic ones."""
    resource = {"resource_type": 4, "resource_name": "5", "configuration_keys": list(names)}
    request = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
    answer = client.ask(ApiKey.DESCRIBE_CONFIGS, 4, request)
    return {each["name"]: (each["value"], each["config_source"]) for each in answer["results"][0]["configs"]}


def test_who_wins(tmp_path: Path) -> None:
    """Dynamic settings over the command line, over the environment, over the file."""
    node = NodeProcess(tmp_path / "data")
    file = tmp_path / "server.properties"
    file.write_text(
        "# Kafka's own format\nnode.id=5\nnum.partitions = 2\n"
        "log.retention.hours:\\\n   2\nlog.segment.bytes=2000000\nmessage.max.bytes=1111111\n"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")}
    environ |= {
        "OTTLA_LOG_SEGMENT_BYTES": "3000000",
        "OTTLA_MESSAGE_MAX_BYTES": "2222222",
        "OTTLA_TEST_X": "no setting",
    }
    node.process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "ottla.cli.main",
            "server",
            "start",
            str(node.data),
            "--config",
            str(file),
            "--set",
            "message.max.bytes=3333333",
            "--listen",
            node.bootstrap,
        ],
        env=environ,
        stdout=subprocess.DEVNULL,
    )
    with node.process:
        try:
            wait_until_answering("127.0.0.1", node.port, 30, node.process)
            client = Client(node)
            names = (
                "num.partitions",
                "log.retention.hours",
                "log.segment.bytes",
                "message.max.bytes",
                "log.roll.hours",
            )
            found = described(client, *names)
            assert found == {
                "num.partitions": ("2", 4),
                "log.retention.hours": ("2", 4),
                "log.segment.bytes": ("3000000", 4),
                "message.max.bytes": ("3333333", 4),
                "log.roll.hours": ("168", 5),
            }
            client.alter("", kind=4, message_max_bytes=4444444)
            assert described(client, "message.max.bytes") == {"message.max.bytes": ("4444444", 3)}
            client.alter("5", kind=4, message_max_bytes=555)
            assert described(client, "message.max.bytes") == {"message.max.bytes": ("555", 2)}
            client.create("t", -1)
            assert client.produce("t", b"x" * 600, partition=1)["error"] == "message_too_large"
        finally:
            assert node.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "environ", "told"),
    [
        (["--set", "log.retention.msec=1"], {}, ["log.retention.msec", "did you mean log.retention.ms"]),
        (["--set", "retention.ms=1"], {}, ["retention.ms is a setting of a topic", "log.retention.ms"]),
        (["--set", "num.partitions=0"], {}, ["num.partitions=0", "at least 1"]),
        (["--set", "num.partitions=many"], {}, ["num.partitions=many", "at least 1"]),
        (["--set", "compression.type=rar"], {}, ["compression.type=rar", "zstd"]),
        (["--set", "log.retention.ms=0"], {}, ["log.retention.ms is 0", "-1 (no limit) or at least 1"]),
        (["--set", "log.segment.bytes=99"], {}, ["log.segment.bytes=99", "at least 1048576"]),
        ([], {"OTTLA_NUM_PARTITION": "1"}, ["OTTLA_NUM_PARTITION", "did you mean num.partitions"]),
        ([], {"OTTLA_NUM_PARTITIONS": "-1"}, ["num.partitions=-1", "at least 1"]),
        (["--config", "/nowhere/server.properties"], {}, ["/nowhere/server.properties", "No such file"]),
    ],
)
def test_a_mistake_is_refused_with_what_is_allowed(
    tmp_path: Path, arguments: list[str], environ: dict[str, str], told: list[str]
) -> None:
    sentence = refused(tmp_path / "data", *arguments, environ=environ, code=2)
    assert all(part in sentence for part in told), sentence
    assert not (tmp_path / "data").exists()


def test_errors_in_a_file_are_reported_too(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"listeners=PLAINTEXT://127.0.0.1:{free_port()}\nlog.roll.ms=0\n")
    assert "log.roll.ms" in refused(tmp_path / "data", "--config", str(file), code=2)
