"""A mirror: topics of one cluster kept on another. Each step brings topics, records and group offsets up to date."""

from __future__ import annotations

import contextlib
import logging
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from confluent_kafka import KafkaException

from ottla import arrow
from ottla.client.config import ClientConfig, parse_addresses
from ottla.client.security import PLAINTEXT, Security
from ottla.errors import KafkaError
from ottla.mirror.administration import Administration
from ottla.mirror.carrying import KINDS, USERS, Belongings, Carry, Change, Names, changes, made_keys
from ottla.mirror.cluster import EXCLUDED_CONFIGS, Remote
from ottla.mirror.control_topic import PREFIX, ControlTopic, MirrorError
from ottla.mirror.credentials import Fingerprint, User, fingerprint
from ottla.mirror.generations import EVERY_S, FAILURES_MAX, Generations, Way
from ottla.mirror.mapping import Mapping as Offsets
from ottla.mirror.mapping import Place
from ottla.mirror.progress import Progress
from ottla.mirror.users import SourceUsers
from ottla.model import Offset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("ottla.mirror")

Policy = Literal["identity", "prefix"]
TIDY_EVERY_S: Final = 60.0
CARRY_EVERY_S: Final = 5.0
"""ACLs, quotas, settings of brokers and users are compared so often: it takes a few requests to either cluster."""
CONTROLLERS_TIMEOUT_S: Final = 10.0
_SALT_BYTES: Final = 16
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")


@dataclass(frozen=True)
class Route:
    """The source, the destination and the topics of a mirror. Names of clusters go into names of topics."""

    source: str
    source_bootstrap: str
    destination: str
    destination_bootstrap: str
    topics: str = ".*"
    """A regular expression for whole names at the source."""
    groups: str = ".*"
    policy: Policy = "identity"
    excluded_configs: frozenset[str] = EXCLUDED_CONFIGS
    source_security: Security = PLAINTEXT
    destination_security: Security = PLAINTEXT
    carry: Carry = field(default_factory=Carry)
    """What is carried beside records and groups."""
    source_controllers: str = ""
    """Addresses of the source's controllers, from which users are read."""
    controllers_security: Security | None = None
    """The way to them; None where it is that to the source's brokers."""

    def __post_init__(self) -> None:
        for name in (self.source, self.destination):
            if not _NAME.fullmatch(name):
                raise MirrorError(f"{name!r} is not a valid cluster name: use letters, digits, '_' and '-'")
        if self.source == self.destination:
            raise MirrorError(f"both clusters are named {self.source}")
        if others := sorted(self.carry.what.difference(KINDS)):
            raise MirrorError(f"{others[0]!r} cannot be carried: choose of {', '.join(KINDS)}")
        if USERS in self.carry.what and not self.source_controllers:
            raise MirrorError("users are read from the source's controllers: give their addresses (from_controllers)")
        for pattern in (self.topics, self.groups, *self.carry.exclude, *self.carry.exclude_users):
            try:
                re.compile(pattern)
            except re.error as error:
                raise MirrorError(f"{pattern!r} is not a valid regular expression: {error}") from None

    def leaves(self, setting: str) -> bool:
        """Whether a setting of topics stays each cluster's own."""
        return setting in self.excluded_configs or self.carry.excludes(setting)

    @property
    def prefix(self) -> str:
        return f"{self.source}." if self.policy == "prefix" else ""

    def reversed(self) -> Route:
        """The way back, without users. Raises MirrorError for a policy that has none."""
        if self.policy != "identity":
            raise MirrorError("only topics that keep their names (identity) can be mirrored back")
        return Route(
            self.destination,
            self.destination_bootstrap,
            self.source,
            self.source_bootstrap,
            self.topics,
            self.groups,
            "identity",
            self.excluded_configs,
            self.destination_security,
            self.source_security,
            self.carry.without_users(),
        )


