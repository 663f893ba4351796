"""Requests by Ottla's own client (`ottla.client`), for what librdkafka has no call for.

Log directories, agreed features, offsets of a group to delete; settings, because librdkafka cannot name the resource
of all brokers, and its Python client keeps only one value of a name that is set in several places; groups
(`group/requests.py`); transactions (`txn/requests.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from ottla.cli import client_security
from ottla.cli.client import CLIENT_ID, REQUEST_TIMEOUT_S, addresses, connection, failure, nobody_answers, reason_of
from ottla.cli.exits import UNREACHABLE, CommandFailed
from ottla.client.requests import asked_settings
from ottla.model import METADATA_TOPIC, MeantNode
from ottla.protocol.messages import ApiKey
from ottla.version import VERSION

if TYPE_CHECKING:
    from ottla.client.security import Security

ANSWER_TIMEOUT_S = 10.0
"""For commands that would wait for long afterwards."""

QUORUM_ASKED = {"topics": [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]}
"""DescribeQuorum, of the metadata partition."""
_TOPIC, _BROKER = 2, 4
"""The type of resource, to DescribeConfigs."""
_VERSIONS = {
    ApiKey.API_VERSIONS: 3,
    ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.DESCRIBE_LOG_DIRS: 4,
    ApiKey.FIND_COORDINATOR: 4,
    ApiKey.LIST_OFFSETS: 7,
    ApiKey.LIST_GROUPS: 4,
    ApiKey.DESCRIBE_GROUPS: 5,
    ApiKey.CONSUMER_GROUP_DESCRIBE: 0,
    ApiKey.SHARE_GROUP_DESCRIBE: 1,
    ApiKey.STREAMS_GROUP_DESCRIBE: 0,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: 1,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: 0,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: 0,
    ApiKey.OFFSET_FETCH: 8,
    ApiKey.METADATA: 12,
    ApiKey.OFFSET_DELETE: 0,
    ApiKey.DESCRIBE_CLUSTER: 2,
    ApiKey.DESCRIBE_QUORUM: 2,
    ApiKey.BROKER_REGISTRATION: 2,
    ApiKey.BROKER_HEARTBEAT: 0,
    ApiKey.ADD_RAFT_VOTER: 0,
    ApiKey.REMOVE_RAFT_VOTER: 0,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: 0,
    ApiKey.ELECT_LEADERS: 2,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: 1,
    ApiKey.ALTER_CLIENT_QUOTAS: 1,
    ApiKey.DESCRIBE_ACLS: 3,
    ApiKey.CREATE_ACLS: 3,
    ApiKey.DELETE_ACLS: 3,
    ApiKey.CREATE_DELEGATION_TOKEN: 3,
    ApiKey.RENEW_DELEGATION_TOKEN: 2,
    ApiKey.EXPIRE_DELEGATION_TOKEN: 2,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: 3,
    ApiKey.UNREGISTER_BROKER: 0,
    ApiKey.UNREGISTER_CONTROLLER: 0,
    ApiKey.UPDATE_FEATURES: 1,
    ApiKey.LIST_TRANSACTIONS: 0,
    ApiKey.DESCRIBE_TRANSACTIONS: 0,
    ApiKey.DESCRIBE_PRODUCERS: 0,
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.WRITE_TXN_MARKERS: 1,
    ApiKey.LIST_CLIENTS: 0,
    ApiKey.DISCONNECT_CLIENTS: 0,
    ApiKey.DESCRIBE_LOST_LETTERS: 0,
    ApiKey.DESCRIBE_SHARE_PARTITIONS: 0,
}
"""Versions that every broker since Kafka 3.3 has; groups of newer protocols are asked for where a broker has them."""

WHO_ASKS = {"client_software_name": CLIENT_ID, "client_software_version": VERSION}


class NodeAddress(str):
    """HOST:PORT of a node as its cluster named it. A connection to it says which node is meant (KIP-1242): by now
    another cluster may have the port. Addresses of --bootstrap are plain text, and mean whoever answers."""

    __slots__ = ("meant",)
    meant: MeantNode

    def __new__(cls, host: str, port: int, meant: MeantNode) -> NodeAddress:
        made = super().__new__(cls, plain_address(host, port))
        made.meant = meant
        return made


def plain_address(host: str, port: int) -> str:
    """HOST:PORT, IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def node_address(host: str, port: int, node_id: int, cluster_id: str | None) -> str:
    """The address of a node that a cluster has named; a NodeAddress unless the cluster has not said its id."""
    if cluster_id is None:
        return plain_address(host, port)
    return NodeAddress(host, port, MeantNode(cluster_id, node_id))


