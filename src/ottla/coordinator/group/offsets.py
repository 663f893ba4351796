"""OffsetCommit, OffsetFetch and OffsetDelete, and the expiry of offsets that nobody needs (KIP-211)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.coordinator.effects import InTransaction, Token, Write
from ottla.coordinator.group.kind import EACH_SINCE_ITS_COMMIT
from ottla.coordinator.group.kinds import kind_of
from ottla.coordinator.group.offset_store import CommittedOffset, OffsetStore
from ottla.coordinator.group.requests import (
    EndTransaction,
    OffsetCommit,
    OffsetDelete,
    OffsetsCommitted,
    TxnOffsetCommit,
)
from ottla.coordinator.group.state import RECORDS_PER_PART_MAX, GroupState
from ottla.errors import ErrorCode, KafkaError
from ottla.model import ZERO_UUID, TopicPartition
from ottla.protocol.internal.group_records import GroupRecord
from ottla.protocol.offset_block import OffsetBlock
from ottla.protocol.schemas.records import OffsetCommitKey, OffsetCommitValue
from ottla.protocol.wire import FetchedOffset, FetchedTopic

if TYPE_CHECKING:
    from ottla.coordinator.group.group import Group

OFFSETS_PER_TURN_MAX = 20_000
"""Offsets that are looked at in one turn of expiry: some 20 ms."""
INT64_MAX = 2**63 - 1
PartitionErrors = dict[TopicPartition, ErrorCode]


def commit(state: GroupState, token: Token, request: OffsetCommit) -> None:
    """Write the offsets as one batch and reply with the error of each partition, as a mapping. Raises KafkaError."""
    check_commit(state, request)
    _write(state, token, request)


def commit_in_transaction(state: GroupState, token: Token, request: TxnOffsetCommit) -> None:
    """The same for offsets that count once their transaction is committed; no session starts again. Raises
    KafkaError, for the log's sake too: for a fenced producer, or one whose transaction is not open any more."""
    _check_in_transaction(state, request.commit)
    _write(state, token, request.commit, request.transaction)


def end_transaction(state: GroupState, token: Token, request: EndTransaction) -> None:
    """Write the marker of a transaction, and reply when its offsets count, or never will."""
    state.effects.append(Write([], marker=request.marker))
    state.reply(token, {})


def _write(state: GroupState, token: Token, request: OffsetCommit, transaction: InTransaction | None = None) -> None:
    errors: PartitionErrors = {}
    records = []
    now = state.now.wall_ms
    limit = state.config.offset_metadata_max_bytes
    for topic, partition, offset, leader_epoch, metadata, topic_id in request.offsets:
        if len(metadata) * 2 > limit and utf16_length(metadata) > limit:
            errors[TopicPartition(topic, partition)] = ErrorCode.offset_metadata_too_large
            continue
        errors[TopicPartition(topic, partition)] = ErrorCode.none
        value = OffsetCommitValue(offset, leader_epoch, metadata, now, -1, topic_id)
        if request.retention_ms is not None:  # in a version of the record that knows no more than this
            value = OffsetCommitValue(offset, -1, metadata, now, min(now + request.retention_ms, INT64_MAX))
        records.append(GroupRecord(OffsetCommitKey(request.group_id, topic, partition), value))
    if records:
        state.counts.commits += len(records)
        state.write_commit(request.group_id, records, transaction)
    state.reply(token, {"partitions": errors})


def utf16_length(text: str) -> int:
    """The length of a Java string, in which Kafka's limits are."""
    return len(text) + sum(character > "\uffff" for character in text)


def check_commit(state: GroupState, request: OffsetCommit) -> None:
    """Whether the sender may commit; if so, its session in a classic group starts again. Raises KafkaError."""
    group = state.groups.get(request.group_id)
    if group is not None:
        kind_of(group.group_type).check_commit(state, group, request)
    elif request.generation >= 0:  # else a consumer without group management, whose group the commit makes
        raise _not_found(request)


def _not_found(request: OffsetCommit) -> KafkaError:
    code = ErrorCode.group_id_not_found if request.knows_unknown_group else ErrorCode.illegal_generation
    return KafkaError(code, f"Group {request.group_id} not found.")


