"""The client library behind the commands: how it is configured, and its errors as sentences that say what to do."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.cli import client_security
from ottla.cli.exits import FAILED, MISUSED, UNREACHABLE, CommandFailed
from ottla.cli.interrupts import call, in_thread
from ottla.cli.values import parse_addresses
from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient

    from ottla.client.connection import Connection
    from ottla.client.security import Security
    from ottla.model import MeantNode

CLIENT_ID = "ottla-cli"
"""The software's name too, by which nodes of Ottla know that it may be offered APIs of their own."""
REQUEST_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 3.0
PROBE_TIMEOUT_S = 1.0
"""For the first bytes of an answer: a broker that hangs is waited for by the requests that follow."""
SECURE_TIMEOUT_S = 10.0
"""For a TLS handshake."""
_PROBE = bytes.fromhex("0000000a 0012 0000 00000001 ffff")
"""ApiVersions, version 0, without a client's name."""
_REQUEST = bytes.fromhex("0000000e 0003 0001 00000002 ffff 00000000")
"""Metadata, version 1, of no topics: a listener that wants a login closes the connection."""
_SET = "set security.protocol={} in a file for --config"
_CLOSED = f"the connection is closed without an answer; if its listener has TLS: {_SET.format('SSL')}"

_UNREACHABLE = frozenset({"_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE", "_MSG_TIMED_OUT", "_SSL"})

_ADVICE = {
    "UNKNOWN_TOPIC_OR_PART": "see the topics with: ottla topic list",
    "_UNKNOWN_TOPIC": "see the topics with: ottla topic list",
    "_UNKNOWN_PARTITION": "see the partitions with: ottla topic describe TOPIC",
    "TOPIC_ALREADY_EXISTS": "change it with: ottla topic alter TOPIC, or add --if-not-exists",
    "INVALID_REPLICATION_FACTOR": "a cluster cannot hold more replicas than it has brokers",
    "MSG_SIZE_TOO_LARGE": "the topic's max.message.bytes is smaller than this record",
    "GROUP_ID_NOT_FOUND": "see the groups with: ottla group list",
    "NON_EMPTY_GROUP": "stop its consumers first; see them with: ottla group describe GROUP",
    "GROUP_SUBSCRIBED_TO_TOPIC": "stop its consumers first; see them with: ottla group describe GROUP",
    "_UNKNOWN_GROUP": "see the groups with: ottla group list",
    "INVALID_CONFIG": "see the allowed values with: ottla config explain NAME",
    "COORDINATOR_NOT_AVAILABLE": "try again in a moment",
    "COORDINATOR_LOAD_IN_PROGRESS": "try again in a moment",
    "PREFERRED_LEADER_NOT_AVAILABLE": "its first replica is not in sync: ottla topic describe --under-replicated",
    "ELIGIBLE_LEADERS_NOT_AVAILABLE": "none of its replicas may lead: ottla topic describe --offline",
    "TOPIC_AUTHORIZATION_FAILED": "an administrator sees which right is missing with: ottla acl explain",
    "GROUP_AUTHORIZATION_FAILED": "an administrator sees which right is missing with: ottla acl explain",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "an administrator sees which right is missing with: ottla acl explain",
    "CLUSTER_AUTHORIZATION_FAILED": "an administrator sees which right is missing with: ottla acl explain",
    "SECURITY_DISABLED": "the nodes have no authorizer: set authorizer.class.name",
    "_AUTHENTICATION": "check sasl.mechanism, sasl.username and sasl.password",
    "SASL_AUTHENTICATION_FAILED": "check sasl.mechanism, sasl.username and sasl.password",
    "NOT_ENOUGH_REPLICAS": "fewer replicas are in sync than the topic's min.insync.replicas asks for",
}

T = TypeVar("T")


