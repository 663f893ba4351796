"""Single requests in Ottla's own codec, for what librdkafka has no call for.

Log directories and agreed features; settings, because librdkafka can not name the resource of all brokers, and its
Python client keeps only one value of a name that is set in several places.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from ottla.cli.client import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, explain
from ottla.cli.exits import FAILED, UNREACHABLE, CommandFailed
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey

FRAME_BYTES_MAX = 256 << 20
"""More than any answer to these requests; a length beyond it is another protocol's."""

_VERSIONS = {
    ApiKey.API_VERSIONS: 3,
    ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.DESCRIBE_LOG_DIRS: 4,
}
"""Versions that every broker since Kafka 3.3 has."""


def ask(bootstrap: str, key: ApiKey, values: Mapping[str, Any]) -> dict[str, Any]:
    """One request to the first address that answers. Raises CommandFailed."""
    version = _VERSIONS[key]
    frame = messages.encode_request(key, version, 1, "ottla-cli", values)
    failure: OSError | None = None
    for address in filter(None, (part.strip() for part in bootstrap.split(","))):
        host, _, port = address.removeprefix("PLAINTEXT://").rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S) as link:
                link.settimeout(REQUEST_TIMEOUT_S)
                link.sendall(len(frame).to_bytes(4, "big") + frame)
                answer = _frame(link)
        except OSError as error:
            failure = error
            continue
        plain = messages.plain(messages.decode_response(key, version, answer)[1])
        assert isinstance(plain, dict)
        return plain
    raise CommandFailed(f"no broker answers ({bootstrap}: {failure or 'no address given'})", UNREACHABLE)


def _frame(link: socket.socket) -> bytes:
    size = int.from_bytes(_exactly(link, 4), "big")
    if size > FRAME_BYTES_MAX:
        raise OSError("what answers there does not speak Kafka's protocol")
    return _exactly(link, size)


def _exactly(link: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = link.recv(min(size - len(data), 1 << 20))
        if not part:
            raise OSError("the broker closed the connection")
        data += part
    return bytes(data)


def ensure_none(answer: Mapping[str, Any], subject: str) -> None:
    """Raises CommandFailed for an answer that carries an error."""
    code = int(answer.get("error_code") or 0)
    if code:
        from confluent_kafka import KafkaError

        text = answer.get("error_message")
        error = KafkaError(code, text) if text else KafkaError(code)
        raise CommandFailed(explain(error, f"{subject}: ")[0], FAILED)


def finalized_features(bootstrap: str) -> dict[str, int]:
    """Feature to the level that the cluster has agreed on, such as metadata.version."""
    values = {"client_software_name": "ottla-cli", "client_software_version": "1"}
    answer = ask(bootstrap, ApiKey.API_VERSIONS, values)
    ensure_none(answer, bootstrap)
    return {each["name"]: int(each["max_version_level"]) for each in answer.get("finalized_features") or ()}


def log_directories(address: str) -> list[dict[str, Any]]:
    """The log directories of the broker at an address: path, error, partitions with sizes, bytes of the disk."""
    answer = ask(address, ApiKey.DESCRIBE_LOG_DIRS, {"topics": None})
    ensure_none(answer, f"log directories of {address}")
    return [
        {
            "path": each["log_dir"],
            "error": None if not each["error_code"] else str(getattr(each["error_code"], "name", each["error_code"])),
            "partitions": {
                (topic["name"], part["partition_index"]): int(part["partition_size"])
                for topic in each["topics"]
                for part in topic["partitions"]
                if not part["is_future_key"]
            },
            "disk_bytes": _known(each.get("total_bytes")),
            "free_bytes": _known(each.get("usable_bytes")),
        }
        for each in answer["results"]
    ]


def _known(size: int | None) -> int | None:
    return None if size is None or size < 0 else int(size)
