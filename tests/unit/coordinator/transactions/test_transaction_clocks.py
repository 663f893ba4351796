"""Transactions time out on a node whose wall clock is behind the one that began them (transactions 2127)."""

from __future__ import annotations

import pytest

from ottla.coordinator.transaction.requests import AddPartitions, InitProducerId
from ottla.coordinator.transaction.transaction import State
from ottla.model import TopicPartition
from tests.unit.coordinator.transaction_script import FIRST_ID, SimulatedDriver

TIMEOUT_MS, HOUR_MS = 3_000, 3_600_000
SWEEP_MS = SimulatedDriver().config.abort_interval_ms


def begun() -> SimulatedDriver:
    driver = SimulatedDriver()
    driver.wait(HOUR_MS)
    driver.shard.ask("init", InitProducerId("t", TIMEOUT_MS), driver.now)
    driver.run()
    driver.shard.ask("add", AddPartitions("t", FIRST_ID, 0, [TopicPartition("orders", 0)]), driver.now)
    driver.run()
    assert state_of(driver) is State.ONGOING
    return driver


def state_of(driver: SimulatedDriver) -> State:
    return driver.shard.state.entries["t"].transaction.state


@pytest.mark.parametrize("moves", [False, True], ids=["the clock is set back", "another coordinator's clock is behind"])
def test_a_transaction_that_began_in_the_future_times_out(moves: bool) -> None:
    driver = begun()
    driver.wall_start_ms -= HOUR_MS
    if moves:
        driver.restart()
    driver.wait(TIMEOUT_MS)
    assert state_of(driver) is State.ONGOING
    driver.wait(2 * SWEEP_MS)
    assert state_of(driver) is State.PREPARE_ABORT


def test_a_coordinator_counts_what_passed_before_it() -> None:
    driver = begun()
    driver.wall_start_ms += TIMEOUT_MS + 1
    driver.restart()
    driver.wait(SWEEP_MS)
    assert state_of(driver) is State.PREPARE_ABORT
