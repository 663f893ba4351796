"""Reads what Kafka keeps in an ensemble, many znodes at once, and checks that nothing changes meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from ottla.errors import OttlaError
from ottla.znodes import cluster
from ottla.znodes.checking import IMPORT
from ottla.znodes.topics import TOPICS, partitions_path, state_path, topic_path
from ottla.znodes.tree import BadZnode, Tree, Znode
from ottla.zookeeper.errors import ConnectionLossError, NoAuthError, NoNodeError

T = TypeVar("T")

AT_ONCE = 1000
"""Requests on the way: an ensemble answers some ten thousand a second, and each waits here as a task."""

ATTEMPTS = 3

ROOTS: Sequence[str] = (
    "/config/topics", "/config/brokers", "/config/clients", "/config/users", "/config/ips", "/kafka-acl",
    "/kafka-acl-extended", cluster.TOKENS, cluster.DELETIONS, cluster.REASSIGNMENTS, cluster.BROKER_IDS,
    cluster.FEATURE, cluster.PRODUCER_IDS, cluster.MIGRATION, cluster.CONTROLLER, cluster.CONTROLLER_EPOCH,
    cluster.CLUSTER_ID, IMPORT,
)  # fmt: skip
"""Subtrees that are read whole, beside the topics."""
PARENTS: Sequence[str] = ("/config", "/brokers", TOPICS, "/cluster", "/delegation_token")
"""Their parents, as far as they are znodes of Kafka's; old releases lack some."""


class Client(Protocol):
    """The part of `ottla.zookeeper.client.ZooKeeper` that a migration uses."""

    async def get(self, path: str) -> Any: ...
    async def children(self, path: str) -> Any: ...
    async def acl(self, path: str) -> Any: ...
    async def multi(self, ops: Iterable[Any]) -> list[Any]: ...
    async def sync(self, path: str = "/") -> None: ...


class TreeChanged(OttlaError):
    """The ensemble is written to while it is read."""


async def read_tree(client: Client) -> dict[str, Znode]:
    """Everything of Kafka's, with a znode's parents. Raises BadZnode for one that may not be read, ZooKeeperError."""
    await client.sync("/")
    tree: dict[str, Znode] = {}
    for path, answer in zip(PARENTS, await each(PARENTS, lambda path: _get(client, path)), strict=True):
        if answer is not None:
            tree[path] = Znode(answer[0] or b"", answer[1].version)
    for root in ROOTS:
        await _subtree(client, [root], tree)
    await _topics(client, tree)
    await _old_groups(client, tree)
    return tree


async def stable_tree(client: Client) -> dict[str, Znode]:
    """The tree, read twice. Raises TreeChanged where the two differ, and what `read_tree` raises."""
    first = await read_tree(client)
    refuse_change(first, await read_tree(client))
    return first


def refuse_change(before: Tree, after: Tree, *, apart_from: frozenset[str] = frozenset()) -> None:
    """Raises TreeChanged with the first znode that differs."""
    if not apart_from and before == after:
        return
    for path in sorted({*before, *after} - apart_from):
        if before.get(path) != after.get(path):
            raise TreeChanged(f"{path} has changed while the tree was read: stop all brokers and tools, and try again")


async def each(items: Sequence[Any], ask: Callable[[Any], Awaitable[T]]) -> list[T]:
    """The answers for all items, in their order, some at once."""
    found: list[T] = []
    for start in range(0, len(items), AT_ONCE):
        found += await asyncio.gather(*(ask(item) for item in items[start : start + AT_ONCE]))
    return found


async def _subtree(client: Client, paths: list[str], tree: dict[str, Znode]) -> None:
    """A subtree level by level. A znode that vanishes meanwhile shows in the second reading."""
    while paths:
        found = await each(paths, lambda path: _get(client, path))
        parents = []
        for path, answer in zip(paths, found, strict=True):
            if answer is not None:
                data, stat = answer
                tree[path] = Znode(data or b"", stat.version)
                if stat.num_children:
                    parents.append(path)
        names = await each(parents, lambda path: _children(client, path))
        paths = [f"{path}/{name}" for path, below in zip(parents, names, strict=True) for name in below]


async def _topics(client: Client, tree: dict[str, Znode]) -> None:
    """A state is asked for at once where the topic has such a partition: it is most of the tree."""
    topics = await _children(client, TOPICS)
    names = await each(topics, lambda topic: _children(client, partitions_path(topic)))
    contents = await each(topics, lambda topic: _get(client, topic_path(topic)))
    states: list[str] = []
    for topic, numbers, answer in zip(topics, names, contents, strict=True):
        if answer is None:
            continue
        tree[topic_path(topic)] = Znode(answer[0] or b"", answer[1].version)
        if numbers:
            tree[partitions_path(topic)] = Znode()
        for number in numbers:
            tree[f"{partitions_path(topic)}/{number}"] = Znode()
            if number.isdecimal():
                states.append(state_path(topic, int(number)))
    for path, answer in zip(states, await each(states, lambda path: _get(client, path)), strict=True):
        if answer is not None:
            tree[path] = Znode(answer[0] or b"", answer[1].version)


async def _old_groups(client: Client, tree: dict[str, Znode]) -> None:
    """The names of groups of 0.8 that have offsets in ZooKeeper, and of what: not the offsets."""
    groups = await _children(client, cluster.CONSUMERS)
    paths = [f"{cluster.CONSUMERS}/{group}" for group in groups]
    tree.update((path, Znode()) for path in paths)
    offsets = await each(paths, lambda path: _children(client, f"{path}/offsets"))
    for path, topics in zip(paths, offsets, strict=True):
        tree.update((f"{path}/offsets/{topic}", Znode()) for topic in topics)


async def _get(client: Client, path: str) -> tuple[bytes, Any] | None:
    found = await _asked(client.get, path)
    return None if found is None else (found[0], found[1])


async def _children(client: Client, path: str) -> list[str]:
    found = await _asked(client.children, path)
    return [] if found is None else sorted(found[0])


async def _asked(ask: Callable[[str], Awaitable[Any]], path: str) -> Any:
    """The answer, None where there is no such znode. What only reads is asked again after a broken connection."""
    for attempt in range(ATTEMPTS):
        try:
            return await ask(path)
        except NoNodeError:
            return None
        except NoAuthError:
            raise BadZnode(path, "may not be read: the ensemble asks for credentials") from None
        except ConnectionLossError:
            if attempt == ATTEMPTS - 1:
                raise
    return None
