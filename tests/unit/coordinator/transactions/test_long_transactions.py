"""A transaction of 9,000 partitions is decided, encoded and replayed in one piece: it has to be short."""

from __future__ import annotations

import sys
from typing import Any

from ottla import compiled
from ottla.config.server import ServerConfig
from ottla.coordinator.effects import Now, Write
from ottla.coordinator.transaction.config import TransactionConfig
from ottla.coordinator.transaction.effects import NewProducerId, SendMarkers
from ottla.coordinator.transaction.requests import AddPartitions, EndTxn, InitProducerId
from ottla.coordinator.transaction.shard import TransactionShard
from ottla.model import TopicPartition
from ottla.protocol.internal.transaction_records import decode_record, encode_record

PARTITIONS = [TopicPartition("many", number) for number in range(9000)]
CALLS_MAX = 90_000 if compiled.how() == "interpreted" else 14_000
"""Compiled code makes most of its calls unseen."""
NOW = Now(1, 1)


class Token:
    def complete(self, result: Any) -> None: ...


def carry_out(shard: TransactionShard) -> list[Any]:
    """Have everything committed; the effects."""
    done = []
    while effects := shard.take():
        done += effects
        for each in effects:
            if isinstance(each, NewProducerId):
                each.then(7, NOW)
            elif isinstance(each, Write):
                for record in each.records:
                    assert decode_record(*encode_record(record, 1)) == record
                    shard.replay(record)
                if each.committed is not None:
                    each.committed()
    return done


def test_few_calls_for_many_partitions() -> None:
    shard = TransactionShard(TransactionConfig.from_settings(ServerConfig.load(None, {}, {})))
    shard.ask(Token(), InitProducerId("x", 60_000), NOW)
    carry_out(shard)
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    def counted(act: Any, *arguments: Any) -> list[Any]:
        nonlocal calls
        calls = 0
        sys.setprofile(count)
        try:
            act(Token(), *arguments, NOW)
            return carry_out(shard)
        finally:
            sys.setprofile(None)
            assert calls < CALLS_MAX, calls

    counted(shard.ask, AddPartitions("x", 7, 0, PARTITIONS))
    assert list(shard.state.entries["x"].transaction.partitions) == PARTITIONS
    counted(shard.ask, AddPartitions("x", 7, 0, PARTITIONS))  # again: nothing to write
    markers = counted(shard.ask, EndTxn("x", 7, 0, True))
    assert [list(each.partitions) for each in markers if isinstance(each, SendMarkers)] == [PARTITIONS]
