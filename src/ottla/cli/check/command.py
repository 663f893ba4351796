"""`ottla check`: is what a cluster acknowledges kept? Against any Kafka, while anything may happen to its brokers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from cyclopts import Parameter

from ottla.cli import interrupts
from ottla.cli.check import transactions_run as check_transactions_run
from ottla.cli.check.load import RETRY_S, Load, Plan, quiet, record_of
from ottla.cli.client import admin_client, settings, topics_of, wait
from ottla.cli.client_security import ClientFile
from ottla.cli.exits import FAILED, MISUSED, OK, UNREACHABLE, CommandFailed
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Flag
from ottla.cli.output import bold, plural, print_json
from ottla.cli.status_line import StatusLine
from ottla.cli.units import duration
from ottla.cli.values import CheckRate, PartitionCount, ReplicaCount, Seconds, TopicName
from ottla.client.ends import end_offset
from ottla.histories.findings import counts
from ottla.histories.records import Finding, History, Kind, Record, findings

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

PRODUCERS = 4
GROUPS = 2
MEMBERS = 2
NO_PROGRESS_S = 45.0
"""How long the last records are waited for while none comes: longer than a broker's session and an election take."""
REPORT_S_MAX = 300.0
"""How long after Ctrl-C what was written is read and judged."""
EXAMPLES_MAX = 3


