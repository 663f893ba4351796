"""What a shard remembers, and the few verbs in which the files beside this one speak: reply, write, timers."""

from __future__ import annotations

import base64
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ottla.coordinator.config import ConsumerGroupConfig, GroupConfig
from ottla.coordinator.effects import Effect, InTransaction, Now, Reply, Reversal, Token, Write
from ottla.coordinator.group.classic.group import ClassicGroup, State
from ottla.coordinator.group.classic.member import Member
from ottla.coordinator.group.offset_store import OffsetStore
from ottla.coordinator.timers import Timers
from ottla.errors import ErrorCode
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage, TopicImage
from ottla.metrics.instruments import OffsetCounts
from ottla.model import Millis, Offset
from ottla.protocol.internal.group_records import GroupRecord
from ottla.protocol.schemas.records import OffsetCommitKey

if TYPE_CHECKING:
    from ottla.coordinator.group.group import Group

Done = Callable[[], None] | None
Failed = Callable[[ErrorCode], None] | None

MEMBER_PREFIX_LENGTH_MAX = 8_000
"""Characters of a client id in a member id, which must stay a string of Kafka's: 32767 bytes."""

GROUP_TIMERS = ("join", "sync", "share session", "streams initial")
"""Kinds of timers that are a group's, not a member's."""

CONFIGS_MAX = 4_096
"""Groups whose settings are remembered, some of which are gone."""

RECORDS_PER_PART_MAX = 500
"""Tombstones in one batch: a name has at most 32 KB, but real ones leave this far below max.message.bytes."""


Apply = Callable[["GroupState", Sequence[GroupRecord]], tuple[Callable[[], None], tuple["Group", ...]]]
"""Lets records count at once; returns what undoes that, and the groups that it has changed."""


