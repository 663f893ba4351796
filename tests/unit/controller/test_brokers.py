"""Registration, and who leads after a restart."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.controller import broker_partitions, brokers, directories, producer_ids
from ottla.controller.bootstrap import bootstrap
from ottla.controller.broker_sessions import BrokerSessions
from ottla.controller.decision import Decision
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata import features
from ottla.metadata.image import DIRECTORY_LOST, EMPTY_IMAGE, Endpoint, MetadataImage
from ottla.protocol.schemas import records as r
from ottla.steps import at_once
from tests.unit.metadata.images import (
    DIRECTORY,
    apply,
    broker_records,
    feature_records,
    one_broker,
    settings,
    topic_records,
)


def register_broker(image: MetadataImage, request: dict[str, Any], cluster_id: str) -> Decision[dict[str, Any]]:
    return at_once(brokers.register_broker(image, request, cluster_id, settings(image)))


def unregister_broker(image: MetadataImage, request: dict[str, Any]) -> Decision[dict[str, Any]]:
    return at_once(brokers.unregister_broker(image, request, settings(image)))


def fence(image: MetadataImage, node_id: int) -> Decision[None]:
    return at_once(brokers.fence(image, node_id, settings(image)))


def me(**fields: Any) -> dict[str, Any]:
    """A BrokerRegistration request."""
    return {
        "broker_id": 1,
        "cluster_id": "c",
        "incarnation_id": UUID(int=9),
        "listeners": [{"name": "PLAINTEXT", "host": "h", "port": 1, "security_protocol": 0}],
        "features": [
            {"name": name, "min_supported_version": low, "max_supported_version": high}
            for name, (low, high) in features.SUPPORTED.items()
        ],
        "rack": None,
        "log_dirs": (DIRECTORY,),
        **fields,
    }


def beat(
    image: MetadataImage, node_id: int = 1, sessions: BrokerSessions | None = None, **fields: Any
) -> Decision[dict[str, Any]]:
    """The decision on a heartbeat of a broker that has caught up."""
    asked = {
        "broker_id": node_id,
        "broker_epoch": image.brokers[node_id].epoch,
        "current_metadata_offset": image.offset,
        "want_fence": False,
        "want_shut_down": False,
        **fields,
    }
    return at_once(brokers.heartbeat(image, asked, settings(image), sessions or BrokerSessions(9)))


def back(image: MetadataImage, **fields: Any) -> MetadataImage:
    """The image after a broker has registered and was unfenced."""
    image = apply(register_broker(image, me(**fields), "c").records, image)
    return apply(beat(image).records, image)


def leaders(image: MetadataImage, topic: str = "t") -> list[tuple[int, int]]:
    """(leader, leader epoch) of every partition."""
    found = image.topic(topic)
    assert found is not None
    return [(each.leader, each.leader_epoch) for each in found.partitions.values()]


def test_the_broker_epoch_is_the_offset_of_its_registration() -> None:
    image = apply(feature_records())
    decision = register_broker(image, me(), "c")
    assert decision.response == {"error_code": 0, "broker_epoch": image.offset + 1}
    (registration,) = decision.records
    assert registration.broker_epoch == image.offset + 1
    after = apply(decision.records, image)
    assert after.brokers[1].fenced
    assert after.brokers[1].incarnation_id == UUID(int=9)
    assert after.brokers[1].endpoints == {"PLAINTEXT": Endpoint("h", 1)}


def test_an_incarnation_that_registers_again_keeps_its_epoch() -> None:
    """The answer to the first request was lost, say."""
    image = back(apply(feature_records()))
    decision = register_broker(image, me(rack="r"), "c")
    assert decision.response["broker_epoch"] == image.brokers[1].epoch
    after = apply(decision.records, image)
    assert (after.brokers[1].active, after.brokers[1].rack) == (True, "r")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"cluster_id": "other"}, ErrorCode.inconsistent_cluster_id),
        ({"log_dirs": (DIRECTORY, DIRECTORY)}, ErrorCode.invalid_registration),
        ({"log_dirs": (UUID(int=1),)}, ErrorCode.invalid_registration),
        ({"broker_id": 2}, ErrorCode.invalid_registration),
        ({"features": []}, ErrorCode.invalid_registration),
        (
            {"features": [{"name": "metadata.version", "min_supported_version": 1, "max_supported_version": 2}]},
            ErrorCode.unsupported_version,
        ),
    ],
)
def test_registrations_that_are_refused(fields: dict[str, Any], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        register_broker(one_broker(), me(**fields), "c")
    assert caught.value.code == code


def test_a_restarted_broker_leads_again_in_a_new_epoch() -> None:
    image = one_broker(*topic_records("t", 7, 2, leader_epoch=4))
    decision = register_broker(image, me(), "c")
    assert not decision.atomic
    after = apply(decision.records, image)
    assert after.brokers[1].fenced
    assert leaders(after) == [(-1, 5)] * 2
    decision = beat(after)
    assert not decision.atomic
    assert decision.response == {"error_code": 0, "is_caught_up": True, "is_fenced": False, "should_shut_down": False}
    assert leaders(apply(decision.records, after)) == [(1, 6)] * 2


def test_a_broker_stays_fenced_until_it_has_caught_up_with_its_registration() -> None:
    image = apply(register_broker(one_broker(), me(), "c").records, one_broker())
    behind = beat(image, current_metadata_offset=image.brokers[1].epoch - 1)
    assert (behind.response["is_caught_up"], behind.response["is_fenced"], list(behind.records)) == (False, True, [])
    asked_not = beat(image, want_fence=True)
    assert (asked_not.response["is_fenced"], list(asked_not.records)) == (True, [])


def test_a_heartbeat_that_changes_nothing_has_no_records() -> None:
    decision = beat(one_broker(*topic_records("t", 7, 2)))
    assert not decision.records
    assert not decision.response["is_fenced"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"broker_epoch": 77}, ErrorCode.stale_broker_epoch),
        ({"broker_id": 2, "broker_epoch": 1}, ErrorCode.stale_broker_epoch),
    ],
)
def test_heartbeats_of_those_who_are_not_registered(fields: dict[str, Any], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        beat(one_broker(), **fields)
    assert caught.value.code == code


OTHER = UUID(int=0xD2)


def two_brokers(*records: Any) -> MetadataImage:
    return one_broker(*broker_records(2, log_dirs=(OTHER,)), *records)


def shared(**fields: Any) -> list[Any]:
    """A topic with a replica on both of two brokers, led by the first."""
    return topic_records("t", 7, 1, **{"replicas": (1, 2), "isr": (1, 2), "directories": (DIRECTORY, OTHER), **fields})


def state(image: MetadataImage) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Leader, ISR and eligible leaders of the first partition."""
    found = image.partition("t", 0)
    assert found is not None
    return found.leader, found.isr, found.elr


