"""What the connections of one listener share, and look at for each request."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from ottla.metrics.instruments import NodeMetrics


class ListenerState:
    """The base of `listener.Listener`: compiled code reads its attributes without a look into a dictionary."""

    __slots__ = (
        "answering", "began_s", "loop", "metrics", "receive_buffer", "receive_view", "served", "served_bytes",
        "slow_s", "tick",
    )  # fmt: skip

    def __init__(self, receive_buffer: bytearray, metrics: NodeMetrics, slow_ms: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.metrics = metrics
        self.receive_buffer = receive_buffer
        self.receive_view = memoryview(receive_buffer)
        self.slow_s = slow_ms / 1000 if slow_ms >= 0 else math.inf
        """Requests that take longer are logged (`ottla.log.slow.request.ms`)."""
        self.began_s = 0.0
        """When the bytes came in that are being handled."""
        self.served: Any = None
        """The connection served last."""
        self.served_bytes = 0
        """What it has sent since it is the one."""
        self.tick = 0
        """Counts sweeps; a connection notes it with every byte received."""
        self.answering: dict[Any, None] | None = None
        """Connections with answers to send, while answers are collected."""
