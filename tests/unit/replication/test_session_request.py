"""The fetcher's side of sessions: what a request names, after answers and losses."""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.fetch import FetchPartition, FetchRequest
from ottla.replication.session_request import SessionRequest

ONE, TWO = UUID(int=1), UUID(int=2)


def filled(session: SessionRequest) -> FetchRequest:
    request = FetchRequest(0, 0, 0, [])
    session.fill(request)
    return request


def named(request: FetchRequest) -> dict[UUID | None, list[int]]:
    return {topic.topic_id: [each.partition for each in topic.partitions] for topic in request.topics}


def dropped(request: FetchRequest) -> dict[UUID | None, list[int]]:
    return {topic.topic_id: topic.partitions for topic in request.forgotten_topics}


def three() -> SessionRequest:
    session = SessionRequest()
    for topic, number in ((ONE, 0), (TWO, 0), (ONE, 1)):
        session.ask((topic, number), FetchPartition(number, 5, 100))
    return session


def test_the_first_request_names_everything_and_later_ones_what_changed() -> None:
    session = three()
    request = filled(session)
    assert (request.session_id, request.session_epoch, named(request)) == (0, 0, {ONE: [0, 1], TWO: [0]})
    session.answered(7)
    session.ask((TWO, 0), FetchPartition(0, 6, 100))
    session.ask((ONE, 0), FetchPartition(0, 5, 100))
    session.drop((ONE, 1))
    request = filled(session)
    assert (request.session_id, request.session_epoch) == (7, 1)
    assert (named(request), dropped(request)) == ({TWO: [0]}, {ONE: [1]})
    session.answered(7)
    request = filled(session)
    assert (request.session_epoch, named(request), dropped(request)) == (2, {}, {})


def test_a_partition_that_is_dropped_and_asked_for_again_is_named() -> None:
    session = three()
    filled(session)
    session.answered(7)
    session.drop((ONE, 0))
    session.ask((ONE, 0), FetchPartition(0, 5, 100))
    request = filled(session)
    assert (named(request), dropped(request)) == ({ONE: [0]}, {})


def test_after_a_loss_everything_is_named_and_the_old_session_ends() -> None:
    session = three()
    filled(session)
    session.answered(7)
    filled(session)
    session.lost()
    request = filled(session)
    assert (request.session_id, request.session_epoch, named(request)) == (7, 0, {ONE: [0, 1], TWO: [0]})
    session.answered(8)
    assert (filled(session).session_id, filled(session).session_epoch) == (8, 1)
    session.gone()
    assert (filled(session).session_id, filled(session).session_epoch) == (0, 0)


def test_a_leader_without_room_for_a_session_gets_whole_requests() -> None:
    session = three()
    filled(session)
    session.answered(0)
    request = filled(session)
    assert (request.session_id, request.session_epoch, named(request)) == (0, 0, {ONE: [0, 1], TWO: [0]})
