"""`ottla server status`: whether a node runs on a directory or at an address, and what it holds."""

from __future__ import annotations

import os
import posixpath
from typing import Any

from ottla.cli.client import settings
from ottla.cli.cluster import metadata_version, view
from ottla.cli.exits import OK, UNREACHABLE, CommandFailed
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from ottla.cli.output import human_bytes, iso_time, plural, print_json
from ottla.cli.processes import holder, listening, process
from ottla.cli.words import duration
from ottla.filesystem import OsFileSystem
from ottla.storage.log_manager import LOCK_FILE
from ottla.storage.meta_properties import read_meta_properties


def status(directory: str | None = None, /, *, json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> int:
    """Say whether a node runs: its address, version, topics, partitions, size, and since when.

    Exit code 0 if it runs and answers, 3 if it does not.

    Parameters
    ----------
    directory
        A node's data directory. Unless given, the node at --bootstrap is asked.
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
            return found | process(pid)
    return found


def of_directory(directory: str) -> dict[str, Any]:
    """The node that holds a directory's lock. Raises CommandFailed for what is no node's directory."""
    meta = read_meta_properties(OsFileSystem(), directory) if os.path.isdir(directory) else None
    if meta is None:
        raise CommandFailed(f"{directory} is no node's directory: there is no meta.properties")
    found: dict[str, Any] = {"running": False, "address": None, "log_dirs": [directory], "cluster_id": meta.cluster_id}
    pid = holder(posixpath.join(directory, LOCK_FILE))
    if pid is None:
        return found
    found |= {"running": True} | process(pid)
    for address in listening(pid):
        try:
            asked = _asked(address)
        except Exception as error:  # a controller's listener, or one that wants TLS
            found["failure"] = str(error).partition("\n")[0]
            continue
        if asked["cluster_id"] == meta.cluster_id:
            return found | asked
    return found


def _asked(bootstrap: str) -> dict[str, Any]:
    cluster = view(bootstrap)
    mine = [broker for broker in cluster["brokers"] if broker["address"] in bootstrap] or cluster["brokers"][:1]
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
        print(f"{program} holds {where} but does not answer: {', '.join(facts)}")
        return
    print(f"{program} runs at {found['address']}{': ' if facts else ''}{', '.join(facts)}")
    print(f"  cluster    {found['cluster_id']}, broker {found['broker']}, metadata version {found['metadata_version']}")
    print(f"  holds      {plural(found['topics'], 'topic')}, {plural(found['partitions'], 'partition')}", end="")
    print("" if found["bytes"] is None else f", {human_bytes(found['bytes'])}")
    free = "" if found["free_bytes"] is None else f" ({human_bytes(found['free_bytes'])} free)"
    if where:
        print(f"  data in    {where}{free}")
    for failure in found["failures"]:
        print(f"  trouble    {failure}")
