"""The rule of commit on three replicas that lead, follow, fail and lose power, against a model that sees all of them.

Every node has a real `Partition` on a log of its own; the controller, the followers' fetches and the disks are the
model's. Nobody may hear success for a record that is not where the rule says, or that a later leader lacks; everybody
hears something, once; high watermarks grow within an epoch and stay below what the in-sync set has.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import PartitionRegistration
from ottla.model import TopicPartition
from ottla.replication.partition import ACKS_ALL, ACKS_LEADER, Partition
from ottla.replication.purgatory import DelayedFetch
from tests.unit.replication.numbers_log import NumbersLog

NODES = (1, 2, 3)
NEVER_FLUSHED = 1 << 62
LAG_MS = 30_000

Record = tuple[int, int]
"""(leader epoch, number)."""


class RecordsLog(NumbersLog):
    """`durable` of its records survive a power loss."""

    def __init__(self, flush_messages: int, records: list[Record]) -> None:
        super().__init__(flush_messages)
        self.records = list(records)
        self.log_end_offset = len(records)
        self.durable = len(records)

    def append_as_leader(self, records: Any, leader_epoch: int, **options: Any) -> Any:
        info = super().append_as_leader(records, leader_epoch, **options)
        self.records.append((leader_epoch, int(records)))
        return info

    def truncate(self, offset: int) -> None:
        super().truncate(offset)
        del self.records[offset:]

    def copy(self, records: list[Record]) -> None:
        """Append as a follower."""
        self.records += records
        self.log_end_offset = len(self.records)
        if self.log_end_offset - self.durable >= self.flush_messages:
            self.begin_flush()


class Node:
    def __init__(self, node_id: int, flush_messages: int, records: list[Record], seen: list[PartitionRegistration]):
        self.id = node_id
        self.log = RecordsLog(flush_messages, records)
        self.partition = Partition(node_id, TopicPartition("t", 0), UUID(int=5), self.log)  # type: ignore[arg-type]
        self.partition.set_min_isr(2)
        self.alive = True
        self.heard_of = 0
        """How many of the controller's decisions it has heard."""
        self.proposed: tuple[int, ...] | None = None

    @property
    def reported_end(self) -> int:
        """The offset it fetches from as a follower: it has everything below as safe as the topic asks."""
        return self.log.safe_end_offset


@dataclass
class Append:
    """An append and its waiter."""

    node: Node
    offset: int
    record: Record
    acks: int
    heard: list[ErrorCode] = field(default_factory=list)