def broker_addresses(metadata: Mapping[str, Any]) -> dict[int, str]:
    """The addresses of the brokers in an answer to Metadata."""
    cluster_id = metadata.get("cluster_id")
    return {
        each["node_id"]: node_address(each["host"], each["port"], each["node_id"], cluster_id)
        for each in metadata["brokers"]
    }


class Link:
    """A connection to one broker, secured as the command says. Requests are answered in order. Raises OSError
    (OtherNode where the address has come to another node than a NodeAddress means), and CommandFailed where security
    forbids it."""

    def __init__(self, address: str, timeout_s: float = REQUEST_TIMEOUT_S, secured: Security | None = None) -> None:
        """`secured` is for another cluster than that of --bootstrap."""
        meant = address.meant if isinstance(address, NodeAddress) else None
        known = client_security.current() if secured is None else secured
        self._connection = connection(address, known, timeout_s, meant=meant)

    def fileno(self) -> int:
        return self._connection.fileno()

    @property
    def following_id(self) -> int:
        """The correlation id that the next frame has to have."""
        return self._connection.following_id

    def send_frame(self, frame: bytes | bytearray) -> None:
        self._connection.send_frame(frame)

    def receive_frame(self) -> memoryview:
        return self._connection.receive_frame()

    def ask(self, key: ApiKey, values: Mapping[str, Any], version: int | None = None) -> dict[str, Any]:
        """One request and its answer as plain values; `version` is for who has seen that the broker has it."""
        return self._connection.ask(key, _VERSIONS[key] if version is None else version, values)

    def version_max(self, key: ApiKey) -> int:
        """The newest version of an API that the broker has, -1 for none."""
        return self._connection.newest(key)

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """The first and the last version of each API that the broker has."""
        return self._connection.versions

    def close(self) -> None:
        self._connection.close()


def ask(
    bootstrap: str,
    key: ApiKey,
    values: Mapping[str, Any],
    timeout_s: float = REQUEST_TIMEOUT_S,
    secured: Security | None = None,
) -> dict[str, Any]:
    """One request to the first address that answers. Raises CommandFailed."""
    from ottla.client.connection import OtherNode

    failure: str | None = None
    for address in [bootstrap] if isinstance(bootstrap, NodeAddress) else addresses(bootstrap):
        try:
            with closing(Link(address, timeout_s, secured)) as link:
                return link.ask(key, values)
        except OtherNode as error:
            raise no_answer(address, address, error) from error
        except OSError as error:
            failure = reason_of(address, error)
    raise nobody_answers(f"{bootstrap}: {failure or 'no address given'}")


def no_answer(subject: str, address: str, error: OSError) -> CommandFailed:
    """The error where one node did not answer, or its address has come to another node."""
    from ottla.client.connection import OtherNode

    if not isinstance(error, OtherNode):
        return nobody_answers(f"{subject}: {reason_of(address, error)}")
    return CommandFailed(
        f"{error}, and was not used\n"
        "  try again in a moment: a node that moved, or restarted at another port, is known soon\n"
        "  see where the nodes are with: ottla cluster describe",
        UNREACHABLE,
    )


def ensure_answer(bootstrap: str, secured: Security | None = None) -> None:
    """Ensure that a broker answers, not only accepts connections. Raises CommandFailed: MISUSED, UNREACHABLE, FAILED
    where security forbids it."""
    ask(bootstrap, ApiKey.API_VERSIONS, WHO_ASKS, ANSWER_TIMEOUT_S, secured)


