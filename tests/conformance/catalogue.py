"""Every client and tool that the tests run, in the order of the tables, and how its version is found here."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from peers import kafka
from tests.oracle import RELEASE

SECTIONS = {"clients": "Clients", "tools": "Kafka's own tools", "frameworks": "Frameworks on top of clients"}


@dataclass(frozen=True)
class Entry:
    section: str
    language: str
    find: Callable[[], str | None] = lambda: None
    """None where only the client's own program can tell: that does through the fixture `ran`."""

    def found(self) -> str | None:
        return self.find()


@cache
def jar(name: str, release: str = "4.3") -> str | None:
    """The version of one of the jars of a release of Kafka."""
    paths = sorted((kafka.cache(release) / "libs").glob(f"{name}-[0-9]*.jar"))
    return paths[0].stem.removeprefix(f"{name}-") if paths else None


@cache
def distribution(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


@cache
def kcat() -> str | None:
    if shutil.which("kcat") is None:
        return None
    printed = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"Version (\S+).*librdkafka (\S+)", printed)
    return f"{found[1]} with librdkafka {found[2]}" if found else None


@cache
def librdkafka() -> str | None:
    import confluent_kafka

    return f"{distribution('confluent-kafka')} with librdkafka {confluent_kafka.libversion()[0]}"


def tools(*names: str) -> dict[str, Entry]:
    return {name: Entry("tools", "Java", lambda: jar("kafka-tools", RELEASE)) for name in names}


CATALOGUE: dict[str, Entry] = {
    "confluent-kafka": Entry("clients", "Python on C", librdkafka),
    "KafkaShareConsumer": Entry("clients", "Java", lambda: jar("kafka-clients", RELEASE)),
    "kcat": Entry("clients", "C", kcat),
    "aiokafka": Entry("clients", "Python", lambda: distribution("aiokafka")),
    "kafka-python": Entry("clients", "Python", lambda: distribution("kafka-python")),
    "franz-go": Entry("clients", "Go"),
    "sarama": Entry("clients", "Go"),
    "kafkajs": Entry("clients", "JavaScript"),
    "@platformatic/kafka": Entry("clients", "JavaScript"),
    "rskafka": Entry("clients", "Rust"),
    **tools(
        "ConsoleProducer",
        "ConsoleConsumer",
        "VerifiableProducer",
        "VerifiableConsumer",
        "ProducerPerformance",
        "ConsumerPerformance",
        "EndToEndLatency",
        "ClientCompatibilityTest",
        "TransactionalMessageCopier",
        "ReplicaVerificationTool",
        "TopicCommand",
        "ConfigCommand",
        "DelegationTokenCommand",
        "ConsumerGroupCommand",
        "GroupsCommand",
        "ShareGroupCommand",
        "ConsoleShareConsumer",
        "GetOffsetShell",
        "DeleteRecordsCommand",
        "LogDirsCommand",
        "FeatureCommand",
        "MetadataQuorumCommand",
        "BrokerApiVersionsCommand",
        "TransactionsCommand",
        "ClientMetricsCommand",
        "AclCommand",
        "StreamsResetter",
        "StreamsGroupCommand",
        "DumpLogSegments",
    ),
    "Kafka Streams": Entry("frameworks", "Java"),
    "Kafka Connect": Entry("frameworks", "Java", lambda: jar("connect-runtime")),
    "Spark structured streaming": Entry("frameworks", "Scala and Python", lambda: distribution("pyspark")),
}
