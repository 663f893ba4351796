"""Questions about in-sync sets, over a channel that a test answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import UUID

import pytest

from ottla.drivers.replication.isr_updater import RETRY_BACKOFF_S, IsrUpdater
from ottla.errors import ErrorCode, KafkaError
from ottla.metrics.instruments import NodeMetrics
from ottla.model import TopicPartition
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.replication.partition import Partition
from tests.unit.drivers.parts import run_virtual, turns
from tests.unit.replication.numbers_log import NumbersLog, append, registration

NEWEST = 3
TOPICS = UUID(int=1), UUID(int=2)


def leads(number: int = 0, topic_id: UUID = TOPICS[0], isr: tuple[int, ...] = (1, 2)) -> Partition:
    log: Any = NumbersLog()
    partition = Partition(1, TopicPartition("t", number), topic_id, log, {1: 41, 2: 42, 3: 43}.get)  # type: ignore[arg-type]
    partition.update(registration(isr=isr))
    return partition


def fetched(partition: Partition, replica_id: int, end_offset: int) -> None:
    partition.on_follower_fetch(replica_id, end_offset, partition.leader_epoch, 0, broker_epoch=40 + replica_id)


Rows = dict[tuple[UUID, int], dict[str, Any]]


def agreed(rows: Rows) -> dict[str, Any]:
    """What a controller says that does all that it is asked."""
    return answered(
        {
            key: {
                "error_code": 0,
                "leader_epoch": row["leader_epoch"],
                "partition_epoch": row["partition_epoch"] + 1,
                "isr": [each["broker_id"] for each in row["new_isr_with_epochs"]],
            }
            for key, row in rows.items()
        }
    )


def refused(code: ErrorCode) -> Callable[[Rows], dict[str, Any]]:
    def answer(rows: Rows) -> dict[str, Any]:
        row = {"error_code": code, "leader_epoch": -1, "partition_epoch": -1, "isr": []}
        return answered(dict.fromkeys(rows, row))

    return answer


def answered(rows: Rows) -> dict[str, Any]:
    topics = [
        {"topic_id": topic_id, "partitions": [{"partition_index": number, **row}]}
        for (topic_id, number), row in rows.items()
    ]
    return {"error_code": 0, "topics": topics}


class Channel:
    """Answers by what it is told to, in order, and by the last of it for ever. Requests go through Kafka's schema."""

    def __init__(self, *answers: Callable[[Rows], dict[str, Any]] | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[dict[str, Any]] = []
        self.times: list[float] = []
        self.gate = asyncio.Event()
        """Answers wait while it is closed."""
        self.gate.set()

    def rows(self, number: int = -1) -> Rows:
        topics = self.requests[number]["topics"]
        return {(each["topic_id"], row["partition_index"]): row for each in topics for row in each["partitions"]}

    async def send(self, api_key: ApiKey, request: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        assert api_key is ApiKey.ALTER_PARTITION
        frame = messages.encode_request(api_key, NEWEST, 1, None, request)
        decoded = messages.decode_request(api_key, NEWEST, frame, messages.read_header(frame).body_offset)
        self.requests.append(messages.plain(decoded))
        self.times.append(asyncio.get_running_loop().time())
        rows = self.rows()
        await self.gate.wait()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer(rows)


Test = Callable[[IsrUpdater, Channel, NodeMetrics], Awaitable[None]]


def with_answers(*answers: Callable[[Rows], dict[str, Any]] | Exception) -> Callable[[Test], None]:
    """Run a test at once, in virtual time."""

    def run(test: Test) -> None:
        async def main() -> None:
            channel, metrics = Channel(*answers), NodeMetrics()
            updater = IsrUpdater(channel, 1, lambda: 41, metrics)
            await test(updater, channel, metrics)
            await updater.stop()

        run_virtual(main())

    return run


def test_questions_of_one_moment_go_together_and_one_request_at_a_time() -> None:
    @with_answers(agreed)
    async def _(updater: IsrUpdater, channel: Channel, metrics: NodeMetrics) -> None:
        one, two, three, four = (leads(number, TOPICS[number // 2]) for number in range(4))
        fetched(two, 3, 0)
        channel.gate.clear()
        updater.ask(one, (1,))
        updater.ask(two, (1, 2, 3))
        updater.ask(three, (1,))
        await turns()
        assert len(channel.requests) == 1
        updater.ask(four, (1,))
        await turns()
        assert len(channel.requests) == 1, "the first is not answered yet"
        channel.gate.set()
        await turns()
        first, second = channel.rows(0), channel.rows(1)
        assert set(first) == {(TOPICS[0], 0), (TOPICS[0], 1), (TOPICS[1], 2)} and set(second) == {(TOPICS[1], 3)}
        assert (channel.requests[0]["broker_id"], channel.requests[0]["broker_epoch"]) == (1, 41)
        joins = first[TOPICS[0], 1]["new_isr_with_epochs"]
        assert [(each["broker_id"], each["broker_epoch"]) for each in joins] == [(1, 41), (2, -1), (3, 43)]
        assert [each.isr for each in (one, two, three, four)] == [(1,), (1, 2, 3), (1,), (1,)]
        assert [each.partition_epoch for each in (one, two, three, four)] == [1] * 4
        assert (metrics.isr_shrinks, metrics.isr_expands, metrics.failed_isr_updates) == (3, 1, 0)


@pytest.mark.parametrize("code", [ErrorCode.ineligible_replica, ErrorCode.operation_not_attempted])
def test_what_is_refused_is_withdrawn(code: ErrorCode) -> None:
    """The replica that was to join is waited for no more, and it may ask again."""

    @with_answers(refused(code))
    async def _(updater: IsrUpdater, channel: Channel, metrics: NodeMetrics) -> None:
        partition = leads(isr=(1,))
        partition.lag_ms_max = -1  # else 3 counts as one that is just about to join
        updater.ask(partition, (1, 3))
        told = append(partition)
        assert told.errors == [], "it may be in the set already"
        await turns()
        assert (partition.isr, told.errors) == ((1,), [ErrorCode.none])
        assert partition.log.high_watermark == 1
        await asyncio.sleep(60)
        assert len(channel.requests) == 1 and metrics.failed_isr_updates == 1
        fetched(partition, 3, 1)
        assert partition.grown_isr(3) == (1, 3)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.invalid_update_version,
        ErrorCode.invalid_request,
        ErrorCode.new_leader_elected,
    ],
)
def test_what_is_outdated_leaves_both_sets_until_the_metadata_comes(code: ErrorCode) -> None:
    @with_answers(refused(code))
    async def _(updater: IsrUpdater, channel: Channel, metrics: NodeMetrics) -> None:
        grows, shrinks = leads(0, isr=(1,)), leads(1, isr=(1, 2))
        grows.lag_ms_max = -1
        updater.ask(grows, (1, 3))
        updater.ask(shrinks, (1,))
        told = append(grows), append(shrinks)
        await asyncio.sleep(60)
        assert len(channel.requests) == 1 and metrics.failed_isr_updates == 2
        assert [each.errors for each in told] == [[], []]
        assert (grows.grown_isr(3), shrinks.shrunk_isr(1_000_000)) == (None, None), "a question is open"
        grows.update(registration(partition_epoch=1, isr=(1,)))
        shrinks.update(registration(partition_epoch=1, isr=(1,)))
        assert [each.errors for each in told] == [[ErrorCode.none]] * 2


def without_an_answer(rows: Rows) -> dict[str, Any]:
    return answered({})


def not_the_controller(rows: Rows) -> dict[str, Any]:
    return {"error_code": ErrorCode.not_controller, "topics": []}


@pytest.mark.parametrize(
    "first",
    [
        without_an_answer,
        not_the_controller,
        refused(ErrorCode.unknown_server_error),
        KafkaError(ErrorCode.not_controller),
        KafkaError(ErrorCode.network_exception),
        KafkaError(ErrorCode.request_timed_out),
        KeyError("a bug"),
    ],
)
def test_what_is_not_decided_is_asked_again(first: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is committed meanwhile without those of the larger set, and it is said once."""

    @with_answers(first, first, first, agreed)
    async def _(updater: IsrUpdater, channel: Channel, metrics: NodeMetrics) -> None:
        partition = leads(isr=(1, 2))
        told = append(partition)
        updater.ask(partition, (1,))
        await turns()
        assert len(channel.requests) == 1 and told.errors == []
        await asyncio.sleep(2.5 * RETRY_BACKOFF_S)
        assert len(channel.requests) == 3 and told.errors == []
        await asyncio.sleep(60)
        assert len(channel.requests) == 4
        gaps = [after - before for before, after in zip(channel.times, channel.times[1:], strict=False)]
        assert gaps == pytest.approx([RETRY_BACKOFF_S] * 3)
        assert all(channel.rows(number) == channel.rows(0) for number in range(4))
        assert (partition.isr, told.errors) == ((1,), [ErrorCode.none])
        assert [each.levelno for each in caplog.records].count(logging.WARNING) <= 1
        bugs = [each for each in caplog.records if each.levelno == logging.ERROR]
        assert len(bugs) == (3 if isinstance(first, KeyError) else 0)


def test_an_old_question_is_asked_no_more() -> None:
    """The metadata said something newer while there was no answer."""

    @with_answers(KafkaError(ErrorCode.not_controller))
    async def _(updater: IsrUpdater, channel: Channel, metrics: NodeMetrics) -> None:
        partition, lost = leads(0), leads(1)
        for each in (partition, lost):
            updater.ask(each, (1,))
        await turns()
        assert len(channel.requests) == 1
        partition.update(registration(partition_epoch=1, isr=(1, 2)))
        lost.update(registration(leader=2, epoch=1, partition_epoch=1, isr=(2,)))
        await asyncio.sleep(60)
        assert len(channel.requests) == 1
        updater.ask(partition, (1,))
        await turns()
        ((key, row),) = channel.rows().items()
        assert key == (TOPICS[0], 0) and row["partition_epoch"] == 1


def test_a_late_answer_does_not_undo_what_the_metadata_said() -> None:
    @with_answers(agreed, refused(ErrorCode.ineligible_replica))
    async def _(updater: IsrUpdater, channel: Channel, metrics: NodeMetrics) -> None:
        partition = leads(isr=(1, 2))
        for _turn in range(2):
            channel.gate.clear()
            updater.ask(partition, (1,))
            await turns()
            newer = partition.partition_epoch + 5
            partition.update(registration(partition_epoch=newer, isr=(1, 2, 3)))
            partition.propose_isr((1, 2))
            channel.gate.set()
            await turns()
            assert (partition.isr, partition.partition_epoch) == ((1, 2, 3), newer)
            assert partition.shrunk_isr(1_000_000) is None, "the question after it is still open"
            partition.withdraw_isr()
        assert len(channel.requests) == 2


def test_stopping_ends_the_questions() -> None:
    @with_answers(KafkaError(ErrorCode.not_controller))
    async def _(updater: IsrUpdater, channel: Channel, metrics: NodeMetrics) -> None:
        await updater.stop()  # with nothing asked
        updater.ask(leads(), (1,))
        await asyncio.sleep(RETRY_BACKOFF_S * 3.5)
        asked = len(channel.requests)
        await updater.stop()
        await asyncio.sleep(60)
        assert len(channel.requests) == asked == 4
