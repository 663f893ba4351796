"""What `bench.pipelines` gives to pipelines, and what has to come of it: each result is compared with what a batch
query of Spark makes of the same records, but for the ledger's: its books have to balance, and to have each id once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench import pipeline_stores as stores
from bench.pipeline_stores import exactly
from ottla.pipelines import activity, join, logs, metrics, ticks
from ottla.pipelines.ledger import ENTRY, balances

BEGIN_S = 1_790_000_000
RULE_LIMIT = 0.999
"""One of a metric's thousand values is this large."""
DELAY = "10 minutes"
"""Partitions are read at different speeds, and what is late is dropped."""


@dataclass(frozen=True)
class Input:
    """Key and value of event number `id`, in the order of their times; `{begin}` is the time of the first, in ms."""

    key: str
    value: str
    share: float = 1.0
    """Share of all events."""

    @classmethod
    def of(cls, key: str, share: float = 1.0, **fields: str) -> Input:
        """A JSON object."""
        named = ", ".join(f"'{name}', {expression}" for name, expression in fields.items())
        return cls(key, f"to_json(named_struct({named}))", share)

    def frame(self, spark: SparkSession, events: int, begin_ms: int) -> DataFrame:
        key, value = (text.replace("{begin}", str(begin_ms)) for text in (self.key, self.value))
        # One task, so that each partition is in the order of the times.
        return spark.range(0, round(events * self.share), 1, 1).selectExpr(f"{key} as key", f"{value} as value")


@dataclass(frozen=True)
class Ran:
    """Topics and settings of a run, to read what it has read and written."""

    spark: SparkSession
    bootstrap: str
    settings: Mapping[str, Any]
    events: int

    def records(self, setting: str, schema: str = "") -> DataFrame:
        """Records of the topic that a setting names."""
        return self.of_topic(str(self.settings[setting]), schema)

    def of_topic(self, topic: str, schema: str = "") -> DataFrame:
        chosen = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic}
        if schema:
            chosen |= {"value.format": "json", "value.schema": schema}
        return self.spark.read.format("ottla").options(**chosen).load()

    def values(self, setting: str, schema: str) -> DataFrame:
        return self.records(setting, schema).select("value.*")


@dataclass(frozen=True)
class Load:
    pipeline: str
    check: Callable[[Ran], None]
    """Raises AssertionError where a result is not exact."""
    inputs: Mapping[str, Input] = field(default_factory=dict)
    """Inputs by the settings that name their topics."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    store: stores.Store = lambda directory, events: nullcontext({})
    """Store beside topics, for a directory and a number of events: it gives the settings that name it."""
    on_connector: bool = True
    """Whether Spark's connector can stand in for its source and sink."""


def over(at: str, inputs: DataFrame) -> Any:
    """The moment up to which windows are over at the end of a run."""
    found = inputs.agg(f.max(at) - f.expr(f"interval {DELAY}")).first()
    assert found is not None
    return f.lit(found[0])


def check_activity(ran: Ran) -> None:
    views = ran.values("input", activity.VIEW)
    expected = views.groupBy("user", f.session_window("at", "30 minutes").alias("session")).agg(
        f.min("at").alias("start"), f.max("at").alias("end"), f.count("*").alias("views")
    )
    # Not the session's own end: Spark filters by that before it has put sessions together.
    expected = expected.withColumn("ends", f.col("end") + f.expr("interval 30 minutes"))
    names = ("user", "start", "end", "views")
    found = ran.values("sessions", "user STRING, start TIMESTAMP, end TIMESTAMP, views BIGINT")
    ended = expected.where(f.col("ends") <= over("at", views))
    exactly(found.select(*names), ended.select(*names))
    # A session is in the window that has its last moment, which its end is not any more.
    last = f.col("ends") - f.expr("interval 1 microsecond")
    hours = ended.groupBy(f.window(last, "10 minutes").alias("window")).agg(f.count("*").alias("sessions"))
    hours = hours.where(f.col("window.end") <= over("at", views)).select("window.start", "sessions")
    exactly(ran.values("funnels", "start TIMESTAMP, sessions BIGINT"), hours)


def check_metrics(ran: Ran) -> None:
    rows = ran.values("input", metrics.METRIC)
    windows = rows.groupBy("host", "name", f.window("at", "1 minute").alias("window"))
    names = ("host", "name", "start", "count", "min", "max")
    expected = windows.agg(
        f.count("*").alias("count"),
        f.min("value").alias("min"),
        f.max("value").alias("max"),
        f.col("window.start").alias("start"),
        f.col("window.end").alias("ends"),
    )
    found = ran.values("rollups", "host STRING, name STRING, start TIMESTAMP, count BIGINT, min DOUBLE, max DOUBLE")
    exactly(found.select(*names), expected.where(f.col("ends") <= over("at", rows)).select(*names))
    high = f.col("value") >= RULE_LIMIT
    before = f.expr("lag(high, 1, false) over (partition by host order by at)")
    changes = rows.where("name = 'cpu'").withColumn("high", high).withColumn("before", before).where("high != before")
    what = f.when(f.col("high"), "raised").otherwise("resolved").alias("what")
    exactly(ran.values("alerts", "host STRING, what STRING, at TIMESTAMP"), changes.select("host", what, "at"))


