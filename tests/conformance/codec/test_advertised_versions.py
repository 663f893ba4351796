"""What listeners advertise is what Kafka 4.4 has, by the definitions in its jars: nothing missing, nothing unstable."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ottla.protocol.messages import ApiKey
from ottla.server.controller_handlers import CONTROLLER_TABLE
from ottla.server.handlers import TABLE, Served
from tests.conformance.codec.message_definitions import definitions


def of_kafka(listener: str) -> dict[int, tuple[int, int]]:
    found = {}
    for each in definitions():
        if each.type != "request" or listener not in each.listeners or each.api_key is None:
            continue
        low, high = each.versions[0], each.versions[-1] - each.is_latest_unstable
        if high >= low:
            found[each.api_key] = (low, high)
    if listener == "broker":
        found[ApiKey.PRODUCE] = (0, found[ApiKey.PRODUCE][1])  # so that librdkafka finds every codec (KAFKA-18659)
    return found


@pytest.mark.parametrize(("listener", "table"), [("broker", TABLE), ("controller", CONTROLLER_TABLE)])
def test_apis_and_versions_are_those_of_kafka(listener: str, table: Mapping[int, Served]) -> None:
    ours = {int(key): (served.min_version, served.max_version) for key, served in table.items()}
    theirs = of_kafka(listener)
    assert len(theirs) > 40
    assert ours == theirs