def test_a_broker_that_is_fenced_leaves_the_isr_and_another_leads() -> None:
    image = two_brokers(*shared())
    after = apply(fence(image, 1).records, image)
    assert after.brokers[1].fenced
    assert state(after) == (2, (2,), ())
    assert not fence(after, 1).records
    assert not fence(image, 3).records


@pytest.mark.parametrize(
    ("known", "after"),
    [
        ({}, (2, (2,))),  # its leader is gone
        ({"leader": 2}, (2, (2,))),  # its follower is
        ({"leader": -1, "isr": (2,)}, (2, (2,))),  # nobody led, and one may
        ({"isr": (1,)}, (-1, (1,))),  # nobody may who runs
        ({"leader": 2, "isr": (2,)}, None),  # nothing has changed
    ],
)
def test_an_image_of_elsewhere_is_made_good(known: dict[str, Any], after: tuple[int, tuple[int, ...]] | None) -> None:
    """A new controller of a cluster in ZooKeeper reads who led; broker 1 has gone while nobody was the controller."""
    level = r.FeatureLevelRecord(features.ELR_VERSION, 0)  # as `znodes.state` gives it
    image = apply([r.UnregisterBrokerRecord(1, 1)], two_brokers(*shared(**known), level))
    made_good = at_once(broker_partitions.made_good(image, settings(image)))
    assert (state(apply(made_good, image))[:2] if made_good else None) == after


