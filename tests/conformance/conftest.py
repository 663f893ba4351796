"""One node for all tests of a worker, or the broker at OTTLA_TEST_BOOTSTRAP to see what Apache Kafka answers."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.schemas.client import Registry as Client
from ottla.schemas.client import Schema
from ottla.testing import Registry
from tests.conformance.shell import Shell
from tests.conformance.twins import Twins
from tests.node import NodeProcess
from tests.oracle import GROUPS_STAY

FIELDS = [{"name": "a", "type": "int"}, {"name": "b", "type": "int", "default": 0}]
_numbers = itertools.count()


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node") / "data", GROUPS_STAY) as started:
        yield started


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Address of the broker under test."""
    external = os.environ.get("OTTLA_TEST_BOOTSTRAP")
    return external or request.getfixturevalue("node").bootstrap


@pytest.fixture(scope="session")
def shell() -> Iterator[Shell]:
    """Runs Kafka's tools."""
    started = Shell()
    yield started
    started.close()


@pytest.fixture
def twins(shell: Shell, bootstrap: str, oracle: str) -> Twins:
    """Runs a tool against the broker under test and against Apache Kafka."""
    return Twins(shell, bootstrap, oracle)


@pytest.fixture(scope="session")
def registry_url(bootstrap: str) -> Iterator[str]:
    """A schema registry that has two versions of a schema, of the topic `t`."""
    with Registry(bootstrap) as registry:
        client = Client(registry.url)
        for fields in (FIELDS[:1], FIELDS):
            client.register("t-value", Schema(json.dumps({"type": "record", "name": "T", "fields": fields})))
        client.close()
        yield registry.url


@pytest.fixture
def topic() -> str:
    """A topic name that no other test uses."""
    return f"topic-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def fresh_node(tmp_path: Path) -> Iterator[NodeProcess]:
    """A node of the test's own, to stop, kill and inspect."""
    with NodeProcess(tmp_path / "data") as started:
        yield started
