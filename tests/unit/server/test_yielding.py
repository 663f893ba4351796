"""Requests with many items yield to the event loop: others are served then, and never see a change half done."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ottla.controller.decision import ITEMS_PER_STEP
from ottla.model import ZERO_UUID
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.server.connections.long_answers import ROWS_PER_STEP
from ottla.server.handlers.configs.describe_configs import RESOURCES_AT_ONCE_MAX
from ottla.server.node import Node
from ottla.server.replicas.replica_manager import DELETIONS_PER_STEP, LOGS_PER_STEP
from ottla.steps import at_once
from tests.unit.server.node import Client, batch, running

COUNT = 300


class Turns:
    """Counts the turns that somebody else gets, and looks at the node in each."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.count = 0

    async def look(self) -> None:
        while True:
            assert set(self.node.replicas.by_name) == set(self.node.image.topics_by_name)
            assert not self.node.replicas.missing
            self.count += 1
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def turns_of(node: Node) -> AsyncIterator[Turns]:
    turns = Turns(node)
    task = asyncio.create_task(turns.look())
    try:
        yield turns
        assert not task.done() or task.result()
    finally:
        task.cancel()


def creation(names: list[str], partitions: int = 1) -> dict[str, Any]:
    row = {"num_partitions": partitions, "replication_factor": 1, "assignments": (), "configs": ()}
    return {"topics": [{"name": name, **row} for name in names], "timeout": 1000, "validate_only": False}


def deletion(names: list[str]) -> dict[str, Any]:
    return {"topics": [{"name": name, "topic_id": ZERO_UUID} for name in names], "timeout": 1000}


NAMES = [f"t{number}" for number in range(COUNT)]


class PerTurn:
    """Counts calls of a method of the log manager by the turn in which they come."""

    def __init__(self, turns: Turns, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: Counter[int] = Counter()
        logs = turns.node.logs
        real = getattr(logs, method)

        def counted(*arguments: Any, **more: Any) -> Any:
            self.calls[turns.count] += 1
            return real(*arguments, **more)

        monkeypatch.setattr(logs, method, counted)


@pytest.mark.parametrize("request_of", [creation(NAMES), creation(["t"], COUNT)], ids=["topics", "partitions"])
def test_logs_are_created_and_deleted_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_of: dict[str, Any]
) -> None:
    async def test() -> None:
        async with running(str(tmp_path)) as node, turns_of(node) as turns:
            client = await Client.connect(node)
            made = PerTurn(turns, "create", monkeypatch)
            answer = await client.ask(ApiKey.CREATE_TOPICS, 7, request_of)
            names = [row["name"] for row in answer["topics"] if not row["error_code"]]
            assert len(names) == len(request_of["topics"])
            assert made.calls.total() == COUNT and max(made.calls.values()) <= LOGS_PER_STEP
            deleted = PerTurn(turns, "schedule_deletion", monkeypatch)
            answer = await client.ask(ApiKey.DELETE_TOPICS, 6, deletion(names))
            assert all(not row["error_code"] for row in answer["responses"])
            assert deleted.calls.total() == COUNT and max(deleted.calls.values()) <= DELETIONS_PER_STEP
            assert sum(name.endswith("-delete") for name in os.listdir(tmp_path)) == COUNT
            client.close()

    asyncio.run(test())


def test_a_topic_deleted_and_made_again_in_one_breath(tmp_path: Path) -> None:
    """The controller takes both decisions together: the directory must be free again before the new log wants it."""

    async def test() -> None:
        async with running(str(tmp_path)) as node, turns_of(node):
            client, other = await Client.connect(node), await Client.connect(node)
            await client.ask(ApiKey.CREATE_TOPICS, 7, creation(NAMES[:40]))
            before = {name: node.replicas.ids[name] for name in NAMES[:40]}
            for name in NAMES[:40]:
                assert not (await client.produce(name, batch()))["error_code"]
            client.send(ApiKey.DELETE_TOPICS, 6, deletion(NAMES[:40]))
            other.send(ApiKey.CREATE_TOPICS, 7, creation(NAMES[:40]))
            await client.receive(ApiKey.DELETE_TOPICS, 6)
            answer = await other.receive(ApiKey.CREATE_TOPICS, 7)
            assert not any(row["error_code"] for row in answer["topics"])
            for name in NAMES[:40]:
                log = node.replicas.find(name, 0).log
                assert (log.log_end_offset, log.topic_id) == (0, node.replicas.ids[name])
                assert log.topic_id != before[name]
            client.close()
            other.close()

    asyncio.run(test())


