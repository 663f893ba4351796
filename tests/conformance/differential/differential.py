"""Asks Ottla and Apache Kafka the same and lists how their answers differ, field by field.

A request is a plain mapping; an `Of(name)` in it stands for what each broker itself called that thing (a topic id, a
fetch session, a member id). In answers such ids, ports and times are replaced by words before they are compared.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from ottla.errors import ErrorCode
from ottla.model import ZERO_UUID
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch, iterate_batches, iterate_records
from tests.conformance.exemptions import MISSING, Difference, is_exempt
from tests.conformance.pair import Wire

TIME = 1_700_000_000_000


class Of(NamedTuple):
    """A broker's id of the thing with this name."""

    name: str


PRESENT_OR_NOT = {
    "host", "port", "cluster_id", "log_dir", "total_bytes", "usable_bytes", "finalized_features_epoch", "documentation",
    "log_append_time", "session_id", "last_fetch_timestamp", "last_caught_up_timestamp", "last_timestamp",
    "log_end_offset",
}  # fmt: skip
IDENTITY = ("name", "topic", "topic_id", "topic_name", "group_id", "resource_name", "key", "api_key", "partition_index",
            "partition", "index", "node_id", "broker_id", "batch_index", "member_id",
            "transactional_id", "producer_id", "entity", "entity_type", "user", "mechanism")  # fmt: skip
