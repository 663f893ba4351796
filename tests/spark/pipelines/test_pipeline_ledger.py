"""A bank's ledger: never negative, each id once, transfers whole, rebuilt at any moment."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from ottla.pipelines.ledger import balances
from ottla.pipelines.runner.checkpoint import sources
from tests.spark.pipelines.pipelines import dead_letters, feed, names, rows, run_once

TOPICS = ("input", "credits", "entries", "balances", "refused", "report")


def event(number: int | str, kind: str, account: str, amount: int, to: str | None = None) -> dict[str, Any]:
    minute = int(number) if str(number).isdecimal() else 0
    at = f"2026-11-25T{minute // 60:02}:{minute % 60:02}:00Z"
    return {"id": str(number), "kind": kind, "account": account, "amount": amount, "to": to, "at": at}


ODD = 'an id "of\\ \x00 \n these 𝄞'

EVENTS: list[Any] = [
    event(1, "deposit", "ada", 100),
    event(2, "withdraw", "ada", 30),
    event(2, "withdraw", "ada", 30),  # came twice
    event(3, "transfer", "ada", 50, "ben"),
    event(4, "withdraw", "ada", 21),  # one more than there is
    event(5, "deposit", "ada", 0),
    event(6, "steal", "ada", 5),
    event(7, "transfer", "ada", 5),
    event("8", "credit", "ada", 1_000_000),  # nobody gives that to himself
    event("3:credit", "deposit", "ben", 1),  # not what he gets by 3
    event("credit:3", "deposit", "ben", 1),
    event(9, "deposit", "cat", 2**63 - 1),
    event(10, "deposit", "cat", 1),  # 64 bits hold no more
    event(ODD, "deposit", "é\u2028", 5),
    b"no transaction",
]


def by_account(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The newest of each."""
    return {row["account"]: row for row in sorted(found, key=lambda row: row["sequence"])}


