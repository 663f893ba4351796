"""Share sessions: the rules of KIP-932 and of Kafka's ShareSessionCache, one by one."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.replication.share.session import EPOCH_MAX, SessionKey, SharedPartition, ShareSession, ShareSessions

KEY, OTHER = SessionKey("g", "a"), SessionKey("g", "b")
P0, P1, P2 = (SharedPartition(UUID(int=1), number) for number in range(3))


class Broker:
    def __init__(self, count_max: int = 10) -> None:
        self.ended: list[SessionKey] = []
        self.sessions = ShareSessions(count_max, lambda key, session: self.ended.append(key))

    def fetch(
        self,
        epoch: int,
        *partitions: SharedPartition,
        key: SessionKey = KEY,
        connection: str = "c1",
        forgotten: tuple[SharedPartition, ...] = (),
        acknowledges: bool = False,
    ) -> ShareSession | None:
        return self.sessions.fetch(key, epoch, partitions, forgotten, connection, acknowledges=acknowledges)

    def refused(self, epoch: int, key: SessionKey = KEY, *, acknowledges: bool = False) -> ErrorCode:
        with pytest.raises(KafkaError) as raised:
            self.fetch(epoch, key=key, acknowledges=acknowledges)
        return raised.value.code


def test_epochs_follow_one_another_whatever_the_request() -> None:
    broker = Broker()
    broker.fetch(0, P0)
    broker.fetch(1)
    broker.sessions.acknowledge(KEY, 2)
    broker.fetch(3, acknowledges=True)
    for epoch in (3, 5):
        assert broker.refused(epoch) is ErrorCode.invalid_share_session_epoch
        with pytest.raises(KafkaError) as raised:
            broker.sessions.acknowledge(KEY, epoch)
        assert raised.value.code is ErrorCode.invalid_share_session_epoch
    broker.fetch(4)


def test_the_epoch_after_the_largest_is_one() -> None:
    broker = Broker()
    session = broker.fetch(0)
    assert session is not None
    session.epoch = EPOCH_MAX
    broker.fetch(EPOCH_MAX)
    broker.fetch(1)


def test_a_session_begins_with_a_fetch_that_acknowledges_nothing() -> None:
    broker = Broker()
    for epoch in (1, -1):
        assert broker.refused(epoch) is ErrorCode.share_session_not_found
        with pytest.raises(KafkaError) as raised:
            broker.sessions.acknowledge(KEY, epoch)
        assert raised.value.code is ErrorCode.share_session_not_found
    assert broker.refused(0, acknowledges=True) is ErrorCode.invalid_request
    with pytest.raises(KafkaError) as raised:
        broker.sessions.acknowledge(KEY, 0)
    assert raised.value.code is ErrorCode.invalid_share_session_epoch


def test_the_last_epoch_ends_a_session_whatever_came_before() -> None:
    broker = Broker()
    broker.fetch(0, P0)
    broker.sessions.acknowledge(KEY, -1)
    assert broker.fetch(-1, acknowledges=True) is None
    assert broker.sessions.get(KEY) is not None, "until what it has acquired is released"
    broker.sessions.end(KEY)
    assert broker.refused(-1) is ErrorCode.share_session_not_found
    assert broker.ended == []


def test_a_fetch_names_what_has_changed() -> None:
    broker = Broker()
    broker.fetch(0, P0, P1)
    session = broker.fetch(1, P2, P1, forgotten=(P0,))
    assert session is not None
    assert [*session] == [P1, P2]
    assert broker.fetch(2) is session
    assert [*session] == [P1, P2]


def test_an_answer_names_what_has_records_or_an_error_or_was_just_added() -> None:
    broker = Broker()
    broker.fetch(0, P0)
    session = broker.fetch(1, P1)
    assert session is not None
    nothing = {"has_records": False, "has_error": False}
    assert not session.must_name(P0, **nothing)
    assert session.must_name(P1, **nothing)
    assert not session.must_name(P1, **nothing), "once"
    assert session.must_name(P0, has_records=False, has_error=True)
    assert session.must_name(P0, **nothing), "that the error is over"
    assert not session.must_name(P0, **nothing)
    assert session.must_name(P0, has_records=True, has_error=False)
    assert [*session] == [P1, P0], "read last next time"
    assert not session.must_name(P2, **nothing)
    assert len(session) == 2


def test_there_are_so_many_sessions_at_most() -> None:
    broker = Broker(count_max=1)
    broker.fetch(0)
    assert broker.refused(0, OTHER) is ErrorCode.share_session_limit_reached
    broker.fetch(0, P0)
    broker.sessions.end(KEY)
    broker.fetch(0, key=OTHER)


def test_a_session_ends_with_its_connection() -> None:
    broker = Broker()
    broker.fetch(0)
    broker.fetch(0, key=OTHER, connection="c2")
    broker.sessions.disconnected("c1")
    broker.sessions.disconnected("c1")
    assert broker.ended == [KEY]
    assert broker.refused(1) is ErrorCode.share_session_not_found
    broker.fetch(1, key=OTHER, connection="c2")


def test_not_with_the_connection_of_a_session_before_it() -> None:
    broker = Broker()
    broker.fetch(0)
    session = broker.fetch(0, connection="c2")
    broker.sessions.disconnected("c1")
    assert broker.ended == []
    assert broker.sessions.get(KEY) is session
    broker.sessions.end(KEY)
    broker.sessions.disconnected("c2")
    assert broker.ended == [], "it had ended before"
