"""Programs beside a node: what is refused before the node starts, and where the console finds the registry."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ottla.cli import client_security
from ottla.cli.exits import MISUSED, CommandFailed
from ottla.cli.server import beside
from ottla.cli.server.beside import CONSOLE, REGISTRY, Program, keep_running, listener_for, planned
from ottla.client.security import PLAINTEXT
from ottla.config.server import ServerConfig

SECURED: Mapping[str, str] = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:9092", "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512", "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_client(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(client_security.VARIABLE, raising=False)
    client_security.use(None)
    yield
    client_security.use(None)


def config(**more: str) -> ServerConfig:
    return ServerConfig.load(overrides={"listeners": "PLAINTEXT://127.0.0.1:9092", **more})


@pytest.mark.parametrize("program", [REGISTRY, CONSOLE], ids=lambda each: each.what)
@pytest.mark.parametrize(
    ("listen", "words"),
    [
        ("127.0.0.1", "must be HOST:PORT, for example"),
        ("127.0.0.1:x", "must be HOST:PORT"),
        (":8080", "must be HOST:PORT"),
        ("0.0.0.0:0", "everyone who reaches this machine"),
        ("192.0.2.1:0", "everyone who reaches this machine"),
        ("[::]:0", "everyone who reaches this machine"),
    ],
)
def test_what_does_not_start(program: Program, listen: str, words: str) -> None:
    with pytest.raises(CommandFailed, match=words) as failure:
        planned({program: listen}, config())
    assert failure.value.exit_code == MISUSED


@pytest.mark.parametrize("program", [REGISTRY, CONSOLE], ids=lambda each: each.what)
def test_a_port_that_is_taken(program: Program) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CommandFailed, match=f"{program.option}: cannot listen at 127.0.0.1:{port}: Address"):
            planned({program: f"127.0.0.1:{port}"}, config())


@pytest.mark.parametrize("program", [REGISTRY, CONSOLE], ids=lambda each: each.what)
def test_a_secured_node_whose_clients_settings_nobody_names(program: Program) -> None:
    secured = ServerConfig.load(overrides=dict(SECURED))
    with pytest.raises(CommandFailed, match=r"its listener SASL_PLAINTEXT is SASL_PLAINTEXT\n.*OTTLA_CLIENT_CONFIG"):
        planned({program: "127.0.0.1:0"}, secured)


@pytest.mark.parametrize("program", [REGISTRY, CONSOLE], ids=lambda each: each.what)
def test_a_port_of_the_node_itself(program: Program) -> None:
    """The node took it, and the program was started again for ever."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    at = f"127.0.0.1:{port}"
    for setting, settings in (
        ("listeners", {"listeners": f"PLAINTEXT://0.0.0.0:{port}", "advertised.listeners": f"PLAINTEXT://h:{port}"}),
        ("listeners", {"listeners": f"PLAINTEXT://localhost:{port}"}),
        ("ottla.http.listener", {"ottla.http.listener": at}),
    ):
        with pytest.raises(CommandFailed, match=rf"the node itself listens at port {port} \({setting}\)") as failure:
            planned({program: at}, config(**settings))
        assert failure.value.exit_code == MISUSED
    assert planned({program: at}, config(listeners=f"PLAINTEXT://127.0.0.2:{port}"))
    with pytest.raises(CommandFailed, match="--registry and --console name the same port"):
        planned({REGISTRY: at, CONSOLE: at}, config())


TWO: Mapping[str, str] = {
    "listeners": "OUT://127.0.0.1:9093,IN://127.0.0.1:9092", "inter.broker.listener.name": "IN",
    "listener.security.protocol.map": "OUT:SASL_PLAINTEXT,IN:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
}  # fmt: skip


