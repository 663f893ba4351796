"""`ottla.testing.Broker`: quick, alone with its port and directory, and gone when its user is, however that ended."""

from __future__ import annotations

import asyncio
import importlib.metadata
import multiprocessing
import os
import pickle
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource

from ottla.testing import Broker, BrokerError

ROOT = Path(__file__).resolve().parents[3]
QUIET = {"ottla.log.slow.request.ms": -1}
"""Where nothing may be printed, also on a loaded machine."""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The temporary directory of the test and of what it starts; brokers must leave nothing there."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield directory
    assert os.listdir(directory) == []


def send(bootstrap: str, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(300) == 0


def test_a_broker_that_halts_takes_nobody_with_it() -> None:
    """Its disk refuses to write metadata: its process ends, and `stop` says why."""
    broker = Broker(topics={"t": 200}).start()
    (log,) = (broker.directory / "__cluster_metadata-0").glob("*.log")
    limit = log.stat().st_size
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (limit, limit))
    with pytest.raises(BrokerError):  # it may still have been refused
        broker.create_topic("u")
    until_s = time.monotonic() + 300
    with pytest.raises(BrokerError, match=r"died \(exit status 1\)"):
        while time.monotonic() < until_s and broker.pid:
            time.sleep(0.02)
    with pytest.raises(BrokerError, match=r"died while it was in use[\s\S]*FATAL ottla\.node: the node halts"):
        broker.stop()


def receive(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        messages = consumer.consume(count, timeout=300)
        return sorted(message.value() or b"" for message in messages)
    finally:
        consumer.close()


def partitions(bootstrap: str) -> dict[str, int]:
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=300).topics
    return {name: len(topic.partitions) for name, topic in found.items() if not name.startswith("__")}


def wait_until_gone(pid: int, seconds: float = 120) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], seconds)[0], f"process {pid} still runs"
    finally:
        os.close(descriptor)


