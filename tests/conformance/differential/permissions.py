"""Asks Ottla and Apache Kafka what users may do: every API in every version, by users who may do nothing, and by
users who may do one of the things that the handler declares.

`python -m tests.conformance.differential.permissions [--cases 5] [API ...]` starts both with the StandardAuthorizer and
prints where their answers differ. Nobody logs in: all are `User:ANONYMOUS`, and ACLs name hosts. The nodes themselves
and the test come from 127.0.0.1, who may do nothing from NOBODY, each who may do one thing from an address of its own.
"""

from __future__ import annotations

import argparse
import itertools
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ottla.model import ZERO_UUID
from ottla.protocol.messages import ApiKey
from ottla.security.acls import CLUSTER_NAME, Operation, ResourceType
from ottla.server import api
from ottla.server.handlers import TABLE
from ottla.server.security.permissions import Need, Open
from peers.kafka import KafkaPeer, hold_port, start_fast
from tests.conformance.differential import (  # noqa: F401  they add their rows to CASES
    differential_groups,
    differential_markers,
    differential_quotas,
    differential_security,
    differential_share,
    differential_streams,
    differential_transactions,
)
from tests.conformance.differential.differential import Side, differences
from tests.conformance.differential.differential_cases import CASES, World
from tests.conformance.exemptions import Difference, is_exempt
from tests.conformance.pair import TIME_LIMIT_S, Wire
from tests.node import NodeProcess

NOBODY = "127.0.0.2"
SELF = "127.0.0.1"
LITERAL, ALLOW = 3, 3
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1", "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1", "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}  # fmt: skip
PLUGIN = {
    "group.streams.topology.description.plugin.class":
        "org.apache.kafka.server.streams.InMemoryTopologyDescriptionPlugin",
}  # fmt: skip
KINDS = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID, ResourceType.CLUSTER)
ASKED_OF_KAFKA_ALONE = {
    ApiKey.API_VERSIONS: "open to everybody, and compared by test_differential.py",
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: "open to everybody", ApiKey.PUSH_TELEMETRY: "open to everybody",
    ApiKey.SASL_HANDSHAKE: "open to everybody", ApiKey.SASL_AUTHENTICATE: "open to everybody",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "compared by test_sasl_like_kafka.py",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "compared by test_sasl_like_kafka.py",
    ApiKey.DESCRIBE_ACLS: "its answer is all ACLs of the test", ApiKey.CREATE_ACLS: "changes the rules of the test",
    ApiKey.DELETE_ACLS: "changes the rules of the test", ApiKey.UPDATE_FEATURES: "changes the cluster",
    ApiKey.UNREGISTER_BROKER: "changes the cluster", ApiKey.UNREGISTER_CONTROLLER: "changes the cluster",
    ApiKey.CREATE_DELEGATION_TOKEN: "compared by test_tokens_like_kafka.py",
    ApiKey.RENEW_DELEGATION_TOKEN: "compared by test_tokens_like_kafka.py",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "compared by test_tokens_like_kafka.py",
    ApiKey.DESCRIBE_DELEGATION_TOKEN: "compared by test_tokens_like_kafka.py",
}  # fmt: skip
"""Not compared here, and why."""


