"""Lines of the authorizer log of a running Apache Kafka are read as denials. A cheaper test only has lines that we
believe Kafka to write."""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from ottla.protocol.messages import ApiKey
from ottla.security.denials import denial_of
from peers.kafka import KafkaPeer, start_fast
from tests.conformance.pair import Wire

SECURED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
LOGGER = "kafka.authorizer.logger"
BROKER_LOGGER = 8
LIMIT_S = 60.0


def test_a_line_of_a_running_kafka(tmp_path: Path) -> None:
    with KafkaPeer(tmp_path, heap="512m", settings=SECURED, flags=start_fast("4.4"), release="4.4") as peer:
        admin = AdminClient({"bootstrap.servers": peer.bootstrap})
        admin.create_topics([NewTopic("my.orders", 1)])["my.orders"].result(LIMIT_S)
        for operation, permission in (
            (AclOperation.WRITE, AclPermissionType.DENY),
            (AclOperation.DESCRIBE, AclPermissionType.ALLOW),
        ):
            acl = AclBinding(
                ResourceType.TOPIC, "my.", ResourcePatternType.PREFIXED, "User:ANONYMOUS", "*", operation, permission
            )
            for done in admin.create_acls([acl]).values():
                done.result(LIMIT_S)
        louder = {"name": LOGGER, "config_operation": 0, "value": "INFO"}
        resource = {"resource_type": BROKER_LOGGER, "resource_name": "1", "configs": [louder]}
        asked = {"resources": [resource], "validate_only": False}
        (told,) = Wire(peer.bootstrap).ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked)["responses"]
        assert told["error_code"] == 0, told
        producer = Producer({"bootstrap.servers": peer.bootstrap})
        end, lines = time.monotonic() + LIMIT_S, list[str]()
        while not lines:  # the broker hears of the ACLs later
            assert time.monotonic() < end, peer.last_printed()
            producer.produce("my.orders", b"x")
            producer.flush(LIMIT_S)
            printed = (tmp_path / "server.log").read_text()
            lines = [each for each in printed.splitlines() if LOGGER in each and "for request = Produce" in each]
    found = denial_of(lines[0])
    assert found is not None, lines[0]
    assert found[:5] == ("User:ANONYMOUS", "write", "topic", "my.orders", "127.0.0.1"), lines[0]
    assert "permissionType=DENY" in found.rule, lines[0]
