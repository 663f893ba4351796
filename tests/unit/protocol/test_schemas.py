"""Every message in every version: defaults, and long arrays in steps."""

from __future__ import annotations

import gc
import sys
from typing import Any
from uuid import UUID

import pytest

from ottla.protocol import schemas
from ottla.protocol.layout import Field, Layout, Malformed, UnsupportedVersion, of_defaults
from ottla.protocol.reader import Reader
from ottla.protocol.schemas import FieldSchema
from ottla.protocol.writer import Writer
from ottla.steps import at_once

RELEASES = ("", "3.9")
EACH = [
    (name, version)
    for release in RELEASES
    for name in schemas.names(release)
    for version in range(schemas.schema(name).versions[0], schemas.schema(name).versions[1] + 1)
]


def written(layout: Layout, values: Any) -> bytes:
    writer = Writer()
    writer.write(layout, values)
    return writer.done()


def written_in_steps(layout: Layout, values: Any) -> tuple[bytes, int]:
    """The bytes, and the number of steps."""
    writer, count = Writer(), 0
    for _ in writer.steps(layout, values):
        count += 1
    return writer.done(), count


def test_defaults_travel_in_every_version() -> None:
    assert len(EACH) > 790
    for name, version in EACH:
        layout = schemas.layout(name, version)
        values = of_defaults(layout)
        data = written(layout, values)
        reader = Reader(data)
        assert reader.read(layout) == values == type(values)(), (name, version)
        assert reader.left == 0
        assert written(layout, {}) == data
        if version == schemas.schema(name).versions[1]:
            for end in range(len(data)):
                with pytest.raises(Malformed):
                    Reader(data[:end]).read(layout)


def test_what_other_releases_have_is_off() -> None:
    for release in RELEASES[1:]:
        assert len(schemas.names(release)) >= 17
        for name in schemas.names(release):
            ours, theirs = name.partition("@")[0], schemas.schema(name)
            served = schemas.schema(ours).versions if ours in schemas.names() else (0, -1)
            beside = range(theirs.versions[0], theirs.versions[1] + 1)
            if theirs.kind not in ("request", "response"):
                continue  # tags that a record of the same version may have
            assert not [version for version in beside if schemas.within(version, served)], name
            for version in beside:
                with pytest.raises(KeyError):
                    schemas.layout(schemas.api_message(theirs.kind, theirs.api_key), version)


def filled(layout: Layout, rows: int) -> dict[str, Any]:
    """Values with so many items in every array."""
    return {field.name: value_of(field, rows) for field in [*layout.fields, *layout.tagged]}


def value_of(field: Field, rows: int) -> Any:
    if field.layout is not None:
        row = filled(field.layout, 1)
        return [row] * rows if field.is_array else row
    one = {7: True, 9: 0.5, 10: UUID(int=7), 11: "text", 12: b"bytes", 13: b"records"}.get(field.kind, 5)
    return [one] * rows if field.is_array else one


def test_long_messages_are_the_same_in_steps() -> None:
    longest = 0
    for name in [name for release in RELEASES for name in schemas.names(release)]:
        version = schemas.schema(name).versions[1]
        layout = schemas.layout(name, version)
        values = filled(layout, 300)
        data = written(layout, values)
        in_steps, steps = written_in_steps(layout, values)
        assert in_steps == data, (name, version)
        whole = Reader(data).read(layout)
        assert at_once(Reader(data).steps(layout)) == whole, (name, version)
        assert written(layout, whole) == written_in_steps(layout, whole)[0] == data
        longest = max(longest, steps)
    assert longest > 5


def test_what_a_version_lacks_or_forbids_is_refused() -> None:
    layout = schemas.layout("FindCoordinatorRequest", 3)
    with pytest.raises(UnsupportedVersion, match="key is null"):
        written(layout, {"key": None})
    with pytest.raises(Exception, match="out of range"):
        written(layout, {"key": "k", "key_type": 200})
    with pytest.raises(KeyError):
        schemas.layout("FindCoordinatorRequest", 99)


def test_a_struct_that_nests_long_rows_holds_no_references() -> None:
    """Objects are filled by the places of their slots: what was read is freed once nobody has it."""
    layout = schemas.layout("MetadataResponse", 12)
    data = written(layout, filled(layout, 3))
    text = "a name that nobody else has"
    before = sys.getrefcount(text)
    for _ in range(100):
        at_once(Reader(data).steps(layout))
        written(layout, {"cluster_id": text})
    assert sys.getrefcount(text) == before


def test_schema_fields_are_named_once() -> None:
    def walk(found: tuple[FieldSchema, ...]) -> None:
        names = [field.name for field in found]
        assert len(names) == len(set(names))
        for field in found:
            walk(field.fields)

    for name in schemas.names():
        walk(schemas.schema(name).fields)


def test_what_was_read_is_freed() -> None:
    """Objects of messages are freed by their counts alone, also where the read fails in the middle."""
    layout = schemas.layout("MetadataResponse", 13)
    data = written(layout, filled(layout, 5))
    cls, text = type(Reader(data).read(layout).topics[0]), "text"
    gc.collect()  # what other tests have left
    before = sys.getrefcount(cls), sys.getrefcount(text)
    for end in [*range(len(data)), len(data)] * 3:
        try:
            made = Reader(data[:end]).read(layout)
            assert len({made.topics[4]}) == 1 and made.topics[4].partitions[0].isr_nodes == (5,)
        except Malformed:
            made = None
    del made
    gc.collect()
    assert (sys.getrefcount(cls), sys.getrefcount(text)) == before
