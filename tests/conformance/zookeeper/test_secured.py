"""An ensemble that lets in only who logs in, over TLS: bytes of a login that only the server's own code can judge, and
who may read and change the znodes that brokers make."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from ottla.drivers.zookeeper.access import EnsembleAccess, ensemble_access
from ottla.drivers.zookeeper.tree import ensure, read_tree
from ottla.network import SystemNetwork
from ottla.zookeeper.client import ZooKeeper
from ottla.zookeeper.errors import AuthFailedError, Code, NoAuthError, ZooKeeperError
from peers.zookeeper import ZooKeeperPeer
from tests.certificates import Authority

PASSWORD = 'of "kafka", ö'

SERVER = """Server {
  org.apache.zookeeper.server.auth.DigestLoginModule required user_kafka="of \\"kafka\\", ö" user_other="x";
};
"""
CLIENT = 'Client {{ org.apache.zookeeper.server.auth.DigestLoginModule required username="{}" password="{}"; }};\n'
QUOTED = PASSWORD.replace('"', '\\"')


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Address of the TLS port, and a directory with what clients need."""
    if shutil.which("java") is None:
        pytest.skip("no Java here to run Apache ZooKeeper with")
    directory = tmp_path_factory.mktemp("secured")
    authority = Authority()
    (directory / "server.pem").write_text(authority.issue("localhost").pem())
    (directory / "ca.pem").write_text(authority.pem)
    (directory / "server.jaas").write_text(SERVER)
    for name, password in {"kafka": QUOTED, "other": "x", "wrong": "y"}.items():
        (directory / f"{name}.jaas").write_text(CLIENT.format(name.replace("wrong", "kafka"), password))
    flags = [f"-Djava.security.auth.login.config={directory / 'server.jaas'}", "-Dfile.encoding=UTF-8"]
    peer = ZooKeeperPeer(directory / "peer", flags=flags)
    peer.settings |= {
        "secureClientPort": str(peer.election_port),
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": str(directory / "server.pem"),
        "ssl.trustStore.location": str(directory / "ca.pem"),
        "ssl.clientAuth": "none",
        "enforce.auth.enabled": "true",
        "enforce.auth.schemes": "sasl",
        "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
    }
    with peer:
        yield f"localhost:{peer.election_port}", directory


def access_of(directory: Path, user: str | None) -> EnsembleAccess:
    given = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.ssl.truststore.location": str(directory / "ca.pem"),
    }
    if user is not None:
        given |= {"ottla.zookeeper.login.config": str(directory / f"{user}.jaas"), "zookeeper.set.acl": "true"}
    return ensemble_access(SystemNetwork(), given, lambda path: Path(path).read_bytes())


def client_of(connect: str, access: EnsembleAccess) -> ZooKeeper:
    return ZooKeeper(access.network, connect, random=Random(1), login=access.login)


def test_who_logs_in_owns_what_it_makes(secured: tuple[str, Path]) -> None:
    connect, directory = secured
    kafka, other = access_of(directory, "kafka"), access_of(directory, "other")
    paths = ("/brokers/ids", "/config/users/alice", "/consumers")

    async def walk() -> None:
        async with client_of(connect, kafka) as client, client_of(connect, other) as stranger:
            await client.wait_connected(5000)
            for path in paths:
                await ensure(client, path, kafka.acl)
            for path in paths:
                assert [each.id for each in (await client.acl(path)).acls if each.scheme == "sasl"] == (
                    [] if path == "/consumers" else ["kafka"]
                )
            await client.set("/brokers/ids", b"mine")
            assert (await stranger.get("/brokers/ids")).data == b"mine"
            for refused in (stranger.set("/brokers/ids", b""), stranger.get("/config/users/alice")):
                with pytest.raises(NoAuthError):
                    await refused
            await stranger.create("/consumers/group")

    asyncio.run(walk())
    kafka.close()
    other.close()


