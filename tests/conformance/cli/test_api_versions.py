"""`ottla cluster api-versions` beside `kafka-broker-api-versions.sh` of Kafka 4.4, on Ottla and on Kafka 4.4."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from peers.kafka import KafkaPeer, cache, start_fast, tool
from tests.conformance.cli.test_cli import ottla

_ROW = re.compile(r"(\w+)\((\d+)\): (\d+)(?: to (\d+))? \[usable: (\d+)\]")
OWN_API_MIN = 20_000


def check(bootstrap: str) -> None:
    """Both commands name the same APIs, ranges and versions that are used."""
    command = "org.apache.kafka.tools.BrokerApiVersionsCommand"
    ran = tool(command, "--bootstrap-server", bootstrap, release="4.4").stdout
    kafkas = {int(key): (api, int(low), int(high or low), int(used)) for api, key, low, high, used in _ROW.findall(ran)}
    (broker,) = json.loads(ottla(bootstrap, "cluster", "api-versions", "--json"))
    ours = {each["key"]: (each["api"], each["min"], each["max"], each["used"]) for each in broker["apis"]}
    assert len(kafkas) > 60
    assert {key: row for key, row in ours.items() if key < OWN_API_MIN} == kafkas
    assert (broker["address"], broker["failure"]) == (bootstrap, None)
    lines = {" ".join(line.split()) for line in ottla(bootstrap, "cluster", "api-versions").splitlines()}
    for key, (api, low, high, used) in ours.items():
        assert f"{key} {api} {f'{low}-{high}' if low < high else low} {used}" in lines


@pytest.mark.skipif(not (cache("4.4") / "libs").is_dir(), reason="needs the jars of Apache Kafka 4.4")
class TestBesideKafka:
    def test_on_the_broker_under_test(self, bootstrap: str) -> None:
        check(bootstrap)

    def test_on_kafka(self, tmp_path: Path) -> None:
        with KafkaPeer(tmp_path, heap="384m", flags=start_fast("4.4"), release="4.4") as kafka:
            check(kafka.bootstrap)
