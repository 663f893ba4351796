"""An open cluster of three nodes is secured by rolling restarts, and opened again, under load: no request may fail.

    python -m tests.cluster securing [--seed N]

The phases are those of docs/secure.md ("Secure a cluster that runs"): a second listener for clients and one for
controllers, then both used between the nodes and ACLs, then the open ones gone. Clients of each kind write with
idempotence and in transactions, and read in a group, whenever their listener is there on all nodes.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import uuid4

import uvloop
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from ottla.clock import SystemClock
from ottla.config.server import ServerConfig
from ottla.filesystem import OsFileSystem
from ottla.model import uuid_to_base64
from ottla.network import SystemNetwork
from ottla.server.node import Node
from ottla.testing.process import reserve
from tests.certificates import Authority, ssl_settings
from tests.cluster.processes import QUICK, Voter, loop_of
from tests.node import FOR_EVER

T = TypeVar("T")

JAAS: Final = "org.apache.kafka.common.security.{}LoginModule required {};"
NODE: Final = 'username="node" password="node-secret"'
PASSWORDS: Final = {"node": "node-secret", "admin": "admin-secret", "alice": "alice-secret"}
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
WAIT_S: Final = 120.0
PARTITIONS: Final = 2
PAUSE_S: Final = 0.04
"""Between two records of a writer."""
PER_TRANSACTION: Final = 5

OPEN, BOTH, BETWEEN, SECURED = PHASES = ("open", "both", "between", "secured")
THERE: Final = PHASES
THERE_AND_BACK: Final = (*PHASES, BETWEEN, BOTH, OPEN)


class Process(Voter):
    """A node in a process of its own."""

    def check(self) -> None:
        """Raises AssertionError if it has ended."""
        assert self.process is not None and self.process.poll() is None, self.printed()[-3000:]

    def end(self) -> None:
        if self.process is not None:
            self.kill()

    def printed(self) -> str:
        return self.output.read_text() if self.output.exists() else ""


class Threads:
    """An event loop in a thread, for nodes that need no processes of their own."""

    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(WAIT_S)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(WAIT_S)
        self.loop.close()


class Embedded(Voter):
    """A node on the loop of this process: its restart costs a tenth of a process's."""

    loop: Threads
    node: Node | None = None
    starting: Future[None] | None = None

    def begin(self) -> None:
        settings = {"log.dirs": str(self.data), **self.settings, "ottla.event.loop": "uvloop"}

        async def start() -> None:
            config = ServerConfig.load(None, settings, {})
            seed = random.Random(str(self.data) + str(time.monotonic()))
            self.node = Node(config, OsFileSystem(), SystemClock(), seed, SystemNetwork())
            await self.node.start()

        self.starting = asyncio.run_coroutine_threadsafe(start(), self.loop.loop)

    def check(self) -> None:
        """Raises what its start has raised."""
        assert self.starting is not None
        if self.starting.done():
            self.starting.result()

    def stop(self) -> int:
        assert self.node is not None and self.starting is not None
        self.starting.result(WAIT_S)
        self.loop.run(self.node.stop())
        self.node = None
        return 0

    def end(self) -> None:
        if self.node is not None:
            self.loop.run(self.node.stop())

    def printed(self) -> str:
        return ""


