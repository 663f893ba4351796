"""Finds the batches of a fetch answer that belong to aborted transactions, for read_committed readers.

The rules are those of `org.apache.kafka.clients.consumer.internals.CompletedFetch`: the answer names the aborted
transactions that overlap its records, each by its producer and first offset; a producer's batches are aborted from
there to its next abort marker.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from ottla.model import NO_PRODUCER_ID, Buffer
from ottla.protocol.records.record_batch import BatchHeader, read_end_marker


class Aborted:
    """Aborted transactions of one partition in one fetch response. It is asked for each batch, in log order."""

    def __init__(self, transactions: Iterable[tuple[int, int]] | None) -> None:
        """`transactions` are (producer id, first offset) pairs; None is none, as on the wire."""
        self._waiting = [(first_offset, producer_id) for producer_id, first_offset in transactions or ()]
        heapq.heapify(self._waiting)
        self._producers: set[int] = set()
        """Producers whose batches are aborted at this point of the log."""
        self._last_offset = -1
        """Last offset of the newest batch seen: seeing an older one again changes nothing."""

    def covers(self, header: BatchHeader, batch: Buffer) -> bool:
        """Whether the records of this batch were aborted. Raises CorruptBatch for a malformed marker."""
        if header.producer_id <= NO_PRODUCER_ID or header.last_offset < self._last_offset:
            return False
        self._last_offset = header.last_offset
        while self._waiting and self._waiting[0][0] <= header.last_offset:
            self._producers.add(heapq.heappop(self._waiting)[1])
        if header.producer_id not in self._producers:
            return False
        if header.is_control:
            marker = read_end_marker(batch)
            if marker is not None and marker.is_abort:
                self._producers.remove(header.producer_id)
            return False
        return header.is_transactional
