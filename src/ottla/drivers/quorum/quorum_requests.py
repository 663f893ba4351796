"""What a voter answers to Vote, BeginQuorumEpoch and EndQuorumEpoch, and a leader to Fetch and FetchSnapshot
(`KafkaRaftClient.handleVoteRequest` and others). An answer leaves when what it promises is on disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.drivers.quorum.quorum_epochs import believes
from ottla.drivers.quorum.quorum_metrics import step
from ottla.drivers.quorum.quorum_node import QuorumNode
from ottla.errors import ErrorCode, KafkaError
from ottla.model import ZERO_UUID, LeaderEpoch, NodeId, Offset
from ottla.network import Address
from ottla.quorum.divergence import divergence, needs_snapshot
from ottla.quorum.election import LogEnd
from ottla.quorum.snapshot import SnapshotId
from ottla.quorum.voters import ReplicaKey
from ottla.storage.segments.segment_files import LogSlice


class VoterAnswer(NamedTuple):
    """An error, or what was asked for; and who leads."""

    error: ErrorCode
    leader_id: NodeId
    epoch: LeaderEpoch
    granted: bool = False


class QuorumFetch(NamedTuple):
    """The leader's answer to a fetch: records, or where to truncate to, or a snapshot to load first."""

    high_watermark: Offset
    log_start_offset: Offset
    records: LogSlice | None = None
    """Committed or not: a voter that did not get them could not help to commit them. None when there are none yet."""
    diverging: tuple[LeaderEpoch, Offset] | None = None
    """The log of the replica differs: the last epoch that both have may be this one, which ends here."""
    snapshot: SnapshotId | None = None


async def vote(
    node: QuorumNode,
    candidate: ReplicaKey,
    epoch: LeaderEpoch,
    log_end: LogEnd,
    *,
    pre_vote: bool,
    voter: ReplicaKey | None,
) -> VoterAnswer:
    """A candidate of `epoch` asks `voter` (None: whoever this is) for its vote. Raises KafkaError."""
    is_later = log_end.epoch > epoch if pre_vote else log_end.epoch >= epoch
    if log_end.offset < 0 or log_end.epoch < 0 or is_later:
        return _answer(node, ErrorCode.invalid_request)
    if error := _refusal(node, candidate.node_id, epoch):
        return _answer(node, error)
    if not _is_me(node, voter):
        node.heard(-1, epoch, {})
        return await _persisted(node, _answer(node, ErrorCode.invalid_voter_key))
    if node.alone and epoch > node.epoch:  # nobody else can be elected; any broken node could interrupt the cluster
        return _answer(node, ErrorCode.none)
    ready, granted = node.core.on_vote(candidate, epoch, log_end, node.now_ms(), pre_vote=pre_vote)
    answer = _answer(node, ErrorCode.none)._replace(granted=granted)
    node.take(ready)
    return await _persisted(node, answer)


async def begin_epoch(
    node: QuorumNode,
    leader_id: NodeId,
    epoch: LeaderEpoch,
    endpoints: Mapping[NodeId, Address],
    voter: ReplicaKey | None,
) -> VoterAnswer:
    """`leader_id` leads `epoch`, it says. Raises KafkaError."""
    if error := _refusal(node, leader_id, epoch):
        return _answer(node, error)
    if node.alone:
        return _answer(node, ErrorCode.inconsistent_voter_set)
    node.heard(leader_id, epoch, endpoints, from_leader=True)
    error = ErrorCode.none if _is_me(node, voter) else ErrorCode.invalid_voter_key
    return await _persisted(node, _answer(node, error))


async def end_epoch(
    node: QuorumNode,
    leader_id: NodeId,
    epoch: LeaderEpoch,
    endpoints: Mapping[NodeId, Address],
    successors: Sequence[ReplicaKey],
) -> VoterAnswer:
    """`leader_id` led `epoch` and gives it up. Raises KafkaError."""
    if error := _refusal(node, leader_id, epoch):
        return _answer(node, error)
    if node.alone:
        return _answer(node, ErrorCode.inconsistent_voter_set)
    node.heard(leader_id, epoch, endpoints)
    node.take(node.core.on_end(leader_id, epoch, successors, node.now_ms()))
    return await _persisted(node, _answer(node, ErrorCode.none))


