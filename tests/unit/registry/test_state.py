"""Records of the topic: their exact bytes, and the state that they add up to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.registry import records, subjects
from ottla.registry.records import Key, Reference, SchemaRecord, UnreadableRecord, decode_key, decode_schema
from ottla.registry.state import State


def record(subject: str = "s", version: int = 1, schema_id: int = 1, text: str = '"int"', **more: Any) -> SchemaRecord:
    return SchemaRecord(subject, version, schema_id, text, **more)


def applied(*found: SchemaRecord) -> State:
    state = State()
    for each in found:
        assert state.apply(each.key, each.encode(), 7)
    return state


def test_keys_are_written_as_confluents() -> None:
    assert Key(records.SCHEMA, "s", 3).encode() == b'{"keytype":"SCHEMA","subject":"s","version":3,"magic":1}'
    assert Key(records.CONFIG).encode() == b'{"keytype":"CONFIG","magic":0}'
    assert Key(records.CONFIG, "s").encode() == b'{"keytype":"CONFIG","subject":"s","magic":0}'
    assert Key(records.MODE, "s").encode() == b'{"keytype":"MODE","subject":"s","magic":0}'
    assert Key(records.DELETE_SUBJECT, "s").encode() == b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}'
    assert Key(records.CLEAR_SUBJECT, "s").encode() == b'{"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}'
    assert Key(records.NOOP).encode() == b'{"keytype":"NOOP","magic":0}'
    context = b'{"keytype":"CONTEXT","tenant":"default","context":".c","magic":0}'
    assert Key(records.CONTEXT, context=".c").encode() == context


@pytest.mark.parametrize("key", [Key(records.SCHEMA, "s", 3), Key(records.MODE), Key(records.CONTEXT, context=".c")])
def test_keys_are_read_again(key: Key) -> None:
    assert decode_key(key.encode()) == key


def test_keys_of_older_registries() -> None:
    assert decode_key(b'{"keytype":"CONFIG","subject":null,"magic":0}') == Key(records.CONFIG)
    assert decode_key(b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":0}') == Key(records.SCHEMA, "s", 1)


def test_values_are_written_as_confluents() -> None:
    value = record(references=(Reference("n", "other", 2),), metadata={"properties": {"a": "b"}}, type="JSON")
    assert value.encode() == (
        b'{"subject":"s","version":1,"id":1,"schemaType":"JSON",'
        b'"references":[{"name":"n","subject":"other","version":2}],"metadata":{"properties":{"a":"b"}},'
        b'"schema":"\\"int\\"","deleted":false}'
    )
    assert decode_schema(value.encode()) == value


def test_values_of_older_registries() -> None:
    found = decode_schema(b'{"subject":"s","version":1,"id":1,"schema":"\\"int\\"","deleted":false}')
    assert found == record()


def test_members_that_are_not_known_are_kept() -> None:
    found = decode_schema(b'{"subject":"s","version":1,"id":1,"schema":"\\"int\\"","deleted":false,"new":{"a":1}}')
    assert json.loads(found.encode())["new"] == {"a": 1}


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"nothing",
        b"[]",
        b'{"keytype":"OTHER"}',
        b'{"keytype":"SCHEMA","version":1,"magic":1}',
        b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":2}',
        b'{"keytype":"SCHEMA","subject":"s","magic":1}',
    ],
)
def test_keys_that_cannot_be_read(data: bytes | None) -> None:
    with pytest.raises(UnreadableRecord):
        decode_key(data)


def test_the_digest_is_of_all_that_a_schema_says() -> None:
    same = record("other", 9, 9)
    different = [
        record(text='"long"'),
        record(references=(Reference("n", "s", 1),)),
        record(metadata={}),
        record(metadata={"properties": {"a": "b"}}),
        record(rule_set={"domainRules": [{"name": "r"}]}),
    ]
    assert same.digest == record().digest
    assert len({each.digest for each in [record(), *different]}) == 6
    assert record(text='"string"').guid == "095d71cf-1255-6b9d-5e33-0ad575b3df5d"  # MD5 of the text alone


def test_versions_stand_in_order_however_they_come() -> None:
    state = applied(record(version=2, schema_id=2, text='"b"'), record(version=1, text='"a"'))
    assert [each.version for each in state.versions("s")] == [1, 2]
    assert state.version("s", -1) == record(version=2, schema_id=2, text='"b"', timestamp=7)
    assert (state.next_version("s"), state.next_id("."), state.last_id(".")) == (3, 3, 2)


def test_an_id_is_of_one_schema_and_the_first_counts() -> None:
    state = applied(record())
    other = record("t", text='"long"')
    assert not state.apply(other.key, other.encode())
    assert state.subjects() == ["s"]
    elsewhere = record(":.c:t", text='"long"')
    assert state.apply(elsewhere.key, elsewhere.encode()), "ids are of a context"
    assert state.contexts() == [".", ".c"]


def test_softly_deleted_versions_are_found_by_their_id() -> None:
    state = applied(record(), record(deleted=True))
    assert state.versions("s") == []
    assert [each.version for each in state.versions("s", deleted=True)] == [1]
    assert [each.subject for each in state.with_id(".", 1)] == ["s"]
    assert state.id_of(".", record().digest) == 1


def test_a_version_that_is_gone_leaves_its_number_and_its_id() -> None:
    state = applied(record(), record("t", references=(Reference("n", "s", 1),), schema_id=2, text='"b"'))
    assert [each.subject for each in state.referrers("s", 1)] == ["t"]
    state.apply(Key(records.SCHEMA, "t", 1), None)
    assert state.referrers("s", 1) == []
    assert state.subjects() == ["s"]
    assert state.with_id(".", 2) == []
    assert state.next_id(".") == 3, "an id is not given twice"


def test_deleting_a_subject_deletes_what_there_was() -> None:
    state = applied(record(), record(version=2, schema_id=2, text='"b"'))
    state.apply(Key(records.DELETE_SUBJECT, "s"), b'{"subject":"s","version":2}')
    assert state.versions("s") == []
    later = record(version=3, schema_id=3, text='"c"')
    state.apply(later.key, later.encode())
    assert [each.version for each in state.versions("s")] == [3]


def test_clearing_a_context_drops_what_is_deleted() -> None:
    state = applied(record(":.c:s", deleted=True), record(":.c:t", schema_id=2, text='"b"'), record("s", deleted=True))
    state.apply(Key(records.CLEAR_SUBJECT, ":.c:"), b"{}")
    assert state.subjects() == [":.c:t", "s"]


def test_configuration_in_scope() -> None:
    state = State()
    assert state.config_in_scope("s") == {"compatibilityLevel": "BACKWARD"}
    state.apply(Key(records.CONFIG), b'{"compatibilityLevel":"FULL","normalize":true}')
    state.apply(Key(records.CONFIG, ":.__GLOBAL:"), b'{"compatibilityLevel":"NONE"}')
    state.apply(Key(records.CONFIG, ":.c:"), b'{"compatibilityLevel":"FORWARD"}')
    state.apply(Key(records.CONFIG, "s"), b'{"subject":"s","compatibilityGroup":"g"}')
    assert state.config_in_scope("t") == {"compatibilityLevel": "FULL", "normalize": True}
    assert state.config_in_scope("s") == {
        "compatibilityLevel": "FULL",
        "normalize": True,
        "compatibilityGroup": "g",
    }
    assert state.config_in_scope(":.c:s") == {"compatibilityLevel": "FORWARD"}
    assert state.config_in_scope(":.d:s") == {"compatibilityLevel": "NONE"}
    state.apply(Key(records.CONFIG), None)
    assert state.config_in_scope("t") == {"compatibilityLevel": "NONE"}


def test_modes_in_scope() -> None:
    state = State()
    assert state.mode_in_scope("s") == "READWRITE"
    state.apply(Key(records.MODE), b'{"mode":"READONLY"}')
    state.apply(Key(records.MODE, ":.c:"), b'{"mode":"IMPORT"}')
    state.apply(Key(records.MODE, "s"), b'{"mode":"READWRITE"}')
    modes = [state.mode_in_scope(each) for each in (None, "s", "t", ":.c:s", ":.d:s")]
    assert modes == ["READONLY", "READWRITE", "READONLY", "IMPORT", "READWRITE"]


NAMES = {
    "orders": (".", "orders", "orders"),
    "a:b": (".", "a:b", "a:b"),
    ":.c:orders": (".c", "orders", ":.c:orders"),
    ":.c:a:b": (".c", "a:b", ":.c:a:b"),
    ":.c:": (".c", "", ":.c:"),
    ":.c": (".c", "", ":.c:"),
    ":.:orders": (".", "orders", "orders"),
    "": (".", "", ""),
}


@pytest.mark.parametrize("text", NAMES)
def test_names_of_subjects(text: str) -> None:
    context, name, written = NAMES[text]
    found = subjects.parse(text)
    assert (found.context, found.name, subjects.normalize(text)) == (context, name, written)


def test_a_reference_is_in_the_context_of_what_refers() -> None:
    assert subjects.qualify(":.c:a", "b") == ":.c:b"
    assert subjects.qualify(":.c:a", ":.d:b") == ":.d:b"
    assert subjects.qualify("a", ":.d:b") == ":.d:b"
    assert subjects.qualify("a", "b") == "b"


def test_valid_names() -> None:
    assert all(subjects.is_valid(each) for each in ("a", "a/b", "ä", ":.c:a", "a b"))
    assert not any(subjects.is_valid(each) for each in ("", "a\0b", "a\n", ":.c:", "__GLOBAL", "__EMPTY"))
    assert subjects.is_valid(":.c:", or_context=True)
    assert subjects.is_valid(":.__GLOBAL:", or_context=True)
    assert not subjects.is_valid(":.__GLOBAL:a", or_context=True)
