"""A network for several roots: a bridge in a namespace of its own, which nothing outside of it reaches."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.deploy.roots import Root

NETWORK = "192.0.2"
"""Addresses that RFC 5737 keeps for examples."""
_HOLD = (
    "ip link set lo up && ip link add bridge0 type bridge && ip link set bridge0 up && echo up && exec sleep infinity"
)


class Switch:
    """As a context manager. `connect` gives a root an address; names are those of the hosts file."""

    def __init__(self, hosts: Path) -> None:
        self.hosts = hosts
        self._connected = 0

    def __enter__(self) -> Switch:
        self._holder = subprocess.Popen(["unshare", "--net", "sh", "-c", _HOLD], stdout=subprocess.PIPE)
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"up\n"
        self.hosts.write_text("127.0.0.1 localhost\n")
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.kill()
        self._holder.communicate()

    def name(self, *names: str) -> str:
        """The address of the next root, under these names."""
        self._connected += 1
        address = f"{NETWORK}.{self._connected}"
        with self.hosts.open("a") as file:
            file.write(f"{address} {' '.join(names)}\n")
        return address

    def connect(self, root: Root, address: str) -> None:
        end = f"veth{address.rpartition('.')[2]}"
        _within(self._holder.pid, f"ip link add {end} type veth peer name eth0 netns {root.pid}")
        _within(self._holder.pid, f"ip link set {end} master bridge0 up")
        _within(root.pid, f"ip addr add {address}/24 dev eth0 && ip link set eth0 up")


def _within(pid: int, command: str) -> None:
    subprocess.run(["nsenter", "-t", str(pid), "-n", "sh", "-c", command], check=True)


def in_network(root: Root, hosts: Path, *command: str) -> list[str]:
    """What to run here so that a program of this machine is in the network of the root, and knows its names."""
    script = f'mount --make-rprivate / && mount --bind {hosts} /etc/hosts && exec "$@"'
    return ["nsenter", "-t", str(root.pid), "-n", "unshare", "--mount", "sh", "-c", script, "sh", *command]


def poll(what: str, condition: Callable[[], bool], *, wait_s: float = 120) -> None:
    """Returns once `condition()` is true. Raises AssertionError that says what it waited for."""
    deadline_s = time.monotonic() + wait_s
    while not condition():
        assert time.monotonic() < deadline_s, f"waited {wait_s} s for {what}"
        time.sleep(0.1)
