"""The words of ACLs, with Kafka's codes, and the filters that select ACLs (`ResourcePatternFilter`,
`AccessControlEntryFilter`).

An ACL is the record of the metadata log that created it, or anything else with the same attributes: `Acl`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple, Protocol

CLUSTER_NAME: Final = "kafka-cluster"
"""The only name of a resource of type CLUSTER."""

WILDCARD: Final = "*"
"""As a host or as a literal resource name: any."""

WILDCARD_PRINCIPAL: Final = "User:*"
ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a client that did not log in."""


class _Code(IntEnum):
    """An IntEnum that hashes as quickly as a number; Enum's own hash is a Python function."""

    __hash__ = int.__hash__


class ResourceType(_Code):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Code):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(_Code):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(_Code):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


SUPPORTED_OPERATIONS: Mapping[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION, Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}  # fmt: skip
"""Operations that anything asks for, by type of resource (Kafka's `AclEntry.supportedOperations`)."""


class Acl(Protocol):
    """The attributes of an `AccessControlEntryRecord` besides its id."""

    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...
    @property
    def pattern_type(self) -> int: ...
    @property
    def principal(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def operation(self) -> int: ...
    @property
    def permission_type(self) -> int: ...


class Binding(NamedTuple):
    """An ACL without an id: what makes two ACLs the same (Kafka's `StandardAcl`)."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    def creation(self) -> dict[str, Any]:
        """The ACL as CreateAcls has it."""
        return {
            "resource_type": self.resource_type,
            "resource_name": self.resource_name,
            "resource_pattern_type": self.pattern_type,
            "principal": self.principal,
            "host": self.host,
            "operation": self.operation,
            "permission_type": self.permission_type,
        }


def binding(acl: Acl) -> Binding:
    return Binding(
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )


def answered(resource: Mapping[str, Any], acl: Mapping[str, Any]) -> Binding:
    """An ACL in an answer, from the rows of its resource and of itself; DeleteAcls has one row for both."""
    return Binding(
        resource["resource_type"],
        resource["resource_name"],
        resource["pattern_type"],
        acl["principal"],
        acl["host"],
        acl["operation"],
        acl["permission_type"],
    )


def described(answer: Mapping[str, Any]) -> list[Binding]:
    """The ACLs in an answer to DescribeAcls."""
    return [answered(resource, acl) for resource in answer["resources"] for acl in resource["acls"]]


def shown(acl: Acl) -> str:
    """An ACL as Kafka's `StandardAcl.toString` writes it."""
    return (
        f"StandardAcl[resourceType={ResourceType(acl.resource_type).name}, resourceName={acl.resource_name}, "
        f"patternType={PatternType(acl.pattern_type).name}, principal={acl.principal}, host={acl.host}, "
        f"operation={Operation(acl.operation).name}, permissionType={Permission(acl.permission_type).name}]"
    )


class AclFilter(NamedTuple):
    """Selects ACLs; None and ANY match everything."""

    resource_type: int = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = Operation.ANY
    permission_type: int = Permission.ANY

    @property
    def unknown_part(self) -> str | None:
        """Which half of the filter has a code that means nothing, in Kafka's words; None where both are known."""
        if self.resource_type not in _RESOURCE_TYPES or self.pattern_type not in _PATTERN_TYPES:
            return "patternFilter"
        if self.operation not in _OPERATIONS or self.permission_type not in _PERMISSIONS:
            return "entryFilter"
        return None

    @property
    def is_exact(self) -> bool:
        """Whether it can match one ACL only, which it names whole."""
        return (
            None not in (self.resource_name, self.principal, self.host)
            and self.pattern_type in (PatternType.LITERAL, PatternType.PREFIXED)
            and ResourceType.ANY not in (self.resource_type, self.operation, self.permission_type)
        )

    def asked(self) -> dict[str, Any]:
        """The filter as DescribeAcls and DeleteAcls have it."""
        return {
            "resource_type_filter": self.resource_type,
            "resource_name_filter": self.resource_name,
            "pattern_type_filter": self.pattern_type,
            "principal_filter": self.principal,
            "host_filter": self.host,
            "operation": self.operation,
            "permission_type": self.permission_type,
        }

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission_type in (Permission.ANY, acl.permission_type)
            and (self.principal is None or self.principal == acl.principal)
            and (self.host is None or self.host == acl.host)
            and self._matches_name(acl)
        )

    def _matches_name(self, acl: Acl) -> bool:
        """MATCH finds every pattern that covers the name; ANY finds the patterns that have this name themselves."""
        asked, name = self.pattern_type, self.resource_name
        if asked not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if name is None or name == acl.resource_name:
            return True
        if asked != PatternType.MATCH:
            return False
        if acl.pattern_type == PatternType.LITERAL:
            return acl.resource_name == WILDCARD
        return name.startswith(acl.resource_name)


_RESOURCE_TYPES = frozenset(ResourceType) - {ResourceType.UNKNOWN}
_PATTERN_TYPES = frozenset(PatternType) - {PatternType.UNKNOWN}
_OPERATIONS = frozenset(Operation) - {Operation.UNKNOWN}
_PERMISSIONS = frozenset(Permission) - {Permission.UNKNOWN}


def host_text(host: str) -> str:
    """An address as ACLs name it: as Java writes it, all eight groups of an IPv6 address, and IPv4 where it is that."""
    if ":" not in host:
        return host
    address, percent, scope = host.partition("%")
    try:
        parsed = ipaddress.IPv6Address(address)
    except ValueError:
        return host
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    groups = parsed.exploded.split(":")
    return ":".join(group.lstrip("0") or "0" for group in groups) + percent + scope


class HostPattern:
    """A host of an ACL as KIP-1276 reads it: a network in CIDR notation; one that cannot be parsed matches nothing."""

    __slots__ = ("_network",)

    def __init__(self, text: str) -> None:
        self._network = network(text)

    def matches(self, host: str) -> bool:
        if self._network is None:
            return False
        try:
            return ipaddress.ip_address(host) in self._network
        except ValueError:
            return False


def network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """The network that an address with a prefix length names; None for anything else.

    As Kafka's `CidrUtils`: bits behind the prefix do not matter, an IPv4 address may have leading zeros, an IPv6 one
    brackets and a scope, and may not be an IPv4 address in IPv6's notation.
    """
    address, slash, length = text.partition("/")
    if not slash or len(length) > 3 or not length.isascii() or not length.isdecimal():
        return None
    try:
        if ":" not in address:
            parts = address.split(".")
            if len(length) > 2 or not all(part.isascii() and part.isdecimal() and len(part) <= 3 for part in parts):
                return None
            return ipaddress.IPv4Network((".".join(str(int(part)) for part in parts), int(length)), strict=False)
        if address.startswith("[") and address.endswith("]"):
            address = address[1:-1]
        parsed = ipaddress.IPv6Address(address)
        if parsed.ipv4_mapped is not None:
            return None
        return ipaddress.IPv6Network((int(parsed), int(length)), strict=False)
    except ValueError:
        return None