class Cluster:
    def __init__(self, flush_messages: int, done: Counter[str]) -> None:
        self.flush_messages = flush_messages
        self.done = done
        self.numbers = 0
        self.now_ms = 0
        self.appends: list[Append] = []
        self.safe: dict[int, Record] = {}
        """Acknowledged with acks=all, by offset: every leader from now on has it."""
        self.decisions = [PartitionRegistration(NODES, NODES, 1, 0, 0, (UUID(int=9),) * 3)]
        self.nodes = {node_id: Node(node_id, flush_messages, [], self.decisions) for node_id in NODES}
        self.marks: dict[tuple[int, int], int] = {}
        """The high watermark of a node in an epoch."""
        self.waiting_reads: list[list[int]] = []
        for node in self.nodes.values():
            self.hear(node)

    # The controller.

    @property
    def now(self) -> PartitionRegistration:
        return self.decisions[-1]

    def decide(self, isr: tuple[int, ...], leader: int, *, new_epoch: bool) -> None:
        epoch = self.now.leader_epoch + new_epoch
        number = self.now.partition_epoch + 1
        self.decisions.append(PartitionRegistration(NODES, isr, leader, epoch, number, self.now.directories))
        if new_epoch and leader >= 0:
            self.done["elections"] += 1
            records = self.nodes[leader].log.records
            for offset, record in self.safe.items():
                assert records[offset : offset + 1] == [record], "an acknowledged record is lost"

    def elect(self) -> None:
        """After somebody died or came back: the dead leave the in-sync set, but for the last one."""
        living = tuple(each for each in self.now.isr if self.nodes[each].alive)
        isr = living or self.now.isr[:1]
        leader = self.now.leader if self.now.leader in living else (living[0] if living else -1)
        if (isr, leader) != (self.now.isr, self.now.leader):
            self.decide(isr, leader, new_epoch=leader != self.now.leader)

    # What may happen.

    def hear(self, node: Node) -> None:
        """A node hears the controller's newest decision, and perhaps not those in between."""
        if node.alive:
            node.proposed = None
            node.heard_of = len(self.decisions)
            if self.now.leader != node.id:
                self.cut(node)
            node.partition.update(self.now)

    def cut(self, node: Node) -> None:
        """A follower drops what the leader does not have, before it follows."""
        if self.now.leader < 0:
            return
        theirs = self.nodes[self.now.leader].log.records
        mine = node.log.records
        same = 0
        while same < min(len(mine), len(theirs)) and mine[same] == theirs[same]:
            same += 1
        if same < len(mine):
            self.done["truncations"] += 1
            node.partition.update(self.now)  # those who wait for something hear that first
            node.log.truncate(same)

    def append(self, node: Node, acks: int) -> None:
        self.numbers += 1
        offset, record = node.log.log_end_offset, (node.partition.leader_epoch, self.numbers)
        try:
            info = node.partition.append_as_leader(str(self.numbers).encode(), acks, now_ms=self.now_ms)
        except KafkaError:
            self.done["refused"] += 1
            return
        append = Append(node, offset, record, acks)
        self.appends.append(append)
        node.partition.wait(info.last_offset + 1, info.leader_epoch, acks, lambda error: self.answered(append, error))

    def answered(self, append: Append, error: ErrorCode) -> None:
        assert append.node.alive, "a dead node answers nobody"
        append.heard.append(error)
        self.done[error.name] += 1
        if error:
            return
        log = append.node.log
        assert log.records[append.offset] == append.record
        if self.flush_messages == 1:
            assert log.durable > append.offset, "not on this disk"
        if append.acks == ACKS_ALL:
            assert append.node.partition.leader_epoch == append.record[0]
            self.check_committed(append.node, append.offset, append.record)
            self.safe[append.offset] = append.record

    def check_committed(self, leader: Node, offset: int, record: Record) -> None:
        """On every replica that may be elected, as safe as the topic asks."""
        for node_id in {*leader.partition.isr, *self.now.isr}:
            log = self.nodes[node_id].log
            assert log.records[offset : offset + 1] == [record], f"node {node_id} of the in-sync set lacks it"
            if self.flush_messages == 1:
                assert log.durable > offset, f"node {node_id} of the in-sync set has not fsynced it"

    def fetch(self, node: Node, count: int) -> None:
        """A follower asks the leader that it knows of, which may not be the newest, and copies some records."""
        leader = self.nodes.get(node.partition.leader_id)
        if leader is None or not leader.alive or not node.alive or leader is node or not node.log.is_open:
            return
        if leader.partition.leader_epoch == node.partition.leader_epoch and self.diverges(node, leader):
            return
        try:
            leader.partition.on_follower_fetch(
                node.id, node.reported_end, node.partition.leader_epoch, self.now_ms, broker_epoch=-1
            )
        except KafkaError:
            self.done["refused fetches"] += 1
            return
        self.done["fetches"] += 1
        end = node.log.log_end_offset
        node.log.copy(leader.log.records[end : end + count])

    def round(self) -> None:
        """Periodic activity without other events."""
        for _ in range(2):
            for node in self.nodes.values():
                if node.heard_of < len(self.decisions):
                    self.hear(node)
                self.fetch(node, 9)
                self.flush(node)

    def diverges(self, node: Node, leader: Node) -> bool:
        mine, theirs = node.log.records, leader.log.records
        return mine != theirs[: len(mine)]

    def flush(self, node: Node) -> None:
        if node.alive and node.log.is_open:
            node.log.end_flush()

    def propose(self, node: Node, other: int) -> None:
        """The leader asks the controller for another in-sync set; `settle` decides."""
        partition = node.partition
        if not node.alive or not partition.is_leader or other == node.id or node.proposed is not None:
            return
        if other in partition.isr:
            isr = tuple(each for each in partition.isr if each != other)
        else:
            replica = partition.others[other]
            if replica.end_offset < node.log.high_watermark or not self.nodes[other].alive:
                return
            start = next(
                (at for at, record in enumerate(node.log.records) if record[0] == partition.leader_epoch), None
            )
            if replica.end_offset < (node.log.log_end_offset if start is None else start):
                return  # it may still have what an earlier leader wrote
            isr = (*partition.isr, other)
        node.proposed = isr
        partition.propose_isr(isr)

    def settle(self, node: Node) -> None:
        """The controller decides on what a leader asked for."""
        if not node.alive or node.proposed is None:
            return
        isr, node.proposed = node.proposed, None
        current = node.heard_of == len(self.decisions) and self.now.leader == node.id
        if current and all(self.nodes[each].alive for each in isr):
            self.done["changes of the in-sync set"] += 1
            self.decide(isr, node.id, new_epoch=False)
            self.hear(node)
        else:
            node.partition.withdraw_isr()

    def lose(self, node: Node, how: str) -> None:
        """`power`: what was not fsynced is gone; `kill`: only the process; `disk`: the log fails under it."""
        if not node.alive or not node.log.is_open:
            return
        if how == "disk":
            node.log.fail()
            self.expect_nobody_waits(node)
        if how == "power" and self.flush_messages != 1:
            how = "kill"  # such a topic promises nothing then
        self.done[how] += 1
        node.alive = False
        kept = node.log.durable if how == "power" else node.log.log_end_offset
        del node.log.records[kept:]
        for append in self.appends:
            if append.node is node and not append.heard:
                append.heard.append(ErrorCode.network_exception)  # its connection broke
        self.elect()

    def start(self, node_id: int) -> None:
        """It comes back with what its disk has, and without knowing what it was."""
        old = self.nodes[node_id]
        if old.alive:
            return
        was_sole = self.now.isr == (node_id,)
        node = self.nodes[node_id] = Node(node_id, self.flush_messages, old.log.records, self.decisions)
        if was_sole:
            self.decide((node_id,), node_id, new_epoch=True)
        self.hear(node)

    def wait_for_bytes(self, node: Node) -> None:
        woken: list[int] = []
        self.waiting_reads.append(woken)
        at = node.log.high_watermark

        def ready() -> None:
            self.done["woken reads"] += 1
            assert node.log.high_watermark > at or not node.partition.is_leader or not node.log.is_open
            delayed.leave()

        delayed = DelayedFetch((node.partition,), 1, ready)

    # What holds at any time.

    def check(self) -> None:
        for node in self.nodes.values():
            if not node.alive:
                continue
            partition, log = node.partition, node.log
            if partition.is_leader and partition.leader_epoch == self.now.leader_epoch:
                mark = (node.id, partition.leader_epoch)
                assert log.high_watermark >= self.marks.get(mark, 0), "went back within an epoch"
                if log.high_watermark > self.marks.get(mark, 0):
                    self.marks[mark] = log.high_watermark
                    for offset in range(log.high_watermark):
                        self.check_committed(node, offset, log.records[offset])
            waiting = [each for each in self.appends if each.node is node and not each.heard]
            for append in waiting:
                assert partition.is_leader and append.record[0] == partition.leader_epoch
                assert append.acks == ACKS_LEADER or append.offset >= log.high_watermark, "no answer"
        assert all(len(append.heard) <= 1 for append in self.appends)

    def expect_nobody_waits(self, node: Node) -> None:
        for append in self.appends:
            assert append.node is not node or len(append.heard) == 1

    def finish(self) -> None:
        for number, node in enumerate(self.nodes.values()):
            if node.alive:
                if number % 2:
                    node.partition.remove()
                else:
                    node.log.fail()
                self.expect_nobody_waits(node)
        assert all(len(append.heard) == 1 for append in self.appends)


