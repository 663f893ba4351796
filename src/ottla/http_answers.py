"""Answers over HTTP that have a limit of time and of size, whatever the server sends.

A socket's timeout counts from one byte to the next, so a server that sends a byte every few seconds holds a client for
ever. Here each read and write has what is left of the time for the whole: connection, request, headers and body.
Only the look-up of a name is the system's, with its own timeout.
"""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Mapping
from http.client import HTTPConnection
from typing import Any, Final, NamedTuple

PIECE_BYTES: Final = 65_536


class TooLong(ValueError):
    """The answer has more bytes than the client takes."""


class Answer(NamedTuple):
    status: int
    body: bytes


class Limits(NamedTuple):
    whole_s: float
    """For the connection, the request and all of the answer."""
    bytes_max: int
    """For the body."""
    piece_s: float | None = None
    """For the next bytes of the answer, where that is less."""


class Deadline:
    """What is left of the time for a request."""

    def __init__(self, whole_s: float) -> None:
        self._whole_s, self._ends_s = whole_s, time.monotonic() + whole_s

    def left_s(self, at_most_s: float | None = None) -> float:
        """The timeout of the next step. Raises TimeoutError when the time is over."""
        left_s = self._ends_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"no whole answer within {self._whole_s:g} s")
        return left_s if at_most_s is None else min(left_s, at_most_s)


class _Reader(io.RawIOBase):
    """An answer's bytes."""

    def __init__(self, sock: socket.socket, deadline: Deadline, piece_s: float | None) -> None:
        self._sock, self._deadline, self._piece_s = sock, deadline, piece_s
        self._raw = sock.makefile("rb", buffering=0)  # keeps the socket open until it is closed too

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._deadline.left_s(self._piece_s))
        try:
            return self._raw.readinto(buffer)
        except TimeoutError:
            self._deadline.left_s()
            raise

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Timed:
    """The part of a socket that `http.client` uses."""

    def __init__(self, sock: socket.socket, deadline: Deadline, piece_s: float | None) -> None:
        self._sock, self._deadline, self._piece_s = sock, deadline, piece_s

    def sendall(self, data: Any) -> None:
        self._sock.settimeout(self._deadline.left_s())
        self._sock.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._sock, self._deadline, self._piece_s))

    def close(self) -> None:
        self._sock.close()


def exchange(
    connection: HTTPConnection,
    method: str,
    path: str,
    limits: Limits,
    *,
    body: bytes | str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """One request on a connection that is not open yet, and is closed at the end. The connection's own timeout is for
    each address of the host. Raises OSError (TimeoutError), HTTPException, TooLong."""
    deadline = Deadline(limits.whole_s)
    try:
        connection.timeout = deadline.left_s(connection.timeout)
        connection.connect()
        connection.sock = _Timed(connection.sock, deadline, limits.piece_s)
        connection.request(method, path, body, dict(headers or {}))
        answer = connection.getresponse()
        data = bytearray()
        while piece := answer.read1(PIECE_BYTES):
            data += piece
            if len(data) > limits.bytes_max:
                raise TooLong(f"the answer has more than {limits.bytes_max} bytes")
        return Answer(answer.status, bytes(data))
    finally:
        connection.close()
