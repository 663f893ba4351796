"""A client of a registry in JavaScript, @kafkajs/confluent-schema-registry, beside confluent-kafka's in Python."""

from __future__ import annotations

import json
import subprocess

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from ottla.testing import Broker, Registry
from tests.conformance.clients import build

LIMIT_S = 120


@pytest.mark.matrix
def test_javascript() -> None:
    if why := build.missing("node"):
        pytest.skip(why)
    built = build.build("node")
    with Broker() as broker, Registry(broker.bootstrap) as registry:
        client = SchemaRegistryClient({"url": registry.url})
        text = '{"type":"record","name":"P","fields":[{"name":"text","type":"string"}]}'
        context = SerializationContext("python", MessageField.VALUE)
        foreign = AvroSerializer(client, text)({"text": "from Python"}, context)
        assert foreign is not None
        command = ["node", "schema-registry.js", registry.url, foreign.hex()]
        done = subprocess.run(command, cwd=built, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["foreign"] == {"text": "from Python"}
        for made in found["made"].values():
            assert made["id"] == made["again"] == made["latest"]
            assert made["decoded"] == 7
        assert "incompatible with an earlier schema" in found["refused"]
        mine = AvroDeserializer(client)(bytes.fromhex(found["made"]["avro"]["encoded"]), context)
        assert mine == {"id": 7}
