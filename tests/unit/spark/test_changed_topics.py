"""Topics that change under a query: every change, at every moment of a micro-batch, for every way to subscribe.

The source runs under a driver that keeps offsets and commits as Spark does, against a cluster that remembers for each
record which of the topics of that name had it. What is read is compared with what was written:
with `failOnDataLoss` a query fails or has read every record once, without it a warning says so where it has not, and
of the topics that are there at the end every record is read once.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable
from contextlib import nullcontext
from random import Random
from typing import Any, Final

import pytest

pytest.importorskip("pyspark", reason="Spark is not set up: no pyspark here")

from ottla.client.fetcher import NoProgress
from ottla.errors import KafkaError
from ottla.spark import connection_pool, stream
from ottla.spark import reader as reading
from ottla.spark.offsets import of_checkpoint, to_topics
from ottla.spark.planning import DataLoss
from tests.unit.spark.changing import TOPIC, Log, Query, Record, Simulated, fetched

Change = Callable[[Simulated], None]


def _again(partitions: int, records: int) -> Change:
    def change(cluster: Simulated) -> None:
        cluster.delete(TOPIC)
        cluster.create(TOPIC, partitions, records)

    return change


def _retention(records: int, before: int) -> Change:
    def change(cluster: Simulated) -> None:
        cluster.produce(TOPIC, records)
        cluster.delete_records(TOPIC, before)

    return change


def _grow(cluster: Simulated) -> None:
    cluster.there[TOPIC].logs.append(Log())
    cluster.produce(TOPIC, 1)


def _twice(cluster: Simulated) -> None:
    _again(2, 9)(cluster)
    _again(2, 7)(cluster)


CHANGES: Final[dict[str, Change]] = {
    "nothing": lambda cluster: None,
    "records come": lambda cluster: cluster.produce(TOPIC, 3),
    "recreated, shorter": _again(2, 2),
    "recreated, as long": _again(2, 5),
    "recreated, longer": _again(2, 11),
    "recreated, empty": _again(2, 0),
    "recreated, fewer partitions": _again(1, 11),
    "recreated, more partitions": _again(4, 4),
    "recreated twice": _twice,
    "deleted": lambda cluster: cluster.delete(TOPIC),
    "grown": _grow,
    "emptied": _retention(4, 1 << 40),
    "retention, in part": _retention(9, 8),
    "retention of what is read": lambda cluster: cluster.delete_records(TOPIC, 3),
    "cut": lambda cluster: cluster.cut(TOPIC, 2),
    "another topic comes": lambda cluster: cluster.create("orders-2", 1, 3),
}
LOSE_NOTHING: Final = {"nothing", "records come", "grown", "another topic comes"}

MOMENTS: Final = (
    "before the first look", "before the first batch is planned", "before the first batch is read",
    "before any batch of this run", "between two batches", "before a batch is planned", "before a batch is read",
    "while down", "while down, in a batch", "while down, in the first batch", "after the last batch",
)  # fmt: skip

SUBSCRIPTIONS: Final = {
    "subscribe": {"subscribe": TOPIC},
    "pattern": {"subscribePattern": "orders.*"},
    "assign": {"assign": '{"orders": [0, 1]}'},
}
OPTIONS: Final[list[dict[str, str]]] = [
    {"startingOffsets": "earliest"},
    {"startingOffsets": "latest"},
    {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "3"},
    {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "2", "availableNow": "true"},
    {"startingOffsets": "latest", "availableNow": "true"},
    {"startingOffsets": "earliest", "minOffsetsPerTrigger": "2", "maxTriggerDelay": "0ms", "commit.group": "g"},
]


def play(query: Query, moment: str, change: Change) -> None:
    """Run a query with the change at that moment; then all that there is."""
    cluster = query.cluster
    if moment.endswith("the first look"):
        query.begin  # noqa: B018 - Spark asks for it first
        change(cluster)
    elif "first batch" in moment:
        query.look()
        if "planned" in moment:
            change(cluster)
        slices = query.plan()
        if "read" in moment:
            change(cluster)
            query.work(slices)
        if "down" in moment:
            change(cluster)
            query.start_process()
    else:
        query.run()
        if "any batch of this run" in moment:
            query.start_process()
            query.batch()
            change(cluster)
        elif moment == "between two batches":
            cluster.produce(TOPIC, 2)
            query.batch()
            change(cluster)
        elif moment == "while down":
            change(cluster)
            query.start_process()
        elif moment == "after the last batch":
            change(cluster)
        else:
            cluster.produce(TOPIC, 2)
            query.look()
            if moment == "while down, in a batch":
                query.plan()
                change(cluster)
                query.start_process()
            elif moment == "before a batch is planned":
                change(cluster)
            else:
                slices = query.plan()
                change(cluster)
                query.work(slices)
    query.run()
    for name in cluster.there:
        cluster.produce(name, 2)
    query.run()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that are behind have a test of their own."""
    monkeypatch.setattr(stream, "SETTLE_S", 0.0)
    monkeypatch.setattr(reading, "_SETTLE_S", 0.0)
    monkeypatch.setattr("ottla.arrow.batches", fetched)


