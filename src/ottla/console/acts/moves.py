"""Many moves by one plan: brokers made even or emptied as `ottla cluster` would, or moves as they are typed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from ottla.client.move_board import Broker, Partition
from ottla.client.move_plan import PlanImpossible, plan_balance, plan_drain
from ottla.config.units import human_bytes
from ottla.console.acts.act import PINNED_MAX, Act, Blocked, Change, Field, Misfit, Partly, Plan, command, plural
from ottla.console.acts.cluster import REPLICAS_MAX
from ottla.console.acts.throttles import SLOW, STAYS, THROTTLE, rate_of, throttled
from ottla.console.acts.topics import TIMEOUT_MS
from ottla.console.asking import Asking
from ottla.console.brokers import ensure_none
from ottla.console.cluster import Cluster, read_cluster
from ottla.console.moving.under_way import under_way
from ottla.errors import KafkaError
from ottla.protocol.messages import ApiKey

AT_ONCE: Final = 50
"""Partitions that one act moves: all of them are copied at the same time."""
HOW: Final = ("balance", "empty", "as typed")
_LINE: Final = re.compile(r"(?P<topic>\S+)-(?P<number>[0-9]{1,9})=(?P<replicas>[0-9]{1,9}(,[0-9]{1,9})*)")

_Moves = dict[tuple[str, int], list[int]]


def move(asking: Asking) -> Plan:
    cluster, how, rate = read_cluster(asking.brokers), asking.text("how"), rate_of(asking)
    going = under_way(asking.brokers)
    sizes, silent = dict[tuple[str, int], int](), list[int]()
    if asking.text("moves"):
        moves, count = _typed(asking, cluster), 0
        if again := [each for each in moves if each in going]:
            raise Blocked(f"{again[0][0]}-{again[0][1]} is being moved already: wait for the end, or cancel it.")
    elif how == "as typed":
        raise Misfit("moves", "say which: TOPIC-PARTITION=BROKERS on each line, such as orders-0=1,2,3")
    elif going:
        raise Blocked(
            f"{plural(len(going), 'partition')} {'is' if len(going) == 1 else 'are'} being moved already: "
            "plan when that has ended, or cancel it."
        )
    else:
        sizes, silent = _sizes(asking, cluster)
        moves = _planned(asking, cluster, sizes)
        count = len(moves)
        moves = dict(list(moves.items())[:AT_ONCE])
    before = {
        (topic.name, each.number): each.replicas for topic in cluster.topics.values() for each in topic.partitions
    }
    leaving = _brokers(asking) if how == "empty" else []
    verb = {"balance": "cluster balance", "empty": "cluster drain"}.get(how, "")
    options = {"--throttle": asking.text("throttle").strip().upper()} if rate else {}
    size = sum(sizes.get(at, 0) * len(set(replicas) - set(before[at])) for at, replicas in moves.items())
    return Plan(
        f"{plural(len(moves), 'partition')} {'is' if len(moves) == 1 else 'are'} moved"
        + (f", {human_bytes(size)} are copied." if size else "."),
        lambda: _begin(asking, cluster, moves, before, rate),
        [
            Change(f"{at[0]}-{at[1]}", _list(before[at]), _list(replicas), _note(before[at], replicas))
            for at, replicas in moves.items()
        ],
        command(asking, verb, list(map(str, leaving)), options) if verb and len(leaving) < 2 else "",
        [
            *(
                [f"These are the first {AT_ONCE} of {count:,} moves: plan again when they have ended."]
                if count > AT_ONCE
                else []
            ),
            *([_unknown(silent)] if silent else []),
            *([STAYS, SLOW] if rate else []),
        ],
        ""
        if moves
        else "Nothing is to be moved: the brokers are as even as moves can make them."
        if how == "balance"
        else "Nothing is to be moved: there is no copy on these brokers.",
        pinned={
            "moves": "\n".join(
                f"{topic}-{number}={','.join(map(str, each))}" for (topic, number), each in moves.items()
            )
        },
        back=("/moves", "Moves"),
    )


def _brokers(asking: Asking) -> list[int]:
    """Raises Misfit."""
    text = asking.text("brokers").replace(" ", "")
    if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", text, re.ASCII):
        raise Misfit("brokers", "it must be ids of the brokers to empty, such as 3 or 3,4")
    return sorted({int(each) for each in text.split(",")})


def _sizes(asking: Asking, cluster: Cluster) -> tuple[dict[tuple[str, int], int], list[int]]:
    """Bytes of the largest copy of each partition that is known, and the brokers that could not be asked. Raises
    KafkaError."""
    nodes = list(cluster.nodes)
    calls = [lambda node=node: asking.brokers.ask(node, ApiKey.DESCRIBE_LOG_DIRS, {"topics": None}) for node in nodes]
    sizes, silent = dict[tuple[str, int], int](), list[int]()
    for node, answer in zip(nodes, asking.brokers.gather(calls), strict=True):
        if isinstance(answer, OSError):
            silent.append(node)  # other copies tell the size
            continue
        if isinstance(answer, KafkaError):
            raise answer
        ensure_none(ApiKey.DESCRIBE_LOG_DIRS, answer)
        for directory in answer["results"]:
            for topic in directory["topics"]:
                for part in topic["partitions"]:
                    at = topic["name"], part["partition_index"]
                    sizes[at] = max(sizes.get(at, 0), part["partition_size"])
    return sizes, silent


def _unknown(silent: Sequence[int]) -> str:
    if len(silent) == 1:
        return f"Broker {silent[0]} did not say what it has: a partition that only it has counts as empty."
    return f"Brokers {_list(silent)} did not say what they have: a partition that only they have counts as empty."


def _planned(asking: Asking, cluster: Cluster, sizes: dict[tuple[str, int], int]) -> _Moves:
    brokers = [Broker(each.node_id, each.rack) for each in cluster.nodes.values()]
    partitions = [
        Partition(topic.name, each.number, tuple(each.replicas), sizes.get((topic.name, each.number), 0))
        for topic in cluster.topics.values()
        for each in topic.partitions
    ]
    if asking.text("how") == "balance":
        found = plan_balance(brokers, partitions)
    else:
        leaving = _brokers(asking)
        if unknown := [each for each in leaving if each not in cluster.nodes]:
            known = _list(list(cluster.nodes))
            raise Misfit("brokers", f"broker {unknown[0]} is not up; known: {known}")
        try:
            found = plan_drain(brokers, partitions, leaving)
        except PlanImpossible as error:
            raise Blocked(f"There is no such plan: {error}.") from None
    return {each.partition.key: list(each.after) for each in found}


def _typed(asking: Asking, cluster: Cluster) -> _Moves:
    """Raises Misfit."""
    found: _Moves = {}
    for line in filter(None, map(str.strip, asking.text("moves").splitlines())):
        match = _LINE.fullmatch(line)
        if match is None:
            raise Misfit("moves", f"{line[:200]!r} must be TOPIC-PARTITION=BROKERS, such as orders-0=1,2,3")
        at, replicas = (match["topic"], int(match["number"])), [int(each) for each in match["replicas"].split(",")]
        topic = cluster.topics.get(at[0])
        if topic is None or all(each.number != at[1] for each in topic.partitions):
            raise Misfit("moves", f"there is no partition {at[0]}-{at[1]}, or you may not see it")
        if at in found or len(set(replicas)) != len(replicas) or len(replicas) > REPLICAS_MAX:
            raise Misfit("moves", f"{line[:200]!r} names something twice, or too many brokers")
        if unknown := [each for each in replicas if each not in cluster.nodes]:
            raise Misfit("moves", f"broker {unknown[0]} is not up; known: {_list(list(cluster.nodes))}")
        found[at] = replicas
    if len(found) > AT_ONCE:
        raise Misfit("moves", f"at most {AT_ONCE} partitions are moved at once")
    return found


def _note(before: Sequence[int], after: Sequence[int]) -> str:
    added, gone = [each for each in after if each not in before], [each for each in before if each not in after]
    parts = [*([f"{_list(added)} gets a copy"] if added else []), *([f"{_list(gone)} deletes its own"] if gone else [])]
    return " and ".join(parts) or "the order changes"


def _begin(
    asking: Asking, cluster: Cluster, moves: _Moves, before: dict[tuple[str, int], Sequence[int]], rate: int | None
) -> None:
    """Raises KafkaError, OSError, Partly."""
    added = {at: [each for each in replicas if each not in before[at]] for at, replicas in moves.items()}
    moving = {at: (before[at], adding) for at, adding in added.items()}
    throttled(asking, cluster, rate, moving, lambda: _submit(asking, moves))


def _submit(asking: Asking, moves: _Moves) -> None:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, number), replicas in moves.items():
        topics.setdefault(topic, []).append({"partition_index": number, "replicas": replicas})
    values = {"topics": [{"name": name, "partitions": rows} for name, rows in topics.items()], "timeout": TIMEOUT_MS}
    answer = asking.brokers.change(ApiKey.ALTER_PARTITION_REASSIGNMENTS, values)
    ensure_none(ApiKey.ALTER_PARTITION_REASSIGNMENTS, answer)
    failures: list[KafkaError] = []
    count = 0
    for topic in answer["responses"]:
        for row in topic["partitions"]:
            count += 1
            try:
                ensure_none(ApiKey.ALTER_PARTITION_REASSIGNMENTS, row, f"{topic['name']}-{row['partition_index']}")
            except KafkaError as error:
                failures.append(error)
    if failures and len(failures) == count:
        raise failures[0]
    if failures:
        raise Partly(
            f"of {plural(count, 'move')} {count - len(failures)} began, the first that did not: {failures[0].message}"
        )


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


ACTS: Final = (
    Act("move-partitions", "Balance or empty brokers", "Many partitions by one plan; up to 50 are moved at once.",
        "Alter and Describe on the cluster", move,
        (Field("how", "Make brokers even, empty some of them, or move what is typed.", HOW, HOW[0], widget="choice",
               label="Plan"),
         Field("brokers", "With empty: ids of the brokers.", hint="3,4", label="Brokers to empty"),
         Field("moves", "TOPIC-PARTITION=BROKERS on each line, in place of a plan.", length_max=PINNED_MAX,
               widget="area", is_data=True, hint="orders-0=1,2,3", label="Moves"),
         THROTTLE),
        "moves", is_direct=False, body_max=1024 * 1024),
)  # fmt: skip
