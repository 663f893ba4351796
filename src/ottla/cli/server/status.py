"""`ottla server status`: whether a node runs on a directory or at an address, and what it holds."""

from __future__ import annotations

import os
import posixpath
import socket
import struct
from collections.abc import Iterable
from http.client import HTTPConnection, HTTPException
from json import loads as parse_json
from typing import Any

from ottla.cli.client import settings
from ottla.cli.client_security import ClientFile
from ottla.cli.cluster.describe import metadata_version, view
from ottla.cli.exits import OK, UNREACHABLE, CommandFailed
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from ottla.cli.output import human_bytes, iso_time, plural, print_json, visible
from ottla.cli.server.processes import holder, listening, may_look_into, process
from ottla.cli.units import duration
from ottla.cli.values import Raw
from ottla.filesystem import OsFileSystem
from ottla.http_answers import Limits, exchange
from ottla.storage.checkpoints.meta_properties import read_meta_properties
from ottla.storage.log_directories import LOCK_FILE

PROBE_SECONDS_MAX = 2.0
"""For a port of this machine to say what it is."""
READY_BYTES_MAX = 1 << 20
"""Limit of an answer of `/ready`: it has a line for each reason."""

_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""The smallest Kafka request: ApiVersions 0 without a client id."""


def status(
    directory: Raw | None = None,
    /,
    *,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Show whether a node is running, with its address, version, topics, partitions, size and uptime.

    Exit code 0 if the node answers, 3 if it does not.

    Parameters
    ----------
    directory
        A node's data directory. Default: ask the node at --bootstrap.
    """
    found = of_directory(directory) if directory is not None else of_address(bootstrap)
    if json:
        print_json(found)
    else:
        _print(found)
    return OK if found["running"] and found["address"] else UNREACHABLE


def of_address(bootstrap: str) -> dict[str, Any]:
    """The first broker at an address. Raises CommandFailed(UNREACHABLE) where nobody answers."""
    settings(bootstrap)
    found = _asked(bootstrap)
    for directory in found["log_dirs"]:
        pid = holder(posixpath.join(directory, LOCK_FILE))
        if pid is not None and _is_of_cluster(directory, found["cluster_id"]):
            return found | process(pid) | _ready(filter(speaks_http, listening(pid)))
    return found


def of_directory(directory: str) -> dict[str, Any]:
    """The node that holds a directory's lock. Raises CommandFailed for what is no node's directory."""
    meta = read_meta_properties(OsFileSystem(), directory) if os.path.isdir(directory) else None
    if meta is None:
        raise CommandFailed(f"{visible(directory)} is not a node's directory: there is no meta.properties")
    found: dict[str, Any] = {"running": False, "address": None, "log_dirs": [directory], "cluster_id": meta.cluster_id}
    pid = holder(posixpath.join(directory, LOCK_FILE))
    if pid is None:
        return found
    found |= {"running": True} | process(pid)
    addresses = listening(pid)
    http = [address for address in addresses if speaks_http(address)]
    found |= _ready(http)
    for address in addresses:
        if address in http:
            continue
        try:
            asked = _asked(address)
        except Exception as error:  # a controller's listener, or one that wants TLS
            found["failure"] = str(error).partition("\n")[0]
            continue
        if asked["cluster_id"] == meta.cluster_id:
            return found | asked
    return found


def speaks_http(address: str) -> bool:
    """Whether a port of this machine is a node's HTTP port: it answers a Kafka request with an error in HTTP."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), PROBE_SECONDS_MAX) as sock:
            sock.settimeout(PROBE_SECONDS_MAX)
            sock.sendall(_API_VERSIONS)
            return sock.recv(5) == b"HTTP/"
    except OSError:
        return False


def _ready(addresses: Iterable[str]) -> dict[str, Any]:
    """The readiness reported by the first of these HTTP ports, and its address."""
    for address in addresses:
        connection = HTTPConnection(address, timeout=PROBE_SECONDS_MAX)
        try:
            answer = exchange(connection, "GET", "/ready", Limits(PROBE_SECONDS_MAX, READY_BYTES_MAX))
            said = parse_json(answer.body)
            return {"http": address, "ready": not said["reasons"], "not_ready_because": said["reasons"]}
        except (OSError, ValueError, KeyError, TypeError, HTTPException):
            continue
    return {}


def _asked(bootstrap: str) -> dict[str, Any]:
    cluster = view(bootstrap)
    mine = [broker for broker in cluster["brokers"] if broker["address"] in bootstrap] or cluster["brokers"][:1]
    if not mine:
        raise CommandFailed(f"{bootstrap} answers, but the controller has fenced every broker of its cluster")
    return {
        "running": True,
        "address": mine[0]["address"],
        "broker": mine[0]["id"],
        "cluster_id": cluster["cluster_id"],
        "metadata_version": metadata_version(cluster["features"]),
        "topics": cluster["topics"],
        "partitions": cluster["partitions"],
        "bytes": mine[0]["bytes"],
        "free_bytes": mine[0]["free_bytes"],
        "log_dirs": mine[0]["log_dirs"],
        "failures": mine[0]["failures"],
    }


def _is_of_cluster(directory: str, cluster_id: str) -> bool:
    """Whether a directory that a broker named lies on this machine: the broker may be elsewhere."""
    meta = read_meta_properties(OsFileSystem(), directory) if os.path.isdir(directory) else None
    return meta is not None and meta.cluster_id == cluster_id


def _print(found: dict[str, Any]) -> None:
    where = ", ".join(found["log_dirs"])
    if not found["running"]:
        print(f"not running on {where}\n  start it with: ottla server start {where}")
        return
    facts = [f"process {found['pid']}"] if "pid" in found else []
    if "uptime_s" in found:
        facts.append(f"up {duration(found['uptime_s'])}, since {(iso_time(found['started_ms']) or '')[:19]}Z")
    if "memory_bytes" in found:
        facts.append(f"memory {human_bytes(found['memory_bytes'])}")
    program = found.get("program") or "a broker"
    if found["address"] is None:
        because = "; ".join([*found.get("not_ready_because", ())])
        if "pid" in found and not may_look_into(found["pid"]):
            print(f"{program} holds {where}: {', '.join(facts)}")
            print("  its process belongs to another user, so its address is unknown; ask with --bootstrap HOST:PORT")
            return
        print(f"{program} holds {where} but does not answer{f' ({because})' if because else ''}: {', '.join(facts)}")
        return
    print(f"{program} runs at {found['address']}")
    if facts:
        print(f"  process    {', '.join(facts).removeprefix('process ')}")
    print(f"  cluster    {found['cluster_id']}, broker {found['broker']}, metadata version {found['metadata_version']}")
    print(f"  holds      {plural(found['topics'], 'topic')}, {plural(found['partitions'], 'partition')}", end="")
    print("" if found["bytes"] is None else f", {human_bytes(found['bytes'])}")
    free = "" if found["free_bytes"] is None else f" ({human_bytes(found['free_bytes'])} free)"
    if where:
        print(f"  data in    {where}{free}")
    if "ready" in found:
        because = f", {'; '.join(found['not_ready_because'])}" if found["not_ready_because"] else ""
        print(f"  health     {'ready' if found['ready'] else 'not ready'}{because} (http://{found['http']}/ready)")
    for failure in found["failures"]:
        print(f"  trouble    {failure}")
