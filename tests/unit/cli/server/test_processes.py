"""What is read from /proc about a node's process."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from ottla.cli.server.processes import address, holder, listening, process, program
from ottla.filesystem import OsFileSystem


def test_the_holder_of_a_lock(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    assert holder(path) is None
    lock = OsFileSystem().lock(path)
    assert holder(path) == os.getpid()
    lock.release()
    assert holder(path) is None


def test_where_a_process_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert f"127.0.0.1:{server.getsockname()[1]}" in listening(os.getpid())


def test_addresses_as_the_kernel_writes_them() -> None:
    if sys.byteorder == "little":
        assert address("0100007F:2384") == "127.0.0.1:9092"
        assert address("0000000000000000FFFF00000100007F:4A94") == "127.0.0.1:19092"
        assert address("00000000000000000000000001000000:2384") == "[::1]:9092"
    assert address("00000000:2384") == "127.0.0.1:9092", "a wildcard is reached at loopback"


def test_this_process() -> None:
    facts = process(os.getpid())
    assert facts["pid"] == os.getpid()
    assert 0 <= facts["uptime_s"] < 86_400 and facts["memory_bytes"] > 1 << 20


def test_programs_by_their_command_lines() -> None:
    assert program(["/usr/bin/java", "-Xmx1g", "kafka.Kafka", "server.properties"]) == "Apache Kafka"
    assert program([sys.executable, "-m", "ottla.cli.main", "server", "start"]).startswith("Ottla")
    assert program(["/opt/bin/python", "/opt/bin/ottla", "server", "start"]) == "Ottla"
    assert program(["/usr/bin/redpanda", ""]) == "redpanda"
