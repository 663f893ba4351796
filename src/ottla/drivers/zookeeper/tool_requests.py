"""What old tools write into ZooKeeper, as requests to the controller of this node.

`kafka-topics --zookeeper` and its like of Kafka 2.x, CMAK and scripts create a topic's znode, change its assignment,
leave a notification below `/config/changes` or the ACLs', or a wish below `/admin`. Each is done as the request that
newer tools send, and then taken away where Kafka's controllers take it away (`KafkaController`'s handlers).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from ottla.clock import Clock
from ottla.controller.decision import Decision
from ottla.drivers.controller.active_controller import ActiveController
from ottla.drivers.zookeeper.tree import below
from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.metadata.image import MetadataImage, TopicImage
from ottla.model import ZERO_UUID
from ottla.protocol.messages import ApiKey
from ottla.znodes import cluster, configs, reconcile
from ottla.znodes.topics import TOPICS, decode_topic, topic_path
from ottla.znodes.tree import BadZnode, fields_of
from ottla.znodes.unfinished import decode_reassignments
from ottla.zookeeper.client import ZooKeeper
from ottla.zookeeper.errors import NoNodeError, SessionExpiredError, ZooKeeperError
from ottla.zookeeper.watches import WatchedEvent

_LOG = logging.getLogger("ottla.controller")

RETRY_SECONDS = 1.0

CHANGES = "/config/changes"
ACL_CHANGES = "/kafka-acl-changes"
EXTENDED_ACL_CHANGES = "/kafka-acl-extended-changes"
ELECTION = "/admin/preferred_replica_election"

NOTIFICATION_MS = 15 * 60 * 1000
"""How long a notification stays for others to read (`ZkNodeChangeNotificationListener`)."""

TIMEOUT_MS = 30_000
PREFERRED = 0


class ToolRequests:
    """The watches of one epoch of this node as the controller."""

    def __init__(
        self, client: ZooKeeper, controller: ActiveController, clock: Clock, secrets: Sequence[str], cluster_id: str
    ) -> None:
        self._client = client
        self._controller = controller
        self._clock = clock
        self._secrets = secrets
        self._seed = cluster_id.encode()
        self._watched: set[str] = set()
        """Topics whose assignment is watched."""
        self._assignments: asyncio.Queue[str] = asyncio.Queue()

    def watches(self) -> list[Coroutine[Any, Any, None]]:
        """What is to run as long as this node is the controller."""
        return [
            self._children(TOPICS, self._topics),
            self._assigned(),
            self._children(CHANGES, self._configs),
            self._children(ACL_CHANGES, lambda names: self._acls(ACL_CHANGES, names, extended=False)),
            self._children(EXTENDED_ACL_CHANGES, lambda names: self._acls(EXTENDED_ACL_CHANGES, names, extended=True)),
            self._children(cluster.DELETIONS, self._deletions),
            self._data(cluster.REASSIGNMENTS, self._reassignments),
            self._data(ELECTION, self._elections),
        ]

    # Watching.

    async def _children(self, path: str, handle: Callable[[list[str]], Awaitable[None]]) -> None:
        async def look(changed: asyncio.Event) -> None:
            await handle(sorted((await self._client.children(path, _setter(changed))).names))

        await self._watch(path, look)

    async def _data(self, path: str, handle: Callable[[bytes], Awaitable[None]]) -> None:
        async def look(changed: asyncio.Event) -> None:
            if await self._client.exists(path, _setter(changed)) is not None:
                await handle((await self._client.get(path)).data)

        await self._watch(path, look)

    async def _watch(self, path: str, look: Callable[[asyncio.Event], Awaitable[None]]) -> None:
        changed = asyncio.Event()
        while self._is_active():
            changed.clear()
            try:
                await look(changed)
            except SessionExpiredError:
                return
            except NoNodeError:
                pass
            except (BadZnode, KafkaError, ZooKeeperError) as error:
                if not self._is_active():
                    return
                _LOG.warning("a wish in ZooKeeper cannot be met", extra=fields(znode=path, error=str(error)))
                await asyncio.sleep(RETRY_SECONDS)
                continue
            except Exception as error:
                _LOG.error("a wish in ZooKeeper failed", extra=fields(znode=path), exc_info=error)
            await changed.wait()

    def _is_active(self) -> bool:
        return self._controller.active

    async def _ask(self, api_key: ApiKey, request: Mapping[str, Any]) -> Any:
        return (await self._controller.request(api_key, request)).response

    async def _decide(self, records: Callable[[MetadataImage], list[Any]]) -> None:
        await self._controller.submit(lambda image, now: Decision(None, records(image)))

    # Topics.

    async def _topics(self, names: list[str]) -> None:
        for name in names:
            if name not in self._watched:
                self._watched.add(name)
                self._assignments.put_nowait(name)
        self._watched &= set(names)

    async def _assigned(self) -> None:
        while self._controller.active:
            name = await self._assignments.get()
            try:
                data, _ = await self._client.get(topic_path(name), self._again(name))
                await self._assignment(name, data)
            except NoNodeError:
                self._watched.discard(name)
            except SessionExpiredError:
                return
            except (BadZnode, KafkaError, ZooKeeperError) as error:
                _LOG.warning("a topic in ZooKeeper cannot be had", extra=fields(topic=name, error=str(error)))
            except Exception as error:
                _LOG.error("a topic in ZooKeeper failed", extra=fields(topic=name), exc_info=error)

    def _again(self, name: str) -> Callable[[WatchedEvent], None]:
        return lambda event: self._assignments.put_nowait(name)

    async def _assignment(self, name: str, data: bytes) -> None:
        """A topic that is new, or has more partitions than are known; what else differs is written again with the next
        change of the topic. Tools that write znodes give a topic no id."""
        found = decode_topic(topic_path(name), data)
        known = self._controller.image.topics_by_name.get(name)
        if known is None:
            if found.topic_id is None:  # one with an id was made by a controller, and is being deleted
                await self._create(name, found.replicas)
        elif found.topic_id in (None, known.id) and len(found.replicas) > len(known.partitions):
            await self._extend(known, found.replicas)

    async def _create(self, name: str, replicas: Mapping[int, tuple[int, ...]]) -> None:
        path = f"{configs.TOPIC_CONFIGS}/{name}"
        try:
            settings = configs.decode_config(path, (await self._client.get(path)).data)
        except NoNodeError:
            settings = {}
        topic = {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": n, "broker_ids": list(each)} for n, each in replicas.items()],
            "configs": [{"name": key, "value": value} for key, value in settings.items()],
        }
        request = {"topics": [topic], "timeout": TIMEOUT_MS, "validate_only": False}
        answer = await self._ask(ApiKey.CREATE_TOPICS, request)
        _raise(answer["topics"][0], but=(ErrorCode.topic_already_exists,))

    async def _extend(self, known: TopicImage, replicas: Mapping[int, tuple[int, ...]]) -> None:
        added = [{"broker_ids": list(each)} for number, each in replicas.items() if number not in known.partitions]
        topic = {"name": known.name, "count": len(replicas), "assignments": added}
        answer = await self._ask(
            ApiKey.CREATE_PARTITIONS, {"topics": [topic], "timeout": TIMEOUT_MS, "validate_only": False}
        )
        _raise(answer["results"][0])

    async def _deletions(self, names: list[str]) -> None:
        for name in names:
            if name in self._controller.image.topics_by_name:
                request = {"topics": [{"name": name, "topic_id": ZERO_UUID}], "timeout": TIMEOUT_MS}
                answer = await self._ask(ApiKey.DELETE_TOPICS, request)
                _raise(answer["responses"][0], but=(ErrorCode.unknown_topic_or_partition,))
            await self._remove(f"{cluster.DELETIONS}/{name}")

    # Settings, quotas, users and ACLs.

    async def _configs(self, names: list[str]) -> None:
        for name in names:
            path = f"{CHANGES}/{name}"
            await self._notified(path, lambda data, path=path: reconcile.changed_entity(path, data))  # type: ignore[misc]

    async def _acls(self, root: str, names: list[str], *, extended: bool) -> None:
        for name in names:
            path = f"{root}/{name}"
            await self._notified(
                path,
                lambda data, path=path: reconcile.changed_acls(path, data, extended=extended),  # type: ignore[misc]
            )

    async def _notified(self, path: str, entity: Callable[[bytes], str]) -> None:
        try:
            data, stat = await self._client.get(path)
        except NoNodeError:
            return
        if self._clock.now_ms() - stat.ctime > NOTIFICATION_MS:
            await self._remove(path)
            return
        if path in self._watched:
            return
        self._watched.add(path)
        try:
            of = entity(data)
            try:
                content = (await self._client.get(of)).data
            except NoNodeError:
                content = b""
            await self._decide(lambda image: reconcile.records_for(image, of, content, self._secrets, self._seed))
        except BadZnode as error:
            _LOG.warning("a change in ZooKeeper is left out", extra=fields(znode=error.path, error=error.why))

    # Wishes.

    async def _reassignments(self, data: bytes) -> None:
        """Kafka's controller takes the znode away when all of it is done."""
        topics: dict[str, list[Any]] = {}
        wanted: dict[tuple[str, int], list[int]] = {}
        for each in decode_reassignments(data):
            place = each.topic, each.partition
            wanted[place] = list(each.replicas)
            topics.setdefault(place[0], []).append({"partition_index": place[1], "replicas": wanted[place]})
        rows = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
        request = {"timeout": TIMEOUT_MS, "allow_replication_factor_change": True, "topics": rows}
        answer = await self._ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)
        for topic in answer["responses"]:
            for partition in topic["partitions"]:
                if partition["error_code"]:
                    what = fields(topic=topic["name"], partition=partition["partition_index"], error=_why(partition))
                    _LOG.warning("a reassignment in ZooKeeper is refused", extra=what)
        while self._is_active() and any(self._is_moving(*place) for place in wanted):  # noqa: ASYNC110
            await asyncio.sleep(RETRY_SECONDS)
        await self._remove(cluster.REASSIGNMENTS)

    def _is_moving(self, topic: str, number: int) -> bool:
        partition = self._controller.image.partition(topic, number)
        return partition is not None and bool(partition.adding or partition.removing)

    async def _elections(self, data: bytes) -> None:
        topics: dict[str, list[int]] = {}
        for each in fields_of(ELECTION, data).objects("partitions"):
            topics.setdefault(each.text("topic"), []).append(each.integer("partition"))
        rows = [{"topic": name, "partitions": partitions} for name, partitions in topics.items()]
        await self._ask(
            ApiKey.ELECT_LEADERS, {"election_type": PREFERRED, "topic_partitions": rows, "timeout": TIMEOUT_MS}
        )
        await self._remove(ELECTION)

    async def _remove(self, path: str) -> None:
        for each in await below(self._client, path):
            try:
                await self._client.delete(each)
            except NoNodeError:
                pass


def _setter(changed: asyncio.Event) -> Callable[[WatchedEvent], None]:
    return lambda event: changed.set()


def _why(row: Mapping[str, Any]) -> str:
    code = ErrorCode(row["error_code"])
    return row.get("error_message") or code.name


def _raise(row: Mapping[str, Any], but: Sequence[ErrorCode] = ()) -> None:
    code = row.get("error_code", 0)
    if code and ErrorCode(code) not in but:
        raise KafkaError(ErrorCode(code), _why(row))