class From(Wire):
    """A connection that comes from an address of its own."""

    def __init__(self, bootstrap: str, source: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.address = host, int(port)
        self.source = source
        self.socket = self._connected()

    def _connected(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=TIME_LIMIT_S, source_address=(self.source, 0))

    def receive(self, key: ApiKey, version: int) -> Any:
        answer = super().receive(key, version)
        if answer is None:
            self.socket = self._connected()
        return answer


class Guest(Side):
    """A broker as somebody sees it who comes from `source`; what things are called is what `host` knows."""

    def __init__(self, side: Side, source: str) -> None:
        self._bootstrap = ":".join(map(str, side.wire.address))
        self.known = side.known
        self.source = source
        self.wire = From(self._bootstrap, source)

    def ask(self, key: ApiKey, version: int, values: Mapping[str, Any]) -> Any:
        try:
            return self.wire.ask(key, version, self.resolve(values))
        except (TimeoutError, ConnectionError):
            self.wire = From(self._bootstrap, self.source)
            return None


class Compared(World):
    """Both sides as seen by one guest."""

    refused = 0
    """Questions that Kafka refused."""

    def seen_by(self, source: str) -> Compared:
        mine, theirs = (Guest(side, source) for side in self.sides)
        guest = Compared(mine, theirs, self.prefix, self.cases)
        for name in ("t", "empty", "txn", "shared"):
            setattr(guest, name, getattr(self, name))
        return guest

    def close(self) -> None:
        for side in self.sides:
            side.wire.socket.close()

    def ask(self, key: ApiKey, version: int, values: Mapping[str, Any], *, ours: bool = False) -> tuple[Any, Any]:
        from tests.conformance.differential.differential import _expressible

        for side in self.sides:
            if not _expressible(key, version, side.resolve(values)):
                return {}, {}
        answers = tuple(side.ask(key, version, values) for side in self.sides)
        self.asked += 1
        seen = [self._ours(answer) for answer in answers]
        if key == ApiKey.ALTER_SHARE_GROUP_OFFSETS:
            seen = [_without_ids(answer) for answer in seen]
        found = differences(self.mine.view(seen[0]), theirs := self.theirs.view(seen[1]))
        self.refused += "authorization_failed" in str(theirs)
        request = self.mine.resolve(values)
        texts = [
            self.short(each)
            for each in found
            if not is_on_purpose(key, request, each) and not is_exempt(self.cases, key, request, each)
        ]
        if texts:
            self.found.append("\n    ".join([f"{key.name} v{version} {self.short(values)}", *texts[:4]]))
        return answers


def is_on_purpose(key: ApiKey, request: Mapping[str, Any], difference: Difference) -> bool:
    """Refusals say who lacks what. Settings are looked at only after their owner was. A transaction ends sooner."""
    if difference.field.endswith(("error_message", "status_detail")) or difference.theirs == "unknown_server_error":
        return True
    if key in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS) and difference.theirs == "invalid_request":
        return str(difference.mine).endswith("authorization_failed")
    if key == ApiKey.END_TXN and difference.theirs == "concurrent_transactions":
        return True
    return key == ApiKey.FETCH and request.get("isolation_level", 0) not in (0, 1)


def _without_ids(answer: Any) -> Any:
    """Kafka says the id of a topic that the client may not read."""
    return {**answer, "responses": [{**row, "topic_id": ZERO_UUID} for row in answer["responses"]]}


def acl(host: str, operation: Operation, kind: ResourceType) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": CLUSTER_NAME if kind == ResourceType.CLUSTER else "*",
        "resource_pattern_type": LITERAL,
        "principal": "User:ANONYMOUS",
        "host": host,
        "operation": operation,
        "permission_type": ALLOW,
    }


def things(keys: Iterable[ApiKey]) -> Iterator[tuple[ApiKey, Need, tuple[Operation, ResourceType], str]]:
    """Each single thing that might be enough, and the address of who may do it."""
    hosts = (f"127.1.{high}.{low}" for high in range(250) for low in range(1, 250))
    for key in keys:
        needs = api.load(key).needs
        for need in () if isinstance(needs, Open) else needs:
            for thing in ((need.operation, need.kind), *need.instead):
                yield key, need, thing, next(hosts)


