"""Simulated clients of transactions: writers over several partitions, copiers that read, write and commit offsets in
one transaction, and readers of what is committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.errors import ErrorCode
from ottla.histories.transactions import Transaction
from ottla.protocol.messages import ApiKey
from ottla.simulation.checks.history import History, Key
from ottla.simulation.checks.transaction_history import TransactionHistory, committed
from ottla.simulation.clients.clients import Client
from ottla.simulation.clients.transactional import Transactional, error_of
from ottla.simulation.clients.wire import Disconnected, Wire, leader_of
from ottla.simulation.world import World

LISTS = "lists"
"""What writers append to."""

COPIES = "copies"

PARTITIONS = 2
"""Partitions of both topics."""

COPIERS = "copiers"
"""The group whose offsets say how far the copies are."""


class Writer(Transactional):
    """Appends to the lists, some values to each of some partitions."""

    async def fill(self, transaction: Transaction) -> None:
        for _ in range(self.random.randint(1, 3)):
            key = LISTS, self.random.randrange(PARTITIONS)
            await self.write(transaction, key, [""] * self.random.choice((1, 1, 2, 3)))
            if self.random.random() < 0.15:
                await self.replay_end()
            await self.pause(0.03)

    async def abandon(self) -> None:
        """Begin a transaction that nobody ends."""
        await self._initialise()
        await self.write(self.transaction_history.begin(self.owner, self.name), (LISTS, 0), [""])


class Copier(Transactional):
    """Copies one of the lists: each of its values once, whoever of those with the same id does it."""

    def __init__(
        self,
        world: World,
        history: History,
        name: str,
        servers: Sequence[str],
        transaction_history: TransactionHistory,
        owner: str,
        version: int,
        number: int,
    ) -> None:
        self.source: Key = LISTS, number
        super().__init__(world, history, name, servers, transaction_history, owner, version)

    def drop_state(self) -> None:
        super().drop_state()
        self.position = -1
        """-1: where the group left off has to be asked for."""
        self.next = -1

    def taken_over(self) -> None:
        self.position = -1

    async def fill(self, transaction: Transaction) -> None:
        try:
            await self._copy(transaction)
        finally:
            position, self.position = self.position, -1
        if not transaction.appends:
            self.position = position

    def over(self, transaction: Transaction, *, committed: bool) -> None:
        if committed:
            self.position = self.next

    async def _copy(self, transaction: Transaction) -> None:
        if self.position < 0:
            self.position = await self.committed()
        records = await self._read()
        offsets_first = self.random.random() < 0.3
        if records and offsets_first:
            await self._commit_offset()
        for number in range(PARTITIONS):
            texts = [f"{self.source[1]}:{offset}" for offset in records if offset % PARTITIONS == number]
            if texts:
                await self.write(transaction, (COPIES, number), texts)
        if records and not offsets_first:
            await self._commit_offset()

    async def committed(self) -> int:
        topic = {"name": LISTS, "partition_indexes": [self.source[1]]}
        values = {"groups": [{"group_id": COPIERS, "topics": [topic]}], "require_stable": True}
        code, answer = await self.ask((0, COPIERS), ApiKey.OFFSET_FETCH, 8, values, _of_fetched_offset)
        if code:
            self.refused(code, "OffsetFetch")
        offset = max(0, int(answer["groups"][0]["topics"][0]["partitions"][0]["committed_offset"]))
        self.note(f"found {offset} of {self.source}")
        return offset

    async def _read(self) -> list[int]:
        """Offsets of values that are committed, and to be copied."""
        while True:
            values = fetch_values(self.source, self.position)
            code, answer = await self.ask(self.source, ApiKey.FETCH, 12, values, _of_fetch, 100)
            if code:
                self.refused(code, "Fetch")
            found, self.next = [], self.position
            for offset, value in committed(answer["responses"][0]["partitions"][0], self.position):
                self.next = offset
                if value is not None:
                    self.next = offset + 1
                    self.transaction_history.saw(self.source, offset, value, self.name)
                    found.append(offset)
                    if len(found) == 5:
                        break
            if found or self.next <= self.position:
                return found
            self.position = self.next  # markers only

    async def _commit_offset(self) -> None:
        group: Any = (0, COPIERS)
        if self.version == 1 and group not in self.added:
            values = {**self.me(), "group_id": COPIERS}
            code, _ = await self.ask((1, self.owner), ApiKey.ADD_OFFSETS_TO_TXN, 3, values, error_of)
            if code:
                self.refused(code, "AddOffsetsToTxn")
            self.added[group] = None
        row = {"partition_index": self.source[1], "committed_offset": self.next, "committed_leader_epoch": -1}
        topics = [{"name": LISTS, "partitions": [{**row, "committed_metadata": None}]}]
        values = {
            **self.me(),
            "group_id": COPIERS,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": topics,
        }
        version = 3 if self.version == 1 else 5
        code, _ = await self.ask(group, ApiKey.TXN_OFFSET_COMMIT, version, values, _of_committed_offset)
        if code:
            self.refused(code, "TxnOffsetCommit")
        self.note(f"commits {self.next} of {self.source} with {self.producer}")
        self.history.counts["transactional offset commits"] += 1


class CommittedReader(Client):
    """Reads what is committed in one partition, again and again, from its leader or another replica."""

    def __init__(
        self,
        world: World,
        history: History,
        name: str,
        servers: Sequence[str],
        transaction_history: TransactionHistory,
        key: Key,
    ) -> None:
        self.transaction_history = transaction_history
        self.key = key
        self.position = 0
        super().__init__(world, history, name, servers)

    def drop_state(self) -> None:
        self.position = 0

    async def where(self) -> str:
        if self.random.random() < 0.3:
            return self.random.choice(self.servers)
        return await leader_of(self.network, self.servers, self.random, self.key)

    async def session(self, wire: Wire) -> None:
        while not self.stopping:
            answer = await self.fetch(wire)
            if answer["error_code"] == ErrorCode.offset_out_of_range:
                return  # a replica that has not heard of it yet
            if answer["error_code"]:
                self.check_retriable(answer["error_code"], "fetch")
                return
            self.take(answer)
            if self.random.random() < 0.05:
                self.position = self.random.randint(0, self.position)
            await self.pause(0.05)
            if self.random.random() < 0.05:
                return

    async def fetch(self, wire: Wire) -> Any:
        bytes_max = self.random.choice((1, 300, 900, 100_000))
        response = await wire.ask(ApiKey.FETCH, 12, fetch_values(self.key, self.position, bytes_max))
        if response["error_code"]:
            return {"error_code": response["error_code"]}
        return response["responses"][0]["partitions"][0]

    def take(self, answer: Any) -> dict[int, bytes]:
        found = {}
        for offset, value in committed(answer, self.position):
            if value is None:
                self.position = max(offset, self.position)
            else:
                self.transaction_history.saw(self.key, offset, value, self.name)
                found[offset] = value
        return found

    async def read_all(self, wire: Wire) -> dict[int, bytes]:
        """All that is committed, when nobody writes any more and the last stable offset is the end. Raises
        Disconnected."""
        found: dict[int, bytes] = {}
        self.position = 0
        while True:
            answer = await self.fetch(wire)
            if answer["error_code"]:
                self.check_retriable(answer["error_code"], "fetch")
                raise Disconnected(f"fetch: {answer['error_code']}")
            if self.position >= answer["high_watermark"]:
                return found
            before = self.position
            found |= self.take(answer)
            if self.position == before:
                text = f"{self.key} at {before}, stable up to {answer['last_stable_offset']}"
                self.world.violated(f"nothing can be read: {text}, committed up to {answer['high_watermark']}")

    async def unstable(self, wire: Wire) -> str:
        """What keeps the last stable offset behind the high watermark; nothing where it is not."""
        self.position = 0
        answer = await self.fetch(wire)
        if answer["error_code"]:
            return f"{self.key}: {ErrorCode(answer['error_code']).name}"
        stable, end = answer["last_stable_offset"], answer["high_watermark"]
        return "" if stable == end else f"{self.key} is stable up to {stable} of {end}"


def fetch_values(key: Key, position: int, bytes_max: int = 100_000) -> dict[str, Any]:
    """A read_committed Fetch of one partition."""
    asked = {
        "partition": key[1],
        "fetch_offset": position,
        "partition_max_bytes": bytes_max,
        "current_leader_epoch": -1,
    }
    return {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "session_id": 0,
        "session_epoch": -1,
        "isolation_level": 1,
        "topics": [{"topic": key[0], "partitions": [asked]}],
    }


def _of_fetch(answer: Any) -> int:
    """The error. A leader that was replaced while it was cut off lacks the newest records: another node is asked."""
    code = int(answer["error_code"] or answer["responses"][0]["partitions"][0]["error_code"])
    return ErrorCode.not_leader_or_follower if code == ErrorCode.offset_out_of_range else code


def _of_fetched_offset(answer: Any) -> int:
    (group,) = answer["groups"]
    return int(group["error_code"] or group["topics"][0]["partitions"][0]["error_code"])


def _of_committed_offset(answer: Any) -> int:
    return int(answer["topics"][0]["partitions"][0]["error_code"])