def test_who_leaves_too_small_an_isr_stays_eligible_to_lead() -> None:
    """KIP-966."""
    image = two_brokers(*shared(), r.ConfigRecord(2, "t", "min.insync.replicas", "2"))
    after = apply(fence(image, 1).records, image)
    assert state(after) == (2, (2,), (1,))
    gone = apply(fence(after, 2).records, after)
    assert state(gone) == (-1, (), (1, 2))
    assert state(apply(beat(gone, 2).records, gone)) == (2, (2,), (1,))


def test_nobody_is_eligible_while_the_isr_is_large_enough() -> None:
    """Also when it shrinks, and where `min.insync.replicas` is more than there are replicas."""
    three = broker_records(3, log_dirs=(UUID(int=0xD3),))
    directories = (DIRECTORY, OTHER, UUID(int=0xD3))
    image = two_brokers(
        *three,
        *topic_records("t", 7, replicas=(1, 2, 3), isr=(1, 2), directories=directories, eligible_leader_replicas=(3,)),
    )
    assert state(apply(fence(image, 1).records, image)) == (2, (2,), ())
    image = two_brokers(*shared(), r.ConfigRecord(2, "t", "min.insync.replicas", "5"))
    assert state(apply(fence(image, 1).records, image)) == (2, (2,), (1,))


def test_without_eligible_leaders_the_last_of_the_isr_stays_in_it() -> None:
    image = two_brokers(*shared(isr=(1,)), r.FeatureLevelRecord(features.ELR_VERSION, 0))
    after = apply(fence(image, 1).records, image)
    assert state(after) == (-1, (1,), ())
    assert state(apply(beat(after).records, after)) == (1, (1,), ())


def test_another_incarnation_takes_the_leadership_away_from_the_one_before() -> None:
    image = two_brokers(*shared())
    after = apply(register_broker(image, me(), "c").records, image)
    assert state(after) == (2, (2,), ())


def test_a_controlled_shutdown_gives_the_leadership_away_and_then_lets_go() -> None:
    image = two_brokers(*shared())
    decision = beat(image, want_shut_down=True)
    assert (decision.response["is_fenced"], decision.response["should_shut_down"]) == (False, False)
    image = apply(decision.records, image)
    assert state(image) == (2, (2,), ())
    assert image.brokers[1].in_controlled_shutdown
    decision = beat(image, want_shut_down=True)
    assert (decision.response["is_fenced"], decision.response["should_shut_down"]) == (True, True)
    image = apply(decision.records, image)
    assert image.brokers[1].fenced
    assert not beat(image, want_shut_down=True).records


def test_who_leaves_waits_until_the_others_have_heard_of_it() -> None:
    """Else a client could still be sent to it."""
    image = two_brokers(*shared())
    sessions = BrokerSessions(9)
    sessions.begin(image.brokers.values(), 0)
    for node_id in (1, 2):
        sessions.touch(node_id, node_id, 1, image.offset)
    first = apply(beat(image, sessions=sessions, want_shut_down=True).records, image)
    for offset in (-1, first.offset - 1):
        sessions.touch(2, 2, 2, offset)
        decision = beat(first, sessions=sessions, want_shut_down=True)
        assert not decision.records
        assert not decision.response["should_shut_down"]
    sessions.touch(2, 2, 3, first.offset)
    assert beat(first, sessions=sessions, want_shut_down=True).response["should_shut_down"]


def test_a_new_controller_lets_one_go_that_has_begun_to_stop() -> None:
    """Also where its predecessor wrote only the first records of that."""
    image = two_brokers(*shared())
    begun = beat(image, want_shut_down=True).records
    for known in (begun[:1], begun):
        after = apply(known, image)
        decision = beat(after, want_shut_down=True)
        after = apply(decision.records, after)
        assert state(after) == (2, (2,), ())
        assert decision.response["should_shut_down"] == (known is begun)


