"""What a node tells systemd, by the protocol of sd_notify(3): that it serves, that it stops, that its event loop runs.

All of it goes to the socket that NOTIFY_SOCKET names, from a timer of the event loop. While the node starts or stops
each tick asks for more time, so that the unit's timeouts bound how long the loop is hung and not how much there is to
recover. While it serves each tick is the watchdog's: systemd ends a service that misses them for WATCHDOG_USEC.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ottla.network import send_datagram

if TYPE_CHECKING:
    from ottla.server.node import Node

MORE_TIME_S = 30.0
"""What a tick asks for while the node starts or stops."""
TICK_S = 10.0
"""Between two ticks, where the watchdog does not ask for shorter ones: three of them fit into `MORE_TIME_S`."""

Send = Callable[[str, bytes], None]


class ServiceManager:
    """systemd, as a node sees it. Raises nothing: a node serves whether or not systemd hears of it."""

    def __init__(self, address: str = "", watchdog_s: float | None = None, send: Send = send_datagram) -> None:
        """`address` is a path, or "@" and a name in Linux's abstract namespace; nothing is sent without one, and no
        WATCHDOG=1 without `watchdog_s`."""
        self._address = address
        self._watches = watchdog_s is not None
        self.tick_s = math.inf if not address else TICK_S if watchdog_s is None else min(TICK_S, watchdog_s / 2)
        """Seconds between two calls of `tick`."""
        self._send = send
        self._phase = "starting"
        self._status: Callable[[], str] = str
        self._said = ""
        self._timer: asyncio.Handle | None = None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> ServiceManager:
        """One that sends nothing unless systemd has started this process."""
        address = environ.get("NOTIFY_SOCKET", "")
        if not address.startswith(("/", "@")):
            return cls()
        watched, usec = environ.get("WATCHDOG_PID", ""), environ.get("WATCHDOG_USEC", "")
        mine = watched in ("", str(os.getpid()))
        watchdog_s = int(usec) / 1e6 if mine and usec.isascii() and usec.isdecimal() and int(usec) else None
        return cls(address, watchdog_s)

    def starting(self, status: Callable[[], str], loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Begin to tick on `loop`; without one the caller calls `tick`. `status` says in a line how the node is."""
        self._status = status
        if loop is None:
            self.tick()
        elif self._address:
            self._run(loop)

    def follow(self, phase: str, node: Node) -> None:
        """What `server.main.run` tells of a node."""
        if phase == "starting":
            self.starting(lambda: status_of(node), asyncio.get_running_loop())
        elif phase == "serving":
            self.ready()
        elif phase == "stopping":
            self.stopping()
        else:
            self.close()

    def ready(self) -> None:
        """The node serves."""
        self._phase = "serving"
        self.tell("READY=1")
        self.tick()

    def stopping(self) -> None:
        """The node has begun to stop."""
        self._phase = "stopping"
        self._status = lambda: "stopping"
        self.tell("STOPPING=1")
        self.tick()

    def close(self) -> None:
        """No more ticks."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def tick(self) -> None:
        """What is due every `tick_s` seconds; for a process without an event loop to call."""
        if not self._address:
            return
        lines = []
        if self._phase == "serving":
            lines += ["WATCHDOG=1"] if self._watches else []
        else:
            lines += [f"EXTEND_TIMEOUT_USEC={MORE_TIME_S * 1e6:.0f}"]
        status = " ".join(self._status().split())
        if status != self._said:
            self._said = status
            lines.append(f"STATUS={status}")
        if lines:
            self.tell("\n".join(lines))

    def tell(self, message: str) -> None:
        """Send assignments, a line each."""
        if not self._address:
            return
        with contextlib.suppress(OSError):  # it is gone, or does not read
            self._send(self._address, message.encode())

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        self.tick()
        self._timer = loop.call_later(self.tick_s, self._run, loop)


def status_of(node: Node) -> str:
    """How a node is, in a line."""
    from ottla.server.http.pages import readiness  # loaded where HTTP or systemd asks

    return "; ".join(readiness(node)["reasons"]) or f"node {node.node_id} of cluster {node.cluster_id} serves"
