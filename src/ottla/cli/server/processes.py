"""What Linux knows of a node's process: who holds a directory's lock, since when, and where it listens."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from ottla.version import VERSION

PROC = Path("/proc")
_LISTENING = "0A"


def holder(lock_file: str) -> int | None:
    """The process that has a lock on a file (`/proc/locks`), None where nobody has or the system does not show it."""
    try:
        inode = os.stat(lock_file).st_ino
        lines = (PROC / "locks").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        fields = line.split()
        if fields[1] != "->" and fields[5].rpartition(":")[2] == str(inode) and int(fields[4]) > 0:
            return int(fields[4])
    return None


def process(pid: int) -> dict[str, Any]:
    """pid, program, uptime in seconds, resident bytes: as far as this user may know."""
    facts: dict[str, Any] = {"pid": pid}
    try:
        facts["program"] = program((PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0"))
        ticks = int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[19])
        up_s = float((PROC / "uptime").read_text().split()[0])
        facts["uptime_s"] = round(max(0.0, up_s - ticks / os.sysconf("SC_CLK_TCK")), 1)
        facts["started_ms"] = int((time.time() - facts["uptime_s"]) * 1000)
        pages = int((PROC / str(pid) / "statm").read_text().split()[1])
        facts["memory_bytes"] = pages * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        pass
    return facts


def program(command: list[str]) -> str:
    """Ottla (with its version if it is this installation), Apache Kafka, or the command's own name."""
    if "kafka.Kafka" in command:
        return "Apache Kafka"
    head = command[:3]
    if any(Path(part).name == "ottla" or part.startswith("ottla.") for part in head):
        return f"Ottla {VERSION}" if Path(command[0]).parent == Path(sys.executable).parent else "Ottla"
    return Path(command[0]).name


def may_look_into(pid: int) -> bool:
    """Whether the files and sockets of a process are shown to this user; true for one that is gone."""
    try:
        os.listdir(PROC / str(pid) / "fd")
    except PermissionError:
        return False
    except OSError:
        pass
    return True


def listening(pid: int) -> list[str]:
    """HOST:PORT of the process's listening sockets; the host that reaches a wildcard is loopback."""
    mine = set()
    try:
        for link in (PROC / str(pid) / "fd").iterdir():
            try:
                mine.add(os.readlink(link))
            except OSError:
                continue  # closed meanwhile
        tables = [(PROC / str(pid) / "net" / name).read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    except OSError:
        return []
    rows = [line.split() for table in tables for line in table]
    return sorted({address(row[1]) for row in rows if row[3] == _LISTENING and f"socket:[{row[9]}]" in mine})


def address(text: str) -> str:
    """`0100007F:2384` as `127.0.0.1:9092`: words of four bytes in the machine's order, then the port."""
    raw, _, port = text.partition(":")
    words = [bytes.fromhex(raw[start : start + 8]) for start in range(0, len(raw), 8)]
    data = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    if len(data) == 16 and data[:12] == b"\0" * 10 + b"\xff\xff":
        data = data[12:]
    if not any(data):
        return f"127.0.0.1:{int(port, 16)}"
    host = socket.inet_ntop(socket.AF_INET if len(data) == 4 else socket.AF_INET6, data)
    return f"[{host}]:{int(port, 16)}" if ":" in host else f"{host}:{int(port, 16)}"
