"""The table of the codec measures the same bytes on all sides, and takes windows that agree."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench import codec
from bench.codec_messages import HAND_WRITTEN, MESSAGES, ByHand, Measured
from bench.codec_work import kio_encoder, operation, timed

FETCHED_FIELDS = ("partition", "current_leader_epoch", "fetch_offset", "last_fetched_epoch", "partition_max_bytes")


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.name)
def test_all_sides_are_given_the_same_message(message: Measured) -> None:
    body = message.body()
    assert message.decoder()()
    assert message.encoder()().endswith(body)
    if message.key is not None:
        assert kio_encoder(message)() == body


@pytest.mark.parametrize("message", HAND_WRITTEN, ids=lambda message: message.name)
def test_a_codec_by_hand_does_the_work_of_the_one_by_schema(message: ByHand) -> None:
    hand, schema = (operation(side, message.action, message.name)() for side in ("hand", "schema"))
    if message.action == "encode":
        parts = hand[0] if isinstance(hand, tuple) else [hand]
        assert b"".join(map(bytes, parts)) == schema
    else:
        of_produce = message.name.startswith("Produce")
        topics = schema.topic_data if of_produce else schema.topics
        fields = ("index", "records") if of_produce else FETCHED_FIELDS
        assert len(topics) == len(hand.topics) == 1
        assert topics[0].topic_id == hand.topics[0].topic_id
        theirs = topics[0].partition_data if of_produce else topics[0].partitions
        for name in fields:
            assert [getattr(each, name) for each in hand.topics[0].partitions] == [
                getattr(each, name) for each in theirs
            ]


class Windows:
    """A side whose windows take these times."""

    def __init__(self, nanoseconds: Iterator[float]) -> None:
        self.nanoseconds = nanoseconds

    def time(self, action: str, message: Measured, millis: int) -> float:
        return next(self.nanoseconds)

    def count(self, action: str, message: Measured, operations: int) -> float | None:
        return None

    def close(self) -> None: ...


def test_windows_count_once_they_agree_after_the_warm_up() -> None:
    cooling = Windows(iter([100.0, 100.0, 100.0, 60.0, 50.0, 51.0, 50.5, 1.0]))
    assert codec.steady_ns(cooling, "decode", MESSAGES[0], 500, 2000) == 50.5
    assert next(cooling.nanoseconds) == 1.0
    unsteady = Windows(float(n % 3 + 1) for n in range(1000))
    assert codec.steady_ns(unsteady, "decode", MESSAGES[0], 500, 0) == 2.0


def test_rows_say_how_many_times_as_fast() -> None:
    found = {"Heartbeat: decode": {"ottla ns": 200.0, "ottla instructions": 1234.0, "kio ns": 1000.0, "java ns": 50.0}}
    (row,) = codec.rows(found)
    assert row == {
        "message": "Heartbeat: decode",
        "ottla ns": "200",
        "kio ns": "1,000",
        "java ns": "50",
        "kio / ottla": "5.00 x",
        "java / ottla": "0.25 x",
        "ottla instructions": "1,234",
    }


def test_rows_say_what_a_codec_by_hand_saves() -> None:
    found = {
        "Fetch: decode": {
            "hand ns": 1500.0,
            "schema ns": 2000.0,
            "hand instructions": 9000.0,
            "schema instructions": 36000.0,
        }
    }
    assert codec.rows_by_hand(found) == [
        {
            "message": "Fetch: decode",
            "by hand, ns": "1,500",
            "by schema, ns": "2,000",
            "saved, ns": "25%",
            "by hand, instructions": "9,000",
            "by schema, instructions": "36,000",
            "saved, instructions": "75%",
        }
    ]


def test_an_operation_is_timed_however_long_it_takes() -> None:
    calls: list[int] = []
    nanoseconds, done = timed(lambda: calls.append(1), 0)
    assert done == len(calls) == 1 and nanoseconds >= 0
