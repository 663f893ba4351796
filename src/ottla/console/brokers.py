"""Requests to the brokers of a cluster as one user, from many threads: connections are kept, and shared one at a time.

A page asks for much at once: one request per broker, all brokers together (`gather`). What fails is an exception that
says which right is missing (`Refused`), or what the broker answered. A node that hangs costs one page ANSWER_S, and the
following ones nothing (`hung.py`); what no page waits for, and what changes the cluster, waits longer (`patiently`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeVar

from ottla.client.config import ClientConfig, split_address
from ottla.client.connection import Connection, OtherNode
from ottla.client.fetcher import decoded
from ottla.client.security import SecurityFailure
from ottla.console.hung import ANSWER_S, Address, HungNodes
from ottla.errors import ErrorCode, KafkaError
from ottla.model import MeantNode
from ottla.protocol import fetch
from ottla.protocol.messages import ApiKey

REQUEST_TIMEOUT_S: Final = 10.0
"""For the answer to a change, and to what is read patiently."""
CONNECT_TIMEOUT_S: Final = 5.0
"""For the connection of a change; others are made within ANSWER_S."""
ASK_NEXT_S: Final = 0.5
"""Where any node may answer, the next one is asked too after so long."""
IDLE_MAX: Final = 4
"""Connections to one broker that are kept for a user: a page asks each broker for a few things at once."""

VERSIONS: Final[Mapping[ApiKey, tuple[int, int]]] = {
    ApiKey.PRODUCE: (3, 12),  # by name: a topic that was created again under it is another one only for ids
    ApiKey.METADATA: (5, 12),
    ApiKey.LIST_OFFSETS: (4, 7),
    ApiKey.FIND_COORDINATOR: (4, 4),
    ApiKey.OFFSET_FETCH: (8, 8),
    ApiKey.LIST_GROUPS: (4, 5),
    ApiKey.DESCRIBE_GROUPS: (5, 5),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
    ApiKey.SHARE_GROUP_DESCRIBE: (1, 1),
    ApiKey.STREAMS_GROUP_DESCRIBE: (0, 0),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (0, 1),
    ApiKey.DESCRIBE_CONFIGS: (2, 4),
    ApiKey.DESCRIBE_LOG_DIRS: (1, 4),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.LIST_CLIENTS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (0, 1),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.DESCRIBE_ACLS: (1, 3),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.DESCRIBE_QUORUM: (0, 2),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (6, 6),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.DELETE_RECORDS: (0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.OFFSET_COMMIT: (2, 9),
    ApiKey.OFFSET_DELETE: (0, 0),
    ApiKey.DELETE_GROUPS: (0, 3),
    ApiKey.LEAVE_GROUP: (3, 5),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (0, 0),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (0, 0),
    ApiKey.INIT_PRODUCER_ID: (2, 5),
    ApiKey.WRITE_TXN_MARKERS: (1, 1),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.CREATE_ACLS: (1, 3),
    ApiKey.DELETE_ACLS: (1, 3),
    ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
    ApiKey.ELECT_LEADERS: (1, 2),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
}
"""The versions in which this program reads answers."""

OPERATIONS: Final[Mapping[ApiKey, str]] = {
    ApiKey.FETCH: "Read",
    ApiKey.DESCRIBE_PRODUCERS: "Read",
    ApiKey.DESCRIBE_CONFIGS: "DescribeConfigs",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "DescribeConfigs",
    ApiKey.PRODUCE: "Write",
    ApiKey.CREATE_TOPICS: "Create",
    ApiKey.DELETE_TOPICS: "Delete",
    ApiKey.CREATE_PARTITIONS: "Alter",
    ApiKey.DELETE_RECORDS: "Delete",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "AlterConfigs",
    ApiKey.OFFSET_COMMIT: "Read",
    ApiKey.OFFSET_DELETE: "Delete",
    ApiKey.DELETE_GROUPS: "Delete",
    ApiKey.LEAVE_GROUP: "Read",
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: "Read",
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: "Delete",
    ApiKey.INIT_PRODUCER_ID: "Write",
    ApiKey.WRITE_TXN_MARKERS: "ClusterAction",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "Alter",
    ApiKey.CREATE_ACLS: "Alter",
    ApiKey.DELETE_ACLS: "Alter",
    ApiKey.ALTER_CLIENT_QUOTAS: "AlterConfigs",
    ApiKey.ELECT_LEADERS: "Alter",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "Alter",
}
"""The operation of Kafka's authorizer that an API needs, where it is not Describe."""
_RESOURCES: Final = {
    ErrorCode.topic_authorization_failed: "Topic",
    ErrorCode.group_authorization_failed: "Group",
    ErrorCode.cluster_authorization_failed: "Cluster",
    ErrorCode.transactional_id_authorization_failed: "TransactionalId",
}

