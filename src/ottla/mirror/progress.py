"""How a mirror does, in the form in which Spark's queries say it: `ottla pipeline` shows both alike."""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from ottla.mirror.control_topic import ControlTopic

KEPT: Final = 100


class Progress:
    """What a pipeline's runner asks of a `StreamingQuery`."""

    isActive: Final = False
    """Each look is a batch, which is over when its progress is there."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self.stop = stop
        self.recentProgress: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._run = str(uuid.uuid4())
        self._batch = 0
        self._records = 0
        self._at = time.monotonic()

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        return self.recentProgress[-1] if self.recentProgress else None

    def begin(self, control: ControlTopic) -> None:
        """Start: what the control topic has now was copied before."""
        self._records, self._at = control.records, time.monotonic()

    def add(self, control: ControlTopic, topics: Mapping[str, int]) -> None:
        """Add the records copied since the last call."""
        now, records = time.monotonic(), control.records
        ends = {
            topic: {str(partition): control.offsets[topic, partition].source_end() for partition in range(count)}
            for topic, count in topics.items()
        }
        self.recentProgress.append(
            {
                "runId": self._run,
                "batchId": self._batch,
                "timestamp": datetime.now(UTC).isoformat(),
                "numInputRows": max(0, records - self._records),
                "batchDuration": (now - self._at) * 1000,
                "stateOperators": [],
                "sources": [{"endOffset": ends}],
            }
        )
        self._batch += 1
        self._records, self._at = records, now
