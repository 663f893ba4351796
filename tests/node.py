"""An Ottla node in a process of its own, as the end-to-end tests start it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import weakref
from pathlib import Path

from ottla.testing.process import reserve
from peers.kafka import wait_until_answering

FOR_EVER = {"log.retention.ms": "-1"}
"""Records of tests have fixed timestamps of long ago; Kafka's default of seven days would delete them under a test."""


LOOP = os.environ.get("OTTLA_TEST_LOOP", "")
"""uvloop or asyncio: the event loop of all nodes, by hand."""


class NodeProcess:
    """`bootstrap` is its address, `data` its log directory unless `log.dirs` is set. As a context manager it starts and
    stops cleanly. Records stay for ever unless `settings` or a `config` file say otherwise."""

    def __init__(
        self, data: Path, settings: dict[str, str] | None = None, *, config: Path | None = None, port: int | None = None
    ) -> None:
        """With a `config` file, that and `settings` say all but the `port`, which must be that of the file."""
        self.data = data
        self.config = config
        if port is None:
            held = reserve(0)  # nobody else is given the port, also while the node is down
            weakref.finalize(self, held.close)
            port = held.getsockname()[1]
        self.port = port
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.settings = dict(settings or {})
        if config is None:
            self.settings = {"group.initial.rebalance.delay.ms": "0", **FOR_EVER, **self.settings}
            if LOOP:
                self.settings["ottla.event.loop"] = LOOP
        self.process: subprocess.Popen[bytes] | None = None
        self.output = data.with_name(data.name + ".out")

    def start(self, *, ready_s: float = 300) -> float:
        """Start, and return the seconds until the first answer. Raises RuntimeError with what the node printed."""
        self.begin()
        return self.wait_ready(ready_s)

    def begin(self) -> None:
        """Start, and do not wait: some nodes answer only when others are there."""
        with open(self.output, "ab") as output:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=self.environment()
            )

    def wait_ready(self, ready_s: float = 300) -> float:
        """Raises RuntimeError with what the node printed."""
        assert self.process is not None
        try:
            return wait_until_answering("127.0.0.1", self.port, ready_s, self.process)
        except RuntimeError as error:
            self._give_up()
            raise RuntimeError(f"{error}:\n{self.output.read_text()}") from error

    def command(self) -> list[str]:
        settings, place = self.settings, ["--config", str(self.config)]
        if self.config is None:
            settings = {"listeners": f"PLAINTEXT://{self.bootstrap}", **self.settings}
            place = [] if "log.dirs" in settings else [str(self.data)]
        arguments = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        return [sys.executable, "-m", "ottla.cli.main", "server", "start", *place, *arguments]

    def environment(self) -> dict[str, str]:
        """Without the settings of whoever runs the tests."""
        return {name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")}

    def _give_up(self) -> None:
        """Kill a node that did not start in time: it would outlive the tests."""
        process = self.process
        if process is not None:
            process.kill()
            process.wait()

    def stop(self) -> int:
        """Terminate and return the exit status."""
        assert self.process is not None
        self.process.terminate()
        status = self.process.wait(300)
        self.process = None
        return status

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process = None

    def __enter__(self) -> NodeProcess:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process is not None:
            self.stop()
