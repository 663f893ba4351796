"""What read_committed consumers are answered: against a model of the log, in full fetches, sessions and long polls."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import ABORT_KEY, iterate_batches, iterate_records
from tests.unit.server import stub
from tests.unit.server.node import Client, batch, fetch_values, running
from tests.unit.server.produce.test_transactional_produce import Coordinator

READ_COMMITTED = 1
PARTITIONS = 3
PRODUCERS = (4000, 4001, 4002)
TURNS = 120
LONG_MS = 1_000_000

Place = tuple[int, int]
"""A producer id, and a partition that it writes to."""


class Model:
    """The partitions of a topic as a reader of committed records is to see them: a batch is an offset."""

    def __init__(self) -> None:
        self.ends = [0] * PARTITIONS
        self.open: dict[Place, list[int]] = {}
        """Offsets of the transactions that are open."""
        self.committed: list[list[int]] = [[] for _ in range(PARTITIONS)]

    def stable(self, partition: int) -> int:
        """The last stable offset."""
        first = [offsets[0] for (_, number), offsets in self.open.items() if number == partition]
        return min(first, default=self.ends[partition])

    def visible(self, partition: int, offset: int) -> list[int]:
        stable = self.stable(partition)
        return sorted(each for each in self.committed[partition] if offset <= each < stable)


class World:
    """A node, who writes to it, and the model of what was written."""

    def __init__(self, client: Client) -> None:
        self._client, self.model = client, Model()
        self._sequences: dict[Place, int] = {}

    async def plain(self, partition: int) -> None:
        answer = await self._client.produce("t", batch(), partition=partition)
        assert answer["base_offset"] == self._next(partition, self.model.committed[partition])

    async def write(self, producer_id: int, partition: int) -> None:
        place = (producer_id, partition)
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + 1
        records = batch(producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)
        rows = [{"index": partition, "records": records}]
        values = {"transactional_id": "x", "acks": -1, "timeout": 1000}
        data = [{"name": "t", "partition_data": rows}]
        answer = await self._client.ask(ApiKey.PRODUCE, 11, {**values, "topic_data": data})
        (row,) = answer["responses"][0]["partition_responses"]
        offset = self._next(partition, self.model.open.setdefault(place, []))
        assert (row["error_code"], row["base_offset"]) == (0, offset)

    async def end(self, producer_id: int, partition: int, *, committed: bool) -> None:
        marker = {
            "producer_id": producer_id,
            "producer_epoch": 0,
            "transaction_result": committed,
            "coordinator_epoch": 0,
            "topics": [{"name": "t", "partition_indexes": [partition]}],
        }
        found = await self._client.ask(ApiKey.WRITE_TXN_MARKERS, 1, {"markers": [marker]})
        assert not found["markers"][0]["topics"][0]["partitions"][0]["error_code"]
        offsets = self.model.open.pop((producer_id, partition), [])
        if committed:
            self.model.committed[partition] += offsets
        self.model.ends[partition] += 1

    def _next(self, partition: int, offsets: list[int]) -> int:
        """The offset that a batch gets, which is noted among `offsets`."""
        offset = self.model.ends[partition]
        self.model.ends[partition] += 1
        offsets.append(offset)
        return offset


def committed_records(row: Any, offset: int) -> tuple[list[int], int]:
    """The offsets of the records that a consumer hands on, as Kafka's filters aborted ones, and where it is then."""
    data = bytes(row["records"] or b"")
    aborted = sorted((each["first_offset"], each["producer_id"]) for each in row["aborted_transactions"] or ())
    hidden: set[int] = set()
    found = []
    for start, header in iterate_batches(data):
        while aborted and aborted[0][0] <= header.last_offset:
            hidden.add(aborted.pop(0)[1])
        if header.is_control:
            (record,) = iterate_records(data, start)
            if record.key == ABORT_KEY:
                hidden.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in hidden):
            found += [record.offset for record in iterate_records(data, start) if record.offset >= offset]
        offset = header.next_offset
    return found, offset