def wanted(cluster: Simulated, options: dict[str, str], before: set[Record]) -> set[Record]:
    """What the query has to read: by what it subscribes to and where it begins."""
    found = set(cluster.written)
    if "assign" in options:
        found = {each for each in found if each.topic == TOPIC and each.partition < 2}
    if "subscribe" in options:
        found = {each for each in found if each.topic == TOPIC}
    return found - before if options["startingOffsets"] == "latest" else found


@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize("subscription", SUBSCRIPTIONS)
def test_no_change_of_a_topic_is_passed_over(subscription: str, fail: bool, caplog: pytest.LogCaptureFixture) -> None:
    failed = 0
    for moment, (name, change), extra in itertools.product(MOMENTS, CHANGES.items(), OPTIONS):
        if name == "cut" and "availableNow" in extra:
            continue  # it does not look again before the log has outgrown the cut: only leader epochs would show that
        where = f"{name}, {moment}, {extra}"
        options = {**SUBSCRIPTIONS[subscription], **extra}
        cluster = Simulated()
        cluster.create(TOPIC, 2, 5)
        before = set(cluster.written)
        query = Query(cluster, options, fail=fail)
        caplog.clear()
        error: DataLoss | None = None
        with caplog.at_level(logging.WARNING, "ottla.spark"):
            try:
                play(query, moment, change)
            except DataLoss as raised:
                error = raised
            except KafkaError as raised:  # a query that has done nothing yet begins with topics that exist
                assert f"there is no {TOPIC}" in str(raised) and not query.committed, where
                continue
        assert len(query.read) == len(set(query.read)), f"{where}: read twice"
        if error is not None:
            assert fail and name not in LOSE_NOTHING, f"{where}: {error}"
            failed += 1
            if query.committed:  # restarting it is no way around the error
                query.start_process()
                with pytest.raises(DataLoss):
                    query.run()
            continue
        missing = wanted(cluster, options, before) - set(query.read)
        if moment == "while down, in the first batch" and name.startswith("retention"):
            missing -= query.removed_before  # its "earliest" is what is the earliest then
        if fail:
            assert not missing, f"{where}: {len(missing)} records are missing, and no error"
        else:
            assert missing <= cluster.removed, f"{where}: records that are there are missing: {sorted(missing)[:4]}"
            assert not missing or "Records may have been lost" in caplog.text, f"{where}: nothing is said"
        # What the group shows is of the topics that there are.
        for at, (topic_id, offset) in cluster.groups.items():
            log = cluster.log(at)
            assert log is not None, where
            assert topic_id == cluster.there[at.topic].topic_id and offset <= log.end, f"{where}: group at {offset}"
    assert failed > 100 or not fail


