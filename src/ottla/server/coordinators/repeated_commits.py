"""Offset commits of a connection that are like one before, but for the offsets: most are.

The answer is put into the outbox at once, which is held until the commit is in the log. So the commits of one turn of
the loop share a batch and the answers of a connection one send, and no task or callback is made for each.

Why nobody can tell the difference (`tests/property/test_commits_mixed.py` looks for one):
- Whether the sender may commit is decided when the request arrives. What could change that, or read or delete offsets,
  calls the coordinator, which first appends the commits that wait (`_shard_of` there; timers and metadata do the same).
- Offsets are replayed after the append, so one that fails changes nothing; every commit in it gets its error.
- An answer has its place in the outbox from the start, and a failed one the size of a good one, so the order stays.
- A held outbox sends nothing, whoever flushes it; a connection that is lost meanwhile drops its answers, not commits.
- A log that must be fsynced first takes no batches: its commits go the long way, behind writes that are under way.

A commit of 20 partitions takes a tenth of what the handler takes (`docs/inside/benchmarks.md`).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ottla.coordinator.group.requests import OffsetCommit
from ottla.drivers.coordinators.group_coordinator import NotBatched
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages import ApiKey, encode_response, read_header
from ottla.protocol.offset_block import (
    LEADER_EPOCHS_SINCE,
    RECORDS_MAX,
    TOPIC_IDS_SINCE,
    CommitShape,
    CommittedPartition,
    offset_positions,
)
from ottla.security.acls import Operation
from ottla.server.api import RequestContext
from ottla.server.connections.outbox import Outbox
from ottla.server.security.authorization import allowed

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import OffsetCommitRequest

SHAPES_MAX = 16
"""Shapes that are kept for a connection and version; beyond, and beyond SHAPES_BYTES_MAX, the oldest is evicted."""
SHAPES_BYTES_MAX = 262_144
"""Bytes of the frames that they were learned from, some 30 bytes for each partition; the shapes take twelve times as
much."""
_INT32 = struct.Struct(">i")
_CORRELATION = slice(4, 8)


class _Known:
    """A commit that was understood once."""

    def __init__(self, context: RequestContext, request: OffsetCommitRequest, shape: CommitShape) -> None:
        self.node = context.node
        self.shape = shape
        self.asked = OffsetCommit(
            group_id=request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id_or_member_epoch,
            knows_unknown_group=context.api_version >= 9,
        )
        self._version = context.api_version
        self._topics = request.topics
        self._image: MetadataImage = context.node.image
        self._named = {each.topic: self._image.topic(each.topic) for each in shape.partitions}
        self.good = bytes(self.answer(ErrorCode.none))

    def holds(self) -> bool:
        """Whether its topics are still those of then."""
        image = self.node.image
        if image is not self._image:
            if any(image.topic(name) is not topic for name, topic in self._named.items()):
                return False
            self._image = image
        return True

    def answer(self, error: ErrorCode) -> bytearray:
        """The response frame, with a correlation id of 0."""
        topics = []
        for topic in self._topics:
            rows = [{"partition_index": each.partition_index, "error_code": error} for each in topic.partitions]
            topics.append({"name": topic.name, "topic_id": topic.topic_id, "partitions": rows})
        body = encode_response(ApiKey.OFFSET_COMMIT, self._version, 0, {"topics": topics})
        return bytearray(_INT32.pack(len(body)) + body)


class _Held:
    """An answer in the outbox that says that all went well, until the coordinator knows."""

    __slots__ = ("answer", "known", "outbox")

    def __init__(self, known: _Known, outbox: Outbox, answer: bytearray) -> None:
        self.known = known
        self.outbox = outbox
        self.answer = answer

    def complete(self, result: object) -> None:
        if isinstance(result, KafkaError):
            failed = self.known.answer(result.code)
            failed[_CORRELATION] = self.answer[_CORRELATION]
            self.answer[:] = failed
            self.known.node.metrics.api(ApiKey.OFFSET_COMMIT).failed(result.code.name.upper())
        self.outbox.release()


class RepeatedCommits:
    """The shortcut of one connection and version."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._known: dict[int, _Known] = {}
        """Keyed by the length of the frame, the newest of each."""

    def learn(self, known: _Known) -> None:
        self._known.pop(known.shape.size, None)
        self._known[known.shape.size] = known
        while len(self._known) > SHAPES_MAX or sum(self._known) > SHAPES_BYTES_MAX:
            del self._known[next(iter(self._known))]

    def __call__(self, frame: memoryview, correlation_id: int) -> bytes | None:
        known = self._known.get(len(frame))
        if known is None:
            return None
        rows = known.shape.match(frame)
        if rows is None or not known.holds():
            return None
        answer = bytearray(known.good)
        answer[_CORRELATION] = frame[_CORRELATION]
        outbox = self._outbox
        outbox.hold()
        outbox.write((answer,), len(answer))
        try:
            known.node.groups.commit_block(known.asked, known.shape, rows, _Held(known, outbox, answer))
        except (KafkaError, NotBatched):
            outbox.undo_write(answer)
            return None
        return b""


def learn(context: RequestContext, request: OffsetCommitRequest, frame: memoryview) -> None:
    """Remember a commit of which no partition can fail alone."""
    session = context.session
    if context.api_version < LEADER_EPOCHS_SINCE or session is None or len(frame) > SHAPES_BYTES_MAX:
        return
    partitions = _partitions(context, request)
    if not partitions or len(partitions) > RECORDS_MAX:
        return
    position = read_header(frame).body_offset
    shape = CommitShape(request.group_id, partitions, frame, offset_positions(context.api_version, frame, position))
    head = ApiKey.OFFSET_COMMIT << 16 | context.api_version
    repeated = session.shortcuts.setdefault(head, RepeatedCommits(session.outbox))
    repeated.learn(_Known(context, request, shape))


def _partitions(context: RequestContext, request: OffsetCommitRequest) -> list[CommittedPartition]:
    """The committed partitions; empty if one does not exist, comes twice, has too much metadata or is forbidden."""
    readable = allowed(context, Operation.READ)
    image = context.node.image
    limit: int = context.node.config.offset_metadata_max_bytes
    found: dict[tuple[str, int], CommittedPartition] = {}
    count = 0
    for asked in request.topics:
        by_id = context.api_version >= TOPIC_IDS_SINCE
        topic = image.topic_by_id(asked.topic_id) if by_id else image.topic(asked.name)
        for each in asked.partitions:
            number, text = each.partition_index, each.committed_metadata or ""
            if topic is None or topic.name not in readable or number not in topic.partitions or 2 * len(text) > limit:
                return []
            found[topic.name, number] = CommittedPartition(topic.name, number, text, topic.id)
            count += 1
    return [*found.values()] if len(found) == count else []
