"""A stand-in node with an image of one's own, and its handlers asked through the real codecs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Generator, Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from immutables import Map

from ottla.config.server import ServerConfig
from ottla.drivers.cooperative import run_yielding
from ottla.errors import KafkaError
from ottla.metadata.image import (
    BrokerRegistration,
    ConfigResource,
    Endpoint,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from ottla.metrics.instruments import NodeMetrics
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.server import api
from ottla.steps import at_once

DIRECTORY = UUID(int=1000)
CLUSTER_ID = "cluster-of-this-test.."


def broker(node_id: int, *, fenced: bool = False, listener: str = "PLAINTEXT", rack: str | None = None) -> Any:
    endpoints = {listener: Endpoint(f"host{node_id}", 9090 + node_id)}
    return BrokerRegistration(node_id, 7, UUID(int=node_id), endpoints, fenced=fenced, rack=rack, log_dirs=(DIRECTORY,))


def partition(*replicas: int, leader: int | None = None, **more: Any) -> PartitionRegistration:
    """A partition whose replicas are all in sync."""
    values: dict[str, Any] = {
        "isr": replicas,
        "leader": replicas[0] if leader is None else leader,
        "leader_epoch": 3,
        "partition_epoch": 4,
        "directories": (DIRECTORY,) * len(replicas),
    }
    return PartitionRegistration(replicas, **{**values, **more})


def topic(name: str, *partitions: PartitionRegistration) -> TopicImage:
    return TopicImage(name, topic_id(name), dict(enumerate(partitions)))


def topic_id(name: str) -> UUID:
    return UUID(bytes=name.encode()[:16].rjust(16, b"\1"))


def image_of(
    *topics: TopicImage,
    brokers: tuple[BrokerRegistration, ...] | None = None,
    configs: Mapping[tuple[int, str], Mapping[str, str]] | None = None,
) -> MetadataImage:
    registered = (broker(1),) if brokers is None else brokers
    return MetadataImage(
        offset=10,
        epoch=1,
        brokers={each.id: each for each in registered},
        topics_by_name=Map({each.name: each for each in topics}),
        topics_by_id=Map({each.id: each for each in topics}),
        configs=Map({ConfigResource(*key): value for key, value in (configs or {}).items()}),
    )


class Controller:
    """Creates every topic it is asked for, and remembers the requests."""

    def __init__(self) -> None:
        self.requests: list[Mapping[str, Any]] = []
        self.node: Any = None
        self.refuse: Exception | None = None

    async def send(self, api_key: ApiKey, request: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        assert api_key is ApiKey.CREATE_TOPICS
        self.requests.append(request)
        if self.refuse is not None:
            raise self.refuse
        created = [topic(each["name"], partition(1)) for each in request["topics"]]
        existing = list(self.node.image.topics_by_name.values())
        self.node.image = image_of(*existing, *created)
        return {}


def node_of(image: MetadataImage, **settings: str) -> Any:
    """Settings have underscores for dots."""
    overrides = {"log.dirs": "/data", **{name.replace("_", "."): value for name, value in settings.items()}}
    controller = Controller()
    node = SimpleNamespace(
        lost={},
        away=None,
        authorizer=None,
        image=image,
        config=ServerConfig.load(overrides=overrides),
        channel=controller,
        metadata=SimpleNamespace(directory_ids={"/data": DIRECTORY}),
        random=random.Random(1),
        cluster_id=CLUSTER_ID,
        node_id=1,
        metrics=NodeMetrics(),
    )
    controller.node = node
    return node


def ask(
    node: Any, key: ApiKey, version: int, values: Mapping[str, Any], *, listener: str = "PLAINTEXT"
) -> dict[str, Any]:
    """The response to a request, both encoded and decoded in `version`, as plain values."""
    frame = messages.encode_request(key, version, 5, "test", values)
    loaded = api.load(key)
    context = api.RequestContext(node, key, version, 5, "test", listener_name=listener)
    request = loaded.decode(version, frame, messages.read_header(frame).body_offset)
    try:
        outcome = loaded.handle(context, request)
        if isinstance(outcome, Generator):
            outcome = run_yielding(outcome)
        if isinstance(outcome, Awaitable):
            outcome = asyncio.run(_result_of(outcome))
    except KafkaError as error:
        outcome = loaded.on_error(context, request, error)
        outcome = at_once(outcome) if isinstance(outcome, Generator) else outcome
    if isinstance(outcome, api.EncodedResponse):
        data = b"".join(map(bytes, outcome.parts))
        assert len(data) == outcome.length
    else:
        assert isinstance(outcome, Mapping)
        data = messages.encode_response(key, version, 5, outcome)
    correlation_id, response = messages.decode_response(key, version, data)
    assert correlation_id == 5
    plain: dict[str, Any] = messages.plain(response)
    return plain


async def _result_of(outcome: Awaitable[Any]) -> Any:
    return await outcome


def asking(key: ApiKey) -> Callable[..., dict[str, Any]]:
    """`ask` for one API; the version defaults to its newest."""
    newest = api.load(key).max_version

    def bound(node: Any, values: Mapping[str, Any], version: int = newest, **more: Any) -> dict[str, Any]:
        return ask(node, key, version, values, **more)

    return bound
