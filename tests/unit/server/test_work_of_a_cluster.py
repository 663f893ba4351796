"""No request holds the loop of another node: what is forwarded to the controller, and what a controller's listener
serves. Three nodes run in threads of one process, each on a loop of its own that counts (`counting.py`).

The requests are found as in `test_work_between_yields.py`: every array of every API is long.
"""

from __future__ import annotations

import asyncio
import random
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.clock import SystemClock
from ottla.config.server import ServerConfig
from ottla.errors import ErrorCode
from ottla.filesystem import OsFileSystem
from ottla.network import SystemNetwork
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.server import api
from ottla.server.controller_handlers import CONTROLLER_TABLE
from ottla.server.handlers import FORWARDABLE, TABLE
from ottla.server.node import Node
from tests import kio_oracle
from tests.unit.server.counting import CALLS_MAX, PARTITIONS, ROWS, TOPIC, CountingLoop, arrays, filled, request

OWN = sorted(key for key, served in CONTROLLER_TABLE.items() if served.module.startswith("controller_handlers."))
"""What the listener of a broker does not serve, or otherwise."""
NODES = 3
TIMEOUT_S = 60.0


class Member:
    """A node in a thread of its own."""

    def __init__(self, number: int, directory: Path, port: int, voters: str) -> None:
        self.loop = CountingLoop()
        self.settings = {
            "process.roles": "broker,controller",
            "node.id": str(number),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(directory / str(number)),
            "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{port}",
            "ottla.cluster.id": "Jk3UMx2zQ0y8oVh1mE5cRw",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "num.partitions": str(PARTITIONS),
            "ottla.log.slow.request.ms": "-1",
            "auto.create.topics.enable": "false",
        }
        self.node: Any = None
        self.started = threading.Event()
        self._stop: asyncio.Event
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        number = int(self.settings["node.id"])
        config = ServerConfig.load(None, self.settings, {})
        self._stop = asyncio.Event()
        self.node = Node(config, OsFileSystem(), SystemClock(), random.Random(number), SystemNetwork())
        try:
            await self.node.start()
            self.started.set()
            await self._stop.wait()
        finally:
            self.loop.end()
            await self.node.stop()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)

    def profile(self) -> None:
        done = threading.Event()

        def begin() -> None:
            self.loop.begin()
            done.set()

        self.loop.call_soon_threadsafe(begin)
        assert done.wait(TIMEOUT_S)


@contextmanager
def cluster(directory: Path, nodes: int = NODES) -> Iterator[list[Member]]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(nodes)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(ports, start=1))
    members = [Member(number, directory, port, voters) for number, port in enumerate(ports, start=1)]
    for each in members:
        each.thread.start()
    try:
        for each in members:
            assert each.started.wait(TIMEOUT_S)
        yield members
    finally:
        for each in members:
            each.stop()
        for each in members:
            each.thread.join(TIMEOUT_S)


def ask(port: int, frame: bytes) -> bytes | None:
    """The answer; None where the connection is closed instead."""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as client:
        sending = threading.Thread(target=_send, args=(client, frame), daemon=True)
        sending.start()
        data = b""
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            some = client.recv(1 << 20)
            if not some:
                return None
            data += some
        return data[4:]


def _send(client: socket.socket, frame: bytes) -> None:
    try:
        client.sendall(frame)
    except OSError:
        pass


def until(condition: Any) -> Any:
    deadline = time.monotonic() + TIMEOUT_S
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def too_much(members: list[Member], *what: object) -> list[str]:
    """What nodes did in one piece that was more than it may be."""
    found = [each for each in members if each.loop.worst > CALLS_MAX]
    return [f"{what}, node {each.settings['node.id']}: {each.loop.worst} calls\n{each.loop.where}" for each in found]


def long_requests(key: int, version: int) -> list[tuple[tuple[str, ...], dict[str, Any]]]:
    cls = kio_oracle.request_class(key, version)
    kio_oracle.response_class(key, version)
    return [(path, filled(cls, path, True)) for path in arrays(cls)]


