"""Event sourcing: a bank's ledger, whose balances are never negative and can be rebuilt at any moment.

Transactions are JSON in the topic `input`, keyed by account so that those of one account are in order:
`{"id": "7", "kind": "deposit" | "withdraw" | "transfer", "account": "ada", "to": "ben", "amount": 1250, "at": "..."}`,
with the amount in cents and `to` for transfers only. An id counts once, however often it comes: it is known for
`remember_days`, and what is that much older than the newest of its account is refused. What cannot be done (more than
there is, an amount below 1, a kind that there is not) goes to `refused`, with the reason.

What is done is an entry in `entries`, for good: account, amount (negative for what is taken), the balance after it and
a sequence number without gaps. A transfer takes from one account and, by a transaction of kind `credit` that flows back
through the topic `credits`, gives to the other: both, and each once, since a batch's records are one transaction.
`balances` is compacted, and has the newest entry of each account.

With `at` (a moment, such as 2026-11-25T12:00:00Z) nothing is processed: `report` gets each balance as it was then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ottla.pipelines.ledger_ids import BITS, BLOCK, IDS, SLOT, Ids
from ottla.pipelines.runner import Job, Setting

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

SETTINGS = (
    Setting("input", "transactions", "topic of the transactions"),
    Setting("credits", "ledger-credits", "topic of transfers in transit"),
    Setting("entries", "ledger-entries", "topic of the entries"),
    Setting("balances", "balances", "topic of the balances, compacted"),
    Setting("refused", "ledger-refused", "topic of rejected transactions"),
    Setting("remember_days", 7, "how long ids are remembered, by transaction time; older transactions are rejected"),
    Setting("at", "", "a time, to report the balances of that time"),
    Setting("report", "balances-report", "topic of that report"),
)
TRANSACTION = "id STRING, kind STRING, account STRING, to STRING, amount BIGINT, at TIMESTAMP"
ENTRY = "id STRING, kind STRING, account STRING, amount BIGINT, balance BIGINT, sequence BIGINT, at TIMESTAMP"
OUTCOME = ENTRY.replace("at TIMESTAMP", "at_us BIGINT, to STRING, reason STRING, what STRING")
OUTCOMES_MAX = 1000
"""Outcomes in one text."""
BALANCE_MAX = 2**63 - 1
DAY_US = 86_400_000_000


def build(job: Job) -> None:
    if job["at"]:
        report(job)
        return
    topics = {name: job.topic(name) for name in ("entries", "credits", "refused")}
    topics["balances"] = job.topic("balances", cleanup_policy="compact")
    job.feeds_back("credits")
    transactions = job.read_together("entries", ("input", "credits"), TRANSACTION)
    # Only a transfer gives credits.
    is_allowed = (F.col("topic") == topics["credits"]) | ~F.col("value.kind").eqNullSafe("credit")
    done = transactions.where(is_allowed).where("value.account is not null")
    done = done.withColumn("at_us", F.unix_micros("value.at")).select("*", "value.*")
    # PySpark takes rows apart cell by cell, which costs more than the accounts do: as JSON they are one cell each.
    text = F.to_json(F.struct(*Transaction._fields), {"ignoreNullFields": "false"}).alias("transaction")
    accounts = done.select("account", text).groupBy("account")
    texts = accounts.transformWithState(Account(job["remember_days"]), "outcomes STRING", "append", "none")
    outcomes = texts.select(F.inline(F.from_json("outcomes", f"array<struct<{OUTCOME}>>", {"mode": "FAILFAST"})))
    topic = F.expr("case what " + " ".join(f"when '{what}' then '{name}'" for what, name in topics.items()) + " end")
    at = F.timestamp_micros("at_us").alias("at")
    value = F.struct("id", "kind", "account", "amount", "balance", "sequence", at, "to", "reason").alias("value")
    job.write_to("entries", outcomes.select(topic.alias("topic"), F.col("account").alias("key"), value), format="json")


class Transaction(NamedTuple):
    """A row's columns, as JSON. Those of an account are done in the order of these tuples."""

    topic: str
    partition: int
    offset: int
    id: Any
    kind: Any
    account: str
    to: Any
    amount: Any
    at_us: Any
    """These may be null: `refusal` looks."""


