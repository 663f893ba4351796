"""Live tails and readings that are stopped: what a round holds, what is skipped, and that no reader holds others up."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.console import feeds, live
from ottla.console.app import Application
from ottla.console.asking import Asking, Site
from ottla.console.brokers import failure
from ottla.console.masks import Masks, parse_masks
from ottla.console.records import reading
from ottla.console.records.reading import Limits
from ottla.console.records.searches import Searches
from ottla.console.routes import EVENTS
from ottla.console.tails import FAILURES_MAX, ROWS_MAX, SEARCH_MAX, Tail
from ottla.errors import ErrorCode
from ottla.protocol.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord
from tests.unit.console.fake_cluster import NOW_MS, FakeBrokers, user

NO_MASKS = Masks()
MASKS = parse_masks({"mask": [{"topics": ["t"], "fields": ["card"]}]}, "masks")


def record(number: int) -> SimpleRecord:
    return SimpleRecord(NOW_MS + number, f"k{number}".encode(), json.dumps({"n": number, "card": "4111"}).encode())


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look reads."""
    monkeypatch.setattr(feeds, "FRESH_S", 0.0)


class Growing(FakeBrokers):
    """A topic whose records can be added to."""

    def __init__(self, count: int = 0) -> None:
        self.log = [record(number) for number in range(count)]
        super().__init__(["t"], records=self.log)
        self.refuses = False
        self.fetched: list[int] = []
        """Offsets from which records were fetched."""

    def fetch(self, node_id: int, request: FetchRequest, into: bytearray | None = None) -> FetchResponse:
        self.fetched.append(request.topics[0].partitions[0].fetch_offset)
        return super().fetch(node_id, request)

    def write(self, count: int) -> None:
        begin = len(self.log)
        self.log += [record(begin + number) for number in range(count)]

    def list_offsets(self, values: Any) -> dict[str, Any]:
        answer = super().list_offsets(values)
        if self.refuses:
            for topic in answer["topics"]:
                for each in topic["partitions"]:
                    each["error_code"] = ErrorCode.topic_authorization_failed
        return answer


def asking(brokers: FakeBrokers, masks: Masks = NO_MASKS, **query: str) -> Asking:
    return Asking(user(brokers, "ann"), Site(masks), EVENTS.parameters({"topic": "t"}, query))


def numbers(tail: Tail) -> list[int]:
    return [int(row.offset) for row in tail.next_round().rows]


def test_it_begins_at_the_end_or_where_it_is_asked_to() -> None:
    brokers = Growing(5)
    tail = Tail(asking(brokers))
    assert tail.next_round().is_empty
    brokers.write(2)
    found = tail.next_round()
    assert [row.key.text for row in found.rows] == ["k5", "k6"]
    assert (found.places, found.skipped, found.scanned) == ("0:7", 0, 2)
    assert tail.next_round().is_empty
    assert numbers(Tail(asking(brokers, at="0:4"))) == [4, 5, 6]
    assert numbers(Tail(asking(brokers, at="9:4"))) == []


def test_without_news_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Growing(5)
    tail = Tail(asking(brokers))
    monkeypatch.setattr(brokers, "fetch", None)
    brokers.asked.clear()
    for _ in range(3):
        assert tail.next_round().is_empty
    assert brokers.asked == [ApiKey.LIST_OFFSETS] * 3


def test_what_is_too_much_is_skipped_and_counted() -> None:
    brokers = Growing()
    tail = Tail(asking(brokers, at="0:0"))
    brokers.write(1_000)
    found = tail.next_round()
    assert [int(row.offset) for row in found.rows] == list(range(1_000 - ROWS_MAX, 1_000))
    assert (found.skipped, found.places) == (1_000 - ROWS_MAX, "0:1000")


def test_a_filter_looks_at_more() -> None:
    brokers = Growing()
    tail = Tail(asking(brokers, at="0:0", q='"n": 17,'))
    brokers.write(SEARCH_MAX + 10)
    assert numbers(tail) == [17]
    brokers.write(SEARCH_MAX + 50)
    found = tail.next_round()
    assert found.skipped == 50
    assert found.places == f"0:{len(brokers.log)}"


