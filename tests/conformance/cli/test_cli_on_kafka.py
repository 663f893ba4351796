"""The same commands on Ottla and on Apache Kafka print the same, but for what belongs to one broker."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import time
from typing import Any
from unittest import mock

from ottla.cli.main import main
from tests.conformance.cli.test_cli import ottla

SCRIPT: list[tuple[str, str]] = [
    # arguments, standard input
    ("topic create TOPIC TOPIC-2 -p 3 --set retention.ms=3600000000000 --set cleanup.policy=delete", ""),
    ("topic create TOPIC", ""),
    ("topic create bad/name", ""),
    ("topic create TOPIC-3 -r 3", ""),
    ("topic create TOPIC-3 --set segment.ms=soon", ""),
    ("topic create TOPIC-3 --dry-run", ""),
    ("topic alter TOPIC-2 -p 2", ""),
    ("topic alter TOPIC-2 -p 4 --set segment.ms=60000 --unset retention.ms", ""),
    ("produce TOPIC --format json", '{"key": "k", "value": "v", "partition": 1, "timestamp": 1700000000000}\n' * 3),
    ("produce TOPIC -p 0 -K : -H a=b", "k:v\nk:v\n"),
    ("produce TOPIC -p 7 x", ""),
    ("consume TOPIC --json", ""),
    ("consume TOPIC -p 1 --format hex --from 1", ""),
    ("consume TOPIC -p 1 --from 2023-11-14T22:13:20+00:00 --to -1", ""),
    ("consume TOPIC --from 2023-11-14T22:13:21+00:00 --format {partition}:{offset}", ""),
    ("consume no-such-topic", ""),
    ("consume TOPIC -p 9", ""),
    ("topic describe TOPIC", ""),
    ("topic describe TOPIC TOPIC-2 --json", ""),
    ("topic describe TOPIC TOPIC-2 --at-min-isr", ""),
    ("topic describe TOPIC --under-replicated", ""),
    ("topic describe TOPIC --offline --json", ""),
    ("topic describe TOPIC --under-min-isr", ""),
    ("topic describe no-such-topic --offline", ""),
    ("topic elect TOPIC", ""),
    ("topic elect TOPIC -p 1 -p 2 --json", ""),
    ("topic elect TOPIC --unclean", ""),
    ("topic elect TOPIC --partition 9", ""),
    ("topic elect no-such-topic", ""),
    ("topic explain TOPIC", ""),
    ("topic explain no-such-topic", ""),
    ("consume TOPIC -p 0 --group GROUP", ""),
    ("consume TOPIC --group GROUP --count 5 --format {value}", ""),
    ("consume TOPIC --group GROUP", ""),
    ("group describe GROUP", ""),
    ("group reset GROUP --to 1 --topic TOPIC:1 --dry-run", ""),
    ("group reset GROUP --to 1 --topic TOPIC:1", ""),
    ("group reset GROUP --to -1 --json", ""),
    ("group describe GROUP --json", ""),
    ("group delete GROUP --topic TOPIC:0", ""),
    ("group delete GROUP --topic TOPIC:0", ""),
    ("group describe GROUP", ""),
    ("config set consumer.session.timeout.ms=50000 --group GROUP", ""),
    ("config get --group GROUP", ""),
    ("config set consumer.session.timeout.ms=5 --group GROUP", ""),
    ("config unset consumer.session.timeout.ms --group GROUP", ""),
    ("config get retention.* --topic TOPIC --json", ""),
    ("config set max.message.bytes=1000 --topic TOPIC", ""),
    ("config set max.message.bytes=-7 --topic TOPIC", ""),
    ("config set cleanup.policy=compact min.compaction.lag.ms=5 --topic TOPIC --dry-run", ""),
    ("config get --topic no-such-topic", ""),
    ("produce TOPIC -p 0", f"short\n{'x' * 2000}\nshort\n"),
    ("config unset max.message.bytes --topic TOPIC", ""),
    ("group delete GROUP", ""),
    ("group delete GROUP", ""),
    ("group describe GROUP", ""),
    ("topic delete TOPIC TOPIC-2 no-such-topic", ""),
]

DIFFERENT: dict[str, tuple[str, str]] = {
    # Five settings are Ottla's own (ottla.share.*). Three of warm-up tasks are internal in Kafka, whose assignor
    # assigns none: streams.acceptable.recovery.lag, streams.num.warmup.replicas and streams.task.offset.interval.ms.
    "config get --group GROUP": ("28 settings at the default", "20 settings at the default"),
}
"""What is printed otherwise on purpose, by command: what it is on Ottla, and what on Kafka."""


class Ran:
    """A command's exit code and all that it printed."""

    def __init__(self, bootstrap: str, typed: str, text: str, names: dict[str, str]) -> None:
        for word, name in names.items():
            typed = typed.replace(word, name)
        out, error = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        with (
            mock.patch.dict(os.environ, OTTLA_BOOTSTRAP=bootstrap),
            mock.patch.multiple(sys, stdin=io.TextIOWrapper(io.BytesIO(text.encode())), stdout=out, stderr=error),
        ):
            self.code = main(typed.split(" "))
        self.out, self.complaints = (
            comparable(stream.buffer.getvalue().decode(), bootstrap)  # type: ignore[attr-defined]
            for stream in (out, error)
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ran) and vars(self) == vars(other)

    def __repr__(self) -> str:
        return f"exit code {self.code}\n{self.out}{self.complaints}"


