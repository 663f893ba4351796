"""The loops over records that compaction needs: compiled and interpreted, and beside a plain model."""

from __future__ import annotations

import hashlib
import sys
from array import array
from types import ModuleType
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.records import _compaction, _records
from ottla.protocol.records.record_batch import HEADER_SIZE, SimpleRecord, build_batch
from tests.property import test_record_batch
from tests.property.test_record_batch import headers, interpreted

SEED = int.from_bytes(bytes(range(8)), "little"), int.from_bytes(bytes(range(8, 16)), "little")
BASE = 1_700_000_000_000
keys = st.none() | st.sampled_from([b"", b"a", b"b", b"longer than eight bytes", b"k" * 64])
values = st.none() | st.binary(max_size=20)
records = st.lists(
    st.builds(SimpleRecord, st.integers(BASE - 10**6, BASE + 10**6), keys, values, headers), min_size=1, max_size=70
)
with mock.patch.dict(sys.modules, {"ottla.protocol.records._records": test_record_batch.INTERPRETED}):
    INTERPRETED = interpreted("_compaction")
MODULES = (_compaction, INTERPRETED)


def section_of(items: list[SimpleRecord]) -> bytes:
    return bytes(build_batch(items)[HEADER_SIZE:])


def test_the_hash_is_siphash_with_128_bits() -> None:
    """The first of the vectors that its authors publish."""
    for module in MODULES:
        first, second = module.hash_key(b"", *SEED)
        assert (first.to_bytes(8, "little") + second.to_bytes(8, "little")).hex() == "a3817f04ba25a8e66df67214c7550293"


@given(st.binary(max_size=40), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_both_hash_alike(key: bytes, seed_0: int, seed_1: int) -> None:
    assert _compaction.hash_key(key, seed_0, seed_1) == INTERPRETED.hash_key(key, seed_0, seed_1)


def mapped(
    module: ModuleType, items: list[SimpleRecord], slots: int, used_max: int, start: int
) -> tuple[tuple[int, int, bool], array[int]]:
    table = array("Q", bytes(24 * slots))
    section = section_of(items)
    return module.map_keys(table, *SEED, 0, used_max, section, 0, len(section), len(items), 0, start), table


@given(records, st.integers(1, 8), st.integers(0, 70))
def test_mapping_until_the_table_is_full(items: list[SimpleRecord], used_max: int, start: int) -> None:
    results = [mapped(module, items, 8, used_max, start) for module in MODULES]
    assert results[0] == results[1]
    model: dict[bytes, int] = {}
    last, full = -1, False
    for offset, (_, key, _, _) in enumerate(items):
        if key is None or offset < start:
            continue
        if len(model) >= used_max:
            full = True
            break
        model[key] = last = offset
    (used, found_last, found_full), table = results[0]
    assert (used, found_last, found_full) == (len(model), last, full)
    assert sorted(word - 1 for word in table[2::3] if word) == sorted(model.values())


@given(records, records, st.integers(-1, 80), st.booleans(), st.booleans(), st.integers(-(10**6), 10**6))
def test_what_stays_and_how_it_is_written(
    items: list[SimpleRecord], later: list[SimpleRecord], mapped_to: int, drop: bool, append_time: bool, shift: int
) -> None:
    section, base = section_of(items), items[0].timestamp
    stamp = BASE if append_time else -1
    answers = []
    for module in MODULES:
        _, table = mapped(module, items + later, 256, 256, 0)
        keep = bytearray(len(items))
        retained = module.retain(table, *SEED, mapped_to, drop, keep, section, 0, len(section), len(items), 0, base)
        out = bytearray(len(section) + 14 * len(items))
        size = module.copy_kept(out, keep, section, 0, len(section), len(items), base, stamp, base + shift)
        answers.append((retained, bytes(keep), bytes(out[:size])))
    assert answers[0] == answers[1]
    (kept, keyless, tombstones, first, greatest), keep_marks, written = answers[0]
    latest = {key: offset for offset, (_, key, _, _) in enumerate(items + later)}
    stays = [
        offset > mapped_to or (key is not None and latest[key] == offset and not (drop and value is None))
        for offset, (_, key, value, _) in enumerate(items)
    ]
    assert list(map(bool, keep_marks)) == stays
    left = [(offset, *items[offset]) for offset, each in enumerate(stays) if each]
    assert (kept, tombstones) == (len(left), any(each[3] is None for each in left))
    assert keyless == sum(key is None and offset <= mapped_to for offset, (_, key, _, _) in enumerate(items))
    assert (first, greatest) == ((left[0][1], max(each[1] for each in left)) if left else (-1, -1))
    found = _records.read(written, 0, len(written), kept, 0, base + shift, -1)
    assert [each[:5] for each in found] == [
        (offset, stamp if append_time else timestamp, key, value, tuple(pairs))
        for offset, timestamp, key, value, pairs in left
    ]


def test_keys_spread_over_the_table() -> None:
    """Numbers written as text, as most keys are: no long runs of taken slots."""
    taken = {_compaction.hash_key(b"%d" % number, *SEED)[0] % 10_007 for number in range(5000)}
    expected = {int(hashlib.md5(b"%d" % number).hexdigest()[:16], 16) % 10_007 for number in range(5000)}
    assert abs(len(taken) - len(expected)) < 150