class Mirror:
    """One route. Of one thread.

    Methods raise MirrorError for what is refused, KafkaException, KafkaError and OSError for clusters that do not
    answer, and what Spark raises for a job that failed.
    """

    def __init__(self, route: Route, spark: SparkSession | None = None, every_s: float = EVERY_S) -> None:
        """With `spark` its tasks copy, as many as it has cores; without it this process does. `every_s` is from one
        transaction to the next."""
        self.route = route
        self.source = Remote(route.source_bootstrap, route.source_security)
        self.destination = Remote(route.destination_bootstrap, route.destination_security)
        self.control = ControlTopic(route.destination_bootstrap, route.source, route.destination_security)
        way = Way(
            route.source,
            route.source_bootstrap,
            route.destination_bootstrap,
            route.prefix,
            route.source_security,
            route.destination_security,
        )
        self.generations = Generations(way, self.control, spark, every_s)
        self.progress = Progress(self.generations.stop)
        self._administration = Administration(route.destination_bootstrap, route.destination_security)
        self._users: SourceUsers | None = None
        self._others: dict[str, ControlTopic] = {}
        """Control topics at the source: of mirrors to there."""
        self._failures = 0
        self._has_followed = False
        self._tidied_at = time.monotonic()
        self._carried_at = float("-inf")

    # -- Running

    def step(self) -> None:
        """Topics and configs, then all records that are there now, then group offsets."""
        self.control.ensure()
        self.control.load()
        self.progress.begin(self.control)
        topics = self.sync_topics()
        self.generations.once(self.source.ends(_places(topics)))
        self.progress.add(self.control, topics)
        self.sync_groups(set(topics))
        self.sync_rest(topics)

    def follow(self) -> None:
        """Topics, configs and group offsets; whoever copies records goes on from one call to the next.

        A cluster that does not answer is asked again with the next call, up to FAILURES_MAX times, but for the first.
        """
        try:
            self._follow()
        except (KafkaException, KafkaError, OSError) as error:
            self._failures += 1
            if not self._has_followed or self._failures > FAILURES_MAX:
                raise
            logger.warning("the mirror of %s could not be updated: %s", self.route.source, error)
        else:
            self._has_followed, self._failures = True, 0

    def _follow(self) -> None:
        self.control.ensure()
        self.control.load()
        if not self._has_followed:
            self.progress.begin(self.control)
        self.generations.check()
        topics = self.sync_topics()
        self.generations.keep(_places(topics))
        self.progress.add(self.control, topics)
        self.sync_groups(set(topics))
        if time.monotonic() - self._carried_at > CARRY_EVERY_S:
            self._carried_at = time.monotonic()
            self.sync_rest(topics)
        if time.monotonic() - self._tidied_at > TIDY_EVERY_S:
            self._tidied_at = time.monotonic()
            starts = self.destination.starts((self.route.prefix + at[0], at[1]) for at in self.control.offsets)
            self.control.tidy({at: starts.get((self.route.prefix + at[0], at[1]), 0) for at in self.control.offsets})

    def stop(self) -> None:
        """Stop copying: what is in an open transaction is aborted."""
        self.generations.stop()

    # -- Topics

    def _names(self, topics: Iterable[str]) -> dict[str, str]:
        return {topic: self.route.prefix + topic for topic in topics}

    def chosen(self) -> dict[str, int]:
        """Topics to be mirrored with their partitions: those that match, and are the source's own."""
        found = self.source.topics()
        mirrors: set[str] = set()
        for name in found:
            if name.startswith(PREFIX):
                other = self._others.setdefault(
                    name,
                    ControlTopic(self.route.source_bootstrap, name.removeprefix(PREFIX), self.route.source_security),
                )
                other.load()
                mirrors.update(topic for topic, role in other.roles.items() if role == "mirror")
        wanted = re.compile(self.route.topics)
        return {
            name: count
            for name, count in sorted(found.items())
            if wanted.fullmatch(name)
            and not name.startswith(("__", PREFIX, f"{self.route.destination}."))
            and (name not in mirrors or self.route.policy == "prefix")
            and self.control.roles.get(self.route.prefix + name) != "owned"
        }

    def sync_topics(self) -> dict[str, int]:
        """Create, grow and configure them at the destination. Returns those that are mirrored."""
        topics = self.chosen()
        there = self.destination.topics()
        names = self._names(topics)
        self._drop_deleted(topics, there)
        configs = self.source.configs(list(topics))
        for topic, count in topics.items():
            name = names[topic]
            if name not in self.control.roles:
                self._claim(name, there.get(name, 0))
            wanted = {k: v for k, v in configs[topic].items() if not self.route.leaves(k)}
            if name not in there:
                self.destination.create(name, count, wanted)
            elif there[name] < count:
                self.destination.grow(name, count)
            elif there[name] > count:
                raise MirrorError(f"{name} has {there[name]} partitions, more than {topic} at {self.route.source}")
            if name in there:
                self._configure(name, wanted)
        new = [at for at in _places(topics) if at not in self.control.offsets]
        if new:
            ends = self.ends_here(new)
            self.control.note((["origin", *at], ends[at]) for at in new)
            self.control.offsets.update({at: Offsets(origin=ends[at]) for at in new})
        return topics

    def _drop_deleted(self, topics: Iterable[str], there: Mapping[str, int]) -> None:
        """A mirror that was deleted is recreated. Raises MirrorError for a topic that was made again at the source."""
        ids = self.source.ids(topics)
        for topic, found in ids.items():
            name, known = self.route.prefix + topic, self.control.ids.get(topic)
            if name not in there and any(at[0] == topic for at in self.control.offsets):
                self.generations.stop()
                self.control.drop(topic)
            elif known not in (None, found):
                raise MirrorError(
                    f"{topic} at {self.route.source} was deleted and recreated: delete its mirror {name} at"
                    f" {self.route.destination}, and the new one will be copied"
                )
        if new := [(["id", topic], found) for topic, found in ids.items() if self.control.ids.get(topic) != found]:
            self.control.note(new)
            self.control.ids |= ids

    def _claim(self, name: str, partitions: int) -> None:
        """A topic becomes a mirror, unless somebody else has written to it."""
        ends = self.destination.ends(((name, p) for p in range(partitions)), committed=False)
        if any(ends.values()):
            raise MirrorError(
                f"{name} at {self.route.destination} has records of its own: it is not a mirror of {self.route.source}"
            )
        self.control.note([(["role", name], "mirror")])
        self.control.roles[name] = "mirror"

    def _configure(self, name: str, wanted: dict[str, str]) -> None:
        if changes := self.config_changes(self.destination.configs([name])[name], wanted):
            self.destination.set_configs(name, changes)

    def config_changes(self, has: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str | None]:
        """Settings to set, and None for those to reset."""
        changes: dict[str, str | None] = {key: value for key, value in wanted.items() if has.get(key) != value}
        return changes | {key: None for key in has if key not in wanted and not self.route.leaves(key)}

    def ends_here(self, places: Iterable[Place]) -> dict[Place, Offset]:
        """Where partitions end at the destination, by their names at the source."""
        names = {(self.route.prefix + topic, p): (topic, p) for topic, p in places}
        return {names[at]: end for at, end in self.destination.ends(names, committed=False).items()}

    # -- Groups

    def sync_groups(self, topics: set[str]) -> dict[str, dict[Place, Offset]]:
        """Commit translated offsets of groups that have moved on; returns what was committed, by group.

        Never back, never for a group with members at the destination, never for one that a failover has moved.
        """
        wanted = re.compile(self.route.groups)
        written: dict[str, dict[Place, Offset]] = {}
        for group in self.source.groups():
            if not wanted.fullmatch(group) or group in self.control.moved:
                continue
            forward = self.forward_offsets(group, topics)
            if forward and self.destination.commit(group, forward):
                written[group] = forward
        return written

    def forward_offsets(self, group: str, topics: set[str]) -> dict[Place, Offset]:
        """Offsets of a group by places at the destination, as far as they are ahead of what it has there."""
        translated = {
            (self.route.prefix + at[0], at[1]): there
            for at, offset in self.source.committed(group).items()
            if at[0] in topics and (there := self._translated(at, offset)) is not None
        }
        if not translated:
            return {}
        has = self.destination.committed(group)
        return {at: offset for at, offset in translated.items() if offset > has.get(at, -1)}

    # -- ACLs, quotas, settings of brokers, users

    def sync_rest(self, topics: Iterable[str]) -> list[Change]:
        """Do what `rest` says; returns what was done. Users whose keys cannot be read hold up nothing else."""
        if not self.route.carry.what:
            return []
        found = self.rest(topics, are_users_needed=False)
        for each in found:
            if each.action == "refuse":
                logger.warning("not carried from %s: %s %s: %s", self.route.source, each.kind, each.name, each.why)
        todo = [each for each in found if each.action in ("create", "alter", "delete")]
        made = [each for each in todo if each.action != "delete"]
        self._note_made(made, True)  # before: what a killed mirror has made must not stay for ever
        refused = self._administration.apply(todo)
        for one in refused:
            logger.warning("not carried from %s: %s", self.route.source, one)
        failed = [one.change for one in refused]
        # Somebody may create it by hand now: then it is the destination's own.
        self._note_made([each for each in failed if (each.kind, each.action) == ("user", "create")], None)
        done = [each for each in todo if each not in failed]
        self._note_credentials(each for each in done if each.kind == "user")
        self._note_made([each for each in done if each.action == "delete"], None)
        return done

    def rest(self, topics: Iterable[str], *, are_users_needed: bool = True) -> list[Change]:
        """What is to be done beside topics and groups, and what is left, with why. Where users cannot be read, they are
        left out unless they are needed."""
        carry = self.route.carry
        there = Administration(self.route.source_bootstrap, self.route.source_security)
        names = Names(sorted(topics), self.route.groups, self.route.prefix)
        with contextlib.closing(there):
            found = there.belongings(carry.what)
            if USERS in carry.what:
                try:
                    found = self._with_users(found, there)
                except (KafkaError, OSError) as error:
                    if are_users_needed:
                        raise
                    logger.warning("users of %s cannot be read: %s", self.route.source, error)
                    carry = carry.without_users()
        has = self._administration.belongings(carry.what)
        return [*changes(found, has, carry, names, self.control.made, self.control.credentials)]

    def _with_users(self, found: Belongings, there: Administration) -> Belongings:
        """Raises KafkaError, OSError."""
        if self._users is None:
            route = self.route
            config = ClientConfig(
                parse_addresses(route.source_controllers),
                "ottla-mirror",
                security=route.controllers_security or route.source_security,
                request_timeout_s=CONTROLLERS_TIMEOUT_S,
            )
            self._users = SourceUsers(config, there.cluster_id())
        return replace(found, credentials=self._users.read())

    def _note_made(self, of: Iterable[Change], value: bool | None) -> None:
        keys = [key for each in of for key in made_keys(each) if (key in self.control.made) != bool(value)]
        if keys:
            self.control.note((["made", key], value) for key in keys)
            (self.control.made.update if value else self.control.made.difference_update)(keys)

    def _note_credentials(self, of: Iterable[Change]) -> None:
        """Behind the change: until then it is done again."""
        new: dict[User, Fingerprint | None] = {}
        for change in of:
            user, credential = change.subject
            salt = secrets.token_hex(_SALT_BYTES)
            new[user] = None if credential is None else fingerprint(user, credential, salt)
        if new:
            self.control.note((["credential", *user], value) for user, value in new.items())
            for user, value in new.items():
                self.control.keep_credential(user, value)

    def _translated(self, at: Place, offset: Offset) -> Offset | None:
        mapping = self.control.offsets.get(at)
        return None if mapping is None else mapping.translate(offset)

    # -- Handing over

    def failover(self, *, reach_source: bool = True) -> dict[Place, Offset]:
        """Give the topics to the destination; returns where its own records will begin, by partition; done again, too.

        Whoever mirrors now is stopped. With `reach_source` all that can be read at the source when this is called is
        copied first, and group offsets are translated a last time.
        """
        self.control.load()
        if self.control.offsets:
            self.generations.take_over()
        if reach_source:
            self.step()
        wanted = re.compile(self.route.topics)
        places = [
            at
            for at in self.control.offsets
            if wanted.fullmatch(at[0]) and self.control.roles.get(self.route.prefix + at[0]) == "mirror"
        ]
        if not places:
            done = {
                at: cut
                for at, cut in self.control.cuts.items()
                if wanted.fullmatch(at[0]) and self.control.roles.get(self.route.prefix + at[0]) == "owned"
            }
            if not done:
                raise MirrorError(f"no topics of {self.route.source} are mirrored here")
            return done  # by a failover whose answer was lost
        names = self._names(at[0] for at in places)
        cuts = self.ends_here(places)
        groups = self.destination.groups()
        self.control.note(
            [
                *((["cut", *at], cut) for at, cut in cuts.items()),
                *((["moved", group], True) for group in groups if re.fullmatch(self.route.groups, group)),
                *((["role", name], "owned") for name in names.values()),
            ]
        )
        self.control.load()
        return cuts

    # -- Looking

    def known(self) -> list[dict[str, Any]]:
        """The part of `status` that the destination knows, without asking the source."""
        self.control.load()
        return self._known()

    def _known(self) -> list[dict[str, Any]]:
        return [self._row(*place, mapping) for place, mapping in sorted(self.control.offsets.items())]

    def _row(
        self,
        topic: str,
        partition: int,
        mapping: Offsets,
        end: int | None = None,
        records: int | None = None,
        age_s: float | None = None,
    ) -> dict[str, Any]:
        return {
            "topic": topic,
            "partition": partition,
            "mirror": self.route.prefix + topic,
            "role": self.control.roles.get(self.route.prefix + topic, "none"),
            "source_end": end,
            "copied_to": mapping.source_end(),
            "lag_records": records,
            "lag_seconds": age_s,
        }

    def status(self, now_s: float | None = None) -> list[dict[str, Any]]:
        """One row for each partition: by how many offsets it is behind, and the age of the first record there, in s.
        Of topics that were handed over only what `known` says."""
        self.control.load()
        topics = self.chosen()
        ends = self.source.ends((topic, p) for topic, count in topics.items() for p in range(count))
        rows = []
        for (topic, partition), end in sorted(ends.items()):
            mapping = self.control.offsets.get((topic, partition), Offsets())
            records, oldest = self._left(topic, partition, mapping.source_end(), end)
            age = None if oldest is None else max(0.0, (time.time() if now_s is None else now_s) - oldest)
            rows.append(self._row(topic, partition, mapping, end, records, age))
        wanted = re.compile(self.route.topics)
        rows += [row for row in self._known() if row["role"] == "owned" and wanted.fullmatch(row["topic"])]
        return sorted(rows, key=lambda row: (row["topic"], row["partition"]))

    def exists(self) -> bool:
        """Whether it has ever run: its control topic is at the destination. Raises KafkaError, OSError."""
        return bool(self.control.client.partitions([self.control.topic]))

    def others(self) -> list[str]:
        """Names of the sources that have mirrors at the destination. Raises KafkaError, OSError."""
        return [name.removeprefix(PREFIX) for name in self.control.client.topics() if name.startswith(PREFIX)]

    def _left(self, topic: str, partition: int, start: Offset, end: Offset) -> tuple[int, float | None]:
        if start >= end:
            return 0, None
        reader = arrow.read(
            topic,
            self.route.source_bootstrap,
            partitions=[partition],
            start={partition: start},
            end={partition: end},
            columns=["timestamp"],
        )
        with contextlib.closing(reader):
            first = next((batch for batch in reader if batch.num_rows), None)
        # What is left may be markers, and what was aborted.
        return (0, None) if first is None else (end - start, first.column(0)[0].as_py().timestamp())


def _places(topics: Mapping[str, int]) -> list[Place]:
    return [(topic, partition) for topic, count in topics.items() for partition in range(count)]
