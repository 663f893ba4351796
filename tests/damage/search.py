"""One damage to one file of a stopped log manager's directory, then start, verify and repair, held against a model.

The real `LogManager` on the simulated disk. Three partitions: one with plain records, one with idempotent producers,
one that is compacted. The model knows every batch that was written. After the damage, whatever it was:

- every record before and behind it is served, or kept in a side file, or its reader gets CORRUPT_MESSAGE;
- a read gives the bytes that were written at that offset, or an error;
- no offset that was fsynced is given again.

What a start cannot know is not asked of it: files without a checksum may say another thing that could be true.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.protocol.records.record_batch import SimpleRecord, build_batch, crc_is_valid, iterate_batches
from ottla.storage.checkpoints.directory_checkpoints import read_directory_checkpoints
from ottla.storage.config import LogConfig
from ottla.storage.log.log import Log
from ottla.storage.log.validation import Origin
from ottla.storage.log_manager import LogManager
from ottla.storage.recovery.damage import Misplaced
from ottla.storage.recovery.repair import apply, missing_directories, plan_directory
from ottla.storage.segments.transaction_index import ENTRY, AbortedTransaction
from ottla.testing.disk import SimulatedFileSystem
from tests.unit.storage.compaction import end_marker

ROOT = "/data"
NOW = 1_700_000_000_000
SMALL = LogConfig(segment_bytes=2500, index_interval_bytes=300, file_delete_delay_ms=1000, retention_ms=-1)
COMPACTED = dataclasses.replace(SMALL, cleanup_policy=frozenset({"compact"}))
TOPICS = {"plain": SMALL, "idempotent": SMALL, "compacted": COMPACTED, "transactional": SMALL}
KEYS = {TopicPartition(name, 0): UUID(int=number + 1) for number, name in enumerate(TOPICS)}

KINDS = (
    ".log", ".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint", "partition.metadata",
    "recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint",
    "cleaner-offset-checkpoint", ".kafka_cleanshutdown",
)  # fmt: skip
HOW = ("flip", "truncate", "delete", "duplicate", "empty", "swap")


@dataclass
class Clock:
    now: int = NOW

    def now_ms(self) -> int:
        return self.now


@dataclass
class Outcome:
    """Result of one search."""

    kind: str
    how: str
    clean: bool
    fired: bool = False
    """Whether the files differ from before."""
    offline: set[TopicPartition] = field(default_factory=set)
    warned: bool = False
    cut: bool = False
    """Something that was not fsynced was cut off."""

    @property
    def detected(self) -> bool:
        return bool(self.offline) or self.warned or self.cut


TRANSACTION_OFFSETS = 5
"""Offsets of two batches of two records, and a marker."""


class Search:
    def __init__(self, seed: int, kind: str, how: str, *, clean: bool) -> None:
        self.random = Random(f"{seed} {kind} {how} {clean}")
        self.outcome = Outcome(kind, how, clean)
        self.clock = Clock()
        self.fs = SimulatedFileSystem(Random(seed), now_ms=self.clock.now_ms)
        self.fs.makedirs(ROOT)
        self.batches: dict[TopicPartition, dict[int, bytes]] = {key: {} for key in KEYS}
        """Written batches by base offset."""
        self.aborted: list[AbortedTransaction] = []
        """Aborted transactions of the partition with transactions, in the order of their markers."""
        self.looks_right = False
        """Whether a damaged transaction index may be mistaken for one of other transactions, or of fewer."""
        self.fsynced: dict[TopicPartition, int] = {}
        self.warnings: list[str] = []

    def open(self) -> LogManager:
        manager = LogManager(
            self.fs, [ROOT], SMALL, self.clock, Random(1), topic_config=TOPICS.__getitem__, warn=self._warn
        )
        manager.lock()
        manager.load()
        manager.rename_strays(lambda log: log.topic_partition not in KEYS)  # as a node does that has the metadata
        return manager

    def _warn(self, event: str, /, **found: object) -> None:
        self.warnings.append(f"{event} {found}")

    # Before

    def write(self) -> None:
        manager = self.open()
        logs = {key: manager.create(key, topic_id) for key, topic_id in KEYS.items()}
        for number in range(30):
            for key, log in logs.items():
                self._append(key, log, number)
            if number == 20:
                for log in logs.values():
                    log.flush()
                manager._checkpoint_now(ROOT, "recovery-point-offset-checkpoint")
                self.fsynced = {key: log.recovery_point for key, log in logs.items()}
        if self.outcome.clean:
            manager.shutdown()
            self.fsynced = {key: log.log_end_offset for key, log in logs.items()}
        else:
            self.fs.crash()
        self.fs.restart(power_loss=False)
        self.fs.fsync_all()

    def _append(self, key: TopicPartition, log: Log, number: int) -> None:
        self.clock.now += 10
        if key.topic == "transactional":
            self._append_of_transaction(key, log, number)
            return
        producer = 7 if key.topic == "idempotent" else -1
        sequence = 2 * len(self.batches[key]) if producer >= 0 else -1
        records = [
            SimpleRecord(self.clock.now, b"%d" % (number % 5), self.random.randbytes(self.random.randrange(40, 200)))
            for _ in range(2)
        ]
        batch = build_batch(records, producer_id=producer, producer_epoch=min(producer, 0), base_sequence=sequence)
        info = log.append_as_leader(memoryview(batch), number // 12, now_ms=self.clock.now)
        log.high_watermark = log.log_end_offset
        self.batches[key][info.first_offset] = bytes(batch)

    def _append_of_transaction(self, key: TopicPartition, log: Log, number: int) -> None:
        """Transactions of two batches and a marker, of two producers in turn; two of three are aborted."""
        producer, step = 11 + number // 3 % 2, number % 3
        if step < 2:
            records = [SimpleRecord(self.clock.now, b"k", self.random.randbytes(100)) for _ in range(2)]
            batch = build_batch(
                records,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=number // 6 * 4 + 2 * step,
                transactional=True,
            )
        else:
            batch = end_marker(producer, abort=number // 3 % 3 > 0, timestamp=self.clock.now)
        info = log.append_as_leader(memoryview(batch), number // 12, now_ms=self.clock.now, origin=Origin.COORDINATOR)
        log.high_watermark = log.log_end_offset
        self.batches[key][info.first_offset] = bytes(batch)
        if step == 2 and number // 3 % 3 > 0:
            self.aborted.append(AbortedTransaction(producer, info.first_offset - 4, info.first_offset, -1))

    # The damage

    def damage(self) -> None:
        """Do the requested kind of damage at a random place; `fired` says whether there was such a file."""
        fs, kind = self.fs, self.outcome.kind
        before = fs.files(ROOT)
        paths = sorted(path for path, data in before.items() if path.endswith(kind))
        filled = [path for path in paths if before[path]]
        if not paths:
            return
        path = self.random.choice(filled or paths)
        data = bytearray(before[path])
        how = self.outcome.how
        if how == "flip" and data:
            at = self.random.randrange(len(data))
            for position in range(at, min(at + self.random.choice((1, 1, 4)), len(data))):
                data[position] ^= 1 << self.random.randrange(8)
            fs.write_atomic(path, bytes(data))
        elif how == "truncate" and data:
            fs.write_atomic(path, bytes(data[: self.random.randrange(len(data))]))
        elif how == "delete":
            fs.remove(path)
        elif how == "empty":
            fs.write_atomic(path, b"")
        elif len(paths) > 1:
            # A batch does not say whose it is: another partition's at a place that fits is not to be told from its own.
            near = [each for each in paths if each != path and (kind != ".log" or same_directory(each, path))]
            other = self.random.choice(near or [path])
            theirs = before[other]
            fs.write_atomic(other, bytes(data))
            if how == "swap":
                fs.write_atomic(path, theirs)
        self.outcome.fired = fs.files(ROOT) != before
        if kind == ".txnindex":
            left = fs.files(ROOT).get(path, b"")
            self.looks_right = how in ("delete", "empty", "flip") or (how == "truncate" and not len(left) % ENTRY.size)
        self.damaged = fs.files(ROOT)

    # After

    def check(self) -> None:
        self.warnings.clear()
        manager = self.open()
        outcome = self.outcome
        outcome.offline = set(manager.offline_logs)
        outcome.warned = any("damaged" in warning for warning in self.warnings)
        for key, topic_id in KEYS.items():
            if key in manager.offline_logs:
                self._check_untouched(key)
                self._check_refused(manager, key, topic_id)
                continue
            log = manager.create(key, topic_id) if manager.get(key) is None else manager.get(key)
            assert log is not None
            outcome.cut |= bool(log.recovery.truncated_bytes)
            self._check_log(key, log)
        if manager.offline_logs:
            for log in manager.offline_logs.values():
                if isinstance(log.damage, Misplaced):  # only the file is another partition's, as the user would find
                    self.fs.remove(log.damage.path)
            manager.shutdown()
            self._repair()
            manager = self.open()
            assert not manager.offline_logs, {key: str(log.error) for key, log in manager.offline_logs.items()}
            for key in sorted(outcome.offline):
                log = manager.get(key)
                assert log is not None
                self._check_log(key, log)
                end = log.log_end_offset
                assert end >= self.fsynced[key], f"{key}: offset {end} would be given again"
        for key in KEYS:
            self._check_goes_on(manager, key)
        manager.shutdown()

    def _check_untouched(self, key: TopicPartition) -> None:
        """A damaged log is left alone."""
        prefix = f"{ROOT}/{key}/"

        def logs(files: dict[str, bytes]) -> dict[str, bytes]:
            return {path: data for path, data in files.items() if path.startswith(prefix) and path.endswith(".log")}

        assert logs(self.fs.files(ROOT)) == logs(self.damaged)

    def _check_refused(self, manager: LogManager, key: TopicPartition, topic_id: UUID) -> None:
        offline = manager.offline_logs[key]
        assert offline.damage is not None
        wanted = f"remove {ROOT}/{key}/partition.metadata"
        if not isinstance(offline.damage, Misplaced):
            wanted = f"`ottla log repair {ROOT}/{key}`"
        assert wanted in str(offline.error)
        try:
            manager.create(key, topic_id)
        except KafkaError as error:
            assert error is offline.error
        else:
            raise AssertionError("an empty log took the place of a damaged one")

    def _repair(self) -> None:
        offsets = read_directory_checkpoints(self.fs, ROOT)
        lost = [directory for directory, _ in missing_directories(self.fs, ROOT, offsets)]
        for key in KEYS:
            directory = f"{ROOT}/{key}"
            if self.fs.is_dir(directory) or directory in lost:
                apply(self.fs, plan_directory(self.fs, ROOT, directory))

    def _check_log(self, key: TopicPartition, log: Log) -> None:
        """Every batch is served right, or is in a side file."""
        prefix = f"{ROOT}/{key}/"
        kept = [data for path, data in self.fs.files(ROOT).items() if path.startswith(prefix) and path.endswith(".cut")]
        for base, batch in self.batches[key].items():
            try:
                served = self._read(log, base)
            except (
                KafkaError
            ) as error:  # the reader hears of it; `ottla log verify` and the next recovery name the place
                assert (
                    error.code is ErrorCode.corrupt_message or base < log.log_start_offset or base >= log.log_end_offset
                )
                if error.code is ErrorCode.corrupt_message:
                    continue
                served = None
            if served is not None and served[12 + 4 :] == batch[12 + 4 :] and served[:8] == batch[:8]:
                continue
            assert served is None, f"{key}: other bytes at offset {base}"
            in_damaged = [data for path, data in self.damaged.items() if path.startswith(prefix) and batch[16:] in data]
            if in_damaged and base >= log.log_start_offset:
                assert any(batch[16:] in data for data in kept), f"{key}: the whole batch at {base} is gone"
        if key.topic == "transactional":
            self._check_aborted(log)

    def _check_aborted(self, log: Log) -> None:
        """A reader of what is committed is told of every aborted transaction that it would meet, and of no other."""
        found = [
            (each.producer_id, each.first_offset, each.last_offset)
            for each in log.aborted_transactions(log.log_start_offset, log.log_end_offset)
        ]
        wanted = [
            (each.producer_id, each.first_offset, each.last_offset)
            for each in self.aborted
            if all(self._is_served(log, base) for base in (each.first_offset, each.first_offset + 2, each.last_offset))
        ]
        is_complete = all(
            any(each[0] == producer and each[1] <= first and each[2] == last for each in found)
            for producer, first, last in wanted
        )
        misled = not is_complete or not all(self._is_right(log, *each) for each in found)
        assert not misled or self.looks_right, (found, wanted)

    def _is_right(self, log: Log, producer: int, first: int, last: int) -> bool:
        """Where the marker that ended a transaction is lost, the next one of its producer ends it."""
        marker = first // TRANSACTION_OFFSETS * TRANSACTION_OFFSETS + TRANSACTION_OFFSETS - 1
        is_end = any((each.producer_id, each.last_offset) == (producer, last) for each in self.aborted)
        return is_end and (last == marker or not self._is_served(log, marker))

    def _is_served(self, log: Log, base: int) -> bool:
        try:
            return self._read(log, base) is not None
        except KafkaError:
            return False

    def _read(self, log: Log, base: int) -> bytes | None:
        """The batch that a reader of this offset gets, if one with that offset."""
        found = log.read(base, 1, up_to=log.log_end_offset)
        data = b"" if found is None else found.read()
        for position, header in iterate_batches(data):
            if not crc_is_valid(data, position, header):  # which every client looks at
                raise KafkaError(ErrorCode.corrupt_message)
            return data[position : position + header.size] if header.base_offset == base else None
        return None

    def _check_goes_on(self, manager: LogManager, key: TopicPartition) -> None:
        log = manager.get(key)
        assert log is not None
        end = log.log_end_offset
        if self.outcome.clean or end >= self.fsynced[key]:
            records = [SimpleRecord(self.clock.now, b"k", b"goes on")]
            info = log.append_as_leader(memoryview(build_batch(records)), 9, now_ms=self.clock.now)
            assert info.first_offset == end


def same_directory(one: str, other: str) -> bool:
    return one.rpartition("/")[0] == other.rpartition("/")[0]


def search(seed: int, kind: str, how: str, *, clean: bool) -> Outcome:
    """One damage. Raises `AssertionError` where the model does not hold."""
    one = Search(seed, kind, how, clean=clean)
    one.write()
    one.damage()
    if one.outcome.fired:
        one.check()
    return one.outcome


def counted(outcomes: list[Outcome]) -> Counter[tuple[str, str]]:
    """How many were fired and detected, by kind of file."""
    found: Counter[tuple[str, str]] = Counter()
    for outcome in outcomes:
        found[outcome.kind, "fired"] += outcome.fired
        found[outcome.kind, "detected"] += outcome.fired and outcome.detected
    return found
