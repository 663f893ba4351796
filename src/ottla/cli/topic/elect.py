"""`ottla topic elect`: leaders that are where they should be, as Kafka's `LeaderElectionCommand` (ElectLeaders)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any

from cyclopts import Parameter

from ottla.cli.client import admin_client, error_of, explain, failure, wait
from ottla.cli.client_security import ClientFile
from ottla.cli.exits import FAILED, MISUSED, OK, CommandFailed
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Flag
from ottla.cli.output import plural, print_json
from ottla.cli.topic.partition_health import PartitionHealth, partitions
from ottla.cli.values import Partition, TopicName
from ottla.errors import ErrorCode

Key = tuple[str, int]


def elect(
    topic: TopicName | None = None,
    /,
    *,
    partition: Annotated[list[Partition] | None, Parameter(alias="-p", negative="", consume_multiple=False)] = None,
    unclean: Flag = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Elect the preferred leader (the first replica) of partitions now.

    Parameters
    ----------
    topic
        The topic. Default: every partition of the cluster that is not led by its preferred leader.
    partition
        Only this one; may be repeated.
    unclean
        If no in-sync replica is left, elect any live replica. RECORDS THAT IT LACKS ARE LOST.
    """
    if topic is None and (partition or unclean):
        raise CommandFailed(f"{'--unclean' if unclean else '--partition'} needs a TOPIC", MISUSED)
    found = {(each.topic, each.partition): each for each in partitions(bootstrap, [topic] if topic else ())}
    keys = None if topic is None else _chosen(topic, found, partition)
    results = _ask(bootstrap, keys, unclean)
    leaders = {key: each.replicas[0] for key, each in found.items()}
    if unclean and any(error is None for error in results.values()):
        found = {(each.topic, each.partition): each for each in partitions(bootstrap, [topic or ""])}
    if unclean:
        leaders = {key: each.leader for key, each in found.items() if each.leader is not None}
    return _report(results, leaders, found, json)


def _chosen(topic: str, found: Collection[Key], wanted: Collection[int] | None) -> list[Key]:
    """Raises CommandFailed for a partition that is not there."""
    for number in wanted or ():
        if (topic, number) not in found:
            raise CommandFailed(
                f"topic {topic!r}: there is no partition {number}\n"
                f"  see the partitions with: ottla topic describe {topic}"
            )
    return [(topic, number) for number in dict.fromkeys(wanted)] if wanted else sorted(found)


def _ask(bootstrap: str, keys: Collection[Key] | None, unclean: bool) -> dict[Key, Any]:
    """The result of each partition: None or an exception. Without `keys`, of all partitions that need an election."""
    from confluent_kafka import ElectionType, KafkaException, TopicPartition

    kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
    asked = None if keys is None else [TopicPartition(*each) for each in keys]
    client = admin_client(bootstrap)
    try:
        answer = wait(client.elect_leaders(kind, asked))
    except KafkaException as exception:
        raise failure(exception, "no leader was elected: ") from exception
    return {(each.topic, each.partition): answer[each] for each in sorted(answer)}


def _report(
    results: Mapping[Key, Any], leaders: Mapping[Key, int], found: Mapping[Key, PartitionHealth], as_json: bool
) -> int:
    """Raises CommandFailed with all that failed."""
    rows: list[dict[str, Any]] = []
    failures: list[str] = []
    for key, exception in results.items():
        topic, number = key
        error = None if exception is None else error_of(exception)
        needed = error is None or error.code() != ErrorCode.election_not_needed
        row = {"topic": topic, "partition": number, "leader": leaders.get(key), "elected": error is None, "error": None}
        if error is not None and not needed:
            row["leader"] = found[key].leader
        elif error is not None:
            row |= {"leader": found[key].leader if key in found else None, "error": error.name()}
            row["message"] = error.str()
            failures.append(explain(exception, f"topic {topic!r} partition {number}: ")[0])
        rows.append(row)
    if as_json:
        print_json(rows)
    else:
        _print(rows)
    if failures:
        raise CommandFailed("\nottla: ".join(failures), FAILED)
    return OK


def _print(rows: Collection[Mapping[str, Any]]) -> None:
    for row in rows:
        if row["error"] is None:
            who = "another broker" if row["leader"] is None else f"broker {row['leader']}"
            does = "leads now" if row["elected"] else "leads already"
            print(f"{row['topic']} partition {row['partition']}: {who} {does}")
    if not rows:
        print("every partition already has its preferred leader")
    elif any(row["elected"] for row in rows):
        print(f"{plural(sum(row['elected'] for row in rows), 'leader')} elected")