def check_fetch(state: GroupState, group_id: str, member_id: str | None, epoch: int) -> None:
    """Whether a member of a consumer or streams group may fetch offsets. Raises KafkaError."""
    group = state.groups.get(group_id)
    check = None if group is None else kind_of(group.group_type).check_fetch
    if check is not None:
        check(group, member_id, epoch)


def write_blocks(state: GroupState, blocks: Iterable[OffsetBlock]) -> None:
    """Commits that were checked and are in the log, but must be fsynced before they count: as writes under way."""
    for block in blocks:
        state.write_commit(block.shape.group_id, list(block.records()))


def _check_in_transaction(state: GroupState, request: OffsetCommit) -> None:
    """Raises KafkaError. Without a member or generation, one may commit to any group that keeps offsets (KIP-447)."""
    group = state.groups.get(request.group_id)
    is_named = bool(request.generation >= 0 or request.member_id or request.instance_id is not None)
    if group is not None:
        if is_named or not group.keeps_offsets:
            kind_of(group.group_type).check_commit_in_transaction(state, group, request)
    elif request.generation >= 0:
        raise _not_found(request)


WantedTopic = tuple[str, UUID, Sequence[int]]
"""A topic by name and id (ZERO_UUID: any), with its partitions."""
Wanted = Sequence[WantedTopic]


def committed(state: GroupState, group_id: str) -> Wanted:
    """Every partition for which a group has an offset, to ask `fetch` for."""
    known = state.offsets.of_group(group_id) if group_id in state.groups else {}
    return [(topic, ZERO_UUID, list(partitions)) for topic, partitions in known.items()]


def version(state: GroupState, group_id: str) -> tuple[OffsetStore, int, int]:
    """Version of the state that answers of `fetch` depend on: while it is the same, so are they."""
    group = state.groups.get(group_id)
    if group is None:
        membership = -1
    else:
        membership = 0 if kind_of(group.group_type).check_fetch is None else state.decisions
    return state.offsets, state.offsets.changes, membership


def fetch(state: GroupState, group_id: str, wanted: Wanted | None, require_stable: bool = False) -> list[FetchedTopic]:
    """Committed offsets by topic, of the partitions asked for (offset -1 where there is none) or of all (None).

    With `require_stable`, a partition that an open transaction may still move is UNSTABLE_OFFSET_COMMIT (KIP-447).
    """
    known = state.offsets.of_group(group_id) if group_id in state.groups else {}
    if wanted is None:
        wanted = committed(state, group_id)
    may_move = require_stable and state.offsets.has_open_transactions(group_id)
    response = []
    for topic, topic_id, partitions in wanted:
        offsets = known.get(topic, {})
        answers = []
        for partition in partitions:
            found = offsets.get(partition)
            if may_move and state.offsets.has_pending(group_id, topic, partition):
                answers.append(FetchedOffset(partition, error_code=ErrorCode.unstable_offset_commit))
            elif found is not None and _is_of(found, topic_id):
                answers.append(FetchedOffset(partition, *found[:3]))
            else:
                answers.append(FetchedOffset(partition))
        response.append(FetchedTopic(topic, topic_id, answers))
    return response


def wait_until_committed(state: GroupState, token: Token, request: OffsetsCommitted) -> None:
    """Reply once every write before is committed. An OffsetFetch with require_stable needs it: a member that takes a
    partition over must not begin before a commit that is under way."""
    state.write([])
    state.reply(token, {})


def _is_of(committed: CommittedOffset, topic_id: UUID) -> bool:
    """False for an offset of a deleted topic that had the same name."""
    return topic_id is ZERO_UUID or committed.topic_id == topic_id or ZERO_UUID in (committed.topic_id, topic_id)