def check_ledger(ran: Ran) -> None:
    entries = ran.values("entries", ENTRY)
    one = entries.where("kind != 'credit'").agg(f.count("*"), f.count_distinct("id")).first()
    refused = ran.values("refused", "id STRING").agg(f.count("*"), f.count_distinct("id")).first()
    assert one is not None and one[0] == one[1]
    assert refused is not None and refused[0] == refused[1]
    assert one[0] + refused[0] == ran.events, f"{one[0]} done and {refused[0]} refused, of {ran.events}"
    moved = entries.where("kind in ('transfer', 'credit')").agg(f.sum("amount")).first()
    assert moved is not None and moved[0] == 0, f"transfers have made {moved[0]}"
    low = entries.agg(f.min("balance")).first()
    assert low is not None and low[0] >= 0
    wrong = balances(ran.spark, ran.bootstrap, str(ran.settings["entries"])).where(
        "before != 0 or sum != balance or sequence != entries"
    )
    assert wrong.count() == 0


def check_ticks(ran: Ran) -> None:
    read = ran.records("input", ticks.TICK)
    place = f.struct("value.at", "partition", "offset")
    windows = read.groupBy("value.symbol", f.window("value.at", "1 minute").alias("window"))
    expected = windows.agg(
        f.min_by("value.price", place).alias("open"),
        f.max("value.price").alias("high"),
        f.min("value.price").alias("low"),
        f.max_by("value.price", place).alias("close"),
        f.sum("value.size").alias("volume"),
        f.count("*").alias("ticks"),
        f.col("window.start").alias("start"),
        f.col("window.end").alias("ends"),
    )
    names = ("symbol", "start", "open", "high", "low", "close", "volume", "ticks")
    schema = "symbol STRING, start TIMESTAMP, open DOUBLE, high DOUBLE, low DOUBLE, close DOUBLE, volume BIGINT,"
    found = ran.values("candles", f"{schema} ticks BIGINT")
    exactly(found.select(*names), expected.where(f.col("ends") <= over("value.at", read)).select(*names))


def check_join(ran: Ran) -> None:
    orders = ran.values("orders", join.ORDER)
    payments = ran.values("payments", join.PAYMENT).withColumnsRenamed({"order": "paid_order", "at": "paid_at"})
    paid = payments.join(orders.select("order"), f.col("order") == f.col("paid_order")).select("order", "payment")
    exactly(ran.values("paid", "order STRING, payment STRING"), paid)
    unpaid = orders.join(payments, f.col("order") == f.col("paid_order"), "left_anti")
    known = unpaid.where(f.col("at") + f.expr("interval 1 minute") < over("at", orders))
    found = ran.values("unpaid", "order STRING, at TIMESTAMP")
    exactly(found.where(f.col("at") + f.expr("interval 1 minute") < over("at", orders)), known.select("order", "at"))
    assert found.join(unpaid, "order", "left_anti").count() == 0


def check_logs(ran: Ran) -> None:
    # The pipeline's own parsing, which tests compare with real logs: here it is that each line counts once.
    lines = logs.parsed(ran.records("input")).where("at is not null")
    names = ("start", "host", "level", "lines")
    expected = lines.groupBy(f.window("at", "1 minute").alias("window"), "host", "level").agg(
        f.count("*").alias("lines"), f.col("window.start").alias("start"), f.col("window.end").alias("ends")
    )
    found = ran.values("counts", "start TIMESTAMP, host STRING, level STRING, lines BIGINT")
    exactly(found.select(*names), expected.where(f.col("ends") <= over("at", lines)).select(*names))
    errors = lines.where("level = 'ERROR'").select("at", "host", "message")
    exactly(ran.values("errors", "at TIMESTAMP, host STRING, message STRING"), errors)
    kept = ran.spark.read.parquet(str(ran.settings["table"]))
    exactly(kept.select("at", "host", "message"), lines.select("at", "host", "message"))


def check_replay(ran: Ran) -> None:
    columns = ("key", "value", "partition", "timestamp")
    exactly(ran.records("output").select(*columns), ran.records("input").select(*columns))


def _one_of(*texts: str, by: str = "hash(id)") -> str:
    listed = ", ".join(f"'{text}'" for text in texts)
    return f"element_at(array({listed}), cast(pmod({by}, {len(texts)}) as int) + 1)"