class TestStart:
    def test_it_serves_and_leaves_nothing(self) -> None:
        with Broker(QUIET) as broker:
            pid, directory = broker.pid, broker.directory
            assert directory.is_dir()
            send(broker.bootstrap, "t", b"a", b"b")
            assert receive(broker.bootstrap, "t", 2) == [b"a", b"b"]
            assert broker.output == ""
            assert repr(broker) == f"<Broker 127.0.0.1:{broker.port}>"
        wait_until_gone(pid)
        assert not directory.exists()

    def test_it_is_ready_after_little_work(self) -> None:
        """A fifth of a second of processor time, of which a loaded machine may need several times as much."""
        with Broker() as broker:
            fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
            assert (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") < 2

    def test_topics_and_settings(self) -> None:
        topics = {"orders": 3, "audit": {"cleanup_policy": "compact", "partitions": 2}, "more": {}}
        settings = {"num.partitions": 4, "log.retention.hours": "1"}
        with Broker(settings, topics=topics, auto_create_topics_enable=False) as broker:
            assert partitions(broker.bootstrap) == {"orders": 3, "audit": 2, "more": 4}
            assert broker.create_topic("later", 5, retention_ms=1000) == "later"
            assert partitions(broker.bootstrap)["later"] == 5
            later, audit = (ConfigResource(ConfigResource.Type.TOPIC, name) for name in ("later", "audit"))
            client = AdminClient({"bootstrap.servers": broker.bootstrap})
            found = client.describe_configs([later, audit])
            assert found[later].result(300)["retention.ms"].value == "1000"
            assert found[audit].result(300)["cleanup.policy"].value == "compact"
            assert found[audit].result(300)["retention.ms"].value == "3600000"

    def test_a_list_of_topics_and_no_string(self) -> None:
        with Broker(topics=["a", "b"]) as broker:
            assert partitions(broker.bootstrap) == {"a": 1, "b": 1}
        with pytest.raises(TypeError, match="'orders': 3"):
            Broker(topics="orders")

    def test_the_environment_of_a_command_is_not_a_broker_s(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OTTLA_NUM_PARTITIONS", "7")
        with Broker(topics=["t"]) as broker:
            assert partitions(broker.bootstrap) == {"t": 1}

    def test_eight_at_once(self) -> None:
        brokers = [Broker(topics={f"t{number}": number + 1}) for number in range(8)]
        with ThreadPoolExecutor(8) as pool:
            try:
                list(pool.map(Broker.start, brokers))
                assert len({broker.bootstrap for broker in brokers}) == 8
                for number, broker in enumerate(brokers):
                    assert partitions(broker.bootstrap) == {f"t{number}": number + 1}
            finally:
                list(pool.map(Broker.stop, brokers))


class TestRefusals:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ({"num_partition": 3}, "unknown setting num.partition: .*did you mean num.partitions"),
            ({"num_partitions": 0}, "num.partitions=0 is refused: allowed is at least 1"),
            ({"topics": {"a/b": 1}}, "topic a/b: Topic name is invalid"),
            ({"topics": {"a": {"cleanup_policy": "x"}}}, "Invalid value x for configuration cleanup.policy"),
            ({"topics": {"a": 0}}, "topic a: Number of partitions"),
            ({"keep": "/proc/no"}, "/proc/no"),
        ],
    )
    def test_what_is_wrong_is_said(self, arguments: dict[str, object], words: str) -> None:
        broker = Broker(**arguments)  # type: ignore[arg-type]
        with pytest.raises(BrokerError, match=words):
            broker.start()
        with pytest.raises(BrokerError, match="not started"):
            _ = broker.directory

    def test_a_topic_that_exists(self) -> None:
        with Broker(topics=["t"]) as broker:
            with pytest.raises(BrokerError, match=r"topic t: .*already exists"):
                broker.create_topic("t")
            assert broker.create_topic("u") == "u"

    def test_no_interpreter_to_run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "executable", "/no/python")
        with pytest.raises(BrokerError, match=r"cannot run Python as '/no/python' \(sys\.executable\): No such file"):
            Broker().start()

    def test_a_comma_in_the_path_would_be_two_directories(self, tmp_path: Path) -> None:
        with pytest.raises(BrokerError, match="a,b"):
            Broker(keep=tmp_path / "a,b").start()
        assert os.listdir(tmp_path) == ["temporary"]

    def test_a_port_in_use(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(BrokerError, match=f"port {port} cannot be used: address already in use"):
                Broker(port=port).start()

    def test_starting_twice(self) -> None:
        with Broker() as broker, pytest.raises(BrokerError, match="already started"):
            broker.start()


class TestLife:
    def test_restart_keeps_address_and_data(self) -> None:
        with Broker(topics={"t": 2}) as broker:
            address = broker.bootstrap
            send(address, "t", b"before")
            broker.restart()
            assert broker.bootstrap == address
            send(address, "t", b"after")
            assert receive(address, "t", 2) == [b"after", b"before"]

    def test_kill_is_a_crash_from_which_it_recovers(self) -> None:
        with Broker(topics=["t"]) as broker:
            send(broker.bootstrap, "t", b"a")
            broker.kill()
            with pytest.raises(BrokerError, match="was killed; restart"):
                broker.create_topic("u")
            broker.restart()
            assert receive(broker.bootstrap, "t", 1) == [b"a"]
            broker.kill()

    def test_its_port_is_nobody_else_s_while_it_is_down(self) -> None:
        with Broker() as broker:
            broker.kill()
            others = [socket.create_server(("127.0.0.1", 0)) for _ in range(200)]
            assert broker.port not in {other.getsockname()[1] for other in others}
            for other in others:
                other.close()
            broker.restart()

    def test_a_port_is_free_again_at_once(self) -> None:
        with Broker(topics=["t"]) as broker:
            port = broker.port
            send(broker.bootstrap, "t", b"a")
        for _ in range(2):
            with Broker(port=port) as again:
                assert again.port == port
                assert partitions(again.bootstrap) == {}

    def test_listeners_of_the_user_s_own(self) -> None:
        listeners = ["ONE://127.0.0.1:0", "TWO://127.0.0.1:0"]
        kinds = "ONE:PLAINTEXT,TWO:PLAINTEXT"
        with Broker(listeners=listeners, listener_security_protocol_map=kinds, inter_broker_listener_name="ONE") as b:
            assert partitions(b.bootstrap) == {}

    def test_a_kept_directory(self, tmp_path: Path) -> None:
        for round_ in range(2):
            with Broker(topics=["t"], keep=tmp_path / "data") as broker:
                assert broker.directory == tmp_path / "data"
                send(broker.bootstrap, "t", b"%d" % round_)
                assert len(receive(broker.bootstrap, "t", 1)) == 1
        assert (tmp_path / "data" / "t-0").is_dir()

    def test_a_kept_directory_serves_one_at_a_time(self, tmp_path: Path) -> None:
        with Broker(keep=tmp_path / "data"), pytest.raises(BrokerError, match=r"(?s)data.*in use"):
            Broker(keep=tmp_path / "data").start()

    def test_a_broker_that_died_is_reported(self) -> None:
        broker = Broker().start()
        pid = broker.pid  # which it does not tell once it has noticed
        os.kill(pid, signal.SIGKILL)
        wait_until_gone(pid)
        with pytest.raises(BrokerError, match=r"died \(killed by SIGKILL\)"):
            broker.create_topic("t")
        with pytest.raises(BrokerError, match=r"died while it was in use \(killed by SIGKILL\)"):
            broker.stop()
        broker.stop()

    def test_the_test_s_own_error_comes_first(self) -> None:
        with pytest.raises(ZeroDivisionError), Broker() as broker:
            pid = broker.pid
            os.kill(pid, signal.SIGKILL)
            wait_until_gone(pid)
            _ = 1 // 0

    def test_it_can_be_started_again_from_new(self) -> None:
        broker = Broker(topics=["t"])
        for _ in range(2):
            with broker:
                assert partitions(broker.bootstrap) == {"t": 1}

    def test_clear(self) -> None:
        with Broker(QUIET, topics={"t": 2}) as broker:
            broker.create_topic("other")
            send(broker.bootstrap, "t", b"a", b"b")
            assert receive(broker.bootstrap, "t", 2) == [b"a", b"b"]
            broker.clear()
            client = AdminClient({"bootstrap.servers": broker.bootstrap})
            assert partitions(broker.bootstrap) == {"t": 2}
            assert client.list_consumer_groups().result(300).valid == []
            send(broker.bootstrap, "t", b"c")
            assert receive(broker.bootstrap, "t", 1) == [b"c"]
            broker.restart()
            assert partitions(broker.bootstrap) == {"t": 2}
            assert broker.output == ""

    def test_clear_where_topics_may_not_be_deleted(self) -> None:
        with Broker(topics=["t"], delete_topic_enable=False) as broker:
            with pytest.raises(BrokerError, match="topic_deletion_disabled"):
                broker.clear()
            assert partitions(broker.bootstrap) == {"t": 1}

    def test_a_forgotten_broker_ends(self) -> None:
        broker = Broker().start()
        pid = broker.pid
        del broker
        wait_until_gone(pid)

    def test_async_with(self) -> None:
        async def main() -> int:
            async with Broker(topics=["t"]) as broker:
                assert await asyncio.to_thread(partitions, broker.bootstrap) == {"t": 1}
                return broker.pid

        wait_until_gone(asyncio.run(main()))

    def test_async_with_cancelled(self) -> None:
        async def use() -> None:
            async with Broker():
                pass

        async def main() -> None:
            task = asyncio.create_task(use())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())


