"""Every version of every request, response and record is what Kafka's generated classes write and read."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.filesystem import OsFileSystem
from ottla.storage.segments.transaction_index import AbortedTransaction, TransactionIndex
from tests.conformance.codec.codec_subjects import NOT_SHARED
from tests.conformance.codec.codec_walk import EXEMPT, Java, Walk, all_versions
from tests.conformance.codec.message_definitions import definitions

SEED = int(os.environ.get("OTTLA_TEST_SEED", "32"))
NIGHTLY_ROUNDS = 30


@pytest.fixture(scope="module")
def java() -> Iterator[Java]:
    """Skips the tests where there is no compiler for Java."""
    jvm = Java()
    yield jvm
    jvm.close()


def walked(java: Java, seed: int) -> Walk:
    print(f"seed {seed}")
    walk = Walk(java, seed)
    walk.run(all_versions(), 1)
    assert walk.findings == [], "\n".join(map(str, walk.findings[:20]))
    assert walk.messages == len(all_versions())
    assert walk.refused > walk.frames / 4, "too few frames that Kafka refuses"
    return walk


def test_every_message_of_kafka_is_known() -> None:
    known = {definition.name for definition, _ in all_versions()}
    assert {each.name for each in definitions()} - known == NOT_SHARED
    of_apis = [each for each in definitions() if each.type in ("request", "response")]
    assert len(of_apis) > 170
    assert sum(len(each.versions) for each in of_apis) == sum(
        each.type in ("request", "response") for each, _ in all_versions()
    )


def test_every_message_is_written_and_read_as_by_kafka(java: Java) -> None:
    """Whole, truncated, extended, and with hostile lengths."""
    walked(java, SEED)


def test_transaction_indexes_hold_what_kafka_calls_aborted_transactions(java: Java, tmp_path: Path) -> None:
    """`.txnindex` is written by hand: each entry is AbortedTxn of Kafka behind its version, in both directions."""
    numbers = random.Random(SEED)
    entries = []
    for last in sorted({numbers.randrange(2, 2**63) for _ in range(20)} | {2, 2**63 - 1}):
        first, stable = numbers.randrange(last), numbers.randrange(-(2**63), 2**63)
        entries.append(AbortedTransaction(numbers.randrange(-(2**63), 2**63), first, last, stable))
    index = TransactionIndex(OsFileSystem(), str(tmp_path / "0.txnindex"))
    index.replace(entries)
    (definition,) = (each for each in definitions() if each.name == "AbortedTxn")
    assert [*definition.versions] == [0]
    lines = []
    for each in entries:
        names = ("producerId", "firstOffset", "lastOffset", "lastStableOffset")
        lines.append(f"write {definition.java_class} 0 {json.dumps(dict(zip(names, each, strict=True)))}")
    theirs = b"".join(b"\0\0" + bytes.fromhex(answer.removeprefix("ok ")) for answer in java.ask(lines))
    assert (tmp_path / "0.txnindex").read_bytes() == theirs
    (tmp_path / "1.txnindex").write_bytes(theirs)
    assert TransactionIndex(OsFileSystem(), str(tmp_path / "1.txnindex")).entries == entries


@pytest.mark.nightly("tests/conformance/codec/test_codec_walk.py::test_every_message_is_written_and_read_as_by_kafka")
def test_many_messages_are_written_and_read_as_by_kafka(java: Java) -> None:
    walks = [walked(java, SEED + 1 + number) for number in range(NIGHTLY_ROUNDS)]
    exempted = {reason for walk in walks for reason in walk.exempted}
    assert exempted == {each.reason for each in EXEMPT}, "an exemption that nothing needs"