def delete(state: GroupState, token: Token, request: OffsetDelete) -> None:
    """Delete offsets of topics that no member reads; replies with the error of each partition (KIP-496).

    Raises GROUP_ID_NOT_FOUND, or NON_EMPTY_GROUP for an active group whose subscriptions are unknown.
    """
    group_id, topics = request
    group = state.groups.get(group_id)
    if group is None or not group.keeps_offsets:
        raise KafkaError(ErrorCode.group_id_not_found, f"Group {group_id} not found.")
    if not group.is_empty and not group.uses_consumer_protocol:
        raise KafkaError(ErrorCode.non_empty_group)
    errors: PartitionErrors = {}
    records = []
    in_flight = state.offsets_in_flight(group_id)
    for topic, partitions in topics.items():
        subscribed = group.is_subscribed_to(topic)
        for partition in partitions:
            errors[TopicPartition(topic, partition)] = (
                ErrorCode.group_subscribed_to_topic if subscribed else ErrorCode.none
            )
            known = state.offsets.get(group_id, topic, partition) is not None or (topic, partition) in in_flight
            if not subscribed and (known or state.offsets.has_pending(group_id, topic, partition)):
                records.append(tombstone(group_id, topic, partition))
    if records:
        state.counts.deletions += len(records)
        state.write(records)
    state.reply(token, {"partitions": errors})


def delete_of_partitions(state: GroupState, partitions: Iterable[TopicPartition]) -> None:
    """Delete the offsets of partitions that no longer exist."""
    gone = set(partitions)
    records = []
    for group_id in {*state.groups, *state.offsets.group_ids(), *state.in_flight}:
        ours = state.offsets_in_flight(group_id)
        ours.update((topic, partition) for topic, partition, _ in state.offsets.items(group_id))
        ours.update(state.offsets.pending_items(group_id))
        records += [tombstone(group_id, *found) for found in sorted(ours & gone)]
    state.write_in_parts(records)


def tombstone(group_id: str, topic: str, partition: int) -> GroupRecord:
    return GroupRecord(OffsetCommitKey(group_id, topic, partition), None)


def expire(state: GroupState) -> bool:
    """Delete what is past its retention, and with its last offset also an empty group. Looks at some groups only,
    so that others do not wait for long; returns whether the round is over."""
    state.expiry_left = state.expiry_left or deque(state.groups)
    records: list[GroupRecord] = []
    gone: list[Group] = []
    at_once: list[GroupRecord] = []
    """Tombstones of groups whose records count in the order of the decisions (`GroupState.apply`)."""
    gone_at_once: list[Group] = []
    looked_at = 0
    while state.expiry_left and looked_at < OFFSETS_PER_TURN_MAX and len(at_once) < RECORDS_PER_PART_MAX:
        group = state.groups.get(state.expiry_left.popleft())
        if group is None or group.group_id in state.in_flight:  # what is being committed has not expired
            continue
        expired = _expired(state, group)
        state.counts.expirations += len(expired)
        count = sum(1 for _ in state.offsets.items(group.group_id))
        looked_at += 1 + count
        is_over = group.is_empty and group.expires and len(expired) == count
        if not is_over or state.offsets.has_open_transactions(group.group_id):
            records += expired
        elif kind_of(group.group_type).counts_at_once:
            at_once += [*expired, *group.tombstones()]
            gone_at_once.append(group)
        else:
            records += [*expired, *group.tombstones()]
            gone.append(group)
    if at_once:
        state.write(at_once, *state.detach(gone_at_once))
    state.write_in_parts(records, *state.detach(gone))
    return not state.expiry_left


def _expired(state: GroupState, group: Group) -> list[GroupRecord]:
    """Tombstones of offsets that nobody has used for the retention time."""
    since = kind_of(group.group_type).unused_since(group)
    if since is None:
        return []
    now, retention = state.now.wall_ms, state.config.offsets_retention_ms
    records = []
    for topic, partition, committed in state.offsets.items(group.group_id):
        if group.is_subscribed_to(topic) or state.offsets.has_pending(group.group_id, topic, partition):
            continue
        base = committed.commit_timestamp_ms if since == EACH_SINCE_ITS_COMMIT else since
        deadline = base + retention if committed.expire_timestamp_ms == -1 else committed.expire_timestamp_ms
        if now >= deadline:
            records.append(tombstone(group.group_id, topic, partition))
    return records
