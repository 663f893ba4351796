"""Fixtures of the conformance tests, beside the cluster that each module here starts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.conftest import topic
from tests.conformance.shell import Shell

__all__ = ["shell", "topic"]


@pytest.fixture(scope="session")
def shell() -> Iterator[Shell]:
    """Kafka's tools of 4.3, as the brokers and controllers of Kafka in these clusters are."""
    started = Shell("4.3")
    yield started
    started.close()