class Cluster:
    """Nodes 1 to 3, each broker and controller, all in one phase but while they are restarted one by one."""

    def __init__(
        self, directory: Path, kind: type[Process] | type[Embedded] = Process, *, is_dynamic: bool = False
    ) -> None:
        """`is_dynamic`: the metadata log names the voters (KIP-853), not the settings."""
        self.is_dynamic = is_dynamic
        self.authority = Authority()
        self.nodes: list[Process | Embedded] = []
        self.admins = "plain"
        """The listener at which administrators ask: one that all nodes have."""
        self._admins: dict[str, AdminClient] = {}
        self._addresses: list[dict[str, str]] = []
        self._tls: list[dict[str, str]] = []
        for number in (1, 2, 3):
            node = kind(directory / f"node-{number}", is_broker=True)
            held = [reserve(0) for _ in range(2)]
            for each in held:
                weakref.finalize(node, each.close)
            secured, controllers = (f"127.0.0.1:{each.getsockname()[1]}" for each in held)
            self._addresses.append(
                {"PLAINTEXT": node.bootstrap, "CONTROLLER": node.controller, "SASL_SSL": secured, "QUORUM": controllers}
            )
            identity = self.authority.issue(f"node-{number}")
            self._tls.append(ssl_settings(directory / f"tls-{number}", self.authority, identity))
            self.nodes.append(node)
        self._trust = self._tls[0]["ssl.truststore.location"]

    def settings(self, number: int, phase: str) -> dict[str, str]:
        """The settings of node `number` (from 0) in a phase."""
        used = "CONTROLLER" if phase in (OPEN, BOTH) else "QUORUM"
        names = {OPEN: "CONTROLLER", BOTH: "CONTROLLER,QUORUM", BETWEEN: "QUORUM,CONTROLLER", SECURED: "QUORUM"}[phase]
        listeners = [] if phase == SECURED else ["PLAINTEXT"]
        listeners += [] if phase == OPEN else ["SASL_SSL"]
        own = self._addresses[number]
        return {
            "process.roles": "broker,controller",
            "node.id": str(number + 1),
            "listeners": ",".join(f"{name}://{own[name]}" for name in (*listeners, *names.split(","))),
            "inter.broker.listener.name": "PLAINTEXT" if phase in (OPEN, BOTH) else "SASL_SSL",
            "controller.listener.names": names,
            **self._voters(used),
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL,QUORUM:SASL_SSL"
            ),
            "ottla.cluster.id": "a-cluster-to-secure-00A",
            "ottla.event.loop": loop_of(number + 1),
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "offsets.topic.replication.factor": "3",
            "offsets.topic.num.partitions": "3",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.min.isr": "2",
            "transaction.state.log.num.partitions": "3",
            **QUICK,
            **FOR_EVER,
            **({} if phase == OPEN else {**self._tls[number], **LOGINS}),
            **({} if phase in (OPEN, BOTH) else RULES),
            **(WHILE_OPEN if phase == BETWEEN else {}),
        }

    def _voters(self, listener: str) -> dict[str, str]:
        places = [each[listener] for each in self._addresses]
        if self.is_dynamic:
            return {"controller.quorum.bootstrap.servers": ",".join(places)}
        return {"controller.quorum.voters": ",".join(f"{n}@{each}" for n, each in enumerate(places, 1))}

    def _format(self) -> None:
        ids = [uuid_to_base64(uuid4()) for _ in self.nodes]
        first = ",".join(f"{n}@{each['CONTROLLER']}:{ids[n - 1]}" for n, each in enumerate(self._addresses, 1))
        for node in self.nodes:
            settings = [part for name, value in node.settings.items() for part in ("--set", f"{name}={value}")]
            command = [sys.executable, "-m", "ottla.cli.main", "storage", "format", str(node.data), *settings]
            more = ["--cluster-id", node.settings["ottla.cluster.id"], "--initial-controllers", first]
            subprocess.run([*command, *more], check=True, timeout=WAIT_S, capture_output=True)

    def client(self, kind: str, user: str = "alice") -> dict[str, Any]:
        """librdkafka's settings of a client of the listeners "plain" or "secured"."""
        listener = "PLAINTEXT" if kind == "plain" else "SASL_SSL"
        settings = {
            "bootstrap.servers": ",".join(each[listener] for each in self._addresses),
            "log_level": 0,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 2000,
        }
        if kind == "plain":
            return settings
        return settings | {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self._trust,
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": PASSWORDS[user],
        }

    def admin(self) -> AdminClient:
        if self.admins not in self._admins:
            self._admins[self.admins] = AdminClient(self.client(self.admins, "admin"))
        return self._admins[self.admins]

    def start(self, phase: str) -> None:
        for number, node in enumerate(self.nodes):
            node.settings = self.settings(number, phase)
        if self.is_dynamic:
            self._format()
        for node in self.nodes:
            node.begin()
        self.wait_whole()

    def roll(self, before: str, phase: str) -> None:
        """Restart the nodes, one after the other, with the settings of another phase."""
        self.admins = "plain" if listens("plain", (before, phase)) else "secured"
        for number, node in enumerate(self.nodes):
            assert node.stop() == 0
            node.settings = self.settings(number, phase)
            node.begin()
            self.wait_whole()

    def wait_whole(self) -> None:
        """Until all replicas are in sync."""
        until(self.is_whole, "replicas are out of sync, or a node is missing")

    def is_whole(self) -> bool:
        for node in self.nodes:
            node.check()
        try:
            found = self.admin().list_topics(timeout=2)
        except KafkaException:
            return False
        rows = [each for topic in found.topics.values() for each in topic.partitions.values()]
        return len(found.brokers) == 3 and all(len(each.isrs) == 3 and each.leader > 0 for each in rows)

    def stop(self) -> None:
        for node in self.nodes:
            node.end()

    def printed(self) -> str:
        return "".join(node.printed() for node in self.nodes)