def asked(partition: int, offset: int) -> dict[str, int]:
    return {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}


def fetching(rows: list[dict[str, int]], **more: Any) -> dict[str, Any]:
    topics = [{"topic": "t", "partitions": rows}] if rows else []
    return {**fetch_values("t", 0), "isolation_level": READ_COMMITTED, "topics": topics, **more}


async def step(world: World, rng: Random) -> None:
    """Something is written, or a transaction ends."""
    partition, happens = rng.randrange(PARTITIONS), rng.random()
    if happens < 0.2:
        await world.plain(partition)
    elif happens < 0.6 or not world.model.open:
        await world.write(rng.choice(PRODUCERS), partition)
    else:
        await world.end(*rng.choice(sorted(world.model.open)), committed=rng.random() < 0.5)


async def start(node: Any, **settings: str) -> World:
    """The records are years older than the markers, which would begin new segments (see the last test)."""
    node.transaction_verifier = Coordinator()
    client = await Client.connect(node)
    await client.create("t", settings or {"segment.ms": str(2**63 - 1)}, partitions=PARTITIONS)
    return World(client)


@pytest.mark.parametrize("seed", range(3))
def test_a_session_answers_what_became_stable_and_nothing_else(tmp_path: Path, seed: int) -> None:
    """An incremental session that reads on after each step; a full fetch from anywhere says the same."""

    async def test() -> None:
        rng, hidden, answered = Random(seed), 0, 0
        async with running(str(tmp_path)) as node:
            world = await start(node)
            model, reader, other = world.model, await Client.connect(node), await Client.connect(node)
            offsets = dict.fromkeys(range(PARTITIONS), 0)
            first = await reader.ask(
                ApiKey.FETCH, 12, fetching([asked(n, 0) for n in offsets], session_id=0, session_epoch=0)
            )
            session = first["session_id"]
            assert session
            changed: list[dict[str, int]] = []
            for epoch in range(1, TURNS):
                await step(world, rng)
                answer = await reader.ask(ApiKey.FETCH, 12, fetching(changed, session_id=session, session_epoch=epoch))
                assert (answer["error_code"], answer["session_id"]) == (0, session)
                rows = {row["partition_index"]: row for topic in answer["responses"] for row in topic["partitions"]}
                changed = []
                for partition, offset in offsets.items():
                    stable = model.stable(partition)
                    if partition not in rows:
                        assert stable <= offset, "there is something to read"
                        hidden += model.ends[partition] > offset
                        continue
                    row = rows[partition]
                    answered += 1
                    found, following = committed_records(row, offset)
                    assert (found, following) == (model.visible(partition, offset), max(stable, offset))
                    assert (row["last_stable_offset"], row["high_watermark"]) == (stable, model.ends[partition])
                    if following > offset:
                        offsets[partition] = following
                        changed.append(asked(partition, following))
                partition = rng.randrange(PARTITIONS)
                start_at = rng.randrange(model.ends[partition] + 1)
                answer = await other.ask(ApiKey.FETCH, 12, fetching([asked(partition, start_at)]))
                found, following = committed_records(answer["responses"][0]["partitions"][0], start_at)
                assert found == model.visible(partition, start_at)
                assert following == max(start_at, model.stable(partition))
        assert answered >= 50 and hidden >= 50

    stub.run(test())


