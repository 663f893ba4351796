"""Lag in records and time, rates between looks, and what a reset does, without a broker."""

from __future__ import annotations

import pytest

from ottla.cli.exits import CommandFailed
from ottla.cli.group.reset import Move, parse_topic
from ottla.cli.group.view import Ages, Group, Member, Progress
from ottla.cli.group.watch import COLUMNS_OF_ONE, Rates, fitting, names_of_members, rows_of_many, rows_of_one
from ottla.cli.units import duration, long_time, size


def group(*progress: Progress) -> Group:
    member = Member("m-1", "app", "10.0.0.1", None, [("t", 0)])
    return Group("g", "Stable", "classic", "range", "10.0.0.1:9092", [member], list(progress))


def test_lag_in_records() -> None:
    assert Progress("t", 0, committed=3, end=10).lag == 7
    assert Progress("t", 0, committed=12, end=10).lag == 0, "a truncated log is not less than nothing behind"
    assert Progress("t", 0, committed=None, end=10).lag is None
    assert group(Progress("t", 0, committed=3, end=10), Progress("t", 1, committed=1, end=2)).lag == 8
    assert group(Progress("t", 0)).lag is None


def test_lag_in_time_is_the_age_of_the_record_at_the_committed_offset() -> None:
    ages = Ages("127.0.0.1:1")
    behind, at_end, at_marker = (
        Progress("t", number, committed=committed, end=10) for number, committed in enumerate((3, 10, 9))
    )
    ages._read = {("t", 0): (3, 100_000), ("t", 2): (9, None)}
    ages.add([group(behind, at_end, at_marker)], now_ms=107_500)
    assert (behind.lag_s, at_end.lag_s) == (7.5, 0.0)
    assert at_marker.lag_s == 0.0, "only a transaction's marker is left: no record waits"
    ages.add([group(behind)], now_ms=90_000)
    assert behind.lag_s == 0.0, "a producer's clock may be ahead"
    ages._read = {("t", 0): (3, -1)}
    ages.add([group(behind)], now_ms=90_000)
    assert behind.lag_s is None, "a record without a time"


def test_rates_between_two_looks() -> None:
    rates = Rates()
    rates.look([group(Progress("t", 0, committed=100, end=200))], 10.0)
    assert rates.of_group("g") == (None, None)
    second = group(Progress("t", 0, committed=150, end=300, lag_s=65.0, member_id="m-1"), Progress("t", 1))
    rates.look([second], 12.0)
    assert rates.of_group("g") == (25.0, 50.0)
    assert rows_of_one(second, rates)[0] == ("t", "0", "150", "300", "150", "1m 5s", "25", "app")
    assert rows_of_one(second, rates)[1] == ("t", "1", "-", "-", "-", "-", "-", "-")
    assert rows_of_many([second], rates) == [("g", "Stable", "1", "150", "1m 5s", "25", "50")]


def test_what_a_reset_does_in_words() -> None:
    assert Move("t", 0, None, 5).effect == "a first commit"
    assert Move("t", 0, 5, 5).effect == "stays"
    assert Move("t", 0, 5, 4).effect == "reads 1 record again"
    assert Move("t", 0, 5, 2005).effect == "skips 2,000 records"


def test_topics_with_partitions() -> None:
    assert parse_topic("orders") == ("orders", None)
    assert parse_topic("orders:0,2") == ("orders", (0, 2))
    with pytest.raises(CommandFailed, match="TOPIC:0,1"):
        parse_topic("orders:all")


def test_lengths_of_time_and_sizes() -> None:
    assert [duration(s) for s in (0, 0.04, 9.5, 12.7, 185, 3600, 93_600, 187_200)] == [
        "0s",
        "0.0s",
        "9.5s",
        "12s",
        "3m 5s",
        "1h",
        "1d 2h",
        "2d 4h",
    ]
    assert [long_time(ms) for ms in (604_800_000, 3_600_000, 5_400_000, 250, 1, 0)] == [
        "7 days",
        "1 hour",
        "90 minutes",
        "250 milliseconds",
        "1 millisecond",
        "0 milliseconds",
    ]
    assert [size(n) for n in (1 << 30, 1_572_864, 100)] == ["1 GiB", "1.5 MiB", "100 B"]


def test_a_narrow_terminal_keeps_the_columns_that_say_most() -> None:
    row = ("orders", "0", "1,000", "2,000", "1,000", "3m 5s", "12", "app")
    shown = [[COLUMNS_OF_ONE[at] for at in fitting(COLUMNS_OF_ONE, [row], width)] for width in (100, 50, 30)]
    assert shown[0] == list(COLUMNS_OF_ONE)
    assert shown[1] == ["TOPIC", "PARTITION>", "LAG>", "BEHIND>", "READS/S>", "CLIENT"]
    assert shown[2] == ["TOPIC", "PARTITION>", "LAG>", "BEHIND>"]
    assert fitting(COLUMNS_OF_ONE, [], 5), "never nothing"


def test_members_of_one_client_are_distinguished() -> None:
    members = [Member(str(number), name, "h", None) for number, name in enumerate(("app", "app", "other"))]
    found = Group("g", "Stable", "classic", "range", None, members)
    assert names_of_members(found) == {"0": "app #1", "1": "app #2", "2": "other"}
