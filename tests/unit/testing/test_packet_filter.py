"""A process's own sockets, found among its descriptors."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from ottla.testing.packet_filter import tcp_sockets


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    """A node has hundreds of files open; a copy of each that stayed would be copied the next time."""
    with open(tmp_path / "file", "w"), socket.create_server(("127.0.0.1", 0)) as listening, socket.socketpair()[0]:
        before = set(os.listdir("/proc/self/fd"))  # others of this process may be closed meanwhile
        found = [each.getsockname() for each in tcp_sockets()]
        assert listening.getsockname() in found
        assert set(os.listdir("/proc/self/fd")) <= before
