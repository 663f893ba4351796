"""Users who may do nothing, and users who may do one thing: Ottla and Apache Kafka answer them the same.

It finds holes such as CVE-2026-41115.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.protocol.messages import ApiKey
from ottla.server.handlers import TABLE
from tests.conformance.differential.permissions import ASKED_OF_KAFKA_ALONE, brokers, compare


@pytest.mark.nightly(
    "tests/unit/server/security/test_permissions.py::test_who_may_do_nothing_is_refused_by_every_api_in_every_version",
    "tests/unit/server/security/test_permissions.py::test_every_declared_permission_is_asked_and_its_lack_refuses",
)
def test_kafka_refuses_the_same(tmp_path: Path) -> None:
    """All of it: `python -m tests.conformance.differential.permissions --cases 99`."""
    keys = [ApiKey(key) for key in TABLE]
    with brokers(tmp_path) as world:
        asked, refused, found = compare(world, keys, cases=3, versions=2)
    assert asked > 5 * (len(keys) - len(ASKED_OF_KAFKA_ALONE)) and refused > asked / 3
    assert not found, "\n" + "\n".join(found)
