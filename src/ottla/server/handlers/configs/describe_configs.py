"""DescribeConfigs, versions 1-4: settings with their sources and synonyms (KIP-133, 226, 412, 569, 714, 1043).

The settings of a resource are put together in `ottla.config.describe`; here are the errors, and which entries and
fields were asked for. Each resource has an error of its own, except that an unknown type fails them all.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from ottla.config import describe
from ottla.config.validation import validate_topic_name
from ottla.drivers.cooperative import run_yielding
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import ConfigResourceType
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import RequestContext, api
from ottla.server.connections.long_answers import RowsOf
from ottla.server.security.authorization import authorize_config
from ottla.server.security.permissions import Need, Refused, of_groups, of_topics

if TYPE_CHECKING:
    from ottla.drivers.ports import Settled
    from ottla.protocol.schemas.received import DescribeConfigsRequest, DescribeConfigsResource
    from ottla.protocol.schemas.sent import DescribeConfigsResourceResult as Entry
    from ottla.protocol.schemas.sent import DescribeConfigsResponse, DescribeConfigsResult

RESOURCES_AT_ONCE_MAX = 16
"""Describing a resource costs about 0.2 ms. After so many, others get their turn."""

_KNOWN_TYPES = frozenset(ConfigResourceType) - {ConfigResourceType.UNKNOWN}
_MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)
"""Kafka's standard sentence for INVALID_REQUEST, which clients print."""


def on_error(context: RequestContext, request: DescribeConfigsRequest, error: KafkaError) -> DescribeConfigsResponse:
    return {"results": RowsOf(request.resources, lambda resource: _failed(resource, error))}


NEEDS: Final = (
    of_topics(Operation.DESCRIBE_CONFIGS, "resources.resource_name"),
    of_groups(Operation.DESCRIBE_CONFIGS, "resources.resource_name"),
    Need(
        Operation.DESCRIBE_CONFIGS,
        ResourceType.CLUSTER,
        when="for settings of brokers, loggers and client metrics",
        refused=Refused.ROW,
    ),
)


@api(ApiKey.DESCRIBE_CONFIGS, versions=(1, 4), needs=NEEDS, on_error=on_error)
def handle(
    context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse | Awaitable[DescribeConfigsResponse]:
    if any(resource.resource_type not in _KNOWN_TYPES for resource in request.resources):
        raise KafkaError(ErrorCode.invalid_request, _MALFORMED)
    if len(request.resources) > RESOURCES_AT_ONCE_MAX:
        return _describe_many(context, request)
    rows = _Rows(context, request)
    return {"results": [rows.row(resource) for resource in request.resources]}


async def _describe_many(context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    def results() -> Generator[None, None, list[DescribeConfigsResult]]:
        rows = _Rows(context, request)
        done = []
        for resource in request.resources:
            done.append(rows.row(resource))
            if len(done) % RESOURCES_AT_ONCE_MAX == 0:
                yield
        return done

    return {"results": await run_yielding(results())}


class _Rows:
    """The rows of one answer. Topics with the same settings of their own share a list."""

    def __init__(self, context: RequestContext, request: DescribeConfigsRequest) -> None:
        self._context = context
        self._node = context.node
        self._request = request
        self._known: dict[tuple[frozenset[tuple[str, str]], tuple[str, ...] | None], list[Entry]] = {}

    def row(self, resource: DescribeConfigsResource) -> DescribeConfigsResult:
        try:
            return {
                "error_code": ErrorCode.none,
                "resource_type": resource.resource_type,
                "resource_name": resource.resource_name,
                "configs": self._configs(resource),
            }
        except KafkaError as error:
            return _failed(resource, error)

    def _configs(self, resource: DescribeConfigsResource) -> list[Entry]:
        """Raises KafkaError."""
        authorize_config(self._context, Operation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name)
        entries = _entries(self._node, resource.resource_type, resource.resource_name)
        keys = resource.configuration_keys
        if resource.resource_type != ConfigResourceType.TOPIC:
            return self._list(entries, keys)
        overrides = self._node.image.topic_config(resource.resource_name)
        same = frozenset(overrides.items()), None if keys is None else tuple(keys)
        found = self._known.get(same)
        if found is None:
            found = self._known[same] = self._list(entries, keys)
        return found

    def _list(self, entries: Iterable[Entry], keys: Iterable[str] | None) -> list[Entry]:
        with_documentation = self._request.include_documentation
        return list(_asked(entries, keys, self._request.include_synonyms, with_documentation))


def _asked(
    entries: Iterable[Entry], keys: Iterable[str] | None, with_synonyms: bool, with_documentation: bool
) -> Iterator[Entry]:
    wanted = frozenset(keys or ())
    for entry in entries:
        if wanted and entry["name"] not in wanted:
            continue
        if not with_synonyms:
            entry["synonyms"] = ()
        if not with_documentation and entry["documentation"]:
            entry["documentation"] = None
        yield entry


def _failed(resource: DescribeConfigsResource, error: KafkaError) -> DescribeConfigsResult:
    return {
        "error_code": error.code,
        "error_message": error.message or "",
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "configs": [],
    }


def _entries(node: Settled, resource_type: int, name: str) -> Iterable[Entry]:
    """The settings of one resource. Raises KafkaError."""
    image, config = node.image, node.config.effective
    if resource_type == ConfigResourceType.TOPIC:
        validate_topic_name(name)
        if image.topic(name) is None:
            raise KafkaError(ErrorCode.unknown_topic_or_partition)
        return describe.topic_entries(config, image.topic_config(name))
    if resource_type == ConfigResourceType.BROKER:
        if not name:
            return describe.cluster_entries(config)
        _check_is_self(node, name, " or empty string, but received")
        return describe.broker_entries(config)
    if resource_type == ConfigResourceType.BROKER_LOGGER:
        if not name:
            raise KafkaError(ErrorCode.invalid_request, "Broker id must not be empty")
        _check_is_self(node, name, " but received")
        return describe.logger_entries(_loggers())
    what = "Group" if resource_type == ConfigResourceType.GROUP else "Client metrics subscription"
    if not name:
        raise KafkaError(ErrorCode.invalid_request, f"{what} name must not be empty")
    overrides = image.config(resource_type, name)
    if resource_type == ConfigResourceType.GROUP:
        return describe.group_entries(config, overrides)
    return describe.client_metrics_entries(overrides)


def _check_is_self(node: Settled, name: str, but: str) -> None:
    """Only a node itself knows its settings. Raises KafkaError INVALID_REQUEST for another broker's id."""
    try:
        node_id = int(name)
    except ValueError:
        why = f"Broker id must be an integer, but it is: {name}"
        raise KafkaError(ErrorCode.invalid_request, why) from None
    if node_id != node.node_id:
        why = f"Unexpected broker id, expected {node.node_id}{but} {name}"
        raise KafkaError(ErrorCode.invalid_request, why)


_LEVELS = {logging.CRITICAL: "FATAL", logging.WARNING: "WARN"}


def _loggers() -> Iterator[tuple[str, str]]:
    """Name and level of the loggers of this process, in Kafka's words."""
    manager = logging.Logger.manager
    for name in ["root", *sorted(manager.loggerDict)]:
        logger = logging.getLogger(None if name == "root" else name)
        level = logger.getEffectiveLevel()
        yield name, _LEVELS.get(level, logging.getLevelName(level))
