"""`ottla migrate zookeeper`: a cluster that Kafka keeps in ZooKeeper becomes one of Ottla, and goes back."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ottla.cli.exits import FAILED, MISUSED, OK, UNREACHABLE, CommandFailed
from ottla.cli.options import AsJson, Flag
from ottla.cli.output import print_json, visible
from ottla.cli.values import Raw, Text
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from ottla.config.server import ServerConfig
    from ottla.drivers.zookeeper.access import EnsembleAccess
    from ottla.migration.directories import Node
    from ottla.migration.importing import Plan
    from ottla.migration.trees import Client
    from ottla.znodes.findings import Finding
    from ottla.zookeeper.client import ZooKeeper

CONNECT_MS = 15_000
"""How long no server of the ensemble may answer."""

SESSION_MS = 40_000
"""Twice as long as a broker's: the most that an ensemble with its default settings gives."""

Configs = Annotated[list[Raw] | None, Parameter(name="--config", negative="", consume_multiple=False)]
Secrets = Annotated[list[Raw] | None, Parameter(name="--encoder-secret", negative="", consume_multiple=False)]


def zookeeper(
    *,
    connect: Text,
    plan: Flag = False,
    execute: Flag = False,
    verify: Flag = False,
    rollback: Flag = False,
    config: Configs = None,
    encoder_secret: Secrets = None,
    zookeeper_config: Raw | None = None,
    initial_controllers: Text | None = None,
    accept_loss: Flag = False,
    json: AsJson = False,
) -> int:
    """Import a cluster that Kafka keeps in ZooKeeper, from 0.11 to 3.9. All brokers must be stopped.

    Give one of --plan, --execute, --verify and --rollback. The last three are run on every host, and can be run again
    after an interruption. Exit code 1 where something is in the way.

    Parameters
    ----------
    connect
        The ensemble as in zookeeper.connect: HOST:PORT,HOST:PORT/chroot.
    plan
        Say what would be carried over, what is in the way and what would be lost. Nothing is written.
    execute
        Hold the controller's place, and prepare the log directories of this host's nodes for Ottla.
    verify
        Compare the ensemble with the metadata of this host's controller, which may run.
    rollback
        Write the cluster back to ZooKeeper and give this host's directories back to Kafka. Stop all nodes first.
    config
        The settings file of a node of this host, as Ottla will start with it; may be repeated.
    encoder_secret
        A file with a password.encoder.secret that encrypted passwords in ZooKeeper, if it is not in the settings files;
        may be repeated. The first one encrypts on the way back.
    zookeeper_config
        A file that says how the ensemble is reached, if by TLS or with a login: zookeeper.ssl.*, zookeeper.set.acl and
        ottla.zookeeper.login.config (a JAAS file). A broker's file will do. Options of Java in KAFKA_OPTS count too.
    initial_controllers
        With --plan and --execute, where the settings have controller.quorum.bootstrap.servers: the controllers of all
        hosts with which the dynamic quorum begins, as ID@HOST:PORT,.... The first host decides for the others.
    accept_loss
        With --rollback: go on where something has no place in ZooKeeper.
    """
    if plan + execute + verify + rollback != 1:
        raise CommandFailed("give one of --plan, --execute, --verify and --rollback", MISUSED)
    if accept_loss and not rollback:
        raise CommandFailed("--accept-loss belongs to --rollback", MISUSED)
    if initial_controllers is not None and not (plan or execute):
        raise CommandFailed("--initial-controllers belongs to --plan and --execute", MISUSED)
    if not plan and not config:
        raise CommandFailed("give the settings file of each node of this host: --config FILE", MISUSED)
    settings = [(path, _load(path)) for path in config or ()]
    nodes = [_node(path, each) for path, each in settings]
    secrets = _secrets(encoder_secret or (), [each for _, each in settings])
    work: Work
    if plan or execute:
        begin = _plan if plan else _execute
        initial = _first_voters(initial_controllers)
        work = partial(begin, nodes=nodes, secrets=secrets, initial=initial, json=json)
    elif verify:
        work = partial(_verify, nodes=nodes, secrets=secrets, json=json)
    else:
        work = partial(_rollback, nodes=nodes, secrets=secrets, accept_loss=accept_loss, json=json)
    with closing(_access(zookeeper_config)) as access:
        return asyncio.run(_connected(connect, access, work))


def _load(path: str) -> ServerConfig:
    from ottla.cli.server.start import StartOptions, load_config

    try:
        return load_config(StartOptions(None, path, {}), os.environ)
    except OttlaError as error:
        raise CommandFailed(f"{visible(path)}: {error}", MISUSED) from None