def test_tails_of_the_same_partitions_are_read_and_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers, made = Growing(), list[int]()
    viewer = user(brokers, "ann")

    def row(_: Asking, message: Any) -> str:
        made.append(int(message.offset))
        return f"row {message.offset}"

    def tail(name: str = "t", **query: str) -> Tail:
        return Tail(Asking(viewer, Site(NO_MASKS), EVENTS.parameters({"topic": name}, query)), row)

    tails = [tail(at="0:0") for _ in range(20)]
    filtered = [tail(at="0:0", q=f'"n": {number},') for number in (3, 5)]
    for each in [*tails, *filtered]:
        assert each.next_round().is_empty
    monkeypatch.setattr(feeds, "FRESH_S", 3600.0)
    for count in (7, 4):
        begin = len(brokers.log)
        brokers.write(count)
        for each in viewer.feeds._open.values():
            each._taken = float("-inf")
        brokers.asked.clear()
        fetched = brokers.fetched = []
        for each in tails:
            assert each.next_round().rows == [f"row {number}" for number in range(begin, begin + count)]
        assert (brokers.asked, fetched) == ([ApiKey.LIST_OFFSETS], [begin])
        assert made == list(range(begin, begin + count))
        made.clear()
    assert [each.next_round().rows for each in filtered] == [["row 3"], ["row 5"]]
    assert brokers.fetched == [7, 0]
    for each in [*tails, *filtered]:
        assert each._feed is not None
        each.close()
    assert viewer.feeds._open == {}


def test_what_masks_and_formats_show_is_not_mixed() -> None:
    """One user whose rights change while a tail is open, and one who looks at the same records in two formats."""
    brokers = Growing(1)
    viewer = user(brokers, "ann")
    shown = []
    for masks, how in ((NO_MASKS, "auto"), (MASKS, "auto"), (NO_MASKS, "hex"), (MASKS, "auto"), (NO_MASKS, "auto")):
        tail = Tail(Asking(viewer, Site(masks), EVENTS.parameters({"topic": "t"}, {"at": "0:0", "format": how})))
        (row,) = tail.next_round().rows
        shown.append(row.value.text)
    assert '"4111"' in shown[0] and "4111" not in shown[1] and shown[2].startswith("00000000")
    assert shown[3:] == [shown[1], shown[0]]


def test_a_slow_tail_makes_nobody_read_again() -> None:
    brokers = Growing()
    viewer = user(brokers, "ann")
    slow, quick = (
        Tail(Asking(viewer, Site(NO_MASKS), EVENTS.parameters({"topic": "t"}, {"at": "0:0"}))) for _ in range(2)
    )
    assert slow.next_round().is_empty
    for _ in range(10):
        brokers.write(10)
        quick.next_round()
    brokers.fetched = []
    found = slow.next_round()
    kept = 10 * (feeds.READINGS_KEPT - 1)
    assert (len(found.rows), found.skipped, found.places) == (kept, 100 - kept, "0:100")
    assert brokers.fetched == []


