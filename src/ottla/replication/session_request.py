"""The fetcher's side of incremental fetch sessions (KIP-227; Kafka's `FetchSessionHandler`).

The leader remembers what was asked of it, so a request names the partitions that are new or changed, and those that are
not asked for any more: with a thousand partitions of which a few have records, that is what keeps a fetch small.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from ottla.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.replication.fetch_session import EPOCH_MAX, INITIAL_EPOCH, NO_SESSION

PartitionKey = tuple[UUID, int]


class SessionRequest:
    """The next request. It is made by `fill`, and then either `answered` or `lost`."""

    __slots__ = ("_asked", "_changed", "_epoch", "_forgotten", "_id")

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._asked: dict[PartitionKey, FetchPartition] = {}
        """Everything that is to be asked for, as the leader's session knows it but for `_changed`."""
        self._changed: dict[PartitionKey, None] = {}
        self._forgotten: dict[PartitionKey, None] = {}

    def __len__(self) -> int:
        return len(self._asked)

    def get(self, key: PartitionKey) -> FetchPartition | None:
        """The request of a partition."""
        return self._asked.get(key)

    def ask(self, key: PartitionKey, asked: FetchPartition) -> None:
        """Ask for a partition from now on, in this way."""
        if self._asked.get(key) != asked:
            self._changed[key] = None
            self._forgotten.pop(key, None)
        self._asked[key] = asked

    def drop(self, key: PartitionKey) -> None:
        """Ask for it no more."""
        if self._asked.pop(key, None) is not None:
            self._changed.pop(key, None)
            self._forgotten[key] = None

    def fill(self, request: FetchRequest) -> None:
        """Put session and partitions in."""
        is_full = self._epoch == INITIAL_EPOCH
        request.session_id, request.session_epoch = self._id, self._epoch
        request.topics = _topics(self._asked.items() if is_full else [(key, self._asked[key]) for key in self._changed])
        request.forgotten_topics = () if is_full else _forgotten(self._forgotten)
        self._changed.clear()
        self._forgotten.clear()

    def answered(self, session_id: int) -> None:
        """The request was answered without an error; `session_id` as in the answer."""
        if session_id == NO_SESSION:
            self.gone()
        elif self._epoch == INITIAL_EPOCH or session_id != self._id:
            self._id, self._epoch = session_id, 1
        else:
            self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1

    def lost(self) -> None:
        """The leader's session is unknown or closed: the next request asks for everything. It closes the old session,
        if the leader still has it."""
        self._epoch = INITIAL_EPOCH

    def gone(self) -> None:
        """The leader says that it has no such session."""
        self._id, self._epoch = NO_SESSION, INITIAL_EPOCH


def _topics(asked: Iterable[tuple[PartitionKey, FetchPartition]]) -> list[FetchTopic]:
    topics: dict[UUID, FetchTopic] = {}
    for (topic_id, _), partition in asked:
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = FetchTopic(None, topic_id, [])
        topic.partitions.append(partition)
    return list(topics.values())


def _forgotten(keys: Iterable[PartitionKey]) -> list[ForgottenTopic]:
    topics: dict[UUID, ForgottenTopic] = {}
    for topic_id, number in keys:
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ForgottenTopic(None, topic_id, [])
        topic.partitions.append(number)
    return list(topics.values())
