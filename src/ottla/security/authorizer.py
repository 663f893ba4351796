"""Who may do what: Kafka's StandardAuthorizer over the ACLs of the metadata image."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from ottla.security.acls import Acl, Operation, ResourceType


class Verdict:
    """A decision: whether it is allowed, and the rule that decided, as Kafka words it."""

    __slots__ = ("acl", "allowed", "default")

    def __init__(self, allowed: bool, acl: Acl | None = None, default: bool = True) -> None:
        self.allowed = allowed
        self.acl = acl
        """The ACL that decided; None where none did."""
        self.default = default
        """Whether a default decided, rather than that the user is a super user."""

    @property
    def rule(self) -> str:
        raise NotImplementedError


class Authorizer:
    """The interface that handlers see."""

    generation: int
    """Changes with every change of the ACLs."""

    def __init__(self, super_users: Iterable[str] = (), allow_everyone_if_no_acl: bool = False) -> None: ...

    def is_allowed(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str, *, log_denial: bool = True
    ) -> bool:
        raise NotImplementedError

    def decide(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str, *, log_denial: bool = True
    ) -> Verdict:
        raise NotImplementedError

    def is_allowed_for_any(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        """Whether the principal may do it to at least one resource of the kind."""
        raise NotImplementedError

    def authorized_operations(self, principal: str, host: str, kind: ResourceType, name: str) -> int:
        """A bit for each operation that is allowed, by its code (KIP-430)."""
        raise NotImplementedError

    def apply(self, changes: Mapping[UUID, Acl | None], before: Mapping[UUID, Acl]) -> None:
        """Take over changed ACLs by id, None for one that is gone; `before` has what they were."""
        raise NotImplementedError
