"""What `ottla topic explain` says, for topics that a single node cannot have yet."""

from __future__ import annotations

from ottla.cli.topic_words import Facts, words

SETTINGS = {
    "min.insync.replicas": "1",
    "unclean.leader.election.enable": "false",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
    "segment.bytes": "1073741824",
    "segment.ms": "604800000",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "86400000",
    "compression.type": "producer",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
}


def said(
    copies: int = 1, in_sync: int | None = None, leaderless: tuple[int, ...] = (), **changes: str
) -> dict[str, str]:
    settings = SETTINGS | {name.replace("_", "."): value for name, value in changes.items()}
    have = copies if in_sync is None else in_sync
    return dict(words(Facts("t", max(copies, 1), [copies] * 2, [have] * 2, leaderless, settings)))


def test_one_copy() -> None:
    text = said()
    assert "survives the loss of no broker" in text["losses"]
    assert "acks=1 and acks=all mean the same" in text["acks"]
    assert "may be lost when the machine loses power" in text["power"]
    assert "now" not in text


def test_three_copies_two_of_them_required() -> None:
    text = said(3, min_insync_replicas="2")
    assert "survives the loss of 2 brokers" in text["losses"]
    assert "go on while 1 broker at most is lost" in text["losses"]
    assert (
        "on 2 copies at least" in text["losses"] and "worst moment it survives the loss of 1 broker." in text["losses"]
    )
    assert "refused with fewer than 2 in sync" in text["acks"]
    assert "all machines with an in-sync copy" in text["power"]


def test_copies_that_are_all_required_or_not_safe() -> None:
    assert "stop as soon as one copy" in said(3, min_insync_replicas="3")["losses"]
    assert "while 2 brokers at most are lost" in said(3)["losses"]
    assert "survives the loss of no broker" in said(3)["losses"]
    assert "acknowledged records are lost" in said(3, unclean_leader_election_enable="true")["losses"]
    assert "stop as soon as one copy" in said(2, min_insync_replicas="5")["losses"], "never more than there are"


def test_power_loss_follows_the_flush_settings() -> None:
    assert "survives a power loss" in said(flush_messages="1")["power"]
    both = said(flush_messages="100", flush_ms="5000")["power"]
    assert "after 100 records (flush.messages) or after 5 seconds (flush.ms)" in both


def test_how_long_records_are_kept() -> None:
    assert "kept for 7 days (retention.ms)" in said()["kept"]
    assert "but only while its partition holds no more than 1 GiB" in said(retention_bytes="1073741824")["kept"]
    assert "for ever" in said(retention_ms="-1")["kept"]
    assert "for ever" in said(cleanup_policy="")["kept"]
    compacted = said(cleanup_policy="compact", min_compaction_lag_ms="3600000")["kept"]
    assert "for good" in compacted and "once 1 hour old" in compacted and "1 day after" in compacted
    both = said(cleanup_policy="compact,delete")["kept"]
    assert "until it expires" in both and "7 days" in both


def test_how_records_are_stored() -> None:
    assert "as the producer compressed them" in said()["records"]
    assert "stored with zstd" in said(compression_type="zstd")["records"]
    assert "LogAppendTime" in said(message_timestamp_type="LogAppendTime")["records"]


def test_what_is_wrong_now() -> None:
    assert "Copies are missing or behind in partition 0, 1." in said(3, in_sync=2)["now"]
    assert "acks=all is refused" in said(3, in_sync=1, min_insync_replicas="2")["now"]
    assert "partition 1 can neither be read nor written" in said(leaderless=(1,))["now"]
