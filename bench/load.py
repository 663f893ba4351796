"""A load generator that costs as little as it can: requests are encoded once, answers are counted and compared.

One process, one epoll loop, plain sockets. Every answer is checked against the first one, whose error code was decoded.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from bench.brokers import cpu_seconds, resident_mb
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.protocol.record_batch import SimpleRecord, build_batch

PRODUCE_VERSION = 11
FETCH_VERSION = 12
RECEIVE_BUFFER = 1 << 20


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
            ApiKey.CREATE_TOPICS, 7,
            {"topics": [{"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": (),
                         "configs": [{"name": k, "value": v} for k, v in (configs or {}).items()]}],
             "timeout": 120_000, "validate_only": False},
        )  # fmt: skip
        code = answer["topics"][0]["error_code"]
        if code not in (0, 36):
            raise RuntimeError(f"create {name}: {code!r}")
        self.wait_for_leaders(name, partitions)

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
        """Whether every leader has taken up its office: metadata runs ahead of the replicas in Apache Kafka."""
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


def produce_frame(topic: str, partition: int, batch: bytes, acks: int = -1) -> bytes:
    return frame(
        messages.encode_request(
            ApiKey.PRODUCE, PRODUCE_VERSION, 1, "bench",
            {"transactional_id": None, "acks": acks, "timeout": 30_000,
             "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}]},
        )
    )  # fmt: skip


def fetch_values(topic: str, partition: int, offset: int, max_bytes: int, *, wait_ms: int = 500) -> dict[str, Any]:
    return {
        "max_wait": wait_ms, "min_bytes": 1, "max_bytes": max_bytes, "isolation_level": 0, "session_id": 0,
        "session_epoch": -1, "rack_id": "",
        "topics": [{"topic": topic, "partitions": [
            {"partition": partition, "fetch_offset": offset, "partition_max_bytes": max_bytes,
             "current_leader_epoch": -1, "log_start_offset": -1}]}],
    }  # fmt: skip


def fetch_frame(topic: str, partition: int, offset: int, max_bytes: int) -> bytes:
    return frame(
        messages.encode_request(
            ApiKey.FETCH, FETCH_VERSION, 1, "bench", fetch_values(topic, partition, offset, max_bytes)
        )
    )


@dataclass
class Result:
    """What one workload on one broker gave. Rates are per second of wall clock; CPU is the broker's own."""

    requests: int = 0
    bytes: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    resident_mb: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)

    @property
    def requests_per_s(self) -> float:
        return self.requests / self.seconds

    @property
    def mb_per_s(self) -> float:
        return self.bytes / 1e6 / self.seconds

    @property
    def cpu_s_per_gb(self) -> float:
        return self.cpu_seconds / (self.bytes / 1e9)

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


