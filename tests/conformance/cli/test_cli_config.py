"""`ottla config ...` end to end: values, where they come from, changes and their refusal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.cli.test_cli import ottla


def settings(bootstrap: str, *arguments: str) -> dict[str, dict[str, Any]]:
    answer = json.loads(ottla(bootstrap, "config", "get", "--json", *arguments))
    return {each["name"]: each for each in answer["settings"]}


def test_a_topics_settings(bootstrap: str, topic: str) -> None:
    ottla(bootstrap, "topic", "create", topic, "--set", "retention.ms=3600000")
    assert settings(bootstrap, "--topic", topic)["retention.ms"]["source"] == "topic"
    assert "segment.bytes" not in settings(bootstrap, "--topic", topic)
    assert len(settings(bootstrap, "--topic", topic, "--defaults")) > 20
    assert set(settings(bootstrap, "--topic", topic, "retention.*")) == {"retention.ms", "retention.bytes"}
    text = ottla(bootstrap, "config", "get", "--topic", topic)
    assert "1 hour" in text and "--defaults" in text

    change = ("--topic", topic, "--json")
    wanted = ("segment.ms=60000", "retention.ms=7200000")
    tried = json.loads(ottla(bootstrap, "config", "set", *wanted, *change, "--dry-run"))
    assert tried["dry_run"] and tried["settings"][1] == {
        "name": "retention.ms",
        "old_value": "3600000",
        "new_value": "7200000",
    }
    assert settings(bootstrap, "--topic", topic)["retention.ms"]["value"] == "3600000"
    done = json.loads(ottla(bootstrap, "config", "set", *wanted, *change))
    assert {each["name"]: each["new_value"] for each in done["settings"]} == {
        "segment.ms": "60000",
        "retention.ms": "7200000",
    }
    ottla(bootstrap, "config", "unset", "segment.ms", "retention.ms", "--topic", topic)
    assert settings(bootstrap, "--topic", topic).get("retention.ms", {}).get("source") != "topic"


@pytest.fixture
def threads(bootstrap: str) -> Iterator[str]:
    """A harmless setting of brokers, unset again."""
    name = "log.cleaner.threads"
    yield name
    ottla(bootstrap, "config", "unset", name, "--broker", "1")
    ottla(bootstrap, "config", "unset", name, "--all-brokers")


def test_where_a_brokers_value_comes_from(bootstrap: str, threads: str) -> None:
    ottla(bootstrap, "config", "set", f"{threads}=2", "--all-brokers")
    ottla(bootstrap, "config", "set", f"{threads}=3", "--broker", "1")
    found = settings(bootstrap, threads)[threads]
    assert (found["value"], found["source"]) == ("3", "broker, while running")
    assert [(each["value"], each["source"]) for each in found["layers"]] == [
        ("3", "broker, while running"),
        ("2", "all brokers, while running"),
        ("1", "default"),
    ]
    text = ottla(bootstrap, "config", "explain", threads, "--broker", "1")
    assert "<- decides" in text and "2, from: all brokers" in text
    assert settings(bootstrap, "--all-brokers")[threads]["value"] == "2"
    assert settings(bootstrap)[threads]["value"] == "3"


def test_where_a_topics_value_comes_from(bootstrap: str, topic: str) -> None:
    ottla(bootstrap, "topic", "create", topic, "--set", "max.message.bytes=2000000")
    (explained,) = json.loads(ottla(bootstrap, "config", "explain", "max.message.bytes", "--topic", topic, "--json"))
    assert explained["value"]["value"] == "2000000"
    assert [each["name"] for each in explained["value"]["layers"]] == ["max.message.bytes", "message.max.bytes"]


def test_what_is_refused(bootstrap: str, topic: str) -> None:
    ottla(bootstrap, "topic", "create", topic)
    of_topic = ("--topic", topic)
    assert "did you mean: retention.ms" in ottla(bootstrap, "config", "set", "retention.mss=1", *of_topic, code=1)
    assert "INVALID_CONFIG" in ottla(bootstrap, "config", "set", "retention.ms=soon", *of_topic, code=1)
    assert "a setting of brokers" in ottla(bootstrap, "config", "get", "log.retention.ms", *of_topic, code=1)
    assert "ottla topic list" in ottla(bootstrap, "config", "get", "--topic", "no-such-topic", code=1)
    assert "there are: 1" in ottla(bootstrap, "config", "get", "--broker", "9", code=1)
    assert "log.dirs" in ottla(bootstrap, "config", "set", "log.dirs=/x", "--broker", "1", code=1)
    assert "give --topic NAME" in ottla(bootstrap, "config", "set", "retention.ms=1", code=2)
    assert "cannot be used together" in ottla(bootstrap, "config", "get", "--broker", "1", *of_topic, code=2)
    assert "name=value" in ottla(bootstrap, "config", "set", "retention.ms", *of_topic, code=2)
