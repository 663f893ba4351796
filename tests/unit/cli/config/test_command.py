"""Settings in words, and where a value comes from, without a broker."""

from __future__ import annotations

import json

import pytest

from ottla.cli.config import command as configs
from ottla.cli.exits import FAILED, OK
from ottla.cli.main import main
from ottla.config import definitions
from ottla.config.explained import (
    Entry,
    Layer,
    explain_broker_setting,
    explain_layers,
    explain_topic_setting,
    meaning,
    near,
)
from ottla.protocol.messages import ApiKey
from tests.unit.cli.fake_cluster import BOOTSTRAP, FakeCluster, serve


def test_numbers_in_the_unit_of_their_name() -> None:
    assert meaning("retention.ms", "604800000") == "7 days"
    assert meaning("retention.ms", "-1") == "no limit"
    assert meaning("flush.messages", str((1 << 63) - 1)) == "no limit"
    assert meaning("segment.bytes", "1073741824") == "1 GiB"
    assert meaning("local.retention.ms", "-2") == ""
    assert meaning("num.partitions", "3") == ""
    assert meaning("cleanup.policy", "delete") == ""
    assert meaning("log.retention.ms", None) == ""


@pytest.mark.parametrize("name", definitions.TOPIC)
def test_every_topic_setting_can_be_explained(name: str) -> None:
    said = dict(explain_topic_setting(definitions.TOPIC[name]))
    assert said["what"] and said["default"] and said["allowed"]


def test_every_broker_setting_can_be_explained() -> None:
    for setting in definitions.BROKER.values():
        said = dict(explain_broker_setting(setting))
        assert said["change"] and "{" not in said["change"]


def test_a_setting_that_does_nothing_says_so() -> None:
    assert "does nothing" in dict(explain_broker_setting(definitions.BROKER["num.io.threads"]))["note"]


def test_the_place_that_decides_comes_first() -> None:
    layers = (Layer("retention.ms", "3600000", 1), Layer("log.retention.ms", "60000", 4))
    assert explain_layers(Entry("retention.ms", "3600000", 1, layers=layers)) == [
        "3600000 (1 hour), from: topic   <- decides",
        "log.retention.ms=60000 (1 minute), from: start-up settings",
    ]
    assert explain_layers(Entry("retention.ms", None, 5)) == ["(none), from: default"]
    hidden = Entry("ssl.key.password", None, 4, sensitive=True, layers=(Layer("ssl.key.password", None, 4),))
    assert explain_layers(hidden) == ["(hidden), from: start-up settings"]


def test_names_that_were_meant() -> None:
    assert near("retention.mss", definitions.TOPIC)[0] == "retention.ms"
    assert "compression.type" in near("compression", definitions.TOPIC)
    assert near("xyzzy", definitions.TOPIC) == []


def test_explaining_needs_no_broker(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "explain", "min.insync.replicas", "num.partitions", "-b", "127.0.0.1:1"]) == OK
    out = capsys.readouterr().out
    assert "a setting of a topic" in out and "a setting of a broker" in out
    assert main(["config", "explain", "num.partitions", "--json"]) == OK
    (explained,) = json.loads(capsys.readouterr().out)
    assert explained["of a broker"]["default"] == "1"
    assert main(["config", "explain", "num.partition"]) == FAILED
    assert "num.partitions" in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["--json"], ["--dry-run"], ["--dry-run", "--json"]])
def test_a_password_that_is_set_is_not_shown(
    options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor is the answer waited for: a node shows no password."""
    cluster = serve(monkeypatch, FakeCluster())
    monkeypatch.setattr(configs, "_address", lambda bootstrap, resource: BOOTSTRAP)
    name = "listener.name.external.ssl.key.password"
    row = {"name": name, "value": None, "config_source": 2, "read_only": False, "is_sensitive": True, "synonyms": []}
    told = {"results": [{"error_code": 0, "error_message": None, "configs": [row]}]}
    cluster.answers = {
        ApiKey.DESCRIBE_CONFIGS: lambda values: told,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda values: {"responses": [{"error_code": 0, "error_message": None}]},
    }
    assert main(["config", "set", f"{name}=canary-c0ffee", "--broker", "1", "-b", BOOTSTRAP, *options]) == OK
    said = capsys.readouterr()
    assert "canary" not in said.out + said.err and said.out.count("[hidden]") == 2
    assert cluster.asked.count(ApiKey.DESCRIBE_CONFIGS) == 1 + ("--dry-run" not in options)
