"""The audit log on a disk that fails: nothing waits for it, what is lost is counted, and the chain goes on."""

from __future__ import annotations

import asyncio
import errno
import json
from random import Random
from typing import Any

import pytest

from ottla.drivers.audit import audit_log
from ottla.drivers.audit.audit_log import AuditLog, AuditSettings
from ottla.errors import OttlaError
from ottla.security.audit import Check, Head
from ottla.testing.disk import SimulatedFileSystem
from ottla.testing.disk_nodes import SimulatedCrash
from tests.unit.server.stub import until

NODE = "/audit/node-1"
QUEUE_MAX, RESERVED = 400, 100
"""Smaller than they are: it is the same with them."""

SETTINGS = AuditSettings("/audit", 1, 100_000, 0, 0.0)


class Clock:
    def now_ms(self) -> int:
        return 1_700_000_000_000


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem(Random(1))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "RETRY_S", 0.001)
    monkeypatch.setattr(audit_log, "QUEUE_MAX", QUEUE_MAX)
    monkeypatch.setattr(audit_log, "RESERVED", RESERVED)


def log_of(fs: SimulatedFileSystem, settings: AuditSettings = SETTINGS) -> AuditLog:
    return AuditLog(fs, Clock(), settings)


async def written(fs: SimulatedFileSystem, count: int, settings: AuditSettings = SETTINGS, name: str = "E") -> None:
    """A life of a node in which so many things happen, one after the other."""
    log = log_of(fs, settings)
    await log.start()
    for number in range(count):
        seq = log.head.seq
        log.put({"event": f"{name}{number}"})
        await until(lambda seq=seq: log.written > seq)  # type: ignore[misc]
    await log.stop()


def names(fs: SimulatedFileSystem) -> list[str]:
    return [each for each in fs.listdir(NODE) if each.endswith(".jsonl")]


def events(fs: SimulatedFileSystem) -> list[dict[str, Any]]:
    return [json.loads(line) for name in names(fs) for line in fs.read_bytes(f"{NODE}/{name}").splitlines()]


def problems(fs: SimulatedFileSystem) -> list[str]:
    check = Check((Head.read(fs.read_bytes(f"{NODE}/head").decode()),))
    data = b"".join(fs.read_bytes(f"{NODE}/{name}") for name in names(fs))
    found = [check.line(line) for line in data.splitlines()]
    return [each for each in found if each is not None] + check.end()


def test_files_are_rotated_and_the_chain_goes_on_over_them_and_over_restarts(fs: SimulatedFileSystem) -> None:
    async def test() -> None:
        for life in range(3):
            await written(fs, 20, SETTINGS._replace(file_bytes_max=4096), f"life{life}-")

    asyncio.run(test())
    assert len(names(fs)) == 3 and problems(fs) == []
    assert [each["seq"] for each in events(fs)] == list(range(1, len(events(fs)) + 1))
    said = [each["event"] for each in events(fs) if each["event"].startswith("life")]
    assert said == [f"life{life}-{number}" for life in range(3) for number in range(20)]
    firsts = [json.loads(fs.read_bytes(f"{NODE}/{name}").split(b"\n")[0]) for name in names(fs)]
    assert [each["event"] for each in firsts] == ["FileOpened"] * 3
    assert [f"audit-{each['seq']:020d}.jsonl" for each in firsts] == names(fs)


def test_old_files_are_deleted_and_the_log_says_so(fs: SimulatedFileSystem) -> None:
    settings = SETTINGS._replace(file_bytes_max=4096, files_max=2)
    asyncio.run(written(fs, 100, settings))
    assert len(names(fs)) == 2 and problems(fs) == []
    gone = [each for each in events(fs) if each["event"] == "FileDeleted"]
    assert gone and gone[-1]["last_seq"] + 1 == events(fs)[0]["seq"]
    asyncio.run(written(fs, 30, settings))
    assert problems(fs) == []
    fs.remove(f"{NODE}/{names(fs)[0]}")
    assert any("files were removed" in each for each in problems(fs))


def test_a_file_that_cannot_be_deleted_does_not_have_lines_written_twice(
    fs: SimulatedFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: str) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", path)

    monkeypatch.setattr(fs, "remove", refused)
    asyncio.run(written(fs, 100, SETTINGS._replace(file_bytes_max=4096, files_max=2)))
    assert problems(fs) == [] and len(names(fs)) > 2


def test_a_full_disk_holds_nobody_and_what_is_lost_is_counted(fs: SimulatedFileSystem) -> None:
    async def test() -> None:
        log = log_of(fs)
        await log.start()
        log.put({"event": "before"})
        await until(lambda: log.written == 2)
        fs.capacity_bytes = 0
        log.put({"event": "stuck"})
        await until(lambda: log.failed_writes > 1)
        for _ in range(QUEUE_MAX):
            log.put({"event": "noise"})
        assert log.lost == RESERVED, "noise does not push out changes"
        for _ in range(RESERVED + 1):
            log.put({"event": "change"}, is_change=True)
        assert log.lost == RESERVED + 1
        fs.heal()
        await until(lambda: log.written > QUEUE_MAX)
        await log.stop()
        assert log.lost == RESERVED + 1

    asyncio.run(test())
    assert problems(fs) == []
    said = [each["event"] for each in events(fs)]
    (lost,) = [each for each in events(fs) if each["event"] == "EventsLost"]
    assert lost["times"] == RESERVED + 1 and said.count("change") == RESERVED and said.index("stuck") == 2