def test_a_feed_keeps_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large records: what is beyond the bytes of a reading is read by the next one."""
    monkeypatch.setattr(feeds, "KEPT_BYTES", 10 * feeds.RECORD_BYTES)
    brokers = Growing()
    tail = Tail(asking(brokers, at="0:0"))
    assert tail.next_round().is_empty
    brokers.write(25)
    rounds = [numbers(tail) for _ in range(4)]
    assert [number for each in rounds for number in each] == list(range(25))
    assert all(len(each) <= 10 for each in rounds)


def test_a_failure_of_a_feed_is_heard_by_all_and_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Growing(1)
    viewer = user(brokers, "ann")
    tails = [Tail(Asking(viewer, Site(NO_MASKS), EVENTS.parameters({"topic": "t"}, {}))) for _ in range(3)]
    brokers.refuses = True
    monkeypatch.setattr(feeds, "FRESH_S", 3600.0)
    found = [each.next_round() for each in tails]
    assert all(each.is_over and each.problem is not None for each in found)
    assert brokers.asked.count(ApiKey.LIST_OFFSETS) == 1


def test_searches_take_turns_and_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [100.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(reading, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    turns = reading.Turns()
    for took, between in ((0.01, 0.0), (0.01, 0.004), (9.0, 0.0), (0.0, 1.0)):
        with turns.turn():
            now[0] += took
        now[0] += between
    pause = 0.01 * reading.PAUSE_PART
    assert slept == pytest.approx([0.0, pause, pause - 0.004, reading.PAUSE_MAX_S])


def test_masks_hold() -> None:
    brokers = Growing(1)
    (row,) = Tail(asking(brokers, MASKS, at="0:0")).next_round().rows
    assert json.loads(row.value.text) == {"n": 0, "card": "•••"}
    assert numbers(Tail(asking(brokers, MASKS, at="0:0", q="4111"))) == []


def test_a_topic_that_was_recreated_or_cut() -> None:
    brokers = Growing(10)
    tail = Tail(asking(brokers, at="0:10"))
    del brokers.log[3:]
    assert tail.next_round().is_empty
    brokers.write(1)
    assert numbers(tail) == [3]


def test_records_that_are_gone_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Growing(10)
    monkeypatch.setattr(
        brokers,
        "list_offsets",
        lambda values: {
            "topics": [
                {
                    "name": "t",
                    "partitions": [
                        {
                            "partition_index": 0,
                            "error_code": 0,
                            "timestamp": -1,
                            "offset": 8 if values["topics"][0]["partitions"][0]["timestamp"] == -2 else 10,
                        }
                    ],
                }
            ]
        },
    )
    fetch = brokers.fetch

    def fetched(node_id: int, request: FetchRequest, into: bytearray | None = None) -> FetchResponse:
        if request.topics[0].partitions[0].fetch_offset < 8:
            raise failure(ApiKey.FETCH, ErrorCode.offset_out_of_range, "t")
        return fetch(node_id, request)

    monkeypatch.setattr(brokers, "fetch", fetched)
    tail = Tail(asking(brokers, at="0:2"))
    assert (tail.next_round().skipped, numbers(tail)) == (6, [8, 9])


def test_failures_end_it() -> None:
    brokers = Growing(1)
    tail = Tail(asking(brokers))
    brokers.refuses = True
    found = tail.next_round()
    assert found.is_over
    assert found.problem is not None
    assert found.problem.right == "Describe on Topic t"

    def away(node_id: int, key: ApiKey, values: Any) -> dict[str, Any]:
        raise ConnectionError("away")

    brokers = Growing(1)
    tail = Tail(asking(brokers))
    brokers.ask = away  # type: ignore[method-assign]
    assert [tail.next_round().is_over for _ in range(FAILURES_MAX)] == [False] * (FAILURES_MAX - 1) + [True]


def test_reads_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    brokers = Growing(3)
    tail = Tail(asking(brokers, at="0:1"))
    with caplog.at_level(logging.INFO, "ottla.console.audit"):
        tail.next_round()
        tail.close()
        tail.close()
    (line,) = [getattr(each, "ottla_fields", {}) for each in caplog.records if each.name == "ottla.console.audit"]
    assert (line["user"], line["topic"], line["ranges"], line["shown"]) == ("ann", "t", "0:1-3", 2)


class Connection:
    """A browser's connection as an application sees it."""

    def __init__(self, path: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        path, _, query = path.partition("?")
        self.scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(b"host", b"localhost"), *headers],
            "scheme": "http",
            "server": ("localhost", 80),
            "client": ("c", 1),
            "root_path": "",
            "http_version": "1.1",
        }
        self.gone = asyncio.Event()
        self.taken = asyncio.Event()
        self.may_send = asyncio.Event()
        self.may_send.set()
        self.status = 0
        self.body = b""
        self._is_asked = False

    async def receive(self) -> dict[str, Any]:
        if not self._is_asked:
            self._is_asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.may_send.wait()
        self.status = message.get("status", self.status)
        self.body += message.get("body", b"")
        self.taken.set()

    async def until(self, words: bytes) -> None:
        async with asyncio.timeout(30):
            while words not in self.body:
                self.taken.clear()
                await self.taken.wait()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(live, "PAUSE_S", 0.001)
    yield


