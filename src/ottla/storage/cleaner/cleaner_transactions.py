"""What compaction has to know of transactions: which batches were aborted, and which markers nobody needs any more.

Kafka's `CleanedTransactionMetadata`. Fed with the batches of a log in order, it says of each whether it can go. A
marker can go when no batch of its transaction is left; the abort markers that stay get their entry in the transaction
index of the new segment.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from ottla.model import Offset, ProducerId
from ottla.protocol.records.record_batch import BatchHeader, EndMarker
from ottla.storage.segments.transaction_index import AbortedTransaction


class CleanedTransactions:
    """The transactions that are open at the batch that comes next."""

    def __init__(self) -> None:
        self._coming: list[tuple[Offset, AbortedTransaction]] = []
        """Aborted transactions, a heap by first offset."""
        self._seen: set[AbortedTransaction] = set()
        self._aborted: dict[ProducerId, tuple[AbortedTransaction, bool]] = {}
        """The open aborted transactions, and whether a batch of it was met."""
        self._committed: set[ProducerId] = set()
        """Producers with an open transaction of which a batch was met, and which was not aborted."""

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Add aborted transactions; adding one again changes nothing."""
        for each in transactions:
            if each not in self._seen:
                self._seen.add(each)
                heapq.heappush(self._coming, (each.first_offset, each))

    def _begin_up_to(self, offset: Offset) -> None:
        while self._coming and self._coming[0][0] <= offset:
            _, transaction = heapq.heappop(self._coming)
            self._aborted.setdefault(transaction.producer_id, (transaction, False))

    def on_batch(self, header: BatchHeader) -> bool:
        """Whether a batch of data was aborted, so that its records go."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        known = self._aborted.get(header.producer_id)
        if known is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = known[0], True
        return True

    def on_control(self, header: BatchHeader, marker: EndMarker | None) -> tuple[bool, AbortedTransaction | None]:
        """Whether a control batch is needed no more; and the entry for the transaction index if it stays for one.

        `marker` is None for a batch that compaction emptied before; the caller does not pass control records of other
        kinds, which stay.
        """
        self._begin_up_to(header.last_offset)
        if marker is None:
            return True, None
        if not marker.is_abort:
            needed = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not needed, None
        transaction, met = self._aborted.pop(header.producer_id, (None, False))
        return (False, transaction) if met else (True, None)
