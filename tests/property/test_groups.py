"""Random schedules of members, time, slow and failing writes and restarts: what holds for a group at every step."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.coordinator.config import GroupConfig
from ottla.coordinator.effects import Write
from ottla.coordinator.group import offsets
from ottla.coordinator.group.classic.group import ClassicGroup, State
from ottla.coordinator.group.requests import (
    DeleteGroups,
    JoinGroup,
    LeaveGroup,
    Leaving,
    OffsetCommit,
    OffsetDelete,
    OffsetToCommit,
    SyncGroup,
)
from ottla.coordinator.group.shard import GroupShard
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.protocol.internal.group_records import GroupRecord, encode_key
from ottla.protocol.schemas.records import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from tests.unit.coordinator.harness import SimulatedDriver

GROUPS = st.sampled_from(["g", "h"])
PROTOCOLS = st.sampled_from([{"range": b""}, {"sticky": b"", "range": b"1"}, {"range": b"2", "sticky": b"2"}])
INSTANCES = st.sampled_from([None, None, "i", "j"])
ERRORS = st.sampled_from([ErrorCode.not_enough_replicas, ErrorCode.kafka_storage_error, ErrorCode.message_too_large])
SESSION_MS, REBALANCE_MS = 10_000, 20_000
RETENTION_MS = 30_000


class GroupMachine(RuleBasedStateMachine):
    """Members are picked from all ids that were ever handed out, dead ones included."""

    @initialize(delay=st.sampled_from([0, 3_000]), max_size=st.sampled_from([2, 100]))
    def begin(self, delay: int, max_size: int) -> None:
        self.driver = SimulatedDriver(
            GroupConfig(
                initial_rebalance_delay_ms=delay,
                max_size=max_size,
                offsets_retention_ms=RETENTION_MS,
                offsets_retention_check_interval_ms=RETENTION_MS // 3,
            )
        )
        self.ids: list[tuple[str, str, str | None]] = []
        self.tokens = 0
        self.asked: dict[int, tuple[str, str | None]] = {}
        self.commits: dict[int, tuple[str, int, int]] = {}
        self.deleted: set[tuple[str, str, int]] = set()
        """Offsets deleted on request, which need not have expired."""
        self.looked_at = 0
        self.generations: Counter[ClassicGroup] = Counter()
        self.leaders: dict[tuple[ClassicGroup, int], set[str]] = {}

    def token(self, group_id: str, instance_id: str | None = None) -> int:
        self.tokens += 1
        self.asked[self.tokens] = (group_id, instance_id)
        return self.tokens

    def finish(self) -> None:
        """Work off the effects, and learn member ids from the answers."""
        self.driver.run()
        for token, response in self.driver.replies:
            group_id, instance_id = self.asked.pop(token)
            if token in self.commits and isinstance(response, dict):
                self.is_in_the_log(*self.commits[token])
            if isinstance(response, dict) and response.get("member_id"):
                known = (group_id, response["member_id"], instance_id)
                if known not in self.ids:
                    self.ids.append(known)
                if response["error_code"] is ErrorCode.none and not response["skip_assignment"]:
                    self.saw_generation(group_id, response)
        self.driver.replies.clear()

    def is_in_the_log(self, group_id: str, partition: int, offset: int) -> None:
        """Check that an acknowledged offset was written before."""
        key = OffsetCommitKey(group_id, "t", partition)
        written = [record.value for batch in self.driver.log for record in batch if record.key == key]
        assert any(isinstance(value, OffsetCommitValue) and value.offset == offset for value in written)

    def saw_generation(self, group_id: str, response: dict[str, Any]) -> None:
        group = self.driver.shard.state.groups.get(group_id)
        if group is not None and response["members"]:
            self.leaders.setdefault((group, response["generation_id"]), set()).add(response["member_id"])

    def pick(self, index: int) -> tuple[str, str, str | None]:
        return self.ids[index % len(self.ids)]

    def generation(self, group_id: str) -> int:
        group = self.driver.shard.state.groups.get(group_id)
        return 1 if group is None else group.generation

    @rule(group_id=GROUPS, instance_id=INSTANCES, protocols=PROTOCOLS, known=st.booleans())
    def join_new(self, group_id: str, instance_id: str | None, protocols: dict[str, bytes], known: bool) -> None:
        self.join(group_id, "", instance_id, protocols, known)

    @precondition(lambda self: self.ids)
    @rule(index=st.integers(0, 30), protocols=PROTOCOLS)
    def join_again(self, index: int, protocols: dict[str, bytes]) -> None:
        group_id, member_id, instance_id = self.pick(index)
        self.join(group_id, member_id, instance_id, protocols, True)

    def join(
        self, group_id: str, member_id: str, instance_id: str | None, protocols: dict[str, bytes], known: bool
    ) -> None:
        request = JoinGroup(
            group_id=group_id,
            member_id=member_id,
            instance_id=instance_id,
            client_id="c",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=protocols,
            require_known_member_id=known,
            can_skip_assignment=known,
        )
        self.driver.shard.ask(self.token(group_id, instance_id), request, self.driver.now)
        self.finish()

    @precondition(lambda self: self.ids)
    @rule(index=st.integers(0, 30), behind=st.sampled_from([0, 0, 0, 1]))
    def sync(self, index: int, behind: int) -> None:
        group_id, member_id, instance_id = self.pick(index)
        group = self.driver.shard.state.groups.get(group_id)
        request = SyncGroup(
            group_id=group_id,
            generation=self.generation(group_id) - behind,
            member_id=member_id,
            instance_id=instance_id,
            assignments={} if group is None else {member: f"for {member}".encode() for member in group.members},
        )
        self.driver.shard.ask(self.token(group_id), request, self.driver.now)
        self.finish()

    @precondition(lambda self: self.ids)
    @rule(index=st.integers(0, 30))
    def heartbeat(self, index: int) -> None:
        group_id, member_id, instance_id = self.pick(index)
        try:
            self.driver.heartbeat(group_id, member_id, instance_id, self.generation(group_id))
        except KafkaError:
            pass
        self.finish()

    @precondition(lambda self: self.ids)
    @rule(index=st.integers(0, 30))
    def leave(self, index: int) -> None:
        group_id, member_id, _ = self.pick(index)
        self.driver.shard.ask(self.token(group_id), LeaveGroup(group_id, [Leaving(member_id)]), self.driver.now)
        self.finish()

    @rule(
        group_id=GROUPS,
        partition=st.integers(0, 2),
        offset=st.integers(0, 9),
        index=st.integers(0, 30),
        retention=st.sampled_from([None, None, None, 0, 5_000, 100_000]),
    )
    def commit(self, group_id: str, partition: int, offset: int, index: int, retention: int | None) -> None:
        member_id, generation = "", -1
        if self.ids and index % 2:
            group_id, member_id, _ = self.pick(index)
            generation = self.generation(group_id)
        token = self.token(group_id)
        request = OffsetCommit(
            group_id=group_id,
            member_id=member_id,
            generation=generation,
            offsets=(OffsetToCommit("t", partition, offset, -1, ""),),
            retention_ms=retention,
        )
        self.commits[token] = group_id, partition, offset
        try:
            self.driver.shard.ask(token, request, self.driver.now)
        except KafkaError:
            del self.asked[token]
        self.finish()

    @rule(group_id=GROUPS, partition=st.integers(0, 1), milliseconds=st.sampled_from([9_000, 21_000]))
    def commit_slowly(self, group_id: str, partition: int, milliseconds: int) -> None:
        """Time passes while the offset is on its way to the disk."""
        self.hold()
        self.commit(group_id, partition, 7, 0, None)
        self.wait(milliseconds)
        self.release()

    @rule(group_id=GROUPS, partition=st.integers(0, 2))
    def delete_offsets(self, group_id: str, partition: int) -> None:
        self.deleted.add((group_id, "t", partition))
        token = self.token(group_id)
        try:
            self.driver.shard.ask(token, OffsetDelete(group_id, {"t": [partition]}), self.driver.now)
        except KafkaError:
            del self.asked[token]
        self.finish()

    @rule(partition=st.integers(0, 2))
    def delete_topic(self, partition: int) -> None:
        self.deleted.update((group_id, "t", partition) for group_id in ("g", "h"))
        gone = [TopicPartition("t", partition)]
        self.driver.shard.decide(lambda state: offsets.delete_of_partitions(state, gone), self.driver.now)
        self.finish()

    @rule(group_id=GROUPS)
    def delete(self, group_id: str) -> None:
        self.deleted.update((group_id, "t", partition) for partition in range(3))
        self.driver.shard.ask(self.token(group_id), DeleteGroups([group_id]), self.driver.now)
        self.finish()

    @rule(milliseconds=st.sampled_from([1, 500, 3_000, 9_000, 21_000]))
    def wait(self, milliseconds: int) -> None:
        self.driver.wait(milliseconds)
        self.finish()

    @rule()
    def hold(self) -> None:
        self.driver.holding = True

    @rule()
    def release(self) -> None:
        self.driver.release()
        self.finish()

    @precondition(lambda self: self.driver.held)
    @rule(keep=st.integers(0, 3))
    def crash(self, keep: int) -> None:
        """Crash: the first few of the writes in flight reach the disk; no request is answered any more."""
        writes = [effect for effects in self.driver.held for effect in effects if isinstance(effect, Write)]
        self.driver.log += [write.records for write in writes[:keep]]
        self.driver.held.clear()
        self.driver.holding = False
        self.driver.restart()
        self.driver.replies.clear()
        self.asked.clear()

    @rule(error=ERRORS)
    def fail(self, error: ErrorCode) -> None:
        self.driver.next_failure = error

    @precondition(lambda self: not self.driver.held)
    @rule()
    def restart(self) -> None:
        self.driver.restart()
        self.finish()
        assert not self.asked

    @invariant()
    def groups_are_consistent(self) -> None:
        for group in self.driver.shard.state.groups.values():
            check(group)
            assert group.generation >= self.generations[group]
            self.generations[group] = group.generation

    @invariant()
    def waiters_wait_for_something(self) -> None:
        """A request that is not answered belongs to a member in a rebalance, or to a write that is not committed."""
        state = self.driver.shard.state
        waiting = {
            waiter
            for group in state.groups.values()
            for member in group.members.values()
            for waiter in (member.awaiting_join, member.awaiting_sync)
            if waiter is not None
        }
        if not self.driver.held:
            assert waiting == set(self.asked)
        for group in state.groups.values():
            if group.state is State.PREPARING_REBALANCE:
                assert ("join", group.group_id) in state.timers
            for member in group.members.values():
                alive = member.is_alive_by_waiting
                assert alive or ("session", group.group_id, member.member_id) in state.timers

    @invariant()
    def only_old_offsets_expire(self) -> None:
        """A deleted offset was deleted on request, or its last commit is as old as it said, or its group is empty."""
        for number, batch in enumerate(self.driver.log[self.looked_at :], self.looked_at):
            for key, value in batch:
                if value is None and isinstance(key, OffsetCommitKey):
                    assert (key.group, key.topic, key.partition) in self.deleted or self.has_expired(key, number)
        self.looked_at = len(self.driver.log)

    def has_expired(self, key: OffsetCommitKey, number: int) -> bool:
        before = [record.value for batch in self.driver.log[:number] for record in batch if record.key == key]
        last = next((value for value in reversed(before) if value is not None), None)
        assert isinstance(last, OffsetCommitValue)
        now = self.driver.now.wall_ms
        deadline = last.commit_timestamp + RETENTION_MS if last.expire_timestamp == -1 else last.expire_timestamp
        group = GroupMetadataKey(key.group)
        had_members = any(record.key == group and record.value for batch in self.driver.log for record in batch)
        return now >= deadline or had_members

    @invariant()
    def the_log_says_the_same(self) -> None:
        """A coordinator that loads the log, compacted or not, has the same offsets, and the groups that are settled."""
        if self.driver.held:
            return
        written = [(number, record) for number, batch in enumerate(self.driver.log) for record in batch]
        newest = {encode_key(record.key): number for number, (_, record) in enumerate(written)}
        self.compare_with(written)
        self.compare_with([written[number] for number in sorted(newest.values())])

    def compare_with(self, log: list[tuple[int, GroupRecord]]) -> None:
        loaded = GroupShard(self.driver.config, self.driver.random)
        for offset, record in log:
            loaded.replay(record, offset)
        live = self.driver.shard.state
        assert loaded.state.groups.keys() <= live.groups.keys()
        for group_id in live.groups.keys() - loaded.state.groups.keys():
            # Its last offset is deleted, or its first record could not be written: as in Kafka, memory knows it still.
            assert not live.offsets.of_group(group_id)
        for group_id in {*live.groups, *loaded.state.groups}:
            assert live.offsets.of_group(group_id) == loaded.state.offsets.of_group(group_id)
            group, other = live.groups.get(group_id), loaded.state.groups.get(group_id)
            if group is not None and group.state is State.STABLE:
                assert other is not None and other.state is State.STABLE
                assert other.generation == group.generation and other.leader == group.leader
                assert assignments(group) == assignments(other)

    def teardown(self) -> None:
        """Liveness: without requests every member is dropped, and every waiter is answered."""
        if not hasattr(self, "driver"):
            return
        self.driver.next_failure = None
        self.driver.release()
        self.finish()
        self.driver.wait(400_000)
        self.finish()
        for group in self.driver.shard.state.groups.values():
            assert group.state is State.EMPTY, group.state
        assert not self.asked
        assert all(len(leaders) == 1 for leaders in self.leaders.values())


def assignments(group: ClassicGroup) -> dict[str, bytes]:
    return {member.member_id: member.assignment for member in group.members.values()}


def check(group: ClassicGroup) -> None:
    """The invariants that classic.py and member.py state beside their fields."""
    members = group.members
    assert group.leader in members if members else group.leader is None
    assert group.static_members == {m.instance_id: m.member_id for m in members.values() if m.instance_id is not None}
    assert not group.pending_members & members.keys()
    assert group.pending_sync <= members.keys()
    assert group.awaiting_join_count == sum(m.awaiting_join is not None for m in members.values())
    support = Counter(name for member in members.values() for name in member.protocols)
    assert {name: count for name, count in group._support.items() if count} == support
    assert not members or len(members) in support.values()
    assert group.state is not State.EMPTY or not members
    if group.state is not State.COMPLETING_REBALANCE:
        assert all(member.awaiting_sync is None for member in members.values())
    if group.state is State.COMPLETING_REBALANCE:
        assert all(member.awaiting_join is None for member in members.values())


GroupMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, derandomize=True)
TestGroups = GroupMachine.TestCase
