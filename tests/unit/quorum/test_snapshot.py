from __future__ import annotations

from uuid import UUID

import pytest

from ottla.protocol.internal.codec import MalformedRecord
from ottla.protocol.internal.quorum_records import decode_quorum_state
from ottla.protocol.schemas.records import KRaftVersionRange, KRaftVersionRecord, Voter, VoterEndpoint, VotersRecord
from ottla.quorum.snapshot import (
    BATCH_RECORDS_MAX,
    SnapshotId,
    data_batch,
    parse_snapshot_name,
    read_batches,
    read_snapshot,
    write_snapshot,
)


def snapshot(count: int = 3) -> list[bytearray]:
    return list(write_snapshot([b"%d" % n for n in range(count)], epoch=2, last_timestamp=7, now=9))


def test_names_are_end_offset_and_epoch() -> None:
    name = "00000000000000000318-0000000002.checkpoint"
    assert parse_snapshot_name(name) == SnapshotId(318, 2)
    assert SnapshotId(318, 2).filename == name
    for other in ("bootstrap.checkpoint", name + ".part", name + ".deleted", "318-2.checkpoint", "quorum-state"):
        assert parse_snapshot_name(other) is None


def test_offsets_run_through_all_batches() -> None:
    count = 2 * BATCH_RECORDS_MAX + 5
    batches = list(read_snapshot(b"".join(snapshot(count))))
    assert [header.base_offset for header, _ in batches] == [0, 1, 1025, 2049, 2054]
    assert [header.leader_epoch for header, _ in batches] == [2] * 5
    assert sum(len(items) for header, items in batches if not header.is_control) == count


def test_a_snapshot_of_nothing_has_header_and_footer() -> None:
    assert len(list(read_snapshot(b"".join(snapshot(0))))) == 2


def test_voters_are_in_the_first_batch() -> None:
    voter = Voter(1, UUID(int=5))
    voter.endpoints = (VoterEndpoint("CONTROLLER", "h", 9093),)
    voter.kraft_version_feature = KRaftVersionRange(0, 1)
    voters = (KRaftVersionRecord(0, 1), VotersRecord(0, (voter,)))
    data = b"".join(write_snapshot([b"x"], epoch=2, last_timestamp=7, now=9, voters=voters))
    (_, [_, kraft, found]), (header, _), _ = list(read_snapshot(data))
    assert (kraft, found) == voters
    assert header.base_offset == 3


@pytest.mark.parametrize("missing", [0, -1])
def test_without_header_or_footer_it_is_no_snapshot(missing: int) -> None:
    batches = snapshot()
    del batches[missing]
    with pytest.raises(MalformedRecord, match="whole snapshot"):
        list(read_snapshot(b"".join(batches)))


def test_truncated_anywhere_it_is_no_snapshot() -> None:
    data = b"".join(snapshot())
    for length in range(len(data)):
        with pytest.raises(MalformedRecord):
            list(read_snapshot(data[:length]))


def test_every_flipped_byte_is_noticed() -> None:
    batch = data_batch([b"value"], 5, 1, 9)
    for position in range(17, len(batch)):  # before that lie offset, length and epoch, which the CRC does not cover
        damaged = bytearray(batch)
        damaged[position] ^= 0x55
        with pytest.raises(MalformedRecord):
            list(read_batches(damaged))


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"null", b'{"data_version":2}', b'{"data_version":0,"leaderId":1}']
)
def test_a_forgotten_vote_is_not_guessed(data: bytes) -> None:
    with pytest.raises(MalformedRecord):
        decode_quorum_state(data)