def _node(path: str, config: ServerConfig) -> Node:
    from ottla.migration.directories import Node

    voters = frozenset(config.quorum_voters)
    if not voters and not config.quorum_servers:
        voters = frozenset({config.node_id})
    return Node(
        visible(path),
        config.node_id,
        config.is_broker,
        config.is_controller,
        config.log_dirs,
        config.metadata_log_dir,
        voters,
        config.controller_protocol[0],
        config.delete_topic_enable,
    )


def _first_voters(text: str | None) -> tuple[str, ...]:
    from ottla.migration.first_voters import parse_first_voters

    try:
        return () if text is None else parse_first_voters(text)
    except OttlaError as error:
        raise CommandFailed(str(error), MISUSED) from None


def _secrets(files: Sequence[str], configs: Sequence[ServerConfig]) -> list[str]:
    """The secrets of passwords, without doubles: those of files, then the current and the old ones of the settings."""
    from ottla.config.secret import Secret, revealed

    found: list[str] = []
    for path in files:
        try:
            found.append(Path(path).read_text(encoding="utf-8").removesuffix("\n"))
        except (OSError, ValueError) as error:
            raise CommandFailed(f"--encoder-secret: {visible(path)} cannot be read: {error}", MISUSED) from None
    for name in ("password.encoder.secret", "password.encoder.old.secret"):
        found += [revealed(each.static[name]) for each in configs if each.static.get(name)]
    return [Secret(each) for each in dict.fromkeys(found)]


def _access(path: str | None) -> EnsembleAccess:
    from ottla.config.properties import decode_properties, parse_properties
    from ottla.config.zookeeper import from_java_options
    from ottla.drivers.zookeeper.access import ensemble_access
    from ottla.network import SystemNetwork

    given: dict[str, str] = {}
    try:
        if path is not None:
            given = parse_properties(decode_properties(Path(path).read_bytes()))
        return ensemble_access(
            SystemNetwork(), {**from_java_options(os.environ), **given}, lambda name: Path(name).read_bytes()
        )
    except (OSError, OttlaError, ValueError) as error:
        where = "" if path is None else f"--zookeeper-config {visible(path)}: "
        raise CommandFailed(f"{where}{error}", MISUSED) from None


Work = Callable[["Client"], Awaitable[int]]


async def _connected(connect: str, access: EnsembleAccess, work: Work) -> int:
    import random

    from ottla.migration.importing import Refused
    from ottla.migration.permissions import Protected
    from ottla.zookeeper.client import ZooKeeper
    from ottla.zookeeper.errors import AuthFailedError, ConnectionLossError, ZooKeeperError

    try:
        client = ZooKeeper(
            access.network, connect, random=random.SystemRandom(), session_timeout_ms=SESSION_MS, login=access.login
        )
    except ValueError as error:
        raise CommandFailed(f"--connect: {error}", MISUSED) from None
    async with client:
        try:
            await client.wait_connected(CONNECT_MS)
            await _check_chroot(client, connect)
            return await work(Protected(client, access.acl) if access.sets_acls else client)
        except AuthFailedError as error:
            raise CommandFailed(f"ZooKeeper at {visible(connect)} refuses the login: {error}", FAILED) from None
        except ConnectionLossError as error:
            raise CommandFailed(f"ZooKeeper at {visible(connect)}: {error}", UNREACHABLE) from None
        except Refused as error:
            _print_findings(error.findings)
            raise CommandFailed("nothing was written: see above what is in the way", FAILED) from None
        except (ZooKeeperError, OttlaError, OSError) as error:
            raise CommandFailed(str(error), FAILED) from None


async def _check_chroot(client: ZooKeeper, connect: str) -> None:
    if await client.exists("/") is None:
        raise CommandFailed(f"the chroot of {visible(connect)} does not exist in the ensemble", FAILED)


def _print_findings(findings: Sequence[Finding]) -> None:
    from ottla.znodes.findings import Severity

    for severity in Severity:
        rows = [each for each in findings if each.severity is severity]
        if rows:
            print(f"{severity.value}:")
            for row in rows:
                print(f"  {visible(row.path)}: {visible(row.text)}")


async def _plan(
    client: Client, nodes: Sequence[Node], secrets: Sequence[str], initial: Sequence[str], json: bool
) -> int:
    from ottla.filesystem import OsFileSystem
    from ottla.migration.importing import check_nodes, plan

    found = await plan(client, secrets)
    notes = check_nodes(OsFileSystem(), nodes, found, initial) if found.is_possible else []
    rows = _carried(found)
    if json:
        print_json(
            {
                "possible": found.is_possible,
                "carried_over": dict(rows),
                "notes": notes,
                "findings": [{"kind": e.severity.value, "znode": e.path, "text": e.text} for e in found.findings],
            }
        )
        return OK if found.is_possible else FAILED
    print(f"cluster {found.cluster.cluster_id or 'unknown'}, controller epoch {found.cluster.controller_epoch}")
    print("carried over:")
    for name, count in rows:
        print(f"  {count:>9,} {name}")
    _print_findings(found.findings)
    for note in notes:
        print(f"note: {note}")
    if found.decided is not None:
        done = ", ".join(map(str, found.decided.nodes)) or "none"
        print(f"an import has begun; nodes that are done: {done}")
    print("nothing is in the way" if found.is_possible else "the import is not possible yet")
    return OK if found.is_possible else FAILED


