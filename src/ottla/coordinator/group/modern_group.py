"""What consumer groups (KIP-848) and streams groups (KIP-1071) have in common: members that move one by one to a target
assignment, and how records change the group. Share groups are not among them, as they are in Kafka's `ModernGroup`.

All of a group is in the log but for what is marked as soft, and only `replay` changes it: with the records of the log
while it is loaded, and with those of a decision as it is made (`applying.py`). Records come in any order that a
compacted log can have.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from ottla.coordinator.group.kind import Undo, saved_group
from ottla.errors import ErrorCode, KafkaError
from ottla.model import Millis
from ottla.protocol.internal.group_records import GroupRecord, ModernKey, ModernTypes, Value

if TYPE_CHECKING:
    from typing import Self

    from ottla.coordinator.group.state import GroupState


class ModernMember(Protocol):
    @property
    def epoch(self) -> int: ...
    @property
    def uses_classic_protocol(self) -> bool: ...
    def is_reconciled_to(self, epoch: int) -> bool: ...
    def with_metadata(self, value: Any) -> Self: ...
    def with_current(self, value: Any) -> Self: ...


M = TypeVar("M", bound=ModernMember)
T = TypeVar("T")


class ModernGroup(ABC, Generic[M, T]):
    """Members of `M`, with target assignments of `T`."""

    TYPES: ClassVar[ModernTypes]
    """Types of its records."""
    protocol_type: str
    protocol_name = None
    uses_consumer_protocol = True
    """The topics that it reads are known."""
    keeps_offsets = True
    expires = True

    def __init__(self, group_id: str, nothing: T) -> None:
        self.group_id = group_id
        self.epoch = 1
        """Grows whenever members, or what they are to share, change."""
        self.metadata_hash = 0
        self.assignment_epoch = 1
        """The group epoch that the target assignment is for."""
        self.assignment_timestamp_ms: Millis = 0
        """Time at which it was computed; 0 if unknown."""
        self.members: dict[str, M] = {}
        self.targets: dict[str, T] = {}
        """Target assignment of each member."""
        self.refresh_deadline_ms: Millis = 0
        """Soft: when topics are looked at again, on the wall clock."""
        self.refresh_epoch = 0
        """Soft: the group epoch that `refresh_deadline_ms` belongs to; a greater one than the group's was undone."""
        self.fence_epochs: dict[str, int] = {}
        """Soft: the epoch that a member has to leave before its rebalance timer expires."""
        self._nothing = nothing
        self._state: str | None = None

    def request_refresh(self) -> None:
        """A topic has changed: the next heartbeat looks at the topics."""
        self.refresh_deadline_ms = self.refresh_epoch = 0

    # Questions

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def generation(self) -> int:
        return self.epoch

    @property
    def is_ready(self) -> bool:
        """Whether what the members run can run."""
        return True

    @property
    @abstractmethod
    def topics(self) -> Collection[str]:
        """Topics whose changes concern the group."""

    @property
    def shown_state(self) -> str:
        if self._state is None:
            self._state = self._compute_state()
        return self._state

    def _compute_state(self) -> str:
        if not self.members:
            return "Empty"
        if not self.is_ready:
            return "NotReady"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        settled = all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values())
        return "Stable" if settled else "Reconciling"

    def member(self, member_id: str) -> M:
        """Raises UNKNOWN_MEMBER_ID."""
        found = self.members.get(member_id)
        if found is None:
            message = f"Member {member_id} is not a member of group {self.group_id}."
            raise KafkaError(ErrorCode.unknown_member_id, message)
        return found

    def target(self, member_id: str) -> T:
        return self.targets.get(member_id, self._nothing)

    def has_metadata_expired(self, now_ms: Millis) -> bool:
        return now_ms >= self.refresh_deadline_ms or self.epoch < self.refresh_epoch

    # Records

    def key(self, number: int, name: str | None = None) -> ModernKey:
        return ModernKey(number, self.group_id, name)

    def removal(self, member_id: str) -> list[GroupRecord]:
        """Records that delete a member, in the order that Kafka checks."""
        types = self.TYPES
        numbers = (types.member_current, types.member_target, types.member)
        return [GroupRecord(self.key(number, member_id), None) for number in numbers]

    def tombstones(self) -> list[GroupRecord]:
        """Tombstones that delete the group, except for its offsets."""
        types = self.TYPES
        keys = [self.key(types.member_current, member_id) for member_id in self.members]
        keys += [self.key(types.member_target, member_id) for member_id in {**self.members, **self.targets}]
        keys.append(self.key(types.target))
        keys += [self.key(types.member, member_id) for member_id in self.members]
        return [GroupRecord(key, None) for key in (*keys, *self.last_keys())]

    @abstractmethod
    def last_keys(self) -> Iterable[ModernKey]:
        """Keys of the group's own records, in the order in which Kafka deletes them."""

    # Changes, for `replay`

    @abstractmethod
    def new_member(self, member_id: str) -> M: ...

    @abstractmethod
    def set_member(self, member_id: str, new: M | None) -> None:
        """Put a member in place of the one with its id, or (None) remove it."""

    @abstractmethod
    def target_of(self, value: Any) -> T:
        """The target assignment in a record."""

    @abstractmethod
    def set_metadata(self, value: Any) -> None: ...

    @abstractmethod
    def saved_metadata(self) -> Undo:
        """A function that restores what `set_metadata` changes."""

    @abstractmethod
    def set_other(self, number: int, name: str, value: Any) -> None:
        """Apply a record that only groups of its kind have."""

    @abstractmethod
    def saved_other(self, number: int, name: str) -> Undo: ...

    def set_assignment_epoch(self, epoch: int, timestamp_ms: Millis) -> None:
        self.assignment_epoch, self.assignment_timestamp_ms = epoch, timestamp_ms
        self._state = None

    def set_target(self, member_id: str, target: T | None) -> None:
        if target is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = target


