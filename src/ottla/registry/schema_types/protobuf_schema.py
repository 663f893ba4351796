"""Protobuf's schemas: `.proto` files, or descriptors in base64 as some clients register them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto

from ottla.registry.schema_types import protobuf_diff
from ottla.registry.schema_types.parsed import InvalidSchema, Resolved
from ottla.registry.schema_types.protobuf_compiler import ROOT, compile_files, decoded
from ottla.registry.schema_types.protobuf_text import written

DEFAULT_NAME: Final = "default"
"""Name of an unnamed file in its serialized form."""


class ProtobufSchema:
    """One file, and those that it imports."""

    def __init__(self, text: str, references: Sequence[Resolved]) -> None:
        """Raises InvalidSchema."""
        imported: dict[str, str] = {}
        for each in references:
            if each.name == ROOT:
                raise InvalidSchema(f"a file cannot be imported as {ROOT!r}")
            imported[each.name] = _printed(each.text, imported) or each.text
        try:
            files = compile_files({**imported, ROOT: text})
        except InvalidSchema:
            printed = _printed(text, imported)
            if printed is None:
                raise
            files = compile_files({**imported, ROOT: printed})
        self.file: FileDescriptorProto = files.pop(ROOT)
        self.others = list(files.values())
        self._own = frozenset(imported)

    @cached_property
    def text(self) -> str:
        return written(self.file, self.others)

    def normalized(self) -> str:
        return written(self.file, self.others, normalize=True)

    def resolved(self) -> str:
        """The files that are imported by references, and this one behind them."""
        parts = [written(each, self.others[:index]) for index, each in enumerate(self.others) if each.name in self._own]
        return "\n".join([*parts, self.normalized()])

    def formatted(self, name: str) -> str:
        if name != "serialized":
            return self.text
        named = FileDescriptorProto()
        named.CopyFrom(self.file)
        named.name = DEFAULT_NAME
        return base64.b64encode(named.SerializeToString()).decode()

    def differences(self, older: ProtobufSchema) -> list[str]:
        found = protobuf_diff.compare(older.file, older.others, self.file, self.others)
        return [str(each) for each in found if each.kind not in protobuf_diff.COMPATIBLE]


def parse(text: str, references: Sequence[Resolved]) -> ProtobufSchema:
    """Raises InvalidSchema."""
    return ProtobufSchema(text, references)


def _printed(text: str, imported: Mapping[str, str]) -> str | None:
    """The text of a serialized descriptor in base64, None for what is none. Raises InvalidSchema."""
    try:
        data = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None
    file = decoded(data)
    if file is None:
        return None
    # The files that it imports may define options that it uses.
    imports = " ".join(f'import "{each}";' for each in file.dependency)
    others = compile_files({**imported, ROOT: f'syntax = "proto3"; {imports}'})
    try:
        return written(file, [each for name, each in others.items() if name != ROOT])
    except (TypeError, KeyError, StopIteration) as error:
        raise InvalidSchema(f"a descriptor that cannot be read: {error}") from error
