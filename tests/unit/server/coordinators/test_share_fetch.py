"""ShareFetch and ShareAcknowledge over the wire, on a node that is alone. The part of the group's coordinator, the
initialization of the share-partitions, is the test's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop

from ottla.errors import ErrorCode
from ottla.model import uuid_to_base64
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import iterate_batches
from ottla.replication.share.aborted import ReadBatch
from ottla.security.acls import ResourceType
from ottla.server.fetch.share_reading import Reading, in_order, sliced
from ottla.server.node import Node
from tests.unit.server.node import Client, batch, running
from tests.unit.server.permits import everything, rule

E = ErrorCode
SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "1",
    "group.share.record.lock.duration.ms": "1000",
    "group.share.min.record.lock.duration.ms": "1000",
    "log.roll.hours": "876000",  # the timestamps of records are of long ago, those of markers are not
}
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
Acquired = list[tuple[int, int, int]]


class Member:
    """A member of the group "g" with a connection of its own, reading partition 0 of "t"."""

    def __init__(self, node: Node, client: Client, name: str) -> None:
        self.node, self.client, self.name = node, client, name
        self.epoch = 0

    @classmethod
    async def connect(cls, node: Node, name: str = "m") -> Member:
        return cls(node, await Client.connect(node), name)

    @property
    def topic_id(self) -> Any:
        topic = self.node.image.topic("t")
        assert topic is not None
        return topic.id

    def fetch_values(self, *acks: tuple[int, int, int], number: int = 0, **more: Any) -> dict[str, Any]:
        return {
            **self.values(*acks, number=number),
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "forgotten_topics_data": [],
            **more,
        }

    def values(self, *acks: tuple[int, int, int], number: int = 0, **more: Any) -> dict[str, Any]:
        """What ShareFetch and ShareAcknowledge have in common."""
        rows = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": (type_,)} for first, last, type_ in acks
        ]
        partition = {"partition_index": number, "acknowledgement_batches": rows}
        topics = [{"topic_id": self.topic_id, "partitions": [partition]}]
        return {
            "group_id": "g",
            "member_id": self.name,
            "share_session_epoch": self.epoch,
            "topics": topics,
            **more,
        }

    async def ask(self, *acks: tuple[int, int, int], **more: Any) -> Any:
        answer = await self.client.ask(ApiKey.SHARE_FETCH, 2, self.fetch_values(*acks, **more))
        if not answer["error_code"]:
            self.epoch += 1
        return answer

    async def fetch(self, *acks: tuple[int, int, int], **more: Any) -> Acquired:
        """What it has acquired."""
        answer = await self.ask(*acks, **more)
        assert answer["error_code"] == E.none
        found: Acquired = []
        for topic in answer["responses"]:
            for row in topic["partitions"]:
                assert (row["error_code"], row["acknowledge_error_code"]) == (E.none, 0), row
                found += [tuple(each.values()) for each in row["acquired_records"]]  # type: ignore[misc]
        return found

    async def acknowledge(self, *acks: tuple[int, int, int], **more: Any) -> ErrorCode:
        values = self.values(*acks, **more)
        answer = await self.client.ask(ApiKey.SHARE_ACKNOWLEDGE, 2, values)
        if answer["error_code"]:
            return ErrorCode(answer["error_code"])
        self.epoch += 1
        return ErrorCode(answer["responses"][0]["partitions"][0]["error_code"])


def play(
    path: Path, *scenes: Callable[[Node, Member], Coroutine[Any, Any, None]], start_offset: int = 0, **settings: str
) -> None:
    """Each scene on a node that was started again; the first has ten records, in batches of one, four and five."""

    async def run() -> None:
        for number, scene in enumerate(scenes, start=1):
            async with running(str(path), {**SETTINGS, **settings}, seed=number) as node:
                member = await Member.connect(node)
                if number == 1:
                    await member.client.create("t")
                    for count in (1, 4, 5):
                        await member.client.produce("t", batch(count=count))
                    await initialize(node, member, start_offset)
                await asyncio.wait_for(scene(node, member), 20)
                member.client.close()

    asyncio.run(run())


async def initialize(node: Node, member: Member, start_offset: int, state_epoch: int = 0) -> None:
    key = f"g:{uuid_to_base64(member.topic_id)}:0"
    await member.client.ask(ApiKey.FIND_COORDINATOR, 6, {"key_type": 2, "coordinator_keys": [key]})
    row = {"partition": 0, "state_epoch": state_epoch, "start_offset": start_offset}
    topics = [{"topic_id": member.topic_id, "partitions": [row]}]
    answer = await member.client.ask(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, {"group_id": "g", "topics": topics})
    assert not answer["results"][0]["partitions"][0]["error_code"]


def test_records_are_given_once_and_again_when_released(tmp_path: Path) -> None:
    async def scene(node: Node, member: Member) -> None:
        other = await Member.connect(node, "other")
        assert await member.fetch(max_records=3, max_wait=1000) == [(0, 4, 1)]  # whole batches of the log
        assert await other.fetch(max_wait=1000) == [(5, 9, 1)]
        assert await member.fetch((0, 1, ACCEPT), (2, 3, RELEASE), (4, 4, REJECT), max_wait=1000) == [(2, 3, 2)]
        assert await member.acknowledge((2, 2, ACCEPT)) is E.none
        assert await member.acknowledge((5, 5, ACCEPT)) is E.invalid_record_state  # the other's
        assert await other.acknowledge((5, 9, ACCEPT)) is E.none
        other.client.close()

    play(tmp_path, scene)


def test_the_leader_says_what_is_in_flight_and_what_was_given_up(tmp_path: Path) -> None:
    """No request of Kafka's asks for it. What a member says are gaps was no record, and is given up by nobody."""

    async def scene(node: Node, member: Member) -> None:
        async def known() -> list[tuple[int, ...]]:
            answer = await member.client.ask(ApiKey.DESCRIBE_SHARE_PARTITIONS, 0, {"groups": ["g", "other"]})
            assert answer["node_id"] == node.node_id
            assert all(
                (row["group_id"], row["topic"], row["partition"]) == ("g", "t", 0) for row in answer["partitions"]
            )
            names = "start_offset", "acquired_records", "redelivered_records", "waiting_records", "archived_records"
            return [tuple(row[name] for name in names) for row in answer["partitions"]]

        assert await known() == []
        assert await member.fetch(max_wait=1000) == [(0, 9, 1)]
        assert await known() == [(0, 10, 0, 0, 0)]
        said = [(0, 1, ACCEPT), (2, 3, RELEASE), (4, 6, REJECT), (7, 7, GAP)]
        assert await member.acknowledge(*said) is E.none
        assert await known() == [(2, 2, 0, 0, 3)]
        for count in (2, 3, 4):
            assert await member.fetch(max_wait=1000) == [(2, 3, count)]
            assert await known() == [(2, 4, 2, 0, 3)]
            assert await member.acknowledge((2, 3, RELEASE)) is E.none
        for last, given_up in ((2, 4), (3, 5)):  # for the last time each alone
            assert await member.fetch(max_wait=1000) == [(last, last, 5)]
            assert await member.acknowledge((last, last, RELEASE)) is E.none
            assert (await known())[0][-1] == given_up
        assert await known() == [(8, 2, 0, 0, 5)]
        rules = rule(node, lambda operation, kind, name: kind is ResourceType.TOPIC)
        assert await known() == []
        rules.allows = lambda operation, kind, name: kind is ResourceType.GROUP
        assert await known() == []
        rules.allows = everything
        assert len(await known()) == 1

    play(tmp_path, scene)


