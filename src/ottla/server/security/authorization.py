"""Permission checks of handlers (Kafka's `AuthHelper`). A node without an authorizer allows everything.

What a handler needs is declared at its `@api` (`permissions.py`). Where it gives a row for each resource it asks
`allowed`, which decides once for each name. A refused client hears what it lacks; the log says which rule decided
(`ottla.security.authorizer`).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import ConfigResourceType
from ottla.security.acls import CLUSTER_NAME, SUPPORTED_OPERATIONS, Operation, ResourceType

if TYPE_CHECKING:
    from ottla.drivers.ports import Settled
    from ottla.security.authorizer import Authorizer
    from ottla.server.ports import Asking, Listening
    from ottla.server.security.permissions import Need

ERRORS: Final[Mapping[ResourceType, ErrorCode]] = {
    ResourceType.TOPIC: ErrorCode.topic_authorization_failed,
    ResourceType.GROUP: ErrorCode.group_authorization_failed,
    ResourceType.CLUSTER: ErrorCode.cluster_authorization_failed,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.transactional_id_authorization_failed,
    ResourceType.DELEGATION_TOKEN: ErrorCode.delegation_token_authorization_failed,
    ResourceType.USER: ErrorCode.delegation_token_authorization_failed,
}
_SENTENCES: Final[Mapping[ResourceType, str]] = {
    ResourceType.TOPIC: "Topic authorization failed",
    ResourceType.GROUP: "Group authorization failed",
    ResourceType.CLUSTER: "Cluster authorization failed",
    ResourceType.TRANSACTIONAL_ID: "Transactional Id authorization failed",
    ResourceType.DELEGATION_TOKEN: "Delegation Token authorization failed",
    ResourceType.USER: "Delegation Token authorization failed",
}
"""How Kafka's clients begin the sentence of each error."""

_OPERATIONS: Final[Mapping[ResourceType, int]] = {
    kind: sum(1 << operation for operation in operations) for kind, operations in SUPPORTED_OPERATIONS.items()
}
"""A bit for each operation that anybody asks for."""


def refusal(context: Asking, operation: Operation, kind: ResourceType, name: str | None = None) -> KafkaError:
    """The error of a client that lacks a permission, which says who it is here and what it lacks. `name` only where
    the client itself named the resource: a name for its topic id would tell it more than it may know."""
    on = f"the {kind.name.lower().replace('_', ' ')}"
    if name is not None and kind != ResourceType.CLUSTER:
        on = f"{on[4:]} {name}"
    return KafkaError(ERRORS[kind], f"{_SENTENCES[kind]}: {context.principal} needs {operation.name} on {on}.")


def is_allowed(
    context: Asking, operation: Operation, kind: ResourceType, name: str, *, log_denial: bool = True
) -> bool:
    authorizer = context.node.authorizer
    return authorizer is None or authorizer.is_allowed(
        context.principal, context.client_host, operation, kind, name, log_denial=log_denial
    )


def is_allowed_on_cluster(context: Asking, operation: Operation, *, log_denial: bool = True) -> bool:
    return is_allowed(context, operation, ResourceType.CLUSTER, CLUSTER_NAME, log_denial=log_denial)


def is_allowed_for_any(context: Asking, operation: Operation, kind: ResourceType) -> bool:
    """Whether it is allowed on one resource of a type at least, whatever its name (`authorizeByResourceType`)."""
    authorizer = context.node.authorizer
    return authorizer is None or authorizer.is_allowed_for_any(context.principal, context.client_host, operation, kind)


def authorize(context: Asking, operation: Operation, kind: ResourceType, name: str) -> None:
    """Raises the error of the resource's type."""
    if not is_allowed(context, operation, kind, name):
        raise refusal(context, operation, kind, name)


