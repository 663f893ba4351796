"""Every state that a small quorum can get into: the real core, three voters, short logs, all orders of events.

A state is three frozen nodes, the messages on their way and what history has to be remembered (who led each epoch, what
was committed). From each state all that can happen next is tried, breadth first: a message arrives, arrives twice or is
lost; a timer fires; a log is fsynced; a node asks; a node puts a snapshot in the place of a part of its log; a node
crashes, with or without what was not fsynced, also between the snapshot that it got and the cut of its log. What the
drivers do around the core is here in its shortest form (`quorum_requests.py`, `metadata_follower.py`). Times are left
out: any timer may fire at any moment.

`python -m tests.unit.quorum.exploration [epochs] [messages]` explores more than the suite does.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from ottla.errors import KafkaError
from ottla.protocol.internal.quorum_records import QuorumStateFile
from ottla.quorum import changes
from ottla.quorum.core import QuorumCore
from ottla.quorum.divergence import divergence, needs_snapshot
from ottla.quorum.election import Election, LogEnd, Timing
from ottla.quorum.leader import Leadership, Replica
from ottla.quorum.snapshot import SnapshotId, takes_place
from ottla.quorum.state import BeginRequest, Ready, Role, VoteRequest
from ottla.quorum.voters import Configuration, Configurations, ReplicaKey, VoterSet, voter
from tests.unit.quorum.states import (
    IDS,
    VOTERS_UNIT,
    Log,
    Message,
    Node,
    State,
    Violation,
    checked,
    end_of,
    least,
    log_end,
    with_message,
)

KEYS = {each: ReplicaKey(each) for each in IDS}
MAJORITY = 2
SNAPSHOT = "snapshot"
"""An answer to a fetch with the records of a snapshot."""
LATER = 1 << 40
CONFIGURATION = Configuration(-2, 0, VoterSet.of(KEYS.values()))


class Direct(QuorumCore):
    """Without pre-votes: a node that waits too long is a candidate at once. Pre-votes change no epoch and no vote, so
    all that can happen with them can happen without."""

    __slots__ = ()

    def _stand(self, now: int) -> None:
        self.unacknowledged.clear()
        self._candidate(now)


@dataclass
class Rules:
    """What the model leaves to the drivers, so that it can be left out."""

    core: type[QuorumCore] = Direct
    persists_votes: bool = True
    waits_for_fsync: bool = True
    """Whether a follower asks for more only when it has fsynced what it has."""
    checks_divergence: bool = True
    pre_votes: bool = False
    """Whether the core asks first; then what others know of the leader counts."""
    one_change: bool = True
    """Whether a change of the voters waits until the one before it is committed."""
    counts_at_once: bool = True
    """Whether a change counts before it is committed."""
    fences: bool = True
    """Whether a leader refuses fetches of another epoch."""
    follows_one: bool = True
    """Whether answers count only from the leader and for the log that was asked for."""
    needs_snapshot: Callable[[int, SnapshotId | None, int, int], bool] = needs_snapshot
    takes_place: Callable[[SnapshotId, int, int], bool] = takes_place
    snapshots_committed: bool = True
    """Whether a snapshot has only what is committed."""


@dataclass
class World:
    """What is tried, and how far."""

    epochs: int = 2
    """The last epoch that may be begun."""
    messages: int = 2
    """On their way at once."""
    in_flight: frozenset[str] = frozenset({"vote", "fetch"})
    """What may be late. Other requests are answered in the moment they are sent, or their answer is lost."""
    kinds: frozenset[str] = frozenset({"vote", "begin", "fetch"})
    """What is asked at all."""
    crashes: bool = True
    rules: Rules = field(default_factory=Rules)
    states_max: int = 1_000_000
    changes: int = 0
    """How often the voters may change; with any, they are in the log (`kraft.version` 1)."""
    snapshots: bool = False
    """Whether nodes drop the beginning of their logs for snapshots, and may be killed while they load one."""
    met: set[str] = field(default_factory=set)
    """Interesting facts that a state does not show."""

    def voters(self, log: Log) -> tuple[int, ...]:
        """The voters by this log."""
        named = [record // VOTERS_UNIT for record in log if record >= VOTERS_UNIT]
        return tuple(id_ for id_ in IDS if not named or named[-1] & 1 << id_)

    def configurations(self, node: Node) -> Configurations:
        if not self.changes:
            return Configurations(CONFIGURATION)
        found = Configurations(Configuration(0, 1, VoterSet.of(KEYS.values())))
        log = node.log if self.rules.counts_at_once else node.log[: max(node.high_watermark, 0)]
        for offset, record in enumerate(log):
            if record >= VOTERS_UNIT:
                found.add(offset, VoterSet.of(KEYS[id_] for id_ in self.voters((record,))).record())
        found.commit(node.high_watermark)
        return found

    def thaw(self, number: int, node: Node) -> QuorumCore:
        stored = QuorumStateFile(node.leader, node.epoch, node.voted, voters=IDS, data_version=0)
        end = log_end(node.log)
        core = self.rules.core(KEYS[number], self.configurations(node), stored, end.offset, end.epoch, _RANDOM, _TIMING)
        core.role, core.high_watermark, core.deadline_ms = node.role, node.high_watermark, 0
        if not core.is_voter and node.role is not Role.RESIGNED and node.role is not Role.LEADER:
            core.deadline_ms = None
        core._persisted, core._committed = stored, node.high_watermark
        core.has_fetched = node.fetched
        if node.role is Role.RESIGNED:
            core.unacknowledged = {id_: KEYS[id_] for id_ in IDS if id_ != number}
        if node.granted is not None:
            core.election = Election(dict.fromkeys(node.granted))
        if node.ends:
            seen = {
                id_: Replica(KEYS[id_], at, 0, 0 if at == end.offset else -1, 0)
                for id_, at in zip(IDS, node.ends, strict=True)
            }
            replicas = {id_: seen.pop(id_) for id_ in core.voters._by_id}
            core.leadership = Leadership(KEYS[number], node.epoch_start, replicas, 0)
            core.leadership.observers = {KEYS[id_]: each for id_, each in seen.items() if each.end_offset >= 0}
        return core

    def freeze(self, core: QuorumCore, log: Log, durable: int, start: int) -> Node:
        stored, election, leadership = core.stored, core.election, core.leadership
        if core.log_end != log_end(log):
            raise Violation(f"a log that ends with {log_end(log)} is taken for one that ends with {core.log_end}")
        if self.rules.counts_at_once and tuple(sorted(core.voters._by_id)) != self.voters(log):
            raise Violation("others vote than the log says")
        return Node(
            core.role,
            stored.leader_id,
            core.epoch,
            stored.voted_id,
            log,
            durable,
            core.high_watermark,
            None if election is None else tuple(sorted(election.granted)),
            -1 if leadership is None else leadership.epoch_start,
            () if leadership is None else tuple(_known_end(leadership, id_) for id_ in IDS),
            core.has_fetched and self.rules.pre_votes,
            start,
        )

    def start(self, *logs: Log, epochs: tuple[int, ...] = (0, 0, 0), leaders: tuple[int, ...] = (-1, -1, -1)) -> State:
        """Nodes that have just started, with what they have on disk."""
        nodes = tuple(
            Node(Role.UNATTACHED, leader, epoch, -1, log, len(log), -1)
            for log, epoch, leader in zip(logs or ((), (), ()), epochs, leaders, strict=True)
        )
        return State(nodes)

    # What can happen.

    def next(self, state: State) -> Iterator[State]:
        room = len(state.messages) < self.messages
        for number, node in zip(IDS, state.nodes, strict=True):
            if self.may_time_out(node):
                yield self.act(state, number, lambda core, log: core.on_timeout(LATER))
            if node.role is Role.LEADER and sum(each >= VOTERS_UNIT for each in node.log) < self.changes:
                yield from self.changed(state, number, node)
            if node.durable < len(node.log) and "fetch" in self.kinds:
                yield self.act(state, number, lambda core, log: core.on_flushed(len(log), 0), durable=len(node.log))
            if self.crashes:
                yield from self.crashed(state, number, node)
            if self.snapshots:
                yield from self.snapshotted(state, number, node)
            for message in self.wanted(number, node):
                if message[0] not in self.kinds:
                    continue
                if message[0] not in self.in_flight:
                    yield from self.exchanged(state, message)
                elif room and message not in state.messages:
                    yield state._replace(messages=with_message(state.messages, message))
        for message in state.messages:
            left = tuple(each for each in state.messages if each != message)
            yield state._replace(messages=left)
            yield from self.arrived(state._replace(messages=left), message)
            if room:
                yield from self.arrived(state, message)

    def arrived(self, state: State, message: Message) -> Iterator[State]:
        yield from self.killed_before_the_cut(state, message)
        after, answer = self.deliver(state, message)
        if answer is not None and len(after.messages) < self.messages:
            after = after._replace(messages=with_message(after.messages, answer))
        yield after

    def exchanged(self, state: State, message: Message) -> Iterator[State]:
        after, answer = self.deliver(state, message)
        yield after
        if answer is not None:
            yield from self.killed_before_the_cut(after, answer)
            yield self.deliver(after, answer)[0]

    def snapshotted(self, state: State, number: int, node: Node) -> Iterator[State]:
        """A node writes a snapshot of what it has applied, and drops that from its log."""
        for end in range(
            node.start + 1, (node.high_watermark if self.rules.snapshots_committed else len(node.log)) + 1
        ):
            yield self.put(state, number, node._replace(start=end))

    def killed_before_the_cut(self, state: State, message: Message) -> Iterator[State]:
        """The leader's snapshot has its name on disk, and the log is still there (`MetadataLog.open`)."""
        if message[0] != "fetched" or message[8] != SNAPSHOT or not self.installs(state, message):
            return
        number, content = message[2], message[9]
        node, end = state.nodes[number - 1], len(content)
        for kept in {node.durable, len(node.log)}:
            log = node.log[:kept]
            epoch = log[end - 1] % VOTERS_UNIT if node.start < end <= kept else -1
            if self.rules.takes_place(SnapshotId(end, log_end(content).epoch), kept, epoch):
                self.met.add("log longer than the snapshot dropped" if kept > end else "log dropped at the start")
                after = node._replace(log=content, durable=end, start=end)
            else:
                log = (*content, *log[end:])
                after = node._replace(log=log, durable=len(log))
            yield from self.crashed(state, number, after)

    def installs(self, state: State, message: Message) -> bool:
        """Whether a snapshot that comes is put in the place of the log, by what is known when it has come."""
        core = self.thaw(message[2], state.nodes[message[2] - 1])
        source, (offset, last_epoch, leader, epoch), content = message[1], message[3:7], message[9]
        if leader != source or epoch < core.epoch or core.role in (Role.LEADER, Role.CANDIDATE, Role.RESIGNED):
            return False
        return core.log_end == (last_epoch, offset) and len(content) > core.high_watermark

    def changed(self, state: State, number: int, node: Node) -> Iterator[State]:
        """The leader is asked to add or to remove one voter."""
        for id_ in IDS:
            core = self.thaw(number, node)
            try:
                if not self.rules.one_change:
                    record = core.voters.without(id_).record()
                elif id_ in core.voters:
                    record = changes.removed(core, KEYS[id_], 0)
                else:
                    record = changes.added(core, voter(KEYS[id_]), 0)
            except KafkaError:
                continue
            if not record.voters:
                continue
            mask = sum(1 << each.voter_id for each in record.voters)
            core.on_appended(len(node.log) + 1, core.epoch)
            core.on_configuration(len(node.log), record, 0)
            yield self.put(
                state, number, self.freeze(core, (*node.log, core.epoch + VOTERS_UNIT * mask), node.durable, node.start)
            )

    def may_time_out(self, node: Node) -> bool:
        return node.role is Role.LEADER or node.epoch < self.epochs

    def wanted(self, number: int, node: Node) -> Iterator[Message]:
        core = self.thaw(number, node)
        for request in core.requests(LATER):
            to = request.to.node_id
            if isinstance(request, VoteRequest):
                yield ("vote", number, to, request.epoch, request.last_epoch, request.end_offset, request.pre_vote)
            elif isinstance(request, BeginRequest):
                yield ("begin", number, to, request.epoch)
            else:
                yield ("end", number, to, request.epoch)
        if node.role is Role.LEADER:  # others find out by asking
            for id_ in IDS:
                if id_ not in core.voters:
                    yield ("begin", number, id_, node.epoch)
        is_safe = node.durable == len(node.log) or not self.rules.waits_for_fsync
        if node.role is Role.FOLLOWER and is_safe:
            yield ("fetch", number, node.leader, node.epoch, *reversed(log_end(node.log)))

    def crashed(self, state: State, number: int, node: Node) -> Iterator[State]:
        for kept in {node.durable, len(node.log)}:
            log = node.log[:kept]
            voted = node.voted if self.rules.persists_votes else -1
            before = Node(Role.UNATTACHED, node.leader, node.epoch, voted, log, len(log), -1, start=node.start)
            core = self.thaw(number, before)
            after = self.took(state, number, core, core.start(0), log, len(log))
            if after != state:
                yield after

    # Steps.

    def act(
        self, state: State, number: int, step: Callable[[QuorumCore, Log], Ready], durable: int | None = None
    ) -> State:
        node = state.nodes[number - 1]
        core = self.thaw(number, node)
        ready = step(core, node.log)
        return self.took(state, number, core, ready, node.log, node.durable if durable is None else durable)

    def took(self, state: State, number: int, core: QuorumCore, ready: Ready, log: Log, durable: int) -> State:
        if ready.control_records:
            log = (*log, core.epoch)
            core.on_appended(len(log), core.epoch)
        if core.is_leader and not core.is_voter and core.configurations.newest.offset < core.high_watermark:
            core.resign(0)
        return self.put(state, number, self.freeze(core, log, durable, state.nodes[number - 1].start))

    def put(self, state: State, number: int, node: Node) -> State:
        before = state.nodes[number - 1]
        nodes = tuple(node if id_ == number else each for id_, each in zip(IDS, state.nodes, strict=True))
        return checked(state._replace(nodes=nodes), number, before, self.voters(node.log))

    def deliver(self, state: State, message: Message) -> tuple[State, Message | None]:
        """What a message does where it arrives, and what is answered."""
        kind, source, target = message[:3]
        node = state.nodes[target - 1]
        core = self.thaw(target, node)
        log, durable = node.log, node.durable
        answer: Message | None = None
        ready = Ready()
        if kind == "vote":
            epoch, last_epoch, end, pre_vote = message[3:]
            granted = False
            if epoch >= core.epoch and not core.alone:
                ready, granted = core.on_vote(KEYS[source], epoch, LogEnd(last_epoch, end), 0, pre_vote=pre_vote)
            answer = ("voted", target, source, epoch, pre_vote, granted, core.leader_id, core.epoch)
        elif kind == "voted":
            epoch, pre_vote, granted, leader, known = message[3:]
            core.heard(leader, known, 0)
            ready = core.on_vote_answer(VoteRequest(KEYS[source], epoch, 0, 0, pre_vote), 0, granted=granted)
        elif kind == "end":
            if message[3] >= core.epoch:
                ready = core.on_end(source, message[3], (), 0)
        elif kind == "begin":
            if not core.alone:
                ready = core.heard(source, message[3], 0, from_leader=True)
        elif kind == "fetch":
            answer = self.serve(core, log, message, node.start)
        else:
            return self.fetched(state, core, node, message), None
        return self.took(state, target, core, ready, log, durable), answer

    def serve(self, core: QuorumCore, log: Log, message: Message, start: int) -> Message:
        _, source, target, epoch, offset, last_epoch = message
        empty = (None, ())
        if not core.is_leader or (epoch != core.epoch and self.rules.fences):
            return ("fetched", target, source, offset, last_epoch, core.leader_id, core.epoch, -1, *empty)
        snapshot = SnapshotId(start, log_end(log[:start]).epoch) if start else None
        apart = divergence(offset, last_epoch, end_of(log, last_epoch, start), log_end(log))
        if self.rules.needs_snapshot(start, snapshot, offset, last_epoch):
            row = (-1, SNAPSHOT, log[:start])
        elif apart is not None and self.rules.checks_divergence and (offset, last_epoch) != snapshot:
            row = (-1, apart, ())
        else:
            core.on_fetch(KEYS[source], min(offset, len(log)), 0)
            first = max(offset, start)
            row = (core.high_watermark, None, log[first : first + 1])
        return ("fetched", target, source, offset, last_epoch, core.leader_id, core.epoch, *row)

    def fetched(self, state: State, core: QuorumCore, node: Node, message: Message) -> State:
        _, source, target, offset, last_epoch, leader, epoch, high_watermark, apart, records = message
        log, durable = node.log, node.durable
        is_asked = log_end(log) == (last_epoch, offset)
        if leader != source:
            ready = core.heard(leader, epoch, 0)
            return self.took(state, target, core, ready, log, durable)
        if self.rules.follows_one and (epoch < core.epoch or not is_asked):
            return state
        if not self.rules.follows_one or core.role not in (Role.LEADER, Role.CANDIDATE, Role.RESIGNED):
            core.on_fetched(leader, epoch, 0)
        if self.rules.follows_one and not (core.role is Role.FOLLOWER and core.stored.leader_id == leader):
            return self.put(state, target, self.freeze(core, log, durable, node.start))
        start = node.start
        if apart == SNAPSHOT:
            if len(records) > node.high_watermark:
                self.met.add(
                    "snapshot after a divergent log" if log[: len(records)] != records[: len(log)] else "snapshot"
                )
                named = VoterSet.of(map(KEYS.get, self.voters(records)))
                voters = Configuration(len(records) - 1, 1, named) if self.changes else None
                core.on_snapshot(len(records), log_end(records).epoch, voters)
                log, durable, start = records, len(records), len(records)
        elif apart is not None:
            own_end = end_of(log, apart[0], node.start)[1]
            end = min(apart[1], own_end) if own_end >= 0 else apart[1]
            if end < node.high_watermark:
                raise Violation(f"node {target} has to cut what is committed")
            log = log[:end]
            durable = min(durable, end)
            core.on_truncated(end, log_end(log).epoch)
        else:
            log = (*log[:offset], *records)
            core.on_appended(len(log), log_end(log).epoch)
            for record in records:
                if record >= VOTERS_UNIT:
                    core.on_configuration(len(log) - 1, VoterSet.of(map(KEYS.get, self.voters((record,)))).record(), 0)
            core.on_leader_high_watermark(high_watermark)
        return self.put(state, target, self.freeze(core, log, durable, start))

    # Exploration.

    def explore(self, *starts: State) -> Found:
        self.met.clear()
        found = Found(reached=self.met)
        level = [least(each) for each in starts]
        seen = set(level)
        while level:
            following = []
            for state in level:
                found.look(state)
                for after in self.next(state):
                    found.steps += 1
                    after = least(after)
                    if after not in seen:
                        seen.add(after)
                        following.append(after)
            if len(seen) > self.states_max:
                raise Violation(f"more than {self.states_max} states")
            found.depth += 1
            level = following
        found.states = len(seen)
        return found


