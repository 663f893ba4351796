"""The coordinator's driver on a log in memory: order of effects, loading, leadership, timers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from ottla.config.effective import EffectiveConfig
from ottla.coordinator.group.classic.describe import describe
from ottla.coordinator.group.offsets import fetch
from ottla.coordinator.group.requests import (
    ConsumerHeartbeat,
    DeleteGroups,
    JoinGroup,
    OffsetCommit,
    OffsetToCommit,
    SyncGroup,
)
from ottla.drivers.coordinators.group_coordinator import GroupCoordinatorDriver
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.features import GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION
from ottla.metadata.image import EMPTY_IMAGE, PartitionRegistration
from ottla.metrics.instruments import NodeMetrics
from ottla.model import OFFSETS_TOPIC, ZERO_UUID, TopicPartition
from ottla.protocol.internal.group_records import GroupRecord, encode_key, encode_value
from ottla.protocol.records.record_batch import SimpleRecord, build_batch, read_batch_header, set_base_offset_and_epoch
from ottla.protocol.schemas.records import OffsetCommitKey, OffsetCommitValue
from ottla.replication.partition import Partition
from ottla.server.handlers.groups import consumer_group_describe, describe_groups, list_groups, streams_group_describe
from ottla.server.handlers.share import share_group_describe
from ottla.storage.config import LogConfig
from tests.unit.coordinator.harness import WALL_START_MS

DESCRIBING = [
    each.handle
    for each in (list_groups, consumer_group_describe, describe_groups, streams_group_describe, share_group_describe)
]


class Info(NamedTuple):
    first_offset: int
    last_offset: int
    size_bytes: int = 0
    needs_flush: bool = False
    leader_epoch: int = 0


class Health:
    """Keeps the errors that made somebody suspect damage."""

    def __init__(self) -> None:
        self.suspected: list[Exception] = []

    def suspect(self, error: Exception, offset: int | None) -> None:
        self.suspected.append(error)


class MemoryLog:
    """As much of a log as the driver and the partition touch. With `must_fsync`, it counts as far as it was fsynced."""

    is_open = True
    config = LogConfig()

    def __init__(self) -> None:
        self.batches: list[bytearray] = []
        self.log_start_offset = 0
        self.high_watermark = 0
        self.durable = 0
        self.must_fsync = False
        self.failure: KafkaError | None = None
        self.health = Health()
        self.may_flush = asyncio.Event()
        self.may_flush.set()
        self.flushing: asyncio.Task[None] | None = None

    @property
    def log_end_offset(self) -> int:
        return read_batch_header(self.batches[-1]).next_offset if self.batches else 0

    @property
    def safe_end_offset(self) -> int:
        return self.durable if self.must_fsync else self.log_end_offset

    def append(self, batch: bytearray, leader_epoch: int = 0) -> Info:
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        set_base_offset_and_epoch(batch, 0, self.log_end_offset, leader_epoch)
        self.batches.append(batch)
        header = read_batch_header(batch)
        return Info(header.base_offset, header.last_offset, len(batch), self.must_fsync, leader_epoch)

    def append_as_leader(self, records: bytearray, leader_epoch: int, **options: Any) -> Info:
        return self.append(records, leader_epoch)

    def read(self, offset: int, max_bytes: int, *, up_to: int) -> Any:
        if not self.is_open:
            raise KafkaError(ErrorCode.not_leader_or_follower, "the log is being truncated")
        data = b"".join(batch for batch in self.batches if read_batch_header(batch).last_offset >= offset)
        return SimpleNamespace(read=lambda: data) if data else None

    def assign_epoch(self, epoch: int) -> None:
        pass

    def observe(self, fsynced: Callable[[], None], *others: Any) -> None:
        self.fsynced = fsynced

    def begin_flush(self) -> None:
        if self.flushing is None or self.flushing.done():
            self.flushing = asyncio.ensure_future(self._flush())

    async def _flush(self) -> None:
        await self.may_flush.wait()
        self.durable = self.log_end_offset
        self.fsynced()


class Waiter:
    def __init__(self) -> None:
        self.results: list[Any] = []

    def complete(self, result: Any) -> None:
        self.results.append(result.code if isinstance(result, KafkaError) else result)


def settings() -> EffectiveConfig:
    static = {
        "group.min.session.timeout.ms": "20",
        "group.max.size": "100",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
    }
    return EffectiveConfig(static, {}, {})


class Replicas(list[Partition]):
    def __init__(self) -> None:
        super().__init__()
        self.on_leadership: list[Callable[[Partition], None]] = []
        self.missing: dict[TopicPartition, str] = {}


class World:
    """A node with one partition of `__consumer_offsets`."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.partition = Partition(1, TopicPartition(OFFSETS_TOPIC, 0), ZERO_UUID, cast(Any, self.log))
        self.epoch = 0
        self.isr: tuple[int, ...] = (1,)
        self.node = SimpleNamespace(
            config=settings(),
            clock=SimpleNamespace(now_ms=lambda: WALL_START_MS),
            random=random.Random(1),
            image=EMPTY_IMAGE,
            replicas=Replicas(),
            metrics=NodeMetrics(),
            controller=SimpleNamespace(subscribe=lambda callback: None),
            fs=SimpleNamespace(run=_run),
            on_stop=[],
        )
        self.restart()

    def restart(self) -> None:
        self.node.replicas.on_leadership.clear()
        self.driver = GroupCoordinatorDriver(self.node)
        self.driver.start(self.node.controller)
        self.lead()

    def lead(self, is_leader: bool = True) -> None:
        """Become leader or stop being it, in a new leader epoch."""
        self.epoch += 1
        leader = 1 if is_leader else 2
        ids = (ZERO_UUID, ZERO_UUID)
        self.partition.update(PartitionRegistration((1, 2), self.isr, leader, self.epoch, self.epoch, ids))
        for callback in self.node.replicas.on_leadership:
            callback(self.partition)

    def join(self, member_id: str = "", session_timeout_ms: int = 10_000) -> Waiter:
        waiter = Waiter()
        request = JoinGroup(
            group_id="g",
            member_id=member_id,
            client_id="c",
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols={"range": b""},
            require_known_member_id=False,
        )
        self.driver.ask(waiter, request)
        return waiter

    def commit(self, offset: int, group_id: str = "simple") -> Waiter:
        waiter = Waiter()
        offsets = (OffsetToCommit("t", 0, offset, -1, ""),)
        self.driver.ask(waiter, OffsetCommit(group_id=group_id, offsets=offsets))
        return waiter

    def committed(self, group_id: str = "simple") -> int:
        found: int = self.driver.read(fetch, group_id, None, False)[0].partitions[0].committed_offset
        return found


