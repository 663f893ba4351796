"""The requests of streams groups in every version, to Ottla and to an Apache Kafka 4.4 with the plug-in that keeps
descriptions of topologies: the answers compared."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from ottla.protocol.messages import ApiKey
from ottla.server.handlers import TABLE
from peers.kafka import KafkaPeer, start_fast
from tests.conformance.differential import differential_streams
from tests.conformance.differential.differential import Side
from tests.conformance.differential.differential_cases import CASES, World
from tests.conformance.exemptions import unused

KEYS = (
    ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_DESCRIBE, ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
)  # fmt: skip
VERSIONS = [(key, version) for key in KEYS for version in range(TABLE[key].max_version + 1)]
PLUGIN = "group.streams.topology.description.plugin.class"


@pytest.fixture(scope="module")
def world(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    assert differential_streams.GROUP  # its rows are in CASES
    settings = {
        PLUGIN: "org.apache.kafka.server.streams.InMemoryTopologyDescriptionPlugin",
        "offsets.topic.num.partitions": "5",
    }
    directory = tmp_path_factory.mktemp("kafka")
    with KafkaPeer(directory, heap="512m", settings=settings, flags=start_fast("4.4"), release="4.4") as kafka:
        made = World(Side(bootstrap), Side(kafka.bootstrap), f"s{os.getpid()}-{time.time_ns() % 10**9}-", "streams")
        made.populate()
        made.wait_for_coordinators()
        yield made


@pytest.mark.parametrize(("key", "version"), [pytest.param(*each, id=f"{each[0].name}-{each[1]}") for each in VERSIONS])
def test_answers(world: World, key: ApiKey, version: int) -> None:
    before = world.asked
    for values in CASES[key](world, version):
        world.ask(key, version, values)
    assert world.asked > before
    world.check()


def test_every_exemption_is_used(request: pytest.FixtureRequest) -> None:
    """By the cases above, if all of them were run."""
    if sum(item.function is test_answers for item in request.session.items) == len(VERSIONS):  # type: ignore[attr-defined]
        assert unused("streams") == []
