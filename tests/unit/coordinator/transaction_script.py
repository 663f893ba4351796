"""Scenario scripts for transactions: commands and, under `----`, the trace that they must leave.

    init ID [timeout=MS] [as=PID:EPOCH]             2pc ID (two-phase commit)
    add ID PID:EPOCH t-0 ... [v=0|2]                verify ID PID:EPOCH t-0 ...
    commit | abort ID PID:EPOCH [v=0|2]             written ID PID:EPOCH t-0 ... (markers that are in their partitions)
    describe ID...                                  list [states=A,B] [pids=N,N] [longer=MS]
    wait 10s | 500ms | 8d                           restart (another coordinator loads the log)
    hold (writes stay uncommitted)   release        fail ERROR (the next write)     no-ids (none are given for a while)
    ids (they are again)
    level N (of transaction.version)                epoch ID N (as if it had come so far: writes a record)
    config name=value ... (a new, empty coordinator)

Commands of a block run one after the other; its trace has the commands' answers and the records written, in order. New
producer ids are 1000, 1001, ... A record is `write ID State PID:EPOCH partitions`, with `prev`, `next` and `v` if they
are not what is usual.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ottla.coordinator.effects import WRITE_ERRORS, Now, Reply, Write
from ottla.coordinator.transaction import admin
from ottla.coordinator.transaction.admin import Filter
from ottla.coordinator.transaction.config import TransactionConfig
from ottla.coordinator.transaction.effects import NewProducerId, SendMarkers
from ottla.coordinator.transaction.partitions import verify
from ottla.coordinator.transaction.requests import AddPartitions, EndTxn, InitProducerId, ProducerIdAndEpoch
from ottla.coordinator.transaction.shard import TransactionShard
from ottla.coordinator.transaction.transaction import Transaction
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.protocol.internal.transaction_records import (
    TransactionRecord,
    decode_record,
    encode_record,
    log_value_version,
)

WALL_START_MS = 1_700_000_000_000
FIRST_ID = 1_000


class SimulatedDriver:
    """Commits every write at once, unless `holding`, or refuses it with `next_failure`."""

    def __init__(self, config: TransactionConfig | None = None) -> None:
        self.config = config or TransactionConfig()
        self.log: list[TransactionRecord] = []
        self.events: list[Any] = []
        """Committed writes, replies as (token, response) and markers to send, in their order."""
        self.timer_ms = 0
        self.wall_start_ms = WALL_START_MS
        """What the wall clock says, less the timer clock."""
        self.level = 2
        self.holding = False
        self.next_failure: ErrorCode | None = None
        self.held: list[list[Any]] = []
        self.has_ids = True
        self.wanting: list[NewProducerId] = []
        self.ids = FIRST_ID
        self._start()

    def _start(self) -> None:
        self.shard = TransactionShard(self.config, self.level)
        for offset, record in enumerate(self.log):
            self.shard.replay(self.through_bytes(record), offset)
        self.shard.on_loaded(self.now)
        self.run()

    def through_bytes(self, record: TransactionRecord) -> TransactionRecord:
        decoded = decode_record(*encode_record(record, log_value_version(self.level)))
        assert decoded is not None
        return decoded

    @property
    def now(self) -> Now:
        return Now(self.timer_ms, self.wall_start_ms + self.timer_ms)

    def run(self) -> None:
        self._work(self.shard.take())

    def _work(self, effects: Sequence[Any]) -> None:
        for index, effect in enumerate(effects):
            if isinstance(effect, Reply):
                self.events.append((effect.token, effect.response))
            elif isinstance(effect, SendMarkers):
                self.events.append(effect)
            elif isinstance(effect, NewProducerId):
                self.wanting.append(effect)
                if self.has_ids:
                    self.give_ids()
            elif self.holding:
                self.held.append(list(effects[index:]))
                return
            elif self.next_failure is not None:
                self._fail(effects[index:])
                return
            else:
                self._commit(effect)

    def give_ids(self) -> None:
        wanting, self.wanting = self.wanting, []
        for effect in wanting:
            self.ids += 1
            effect.then(self.ids - 1, self.now)
            self.run()

    def _commit(self, write: Write) -> None:
        self.log += write.records
        self.events.append(write)
        for record in write.records:
            self.shard.replay(record, len(self.log) - 1)
        if write.committed is not None:
            write.committed()
            self.run()

    def _fail(self, effects: Sequence[Any]) -> None:
        error, self.next_failure = self.next_failure, None
        assert error is not None
        error = WRITE_ERRORS.get(error, error)
        for effect in effects:
            if isinstance(effect, Reply):
                self.events.append((effect.token, error))
            elif isinstance(effect, Write) and effect.failed is not None:
                effect.failed(error)
        self.run()

    def release(self) -> None:
        """Commit what was held, in order."""
        self.holding = False
        held, self.held = self.held, []
        for effects in held:
            self._work(effects)

    def wait(self, milliseconds: int) -> None:
        """Let time pass, deadline by deadline."""
        end = self.timer_ms + milliseconds
        while (deadline := self.shard.next_deadline()) is not None and deadline <= end:
            self.timer_ms = max(self.timer_ms, deadline)
            self.shard.advance(self.now)
            self.run()
        self.timer_ms = end

    def restart(self) -> None:
        self.shard.unload(self.now)
        self.run()
        self.held.clear()
        self._start()


def partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def producer(text: str) -> ProducerIdAndEpoch:
    producer_id, _, epoch = text.partition(":")
    return ProducerIdAndEpoch(int(producer_id), int(epoch))


class Script:
    def __init__(self) -> None:
        self.driver = SimulatedDriver()
        self.out: list[str] = []

    def run(self, command: str) -> list[str]:
        """The trace of one command."""
        verb, *words = command.split()
        positional = [word for word in words if "=" not in word]
        named = dict(word.split("=", 1) for word in words if "=" in word)
        token = " ".join([verb, *positional[:1]])
        self.out = []
        seen = len(self.driver.events)
        try:
            getattr(self, f"do_{verb.replace('-', '_')}")(token, positional, named)
        except KafkaError as error:
            self.out.append(f"{token} <- {error.code.name.upper()}")
        self.driver.run()
        self.out[:0] = [line for event in self.driver.events[seen:] for line in self.render(event)]
        return self.out

    # Requests

    def do_init(self, token: str, positional: list[str], named: dict[str, str], *, two_phase: bool = False) -> None:
        expected = producer(named["as"]) if "as" in named else None
        request = InitProducerId(positional[0], int(named.get("timeout", 60_000)), expected, two_phase)
        self.driver.shard.ask(token, request, self.driver.now)

    def do_2pc(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        self.do_init(token, positional, named, two_phase=True)

    def do_add(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        partitions = tuple(map(partition, positional[2:]))
        request = AddPartitions(positional[0], *producer(positional[1]), partitions, int(named.get("v", 2)))
        self.driver.shard.ask(token, request, self.driver.now)

    def do_verify(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        partitions = tuple(map(partition, positional[2:]))
        found = verify(self.driver.shard.state, positional[0], *producer(positional[1]), partitions)
        text = " ".join(f"{each}:{code.name.replace('none', 'ok')}" for each, code in found.items())
        self.out.append(f"{token} <- {text}")

    def do_commit(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        is_commit = token.startswith("commit")
        request = EndTxn(positional[0], *producer(positional[1]), is_commit, int(named.get("v", 2)))
        self.driver.shard.ask(token, request, self.driver.now)

    do_abort = do_commit

    def do_written(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        written = tuple(map(partition, positional[2:]))
        self.driver.shard.markers_written(positional[0], *producer(positional[1]), written, self.driver.now)

    def do_describe(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        for transactional_id in positional:
            try:
                row = admin.describe(self.driver.shard.state, transactional_id)
            except KafkaError as error:
                self.out.append(f"{transactional_id}: {error.code.name.upper()}")
                continue
            start = row["transaction_start_time"]
            since = start if start < 0 else start - WALL_START_MS
            parts = [f"{topic['topic']}-{number}" for topic in row["topics"] for number in topic["partitions"]]
            state = f"{row['transaction_state']} {row['producer_id']}:{row['producer_epoch']}"
            timeout = f"timeout={row['transaction_timeout']}"
            self.out.append(" ".join([f"{transactional_id}:", state, timeout, f"start={since}", *parts]))

    def do_list(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        wanted = Filter(
            frozenset(filter(None, named.get("states", "").split(","))),
            frozenset(map(int, filter(None, named.get("pids", "").split(",")))),
            int(named.get("longer", -1)),
        )
        state = self.driver.shard.state
        rows = [admin.row(state, each, wanted, self.driver.now.wall_ms) for each in [*state.entries]]
        found = [f"{row['transactional_id']}={row['transaction_state']}:{row['producer_id']}" for row in rows if row]
        self.out.append(f"list <- {' '.join(found) or 'nothing'}")

    # The world

    def do_config(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        self.driver = SimulatedDriver(TransactionConfig(**{name: int(value) for name, value in named.items()}))

    def do_wait(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        number, unit = re.fullmatch(r"(\d+)(ms|s|h|d)", positional[0]).groups()  # type: ignore[union-attr]
        self.driver.wait(int(number) * {"ms": 1, "s": 1_000, "h": 3_600_000, "d": 86_400_000}[unit])

    def do_restart(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        self.driver.restart()

    def do_hold(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        self.driver.holding = True

    def do_release(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        self.driver.release()

    def do_fail(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        self.driver.next_failure = ErrorCode[positional[0].lower()]

    def do_no_ids(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        self.driver.has_ids = False

    def do_ids(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        self.driver.has_ids = True
        self.driver.give_ids()

    def do_level(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        self.driver.level = int(positional[0])
        self.driver.shard.set_server_version(self.driver.level)

    def do_epoch(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        last = [record for record in self.driver.log if record.transactional_id == positional[0]][-1]
        assert last.value is not None
        value = Transaction.from_record(last.value).to_record()
        value.producer_epoch = int(positional[1])
        record = TransactionRecord(positional[0], value)
        self.driver.log.append(record)
        self.driver.shard.replay(record)

    # The trace

    def render(self, event: Any) -> list[str]:
        if isinstance(event, Write):
            return [f"write {self.render_record(record)}" for record in event.records]
        if isinstance(event, SendMarkers):
            outcome = "commit" if event.is_commit else "abort"
            partitions = " ".join(map(str, event.partitions))
            version = f" v={event.transaction_version}" if event.transaction_version != 2 else ""
            producer = f"{event.producer_id}:{event.producer_epoch}"
            return [f"markers {event.transactional_id} {outcome} {producer}{version} {partitions}"]
        token, response = event
        if isinstance(response, ErrorCode):
            return [f"{token} <- {response.name.upper()}"]
        if response["error_code"]:
            return [f"{token} <- {ErrorCode(response['error_code']).name.upper()}"]
        given = f" {response['producer_id']}:{response['producer_epoch']}" if "producer_id" in response else ""
        return [f"{token} <- ok{given}"]

    def render_record(self, record: TransactionRecord) -> str:
        if record.value is None:
            return f"{record.transactional_id} deleted"
        now = Transaction.from_record(record.value)
        parts = [record.transactional_id, now.state.title, f"{now.producer_id}:{now.producer_epoch}"]
        parts += map(str, now.partitions)
        if now.previous_producer_id != now.producer_id:
            parts.append(f"prev={now.previous_producer_id}")
        if now.next_producer_id != -1:
            parts.append(f"next={now.next_producer_id}")
        if now.client_version != 2 and now.state.title != "Empty":
            parts.append(f"v={now.client_version}")
        return " ".join(parts)


def run_file(text: str) -> str:
    """The script with the traces that really came: commands and comments keep their place."""
    script = Script()
    out: list[str] = []
    for block in text.strip().split("\n\n"):
        head = block.partition("\n----")[0].splitlines()
        commands = [line for line in head if not line.startswith("#")]
        out += head
        if commands:
            out += ["----", *(line for command in commands for line in script.run(command))]
        out.append("")
    return "\n".join(out[:-1]) + "\n"
