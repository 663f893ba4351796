"""Whether a log can be used: open, closed, or offline since a disk error.

After an error that leaves in doubt what is on disk, a log refuses everything until the next start, as in Kafka.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from ottla.errors import ErrorCode, KafkaError
from ottla.model import Offset, TopicPartition

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
"""No file could be opened: such an error never comes from an fsync."""

_PASSING = NO_ROOM | NO_DESCRIPTOR


def is_passing(error: BaseException) -> bool:
    """Whether an error, or what caused it, says nothing about what is on disk: there is no room or no descriptor now,
    and the same attempt may succeed later. A failed fsync is never passed here, whatever its number."""
    cause: BaseException | None = error
    while cause is not None and not (isinstance(cause, OSError) and cause.errno in _PASSING):
        cause = cause.__cause__
    return cause is not None


class LogHealth:
    """The parts of a log share one; whoever meets a disk error raises what `fail` or `refuse` gives."""

    __slots__ = (
        "_topic_partition", "failure", "is_busy", "is_closed", "is_open", "on_failure", "on_full_disk", "on_offline",
        "on_suspicion",
    )  # fmt: skip

    def __init__(self, topic_partition: TopicPartition) -> None:
        self._topic_partition = topic_partition
        self.is_open = True
        """Neither closed nor offline nor busy."""
        self.is_busy = False
        """The log is being truncated, and refuses everything meanwhile."""
        self.is_closed = False
        self.failure: OSError | None = None
        """The disk error after which the log refuses everything."""
        self.on_offline: Callable[[], None] | None = None
        """Called when the log stops being open."""
        self.on_failure: Callable[[OSError], None] | None = None
        """Called with the disk error that took the log offline."""
        self.on_suspicion: Callable[[Offset | None], None] | None = None
        """Called when a reader met bytes that are not a batch, with the offset from which it read."""
        self.on_full_disk: Callable[[], None] | None = None
        """Called when a full disk refuses something."""

    def check(self) -> None:
        """Raises `KafkaError` KAFKA_STORAGE_ERROR unless the log is open."""
        if not self.is_open:
            raise self.error()

    def error(self) -> KafkaError:
        """Why the log refuses."""
        if self.is_busy and not self.is_closed and self.failure is None:
            return KafkaError(
                ErrorCode.not_leader_or_follower, f"the log of {self._topic_partition} is being truncated"
            )
        reason = "it is closed" if self.failure is None else str(self.failure)
        found = KafkaError(ErrorCode.kafka_storage_error, f"the log of {self._topic_partition} is offline: {reason}")
        found.__cause__ = self.failure
        return found

    def fail(self, error: OSError) -> KafkaError:
        """Go offline until the next start, as Kafka does: what is on disk is no longer known."""
        is_first = self.failure is None
        if is_first:
            self.failure = error
        self._stop()
        if is_first and self.on_failure is not None and not self.is_closed:
            self.on_failure(error)
        return self.error()

    def refuse(self, error: OSError) -> KafkaError:
        """An error that left everything as it was. The log goes on after one that passes: there may be room again,
        or a descriptor, for the next attempt."""
        if error.errno not in _PASSING:
            return self.fail(error)
        what = "space" if error.errno in NO_ROOM else "file descriptor"
        if error.errno in NO_ROOM and self.on_full_disk is not None:
            self.on_full_disk()
        found = KafkaError(ErrorCode.kafka_storage_error, f"no {what} for {self._topic_partition}: {error}")
        found.__cause__ = error
        return found

    def suspect(self, error: Exception, offset: Offset | None) -> None:
        """A reader met this error in what it read from `offset` on, or anywhere: have the log checked if the error
        says that bytes are wrong."""
        if getattr(error, "code", None) in (ErrorCode.corrupt_message, ErrorCode.kafka_storage_error):
            self.report(offset)

    def report(self, offset: Offset | None) -> None:
        """Have the log checked from `offset` on, or all of it."""
        if self.on_suspicion is not None and self.is_open:
            self.on_suspicion(offset)

    def close(self) -> None:
        self.is_closed = True
        self._stop()

    def begin_work(self) -> None:
        """Refuse everything until `end_work`."""
        self.is_open, self.is_busy = False, True

    def end_work(self) -> None:
        if self.is_busy:
            self.is_open, self.is_busy = True, False

    def _stop(self) -> None:
        was_open, self.is_open = self.is_open or self.is_busy, False
        self.is_busy = False
        if was_open and self.on_offline is not None:
            self.on_offline()
