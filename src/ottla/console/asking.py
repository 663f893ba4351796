"""What the functions of `views` are given: the brokers as this user sees them, what is kept of it, and the request."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.client.security import SecurityFailure
from ottla.console import groups as groups_of
from ottla.console.access.bearer import Bearer
from ottla.console.access.roles import Identity, Rights, Roles
from ottla.console.access.trail import Trail
from ottla.console.brokers import Brokers, NodeAway, Refused, patiently
from ottla.console.cluster import Cluster, read_cluster
from ottla.console.feeds import Feeds
from ottla.console.groups import Groups, Progress
from ottla.console.records.searches import Searches
from ottla.console.snapshots import Snapshot, Snapshots, Threads
from ottla.console.tokens import Tokens
from ottla.console.trends import Trends
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from ottla.console.decoding import Schemas
    from ottla.console.masks import Masks, TopicMask
    from ottla.schemas.client import Registry

CLUSTER_FRESH_S: Final = 5.0
MISSED_S: Final = 0.5
"""Age of the cluster with which a topic that it lacks is not sought again."""
GROUPS_FRESH_S: Final = 5.0
PROGRESS_FRESH_S: Final = 15.0
"""Lag of all groups: the largest thing that pages ask for."""
SOON_S: Final = 0.15
"""How long a page waits for what may take long, before it is shown without."""
QUERIES_AT_ONCE: Final = 3
"""Queries in SQL of all users: each has a process with memory of its own."""

T = TypeVar("T")


class NotFound(Exception):
    """What the page is about does not exist, or the user may not see it; the text says what."""


class Invalid(Exception):
    """A parameter of the request has a value that cannot be; the text says which are possible."""


@dataclass(frozen=True)
class Problem:
    """Why a part of a page is not there."""

    sentence: str
    right: str | None
    """The missing right, such as `Read on Topic orders`."""


@dataclass(frozen=True)
class User:
    """A user and what was read as that user."""

    name: str | None
    """None where the cluster asks nobody for a login."""
    brokers: Brokers
    snapshots: Snapshots
    trends: Trends = field(default_factory=Trends)
    tokens: Tokens = field(default_factory=Tokens)
    """Tokens of the forms that this user was given."""
    feeds: Feeds = field(default_factory=Feeds)
    """What live tails read, once for all of them."""

    @property
    def bearer(self) -> Bearer | None:
        """Tokens of an identity provider; None with a password."""
        login = self.brokers.config.security.login
        return login.bearer if login is not None and isinstance(login.bearer, Bearer) else None

    @property
    def identity(self) -> Identity:
        """As it is now: claims change when tokens are renewed."""
        return Identity(self.name) if self.bearer is None else self.bearer.identity


@dataclass(frozen=True)
class Site:
    """What all users share."""

    masks: Masks
    registry: Registry | None = None
    schemas: Schemas | None = None
    """Decodes with the registry."""
    registry_url: str | None = None
    """As it may be shown: without a password."""
    searches: Searches = field(default_factory=Searches)
    is_read_only: bool = False
    """Whether no act is served."""
    bootstrap: str = ""
    """For the commands that a page shows."""
    has_login: bool = False
    roles: Roles = field(default_factory=Roles)
    trail: Trail = field(default_factory=Trail)
    """The audit log."""

    def rights_of(self, user: User) -> Rights:
        return self.roles.of(user.identity, self.masks)

    registry_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """How the registry is asked by a query, which is a process of its own."""
    pipelines: Path | None = None
    """Where pipelines keep their status; None for their default."""
    files: Snapshots = field(default_factory=lambda: Snapshots(Threads()))
    """What files on the console's machine say: the same for all users."""
    queries: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(QUERIES_AT_ONCE))


