"""A broker's settings of the time of ZooKeeper, completed with what a node needs beside them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from ottla.config.listeners import parse_listener, parse_protocol_map
from ottla.config.tables.node import ZOOKEEPER_MODE
from ottla.errors import OttlaError

CONTROLLER = "CONTROLLER"
DEFAULT_LISTENERS = "PLAINTEXT://:9092"
NOTHING: Mapping[str, str] = {}


class IdIsGenerated(OttlaError):
    """The cluster gives the broker its number."""


JAVA_OPTIONS = {
    "java.security.auth.login.config": "ottla.zookeeper.login.config",
    "zookeeper.sasl.clientconfig": "ottla.zookeeper.login.context",
    "zookeeper.client.secure": "zookeeper.ssl.client.enable",
    "zookeeper.clientCnxnSocket": "zookeeper.clientCnxnSocket",
    "zookeeper.ssl.keyStore.location": "zookeeper.ssl.keystore.location",
    "zookeeper.ssl.keyStore.password": "zookeeper.ssl.keystore.password",
    "zookeeper.ssl.keyStore.type": "zookeeper.ssl.keystore.type",
    "zookeeper.ssl.trustStore.location": "zookeeper.ssl.truststore.location",
    "zookeeper.ssl.trustStore.password": "zookeeper.ssl.truststore.password",
    "zookeeper.ssl.trustStore.type": "zookeeper.ssl.truststore.type",
    "zookeeper.ssl.protocol": "zookeeper.ssl.protocol",
    "zookeeper.ssl.enabledProtocols": "zookeeper.ssl.enabled.protocols",
    "zookeeper.ssl.ciphersuites": "zookeeper.ssl.cipher.suites",
    "zookeeper.ssl.crl": "zookeeper.ssl.crl.enable",
    "zookeeper.ssl.ocsp": "zookeeper.ssl.ocsp.enable",
}
"""Java's system properties by which brokers, before 2.5 all of them, were told how to reach the ensemble, and the
setting of each."""


def from_java_options(environ: Mapping[str, str]) -> dict[str, str]:
    """Settings of the way to the ensemble that `KAFKA_OPTS` gives as `-Dname=value`. Raises OttlaError."""
    try:
        words = shlex.split(environ.get("KAFKA_OPTS", ""))
    except ValueError as error:
        raise OttlaError(f"KAFKA_OPTS cannot be read: {error}") from None
    given = dict(each[2:].partition("=")[::2] for each in words if each.startswith("-D"))
    found = {JAVA_OPTIONS[name]: value for name, value in given.items() if name in JAVA_OPTIONS}
    if given.get("zookeeper.sasl.client", "true").lower() == "false":
        found.pop("ottla.zookeeper.login.config", None)  # the file is for other logins
    if given.get("zookeeper.ssl.hostnameVerification", "true").lower() == "false":
        found["zookeeper.ssl.endpoint.identification.algorithm"] = ""
    return found


def completed(given: Mapping[str, str], environ: Mapping[str, str] = NOTHING) -> dict[str, str]:
    """The settings of a node that has both roles, since any of these brokers may become the controller.

    Where the file names no listener of controllers, one is added at a free port: brokers find it in ZooKeeper. It has
    the host and the security protocol of the listener by which brokers reach each other. Raises OttlaError.
    """
    node_id = given.get("node.id") or _broker_id(given)
    found = {
        **from_java_options(environ),
        **given,
        "process.roles": "broker,controller",
        "node.id": node_id,
        ZOOKEEPER_MODE: "true",
    }
    if given.get("broker.id", "").strip() == "-1":
        found["broker.id"] = node_id
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


def _broker_id(given: Mapping[str, str]) -> str:
    """Raises OttlaError; IdIsGenerated where the number is not in the file, and need not be."""
    text = given.get("broker.id", "-1").strip()
    generates = given.get("broker.id.generation.enable", "true").strip().lower() != "false"
    if text == "-1":
        if not generates:
            raise OttlaError("broker.id is missing: give each broker of this cluster a number of its own")
        raise IdIsGenerated(
            "broker.id is -1: the cluster gives this broker a number, which `ottla server start` asks for and keeps in "
            "meta.properties; elsewhere say it by --set node.id=NUMBER"
        )
    highest = given.get("reserved.broker.max.id", "1000").strip()
    if generates and text.isdecimal() and highest.isdecimal() and int(text) > int(highest):
        raise OttlaError(
            f"broker.id is {text}, but numbers above reserved.broker.max.id={highest} are given by the cluster: take a "
            "lower one, raise it, or set broker.id.generation.enable=false"
        )
    return text


_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def _plain(text: str) -> dict[str, str]:
    return {each: each for each in _PROTOCOLS}