def test_decisions_and_answers_yield(tmp_path: Path) -> None:
    everything = {"topics": None, "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
    asked = {"include_synonyms": True, "include_documentation": False}
    resource = {"resource_type": 2, "configuration_keys": None}
    entry = {"name": "retention.ms", "config_operation": 0, "value": "1000"}
    described = {"resources": [{**resource, "resource_name": name} for name in NAMES], **asked}
    altered = {"resources": [{"resource_type": 2, "resource_name": name, "configs": [entry]} for name in NAMES]}
    grown = {"topics": [{"name": name, "count": 2, "assignments": None} for name in NAMES], "timeout": 1000}
    by_items, by_rows = COUNT // ITEMS_PER_STEP, COUNT // ROWS_PER_STEP
    requests = [
        (ApiKey.CREATE_TOPICS, 7, creation([f"a/{name}" for name in NAMES]), by_items + by_rows),
        (ApiKey.DESCRIBE_CONFIGS, 4, described, COUNT // RESOURCES_AT_ONCE_MAX + by_rows),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {**altered, "validate_only": False}, by_items + by_rows),
        (ApiKey.CREATE_PARTITIONS, 3, {**grown, "validate_only": False}, by_items + by_rows),
        (ApiKey.METADATA, 12, everything, COUNT // 256),
    ]

    async def test() -> None:
        async with running(str(tmp_path)) as node, turns_of(node) as turns:
            client = await Client.connect(node)
            await client.ask(ApiKey.CREATE_TOPICS, 7, creation(NAMES))
            for key, version, values, least in requests:
                before = turns.count
                answer = await client.ask(key, version, values)
                assert turns.count - before >= least > 0, key
                (rows,) = (value for name, value in answer.items() if isinstance(value, list) and name != "brokers")
                assert len(rows) == COUNT
            client.close()

    asyncio.run(test())


CONFIGS = [{"name": "a", "value": "b", "config_source": 5, "synonyms": [{"name": "s", "value": None, "source": 4}]}] * 3
NAMED = {"error_code": 3, "error_message": "why"}


@pytest.mark.shared_values
@pytest.mark.parametrize(
    ("key", "versions", "rows", "row"),
    [
        (ApiKey.CREATE_TOPICS, range(2, 8), "topics", {"name": "n", "topic_id": UUID(int=5), **NAMED}),
        (ApiKey.DELETE_TOPICS, range(1, 7), "responses", {"name": "n", "topic_id": UUID(int=5), **NAMED}),
        (ApiKey.CREATE_PARTITIONS, range(4), "results", {"name": "n", **NAMED}),
        (ApiKey.DESCRIBE_CONFIGS, range(1, 5), "results", {"resource_type": 2, "resource_name": "n"}),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, range(2), "responses", {"resource_type": 2, **NAMED}),
    ],
)
def test_a_response_in_steps_is_the_same(key: ApiKey, versions: range, rows: str, row: dict[str, Any]) -> None:
    for version in versions:
        for count in (0, 1, 126, 127, 200):
            several = [{**row, **({} if number % 3 else {"configs": CONFIGS})} for number in range(count)]
            values = {rows: several}
            steps = messages.encode_response_in_steps(key, version, 7, values)
            assert at_once(steps) == messages.encode_response(key, version, 7, values)


@pytest.mark.parametrize(
    ("key", "version", "rows"),
    [(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, "responses"), (ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, "topics")],
)
@pytest.mark.parametrize("message", [None, "", "why", "é" * 63, "x" * 20_000])
def test_a_response_in_steps_may_begin_with_a_message(
    key: ApiKey, version: int, rows: str, message: str | None
) -> None:
    values = {"error_code": 3, "error_message": message, rows: [{"name": f"t{n}", "partitions": []} for n in range(40)]}
    steps = messages.encode_response_in_steps(key, version, 7, values)
    assert at_once(steps) == messages.encode_response(key, version, 7, values)
