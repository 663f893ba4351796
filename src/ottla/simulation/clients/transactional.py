"""A simulated producer with a transactional id: the protocol of old clients and of those of KIP-890.

It retries as clients do, and is as late, forgetful and fenced as they are: requests are sent twice, ends of
transactions are repeated when the next one is open, writes arrive when their transaction is over, another process takes
the id over. Where an old client cannot tell what is still on its way it asks for a new epoch (KIP-360).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

from ottla.coordinator.partitioning import partition_for
from ottla.errors import ErrorCode
from ottla.histories.transactions import Transaction
from ottla.model import TRANSACTION_TOPIC
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch
from ottla.simulation.checks.history import History, Key
from ottla.simulation.checks.transaction_history import TransactionHistory
from ottla.simulation.clients.clients import RECONNECT_S, Client
from ottla.simulation.clients.wire import RETRIABLE, Disconnected, Wire, coordinator_of, leader_of
from ottla.simulation.world import EPOCH_MS, LOG_PARTITIONS, World

TIMEOUT_MS = 3000
"""Timeout of transactions."""

FENCED = frozenset({ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch})

_AGAIN = RETRIABLE | {ErrorCode.concurrent_transactions, ErrorCode.unstable_offset_commit}

Place = Key | tuple[int, str]
"""The node to ask: the leader of a partition, or the coordinator of a kind (0: groups, 1: transactions)."""

_VERSIONS = {
    1: {ApiKey.INIT_PRODUCER_ID: 4, ApiKey.PRODUCE: 9, ApiKey.END_TXN: 3, ApiKey.TXN_OFFSET_COMMIT: 3},
    2: {ApiKey.INIT_PRODUCER_ID: 5, ApiKey.PRODUCE: 12, ApiKey.END_TXN: 5, ApiKey.TXN_OFFSET_COMMIT: 5},
}
"""API versions by the client's transaction.version."""


_ABORTABLE = frozenset({ErrorCode.invalid_txn_state, ErrorCode.transaction_abortable})
"""What a leader says that asked a coordinator which is none any more and has not heard of it, as in Kafka."""

STEADY_S = 10.0
"""So long after a change every node knows who coordinates: partitions and pauses are shorter."""


class Refused(Exception):
    """A write was refused; the transaction can only be aborted."""


class Fenced(Exception):
    """Another process has the transactional id, or the transaction took too long."""