node_ids = st.sampled_from(NODES)
actions = st.one_of(
    st.tuples(st.just("append"), node_ids, st.sampled_from([ACKS_ALL, ACKS_ALL, ACKS_LEADER])),
    st.tuples(st.just("append"), st.just(0), st.just(ACKS_ALL)),
    st.tuples(st.just("append"), st.just(0), st.just(ACKS_ALL)),
    st.tuples(st.just("round"), st.just(0), st.none()),
    st.tuples(st.just("round"), st.just(0), st.none()),
    st.tuples(st.just("fetch"), node_ids, st.integers(0, 3)),
    st.tuples(st.just("fetch"), node_ids, st.just(9)),
    st.tuples(st.just("flush"), node_ids, st.none()),
    st.tuples(st.just("hear"), node_ids, st.none()),
    st.tuples(st.just("propose"), st.just(0), node_ids),
    st.tuples(st.just("settle"), st.just(0), st.none()),
    st.tuples(st.just("lose"), node_ids, st.sampled_from(["power", "kill", "disk"])),
    st.tuples(st.just("elect"), node_ids, st.none()),
    st.tuples(st.just("start"), node_ids, st.none()),
    st.tuples(st.just("wait_for_bytes"), node_ids, st.none()),
    st.tuples(st.just("later"), st.just(0), st.sampled_from([1, LAG_MS + 1])),
)


def play(flush_messages: int, script: list[tuple[str, int, Any]], done: Counter[str]) -> None:
    cluster = Cluster(flush_messages, done)
    for name, node_id, argument in script:
        node = cluster.nodes.get(node_id or cluster.now.leader)
        if name == "later":
            cluster.now_ms += argument
        elif name == "round":
            cluster.round()
        elif node is None or not node.alive:
            if name == "start" and node is not None:
                cluster.start(node.id)
        elif name in ("append", "fetch", "propose", "lose"):
            getattr(cluster, name)(node, argument)
        elif name == "elect":
            if node.id in cluster.now.isr and node.id != cluster.now.leader:
                cluster.decide(cluster.now.isr, node.id, new_epoch=True)
        elif name != "start":
            getattr(cluster, name)(node)
        cluster.check()
    cluster.finish()


@pytest.mark.parametrize("flush_messages", [1, NEVER_FLUSHED])
def test_success_means_committed_for_good(flush_messages: int) -> None:
    done: Counter[str] = Counter()

    @settings(max_examples=200)
    @given(st.lists(actions, min_size=30, max_size=120))
    def run(script: list[tuple[str, int, Any]]) -> None:
        play(flush_messages, script, done)

    run()
    for what in (
        "none",
        "not_leader_or_follower",
        "kafka_storage_error",
        "elections",
        "truncations",
        "fetches",
        "refused fetches",
        "changes of the in-sync set",
        "woken reads",
        "disk",
        "kill",
    ):
        assert done[what] >= 10, (what, done)
    assert flush_messages != 1 or done["power"] >= 10
