"""The words of `ottla acl`: users, operations and resources as they are typed, and ACLs as sentences."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ottla.cli.exits import MISUSED, CommandFailed
from ottla.cli.values import topic_name
from ottla.config.authorizer import is_principal
from ottla.security.acls import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Acl,
    Operation,
    PatternType,
    ResourceType,
    host_text,
    network,
)
from ottla.security.explained import KINDS, WORDS, Resource, as_json, word_of

_TYPED = re.compile(r"[A-Za-z]+:.+", re.DOTALL)
"""A principal with its type; a user's name with a colon in it is typed with `User:` before it."""

RESOURCES = "topic:NAME, group:NAME, cluster, transactional-id:NAME, token:NAME or user:NAME"
OPERATIONS: Mapping[str, Operation] = {
    each.name.lower().replace("_", "-"): each for each in Operation if each > Operation.ANY
}


def principal_of(text: str) -> str:
    """`alice`, `User:alice`, `*` for everyone. Raises CommandFailed."""
    if text == WILDCARD:
        return WILDCARD_PRINCIPAL
    typed = text if _TYPED.fullmatch(text) else f"User:{text}"
    if not is_principal(typed):
        raise CommandFailed(f"a user is a name such as alice, User:alice, or * for everyone, not {text!r}", MISUSED)
    return typed


def resource_of(text: str) -> Resource:
    """Raises CommandFailed."""
    word, colon, name = text.partition(":")
    kind = KINDS.get(word)
    if kind == ResourceType.CLUSTER and name in ("", CLUSTER_NAME):
        return Resource(kind, CLUSTER_NAME)
    if kind is None or not name or kind == ResourceType.CLUSTER:
        near = "" if colon or not text else f"\n  did you mean: topic:{text}"
        raise CommandFailed(f"a resource is {RESOURCES}, not {text!r}{near}", MISUSED)
    return Resource(kind, name)


def operation_of(text: str) -> Operation:
    """Raises CommandFailed."""
    operation = OPERATIONS.get(text.strip().lower().replace("_", "-"))
    if operation is None:
        raise CommandFailed(f"an operation is one of {', '.join(OPERATIONS)}, not {text!r}", MISUSED)
    return operation


def operations_of(text: str) -> list[Operation]:
    """`read,write`. Raises CommandFailed."""
    return list(dict.fromkeys(operation_of(part) for part in text.split(",")))


def why_never(acl: Acl, *, networks: bool) -> str | None:
    """Why an ACL can never match anything, in a sentence; None where it can. `networks`: the cluster understands
    networks in CIDR notation as hosts."""
    kind, name, host = ResourceType(acl.resource_type), acl.resource_name, acl.host
    is_prefix = acl.pattern_type == PatternType.PREFIXED
    if acl.operation != Operation.ALL and acl.operation not in SUPPORTED_OPERATIONS[kind]:
        known = ", ".join(map(word_of, SUPPORTED_OPERATIONS[kind]))
        return f"nothing asks to {word_of(acl.operation)} a {WORDS[kind]}: its operations are {known}"
    if host != WILDCARD and (reason := _host_never(host, networks=networks)) is not None:
        return reason
    if kind == ResourceType.TOPIC and (is_prefix or name != WILDCARD) and not (is_prefix and topic_name(name) is None):
        if name.endswith("*") and not is_prefix:
            return (
                f"no topic has a * in its name: for all that begin with {name[:-1]} give --prefixed topic:{name[:-1]}"
            )
        if topic_name(name) is not None:
            return "no topic can have such a name"
    if is_prefix and name == WILDCARD:
        return "a prefix * covers names that begin with an asterisk: for all names leave out --prefixed"
    return None


def _host_never(host: str, *, networks: bool) -> str | None:
    import ipaddress

    if network(host) is not None:
        return None if networks else f"the cluster compares hosts as text: the network {host} matches no address"
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return f"hosts are compared with the client's address: {host!r} is none"
    return None if host_text(host) == host else f"Kafka writes this address as {host_text(host)}"


def row(acl: Acl) -> Sequence[str]:
    """For a table: who, may, what, resource, name, host."""
    found = as_json(acl)
    name = found["resource_name"] + ("..." if acl.pattern_type == PatternType.PREFIXED else "")
    word = next((word for word, kind in KINDS.items() if kind == acl.resource_type), found["resource_type"])
    resource = word if acl.resource_type == ResourceType.CLUSTER else f"{word}:{name}"
    return found["principal"], found["permission"], found["operation"], resource, found["host"]
