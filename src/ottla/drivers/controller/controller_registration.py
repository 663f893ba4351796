"""Registers a controller's endpoints and supported features with the active one (Kafka's
`ControllerRegistrationManager`).

The active controller registers itself when it becomes that; the others ask it to, each time that the metadata does not
show their present incarnation.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ottla.drivers.controller.controller_channel import ControllerChannel
from ottla.drivers.metadata.metadata_publisher import MetadataPublisher
from ottla.drivers.tasks import cancelled
from ottla.errors import KafkaError
from ottla.logs import fields
from ottla.metadata import features
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages import ApiKey

if TYPE_CHECKING:
    from ottla.protocol.schemas.sent import ControllerRegistrationRequest

_LOG = logging.getLogger("ottla.controller")

RETRY_BACKOFF_S = 0.5
"""After a refusal; the channel itself looks for the active controller as long as a request may take."""


class ControllerRegistrar:
    """All methods belong to the event loop's thread."""

    def __init__(
        self, channel: ControllerChannel, publisher: MetadataPublisher, registration: ControllerRegistrationRequest
    ) -> None:
        """`registration`: the request."""
        self._channel = channel
        self._publisher = publisher
        self._registration = registration
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._publisher.subscribe(self._look)

    async def stop(self) -> None:
        await cancelled(self._task)

    def _is_wanted(self, image: MetadataImage) -> bool:
        known = image.controllers.get(self._registration["controller_id"])
        is_known = known is not None and known.incarnation_id == self._registration["incarnation_id"]
        return not is_known and features.supports_controller_registration(image.features)

    def _look(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if self._is_wanted(image) and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._register())

    async def _register(self) -> None:
        while self._is_wanted(self._publisher.image):
            try:
                await self._channel.send(ApiKey.CONTROLLER_REGISTRATION, self._registration)
            except KafkaError as error:
                _LOG.info("this controller is not registered yet", extra=fields(error=str(error)))
            await asyncio.sleep(RETRY_BACKOFF_S)
