"""Ottla's side of the walk beside Kafka's message classes: a message by Kafka's names, decoded and encoded by Ottla."""

from __future__ import annotations

import re
import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.protocol import messages, schemas
from ottla.protocol.internal import codec, group_records
from ottla.protocol.internal.group_records import ModernKey
from ottla.protocol.layout import Malformed
from ottla.protocol.reader import read_struct
from ottla.protocol.writer import write_struct
from tests.conformance.codec.codec_values import Dice, Tree, draw, written
from tests.conformance.codec.message_definitions import Definition, Field, Struct

OTHER_NAMES: Final = {"LegacyOffsetCommitKey": "OffsetCommitKey", "LegacyOffsetCommitValue": "OffsetCommitValue"}
"""Ottla's classes for Kafka's."""
NOT_SHARED: Final = {
    "RequestHeader", "ResponseHeader",  # by hand
    "ControlRecordTypeSchema", "EndTxnMarker", "ProducerSnapshot",  # a few numbers each, by hand
    "AbortedTxn",  # by hand, below
    "QuorumStateData",  # is written as JSON
    "RemoteLogSegmentMetadataRecord", "RemoteLogSegmentMetadataSnapshotRecord",  # of tiered storage
    "RemoteLogSegmentMetadataUpdateRecord", "RemotePartitionDeleteMetadataRecord",
}  # fmt: skip
"""Definitions of Kafka that Ottla's codec has not."""
GROUP_KEYS: Final = range(2, 24)
"""Types of keys of `__consumer_offsets` that name a group."""


class Unknown(LookupError):
    """Ottla has no such message or version."""


class Name(NamedTuple):
    """Ottla's name of a field."""

    ours: str
    inner: Names


Names = dict[str, Name]


@dataclass
class Subject(ABC):
    definition: Definition
    version: int
    names: Names = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.definition.name

    fills_its_frame = False
    """Whether Kafka refuses bytes behind it."""

    def learn(self, dice: Dice) -> None:
        """Find Ottla's names of the fields in a message that has them all."""
        tree = draw(self.definition.struct, self.version, dice)
        self.names = learned(
            self.definition.struct, self.version, self.read(written(self.definition, self.version, tree)[0])
        )

    def decode(self, body: bytes) -> Tree:
        """The values by Kafka's names. Raises MalformedRequest or MalformedRecord."""
        return to_kafka(self.definition.struct, self.version, self.names, self.read(body))

    def encode(self, tree: Tree) -> bytes:
        return self.write(to_ottla(self.names, tree))

    @abstractmethod
    def read(self, body: bytes) -> Tree:
        """The values by Ottla's names."""

    @abstractmethod
    def write(self, values: Tree) -> bytes: ...


class Request(Subject):
    def read(self, body: bytes) -> Tree:
        frame = bytearray(b"##" + body)  # what a connection receives into can be written to
        found: Tree = messages.plain(messages.decode_request(self.definition.api_key or 0, self.version, frame, 2))
        return found

    def write(self, values: Tree) -> bytes:
        key = self.definition.api_key or 0
        header = messages.request_header(key, self.version, 1, "client")
        return messages.encode_request(key, self.version, 1, "client", values)[len(header) :]


class Response(Subject):
    def read(self, body: bytes) -> Tree:
        key = self.definition.api_key or 0
        frame = messages.response_header(key, self.version, 1) + body
        found: Tree = messages.plain(messages.decode_response(key, self.version, frame)[1])
        return found

    def write(self, values: Tree) -> bytes:
        key = self.definition.api_key or 0
        return messages.encode_response(key, self.version, 1, values)[
            len(messages.response_header(key, self.version, 1)) :
        ]


class Principal(Subject):
    """The principal in an Envelope: the layout that `protocol/principal.py` reads and writes by."""

    def read(self, body: bytes) -> Tree:
        layout = schemas.layout(self.name, self.version)
        try:
            found: Tree = messages.plain(read_struct(layout, body, 0))
        except Malformed as error:
            raise messages.malformed(layout, self.version, error) from error
        return found

    def write(self, values: Tree) -> bytes:
        return write_struct(schemas.layout(self.name, self.version), values)


class Record(Subject):
    fills_its_frame = True

    def read(self, body: bytes) -> Tree:
        cls: Any = record_class(self.name)
        found: Tree = _plain(codec.decode(cls, self.version, body))
        return found

    def write(self, values: Tree) -> bytes:
        cls: Any = record_class(self.name)
        return codec.encode(made(cls, values), self.version)