LOGINS: Final[Mapping[str, str]] = {
    "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256",
    "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": JAAS.format("scram.Scram", NODE),
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "listener.name.quorum.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.quorum.plain.sasl.jaas.config": JAAS.format("plain.Plain", f'{NODE} user_node="node-secret"'),
    "sasl.mechanism.controller.protocol": "PLAIN",
    "connections.max.reauth.ms": "4000",
}
RULES: Final[Mapping[str, str]] = {
    "authorizer.class.name": AUTHORIZER,
    "super.users": "User:node;User:admin",
}
WHILE_OPEN: Final[Mapping[str, str]] = {
    "super.users": "User:node;User:admin;User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
}


def until(found: Any, why: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not found():
        assert time.monotonic() < deadline, why
        time.sleep(0.1)


class Clients:
    """Programs of one kind: a producer with idempotence, one with transactions, and a group that reads both topics.
    `failures` has all that any of them was told to be wrong."""

    def __init__(self, name: str, settings: Mapping[str, Any]) -> None:
        self.name = name
        self.topics = (f"load-{name}", f"load-{name}-committed")
        self.failures: list[str] = []
        self.acknowledged: set[str] = set()
        self.read: set[str] = set()
        self.assignments = 0
        self.clients: list[Any] = []
        self._settings = {**settings, "error_cb": self._heard}
        self._ended = threading.Event()
        self._finished = threading.Event()
        self._threads = [
            threading.Thread(target=self._safely, args=(each,), daemon=True) for each in (self._write, self._commit)
        ]
        self._reader = threading.Thread(target=self._safely, args=(self._read,), daemon=True)

    def start(self, admin: AdminClient) -> None:
        """Returns when they write and read."""
        there = admin.list_topics(timeout=30).topics
        missing = [NewTopic(each, PARTITIONS, 3) for each in self.topics if each not in there]
        for future in (admin.create_topics(missing) if missing else {}).values():
            future.result(30)
        for each in (self._reader, *self._threads):
            each.start()
        self.wait_more()

    def wait_more(self) -> None:
        """Until more is written and read, in transactions too."""
        written = len(self.acknowledged)
        seen = {each for each in self.read if "committed" in each}
        until(
            lambda: (
                self.failures
                or (
                    len(self.acknowledged) > written + 10
                    and len({each for each in self.read if "committed" in each}) > len(seen)
                )
            ),
            f"{self.name}: nothing is written or read",
        )
        assert not self.failures, self.failures[:5]

    def stop(self) -> None:
        """Returns when all that was acknowledged has been read, or adds to `failures`."""
        self._ended.set()
        for each in self._threads:
            each.join(WAIT_S)
        deadline = time.monotonic() + WAIT_S
        while not self.acknowledged <= self.read and time.monotonic() < deadline and not self.failures:
            time.sleep(0.1)
        self._finished.set()
        self._reader.join(WAIT_S)
        lost = self.acknowledged - self.read
        if lost:
            self.failures.append(f"{len(lost)} acknowledged records were not read: {sorted(lost)[:3]}")

    def _safely(self, run: Any) -> None:
        try:
            run()
        except Exception as error:  # whatever a thread ends with is a failure of the test
            self.failures.append(f"{run.__name__}: {error!r}")

    def _heard(self, error: KafkaError) -> None:
        """A node that is away is no failure: another one answers, or the same one later."""
        is_refused = error.code() == KafkaError._AUTHENTICATION and "Local: " not in error.str()  # else it went away
        if error.fatal() or is_refused or "AUTHORIZATION" in error.name():
            self.failures.append(f"told of: {error}")

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failures.append(f"delivery: {error}")
        else:
            self.acknowledged.add(message.value().decode())

    def _write(self) -> None:
        producer = Producer({**self._settings, "enable.idempotence": True, "acks": "all", "linger.ms": 1})
        self.clients.append(producer)
        for number in itertools.count():
            if self._ended.is_set():
                break
            producer.produce(
                self.topics[0], f"{self.name}-{number}", partition=number % PARTITIONS, on_delivery=self._delivered
            )
            producer.poll(PAUSE_S)
        assert producer.flush(WAIT_S) == 0

    def _commit(self) -> None:
        producer = Producer({**self._settings, "transactional.id": self.name, "transaction.timeout.ms": 60_000})
        self.clients.append(producer)
        _again(lambda: producer.init_transactions(30))
        for number in itertools.count():
            if self._ended.is_set():
                break
            producer.begin_transaction()
            values = [f"{self.name}-committed-{number}-{each}" for each in range(PER_TRANSACTION)]
            for place, value in enumerate(values):
                producer.produce(self.topics[1], value, partition=place % PARTITIONS, on_delivery=self._told)
            if number % 5 == 4:
                _again(lambda: producer.abort_transaction(30))
                continue
            _again(lambda: producer.commit_transaction(30))
            self.acknowledged.update(values)
            self._ended.wait(PAUSE_S * PER_TRANSACTION)

    def _told(self, error: Any, message: Any) -> None:
        """Aborted records may fail, as they do when the producer purges them."""
        if error is not None and error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            self.failures.append(f"delivery in a transaction: {error}")

    def _read(self) -> None:
        consumer = Consumer(
            {
                **self._settings,
                "group.id": f"readers-{self.name}",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "auto.commit.interval.ms": 500,
            }
        )
        self.clients.append(consumer)

        def assigned(consumer: Any, partitions: Any) -> None:
            self.assignments += 1

        consumer.subscribe([*self.topics], on_assign=assigned)
        while not self._finished.is_set():
            for message in consumer.consume(500, 0.2):
                error, value = message.error(), message.value()
                if error is None and value is not None:
                    self.read.add(value.decode())
                elif error is not None and not error.retriable():
                    self.failures.append(f"read: {error}")
        consumer.close()


def _again(call: Any) -> None:
    """As librdkafka's documentation has it: what is retriable is called again, and nothing else may happen."""
    while True:
        try:
            return call()  # type: ignore[no-any-return]
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def users(
    admin: AdminClient, passwords: Mapping[str, str], mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512
) -> None:
    """Create users, or give them a password for one more mechanism."""
    how = ScramCredentialInfo(mechanism, 4096)
    asked: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion(name, how, each.encode()) for name, each in passwords.items()
    ]
    for future in admin.alter_user_scram_credentials(asked).values():
        future.result(30)


