"""A controller's node leads the quorum or does not, and is the active controller accordingly, any number of times.

A new leader decides nothing before it has replayed all that the log held when its epoch began: only then does it know
what was decided before (`QuorumController` with its `claim` and `renounce`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from ottla.controller.decision import Decide
from ottla.drivers.controller.active_controller import ActiveController
from ottla.drivers.metadata.metadata_publisher import MetadataPublisher
from ottla.drivers.quorum.quorum_node import QuorumNode
from ottla.errors import KafkaError
from ottla.logs import fields
from ottla.metadata.image import MetadataImage
from ottla.model import LeaderEpoch, NodeId, Offset

_LOG = logging.getLogger("ottla.controller")

FirstDecisions = Callable[[MetadataImage], Sequence[Decide[Any]]]
"""What a new leader writes before anything else, by what it finds."""


class ControllerActivation:
    """All methods belong to the event loop's thread."""

    def __init__(
        self,
        node_id: NodeId,
        quorum: QuorumNode,
        publisher: MetadataPublisher,
        controller: ActiveController,
        first_decisions: FirstDecisions,
        on_active: Sequence[Callable[[], None]],
    ) -> None:
        """`on_active`: called each time that requests are taken from then on."""
        self._node_id = node_id
        self._quorum = quorum
        self._publisher = publisher
        self._controller = controller
        self._first_decisions = first_decisions
        self._on_active = on_active
        self._epoch: LeaderEpoch = -1
        """The epoch that this node leads; -1 while it leads none."""
        self._tasks: dict[asyncio.Task[None], None] = {}
        """One for each epoch that was led and is not yet done with; all but the last end by themselves."""

    def begin(self) -> None:
        """Follow the quorum's leadership from now on, when what is committed so far is published."""
        self._quorum.on_leader_change.append(self._on_leader_change)
        if self._quorum.is_active:
            self._on_leader_change(self._node_id, self._quorum.epoch)

    async def wait_active(self) -> None:
        """Return when the epoch that this node leads has its first records. Raises KafkaError where they cannot be
        written."""
        for task in list(self._tasks):
            await asyncio.shield(task)

    async def stop(self) -> None:
        """After the publisher, for which it may wait."""
        self._epoch = -1
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    def _on_leader_change(self, leader_id: NodeId, epoch: LeaderEpoch) -> None:
        if self._epoch >= 0 and (leader_id, epoch) != (self._node_id, self._epoch):
            self._epoch = -1
            if self._controller.active:
                _LOG.info("no longer the active controller", extra=fields(leader=leader_id, epoch=epoch))
                self._controller.resign()
        if leader_id == self._node_id and self._epoch != epoch:
            self._epoch = epoch
            task = asyncio.get_running_loop().create_task(self._activate(epoch, self._quorum.end_offset))
            self._tasks[task] = None
            task.add_done_callback(self._done)

    async def _activate(self, epoch: LeaderEpoch, end: Offset) -> None:
        await self._publisher.wait_published(end - 1)
        if self._epoch != epoch:
            return
        controller = self._controller
        controller.activate()
        try:
            decisions = self._first_decisions(controller.image)
            await asyncio.gather(*(controller.submit(decide) for decide in decisions))
        except KafkaError:
            if self._epoch != epoch:  # resigned meanwhile: the next one writes them
                return
            self._epoch = -1
            controller.resign()
            self._quorum.resign()
            raise
        await self._publisher.wait_published(controller.image.offset)
        if self._epoch == epoch:
            if not self._quorum.alone:
                _LOG.info("this node is the active controller", extra=fields(epoch=epoch))
            for callback in tuple(self._on_active):
                callback()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._quorum.alone:  # alone, it cannot start either
            _LOG.error("this node cannot be the active controller", extra=fields(error=str(error)))
