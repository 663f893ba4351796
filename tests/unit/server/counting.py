"""Counts what a node does between two looks at its sockets, and makes requests in which an array is long."""

from __future__ import annotations

import asyncio
import cProfile
import functools
import pkgutil
import socket
import struct
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple
from uuid import UUID

from ottla import coordinator as coordinator_package
from ottla.model import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from tests.unit.server.node import running

ROWS = 3000
CALLS_MAX = 28_000
"""Calls of Python and C functions between two looks at the sockets: some two milliseconds. A loop over all rows that
does not yield makes ten calls for each, in decoding, handling or encoding."""

TOPIC = "t"
PARTITIONS = 8
KNOWN = {"name", "topic", "topic_name", "resource_name"}

FEW_SHARDS = {
    "offsets.topic.num.partitions": str(PARTITIONS),
    "transaction.state.log.num.partitions": str(PARTITIONS),
    "share.coordinator.state.topic.num.partitions": str(PARTITIONS),
}
"""Kafka's default is 50 for each: 150 logs are made and closed again with every node."""


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts the calls of each of its rounds, the greatest number of which is `worst`."""

    def __init__(self) -> None:
        super().__init__()
        self.worst = 0
        self.rounds = 0
        self.where = ""
        """The functions that were called most often in the first round that had made too many calls."""
        self._profile: Calls | cProfile.Profile = Calls() if sys.version_info >= (3, 12) else cProfile.Profile()

    def begin(self) -> None:
        """Count from here on what this thread calls."""
        self._profile.enable()

    def end(self) -> None:
        self._profile.disable()

    def restart(self) -> None:
        self.worst = self.rounds = 0
        self.where = ""

    def _run_once(self) -> None:
        super()._run_once()  # type: ignore[misc]
        self.rounds += 1
        calls = 0
        for each in self._profile.getstats():  # a comprehension's calls would be counted
            calls += each.callcount
        if calls > CALLS_MAX and not self.where:
            most = sorted(self._profile.getstats(), key=lambda each: -each.callcount)
            self.where = "".join(f"{each.callcount} calls of {each.code}\n" for each in most[:8])
        self.worst = max(self.worst, calls)
        self._profile.clear()


class Calls:
    """What `CountingLoop` uses of `cProfile.Profile`, which since Python 3.12 counts the calls of other threads too. It
    counts in C, and costs a tenth of this."""

    def __init__(self) -> None:
        self._found: Counter[Any] = Counter()

    def enable(self) -> None:
        sys.setprofile(self._count)

    def disable(self) -> None:
        sys.setprofile(None)

    def getstats(self) -> list[Called]:
        return [Called(code, count) for code, count in list(self._found.items())]

    def clear(self) -> None:
        self._found.clear()

    def _count(self, frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            self._found[frame.f_code if event == "call" else argument] += 1


class Called(NamedTuple):
    """As an entry of `cProfile.Profile.getstats`."""

    code: Any
    callcount: int


@functools.cache
def kinds(cls: Any) -> tuple[tuple[Any, Any], ...]:
    """Fields of a class of kio, and what each of them is. Kept: a long request has thousands of rows of a class."""
    from kio.serial._introspect import classify_field

    return tuple((field, classify_field(field)) for field in fields(cls))


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
        name = field.name.removesuffix("_")  # kio's `id_`
        if isinstance(kind, EntityTupleField):
            values[name] = [filled(kind.type_, long, known, each or number, here) for each in range(count)]
        elif isinstance(kind, EntityField):
            if field.default is MISSING or long[: len(here)] == here:
                values[name] = filled(kind.type_, long, known, number, here)
        elif kind.is_array:
            values[name] = [scalar(field, known, each or number) for each in range(count)]
        elif "tag" not in field.metadata:
            values[name] = scalar(field, known, number)
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
        self.loop.restart()
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
        async with running(str(tmp_path), {"num.partitions": str(PARTITIONS), **FEW_SHARDS, **settings}) as node:
            (port,) = node.ports.values()
            client = Client(loop, port)
            create = [{"name": TOPIC, "num_partitions": PARTITIONS, "replication_factor": 1}]
            await client.ask(request(ApiKey.CREATE_TOPICS, 5, {"topics": create, "timeout": 1000}))
            coordinator = {"key_type": 0, "coordinator_keys": ["g"]}
            await client.ask(request(ApiKey.FIND_COORDINATOR, 4, coordinator))
            coordinator = {"key_type": 1, "coordinator_keys": ["x"]}
            await client.ask(request(ApiKey.FIND_COORDINATOR, 4, coordinator))
            coordinator = {"key_type": 2, "coordinator_keys": ["g:AAAAAAAAAAAAAAAAAAAAAA:0"]}
            await client.ask(request(ApiKey.FIND_COORDINATOR, 6, coordinator))
            await loaded(node)
            loop.begin()
            try:
                await test(node, client)
            finally:
                loop.end()
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
