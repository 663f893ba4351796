from __future__ import annotations

import random

import pytest

from ottla.storage.checkpoints.offset_checkpoint import CorruptFile
from ottla.storage.log.leader_epochs import LeaderEpochs
from ottla.testing.disk import SimulatedFileSystem

FILE = "/t-0/leader-epoch-checkpoint"


def make(*entries: tuple[int, int]) -> LeaderEpochs:
    fs = SimulatedFileSystem(random.Random(1))
    fs.makedirs("/t-0")
    fs.fsync_all()
    epochs = LeaderEpochs(fs, "/t-0")
    for epoch, start in entries:
        epochs.assign(epoch, start)
    epochs.write()
    return epochs


def test_an_assigned_epoch_survives_a_power_loss() -> None:
    epochs = make((2, 5), (4, 9))
    fs = epochs._fs
    assert isinstance(fs, SimulatedFileSystem)
    assert fs.read_bytes(FILE) == b"0\n2\n2 5\n4 9\n"
    fs.restart(power_loss=True)
    assert LeaderEpochs(fs, "/t-0").entries == ((2, 5), (4, 9))


def test_only_a_new_epoch_is_written() -> None:
    epochs = make((1, 0))
    fs = epochs._fs
    assert isinstance(fs, SimulatedFileSystem)
    before = fs.steps
    epochs.assign(1, 0)
    epochs.assign(1, 17)
    assert fs.steps == before


@pytest.mark.parametrize(
    ("new", "left"),
    [
        ((5, 20), ((1, 0), (3, 10), (5, 20))),
        ((5, 10), ((1, 0), (5, 10))),  # epoch 3 wrote nothing
        ((5, 4), ((1, 0), (5, 4))),
        ((2, 20), ((1, 0), (2, 20))),
        ((3, 8), ((1, 0), (3, 8))),
        ((0, 0), ((0, 0),)),
    ],
)
def test_entries_that_contradict_the_new_one_go(new: tuple[int, int], left: tuple[tuple[int, int], ...]) -> None:
    epochs = make((1, 0), (3, 10))
    epochs.assign(*new)
    assert epochs.entries == left


def test_negative_entries_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 0"):
        make().assign(-1, 0)


@pytest.mark.parametrize(
    ("requested", "answer"),
    [(-1, (-1, -1)), (0, (0, 5)), (2, (2, 11)), (3, (2, 11)), (4, (4, 40)), (5, (5, 99)), (6, (-1, -1))],
)
def test_where_an_epoch_ended(requested: int, answer: tuple[int, int]) -> None:
    assert make((2, 5), (4, 11), (5, 40)).end_offset_for(requested, 99) == answer


def test_an_empty_cache_knows_no_end() -> None:
    assert make().end_offset_for(0, 5) == (-1, -1)


def test_the_epoch_of_an_offset() -> None:
    epochs = make((2, 5), (4, 11))
    assert [epochs.epoch_for_offset(offset) for offset in (4, 5, 10, 11, 99)] == [None, 2, 2, 4, 4]


@pytest.mark.parametrize(
    ("end", "left"),
    [(12, ((2, 5), (4, 11))), (11, ((2, 5),)), (5, ()), (0, ()), (-1, ((2, 5), (4, 11)))],
)
def test_truncation_from_the_end(end: int, left: tuple[tuple[int, int], ...]) -> None:
    epochs = make((2, 5), (4, 11))
    epochs.truncate_from_end(end)
    assert epochs.entries == left
    if left:
        assert LeaderEpochs(epochs._fs, "/t-0").entries == left


def test_what_the_file_already_says_is_not_written_again() -> None:
    epochs = make((2, 5))
    epochs.truncate_from_end(5)
    assert epochs.entries == ()
    epochs.assign(2, 5)
    assert epochs.is_written
    epochs.assign(2, 4)
    assert not epochs.is_written


@pytest.mark.parametrize(
    ("start", "left"),
    [
        (4, ((2, 5), (4, 11))),
        (5, ((2, 5), (4, 11))),
        (7, ((2, 7), (4, 11))),
        (11, ((4, 11),)),
        (50, ((4, 50),)),
    ],
)
def test_truncation_from_the_start(start: int, left: tuple[tuple[int, int], ...]) -> None:
    epochs = make((2, 5), (4, 11))
    epochs.truncate_from_start(start)
    assert epochs.entries == left
    epochs.assign(9, 60)
    epochs.write()
    assert LeaderEpochs(epochs._fs, "/t-0").entries == (*left, (9, 60))


def test_a_file_that_is_none_is_refused_with_its_name() -> None:
    epochs = make((2, 5))
    for content in (b"1\n0\n", b"0\n1\n", b"0\n1\nx y\n", b"0\n1\n1 2 3\n", b"\xff\n"):
        epochs._fs.write_atomic(FILE, content)
        with pytest.raises(CorruptFile, match="leader-epoch-checkpoint"):
            LeaderEpochs(epochs._fs, "/t-0")
    epochs._fs.write_atomic(FILE, b"")
    assert LeaderEpochs(epochs._fs, "/t-0").entries == ()
