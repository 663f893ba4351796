"""Changes between two Protobuf files, and which of them keep what was written readable: Confluent's rules.

What is written names fields by their numbers only, so names may change; types may change within a kind that is written
alike; a field may leave a oneof, but not come to exclude another one that was independent of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from ottla.registry.schema_types.parsed import check_stack
from ottla.registry.schema_types.protobuf_text import scalar_name

COMPATIBLE: Final = frozenset({
    "MESSAGE_ADDED", "MESSAGE_MOVED", "ENUM_ADDED", "ENUM_REMOVED", "ENUM_CONST_ADDED", "ENUM_CONST_CHANGED",
    "ENUM_CONST_REMOVED", "FIELD_ADDED", "FIELD_REMOVED", "FIELD_NAME_CHANGED", "FIELD_STRING_OR_BYTES_LABEL_CHANGED",
    "ONEOF_ADDED", "ONEOF_REMOVED", "ONEOF_FIELD_ADDED", "ONEOF_FIELD_MOVED_TO_TOP_LEVEL",
})  # fmt: skip
_DESCRIPTIONS: Final = {
    "PACKAGE_CHANGED": "The package at '{path}' in the %s schema does not match the package in the %s schema",
    "MESSAGE_REMOVED": "The %s schema is missing a MESSAGE type at path '{path}' in the %s schema",
    "FIELD_KIND_CHANGED": "The type of a field at path '{path}' in the %s schema does not match the %s schema",
    "FIELD_SCALAR_KIND_CHANGED": "The kind of a SCALAR field at path '{path}' in the %s schema does not match its kind "
    "in the %s schema",
    "FIELD_NAMED_TYPE_CHANGED": "The type of a MESSAGE field at path '{path}' in the %s schema does not match its type "
    "in the %s schema",
    "FIELD_NUMERIC_LABEL_CHANGED": "The label for a NUMERIC field at path '{path}' in the %s schema does not match its "
    "label in the %s schema",
    "REQUIRED_FIELD_ADDED": "A required field  at path '{path}' in the %s schema is missing in the %s schema",
    "REQUIRED_FIELD_REMOVED": "The %s schema is missing a required field at path: '{path}' in the %s schema",
    "ONEOF_FIELD_REMOVED": "The %s schema is missing a oneof field at path '{path}' in the %s schema",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": "Multiple fields in the oneof at path '{path}' in the %s schema are outside a "
    "oneof in the %s schema",
    "FIELD_MOVED_TO_EXISTING_ONEOF": "A field in the oneof at path '{path}' in the %s schema is outside an existing "
    "oneof in the %s schema",
}
_KINDS: Final = {
    **dict.fromkeys(("int32", "int64", "uint32", "uint64", "bool"), "number"),
    **dict.fromkeys(("sint32", "sint64"), "signed number"),
    **dict.fromkeys(("fixed32", "sfixed32"), "fixed32"),
    **dict.fromkeys(("fixed64", "sfixed64"), "fixed64"),
    **dict.fromkeys(("string", "bytes"), "text"),
    "float": "float",
    "double": "double",
}
"""Scalars that are written alike (protobuf.dev, Updating A Message Type). An enum is a number."""


@dataclass(frozen=True)
class Change:
    """One change: its kind, and the path of the place."""

    kind: str
    path: str

    def __str__(self) -> str:
        described = _DESCRIPTIONS.get(self.kind, "").replace("{path}", self.path)
        return f'{{errorType:"{self.kind}", description:"{described}"}}'


@dataclass(frozen=True)
class _Type:
    """A message or an enum, and where it is."""

    definition: DescriptorProto | EnumDescriptorProto
    package: str
    local_name: str
    """Within the package."""
    is_own: bool
    """Whether it belongs to the file itself, not to an import."""


Types = Mapping[str, _Type]
Path = tuple[str, ...]


def compare(
    old: FileDescriptorProto,
    old_others: Iterable[FileDescriptorProto],
    new: FileDescriptorProto,
    new_others: Iterable[FileDescriptorProto],
) -> list[Change]:
    """All changes from one file to another, compatible or not, each once."""
    comparison = _Comparison(_types(old, old_others), _types(new, new_others))
    found: list[Change] = []
    if old.package != new.package:
        found.append(Change("PACKAGE_CHANGED", "#/"))
    found += comparison.types(old.message_type, old.enum_type, new.message_type, new.enum_type, ())
    return list(dict.fromkeys(found))


def _types(file: FileDescriptorProto, others: Iterable[FileDescriptorProto]) -> dict[str, _Type]:
    """Types by their full names, with the leading dot that fields have."""
    found: dict[str, _Type] = {}

    def collect(
        messages: Iterable[DescriptorProto],
        enums: Iterable[EnumDescriptorProto],
        around: str,
        where: FileDescriptorProto,
    ) -> None:
        start = f".{where.package}" if where.package else ""
        for each in enums:
            found[f"{start}.{around}{each.name}"] = _Type(each, where.package, f"{around}{each.name}", where is file)
        for message in messages:
            name = f"{around}{message.name}"
            found[f"{start}.{name}"] = _Type(message, where.package, name, where is file)
            collect(message.nested_type, message.enum_type, f"{name}.", where)

    for each in (*others, file):
        collect(each.message_type, each.enum_type, "", each)
    return found


def _change(kind: str, path: Path) -> Change:
    return Change(kind, "#/" + "/".join(path))


class _Comparison:
    """Two files' types; messages of files that are imported are compared where they are used, each pair once."""

    def __init__(self, old: Types, new: Types) -> None:
        self._old, self._new = old, new
        self._compared: dict[tuple[str, str], list[Change]] = {}

    def types(
        self,
        old_messages: Iterable[DescriptorProto],
        old_enums: Iterable[EnumDescriptorProto],
        new_messages: Iterable[DescriptorProto],
        new_enums: Iterable[EnumDescriptorProto],
        path: Path,
    ) -> Iterator[Change]:
        """Compare the types of a file or within a message."""
        before = {each.name: (index, each) for index, each in enumerate(_without_entries(old_messages))}
        after = {each.name: (index, each) for index, each in enumerate(_without_entries(new_messages))}
        for name in dict.fromkeys([*before, *after]):
            place = (*path, name)
            if name not in after:
                yield _change("MESSAGE_REMOVED", place)
            elif name not in before:
                yield _change("MESSAGE_ADDED", place)
            else:
                yield from self.messages(before[name][1], after[name][1], place)
                if before[name][0] != after[name][0]:
                    yield _change("MESSAGE_MOVED", place)
        enums_before = {each.name: each for each in old_enums}
        enums_after = {each.name: each for each in new_enums}
        for name in dict.fromkeys([*enums_before, *enums_after]):
            place = (*path, name)
            if name not in enums_after:
                yield _change("ENUM_REMOVED", place)
            elif name not in enums_before:
                yield _change("ENUM_ADDED", place)
            else:
                yield from _enums(enums_before[name], enums_after[name], place)

    def messages(self, old: DescriptorProto, new: DescriptorProto, path: Path) -> Iterator[Change]:
        yield from self._fields(old, new, path)
        yield from self.types(old.nested_type, old.enum_type, new.nested_type, new.enum_type, path)

    def _fields(self, old: DescriptorProto, new: DescriptorProto, path: Path) -> Iterator[Change]:
        before = {each.number: each for each in old.field}
        after = {each.number: each for each in new.field}
        was_in, is_in = _oneofs(old), _oneofs(new)
        yield from _moved_together(new, before, was_in, is_in, path)
        old_names = dict.fromkeys(was_in.values())
        new_names = dict.fromkeys(is_in.values())
        for name in sorted({*old_names, *new_names}):
            if name not in new_names:
                yield _change("ONEOF_REMOVED", (*path, name))
            elif name not in old_names:
                yield _change("ONEOF_ADDED", (*path, name))
        kept = {name for number, name in was_in.items() if number in after}
        gone = {name for name in old_names if name not in new_names and name not in kept}
        for number in sorted({*before, *after}):
            if number not in after:
                yield from _removed(before[number], was_in.get(number), gone, path)
            elif number not in before:
                yield _added(after[number], is_in.get(number), path)
            else:
                if number in was_in and number not in is_in:
                    yield _change("ONEOF_FIELD_MOVED_TO_TOP_LEVEL", (*path, str(number)))
                inside = (is_in[number],) if number in is_in else ()
                yield from self._field(before[number], after[number], (*path, *inside, str(number)))

    # One field

    def _field(self, old: FieldDescriptorProto, new: FieldDescriptorProto, path: Path) -> Iterator[Change]:
        if old.name != new.name:
            yield _change("FIELD_NAME_CHANGED", path)
        yield from self._field_types(old, new, path, has_label=True)

    def _field_types(
        self, old: FieldDescriptorProto, new: FieldDescriptorProto, path: Path, *, has_label: bool
    ) -> Iterator[Change]:
        kinds = _kind(old, self._old), _kind(new, self._new)
        if kinds[0] != kinds[1]:
            yield _change("FIELD_KIND_CHANGED", path)
        elif kinds[0] == "map":
            for before, after in zip(_entry(old, self._old).field, _entry(new, self._new).field, strict=True):
                yield from self._field_types(before, after, path, has_label=False)
        elif kinds[0] == "message":
            yield from self._message_types(old.type_name, new.type_name, path)
        else:
            scalars = _scalar_kind(old), _scalar_kind(new)
            if scalars[0] != scalars[1]:
                yield _change("FIELD_SCALAR_KIND_CHANGED", path)
            elif has_label and old.label != new.label:
                is_text = scalars[0] == "text"
                yield _change("FIELD_STRING_OR_BYTES_LABEL_CHANGED" if is_text else "FIELD_NUMERIC_LABEL_CHANGED", path)

    def _message_types(self, old_name: str, new_name: str, path: Path) -> Iterator[Change]:
        old, new = self._old[old_name], self._new[new_name]
        if old.local_name != new.local_name:
            yield _change("FIELD_NAMED_TYPE_CHANGED", path)
            return
        if old.is_own and new.is_own:
            return  # compared where it is defined
        pair = (old_name, new_name)
        if pair not in self._compared:
            self._compared[pair] = []  # a message may contain itself
            check_stack()
            assert isinstance(old.definition, DescriptorProto)
            assert isinstance(new.definition, DescriptorProto)
            place = tuple(old.local_name.split("."))
            self._compared[pair] = list(self.messages(old.definition, new.definition, place))
        changes = self._compared[pair]
        yield from changes
        if any(each.kind not in COMPATIBLE for each in changes):
            yield _change("FIELD_NAMED_TYPE_CHANGED", path)