def replay(make: type[Any], state: GroupState, key: ModernKey, value: Any) -> None:
    """Apply a record of the log, or of a decision, of a group of the class `make`."""
    group: Any = state.groups.get(key.group)
    if not isinstance(group, make):
        if value is None:
            return
        # A classic group of that name has only offsets, or its tombstone was compacted away.
        group = state.groups[key.group] = make(key.group)
    number, name, types = key.type, key.member or "", group.TYPES
    if number == types.member_current:
        if value is not None or name in group.members:
            group.set_member(name, (group.members.get(name) or group.new_member(name)).with_current(value))
    elif number == types.member_target:
        group.set_target(name, None if value is None else group.target_of(value))
    elif number == types.target:
        if value is None:
            group.set_assignment_epoch(-1, 0)
        else:
            group.set_assignment_epoch(value.assignment_epoch, value.assignment_timestamp)
    elif number == types.metadata:
        if value is None:
            del state.groups[key.group]
            for topic in group.topics:
                state.groups_by_topic.get(topic, set()).discard(key.group)
        else:
            group.set_metadata(value)
    else:
        if number != types.member:
            group.set_other(number, name, value)
        elif value is not None:
            group.set_member(name, (group.members.get(name) or group.new_member(name)).with_metadata(value))
        elif name in group.members:
            group.set_member(name, None)
        _subscribe(state, group)


def _subscribe(state: GroupState, group: ModernGroup[Any, Any]) -> None:
    """Keep `groups_by_topic` right, which says whom a change of a topic concerns."""
    for topic in group.topics:
        state.groups_by_topic.setdefault(topic, set()).add(group.group_id)


def saved(make: type[Any], state: GroupState, key: ModernKey) -> Undo:
    """A function that restores what a record is about to change."""
    found: Any = state.groups.get(key.group)
    if not isinstance(found, make):
        return saved_group(state, key.group)
    number, name, types = key.type, key.member or "", found.TYPES
    if number in (types.member, types.member_current):
        member = found.members.get(name)
        return lambda: found.set_member(name, member)
    if number == types.member_target:
        target = found.targets.get(name)
        return lambda: found.set_target(name, target)
    if number == types.target:
        epoch, timestamp_ms = found.assignment_epoch, found.assignment_timestamp_ms
        return lambda: found.set_assignment_epoch(epoch, timestamp_ms)
    if number != types.metadata:
        undo: Undo = found.saved_other(number, name)
        return undo
    of_group, of_metadata = saved_group(state, key.group), found.saved_metadata()

    def restore() -> None:
        of_group()
        of_metadata()
        _subscribe(state, found)

    return restore


def put(key: ModernKey, value: Value) -> GroupRecord:
    return GroupRecord(key, value)
