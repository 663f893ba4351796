"""Share sessions (KIP-932): which partitions a member of a share group fetches from this broker, and in which order its
requests come.

Every share fetch has a session, of its group and member, which begins with epoch 0 and ends with epoch -1, with its
connection, or with another one that the member begins. Between these each ShareFetch and ShareAcknowledge has the epoch
after the one before; a fetch names only what has changed. There is no place in the cache to be made by eviction: a
session that does not fit is refused, and the records that a member has acquired are released when its session ends.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.errors import ErrorCode, KafkaError
from ottla.model import Offset

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EPOCH_MAX: Final = 2**31 - 1


class SessionKey(NamedTuple):
    group_id: str
    member_id: str


class SharedPartition(NamedTuple):
    """A partition, as a share fetch names it."""

    topic_id: UUID
    partition: int


class ShareSession:
    __slots__ = ("_partitions", "connection", "epoch", "found", "found_in", "key")

    def __init__(self, key: SessionKey, connection: Hashable, partitions: Iterable[SharedPartition]) -> None:
        self.key = key
        self.connection = connection
        self.epoch = next_epoch(INITIAL_EPOCH)
        """The epoch that the next request must have."""
        self._partitions = dict.fromkeys(partitions, False)
        """In the order in which they are to be read; and whether the next answer has to name one though there is
        nothing new: because it was just added, or had an error."""
        self.found: dict[SharedPartition, Any] = {}
        """What the broker that serves the session found of them in the metadata of the offset `found_in`."""
        self.found_in: Offset = -1

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[SharedPartition]:
        return iter(self._partitions)

    def change(self, added: Iterable[SharedPartition], forgotten: Iterable[SharedPartition]) -> None:
        """Apply the partitions of a fetch that is not the first."""
        for partition in added:
            self._partitions.setdefault(partition, True)
        for partition in forgotten:
            self._partitions.pop(partition, None)
            self.found.pop(partition, None)

    def must_name(self, partition: SharedPartition, *, has_records: bool, has_error: bool) -> bool:
        """Whether an answer has to have a partition. One of which there were records is read last next time, so that
        others get their turn where an answer has no room for all."""
        is_owed = self._partitions.get(partition)
        if is_owed is None:  # forgotten while the fetch waited
            return has_records or has_error
        if has_records:
            del self._partitions[partition]
        self._partitions[partition] = has_error
        return has_records or has_error or is_owed


class ShareSessions:
    """The share sessions of a broker."""

    __slots__ = ("_count_max", "_of_connections", "_on_end", "_sessions")

    def __init__(self, count_max: int, on_end: Callable[[SessionKey, ShareSession], None]) -> None:
        """`count_max` is `group.share.max.share.sessions`. `on_end` hears of sessions whose connection has closed: who
        ends one by a request releases what is acquired before it answers."""
        self._count_max = count_max
        self._on_end = on_end
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._of_connections: dict[Hashable, ShareSession] = {}
        """The last session of each connection; perhaps it has ended."""

    def __len__(self) -> int:
        return len(self._sessions)

    def partition_count(self) -> int:
        """Partitions of all sessions together."""
        return sum(map(len, self._sessions.values()))

    def get(self, key: SessionKey) -> ShareSession | None:
        return self._sessions.get(key)

    def fetch(
        self,
        key: SessionKey,
        epoch: int,
        partitions: Iterable[SharedPartition],
        forgotten: Iterable[SharedPartition],
        connection: Hashable,
        *,
        acknowledges: bool,
    ) -> ShareSession | None:
        """Take in a ShareFetch; None if it is the last, after which the caller ends the session (`end`).

        Raises SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, SHARE_SESSION_LIMIT_REACHED, or INVALID_REQUEST for
        acknowledgements in the first fetch of a session, which has acquired nothing yet."""
        if epoch == INITIAL_EPOCH:
            if acknowledges:
                raise KafkaError(ErrorCode.invalid_request, "a session begins without acknowledgements")
            self.end(key)
            if len(self._sessions) >= self._count_max:
                raise KafkaError(ErrorCode.share_session_limit_reached)
            session = ShareSession(key, connection, partitions)
            self._sessions[key] = self._of_connections[connection] = session
            return session
        session = self._find(key)
        if epoch == FINAL_EPOCH:
            return None
        _go_on(session, epoch)
        session.change(partitions, forgotten)
        return session

    def acknowledge(self, key: SessionKey, epoch: int) -> None:
        """Take in a ShareAcknowledge; the caller ends the session after the last. Raises SHARE_SESSION_NOT_FOUND or
        INVALID_SHARE_SESSION_EPOCH."""
        if epoch == INITIAL_EPOCH:
            raise KafkaError(ErrorCode.invalid_share_session_epoch)
        session = self._find(key)
        if epoch != FINAL_EPOCH:
            _go_on(session, epoch)

    def has_group(self, group_id: str) -> bool:
        """Whether a member of the group has a session."""
        return any(key.group_id == group_id for key in self._sessions)

    def end(self, key: SessionKey) -> None:
        self._sessions.pop(key, None)

    def disconnected(self, connection: Hashable) -> SessionKey | None:
        """A connection has closed: its session has ended, unless the member has another one by now. Whose it was, if it
        had one."""
        session = self._of_connections.pop(connection, None)
        if session is not None and self._sessions.get(session.key) is session:
            self.end(session.key)
            self._on_end(session.key, session)
        return None if session is None else session.key

    def _find(self, key: SessionKey) -> ShareSession:
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(ErrorCode.share_session_not_found)
        return session


def next_epoch(epoch: int) -> int:
    """The epoch after one; after the largest there is comes 1, for 0 begins a session."""
    return epoch + 1 if epoch < EPOCH_MAX else 1


def _go_on(session: ShareSession, epoch: int) -> None:
    if epoch != session.epoch:
        raise KafkaError(ErrorCode.invalid_share_session_epoch)
    session.epoch = next_epoch(epoch)
