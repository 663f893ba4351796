"""Offsets translated by runs, against a list of all pairs."""

from __future__ import annotations

import base64
import random
import tracemalloc
import zlib

import pytest

from ottla.mirror.mapping import INFLATED_BYTES_MAX, Block, Mapping, Run, Runs, Stretch, paired, stretches


@pytest.mark.parametrize("packed_at", [0, 1, 5])
@pytest.mark.parametrize("seed", range(100))
def test_every_offset_is_translated_to_the_next_record_and_back(seed: int, packed_at: int) -> None:
    chance = random.Random(seed)
    count = chance.randrange(1, 30)
    source = sorted(chance.sample(range(60), count))
    there = sorted(chance.sample(range(100, 160), count))
    mapping = Mapping(origin=100, through=source[-1] + 3)
    for number, run in enumerate(paired(stretches(source), stretches(there)), 1):
        mapping.runs.extend([run])
        if packed_at and number % packed_at == 0 and mapping.runs.tail:
            mapping.runs.pack()

    for start in range(source[-1] + 4):
        before = [run for run in mapping.runs if run.source < start]
        assert mapping.runs.source_end_before(start) == (before[-1].source + before[-1].records if before else 0)
    for offset in range(source[-1] + 4):
        following = [to for at, to in zip(source, there, strict=True) if at >= offset]
        assert mapping.translate(offset) == (following[0] if following else there[-1] + 1)
    assert mapping.translate(source[-1] + 4) is None
    for offset in range(100, there[-1] + 1):
        following = [at for at, to in zip(source, there, strict=True) if to >= offset]
        assert mapping.back(offset) == following[0]
    assert mapping.back(there[-1] + 2) is None


def test_runs_that_go_on_are_joined() -> None:
    runs = Runs([Run(0, 0, 5), Run(5, 5, 2), Run(7, 8, 1)])
    assert list(runs) == [Run(0, 0, 7), Run(7, 8, 1)]
    with pytest.raises(ValueError, match="lies before"):
        runs.extend([Run(3, 9, 1)])


def test_blocks_are_what_they_were_made_of_and_small() -> None:
    chance = random.Random(5)
    made, source, there = [], 0, 7
    for _ in range(10_000):
        made.append(Run(source, there, chance.choice([1, 20, 21, 300])))
        source += made[-1].records + chance.choice([0, 0, 0, 1, 1000])
        there += made[-1].records + 1
    block = Block.of(made)
    assert block.runs() == made
    assert (block.source_end, block.destination_end) == (made[-1].source + made[-1].records, there - 1)
    assert block.records == sum(run.records for run in made)
    assert len(block.packed) < 2 * len(made)

    runs = Runs()
    runs.add(block)
    with pytest.raises(ValueError, match="before the end"):
        runs.add(block)


def packed(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (packed(b"no deflate"), "cannot be inflated"),
        ("no base64!", "block"),
        (packed(zlib.compress(bytes(30))[:-6]), "cut off"),
        (packed(zlib.compress(bytes(INFLATED_BYTES_MAX + 1))), "takes more than"),
        (packed(zlib.compress(b"\xff" * 100)), "too many bytes"),
        (packed(zlib.compress(b"\x01\x02")), "within a run"),
        (packed(zlib.compress(b"\x01\x02\x83")), "within a run"),
    ],
)
def test_what_is_no_block_is_refused_and_takes_no_more_than_its_limit(said: str, why: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=why):
            Block(0, 0, 1, 1, 1, said).runs()
        assert tracemalloc.get_traced_memory()[1] < 2 * INFLATED_BYTES_MAX + (1 << 20)
    finally:
        tracemalloc.stop()


def test_a_record_too_many_is_noticed() -> None:
    with pytest.raises(ValueError, match="the destination has 2 records more"):
        paired([Stretch(0, 3)], [Stretch(10, 5)])


def test_what_came_back_is_not_translated_by_the_runs_before_it() -> None:
    mapping = Mapping(runs=Runs([Run(0, 0, 10)]), origin=25, start=30, through=30)
    assert mapping.translate(4) == 4
    assert mapping.translate(20) is None
    assert mapping.translate(30) == 25
    assert mapping.end() == 25
    mapping.runs.extend([Run(30, 25, 3)])
    assert [mapping.translate(offset) for offset in (9, 10, 29, 30, 33)] == [9, None, None, 25, 28]
