"""No request holds the loop: what is done between two looks at the sockets is counted, in calls, not in time.

The requests are found, not listed: every array in the schema of every API that is served is made long, once with names
that the node knows and once with others. So an API that is added is asked too.
"""

from __future__ import annotations

import asyncio
import pkgutil
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ottla import coordinator as coordinator_package
from ottla.clock import SystemClock
from ottla.model import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from ottla.protocol import _records, messages, produce
from ottla.protocol.compression import Codec
from ottla.protocol.messages import ApiKey
from ottla.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from ottla.protocol.record_batch import INLINE_RECORDS_MAX, MAGIC, BatchHeader, assemble, build_batch, compress
from ottla.server import api
from ottla.server.handlers import TABLE
from tests.unit.server.node import running

ROWS = 3000
CALLS_MAX = 28_000
"""Of Python and C functions, between two looks at the sockets: some two milliseconds. A loop over all rows that does
not yield makes ten calls for each, in decoding, handling or encoding."""

TOPIC = "t"
PARTITIONS = 8
KNOWN = {"name", "topic", "topic_name", "resource_name"}


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts the calls of each of its rounds, the greatest number of which is `worst`."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.worst = 0
        self.rounds = 0

    def _run_once(self) -> None:
        before = self.calls
        super()._run_once()  # type: ignore[misc]
        self.rounds += 1
        self.worst = max(self.worst, self.calls - before)

    def count(self, frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            self.calls += 1


def kinds(cls: Any) -> Iterator[tuple[Any, Any]]:
    from kio.serial._introspect import classify_field

    return ((field, classify_field(field)) for field in fields(cls))


def arrays(cls: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all arrays in a request, those in rows of others included."""
    from kio.serial._introspect import EntityField, EntityTupleField

    for field, kind in kinds(cls):
        here = (*path, field.name)
        if kind.is_array:
            yield here
        if isinstance(kind, EntityField | EntityTupleField):
            yield from arrays(kind.type_, here)


def filled(cls: Any, long: tuple[str, ...], known: bool, number: int = 0, path: tuple[str, ...] = ()) -> dict[str, Any]:
    """A request with ROWS items in the array at `long` and one in every other."""
    from kio.serial._introspect import EntityField, EntityTupleField

    values: dict[str, Any] = {}
    for field, kind in kinds(cls):
        here = (*path, field.name)
        count = ROWS if here == long else 1
        if isinstance(kind, EntityTupleField):
            values[field.name] = [filled(kind.type_, long, known, each or number, here) for each in range(count)]
        elif isinstance(kind, EntityField):
            if field.default is MISSING or long[: len(here)] == here:
                values[field.name] = filled(kind.type_, long, known, number, here)
        elif kind.is_array:
            values[field.name] = [scalar(field, known, each or number) for each in range(count)]
        elif "tag" not in field.metadata:
            values[field.name] = scalar(field, known, number)
    return values


def scalar(field: Any, known: bool, number: int) -> Any:
    kind, name = field.metadata["kafka_type"], field.name
    if kind == "string":
        return TOPIC if known and name in KNOWN else f"{name}-{number}"
    if kind in ("bytes", "records"):
        return b"" if kind == "bytes" else None
    if kind == "uuid":
        return UUID(int=number + 1)
    if kind == "bool":
        return False
    if kind in ("int32", "int64") and "epoch" not in name and "id" not in name:
        return -1 if name == "timestamp" else number % PARTITIONS if known else number
    if name == "resource_type":
        return 2
    if kind == "error_code":
        return 0
    if kind.startswith(("timedelta", "datetime")):
        return 1000
    return -1 if kind.startswith("int") and ("epoch" in name or "generation" in name) else 0


class Client:
    """Sends from a thread of its own, so that its work is not counted."""

    def __init__(self, loop: CountingLoop, port: int) -> None:
        self.loop = loop
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)

    async def ask(self, frame: bytes, answers: int = 1) -> tuple[int, int]:
        """(most calls between two looks at the sockets, looks) until the request was answered."""
        await asyncio.sleep(0)  # what this round has done is not the node's work
        self.loop.worst = self.loop.rounds = 0
        await self.loop.run_in_executor(None, self._ask, frame, answers)
        return self.loop.worst, self.loop.rounds

    def _ask(self, frame: bytes, answers: int) -> None:
        threading.Thread(target=self.socket.sendall, args=(frame,), daemon=True).start()
        for _ in range(answers):
            (size,) = struct.unpack(">i", self._exactly(4))
            self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            data += self.socket.recv(size - len(data)) or self._gone()
        return bytes(data)

    @staticmethod
    def _gone() -> bytes:
        raise ConnectionError


def counted(tmp_path: Path, test: Callable[[Any, Client], Any], **settings: str) -> None:
    loop = CountingLoop()

    async def run() -> None:
        async with running(str(tmp_path), {"num.partitions": str(PARTITIONS), **settings}) as node:
            (port,) = node.ports.values()
            client = Client(loop, port)
            create = [{"name": TOPIC, "num_partitions": PARTITIONS, "replication_factor": 1}]
            await client.ask(request(ApiKey.CREATE_TOPICS, 5, {"topics": create, "timeout_ms": 1000}))
            coordinator = {"key_type": 0, "coordinator_keys": ["g"]}
            await client.ask(request(ApiKey.FIND_COORDINATOR, 4, coordinator))
            coordinator = {"key_type": 1, "coordinator_keys": ["x"]}
            await client.ask(request(ApiKey.FIND_COORDINATOR, 4, coordinator))
            coordinator = {"key_type": 2, "coordinator_keys": ["g:AAAAAAAAAAAAAAAAAAAAAA:0"]}
            await client.ask(request(ApiKey.FIND_COORDINATOR, 6, coordinator))
            await loaded(node)
            sys.setprofile(loop.count)
            try:
                await test(node, client)
            finally:
                sys.setprofile(None)
            client.socket.close()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(run())


async def loaded(node: Any) -> None:
    """The coordinators' topics are made when they are first asked for; what that imports and loads is not counted, nor
    are imports of what only some groups need."""
    for module in pkgutil.walk_packages(coordinator_package.__path__, f"{coordinator_package.__name__}."):
        import_module(module.name)
    for topic, coordinator in (
        (OFFSETS_TOPIC, lambda: node.groups),
        (TRANSACTION_TOPIC, lambda: node.transactions),
        (SHARE_STATE_TOPIC, lambda: node.share_coordinator),
    ):
        while not is_led(node, topic) or coordinator().loading():  # noqa: ASYNC110  nothing says so
            await asyncio.sleep(0.001)


def is_led(node: Any, topic: str) -> bool:
    image = node.image.topic(topic)
    here = [node.replicas.get(topic, number) for number in (() if image is None else image.partitions)]
    return bool(here) and all(partition is not None and partition.is_leader for partition in here)


def framed(body: bytes | bytearray) -> bytes:
    return struct.pack(">i", len(body)) + body


def request(key: int, version: int, values: dict[str, Any]) -> bytes:
    return framed(messages.encode_request(key, version, 1, "c", values))


@pytest.mark.parametrize("key", sorted(TABLE), ids=lambda key: ApiKey(key).name.lower())
def test_long_arrays_of_every_api(tmp_path: Path, key: int) -> None:
    version = TABLE[key].max_version
    cls = messages.request_class(key, version)
    api.load(key)  # imports are once, and not counted
    messages.response_class(key, version)
    asked = 0
    frames = [
        (path, known, request(key, version, filled(cls, path, known)))
        for path in arrays(cls)
        for known in (True, False)
    ]

    async def test(node: Any, client: Client) -> None:
        nonlocal asked
        loop = client.loop
        for path, known, frame in frames:
            try:
                worst, rounds = await client.ask(frame)
            except ConnectionError:  # refused as a whole, which was decoded all the same
                worst, rounds = loop.worst, loop.rounds
                (port,) = node.ports.values()
                client = Client(loop, port)
            assert worst <= CALLS_MAX, (path, known, worst)
            asked += rounds > 1
        client.socket.close()

    counted(tmp_path, test, **{"auto.create.topics.enable": "false"})
    assert asked == len(frames)


def now_batch(count: int, codec: Codec, timestamp: int) -> bytearray:
    """Equal records, whose offsets a log would set right; few bytes on the wire."""
    section = bytearray()
    _records.write(section, [(timestamp, None, None, ())] * min(count, 1000), timestamp)
    data = bytes(section) * (count // min(count, 1000))
    header = BatchHeader(0, 0, -1, MAGIC, 0, codec, count - 1, timestamp, timestamp, -1, -1, -1, count)
    return assemble(header, compress(codec, data))


def produced(batches: list[Any]) -> bytes:
    partitions = [ProducePartition(number % PARTITIONS, data) for number, data in enumerate(batches)]
    asked = ProduceRequest(None, 1, 30_000, [ProduceTopic(TOPIC, None, partitions)])
    return framed(produce.encode_request(9, 1, "c", asked))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_records_of_a_bomb_are_gone_through_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: Codec
) -> None:
    """Refused ones, for their timestamps, and good ones, in which a timestamp is looked up."""
    main = threading.get_ident()
    own_records_max = 100  # the node reads its metadata on the loop, and that is seen where it runs interpreted
    seen: dict[bool, int] = {True: 0, False: 0}

    def noted(name: str, count_at: int) -> None:
        real = getattr(_records, name)

        def call(*arguments: Any) -> Any:
            on_loop = threading.get_ident() == main
            if arguments[count_at] > own_records_max:
                seen[on_loop] = max(seen[on_loop], arguments[count_at])
            return real(*arguments)

        monkeypatch.setattr(_records, name, call)

    for name in ("scan", "scan_unlocked", "refused", "first_at"):
        noted(name, 3)
    noted("renumber", 4)
    count = 300_000
    now = SystemClock().now_ms()
    bad, good = now_batch(count, codec, 1 << 42), now_batch(count, codec, now)
    looked_up = {"partition_index": 0, "timestamp": now, "current_leader_epoch": -1}
    asked = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": TOPIC, "partitions": [looked_up]}]}

    async def test(node: Any, client: Client) -> None:
        await client.ask(produced([bad]))
        assert node.replicas.find(TOPIC, 0).log.log_end_offset == 0
        assert seen == {True: 0, False: count}
        await client.ask(produced([good]))
        assert node.replicas.find(TOPIC, 0).log.log_end_offset == count
        seen[False] = 0
        await client.ask(request(ApiKey.LIST_OFFSETS, 7, asked))
        assert seen == {True: 0, False: count}

    counted(tmp_path, test, **{"message.max.bytes": "10000000"})


def test_what_is_inline_is_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other side: a batch of ordinary size is not worth a thread."""
    inline = 0
    real = _records.scan

    def scan(*arguments: Any) -> Any:
        nonlocal inline
        inline = max(inline, arguments[3])
        return real(*arguments)

    monkeypatch.setattr(_records, "scan", scan)
    now = SystemClock().now_ms()

    async def test(node: Any, client: Client) -> None:
        await client.ask(produced([now_batch(1000, Codec.ZSTD, now)]))
        assert inline == 1000 <= INLINE_RECORDS_MAX

    counted(tmp_path, test)


def test_many_batches_in_one_produce(tmp_path: Path) -> None:
    data = build_batch([(SystemClock().now_ms(), None, b"v", ())])

    async def test(node: Any, client: Client) -> None:
        worst, rounds = await client.ask(produced([data] * ROWS))
        assert worst <= CALLS_MAX and rounds > 10
        ends = [node.replicas.find(TOPIC, number).log.log_end_offset for number in range(PARTITIONS)]
        assert sum(ends) == ROWS

    counted(tmp_path, test)


def test_a_large_change_of_the_metadata(tmp_path: Path) -> None:
    """A topic of thousands of partitions is decided, recorded, published, and deleted again."""
    create = [{"name": "large", "num_partitions": ROWS, "replication_factor": 1}]
    delete = [{"name": "large"}]

    async def test(node: Any, client: Client) -> None:
        worst, rounds = await client.ask(request(ApiKey.CREATE_TOPICS, 5, {"topics": create, "timeout_ms": 60_000}))
        assert len(node.replicas.by_name["large"]) == ROWS
        assert worst <= CALLS_MAX and rounds > 10, worst
        worst, rounds = await client.ask(request(ApiKey.DELETE_TOPICS, 6, {"topics": delete, "timeout_ms": 60_000}))
        assert "large" not in node.replicas.by_name
        assert worst <= CALLS_MAX and rounds > 10, worst

    counted(tmp_path, test)


def test_pipelined_requests_of_one_client(tmp_path: Path) -> None:
    frame = request(ApiKey.METADATA, 12, {"topics": None, "allow_auto_topic_creation": False})

    async def test(node: Any, client: Client) -> None:
        worst, rounds = await client.ask(frame * 2000, answers=2000)
        assert worst <= CALLS_MAX and rounds > 10

    counted(tmp_path, test)


def test_a_bystander_beside_many_who_pipeline(tmp_path: Path) -> None:
    """Its single request is answered before the backlog of the others."""
    frame = request(ApiKey.METADATA, 12, {"topics": None, "allow_auto_topic_creation": False})
    probe = request(ApiKey.API_VERSIONS, 3, {"client_software_name": "b", "client_software_version": "1"})

    async def test(node: Any, client: Client) -> None:
        (port,) = node.ports.values()
        crowd = [Client(client.loop, port) for _ in range(100)]
        await asyncio.sleep(0)
        for each in crowd:
            each.socket.sendall(frame * 50)
        await client.ask(probe)  # waits for what all of them began with at most
        stats = node.metrics.api(ApiKey.METADATA)
        worst, _ = await client.ask(probe)
        assert worst <= CALLS_MAX
        assert sum(stats.versions.values()) < 100 * 50
        for each in crowd:
            each.socket.close()

    counted(tmp_path, test)
