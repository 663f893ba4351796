"""The share coordinator over the wire, on a node that is alone: every API, restarts, pruning, deleted topics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.model import SHARE_STATE_TOPIC, uuid_to_base64
from ottla.protocol.messages import ApiKey
from ottla.server.node import Node
from tests.unit.server.node import Client, running

SETTINGS = {"share.coordinator.state.topic.num.partitions": "2"}
E = ErrorCode


class Session:
    """A broker that leads partition 0 and 1 of the topic "t", to the share group "g"."""

    def __init__(self, node: Node, client: Client) -> None:
        self.node, self.client = node, client

    @property
    def topic_id(self) -> Any:
        topic = self.node.image.topic("t")
        assert topic is not None
        return topic.id

    async def find(self, key: str, version: int = 6) -> Any:
        asked = {"key_type": 2, "coordinator_keys": [key]}
        return (await self.client.ask(ApiKey.FIND_COORDINATOR, version, asked))["coordinators"][0]

    async def ask(self, api: ApiKey, version: int = 0, /, number: int = 0, group: str = "g", **row: Any) -> Any:
        topics = [{"topic_id": self.topic_id, "partitions": [{"partition": number, **row}]}]
        answer = await self.client.ask(api, version, {"group_id": group, "topics": topics})
        return answer["results"][0]["partitions"][0]

    async def initialize(self, state_epoch: int = 0, start_offset: int = 0, number: int = 0) -> int:
        answer = await self.ask(
            ApiKey.INITIALIZE_SHARE_GROUP_STATE, number=number, state_epoch=state_epoch, start_offset=start_offset
        )
        return int(answer["error_code"])

    async def read(self, leader_epoch: int = 0) -> Any:
        return await self.ask(ApiKey.READ_SHARE_GROUP_STATE, leader_epoch=leader_epoch)

    async def write(self, *batches: tuple[int, int, int, int], start_offset: int = -1, **more: int) -> int:
        names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
        rows = [dict(zip(names, each, strict=True)) for each in batches]
        row = {"state_epoch": 0, "leader_epoch": 0, "start_offset": start_offset, "state_batches": rows, **more}
        answer = await self.ask(ApiKey.WRITE_SHARE_GROUP_STATE, 1, **row)
        return int(answer["error_code"])

    async def summary(self) -> Any:
        return await self.ask(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 1, leader_epoch=0)

    def log(self) -> Any:
        """The log of the one partition of the coordinator's topic which has records."""
        logs = [self.node.replicas.find(SHARE_STATE_TOPIC, number).log for number in range(2)]
        (found,) = [log for log in logs if log.log_end_offset]
        return found


def play(path: Path, *scenes: Callable[[Session], Coroutine[Any, Any, None]], **settings: str) -> None:
    """Each scene on a node that was started again."""

    async def run() -> None:
        for number, scene in enumerate(scenes, start=1):
            async with running(str(path), {**SETTINGS, **settings}, seed=number) as node:
                client = await Client.connect(node)
                session = Session(node, client)
                if number == 1:
                    await client.create("t", partitions=2)
                    await session.find(f"g:{uuid_to_base64(session.topic_id)}:0")
                await asyncio.wait_for(scene(session), 20)
                client.close()

    asyncio.run(run())


def batches(answer: Any) -> list[tuple[int, ...]]:
    return [tuple(each.values()) for each in answer["state_batches"]]


def test_what_was_written_is_read_after_a_restart(tmp_path: Path) -> None:
    async def write(session: Session) -> None:
        assert await session.initialize(start_offset=5) == E.none
        assert await session.write((5, 9, 0, 1), (12, 12, 2, 1)) == E.none
        assert await session.write((5, 6, 2, 1), start_offset=7, delivery_complete_count=1) == E.none
        assert session.log().log_end_offset == 3

    async def read(session: Session) -> None:
        answer = await session.read()
        while answer["error_code"] == E.coordinator_load_in_progress:
            answer = await session.read()
        assert (answer["error_code"], answer["state_epoch"], answer["start_offset"]) == (E.none, 0, 7)
        assert batches(answer) == [(7, 9, 0, 1), (12, 12, 2, 1)]
        summary = await session.summary()
        assert (summary["start_offset"], summary["delivery_complete_count"], summary["leader_epoch"]) == (7, 1, 0)

    play(tmp_path, write, read)


def test_older_epochs_are_fenced(tmp_path: Path) -> None:
    async def scene(session: Session) -> None:
        assert (await session.read())["error_code"] == E.invalid_request  # nobody has initialized it
        assert await session.initialize(state_epoch=3) == E.none
        assert (await session.read(leader_epoch=2))["error_code"] == E.none
        assert await session.write(leader_epoch=1, state_epoch=3) == E.fenced_leader_epoch
        assert await session.write(leader_epoch=2, state_epoch=2) == E.fenced_state_epoch
        assert await session.initialize(state_epoch=2) == E.fenced_state_epoch
        assert await session.initialize(number=7) == E.unknown_topic_or_partition
        assert await session.initialize(number=-1) == E.invalid_request

    play(tmp_path, scene)