@dataclass
class Asking:
    """One request of one user."""

    user: User
    site: Site
    parameters: Mapping[str, Any]
    """Values of the path and the query, as the route declares them."""
    problems: dict[str, Problem] = field(default_factory=dict)
    """Parts of the page that are not there, by name."""
    age_s: float = 0.0
    """Age of the oldest snapshot that the page shows."""
    halt: threading.Event = field(default_factory=threading.Event)
    """Set when nobody waits for the answer any more."""
    _away: dict[str, dict[int, str]] = field(default_factory=dict, init=False, repr=False)
    """Why nodes could not be asked, by part and node."""

    @property
    def brokers(self) -> Brokers:
        return self.user.brokers

    @property
    def trends(self) -> Trends:
        """Rates and lags of the last minutes, which are sampled while somebody looks."""
        return self.user.trends.look()

    @functools.cached_property
    def rights(self) -> Rights:
        """What the roles of this user give."""
        return self.site.rights_of(self.user)

    def mask(self, topic: str) -> TopicMask:
        """What is hidden of the records of a topic. Whatever shows records asks here first. Raises Forbidden where
        none may be seen."""
        self.rights.ensure_read(topic)
        return self.rights.mask(topic)

    def text(self, name: str) -> str:
        return str(self.parameters.get(name, ""))

    def number(self, name: str) -> int:
        return int(self.parameters[name])

    def attempt(self, part: str, do: Callable[[], T], instead: T) -> T:
        """The result, or `instead`, and then the reason is among the problems."""
        try:
            return do()
        except SecurityFailure:
            raise
        except (KafkaError, OSError) as error:
            self.fail(part, error)
            return instead

    def fail(self, part: str, error: Exception) -> None:
        """The first reason stands; where it is a node that could not be asked, others are named beside it."""
        if isinstance(error, NodeAway) and (part not in self.problems or part in self._away):
            away = self._away.setdefault(part, {})
            away[error.node_id] = str(error)
            self.problems[part] = Problem(f"Not every broker could be asked: {'; '.join(away.values())}.", None)
        else:
            self.problems.setdefault(part, problem_of(error))

    def fail_all(self, part: str, errors: Iterable[Exception]) -> None:
        """The first reason, and every node that could not be asked; one error may stand for many partitions."""
        distinct = {id(each): each for each in errors}.values()
        for error in sorted(distinct, key=lambda each: not isinstance(each, NodeAway)):
            self.fail(part, error)

    def cluster(self) -> Cluster:
        """Raises OSError, KafkaError."""

        def read() -> Cluster:
            with patiently():  # without it there is no page
                return read_cluster(self.brokers)

        return self._shown(self.user.snapshots.get("cluster", CLUSTER_FRESH_S, read))

    def newest_cluster(self) -> Cluster:
        """For what `cluster` has not: it may be new. Raises OSError, KafkaError."""
        self.user.snapshots.drop_older("cluster", MISSED_S)
        return self.cluster()

    def groups(self) -> Groups:
        cluster = self.cluster()
        found = self._shown(
            self.user.snapshots.get(
                "groups", GROUPS_FRESH_S, lambda: groups_of.read_groups(self.brokers, cluster), _all_answered
            )
        )
        for error in found.failures.values():
            self.fail("groups", error)
        return found

    def progress(self, part: str = "lag", *, wait: bool = False) -> Progress | None:
        """How far all groups are; None while that is still being read, unless the page cannot do without. What is not
        known is a problem of `part`."""
        cluster, groups = self.cluster(), self.groups()

        def read() -> Progress:
            return groups_of.read_progress(self.brokers, cluster, groups.by_name.values())

        if wait:
            found: Progress | None = self._shown(
                self.user.snapshots.get("progress", PROGRESS_FRESH_S, read, _all_answered)
            )
        else:
            found = self.soon("progress", PROGRESS_FRESH_S, read, _all_answered)
        if found is not None:
            self.fail_all(part, [*found.failures.values(), *found.unread])
        return found

    def soon(
        self,
        key: Any,
        fresh_s: float,
        read: Callable[[], T],
        is_whole: Callable[[T], bool] = lambda _: True,
        *,
        wait_s: float = SOON_S,
        of: Snapshots | None = None,
    ) -> T | None:
        """What may take long: None while it is still being read, `wait_s` after that began. `of`: in place of what was
        read as this user."""

        def read_patiently() -> T:
            with patiently():
                return read()

        found = (of or self.user.snapshots).soon(key, fresh_s, wait_s, read_patiently, is_whole)
        return None if found is None else self._shown(found)

    def _shown(self, snapshot: Snapshot[T]) -> T:
        self.age_s = max(self.age_s, snapshot.age_s)
        return snapshot.value


def problem_of(error: Exception) -> Problem:
    if isinstance(error, Refused):
        return Problem(f"This is not shown: {error}.", error.right)
    if isinstance(error, KafkaError):
        return Problem(f"The brokers answered with an error: {error.message or error.code.name.upper()}.", None)
    return Problem(f"The brokers could not be asked: {error}.", None)


def _all_answered(found: Groups | Progress) -> bool:
    unread = found.unread if isinstance(found, Progress) else []
    return not any(isinstance(each, OSError) for each in [*found.failures.values(), *unread])


def now_ms() -> int:
    return int(time.time() * 1000)
