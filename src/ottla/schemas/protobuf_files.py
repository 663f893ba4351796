"""Descriptors that texts of Protobuf compile to, and messages in them. Needs no pyarrow."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ottla.formats.errors import SchemaError


@lru_cache(maxsize=256)
def file_of(text: str, parts: tuple[tuple[str, str], ...] = ()) -> Any:
    """The FileDescriptor of a schema, a text or a descriptor in base64, and of those that it imports. Raises
    SchemaError."""
    try:
        from google.protobuf.descriptor_pool import DescriptorPool

        from ottla.registry.schema_types.parsed import InvalidSchema, Resolved
        from ottla.registry.schema_types.protobuf_schema import ProtobufSchema
    except ImportError as error:
        raise SchemaError(f"Protobuf needs {error.name}: pip install 'ottla[registry]'") from None
    try:
        schema = ProtobufSchema(text, [Resolved(name, each) for name, each in parts])
    except InvalidSchema as error:
        raise SchemaError(f"not a Protobuf schema: {error}") from None
    pool = DescriptorPool()
    try:
        for each in (*schema.others, schema.file):
            pool.Add(each)
        return pool.FindFileByName(schema.file.name)
    except (TypeError, KeyError) as error:
        raise SchemaError(f"not a Protobuf schema: {error}") from error


def message_at(file: Any, path: tuple[int, ...]) -> Any:
    """The descriptor of the message that indexes lead to. Raises SchemaError."""
    try:
        found = list(file.message_types_by_name.values())[path[0]]
        for index in path[1:]:
            found = found.nested_types[index]
    except IndexError:
        raise SchemaError(f"there is no message {list(path)} in the schema") from None
    return found


def path_of(file: Any, name: str) -> tuple[int, ...]:
    """The indexes that lead to a message, by its full name or by its name in the file's package. Raises SchemaError."""
    full = name if not file.package or name.startswith(f"{file.package}.") else f"{file.package}.{name}"

    def walk(messages: Any, above: tuple[int, ...]) -> tuple[int, ...] | None:
        for index, each in enumerate(messages):
            path = (*above, index)
            if each.full_name == full:
                return path
            if (inner := walk(each.nested_types, path)) is not None:
                return inner
        return None

    found = walk(file.message_types_by_name.values(), ())
    if found is None:
        raise SchemaError(f"there is no message {name} in the schema")
    return found