@pytest.mark.parametrize("fail", [True, False])
def test_a_batch_read_has_what_it_was_planned_with_or_fails(fail: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla.spark.datasource import OttlaDataSource

    failed = 0
    for (name, change), subscription in itertools.product(CHANGES.items(), SUBSCRIPTIONS.values()):
        cluster = Simulated()
        cluster.create(TOPIC, 2, 5)
        before = set(cluster.written)
        monkeypatch.setattr(connection_pool, "cluster", lambda _, cluster=cluster: nullcontext(cluster))
        source = OttlaDataSource({"kafka.bootstrap.servers": "a:1", "failOnDataLoss": str(fail), **subscription})
        batch: Any = source.reader(source.schema())
        slices = batch.partitions()
        change(cluster)
        try:
            found = [
                record
                for each in slices
                for records in reading._decoded(cluster, each, batch.options, None)
                for record in records  # type: ignore[arg-type]
            ]
        except (DataLoss, NoProgress) as error:
            assert name not in LOSE_NOTHING and (fail or isinstance(error, NoProgress)), name
            failed += 1
            continue
        assert len(found) == len(set(found)) and set(found) <= before, name
        assert before - set(found) <= (set() if fail else cluster.removed), name
    assert (failed > 20) is fail


def test_a_recreated_topic_is_read_from_its_beginning_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Simulated()
    cluster.create(TOPIC, 1, 5)
    query = Query(cluster, {"subscribe": TOPIC, "startingOffsets": "earliest"}, fail=False)
    query.run()
    _again(1, 9)(cluster)
    query.start_process()
    query.run()
    assert "topic orders was deleted and created again" in caplog.text
    assert "Recreated topics are read from their beginning." in caplog.text
    assert len(query.read) == 14


@pytest.mark.parametrize("again", [3, 9])
def test_checkpoints_without_ids_are_gone_on_with_and_get_them(again: int) -> None:
    """A checkpoint of Spark's own connector, or of an older build: ids are known from the first look on."""
    cluster = Simulated()
    cluster.create(TOPIC, 2, 5)
    query = Query(cluster, {"subscribe": TOPIC, "startingOffsets": "earliest"}, fail=True)
    query.offsets, query.committed = [json.dumps({TOPIC: {"0": 5, "1": 4}})], 1
    query.run()
    assert [each.partition for each in query.read] == [1]
    assert of_checkpoint(json.loads(query.offsets[-1])).ids == {TOPIC: cluster.there[TOPIC].topic_id}
    _again(2, again)(cluster)
    query.start_process()
    with pytest.raises(DataLoss, match="was deleted and created again"):
        query.run()


def test_without_ids_in_the_checkpoint_only_offsets_that_went_back_show_it() -> None:
    cluster = Simulated()
    cluster.create(TOPIC, 1, 5)
    for fail in (True, False):
        query = Query(cluster, {"subscribe": TOPIC, "startingOffsets": "earliest"}, fail=fail)
        query.offsets, query.committed = [json.dumps({TOPIC: {"0": 8}})], 1
        if fail:
            with pytest.raises(DataLoss, match="from offset 8 to 5: its topic was recreated"):
                query.run()
        else:
            query.run()
            assert len(query.read) == 5


def test_a_cluster_without_ids_is_read_as_before() -> None:
    cluster = Simulated(has_ids=False)
    cluster.create(TOPIC, 2, 5)
    query = Query(cluster, {"subscribe": TOPIC, "startingOffsets": "earliest"}, fail=True)
    query.run()
    assert [json.loads(each) for each in query.offsets] == [{TOPIC: {"0": 5, "1": 5}}]
    cluster.has_ids = True
    query.run()
    cluster.has_ids = False  # a node of another version answers
    query.run()
    assert len(query.offsets) == 2 and len(query.read) == 10


@pytest.mark.parametrize("now", ["true", "false"])
@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize("behind", ["missing", "the old one"])
def test_a_node_that_is_behind_is_asked_again(
    behind: str, fail: bool, now: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "SETTLE_S", 10.0)
    monkeypatch.setattr("ottla.client.cluster._PAUSE_S", 0.0)
    cluster = Simulated()
    cluster.create(TOPIC, 1, 3)
    old = {} if behind == "missing" else {TOPIC: cluster.there[TOPIC]}
    _again(1, 5)(cluster)
    query = Query(cluster, {"subscribe": TOPIC, "startingOffsets": "earliest", "availableNow": now}, fail=fail)
    for _ in range(3):
        query.run()
        cluster.produce(TOPIC, 2)
        cluster.stale = [old, old]
        if now == "true":
            query.start_process()
        query.look()
        cluster.stale = [old]
        query.run()
    assert len(query.read) == len(set(query.read)) == 11


def test_spark_and_older_builds_find_the_offsets_and_nothing_else() -> None:
    """`JsonUtils.partitionOffsets` reads a map of partitions for each topic, `Map[String, Map[Int, Long]]`."""
    cluster = Simulated()
    cluster.create(TOPIC, 2, 5)
    query = Query(cluster, {"subscribe": TOPIC, "startingOffsets": "earliest"}, fail=True)
    query.run()
    found = json.loads(query.offsets[-1])
    key = next(name for name in found if name != TOPIC)
    assert key.startswith(f"{TOPIC}#") and found[key] == {}
    seen = {(topic, int(number)): int(at) for topic, each in found.items() for number, at in each.items()}
    assert seen == {(TOPIC, 0): 5, (TOPIC, 1): 5}
    assert to_topics(of_checkpoint(found).offsets) == {TOPIC: found[TOPIC]}


def one_history(random: Random, cluster: Simulated, query: Query) -> None:
    """Changes one after the other, at any moment, with ends of processes between; then all that there is."""
    for _ in range(random.randrange(2, 12)):
        what = random.randrange(5)
        if what == 0:
            query.start_process()
        elif what == 1:
            query.look()
        elif what == 2:
            query.batch()
        elif TOPIC not in cluster.there:
            cluster.create(TOPIC, random.randrange(1, 4), random.randrange(8))
        else:
            name, change = random.choice(list(CHANGES.items()))
            if name not in ("cut", "another topic comes"):
                change(cluster)
    if TOPIC not in cluster.there:
        cluster.create(TOPIC, 2, 3)
    query.run()
    query.run()  # what came after an AvailableNow began


def test_long_histories_at_random() -> None:
    random = Random(29)
    lost = 0
    for number in range(600):
        cluster = Simulated()
        cluster.create(TOPIC, 2, 5)
        extra = random.choice([options for options in OPTIONS if options["startingOffsets"] == "earliest"])
        options = {**random.choice(list(SUBSCRIPTIONS.values())), **extra}
        query = Query(cluster, options, fail=number % 3 == 0)
        try:
            one_history(random, cluster, query)
        except DataLoss:
            assert number % 3 == 0
            lost += 1
            continue
        except KafkaError as raised:
            assert f"there is no {TOPIC}" in str(raised) and not query.committed
            continue
        missing = wanted(cluster, options, set()) - set(query.read)
        where = f"history {number}, {options}"
        if number % 3 == 0:  # of topics that a pattern never met nobody can know
            met = {each for end in query.offsets for each in of_checkpoint(json.loads(end)).ids.values()}
            missing = {each for each in missing if each.topic_id in met}
        gone = query.removed_before if number % 3 == 0 else cluster.removed
        assert missing <= gone, f"{where}: records that are there are missing: {sorted(missing)[:4]}"
        assert len(query.read) == len(set(query.read)), f"{where}: read twice"
        lost += bool(missing)
    assert lost > 50
