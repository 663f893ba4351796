"""Writes docs/reference/permissions.md from what the handlers declare: `python -m tools.permissions_page [FILE]`.

Without a file it writes to standard output. A test fails when the file in the repository is not what this gives.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping

from ottla.protocol.messages import ApiKey
from ottla.registry.handlers import ROUTES as REGISTRY_ROUTES
from ottla.security.acls import Operation, ResourceType
from ottla.server import api
from ottla.server.api import Api
from ottla.server.controller_handlers import CONTROLLER_TABLE
from ottla.server.handlers import OWN, TABLE, Served
from ottla.server.http.pages import ROUTES
from ottla.server.security.permissions import Need, Needs, Open, Refused
from tools.pages import write_page

INTRODUCTION = """\
# Permissions

You will find which ACL a client needs for each API, and what it hears without it.

This page is rendered from the declarations of the handlers, which the tests compare with Apache Kafka's answers:
`python -m tools.permissions_page docs/reference/permissions.md`.

A permission is an operation on a resource: a topic, a group, a transactional id, or the cluster. Super users have all
of them, and so has everybody on a node without `authorizer.class.name`. READ, WRITE, DELETE and ALTER imply DESCRIBE;
ALTER_CONFIGS implies DESCRIBE_CONFIGS.

| resource | error of a client that lacks a permission |
|---|---|
| topic | TOPIC_AUTHORIZATION_FAILED (29) |
| group | GROUP_AUTHORIZATION_FAILED (30) |
| cluster | CLUSTER_AUTHORIZATION_FAILED (31) |
| transactional id | TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53) |

Permissions come before existence: a client hears the same of a topic that it may not describe, whether there is one or
not. A request by topic id tells an unknown id (UNKNOWN_TOPIC_ID) from a refused one, as Kafka does. A produce request
with `acks=0` has no answer; where it is refused, its connection is closed.

A change of the ACLs counts from the next request on, on open connections too. A fetch that waits for records is
answered by the decision that was made when it came.

## Clients

The versions are those that Ottla serves. Who has what is in the column *or* needs nothing else. An API that the
controller decides is authorized there, with the client's principal and address.
"""

CONTROLLERS = """
## Between nodes

Nodes need CLUSTER_ACTION on the cluster, or to be super users, and tools that ask a controller directly need what the
table says. An Envelope needs CLUSTER_ACTION of the broker that sends it; the request inside is authorized for the
client that the broker names. FindCoordinator of share-partitions, Fetch with a replica's id, AddPartitionsToTxn from
version 4 on and the APIs of share state above are also for nodes.
"""

OWN_APIS = """
## Ottla's own

APIs that Kafka does not have: `ottla client list`, `ottla client disconnect`, `ottla user disconnect` and
[mirrors](../replicate.md#scram-users) use them, and no other client is told of them. StoreUserScramCredentials is for
connections over TLS or SASL that showed no delegation token.
"""

HTTP = """
## HTTP port

A page is asked by the user of the login (`ottla.http.security.protocol`), or by User:ANONYMOUS where no login is asked
for. Without a login a page that needs one answers 401, without the permission 403.

| page | operation | on |
|---|---|---|
"""

REGISTRY = """
## Schema registry

A registry with a login asks the cluster's ACLs, by the topic of a subject: `orders` for `orders-key` and
`orders-value`, else the topic of the subject's own name ([schema registry](../registry.md#logins-and-permissions)). A
request for a whole context needs the operation on the cluster.

| request | operation | on |
|---|---|---|
"""

HEAD = "\n| API | versions | operation | on | or | refused |\n|---|---|---|---|---|---|\n"

_KINDS: Mapping[ResourceType, str] = {
    ResourceType.TOPIC: "topic",
    ResourceType.GROUP: "group",
    ResourceType.CLUSTER: "cluster",
    ResourceType.TRANSACTIONAL_ID: "transactional id",
    ResourceType.DELEGATION_TOKEN: "delegation token",
    ResourceType.USER: "user",
}
_WHERE: Mapping[str, str] = {"subject": "the subject", "references": "each subject that it refers to"}
_LEFT_OUT: Mapping[Refused, str] = {Refused.REQUEST: "", Refused.ROW: "", Refused.OMITTED: "; others are left out"}
_REFUSED: Mapping[Refused, str] = {
    Refused.REQUEST: "the request",
    Refused.ROW: "the row",
    Refused.OMITTED: "left out",
}


def document() -> str:
    """The whole page."""
    return "".join(_parts())


def _parts() -> Iterator[str]:
    yield INTRODUCTION
    yield HEAD
    yield from _table(TABLE, api.load)
    yield OWN_APIS
    yield HEAD
    yield from _table(OWN, api.load)
    yield CONTROLLERS
    yield HEAD
    shared = {key for key, served in TABLE.items() if (other := CONTROLLER_TABLE.get(key)) and _same(served, other)}
    own = {key: served for key, served in CONTROLLER_TABLE.items() if key not in shared}
    yield from _table(own, api.load_for_controller)
    yield HTTP
    for route in ROUTES:
        yield from _pages(route.path, route.needs)
    yield REGISTRY
    for each in REGISTRY_ROUTES:
        yield from _pages(f"{each.method} {each.path}", each.needs)


def _pages(path: str, needs: Needs) -> Iterator[str]:
    if isinstance(needs, Open):
        yield f"| `{path}` | none: {needs.reason} | |\n"
        return
    for need in needs:
        on = _KINDS[need.kind] + (f" of {_WHERE.get(need.where, need.where)}" if need.where else "")
        yield f"| `{path}` | {need.operation.name} | {on}{_LEFT_OUT[need.refused]} |\n"


def _same(of_broker: Served, of_controller: Served) -> bool:
    return of_controller.module == f"handlers.{of_broker.module}"


def _table(table: Mapping[int, Served], load: Callable[[int], Api]) -> Iterator[str]:
    for key in sorted(table, key=lambda key: _name(key)):
        loaded = load(key)
        needs = loaded.needs
        if isinstance(needs, Open):
            yield f"| {_name(key)} | {_versions(loaded)} | none: {needs.reason} | | | |\n"
            continue
        for need in needs:
            yield f"| {_name(key)} | {_versions(loaded, need)} | {_row(need)} |\n"


def _name(key: int) -> str:
    return "".join(part.capitalize() for part in ApiKey(key).name.split("_"))


def _versions(loaded: Api, need: Need | None = None) -> str:
    first, last = loaded.min_version, loaded.max_version
    if need is not None and need.versions is not None:
        first, last = need.versions
    return str(first) if first == last else f"{first}-{last}"


def _row(need: Need) -> str:
    on = _KINDS[need.kind]
    if need.where:
        on += f" (`{need.where}`)"
    if need.when:
        on += f", {need.when}"
    return f"{need.operation.name} | {on} | {', '.join(map(_alternative, need.instead))} | {_REFUSED[need.refused]}"


def _alternative(other: tuple[Operation, ResourceType]) -> str:
    operation, kind = other
    return f"{operation.name} on {'the cluster' if kind == ResourceType.CLUSTER else f'any {_KINDS[kind]}'}"


if __name__ == "__main__":
    write_page(document(), sys.argv[1:])
