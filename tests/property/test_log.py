"""A log against a list: whatever is appended, cut, rolled, deleted and reloaded, both say the same."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.model import TopicPartition
from ottla.protocol.records.record_batch import SimpleRecord, build_batch, iterate_batches, iterate_records
from ottla.storage.config import LogConfig
from ottla.storage.log.log import Log
from ottla.storage.log.log_loader import load_log
from ottla.testing.disk import SimulatedFileSystem

NOW = 1_700_000_000_000


class Batch(NamedTuple):
    first: int
    last: int
    data: bytes
    times: tuple[int, ...]


class Model:
    """The batches that the log should hold, and the log."""

    def __init__(self, config: LogConfig) -> None:
        self.fs = SimulatedFileSystem(random.Random(0))
        self.fs.makedirs("/data")
        self.config = config
        self.batches: list[Batch] = []
        self.start = self.end = self.recovery_point = 0
        self.log = self.load(clean=False)

    def load(self, *, clean: bool) -> Log:
        return load_log(
            self.fs,
            "/data/t-0",
            TopicPartition("t", 0),
            None,
            self.config,
            log_start_offset=self.start,
            recovery_point=self.recovery_point,
            clean_shutdown=clean,
            now_ms=NOW,
            random=random.Random(0),
        )

    def append(self, times: list[int], size: int, gap: int) -> None:
        first = self.end + gap
        records = [SimpleRecord(time, None, bytes(size)) for time in times]
        data = build_batch(records, base_offset=first, leader_epoch=0)
        self.log.append_as_follower(data, now_ms=NOW)
        self.end = first + len(times)
        self.batches.append(Batch(first, self.end - 1, bytes(data), tuple(times)))
        self.log.high_watermark = self.end

    def truncate(self, offset: int) -> None:
        self.log.truncate_to(offset)
        if offset < self.end:
            cut = next((batch for batch in self.batches if batch.last >= offset), None)
            self.batches = [batch for batch in self.batches if batch.last < offset]
            self.end = offset if cut is None else min(offset, cut.first)  # batches go as a whole
            self.start = min(self.start, self.end)

    def delete_records(self, offset: int) -> None:
        self.start = self.log.delete_records(max(self.start, min(offset, self.end)))

    def retain(self) -> None:
        self.log.delete_old_segments(NOW)
        self.start = self.log.log_start_offset
        first = self.log.segments[0].base_offset
        self.batches = [batch for batch in self.batches if batch.last >= first]

    def start_over(self, offset: int) -> None:
        self.log.truncate_fully_and_start_at(offset)
        self.batches.clear()
        self.start = self.end = offset

    def restart(self, how: str) -> None:
        if how == "clean":
            self.log.close()
        else:
            self.fs.restart(power_loss=how == "power loss")
        self.recovery_point = self.log.recovery_point
        fsynced = self.log.durable_offset
        self.log = self.load(clean=how == "clean")
        if how == "power loss":
            assert fsynced <= self.log.log_end_offset <= self.end
            self.end = self.log.log_end_offset
            first = self.log.segments[0].base_offset
            self.batches = [batch for batch in self.batches if first <= batch.first and batch.last < self.end]
        self.log.high_watermark = self.end

    def check(self, limits: list[int]) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        assert log.size_bytes == sum(len(batch.data) for batch in self.batches)
        for offset in range(self.start, self.end):
            expected = next((batch for batch in self.batches if batch.last >= offset), None)
            for limit in limits:
                found = log.read(offset, limit, up_to=self.end)
                assert (found is None) == (expected is None)
                if found is not None and expected is not None:
                    data = found.read()
                    assert found.first_offset == expected.first
                    assert data[: len(expected.data)] == expected.data
                    assert len(data) <= max(limit, len(expected.data))
                    assert sum(header.size for _, header in iterate_batches(data)) == len(data)
        self.check_times()

    def check_times(self) -> None:
        records = [
            (time, batch.first + number)
            for batch in self.batches
            for number, time in enumerate(batch.times)
            if batch.first + number >= self.start
        ]
        for wanted in range(0, 105, 7):
            first = next(((time, offset, 0) for time, offset in records if time >= wanted), None)
            assert self.log.offset_for_timestamp(wanted) == first
        if records:
            largest = max(time for time, _ in records)
            first = next((time, offset, 0) for time, offset in records if time == largest)
            assert self.log.offset_of_max_timestamp() == first


appends = st.tuples(
    st.just("append"),
    st.lists(st.integers(0, 100), min_size=1, max_size=4),
    st.integers(0, 300),
    st.sampled_from([0, 0, 0, 0, 3]),
)
actions = st.lists(
    st.one_of(
        appends,
        appends,
        appends,
        appends,
        st.tuples(st.just("truncate"), st.integers(0, 60)),
        st.tuples(st.just("delete_records"), st.integers(0, 60)),
        st.tuples(st.just("roll")),
        st.tuples(st.just("flush")),
        st.tuples(st.just("retain")),
        st.tuples(st.just("start_over"), st.integers(0, 60)),
        st.tuples(st.just("restart"), st.sampled_from(["clean", "killed", "power loss"])),
    ),
    max_size=25,
)


THREE_RECORDS: list[tuple[object, ...]] = [("append", [1], 0, 0), ("append", [2, 3], 0, 0)]
COMMON: dict[str, Any] = {"segment_bytes": 10**6, "index_interval_bytes": 4096, "limits": [1]}


@settings(max_examples=120)
@example(actions=[*THREE_RECORDS, ("truncate", 2), ("restart", "clean")], **COMMON)  # inside a batch
@example(
    actions=[("append", [1], 0, 0), ("append", [2], 0, 3), ("truncate", 3), ("restart", "clean")], **COMMON
)  # in a gap
@example(  # the end of one segment is lost and the name of the next is not: no work of the cleaner
    actions=[("restart", "power loss"), ("append", [0], 0, 0), ("roll",), ("restart", "power loss")],
    segment_bytes=1600,
    index_interval_bytes=0,
    limits=[1],
)
@given(
    actions=actions,
    segment_bytes=st.sampled_from([1600, 3000, 10**6]),
    index_interval_bytes=st.sampled_from([0, 200, 4096]),
    limits=st.lists(st.integers(1, 3000), min_size=1, max_size=3),
)
def test_a_log_is_a_list(
    actions: list[tuple[object, ...]], segment_bytes: int, index_interval_bytes: int, limits: list[int]
) -> None:
    # Compacted logs have gaps; `delete` beside it lets log start and retention move.
    config = LogConfig(
        segment_bytes=segment_bytes,
        index_interval_bytes=index_interval_bytes,
        cleanup_policy=frozenset({"compact", "delete"}),
        retention_bytes=2500,
        retention_ms=-1,
    )
    model = Model(config)
    for name, *arguments in actions:
        if name in ("roll", "flush"):
            getattr(model.log, str(name))()
        else:
            getattr(model, str(name))(*arguments)
    model.check(limits)


@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(0, 400), min_size=1, max_size=20), cut=st.integers(0, 5000), tail=st.binary(max_size=80)
)
def test_whatever_is_at_the_end_of_the_file_a_prefix_comes_back(sizes: list[int], cut: int, tail: bytes) -> None:
    model = Model(LogConfig(index_interval_bytes=300))
    for size in sizes:
        model.append([1], size, 0)
    name = "/data/t-0/00000000000000000000.log"
    data = model.fs.read_bytes(name)
    kept = data[: max(0, len(data) - cut)]
    model.fs.write_atomic(name, kept + tail)
    log = model.load(clean=False)
    found = log.read(0, 10**6, up_to=log.log_end_offset)
    content = b"" if found is None else found.read()
    whole = [batch.data for batch in model.batches if batch.last < log.log_end_offset]
    assert content == b"".join(whole)
    assert len(content) <= len(kept)
    assert len(kept) - len(content) < max(len(batch.data) for batch in model.batches)
    assert sum(1 for at, _ in iterate_batches(content) for _ in iterate_records(content, at)) == log.log_end_offset
