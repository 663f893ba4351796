"""ZooKeeper's requests and their answers, as they are on the wire.

A request is an immutable object that knows its operation's number, its bytes, and how to read its answer. Paths are
absolute; where a session has a chroot, `with_chroot` gives the request that is sent, and the answer is read with the
length of the chroot, so that it shows the caller's paths.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

from ottla.zookeeper.errors import Code, ZooKeeperError, error_of
from ottla.zookeeper.jute import JuteReader, JuteWriter, MalformedMessage

ANY_VERSION: Final = -1
"""A version that matches every node."""

R = TypeVar("R", bound="Request")


class Op(IntEnum):
    """Numbers of operations (`ZooDefs.OpCode`)."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    AUTH = 100
    SASL = 102
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    CLOSE_SESSION = -11
    ERROR = -1


class Perms(IntFlag):
    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16
    ALL = 31


class ACL(NamedTuple):
    perms: int
    scheme: str
    id: str


OPEN_ACL_UNSAFE: Final = (ACL(Perms.ALL, "world", "anyone"),)
CREATOR_ALL_ACL: Final = (ACL(Perms.ALL, "auth", ""),)
READ_ACL_UNSAFE: Final = (ACL(Perms.READ, "world", "anyone"),)


def digest_id(user: str, password: str) -> str:
    """The id that an ACL of scheme `digest` has for a user, as `DigestAuthenticationProvider.generateDigest`."""
    hashed = hashlib.sha1(f"{user}:{password}".encode(), usedforsecurity=False).digest()
    return f"{user}:{base64.b64encode(hashed).decode()}"


class CreateFlag(IntEnum):
    """`CreateMode`, without containers and nodes that expire."""

    PERSISTENT = 0
    EPHEMERAL = 1
    PERSISTENT_SEQUENTIAL = 2
    EPHEMERAL_SEQUENTIAL = 3


class AddWatchMode(IntEnum):
    PERSISTENT = 0
    PERSISTENT_RECURSIVE = 1


class EventType(IntEnum):
    NONE = -1
    NODE_CREATED = 1
    NODE_DELETED = 2
    NODE_DATA_CHANGED = 3
    NODE_CHILDREN_CHANGED = 4
    DATA_WATCH_REMOVED = 5
    CHILD_WATCH_REMOVED = 6
    PERSISTENT_WATCH_REMOVED = 7


class Stat(NamedTuple):
    """What a node is, beside its data."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


def read_stat(reader: JuteReader) -> Stat:
    czxid, mzxid, ctime, mtime = reader.i64(), reader.i64(), reader.i64(), reader.i64()
    version, cversion, aversion, owner = reader.i32(), reader.i32(), reader.i32(), reader.i64()
    length, children, pzxid = reader.i32(), reader.i32(), reader.i64()
    return Stat(czxid, mzxid, ctime, mtime, version, cversion, aversion, owner, length, children, pzxid)


def write_stat(writer: JuteWriter, stat: Stat) -> None:
    for each in stat[:4]:
        writer.i64(each)
    for each in stat[4:7]:
        writer.i32(each)
    writer.i64(stat.ephemeral_owner)
    writer.i32(stat.data_length)
    writer.i32(stat.num_children)
    writer.i64(stat.pzxid)


def read_acl(reader: JuteReader) -> ACL:
    return ACL(reader.i32(), reader.string(), reader.string())


def write_acls(writer: JuteWriter, acls: Sequence[ACL]) -> None:
    writer.i32(len(acls))
    for perms, scheme, name in acls:
        writer.i32(perms)
        writer.string(scheme)
        writer.string(name)


def read_acls(reader: JuteReader) -> tuple[ACL, ...]:
    return tuple(reader.vector(lambda: read_acl(reader), 12))


_NOT_IN_PATHS = re.compile("[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


def check_path(path: str, *, sequence: bool = False) -> None:
    """Raises ZooKeeperError BAD_ARGUMENTS for what `PathUtils.validatePath` refuses."""
    checked = path + "1" if sequence else path  # the name may end in a slash, before its number

    def refuse(why: str) -> ZooKeeperError:
        return error_of(Code.BAD_ARGUMENTS, path, why)

    if not checked.startswith("/"):
        raise refuse("a path begins with /")
    if checked == "/":
        return
    if checked.endswith("/"):
        raise refuse("a path does not end with /")
    for part in checked[1:].split("/"):
        if part in ("", ".", ".."):
            raise refuse(f"{part or 'an empty name'} is not a name of a node")
    if (found := _NOT_IN_PATHS.search(checked)) is not None:
        raise refuse(f"the character {ord(found[0]):#x} is not allowed")


@dataclass(frozen=True, slots=True)
class Request:
    """A request with a path."""

    path: str
    op: ClassVar[Op]

    def with_chroot(self: R, chroot: str) -> R:
        """The same request for the ensemble's own path."""
        return dataclasses.replace(self, path=add_chroot(chroot, self.path))

    def check(self) -> None:
        """Raises ZooKeeperError for a request that no server would take."""
        check_path(self.path)

    def write(self, writer: JuteWriter) -> None:
        writer.string(self.path)

    def read(self, reader: JuteReader, chroot: str) -> Any:
        """The result, from the answer's bytes; None where the answer has none."""