class Transactional(Client):
    """One transaction after the other; `fill` says what is in each."""

    def __init__(
        self,
        world: World,
        history: History,
        name: str,
        servers: Sequence[str],
        transaction_history: TransactionHistory,
        owner: str,
        version: int,
    ) -> None:
        self.transaction_history = transaction_history
        self.owner = owner
        """The transactional id, which others may have too."""
        self.version = version
        self.drop_state()
        super().__init__(world, history, name, servers)

    def drop_state(self) -> None:
        self.producer = -1, -1
        """Id and epoch."""
        self.ended: tuple[int, int, bool] | None = None
        """The last EndTxn that was answered, of an epoch that is over."""
        self.sequences: dict[Key, int] = {}
        self.added: dict[Place, None] = {}
        self.unanswered = 0
        """Requests of this epoch that may still arrive some time."""
        self.doubts = 0
        """Requests that may have been done, though nobody said so."""
        self.places: dict[Place, str] = {}
        self.wires: dict[str, Wire] = {}

    async def _run(self) -> None:
        while not self.finished():
            try:
                if self.producer[0] < 0 or (self.version == 1 and self.unanswered):
                    await self._initialise()
                await self._transaction()
            except Fenced as error:
                self.world.counts["fenced producers"] += 1
                self.note(f"fenced: {error}")
                self._become(-1, -1)
                await self.pause(1.0)
            except Disconnected as error:  # it gave up
                self.note(f"gave up: {error}")
            await self.pause(0.05)
        for wire in self.wires.values():
            wire.close()
        self.done = True

    async def fill(self, transaction: Transaction) -> None:
        """Write. Raises Fenced, and Disconnected where it gives up."""
        raise NotImplementedError

    def taken_over(self) -> None:
        """The transactional id is this one's from now on; others may have had it."""

    def over(self, transaction: Transaction, *, committed: bool) -> None:
        """Record that it has ended."""

    # Requests

    async def ask(
        self,
        place: Place,
        key: ApiKey,
        version: int,
        values: Mapping[str, Any],
        error_of: Callable[[Any], int],
        tries_max: int = 1 << 30,
    ) -> tuple[ErrorCode, Any]:
        """An answer that stands, by whomever. Raises Disconnected where there is none."""
        for _ in range(tries_max):
            sent = False
            try:
                wire = await self.wire(place)
                sent = True
                answer = await wire.ask(key, version, values)
            except Disconnected as error:
                self.unanswered += sent
                self.doubts += sent
                self.note(f"{key.name}: {error}")
                self.world.counts["transactional disconnected"] += 1
                self._look_again(place)
                await asyncio.sleep(2 * RECONNECT_S)
                continue
            code = ErrorCode(error_of(answer))
            if code:
                self.note(f"{key.name}: {code.name} by {wire.host}")
            if code not in _AGAIN:
                return code, answer
            self.doubts += code is not ErrorCode.concurrent_transactions
            self.world.counts[f"error {code.name}"] += 1
            self._look_again(place)
            await self.pause(0.05)
        raise Disconnected(f"{key.name} was not answered")

    async def wire(self, place: Place) -> Wire:
        host = self.places.get(place)
        if host is None:
            host = self.places[place] = await self._find(place)
        wire = self.wires.get(host)
        if wire is None or wire.transport is None:
            wire = self.wires[host] = await Wire.connect(self.network, host)
        return wire

    async def _find(self, place: Place) -> str:
        first, second = place
        if isinstance(first, int):
            return await coordinator_of(self.network, self.servers, self.random, str(second), first)
        return await leader_of(self.network, self.servers, self.random, (first, int(second)))

    def _look_again(self, place: Place) -> None:
        self.places.pop(place, None)

    def me(self) -> dict[str, Any]:
        return {"transactional_id": self.owner, "producer_id": self.producer[0], "producer_epoch": self.producer[1]}

    def refused(self, code: ErrorCode, what: str) -> None:
        """Raises Fenced, or Refused where the transaction can only be aborted; anything else is a broken promise."""
        if code in FENCED:
            raise Fenced(f"{what}: {code.name}")
        log = TRANSACTION_TOPIC, partition_for(self.owner, LOG_PARTITIONS)
        if code in _ABORTABLE and self.transaction_history.steady_s(log) < STEADY_S:
            self.world.counts["refused by an old coordinator"] += 1
            raise Refused(f"{what}: {code.name}")
        self.world.violated(f"{self.name}: {what} of an open transaction was answered {code.name}")

    # Epochs

    def _become(self, producer_id: int, epoch: int) -> None:
        if producer_id >= 0:
            self.transaction_history.give((producer_id, epoch), self.owner, self.name)
            if self.producer[0] >= 0 and (producer_id, epoch) <= self.producer:
                self.world.violated(f"epochs are monotonic: {self.name} got {producer_id, epoch}, had {self.producer}")
        self.producer = producer_id, epoch
        self.sequences, self.added, self.unanswered = {}, {}, 0

    async def _initialise(self) -> None:
        known = self.producer if self.random.random() < 0.7 else (-1, -1)
        values = {**self.me(), "producer_id": known[0], "producer_epoch": known[1], "transaction_timeout": TIMEOUT_MS}
        key = ApiKey.INIT_PRODUCER_ID
        code, answer = await self.ask((1, self.owner), key, _VERSIONS[self.version][key], values, error_of)
        if code:
            self.refused(code, "InitProducerId")
        self._become(answer["producer_id"], answer["producer_epoch"])
        self.taken_over()
        self.history.counts["transactional producers"] += 1

    # One transaction

    async def _transaction(self) -> None:
        transaction = self.transaction_history.begin(self.owner, self.name)
        commit = self.random.random() < 0.75
        try:
            await self.fill(transaction)
        except (Disconnected, Refused) as error:
            self.note(f"gives {transaction} up: {error}")
            self.unanswered += 1  # what was sent last may be on its way still
            commit = False
        except Fenced:
            self.transaction_history.decide(transaction, committed=False)
            await self._as_zombie(transaction)
            raise
        if not transaction.appends:
            return
        if self.random.random() < 0.04:
            await asyncio.sleep(2 * TIMEOUT_MS / 1000)
            self.world.counts["transactions slept through"] += 1
        await self._end(transaction, commit=commit)
        self.added = {}
        self.over(transaction, committed=commit)

    async def _end(self, transaction: Transaction, *, commit: bool) -> None:
        transaction.asked = commit
        if not commit and self.random.random() < 0.3:
            self.write_late(transaction)
        key, before, mine = ApiKey.END_TXN, self.doubts, self.producer
        values = {**self.me(), "committed": commit}
        ending = asyncio.ensure_future(self.ask((1, self.owner), key, _VERSIONS[self.version][key], values, error_of))
        if not commit and self.random.random() < 0.3:
            await asyncio.sleep(self.random.uniform(0, 0.05))
            self.write_late(transaction)
        code, answer = await ending
        is_known = not commit or self.doubts == before
        if code in FENCED:
            self.transaction_history.decide(transaction, False if is_known else None)
            raise Fenced(f"EndTxn: {code.name}")
        if code is ErrorCode.invalid_txn_state:  # aborted when it took too long, or never begun
            self.transaction_history.decide(transaction, committed=False)
            raise Fenced(f"EndTxn: {code.name}")
        if code:
            self.refused(code, f"EndTxn {commit}")
        self.transaction_history.decide(transaction, commit)
        if self.version == 2:
            self._become(answer["producer_id"], answer["producer_epoch"])
            self.ended = *mine, commit
        elif self.unanswered:
            self.ended = *mine, commit  # of an epoch that will be over when the next transaction begins

    async def write(self, transaction: Transaction, key: Key, texts: Iterable[str]) -> None:
        """Append values to one partition, in one batch."""
        if self.version == 1 and key not in self.added:
            await self._add(key)
        values = [self.transaction_history.append(transaction, key, text) for text in texts]
        batch = self._batch(key, values)
        twin = await self._twin(key, batch) if self.random.random() < 0.15 else None
        api, tries_max = ApiKey.PRODUCE, self.random.choice((2, 10, 100))
        version = _VERSIONS[self.version][api]
        try:
            code, answer = await self.ask(key, api, version, self._asked(key, batch), _of_produce, tries_max)
        finally:
            if twin is not None:
                await self._second_answer(*twin)
        if code not in (ErrorCode.none, ErrorCode.duplicate_sequence_number):
            self.refused(code, f"Produce to {key}")
        offset = answer["responses"][0]["partition_responses"][0]["base_offset"]
        self.note(f"acknowledged {values[0].decode()} x{len(values)} of {self.producer} at {offset} of {key}")
        self.sequences[key] = self.sequences.get(key, 0) + len(values)
        self.history.counts["transactional writes"] += len(values)

    async def _add(self, key: Key) -> None:
        topics = [{"name": key[0], "partitions": [key[1]]}]
        values = {f"v3_and_below_{name}": each for name, each in (*self.me().items(), ("topics", topics))}
        code, _ = await self.ask((1, self.owner), ApiKey.ADD_PARTITIONS_TO_TXN, 3, values, _of_addition)
        if code:
            self.refused(code, f"AddPartitionsToTxn of {key}")
        self.added[key] = None

    def _batch(self, key: Key, values: Iterable[bytes]) -> bytes:
        now_ms = EPOCH_MS + int(self.world.time.now_s * 1000)
        return bytes(
            build_batch(
                [SimpleRecord(now_ms, None, value) for value in values],
                codec=self.random.choice((0, 0, 1, 3)),
                producer_id=self.producer[0],
                producer_epoch=self.producer[1],
                base_sequence=self.sequences.get(key, 0),
                transactional=True,
            )
        )

    def _asked(self, key: Key, batch: bytes) -> dict[str, Any]:
        data = [{"name": key[0], "partition_data": [{"index": key[1], "records": batch}]}]
        return {"transactional_id": self.owner, "acks": -1, "timeout": 1500, "topic_data": data}

    async def _twin(self, key: Key, batch: bytes) -> tuple[Wire, asyncio.Future[Any]] | None:
        """The same batch by another connection, as a retry that overtakes what it repeats."""
        try:
            wire = await Wire.connect(self.network, await self._find(key))
        except Disconnected:
            return None
        self.world.counts["transactional batches sent twice"] += 1
        return wire, wire.send(ApiKey.PRODUCE, _VERSIONS[self.version][ApiKey.PRODUCE], self._asked(key, batch))

    async def _second_answer(self, wire: Wire, future: asyncio.Future[Any]) -> None:
        try:
            code = ErrorCode(_of_produce(await wire.answer(future)))
            self.note(f"the repeated Produce: {code.name} by {wire.host}")
            if code not in (ErrorCode.none, ErrorCode.duplicate_sequence_number, *_AGAIN):
                self.refused(code, "a repeated Produce")
        except Disconnected:
            self.unanswered += 1
        finally:
            wire.close()

    # What should not do any harm

    def write_late(self, transaction: Transaction) -> None:
        """Write to a partition of a transaction that is over, or about to be aborted. No waiter for the answer."""
        keys = [key for index, key in enumerate(transaction.appends) if index not in transaction.late]
        key = self.random.choice(keys)
        wire = self.wires.get(self.places.get(key, ""))
        if wire is None or wire.transport is None:
            return
        value = self.transaction_history.append(transaction, key, late=True)
        wire.send(ApiKey.PRODUCE, _VERSIONS[self.version][ApiKey.PRODUCE], self._asked(key, self._batch(key, [value])))
        self.unanswered += 1
        self.world.counts["late writes"] += 1

    async def replay_end(self) -> None:
        """Send another EndTxn of an earlier transaction, as if it had been delayed until now (KAFKA-17754)."""
        if self.ended is None or self.ended[:2] == self.producer:
            return
        producer_id, epoch, commit = self.ended
        values = {**self.me(), "producer_id": producer_id, "producer_epoch": epoch}
        values["committed"] = commit if self.random.random() < 0.5 else not commit
        try:
            with closing(await Wire.connect(self.network, await self._find((1, self.owner)))) as wire:
                answer = await wire.ask(ApiKey.END_TXN, _VERSIONS[self.version][ApiKey.END_TXN], values)
        except Disconnected:
            return
        self.world.counts["EndTxn replayed"] += 1
        self.note(f"EndTxn of epoch {epoch} replayed: {ErrorCode(answer['error_code']).name}")

    async def _as_zombie(self, transaction: Transaction) -> None:
        """Continue as a producer that does not know yet that it is fenced."""
        if (
            not transaction.appends
            or self.random.random() < 0.5
            or self.transaction_history.newest[self.owner] <= self.producer
        ):
            return  # a coordinator that is none any more may say so of one that is not fenced, as Kafka's does
        self.write_late(transaction)
        values = {**self.me(), "committed": True}
        try:
            wire = await self.wire((1, self.owner))
            answer = await wire.ask(ApiKey.END_TXN, _VERSIONS[self.version][ApiKey.END_TXN], values)
        except Disconnected:
            return
        self.world.counts["commits of zombies"] += 1
        if answer["error_code"] == ErrorCode.none:
            self.world.violated(f"zombies are fenced: {self.name} could commit {transaction}")


def error_of(answer: Any) -> int:
    return int(answer["error_code"])


def _of_produce(answer: Any) -> int:
    return int(answer["responses"][0]["partition_responses"][0]["error_code"])


def _of_addition(answer: Any) -> int:
    return int(answer["results_by_topic_v3_and_below"][0]["results_by_partition"][0]["partition_error_code"])
