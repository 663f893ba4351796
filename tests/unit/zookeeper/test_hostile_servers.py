"""Bytes of a broken or hostile server: the connection is given up with a clear reason, or more bytes are waited for.

Nothing else is raised, nobody waits for ever, and no more is kept than a frame and what arrived in one piece.
"""

from __future__ import annotations

from random import Random

import pytest

from ottla.zookeeper.errors import Code, ConnectionLossError, ZooKeeperError, code_of
from ottla.zookeeper.jute import JuteWriter
from ottla.zookeeper.messages import Create, GetACL, GetChildren, GetData, Multi, Op, SetData
from ottla.zookeeper.session import Answered, Disconnect, Failed, Phase, Session
from tests.unit.zookeeper.test_session import answer, ask, connected, data, event, session, stat, welcome

EXTREMES = (-(1 << 31), -1, 0, 0x100000, 0x7FFFFFFF)


def multi_body() -> bytes:
    writer = JuteWriter()
    writer.i32(Op.CREATE2)
    writer.flag(False)
    writer.i32(0)
    writer.string("/m")
    writer.data += stat()
    writer.i32(Op.SET_DATA)
    writer.flag(False)
    writer.i32(0)
    writer.data += stat()
    writer.i32(-1)
    writer.flag(True)
    writer.i32(-1)
    return bytes(writer.data)


def children_body() -> bytes:
    writer = JuteWriter()
    writer.strings(["a", "b"])
    return bytes(writer.data) + stat()


def acl_body() -> bytes:
    writer = JuteWriter()
    writer.i32(1)
    writer.i32(31)
    writer.string("world")
    writer.string("anyone")
    return bytes(writer.data) + stat()


STREAM = b"".join(
    [
        answer(1, data(b"value")), event(3, "/a"), answer(2, children_body()), answer(-2), answer(3, acl_body()),
        answer(4, multi_body()), answer(5, code=-101),
    ]
)  # fmt: skip
"""What a sane server says to the requests of `waiting`."""


def waiting() -> Session:
    found = session()
    connected(found)
    ask(found, GetData("/a", True), 1, watcher=lambda event: None)
    ask(found, GetChildren("/a"), 2)
    ask(found, GetACL("/a"), 3)
    ask(found, Multi.of([Create("/m"), SetData("/n", b"")]), 4)
    ask(found, SetData("/b", b""), 5)
    return found


def outcomes(found: Session, stream: bytes, piece: int = 1 << 20) -> tuple[dict[object, object], str]:
    """How each request ended, and why the connection did, if it did. Silence afterwards ends it in any case."""
    ended: dict[object, object] = {}
    effects = []
    for start in range(0, len(stream), piece):
        effects += found.received(stream[start : start + piece], 1)
        assert len(found._buffer) <= len(stream)
    effects += found.tick(10**7)
    reason = ""
    for each in effects:
        if isinstance(each, Answered):
            ended[each.handle] = each.result
        elif isinstance(each, Failed):
            ended[each.handle] = each.error
        elif isinstance(each, Disconnect):
            reason = each.reason
    return ended, reason


def test_the_stream_itself_whole_and_byte_by_byte() -> None:
    whole, reason = outcomes(waiting(), STREAM)
    assert [type(each).__name__ for each in whole.values()] == ["Data", "Children", "Acls", "list", "NoNodeError"]
    by_bytes, _ = outcomes(waiting(), STREAM, 1)
    assert str(by_bytes) == str(whole) and reason.startswith("nothing heard")


def test_every_end_fails_what_was_not_answered() -> None:
    for end in range(len(STREAM)):
        ended, reason = outcomes(waiting(), STREAM[:end])
        assert len(ended) == 5 and reason
        errors = [each for each in ended.values() if isinstance(each, ConnectionLossError)]
        assert errors, end
        assert all(each.maybe_applied == (each.path in ("", "/b")) for each in errors)


def test_every_number_replaced_by_extremes() -> None:
    """Lengths, counts, xids, codes and types: wherever four bytes may be one of them."""
    reasons = set()
    for position in range(len(STREAM) - 3):
        for value in EXTREMES:
            stream = STREAM[:position] + value.to_bytes(4, "big", signed=True) + STREAM[position + 4 :]
            ended, reason = outcomes(waiting(), stream)
            assert len(ended) == 5 and reason, (position, value)
            reasons.add(" ".join(reason.split()[:4]))
    assert {"not understood: a frame", "not understood: a list", "not understood: an answer"} <= {
        " ".join(each.split()[:4]) for each in reasons
    }


@pytest.mark.parametrize("seed", range(8))
def test_noise(seed: int) -> None:
    random = Random(seed)
    for _ in range(30):
        stream = bytearray(STREAM)
        for _ in range(random.randint(1, 6)):
            at = random.randrange(len(stream))
            action = random.randrange(3)
            if action == 0:
                stream[at] = random.randrange(256)
            elif action == 1:
                del stream[at : at + random.randint(1, 20)]
            else:
                stream[at:at] = random.randbytes(random.randint(1, 20))
        ended, reason = outcomes(waiting(), bytes(stream), random.choice((1, 7, 1000)))
        assert len(ended) == 5 and reason


def test_noise_instead_of_a_welcome() -> None:
    for end in range(len(welcome())):
        found = session()
        found.start(0)
        found.connected(0)
        found.received(welcome()[:end], 1)
        assert found.phase is Phase.HANDSHAKE and isinstance(found.tick(10**6)[0], Disconnect)
    for stream in (b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x16\x03\x03\x00\x05hello", b"\0\0\0\0", b"\0\0\0\x04abcd"):
        found = session()
        found.start(0)
        found.connected(0)
        (dropped,) = found.received(stream, 1)
        assert isinstance(dropped, Disconnect) and dropped.reason.startswith("not understood")
        assert found.next_tick_ms() is not None, "it goes on to another server"


def test_a_frame_that_is_too_large_is_not_collected() -> None:
    found = waiting()
    effects = found.received((0x100000).to_bytes(4, "big") + bytes(1000), 1)
    assert "at most 1048575 are allowed" in effects[0].reason  # type: ignore[union-attr]
    assert len(found._buffer) == 0


def test_codes_that_nobody_knows() -> None:
    found = waiting()
    (failed,) = found.received(answer(1, code=-4711), 1)
    assert isinstance(failed, Failed) and failed.error.code == -4711
    assert str(failed.error) == "error code -4711 for /a" and type(failed.error) is ZooKeeperError
    assert found.phase is Phase.CONNECTED
    assert code_of(-101) is Code.NO_NODE


def test_a_server_that_greets_and_fails_is_not_asked_without_a_pause() -> None:
    found, now_ms = session(), 0
    found.start(now_ms)
    for _ in range(12):
        found.connected(now_ms)
        found.received(welcome() + b"\xff\xff\xff\xff", now_ms)
        due_ms = found.next_tick_ms()
        assert due_ms is not None
        now_ms = due_ms
        found.tick(now_ms)
    assert now_ms > 300
