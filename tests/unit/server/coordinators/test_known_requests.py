"""Requests of members that repeat, and those that look like it: only a number may differ."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.server.api import RequestContext
from ottla.server.coordinators.known_requests import KNOWN_MAX, DeferredShortcut, Known, KnownRequests, behind_strings
from ottla.server.handlers.groups import join_group, sync_group
from ottla.server.node import Node
from tests.unit.server.coordinators.test_repeated_commits import play
from tests.unit.server.node import Client

BEAT = {"group_id": "g", "generation_id": 7, "member_id": "m"}
EPOCH = {
    "group_id": "g" * 200, "member_id": "m", "member_epoch": 7, "instance_id": None, "rack_id": None,
    "rebalance_timeout": -1, "subscribed_topic_names": None, "server_assignor": None, "topic_partitions": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("api", "version", "values", "strings"),
    [
        (ApiKey.HEARTBEAT, 3, BEAT, 1),
        (ApiKey.HEARTBEAT, 4, BEAT, 1),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, EPOCH, 2),
    ],
)
def test_a_frame_that_differs_in_any_other_byte_is_not_known(
    api: ApiKey, version: int, values: dict[str, Any], strings: int
) -> None:
    frame = messages.encode_request(api, version, 5, "client", values)
    place = behind_strings(frame, api, version, strings)
    requests = KnownRequests()
    requests.learn(memoryview(frame), Known(place))
    assert frame[place : place + 4] == b"\0\0\0\7"
    for at in range(4, len(frame)):
        changed = bytearray(frame)
        changed[at] ^= 1
        found = requests.find(memoryview(changed))
        assert (found is not None) == (at < 8 or place <= at < place + 4), at
    known = requests.find(memoryview(frame[:place] + b"\0\0\1\0" + frame[place + 4 :]))
    assert known is not None and known.number == 256
    for size in range(8, len(frame)):
        assert requests.find(memoryview(frame[:size])) is None
    assert requests.find(memoryview(frame + b"\0")) is None


def test_places_of_frames_of_one_size_do_not_meet() -> None:
    """Ids of another length move the number; what was learned of one place says nothing of another."""
    requests = KnownRequests()
    one = messages.encode_request(ApiKey.HEARTBEAT, 3, 1, "c", {**BEAT, "group_id": "aa", "member_id": "b"})
    two = messages.encode_request(ApiKey.HEARTBEAT, 3, 1, "c", {**BEAT, "group_id": "a", "member_id": "bb"})
    assert len(one) == len(two)
    for frame in (one, two):
        requests.learn(memoryview(frame), Known(behind_strings(frame, ApiKey.HEARTBEAT, 3, 1)))
    assert requests.find(memoryview(two)) is not None
    assert requests.find(memoryview(one)) is None, "one of them is decoded each time"


def test_a_frame_that_comes_again_has_its_own_number() -> None:
    """The last frame is found by a look at its bytes, others by a key."""
    requests = KnownRequests()
    frames = [
        messages.encode_request(ApiKey.HEARTBEAT, 3, 1, "c", {**BEAT, "member_id": member, "generation_id": number})
        for member in ("b", "cc")
        for number in (7, -1, 1 << 30)
    ]
    for frame in (frames[0], frames[3]):
        requests.learn(memoryview(frame), Known(behind_strings(frame, ApiKey.HEARTBEAT, 3, 1)))
    whose = [requests.find(memoryview(frames[0])), requests.find(memoryview(frames[3]))]
    for index in (0, 0, 1, 0, 3, 1, 1, 4, 5, 5, 2, 3, 0):
        found = requests.find(memoryview(frames[index]))
        assert found is not None and found is whose[index // 3]
        assert found.number == (7, -1, 1 << 30)[index % 3]
    for number in range(KNOWN_MAX):
        requests.learn(memoryview(b"%016d" % number), Known(16))
    assert requests.find(memoryview(frames[0])) is None, "what is forgotten is not found by its bytes either"


def test_many_requests_do_not_grow_what_is_kept() -> None:
    requests = KnownRequests()
    for number in range(3 * KNOWN_MAX):
        requests.learn(memoryview(b"%016d" % number), Known(16))
        assert 0 < len(requests) <= KNOWN_MAX


def test_what_is_learned_is_looked_at_when_another_frame_comes() -> None:
    """Each of several members of a connection is known, though none was asked for before the next was learned."""
    made: list[bytes] = []

    def know(context: Any, request: str, frame: memoryview) -> Known:
        made.append(bytes(frame))
        return Known(len(frame), request)

    def ask(context: RequestContext, known: Known) -> Any:
        return context.correlation_id, context.client_id, known.asked

    nothing: Any = None
    shortcut = DeferredShortcut(nothing, know, ask)
    shared = bytearray(16)
    for name in (b"a", b"b", b"c"):
        shared[:] = b"%16s" % name
        shortcut.learn(RequestContext(nothing, 0, 0, client_id=name.decode()), memoryview(shared), name.decode())
        shared[:] = bytes(16)  # the receive buffer has other frames then
    assert len(made) == 2
    for name in (b"c", b"a", b"b", b"a"):
        found = shortcut(memoryview(b"%16s" % name), 7)
        assert found is not None and found[1] == (7, name.decode(), name.decode())  # type: ignore[comparison-overlap]
    assert shortcut(memoryview(bytes(16)), 7) is None and len(made) == 3


@pytest.fixture
def taken(monkeypatch: Any) -> list[ApiKey]:
    """The APIs of the requests that a shortcut has answered, in their order."""
    found: list[ApiKey] = []

    def counted(context: RequestContext, known: Known, ask: Any) -> Any:
        found.append(ApiKey(context.api_key))
        return ask(context, known)

    for module in (join_group, sync_group):
        monkeypatch.setattr(module, "_ask_again", partial(counted, ask=module._ask_again))
    return found


@pytest.mark.parametrize(("join_version", "sync_version"), [(3, 1), (5, 3), (9, 5)])
def test_a_member_joins_and_wants_part_again_as_before(
    tmp_path: Path, taken: list[ApiKey], join_version: int, sync_version: int
) -> None:
    joins = {
        "group_id": "g",
        "session_timeout": 6000,
        "rebalance_timeout": 6000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"x"}],
    }
    wants_part: dict[str, Any] = {"group_id": "g", "assignments": []}
    if sync_version >= 5:
        wants_part |= {"protocol_type": "consumer", "protocol_name": "range"}

    async def scene(node: Node, client: Client) -> None:
        first = await client.ask(ApiKey.JOIN_GROUP, join_version, joins)
        again = {**joins, "member_id": first["member_id"]}
        answers = []
        for generation in range(1, 6):
            if first["error_code"] == ErrorCode.none and generation == 1:
                joined = first
            else:
                joined = await client.ask(ApiKey.JOIN_GROUP, join_version, again)
            assert joined["generation_id"] == generation
            values = {**wants_part, "generation_id": generation, "member_id": first["member_id"]}
            answers.append((joined | {"generation_id": 0}, await client.ask(ApiKey.SYNC_GROUP, sync_version, values)))
        assert answers[1:] == answers[:1] * 4
        assert taken.count(ApiKey.SYNC_GROUP) == 4 and taken.count(ApiKey.JOIN_GROUP) >= 3
        wrong = {**wants_part, "generation_id": 4, "member_id": first["member_id"]}
        refused = await client.ask(ApiKey.SYNC_GROUP, sync_version, wrong)
        assert refused["error_code"] == ErrorCode.illegal_generation and taken[-1] == ApiKey.SYNC_GROUP
        for shard in node.groups._by_number.values():
            shard.error = ErrorCode.not_coordinator
        for api, version, asked in (
            (ApiKey.JOIN_GROUP, join_version, again),
            (ApiKey.SYNC_GROUP, sync_version, wrong),
        ):
            assert (await client.ask(api, version, asked))["error_code"] == ErrorCode.not_coordinator
        assert taken[-2:] == [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP]

    play(tmp_path, scene)
