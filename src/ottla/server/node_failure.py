"""The end of a node that cannot do what it is there for: it asks to be stopped, or has its process end at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ottla.logs import fields

_LOG = logging.getLogger("ottla.node")


class NodeFailure:
    """All methods belong to the event loop's thread."""

    def __init__(self, is_stopping: Callable[[], bool]) -> None:
        self.gave_up: str | None = None
        """Why the node asked to be stopped; None while it did not."""
        self.on_give_up: Callable[[], None] = lambda: None
        """Asks whoever runs the node to `stop` it."""
        self.on_halt: Callable[[], None] = lambda: None
        """Ends the process there and then. Whoever runs the node sets this and `on_give_up`; without them it only logs
        why, and refuses what it cannot do."""
        self._is_stopping = is_stopping
        self._halting = False

    def give_up(self, why: str) -> None:
        """Have the node stopped."""
        self.gave_up = why
        _LOG.critical("the node stops", extra=fields(error=why))
        self.on_give_up()

    def halt(self, why: str, error: BaseException) -> None:
        """End the process as it stands, behind the present callback, as Kafka's broker halts: a disk failed that the
        node cannot do without, and nothing more is to be written. There is no reason while the node stops anyhow. A
        full disk leads here only where an fsync found it: what finds no room to be written is tried again."""
        if self._halting or self._is_stopping():
            return
        self._halting = True
        _LOG.critical("the node halts", extra=fields(error=why))
        asyncio.get_running_loop().call_soon(self.on_halt)
