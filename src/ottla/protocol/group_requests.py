"""Requests of OffsetFetch (1-10), by hand: one form for all versions, with its partitions unpacked in one step."""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from typing import NamedTuple
from uuid import UUID

from ottla.model import ZERO_UUID, Buffer
from ottla.protocol.group_responses import (
    OFFSET_FETCH_FLEXIBLE_SINCE,
    OFFSET_FETCH_GROUPS_SINCE,
    OFFSET_FETCH_TOPIC_IDS_SINCE,
)
from ottla.protocol.messages import MalformedRequest
from ottla.protocol.wire import (
    ELEMENTS_MAX,
    end_of_tags,
    guarded_steps,
    read_count,
    read_name,
    read_string,
    read_uuid,
)
from ottla.steps import without_pauses

_INT = struct.Struct(">i")
ROWS_PER_STEP = 100
"""Groups or topics, of some microseconds each; a request that has no more is decoded in one step."""


class TopicToFetch(NamedTuple):
    name: str
    """Empty in version 10."""
    topic_id: UUID
    """ZERO_UUID before version 10."""
    partition_indexes: Sequence[int]


class GroupToFetch(NamedTuple):
    group_id: str
    topics: Sequence[TopicToFetch] | None
    """None for all of them."""
    member_id: str | None = None
    member_epoch: int = -1
    """Epoch of a member of a consumer group (KIP-848), since version 9."""


class OffsetFetchRequest(NamedTuple):
    groups: Sequence[GroupToFetch]
    """One before version 8."""
    require_stable: bool


@guarded_steps
def decode_offset_fetch_in_steps(
    version: int, frame: Buffer, position: int
) -> Generator[int, None, OffsetFetchRequest]:
    """The request whose body starts at `position`; yields the cost of many rows. Raises MalformedRequest."""
    flexible = version >= OFFSET_FETCH_FLEXIBLE_SINCE
    groups = []
    count = 1
    if version >= OFFSET_FETCH_GROUPS_SINCE:
        count, position = read_count(frame, position, flexible, 3)
    left = ELEMENTS_MAX
    for _ in range(count):
        group_id, position = read_name(frame, position, flexible)
        member_id, epoch = None, -1
        if version >= 9:
            member_id, position = read_string(frame, position, flexible)
            (epoch,) = _INT.unpack_from(frame, position)
            position += 4
        topics, position = yield from _read_topics(version, frame, position, flexible)
        if version >= OFFSET_FETCH_GROUPS_SINCE:
            position = end_of_tags(frame, position)
        groups.append(GroupToFetch(group_id, topics, member_id, epoch))
        if len(groups) % ROWS_PER_STEP == 0:
            yield 10 * ROWS_PER_STEP
        left -= sum(1 + len(topic.partition_indexes) for topic in topics or ())
        if left < 0:
            raise MalformedRequest(f"more than {ELEMENTS_MAX} partitions")
    require_stable = False
    if version >= 7:
        require_stable = frame[position] != 0
        position += 1
    _end(frame, position, flexible)
    return OffsetFetchRequest(groups, require_stable)


decode_offset_fetch = without_pauses(decode_offset_fetch_in_steps)


def _read_topics(
    version: int, frame: Buffer, position: int, flexible: bool
) -> Generator[int, None, tuple[Sequence[TopicToFetch] | None, int]]:
    count, position = read_count(frame, position, flexible, 3, nullable=version >= 2)
    if count < 0:
        return None, position
    topics = []
    for _ in range(count):
        name, topic_id = "", ZERO_UUID
        if version >= OFFSET_FETCH_TOPIC_IDS_SINCE:
            topic_id, position = read_uuid(frame, position)
        else:
            name, position = read_name(frame, position, flexible)
        partitions, position = read_count(frame, position, flexible, 4)
        indexes = struct.unpack_from(f">{partitions}i", frame, position)
        position += 4 * partitions
        if flexible:
            position = end_of_tags(frame, position)
        topics.append(TopicToFetch(name, topic_id, indexes))
        if partitions > ROWS_PER_STEP or len(topics) % ROWS_PER_STEP == 0:
            yield partitions // 16 + 5 * ROWS_PER_STEP
    return topics, position


def _end(frame: Buffer, position: int, flexible: bool) -> None:
    if flexible:
        position = end_of_tags(frame, position)
    if position > len(frame):
        raise MalformedRequest("the request ends too early")