T = TypeVar("T")
_NO_TOPICS: Final[Mapping[str, Any]] = {"topics": [], "allow_auto_topic_creation": False}
_IS_PATIENT: Final = ContextVar("is_patient", default=False)


PIECE_BYTES: Final = 64 * 1024
"""What is read or looked through before the processor is offered to those that wait for one, such as a broker on the
same machine: Linux lets them wait until a system call is over, and longer."""


class _Polite(Connection):
    """Reads a large answer in pieces, and offers the processor before each."""

    def _read(self, view: memoryview) -> int:
        os.sched_yield()
        return super()._read(view[:PIECE_BYTES])


@dataclass
class _Act:
    until: float
    """How long it waits for nodes that hang, by the monotonic clock."""
    all_hung: bool | None = None
    """Whether all did when it met the first; None before."""


_ACT: Final = ContextVar[_Act | None]("act", default=None)


@contextmanager
def patiently() -> Iterator[None]:
    """Requests of this thread in the block have REQUEST_TIMEOUT_S for an answer, from a node that has just answered a
    small one within ANSWER_S: a node that hangs still costs no more than that, and one that is slow is waited for."""
    token = _IS_PATIENT.set(True)
    try:
        yield
    finally:
        _IS_PATIENT.reset(token)


@contextmanager
def for_an_act() -> Iterator[None]:
    """`patiently`, and where every node hangs, requests in the block wait for those that they need, REQUEST_TIMEOUT_S
    in all: somebody wants a change, and a cluster of one broker that was silent for a moment can still make it."""
    token = _ACT.set(_Act(time.monotonic() + REQUEST_TIMEOUT_S))
    try:
        with patiently():
            yield
    finally:
        _ACT.reset(token)


def is_patient() -> bool:
    """Whether this thread asks `patiently`."""
    return _IS_PATIENT.get()


class Refused(KafkaError):
    """The user lacks a right; the text says which one, and on what."""

    def __init__(self, operation: str, resource: str, name: str, code: ErrorCode) -> None:
        on = "the cluster" if resource == "Cluster" else f"{resource} {name}"
        super().__init__(code, f"you need {operation} on {on}")
        self.right = f"{operation} on {on}"


def failure(key: ApiKey, code: int, name: str = "", text: str | None = None) -> KafkaError:
    """The exception for an error code of an answer; `name` is the resource it is about."""
    try:
        known = ErrorCode(code)
    except ValueError:  # newer than this program
        return KafkaError(ErrorCode.unknown_server_error, f"{name}: error {code}" if name else f"error {code}")
    if known in _RESOURCES:
        return Refused(OPERATIONS.get(key, "Describe"), _RESOURCES[known], name or "…", known)
    word = known.name.upper()
    return KafkaError(known, f"{name + ': ' if name else ''}{text.rstrip('.') + f' ({word})' if text else word}")


def ensure_none(key: ApiKey, answer: Mapping[str, Any], name: str = "") -> None:
    """Raises KafkaError for an answer, or a row of one, that carries an error."""
    code = int(answer.get("error_code") or 0)
    if code:
        raise failure(key, code, name, answer.get("error_message"))


class Unanswered(OSError):
    """A change was sent and no answer came: it may have been made or not."""


class NodeAway(ConnectionError):
    """A node could not be asked; the text names it."""

    def __init__(self, node_id: int, why: str) -> None:
        super().__init__(f"node {node_id}: {why}")
        self.node_id = node_id


