"""Measure how fast fetched batches become Arrow columns, without a broker: `python -m bench.columns`.

Each line is a kind of batch, gone through until a second of CPU time is spent, with `take` after every 16 MiB.
"""

from __future__ import annotations

import random
import time
from typing import NamedTuple

from ottla.protocol.records.columns import Columns
from ottla.protocol.records.compression import Codec
from ottla.protocol.records.record_batch import SimpleRecord, build_batch

TIME = 1_700_000_000_000
ANSWER_BYTES = 8 << 20
"""Bytes of one fetch before compression."""
TAKEN_BYTES = 16 << 20
SECONDS = 1.0


class Kind(NamedTuple):
    value_bytes: int
    per_batch: int
    codec: Codec = Codec.NONE
    keyed: bool = False
    headers: bool = False


KINDS = [
    *(Kind(100, per_batch) for per_batch in (1, 150, 5000)),
    Kind(100, 5000, keyed=True),
    Kind(100, 5000, headers=True),
    *(Kind(1000, per_batch) for per_batch in (1, 16, 900)),
    *(Kind(100, 5000, codec) for codec in Codec if codec),
    *(Kind(1000, 900, codec) for codec in Codec if codec),
]


def answer(kind: Kind) -> tuple[bytes, int]:
    """Batches, and their records; values compress to about a half."""
    source = random.Random(1)
    batches = bytearray()
    count = max(1, ANSWER_BYTES // (kind.per_batch * kind.value_bytes))
    headers = (("trace", b"0123456789abcdef"),) if kind.headers else ()
    for batch in range(count):
        records = [
            SimpleRecord(
                TIME + at // 100,
                b"key-%06d" % at if kind.keyed else None,
                source.randbytes(kind.value_bytes // 2).ljust(kind.value_bytes, b"."),
                headers,
            )
            for at in range(kind.per_batch)
        ]
        batches += build_batch(records, base_offset=batch * kind.per_batch, codec=kind.codec)
    return bytes(batches), count * kind.per_batch


def measured(kind: Kind) -> float:
    """Rows per second."""
    batches, end = answer(kind)
    columns = Columns(headers=kind.headers)
    rows = 0
    began = time.process_time()
    while time.process_time() - began < SECONDS:
        offset = 0
        while offset < end:
            offset = columns.add(batches, offset, bytes_max=TAKEN_BYTES)
            if columns.bytes >= TAKEN_BYTES:
                rows += columns.take().rows
    rows += columns.rows
    return rows / (time.process_time() - began)


def main() -> None:
    print(f"{'value':>6} {'batch':>6} {'codec':>7} {'M rows/s':>9} {'MB/s':>6} {'CPU s per M rows':>17}")
    for kind in KINDS:
        rate = measured(kind)
        more = " keyed" * kind.keyed + " headers" * kind.headers
        print(
            f"{kind.value_bytes:6} {kind.per_batch:6} {kind.codec.name.lower():>7} {rate / 1e6:9.2f} "
            f"{rate * kind.value_bytes / 1e6:6.0f} {1e6 / rate:17.4f}{more}"
        )


if __name__ == "__main__":
    main()
