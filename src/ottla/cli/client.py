"""The client library behind the commands: how it is configured, and its errors as sentences that say what to do."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.cli.exits import MISUSED, UNREACHABLE, CommandFailed
from ottla.cli.interrupts import call, in_thread
from ottla.cli.values import parse_addresses
from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient

REQUEST_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 3.0
PROBE_TIMEOUT_S = 1.0
"""For the first bytes of an answer: a broker that hangs is waited for by the requests that follow."""
_PROBE = bytes.fromhex("0000000a 0012 0000 00000001 ffff")
"""ApiVersions, version 0, without a client's name."""

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
    "NOT_ENOUGH_REPLICAS": "fewer replicas are in sync than the topic's min.insync.replicas asks for",
}

T = TypeVar("T")


def settings(bootstrap: str, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """librdkafka's settings. Raises CommandFailed(UNREACHABLE) at once where nobody listens, not after its timeout."""
    probe(bootstrap)
    return {
        "bootstrap.servers": ",".join(addresses(bootstrap)),
        "client.id": "ottla-cli",
        "socket.timeout.ms": int(REQUEST_TIMEOUT_S * 1000),
        "log_level": 0,  # its log lines would stand between the records; errors come back as exceptions
        **(extra or {}),
    }


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
    """Raises CommandFailed for what is no address (MISUSED), and where nobody listens (UNREACHABLE)."""
    failures = []
    for address in addresses(bootstrap):
        try:
            with connect(address) as opened:
                other = _spoken_instead(opened)
            if other is None:
                return
            failures.append(f"{address}: {other} answers there, no broker")
        except OSError as error:
            failures.append(f"{address}: {error.strerror or error or 'no answer in time'}")
    raise nobody_answers("; ".join(failures) or "no address given")


def _spoken_instead(opened: socket.socket) -> str | None:
    """The other protocol spoken there; None for a broker, and for a peer that says nothing: later requests wait for
    it."""
    opened.settimeout(PROBE_TIMEOUT_S)
    try:
        opened.sendall(_PROBE)
        begin = opened.recv(5)
    except OSError:
        return None
    if begin.startswith((b"HTTP/", b"<")):
        return "an HTTP server"
    if begin[:2] in (b"\x15\x03", b"\x16\x03"):
        return "TLS"
    return "SSH" if begin.startswith(b"SSH-") else None


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
