"""Generations of copiers: a generation is a set of partitions and their parallel copiers, Spark tasks or a thread.

When partitions change or one of them fails there is another generation, which fences the one before.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.client.security import PLAINTEXT, Security
from ottla.errors import KafkaError
from ottla.mirror import copying
from ottla.mirror.control_topic import ControlTopic, Generation, MirrorError
from ottla.mirror.copying import Work
from ottla.mirror.mapping import Place
from ottla.model import Offset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("ottla.mirror")

EVERY_S: Final = 0.01
STOP_S: Final = 10.0
FAILURES_MAX: Final = 10
"""Consecutive failures without a record copied between them."""
PAUSE_S: Final = 0.5
PAUSE_S_MAX: Final = 15.0
_REFUSED: Final = re.compile(r"ottla\.mirror\.control_topic\.MirrorError: (.*)")
"""Finds the error in the stack trace of a task."""


@dataclass(frozen=True)
class Way:
    """Source and destination of the copied records."""

    source: str
    source_bootstrap: str
    destination_bootstrap: str
    prefix: str
    source_security: Security = PLAINTEXT
    destination_security: Security = PLAINTEXT


class Generations:
    """One after the other, of one mirror. Of one thread."""

    def __init__(self, way: Way, control: ControlTopic, spark: SparkSession | None, every_s: float = EVERY_S) -> None:
        """Without `spark` a thread of this process copies."""
        self.every_s = every_s
        """Seconds from one transaction to the next."""
        self._way = way
        self._control = control
        self._spark = spark
        self._run = uuid.uuid4().hex
        self._has_begun = False
        self._places: tuple[Place, ...] = ()
        self._generation = Generation()
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._failures = 0
        self._not_before = 0.0
        self._records = 0

    def once(self, targets: Mapping[Place, Offset]) -> None:
        """Copy up to these offsets. Raises MirrorError, KafkaError, OSError, and what Spark raises."""
        left = {at: end for at, end in targets.items() if self._control.offsets[at].source_end() < end}
        while left:
            self._begin(tuple(left), left)
            assert self._thread is not None
            self._thread.join()
            self._thread = None
            self._control.load(whole=True)
            left = {at: end for at, end in left.items() if self._control.offsets[at].source_end() < end}
            if left:
                self._count_failure()
                time.sleep(max(0.0, self._not_before - time.monotonic()))

    def keep(self, places: Sequence[Place]) -> None:
        """See to it that these partitions are copied, and go on being. Raises MirrorError, or what has made it fail too
        often."""
        self.check()
        if self._thread is not None and not self._thread.is_alive():
            self._thread = None
            self._count_failure()
        if self._places != tuple(places):
            self.stop()
        if self._thread is None and places and time.monotonic() >= self._not_before:
            self._begin(tuple(places), None)

    def check(self) -> None:
        """Raises MirrorError when another mirror has taken over; by what the control topic has loaded."""
        if self._has_begun and self._control.generation.run != self._run:
            self._stopping.set()
            raise MirrorError(f"another process mirrors {self._way.source} to here now, and this one has stopped")

    def take_over(self) -> None:
        """End what others copy, and what this one does. Raises KafkaError, OSError."""
        self.stop()
        self._generation = self._control.take_over(self._run, 0)
        self._has_begun = True

    def stop(self) -> None:
        """Stop, and abort open transactions."""
        thread, self._thread = self._thread, None
        self._stopping.set()
        self._places = ()
        if thread is None:
            return
        if self._spark is not None:
            # A task that does not know that it is to stop sees that it is fenced.
            with contextlib.suppress(KafkaError, OSError):
                self._control.fence(self._generation.slots)
            thread.join(STOP_S)
            if thread.is_alive():
                self._spark.sparkContext.cancelJobGroup(self._run)
        thread.join(STOP_S)

    def _begin(self, places: tuple[Place, ...], targets: Mapping[Place, Offset] | None) -> None:
        self._control.load()
        self.check()
        slots = 1 if self._spark is None else max(1, min(len(places), self._spark.sparkContext.defaultParallelism))
        self._generation = self._control.take_over(self._run, slots)
        self._has_begun = True
        self._places = places
        way = self._way
        work = [
            Work(
                way.source,
                way.source_bootstrap,
                way.destination_bootstrap,
                way.prefix,
                self._generation,
                slot,
                places[slot::slots],
                self.every_s,
                targets,
                way.source_security,
                way.destination_security,
            )
            for slot in range(slots)
        ]
        self._stopping = threading.Event()
        self._error = None
        self._thread = self._started(work, self._stopping)

    def _started(self, work: list[Work], stopping: threading.Event) -> threading.Thread:
        def run() -> None:
            try:
                if self._spark is None:
                    copying.copy(work[0], stopping)
                else:
                    _on_spark(self._spark, self._run, work)
            except BaseException as error:
                if not stopping.is_set():
                    self._error = error

        kind: Any = threading.Thread
        if self._spark is not None:
            from pyspark import InheritableThread

            kind = InheritableThread
        thread: threading.Thread = kind(target=run, name="ottla-mirror", daemon=True)
        thread.start()
        return thread

    def _count_failure(self) -> None:
        """A generation has ended which should not. Raises its error when it is no use to begin another."""
        error, self._error = self._error, None
        if isinstance(error, MirrorError):
            raise error
        if self._control.records > self._records:
            self._records, self._failures = self._control.records, 0
        self._failures += 1
        if self._failures > FAILURES_MAX:
            raise error or MirrorError(f"the copying tasks from {self._way.source} fail repeatedly")
        pause_s = min(PAUSE_S * 2.0 ** (self._failures - 1), PAUSE_S_MAX)
        self._not_before = time.monotonic() + pause_s
        logger.warning("copying from %s resumes in %g s: %s", self._way.source, pause_s, error or "it was fenced")


def _on_spark(spark: SparkSession, group: str, work: list[Work]) -> None:
    """Raises MirrorError, and what Spark raises."""
    context = spark.sparkContext
    context.setJobGroup(group, f"mirror of {work[0].source}", interruptOnCancel=True)
    try:
        context.parallelize(work, len(work)).foreach(copying.copy)
    except Exception as error:
        refused = _REFUSED.search(str(error))
        if refused is not None:
            raise MirrorError(refused[1]) from None
        raise
