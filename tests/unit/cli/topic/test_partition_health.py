"""What counts as under-replicated, offline, at and under min.insync.replicas: as in Kafka's `TopicCommand`."""

from __future__ import annotations

import pytest

from ottla.cli.topic.partition_health import LACKS, PartitionHealth

CASES: list[tuple[str, int | None, str, str, int | None, int, set[str]]] = [
    # name, leader, replicas, ISR, min.insync.replicas, being added, what is so
    ("all is well", 1, "123", "123", 2, 0, set()),
    ("one is away", 1, "123", "12", 2, 0, {"under_replicated", "at_min_isr"}),
    ("two are away", 1, "123", "1", 2, 0, {"under_replicated", "under_min_isr"}),
    ("all are needed", 1, "12", "21", 2, 0, {"at_min_isr"}),
    ("nobody leads", None, "123", "3", 1, 0, {"under_replicated", "offline", "at_min_isr", "under_min_isr"}),
    ("nobody is left", None, "1", "", 1, 0, {"under_replicated", "offline", "under_min_isr"}),
    ("one copy, two are asked for", 1, "1", "1", 2, 0, {"under_min_isr"}),
    ("one is on its way", 1, "123", "12", 1, 1, set()),
    ("one is on its way, one is away", 1, "123", "1", 1, 1, {"under_replicated", "at_min_isr"}),
    ("its settings are not to be seen", 1, "12", "1", None, 0, {"under_replicated"}),
]


@pytest.mark.parametrize(
    ("leader", "replicas", "isr", "required", "adding", "expected"),
    [each[1:] for each in CASES],
    ids=[each[0] for each in CASES],
)
def test_what_a_partition_lacks(
    leader: int | None, replicas: str, isr: str, required: int | None, adding: int, expected: set[str]
) -> None:
    found = PartitionHealth("t", 0, leader, tuple(map(int, replicas)), tuple(map(int, isr)), required, adding)
    assert {name for name, (lacks, _) in LACKS.items() if lacks(found)} == expected


def test_each_is_found_somewhere() -> None:
    assert set.union(*(each[-1] for each in CASES)) == set(LACKS)
