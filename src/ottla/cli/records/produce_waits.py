"""What `ottla produce` waits for: records that no broker acknowledges, and what the brokers answer instead.

librdkafka sends a batch again in silence for as long as `message.timeout.ms`. What it was told stands in its debug log
alone: a line for each batch, with the error. So that log is read, and after some patience a line on standard error
says how many records wait, and why. Where no batch gets an answer (no leader, a network that is cut) it says so.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from ottla.cli.output import plural

PATIENCE_S: Final = 1.5
"""Without an acknowledgement; then the first line comes."""
AGAIN_S: Final = 10.0
"""Until it is said again, where nothing has changed."""
LINES_S: Final = 1.0
"""Between two lines that differ, at least."""
PARTITIONS_NAMED_MAX: Final = 5

_CLEAR = "\r\x1b[K"

_ANSWERED = re.compile(
    r" \[(\d+)\]: MessageSet with .*?(?: encountered error: (?:Broker: )?(.*) \(actions .*| delivered)$"
)


class Waits(logging.Handler):
    """Reads the log of one producer that writes to one topic."""

    def __init__(self, topic: str, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.errors: dict[int, str] = {}
        """The latest error of a batch of each partition that is being retried."""
        self._topic = topic
        self._now_s = now_s
        self._waiting = 0
        self._since_s = now_s()
        """Since when nothing was acknowledged, or nothing waits."""
        self._said = ""
        self._said_s = float("-inf")

    def settings(self) -> dict[str, Any]:
        """Settings of the producer whose log it is."""
        logger = logging.Logger("librdkafka")
        logger.addHandler(self)
        return {"debug": "msg", "logger": logger, "log_level": 7}

    def emit(self, record: logging.LogRecord) -> None:
        found = _ANSWERED.search(record.getMessage())
        if found is None:
            return
        partition, error = int(found[1]), found[2]
        if error is not None:
            self.errors[partition] = error
        else:
            self.errors.pop(partition, None)

    def look(self, waiting: int) -> None:
        """Called while there is nothing to do but wait: so many records are not acknowledged."""
        now_s = self._now_s()
        if not waiting or waiting < self._waiting:
            self._since_s = now_s
        self._waiting = waiting
        if now_s - self._since_s < PATIENCE_S:
            return
        why = self.reason() or "no broker has answered yet"
        if now_s - self._said_s >= (AGAIN_S if why == self._said else LINES_S):
            self._said, self._said_s = why, now_s
            start = _CLEAR if sys.stderr.isatty() else ""
            print(f"{start}ottla: {plural(waiting, 'record')} not acknowledged yet: {why}", file=sys.stderr, flush=True)

    def reason(self) -> str:
        """The brokers' answers, each error with its partitions; empty if there were none."""
        partitions: dict[str, list[int]] = {}
        for partition, error in sorted(self.errors.items()):
            partitions.setdefault(error, []).append(partition)
        return "; ".join(f"{self._where(numbers)}: {error}" for error, numbers in partitions.items())

    def _where(self, numbers: list[int]) -> str:
        if len(numbers) == 1:
            return f"{self._topic}, partition {numbers[0]}"
        named = ", ".join(map(str, numbers[:PARTITIONS_NAMED_MAX]))
        more = len(numbers) - PARTITIONS_NAMED_MAX
        return f"{self._topic}, partitions {named}" + (f" and {more} more" if more > 0 else "")