def test_what_was_done_with_stays_so_after_a_restart(tmp_path: Path) -> None:
    async def before(node: Node, member: Member) -> None:
        assert await member.fetch(max_wait=1000) == [(0, 9, 1)]
        assert await member.acknowledge((0, 2, ACCEPT), (3, 3, RELEASE), (6, 6, REJECT)) is E.none

    async def after(node: Node, member: Member) -> None:
        assert await member.fetch(max_wait=5000) == [(3, 5, 2), (7, 9, 2)]  # given back with the connection

    play(tmp_path, before, after)


def test_a_lock_ends_and_the_record_is_delivered_as_often_as_it_may_be(tmp_path: Path) -> None:
    async def scene(node: Node, member: Member) -> None:
        for count in (1, 2):
            assert await member.fetch(max_wait=5000) == [(0, 9, count)]
        await member.client.produce("t", batch())
        assert await member.fetch((0, 0, ACCEPT), max_wait=5000) == [(10, 10, 1)]
        assert await member.fetch(max_wait=5000) == [(10, 10, 2)], "what was delivered twice is not delivered again"

    play(tmp_path, scene, **{"group.share.delivery.count.limit": "2"})


def test_a_lock_is_renewed(tmp_path: Path) -> None:
    async def scene(node: Node, member: Member) -> None:
        assert await member.fetch(max_wait=1000) == [(0, 9, 1)]
        led = next(iter(node.share.partitions))
        assert led.core is not None
        before = led.core.window.batches[0].runs[0].deadline_ms
        assert before is not None
        await asyncio.sleep(0.005)
        nothing = {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait": 0, "is_renew_ack": True}
        assert await member.fetch((0, 9, RENEW), **nothing) == []
        deadline = led.core.window.batches[0].runs[0].deadline_ms
        assert deadline is not None and deadline > before
        assert await member.acknowledge((0, 9, RENEW)) is E.invalid_request  # it does not say that it renews
        assert await member.acknowledge((0, 9, RENEW), is_renew_ack=True) is E.none
        assert (await member.ask(is_renew_ack=True))["error_code"] == E.invalid_request

    play(tmp_path, scene)


def test_a_fetch_waits_for_records(tmp_path: Path) -> None:
    async def scene(node: Node, member: Member) -> None:
        producer = await Client.connect(node)
        assert await member.fetch(max_wait=1000) == [(0, 9, 1)]
        waiting = asyncio.ensure_future(member.fetch(max_wait=10_000))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        await producer.produce("t", batch())
        assert await waiting == [(10, 10, 1)]
        assert await member.fetch(max_wait=10) == []
        producer.close()

    play(tmp_path, scene, **{"group.share.record.lock.duration.ms": "30000"})


def test_a_waiting_fetch_gets_what_another_member_gives_back(tmp_path: Path) -> None:
    """Released, at the end of the session, and when the connection is lost."""

    async def scene(node: Node, member: Member) -> None:
        others = [await Member.connect(node, name) for name in ("a", "b", "c")]
        assert await member.fetch(max_wait=1000) == [(0, 9, 1)]
        waiting = asyncio.ensure_future(others[0].fetch(max_wait=10_000))
        assert await member.acknowledge((0, 9, RELEASE)) is E.none
        assert await waiting == [(0, 9, 2)]
        waiting = asyncio.ensure_future(others[1].fetch(max_wait=10_000))
        others[0].epoch = -1
        assert await others[0].acknowledge((0, 4, ACCEPT)) is E.none
        assert await waiting == [(5, 9, 3)]
        waiting = asyncio.ensure_future(others[2].fetch(max_wait=10_000))
        others[1].client.close()
        assert await waiting == [(5, 9, 4)]
        assert len(node.share.partitions.sessions) == 2

    play(tmp_path, scene, **{"group.share.record.lock.duration.ms": "30000"})


def test_sessions_have_an_order(tmp_path: Path) -> None:
    async def scene(node: Node, member: Member) -> None:
        member.epoch = 1
        assert (await member.ask())["error_code"] == E.share_session_not_found
        assert await member.acknowledge((0, 0, ACCEPT)) is E.share_session_not_found
        member.epoch = 0
        assert (await member.ask((0, 0, ACCEPT)))["error_code"] == E.invalid_request
        await member.fetch(max_wait=1000)
        member.epoch = 7
        assert (await member.ask())["error_code"] == E.invalid_share_session_epoch
        for name in ("", "x" * 37, None):
            assert (await member.ask(member_id=name))["error_code"] == E.invalid_request
        assert (await member.ask(group_id=None))["error_code"] == E.invalid_request
        member.epoch = 1
        other = await Member.connect(node, "other")
        assert (await other.ask())["error_code"] == E.share_session_limit_reached
        other.client.close()

    play(tmp_path, scene, **{"group.share.max.share.sessions": "1"})


def test_partitions_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    async def scene(node: Node, member: Member) -> None:
        answer = await member.ask(number=7)
        assert answer["responses"][0]["partitions"][0]["error_code"] == E.unknown_topic_or_partition
        assert await member.acknowledge((0, 0, ACCEPT), number=7) is E.unknown_topic_or_partition
        assert await member.acknowledge((0, 0, ACCEPT)) is E.unknown_topic_or_partition  # nobody has read it yet
        other = await Member.connect(node, "other")
        answer = await other.ask(group_id="nobody", max_wait=5000)
        row = answer["responses"][0]["partitions"][0]
        assert row["error_code"] == E.unknown_topic_or_partition, "the group is not initialized"
        other.client.close()

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("strategy", "first"), [("earliest", 0), ("by_duration:PT0S", None), ("by_duration:P9000D", 0)]
)
def test_a_new_group_begins_where_its_settings_say(tmp_path: Path, strategy: str, first: int | None) -> None:
    async def scene(node: Node, member: Member) -> None:
        configs = [{"name": "share.auto.offset.reset", "value": strategy, "config_operation": 0}]
        asked = {"resources": [{"resource_type": 32, "resource_name": "g", "configs": configs}], "validate_only": False}
        answer = await member.client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked)
        assert not answer["responses"][0]["error_code"]
        answer = await member.ask(max_wait=5000)
        row = answer["responses"][0]["partitions"][0]
        if first is None:
            assert row["error_code"] == E.offset_not_available  # there is no record since then
        else:
            assert row["acquired_records"][0]["first_offset"] == first

    play(tmp_path, scene, start_offset=-1)