def test_what_is_done_and_what_is_refused(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    settings = names(*TOPICS)
    feed(bootstrap, settings["input"], EVENTS)
    run_once(spark, "ledger", bootstrap, tmp_path, settings)
    # Ben has what Ada gave him; her third transaction comes once more.
    again = {**event(1, "deposit", "ada", 100), "at": "2026-11-17T00:00:00Z"}
    feed(bootstrap, settings["input"], [EVENTS[3], event(70, "transfer", "ben", 20, "ben"), {**again, "id": "old"}])
    status = run_once(spark, "ledger", bootstrap, tmp_path, settings)
    entries = rows(bootstrap, settings["entries"])
    found = {(row["account"], row["sequence"]): (row["kind"], row["amount"], row["balance"]) for row in entries}
    assert len(found) == len(entries)
    assert ODD in {row["id"] for row in entries}
    assert found == {
        ("ada", 1): ("deposit", 100, 100),
        ("ada", 2): ("withdraw", -30, 70),
        ("ada", 3): ("transfer", -50, 20),
        ("ben", 1): ("deposit", 1, 1),
        ("ben", 2): ("deposit", 1, 2),
        ("cat", 1): ("deposit", 2**63 - 1, 2**63 - 1),
        ("é\u2028", 1): ("deposit", 5, 5),
        ("ben", 3): ("credit", 50, 52),
        ("ben", 4): ("transfer", -20, 32),
        ("ben", 5): ("credit", 20, 52),
    }
    assert {row["id"]: row["reason"] for row in rows(bootstrap, settings["refused"])} == {
        "4": "the balance is 20",
        "5": "the amount is 0",
        "6": "there is no kind steal",
        "7": "it does not say to whom",
        "old": "it is older than what is remembered",
        "10": f"the balance is {2**63 - 1}",
    }
    newest = by_account(rows(bootstrap, settings["balances"]))
    assert {account: row["balance"] for account, row in newest.items()} == {
        "ada": 20,
        "ben": 52,
        "cat": 2**63 - 1,
        "é\u2028": 5,
    }
    assert status.dead_letters >= 1
    assert len(dead_letters(bootstrap, "ledger", settings["input"])) == 1

    run_once(spark, "ledger", bootstrap, tmp_path / "report", {**settings, "at": "2026-11-25T00:02:30Z"})
    assert sorted((row["account"], row["balance"]) for row in rows(bootstrap, settings["report"])) == [
        ("ada", 70),
        ("ben", 2),
        ("é\u2028", 5),
    ]


@pytest.mark.parametrize("seed", [3])
def test_money_is_neither_made_nor_lost(seed: int, spark: Any, bootstrap: str, tmp_path: Path) -> None:
    settings = names(*TOPICS)
    dice = random.Random(seed)
    accounts = [f"account-{number}" for number in range(12)]
    events: list[Any] = []
    for number in range(600):
        kind = dice.choice(("deposit", "withdraw", "transfer", "transfer"))
        events.append(event(number, kind, dice.choice(accounts), dice.randint(1, 100), dice.choice(accounts)))
        if dice.random() < 0.1:
            events.append(dice.choice(events))
    for half in (events[:300], events[300:]):
        feed(bootstrap, settings["input"], half, key="account")
        run_once(spark, "ledger", bootstrap, tmp_path, settings, batch_records=200)
    entries = rows(bootstrap, settings["entries"])
    refused = {row["id"] for row in rows(bootstrap, settings["refused"])}
    history = defaultdict(list)
    for row in sorted(entries, key=lambda row: row["sequence"]):
        history[row["account"]].append(row)
    for account, done in history.items():
        assert [row["sequence"] for row in done] == list(range(1, len(done) + 1)), account
        balance = 0
        for row in done:
            balance += row["amount"]
            assert row["balance"] == balance >= 0
    # Each id once, or refused; a transfer twice, and with sum zero.
    by_id = defaultdict(list)
    for row in entries:
        by_id[row["id"]].append(row)
    assert set(by_id) | refused == {each["id"] for each in events}
    for done in by_id.values():
        kinds = Counter(row["kind"] for row in done)
        assert kinds in ({"deposit": 1}, {"withdraw": 1}, {"transfer": 1, "credit": 1})
        assert "transfer" not in kinds or sum(row["amount"] for row in done) == 0
    paid = sum(row["amount"] for row in entries if row["kind"] in ("deposit", "withdraw"))
    newest = by_account(rows(bootstrap, settings["balances"]))
    assert sum(row["balance"] for row in newest.values()) == paid
    # Rebuilt from the entries alone, from their beginning and from the middle of them.
    for starting in ("earliest", f'{{"{settings["entries"]}":{{"0":20,"1":30,"2":10}}}}'):
        rebuilt = balances(spark, bootstrap, settings["entries"], starting=starting).collect()
        assert {row.account: row.balance for row in rebuilt} == {
            row.account: newest[row.account]["balance"] for row in rebuilt
        }
        assert all(row.before + row.sum == row.balance for row in rebuilt) and len(rebuilt) > 6


def test_thousands_of_ids_come_again(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    """More than an account keeps as its newest ones: these are found in its slots."""
    settings = names(*TOPICS)
    events = [{**event(number, "deposit", "ada", 1), "at": "2026-11-25T00:00:00Z"} for number in range(3000)]
    feed(bootstrap, settings["input"], events[:2000], key="account")
    run_once(spark, "ledger", bootstrap, tmp_path, settings, batch_records=1000)
    feed(bootstrap, settings["input"], events, key="account")
    run_once(spark, "ledger", bootstrap, tmp_path, settings, batch_records=1000)
    entries = rows(bootstrap, settings["entries"])
    assert Counter(row["id"] for row in entries) == Counter(each["id"] for each in events)
    assert by_account(rows(bootstrap, settings["balances"]))["ada"]["balance"] == 3000
    assert rows(bootstrap, settings["refused"]) == []


def test_a_checkpoint_with_a_source_for_each_topic(
    spark: Any, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier builds read the topics by two sources: their balances and ids are kept."""
    settings = names(*TOPICS)
    feed(bootstrap, settings["input"], [event(1, "deposit", "ada", 100), event(2, "transfer", "ada", 30, "ben")])
    with monkeypatch.context() as earlier:
        earlier.setattr("ottla.pipelines.runner.checkpoint.sources", lambda spark, checkpoint: 2)
        run_once(spark, "ledger", bootstrap, tmp_path, settings)
    written = f"{tmp_path}/ledger/checkpoints/entries"
    assert sources(spark, written) == 2 and sources(spark, f"{tmp_path}/none") is None
    feed(bootstrap, settings["input"], [event(2, "transfer", "ada", 30, "ben"), event(3, "transfer", "ben", 10, "ada")])
    run_once(spark, "ledger", bootstrap, tmp_path, settings)
    assert sources(spark, written) == 2
    newest = by_account(rows(bootstrap, settings["balances"]))
    assert {account: row["balance"] for account, row in newest.items()} == {"ada": 80, "ben": 20}
