"""Whether a reader's schema takes what was written with another: Avro's schema resolution, as Java's
`SchemaCompatibility` decides it and Confluent's registry reports it.

Avro's Python package has such a checker (`avro.compatibility`), against which the tests hold this one. It is not used
itself as it does not say which of its messages belongs to which place, resolves no alias to a full name, and drops the
place of what it finds in a union.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from avro.schema import Schema

_PROMOTIONS: Final = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}
"""What a reader's primitive takes besides itself (Avro's specification, Schema Resolution)."""
_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_RECORDS: Final = frozenset({"record", "error", "request"})
_UNIONS: Final = frozenset({"union", "error_union"})

_DESCRIPTIONS: Final = {
    "FIXED_SIZE_MISMATCH": "The size of FIXED type field at path '{path}' in the %s schema does not match with the %s "
    "schema",
    "TYPE_MISMATCH": "The type (path '{path}') of a field in the %s schema does not match with the %s schema",
    "NAME_MISMATCH": "The name of the schema has changed (path '{path}')",
    "MISSING_ENUM_SYMBOLS": "The %s schema is missing enum symbols '{info}' at path '{path}' in the %s schema",
    "MISSING_UNION_BRANCH": "The %s schema is missing a type inside a union field at path '{path}' in the %s schema",
    "READER_FIELD_MISSING_DEFAULT_VALUE": "The field '{info}' at path '{path}' in the %s schema has no default value "
    "and is missing in the %s schema",
}


@dataclass(frozen=True)
class Difference:
    """One reason: its kind, where in the reader's schema it is, and what was found there."""

    kind: str
    path: str
    info: str

    def __str__(self) -> str:
        described = _DESCRIPTIONS[self.kind].replace("{path}", self.path).replace("{info}", self.info)
        return f"{{errorType:'{self.kind}', description:'{described}', additionalInfo:'{self.info}'}}"


def differences(reader: Schema, writer: Schema) -> list[Difference]:
    """Why `reader` does not take what was written with `writer`; empty if it does."""
    return list(_Walk().compare(reader, writer, ()))


class _Walk:
    """One comparison. Types may contain themselves: a pair that is being compared counts as alike."""

    def __init__(self, pairs: set[tuple[int, int]] | None = None, failed: set[tuple[int, int]] | None = None) -> None:
        self._pairs = set() if pairs is None else pairs
        self._failed = set() if failed is None else failed
        """Pairs of a branch and a writer that are not alike even if all that is being compared is."""

    def compare(self, reader: Any, writer: Any, path: tuple[str, ...]) -> Iterator[Difference]:
        if writer.type in _UNIONS and reader.type not in _UNIONS:
            for branch in writer.schemas:
                yield from self.compare(reader, branch, path)
        elif reader.type in _UNIONS:
            yield from self._union(reader, writer, path)
        elif _kind(reader) != _kind(writer):
            if writer.type not in _PROMOTIONS.get(reader.type, ()):
                info = f"reader type: {reader.type.upper()} not compatible with writer type: {writer.type.upper()}"
                yield _found("TYPE_MISMATCH", path, info)
        elif reader.type == "array":
            yield from self.compare(reader.items, writer.items, (*path, "items"))
        elif reader.type == "map":
            yield from self.compare(reader.values, writer.values, (*path, "values"))
        elif reader.type not in _PRIMITIVES:
            yield from self._named(reader, writer, path)

    def _union(self, reader: Any, writer: Any, path: tuple[str, ...]) -> Iterator[Difference]:
        if writer.type in _UNIONS:
            for index, branch in enumerate(writer.schemas):
                if not self._takes(reader, branch):
                    info = f"reader union lacking writer type: {branch.type.upper()}"
                    yield _found("MISSING_UNION_BRANCH", (*path, str(index)), info)
        elif not self._takes(reader, writer):
            yield _found("MISSING_UNION_BRANCH", path, f"reader union lacking writer type: {writer.type.upper()}")

    def _takes(self, union: Any, writer: Any) -> bool:
        """Whether one branch does. What a comparison that failed took for granted does not count for the next."""
        for branch in union.schemas:
            pair = (id(branch), id(writer))
            if pair in self._failed:
                continue
            walk = _Walk(set(self._pairs), self._failed)
            if not any(True for _ in walk.compare(branch, writer, ())):
                self._pairs |= walk._pairs
                return True
            self._failed.add(pair)
        return False

    def _named(self, reader: Any, writer: Any, path: tuple[str, ...]) -> Iterator[Difference]:
        if (id(reader), id(writer)) in self._pairs:
            return
        self._pairs.add((id(reader), id(writer)))
        if reader.name != writer.name and writer.fullname not in _aliases(reader):
            yield _found("NAME_MISMATCH", (*path, "name"), f"expected: {writer.fullname}")
        if reader.type == "fixed":
            if reader.size != writer.size:
                info = f"expected: {writer.size}, found: {reader.size}"
                yield _found("FIXED_SIZE_MISMATCH", (*path, "size"), info)
        elif reader.type == "enum":
            missing = [symbol for symbol in writer.symbols if symbol not in reader.symbols]
            if missing and reader.props.get("default") not in reader.symbols:
                yield _found("MISSING_ENUM_SYMBOLS", (*path, "symbols"), f"[{', '.join(missing)}]")
        else:
            yield from self._fields(reader, writer, path)

    def _fields(self, reader: Any, writer: Any, path: tuple[str, ...]) -> Iterator[Difference]:
        for index, field in enumerate(reader.fields):
            place = (*path, "fields", str(index))
            written = _written_field(field, writer)
            if written is not None:
                yield from self.compare(field.type, written.type, (*place, "type"))
            elif not field.has_default:
                yield _found("READER_FIELD_MISSING_DEFAULT_VALUE", place, field.name)


def _found(kind: str, path: tuple[str, ...], info: str) -> Difference:
    return Difference(kind, "/" + "/".join(path), info)


def _kind(schema: Any) -> str:
    return "record" if schema.type in _RECORDS else str(schema.type)


def _aliases(schema: Any) -> Iterable[str]:
    """Full names: an alias without a namespace is in that of the schema."""
    space = schema.fullname.rpartition(".")[0]
    for alias in schema.props.get("aliases") or ():
        yield alias if "." in alias or not space else f"{space}.{alias}"


def _written_field(field: Any, writer: Any) -> Any:
    """The writer's field of the same name, or else of one of the reader's aliases."""
    for name in (field.name, *(field.props.get("aliases") or ())):
        if name in writer.fields_dict:
            return writer.fields_dict[name]
    return None
