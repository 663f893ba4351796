"""The tree of znodes, read as a whole and written in steps that each prove that this node still is the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from ottla.znodes import acls, cluster, configs, topics
from ottla.znodes.changes import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS, Change, Kind
from ottla.znodes.tree import Znode
from ottla.zookeeper.client import ZooKeeper
from ottla.zookeeper.errors import Code, NoNodeError, ZooKeeperError
from ottla.zookeeper.messages import ACL, Check, Create, Delete, SetData, Write

ROOTS = (
    topics.TOPICS, configs.TOPIC_CONFIGS, configs.BROKER_CONFIGS, configs.CLIENTS, configs.USERS, configs.IPS,
    GROUP_CONFIGS, CLIENT_METRICS_CONFIGS, acls.LITERAL_ACLS, acls.EXTENDED_ACLS, cluster.TOKENS, cluster.BROKER_IDS,
    cluster.CLUSTER_ID, cluster.FEATURE, cluster.PRODUCER_IDS,
)  # fmt: skip
"""What a controller needs of the tree."""

OUTSTANDING = 500
"""Requests of one reading under way: each is answered in turn."""

MULTI_BYTES_MAX = 512 * 1024
"""A `multi` has to fit into `jute.maxbuffer`, a megabyte on most servers."""
MULTI_OPERATIONS_MAX = 2000
OPERATION_BYTES = 100
"""What an operation takes beside its path and its data."""


async def read_tree(client: ZooKeeper, roots: Iterable[str] = ROOTS) -> dict[str, Znode]:
    """The znodes at and below `roots`. Raises ZooKeeperError."""
    found: dict[str, Znode] = {}
    room = asyncio.Semaphore(OUTSTANDING)

    async def visit(path: str) -> list[str]:
        async with room:
            try:
                data, stat = await client.get(path)
                names = (await client.children(path))[0] if stat.num_children else []
            except NoNodeError:
                return []
        found[path] = Znode(data, stat.version)
        return [f"{path}/{name}" for name in names]

    level = list(roots)
    while level:
        level = [path for paths in await asyncio.gather(*map(visit, level)) for path in paths]
    return found


async def below(client: ZooKeeper, path: str) -> list[str]:
    """The paths at and below `path`, children before their parents; none where it is not there."""
    found = await read_tree(client, (path,))
    return sorted(found, key=lambda each: -each.count("/"))


AclOf = Callable[[str], Sequence[ACL]]
"""The permissions of a znode that is made at a path."""


async def ensure(client: ZooKeeper, path: str, acl: AclOf) -> None:
    """Have `path` and what is above it. Raises ZooKeeperError."""
    parts = path.strip("/").split("/")
    for depth in range(1, len(parts) + 1):
        each = "/" + "/".join(parts[:depth])
        if await client.exists(each) is None:
            try:
                await client.create(each, acl=acl(each))
            except ZooKeeperError as error:
                if error.code != Code.NODE_EXISTS:
                    raise


class Deposed(Exception):
    """Another node is the controller, or may be."""


class TreeWriter:
    """Writes changes as the controller of one epoch."""

    def __init__(self, client: ZooKeeper, epoch_version: int, acl: AclOf) -> None:
        """`epoch_version`: the version of `/controller_epoch` since this node raised it."""
        self._client = client
        self._check = Check(cluster.CONTROLLER_EPOCH, epoch_version)
        self._acl = acl

    async def write(self, changes: Sequence[Change]) -> None:
        """Make the changes in their order: all or none where they fit into one request, else part by part.

        Raises Deposed where this node is the controller no more; ZooKeeperError for what cannot be known.
        """
        rest = list(changes)
        while rest:
            part = self._part(rest)
            del rest[: len(part)]
            await self._write(part)

    def _part(self, changes: Sequence[Change]) -> list[Change]:
        size = count = 0
        if changes[0].kind is Kind.GONE:
            return [changes[0]]
        for number, change in enumerate(changes):
            if change.kind is Kind.GONE:
                return list(changes[:number])
            size += change.times * (OPERATION_BYTES + len(change.path) + len(change.data))
            count += change.times
            if number and (size > MULTI_BYTES_MAX or count > MULTI_OPERATIONS_MAX):
                return list(changes[:number])
        return list(changes)

    async def _write(self, part: Sequence[Change]) -> None:
        try:
            operations = [each for change in part for each in await self._operations(change)]
            await self._multi(operations)
        except ZooKeeperError as error:
            if error.code not in (Code.NO_NODE, Code.NODE_EXISTS, Code.NOT_EMPTY) or error.maybe_applied:
                raise
            looked = [each for change in part for each in await self._looked(change)]
            await self._multi(looked)

    async def _multi(self, operations: list[Write]) -> None:
        """More than fit into a request are those that delete a large topic: its parts go before it."""
        for first in range(0, len(operations), MULTI_OPERATIONS_MAX):
            await self._checked(operations[first : first + MULTI_OPERATIONS_MAX])

    async def _checked(self, operations: list[Write]) -> None:
        try:
            await self._client.multi([self._check, *operations])
        except ZooKeeperError as error:
            first = error.results[0] if error.results else None
            if isinstance(first, ZooKeeperError) and first.code in (Code.BAD_VERSION, Code.NO_NODE):
                raise Deposed(str(error)) from error
            raise

    async def _operations(self, change: Change) -> list[Write]:
        """By what is known of the tree."""
        path, kind, data, times = change
        if kind is Kind.NEW:
            return [Create(path, data, tuple(self._acl(path)))]
        if kind is Kind.SET:
            return [SetData(path, data) for _ in range(times)]
        return await self._looked(change)

    async def _looked(self, change: Change) -> list[Write]:
        """By what is there now."""
        path, kind, data, times = change
        if kind is Kind.GONE:
            return [Delete(each) for each in await below(self._client, path)]
        is_there = await self._client.exists(path) is not None
        if not is_there:
            return [Create(path, data, tuple(self._acl(path)))]
        return [] if kind is Kind.PARENT else [SetData(path, data) for _ in range(times)]