def test_alone_a_broker_leaves_partitions_without_a_leader_and_leads_them_on_its_return() -> None:
    image = one_broker(*topic_records("t", 7, 2))
    decision = beat(image, want_shut_down=True)
    assert not decision.response["should_shut_down"]
    after = apply(decision.records, image)
    assert state(after) == (-1, (), (1,))
    decision = beat(after, want_shut_down=True)
    assert decision.response["should_shut_down"]
    (record,) = decision.records
    after = apply([record], after)
    assert after.brokers[1].fenced and after.brokers[1].in_controlled_shutdown
    clean = back(after, previous_broker_epoch=after.brokers[1].epoch)
    assert state(clean) == (1, (1,), ())
    assert clean.partition("t", 0).recovery_state == 0  # type: ignore[union-attr]


def test_a_killed_broker_is_eligible_nowhere_and_elected_uncleanly_where_there_is_nobody_else() -> None:
    """It may have lost what it had not fsynced (KIP-966)."""
    image = two_brokers(*shared(), r.ConfigRecord(2, "t", "min.insync.replicas", "2"), *topic_records("alone", 8))
    fenced = apply(fence(image, 1).records, image)
    assert state(fenced) == (2, (2,), (1,))
    registered = apply(register_broker(fenced, me(previous_broker_epoch=-1), "c").records, fenced)
    assert state(registered) == (2, (2,), ())
    alone = registered.partition("alone", 0)
    assert alone is not None
    assert (alone.leader, alone.isr, alone.elr, alone.last_known_elr) == (-1, (), (), (1,))
    alone = apply(beat(registered).records, registered).partition("alone", 0)
    assert alone is not None
    assert (alone.leader, alone.isr, alone.last_known_elr, alone.recovery_state) == (1, (1,), (), 1)


def test_a_clean_restart_loses_nothing() -> None:
    """A broker that is too old to say that it was one is not believed."""
    image = two_brokers(*shared(), r.ConfigRecord(2, "t", "min.insync.replicas", "2"))
    image = apply(fence(image, 1).records, image)
    for said, eligible in (({"previous_broker_epoch": 1}, (1,)), ({"previous_broker_epoch": 7}, ()), ({}, ())):
        after = apply(register_broker(image, me(**said), "c").records, image)
        assert state(after) == (2, (2,), eligible)


def test_a_broker_with_thousands_of_partitions_comes_and_goes_in_steps() -> None:
    image = two_brokers(
        *shared(), *topic_records("u", 8, 1000, replicas=(1, 2), isr=(1, 2), directories=(DIRECTORY, OTHER))
    )
    config, sessions = settings(image), BrokerSessions(9)
    asked = {"broker_id": 1, "broker_epoch": 1, "current_metadata_offset": 5, "want_fence": False}
    gone = apply(fence(apply(fence(image, 2).records, image), 1).records, image)
    assert state(gone)[0] == -1
    for steps in (
        brokers.fence(image, 1, config),
        brokers.register_broker(image, me(), "c", config),
        brokers.unregister_broker(image, {"broker_id": 1}, config),
        brokers.heartbeat(image, {**asked, "want_shut_down": True}, config, sessions),
        brokers.heartbeat(gone, {**asked, "want_shut_down": False}, config, sessions),
    ):
        assert sum(1 for _ in steps) >= 1001 // broker_partitions.CHANGES_PER_STEP


