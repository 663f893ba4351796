"""What `ottla topic elect` prints about each partition, without a broker."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import KafkaError, KafkaException

from ottla.cli.exits import FAILED, MISUSED, OK, CommandFailed
from ottla.cli.topic import elect as topic_elect
from ottla.cli.topic.partition_health import PartitionHealth

FOUND = [
    PartitionHealth("t", 0, 2, (1, 2), (1, 2), 1),
    PartitionHealth("t", 1, 2, (2, 1), (1, 2), 1),
    PartitionHealth("t", 2, 2, (3, 2), (2,), 1),
]
NOT_NEEDED = KafkaException(KafkaError(84))
NOT_AVAILABLE = KafkaException(KafkaError(80))


def elected(monkeypatch: pytest.MonkeyPatch, answer: dict[int, KafkaException | None], **options: object) -> int:
    monkeypatch.setattr(topic_elect, "partitions", lambda bootstrap, topics: FOUND)
    monkeypatch.setattr(
        topic_elect, "_ask", lambda bootstrap, keys, unclean: {("t", number): each for number, each in answer.items()}
    )
    return topic_elect.elect("t", **options)  # type: ignore[arg-type]


def test_one_now_and_one_already(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert elected(monkeypatch, {0: None, 1: NOT_NEEDED}) == OK
    assert capsys.readouterr().out == "t partition 0: broker 1 leads now\nt partition 1: broker 2 leads already\n" + (
        "1 leader elected\n"
    )


def test_one_that_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(
        CommandFailed, match=r"(?s)'t' partition 2: .*PREFERRED_LEADER_NOT_AVAILABLE.*not in sync"
    ) as it:
        elected(monkeypatch, {0: None, 2: NOT_AVAILABLE}, json=True)
    assert it.value.exit_code == FAILED
    rows = json.loads(capsys.readouterr().out)
    assert [(each["leader"], each["elected"], each["error"]) for each in rows] == [
        (1, True, None),
        (2, False, "PREFERRED_LEADER_NOT_AVAILABLE"),
    ]


def test_none_needs_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert elected(monkeypatch, {}) == OK
    assert capsys.readouterr().out == "every partition already has its preferred leader\n"


def test_an_unclean_one_is_led_by_whom_the_brokers_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert elected(monkeypatch, {2: None}, unclean=True) == OK
    assert "t partition 2: broker 2 leads now" in capsys.readouterr().out


@pytest.mark.parametrize("options", [{"unclean": True}, {"partition": [0]}])
def test_without_a_topic(options: dict[str, object]) -> None:
    with pytest.raises(CommandFailed, match="needs a TOPIC") as it:
        topic_elect.elect(**options)  # type: ignore[arg-type]
    assert it.value.exit_code == MISUSED


def test_a_partition_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CommandFailed, match="there is no partition 9"):
        elected(monkeypatch, {}, partition=[0, 9])
