"""Where the dead letters of a share group go, and why they would not (KIP-1191): asked by the public protocol, so of
Apache Kafka too."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ottla.cli import wire
from ottla.cli.output import iso_time
from ottla.client.requests import asked_settings
from ottla.protocol.messages import ApiKey
from ottla.replication.share.dead_letters import COPY, CREATE, ENABLE, PREFIX, SHARE_VERSION_MIN, TOPIC, problem

_TOPIC_KIND, _BROKER_KIND, _GROUP_KIND = 2, 4, 32
_TOPIC_AUTHORIZATION_FAILED = 29
_FEATURE = "share.version"
OWN = "ottla.share.dlq.payload.and.reason"


class Lost(NamedTuple):
    """Letters that a broker could not write, the last of a group."""

    node: int
    place: str
    """The partition of the records, and the first offset: TOPIC-PARTITION@OFFSET."""
    timestamp_ms: int
    why: str

    def as_json(self) -> dict[str, Any]:
        return {"node": self.node, "record": self.place, "time": iso_time(self.timestamp_ms), "problem": self.why}


class DeadTopic(NamedTuple):
    name: str
    """Empty where the group has none."""
    copies: bool
    """Whether letters have the payload of their records."""
    problem: str | None
    """Why letters cannot be written by the settings, None if they can."""
    is_hidden: bool = False
    """Whether this user may not see the topic's settings."""
    lost: Sequence[Lost] = ()
    """What brokers of Ottla say of letters that they could not write, for a right that they lack, say, until one is
    written again. The newest first."""

    @property
    def why_not(self) -> str | None:
        """Why letters are not written: by the settings, else as a broker says."""
        return self.problem or next((each.why for each in self.lost), None)

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.name or None,
            "copies_record": self.copies,
            "problem": self.why_not,
            "lost": [each.as_json() for each in self.lost],
        }


def dead_topics(bootstrap: str, groups: list[str]) -> dict[str, DeadTopic]:
    """The topic for dead letters of each share group. Raises CommandFailed."""
    own = {group: _configs(bootstrap, _GROUP_KIND, group) or {} for group in groups}
    names = {(each.get(TOPIC) or "").strip() for each in own.values()}
    if not any(names):
        return {group: DeadTopic("", False, None) for group in groups}
    metadata = wire.ask(bootstrap, ApiKey.METADATA, {"topics": [], "allow_auto_topic_creation": False})
    broker = _configs(bootstrap, _BROKER_KIND, str(metadata["brokers"][0]["node_id"])) or {}
    level = _share_version(bootstrap)
    topics = {name: _configs(bootstrap, _TOPIC_KIND, name) for name in sorted(names) if name}
    hidden = {name for name, each in topics.items() if each == {}}
    found = {}
    for group, configs in own.items():
        name = (configs.get(TOPIC) or "").strip()
        if not name:
            found[group] = DeadTopic("", False, None)
            continue
        topic = topics[name]
        why = problem(
            name,
            prefix=broker.get(PREFIX) or "",
            enabled=None if topic is None else name in hidden or topic.get(ENABLE) == "true",
            may_create=broker.get(CREATE) == "true",
        )
        if level < SHARE_VERSION_MIN:
            why = f"{_FEATURE} is {level}, and dead letters need {SHARE_VERSION_MIN}"
        copies = configs.get(COPY) == "true" or broker.get(OWN) == "true"
        found[group] = DeadTopic(name, copies, why, is_hidden=name in hidden)
    for group, lost in _lost_letters(bootstrap, metadata, [name for name, each in found.items() if each.name]).items():
        found[group] = found[group]._replace(lost=lost)
    return found


def _lost_letters(bootstrap: str, metadata: Mapping[str, Any], groups: Sequence[str]) -> dict[str, list[Lost]]:
    """What each broker of Ottla says; one that does not answer, or has no such API, says nothing. Raises
    CommandFailed where security forbids a connection."""
    found: dict[str, list[Lost]] = {}
    for node, address in sorted(wire.broker_addresses(metadata).items()):
        with contextlib.suppress(OSError), contextlib.closing(wire.Link(address)) as link:
            if link.version_max(ApiKey.DESCRIBE_LOST_LETTERS) < 0:
                continue
            for row in link.ask(ApiKey.DESCRIBE_LOST_LETTERS, {"groups": groups})["groups"]:
                place = f"{row['topic']}-{row['partition']}@{row['first_offset']}"
                lost = Lost(node, place, row["timestamp_ms"], row["message"])
                found.setdefault(row["group_id"], []).append(lost)
    for each in found.values():
        each.sort(key=lambda lost: -lost.timestamp_ms)
    return found


def _share_version(bootstrap: str) -> int:
    answer = wire.ask(
        bootstrap, ApiKey.API_VERSIONS, {"client_software_name": "ottla-cli", "client_software_version": "1"}
    )
    levels = {each["name"]: each["max_version_level"] for each in answer["finalized_features"]}
    return int(levels.get(_FEATURE, 0))


def _configs(bootstrap: str, kind: int, name: str) -> Mapping[str, str | None] | None:
    """The settings of a resource; None where there is no such topic, nothing of one whose settings this user may not
    see. Raises CommandFailed."""
    (row,) = wire.ask(bootstrap, ApiKey.DESCRIBE_CONFIGS, asked_settings(kind, [name]))["results"]
    if kind == _TOPIC_KIND and row["error_code"]:
        if row["error_code"] in (3, 17):  # UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION
            return None
        if row["error_code"] == _TOPIC_AUTHORIZATION_FAILED:
            return {}
        wire.ensure_none(row, f"topic {name!r}")
    wire.ensure_none(row, name)
    return {each["name"]: each["value"] for each in row["configs"]}
