"""Eight pipelines while their driver, a node of three, the Python workers and PostgreSQL are killed in turn: what they
write is what plain Python makes of the same events. With OTTLA_TEST_STANDALONE, by hand, on a standalone cluster of
Spark, where an executor is killed as well."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from demo import answers
from demo.events import Event
from ottla import arrow
from ottla.pipelines.ticks import TICK
from ottla.testing import Cluster
from tests.spark.pipelines.pipeline_process import ROOT, Command, kill, set_
from tests.spark.pipelines.pipelines import feed, rows
from tests.spark.standalone import StandaloneCluster

pytest.importorskip("pyiceberg", reason="Spark is not set up: no pyiceberg here")

if TYPE_CHECKING:
    from peers.postgres import Postgres

Row = dict[str, Any]
Status = dict[str, Any]
PIPELINES = Path(__file__).with_name("everything.py")
STANDALONE = bool(os.environ.get("OTTLA_TEST_STANDALONE"))
VICTIMS = (("driver",), ("node", "worker", *(["executor"] if STANDALONE else []), "database"))
"""In each part of the events, one after the other."""
BEGAN = datetime(2026, 11, 25, 9, tzinfo=UTC)
PART_MINUTES = 20
"""Minutes of events: all of a part are processed before the next one comes, so with a longer `delay` none is late."""
DELAY_MINUTES = 25
EVENTS = 140
"""Events of each kind in a part."""
END = 600 * 60_000
"""ms: what comes then ends whatever is open."""
SETTINGS = {
    "activity.delay": f"{DELAY_MINUTES} minutes", "activity.gap": "3 minutes",
    "join.delay": f"{DELAY_MINUTES} minutes", "join.within": "5 minutes",
    "lake.input": "ticks", "lake.schema": TICK, "lake.at": "at", "lake.kind": "iceberg", "lake.table": "lake.ticks",
    "lake.compact_every": "3",
    "logs.delay": f"{DELAY_MINUTES} minutes",
    "metrics.delay": f"{DELAY_MINUTES} minutes", "metrics.rules": "cpu > 0.5",
    "postgres.tables": "people", "postgres.changed": "changed_in", "postgres.look": "0.2",
    "postgres.into": "totals", "postgres.columns": "id BIGINT, total BIGINT",
    "replay.input": "ticks", "replay.output": "ticks-again",
    "ticks.delay": f"{DELAY_MINUTES} minutes",
}  # fmt: skip
INPUTS = {
    "page-views": "user", "orders": "order", "payments": "order", "logs": "host", "metrics": "host", "ticks": "symbol",
    "upserts": "id",
}  # fmt: skip
"""Topics, and the field that is the key."""


def iso(at_ms: int) -> str:
    moment = datetime.fromtimestamp(BEGAN.timestamp() + at_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ms(text: str) -> int:
    return round((datetime.fromisoformat(text).timestamp() - BEGAN.timestamp()) * 1000)


def part_of(number: int, dice: random.Random) -> dict[str, list[Row]]:
    """Events by topic, in the order of their times, of which no two are the same."""
    times = sorted(dice.sample(range(PART_MINUTES * 60_000), EVENTS))
    found: dict[str, list[Row]] = {topic: [] for topic in INPUTS}
    for count, at_ms in enumerate(each + number * PART_MINUTES * 60_000 for each in times):
        at = iso(at_ms)
        found["page-views"].append({"user": f"u{dice.randrange(20)}", "page": dice.choice(["/", "/cart"]), "at": at})
        found["metrics"].append({"host": f"h{dice.randrange(3)}", "name": "cpu", "value": dice.random(), "at": at})
        found["ticks"].append(
            {"symbol": dice.choice("ABCD"), "price": dice.randrange(1, 99), "size": dice.randrange(1, 9), "at": at}
        )
        level = dice.choice(["INFO", "WARN", "ERROR"])
        found["logs"].append({"time": at, "level": level, "message": f"{number}-{count}", "host": dice.choice("ab")})
        found["upserts"].append({"id": dice.randrange(40), "total": number * EVENTS + count})
        order = f"{number}-{count}"
        found["orders"].append({"order": order, "customer": "ada", "amount": 1.0, "at": at})
        if dice.random() < 0.6:
            found["payments"].append({"payment": f"p{order}", "order": order, "amount": 1.0, "at": iso(at_ms + 1000)})
    return found


def last_part() -> dict[str, list[Row]]:
    at = iso(END)
    return {
        "page-views": [{"user": "last", "page": "/", "at": at}],
        "orders": [{"order": "last", "customer": "ada", "amount": 1.0, "at": at}],
        "payments": [{"payment": "plast", "order": "nothing", "amount": 1.0, "at": at}],
        "logs": [{"time": at, "level": "INFO", "message": "last", "host": "a"}],
        "metrics": [{"host": "last", "name": "cpu", "value": 0.0, "at": at}],
        "ticks": [{"symbol": "last", "price": 1, "size": 1, "at": at}],
        "upserts": [],
    }


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}
    with Cluster(3, settings, topics=dict.fromkeys(INPUTS, 2)) as started:
        yield started


@pytest.fixture(scope="module")
def executors() -> Iterator[StandaloneCluster | None]:
    if not STANDALONE:
        yield None
        return
    with StandaloneCluster(workers=2, environment={"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}) as started:
        yield started


def read_in_all(status: Status) -> int:
    return sum(query["rows"] for query in status["queries"])


def caught_up(since: float) -> Callable[[Status], bool]:
    """But for those without a lag that says so: PostgreSQL is no topic, and a replay ends where its topic did."""
    at = datetime.fromtimestamp(since, UTC).isoformat()
    return lambda status: (
        status["updated_at"] > at
        and bool(status["queries"])
        and all(
            query["lag_records"] == 0 or query["name"] in ("postgres.rows", "replay.records")
            for query in status["queries"]
        )
    )


def values(bootstrap: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    found = arrow.read(topic, bootstrap, columns=["key", "value"]).read_all()
    return list(zip(found["key"].to_pylist(), found["value"].to_pylist(), strict=True))


@pytest.mark.nightly(
    "tests/spark/test_kills.py::test_every_record_is_copied_once",
    "tests/spark/pipelines/test_pipeline_ledger.py::test_money_is_neither_made_nor_lost",
    "tests/spark/pipelines/test_pipeline_command.py::test_stopped_killed_and_gone_on_with",
    "tests/spark/pipelines/test_pipeline_postgres.py",
)
@pytest.mark.timeout(1800)  # five minutes on two cores of its own
def test_eight_pipelines_are_exact_whoever_is_killed(
    spark: Any, cluster: Cluster, executors: StandaloneCluster | None, postgres: Postgres, tmp_path: Path
) -> None:
    dice = random.Random(5)
    postgres.query(
        "CREATE TABLE people (id bigint PRIMARY KEY, name text, changed_in xid8 DEFAULT pg_current_xact_id())"
    )
    catalog = f"uri=sqlite:///{tmp_path}/catalog.db,warehouse=file://{tmp_path}/warehouse"
    settings = {
        **SETTINGS,
        "postgres.database": postgres.url,
        "logs.table": str(tmp_path / "table"),
        "lake.properties": catalog,
    }
    arguments = [
        "-b",
        cluster.bootstrap,
        "--master",
        executors.url if executors else "local[2]",
        *set_(settings),
        "--batch-records",
        "100",
        "--spark",
        "spark.executor.memory=768m",
        "--spark",
        "spark.driver.host=127.0.0.1",
        "--spark",
        "spark.sql.shuffle.partitions=1",
        "--spark",
        "spark.sql.streaming.noDataProgressEventInterval=1000",
    ]
    events: dict[str, list[Row]] = {topic: [] for topic in INPUTS}

    def send(part: dict[str, list[Row]]) -> None:
        for topic, new in part.items():
            feed(cluster.bootstrap, topic, new, key=INPUTS[topic])
            events[topic] += new

    command = Command(str(PIPELINES), tmp_path, *arguments)
    try:
        for number, victims in enumerate(VICTIMS):
            read = read_in_all(command.until(lambda status: status["state"] == "running"))
            send(part_of(number, dice))
            postgres.query(f"INSERT INTO people SELECT i, 'one' FROM generate_series({number}1, {number}9) AS i")
            for victim in victims:
                read += 2 * EVENTS
                command.until(lambda status, read=read: read_in_all(status) > read)
                if victim == "database":
                    postgres.kill()
                    postgres.start()
                elif executors and victim == "executor":
                    os.kill(dice.choice(executors.wait_executors(2)), signal.SIGKILL)
                elif executors and victim == "worker":
                    pids = executors.python_pids()
                    assert pids
                    for pid in pids:
                        os.kill(pid, signal.SIGKILL)
                else:
                    kill(victim, command, cluster)
            if command.process.poll() is not None:
                command = Command(str(PIPELINES), tmp_path, *arguments)
            command.until(caught_up(time.time()))
        send(last_part())
        command.until(caught_up(time.time()))
        assert command.end(signal.SIGTERM) == 128 + signal.SIGTERM
        command = Command(str(PIPELINES), tmp_path, *arguments, "--once")
        assert command.until(lambda status: status["state"] == "done")
        assert command.ended() == 0
    finally:
        command.process.kill()
    check(cluster.bootstrap, events)
    table = [row["message"] for row in spark.read.parquet(settings["logs.table"]).select("message").collect()]
    assert sorted(table) == sorted(line["message"] for line in events["logs"])
    check_lake(catalog, events["ticks"])
    check_postgres(cluster.bootstrap, postgres, events["upserts"])


def check(bootstrap: str, events: dict[str, list[Row]]) -> None:
    views = [Event(ms(view["at"]), view["user"], view) for view in events["page-views"]]
    sessions = answers.sessions(views, 180, DELAY_MINUTES * 60)
    assert answers.found_sessions(rows(bootstrap, "sessions")) == sessions
    assert sum(row["sessions"] for row in rows(bootstrap, "funnels")) == sessions.total()
    paid = {payment["order"] for payment in events["payments"]}
    assert Counter(row["order"] for row in rows(bootstrap, "paid")) == Counter(paid - {"nothing"})
    unpaid = Counter(order["order"] for order in events["orders"] if order["order"] not in {*paid, "last"})
    assert Counter(row["order"] for row in rows(bootstrap, "unpaid")) == unpaid
    windows = Counter((row["host"], row["at"][:16]) for row in events["metrics"] if row["host"] != "last")
    found = [(row["host"], row["start"][:16], row["count"]) for row in rows(bootstrap, "metrics-rollups")]
    assert sorted(found) == sorted((*place, count) for place, count in windows.items())
    alerts = Counter((row["host"], row["what"], ms(row["at"])) for row in rows(bootstrap, "alerts"))
    assert alerts == expected_alerts(events["metrics"])
    candles = Counter(
        (row["symbol"], row["start"][:16], *(row[name] for name in CANDLE)) for row in rows(bootstrap, "candles")
    )
    assert candles == expected_candles(tick for tick in events["ticks"] if tick["symbol"] != "last")
    assert sorted(values(bootstrap, "ticks-again"), key=str) == sorted(values(bootstrap, "ticks"), key=str)
    check_logs(bootstrap, events["logs"])


def check_logs(bootstrap: str, lines: list[Row]) -> None:
    known = [line for line in lines if line["message"] != "last"]
    counted = [(row["start"][:16], row["host"], row["level"], row["lines"]) for row in rows(bootstrap, "log-counts")]
    expected = Counter((line["time"][:16], line["host"], line["level"]) for line in known)
    assert sorted(counted) == sorted((*place, count) for place, count in expected.items())
    errors = Counter(row["message"] for row in rows(bootstrap, "log-errors"))
    assert errors == Counter(line["message"] for line in known if line["level"] == "ERROR")


CANDLE = ("open", "high", "low", "close", "volume", "ticks")


def expected_candles(ticks: Iterable[Row]) -> Counter[tuple[Any, ...]]:
    by_place: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for tick in ticks:
        by_place[tick["symbol"], tick["at"][:16]].append(tick)
    return Counter(
        (
            *place,
            seen[0]["price"],
            max(tick["price"] for tick in seen),
            min(tick["price"] for tick in seen),
            seen[-1]["price"],
            sum(tick["size"] for tick in seen),
            len(seen),
        )
        for place, seen in by_place.items()
    )


def expected_alerts(metrics: list[Row]) -> Counter[tuple[str, str, int]]:
    found: Counter[tuple[str, str, int]] = Counter()
    raised: set[str] = set()
    for metric in metrics:
        host, is_high = metric["host"], metric["value"] > 0.5
        if is_high != (host in raised):
            found[host, "raised" if is_high else "resolved", ms(metric["at"])] += 1
            (raised.add if is_high else raised.discard)(host)
    return found


def check_lake(catalog: str, ticks: list[Row]) -> None:
    from ottla.pipelines.lake_iceberg import open_catalog

    found = open_catalog("default", catalog).load_table("lake.ticks").scan().to_arrow().to_pylist()
    kept = Counter((row["symbol"], row["price"], row["size"], ms(row["at"].isoformat())) for row in found)
    assert kept == Counter((row["symbol"], row["price"], row["size"], ms(row["at"])) for row in ticks)


def check_postgres(bootstrap: str, postgres: Postgres, upserts: list[Row]) -> None:
    newest = {row["id"]: row["total"] for row in upserts}
    assert dict(postgres.query("SELECT id, total FROM totals")) == newest
    expected = Counter(str(row[0]).encode() for row in postgres.query("SELECT id FROM people"))
    assert Counter(key for key, _ in values(bootstrap, "postgres.people")) == expected
