"""Scenario scripts for groups: commands and, under `----`, the trace that they must leave.

    join GROUP [id=MEMBER] [client=NAME] [instance=I] [protocols=range:t1+t2,sticky] [session=MS] [rebalance=MS] [v=N]
    sync GROUP id=MEMBER gen=N [assign=MEMBER:TEXT,...]      heartbeat GROUP id=MEMBER gen=N [instance=I]
    leave GROUP [ids=MEMBER[/INSTANCE],...] [instance=I]
    commit GROUP [id=MEMBER gen=N] [instance=I] [metadata=TEXT[*N]] [retention=MS] topic-0=17 ...
    txn_commit PRODUCER GROUP [id=MEMBER gen=N] [instance=I] topic-0=17 ...
    end PRODUCER commit|abort
    fetch GROUP [stable] [topic-0 ...]   describe GROUP   list   delete GROUP...   delete_offsets GROUP topic-0 ...
    wait 10s | 500ms             restart [name=value ...] (with changed settings)    unload
    hold (writes stay uncommitted)   release                 fail ERROR (the next write)
    config name=value ...        (a new, empty coordinator)

Commands of a block run one after the other; its trace has the commands' answers and the records written, in order. An
answer starts with who asked and for what. Member ids are `client-N` (or `instance-N`), N counting all members.
"""

from __future__ import annotations

import re
import struct
from typing import Any

