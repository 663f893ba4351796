"""Acts: what they ask for, the plan that a user sees before, and the outcome."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from ottla.console.asking import Asking, Invalid, NotFound
from ottla.console.cluster import Cluster, Topic, read_cluster
from ottla.console.parameters import Parameter
from ottla.errors import OttlaError

STRING_BYTES_MAX: Final = 2**15 - 1
"""Limit of a string in Kafka's protocol."""
CHANGES_SHOWN: Final = 1_000
PLACES_MAX: Final = 1_000
"""Partitions that one act changes: what is shown before is what is done, so the form carries all of them."""
PINNED_MAX: Final = 200_000
"""Characters of a parameter that carries places."""
DEFAULT_BOOTSTRAP: Final = "localhost:9092"
_PLAIN: Final = re.compile(r"[^\x00-\x1f\x7f]*", re.DOTALL)


class Blocked(OttlaError):
    """The act cannot be done as things are now; the text says why, and what to do first."""


class Misfit(Invalid):
    """A value that does not fit; the form says so beside its field."""

    def __init__(self, name: str, sentence: str) -> None:
        super().__init__(f"{name}: {sentence}")
        self.name = name


class Partly(OttlaError):
    """Some of it was done; the text says what was not."""


@dataclass(frozen=True)
class Field(Parameter):
    """A parameter of an act, with its place in the form."""

    label: str = ""
    widget: str = "text"
    """text, number, choice, area, password, or hidden."""
    hint: str = ""
    is_private: bool = False
    """Never shown again, nor in the audit log: a password, or the contents of a record."""
    is_data: bool = False
    """Bytes of a record, and not a string of the protocol: longer, and any character."""

    def parse(self, text: str | None) -> str | int:
        """Raises Invalid."""
        if self.is_required and not text:
            raise Invalid(f"{self.name} is missing")
        if text is not None and self.low is None:
            try:
                size = len(text.encode())
            except UnicodeEncodeError:
                raise Invalid(f"{self.name} is not text that can be written in UTF-8") from None
            if not self.is_data and size > min(STRING_BYTES_MAX, 4 * self.length_max) and self.widget != "hidden":
                raise Invalid(f"{self.name} has more than {STRING_BYTES_MAX} bytes")
            if not self.is_data and "\0" in text:
                raise Invalid(f"{self.name} has a NUL character")
        return super().parse(text)

    @property
    def title(self) -> str:
        return self.label or self.name.replace("_", " ").capitalize()


@dataclass(frozen=True)
class Change:
    """A row of a preview."""

    what: str
    before: str | None
    """None where there is nothing, or it is not known."""
    after: str | None
    """None where nothing is left."""
    note: str = ""


@dataclass
class Plan:
    """What an act would do now."""

    sentence: str
    """What is done, as if it were: `Topic orders is created.`"""
    run: Callable[[], None]
    changes: list[Change] = field(default_factory=list)
    command: str = ""
    """The same as an `ottla` command; empty where there is none."""
    warnings: list[str] = field(default_factory=list)
    blocked: str = ""
    """Why it would fail now."""
    check: Callable[[], None] | None = None
    """Asks the cluster whether it would do it, which changes nothing."""
    pinned: Mapping[str, str] = field(default_factory=dict)
    """Parameters that make the act do what was shown, whatever happens meanwhile."""
    back: tuple[str, str] = ("/", "Overview")
    """Address and title of the page to go on with."""


@dataclass(frozen=True)
class Act:
    """A row of the table: a form at `/acts/NAME`, and POST of JSON at the API."""

    name: str
    title: str
    what: str
    needs: str
    """The right of the cluster's authorizer: `Delete on the topic`."""
    plan: Callable[[Asking], Plan]
    fields: Sequence[Field]
    page: str
    """The page whose thing it changes."""
    confirm: str = ""
    """The field whose value is typed again before it is done: the act destroys something."""
    is_direct: bool = True
    """Whether the form has a button that acts without a preview."""
    body_max: int = 64 * 1024
    is_listed: bool = True
    """Whether its page has a link to the empty form; others are linked where their thing is shown."""
    needs_registry: bool = False
    fill: Callable[[Asking], Mapping[str, str]] | None = None
    """Values of the form from what the cluster has; the request's parameters are given."""

    @property
    def path(self) -> str:
        return f"/acts/{self.name}"

    @property
    def destroys(self) -> bool:
        return bool(self.confirm)

    def parse(self, given: Mapping[str, str]) -> dict[str, str | int]:
        """Values of all fields. Raises Invalid, also for one that the act does not have."""
        known = {each.name for each in self.fields}
        for name in given:
            if name not in known:
                raise Invalid(f"there is no parameter {name}; known: {', '.join(sorted(known))}")
        return {each.name: each.parse(given.get(each.name)) for each in self.fields}


