"""The tables of Kafka's messages are what the tool makes of Kafka's own jars."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.protocol_schemas import OWN, TABLE, rendered

LIBS = Path(__file__).resolve().parents[3] / ".cache" / "kafka-4.4" / "libs"


def test_the_tables_are_what_the_tool_writes() -> None:
    jars = sorted(LIBS.glob("kafka-*.jar"))
    if not jars:
        pytest.skip("no jars of Kafka: `make peers` fetches them")
    for path, text in rendered(jars).items():
        assert path.read_text() == text, path


def test_own_messages_are_in_the_table() -> None:
    lines = TABLE.read_text().splitlines()
    for message in OWN:
        assert any(line.startswith(f"{message['name']} {message['type']} {message['apiKey']} ") for line in lines)
