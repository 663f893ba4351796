"""Share groups whose instructions are counted: fetches of keyed records that accept those before, with the settings of
`docs/kafka/share-groups.md` off and on."""

from __future__ import annotations

import time
from collections.abc import Mapping

from bench.method.load import Client, produce_frame
from bench.workloads.share_groups import RECORD_LIMIT, Queue, Worker
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch

GROUP = 32
"""The resource type of a group's settings."""
FETCHED = 500
FETCHED_MIN = 495
"""The last record of a fetch may be of a key that is in flight."""
KEYS = 1_000
"""More than are in flight: no record of a fetch waits for another one of it."""
HELD_EVERY = 100
"""One record of so many has the key that is held."""
BATCH_RECORDS = 100
FETCHES = 100
ORDERED = {"ottla.share.order": "key"}
DELAYED = {"ottla.share.retry.backoff.ms": "1000"}


class ShareFetches:
    """A member that keeps up: each fetch brings 500 records, and accepts those of the one before. With `held` another
    member has the first record, whose key one record in a hundred has: these wait. With `waiting` it has that, and so
    many records of its key wait, each between two others, before the first fetch that is counted."""

    units = 1

    def __init__(
        self,
        port: int,
        topic: str,
        settings: Mapping[str, str],
        *,
        held: bool = False,
        waiting: int = 0,
        fetches: int = FETCHES,
    ) -> None:
        queue = Queue(port, topic, 1)
        fill(queue.client, topic, held=held, waiting=waiting, fetches=fetches)
        group = queue.group()
        rows = [{"name": name, "config_operation": 0, "value": value} for name, value in settings.items()]
        changed = {"resource_type": GROUP, "resource_name": group, "configs": rows}
        answer = queue.client.call(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [changed], "validate_only": False}
        )
        assert not answer["responses"][0]["error_code"], answer
        self._holder, self._worker = queue.workers(group, 2)
        if held or waiting:
            self._first(self._holder, 1)
        self._first(self._worker, min(FETCHED, waiting or FETCHED))
        left = waiting - FETCHED
        while left > 0:
            self._worker.fetch(min(FETCHED, left), mode=RECORD_LIMIT)
            left -= self._worker.receive()

    def _first(self, worker: Worker, count: int) -> None:
        """Fetch until the share-partition is loaded."""
        while True:
            worker.fetch(count, mode=RECORD_LIMIT)
            if worker.receive():
                return
            time.sleep(0.05)

    def burst(self) -> None:
        self._worker.fetch(FETCHED, mode=RECORD_LIMIT)
        found = self._worker.receive()
        if found < FETCHED_MIN:
            raise RuntimeError(f"{found} records where {FETCHED_MIN} were due")

    def close(self) -> None:
        self._holder.close()
        self._worker.close()


def fill(client: Client, topic: str, *, held: bool, waiting: int, fetches: int) -> None:
    """Write records enough for all fetches, also where one in a hundred waits, behind those that wait before."""
    now_ms = time.time_ns() // 1_000_000
    value = bytes(100)
    before = 2 * waiting + 2 if waiting else 0
    for first in range(0, before + (fetches + 5) * FETCHED, BATCH_RECORDS):
        keys = [
            0 if (number < before and not number % 2) or (held and not number % HELD_EVERY) else 1 + number % KEYS
            for number in range(first, first + BATCH_RECORDS)
        ]
        batch = build_batch([SimpleRecord(now_ms, b"key-%d" % key, value) for key in keys])
        client.socket.sendall(produce_frame(topic, 0, bytes(batch)))
        client.receive_frame()
