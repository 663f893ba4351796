"""`docs/compatibility.md` names the versions of clients that the lock files have."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
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
        "franz-go (Go)": go["github.com/twmb/franz-go"],
        "sarama (Go)": go["github.com/IBM/sarama"],
        "kafkajs (Node)": node["node_modules/kafkajs"]["version"],
        "@platformatic/kafka (Node)": node["node_modules/@platformatic/kafka"]["version"],
        "rskafka (Rust)": rust[1],
        "Kafka Streams (Java)": streams[1],
    }


def test_versions_in_the_table_are_those_of_the_lock_files() -> None:
    table = (ROOT / "docs" / "compatibility.md").read_text()
    rows = dict(re.findall(r"^\| ([^|]+) \| ([\d.]+) \|", table, re.MULTILINE))
    assert {name: rows.get(name) for name in locked()} == locked()


def test_lock_files_name_no_place_to_fetch_from() -> None:
    text = (CLIENTS / "node" / "package-lock.json").read_text()
    assert "resolved" not in text
    assert "://" not in text