class _Connection:
    def __init__(self, port: int, frames: list[bytes], in_flight: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.frames = frames
        self.next = 0
        self.in_flight = in_flight
        self.sent_at: deque[float] = deque()
        self.pending: deque[memoryview] = deque()
        self.partial = bytearray()
        self.skip = 0
        self.writing = False

    def queue(self, now: float, count: int) -> None:
        for _ in range(count):
            self.pending.append(memoryview(self.frames[self.next]))
            self.next = (self.next + 1) % len(self.frames)
            self.sent_at.append(now)

    def flush(self) -> bool:
        """Send what the socket takes; True where something is left."""
        pending = self.pending
        try:
            while pending:
                sent = self.socket.sendmsg(list(pending)[:16])
                while pending and sent >= len(pending[0]):
                    sent -= len(pending.popleft())
                if sent:
                    pending[0] = pending[0][sent:]
        except BlockingIOError:
            return True
        return False


def run(
    port: int,
    frames_by_connection: list[list[bytes]],
    *,
    in_flight: int,
    seconds: float,
    warmup_s: float,
    pid: int,
    payload_bytes: int,
    small_answers: bool,
    check_answers: bool = True,
    check: Check | None = None,
) -> Result:
    """Keep `in_flight` requests on every connection for `seconds` after the warm-up.

    With `small_answers` every answer is compared with the first, but for the offset that it carries (or by `check`);
    otherwise answers are counted by their length and `payload_bytes` is ignored for the bytes received.
    """
    if check is None and check_answers:
        check = _check_produce_answer
    poller = select.epoll()
    connections = {c.socket.fileno(): c for c in (_Connection(port, f, in_flight) for f in frames_by_connection)}
    now = time.perf_counter()
    for fd, connection in connections.items():
        poller.register(fd, select.EPOLLIN)
        connection.queue(now, in_flight)
    result = Result()
    buffer = bytearray(RECEIVE_BUFFER)
    view = memoryview(buffer)
    begin = time.perf_counter() + warmup_s
    end = begin + seconds
    measuring = False
    cpu_start = 0.0
    for fd, connection in connections.items():
        _write(poller, fd, connection)
    while True:
        events = poller.poll(1.0)
        now = time.perf_counter()
        if not measuring and now >= begin:
            measuring, begin = True, now
            end = begin + seconds
            cpu_start = cpu_seconds(pid)
            result.requests = result.bytes = 0
            result.latencies_ms.clear()
        if now >= end:
            break
        for fd, event in events:
            connection = connections[fd]
            if event & ~(select.EPOLLIN | select.EPOLLOUT):
                raise ConnectionError("the broker closed a connection")
            done = 0
            if event & select.EPOLLIN:
                if small_answers:
                    done = _small_answers(connection, view, check)
                else:
                    done = _large_answers(connection, view, result)
                for _ in range(done):
                    result.latencies_ms.append((now - connection.sent_at.popleft()) * 1e3)
                result.requests += done
                if small_answers:
                    result.bytes += done * payload_bytes
                connection.queue(now, done)
            if done or event & select.EPOLLOUT:
                _write(poller, fd, connection)
    result.seconds = now - begin
    result.cpu_seconds = cpu_seconds(pid) - cpu_start
    result.resident_mb = resident_mb(pid)
    for connection in connections.values():
        with contextlib.suppress(OSError):
            connection.socket.close()
    return result


def _write(poller: select.epoll, fd: int, connection: _Connection) -> None:
    left = connection.flush()
    if left != connection.writing:
        connection.writing = left
        poller.modify(fd, select.EPOLLIN | select.EPOLLOUT if left else select.EPOLLIN)


def _small_answers(connection: _Connection, view: memoryview, check: Check | None) -> int:
    try:
        got = connection.socket.recv_into(view)
    except BlockingIOError:
        return 0
    if got == 0:
        raise ConnectionError("the broker closed a connection")
    partial = connection.partial
    partial += view[:got]
    done = position = 0
    while len(partial) - position >= 4:
        size = int.from_bytes(partial[position : position + 4], "big")
        if len(partial) - position - 4 < size:
            break
        if check is not None:
            check(partial, position + 4, size)
        position += 4 + size
        done += 1
    del partial[:position]
    return done


_seen_answers: dict[tuple[int, bytes], bytes] = {}


def _check_produce_answer(buffer: bytearray, start: int, size: int) -> None:
    """The answer must equal the first of its topic, but for the base offset. The first is decoded in full."""
    answer = bytes(buffer[start : start + size])
    name_length = answer[6]
    offset_at = 6 + name_length + 1 + 4 + 2  # header, array length, name, array length, index, error code
    key = (size, answer[:offset_at])
    tail = answer[offset_at + 8 :]
    if _seen_answers.get(key) == tail:
        return
    entity = messages.plain(messages.decode_response(ApiKey.PRODUCE, PRODUCE_VERSION, answer)[1])
    for topic in entity["responses"]:
        for partition in topic["partition_responses"]:
            if partition["error_code"] != 0:
                raise RuntimeError(f"produce was refused: {partition}")
    _seen_answers[key] = tail


def _large_answers(connection: _Connection, view: memoryview, result: Result) -> int:
    done = 0
    try:
        while True:
            if connection.skip:
                got = connection.socket.recv_into(view[: min(connection.skip, RECEIVE_BUFFER)])
                if got == 0:
                    raise ConnectionError("the broker closed a connection")
                connection.skip -= got
                result.bytes += got
                if connection.skip == 0:
                    done += 1
                    if done >= connection.in_flight:
                        return done
                continue
            head = connection.socket.recv(4 - len(connection.partial))
            if not head:
                raise ConnectionError("the broker closed a connection")
            connection.partial += head
            if len(connection.partial) == 4:
                connection.skip = int.from_bytes(connection.partial, "big")
                connection.partial.clear()
                if connection.skip < 200:
                    raise RuntimeError("an empty fetch answer")
    except BlockingIOError:
        return done
