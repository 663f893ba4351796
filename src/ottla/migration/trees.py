"""Reads what Kafka keeps in an ensemble, many znodes at once, and checks that nothing changes meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from ottla.errors import OttlaError
from ottla.znodes import cluster
from ottla.znodes.checking import IMPORT
from ottla.znodes.topics import TOPICS, partitions_path, state_path, topic_path
from ottla.znodes.tree import BadZnode, Tree, Znode
from ottla.zookeeper.errors import ConnectionLossError, NoAuthError, NoNodeError
from ottla.zookeeper.messages import GetChildren, GetData, Request

AT_ONCE = 1000
"""Requests on the way: an ensemble answers some ten thousand a second."""

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
    async def read_many(self, requests: Sequence[Any]) -> list[Any]: ...
    async def acl(self, path: str) -> Any: ...
    async def multi(self, ops: Iterable[Any]) -> list[Any]: ...
    async def sync(self, path: str = "/") -> None: ...


class TreeChanged(OttlaError):
    """The ensemble is written to while it is read."""


async def read_tree(client: Client) -> dict[str, Znode]:
    """Everything of Kafka's, with a znode's parents. Raises BadZnode for one that may not be read, ZooKeeperError."""
    await client.sync("/")
    tree: dict[str, Znode] = {}
    for path, answer in zip(PARENTS, await _contents(client, PARENTS), strict=True):
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


async def _subtree(client: Client, paths: list[str], tree: dict[str, Znode]) -> None:
    """A subtree level by level. A znode that vanishes meanwhile shows in the second reading."""
    while paths:
        found = await _contents(client, paths)
        parents = []
        for path, answer in zip(paths, found, strict=True):
            if answer is not None:
                data, stat = answer
                tree[path] = Znode(data or b"", stat.version)
                if stat.num_children:
                    parents.append(path)
        names = await _names(client, parents)
        paths = [f"{path}/{name}" for path, below in zip(parents, names, strict=True) for name in below]


async def _topics(client: Client, tree: dict[str, Znode]) -> None:
    """A state is asked for at once where the topic has such a partition: it is most of the tree."""
    (topics,) = await _names(client, [TOPICS])
    names = await _names(client, [partitions_path(topic) for topic in topics])
    contents = await _contents(client, [topic_path(topic) for topic in topics])
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
    for path, answer in zip(states, await _contents(client, states), strict=True):
        if answer is not None:
            tree[path] = Znode(answer[0] or b"", answer[1].version)


async def _old_groups(client: Client, tree: dict[str, Znode]) -> None:
    """The names of groups of 0.8 that have offsets in ZooKeeper, and of what: not the offsets."""
    (groups,) = await _names(client, [cluster.CONSUMERS])
    paths = [f"{cluster.CONSUMERS}/{group}" for group in groups]
    tree.update((path, Znode()) for path in paths)
    offsets = await _names(client, [f"{path}/offsets" for path in paths])
    for path, topics in zip(paths, offsets, strict=True):
        tree.update((f"{path}/offsets/{topic}", Znode()) for topic in topics)


async def _contents(client: Client, paths: Sequence[str]) -> list[Any]:
    """Data and stat of each znode, None where there is none."""
    return await _asked(client, [GetData(path) for path in paths])


async def _names(client: Client, paths: Sequence[str]) -> list[list[str]]:
    """The children of each znode, sorted; none where there is no such znode."""
    found = await _asked(client, [GetChildren(path) for path in paths])
    return [[] if each is None else sorted(each[0]) for each in found]


async def _asked(client: Client, requests: Sequence[Request]) -> list[Any]:
    """The answers in their order. What only reads is asked again after a broken connection. Raises BadZnode,
    ZooKeeperError."""
    found: list[Any] = []
    for start in range(0, len(requests), AT_ONCE):
        batch = requests[start : start + AT_ONCE]
        for attempt in range(ATTEMPTS):
            answers = await client.read_many(batch)
            if attempt == ATTEMPTS - 1 or not any(isinstance(each, ConnectionLossError) for each in answers):
                break
        found += [_answer(request, answer) for request, answer in zip(batch, answers, strict=True)]
    return found


def _answer(request: Request, answer: Any) -> Any:
    if isinstance(answer, NoNodeError):
        return None
    if isinstance(answer, NoAuthError):
        raise BadZnode(
            request.path, "may not be read: the ensemble asks for a login, which --zookeeper-config gives"
        ) from None
    if isinstance(answer, BaseException):
        raise answer
    return answer