def test_what_a_snapshot_says_again_is_pruned(tmp_path: Path) -> None:
    async def write(session: Session) -> None:
        await session.initialize()
        for offset in range(20):
            assert await session.write((offset, offset, 2, 1), start_offset=offset + 1) == E.none
        while not session.log().log_start_offset:  # noqa: ASYNC110  nothing says so
            await asyncio.sleep(0.001)

    async def read(session: Session) -> None:
        while (answer := await session.read())["error_code"]:
            assert answer["error_code"] == E.coordinator_load_in_progress
        assert (answer["start_offset"], batches(answer)) == (20, [])

    play(
        tmp_path,
        write,
        read,
        **{
            "share.coordinator.snapshot.update.records.per.snapshot": "5",
            "share.coordinator.state.topic.prune.interval.ms": "20",
        },
    )


def test_deleted_state_has_to_be_initialized_again(tmp_path: Path) -> None:
    async def scene(session: Session) -> None:
        await session.initialize(start_offset=4)
        assert (await session.ask(ApiKey.DELETE_SHARE_GROUP_STATE))["error_code"] == E.none
        assert (await session.ask(ApiKey.DELETE_SHARE_GROUP_STATE))["error_code"] == E.none
        assert (await session.summary())["start_offset"] == -1
        assert (await session.read())["error_code"] == E.invalid_request

    play(tmp_path, scene)


def test_the_state_of_a_deleted_topic_goes_with_it(tmp_path: Path) -> None:
    async def scene(session: Session) -> None:
        await session.initialize()
        log, coordinator = session.log(), session.node.share_coordinator
        gone = {"topics": [{"name": "t", "topic_id": None}], "timeout": 1000}
        assert not (await session.client.ask(ApiKey.DELETE_TOPICS, 6, gone))["responses"][0]["error_code"]
        while log.log_end_offset < 2:  # noqa: ASYNC110  nothing says so
            await asyncio.sleep(0.001)
        assert coordinator.known() == 0

    play(tmp_path, scene)


def test_requests_without_rows_have_empty_answers(tmp_path: Path) -> None:
    async def scene(session: Session) -> None:
        row = {"topic_id": session.topic_id, "partitions": [{"partition": 0}]}
        bare = {"topic_id": session.topic_id, "partitions": []}
        for api in APIS:
            for values in ({"group_id": "", "topics": [row]}, {"group_id": "g", "topics": []}):
                assert (await session.client.ask(api, 0, values))["results"] == []
            answer = await session.client.ask(api, 0, {"group_id": "g", "topics": [row, bare]})
            assert bool(answer["results"]) == (api is ApiKey.INITIALIZE_SHARE_GROUP_STATE)

    play(tmp_path, scene)


APIS = (
    ApiKey.INITIALIZE_SHARE_GROUP_STATE, ApiKey.READ_SHARE_GROUP_STATE, ApiKey.WRITE_SHARE_GROUP_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
)  # fmt: skip


@pytest.mark.parametrize(
    "key",
    [
        "",
        "g",
        "g:0",
        "g:x:0",
        ":AAAAAAAAAAAAAAAAAAAAAA:0",
        " :AAAAAAAAAAAAAAAAAAAAAA:0",
        "g:AAAAAAAAAAAAAAAAAAAAAA:",
        "g:AAAAAAAAAAAAAAAAAAAAAA:x",
        "g:AAAAAAAAAAAAAAAAAAAAAA:2147483648",
    ],
)
def test_what_is_no_share_partition_has_no_coordinator(tmp_path: Path, key: str) -> None:
    async def scene(session: Session) -> None:
        assert (await session.find(key))["error_code"] == E.invalid_request
        good = await session.find("a:b:AAAAAAAAAAAAAAAAAAAAAA:+1")
        assert (good["error_code"], good["node_id"]) == (E.none, session.node.node_id)
        assert (await session.find("g:AAAAAAAAAAAAAAAAAAAAAA:1", version=5))["error_code"] == E.invalid_request

    play(tmp_path, scene)


def test_nobody_is_coordinator_before_the_topic_is_there(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(str(tmp_path), SETTINGS) as node:
            client = await Client.connect(node)
            await client.create("t")
            session = Session(node, client)
            for api in APIS:
                row = await session.ask(api)
                assert row["error_code"] == E.not_coordinator
                assert row["error_message"].endswith("share group state: This is not the correct coordinator.") or (
                    api is ApiKey.READ_SHARE_GROUP_STATE_SUMMARY
                )
            client.close()

    asyncio.run(run())
