"""`make deploy-check`: the image is built and run, without Docker. Minutes the first time: a Debian is installed and
Ottla compiled; what did not change is kept in `.cache/deploy`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.deploy import test_manifests as manifests
from tests.deploy.images import LAYERS, Image, build, container, in_container
from tests.deploy.roots import ROOT, Root, why_not
from tests.deploy.switch import Switch, in_network, poll

WANTED = bool(os.environ.get("OTTLA_TEST_DEPLOY"))
pytestmark = [
    pytest.mark.skipif(not WANTED, reason="make deploy-check runs it"),
    pytest.mark.timeout(1800),
]
CLEAN = "data/.kafka_cleanshutdown"
RECORDS = 1000
IMAGE_MB_MAX = 350
CLIENT = """
import sys
from confluent_kafka import Consumer, Producer
bootstrap, count = sys.argv[1], int(sys.argv[2])
producer = Producer({"bootstrap.servers": bootstrap})
for number in range(count):
    producer.produce("seen", str(number))
assert producer.flush(60) == 0
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
consumer.subscribe(["seen"])
seen = [message for message in consumer.consume(count, 60) if not message.error()]
consumer.close()
print(len(seen))
"""


@pytest.fixture(scope="session")
def image() -> Image:
    if (why := why_not()) is not None:
        pytest.skip(why)
    tools = ["debootstrap:debootstrap", "ip:iproute2", "setpriv:util-linux"]
    subprocess.run([ROOT / "peers/debian.sh", *tools], check=True)
    return build(ROOT / "deploy" / "Dockerfile", ROOT)


@contextmanager
def running(image: Image, env: dict[str, str], volume: Path) -> Iterator[Root]:
    with container(image, env, volume) as root:
        root.release()
        try:
            poll("a healthy node", lambda: healthy(root, image))
        except AssertionError:
            print(root.console)
            raise
        yield root


def healthy(root: Root, image: Image, env: dict[str, str] | None = None) -> bool:
    variables = {**image.env, **(env or {})}
    return root.run(image.health, env=variables, user=image.user, check=False).returncode == 0


def test_a_container_by_itself(image: Image, tmp_path: Path) -> None:
    """As `docker run -p 9092:9092`: what it is, what it serves, how it stops, and what it finds when it is back."""
    with running(image, {}, tmp_path / "volume") as root:
        status = Path(f"/proc/{root.pid}/status").read_text()
        facts = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert facts["Uid"].split() == ["1000"] * 4
        assert int(facts["CapEff"], 16) == int(facts["CapBnd"], 16) == 0
        assert facts["NSpid"].split()[-1] == "1", "signals reach it"
        assert root.run("touch /opt/x", check=False).returncode != 0, "its root is read-only"
        client = ["nsenter", "-t", str(root.pid), "-n", sys.executable, "-c", CLIENT, "localhost:9092", str(RECORDS)]
        assert subprocess.run(client, capture_output=True, text=True, check=True).stdout == f"{RECORDS}\n"
        assert root.stop() == 0
        assert "node stopped" in root.console
    assert (tmp_path / "volume" / CLEAN).exists()
    with running(image, {}, tmp_path / "volume") as root:
        typed = ["ottla", "consume", "seen", "--from", "beginning", "--count", str(RECORDS)]
        assert len(in_container(root, image, typed).splitlines()) == RECORDS
        root.stop()


def test_a_container_that_does_not_serve_is_not_healthy(image: Image, tmp_path: Path) -> None:
    with container(image, {}, tmp_path / "volume") as root:
        assert not healthy(root, image)


def test_a_mistake_ends_the_container_with_a_sentence(image: Image, tmp_path: Path) -> None:
    with container(image, {"OTTLA_NUM_PARTITIONZ": "3"}, tmp_path / "volume") as root:
        root.release()
        assert root.wait() == 2
        assert "environment variable OTTLA_NUM_PARTITIONZ" in root.console


def test_the_image_is_small(image: Image) -> None:
    base = next(each for each in image.layers if "debian-" in each)
    kept = [each for each in image.layers if each != base]
    done = subprocess.run(["du", "-scm", *kept], capture_output=True, text=True, check=True)
    added_mb = int(done.stdout.splitlines()[-1].split()[0])
    print(f"{added_mb} MB over Debian's")
    assert added_mb < IMAGE_MB_MAX
    assert not any((Path(each) / "opt/ottla/bin/pip").exists() for each in image.layers)


Named = tuple[str, Sequence[str], dict[str, str], Path | None]
"""A node: its name, its other names, its variables, and its settings file where that is not the image's."""


@contextmanager
def cluster(image: Image, nodes: Sequence[Named], directory: Path) -> Iterator[dict[str, Root]]:
    """All of them, healthy, on a network of their own."""
    with ExitStack() as stack:
        switch = stack.enter_context(Switch(directory / "hosts"))
        addresses = {name: switch.name(name, *more) for name, more, _, _ in nodes}
        roots: dict[str, Root] = {}
        for name, _, env, file in nodes:
            root = container(image, env, directory / name, hosts=str(switch.hosts))
            if file is not None:
                root.binds[manifests.FILE] = str(file)
            roots[name] = stack.enter_context(root)
            switch.connect(root, addresses[name])
        for root in roots.values():
            root.release()
        for name, _, env, _ in nodes:
            try:
                poll(f"a healthy {name}", lambda root=roots[name], env=env: healthy(root, image, env))
            except AssertionError:
                print(*(each.console for each in roots.values()), sep="\n\n")
                raise
        yield roots