@pytest.mark.parametrize("seed", range(3))
def test_a_long_poll_is_answered_when_something_is_stable_and_never_without(tmp_path: Path, seed: int) -> None:
    """Long polls of one or all partitions at their last stable offsets: writes wake them up, but only the marker of the
    oldest transaction brings an answer."""

    async def test() -> None:
        rng, polls, woken_for_nothing = Random(seed), 0, 0
        async with running(str(tmp_path)) as node:
            world = await start(node)
            model, reader = world.model, await Client.connect(node)
            watched: dict[int, int] = {}
            for _ in range(TURNS):
                if not watched:
                    some = range(PARTITIONS) if rng.random() < 0.5 else [rng.randrange(PARTITIONS)]
                    watched = {number: model.stable(number) for number in some}
                    rows = [asked(*each) for each in watched.items()]
                    reader.send(ApiKey.FETCH, 12, fetching(rows, max_wait=LONG_MS))
                    await stub.until(lambda: any(each.waiters for each in node.replicas))
                await step(world, rng)
                if all(model.stable(number) <= offset for number, offset in watched.items()):
                    woken_for_nothing += any(model.ends[number] > offset for number, offset in watched.items())
                    continue
                # An answer without a record would be seen here, however long ago it came.
                answer = await reader.receive(ApiKey.FETCH, 12)
                polls += 1
                for row in answer["responses"][0]["partitions"]:
                    number = row["partition_index"]
                    found, following = committed_records(row, watched[number])
                    assert found == model.visible(number, watched[number])
                    assert following == max(watched[number], model.stable(number))
                watched = {}
            assert polls >= 15 and woken_for_nothing >= 10

    stub.run(test())


@pytest.mark.parametrize("committed", [True, False])
def test_a_long_poll_that_wants_many_bytes_counts_those_that_are_stable(tmp_path: Path, committed: bool) -> None:
    """Bytes of a transaction count when it is decided; markers and aborted records count too, as in Kafka."""

    async def test() -> None:
        async with running(str(tmp_path)) as node:
            world = await start(node)
            reader = await Client.connect(node)
            size = len(batch())
            reader.send(ApiKey.FETCH, 12, fetching([asked(0, 0)], max_wait=LONG_MS, min_bytes=3 * size))
            await stub.until(lambda: any(each.waiters for each in node.replicas))
            for _ in range(5):
                await world.write(PRODUCERS[0], 0)
            await world.end(PRODUCERS[0], 0, committed=committed)
            answer = await reader.receive(ApiKey.FETCH, 12)
            row = answer["responses"][0]["partitions"][0]
            assert len(row["records"]) > 5 * size
            assert committed_records(row, 0) == (list(range(5)) if committed else [], 6)

    stub.run(test())


def test_a_poll_at_the_last_stable_offset_ends_empty_in_its_time(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(str(tmp_path)) as node:
            world = await start(node)
            reader = await Client.connect(node)
            await world.plain(0)
            await world.write(PRODUCERS[0], 0)
            answer = await reader.ask(ApiKey.FETCH, 12, fetching([asked(0, 1)], max_wait=60))
            row = answer["responses"][0]["partitions"][0]
            assert (bytes(row["records"] or b""), row["last_stable_offset"], row["high_watermark"]) == (b"", 1, 2)
            assert not any(each.waiters for each in node.replicas)

    stub.run(test())


def test_a_marker_in_a_later_segment_still_hides_what_it_aborts(tmp_path: Path) -> None:
    """Its timestamp is that of the coordinator, and beyond segment.ms from the first record's it goes to a new segment,
    as in Kafka. A fetch reads one segment at a time."""

    async def test() -> None:
        async with running(str(tmp_path)) as node:
            world = await start(node, **{"segment.ms": "60000"})
            for committed in (False, True, False):
                await world.write(PRODUCERS[0], 0)
                await world.write(PRODUCERS[1], 0)
                await world.end(PRODUCERS[0], 0, committed=committed)
            await world.end(PRODUCERS[1], 0, committed=False)
            reader = await Client.connect(node)
            (partition,) = (each for each in node.replicas if each.topic_partition == ("t", 0))
            first, second = partition.log.segments
            assert (first.base_offset, second.base_offset) == (0, 2), "the first marker, and all behind it"
            offset, found = 0, []
            while offset < world.model.stable(0):
                answer = await reader.ask(ApiKey.FETCH, 12, fetching([asked(0, offset)]))
                some, offset = committed_records(answer["responses"][0]["partitions"][0], offset)
                found += some
            assert (found, offset) == (world.model.visible(0, 0), world.model.ends[0])
            assert len(found) == 1

    stub.run(test())
