"""Sets of voters, and how the set changed along the log (KIP-853).

In a static quorum (`kraft.version` 0) a voter is a node, by `controller.quorum.voters`. From version 1 on it is a node
with its log directory, and the newest VotersRecord of the log counts, committed or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple
from uuid import UUID

from ottla.model import ZERO_UUID, LeaderEpoch, NodeId, Offset
from ottla.protocol.internal.quorum_records import QuorumStateFile
from ottla.protocol.schemas.records import KRaftVersionRange, KRaftVersionRecord, Voter, VoterEndpoint, VotersRecord

KRAFT_VERSION_MAX = 1
"""The newest level of `kraft.version`: voters change while the quorum runs."""


class ReplicaKey(NamedTuple):
    """One replica of the log: a node with the directory it keeps it in."""

    node_id: NodeId
    directory_id: UUID = ZERO_UUID
    """Zero where it is not known: in a static quorum (`kraft.version` 0) the node alone counts."""


def voter(key: ReplicaKey, endpoints: Iterable[VoterEndpoint] = (), version_max: int = KRAFT_VERSION_MAX) -> Voter:
    """A voter as the log names it."""
    return Voter(key.node_id, key.directory_id, tuple(endpoints), KRaftVersionRange(0, version_max))


def says_the_same(one: Voter, other: Voter) -> bool:
    """Whether two entries of a replica name the same listeners and versions, in whatever order."""

    def said(each: Voter) -> object:
        return {end.name: (end.host, end.port) for end in each.endpoints}, each.kraft_version_feature

    return said(one) == said(other)


class VoterSet:
    """Voters in the order of the log, one for each node. Never changes."""

    __slots__ = ("_by_id", "majority")

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self._by_id = {each.voter_id: each for each in voters}
        self.majority = len(self._by_id) // 2 + 1
        """How many voters decide."""

    @classmethod
    def of(cls, keys: Iterable[ReplicaKey]) -> VoterSet:
        return cls(voter(key) for key in keys)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, node_id: NodeId) -> bool:
        return node_id in self._by_id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._by_id == other._by_id

    __hash__ = None  # type: ignore[assignment]

    def get(self, node_id: NodeId) -> Voter | None:
        return self._by_id.get(node_id)

    @property
    def keys(self) -> list[ReplicaKey]:
        return [ReplicaKey(each.voter_id, each.voter_directory_id) for each in self]

    def find(self, key: ReplicaKey) -> Voter | None:
        """The voter that this replica is, None for an observer. Where the directory of a voter is not known, any
        directory of its node will do; a replica that does not say its directory is no voter that has one."""
        found = self._by_id.get(key.node_id)
        if found is None or found.voter_directory_id in (ZERO_UUID, key.directory_id):
            return found
        return None

    def endpoints(self, listener: str) -> dict[NodeId, VoterEndpoint]:
        """Where the voters that have a listener of this name are reached."""
        return {each.voter_id: end for each in self for end in each.endpoints if end.name == listener}

    def with_voter(self, added: Voter) -> VoterSet:
        """The set with one more voter, which replaces one with the same node id."""
        return VoterSet({**self._by_id, added.voter_id: added}.values())

    def without(self, node_id: NodeId) -> VoterSet:
        return VoterSet(each for each in self if each.voter_id != node_id)

    def record(self) -> VotersRecord:
        return VotersRecord(0, tuple(self))


class Configuration(NamedTuple):
    """The voters and the rules that apply from an offset of the log on."""

    offset: Offset
    """Offset of the control record that defines it; -1 for the snapshot that a directory was formatted with, -2 for
    settings."""
    kraft_version: int
    voters: VoterSet

    def records(self) -> tuple[KRaftVersionRecord, VotersRecord] | tuple[()]:
        """The records of this configuration for a snapshot or the log; none in a static quorum."""
        if self.kraft_version < 1:
            return ()
        return KRaftVersionRecord(0, self.kraft_version), self.voters.record()

    def state_file(self, epoch: LeaderEpoch, leader_id: NodeId, voted: ReplicaKey | None) -> QuorumStateFile:
        """The quorum-state of a replica among these voters in an epoch."""
        dynamic = self.kraft_version >= 1
        return QuorumStateFile(
            leader_id=leader_id,
            leader_epoch=epoch,
            voted_id=-1 if voted is None else voted.node_id,
            voted_directory_id=voted.directory_id if dynamic and voted is not None else ZERO_UUID,
            voters=() if dynamic else tuple(key.node_id for key in self.voters.keys),
            data_version=1 if dynamic else 0,
        )


class Configurations:
    """How the voters changed along the log, as far as that may still be undone. The newest counts.

    Invariant: offsets increase; there is always one.
    """

    __slots__ = ("entries",)

    def __init__(self, first: Configuration) -> None:
        self.entries = [first]

    @classmethod
    def of(cls, static: VoterSet, records: Iterable[tuple[Offset, object]]) -> Configurations:
        """The configurations in control records with their offsets; `static` applies where they name no voters."""
        found = cls(Configuration(-2, 0, static))
        for offset, record in records:
            if isinstance(record, KRaftVersionRecord | VotersRecord):
                found.add(offset, record)
        return found

    @property
    def newest(self) -> Configuration:
        return self.entries[-1]

    def may_name(self, key: ReplicaKey) -> bool:
        """Whether a replica is a voter of the newest one, or of one before that may count again."""
        return any(each.voters.find(key) is not None for each in self.entries)

    def at(self, offset: Offset) -> Configuration:
        """The one that counted at an offset which is committed; the oldest known for those before it."""
        return next((each for each in reversed(self.entries) if each.offset <= offset), self.entries[0])

    def add(self, offset: Offset, record: KRaftVersionRecord | VotersRecord) -> bool:
        """Take over what a control record at `offset` says; those of a snapshot are all at its last offset. Returns
        whether it is new."""
        newest = self.newest
        if offset < newest.offset:
            return False
        if isinstance(record, VotersRecord):
            found = Configuration(offset, newest.kraft_version, VoterSet(record.voters))
        else:
            found = Configuration(offset, record.kraft_version, newest.voters)
        if offset == newest.offset:
            self.entries[-1] = found
        else:
            self.entries.append(found)
        return found != newest

    def truncate(self, end: Offset) -> bool:
        """The log ends at `end` now. Returns whether another configuration counts."""
        before = len(self.entries)
        while len(self.entries) > 1 and self.entries[-1].offset >= end:
            self.entries.pop()
        return len(self.entries) != before

    def commit(self, high_watermark: Offset) -> None:
        """Drop what no truncation can bring back."""
        while len(self.entries) > 1 and self.entries[1].offset < high_watermark:
            del self.entries[0]

    def replace(self, only: Configuration) -> None:
        """A snapshot took the place of the whole log."""
        self.entries = [only]
