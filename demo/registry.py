"""A schema registry in a process of its own, by `ottla registry`, and what the demo has in it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

STOP_TIMEOUT_S = 30.0
PAGE_VIEW = {"type": "record", "name": "PageView", "fields": [
    {"name": "user", "type": "string"},
    {"name": "page", "type": "string"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
]}  # fmt: skip


class RegistryFailed(Exception):
    """It did not start."""


class Registry:
    """As a context manager; `url` is what clients call `schema.registry.url`."""

    command = ("ottla", "registry", "--listen", "127.0.0.1:0")

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.url = ""

    def __enter__(self) -> Registry:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ottla.cli.main", *self.command[1:], "--bootstrap", self._bootstrap],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        greeting = self._process.stdout.readline().rstrip()
        words = [word.rstrip(",") for word in greeting.split() if word.startswith("http://")]
        if not words:
            self._process.kill()
            raise RegistryFailed(f"the registry did not start: {greeting}{self._process.stdout.read()}")
        self.url = words[0]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.communicate(timeout=STOP_TIMEOUT_S)


def page_view_serializer(url: str, topic: str) -> Callable[[dict[str, Any]], bytes]:
    """As any producer has it: confluent-kafka's, which registers the schema."""
    write = AvroSerializer(SchemaRegistryClient({"url": url}), json.dumps(PAGE_VIEW))
    context = SerializationContext(topic, MessageField.VALUE)
    return lambda value: write({**value, "at": datetime.fromisoformat(value["at"])}, context) or b""
