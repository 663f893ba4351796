"""Record batches that lie: about lengths, counts or attributes, or in a bit of their records, with a true checksum."""

from __future__ import annotations

import struct
from functools import cache
from random import Random

from ottla.protocol.records.record_batch import CRC_POSITION, HEADER_SIZE, SimpleRecord, build_batch, compute_crc

TIME = 1_700_000_000_000
FIELDS = {
    "batch_length": (8, ">i"),
    "magic": (16, ">b"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "count": (57, ">i"),
}
"""Position and layout."""


def a_batch(random: Random, codec: int, **options: int) -> bytearray:
    """One to five records of an idempotent producer, unless `options` say otherwise."""
    records = [SimpleRecord(TIME, b"key", random.randbytes(50), (("h", b"v"),))] * random.randint(1, 5)
    return build_batch(records, codec=codec, **{"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, **options})


def with_crc(batch: bytearray) -> bytearray:
    if len(batch) >= HEADER_SIZE:
        struct.pack_into(">I", batch, CRC_POSITION, compute_crc(batch, 0, len(batch)))
    return batch


def lie_in_header(batch: bytearray, random: Random) -> bytearray:
    position, layout = FIELDS[random.choice(sorted(FIELDS))]
    bits = struct.calcsize(layout) * 8
    (value,) = struct.unpack_from(layout, batch, position)
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    wrong = random.choice((value + 1, value - 1, 0, -1, 1, low, high, value ^ 1 << random.randrange(bits - 1)))
    struct.pack_into(layout, batch, position, max(low, min(high, wrong)))
    return with_crc(batch)


def flip_records(batch: bytearray, random: Random) -> bytearray:
    for _ in range(random.randint(1, 4)):
        bit = random.randrange(HEADER_SIZE * 8, len(batch) * 8)
        batch[bit // 8] ^= 1 << bit % 8
    return with_crc(batch)


def cut(batch: bytearray, random: Random) -> bytearray:
    return batch[: random.randrange(len(batch))]


def flip_anything(batch: bytearray, random: Random) -> bytearray:
    bit = random.randrange(len(batch) * 8)
    batch[bit // 8] ^= 1 << bit % 8
    return batch


def repeat(batch: bytearray, random: Random) -> bytearray:
    return batch * random.choice((2, 3, 20))


def garbage_behind(batch: bytearray, random: Random) -> bytearray:
    return batch + random.randbytes(random.randint(1, 80))


def garbage_compressed(batch: bytearray, random: Random) -> bytearray:
    """Bytes that no codec made, said to be compressed."""
    batch[HEADER_SIZE:] = random.randbytes(random.randint(0, 60))
    struct.pack_into(">h", batch, 21, random.randint(1, 7))
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    return with_crc(batch)


@cache
def _crowd(codec: int) -> bytes:
    return bytes(build_batch([SimpleRecord(TIME, None, None)] * 5_000, codec=codec))


def crowd(batch: bytearray, random: Random) -> bytearray:
    """Few bytes that unpack to thousands of records, with a header that may lie about them."""
    many = bytearray(_crowd(random.randint(1, 4)))
    return many if random.random() < 0.5 else lie_in_header(many, random)


LIES = (lie_in_header, lie_in_header, flip_records, cut, flip_anything, repeat, garbage_behind, garbage_compressed,
        crowd)  # fmt: skip


def drawn(random: Random) -> bytes:
    """A batch as a client may send it."""
    codec = random.choice((0, 0, 0, 1, 2, 3, 4))
    options = random.choice(
        ({"producer_id": -1, "producer_epoch": -1, "base_sequence": -1},) * 3
        + ({"base_sequence": random.randint(0, 4)},)
    )
    return bytes(a_batch(random, codec, **options))


def wrong(random: Random) -> bytes:
    """A batch that lies."""
    batch = a_batch(random, random.randint(0, 4), producer_id=random.choice((-1, 5)))
    return bytes(random.choice(LIES)(batch, random))