class GroupState:
    """The groups and offsets of one partition of `__consumer_offsets`."""

    __slots__ = (
        "_applying", "_configured", "_consumer_configs", "config", "counts", "decisions", "deleting", "effects",
        "expiry_left", "groups", "groups_by_topic", "image", "images", "in_flight", "loaded", "new_topics_version",
        "now", "observe", "offsets", "random", "resolving", "timers", "topic_hashes",
    )  # fmt: skip

    def __init__(self, config: GroupConfig, rng: random.Random, applying: Callable[[], Apply]) -> None:
        self._applying = applying
        self.config = config
        self.random = rng
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self.in_flight: dict[str, dict[int, list[GroupRecord]]] = {}
        """Commits that are decided and not in the log yet, by group. **Invariant**: no group without any."""
        self.deleting: Counter[str] = Counter()
        """Groups whose tombstones are not in the log yet. What was written before those does not bring them back."""
        self.expiry_left: deque[str] = deque()
        """Groups that the running round of expiry has still to look at."""
        self.timers = Timers()
        self.now = Now(0, 0)
        """The instant of the call under way."""
        self.effects: list[Effect] = []
        self.observe: Callable[[str, Group, str], None] = lambda event, group, reason: None
        """Called with an event of a group and its reason, for logs and metrics."""
        self.counts = OffsetCounts()
        """Counters of offsets, for metrics."""
        self.decisions = 1
        """Counts those that changed consumer or streams groups."""
        self.loaded = False
        """False while the log is replayed from its start."""
        self.image: MetadataImage = EMPTY_IMAGE
        self.images = 0
        """Number of images that it has had."""
        self.new_topics_version: Offset = -1
        """The offset of the last image with topics that were new; -1 before the first."""
        self.groups_by_topic: dict[str, set[str]] = {}
        """Consumer and streams groups that read a topic. **Invariant**: no group is missing; one may have left."""
        self.topic_hashes: dict[str, tuple[TopicImage, int]] = {}
        """See `consumer/metadata_hash.py`."""
        self.resolving: set[str] = set()
        """Groups whose patterns the driver is resolving."""
        self._consumer_configs: dict[str, ConsumerGroupConfig] = {}
        """Settings of consumer groups, as `_configured` has them."""
        self._configured: tuple[GroupConfig, object] = (config, None)

    def consumer_config(self, group_id: str) -> ConsumerGroupConfig:
        """The settings of one consumer group, which each heartbeat asks for and which hardly ever change."""
        config, configs = self._configured
        if config is not self.config or configs is not self.image.configs or len(self._consumer_configs) > CONFIGS_MAX:
            self._configured = (self.config, self.image.configs)
            self._consumer_configs.clear()
        found = self._consumer_configs.get(group_id)
        if found is None:
            found = self._consumer_configs[group_id] = self.config.of_group(self.image, group_id)
        return found

    # Effects

    def reply(self, token: Token, response: dict[str, Any]) -> None:
        self.effects.append(Reply(token, response))

    def write(
        self,
        records: list[GroupRecord],
        committed: Done = None,
        failed: Failed = None,
        reversals: Sequence[Reversal] = (),
    ) -> None:
        self.effects.append(Write(records, committed, failed, reversals=reversals))

    def write_applied(
        self, records: list[GroupRecord], undo: Callable[[], None], reversals: Sequence[Reversal] = ()
    ) -> None:
        """Write records that count already; without any, what follows waits for those before."""
        self.effects.append(Write(records, undo=undo, reversals=reversals))

    def apply(self, records: list[GroupRecord], undone: Callable[[], None] = lambda: None) -> None:
        """Write records of consumer or streams groups that count at once (`applying.py`). If they cannot be appended,
        all is as before, and `undone` is called."""
        self.decisions += 1
        undo, changed = self._applying()(self, records)

        def both() -> None:
            undo()
            undone()

        self.write_applied(records, both, ((records[0].key.group, changed, undo),) if records else ())

    def write_in_parts(
        self,
        records: list[GroupRecord],
        committed: Done = None,
        failed: Failed = None,
        reversals: Sequence[Reversal] = (),
    ) -> None:
        """Write records that need not be written together, in batches that are sure to fit the log. The last one has
        the callbacks and reversals: when a write fails, so do those behind it."""
        for start in range(0, len(records), RECORDS_PER_PART_MAX):
            end = start + RECORDS_PER_PART_MAX
            is_last = end >= len(records)
            if is_last:
                self.write(records[start:end], committed, failed, reversals)
            else:
                self.write(records[start:end])

    def write_commit(self, group_id: str, records: list[GroupRecord], transaction: InTransaction | None = None) -> None:
        """Write offsets; until they are in the log, whoever deletes or expires offsets finds them `in_flight`."""
        flights = self.in_flight.setdefault(group_id, {})
        key = id(records)
        flights[key] = records

        def landed(_: ErrorCode = ErrorCode.none) -> None:
            del flights[key]
            if not flights and self.in_flight.get(group_id) is flights:
                del self.in_flight[group_id]

        self.effects.append(Write(records, landed, landed, transaction))

    def offsets_in_flight(self, group_id: str) -> set[tuple[str, int]]:
        """Topics and partitions whose commits are not in the log yet."""
        keys = (record.key for records in self.in_flight.get(group_id, {}).values() for record in records)
        return {(key.topic, key.partition) for key in keys if isinstance(key, OffsetCommitKey)}

    # Groups

    def create(self, group_id: str) -> ClassicGroup:
        group = self.groups[group_id] = ClassicGroup(group_id, self.now.wall_ms)
        return group

    def detach(
        self, groups: Sequence[Group]
    ) -> tuple[Callable[[], None], Callable[[ErrorCode], None], Sequence[Reversal]]:
        """Detach empty groups whose tombstones are about to be written, so that a member that joins meanwhile starts a
        new group; returns what to do once they are written, what restores them should the write fail, and what shows
        them until then."""
        for group in groups:
            del self.groups[group.group_id]
            self.cancel_timers_of(group)
            self.deleting[group.group_id] += 1

        def written() -> None:
            self._detached(groups)

        def restore(_: ErrorCode) -> None:
            self._detached(groups)
            for group in groups:
                self.groups.setdefault(group.group_id, group)

        return written, restore, [self.reversal_to(group.group_id, group) for group in groups]

    def _detached(self, groups: Sequence[Group]) -> None:
        for group in groups:
            self.deleting[group.group_id] -= 1
            if not self.deleting[group.group_id]:
                del self.deleting[group.group_id]

    def reversal_to(self, group_id: str, before: Group | None) -> Reversal:
        """A reversal to the group of that id before another took its place, or it was removed; None: to none."""

        def undo() -> None:
            if before is None:
                self.groups.pop(group_id, None)
            else:
                self.groups[group_id] = before

        return group_id, (), undo

    def cancel_timers_of(self, group: Group) -> None:
        """Cancel the timers of an empty group that is no more: another one of its name sets its own. Member ids that it
        has handed out are not known any more."""
        for kind in GROUP_TIMERS:
            self.timers.cancel((kind, group.group_id))
        if isinstance(group, ClassicGroup):
            for member_id in group.pending_members:
                self.cancel_session(group, member_id)
            group.pending_members.clear()

    def become(self, group: ClassicGroup, state: State) -> None:
        group.become(state, self.now.wall_ms)

    def new_member_id(self, prefix: str) -> str:
        return f"{prefix[:MEMBER_PREFIX_LENGTH_MAX]}-{UUID(int=self.random.getrandbits(128), version=4)}"

    def new_uuid_text(self) -> str:
        """A new UUID in the format of Kafka's Uuid."""
        data = UUID(int=self.random.getrandbits(128), version=4).bytes
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    # Timers. Keys are (kind, group id) or, for sessions, (kind, group id, member id).

    def start_join_timer(self, group: ClassicGroup, delay_ms: Millis) -> None:
        self.timers.schedule(("join", group.group_id), self.now.timer_ms + delay_ms)

    def cancel_join_timer(self, group: ClassicGroup) -> None:
        self.timers.cancel(("join", group.group_id))

    def start_sync_timer(self, group: ClassicGroup) -> None:
        self.timers.schedule(("sync", group.group_id), self.now.timer_ms + group.rebalance_timeout_ms)

    def cancel_sync_timer(self, group: ClassicGroup) -> None:
        self.timers.cancel(("sync", group.group_id))

    def start_session(self, group: ClassicGroup, member: Member, timeout_ms: Millis | None = None) -> None:
        """The member is alive: it has its session timeout (or `timeout_ms`) to send the next heartbeat."""
        deadline_ms = self.now.timer_ms + (member.session_timeout_ms if timeout_ms is None else timeout_ms)
        if member.session is None or not self.timers.move(member.session, deadline_ms):
            member.session = self.timers.schedule(("session", group.group_id, member.member_id), deadline_ms)

    def start_session_of(self, group: ClassicGroup, member_id: str, timeout_ms: Millis) -> None:
        self.timers.schedule(("session", group.group_id, member_id), self.now.timer_ms + timeout_ms)

    def cancel_session(self, group: ClassicGroup, member_id: str) -> None:
        self.timers.cancel(("session", group.group_id, member_id))


def assignment_is_due(last_ms: Millis, interval_ms: Millis, now_ms: Millis) -> bool:
    """Whether an assignment may follow the one of `last_ms`, 0 for none. A time in the future comes from a coordinator
    whose clock was ahead. Kafka waits until then, and the group gets no new assignment meanwhile; here it does."""
    return last_ms == 0 or not 0 <= now_ms - last_ms < interval_ms