SCRIPT = r"""
import os, sys, time
from ottla.testing import Broker
broker = Broker(topics=["t"]).start()
if "fork" in sys.argv and os.fork() == 0:
    os.write(1, f"fork {os.getpid()}\n".encode())
    time.sleep(60)
os.write(1, f"broker {broker.pid} {broker.directory}\n".encode())
if "wait" in sys.argv or "fork" in sys.argv:
    time.sleep(60)
if "exit" in sys.argv:
    os._exit(3)
if "raise" in sys.argv:
    1 / 0
"""


class TestTheEndOfTheTestProcess:
    """Each without a chance to clean up, or without doing it."""

    def start(self, *arguments: str) -> tuple[subprocess.Popen[str], dict[str, list[str]]]:
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert process.stdout is not None
        said = {}
        for _ in range(2 if "fork" in arguments else 1):
            name, *rest = process.stdout.readline().split()
            said[name] = rest
        return process, said

    def assert_gone(self, process: subprocess.Popen[str], said: dict[str, list[str]]) -> None:
        pid, directory = said["broker"]
        process.wait(300)
        assert process.stdout is not None
        process.stdout.close()
        wait_until_gone(int(pid))
        assert not Path(directory).parent.exists()

    @pytest.mark.parametrize("name", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
    def test_killed(self, name: signal.Signals) -> None:
        process, said = self.start("wait")
        process.send_signal(name)
        self.assert_gone(process, said)

    @pytest.mark.parametrize("how", ["end", "exit", "raise"])
    def test_ended_without_stop(self, how: str) -> None:
        self.assert_gone(*self.start(how))

    def test_killed_while_a_fork_of_it_lives_on(self) -> None:
        process, said = self.start("fork")
        process.kill()
        try:
            self.assert_gone(process, said)
        finally:
            os.kill(int(said["fork"][0]), signal.SIGKILL)

    def test_killed_while_the_broker_starts(self, temporary: Path) -> None:
        for step in range(4):
            process = subprocess.Popen([sys.executable, "-c", SCRIPT, "wait"], stdout=subprocess.DEVNULL)
            deadline = time.monotonic() + 60
            while not (found := children(process.pid)) and time.monotonic() < deadline:
                time.sleep(0.002)
            time.sleep(0.04 * step)
            process.kill()
            process.wait()
            wait_until_gone(found[0])
            assert os.listdir(temporary) == []


def children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def use_elsewhere(bootstrap: str) -> dict[str, int]:
    return partitions(bootstrap)


def misuse_in_a_fork(broker: Broker) -> str:
    broker.stop()
    try:
        broker.create_topic("u")
    except BrokerError as error:
        return str(error)
    return ""


class TestOtherProcesses:
    @pytest.mark.parametrize("method", ["fork", "spawn"])
    def test_multiprocessing(self, method: str) -> None:
        with Broker(topics=["t"]) as broker:
            with multiprocessing.get_context(method).Pool(2) as pool:
                assert pool.map(use_elsewhere, [broker.bootstrap] * 2) == [{"t": 1}] * 2
            assert partitions(broker.bootstrap) == {"t": 1}

    def test_a_fork_cannot_stop_it(self) -> None:
        with Broker() as broker:
            here, there = os.pipe()
            pid = os.fork()
            if pid == 0:
                try:
                    os.write(there, misuse_in_a_fork(broker).encode())
                finally:
                    os._exit(0)
            os.waitpid(pid, 0)
            assert f"belongs to process {os.getpid()}" in os.read(here, 1000).decode()
            os.close(here)
            os.close(there)
            assert broker.create_topic("u") == "u"

    def test_it_is_not_sent_to_another_process(self) -> None:
        with pytest.raises(TypeError, match=r"send its address, broker\.bootstrap"):
            pickle.dumps(Broker())

    def test_imports_come_from_where_the_test_s_come(self) -> None:
        """Also when that is only known to the running process, as under pytest's `pythonpath`."""
        source = str(ROOT / "src")
        code = f"import sys; sys.path.insert(0, {source!r}); from ottla.testing import Broker; Broker().start()"
        subprocess.run([sys.executable, "-c", code], check=True, cwd="/", timeout=300)


class TestCost:
    def loaded(self, code: str) -> set[str]:
        code += "; import sys; print(*sys.modules)"
        output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        return set(output.stdout.split())

    def test_importing_loads_little(self) -> None:
        loaded = self.loaded("import ottla.testing")
        assert {name for name in loaded if name.startswith("ottla")} == {
            "ottla",
            "ottla.testing",
            "ottla.testing.broker",
            "ottla.testing.lifetime",
            "ottla.testing.process",
            "ottla.testing.exchange",
            "ottla.testing.records",
        }
        assert not loaded & {"asyncio", "kio", "uvloop", "confluent_kafka", "pytest", "rich", "multiprocessing"}

    def test_the_plugin_loads_nothing_of_a_broker_until_asked(self) -> None:
        loaded = self.loaded("import pytest, ottla.testing.plugin")
        assert not loaded & {"kio", "uvloop", "confluent_kafka", "asyncio"}


class TestPlugin:
    def test_the_package_announces_it(self) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        assert project["entry-points"]["pytest11"] == {"ottla": "ottla.testing.plugin"}

    def test_fixtures_with_and_without_workers(self, tmp_path: Path) -> None:
        (tmp_path / "conftest.py").write_text(
            "import pytest\n\n@pytest.fixture(scope='session')\ndef ottla_settings():\n"
            "    return {'num.partitions': 2}\n"
        )
        (tmp_path / "test_it.py").write_text(PLUGIN_TESTS)
        assert "6 passed" in run_pytest(tmp_path, "-p", "no:xdist")
        assert "6 passed" in run_pytest(tmp_path, "-n", "2")


PLUGIN_TESTS = """
import pytest
from confluent_kafka.admin import AdminClient

seen = set()

@pytest.mark.parametrize("word", ["plain", "sp ace / ä", "x" * 300, "plain again"])
def test_a_topic(ottla_broker, ottla_topic, word):
    assert ottla_topic not in seen
    seen.add(ottla_topic)
    topics = AdminClient({"bootstrap.servers": ottla_broker.bootstrap}).list_topics(timeout=300).topics
    assert len(topics[ottla_topic].partitions) == 2

@pytest.mark.ottla_topic(partitions=5, cleanup_policy="compact")
def test_a_topic_with_partitions(ottla_broker, ottla_topic):
    topics = AdminClient({"bootstrap.servers": ottla_broker.bootstrap}).list_topics(timeout=300).topics
    assert len(topics[ottla_topic].partitions) == 5

def test_without():
    pass
"""


def run_pytest(directory: Path, *arguments: str) -> str:
    """Run the tests of a directory as a user would, with Ottla's plugin; returns what pytest printed."""
    installed = {each.value for each in importlib.metadata.entry_points(group="pytest11")}
    plugin = [] if "ottla.testing.plugin" in installed else ["-p", "ottla.testing.plugin"]
    environ = {name: value for name, value in os.environ.items() if not re.match("PYTEST_", name)}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--strict-markers",
            "-p",
            "no:cacheprovider",
            "--basetemp=base",
            *plugin,
            *arguments,
        ],
        cwd=directory,
        capture_output=True,
        text=True,
        env=environ,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_examples_of_the_documentation(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "testing.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    files = {re.match(r"# (\w+\.py)\n", block).group(1): block for block in blocks}  # type: ignore[union-attr]
    assert len(files) == len(blocks) > 6
    for name, block in files.items():
        (tmp_path / name).write_text(block)
    assert "10 passed" in run_pytest(tmp_path, "-p", "no:xdist")
    scripts = [name for name in files if not re.match("test_|conftest", name)]
    with ThreadPoolExecutor(3) as pool:
        for status, output in pool.map(lambda name: run(sys.executable, name, directory=tmp_path), scripts):
            assert status == 0, output


def run(*command: str, directory: Path) -> tuple[int, str]:
    done = subprocess.run(
        command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300
    )
    return done.returncode, done.stdout
