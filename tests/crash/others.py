"""What else a node must not forget: topics that were created or deleted, offsets that were committed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from tests.crash.client import Connection, Disconnected
from tests.crash.producers import RECONNECT_S, RETRIABLE

PAUSE_S = 0.01


async def reconnecting(
    port: int, session: Callable[[Connection], Awaitable[None]], stopped: Callable[[], bool]
) -> None:
    """Call `session` with a fresh connection whenever the last one broke."""
    while not stopped():
        try:
            connection = await Connection.open(port)
            try:
                await session(connection)
            finally:
                connection.close()
        except Disconnected:
            await asyncio.sleep(RECONNECT_S)


@dataclass
class TopicChurn:
    """Creates and deletes topics; remembers which have to be there and which must not."""

    present: set[str] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)
    number: int = 0
    stopping: bool = False

    async def run(self, port: int) -> None:
        await reconnecting(port, self._session, lambda: self.stopping)

    async def _session(self, connection: Connection) -> None:
        while not self.stopping:
            self.number += 1
            name = f"churn-{self.number}"
            topic = {"name": name, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
            values = {"topics": [topic], "timeout": 30_000, "validate_only": False}
            created = await connection.call(ApiKey.CREATE_TOPICS, 7, values)
            if self._good(created.topics[0].error_code):
                self.present.add(name)
            if len(self.present) > 5:
                victim = min(self.present)
                self.present.discard(victim)  # from here on it may be there or not
                values = {"topics": [{"name": victim, "topic_id": None}], "timeout": 30_000}
                deleted = await connection.call(ApiKey.DELETE_TOPICS, 6, values)
                if self._good(deleted.responses[0].error_code):
                    self.absent.add(victim)
            await asyncio.sleep(PAUSE_S)

    @staticmethod
    def _good(error: ErrorCode) -> bool:
        assert error is ErrorCode.none or error in RETRIABLE, error.name
        return error is ErrorCode.none

    async def check(self, port: int) -> None:
        connection = await Connection.open(port)
        response = await connection.call(ApiKey.METADATA, 12, {"topics": None, "allow_auto_topic_creation": False})
        connection.close()
        names = {topic.name for topic in response.topics if topic.error_code is ErrorCode.none}
        assert self.present <= names, f"created topics are gone: {sorted(self.present - names)}"
        assert not self.absent & names, f"deleted topics are back: {sorted(self.absent & names)}"


@dataclass
class Committer:
    """Commits growing offsets for a group without members; the last acknowledged one has to be there."""

    topic: str
    group: str = "crash-group"
    committed: int = -1
    tried: int = -1
    stopping: bool = False

    async def run(self, port: int) -> None:
        await reconnecting(port, self._session, lambda: self.stopping)

    async def _session(self, connection: Connection) -> None:
        while not self.stopping:
            self.tried += 1
            offset = self.tried
            partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": str(offset)}
            values = {
                "group_id": self.group,
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "topics": [{"name": self.topic, "partitions": [partition]}],
            }
            response = await connection.call(ApiKey.OFFSET_COMMIT, 8, values)
            error = response.topics[0].partitions[0].error_code
            if error is ErrorCode.none:
                self.committed = offset
            else:
                assert error in RETRIABLE, error.name
                await self._find(connection)
            await asyncio.sleep(PAUSE_S)

    async def _find(self, connection: Connection) -> None:
        """Ask for the coordinator, which creates the offsets topic on a new node."""
        await connection.call(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": [self.group]})
        await asyncio.sleep(RECONNECT_S)

    async def check(self, port: int) -> None:
        if self.committed < 0:
            return
        connection = await Connection.open(port)
        topic = {"name": self.topic, "partition_indexes": [0]}
        values = {"groups": [{"group_id": self.group, "topics": [topic]}], "require_stable": False}
        for _ in range(200):
            response = await connection.call(ApiKey.OFFSET_FETCH, 8, values)
            group = response.groups[0]
            if group.error_code is ErrorCode.none:
                break
            assert group.error_code in RETRIABLE, group.error_code.name
            await asyncio.sleep(RECONNECT_S)
        else:
            raise AssertionError(f"the group does not load: {group.error_code.name}")
        connection.close()
        found = group.topics[0].partitions[0].committed_offset
        assert self.committed <= found <= self.tried, f"committed {self.committed} of {self.tried}, found {found}"
