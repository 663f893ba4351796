"""The control topic of a mirror: `mirror-offsets.SOURCE` at the destination, compacted, of one partition.

Keys are JSON lists. `["runs", topic, partition, start]` is written by whoever copies, in the transaction of the records
that it is about: which offsets they had, and have. The mirror makes one block of many of them later. Offsets are
`["through"|"origin"|"start"|"cut", topic, partition]`. `["role", topic]` is `mirror` or `owned`, of a topic by its name
at the destination; elsewhere topics are named as at the source. `["id", topic]` is the source's topic id. `["moved",
group]` says that a failover has moved a group, `["shift"]` which generation of copiers may write, and `["made", name]`
that the mirror has made an ACL, a quota, a setting or a user (`carrying.key_of`). `["credential", user, mechanism]` is
the fingerprint of what was carried of a user, never a key.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa

from ottla import arrow
from ottla.client.cluster import EARLIEST, LATEST, Cluster
from ottla.client.config import ClientConfig, parse_addresses
from ottla.client.producer import Producer
from ottla.client.security import PLAINTEXT, Security
from ottla.client.transactions import init_producer
from ottla.errors import ErrorCode, KafkaError
from ottla.mirror.credentials import Fingerprint, User
from ottla.mirror.mapping import Block, Place, Run
from ottla.mirror.mapping import Mapping as Offsets
from ottla.model import Offset, TopicPartition

PREFIX: Final = "mirror-offsets."
Role = Literal["mirror", "owned"]
CONFIGS: Final = {"cleanup.policy": "compact", "segment.bytes": str(16 * 1024 * 1024)}
"""Small segments: what was replaced is cleaned away soon."""
BLOCK_RUNS: Final = 256
"""Runs that become a block, one record, at least."""
TRANSACTION_TIMEOUT_MS: Final = 60_000
_STABLE_S: Final = 120.0
_POLL_S: Final = 0.02


class MirrorError(Exception):
    """A mirror refuses or cannot do something."""


class Generation(NamedTuple):
    """The copiers from a given moment on: copying that began before it ends."""

    run: str = ""
    number: int = 0
    slots: int = 0
    """How many copy side by side, at most so far."""


class ControlTopic:
    """The control topic's content. `load` reads what is new in it, `note` writes. Of one thread."""

    def __init__(self, bootstrap: str, source: str, security: Security = PLAINTEXT) -> None:
        """`source` is the source cluster's name. Connects when first used."""
        self.source = source
        self.topic = PREFIX + source
        self.client = Cluster(ClientConfig(parse_addresses(bootstrap), "ottla-mirror", security=security))
        self._clear()

    def _clear(self) -> None:
        self.offsets: dict[Place, Offsets] = {}
        self.roles: dict[str, Role] = {}
        self.moved: set[str] = set()
        self.cuts: dict[Place, Offset] = {}
        """Where the destination's own records begin, after a failover."""
        self.ids: dict[str, str] = {}
        """Ids of topics at the source: a recreated topic has another id."""
        self.made: set[str] = set()
        """Which ACLs, quotas, settings of brokers and users the mirror has made."""
        self.credentials: dict[User, Fingerprint] = {}
        """Fingerprints of the credentials that the destination has got."""
        self.generation = Generation()
        self.records = 0
        """How many are in the runs that were loaded."""
        self._position = 0
        self._keys: dict[Place, list[Offset]] = {}
        """Where records with runs begin that are in no block yet, ascending."""

    def close(self) -> None:
        self.client.close()

    def ensure(self) -> None:
        """Create the topic where it is missing, on up to three nodes. Raises KafkaError, OSError."""
        if not self.client.partitions([self.topic]):
            replicas = min(3, max(1, len(self.client.node_ids)))
            configs = {**CONFIGS, "min.insync.replicas": str(max(1, replicas - 1))}
            self.client.create_topic(self.topic, 1, configs, replicas=replicas)

    def load(self, *, whole: bool = False) -> None:
        """Read what is new; a topic that is missing is empty. With `whole` first wait until no transaction holds
        anything back. Raises KafkaError, OSError."""
        at = TopicPartition(self.topic, 0)
        if at not in self.client.partitions([self.topic]):
            self._clear()
            return
        first = self.client.offsets({at: EARLIEST})[at].offset
        end = self._end(at, whole=whole)
        if not first <= self._position <= end:
            self._clear()
        newest: dict[str, Any] = {}
        fields = arrow.schema(["key", "value"])
        for batch in arrow.batches(self.client, self.topic, 0, self._position, end, fields, read_committed=True):
            for key, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                newest.pop(text := key.decode(), None)
                newest[text] = None if value is None else json.loads(value)
        self._position = end
        runs = []
        for text, value in newest.items():
            kind, *place = json.loads(text)
            if kind == "runs":
                runs.append(((place[0], place[1]), place[2], value))
            else:
                self._apply(kind, place, value)
        for where, start, value in sorted(runs, key=lambda each: each[:2]):
            if value is not None:
                self._apply_runs(where, start, value)

    def _end(self, at: TopicPartition, *, whole: bool) -> Offset:
        end = self.client.offsets({at: LATEST}, read_committed=True)[at].offset
        if whole:
            wanted = self.client.offsets({at: LATEST})[at].offset
            deadline = time.monotonic() + _STABLE_S
            while end < wanted:
                if time.monotonic() > deadline:
                    raise KafkaError(ErrorCode.request_timed_out, f"{self.topic}: a transaction is still open at {end}")
                time.sleep(_POLL_S)
                end = self.client.offsets({at: LATEST}, read_committed=True)[at].offset
        return end

    def _apply(self, kind: str, place: list[Any], value: Any) -> None:
        if kind == "role":
            self._set(self.roles, place[0], value)
        elif kind == "id":
            self._set(self.ids, place[0], value)
        elif kind == "moved":
            (self.moved.add if value else self.moved.discard)(place[0])
        elif kind == "made":
            (self.made.add if value else self.made.discard)(place[0])
        elif kind == "credential":
            self.keep_credential(User(*place), None if value is None else Fingerprint(*value))
        elif kind == "shift":
            self.generation = Generation(*value)
        elif kind == "cut":
            self._set(self.cuts, (place[0], place[1]), value)
        elif value is not None:
            setattr(self.offsets.setdefault((place[0], place[1]), Offsets()), kind, value)

    def keep_credential(self, user: User, value: Fingerprint | None) -> None:
        """The fingerprint of what the destination has got of a user; None: nothing any more."""
        self._set(self.credentials, user, value)

    @staticmethod
    def _set(where: dict[Any, Any], key: Any, value: Any) -> None:
        if value is None:
            where.pop(key, None)
        else:
            where[key] = value

    def _apply_runs(self, at: Place, start: Offset, value: Mapping[str, Any]) -> None:
        """Apply runs that have become part of a block."""
        mapping = self.offsets.setdefault(at, Offsets())
        mapping.through = max(mapping.through, value["through"])
        runs = mapping.runs
        if start < runs.source_end():
            return
        if "block" in value:
            runs.add(block := Block(*value["block"]))
            self.records += block.records
        else:
            new = [Run(*run) for run in value["runs"]]
            runs.extend(new)
            self._keys.setdefault(at, []).append(start)
            self.records += sum(run.records for run in new)

    def note(self, entries: Iterable[tuple[list[Any], Any]]) -> None:
        """Write keys and values (None drops one), and wait. Raises KafkaError, OSError."""
        self.ensure()
        producer = Producer(self.client)
        producer.start()
        try:
            producer.send(self.topic, rows(entries))
            producer.flush()
        finally:
            producer.close()

    def drop(self, topic: str) -> None:
        """Forget the copy of a topic: it will be copied from its beginning. Raises KafkaError, OSError."""
        entries: list[tuple[list[Any], Any]] = [(["id", topic], None)]
        for at in [at for at in self.offsets if at[0] == topic]:
            runs = self.offsets.pop(at).runs
            starts = [block.source for block in runs.blocks] + self._keys.pop(at, [])
            entries += [(["runs", *at, start], None) for start in starts]
            entries += [([kind, *at], None) for kind in ("origin", "start", "through", "cut")]
        self.note(entries)
        self.ids.pop(topic, None)

    # -- Who copies

    def take_over(self, run: str, slots: int) -> Generation:
        """From now on only `run` copies: whatever copied before is fenced, and what it has open is aborted. Raises
        KafkaError, OSError."""
        self.load()
        generation = Generation(run, self.generation.number + 1, max(slots, self.generation.slots))
        self.note([(["shift"], generation)])
        self.fence(generation.slots)
        self.load()
        return generation

    def fence(self, slots: int) -> None:
        """Fence the current copiers: their next transaction fails."""
        for slot in range(slots):
            init_producer(self.client, transactional_id(self.source, slot), TRANSACTION_TIMEOUT_MS)

    # -- Size

    def tidy(self, log_starts: Mapping[Place, Offset]) -> None:
        """Make blocks of many runs, and drop those of records that the destination has no more. Raises KafkaError,
        OSError."""
        entries: list[tuple[list[Any], Any]] = []
        for at, mapping in self.offsets.items():
            runs = mapping.runs
            if len(runs.tail) >= BLOCK_RUNS:
                block, keys = runs.pack(), self._keys.pop(at)
                entries.append((["runs", *at, block.source], {"block": block, "through": mapping.through}))
                entries += [(["runs", *at, start], None) for start in keys if start != block.source]
            while len(runs.blocks) > 1 and runs.blocks[0].destination_end <= log_starts.get(at, 0):
                entries.append((["runs", *at, runs.blocks.pop(0).source], None))
        if entries:
            self.note(entries)


def transactional_id(source: str, slot: int) -> str:
    return f"ottla-mirror.{source}.{slot}"


def key_of(*parts: str | int) -> bytes:
    return json.dumps(list(parts)).encode()


def rows(entries: Iterable[tuple[list[Any], Any]]) -> pa.RecordBatch:
    """Records of a control topic."""
    made = [(key_of(*key), None if value is None else json.dumps(value).encode()) for key, value in entries]
    columns = [pa.array([key for key, _ in made], pa.binary()), pa.array([value for _, value in made], pa.binary())]
    return pa.RecordBatch.from_arrays([*columns, pa.array([0] * len(made), pa.int32())], ["key", "value", "partition"])
