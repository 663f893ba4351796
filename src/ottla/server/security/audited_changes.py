"""Changes of the metadata as events of the audit log: one for each resource, with values before and after.

Heard at the active controller's door (`LocalControllerChannel.call`), so that each change is heard once, with the image
that it was decided on and the records that it came to, whoever forwarded it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ottla.controller.changes import CLUSTER, Change, Resource, acl_resource, changes_of, config_resource, quota_name
from ottla.drivers.controller.controller_channel import THE_BROKER, Requester
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.security.acls import CLUSTER_NAME, ResourceType
from ottla.server.api import OF_BROKERS, OF_CONTROLLERS

if TYPE_CHECKING:
    from ottla.controller.decision import Decision
    from ottla.drivers.audit.audit_log import Event, Expand
    from ottla.metadata.image import MetadataImage
    from ottla.server.security.permissions import Need

OTHERS: Final = frozenset(
    {
        ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT, ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.ALTER_PARTITION, ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
    }
)  # fmt: skip
"""What the controller is asked that is nobody's administration: nodes among themselves, and questions."""


class Row(NamedTuple):
    """What a request came to for one resource."""

    resource: Resource
    error: int
    message: str | None


def _named(kind: str, rows: str, name: str) -> Callable[[Mapping[str, Any], Mapping[str, Any]], Iterator[Row]]:
    def rows_of(request: Mapping[str, Any], response: Mapping[str, Any]) -> Iterator[Row]:
        for row in response[rows]:
            yield _row(Resource(kind, str(row.get(name) or row.get("topic_id") or "")), row)

    return rows_of


def _row(resource: Resource, row: Mapping[str, Any]) -> Row:
    return Row(resource, row.get("error_code", 0), row.get("error_message"))


def _configs(request: Mapping[str, Any], response: Mapping[str, Any]) -> Iterator[Row]:
    for row in response["responses"]:
        yield _row(config_resource(row["resource_type"], row["resource_name"]), row)


def _new_acls(request: Mapping[str, Any], response: Mapping[str, Any]) -> Iterator[Row]:
    for asked, row in zip(request["creations"], response["results"], strict=False):
        resource = acl_resource(asked["resource_type"], asked["resource_name"], asked.get("resource_pattern_type", 3))
        yield _row(resource, row)


def _old_acls(request: Mapping[str, Any], response: Mapping[str, Any]) -> Iterator[Row]:
    """Only what failed, or what matched nothing: each ACL that went is a change."""
    for row in response["filter_results"]:
        if row.get("error_code") or not row["matching_acls"]:
            yield _row(CLUSTER, row)


def _quotas(request: Mapping[str, Any], response: Mapping[str, Any]) -> Iterator[Row]:
    for row in response["entries"]:
        entity = [(each["entity_type"], each["entity_name"]) for each in row["entity"]]
        yield _row(Resource("QUOTA", quota_name(entity)), row)


def _reassigned(request: Mapping[str, Any], response: Mapping[str, Any]) -> Iterator[Row]:
    for row in response["responses"]:
        failed: Mapping[str, Any] = next((each for each in row["partitions"] if each.get("error_code")), {})
        yield _row(Resource("TOPIC", row["name"]), failed)


def _broker(request: Mapping[str, Any], response: Mapping[str, Any]) -> Iterator[Row]:
    yield _row(Resource("BROKER", str(request["broker_id"])), response)


def _controller(request: Mapping[str, Any], response: Mapping[str, Any]) -> Iterator[Row]:
    yield _row(Resource("CONTROLLER", str(request["controller_id"])), response)


ROWS: Final[Mapping[int, Callable[[Mapping[str, Any], Mapping[str, Any]], Iterator[Row]]]] = {
    ApiKey.CREATE_TOPICS: _named("TOPIC", "topics", "name"),
    ApiKey.DELETE_TOPICS: _named("TOPIC", "responses", "name"),
    ApiKey.CREATE_PARTITIONS: _named("TOPIC", "results", "name"),
    ApiKey.ALTER_CONFIGS: _configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs,
    ApiKey.CREATE_ACLS: _new_acls,
    ApiKey.DELETE_ACLS: _old_acls,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _named("USER", "results", "user"),
    ApiKey.STORE_USER_SCRAM_CREDENTIALS: _named("USER", "results", "user"),
    ApiKey.ALTER_CLIENT_QUOTAS: _quotas,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _reassigned,
    ApiKey.UNREGISTER_BROKER: _broker,
    ApiKey.UNREGISTER_CONTROLLER: _controller,
}
"""Where the answer has its rows. Any other request is about the cluster, or about what it changes."""


