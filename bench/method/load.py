"""What every load is made of: a blocking client, requests that are encoded once, and the result of a window."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from bench.method.brokers import resident_mb
from bench.method.counters import Meter
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch

PRODUCE_VERSION = 11
FETCH_VERSION = 12


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


class Client:
    """A blocking client for set-up and for latency: one request, one answer."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, api: int, version: int, values: dict[str, Any]) -> None:
        self.socket.sendall(frame(messages.encode_request(api, version, 1, "bench", values)))

    def receive_frame(self) -> bytes:
        size = int.from_bytes(self._exactly(4), "big")
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        buffer = bytearray(size)
        view = memoryview(buffer)
        got = 0
        while got < size:
            step = self.socket.recv_into(view[got:])
            if step == 0:
                raise ConnectionError("the broker closed the connection")
            got += step
        return bytes(buffer)

    def call(self, api: int, version: int, values: dict[str, Any]) -> dict[str, Any]:
        self.send(api, version, values)
        plain: dict[str, Any] = messages.plain(messages.decode_response(api, version, self.receive_frame())[1])
        return plain

    def create_topic(self, name: str, partitions: int = 1, configs: dict[str, str] | None = None) -> None:
        answer = self.call(
            ApiKey.CREATE_TOPICS,
            7,
            {
                "topics": [
                    {
                        "name": name,
                        "num_partitions": partitions,
                        "replication_factor": 1,
                        "assignments": (),
                        "configs": [{"name": k, "value": v} for k, v in (configs or {}).items()],
                    }
                ],
                "timeout": 120_000,
                "validate_only": False,
            },
        )
        code = answer["topics"][0]["error_code"]
        if code not in (0, 36):
            raise RuntimeError(f"create {name}: {code!r}")
        self.wait_for_leaders(name, partitions)

    def delete_topic(self, name: str) -> None:
        values = {"topics": [{"name": name, "topic_id": None}], "timeout": 120_000}
        code = self.call(ApiKey.DELETE_TOPICS, 6, values)["responses"][0]["error_code"]
        if code != 0:
            raise RuntimeError(f"delete {name}: {code!r}")

    def keep_all(self, name: str) -> None:
        """Have the topic keep its records from now on."""
        config = {"name": "retention.bytes", "config_operation": 0, "value": "-1"}
        values = {
            "resources": [{"resource_type": 2, "resource_name": name, "configs": [config]}],
            "validate_only": False,
        }
        code = self.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, values)["responses"][0]["error_code"]
        if code != 0:
            raise RuntimeError(f"settings of {name}: {code!r}")

    def wait_for_leaders(self, name: str, partitions: int) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            answer = self.call(ApiKey.METADATA, 8, {"topics": [{"name": name}], "allow_auto_topic_creation": False})
            topic = answer["topics"][0]
            led = len(topic["partitions"]) == partitions and all(p["leader_id"] >= 0 for p in topic["partitions"])
            if led and self._leads_all(name, partitions):
                return
            time.sleep(0.01)
        raise RuntimeError(f"no leaders for {name}")

    def _leads_all(self, name: str, partitions: int) -> bool:
        """Whether every leader answers as leader: in Apache Kafka metadata runs ahead of the replicas."""
        wanted = [{"partition_index": p, "timestamp": -1, "current_leader_epoch": -1} for p in range(partitions)]
        values = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": name, "partitions": wanted}]}
        answer = self.call(ApiKey.LIST_OFFSETS, 7, values)
        return all(p["error_code"] == 0 for p in answer["topics"][0]["partitions"])

    def close(self) -> None:
        self.socket.close()