def add_chroot(chroot: str, path: str) -> str:
    return path if not chroot else chroot if path == "/" else chroot + path


def strip_chroot(chroot: str, path: str) -> str:
    """Raises MalformedMessage for a path that is not below the chroot."""
    if not chroot:
        return path
    if path == chroot:
        return "/"
    if not path.startswith(chroot + "/"):
        raise MalformedMessage(f"{path} is not below {chroot}")
    return path[len(chroot) :]


class Created(NamedTuple):
    path: str
    stat: Stat


class Data(NamedTuple):
    data: bytes
    stat: Stat


class Children(NamedTuple):
    names: list[str]
    stat: Stat


class Acls(NamedTuple):
    acls: tuple[ACL, ...]
    stat: Stat


@dataclass(frozen=True, slots=True)
class Create(Request):
    """`create2`: the answer has the node's Stat too."""

    data: bytes = b""
    acl: tuple[ACL, ...] = OPEN_ACL_UNSAFE
    flag: CreateFlag = CreateFlag.PERSISTENT
    op = Op.CREATE2

    def check(self) -> None:
        check_path(self.path, sequence=self.flag >= CreateFlag.PERSISTENT_SEQUENTIAL)

    def write(self, writer: JuteWriter) -> None:
        writer.string(self.path)
        writer.buffer(self.data)
        write_acls(writer, self.acl)
        writer.i32(self.flag)

    def read(self, reader: JuteReader, chroot: str) -> Created:
        return Created(strip_chroot(chroot, reader.string()), read_stat(reader))


@dataclass(frozen=True, slots=True)
class Versioned(Request):
    """A request for a node that must have this version."""

    version: int = ANY_VERSION

    def write(self, writer: JuteWriter) -> None:
        writer.string(self.path)
        writer.i32(self.version)


@dataclass(frozen=True, slots=True)
class Delete(Versioned):
    op = Op.DELETE


@dataclass(frozen=True, slots=True)
class SetData(Request):
    data: bytes = b""
    version: int = ANY_VERSION
    op = Op.SET_DATA

    def write(self, writer: JuteWriter) -> None:
        writer.string(self.path)
        writer.buffer(self.data)
        writer.i32(self.version)

    def read(self, reader: JuteReader, chroot: str) -> Stat:
        return read_stat(reader)


@dataclass(frozen=True, slots=True)
class Check(Versioned):
    """Part of a `multi`: the node must exist and have this version."""

    op = Op.CHECK


@dataclass(frozen=True, slots=True)
class Watching(Request):
    """A request that may leave a watch."""

    watch: bool = False

    def write(self, writer: JuteWriter) -> None:
        writer.string(self.path)
        writer.flag(self.watch)


@dataclass(frozen=True, slots=True)
class GetData(Watching):
    op = Op.GET_DATA

    def read(self, reader: JuteReader, chroot: str) -> Data:
        return Data(reader.buffer() or b"", read_stat(reader))


@dataclass(frozen=True, slots=True)
class Exists(Watching):
    op = Op.EXISTS

    def read(self, reader: JuteReader, chroot: str) -> Stat:
        return read_stat(reader)


@dataclass(frozen=True, slots=True)
class GetChildren(Watching):
    op = Op.GET_CHILDREN2

    def read(self, reader: JuteReader, chroot: str) -> Children:
        return Children(reader.vector(reader.string, 4), read_stat(reader))


@dataclass(frozen=True, slots=True)
class GetACL(Request):
    op = Op.GET_ACL

    def read(self, reader: JuteReader, chroot: str) -> Acls:
        return Acls(read_acls(reader), read_stat(reader))


@dataclass(frozen=True, slots=True)
class SetACL(Request):
    acl: tuple[ACL, ...] = OPEN_ACL_UNSAFE
    version: int = ANY_VERSION
    op = Op.SET_ACL

    def write(self, writer: JuteWriter) -> None:
        writer.string(self.path)
        write_acls(writer, self.acl)
        writer.i32(self.version)

    def read(self, reader: JuteReader, chroot: str) -> Stat:
        return read_stat(reader)


@dataclass(frozen=True, slots=True)
class Sync(Request):
    """The server of this connection shows afterwards what was committed before."""

    op = Op.SYNC

    def read(self, reader: JuteReader, chroot: str) -> None:
        reader.string()