class GroupKey(Subject):
    """A key of `__consumer_offsets`, which is a group's name and, in some, one name more."""

    fills_its_frame = True

    def learn(self, dice: Dice) -> None:
        ours = ("group", "member")
        self.names = {each.name: Name(ours[n], {}) for n, each in enumerate(self.definition.struct.at(self.version))}

    def read(self, body: bytes) -> Tree:
        decoded = group_records.decode_record(struct.pack(">h", self.definition.api_key or 0) + body, None)
        assert decoded is not None
        key: Any = decoded.key
        assert getattr(key, "type", 2) == self.definition.api_key
        return {"group": key.group, "member": getattr(key, "member", None)}

    def write(self, values: Tree) -> bytes:
        number = self.definition.api_key or 0
        if number == 2:
            return group_records.encode_key(group_records.GroupMetadataKey(values["group"]))[2:]
        key = ModernKey(number, values["group"], values.get("member"))
        return group_records.encode_key(key)[2:]


def record_class(name: str) -> type | None:
    if name in NOT_SHARED:
        return None
    try:
        return schemas.record_class(OTHER_NAMES.get(name, name))
    except AttributeError:
        return None


def subject_of(definition: Definition, version: int) -> Subject:
    """Ottla's side of a message. Raises Unknown."""
    if definition.type in ("request", "response"):
        find = messages.request_layout if definition.type == "request" else messages.response_layout
        try:
            find(definition.api_key or 0, version)
        except (KeyError, ValueError) as error:
            raise Unknown(f"{definition.name} v{version}") from error
        return (Request if definition.type == "request" else Response)(definition, version)
    if definition.name.endswith("Key") and definition.api_key in GROUP_KEYS and "group" in definition.java_class:
        return GroupKey(definition, version)
    if definition.name == "DefaultPrincipalData":
        return Principal(definition, version)
    if record_class(definition.name) is None:
        raise Unknown(f"{definition.name} v{version}")
    return Record(definition, version)


def _plain(record: Any) -> Any:
    """A record as plain dictionaries and lists."""
    if isinstance(record, schemas.Message):
        return {each.name: _plain(getattr(record, each.name)) for each in record._schema}
    return [_plain(each) for each in record] if isinstance(record, tuple) else record


def learned(each: Struct, version: int, values: Tree) -> Names:
    """Ottla's names of the fields of a struct, of which `values` has one of each."""
    names: Names = {}
    for n, one in enumerate(each.at(version)):
        ours = next((name for name in candidates(one) if name in values), "")
        if not ours and len(values) == len(each.at(version)):
            ours = [*values][n]
        assert ours, f"no field for {one.name} in {[*values]}"
        value = values[ours]
        inner = value[0] if one.is_array and value else value
        names[one.name] = Name(ours, learned(one.struct, version, inner) if one.struct is not None else {})
    return names


def candidates(field: Field) -> list[str]:
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", field.name).lower()
    return [snake, snake.removesuffix("_ms"), f"{snake}_"]


def to_ottla(names: Names, tree: Tree) -> Tree:
    return {names[name].ours: _to_ottla_value(names[name].inner, value) for name, value in tree.items()}


def _to_ottla_value(names: Names, value: Any) -> Any:
    if isinstance(value, list):
        return [_to_ottla_value(names, each) for each in value]
    return to_ottla(names, value) if isinstance(value, dict) else value


def to_kafka(each: Struct, version: int, names: Names, values: Tree) -> Tree:
    return {
        field.name: _to_kafka_value(field, version, names[field.name].inner, values[names[field.name].ours])
        for field in each.at(version)
    }


def _to_kafka_value(field: Field, version: int, names: Names, value: Any) -> Any:
    if field.is_array:
        return None if value is None else [_to_kafka_one(field, version, names, each) for each in value]
    return _to_kafka_one(field, version, names, value)


def _to_kafka_one(field: Field, version: int, names: Names, value: Any) -> Any:
    if value is None:
        return UUID(int=0) if field.type == "uuid" else -1 if field.type == "int64" else None
    if field.struct is not None:
        return to_kafka(field.struct, version, names, value)
    if field.type in ("bytes", "records"):
        return bytes(value)
    return int(value) if field.type.startswith(("int", "uint")) else value


def made(cls: Any, values: Tree) -> Any:
    """A record of Ottla's class from values by its names."""
    return cls(**{name: _made_value(cls, name, value) for name, value in values.items()})


def _made_value(cls: Any, name: str, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_made_value(cls, name, each) for each in value)
    return made(schemas.struct_class(cls, name), value) if isinstance(value, dict) else value
