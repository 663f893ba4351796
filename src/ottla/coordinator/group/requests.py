"""Group requests without their wire versions: what each version leaves out has been filled in by the handler."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from ottla.coordinator.effects import InTransaction, Marker
from ottla.model import ZERO_UUID, Millis, Offset

if TYPE_CHECKING:
    from ottla.protocol.schemas.records import StreamsEndpoint, StreamsGroupTopologyValue


class JoinGroup(NamedTuple):
    group_id: str
    session_timeout_ms: Millis
    rebalance_timeout_ms: Millis
    protocol_type: str
    protocols: dict[str, bytes]
    """Assignment strategies by name, in order of preference, each with the member's metadata for it."""
    member_id: str = ""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    require_known_member_id: bool = True
    """Since version 4 a new member gets its id first and joins with it in a second request (KIP-394)."""
    can_skip_assignment: bool = True
    """Since version 9 a returning static leader can be told to leave the assignment as it is (KIP-814)."""
    visible: Container[str] | None = None
    """The topics that the member may describe, for the patterns of others in its group; None: all."""


NO_ASSIGNMENTS: Final[Mapping[str, bytes]] = MappingProxyType({})


class SyncGroup(NamedTuple):
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = NO_ASSIGNMENTS


class Leaving(NamedTuple):
    """One member that goes; with a static member's instance id the member id may be empty (KIP-345)."""

    member_id: str
    instance_id: str | None = None


class LeaveGroup(NamedTuple):
    group_id: str
    members: Sequence[Leaving]


class OffsetToCommit(NamedTuple):
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    topic_id: UUID = ZERO_UUID


class OffsetsNeeded(Exception):
    """Whether a member may commit depends on the partitions, and the request was checked without them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit:
    group_id: str
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    offsets: Sequence[OffsetToCommit] = ()
    retention_ms: Millis | None = None
    """How long the offsets are kept from now on, whatever the broker's retention; versions 2-4 may say so."""
    knows_unknown_group: bool = False
    """Since version 9 (in a transaction 6) a commit to a group that is not there fails with GROUP_ID_NOT_FOUND, before
    with ILLEGAL_GENERATION."""


class TxnOffsetCommit(NamedTuple):
    """Offsets that count once their transaction, whose partition here was verified, is committed."""

    commit: OffsetCommit
    transaction: InTransaction

    @property
    def group_id(self) -> str:
        return self.commit.group_id


class EndTransaction(NamedTuple):
    """Write the marker of a transaction; replaying it is `replay_transaction_end`."""

    marker: Marker


class OffsetsCommitted(NamedTuple):
    """Wait until what was written before is committed."""

    group_id: str


class OffsetDelete(NamedTuple):
    group_id: str
    topics: Mapping[str, Sequence[int]]


class DeleteGroups(NamedTuple):
    group_ids: Sequence[str]
    """Groups of one shard."""

    @property
    def group_id(self) -> str:
        return self.group_ids[0]


class PlainHeartbeat(NamedTuple):
    """A ConsumerHeartbeat that says only who sends it."""

    group_id: str
    member_id: str
    instance_id: str | None
    member_epoch: int
    client_id: str
    client_host: str


class ConsumerHeartbeat(NamedTuple):
    """A field that is None has not changed since the previous heartbeat."""

    group_id: str
    member_id: str
    member_epoch: int
    """0 joins, -1 leaves, -2 leaves for a while (static members)."""
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: Millis = -1
    topics: Sequence[str] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: Mapping[UUID, frozenset[int]] | None = None
    """The partitions that the member has."""
    needs_member_id: bool = True
    """Since version 1 members make their own ids (KIP-1082)."""
    visible: Container[str] | None = None
    """The topics that the member may describe, for patterns; None: all."""

    @property
    def is_brief(self) -> bool:
        """Whether it says nothing new of the member, but perhaps which partitions it has."""
        names = self.rack_id is None and self.assignor is None
        return names and self.topics is None and self.pattern is None and self.rebalance_timeout_ms == -1


TaskOffsets = Sequence[tuple[str, int, int]]
"""Subtopology, partition, offset."""
TaskRows = Sequence[tuple[str, Sequence[int]]]
"""Partitions by subtopology."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsHeartbeat:
    """A field that is None has not changed since the previous heartbeat."""

    group_id: str
    member_id: str
    member_epoch: int
    """0 joins, -1 leaves, -2 leaves for a while (static members)."""
    endpoint_epoch: int = 0
    """Epoch of the endpoints that the member knows."""
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: Millis = -1
    topology: StreamsGroupTopologyValue | None = None
    owned: tuple[TaskRows | None, TaskRows | None, TaskRows | None] = (None, None, None)
    """The active, standby and warm-up tasks that the member has."""
    process_id: str | None = None
    user_endpoint: StreamsEndpoint | None = None
    client_tags: Sequence[tuple[str, str]] | None = None
    task_offsets: TaskOffsets | None = None
    """How far the member has restored the tasks that it does not run."""
    task_end_offsets: TaskOffsets | None = None
    shuts_down: bool = False
    """All members of the application are to stop."""
    is_version_1: bool = True
    """Since version 1 a member can be told that it lacks client tags, and be asked to describe its topology."""


class StreamsDescription(NamedTuple):
    """A member describes its application's topology (KIP-1331)."""

    group_id: str
    member_id: str
    topology_epoch: int
    description: bytes
    """As the group's record has it."""
    items: int
    """Nodes, and names in them."""
    wrong: str | None = None
    """Why it is no description."""


class ShareHeartbeat(NamedTuple):
    group_id: str
    member_id: str
    member_epoch: int
    """0 joins, -1 leaves."""
    rack_id: str | None
    client_id: str
    client_host: str
    topics: list[str] | None
    """None where they have not changed."""


class MoveShareOffsets(NamedTuple):
    """The offsets of an empty share group are about to be set; the share coordinator sets them."""

    group_id: str
    offsets: Mapping[UUID, Mapping[int, Offset]]


class DeleteShareOffsets(NamedTuple):
    """The state of topics is about to be deleted by the share coordinator."""

    group_id: str
    topics: Sequence[str]


class DeleteShareStates(NamedTuple):
    """An empty share group is about to be deleted, the state of its partitions first."""

    group_id: str


class DeleteShareGroup(NamedTuple):
    """The state of the group's partitions is deleted: so is the group."""

    group_id: str


class SharesInitialized(NamedTuple):
    """The share coordinator keeps the state of partitions now; or it could not be asked, and will be asked again."""

    group_id: str
    partitions: Mapping[UUID, Sequence[int]]
    kept: bool


class SharesDeleted(NamedTuple):
    """The share coordinator keeps no state of these topics any more."""

    group_id: str
    topic_ids: Sequence[UUID]


ShareRequest = (
    MoveShareOffsets | DeleteShareOffsets | DeleteShareStates | DeleteShareGroup | SharesInitialized | SharesDeleted
)
"""A step of what an operator asks of a share group's offsets, or of its members' partitions."""

GroupRequest = (
    JoinGroup
    | SyncGroup
    | LeaveGroup
    | OffsetCommit
    | TxnOffsetCommit
    | OffsetsCommitted
    | OffsetDelete
    | DeleteGroups
    | ConsumerHeartbeat
    | StreamsHeartbeat
    | StreamsDescription
    | ShareHeartbeat
    | ShareRequest
)
"""A request about a group, or groups, of one shard."""
