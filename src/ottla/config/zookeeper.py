"""A broker's settings of the time of ZooKeeper, completed with what a node needs beside them."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.config.listeners import parse_listener, parse_protocol_map
from ottla.config.tables.node import ZOOKEEPER_MODE
from ottla.errors import OttlaError

CONTROLLER = "CONTROLLER"
DEFAULT_LISTENERS = "PLAINTEXT://:9092"


def completed(given: Mapping[str, str]) -> dict[str, str]:
    """The settings of a node that has both roles, since any of these brokers may become the controller.

    Where the file names no listener of controllers, one is added at a free port: brokers find it in ZooKeeper. It has
    the host and the security protocol of the listener by which brokers reach each other. Raises OttlaError.
    """
    node_id = given.get("node.id", given.get("broker.id", "-1"))
    if node_id == "-1":
        raise OttlaError("broker.id is missing: give each broker of this cluster a number of its own")
    for name, lacks in _NOT_KEPT.items():
        if given.get(name, "").strip().lower() == "true":
            raise OttlaError(
                f"{name} is true, but this version reaches ZooKeeper without {lacks} only: remove it, and keep the "
                "ensemble on a network of its own"
            )
    found = {**given, "process.roles": "broker,controller", "node.id": node_id, ZOOKEEPER_MODE: "true"}
    if "controller.listener.names" in given:
        return found
    found["controller.listener.names"] = CONTROLLER
    texts = [each.strip() for each in given.get("listeners", DEFAULT_LISTENERS).split(",") if each.strip()]
    protocol_map = given.get("listener.security.protocol.map", "")
    protocols = parse_protocol_map(protocol_map) if protocol_map else {}
    name = given.get("inter.broker.listener.name") or given.get("security.inter.broker.protocol", "PLAINTEXT")
    listeners = [parse_listener("listeners", text, protocols or _plain(text)) for text in texts]
    own = next((each for each in listeners if each.name == name.upper()), listeners[0])
    host = f"[{own.host}]" if ":" in own.host else own.host
    found["listeners"] = ",".join((*texts, f"{CONTROLLER}://{host}:0"))
    if "advertised.listeners" not in given:
        found["advertised.listeners"] = ",".join(texts)
    mapped = [protocol_map] if protocol_map else [f"{each}:{each}" for each in _PROTOCOLS]
    found["listener.security.protocol.map"] = ",".join((*mapped, f"{CONTROLLER}:{own.protocol}"))
    return found


_NOT_KEPT = {"zookeeper.ssl.client.enable": "TLS", "zookeeper.set.acl": "a login"}
"""What would protect the ensemble, and is not there."""

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def _plain(text: str) -> dict[str, str]:
    return {each: each for each in _PROTOCOLS}
