"""Answers to httpx that have a limit of time and of size, as those of `ottla.http_answers` have.

httpx's timeouts count from one byte to the next. Its transports reach the network through a backend of httpcore, in
whose place here is one that gives each step what is left of the time for the whole request.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import httpcore
import httpx

from ottla.http_answers import Deadline, TooLong

WRITTEN_BYTES: Final = 16_384
"""How much of a request is written between two looks at the time."""

_DEADLINE: Final = ContextVar[Deadline | None]("deadline", default=None)


def bounded(client: httpx.Client) -> httpx.Client:
    """The same client, for `ask`. httpx has no public way to a transport's backend: a client for which this fails was
    made by a release of httpx that is not known here."""
    for each in (client._transport, *client._mounts.values()):
        if isinstance(each, httpx.HTTPTransport):  # None: no proxy for these hosts
            each._pool._network_backend = _Backend(each._pool._network_backend)
    return client


def ask(client: httpx.Client, method: str, url: str, whole_s: float, bytes_max: int, **request: Any) -> httpx.Response:
    """One request of a client that is `bounded`, with all of its answer. Raises httpx.HTTPError, TooLong."""
    token = _DEADLINE.set(Deadline(whole_s))
    headers = {**(request.pop("headers", None) or {}), "accept-encoding": "identity"}
    try:
        with client.stream(method, url, timeout=whole_s, headers=headers, **request) as answer:
            if answer.headers.get("content-encoding", "identity") != "identity":
                raise httpx.DecodingError("the answer is compressed, which was not asked for")  # its size has no limit
            data = bytearray()
            for piece in answer.iter_raw():
                data += piece
                if len(data) > bytes_max:
                    raise TooLong(f"the answer has more than {bytes_max} bytes")
            kind = {name: answer.headers[name] for name in ("content-type",) if name in answer.headers}
            return httpx.Response(answer.status_code, headers=kind, content=bytes(data), request=answer.request)
    finally:
        _DEADLINE.reset(token)


@contextmanager
def _step(timeout: float | None, late: type[Exception]) -> Iterator[float | None]:
    """The timeout of a step. Raises `late` when the time for the whole is over."""
    deadline = _DEADLINE.get()
    if deadline is None:
        yield timeout
        return
    try:
        left_s = deadline.left_s(timeout)
        try:
            yield left_s
        except httpcore.TimeoutException:
            deadline.left_s()
            raise
    except TimeoutError as error:
        raise late(str(error)) from None


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with _step(timeout, httpcore.ReadTimeout) as left_s:
            return self._inner.read(max_bytes, left_s)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), WRITTEN_BYTES):
            with _step(timeout, httpcore.WriteTimeout) as left_s:
                self._inner.write(buffer[start : start + WRITTEN_BYTES], left_s)

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        with _step(timeout, httpcore.ConnectTimeout) as left_s:
            return _Stream(self._inner.start_tls(ssl_context, server_hostname, left_s))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _Backend(httpcore.NetworkBackend):
    def __init__(self, inner: httpcore.NetworkBackend) -> None:
        self._inner = inner

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        with _step(timeout, httpcore.ConnectTimeout) as left_s:
            return _Stream(self._inner.connect_tcp(host, port, left_s, local_address, socket_options))

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)
