"""`make kafka-diff` and `make kafka-gap` on the jars of Kafka 4.3 and 4.4: what they find, and that Ottla's tables have
all of 4.4. A table that says something else than Kafka's own enums and ConfigDefs is found by nothing cheaper."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.config.tables.node import ZOOKEEPER
from peers import kafka
from tools import kafka_diff, kafka_gap
from tools.kafka_tables import Release, release


@pytest.fixture(scope="module")
def releases() -> Iterator[tuple[Release, Release]]:
    """4.3 and 4.4."""
    if not all((kafka.cache(each) / "libs").is_dir() for each in ("4.3", "4.4")):
        pytest.skip("no jars of Kafka: `make peers` fetches them")
    yield release("4.3"), release("4.4")


def test_the_program_finds_all_its_classes_in_both(releases: tuple[Release, Release]) -> None:
    for each in releases:
        assert each.missing == []
        assert len(each.of("error")) > 130
        assert {"UnderReplicatedPartitions", "MessagesInPerSec", "commit-rate"} <= {*each.metrics}
        assert len(each.settings("broker")) > 300
        assert {"broker", "topic", "group"} <= {row["kind"] for row in each.rows if row["what"] == "setting"}


def test_what_4_4_changed(releases: tuple[Release, Release]) -> None:
    """Lines that a person checked against the jars; the page has hundreds."""
    page = kafka_diff.render(*releases)
    for line in (
        "| TxnOffsetCommit (28) | 0-5 | 0-6 |  |",
        "| UnregisterController (94) | - | 0 | listeners broker, controller |",
        "  - `GenerationId` is gone",
        "  - `Topics.TopicId` is new: uuid, versions 6+, ignorable: The topic ID.",
        "| 4.4-IV0 | production false | production true |",
        "| 4.4-IV1 | - | level 32, production true, changes records true |",
        "| `DeadLetterQueueRecordCount` | - | ShareGroupMetrics |",
        "| `streams-group-topology-description-set-error-rate` | - | GroupCoordinatorMetrics |",
    ):
        assert line in page.splitlines()
    assert (
        "| `max.decompressed.message.bytes` | new: INT, default 2147483639, validator [1,...,2147483639], mode " in page
    )
    assert "| `sasl.oauthbearer.expected.issuer` | importance LOW -> HIGH | " in page


def test_a_release_beside_itself_has_no_changes(releases: tuple[Release, Release]) -> None:
    page = kafka_diff.render(releases[1], releases[1])
    assert [each for each in page.splitlines() if each.startswith(("| ", "- "))] == []


def test_nothing_that_ottla_has_is_otherwise_in_4_4(releases: tuple[Release, Release]) -> None:
    """A type, default, check, dynamic mode, code or level that differs, or a setting, message or version that is not
    there; but for what is so on purpose, all of which has to be found."""
    found = kafka_gap.gaps(releases[1])
    otherwise = {(title, name): (ours, theirs) for title, rows in found.items() for name, ours, theirs in rows}
    assert {place: gap for place, gap in otherwise.items() if gap != ON_PURPOSE.get(place)} == {}
    assert ON_PURPOSE.keys() - otherwise.keys() == set(), "they no longer differ: remove them from ON_PURPOSE"


_STICKY = "sticky, org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor"
ON_PURPOSE = {
    # Clusters in ZooKeeper have their settings of Kafka 3.9.
    **{("Settings: broker", each.name): ("a setting", "-") for each in ZOOKEEPER if not each.name.startswith("ottla.")},
    # Ottla assigns warm-up tasks (KIP-1071). Kafka 4.4's sticky assignor assigns none yet, and the settings of warm-up
    # tasks are internal there.
    **{
        ("Settings: broker", f"group.streams.{name}"): ("not internal", "")
        for name in (
            "acceptable.recovery.lag", "max.warmup.replicas", "min.task.offset.interval.ms", "num.warmup.replicas",
            "task.offset.interval.ms",
        )
    },
    **{
        ("Settings: group", f"streams.{name}"): ("not internal", "")
        for name in ("acceptable.recovery.lag", "num.warmup.replicas", "task.offset.interval.ms")
    },
    # The system sizes the buffer: a third more bytes a second in fetches of 1 MB, for three quarters of the CPU.
    ("Settings: broker", "socket.send.buffer.bytes"): ("default -1, not 102400", ""),
    # Kafka loads any class that is named; a node of Ottla loads none, and refuses the name at start.
    ("Settings: broker", "group.streams.assignors"): (f"check a non-empty list of {_STICKY}, not ", ""),
}  # fmt: skip
"""By heading and name: what Ottla has and Kafka 4.4 has otherwise, by decision."""


def test_a_difference_of_each_kind_is_found(releases: tuple[Release, Release]) -> None:
    """4.3's tables against Ottla's, which are those of 4.4."""
    found = kafka_gap.gaps(releases[0])
    assert ("max.decompressed.message.bytes", "a setting", "-") in found["Settings: broker"]
    assert any(each[0] == "ApiVersionsRequest" for each in found["Messages"])
    changed = releases[1].settings("topic")["segment.bytes"]
    own = kafka_gap.TABLES["topic"]["segment.bytes"]
    assert [*kafka_gap.setting(own, changed)] == []
    other = {**changed, "type": "LONG", "default": "1", "validator": "[2,...]", "internal": True}
    assert [*kafka_gap.setting(own, other)] == [
        "type INT, not LONG",
        "default 1073741824, not 1",
        "not internal",
        "check at least 1048576, not [2,...]",
    ]