def comparable(text: str, bootstrap: str) -> str:
    """Without the address, ids, and what the clock says."""
    text = text.replace(bootstrap, "BROKER")
    text = re.sub(r'"topic_id": "[^"]+"|id [\w-]{22}', "id", text)
    text = re.sub(r'"timestamp": 1(7[1-9]|[89]\d)\d{10}', "now", text)
    text = re.sub(r"\b(\d+[hmd] )?\d+(\.\d)?s\b|\"lag_seconds\": [\d.]+", "a time", text)
    return re.sub(r"  +", "  ", text)


def test_the_same_commands_print_the_same(bootstrap: str, oracle: str) -> None:
    unique = f"both-{os.getpid()}-{time.time_ns() % 10**9}"
    names = {"TOPIC": unique, "GROUP": f"{unique}-group"}
    differences = []
    used = set()
    for typed, text in SCRIPT:
        ours, theirs = (Ran(address, typed, text, names) for address in (bootstrap, oracle))
        if typed in DIFFERENT and ours != theirs:
            on_ottla, on_kafka = DIFFERENT[typed]
            assert on_ottla in ours.out and on_kafka in theirs.out, (ours, theirs)
            theirs.out = theirs.out.replace(on_kafka, on_ottla)
            used.add(typed)
        if ours != theirs:
            differences.append(f"ottla {typed}\n--- Ottla: {ours!r}\n--- Kafka: {theirs!r}")
        assert "internal error" not in ours.complaints
    assert not differences, "\n\n".join(differences)
    if "OTTLA_TEST_BOOTSTRAP" not in os.environ:  # which may be of a Kafka
        assert used == DIFFERENT.keys(), "they are printed alike: remove them from DIFFERENT"


def test_descriptions_have_the_same_shape(bootstrap: str, oracle: str) -> None:
    for command in (("cluster", "describe"), ("config", "get", "--defaults"), ("group", "list"), ("topic", "list")):
        ours, theirs = (json.loads(ottla(address, *command, "--json")) for address in (bootstrap, oracle))
        assert shape(ours) == shape(theirs), command


def shape(value: Any) -> Any:
    """Names and types; of a list that of its first item, if it has any."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items() if name not in ("features", "controller", "value")}
    if isinstance(value, list):
        return [shape(value[0])] if value and "broker" in str(value[0]) else "a list"
    return "a value"
