"""Measure how long others wait while one client does its worst: `python -m bench flood` or `python -m bench.attacks`.

A bystander asks ApiVersions, one request in flight, and notes how long each answer takes: before an attack, beside it
and after it. Attacks send from a process of their own, so that only the broker can keep the bystander waiting (and a
machine with too few cores: measure on a quiet one). Memory is read before, at its peak, and after the attack is over.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.method.brokers import SIDES, make, resident_mb
from bench.method.compare import THEIRS
from bench.tables import Run, Section, table
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.protocol.records._records import write
from ottla.protocol.records.compression import Codec
from ottla.protocol.records.record_batch import MAGIC, BatchHeader, assemble, compress

TOPIC = "attacked"
PARTITIONS = 64
QUIET_S = 1.0
"""How long the bystander is watched before an attack, and after it until memory is read."""
WARM_UP_S = 25.0
ATTACK_S_MAX = 60.0
UNREAD_S = 3.0
"""How long clients stay that do not read."""
BAD_TIMESTAMP_MS = 1 << 42
"""Decades from now."""
Attack = Callable[[int], "Sender"]
Sender = Callable[[], None]


class Client:
    """A connection that sends frames, and reads answers or does not."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=ATTACK_S_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def answer(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        parts = []
        while size:
            data = self.socket.recv(min(size, 1 << 20))
            if not data:
                raise ConnectionError("the broker closed the connection")
            parts.append(data)
            size -= len(data)
        return b"".join(parts)

    def ask(self, frame: bytes, answers: int = 1) -> bytes:
        self.socket.sendall(frame)
        data = b""
        for _ in range(answers):
            data = self.answer()
        return data


def framed(body: bytes | bytearray) -> bytes:
    return struct.pack(">i", len(body)) + body


def request(key: ApiKey, version: int, **values: Any) -> bytes:
    return framed(messages.encode_request(key, version, 1, "attacker", values))