def test_a_login_that_is_made_again_at_each_connection(secured: tuple[str, Path]) -> None:
    """The session goes on, and its watches with it: they are set again behind the login."""
    connect, directory = secured
    kafka = access_of(directory, "kafka")

    async def walk() -> None:
        async with client_of(connect, kafka) as client, client_of(connect, kafka) as writer:
            seen = asyncio.Event()
            await client.create("/again", acl=kafka.acl("/again"))
            session = client.session_id
            await client.get("/again", lambda event: seen.set())
            client._do(client._session.disconnected("broken", client._now_ms()))
            client._disconnect()
            await client.wait_connected(5000)
            assert client.session_id == session
            await writer.set("/again", b"2")
            await asyncio.wait_for(seen.wait(), 5)

    asyncio.run(walk())
    kafka.close()


def test_a_wrong_password_and_none(secured: tuple[str, Path]) -> None:
    connect, directory = secured
    wrong, nobody = access_of(directory, "wrong"), access_of(directory, None)

    async def walk() -> None:
        client = client_of(connect, wrong)
        client.start()
        with pytest.raises(AuthFailedError, match=r"does not accept .*kafka"):
            await client.wait_connected(5000)
        with pytest.raises(AuthFailedError):
            await client.get("/")
        client.abort()
        async with client_of(connect, nobody) as client:
            with pytest.raises(ZooKeeperError) as refused:
                await client.get("/brokers")
            assert refused.value.code in (Code.SESSION_CLOSED_REQUIRE_SASL_AUTH, Code.AUTH_FAILED, Code.CONNECTION_LOSS)

    asyncio.run(walk())
    wrong.close()
    nobody.close()


NOT_FOR_OTHERS = ("/config/users", "/config/brokers", "/delegation_token")


def test_a_node_whose_number_the_cluster_gives_owns_its_znodes(secured: tuple[str, Path], tmp_path: Path) -> None:
    """A broker's file of Kafka 2.x, with the login in `KAFKA_OPTS`. The number is kept at the next start."""
    connect, directory = secured
    (tmp_path / "server.properties").write_text(
        f"broker.id=-1\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path / 'data'}\nzookeeper.set.acl=true\n"
        f"zookeeper.connect={connect}/node\nzookeeper.ssl.client.enable=true\nreserved.broker.max.id=7\n"
        "zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty\n"
        f"zookeeper.ssl.truststore.location={directory / 'ca.pem'}\n"
    )
    kafka = access_of(directory, "kafka")

    async def look() -> None:
        async with client_of(f"{connect}/node", kafka) as client:
            assert (await client.children("/brokers/ids")).names == ["8"]
            names = sorted({*(await client.children("/")).names} - {"consumers"})  # which is everybody's
            found = await read_tree(client, [f"/{each}" for each in names])
            assert len(found) > 20
            for path in found:
                acls = {(each.scheme, each.perms) for each in (await client.acl(path)).acls}
                others = set() if path.startswith(NOT_FOR_OTHERS) else {("world", 1)}
                assert acls == {("sasl", 31)} | others, path

    for _ in range(2):
        node = subprocess.Popen(
            [sys.executable, "-m", "ottla.cli.main", "server", "start", "--config", tmp_path / "server.properties"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "KAFKA_OPTS": f"-Djava.security.auth.login.config={directory / 'kafka.jaas'}"},
        )
        try:
            assert node.stdout is not None
            said = [node.stdout.readline()]
            while said[-1] and "listening on" not in said[-1]:
                said.append(node.stdout.readline())
            assert "listening on" in said[-1], "".join(said)
            assert "node.id=8\n" in (tmp_path / "data" / "meta.properties").read_text()
            asyncio.run(look())
        finally:
            node.terminate()
            node.communicate()
        assert node.returncode == 0
    kafka.close()
    _plan_an_import(f"{connect}/node", directory, tmp_path / "server.properties")


def _plan_an_import(connect: str, directory: Path, file: Path) -> None:
    """`ottla migrate zookeeper` reaches the ensemble as the broker did, by its file, or says what is missing."""
    command = [sys.executable, "-m", "ottla.cli.main", "migrate", "zookeeper", "--connect", connect, "--plan"]
    expected = {
        "kafka": (0, "nothing is in the way"),
        "wrong": (1, "does not accept"),
        "other": (1, "which --zookeeper-config gives"),
    }
    for user, (code, text) in expected.items():
        options = f"-Djava.security.auth.login.config={directory / user}.jaas"
        done = subprocess.run(
            [*command, "--zookeeper-config", str(file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "KAFKA_OPTS": options},
        )
        assert (done.returncode, text in done.stdout) == (code, True), done.stdout