@dataclass(frozen=True, slots=True)
class AddWatch(Request):
    mode: AddWatchMode = AddWatchMode.PERSISTENT
    op = Op.ADD_WATCH

    def write(self, writer: JuteWriter) -> None:
        writer.string(self.path)
        writer.i32(self.mode)


Write = Create | Delete | SetData | Check
"""What a `multi` is made of."""


@dataclass(frozen=True, slots=True)
class Multi(Request):
    """Operations that are all applied, or none of them."""

    ops: tuple[Write, ...] = ()
    op = Op.MULTI

    @staticmethod
    def of(ops: Iterable[Write]) -> Multi:
        return Multi("", tuple(ops))

    def with_chroot(self, chroot: str) -> Multi:
        return Multi("", tuple(each.with_chroot(chroot) for each in self.ops))

    def check(self) -> None:
        for each in self.ops:
            each.check()

    def write(self, writer: JuteWriter) -> None:
        for each in self.ops:
            write_multi_header(writer, each.op, False, -1)
            each.write(writer)
        write_multi_header(writer, Op.ERROR, True, -1)

    def read(self, reader: JuteReader, chroot: str) -> list[Any]:
        """One result for each operation. Raises ZooKeeperError for a multi that was refused, with its results."""
        results: list[Any] = []
        while True:
            kind, done, _ = reader.i32(), reader.flag(), reader.i32()
            if done:
                break
            if len(results) == len(self.ops):
                raise MalformedMessage(f"more results than the {len(self.ops)} operations of the multi")
            asked = self.ops[len(results)]
            if kind == Op.ERROR:
                code = reader.i32()
                results.append(error_of(code, asked.path))
            elif kind == asked.op:
                results.append(asked.read(reader, chroot))
            else:
                raise MalformedMessage(f"a result of operation {kind} where one of {asked.op.name} is expected")
        if len(results) != len(self.ops):
            raise MalformedMessage(f"{len(results)} results of a multi of {len(self.ops)} operations")
        errors = [each for each in results if isinstance(each, ZooKeeperError)]
        if errors:
            raise _failed(errors, results)
        return results


def _failed(errors: list[ZooKeeperError], results: list[Any]) -> ZooKeeperError:
    """The operation that failed has its own code, those before it OK, and those behind it RUNTIME_INCONSISTENCY."""
    cause = next((each for each in errors if each.code not in (Code.OK, Code.RUNTIME_INCONSISTENCY)), errors[0])
    return error_of(cause.code, cause.path, results=results)


def write_multi_header(writer: JuteWriter, kind: int, done: bool, error: int) -> None:
    writer.i32(kind)
    writer.flag(done)
    writer.i32(error)


class ConnectResponse(NamedTuple):
    session_timeout_ms: int
    session_id: int
    password: bytes


def write_connect(last_zxid: int, timeout_ms: int, session_id: int, password: bytes) -> bytes:
    writer = JuteWriter()
    writer.i32(0)  # protocol version
    writer.i64(last_zxid)
    writer.i32(timeout_ms)
    writer.i64(session_id)
    writer.buffer(password)
    writer.flag(False)  # a read-only server would answer with what may be old
    return bytes(writer.data)


def read_connect(data: bytes) -> ConnectResponse:
    reader = JuteReader(data)
    reader.i32()
    timeout_ms, session_id = reader.i32(), reader.i64()
    return ConnectResponse(timeout_ms, session_id, reader.buffer() or b"")  # older servers end here


class ReplyHeader(NamedTuple):
    xid: int
    zxid: int
    error: int


def read_reply_header(reader: JuteReader) -> ReplyHeader:
    return ReplyHeader(reader.i32(), reader.i64(), reader.i32())


class WatcherEvent(NamedTuple):
    type: int
    state: int
    path: str


def read_watcher_event(reader: JuteReader) -> WatcherEvent:
    return WatcherEvent(reader.i32(), reader.i32(), reader.string())


def write_request(xid: int, op: int, write: Callable[[JuteWriter], None] | None = None) -> bytes:
    """A request's bytes, without the length of the frame."""
    writer = JuteWriter()
    writer.i32(xid)
    writer.i32(op)
    if write is not None:
        write(writer)
    return bytes(writer.data)


def write_auth(scheme: str, credentials: bytes) -> Callable[[JuteWriter], None]:
    def write(writer: JuteWriter) -> None:
        writer.i32(0)
        writer.string(scheme)
        writer.buffer(credentials)

    return write


def write_sasl(token: bytes) -> Callable[[JuteWriter], None]:
    return lambda writer: writer.buffer(token)


def write_set_watches(zxid: int, lists: Sequence[Sequence[str]]) -> Callable[[JuteWriter], None]:
    """`lists` are paths of data, exists, child, persistent and persistent recursive watches."""

    def write(writer: JuteWriter) -> None:
        writer.i64(zxid)
        for each in lists:
            writer.strings(each)

    return write


def frame(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data
