"""The wire from the server's side: requests that are read, and answers that are written."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ottla.simulation.zookeeper.tree import Tree, Txn
from ottla.zookeeper.errors import Code
from ottla.zookeeper.jute import JuteReader, JuteWriter
from ottla.zookeeper.messages import (
    AddWatch,
    AddWatchMode,
    Check,
    Create,
    CreateFlag,
    Delete,
    Exists,
    GetACL,
    GetChildren,
    GetData,
    Multi,
    Op,
    Request,
    SetACL,
    SetData,
    Stat,
    Sync,
    Write,
    read_acls,
    write_acls,
    write_multi_header,
    write_stat,
)


class ConnectRequest(NamedTuple):
    last_zxid: int
    timeout_ms: int
    session_id: int
    password: bytes


def read_connect_request(data: bytes) -> ConnectRequest:
    reader = JuteReader(data)
    reader.i32()
    return ConnectRequest(reader.i64(), reader.i32(), reader.i64(), reader.buffer() or b"")


def connect_response(timeout_ms: int, session_id: int, password: bytes) -> bytes:
    writer = JuteWriter()
    writer.i32(0)
    writer.i32(timeout_ms)
    writer.i64(session_id)
    writer.buffer(password)
    writer.flag(False)
    return bytes(writer.data)


class SetWatches(NamedTuple):
    zxid: int
    data: list[str]
    exists: list[str]
    child: list[str]
    persistent: list[str]
    recursive: list[str]


def read_set_watches(reader: JuteReader) -> SetWatches:
    zxid = reader.i64()
    lists = [reader.vector(reader.string, 4) for _ in range(5)]
    return SetWatches(zxid, *lists)


def _read_write(op: int, reader: JuteReader) -> Write:
    path = reader.string()
    if op == Op.CREATE2:
        return Create(path, reader.buffer() or b"", read_acls(reader), CreateFlag(reader.i32()))
    if op == Op.DELETE:
        return Delete(path, reader.i32())
    if op == Op.SET_DATA:
        return SetData(path, reader.buffer() or b"", reader.i32())
    assert op == Op.CHECK, op
    return Check(path, reader.i32())


_READS: Final[dict[int, type[Exists] | type[GetData] | type[GetChildren]]] = {
    Op.EXISTS: Exists,
    Op.GET_DATA: GetData,
    Op.GET_CHILDREN2: GetChildren,
}


def read_request(op: int, reader: JuteReader) -> Request:
    """A request of the client, other than those about its connection and session."""
    if op in _READS:
        return _READS[Op(op)](reader.string(), reader.flag())
    if op == Op.GET_ACL:
        return GetACL(reader.string())
    if op == Op.SYNC:
        return Sync(reader.string())
    if op == Op.SET_ACL:
        return SetACL(reader.string(), read_acls(reader), reader.i32())
    if op == Op.ADD_WATCH:
        return AddWatch(reader.string(), AddWatchMode(reader.i32()))
    if op != Op.MULTI:
        return _read_write(op, reader)
    ops: list[Write] = []
    while True:
        kind, done, _ = reader.i32(), reader.flag(), reader.i32()
        if done:
            return Multi.of(ops)
        ops.append(_read_write(kind, reader))


def reply(xid: int, zxid: int, code: int, body: bytes = b"") -> bytes:
    writer = JuteWriter()
    writer.i32(xid)
    writer.i64(zxid)
    writer.i32(code)
    return bytes(writer.data) + body


def notification(kind: int, path: str, zxid: int) -> bytes:
    writer = JuteWriter()
    writer.i32(kind)
    writer.i32(3)  # SyncConnected
    writer.string(path)
    return reply(-1, zxid, 0, bytes(writer.data))


def read_answer(request: Request, tree: Tree) -> tuple[Code, bytes]:
    """What a server's copy says to a request that changes nothing."""
    node = tree.nodes.get(request.path)
    writer = JuteWriter()
    if isinstance(request, AddWatch):
        writer.i32(0)
        return Code.OK, bytes(writer.data)
    if node is None:
        return Code.NO_NODE, b""
    if isinstance(request, GetData):
        writer.buffer(node.data)
    elif isinstance(request, GetChildren):
        writer.strings(list(node.children))
    elif isinstance(request, GetACL):
        write_acls(writer, node.acl)
    write_stat(writer, node.stat())
    return Code.OK, bytes(writer.data)


def write_answer(request: Request, txn: Txn, stats: list[Stat | None]) -> tuple[Code, bytes]:
    """The answer to a write, once it is applied. `stats` has one for each operation."""
    writer = JuteWriter()
    if not isinstance(request, Multi):
        if txn.error is Code.OK:
            _write_result(writer, request, txn.paths[0], stats[0])
        return txn.error, bytes(writer.data)
    if txn.error in (Code.SESSION_MOVED, Code.SESSION_EXPIRED):
        return txn.error, b""
    for number, op in enumerate(request.ops):
        if txn.error is Code.OK:
            write_multi_header(writer, op.op, False, 0)
            _write_result(writer, op, txn.paths[number], stats[number])
            continue
        code = Code.OK if number < txn.failed_at else Code.RUNTIME_INCONSISTENCY
        write_multi_header(writer, Op.ERROR, False, 0)
        writer.i32(txn.error if number == txn.failed_at else code)
    write_multi_header(writer, Op.ERROR, True, -1)
    return Code.OK, bytes(writer.data)


def _write_result(writer: JuteWriter, op: Any, path: str, stat: Stat | None) -> None:
    if isinstance(op, Create):
        writer.string(path)
    if isinstance(op, Create | SetData | SetACL):
        assert stat is not None
        write_stat(writer, stat)
