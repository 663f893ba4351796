"""What the system says of this process, as Prometheus' own client libraries name it."""

from __future__ import annotations

import os
import resource
import sys

_PROC = "/proc/self"


def read_process() -> list[tuple[str, float]]:
    """Metrics and their values: CPU time and the limit of descriptors everywhere, the rest where there is /proc.

    Counting thousands of descriptors takes milliseconds, so this is for a thread.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    found: list[tuple[str, float]] = [
        ("process_cpu_seconds_total", round(used.ru_utime + used.ru_stime, 6)),
        ("process_max_fds", resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
    ]
    if not sys.platform.startswith("linux"):
        return found
    try:
        with open(f"{_PROC}/statm", "rb") as file:
            pages = file.read().split()
        found.append(("process_virtual_memory_bytes", int(pages[0]) * resource.getpagesize()))
        found.append(("process_resident_memory_bytes", int(pages[1]) * resource.getpagesize()))
        found.append(("process_open_fds", len(os.listdir(f"{_PROC}/fd")) - 1))  # without the one that lists them
        found.append(("process_start_time_seconds", _started()))
    except OSError:  # out of descriptors, or /proc is hidden
        pass
    return found


def _started() -> float:
    with open(f"{_PROC}/stat", "rb") as file:
        ticks = int(file.read().rpartition(b")")[2].split()[19])
    with open("/proc/stat", "rb") as file:
        boot = next(int(line.split()[1]) for line in file if line.startswith(b"btime"))
    return boot + ticks / os.sysconf("SC_CLK_TCK")
