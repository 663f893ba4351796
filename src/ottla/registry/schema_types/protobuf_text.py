"""A descriptor as the text of a `.proto` file, always written in the same way: laid out as Confluent's registry does.

Types are written with their full names, comments are not kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)

from ottla.registry.schema_types.parsed import InvalidSchema

_SCALARS: Final = {
    FieldDescriptorProto.TYPE_DOUBLE: "double",
    FieldDescriptorProto.TYPE_FLOAT: "float",
    FieldDescriptorProto.TYPE_INT64: "int64",
    FieldDescriptorProto.TYPE_UINT64: "uint64",
    FieldDescriptorProto.TYPE_INT32: "int32",
    FieldDescriptorProto.TYPE_FIXED64: "fixed64",
    FieldDescriptorProto.TYPE_FIXED32: "fixed32",
    FieldDescriptorProto.TYPE_BOOL: "bool",
    FieldDescriptorProto.TYPE_STRING: "string",
    FieldDescriptorProto.TYPE_BYTES: "bytes",
    FieldDescriptorProto.TYPE_UINT32: "uint32",
    FieldDescriptorProto.TYPE_SFIXED32: "sfixed32",
    FieldDescriptorProto.TYPE_SFIXED64: "sfixed64",
    FieldDescriptorProto.TYPE_SINT32: "sint32",
    FieldDescriptorProto.TYPE_SINT64: "sint64",
}
_LABELS: Final = {
    FieldDescriptorProto.LABEL_OPTIONAL: "optional ",
    FieldDescriptorProto.LABEL_REQUIRED: "required ",
    FieldDescriptorProto.LABEL_REPEATED: "repeated ",
}
_FIELD_NUMBER_MAX: Final = 536_870_911
_ENUM_NUMBER_MAX: Final = 2_147_483_647
_INDENT: Final = "  "


def scalar_name(kind: int) -> str | None:
    """`int32` and the like; None for messages, groups and enums."""
    return _SCALARS.get(kind)


def written(file: FileDescriptorProto, others: Iterable[FileDescriptorProto], *, normalize: bool = False) -> str:
    """The text of a file. `others` are its direct and indirect imports, dependencies first.

    With `normalize` what may be in any order is sorted: imports, options, fields, values of enums.
    """
    try:
        return "".join(_Printer(file, others, normalize).lines())
    except TypeError as error:  # the pool does not take all that the compiler does: messages of 64 KiB, for one
        raise InvalidSchema(str(error)) from error


class _Printer:
    """One file's text. Custom options are known by the files that define them."""

    def __init__(self, file: FileDescriptorProto, others: Iterable[FileDescriptorProto], normalize: bool) -> None:
        self._file = file
        self._is_sorted = normalize
        self._is_proto3 = file.syntax == "proto3"
        self._is_edition = file.syntax == "editions"
        self._pool = descriptor_pool.DescriptorPool()
        self._pool.AddSerializedFile(descriptor_pb2.DESCRIPTOR.serialized_pb)
        for each in others:
            if each.name != descriptor_pb2.DESCRIPTOR.name:
                self._pool.Add(each)
        self._pool.Add(file)  # a file may use the options that it defines

    def lines(self) -> Iterator[str]:
        file = self._file
        if self._is_edition:
            yield f'edition = "{descriptor_pb2.Edition.Name(file.edition).removeprefix("EDITION_")}";\n'
        elif self._is_proto3:
            yield 'syntax = "proto3";\n'
        elif not self._is_sorted:
            yield 'syntax = "proto2";\n'
        if file.package:
            yield f"package {file.package};\n"
        yield from self._imports()
        options = [f"option {each};\n" for each in self._options(file.options)]
        yield from ["\n", *options] if options else []
        if file.message_type or file.enum_type:
            yield "\n"
        for message in file.message_type:
            yield from self._message(message, _nested(file.package, message.name))
        for enum in file.enum_type:
            yield from self._enum(enum)
        yield from self._extensions(file.extension, file.message_type)
        for service in file.service:
            yield "\n"
            yield from self._service(service)

    def _imports(self) -> Iterator[str]:
        file = self._file
        public, weak = set(file.public_dependency), set(file.weak_dependency)
        rows = [
            (2 if index in public else 1 if index in weak else 0, name) for index, name in enumerate(file.dependency)
        ]
        if rows:
            yield "\n"
        rows = sorted(rows) if self._is_sorted else sorted(rows, key=lambda row: row[0] == 2)
        for kind, name in rows:
            yield f'import {("", "weak ", "public ")[kind]}"{name}";\n'

    # Types

    def _message(self, message: DescriptorProto, full_name: str) -> Iterator[str]:
        yield f"message {message.name} {{"
        body = list(self._body(message, full_name))
        yield from ["\n", *(f"{_INDENT}{line}" if line != "\n" else line for line in body)] if body else []
        yield "}\n"

    def _body(self, message: DescriptorProto, full_name: str) -> Iterator[str]:
        """Lines of a message: groups with an empty line between."""
        entries = {f".{full_name}.{each.name}": each for each in message.nested_type if each.options.map_entry}
        groups = {
            each.type_name.rpartition(".")[2]: each
            for each in message.field
            if each.type == FieldDescriptorProto.TYPE_GROUP
        }
        fields = sorted(message.field, key=lambda each: each.number) if self._is_sorted else list(message.field)
        oneofs = _oneofs(message)
        inside = {each.name for members in oneofs.values() for each in members}
        blocks = [
            list(_reserved(message, self._is_sorted)),
            [f"option {each};\n" for each in self._options(message.options)],
            [
                line
                for each in fields
                if each.name not in inside
                for line in self._field(each, entries, message, full_name)
            ],
            [
                line
                for index, members in self._ordered(oneofs)
                for line in self._oneof(message, index, members, entries, full_name)
            ],
            list(self._extension_ranges(message)),
            [
                line
                for each in message.nested_type
                if not each.options.map_entry and each.name not in groups
                for line in self._lines_of(self._message(each, f"{full_name}.{each.name}"))
            ],
            [line for each in message.enum_type for line in self._lines_of(self._enum(each))],
            self._lines_of(self._extensions(message.extension, message.nested_type)),
        ]
        filled = [block for block in blocks if block]
        for number, block in enumerate(filled):
            if number:
                yield "\n"
            yield from block

    def _lines_of(self, parts: Iterable[str]) -> list[str]:
        return "".join(parts).lstrip("\n").splitlines(keepends=True)

    def _ordered(
        self, oneofs: Mapping[int, list[FieldDescriptorProto]]
    ) -> list[tuple[int, list[FieldDescriptorProto]]]:
        rows = list(oneofs.items())
        if self._is_sorted:
            rows = [(index, sorted(members, key=lambda each: each.number)) for index, members in rows]
            rows.sort(key=lambda row: row[1][0].number)
        return rows

    def _oneof(
        self,
        message: DescriptorProto,
        index: int,
        members: list[FieldDescriptorProto],
        entries: Mapping[str, DescriptorProto],
        full_name: str,
    ) -> Iterator[str]:
        oneof = message.oneof_decl[index]
        yield f"oneof {oneof.name} {{\n"
        yield from (f"{_INDENT}option {each};\n" for each in self._options(oneof.options))
        for each in members:
            yield from (
                f"{_INDENT}{line}" for line in self._field(each, entries, message, full_name, is_labelled=False)
            )
        yield "}\n"

    def _field(
        self,
        field: FieldDescriptorProto,
        entries: Mapping[str, DescriptorProto],
        message: DescriptorProto,
        full_name: str,
        *,
        is_labelled: bool = True,
    ) -> Iterator[str]:
        options = self._field_options(field)
        ending = f" [{', '.join(options)}]" if len(options) == 1 else _listed(options)
        entry = entries.get(field.type_name)
        if entry is not None:
            key, value = (self._type_name(each) for each in entry.field)
            yield from _split(f"map<{key}, {value}> {field.name} = {field.number}{ending};\n")
            return
        label = self._label(field) if is_labelled else ""
        if field.type == FieldDescriptorProto.TYPE_GROUP:
            group = next(each for each in message.nested_type if f".{full_name}.{each.name}" == field.type_name)
            yield f"{label}group {group.name} = {field.number} {{\n"
            yield from (f"{_INDENT}{line}" for line in self._body(group, f"{full_name}.{group.name}"))
            yield "}\n"
            return
        yield from _split(f"{label}{self._type_name(field)} {field.name} = {field.number}{ending};\n")

    def _label(self, field: FieldDescriptorProto) -> str:
        if field.label == FieldDescriptorProto.LABEL_OPTIONAL and not field.proto3_optional:
            return "" if self._is_proto3 or self._is_edition else "optional "
        return _LABELS[field.label]

    @staticmethod
    def _type_name(field: FieldDescriptorProto) -> str:
        return scalar_name(field.type) or field.type_name

    def _field_options(self, field: FieldDescriptorProto) -> list[str]:
        found = []
        if field.HasField("default_value"):
            found.append(f"default = {_default(field)}")
        if field.HasField("json_name") and field.json_name != _json_name(field.name):
            found.append(f"json_name = {_quoted(field.json_name)}")
        return found + self._options(field.options)

    def _extension_ranges(self, message: DescriptorProto) -> Iterator[str]:
        for each in message.extension_range:
            options = self._options(each.options)
            ending = f" [{', '.join(options)}]" if options else ""
            yield f"extensions {_range(each.start, each.end - 1, _FIELD_NUMBER_MAX)}{ending};\n"

    def _enum(self, enum: EnumDescriptorProto) -> Iterator[str]:
        yield f"enum {enum.name} {{\n"
        yield from (f"{_INDENT}{line}" for line in _reserved_values(enum, self._is_sorted))
        yield from (f"{_INDENT}option {each};\n" for each in self._options(enum.options))
        values = sorted(enum.value, key=lambda each: (each.number, each.name)) if self._is_sorted else enum.value
        if self._is_sorted and self._is_proto3:  # the first one is the default: number 0
            values = sorted(values, key=lambda each: each.number != 0)
        for value in values:
            options = self._options(value.options)
            ending = f" [{', '.join(options)}]" if options else ""
            yield f"{_INDENT}{value.name} = {value.number}{ending};\n"
        yield "}\n"

    def _extensions(self, fields: Iterable[FieldDescriptorProto], messages: Iterable[DescriptorProto]) -> Iterator[str]:
        by_extendee: dict[str, list[FieldDescriptorProto]] = {}
        for each in fields:
            by_extendee.setdefault(each.extendee, []).append(each)
        scope = DescriptorProto(nested_type=list(messages))
        for extendee, members in by_extendee.items():
            yield f"\nextend {extendee} {{\n"
            for each in members:
                yield from (f"{_INDENT}{line}" for line in self._field(each, {}, scope, self._file.package))
            yield "}\n"

    def _service(self, service: ServiceDescriptorProto) -> Iterator[str]:
        yield f"service {service.name} {{\n"
        yield from (f"{_INDENT}option {each};\n" for each in self._options(service.options))
        for method in service.method:
            yield from (f"{_INDENT}{line}" for line in self._method(method))
        yield "}\n"

    def _method(self, method: MethodDescriptorProto) -> Iterator[str]:
        takes = f"{'stream ' if method.client_streaming else ''}{method.input_type}"
        gives = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
        options = self._options(method.options)
        head = f"rpc {method.name} ({takes}) returns ({gives})"
        if not options:
            yield f"{head};\n"
            return
        yield f"{head} {{\n"
        yield from (f"{_INDENT}option {each};\n" for each in options)
        yield "};\n"

    # Options

    def _options(self, options: Any) -> list[str]:
        """`name = value` of each, custom ones too."""
        if not options.ByteSize():
            return []
        descriptor = self._pool.FindMessageTypeByName(options.DESCRIPTOR.full_name)
        known = message_factory.GetMessageClass(descriptor).FromString(options.SerializeToString())
        found = []
        for field, value in known.ListFields():
            name = f"({field.full_name})" if field.is_extension else field.name
            if field.name == "map_entry" and not field.is_extension:
                continue
            values = value if field.is_repeated else [value]
            found += [f"{name} = {_option_value(field, each)}" for each in values]
        return sorted(found) if self._is_sorted else found