@pytest.mark.parametrize("program", [REGISTRY, CONSOLE], ids=lambda each: each.what)
def test_the_listener_that_has_the_protocol_of_the_clients_settings(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was the first one: refused without settings, and never reached with the settings of another."""
    assert listener_for(program, ServerConfig.load(overrides=dict(TWO))).name == "IN"
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.username=a\nsasl.password=b\n"
    )
    monkeypatch.setenv(client_security.VARIABLE, str(file))
    client_security.use(None)
    swapped = {**TWO, "listeners": "IN://127.0.0.1:9092,OUT://127.0.0.1:9093"}
    for each in (TWO, swapped):
        assert listener_for(program, ServerConfig.load(overrides=dict(each))).name == "OUT"
    with pytest.raises(CommandFailed, match=r"security.protocol=SASL_PLAINTEXT: no listener .*PLAINTEXT is PLAINTEXT"):
        planned({program: "127.0.0.1:0"}, config())


def test_advice_names_options_of_the_node() -> None:
    """`--config` of `ottla server start` is the node's own file."""
    with pytest.raises(CommandFailed, match="everyone who reaches") as failure:
        planned({CONSOLE: "0.0.0.0:0"}, config())
    assert "--secure" in str(failure.value) and "--config" not in str(failure.value)


def test_the_console_gets_the_address_of_the_registry() -> None:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    plans = planned({REGISTRY: f"127.0.0.1:{port}", CONSOLE: "127.0.0.1:0"}, config())
    assert [each.program for each in plans] == [REGISTRY, CONSOLE]
    assert plans[1].options["registry"] == f"http://127.0.0.1:{port}"

    # A port that is chosen later is not known yet.
    plans = planned({REGISTRY: "127.0.0.1:0", CONSOLE: "127.0.0.1:0"}, config())
    assert "registry" not in plans[1].options
    assert client_security.current() == PLAINTEXT


def test_the_console_reads_the_nodes_log_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By absolute paths: its working directory may be another."""
    monkeypatch.chdir(tmp_path)
    (plan,) = planned({CONSOLE: "127.0.0.1:0"}, config(**{"log.dirs": "one,/two"}))
    assert plan.options["log_dirs"] == [str(tmp_path / "one"), "/two"]


def test_the_first_pause_before_a_restart_is_the_shortest(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It was twice that."""
    monkeypatch.setattr(beside, "RESTART_S", 0.01)

    async def test() -> list[float]:
        stop = asyncio.Event()
        ends_at_once = Program("nothing", "ottla.version", "--nothing", "")
        running = asyncio.ensure_future(keep_running(ends_at_once, {}, stop))
        while len(caplog.records) < 2:
            assert not running.done()
            await asyncio.sleep(0.01)
        stop.set()
        await running
        return [vars(each)["ottla_fields"]["pause_s"] for each in caplog.records[:2]]

    assert asyncio.run(test()) == [0.01, 0.02]


def test_a_program_that_cannot_be_started_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A machine out of processes: it was never started then, and no line said so."""
    monkeypatch.setattr(beside, "RESTART_S", 0.01)
    launch, refusals = asyncio.create_subprocess_exec, [OSError(11, "Resource temporarily unavailable")] * 2

    async def scarce(*command: Any, **options: Any) -> asyncio.subprocess.Process:
        if refusals:
            raise refusals.pop()
        return await launch(*command, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", scarce)

    async def test() -> list[object]:
        stop = asyncio.Event()
        running = asyncio.ensure_future(keep_running(Program("nothing", "ottla.version", "--nothing", ""), {}, stop))
        while len(caplog.records) < 3:
            assert not running.done()
            await asyncio.sleep(0.01)
        stop.set()
        await running
        fields = [vars(each)["ottla_fields"] for each in caplog.records[:3]]
        assert [each.message.split()[-1] for each in caplog.records[:3]] == ["again", "again", "restarted"]
        return [each.get("error", each.get("status")) for each in fields]

    assert asyncio.run(test()) == ["[Errno 11] Resource temporarily unavailable"] * 2 + [0]
