"""`ottla storage format --release-version --feature` beside Kafka's `kafka-storage format -r -f`: the same records, the
same refusals. What no cheaper test finds: a rule of Kafka's that this software does not know.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.main import main
from ottla.metadata.features import METADATA_VERSIONS
from ottla.protocol.internal.metadata_records import decode_record
from ottla.protocol.schemas.records import KRaftVersionRecord
from ottla.quorum.snapshot import read_snapshot
from tests.conformance.shell import Shell

pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="no Java here to run Apache Kafka with")

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
STATIC = "controller.quorum.voters=1@localhost:9093"
DYNAMIC = "controller.quorum.bootstrap.servers=localhost:9093"
USER = "SCRAM-SHA-256=[name=a,password=b]"
OTHER = "2@localhost:1:AAAAAAAAAAAAAAAAAAAAAQ"

ELR, GROUP, SHARE, STREAMS, TRANSACTION = (
    f"{name}.version" for name in ("eligible.leader.replicas", "group", "share", "streams", "transaction")
)


def features(*levels: str) -> list[str]:
    return [word for level in levels for word in ("-f", level)]


ACCEPTED: list[list[str]] = [
    [],
    *(["-r", each.name] for each in METADATA_VERSIONS),
    *(["-r", release] for release in ("3.3", "3.5", "4.0", "4.3", "4.3.0", "4.3.9.1", "4.3-IV0.7", "4.4")),
    *(features(f"metadata.version={each.level}") for each in METADATA_VERSIONS),
    ["-r", "3.3-IV3", *features(f"{SHARE}=2", f"{GROUP}=1", f"{STREAMS}=1", f"{TRANSACTION}=2")],
    ["-r", "4.3", *features(f"{SHARE}=2")],
    ["-r", "4.0-IV1", *features(f"{ELR}=1")],
    features(f"{ELR}=0", f"{GROUP}=0", f"{SHARE}=0", f"{STREAMS}=0", f"{TRANSACTION}=0"),
    features(f"{TRANSACTION}=1"),
    features(f" {SHARE} = 1 "),
    features(f"{SHARE}=01"),
    features("kraft.version=0"),
    ["-r", "3.5-IV2", "--add-scram", USER],
]
"""Options that both take for a node with controller.quorum.voters."""

ACCEPTED_DYNAMIC = [
    ["--standalone"],
    ["--standalone", "-r", "3.8"],
    ["--standalone", "-r", "3.8", *features("kraft.version=1")],
    ["--initial-controllers", OTHER, "-r", "4.3"],
]
NOT_VOTING = [
    ["--no-initial-controllers", "-r", "3.3"],
    ["--no-initial-controllers", *features("kraft.version=1")],
]
"""Here Kafka's checkpoint says that voters can change, and names none; Ottla is told by the controllers it joins."""

REFUSED: list[tuple[list[str], str]] = [
    (["-r", "9.9"], "'9.9' is no release from 3.3-IV3 to 4.4-IV2"),
    (["-r", "4.5-IV0"], "'4.5-IV0' is no release"),
    (["-r", "3.2"], "'3.2' is no release"),
    (["-r", "4"], "'4' is no release"),
    (["-r", ""], "'' is no release"),
    (["-r", "4.3x"], "'4.3x' is no release"),
    (["-r", "04.3"], "'04.3' is no release"),
    (["-r", "9.9", *features("nope=1")], "'9.9' is no release"),
    (["-r", "4.3", *features("metadata.version=30")], "either --release-version or --feature metadata.version"),
    (features("metadata.version=6"), "metadata.version can be 7 (3.3-IV3) to 33 (4.4-IV2), not 6"),
    (features("metadata.version=34"), "metadata.version 34 is 4.5-IV0, which is not for production yet"),
    (features("metadata.version=99"), "can be 7 (3.3-IV3) to 33 (4.4-IV2), not 99"),
    (features(f"{SHARE}=3"), "share.version can be 0 to 2, not 3"),
    (features(f"{TRANSACTION}=3"), "transaction.version can be 0 to 2, not 3"),
    (features(f"{SHARE}=-1"), "the level of share.version is a number, not '-1'"),
    (features(f"{SHARE}=99999"), "the level of share.version is a number"),
    (features(f"{SHARE}=x"), "the level of share.version is a number, not 'x'"),
    (features(f"{SHARE}="), "the level of share.version is a number, not ''"),
    (features(SHARE), "--feature is NAME=LEVEL"),
    (features(""), "--feature is NAME=LEVEL"),
    (features("=1"), "--feature is NAME=LEVEL"),
    (features("a=b=c"), "the level of a is a number"),
    (features("nope.version=1", f"{SHARE}=9"), "there is no feature 'nope.version'; there are eligible.leader"),
    (features("test.feature.version=1"), "there is no feature 'test.feature.version'"),
    (["-r", "4.0-IV0", *features(f"{ELR}=1")], f"{ELR} cannot be 1: it needs metadata.version 23 (4.0-IV1)"),
    (features("kraft.version=1"), "kraft.version can be 1 only with --standalone"),
    (features("kraft.version=2"), "kraft.version can be 2 only with --standalone"),
    (features("kraft.version=1", f"{SHARE}=9"), "kraft.version can be 1 only with --standalone"),
    (["-r", "3.5-IV1", "--add-scram", USER], "--add-scram needs metadata.version 3.5-IV2 or later"),
    (["-r", "3.5-IV1", "--add-scram", USER, *features(f"{SHARE}=9")], "share.version can be 0 to 2, not 9"),
    (["--standalone"], "controller.quorum.voters fixes the voters"),
    (["--initial-controllers", OTHER], "controller.quorum.voters fixes the voters"),
    (["--no-initial-controllers", *features("kraft.version=1")], "and without controller.quorum.voters"),
]
REFUSED_DYNAMIC = [
    (["--standalone", *features("kraft.version=0")], "kraft.version cannot be 0 with --standalone"),
    (["--no-initial-controllers", *features("kraft.version=0")], "kraft.version cannot be 0"),
    (["--standalone", *features("kraft.version=2")], "kraft.version can be 0 to 1, not 2"),
    (["--standalone", "--no-initial-controllers"], "cannot be used together"),
]


