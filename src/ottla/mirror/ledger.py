"""The control topic of a mirror: `mirror-offsets.SOURCE` at the destination, compacted, of one partition.

Keys are JSON lists. `["runs", topic, partition, start]` is written by the tasks of the query, in the transaction of
the records that it is about: which offsets they had at the source. The driver replaces it by the same with the offsets
at the destination. `["origin"|"start"|"through"|"cut", topic, partition]` are
offsets. `["role", topic]` is `mirror` or `owned`, of a topic by its name at the destination; elsewhere topics are named
as at the source. `["moved", group]` says that a failover has moved a group, `["generation"]` is how often copying went
on after a failback.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from confluent_kafka import KafkaException, Producer

from ottla import arrow
from ottla.mirror.cluster import Place, Remote
from ottla.mirror.mapping import Mapping as Offsets
from ottla.mirror.mapping import Run, Stretch, paired, stretches
from ottla.model import Offset

PREFIX: Final = "mirror-offsets."
Role = Literal["mirror", "owned"]
FLUSH_TIMEOUT_S: Final = 60.0


class MirrorError(Exception):
    """What a mirror refuses to do, or cannot."""


@dataclass
class Ledger:
    """The control topic's content. `load` reads it, `note` and `settle` write it."""

    remote: Remote
    source: str
    """The source cluster's name."""
    offsets: dict[Place, Offsets] = field(default_factory=dict)
    roles: dict[str, Role] = field(default_factory=dict)
    moved: set[str] = field(default_factory=set)
    cuts: dict[Place, Offset] = field(default_factory=dict)
    """Where the destination's own records begin, after a failover."""
    generation: int = 0
    pending: dict[Place, list[list[Stretch]]] = field(default_factory=dict)
    """What tasks have copied and the driver has not settled yet, by batch."""

    @property
    def topic(self) -> str:
        return PREFIX + self.source

    def ensure(self) -> None:
        """Create the topic where it is missing."""
        if self.topic not in self.remote.topics():
            with contextlib.suppress(KafkaException):  # another made it first; if not, writing says it
                self.remote.create(self.topic, 1, {"cleanup.policy": "compact"})

    def load(self) -> None:
        """Read all of it; one that is missing is empty. Raises KafkaException, KafkaError, OSError."""
        self.offsets, self.roles, self.moved, self.pending, self.cuts = {}, {}, set(), {}, {}
        self.generation = 0
        if self.topic not in self.remote.topics():
            return
        newest: dict[str, Any] = {}
        for batch in arrow.read(self.topic, self.remote.bootstrap, columns=["key", "value"]):
            for key, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                newest[key.decode()] = None if value is None else json.loads(value)
        entries = [(json.loads(key), value) for key, value in newest.items() if value is not None]
        runs: dict[Place, list[tuple[Offset, dict[str, Any]]]] = {}
        for (kind, *place), value in entries:
            if kind == "runs":
                runs.setdefault((place[0], place[1]), []).append((place[2], value))
            elif kind == "role":
                self.roles[place[0]] = value
            elif kind == "moved":
                self.moved.add(place[0])
            elif kind == "generation":
                self.generation = value
            elif kind == "cut":
                self.cuts[place[0], place[1]] = value
            else:
                setattr(self.offsets.setdefault((place[0], place[1]), Offsets()), kind, value)
        for at, found in runs.items():
            mapping = self.offsets.setdefault(at, Offsets())
            for _, value in sorted(found, key=lambda each: each[0]):
                if "runs" in value:
                    mapping.extend(Run(*run) for run in value["runs"])
                else:
                    self.pending.setdefault(at, []).append([Stretch(*each) for each in value["copied"]])

    def note(self, entries: Iterable[tuple[list[Any], Any]]) -> None:
        """Write keys and values (None drops one), and wait. Raises KafkaException, MirrorError."""
        self.ensure()
        failed: list[Any] = []
        producer = Producer({
            "bootstrap.servers": self.remote.bootstrap, "enable.idempotence": True, "acks": "all",
            "client.id": "ottla-mirror", "log_level": 0,
        })  # fmt: skip
        for key, value in entries:
            producer.produce(
                self.topic, key=key_of(*key), value=None if value is None else json.dumps(value).encode(), partition=0,
                on_delivery=lambda error, _: failed.append(error) if error is not None else None,
            )  # fmt: skip
        if producer.flush(FLUSH_TIMEOUT_S) or failed:
            raise MirrorError(f"{self.topic} could not be written: {failed[0] if failed else 'no answer'}")

    def next_generation(self) -> list[tuple[list[Any], Any]]:
        """What to note so that copying goes on with another checkpoint, where it is; later `start`s replace it."""
        starts = [(["start", *at], mapping.source_end()) for at, mapping in self.offsets.items()]
        return [(["generation"], self.generation + 1), *starts, *((["moved", group], None) for group in self.moved)]

    def settle(self, names: Mapping[str, str]) -> None:
        """Find where the destination has what the tasks have copied since; `names` are topics there, by the source's.

        No batch may be under way. Raises MirrorError where the destination has other records than were copied.
        """
        self.load()
        places = {at: (names.get(at[0], at[0]), at[1]) for at in self.pending}
        ends = self.remote.ends(places.values(), committed=False)
        noted: list[tuple[list[Any], Any]] = []
        for at, batches in self.pending.items():
            mapping = self.offsets[at]
            copied = [stretch for batch in batches for stretch in batch]
            count = sum(stretch.records for stretch in copied)
            begin, end = mapping.end(), ends[places[at]]
            if len(batches) == 1 and end - begin == count + 1:
                there = [Stretch(begin, count)]  # the records and the marker behind them leave no room for a gap
            else:
                there = self._visible(places[at], begin, end)
            try:
                runs = paired(copied, there)
            except ValueError as error:
                raise MirrorError(f"{places[at][0]}-{places[at][1]} from {begin} on: {error}") from None
            # All under the first key, and nothing under the others.
            first, *others = (batch[0].start for batch in batches)
            noted.append((["runs", *at, first], {"runs": runs}))
            noted += [(["runs", *at, start], {"runs": []}) for start in others]
            mapping.extend(runs)
        self.pending = {}
        if noted:
            self.note(noted)

    def _visible(self, place: Place, begin: Offset, end: Offset) -> list[Stretch]:
        """Offsets of committed records. Values are not looked at."""
        topic, partition = place
        if begin >= end:
            return []
        reader = arrow.read(
            topic, self.remote.bootstrap, partitions=[partition], start={partition: begin}, end={partition: end},
            columns=["offset"],
        )  # fmt: skip
        return stretches(offset for batch in reader for offset in batch.column(0).to_pylist() if offset >= begin)


def key_of(*parts: str | int) -> bytes:
    return json.dumps(list(parts)).encode()


def copied_rows(copied: Mapping[Place, list[Stretch]]) -> list[tuple[bytes, bytes]]:
    """Keys and values that a task writes beside the records that it copied."""
    return [
        (key_of("runs", topic, partition, found[0].start), json.dumps({"copied": found}).encode())
        for (topic, partition), found in copied.items()
    ]
