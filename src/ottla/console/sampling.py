"""Samples of end offsets and lags while somebody looks: for each user, for the cluster's ACLs say who sees what."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from typing import Final

from ottla.console.asking import Asking, Site, User
from ottla.console.behind import behind_of_groups
from ottla.console.brokers import patiently
from ottla.console.cluster import LATEST, places, read_offsets
from ottla.console.history import STEP_S
from ottla.console.views.topics import lag_by_topic
from ottla.errors import KafkaError
from ottla.logs import errors_logged

_LOG = logging.getLogger("ottla.console")

LOOKED_S: Final = 600.0
"""Sampling goes on for so long after the last page: who comes back finds no hole."""
USERS_MAX: Final = 8
"""Users that are sampled: those that looked last. The trends of the others are dropped."""
SHARE: Final = 0.05
"""Share of the time that sampling may take: for a cluster that is slow to read, samples are rarer."""


def sample(user: User, site: Site) -> None:
    """Read the ends of all topics and the lags of all groups: one request to each broker for each. Raises OSError,
    KafkaError."""
    asking = Asking(user, site, {})
    cluster = asking.cluster()
    found = read_offsets(user.brokers, cluster, dict.fromkeys(places(cluster.topics.values()), LATEST)).found
    ends: dict[str, int] = {}
    for at, offset in found.items():
        ends[at.topic] = ends.get(at.topic, 0) + offset
    progress = asking.progress(wait=True)
    assert progress is not None
    lags = {group: progress.lag(group) for group in progress.by_group}
    user.trends.add(ends, lags, {topic: lag for topic, (_, lag) in lag_by_topic(progress).items()})
    followed = {each: progress.by_group[each] for each in user.trends.followed() if each in progress.by_group}
    if followed:
        behind = behind_of_groups(asking, followed).by_group
        user.trends.add_behind({each: behind.get(each) for each in followed})


class Sampler:
    """A thread that samples for whoever looks."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._users: dict[int, weakref.ref[User]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="console sampler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def watch(self, user: User) -> None:
        """From any thread; until the user's session ends."""
        self._users[id(user)] = weakref.ref(user)

    def looking(self) -> list[User]:
        """The users to sample for, those that looked last; what is kept of the others goes."""
        known = {key: ref() for key, ref in list(self._users.items())}
        for key, user in known.items():
            if user is None or user.brokers.has_ended:
                self._users.pop(key, None)
        there = [each for each in known.values() if each is not None and not each.brokers.has_ended]
        there.sort(key=lambda each: -each.trends.looked)
        now = time.monotonic()
        found = [each for each in there[:USERS_MAX] if now - each.trends.looked <= LOOKED_S]
        for each in there:
            if each not in found:
                each.trends.clear()
        return found

    def _run(self) -> None:
        pause_s = STEP_S
        while not self._stopping.wait(pause_s):
            began = time.monotonic()
            with errors_logged(_LOG, "sampling"):
                for each in self.looking():
                    try:
                        with patiently():
                            sample(each, self._site)
                    except (KafkaError, OSError):
                        pass  # the pages say so
            pause_s = max(STEP_S, (time.monotonic() - began) / SHARE)
