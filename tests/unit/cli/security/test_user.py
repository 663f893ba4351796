"""`ottla user`: passwords are read, never given on a command line; credentials go through librdkafka's admin client."""

from __future__ import annotations

import io
import json
import sys
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from ottla.cli.exits import FAILED, MISUSED, OK, CommandFailed
from ottla.cli.security import user as users
from tools import cli_page


class Admin:
    """A cluster's SCRAM credentials: (iterations, password) by user and mechanism."""

    def __init__(self) -> None:
        self.known: dict[str, dict[str, tuple[int, bytes]]] = {}
        self.refusal: KafkaException | None = None

    def describe_user_scram_credentials(self, names: list[str] | None = None) -> Any:
        if names is None:
            return done({user: self._shown(user) for user in self.known})
        return {
            user: done(self._shown(user)) if user in self.known else failed(users.RESOURCE_NOT_FOUND) for user in names
        }

    def _shown(self, user: str) -> Any:
        infos = [
            SimpleNamespace(mechanism=SimpleNamespace(name=name.replace("-", "_")), iterations=rounds)
            for name, (rounds, _) in self.known[user].items()
        ]
        return SimpleNamespace(scram_credential_infos=infos)

    def alter_user_scram_credentials(self, changes: list[Any]) -> Any:
        (change,) = changes
        if self.refusal is not None:
            return {change.user: failed(self.refusal.args[0].code())}
        if hasattr(change, "password"):
            info = change.scram_credential_info
            name = info.mechanism.name.replace("_", "-")
            self.known.setdefault(change.user, {})[name] = info.iterations, change.password
        else:
            del self.known[change.user][change.mechanism.name.replace("_", "-")]
            if not self.known[change.user]:
                del self.known[change.user]
        return {change.user: done(None)}


def done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def failed(code: int) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(KafkaException(KafkaError(code)))
    return future


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Admin:
    found = Admin()
    monkeypatch.setattr(users, "admin_client", lambda bootstrap: found)
    return found


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_create_list_and_delete(
    admin: Admin, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    typed(monkeypatch, "from standard input\nnot this\n")
    assert users.create("alice", password_file=Path("-")) == OK
    (tmp_path / "secret").write_text("from a file\r\n")
    assert (
        users.create("bob", password_file=tmp_path / "secret", mechanism=list(users.MECHANISMS), iterations=8192) == OK
    )
    assert admin.known == {
        "alice": {"SCRAM-SHA-512": (4096, b"from standard input")},
        "bob": dict.fromkeys(users.MECHANISMS, (8192, b"from a file")),
    }
    out = capsys.readouterr().out
    assert out == "user alice: SCRAM-SHA-512\nuser bob: SCRAM-SHA-256, SCRAM-SHA-512\n", "no password"
    assert users.list_users() == OK
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["USER", "MECHANISM", "ITERATIONS"],
        ["alice", "SCRAM-SHA-512", "4096"],
        ["bob", "SCRAM-SHA-256", "8192"],
        ["bob", "SCRAM-SHA-512", "8192"],
    ]
    assert users.delete(("bob",), mechanism=["scram-sha-256"]) == OK
    assert users.delete(("alice", "bob"), json=True) == OK
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "user bob deleted: SCRAM-SHA-256"
    assert json.loads(out[1]) == [
        {"user": "alice", "mechanisms": ["SCRAM-SHA-512"]},
        {"user": "bob", "mechanisms": ["SCRAM-SHA-512"]},
    ]
    assert admin.known == {}
    assert users.list_users(json=True) == OK and json.loads(capsys.readouterr().out) == []


def test_a_generated_password_is_printed_once(admin: Admin, capsys: pytest.CaptureFixture[str]) -> None:
    assert users.create("alice", generate=True, json=True) == OK
    found = json.loads(capsys.readouterr().out)
    assert admin.known["alice"]["SCRAM-SHA-512"][1] == found["password"].encode()
    assert len(found["password"]) == 24 and found["mechanisms"] == ["SCRAM-SHA-512"]
    assert users.create("bob", generate=True) == OK
    first, second = capsys.readouterr().out.splitlines()
    assert first == "user bob: SCRAM-SHA-512"
    assert admin.known["bob"]["SCRAM-SHA-512"][1].decode() == second.removeprefix("password: ") != found["password"]


def test_who_exists_is_replaced_only_where_it_is_said(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    admin.known["alice"] = {"SCRAM-SHA-512": (4096, b"old")}
    with pytest.raises(CommandFailed, match=r"user 'alice' exists \(SCRAM-SHA-512\)") as raised:
        users.create("alice", generate=True)
    assert raised.value.exit_code == FAILED and admin.known["alice"]["SCRAM-SHA-512"][1] == b"old"
    typed(monkeypatch, "new\n")
    assert users.create("alice", password_file=Path("-"), replace=True) == OK
    assert admin.known["alice"]["SCRAM-SHA-512"][1] == b"new"
    typed(monkeypatch, "other\n")
    assert users.create("alice", password_file=Path("-"), mechanism=["SCRAM-SHA-256"]) == OK


def test_passwords_that_cannot_be(admin: Admin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")

    def refused(why: str, **options: Any) -> None:
        with pytest.raises(CommandFailed, match=why):
            users.create("alice", **options)

    typed(monkeypatch, "")
    refused("there is no terminal to ask")
    refused("the password is empty", password_file=Path("-"))
    typed(monkeypatch, "a\tb\n")
    refused("cannot be printed", password_file=Path("-"))
    refused("cannot be read from .*: No such file", password_file=tmp_path / "none")
    refused("it is not UTF-8", password_file=tmp_path / "binary")
    refused("either --generate or --password-file", password_file=tmp_path / "none", generate=True)
    refused("--mechanism must be SCRAM-SHA-256 or SCRAM-SHA-512", generate=True, mechanism=["PLAIN"])
    assert admin.known == {}


def test_a_terminal_is_asked_twice(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    answers = iter(["one", "two", "same", "same"])
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(answers))
    with pytest.raises(CommandFailed, match="the two passwords differ") as raised:
        users.create("alice")
    assert raised.value.exit_code == MISUSED
    assert users.create("alice") == OK and admin.known["alice"]["SCRAM-SHA-512"][1] == b"same"


def test_who_does_not_exist(admin: Admin, capsys: pytest.CaptureFixture[str]) -> None:
    admin.known["alice"] = {"SCRAM-SHA-512": (4096, b"old")}
    with pytest.raises(CommandFailed, match="there is no user 'nobody'\n  see the users with: ottla user list"):
        users.delete(("nobody", "alice"))
    assert admin.known == {}, "the others are deleted"
    assert users.delete(("nobody",), if_exists=True, json=True) == OK
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == []


def test_what_the_cluster_refuses(admin: Admin) -> None:
    admin.refusal = KafkaException(KafkaError(93))
    with pytest.raises(CommandFailed, match=r"user 'alice': .*UNACCEPTABLE_CREDENTIAL"):
        users.create("alice", generate=True)


def test_no_option_takes_a_password() -> None:
    """Others could read it in the list of processes."""
    (command,) = (command for name, command in cli_page.commands() if name == "ottla user create")
    options = [option for each in command.assemble_argument_collection() for option in each.names]
    assert "--password-file" in options and "--password" not in options
