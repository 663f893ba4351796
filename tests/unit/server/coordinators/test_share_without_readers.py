"""What becomes of a share-partition's records while nobody reads it, and of those that retention deletes while they
wait: cases in which no fetch comes that would find them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ottla.drivers.replication.share_partitions import LeftBackoffs
from ottla.errors import ErrorCode
from ottla.protocol.internal.share_records import SharePartitionKey
from ottla.protocol.messages import ApiKey
from ottla.server.node import Node
from tests.unit.server.coordinators.test_share_fetch import ACCEPT, RELEASE, Acquired, Member, play
from tests.unit.server.coordinators.test_share_waiting import configure, drain, in_ms, write

E = ErrorCode
LONG_MS = 1_000_000_000
LOCKS = {"group.share.record.lock.duration.ms": "30000"}


async def delete_before(member: Member, offset: int) -> None:
    asked = {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "offset": offset}]}], "timeout": 5000}
    answer = await member.client.ask(ApiKey.DELETE_RECORDS, 2, asked)
    assert not answer["topics"][0]["partitions"][0]["error_code"], answer


async def until(look: Callable[[], bool]) -> None:
    for _ in range(1500):
        if look():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it did not come to be")


def test_a_key_is_free_when_its_waiting_record_is_deleted(tmp_path: Path) -> None:
    """The one behind it waited for as long as the deleted one was to."""

    async def scene(node: Node, member: Member) -> None:
        await drain(member)
        await configure(member, delivery_time_header="at", order="key")
        await write(member, (b"a", in_ms(LONG_MS)), (b"a", None), (b"b", None))
        assert await member.fetch(max_wait=1000) == [(12, 12, 1)]
        await delete_before(member, 11)
        assert await member.fetch(max_wait=1000) == [(11, 11, 1)]

    play(tmp_path, scene, **LOCKS)


def test_there_is_room_when_what_waits_is_deleted(tmp_path: Path) -> None:
    """Where as much waits as may, nothing was read, so that nothing said that it is deleted."""

    async def scene(node: Node, member: Member) -> None:
        await drain(member)
        await configure(member, delivery_time_header="at", waiting_max="100")
        await write(member, *((None, in_ms(LONG_MS) if number % 2 else None) for number in range(230)))
        found = await member.fetch(max_wait=1000)
        assert await member.acknowledge(*((first, last, ACCEPT) for first, last, _ in found)) is E.none
        assert await member.fetch(max_wait=20) == [], "a hundred wait"
        await delete_before(member, 230)
        assert await member.fetch(max_wait=1000) == [(offset, offset, 1) for offset in range(230, 240, 2)]

    play(tmp_path, scene, **LOCKS)


def test_readers_that_come_and_go_do_not_postpone_a_back_off(tmp_path: Path) -> None:
    """Each of them is gone before the back-off is over."""
    backoff_ms, stays_ms = 1500, 200

    async def scene(node: Node, member: Member) -> None:
        await configure(member, retry_backoff_ms=str(backoff_ms), retry_backoff_max_ms=str(backoff_ms))
        assert await member.fetch(max_wait=1000) == [(0, 9, 1)]
        assert await member.acknowledge((0, 3, ACCEPT), (4, 4, RELEASE), (5, 9, ACCEPT)) is E.none
        loop = asyncio.get_running_loop()
        released_s = loop.time()
        found: Acquired = []
        for number in range(100):
            member.client.close()
            await until(lambda: not [*node.share.partitions])
            member = await Member.connect(node, f"reader-{number}")
            if found := await member.fetch(max_wait=stays_ms):
                break
        assert found == [(4, 4, 2)]
        assert loop.time() - released_s >= backoff_ms / 1000 - 0.01, "nor do they shorten it"
        member.client.close()

    play(tmp_path, scene, **LOCKS)


@pytest.mark.parametrize("says_so", [True, False])
def test_the_dead_of_the_last_reader_have_their_letters(tmp_path: Path, says_so: bool) -> None:
    """In a cluster it takes a while until it is kept that they died. The share-partition was dropped meanwhile, and the
    letters were not written until somebody read it again."""

    async def scene(node: Node, member: Member) -> None:
        await member.client.create("dlq.t")
        for kind, name, settings in (
            (2, "dlq.t", {"errors.deadletterqueue.group.enable": "true"}),
            (32, "g", {"errors.deadletterqueue.topic.name": "dlq.t", "share.delivery.count.limit": "2"}),
        ):
            configs = [{"name": each, "value": value, "config_operation": 0} for each, value in settings.items()]
            resource = {"resource_type": kind, "resource_name": name, "configs": configs}
            asked = {"resources": [resource], "validate_only": False}
            answer = await member.client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked)
            assert not answer["responses"][0]["error_code"], answer
        assert await member.fetch(max_wait=1000) == [(0, 9, 1)]
        assert await member.acknowledge((0, 9, RELEASE)) is E.none
        assert await member.fetch(max_wait=1000) == [(0, 9, 2)]
        asked_later: list[tuple[Any, ...]] = []
        persister = node.share.partitions.persister
        tell = persister.tell
        persister.tell = lambda *arguments: asked_later.append(arguments)  # type: ignore[method-assign]
        if says_so:
            values = {**member.values(), "share_session_epoch": -1, "topics": []}
            answer = await member.client.ask(ApiKey.SHARE_ACKNOWLEDGE, 2, values)
            assert not answer["error_code"]
        member.client.close()
        await until(lambda: not len(node.share.partitions.sessions) and bool(asked_later))
        await asyncio.sleep(0.05)  # the connection is noticed to be gone
        persister.tell = tell  # type: ignore[method-assign]
        for arguments in asked_later:
            tell(*arguments)
        await until(lambda: node.replicas.find("dlq.t", 0).log.high_watermark == 10)
        await until(lambda: not [*node.share.partitions])

    play(tmp_path, scene, **LOCKS)


def test_back_offs_are_kept_within_a_limit_and_for_one_leader_epoch() -> None:
    left = LeftBackoffs(runs_max=5)
    first, second, third = (SharePartitionKey("g", UUID(int=1), number) for number in range(3))
    left.put(first, 0, [(1, 0, 0)] * 3)
    left.put(second, 0, [(2, 0, 0)] * 2)
    assert left.take(second, 1) == [], "another node has led it"
    left.put(second, 0, [(3, 0, 0)] * 2)
    left.put(third, 0, [(4, 0, 0)])
    assert left.take(first, 0) == [], "the oldest make room"
    assert (left.take(second, 0), left.take(third, 0)) == ([(3, 0, 0)] * 2, [(4, 0, 0)])
    left.put(first, 0, [(5, 0, 0)] * 6)
    assert left.take(first, 0) == []
