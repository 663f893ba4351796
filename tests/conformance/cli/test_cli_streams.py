"""Standard streams as no command should find them: closed, broken, full, not ready, in other encodings."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.conformance.cli.commands import Commands, arguments_of, ensure_decent, every_command, pool
from tests.conformance.cli.test_cli_hostile_values import REFUSED, VALID, furnish

EVERYTHING = os.environ.get("OTTLA_TEST_STREAMS") == "all"
"""Every kind of stream for every command and form of it; otherwise each command gets its share of them."""
LINES = 3000
LONG = {"sim", "spark archive"}
"""They work for a second or more, each time: once for each kind of stream."""

MISUSED = {"topic list", "server start"}
"""What is wrong in the command line is told before the command is known: by one that ends, and one that serves."""


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    yield from pool(tmp_path_factory.mktemp("streams"))


@pytest.fixture(scope="module")
def env(commands: Commands, bootstrap: str, registry_url: str) -> dict[str, str]:
    """The node, with two topics and a group in it, and a schema registry."""
    env = {"OTTLA_BOOTSTRAP": bootstrap, "OTTLA_REGISTRY": registry_url}
    furnish(commands, bootstrap)
    lines = commands.directory / "lines"
    lines.write_text("".join(f"a line that has the number {n}\n" for n in range(LINES)))
    for argv in (
        ["topic", "create", "many", "--if-not-exists"],
        ["produce", "many", "--file", str(lines)],
    ):
        ended = commands.wait(commands.start(*argv, env=env))
        assert ended.code == 0, ended
    return env


T = TypeVar("T")


def share(kinds: Sequence[T], turn: int) -> Sequence[T]:
    """All kinds, or that whose turn it is: neighbours among the commands have others."""
    return kinds if EVERYTHING else (kinds[turn % len(kinds)],)


def has_json(name: str) -> bool:
    return "--json" in {each.names[0] for each in arguments_of(dict(every_command())[name])}


@pytest.mark.parametrize("name", [each for each in VALID if each not in REFUSED])
def test_closed_broken_and_full(name: str, commands: Commands, env: dict[str, str]) -> None:
    argv = [*name.split(), *VALID[name]]
    turn = list(VALID).index(name)
    serves = name in ("server start", "dev")
    how: dict[str, Any] = {} if name == "server start" else {"env": env}
    if not serves:
        how["patience_s"] = 30.0  # each ends by itself, and the machine has other things to do
    if name in ("sim", "spark archive", "registry", "console"):
        how["patience_s"] = 120.0  # it works for seconds, and ends or says that it serves
    reader, broken = os.pipe()
    os.close(reader)
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        for out, told in share(((None, True), (broken, False), (full, True)), turn):
            extras = ([],) if name in LONG else share(([], ["--json"] if has_json(name) else ["--help"]), turn // 3)
            for extra in extras:
                ended = commands.run(*argv, *extra, stdout=out, **how)
                ensure_decent(ended, told=told)
                assert ended.code == (0 if serves and extra != ["--help"] else 1), ended
                assert ("standard output" in ended.err) == (told and ended.code == 1), ended
        for err in share((None, broken, full), turn // 2):
            if name not in LONG:
                ended = commands.run(*argv, stderr=err, **how)
                assert ended.code in (0, 3 if name == "server status" else 0), ended
            if name in MISUSED:
                ended = commands.run(*argv, "--no-such-option", stderr=err, **how)
                assert ended.code == 2, ended
        ended = commands.run(*argv, stdin=None, **how)
        ensure_decent(ended)
        assert ended.code == 0, ended
        ended = commands.run(*argv, stdin=None, stdout=None, stderr=None, **how)
        assert ended.code == (0 if serves else 1), ended
    finally:
        os.close(broken)
        os.close(full)


def test_a_closed_input_is_reported(commands: Commands, env: dict[str, str]) -> None:
    for extra in ([], ["--json"], ["--file", "-"]):
        ended = commands.run("produce", "t", *extra, stdin=None, env=env)
        ensure_decent(ended)
        assert ended.code == 1, ended
        assert "standard input" in ended.err, ended


def test_no_file_gets_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    """What a library prints would be written into it: a node's log, say."""
    code = (
        "import os, sys; [os.close(n) for n in (0, 1, 2)]; sys.argv = ['ottla', 'server', 'start', sys.argv[1],"
        " '--listen', '127.0.0.1:0']; from ottla.cli.main import main; sys.exit(main())"
    )
    node = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "data")])
    try:
        lock = tmp_path / "data" / ".lock"
        while not lock.exists():
            assert node.poll() is None, "the node does not start"
        assert {os.readlink(f"/proc/{node.pid}/fd/{number}") for number in range(3)} == {"/dev/null"}
        node.send_signal(signal.SIGTERM)
        assert node.wait(60) == 0
    finally:
        node.kill()


