"""Simulated clients: each a process of its own that speaks Kafka's protocol over the simulated network.

They reconnect and retry as clients do, note in the `History` what they sent, were told and saw, and check what can be
checked at once: that offsets are contiguous, that a committed offset is never older than the last one acknowledged.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from random import Random
from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import (
    SimpleRecord,
    build_batch,
    crc_is_valid,
    iterate_batches,
    iterate_records,
)
from ottla.simulation.checks.history import ACKS_ALL, History, Key, Mark
from ottla.simulation.clients.wire import RETRIABLE, Disconnected, Wire, leader_of
from ottla.simulation.world import EPOCH_MS, PORT, World

RECONNECT_S = 0.05
EARLY_S = 0.002
"""Rounding of event loops' timers."""

RECONNECT_S_MAX = 0.3
"""Longest pause of clients before they reconnect."""


class Client:
    """A process that does something again and again until `stop`, over whatever happens."""

    pause_s_max = 4.0
    """For how long it rests on average, at most, where clients take their time."""
    port = PORT
    """Where it reaches brokers."""

    def __init__(self, world: World, history: History, name: str, servers: Sequence[str]) -> None:
        """`servers` are the brokers that it knows; of several it asks one where to go."""
        self.world = world
        self.history = history
        self.name = name
        self.servers = servers
        self.host = servers[0]
        """The broker that it is connected with, or was."""
        self.random: Random = world.random(f"client/{name}")
        self.stopping = False
        self.done = False
        self.starts = 0
        self.start()

    def start(self) -> None:
        self.starts += 1
        self.loop = self.world.process(f"{self.name}#{self.starts}")
        self.network = self.world.network.of(self.loop, self.name)
        self.loop.create_task(self._run())

    def crash(self) -> None:
        """The process dies with what it knew of its requests, and another one starts."""
        if not self.done:
            self.world.trace(self.name, "client killed")
            self.world.counts["client killed"] += 1
            self.loop.kill()
            self.world.network.ended(self.loop, self.name, power_loss=False)
            self.drop_state()
            self.start()

    def drop_state(self) -> None:
        """What a new process does not know."""

    async def _run(self) -> None:
        while not self.finished():
            try:
                self.host = await self.where() if len(self.servers) > 1 else self.servers[0]
                with closing(await Wire.connect(self.network, self.host, self.port)) as wire:
                    await self.session(wire)
            except Disconnected as error:
                self.world.counts[f"{type(self).__name__.lower()} disconnected"] += 1
                self.world.trace(self.name, f"disconnected: {error}")
            await asyncio.sleep(min(RECONNECT_S * self.world.pace, RECONNECT_S_MAX))
        self.done = True

    async def where(self) -> str:
        """The broker to connect with. Raises Disconnected if it is unknown."""
        return self.random.choice(self.servers)

    def finished(self) -> bool:
        return self.stopping

    async def session(self, wire: Wire) -> None:
        raise NotImplementedError

    async def new_producer_id(self, wire: Wire) -> int:
        """The id of an idempotent producer; -1 where there is none for now."""
        values = {"transactional_id": None, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
        answer = await wire.ask(ApiKey.INIT_PRODUCER_ID, 4, values)
        if answer["error_code"]:
            self.check_retriable(answer["error_code"], "producer id")
            return -1
        return int(answer["producer_id"])

    async def pause(self, seconds: float) -> None:
        seconds = max(seconds, min(seconds * self.world.pace, self.pause_s_max))
        await asyncio.sleep(self.random.uniform(0, 2 * seconds))

    def note(self, what: str) -> None:
        self.world.trace(self.name, what)

    def check_retriable(self, error: int, what: str) -> None:
        code = ErrorCode(error)
        self.world.counts[f"error {code.name}"] += 1
        self.note(f"{what}: {code.name}")
        if code not in RETRIABLE:
            self.world.violated(f"{self.name}: {what} was answered {code.name}")


def produced(response: Any) -> tuple[int, int]:
    """Error and base offset of a request for one partition."""
    answer = response["responses"][0]["partition_responses"][0]
    return answer["error_code"], answer["base_offset"]


class _Sent:
    """A batch on its way."""

    def __init__(self, data: bytes, values: list[bytes], first: int) -> None:
        self.data = data
        self.values = values
        self.first = first
        self.tries = 0
        self.mark = Mark()


class Producer(Client):
    """Sends numbered values to one partition, each until it is acknowledged."""

    def __init__(
        self,
        world: World,
        history: History,
        name: str,
        servers: Sequence[str],
        key: Key,
        *,
        idempotent: bool,
        in_flight: int,
        acks: int = ACKS_ALL,
    ) -> None:
        self.key = key
        self.acks = acks
        self.idempotent = idempotent
        self.in_flight_max = in_flight
        self.number = 0
        self.sequence = 0
        self.producer_id = -1
        self.lives = 0
        self.unanswered: deque[_Sent] = deque()
        super().__init__(world, history, name, servers)

    async def where(self) -> str:
        return await leader_of(self.network, self.servers, self.random, self.key)

    def drop_state(self) -> None:
        self.unanswered.clear()
        self.producer_id = -1
        self.sequence = 0
        self.lives += 1

    def finished(self) -> bool:
        return self.stopping and not self.unanswered

    async def session(self, wire: Wire) -> None:
        if self.idempotent and self.producer_id < 0:
            self.producer_id = await self.new_producer_id(wire)
            if self.producer_id < 0:
                return
            self.sequence = 0
            for sent in self.unanswered:  # only a new process, which has none, asks without a reason
                raise AssertionError(sent)
        again = deque(self.unanswered)
        flying: deque[tuple[_Sent, asyncio.Future[Any]]] = deque()
        while not self.finished() and self.acks:
            while len(flying) < self.in_flight_max and (again or not self.stopping):
                sent = again.popleft() if again else self._next()
                flying.append((sent, self._send(wire, sent)))
            if not flying:
                return
            sent, future = flying.popleft()
            if not self._answered(sent, *produced(await wire.answer(future))):
                for other, its_future in flying:  # what is behind it is answered too, and not as a hole
                    error, offset = produced(await wire.answer(its_future))
                    if other in self.unanswered:
                        self._answered(other, error, offset)
                await self.pause(0.1)
                return
            await self.pause(0.02)
        while not self.finished():  # acks=0: no answer ever comes
            sent = again.popleft() if again else self._next()
            self._send(wire, sent)
            self.unanswered.remove(sent)
            self.history.acknowledge(self.key, -1, sent.values, sent.mark, 0)
            await self.pause(0.05)

    def record(self, now_ms: int, value: bytes) -> SimpleRecord:
        return SimpleRecord(now_ms, None, value)

    def _next(self) -> _Sent:
        count = self.random.choice((1, 1, 2, 5))
        first = self.number
        self.number += count
        size = self.random.choice((5, 40, 300))
        values = [f"{self.name}.{self.lives}-{first + each}".encode().ljust(size, b".") for each in range(count)]
        now_ms = EPOCH_MS + int(self.world.time.now_s * 1000)
        records = [self.record(now_ms, value) for value in values]
        options: dict[str, Any] = {}
        if self.idempotent:
            options = {"producer_id": self.producer_id, "producer_epoch": 0, "base_sequence": self.sequence}
            self.sequence += count
        sent = _Sent(bytes(build_batch(records, codec=self.random.choice((0, 0, 0, 3)), **options)), values, first)
        self.unanswered.append(sent)
        producer = f"{self.name}.{self.lives}"
        self.history.sending(self.key, values, producer, first, idempotent=self.idempotent)
        return sent

    def _send(self, wire: Wire, sent: _Sent) -> asyncio.Future[Any]:
        sent.tries += 1
        sent.mark = self.history.mark(self.key)
        if sent.tries > 1:
            self.world.counts["produce retried"] += 1
        topic, number = self.key
        data = [{"name": topic, "partition_data": [{"index": number, "records": sent.data}]}]
        values = {"transactional_id": None, "acks": self.acks, "timeout": 1500, "topic_data": data}
        return wire.send(ApiKey.PRODUCE, 9, values, answered=self.acks != 0)

    def _answered(self, sent: _Sent, error: int, base_offset: int) -> bool:
        """Whether the next one's turn has come."""
        code = ErrorCode(error)
        what = f"{self.key} {sent.values[0].rstrip(b'.').decode()} x{len(sent.values)}"
        if code in (ErrorCode.none, ErrorCode.duplicate_sequence_number):
            self.note(f"acknowledged {what} at {base_offset}")
            self.unanswered.remove(sent)
            base_offset = base_offset if code is ErrorCode.none else -1
            self.history.acknowledge(self.key, base_offset, sent.values, sent.mark, self.acks)
            return True
        if code is ErrorCode.out_of_order_sequence_number:
            self.world.counts["out of order"] += 1
            self.note(f"out of order: {what}")
            if self.history.holds(self.key, Mark()):
                self.world.violated(f"{self.name}: {what} is out of order, though nothing before it is lost")
            self.drop_state()  # a power loss took records: a new id, as clients do
            return False
        self.check_retriable(error, f"produce {what}")
        return False


class Consumer(Client):
    """Reads one partition from its beginning, again and again, and compares with what is known."""

    def __init__(self, world: World, history: History, name: str, servers: Sequence[str], key: Key) -> None:
        self.key = key
        self.position = 0
        self.epochs: dict[int, int] = {}
        """The leader epochs seen, each with the starts of the node before it."""
        self.epoch_grows = True
        """With every start of a node that is alone."""
        super().__init__(world, history, name, servers)

    async def where(self) -> str:
        return await leader_of(self.network, self.servers, self.random, self.key)

    def drop_state(self) -> None:
        self.position = 0

    async def session(self, wire: Wire) -> None:
        await self.check_epoch(wire)
        while not self.stopping:
            mark = self.history.mark(self.key)
            began_s = self.world.time.now_s
            wait_s = self.random.choice((0.0, 0.3))
            answer = await self.fetch(wire, wait_s)
            error = answer["error_code"]
            if error == ErrorCode.offset_out_of_range and not self.history.holds(self.key, Mark()):
                self.position = 0  # what was read is lost
                continue
            if error:
                self.check_retriable(error, "fetch")
                await self.pause(0.1)
                return
            records = answer["records"] or b""
            if not records and self.world.time.now_s - began_s < wait_s - EARLY_S and not self.interrupted():
                self.world.violated(f"{self.name}: an empty answer before the timeout at {self.position}")
            self.take(records, mark)
            if self.random.random() < 0.01:
                self.position = self.random.randint(0, self.position)
            await self.pause(0.03)

    async def check_epoch(self, wire: Wire) -> None:
        """The leader epoch grows with every start of its node, and one that is over gets no records (KIP-320)."""
        topic, number = self.key
        machine = self.world.machines[self.host]
        starts = machine.starts if len(self.servers) == 1 and self.epoch_grows else 0
        asked = {"topics": ({"name": topic, "topic_id": None},), "allow_auto_topic_creation": False}
        response = await wire.ask(ApiKey.METADATA, 9, asked)
        found = [each for each in response["topics"][0]["partitions"] if each["partition_index"] == number]
        if not found or found[0]["error_code"]:  # a broker that has just started may know nothing yet
            return
        partition = found[0]
        epoch = partition["leader_epoch"]
        last = max(self.epochs, default=-1)
        if len(self.servers) > 1 and epoch < last:
            return  # a broker that has not heard of it yet
        if epoch < last or (epoch == last and self.epochs[epoch] < starts == machine.starts):
            self.world.violated(f"{self.name}: leader epoch {epoch} after {starts} starts, {last} before")
        self.epochs.setdefault(epoch, starts)
        if not 0 <= last < epoch:
            return
        others = [each for each in partition["replica_nodes"] if each != partition["leader_id"]]
        for replica in (-1, *others[:1]):
            answer = await self.fetch(wire, 0.0, last, replica)
            refused = [ErrorCode.fenced_leader_epoch, ErrorCode.kafka_storage_error]
            if len(self.servers) > 1:  # it may have lost the leadership, and not know yet that it has it
                refused += [ErrorCode.not_leader_or_follower, ErrorCode.unknown_topic_or_partition]
                if answer["error_code"] == ErrorCode.none and not answer["records"]:
                    return
            if answer["error_code"] not in refused:
                who = f"epoch {last} of {f'replica {replica}' if replica >= 0 else 'a consumer'}"
                self.world.violated(f"{self.name}: {who} is answered {answer['error_code']}, {epoch} is now")
            self.world.counts["fenced" if replica < 0 else "fenced replicas"] += 1

    def interrupted(self) -> bool:
        node = self.world.machines[self.host].node
        return node is None or node.stopping

    async def fetch(self, wire: Wire, wait_s: float, epoch: int = -1, replica: int = -1) -> Any:
        """`replica`: fetch as this replica from offset 0, which claims no records."""
        topic, number = self.key
        bytes_max = self.random.choice((1, 90, 400, 900, 3000, 100_000))
        asked = {
            "partition": number,
            "fetch_offset": self.position if replica < 0 else 0,
            "partition_max_bytes": bytes_max,
            "current_leader_epoch": epoch,
        }
        values = {
            "replica_id": replica,
            "max_wait": int(wait_s * 1000),
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": topic, "partitions": [asked]}],
        }
        response = await wire.ask(ApiKey.FETCH, 12, values)
        if response["error_code"]:
            return {"error_code": response["error_code"]}
        return response["responses"][0]["partitions"][0]

    def take(self, records: bytes, mark: Mark) -> dict[int, bytes]:
        """Note the records from the position on; they have to be contiguous."""
        found = {}
        first = True
        for at, header in iterate_batches(records):
            if first and header.next_offset <= self.position:
                self.world.violated(f"{self.name}: asked for {self.position}, got a batch that ends before it")
            first = False
            if not crc_is_valid(records, at, header):
                self.world.violated(f"{self.name}: {self.key} at {header.base_offset}: the checksum is wrong")
            for record in iterate_records(records, at):
                if record.offset < self.position:
                    continue
                if record.offset != self.position:
                    self.world.violated(f"{self.name}: {self.key} skips from {self.position} to {record.offset}")
                assert record.value is not None
                found[record.offset] = record.value
                self.history.saw(self.key, record.offset, record.value, mark)
                self.position += 1
        if records and first:
            self.world.violated(f"{self.name}: {len(records)} bytes at {self.position} without a whole batch")
        return found

    async def read_all(self, wire: Wire) -> dict[int, bytes]:
        """Everything up to the end, at one go. Raises Disconnected; another call begins at 0 again."""
        found: dict[int, bytes] = {}
        self.position = empty = 0
        while empty < 2:
            mark = self.history.mark(self.key)
            answer = await self.fetch(wire, 0.0)
            if answer["error_code"]:
                self.check_retriable(answer["error_code"], "fetch")
                await self.pause(0.1)
                continue
            new = self.take(answer["records"] or b"", mark)
            found |= new
            empty = 0 if new else empty + 1
        return found
