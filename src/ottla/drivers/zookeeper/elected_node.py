"""This node's replica of the metadata log where ZooKeeper elects the leader and commits its records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ottla.drivers.quorum.quorum_node import QuorumNode
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.writer import encode
from ottla.model import LeaderEpoch, NodeId, Offset
from ottla.network import Address
from ottla.quorum.elected import ElectedCore, first_snapshot
from ottla.quorum.snapshot import write_snapshot

PIECE_BYTES = 1 << 20
"""How much of a snapshot is written in one visit to a disk thread."""


class ElectedNode(QuorumNode):
    """All methods belong to the event loop's thread."""

    core: ElectedCore
    CORE = ElectedCore

    async def lead(self, epoch: LeaderEpoch, records: Iterable[object], level: int) -> None:
        """This node was elected: begin `epoch` with a snapshot of `records`, which is what stands in ZooKeeper.

        Raises KafkaError NOT_CONTROLLER where another one was elected meanwhile; KafkaError or OSError for the disk.
        """
        core = self.core
        snapshot = first_snapshot(epoch)
        if epoch <= core.epoch:
            raise KafkaError(ErrorCode.not_controller, f"epoch {core.epoch} has begun")
        values = (encode(record, level) for record in records)
        now = self._clock.now_ms()
        part = await self.begin_snapshot(snapshot)
        try:
            pieces = write_snapshot(values, epoch=epoch, last_timestamp=now, now=now)
            while piece := await self.fs.run(lambda: _next_piece(pieces)):
                await self.write_piece(part, piece)
            if epoch <= core.epoch:
                raise KafkaError(ErrorCode.not_controller, f"epoch {core.epoch} has begun")
            await self.install_snapshot(part)
        finally:
            await self.end_snapshot(part)
        if epoch <= core.epoch or core.end_offset != snapshot.end_offset:
            raise KafkaError(ErrorCode.not_controller, f"epoch {core.epoch} has begun")
        self.take(core.elected(epoch))
        self.written(core.end_offset)
        if self.failure is not None:
            raise self.failure
        if not core.is_leader:
            raise KafkaError(ErrorCode.kafka_storage_error, "the disk has no room for what a leader writes")

    def led(self, leader_id: NodeId, epoch: LeaderEpoch, address: Address) -> None:
        """ZooKeeper says that another node leads, which is reached at `address`."""
        self.controllers.know({leader_id: address})
        self.take(self.core.led(leader_id, epoch, self.now_ms()))
        if (leader_id, epoch) == (self.core.leader_id, self.core.epoch):
            self.controllers.found(leader_id, epoch, {leader_id: address})

    def written(self, end: Offset) -> None:
        """What the log has below `end` stands in ZooKeeper."""
        self.take(self.core.on_written(end))


def _next_piece(pieces: Iterator[bytearray]) -> bytes:
    gathered = bytearray()
    for piece in pieces:
        gathered += piece
        if len(gathered) >= PIECE_BYTES:
            break
    return bytes(gathered)