@dataclass
class Found:
    """What an exploration came across."""

    states: int = 0
    steps: int = 0
    depth: int = 0
    reached: set[str] = field(default_factory=set)

    def look(self, state: State) -> None:
        nodes = state.nodes
        candidates = [each.epoch for each in nodes if each.role is Role.CANDIDATE]
        if len(candidates) > len(set(candidates)):
            self.reached.add("two candidates")
        for node in nodes:
            if (
                any(record >= VOTERS_UNIT for record in node.log[node.high_watermark :])
                and node.role is not Role.LEADER
            ):
                self.reached.add("uncommitted voters")
            if node.role is Role.PROSPECTIVE and node.leader >= 0:
                self.reached.add("pre-vote beside a leader")
            if node.role is Role.FOLLOWER and nodes[node.leader - 1].role is Role.RESIGNED:
                self.reached.add("follower of who resigned")
            if node.role is Role.LEADER and sum(each.epoch > node.epoch for each in nodes) >= MAJORITY:
                self.reached.add("stale leader")
        for one, other in ((0, 1), (0, 2), (1, 2)):
            if any(a != b for a, b in zip(nodes[one].log, nodes[other].log, strict=False)):
                self.reached.add("divergent suffix")
        if any(
            message[0] == "voted" and message[5] and message[3] < nodes[message[2] - 1].epoch
            for message in state.messages
        ):
            self.reached.add("late vote")
        if any(record >= VOTERS_UNIT for record in state.committed):
            self.reached.add("committed voters")
            if len(state.leaders) > 1:
                self.reached.add("another leader after a change")
        if len(state.leaders) > 1 and state.committed:
            self.reached.add("commit after another leader")


def _known_end(leadership: Leadership, id_: int) -> int:
    """How far the leader knows a node to be; -1 where it does not."""
    found = leadership.voters.get(id_) or leadership.observers.get(KEYS[id_])
    return -1 if found is None else found.end_offset


_RANDOM = Random(1)
_TIMING = Timing()


def main() -> None:
    epochs, messages = (*map(int, sys.argv[1:]), 2, 2)[:2] if len(sys.argv) > 2 else (2, 2)
    began = time.monotonic()
    world = World(epochs=epochs, messages=messages, states_max=20_000_000)
    found = world.explore(world.start())
    print(found, f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
