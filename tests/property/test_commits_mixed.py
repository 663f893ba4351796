"""Repeated commits among everything else that happens to groups, on real sockets and a log in memory.

The log is the oracle: what a client is answered, what is fetched and what a restart finds is what its records say. Each
commit has an offset of its own, by which it is found there.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from types import SimpleNamespace
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.coordinator.group.offsets import fetch
from ottla.coordinator.group.requests import DeleteGroups, OffsetCommit, OffsetDelete, OffsetToCommit
from ottla.errors import ErrorCode, KafkaError
from ottla.model import ZERO_UUID
from ottla.network import SocketSender
from ottla.protocol.internal.group_records import decode_record
from ottla.protocol.offset_block import CommitShape, CommittedPartition
from ottla.protocol.records.record_batch import iterate_records
from ottla.protocol.schemas.records import OffsetCommitKey, OffsetCommitValue
from ottla.server.connections.outbox import Outbox
from ottla.server.coordinators.repeated_commits import RepeatedCommits
from tests.unit.coordinator.test_driver import Waiter, World

GROUPS = ("g", "simple")
CONNECTIONS = 3
_ANSWER = struct.Struct(">iih")
"""Size, correlation id and error: a frame of the form that all responses have."""


class Known:
    """What `RepeatedCommits` knows of a commit of one partition; each group's frames have a length of their own."""

    def __init__(self, world: World, group_id: str, metrics: Any) -> None:
        self.frame = bytes(8) + group_id.encode() + bytes(12)
        partition = CommittedPartition("t", 0, "", ZERO_UUID)
        self.shape = CommitShape(group_id, [partition], self.frame, [len(self.frame) - 12])
        self.asked = OffsetCommit(group_id=group_id)
        self.node = SimpleNamespace(groups=world.driver, metrics=metrics)
        self.good = bytes(self.answer(ErrorCode.none))

    def holds(self) -> bool:
        return True

    def answer(self, error: ErrorCode) -> bytearray:
        return bytearray(_ANSWER.pack(6, 0, error))


class Connection:
    def __init__(self, play: Play) -> None:
        ours, self.client = socket.socketpair()
        ours.setblocking(False)
        self.client.setblocking(False)
        self.ours = ours
        loop = asyncio.get_running_loop()
        self.outbox = Outbox(loop, SocketSender(loop, ours.fileno()), lambda: None, self._broken)
        self.repeated = RepeatedCommits(self.outbox)
        for known in play.known.values():
            self.repeated.learn(known)  # type: ignore[arg-type]
        self.sent: list[int] = []
        self.answered: list[int] = []
        self.waits = False
        """For a commit that went the long way: a connection begins no other meanwhile."""
        self.received = b""

    def _broken(self, error: OSError) -> None:
        raise AssertionError("nobody closed this socket") from error

    def close(self) -> None:
        self.outbox.close()
        self.client.close()
        self.ours.close()


