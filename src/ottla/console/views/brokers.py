"""One broker: where it is, what it holds, its disks and its settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla.client.requests import asked_settings
from ottla.config.explained import BROKER
from ottla.console.asking import Asking, NotFound
from ottla.console.brokers import ensure_none
from ottla.console.views.overview import address
from ottla.console.views.settings import SettingRow, rows_of
from ottla.console.views.topics import text
from ottla.protocol.messages import ApiKey

DIRECTORIES_FRESH_S: Final = 30.0


@dataclass(frozen=True)
class Directory:
    path: str
    error: str | None
    partitions: int
    bytes: str
    disk_bytes: str | None
    free_bytes: str | None


@dataclass(frozen=True)
class BrokerPage:
    id: int
    address: str
    rack: str | None
    is_controller: bool
    leads: int
    replicas: int
    directories: list[Directory] | None
    """None while they are being read: a broker tells of each replica."""
    settings: list[SettingRow] | None


def broker(asking: Asking) -> BrokerPage:
    cluster = asking.cluster()
    number = asking.number("broker")
    node = cluster.nodes.get(number)
    if node is None:
        known = ", ".join(map(str, cluster.nodes)) or "none"
        raise NotFound(f"Broker {number} is not in the cluster, or it is down. Brokers that are up: {known}.")
    return BrokerPage(
        number,
        address(node.host, node.port),
        node.rack,
        number == cluster.controller,
        cluster.leaders.get(number, 0),
        cluster.replicas.get(number, 0),
        asking.attempt(
            "directories",
            lambda: asking.soon(("directories", number), DIRECTORIES_FRESH_S, lambda: _directories(asking, number)),
            None,
        ),
        asking.attempt("settings", lambda: _settings(asking, number), None),
    )


def _settings(asking: Asking, number: int) -> list[SettingRow]:
    values = asked_settings(BROKER, [str(number)], layers=True)
    return rows_of(asking.brokers.ask(number, ApiKey.DESCRIBE_CONFIGS, values)["results"][0])


def _directories(asking: Asking, number: int) -> list[Directory]:
    answer = asking.brokers.ask(number, ApiKey.DESCRIBE_LOG_DIRS, {"topics": None})
    ensure_none(ApiKey.DESCRIBE_LOG_DIRS, answer)
    return [
        Directory(
            each["log_dir"],
            None if not each["error_code"] else f"error {int(each['error_code'])}",
            sum(len(topic["partitions"]) for topic in each["topics"]),
            str(sum(part["partition_size"] for topic in each["topics"] for part in topic["partitions"])),
            _known(each.get("total_bytes")),
            _known(each.get("usable_bytes")),
        )
        for each in answer["results"]
    ]


def _known(size: int | None) -> str | None:
    return None if size is None or size < 0 else text(size)