async def _run(work: Callable[[], Any]) -> Any:
    return work()


def play(scene: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        await scene(World())

    asyncio.run(run())


async def until(condition: Callable[[], Any]) -> None:
    for _ in range(60_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("never came true")


def code_of(call: Callable[[], Any]) -> ErrorCode:
    try:
        call()
    except KafkaError as error:
        return error.code
    raise AssertionError("no error")


OK = {"partitions": {TopicPartition("t", 0): ErrorCode.none}}


def test_a_log_that_is_still_being_truncated_is_waited_for() -> None:
    """A follower that cuts its log becomes leader: its groups must not be unavailable until the next leader."""

    async def scene(world: World) -> None:
        assert world.commit(5).results == [OK]
        world.lead(False)
        world.log.is_open = False
        world.lead()
        await asyncio.sleep(0.01)
        assert code_of(world.committed) is ErrorCode.coordinator_load_in_progress
        world.log.is_open = True
        await until(lambda: world.driver.loading() == 0)
        assert world.committed() == 5

    play(scene)


def test_a_commit_is_answered_and_read_when_it_is_in_the_log() -> None:
    async def scene(world: World) -> None:
        assert world.commit(5).results == [OK]
        assert world.committed() == 5
        assert len(world.log.batches) == 1

    play(scene)


def test_nothing_is_coordinated_before_the_node_is_registered() -> None:
    """Metadata of before say that it leads what it led when it died: a record that it appended then, in an epoch that
    is over, could take the offset of one that is committed and that its disk has lost."""

    async def scene(world: World) -> None:
        world.commit(5)
        world.node.replicas.on_leadership.clear()
        world.node.replicas.append(world.partition)
        world.driver = GroupCoordinatorDriver(world.node)
        world.lead()
        assert code_of(lambda: world.committed()) is ErrorCode.not_coordinator
        assert not world.driver.loading()
        world.driver.start(world.node.controller)
        await until(lambda: not world.driver.loading())
        assert world.committed() == 5

    play(scene)


def test_answers_wait_for_the_fsync_and_keep_their_order() -> None:
    async def scene(world: World) -> None:
        log = world.log
        log.must_fsync = True
        log.may_flush.clear()
        first, second = world.commit(1), world.commit(2)
        await asyncio.sleep(0)
        assert (first.results, second.results) == ([], [])
        assert world.driver.read(fetch, "simple", None, False) == []
        log.may_flush.set()
        await until(lambda: second.results)
        assert (first.results, second.results) == ([OK], [OK])
        assert world.committed() == 2
        assert log.high_watermark == 2

    play(scene)


def test_a_failed_append_is_an_error_that_the_client_can_act_on() -> None:
    async def scene(world: World) -> None:
        world.log.failure = KafkaError(ErrorCode.kafka_storage_error)
        assert world.commit(1).results == [ErrorCode.not_coordinator]
        assert world.commit(2).results == [OK]

    play(scene)


def test_a_restarted_coordinator_loads_its_log() -> None:
    async def scene(world: World) -> None:
        joined = world.join()
        await until(lambda: joined.results)
        member_id = joined.results[0]["member_id"]
        waiter = Waiter()
        world.driver.ask(waiter, SyncGroup(group_id="g", generation=1, member_id=member_id))
        assert waiter.results[0]["error_code"] is ErrorCode.none
        for offset in range(5):
            world.commit(offset)
        before = world.driver.read(describe, "g")
        world.restart()
        assert code_of(lambda: world.commit(9)) is ErrorCode.coordinator_load_in_progress
        assert code_of(lambda: world.driver.list_groups([], [])) is ErrorCode.coordinator_load_in_progress
        await until(lambda: code_of_or_none(world) is None)
        assert world.committed() == 4
        assert world.driver.read(describe, "g") == before
        assert world.driver.heartbeat("g", member_id, None, 1) is ErrorCode.none

    play(scene)


def code_of_or_none(world: World) -> ErrorCode | None:
    try:
        world.driver.read(describe, "g")
    except KafkaError as error:
        return error.code
    return None


def test_a_log_of_kafka_with_transactions_and_unknown_records_loads() -> None:
    async def scene(world: World) -> None:
        def offset(group: str, value: int) -> SimpleRecord:
            record = GroupRecord(OffsetCommitKey(group, "t", 0), OffsetCommitValue(value, -1, "", WALL_START_MS))
            return SimpleRecord(0, encode_key(record.key), encode_value(record.value))

        log = world.log
        abort, commit = b"\0\0\0\0", b"\0\0\0\1"
        log.append(build_batch([SimpleRecord(0, b"\0\3\0\1g", b"\0\0\0\0\0\1\0")]))
        log.append(build_batch([offset("a", 1), offset("b", 1)]))
        log.append(build_batch([offset("a", 2)], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
        log.append(build_batch([offset("b", 2)], producer_id=8, producer_epoch=0, base_sequence=0, transactional=True))
        log.append(
            build_batch(
                [SimpleRecord(0, commit, b"\0\0\0\0\0\0")],
                producer_id=7,
                producer_epoch=0,
                transactional=True,
                control=True,
            )
        )
        log.append(
            build_batch(
                [SimpleRecord(0, abort, b"\0\0\0\0\0\0")],
                producer_id=8,
                producer_epoch=0,
                transactional=True,
                control=True,
            )
        )
        log.append(build_batch([offset("c", 3)], producer_id=9, producer_epoch=0, base_sequence=0, transactional=True))
        world.restart()
        await until(lambda: code_of_or_none(world) is None)
        assert (world.committed("a"), world.committed("b")) == (2, 1)
        (topic,) = world.driver.read(fetch, "c", [("t", ZERO_UUID, [0])], True)
        assert topic.partitions[0].error_code is ErrorCode.unstable_offset_commit

    play(scene)


def test_a_log_that_cannot_be_read_has_no_coordinator() -> None:
    async def scene(world: World) -> None:
        world.log.append(build_batch([SimpleRecord(0, b"\0\1garbage", b"")]))
        world.restart()
        await until(lambda: code_of_or_none(world) is ErrorCode.coordinator_not_available)

    play(scene)


def test_members_that_wait_are_answered_when_leadership_or_the_node_ends() -> None:
    async def scene(world: World) -> None:
        waiting = world.join()
        world.lead(False)
        assert waiting.results[0]["error_code"] is ErrorCode.not_coordinator
        assert code_of(world.join) is ErrorCode.not_coordinator
        world.lead()
        await until(lambda: code_of_or_none(world) is None)
        again = world.join()
        world.driver.release_waiters()
        assert again.results[0]["error_code"] is ErrorCode.not_coordinator
        assert code_of(world.join) is ErrorCode.not_coordinator
        assert world.commit(3).results == [OK]
        await world.driver.stop()
        assert code_of(lambda: world.commit(4)) is ErrorCode.not_coordinator

    play(scene)


def test_a_commit_that_waits_fails_when_leadership_ends() -> None:
    async def scene(world: World) -> None:
        world.log.must_fsync = True
        world.log.may_flush.clear()
        waiting = world.commit(1)
        world.lead(False)
        assert waiting.results == [ErrorCode.not_coordinator]

    play(scene)


def test_a_silent_member_times_out_on_the_event_loops_clock() -> None:
    async def scene(world: World) -> None:
        joined = world.join(session_timeout_ms=20)
        await until(lambda: joined.results)
        await until(lambda: world.driver.read(describe, "g")["group_state"] == "Empty")

    play(scene)


def test_what_is_not_committed_is_not_described() -> None:
    """Every API that describes or lists groups shows what is committed, at once: a new coordinator may not know what
    this one is about to write."""
    feature_names = dict.fromkeys((GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION), 1)
    request = SimpleNamespace(
        groups=["g"],
        group_ids=["g"],
        include_authorized_operations=False,
        include_topology_description=False,
        states_filter=[],
        types_filter=[],
    )

    async def scene(world: World) -> None:
        node = SimpleNamespace(
            groups=world.driver,
            authorizer=None,
            image=SimpleNamespace(features=feature_names),
            config=SimpleNamespace(group_coordinator_rebalance_protocols=("consumer", "streams")),
        )
        context = cast(Any, SimpleNamespace(node=node, api_version=6))

        async def shown() -> tuple[list[str], int | ErrorCode]:
            """The groups that are listed, and the epoch or the error of the one that is described."""
            assert all(isinstance(handle(context, cast(Any, request)), dict) for handle in DESCRIBING[1:]), "no task"
            listed = cast(Any, await DESCRIBING[0](context, cast(Any, request)))["groups"]
            row = cast(Any, DESCRIBING[1](context, cast(Any, request)))["groups"][0]
            return [each["group_id"] for each in listed], row["error_code"] or row["group_epoch"]

        def heard(member_id: str) -> Waiter:
            waiter = Waiter()
            asked = ConsumerHeartbeat("g", member_id, 0, rebalance_timeout_ms=1000, topics=["t"], owned={})
            world.driver.ask(waiter, asked)
            return waiter

        world.log.must_fsync = True
        world.log.may_flush.clear()
        first = heard("m1")
        assert (first.results, await shown()) == ([], ([], ErrorCode.group_id_not_found))
        world.log.may_flush.set()
        await until(lambda: first.results)
        epoch = first.results[0]["member_epoch"]
        assert await shown() == (["g"], epoch)
        world.log.may_flush.clear()
        second, commit = heard("m2"), world.commit(8)
        assert (second.results, commit.results) == ([], []) and await shown() == (["g"], epoch)
        assert world.driver.read(lambda state, name: state.groups[name].generation, "g") > epoch
        world.lead(False)
        assert await shown() == ([], ErrorCode.not_coordinator)

    play(scene)


def test_a_group_is_shown_until_its_deletion_is_committed() -> None:
    """The group is gone for those who join it, and may be back with the next coordinator."""

    async def scene(world: World) -> None:
        world.commit(7)
        world.log.must_fsync = True
        world.log.may_flush.clear()
        deleted = Waiter()
        world.driver.ask(deleted, DeleteGroups(["simple"]))
        assert deleted.results == [] and [row["group_id"] for row in world.driver.list_groups((), ())] == ["simple"]
        assert world.driver.read_committed(describe, "simple")["group_state"] == "Empty"
        assert world.driver.read(describe, "simple")["group_state"] == "Dead"
        world.log.may_flush.set()
        await until(lambda: deleted.results)
        assert world.driver.list_groups((), ()) == []
        assert world.driver.read_committed(describe, "simple")["group_state"] == "Dead"

    play(scene)
