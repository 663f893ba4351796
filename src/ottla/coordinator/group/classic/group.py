"""A classic consumer group: members, generation and state. It answers questions and keeps its own counts right;
`rebalance.py` decides what happens when.

Membership and the running rebalance live in memory only. What a restart must know (generation, leader, each member's
subscription and assignment) is written as one GroupMetadata record when an assignment is stored or the group empties.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from ottla.coordinator.effects import Token
from ottla.coordinator.group.classic.member import CONSUMER_PROTOCOL_TYPE, Member, subscribed_topics
from ottla.errors import ErrorCode, KafkaError
from ottla.model import Millis
from ottla.protocol.internal.group_metadata import MemberRows
from ottla.protocol.internal.group_records import GroupRecord
from ottla.protocol.schemas.records import GroupMetadataKey, GroupMetadataValue


class State(enum.Enum):
    EMPTY = "Empty"
    """No members; perhaps committed offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits until every member has joined, or the rebalance timeout."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The members know the new generation; the leader works out the assignment."""
    STABLE = "Stable"
    DEAD = "Dead"
    """This coordinator gave the group up."""

    __hash__ = object.__hash__  # Enum's is a function of Python's


EMPTY: Final = State.EMPTY
PREPARING: Final = State.PREPARING_REBALANCE
COMPLETING: Final = State.COMPLETING_REBALANCE
STABLE: Final = State.STABLE
DEAD: Final = State.DEAD
"""For compiled code, which reads a name fifty times as fast as a member of an enum."""


TRANSITIONS: dict[State, frozenset[State]] = {
    EMPTY: frozenset({PREPARING, DEAD}),
    PREPARING: frozenset({COMPLETING, EMPTY, DEAD}),
    COMPLETING: frozenset({PREPARING, STABLE, DEAD}),
    STABLE: frozenset({PREPARING, DEAD}),
    DEAD: frozenset(),
}


