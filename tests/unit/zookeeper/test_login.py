"""A session that begins with a login: nothing is sent before it is done, at each connection again."""

from __future__ import annotations

import re

import pytest

from ottla.zookeeper.digest_md5 import DigestMd5
from ottla.zookeeper.errors import AuthFailedError
from ottla.zookeeper.jute import JuteReader, JuteWriter
from ottla.zookeeper.messages import GetData, Op
from ottla.zookeeper.session import (
    Answered,
    Connect,
    Disconnect,
    Effect,
    Failed,
    Login,
    Phase,
    Send,
    Session,
    StateChanged,
)
from ottla.zookeeper.watches import State
from tests.unit.zookeeper.test_session import answer, ask, connected, data, sent, session, welcome

LOGIN = Login("kafka", "secret")
CHALLENGE = b'realm="zk-sasl-md5",nonce="n0nce",qop="auth",charset=utf-8,algorithm=md5-sess'


def token(effects: list[Effect]) -> bytes:
    """What the one request of the login says."""
    (found,) = [each.data for each in effects if isinstance(each, Send)]
    reader = JuteReader(found[4:])
    assert (reader.i32() > 0, reader.i32()) == (True, Op.SASL)
    return reader.buffer() or b""


def said(xid: int, what: bytes | None) -> bytes:
    writer = JuteWriter()
    writer.buffer(what)
    return answer(xid, bytes(writer.data), zxid=0)


def proof(answered: bytes) -> bytes:
    """What a server that knows the password says to the client's answer."""
    found = re.search(rb'cnonce="([^"]*)"', answered)
    assert found is not None
    server = DigestMd5(LOGIN.name, LOGIN.password, found[1].decode())
    server.step(b"")
    server.step(CHALLENGE)
    assert server._expected is not None
    return b"rspauth=" + server._expected


def logged_in(found: Session, xid: int = 1) -> list[Effect]:
    """Begin a connection, with requests of the numbers from `xid` on."""
    assert token(connected(found)) == b"" and found.phase is Phase.LOGIN
    answered = token(found.received(said(xid, CHALLENGE), 0))
    return found.received(said(xid + 1, proof(answered)), 0)


def test_requests_and_watches_wait_for_the_login() -> None:
    found = session(login=LOGIN)
    assert token(connected(found)) == b"" and found.state is State.CONNECTING
    assert sent(ask(found, GetData("/a", watch=True), "first", watcher=print)) == []
    answered = token(found.received(said(1, CHALLENGE), 0))
    effects = found.received(said(2, proof(answered)), 0)
    assert StateChanged(State.CONNECTED) in effects and sent(effects) == [(3, Op.GET_DATA)]
    assert any(isinstance(each, Answered) for each in found.received(answer(3, data(b"x")), 0))
    found.disconnected("broken", 10)
    assert isinstance(found.tick(10)[0], Connect)
    assert sent(logged_in(found, 4)) == [(-8, Op.SET_WATCHES2)] and found.state is State.CONNECTED


def test_a_connection_that_breaks_in_the_login_is_one_of_no_use() -> None:
    found = session(login=LOGIN)
    connected(found)
    ask(found, GetData("/a"), "waits")
    assert found.disconnected("broken", 10) == [] and found.phase is Phase.WAITING
    assert isinstance(found.tick(10)[0], Connect)
    assert sent(logged_in(found, 2)) == [(4, Op.GET_DATA)]


def test_a_server_that_stops_in_the_login_is_left_in_time() -> None:
    found = session(login=LOGIN)
    connected(found)
    due = found.next_tick_ms()
    assert due == 3000 and isinstance(found.tick(due)[0], Disconnect) and found.phase is Phase.WAITING


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (answer(1, code=-115), "does not accept Login.'kafka'."),
        (said(1, b""), "knows no login by SASL"),
        (said(1, None), "knows no login by SASL"),
        (said(1, b"nonsense"), "cannot be read"),
    ],
)
def test_a_login_that_fails_ends_the_session(reply: bytes, why: str) -> None:
    found = session(login=LOGIN)
    connected(found)
    ask(found, GetData("/a"), "waits")
    effects = found.received(reply, 0)
    assert StateChanged(State.AUTH_FAILED) in effects and isinstance(effects[0], Disconnect)
    (failed,) = [each for each in effects if isinstance(each, Failed)]
    assert isinstance(failed.error, AuthFailedError)
    with pytest.raises(AuthFailedError, match=why):
        found.raise_if_ended()


@pytest.mark.parametrize("reply", [said(7, CHALLENGE), answer(-2), answer(1), b"\0\0\0\1x"])
def test_another_answer_than_that_to_the_login_is_not_understood(reply: bytes) -> None:
    found = session(login=LOGIN)
    connected(found)
    effects = found.received(reply, 0)
    assert isinstance(effects[0], Disconnect) and "not understood" in found.last_failure
    assert found.phase is Phase.WAITING


def test_a_session_may_be_closed_in_the_login() -> None:
    found = session(login=LOGIN)
    connected(found)
    assert StateChanged(State.CLOSED) in found.close(0) and found.phase is Phase.ENDED


def test_the_stream_of_a_login_may_be_cut_anywhere() -> None:
    """Bytes one by one have the same effects."""
    whole = session(login=LOGIN)
    whole.start(0)
    whole.connected(0)
    for each in welcome() + said(1, CHALLENGE):
        effects = whole.received(bytes((each,)), 0)
    assert token(effects).startswith(b"charset=utf-8,username=")