class Heard(Protocol):
    """The audit log that hears of changes: `audit.Audit`."""

    @property
    def node_id(self) -> int: ...
    def changed(self, events: Expand, /) -> None: ...
    def rule(self, principal: str, host: str, needs: Sequence[Need], resource: Resource, /) -> str | None: ...


class Watched:
    """A request to the controller that will be an event, or several, of the audit log."""

    __slots__ = ("_api_key", "_audit", "_image", "_records", "_request", "_requester")

    def __init__(self, audit: Heard, api_key: int, request: Mapping[str, Any], requester: Requester) -> None:
        self._audit = audit
        self._api_key = api_key
        self._request = request
        self._requester = requester
        self._image: MetadataImage | None = None
        self._records: Sequence[Any] = ()

    def heard(self, image: MetadataImage, decision: Decision[Any]) -> None:
        """The controller has decided."""
        self._image, self._records = image, decision.records

    def answering(self, response: Mapping[str, Any]) -> Generator[int, None, None]:
        """The decision is committed. The rows are read now: the answer is freed once it is encoded."""
        found: dict[Resource, Row] = {}
        whole = ROWS.get(self._api_key)
        if whole is None:
            found[CLUSTER] = _row(CLUSTER, response)
        else:
            for row in whole(self._request, response):
                known = found.get(row.resource)
                if known is None or (row.error and not known.error):
                    found[row.resource] = row
                yield 1
        self._put(found, is_whole=whole is None)

    def failed(self, error: BaseException) -> None:
        """Refused as a whole, or given up on: then what was decided may stand or not."""
        if isinstance(error, KafkaError):
            if error.code is ErrorCode.not_controller:  # asked again elsewhere, where it is heard
                return
            row = Row(CLUSTER, error.code, error.message)
        else:
            row = Row(CLUSTER, ErrorCode.unknown_server_error, "the node stopped before the outcome was known")
        self._put({CLUSTER: row}, is_whole=True)

    def _put(self, found: Mapping[Resource, Row], *, is_whole: bool) -> None:
        image, records, audit = self._image, self._records, self._audit
        requester, api_key = self._requester, self._api_key
        by = {
            "class": "administration",
            "event": event_of(api_key),
            "principal": f"Node:{audit.node_id}" if requester is THE_BROKER else requester.principal,
            "host": None if requester is THE_BROKER else requester.client_host,
            "client_id": requester.client_id,
        }
        rule_of = (lambda resource: None) if requester is THE_BROKER else self._rules(audit)
        only_checked = True if self._request.get("validate_only") else None

        def events() -> Iterator[Event | None]:
            grouped: dict[Resource, list[Mapping[str, Any]]] = {}
            if image is not None:
                for change in changes_of(records, image):
                    if change is not None:
                        grouped.setdefault(change.resource, []).append(shown(change))
                    yield None
            rows = dict(found)
            if is_whole and grouped and not any(row.error for row in rows.values()):
                rows.clear()
            for resource in dict.fromkeys((*rows, *grouped)):
                row, changed = rows.get(resource), grouped.get(resource)
                about = {
                    **by,
                    "resource": text_of(resource),
                    "allowed": True,
                    "rule": rule_of(resource),
                    "validate_only": only_checked,
                }
                if changed or row is None or not row.error:
                    yield {**about, "changes": changed}
                if row is not None and row.error:
                    yield {**about, "error": ErrorCode(row.error).name.upper(), "error_message": row.message}

        audit.changed(events)

    def _rules(self, audit: Heard) -> Callable[[Resource], str | None]:
        table = OF_CONTROLLERS if self._api_key in OF_CONTROLLERS.table else OF_BROKERS
        needs = table.load(self._api_key).needs if self._api_key in table.table else ()
        declared: tuple[Need, ...] = tuple(each for each in needs if not isinstance(each, str))
        principal, host = self._requester.principal, self._requester.client_host
        return lambda resource: audit.rule(principal, host, declared, resource)


def event_of(api_key: int) -> str:
    """CREATE_TOPICS as Kafka writes it: CreateTopics."""
    return "".join(part.capitalize() for part in ApiKey(api_key).name.split("_"))


def shown(change: Change) -> Mapping[str, Any]:
    """A change in an event."""
    return {"what": change.what, "before": change.before, "after": change.after}


def text_of(resource: Resource) -> str:
    """A resource as `ottla acl` writes it: topic:orders, user:alice, cluster."""
    if resource == CLUSTER or (resource.kind, resource.name) == (ResourceType.CLUSTER.name, CLUSTER_NAME):
        return "cluster"
    return f"{resource.kind.lower().replace('_', '-')}:{resource.name}"