class NoAnswer(ConnectionError):
    """A node hangs."""


class Node(NamedTuple):
    """A broker as metadata names it."""

    node_id: int
    host: str
    port: int
    rack: str | None


class Brokers:
    """A cluster for one user. Any thread may ask; `close` ends every connection, and what waits on one fails."""

    def __init__(self, config: ClientConfig, executor: Executor) -> None:
        self.config = config
        self._executor = executor
        self._quick = replace(
            config,
            request_timeout_s=min(ANSWER_S, config.request_timeout_s),
            connect_timeout_s=min(ANSWER_S, config.connect_timeout_s),
        )
        self._hung = HungNodes(executor)
        self._lock = threading.Lock()
        self._idle: dict[Address, list[Connection]] = {}
        self._used: dict[Connection, None] = {}
        self._nodes: dict[int, Address] = {}
        self._cluster_id: str | None = None
        self._is_closed = False

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            kept = [each for some in self._idle.values() for each in some]
            self._idle = {}
            used = list(self._used)
        for each in kept:
            each.close()
        for each in used:
            each.abort()

    @property
    def has_ended(self) -> bool:
        return self._is_closed

    def learn(self, nodes: Iterable[Node], cluster_id: str | None) -> None:
        """Addresses of the nodes, from metadata."""
        with self._lock:
            self._nodes = {each.node_id: (each.host, each.port) for each in nodes}
            self._cluster_id = cluster_id
            known = {*self._nodes.values(), *map(split_address, self.config.bootstrap)}
            gone = [each for at in list(self._idle) if at not in known for each in self._idle.pop(at)]
        self._hung.keep(known)
        for each in gone:
            each.close()

    def hung(self) -> set[int]:
        """Nodes that are known to hang."""
        with self._lock:
            return {node for node, at in self._nodes.items() if self._hung.has(at)}

    def ask(self, node_id: int, key: ApiKey, values: Mapping[str, Any]) -> dict[str, Any]:
        """One request to one node. Raises NodeAway, KafkaError (UNSUPPORTED_VERSION, SecurityFailure)."""
        with self._lock:
            at, cluster_id = self._nodes.get(node_id), self._cluster_id
        if at is None:
            raise NodeAway(node_id, "its address is not known")
        meant = None if cluster_id is None else MeantNode(cluster_id, node_id)
        try:
            return self._on(at, meant, lambda connection: _asked(connection, key, values))
        except OSError as error:
            raise NodeAway(node_id, str(error)) from error

    def ask_any(self, key: ApiKey, values: Mapping[str, Any]) -> dict[str, Any]:
        """One request that changes nothing, to the first node that answers; several may get it. Not for calls of
        `gather`: it waits for threads of the same executor. Raises SecurityFailure where one refuses the user, OSError
        where none answers, KafkaError."""
        with self._lock:
            known = [*self._idle, *self._nodes.values()]
        addresses = list(dict.fromkeys([*known, *map(split_address, self.config.bootstrap)]))
        there = [at for at in addresses if self._hung.seconds(at) is None]
        if not there:  # a node that was only slow for a moment may be back
            self._await_in_act(addresses)
            self._hung.wait(addresses, ASK_NEXT_S)
            there = [at for at in addresses if self._hung.seconds(at) is None]
        # What hangs comes last, and says why.
        ordered = [*there, *(at for at in addresses if at not in there)]

        def asking(at: Address) -> Callable[[], dict[str, Any]]:
            return lambda: self._on(at, None, lambda connection: _asked(connection, key, values))

        return self._first([asking(at) for at in ordered])

    def _first(self, calls: Sequence[Callable[[], T]]) -> T:
        """The result of the first call that has one; each begins when those before it have failed, or ASK_NEXT_S after
        the one before it. Raises as `ask_any`."""
        if len(calls) == 1:
            try:
                return calls[0]()
            except OSError as error:
                raise ConnectionError(f"no broker answers: {error}") from error
        running, left, failures = set[Future[T]](), list(reversed(calls)), list[str]()
        while running or left:
            if left:
                running.add(self._executor.submit(copy_context().run, left.pop()))
            done, running = wait(running, ASK_NEXT_S if left else None, FIRST_COMPLETED)
            for each in done:
                try:
                    return each.result()
                except OSError as error:
                    failures.append(str(error))
        raise ConnectionError(f"no broker answers: {'; '.join(failures)}")

    def fetch(self, node_id: int, request: fetch.FetchRequest, into: bytearray | None = None) -> fetch.FetchResponse:
        """One Fetch to one node. The answer's records are views of `into` if they fit there. Raises NodeAway,
        KafkaError."""
        with self._lock:
            at = self._nodes.get(node_id)
        if at is None:
            raise NodeAway(node_id, "its address is not known")
        try:
            return self._on(at, None, lambda connection: _fetched(connection, self.config.client_id, request, into))
        except OSError as error:
            raise NodeAway(node_id, str(error)) from error

    def change(self, key: ApiKey, values: Mapping[str, Any], node_id: int | None = None) -> dict[str, Any]:
        """One request that changes something, sent once: to a node, or to the first that a connection can be made to;
        brokers forward to the controller. Raises Unanswered where it was sent and nothing came back, KafkaError, and
        OSError where it was not sent."""
        return self._changed(node_id, lambda connection: _asked(connection, key, values))

    def _changed(self, node_id: int | None, use: Callable[[Connection], T]) -> T:
        """On a connection of its own: one that was idle may be closed at its other end, and then nobody would know
        whether the request had arrived."""
        at, opened = self._opened(node_id)
        self._note_used(opened)
        try:
            return self._with(at, opened, use)
        except SecurityFailure:
            raise
        except OSError as error:
            raise Unanswered(str(error)) from error

    def _opened(self, node_id: int | None) -> tuple[Address, Connection]:
        with self._lock:
            known, cluster_id = dict(self._nodes), self._cluster_id
        if node_id is not None:
            if node_id not in known:
                raise ConnectionError(f"node {node_id} is not known")
            meant = None if cluster_id is None else MeantNode(cluster_id, node_id)
            return known[node_id], Connection(*known[node_id], self.config, meant=meant)
        failures: list[str] = []
        addresses = dict.fromkeys([*known.values(), *map(split_address, self.config.bootstrap)])
        for at in sorted(addresses, key=lambda at: self._hung.seconds(at) or 0.0):
            try:
                return at, Connection(*at, self.config)
            except SecurityFailure:
                raise
            except OSError as error:
                failures.append(str(error))
        raise ConnectionError(f"no broker answers: {'; '.join(failures)}")

    def gather(
        self, calls: Sequence[Callable[[], T]], executor: Executor | None = None
    ) -> list[T | KafkaError | OSError]:
        """The results of calls that are made at the same time, in their order; a failure stands in its place. With an
        `executor` all are made by its threads."""

        def caught(call: Callable[[], T]) -> T | KafkaError | OSError:
            try:
                return call()
            except (KafkaError, OSError) as error:
                return error

        if len(calls) == 1 and executor is None:
            return [caught(calls[0])]
        begun = [(executor or self._executor).submit(copy_context().run, caught, call) for call in calls]
        return [each.result() for each in begun]

    def _await_in_act(self, addresses: Sequence[Address]) -> None:
        """Until one of the nodes is back, in an act that has met a cluster all of whose nodes hang."""
        act = _ACT.get()
        if act is None:
            return
        if act.all_hung is None:
            with self._lock:
                known = [*self._nodes.values()] or [*map(split_address, self.config.bootstrap)]
            act.all_hung = all(map(self._hung.has, known))
        if act.all_hung:
            self._hung.until_one_is_back(addresses, act.until - time.monotonic())

    def _on(self, at: Address, meant: MeantNode | None, use: Callable[[Connection], T]) -> T:
        """`use` a connection to a node. Raises NoAnswer where it hangs."""
        if self._hung.has(at):
            self._await_in_act([at])
        if (silent_s := self._hung.seconds(at)) is not None:
            raise NoAnswer(f"{_shown(at)} has not answered for {silent_s:.0f} s, and is asked again in the background")
        limit_s = min(REQUEST_TIMEOUT_S if _IS_PATIENT.get() else ANSWER_S, self.config.request_timeout_s)
        try:
            return self._asked_on(at, meant, use, limit_s)
        except OSError as error:
            if not _is_late(error) or self._is_closed:
                raise
            self._hangs(at, lambda: self._asked_on(at, meant, use, self.config.request_timeout_s))
            raise NoAnswer(f"{_shown(at)} did not answer within {limit_s:g} s") from error

    def _hangs(self, at: Address, again: Callable[[], object]) -> None:
        with self._lock:
            idle = self._idle.pop(at, [])
        for each in idle:  # whoever was there may have been replaced, and these lead nowhere
            each.close()

        def is_hung() -> bool:
            try:
                again()
            except (KafkaError, OSError) as error:
                return _is_late(error) and not self._is_closed
            return False

        self._hung.add(at, is_hung)

    def _asked_on(self, at: Address, meant: MeantNode | None, use: Callable[[Connection], T], limit_s: float) -> T:
        """`use` a connection. One that was idle may have been closed meanwhile: then a fresh one is used."""

        def within_limit(connection: Connection) -> T:
            connection.wait_at_most(limit_s)
            return use(connection)

        def after_sign(connection: Connection) -> T:
            if limit_s > ANSWER_S:
                connection.wait_at_most(ANSWER_S)
                _asked(connection, ApiKey.METADATA, _NO_TOPICS)
            return within_limit(connection)

        while (kept := self._taken(at)) is not None:
            try:
                return self._with(at, kept, after_sign)
            except OSError as error:
                if _is_late(error) or self._is_closed:
                    raise  # it was no old connection, but a broker that does not answer
        try:
            opened = _Polite(*at, self._quick, meant=meant)
        except OtherNode:
            self.learn((), None)
            raise
        self._note_used(opened)
        return self._with(at, opened, within_limit)

    def _note_used(self, opened: Connection) -> None:
        """`close` ends it from now on."""
        with self._lock:
            self._used[opened] = None
            is_closed = self._is_closed
        if is_closed:
            opened.abort()

    def _with(self, at: Address, connection: Connection, use: Callable[[Connection], T]) -> T:
        """`use` it, and keep it unless it is broken."""
        is_whole = False
        try:
            found = use(connection)
            is_whole = True
            return found
        except KafkaError:
            is_whole = True
            raise
        finally:
            with self._lock:
                del self._used[connection]
                kept = self._idle.setdefault(at, [])
                is_kept = is_whole and not self._is_closed and len(kept) < IDLE_MAX
                if is_kept:
                    kept.append(connection)
            if not is_kept:
                connection.close()

    def _taken(self, at: Address) -> Connection | None:
        with self._lock:
            kept = self._idle.get(at)
            if not kept or self._is_closed:
                return None
            connection = kept.pop()
            self._used[connection] = None
            return connection


def _is_late(error: BaseException) -> bool:
    """Whether nothing came in time, in place of what did come or was refused."""
    return isinstance(error, TimeoutError) or isinstance(error.__cause__ or error.__context__, TimeoutError)


def _shown(at: Address) -> str:
    return f"[{at[0]}]:{at[1]}" if ":" in at[0] else f"{at[0]}:{at[1]}"


def _asked(connection: Connection, key: ApiKey, values: Mapping[str, Any]) -> dict[str, Any]:
    return connection.ask(key, connection.version(key, *VERSIONS[key]), values)


def _fetched(
    connection: Connection, client_id: str, request: fetch.FetchRequest, into: bytearray | None
) -> fetch.FetchResponse:
    has_ids = all(each.topic_id is not None and each.topic_id.int for each in request.topics)
    version = connection.version(
        ApiKey.FETCH, fetch.VERSION_MIN, fetch.TOPIC_IDS_SINCE + 3 if has_ids else fetch.TOPIC_IDS_SINCE - 1
    )
    asked = connection.send_frame(fetch.encode_request(version, connection.following_id, client_id, request))
    return decoded(connection, version, asked, connection.receive_frame(into))