def _refusal(node: QuorumNode, claimant: NodeId, epoch: LeaderEpoch) -> ErrorCode:
    if node.failure is not None or node.stopping:
        return ErrorCode.broker_not_available
    if epoch < node.epoch:
        return ErrorCode.fenced_leader_epoch
    return ErrorCode.none if claimant >= 0 and believes(node, epoch, claimant) else ErrorCode.invalid_request


def _is_me(node: QuorumNode, voter: ReplicaKey | None) -> bool:
    """Whether a request is for this replica; before KIP-853 it did not say, and in a static quorum it names a node."""
    if voter is None or voter.node_id < 0:
        return True
    me = node.core.me
    return voter.node_id == me.node_id and voter.directory_id in (ZERO_UUID, me.directory_id)


def _answer(node: QuorumNode, error: ErrorCode) -> VoterAnswer:
    return VoterAnswer(error, node.core.leader_id, node.core.epoch)


async def _persisted(node: QuorumNode, answer: VoterAnswer) -> VoterAnswer:
    try:
        await node.persisted()
    except KafkaError:
        return answer._replace(error=ErrorCode.broker_not_available, granted=False)
    return answer


@step
def fetch(
    node: QuorumNode,
    replica: ReplicaKey,
    epoch: LeaderEpoch,
    offset: Offset,
    last_epoch: LeaderEpoch,
    max_bytes: int,
) -> QuorumFetch:
    """What follows `offset` for a replica whose last record is of `last_epoch`; counts that it has all before.

    `epoch` is the one that the replica thinks is led, -1 if it does not say. To be called, and answered, once
    `persisted` has returned. Raises KafkaError: NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH,
    OFFSET_OUT_OF_RANGE.
    """
    check_leader(node, epoch)
    core, files, log = node.core, node.log, node.log.log
    oldest = next(iter(files.snapshots), None)
    if needs_snapshot(log.log_start_offset, oldest, offset, last_epoch):
        core.on_snapshot_fetch(replica, node.now_ms())
        return QuorumFetch(core.high_watermark, log.log_start_offset, snapshot=files.newest_snapshot)
    if (offset, last_epoch) not in files.snapshots:
        diverging = divergence(offset, last_epoch, log.end_offset_for_epoch(last_epoch), core.log_end)
        if diverging is not None:
            return QuorumFetch(core.high_watermark, log.log_start_offset, diverging=diverging)
    if offset > core.end_offset:
        raise KafkaError(ErrorCode.offset_out_of_range)
    node.take(core.on_fetch(replica, offset, node.now_ms()))
    records = log.read(offset, max_bytes, up_to=log.log_end_offset)
    return QuorumFetch(core.high_watermark, log.log_start_offset, records)


def check_leader(node: QuorumNode, epoch: LeaderEpoch) -> None:
    """A request is for the leader of `epoch`, -1 for any. Raises KafkaError."""
    if 0 <= epoch < node.epoch:
        raise KafkaError(ErrorCode.fenced_leader_epoch)
    if epoch > node.epoch:
        raise KafkaError(ErrorCode.unknown_leader_epoch)
    if not node.serves:
        raise KafkaError(ErrorCode.not_leader_or_follower)


async def read_snapshot(
    node: QuorumNode, replica: ReplicaKey, snapshot: SnapshotId, position: int, max_bytes: int
) -> tuple[bytes, int]:
    """(a part of a snapshot from `position` on, the size of all of it), for a replica that follows this leader.

    Raises KafkaError SNAPSHOT_NOT_FOUND, POSITION_OUT_OF_RANGE.
    """
    if snapshot not in node.log.snapshots:
        raise KafkaError(ErrorCode.snapshot_not_found)
    node.core.on_snapshot_fetch(replica, node.now_ms())
    try:
        return await node.fs.run(lambda: node.log.read_snapshot(snapshot, position, max_bytes))
    except FileNotFoundError:  # dropped meanwhile
        raise KafkaError(ErrorCode.snapshot_not_found) from None
