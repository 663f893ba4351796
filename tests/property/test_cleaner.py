"""Compaction against a model: what was written, and for every key what was written last."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.drivers.logs.log_cleaner import CleanerSettings
from ottla.protocol.records.record_batch import Record, iterate_batches, iterate_records
from tests.unit.storage.compaction import Compaction, Pair, compacted

RETENTION_MS = 1000
KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])
PAIRS = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=3))), min_size=1, max_size=5)

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), PAIRS, st.integers(0, 4)),
        st.tuples(st.just("idempotent"), PAIRS, st.integers(1, 2)),
        st.tuples(st.just("transaction"), PAIRS, st.integers(11, 13)),
        st.tuples(st.just("end"), st.booleans(), st.integers(11, 13)),
        st.tuples(st.just("roll")),
        st.tuples(st.just("clean")),
        st.tuples(st.just("wait"), st.integers(1, RETENTION_MS)),
        st.tuples(st.just("restart"), st.sampled_from(["clean", "kill", "power"])),
    ),
    max_size=40,
)


@dataclass
class Model:
    written: dict[int, tuple[bytes | None, bytes | None, int]] = field(default_factory=dict)
    """Key, value and time of every record by offset."""
    undecided: dict[int, list[int]] = field(default_factory=dict)
    """Offsets of open transactions by producer."""
    aborted: set[int] = field(default_factory=set)
    tombstones_since: dict[int, int] = field(default_factory=dict)
    """When a cleaning first met a tombstone."""

    def latest(self, below: int) -> dict[bytes | None, int]:
        """The last committed offset of every key."""
        found: dict[bytes | None, int] = {}
        for offset, (key, _, _) in self.written.items():
            if offset < below and offset not in self.aborted:
                found[key] = offset
        return found


class Run:
    def __init__(self, map_keys: int) -> None:
        settings = CleanerSettings(dedupe_buffer_bytes=24 * map_keys, io_buffer_bytes=1, load_factor=1.0)
        self.log = Compaction(compacted(delete_retention_ms=RETENTION_MS, segment_bytes=400), settings=settings)
        self.model = Model()
        self.sequences: dict[int, int] = {}

    def note(self, first: int, pairs: list[Pair]) -> list[int]:
        for i, (key, value) in enumerate(pairs):
            self.model.written[first + i] = key, value, self.log.clock.now + i
        return list(range(first, first + len(pairs)))

    def put(self, pairs: list[Pair], codec: int) -> None:
        self.note(self.log.put(pairs, codec=codec), pairs)

    def idempotent(self, pairs: list[Pair], producer_id: int) -> None:
        sequence = self.sequences.get(producer_id, 0)
        first = self.log.put(pairs, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        self.sequences[producer_id] = sequence + len(pairs)
        self.note(first, pairs)

    def transaction(self, pairs: list[Pair], producer_id: int) -> None:
        sequence = self.sequences.get(producer_id, 0)
        first = self.log.put(
            pairs, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True
        )
        self.sequences[producer_id] = sequence + len(pairs)
        self.model.undecided.setdefault(producer_id, []).extend(self.note(first, pairs))

    def end(self, abort: bool, producer_id: int) -> None:
        if producer_id in self.model.undecided:
            offsets = self.model.undecided.pop(producer_id)
            if abort:
                self.model.aborted.update(offsets)
            self.log.marker(producer_id, abort=abort)

    def roll(self) -> None:
        self.log.log.roll()

    def wait(self, ms: int) -> None:
        self.log.clock.now += ms

    def clean(self) -> None:
        self.log.clean()

    def restart(self, how: str) -> None:
        before = self.producers()
        if how == "clean":
            self.log.restart()
        else:
            if how == "power":
                self.log.log.flush()
            self.log.fs.restart(power_loss=how == "power")
            self.log.start()
            self.log.log.high_watermark = self.log.log.log_end_offset
        assert self.producers() == before

    def producers(self) -> dict[int, tuple[int, int, int | None]]:
        """Epoch, last sequence and open transaction: what the log must still tell after any restart."""
        found = self.log.log.producer_state.producers
        return {
            producer_id: (entry.producer_epoch, entry.last_sequence, entry.current_txn_first_offset)
            for producer_id, entry in found.items()
        }

    def check(self) -> None:
        log, model = self.log.log, self.model
        # As a read_committed consumer sees it.
        records = [each for each in self.read_all() if each.offset in model.written]
        for record in records:
            assert (record.key, record.value, record.timestamp) == model.written[record.offset]
        offsets = {record.offset for record in records}
        cleaned = log.cleaned_offset or 0
        assert {offset for offset in model.written if offset >= cleaned} - model.aborted <= offsets
        latest_ever = model.latest(log.log_end_offset)
        for offset in latest_ever.values():
            value = model.written[offset][1]
            assert offset in offsets or value is None, "the latest record of a key is gone"
        for record in records:
            if record.offset < cleaned and record.value is not None and record.offset not in model.aborted:
                newer = model.latest(cleaned)[record.key]
                assert newer == record.offset, "an older record of a key is still there below the clean point"

    def check_reads(self) -> None:
        """A read at any offset begins with the first record that is left there."""
        log = self.log.log
        offsets = sorted(record.offset for record in self.read_all())
        for offset in range(log.log_start_offset, log.log_end_offset):
            expected = next((each for each in offsets if each >= offset), None)
            assert self.first_from(offset) == expected

    def first_from(self, offset: int) -> int | None:
        """The first record for a consumer that begins at `offset`: it skips batches without records."""
        log = self.log.log
        at = offset
        while (part := log.read(at, 1, up_to=log.log_end_offset)) is not None:
            data = part.read()
            for position, header in iterate_batches(data):
                for record in iterate_records(data, position):
                    if record.offset >= offset:
                        return record.offset
                at = header.next_offset
        return None

    def read_all(self) -> list[Record]:
        return self.log.records()


@given(STEPS, st.integers(2, 40))
@settings(max_examples=250)
def test_compaction_keeps_what_a_reader_needs(steps: list[tuple[object, ...]], map_keys: int) -> None:
    run = Run(map_keys)
    for name, *arguments in steps:
        getattr(run, str(name))(*arguments)
        run.check()
    for producer_id in list(run.model.undecided):
        run.end(True, producer_id)
    run.roll()
    run.log.clean_all()
    run.check()
    run.check_reads()
    # Everything is clean now: one record for each key, and nothing of what was aborted.
    below = run.log.log.cleaned_offset or 0
    left = [each.offset for each in run.read_all() if each.offset in run.model.written and each.offset < below]
    latest = set(run.model.latest(below).values())
    assert set(left) <= latest
    assert {offset for offset in latest if run.model.written[offset][1] is not None} <= set(left)
    run.restart("kill")
    run.check()


@given(STEPS)
@settings(max_examples=60)
def test_tombstones_go_and_nothing_comes_back(steps: list[tuple[object, ...]]) -> None:
    run = Run(1000)
    for name, *arguments in steps:
        getattr(run, str(name))(*arguments)
    for producer_id in list(run.model.undecided):
        run.end(False, producer_id)
    for _ in range(3):  # the first cleaning sets the horizon, one after it removes; each needs something dirty
        run.wait(2 * RETENTION_MS)
        run.put([(b"z", b"")], 0)
        run.roll()
        run.log.clean_all()
    run.restart("kill")
    below = run.log.log.cleaned_offset or 0
    left = {each.key: each.value for each in run.read_all() if each.offset in run.model.written}
    latest = run.model.latest(below)
    assert left == {
        key: run.model.written[offset][1] for key, offset in latest.items() if run.model.written[offset][1] is not None
    }
