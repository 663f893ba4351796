"""The hand-written decoders of group requests against kio, in every version; torn, changed and hostile requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol import messages
from ottla.protocol.group_requests import decode_heartbeat, decode_join, decode_offset_fetch, decode_sync
from ottla.protocol.messages import ApiKey, MalformedRequest

Case = tuple[ApiKey, Callable[[int, Any, int], Any], int, dict[str, Any]]
"""An API, its decoder, a version and the values of a request."""

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=150)
INT32 = st.integers(-(2**31), 2**31 - 1)
MILLIS = st.integers(0, 2**31 - 1)
DATA = st.binary(max_size=200)
MEMBER = {"group_id": TEXT, "generation_id": INT32, "member_id": TEXT, "group_instance_id": st.none() | TEXT}
JOIN = st.fixed_dictionaries({
    "group_id": TEXT, "session_timeout": MILLIS, "rebalance_timeout": MILLIS, "member_id": TEXT,
    "group_instance_id": st.none() | TEXT, "protocol_type": TEXT, "reason": st.none() | TEXT,
    "protocols": st.lists(st.fixed_dictionaries({"name": TEXT, "metadata": DATA}), max_size=3),
})  # fmt: skip
SYNC = st.fixed_dictionaries(MEMBER | {
    "protocol_type": st.none() | TEXT, "protocol_name": st.none() | TEXT,
    "assignments": st.lists(st.fixed_dictionaries({"member_id": TEXT, "assignment": DATA}), max_size=3),
})  # fmt: skip
TOPICS = st.lists(
    st.fixed_dictionaries({"name": TEXT, "topic_id": st.uuids(), "partition_indexes": st.lists(INT32, max_size=200)}),
    max_size=3,
)
ASKED = {"group_id": TEXT, "member_id": st.none() | TEXT, "member_epoch": INT32}


def cases(api: ApiKey, decode: Any, first: int, last: int, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Case]:
    return st.tuples(st.just(api), st.just(decode), st.integers(first, last), values)


CASES = (
    cases(ApiKey.JOIN_GROUP, decode_join, 0, 9, JOIN)
    | cases(ApiKey.SYNC_GROUP, decode_sync, 0, 5, SYNC)
    | cases(ApiKey.HEARTBEAT, decode_heartbeat, 0, 4, st.fixed_dictionaries(MEMBER))
    | cases(ApiKey.OFFSET_FETCH, decode_offset_fetch, 1, 1, st.fixed_dictionaries(ASKED | {"topics": TOPICS}))
    | cases(
        ApiKey.OFFSET_FETCH, decode_offset_fetch, 2, 7,
        st.fixed_dictionaries(ASKED | {"topics": st.none() | TOPICS, "require_stable": st.booleans()}),
    )
    | cases(
        ApiKey.OFFSET_FETCH, decode_offset_fetch, 8, 10,
        st.fixed_dictionaries({
            "groups": st.lists(st.fixed_dictionaries(ASKED | {"topics": st.none() | TOPICS}), max_size=3),
            "require_stable": st.booleans(),
        }),
    )
)  # fmt: skip


def frame_of(case: Case) -> tuple[bytes, int]:
    api, _, version, values = case
    frame = messages.encode_request(api, version, 7, "c", values)
    return frame, messages.read_header(frame).body_offset


def as_decoded(entity: Any) -> dict[str, Any]:
    """A decoded request, by kio or by hand, in one form."""
    names: Iterable[str] = getattr(entity, "_fields", None) or entity.__dataclass_fields__
    plain = {name: getattr(entity, name) for name in names}
    for name in ("session_timeout", "rebalance_timeout"):
        if name in plain:
            plain[f"{name}_ms"] = messages.millis(plain.pop(name))
    for name, key, value in (("protocols", "name", "metadata"), ("assignments", "member_id", "assignment")):
        if name in plain and not isinstance(plain[name], dict):
            plain[name] = {getattr(each, key): getattr(each, value) for each in plain[name]}
    for name in ("groups", "topics"):
        if plain.get(name) is not None:
            plain[name] = [as_decoded(each) for each in plain[name]]
    if "partition_indexes" in plain:
        plain["partition_indexes"] = [*plain["partition_indexes"]]
    return plain


@given(CASES)
def test_requests_decode_as_by_kio(case: Case) -> None:
    api, decode, version, _ = case
    frame, body = frame_of(case)
    ours = as_decoded(decode(version, memoryview(frame), body))
    theirs = as_decoded(messages.decode_request(api, version, frame, body))
    if api is ApiKey.OFFSET_FETCH and version < 8:
        (group,) = ours.pop("groups")
        ours |= group
    _assert_same(theirs, ours)


def _assert_same(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    for name in ours.keys() & theirs.keys():
        if name in ("groups", "topics") and theirs[name] is not None:
            for their, our in zip(theirs[name], ours[name], strict=True):
                _assert_same(their, our)
        else:
            assert ours[name] == theirs[name], name


def test_what_a_version_does_not_have_is_filled_in() -> None:
    def decoded(api: ApiKey, decode: Any, version: int, values: dict[str, Any]) -> Any:
        frame, body = frame_of((api, decode, version, values))
        return decode(version, frame, body)

    join = {"group_id": "g", "session_timeout": 7, "member_id": "", "protocol_type": "consumer", "protocols": ()}
    assert decoded(ApiKey.JOIN_GROUP, decode_join, 0, join) == ("g", 7, 7, "", None, "consumer", {})
    sync = {"group_id": "g", "generation_id": 3, "member_id": "m", "assignments": ()}
    assert decoded(ApiKey.SYNC_GROUP, decode_sync, 2, sync) == ("g", 3, "m", None, None, None, {})
    everything = decoded(ApiKey.OFFSET_FETCH, decode_offset_fetch, 2, {"group_id": "g", "topics": None})
    assert everything == ([("g", None)], False)


@given(CASES, st.data())
def test_torn_and_changed_requests_are_malformed_or_other_requests(case: Case, data: st.DataObject) -> None:
    _, decode, version, _ = case
    frame, body = frame_of(case)
    if body == len(frame):
        return
    cut = data.draw(st.integers(body, len(frame) - 1))
    with pytest.raises(MalformedRequest):
        decode(version, frame[:cut], body)
    changed = bytearray(frame)
    changed[data.draw(st.integers(body, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode(version, changed, body)
    except MalformedRequest:
        pass


def test_no_length_is_believed() -> None:
    name = b"\0\1g"
    claims = name + b"\x7f\xff\xff\xff"
    for decode, body in ((decode_offset_fetch, claims), (decode_join, name + bytes(4) + name + name + claims[3:])):
        with pytest.raises(MalformedRequest):
            decode(1 if decode is decode_offset_fetch else 0, body, 0)
    many = [{"name": "t", "partition_indexes": [0] * 50_000}] * 5
    frame, body_offset = frame_of((ApiKey.OFFSET_FETCH, None, 5, {"group_id": "g", "topics": many}))  # type: ignore[arg-type]
    with pytest.raises(MalformedRequest):
        decode_offset_fetch(5, frame, body_offset)
