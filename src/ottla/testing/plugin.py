"""Fixtures for pytest, there as soon as Ottla is installed. Nothing is loaded or started before a test asks.

`ottla_broker`: one broker for the session, which with pytest-xdist means one per worker. `ottla_async_broker`: the same
broker with methods to await. `ottla_topic`: the name of a
topic of the test's own on it. `ottla_registry`: a schema registry beside that broker. `ottla_cluster`: three
nodes for one test. `ottla_settings`: to be overridden in a `conftest.py`, the settings of these.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla.testing.asynchronous import AsyncBroker
    from ottla.testing.broker import Broker
    from ottla.testing.cluster import Cluster
    from ottla.testing.registry import Registry

TOPIC_NAME_LENGTH_MAX = 100
"""Kafka allows 249 characters; names of tests can be longer than what one wants to read in a log."""

_numbers = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "ottla_topic(partitions=1, **settings): partitions and settings of the topic of fixture ottla_topic"
    )


@pytest.fixture(scope="session")
def ottla_settings() -> Mapping[str, Any]:
    """Kafka's settings for `ottla_broker`; override it to change them."""
    return {}


@pytest.fixture(scope="session")
def ottla_broker(ottla_settings: Mapping[str, Any]) -> Iterator[Broker]:
    """A running Ottla broker; clients use its `bootstrap`."""
    from ottla.testing.broker import Broker

    with Broker(ottla_settings) as broker:
        yield broker


@pytest.fixture(scope="session")
def ottla_async_broker(ottla_broker: Broker) -> AsyncBroker:
    """`ottla_broker` with methods that are awaited. The fixture itself is no coroutine, so it serves tests under
    pytest-asyncio (any mode and loop scope), under anyio's plugin, and under neither."""
    from ottla.testing.asynchronous import AsyncBroker

    return AsyncBroker.of(ottla_broker)


@pytest.fixture(scope="session")
def ottla_registry(ottla_broker: Broker) -> Iterator[Registry]:
    """A running schema registry, with its topic on `ottla_broker`; serializers use its `url`. Needs the extra
    `registry`."""
    from ottla.testing.registry import Registry

    with Registry(ottla_broker.bootstrap) as registry:
        yield registry


@pytest.fixture
def ottla_cluster(ottla_settings: Mapping[str, Any]) -> Iterator[Cluster]:
    """Three nodes of the test's own, to be killed, paused and cut off; clients use its `bootstrap`."""
    from ottla.testing.cluster import Cluster

    with Cluster(3, ottla_settings) as cluster:
        yield cluster


@pytest.fixture
def ottla_topic(ottla_broker: Broker, request: pytest.FixtureRequest) -> str:
    """The name of a new topic, which no other test uses. See the marker of the same name."""
    marker = request.node.get_closest_marker("ottla_topic")
    name = re.sub("[^A-Za-z0-9._-]+", "-", request.node.name)[:TOPIC_NAME_LENGTH_MAX].rstrip("-")
    return ottla_broker.create_topic(f"{name}-{next(_numbers)}", **({} if marker is None else marker.kwargs))
