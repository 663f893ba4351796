"""`ottla produce` says what it waits for, from what librdkafka logs; no clock and no broker here."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from ottla.cli.records.produce_waits import AGAIN_S, PATIENCE_S, Waits

LINE = (
    "MSGSET [rdkafka#producer-1] [thrd:host:9092/1]: host:9092/1: {topic} [{partition}]: MessageSet with 3 message(s) "
)
STORAGE = "Disk error when trying to access log file on disk"


class Told:
    """A producer's log, and what was printed."""

    def __init__(self, capsys: Any, topic: str = "t") -> None:
        self.now_s = 100.0
        self.waits = Waits(topic, lambda: self.now_s)
        self.logger: logging.Logger = self.waits.settings()["logger"]
        self._capsys = capsys

    def answered(self, partition: int, error: str = "", topic: str = "t") -> None:
        line = LINE.format(topic=topic, partition=partition) + "(MsgId 1, BaseSeq -1) "
        line += f"encountered error: {error} (actions Refresh,MsgNotPersisted)" if error else "delivered"
        self.logger.debug(line)

    def look(self, waiting: int, after_s: float = 0.0) -> str:
        self.now_s += after_s
        self.waits.look(waiting)
        return str(self._capsys.readouterr().err)


@pytest.fixture
def told(capsys: Any) -> Told:
    return Told(capsys)


def test_nothing_is_said_while_records_are_acknowledged(told: Told) -> None:
    for waiting in (1000, 900, 800, 900, 850, 0, 0, 500, 400):
        told.answered(0)
        assert told.look(waiting, PATIENCE_S * 0.9) == ""


def test_the_brokers_error_is_said_with_its_partition(told: Told) -> None:
    told.answered(3, f"Broker: {STORAGE}")
    assert told.look(7, PATIENCE_S / 2) == ""
    assert told.look(7, PATIENCE_S) == f"ottla: 7 records not acknowledged yet: t, partition 3: {STORAGE}\n"
    assert told.look(7, 1) == ""
    told.answered(4, "Broker: Not enough in-sync replicas")
    assert told.look(7, 1).endswith(f"t, partition 3: {STORAGE}; t, partition 4: Not enough in-sync replicas\n")
    told.answered(3)
    assert told.look(4, 1) == "", "there was room again"
    assert told.look(4, PATIENCE_S).endswith(": t, partition 4: Not enough in-sync replicas\n")
    assert told.look(4, AGAIN_S - 1) == ""
    assert told.look(4, 1).endswith(": t, partition 4: Not enough in-sync replicas\n")


def test_many_partitions_are_one_clause(told: Told) -> None:
    for partition in range(100):
        told.answered(partition, f"Broker: {STORAGE}")
    assert told.look(1, 2 * PATIENCE_S).endswith(f"yet: t, partitions 0, 1, 2, 3, 4 and 95 more: {STORAGE}\n")


def test_without_an_answer(told: Told) -> None:
    told.logger.debug(
        "PRODUCE [rdkafka#producer-1] [thrd:x]: host:9092/1: t [7]: Produce MessageSet with 12 message(s)"
    )
    told.logger.error("FAIL [rdkafka#producer-1]: connection refused (actions none)")
    assert told.look(1, 2 * PATIENCE_S) == "ottla: 1 record not acknowledged yet: no broker has answered yet\n"
