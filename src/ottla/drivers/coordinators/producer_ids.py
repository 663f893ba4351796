"""Producer ids for new idempotent producers, from blocks that the controller hands out (KIP-730)."""

from __future__ import annotations

import asyncio
import logging

from ottla.drivers.controller.controller_channel import ControllerChannel
from ottla.drivers.metadata.broker_lifecycle import BrokerLifecycle
from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.model import NodeId, ProducerId
from ottla.protocol.messages import ApiKey

_LOG = logging.getLogger("ottla.transactions")


class ProducerIds:
    """One block at a time (`RPCProducerIdManager`). All methods belong to the event loop's thread."""

    def __init__(self, channel: ControllerChannel, node_id: NodeId, lifecycle: BrokerLifecycle) -> None:
        self._channel = channel
        self._node_id = node_id
        self._lifecycle = lifecycle
        self._block = range(0)
        self._fetching: asyncio.Lock | None = None

    async def next(self) -> ProducerId:
        """An id that nobody else got. Raises COORDINATOR_LOAD_IN_PROGRESS when no block can be had, whatever the
        controller says: its error is about this broker (a stale epoch, say), and the client asks again."""
        if self._fetching is None:
            self._fetching = asyncio.Lock()
        async with self._fetching:
            if not self._block:
                try:
                    self._block = await self._next_block()
                except KafkaError as error:
                    _LOG.warning("no producer ids could be allocated", extra=fields(error=str(error)))
                    raise KafkaError(
                        ErrorCode.coordinator_load_in_progress, "Producer ID block is full. Waiting for next block"
                    ) from error
            first = self._block[0]
            self._block = self._block[1:]
            return first

    async def _next_block(self) -> range:
        """Raises KafkaError."""
        request = {"broker_id": self._node_id, "broker_epoch": self._lifecycle.broker_epoch}
        response = await self._channel.send(ApiKey.ALLOCATE_PRODUCER_IDS, request)
        if response["error_code"]:
            raise KafkaError(ErrorCode(response["error_code"]))
        first = response["producer_id_start"]
        return range(first, first + response["producer_id_len"])
