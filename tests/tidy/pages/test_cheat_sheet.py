"""docs/kafka/commands.md: every `ottla` command on it is one, with its options, and every script of Kafka is on it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from ottla.cli.app import application

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "kafka" / "commands.md").read_text(encoding="utf-8")
SCRIPTS = """acls broker-api-versions client-metrics cluster configs console-consumer console-producer
console-share-consumer consumer-groups consumer-perf-test delegation-tokens delete-records dump-log e2e-latency features
get-offsets groups jmx leader-election log-dirs metadata-quorum metadata-shell producer-perf-test reassign-partitions
replica-verification server-start server-stop share-groups storage streams-application-reset streams-groups topics
transactions verifiable-consumer verifiable-producer"""
"""Scripts in `bin` of Apache Kafka 4.3, without those that start classes, Connect or Trogdor."""
NO_COUNTERPART = ("no command", "to come", "there is no command", "the scripts work", "Kafka Connect works")
COMMANDS_MIN = 80


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.splitlines() if line.startswith("| ") and "---" not in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def commands() -> list[str]:
    return sorted({each for row in rows() for each in re.findall(r"`(ottla [^`]+)`", row[-1])})


@pytest.mark.parametrize("command", commands())
def test_each_command_is_understood(command: str) -> None:
    application().parse_args(shlex.split(command)[1:], exit_on_error=False, print_error=False)


def test_a_command_that_does_not_exist_would_be_found() -> None:
    for wrong in ("topic creates orders", "topic create orders --partition-count 3", "produce orders --acks 2"):
        with pytest.raises(Exception, match=r"."):
            application().parse_args(shlex.split(wrong), exit_on_error=False, print_error=False)


def test_every_row_says_what_to_type() -> None:
    found = rows()
    assert all(len(row) == 2 for row in found)
    assert len(commands()) >= COMMANDS_MIN
    heads = ("Ottla",)
    assert [
        row
        for row in found
        if row[1] not in heads
        and "`ottla " not in row[1]
        and not any(each in row[1] for each in NO_COUNTERPART)
        and "SIGTERM" not in row[1]
    ] == []


@pytest.mark.parametrize("name", SCRIPTS.split())
def test_every_script_of_kafka_is_on_the_page(name: str) -> None:
    assert f"kafka-{name}.sh" in PAGE