from ottla.coordinator.config import GroupConfig
from ottla.coordinator.effects import InTransaction, Marker, Write
from ottla.coordinator.group.admin import list_groups, wanted
from ottla.coordinator.group.classic.describe import describe
from ottla.coordinator.group.offsets import fetch
from ottla.coordinator.group.requests import (
    DeleteGroups,
    EndTransaction,
    JoinGroup,
    LeaveGroup,
    Leaving,
    OffsetCommit,
    OffsetDelete,
    OffsetToCommit,
    SyncGroup,
    TxnOffsetCommit,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.model import NO_GUARD, ZERO_UUID, TopicPartition
from ottla.protocol.internal.group_records import GroupRecord
from ottla.protocol.schemas.records import GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from tests.unit.coordinator.harness import WALL_START_MS, SimulatedDriver

_MEMBER = re.compile(r"-00000000-0000-4000-8000-0*([0-9a-f]+)")


def short(text: str) -> str:
    return _MEMBER.sub(lambda found: f"-{int(found[1], 16)}", text)


def long(member_id: str) -> str:
    name, dash, number = member_id.rpartition("-")
    return f"{name}-00000000-0000-4000-8000-{int(number):012x}" if dash and number.isdigit() else member_id


def partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def subscription(topics: str) -> bytes:
    names = [name.encode() for name in topics.split("+") if name]
    return struct.pack(">hi", 0, len(names)) + b"".join(struct.pack(">h", len(n)) + n for n in names) + b"\0\0\0\0"


class Script:
    def __init__(self) -> None:
        self.driver = SimulatedDriver(GroupConfig(initial_rebalance_delay_ms=0))
        self.out: list[str] = []

    def run(self, command: str) -> list[str]:
        """The trace of one command."""
        verb, *words = command.split()
        positional = [word for word in words if "=" not in word]
        named = dict(word.split("=", 1) for word in words if "=" in word)
        who = named.get("id") or named.get("instance") or named.get("client") or ("c" if verb == "join" else "")
        token = f"{who} {verb}".strip()
        self.out = []
        seen = len(self.driver.events)
        try:
            getattr(self, f"do_{verb}")(token, positional, named)
        except KafkaError as error:
            self.out.append(f"{token} <- {error.code.name.upper()}")
        self.driver.run()
        self.out[:0] = [line for event in self.driver.events[seen:] for line in self.render(event)]
        self.driver.events.clear()
        return self.out

    # Requests

    def do_join(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        version = int(named.get("v", 9))
        protocols = {}
        for item in named.get("protocols", "range:t").split(","):
            name, _, topics = item.partition(":")
            if name:
                protocols[name] = subscription(topics)
        session = int(named.get("session", 10_000))
        request = JoinGroup(
            group_id=positional[0] if positional else "",
            member_id=long(named.get("id", "")),
            instance_id=named.get("instance"),
            client_id=named.get("client", "c"),
            client_host="/127.0.0.1",
            session_timeout_ms=session,
            rebalance_timeout_ms=int(named.get("rebalance", 60_000)),
            protocol_type=named.get("type", "consumer"),
            protocols=protocols,
            require_known_member_id=version >= 4,
            can_skip_assignment=version >= 9,
        )
        self.driver.shard.ask(token, request, self.driver.now)

    def do_sync(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        pairs = [item.split(":") for item in named.get("assign", "").split(",") if item]
        request = SyncGroup(
            group_id=positional[0],
            generation=int(named["gen"]),
            member_id=long(named["id"]),
            instance_id=named.get("instance"),
            protocol_type=named.get("type"),
            protocol_name=named.get("protocol"),
            assignments={long(member): text.encode() for member, text in pairs},
        )
        self.driver.shard.ask(token, request, self.driver.now)

    def do_heartbeat(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        self.driver.heartbeat(positional[0], long(named["id"]), named.get("instance"), int(named["gen"]))
        self.out.append(f"{token} <- ok")

    def do_leave(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        pairs = [item.partition("/") for item in named.get("ids", "").split(",") if item]
        leaving = [Leaving(long(member_id), instance or None) for member_id, _, instance in pairs]
        if "instance" in named:
            leaving.append(Leaving("", named["instance"]))
        self.driver.shard.ask(token, LeaveGroup(positional[0], leaving), self.driver.now)

    def do_commit(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        member_id, generation = named.pop("id", ""), int(named.pop("gen", -1))
        metadata, _, times = named.pop("metadata", "").partition("*")
        metadata *= int(times or 1)
        instance, retention = named.pop("instance", None), named.pop("retention", None)
        request = OffsetCommit(
            group_id=positional[0],
            member_id=long(member_id),
            generation=generation,
            instance_id=instance,
            retention_ms=None if retention is None else int(retention),
            offsets=tuple(OffsetToCommit(*partition(name), int(offset), 0, metadata) for name, offset in named.items()),
        )
        self.driver.shard.ask(token, request, self.driver.now)

    def do_txn_commit(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        member_id, generation = named.pop("id", ""), int(named.pop("gen", -1))
        instance = named.pop("instance", None)
        request = OffsetCommit(
            group_id=positional[1],
            member_id=long(member_id),
            generation=generation,
            instance_id=instance,
            offsets=tuple(OffsetToCommit(*partition(name), int(offset), 0, "") for name, offset in named.items()),
        )
        transaction = InTransaction(int(positional[0]), 0, NO_GUARD)
        self.driver.shard.ask(token, TxnOffsetCommit(request, transaction), self.driver.now)

    def do_end(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        marker = Marker(int(positional[0]), 1, positional[1] == "commit", 0, 2, ())
        self.driver.shard.ask(token, EndTransaction(marker), self.driver.now)

    def do_fetch(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        stable = "stable" in positional
        wanted = [(*partition(name),) for name in positional[1:] if name != "stable"]
        topics = fetch(
            self.driver.shard.state,
            positional[0],
            [(topic, ZERO_UUID, [number]) for topic, number in wanted] if wanted else None,
            stable,
        )
        found = [
            f"{topic.name}-{number}={error.name.upper() if error else offset}"
            for topic in topics
            for number, offset, _, _, error in topic.partitions
        ]
        self.out.append(f"{token} <- {' '.join(found) or 'nothing'}")

    def do_delete_offsets(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        topics: dict[str, list[int]] = {}
        for name in positional[1:]:
            topics.setdefault(partition(name).topic, []).append(partition(name).partition)
        self.driver.shard.ask(token, OffsetDelete(positional[0], topics), self.driver.now)

    def do_describe(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        found = describe(self.driver.shard.state, positional[0])
        members = "".join(
            f" {short(member['member_id'])}={member['member_assignment'].decode() or '-'}"
            for member in found.get("members", ())
        )
        protocol = " ".join(filter(None, (found.get("protocol_type"), found.get("protocol_data"))))
        self.out.append(f"{token} <- {found['group_state']}{' ' + protocol if protocol else ''}{members}")

    def do_list(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        states = wanted(name for name in named.get("states", "").split(",") if name)
        found = list_groups(self.driver.shard.state, states, [])
        self.out.append(f"{token} <- {' '.join(g['group_id'] + ':' + g['group_state'] for g in found) or 'nothing'}")

    def do_delete(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        self.driver.shard.ask(token, DeleteGroups(positional), self.driver.now)

    # The world

    def do_config(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        settings = {"initial_rebalance_delay_ms": 0} | {name: int(value) for name, value in named.items()}
        self.driver = SimulatedDriver(GroupConfig(**settings))

    def do_wait(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        number, unit = re.fullmatch(r"(\d+)(ms|s|h)", positional[0]).groups()  # type: ignore[union-attr]
        self.driver.wait(int(number) * {"ms": 1, "s": 1_000, "h": 3_600_000}[unit])

    def do_restart(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        self.driver.restart(**{name: int(value) for name, value in named.items()})

    def do_unload(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        self.driver.shard.unload(self.driver.now)

    def do_hold(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        self.driver.holding = True

    def do_release(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        self.driver.release()

    def do_fail(self, token: str, positional: list[str], named: dict[str, str]) -> None:
        self.driver.next_failure = ErrorCode[positional[0].lower()]

    # The trace

    def render(self, event: Write | tuple[Any, Any]) -> list[str]:
        if isinstance(event, Write):
            marker, transaction = event.marker, event.transaction
            if marker is not None:
                return [f"write {'commit' if marker.committed else 'abort'} of {marker.producer_id}"]
            inside = "" if transaction is None else f" in {transaction.producer_id}"
            return [f"write {short(self.render_record(record))}{inside}" for record in event.records]
        token, response = event
        if isinstance(response, ErrorCode):
            return [f"{token} <- {response.name.upper()}"]
        renderer = getattr(self, f"render_{token.split()[-1]}")
        return [f"{token} <- {short(renderer(response))}"]

    def render_record(self, record: GroupRecord) -> str:
        key, value = record
        if isinstance(key, OffsetCommitKey):
            name = f"offset {key.group} {key.topic}-{key.partition}"
            return f"{name}={value.offset}" if isinstance(value, OffsetCommitValue) else f"{name} deleted"
        if not isinstance(value, GroupMetadataValue):
            return f"group {key.group} deleted"
        members = "".join(f" {m.member_id}={m.assignment.decode() or '-'}" for m in value.members)
        since = value.current_state_timestamp - WALL_START_MS
        assert 0 <= since <= self.driver.timer_ms
        return f"group {key.group} gen={value.generation} {value.protocol or 'empty'}{members}"

    def render_join(self, response: dict[str, Any]) -> str:
        if response["error_code"]:
            member = f" id={response['member_id']}" if response["member_id"] else ""
            return ErrorCode(response["error_code"]).name.upper() + member
        members = ",".join(member["member_id"] for member in response["members"])
        return (
            f"id={response['member_id']} gen={response['generation_id']} {response['protocol_name']}"
            f" leader={response['leader']}"
            + (f" members={members}" if members else "")
            + (" skip-assignment" if response["skip_assignment"] else "")
        )

    def render_sync(self, response: dict[str, Any]) -> str:
        if response["error_code"]:
            return str(response["error_code"].name.upper())
        return response["assignment"].decode() or "nothing"

    def render_leave(self, response: dict[str, Any]) -> str:
        return " ".join(
            f"{m['member_id'] or m['group_instance_id']}:{m['error_code'].name.replace('none', 'ok')}"
            for m in response["members"]
        )

    def render_commit(self, response: dict[str, Any]) -> str:
        return self._render_codes({str(tp): code for tp, code in response["partitions"].items()})

    render_delete_offsets = render_txn_commit = render_commit

    def render_end(self, response: dict[str, Any]) -> str:
        return "ok"

    def render_delete(self, response: dict[str, Any]) -> str:
        return self._render_codes(response["groups"])

    @staticmethod
    def _render_codes(codes: dict[str, ErrorCode]) -> str:
        return " ".join(f"{name}:{code.name.replace('none', 'ok')}" for name, code in codes.items())


def run_file(text: str) -> str:
    """The script with the traces that really came: commands and comments keep their place."""
    script = Script()
    out: list[str] = []
    for block in text.strip().split("\n\n"):
        head = block.partition("\n----")[0].splitlines()
        commands = [line for line in head if not line.startswith("#")]
        out += head
        if commands:
            out += ["----", *(line for command in commands for line in script.run(command))]
        out.append("")
    return "\n".join(out[:-1]) + "\n"
