"""`ottla txn ...`: see transactions, find those that hang, and abort them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from ottla.cli.client_security import ClientFile
from ottla.cli.exits import OK, CommandFailed
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from ottla.cli.output import bold, iso_time, print_json, print_table, visible
from ottla.cli.txn.abort import abort
from ottla.cli.txn.hanging import hanging
from ottla.cli.txn.requests import Transaction, described, listed
from ottla.cli.units import duration, long_time
from ottla.cli.values import Seconds, TransactionalId

app = App(name="txn", help="Show transactions, find hanging ones, and abort them.", sort_key=6)
app.command(hanging, sort_key=3)
app.command(abort, sort_key=4)

State = Literal["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"]

TIMEOUT_NONE_MS = 2**31 - 1
"""Timeout of a transaction whose outcome is decided elsewhere (two-phase commit, KIP-939): it never expires."""


@app.command(name="list", sort_key=1)
def list_(
    *,
    state: Annotated[list[State] | None, Parameter(negative="", consume_multiple=False)] = None,
    open_for: Seconds | None = None,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """List transactional ids with their state, and for how long open transactions have been open.

    Parameters
    ----------
    state
        Only ids in this state; may be repeated. Ongoing means open; Prepare... means that the outcome is decided and
        its markers are being written.
    open_for
        Only transactions open for longer than this many seconds.
    """
    now_s = time.time()
    found = listed(bootstrap, states=state or ())
    if open_for is not None:
        found = [each for each in found if (each.open_s(now_s) or 0.0) > open_for]
    if json:
        print_json([_facts(each, now_s) for each in found])
    elif found:
        print_table(
            ("TRANSACTIONAL ID", "STATE", "OPEN FOR>", "PARTITIONS>", "PRODUCER ID>", "COORDINATOR"),
            [
                (
                    each.transactional_id,
                    each.state,
                    _duration(each.open_s(now_s)),
                    len(each.partitions) if each.is_open else None,
                    each.producer_id,
                    each.coordinator,
                )
                for each in found
            ],
        )
    elif state or open_for is not None:
        print("no such transactions; see all with: ottla txn list")
    else:
        print("no transactions yet; producers with a transactional.id create them")
    return OK


@app.command(sort_key=2)
def describe(
    *ids: Annotated[TransactionalId, Parameter(help="One or more transactional ids.", required=True)],
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Show the transaction of a transactional id: its state, producer, timeout and partitions.

    Once a transaction's outcome is decided, only the partitions whose marker is not written yet are shown.
    """
    names = list(dict.fromkeys(ids))
    found = described(bootstrap, names)
    now_s = time.time()
    there = [found[name] for name in names if name in found]
    if json:
        print_json([_facts(each, now_s) for each in there])
    else:
        for number, each in enumerate(there):
            if number:
                print()
            _print(each, now_s)
    raise_absent([name for name in names if name not in found])
    return OK


def raise_absent(names: Sequence[str]) -> None:
    """Raises CommandFailed where there are any."""
    if names:
        sentences = [f"there is no transactional id {name!r}" for name in names]
        raise CommandFailed("\nottla: ".join(sentences) + "\n  see them with: ottla txn list")


def _facts(each: Transaction, now_s: float) -> dict[str, Any]:
    open_s = each.open_s(now_s)
    return {
        "transactional_id": each.transactional_id,
        "state": each.state,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "timeout_ms": each.timeout_ms,
        "open_since": None if open_s is None or each.start_ms is None else iso_time(each.start_ms),
        "open_seconds": None if open_s is None else round(open_s, 3),
        "partitions": [{"topic": topic, "partition": number} for topic, number in each.partitions],
        "coordinator": each.coordinator,
    }


def _print(each: Transaction, now_s: float) -> None:
    facts = [each.state]
    open_s = each.open_s(now_s)
    if open_s is not None:
        facts.append(f"open for {duration(open_s)}")
    timeout_ms = each.timeout_ms or 0
    facts.append("no timeout" if timeout_ms == TIMEOUT_NONE_MS else f"timeout {long_time(timeout_ms)}")
    facts.append(f"producer {each.producer_id} epoch {each.producer_epoch}")
    facts.append(f"coordinator {each.coordinator}")
    print(f"{bold(visible(each.transactional_id))}  {', '.join(facts)}")
    if each.partitions:
        print_table(("TOPIC", "PARTITION>"), each.partitions, indent=2)
    elif each.is_open:
        print("  nothing written yet" if each.state == "Ongoing" else "  every partition has its marker")


def _duration(seconds: float | None) -> str | None:
    return None if seconds is None else duration(seconds)