def _without_entries(messages: Iterable[DescriptorProto]) -> list[DescriptorProto]:
    return [each for each in messages if not each.options.map_entry]


def _oneofs(message: DescriptorProto) -> dict[int, str]:
    """Fields by number, and the name of the oneof that each is in; proto3's `optional` is none."""
    return {
        each.number: message.oneof_decl[each.oneof_index].name
        for each in message.field
        if each.HasField("oneof_index") and not each.proto3_optional
    }


def _moved_together(
    new: DescriptorProto,
    before: Mapping[int, FieldDescriptorProto],
    was_in: Mapping[int, str],
    is_in: Mapping[int, str],
    path: Path,
) -> Iterator[Change]:
    """Fields that are alternatives now and were not before."""
    members: dict[str, list[int]] = {}
    for number, name in is_in.items():
        if number in before:
            members.setdefault(name, []).append(number)
    for oneof in new.oneof_decl:
        numbers = members.get(oneof.name, [])
        origins = {was_in.get(number, number) for number in numbers}
        if len(origins) > 1:
            from_top = sum(number not in was_in for number in numbers)
            kind = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if from_top > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
            yield _change(kind, (*path, oneof.name))


def _removed(field: FieldDescriptorProto, oneof: str | None, gone: set[str], path: Path) -> Iterator[Change]:
    if oneof is None:
        is_required = field.label == FieldDescriptorProto.LABEL_REQUIRED
        yield _change("REQUIRED_FIELD_REMOVED" if is_required else "FIELD_REMOVED", (*path, str(field.number)))
    elif oneof not in gone:
        yield _change("ONEOF_FIELD_REMOVED", (*path, oneof, str(field.number)))