def use(image: Image, roots: dict[str, Root], bootstrap: str) -> None:
    """Write, lose a node without a word, read, stop the others cleanly."""
    lost, *others = roots
    one = roots[others[0]]
    in_container(one, image, ["ottla", "topic", "create", "orders", "-p", "6", "-b", bootstrap])
    made = "\n".join(map(str, range(RECORDS)))
    one.run(["ottla", "produce", "orders", "-b", bootstrap], env=image.env, user=image.user, stdin=made)
    os.kill(roots[lost].pid, 9)
    typed = ["ottla", "consume", "orders", "--from", "beginning", "--count", str(RECORDS), "-b", bootstrap]

    def all_are_read() -> bool:
        """The address of the lost one is silent: others lead when its session has ended, and commands wait less."""
        done = one.run(typed, env=image.env, user=image.user, check=False)
        return done.returncode == 0 and len(set(done.stdout.splitlines())) == RECORDS

    poll("every record", all_are_read)
    for name in others:
        assert roots[name].stop() == 0, roots[name].console


def test_the_compose_files_nodes(image: Image, tmp_path: Path) -> None:
    nodes: list[Named] = [(name, (), each["environment"], None) for name, each in manifests.nodes().items()]
    with cluster(image, nodes, tmp_path) as roots:
        scraped(roots, tmp_path)
        use(image, roots, "ottla-1:9092,ottla-2:9092,ottla-3:9092")


def scraped(roots: dict[str, Root], directory: Path) -> None:
    """Debian's Prometheus, with the compose file's configuration, finds every node and loads the alerts."""
    binaries = prometheus()
    config = str(ROOT / "deploy" / "prometheus" / "compose.yml")
    for check in (["config", config], ["config", str(ROOT / "deploy/prometheus/prometheus.yml")]):
        subprocess.run([binaries / "promtool", "check", *check], check=True)
    hosts, root = directory / "hosts", next(iter(roots.values()))
    server = [str(binaries / "prometheus"), f"--config.file={config}", f"--storage.tsdb.path={directory / 'metrics'}"]
    process = subprocess.Popen(in_network(root, hosts, *server, "--web.listen-address=127.0.0.1:9090"))
    try:
        poll("three nodes that Prometheus scrapes", lambda: sorted(asked(root, hosts, "ottla_ready")) == ["1"] * 3)
        assert sorted(asked(root, hosts, "up")) == ["1"] * 3
        assert asked(root, hosts, "ALERTS{alertstate='firing'}") == []
    finally:
        process.terminate()
        process.wait()


def asked(root: Root, hosts: Path, query: str) -> list[str]:
    program = (
        "import sys; from urllib.parse import quote; from urllib.request import urlopen; "
        "print(urlopen('http://127.0.0.1:9090/api/v1/query?query=' + quote(sys.argv[1])).read().decode())"
    )
    command = in_network(root, hosts, sys.executable, "-c", program, query)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return []
    found: dict[str, Any] = json.loads(done.stdout)
    return [each["value"][1] for each in found["data"]["result"]]


def prometheus() -> Path:
    """Where Debian's `prometheus` and `promtool` are: unpacked only, since an installed one starts itself."""
    place = LAYERS / "prometheus"
    if not place.exists():
        place.mkdir(parents=True)
        subprocess.run(["apt-get", "download", "-qq", "prometheus"], cwd=place, check=True)
        (package,) = place.glob("prometheus_*.deb")
        subprocess.run(["dpkg-deb", "-x", package, place], check=True)
    return place / "usr" / "bin"


def test_the_pods_nodes(image: Image, tmp_path: Path) -> None:
    nodes: list[Named] = []
    for ordinal in range(3):
        manifests.pod_config("base", ordinal, tmp_path)
        name = f"ottla-{ordinal}"
        more = (f"{name}.ottla-nodes", f"{name}.ottla-nodes.streams.svc")
        nodes.append((name, more, manifests.pod_env("base", ordinal), tmp_path / "server.properties"))
    with cluster(image, nodes, tmp_path) as roots:
        use(image, roots, "ottla-1.ottla-nodes.streams.svc:9092,ottla-2.ottla-nodes:9092")


def test_compose_reads_its_file() -> None:
    """By the loader of `docker compose` itself, which knows its schema and what extends what."""
    if shutil.which("go") is None:
        pytest.skip("no go here")
    done = subprocess.run(
        ["go", "run", ".", str(ROOT / "deploy" / "compose.yaml")],
        cwd=Path(__file__).parent / "compose",
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert {name: each["environment"] for name, each in found["services"].items() if name.startswith("ottla-")} == {
        name: {key: str(value) for key, value in each["environment"].items()}
        for name, each in manifests.nodes().items()
    }