def _carried(found: Plan) -> list[tuple[str, int]]:
    cluster = found.cluster
    without_ids = sum(topic.assignment.topic_id is None for topic in cluster.topics)
    leaderless = sum(each.state.leader < 0 for topic in cluster.topics for each in topic.partitions.values())
    return [
        ("topics", len(cluster.topics)),
        ("of these get a topic id", without_ids),
        ("partitions", cluster.partition_count),
        ("of these had no leader", leaderless),
        ("topics with settings", len(cluster.topic_configs)),
        ("topics whose deletion is finished", len(cluster.deleted)),
        ("brokers with dynamic settings", len(cluster.broker_configs)),
        ("entities with quotas", len(cluster.quotas)),
        ("SCRAM credentials", len(cluster.credentials)),
        ("ACLs", len(cluster.acls)),
        ("delegation tokens", len(cluster.tokens)),
    ]


def _tell(text: str) -> None:
    print(text, file=sys.stderr)


async def _execute(
    client: Client, nodes: Sequence[Node], secrets: Sequence[str], initial: Sequence[str], json: bool
) -> int:
    import random

    from ottla.clock import SystemClock
    from ottla.filesystem import OsFileSystem
    from ottla.migration.importing import execute

    decided = await execute(
        client,
        OsFileSystem(),
        nodes,
        random.SystemRandom(),
        SystemClock().now_ms,
        secrets=secrets,
        initial=initial,
        report=_tell,
    )
    if json:
        print_json({"cluster_id": decided.cluster_id, "nodes": list(decided.nodes), "digest": decided.digest})
        return OK
    print(f"cluster {decided.cluster_id}: nodes {', '.join(map(str, decided.nodes))} are imported")
    voters = frozenset(decided.voters).union(*(node.voters for node in nodes))
    missing = sorted(voters - frozenset(decided.nodes))
    if missing:
        print(f"run this command on the hosts of nodes {', '.join(map(str, missing))} too before any node starts")
    print("start each node with: ottla server start --config FILE; then: ottla migrate zookeeper --verify")
    return OK


async def _verify(client: Client, nodes: Sequence[Node], secrets: Sequence[str], json: bool) -> int:
    from ottla.filesystem import OsFileSystem
    from ottla.migration.decision import decision_in
    from ottla.migration.importing import LEVELS
    from ottla.migration.metadata_image import load_image
    from ottla.migration.trees import read_tree
    from ottla.migration.verifying import differences
    from ottla.znodes.checking import IMPORT
    from ottla.znodes.reading import Reader
    from ottla.znodes.unfinished import finish

    tree = await read_tree(client)
    decided = decision_in(tree)
    if decided is None:
        raise CommandFailed(f"{IMPORT} is not there: no import has begun", FAILED)
    reader = Reader(tree, secrets)
    found = reader.read()
    refused = [*reader.findings.refused(), *finish(reader).refused()]
    if refused:
        _print_findings(refused)
        return FAILED
    rows: dict[int, list[str]] = {}
    for node in nodes:
        if node.is_controller:
            loaded = load_image(OsFileSystem(), node.metadata_log_dir, decided.cluster_id)
            compared = differences(found, decided.seed, LEVELS, loaded.image)
            rows[node.node_id] = await asyncio.to_thread(list, compared)
    if not rows:
        raise CommandFailed("none of the settings files is a controller's: its metadata is compared", MISUSED)
    if json:
        print_json({str(node): each for node, each in rows.items()})
    else:
        for node_id, each in rows.items():
            print(f"node {node_id}: {'the same as in ZooKeeper' if not each else f'{len(each)} differences'}")
            for line in each:
                print(f"  {visible(line)}")
    return FAILED if any(rows.values()) else OK


async def _rollback(
    client: Client, nodes: Sequence[Node], secrets: Sequence[str], accept_loss: bool, json: bool
) -> int:
    from ottla.filesystem import OsFileSystem
    from ottla.migration.rollback import roll_back

    secret = secrets[0] if secrets else None
    left: Any = await roll_back(client, OsFileSystem(), nodes, secret=secret, accept_loss=accept_loss, report=_tell)
    if json:
        print_json({"released": left is None, "nodes": [node.node_id for node in nodes]})
        return OK
    print(f"nodes {', '.join(str(node.node_id) for node in nodes)} are rolled back")
    if left is None:
        print("the controller's place is free: brokers with ZooKeeper can start once their hosts are rolled back")
    return OK
