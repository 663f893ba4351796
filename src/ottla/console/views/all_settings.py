"""Settings of all brokers beside each other: value, where it is from, default, what it does, and which differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla.client.requests import asked_settings
from ottla.config.explained import BROKER
from ottla.console.asking import Asking
from ottla.console.views.paging import Paging, paged
from ottla.console.views.settings import SettingRow, rows_of
from ottla.errors import KafkaError
from ottla.protocol.messages import ApiKey

FRESH_S: Final = 10.0
SHOWN: Final = ("set", "different", "all")
OWN: Final = frozenset({
    "advertised.listeners", "advertised.host.name", "advertised.port", "broker.id", "broker.rack", "host.name",
    "listeners", "log.dir", "log.dirs", "metadata.log.dir", "node.id", "ottla.http.listener", "port",
    "process.roles",
})  # fmt: skip
"""Settings that are meant to differ between brokers."""


@dataclass(frozen=True)
class NodeValue:
    node: int
    value: str | None
    where: str


@dataclass(frozen=True)
class ClusterSetting:
    setting: SettingRow
    """As the first broker has it."""
    by_node: list[NodeValue]
    """Values of each broker, where they are not all alike."""
    is_expected: bool
    """Whether brokers are meant to differ in it."""
    missing: list[int]
    """Brokers that do not have it: they may be of another version."""


@dataclass(frozen=True)
class SettingsPage:
    nodes: list[int]
    """Brokers that were asked."""
    rows: list[ClusterSetting]
    paging: Paging
    different: int
    """Settings in which brokers differ and are not meant to."""


def all_settings(asking: Asking) -> SettingsPage:
    none: dict[int, list[SettingRow]] = {}
    by_node = asking.attempt("settings", lambda: _read(asking), none)
    found = sorted(_merged(by_node), key=lambda each: (not _is_odd(each), not each.setting.differs, each.setting.name))
    wanted, shown = asking.text("q").lower(), asking.text("show")
    rows = [each for each in found if _fits(each, wanted) and (wanted or _is_shown(each, shown))]
    page, paging = paged(rows, asking.number("page"), len(found))
    return SettingsPage(list(by_node), list(page), paging, sum(map(_is_odd, found)))


def _fits(each: ClusterSetting, wanted: str) -> bool:
    return wanted in each.setting.name.lower() or wanted in each.setting.what.lower()


def _is_shown(each: ClusterSetting, shown: str) -> bool:
    return shown == "all" or bool(each.by_node or each.missing) or (shown == "set" and each.setting.differs)


def _is_odd(each: ClusterSetting) -> bool:
    return bool(each.by_node or each.missing) and not each.is_expected


def _read(asking: Asking) -> dict[int, list[SettingRow]]:
    """Settings of each broker that answers; raises KafkaError, OSError where none does."""
    nodes = sorted(asking.cluster().nodes)
    found = asking.user.snapshots.get("settings", FRESH_S, lambda: _asked(asking, nodes))
    asking.age_s = max(asking.age_s, found.age_s)
    for node, error in found.value[1]:
        asking.fail("settings" if not found.value[0] else f"node {node}", error)
    return found.value[0]


def _asked(
    asking: Asking, nodes: list[int]
) -> tuple[dict[int, list[SettingRow]], list[tuple[int, KafkaError | OSError]]]:
    def ask(node: int) -> list[SettingRow]:
        values = asked_settings(BROKER, [str(node)], layers=True)
        return rows_of(asking.brokers.ask(node, ApiKey.DESCRIBE_CONFIGS, values)["results"][0])

    answers = asking.brokers.gather([lambda node=node: ask(node) for node in nodes])  # type: ignore[misc]
    failures: list[tuple[int, KafkaError | OSError]] = []
    rows: dict[int, list[SettingRow]] = {}
    for node, answer in zip(nodes, answers, strict=True):
        if isinstance(answer, KafkaError | OSError):
            failures.append((node, answer))
        else:
            rows[node] = answer
    return rows, failures


def _merged(by_node: dict[int, list[SettingRow]]) -> list[ClusterSetting]:
    names: dict[str, dict[int, SettingRow]] = {}
    for node, rows in by_node.items():
        for row in rows:
            names.setdefault(row.name, {})[node] = row
    return [_one(name, found, list(by_node)) for name, found in names.items()]


def _one(name: str, found: dict[int, SettingRow], nodes: list[int]) -> ClusterSetting:
    first = next(iter(found.values()))
    # What a broker hides cannot be compared.
    are_alike = first.is_secret or all(each.value == first.value for each in found.values())
    values = [] if are_alike else [NodeValue(node, each.value, each.where) for node, each in found.items()]
    # `listener.name.NAME.` stands before what a listener has of its own.
    is_expected = name in OWN or name.startswith("listener.name.")
    return ClusterSetting(first, values, is_expected, [node for node in nodes if node not in found])
