"""The broker's life over a channel that a test answers: it may as well lead to another machine."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from ottla.drivers.coordinators.producer_ids import ProducerIds
from ottla.drivers.metadata.broker_lifecycle import (
    SHUTDOWN_ANSWER_S,
    SHUTDOWN_TIMEOUT_S,
    BrokerLifecycle,
    BrokerSettings,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from tests.unit.drivers.parts import ENDPOINTS, new_disk, parts, run_virtual

UP = {"error_code": 0, "is_caught_up": True, "is_fenced": False, "should_shut_down": False}
FENCED = {**UP, "is_fenced": True}
SETTINGS = BrokerSettings(1, "cluster", "rack", 2.0, 60.0)
DIRECTORIES = {"/data": UUID(int=500)}


class Channel:
    """Answers what it is told to, in order, and the last of it for ever (an event: once that is set); every request
    goes through Kafka's schema."""

    def __init__(self, *answers: dict[str, Any] | KafkaError | asyncio.Event) -> None:
        self.answers = list(answers)
        self.requests: list[tuple[ApiKey, dict[str, Any], float]] = []

    async def send(self, api_key: ApiKey, request: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        newest = {ApiKey.BROKER_REGISTRATION: 4, ApiKey.BROKER_HEARTBEAT: 2}.get(api_key, 0)
        frame = messages.encode_request(api_key, newest, 1, None, request)
        decoded = messages.decode_request(api_key, newest, frame, messages.read_header(frame).body_offset)
        self.requests.append((api_key, messages.plain(decoded), asyncio.get_running_loop().time()))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, KafkaError):
            raise answer
        if isinstance(answer, asyncio.Event):
            await answer.wait()
            return UP
        return answer

    def beats(self) -> list[dict[str, Any]]:
        return [request for key, request, _ in self.requests if key is ApiKey.BROKER_HEARTBEAT]


def lifecycle(channel: Channel, offset: int = 77) -> BrokerLifecycle:
    return BrokerLifecycle(channel, random.Random(1), SETTINGS, lambda: offset)


def test_it_registers_and_is_unfenced_and_goes_on_with_heartbeats() -> None:
    async def main() -> None:
        channel = Channel({"error_code": 0, "broker_epoch": 12}, FENCED, FENCED, UP)
        life = lifecycle(channel)
        await life.register(ENDPOINTS, DIRECTORIES, previous_epoch=5)
        assert life.broker_epoch == 12 and life.fenced
        (_, request, _) = channel.requests[0]
        assert (request["broker_id"], request["cluster_id"], request["rack"]) == (1, "cluster", "rack")
        assert request["listeners"] == [
            {"name": "PLAINTEXT", "host": "127.0.0.1", "port": 9092, "security_protocol": 0}
        ]
        assert request["log_dirs"] == [UUID(int=500)] and request["previous_broker_epoch"] == 5
        await life.unfence()
        assert not life.fenced and len(channel.beats()) == 3
        await asyncio.sleep(20.5)
        times = [at_s for key, _, at_s in channel.requests if key is ApiKey.BROKER_HEARTBEAT]
        gaps = [round(after - before, 6) for before, after in pairwise(times[2:])]
        assert gaps == [2.0] * 10
        assert all(beat["broker_epoch"] == 12 and beat["current_metadata_offset"] == 77 for beat in channel.beats())
        channel.answers = [{**UP, "is_fenced": True, "should_shut_down": True}]
        await life.stop()

    run_virtual(main())


def test_a_controller_that_is_not_there_yet_is_asked_again() -> None:
    async def main() -> None:
        away = [KafkaError(code) for code in (ErrorCode.not_controller, ErrorCode.request_timed_out)]
        busy = {"error_code": ErrorCode.duplicate_broker_registration, "broker_epoch": -1}
        channel = Channel(*away, busy, {"error_code": 0, "broker_epoch": 3})
        life = lifecycle(channel)
        await life.register(ENDPOINTS, DIRECTORIES)
        assert (life.broker_epoch, len(channel.requests)) == (3, 4)

    run_virtual(main())


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (KafkaError(ErrorCode.inconsistent_cluster_id), ErrorCode.inconsistent_cluster_id),
        ({"error_code": ErrorCode.invalid_registration, "broker_epoch": -1}, ErrorCode.invalid_registration),
    ],
)
def test_a_registration_that_is_refused_is_not_tried_again(answer: Any, code: ErrorCode) -> None:
    async def main() -> None:
        channel = Channel(answer)
        with pytest.raises(KafkaError) as caught:
            await lifecycle(channel).register(ENDPOINTS, DIRECTORIES)
        assert (caught.value.code, len(channel.requests)) == (code, 1)

    run_virtual(main())


def test_after_a_while_it_gives_up() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        channel = Channel(KafkaError(ErrorCode.not_controller))
        with pytest.raises(KafkaError):
            await lifecycle(channel).register(ENDPOINTS, DIRECTORIES)
        assert loop.time() - began_s == pytest.approx(SETTINGS.registration_timeout_s, abs=1)
        assert len(channel.requests) > 10

    run_virtual(main())