def _added(field: FieldDescriptorProto, oneof: str | None, path: Path) -> Change:
    if oneof is not None:
        return _change("ONEOF_FIELD_ADDED", (*path, oneof, str(field.number)))
    is_required = field.label == FieldDescriptorProto.LABEL_REQUIRED
    return _change("REQUIRED_FIELD_ADDED" if is_required else "FIELD_ADDED", (*path, str(field.number)))


def _enums(old: EnumDescriptorProto, new: EnumDescriptorProto, path: Path) -> Iterator[Change]:
    before = {each.number: each.name for each in old.value}
    after = {each.number: each.name for each in new.value}
    for number in sorted({*before, *after}):
        place = (*path, str(number))
        if number not in after:
            yield _change("ENUM_CONST_REMOVED", place)
        elif number not in before:
            yield _change("ENUM_CONST_ADDED", place)
        elif before[number] != after[number]:
            yield _change("ENUM_CONST_CHANGED", place)


def _kind(field: FieldDescriptorProto, types: Types) -> str:
    if scalar_name(field.type) is not None or field.type == FieldDescriptorProto.TYPE_ENUM:
        return "scalar"
    definition = types[field.type_name].definition
    return "map" if isinstance(definition, DescriptorProto) and definition.options.map_entry else "message"


def _entry(field: FieldDescriptorProto, types: Types) -> DescriptorProto:
    definition = types[field.type_name].definition
    assert isinstance(definition, DescriptorProto)
    return definition


def _scalar_kind(field: FieldDescriptorProto) -> str:
    name = scalar_name(field.type)
    return "number" if name is None else _KINDS[name]
