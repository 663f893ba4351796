"""Every course of events of a small cluster: three replicas, short logs, explored breadth-first.

The leader's and the followers' side are the real `Partition` and `Followed`; the controller, the network and the disks
are the model's. Fetches are delivered late, twice or never; brokers crash, with or without the records that were not
fsynced, and come back; leaders lag, are deposed and go on in ignorance. The number of states is pinned, whatever is of
interest has to be reached, and without any one rule an invariant breaks.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import PartitionRegistration
from ottla.model import TopicPartition
from ottla.protocol.fetch import EpochEndOffset, FetchedPartition, FetchPartition
from ottla.replication import follower as follower_module
from ottla.replication.follower import Followed, Next
from ottla.replication.partition import Partition
from ottla.replication.replica import NEVER, Replica

NODES = (0, 1, 2)


class Bounds(NamedTuple):
    epochs: int
    """Elections and one, and with them records that two leaders number alike."""
    records: int
    crashes: int
    decisions: int
    """Decisions of the controller: elections and changes of the in-sync set."""
    late: int
    """Fetches or answers that something else comes between."""


CLOSED: dict[Bounds, int] = {Bounds(2, 1, 0, 2, 0): 25_706}
"""Explored to the end, and the number of states."""
WIDE = Bounds(2, 2, 1, 3, 1)
"""Too many states for a test: explored as far as `STATES_MAX`, the shortest courses of events first."""
STATES_MAX = 20_000
DEEP = Bounds(4, 3, 2, 6, 3)
"""For walks."""
CRASHING = Bounds(2, 2, 2, 8, 6)
WALKED_MAX = 100_000
STEPS_MAX = 80
"""Steps of one walk."""

Epochs = tuple[int, ...]
"""The leader epoch of each record of a log: what makes two records the same."""


class Decision(NamedTuple):
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


class Disk(NamedTuple):
    """A node as it is between two events."""

    records: Epochs
    epochs: tuple[tuple[int, int], ...]
    """Leader epoch and first offset: records', and those that a leader began with."""
    high_watermark: int
    broker_epoch: int
    heard: Decision
    """The controller's last decision that it has heard."""
    remote: tuple[tuple[int, int, int], ...]
    """As a leader: (follower, its log end, its broker epoch)."""
    epoch_start: int
    pending: tuple[int, ...]


class Fetch(NamedTuple):
    follower: int
    leader: int
    broker_epoch: int
    leader_epoch: int
    offset: int
    last_epoch: int


class Answer(NamedTuple):
    fetch: Fetch
    error: int
    records: Epochs
    high_watermark: int
    diverging: tuple[int, int] | None


