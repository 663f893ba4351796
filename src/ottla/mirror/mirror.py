"""A mirror: topics of one cluster kept on another. Each step brings topics, records and group offsets up to date."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from ottla import arrow
from ottla.mirror.cluster import EXCLUDED_CONFIGS, Place, Remote
from ottla.mirror.ledger import PREFIX, Ledger, MirrorError
from ottla.mirror.mapping import Mapping as Offsets
from ottla.model import Offset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

Policy = Literal["identity", "prefix"]
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")


@dataclass(frozen=True)
class Route:
    """From where to where, and what. Names of clusters go into names of topics."""

    source: str
    source_bootstrap: str
    destination: str
    destination_bootstrap: str
    topics: str = ".*"
    """A regular expression for whole names at the source."""
    groups: str = ".*"
    policy: Policy = "identity"
    excluded_configs: frozenset[str] = EXCLUDED_CONFIGS

    def __post_init__(self) -> None:
        for name in (self.source, self.destination):
            if not _NAME.fullmatch(name):
                raise MirrorError(f"{name!r} is no name for a cluster: letters, digits, '_' and '-' are")
        if self.source == self.destination:
            raise MirrorError(f"both clusters are called {self.source}")
        for pattern in (self.topics, self.groups):
            try:
                re.compile(pattern)
            except re.error as error:
                raise MirrorError(f"{pattern!r} is no regular expression: {error}") from None

    @property
    def prefix(self) -> str:
        return f"{self.source}." if self.policy == "prefix" else ""

    def reversed(self) -> Route:
        """The way back. Raises MirrorError for a policy that has none."""
        if self.policy != "identity":
            raise MirrorError("only topics that keep their names (identity) can be mirrored back")
        return Route(
            self.destination, self.destination_bootstrap, self.source, self.source_bootstrap, self.topics, self.groups,
            "identity", self.excluded_configs,
        )  # fmt: skip


class Mirror:
    """One route. `spark` and `checkpoint` are needed for copying only.

    Methods raise MirrorError for what is refused, KafkaException, KafkaError and OSError for clusters that do not
    answer, and what Spark raises for a query that failed.
    """

    def __init__(
        self, route: Route, spark: SparkSession | None = None, checkpoint: Path | str | None = None, *,
        options: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.route = route
        self.source = Remote(route.source_bootstrap)
        self.destination = Remote(route.destination_bootstrap)
        self.ledger = Ledger(self.destination, route.source)
        self._spark = spark
        self._checkpoint = checkpoint
        self._options = options or {}
        """More options of the sources, such as maxOffsetsPerTrigger."""
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.error: BaseException | None = None
        """What ended the thread."""
        self.query: Any = None
        """Of Spark, which copies records, or has done so last."""
        self._following: tuple[tuple[str, ...], int] | None = None
        """Topics and generation of a query that goes on."""

    # -- Running

    def start(self, every_s: float = 1.0) -> None:
        """Step again and again in a thread, until `stop` or an error."""
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, args=(every_s,), name="ottla-mirror", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """After the step that is under way. Raises what ended the thread."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self.error is not None:
            raise self.error

    def _run(self, every_s: float) -> None:
        try:
            while not self._stopping.is_set():
                self.step()
                self._stopping.wait(every_s)
        except BaseException as error:
            self.error = error

    def step(self) -> None:
        """Topics and configs, then all records that are there now, then group offsets."""
        self.ledger.ensure()
        self.ledger.load()
        topics = self.sync_topics()
        through = self.source.ends((topic, p) for topic, count in topics.items() for p in range(count))
        self._stop_following()
        if topics:
            self._copy(topics)
        self._note(topics, through)

    def follow(self) -> None:
        """The same, but for records: a query copies them that goes on from one call to the next, since to start one
        takes seconds. Group offsets are translated as far as it has come. Raises what it failed with."""
        self.ledger.ensure()
        self.ledger.load()
        topics = self.sync_topics()
        wanted = (tuple(topics), self.ledger.generation)
        if self._following is not None and not self.query.isActive:
            raise self.query.exception() or MirrorError("the query that copies records was stopped")
        if wanted != self._following:
            self._stop_following()
            if topics:
                self.query = self._writer(topics).start()
                self._following = wanted
        self._note(topics, self._reached(topics))

    def _stop_following(self) -> None:
        if self._following is not None:
            self.query.stop()
            self._following = None

    def _reached(self, topics: dict[str, int]) -> dict[Place, Offset]:
        """What the query has copied, and committed, all of: where its last batch ended."""
        progress = self.query.lastProgress if self._following is not None else None
        ends = progress["sources"][0]["endOffset"] if progress is not None else None
        found = json.loads(ends) if isinstance(ends, str) else ends or {}
        return {
            (topic, int(partition)): int(offset)
            for topic, partitions in found.items() if topic in topics
            for partition, offset in partitions.items()
        }  # fmt: skip

    def _note(self, topics: dict[str, int], through: dict[Place, Offset]) -> None:
        """What has been copied, all of it before `through`; and group offsets."""
        self.ledger.settle(self._names(topics))
        known = self.ledger.offsets
        changed = {at: end for at, end in through.items() if known.setdefault(at, Offsets()).through < end}
        if changed:
            self.ledger.note((["through", *at], end) for at, end in changed.items())
        for at, end in changed.items():
            known[at].through = end
        self.sync_groups(set(topics))

    # -- Topics

    def _names(self, topics: Iterable[str]) -> dict[str, str]:
        return {topic: self.route.prefix + topic for topic in topics}

    def chosen(self) -> dict[str, int]:
        """Topics to be mirrored with their partitions: those that match, and are the source's own."""
        found = self.source.topics()
        mirrors: set[str] = set()
        for name in found:
            if name.startswith(PREFIX):
                other = Ledger(self.source, name.removeprefix(PREFIX))
                other.load()
                mirrors.update(topic for topic, role in other.roles.items() if role == "mirror")
        wanted = re.compile(self.route.topics)
        return {
            name: count
            for name, count in sorted(found.items())
            if wanted.fullmatch(name)
            and not name.startswith(("__", PREFIX, f"{self.route.destination}."))
            and (name not in mirrors or self.route.policy == "prefix")
            and self.ledger.roles.get(self.route.prefix + name) != "owned"
        }

    def sync_topics(self) -> dict[str, int]:
        """Create, grow and configure them at the destination. Returns those that are mirrored."""
        topics = self.chosen()
        there = self.destination.topics()
        names = self._names(topics)
        configs = self.source.configs(list(topics))
        for topic, count in topics.items():
            name = names[topic]
            if name not in self.ledger.roles:
                self._claim(name, there.get(name, 0))
            wanted = {k: v for k, v in configs[topic].items() if k not in self.route.excluded_configs}
            if name not in there:
                self.destination.create(name, count, wanted)
            elif there[name] < count:
                self.destination.grow(name, count)
            elif there[name] > count:
                raise MirrorError(f"{name} has {there[name]} partitions, more than {topic} at {self.route.source}")
            if name in there:
                self._configure(name, wanted)
        places = [(topic, p) for topic, count in topics.items() for p in range(count)]
        new = [at for at in places if at not in self.ledger.offsets]
        if new:
            ends = self._ends_here(new)
            self.ledger.note((["origin", *at], ends[at]) for at in new)
            self.ledger.offsets.update({at: Offsets(origin=ends[at]) for at in new})
        return topics

    def _claim(self, name: str, partitions: int) -> None:
        """A topic becomes a mirror, unless somebody else has written to it."""
        ends = self.destination.ends(((name, p) for p in range(partitions)), committed=False)
        if any(ends.values()):
            raise MirrorError(
                f"{name} at {self.route.destination} has records of its own: it is no mirror of {self.route.source}"
            )
        self.ledger.note([(["role", name], "mirror")])
        self.ledger.roles[name] = "mirror"

    def _configure(self, name: str, wanted: dict[str, str]) -> None:
        has = self.destination.configs([name])[name]
        changes: dict[str, str | None] = {key: value for key, value in wanted.items() if has.get(key) != value}
        changes |= {key: None for key in has if key not in wanted and key not in self.route.excluded_configs}
        if changes:
            self.destination.set_configs(name, changes)

    def _ends_here(self, places: Iterable[Place]) -> dict[Place, Offset]:
        """Where partitions end at the destination, by their names at the source."""
        names = {(self.route.prefix + topic, p): (topic, p) for topic, p in places}
        return {names[at]: end for at, end in self.destination.ends(names, committed=False).items()}

    # -- Records

    def _copy(self, topics: dict[str, int]) -> None:
        self.query = self._writer(topics).trigger(availableNow=True).start()
        try:
            self.query.awaitTermination()
        finally:
            self.query.stop()

    def _writer(self, topics: dict[str, int]) -> DataStreamWriter:
        from ottla.mirror import copying

        if self._spark is None or self._checkpoint is None:
            raise MirrorError("copying needs a Spark session and a directory for its checkpoint")
        offsets = self.ledger.offsets
        starting = {
            topic: {str(p): offsets[topic, p].start or -2 for p in range(count)} for topic, count in topics.items()
        }
        records = copying.read(self._spark, {
            **self._options, "kafka.bootstrap.servers": self.route.source_bootstrap, "subscribe": ",".join(topics),
            "startingOffsets": json.dumps(starting),
        })  # fmt: skip
        return (
            copying.with_offsets(records, self.route.source, self.route.prefix)
            .writeStream.format("ottla")
            .option("kafka.bootstrap.servers", self.route.destination_bootstrap)
            .option("delivery", "exactly-once")
            .option("includeTimestamp", "true")
            .option("checkpointLocation", f"{self._checkpoint}/generation-{self.ledger.generation}")
        )

    # -- Groups

    def sync_groups(self, topics: set[str]) -> dict[str, dict[Place, Offset]]:
        """Commit translated offsets of groups that have moved on; returns what was committed, by group.

        Never back, never for a group with members at the destination, never for one that a failover has moved.
        """
        wanted = re.compile(self.route.groups)
        written: dict[str, dict[Place, Offset]] = {}
        for group in self.source.groups():
            if not wanted.fullmatch(group) or group in self.ledger.moved:
                continue
            translated = {
                (self.route.prefix + at[0], at[1]): there
                for at, offset in self.source.committed(group).items()
                if at[0] in topics and (there := self._translated(at, offset)) is not None
            }
            if not translated:
                continue
            has = self.destination.committed(group)
            forward = {at: offset for at, offset in translated.items() if offset > has.get(at, -1)}
            if forward and self.destination.commit(group, forward):
                written[group] = forward
        return written

    def _translated(self, at: Place, offset: Offset) -> Offset | None:
        mapping = self.ledger.offsets.get(at)
        return None if mapping is None else mapping.translate(offset)

    # -- Handing over

    def failover(self, *, reach_source: bool = True) -> dict[Place, Offset]:
        """Give the topics to the destination; returns where its own records will begin, by partition; done again, too.

        With `reach_source` all that can be read at the source when this is called is copied first, and group offsets
        are translated a last time.
        """
        if reach_source:
            self.step()
        self.ledger.load()
        wanted = re.compile(self.route.topics)
        places = [
            at
            for at in self.ledger.offsets
            if wanted.fullmatch(at[0]) and self.ledger.roles.get(self.route.prefix + at[0]) == "mirror"
        ]
        if not places:
            done = {
                at: cut
                for at, cut in self.ledger.cuts.items()
                if wanted.fullmatch(at[0]) and self.ledger.roles.get(self.route.prefix + at[0]) == "owned"
            }
            if not done:
                raise MirrorError(f"no topics of {self.route.source} are mirrored here")
            return done  # by a failover whose answer was lost
        names = self._names(at[0] for at in places)
        self.ledger.settle(names)
        cuts = self._ends_here(places)
        groups = self.destination.groups()
        self.ledger.note(
            [
                *((["cut", *at], cut) for at, cut in cuts.items()),
                *((["moved", group], True) for group in groups if re.fullmatch(self.route.groups, group)),
                *((["role", name], "owned") for name in names.values()),
            ]
        )
        self.ledger.load()
        return cuts

    # -- Looking

    def known(self) -> list[dict[str, Any]]:
        """What `status` says as far as the destination knows it, without asking the source."""
        self.ledger.load()
        return [
            {
                "topic": topic, "partition": partition, "mirror": self.route.prefix + topic,
                "role": self.ledger.roles.get(self.route.prefix + topic, "none"), "source_end": None,
                "copied_to": mapping.source_end(), "lag_records": None, "lag_seconds": None,
            }
            for (topic, partition), mapping in sorted(self.ledger.offsets.items())
        ]  # fmt: skip

    def status(self, now_s: float | None = None) -> list[dict[str, Any]]:
        """One row for each partition: how many records are not copied yet, and the age of the first of them, in s."""
        self.ledger.load()
        topics = self.chosen()
        ends = self.source.ends((topic, p) for topic, count in topics.items() for p in range(count))
        rows = []
        for (topic, partition), end in sorted(ends.items()):
            mapping = self.ledger.offsets.get((topic, partition), Offsets())
            records, oldest = self._left(topic, partition, mapping.source_end(), end)
            age = None if oldest is None else max(0.0, (time.time() if now_s is None else now_s) - oldest)
            rows.append({
                "topic": topic, "partition": partition, "mirror": self.route.prefix + topic,
                "role": self.ledger.roles.get(self.route.prefix + topic, "none"), "source_end": end,
                "copied_to": mapping.source_end(), "lag_records": records, "lag_seconds": age,
            })  # fmt: skip
        return rows

    def _left(self, topic: str, partition: int, start: Offset, end: Offset) -> tuple[int, float | None]:
        if start >= end:
            return 0, None
        reader = arrow.read(
            topic, self.route.source_bootstrap, partitions=[partition], start={partition: start},
            end={partition: end}, columns=["timestamp"],
        )  # fmt: skip
        records, oldest = 0, None
        for batch in reader:
            if records == 0 and batch.num_rows:
                oldest = batch.column(0)[0].as_py().timestamp()
            records += batch.num_rows
        return records, oldest