def batch(count: int, codec: Codec, timestamp: int, value: bytes = b"", key: bytes | None = None) -> bytearray:
    """`count` equal records; made from a thousand, since their offset deltas need not be right to be read."""
    section = bytearray()
    some = min(count, 1000)
    write(section, [(timestamp, key, value, ())] * some, timestamp)
    whole = bytes(section) * (count // some)
    header = BatchHeader(0, 0, -1, MAGIC, 0, codec, count - 1, timestamp, timestamp, -1, -1, -1, count)
    return assemble(header, whole if codec is Codec.NONE else compress(codec, whole))


def counted_batch(count: int, codec: Codec, timestamp: int) -> bytearray:
    """A batch with every offset in its place, which a log takes."""
    section = bytearray()
    write(section, ((timestamp, None, None, ()) for _ in range(count)), timestamp)
    header = BatchHeader(0, 0, -1, MAGIC, 0, codec, count - 1, timestamp, timestamp, -1, -1, -1, count)
    return assemble(header, section if codec is Codec.NONE else compress(codec, section))


def produced(records: Sequence[Any], first: int = 0, topic: str = TOPIC) -> bytes:
    rows = [{"index": first + number, "records": data} for number, data in enumerate(records)]
    values = {"acks": 1, "timeout": 30_000, "topic_data": [{"name": topic, "partition_data": rows}]}
    return framed(messages.encode_request(ApiKey.PRODUCE, 9, 1, "attacker", {"transactional_id": None, **values}))


def one(frame: bytes, times: int = 1) -> Attack:
    """One client that sends a request, and again when it is answered."""

    def attack(port: int) -> Sender:
        client = Client(port)

        def send() -> None:
            for _ in range(times):
                client.ask(frame)

        return send

    return attack


def pipelined(frame: bytes, count: int) -> Attack:
    """One client with many requests in flight."""

    def attack(port: int) -> Sender:
        client = Client(port)
        frames = frame * count

        def send() -> None:
            import threading

            sender = threading.Thread(target=client.socket.sendall, args=(frames,), daemon=True)
            sender.start()
            for _ in range(count):
                client.answer()

        return send

    return attack


def unread(frame: bytes, clients: int, count: int) -> Attack:
    """Many clients that send and never read."""

    def attack(port: int) -> Sender:
        all_of_them = [Client(port) for _ in range(clients)]

        def send() -> None:
            for client in all_of_them:
                client.socket.setblocking(False)
                try:
                    client.socket.send(frame * count)
                except BlockingIOError:
                    pass
            time.sleep(UNREAD_S)

        return send

    return attack


def rows(count: int) -> list[dict[str, Any]]:
    return [{"partition_index": number, "timestamp": -1, "offset": 0} for number in range(count)]


def bomb(codec: Codec, count: int, times: int = 1) -> Attack:
    return one(produced([batch(count, codec, BAD_TIMESTAMP_MS)]), times)


def timed_lookups(port: int) -> Sender:
    """A valid batch of 1.2 M records, and look-ups of its last record."""
    now = int(time.time() * 1000)
    client = Client(port)
    client.ask(produced([counted_batch(1_200_000, Codec.ZSTD, now)]))
    asked = [{"partition_index": 0, "timestamp": now, "current_leader_epoch": -1}]
    frame = request(
        ApiKey.LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=[{"name": TOPIC, "partitions": asked}]
    )

    def send() -> None:
        for _ in range(10):
            client.ask(frame)

    return send


def big_fetch(count: int) -> bytes:
    from ottla.protocol import fetch

    partitions = [fetch.FetchPartition(number, -1, 0, -1, -1, 1000) for number in range(count)]
    asked = fetch.FetchRequest(0, 1, 1 << 20, [fetch.FetchTopic(TOPIC, None, partitions)], session_epoch=0)
    return framed(fetch.encode_request(12, 1, "attacker", asked))


def attacks(size: float = 1.0) -> dict[str, Callable[[], Attack]]:
    """Every attack by name; made when it is its turn, since some are large. `size` is the share of the rows, requests
    and clients of a whole one; bombs stay what they are."""
    key = ApiKey
    many = int(190_000 * size)
    half = many * 10 // 19
    """Number of items where each takes two of the 200,000 that a request may have, or more time."""
    few = half // 20

    def topics(count: int, width: int = 1, **more: Any) -> list[dict[str, Any]]:
        return [{"name": f"none-{number}", **more} for number in range(count)]

    def partitions(count: int = many) -> list[dict[str, Any]]:
        return [{"name": TOPIC, "partitions": rows(count)}]

    def commit(count: int) -> bytes:
        listed = [
            {"partition_index": number % PARTITIONS, "committed_offset": number, "committed_metadata": ""}
            for number in range(count)
        ]
        return request(
            key.OFFSET_COMMIT,
            8,
            group_id="g",
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[{"name": TOPIC, "partitions": listed}],
        )

    def configs(count: int, api: ApiKey, version: int) -> bytes:
        listed = [
            {
                "resource_type": 2,
                "resource_name": TOPIC if api is key.DESCRIBE_CONFIGS else f"none-{number}",
                "configs": [],
                "configuration_keys": None,
            }
            for number in range(count)
        ]
        return request(api, version, resources=listed, validate_only=False)

    metadata = request(key.METADATA, 12, topics=None, allow_auto_topic_creation=False)
    return {
        "nothing": lambda: lambda port: lambda: time.sleep(UNREAD_S),
        "zstd, 14.5 M records": lambda: bomb(Codec.ZSTD, 14_500_000),
        "zstd, 1 M records, 10 times": lambda: bomb(Codec.ZSTD, 1_000_000, 10),
        "gzip, 10 M records": lambda: bomb(Codec.GZIP, 10_000_000),
        "snappy, 10 M records": lambda: bomb(Codec.SNAPPY, 10_000_000),
        "lz4, 10 M records": lambda: bomb(Codec.LZ4, 10_000_000),
        "64 bombs in one Produce": lambda: one(produced([batch(1_000_000, Codec.ZSTD, BAD_TIMESTAMP_MS)] * PARTITIONS)),
        f"{half // 5:,} batches in one Produce": lambda: one(
            produced([counted_batch(1, Codec.NONE, int(time.time() * 1000))] * (half // 5))
        ),
        "look-ups by time, 1.2 M records": lambda: timed_lookups,
        f"{half // 5:,} Metadata from one client": lambda: pipelined(metadata, half // 5),
        f"{half // 50:,} clients x 50 that do not read": lambda: unread(metadata, half // 50, 50),
        f"ListOffsets of {many:,}": lambda: one(
            request(key.LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=partitions())
        ),
        f"DeleteRecords of {many:,}": lambda: one(request(key.DELETE_RECORDS, 2, timeout_ms=1000, topics=partitions())),
        f"Fetch of {many:,}": lambda: one(big_fetch(many)),
        f"CreateTopics of {many:,}": lambda: one(
            request(
                key.CREATE_TOPICS,
                7,
                timeout_ms=1000,
                validate_only=True,
                topics=topics(many, num_partitions=1, replication_factor=1),
            )
        ),
        f"CreateTopics of one with {half * 9 // 10:,} assignments": lambda: one(
            request(
                key.CREATE_TOPICS,
                7,
                timeout_ms=1000,
                validate_only=True,
                topics=[
                    {
                        "name": "wide",
                        "num_partitions": -1,
                        "replication_factor": -1,
                        "assignments": [{"partition_index": n, "broker_ids": [1]} for n in range(half * 9 // 10)],
                    }
                ],
            )
        ),
        f"{half // 5:,} commits": lambda: one(commit(half // 5), 5),
        f"{many:,} commits": lambda: one(commit(many)),
        f"auto-create {few:,} topics": lambda: one(
            request(key.METADATA, 12, topics=topics(few, topic_id=None), allow_auto_topic_creation=True)
        ),
        f"Metadata of {many:,}": lambda: one(
            request(key.METADATA, 12, topics=topics(many, topic_id=None), allow_auto_topic_creation=False)
        ),
        f"OffsetFetch of {many:,}": lambda: one(
            request(
                key.OFFSET_FETCH,
                8,
                require_stable=False,
                groups=[{"group_id": "g", "topics": [{"name": TOPIC, "partition_indexes": list(range(many))}]}],
            )
        ),
        f"OffsetForLeaderEpoch of {many:,}": lambda: one(
            request(
                key.OFFSET_FOR_LEADER_EPOCH,
                4,
                replica_id=-1,
                topics=[
                    {
                        "topic": TOPIC,
                        "partitions": [
                            {"partition": n, "current_leader_epoch": -1, "leader_epoch": 0} for n in range(many)
                        ],
                    }
                ],
            )
        ),
        f"DescribeConfigs of {few:,}": lambda: one(configs(few, key.DESCRIBE_CONFIGS, 4)),
        f"IncrementalAlterConfigs of {half // 2:,}": lambda: one(configs(half // 2, key.INCREMENTAL_ALTER_CONFIGS, 1)),
        f"JoinGroup of {half // 10_000} MB": lambda: one(
            request(
                key.JOIN_GROUP,
                5,
                group_id="g",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                member_id="",
                group_instance_id=None,
                protocol_type="consumer",
                protocols=[{"name": f"p{n}", "metadata": b"\0\1" + b"x" * 1000} for n in range(half // 10)],
            )
        ),
        f"DescribeLogDirs of {many:,}": lambda: one(
            request(key.DESCRIBE_LOG_DIRS, 4, topics=[{"topic": TOPIC, "partitions": list(range(many))}])
        ),
        f"DescribeProducers of {many:,}": lambda: one(
            request(key.DESCRIBE_PRODUCERS, 0, topics=[{"name": TOPIC, "partition_indexes": list(range(many))}])
        ),
        f"FindCoordinator of {many:,}": lambda: one(
            request(key.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[f"g{n}" for n in range(many)])
        ),
        f"DescribeTopicPartitions of {half:,}": lambda: one(
            request(key.DESCRIBE_TOPIC_PARTITIONS, 0, topics=topics(half), response_partition_limit=2000, cursor=None)
        ),
    }


class Unanswered(Exception):
    """The bystander got no answer, or lost its connection: the broker is held up for good, or gone."""


class Watch:
    """The bystander's waits in ms."""

    def __init__(self, port: int) -> None:
        self.client = Client(port)
        self.frame = request(ApiKey.API_VERSIONS, 3, client_software_name="bystander", client_software_version="1")
        self.waits: list[float] = []

    def until(self, over: Callable[[], bool]) -> None:
        """Ask until `over`. Raises Unanswered, with the time waited in vain among the waits."""
        while not over():
            start = time.perf_counter()
            try:
                self.client.ask(self.frame)
            except OSError as error:
                raise Unanswered(str(error)) from error
            finally:
                self.waits.append((time.perf_counter() - start) * 1e3)

    def percentile(self, share: float) -> float:
        waits = sorted(self.waits)
        return waits[min(int(len(waits) * share), len(waits) - 1)]


def memory_mb(pid: int) -> tuple[float, float]:
    """(peak, resident) of a process; NaN when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        lines = []
    sizes = {
        name: int(rest.split()[0]) / 1024
        for name, _, rest in (line.partition(":") for line in lines)
        if name in ("VmHWM", "VmRSS")
    }
    return sizes.get("VmHWM", math.nan), sizes.get("VmRSS", math.nan)


class Row(NamedTuple):
    attack: str
    side: str
    waits: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    longest_ms: float
    attack_s: float
    before_mb: float
    peak_mb: float
    after_mb: float
    note: str = ""


def _send(make_sender: Attack, port: int, ready: Any, go: Any) -> None:
    send = make_sender(port)
    ready.set()
    go.wait()
    try:
        send()
    except (ConnectionError, TimeoutError):
        pass


def measure(name: str, side: str, make_attack: Callable[[], Attack], base: Path, warm_up_s: float = WARM_UP_S) -> Row:
    """One attack on a new broker; a JVM answers the bystander for `warm_up_s` before."""
    broker = make(side, base, {"num.partitions": str(PARTITIONS), "log.retention.ms": "-1"})
    broker.start()
    try:
        admin = Client(broker.port)
        created = [{"name": TOPIC, "num_partitions": PARTITIONS, "replication_factor": 1}]
        admin.ask(request(ApiKey.CREATE_TOPICS, 5, topics=created, timeout_ms=30_000))
        context = multiprocessing.get_context("fork")
        ready, go = context.Event(), context.Event()
        attacker = context.Process(target=_send, args=(make_attack(), broker.port, ready, go), daemon=True)
        attacker.start()
        ready.wait(ATTACK_S_MAX)
        watch = Watch(broker.port)
        end = time.monotonic() + (max(QUIET_S, warm_up_s) if side == THEIRS else QUIET_S)
        watch.until(lambda: time.monotonic() > end)
        watch.waits.clear()
        before = resident_mb(broker.pid)
        Path(f"/proc/{broker.pid}/clear_refs").write_text("5")
        began = time.monotonic()
        go.set()
        end = began + ATTACK_S_MAX
        note = ""
        try:
            watch.until(lambda: not attacker.is_alive() or time.monotonic() > end)
        except Unanswered as error:
            note = f"no answer ({error})"
        seconds = time.monotonic() - began
        if attacker.is_alive():
            attacker.kill()
        attacker.join()
        if not note:
            end = time.monotonic() + 2 * QUIET_S
            try:
                watch.until(lambda: time.monotonic() > end)
            except Unanswered as error:
                note = f"no answer after the attack ({error})"
        return Row(
            name,
            side,
            len(watch.waits),
            watch.percentile(0.5),
            watch.percentile(0.99),
            watch.percentile(0.999),
            max(watch.waits),
            seconds,
            before,
            *memory_mb(broker.pid),
            note,
        )
    finally:
        broker.stop()


HEAD = (
    "attack",
    "side",
    "asked",
    "p50 ms",
    "p99 ms",
    "p99.9 ms",
    "longest ms",
    "lasts s",
    "MB before",
    "peak",
    "after",
    "",
)


def some(sides: Sequence[str], chosen: Sequence[str], base: Path, tell: Callable[[str], None] = print) -> list[Row]:
    """A row per attack and side; an attack is chosen by a part of its name."""
    found = []
    tell("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD))
    for name, attack in attacks().items():
        if chosen and not any(part in name for part in chosen):
            continue
        for side in sides:
            row = measure(name, side, attack, base)
            found.append(row)
            cells = [str(_cell(each)) for each in row]
            tell("| " + " | ".join(cells) + " |")
    return found


@table("flood", "what a bystander waits beside requests that are made to hold up everybody")
def flood(run: Run) -> Iterator[Section]:
    rows = []
    run.cool()
    for name, attack in attacks().items():
        for side in run.sides if run.wants(name) else ():
            row = measure(name, side, attack, run.base, run.first_warm_up_s)
            rows.append({title: _cell(each) for title, each in zip(HEAD, row, strict=True)})
    yield Section("A client with one request in flight, beside one that does its worst", rows, key="flood")


def _cell(value: object) -> Any:
    if isinstance(value, float):
        return "gone" if math.isnan(value) else round(value, 1)
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("attacks", nargs="*", help="parts of the names of attacks; all without")
    parser.add_argument("--side", choices=sorted(SIDES), action="append")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as base:
        some(arguments.side or sorted(SIDES), arguments.attacks, Path(base), lambda line: print(line, flush=True))


if __name__ == "__main__":
    main()
