"""Random walks of transactional producers, done in step on Ottla and on Apache Kafka: see transaction_walk.py.

OTTLA_WALKS=FIRST:COUNT chooses other seeds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from ottla.testing import Broker
from peers.kafka import START_FAST, KafkaPeer
from tests.conformance.walks.transaction_walk import Walk

STEPS = 150
FIRST, COUNT = map(int, os.environ.get("OTTLA_WALKS", "0:6").split(":"))
SLOW = 60
"""Walks of the slow matrix, beside those of every run."""

UNVERIFIED = {"transaction.partition.verification.enable": "false"}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    directory = tmp_path_factory.mktemp("unverified")
    with Broker(settings=UNVERIFIED) as ottla, KafkaPeer(directory, settings=UNVERIFIED, flags=START_FAST) as kafka:
        yield ottla.bootstrap, kafka.bootstrap


def walk(brokers: tuple[str, str], seed: int) -> None:
    taken = Walk(brokers, seed, f"{os.getpid()}-{time.time_ns() % 10**9}")
    taken.run(STEPS)
    assert taken.written > STEPS / 10
    assert {"PRODUCE", "WRITE_TXN_MARKERS", "TXN_OFFSET_COMMIT", "OFFSET_FETCH", "FETCH"} <= taken.requests


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_a_walk(brokers: tuple[str, str], seed: int) -> None:
    walk(brokers, seed)


@pytest.mark.matrix
def test_more_walks(brokers: tuple[str, str]) -> None:
    for seed in range(1_000, 1_000 + SLOW):
        walk(brokers, seed)
