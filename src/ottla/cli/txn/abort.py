"""`ottla txn abort`: by its transactional id, which fences the producer, or one that hangs in a partition."""

from __future__ import annotations

from typing import Any

from ottla.cli.client import REQUEST_TIMEOUT_S
from ottla.cli.client_security import ClientFile
from ottla.cli.exits import MISUSED, OK, CommandFailed
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from ottla.cli.output import print_json, visible
from ottla.cli.txn.hanging import owners
from ottla.cli.txn.requests import (
    Passing,
    Place,
    Transaction,
    ask_broker,
    described,
    ensure_none,
    leaders,
    open_at,
    patiently,
)
from ottla.cli.values import Offset, Partition, TopicName, TransactionalId
from ottla.client.requests import OpenAt
from ottla.protocol.messages import ApiKey


def abort(
    transactional_id: TransactionalId | None = None,
    /,
    *,
    topic: TopicName | None = None,
    partition: Partition | None = None,
    start_offset: Offset | None = None,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Abort the open transaction of a transactional id, or a hanging transaction in a partition.

    By id: the producer is fenced and its next request fails; a producer that initializes again with the id can
    continue. A hanging transaction (see `ottla txn hanging`) is named by --topic, --partition and --start-offset and
    aborted in that partition only; this fails while its coordinator knows of the transaction.

    Parameters
    ----------
    transactional_id
        The transactional id.
    topic
        The topic of the hanging transaction.
    partition
        Its partition.
    start_offset
        Its first offset, as `ottla txn hanging` shows it.
    """
    place = (topic, partition, start_offset)
    if transactional_id is not None:
        if any(each is not None for each in place):
            raise CommandFailed(
                "give a transactional id, or --topic, --partition and --start-offset, not both", MISUSED
            )
        result = _abort_of(bootstrap, transactional_id)
        sentence = f"{visible(transactional_id)}: transaction aborted, its producer is fenced"
    elif topic is not None and partition is not None and start_offset is not None:
        result = _abort_at(bootstrap, topic, partition, start_offset)
        sentence = f"{topic} partition {partition}: the transaction that starts at offset {start_offset} is aborted"
    else:
        raise CommandFailed(
            "give a transactional id, or all of --topic, --partition and --start-offset\n"
            "  see them with: ottla txn list, ottla txn hanging",
            MISUSED,
        )
    if json:
        print_json(result)
    else:
        print(sentence)
    return OK


def _abort_of(bootstrap: str, name: str) -> dict[str, Any]:
    """Like `Admin.fenceProducers`: a new epoch for the id ends what the old one has open. Raises CommandFailed."""
    found = described(bootstrap, [name]).get(name)
    if found is None:
        raise CommandFailed(f"there is no transactional id {name!r}\n  see them with: ottla txn list")
    if found.state != "Ongoing":
        happens = "is already ending" if found.is_open else "has no open transaction"
        raise CommandFailed(f"transactional id {name!r} {happens}, its state is {found.state}")
    patiently(lambda: _fence(bootstrap, found))
    return {
        "transactional_id": name,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "partitions": [{"topic": topic, "partition": number} for topic, number in found.partitions],
        "aborted": True,
    }


def _fence(bootstrap: str, transaction: Transaction) -> None:
    """Until the transaction has ended, while its markers are being written. Nobody is fenced who came after it."""
    name = transaction.transactional_id
    now = described(bootstrap, [name]).get(name)
    if now is not None and now.state in ("PrepareCommit", "CompleteCommit"):
        raise CommandFailed(f"transactional id {name!r}: its producer committed the transaction in the meantime")
    if now is None or not now.is_open or now.start_ms != transaction.start_ms:
        return
    if now.state == "Ongoing":
        # The id gets this timeout if the transaction ends of itself first, until its next producer brings its own.
        timeout_ms = min(transaction.timeout_ms or 1, int(REQUEST_TIMEOUT_S * 1000))
        values = {
            "transactional_id": name,
            "transaction_timeout": timeout_ms,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        answer = ask_broker(now.coordinator, ApiKey.INIT_PRODUCER_ID, values)
        ensure_none(answer["error_code"], f"transactional id {name!r}")
        return
    raise Passing(f"transactional id {name!r}: its markers are not all written yet\n  try again in a moment")


def _abort_at(bootstrap: str, topic: str, partition: int, start_offset: int) -> dict[str, Any]:
    """Write an abort marker as Kafka's tool does, in the name of the coordinator last heard of. Raises
    CommandFailed."""
    place = (topic, partition)
    subject = f"{topic} partition {partition}"
    _, found = patiently(lambda: _open_from(bootstrap, place, start_offset))
    if found is None:
        raise CommandFailed(
            f"{subject}: no open transaction starts at offset {start_offset}\n  see hanging ones with: ottla txn "
            f"hanging {topic}"
        )
    owner = owners(bootstrap, [found.producer_id]).get(found.producer_id)
    if owner is not None and place in owner[1]:
        raise CommandFailed(
            f"{subject}: that transaction is not hanging: transactional id {owner[0]!r} owns it\n  abort it in all "
            f"partitions with: ottla txn abort {owner[0]}"
        )
    marker = {
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "transaction_result": False,
        "topics": [{"name": topic, "partition_indexes": [partition]}],
        "coordinator_epoch": max(0, found.coordinator_epoch),
    }

    def write() -> None:
        """A marker that was written by an attempt whose answer got lost is not written again."""
        leader, still = _open_from(bootstrap, place, start_offset)
        if still is None:
            return
        for each in ask_broker(leader, ApiKey.WRITE_TXN_MARKERS, {"markers": [marker]})["markers"]:
            for row in each["topics"]:
                for part in row["partitions"]:
                    ensure_none(part["error_code"], subject)

    patiently(write)
    return {
        "topic": topic,
        "partition": partition,
        "start_offset": start_offset,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "aborted": True,
    }


def _open_from(bootstrap: str, place: Place, start_offset: int) -> tuple[str, OpenAt | None]:
    """The leader of a partition, and the transaction that is open there from an offset on. Raises CommandFailed, and
    Passing where nobody leads."""
    topic, number = place
    led = leaders(bootstrap, [topic])
    for address, places in led.by_address.items():
        if place in places:
            found = [each for each in open_at(address, [place]) if each.start_offset == start_offset]
            return address, found[0] if found else None
    if place in led.without:
        raise Passing(f"{topic} partition {number} has no leader\n  see why with: ottla topic explain {topic}")
    raise CommandFailed(
        f"topic {topic!r}: there is no partition {number}\n  see the partitions with: ottla topic describe {topic}"
    )