def test_a_stream_has_the_records_and_ends_with_the_browser(quick: None) -> None:
    brokers = Growing(1)
    application = Application(Site(Masks()), anonymous=user(brokers))

    async def look() -> None:
        browser = Connection("/topics/t/tail/events?at=0:0")
        serving = asyncio.ensure_future(application.asgi()(browser.scope, browser.receive, browser.send))
        await browser.until(b"id: 0:1\nevent: records\n")
        brokers.write(1)
        await browser.until(b"id: 0:2\nevent: records\n")
        browser.gone.set()
        async with asyncio.timeout(30):
            await serving
        assert browser.status == 200
        data = next(line for line in browser.body.decode().splitlines() if line.startswith("data: "))
        (row,) = json.loads(data.removeprefix("data: "))["rows"]
        assert row.strip().startswith('<article class="record">')
        assert application._tails._open == {}
        # Connected again, it goes on where it was.
        browser = Connection("/topics/t/tail/events?at=0:0", ((b"last-event-id", b"0:1"),))
        serving = asyncio.ensure_future(application.asgi()(browser.scope, browser.receive, browser.send))
        await browser.until(b"id: 0:2")
        assert browser.body.count(b"event: records") == 1
        application.end_tails()
        async with asyncio.timeout(30):
            await serving

    asyncio.run(look())


def test_a_slow_browser_holds_up_nobody(quick: None) -> None:
    brokers = Growing()
    application = Application(Site(Masks()), anonymous=user(brokers))

    async def look() -> None:
        slow, other = Connection("/topics/t/tail/events?at=0:0"), Connection("/topics/t/tail/events?at=0:0")
        serving = [
            asyncio.ensure_future(application.asgi()(each.scope, each.receive, each.send)) for each in (slow, other)
        ]
        await slow.until(b"retry")
        slow.may_send.clear()
        brokers.write(1)
        await other.until(b"id: 0:1")
        for _ in range(5):
            brokers.write(100)
            await other.until(b"id: 0:%d\n" % len(brokers.log))
        slow.may_send.set()
        await slow.until(b"id: 0:501\n")
        events = [json.loads(each[6:]) for each in slow.body.decode().splitlines() if each.startswith("data: ")]
        # One round waited for it; nothing was kept for it beyond, and what it missed is counted.
        assert sum(len(each["rows"]) for each in events) <= 1 + 2 * ROWS_MAX
        assert sum(len(each["rows"]) + int(each["skipped"]) for each in events) == 501
        for each in (slow, other):
            each.gone.set()
        async with asyncio.timeout(30):
            await asyncio.gather(*serving)

    asyncio.run(look())


def test_there_are_so_many_tails(monkeypatch: pytest.MonkeyPatch, quick: None) -> None:
    monkeypatch.setattr(live, "TAILS_MAX", 1)
    application = Application(Site(Masks()), anonymous=user(Growing(1)))

    async def look() -> None:
        first, second = Connection("/topics/t/tail/events"), Connection("/api/v1/topics/t/tail/events")
        serving = asyncio.ensure_future(application.asgi()(first.scope, first.receive, first.send))
        await first.until(b"retry")
        async with asyncio.timeout(30):  # one that is let in goes on for ever
            await application.asgi()(second.scope, second.receive, second.send)
        assert second.status == 400
        assert b"1 live tails are open" in second.body
        first.gone.set()
        async with asyncio.timeout(30):
            await serving
        missing = Connection("/topics/none/tail/events")
        await application.asgi()(missing.scope, missing.receive, missing.send)
        assert missing.status == 404

    asyncio.run(look())


