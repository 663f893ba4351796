"""The work whose instructions are counted, on a broker that has what it asks for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from bench.method.brokers import Side
from bench.method.counted import Burst, CountedOttla, Requests
from bench.method.counted_rebalances import ClassicRebalances, ConsumerRebalances, FirstJoins, StaticReturns
from bench.method.counted_shares import DELAYED, ORDERED, ShareFetches
from bench.method.load import Client, batch_of, fetch_frame, frame, produce_frame
from bench.method.members import Group, Member, Swarm
from bench.workloads.consumer_rebalances import partitions_of
from bench.workloads.group_requests import (
    COMMIT_VERSION,
    HEARTBEAT_VERSION,
    commit_values,
    heartbeat_values,
    offset_fetch_values,
    prepare,
)
from bench.workloads.group_requests import FETCH_VERSION as OFFSET_FETCH_VERSION
from bench.workloads.share_groups import FETCH_VERSION, Queue, share_fetch_values
from ottla.errors import ErrorCode
from ottla.metadata.features import SUPPORTED
from ottla.protocol import fetch, fetch_responses, messages
from ottla.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch

PRODUCED, CACHED, WIDE, SHARED = "instructions", "cached", "wide", "shared"
CACHED_BATCHES = 128
"""Number of batches of 60 KB each."""
WIDE_PARTITIONS = 200
SESSION_VERSION = 16
NODE, FOLLOWER = 1, 2
SESSION_REQUESTS = 3000
"""Each with an epoch of its own."""
SHARED_REQUESTS = 100
SHARED_RECORDS = 500
TRANSACTIONS = 200
COMMIT_TURNS = 4
REBALANCING = "rebalancing"
REBALANCED = (10, 100, 1000, 5000)
"""Members of groups, as in the table of rebalances."""
STATIC = (1000, 5000)
"""Members of groups to which a static one returns: it is written with all others of the first."""
SMALL_GROUPS = 50, 3
"""Groups and members of each that join at once."""
REBALANCED_MEMBERS = 100
"""Members of the group whose figure is kept; those of the others say whether work grows with the group."""


@dataclass
class Broker:
    side: CountedOttla
    client: Client
    member: Member
    """Member of a group with committed offsets of 20 partitions."""


@dataclass
class Load:
    name: str
    requests: Callable[[Broker], Requests | Burst]
    is_large: bool = False
    """Much data, or many connections: a few are enough."""
    in_suite: bool = False
    """Whether a test counts it too. It counts no load whose figure depends on how fast the client reads or writes."""
    is_kept: bool = True
    """Whether its figure is in `instructions.json`: not of those that are only compared with one another."""
    by_name: bool = False
    """Whether it takes so long that it is counted only where its whole name is given."""
    with_follower: bool = False
    """On a node of its own, with a listener for controllers, to which another broker can be registered."""


@contextmanager
def prepared(side: CountedOttla) -> Iterator[Broker]:
    client = Client(side.port)
    client.create_topic(PRODUCED, 1)
    client.create_topic(CACHED, 1)
    client.create_topic(WIDE, WIDE_PARTITIONS)
    batch, _ = batch_of(60 << 10)
    for topic, batches in ((CACHED, CACHED_BATCHES), (WIDE, 1)):
        for _ in range(batches):
            client.socket.sendall(produce_frame(topic, 0, batch))
            client.receive_frame()
    prepare(side)
    swarm = Swarm(side.port)
    member = swarm.add(Group("counted"), 1)[0]
    swarm.join([member])
    swarm.settle([member.group])
    swarm.drain([member.group])
    client.socket.sendall(_commit(member, 20, 0))
    client.receive_frame()
    try:
        yield Broker(side, client, member)
    finally:
        swarm.close()
        client.close()


_encode = partial(messages.encode_request, correlation_id=1, client_id="bench")


def _commit(member: Member, partitions: int, turn: int) -> bytes:
    values = commit_values(member, partitions, turn)
    return frame(_encode(ApiKey.OFFSET_COMMIT, COMMIT_VERSION, values=values))


def _commits(partitions: int, broker: Broker) -> Requests:
    return Requests([[_commit(broker.member, partitions, turn) for turn in range(COMMIT_TURNS)]], 5)


def _offset_fetches(partitions: int, broker: Broker) -> Requests:
    values = offset_fetch_values(broker.member, partitions)
    return Requests([[frame(_encode(ApiKey.OFFSET_FETCH, OFFSET_FETCH_VERSION, values=values))]], 5)


def _heartbeats(broker: Broker) -> Requests:
    return Requests([[frame(_encode(ApiKey.HEARTBEAT, HEARTBEAT_VERSION, values=heartbeat_values(broker.member)))]], 5)


def _consumer_heartbeats(broker: Broker) -> Requests:
    """A member of a group of KIP-848 that has nothing new to say."""
    api, version, who = ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {"group_id": "consumers", "member_id": "counted"}
    joining = {"rebalance_timeout": 300_000, "subscribed_topic_names": [PRODUCED], "topic_partitions": []}
    silent = {"topic_partitions": None, "subscribed_topic_names": None}
    answer = broker.client.call(api, version, {**who, "member_epoch": 0, **joining})
    assert answer["error_code"] == 0 and answer["member_epoch"] > 0, answer
    owned = answer["assignment"]["topic_partitions"]
    epoch = {"member_epoch": answer["member_epoch"]}
    broker.client.call(api, version, {**who, **epoch, "subscribed_topic_names": None, "topic_partitions": owned})
    return Requests([[frame(_encode(api, version, values={**who, **epoch, **silent}))]], 5)


def _produces(size: int, record_size: int, in_flight: int, broker: Broker, connections: int = 1) -> Requests:
    request = produce_frame(PRODUCED, 0, batch_of(size, record_size)[0])
    return Requests([[request]] * connections, in_flight)


def _fetches(size: int, in_flight: int, broker: Broker) -> Requests:
    """Whole batches, from other places of the log each time."""
    batch, records = batch_of(60 << 10)
    step = max(1, size // len(batch))
    starts = range(0, CACHED_BATCHES - step, step)
    frames = [fetch_frame(CACHED, 0, start * records, step * len(batch)) for start in starts]
    return Requests([frames], in_flight, answer_bytes_min=step * len(batch))


def _session(partitions: int, broker: Broker) -> Requests:
    """A consumer that keeps up with one partition of many: each request names this one only."""
    found = broker.client.call(ApiKey.METADATA, 12, {"topics": [{"topic_id": None, "name": WIDE}]})
    topic_id = found["topics"][0]["topic_id"]
    assert isinstance(topic_id, UUID)

    def request(session_id: int, epoch: int, wanted: list[FetchPartition]) -> bytes:
        body = FetchRequest(
            500, 1, 50 << 20, [FetchTopic(None, topic_id, wanted)], session_id=session_id, session_epoch=epoch
        )
        return frame(bytes(fetch.encode_request(SESSION_VERSION, 1, "bench", body)))

    every = [FetchPartition(number, 0, 1 << 20) for number in range(partitions)]
    broker.client.socket.sendall(request(0, 0, every))
    _, answer = fetch_responses.decode_response(SESSION_VERSION, broker.client.receive_frame())
    assert answer.session_id
    asked = [FetchPartition(0, 0, 1 << 20)]
    frames = [request(answer.session_id, epoch, asked) for epoch in range(1, SESSION_REQUESTS)]
    return Requests([frames], 1, answer_bytes_min=60 << 10)


def _follower_session(partitions: int, broker: Broker) -> Requests:
    """A follower of as many partitions that are quiet but for one, of which it is sent 64 KB each time."""
    topic, (batch, records) = f"followed-{partitions}", batch_of(60 << 10)
    epoch = register_follower(broker.side)
    rows = [{"partition_index": number, "broker_ids": [NODE, FOLLOWER]} for number in range(partitions)]
    created = {"name": topic, "num_partitions": -1, "replication_factor": -1, "assignments": rows, "configs": ()}
    values = {"topics": [created], "timeout": 120_000, "validate_only": False}
    answer = broker.client.call(ApiKey.CREATE_TOPICS, 7, values)["topics"][0]
    assert not answer["error_code"], answer
    broker.client.wait_for_leaders(topic, partitions)
    broker.client.socket.sendall(produce_frame(topic, 0, batch))  # answered when the follower has it

    def request(session_id: int, session_epoch: int, wanted: list[FetchPartition]) -> bytes:
        body = FetchRequest(
            500,
            1,
            50 << 20,
            [FetchTopic(None, answer["topic_id"], wanted)],
            replica_id=FOLLOWER,
            replica_epoch=epoch,
            session_id=session_id,
            session_epoch=session_epoch,
        )
        return frame(bytes(fetch.encode_request(SESSION_VERSION, 1, "bench", body)))

    with closing(Client(broker.side.port)) as follower:
        end = [FetchPartition(number, 0 if number else records, 1 << 20) for number in range(partitions)]
        session_id = refused = 1
        while refused:  # the batch is still on its way
            follower.socket.sendall(request(0, 0, end))
            _, found = fetch_responses.decode_response(SESSION_VERSION, follower.receive_frame())
            session_id, refused = (
                found.session_id,
                any(row.error_code for each in found.topics for row in each.partitions),
            )
    broker.client.receive_frame()
    asked = [FetchPartition(0, 0, 1 << 20)]
    frames = [request(session_id, turn, asked) for turn in range(1, SESSION_REQUESTS)]
    return Requests([frames], 1, answer_bytes_min=60 << 10)


def register_follower(side: Side) -> int:
    """Register a broker that is not there, and unfence it; returns its epoch."""
    port = int(side.settings["listeners"].rsplit(":", 1)[1])
    with closing(Client(port)) as controller:
        cluster_id = controller.call(ApiKey.DESCRIBE_CLUSTER, 1, {"endpoint_type": 2})["cluster_id"]
        supported = [
            {"name": name, "min_supported_version": low, "max_supported_version": high}
            for name, (low, high) in SUPPORTED.items()
        ]
        listeners = [{"name": "PLAINTEXT", "host": "127.0.0.1", "port": 1, "security_protocol": 0}]
        registration = {
            "broker_id": FOLLOWER,
            "cluster_id": cluster_id,
            "incarnation_id": UUID(int=FOLLOWER),
            "rack": None,
            "listeners": listeners,
            "features": supported,
            "is_migrating_zk_broker": False,
            "log_dirs": [UUID(int=1000)],
            "previous_broker_epoch": -1,
        }
        registered = controller.call(ApiKey.BROKER_REGISTRATION, 4, registration)
        assert not registered["error_code"], registered
        epoch: int = registered["broker_epoch"]
        beat = {
            "broker_id": FOLLOWER,
            "broker_epoch": epoch,
            "current_metadata_offset": 1 << 40,
            "want_fence": False,
            "want_shut_down": False,
        }
        while controller.call(ApiKey.BROKER_HEARTBEAT, 1, beat)["is_fenced"]:
            time.sleep(0.05)
    return epoch


def _share_fetches(broker: Broker) -> Requests:
    """A member of a share group that keeps up: each request accepts what the one before brought."""
    queue = Queue(broker.side.port, SHARED, 1)
    _, each = batch_of(16 << 10)
    records = -(-SHARED_RECORDS // each) * each  # whole batches
    queue.fill((SHARED_REQUESTS + 1) * records, 16 << 10)
    group = queue.group()
    requests = [
        share_fetch_values(
            group,
            "counted",
            queue.topic_id,
            epoch,
            SHARED_RECORDS,
            {0: [((epoch - 1) * records, epoch * records - 1)] if epoch else []},
        )
        for epoch in range(SHARED_REQUESTS + 1)
    ]
    while not broker.client.call(ApiKey.SHARE_FETCH, FETCH_VERSION, requests[0])["responses"]:
        pass  # the share-partition is being loaded
    frames = [frame(_encode(ApiKey.SHARE_FETCH, FETCH_VERSION, values=each)) for each in requests[1:]]
    return Requests([frames], 1, answer_bytes_min=records * 100)


def _keyed_share_fetches(
    topic: str, settings: Mapping[str, str], broker: Broker, *, held: bool = False, waiting: int = 0
) -> Burst:
    return ShareFetches(broker.side.port, topic, settings, held=held, waiting=waiting)


def _transactions(broker: Broker) -> Requests:
    """One after the other, each of three requests: a partition is added, a record written, the transaction ended."""
    client = broker.client
    init = {"transactional_id": "counted", "transaction_timeout": 600_000, "producer_id": -1, "producer_epoch": -1}
    while True:
        client.call(ApiKey.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": ["counted"]})
        answer = client.call(ApiKey.INIT_PRODUCER_ID, 4, init)
        if not answer["error_code"]:
            break
        if not ErrorCode(answer["error_code"]).retriable:
            raise RuntimeError(f"InitProducerId: {answer['error_code']!r}")
        time.sleep(0.01)
    producer_id, epoch = answer["producer_id"], answer["producer_epoch"]
    names = {"transactional_id": "counted", "producer_id": producer_id, "producer_epoch": epoch}
    added = {
        **{f"v3_and_below_{name}": value for name, value in names.items()},
        "v3_and_below_topics": [{"name": PRODUCED, "partitions": [0]}],
    }
    record = SimpleRecord(time.time_ns() // 1_000_000, None, bytes(100))
    frames = []
    for sequence in range(TRANSACTIONS):
        batch = build_batch(
            [record], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True
        )
        rows = [{"name": PRODUCED, "partition_data": [{"index": 0, "records": bytes(batch)}]}]
        produced = {"transactional_id": "counted", "acks": -1, "timeout": 30_000, "topic_data": rows}
        for key, version, values in (
            (ApiKey.ADD_PARTITIONS_TO_TXN, 3, added),
            (ApiKey.PRODUCE, 9, produced),
            (ApiKey.END_TXN, 3, {**names, "committed": True}),
        ):
            frames.append(frame(_encode(key, version, values=values)))
    return Requests([frames], 3)


def _classic_rebalances(members: int, broker: Broker) -> Burst:
    return ClassicRebalances(broker.side, members)


def _consumer_rebalances(members: int, broker: Broker) -> Burst:
    topic, partitions = f"{REBALANCING}-{members}", partitions_of(members)
    broker.client.create_topic(topic, partitions)
    return ConsumerRebalances(broker.side, members, topic, partitions)


def _static_returns(members: int, broker: Broker) -> Burst:
    return StaticReturns(broker.side, members)


def _first_joins(broker: Broker) -> Burst:
    return FirstJoins(broker.side, *SMALL_GROUPS)


def loads() -> list[Load]:
    found = []
    batches = {
        "one 100-byte record": (1, 100),
        "16 KB batch": (16 << 10, 100),
        "64 KB batch of 1 KB records": (64 << 10, 1000),
        "1 MB batch of 1 KB records": (1000 << 10, 1000),
    }
    for what, (size, record_size) in batches.items():
        for flight, in_flight in (("", 5), (", one in flight", 1)):
            requests = partial(_produces, size, record_size, in_flight)
            found.append(Load(f"produce, {what}{flight}", requests, size > 1 << 17, in_flight == 5 and size < 1 << 19))
    many = partial(_produces, 1, 100, 1, connections=200)
    found.append(Load("produce, one 100-byte record, 200 connections", many, True, True))
    for what, size in {"64 KB": 64 << 10, "1 MB": 1 << 20}.items():
        for flight, in_flight in (("", 5), (", one in flight", 1)):
            found.append(
                Load(
                    f"fetch, {what}{flight}",
                    partial(_fetches, size, in_flight),
                    size > 1 << 17,
                    in_flight == 5 and size < 1 << 19,
                )
            )
    for partitions in (1, 20, WIDE_PARTITIONS):
        name = f"fetch, 64 KB of one partition, session of {partitions}"
        found.append(Load(name, partial(_session, partitions), in_suite=partitions == 20))
    for partitions in (1, WIDE_PARTITIONS):
        name = f"follower's fetch, 64 KB of one partition, session of {partitions}"
        found.append(Load(name, partial(_follower_session, partitions), with_follower=True))
    for partitions in (1, 20):
        plural = "s" * (partitions > 1)
        found.append(Load(f"commit of {partitions} partition{plural}", partial(_commits, partitions), in_suite=True))
        name = f"offset fetch of {partitions} partition{plural}"
        found.append(Load(name, partial(_offset_fetches, partitions), in_suite=True))
    found.append(Load("heartbeat", _heartbeats, in_suite=True))
    found.append(Load("heartbeat of a consumer group", _consumer_heartbeats))
    for protocol, rebalances in (("classic", _classic_rebalances), ("KIP-848", _consumer_rebalances)):
        found += [
            Load(
                f"rebalance of {members:,} members, {protocol}",
                partial(rebalances, members),
                is_large=True,
                is_kept=members == REBALANCED_MEMBERS,
                by_name=members > REBALANCED_MEMBERS,
            )
            for members in REBALANCED
        ]
    for members in STATIC:
        found.append(
            Load(
                f"static member returns to a classic group of {members:,}",
                partial(_static_returns, members),
                is_large=True,
                is_kept=members == STATIC[0],
                by_name=members > STATIC[0],
            )
        )
    groups, members = SMALL_GROUPS
    found.append(
        Load(f"first join of {groups} groups of {members} members", _first_joins, is_large=True, is_kept=False)
    )
    found.append(Load("share fetch of 500 records", _share_fetches, in_suite=True))
    for number, (what, settings, held) in enumerate(
        (
            ("", {}, False),
            (", back-off", DELAYED, False),
            (", in order by key", ORDERED, False),
            (", in order by key, one key held", ORDERED, True),
        )
    ):
        requests_ = partial(_keyed_share_fetches, f"keyed-{number}", settings, held=held)
        found.append(Load(f"share fetch of 500 keyed records{what}", requests_, is_kept=False))
    for waiting in (1, 10_000):
        name = f"share fetch of 500 keyed records, in order by key, {waiting:,} waiting"
        requests_ = partial(_keyed_share_fetches, f"waiting-{waiting}", ORDERED, waiting=waiting)
        found.append(Load(name, requests_, is_kept=False, by_name=True))
    found.append(Load("request of a transaction of one record", _transactions, in_suite=True))
    return found
