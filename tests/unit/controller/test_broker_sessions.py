"""Which brokers are heard of."""

from __future__ import annotations

from dataclasses import replace

from ottla.controller.broker_sessions import BrokerSessions
from tests.unit.metadata.images import apply, broker_records

BROKERS = apply([*broker_records(1), *broker_records(2), *broker_records(3, fenced=True)]).brokers.values()


def test_a_new_controller_gives_every_unfenced_broker_a_session() -> None:
    sessions = BrokerSessions(9)
    sessions.begin(BROKERS, 100)
    assert sessions.next_expiry_s() == 109
    assert sessions.stale(108.9) == []
    assert sessions.stale(109) == [1, 2]


def test_who_was_not_heard_yet_has_no_session_to_defend() -> None:
    """Its process may be the one that registers now."""
    sessions = BrokerSessions(9)
    sessions.begin(BROKERS, 100)
    assert not sessions.is_valid(1, 1, 101)
    sessions.touch(1, 1, 101)
    assert sessions.is_valid(1, 1, 109)
    assert not sessions.is_valid(1, 1, 110)
    assert not sessions.is_valid(1, 7, 102)


def test_longest_silence_first() -> None:
    sessions = BrokerSessions(9)
    sessions.begin([replace(each, fenced=False) for each in BROKERS], 100)
    for node_id, at_s in ((3, 101), (1, 103)):
        sessions.touch(node_id, node_id, at_s)
    assert sessions.stale(120) == [2, 3, 1]
    sessions.drop(2)
    assert sessions.next_expiry_s() == 110
    for node_id in (1, 3):
        sessions.drop(node_id)
    assert sessions.next_expiry_s() is None
