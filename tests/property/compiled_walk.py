"""One walk over a log from a seed, printed step by step: `python -m tests.property.compiled_walk SEED STEPS`.

`test_compiled_walk.py` runs it twice, with the compiled modules and from their sources, and compares what is printed.
Numbers are at the edges of what fits: a compiled `long long` must not show.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from random import Random
from typing import Any

from ottla.errors import KafkaError
from ottla.protocol.records.compression import Codec
from ottla.protocol.records.record_batch import SimpleRecord, build_batch
from ottla.storage.config import LogConfig
from ottla.storage.log import log as log_module
from ottla.storage.log.log import Log
from ottla.testing.disk import SimulatedFileSystem
from tests.unit.storage.logs import DIRECTORY, NOW, load

CONFIGS = [
    LogConfig(segment_bytes=2000, index_interval_bytes=200, file_delete_delay_ms=0, retention_ms=-1),
    LogConfig(segment_bytes=1 << 31, message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=10),
    LogConfig(segment_ms=50, index_interval_bytes=0, segment_jitter_ms=3, max_message_bytes=500),
    LogConfig(message_timestamp_type="LogAppendTime", compression_type="gzip", index_interval_bytes=100),
    LogConfig(cleanup_policy=frozenset({"compact"}), segment_index_bytes=36, flush_messages=3),
]  # fmt: skip
EDGES = [-(2**63), -(2**31) - 1, -2, -1, 0, 1, 2, 7, 100, 2**31 - 1, 2**31, 2**32, 2**63 - 2, 2**63 - 1]


class Walk:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = NOW
        self.config = self.random.choice(CONFIGS)
        self.fs = SimulatedFileSystem(Random(seed), now_ms=lambda: self.now)
        self.fs.makedirs(os.path.dirname(DIRECTORY))
        self.log: Log = load(self.fs, self.config, now_ms=self.now)
        self.sequences: dict[int, int] = {}
        self.last = bytearray()
        self.is_over = False
        """The log cannot be loaded again."""

    def step(self) -> str:
        self.now += self.random.choice([0, 1, 5, 100])
        weights = {
            self.append: 12,
            self.again: 2,
            self.broken: 5,
            self.follow: 3,
            self.read: 8,
            self.look_up: 3,
            self.epochs: 2,
            self.truncate: 1,
            self.trim: 1,
            self.roll: 1,
            self.flush: 1,
            self.reload: 1,
            self.commit: 3,
        }
        (chosen,) = self.random.choices([*weights], [*weights.values()])
        try:
            outcome = repr(chosen())
        except KafkaError as error:
            outcome = f"{error.code.name}: {error.message}"
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}"
        log = self.log
        state = (log.log_start_offset, log.log_end_offset, log.high_watermark, log.recovery_point, log.size_bytes)
        return f"{chosen.__name__} {outcome} {state} {len(log.segments)} {log.max_timestamp_ms}"

    def offset(self) -> int:
        end = self.log.log_end_offset
        return self.random.choice(
            [self.random.choice(EDGES), end, end - 1, end + 1, self.random.randint(0, max(end, 0))]
        )

    def batch(self, **options: Any) -> bytearray:
        stamp = self.random.choice([self.now, self.now - 5, self.now + 11, self.now - 2000, -1, 0, 2**62])
        records = [
            SimpleRecord(
                min(stamp + self.random.choice([0, 1, -1, 3]), 2**63 - 1),
                self.random.choice([None, b"", b"k%d" % self.random.randrange(5)]),
                self.random.choice([None, b"", self.random.randbytes(self.random.choice([1, 60, 130, 700]))]),
                self.random.choice([(), (("h", b"v"),)]),
            )
            for _ in range(self.random.choice([1, 1, 2, 10]))
        ]
        codec = self.random.choice([Codec.NONE, Codec.NONE, Codec.NONE, Codec.GZIP, Codec.ZSTD])
        return build_batch(records, codec=codec, **options)

    def append(self) -> Any:
        options: dict[str, Any] = {}
        if self.random.random() < 0.3:
            producer = self.random.choice([1, 2, 2**62])
            sequence = self.sequences.get(producer, 0)
            options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
        data = self.batch(**options)
        self.last = bytearray(data)
        epoch = self.random.choice([0, 0, 1, 5, 2**31 - 1])
        info = self.log.append_as_leader(memoryview(data), epoch, now_ms=self.now)
        if options:
            self.sequences[options["producer_id"]] = options["base_sequence"] + info.last_offset - info.first_offset + 1
        return shown(info), hashlib.sha1(data).hexdigest()

    def again(self) -> Any:
        return shown(self.log.append_as_leader(memoryview(bytearray(self.last)), 0, now_ms=self.now))

    def broken(self) -> Any:
        data = self.batch()
        how = self.random.randrange(4)
        if how == 0:
            data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
        elif how == 1:
            del data[self.random.randrange(len(data)) :]
        elif how == 2:
            at = self.random.choice([0, 8, 23, 27, 35, 43, 51, 53, 57])
            data[at : at + 4] = self.random.choice(
                [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0"]
            )
            self.sign(data)
        else:
            data += self.batch()
        return shown(self.log.append_as_leader(memoryview(data), 0, now_ms=self.now))

    @staticmethod
    def sign(data: bytearray) -> None:
        from crc32c import crc32c

        data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")

    def follow(self) -> Any:
        data = self.batch()
        base = self.random.choice(
            [self.log.log_end_offset, self.log.log_end_offset, self.log.log_end_offset + 3, self.offset()]
        )
        base = base if base < 2**62 else 2**63 - 1  # which no batch may end at: nothing could follow
        data[:8] = (base & (2**64 - 1)).to_bytes(8, "big")
        data[12:16] = self.random.choice([0, 3, 2**31 - 1, 2**32 - 1]).to_bytes(4, "big")
        return shown(self.log.append_as_follower(memoryview(data), now_ms=self.now))

    def read(self) -> Any:
        found = self.log.read(
            self.offset(),
            self.random.choice([0, 1, 100, 5000, 2**31 - 1, -1]),
            up_to=self.random.choice([self.log.log_end_offset, self.log.high_watermark, self.offset()]),
            min_one_batch=self.random.random() < 0.7,
        )
        if found is None:
            return None
        return found.position, found.length, found.first_offset, hashlib.sha1(found.read()).hexdigest()

    def look_up(self) -> Any:
        stamp = self.random.choice([self.now, self.now - 50, NOW, *EDGES])
        return self.log.offset_for_timestamp(stamp), self.log.offset_of_max_timestamp()

    def epochs(self) -> Any:
        epoch = self.random.choice([0, 1, 2, 5, 6, -1, 2**31 - 1])
        if self.random.random() < 0.2:
            self.log.assign_epoch(max(epoch, 0))
        return self.log.end_offset_for_epoch(epoch), self.log.epoch_for_offset(self.offset()), self.log.latest_epoch

    def truncate(self) -> Any:
        return self.log.truncate_to(max(self.offset(), 0))

    def trim(self) -> Any:
        return self.log.delete_records(self.offset())

    def roll(self) -> Any:
        return self.log.roll()

    def flush(self) -> Any:
        return self.log.flush(self.random.choice([None, self.offset()]))

    def commit(self) -> Any:
        """As a partition does it: never beyond the end."""
        self.log.high_watermark = min(max(self.offset(), self.log.high_watermark), self.log.log_end_offset)

    def reload(self) -> Any:
        log, clean = self.log, self.random.random() < 0.5
        if clean:
            log.close()
        else:
            self.fs.crash()
            self.fs.restart(power_loss=False)
        self.is_over = True
        self.log = load(
            self.fs,
            self.config,
            clean_shutdown=clean,
            recovery_point=log.recovery_point,
            now_ms=self.now,
            log_start_offset=log.log_start_offset,
        )
        self.is_over = False
        self.log.high_watermark = self.log.log_end_offset
        return clean, self.log.recovery.recovered_bytes, self.log.recovery.truncated_bytes

    def files(self) -> str:
        digest = hashlib.sha1()
        for path, data in sorted(self.fs.files(os.path.dirname(DIRECTORY)).items()):
            digest.update(f"{path} {len(data)} ".encode() + data)
        return digest.hexdigest()


def shown(info: Any) -> tuple[Any, ...]:
    return (
        info.first_offset,
        info.last_offset,
        info.log_append_time_ms,
        info.log_start_offset,
        info.leader_epoch,
        info.size_bytes,
        info.needs_flush,
    )


def main(seeds: range, steps: int, tell: Callable[[str], None] = print) -> None:
    tell(f"log is {'source' if log_module.__file__.endswith('.py') else 'compiled'}")
    for seed in seeds:
        walk = Walk(seed)
        for number in range(steps):
            tell(f"{seed}.{number} {walk.step()}")
            if walk.is_over:
                break
        tell(f"{seed} {walk.files()}")


if __name__ == "__main__":
    first, count, length = map(int, sys.argv[1:4])
    main(range(first, first + count), length)