class Failback:
    """Brings what was written after a failover to the old source, and groups too. `step` until producers have moved,
    then `finish`."""

    def __init__(self, forward: Route, spark: SparkSession, checkpoint: Path | str, unmirrored: Path | None) -> None:
        self.forward = Mirror(forward)
        self.back = Mirror(forward.reversed(), spark, checkpoint)
        self._unmirrored = unmirrored

    def prepare(self) -> int:
        """Note where copying back begins, once. Returns how many records the old source has that were never mirrored;
        they go to the file `unmirrored` as lines of JSON, and stay where they are."""
        self.forward.ledger.load()
        back, cuts = self.back.ledger, self.forward.ledger.cuts
        back.load()
        owned = {at: cut for at, cut in cuts.items() if self.forward.ledger.roles.get(at[0]) == "owned"}
        # One that began before, and was given back perhaps, has this cut as its start.
        new = {at: cut for at, cut in owned.items() if at not in back.offsets or back.offsets[at].start != cut}
        if not owned:
            raise MirrorError(
                f"no topics of {self.forward.route.source} have failed over: there is nothing to bring back"
            )
        if not new:
            return 0
        ends = self.forward.source.ends(new, committed=False)
        left = self._report({at: (self.forward.ledger.offsets[at].source_end(), ends[at]) for at in new})
        back.note(
            [
                *back.next_generation(),
                *((["origin", *at], ends[at]) for at in new),
                *((["start", *at], cut) for at, cut in new.items()),
                *((["role", topic], "mirror") for topic in {at[0] for at in new}),
            ]
        )
        return left

    def _report(self, ranges: dict[Place, tuple[Offset, Offset]]) -> int:
        count = 0
        with contextlib.ExitStack() as stack:
            out = stack.enter_context(self._unmirrored.open("w")) if self._unmirrored is not None else None
            for (topic, partition), (start, end) in sorted(ranges.items()):
                if start >= end:
                    continue
                reader = arrow.read(
                    topic, self.forward.route.source_bootstrap, partitions=[partition], start={partition: start},
                    end={partition: end}, columns=["topic", "partition", "offset", "timestamp", "key", "value"],
                )  # fmt: skip
                for batch in reader:
                    count += batch.num_rows
                    if out is not None:
                        out.writelines(json.dumps(_plain(row)) + "\n" for row in batch.to_pylist())
        return count

    def step(self) -> None:
        """Copy what is there now, and move groups."""
        self.prepare()
        self.back.step()
        self._groups_before_the_cut()

    def _groups_before_the_cut(self) -> None:
        """Groups that are still at records that came from the old source go on there, by the mapping turned round."""
        for group in self.back.source.groups():
            if not re.fullmatch(self.back.route.groups, group):
                continue
            cuts, has = self.forward.ledger.cuts, self.back.destination.committed(group)
            turned = {
                at: there
                for at, offset in self.back.source.committed(group).items()
                if at in cuts
                and offset < cuts[at]
                and (there := self.forward.ledger.offsets[at].back(offset)) is not None
            }
            forward = {at: offset for at, offset in turned.items() if offset > has.get(at, -1)}
            if forward:
                self.back.destination.commit(group, forward)

    def finish(self) -> dict[Place, Offset]:
        """Copy the rest, give the topics back to the old source, and let the route forward go on from there.

        Producers have to have stopped at the destination.
        """
        self.prepare()
        self.back.ledger.load()
        if "mirror" in self.back.ledger.roles.values():
            self.step()
            cuts = self.back.failover(reach_source=False)
        else:  # killed behind the failover
            cuts = dict(self.back.ledger.cuts)
        ledger = self.forward.ledger
        here = self.forward._ends_here(cuts)
        ledger.note(
            [
                *ledger.next_generation(),
                *((["origin", *at], end) for at, end in here.items()),
                *((["start", *at], end) for at, end in cuts.items()),
                *((["role", topic], "mirror") for topic in {at[0] for at in cuts}),
                *((["cut", *at], None) for at in cuts),
            ]
        )
        return cuts


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """A record as JSON: bytes as text where they are, otherwise as they are escaped."""
    return {
        name: value.decode(errors="backslashreplace") if isinstance(value, bytes)
        else value.isoformat() if hasattr(value, "isoformat") else value
        for name, value in row.items()
    }  # fmt: skip
