"""One member of a classic group, and the topics that its metadata names."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ottla.coordinator.effects import Token
from ottla.coordinator.timers import Timer
from ottla.model import Millis
from ottla.protocol.internal.group_metadata import member_head, member_row
from ottla.protocol.schemas.records import MemberMetadata

if TYPE_CHECKING:
    from ottla.protocol.schemas.sent import DescribedGroupMember

CONSUMER_PROTOCOL_TYPE = "consumer"
_INT16 = struct.Struct(">h")
_VERSION_AND_COUNT = struct.Struct(">hi")


class Member:
    """One member. Mutable; `ClassicGroup` counts the members that wait."""

    __slots__ = (
        "_assigned", "_head", "_row", "_subscription", "assignment", "awaiting_join", "awaiting_sync", "client_host",
        "client_id", "instance_id", "is_new", "member_id", "protocol_type", "protocols", "rebalance_timeout_ms",
        "session", "session_timeout_ms",
    )  # fmt: skip

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: Millis,
        session_timeout_ms: Millis,
        protocol_type: str,
        protocols: dict[str, bytes],
        assignment: bytes = b"",
        *,
        is_new: bool = False,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        """Set for a static member (KIP-345): its place and its partitions survive its restarts."""
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        """Name to metadata, in order of preference. **Invariant**: at least one is supported by every member."""
        self.assignment = assignment
        self.awaiting_join: Token | None = None
        """The waiter for its JoinGroup response. **Invariant**: set only while the group prepares a rebalance,
        or while a static member's return is being written. Change it through `ClassicGroup`, which counts."""
        self.awaiting_sync: Token | None = None
        """The waiter for its SyncGroup response. **Invariant**: set only while the group completes a rebalance."""
        self.is_new = is_new
        """Whether it is in its first rebalance: it may be dropped while it waits, since it may have given up and joined
        again."""
        self.session: Timer | None = None
        """The timer of its session; None once it has another member id."""
        self._head: bytes | None = None
        """What is written of it before its assignment; None once any of that has changed."""
        self._subscription = b""
        """The subscription in `_head`."""
        self._row: bytes | None = None
        """What is written of it, `_head` and its assignment."""
        self._assigned = b""
        """The assignment in `_row`."""

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def is_alive_by_waiting(self) -> bool:
        """A waiting member cannot send heartbeats; its request counts as one."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def vote(self, candidates: set[str]) -> str:
        """The candidate that this member likes best; every member supports at least one."""
        return next(name for name in self.protocols if name in candidates)

    def row(self, protocol: str, assignment: bytes) -> bytes:
        """Its part of the group's record. One member that changes writes all of them."""
        subscription = self.protocols.get(protocol, b"")
        if self._head is None or self._subscription is not subscription:
            self._row = None
            self._subscription = subscription
            self._head = member_head(
                self.member_id,
                self.instance_id,
                self.client_id,
                self.client_host,
                self.rebalance_timeout_ms,
                self.session_timeout_ms,
                subscription,
            )
        if self._row is None or (self._assigned is not assignment and self._assigned != assignment):
            self._row = member_row(self._head, assignment)
        self._assigned = assignment
        return self._row

    def change(self, rebalance_timeout_ms: Millis, session_timeout_ms: Millis, protocols: dict[str, bytes]) -> None:
        """What it says when it joins again, mostly the same as before."""
        if self.rebalance_timeout_ms != rebalance_timeout_ms or self.session_timeout_ms != session_timeout_ms:
            self.rebalance_timeout_ms, self.session_timeout_ms = rebalance_timeout_ms, session_timeout_ms
            self._head = None
        self.protocols = protocols

    def rename(self, member_id: str) -> None:
        self.member_id = member_id
        self.session = self._head = None

    @classmethod
    def from_record(cls, record: MemberMetadata, protocol_type: str, protocol: str) -> Member:
        return cls(
            member_id=record.member_id,
            instance_id=record.group_instance_id,
            client_id=record.client_id,
            client_host=record.client_host,
            rebalance_timeout_ms=record.session_timeout if record.rebalance_timeout == -1 else record.rebalance_timeout,
            session_timeout_ms=record.session_timeout,
            protocol_type=protocol_type,
            protocols={protocol: record.subscription},
            assignment=record.assignment,
        )

    def describe(self, protocol: str | None) -> DescribedGroupMember:
        """The row of DescribeGroups; metadata only when the group's protocol is settled."""
        return {
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "client_id": self.client_id,
            "client_host": self.client_host,
            "member_metadata": b"" if protocol is None else self.protocols[protocol],
            "member_assignment": self.assignment,
        }


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Topics of a ConsumerProtocolSubscription, whose version 0 is a prefix of all others; None for anything else."""
    try:
        version, count = _VERSION_AND_COUNT.unpack_from(metadata)
        if version < 0 or not 0 <= count <= len(metadata) // 2:
            return None
        position = _VERSION_AND_COUNT.size
        topics = set()
        for _ in range(count):
            (length,) = _INT16.unpack_from(metadata, position)
            position += _INT16.size
            end = position + length
            if length < 0 or end > len(metadata):
                return None
            topics.add(str(metadata[position:end], "utf-8"))
            position = end
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