def test_requests_that_brokers_forward_and_controllers_serve(tmp_path: Path) -> None:
    for key in TABLE:
        api.load(key)  # imports are once, and not counted
    for key in CONTROLLER_TABLE:
        api.load_for_controller(key)
    with cluster(tmp_path) as members, ThreadPoolExecutor(NODES) as pool:
        active = until(lambda: next((each for each in members if each.node.metadata.controller.active), None))
        other = next(each for each in members if each is not active)
        broker_port, controller_port = other.node.ports["PLAINTEXT"], active.node.ports["CONTROLLER"]
        create = [{"name": TOPIC, "num_partitions": PARTITIONS, "replication_factor": NODES}]
        frame = request(ApiKey.CREATE_TOPICS, 5, {"topics": create, "timeout": 10_000})
        until(lambda: ask(broker_port, frame) and all(each.node.image.topic(TOPIC) for each in members))
        for each in members:
            each.profile()
        asked = 0
        failures: list[str] = []

        def walk(port: int, key: int, version: int, what: str) -> None:
            nonlocal asked
            for path, values in long_requests(key, version):
                for each in members:
                    each.loop.restart()
                pool.submit(ask, port, request(key, version, values)).result(TIMEOUT_S)
                failures.extend(too_much(members, what, ApiKey(key).name, path))
                asked += 1

        for key in sorted(FORWARDABLE - {ApiKey.UNREGISTER_BROKER}):
            version = min(of.table[key].max_version for of in (api.OF_BROKERS, api.OF_CONTROLLERS))
            walk(broker_port, key, version, "forwarded")
        for key in OWN:
            walk(controller_port, key, CONTROLLER_TABLE[key].max_version, "of a controller")
        assert asked > 40, asked
        for remove in (False, True):  # what is decided reaches every node
            for each in members:
                each.loop.restart()
            pool.submit(ask, broker_port, quotas(remove=remove)).result(TIMEOUT_S)
            until(lambda rows=0 if remove else ROWS: {len(each.node.image.client_quotas) for each in members} == {rows})
            failures += too_much(members, "quotas, removed:", remove)
        assert not failures, "\n".join(failures)


def quotas(*, remove: bool) -> bytes:
    """AlterClientQuotas of many clients, which is not refused."""
    ops = [{"key": "producer_byte_rate", "value": 1e9, "remove": remove}]
    entries = [{"entity": [{"entity_type": "client-id", "entity_name": f"c{n}"}], "ops": ops} for n in range(ROWS)]
    return request(ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": entries, "validate_only": False})


def test_no_kind_of_request_breaks_a_controller(tmp_path: Path) -> None:
    """UpdateRaftVoter that is refused is answered in its own form."""
    key = ApiKey.UPDATE_RAFT_VOTER
    with cluster(tmp_path, 1) as members:
        values = filled(kio_oracle.request_class(key, 0), (), True)
        answer = ask(members[0].node.ports["CONTROLLER"], request(key, 0, values))
        assert answer is not None
        _, found = messages.decode_response(key, 0, answer)
        assert found.error_code == ErrorCode.inconsistent_cluster_id and found.current_leader.leader_id == 1


@pytest.mark.parametrize("key", sorted({*TABLE, *CONTROLLER_TABLE}), ids=lambda key: ApiKey(key).name.lower())
def test_every_api_is_in_a_walk(key: int) -> None:
    """`test_work_between_yields.py` walks the APIs of brokers, each with all of its arrays. An API of a controller's
    listener that is not walked here is served by one of those handlers, in no later version."""
    if key in CONTROLLER_TABLE and key not in OWN:
        served = CONTROLLER_TABLE[key]
        assert served.module == f"handlers.{TABLE[key].module}" and served.max_version <= TABLE[key].max_version
    else:
        assert key in TABLE or key in OWN
