"""Writes what mypy knows of messages, from the tables of `protocol/schemas`: `python -m tools.message_types`.

`received.pyi` has requests and responses as the reader makes them: objects with slots. `sent.pyi` has them as the
writer takes them: mappings, of which any key may be left out. Nothing is imported from these two at run time.
`records.pyi` has records, whose classes `records.py` makes.

A struct has Kafka's name, with that of its message before it where several messages have different structs of one name.
`--check` writes nothing, and fails where the files are stale.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from ottla.protocol import schemas
from ottla.protocol.schemas import OF_APIS, FieldSchema, MessageSchema, Versions
from tools.protocol_schemas import RECORDS, TABLE

RECEIVED: Final = TABLE.parent / "received.pyi"
SENT: Final = TABLE.parent / "sent.pyi"
STORED: Final = RECORDS.with_suffix(".pyi")

_PLAIN: Final = {
    "string": "str", "uuid": "UUID", "bool": "bool", "float64": "float", "bytes": "bytes", "records": "Buffer",
}  # fmt: skip
"""Types of values; whole numbers are not named. Records of requests are views."""

_HEADS: Final = {
    RECEIVED: '''"""Requests and responses as they are received: made by `python -m tools.message_types`, never edited.

Behind `#`: the versions of the message that have a field, where not all do. In others it has its default.
"""

from uuid import UUID

from ottla.model import Buffer
from ottla.protocol.schemas import Message
''',
    SENT: '''"""Requests and responses as they are sent: made by `python -m tools.message_types`, never edited.

Behind `#`: the versions of the message that have a field, where not all do. Others leave it out.
"""

from collections.abc import Sequence
from typing import TypedDict
from uuid import UUID

from ottla.model import Buffer
''',
    STORED: '''"""Records as they are read and written: made by `python -m tools.message_types`, never edited.

Behind `#`: the versions of the record that have a field, where not all do. In others it has its default.
"""

from typing import Any, Self, dataclass_transform
from uuid import UUID

from ottla.protocol.schemas import Message

TABLE: str

@dataclass_transform()
class Record(Message):
    def replaced(self, **changes: Any) -> Self: ...
''',
}


def _messages(of_apis: bool) -> Iterator[MessageSchema]:
    for name in schemas.names():
        found = schemas.schema(name)
        if (found.kind in OF_APIS) == of_apis:
            yield found


def _structs(fields: Iterable[FieldSchema]) -> Iterator[FieldSchema]:
    """The fields that are structs or arrays of them, those in structs included; a struct that two have once."""
    seen = set()
    for field in fields:
        if field.struct:
            for each in (field, *_structs(field.fields)):
                if each.struct not in seen:
                    seen.add(each.struct)
                    yield each


def _shape(fields: Iterable[FieldSchema]) -> tuple[object, ...]:
    """What a class says of the fields, whatever the versions that have them."""
    return tuple(
        (each.name, each.type, each.is_array, _null(each), each.struct, _shape(each.fields)) for each in fields
    )


def _null(field: FieldSchema) -> str:
    return " | None" if field.nullable[1] >= 0 or field.default is None else ""


def _names(of_apis: bool) -> dict[tuple[str, str], str]:
    """(message, struct) -> the name of its class."""
    shapes = defaultdict(set)
    for message in _messages(of_apis):
        for field in _structs(message.fields):
            shapes[field.struct].add(_shape(field.fields) if of_apis else field.fields)
    twice = {name for name, found in shapes.items() if len(found) > 1}
    if twice and not of_apis:
        raise SystemExit(f"structs of records that need names in `tools/own_records.py`: {', '.join(sorted(twice))}")
    return {
        (message.name, field.struct): message.name + field.struct if field.struct in twice else field.struct
        for message in _messages(of_apis)
        for field in _structs(message.fields)
    }


def _since(versions: Versions, among: Versions) -> str:
    low, high = max(versions[0], among[0]), min(versions[1], among[1])
    if (low, high) == among:
        return ""
    if high == among[1]:
        return f"  # {low}+"
    return f"  # {low}-{high}" if low < high else f"  # {low}"


def _received(field: FieldSchema, struct: str) -> str:
    kind = struct or _PLAIN.get(field.type, "int")
    return f"tuple[{kind}, ...]" if field.is_array else kind


def _sent(field: FieldSchema, struct: str) -> str:
    kind = struct or ("Buffer" if field.type == "bytes" else _PLAIN.get(field.type, "int"))
    return f"Sequence[{kind}]" if field.is_array else kind


def _classes(type_of: Callable[[FieldSchema, str], str], base: str, end: str = "") -> Iterator[str]:
    of_apis = base != "Record"
    names = _names(of_apis)
    classes: dict[str, list[str]] = {}
    for message in _messages(of_apis):
        rows = [(message.name, message.fields)]
        rows += [(names[message.name, each.struct], each.fields) for each in _structs(message.fields)]
        for name, fields in rows:
            kinds = [type_of(each, names[message.name, each.struct] if each.struct else "") for each in fields]
            lines = [f"    {each.name}: {kind}{_null(each)}{end}" for each, kind in zip(fields, kinds, strict=True)]
            since = [_since(each.versions, message.versions) for each in fields]
            text = [line + versions for line, versions in zip(lines, since, strict=True)]
            classes[name] = text if classes.get(name, text) == text else lines
    for name, lines in classes.items():
        yield from (f"class {name}({base}):" + ("" if lines else " ..."), *lines, "")


def rendered() -> dict[str, str]:
    """File name -> text."""
    classes = {
        RECEIVED: _classes(_received, "Message"),
        SENT: _classes(_sent, "TypedDict, total=False"),
        STORED: _classes(_received, "Record", " = ..."),
    }
    return {path.name: _HEADS[path] + "\n" + "\n".join(lines).rstrip() + "\n" for path, lines in classes.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    for name, text in rendered().items():
        path = TABLE.parent / name
        if not arguments.check:
            path.write_text(text)
        elif path.read_text() != text:
            raise SystemExit(f"{name} is stale: python -m tools.message_types writes it again")


if __name__ == "__main__":
    main()
