"""One change of a partition, with what follows from it (tests/cluster asks Kafka the same in sequences)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.controller.partition_change import Changes, Election, PartitionChange
from ottla.metadata import features
from ottla.metadata.image import MetadataImage
from ottla.protocol.schemas import records as r
from tests.unit.metadata.images import apply, broker_records, feature_records, settings, topic_records

DIRECTORIES = {node: UUID(int=0xD0 + node) for node in (1, 2, 3, 4, 5)}


def cluster(*more: Any, fenced: tuple[int, ...] = (), **partition: Any) -> MetadataImage:
    """Brokers 1 to 5, and topic "t" on 1, 2, 3 with two of them required."""
    brokers = [
        each
        for node, directory in DIRECTORIES.items()
        for each in broker_records(node, fenced=node in fenced, log_dirs=(directory,))
    ]
    values: dict[str, Any] = {"replicas": (1, 2, 3), "isr": (1, 2, 3), **partition}
    values.setdefault("directories", tuple(DIRECTORIES[node] for node in values["replicas"]))
    values = {"leader_epoch": 4, "partition_epoch": 6, **values}
    min_isr = r.ConfigRecord(4, "", "min.insync.replicas", "2")
    return apply([*feature_records(), min_isr, *brokers, *topic_records("t", 5, **values), *more])


def change(image: MetadataImage, **of: int) -> PartitionChange:
    topic = image.topic("t")
    assert topic is not None
    return Changes(image, settings(image), **of).of(topic, 0, topic.partitions[0])


def said(record: r.PartitionChangeRecord | None) -> dict[str, Any]:
    """What a record changes."""
    if record is None:
        return {}
    names = ("isr", "leader", "replicas", "removing_replicas", "adding_replicas", "leader_recovery_state")
    names += ("directories", "eligible_leader_replicas", "last_known_elr")
    default = r.PartitionChangeRecord()
    short = {"eligible_leader_replicas": "elr", "removing_replicas": "removing", "adding_replicas": "adding"}
    return {
        short.get(name, name): getattr(record, name)
        for name in names
        if getattr(record, name) != getattr(default, name)
    }


UNCLEAN = r.ConfigRecord(2, "t", "unclean.leader.election.enable", "true")
NO_ELR = r.FeatureLevelRecord(features.ELR_VERSION, 0)
ALONE = {"isr": (1,), "eligible_leader_replicas": (2,)}
LEADERLESS = {"isr": (), "leader": -1, "last_known_elr": (1,)}

ISR_CHANGES: list[tuple[dict[str, Any], tuple[Any, ...], tuple[int, ...], dict[str, Any]]] = [
    ({}, (), (1, 2, 3), {}),
    ({}, (), (1, 2), {"isr": (1, 2)}),
    ({}, (), (1,), {"isr": (1,), "elr": (2, 3)}),
    ({}, (NO_ELR,), (1,), {"isr": (1,)}),
    ({"isr": (1,)}, (), (1, 2), {"isr": (1, 2)}),
    (ALONE, (), (1, 2), {"isr": (1, 2), "elr": ()}),
    (ALONE, (), (1, 3), {"isr": (1, 3), "elr": ()}),
    ({"isr": (1, 2)}, (), (1,), {"isr": (1,), "elr": (2,)}),
]


@pytest.mark.parametrize(("partition", "more", "isr", "expected"), ISR_CHANGES, ids=str)
def test_the_isr_and_who_is_eligible_beside_it(
    partition: dict[str, Any], more: tuple[Any, ...], isr: tuple[int, ...], expected: dict[str, Any]
) -> None:
    asked = change(cluster(*more, **partition))
    asked.isr = isr
    assert said(asked.record()) == expected


def test_a_smaller_isr_is_a_new_leader_epoch_for_brokers_before_3_6() -> None:
    for level, leader in ((11, 1), (12, -2)):
        asked = change(cluster(r.FeatureLevelRecord(features.METADATA_VERSION, level)))
        asked.isr = (1, 2)
        record = asked.record()
        assert record is not None
        assert record.leader == leader


LEAVING: list[tuple[dict[str, Any], tuple[Any, ...], dict[str, Any]]] = [
    ({}, (), {"isr": (2, 3), "leader": 2}),
    ({"fenced": (2,)}, (), {"isr": (2, 3), "leader": 3}),
    ({"leader": 2}, (), {"isr": (2, 3)}),
    ({"isr": (1, 3)}, (), {"isr": (3,), "leader": 3, "elr": (1,)}),
    (ALONE, (), {"isr": (2,), "leader": 2, "elr": (1,)}),
    ({**ALONE, "fenced": (2,)}, (), {"isr": (), "leader": -1, "elr": (1, 2), "last_known_elr": (1,)}),
    ({**ALONE, "fenced": (2,)}, (UNCLEAN,), {"isr": (3,), "leader": 3, "leader_recovery_state": 1, "elr": ()}),
    ({"isr": (1,)}, (NO_ELR,), {"leader": -1}),
    ({"isr": (1,)}, (NO_ELR, UNCLEAN), {"isr": (2,), "leader": 2, "leader_recovery_state": 1}),
    ({"isr": (1,)}, (UNCLEAN,), {"isr": (2,), "leader": 2, "leader_recovery_state": 1}),
    (
        {"isr": (1,), "replicas": (1,)},
        (),
        {"isr": (), "leader": -1, "elr": (1,), "last_known_elr": (1,)},
    ),
    ({"isr": (1,), "replicas": (1,)}, (NO_ELR,), {"leader": -1}),
]


@pytest.mark.parametrize(("partition", "more", "expected"), LEAVING, ids=str)
def test_broker_1_leaves(partition: dict[str, Any], more: tuple[Any, ...], expected: dict[str, Any]) -> None:
    image = cluster(*more, **partition)
    asked = change(image, leaving=1).allow_unclean()
    asked.isr = [each for each in asked.isr if each != 1]
    assert said(asked.record()) == expected


RETURNING: list[tuple[dict[str, Any], tuple[Any, ...], dict[str, Any]]] = [
    ({"isr": (1, 2), "leader": -1}, (NO_ELR,), {"leader": 1}),
    ({"isr": (2,), "leader": -1}, (NO_ELR,), {}),
    (
        {**LEADERLESS, "eligible_leader_replicas": (1, 2)}, (),
        {"leader": 1, "isr": (1,), "elr": (2,), "last_known_elr": ()},
    ),
    ({**LEADERLESS, "eligible_leader_replicas": (2,)}, (), {}),
    (LEADERLESS, (), {"leader": 1, "isr": (1,), "leader_recovery_state": 1, "last_known_elr": ()}),
    ({**LEADERLESS, "last_known_elr": (2,)}, (), {}),
    ({**LEADERLESS, "last_known_elr": (1, 2)}, (), {}),
    ({**LEADERLESS, "leader_recovery_state": 1}, (), {"leader": 1, "isr": (1,), "last_known_elr": ()}),
    ({**LEADERLESS, "directories": (UUID(int=99), DIRECTORIES[2], DIRECTORIES[3])}, (), {}),
]  # fmt: skip


@pytest.mark.parametrize(("partition", "more", "expected"), RETURNING, ids=str)
def test_broker_1_returns_and_the_others_are_gone(
    partition: dict[str, Any], more: tuple[Any, ...], expected: dict[str, Any]
) -> None:
    image = cluster(*more, fenced=(1, 2, 3), **partition)
    assert said(change(image, returning=1).allow_unclean().record()) == expected


def test_who_lost_what_it_had_is_eligible_nowhere() -> None:
    image = cluster(isr=(1, 2))
    asked = change(image, unclean=1)
    asked.isr = (2,)
    assert said(asked.record()) == {"isr": (2,), "leader": 2}
    asked = change(cluster(isr=(2,), leader=2, eligible_leader_replicas=(1, 3)), unclean=1)
    assert said(asked.record()) == {"elr": (3,)}


PREFERRED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"leader": 2}, {"leader": 1}),
    ({"leader": 1}, {}),
    ({"leader": 2, "fenced": (1,)}, {}),
    ({"leader": 2, "isr": (2, 3)}, {}),
    ({**LEADERLESS, "eligible_leader_replicas": (3,)}, {"leader": 3, "isr": (3,), "elr": (), "last_known_elr": ()}),
    ({**LEADERLESS, "last_known_elr": (), "fenced": (1,)}, {}),
]


@pytest.mark.parametrize(("partition", "expected"), PREFERRED, ids=str)
def test_preferred_leaders(partition: dict[str, Any], expected: dict[str, Any]) -> None:
    asked = change(cluster(UNCLEAN, **partition))
    asked.election = Election.PREFERRED
    assert said(asked.record()) == expected


def test_a_reassignment_adds_first_and_takes_away_when_all_are_in_sync() -> None:
    image = cluster()
    asked = change(image)
    asked.replicas, asked.adding, asked.removing = (2, 3, 4, 1), (4,), (1,)
    record = asked.record()
    directories = tuple(DIRECTORIES[node] for node in (2, 3, 4, 1))
    expected = {"replicas": (2, 3, 4, 1), "adding": (4,), "removing": (1,), "directories": directories}
    assert said(record) == expected
    image = apply([record], image)
    asked = change(image)
    asked.isr = (1, 2, 3, 4)
    expected = {"replicas": (2, 3, 4), "adding": (), "removing": (), "isr": (2, 3, 4), "leader": 2}
    assert said(asked.record()) == {**expected, "directories": directories[:3]}


def test_a_reassignment_that_needs_no_copy_is_over_at_once_in_a_new_epoch() -> None:
    asked = change(cluster())
    asked.replicas, asked.removing = (1, 2, 3), (3,)
    directories = (DIRECTORIES[1], DIRECTORIES[2])
    expected = {"replicas": (1, 2), "isr": (1, 2), "directories": directories, "leader": 1}
    assert said(asked.record()) == expected
    asked = change(cluster())
    asked.replicas = (3, 1, 2)
    directories = (DIRECTORIES[3], DIRECTORIES[1], DIRECTORIES[2])
    assert said(asked.record()) == {"replicas": (3, 1, 2), "directories": directories}


def test_a_replica_goes_where_there_is_one_directory_and_else_where_its_broker_says() -> None:
    more = broker_records(4, log_dirs=(DIRECTORIES[4], UUID(int=0xE4)))
    asked = change(cluster(*more))
    asked.replicas, asked.adding = (1, 2, 3, 4, 5), (4, 5)
    record = asked.record()
    assert record is not None and record.directories is not None
    assert record.directories[3:] == (UUID(int=1), DIRECTORIES[5])
    asked = change(cluster())
    asked.directories[2] = UUID(int=0xE2)
    assert said(asked.record()) == {"directories": (DIRECTORIES[1], UUID(int=0xE2), DIRECTORIES[3])}


def test_the_setting_of_a_topic_goes_before_those_of_the_cluster_and_of_the_controller() -> None:
    def elects(*more: Any, **static: str) -> bool:
        image = cluster(*more, NO_ELR, isr=(1,))
        topic = image.topic("t")
        assert topic is not None
        asked = Changes(image, settings(image, **static), leaving=1).of(topic, 0, topic.partitions[0]).allow_unclean()
        asked.isr = ()
        record = asked.record()
        assert record is not None
        return record.leader == 2

    name = "unclean.leader.election.enable"
    assert not elects()
    assert elects(unclean_leader_election_enable="true")
    assert elects(r.ConfigRecord(4, "", name, "true"))
    assert not elects(r.ConfigRecord(4, "", name, "false"), unclean_leader_election_enable="true")
    assert not elects(r.ConfigRecord(2, "t", name, "false"), r.ConfigRecord(4, "", name, "true"))
    assert elects(r.ConfigRecord(2, "t", name, "true"))
