"""The telemetry of a node's clients (KIP-714).

Clients are told of it once there is a subscription (ApiVersions), so that nobody else is bothered: librdkafka says on
standard error that it has been given an id. Kafka's brokers tell them where a plug-in takes the metrics; who asks
without being told is answered by both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from ottla.drivers.cooperative import run_yielding
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import ConfigResourceType
from ottla.model import UNKNOWN_SOFTWARE, Buffer, random_uuid, uuid_to_base64
from ottla.protocol.records.compression import Codec, DecompressionFailed, TooLong, decompress
from ottla.server.connections.client_facts import facts_of, peer_port_of
from ottla.telemetry.clients import RESERVED, Clients, Instance
from ottla.telemetry.otlp import MalformedMetrics, read

if TYPE_CHECKING:
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage
    from ottla.protocol.schemas.received import PushTelemetryRequest
    from ottla.server.api import Handling, RequestContext
    from ottla.server.ports import WorkingNode

EXPIRY_PERIOD_S: Final = 30.0
"""How often silent clients are looked for."""


class NodeTelemetry:
    """Telemetry of one node: its subscriptions, and the clients that push to it."""

    def __init__(self, node: WorkingNode) -> None:
        self._node = node
        self.clients = Clients(node.config.telemetry_max_bytes)
        for resource, configs in node.image.configs.items():
            if resource.type == ConfigResourceType.CLIENT_METRICS:
                self.clients.subscribe(resource.name, configs)
        node.metadata.publisher.after_each(self._following)
        self._timer: asyncio.Handle | None = None
        self._schedule()
        node.on_stop.append(self._stop)

    def _following(self, delta: MetadataDelta, image: MetadataImage) -> Generator[None, None, None]:
        for name in delta.changed_configs(ConfigResourceType.CLIENT_METRICS):
            self.clients.subscribe(name, image.config(ConfigResourceType.CLIENT_METRICS, name))
        yield from ()

    def _expire(self) -> None:
        self._node.spawn(run_yielding(self.clients.expiring(self.now_s())))
        self._schedule()

    def _schedule(self) -> None:
        if not self._node.stopping:
            self._timer = asyncio.get_running_loop().call_later(EXPIRY_PERIOD_S, self._expire)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def instance(self, context: RequestContext, instance_id: UUID) -> Instance:
        """The state of the client that asks."""

        def attributes() -> Mapping[str, str | None]:
            return _attributes(context, instance_id)

        is_new = instance_id not in self.clients.instances
        found = self.clients.instance(instance_id, attributes, self.now_s())
        facts = facts_of(context)
        if is_new and facts is not None:
            facts.instance_id = instance_id
            facts.when_lost = lambda: self.clients.disconnected(instance_id)
        return found

    def new_id(self) -> UUID:
        while True:
            found = random_uuid(self._node.random)
            if found not in self.clients.instances:
                return found

    def pushed(self, context: RequestContext, request: PushTelemetryRequest) -> Handling[Any]:
        """A client pushes metrics; yields the cost of reading them. Raises the KafkaError with which it is refused."""
        clients = self.clients
        instance_id = request.client_instance_id
        if instance_id is None or instance_id in RESERVED:
            raise KafkaError(ErrorCode.invalid_request, f"{instance_id} is not the id of a client")
        instance = self.instance(context, instance_id)
        clients.push(
            instance,
            request.subscription_id,
            request.compression_type,
            len(request.metrics or b""),
            self.now_s(),
            terminating=request.terminating,
        )
        if not request.metrics:
            return
        data: Buffer = request.metrics
        try:
            if request.compression_type != Codec.NONE:
                # A few bytes may stand for a megabyte, so always in a thread; one at a time, so that a thousand clients
                # take no more memory than one.
                data = yield self._node.long_work(
                    lambda: decompress(request.compression_type, request.metrics, clients.bytes_max)
                )
            found = yield from read(data)
        except TooLong:
            raise clients.failed(instance, ErrorCode.telemetry_too_large) from None
        except (DecompressionFailed, MalformedMetrics):
            raise clients.failed(instance, ErrorCode.invalid_record) from None
        clients.take(instance, found, self.now_s())


def _attributes(context: RequestContext, instance_id: UUID) -> dict[str, str | None]:
    """What subscriptions are matched with."""
    facts = facts_of(context)
    return {
        "client_instance_id": uuid_to_base64(instance_id),
        "client_id": context.client_id,
        "client_software_name": UNKNOWN_SOFTWARE if facts is None else facts.software_name,
        "client_software_version": UNKNOWN_SOFTWARE if facts is None else facts.software_version,
        "client_source_address": context.client_host,
        "client_source_port": None if facts is None else str(peer_port_of(context.session)),
    }


def telemetry_of(node: WorkingNode) -> NodeTelemetry:
    """Made by the first subscription, or the first client that asks."""
    found: NodeTelemetry | None = vars(node).get("telemetry")
    if found is None:
        found = vars(node)["telemetry"] = NodeTelemetry(node)
    return found
