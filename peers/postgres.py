"""A real PostgreSQL: a server of Debian's package in a temporary directory, on a port of loopback."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

PLACES = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
START_S = 60
LOOK_S = 0.02


def programs() -> Path | None:
    """The newest version's directory; None where it is not installed (`peers/debian.sh pg_ctlcluster:postgresql`)."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).parent
    return PLACES[-1] if PLACES else None


class Postgres:
    """Running between `with` and its end; `kill` and `start` in between. PostgreSQL does not run as root: there it is
    the user postgres, whom Debian's package makes. Raises FileNotFoundError where it is not installed."""

    def __init__(self) -> None:
        found = programs()
        if found is None:
            raise FileNotFoundError("there is no initdb: peers/debian.sh pg_ctlcluster:postgresql")
        self.bin = found
        self.as_user: dict[str, Any] = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
        self.directory = Path(tempfile.mkdtemp(prefix="ottla-pg-"))
        self.process: subprocess.Popen[bytes] | None = None
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port = int(one.getsockname()[1])
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def __enter__(self) -> Postgres:
        try:
            if self.as_user:
                shutil.chown(self.directory, "postgres", "postgres")
            done = subprocess.run(
                [
                    self.bin / "initdb",
                    "--pgdata",
                    "data",
                    "--username",
                    "postgres",
                    "--auth",
                    "trust",
                    "--no-sync",
                    "--encoding",
                    "UTF8",
                    "--locale",
                    "C",
                ],
                cwd=self.directory,
                capture_output=True,
                text=True,
                **self.as_user,
            )
            assert done.returncode == 0, done.stderr
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self) -> None:
        """Returns when it takes connections: after a kill, when it has recovered."""
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    self.bin / "postgres",
                    "-D",
                    "data",
                    "-p",
                    str(self.port),
                    "-c",
                    "listen_addresses=127.0.0.1",
                    "-c",
                    "unix_socket_directories=",
                    "-c",
                    "max_prepared_transactions=4",
                ],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **self.as_user,
            )
        deadline = time.monotonic() + START_S
        while True:
            try:
                self.connect().close()
                return
            except psycopg.OperationalError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"PostgreSQL is not up: {(self.directory / 'log').read_text()}") from None
                time.sleep(LOOK_S)

    def kill(self) -> None:
        """All its processes, as a machine that is gone. Returns when none of them is left: a server that starts while
        an old process still holds the shared memory ends at once."""
        if self.process is None:
            return
        if self.process.poll() is None:
            server = self.process.pid
            self.process.send_signal(signal.SIGSTOP)  # so that it forks nothing between the look and its end
            os.waitid(os.P_PID, server, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            backends = Path(f"/proc/{server}/task/{server}/children").read_text().split()
            ends = [os.pidfd_open(int(pid)) for pid in backends]
            for end in ends:
                signal.pidfd_send_signal(end, signal.SIGKILL)
            self.process.kill()
            self.process.wait()
            for end in ends:
                select.select([end], [], [])
                os.close(end)
        self.process = None

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, autocommit=True)

    def query(self, text: str) -> list[tuple[Any, ...]]:
        """Run a statement in a transaction of its own; its rows."""
        with self.connect() as connection:
            cursor = connection.execute(text.encode())
            return cursor.fetchall() if cursor.description is not None else []
