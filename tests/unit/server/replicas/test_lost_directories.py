"""What a broker says of replicas whose log directory the metadata calls lost (`ReplicaManager.take_placed`)."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

import pytest

from ottla.metadata.image import DIRECTORY_LOST, NO_LEADER, PartitionRegistration
from ottla.server.replicas.replica_manager import ReplicaManager
from ottla.storage.config import LogConfig
from tests.unit.storage.logs import new_disk
from tests.unit.storage.test_log_manager import ID, T0, Managed

HERE, THERE = UUID(int=501), UUID(int=502)


@pytest.mark.parametrize(
    ("isr", "elr", "leader", "says"),
    [
        ((2,), (), 2, False),  # it is fetched again
        ((2,), (), NO_LEADER, False),  # the other one has what it gave up
        ((1, 2), (), 2, True),  # it has all
        ((), (1,), NO_LEADER, True),  # nobody else could lead, so that it was not given up
        ((), (2,), NO_LEADER, False),
    ],
)
def test_a_log_in_a_lost_directory_stays_lost_while_it_is_fetched_again(
    isr: tuple[int, ...], elr: tuple[int, ...], leader: int, says: bool
) -> None:
    managed = Managed(new_disk())
    replicas = ReplicaManager(
        1, managed.logs, cast(Any, managed.clock), lambda image, topic: LogConfig(), lambda: {"/data": HERE}
    )
    registration = PartitionRegistration((1, 2), isr, leader, 3, 4, (DIRECTORY_LOST, THERE), elr=elr)
    replicas._update(cast(Any, None), T0.topic, ID, T0.partition, registration)
    assert replicas.take_placed() == ({(ID, T0.partition): HERE} if says else {})
