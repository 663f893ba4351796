"""`/kafka-acl` and `/kafka-acl-extended` (`ZkAclStore`): a znode for each resource, whose name is in the path as it is.

A name may hold a `/`: it is all that follows the type, and its parts are znodes without content of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ottla.security.acls import Binding, Operation, PatternType, Permission, ResourceType
from ottla.znodes.tree import BadZnode, Children, Tree, Znode, fields_of, to_json

LITERAL_ACLS: Final = "/kafka-acl"
EXTENDED_ACLS: Final = "/kafka-acl-extended"
PREFIXED_ACLS: Final = "/kafka-acl-extended/prefixed"
"""Lower case, whatever the comments in Kafka's `ZkData` show."""


def _pascal(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


RESOURCES: Final[Mapping[str, int]] = {
    _pascal(each.name): each.value for each in ResourceType if each > ResourceType.ANY
}
_OPERATIONS = {_pascal(each.name): each.value for each in Operation if each > Operation.ANY}
_PERMISSIONS = {_pascal(each.name): each.value for each in (Permission.ALLOW, Permission.DENY)}
_RESOURCE_NAMES = {number: name for name, number in RESOURCES.items()}
_OPERATION_NAMES = {number: name for name, number in _OPERATIONS.items()}
_PERMISSION_NAMES = {number: name for name, number in _PERMISSIONS.items()}


def acl_path(resource_type: int, pattern_type: int, name: str) -> str:
    root = LITERAL_ACLS if pattern_type == PatternType.LITERAL else PREFIXED_ACLS
    return f"{root}/{_RESOURCE_NAMES[resource_type]}/{name}"


def decode_acls(path: str, data: bytes, resource_type: int, pattern_type: int, name: str) -> list[Binding]:
    """Raises BadZnode."""
    fields = fields_of(path, data)
    fields.version(1)
    found = []
    for each in fields.objects("acls"):
        operation, permission = _OPERATIONS.get(each.text("operation")), _PERMISSIONS.get(each.text("permissionType"))
        if operation is None or permission is None:
            raise BadZnode(path, "has an ACL whose operation or permission this software does not know")
        principal = each.text("principal")
        if ":" not in principal:
            raise BadZnode(path, f"has an ACL whose principal is {principal!r}")
        found.append(Binding(resource_type, name, pattern_type, principal, each.text("host"), operation, permission))
    return found


def encode_acls(acls: Iterable[Binding]) -> bytes:
    return to_json(
        {
            "version": 1,
            "acls": [
                {
                    "principal": each.principal,
                    "permissionType": _PERMISSION_NAMES[each.permission_type],
                    "operation": _OPERATION_NAMES[each.operation],
                    "host": each.host,
                }
                for each in sorted(acls)
            ],
        }
    )


def read_acls(tree: Tree, children: Children) -> Iterator[tuple[str, int, int, str]]:
    """(path, resource type, pattern type, name) of each znode with ACLs. Raises BadZnode for a type or a kind of
    pattern that is not known: what it allows or denies would be lost."""
    for kind in children.of(EXTENDED_ACLS):
        if kind != "prefixed":
            raise BadZnode(f"{EXTENDED_ACLS}/{kind}", "is a kind of pattern that this software does not know")
    for root, pattern in ((LITERAL_ACLS, PatternType.LITERAL), (PREFIXED_ACLS, PatternType.PREFIXED)):
        for kind in children.of(root):
            base = f"{root}/{kind}"
            if kind not in RESOURCES:
                if children.of(base):
                    raise BadZnode(base, "is a type of resource that this software does not know")
                continue
            waiting = [f"{base}/{name}" for name in reversed(children.of(base))]
            while waiting:
                path = waiting.pop()
                below = children.of(path)
                waiting += [f"{path}/{name}" for name in reversed(below)]
                if tree.get(path, Znode()).data or not below:
                    yield path, RESOURCES[kind], pattern, path[len(base) + 1 :]
