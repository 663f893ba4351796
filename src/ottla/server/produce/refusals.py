"""What the produce requests of this node were refused with, for batches that come again and for the node's log.

A handler tells of every refused partition. `RefusedBatches` keeps what leaves a hole in the sequences of a producer,
and a line in the log says which sequences these were: when records are missing or twice, it is the first question.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.model import Millis
from ottla.storage.producers.refused_batches import RETRIED, RefusedBatches, idempotent_batch

if TYPE_CHECKING:
    from ottla.protocol.records.record_batch import BatchHeader

_LOG = logging.getLogger("ottla.produce")

LINES_MAX: Final = 20
"""Lines in each PERIOD_MS: while the in-sync set is too small every producer is refused."""

PERIOD_MS: Final = 10_000


class Refusals:
    """The refused batches of a node."""

    __slots__ = ("_left_out", "_lines", "_since_ms", "batches")

    def __init__(self, batches: RefusedBatches) -> None:
        self.batches = batches
        self._since_ms: Millis = 0
        self._lines = 0
        self._left_out = 0

    def note(self, topic: str | UUID, partition: int, records: Any, error: KafkaError, now_ms: Millis) -> None:
        """A client was told `error` for its records."""
        if error.code in RETRIED:
            header = self.batches.note((topic, partition), records, error.code, now_ms)
            if header is not None:
                self._log(logging.INFO, "batch refused, to be retried", topic, partition, header, error, now_ms)
        elif error.code is ErrorCode.out_of_order_sequence_number:
            header = idempotent_batch(records)
            if header is not None:
                self._log(logging.WARNING, "batch refused: out of order", topic, partition, header, error, now_ms)

    def _log(
        self,
        level: int,
        event: str,
        topic: str | UUID,
        partition: int,
        header: BatchHeader,
        error: KafkaError,
        now_ms: Millis,
    ) -> None:
        if not 0 <= now_ms - self._since_ms < PERIOD_MS:
            self._since_ms = now_ms
            self._lines = 0
        if self._lines >= LINES_MAX:
            self._left_out += 1
            return
        self._lines += 1
        left_out, self._left_out = self._left_out, 0
        found = fields(
            partition=f"{topic}-{partition}",
            producer=header.producer_id,
            epoch=header.producer_epoch,
            first_sequence=header.base_sequence,
            last_sequence=header.last_sequence,
            error=error.code.name,
            lines_left_out=left_out or None,
        )
        _LOG.log(level, event, extra=found)
