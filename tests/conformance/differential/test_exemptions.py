"""What is exempt from the comparison with Kafka is one field for one reason, not whatever else a request meets."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.protocol.messages import ApiKey
from tests.conformance.differential.differential import differences
from tests.conformance.exemptions import EXEMPTIONS, USED, Difference, is_exempt

METADATA: dict[str, Any] = {"topics": []}
TXN = {"transactional_id": "t", "topic_data": []}
ONCE = {"transactional_id": None, "topic_data": [{"partition_data": [{"index": 0}, {"index": 1}]}]}


def produced(row: dict[str, Any], **theirs: Any) -> list[Difference]:
    mine = {"responses": [{"topic": "t", "partition_responses": [row]}]}
    other = {"responses": [{"topic": "t", "partition_responses": [row | theirs]}]}
    return differences(mine, other)


@pytest.mark.parametrize(
    ("api", "request_", "found", "expected"),
    [
        (ApiKey.METADATA, METADATA, [Difference("", "error_code", "invalid_request", "unknown_server_error")], True),
        (ApiKey.METADATA, METADATA, [Difference("", "error_code", "none", "unknown_server_error")], False),
        (ApiKey.METADATA, METADATA, [Difference("", "error_code", "unknown_server_error", "none")], False),
        (ApiKey.METADATA, METADATA, [Difference("", "throttle_time", 1, 0)], False),
        (ApiKey.LIST_GROUPS, {}, [Difference("", "error_code", "invalid_request", "unknown_server_error")], False),
        (ApiKey.PRODUCE, TXN, produced({"index": 0, "error_code": "invalid_txn_state"}, error_code="none"), False),
        (ApiKey.PRODUCE, TXN, produced({"index": 0, "error_code": "none"}, error_code="invalid_record"), False),
        (ApiKey.PRODUCE, ONCE, produced({"index": 0, "error_code": "none"}, error_code="invalid_record"), False),
        (ApiKey.PRODUCE, ONCE, produced({"index": 0, "error_message": "a"}, error_message="b"), True),
        (ApiKey.PRODUCE, ONCE, produced({"index": 0, "error_message": "a"}, error_message=None), False),
    ],
)
def test_what_is_exempt(api: ApiKey, request_: dict[str, Any], found: list[Difference], expected: bool) -> None:
    assert len(found) == 1
    assert is_exempt("a test", api, request_, found[0]) is expected
    USED.pop("a test", None)


def test_a_difference_knows_its_field_and_its_rows() -> None:
    mine = {"topics": [{"name": "a", "partitions": [{"partition_index": 1, "offset": 5}]}]}
    theirs = {"topics": [{"name": "a", "partitions": [{"partition_index": 1, "offset": 6}]}]}
    (found,) = differences(mine, theirs)
    assert (found.field, found.mine, found.theirs) == ("topics.partitions.offset", 5, 6)
    assert found.path == ".topics[a].partitions[1].offset"
    assert found.rows[-1] == ({"partition_index": 1, "offset": 5}, {"partition_index": 1, "offset": 6})
    (found,) = differences(mine, {"topics": []})
    assert (found.field, found.theirs) == ("topics", "missing")


def test_no_exemption_covers_a_field_that_is_not_named() -> None:
    assert all(rule.fields.split() and "*" not in rule.fields for rule in EXEMPTIONS)