def settings(bootstrap: str, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """librdkafka's settings, secrets among them. Raises CommandFailed at once where nobody listens or the login is
    refused, not after its timeout."""
    probe(bootstrap)
    return {
        "bootstrap.servers": ",".join(addresses(bootstrap)),
        "client.id": CLIENT_ID,
        "socket.timeout.ms": int(REQUEST_TIMEOUT_S * 1000),
        "log_level": 0,  # its log lines would stand between the records; errors come back as exceptions
        **_secured(),
        **(extra or {}),
    }


def _secured() -> dict[str, Any]:
    from ottla.client.security import PLAINTEXT, SecurityFailure

    chosen = client_security.current()
    if chosen == PLAINTEXT:
        return {}
    from ottla.client import librdkafka

    try:
        return librdkafka.settings_of(chosen)
    except SecurityFailure as failure:
        raise client_security.failed(failure) from None


def addresses(bootstrap: str) -> list[str]:
    """The single HOST:PORTs of `--bootstrap`. Raises CommandFailed(MISUSED) for what is none."""
    try:
        return parse_addresses(bootstrap)
    except ValueError as error:
        raise CommandFailed(f"--bootstrap must be {error}, not {bootstrap!r}", MISUSED) from None


def connect(address: str, timeout_s: float = CONNECT_TIMEOUT_S) -> socket.socket:
    """A connection to HOST:PORT. Raises OSError, TimeoutError too where the name is looked up for long."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        found = in_thread(partial(socket.getaddrinfo, host, int(port), 0, socket.SOCK_STREAM), limit_s=timeout_s)
    except UnicodeError as error:
        raise OSError(f"{host!r} is not a valid host name") from error
    failure: OSError | None = None
    for family, kind, protocol, _, place in found:
        opened = socket.socket(family, kind, protocol)
        try:
            opened.settimeout(timeout_s)
            opened.connect(place)
            return opened
        except OSError as error:
            opened.close()
            failure = error
        except BaseException:
            opened.close()
            raise
    raise failure or OSError("the name has no address")


def probe(bootstrap: str) -> None:
    """Raises CommandFailed for what is no address (MISUSED), where nobody listens (UNREACHABLE), and where security
    forbids a connection (FAILED)."""
    from ottla.client.security import PLAINTEXT

    secured = client_security.current()
    failures = []
    for address in addresses(bootstrap):
        try:
            if secured != PLAINTEXT:
                connection(address, secured).close()
                return
            with connect(address) as opened:
                other = _spoken_instead(opened)
            if other is None:
                return
            failures.append(f"{address}: {other}")
        except OSError as error:
            failures.append(_failure_at(address, error))
    raise nobody_answers("; ".join(failures) or "no address given")


def reason_of(address: str, error: OSError) -> str:
    """Why there is no answer from HOST:PORT, without the address."""
    return str(error.strerror or error or "no answer in time").removeprefix(f"{address}: ")


def _failure_at(address: str, error: OSError) -> str:
    text = reason_of(address, error)
    return text if address in text else f"{address}: {text}"


def connection(
    address: str,
    secured: Security,
    timeout_s: float = REQUEST_TIMEOUT_S,
    connect_s: float = SECURE_TIMEOUT_S,
    meant: MeantNode | None = None,
) -> Connection:
    """A connection of our own client to HOST:PORT, encrypted and logged in as `secured` says, to the node that is meant
    (None: whoever is there). Raises OSError, CommandFailed."""
    from ottla.client.config import ClientConfig
    from ottla.client.connection import Connection
    from ottla.client.security import SecurityFailure

    config = ClientConfig((address,), CLIENT_ID, None, timeout_s, connect_s, security=secured, software=CLIENT_ID)
    opened = connect(address, min(CONNECT_TIMEOUT_S, timeout_s))
    host, _, port = address.rpartition(":")
    try:
        return Connection(host.strip("[]"), int(port), config, opened, meant)
    except SecurityFailure as failure:
        raise client_security.failed(failure) from None


def _spoken_instead(opened: socket.socket) -> str | None:
    """What is wrong with whoever listens there; None for a broker that this client can ask, and for a peer that says
    nothing: later requests wait for it."""
    opened.settimeout(PROBE_TIMEOUT_S)
    try:
        opened.sendall(_PROBE)
        begin = opened.recv(4)
        if begin.startswith((b"HTTP", b"<")):
            return "an HTTP server answers there, no broker"
        if begin[:2] in (b"\x15\x03", b"\x16\x03"):
            return f"TLS answers there, no broker without it: {_SET.format('SSL (SASL_SSL with a login)')}"
        if begin.startswith(b"SSH-"):
            return "SSH answers there, no broker"
        if not begin:
            return _CLOSED
        left = int.from_bytes(begin, "big")
        while left > 0 and (part := opened.recv(min(left, 65536))):
            left -= len(part)
        opened.sendall(_REQUEST)
        if not opened.recv(1):
            return f"the broker closes the connection; if it wants a login: {_SET.format('SASL_PLAINTEXT')}"
    except ConnectionError:
        return _CLOSED
    except OSError:
        return None
    return None


def nobody_answers(why: str) -> CommandFailed:
    """The error when no broker can be reached."""
    return CommandFailed(
        f"no broker answers ({why})\n"
        "  start one with: ottla server start,\n"
        "  or name another with --bootstrap HOST:PORT (or OTTLA_BOOTSTRAP)",
        UNREACHABLE,
    )


def admin_client(bootstrap: str) -> AdminClient:
    from confluent_kafka.admin import AdminClient

    return call(AdminClient, settings(bootstrap))


def producer(bootstrap: str, extra: Mapping[str, Any]) -> Producer:
    from confluent_kafka import Producer

    return call(Producer, settings(bootstrap, extra))


def consumer(bootstrap: str, extra: Mapping[str, Any]) -> Consumer:
    from confluent_kafka import Consumer

    return call(Consumer, settings(bootstrap, extra))


def topics_of(client: AdminClient) -> Any:
    """All topics with their partitions. Raises KafkaException."""
    return in_thread(partial(client.list_topics, timeout=REQUEST_TIMEOUT_S))


def wait(future: Future[T]) -> T:
    """The result of an admin request. Raises KafkaException."""
    return future.result(REQUEST_TIMEOUT_S + 5)


def error_of(exception: Any) -> Any:
    """The KafkaError inside a KafkaException, or the KafkaError itself."""
    inner = getattr(exception, "args", None) or (exception,)
    return inner[0] if hasattr(inner[0], "name") else exception


def failure(exception: Any, subject: str = "") -> CommandFailed:
    """An exception of confluent-kafka as the command's own."""
    sentence, unreachable = explain(exception, subject)
    return CommandFailed(sentence, UNREACHABLE if unreachable else FAILED)


def explain(exception: Any, subject: str = "") -> tuple[str, bool]:
    """(a sentence, whether no broker was reached) for an exception of confluent-kafka."""
    error = error_of(exception)
    if not hasattr(error, "code") or not callable(getattr(error, "name", None)):
        return f"{subject}{exception}", False
    name = error.name()
    if name.startswith("ERR_") and error.code() in set(ErrorCode):  # newer than librdkafka
        name = ErrorCode(error.code()).name.upper()
    text = (error.str() or name).removeprefix("Broker: ").removeprefix("Local: ")
    advice = _ADVICE.get(name)
    sentence = f"{subject}{text.rstrip('.')} ({name.lstrip('_')})"
    return (f"{sentence}\n  {advice}" if advice else sentence), name in _UNREACHABLE
