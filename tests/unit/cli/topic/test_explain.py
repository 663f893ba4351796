"""What `ottla topic explain` says, setting by setting, and for topics that a single node cannot have yet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.config.topic_explained import Facts, explanation

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
    return dict(explanation(Facts("t", max(copies, 1), [copies] * 2, [have] * 2, leaderless, settings)))


def test_one_copy() -> None:
    text = said()
    assert "survives the loss of no broker" in text["losses"]
    assert "acks=1 and acks=all are the same" in text["acks"]
    assert "may be lost when the machine loses power" in text["power"]
    assert "now" not in text


def test_three_copies_two_of_them_required() -> None:
    text = said(3, min_insync_replicas="2")
    assert "readable after the loss of 2 brokers" in text["losses"]
    assert "go on while 1 broker at most is lost" in text["losses"]
    assert "on 2 copies at least" in text["losses"] and "worst case it survives the loss of 1 broker." in text["losses"]
    assert "refused with fewer than 2 in sync" in text["acks"]
    assert "all machines with an in-sync copy" in text["power"]


def test_where_the_copies_are() -> None:
    facts = Facts("t", 3, [3, 3], [3, 3], (), SETTINGS)
    assert dict(explanation(facts))["copies"] == "2 partitions with 3 copies each, on 3 brokers."
    apart, together = (dict(explanation(replace(facts, racks=racks)))["copies"] for racks in ([3, 2], [2, 1]))
    assert "in at least 2 racks (broker.rack): the loss of one is survived" in apart
    assert "may be in one rack" in together


def test_what_it_prefers_when_all_in_sync_copies_are_gone() -> None:
    assert "waits for one to return rather than lose" in said(3)["outage"]
    assert "may continue alone" in said(3)["outage"]
    assert "refuse acks=all as soon as fewer than 2 are in sync" in said(3, min_insync_replicas="2")["outage"]
    assert "prefers availability" in said(3, unclean_leader_election_enable="true")["outage"]
    assert "waits for" not in said(3, unclean_leader_election_enable="true")["outage"]
    assert "outage" not in said()


def test_copies_that_are_all_required_or_not_safe() -> None:
    assert "stop as soon as one copy" in said(3, min_insync_replicas="3")["losses"]
    assert "while 2 brokers at most are lost" in said(3)["losses"]
    assert "survives the loss of no broker" in said(3)["losses"]
    assert "acknowledged records are lost" in said(3, unclean_leader_election_enable="true")["losses"]
    assert "stop as soon as one copy" in said(2, min_insync_replicas="5")["losses"], "never more than there are"


FOR_EVER = str((1 << 63) - 1)

SAID = [
    # a setting, under which heading, what is said because of it, what is not said any more
    ({}, "kept", "kept for 7 days (retention.ms)", "but only"),
    ({}, "kept", "Age is counted from the producer's timestamp.", "remote"),
    ({"message.timestamp.type": "LogAppendTime"}, "kept", "kept for 7 days", "producer's"),
    ({"retention.ms": "-1"}, "kept", "kept for ever: retention.ms and retention.bytes set no limit", "7 days"),
    ({"retention.bytes": "1073741824"}, "kept", "7 days (retention.ms), but only while its partition holds no more "
     "than 1 GiB (retention.bytes)", "for ever"),
    ({"retention.ms": "-1", "retention.bytes": "1000"}, "kept", "kept while its partition holds no more than 1000 B",
     "producer's"),
    ({"segment.bytes": "1048576", "segment.ms": "3600000"}, "kept", "spans up to 1 MiB or 1 hour.", "GiB"),
    ({"cleanup.policy": ""}, "kept", "kept for ever: cleanup.policy is empty", "7 days"),
    ({"cleanup.policy": "compact"}, "kept", "the newest of each key is kept for good", "retention"),
    ({"cleanup.policy": "compact"}, "kept", "may be compacted away at any time. ", "expires"),
    ({"cleanup.policy": "compact"}, "kept", "is kept 1 day for", "due for it"),
    ({"cleanup.policy": "compact", "min.compaction.lag.ms": "3600000"}, "kept", "once 1 hour old.", "any time"),
    ({"cleanup.policy": "compact", "max.compaction.lag.ms": "86400000"}, "kept",
     "at any time, and are due for it when 1 day old.", "for ever"),
    ({"cleanup.policy": "compact,delete"}, "kept", "kept until it expires", "for good"),
    ({"cleanup.policy": "delete, compact"}, "kept", "kept for 7 days", "for good"),
    ({"remote.storage.enable": "true"}, "kept", "copied to remote storage, if configured (remote.storage.enable); "
     "the brokers' local copies are deleted when the records do.", "local.retention"),
    ({"remote.storage.enable": "true", "local.retention.ms": "3600000"}, "kept", "are deleted after 1 hour "
     "(local.retention.ms).", "when the records do"),
    ({"remote.storage.enable": "true", "local.retention.bytes": "1024", "remote.log.copy.disable": "true"}, "kept",
     "No more segments are copied", "Closed segments are copied"),
    ({"compression.type": "zstd"}, "records", "stored with zstd;", "producer compressed"),
    ({"compression.type": "uncompressed"}, "records", "stored uncompressed;", "with uncompressed"),
    ({}, "records", "as the producer compressed them; batches up to 1 MiB are accepted", "zstd"),
    ({"max.message.bytes": "500"}, "records", "up to 500 B", "MiB"),
    ({}, "records", "a batch with one more than 1 hour ahead of the broker's clock is refused", "behind"),
    ({"message.timestamp.before.max.ms": "1000"}, "records", "or more than 1 second behind the broker's clock", "zstd"),
    ({"message.timestamp.after.max.ms": FOR_EVER}, "records", "producers' (CreateTime). Order", "refused"),
    ({"message.timestamp.type": "LogAppendTime"}, "records", "the broker's at the append (LogAppendTime).", "refused"),
    ({}, "power", "may be lost when the machine loses power. With flush.messages=1", "fsynced after"),
    ({"flush.messages": "1"}, "power", "survives a power loss", "may be lost"),
    ({"flush.messages": "100"}, "power", "100 records (flush.messages): records appended since then", "scheduler"),
    ({"flush.ms": "5000"}, "power", "after 5 seconds (flush.ms)", "records (flush.messages)"),
    ({"flush.ms": "5000"}, "power", "only if log.flush.scheduler.interval.ms is set", "operating system"),
    ({"flush.ms": "5000", "flush.messages": "9"}, "power", "after 9 records (flush.messages) or after 5 seconds",
     "operating system"),
    ({"min.insync.replicas": "3"}, "acks", "acks=1 and acks=all are the same here", "refused"),
    ({"unclean.leader.election.enable": "true"}, "losses", "survives the loss of no broker", "unclean"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "heading", "text", "absent"), SAID)
def test_what_each_setting_says_of_one_copy(settings: dict[str, str], heading: str, text: str, absent: str) -> None:
    found = said(**settings)[heading]
    assert text in found and absent not in found


@pytest.mark.parametrize(
    ("copies", "required", "survives", "writes", "worst"),
    [
        (
            2,
            1,
            "readable after the loss of 1 broker.",
            "go on while 1 broker at most is lost",
            "the loss of no broker.",
        ),
        (2, 2, "readable after the loss of 1 broker.", "stop as soon as one copy", "the loss of 1 broker."),
        (2, 5, "readable after the loss of 1 broker.", "stop as soon as one copy", "the loss of 1 broker."),
        (3, 1, "readable after the loss of 2 brokers.", "while 2 brokers at most are lost", "the loss of no broker."),
        (
            3,
            2,
            "readable after the loss of 2 brokers.",
            "go on while 1 broker at most is lost",
            "the loss of 1 broker.",
        ),
        (3, 3, "readable after the loss of 2 brokers.", "stop as soon as one copy", "the loss of 2 brokers."),
        (5, 3, "readable after the loss of 4 brokers.", "while 2 brokers at most are lost", "the loss of 2 brokers."),
    ],
)
def test_losses_that_copies_survive(copies: int, required: int, survives: str, writes: str, worst: str) -> None:
    text = said(copies, min_insync_replicas=str(required))
    assert survives in text["losses"] and writes in text["losses"] and text["losses"].endswith(worst)
    assert f"fewer than {min(required, copies)} in sync" in text["acks"]


def test_settings_that_the_broker_does_not_tell_are_kafkas_defaults() -> None:
    untold = dict(explanation(Facts("t", 1, [1], [1], [], {})))
    assert untold == {**said(), "copies": "1 partition with 1 copy each, on 1 broker."}


def test_partitions_with_different_numbers_of_copies() -> None:
    text = dict(explanation(Facts("t", 3, [3, 2], [3, 2], [], SETTINGS)))
    assert "2 partitions with 2 to 3 copies each" in text["copies"] and "the loss of 1 broker" in text["losses"]


def test_what_is_wrong_now() -> None:
    assert "Copies are missing or behind in partition 0, 1." in said(3, in_sync=2)["now"]
    assert "acks=all is refused" in said(3, in_sync=1, min_insync_replicas="2")["now"]
    assert "partition 1 can neither be read nor written" in said(leaderless=(1,))["now"]
