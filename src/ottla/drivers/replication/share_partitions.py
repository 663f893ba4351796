"""The share-partitions of this node: of each partition that it leads, one for every share group that reads it (Kafka's
`SharePartitionManager`).

One is loaded with the first fetch of its group, from the share coordinator, and dropped when the node stops leading the
partition, when a newer leader has taken over, or when the group's last connection is gone. What must outlive it goes to
the coordinator by `share_persister.py`; locks end by a timer. A fetch that waits is called when there may be records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from ottla.clock import elapsed_s
from ottla.config.checks import reset_duration_ms
from ottla.config.group_settings import group_setting
from ottla.coordinator.share.requests import ReadState, StateRow, WriteState
from ottla.drivers.coordinators.share_persister import Persister
from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.features import SHARE_VERSION
from ottla.metadata.image import ConfigResourceType, MetadataImage
from ottla.metrics.shared import ShareMetrics, SharePartitionMetrics
from ottla.model import Millis, Offset
from ottla.protocol.internal.share_records import SharePartitionKey
from ottla.protocol.schemas.records import StateBatch
from ottla.replication.partition import Partition
from ottla.replication.share.acknowledgement import Acknowledgement, StateWrite
from ottla.replication.share.acquisition import Acquired
from ottla.replication.share.config import ShareConfig
from ottla.replication.share.dead_letters import SHARE_VERSION_MIN, TOPIC, DeadRecords, LostLetters
from ottla.replication.share.ranges import add_lengths, count_types
from ottla.replication.share.session import SessionKey, SharedPartition, ShareSessions
from ottla.replication.share.share_partition import LoadedState, SharePartition

if TYPE_CHECKING:
    from ottla.drivers.ports import PublishedMetadata, ShareHost
    from ottla.drivers.replication.dead_letters import DeadLetterWriter
    from ottla.replication.share.waits import Backoff

_LOG = logging.getLogger("ottla.share")

UNKNOWN_START: Final = -1

READ_BYTES: Final = 65_536

LEFT_RUNS_MAX: Final = 100_000
"""Runs of records whose back-off is known though nobody reads their share-partition: about 15 MB."""

RESUMED_AT_ONCE: Final = 500
"""Back-offs that are put into a window without yielding to the event loop."""

_LOST: Final = frozenset({
    ErrorCode.not_leader_or_follower, ErrorCode.group_id_not_found, ErrorCode.unknown_topic_or_partition,
})  # fmt: skip
"""What the coordinator says, in the words of `error_of`, when this node's state of a share-partition is not the one
that counts any more."""

_ERRORS: Final = {
    ErrorCode.none: ErrorCode.none,
    ErrorCode.unsupported_version: ErrorCode.coordinator_not_available,
    ErrorCode.broker_not_available: ErrorCode.coordinator_not_available,
    ErrorCode.group_id_not_found: ErrorCode.group_id_not_found,
    ErrorCode.unknown_topic_or_partition: ErrorCode.unknown_topic_or_partition,
    ErrorCode.invalid_request: ErrorCode.unknown_topic_or_partition,
    ErrorCode.fenced_leader_epoch: ErrorCode.not_leader_or_follower,
    ErrorCode.fenced_state_epoch: ErrorCode.not_leader_or_follower,
}


def error_of(row: StateRow) -> ErrorCode:
    """What a consumer is told of the coordinator's answer. What passes (it is not heard of, moves, loads, or cannot
    write for the moment: NETWORK_EXCEPTION, REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS, ...) is
    COORDINATOR_NOT_AVAILABLE. To INVALID_REQUEST, of a share-partition whose state nobody has begun to keep, a consumer
    would have no answer; it comes again after UNKNOWN_TOPIC_OR_PARTITION."""
    code = ErrorCode(row["error_code"])
    passing = ErrorCode.coordinator_not_available if code.retriable else ErrorCode.unknown_server_error
    return _ERRORS.get(code, passing)


Done = Callable[[KafkaError | None], None]
"""Called once: with None when what a member said is kept, or with the error."""


class LedSharePartition:
    """A partition led by this node, as one share group reads it."""

    __slots__ = (
        "core", "error", "is_read", "is_wanted", "key", "likely_bytes", "metrics", "partition", "timer", "timer_ms",
        "unwritten", "waiters", "where",
    )  # fmt: skip

    def __init__(self, key: SharePartitionKey, partition: Partition) -> None:
        self.key = key
        self.where = SharedPartition(key.topic_id, key.partition)
        self.partition = partition
        self.core: SharePartition | None = None
        """None until it is loaded."""
        self.error: ErrorCode | None = None
        """Why it is no more."""
        self.is_read = False
        """**Invariant**: while a fetch reads for it, no other one does: both would read the same."""
        self.is_wanted = False
        """Whether another fetch was kept away meanwhile."""
        self.likely_bytes = READ_BYTES
        """What a fetch may have to read of it, by the one before."""
        self.waiters: dict[Callable[[], None], None] = {}
        """Fetches that want to look again when there may be records for them."""
        self.timer: asyncio.Handle | None = None
        self.timer_ms = 0
        self.unwritten = 0
        """Dead letters of which it is not kept yet that they are written, by the times that records died."""
        self.metrics = SharePartitionMetrics()

    def wake(self) -> None:
        for waiter in [*self.waiters]:
            waiter()

    def read_begins(self) -> None:
        self.is_read = True
        self.metrics.fetch_begins(elapsed_s())

    def read_is_over(self) -> None:
        """Wake fetches that waited for this read to end."""
        self.is_read = False
        self.metrics.fetch_ends(elapsed_s())
        if self.is_wanted:
            self.is_wanted = False
            self.wake()


class LeftBackoffs:
    """Back-offs of share-partitions that nobody reads at the moment. They are known to this node alone: after a change
    of leader they start again."""

    def __init__(self, runs_max: int = LEFT_RUNS_MAX) -> None:
        self._runs_max = runs_max
        self._left: dict[SharePartitionKey, tuple[int, list[Backoff]]] = {}
        self._runs = 0

    def put(self, key: SharePartitionKey, leader_epoch: int, backoffs: list[Backoff]) -> None:
        """Keep the back-offs of one share-partition. The oldest make room."""
        self.take(key, leader_epoch)
        if backoffs:
            self._left[key] = leader_epoch, backoffs
            self._runs += len(backoffs)
        while self._runs > self._runs_max:
            self.take(next(iter(self._left)), leader_epoch)

    def take(self, key: SharePartitionKey, leader_epoch: int) -> list[Backoff]:
        """Remove and return the back-offs of one share-partition; none if another node has led it meanwhile."""
        epoch, backoffs = self._left.pop(key, (leader_epoch, []))
        self._runs -= len(backoffs)
        return backoffs if epoch == leader_epoch else []


class SharePartitions:
    """All methods belong to the event loop's thread."""

    __slots__ = (
        "_backoffs", "_configs", "_dead_letters", "_find_offset", "_led", "_make_dead_letters", "_node", "_stopped",
        "lost_letters", "metrics", "persister", "sessions",
    )  # fmt: skip

    def __init__(
        self,
        node: ShareHost,
        metadata: PublishedMetadata,
        persister: Persister,
        find_offset: Callable[[Partition, Millis], Awaitable[Offset | None]],
        dead_letters: Callable[[ShareMetrics, dict[str, LostLetters]], DeadLetterWriter],
    ) -> None:
        """`find_offset` gives, awaited, the offset of the first record since a timestamp; None if there is none.
        `dead_letters` makes what writes dead letters, when there is the first one."""
        self._node = node
        self.persister = persister
        self._find_offset = find_offset
        self._led: dict[tuple[UUID, int], dict[str, LedSharePartition]] = {}
        self.sessions = ShareSessions(node.config.group_share_max_share_sessions, self._session_ended)
        self._stopped = False
        self._make_dead_letters = dead_letters
        self._dead_letters: DeadLetterWriter | None = None
        self._backoffs = LeftBackoffs()
        self.lost_letters: dict[str, LostLetters] = {}
        """Groups whose last letters this node could not write."""
        self._configs: dict[str, tuple[Mapping[str, str], int, ShareConfig, bool]] = {}
        """Groups read here, each with its own settings and the level of share.version, the resulting configuration, and
        whether it reads only what is committed; the node's settings do not change."""
        self.metrics = ShareMetrics()
        node.replicas.on_leadership.append(self._on_leadership)
        metadata.subscribe(self._on_metadata)

    async def stop(self) -> None:
        self._stopped = True
        for led in [*self]:
            self.drop(led, ErrorCode.not_leader_or_follower)
        if self._dead_letters is not None:
            await self._dead_letters.stop()
        await self.persister.stop()

    def __iter__(self) -> Iterator[LedSharePartition]:
        return (led for groups in self._led.values() for led in groups.values())

    # Which there are

    def get(self, group_id: str, where: SharedPartition) -> LedSharePartition | None:
        found = self._led.get(where, {}).get(group_id)
        if found is not None and not found.partition.is_leader:
            self.drop(found, ErrorCode.not_leader_or_follower)
            return None
        return found

    def get_or_load(self, group_id: str, where: SharedPartition, partition: Partition) -> LedSharePartition:
        """The share-partition, perhaps without a core yet; its waiters are called when it is loaded or lost."""
        found = self.get(group_id, where)
        if found is not None and found.partition is not partition:
            self.drop(found, ErrorCode.not_leader_or_follower)
            found = None
        if found is None:
            found = LedSharePartition(SharePartitionKey(group_id, *where), partition)
            self._led.setdefault(where, {})[group_id] = found
            self._node.spawn(self._load(found))
        return found

    def drop(self, led: LedSharePartition, error: ErrorCode) -> None:
        """Drop its state here, which no longer counts."""
        groups = self._led.get(led.where, {})
        if groups.get(led.key.group_id) is led:
            del groups[led.key.group_id]
            if not groups:
                del self._led[led.where]
        led.core = None
        led.error = error
        if led.timer is not None:
            led.timer.cancel()
        led.wake()

    def _on_leadership(self, partition: Partition) -> None:
        if not partition.is_leader:
            for led in [*self._led.get((partition.topic_id, partition.topic_partition.partition), {}).values()]:
                self.drop(led, ErrorCode.not_leader_or_follower)

    def _on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if delta.deleted_topics:
            for led in [led for led in self if led.key.topic_id in delta.deleted_topics]:
                self.drop(led, ErrorCode.unknown_topic_or_partition)

    # Loading

    async def _load(self, led: LedSharePartition) -> None:
        leader_epoch = led.partition.leader_epoch
        began_s = elapsed_s()
        try:
            row = await self.persister.ask(ReadState(led.key, leader_epoch))
            if (error := error_of(row)) is not ErrorCode.none:
                where = fields(partition=led.partition.topic_partition, group=led.key.group_id, error=error.name)
                _LOG.log(logging.WARNING, "a share partition cannot be loaded", extra=where)
                self.drop(led, error)
                return
            start = row["start_offset"]
            if start == UNKNOWN_START:
                start = await self._initial_offset(led)
            batches = [StateBatch(**each) for each in row["state_batches"]]
            if led.error is None:
                config = self.config_of(led.key.group_id)
                core = SharePartition(LoadedState(row["state_epoch"], start, batches), leader_epoch, config)
                await self._resume(core, self._backoffs.take(led.key, leader_epoch))
            if led.error is None:
                led.core = core
                for each in batches:
                    led.metrics.batch_records.add(each.last_offset - each.first_offset + 1)
                self.metrics.load_seconds.add(elapsed_s() - began_s)
                led.wake()
                self._bury(led)
        except KafkaError as error:
            self.drop(led, ErrorCode(error.code))
        except asyncio.CancelledError:
            self.drop(led, ErrorCode.not_leader_or_follower)
        except Exception as bug:
            self.drop(led, ErrorCode.unknown_server_error)
            _LOG.error("a share partition cannot be loaded", exc_info=bug)

    @staticmethod
    async def _resume(core: SharePartition, backoffs: Sequence[Backoff]) -> None:
        selection = core.selection
        if selection is None:
            return
        for start in range(0, len(backoffs), RESUMED_AT_ONCE):
            selection.resume(backoffs[start : start + RESUMED_AT_ONCE])
            await asyncio.sleep(0)

    async def _initial_offset(self, led: LedSharePartition) -> Offset:
        """Where a group begins that has no state (`share.auto.offset.reset`). Raises KafkaError."""
        strategy = str(self.setting(led.key.group_id, "share.auto.offset.reset"))
        log = led.partition.log
        back_ms = reset_duration_ms(strategy)
        if back_ms is None:
            return log.log_start_offset if strategy == "earliest" else log.high_watermark
        found = await self._find_offset(led.partition, self._node.clock.now_ms() - back_ms)
        if found is None:
            raise KafkaError(ErrorCode.offset_not_available)
        return found

    # Settings

    def setting(self, group_id: str, name: str) -> Any:
        own = self._node.image.config(ConfigResourceType.GROUP, group_id)
        return group_setting(own, self._node.config, name)

    def config_of(self, group_id: str) -> ShareConfig:
        return self._settings_of(group_id)[2]

    def reads_committed(self, group_id: str) -> bool:
        """Whether the group reads only what is committed (`share.isolation.level`)."""
        return self._settings_of(group_id)[3]

    def _settings_of(self, group_id: str) -> tuple[Mapping[str, str], int, ShareConfig, bool]:
        image = self._node.image
        own, level = image.config(ConfigResourceType.GROUP, group_id), image.features.get(SHARE_VERSION, 0)
        known = self._configs.get(group_id)
        if known is None or known[0] is not own or known[1] != level:
            committed_only = self.setting(group_id, "share.isolation.level") == "read_committed"
            known = self._configs[group_id] = own, level, self._config_of(group_id), committed_only
        return known

    def _config_of(self, group_id: str) -> ShareConfig:
        return ShareConfig(
            self.setting(group_id, "share.record.lock.duration.ms"),
            self.setting(group_id, "share.delivery.count.limit"),
            self.setting(group_id, "share.partition.max.record.locks"),
            self.setting(group_id, "share.renew.acknowledge.enable"),
            self.setting(group_id, "ottla.share.retry.backoff.ms"),
            self.setting(group_id, "ottla.share.retry.backoff.max.ms"),
            str(self.setting(group_id, "ottla.share.delivery.time.header")).encode(),
            self.setting(group_id, "ottla.share.order") == "key",
            self.setting(group_id, "ottla.share.waiting.max"),
            bool(str(self.setting(group_id, TOPIC)).strip())
            and self._node.image.features.get(SHARE_VERSION, 0) >= SHARE_VERSION_MIN,
        )

    def use(self, core: SharePartition, config: ShareConfig) -> None:
        """Have a share-partition go by settings that may have changed."""
        core.use(config, self._node.clock.now_ms() - self.now_ms() if config.selects else 0)

    # Deliveries

    @staticmethod
    def now_ms() -> Millis:
        return int(asyncio.get_running_loop().time() * 1000)

    def acquired(self, led: LedSharePartition, acquired: Sequence[Acquired]) -> None:
        """Start the lock timers of records that its core gave to a member."""
        add_lengths(led.metrics.batch_records, acquired)
        self._arm(led)

    def acknowledge(
        self,
        group_id: str,
        where: SharedPartition,
        member: str,
        acknowledgements: Sequence[Acknowledgement],
        done: Done,
    ) -> None:
        """Apply a member's acknowledgements. `done` hears when they are stored: before this returns, where nobody has
        to be waited for. Raises nothing."""
        led = self.get(group_id, where)
        if led is None or led.core is None:
            message = "This server does not host this topic-partition."
            done(KafkaError(ErrorCode.unknown_topic_or_partition, message))
            return
        self.use(led.core, self.config_of(group_id))
        count_types(self.metrics.acknowledged, acknowledgements)
        try:
            write = led.core.acknowledge(member, acknowledgements, self.now_ms())
        except KafkaError as error:
            done(error)
        else:
            self._persist(led, write, done)
        self._arm(led)
        led.wake()

    def release(self, key: SessionKey, partitions: Iterable[SharedPartition]) -> None:
        """The session of a member has ended: others may have what it has acquired."""
        for where in [*partitions]:
            led = self.get(key.group_id, where)
            if led is not None and led.core is not None:
                self.use(led.core, self.config_of(key.group_id))
                self._persist(led, led.core.release(key.member_id), None)
                led.wake()

    def end_session(self, key: SessionKey) -> None:
        """End a session at the member's last request."""
        session = self.sessions.get(key)
        if session is not None:
            self.sessions.end(key)
            self.release(key, session)

    def disconnected(self, connection: Hashable) -> None:
        key = self.sessions.disconnected(connection)
        if key is not None and not self._stopped and not self.sessions.has_group(key.group_id):
            # Whoever comes next begins with what the coordinator says, which an operator may change meanwhile.
            self.metrics.remove_group(key.group_id)
            self._configs.pop(key.group_id, None)
            for led in [led for led in self if led.key.group_id == key.group_id and not led.unwritten]:
                self._without_readers(led)

    def _without_readers(self, led: LedSharePartition) -> None:
        """Drop its state, but for the back-offs: readers that come and go do not postpone them."""
        if led.core is not None and led.core.selection is not None:
            self._backoffs.put(led.key, led.core.leader_epoch, led.core.selection.waits.backoffs())
        self.drop(led, ErrorCode.not_leader_or_follower)

    def _session_ended(self, key: SessionKey, partitions: Iterable[SharedPartition]) -> None:
        """End a session whose connection has closed."""
        if not self._stopped:
            self.release(key, partitions)

    def _persist(self, led: LedSharePartition, write: StateWrite | None, done: Done | None) -> None:
        """Store a change, and report the result."""
        if write is None:
            if done is not None:
                done(None)
            return
        selects = led.core is not None and led.core.selection is not None
        batches = write.kept() if selects else write.batches
        request = WriteState(
            led.key, write.state_epoch, write.leader_epoch, write.start_offset, batches, write.delivery_complete_count
        )

        def written(row: StateRow | None) -> None:
            error = ErrorCode.not_leader_or_follower if row is None else error_of(row)
            self._written(led, write, error)
            if has_dead:
                self._kept(led, None)
            if done is not None:
                done(KafkaError(error) if error else None)

        if has_dead := bool(write.dead):
            led.unwritten += 1
        self.persister.tell(request, written)

    def _written(self, led: LedSharePartition, write: StateWrite, error: ErrorCode) -> None:
        if led.core is None:
            return
        may_have_records = led.core.written(write, self.now_ms(), committed=error is ErrorCode.none)
        if error is ErrorCode.none or write.stands:
            led.metrics.archived += write.given_up
        if error in _LOST:
            self.drop(led, error)
            return
        if error:
            where = fields(partition=led.partition.topic_partition, group=led.key.group_id, error=error.name)
            _LOG.warning("acknowledgements of a share group could not be stored", extra=where)
        self._bury(led)
        self._arm(led)
        if may_have_records:
            led.wake()

    # Dead letters (KIP-1191)

    def dead_letters(self) -> DeadLetterWriter:
        """Made at the first letter: few groups have any."""
        if self._dead_letters is None:
            self._dead_letters = self._make_dead_letters(self.metrics, self.lost_letters)
        return self._dead_letters

    def _bury(self, led: LedSharePartition) -> None:
        """Have the letters of records written that have died."""
        if led.core is None or not (dead := led.core.take_dead()):
            return
        from ottla.drivers.replication.dead_letters import Letters

        for each in dead:
            led.unwritten += 1
            done = partial(self._buried, led, each)
            self.dead_letters().write(Letters(led.key.group_id, led.partition, each, done))

    def _buried(self, led: LedSharePartition, dead: DeadRecords) -> None:
        """The letters are written, or cannot be: the records are archived."""
        if led.core is None:  # another leader writes them again
            return
        self._persist(led, led.core.archived(dead), partial(self._kept, led))
        led.wake()

    def _kept(self, led: LedSharePartition, error: KafkaError | None) -> None:
        """A share-partition without readers stays until it is known that its letters are written; else the next reader
        would have them written again."""
        led.unwritten -= 1
        if led.core is not None and not led.unwritten and not self.sessions.has_group(led.key.group_id):
            self._without_readers(led)

    # Locks

    def _arm(self, led: LedSharePartition) -> None:
        deadline = None if led.core is None else led.core.next_deadline()
        if deadline is None or (led.timer is not None and led.timer_ms <= deadline):
            return
        if led.timer is not None:
            led.timer.cancel()
        led.timer_ms = deadline
        led.timer = asyncio.get_running_loop().call_at(deadline / 1000, self._locks_end, led)

    def _locks_end(self, led: LedSharePartition) -> None:
        led.timer = None
        if led.core is None:
            return
        core = led.core
        self.use(core, self.config_of(led.key.group_id))
        write = core.advance(max(self.now_ms(), led.timer_ms))
        if write is not None:
            led.metrics.locks_ended += sum(row[1] - row[0] + 1 for row in write.rows)
        self._persist(led, write, None)
        self._arm(led)
        if write is not None or core.selection is not None:
            led.wake()
