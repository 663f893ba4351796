"""Lag in time of many groups: few requests, the partition furthest behind, and nothing where it is not known."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from typing import Any

from ottla.console.asking import Asking, Site
from ottla.console.behind import ROUNDS_MAX, TIMED_MAX, behind_of_groups, furthest, to_look_at
from ottla.console.groups import Place
from ottla.console.masks import Masks
from ottla.console.sampling import sample
from ottla.console.trends import FOLLOWED_MAX, Trends
from ottla.console.views.groups import group, groups
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.protocol.fetch import FetchRequest, FetchResponse
from ottla.protocol.records.record_batch import SimpleRecord
from tests.unit.console.fake_cluster import FakeBrokers, user

AT = TopicPartition("t", 0)


class Aged(FakeBrokers):
    """A record for each of the last ten minutes, each a batch of its own."""

    def __init__(self, names: list[tuple[str, str]] | None = None) -> None:
        now = int(time.time() * 1000)
        records = [SimpleRecord(now - 60_000 * (10 - number), b"k", b"v") for number in range(10)]
        super().__init__(["t"], names or [("a", "classic"), ("b", "classic")], records=records)
        self.fetches: list[FetchRequest] = []
        self.committed: dict[str, int] = {}
        self.is_refused = False

    def offset_fetch(self, values: Mapping[str, Any]) -> dict[str, Any]:
        rows = [copy.deepcopy(row) for row in super().offset_fetch(values)["groups"]]  # they share what is in them
        for row in rows:
            for topic in row["topics"]:
                for each in topic["partitions"]:
                    each["committed_offset"] = self.committed.get(row["group_id"], each["committed_offset"])
        return {"groups": rows}

    def fetch(self, node_id: int, request: FetchRequest, into: bytearray | None = None) -> FetchResponse:
        self.fetches.append(request)
        if self.is_refused:
            return FetchResponse([])
        return super().fetch(node_id, request)


def asking(brokers: Aged, by: Any = None) -> Asking:
    return Asking(by or user(brokers), Site(Masks()), {})


def test_several_groups_of_one_partition_have_each_their_own_time() -> None:
    brokers = Aged()
    found = behind_of_groups(
        asking(brokers),
        {"a": {AT: Place(0, 10, 10)}, "b": {AT: Place(5, 10, 5)}, "c": {AT: Place(10, 10, 0)}, "d": {}},
    )
    assert found.failures == []
    assert {name: round(value / 60) for name, value in found.by_group.items()} == {"a": 10, "b": 5, "c": 0}
    assert len(brokers.fetches) == 2  # a request names a partition once
    many = {str(number): {AT: Place(number % 10, 10, 1)} for number in range(20)}
    assert len(behind_of_groups(asking(brokers), many).by_group) == ROUNDS_MAX


def test_an_unknown_lag_is_not_zero() -> None:
    brokers = Aged()
    brokers.is_refused = True
    other = TopicPartition("t", 1)
    mine = {AT: Place(0, 10, 10), other: Place(3, 3, 0)}
    assert behind_of_groups(asking(brokers), {"a": mine}).by_group == {}
    assert furthest(mine, {AT: 7, other: 0}) == 7
    assert furthest({other: Place(3, 3, 0)}, {other: 0}) == 0
    assert furthest({}, {}) is None


def test_a_page_looks_at_a_limited_number_of_partitions() -> None:
    mine = {TopicPartition("t", number): Place(0, number, number) for number in range(3 * TIMED_MAX)}
    wanted = [(group, at.partition) for (group, at), _ in to_look_at({"a": mine, "b": mine, "c": {}})]
    newest = [3 * TIMED_MAX - 1 - number for number in range(TIMED_MAX // 2)]  # those with most unread records
    assert wanted == [*(("a", number) for number in newest), *(("b", number) for number in newest)]
    many = {str(number): mine for number in range(2 * TIMED_MAX)}
    assert len(to_look_at(many)) == TIMED_MAX


def test_the_list_and_its_trend_have_lag_in_time() -> None:
    brokers = Aged()
    brokers.committed = {"a": 2, "b": 9}
    who = user(brokers)
    query = {"q": "", "kind": "", "state": "", "sort": "name", "order": "asc", "page": 1}

    def rows() -> dict[str, Any]:
        return {each.name: each for each in groups(Asking(who, Site(Masks()), query)).rows}

    first = rows()
    assert {name: round(each.behind_s / 60) for name, each in first.items()} == {"a": 8, "b": 1}
    assert first["a"].behind_trend is None
    sample(who, Site(Masks()))
    sample(who, Site(Masks()))
    trend = rows()["a"].behind_trend
    assert trend is not None and round(trend.now / 60) == 8


def test_a_share_group_has_what_its_leaders_know_and_the_age_of_its_first_record() -> None:
    looking = Asking(user(Aged([("s", "share")])), Site(Masks()), {"group": "s"})
    page = group(looking)
    (row,) = page.places
    assert (row.committed, row.in_flight, row.redelivered, row.waiting, row.archived) == ("1", "11", "12", "13", "14")
    assert row.behind_s is not None and 540 <= row.behind_s < 600 and page.behind_s == row.behind_s
    assert looking.problems == {}


def test_of_apache_kafka_no_numbers_are_shown_and_nothing_is_wrong() -> None:
    class Kafka(Aged):
        def describe_share_partitions(self, values: Mapping[str, Any]) -> dict[str, Any]:
            raise KafkaError(ErrorCode.unsupported_version)

    looking = Asking(user(Kafka([("s", "share")])), Site(Masks()), {"group": "s"})
    (row,) = group(looking).places
    assert (row.committed, row.in_flight, row.archived) == ("0", None, None) and row.behind_s is not None
    assert looking.problems == {}


def test_groups_that_nobody_looks_at_are_not_sampled() -> None:
    brokers = Aged()
    sample(user(brokers), Site(Masks()))
    assert brokers.fetches == []
    trends = Trends()
    trends.follow(str(number) for number in range(2 * FOLLOWED_MAX))
    assert len(trends.followed()) == FOLLOWED_MAX and "199" in trends.followed()