class Asked(NamedTuple):
    """AlterPartition on its way."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    """(broker, broker epoch)."""


class World(NamedTuple):
    disks: tuple[Disk, ...]
    now: Decision
    messages: frozenset[Any]
    broker_epochs: tuple[int, ...]
    """As the controller knows them."""
    committed: Epochs
    """The longest prefix that any leader called committed."""
    crashes: int
    late: int
    """Fetches and answers that were late."""


def start() -> World:
    decision = Decision(0, 0, 0, NODES)
    disk = Disk((), (), 0, 0, decision, (), 0, ())
    leader = disk._replace(epochs=((0, 0),), remote=((1, -1, -1), (2, -1, -1)))
    return World((leader, disk, disk), decision, frozenset(), (0, 0, 0), (), 0, 0)


class ModelLog:
    """What a partition asks of a log, on numbers."""

    is_open = True
    log_start_offset = 0

    def __init__(self, disk: Disk) -> None:
        self.records = list(disk.records)
        self.epochs = list(disk.epochs)
        self._high_watermark = disk.high_watermark

    @property
    def log_end_offset(self) -> int:
        return len(self.records)

    safe_end_offset = last_stable_offset = log_end_offset

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        self._high_watermark = max(self._high_watermark, min(offset, len(self.records)))

    @property
    def latest_epoch(self) -> int | None:
        return self.epochs[-1][0] if self.epochs else None

    def observe(self, *callbacks: Any) -> None:
        pass

    def note(self, epoch: int, start: int) -> None:
        while self.epochs and (self.epochs[-1][1] >= start or self.epochs[-1][0] > epoch):
            if self.epochs[-1][0] == epoch and self.epochs[-1][1] <= start:
                return
            self.epochs.pop()
        if not self.epochs or self.epochs[-1][0] != epoch:
            self.epochs.append((epoch, start))

    def assign_epoch(self, epoch: int) -> None:
        self.note(epoch, len(self.records))

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        if not self.epochs or epoch > self.epochs[-1][0]:
            return -1, -1
        if epoch == self.epochs[-1][0]:
            return epoch, len(self.records)
        above = next(index for index, entry in enumerate(self.epochs) if entry[0] > epoch)
        floor = self.epochs[above - 1][0] if above else epoch
        return floor, self.epochs[above][1]

    def append_as_leader(self, records: int, leader_epoch: int, **options: Any) -> Any:
        self.note(leader_epoch, len(self.records))
        self.records.append(leader_epoch)
        return _Appended(len(self.records) - 1, leader_epoch)

    def append_as_follower(self, records: bytes, *, now_ms: int) -> Any:
        epoch = int.from_bytes(records[12:16], "big")
        self.note(epoch, len(self.records))
        self.records.append(epoch)
        return _Appended(len(self.records) - 1, epoch)

    def truncate(self, offset: int) -> None:
        del self.records[offset:]
        self.epochs = [entry for entry in self.epochs if entry[1] < offset]
        self._high_watermark = min(self._high_watermark, offset)


def batch(epoch: int) -> bytes:
    """What a follower looks at of a batch: its length, and here its epoch."""
    return bytes(8) + (49).to_bytes(4, "big") + epoch.to_bytes(4, "big") + bytes(45)


class _Appended(NamedTuple):
    last_offset: int
    leader_epoch: int
    size_bytes: int = 1
    needs_flush: bool = False
    first_offset: int = 0


class Broken(Exception):
    """An invariant does not hold."""


class Model:
    """The events that may come next."""

    def __init__(self, bounds: Bounds, without: str = "") -> None:
        self.bounds = bounds
        self.without_rule = without
        self.seen: Counter[str] = Counter()
        self.partition_class = MUTANTS.get(without, Partition)

    # From values to the real thing and back.

    def partition(self, world: World, node: int) -> Partition:
        disk = world.disks[node]
        log = ModelLog(disk)
        decision = disk.heard
        live = None if self.without_rule == "a stale broker does not join" else world.broker_epochs.__getitem__
        partition = self.partition_class(node, TopicPartition("t", 0), UUID(int=5), log, live)  # type: ignore[arg-type]
        partition.min_isr = 1
        partition.lag_ms_max = 0
        partition.leader_id, partition.leader_epoch = decision.leader, decision.leader_epoch
        partition.partition_epoch, partition.isr, partition.replicas = decision.partition_epoch, decision.isr, NODES
        partition.is_leader = decision.leader == node
        partition.epoch_start = disk.epoch_start
        partition._pending_isr = disk.pending
        for follower, end, epoch in disk.remote:
            replica = partition.others[follower] = Replica(NEVER)
            replica.end_offset, replica.broker_epoch = end, epoch
        partition._count_in_sync()
        return partition

    def frozen(self, world: World, node: int, partition: Partition) -> World:
        log: Any = partition.log
        disk = world.disks[node]
        new = Disk(
            tuple(log.records),
            tuple(log.epochs),
            log.high_watermark,
            disk.broker_epoch,
            disk.heard,
            tuple((id_, each.end_offset, each.broker_epoch) for id_, each in sorted(partition.others.items())),
            partition.epoch_start if partition.is_leader else 0,
            partition._pending_isr,
        )
        disks = (*world.disks[:node], new, *world.disks[node + 1 :])
        committed = world.committed
        if partition.is_leader:
            self.check_leader(world, node, new)
            if new.high_watermark > len(committed):
                committed = new.records[: new.high_watermark]
        return world._replace(disks=disks, committed=committed)

    # Invariants.

    def check_leader(self, world: World, node: int, disk: Disk) -> None:
        committed = world.committed
        below = disk.records[: disk.high_watermark]
        if below[: len(committed)] != committed[: len(below)]:
            raise Broken("two leaders committed different records at the same offset")
        decision = disk.heard
        now = world.now
        if decision.leader_epoch == now.leader_epoch:
            for member in now.isr:
                have = disk.records if member == node else world.disks[member].records
                if have[: len(below)] != below:
                    raise Broken("an in-sync replica lacks what is committed")

    def check(self, world: World) -> None:
        now = world.now
        for member in now.isr:
            if world.disks[member].records[: len(world.committed)] != world.committed:
                raise Broken("an in-sync replica, which may be elected, lacks what was committed")

    # Events.

    def events(self, world: World) -> Iterator[World]:
        now = world.now
        for node in NODES:
            yield from self.node_events(world, node)
        for message in sorted(world.messages, key=repr):
            yield self.without(world, message)  # lost
            for delivered in self.deliver(world, message):
                yield self.without(delivered, message)
                if isinstance(message, Fetch):
                    yield delivered  # it comes again
        if now.leader_epoch < self.bounds.epochs - 1 and world.now.partition_epoch < self.bounds.decisions:
            for leader in now.isr:
                if leader != now.leader:
                    self.seen["elections"] += 1
                    yield self.decide(world, Decision(leader, now.leader_epoch + 1, now.partition_epoch + 1, now.isr))

    def node_events(self, world: World, node: int) -> Iterator[World]:
        disk, now = world.disks[node], world.now
        if disk.heard != now:
            yield self.hear(world, node)
        decision = disk.heard
        if decision.leader == node:
            if len(disk.records) < self.bounds.records and (
                not disk.records or disk.records[-1] != decision.leader_epoch
            ):
                partition = self.partition(world, node)
                partition.append_as_leader(b"", 1, now_ms=0)
                yield self.frozen(world, node, partition)
            if not disk.pending and world.now.partition_epoch < self.bounds.decisions:
                yield from self.shrink(world, node)
        else:
            log = ModelLog(disk)
            epoch = -1 if log.latest_epoch is None else log.latest_epoch
            fetch = Fetch(node, decision.leader, disk.broker_epoch, decision.leader_epoch, len(disk.records), epoch)
            yield from self.fetch(world, fetch)
        if world.crashes < self.bounds.crashes:
            yield from self.crash(world, node)

    def fetch(self, world: World, fetch: Fetch) -> Iterator[World]:
        """A round without anything between, or one whose request or answer is late: one at a time is."""
        served, answer = self.serve(world, fetch)
        yield self.take(served, answer)
        if world.late < self.bounds.late:
            yield self.sent(world._replace(late=world.late + 1), fetch)
            yield self.sent(served._replace(late=world.late + 1), answer)

    def hear(self, world: World, node: int) -> World:
        disk = world.disks[node]
        decision = world.now
        partition = self.partition(world, node)
        directories = (UUID(int=9),) * len(NODES)
        partition.update(
            PartitionRegistration(
                NODES, decision.isr, decision.leader, decision.leader_epoch, decision.partition_epoch, directories
            )
        )
        for replica in partition.others.values():
            replica._caught_up_ms = NEVER
        partition._count_in_sync()
        if partition.is_leader and len(ModelLog(disk).records) > disk.high_watermark:
            self.seen["leaders with records that are not committed"] += 1
        world = world._replace(disks=(*world.disks[:node], disk._replace(heard=decision), *world.disks[node + 1 :]))
        return self.frozen(world, node, partition)

    def shrink(self, world: World, node: int) -> Iterator[World]:
        """A follower lags for too long: any may, as the model has no time."""
        partition = self.partition(world, node)
        for replica_id in partition.isr:
            if replica_id != node and not self.is_asked(world):
                isr = tuple(each for each in partition.isr if each != replica_id)
                yield self.ask(world, node, partition, isr)
                partition = self.partition(world, node)

    def is_asked(self, world: World) -> bool:
        return any(isinstance(each, Asked) for each in world.messages)

    def ask(self, world: World, node: int, partition: Partition, isr: tuple[int, ...]) -> World:
        partition.propose_isr(isr)
        pairs = tuple(
            (id_, world.disks[id_].broker_epoch if id_ == node else partition.others[id_].broker_epoch) for id_ in isr
        )
        asked = Asked(node, partition.leader_epoch, partition.partition_epoch, pairs)
        return self.sent(self.frozen(world, node, partition), asked)

    def crash(self, world: World, node: int) -> Iterator[World]:
        """A new process with the whole log, or (it was in the page cache only) with less: the controller then takes it
        out of the in-sync set, where it is not the last (KIP-966)."""
        now = world.now
        disk = world.disks[node]
        keeps = disk.heard.leader != node
        epochs = (*world.broker_epochs[:node], world.broker_epochs[node] + 1, *world.broker_epochs[node + 1 :])
        again = disk._replace(broker_epoch=epochs[node], remote=(), pending=(), epoch_start=0)
        base = world._replace(broker_epochs=epochs, crashes=world.crashes + 1)
        if keeps:
            self.seen["crashes"] += 1
            yield base._replace(disks=(*base.disks[:node], again, *base.disks[node + 1 :]))
        if keeps and disk.records and now.leader != node and world.now.partition_epoch < self.bounds.decisions:
            self.seen["crashes with a lost suffix"] += 1
            log = ModelLog(again)
            log.truncate(0)
            less = again._replace(records=(), epochs=(), high_watermark=0)
            world = base._replace(disks=(*base.disks[:node], less, *base.disks[node + 1 :]))
            isr = tuple(each for each in now.isr if each != node)
            yield self.decide(world, now._replace(partition_epoch=now.partition_epoch + 1, isr=isr))

    # Messages.

    def sent(self, world: World, message: Any) -> World:
        return world._replace(messages=world.messages | {message})

    def without(self, world: World, message: Any) -> World:
        return world._replace(messages=world.messages - {message})

    def decide(self, world: World, decision: Decision) -> World:
        return world._replace(now=decision)

    def deliver(self, world: World, message: Any) -> Iterator[World]:
        if isinstance(message, Fetch):
            yield self.serve(world, message)[0]
        elif isinstance(message, Answer):
            yield self.take(world, message)
        else:
            yield self.alter(world, message)

    def serve(self, world: World, fetch: Fetch) -> tuple[World, Answer]:
        """What `partition_read.read_as_follower` does."""
        node = fetch.leader
        partition = self.partition(world, node)
        log: Any = partition.log
        wanted: list[tuple[int, ...]] = []
        partition.on_caught_up = lambda _, isr: wanted.append(isr)
        diverging, records, error = None, (), 0
        try:
            partition.check_leader(fetch.leader_epoch)
            if fetch.last_epoch >= 0 and self.without_rule != "the leader looks whether logs diverge":
                epoch, end = partition.end_of_epoch(fetch.last_epoch)
                if epoch < 0 or end < 0:
                    raise KafkaError(ErrorCode.offset_out_of_range)
                if epoch < fetch.last_epoch or end < fetch.offset:
                    diverging = epoch, end
                    self.seen["diverging logs"] += 1
            if diverging is None or self.without_rule == "a fetch that diverges does not count":
                partition.on_follower_fetch(
                    fetch.follower, fetch.offset, fetch.leader_epoch, 1, broker_epoch=fetch.broker_epoch
                )
            if diverging is None:
                records = tuple(log.records[fetch.offset : fetch.offset + 1])
        except KafkaError as refused:
            error = refused.code
            self.seen["refused fetches"] += 1
        for replica in partition.others.values():
            replica._caught_up_ms = NEVER
        world = self.frozen(world, node, partition)
        answer = Answer(fetch, error, records, log.high_watermark, diverging)
        if wanted and world.now.partition_epoch < self.bounds.decisions and not self.is_asked(world):
            self.seen["replicas that may join"] += 1
            world = self.ask(world, node, self.partition(world, node), wanted[0])
        return world, answer

    def take(self, world: World, answer: Answer) -> World:
        node = answer.fetch.follower
        fetch = answer.fetch
        if world.disks[node].broker_epoch != fetch.broker_epoch:
            return world
        partition = self.partition(world, node)
        if partition.is_leader:
            return world
        followed = Followed(partition, fetch.leader, fetch.leader_epoch)
        followed.asked = FetchPartition(0, fetch.offset, 1, fetch.leader_epoch, fetch.last_epoch)
        followed.next_offset = fetch.offset
        diverging = None if answer.diverging is None else EpochEndOffset(*answer.diverging)
        log: Any = partition.log
        outcome = followed.take(
            FetchedPartition(
                0,
                answer.error,
                answer.high_watermark,
                -1,
                0,
                records=b"".join(map(batch, answer.records)),
                diverging_epoch=diverging,
            ),
            0,
        )
        if outcome.next is Next.TRUNCATE:
            self.seen["truncations"] += 1
            if outcome.offset < log.high_watermark:
                raise Broken("committed records are cut")
            log.truncate(outcome.offset)
        elif outcome.next is Next.FIND_OFFSETS:
            self.seen["fetches out of range"] += 1
        return self.frozen(world, node, partition)

    def alter(self, world: World, asked: Asked) -> World:
        """As `controller/isr.py` decides. The answer is the metadata that follows."""
        now = world.now
        if (asked.leader, asked.leader_epoch, asked.partition_epoch) != (
            now.leader,
            now.leader_epoch,
            now.partition_epoch,
        ):
            self.seen["late questions"] += 1
            return world
        stale = [id_ for id_, epoch in asked.isr if epoch not in (world.broker_epochs[id_], -1)]
        if stale and self.without_rule != "a stale broker does not join":
            self.seen["stale brokers refused"] += 1
            return world
        isr = tuple(sorted(id_ for id_, _ in asked.isr))
        self.seen["joins" if len(isr) > len(now.isr) else "shrinks"] += 1
        return self.decide(world, now._replace(partition_epoch=now.partition_epoch + 1, isr=isr))


def explore(bounds: Bounds, states_max: int, without: str = "") -> tuple[int, Counter[str], bool]:
    """Every state that can be reached, or so many: their number, what was met, and whether these are all. Raises
    Broken."""
    model = Model(bounds, without)
    first = start()
    known = {first}
    queue = deque([first])
    while queue and len(known) < states_max:
        world = queue.popleft()
        for following in model.events(world):
            if following not in known:
                model.check(following)
                known.add(following)
                queue.append(following)
    return len(known), model.seen, not queue


def walk(bounds: Bounds, steps_max: int, without: str = "", seed: int = 1) -> tuple[int, Counter[str]]:
    """Courses of events chosen by a seed, each to its end: deep, where `explore` is broad. Raises Broken."""
    model = Model(bounds, without)
    random = Random(seed)
    steps = 0
    while steps < steps_max:
        world = start()
        for _ in range(STEPS_MAX):
            following = list(model.events(world))
            if not following:
                break
            world = random.choice(following)
            model.check(world)
            steps += 1
    return steps, model.seen


INTERESTING = (
    "crashes",
    "crashes with a lost suffix",
    "diverging logs",
    "elections",
    "joins",
    "late questions",
    "leaders with records that are not committed",
    "refused fetches",
    "shrinks",
    "stale brokers refused",
    "truncations",
)


@pytest.mark.parametrize("bounds", CLOSED, ids=str)
def test_every_course_of_events_within_bounds(bounds: Bounds) -> None:
    states, _, is_all = explore(bounds, 2 * CLOSED[bounds])
    assert (states, is_all) == (CLOSED[bounds], True)


def test_the_shortest_of_many_more_courses_of_events() -> None:
    states, seen, is_all = explore(WIDE, STATES_MAX)
    assert states >= STATES_MAX and not is_all
    assert [what for what in INTERESTING if not seen[what]] == []


FENCING = "fetches of another epoch do not count"


class AnyEpoch(Partition):
    def check_leader(self, claimed_epoch: int = -1) -> None:
        if not self.is_leader:
            raise KafkaError(ErrorCode.not_leader_or_follower)


class OldSetOnly(Partition):
    def _counts(self, replica_id: int, replica: Replica) -> bool:
        return replica_id in self.isr


class EarlyJoiner(Partition):
    def grown_isr(self, replica_id: int) -> tuple[int, ...] | None:
        replica = self.others.get(replica_id)
        if replica is None or self._pending_isr or replica_id in self.isr:
            return None
        return (*self.isr, replica_id)


class LeaderAlone(Partition):
    def _advance(self) -> None:
        if self.is_leader:
            self.log.high_watermark = self.log.log_end_offset


class AnyBroker(Partition):
    def _may_join(self, replica_id: int, replica: Replica) -> bool:
        return True


MUTANTS: dict[str, type[Partition]] = {
    "both in-sync sets count until the controller decided": OldSetOnly,
    "who joins has all that is committed": EarlyJoiner,
    "the high watermark is what all in sync have": LeaderAlone,
    "a stale broker does not join": AnyBroker,
    FENCING: AnyEpoch,
}
RULES = (
    *(rule for rule in MUTANTS if rule != FENCING),
    "a fetch that diverges does not count",
    "the leader looks whether logs diverge",
    "a log is cut where its epochs end",
)


@pytest.mark.parametrize("rule", RULES)
def test_without_any_one_rule_an_invariant_breaks(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if rule == "a log is cut where its epochs end":
        monkeypatch.setattr(follower_module, "truncation_offset", lambda log, diverging: log.high_watermark)
    with pytest.raises(Broken):
        walk(CRASHING if rule == "a stale broker does not join" else DEEP, WALKED_MAX, rule)


@pytest.mark.parametrize("without", ["", FENCING])
def test_a_fetch_that_is_late_by_two_epochs(without: str) -> None:
    """Too rare for walks: a follower cut its log under another leader before its fetch reaches the first one, which
    leads again (KIP-320)."""
    model = Model(DEEP, without)

    def fetched(world: World, follower: int) -> World:
        disk = world.disks[follower]
        last = disk.epochs[-1][0] if disk.epochs else -1
        fetch = Fetch(follower, disk.heard.leader, 0, disk.heard.leader_epoch, len(disk.records), last)
        return model.take(*model.serve(world, fetch))

    def elected(world: World, leader: int) -> World:
        now = world.now
        world = model.decide(world, Decision(leader, now.leader_epoch + 1, now.partition_epoch + 1, now.isr))
        for node in NODES:
            world = model.hear(world, node)
        return world

    world = start()
    partition = model.partition(world, 0)
    partition.append_as_leader(b"", 1, now_ms=0)
    world = fetched(model.frozen(world, 0, partition), 2)
    late = Fetch(2, 0, 0, 0, 1, 0)
    world = elected(world, 1)
    world = fetched(world, 2)
    assert world.disks[2].records == ()
    world = elected(world, 0)
    for _ in range(3):  # what it began as a leader is cut, the record comes, and it says so
        world = fetched(world, 1)
    if without:
        with pytest.raises(Broken):
            model.serve(world, late)
    else:
        world, answer = model.serve(world, late)
        assert (answer.error, world.committed) == (ErrorCode.fenced_leader_epoch, ())


def test_long_courses_of_events() -> None:
    steps, seen = walk(DEEP, STATES_MAX)
    assert steps >= STATES_MAX
    assert [what for what in INTERESTING if not seen[what]] == []