class LongWay:
    """Answers a commit that was not batched."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection, self.number = connection, number
        connection.waits = True

    def complete(self, result: Any) -> None:
        self.connection.waits = False
        error = result.code if isinstance(result, KafkaError) else ErrorCode.none
        self.connection.outbox.write((_ANSWER.pack(6, self.number, error),), 10)
        self.connection.outbox.flush()


class Play:
    def __init__(self) -> None:
        self.world = World()
        self.known = {group: Known(self.world, group, self.world.node.metrics) for group in GROUPS}
        self.connections = [Connection(self) for _ in range(CONNECTIONS)]
        self.number = 0

    # What may happen

    async def commit(self, group: str, which: int) -> None:
        connection = self.connections[which]
        if connection.waits:
            return
        self.number += 1
        connection.sent.append(self.number)
        frame = bytearray(self.known[group].frame)
        frame[4:8] = struct.pack(">i", self.number)
        frame[-12:] = struct.pack(">qi", self.number, -1)
        if connection.repeated(memoryview(frame), self.number) is None:
            waiter = LongWay(connection, self.number)
            asked = OffsetCommit(group_id=group, offsets=[OffsetToCommit("t", 0, self.number, -1, "")])
            try:
                self.world.driver.ask(waiter, asked)
            except KafkaError as error:
                waiter.complete(error)
        connection.outbox.flush()  # as at the end of every read: it must not send what is held

    async def join(self, group: str, which: int) -> None:
        self.world.join()  # of "g", whose other members cannot commit without it from now on

    async def delete_offsets(self, group: str, which: int) -> None:
        try:
            self.world.driver.ask(Waiter(), OffsetDelete(group, {"t": [0]}))
        except KafkaError:
            pass

    async def delete_group(self, group: str, which: int) -> None:
        self.world.driver.ask(Waiter(), DeleteGroups([group]))

    async def fail(self, group: str, which: int) -> None:
        self.world.log.failure = KafkaError(ErrorCode.not_enough_replicas)

    async def slow_disk(self, group: str, which: int) -> None:
        self.world.log.must_fsync = True
        self.world.log.may_flush.clear()

    async def fast_disk(self, group: str, which: int) -> None:
        self.world.log.must_fsync = False
        self.world.log.may_flush.set()

    async def close(self, group: str, which: int) -> None:
        self.connections[which].close()
        self.connections[which] = Connection(self)

    async def turn(self, group: str, which: int) -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    async def fetch(self, group: str, which: int) -> None:
        topics = self.world.driver.read(fetch, group, None, False)
        found = {each.partition_index: each.committed_offset for topic in topics for each in topic.partitions}
        # Else the log is ahead for a turn.
        if not any(shard.pending for shard in self.world.driver._by_number.values()):
            assert found.get(0) == self.in_log().get(group)

    # What must hold

    def records(self) -> list[tuple[OffsetCommitKey, OffsetCommitValue | None]]:
        """The committed records of offsets, in the order of the log."""
        log = self.world.log
        decoded = [
            decode_record(record.key, record.value)
            for batch in log.batches
            for record in iterate_records(batch)
            if record.key is not None and record.offset < log.high_watermark
        ]
        return [(each.key, each.value) for each in decoded if each and isinstance(each.key, OffsetCommitKey)]  # type: ignore[misc]

    def in_log(self) -> dict[str, int | None]:
        return {key.group: None if value is None else value.offset for key, value in self.records()}

    def check_answers(self) -> None:
        """In the order of the requests; good news is in the log, bad news is not."""
        written = {value.offset for _, value in self.records() if value is not None}
        for connection in self.connections:
            try:
                connection.received += connection.client.recv(1 << 16)
            except BlockingIOError:
                continue
            while len(connection.received) >= _ANSWER.size:
                _, number, error = _ANSWER.unpack_from(connection.received)
                connection.received = connection.received[_ANSWER.size :]
                connection.answered.append(number)
                assert (number in written) == (error == ErrorCode.none)
            assert connection.answered == connection.sent[: len(connection.answered)]


OPERATIONS = [
    Play.commit, Play.join, Play.delete_offsets, Play.delete_group, Play.fail, Play.slow_disk, Play.fast_disk,
    Play.close, Play.turn, Play.fetch,
]  # fmt: skip
STEPS = st.lists(
    st.tuples(
        st.one_of(st.just(Play.commit), st.sampled_from(OPERATIONS)),
        st.sampled_from(GROUPS),
        st.integers(0, CONNECTIONS - 1),
    ),
    max_size=40,
)


@settings(max_examples=200)
@given(STEPS)
@example([(Play.commit, "simple", 0), (Play.commit, "simple", 0), (Play.close, "simple", 0), (Play.turn, "simple", 0)])
@example([(Play.commit, "simple", 0), (Play.delete_group, "simple", 0), (Play.commit, "simple", 0)])
@example([(Play.commit, "g", 0), (Play.fail, "g", 0), (Play.commit, "g", 1), (Play.join, "g", 0), (Play.fetch, "g", 0)])
@example([(Play.slow_disk, "g", 0), (Play.commit, "g", 0), (Play.turn, "g", 0), (Play.delete_group, "g", 0)])
def test_what_clients_get_is_what_the_log_says(steps: list[Any]) -> None:
    async def run() -> None:
        play = Play()
        try:
            for step, group, which in steps:
                await step(play, group, which)
                play.check_answers()
            await play.fast_disk("", 0)
            for _ in range(10):
                await play.turn("", 0)
            play.check_answers()
            assert all(connection.answered == connection.sent for connection in play.connections)
            for group in GROUPS:
                await play.fetch(group, 0)
            play.world.restart()
            await asyncio.sleep(0.002)
            for group in GROUPS:
                await play.fetch(group, 0)
        finally:
            for connection in play.connections:
                connection.close()

    asyncio.run(run())
