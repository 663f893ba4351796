"""`ottla acl ...`: who may do what, like `kafka-acls.sh`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import App, Parameter

from ottla.cli import wire
from ottla.cli.client_security import ClientFile
from ottla.cli.exits import FAILED, MISUSED, OK, CommandFailed
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Flag
from ottla.cli.output import print_json, print_table
from ottla.cli.security.acl_words import (
    operation_of,
    operations_of,
    principal_of,
    resource_of,
    row,
    why_never,
)
from ottla.cli.values import Text
from ottla.errors import ErrorCode
from ottla.metadata.features import supports_networks_in_acls
from ottla.protocol.messages import ApiKey
from ottla.security.acls import (
    SUPPORTED_OPERATIONS,
    WILDCARD,
    AclFilter,
    Binding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    answered,
    described,
)
from ottla.security.explained import Resource, as_json, explained, sentence, word_of

app = App(name="acl", help="Say who may do what: add, list, remove and explain ACLs.", sort_key=8)

Prefixed = Annotated[
    bool,
    Parameter(
        name="--prefixed", negative="", show_default=False,
        help="The names are prefixes: topic:orders covers orders, orders-eu and so on.",
    ),
]  # fmt: skip
Host = Annotated[
    Text | None, Parameter(name="--host", help="The client's address, or a network such as 10.0.0.0/8; any without.")
]


@app.command(name="list")
def list_acls(
    *,
    user: Annotated[
        Text | None, Parameter(name="--user", help="Only ACLs of this user, such as alice, or * for those of everyone.")
    ] = None,
    resource: Annotated[
        Text | None, Parameter(name="--resource", help="Only ACLs that cover this resource, such as topic:orders.")
    ] = None,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """List ACLs: all, those of a user, or those that cover a resource."""
    wanted = AclFilter(principal=None if user is None else principal_of(user))
    if resource is not None:
        kind, name = resource_of(resource)
        wanted = wanted._replace(resource_type=kind, resource_name=name, pattern_type=PatternType.MATCH)
    found = sorted(acls(bootstrap, wanted), key=lambda acl: (acl.principal, acl))
    if json:
        print_json([as_json(acl) for acl in found])
    else:
        print_table(("USER", "MAY", "OPERATION", "RESOURCE", "HOST"), map(row, found))
    return OK


@app.command
def add(
    user: Text,
    operations: Text,
    resources: tuple[Text, ...],
    /,
    *,
    prefixed: Prefixed = False,
    deny: Annotated[Flag, Parameter(name="--deny", help="Forbid it, whatever else allows it.")] = False,
    host: Host = None,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Allow a user to do something: ottla acl add alice read,write topic:orders group:billing.

    An operation is left out for those of several resources that do not have it, here write for the group. What is
    there already stays as it is.

    Parameters
    ----------
    user
        A name such as alice, which is User:alice, or * for everyone.
    operations
        One or several, separated by commas: all, read, write, create, delete, alter, describe, describe-configs,
        alter-configs, cluster-action, idempotent-write.
    resources
        topic:NAME, group:NAME, cluster, transactional-id:NAME, token:NAME, user:NAME; the name * covers all.
    """
    wanted = _bindings(user, operations_of(operations), resources, prefixed=prefixed, deny=deny, host=host)
    networks = host is not None and "/" in host and supports_networks_in_acls(wire.finalized_features(bootstrap))
    warnings = {each: reason for each in wanted if (reason := why_never(each, networks=networks)) is not None}
    rows = [each.creation() for each in wanted]
    results = wire.ask(bootstrap, ApiKey.CREATE_ACLS, {"creations": rows})["results"]
    failed = [(each, result) for each, result in zip(wanted, results, strict=True) if result["error_code"]]
    added = [each for each in wanted if each not in dict(failed)]
    if json and added:
        print_json([{**as_json(each), "warning": warnings.get(each)} for each in added])
    elif not json:
        for each in added:
            print(sentence(each))
            if each in warnings:
                print(f"ottla: warning: this ACL can never match: {warnings[each]}", file=sys.stderr)
    if failed:
        raise CommandFailed(
            "\n  ".join(f"refused: {sentence(each)}: {_why(result)}" for each, result in failed), FAILED
        )
    return OK