class ClassicGroup:
    """One group. Mutable; only the coordinator's code touches it."""

    group_type = "classic"
    keeps_offsets = True

    __slots__ = (
        "_support", "awaiting_join_count", "generation", "group_id", "initial_delay_left_ms", "joined", "leader",
        "members", "new_member_added", "pending_members", "pending_sync", "previous_state", "protocol_name",
        "protocol_type", "state", "state_timestamp_ms", "static_members", "subscribed",
    )  # fmt: skip

    def __init__(self, group_id: str, now_ms: Millis) -> None:
        self.group_id = group_id
        self.state = EMPTY
        self.previous_state = DEAD
        self.state_timestamp_ms: Millis = now_ms
        """Wall time of the last transition; -1 in a group loaded from an old record. Offsets expire by it."""
        self.generation = 0
        """Counts rebalances. **Invariant**: grows with each. One that was never assigned is not in the log."""
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        """The assignment strategy of this generation."""
        self.leader: str | None = None
        """**Invariant**: a member's id, or None without members."""
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        """Instance id to member id. **Invariant**: exactly the members that are static."""
        self.pending_members: set[str] = set()
        """Ids that were handed out and have not joined yet (KIP-394). **Invariant**: disjoint from `members`."""
        self.pending_sync: set[str] = set()
        """Members of this generation that have not sent SyncGroup. **Invariant**: a subset of `members`."""
        self.awaiting_join_count = 0
        """**Invariant**: the number of members with `awaiting_join` set."""
        self.new_member_added = False
        """Someone joined during the initial delay, which is then prolonged."""
        self.initial_delay_left_ms: Millis = 0
        """Milliseconds by which the initial delay may still grow."""
        self.subscribed: frozenset[str] | None = None
        """Topics of all members; None where the coordinator cannot know them."""
        self.joined: dict[str, Any] | None = None
        """What all members of this generation are told; made by `replies.joined`, again once the leader changes."""
        self._support: dict[str, int] = {}
        """**Invariant**: how many members support each protocol."""

    # Questions

    @property
    def shown_state(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is EMPTY

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def expires(self) -> bool:
        """Whether the group goes with its last offset; not while somebody may join with an id that it handed out."""
        return not self.pending_members

    @property
    def all_joined(self) -> bool:
        return len(self.members) == self.awaiting_join_count and not self.pending_members

    def has_fewer_places_taken_than(self, limit: int) -> bool:
        """Whether a rebalance has room: places are taken by those who have joined, and kept for static members that
        have not."""
        if self.awaiting_join_count + len(self.static_members) < limit:  # also counts who is both
            return True
        places = self.awaiting_join_count
        for member_id in self.static_members.values():
            member = self.members[member_id]
            if member.awaiting_join is None:
                places += 1
        return places < limit

    @property
    def rebalance_timeout_ms(self) -> Millis:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def can_become(self, state: State) -> bool:
        return state in TRANSITIONS[self.state]

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads `topic`; without knowing, a consumer group is taken to read every topic."""
        return self.uses_consumer_protocol if self.subscribed is None else topic in self.subscribed

    def request_refresh(self) -> None:
        """Its members look at topics themselves."""

    def supports(self, protocol_type: str, protocols: Collection[str]) -> bool:
        """Whether a member with these protocols could be in the group."""
        if self.state is EMPTY:
            return bool(protocol_type and protocols)
        if self.protocol_type == protocol_type:
            everyone = len(self.members)
            for name in protocols:
                if self._support.get(name, 0) == everyone:
                    return True
        return False

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """The member. Raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID where the instance has another member id now."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                raise KafkaError(ErrorCode.unknown_member_id)
            if current != member_id:
                raise KafkaError(ErrorCode.fenced_instance_id)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.unknown_member_id)
        return member

    def select_protocol(self) -> str:
        """The protocol with the most votes among those that every member supports; there is at least one."""
        everyone = len(self.members)
        candidates = {name for name, count in self._support.items() if count == everyone}
        if len(candidates) == 1:
            return candidates.pop()
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    # Changes

    def become(self, state: State, now_ms: Millis) -> None:
        if not self.can_become(state):
            raise RuntimeError(f"group {self.group_id} cannot go from {self.state.value} to {state.value}")
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = now_ms

    def add(self, member: Member, waiter: Token | None = None) -> None:
        """Admit a member whose protocols `supports` accepted; `waiter` gets its JoinGroup response."""
        assert member.member_id not in self.members
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members
            self.static_members[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
            self.joined = None
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._count(member.protocols, 1)
        self.pending_members.discard(member.member_id)
        self.set_waiter(member, waiter)

    def remove(self, member_id: str) -> None:
        """Drop a member or a pending id. Another member becomes leader if need be. Answer its waiters first."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member.protocols, -1)
            self.set_waiter(member, None)
            if member.instance_id is not None:
                del self.static_members[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_members.discard(member_id)
        self.pending_sync.discard(member_id)

    def replace_static(self, instance_id: str, new_member_id: str) -> Member:
        """Give a static member another member id; it keeps its assignment. Answer its waiters first."""
        old_member_id = self.static_members[instance_id]
        member = self.members.pop(old_member_id)
        self.set_waiter(member, None)
        member.awaiting_sync = None
        member.rename(new_member_id)
        self.members[new_member_id] = member
        if self.leader == old_member_id:
            self.leader = new_member_id
        if old_member_id in self.pending_sync:
            self.pending_sync.discard(old_member_id)
            self.pending_sync.add(new_member_id)
        self.static_members[instance_id] = new_member_id
        return member

    def update(
        self, member: Member, protocols: dict[str, bytes], rebalance_timeout_ms: Millis, session_timeout_ms: Millis
    ) -> None:
        # Most members have what they had, and the same object where their request came before.
        if member.protocols is not protocols and member.protocols.keys() != protocols.keys():
            self._count(member.protocols, -1)
            self._count(protocols, 1)
        member.change(rebalance_timeout_ms, session_timeout_ms, protocols)

    def _count(self, protocols: Iterable[str], change: int) -> None:
        """Count a member that supports these, or that no longer does."""
        for name in protocols:
            self._support[name] = self._support.get(name, 0) + change

    def set_waiter(self, member: Member, waiter: Token | None) -> Token | None:
        """Set the waiter for this member's JoinGroup response; returns the one before."""
        before = member.awaiting_join
        self.awaiting_join_count += (waiter is not None) - (before is not None)
        member.awaiting_join = waiter
        return before

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is a member that has joined; False if no member has."""
        if self.leader is None:
            return False
        if self.members[self.leader].awaiting_join is not None:
            return True
        joined = next((member for member in self.members.values() if member.awaiting_join is not None), None)
        if joined is None:
            return False
        self.leader = joined.member_id
        return True

    def next_generation(self, now_ms: Millis) -> None:
        """Begin the next generation with the members that are here."""
        self.generation += 1
        self.joined = None
        self.protocol_name = self.select_protocol() if self.members else None
        self.refresh_subscription()
        self.become(COMPLETING if self.members else EMPTY, now_ms)
        self.pending_sync.clear()

    def refresh_subscription(self) -> None:
        self.subscribed = None
        if not self.uses_consumer_protocol:
            return
        if not self.members:
            self.subscribed = frozenset()
        elif self.protocol_name is not None:
            # Most members of a large group say the same.
            said = dict.fromkeys([member.protocols[self.protocol_name] for member in self.members.values()])
            topics = [subscribed_topics(metadata) for metadata in said]
            if None not in topics:
                self.subscribed = frozenset().union(*(found for found in topics if found is not None))

    # Records

    def to_record(self, assignments: Mapping[str, bytes] | None = None) -> GroupRecord:
        """The group's record: all that a restart needs. It has the assignment that each member has, or has in
        `assignments`."""
        protocol = self.protocol_name or ""
        rows = []
        for member in self.members.values():
            if assignments is None:
                assignment = member.assignment
            else:
                assignment = assignments.get(member.member_id, b"")
            rows.append(member.row(protocol, assignment))
        members: Any = MemberRows(rows)
        return GroupRecord(
            GroupMetadataKey(self.group_id),
            GroupMetadataValue(
                protocol_type=self.protocol_type or "",
                generation=self.generation,
                protocol=self.protocol_name,
                leader=self.leader,
                current_state_timestamp=self.state_timestamp_ms,
                members=members,
            ),
        )

    def tombstones(self) -> list[GroupRecord]:
        """Tombstones that delete the group, except for its offsets."""
        return [GroupRecord(GroupMetadataKey(self.group_id), None)]

    @classmethod
    def from_record(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        """The group as a restarted coordinator finds it: stable if it has members, else empty."""
        group = cls(group_id, value.current_state_timestamp)
        group.generation = value.generation
        protocol = value.protocol or ""
        for record in value.members:
            group.add(Member.from_record(record, value.protocol_type, protocol))
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        group.leader = value.leader if value.leader in group.members else group.leader
        group.state = STABLE if group.members else EMPTY
        group.refresh_subscription()
        return group

    def members_for_leader(self) -> list[dict[str, Any]]:
        """Members with their metadata, from which the leader works out the assignment."""
        assert self.protocol_name is not None
        return [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "metadata": member.protocols[self.protocol_name],
            }
            for member in self.members.values()
        ]
