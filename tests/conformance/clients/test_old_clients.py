"""Java clients of releases that Kafka 4 does not serve: they produce, read and commit with every codec they have, and
read what a transactional producer of today wrote. The reader and writer of messages beside Kafka's own classes are in
`tests/conformance/drop_in/test_old_formats.py`; this finds what a client makes of versions, groups and errors.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ottla.server.legacy.refusals import SETTING
from tests.conformance.compatibility import ROOT
from tests.node import NodeProcess

SOURCES = Path(__file__).with_name("old")
CODECS = ("none", "gzip", "snappy", "lz4")
COUNT = 200
POM = """<project><modelVersion>4.0.0</modelVersion><groupId>old</groupId><artifactId>old</artifactId>
<version>1</version><dependencies><dependency><groupId>org.apache.kafka</groupId><artifactId>{artifact}</artifactId>
<version>{version}</version></dependency></dependencies></project>"""

CLIENTS = [
    pytest.param("kafka_2.11", "0.8.2.2", "Simple"),
    pytest.param("kafka-clients", "0.10.2.2", "Groups"),
    pytest.param("kafka-clients", "1.1.1", "Groups", marks=pytest.mark.matrix),
    pytest.param("kafka-clients", "2.0.1", "Groups", marks=pytest.mark.matrix),
]


def libraries(artifact: str, version: str, work: Path) -> Path:
    """The jars of an old client, fetched once."""
    found = ROOT / ".cache" / "old-clients" / version
    if not found.is_dir():
        (work / "pom.xml").write_text(POM.format(artifact=artifact, version=version))
        part = work / "libs"
        maven = ["mvn", "-q", "-B", "-f", str(work / "pom.xml"), "dependency:copy-dependencies"]
        subprocess.run([*maven, f"-DoutputDirectory={part}"], check=True, stdin=subprocess.DEVNULL, capture_output=True)
        found.parent.mkdir(parents=True, exist_ok=True)
        part.rename(found)
    return found


def write_transactions(bootstrap: str, topic: str, codec: str) -> None:
    """With headers; of two, the second is aborted: 40 records and two control batches."""
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "transactional.id": topic})
    producer.init_transactions(60)
    for transaction in range(2):
        producer.begin_transaction()
        for n in range(20):
            producer.produce(topic, f"{transaction}-{n}".encode(), b"k", partition=0, headers={"h": b"x"})
        producer.flush(60)
        if transaction:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)


@pytest.mark.parametrize(("artifact", "version", "program"), CLIENTS)
def test_an_old_client_works(tmp_path: Path, artifact: str, version: str, program: str) -> None:
    classpath = f"{tmp_path}:{libraries(artifact, version, tmp_path)}/*"
    subprocess.run(
        ["javac", "-nowarn", "-cp", classpath, "-d", str(tmp_path), str(SOURCES / f"{program}.java")],
        check=True,
        capture_output=True,
    )
    with NodeProcess(tmp_path / "data", {SETTING: "true"}) as node:
        new = [f"new-{codec}" for codec in CODECS]
        for topic, codec in zip(new, CODECS, strict=True):
            write_transactions(node.bootstrap, topic, codec)
        total = COUNT * len(CODECS) + 40 * len(CODECS)
        arguments = [node.bootstrap, "old-", ",".join(CODECS), str(COUNT), ",".join(new), str(total)]
        done = subprocess.run(
            ["java", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", classpath, program, *arguments],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    read = defaultdict(list)
    committed: dict[str, set[int]] = defaultdict(set)
    for line in done.stdout.splitlines():
        words = line.split()
        if words[0] == "committed":
            committed[words[1]].add(int(words[2]))
        else:
            read[words[0]].append((int(words[1]), words[2], words[3]))
    mine = [(n, "null" if n % 5 == 0 else f"k{n}", f"v{n}") for n in range(COUNT)]
    theirs = [(n + 21 * part, "k", f"{part}-{n}") for part in range(2) for n in range(20)]
    assert dict(read) == {**{f"old-{codec}": mine for codec in CODECS}, **dict.fromkeys(new, theirs)}
    end = 41 if version.startswith("0.") else 42  # newer ones step over the control batch at the end themselves
    assert {key: {COUNT} for key in read if key not in new} | {key: {end} for key in new} == dict(committed)
