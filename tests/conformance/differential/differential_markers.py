"""What is asked of both brokers about markers and offsets of transactions: see differential_cases.py. What happens in
the log is compared by the walks of transaction_walk.py."""

from __future__ import annotations

import itertools
from typing import Any

from ottla.protocol.messages import ApiKey
from tests.conformance.differential.differential_cases import Requests, World, cases


@cases(ApiKey.WRITE_TXN_MARKERS)
def write_txn_markers(w: World, version: int) -> Requests:
    def marker(producer_id: int, *topics: Any, **more: Any) -> Any:
        base = {
            "producer_id": producer_id,
            "producer_epoch": 0,
            "transaction_result": True,
            "coordinator_epoch": 0,
            "transaction_version": 2 if version >= 2 else 0,
        }
        return {**base, "topics": [{"name": name, "partition_indexes": rows} for name, rows in topics], **more}

    yield {"markers": []}
    yield {"markers": [marker(8_000_000)]}
    yield {"markers": [marker(8_000_000, (w.t, []))]}
    for name in (w.t, w.nowhere, "a b", "", "__consumer_offsets"):
        yield {"markers": [marker(8_000_001, (name, [3, -1]))]}
    for committed, coordinator in itertools.product((True, False), (0, 1, 0)):
        more = {"transaction_result": committed, "coordinator_epoch": coordinator}
        yield {"markers": [marker(8_000_002, (w.t, [2, 3]), (w.nowhere, [0]), **more)]}
    for epoch in (1, 0, 2, 32767, 32767):
        yield {"markers": [marker(8_000_003, (w.t, [2]), producer_epoch=epoch)]}
    yield {"markers": [marker(8_000_004, (w.t, [2])), marker(8_000_005, (w.t, [2]), (w.nowhere, [0]))]}


@cases(ApiKey.TXN_OFFSET_COMMIT)
def txn_offset_commit(w: World, version: int) -> Requests:
    def request(name: str, *rows: int, **more: Any) -> Any:
        partitions = [{"partition_index": each, "committed_offset": 5, "committed_metadata": "m"} for each in rows]
        base = {
            "transactional_id": f"{w.prefix}t",
            "group_id": f"{w.prefix}x",
            "producer_id": 8_000_006,
            "producer_epoch": 0,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
        }
        return {**base, "topics": [{"name": name, "partitions": partitions}], **more}

    for name in (w.nowhere, "a b", ""):
        yield request(name, 0, 1)
    yield request(w.t, 3, -1)
    yield request(w.t)
    yield request(w.t, 0, group_id="")
    yield request(w.t, 0, 3, group_id="")
    yield request(w.t, 0, topics=[])
