"""One replica of a partition on this node: leadership, in-sync replicas, high watermark and its waiters.

Kafka's `Partition` and its `PartitionState`. The one rule of commit is here: only a partition moves a high watermark,
from the log ends of the in-sync replicas, its own counted as far as the log is as safe as the topic asks
(`ReplicaLog.safe_end_offset`); and only it tells those who wait for a commit, success or an error. They are all failed
when the leader epoch changes, so that who is told success was appended in the epoch that committed it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import PartitionRegistration
from ottla.metrics.instruments import TopicTraffic
from ottla.model import NO_LEADER_EPOCH, NOT_TRANSACTIONAL, LeaderEpoch, Millis, NodeId, Offset, TopicId, TopicPartition
from ottla.replication.commits import ACKS_ALL, ACKS_LEADER, ACKS_NONE, Done, OffsetQueue, Wait
from ottla.replication.fetch_session import CachedPartition, tell
from ottla.replication.purgatory import EVERYBODY, DelayedFetch, notify
from ottla.replication.replica import Replica, lagging, lowest_start, note_left, relist

if TYPE_CHECKING:
    from ottla.replication.replica_log import Appended, ReplicaLog

__all__ = ["ACKS_ALL", "ACKS_LEADER", "ACKS_NONE", "Partition"]

LAG_MS_MAX = 30_000
"""Default of replica.lag.time.max.ms."""
FOLLOWED_MS = 1000
"""A follower asks again after replica.fetch.wait.max.ms (500) at the latest, whatever there is to fetch."""


class Partition:
    """State of one partition. Only the event loop's thread touches it."""

    __slots__ = (
        "_commits", "_fsyncs", "_now_ms", "_pending_isr", "_sizes", "deletions", "end_sessions", "end_waiters",
        "epoch_start", "is_leader", "isr", "lag_ms_max", "leader_epoch", "leader_id", "live_epoch", "log", "min_isr",
        "node_id", "on_caught_up", "others", "partition_epoch", "replicas", "sessions", "sole_in_sync", "topic_id",
        "topic_partition", "traffic", "waiters",
    )  # fmt: skip

    def __init__(
        self,
        node_id: NodeId,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        log: ReplicaLog,
        live_epoch: Callable[[NodeId], int] | None = None,
    ) -> None:
        """`live_epoch` gives the broker epoch of a node that may join the in-sync set, -1 for one that may not."""
        self.node_id = node_id
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.live_epoch = live_epoch
        self.leader_id: NodeId = -1
        self.is_leader = False
        self.leader_epoch: LeaderEpoch = -1
        """Never goes back."""
        self.epoch_start: Offset = 0
        """The log end when this node became leader: a follower joins the in-sync set when it has everything below."""
        self.partition_epoch = -1
        self.replicas: tuple[NodeId, ...] = ()
        self.isr: tuple[NodeId, ...] = ()
        """Invariant: while this node leads, it is a member."""
        self._pending_isr: tuple[NodeId, ...] = ()
        """Asked of the controller and not decided yet (KIP-497)."""
        self.others: dict[NodeId, Replica] = {}
        """The other replicas, while this node leads."""
        self.sole_in_sync = False
        """This node leads and is the only one in sync: every append is committed as soon as it is as safe as asked, and
        no commit depends on other replicas."""
        self.min_isr = 1
        """min.insync.replicas; change it by `set_min_isr`."""
        self.lag_ms_max: Millis = LAG_MS_MAX
        self._now_ms: Millis = 0
        """The latest time that a caller told, by a clock that does not jump."""
        self.traffic = TopicTraffic()
        """Counts what is appended and read; the partitions of a topic share one."""
        self.waiters: dict[DelayedFetch, None] = {}
        """Fetches waiting for more bytes below the high watermark, in the order they came."""
        self.end_waiters: dict[DelayedFetch, None] = {}
        """Fetches of followers, waiting for more bytes below the log end."""
        self.sessions: dict[CachedPartition, None] = {}
        """Entries of fetch sessions that know all that a consumer can see: each is told once when that changes."""
        self.end_sessions: dict[CachedPartition, None] = {}
        """The same for followers that are in sync and at the log end."""
        self.on_caught_up: Callable[[Partition, tuple[NodeId, ...]], None] | None = None
        """Called with the in-sync set that there could be, when a follower has all it takes to join it."""
        self._commits = OffsetQueue()
        """Waiters for the high watermark; all appended in the current leader epoch."""
        self._fsyncs = OffsetQueue()
        """Waiters for the own disk only (acks=1)."""
        self.deletions = OffsetQueue()
        """Waiters for the low watermark."""
        self._sizes: deque[tuple[Offset, int]] = deque()
        """(end offset, bytes) of what was appended and is not committed; what is older counts as EVERYBODY."""
        log.observe(self._on_fsynced, self._on_offline, self._on_truncated, self._on_start_moved)

    # Following the controller.

    def update(self, registration: PartitionRegistration) -> bool:
        """Follow the controller; returns whether leadership or its epoch changed. Older registrations are ignored."""
        # The answer of AlterPartition may have come before the metadata that says the same (KIP-497).
        if registration.partition_epoch < self.partition_epoch or registration.leader_epoch < self.leader_epoch:
            return False
        new_epoch = registration.leader_epoch != self.leader_epoch
        changed = new_epoch or registration.leader != self.leader_id
        self.partition_epoch = registration.partition_epoch
        self.replicas = registration.replicas
        if registration.isr != self.isr:
            tell(self.end_sessions, 0)  # a follower that is not in the new one asks to join it with its next fetch
        note_left(self.others, self.isr, registration)
        self.isr = registration.isr
        self._pending_isr = ()  # the controller has decided (KIP-497)
        self.leader_id = registration.leader
        self.is_leader = registration.leader == self.node_id
        self.leader_epoch = registration.leader_epoch
        if changed:
            self.others.clear()  # followers may have truncated since: they show their log ends again
        if self.is_leader:
            relist(self.others, self.node_id, registration)
            if new_epoch:
                self.epoch_start = self.log.log_end_offset  # what joins the ISR has all below (KAFKA-7128)
                self.log.assign_epoch(registration.leader_epoch)  # it begins here, before any append (KIP-101)
        if changed:
            self._fail_waits(ErrorCode.not_leader_or_follower)  # another leader may truncate these records
            self._sizes.clear()
            if self.is_leader and self.log.log_end_offset > self.log.high_watermark:
                self._sizes.append((self.log.log_end_offset, EVERYBODY))
            self._tell_sessions(EVERYBODY)
        self._count_in_sync()
        self._advance()
        if self.is_leader and self.log.safe_end_offset < self.log.log_end_offset:  # of an earlier epoch
            self.log.begin_flush()
        return changed

    def replace_log(self, log: ReplicaLog) -> None:
        """A copy with the same records in another directory takes the place of the log (KIP-113)."""
        log.producer_state.verifications = self.log.producer_state.verifications
        self.log = log
        log.observe(self._on_fsynced, self._on_offline, self._on_truncated, self._on_start_moved)
        if self.is_leader:
            log.assign_epoch(self.leader_epoch)
        self._on_fsynced()
        self.wake()

    def set_min_isr(self, min_isr: int) -> None:
        """Follow min.insync.replicas."""
        self.min_isr = min_isr
        self._count_in_sync()
        self._advance()

    def propose_isr(self, isr: tuple[NodeId, ...]) -> None:
        """The controller is asked for this in-sync set: until it decides, nothing is committed without those who are
        in either (KIP-497). The next registration, `isr_decided` or `withdraw_isr` ends that."""
        self._pending_isr = isr
        self._count_in_sync()

    def isr_decided(self, leader_epoch: LeaderEpoch, partition_epoch: int, isr: tuple[NodeId, ...]) -> None:
        """Apply the controller's answer; the metadata may have said so already, or something newer."""
        # An answer that an election or newer metadata has overtaken is void (KIP-497).
        if self.is_leader and leader_epoch == self.leader_epoch and partition_epoch >= self.partition_epoch:
            self.partition_epoch = partition_epoch
            self.isr = isr
            tell(self.end_sessions, 0)
            self.withdraw_isr()

    def withdraw_isr(self) -> None:
        """The controller refused the change."""
        self._pending_isr = ()
        self._count_in_sync()
        self._advance()

    def remove(self, error: ErrorCode = ErrorCode.unknown_topic_or_partition) -> None:
        """The partition is deleted or no longer here, or (by another error) its log is replaced."""
        self.is_leader = self.sole_in_sync = False
        self.leader_id = -1
        self.others.clear()
        self._pending_isr = ()
        self._fail_waits(error)
        self.wake()

    def stop(self) -> None:
        """The node stops: nobody waits for other replicas any more, nor for bytes. The own disk is still waited for."""
        self.wake()
        if not self.sole_in_sync:
            self._commits.fail(ErrorCode.not_leader_or_follower)
        self.deletions.fail(ErrorCode.not_leader_or_follower)

    def _on_truncated(self, offset: Offset) -> None:
        """The log is cut there: waiters for something above must not hear success for what comes instead."""
        self._commits.fail_above(offset, ErrorCode.not_leader_or_follower)
        self._fsyncs.fail_above(offset, ErrorCode.not_leader_or_follower)
        while self._sizes and self._sizes[-1][0] > offset:
            self._sizes.pop()
        if self.is_leader and offset < self.epoch_start:  # elected during a cut, which now ends where a batch began
            self.epoch_start = offset
            self.log.assign_epoch(self.leader_epoch)
        self._tell_sessions(EVERYBODY)

    def _on_start_moved(self) -> None:  # nobody waits for that, but the next fetch is to say it
        self._tell_sessions(0)

    def _tell_sessions(self, size_bytes: int) -> None:
        tell(self.sessions, size_bytes)
        tell(self.end_sessions, size_bytes)

    def _on_offline(self) -> None:
        """The log can be used no more: its disk failed, or it is closed."""
        self._fail_waits(ErrorCode.kafka_storage_error)
        self.wake()

    def _fail_waits(self, error: ErrorCode) -> None:
        for waits in (self._commits, self._fsyncs, self.deletions):
            waits.fail(error)

    def check_leader(self, claimed_epoch: LeaderEpoch = NO_LEADER_EPOCH) -> None:
        """Refuse a client that talks to the wrong replica or with an epoch that is not the current one (KIP-320)."""
        self.check_epoch(claimed_epoch)
        if not self.is_leader:
            raise KafkaError(ErrorCode.not_leader_or_follower)

    def check_epoch(self, claimed_epoch: LeaderEpoch) -> None:
        """The same where any replica may answer (KIP-392)."""
        if claimed_epoch != NO_LEADER_EPOCH and claimed_epoch != self.leader_epoch:
            if claimed_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.fenced_leader_epoch)
            raise KafkaError(ErrorCode.unknown_leader_epoch)  # this node's is older: the client comes again (KIP-320)

    # Appending, and waiting for what was appended.

    def append_as_leader(
        self,
        records: Any,
        acks: int,
        *,
        now_ms: Millis,
        origin: Any = None,
        request_version: int = 13,
        guard: int = NOT_TRANSACTIONAL,
        transaction_version: int = 0,
    ) -> Appended:
        """Append a producer's batch: one of a transaction with the `guard` of its verification. Raises KafkaError.

        While nobody else is waited for, an append that needs no fsync is committed at once. Otherwise (`needs_flush`,
        or not `sole_in_sync`) whoever wants to know passes the result to `wait`; the fsync has begun.
        """
        # With acks=all a small in-sync set is refused before anything is written (`Partition.appendRecordsToLeader`).
        if not self.is_leader or (acks == ACKS_ALL and len(self.isr) < self.min_isr and self.is_under_min_isr):
            from ottla.replication.refused_append import repeated_or_refused  # rare

            return repeated_or_refused(self, records, now_ms, origin)
        if origin is None:
            info = self.log.append_as_leader(
                records, self.leader_epoch, now_ms=now_ms, request_version=request_version, guard=guard
            )
        else:
            info = self.log.append_as_leader(
                records,
                self.leader_epoch,
                now_ms=now_ms,
                origin=origin,
                guard=guard,
                transaction_version=transaction_version,
            )
        size, last = info.size_bytes, info.last_offset
        if size:  # a duplicate was not written again
            self.traffic.count_append(size, info.first_offset, last)
        if self.sole_in_sync and not info.needs_flush:
            # Nobody else has to have it (Kafka's `maybeIncrementLeaderHW`, which follows each append).
            self.log.high_watermark = last + 1
            if self.waiters:
                notify(self.waiters, size)
            if self.sessions and size:
                tell(self.sessions, size)
        else:
            self.note_waiting(info)
        if self.end_waiters and size:
            notify(self.end_waiters, size)
        if self.end_sessions and size:
            tell(self.end_sessions, size)
        return info

    def note_waiting(self, info: Appended) -> None:
        """An append that waits for an fsync or for other replicas."""
        if info.size_bytes:
            self._sizes.append((info.last_offset + 1, info.size_bytes))
        if info.needs_flush:
            self.log.begin_flush()
        if self.others:
            self._count_in_sync()  # one that lags for too long is waited for no more
        self._advance()

    def wait(self, end_offset: Offset, leader_epoch: LeaderEpoch, acks: int, done: Done) -> Wait | None:
        """Have `done` called once: when everything below `end_offset` is as safe as `acks` asks, or with the error when
        it cannot become so for somebody who appended in `leader_epoch`. None says that it was called already.

        acks=all: NOT_ENOUGH_REPLICAS_AFTER_APPEND where the in-sync set has shrunk meanwhile; it waits for the high
        watermark. Others wait for the own disk alone. NOT_LEADER_OR_FOLLOWER after a change of leadership or a
        truncation, UNKNOWN_TOPIC_OR_PARTITION after a deletion, KAFKA_STORAGE_ERROR after a failure of the disk.
        """
        if not self.log.is_open:
            error = ErrorCode.kafka_storage_error
        # Another epoch may have replaced the record; a truncation in this one has removed it.
        elif not self.is_leader or leader_epoch != self.leader_epoch or end_offset > self.log.log_end_offset:
            error = ErrorCode.not_leader_or_follower
        elif acks == ACKS_ALL:
            if end_offset > self.log.high_watermark:
                return self._commits.add(end_offset, done)
            error = self._reached()
        else:
            if end_offset > self.log.safe_end_offset:
                return self._fsyncs.add(end_offset, done)
            error = ErrorCode.none
        done(error)
        return None

    def stop_waiting(self, wait: Wait) -> None:
        """A waiter has no more time; `done` is not called."""
        for queue in (self._commits, self._fsyncs, self.deletions):
            queue.discard(wait)

    @property
    def is_offline(self) -> bool:
        """The disk of its log failed: until the next start it can neither lead nor follow."""
        return self.log.failure is not None

    @property
    def effective_min_isr(self) -> int:
        """min.insync.replicas, but not more than there are replicas."""
        return min(self.min_isr, len(self.replicas))

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.isr) < self.effective_min_isr  # the ISR that the controller has decided, not the maximal one

    def _reached(self) -> ErrorCode:
        """The result for waiters whose offset the high watermark has reached (Kafka's
        checkEnoughReplicasReachOffset)."""
        maximal = len({*self.isr, *self._pending_isr})
        return ErrorCode.none if maximal >= self.effective_min_isr else ErrorCode.not_enough_replicas_after_append

    # The high watermark.

    def on_follower_fetch(
        self,
        replica_id: NodeId,
        end_offset: Offset,
        leader_epoch: LeaderEpoch,
        now_ms: Millis,
        *,
        broker_epoch: int = -1,
        log_start_offset: Offset = -1,
    ) -> None:
        """A follower asks for what follows `end_offset`: it has everything below, as safe as the topic asks. Not to be
        called for one whose log diverges.

        Raises KafkaError: for a stale epoch or one that is not known here yet, of the leader or (KIP-903) of the
        broker, for one that is no replica, and OFFSET_OUT_OF_RANGE for what the leader does not have.
        """
        self.check_leader(leader_epoch)
        replica = self.others.get(replica_id)
        # A replica of a reassignment that this node has not heard of yet tries again (`followerReplicaOrThrow`).
        if replica is None:
            claims = leader_epoch != NO_LEADER_EPOCH
            raise KafkaError(ErrorCode.unknown_leader_epoch if claims else ErrorCode.not_leader_or_follower)
        # A fetch of an earlier incarnation proves nothing: the disk may have lost what it had (KIP-903).
        if broker_epoch >= 0 and self.live_epoch is not None and self.live_epoch(replica_id) > broker_epoch:
            raise KafkaError(ErrorCode.not_leader_or_follower)
        leader_end = self.log.log_end_offset
        if end_offset > leader_end:
            raise KafkaError(ErrorCode.offset_out_of_range)  # it has more than its leader: it truncates first (KIP-279)
        self._now_ms = now_ms
        replica.on_fetch(end_offset, log_start_offset, broker_epoch, leader_end, now_ms)
        self._count_in_sync()
        self._advance()
        if self.deletions.waits:
            self.deletions.complete(lowest_start(self.others, self.log.log_start_offset, self.live_epoch))
        if self.on_caught_up is not None and not self._pending_isr and replica_id not in self.isr:
            isr = self.grown_isr(replica_id)
            if isr is not None:
                self.on_caught_up(self, isr)

    def quiet_replica(self, replica_id: NodeId) -> Replica | None:
        """A follower that is in sync and has fetched from the log end: until its session is told of a change, more
        such fetches would change nothing here but their time. None for any other."""
        replica = self.others.get(replica_id)
        if replica is None or replica_id not in self.isr or self.deletions.waits:  # brokers that die end those waits
            return None
        return replica if replica.end_offset == self.log.log_end_offset else None

    def reconsider(self, now_ms: Millis) -> None:
        """Time has passed, and brokers may be gone: a replica that was about to join may have to be waited for no more.
        Costs nothing without waiters."""
        self._now_ms = now_ms
        if self._commits.waits:
            self._count_in_sync()
            self._advance()

    def _counts(self, replica_id: NodeId, replica: Replica) -> bool:
        """Whether a commit needs this replica: it is in the maximal ISR (KIP-497), or about to join it as it has
        caught up (Kafka's `Partition.maybeIncrementLeaderHW`)."""
        if replica_id in self.isr or replica_id in self._pending_isr:
            return True
        if not replica.is_caught_up(self.log.log_end_offset, self._now_ms, self.lag_ms_max):
            return False
        return self._may_join(replica_id, replica)

    def _may_join(self, replica_id: NodeId, replica: Replica) -> bool:
        """Whether its broker is alive and (KIP-903) the one that fetched; one may not say which it is."""
        if replica.fetches_due:  # its next fetch may have been on its way when it left, and shows nothing
            return False
        if self.live_epoch is None:
            return True
        live_epoch = self.live_epoch(replica_id)
        return live_epoch >= 0 and replica.broker_epoch in (live_epoch, -1)  # no fenced broker joins (KIP-841)

    def _count_in_sync(self) -> None:
        self.sole_in_sync = (
            self.is_leader
            and not self.is_under_min_isr
            and not any(self._counts(replica_id, replica) for replica_id, replica in self.others.items())
        )

    def _advance(self) -> None:
        """Raise the high watermark to the offset that all replicas needed for a commit have, and notify waiters."""
        log = self.log
        if not self.is_leader or self.is_under_min_isr or not log.is_open:  # below min.insync.replicas: KIP-966
            return
        # The leader itself counts as far as its own disk is as safe as the topic asks.
        end = log.safe_end_offset
        for replica_id, replica in self.others.items():
            if replica.end_offset < end and self._counts(replica_id, replica):
                end = replica.end_offset
        before = log.high_watermark
        # Never back, also if a follower lost records: consumers have seen what is below (KIP-392: on any replica).
        if end > before:
            log.high_watermark = end
        reached = log.high_watermark
        sizes, size = self._sizes, 0
        while sizes and sizes[0][0] <= reached:
            size += sizes.popleft()[1]
        if self.waiters and (size or reached > before):
            notify(self.waiters, size or EVERYBODY)  # nothing is counted where a follower has part of an append
        if self.sessions and reached > before:
            tell(self.sessions, size or EVERYBODY)
        if self.end_sessions and reached > before:
            tell(self.end_sessions, 0)  # followers wait for the log end, but the next fetch is to say it
        if self._commits.waits:
            self._commits.complete(reached, self._reached())

    def _on_fsynced(self) -> None:
        """The log has more on disk."""
        log = self.log
        safe = log.safe_end_offset
        if self._fsyncs.waits:
            self._fsyncs.complete(safe)
        if self.is_leader:
            self._advance()
            if safe < log.log_end_offset:  # appended meanwhile
                log.begin_flush()

    # The in-sync set, which the controller changes.

    def grown_isr(self, replica_id: NodeId) -> tuple[NodeId, ...] | None:
        """The in-sync set with a follower that has what is committed and what was there when this epoch began (KIP-279
        and KAFKA-7128); None where there is nothing to ask for, or a question is open."""
        replica = self.others.get(replica_id)
        if replica is None or not self.is_leader or self._pending_isr or replica_id in self.isr:
            return None
        if replica.end_offset < max(self.log.high_watermark, self.epoch_start):
            return None
        return (*self.isr, replica_id) if self._may_join(replica_id, replica) else None

    def shrunk_isr(self, now_ms: Millis) -> tuple[NodeId, ...] | None:
        """The in-sync set without those that have lagged for longer than `lag_ms_max`; None as `grown_isr`."""
        if not self.is_leader or self._pending_isr or len(self.isr) == 1:  # one change at a time (KIP-497)
            return None
        self._now_ms = now_ms
        lag = lagging(self.others, self.log.log_end_offset, now_ms, self.lag_ms_max)
        isr = tuple(each for each in self.isr if each not in lag)
        return isr if isr != self.isr else None

    def is_followed(self, now_ms: Millis, within_ms: Millis = FOLLOWED_MS) -> bool:
        """Whether one of the others in sync has fetched lately, if there are any: one that does not may have another
        leader, of which this node has not heard. By the time of `on_follower_fetch`."""
        others = [replica for replica_id, replica in self.others.items() if replica_id in self.isr]
        return not others or any(now_ms - replica.fetched_ms < within_ms for replica in others)

    # Following a leader.

    def append_as_follower(self, records: Any, leader_epoch: LeaderEpoch, *, now_ms: Millis) -> Appended:
        """Append what the leader of an epoch sent. Raises KafkaError: NOT_LEADER_OR_FOLLOWER after another epoch began,
        CORRUPT_MESSAGE, INVALID_RECORD for what does not follow the log end, KAFKA_STORAGE_ERROR."""
        if self.is_leader or leader_epoch != self.leader_epoch:
            raise KafkaError(ErrorCode.not_leader_or_follower)
        return self.log.append_as_follower(records, now_ms=now_ms)

    def follow(self, high_watermark: Offset, log_start: Offset) -> None:
        """Apply the leader's high watermark, as far as this log goes, and its log start."""
        log = self.log
        if self.is_leader or not log.is_open:
            return
        before = log.high_watermark
        log.high_watermark = high_watermark  # a follower's is what its leader says, so it lags by a fetch (KIP-101)
        if log_start > log.log_start_offset:
            log.advance_log_start(min(log_start, log.high_watermark))  # records above may still be truncated
        if log.high_watermark > before:
            notify(self.waiters, EVERYBODY)
            tell(self.sessions, EVERYBODY)

    # Fetches that wait.

    def wake(self) -> None:
        """Called after a change that shows in no bytes (leadership, deletion): every waiting fetch checks again."""
        notify(self.waiters, EVERYBODY)
        notify(self.end_waiters, EVERYBODY)
        self._tell_sessions(EVERYBODY)

    def end_of_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """(epoch, end offset) for OffsetForLeaderEpoch: the current epoch ends at the log end (KIP-101, KIP-279)."""
        if epoch == self.leader_epoch:
            return epoch, self.log.log_end_offset
        return self.log.end_offset_for_epoch(epoch)
