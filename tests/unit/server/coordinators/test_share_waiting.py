"""Share groups whose settings make records wait, over the wire: what is read from records of each codec and size, what
happens across restarts and changes of settings, and that a fetch waits with the records. The rules themselves are in
tests/property/share_queue.py."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.compression import Codec
from ottla.protocol.records.record_batch import SimpleRecord, build_batch, iterate_batches
from ottla.server.handlers.share import share_fetch
from ottla.server.node import Node
from tests.unit.server.coordinators.test_share_fetch import ACCEPT, RELEASE, Member, play
from tests.unit.server.node import TIME, batch

E = ErrorCode
SOON_MS = 700


async def configure(member: Member, **settings: str) -> None:
    configs = [
        {"name": f"ottla.share.{name.replace('_', '.')}", "value": value, "config_operation": 0}
        for name, value in settings.items()
    ]
    resource = {"resource_type": 32, "resource_name": "g", "configs": configs}
    answer = await member.client.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False}
    )
    assert not answer["responses"][0]["error_code"], answer


async def drain(member: Member) -> None:
    """Be done with the ten records that `play` has written."""
    assert await member.fetch(max_wait=1000) == [(0, 9, 1)]
    assert await member.acknowledge((0, 9, ACCEPT)) is E.none


async def write(member: Member, *records: tuple[bytes | None, bytes | None], **options: Any) -> None:
    """Records with these keys and values of the header `at`."""
    rows = [
        SimpleRecord(TIME, key, b"value", () if at is None else (("other", b"1"), ("at", at))) for key, at in records
    ]
    assert not (await member.client.produce("t", bytes(build_batch(rows, **options))))["error_code"]


def in_ms(ahead_ms: int) -> bytes:
    return str(int(time.time() * 1000) + ahead_ms).encode()


@pytest.mark.parametrize("codec", [*Codec])
def test_one_record_of_a_key_at_a_time_whatever_the_codec(tmp_path: Path, codec: Codec) -> None:
    async def scene(node: Node, member: Member) -> None:
        await configure(member, order="key")
        # The ten first have one key.
        for offset in range(10):
            assert await member.fetch(max_wait=1000) == [(offset, offset, 1)]
            assert await member.acknowledge((offset, offset, ACCEPT)) is E.none
        await write(member, (b"a", None), (b"b", None), (b"a", None), (None, None), (None, None), codec=codec)
        other = await Member.connect(node, "other")
        assert await member.fetch(max_wait=1000) == [(10, 11, 1), (13, 14, 1)]
        assert await other.fetch() == []
        assert await member.acknowledge((10, 10, RELEASE)) is E.none
        assert await other.fetch(max_wait=1000) == [(10, 10, 2)]
        assert await other.acknowledge((10, 10, ACCEPT)) is E.none
        assert await other.fetch(max_wait=1000) == [(12, 12, 1)]
        other.client.close()

    play(tmp_path, scene)


def test_a_record_waits_for_its_time_and_those_behind_it_do_not(tmp_path: Path) -> None:
    async def scene(node: Node, member: Member) -> None:
        await drain(member)
        await configure(member, delivery_time_header="at")
        due_s = time.time() + SOON_MS / 1000
        no_times = b"soon", b"tomorrow", str(time.time_ns() // 1000).encode()
        rows = [(None, at) for at in (in_ms(SOON_MS), None, b"12", (12).to_bytes(8, "big"), *no_times)]
        await write(member, *rows)
        assert await member.fetch(max_wait=1000) == [(11, 16, 1)], "a header that is no time delays nothing"
        assert await member.acknowledge((11, 16, ACCEPT)) is E.none
        assert await member.fetch(max_wait=5000) == [(10, 10, 1)]
        assert time.time() >= due_s - 0.005
        (led,) = node.share.partitions
        assert led.metrics.bad_delivery_times == len(no_times)

    play(tmp_path, scene)


def test_a_batch_that_is_long_is_read_in_a_thread(tmp_path: Path) -> None:
    async def scene(node: Node, member: Member) -> None:
        await drain(member)
        await configure(member, delivery_time_header="at", order="key")
        rows = [SimpleRecord(TIME, b"%d" % (number % 3), bytes(3000), ()) for number in range(900)]
        await member.client.produce("t", bytes(build_batch(rows, codec=Codec.GZIP)))
        assert await member.fetch(max_wait=5000) == [(10, 12, 1)]
        assert await member.fetch((10, 10, ACCEPT), max_wait=5000) == [(13, 13, 1)]

    play(tmp_path, scene)


def test_a_fetch_goes_on_behind_records_that_wait_until_it_has_what_it_wants(tmp_path: Path) -> None:
    """Half of the records that are read have to wait: one read of as many offsets as are wanted is not enough."""

    async def scene(node: Node, member: Member) -> None:
        await drain(member)
        await configure(member, order="key")
        for first in range(0, 2_000, 50):
            keys = [b"held" if number % 2 else b"%d" % number for number in range(first, first + 50)]
            await write(member, *((key, None) for key in keys))
        holder = await Member.connect(node, "holder")
        assert await holder.fetch(max_records=2, share_acquire_mode=1, max_wait=1000) == [(10, 11, 1)]
        for wanted in (500, 300):
            found = await member.fetch(max_records=wanted, share_acquire_mode=1, max_wait=1000)
            assert len(found) == wanted, "each between two that wait"
            said = [(first, last, ACCEPT) for first, last, _ in found]
            assert await member.acknowledge(*said) is E.none
        assert await holder.acknowledge((10, 11, ACCEPT)) is E.none
        found = await member.fetch(max_records=150, share_acquire_mode=1, max_wait=1000)
        assert found[0] == (13, 13, 1) and sum(last - first + 1 for first, last, _ in found) == 150
        holder.client.close()

    play(tmp_path, scene)


def test_a_fetch_brings_what_was_given_back_in_many_places(tmp_path: Path) -> None:
    """Places far apart are read few at a time."""
    far, places = 1_200, 10

    async def scene(node: Node, member: Member) -> None:
        await drain(member)
        await configure(member, order="key")
        options = {"share_acquire_mode": 1, "max_wait": 1000}
        for first in range(10, 10 + places * far, far):
            await write(member, *((b"%d" % number, None) for number in range(first, first + far)))
            assert await member.fetch(max_records=far, **options) == [(first, first + far - 1, 1)]
            assert await member.acknowledge((first, first + far - 2, ACCEPT)) is E.none
        released = [10 + far * (place + 1) - 1 for place in range(places)]
        assert await member.acknowledge(*((offset, offset, RELEASE) for offset in released)) is E.none
        found = await member.fetch(max_records=places, **options)
        assert found == [(offset, offset, 2) for offset in released]

    play(tmp_path, scene, **{"group.share.record.lock.duration.ms": "30000"})


def test_what_was_released_waits_longer_each_time_and_those_behind_it_do_not(tmp_path: Path) -> None:
    async def scene(node: Node, member: Member) -> None:
        await configure(member, retry_backoff_ms="150")
        assert await member.fetch(max_wait=1000) == [(0, 9, 1)]
        for count, wait_ms in ((2, 150), (3, 300)):
            began_s = time.monotonic()
            assert await member.acknowledge((4, 4, RELEASE)) is E.none
            assert await member.fetch() == []
            assert await member.fetch(max_wait=5000) == [(4, 4, count)]
            assert wait_ms / 1000 - 0.01 <= time.monotonic() - began_s < wait_ms / 1000 + 2

    play(tmp_path, scene)


def test_settings_hold_for_what_is_in_flight_and_after_a_restart(tmp_path: Path) -> None:
    async def before(node: Node, member: Member) -> None:
        await drain(member)
        await write(member, (b"a", None), (b"a", None), (b"b", None), (b"a", None))
        assert await member.fetch(max_wait=1000) == [(10, 13, 1)]
        await configure(member, order="key")
        assert await member.acknowledge((10, 13, RELEASE)) is E.none
        assert await member.fetch(max_wait=1000) == [(10, 10, 2), (12, 12, 2)]
        assert await member.acknowledge((12, 12, ACCEPT)) is E.none
        await configure(member, order="none")
        assert await member.fetch(max_wait=1000) == [(11, 11, 2), (13, 13, 2)]
        await configure(member, order="key")

    async def after(node: Node, member: Member) -> None:
        first = await member.fetch(max_wait=5000)
        assert [each[:2] for each in first] == [(10, 10)]
        assert await member.acknowledge((10, 10, ACCEPT)) is E.none
        assert [each[:2] for each in await member.fetch(max_wait=5000)] == [(11, 11)]

    play(tmp_path, before, after)


@pytest.mark.parametrize(
    ("settings", "taken"),
    [
        ({}, (10, 11)),
        ({"retry_backoff_ms": "1", "retry_backoff_max_ms": "1"}, (10, 11)),
        ({"order": "key"}, (10, 10)),
    ],
)
def test_a_group_that_reads_only_what_is_committed_by_now_gets_nothing_aborted_again(
    tmp_path: Path, settings: dict[str, str], taken: tuple[int, int]
) -> None:
    """What it gave back, read before it was aborted, came again where records may have to wait."""

    async def scene(node: Node, member: Member) -> None:
        await drain(member)
        if settings:
            await configure(member, **settings)
        options = {"producer_id": 4000, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
        records = batch(count=2, **options)
        _, header = next(iterate_batches(records))
        partition, now_ms = node.replicas.find("t", 0), node.clock.now_ms()
        guard = partition.log.producer_state.start_verification(header, begins_transaction=True, now_ms=now_ms)
        partition.append_as_leader(bytearray(records), -1, now_ms=now_ms, guard=guard)
        assert await member.fetch(max_wait=1000) == [(*taken, 1)]
        assert await member.acknowledge((*taken, RELEASE)) is E.none
        config = {"name": "share.isolation.level", "value": "read_committed", "config_operation": 0}
        resource = {"resource_type": 32, "resource_name": "g", "configs": [config]}
        asked = {"resources": [resource], "validate_only": False}
        await member.client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked)
        marker = {
            "producer_id": 4000,
            "producer_epoch": 0,
            "transaction_result": False,
            "coordinator_epoch": 0,
            "topics": [{"name": "t", "partition_indexes": [0]}],
        }
        await member.client.ask(ApiKey.WRITE_TXN_MARKERS, 1, {"markers": [marker]})
        assert not (await member.client.produce("t", batch(count=1)))["error_code"]
        found: set[int] = set()
        while 13 not in found:  # behind the marker
            for first, last, _ in await member.fetch(max_wait=1000):
                found.update(range(first, last + 1))
                assert await member.acknowledge((first, last, ACCEPT)) is E.none
        found.update(offset for first, last, _ in await member.fetch(max_wait=50) for offset in (first, last))
        assert not found & {10, 11}

    play(tmp_path, scene, **{"group.share.record.lock.duration.ms": "30000"})


def test_a_fetch_during_which_locks_end_names_no_record_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the records wait, so that it reads in several places; at the second the disk takes longer than a lock."""

    async def scene(node: Node, member: Member) -> None:
        await drain(member)
        await configure(member, delivery_time_header="at")
        for _ in range(40):
            await write(member, *[(None, in_ms(1_000_000) if number % 2 else None) for number in range(50)])
        real, slow = share_fetch.read_parts, []

        def read(reading: Any, *rest: Any) -> Any:
            """From a disk that is slow once something is acquired."""
            core, end_ms = reading.led.core, node.share.partitions.now_ms() + 900_000

            def wait() -> None:
                if core.window.held()[0] and not slow:
                    slow.append(core.window.held()[0])
                    core.advance(end_ms)

            yield wait
            return (yield from real(reading, *rest))

        monkeypatch.setattr(share_fetch, "read_parts", read)
        found = await member.fetch(max_records=500, share_acquire_mode=1, max_wait=1000)
        offsets = [offset for first, last, _ in found for offset in range(first, last + 1)]
        assert slow and offsets == sorted({*offsets})
        assert {count for _, _, count in found} == {2}
        (led,) = node.share.partitions
        assert led.core is not None and led.core.window.held()[0] == len(offsets)

    play(tmp_path, scene)
