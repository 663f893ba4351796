"""`ottla produce` while a broker's disk has no room: it says so, and its records are there once there is some.

The node's files are real; that there is no room for a log is said for the operating system. By hand on a small tmpfs
the command printed the same.
"""

from __future__ import annotations

import asyncio
import errno
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla.filesystem import OsFile
from ottla.server.http.pages import health
from tests.unit.server.node import Client, running

ROOT = Path(__file__).parents[3]


def test_it_says_what_it_waits_for_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, full = OsFile.pwrite, False

    def pwrite(file: OsFile, buffers: Sequence[Any], position: int) -> int:
        if full and "/t-0/" in file.path:
            raise OSError(errno.ENOSPC, "no room", file.path)
        return real(file, buffers, position)

    monkeypatch.setattr(OsFile, "pwrite", pwrite)

    async def main() -> None:
        nonlocal full
        async with running(str(tmp_path)) as node:
            client = await Client.connect(node)
            await client.create("t")
            client.close()
            full = True
            (port,) = node.ports.values()
            command = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "ottla.cli.main",
                "produce",
                "t",
                "-b",
                f"127.0.0.1:{port}",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=ROOT,
            )
            assert command.stdin is not None and command.stderr is not None and command.stdout is not None
            command.stdin.write(b"one\ntwo\n")
            command.stdin.close()
            said = (await command.stderr.readline()).decode()
            assert said.startswith("ottla: 2 records not acknowledged yet: t, partition 0: Disk error"), said
            assert health(node)["status"] == "degraded"
            full = False
            assert (await command.stdout.read()).decode() == "2 records to t: partition 0, offset 0 to 1\n"
            assert await command.wait() == 0
            assert node.replicas.find("t", 0).log.log_end_offset == 2

    asyncio.run(main())
