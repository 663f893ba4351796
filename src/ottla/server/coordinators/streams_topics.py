"""The internal topics of streams applications: created by the coordinator of the group, in the name of the client whose
heartbeat found them missing (KIP-1071; Kafka's `AutoTopicCreationManager.createStreamsInternalTopics`)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary, ref

from ottla.coordinator.group.streams.topology import InternalTopic
from ottla.drivers.controller.controller_channel import Requester
from ottla.errors import ErrorCode, KafkaError
from ottla.model import Millis
from ottla.protocol.messages import ApiKey

if TYPE_CHECKING:
    from ottla.server.ports import WorkingNode

ERRORS_MAX: Final = 1_000
"""Topics of which it is remembered that they cannot be created; a client may name any number."""
SHOWN_MAX: Final = 3
_DEFAULT_REPLICATION: Final = -1


_OF_NODES: WeakKeyDictionary[WorkingNode, StreamsTopics] = WeakKeyDictionary()


class _Failure(NamedTuple):
    message: str
    until: float
    """Time of the next attempt, on the clock of the event loop."""


def streams_topics(node: WorkingNode) -> StreamsTopics:
    """The node's instance, created with the first streams group that misses a topic."""
    found = _OF_NODES.get(node)
    if found is None:
        found = _OF_NODES[node] = StreamsTopics(node)
    return found


class StreamsTopics:
    """All methods belong to the event loop's thread."""

    def __init__(self, node: WorkingNode) -> None:
        self._node = ref(node)  # or the table, which goes by nodes, would keep every node that there was
        self._in_flight: set[str] = set()
        self._failed: dict[str, _Failure] = {}

    def create(self, topics: Mapping[str, InternalTopic], requester: Requester, backoff_ms: Millis) -> None:
        """Begin to create those that nobody is creating, and that did not fail within `backoff_ms` before."""
        now = asyncio.get_running_loop().time()
        wanted = [
            each
            for name, each in topics.items()
            if name not in self._in_flight and (name not in self._failed or self._failed[name].until <= now)
        ]
        node = self._node()
        if wanted and node is not None:
            self._in_flight.update(each.name for each in wanted)
            node.spawn(self._create(node, wanted, requester, backoff_ms / 1000))

    def failures(self, names: Iterable[str]) -> str | None:
        """Why some of these could not be created, as a sentence names them; None where nothing failed of late."""
        now = asyncio.get_running_loop().time()
        known = ((name, self._failed.get(name)) for name in names)
        found = [f"{name} ({each.message})" for name, each in known if each is not None and each.until > now]
        if not found:
            return None
        more = len(found) - SHOWN_MAX
        return ", ".join(found[:SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")

    async def _create(
        self, node: WorkingNode, topics: list[InternalTopic], requester: Requester, backoff_seconds: float
    ) -> None:
        request = {
            "topics": [_creatable(each) for each in topics],
            "timeout": node.config.request_timeout_ms,
            "validate_only": False,
        }
        try:
            answer = await node.channel.send(ApiKey.CREATE_TOPICS, request, requester=requester)
        except KafkaError as error:
            for each in topics:
                self._fail(each.name, error.message or error.code.name, backoff_seconds)
        else:
            for row in answer["topics"]:
                code = ErrorCode(row["error_code"])
                if code is not ErrorCode.none:
                    self._fail(row["name"], row.get("error_message") or code.name, backoff_seconds)
        finally:
            self._in_flight.difference_update(each.name for each in topics)

    def _fail(self, name: str, message: str, backoff_seconds: float) -> None:
        now = asyncio.get_running_loop().time()
        self._failed.pop(name, None)
        self._failed[name] = _Failure(message, now + backoff_seconds)
        for other in [*self._failed]:
            if self._failed[other].until > now and len(self._failed) <= ERRORS_MAX:
                break
            del self._failed[other]


def _creatable(topic: InternalTopic) -> dict[str, Any]:
    replicas = topic.replication_factor
    return {
        "name": topic.name,
        "num_partitions": topic.partitions,
        "replication_factor": _DEFAULT_REPLICATION if replicas is None else replicas,
        "assignments": [],
        "configs": [{"name": name, "value": value} for name, value in topic.configs.items()],
    }