def failure_of(code: int, subject: str, text: str | None = None) -> CommandFailed:
    """An error code of the protocol as a sentence."""
    from confluent_kafka import KafkaError

    return failure(KafkaError(code, text) if text else KafkaError(code), subject)


def ensure_none(answer: Mapping[str, Any], subject: str) -> None:
    """Raises CommandFailed for an answer that carries an error."""
    code = int(answer.get("error_code") or 0)
    if code:
        raise failure_of(code, f"{subject}: ", answer.get("error_message"))


def coordinator(bootstrap: str, group: str) -> str:
    """The address of the broker that keeps a group. Raises CommandFailed."""
    (found,) = ask(bootstrap, ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": [group]})["coordinators"]
    ensure_none(found, f"group {group!r}")
    return f"{found['host']}:{found['port']}"


def topic_setting(bootstrap: str, topic: str, name: str) -> str | None:
    """One setting of a topic, None where there is no such topic or it may not be seen."""
    return topic_settings(bootstrap, [topic], name).get(topic)


def topic_settings(bootstrap: str, topics: Sequence[str], name: str) -> dict[str, str | None]:
    """One setting of several topics, without those that are not there or may not be seen."""
    results = ask(bootstrap, ApiKey.DESCRIBE_CONFIGS, asked_settings(_TOPIC, topics, [name]))["results"]
    return {
        topic["resource_name"]: each["value"] for topic in results for each in topic["configs"] if each["name"] == name
    }


def broker_setting(address: str, broker: int, name: str, timeout_s: float = REQUEST_TIMEOUT_S) -> str | None:
    """One setting of the broker at an address, None where it is not known there, may not be seen, or nobody answers."""
    values = asked_settings(_BROKER, [str(broker)], [name])
    try:
        results = ask(address, ApiKey.DESCRIBE_CONFIGS, values, timeout_s)["results"]
    except CommandFailed:
        return None
    return next((each["value"] for row in results for each in row["configs"] or () if each["name"] == name), None)


def leaders_of(bootstrap: str, topic: str) -> list[str]:
    """The addresses of the brokers that lead partitions of a topic; none where there is no such topic."""
    asked = [{"topic_id": None, "name": topic}]
    metadata = ask(bootstrap, ApiKey.METADATA, {"topics": asked, "allow_auto_topic_creation": False})
    leaders = {part["leader_id"] for row in metadata["topics"] for part in row["partitions"]}
    return [address for node_id, address in broker_addresses(metadata).items() if node_id in leaders]


def quorum(bootstrap: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The answer to DescribeQuorum, and its row of the metadata partition. Raises CommandFailed."""
    answer = ask(bootstrap, ApiKey.DESCRIBE_QUORUM, QUORUM_ASKED)
    ensure_none(answer, "the quorum")
    (row,) = answer["topics"][0]["partitions"]
    if row["error_code"]:
        raise failure_of(row["error_code"], "the quorum", row.get("error_message"))
    return answer, row


def finalized_features(bootstrap: str) -> dict[str, int]:
    """Feature to the level that the cluster has agreed on, such as metadata.version."""
    answer = _api_versions(bootstrap)
    return {each["name"]: int(each["max_version_level"]) for each in answer.get("finalized_features") or ()}


def version_max(bootstrap: str, key: ApiKey, secured: Security | None = None) -> int:
    """The newest version of an API that a broker has, -1 for none."""
    return _version_max(_api_versions(bootstrap, secured), key)


def _version_max(answer: Mapping[str, Any], key: ApiKey) -> int:
    return max((int(each["max_version"]) for each in answer["api_keys"] if each["api_key"] == key), default=-1)


def _api_versions(bootstrap: str, secured: Security | None = None) -> dict[str, Any]:
    answer = ask(bootstrap, ApiKey.API_VERSIONS, WHO_ASKS, secured=secured)
    ensure_none(answer, bootstrap)
    return answer


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