_CLUSTER = re.compile(r'the cluster id "[^"]+"')
_MEMBER = re.compile(r"[\w.-]*-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class Side:
    """One of the two brokers, and what it calls things."""

    def __init__(self, bootstrap: str) -> None:
        self.wire = Wire(bootstrap)
        self.known: dict[str, Any] = {}

    def ask(self, key: ApiKey, version: int, values: Mapping[str, Any]) -> Any:
        """The answer as it came; None for a connection closed instead."""
        try:
            return self.wire.ask(key, version, self.resolve(values))
        except TimeoutError:
            self.wire = Wire(":".join(map(str, self.wire.address)))
            return "no answer"
        except ConnectionError:
            self.wire = Wire(":".join(map(str, self.wire.address)))
            return None

    def send(self, key: ApiKey, version: int, values: Mapping[str, Any]) -> None:
        """A request that nothing answers."""
        self.wire.send(key, version, self.resolve(values))

    def resolve(self, value: Any) -> Any:
        if isinstance(value, Of):
            return self.known[value.name]
        if isinstance(value, Mapping):
            return {name: self.resolve(each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.resolve(each) for each in value]
        return value

    def view(self, value: Any, name: str = "") -> Any:
        """An answer in words that are the same for every broker."""
        if name in PRESENT_OR_NOT:
            return "present" if value not in (None, "", -1, 0) else value
        if isinstance(value, Mapping):
            return {key: self.view(each, key) for key, each in value.items()}
        if name == "producer_id":  # who of the two has given out more of them does not matter
            return self._word(value) or value
        if isinstance(value, UUID):
            return "no id" if value == ZERO_UUID else self._word(value) or f"id {value.int if value.int < 999 else ''}"
        if isinstance(value, ErrorCode):
            return value.name
        if isinstance(value, bytes) and name == "records":
            return [self.view_of_batch(value, position, header) for position, header in iterate_batches(value)]
        if isinstance(value, str):
            value = _CLUSTER.sub("the cluster id", value)
            return _MEMBER.sub(lambda found: self._word(found[0]) or "a member", value)
        if isinstance(value, Sequence) and not isinstance(value, bytes):
            items = [self.view(each) for each in value]
            if name == "responses":
                items = _merged(items)
            if items and isinstance(items[0], dict) and "header" not in items[0]:
                items.sort(key=lambda each: [str(each.get(part)) for part in IDENTITY])
            return items
        return value

    def view_of_batch(self, data: bytes, position: int, header: Any) -> dict[str, Any]:
        """The parts of a batch that must be equal: compressed bytes need not be, and the time of an append cannot
        be.
        """
        appended = header.timestamp_type == 1
        names = (
            "base_offset",
            "leader_epoch",
            "magic",
            "attributes",
            "last_offset_delta",
            "producer_id",
            "producer_epoch",
            "base_sequence",
            "count",
        )
        fields = {each: getattr(header, each) for each in names}
        if not appended:
            fields |= {"base_timestamp": header.base_timestamp, "max_timestamp": header.max_timestamp}
        records = [
            (each.offset, "now" if appended else each.timestamp, each.key, each.value, tuple(each.headers))
            for each in iterate_records(data[position : position + header.size])
        ]
        plain = bytes(data[position : position + header.size]) if not header.is_compressed and not appended else b""
        return {"header": fields, "records": records, "bytes": plain}

    def _word(self, value: Any) -> str | None:
        return next((name for name, known in self.known.items() if known == value), None)


def differences(
    mine: Any, theirs: Any, path: str = "", field: str = "", rows: tuple[tuple[Any, Any], ...] = ()
) -> list[Difference]:
    """Where two views of an answer differ."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        names = [*mine, *(name for name in theirs if name not in mine)]
        inside = (*rows, (mine, theirs))
        return [
            each
            for name in names
            for each in differences(
                mine.get(name, MISSING),
                theirs.get(name, MISSING),
                f"{path}.{name}",
                f"{field}.{name}".strip("."),
                inside,
            )
        ]
    listed = isinstance(mine, list) and isinstance(theirs, list)
    if listed and any(isinstance(each, dict) for each in mine + theirs) and mine != theirs:
        left, right = _by_name(mine), _by_name(theirs)
        return [
            each
            for name in dict.fromkeys([*left, *right])
            for each in differences(left.get(name, MISSING), right.get(name, MISSING), f"{path}[{name}]", field, rows)
        ]
    return [] if mine == theirs else [Difference(path, field, mine, theirs, rows)]


def _by_name(rows: list[Any]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for row in rows:
        name = " ".join(str(row[each]) for each in IDENTITY if each in row) if isinstance(row, dict) else str(row)
        while name in named:
            name += "'"
        named[name] = row
    return named


@dataclass
class Comparison:
    """Both brokers, what was asked of them, and where they disagreed."""

    mine: Side
    theirs: Side
    prefix: str
    cases: str = ""
    """The owner of these cases, for the exemptions that they need."""
    asked: int = 0
    found: list[str] = field(default_factory=list)

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.mine, self.theirs

    def ask(self, key: ApiKey, version: int, values: Mapping[str, Any], *, ours: bool = False) -> tuple[Any, Any]:
        """Ask both, note differences, and return the answers as they came. `ours`: leave out what others created.

        A request that this version cannot express is not asked.
        """
        for side in self.sides:
            if not _expressible(key, version, side.resolve(values)):
                return {}, {}
        answers = tuple(side.ask(key, version, values) for side in self.sides)
        self.asked += 1
        seen = [self._ours(answer) if ours else answer for answer in answers]
        if "no answer" in answers:
            self.found.append(
                f"{key.name} v{version} {self.short(values)}\n    no answer in time: {self.short(answers)}"
            )
        found = differences(self.mine.view(seen[0]), self.theirs.view(seen[1]))
        head = f"{key.name} v{version} {self.short(values)}"
        request = self.mine.resolve(values)
        texts = [self.short(each) for each in found if not is_exempt(self.cases, key, request, each)]
        if texts:
            self.found.append("\n    ".join([head, *texts[:4]]))
        return answers  # type: ignore[return-value]

    def _ours(self, answer: Any) -> Any:
        """An answer without the rows about what other tests created, which a shared broker has too."""
        if isinstance(answer, dict):
            return {name: self._ours(each) for name, each in answer.items()}
        if isinstance(answer, list):
            return [self._ours(each) for each in answer if not self._foreign(each)]
        return answer

    def _foreign(self, row: Any) -> bool:
        name = isinstance(row, dict) and next((row[each] for each in IDENTITY if isinstance(row.get(each), str)), "")
        return (bool(name) or (isinstance(row, dict) and row.get("group_id") == "")) and not str(name).startswith(
            self.prefix
        )

    def short(self, value: Any) -> str:
        text = str(value).replace(self.prefix, "")
        text = re.sub(r"ErrorCode\.(\w+)", r"\1", text)
        return re.sub(r"(x{20})x+", r"\1...", text)[:900]

    def check(self) -> None:
        """Raises AssertionError that lists the differences found since the last check."""
        found, self.found = self.found, []
        assert not found, "\n" + "\n".join(dict.fromkeys(found))

    def set_up(self, name: str, partitions: int = 1, **configs: str) -> str:
        """A topic on both, whose ids are known as `Of(name)` afterwards. Returns its whole name."""
        full = self.prefix + name
        # For good: the tests' records are of 2023, and Kafka looks for old ones half a minute after its start.
        entries = [
            {"name": key.replace("_", "."), "value": each} for key, each in {"retention_ms": "-1", **configs}.items()
        ]
        topic = {"name": full, "num_partitions": partitions, "replication_factor": 1, "configs": entries}
        for side in self.sides:
            (row,) = side.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout": 9000})["topics"]
            assert row["error_code"] == ErrorCode.none, row
            side.known[name] = row["topic_id"]
        self.wait_for(full, partitions)
        return full

    def wait_for(self, topic: str, partitions: int = 1) -> None:
        """Until both lead all partitions: Kafka's broker follows its controller a moment later."""
        asked = [{"partition_index": each, "timestamp": -1} for each in range(partitions)]
        values = {"replica_id": -1, "topics": [{"name": topic, "partitions": asked}]}
        for side in self.sides:
            for _ in range(6000):
                (row,) = side.ask(ApiKey.LIST_OFFSETS, 5, values)["topics"]
                if not any(each["error_code"] for each in row["partitions"]):
                    break
                time.sleep(0.01)
            else:
                raise AssertionError(f"no leader of {topic}")

    def produce(
        self, name: str, records: bytes | None, *, version: int = 12, partition: int = 0, acks: int = -1
    ) -> tuple[Any, Any]:
        data = [{"index": partition, "records": records}]
        topic = {"name": self.prefix + name, "topic_id": Of(name), "partition_data": data}
        values = {"transactional_id": None, "acks": acks, "timeout": 9000, "topic_data": [topic]}
        return self.ask(ApiKey.PRODUCE, version, values)

    def fetch(self, name: str, offset: int, *, version: int = 17, partition: int = 0, **more: Any) -> tuple[Any, Any]:
        asked = [{"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]
        topic = {"topic": self.prefix + name, "topic_id": Of(name), "partitions": asked}
        return self.ask(ApiKey.FETCH, version, {**FETCH, "topics": [topic], **more})

    def list_offsets(self, name: str, *timestamps: int, version: int = 11, **more: Any) -> None:
        for timestamp in timestamps:
            asked = [{"partition_index": 0, "timestamp": timestamp}]
            topics = [{"name": self.prefix + name, "partitions": asked}]
            self.ask(ApiKey.LIST_OFFSETS, version, {"replica_id": -1, "topics": topics, **more})


FETCH = {"max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 20, "session_id": 0, "session_epoch": -1}


def _merged(rows: list[Any]) -> list[Any]:
    """Rows of a Fetch answer with one per topic: their order, and so how often a topic begins, has no meaning."""
    topics: dict[str, Any] = {}
    for row in rows:
        name = str(row.get("topic") or row.get("topic_name") or row.get("topic_id"))
        if name in topics and "partitions" in row:
            topics[name]["partitions"] = sorted(
                topics[name]["partitions"] + row["partitions"], key=lambda each: str(each["partition_index"])
            )
        else:
            topics[name if name not in topics else f"{name} {len(topics)}"] = row
    return list(topics.values())


def _expressible(key: ApiKey, version: int, values: Mapping[str, Any]) -> bool:
    try:
        messages.encode_request(key, version, 1, "differential", values)
    except Exception:
        return False
    return True


def batch(count: int = 3, *, times: Iterable[int] | None = None, size: int = 1, **options: Any) -> bytes:
    """A batch of records with keys, values and headers."""
    stamps = list(times) if times is not None else [TIME + each for each in range(count)]
    records = [
        SimpleRecord(stamp, b"key %d" % n, b"v" * size, (("h", b"%d" % n), ("none", None)))
        for n, stamp in enumerate(stamps)
    ]
    return bytes(build_batch(records, **options))


Cases = Callable[["Comparison", int], Iterable[Mapping[str, Any]]]
