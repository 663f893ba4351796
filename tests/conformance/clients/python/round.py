"""The round of the client matrix with kafka-python: `python round.py BOOTSTRAP TOPIC GROUP`.

`BOOTSTRAP` may be several addresses, with commas between them. In the middle of writing and of reading, and when all
is read, it prints a line and goes on when it is given one, or has no input.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import kafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

PER_CODEC, PARTITIONS, AGAIN = 50, 2, 5
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
EARLIEST, LATEST = -2, -1
AS_THE_BROKER_SAYS = -1


def value_of(key: str) -> str:
    return f"{key}:{'x' * 100}"


def middle(of: str) -> None:
    print(json.dumps({"middle": of}), flush=True)
    sys.stdin.readline()


def produce(bootstrap: str, topic: str, codec: str) -> int:
    with KafkaProducer(bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec) as producer:
        sent = []
        for i in range(PER_CODEC):
            key = f"{codec}-{i}"
            if codec == CODECS[len(CODECS) // 2] and i == PER_CODEC // 2:
                middle("writing")
            headers = [("codec", codec.encode()), ("n", str(i).encode())]
            sent.append(producer.send(topic, value_of(key).encode(), key.encode(), headers, partition=i % PARTITIONS))
        return len([future.get(30) for future in sent])


def member(bootstrap: str, topic: str, group: str) -> KafkaConsumer:
    return KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=30000,
    )


def consume(report: dict[str, Any], admin: KafkaAdminClient, bootstrap: str, topic: str, group: str) -> None:
    """Read everything in a group and commit a little before the end of each partition."""
    following: dict[TopicPartition, int] = {}
    seen: set[tuple[int, int]] = set()
    with member(bootstrap, topic, group) as consumer:
        for message in consumer:
            if (message.partition, message.offset) in seen:  # it had to join again before it had committed
                report["repeated"] += 1
                continue
            seen.add((message.partition, message.offset))
            headers = dict(message.headers)
            codec = headers["codec"].decode()
            assert message.key.decode() == f"{codec}-{headers['n'].decode()}"
            assert message.value.decode() == value_of(message.key.decode())
            report["consumed"][codec] = report["consumed"].get(codec, 0) + 1
            following[TopicPartition(topic, message.partition)] = message.offset + 1
            if len(seen) == PER_CODEC * len(CODECS) // 2:
                middle("reading")
            if len(seen) == PER_CODEC * len(CODECS):
                break
        middle("end")
        described = admin.describe_groups([group])[group]
        report.update(group_state=described["group_state"], group_members=len(described["members"]))
        consumer.commit({tp: OffsetAndMetadata(offset - AGAIN, "", -1) for tp, offset in following.items()})
    committed = admin.list_group_offsets({group: None})[group]
    report["committed"] = {str(tp.partition): each.offset for tp, each in committed.items()}


def resume(report: dict[str, Any], bootstrap: str, topic: str, group: str) -> None:
    """Join again: only what was not committed comes back."""
    report["resumed"] = 0
    with member(bootstrap, topic, group) as consumer:
        for message in consumer:
            assert message.offset >= report["committed"][str(message.partition)]
            report["resumed"] += 1
            if report["resumed"] == AGAIN * PARTITIONS:
                break


def main(bootstrap: str, topic: str, group: str) -> None:
    started = time.perf_counter()
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    new = {"num_partitions": PARTITIONS, "replication_factor": AS_THE_BROKER_SAYS}
    admin.create_topics({topic: new}, wait_for_metadata=True)
    (described,) = admin.describe_topics([topic])
    report: dict[str, Any] = {
        "client": "kafka-python",
        "version": kafka.__version__,
        "partitions": len(described["partitions"]),
        "produced": {codec: produce(bootstrap, topic, codec) for codec in CODECS},
        "consumed": {},
        "repeated": 0,
    }
    admin.close()
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)  # the first does not ask again where a broker went
    consume(report, admin, bootstrap, topic, group)
    resume(report, bootstrap, topic, group)
    partitions = [TopicPartition(topic, p) for p in range(PARTITIONS)]
    for name, spec in (("earliest", EARLIEST), ("latest", LATEST)):
        offsets = admin.list_partition_offsets(dict.fromkeys(partitions, spec))
        report[name] = {str(tp.partition): each.offset for tp, each in offsets.items()}
    gone = f"{topic}-gone"
    admin.create_topics({gone: new})
    admin.delete_topics([gone])
    report["deleted"] = all(each["name"] != gone for each in admin.describe_topics())
    admin.close()
    print(json.dumps({**report, "seconds": round(time.perf_counter() - started, 3)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