def allow(admin: AdminClient, user: str, prefix: str) -> list[AclBinding]:
    """What the clients need, in one request."""
    bindings = [
        AclBinding(kind, prefix, ResourcePatternType.PREFIXED, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
        for kind, operation in (
            (ResourceType.TOPIC, AclOperation.READ),
            (ResourceType.TOPIC, AclOperation.WRITE),
            (ResourceType.GROUP, AclOperation.READ),
            (ResourceType.TRANSACTIONAL_ID, AclOperation.WRITE),
        )
    ]
    for future in admin.create_acls(bindings).values():
        future.result(30)
    return bindings


def listens(kind: str, phases: Iterable[str]) -> bool:
    """Whether clients of a kind find their listener in all of these phases."""
    absent = SECURED if kind == "plain" else OPEN
    return absent not in phases


def play(cluster: Cluster, phases: Sequence[str]) -> tuple[list[str], int, str]:
    """(failures, acknowledged records, what the nodes printed) of a walk through the phases under load."""
    failures: list[str] = []
    running: dict[str, Clients] = {}
    total = 0

    def end(kind: str) -> None:
        nonlocal total
        ended = running.pop(kind)
        ended.stop()
        failures.extend(ended.failures)
        total += len(ended.acknowledged)

    try:
        cluster.start(phases[0])
        for place, phase in enumerate(phases[1:]):
            for kind in ("plain", "secured"):
                runs = listens(kind, (phases[place], phase))
                if runs and kind not in running:
                    running[kind] = Clients(f"{kind}-{place}", cluster.client(kind))
                    running[kind].start(cluster.admin())
                elif not runs and kind in running:
                    end(kind)
            cluster.roll(phases[place], phase)
            for each in running.values():
                each.wait_more()
            _after(cluster, phase, running, end)
        for kind in [*running]:
            end(kind)
    finally:
        for each in running.values():
            each.stop()
        cluster.stop()
    return failures, total, cluster.printed()


def _after(cluster: Cluster, phase: str, running: dict[str, Clients], end: Callable[[str], None]) -> None:
    """What an operator does at the end of a phase."""
    admin = cluster.admin()
    if phase == BOTH:
        users(admin, PASSWORDS)
    if phase == BETWEEN:
        for prefix in ("load-", "readers-", "secured-"):
            allow(admin, "alice", prefix)
    if phase == SECURED:
        change_rules(admin, running["secured"])
        change_password(cluster, admin, running, end)


def change_rules(admin: AdminClient, clients: Clients) -> None:
    """More ACLs for the same user and for another one, which then go again."""
    more = [*allow(admin, "alice", "load-secured"), *allow(admin, "bob", "load-")]
    clients.wait_more()
    for future in admin.delete_acls([_filter(each) for each in more]).values():
        future.result(30)
    clients.wait_more()


def change_password(
    cluster: Cluster, admin: AdminClient, running: dict[str, Clients], end: Callable[[str], None]
) -> None:
    """The new password is that of another mechanism: sessions of the old one are renewed until nobody has it."""
    users(admin, {"alice": "another-secret"}, ScramMechanism.SCRAM_SHA_256)
    changed = cluster.client("secured") | {"sasl.mechanism": "SCRAM-SHA-256", "sasl.password": "another-secret"}
    started = Clients("secured-changed", changed)
    started.start(admin)
    end("secured")
    running["secured"] = started
    (gone,) = admin.alter_user_scram_credentials(
        [UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_512)]
    ).values()
    gone.result(30)
    started.wait_more()


def _filter(binding: AclBinding) -> Any:
    from confluent_kafka.admin import AclBindingFilter

    return AclBindingFilter(
        binding.restype,
        binding.name,
        binding.resource_pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory() as directory:
        started = time.monotonic()
        failures, acknowledged, printed = play(Cluster(Path(directory)), THERE_AND_BACK)
        print(f"{acknowledged} acknowledged, {time.monotonic() - started:.0f} s; failures: {failures[:10] or 'none'}")
        wrong = [line for line in printed.splitlines() if "cannot log in" in line or "ERROR" in line]
        print("\n".join(wrong[:20]))
    return 1 if failures else 0
