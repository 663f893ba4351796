"""Whether a reader's schema takes what was written with another: Avro's schema resolution, as Java's
`SchemaCompatibility` decides it and Confluent's registry reports it.

Avro's Python package has such a checker (`avro.compatibility`), against which the tests hold this one. It is not used
itself as it does not say which of its messages belongs to which place, resolves no alias to a full name, and drops the
place of what it finds in a union.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from avro.schema import Schema

from ottla.registry.schema_types.parsed import check_stack

_PROMOTIONS: Final = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}
"""Types that a reader's primitive accepts besides itself (Avro's specification, Schema Resolution)."""
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

    def __init__(self) -> None:
        self._pairs: dict[tuple[int, int], None] = {}
        """Pairs of named types that count as alike, in the order in which that was taken for granted."""
        self._failed: set[tuple[int, int]] = set()
        """Pairs of a branch and a writer that are not alike even if all that is being compared is."""
        self._branches: dict[int, _Branches] = {}
        """Branches of a reader's unions, by identity: the schemas outlive the walk."""

    def compare(self, reader: Any, writer: Any, path: tuple[str, ...]) -> Iterator[Difference]:
        """Raises InvalidSchema for what is nested too deeply."""
        if writer.type in _UNIONS and reader.type not in _UNIONS:
            for branch in writer.schemas:
                yield from self.compare(reader, branch, path)
        elif reader.type in _UNIONS:
            yield from self._union(reader, writer, path)
        elif _kind(reader) != _kind(writer):
            if writer.type not in _PROMOTIONS.get(reader.type, ()):
                info = f"reader type: {reader.type.upper()} not compatible with writer type: {writer.type.upper()}"
                yield _found("TYPE_MISMATCH", path, info)
        elif reader.type in ("array", "map"):
            inner = "items" if reader.type == "array" else "values"
            check_stack()
            yield from self.compare(getattr(reader, inner), getattr(writer, inner), (*path, inner))
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
        branches = self._branches.get(id(union))
        if branches is None:
            branches = self._branches[id(union)] = _Branches(union.schemas)
        for branch in branches.candidates(writer):
            pair = (id(branch), id(writer))
            if pair in self._failed:
                continue
            granted = len(self._pairs)
            if next(self.compare(branch, writer, ()), None) is None:
                return True
            while len(self._pairs) > granted:
                self._pairs.popitem()
            self._failed.add(pair)
        return False

    def _named(self, reader: Any, writer: Any, path: tuple[str, ...]) -> Iterator[Difference]:
        if (id(reader), id(writer)) in self._pairs:
            return
        check_stack()
        self._pairs[id(reader), id(writer)] = None
        if reader.name != writer.name and writer.fullname not in _aliases(reader):
            yield _found("NAME_MISMATCH", (*path, "name"), f"expected: {writer.fullname}")
        if reader.type == "fixed":
            if reader.size != writer.size:
                info = f"expected: {writer.size}, found: {reader.size}"
                yield _found("FIXED_SIZE_MISMATCH", (*path, "size"), info)
        elif reader.type == "enum":
            known = frozenset(reader.symbols)
            missing = [symbol for symbol in writer.symbols if symbol not in known]
            if missing and reader.props.get("default") not in reader.symbols:
                yield _found("MISSING_ENUM_SYMBOLS", (*path, "symbols"), f"[{', '.join(missing)}]")
        else:
            yield from self._fields(reader, writer, path)

    def _fields(self, reader: Any, writer: Any, path: tuple[str, ...]) -> Iterator[Difference]:
        written_fields = writer.fields_dict  # which the library makes each time it is asked for
        for index, field in enumerate(reader.fields):
            place = (*path, "fields", str(index))
            written = _written_field(field, written_fields)
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


def _written_field(field: Any, written: Mapping[str, Any]) -> Any:
    """The writer's field of the same name, or else of one of the reader's aliases."""
    for name in (field.name, *(field.props.get("aliases") or ())):
        if name in written:
            return written[name]
    return None


class _Branches:
    """A reader's union, by what each branch may take: of the named types those that have the writer's name or an alias
    for it, and all that have no name, of which there is one of each kind."""

    def __init__(self, schemas: Sequence[Any]) -> None:
        self._unnamed: list[tuple[int, Any]] = []
        self._named: dict[str, list[tuple[int, Any]]] = {}
        for place, branch in enumerate(schemas):
            if branch.type in _PRIMITIVES or branch.type in ("array", "map"):
                self._unnamed.append((place, branch))
                continue
            for name in {branch.name, *(f".{each}" for each in _aliases(branch))}:
                self._named.setdefault(name, []).append((place, branch))

    def candidates(self, writer: Any) -> list[Any]:
        """The branches that may take it, in their order."""
        if writer.type in _PRIMITIVES or writer.type in ("array", "map"):
            return [branch for _, branch in self._unnamed]
        found = [*self._named.get(writer.name, ()), *self._named.get(f".{writer.fullname}", ())]
        return [branch for _, branch in sorted(dict(found).items())]