WRONG_OPTIONS = {"migrate zookeeper", "mirror plan"}
"""What they are refused for is an option or a file of settings."""


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_refusal_into_closed_broken_and_full(name: str, commands: Commands, env: dict[str, str]) -> None:
    reader, broken = os.pipe()
    os.close(reader)
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        for stream in (None, broken, full):
            for how in ({"stdout": stream}, {"stderr": stream}):
                ended = commands.run(*name.split(), *VALID[name], **how, env=env)
                ensure_decent(ended, told="stdout" in how)
                assert ended.code == (2 if name in WRONG_OPTIONS else 1), ended
    finally:
        os.close(broken)
        os.close(full)


def test_streams_that_do_not_block_lose_nothing(commands: Commands, env: dict[str, str]) -> None:
    """A parent such as a Node program sets O_NONBLOCK for both: a pipe that is full or empty for now is waited for."""
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(write, False)
    running = commands.start("consume", "many", stdout=write, env=env)
    os.close(write)
    with open(read, "rb") as stream:
        lines = stream.read().splitlines()
    ended = commands.wait(running)
    assert (ended.code, len(lines)) == (0, LINES), ended

    read, write = os.pipe()
    os.set_blocking(read, False)
    running = commands.start("produce", "t", "--json", stdin=read, env=env)
    os.close(read)
    with open(write, "wb", buffering=0) as stream:
        for number in range(20):
            stream.write(b"%d\n" % number)
    ended = commands.wait(running)
    assert (ended.code, json.loads(ended.out)["records"]) == (0, 20), ended


def test_a_disk_that_gets_full(commands: Commands, env: dict[str, str]) -> None:
    """In the middle of the output, not at its end."""
    ended = commands.run("consume", "many", env=env, file_bytes_max=10_000)
    ensure_decent(ended)
    assert ended.code == 1 and "standard output" in ended.err, ended
    assert len(ended.out) == 10_000


@pytest.mark.parametrize("locale", ["LC_ALL=C", "LC_ALL=POSIX", "PYTHONIOENCODING=ascii", "PYTHONIOENCODING=latin-1"])
def test_encodings(locale: str, env: dict[str, str]) -> None:
    """Bytes of records as they are, JSON that can be read, names as escapes; in processes that start so."""
    variable, _, value = locale.partition("=")

    def ottla(*argv: str | bytes) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-m", "ottla.cli.main", *argv],
            capture_output=True,
            check=False,
            timeout=120,
            env={**{name: text for name, text in os.environ.items() if name != "PYTHONUTF8"}, **env, variable: value},
        )

    topic = f"encodings-{value}"
    assert ottla("topic", "create", topic, "--if-not-exists").returncode == 0
    made = ottla("produce", topic, b"\xff\xfe", "é日".encode(), "--key", b"\xfe", "--header", b"h=\xff", "--json")
    assert (made.returncode, made.stderr) == (0, b"")
    assert ottla("consume", topic, "--values-only").stdout.splitlines()[-2:] == [b"\xff\xfe", "é日".encode()]
    first, second = (json.loads(line) for line in ottla("consume", topic, "--json").stdout.splitlines()[-2:])
    assert (first["value_base64"], second["value"], second["key_base64"]) == ("//4=", "é日", "/g==")
    shown = ottla("consume", topic, "--format", "text")
    assert (shown.returncode, shown.stderr) == (0, b"")
    refused = ottla("consume", b"\xff", "--json")
    assert refused.returncode == 2 and json.loads(refused.stderr)["exit_code"] == 2
