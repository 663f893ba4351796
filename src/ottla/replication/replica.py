"""What the leader knows of another replica of its partition: Kafka's `Replica` and `ReplicaState`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ottla.metadata.image import DIRECTORY_LOST, PartitionRegistration
from ottla.model import Millis, NodeId, Offset

UNKNOWN_OFFSET = -1
FETCHES_DUE = 2
"""A follower has one request under way at a time: the next one says what it has now."""
NEVER: Millis = -(1 << 62)
AT_FIRST_LOOK: Millis = -(1 << 61)
"""Start time of a follower that was in sync when the epoch began: set when lagging replicas are first looked for."""


class Session(Protocol):
    """A follower's fetch session."""

    fetched_ms: Millis
    """When its latest request came."""


class Replica:
    """A follower, as its fetches show it. Forgotten with every change of the leader epoch: only fetches of the same
    epoch count."""

    __slots__ = (
        "_caught_up_ms", "_fetched_ms", "broker_epoch", "end_offset", "fetched_at_end", "fetches_due",
        "log_start_offset", "session",
    )  # fmt: skip

    def __init__(self, caught_up_ms: Millis = NEVER) -> None:
        self.end_offset: Offset = UNKNOWN_OFFSET
        """It has every record below; UNKNOWN_OFFSET until it fetched, and then nothing is committed that waits for
        it. May go back: a follower may have lost what it had."""
        self.log_start_offset: Offset = UNKNOWN_OFFSET
        self.broker_epoch = -1
        """Epoch of the broker that fetched."""
        self._caught_up_ms: Millis = caught_up_ms
        self._fetched_ms: Millis = 0
        self.fetched_at_end: Offset = UNKNOWN_OFFSET
        """The leader's log end at its latest fetch: whoever reaches it was caught up then."""
        self.fetches_due = 0
        """Fetches that must come before it may join the in-sync set: the first may have been sent before it left."""
        self.session: Session | None = None
        """Each request of this session is a fetch from the log end, though it does not name the partition. Invariant:
        `end_offset` and `fetched_at_end` are the leader's log end."""

    @property
    def caught_up_ms(self) -> Millis:
        """The latest time at which it had all that the leader had."""
        return self._caught_up_ms if self.session is None else max(self._caught_up_ms, self.session.fetched_ms)

    @property
    def fetched_ms(self) -> Millis:
        return self._fetched_ms if self.session is None else max(self._fetched_ms, self.session.fetched_ms)

    def on_fetch(
        self, end_offset: Offset, log_start_offset: Offset, broker_epoch: int, leader_end: Offset, now_ms: Millis
    ) -> None:
        """The follower has fetched from `end_offset`."""
        if self.session is not None:
            self.leave(self.session)
        if end_offset >= leader_end:
            self._caught_up_ms = max(self._caught_up_ms, now_ms)
        elif self.fetched_at_end != UNKNOWN_OFFSET and end_offset >= self.fetched_at_end:
            self._caught_up_ms = max(self._caught_up_ms, self._fetched_ms)
        if self.fetches_due:  # what another incarnation sends is never from before
            self.fetches_due = self.fetches_due - 1 if broker_epoch == self.broker_epoch else 0
        self.end_offset = end_offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self.fetched_at_end = leader_end
        self._fetched_ms = now_ms

    def enter(self, session: Session) -> None:
        """It is at the log end, and fetches from there with each request of the session until `leave`."""
        self.session = session

    def leave(self, session: Session) -> None:
        """The log end moves, or the follower fetches otherwise: keep what the requests so far have shown."""
        if self.session is session:
            self._caught_up_ms, self._fetched_ms = self.caught_up_ms, self.fetched_ms
            self.session = None

    def first_look(self, now_ms: Millis) -> None:
        """Lagging replicas are looked for: one that was in sync when the epoch began has from now on time to fetch."""
        if self._caught_up_ms == AT_FIRST_LOOK:
            self._caught_up_ms = now_ms

    def leave_isr(self) -> None:
        """It is out of the in-sync set, because it gave up its log for example. It is not about to join before it
        fetches again, and a fetch that it sent before does not count."""
        self.fetches_due = FETCHES_DUE
        self.session = None
        self._caught_up_ms = NEVER
        self.fetched_at_end = UNKNOWN_OFFSET

    def is_caught_up(self, leader_end: Offset, now_ms: Millis, lag_ms_max: Millis) -> bool:
        return self.end_offset == leader_end or now_ms - self.caught_up_ms <= lag_ms_max


def note_left(others: dict[NodeId, Replica], isr: Sequence[NodeId], registration: PartitionRegistration) -> None:
    """Note which replicas the controller has taken out of the in-sync set `isr`, or whose log directory is lost."""
    has_lost = DIRECTORY_LOST in registration.directories
    for replica_id, replica in others.items():
        is_lost = has_lost and registration.directory(replica_id) == DIRECTORY_LOST  # KIP-858
        if replica_id not in registration.isr and (replica_id in isr or is_lost):
            replica.leave_isr()


def relist(others: dict[NodeId, Replica], own_id: NodeId, registration: PartitionRegistration) -> None:
    """Make the replicas those of a registration but for the own one; what is known of those that stay is kept."""
    for replica_id in [each for each in others if each not in registration.replicas]:
        del others[replica_id]
    for replica_id in registration.replicas:
        if replica_id != own_id and replica_id not in others:
            others[replica_id] = Replica(AT_FIRST_LOOK if replica_id in registration.isr else NEVER)


def lagging(others: dict[NodeId, Replica], leader_end: Offset, now_ms: Millis, lag_ms_max: Millis) -> Sequence[NodeId]:
    """Replicas that have not had all that the leader had for longer than `lag_ms_max`: by time alone, not by the number
    of records (KIP-16)."""
    for replica in others.values():
        replica.first_look(now_ms)
    return [each for each, replica in others.items() if not replica.is_caught_up(leader_end, now_ms, lag_ms_max)]


def lowest_start(
    others: dict[NodeId, Replica], own_start: Offset, live_epoch: Callable[[NodeId], int] | None
) -> Offset:
    """The lowest log start of the own replica and the others whose broker is alive."""
    low = own_start
    for replica_id, replica in others.items():
        # A broker that is away is not waited for (Kafka's `lowWatermarkIfLeader`): it takes the log start over later.
        if replica.log_start_offset < low and (live_epoch is None or live_epoch(replica_id) >= 0):
            low = replica.log_start_offset
    return low