@dataclass(frozen=True)
class Outcome:
    """The answer to an act, or to its preview."""

    done: bool
    sentence: str
    changes: list[Change]
    change_count: int
    command: str
    warnings: list[str]


@dataclass(frozen=True)
class Result:
    """How an act ended; what is kept for a form that is sent again."""

    status: int
    outcome: Outcome | None
    back: tuple[str, str]
    error: str = ""
    code: str = ""
    field: str = ""
    """The field that the error is about, where it is about one."""
    is_final: bool = True
    """Whether the cluster may have been changed: then the same form does not act again."""


def outcome_of(plan: Plan, *, done: bool) -> Outcome:
    warnings = [*plan.warnings, *([plan.blocked] if plan.blocked else [])]
    return Outcome(done, plan.sentence, plan.changes[:CHANGES_SHOWN], len(plan.changes), plan.command, warnings)


# Parts that acts share


def command(
    asking: Asking,
    verb: str,
    names: Sequence[str] = (),
    options: Mapping[str, str | int | Sequence[str] | None] | None = None,
) -> str:
    """A command for a shell. An option without a value is None; one that may be repeated has several."""
    found = ["ottla", *verb.split()]
    for name, value in (options or {}).items():
        values = [name] if value is None else [f"{name}={value}"]
        found += (
            [f"{name}={each}" for each in value]
            if isinstance(value, Sequence) and not isinstance(value, str)
            else values
        )
    if asking.site.bootstrap not in ("", DEFAULT_BOOTSTRAP):
        found.append(f"--bootstrap={asking.site.bootstrap}")
    if any(each.startswith("-") for each in names):
        found.append("--")
    return shlex.join([*found, *names])


def chosen(asking: Asking, name: str, otherwise: int) -> int:
    """A number that may be left out."""
    value = asking.parameters[name]
    return otherwise if value == "" else int(value)


def found_topic(asking: Asking, name: str) -> tuple[Cluster, Topic]:
    """As it is now. Raises NotFound."""
    cluster = read_cluster(asking.brokers, [name])
    topic = cluster.topics.get(name)
    if topic is None:
        raise NotFound(f"There is no topic {name}, or you may not see it (Describe on Topic {name}).")
    return cluster, topic


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def topic_page(name: str) -> tuple[str, str]:
    return f"/topics/{quote(name, safe='')}", f"Topic {name}"


def group_page(name: str) -> tuple[str, str]:
    return f"/groups/{quote(name, safe='')}", f"Group {name}"


def pairs(text: str, name: str) -> dict[str, str]:
    """NAME=VALUE on each line. Raises Invalid."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise Invalid(f"{name} has one NAME=VALUE on each line, not {line[:100]!r}")
        if key.strip() in found:
            raise Invalid(f"{name} has {key.strip()[:100]!r} twice")
        found[key.strip()] = value
    return found


def places_of(text: str, name: str) -> dict[tuple[str, int], int]:
    """`TOPIC:PARTITION:OFFSET,...`, as a preview pins them. Raises Invalid."""
    found: dict[tuple[str, int], int] = {}
    for each in text.split(","):
        topic, partition, offset = [*each.rsplit(":", 2), "", ""][:3]
        if not (topic and _is_number(partition, 10) and _is_number(offset, 19)):
            raise Invalid(f"{name} must be TOPIC:PARTITION:OFFSET,...")
        if int(offset) >= 2**63 or int(partition) >= 2**31:
            raise Invalid(f"{name} must be TOPIC:PARTITION:OFFSET,...")
        found[topic, int(partition)] = int(offset)
    if len(found) > PLACES_MAX:
        raise Invalid(f"{name} names more than {PLACES_MAX} partitions")
    return found


def _is_number(text: str, digits: int) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= digits


def pinned_places(places: Mapping[tuple[str, int], int]) -> str:
    return ",".join(f"{topic}:{partition}:{offset}" for (topic, partition), offset in sorted(places.items()))


def rows_by(places: Mapping[tuple[str, int], Any]) -> dict[str, dict[int, Any]]:
    """By topic and partition."""
    found: dict[str, dict[int, Any]] = {}
    for (topic, partition), value in sorted(places.items()):
        found.setdefault(topic, {})[partition] = value
    return found


def is_plain(text: str) -> bool:
    """Whether it has no control character."""
    return _PLAIN.fullmatch(text) is not None
