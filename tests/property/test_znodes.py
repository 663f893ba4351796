"""An image as znodes and back: nothing that Kafka keeps in ZooKeeper is lost on the way."""

from __future__ import annotations

import os
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.metadata import features
from ottla.metadata.image import DIRECTORY_MIGRATING, MetadataImage
from ottla.model import uuid_to_base64
from ottla.protocol.schemas import records as r
from ottla.znodes.cluster import CONTROLLER_EPOCH
from ottla.znodes.passwords import WrongSecret, decrypted, encrypted, is_encrypted
from ottla.znodes.reading import Reader, image_of, made_up_id, records_of
from ottla.znodes.tree import BadZnode, Znode, desanitized, is_path, sanitized
from ottla.znodes.writing import WriteOptions, Writer

SEED = b"seed"
CLUSTER = "-begins with a dash"
LEVELS = {features.METADATA_VERSION: features.METADATA_VERSION_4_4}
SECRET = "old secret"

_NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8).filter(
    lambda name: name not in (".", "..")
)
_RAW = _NAMES.filter(lambda name: is_path(f"/{name}"))
_IDS = st.uuids(version=4)
_BROKERS = st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True).map(tuple)
_SETTINGS = st.dictionaries(st.text(max_size=6), st.text(max_size=6), min_size=1, max_size=3)


@st.composite
def _topics(draw: st.DrawFn) -> list[Any]:
    records: list[Any] = []
    ids = draw(st.booleans())
    for name in draw(st.sets(st.text("abc._-", min_size=1, max_size=4).filter(is_path_part), max_size=4)):
        topic_id = draw(_IDS) if ids else made_up_id(SEED, "topic", name)
        records.append(r.TopicRecord(name, topic_id))
        for number in range(draw(st.integers(1, 3))):
            replicas = draw(_BROKERS)
            records.append(
                r.PartitionRecord(
                    partition_id=number,
                    topic_id=topic_id,
                    replicas=replicas,
                    isr=replicas[: draw(st.integers(1, len(replicas)))],
                    leader=draw(st.sampled_from((*replicas, -1))),
                    removing_replicas=draw(st.sampled_from([(), replicas[:1]])),
                    adding_replicas=draw(st.sampled_from([(), replicas[-1:]])),
                    leader_recovery_state=draw(st.integers(0, 1)),
                    leader_epoch=draw(st.integers(0, 1 << 31)),
                    partition_epoch=draw(st.integers(0, 1 << 31)),
                    directories=(DIRECTORY_MIGRATING,) * len(replicas),
                )
            )
        records += [r.ConfigRecord(2, name, key, value) for key, value in draw(_SETTINGS | st.just({})).items()]
    return records


def is_path_part(name: str) -> bool:
    return name not in (".", "..")


_QUOTA_KEYS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")


@st.composite
def _security(draw: st.DrawFn) -> list[Any]:
    records: list[Any] = []
    for kinds in (("user",), ("client-id",), ("client-id", "user"), ("ip",)):
        for name in draw(st.sets(_NAMES | st.none(), max_size=2)):
            entity = tuple(r.QuotaEntityData(kind, name) for kind in kinds)
            key = "connection_creation_rate" if kinds == ("ip",) else draw(st.sampled_from(_QUOTA_KEYS))
            value = draw(st.floats(0, 1e15) if "byte" not in key else st.integers(0, 1 << 50).map(float))
            records.append(r.ClientQuotaRecord(entity, key, value))
    for user in draw(st.sets(_NAMES, max_size=2)):
        for mechanism in draw(st.sets(st.integers(1, 2), min_size=1)):
            parts = (draw(st.binary(max_size=20)) for _ in range(3))
            records.append(r.UserScramCredentialRecord(user, mechanism, *parts, draw(st.integers(4096, 16384))))
    principals = _NAMES.map("User:{}".format)
    acl = st.tuples(
        st.integers(2, 7),
        _RAW,
        st.sampled_from([3, 4]),
        principals,
        _NAMES.filter(lambda n: "/" not in n),
        st.integers(2, 14),
        st.integers(2, 3),
    )
    contents = draw(st.lists(acl, max_size=4, unique=True))
    records += [r.AccessControlEntryRecord(made_up_id(SEED, "acl", *content), *content) for content in contents]
    for token_id in draw(st.sets(_IDS.map(uuid_to_base64), max_size=2)):
        times = (draw(st.integers(0, 1 << 62)) for _ in range(3))
        who = draw(principals), draw(principals), tuple(draw(st.lists(principals, max_size=2)))
        records.append(r.DelegationTokenRecord(*who, *times, token_id))
    return records


