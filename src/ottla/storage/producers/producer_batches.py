"""The producers of an append: checked before its batches are written, noted after."""

from __future__ import annotations

from functools import partial

from ottla.model import NO_GUARD, Buffer
from ottla.protocol.records.record_batch import BatchHeader, read_end_marker
from ottla.storage.log.validation import Origin
from ottla.storage.producers.producer_entry import Duplicate
from ottla.storage.producers.producer_state import ProducerStateManager
from ottla.storage.recovery.rebuild import note_producer
from ottla.storage.segments.segment import Segment


def check_producers(
    state: ProducerStateManager,
    buffer: Buffer,
    headers: list[BatchHeader],
    origin: Origin,
    guard: int = NO_GUARD,
    transaction_version: int = 0,
) -> Duplicate | None:
    """The batch that a producer repeats. Raises `KafkaError` for what the state refuses."""
    position = 0
    for header in headers:
        if header.producer_id >= 0:
            size = header.size
            marker = read_end_marker(buffer[position : position + size]) if header.is_control else None
            duplicate = state.check(
                header, origin=origin, marker=marker, guard=guard, transaction_version=transaction_version
            )
            if duplicate is not None:
                return duplicate
        position += header.size
    return None


def note_producers(state: ProducerStateManager, segment: Segment, buffer: Buffer, headers: list[BatchHeader]) -> None:
    """Tell the state of batches that were appended. Raises `OSError` of the transaction index."""
    position = 0
    for header in headers:
        if header.producer_id >= 0:
            note_producer(state, segment, header, partial(_part, buffer, position, header.size))
        position += header.size


def _part(buffer: Buffer, position: int, size: int) -> Buffer:
    return buffer[position : position + size]
