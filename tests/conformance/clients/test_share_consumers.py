"""Share groups with Kafka's own consumer in Java, and with franz-go's: what each kind of acknowledgement leads to."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.conformance.clients.test_java import create
from tests.conformance.compatibility import VALUES_IN_ORDER, Ran
from tests.conformance.groups.share_consumers import (
    GO,
    JAVA,
    Consumer,
    Delivered,
    configure,
    program,
    version,
    write,
)
from tests.conformance.line_program import Program
from tests.node import NodeProcess

EXTERNAL = os.environ.get("OTTLA_TEST_BOOTSTRAP")
LOCK_MS = 15_000 if EXTERNAL else 3_000
"""Kafka's shortest lock, unless the broker's settings allow a shorter one."""
LIMIT = 3

Join = Callable[..., Consumer]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if EXTERNAL:
        yield EXTERNAL
        return
    settings = {
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.min.heartbeat.interval.ms": "500",
        "group.share.heartbeat.interval.ms": "500",
    }
    with NodeProcess(tmp_path_factory.mktemp("share") / "data", settings) as node:
        yield node.bootstrap


STEPS = (
    "share groups: accepts, releases and rejects records, renews their locks, shares a partition with others",
    "share groups: locks that end, records that nobody can use, read_committed, share.auto.offset.reset, record_limit",
)


def _client(name: str) -> Any:
    return pytest.param(name, id=name, marks=pytest.mark.client(name, *STEPS))


@pytest.fixture(scope="module", params=[_client(JAVA), _client(GO)])
def members(request: pytest.FixtureRequest) -> Iterator[Program]:
    started = program(request.param)
    yield started
    started.close()


@pytest.fixture
def client(request: pytest.FixtureRequest, members: Program, ran: Ran) -> str:
    name = str(request.node.callspec.params["members"])
    if name == GO:
        ran.version(GO, version(members))
    return name


@pytest.fixture
def group(bootstrap: str, topic: str) -> str:
    """A group that begins with the first record, and its topic, named alike."""
    create(bootstrap, topic)
    name = f"share-{topic}"
    configure(bootstrap, name, auto_offset_reset="earliest", delivery_count_limit=str(LIMIT))
    return name


@pytest.fixture
def join(members: Program, client: str, bootstrap: str, topic: str, group: str) -> Iterator[Join]:
    joined: list[Consumer] = []

    def new(**keywords: Any) -> Consumer:
        joined.append(Consumer(members, bootstrap, keywords.pop("group", group), topic, **keywords))
        return joined[-1]

    yield new
    for each in joined:
        each.close()


def values(records: Iterable[Delivered]) -> list[str]:
    return [each.value for each in records]


def test_what_is_not_acknowledged_is_accepted_by_the_next_poll(join: Join, bootstrap: str, topic: str) -> None:
    first = join(explicit=False)
    write(bootstrap, topic, ["a", "b", "c"])
    found = first.some()
    while len(found) < 3:
        found += first.some()
    assert values(found) == ["a", "b", "c"]
    assert {each.count for each in found} == {1}
    assert first.none_left()
    first.close()
    write(bootstrap, topic, ["d"])
    assert values(join(explicit=False).some()) == ["d"]


def test_records_of_every_codec(join: Join, client: str, bootstrap: str, topic: str, ran: Ran) -> None:
    for codec in VALUES_IN_ORDER:
        write(bootstrap, topic, [f"{codec}-{'x' * 500}-{number}" for number in range(20)], codec=codec)
        ran.step(client, "reads {codec} as a member of a share group", codec=codec)
    found = join().take(20 * len(VALUES_IN_ORDER))
    assert [each.offset for each in found] == list(range(len(found)))
    assert {each.value.split("-")[0] for each in found} == {*VALUES_IN_ORDER}


def test_accepted_released_and_rejected(join: Join, bootstrap: str, topic: str) -> None:
    first = join()
    write(bootstrap, topic, ["accepted", "released", "rejected", "accepted-too"])
    found = first.some()
    assert len(found) == 4
    first.acknowledge("ACCEPT", [found[0], found[3]])
    first.acknowledge("RELEASE", [found[1]])
    first.finish([found[2]], "REJECT")
    again = first.some()
    assert [(each.value, each.offset, each.count) for each in again] == [("released", 1, 2)]
    first.close()  # what it has and says nothing of is another's
    second = join()
    last = second.some()
    assert [(each.value, each.count) for each in last] == [("released", 3)]
    second.finish(last)
    assert second.none_left()


def test_a_lock_that_ends_gives_the_record_to_another(join: Join, bootstrap: str, topic: str, group: str) -> None:
    """Java's consumer may go on to fetch while it holds a record: a poll that asks for more as the record arrives. Then
    `slow` takes the record a second time when its lock ends, and hands that delivery out late. None may be as late as
    the delivery that was accepted."""
    configure(bootstrap, group, record_lock_duration_ms=str(LOCK_MS))
    slow, other = join(acquire="record_limit"), join(acquire="record_limit")
    write(bootstrap, topic, ["joined"])
    slow.take(1)
    began = time.monotonic()
    write(bootstrap, topic, ["job"])
    held = slow.some()
    taken = other.some()
    assert time.monotonic() - began > LOCK_MS / 1000
    assert values(held) == values(taken) == ["job"]
    assert held[0].count == 1 < taken[0].count <= LIMIT
    slow.acknowledge("ACCEPT", held)
    assert slow.commit().keys() == {0}  # it comes too late
    other.finish(taken)
    for member in (slow, other, slow, other):
        late = member.poll()
        assert all(each.count < taken[0].count for each in late), (member.name, late)
        member.acknowledge("RELEASE", late)  # Java's next poll wants that


def test_a_renewed_lock_does_not_end(join: Join, client: str, bootstrap: str, topic: str, group: str) -> None:
    configure(bootstrap, group, record_lock_duration_ms=str(LOCK_MS))
    worker, other = join(acquire="record_limit"), join(acquire="record_limit")
    write(bootstrap, topic, ["long-job"])
    held = worker.some()
    end = time.monotonic() + 2 * LOCK_MS / 1000
    while time.monotonic() < end:
        worker.finish(held, "RENEW")
        if client == JAVA:  # which hands out what was renewed again
            assert worker.some() == held
        assert other.poll(100) == []
    worker.finish(held)
    assert other.none_left() and worker.none_left(2)


def test_consumers_share_one_partition(join: Join, bootstrap: str, topic: str) -> None:
    write(bootstrap, topic, (str(number) for number in range(200)))
    members = [join(records_max=10, acquire="record_limit") for _ in range(3)]
    found: dict[str, list[Delivered]] = {each.name: [] for each in members}
    end = time.monotonic() + 120
    while sum(map(len, found.values())) < 200:
        assert time.monotonic() < end
        for each in members:
            some = each.poll(200)
            each.finish(some)
            found[each.name] += some
    assert sorted(record.offset for some in found.values() for record in some) == list(range(200))
    assert all(len(some) >= 20 for some in found.values())
    assert {record.count for some in found.values() for record in some} == {1}


def test_a_record_that_nobody_can_use_is_archived_at_the_limit(join: Join, bootstrap: str, topic: str) -> None:
    member = join()
    write(bootstrap, topic, ["good", "poison", "good-too"])
    counts, good = [], []
    end = time.monotonic() + 120
    while len(counts) < LIMIT or len(good) < 2:
        assert time.monotonic() < end
        some = member.some()
        counts += [each.count for each in some if each.value == "poison"]
        good += [each.value for each in some if each.value != "poison"]
        member.acknowledge("RELEASE", [each for each in some if each.value == "poison"])
        member.finish([each for each in some if each.value != "poison"])
    assert counts == list(range(1, LIMIT + 1))
    assert good == ["good", "good-too"]
    assert member.none_left()


def test_committed_records_only_where_the_group_asks_for_that(
    join: Join, bootstrap: str, topic: str, group: str
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"t-{topic}"})
    producer.init_transactions(60)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, f"{'aborted' if number % 2 else 'committed'}-{number}", partition=0)
        if number % 2:
            assert producer.flush(60) == 0
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    configure(bootstrap, group, isolation_level="read_committed")
    first = join()
    assert values(first.take(3)) == ["committed-0", "committed-2", "committed-4"]
    first.close()  # franz-go's fetches on and would hold what comes next until its lock ends
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0)
    assert producer.flush(60) == 0
    member = join()
    assert member.none_left()
    producer.commit_transaction(60)
    assert values(member.take(1)) == ["open"]
    configure(bootstrap, f"{group}-all", auto_offset_reset="earliest")
    everything = join(group=f"{group}-all").take(7)
    assert values(everything) == [
        "committed-0",
        "aborted-1",
        "committed-2",
        "aborted-3",
        "committed-4",
        "aborted-5",
        "open",
    ]


def test_where_a_new_group_begins(join: Join, bootstrap: str, topic: str, group: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    hours_ago = int(time.time() * 1000) - 3 * 3_600_000
    for number, name in enumerate(("three-hours", "two-hours", "one-hour")):
        producer.produce(topic, f"{name}-ago", partition=0, timestamp=hours_ago + number * 3_600_000)
    assert producer.flush(60) == 0
    configure(bootstrap, f"{group}-by", auto_offset_reset="by_duration:PT2H30M")
    configure(bootstrap, f"{group}-latest", auto_offset_reset="latest")
    assert values(join().take(3)) == ["three-hours-ago", "two-hours-ago", "one-hour-ago"]
    assert values(join(group=f"{group}-by").take(2)) == ["two-hours-ago", "one-hour-ago"]
    latest = join(group=f"{group}-latest")
    found: list[Delivered] = []
    end = time.monotonic() + 120
    while not found:  # the group has its start a few heartbeats after the member has joined
        assert time.monotonic() < end
        found = latest.poll()
        write(bootstrap, topic, ["later"])
    assert {*values(found)} == {"later"}
    latest.finish(found)


def test_no_more_records_than_asked_for(join: Join, bootstrap: str, topic: str) -> None:
    write(bootstrap, topic, (str(number) for number in range(30)))
    strict = join(records_max=7, acquire="record_limit")
    sizes, found = [], []
    while len(found) < 30:
        some = strict.some()
        strict.finish(some)
        sizes.append(len(some))
        found += some
    assert max(sizes) <= 7
    assert [each.offset for each in found] == list(range(30))
