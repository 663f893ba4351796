"""SCRAM users: what a mirror reads of a metadata log, and what it decides to carry."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.mirror.administration import NO_KEYS, Administration
from ottla.mirror.carrying import USERS, Belongings, Carry, Change, Names, carry_of, changes, key_of, made_keys
from ottla.mirror.control_topic import MirrorError
from ottla.mirror.credentials import Carried, User, UserLog, fingerprint
from ottla.mirror.mirror import Route
from ottla.protocol.internal.metadata_records import encode_record
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import CorruptBatch, SimpleRecord, build_batch
from ottla.protocol.schemas import records
from ottla.security.sasl import scram

A, B = User("a", "SCRAM-SHA-256"), User("b", "SCRAM-SHA-512")


def credential(fill: int = 1, iterations: int = 4096) -> scram.Credential:
    return scram.Credential(b"salt", bytes([fill]) * 32, bytes([fill + 1]) * 32, iterations)


def stored(user: User = A, fill: int = 1) -> records.UserScramCredentialRecord:
    found = credential(fill)
    number = scram.BY_NAME[user.mechanism].number
    return records.UserScramCredentialRecord(
        user.name, number, found.salt, found.stored_key, found.server_key, found.iterations
    )


def removed(user: User = A) -> records.RemoveUserScramCredentialRecord:
    return records.RemoveUserScramCredentialRecord(user.name, scram.BY_NAME[user.mechanism].number)


BEGIN, END, ABORT = (
    records.BeginTransactionRecord(), records.EndTransactionRecord(), records.AbortTransactionRecord()
)  # fmt: skip


def batch(offset: int, *items: Any, epoch: int = 3) -> bytes:
    values = [each if isinstance(each, bytes) else encode_record(each, 0) for each in items]
    return bytes(build_batch([SimpleRecord(0, None, each) for each in values], base_offset=offset, leader_epoch=epoch))


def test_the_log_is_replayed_up_to_what_is_committed() -> None:
    log = UserLog()
    newer = bytes((1, 99, 0, 7, 7))
    text = batch(0, stored(), newer) + batch(2, stored(B)) + batch(3, removed(), epoch=4)
    log.add(text, 3)
    assert log.users == {A: credential(), B: credential()} and (log.offset, log.epoch) == (3, 3)
    log.add(text, 4)
    assert log.users == {B: credential()} and (log.offset, log.epoch) == (4, 4)
    log.add(batch(4, stored(B, 5), records.UserScramCredentialRecord("c", 9, b"", b"", b"", 1)), 6)
    assert log.users == {B: credential(5)}, "nobody can log in with an unknown mechanism"


def test_a_transaction_counts_as_a_whole() -> None:
    log = UserLog()
    log.add(batch(0, BEGIN, stored()), 2)
    assert not log.users
    log.add(batch(2, stored(B), END), 4)
    assert set(log.users) == {A, B}
    log.add(batch(4, BEGIN, removed(), ABORT) + batch(7, stored(fill=8)), 8)
    assert log.users == {A: credential(8), B: credential()}


def test_a_snapshot_comes_in_pieces() -> None:
    text = batch(0, stored()) + batch(1, stored(B))
    for cut in range(len(text)):
        log = UserLog()
        size = log.add_snapshot(text[:cut])
        log.add_snapshot(text[size:])
        log.placed(77, 5)
        assert log.users == {A: credential(), B: credential()} and (log.offset, log.epoch) == (77, 5)


def test_what_cannot_be_read_is_refused() -> None:
    text = bytearray(batch(0, stored()))
    text[-3] ^= 1
    with pytest.raises(CorruptBatch):
        UserLog().add(bytes(text), 9)
    for value in (b"\x02\x0b\x00x", bytes((1, 11, 9)) + b"x" * 20, b"\x01"):
        with pytest.raises(KafkaError) as raised:
            UserLog().add(batch(0, value), 9)
        assert raised.value.code in (ErrorCode.unsupported_version, ErrorCode.corrupt_message)


def test_a_fingerprint_tells_credentials_apart_and_has_no_key() -> None:
    found = fingerprint(A, credential(), "ab" * 16)
    assert found.fits(A, credential())
    for other in (
        credential()._replace(salt=b"x"),
        credential()._replace(stored_key=b"x" * 32),
        credential()._replace(server_key=b"x" * 32),
        credential(iterations=8192),
    ):
        assert not found.fits(A, other)
    assert not found.fits(B, credential())
    assert found.digest != fingerprint(A, credential(), "cd" * 16).digest
    assert credential().stored_key.hex() not in json.dumps(found)


def decided(
    here: dict[User, scram.Credential],
    there: dict[str, dict[str, int]],
    made: list[User],
    known: list[User],
    *,
    deletions: bool = False,
    exclude: tuple[str, ...] = (),
    refused: str = "",
) -> list[tuple[str, str]]:
    found = [
        *changes(
            Belongings(credentials=here),
            Belongings(users=there, keys_refused=refused),
            Carry(frozenset({USERS}), deletions, (), exclude),
            Names([], ".*"),
            [key_of("user", each) for each in made],
            {each: fingerprint(each, credential(), "00" * 16) for each in known},
        )
    ]
    for each in found:
        assert each.kind == "user" and bool(each.why) == (each.action in ("leave", "refuse"))
        shown = json.dumps(each.as_json()) + repr(each)
        assert not any(key in shown for key in (repr(bytes([1]) * 32)[2:-1], "01" * 32, "stored"))
    return [(each.action, each.name) for each in found]


HAS = {"a": {"SCRAM-SHA-256": 4096}}


@pytest.mark.parametrize(
    ("here", "there", "made", "known", "more", "wanted"),
    [
        ([A, B], {}, [], [], {}, [("create", "a"), ("create", "b")]),
        ([A, B], {}, [], [], {"exclude": ("a|c",)}, [("leave", "a"), ("create", "b")]),
        ([A], {}, [], [], {"refused": "no"}, [("refuse", "a")]),
        ([A], HAS, [A], [A], {}, []),
        ([A], HAS, [A], [A], {"refused": "no"}, []),
        ([A], HAS, [A], [], {}, [("alter", "a")]),  # killed before its fingerprint was written
        ([A], {"a": {"SCRAM-SHA-256": 8192}}, [A], [A], {}, [("alter", "a")]),
        ([A], {}, [A], [A], {}, [("create", "a")]),  # somebody has removed it
        ([A], HAS, [], [], {}, [("leave", "a")]),
        ([A], {"a": {"SCRAM-SHA-512": 4096}}, [], [], {}, [("leave", "a")]),  # no second password of another
        ([], HAS, [A], [A], {}, [("leave", "a")]),
        ([], HAS, [A], [A], {"deletions": True}, [("delete", "a")]),
        ([], HAS, [A], [A], {"deletions": True, "exclude": ("a",)}, []),
        ([], HAS, [], [], {"deletions": True}, []),  # the destination's own
    ],
)
def test_what_is_done_with_a_user(
    here: list[User],
    there: dict[str, dict[str, int]],
    made: list[User],
    known: list[User],
    more: dict[str, Any],
    wanted: list[tuple[str, str]],
) -> None:
    assert decided({each: credential() for each in here}, there, made, known, **more) == wanted


def test_a_new_password_is_carried() -> None:
    assert decided({A: credential(9)}, HAS, [A], [A]) == [("alter", "a")]


def test_users_are_asked_for_by_name_and_need_controllers() -> None:
    assert USERS not in carry_of("", True, "").what
    rules = carry_of("users", True, "x", " a.*, b")
    assert rules.exclude_users == ("a.*", "b") and not rules.without_users().what
    with pytest.raises(MirrorError, match="controllers"):
        Route("a", "h:1", "b", "h:2", carry=rules)
    route = Route("a", "h:1", "b", "h:2", carry=rules, source_controllers="h:3")
    assert USERS not in route.reversed().carry.what
    with pytest.raises(MirrorError, match="not a valid regular expression"):
        Route("a", "h:1", "b", "h:2", carry=carry_of("users", True, "", "("), source_controllers="h:3")


def test_what_is_asked_of_the_destination(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal is of one row; a user that is gone already is no failure."""
    asked: list[tuple[ApiKey, Any]] = []

    def answer(key: ApiKey, values: Any) -> Any:
        asked.append((key, values))
        rows = values.get("credentials") or values["deletions"]
        codes = {"a": ErrorCode.unacceptable_credential, "gone": ErrorCode.resource_not_found}
        return {"results": [{"error_code": codes.get(each["name"], 0), "error_message": "no"} for each in rows]}

    there = Administration("127.0.0.1:1")
    monkeypatch.setattr(there._client, "ask_any", answer)
    assert there._keys_refused() == NO_KEYS
    todo = [
        *(Change("user", user.name, "create", subject=Carried(user, credential())) for user in (A, B)),
        *(Change("user", name, "delete", subject=Carried(User(name, A.mechanism))) for name in ("gone", "b")),
    ]
    assert [str(each) for each in there.apply(todo)] == ["user a: no"]
    assert [key for each in todo for key in made_keys(each)][1] == key_of("user", B)
    (store, values), *deletions = asked
    assert store == ApiKey.STORE_USER_SCRAM_CREDENTIALS and values["credentials"][1] == {
        "name": "b",
        "mechanism": 2,
        "iterations": 4096,
        "salt": b"salt",
        "stored_key": b"\x01" * 32,
        "server_key": b"\x02" * 32,
    }
    assert [key for key, _ in deletions] == [ApiKey.ALTER_USER_SCRAM_CREDENTIALS] * 2