def test_a_failed_directory_is_as_a_broker_that_is_gone_for_what_is_in_it() -> None:
    """KIP-858."""
    spare = UUID(int=0xD9)
    image = apply(broker_records(1, log_dirs=(DIRECTORY, spare)), two_brokers(*shared(), *topic_records("u", 8)))
    image = apply(assigned(image, {(UUID(int=8), 0): spare}).records, image)
    after = apply(beat(image, offline_log_dirs=(spare,)).records, image)
    assert state(after) == (1, (1, 2), ())
    lost = after.partition("u", 0)
    assert lost is not None
    assert (lost.leader, lost.isr, lost.elr) == (-1, (), (1,))
    assert after.brokers[1].log_dirs == (DIRECTORY,)
    assert not beat(after, offline_log_dirs=(spare,)).records
    assert not after.brokers[1].fenced


def test_a_broker_without_any_directory_is_fenced() -> None:
    image = two_brokers(*shared())
    after = apply(beat(image, offline_log_dirs=(DIRECTORY,)).records, image)
    assert after.brokers[1].fenced
    assert state(after) == (2, (2,), ())
    decision = beat(after, offline_log_dirs=(DIRECTORY,))
    assert decision.response["is_fenced"]
    assert not decision.records


def test_a_heartbeat_says_which_directories_take_no_new_partitions() -> None:
    """KIP-1066."""
    image = one_broker()
    after = apply(beat(image, cordoned_log_dirs=(DIRECTORY,)).records, image)
    assert after.brokers[1].cordoned_log_dirs == (DIRECTORY,)
    assert not beat(after, cordoned_log_dirs=(DIRECTORY,)).records
    assert not beat(after, cordoned_log_dirs=None).records
    assert apply(beat(after, cordoned_log_dirs=()).records, after).brokers[1].cordoned_log_dirs == ()


def test_a_broker_is_unregistered() -> None:
    image = two_brokers(*shared())
    after = apply(unregister_broker(image, {"broker_id": 1}).records, image)
    assert list(after.brokers) == [2]
    assert state(after) == (2, (2,), ())
    with pytest.raises(KafkaError) as caught:
        unregister_broker(after, {"broker_id": 1})
    assert caught.value.code == ErrorCode.broker_id_not_registered


def assigned(image: MetadataImage, where: dict[tuple[UUID, int], UUID]) -> Decision[Any]:
    asked = directories.assignment_request(1, image.brokers[1].epoch, where)
    return at_once(directories.assign_replicas_to_dirs(image, asked, settings(image)))


def test_replicas_are_assigned_to_directories() -> None:
    image = one_broker(*topic_records("t", 7, 2))
    key, gone, beyond = (UUID(int=7), 1), (UUID(int=70), 0), (UUID(int=7), 5)
    image = apply(broker_records(1, log_dirs=(DIRECTORY, UUID(int=500))), image)
    decision = assigned(image, dict.fromkeys((key, gone, beyond), UUID(int=500)))
    (record,) = decision.records
    after = apply([record], image)
    assert after.partition("t", 1).directory(1) == UUID(int=500)  # type: ignore[union-attr]
    assert not assigned(after, {key: UUID(int=500)}).records
    after = apply(assigned(after, {key: UUID(int=501)}).records, after)
    assert leaders(after) == [(1, 0), (-1, 1)], "a directory that the broker did not register is none"
    ((known, unknown),) = [row["topics"] for row in decision.response["directories"]]
    assert [each["error_code"] for each in known["partitions"]] == [0, ErrorCode.unknown_topic_or_partition]
    assert [each["error_code"] for each in unknown["partitions"]] == [ErrorCode.unknown_topic_id]


def test_a_replica_whose_log_is_lost_is_no_eligible_leader_unless_it_is_the_last() -> None:
    """Its broker gives a damaged log up where others are in sync (DirectoryId.LOST), and has not what was committed."""
    two_required = r.ConfigRecord(4, "", "min.insync.replicas", "2")
    elr = r.FeatureLevelRecord(features.ELR_VERSION, 1)
    image = two_brokers(elr, two_required, *shared())
    place = (UUID(int=7), 0)
    after = apply(assigned(image, {place: DIRECTORY_LOST}).records, image)
    assert state(after) == (2, (2,), ())
    after = apply(assigned(image, {place: UUID(int=99)}).records, image)
    assert state(after) == (2, (2,), (1,)), "a directory that failed may come back with what was in it"
    image = two_brokers(elr, two_required, *shared(isr=(1,)))
    after = apply(assigned(image, {place: DIRECTORY_LOST}).records, image)
    assert state(after) == (-1, (), (1,))
    after = apply(assigned(after, {place: DIRECTORY}).records, after)
    assert state(after) == (1, (1,), ()), "it says once where it is, and leads"


