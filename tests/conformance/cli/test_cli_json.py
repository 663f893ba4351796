"""Every command that prints has `--json`: its output and its complaints are JSON, line by line."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.cli.exits import MISUSED, OK, UNREACHABLE
from ottla.cli.main import main
from ottla.security.audit import Chain
from tests.conformance.cli.dead_letter import leave_a_dead_letter
from tools import cli_page as page

ABOUT_ANYTHING = {
    "ottla topic create", "ottla produce", "ottla tail", "ottla quota set", "ottla quota remove", "ottla acl add",
    "ottla acl remove", "ottla acl explain", "ottla user create", "ottla user delete",
    "ottla user disconnect", "ottla client disconnect",
    "ottla token create", "ottla token renew", "ottla token expire",
}  # fmt: skip
"""Commands whose names need not be of anything that is there."""
PRINT_NO_DATA = {
    "ottla server start", "ottla completion", "ottla cluster up", "ottla cluster add", "ottla cluster restart",
    "ottla sim", "ottla registry", "ottla storage format", "ottla quorum add", "ottla quorum remove",
    "ottla quorum unregister",
    "ottla cert renew", "ottla security env", "ottla console",
}  # fmt: skip
"""Nodes, scripts for shells, histories, and those that only do what they are told."""

SERVE = {"ottla dev"}
"""They print one line and go on: `test_dev.py` reads it."""

COMMANDS: dict[str, list[str]] = {
    "ottla topic create": ["TOPIC-new", "TOPIC"],
    "ottla topic delete": ["TOPIC-new"],
    "ottla topic alter": ["TOPIC", "--partitions", "3", "--set", "retention.ms=3600000"],
    "ottla topic list": [],
    "ottla topic describe": ["TOPIC"],
    "ottla topic explain": ["TOPIC"],
    "ottla produce": ["TOPIC", "a", "b"],
    "ottla consume": ["TOPIC"],
    "ottla tail": ["FORMATTED/nothing.log", "--to", "TOPIC", "--once", "--state", "FORMATTED/tail.json"],
    "ottla group list": [],
    "ottla group describe": ["GROUP"],
    "ottla group watch": ["GROUP", "--count", "1"],
    "ottla group reset": ["GROUP", "--to", "end"],
    "ottla group delete": ["GROUP"],
    "ottla txn list": [],
    "ottla txn describe": ["TRANSACTION"],
    "ottla txn hanging": [],
    "ottla txn abort": ["TRANSACTION"],
    "ottla config get": ["--topic", "TOPIC"],
    "ottla config set": ["segment.ms=60000", "--topic", "TOPIC"],
    "ottla config unset": ["segment.ms", "--topic", "TOPIC"],
    "ottla config explain": ["segment.ms", "--topic", "TOPIC"],
    "ottla share list": [],
    "ottla share describe": ["SHARED"],
    "ottla share dead": ["SHARED", "--dead-topic", "LETTERS"],
    "ottla share redrive": ["SHARED", "--dead-topic", "LETTERS"],
    "ottla quota list": [],
    "ottla quota set": ["producer_byte_rate=1000000", "--client-id", "TOPIC", "--default", "user"],
    "ottla quota remove": ["producer_byte_rate", "--client-id", "TOPIC", "--default", "user"],
    "ottla acl list": [],
    "ottla acl add": ["alice", "read", "topic:TOPIC"],
    "ottla acl remove": ["alice", "read", "topic:TOPIC"],
    "ottla acl explain": ["alice", "read", "topic:TOPIC"],
    "ottla user list": [],
    "ottla audit verify": ["FORMATTED/audit"],
    "ottla audit search": ["FORMATTED/audit"],
    "ottla user create": ["TOPIC-user", "--generate"],
    "ottla user delete": ["TOPIC-user"],
    "ottla user disconnect": ["TOPIC-user"],
    "ottla client list": [],
    "ottla client disconnect": ["TOPIC-user"],
    "ottla token list": [],
    "ottla token create": [],
    "ottla token renew": ["AAAAAAAAAAAAAAAAAAAAAQ"],
    "ottla token expire": ["AAAAAAAAAAAAAAAAAAAAAQ"],
    "ottla cluster describe": [],
    "ottla cluster api-versions": [],
    "ottla cluster balance": ["--sample", "0.1"],
    "ottla cluster drain": ["1", "--dry-run"],
    "ottla cluster remove": ["77"],
    "ottla topic elect": ["TOPIC"],
    "ottla topic replicate": ["TOPIC", "--factor", "1", "--dry-run"],
    "ottla quorum describe": [],
    "ottla quorum repair": ["FORMATTED/voter"],
    "ottla features describe": [],
    "ottla features upgrade": ["--release", "4.4"],
    "ottla features downgrade": ["--feature", "share.version=1", "--dry-run"],
    "ottla storage info": ["FORMATTED"],
    "ottla check": ["--seconds", "0.5", "--topic", "CHECKED"],
    "ottla server status": [],
    "ottla server health": ["--http", "127.0.0.1:1"],
    "ottla log dump": ["DIRECTORY"],
    "ottla log verify": ["DIRECTORY"],
    "ottla log repair": ["DIRECTORY"],
    "ottla log convert": ["DIRECTORY", "--dry-run"],
    "ottla sql": ['select * from "TOPIC"'],
    "ottla spark archive": ["ARCHIVE.tar.gz"],
    "ottla mirror status": ["a"],
    "ottla mirror plan": ["a", "--topics", "none-of-them"],
    "ottla migrate check": [],
    "ottla migrate walk": ["--stop", "true", "--start", "true", "--plan"],
    "ottla migrate zookeeper": ["--connect", "127.0.0.1:1", "--execute", "--config", "none.properties"],
    "ottla mirror offsets": ["a", "TOPIC"],
    "ottla mirror failover": ["a"],
    "ottla mirror failback": ["a"],
    "ottla schema list": [],
    "ottla schema show": ["t-value"],
    "ottla schema check": ["t-value", "FORMATTED/t.avsc"],
    "ottla schema register": ["json-value", "FORMATTED/t.avsc"],
    "ottla schema diff": ["t-value"],
    "ottla pipeline list": [],
    "ottla pipeline describe": ["activity"],
    "ottla pipeline run": ["EMPTY.py", "--directory", "FORMATTED"],
    "ottla pipeline status": ["--directory", "FORMATTED"],
    "ottla pipeline stop": ["activity", "--directory", "FORMATTED"],
    "ottla pipeline logs": ["activity", "--directory", "FORMATTED"],
    "ottla pipeline feed": ["activity", "-n", "10"],
    "ottla pipeline new": ["FORMATTED/mine", "--from", "activity"],
    "ottla cert show": ["FORMATTED/t.avsc"],
}
"""Arguments of each command; names in capitals are filled in."""

NEED_NO_BROKER = {
    "ottla log dump", "ottla log verify", "ottla log repair", "ottla log convert", "ottla storage info",
    "ottla spark archive",
    "ottla pipeline list", "ottla pipeline describe", "ottla pipeline status", "ottla pipeline stop",
    "ottla pipeline new", "ottla pipeline logs", "ottla schema list", "ottla schema show", "ottla schema check",
    "ottla schema register", "ottla schema diff", "ottla quorum repair", "ottla server health",
    "ottla cert show", "ottla audit verify", "ottla audit search", "ottla mirror plan", "ottla migrate zookeeper",
}  # fmt: skip
REFUSED = {
    "ottla pipeline stop": "activity has not run",
    "ottla pipeline logs": "activity has no log",
    "ottla mirror status": "there is no mirror of a at",
    "ottla migrate zookeeper": "cannot read the configuration file",
    "ottla mirror offsets": "there is no mirror of a at",
    "ottla mirror failover": "there is no mirror of a at",
    "ottla mirror failback": "there is no mirror of a at",
    "ottla server health": "no node answers at 127.0.0.1:1",
    "ottla cert show": "t.avsc has no certificate",
    **dict.fromkeys(
        ("ottla acl list", "ottla acl add", "ottla acl remove", "ottla acl explain"), "the cluster checks no ACLs"
    ),
    **dict.fromkeys(
        ("ottla token list", "ottla token create", "ottla token renew", "ottla token expire"),
        "this connection may not be used for tokens",
    ),
    "ottla cluster drain": "no broker would remain",
    "ottla cluster remove": "77 is not currently registered (BROKER_ID_NOT_REGISTERED)",
}
"""Commands that fail on the only broker of a cluster."""


def arguments(name: str, **words: str) -> list[str]:
    def filled(text: str) -> str:
        for word, value in words.items():
            text = text.replace(word, value)
        return text

    return [*name.split()[1:], *map(filled, COMMANDS[name]), "--json"]


def test_every_command_is_asked_here() -> None:
    names = {name for name, _ in page.commands()}
    assert names - PRINT_NO_DATA - SERVE == set(COMMANDS)
    for name, command in page.commands():
        options = [each.names[0] for each in command.assemble_argument_collection()]
        assert ("--json" in options) == (name not in PRINT_NO_DATA), name


Ask = Callable[[list[str]], tuple[int, list[Any], list[Any]]]


@pytest.fixture
def ask(capfd: pytest.CaptureFixture[str]) -> Ask:
    """Runs a command here: (exit code, the lines that it printed, its complaints), all parsed."""

    def run(typed: list[str]) -> tuple[int, list[Any], list[Any]]:
        code = main(typed)
        out, error = capfd.readouterr()
        return code, [json.loads(line) for line in out.splitlines()], [json.loads(line) for line in error.splitlines()]

    return run


@pytest.fixture(scope="module")
def filled(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A topic with records, a group that has read one, a share group with a dead letter, and a transaction that is
    open."""
    topic = f"json-{os.getpid()}-{time.time_ns() % 10**9}"
    directory = tmp_path_factory.mktemp("log") / f"{topic}-0"
    directory.mkdir()
    (directory / "00000000000000000000.log").write_bytes(b"")
    assert main(["storage", "format", str(directory.parent)]) == OK
    os.environ["OTTLA_BOOTSTRAP"] = bootstrap
    try:
        assert main(["topic", "create", topic, "-p", "2"]) == OK
        assert main(["topic", "create", f"dlq.{topic}"]) == OK
        assert main(["produce", topic, "x", "y", "z", "-H", "a=b", "-p", "0"]) == OK
        assert main(["group", "reset", f"{topic}-group", "--topic", f"{topic}:0", "--to", "1"]) == OK
    finally:
        del os.environ["OTTLA_BOOTSTRAP"]
    leave_a_dead_letter(bootstrap, f"{topic}-shared", topic, f"dlq.{topic}")
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-id", "transaction.timeout.ms": 600_000}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(f"{topic}-written", b"x")
    assert producer.flush(60) == 0
    formatted = str(directory.parent)
    (directory.parent / "t.avsc").write_text('{"type": "record", "name": "T", "fields": []}')
    (directory.parent / "audit" / "node-1").mkdir(parents=True)
    line = Chain().seal(0, {"event": "Started"})
    (directory.parent / "audit" / "node-1" / "audit-00000000000000000001.jsonl").write_bytes(line)
    (directory.parent / "voter" / "__cluster_metadata-0").mkdir(parents=True)
    (directory.parent / "empty.py").write_text('"""Nothing."""\n\n\ndef build(job): ...\n')
    return {
        "TOPIC": topic,
        "GROUP": f"{topic}-group",
        "DIRECTORY": str(directory),
        "FORMATTED": formatted,
        "CHECKED": f"{topic}-checked",
        "TRANSACTION": f"{topic}-id",
        "ARCHIVE": str(directory.parent / "archive"),
        "EMPTY": str(directory.parent / "empty"),
        "SHARED": f"{topic}-shared",
        "LETTERS": f"dlq.{topic}",
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_output(
    name: str, bootstrap: str, registry_url: str, filled: dict[str, str], ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP", bootstrap)
    monkeypatch.setenv("OTTLA_REGISTRY", registry_url)
    monkeypatch.setenv("OTTLA_MIRROR_FROM", bootstrap)
    code, printed, complaints = ask(arguments(name, **filled))
    if name == "ottla topic create":
        assert [(each["topic"], each["error"]) for each in printed[0]] == [
            (f"{filled['TOPIC']}-new", None),
            (filled["TOPIC"], "TOPIC_ALREADY_EXISTS"),
        ]
        assert code == 1 and "ottla topic alter" in complaints[0]["hint"]
        return
    if name in REFUSED:
        assert code in (1, MISUSED) and printed == [] and REFUSED[name] in complaints[0]["error"]
        return
    assert (code, complaints) == (OK, [])
    assert printed and all(isinstance(each, dict | list) for each in printed)


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - NEED_NO_BROKER))
def test_nobody_answers(name: str, filled: dict[str, str], ask: Ask) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        code, printed, complaints = ask([*arguments(name, **filled), "--bootstrap", address])
    assert (code, printed) == (UNREACHABLE, [])
    (complaint,) = complaints
    assert address in complaint["error"] and "ottla server start" in complaint["hint"]
    assert complaint["exit_code"] == UNREACHABLE


@pytest.mark.parametrize("name", COMMANDS)
def test_mistakes(name: str, filled: dict[str, str], ask: Ask) -> None:
    code, printed, complaints = ask([*arguments(name, **filled), "--no-such-option"])
    assert (code, printed) == (MISUSED, [])
    assert "--no-such-option" in complaints[0]["error"] and f"{name} --help" in complaints[0]["hint"]


def test_what_is_not_there(bootstrap: str, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP", bootstrap)
    absent = {
        "TOPIC": "no-such-topic",
        "GROUP": "no-such-group",
        "DIRECTORY": str(tmp_path / "none"),
        "TRANSACTION": "no-such-id",
        "SHARED": "no-such-group",
        "LETTERS": "no-such-topic",
    }
    for name, typed in COMMANDS.items():
        if not absent.keys() & set(typed) or name in ABOUT_ANYTHING or name.startswith("ottla mirror"):
            continue  # about nothing in particular, or it would make the topic, or the mirror is missed first
        code, _, complaints = ask(arguments(name, **absent))
        assert code == 1 and len(complaints) == 1, name
        assert any(each in complaints[0]["error"] for each in absent.values()), name
