"""Part of `authorizer_walk.py`: StandardAuthorizer of Kafka and ours decide the same, by the same rule."""

from __future__ import annotations

import os
import random as random_module
from collections.abc import Iterator

import pytest

from tests.conformance.line_program import Lines
from tests.conformance.walks.authorizer_walk import differences, filter_differences, supported_differences

PAIRS = 20_000


@pytest.fixture(scope="module")
def lines() -> Iterator[Lines]:
    program = Lines("AclLines")
    yield program
    program.close()


@pytest.fixture
def random() -> random_module.Random:
    seed = int(os.environ.get("OTTLA_TEST_SEED", "1"))
    print(f"OTTLA_TEST_SEED={seed}")
    return random_module.Random(seed)


def test_decisions(lines: Lines, random: random_module.Random) -> None:
    assert list(differences(lines, random, PAIRS)) == []


def test_filters(lines: Lines, random: random_module.Random) -> None:
    assert list(filter_differences(lines, random, 50)) == []


def test_operations_of_each_type(lines: Lines) -> None:
    assert list(supported_differences(lines)) == []
