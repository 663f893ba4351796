"""What long requests leave behind: freed in steps, and all of it, without the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ottla import allocators
from ottla.drivers.cooperative import run_yielding
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol import reader
from ottla.protocol.messages import ApiKey
from ottla.server import api
from ottla.server.connections.incremental_free import COST_AT_ONCE, free_in_steps, without_frames
from ottla.server.handlers import TABLE
from tests import kio_oracle
from tests.unit.server import stub
from tests.unit.server.counting import Client, CountingLoop, arrays, filled, request
from tests.unit.server.node import running

ROWS = 7_000
BLOCKS_MAX = 4_200
"""Blocks of memory that are taken or freed between two looks at the sockets; each row has several."""


class Row:
    """Notes when it is freed."""

    freed = 0

    def __del__(self) -> None:
        Row.freed += 1


@dataclass(frozen=True, slots=True)
class Entity:
    rows: tuple[Any, ...]


@pytest.mark.parametrize(
    "of", [list, tuple, lambda rows: {"rows": rows}, lambda rows: Entity(tuple(rows)), lambda rows: [{"a": [rows]}]]
)
def test_rows_are_freed_in_steps(of: Any) -> None:
    Row.freed = 0
    held = [of([Row() for _ in range(10 * COST_AT_ONCE)])]
    before, steps = 0, 0
    for _ in free_in_steps(held):
        assert Row.freed - before <= COST_AT_ONCE + 1
        before, steps = Row.freed, steps + 1
    assert steps >= 9 and Row.freed == 10 * COST_AT_ONCE


def test_what_others_hold_stays() -> None:
    Row.freed = 0
    shared = [Row()]
    rows = [{"configs": shared} for _ in range(2000)]
    held: list[Any] = [rows]
    for _ in free_in_steps(held):
        pass
    assert len(rows) == 2000 and Row.freed == 0  # `rows` is held here
    held = [[{"configs": shared} for _ in range(2000)]]
    for _ in free_in_steps(held):
        pass
    assert Row.freed == 0


def test_an_error_forgets_the_frames_that_it_came_through() -> None:
    def refuse(asked: Any) -> None:
        try:
            raise ValueError
        except ValueError as error:
            raise KafkaError(ErrorCode.invalid_request) from error

    class Request:
        pass

    asked = Request()
    is_there = weakref.ref(asked)
    try:
        refuse(asked)
    except KafkaError as error:
        caught = error
    del asked
    assert is_there() is not None
    without_frames(caught)
    assert caught.__traceback__ is None and is_there() is None


class CountingBlocks(CountingLoop):
    """Counts the blocks of memory that a round takes or frees, from `begin` on.

    Python walks all of its memory to count them, which is large after the tests before: once a round of those that
    count.
    """

    _blocks: int | None = None

    def begin(self) -> None:
        self._blocks = sys.getallocatedblocks()

    def end(self) -> None:
        self._blocks = None

    def _run_once(self) -> None:
        asyncio.SelectorEventLoop._run_once(self)  # type: ignore[attr-defined]
        self.rounds += 1
        if self._blocks is not None:
            now = sys.getallocatedblocks()
            self.worst = max(self.worst, abs(now - self._blocks))
            self._blocks = now


@pytest.fixture
def without_collector(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(reader, "UUIDS_MAX", 1)  # ids that are remembered are nobody's request
    monkeypatch.setattr(allocators, "begin_apart", lambda: None)  # of objects from malloc only the end is counted
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def counted(tmp_path: Path, test: Any) -> None:
    loop = CountingBlocks()

    async def run() -> None:
        async with running(str(tmp_path), {"auto.create.topics.enable": "false"}) as node:
            (port,) = node.ports.values()
            client = Client(loop, port)
            await test(node, client)
            client.socket.close()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(run())


async def ask_counted(client: Client, frame: bytes) -> tuple[int, int]:
    """(most blocks taken or freed between two looks at the sockets, looks) until the request was answered."""
    client.loop.begin()
    try:
        return await client.ask(frame)
    finally:
        client.loop.end()


UNCOUNTED = {ApiKey.PRODUCE, ApiKey.FETCH}
"""Their rows are few for their bytes, or kept in a session."""
LONG = [
    (key, path)
    for key in sorted(TABLE.keys() - UNCOUNTED)
    if (
        path := next(
            (each for each in arrays(kio_oracle.request_class(key, TABLE[key].max_version)) if len(each) == 1), None
        )
    )
    is not None
]


@pytest.mark.parametrize(("key", "path"), LONG, ids=lambda each: ApiKey(each).name.lower() if each in TABLE else "")
def test_a_refusal_is_made_and_freed_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_collector: None, key: int, path: tuple[str, ...]
) -> None:
    """Every API with an array: its answer has a row for each of the request, or reports it once."""
    version = TABLE[key].max_version
    loaded = api.load(key)
    refused = 0

    async def refuse(context: Any, request: Any) -> Any:
        nonlocal refused
        refused += 1
        raise KafkaError(ErrorCode.invalid_request, "refused by the test")

    frame = request(key, version, filled(kio_oracle.request_class(key, version), path, False, 1))
    long = request(key, version, longer(filled(kio_oracle.request_class(key, version), path, False, 1), path))

    async def test(node: Any, client: Client) -> None:
        monkeypatch.setattr(loaded, "handle", refuse)
        await client.ask(frame)  # what is made once
        await asyncio.sleep(0.01)
        before = sys.getallocatedblocks()
        worst, rounds = await ask_counted(client, long)
        assert worst <= BLOCKS_MAX and rounds > 10, (worst, rounds)
        # What was asked for is not there any more.
        await stub.until(lambda: sys.getallocatedblocks() - before < ROWS // 2)

    counted(tmp_path, test)
    assert refused == 2


def longer(values: Any, path: tuple[str, ...]) -> Any:
    """`values` with ROWS items in the array at `path`."""
    *outer, name = path
    inner = values
    for each in outer:
        inner = inner[each]
    rows = inner[name]
    inner[name] = [rows[number % len(rows)] for number in range(ROWS)]
    return values


def test_create_topics_is_refused_in_steps_and_leaves_nothing(tmp_path: Path, without_collector: None) -> None:
    """Too many, which the controller says after a look at all of them."""
    rows, blocks_max = 20_000, 12_000
    topics = [{"name": f"none-{number}", "num_partitions": 1, "replication_factor": 1} for number in range(rows)]
    asked = {"topics": topics, "timeout": 1000, "validate_only": True}
    frame = request(ApiKey.CREATE_TOPICS, 7, asked)
    few = request(ApiKey.CREATE_TOPICS, 7, {**asked, "topics": topics[:300]})

    async def test(node: Any, client: Client) -> None:
        await client.ask(few)
        before = sys.getallocatedblocks()
        worst, rounds = await ask_counted(client, frame)
        assert worst <= blocks_max and rounds > 10, (worst, rounds)
        # What was asked for is not there any more.
        await stub.until(lambda: sys.getallocatedblocks() - before < rows // 2)

    counted(tmp_path, test)


def test_an_answer_that_a_handler_made_is_freed_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_collector: None
) -> None:
    def answer(rows: int) -> dict[str, Any]:
        error = {"error_code": 0, "error_message": None}
        names = [{"entity_type": "client-id", "entity_name": f"c{number}"} for number in range(rows)]
        return {"entries": [{**error, "entity": [name]} for name in names], "throttle_time": 0}

    made: list[dict[str, Any]] = []

    async def controller(context: Any, asked: Any) -> dict[str, Any]:
        return made.pop()

    frame = request(ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": [], "validate_only": False})

    async def test(node: Any, client: Client) -> None:
        made.append(answer(300))
        await client.ask(frame)
        made.append(answer(ROWS))
        await asyncio.sleep(0.01)
        worst, rounds = await ask_counted(client, frame)
        assert worst <= BLOCKS_MAX and rounds > 10, (worst, rounds)

    api.load(ApiKey.ALTER_CLIENT_QUOTAS)
    monkeypatch.setattr("ottla.server.handlers.configs.alter_client_quotas.forwarded", controller)
    counted(tmp_path, test)
    assert not made


FORWARDED = [
    (ApiKey.ALTER_CLIENT_QUOTAS, ("entries",)),
    (ApiKey.DELETE_TOPICS, ("topics",)),
    (ApiKey.CREATE_PARTITIONS, ("topics",)),
    (ApiKey.ELECT_LEADERS, ("topic_partitions",)),
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, ("topics",)),
    (ApiKey.LIST_PARTITION_REASSIGNMENTS, ("topics",)),
]


@pytest.mark.parametrize(
    ("key", "path"), FORWARDED, ids=lambda each: ApiKey(each).name.lower() if each in TABLE else ""
)
def test_what_was_sent_on_to_the_controller_is_freed_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_collector: None, key: int, path: tuple[str, ...]
) -> None:
    """The request as mappings: no handler holds it any longer than `to_controller`."""
    version = TABLE[key].max_version
    api.load(key)
    held: list[int] = []

    async def watched(steps: Any) -> Any:
        if steps.__name__ == "free_in_steps":
            held.append(sys.getrefcount(steps.gi_frame.f_locals["held"][0]))
        return await run_yielding(steps)

    monkeypatch.setattr("ottla.server.metadata.forwarding.run_yielding", watched)

    async def test(node: Any, client: Client) -> None:
        await client.ask(request(key, version, filled(kio_oracle.request_class(key, version), path, False, 1)))

    counted(tmp_path, test)
    assert held == [2], held  # the list, and the argument of `getrefcount`


def test_a_fetch_of_many_partitions_is_made_and_freed_in_steps(tmp_path: Path, without_collector: None) -> None:
    def asked(partitions: int) -> bytes:
        rows = [{"partition": number, "fetch_offset": 0, "partition_max_bytes": 0} for number in range(partitions)]
        values = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1000, "topics": [{"topic": "none", "partitions": rows}]}
        return request(ApiKey.FETCH, 12, values)

    async def test(node: Any, client: Client) -> None:
        await client.ask(asked(300))
        worst, rounds = await ask_counted(client, asked(5 * ROWS))
        assert worst <= BLOCKS_MAX and rounds > 10, (worst, rounds)

    counted(tmp_path, test)
