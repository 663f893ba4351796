"""ZooKeeper's data tree as a model: requests are checked on the newest tree and become changes with a zxid, which
every copy applies in order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.zookeeper.errors import Code
from ottla.zookeeper.messages import ACL, Check, Create, CreateFlag, Delete, EventType, SetACL, SetData, Stat, Write


class Refused(Exception):
    def __init__(self, code: Code) -> None:
        super().__init__(code.name)
        self.code = code


@dataclass(slots=True)
class Node:
    data: bytes
    acl: tuple[ACL, ...]
    czxid: int
    ctime: int
    owner: int
    mzxid: int
    mtime: int
    pzxid: int
    version: int = 0
    cversion: int = 0
    aversion: int = 0
    created: int = 0
    """Children that were ever created: the number of the next sequence node."""
    children: dict[str, None] = field(default_factory=dict)

    def stat(self) -> Stat:
        return Stat(
            self.czxid,
            self.mzxid,
            self.ctime,
            self.mtime,
            self.version,
            self.cversion,
            self.aversion,
            self.owner,
            len(self.data),
            len(self.children),
            self.pzxid,
        )


class Change(NamedTuple):
    """One node that is created, changed or deleted."""

    kind: EventType
    path: str
    data: bytes = b""
    acl: tuple[ACL, ...] = ()
    owner: int = 0
    acl_only: bool = False


class Txn(NamedTuple):
    """What the ensemble has committed. `error` is set for a request that was refused: it takes a zxid too."""

    zxid: int
    now_ms: int
    session: int
    changes: tuple[Change, ...]
    error: Code = Code.OK
    failed_at: int = -1
    """The operation of a multi that was refused."""
    paths: tuple[str, ...] = ()
    """Paths of the operations, with the numbers of sequence nodes."""
    ends: int = 0
    """A session that this closes."""


def parent_of(path: str) -> str:
    return path[: path.rindex("/")] or "/"


class Tree:
    """One copy. `zxid` is the last change that it has."""

    def __init__(self) -> None:
        self.zxid = 0
        self.nodes = {"/": Node(b"", (), 0, 0, 0, 0, 0, 0)}

    def find(self, path: str) -> Node:
        found = self.nodes.get(path)
        if found is None:
            raise Refused(Code.NO_NODE)
        return found

    def plan(self, op: Write | SetACL, session: int) -> tuple[Change | None, str]:
        """What a write does to this tree, and its path. Raises Refused."""
        if isinstance(op, Create):
            return self._plan_create(op, session)
        node = self.find(op.path)
        version = node.aversion if isinstance(op, SetACL) else node.version
        if op.version not in (-1, version):
            raise Refused(Code.BAD_VERSION)
        if isinstance(op, Check):
            return None, op.path
        if isinstance(op, SetACL):
            return Change(EventType.NODE_DATA_CHANGED, op.path, acl=op.acl, acl_only=True), op.path
        if isinstance(op, SetData):
            return Change(EventType.NODE_DATA_CHANGED, op.path, op.data), op.path
        assert isinstance(op, Delete)
        if op.path == "/":
            raise Refused(Code.BAD_ARGUMENTS)
        if node.children:
            raise Refused(Code.NOT_EMPTY)
        return Change(EventType.NODE_DELETED, op.path), op.path

    def _plan_create(self, op: Create, session: int) -> tuple[Change, str]:
        parent = self.nodes.get(parent_of(op.path))
        if parent is None:
            raise Refused(Code.NO_NODE)
        path = f"{op.path}{parent.created:010}" if op.flag >= CreateFlag.PERSISTENT_SEQUENTIAL else op.path
        if path in self.nodes:
            raise Refused(Code.NODE_EXISTS)
        if parent.owner:
            raise Refused(Code.NO_CHILDREN_FOR_EPHEMERALS)
        owner = session if op.flag in (CreateFlag.EPHEMERAL, CreateFlag.EPHEMERAL_SEQUENTIAL) else 0
        return Change(EventType.NODE_CREATED, path, op.data, op.acl, owner), path

    def apply(self, change: Change, zxid: int, now_ms: int) -> None:
        if change.kind is EventType.NODE_CREATED:
            self.nodes[change.path] = Node(change.data, change.acl, zxid, now_ms, change.owner, zxid, now_ms, zxid)
            parent = self.nodes[parent_of(change.path)]
            parent.children[change.path.rpartition("/")[2]] = None
            parent.cversion += 1
            parent.created += 1
            parent.pzxid = zxid
        elif change.kind is EventType.NODE_DELETED:
            del self.nodes[change.path]
            parent = self.nodes[parent_of(change.path)]
            del parent.children[change.path.rpartition("/")[2]]
            parent.cversion += 1
            parent.pzxid = zxid
        elif change.acl_only:
            node = self.nodes[change.path]
            node.acl = change.acl
            node.aversion += 1
        else:
            node = self.nodes[change.path]
            node.data = change.data
            node.version += 1
            node.mzxid, node.mtime = zxid, now_ms

    def undo_point(self) -> Tree:
        """A copy on which a multi is tried."""
        copy = Tree()
        copy.zxid = self.zxid
        copy.nodes = {
            path: Node(
                each.data,
                each.acl,
                each.czxid,
                each.ctime,
                each.owner,
                each.mzxid,
                each.mtime,
                each.pzxid,
                each.version,
                each.cversion,
                each.aversion,
                each.created,
                dict(each.children),
            )
            for path, each in self.nodes.items()
        }
        return copy