def settings(directory: Path, quorum: str) -> Path:
    path = directory / "server.properties"
    lines = [
        "process.roles=broker,controller",
        "node.id=1",
        quorum,
        "controller.listener.names=CONTROLLER",
        "listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        f"log.dirs={directory / 'data'}",
    ]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def written(data: Path) -> dict[str, Any]:
    """The records of the checkpoints: levels in their order, names of users, and kraft.version."""
    found: dict[str, Any] = {"levels": [], "users": [], "kraft.version": 0}
    for path in sorted([*data.glob("*.checkpoint"), *data.glob("*/*.checkpoint")]):
        for header, items in read_snapshot(path.read_bytes()):
            for item in items:
                if header.is_control:
                    if isinstance(item, KRaftVersionRecord):
                        found["kraft.version"] = item.kraft_version
                    continue
                record, version = decode_record(item)
                if hasattr(record, "feature_level"):
                    found["levels"].append((record.name, record.feature_level, version))
                else:
                    found["users"].append(record.name)
    return found


class Pair:
    """Formats one directory by either tool."""

    def __init__(self, shell: Shell, directory: Path) -> None:
        self.shell, self.directory = shell, directory

    def _fresh(self, name: str, quorum: str) -> Path:
        directory = self.directory / name
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        return settings(directory, quorum)

    def kafka(self, quorum: str, options: Iterable[str]) -> tuple[int, dict[str, Any]]:
        path = self._fresh("kafka", quorum)
        arguments = ["format", "-t", CLUSTER_ID, "-c", str(path), *options]
        done = self.shell.run("kafka.tools.StorageTool", *arguments, check=False)
        data = self.directory / "kafka" / "data"
        assert (done.status == 0) == data.exists(), (options, done)
        return done.status, written(data)

    def ottla(self, quorum: str, options: Iterable[str]) -> tuple[int, dict[str, Any]]:
        path = self._fresh("ottla", quorum)
        status = main(["storage", "format", "--config", str(path), "--cluster-id", CLUSTER_ID, *options])
        data = self.directory / "ottla" / "data"
        assert (status == 0) == data.exists(), options
        return status, written(data)


@pytest.fixture
def pair(shell: Shell, tmp_path: Path) -> Pair:
    return Pair(shell, tmp_path)


def test_the_same_levels_are_written(pair: Pair) -> None:
    for quorum, options in [
        *((STATIC, each) for each in ACCEPTED),
        *((DYNAMIC, each) for each in ACCEPTED_DYNAMIC),
    ]:
        kafka = pair.kafka(quorum, options)
        assert kafka[0] == 0 and kafka[1]["levels"], options
        assert pair.ottla(quorum, options) == kafka, options
    for options in NOT_VOTING:
        (_, kafka_wrote), (status, ottla_wrote) = pair.kafka(DYNAMIC, options), pair.ottla(DYNAMIC, options)
        assert (status, ottla_wrote) == (0, {**kafka_wrote, "kraft.version": 0}), options


def test_the_same_is_refused_and_nothing_is_written(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    for quorum, options, words in [
        *((STATIC, *each) for each in REFUSED),
        *((DYNAMIC, *each) for each in REFUSED_DYNAMIC),
    ]:
        assert pair.kafka(quorum, options)[0] != 0, options
        capsys.readouterr()
        assert pair.ottla(quorum, options)[0] != 0, options
        told = capsys.readouterr().err
        assert words in " ".join(told.split()), (options, told)


def test_what_is_stricter_than_kafka(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    """A level that is given twice is a mistake; Kafka takes the last. A level with a plus is no number here."""
    for options, words in (
        (features(f"{SHARE}=1", f"{SHARE}=2"), "share.version is given twice"),
        (features(f"{SHARE}=+1"), "the level of share.version is a number, not '+1'"),
    ):
        assert pair.kafka(STATIC, options)[0] == 0
        assert pair.ottla(STATIC, options)[0] != 0
        assert words in " ".join(capsys.readouterr().err.split())


def test_a_release_names_metadata_version_too(pair: Pair) -> None:
    """As in `ottla features upgrade`; Kafka's tool wants the number."""
    assert pair.kafka(STATIC, features("metadata.version=4.3"))[0] != 0
    assert pair.ottla(STATIC, features("metadata.version=4.3")) == pair.kafka(STATIC, ["-r", "4.3"])