class Endless(FakeBrokers):
    """A topic of so many records that a search has no end, and whose fetches can be waited for."""

    def __init__(self) -> None:
        super().__init__(["t"])
        self.fetched = threading.Event()
        self.fetches = 0
        self.records = [record(0)] * 10

    def list_offsets(self, values: Any) -> dict[str, Any]:
        answer = super().list_offsets(values)
        for topic, asked in zip(answer["topics"], values["topics"], strict=True):
            for each, row in zip(topic["partitions"], asked["partitions"], strict=True):
                each["offset"] = 0 if row["timestamp"] == -2 else 10**9
        return answer

    def fetch(self, node_id: int, request: FetchRequest, into: bytearray | None = None) -> FetchResponse:
        self.fetches += 1
        self.fetched.set()
        begin = request.topics[0].partitions[0].fetch_offset
        from ottla.protocol.fetch import FetchedPartition, FetchedTopic
        from ottla.protocol.records.record_batch import build_batch

        data = build_batch(self.records, base_offset=begin)
        row = FetchedPartition(0, 0, 10**9, 10**9, 0, [], -1, data)
        return FetchResponse([FetchedTopic("t", request.topics[0].topic_id, [row])])


PATH = "/topics/t/messages?from=begin&q=nothing&seconds=30"


def test_a_search_ends_when_its_page_is_closed() -> None:
    brokers = Endless()
    application = Application(Site(Masks()), anonymous=user(brokers))

    async def look() -> None:
        browser = Connection(PATH)
        serving = asyncio.ensure_future(application.asgi()(browser.scope, browser.receive, browser.send))
        await asyncio.to_thread(brokers.fetched.wait, 30)
        browser.gone.set()
        async with asyncio.timeout(5):
            await serving
        before = brokers.fetches
        await asyncio.sleep(0)
        assert brokers.fetches == before

    asyncio.run(look())


def test_a_search_says_how_far_it_is_and_is_stopped() -> None:
    brokers = Endless()
    application = Application(Site(Masks()), anonymous=user(brokers, "ann")).asgi()
    run = "abcdefgh-1"

    async def ask(path: str, method: str = "GET", headers: tuple[tuple[bytes, bytes], ...] = ()) -> Connection:
        connection = Connection(path, headers)
        connection.scope["method"] = method
        await application(connection.scope, connection.receive, connection.send)
        return connection

    async def look() -> None:
        browser = Connection(f"/api/v1{PATH}&run={run}")
        serving = asyncio.ensure_future(application(browser.scope, browser.receive, browser.send))
        await asyncio.to_thread(brokers.fetched.wait, 30)
        seen = json.loads((await ask(f"/searches/{run}")).body)
        assert int(seen["scanned"]) >= 0
        assert set(seen) == {"scanned", "bytes", "seconds", "matches", "rows"}
        assert (await ask("/searches/another-1")).status == 404
        foreign = await ask(f"/searches/{run}/stop", "POST", ((b"sec-fetch-site", b"cross-site"),))
        assert foreign.status == 400
        assert not serving.done()
        assert (await ask(f"/searches/{run}/stop", "POST")).status == 204
        async with asyncio.timeout(5):
            await serving
        found = json.loads(browser.body)["data"]
        assert found["stopped"] == "stopped"
        assert int(found["scanned"]) > 0
        # How far it came, as offsets to go on from.
        assert found["following"] == f"0:{found['scanned']}"
        assert (await ask(f"/searches/{run}")).status == 404

    asyncio.run(look())


def test_searches_are_of_their_user() -> None:
    searches, limits, halt = Searches(), Limits(0.0, 1, 1), threading.Event()
    with searches.running("ann", "abcdefgh", limits, halt):
        assert searches.find("ann", "abcdefgh") is not None
        assert searches.find("bob", "abcdefgh") is None
        with searches.running("ann", "abcdefgh", limits, threading.Event()):
            pass
    assert searches.find("ann", "abcdefgh") is None
    for run in ("", "short", "x" * 65, "a/../../b", "é" * 10):
        with searches.running("ann", run, limits, halt):
            assert searches.find("ann", run) is None


def test_rows_are_made_for_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads that dropped the oldest row at one moment ended a tail."""
    monkeypatch.setattr(feeds, "ROWS_KEPT", 2)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        view = feeds.View(())
        records = [feeds.Record(0, offset, 0, None, None, ()) for offset in range(3_000)]
        with ThreadPoolExecutor(8) as executor:
            every = [
                executor.submit(lambda: [view.row(each, lambda made: made.offset) for each in records])
                for _ in range(8)
            ]
            assert all(each.result() == list(range(3_000)) for each in every)
    finally:
        sys.setswitchinterval(interval)
