"""Whether a log can be used: open, closed, or offline since a disk error.

After an error that leaves in doubt what is on disk, a log refuses everything until the next start, as in Kafka.
"""

from __future__ import annotations

import errno

from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


class LogHealth:
    """The parts of a log share one; whoever meets a disk error raises what `fail` or `refuse` gives."""

    __slots__ = ("_topic_partition", "failure", "is_closed", "is_open")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self._topic_partition = topic_partition
        self.is_open = True
        """Neither closed nor offline."""
        self.is_closed = False
        self.failure: OSError | None = None
        """The disk error after which the log refuses everything."""

    def check(self) -> None:
        """Raises `KafkaError` KAFKA_STORAGE_ERROR unless the log is open."""
        if not self.is_open:
            raise self.error()

    def error(self) -> KafkaError:
        """Why the log refuses."""
        reason = "it is closed" if self.failure is None else str(self.failure)
        return KafkaError(ErrorCode.kafka_storage_error, f"the log of {self._topic_partition} is offline: {reason}")

    def fail(self, error: OSError) -> KafkaError:
        """From now on nothing is known of what is on disk: go offline, as Kafka does, until the next start."""
        if self.failure is None:
            self.failure = error
        self.is_open = False
        return self.error()

    def refuse(self, error: OSError) -> KafkaError:
        """An error before anything was appended: a full disk may have room again for the next attempt."""
        if error.errno in _NO_SPACE:
            return KafkaError(ErrorCode.kafka_storage_error, f"no space for {self._topic_partition}: {error}")
        return self.fail(error)

    def close(self) -> None:
        self.is_closed = True
        self.is_open = False
