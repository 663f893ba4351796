"""Every served API in every version: the same requests to Ottla and to Apache Kafka, the answers compared."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ottla.protocol.messages import ApiKey
from ottla.server.handlers import TABLE
from tests.conformance.differential import (  # noqa: F401  they add their rows to CASES
    differential_groups,
    differential_markers,
    differential_quotas,
    differential_security,
    differential_share,
    differential_streams,
    differential_transactions,
)
from tests.conformance.differential.differential import Side
from tests.conformance.differential.differential_cases import CASES, World
from tests.conformance.differential.test_streams_like_kafka import KEYS as OF_STREAMS
from tests.conformance.exemptions import EXEMPTIONS, unused

OF_ALL = {
    ApiKey.METADATA,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.LIST_GROUPS,
    ApiKey.LIST_CONFIG_RESOURCES,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
}
"""Their answers have rows of what other tests created, too."""


@pytest.fixture(scope="module")
def world(bootstrap: str, oracle: str) -> World:
    made = World(Side(bootstrap), Side(oracle), f"d{os.getpid()}-{time.time_ns() % 10**9}-", "answers")
    made.populate()
    made.wait_for_coordinators()
    return made


EVERY = [
    (ApiKey(key), version)
    for key, row in TABLE.items()
    if key not in OF_STREAMS
    for version in range(row.min_version, row.max_version + 1)
    if key != ApiKey.PRODUCE or version >= 3  # below, they are advertised for old clients, but refused
]


def test_every_api_has_cases() -> None:
    assert CASES.keys() == TABLE.keys()


@pytest.mark.parametrize(("key", "version"), [pytest.param(*each, id=f"{each[0].name}-{each[1]}") for each in EVERY])
def test_answers(world: World, key: ApiKey, version: int) -> None:
    before = world.asked
    for values in CASES[key](world, version):
        world.ask(key, version, values, ours=key in OF_ALL)
    assert world.asked > before
    world.check()


OLD = pytest.mark.nightly(
    "tests/conformance/differential/test_differential.py::test_share_offsets_of_a_partition_that_is_not_there"
)


@pytest.mark.parametrize("version", [pytest.param(0, marks=(pytest.mark.slow, OLD)), 1])
def test_share_offsets_of_a_partition_that_is_not_there(world: World, version: int) -> None:
    """Kafka looks for it for half a minute, once for all groups of a request."""
    group = f"{world.prefix}missing-{version}"
    for side in world.sides:
        side.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, differential_share.altered(group, (world.shared, {0: 3, 1: 1})))
    topics = [{"topic_name": world.shared, "partitions": [0, 1, 9]}, {"topic_name": world.nowhere, "partitions": [0]}]
    groups = [{"group_id": each, "topics": topics} for each in (group, f"{world.prefix}nobody-{version}")]
    world.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, version, {"groups": groups})
    world.check()


def test_every_exemption_is_used(request: pytest.FixtureRequest) -> None:
    """By the cases above, if all of them were run."""
    if sum(item.function is test_answers for item in request.session.items) == len(EVERY):  # type: ignore[attr-defined]
        assert unused("answers") == []


def test_every_exemption_is_documented() -> None:
    text = " ".join((Path(__file__).parents[3] / "docs" / "reference" / "compatibility.md").read_text().split())
    _, _, section = text.partition("## Where answers differ on purpose")
    assert [each.reason for each in EXEMPTIONS if each.reason not in section] == []