def test_producer_ids_come_in_blocks_of_a_thousand() -> None:
    image = one_broker(r.ProducerIdsRecord(1, 1, 5000))
    asked = {"broker_id": 1, "broker_epoch": image.brokers[1].epoch}
    decision = producer_ids.allocate(image, asked)
    assert decision.response == {"error_code": 0, "producer_id_start": 5000, "producer_id_len": 1000}
    assert list(decision.records) == [r.ProducerIdsRecord(1, 1, 6000)]
    with pytest.raises(KafkaError):
        producer_ids.allocate(one_broker(r.ProducerIdsRecord(1, 1, (1 << 63) - 5)), asked)


def test_a_new_cluster_finalizes_its_features_in_one_transaction() -> None:
    records = list(bootstrap(EMPTY_IMAGE, features.BOOTSTRAP, "1").records)
    assert isinstance(records[0], r.BeginTransactionRecord)
    assert records[1] == r.FeatureLevelRecord("metadata.version", 33)
    assert records[-2] == r.ConfigRecord(4, "", "min.insync.replicas", "1")
    assert isinstance(records[-1], r.EndTransactionRecord)
    assert not bootstrap(EMPTY_IMAGE, {}, "1").records


def test_an_old_metadata_version_has_no_transactions_and_no_eligible_replicas() -> None:
    records = list(bootstrap(EMPTY_IMAGE, {"metadata.version": 8}, "1").records)
    assert records == [r.FeatureLevelRecord("metadata.version", 8)]
    assert not brokers.register_controller(apply(records), {"controller_id": 1, **me()}).records


def test_what_is_in_a_lost_directory_has_no_leader_until_it_is_back() -> None:
    """KIP-858: the broker registers the directories that it can use."""
    other, lost = UUID(int=177), UUID(int=178)
    image = one_broker(*topic_records("t", 7, 2))
    topic = image.topic("t")
    assert topic is not None
    image = apply(assigned(image, {(topic.id, 1): lost}).records, image)
    image = back(image, incarnation_id=UUID(int=91), log_dirs=(DIRECTORY, other))
    assert [leader for leader, _ in leaders(image)] == [1, -1]
    image = back(image, incarnation_id=UUID(int=93), log_dirs=(DIRECTORY, lost))
    assert [leader for leader, _ in leaders(image)] == [1, 1]


def test_a_controller_that_registers_again_unchanged_writes_nothing() -> None:
    asked = {"controller_id": 1, **me()}
    image = one_broker()
    image = apply(brokers.register_controller(image, asked).records, image)
    assert image.controllers[1].endpoints == {"PLAINTEXT": Endpoint("h", 1)}
    assert not brokers.register_controller(image, asked).records


def test_a_controllers_registration_is_removed() -> None:
    """Errors and sentences of Kafka 4.4: the active one first, then the level."""

    def ask(image: MetadataImage, node: int) -> Decision[Any]:
        return brokers.unregister_controller(image, {"controller_id": node}, 1)

    two = [r.RegisterControllerRecord(controller_id=each) for each in (1, 2)]
    image = apply([*feature_records(33), *two])
    assert list(ask(image, 2).records) == [r.UnregisterControllerRecord(2)]
    old = apply([*feature_records(32), *two])
    for where, node, code in (
        (old, 1, ErrorCode.invalid_request),
        (old, 2, ErrorCode.unsupported_version),
        (image, 1, ErrorCode.invalid_request),
        (image, 3, ErrorCode.controller_id_not_registered),
    ):
        with pytest.raises(KafkaError) as caught:
            ask(where, node)
        assert caught.value.code == code
