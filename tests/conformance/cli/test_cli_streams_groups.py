"""`ottla group ...` of streams groups (KIP-1071)."""

from __future__ import annotations

import json

from confluent_kafka import Producer

from ottla.protocol.messages import ApiKey
from tests.conformance.cli.test_cli import ottla
from tests.conformance.clients.test_java import create
from tests.conformance.differential.differential_streams import GROUP
from tests.conformance.groups.test_streams_group_tools import COMMITTED, RECORDS, SETTINGS, Member


def test_a_streams_group_is_shown_reset_and_deleted(bootstrap: str, topic: str) -> None:
    name = f"cli-streams-{topic}"
    create(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, str(number), partition=0)
    assert producer.flush(60) == 0
    member = Member(bootstrap, name, topic)
    configs = [{"name": each, "config_operation": 0, "value": value} for each, value in SETTINGS.items()]
    row = {"resource_type": GROUP, "resource_name": name, "configs": configs}
    member.wire.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [row], "validate_only": False})
    member.join()

    (found,) = json.loads(ottla(bootstrap, "group", "describe", name, "--json"))
    assert (found["type"], found["state"], found["epoch"]) == ("streams", "Stable", member.epoch)
    (shown,) = found["members"]
    assert shown["active_tasks"] == [{"subtopology": "0", "partition": 0}]
    assert (shown["standby_tasks"], shown["pending_tasks"], shown["revoking_tasks"]) == ([], [], [])
    assert shown["partitions"] == [{"topic": topic, "partition": 0}]
    (part,) = found["partitions"]
    assert (part["committed_offset"], part["lag"], part["member_id"]) == (COMMITTED, RECORDS - COMMITTED, "m")
    text = ottla(bootstrap, "group", "describe", name)
    assert "streams group, Stable, 1 member" in text and "ACTIVE" in text and "STANDBY" in text
    listed = {each["group"]: each for each in json.loads(ottla(bootstrap, "group", "list", "--json"))}
    assert (listed[name]["type"], listed[name]["members"], listed[name]["lag"]) == ("streams", 1, RECORDS - COMMITTED)

    member.leave()
    ottla(bootstrap, "group", "reset", name, "--to", "earliest")
    assert member.committed() == 0
    ottla(bootstrap, "group", "delete", name)
    assert name not in ottla(bootstrap, "group", "list")
    member.close()