def _bindings(
    user: str,
    operations: Sequence[Operation],
    resources: Sequence[str],
    *,
    prefixed: bool,
    deny: bool,
    host: str | None,
) -> list[Binding]:
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    permission = Permission.DENY if deny else Permission.ALLOW
    principal = principal_of(user)
    named = [resource_of(text) for text in resources]
    if prefixed and any(each.kind == ResourceType.CLUSTER for each in named):
        raise CommandFailed("--prefixed is not for the cluster: it has one name only", MISUSED)
    return [
        Binding(each.kind, each.name, pattern, principal, WILDCARD if host is None else host, operation, permission)
        for each in dict.fromkeys(named)
        for operation in operations
        if _fits(operation, each) or not any(_fits(operation, other) for other in named)
    ]


def _fits(operation: Operation, resource: Resource) -> bool:
    return operation == Operation.ALL or operation in SUPPORTED_OPERATIONS[resource.kind]


@app.command
def remove(
    user: Text,
    operations: Text | None = None,
    resources: tuple[Text, ...] | None = None,
    /,
    *,
    prefixed: Prefixed = False,
    host: Host = None,
    dry_run: Annotated[Flag, Parameter(name="--dry-run", help="Only show what would be removed.")] = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Remove ACLs of a user: all, those of some operations, or those of some operations on some resources.

    Both what allows and what denies is removed, and what was removed is printed.

    Parameters
    ----------
    user
        A name such as alice, or * for the ACLs of everyone.
    operations
        One or several, separated by commas; any means all that there are.
    resources
        Names as they were given to add; without them, of any resource.
    """
    principal = principal_of(user)
    kinds: list[Operation] = [Operation.ANY] if operations in (None, "any") else operations_of(operations or "")
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    named: list[Resource | None] = [resource_of(text) for text in resources or ()] or [None]
    filters = [
        AclFilter(
            ResourceType.ANY if each is None else each.kind,
            None if each is None else each.name,
            PatternType.PREFIXED if prefixed else PatternType.ANY if each is None else pattern,
            principal,
            host,
            operation,
            Permission.ANY,
        )
        for each in named
        for operation in kinds
    ]
    gone = _matching(bootstrap, filters) if dry_run else _removed(bootstrap, filters)
    if json:
        print_json([as_json(acl) for acl in gone])
        return OK
    for acl in gone:
        print(f"{'would remove' if dry_run else 'removed'}: {sentence(acl)}")
    if not gone:
        print(f"{principal} has no such ACL")
    return OK


def _matching(bootstrap: str, filters: Sequence[AclFilter]) -> list[Binding]:
    return sorted({acl for each in filters for acl in acls(bootstrap, each)})


def _removed(bootstrap: str, filters: Sequence[AclFilter]) -> list[Binding]:
    results = wire.ask(bootstrap, ApiKey.DELETE_ACLS, {"filters": [each.asked() for each in filters]})["filter_results"]
    for result in results:
        if result["error_code"]:
            raise CommandFailed(f"the ACLs could not be removed: {_why(result)}", FAILED)
    return sorted({answered(acl, acl) for result in results for acl in result["matching_acls"]})


@app.command
def explain(
    user: Text,
    operation: Text,
    resource: Text,
    /,
    *,
    host: Host = None,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Say whether a user may do something, and which rule decides: ottla acl explain alice read topic:orders.

    Parameters
    ----------
    user
        A name such as alice.
    operation
        What the user asks for, such as read.
    resource
        The resource, such as topic:orders, group:billing or cluster.
    """
    from ottla.cli.security.acl_explain import settings_of

    asked = operation_of(operation)
    kind, name = place = resource_of(resource)
    covering = acls(bootstrap, AclFilter(kind, name, PatternType.MATCH))
    found = explained(principal_of(user), asked, place, host, covering, settings_of(bootstrap))
    if json:
        print_json(found.as_json())
    else:
        print(found.text(word_of(asked)))
    return OK


def acls(bootstrap: str, wanted: AclFilter) -> list[Binding]:
    """The cluster's ACLs that a filter matches. Raises CommandFailed."""
    answer = wire.ask(bootstrap, ApiKey.DESCRIBE_ACLS, wanted.asked())
    if answer["error_code"]:
        raise CommandFailed(f"the ACLs are not shown: {_why(answer)}", FAILED)
    return described(answer)


def _why(row: Any) -> str:
    code = ErrorCode(row["error_code"])
    if code == ErrorCode.security_disabled:
        return (
            "the cluster checks no ACLs (SECURITY_DISABLED)\n"
            "  set authorizer.class.name and super.users on its nodes first: see docs/secure.md"
        )
    name = code.name.upper()
    return f"{row['error_message']} ({name})" if row["error_message"] else name