def test_read_committed_leaves_out_what_was_aborted(tmp_path: Path) -> None:
    async def scene(node: Node, member: Member) -> None:
        configs = [
            {"name": "share.isolation.level", "value": "read_committed", "config_operation": 0},
            {"name": "share.auto.offset.reset", "value": "earliest", "config_operation": 0},
        ]
        asked = {"resources": [{"resource_type": 32, "resource_name": "g", "configs": configs}], "validate_only": False}
        await member.client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked)
        producer = await Client.connect(node)
        for producer_id, committed in ((4000, False), (4001, True)):
            options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
            partition = node.replicas.find("t", 0)
            _, header = next(iterate_batches(batch(count=2, **options)))
            producers = partition.log.producer_state
            guard = producers.start_verification(header, begins_transaction=True, now_ms=node.clock.now_ms())
            records = bytearray(batch(count=2, **options))
            partition.append_as_leader(records, -1, now_ms=node.clock.now_ms(), guard=guard)
            topics = [{"name": "t", "partition_indexes": [0]}]
            marker = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "transaction_result": committed,
                "coordinator_epoch": 0,
                "topics": topics,
            }
            await producer.ask(ApiKey.WRITE_TXN_MARKERS, 1, {"markers": [marker]})
        # Ten records, two aborted and a marker, two committed and a marker.
        assert await member.fetch(max_wait=5000) == [(0, 9, 1), (12, 15, 1)]
        producer.close()

    play(tmp_path, scene, start_offset=-1)