def test_heartbeats_that_fail_are_logged_once_and_go_on(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        channel = Channel({"error_code": 0, "broker_epoch": 12}, UP)
        life = lifecycle(channel)
        await life.register(ENDPOINTS, DIRECTORIES)
        await life.unfence()
        channel.answers = [KafkaError(ErrorCode.not_controller, "nobody leads")]
        await asyncio.sleep(10)
        channel.answers = [FENCED]
        await asyncio.sleep(2)
        assert life.fenced
        channel.answers = [UP]
        await asyncio.sleep(2)
        assert not life.fenced
        channel.answers = [{**UP, "should_shut_down": True}]
        await life.stop()

    with caplog.at_level(logging.WARNING, "ottla.node"):
        run_virtual(main())
    assert [record.getMessage() for record in caplog.records] == [
        "a heartbeat to the controller failed",
        "the controller has fenced this broker",
        "this broker is unfenced",
    ]


def test_it_stops_when_the_controller_lets_it_go() -> None:
    async def main() -> None:
        channel = Channel({"error_code": 0, "broker_epoch": 12}, UP, UP, UP, {**UP, "should_shut_down": True})
        life = lifecycle(channel)
        await life.register(ENDPOINTS, DIRECTORIES)
        await life.unfence()
        await life.stop()
        assert [beat["want_shut_down"] for beat in channel.beats()] == [False, True, True, True]
        await asyncio.sleep(30)
        assert len(channel.beats()) == 4, "no heartbeat after the last"

    run_virtual(main())


@pytest.mark.parametrize("answer", [KafkaError(ErrorCode.not_controller), UP])
def test_it_stops_without_a_controller_too(answer: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        channel = Channel({"error_code": 0, "broker_epoch": 12}, UP)
        life = lifecycle(channel)
        await life.register(ENDPOINTS, DIRECTORIES)
        await life.unfence()
        channel.answers = [answer]
        began_s = loop.time()
        await life.stop()
        assert loop.time() - began_s <= SHUTDOWN_TIMEOUT_S

    run_virtual(main())


@pytest.mark.parametrize(("deserted_after_s", "takes_s"), [(0.2, 0.2), (5.0, SHUTDOWN_ANSWER_S)])
def test_it_waits_for_no_answer_that_cannot_come(deserted_after_s: float, takes_s: float) -> None:
    """All nodes of a cluster stop together; a controller that is only slow is waited for."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        channel = Channel({"error_code": 0, "broker_epoch": 12}, UP)
        life = lifecycle(channel)
        await life.register(ENDPOINTS, DIRECTORIES)
        await life.unfence()
        channel.answers = [asyncio.Event()]
        began_s = loop.time()
        await life.stop(lambda: asyncio.sleep(deserted_after_s))
        assert loop.time() - began_s == pytest.approx(takes_s)
        assert channel.beats()[-1]["want_shut_down"]
        assert len(asyncio.all_tasks()) == 1, "nothing goes on"

    run_virtual(main())


def test_one_that_never_registered_has_nothing_to_say() -> None:
    async def main() -> None:
        channel = Channel(UP)
        await lifecycle(channel).stop()
        assert channel.requests == []

    run_virtual(main())


def test_directories_are_assigned_in_one_request() -> None:
    async def main() -> None:
        channel = Channel({"error_code": 0, "broker_epoch": 12}, {"error_code": 0, "directories": []})
        life = lifecycle(channel)
        await life.register(ENDPOINTS, DIRECTORIES)
        topic, directory = UUID(int=7), UUID(int=500)
        await life.assign_directories({(topic, 0): directory, (topic, 3): directory})
        _, request, _ = channel.requests[-1]
        assert request["broker_epoch"] == 12
        partitions = [{"partition_index": 0}, {"partition_index": 3}]
        assert request["directories"] == [{"id": directory, "topics": [{"topic_id": topic, "partitions": partitions}]}]

    run_virtual(main())


def test_producer_ids_come_from_blocks_that_are_asked_for_when_one_is_used_up() -> None:
    async def main() -> None:
        block = {"error_code": 0, "producer_id_start": 1000, "producer_id_len": 3}
        channel = Channel(block, {**block, "producer_id_start": 5000}, {"error_code": ErrorCode.stale_broker_epoch})
        ids = ProducerIds(channel, 1, lifecycle(channel))
        found = await asyncio.gather(*(ids.next() for _ in range(5)))
        assert found == [1000, 1001, 1002, 5000, 5001]
        assert len(channel.requests) == 2
        assert await ids.next() == 5002
        with pytest.raises(KafkaError) as caught:
            await ids.next()
        assert caught.value.code == ErrorCode.coordinator_load_in_progress  # as Kafka: not the client's affair

    run_virtual(main())


def test_a_node_that_is_both_beats_without_a_record_and_never_fences_itself() -> None:
    """Also when its machine slept for an hour."""

    async def main() -> None:
        node = parts(new_disk())
        await node.start()
        await node.register_broker()
        loop: Any = asyncio.get_running_loop()
        end = node.quorum.end_offset
        sent = []
        send = node.channel.send

        async def counted(api_key: ApiKey, request: Mapping[str, Any], **more: Any) -> Mapping[str, Any]:
            sent.append(api_key)
            return await send(api_key, request, **more)

        node.channel.send = counted  # type: ignore[method-assign]
        await asyncio.sleep(60)
        loop.now_s += 3600
        await asyncio.sleep(60)
        assert sent.count(ApiKey.BROKER_HEARTBEAT) == len(sent) >= 59
        assert node.quorum.end_offset == end
        assert not node.image.brokers[1].fenced
        await node.stop()
        assert node.image.brokers[1].fenced

    run_virtual(main())


def test_heartbeats_name_cordoned_directories() -> None:
    """KIP-1066."""

    async def main() -> None:
        channel = Channel({"error_code": 0, "broker_epoch": 12}, UP)
        life = lifecycle(channel)
        await life.register(ENDPOINTS, DIRECTORIES)
        await life.unfence()
        assert channel.beats()[-1]["cordoned_log_dirs"] is None
        await asyncio.sleep(0.1)
        life.cordoned = lambda: (UUID(int=500),)
        life.say_now()
        await asyncio.sleep(0.1)
        assert [each["cordoned_log_dirs"] for each in channel.beats()] == [None, [UUID(int=500)]]
        channel.answers = [{**UP, "is_fenced": True, "should_shut_down": True}]
        await life.stop()

    run_virtual(main())


@pytest.mark.parametrize("answers_after_s", [None, 25.0, 35.0])
def test_who_cannot_report_a_failed_directory_in_time_says_so(answers_after_s: float | None) -> None:
    """`log.dir.failure.timeout.ms`: 30 s, whatever other directories did."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        channel = Channel({"error_code": 0, "broker_epoch": 12}, UP)
        life = lifecycle(channel)
        unreported: list[tuple[UUID, float]] = []
        life.on_unreported = lambda directory_id: unreported.append((directory_id, loop.time()))
        await life.register(ENDPOINTS, DIRECTORIES)
        await life.unfence()
        life.directory_failed(UUID(int=500))
        await life.reported(UUID(int=500))
        channel.answers = [KafkaError(ErrorCode.network_exception)]
        await asyncio.sleep(10)
        began_s = loop.time()
        life.directory_failed(UUID(int=501))
        if answers_after_s is not None:
            loop.call_later(answers_after_s, channel.answers.__setitem__, 0, UP)
        await asyncio.sleep(60)
        late = answers_after_s is None or answers_after_s > 30
        assert unreported == ([(UUID(int=501), began_s + 30)] if late else [])
        channel.answers = [{**UP, "is_fenced": True, "should_shut_down": True}]
        await life.stop()

    run_virtual(main())


def test_a_failed_directory_is_no_reason_to_stop_once_more() -> None:
    async def main() -> None:
        channel = Channel({"error_code": 0, "broker_epoch": 12}, UP)
        life = lifecycle(channel)
        unreported: list[UUID] = []
        life.on_unreported = unreported.append
        await life.register(ENDPOINTS, DIRECTORIES)
        await life.unfence()
        channel.answers = [KafkaError(ErrorCode.network_exception)]
        life.directory_failed(UUID(int=500))
        await life.stop()
        await asyncio.sleep(60)
        assert unreported == []

    run_virtual(main())


def test_a_failed_directory_is_reported_at_once_and_from_then_on() -> None:
    """KIP-858: not with the next regular heartbeat, during which others could lead."""

    async def main() -> None:
        channel = Channel({"error_code": 0, "broker_epoch": 12}, UP)
        life = lifecycle(channel)
        await life.register(ENDPOINTS, DIRECTORIES)
        await life.unfence()
        assert channel.beats()[-1]["offline_log_dirs"] == []
        await asyncio.sleep(0.1)
        failed = UUID(int=500)
        life.directory_failed(failed)
        await asyncio.sleep(0.1)
        assert [each["offline_log_dirs"] for each in channel.beats()] == [[], [failed]]
        channel.answers = [KafkaError(ErrorCode.not_controller)]
        life.directory_failed(UUID(int=501))
        await asyncio.sleep(0.1)
        assert len(channel.beats()) == 3, "what is refused is said again with the regular ones"
        channel.answers = [UP]
        await asyncio.sleep(2)
        assert channel.beats()[-1]["offline_log_dirs"] == [failed, UUID(int=501)]
        channel.answers = [{**UP, "is_fenced": True, "should_shut_down": True}]
        await life.stop()

    run_virtual(main())