@contextmanager
def brokers(directory: Path, *, pair: bool = False) -> Iterator[Compared]:
    """Ottla and Kafka with the same topics, and no ACL yet. `pair`: of Ottla a broker and a controller, which opens the
    Envelopes in which requests are forwarded."""
    with ExitStack() as stack:
        settings = dict(SETTINGS)
        if pair:
            port = stack.enter_context(hold_port()).getsockname()[1]
            listener = f"127.0.0.1:{port}"
            shared = {
                **SETTINGS,
                "controller.quorum.voters": f"1@{listener}",
                "controller.listener.names": "CONTROLLER",
            }
            own = {"process.roles": "controller", "node.id": "1", "listeners": f"CONTROLLER://{listener}"}
            stack.enter_context(NodeProcess(directory / "controller", {**shared, **own}, port=port))
            settings = {**shared, "process.roles": "broker", "node.id": "2"}
        kafka = KafkaPeer(
            directory / "kafka",
            heap="512m",
            flags=start_fast("4.4"),
            release="4.4",
            settings=SETTINGS | PLUGIN,
            node_id=2 if pair else 1,
        )
        stack.enter_context(kafka)
        node = stack.enter_context(NodeProcess(directory / "ottla", settings))
        prefix = f"d{os.getpid()}-{time.time_ns() % 10**9}-"
        world = Compared(Side(node.bootstrap), Side(kafka.bootstrap), prefix, "answers")
        world.populate()
        world.wait_for_coordinators()
        yield world


def set_rules(world: World, rules: list[dict[str, Any]]) -> None:
    """Only these ACLs, and everything for the nodes and the test; returns when both sides go by them."""
    own = [acl(SELF, Operation.ALL, kind) for kind in KINDS]
    for side in world.sides:
        (answer,) = [side.ask(ApiKey.CREATE_ACLS, 3, {"creations": [*rules, *own]})]
        failed = [row for row in answer["results"] if row["error_code"]]
        assert not failed, failed[:3]
        nobody = Guest(side, NOBODY)
        asked = {"resources": [{"resource_type": 4, "resource_name": "", "configuration_keys": None}]}
        while nobody.ask(ApiKey.DESCRIBE_CONFIGS, 4, asked)["results"][0]["error_code"] != 31:
            time.sleep(0.02)


def compare(world: Compared, keys: Iterable[ApiKey], cases: int, versions: int) -> tuple[int, int, list[str]]:
    """Number of questions, how many of them Kafka refused, and where the answers differ.

    At most `cases` of each API and version, and `versions` of an API: the newest, the oldest, those between.
    """
    keys = [key for key in keys if key not in ASKED_OF_KAFKA_ALONE]
    rules = [*things(keys)]
    set_rules(world, [acl(host, *thing) for _, _, thing, host in rules])
    found: list[str] = []
    asked = refused = 0
    for key in keys:
        row = TABLE[key]
        low = 3 if key == ApiKey.PRODUCE else row.min_version
        some = [row.max_version, low, *range(row.max_version - 1, low, -1)]
        # Those who may do everything make what the questions are about.
        questions = [
            (version, values)
            for version in dict.fromkeys(some[:versions])
            for values in itertools.islice(CASES[key](world, version), cases)
        ]
        world.found.clear()
        users = {NOBODY: "nobody"}
        users |= {host: f"{thing[0].name} {thing[1].name}" for of, _, thing, host in rules if of == key}
        for host, what in users.items():
            guest = world.seen_by(host)
            for version, values in questions:
                guest.ask(key, version, values)
            asked += guest.asked
            refused += guest.refused
            found += [f"{what}: {text}" for text in dict.fromkeys(guest.found)]
            guest.close()
    return asked, refused, found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("apis", nargs="*", help="all without one")
    parser.add_argument("--cases", type=int, default=5, help="of each API and version")
    parser.add_argument("--versions", type=int, default=99, help="of each API")
    parser.add_argument("--pair", action="store_true", help="a broker and a controller of Ottla, not one node")
    options = parser.parse_args(arguments)
    keys = [ApiKey[name] for name in options.apis] or [ApiKey(key) for key in TABLE]
    with tempfile.TemporaryDirectory() as directory, brokers(Path(directory), pair=options.pair) as world:
        asked, refused, found = compare(world, keys, options.cases, options.versions)
    print(*found, f"{asked} questions, {refused} refused, {len(found)} answers differ", sep="\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
