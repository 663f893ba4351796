"""Reads the dead letters of a simulated share group."""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.protocol.records.record_batch import iterate_batches, iterate_records
from ottla.replication.share.dead_letters import Reason
from ottla.simulation.clients.clients import Consumer


class SimulatedLetter(NamedTuple):
    group: str
    topic: str
    partition: int
    offset: int
    """Where the record is."""
    is_rejected: bool
    value: bytes | None


class DeadReader(Consumer):
    """Takes records for dead letters. What was written is not in the history, for no client wrote it."""

    letters: list[SimulatedLetter]

    def start(self) -> None:
        self.letters = []
        super().start()

    def take(self, data: bytes, mark: Any) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        start = self.position
        for at, header in iterate_batches(data):
            self.position = max(self.position, header.next_offset)
            for record in iterate_records(data, at):
                if record.offset < start:
                    continue
                said = {name: value or b"" for name, value in record.headers}
                found[record.offset] = record.value or b""
                self.letters.append(
                    SimulatedLetter(
                        said["__dlq.errors.group"].decode(),
                        said["__dlq.errors.topic"].decode(),
                        int(said["__dlq.errors.partition"]),
                        int(said["__dlq.errors.offset"]),
                        said["__dlq.errors.message"] == Reason.REJECTED.value.encode(),
                        record.value,
                    )
                )
        return found
