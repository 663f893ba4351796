"""Options of a source: names in any case, refused values named, unknown ones logged."""

from __future__ import annotations

import logging
import pickle

import pytest

from ottla.model import TopicPartition
from ottla.spark.offsets import EARLIEST, LATEST, of_topics, to_topics
from ottla.spark.options import Bound, Subscription, batch_options, stream_options

BASE = {"kafka.bootstrap.servers": "a:1, b:2", "subscribe": "x"}


def test_defaults_are_the_connectors() -> None:
    batch, stream = batch_options(BASE), stream_options(BASE)
    assert (batch.starting, batch.ending) == (Bound(offset=EARLIEST), Bound(offset=LATEST))
    assert stream.starting == Bound(offset=LATEST)
    assert batch.fail_on_data_loss and not batch.headers and batch.no_match == "error"
    assert batch.client.bootstrap == ("a:1", "b:2") and not batch.client.read_committed
    assert stream.trigger_delay_ms_max == 15 * 60 * 1000


def test_names_come_in_any_case_and_all_are_read() -> None:
    options = stream_options(
        {
            "KAFKA.bootstrap.servers": "[::1]:9092",
            "SUBSCRIBEPATTERN": "a.*",
            "StartingOffsets": "EARLIEST",
            "failondataloss": "FALSE",
            "minPartitions": "4",
            "maxRecordsPerPartition": "10",
            "maxOffsetsPerTrigger": "100",
            "minOffsetsPerTrigger": "50",
            "maxTriggerDelay": "30s",
            "includeHeaders": "true",
            "commit.group": "g",
            "kafka.isolation.level": "read_committed",
            "kafka.client.rack": "r1",
            "kafka.max.partition.fetch.bytes": "1000",
            "kafka.fetch.max.bytes": "500",
            "kafka.request.timeout.ms": "7000",
            "kafka.group.id": "ignored",
        }
    )
    assert options.subscription == Subscription(pattern="a.*")
    assert options.starting == Bound(offset=EARLIEST) and not options.fail_on_data_loss and options.headers
    assert (options.partitions_min, options.partition_records_max) == (4, 10)
    assert (options.trigger_offsets_max, options.trigger_offsets_min) == (100, 50)
    assert (options.trigger_delay_ms_max, options.commit_group) == (30_000, "g")
    client = options.client
    assert (client.read_committed, client.rack, client.fetch_bytes_max) == (True, "r1", 500)
    assert client.request_timeout_ms == 7000 and client.bootstrap == ("[::1]:9092",)
    assert options.unknown == ()
    assert pickle.loads(pickle.dumps(options)) == options


def test_a_timestamp_goes_before_offsets() -> None:
    both = BASE | {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"x":{"0":5}}'}
    assert batch_options(both).starting == Bound(timestamps_ms={TopicPartition("x", 0): 5})
    assert batch_options(both | {"startingTimestamp": "7"}).starting == Bound(timestamp_ms=7)


def test_offsets_and_partitions_are_json() -> None:
    options = batch_options(
        BASE | {"startingOffsets": '{"x":{"0":23,"1":-2}}', "endingOffsets": '{"x":{"0":24,"1":-1}}'}
    )
    assert options.starting.offsets == {TopicPartition("x", 0): 23, TopicPartition("x", 1): EARLIEST}
    assigned = batch_options({"kafka.bootstrap.servers": "a:1", "assign": '{"x":[1,0],"a":[2]}'})
    assert assigned.subscription.partitions == (("a", 2), ("x", 0), ("x", 1))
    assert assigned.subscription.chosen([]) == ["a", "x"]


def test_offsets_go_to_checkpoints_sorted_and_come_back() -> None:
    offsets = {TopicPartition("b", 10): 1, TopicPartition("b", 2): 3, TopicPartition("a", 0): 0}
    assert str(to_topics(offsets)) == "{'a': {'0': 0}, 'b': {'2': 3, '10': 1}}"
    assert of_topics(to_topics(offsets)) == offsets


def test_a_pattern_matches_whole_names() -> None:
    assert Subscription(pattern="a|b.").chosen(["bc", "a", "ab", "bcd"]) == ["a", "bc"]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"subscribe": " , "}, "subscribe:"),
        ({"subscribePattern": "a"}, "exactly one"),
        ({"startingOffsets": "latest"}, "startingOffsets:"),
        ({"startingOffsets": '{"x":{"0":-1}}'}, "startingOffsets:"),
        ({"startingOffsets": "soon"}, "startingOffsets:"),
        ({"startingOffsets": '{"x":{"0":true}}'}, "startingOffsets:"),
        ({"endingOffsets": "earliest"}, "endingOffsets:"),
        ({"startingOffsets": '{"x":{"0":5}}', "endingOffsets": '{"x":{"0":4}}'}, "startingOffsets:"),
        ({"startingOffsets": '{"x":{"0":5}}', "endingOffsets": '{"x":{"1":9}}'}, "startingOffsets and endingOffsets:"),
        ({"startingTimestamp": "x"}, "startingTimestamp:"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "startingOffsetsByTimestampStrategy:"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss:"),
        ({"minPartitions": "0"}, "minPartitions:"),
        ({"maxRecordsPerPartition": "1.5"}, "maxRecordsPerPartition:"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay:"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "minOffsetsPerTrigger:"),
        ({"commit.group": ""}, "commit.group:"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers:"),
        ({"kafka.bootstrap.servers": "a"}, "kafka.bootstrap.servers:"),
        ({"kafka.isolation.level": "x"}, "kafka.isolation.level:"),
        ({"kafka.fetch.max.bytes": "-1"}, "kafka.fetch.max.bytes:"),
        ({"kafka.auto.offset.reset": "earliest"}, "kafka.auto.offset.reset:"),
        ({"kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit:"),
        ({"kafka.key.deserializer": "x"}, "kafka.key.deserializer:"),
        ({"kafka.security.protocol": "TLS"}, "kafka.security.protocol:"),
        ({"kafka.sasl.username": "x"}, "kafka.security.protocol: is not set"),
        ({"kafka.security.protocol": "SSL", "kafka.ssl.truststor.location": "x"}, "kafka.ssl.truststor.location:"),
        ({"client.config": "/nowhere.properties"}, "client.config: /nowhere.properties cannot be read"),
        ({"kafka.sasl.jaas.config": "x"}, "kafka.sasl.jaas.config:"),
    ],
)
def test_what_is_refused_is_named(given: dict[str, str], name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}"):
        batch_options(BASE | given)


def test_nothing_to_read_is_refused() -> None:
    with pytest.raises(ValueError, match="assign, subscribe, subscribePattern"):
        batch_options({"kafka.bootstrap.servers": "a:1"})
    with pytest.raises(ValueError, match="assign:"):
        batch_options({"kafka.bootstrap.servers": "a:1", "assign": "x"})
    with pytest.raises(ValueError, match="subscribePattern:"):
        batch_options({"kafka.bootstrap.servers": "a:1", "subscribePattern": "("})


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}:"):
        stream_options(BASE | {name: "latest"})


def test_unknown_options_are_logged_with_the_name_that_was_meant(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "ottla.spark"):
        assert batch_options(BASE | {"startingofsets": "earliest"}).unknown == ("startingofsets",)
        assert batch_options(BASE | {"value.fromat": "json", "key.schema": "a int"}).unknown == ("value.fromat",)
    assert "did you mean startingOffsets?" in caplog.text and "did you mean value.format?" in caplog.text
