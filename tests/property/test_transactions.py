"""Random walks of the transaction coordinator: clients of both versions that retry, fence and come late, writes that
are held up or fail, time that passes, failovers. After every step the log, replayed, gives the same state."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from ottla.coordinator.transaction.config import TransactionConfig
from ottla.coordinator.transaction.effects import SendMarkers
from ottla.coordinator.transaction.partitions import verify
from ottla.coordinator.transaction.requests import AddPartitions, EndTxn, InitProducerId, ProducerIdAndEpoch
from ottla.coordinator.transaction.shard import TransactionShard
from ottla.coordinator.transaction.transaction import AT_REST, PREPARED, VALID_BEFORE, State, Transaction
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from tests.unit.coordinator.transaction_script import SimulatedDriver

STEPS = 400
IDS = ("a", "b", "c")
PARTITIONS = tuple(TopicPartition("t", number) for number in range(4))
FAILURES = (ErrorCode.not_enough_replicas, ErrorCode.not_leader_or_follower, ErrorCode.request_timed_out)


class Walk:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        config = TransactionConfig(id_expiration_ms=7_200_000, two_phase_commit=True)
        self.driver = SimulatedDriver(config)
        self.seen: list[tuple[str, ProducerIdAndEpoch]] = []
        """Ids given to producers, newest last: they may come late with any of it."""
        self.markers: dict[tuple[int, int], SendMarkers] = {}
        """By producer id and epoch; only those of version 2, where the epoch names the transaction."""
        self.to_write: list[SendMarkers] = []
        self.handled = 0
        self.done: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()

    def step(self) -> None:
        name = self.random.choices(list(STEP_WEIGHTS), list(STEP_WEIGHTS.values()))[0]
        self.done[name] += 1
        try:
            getattr(self, name)()
        except KafkaError as error:
            self.answered[error.code.name] += 1
        self.driver.run()
        self.look_at_events()
        self.check()

    # What happens

    def init(self) -> None:
        transactional_id = self.random.choice(IDS)
        expected = None
        if self.seen and self.random.random() < 0.4:
            expected = self.random.choice(self.seen[-6:])[1]
        two_phase = self.random.random() < 0.1
        request = InitProducerId(transactional_id, self.random.choice((10_000, 60_000)), expected, two_phase)
        self.driver.shard.ask(("init", transactional_id), request, self.driver.now)

    def somebody(self) -> tuple[str, ProducerIdAndEpoch]:
        if self.random.random() < 0.8:
            known = [(name, entry.transaction) for name, entry in self.driver.shard.state.entries.items()]
            if known:
                name, now = self.random.choice(known)
                back = int(self.random.random() < 0.3)
                return name, ProducerIdAndEpoch(now.producer_id, now.producer_epoch - back)
        return self.random.choice(self.seen) if self.seen else ("a", ProducerIdAndEpoch(1, 0))

    def add(self) -> None:
        transactional_id, producer = self.somebody()
        some = tuple(self.random.sample(PARTITIONS, self.random.randint(1, 3)))
        request = AddPartitions(transactional_id, *producer, some, self.random.choice((0, 2)))
        self.driver.shard.ask(("add", transactional_id), request, self.driver.now)

    def end(self) -> None:
        transactional_id, producer = self.somebody()
        request = EndTxn(transactional_id, *producer, self.random.random() < 0.6, self.random.choice((0, 2)))
        self.driver.shard.ask(("end", transactional_id), request, self.driver.now)

    def write_markers(self) -> None:
        if self.to_write:
            markers = self.to_write.pop(self.random.randrange(len(self.to_write)))
            some = [each for each in markers.partitions if self.random.random() < 0.7]
            rest = tuple(each for each in markers.partitions if each not in some)
            if rest:
                self.to_write.append(markers._replace(partitions=rest))
            self.driver.shard.markers_written(
                markers.transactional_id, markers.producer_id, markers.producer_epoch, some, self.driver.now
            )

    def verify(self) -> None:
        transactional_id, producer = self.somebody()
        found = verify(self.driver.shard.state, transactional_id, *producer, PARTITIONS)
        inside = self.driver.shard.state.entries[transactional_id].transaction.partitions
        assert {each for each, error in found.items() if error is ErrorCode.none} == set(inside)

    def pass_time(self) -> None:
        self.driver.wait(self.random.choice((50, 1_000, 30_000, 30_000, 4_000_000)))

    def hold(self) -> None:
        self.driver.holding = True

    def release(self) -> None:
        self.driver.release()

    def fail(self) -> None:
        if not self.driver.holding:
            self.driver.next_failure = self.random.choice(FAILURES)

    def failover(self) -> None:
        self.driver.holding = False
        self.driver.next_failure = None
        self.to_write.clear()
        self.driver.restart()

    def exhaust(self) -> None:
        """As if an id had been used 32,766 times."""
        state = self.driver.shard.state
        names = [name for name, entry in state.entries.items() if entry.pending is None and entry.is_logged]
        if names:
            name = self.random.choice(names)
            value = state.entries[name].transaction.to_record()
            value.producer_epoch = max(value.producer_epoch, 32_760)
            record = self.driver.log[-1]._replace(transactional_id=name, value=value)
            self.driver.log.append(record)
            self.driver.shard.replay(record)

    def change_level(self) -> None:
        self.driver.level = self.random.choice((1, 2, 2))
        self.driver.shard.set_server_version(self.driver.level)

    # What must hold

    def look_at_events(self) -> None:
        for event in self.driver.events[self.handled :]:
            if isinstance(event, SendMarkers):
                self.to_write.append(event)
                self.check_markers(event)
            elif isinstance(event, tuple):
                (verb, transactional_id), response = event
                error = response if isinstance(response, ErrorCode) else response["error_code"]
                self.answered[f"{verb}:{ErrorCode(error).name}"] += 1
                if not error and response.get("producer_id", -1) >= 0:
                    given = ProducerIdAndEpoch(response["producer_id"], response["producer_epoch"])
                    self.seen.append((transactional_id, given))
        self.handled = len(self.driver.events)

    def check_markers(self, markers: SendMarkers) -> None:
        if markers.transaction_version < 2:
            return
        key = markers.producer_id, markers.producer_epoch
        before = self.markers.setdefault(key, markers)
        assert before._replace(partitions=markers.partitions) == markers, "one transaction, two outcomes"
        assert set(markers.partitions) == set(before.partitions)

    def check(self) -> None:
        state = self.driver.shard.state
        replayed = TransactionShard(self.driver.config)
        for offset, record in enumerate(self.driver.log):
            replayed.replay(self.driver.through_bytes(record), offset)
        live = {name: entry.transaction for name, entry in state.entries.items() if entry.is_logged}
        assert live == {name: entry.transaction for name, entry in replayed.state.entries.items()}
        assert {*state.ongoing} == {*replayed.state.ongoing}
        assert {*state.ongoing} == {name for name, now in live.items() if now.state is State.ONGOING}
        for entry in state.entries.values():
            now = entry.transaction
            if now.state in AT_REST:
                assert not now.partitions
            if now.state in PREPARED:
                assert entry.pending is not None and set(entry.unwritten) <= set(now.partitions)
            assert -1 <= now.producer_epoch <= 32_767

    def check_log(self) -> None:
        """Check the records of each id: every transition is valid, and no epoch of a producer id recurs."""
        before: dict[str, Transaction] = {}
        owners: dict[int, str] = {}
        for name, value in self.driver.log:
            if value is None:
                assert before.pop(name).state in AT_REST
                continue
            now = Transaction.from_record(value)
            assert owners.setdefault(now.producer_id, name) == name, "a producer id of two transactional ids"
            old = before.get(name)
            if old is not None and old.state is not now.state:
                assert old.state in VALID_BEFORE[now.state]
            if old is not None and old.producer_id == now.producer_id:
                assert old.producer_epoch <= now.producer_epoch <= max(old.producer_epoch + 1, 32_760)
            before[name] = now


STEP_WEIGHTS = {
    "init": 12, "add": 25, "end": 18, "write_markers": 25, "verify": 4, "pass_time": 5, "hold": 3, "release": 6,
    "fail": 3, "failover": 3, "exhaust": 2, "change_level": 1,
}  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_the_log_replayed_is_the_state(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()
    walk.check_log()
    walk.failover()
    walk.look_at_events()
    while walk.to_write:  # every decided transaction ends
        walk.write_markers()
        walk.driver.run()
        walk.look_at_events()
    walk.driver.wait(120_000)
    walk.look_at_events()
    while walk.to_write:  # and every one that takes too long, but for those whose outcome is decided elsewhere
        walk.write_markers()
        walk.driver.run()
        walk.look_at_events()
    for entry in walk.driver.shard.state.entries.values():
        now = entry.transaction
        assert now.state in AT_REST or (now.state is State.ONGOING and now.timeout_ms == 2_147_483_647)
    assert walk.answered["end:none"] >= 5 and walk.answered["init:none"] >= 5


def test_walks_come_by_everything() -> None:
    answered: Counter[str] = Counter()
    states: Counter[Any] = Counter()
    for seed in range(100, 115):
        walk = Walk(seed)
        for _ in range(STEPS):
            walk.step()
        answered += walk.answered
        states.update(value.transaction_status if value else None for _, value in walk.driver.log)
        states["next"] += sum(value is not None and value.next_producer_id >= 0 for _, value in walk.driver.log)
    assert {*states} == {0, 1, 2, 3, 4, 5, None, "next"}
    wanted = {
        "init:none",
        "init:concurrent_transactions",
        "add:none",
        "end:none",
        "end:coordinator_not_available",
        "producer_fenced",
        "concurrent_transactions",
        "invalid_txn_state",
        "invalid_producer_id_mapping",
    }
    assert wanted <= {*answered}
