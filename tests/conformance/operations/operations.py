"""Helpers of the operations tests: a blocking client, nodes that must not start, small disks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch, iterate_batches, iterate_records
from ottla.testing import Broker
from tests.conformance.pair import Wire
from tests.node import NodeProcess

DEADLINE_S = 300


class Client:
    """A connection with the requests that these tests need. Topics are named; there is partition 0 if not said."""

    def __init__(self, node: NodeProcess | Broker) -> None:
        self.wire = Wire(node.bootstrap)

    def ask(self, key: ApiKey, version: int, values: Mapping[str, Any]) -> Any:
        return self.wire.ask(key, version, values)

    def create(self, topic: str, partitions: int = 1, **settings: Any) -> str:
        """Create a topic with settings such as `segment_bytes=1`; returns the name of the error."""
        return self.create_all([topic], partitions, **settings)[0]

    def create_all(self, topics: Sequence[str], partitions: int = 1, **settings: Any) -> list[str]:
        configs = [{"name": name.replace("_", "."), "value": str(value)} for name, value in settings.items()]
        topic = {"num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": configs}
        values = {"topics": [{"name": name, **topic} for name in topics], "timeout": 9000, "validate_only": False}
        answer = self.ask(ApiKey.CREATE_TOPICS, 7, values)
        errors = {each["name"]: name_of(each["error_code"]) for each in answer["topics"]}
        return [errors[name] for name in topics]

    def delete(self, *topics: str) -> list[str]:
        answer = self.ask(ApiKey.DELETE_TOPICS, 5, {"topic_names": list(topics), "timeout": 9000})
        return [name_of(each["error_code"]) for each in answer["responses"]]

    def alter(self, name: str, *, kind: int = 2, **settings: Any) -> str:
        """Alter the settings of a topic, or with `kind` 4 of all brokers (no name) or one."""
        configs = [
            {"name": setting.replace("_", "."), "config_operation": 0, "value": str(value)}
            for setting, value in settings.items()
        ]
        resource = {"resource_type": kind, "resource_name": name, "configs": configs}
        answer = self.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})
        return name_of(answer["responses"][0]["error_code"])

    def produce(self, topic: str, *values: bytes, partition: int = 0, **options: Any) -> Any:
        """Append one batch; returns the partition's answer with its error by name."""
        now = options.pop("timestamp", None) or int(time.time() * 1000)
        key = options.pop("key", None)
        batch = build_batch([SimpleRecord(now, key, value) for value in values], **options)
        data = {"name": topic, "partition_data": [{"index": partition, "records": bytes(batch)}]}
        request = {"transactional_id": None, "acks": -1, "timeout": 9000, "topic_data": [data]}
        answer = self.ask(ApiKey.PRODUCE, 11, request)["responses"][0]["partition_responses"][0]
        return {**answer, "error": name_of(answer["error_code"])}

    def produce_all(self, topic: str, *values: bytes, **options: Any) -> None:
        """One batch per value; none may fail."""
        for value in values:
            answer = self.produce(topic, value, **options)
            assert answer["error"] == "none", answer

    def fetch(self, topic: str, offset: int = 0, *, partition: int = 0, max_wait_ms: int = 0) -> Any:
        """The partition's answer of one fetch, with `values` by offset and its error by name."""
        wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        request = {
            "replica_id": -1,
            "max_wait": max_wait_ms,
            "min_bytes": 1,
            "max_bytes": 1 << 22,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": topic, "partitions": [wanted]}],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        answer = self.ask(ApiKey.FETCH, 12, request)["responses"][0]["partitions"][0]
        data = bytes(answer["records"] or b"")
        records = [
            record
            for position, header in iterate_batches(data)
            for record in iterate_records(data[position : position + header.size])
            if record.offset >= offset
        ]
        found = {record.offset: record.value for record in records}
        return {**answer, "error": name_of(answer["error_code"]), "values": found}

    def read(self, topic: str, offset: int | None = None, *, partition: int = 0) -> dict[int, bytes]:
        """Everything from the log start or `offset` to the high watermark."""
        at = self.offset(topic, -2, partition=partition) if offset is None else offset
        found: dict[int, bytes] = {}
        while True:
            answer = self.fetch(topic, at, partition=partition)
            assert answer["error"] == "none", answer
            if not answer["values"]:
                assert at == answer["high_watermark"], answer
                return found
            found |= answer["values"]
            at = max(found) + 1

    def offset(self, topic: str, timestamp: int, *, partition: int = 0) -> int:
        """The offset of a time; -2 for the log start, -1 for the end."""
        answer = self._offset(topic, timestamp, partition)
        assert name_of(answer["error_code"]) == "none", answer
        offset: int = answer["offset"]
        return offset

    def await_leader(self, topic: str) -> None:
        """Kafka answers CreateTopics before the broker knows of the topic."""
        eventually(lambda: name_of(self._offset(topic, -1, 0)["error_code"]) == "none", f"no leader of {topic}")

    def _offset(self, topic: str, timestamp: int, partition: int) -> dict[str, Any]:
        wanted = {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": -1}
        topics = [{"name": topic, "partitions": [wanted]}]
        request = {"replica_id": -1, "isolation_level": 0, "topics": topics}
        answer: dict[str, Any] = self.ask(ApiKey.LIST_OFFSETS, 7, request)["topics"][0]["partitions"][0]
        return answer

    def delete_records(self, topic: str, offset: int) -> Any:
        topics = [{"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}]
        answer = self.ask(ApiKey.DELETE_RECORDS, 2, {"topics": topics, "timeout": 9000})
        return answer["topics"][0]["partitions"][0]

    def producer_id(self) -> int:
        request = {"transactional_id": None, "transaction_timeout": 9000, "producer_id": -1, "producer_epoch": -1}
        producer_id: int = self.ask(ApiKey.INIT_PRODUCER_ID, 4, request)["producer_id"]
        return producer_id

    def topics(self) -> list[str]:
        answer = self.ask(ApiKey.METADATA, 9, {"topics": None, "allow_auto_topic_creation": False})
        return sorted(each["name"] for each in answer["topics"])


def name_of(code: Any) -> str:
    from ottla.errors import ErrorCode

    return ErrorCode(code).name


def eventually(condition: Callable[[], Any], why: str = "") -> Any:
    """Wait for something that the node does by itself, within a generous time."""
    deadline = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, why or "it did not happen"
        time.sleep(0.02)
    return found


def refused(data: Path | None, *arguments: str, environ: Mapping[str, str] | None = None, code: int = 1) -> str:
    """The error of a node that must not start: one sentence, and exit code 2 if a setting is wrong."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")}
    place = [] if data is None else [str(data)]
    ended = subprocess.run(
        [sys.executable, "-m", "ottla.cli.main", "server", "start", *place, "--listen", "127.0.0.1:0", *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env={**kept, **(environ or {})},
        check=False,
    )
    assert ended.returncode == code, ended
    said = [line for line in ended.stderr.splitlines(keepends=True) if " ottla." not in line[:40]]  # beside the log
    assert said and said[0].startswith("ottla: ") and "Traceback" not in ended.stderr, ended.stderr
    return ended.stderr


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[Path]:
    """A file system of its own, of `size`; skips where this user may not mount one."""
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"needs to mount a small disk: {mounted.stderr.decode().strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def remount(path: Path, mode: str) -> None:
    """`mode` is ro or rw. Unlike file modes this stops root too."""
    subprocess.run(["mount", "-o", f"remount,{mode}", str(path)], check=True)


def segment_files(directory: Path, suffix: str = ".log") -> list[str]:
    return sorted(each.name for each in directory.iterdir() if each.name.endswith(suffix))