AT = "timestamp_millis({begin} + id * 10)"
VISITOR = "concat('user-', id div 100000 % 4 * 5000 + id % 5000)"
"""Five thousand visitors for 33 minutes, then as many others, who come back when their sessions are over."""
LINE = (
    "case id % 3"
    f" when 0 then concat('10.0.0.', id % 250, ' - - [', date_format({AT}, 'dd/MMM/yyyy:HH:mm:ss Z'), '] \"GET /page/',"
    f" id % 1000, ' HTTP/1.1\" ', {_one_of('200', '200', '200', '404', '500')}, ' 512')"
    f" when 1 then concat(date_format({AT}, 'yyyy-MM-dd HH:mm:ss.SSS'), ' ',"
    f" {_one_of('INFO', 'INFO', 'WARN', 'ERROR')}, ' request ', id, ' took ', id % 90, ' ms')"
    f" else to_json(named_struct('time', {AT}, 'level', {_one_of('info', 'info', 'debug', 'error')}, 'service', 'shop',"
    " 'message', concat('order ', id))) end"
)
ROW = Input.of(
    "cast(id as string)", id="id", customer="concat('customer-', id % 10000)",
    amount="cast(pmod(hash(id), 100000) as double) / 100", note="'left at the door'", at=AT,
)  # fmt: skip


def _lake(kind: str) -> Load:
    settings = {"kind": kind, "schema": stores.ROW, "at": "at", "compact_every": 5, "delta": ""}
    return Load("lake", stores.check_lake, {"input": ROW}, settings, stores.lake(kind))


LOADS: Mapping[str, Load] = {
    "activity": Load(
        "activity", check_activity,
        {"input": Input.of(VISITOR, user=VISITOR, at="timestamp_millis({begin} + id * 20)",
                           page=_one_of("/", "/product", "/cart", "/checkout", "/help"))},
        {"delay": DELAY, "every": "10 minutes"},
    ),
    "metrics": Load(
        "metrics", check_metrics,
        {"input": Input.of("concat('host-', id % 100)", host="concat('host-', id % 100)", at=AT,
                           name=_one_of("cpu", "memory", "disk_free", by="id div 100"),
                           value="pmod(hash(id), 1000) / 1000d")},
        {"delay": DELAY, "rules": f"cpu >= {RULE_LIMIT}"},
    ),
    "ledger": Load(
        "ledger", check_ledger,
        {"input": Input.of("concat('account-', id % 1000)", id="cast(id as string)", at=AT,
                           kind=_one_of("deposit", "withdraw", "transfer"), account="concat('account-', id % 1000)",
                           to="concat('account-', pmod(hash(id, 1), 1000))",
                           amount="cast(1 + pmod(hash(id, 2), 10000) as bigint)")},
    ),
    "ticks": Load(
        "ticks", check_ticks,
        {"input": Input.of("concat('S', id % 200)", symbol="concat('S', id % 200)", at=AT,
                           price="cast(100 + pmod(hash(id), 10000) as double) / 100", size="1 + id % 900")},
        {"delay": DELAY},
    ),
    "join": Load(
        "join", check_join,
        {"orders": Input.of("cast(id as string)", 0.5, order="cast(id as string)", amount="12.5d", at=AT,
                            customer="concat('customer-', id % 10000)"),
         # Of five orders two are paid by two payments, one by one, and two not at all.
         "payments": Input.of("cast(id - if(id % 5 < 3, 0, 3) as string)", 0.5, payment="concat('p', id)",
                              order="cast(id - if(id % 5 < 3, 0, 3) as string)", amount="12.5d",
                              at="timestamp_millis({begin} + id * 10 + 1000)")},
        {"delay": DELAY, "within": "1 minute"},
    ),
    "logs": Load(
        "logs", check_logs, {"input": Input("concat('web-', id % 4)", LINE)}, {"delay": DELAY}, stores.log_table
    ),
    "replay": Load("replay", check_replay, {"input": ROW}),
    "lake-delta": _lake("delta"),
    "lake-parquet": _lake("parquet"),
    "lake-iceberg": _lake("iceberg"),
    "postgres-in": Load(
        "postgres", stores.check_rows_in, settings={"tables": "rows", "changed": "changed_in", "prefix": "bench."},
        store=stores.table_of_rows, on_connector=False,
    ),
    "postgres-out": Load(
        "postgres", stores.check_upserts,
        {"input": Input.of("cast(id % 100000 as string)", id="id % 100000", name="concat('customer-', id % 100000)",
                           total="id")},
        {"into": "totals", "columns": "id BIGINT, name STRING, total BIGINT"}, stores.database,
    ),
}  # fmt: skip