def _option_value(field: Any, value: Any) -> str:
    if field.message_type is not None:
        inside = text_format.MessageToString(value, as_one_line=True, use_short_repeated_primitives=False)
        return f"{{ {inside} }}" if inside else "{ }"
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return f'"{_escaped(value)}"'
    return _quoted(value) if isinstance(value, str) else repr(value)


def _nested(package: str, name: str) -> str:
    return f"{package}.{name}" if package else name


def _oneofs(message: DescriptorProto) -> dict[int, list[FieldDescriptorProto]]:
    """Members by the index of their oneof, but for those that only stand for proto3's `optional`."""
    found: dict[int, list[FieldDescriptorProto]] = {}
    for each in message.field:
        if each.HasField("oneof_index") and not each.proto3_optional:
            found.setdefault(each.oneof_index, []).append(each)
    return found


def _reserved(message: DescriptorProto, is_sorted: bool) -> Iterator[str]:
    ranges = [(each.start, each.end - 1) for each in message.reserved_range]
    for first, last in sorted(ranges) if is_sorted else ranges:
        yield f"reserved {_range(first, last, _FIELD_NUMBER_MAX)};\n"
    for name in sorted(message.reserved_name) if is_sorted else message.reserved_name:
        yield f"reserved {_quoted(name)};\n"