def test_a_node_that_stops_on_a_full_disk_leaves_no_half_line(
    fs: SimulatedFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "STOP_S_MAX", 0.01)

    async def test() -> None:
        log = log_of(fs)
        await log.start()
        log.put({"event": "before"})
        await until(lambda: log.written == 2)
        fs.capacity_bytes = fs.size(f"{NODE}/{names(fs)[0]}") + 200
        log.put({"event": "never" + "x" * 1000})
        await until(lambda: log.failed_writes > 1)
        await log.stop()

    asyncio.run(test())
    fs.heal()
    assert problems(fs) == [] and [each["event"] for each in events(fs)] == ["FileOpened", "before"]


@pytest.mark.parametrize("flush_s", [0.002, 100.0])
@pytest.mark.parametrize("power_loss", [False, True])
def test_a_crash_at_any_step_leaves_a_chain_that_goes_on(power_loss: bool, flush_s: float) -> None:
    """What was fsynced is there; an incomplete end is cut; a check finds nothing.

    Without fsyncs in between, the deletion of a file must not outlive the line that tells of it."""
    settings = SETTINGS._replace(file_bytes_max=4096, files_max=3)
    crashed = 0
    for step in range(46):
        fs = SimulatedFileSystem(Random(300 + step))
        asyncio.run(written(fs, 12, settings))
        fs.fsync_all()
        fs.crash_after(step)
        try:
            asyncio.run(_until_crash(fs, settings._replace(flush_s=flush_s)))
        except SimulatedCrash:
            crashed += 1
        fs.restart(power_loss=power_loss)
        kept = Head.read(fs.read_bytes(f"{NODE}/head").decode())
        asyncio.run(written(fs, 2, settings, "after"))
        assert problems(fs) == [], step
        hashes = {each["seq"]: each["hash"] for each in events(fs)}
        assert kept.seq < min(hashes) or hashes[kept.seq] == kept.hash, step
        assert not [each for each in events(fs) if each["event"] == "LogCut"], step
    assert crashed > 30


async def _until_crash(fs: SimulatedFileSystem, settings: AuditSettings) -> None:
    log = log_of(fs, settings)
    await log.start()
    assert log._task is not None
    for number in range(40):
        for _ in range(number % 3 + 1):
            log.put({"event": f"crash{number}", "text": "x" * 200})
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if log._task.done():
            log._task.result()
    await log.stop()
    log._task.result()


@pytest.mark.parametrize("left", [0, 1, 3])
def test_a_log_that_was_cut_while_the_node_was_away_says_so_for_ever(fs: SimulatedFileSystem, left: int) -> None:
    asyncio.run(written(fs, 5))
    (name,) = names(fs)
    kept = fs.read_bytes(f"{NODE}/{name}").splitlines(keepends=True)[:left]
    fs.remove(f"{NODE}/{name}")
    if kept:
        fs.write_atomic(f"{NODE}/{name}", b"".join(kept))
    asyncio.run(written(fs, 1))
    asyncio.run(written(fs, 1))
    (cut,) = [each for each in events(fs) if each["event"] == "LogCut"]
    assert (cut["expected_seq"], cut["found_seq"]) == (6, left)
    assert any("missing" in each for each in problems(fs)), problems(fs)


def test_what_was_fsynced_is_not_cut_even_where_it_was_changed(fs: SimulatedFileSystem) -> None:
    asyncio.run(written(fs, 5))
    (name,) = names(fs)
    changed = fs.read_bytes(f"{NODE}/{name}").replace(b"E2", b"X2")
    fs.write_atomic(f"{NODE}/{name}", changed)
    asyncio.run(written(fs, 1))
    assert fs.read_bytes(f"{NODE}/{name}").startswith(changed)
    (problem,) = problems(fs)
    assert "event 4 does not follow event 3" in problem


def test_a_head_that_is_gone_is_said(fs: SimulatedFileSystem) -> None:
    asyncio.run(written(fs, 3))
    fs.remove(f"{NODE}/head")
    asyncio.run(written(fs, 1))
    assert problems(fs) == [] and [each for each in events(fs) if each["event"] == "HeadMissing"]


def test_events_that_cannot_be_made_stop_nothing(fs: SimulatedFileSystem) -> None:
    def broken() -> Any:
        yield {"event": "first"}
        raise RuntimeError("a bug")

    async def test() -> None:
        log = log_of(fs)
        await log.start()
        log.put(broken)
        log.put({"event": "second"})
        await log.stop()

    asyncio.run(test())
    assert [each["event"] for each in events(fs)] == ["FileOpened", "first", "EventsLost", "second"]
    assert problems(fs) == []


def test_a_directory_that_cannot_be_used_refuses_the_start(fs: SimulatedFileSystem) -> None:
    fault = fs.fail("mkdir", errno.EACCES)
    with pytest.raises(OttlaError, match=r"ottla\.audit\.directory: /audit/node-1 cannot be used: Permission denied"):
        asyncio.run(log_of(fs).start())
    assert fault
    fs.heal()

    async def twice() -> None:
        first = log_of(fs)
        await first.start()
        with pytest.raises(OttlaError, match="cannot be used"):
            await log_of(fs).start()
        await first.stop()

    asyncio.run(twice())
