"""The same operations by Ottla's client and by kazoo on one server: the same results, stats and errors."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Callable, Iterator
from queue import Queue
from random import Random
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, ZookeeperError
from kazoo.security import make_acl, make_digest_acl_credential

from ottla.network import SystemNetwork
from ottla.zookeeper.client import ZooKeeper
from ottla.zookeeper.errors import Code, ZooKeeperError
from ottla.zookeeper.messages import ACL, Check, Create, Delete, Perms, SetData, digest_id
from peers.zookeeper import ZooKeeperPeer

LARGE = b"x" * 1_100_000
"""More than `jute.maxbuffer`."""
LOCKED = (ACL(Perms.READ, "world", "anyone"), ACL(Perms.ALL, "digest", digest_id("alice", "secret")))
KAZOO_LOCKED = [
    make_acl("world", "anyone", read=True),
    make_acl("digest", make_digest_acl_credential("alice", "secret"), all=True),
]

STATES: dict[str, tuple[str, ...]] = {
    "no node": (),
    "a leaf": ("/n",),
    "with a child": ("/n", "/n/c"),
    "ephemeral": ("/n ephemeral",),
    "changed": ("/n", "/n set", "/n set"),
    "locked": ("/n locked",),
}
"""What is there before the operation, below a root of its own for each client."""


async def prepare(client: ZooKeeper, root: str, steps: tuple[str, ...]) -> None:
    await client.create(root)
    for step in steps:
        name, _, how = step.partition(" ")
        path = root + name
        if how == "set":
            await client.set(path, b"again")
        elif how == "locked":
            await client.create(path, b"data", LOCKED)
        else:
            await client.create(path, b"data", ephemeral=how == "ephemeral")


def prepare_kazoo(client: KazooClient, steps: tuple[str, ...]) -> None:
    for step in steps:
        path, _, how = step.partition(" ")
        if how == "set":
            client.set(path, b"again")
        elif how == "locked":
            client.create(path, b"data", KAZOO_LOCKED)
        else:
            client.create(path, b"data", ephemeral=how == "ephemeral")


def kazoo_multi(client: KazooClient, *steps: Callable[[Any], None]) -> Any:
    transaction = client.transaction()
    for step in steps:
        step(transaction)
    return transaction.commit()


OPERATIONS: dict[str, tuple[Callable[[ZooKeeper, str], Any], Callable[[KazooClient], Any]]] = {
    "get": (lambda o, r: o.get(r + "/n"), lambda k: k.get("/n")),
    "exists": (lambda o, r: o.exists(r + "/n"), lambda k: k.exists("/n")),
    "children": (lambda o, r: o.children(r + "/n"), lambda k: k.get_children("/n", include_data=True)),
    "acl": (lambda o, r: o.acl(r + "/n"), lambda k: k.get_acls("/n")),
    "create": (lambda o, r: o.create(r + "/n", b"new"), lambda k: k.create("/n", b"new", include_data=True)),
    "create a child": (lambda o, r: o.create(r + "/n/d", b""), lambda k: k.create("/n/d", b"", include_data=True)),
    "create in a sequence": (
        lambda o, r: o.create(r + "/n/s-", b"", sequence=True),
        lambda k: k.create("/n/s-", b"", sequence=True, include_data=True),
    ),
    "create with an acl that is none": (
        lambda o, r: o.create(r + "/m", b"", [ACL(31, "nothing", "x")]),
        lambda k: k.create("/m", b"", [make_acl("nothing", "x", all=True)], include_data=True),
    ),
    "create without an acl": (
        lambda o, r: o.create(r + "/m", b"", []),
        lambda k: k.create("/m", b"", [make_acl("auth", "", all=True)], include_data=True),
    ),
    "set": (lambda o, r: o.set(r + "/n", b"new"), lambda k: k.set("/n", b"new")),
    "set version 1": (lambda o, r: o.set(r + "/n", b"new", 1), lambda k: k.set("/n", b"new", 1)),
    "set acl": (
        lambda o, r: o.set_acl(r + "/n", LOCKED, 0),
        lambda k: k.set_acls("/n", KAZOO_LOCKED, 0),
    ),
    "set acl version 7": (lambda o, r: o.set_acl(r + "/n", LOCKED, 7), lambda k: k.set_acls("/n", KAZOO_LOCKED, 7)),
    "delete": (lambda o, r: o.delete(r + "/n"), lambda k: k.delete("/n")),
    "delete version 1": (lambda o, r: o.delete(r + "/n", 1), lambda k: k.delete("/n", 1)),
    "multi": (
        lambda o, r: o.multi(
            [Check(r + "/n", 0), Create(r + "/n/m", b"1"), SetData(r + "/n", b"2"), Delete(r + "/n/m")]
        ),
        lambda k: kazoo_multi(
            k,
            lambda t: t.check("/n", 0),
            lambda t: t.create("/n/m", b"1"),
            lambda t: t.set_data("/n", b"2"),
            lambda t: t.delete("/n/m"),
        ),
    ),
    "multi that fails late": (
        lambda o, r: o.multi([Create(r + "/o", b"1"), Delete(r + "/n", 5), Create(r + "/p")]),
        lambda k: kazoo_multi(k, lambda t: t.create("/o", b"1"), lambda t: t.delete("/n", 5), lambda t: t.create("/p")),
    ),
}


def plain(value: Any, root: str) -> Any:
    """A result as both clients have it: no times, zxids and sessions, which differ between two roots."""
    if hasattr(value, "czxid"):
        owned = value.ephemeral_owner if hasattr(value, "ephemeral_owner") else value.ephemeralOwner
        length = value.data_length if hasattr(value, "data_length") else value.dataLength
        children = value.num_children if hasattr(value, "num_children") else value.numChildren
        same = (value.mzxid == value.czxid, value.pzxid == value.czxid)
        return ("stat", value.version, value.cversion, value.aversion, bool(owned), length, children, same)
    if isinstance(value, ACL):
        return ("acl", int(value.perms), value.scheme, value.id)
    if type(value).__name__ == "ACL":
        return ("acl", value.perms, value.id.scheme, value.id.id)
    if isinstance(value, ZooKeeperError):
        return ("error", int(value.code))
    if isinstance(value, ZookeeperError):
        return ("error", value.code)
    if isinstance(value, list | tuple):
        return [plain(each, root) for each in value]
    return value.removeprefix(root) if isinstance(value, str) else value


async def of_ottla(work: Any, root: str) -> Any:
    try:
        return plain(await work, root)
    except ZooKeeperError as error:
        if error.results:
            return plain(error.results, root)
        return ("error", int(error.code))


def of_kazoo(work: Callable[[], Any], root: str) -> Any:
    try:
        return plain(work(), root)
    except ZookeeperError as error:
        return ("error", error.code)
    except KazooException as error:
        return ("error", type(error).__name__)


def multi_without_stats(result: Any) -> Any:
    """kazoo asks for `create`, whose answer has no stat, and says True for what has no result."""
    if not isinstance(result, list):
        return result
    shown = [each[0] if isinstance(each, list) and each and isinstance(each[0], str) else each for each in result]
    return [None if each is True else each for each in shown]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperPeer]:
    if shutil.which("java") is None:
        pytest.skip("no Java here to run Apache ZooKeeper with")
    with ZooKeeperPeer(tmp_path_factory.mktemp("zookeeper")) as peer:
        yield peer


def test_results_stats_and_errors_are_the_same(server: ZooKeeperPeer) -> None:
    """Each operation on each state; each below a root of its own."""
    differences: dict[str, Any] = {}
    codes: set[int] = set()

    async def walk() -> int:
        number = 0
        client = ZooKeeper(SystemNetwork(), server.connect, random=Random(1))
        peer = KazooClient(server.connect)
        peer.start()
        async with client:
            for state, steps in STATES.items():
                for name, (ottla, kazoo) in OPERATIONS.items():
                    number += 1
                    here, there = f"/o{number}", f"/k{number}"
                    await prepare(client, here, steps)
                    await client.create(there)
                    peer.chroot = there
                    prepare_kazoo(peer, steps)
                    found = await of_ottla(ottla(client, here), here)
                    wanted = of_kazoo(lambda kazoo=kazoo: kazoo(peer), there)
                    if name.startswith("multi"):
                        found, wanted = multi_without_stats(found), multi_without_stats(wanted)
                    elif wanted is True:
                        wanted = None  # a deletion
                    codes.update(int(code) for code in re.findall(r"'error', (-\d+)", str(found)))
                    if found != wanted:
                        differences[f"{state}: {name}"] = (found, wanted)
        peer.stop()
        peer.close()
        return number

    assert asyncio.run(walk()) == len(STATES) * len(OPERATIONS)
    assert differences == {}
    wanted = (
        Code.NO_NODE,
        Code.BAD_VERSION,
        Code.NODE_EXISTS,
        Code.NOT_EMPTY,
        Code.NO_AUTH,
        Code.INVALID_ACL,
        Code.NO_CHILDREN_FOR_EPHEMERALS,
    )
    assert codes >= set(map(int, wanted)), "an error that the table is meant to meet was not met"


def test_sessions_that_differ(server: ZooKeeperPeer) -> None:
    """A chroot that is missing, data that is too large, a login, and watches of both."""

    async def walk() -> None:
        nowhere = KazooClient(server.connect + "/nowhere")
        nowhere.start()
        async with ZooKeeper(SystemNetwork(), server.connect + "/nowhere", random=Random(1)) as client:
            found = await of_ottla(client.create("/a"), "")
            assert found == of_kazoo(lambda: nowhere.retry(nowhere.create, "/a"), "") == ("error", int(Code.NO_NODE))
            assert await client.exists("/") is None
        nowhere.stop()
        nowhere.close()
        kazoo = KazooClient(server.connect, auth_data=[("digest", "alice:secret")])
        kazoo.start()
        async with ZooKeeper(SystemNetwork(), server.connect, random=Random(1)) as client:
            with pytest.raises(ZooKeeperError, match=r"jute.maxbuffer is 1048575") as refused:
                await client.create("/large", LARGE)
            assert refused.value.code is Code.MARSHALLING_ERROR and not refused.value.maybe_applied
            await client.create("/locked", b"1", LOCKED)
            assert await of_ottla(client.set("/locked", b"2"), "") == ("error", int(Code.NO_AUTH))
            events: list[Any] = []
            await client.get("/locked", events.append)
            kazoo.set("/locked", b"2")
            assert (await client.get("/locked")).data == b"2" and [each.path for each in events] == ["/locked"]
        auth = (("digest", b"alice:secret"),)
        async with ZooKeeper(SystemNetwork(), server.connect, random=Random(1), auth=auth) as client:
            seen: Queue[Any] = Queue()  # kazoo calls back in a thread of its own
            kazoo.get("/locked", seen.put)
            assert (await client.set("/locked", b"3")).version == 2
            assert kazoo.get("/locked")[0] == b"3" and seen.get(timeout=30).path == "/locked"
        kazoo.stop()
        kazoo.close()

    asyncio.run(walk())
