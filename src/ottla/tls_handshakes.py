"""Handshakes of TLS: the threads that calculate them, the contexts that they use, and how they fail."""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from ottla.network import Network

HANDSHAKES_AT_ONCE: Final = 4
"""At most; fewer on a machine with fewer processors."""

HANDSHAKE_NICENESS: Final = 5
"""The event loop comes first where there are fewer processors than threads."""

SELF_HANDSHAKE_TURNS: Final = 8
"""A full handshake takes six, with a retry for another group of keys."""


class TlsFailed(OSError):
    """A handshake that failed at the client's end. The message says why."""


class ClosedInHandshake(ConnectionAbortedError):
    """The peer closed the connection before the handshake was done."""


class Failure(NamedTuple):
    """A handshake that failed on the server's side."""

    client_host: str
    reason: str


@dataclass
class TlsContexts:
    """What connections use that are made from now on; who reloads certificates replaces the fields."""

    server: ssl.SSLContext | None = None
    client: ssl.SSLContext | None = None
    suites: frozenset[str] = field(default_factory=frozenset)
    """The only cipher suites of TLS 1.3 that are accepted; empty for all. Python cannot tell OpenSSL."""


class Handshakes:
    """The threads in which handshakes are calculated, for all networks of a node."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    def run(self, loop: asyncio.AbstractEventLoop, step: Callable[[], Step]) -> asyncio.Future[Step]:
        if self._pool is None:
            count = min(HANDSHAKES_AT_ONCE, os.cpu_count() or 1)
            self._pool = ThreadPoolExecutor(count, "ottla-handshake", initializer=_step_back)
        return loop.run_in_executor(self._pool, step)

    def close(self) -> None:
        """Wait for the steps that are being done, and drop the others."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None


def _step_back() -> None:
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), HANDSHAKE_NICENESS)


class Step(NamedTuple):
    """The result of a step of a handshake."""

    done: bool
    peer: str | None = None
    error: Exception | None = None


def reason_of(error: BaseException) -> str:
    """Why a handshake or a connection failed, without OpenSSL's file names."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not accepted: {error.verify_message.rstrip('.')}"
    reason = getattr(error, "reason", None)  # OpenSSL's own errors have one
    if isinstance(error, ssl.SSLError) and reason:
        return str(reason).lower().replace("_", " ")
    if isinstance(error, ssl.SSLError):
        return str(error.args[-1])
    return str(error) or type(error).__name__


def without_frames(error: Exception) -> Exception:
    """The same, without the frames of its traceback: they have the connection that keeps it, and neither would be freed
    before a collection of cycles."""
    error.__context__ = None
    return error.with_traceback(None)


def told(error: Exception) -> Exception:
    """As a protocol or who connects is told: OpenSSL's own words name its source files."""
    return TlsFailed(reason_of(error)) if isinstance(error, ssl.SSLError) else error


def load_identity(context: ssl.SSLContext, pem: str, password: str | None) -> None:
    """Give a context a key and its certificates. Python takes only paths: this one is memory that has no name and that
    only this process can open. Raises ssl.SSLError."""
    descriptor = os.memfd_create("identity", os.MFD_CLOEXEC)
    try:
        data = memoryview(pem.encode())
        while data:
            data = data[os.write(descriptor, data) :]
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=password or "")
    finally:
        os.close(descriptor)


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Do a handshake in memory between two contexts. Raises ssl.SSLError where they would not connect."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    done: set[int] = set()
    for turn in range(SELF_HANDSHAKE_TURNS):
        end = ends[turn % 2]
        try:
            end.do_handshake()
            done.add(turn % 2)
        except ssl.SSLWantReadError:
            pass
    if len(done) != len(ends):
        raise ssl.SSLError(1, "the handshake does not end")


class SharedTls(Protocol):
    """What the connections of one network share: `TlsNetwork`."""

    scratch: memoryview

    @property
    def buffer(self) -> memoryview: ...
    @property
    def contexts(self) -> TlsContexts: ...
    @property
    def handshakes(self) -> Handshakes: ...
    @property
    def subject_of(self) -> Callable[[bytes], str]: ...
    @property
    def on_failure(self) -> Callable[[Failure], None]: ...
    @property
    def inner(self) -> Network: ...