def authorize_cluster(context: Asking, operation: Operation) -> None:
    """Raises CLUSTER_AUTHORIZATION_FAILED."""
    authorize(context, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def authorize_config(context: Asking, operation: Operation, resource_type: int, name: str) -> None:
    """Settings of topics and groups are theirs, all others are the cluster's. Raises the error of the resource."""
    if resource_type == ConfigResourceType.TOPIC:
        authorize(context, operation, ResourceType.TOPIC, name)
    elif resource_type == ConfigResourceType.GROUP:
        authorize(context, operation, ResourceType.GROUP, name)
    else:
        authorize_cluster(context, operation)


def enforce(context: Asking, request: Any, need: Need) -> None:
    """Ask for a permission that is declared as enforced. Raises the error of the resource's type."""
    if need.versions is not None and not need.versions[0] <= context.api_version <= need.versions[1]:
        return
    if need.at_controller and not decides_here(context.node):
        return
    name = getattr(request, need.where) if need.where else CLUSTER_NAME
    for operation, kind in need.instead:
        if is_allowed(context, operation, kind, CLUSTER_NAME, log_denial=False):
            return
    authorize(context, need.operation, need.kind, name or "")


def enforce_undeclared(context: Asking) -> None:
    """For an API without declared permissions. Raises CLUSTER_AUTHORIZATION_FAILED."""
    authorize_cluster(context, Operation.CLUSTER_ACTION)


def decides_here(node: Settled) -> bool:
    """Whether what only the controller decides is to be authorized by this node: it may be the active controller. From
    another one the request goes on in an Envelope, and the controller that opens it asks."""
    return bool(node.config.is_controller)


def authorized_operations(context: Asking, kind: ResourceType, name: str) -> int:
    """A bit for each operation that the client may do, by its code (KIP-430)."""
    authorizer = context.node.authorizer
    if authorizer is None:
        return _OPERATIONS[kind]
    return authorizer.authorized_operations(context.principal, context.client_host, kind, name)


def authorized_cluster_operations(context: Asking) -> int:
    """The same on the cluster: none without DESCRIBE."""
    if not is_allowed_on_cluster(context, Operation.DESCRIBE):
        return 0
    return authorized_operations(context, ResourceType.CLUSTER, CLUSTER_NAME)


class _Everything:
    """Names of which none is refused."""

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        return True


EVERYTHING: Final[Container[str]] = _Everything()


class Allowed:
    """The resources of a type that a client may do something with: `name in allowed`, decided once for each name."""

    __slots__ = ("_authorizer", "_context", "_kind", "_known", "_log_denial", "_operation")

    def __init__(
        self,
        authorizer: Authorizer,
        context: Asking,
        operation: Operation,
        kind: ResourceType,
        log_denial: bool = True,
    ) -> None:
        self._authorizer = authorizer
        self._context = context
        self._operation = operation
        self._kind = kind
        self._log_denial = log_denial
        self._known: dict[str, bool] = {}

    def __contains__(self, name: object) -> bool:
        assert isinstance(name, str)
        known = self._known.get(name)
        if known is None:
            context = self._context
            known = self._known[name] = self._authorizer.is_allowed(
                context.principal, context.client_host, self._operation, self._kind, name, log_denial=self._log_denial
            )
        return known


def allowed(
    context: Asking,
    operation: Operation,
    kind: ResourceType = ResourceType.TOPIC,
    *,
    log_denial: bool = True,
    on_cluster: Operation | None = None,
) -> Container[str]:
    """The names that a client may do something with. `on_cluster`: who may do that to the cluster may do it to all."""
    authorizer = context.node.authorizer
    if authorizer is None:
        return EVERYTHING
    if on_cluster is not None and is_allowed_on_cluster(context, on_cluster, log_denial=False):
        return EVERYTHING
    return Allowed(authorizer, context, operation, kind, log_denial)


def visible_topics(context: Asking) -> Container[str] | None:
    """The topics that a member may describe: its patterns match no others. None: all."""
    if context.node.authorizer is None:
        return None
    return allowed(context, Operation.DESCRIBE, log_denial=False)


def rules_changed(node: Listening) -> None:
    """The ACLs are not those of before: no connection may be answered by what was learned under the old ones."""
    for listener in node.listeners:
        for connection in listener.connections:
            connection.shortcuts.clear()
