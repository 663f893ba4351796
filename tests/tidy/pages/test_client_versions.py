"""The results of the client tests are of the versions that the lock files have."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CLIENTS = ROOT / "tests" / "conformance" / "clients"


def locked() -> dict[str, str]:
    """Versions of the clients that the matrix builds."""
    go = dict(re.findall(r"^\t(\S+) v([\d.]+)$", (CLIENTS / "go" / "go.mod").read_text(), re.MULTILINE))
    node = json.loads((CLIENTS / "node" / "package-lock.json").read_text())["packages"]
    rust = re.search(r'^rskafka = "=([\d.]+)"$', (CLIENTS / "rust" / "Cargo.toml").read_text(), re.MULTILINE)
    pom = (CLIENTS / "java" / "pom.xml").read_text()
    streams = re.search(r"<artifactId>kafka-streams</artifactId><version>([\d.]+)</version>", pom)
    assert rust and streams
    return {
        "franz-go": go["github.com/twmb/franz-go"],
        "sarama": go["github.com/IBM/sarama"],
        "kafkajs": node["node_modules/kafkajs"]["version"],
        "@platformatic/kafka": node["node_modules/@platformatic/kafka"]["version"],
        "rskafka": rust[1],
        "Kafka Streams": streams[1],
    }


def test_versions_in_the_results_are_those_of_the_lock_files() -> None:
    results = json.loads((ROOT / "docs" / "reference" / "compatibility.json").read_text())["tests"]
    ran = [each for test in results.values() for each in test["clients"].items()]
    found = {name: {each["version"] for client, each in ran if client == name and each["version"]} for name in locked()}
    assert found == {name: {version} for name, version in locked().items()}, "run `make compatibility`"


def test_lock_files_name_no_place_to_fetch_from() -> None:
    text = (CLIENTS / "node" / "package-lock.json").read_text()
    assert "resolved" not in text
    assert "://" not in text
