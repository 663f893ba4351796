"""Where new replicas go: spread over racks, brokers and pairs of brokers (`StripedReplicaPlacerTest` in Kafka)."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from random import Random
from typing import Any

import pytest

from ottla.controller.placement import place
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import MetadataImage
from ottla.protocol.schemas import records as r
from tests.unit.metadata.images import apply, broker_records, feature_records


def cluster(racks: dict[int, str | None], fenced: tuple[int, ...] = (), *more: Any) -> MetadataImage:
    brokers = [each for node, rack in racks.items() for each in broker_records(node, rack=rack, fenced=node in fenced)]
    return apply([*feature_records(), *brokers, *more])


def rows(count: int, racks: int) -> dict[int, str | None]:
    return {node: f"rack-{node % racks}" for node in range(count)}


SIZES = [(3, 1, 3), (3, 3, 3), (5, 2, 3), (6, 3, 2), (6, 3, 3), (9, 3, 4), (10, 5, 5), (12, 4, 1)]


@pytest.mark.parametrize(("brokers", "racks", "factor"), SIZES)
@pytest.mark.parametrize("seed", range(3))
def test_replicas_are_spread_evenly(brokers: int, racks: int, factor: int, seed: int) -> None:
    count = 20 * brokers
    placed = place(cluster(rows(brokers, racks)), count, factor, Random(seed))
    assert len(placed) == count
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert len({node % racks for node in replicas}) == min(racks, factor), "as many racks as can be"
    leaders = Counter(replicas[0] for replicas in placed)
    assert set(leaders.values()) == {20}, leaders
    each = Counter(node for replicas in placed for node in replicas)
    fair = count * factor / brokers
    assert max(each.values()) <= 1.5 * fair and min(each.values()) >= fair / 2, each
    if factor > 1:
        pairs = Counter(pair for replicas in placed for pair in combinations(sorted(replicas), 2))
        possible = sum(
            1 for pair in combinations(range(brokers), 2) if racks < factor or pair[0] % racks != pair[1] % racks
        )
        assert len(pairs) >= 0.8 * possible, "nobody shares all of its partitions with the same"


def test_fenced_brokers_lead_nothing_and_come_last_in_their_rack() -> None:
    image = cluster({1: "a", 2: "a", 3: "b", 4: None}, (1, 3))
    for replicas in place(image, 50, 3, Random(1)):
        assert replicas[0] in (2, 4)
        assert set(replicas) == {2, 3, 4}, "one of each rack; of rack a the one that lives"
    for replicas in place(image, 50, 4, Random(1)):
        assert set(replicas) == {1, 2, 3, 4}


def test_one_unfenced_broker_leads_everything() -> None:
    placed = place(cluster(rows(4, 2), (0, 1, 2)), 100, 3, Random(7))
    assert {replicas[0] for replicas in placed} == {3}


def test_a_broker_that_stops_gets_nothing_until_it_has_stopped() -> None:
    stops = r.BrokerRegistrationChangeRecord(1, 1, in_controlled_shutdown=1)
    racks: dict[int, str | None] = {1: None, 2: None, 3: None}
    assert all(1 not in replicas for replicas in place(cluster(racks, (), stops), 20, 2, Random(1)))
    with pytest.raises(KafkaError) as caught:
        place(cluster(racks, (), stops), 20, 3, Random(1))
    assert caught.value.code == ErrorCode.invalid_replication_factor
    stopped = r.BrokerRegistrationChangeRecord(1, 1, fenced=1)
    assert len(place(cluster(racks, (), stops, stopped), 20, 3, Random(1))) == 20


def test_a_thousand_brokers_have_one_each() -> None:
    placed = place(cluster(rows(1000, 10)), 1000, 3, Random(3))
    assert len({replicas[0] for replicas in placed}) == 1000
    assert max(Counter(node for replicas in placed for node in replicas).values()) <= 4
