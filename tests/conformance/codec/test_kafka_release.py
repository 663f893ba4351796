"""`make kafka-diff` and `make kafka-gap` on the jars of Kafka 4.3 and 4.4: what they find, and that Ottla's tables have
all of 4.4. A table that says something else than Kafka's own enums and ConfigDefs is found by nothing cheaper."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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
    """A type, default, check, dynamic mode, code or level that differs. What is lacking altogether is no difference."""
    found = kafka_gap.gaps(releases[1])
    otherwise = [
        (title, *gap)
        for title, rows in found.items()
        for gap in rows
        if gap[1] != "-" and not title.startswith(PENDING)
    ]
    assert otherwise == []
    assert found["Messages"] == []


PENDING = ("APIs", "Features")
"""Headings whose rows are versions and levels, which grow with the handlers."""


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
        "type INT, not LONG", "default 1073741824, not 1", "not internal", "check at least 1048576, not [2,...]",
    ]  # fmt: skip
