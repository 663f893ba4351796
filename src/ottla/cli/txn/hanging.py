"""`ottla txn hanging`: transactions that are open in a partition and that no coordinator will end, as Kafka's
`TransactionsCommand find-hanging` finds them (KIP-664, KAFKA-14402)."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.cli.client_security import ClientFile
from ottla.cli.exits import OK, CommandFailed
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from ottla.cli.output import iso_time, plural, print_json, print_table
from ottla.cli.txn.requests import Place, leaders, listed, open_at, patiently
from ottla.cli.units import duration
from ottla.cli.values import Minutes, TopicName
from ottla.client.requests import OpenAt

OLDER_THAN_MIN = 15.0
"""transaction.max.timeout.ms by default: no coordinator leaves a transaction open for longer."""

IDS_PER_QUESTION = 1_000


@dataclass(frozen=True)
class Hanging:
    """A transaction that is open in a partition, and the id whose transaction it was, if that is known."""

    at: OpenAt
    transactional_id: str | None

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.at.topic,
            "partition": self.at.partition,
            "start_offset": self.at.start_offset,
            "producer_id": self.at.producer_id,
            "producer_epoch": self.at.producer_epoch,
            "coordinator_epoch": self.at.coordinator_epoch,
            "last_written": iso_time(self.at.last_timestamp_ms),
            "transactional_id": self.transactional_id,
        }


def hanging(
    topic: TopicName | None = None,
    /,
    *,
    older_than: Minutes = OLDER_THAN_MIN,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Find hanging transactions: open in a partition but unknown to their coordinator.

    Consumers with isolation.level=read_committed cannot read past one. Abort it with `ottla txn abort`.

    Parameters
    ----------
    topic
        The topic to search. Default: all.
    older_than
        Minutes since the transaction last wrote to the partition. Choose more than the brokers'
        transaction.max.timeout.ms: a younger transaction may still be ended by its coordinator.
    """
    found, without = find(bootstrap, None if topic is None else [topic], older_than * 60_000)
    if json:
        print_json([each.as_json() for each in found])
    elif found:
        _print(found)
    elif not without:
        print("no hanging transactions")
    if without:
        raise CommandFailed(
            f"{plural(len(without), 'partition')} without a leader could not be asked\n"
            "  see them with: ottla topic describe --offline"
        )
    return OK


def _print(found: Sequence[Hanging]) -> None:
    now_s = time.time()
    print_table(
        ("TOPIC", "PARTITION>", "START OFFSET>", "PRODUCER ID>", "EPOCH>", "LAST WRITTEN", "", "TRANSACTIONAL ID"),
        [
            (
                each.at.topic,
                each.at.partition,
                each.at.start_offset,
                each.at.producer_id,
                each.at.producer_epoch,
                iso_time(each.at.last_timestamp_ms),
                f"{duration(max(0.0, now_s - each.at.last_timestamp_ms / 1000))} ago",
                each.transactional_id or "unknown",
            )
            for each in found
        ],
    )
    first = found[0].at
    print("\nabort one with, for example:")
    print(f"  ottla txn abort --topic {first.topic} --partition {first.partition} --start-offset {first.start_offset}")


def find(bootstrap: str, topics: Collection[str] | None, older_ms: float) -> tuple[list[Hanging], list[Place]]:
    """Hanging transactions last written to at least so long ago, and the partitions without a leader to ask.

    What partitions say comes before what coordinators say, so that a transaction which begins or ends meanwhile is not
    taken for one that hangs; and they are asked again, as it may have ended in between. Raises CommandFailed.
    """

    def attempt() -> tuple[list[OpenAt], list[Place]]:
        led = leaders(bootstrap, topics)
        found = [each for address, places in led.by_address.items() for each in open_at(address, places)]
        return found, list(led.without)

    before, without = patiently(attempt)
    late_ms = time.time() * 1000 - older_ms
    late = [each for each in before if each.last_timestamp_ms <= late_ms]
    suspects = _unknown_to_coordinators(bootstrap, late)
    if not suspects:
        return [], without
    wanted = {each.at.topic for each in suspects}
    still = set(patiently(lambda: _open_in(bootstrap, wanted)))
    return [each for each in suspects if each.at in still], without


def _open_in(bootstrap: str, topics: Iterable[str]) -> list[OpenAt]:
    led = leaders(bootstrap, topics)
    return [each for address, places in led.by_address.items() for each in open_at(address, places)]


def _unknown_to_coordinators(bootstrap: str, transactions: Sequence[OpenAt]) -> list[Hanging]:
    """The transactions whose producer id belongs to no transactional id, or whose partition is not in that id's
    transaction."""
    known = owners(bootstrap, {each.producer_id for each in transactions})
    return [
        Hanging(each, owner[0] if owner else None)
        for each in sorted(transactions, key=lambda each: (each.topic, each.partition, each.start_offset))
        if (owner := known.get(each.producer_id)) is None or (each.topic, each.partition) not in owner[1]
    ]


def owners(bootstrap: str, producer_ids: Collection[int]) -> Mapping[int, tuple[str, Collection[Place]]]:
    """Producer ids to the transactional id that has each, and the partitions of its transaction. Raises
    CommandFailed."""
    found: dict[int, tuple[str, Collection[Place]]] = {}
    wanted = sorted(producer_ids)
    for start in range(0, len(wanted), IDS_PER_QUESTION):
        for each in listed(bootstrap, producer_ids=wanted[start : start + IDS_PER_QUESTION]):
            found[each.producer_id] = (each.transactional_id, set(each.partitions))
    return found
