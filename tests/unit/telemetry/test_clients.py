"""The state of clients: when they may ask and push, and that nothing of them grows without end."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.steps import at_once
from ottla.telemetry import clients as module
from ottla.telemetry.clients import Clients, Instance
from ottla.telemetry.otlp import read
from tests.unit.telemetry.otlp import counter, gauge, point, pushed

ID = UUID(int=77)


def clients(interval_ms: int = 1000, **more: str) -> Clients:
    made = Clients(100)
    made.subscribe("s", {"metrics": "*", "interval.ms": str(interval_ms), **more})
    return made


def instance(of: Clients, number: int = 77, now_s: float = 0.0) -> Instance:
    return of.instance(UUID(int=number), lambda: {"client_id": f"c{number}"}, now_s)


def push(of: Clients, client: Instance, now_s: float, **more: Any) -> ErrorCode:
    asked = {"subscription_id": client.wanted.id, "compression": 0, "size": 10, "terminating": False, **more}
    try:
        of.push(client, now_s=now_s, **asked)
    except KafkaError as error:
        return error.code
    return ErrorCode.none


def get(of: Clients, client: Instance, now_s: float) -> ErrorCode:
    try:
        of.get(client, now_s)
    except KafkaError as error:
        return error.code
    return ErrorCode.none


def take(of: Clients, client: Instance, data: bytes, now_s: float = 0.0) -> None:
    of.take(client, at_once(read(data)), now_s)


SLOW, UNKNOWN = ErrorCode.throttling_quota_exceeded, ErrorCode.unknown_subscription_id


def test_intervals() -> None:
    """As the running Kafka has answered the same (`test_telemetry_like_kafka.py`)."""
    of = clients()
    one = instance(of)
    assert get(of, one, 0.0) == ErrorCode.none
    assert get(of, one, 0.5) == SLOW
    assert push(of, one, 0.6) == ErrorCode.none  # the first after a subscription, at any time
    assert push(of, one, 0.7) == SLOW
    assert push(of, one, 1.5) == SLOW
    assert push(of, one, 1.6) == ErrorCode.none
    assert get(of, one, 1.7) == SLOW
    assert push(of, one, 1.8, terminating=True) == ErrorCode.none  # the last one as well
    assert push(of, one, 99.0) == ErrorCode.invalid_request
    assert push(of, one, 100.0) == ErrorCode.none  # that one did not say so
    assert of.throttles == 4


def test_who_is_sent_back_may_ask_at_once() -> None:
    of = clients()
    one = instance(of)
    assert get(of, one, 0.0) == ErrorCode.none and push(of, one, 0.1, subscription_id=5) == UNKNOWN
    assert get(of, one, 0.2) == ErrorCode.none and get(of, one, 0.3) == SLOW
    assert push(of, one, 0.4) == SLOW  # the wrong one counts
    assert push(of, one, 1.2, compression=9) == ErrorCode.unsupported_compression_type
    assert get(of, one, 1.3) == ErrorCode.none
    assert of.unknown_subscriptions == 1


def test_sizes() -> None:
    of = clients()
    assert push(of, instance(of), 0.0, size=100) == ErrorCode.none
    assert push(of, instance(of), 5.0, size=101) == ErrorCode.telemetry_too_large


def test_a_changed_subscription_counts_at_once() -> None:
    of = clients()
    before = instance(of)
    assert get(of, before, 0.0) == ErrorCode.none
    of.subscribe("s", {"metrics": "x.", "interval.ms": "5000"})
    now = instance(of)
    assert now is not before and now.wanted.metrics == ("x.",) and get(of, now, 0.1) == ErrorCode.none
    assert push(of, now, 0.2, subscription_id=before.wanted.id) == UNKNOWN
    of.subscribe("s", {})
    assert instance(of).wanted.metrics == () and not of.subscriptions
    version = of.version
    of.subscribe("never there", {})
    assert of.version == version


def test_counters_are_sums() -> None:
    of = clients()
    one = instance(of)
    for _ in range(3):
        take(
            of,
            one,
            pushed(counter("d", point(2), point(5, a="b"), delta=True), counter("s", point(7)), gauge("g", point(1))),
        )
    values = {(each.name, each.attributes): each.value for each in of.pushed[ID].points}
    assert values == {("d", ()): 6, ("d", (("a", "b"),)): 15, ("s", ()): 7, ("g", ()): 1}
    take(of, one, pushed(gauge("g", point(2))))
    assert [each.name for each in of.pushed[ID].points] == ["g"]


def test_there_are_no_more_clients_than(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INSTANCES_MAX", 3)
    of = clients()
    for number in (1, 2, 3, 1, 4):
        instance(of, number)
    assert [each.int for each in of.instances] == [3, 1, 4] and of.evicted == 1


def test_their_metrics_take_no_more_memory_than(monkeypatch: pytest.MonkeyPatch) -> None:
    of = clients()
    data = pushed(gauge("g" * 100, *[point(number, partition=str(number)) for number in range(10)]))
    take(of, instance(of, 1), data)
    size = of.pushed_bytes
    assert size > 10 * (100 + module.POINT_BYTES)
    monkeypatch.setattr(module, "PUSHED_BYTES_MAX", 3 * size)
    for number in (2, 3, 1, 4, 5):
        take(of, instance(of, number), data)
    assert [each.int for each in of.pushed] == [1, 4, 5] and of.pushed_bytes == 3 * size
    for _ in range(10):
        take(of, instance(of, 5), data)
    assert of.pushed_bytes == 3 * size


def test_who_is_not_heard_of_is_forgotten() -> None:
    of = clients(interval_ms=30_000)
    for number, now_s in ((1, 0.0), (2, 50.0)):
        take(of, instance(of, number, now_s), pushed(gauge("g", point(1))), now_s)
    of.disconnected(UUID(int=2))
    assert [each.int for each in of.instances] == [1] and len(of.pushed) == 2
    at_once(of.expiring(89.9))
    assert len(of.instances) == 1 and len(of.pushed) == 2
    assert sum(of.expiring(90.0)) == 3
    assert not of.instances and [each.int for each in of.pushed] == [2]
    at_once(of.expiring(140.0))
    assert not of.pushed and of.pushed_bytes == 0
    often = clients(interval_ms=100)
    instance(often, 1, 0.0)
    at_once(often.expiring(59.0))
    assert often.instances
