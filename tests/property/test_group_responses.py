"""The responses of groups against those of the table of messages, byte for byte, in every version."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import ErrorCode
from ottla.protocol import messages
from ottla.protocol.group_responses import (
    encode_consumer_heartbeat,
    encode_join,
)
from ottla.protocol.messages import ApiKey

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=150)
ERRORS = st.sampled_from(ErrorCode)
MEMBERS = st.fixed_dictionaries(
    {"member_id": TEXT, "group_instance_id": st.none() | TEXT, "metadata": st.binary(max_size=200)}
)
JOINED = st.fixed_dictionaries({
    "error_code": ERRORS, "generation_id": st.integers(-1, 2**31 - 1), "protocol_type": st.none() | TEXT,
    "protocol_name": st.none() | TEXT, "leader": TEXT, "skip_assignment": st.booleans(), "member_id": TEXT,
    "members": st.lists(MEMBERS, max_size=4),
})  # fmt: skip
NUMBERS = st.integers(0, 2**31 - 1)
BEATEN = st.fixed_dictionaries({
    "error_code": ERRORS, "error_message": st.none() | TEXT, "member_id": st.none() | TEXT,
    "member_epoch": st.integers(-2, 2**31 - 1), "heartbeat_interval": NUMBERS,
    "assignment": st.none() | st.dictionaries(st.uuids(), st.frozensets(NUMBERS, max_size=200), max_size=4),
})  # fmt: skip


def header(api: ApiKey, version: int) -> bytes:
    return messages.response_header(api, version, 7)


@given(st.integers(0, 9), JOINED)
def test_join(version: int, response: dict[str, Any]) -> None:
    values = response if version >= 7 else response | {"protocol_name": response["protocol_name"] or ""}
    expected = messages.encode_response(ApiKey.JOIN_GROUP, version, 7, values)
    assert encode_join(version, response, header(ApiKey.JOIN_GROUP, version)) == expected


@given(st.integers(0, 1), BEATEN)
def test_consumer_heartbeat(version: int, response: dict[str, Any]) -> None:
    assignment = response["assignment"]
    if assignment is not None:
        rows = tuple({"topic_id": key, "partitions": tuple(found)} for key, found in assignment.items())
        assignment = {"topic_partitions": rows}
    api = ApiKey.CONSUMER_GROUP_HEARTBEAT
    expected = messages.encode_response(api, version, 7, {**response, "assignment": assignment})
    assert encode_consumer_heartbeat(version, response, header(api, version)) == expected