def _reserved_values(enum: EnumDescriptorProto, is_sorted: bool) -> Iterator[str]:
    ranges = [(each.start, each.end) for each in enum.reserved_range]
    for first, last in sorted(ranges) if is_sorted else ranges:
        yield f"reserved {_range(first, last, _ENUM_NUMBER_MAX)};\n"
    for name in sorted(enum.reserved_name) if is_sorted else enum.reserved_name:
        yield f"reserved {_quoted(name)};\n"


def _range(first: int, last: int, most: int) -> str:
    if first == last:
        return str(first)
    return f"{first} to {'max' if last >= most else last}"


def _default(field: FieldDescriptorProto) -> str:
    if field.type == FieldDescriptorProto.TYPE_STRING:
        return _quoted(field.default_value)
    if field.type == FieldDescriptorProto.TYPE_BYTES:  # escaped already
        return f'"{field.default_value}"'
    return str(field.default_value)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def _escaped(data: bytes) -> str:
    return "".join(chr(each) if 32 <= each < 127 and each not in b'"\\' else f"\\{each:03o}" for each in data)


def _json_name(name: str) -> str:
    """The JSON name that protoc makes of a field's name."""
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def _listed(options: list[str]) -> str:
    """Several, each on a line of its own."""
    if not options:
        return ""
    return " [\n" + ",\n".join(f"{_INDENT}{each}" for each in options) + "\n]"


def _split(text: str) -> list[str]:
    return text.splitlines(keepends=True)
