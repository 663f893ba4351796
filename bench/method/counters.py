"""What a process costs beside its rate: CPU time of itself and of the load generator, and counters of `perf stat`.

Instructions (user and kernel) and cycles need hardware counters, which many virtual machines do not show; system calls
are counted everywhere that perf may run. Counting system calls slows them for the whole machine, so that perf counts
in a window of its own, and no rate is taken there.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from functools import cache

from bench.method.brokers import cpu_seconds

EVENTS = {
    "instructions:u": "instructions (user)",
    "instructions:k": "instructions (kernel)",
    "cycles": "cycles",
    "raw_syscalls:sys_enter": "system calls",
    "context-switches": "context switches",
}
"""Events of perf, with the name of their column."""


def parse(output: str) -> dict[str, float]:
    """Counts by event, of `perf stat -x,`; what was not counted or not supported is left out."""
    found = {}
    for line in output.splitlines():
        fields = line.split(",")
        if len(fields) > 2 and fields[2] in EVENTS and fields[0].replace(".", "", 1).isdigit():
            found[fields[2]] = float(fields[0])
    return found


@cache
def available() -> tuple[str, ...]:
    """The events that perf counts here; none without perf or the right to use it."""
    if shutil.which("perf") is None:
        return ()
    found = []
    for event in EVENTS:
        command = ["perf", "stat", "-x,", "-e", event, "true"]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if done.returncode == 0 and event in parse(done.stderr):
            found.append(event)
    return tuple(found)


def missing() -> str:
    """A sentence about what is not counted on this machine, empty where all is."""
    names = [column for event, column in EVENTS.items() if event not in available()]
    if not names:
        return ""
    why = "perf is not installed" if shutil.which("perf") is None else "perf has no such counter on this machine"
    return f"Not counted: {', '.join(names)} ({why})."


class Perf:
    """Counts of processes and all their threads, between `enable` and `disable`."""

    def __init__(self, pids: Sequence[int]) -> None:
        control, self._control = os.pipe()
        self._acknowledged, acknowledge = os.pipe()
        self._process = subprocess.Popen(
            [
                "perf",
                "stat",
                "-x,",
                "-D",
                "-1",
                "--control",
                f"fd:{control},{acknowledge}",
                "-e",
                ",".join(available()),
                "-p",
                ",".join(map(str, pids)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=(control, acknowledge),
        )
        os.close(control)
        os.close(acknowledge)

    def _tell(self, command: str) -> None:
        os.write(self._control, command.encode() + b"\n")
        os.read(self._acknowledged, 64)

    def enable(self) -> None:
        self._tell("enable")

    def disable(self) -> None:
        self._tell("disable")

    def finish(self) -> dict[str, float]:
        """End perf; what was counted, by event."""
        self._process.send_signal(signal.SIGINT)
        _, errors = self._process.communicate(timeout=30)
        os.close(self._control)
        os.close(self._acknowledged)
        return parse(errors)


def machine_cpu_seconds() -> float:
    """CPU time of all processes, and the time that the host took from a virtual machine (steal)."""
    with open("/proc/stat") as file:
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def busy_cores(seconds: float = 1.0) -> float:
    """Cores that the whole machine uses while this process waits for so long."""
    before, began = machine_cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    return (machine_cpu_seconds() - before) / (time.monotonic() - began)


class Meter:
    """From `start` to `stop`: CPU seconds of the broker, of this process and of all others; what perf counts.

    A cluster has several processes.
    """

    def __init__(self, pid: int | Sequence[int], with_perf: bool = False) -> None:
        self.pids = [pid] if isinstance(pid, int) else [*pid]
        self.cpu_seconds = self.client_cpu_seconds = self.other_cpu_seconds = 0.0
        self.counts: dict[str, float] = {}
        self._perf = Perf(self.pids) if with_perf and available() else None

    def start(self) -> None:
        if self._perf:
            self._perf.enable()
        self._machine = machine_cpu_seconds()
        self._client, self._broker = time.process_time(), sum(map(cpu_seconds, self.pids))

    def stop(self) -> None:
        self.cpu_seconds = sum(map(cpu_seconds, self.pids)) - self._broker
        self.client_cpu_seconds = time.process_time() - self._client
        machine = machine_cpu_seconds() - self._machine
        self.other_cpu_seconds = max(0.0, machine - self.cpu_seconds - self.client_cpu_seconds)
        if self._perf:
            self._perf.disable()
            self.counts = self._perf.finish()
