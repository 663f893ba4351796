"""What a registry and a console have in common as HTTP servers: the socket, TLS, signals, a clean end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

import uvicorn

from ottla.registry.guarded import Door
from ottla.registry.port_settings import CannotStart

LISTEN_BACKLOG: Final = 1024
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class ServedDoor(Door, Protocol):
    """A door with its life."""

    @property
    def is_secured(self) -> bool: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def protocol(self, **arguments: Any) -> asyncio.BaseProtocol: ...


class HttpServer:
    """Listens from the beginning; serves with `run` until `stop` is called from another thread."""

    def __init__(self, door: ServedDoor, host: str, port: int, *, stop_s: int) -> None:
        """`stop_s` are the seconds that requests have to end. Raises CannotStart where the address is taken."""
        self._door, self._host, self._stop_s = door, host, stop_s
        self._socket = _listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        self._server: uvicorn.Server | None = None
        self._is_stopped = False

    @property
    def scheme(self) -> str:
        return "https" if self._door.is_secured else "http"

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{self.scheme}://{host}:{self.port}"

    def run(self, application: Any, ending: Callable[[], None] = lambda: None) -> None:
        """Until `stop`; the caller's thread has no event loop. `ending` is called on the loop once it stops: what
        answers without an end must end then."""
        config = uvicorn.Config(
            application,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=self._stop_s,
            server_header=False,
            http=self._door.protocol,  # type: ignore[arg-type]
        )
        server = uvicorn.Server(config)
        whole_startup, whole_shutdown = server.startup, server.shutdown

        async def startup(sockets: list[socket.socket] | None = None) -> None:
            await self._door.start()
            await whole_startup(sockets)

        async def shutdown(sockets: list[socket.socket] | None = None) -> None:
            ending()
            await whole_shutdown(sockets)
            await self._door.stop()

        server.startup = startup  # type: ignore[method-assign]
        server.shutdown = shutdown  # type: ignore[method-assign]
        server.capture_signals = self._signals  # type: ignore[method-assign]
        self._server = server
        if self._is_stopped:
            server.should_exit = True
        server.run([self._socket])

    def stop(self) -> None:
        """From any thread or from a signal handler."""
        self._is_stopped = True
        if self._server is not None:
            self._server.should_exit = True

    def close(self) -> None:
        self._socket.close()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """In the main thread a signal stops it cleanly; uvicorn's own handlers would then end the process."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        for number, handler in before.items():
            if handler != signal.SIG_IGN:
                signal.signal(number, lambda *_: self.stop())
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(LISTEN_BACKLOG)
    except OSError as error:
        listening.close()
        raise CannotStart(f"cannot listen at {host}:{port}: {error.strerror or error}") from error
    return listening