class Account(StatefulProcessor):
    """The state of one account: its balance, the number of its last entry, its newest day, and the ids that it knows.

    All of it depends on the records alone, not on the clock, so that a batch that runs again does the same again.
    """

    def __init__(self, remember_days: int) -> None:
        self.remember_days = remember_days

    def init(self, handle: StatefulProcessorHandle) -> None:
        kept = "balance BIGINT, sequence BIGINT, newest INT, slots INT, recent BINARY"
        self.account = handle.getValueState("account", kept)
        self.ids = handle.getMapState("ids", SLOT, IDS)
        self.filters = handle.getMapState("filters", BLOCK, BITS)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        outcomes = self.outcomes(sorted(Transaction(**orjson.loads(row.transaction)) for row in rows))
        while some := list(islice(outcomes, OUTCOMES_MAX)):
            yield Row(outcomes=orjson.dumps(some).decode())

    def outcomes(self, transactions: Iterable[Transaction]) -> Iterator[dict[str, Any]]:
        """Outcomes of the transactions, with the columns of OUTCOME."""
        balance, sequence, newest, slots, recent = self.account.get() or (0, 0, 0, 0, b"")
        entry, seen = None, Ids(self.ids, self.filters, slots, recent)
        for row in transactions:
            # A credit has the id of its transfer, which may be between two accounts that are the same.
            name, oldest = f"{'credit' if row.kind == 'credit' else 'id'}:{row.id}", newest - self.remember_days
            if row.id is not None and seen.known(name, oldest):
                continue
            if reason := refusal(row, balance, oldest):
                yield _outcome(row, "refused", reason=reason)
                continue
            day = row.at_us // DAY_US
            seen.add(name, day)
            amount = row.amount if row.kind in ("deposit", "credit") else -row.amount
            balance, sequence, newest = balance + amount, sequence + 1, max(newest, day)
            entry = _outcome(row, "entries", amount=amount, balance=balance, sequence=sequence)
            yield entry
            if row.kind == "transfer":
                yield _outcome(row, "credits", kind="credit", account=row.to, to=None)
        if entry is not None:
            seen.save(newest - self.remember_days)
            self.account.update((balance, sequence, newest, seen.slots, seen.recent))
            yield {**entry, "what": "balances"}

    def close(self) -> None:
        """Nothing is open."""


def refusal(row: Transaction, balance: int, oldest: int) -> str | None:
    """Why a transaction cannot be done, or None; `oldest` is the first day of which ids are known."""
    if row.id is None or row.amount is None or row.at_us is None:
        return "it needs an id, an amount and a time"
    if row.kind not in ("deposit", "withdraw", "transfer", "credit"):
        return f"there is no kind {row.kind}"
    if row.amount < 1:
        return f"the amount is {row.amount}"
    if row.kind == "transfer" and not row.to:
        return "it does not say to whom"
    # Money that is on its way is never refused: its transfer is known by its other half.
    if row.kind != "credit" and row.at_us // DAY_US < oldest:
        return "it is older than what is remembered"
    if row.kind != "credit" and row.amount > (BALANCE_MAX - balance if row.kind == "deposit" else balance):
        return f"the balance is {balance}"
    return None


def _outcome(row: Transaction, what: str, **others: Any) -> dict[str, Any]:
    same = {"id": row.id, "kind": row.kind, "account": row.account, "amount": row.amount}
    return {**same, "at_us": row.at_us, "to": row.to, "what": what, **others}


def report(job: Job) -> None:
    """Balances at a moment, in a batch."""
    found = balances(job.spark, job.bootstrap, job.topic("entries"), until=job["at"], client=job.client)
    value = F.struct(*found.columns).alias("value")
    write = found.select(F.col("account").alias("key"), value).write.format("ottla").option("value.format", "json")
    chosen = {**job.client, "topic": job.topic("report")}
    write.options(**chosen).mode("append").save()


def balances(
    spark: SparkSession,
    bootstrap: str,
    entries: str,
    *,
    until: str | None = None,
    starting: str = "earliest",
    client: Mapping[str, str] | None = None,
) -> DataFrame:
    """Each account's balance after its entries up to a moment, from any offset: account, balance, sequence, entries.

    What an account had before its first entry there is known from that entry; `sum` is what its entries add up to, and
    always `balance` less `before`. `client` are further options of the source.
    """
    read = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("subscribe", entries)
    chosen = {**(client or {}), "startingOffsets": starting, "value.format": "json", "value.schema": ENTRY}
    found = read.options(**chosen).option("kafka.isolation.level", "read_committed").load().select("value.*")
    if until is not None:
        found = found.where(F.col("at") <= F.lit(until).cast("timestamp"))
    first = F.min_by(F.col("balance") - F.col("amount"), "sequence").alias("before")
    last = F.max_by("balance", "sequence").alias("balance")
    return found.groupBy("account").agg(
        first, F.sum("amount").alias("sum"), last, F.max("sequence").alias("sequence"), F.count("*").alias("entries")
    )