@st.composite
def _images(draw: st.DrawFn) -> MetadataImage:
    records: list[Any] = [r.FeatureLevelRecord(features.METADATA_VERSION, features.METADATA_VERSION_4_4)]
    records += draw(_topics())
    for broker in draw(st.sets(st.sampled_from(["", "0", "17"]))):
        records += [r.ConfigRecord(4, broker, key, value) for key, value in draw(_SETTINGS).items()]
        records.append(r.ConfigRecord(4, broker, "listener.name.internal.ssl.key.password", draw(st.text(max_size=9))))
    if draw(st.booleans()):
        records.append(r.ProducerIdsRecord(-1, -1, draw(st.integers(1, 1 << 60))))
    return image_of(iter([*records, *draw(_security())]), CLUSTER)


def _encrypt(password: str) -> str:
    return encrypted(password, SECRET, b"0123456789abcdef", bytes(16))


@given(_images())
def test_an_image_survives_the_way_through_znodes(image: MetadataImage) -> None:
    with_ids = any(topic.id != made_up_id(SEED, "topic", topic.name) for topic in image.topics)
    writer = Writer(image, WriteOptions(with_ids, controller_epoch=7, encrypt=_encrypt))
    tree = {**writer.write(), CONTROLLER_EPOCH: Znode(b"7")}
    assert not writer.findings
    assert all(is_path(path) for path in tree)
    reader = Reader(tree, ["a newer one", SECRET])
    found = reader.read()
    assert not reader.findings
    assert found.controller_epoch == 7
    again = image_of(records_of(found, SEED, LEVELS, keep_leaders=True), found.cluster_id)
    assert again == image
    leaderless = image_of(records_of(found, SEED, LEVELS, keep_leaders=False), found.cluster_id)
    assert {p.leader for topic in leaderless.topics for p in topic.partitions.values()} <= {-1}


@given(st.binary(max_size=40), st.data())
def test_any_bytes_in_any_znode_are_read_or_named(data: bytes, draw: st.DataObject) -> None:
    image = image_of(
        iter(
            [
                r.FeatureLevelRecord(features.METADATA_VERSION, 33),
                r.TopicRecord("t", UUID(int=200)),
                r.PartitionRecord(0, UUID(int=200), (1,), (1,), leader=1, leader_epoch=1, partition_epoch=1),
                r.ConfigRecord(2, "t", "a", "b"),
                r.ConfigRecord(4, "1", "a", "b"),
                r.ProducerIdsRecord(-1, -1, 1000),
                r.ClientQuotaRecord((r.QuotaEntityData("user", "u"),), "request_percentage", 1.0),
                r.AccessControlEntryRecord(UUID(int=300), 2, "t", 3, "User:u", "*", 3, 3),
                r.DelegationTokenRecord("User:u", "User:v", (), 1, 2, 3, "token"),
            ]
        ),
        CLUSTER,
    )
    whole = Writer(image, WriteOptions(True, 1, _encrypt)).write()
    path = draw.draw(st.sampled_from(sorted(path for path, znode in whole.items() if znode.data)))
    content = whole[path].data
    cut = draw.draw(st.integers(0, len(content)))
    damaged = draw.draw(st.sampled_from([data, content[:cut], content[:cut] + data + content[cut:]]))
    reader = Reader({**whole, path: Znode(damaged)})
    reader.read()
    assert all(finding.path == path for finding in reader.findings)


@given(st.text(st.characters(codec="utf-8"), max_size=20))
def test_sanitized_names_come_back(name: str) -> None:
    assert desanitized("/", sanitized(name)) == name
    assert not set(sanitized(name)) & set(' /+*~<>:"')


@pytest.mark.parametrize("name", ["%", "%f", "%zz", "%ff", "a%2", "b%%41"])
def test_names_with_wrong_escapes_are_refused(name: str) -> None:
    with pytest.raises(BadZnode, match="/x"):
        desanitized("/x", name)


@settings(max_examples=20)
@given(st.text(st.characters(codec="utf-8"), max_size=40), st.text(st.characters(codec="utf-8"), max_size=20))
def test_passwords_open_with_their_secret_alone(password: str, secret: str) -> None:
    value = encrypted(password, secret, os.urandom(8), os.urandom(16))
    assert is_encrypted(value)
    assert decrypted(value, ["wrong" + secret, secret]).reveal() == password
    try:
        assert decrypted(value, ["wrong" + secret]).reveal() != password
    except WrongSecret:
        pass
