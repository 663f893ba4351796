"""The hand-written decoder of OffsetFetch against kio's, in every version; torn, changed and hostile requests."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model import ZERO_UUID
from ottla.protocol import messages
from ottla.protocol.group_requests import GroupToFetch, OffsetFetchRequest, TopicToFetch, decode_offset_fetch
from ottla.protocol.messages import ApiKey, MalformedRequest

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=150)
NUMBERS = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=200).map(tuple)
IDS = st.uuids().filter(lambda value: value != ZERO_UUID)
TOPICS = st.none() | st.lists(st.builds(TopicToFetch, TEXT, IDS, NUMBERS), max_size=3)
GROUPS = st.builds(GroupToFetch, TEXT, TOPICS, st.none() | TEXT, st.integers(-1, 2**31 - 1))
REQUESTS = st.builds(OffsetFetchRequest, st.lists(GROUPS, min_size=1, max_size=3), st.booleans())
VERSIONS = st.integers(1, 10)


def seen_in(version: int, request: OffsetFetchRequest) -> OffsetFetchRequest:
    """The fields of a request that a version has."""
    groups = request.groups if version >= 8 else request.groups[:1]
    stable = request.require_stable if version >= 7 else False
    left = [group._replace(topics=_topics(version, group)) for group in groups]
    if version < 9:
        left = [group._replace(member_id=None, member_epoch=-1) for group in left]
    return OffsetFetchRequest(left, stable)


def _topics(version: int, group: GroupToFetch) -> list[TopicToFetch] | None:
    if group.topics is None:
        return None if version >= 2 else []
    if version >= 10:
        return [topic._replace(name="") for topic in group.topics]
    return [topic._replace(topic_id=ZERO_UUID) for topic in group.topics]


def by_kio(version: int, request: OffsetFetchRequest) -> tuple[bytes, int]:
    groups: list[dict[str, Any]] = [
        {"group_id": group.group_id, "member_id": group.member_id, "member_epoch": group.member_epoch,
         "topics": None if group.topics is None else [topic._asdict() for topic in group.topics]}
        for group in request.groups
    ]  # fmt: skip
    if version == 1:
        groups[0]["topics"] = groups[0]["topics"] or []
    values = {"groups": groups, "require_stable": request.require_stable} | (groups[0] if version < 8 else {})
    frame = messages.encode_request(ApiKey.OFFSET_FETCH, version, 7, "c", values)
    return frame, messages.read_header(frame).body_offset


@given(VERSIONS, REQUESTS)
def test_requests_decode_as_kio_wrote_them(version: int, request: OffsetFetchRequest) -> None:
    frame, body = by_kio(version, request)
    assert decode_offset_fetch(version, memoryview(frame), body) == seen_in(version, request)


@given(VERSIONS, REQUESTS, st.data())
def test_torn_and_changed_requests_are_malformed_or_other_requests(
    version: int, request: OffsetFetchRequest, data: st.DataObject
) -> None:
    frame, body = by_kio(version, request)
    cut = data.draw(st.integers(body, len(frame) - 1))
    with pytest.raises(MalformedRequest):
        decode_offset_fetch(version, frame[:cut], body)
    changed = bytearray(frame)
    changed[data.draw(st.integers(body, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_offset_fetch(version, changed, body)
    except MalformedRequest:
        pass


def test_no_length_is_believed() -> None:
    with pytest.raises(MalformedRequest):
        decode_offset_fetch(1, b"\0\1g\x7f\xff\xff\xff", 0)
    topic = TopicToFetch("t", ZERO_UUID, (0,) * 50_000)
    frame, body = by_kio(5, OffsetFetchRequest([GroupToFetch("g", [topic] * 5)], False))
    with pytest.raises(MalformedRequest):
        decode_offset_fetch(5, frame, body)
