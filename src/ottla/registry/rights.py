"""Permissions of users of the registry. A subject is protected by the ACLs of a topic.

The subjects `orders-key` and `orders-value` belong to the topic `orders`; any other subject to the topic of its own
name, which need not exist: an ACL on `com.acme.Order` or on all topics that begin with `com.acme.` is enough. A subject
in another context than the default one has the context in the name of its topic, `:.staging:orders`: rights in one
context are none in another.

    see a schema, look one up, check compatibility   DESCRIBE, which READ and WRITE imply
    register                                         WRITE, and DESCRIBE of each subject that is referred to
    delete                                           DELETE
    configuration and mode                           DESCRIBE_CONFIGS and ALTER_CONFIGS
    of everything, or of a whole context             the same on the cluster

The routes declare it (`handlers.ROUTES`), `ottla.registry.app` asks before a handler is called, handlers leave out what
may not be seen. A subject that may not be seen is refused whether there is one or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.registry import subjects
from ottla.registry.api_errors import ApiError
from ottla.security.acls import CLUSTER_NAME, Operation, ResourceType
from ottla.server.security.permissions import Need, Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.security.authorizer import Authorizer

SUFFIXES: Final = ("-key", "-value")
SUBJECT: Final = "subject"
"""`Need.where` of what is asked for the subject in the path, before the handler is called."""


def of_subject(operation: Operation) -> Need:
    """An operation on the topic of the subject in the path."""
    return Need(operation, ResourceType.TOPIC, SUBJECT, enforced=True)


def of_schema(operation: Operation) -> Need:
    """An operation on the topic of one of the subjects that have the schema; the handler asks."""
    return Need(operation, ResourceType.TOPIC, "a subject that has the schema")


def of_references(operation: Operation) -> Need:
    """An operation on the topics of the subjects that a sent schema refers to; asked where its body is read."""
    return Need(operation, ResourceType.TOPIC, "references")


def of_listed(operation: Operation) -> Need:
    """An operation on the topic of each subject of the answer; the handler leaves out the others."""
    return Need(operation, ResourceType.TOPIC, "each subject", refused=Refused.OMITTED)


def topic_of(subject: str) -> str | None:
    """The topic whose ACLs protect a subject; None for a whole context, which is the cluster's."""
    found = subjects.parse(subject)
    if not found.name or found.context == subjects.GLOBAL_CONTEXT:
        return None
    name = next((found.name.removesuffix(each) for each in SUFFIXES if found.name.endswith(each)), found.name)
    return subjects.prefix_of(found.context) + (name or found.name)


class Rights:
    """The permissions of one caller. Everything is allowed where the registry asks nobody for a login."""

    def may(self, operation: Operation, subject: str, *, log_denial: bool = False) -> bool:
        """Whether an operation on a subject is allowed."""
        return True

    def may_on_cluster(self, operation: Operation) -> bool:
        return True

    @property
    def principal(self) -> str:
        return "User:ANONYMOUS"

    def require(self, operation: Operation, subject: str) -> None:
        """Raises ApiError 40301."""
        if not self.may(operation, subject, log_denial=True):
            topic = topic_of(subject)
            raise denied(self.principal, operation, "the cluster" if topic is None else f"topic {topic}")

    def require_on_cluster(self, operation: Operation) -> None:
        """Raises ApiError 40301."""
        if not self.may_on_cluster(operation):
            raise denied(self.principal, operation, "the cluster")


ALL: Final = Rights()


class UserRights(Rights):
    """What the cluster's ACLs allow a user."""

    def __init__(self, principal: str, host: str, authorizer: Callable[[], Authorizer | None]) -> None:
        """`authorizer` gives the newest one; None where the cluster checks no ACLs."""
        self._principal = principal
        self._host = host
        self._authorizer = authorizer

    @property
    def principal(self) -> str:
        return self._principal

    def may(self, operation: Operation, subject: str, *, log_denial: bool = False) -> bool:
        topic = topic_of(subject)
        if topic is None:
            return self._is_allowed(operation, ResourceType.CLUSTER, CLUSTER_NAME, log_denial)
        return self._is_allowed(operation, ResourceType.TOPIC, topic, log_denial)

    def may_on_cluster(self, operation: Operation) -> bool:
        return self._is_allowed(operation, ResourceType.CLUSTER, CLUSTER_NAME, True)

    def _is_allowed(self, operation: Operation, kind: ResourceType, name: str, log_denial: bool) -> bool:
        authorizer = self._authorizer()
        if authorizer is None:
            return True
        # On the cluster there are no operations READ, WRITE and DELETE: there it is ALTER that changes schemas.
        if kind == ResourceType.CLUSTER and operation in (Operation.WRITE, Operation.DELETE):
            operation = Operation.ALTER
        return authorizer.is_allowed(self._principal, self._host, operation, kind, name, log_denial=log_denial)


def denied(principal: str, operation: Operation, on: str) -> ApiError:
    return ApiError(40301, f"{principal} needs {operation.name} on {on}")
