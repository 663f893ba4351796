"""Acts on the throttle of moves: set it for what is under way, and take it away."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ottla.config.units import human_bytes, parse_byte_rate
from ottla.console.acts.act import Act, Blocked, Change, Field, Misfit, Partly, Plan, command, plural
from ottla.console.asking import Asking
from ottla.console.brokers import Unanswered
from ottla.console.cluster import Cluster, read_cluster
from ottla.console.moving import throttles
from ottla.console.moving.under_way import under_way
from ottla.errors import KafkaError

STAYS: Final = "A throttle stays when the moves have ended, until it is removed: Kafka takes none away by itself."
SLOW: Final = "A copy never catches up where more is written to its partition than the throttle lets through."
THROTTLE: Final = Field("throttle", "Bytes a second of each broker, such as 20M; none if left out.", hint="20M")
"""The field of acts that move partitions."""
_IN_PART: Final = "the throttle may be set in part: remove it on the page of moves"
_PAGE: Final = ("/moves", "Moves")


def rate_of(asking: Asking) -> int | None:
    """Bytes a second; None where none is given. Raises Misfit."""
    text = asking.text("throttle").strip()
    if not text:
        return None
    rate = parse_byte_rate(text.upper())
    if rate is None:
        raise Misfit("throttle", "it must be bytes a second, such as 500K, 20M or 1G")
    return rate


def throttled(
    asking: Asking, cluster: Cluster, rate: int | None, moving: throttles.Moving, start: Callable[[], None]
) -> None:
    """Start moves, the throttle first, so that no copy begins without it. Raises what `start` does; with a throttle,
    Partly."""
    if rate is None:
        start()
        return
    try:
        for _ in throttles.set_rate(asking, cluster, rate, moving):
            pass
    except (KafkaError, OSError) as error:
        raise Partly(f"nothing is moved, and {_IN_PART} ({error})") from error
    try:
        start()
    except KafkaError as error:
        raise Partly(f"the throttle is set, and nothing is moved: {error.message or error.code.name}") from error
    except Unanswered as error:
        raise Partly(f"the throttle is set; whether anything is moved is not known: {error}") from error
    except OSError as error:
        raise Partly(f"the throttle is set, and nothing is moved: {error}") from error


def _set(asking: Asking, cluster: Cluster, rate: int, moving: throttles.Moving) -> None:
    """Raises KafkaError and OSError where nothing is set, else Partly."""
    is_begun = False
    try:
        for _ in throttles.set_rate(asking, cluster, rate, moving):
            is_begun = True
    except (KafkaError, OSError) as error:
        if not is_begun:
            raise
        raise Partly(f"{_IN_PART} ({error})") from error


def throttle(asking: Asking) -> Plan:
    cluster, rate = read_cluster(asking.brokers), rate_of(asking)
    moving = _moving(asking)
    if not moving:
        raise Blocked("Nothing is being moved: a throttle would only slow down replicas that catch up.")
    assert rate is not None  # the field is required
    before, _ = throttles.read_rates(asking.brokers, cluster)
    return Plan(
        f"Each broker copies at most {human_bytes(rate)} a second for {plural(len(moving), 'move')} under way.",
        lambda: _set(asking, cluster, rate, moving),
        [
            Change(
                f"broker {node}", f"{human_bytes(before[node])}/s" if node in before else None, f"{human_bytes(rate)}/s"
            )
            for node in cluster.nodes
        ],
        warnings=[STAYS, SLOW],
        back=_PAGE,
    )


def _moving(asking: Asking) -> dict[tuple[str, int], tuple[list[int], list[int]]]:
    """What is under way: who has a copy, and who gets one. Raises KafkaError, OSError."""
    return {at: _both(row) for at, row in under_way(asking.brokers).items()}


def _both(row: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    adding: Sequence[int] = row["adding_replicas"]
    return [each for each in row["replicas"] if each not in adding], list(adding)


def remove(asking: Asking) -> Plan:
    cluster = read_cluster(asking.brokers)
    rates, away = throttles.read_rates(asking.brokers, cluster)
    lists = throttles.read_lists(asking.brokers, cluster.topics)
    going = len(under_way(asking.brokers))

    def run() -> None:
        failures = throttles.remove(asking, cluster)
        if failures:
            what, why = failures[0]
            raise Partly(f"{plural(len(failures), 'setting')} could not be removed, the first is of {what}: {why}")

    return Plan(
        "The throttle of moves is removed.",
        run,
        [
            *(Change(f"rate of broker {node}", f"{human_bytes(rate)}/s", None) for node, rate in rates.items()),
            *(
                Change(f"throttled replicas of {topic}", " and ".join(dict.fromkeys(filter(None, both))), None)
                for topic, both in lists.items()
            ),
        ],
        command(asking, "cluster balance", [], {"--cancel": None}) if not going else "",
        [*([_unthrottled(going)] if going else []), *([_kept(away)] if away else [])],
        "" if rates or lists else f"There is no throttle. {_kept(away)}" if away else "There is no throttle.",
        back=_PAGE,
    )


def _kept(away: Sequence[int]) -> str:
    named = ", ".join(map(str, away))
    if len(away) == 1:
        return f"Broker {named} is away: a throttle of its own stays until it is removed when the broker is back."
    return f"Brokers {named} are away: throttles of their own stay until they are removed when the brokers are back."


def _unthrottled(count: int) -> str:
    if count == 1:
        return "1 partition is still being moved, and goes on as fast as it can."
    return f"{count:,} partitions are still being moved, and go on as fast as they can."


ACTS: Final = (
    Act("throttle-moves", "Throttle moves", "How fast brokers copy for the moves under way.",
        "Alter, Describe and AlterConfigs on the cluster, AlterConfigs on the topics", throttle,
        (Field("throttle", "Bytes a second of each broker, such as 20M.", is_required=True, hint="20M",
               label="Throttle"),), "moves", is_direct=False),
    Act("remove-throttle", "Remove the throttle", "The throttle of moves, on all brokers and topics.",
        "Describe and AlterConfigs on the cluster, AlterConfigs on the topics", remove, (), "moves", is_direct=False),
)  # fmt: skip
