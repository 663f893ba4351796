"""What `get_wrapped_container()` of `testcontainers.py` returns: tests of failures stop, kill and pause it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from ottla.testing.broker import Broker
from ottla.testing.process import BrokerError

WAIT_S = 0.05


class Wrapped:
    """The methods of `docker.models.containers.Container` that mean something for a process."""

    def __init__(self, broker: Broker, name: str, printed: Callable[[], tuple[bytes, bytes]]) -> None:
        self._broker = broker
        self._printed = printed
        self._paused = False
        self.name = name
        self.id = self.short_id = f"ottla-{broker.port}"

    @property
    def status(self) -> str:
        """As Docker has it: running, paused, or exited."""
        try:
            self._broker.pid  # noqa: B018
        except BrokerError:
            return "exited"
        return "paused" if self._paused else "running"

    @property
    def attrs(self) -> Mapping[str, Any]:
        return {"Id": self.id, "Name": self.name, "State": {"Status": self.status}}

    def reload(self) -> None:
        """Nothing is remembered that could be old."""

    def logs(self, stdout: bool = True, stderr: bool = True, **_: Any) -> bytes:
        out, err = self._printed()
        return (out if stdout else b"") + (err if stderr else b"")

    def stop(self, **_: Any) -> None:
        """Cleanly; `start` starts it again with its data, at the same address."""
        self.unpause()
        self._broker.shut_down()

    def wait(self, **_: Any) -> dict[str, int]:
        """Until another thread, or the system, has ended it."""
        while (status := self._broker.exit_status()) is None:
            time.sleep(WAIT_S)
        return {"StatusCode": status if status >= 0 else 128 - status}

    def kill(self, signal: str | int | None = None) -> None:
        """As a crash would; `start` lets it recover."""
        self._broker.kill()
        self._paused = False

    def start(self, **_: Any) -> None:
        if self.status == "exited":
            self._broker.restart()

    def restart(self, **_: Any) -> None:
        """Stop if it runs, cleanly, and start again."""
        self.unpause()
        self._broker.restart()

    def pause(self) -> None:
        """It stands still; connections stay, and nobody answers."""
        os.kill(self._broker.pid, signal.SIGSTOP)
        self._paused = True

    def unpause(self) -> None:
        """Also of one that is not paused."""
        if self._paused:
            os.kill(self._broker.pid, signal.SIGCONT)
            self._paused = False