def test_a_log_that_begins_later_is_read_from_there(tmp_path: Path) -> None:
    async def scene(node: Node, member: Member) -> None:
        asked = {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "offset": 5}]}], "timeout": 1000}
        await member.client.ask(ApiKey.DELETE_RECORDS, 2, asked)
        assert await member.fetch(max_wait=1000) == []
        assert await member.fetch(max_wait=1000) == [(5, 9, 1)]

    play(tmp_path, scene)


def test_the_limit_of_records_is_kept_where_it_is_asked_for(tmp_path: Path) -> None:
    async def scene(node: Node, member: Member) -> None:
        assert await member.fetch(max_records=3, share_acquire_mode=1, max_wait=1000) == [(0, 2, 1)]
        assert await member.fetch(max_records=1, share_acquire_mode=1, max_wait=1000) == [(3, 3, 1)]

    play(tmp_path, scene)


def test_the_time_of_a_fetch_is_over_also_where_the_clock_is_rounded(tmp_path: Path) -> None:
    """A node runs on uvloop, whose clock has milliseconds: when a timer goes off, its time may be just not come. Such a
    fetch waited until something else woke it up."""

    async def test() -> None:
        async with running(str(tmp_path), SETTINGS) as node:
            member = await Member.connect(node)
            await member.client.create("t")
            await initialize(node, member, 0)
            for wait_ms in range(1, 41):
                assert await asyncio.wait_for(member.fetch(max_wait=wait_ms), 30) == []
            member.client.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())


def test_a_record_that_a_further_look_acquires_from_before_is_sent() -> None:
    """Its back-off ended after the first look, which acquired records behind it. Clients take an acquired record
    without its bytes for a gap, and acknowledge it."""
    batches = [ReadBatch(base, base + 1, -1, False, False, base * 10, 20) for base in range(0, 10, 2)]
    reading = Reading(cast(Any, None), [])
    reading.batches, reading.data = batches, memoryview(bytes(range(100)))
    found = in_order([], [(0, 0, 1), (8, 8, 1)])
    found = in_order(found, [(4, 5, 2)])
    assert found == [(0, 0, 1), (4, 5, 2), (8, 8, 1)]
    assert bytes(sliced(reading, found)) == bytes([*range(20), *range(40, 60), *range(80, 100)])
    assert in_order(found, [(9, 9, 1)])[-2:] == [(8, 8, 1), (9, 9, 1)]
