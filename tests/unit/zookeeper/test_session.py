"""The session alone: bytes and ticks in, effects out. What the simulation reaches only by chance, or says only late."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ottla.zookeeper.client import parse_connect
from ottla.zookeeper.errors import Code, SessionClosedError, SessionExpiredError, ZooKeeperError
from ottla.zookeeper.jute import JuteReader, JuteWriter
from ottla.zookeeper.messages import (
    AddWatch,
    AddWatchMode,
    Create,
    EventType,
    Exists,
    GetChildren,
    GetData,
    Op,
    SetData,
    Stat,
    frame,
    write_stat,
)
from ottla.zookeeper.session import (
    Answered,
    Connect,
    Disconnect,
    Effect,
    Failed,
    Host,
    Notified,
    Phase,
    Send,
    Session,
    StateChanged,
)
from ottla.zookeeper.watches import Kind, State, WatchedEvent, Watches

HOSTS = [Host("a", 1), Host("b", 2), Host("c", 3)]
STAT = Stat(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)


def session(**settings: Any) -> Session:
    return Session(HOSTS, random=Random(1), session_timeout_ms=9000, **settings)


def welcome(timeout_ms: int = 9000, session_id: int = 77, password: bytes = b"p" * 16) -> bytes:
    writer = JuteWriter()
    writer.i32(0)
    writer.i32(timeout_ms)
    writer.i64(session_id)
    writer.buffer(password)
    writer.flag(False)
    return frame(bytes(writer.data))


def answer(xid: int, body: bytes = b"", *, zxid: int = 5, code: int = 0) -> bytes:
    writer = JuteWriter()
    writer.i32(xid)
    writer.i64(zxid)
    writer.i32(code)
    return frame(bytes(writer.data) + body)


def event(kind: int, path: str) -> bytes:
    writer = JuteWriter()
    writer.i32(kind)
    writer.i32(3)
    writer.string(path)
    return answer(-1, bytes(writer.data), zxid=-1)


def stat() -> bytes:
    writer = JuteWriter()
    write_stat(writer, STAT)
    return bytes(writer.data)


def data(value: bytes) -> bytes:
    writer = JuteWriter()
    writer.buffer(value)
    return bytes(writer.data) + stat()


def connected(found: Session, now_ms: int = 0, **how: Any) -> list[Effect]:
    if found.phase is Phase.IDLE:
        found.start(now_ms)
    found.connected(now_ms)
    return found.received(welcome(**how), now_ms)


def sent(effects: list[Effect]) -> list[tuple[int, int]]:
    """xid and operation of each request."""
    readers = [JuteReader(each.data[4:]) for each in effects if isinstance(each, Send)]
    return [(each.i32(), each.i32()) for each in readers]


def ask(found: Session, request: Any, handle: object, now_ms: int = 0, watcher: Any = None) -> list[Effect]:
    return found.submit(found.prepare(request, watcher), handle, now_ms)


def test_a_ping_after_a_third_and_the_end_after_two_thirds() -> None:
    found = session()
    assert isinstance(found.start(0)[0], Connect)
    connected(found)
    assert found.next_tick_ms() == 3000 and found.tick(2999) == []
    assert sent(found.tick(3000)) == [(-2, Op.PING)]
    found.received(answer(-2), 3001)
    assert sent(found.tick(6000)) == [(-2, Op.PING)] and found.next_tick_ms() == 9000
    effects = found.tick(9001)
    assert [type(each) for each in effects] == [Disconnect, StateChanged] and found.state is State.CONNECTING
    assert found.next_tick_ms() == 9001 and isinstance(found.tick(9001)[0], Connect)


def test_the_negotiated_timeout_counts() -> None:
    found = session()
    connected(found, timeout_ms=3000)
    assert found.next_tick_ms() == 1000


def test_a_server_that_does_not_answer_is_left() -> None:
    found = session()
    first = found.start(0)[0]
    assert found.next_tick_ms() == 3000  # its share of the timeout
    assert isinstance(found.tick(3000)[0], Disconnect)
    second = found.tick(3000)[0]
    assert isinstance(first, Connect) and isinstance(second, Connect) and first.host != second.host
    found.connected(3100)
    assert isinstance(found.tick(6000)[0], Disconnect), "one that accepts and is silent, too"


def test_pauses_when_no_server_is_of_use() -> None:
    found, now_ms, pauses = session(), 0, []
    found.start(now_ms)
    for _ in range(18):
        found.disconnected("refused", now_ms)
        due_ms = found.next_tick_ms()
        assert due_ms is not None
        pauses.append(due_ms - now_ms)
        now_ms = due_ms
        found.tick(now_ms)
    assert pauses[:2] == [0, 0] and all(50 <= each <= 100 for each in pauses[2:5])
    assert all(500 <= each <= 1000 for each in pauses[-3:])


def test_a_session_goes_on_with_its_id_password_and_zxid_and_its_watches_first() -> None:
    found = session(chroot="/chroot", auth=(("digest", b"u:p"),))
    effects = connected(found)
    assert sent(effects)[-1] == (-4, Op.AUTH)
    told: list[WatchedEvent] = []
    ask(found, GetData("/a", True), "h", watcher=told.append)
    assert found.received(answer(-4, zxid=0) + answer(1, data(b"x"), zxid=42), 1) == [Answered("h", (b"x", STAT))]
    lost = found.disconnected("reset", 2)
    assert lost == [StateChanged(State.CONNECTING)]
    assert ask(found, Exists("/b"), "later", 2) == [], "it waits for a connection"
    found.tick(2)
    (hello,) = found.connected(3)
    assert isinstance(hello, Send)
    reader = JuteReader(hello.data[4:])
    assert (reader.i32(), reader.i64(), reader.i32(), reader.i64(), reader.buffer()) == (0, 42, 9000, 77, b"p" * 16)
    effects = found.received(welcome(), 4)
    assert sent(effects) == [(-4, Op.AUTH), (-8, Op.SET_WATCHES2), (2, Op.EXISTS)]
    again = effects[1]
    assert isinstance(again, Send)
    reader = JuteReader(again.data[12:])
    assert reader.i64() == 42 and [reader.vector(reader.string, 4) for _ in range(5)] == [["/chroot/a"], [], [], [], []]
    (notified,) = found.received(event(EventType.NODE_DATA_CHANGED, "/chroot/a"), 5)
    expected = WatchedEvent(EventType.NODE_DATA_CHANGED, "/a", State.CONNECTED)
    assert isinstance(notified, Notified) and notified.event == expected and list(notified.watchers) == [told.append]


@pytest.mark.parametrize(
    ("request_", "maybe"), [(SetData("/a", b""), True), (Create("/a"), True), (Exists("/a"), False)]
)
def test_what_was_sent_and_lost_is_unknown(request_: Any, maybe: bool) -> None:
    found = session()
    ask(found, request_, "early")
    connected(found)
    effects = found.disconnected("reset", 1)
    (failed,) = (each for each in effects if isinstance(each, Failed))
    assert failed.error.code is Code.CONNECTION_LOSS and failed.error.maybe_applied is maybe
    found.tick(1)
    assert sent(connected(found, 2)) == [], "nothing is sent twice"


def test_an_expired_session_says_so_to_all_and_is_over() -> None:
    found = session()
    connected(found)
    ask(found, Exists("/a", True), "h", watcher=print)
    found.received(answer(1, code=Code.NO_NODE), 1)
    found.disconnected("reset", 2)
    ask(found, Exists("/b"), "waiting", 2)
    found.tick(2)
    found.connected(3)
    effects = found.received(welcome(timeout_ms=0, session_id=0), 4)
    kinds = [type(each) for each in effects]
    assert kinds == [Disconnect, Failed, Notified, StateChanged]
    assert effects[2] == Notified(WatchedEvent(EventType.NONE, "", State.EXPIRED), [print])
    with pytest.raises(SessionExpiredError):
        ask(found, Exists("/a"), "late", 5)
    assert found.next_tick_ms() is None and found.tick(10**9) == [] and found.received(welcome(), 6) == []


def test_a_session_with_another_id_is_not_this_one() -> None:
    found = session()
    connected(found)
    found.disconnected("reset", 1)
    found.tick(1)
    found.connected(2)
    found.received(welcome(session_id=78), 3)
    assert found.state is State.EXPIRED


def test_credentials_that_are_refused_end_it() -> None:
    found = session(auth=(("digest", b"x"),))
    ask(found, Exists("/a"), "h")
    connected(found)
    effects = found.received(answer(-4, code=Code.AUTH_FAILED), 1)
    assert found.state is State.AUTH_FAILED and effects[-1] == StateChanged(State.AUTH_FAILED)
    with pytest.raises(ZooKeeperError, match="AUTH_FAILED"):
        found.raise_if_ended()


def test_closing_waits_for_the_answers_before_it() -> None:
    found = session()
    connected(found)
    ask(found, Exists("/a"), "h")
    assert sent(found.close(1)) == [(2, Op.CLOSE_SESSION)]
    with pytest.raises(SessionClosedError):
        ask(found, Exists("/b"), "late", 1)
    assert found.received(answer(1, stat()), 2) == [Answered("h", STAT)]
    assert found.received(answer(2), 3)[-1] == StateChanged(State.CLOSED)


def test_an_abandoned_request_keeps_its_place() -> None:
    found = session()
    ask(found, SetData("/a", b"1"), "unsent")
    assert found.abandon("unsent") is False, "it was not sent, and never will be"
    connected(found)
    ask(found, SetData("/a", b"2"), "gone")
    ask(found, Exists("/a"), "kept")
    assert found.abandon("gone") is True
    assert found.received(answer(1, stat()) + answer(2, stat()), 1) == [Answered("kept", STAT)]


def test_requests_and_their_bytes_are_bounded() -> None:
    found = session(requests_max=3)
    small = found.prepare(Exists("/a"))
    for number in range(3):
        assert found.has_room(small)
        found.submit(small, number, 0)
    assert not found.has_room(small)
    connected(found)
    found.received(answer(1, stat()), 1)
    assert found.has_room(small)
    many = session()
    large = many.prepare(SetData("/a", bytes(1_000_000)))
    count = 0
    while many.has_room(large):
        many.submit(large, f"{count}", 0)
        count += 1
    assert 10 < count < 20
    with pytest.raises(ZooKeeperError, match=r"jute.maxbuffer is 1048575"):
        many.prepare(SetData("/a", bytes(1_048_576)))


def test_many_watches_are_set_again_in_several_requests() -> None:
    watches = Watches()
    paths = [f"/{number:05}{'x' * 200}" for number in range(2000)]
    for path in paths:
        watches.answered(GetChildren(path, True), 0, print)
    batches = list(watches.batches())
    assert len(batches) == 4 and [path for batch in batches for path in batch[Kind.CHILD]] == paths


def test_which_watchers_an_event_is_for() -> None:
    def of(name: str) -> Any:
        return watchers.setdefault(name, lambda event: None)

    watchers: dict[str, Any] = {}
    watches = Watches()
    watches.answered(GetData("/a", True), 0, of("data"))
    watches.answered(GetChildren("/a", True), 0, of("children"))
    watches.answered(Exists("/b", True), Code.NO_NODE, of("missing"))
    watches.answered(GetData("/none", True), Code.NO_NODE, of("unset"))
    watches.answered(AddWatch("/a"), 0, of("persistent"))
    watches.answered(AddWatch("/", AddWatchMode.PERSISTENT_RECURSIVE), 0, of("recursive"))

    def told(kind: EventType, path: str) -> list[str]:
        taken = watches.take(kind, path)
        return [name for name, each in watchers.items() if each in taken]

    assert told(EventType.NODE_CHILDREN_CHANGED, "/a") == ["children", "persistent"]
    assert told(EventType.NODE_CREATED, "/b") == ["missing", "recursive"]
    assert told(EventType.NODE_DELETED, "/a") == ["data", "persistent", "recursive"]
    assert told(EventType.NODE_DATA_CHANGED, "/a") == ["persistent", "recursive"]
    assert told(EventType.NODE_CREATED, "/none") == ["recursive"]
    assert told(EventType.NODE_DATA_CHANGED, "/x/y/z") == ["recursive"]


@pytest.mark.parametrize("path", ["a", "", "/a/", "//", "/a//b", "/a/../b", "/.", "/a\x00", "/a\ud800", "/\ufff5"])
def test_paths_that_no_server_takes(path: str) -> None:
    with pytest.raises(ZooKeeperError, match="BAD_ARGUMENTS"):
        session().prepare(GetData(path))


@pytest.mark.parametrize(
    ("text", "hosts", "chroot"),
    [
        ("zk", [("zk", 2181)], ""),
        ("zk1:2182, zk2/kafka/a", [("zk1", 2182), ("zk2", 2181)], "/kafka/a"),
        ("[::1]:7,[::2]/", [("::1", 7), ("::2", 2181)], ""),
    ],
)
def test_where_to_connect(text: str, hosts: list[tuple[str, int]], chroot: str) -> None:
    assert parse_connect(text) == (hosts, chroot)


@pytest.mark.parametrize("text", ["", "/a", ":1", "zk:x", "zk:0", "zk:70000", "zk/a/", "zk//a"])
def test_where_nobody_can_connect(text: str) -> None:
    with pytest.raises(ValueError, match=r"ZooKeeper|chroot"):
        parse_connect(text)
