"""`ottla cluster balance`, `drain` and `remove`, and `ottla topic replicate`: what moves replicas between brokers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from ottla.cli import interrupts, wire
from ottla.cli.client_security import ClientFile
from ottla.cli.cluster.facts import Facts, facts
from ottla.cli.cluster.members import members
from ottla.cli.cluster.reassign import POLL_S, Mover, ask, cancel, ensure_none_under_way, under_way
from ottla.cli.cluster.up import mark_removed
from ottla.cli.cluster.voters import let_go
from ottla.cli.exits import FAILED, MISUSED, OK, CommandFailed
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Flag, asked_at
from ottla.cli.output import human_bytes, plural, print_json, print_table
from ottla.cli.status_line import StatusLine
from ottla.cli.values import BrokerId, ByteRate, ReplicaCount, Seconds, TopicName
from ottla.client.move_board import Partition
from ottla.client.move_plan import (
    Move,
    PlanImpossible,
    plan_balance,
    plan_drain,
    plan_replicate,
    summary,
)
from ottla.config.units import parse_byte_rate
from ottla.protocol.messages import ApiKey

SAMPLE_S = 2.0
SHOWN_MAX = 20
"""Moves that are printed one by one."""

Throttle = Annotated[
    ByteRate | None,
    Parameter(help="Limit copying to this many bytes per second per broker: 500K, 20M, 1G."),
]


def balance(
    *,
    run: Flag = False,
    watch: Flag = False,
    cancel: Flag = False,
    throttle: Throttle = None,
    sample: Seconds = SAMPLE_S,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Balance replicas, bytes, write load and leaders over the brokers: show the plan, or with --run execute it.

    Brokers end up with equal numbers of replicas and of leaders (within one), then with bytes and write rates as even
    as that allows. Replicas stay in different racks. Clients are not interrupted. Ctrl-C ends the waiting and the
    throttle, not the moves.

    Parameters
    ----------
    run
        Execute the plan and show progress until it is done.
    watch
        Show all moves in progress, started by any command, until they are done.
    cancel
        Cancel all moves in progress: replicas return to where they were, and throttles are removed.
    sample
        Seconds to measure how fast partitions grow.
    """
    if run + watch + cancel > 1:
        raise CommandFailed("--run, --watch and --cancel cannot be used together", MISUSED)
    if cancel:
        return _cancel(bootstrap, json)
    if watch:
        return _watch(bootstrap, json)
    limit = _limit(throttle)
    ensure_none_under_way(bootstrap)
    found = facts(bootstrap, sample_s=sample)
    moves = plan_balance(found.brokers, found.partitions)
    return _carry_out(
        found,
        moves,
        "is balanced",
        limit,
        json,
        dry_run=not run,
        bootstrap=bootstrap,
        how=asked_at("ottla cluster balance --run", bootstrap),
    )