def check(
    *,
    seconds: Seconds = 60.0,
    topic: TopicName | None = None,
    partitions: Annotated[PartitionCount, Parameter(alias="-p")] = 4,
    replication_factor: Annotated[ReplicaCount | None, Parameter(alias="-r")] = None,
    acks: Literal["all", "1", "0"] = "all",
    rate: CheckRate = 1000,
    keep: Flag = False,
    transactions: Flag = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Write and read under load, and verify that every acknowledged record is there: once, in order, and read by every
    group.

    Kill, pause and disconnect brokers meanwhile. Works against any Kafka. Exit code 0 if nothing is wrong, else 1.
    Ctrl-C ends the load early; what was written until then is checked.

    Parameters
    ----------
    seconds
        Seconds to write for.
    topic
        The topic to use, existing or new. Default: a new topic, deleted afterwards.
    partitions
        Of a new topic.
    replication_factor
        Copies of each partition of a new topic. Default: the broker's default.replication.factor.
    acks
        acks of the producers. With all, every second producer is idempotent.
    rate
        Records per second, all producers together.
    keep
        Keep the topic. It is always kept if something is wrong.
    transactions
        Write in transactions over several partitions, abort some, and run a group that consumes and writes in
        transactions. Verify that each transaction is there once and whole, or not at all, and that none was read before
        its commit.
    """
    if transactions and acks != "all":
        raise CommandFailed("--transactions needs --acks all: without it nothing is committed", MISUSED)
    run = os.urandom(4).hex()
    name = topic or f"ottla-check-{run}"
    client = admin_client(bootstrap)
    created = _create(client, name, partitions, replication_factor)
    found = topics_of(client).topics[name]
    copies = max((len(each.replicas) for each in found.partitions.values()), default=0)
    if transactions:
        transactional = check_transactions_run.Plan(_client(bootstrap), name, len(found.partitions), run, rate)
        outcome = check_transactions_run.check(transactional, seconds, fresh=created)
        kept = created and (keep or not outcome.sound)
        if created and not kept:
            _remove(client, name, (transactional.group,))
        outcome.show(copies, as_json=json, kept=kept)
        return _code(outcome.sound, interrupted=outcome.interrupted)
    history = History(others_write=not created, groups=tuple(f"{name}-{run}-{n + 1}" for n in range(GROUPS)))
    plan = Plan(_client(bootstrap), name, len(found.partitions), run, rate, acks, PRODUCERS, GROUPS, MEMBERS)
    load = Load(plan, history)
    interrupted = _run(load, history, seconds)
    wrong = findings(history)
    violations = [each for each in wrong if not each.kind.is_allowed]
    if created and not keep and not violations:
        _remove(client, name, history.groups)
    report = _report(plan, load, history, wrong, copies)
    if json:
        print_json(report)
    else:
        _print(report, wrong, kept=created and (keep or bool(violations)))
    return _code(not violations, interrupted=interrupted is not None)


def _client(bootstrap: str) -> dict[str, Any]:
    return {"log_level": 0, **settings(bootstrap)}


def _code(sound: bool, *, interrupted: bool) -> int:
    if interrupted:
        return interrupts.code_of_end()
    return OK if sound else FAILED


def _create(client: AdminClient, name: str, partitions: int, copies: int | None) -> bool:
    """Whether the topic is new. Raises KafkaException."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewTopic

    new = NewTopic(name, num_partitions=partitions, replication_factor=copies or -1, config={"retention.ms": "-1"})
    try:
        wait(client.create_topics([new])[name])
    except KafkaException as exception:
        if exception.args[0].name() != "TOPIC_ALREADY_EXISTS":
            raise
        return False
    deadline = time.monotonic() + NO_PROGRESS_S
    while time.monotonic() < deadline:  # Kafka's other brokers learn of it a moment later
        found = topics_of(client).topics.get(name)
        if (
            found
            and len(found.partitions) == partitions
            and all(each.leader >= 0 for each in found.partitions.values())
        ):
            return True
        time.sleep(0.05)
    raise CommandFailed(
        f"topic {name!r}: has partitions without a leader after {NO_PROGRESS_S:.0f} s\n  find out why with: ottla "
        f"cluster describe"
    )


def _remove(client: AdminClient, name: str, groups: tuple[str, ...]) -> None:
    from confluent_kafka import KafkaException

    for future in (*client.delete_consumer_groups(list(groups)).values(), *client.delete_topics([name]).values()):
        try:
            wait(future)
        except KafkaException:
            continue  # a brokers' affair: what was asked for is the check


def _run(load: Load, history: History, seconds: float) -> BaseException | None:
    """Fill the history. Returns the signal that ended the load, if one did."""
    plan = load.plan
    interrupted: BaseException | None = None
    _stand_at_the_end(load, history)
    began = time.monotonic()
    load.start()
    with StatusLine() as line:
        try:
            while (passed := time.monotonic() - began) < seconds:
                tally = load.tally
                line.show(
                    f"{passed:.0f} of {seconds:.0f} s: {tally.acknowledged:,} acknowledged, {tally.failed:,} failed, "
                    f"{tally.read:,} read"
                )
                time.sleep(min(0.25, max(0.0, seconds - passed)))
        except KeyboardInterrupt as signal:
            interrupted = signal
            interrupts.allow(REPORT_S_MAX)
        line.show("waiting for the last acknowledgements")
        load.end_writing()
        line.show("reading the whole log")
        _read_log(plan, history)
        line.show("waiting for the groups")
        _wait_for_groups(load, history)
        load.end_reading()
    return interrupted


def _stand_at_the_end(load: Load, history: History) -> None:
    """The groups begin where the partitions end now. Raises KafkaException, CommandFailed."""
    plan = load.plan
    for group in history.groups:
        try:
            answers = interrupts.in_thread(_commit_ends, plan, history, group, limit_s=2 * NO_PROGRESS_S)
        except TimeoutError:
            raise CommandFailed(
                f"the coordinator of group {group!r} does not answer\n  find out why with: ottla cluster describe",
                UNREACHABLE,
            ) from None
        for each in answers:
            if each.error is not None:
                raise CommandFailed(f"group {group!r} cannot commit: {each.error.str()}")
            load.note_committed(group, each.partition, each.offset)


def _commit_ends(plan: Plan, history: History, group: str) -> Any:
    """Again while the coordinator is only just being found. Raises KafkaException."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    with closing(Consumer({**quiet(plan.client), "group.id": group, "enable.auto.commit": False})) as consumer:
        if not history.starts:
            history.starts = {
                number: end_offset(consumer, plan.topic, number, NO_PROGRESS_S) for number in range(plan.partitions)
            }
        places = [TopicPartition(plan.topic, number, offset) for number, offset in history.starts.items()]
        commit = cast(Callable[..., Any], consumer.commit)
        deadline = time.monotonic() + NO_PROGRESS_S
        while True:
            try:
                return commit(offsets=places, asynchronous=False) or ()
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_S)


def _read_log(plan: Plan, history: History) -> None:
    """Every partition, each by a reader of its own: one that cannot be read holds up no other."""
    results: dict[int, list[Record] | str] = {}
    lows: dict[int, int] = {}

    def read(number: int) -> None:
        results[number] = _read_partition(plan, number, history.starts[number], lows)

    threads = [threading.Thread(target=read, args=(number,), daemon=True) for number in range(plan.partitions)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for number, result in sorted(results.items()):
        if isinstance(result, str):
            history.unreadable[number] = result
        else:
            history.log[number] = result
            history.starts[number] = max(history.starts[number], lows[number])


def _read_partition(plan: Plan, number: int, start: int, lows: dict[int, int]) -> list[Record] | str:
    """The records from the start of the run to the end, or why they cannot be read."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    found: list[Record] = []
    consumer = Consumer(
        {
            **quiet(plan.client),
            "group.id": f"{plan.topic}-{plan.run}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_uncommitted",
        }
    )
    problem = "no answer"
    try:
        low = high = -1
        moved_s = time.monotonic()
        while time.monotonic() - moved_s < NO_PROGRESS_S:
            try:
                if high < 0:
                    low, high = consumer.get_watermark_offsets(TopicPartition(plan.topic, number), timeout=5)
                    lows[number] = low
                    consumer.assign([TopicPartition(plan.topic, number, max(low, min(start, high)))])
                position = consumer.position([TopicPartition(plan.topic, number)])[0].offset
                if max(low, start) >= high or position >= high:
                    return found
                message = consumer.poll(0.2)
            except KafkaException as exception:
                problem = exception.args[0].str()
                time.sleep(0.2)
                continue
            if message is None:
                continue
            error = message.error()
            if error is not None:
                problem = error.str()
                continue
            moved_s = time.monotonic()
            found.append(record_of(plan.run, int(message.offset() or 0), message.value()))
    finally:
        consumer.close()
    return f"no records received for {NO_PROGRESS_S:.0f} s, {plural(len(found), 'record')} after the start ({problem})"


def _wait_for_groups(load: Load, history: History) -> None:
    """Until each has read what is in the log, or none gets on any more."""
    goal = {
        (group, number): records[-1].offset + 1
        for group in history.groups
        for number, records in history.log.items()
        if records
    }
    read, moved_s = -1, time.monotonic()
    while time.monotonic() - moved_s < NO_PROGRESS_S:
        if all(load.positions.get(key, 0) >= offset for key, offset in goal.items()):
            return
        if load.tally.read != read:
            read, moved_s = load.tally.read, time.monotonic()
        time.sleep(0.05)


def _report(plan: Plan, load: Load, history: History, wrong: list[Finding], copies: int) -> dict[str, Any]:
    tally = load.tally
    return {
        "topic": plan.topic,
        "partitions": plan.partitions,
        "replication_factor": copies,
        "acks": plan.acks,
        "sent": tally.sent,
        "acknowledged": tally.acknowledged,
        "failed": tally.failed,
        "failures": dict(sorted(tally.failures.items())),
        "longest_gap_seconds": round(tally.gap_s, 3),
        "longest_gap_partition": tally.gap_partition,
        "read": tally.read,
        "groups": len(history.groups),
        "assignments": tally.assignments,
        "producers_given_up": tally.given_up,
        "found": {kind.name.lower(): count for kind, count in counts(Kind, wrong).items()},
        "sound": all(each.kind.is_allowed for each in wrong),
        "examples": [
            {"kind": each.kind.name.lower(), "partition": each.partition, "what": each.text} for each in wrong[:100]
        ],
    }


def _print(report: dict[str, Any], wrong: list[Finding], *, kept: bool) -> None:
    copies = "1 copy" if report["replication_factor"] == 1 else f"{report['replication_factor']} copies"
    print(
        f"{bold(report['topic'])}  {plural(report['partitions'], 'partition')} with {copies} each, "
        f"acks={report['acks']}"
    )
    unknown = report["sent"] - report["acknowledged"] - report["failed"]
    unanswered = f", {unknown:,} without an answer" if unknown else ""
    print(f"  written  {report['acknowledged']:,} acknowledged, {report['failed']:,} not{unanswered}")
    print(
        f"  read     {report['read']:,}, by {plural(report['groups'], 'group')}, "
        f"with {plural(report['assignments'], 'assignment')} of partitions"
    )
    gap = duration(report["longest_gap_seconds"])
    print(f"  pauses   at most {gap} without an acknowledgement (partition {report['longest_gap_partition']})")
    for sentence, count in report["failures"].items():
        print(f"  error    {sentence} ({plural(count, 'time')})")
    for kind in Kind:
        some = [each for each in wrong if each.kind is kind]
        if not some:
            continue
        allowed = "  (allowed)" if kind.is_allowed else ""
        print(f"  {bold(kind.name.lower())}: {plural(len(some), 'record')} {kind.value}{allowed}")
        for each in some[:EXAMPLES_MAX]:
            print(f"    partition {each.partition}: {each.text}")
        if len(some) > EXAMPLES_MAX:
            print(f"    and {len(some) - EXAMPLES_MAX:,} more")
    if report["sound"]:
        print("sound: every acknowledged record is there, once, in order, and was read by every group")
    else:
        print("NOT SOUND: see above" + ("; the topic is kept for inspection" if kept else ""))