def batch_of(size: int, record_size: int = 100) -> tuple[bytes, int]:
    """A record batch of about `size` bytes out of `record_size`-byte values, and its record count."""
    count = max(1, size // (record_size + 8))
    value = bytes(32 + i * 7 % 90 for i in range(record_size))
    now = time.time_ns() // 1_000_000
    return bytes(build_batch([SimpleRecord(now, None, value) for _ in range(count)])), count


def produce_frame(topic: str, partition: int, batch: bytes, acks: int = -1, *, client_id: str = "bench") -> bytes:
    return frame(
        messages.encode_request(
            ApiKey.PRODUCE,
            PRODUCE_VERSION,
            1,
            client_id,
            {
                "transactional_id": None,
                "acks": acks,
                "timeout": 30_000,
                "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}],
            },
        )
    )


def fetch_values(topic: str, partition: int, offset: int, max_bytes: int, *, wait_ms: int = 500) -> dict[str, Any]:
    return {
        "max_wait": wait_ms,
        "min_bytes": 1,
        "max_bytes": max_bytes,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "rack_id": "",
        "topics": [
            {
                "topic": topic,
                "partitions": [
                    {
                        "partition": partition,
                        "fetch_offset": offset,
                        "partition_max_bytes": max_bytes,
                        "current_leader_epoch": -1,
                        "log_start_offset": -1,
                    }
                ],
            }
        ],
    }


def fetch_frame(topic: str, partition: int, offset: int, max_bytes: int, *, client_id: str = "bench") -> bytes:
    return frame(
        messages.encode_request(
            ApiKey.FETCH, FETCH_VERSION, 1, client_id, fetch_values(topic, partition, offset, max_bytes)
        )
    )


@dataclass
class Result:
    """What one window of load on one broker gave. Rates are per second of wall clock; CPU is the broker's own."""

    requests: int = 0
    bytes: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    client_cpu_seconds: float = 0.0
    """CPU time of the load generator."""
    other_cpu_seconds: float = 0.0
    """CPU time of every other process of the machine."""
    resident_mb: float = 0.0
    """Memory of one process; 0 for a cluster, whose nodes share memory."""
    latencies_ms: list[float] = field(default_factory=list)
    counts: dict[str, float] = field(default_factory=dict)
    """Counts of `perf stat` by event, if it counted."""

    def take(self, meter: Meter) -> None:
        """Take over what a meter found between its start and stop."""
        self.cpu_seconds, self.client_cpu_seconds = meter.cpu_seconds, meter.client_cpu_seconds
        self.other_cpu_seconds, self.counts = meter.other_cpu_seconds, meter.counts
        self.resident_mb = resident_mb(meter.pids[0]) if len(meter.pids) == 1 else 0.0

    @property
    def requests_per_s(self) -> float:
        return self.requests / self.seconds

    @property
    def mb_per_s(self) -> float:
        return self.bytes / 1e6 / self.seconds

    @property
    def cpu_s_per_gb(self) -> float:
        return self.cpu_seconds / (self.bytes / 1e9)

    @property
    def cpu_ms_per_1000(self) -> float:
        return self.cpu_seconds / self.requests * 1e6

    @property
    def client_share(self) -> float:
        """The part of the time in which the load generator ran: near 1 it is the limit, not the broker."""
        return self.client_cpu_seconds / self.seconds

    @property
    def others_share(self) -> float:
        """Cores that other processes used meanwhile."""
        return self.other_cpu_seconds / self.seconds

    def percentile(self, q: float) -> float:
        if not self.latencies_ms:
            return float("nan")
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * q))]


Check = Callable[[bytearray, int, int], None]
"""(buffer, start, size) of an answer; raises RuntimeError for one that is an error."""


def same_answers(api: int, version: int) -> Check:
    """Answers must equal one that was decoded in full and has no error in it; for answers without offsets."""
    seen: set[bytes] = set()

    def check(buffer: bytearray, start: int, size: int) -> None:
        answer = bytes(buffer[start : start + size])
        if answer not in seen:
            plain = messages.plain(messages.decode_response(api, version, answer)[1])
            if errors := [code for code in error_codes(plain) if code != 0]:
                raise RuntimeError(f"{ApiKey(api).name} was refused: {errors[0]!r}")
            seen.add(answer)

    return check


def error_codes(value: Any) -> Iterator[int]:
    """Every error code in a decoded answer."""
    if isinstance(value, dict):
        for name, item in value.items():
            if name == "error_code":
                yield item
            else:
                yield from error_codes(item)
    elif isinstance(value, list):
        for item in value:
            yield from error_codes(item)


def window(turn: Callable[[float, Result], float], settle_s: float, seconds: float, meter: Meter) -> Result:
    """What `turn`, which returns how long it took, gets done in `seconds`; what comes in `settle_s` before does not
    count."""
    turn(settle_s, Result())
    meter.start()
    result = Result()
    result.seconds = turn(seconds, result)
    meter.stop()
    return result