def drain(
    *brokers: Annotated[BrokerId, Parameter(help="The ids of the brokers.", required=True)],
    fewer_copies: Flag = False,
    throttle: Throttle = None,
    dry_run: Flag = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Move all partitions off brokers so that they can be stopped or removed. The brokers keep serving meanwhile.

    Name all brokers to drain in one command: an empty broker that is not named may receive the partitions of the next
    one. Brokers that are also quorum voters are removed from the quorum, so that they may be stopped.

    Parameters
    ----------
    fewer_copies
        Allow a lower replication factor if too few other brokers are left.
    dry_run
        Show the moves without starting them.
    """
    limit = _limit(throttle)
    ensure_none_under_way(bootstrap)
    found = facts(bootstrap)
    for each in brokers:
        if not _holds(found.partitions, each):
            found.broker(each)
    moves = _planned(
        lambda: plan_drain(found.brokers, found.partitions, set(brokers), fewer_copies=fewer_copies), bootstrap
    )
    names = ", ".join(map(str, brokers))
    done = f"broker {names} holds nothing" if len(brokers) == 1 else f"brokers {names} hold nothing"
    how = f"ottla cluster drain {' '.join(map(str, brokers))}{' --fewer-copies' if fewer_copies else ''}"
    how = asked_at(how, bootstrap)
    code = _carry_out(found, moves, done, limit, json, dry_run=dry_run, how=how, bootstrap=bootstrap)
    gone = [] if dry_run or code != OK else let_go(bootstrap, brokers)
    if gone and not json:
        print(f"controller {', '.join(map(str, gone))} is no longer a voter until it is started again")
    return code


def remove(
    broker: BrokerId,
    /,
    *,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Unregister a drained and stopped broker from the cluster, and remove it from the quorum if it votes.

    Parameters
    ----------
    broker
        The id of the broker.
    """
    found = facts(bootstrap)
    held = _holds(found.partitions, broker)
    if held:
        raise CommandFailed(
            f"broker {broker} still holds {plural(held, 'partition')}\n"
            f"  move them first: {asked_at(f'ottla cluster drain {broker}', bootstrap)}"
        )
    if broker in found.addresses:
        raise CommandFailed(
            f"broker {broker} is running at {found.addresses[broker]}, and would register again\n  stop it (Ctrl-C "
            f"or SIGTERM), then run this command again"
        )
    gone = let_go(bootstrap, [broker])
    try:
        ask(found.bootstrap, ApiKey.UNREGISTER_BROKER, {"broker_id": broker})
    except CommandFailed:
        if not gone:  # else it was only a controller
            raise
    note = _mark(found, broker)
    if json:
        print_json({"broker": broker, "removed": True})
    else:
        print(f"broker {broker} is no longer part of this cluster")
        if note is not None:
            print(f"  its directory {note.parent} stays; `ottla cluster up` ignores it, and it may be deleted")
    return OK


def _mark(found: Facts, broker: int) -> Path | None:
    """Note in the directory of a broker that it was removed, if it is beside that of another broker on this machine."""
    cluster_id = members(found.bootstrap).cluster_id
    for address in found.addresses.values():
        try:
            directories = wire.log_directories(address)
        except CommandFailed:
            continue
        for each in directories:
            with suppress(OSError, ValueError):  # it is of another machine, or another user's
                note = mark_removed(each["path"], broker, cluster_id)
                if note is not None:
                    return note
    return None


def replicate(
    *topics: Annotated[TopicName, Parameter(help="One or more topics.")],
    factor: ReplicaCount,
    all: Flag = False,
    throttle: Throttle = None,
    dry_run: Flag = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Change the replication factor of topics while they are in use.

    Parameters
    ----------
    factor
        Copies of each partition.
    all
        All topics, internal ones included.
    dry_run
        Show the moves without starting them.
    """
    if all == bool(topics):
        raise CommandFailed("name topics, or give --all", MISUSED)
    limit = _limit(throttle)
    ensure_none_under_way(bootstrap)
    found = facts(bootstrap)
    there = {each.topic for each in found.partitions}
    for name in topics:
        if name not in there:
            topic_list = asked_at("ottla topic list", bootstrap)
            raise CommandFailed(f"topic {name!r} does not exist\n  see the topics with: {topic_list}")
    wanted = there if all else set(topics)
    moves = _planned(lambda: plan_replicate(found.brokers, found.partitions, wanted, factor), bootstrap)
    copies = "1 copy" if factor == 1 else f"{factor} copies"
    subject = f"topic {topics[0]!r} has" if len(topics) == 1 else f"{plural(len(wanted), 'topic')} have"
    how = asked_at(f"ottla topic replicate {'--all' if all else ' '.join(topics)} --factor {factor}", bootstrap)
    code = _carry_out(
        found,
        moves,
        f"{subject} {copies} of each partition",
        limit,
        json,
        dry_run=dry_run,
        how=how,
        bootstrap=bootstrap,
    )
    if not json and not dry_run:
        _advise(bootstrap, sorted(each for each in wanted if not each.startswith("__")), factor)
    return code


def _advise(bootstrap: str, topics: Sequence[str], factor: int) -> None:
    """Advise on min.insync.replicas: more copies do not make acks=all safer while one copy is enough for it."""
    for name in topics[:1] if factor > 2 else ():
        required = wire.topic_setting(bootstrap, name, "min.insync.replicas")
        if required is not None and int(required) < 2:
            command = asked_at(f"ottla config set min.insync.replicas=2 --topic {name}", bootstrap)
            print(
                f"  min.insync.replicas of {name} is {required}: acks=all may still be answered by one broker "
                f"alone\n  to prevent that: {command}"
            )


def _limit(throttle: str | None) -> int | None:
    return None if throttle is None else parse_byte_rate(throttle)


def _holds(partitions: Sequence[Partition], broker: int) -> int:
    return sum(broker in each.replicas for each in partitions)


def _planned(plan: Callable[[], list[Move]], bootstrap: str) -> list[Move]:
    try:
        return plan()
    except PlanImpossible as impossible:
        help = impossible.help and f"\n  {impossible.help}: {asked_at(impossible.command, bootstrap)}"
        raise CommandFailed(f"{impossible}{help}") from impossible


def _carry_out(
    found: Facts,
    moves: Sequence[Move],
    done: str,
    limit: int | None,
    as_json: bool,
    *,
    dry_run: bool,
    how: str,
    bootstrap: str,
) -> int:
    """Show or run a plan. `done` says what is so afterwards, `how` which command runs it."""
    if not dry_run and moves:
        if not as_json:
            _print_plan(found, moves)
        try:
            Mover(found, moves, limit).run()
        except KeyboardInterrupt:
            if interrupts.ending():
                rate = "" if limit is None else ", now unthrottled"
                watch, stop = (asked_at(f"ottla cluster balance {each}", bootstrap) for each in ("--watch", "--cancel"))
                print(f"the moves continue in the cluster{rate}; watch them with: {watch}")
                print(f"  stop it with: {stop}")
            raise
    if as_json:
        print_json(_as_json(found, moves, dry_run))
        return OK
    if not moves:
        print(f"{done} already" if not done.startswith("is ") else "already balanced: nothing to move")
    elif dry_run:
        _print_plan(found, moves)
        print(f"nothing was moved; start the moves with: {how}")
    else:
        print(done if not done.startswith("is ") else "balanced")
    return OK


def _as_json(found: Facts, moves: Sequence[Move], dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "moves": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.number,
                "replicas": list(each.partition.replicas),
                "new_replicas": list(each.after),
                "bytes": each.bytes,
            }
            for each in moves
        ],
        "brokers": summary(found.brokers, found.partitions, moves),
    }


def _print_plan(found: Facts, moves: Sequence[Move]) -> None:
    copied = sum(each.bytes for each in moves)
    data = f", {human_bytes(copied)} to copy" if copied else ", nothing to copy"
    print(f"{plural(len(moves), 'partition')} to change{data}")
    print_table(
        ("TOPIC", "PARTITION>", "REPLICAS", "THEN", "COPIED>"),
        [
            (
                each.partition.topic,
                each.partition.number,
                ",".join(map(str, each.partition.replicas)),
                ",".join(map(str, each.after)),
                human_bytes(each.bytes) if each.adds else "",
            )
            for each in moves[:SHOWN_MAX]
        ],
        indent=2,
    )
    if len(moves) > SHOWN_MAX:
        print(f"  and {len(moves) - SHOWN_MAX:,} more (all of them with --json)")
    print_table(
        ("BROKER>", "REPLICAS>", "THEN>", "LEADS>", "THEN>", "SIZE>", "THEN>"),
        [
            (
                row["broker"],
                row["replicas_before"],
                row["replicas_after"],
                row["leads_before"],
                row["leads_after"],
                human_bytes(row["bytes_before"]),
                human_bytes(row["bytes_after"]),
            )
            for row in summary(found.brokers, found.partitions, moves)
        ],
        indent=2,
    )


def _cancel(bootstrap: str, as_json: bool) -> int:
    stopped = cancel(facts(bootstrap))
    if as_json:
        print_json({"cancelled": stopped})
    else:
        print(f"{plural(stopped, 'move')} cancelled" if stopped else "no moves in progress")
    return OK


def _watch(bootstrap: str, as_json: bool) -> int:
    """Until nothing is under way."""
    left = under_way(bootstrap)
    first = len(left)
    with StatusLine() as line:
        while left:
            (topic, number), part = next(iter(left.items()))
            adding = ",".join(map(str, part["adding_replicas"])) or "none"
            line.show(f"{plural(len(left), 'partition')} in progress; {topic} partition {number} goes to {adding}")
            time.sleep(POLL_S)
            left = under_way(bootstrap)
    if as_json:
        print_json({"finished": first})
    else:
        print(f"{plural(first, 'move')} finished" if first else "no moves in progress")
    return OK if not left else FAILED
