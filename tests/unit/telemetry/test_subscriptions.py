"""Which clients a subscription is for, and the id of what is subscribed to."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.telemetry.subscriptions import subscription, wanted

CLIENT = UUID("d720e90e-56d5-4b25-b88a-a96081c85033")
JAVA = {
    "client_instance_id": "1yDpDlbVSyW4iqlggchQMw", "client_id": "orders-7",
    "client_software_name": "apache-kafka-java",
    "client_software_version": "4.3.0", "client_source_address": "127.0.0.1", "client_source_port": "4711",
}  # fmt: skip


def test_ids_are_those_that_kafka_gives() -> None:
    """Asked of Kafka 4.3.0, whose order is that of a HashSet."""
    assert wanted({}, {}, CLIENT).id == 1819279526
    some = subscription({"metrics": "org.a.,org.b.,zeta,alpha,a.very.long.prefix", "interval.ms": "1000"})
    found = wanted({"s": some}, {}, CLIENT)
    assert found.metrics == ("zeta", "alpha", "a.very.long.prefix", "org.a.", "org.b.")
    assert found.id == 1535754336 and found.interval_ms == 1000
    assert wanted({"s": some}, {}, UUID(int=1)).id == -482436327
    more = {"s": some, "m": subscription({"match": "client_id=.*", "metrics": "m"})}
    found = wanted(more, {"client_id": "x"}, UUID("1a2e68a1-4157-478a-aeb7-08404d53eb19"))
    assert found.metrics[-1] == "m" and found.id == -1317409799


def test_several_subscriptions_come_to_one() -> None:
    both = {
        "a": subscription({"metrics": "x.,y.", "interval.ms": "5000"}),
        "b": subscription({"metrics": "y.,z.", "interval.ms": "60000"}),
        "c": subscription({"metrics": "other.", "interval.ms": "100", "match": "client_id=nobody"}),
    }
    found = wanted(both, JAVA, CLIENT)
    assert set(found.metrics) == {"x.", "y.", "z."} and found.interval_ms == 5000
    found = wanted(both | {"d": subscription({"metrics": "q.,*"})}, JAVA, CLIENT)
    assert found.metrics == ("*",)
    assert wanted({"e": subscription({"interval.ms": "70"})}, JAVA, CLIENT).metrics == ()


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        ("", True),
        ("client_id=orders-.*", True),
        ("client_id=orders-", False),  # the whole of it has to match
        (" client_id = orders-7 , client_software_version = 4.* ", True),
        ("client_id=orders-7,client_software_version=3.*", False),
        ("client_instance_id=1yDpDlbVSyW4iqlggchQMw", True),
        ("client_source_address=127.0.0.1,client_source_port=47..", True),
        ("client_id=x,client_id=orders-7", True),  # the last one counts, as of Kafka's
        ("client_id=orders-7=", True),
        ("client_id= ", False),
        ("client_id=(?<!x)orders-7", False),  # not one of RE2's: nobody
    ],
)
def test_match(match: str, expected: bool) -> None:
    assert subscription({"match": match}).is_for(JAVA) == expected


def test_a_client_that_does_not_say_what_it_is() -> None:
    assert not subscription({"match": "client_id=.*"}).is_for({"client_id": None})


def test_a_name_decides_nothing_about_the_time_that_a_match_takes() -> None:
    assert not subscription({"match": "client_id=(a+)+b"}).is_for({"client_id": "a" * 30_000})
